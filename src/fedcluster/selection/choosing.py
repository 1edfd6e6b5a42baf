"""The whole choice as one plan: sweep, gaps, verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcluster.recipes import Choice
from fedcluster.rounds import Plan
from fedcluster.selection.gap import box, gaps
from fedcluster.selection.sweep import sweep
from fedcluster.selection.verdict import Rule, Selection, judged

__all__ = ["choosing"]


def choosing(k_range: Sequence[int], choice: Choice, rule: Rule | None = None) -> Plan[Selection]:
    """Plan a clustering for each k and say which k is right.

    Parameters
    ----------
    k_range : sequence of int
        Each k to try.
    choice : Choice
        What to cluster by; its number of clusters is left aside.
    rule : Rule, optional
        How k is chosen; by default the vote.
    """
    rule = rule or Rule()
    found = yield from sweep(k_range, choice)
    within = {k: scores["within"] for k, scores in found.scores.items()}
    lower, upper = box(found.mean, found.variance) if rule.bounds is None else rule.bounds
    bounds = np.broadcast_to(lower, found.mean.shape), np.broadcast_to(upper, found.mean.shape)
    by_k = gaps(within, found.weight, bounds, seed=choice.seed)
    table = {
        k: {**scores, "gap": by_k[k][0], "gap-error": by_k[k][1]}
        for k, scores in found.scores.items()
    }
    return judged(table, found.results, rule)
