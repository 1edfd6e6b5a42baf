"""Exact federated EM of a mixture of normal distributions, from sums.

A. P. Dempster, N. M. Laird & D. B. Rubin, Maximum likelihood from incomplete data via the EM
algorithm, J. R. Stat. Soc. B 39, 1977; G. J. McLachlan & D. Peel, Finite Mixture Models, 2000,
equations (3.9) and (3.10).

    site i:   tau_j(x) = pi_j N(x; mu_j, S_j) / sum_l pi_l N(x; mu_l, S_l)
              N_ij = sum tau_j,  A_ij = sum tau_j (x - mu_j),
              Q_ij = sum tau_j (x - mu_j)(x - mu_j)^T,  L_ij = sum tau_j log sum_l pi_l N(x; ...)
    server:   with N_j, A_j, Q_j the sums over sites, and a_j = A_j / N_j:
              pi_j <- N_j / sum_l N_l,   mu_j <- mu_j + a_j,   S_j <- Q_j / N_j - a_j a_j^T

The same mixture as EM on the pooled rows, whatever the partition. Moments are about the current
means: raw moments would lose all digits of S_j at an offset of 1e6.

Extensions to the equations, each controlled by a field: noise, levels of text, shrinkage towards
the pooled covariance, and a minimal weight of components.

Sums over the rows of a mixture's components, as messages and as covariances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster.algorithms.merging import by_weight, means, total
from fedcluster.core import Data, FitParameters, Floats, Metric, Rows, State, Summary
from fedcluster.core.ranges import CENTERS, EITHER, TOLERANCE, Allowed, Array
from fedcluster.errors import InputError
from fedcluster.kernels.em import Moments
from fedcluster.metrics.gaussians import (
    CONSTANT_UP_TO,
    FIELDS,
    SHAPES,
    CovarianceType,
    Kind,
    LogLikelihood,
    cluster_probabilities,
    densities,
    is_fitted,
    memory_of,
    memory_of_clusters,
    nearest_densities,
    responsibilities,
    row_sums,
    sizes_of,
    texts_of,
    variance_within,
)
from fedcluster.options.choices import COVARIANCES

NO_SPREAD = (
    "a component of the mixture has no spread, its rows are all alike in some direction: "
    "raise reg_covar, or ask for fewer components"
)


@dataclass(frozen=True, eq=False)
class Layout:
    """Layout of the lines of a message about a mixture.

    The line of a component holds its first moments, d numbers; its second moments, unless all
    components share them; and its likelihood. The next line is for noise. What all components share
    fills further lines.

    Parameters
    ----------
    kind : Kind
        The kind of covariance.
    k, d : int
        Numbers of components and of columns.
    numeric : ndarray of shape (p,)
        The positions of the numeric columns.
    """

    kind: Kind
    k: int
    d: int
    numeric: NDArray[np.intp]

    @classmethod
    def from_state(cls, kind: Kind, state: State, n_columns: int) -> Self:
        """Return the layout of answers about a state."""
        [numeric] = np.nonzero(texts_of(state, n_columns) == 0)
        return cls(kind, len(state.centers), n_columns, numeric)

    @property
    def p(self) -> int:
        """The number of numeric columns, p."""
        return len(self.numeric)

    @cached_property
    def other(self) -> NDArray[np.intp]:
        """The positions of the columns of levels."""
        return np.setdiff1d(np.arange(self.d), self.numeric)

    @property
    def n_products(self) -> int:
        """The number of products of two columns."""
        return self.p * (self.p + 1) // 2

    @property
    def n_seconds(self) -> int:
        """The number of second moments in the line of a component."""
        own = {"full": self.n_products, "tied": 0, "diag": self.p, "spherical": 1}
        return own[self.kind.covariance_type]

    @property
    def n_components(self) -> int:
        """The number of components, including noise."""
        return self.k + (self.kind.log_noise is not None)

    @property
    def width(self) -> int:
        """The number of sums in a line."""
        return self.d + self.n_seconds + 1

    @property
    def n_lines(self) -> int:
        """The number of lines."""
        shared = self.n_products if self.kind.covariance_type == "tied" else 0
        return self.n_components + -(-shared // self.width)

    def pack(self, sums: Moments, state: State, spread: Floats | None) -> Summary:
        """Return the message of a site.

        Parameters
        ----------
        sums : Moments
            The sums over its rows: about the means for numeric columns, about 0 for levels.
        state : State
            The state that was asked about.
        spread : ndarray of shape (d,), optional
            The variance of the rows about the means of their groups.
        """
        weights, support, likelihoods = sums.tallies
        lines = np.zeros((self.n_lines, self.width))
        lines[: self.k, self.numeric] = sums.first
        lines[: self.n_components, self.other] = sums.other
        lines[: self.k, self.other] -= weights[: self.k, None] * state.centers[:, self.other]
        lines[: self.n_components, -1] = likelihoods
        seconds = self._seconds(sums, None if spread is None else spread[self.numeric])
        if self.kind.covariance_type != "tied":
            lines[: self.k, self.d : -1] = seconds
            return Summary(lines, weights, support)
        lines[self.n_components :].flat[: self.n_products] = seconds
        shared = self.n_lines - self.n_components
        behind = [np.append(a, np.full(shared, a[: self.k].sum())) for a in (weights, support)]
        return Summary(lines, *behind)

    def nearest(self, sums: Moments, state: State) -> Moments:
        """Return the message from sums by nearest centre, computed as if all columns were numeric.

        It has no noise and no likelihood.
        """
        lines, numeric, other = self.n_components, self.numeric, self.other
        tallies = np.zeros((3, lines))
        tallies[:2, : self.k] = sums.tallies[:2]
        second = sums.second[..., numeric]
        if second.ndim == 3:
            second = second[:, numeric]
        levels = np.zeros((lines, len(other)))
        levels[: self.k] = sums.first[:, other]
        levels[: self.k] += tallies[0, : self.k, None] * state.centers[:, other]
        return Moments(tallies, sums.first[:, numeric], second, levels)

    def _seconds(self, sums: Moments, spread: Floats | None) -> Floats:
        """Return second moments including those within groups, (k, q) or, if shared, (q,)."""
        weights, second = sums.tallies[0, : self.k], sums.second
        within = np.zeros(self.p) if spread is None else spread
        if self.kind.covariance_type in ("diag", "spherical"):
            squares: Floats = second + weights[:, None] * within
            return squares if self.kind.covariance_type == "diag" else squares.sum(axis=1)[:, None]
        upper = np.triu_indices(self.p)
        if self.kind.covariance_type == "tied":
            shared: Floats = (second[0] + weights.sum() * np.diag(within))[upper]
            return shared
        own: Floats = (second + weights[:, None, None] * np.diag(within))[:, *upper]
        return own

    def unpack(self, answer: Summary) -> ComponentSums:
        """Return the sums in a message, or in a total of several."""
        lines, weights = answer.sums, np.maximum(answer.weights, 0.0)
        components, k = lines[: self.n_components], self.k
        has_noise = self.n_components > k
        second = components[:k, self.d : -1]
        pooled = float(weights[:k].sum())
        if self.kind.covariance_type == "tied":
            second = lines[self.n_components :].flat[: self.n_products]
            pooled = float(weights[-1])
        if self.kind.covariance_type in ("full", "tied"):
            second = self._symmetric(second)
        return ComponentSums(
            weights[:k],
            components[:k, : self.d],
            second,
            float(components[:, -1].sum()),
            pooled,
            float(weights[k]) if has_noise else 0.0,
            components[k, : self.d] if has_noise else np.zeros(self.d),
        )

    def _symmetric(self, upper: Floats) -> Floats:
        """Return symmetric matrices (..., p, p) from their upper triangles (..., q)."""
        a, b = np.triu_indices(self.p)
        matrices = np.zeros((*upper.shape[:-1], self.p, self.p))
        matrices[..., a, b] = matrices[..., b, a] = upper
        return matrices


@dataclass(frozen=True, slots=True, eq=False)
class ComponentSums:
    """Sums over all sites.

    Attributes
    ----------
    weights : ndarray of shape (k,)
        N_j, the weight of the rows of each component.
    first : ndarray of shape (k, d)
        Sums of tau (x - mu_j).
    second : ndarray of shape (k, 1), (k, p), (p, p) or (k, p, p)
        Sums of squared differences, over all columns or by column; or of products, shared or by
        component.
    likelihood : float
        The log likelihood.
    pooled : float
        The weight of the rows in the shared second moments.
    noise : float
        The weight of noise.
    noise_levels : ndarray of shape (d,)
        Sums of tau x over the noise, for columns of levels.
    """

    weights: Floats
    first: Floats
    second: Floats
    likelihood: float
    pooled: float
    noise: float
    noise_levels: Floats

    @property
    def total(self) -> float:
        """Return the weight of all components and the noise."""
        return float(self.weights.sum()) + self.noise


def scatters(kind: Kind, sums: ComponentSums, moved: Floats) -> Floats:
    """Return second moments about the new means, shaped as `ComponentSums.second`.

    Parameters
    ----------
    kind : Kind
        The kind of covariance.
    sums : ComponentSums
        Sums about the old means.
    moved : ndarray of shape (k, p)
        The change of the means in the numeric columns.
    """
    weights = sums.weights[:, None]
    if kind.covariance_type == "spherical":
        scatter = sums.second - weights * (moved**2).sum(axis=1, keepdims=True)
    elif kind.covariance_type == "diag":
        scatter = sums.second - weights * moved**2
    elif kind.covariance_type == "tied":
        scatter = sums.second - (weights * moved).T @ moved
    else:
        scatter = sums.second - (weights * moved)[:, :, None] * moved[:, None, :]
    result: Floats = scatter
    return result


def covariances(kind: Kind, sums: ComponentSums, moved: Floats, shrinkage: float) -> Floats:
    """Return variances (k, 1) or (k, p), or covariances (p, p) or (k, p, p).

    A component without weight gets the pooled covariance W = sum_j Q_j / sum_j N_j, any other (Q_j
    + nu r W) / (N_j + nu). r is 1, but less for full covariances less than half as wide as W, as
    `targets` tells: a narrow component in a wide one stays narrow.
    """
    scatter, p = scatters(kind, sums, moved), moved.shape[1]
    if kind.covariance_type == "spherical":
        scatter = scatter / max(p, 1)
    if kind.covariance_type == "tied":
        pooled: Floats = scatter / sums.pooled
        return pooled
    shared = scatter.sum(axis=0) / sums.pooled
    weights = sums.weights + shrinkage
    target = np.broadcast_to(shared, scatter.shape)
    if shrinkage and kind.covariance_type == "full":
        own = scatter / np.maximum(sums.weights, 1e-300)[:, None, None]
        target = targets(own, shared)[:, None, None] * shared
    flat = (scatter + shrinkage * target).reshape(len(scatter), -1)
    own = means(flat, weights, np.broadcast_to(shared.ravel(), flat.shape))
    return own.reshape(scatter.shape)


def targets(covariances: Floats, pooled: Floats, times: Floats | float = 4.0) -> Floats:
    """Return r (k,): ``times`` the mean eigenvalue of W^-1 S_j, but 0.02 to 1.

    Pieces of curves are less alike than W, but hardly a quarter of it: they need all of r W.

    Examples
    --------
    >>> targets(np.array([[[0.2]], [[3.0]]]), np.ones((1, 1)))
    array([0.8, 1. ])
    """
    inverse = np.linalg.pinv(pooled, hermitian=True)
    sizes: Floats = np.einsum("kij,ji->k", covariances, inverse) / max(len(pooled), 1)
    return np.clip(times * sizes, 0.02, 1.0)


def variances_of_rows(kind: Kind, sums: ComponentSums, centers: Floats, moved: Floats) -> Floats:
    """Return the variance of all rows in each numeric column, (p,), or their mean, (1,), spherical.

    Noise does not count. The variance of a column that is constant is 1.

    Parameters
    ----------
    centers, moved : ndarray of shape (k, p)
        The new means, and how far they have moved.
    """
    scatter, p = scatters(kind, sums, moved), max(centers.shape[1], 1)
    share = sums.weights[:, None] / sums.weights.sum()
    mean, size = (share * centers).sum(axis=0), np.abs(centers).max(axis=0)
    between = (share * (centers - mean) ** 2).sum(axis=0)
    if kind.covariance_type == "spherical":
        within, between = scatter.sum(axis=0) / p, between.sum(keepdims=True) / p
        size = size.max(initial=0.0)
    elif kind.covariance_type == "diag":
        within = scatter.sum(axis=0)
    else:
        within = np.einsum("...jj->...j", scatter).reshape(-1, p).sum(axis=0)
    variances: Floats = np.maximum(within / sums.pooled + between, 0.0)
    return np.where(variances > (CONSTANT_UP_TO * size) ** 2, variances, 1.0)


def regularised(kind: Kind, covariance: Floats, floors: Floats, least: Floats) -> Floats:
    """Return covariances with ``least`` (p,) added to the variances and floors (p,) applied.

    Spherical ones have the largest floor, and one least variance, (1,).
    """
    if kind.covariance_type == "spherical":
        floors = floors.max(initial=0.0, keepdims=True)
    if kind.covariance_type in ("diag", "spherical"):
        return np.maximum(np.maximum(covariance, 0.0) + least, floors)
    p = len(floors)
    diagonal = np.arange(p)
    matrices = covariance.copy()
    variances = np.maximum(matrices[..., diagonal, diagonal], 0.0) + least
    matrices[..., diagonal, diagonal] = np.maximum(variances, floors)
    return matrices


def precision_factors(kind: Kind, covariance: Floats, reg_covar: float) -> Floats:
    """Return F with S^-1 = F F^T, upper triangular; for variances s, 1 / sqrt(s).

    Raises
    ------
    InputError
        If a component has no variance in some direction.
    """
    if not covariance.size:  # nothing to fit: every column is a level of a text column
        return covariance
    if kind.covariance_type in ("diag", "spherical"):
        if not (covariance > 0).all():
            raise InputError(NO_SPREAD)
        factors: Floats = 1.0 / np.sqrt(covariance)
        return factors
    p = covariance.shape[-1]
    each = covariance.reshape(-1, p, p)
    try:
        lower = np.linalg.cholesky(each)
    except np.linalg.LinAlgError:
        lower = np.array([_factor(matrix, reg_covar) for matrix in each])
    upper: Floats = np.triu(np.swapaxes(np.linalg.inv(lower), 1, 2))
    return upper.reshape(covariance.shape)


def _factor(covariance: Floats, least: float) -> Floats:
    """Return L with S = L L^T, (p, p), after raising small eigenvalues if need be.

    That is to ``least``, or what rounding leaves, where all variances are 1.
    """
    try:
        return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    except np.linalg.LinAlgError:
        if not (least > 0 and (covariance.diagonal() > 0).all()):
            raise InputError(NO_SPREAD) from None
        unit = np.sqrt(covariance.diagonal())
        values, vectors = np.linalg.eigh(covariance / unit / unit[:, None])
        raised = (vectors * np.maximum(values, max(least, CONSTANT_UP_TO))) @ vectors.T
        return np.asarray(unit[:, None] * np.linalg.cholesky(raised), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class GaussianMixture:
    """Exact federated EM of a mixture of normal distributions; starts at a state with centres.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        The shape of the covariances S_j: unrestricted, shared by all components, diagonal, or a
        multiple of the identity.
    tol : float, default=1e-3
        Converged when the mean log likelihood of a row changes by less than ``tol``.
    reg_covar : float, default=1e-6
        Added to the variances, that is to the diagonals of S_j, in units of the variance of all
        rows in the column (spherical: of all columns); scikit-learn adds it as it is.
    log_noise : float, optional
        If given, one more component is noise with this log density everywhere (-log V for a box of
        volume V), times the density of the levels' overall shares.
    levels : bool, default=False
        Whether ``memory["texts"]`` marks columns that are levels of texts. Within a component, text
        and numbers are independent.
    shrinkage : float, default=0
        nu: S_j <- (Q_j + nu r W) / (N_j + nu), W being the pooled covariance within components; r
        is 1, or less for narrow ones, as in `covariances`.
    min_weight : float, default=0
        A component of less weight is dropped: its share is 0 from then on, but it keeps its index.
    floors : bool, default=False
        Whether ``memory["floors"]`` has a minimal variance for each column.

    Notes
    -----
    **The state.** ``centers`` are the means, ``weights`` the N_j; all 0 means equal shares.
    ``inertia`` is minus the log likelihood of the rows in the mixture *that was asked about*. The
    memory holds

    - ``precisions_cholesky``, shaped as scikit-learn's: (k, d, d), (d, d), (k, d) or (k,). Without
      it, or where all of it is 0, the first round takes each row for its nearest centre's, as
      scikit-learn starts from k-means.
    - ``noise`` (1,), with ``log_noise``: the weight of the noise; 0 at a start is taken for 5 %.
    - ``texts`` (d,), with ``levels``: 0 for a column of numbers, else the number of the text that
      it is a level of; ``shares`` (k, d), the probability of each level in each component;
      ``overall`` (d,), that over all rows. The last two may be 0 at a start.
    - ``floors`` (d,), with ``floors``: the least variance of each column.

    `start` makes such a state. Probabilities are p_jl = (h_jl + m_l / 2) / (N_j + 1/2), with h_jl
    the weight of level l in component j and m_l its share of all rows.

    **A site sends** for each component N_j, A_j (of levels h_j), the squares or products, and L_j:
    k (d + 3), k (2 d + 2), or k (d + 2 + d (d + 1) / 2) numbers a round for spherical, diagonal and
    full covariances; for a tied one k (d + 2), and d (d + 1) / 2 of all components together. Noise
    is one component more. If a site's limit holds back a component, it holds back all of its sums:
    the others remain means over the rows that were sent. A component that all sites hold back stays
    as it is, including its weight, so that its rows go to no other.

    Rows may lack values: they count with the values that they have and with the expected values of
    the others. A missing text counts with the overall shares of its levels.

    If rows are means of groups, the variance of the site's rows about these means is added to each
    S_j, and the log densities are lowered accordingly.

    Examples
    --------
    >>> rows = Data(np.array([[0.0], [2.0], [8.0], [10.0]]))
    >>> em, rng = GaussianMixture("spherical"), np.random.default_rng(0)
    >>> state = State.at(np.array([[0.0], [9.0]]))
    >>> answer = em.client_step(state, rows, rng)  # the first round: each row its nearest centre's
    >>> state = em.server_step(state, [answer], rng)
    >>> state.centers.ravel(), state.memory["precisions_cholesky"].round(3)
    (array([1., 9.]), array([1., 1.]))
    """

    client_additive = server_additive = needs_centers = True
    min_cluster_size = 1

    covariance_type: CovarianceType = "full"
    tol: float = 1e-3
    reg_covar: float = 1e-6
    log_noise: float | None = None
    levels: bool = False
    shrinkage: float = 0.0
    min_weight: float = 0.0
    floors: bool = False

    def __post_init__(self) -> None:
        if self.covariance_type not in COVARIANCES:
            raise ValueError(
                f"covariance_type must be one of {', '.join(COVARIANCES)}, "
                f"not {self.covariance_type!r}"
            )

    @classmethod
    def from_fit(cls, fit: FitParameters) -> Self:
        """Return the algorithm with the parameters of a fit."""
        return cls(tol=fit.tol)

    @property
    def allowed(self) -> Allowed:
        """The ranges of what a site may be asked."""
        numbers = dict.fromkeys(("tol", "reg_covar", "shrinkage", "min_weight"), TOLERANCE)
        fields = {**FIELDS, **numbers, "floors": EITHER}
        memory, sizes = self._memory(), sizes_of(self)
        return Allowed(fields, CENTERS, memory, optional=True, sizes=sizes, gaps=True)

    def objective(self) -> Metric:
        """Return the metric that the algorithm minimises: minus the log likelihood."""
        return LogLikelihood(self.covariance_type, self.log_noise, self.levels)

    def start(self, centers: Floats, weights: Floats | None = None, **memory: Floats) -> State:
        """Return a state to start from given means (k, d); anything else that is not given is 0."""
        (k, d), given = centers.shape, dict(memory)
        sizes = {"k": k, "d": d, "one": 1}
        for name, array in self._memory().items():
            given.setdefault(name, np.zeros([sizes[length] for length in array.shape]))
        return State(centers, np.zeros(k) if weights is None else weights, memory=given)

    def assign(self, state: State, X: Rows) -> Floats:
        """Return the probability of each component for each row, (n, k); the rest to 1 is noise."""
        return responsibilities(self, state, X)[:, : len(state.centers)]

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each component, and more for what all share."""
        layout = Layout.from_state(self, state, n_columns)
        return layout.n_lines, layout.width

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the weights, moments and likelihoods of the components over a site's rows."""
        layout = Layout.from_state(self, state, data.X.shape[1])
        if is_fitted(state):
            sums = row_sums(self, state, data, densities(self, state, data))
        else:
            nearest = nearest_densities(self, state)
            every = replace(state, memory={})
            sums = layout.nearest(row_sums(self, every, data, nearest), state)
        return layout.pack(sums, state, variance_within(data))

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Return the next shares, means and covariances, and the likelihood of the previous."""
        layout = Layout.from_state(self, state, state.centers.shape[1])
        return self.updated(state, layout.unpack(total(answers)), layout)

    def updated(self, state: State, sums: ComponentSums, layout: Layout) -> State:
        """Return the next state, from the sums over all rows for the present one."""
        alive = sums.weights > self.min_weight
        moved = means(sums.first, sums.weights, otherwise=np.zeros_like(sums.first))
        kept = np.where((sums.weights > 0) | (self.min_weight > 0), 0.0, state.weights)
        centers = np.where(alive[:, None], state.centers + moved, state.centers)
        memory = {"precisions_cholesky": self._precisions(state, sums, moved, layout)}
        likelihood = sums.likelihood if is_fitted(state) else float("nan")
        return State(
            centers,
            np.where(alive, sums.weights, kept),
            round=state.round + 1,
            inertia=-likelihood,
            converged=self._settled(state, likelihood, sums.total),
            memory=memory | self._extras(state, centers, sums),
        )

    def _memory(self) -> dict[str, Array]:
        """Return the arrays in the memory of a state."""
        floors = {"floors": Array(("d",), 0.0)} if self.floors else {}
        return memory_of(self) | floors

    def _settled(self, state: State, likelihood: float, weight: float) -> bool:
        """Return whether the mean log likelihood of a row has changed by less than ``tol``."""
        return weight > 0 and abs(likelihood + state.inertia) < self.tol * weight

    def _precisions(
        self, state: State, sums: ComponentSums, moved: Floats, layout: Layout
    ) -> Floats:
        """Return the factors of the precisions; components without weight keep theirs."""
        centers = state.centers + moved
        shape = [{"k": layout.k, "d": layout.d}[name] for name in SHAPES[self.covariance_type]]
        before = state.memory.get("precisions_cholesky", np.zeros(shape))
        if not sums.pooled > 0:
            return before
        numeric, floors = layout.numeric, state.memory.get("floors", np.zeros(layout.d))
        covariance = covariances(self, sums, moved[:, numeric], self.shrinkage)
        of_rows = variances_of_rows(self, sums, centers[:, numeric], moved[:, numeric])
        covariance = regularised(self, covariance, floors[numeric], self.reg_covar * of_rows)
        factors = precision_factors(self, covariance, self.reg_covar)
        if self.covariance_type == "spherical":
            now = factors[:, 0]
        elif self.covariance_type == "diag":
            now = np.zeros(shape)
            now[:, numeric] = factors
        else:
            now = np.zeros(shape)
            now[..., numeric[:, None], numeric] = factors
        if self.covariance_type != "tied" and is_fitted(state):
            now[sums.weights <= self.min_weight] = before[sums.weights <= self.min_weight]
        return now

    def _extras(self, state: State, centers: Floats, sums: ComponentSums) -> dict[str, Floats]:
        """Return the arrays of the memory other than the precisions."""
        extras, d = {}, centers.shape[1]
        if self.log_noise is not None:
            # Initial share of noise if the start gives it no weight.
            first = 0.05 * sums.total if not is_fitted(state) else sums.noise
            extras["noise"] = np.array([first])
        if self.levels:
            texts = texts_of(state, d)
            weights = sums.weights[:, None]
            counts = np.where(texts > 0, weights * centers, 0.0)
            noise = np.where(texts > 0, sums.noise_levels, 0.0)
            overall = np.clip((counts.sum(axis=0) + noise) / max(sums.total, 1e-300), 0.0, 1.0)
            shares = np.clip((counts + overall / 2) / (weights + 0.5), 0.0, 1.0)
            extras |= {"texts": texts, "shares": shares, "overall": overall}
        if self.floors:
            extras["floors"] = state.memory.get("floors", np.zeros(d))
        return extras


@dataclass(frozen=True, slots=True)
class MergedMixture:
    """Clusters of any shape, each a set of components of one mixture of normal distributions.

    C. Hennig, Methods for merging Gaussian mixture components, Adv. Data Anal. Classif. 4, 2010;
    J.-P. Baudry, A. E. Raftery, G. Celeux, K. Lo & R. Gottardo, Combining mixture components for
    clustering, J. Comput. Graph. Stat. 19, 2010. `merged_state` builds its state; a round returns
    the likelihood and changes nothing.

    Parameters
    ----------
    covariance_type, log_noise, levels
        Parameters of the mixture, as in `GaussianMixture`.
    noise_apart : bool, default=False
        Whether a row that is most likely noise belongs to no cluster instead of the likeliest one.

    Notes
    -----
    ``centers`` are the means of the clusters' rows, ``weights`` their weights. The memory holds the
    components, see `fedcluster.metrics.gaussians.memory_of_clusters`.

    Examples
    --------
    >>> mixture = GaussianMixture("spherical").start(
    ...     np.array([[0.0], [1.0], [9.0]]), np.array([4.0, 2.0, 3.0]),
    ...     precisions_cholesky=np.ones(3))
    >>> merged = MergedMixture("spherical")
    >>> state = merged_state(merged, mixture, [[2], [0, 1]])
    >>> state.weights, merged.assign(state, np.array([[0.5], [8.0]])).argmax(axis=1)
    (array([6., 3.]), array([0, 1]))
    """

    client_additive = server_additive = needs_centers = True
    min_cluster_size = 1

    covariance_type: CovarianceType = "full"
    log_noise: float | None = None
    levels: bool = False
    noise_apart: bool = False

    @property
    def allowed(self) -> Allowed:
        """The ranges of what a site may be asked."""
        memory, fields = memory_of_clusters(self), {**FIELDS, "noise_apart": EITHER}
        sizes = sizes_of(self, merged=True)
        return Allowed(fields, CENTERS, memory, sizes=sizes, gaps=True)

    def objective(self) -> LogLikelihood:
        """Return the metric that the mixture minimised: minus the log likelihood."""
        return LogLikelihood(self.covariance_type, self.log_noise, self.levels, merged=True)

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: one number."""
        return 1, 1

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the log likelihood of the rows and their weight."""
        return self.objective().client_step(state, data, rng)

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Return the same clusters with the likelihood of the rows."""
        inertia = self.objective().score(state, total(answers))
        return replace(state, round=state.round + 1, inertia=inertia, converged=True)

    def assign(self, state: State, X: Rows) -> Floats:
        """Return the probability of each cluster for each row, (n, k); the rest to 1 is noise."""
        return cluster_probabilities(self, state, X, apart=self.noise_apart)


