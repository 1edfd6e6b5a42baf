"""The indices that can choose the number of clusters, and those that have a vote."""

from __future__ import annotations

from fedcluster._choices import RULES
from fedcluster.metrics import METRICS, Choosing

GAP = Choosing("the gap statistic", "gap", vote=2, always_shown=True)
"""Of the gap statistic, which the server computes itself."""

CHOOSING = {"gap": GAP} | {
    name: index.choosing for name, index in METRICS.items() if index.choosing is not None
}
"""How each index that can choose does so, by name."""

INDICES = tuple(name for name in RULES if name in CHOOSING)
"""Every index that can choose, `inertia` by its elbow alone."""

JUDGES = tuple(sorted((i for i in INDICES if CHOOSING[i].vote), key=lambda i: CHOOSING[i].vote))
"""Whose votes count, in the order in which ties are broken."""


def rises(index: str) -> bool:
    """Return whether a higher score of an index is a better one."""
    return index == "gap" or bool(METRICS[index].maximise)
