"""The functions that vantage6 may call by name; it can call everything in this module."""

from fedcluster.transports.vantage6._functions import (
    cluster_scores,
    cluster_sums,
    column_sums,
    evaluate,
    fit,
    profile,
    profiles,
    row_summaries,
    select_k,
    site_facts,
)
from fedcluster.transports.vantage6._versions import SESSIONS

if SESSIONS:
    from fedcluster.transports.vantage6._functions import group_rows, read_table

    SESSION = (read_table, group_rows)
    """Functions that create the means in a session; version 4 would run them without stages."""

__all__ = [
    "cluster_scores",
    "cluster_sums",
    "column_sums",
    "evaluate",
    "fit",
    "profile",
    "profiles",
    "row_summaries",
    "select_k",
    "site_facts",
]
