"""FederatedFuzzyCMeans: fuzzy clustering over sites under scikit-learn's contract."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcluster._choices import FUZZY_ALGORITHMS
from fedcluster.core import Floats
from fedcluster.estimators._base import Federated
from fedcluster.kernels import fuzzy_pass, memberships
from fedcluster.preprocessing import on_whole_rows


class FederatedFuzzyCMeans(Federated):
    """Fuzzy c-means over the rows of several sites, as if they lay in one place.

    Parameters
    ----------
    n_clusters : int, "auto" or iterable of int, default=8
        k, or the numbers to choose from, as in `FederatedKMeans`.
    m : float, default=2
        The fuzzifier, above 1: near 1 memberships are nearly hard.
    algorithm : {"auto", "fcm", "ffcm"} or Algorithm, default="auto"
        "auto" starts from one round of site summaries and refines the best of many starts by
        exact steps of fuzzy c-means in the same rounds; "fcm" is exact federated fuzzy c-means
        from ``init``; "ffcm" is the algorithm of Stallmann & Wilbik with k-means averaging (see
        `FFCM` for all its switches).
    init, n_init, max_iter, random_state, min_cluster_size, participation, quality, sums_only
        As in `FederatedKMeans`, and so are ``prepare`` and ``rule``; a limit on the size of a
        cluster looks at sums of memberships.
    tol : float, default=1e-4
        Converged when the Euclidean norm of the centres' move is at most ``tol`` times the root
        of the mean variance of a column.

    Attributes
    ----------
    cluster_centers_, labels_, site_labels_, n_iter_, history_, ...
        As in `FederatedKMeans`; a label is the cluster of the largest membership.
    inertia_ : float
        J_m, the sum of u^m |x - c|^2, as the sites report it.

    References
    ----------
    J. C. Bezdek, Pattern Recognition with Fuzzy Objective Function Algorithms, 1981.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster import FederatedFuzzyCMeans
    >>> north, south = np.array([[0.0], [1.0], [2.0]]), np.array([[8.0], [9.0], [10.0]])
    >>> model = FederatedFuzzyCMeans(n_clusters=2, random_state=0).fit([north, south])
    >>> np.sort(model.cluster_centers_, axis=0).round(1)
    array([[1.],
           [9.]])
    >>> model.predict_proba([[5.0]]).round(1)
    array([[0.5, 0.5]])
    """

    _names = FUZZY_ALGORITHMS

    def __init__(
        self,
        n_clusters: Any = 8,
        *,
        m: float = 2.0,
        algorithm: Any = "auto",
        init: Any = "auto",
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: Any = None,
        min_cluster_size: Any = "auto",
        participation: float = 1.0,
        quality: str = "good",
        sums_only: bool = False,
        prepare: Any = None,
        rule: Any = "vote",
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.algorithm = algorithm
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.min_cluster_size = min_cluster_size
        self.participation = participation
        self.quality = quality
        self.sums_only = sums_only
        self.prepare = prepare
        self.rule = rule

    def predict_proba(self, X: Any) -> Floats:
        """Memberships u of rows in clusters, (n, k); each row sums to 1."""
        return on_whole_rows(
            lambda rows: memberships(rows, self.cluster_centers_, self.m), self._rows(X), np.nan
        )

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> float:
        """Minus J_m of the rows."""
        rows = self._rows(X)
        whole = np.logical_not(np.isnan(rows).any(axis=1))
        weight = None if sample_weight is None else np.asarray(sample_weight)[whole]
        found = fuzzy_pass(rows[whole], self.cluster_centers_, self.m, weight)
        return -float(found.errors.sum())

    def _algorithm(self) -> Any:
        if not self.m > 1:
            raise ValueError(f"the fuzzifier m must be above 1, not {self.m}")
        own = getattr(self.algorithm, "m", self.m)
        if own != self.m:
            raise ValueError(f"m={self.m}, but algorithm is {self.algorithm!r}")
        return super()._algorithm()