def merged_state(
    step: MergedMixture,
    mixture: State,
    groups: Sequence[Sequence[int]],
    shift: Floats | None = None,
    scale: Floats | None = None,
) -> State:
    """Return the state whose clusters are sets of components, both by decreasing weight.

    Parameters
    ----------
    step : MergedMixture
        The algorithm, which determines the kind of mixture.
    mixture : State
        The mixture, a state of `GaussianMixture`.
    groups : sequence of sequence of int
        The components of each cluster.
    shift, scale : ndarray of shape (d,), optional
        Shift and scale that turn rows into those that the mixture was fitted to.
    """
    d = mixture.centers.shape[1]
    shift = np.zeros(d) if shift is None else shift
    scale = np.ones(d) if scale is None else scale
    parts = by_weight(mixture.weights, mixture.centers)
    own, centers = mixture.weights[parts], mixture.centers[parts]
    belongs = [np.isin(parts, group) for group in groups]
    weights = np.array([own[each].sum() for each in belongs])
    means = np.array([np.average(centers[each], 0, own[each]) for each in belongs])
    order = by_weight(weights, means)
    components = {
        name: array.reordered(mixture.memory[name], parts)
        for name, array in memory_of(step).items()
    }
    memory = {
        "means": centers,
        "parts": own,
        "cluster": np.array(belongs)[order].argmax(axis=0).astype(np.float64),
        "shift": shift,
        "scale": scale,
    }
    return State(
        means[order] * scale + shift,
        weights[order],
        round=mixture.round,
        inertia=mixture.inertia,
        converged=mixture.converged,
        memory=memory | components,
    )
