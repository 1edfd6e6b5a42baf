"""What a notebook shows of a fitted estimator: a table without a style or a script."""

from __future__ import annotations

from fedcluster._html import Html, plain_table
from fedcluster._pages._page import title
from fedcluster._pages._parts import percent
from fedcluster._pages._run import Run
from fedcluster._pages._sections import FAR, value
from fedcluster._report._tables import number

TOLD = 3
"""Columns in which a cluster is told to be far from the mean of all rows."""


def clusters_table(run: Run) -> Html:
    """Return the clusters as a table: size, share, and what sets each apart."""
    header = ["cluster", "rows", "share", "what sets it apart"]
    words = [[each["word"]] for each in run.stability.get("clusters", ())] or [[]] * run.k
    share = run.sizes / max(float(run.sizes.sum()), 1e-300)
    rows = [
        [j, number(float(run.sizes[j])), percent(share[j]), _apart(run, j), *words[j]]
        for j in range(run.k)
    ]
    return plain_table(title(run), [*header, *(["stability"] if any(words) else [])], rows)


def _apart(run: Run, j: int) -> str:
    """Return the columns in which a centre lies farthest from the mean of all rows."""
    ranked = sorted(run.features, key=lambda each: -abs(each.apart[j]))[:TOLD]
    told = [f"{each.name} {value(each, j)}" for each in ranked if abs(each.apart[j]) >= FAR]
    return ", ".join(told)
