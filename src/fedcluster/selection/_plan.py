"""The whole choice as one plan: sweep, gaps, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcluster.algorithms import FFCM
from fedcluster.recipes import FitSpec
from fedcluster.rounds import Plan
from fedcluster.selection._gap import box, gaps
from fedcluster.selection._sweep import sweep
from fedcluster.selection._verdict import Rule, Selection, judged

FUZZY_RULES = ("fuzzy-db", "xie-beni")


def clustered_by(rule: str, m: float | None = None, averaging: str = "avg_2") -> dict[str, Any]:
    """What each k is clustered by under a rule: the parameters of a `FitSpec` that it decides.

    Parameters
    ----------
    rule : str
        One of `RULES`. "xie-beni" and "fuzzy-db" judge fuzzy clusters; "fuzzy-db" those of the
        program of Stallmann & Wilbik.
    m : float, optional
        The fuzzifier; these two rules imply 2.
    averaging : {"avg_2", "avg_1"}, default="avg_2"
        For "fuzzy-db": how the server averages.

    Examples
    --------
    >>> clustered_by("vote"), clustered_by("xie-beni")
    ({'m': None}, {'m': 2.0})
    >>> clustered_by("fuzzy-db", averaging="avg_1")["algorithm"].averaging
    'avg_1'
    """
    if m is None and rule in FUZZY_RULES:
        m = 2.0
    if rule != "fuzzy-db":
        return {"m": m}
    program = FFCM(m or 2.0, averaging=averaging, local="converge", support="u")  # type: ignore[arg-type]
    return {"m": m, "algorithm": program}


def select_k_plan(
    k_range: Sequence[int], choice: FitSpec, rule: Rule | None = None
) -> Plan[Selection]:
    """Plan a clustering for each k and say which k is right.

    Parameters
    ----------
    k_range : sequence of int
        Each k to try.
    choice : FitSpec
        What to cluster by; its number of clusters is left aside.
    rule : Rule, optional
        How k is chosen; by default the vote.
    """
    rule = rule or Rule()
    swept = yield from sweep(k_range, choice)
    within = {k: scores["within"] for k, scores in swept.scores.items()}
    lower, upper = box(swept.mean, swept.variance) if rule.bounds is None else rule.bounds
    bounds = np.broadcast_to(lower, swept.mean.shape), np.broadcast_to(upper, swept.mean.shape)
    by_k = gaps(within, swept.weight, bounds, seed=choice.seed)
    table = {
        k: {**scores, "gap": by_k[k][0], "gap-error": by_k[k][1]}
        for k, scores in swept.scores.items()
    }
    return judged(table, swept.results, rule)
