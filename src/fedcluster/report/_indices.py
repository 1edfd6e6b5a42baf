"""What the indices of several numbers of clusters say, as a table and in a line."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedcluster.metrics._indices import CHOOSING, INDICES
from fedcluster.report._tables import Table, number


def index_table(
    n_clusters: int,
    rule: str,
    says: Mapping[str, int],
    scores: Mapping[int, Mapping[str, float | None]],
) -> Table:
    """Every k with its indices; a star stands where an index says: this one.

    Parameters
    ----------
    n_clusters : int
        The verdict.
    rule : str
        By which rule.
    says : mapping of str to int
        The k that each index takes for the best.
    scores : mapping of int to mapping of str to float
        All indices of each k; nan or None where an index says nothing.

    Examples
    --------
    >>> scores = {1: {"gap": 0.5, "inertia": 90.0}, 2: {"gap": 1.25, "inertia": 10.0}}
    >>> index_table(2, "gap", {"gap": 2, "inertia": 1}, scores).rows
    (('1', '0.5000 ', '90.0*'), ('2 <', '1.2500*', '10.0 '))
    """
    own = rule.split(",")[0]
    shown = [index for index in INDICES if CHOOSING[index].always_shown]
    indices = [i for i in dict.fromkeys([*shown, own]) if i in says]
    rows = []
    for k, found in scores.items():
        stars = ["*" if says[i] == k else " " for i in indices]
        cells = [f"{_short(found[i])}{star}" for i, star in zip(indices, stars, strict=True)]
        rows.append((f"{k} <" if k == n_clusters else str(k), *cells))
    return Table(
        "What each index says of each k (* its choice, < the verdict)",
        ("k", *((CHOOSING[i].header or i) + " " for i in indices)),
        tuple(rows),
    )


def verdict_line(n_clusters: int, reason: str) -> str:
    """The verdict and why.

    Examples
    --------
    >>> verdict_line(1, "The gap statistic says 1.")
    '1 cluster. The gap statistic says 1.'
    """
    return f"{n_clusters} cluster{'' if n_clusters == 1 else 's'}. {reason}"


def _short(x: float | None) -> str:
    """Four digits of what is small, whole numbers of what is large."""
    if x is None or math.isnan(x):
        return "-"
    return f"{x:.4f}" if abs(x) < 10 else f"{x:,.1f}" if abs(x) < 1e5 else number(float(f"{x:.6g}"))
