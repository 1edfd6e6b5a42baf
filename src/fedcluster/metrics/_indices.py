"""All indices by name: what each asks the sites, and what it makes of the total answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedcluster.core import Floats, State, Summary
from fedcluster.metrics import _clusters as clusters
from fedcluster.metrics import _external as external
from fedcluster.metrics import _fuzzy as fuzzy
from fedcluster.metrics._clusters import Scatter, Spread
from fedcluster.metrics._external import Contingency, SiteARI, contingency_table
from fedcluster.metrics._fuzzy import FuzzyScatter
from fedcluster.metrics._mixture import MixtureLikelihood
from fedcluster.metrics._silhouettes import SimplifiedSilhouette, SquaredSilhouette

Place = Literal["centers", "described", "means"]


@dataclass(frozen=True, slots=True)
class Index:
    """One index: many read the same message, so that it is asked for once.

    Parameters
    ----------
    step : type of Step
        What the sites are asked.
    score : callable
        ``score(state, total)``, from the state that was asked about and the sum of the answers.
    maximise : bool or None
        Whether a higher score is a better one; None where neither is.
    at : {"centers", "described", "means"}
        What the sites are asked about. In a first round the centres; in a second one
        `Clusters.described`, or the means of the clusters' rows in the place of the centres.
    """

    step: type[Any]
    score: Callable[[State, Summary], float]
    maximise: bool | None
    at: Place = "centers"


def _of_table(index: Callable[[Floats], float]) -> Callable[[State, Summary], float]:
    """The score of a contingency table; nan where limits held all of it back."""

    def score(state: State, total: Summary) -> float:
        return index(contingency_table(state, total)) if total.weights.any() else float("nan")

    return score


METRICS: Mapping[str, Index] = {
    "inertia": Index(Scatter, clusters.inertia, False),
    "within": Index(Scatter, clusters.within_sum_of_squares, False),
    "between": Index(Scatter, clusters.between_sum_of_squares, True),
    "total": Index(Scatter, clusters.total_sum_of_squares, None),
    "mean-distance": Index(Scatter, clusters.mean_distance, False),
    "wsse": Index(Scatter, clusters.mean_distance_per_column, False),
    "calinski-harabasz": Index(Scatter, clusters.calinski_harabasz, True),
    "bic": Index(Scatter, clusters.bic, True),
    "mixture-bic": Index(MixtureLikelihood, MixtureLikelihood().score, True, "described"),
    "davies-bouldin": Index(Spread, clusters.davies_bouldin_at_means, False, "described"),
    "davies-bouldin-at-centers": Index(Scatter, clusters.davies_bouldin_at_centers, False),
    "squared-silhouette": Index(SquaredSilhouette, SquaredSilhouette().score, True, "described"),
    "simplified-silhouette": Index(SimplifiedSilhouette, SimplifiedSilhouette().score, True),
    "simplified-silhouette-of-means": Index(
        SimplifiedSilhouette, SimplifiedSilhouette().score, True, "means"
    ),
    "partition-coefficient": Index(FuzzyScatter, fuzzy.partition_coefficient, True),
    "xie-beni": Index(FuzzyScatter, fuzzy.xie_beni, False),
    "fuzzy-db": Index(FuzzyScatter, fuzzy.fuzzy_davies_bouldin, False),
    "fuzzy-db-squared": Index(FuzzyScatter, fuzzy.fuzzy_davies_bouldin_squared, False),
    "osse": Index(FuzzyScatter, fuzzy.distance_to_others, None),
    "ari": Index(Contingency, _of_table(external.adjusted_rand_index), True),
    "nmi": Index(Contingency, _of_table(external.mutual_information), True),
    "purity": Index(Contingency, _of_table(external.purity), True),
    "mean-site-ari": Index(SiteARI, SiteARI().score, True),
}
