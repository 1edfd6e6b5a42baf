"""Indices by name: for each, the question to the sites, the score, its use in choosing k.

An index is added by a row of `METRICS`, and by a `Measurement` if no other index uses the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedcluster.core import Floats, State, Step, Summary
from fedcluster.metrics import clusters, external
from fedcluster.metrics import objectives as fuzzy
from fedcluster.metrics.clusters import Clusters, Scatter, Spread, second_round
from fedcluster.metrics.external import Contingency, SiteARI, contingency_table
from fedcluster.metrics.gaussians import ColumnSpread, MixtureLikelihood, mixture_round
from fedcluster.metrics.objectives import FuzzyScatter
from fedcluster.metrics.silhouettes import SimplifiedSilhouette, SquaredSilhouette
from fedcluster.options.choices import RULES


@dataclass(frozen=True, slots=True)
class Given:
    """What is known about a clustering apart from its centres.

    Parameters
    ----------
    m : float, optional
        The fuzzifier of fuzzy clusters.
    classes : tuple, optional
        The labels of the sites, if clusters are compared with them.
    complete : bool, default=True
        Whether these are all labels.
    """

    m: float | None = None
    classes: tuple[Any, ...] | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """Message that indices are computed from; several indices may share one.

    Parameters
    ----------
    step : callable
        ``step(given)`` is the step to ask; None if it does not apply to the clusters.
    after : tuple of Measurement
        The measurements whose totals it depends on; without any, it is asked in the first round.
    about : callable, optional
        ``about(state, *totals)`` returns the state to ask about, from that of the clustering and
        the totals of ``after``; by default that of the clustering.
    """

    step: Callable[[Given], Step | None]
    after: tuple[Measurement, ...] = ()
    about: Callable[..., State] | None = None

    def state(self, state: State, totals: Mapping[Measurement, Summary], round: int) -> State:
        """Return the state to ask about in a round of measuring, 0, 1, ..."""
        if self.about is not None:
            about = self.about(state, *(totals[each] for each in self.after))
            return replace(about, round=state.round + round)
        return state


@dataclass(frozen=True, slots=True)
class Choosing:
    """Role of an index in choosing the number of clusters.

    Parameters
    ----------
    label : str
        Its name in a sentence; tables use the name of the index.
    vote : int, default=0
        Its position among the judges, from 1; 0 has no vote.
    always_shown : bool, default=False
        Whether it is shown in every table of indices.
    """

    label: str
    vote: int = 0
    always_shown: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """Index of a clustering: a question to the sites, a score and its direction.

    Parameters
    ----------
    asks : Measurement
        The message that it is computed from.
    score : callable
        ``score(state, total)`` returns the score, from the state asked about and the sum of the
        answers.
    maximise : bool or None
        Whether a higher score is better; None if neither direction is.
    choosing : Choosing, optional
        Its role in choosing the number of clusters, if any.
    """

    asks: Measurement
    score: Callable[[State, Summary], float]
    maximise: bool | None
    choosing: Choosing | None = None


def _at_means(state: State, scatter: Summary) -> State:
    """Return the means of the clusters that have rows, in place of the centres."""
    moved = Clusters.from_total(state, scatter)
    return State(moved.means[moved.present], moved.weights[moved.present])


def _table(given: Given) -> Step | None:
    """Return the step for the contingency table, if classes are known."""
    if given.classes is None:
        return None
    return Contingency.from_classes(given.classes, complete=given.complete)


def _of_table(index: Callable[[Floats], float]) -> Callable[[State, Summary], float]:
    """Return the function that scores a contingency table; nan if limits held all of it back."""

    def score(state: State, total: Summary) -> float:
        return index(contingency_table(state, total)) if total.weights.any() else float("nan")

    return score


SCATTER = Measurement(lambda _given: Scatter())
NEAREST = Measurement(lambda _given: SimplifiedSilhouette())
COLUMNS = Measurement(lambda _given: ColumnSpread())
FUZZY = Measurement(lambda given: None if given.m is None else FuzzyScatter(given.m))
TABLE = Measurement(_table)
OWN_TABLE = Measurement(lambda given: None if given.classes is None else SiteARI())
SPREAD = Measurement(lambda _given: Spread(), (SCATTER,), second_round)
SQUARED = Measurement(lambda _given: SquaredSilhouette(), (SCATTER,), second_round)
MIXTURE = Measurement(lambda _given: MixtureLikelihood(), (SCATTER, COLUMNS), mixture_round)
MEANS = Measurement(lambda _given: SimplifiedSilhouette(), (SCATTER,), _at_means)

SHARED = (SCATTER, NEAREST, COLUMNS, FUZZY, TABLE, OWN_TABLE, SPREAD, SQUARED, MIXTURE, MEANS)
"""Measurements in the order of their tasks; others follow in the order of their indices."""

METRICS: Mapping[str, Index] = {
    "inertia": Index(
        SCATTER,
        clusters.inertia,
        False,
        Choosing("the elbow of the inertia", always_shown=True),
    ),
    "within": Index(SCATTER, clusters.within_sum_of_squares, False),
    "between": Index(SCATTER, clusters.between_sum_of_squares, True),
    "total": Index(SCATTER, clusters.total_sum_of_squares, None),
    "mean-distance": Index(SCATTER, clusters.mean_distance, False),
    "wsse": Index(SCATTER, clusters.mean_distance_per_column, False),
    "calinski-harabasz": Index(
        SCATTER,
        clusters.calinski_harabasz,
        True,
        Choosing("Calinski-Harabasz", 3, always_shown=True),
    ),
    "bic": Index(SCATTER, clusters.bic, False, Choosing("X-means' BIC")),
    "mixture-bic": Index(
        MIXTURE, MixtureLikelihood().score, False, Choosing("the mixture BIC", 1, always_shown=True)
    ),
    "davies-bouldin": Index(
        SPREAD,
        clusters.davies_bouldin_at_means,
        False,
        Choosing("Davies-Bouldin", always_shown=True),
    ),
    "davies-bouldin-at-centers": Index(SCATTER, clusters.davies_bouldin_at_centers, False),
    "squared-silhouette": Index(
        SQUARED,
        SquaredSilhouette().score,
        True,
        Choosing("the squared silhouette", 4, always_shown=True),
    ),
    "simplified-silhouette": Index(
        NEAREST,
        SimplifiedSilhouette().score,
        True,
        Choosing("the simplified silhouette"),
    ),
    "simplified-silhouette-of-means": Index(MEANS, SimplifiedSilhouette().score, True),
    "partition-coefficient": Index(FUZZY, fuzzy.partition_coefficient, True),
    "xie-beni": Index(FUZZY, fuzzy.xie_beni, False, Choosing("Xie-Beni")),
    "fuzzy-db": Index(FUZZY, fuzzy.fuzzy_davies_bouldin, False, Choosing("fuzzy Davies-Bouldin")),
    "fuzzy-db-squared": Index(FUZZY, fuzzy.fuzzy_davies_bouldin_squared, False),
    "osse": Index(FUZZY, fuzzy.distance_to_others, None),
    "ari": Index(TABLE, _of_table(external.adjusted_rand_index), True),
    "nmi": Index(TABLE, _of_table(external.mutual_information), True),
    "purity": Index(TABLE, _of_table(external.purity), True),
    "mean-site-ari": Index(OWN_TABLE, SiteARI().score, True),
}

CHOOSING: Mapping[str, Choosing] = {
    "likelihood": Choosing("the likelihood of mixtures"),  # based on mixtures, not on a clustering
    # the server also draws reference data
    "gap": Choosing("the gap statistic", 2, always_shown=True),
    **{name: index.choosing for name, index in METRICS.items() if index.choosing is not None},
}
"""Role, by name, of each index that can choose the number of clusters."""

INDICES = tuple(name for name in RULES if name in CHOOSING)
"""All indices that can choose k; `inertia` only by its elbow."""

JUDGES = tuple(sorted((i for i in INDICES if CHOOSING[i].vote), key=lambda i: CHOOSING[i].vote))
"""Indices that vote, in the order in which ties are broken."""
