"""Results in words, tables and pictures; how they look on a terminal is not known here."""

from fedcluster._report._messages import (
    few_clusters_line,
    ignored_lines,
    notes,
    summary_line,
    written_line,
)
from fedcluster._report._pictures import picture
from fedcluster._report._tables import (
    Comparison,
    SiteRecord,
    Table,
    centers_table,
    cluster_table,
    comparison_table,
    index_table,
    number,
    plain,
    site_record,
    verdict_line,
)

__all__ = [
    "Comparison",
    "SiteRecord",
    "Table",
    "centers_table",
    "cluster_table",
    "comparison_table",
    "few_clusters_line",
    "ignored_lines",
    "index_table",
    "notes",
    "number",
    "picture",
    "plain",
    "site_record",
    "summary_line",
    "verdict_line",
    "written_line",
]
