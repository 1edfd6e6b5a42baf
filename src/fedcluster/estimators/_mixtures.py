"""Estimator of mixtures of normal distributions over the rows of several sites."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from math import log
from numbers import Integral
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fedcluster.algorithms import GaussianMixture, MergedMixture
from fedcluster.core import Floats, Labels, Result, Rows, State
from fedcluster.estimators._base import Federated, one_of
from fedcluster.metrics.gaussians import components_of, drawn, log_likelihoods, seen
from fedcluster.options.choices import COVARIANCES, Covariance
from fedcluster.options.refusals import refused
from fedcluster.preprocessing.transform import on_whole_rows
from fedcluster.selection import Selection


@dataclass(eq=False, repr=False)
class FederatedGaussianMixture(DensityMixin, Federated):
    """Mixture of normal distributions over the rows of several sites, as if in one place.

    It is fitted by expectation and maximisation from sums: each site computes the probability of
    each component for its rows, and sends weights, first and second moments. The parameters and
    attributes are those of scikit-learn's `GaussianMixture`, and the mixture is that of the pooled
    rows.

    Parameters
    ----------
    n_components : int, "auto" or iterable of int, default=1
        The number k of components, or the numbers to choose from, as in `FederatedKMeans`.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        The shape of the covariances: unrestricted, shared by all components, diagonal, or a
        multiple of the identity.
    tol : float, default=1e-3
        Converged when the mean log likelihood of a row changes by less than ``tol``.
    reg_covar : float, default=1e-6
        Added to the variances, as a share of the variance of all rows in the column, so that the
        unit decides nothing. scikit-learn adds it as it is: the same at variance 1.
    max_iter : int, default=100
        The largest number of rounds of expectation and maximisation.
    n_init : int or "auto", default="auto"
        Number of starts, the best of k-means, in a race in which ever fewer of them share the
        rounds. "auto" means mixtures of leaves, which describe the rows; of fewer than 5,000 rows
        also 48 random starts, followed by children of the best: these combine two mixtures
        component by component and move one component.
    weights_init, means_init, precisions_init : array-like, optional
        The start: shares (k,), means (k, d), precisions shaped like ``precisions_``. The others
        require the means; without precisions, each row first belongs to its nearest mean. The order
        of the components is then that of the start.
    noise : bool or float, default=False
        Whether one more component is noise, with the same density 1 / V everywhere. A number is V,
        in units of prepared rows; with True, V is that of a box with the covariance of the rows.
    merge : bool, default=False
        Whether clusters are sets of components, so that they may have any shape (Hennig 2010;
        Baudry et al. 2010): moons, rings, arcs. ``n_components`` is then "auto", or the numbers of
        clusters to choose from; the number of components is found automatically. A row's label and
        probabilities are those of the clusters.
    random_state, min_cluster_size, sums_only, prepare, rule, protection, verbose, profile
        As in `FederatedKMeans`. A limit on the size of a cluster applies to sums of probabilities.
        Text columns, as prepared by ``prepare``, have a probability for each level in each
        component, instead of means and variances; if all columns are text, the components are
        latent classes.
    previous
        As in `FederatedKMeans`, for ``n_components``.
    stability
        As in `FederatedKMeans`; requires ``merge``.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        The shares of the components; with noise, their sum is 1 minus ``noise_``.
    means_ : ndarray of shape (k, d)
        The means; for levels, their shares.
    covariances_, precisions_, precisions_cholesky_ : ndarray
        Arrays of shape (k, d, d), (d, d), (k, d) or (k,), by ``covariance_type``; 0 for columns of
        levels.
    noise_ : float
        The share of noise.
    component_clusters_ : ndarray of shape (c,)
        The cluster of each component; with ``merge``, there may be more components than clusters,
        and ``weights_``, ``means_`` and the covariances are those of components.
    converged_ : bool
        Whether the fit converged.
    n_iter_ : int
        Number of rounds with the sites, including those for the start.
    lower_bound_ : float
        The mean log likelihood of a row, in the round before the last update, as in scikit-learn.
    state_ : State
        The final state of the server.
    n_components_, labels_, site_labels_, selection_, history_, values_sent_, sites_, ...
        As in `FederatedKMeans`, with ``n_clusters_`` for the number of components. The label of a
        row that is noise is -1.

    Notes
    -----
    A weight counts as repeated rows do, up to rounding. If a component has no more different rows
    than columns, its full covariance is singular. Then rounding, magnified by 1 / ``reg_covar``,
    may decide which local maximum is found, or how two components share the same rows; so may the
    order of the rows.

    References
    ----------
    A. P. Dempster, N. M. Laird & D. B. Rubin, Maximum likelihood from incomplete data via the EM
    algorithm, J. R. Stat. Soc. B 39, 1977.

    C. Hennig, Methods for merging Gaussian mixture components, Adv. Data Anal. Classif. 4, 2010;
    J.-P. Baudry, A. E. Raftery, G. Celeux, K. Lo & R. Gottardo, Combining mixture components for
    clustering, J. Comput. Graph. Stat. 19, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster import FederatedGaussianMixture
    >>> north = np.array([[0.0], [1.0], [2.0], [8.0]])
    >>> south = np.array([[7.0], [9.0], [10.0]])
    >>> model = FederatedGaussianMixture(2, random_state=0).fit({"north": north, "south": south})
    >>> model.means_.round(1), model.weights_.round(2)
    (array([[8.5],
           [1. ]]), array([0.57, 0.43]))
    >>> model.predict_proba([[0.0], [9.0]]).round(3)
    array([[0., 1.],
           [1., 0.]])
    """

    _names = ("auto",)
    _counted = "n_components"
    _soft = True

    n_components: int | Literal["auto"] | Iterable[int] = 1
    _: KW_ONLY
    covariance_type: Covariance = "full"
    tol: float = 1e-3
    reg_covar: float = 1e-6
    max_iter: int = 100
    weights_init: ArrayLike | None = None
    means_init: ArrayLike | None = None
    precisions_init: ArrayLike | None = None
    noise: bool | float = False
    merge: bool = False

    algorithm: Any = field(init=False, default="auto")
    init: Any = field(init=False, default="auto")
    participation: float = field(init=False, default=1.0)

    def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> Labels:
        """Return the label of each row, (n,), after `fit`, which takes the other arguments."""
        return self.fit(X, **kwargs).labels_

    def score_samples(self, X: Any) -> Floats:
        """Return the log of the density of each row, (n,)."""
        return on_whole_rows(
            lambda rows: log_likelihoods(self._mixture, self._parts, self._as_seen(rows)),
            self._model.prepared(X),
            np.nan,
        )

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> float:
        """Return the mean log likelihood of the rows, ignoring dropped ones."""
        likelihoods = self.score_samples(X)
        weight = np.ones(len(likelihoods)) if sample_weight is None else np.asarray(sample_weight)
        some = np.logical_not(np.isnan(likelihoods))
        return float(np.average(likelihoods[some], weights=weight[some]))

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion on rows; lower is better."""
        n = len(self._model.prepared(X))
        return -2 * n * self.score(X) + self._n_parameters() * log(n)

    def aic(self, X: Any) -> float:
        """Return the Akaike information criterion on rows; lower is better."""
        return -2 * len(self._model.prepared(X)) * self.score(X) + 2 * self._n_parameters()

    def sample(self, n_samples: int = 1) -> tuple[Floats, Labels]:
        """Draw prepared rows from the components, excluding noise.

        Returns
        -------
        X : ndarray of shape (n_samples, d)
            Rows, sorted by component; each text has one level.
        y : ndarray of shape (n_samples,)
            The component of each row or, with ``merge``, its cluster.
        """
        check_is_fitted(self)
        rng = check_random_state(self.random_state)
        counts = rng.multinomial(n_samples, self.weights_ / self.weights_.sum())
        X = np.vstack([self._drawn(j, n, rng) for j, n in enumerate(counts)])
        if isinstance(self._mixture, MergedMixture):
            X = X * self.state_.memory["scale"] + self.state_.memory["shift"]
        return X, np.repeat(self.component_clusters_, counts).astype(np.int32)

    def _drawn(self, component: int, n: int, rng: Any) -> Floats:
        """Return rows of one component, (n, d)."""
        mean = self.means_[component]
        rows: Floats = mean + drawn(self._mixture, self._parts, component, n, rng)
        for text in np.unique(self._texts[self._texts > 0]):
            [levels] = np.nonzero(self._texts == text)
            shares = np.clip(mean[levels], 0.0, 1.0)
            none = max(0.0, 1.0 - shares.sum())
            chosen = rng.multinomial(1, np.append(shares, none) / (shares.sum() + none), size=n)
            rows[:, levels] = chosen[:, :-1]
        return rows

    @property
    def _mixture(self) -> GaussianMixture | MergedMixture:
        assert isinstance(self.algorithm_, GaussianMixture | MergedMixture)
        return self.algorithm_

    @property
    def _parts(self) -> State:
        """The mixture itself, if clusters are sets of its components."""
        merged = isinstance(self._mixture, MergedMixture)
        return components_of(self._mixture, self.state_) if merged else self.state_

    def _as_seen(self, rows: Rows) -> Rows:
        """Return prepared rows in the columns of the components."""
        return seen(self.state_, rows) if isinstance(self._mixture, MergedMixture) else rows

    @property
    def _texts(self) -> Floats:
        """The number of each column's text if it is a level; else 0."""
        none = np.zeros(self.means_.shape[1])
        texts: Floats = self.state_.memory.get("texts", none)
        return texts

    def _n_parameters(self) -> int:
        """Return the number of free parameters."""
        k, texts = len(self.means_), self._texts
        p = int((texts == 0).sum())
        own = {
            "full": k * p * (p + 1) // 2,
            "tied": p * (p + 1) // 2,
            "diag": k * p,
            "spherical": k,
        }
        levels = 0
        for text in np.unique(texts[texts > 0]):
            mine = texts == text
            all_named = self.state_.memory["overall"][mine].sum() > 1 - 1e-9
            levels += k * (int(mine.sum()) - all_named)
        noise = int(self._mixture.log_noise is not None)
        return (own[self.covariance_type] if p else 0) + k * p + k - 1 + noise + levels

    def _of_kind(self) -> dict[str, Any]:
        one_of("covariance_type", self.covariance_type, COVARIANCES)
        if not self.reg_covar >= 0:
            raise ValueError(f"reg_covar must be at least 0, not {self.reg_covar}")
        if not isinstance(self.noise, bool | np.bool_) and not self.noise > 0:
            raise ValueError(f"noise must be True, False or a volume above 0, not {self.noise}")
        return {"model": "merged" if self.merge else "mixture", "start": self._start()}

    def _spelled(self, name: str, value: Any) -> str:
        if name == "model":
            return "merge=True" if self.merge else ""
        return super()._spelled(name, value)

    def _start(self) -> State | None:
        """Return the start, if it was given."""
        if self.means_init is None:
            if self.weights_init is not None or self.precisions_init is not None:
                raise refused("start-means")
            return None
        if not isinstance(self.n_components, Integral):
            raise refused("choice-start", option="means_init", n_clusters=self.n_components)
        means = np.array(self.means_init, dtype=np.float64)
        weights = np.zeros(len(means))
        if self.weights_init is not None:
            weights = np.array(self.weights_init, dtype=np.float64)
        if means.ndim != 2 or len(means) != self.n_components or weights.shape != means.shape[:1]:
            raise ValueError(
                f"means_init has shape {means.shape} and weights_init {weights.shape}, but "
                f"n_components={self.n_components}"
            )
        memory = {}
        if self.precisions_init is not None:
            precisions = np.array(self.precisions_init, dtype=np.float64)
            memory["precisions_cholesky"] = factors_of(
                precisions, self.covariance_type, means.shape
            )
        return State(means, weights, memory=memory)

    def _keep_clusters(self, value: Result | Selection) -> Result:
        result = super()._keep_clusters(value)
        state, noise = self._parts, float(self.state_.memory.get("noise", np.zeros(1)).sum())
        total = state.weights.sum() + noise
        self.weights_, self.noise_ = state.weights / total, noise / total
        self.means_, self.n_components_ = state.centers, len(state.centers)
        self.precisions_cholesky_ = state.memory["precisions_cholesky"]
        self.converged_, self.lower_bound_ = self.state_.converged, -self.state_.inertia / total
        each = np.arange(self.n_components_, dtype=np.float64)
        self.component_clusters_ = self.state_.memory.get("cluster", each).astype(np.int32)
        self.precisions_, self.covariances_ = matrices(
            self.precisions_cholesky_, self.covariance_type, self._texts == 0
        )
        return result


