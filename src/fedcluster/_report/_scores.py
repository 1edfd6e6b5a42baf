"""Scores of a clustering in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcluster.metrics import METRICS
from fedcluster.metrics.objectives import LOG_LIKELIHOOD, MEANINGS
from fedcluster.recipes.scores import BY_CHANCE

SILHOUETTE = "squared-silhouette"
STRUCTURES = (
    (0.71, "Clearly separated", "strong"),
    (0.51, "Reasonably separated", "reasonable"),
    (0.26, "Weakly separated", "weak"),
    (-1.0, "Overlapping", "below weak"),
)
"""Silhouettes, what they say of clusters, and what Kaufman & Rousseeuw (1990, p. 88) call it."""
AGREEMENTS = ((0.9, "excellent"), (0.8, "good"), (0.65, "moderate"), (-1.0, "poor"))
"""Adjusted Rand indices, and what Steinley (2004) calls the agreement."""
HARDLY = 0.93
"""What is left to a perfect silhouette, as a share of that of chance, where it is hardly less."""
SUMS = (
    "inertia is the sum of squared distances of the rows to their centres, within that to the "
    "means of the clusters' rows: the same where the centres are these means. Both fall with every "
    "further cluster, so that a small one is no sign of a good k."
)
OTHERS = (
    "The other indices have no thresholds in their sources: compare them between models of the "
    "same rows, the higher or lower the better as the column says."
)


def better(index: str, metrics: Sequence[Any] = ()) -> str | None:
    """Return whether the higher or the lower score is the better one, if either is.

    Parameters
    ----------
    index : str
        The name of an index, or a metric of one's own as it is written.
    metrics : sequence of Metric
        These metrics.
    """
    own = {str(metric): bool(metric.maximise) for metric in metrics}
    if index in own:
        higher: bool | None = own[index]
    elif index in MEANINGS:
        higher = index == LOG_LIKELIHOOD
    else:
        higher = METRICS[index].maximise if index in METRICS else None
    return {True: "higher", False: "lower", None: None}[higher]


def meaning(scores: Mapping[str, float]) -> list[str]:
    """Return what scores mean, a sentence or two each, with the source of each threshold.

    Examples
    --------
    >>> meaning({"squared-silhouette": 0.3, "squared-silhouette-by-chance": 0.4})
    ['No structure beyond chance: the squared silhouette is 0.3; rows of a single cloud, cut into \
as many clusters, reach up to 0.4.']
    >>> [clear, *_] = meaning({"squared-silhouette": 0.95, "ari": 0.93})
    >>> clear.split(":")[0]
    'Clearly separated'
    """
    said = _separation(scores.get(SILHOUETTE, math.nan), scores.get(BY_CHANCE, math.nan))
    said += _agreement(scores.get("ari", math.nan))
    if {"inertia", "within"} <= scores.keys():
        said.append(SUMS)
    said += [f"{name} is {MEANINGS[name]}." for name in scores if name in MEANINGS.keys() - METRICS]
    judged = {SILHOUETTE, BY_CHANCE, "ari", "inertia", "within", "total"}
    return [*said, OTHERS] if scores.keys() & METRICS.keys() - judged else said


def _separation(silhouette: float, chance: float) -> list[str]:
    """Return how far clusters lie apart, beside a single cloud and by the table of the source."""
    if math.isnan(silhouette):
        return []
    cloud = f"rows of a single cloud, cut into as many clusters, reach up to {chance:.2g}"
    if silhouette <= chance:
        return [f"No structure beyond chance: the squared silhouette is {silhouette:.2g}; {cloud}."]
    plain = round(1 - math.sqrt(1 - max(silhouette, 0.0)), 2)
    _, words, name = next(each for each in STRUCTURES if plain >= each[0])
    hardly = 1 - silhouette > HARDLY * (1 - chance)
    words = f"{words}, hardly more than chance" if hardly else words
    beyond = "" if math.isnan(chance) else f" By chance, {cloud}."
    return [
        f"{words}: the squared silhouette is {silhouette:.2g}, that of plain distances about "
        f"{plain:.2g}: {name}, where Kaufman & Rousseeuw (1990, p. 88) call a structure strong "
        f"from 0.71 on, reasonable from 0.51, weak from 0.26.{beyond}"
    ]


def _agreement(ari: float) -> list[str]:
    """Return how well clusters agree with labels, beside what chance does."""
    if math.isnan(ari):
        return []
    name = next(name for least, name in AGREEMENTS if ari >= least)
    return [
        f"The agreement with the labels is {name}: an adjusted Rand index of {ari:.2g}, where "
        "chance gives 0. Excellent is 0.9 and more, good 0.8, moderate 0.65 (Steinley 2004)."
    ]
