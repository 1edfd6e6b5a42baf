"""How many clusters there are, asked of the rows of several sites."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from fedcluster._choices import AVERAGINGS, PICKS, RULES
from fedcluster.core import Floats
from fedcluster.estimators._fuzzy import FederatedFuzzyCMeans
from fedcluster.estimators._inputs import one_of
from fedcluster.estimators._kmeans import FederatedKMeans
from fedcluster.selection import Rule, Selection, clustered_by


def select_k(
    X: Any,
    k_range: Any = "auto",
    *,
    rule: str = "vote",
    pick: str = "best",
    bounds: Any = None,
    m: float | None = None,
    averaging: str = "avg_2",
    sites: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    **parameters: Any,
) -> Selection:
    """Say how many clusters the rows of several sites have, and why.

    Every k is clustered in the same rounds, at most half as many more as the largest k alone
    takes, and scored by all indices in two rounds more.

    Parameters
    ----------
    X : dict or list of arrays or data frames, or one of them
        One table (n_i, d) for each site; or one table whose rows ``sites`` assigns.
    k_range : "auto" or iterable of int, default="auto"
        Each k to try; "auto" is 1 to 12, as far as there are rows.
    rule : str, default="vote"
        Who decides. "vote": the plurality of four judges, "mixture-bic", "gap",
        "calinski-harabasz" and "squared-silhouette"; in a tie the first of them. Or a single
        index: one of these, "bic" (X-means), "simplified-silhouette", "davies-bouldin",
        "xie-beni", "inertia" (its elbow), or "fuzzy-db", which is the framework of Stallmann &
        Wilbik: federated fuzzy c-means for each k, the least fuzzy Davies-Bouldin index.
    pick : {"best", "elbow"}, default="best"
        For a single index: its best value, or where its curve bends most.
    bounds : pair of floats or of arrays of shape (d,), optional
        Lower and upper bounds of the columns that everybody knows, for the references of the gap
        statistic. By default their box has the mean and the variance of each column; the rows'
        own minimum and maximum are never asked for, since each is the value of one row.
    m : float, optional
        The fuzzifier: cluster by fuzzy c-means. The rules "xie-beni" and "fuzzy-db" imply m = 2.
    averaging : {"avg_2", "avg_1"}, default="avg_2"
        For "fuzzy-db": how the server averages, by k-means or by position.
    sites, sample_weight, groups
        As in `FederatedKMeans.fit`.
    **parameters
        Those of `FederatedKMeans`, or with ``m`` of `FederatedFuzzyCMeans`: ``random_state``,
        ``algorithm``, ``min_cluster_size``, ...

    Returns
    -------
    Selection
        ``n_clusters``, the ``reason`` in words, ``warnings`` where the indices disagree, the
        ``table`` of all indices, and in ``results`` the clustering with each k.

    References
    ----------
    M. Stallmann & A. Wilbik, On a framework for federated cluster analysis, Applied Sciences 12,
    2022.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> north = np.concatenate([rng.normal(0, 1, (50, 2)), rng.normal(9, 1, (50, 2))])
    >>> south = np.concatenate([rng.normal(9, 1, (50, 2)), rng.normal(-9, 1, (50, 2))])
    >>> found = select_k({"north": north, "south": south}, range(1, 7), random_state=0)
    >>> found.n_clusters
    3
    >>> found.reason
    'BIC, the gap statistic, Calinski-Harabasz and the silhouette say 3.'
    >>> {k: round(scores["squared-silhouette"], 2) for k, scores in found.table.items() if k > 1}
    {2: 0.82, 3: 0.97, 4: 0.72, 5: 0.76, 6: 0.65}
    >>> found.results[3].state.centers.round().tolist()
    [[9.0, 9.0], [-9.0, -9.0], [-0.0, 0.0]]
    """
    if isinstance(k_range, int):
        raise ValueError(
            f"k_range must be 'auto' or several numbers, such as range(1, 9), not {k_range}"
        )
    one_of("rule", rule, RULES)
    one_of("pick", pick, PICKS)
    one_of("averaging", averaging, AVERAGINGS)
    if pick == "elbow" and rule == "vote":
        raise ValueError("pick='elbow' is for a single index; name it as the rule")
    parameters = clustered_by(rule, m, averaging) | parameters
    parameters["rule"] = Rule(rule, pick, _bounds(bounds))  # type: ignore[arg-type]
    estimator: FederatedKMeans | FederatedFuzzyCMeans
    if parameters["m"] is None:
        del parameters["m"]
        estimator = FederatedKMeans(k_range, **parameters)
    else:
        estimator = FederatedFuzzyCMeans(k_range, **parameters)
    fitted = estimator.fit(X, sites=sites, sample_weight=sample_weight, groups=groups)
    return cast("Selection", fitted.selection_)


def _bounds(bounds: Any) -> tuple[Floats, Floats] | None:
    """Public bounds as two arrays, (d,) or () each."""
    if bounds is None:
        return None
    try:
        lower, upper = (np.asarray(each, dtype=np.float64) for each in bounds)
        fits = lower.ndim <= 1 and bool((lower <= upper).all())
    except (TypeError, ValueError):
        fits = False
    if not fits or not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ValueError(
            f"bounds must be two finite numbers or two arrays of one for each column, the lower "
            f"first, not {bounds!r}"
        )
    return lower, upper