def factors_of(precisions: Floats, covariance_type: str, shape: tuple[int, ...]) -> Floats:
    """Return F with P = F F^T for precisions, in the form of a state.

    Raises
    ------
    ValueError
        If they have another shape, or are not positive.
    """
    k, d = shape
    expected = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}
    if precisions.shape != expected[covariance_type]:
        raise ValueError(
            f"precisions_init has shape {precisions.shape}, but {covariance_type} ones have "
            f"{expected[covariance_type]}"
        )
    try:
        if covariance_type in ("diag", "spherical"):
            if not (precisions > 0).all():
                raise np.linalg.LinAlgError
            roots: Floats = np.sqrt(precisions)
            return roots
        # P = F F^T with F upper: of the reversed rows and columns, the lower factor reversed
        flipped = np.linalg.cholesky(precisions[..., ::-1, ::-1])
        return np.array(flipped[..., ::-1, ::-1], dtype=np.float64)
    except np.linalg.LinAlgError:
        raise ValueError("precisions_init must be positive definite") from None


def matrices(factors: Floats, covariance_type: str, numeric: NDArray[Any]) -> list[Floats]:
    """Return precisions and covariances from their factors; 0 for columns that are not numeric."""
    if covariance_type in ("diag", "spherical"):
        safe = np.where(factors > 0, factors, 1.0)
        return [factors**2, np.where(factors > 0, safe**-2.0, 0.0)]
    [places] = np.nonzero(numeric)
    inner = factors[..., places[:, None], places]
    flat = inner.reshape(-1, *inner.shape[-2:]) if places.size else inner[:0]
    inverse: Floats = np.array(
        [scipy.linalg.solve_triangular(each, np.eye(len(each))) for each in flat]
    )
    results = []
    roots: list[Floats] = [inner, inverse.reshape(inner.shape).swapaxes(-1, -2)]
    for root in roots:
        every: Floats = np.zeros(factors.shape)
        every[..., places[:, None], places] = root @ root.swapaxes(-1, -2)
        results.append(every)
    return results
