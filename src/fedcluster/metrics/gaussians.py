"""Mixtures of normal distributions: densities, likelihoods, and the overlap of components.

A row x has the density sum_j pi_j N(x; mu_j, S_j). The state holds the means mu_j as its centres,
the weight N_j of the rows of each component, whose shares are the pi_j, and in its memory
``precisions_cholesky``, as scikit-learn calls it: F_j with S_j^-1 = F_j F_j^T. Any F_j defines a
density, so no state that a site receives can be ill-defined.

G. J. McLachlan & D. Peel, Finite Mixture Models, 2000: section 3.2, normal components; 7.2, noise
as a component of uniform density; and P. F. Lazarsfeld & N. W. Henry, Latent Structure Analysis,
1968, for columns of 0 and 1 that are the levels of a text: a component has a probability for each
level.

**Overlap.** Components of a mixture need not be clusters: two that share many rows are parts of
one. For components j and l with the probabilities tau_j and tau_l of a row, the sums over the rows
are

    C_jl = sum of w tau_j tau_l,        F_j = sum of w tau_j q_j^2,

with q_j the squared Mahalanobis distance of the row to component j: for normal rows in d columns, F
/ N is d (d + 2). K. V. Mardia, Measures of multivariate skewness and kurtosis with applications,
Biometrika 57, 1970, section 3; C. Hennig, Methods for merging Gaussian mixture components, Adv.
Data Anal. Classif. 4, 2010, section 4.2.

**Clusters of k-means as a mixture.** The clusters that k-means found are treated as a mixture of k
normal distributions with their means m_j, their shares n_j / n, and one variance s_c^2 for each
column c:

    log L = sum over rows of w log sum_j n_j / n N(x; m_j, diag(s^2)),
    s_c^2 = sum of w (x_c - m_jc)^2 / n,  j the cluster of x.

X-means' criterion (`fedcluster.metrics.clusters.bic`) counts each row for its own cluster only,
which underestimates the likelihood if clusters overlap, the more so the more clusters there are: it
then finds too few. It also has one variance for all columns: if they have different scales, it
finds too many. This criterion corrects both, at the cost of d + 1 more numbers and a second round.

Mixtures of normal distributions over the values that rows have.

Z. Ghahramani & M. I. Jordan, Supervised learning from incomplete data via an EM approach, Adv.
Neural Inf. Process. Syst. 6, 1994: with o and m the columns that a row has and lacks, its density
is N(x_o; mu_o, S_oo), and the expected missing values are

    x_m = mu_m + S_mo S_oo^-1 (x_o - mu_o),   of covariance   S_mm - S_mo S_oo^-1 S_om.

Rows that lack the same columns are processed together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import log, pi
from typing import Any, Literal, Protocol

import numpy as np
import scipy
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster.core import Data, Floats, Rows, State, Summary, ranges
from fedcluster.core.ranges import (
    CENTERS,
    CLUSTERS,
    EITHER,
    MEANS,
    Allowed,
    Array,
    Whole,
)
from fedcluster.kernels.em import Densities, Moments, em_pass, log_densities
from fedcluster.metrics.clusters import Clusters, clusters_of
from fedcluster.metrics.moments import in_parts, one_line, one_number, row_weights
from fedcluster.options.choices import COVARIANCES


class PresentValues:
    """Mixture components restricted to the values that rows have.

    Parameters
    ----------
    model : Densities
        The components for complete rows.
    log_noise : float, optional
        The log density of noise, the last component; a row with missing values gets its part, by
        the number of its columns.
    """

    at_once = 1 << 20  # number of differences from means that are held at a time

    def __init__(self, model: Densities, log_noise: float | None = None) -> None:
        self.model, self.log_noise = model, log_noise or 0.0
        self.k, self.p = model.means.shape
        factors = model.factors
        self.diagonal = factors.ndim == 2
        if self.diagonal:
            self.variances = 1.0 / np.maximum(factors**2, 1e-300)
        else:
            self.roots = np.linalg.inv(np.triu(factors))
            covariances = np.swapaxes(self.roots, 1, 2) @ self.roots
            self.covariances = np.broadcast_to(covariances, (self.k, self.p, self.p))

    def parts(self, X: Rows) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
        """Yield the indices of rows with the same numeric columns, and these columns."""
        there = ~np.isnan(X[:, self.model.numeric])
        patterns, mine = np.unique(there, axis=0, return_inverse=True)
        order = np.argsort(mine.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(mine.ravel(), minlength=len(patterns)))
        size = max(1, self.at_once // max(1, self.k * self.p))
        for pattern, some in zip(patterns, np.split(order, ends[:-1]), strict=True):
            for start in range(0, len(some), size):
                yield some[start : start + size], pattern

    def logs(self, X: Rows) -> Floats:
        """Return the log density of each row in each component, including shares, (n, k + e).

        That of a row has the same bits whatever other rows there are.
        """
        logs = np.empty((len(X), len(self.model.offsets)))
        for places, there in self.parts(X):
            logs[places] = log_densities(X[places], self._restricted(there))
        return logs

    def _restricted(self, there: NDArray[np.bool_]) -> Densities:
        """Return the components for rows that have these numeric columns only.

        With S_j = R_j^T R_j and Q T the QR decomposition of the columns of R_j that rows have, the
        covariance of these is T^T T, and T^-1 is the factor of its inverse.
        """
        model, lacking = self.model, int((~there).sum())
        if not lacking:
            return model
        if self.diagonal or lacking == self.p:
            factors = model.factors[:, there] if self.diagonal else np.ones((self.k, 0))
        else:
            factors = np.linalg.inv(np.linalg.qr(self.roots[:, :, there], mode="r"))
        offsets = model.offsets + 0.0
        offsets[: self.k] += (
            lacking / 2 * log(2 * pi) + _log_dets(factors) - _log_dets(model.factors)
        )
        offsets[self.k :] -= self.log_noise * lacking / self.p
        return model._replace(
            means=model.means[:, there],
            factors=factors,
            offsets=offsets,
            numeric=model.numeric[there],
        )

    def _seen(self, X: Rows, there: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return differences from the means, (n, k, o), and precisions of the present columns."""
        numbers = X[:, self.model.numeric[there]].astype(np.float64)
        apart = numbers[:, None, :] - self.model.means[None, :, there]
        if self.diagonal:
            return apart, np.empty(0)
        return apart, np.linalg.inv(self.covariances[:, there][:, :, there])

    def moments(self, X: Rows, logs: Floats, tau: Floats, weights: Floats) -> Moments:
        """Return the sums of one step of expectation and maximisation, as `em_pass` does.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Rows.
        logs : ndarray of shape (n,)
            The log density of each row.
        tau : ndarray of shape (n, k + e)
            The probability of each component.
        weights : ndarray of shape (n,)
            The weight of each row.
        """
        k, p, model = self.k, self.p, self.model
        weighed = weights[:, None] * tau
        tallies = np.array([weighed.sum(axis=0), tau[weights > 0].sum(axis=0), logs @ weighed])
        first, second = np.zeros((k, p)), np.zeros((k, p) if self.diagonal else (k, p, p))
        for places, there in self.parts(X):
            own = weighed[places, :k]
            apart, marginal = self._seen(X[places], there)
            whole, left = self._expected(apart, marginal, there)
            first += np.einsum("nk,nki->ki", own, whole)
            if self.diagonal:
                second += np.einsum("nk,nki->ki", own, whole**2)
                second += own.sum(axis=0)[:, None] * left
            else:
                second += np.einsum("nk,nki,nkj->kij", own, whole, whole, optimize=True)
                second += own.sum(axis=0)[:, None, None] * left
        if not self.diagonal and len(model.factors) == 1:
            second = second.sum(axis=0, keepdims=True)
        return Moments(tallies, first, second, weighed.T @ X[:, model.other].astype(np.float64))

    def _expected(
        self, apart: Floats, marginal: Floats, there: NDArray[np.bool_]
    ) -> tuple[Floats, Floats]:
        """Return expected differences from the means, (n, k, p), and the remaining variance."""
        whole = np.zeros((len(apart), self.k, self.p))
        whole[:, :, there] = apart
        if self.diagonal:
            return whole, np.where(there, 0.0, self.variances)
        left = np.zeros((len(self.covariances), self.p, self.p))
        if not there.all():
            across = self.covariances[:, ~there][:, :, there]
            slopes = across @ marginal
            whole[:, :, ~there] = np.einsum("kij,nkj->nki", slopes, apart)
            lacking = self.covariances[:, ~there][:, :, ~there]
            inner = np.ix_(np.arange(len(left)), ~there, ~there)
            left[inner] = lacking - slopes @ np.swapaxes(across, 1, 2)
        return whole, left


def _log_dets(factors: Floats) -> Floats:
    """Return the logs of the determinants of factors, (k,) or (1,)."""
    along = factors if factors.ndim == 2 else np.einsum("kii->ki", factors)
    logs: Floats = np.log(np.maximum(np.abs(along), 1e-300)).sum(axis=1)
    return logs


SHAPES: Mapping[str, tuple[str, ...]] = {
    "full": ("k", "d", "d"),
    "tied": ("d", "d"),
    "diag": ("k", "d"),
    "spherical": ("k",),
}
"""Shape of ``precisions_cholesky`` for each type of covariance."""


CovarianceType = Literal["full", "tied", "diag", "spherical"]
LOG_DENSITY = ranges.Real(-1e100, 1e100, none=True)
FIELDS: Mapping[str, ranges.Range] = {
    "covariance_type": ranges.OneOf(COVARIANCES),
    "log_noise": LOG_DENSITY,
    "levels": ranges.EITHER,
}
CONSTANT_UP_TO = 1e-13
"""Relative variation below which a column is constant up to rounding."""


class Kind(Protocol):
    """Kind of a mixture's components; see `GaussianMixture` for the fields."""

    @property
    def covariance_type(self) -> CovarianceType:
        """The shape of the covariances."""

    @property
    def log_noise(self) -> float | None:
        """The log density of noise."""

    @property
    def levels(self) -> bool:
        """Whether some columns are levels of texts."""


def memory_of(kind: Kind) -> dict[str, ranges.Array]:
    """Return the arrays of a mixture's state other than centres and weights."""
    memory = {"precisions_cholesky": ranges.Array(SHAPES[kind.covariance_type])}
    if kind.log_noise is not None:
        memory["noise"] = ranges.Array(("one",), 0.0)
    if kind.levels:
        memory |= {"texts": ranges.Array(("d",), 0.0), "shares": ranges.Array(("k", "d"), 0.0, 1.0)}
        memory["overall"] = ranges.Array(("d",), 0.0, 1.0)
    return memory


def sizes_of(kind: Kind, *, merged: bool = False) -> dict[str, Whole]:
    """Return the sizes in `memory_of` other than k and d, and those in `memory_of_clusters`."""
    own = {} if kind.log_noise is None else {"one": Whole(1, 1)}
    return {"c": MEANS, **own} if merged else own


MERGED = "means"
"""Array in the memory that exists only if clusters are sets of components: their means."""


def memory_of_clusters(kind: Kind) -> dict[str, Array]:
    """Return the arrays of a state whose clusters are sets of a mixture's components.

    These are the arrays of the components, with c in place of k; their ``means`` (c, d) and weights
    ``parts`` (c,); ``cluster`` (c,), the cluster of each; and ``shift`` and ``scale`` (d,): the
    components describe (x - shift) / scale.
    """
    components = {
        name: replace(array, shape=tuple("c" if each == "k" else each for each in array.shape))
        for name, array in memory_of(kind).items()
    }
    return {
        MERGED: Array(("c", "d")),
        "parts": Array(("c",), 0.0),
        "cluster": Array(("c",), below="k"),
        "shift": Array(("d",)),
        "scale": Array(("d",), 1e-100),
        **components,
    }


def components_of(kind: Kind, state: State) -> State:
    """Return the mixture in a state whose clusters are sets of its components."""
    memory = {name: state.memory[name] for name in memory_of(kind)}
    return State(state.memory[MERGED], state.memory["parts"], memory=memory)


def seen(state: State, X: Rows) -> Floats:
    """Return rows shifted and scaled as the components describe them."""
    moved: Floats = (X - state.memory["shift"]) / state.memory["scale"]
    return moved


def texts_of(state: State, d: int) -> Floats:
    """Return, for each of d columns, the number of its text if it is a level; else 0."""
    return state.memory.get("texts", np.zeros(d))


def drawn(kind: Kind, state: State, component: int, n: int, rng: Generator) -> Floats:
    """Return the differences (n, d) of rows drawn from a component from its mean.

    They are 0 in columns of levels.
    """
    d = state.centers.shape[1]
    [numeric] = np.nonzero(texts_of(state, d) == 0)
    factors = state.memory["precisions_cholesky"]
    factor = factors if kind.covariance_type == "tied" else factors[component]
    away, normal = np.zeros((n, d)), rng.normal(size=(n, len(numeric)))
    if factor.ndim == 2:
        inner = factor[np.ix_(numeric, numeric)]
        away[:, numeric] = scipy.linalg.solve_triangular(inner, normal.T, trans="T").T
    else:
        away[:, numeric] = normal / (factor[numeric] if factor.ndim else factor)
    return away


def is_fitted(state: State) -> bool:
    """Return whether a state has densities; otherwise rows belong to their nearest centre."""
    memory = state.memory
    return any(np.any(memory.get(name, 0.0)) for name in ("precisions_cholesky", "shares"))


def densities(kind: Kind, state: State, data: Data | None = None) -> Densities:
    """Return the log densities of the components, the last one that of noise, if there is one.

    For rows that are means of groups, the log density is averaged over the group: it is that of the
    mean less the sum over columns c of v (S_j^-1)_cc / 2, with v the variance of the column about
    the groups' means.

    Parameters
    ----------
    kind : Kind
        The kind of the components.
    state : State
        Their parameters.
    data : Data, optional
        The rows of a site; needed if they are groups.
    """
    k, d = state.centers.shape
    texts = texts_of(state, d)
    [numeric], [other] = np.nonzero(texts == 0), np.nonzero(texts > 0)
    factors, log_det = _factors(kind, state, numeric)
    with np.errstate(divide="ignore"):
        shares = np.log(_shares(kind, state))
    spread = variance_within(data)
    offsets = shares.copy()
    offsets[:k] += log_det - len(numeric) / 2 * log(2 * pi)
    if spread is not None:
        offsets[:k] -= _precisions(factors) @ spread[numeric] / 2
    if kind.log_noise is not None:
        offsets[k] += kind.log_noise
    slopes = np.zeros((len(offsets), 0))
    if len(other):
        levels = np.vstack([state.memory["shares"], state.memory["overall"]])[: len(offsets)]
        slopes, constants = _level_slopes(levels[:, other], texts[other])
        offsets += constants
    means = np.ascontiguousarray(state.centers[:, numeric])
    return Densities(means, factors, offsets, slopes, numeric, other)


def variance_within(data: Data | None) -> Floats | None:
    """Return the variance (d,) of rows about the means of their groups; None without groups."""
    if data is None or (within := data.within) is None:
        return None
    weight = len(data) if data.sample_weight is None else data.sample_weight.sum()
    return within / max(float(weight), 1.0)


def nearest_densities(kind: Kind, state: State, *, hard: float = 1e8) -> Densities:
    """Return log densities that make each row belong to its nearest centre, in all columns.

    ``hard``: scale, relative to the distances between centres, at which rows belong to their
    nearest centre.
    """
    k, d = state.centers.shape
    apart = float(np.abs(state.centers - state.centers.mean(axis=0)).max(initial=0.0))
    scale = hard / apart if apart > 0 else 1.0
    factors = np.full((k, d), scale)
    if kind.covariance_type in ("full", "tied"):
        factors = np.repeat(scale * np.eye(d)[None], k if kind.covariance_type == "full" else 1, 0)
    every, none = np.arange(d), np.arange(0)
    return Densities(state.centers, factors, np.zeros(k), np.zeros((k, 0)), every, none)


def _shares(kind: Kind, state: State) -> Floats:
    """Return the share of each component, (k,), or (k + 1,) with noise."""
    weights = state.weights
    if kind.log_noise is not None:
        weights = np.append(weights, state.memory["noise"])
    total = weights.sum()
    shares: Floats = weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))
    return shares


def _factors(kind: Kind, state: State, numeric: np.ndarray) -> tuple[Floats, Floats]:
    """Return the factors for the kernel, and the log of sqrt(1 / |S_j|), (k,)."""
    k, p = len(state.centers), len(numeric)
    cholesky = state.memory["precisions_cholesky"]
    if kind.covariance_type == "spherical":
        factors = np.repeat(cholesky[:, None], p, axis=1)
    elif kind.covariance_type == "diag":
        factors = cholesky[:, numeric]
    else:
        factors = cholesky[..., numeric[:, None], numeric]
        factors = factors[None] if kind.covariance_type == "tied" else factors
    diagonals = factors if factors.ndim == 2 else factors[:, np.arange(p), np.arange(p)]
    with np.errstate(divide="ignore"):
        log_det = np.log(np.abs(diagonals)).sum(axis=1)
    return factors, np.broadcast_to(log_det, k)


def _precisions(factors: Floats) -> Floats:
    """Return the diagonals of the precisions S_j^-1, (k, p), or (1, p) if they share one."""
    squares = factors**2
    return squares if factors.ndim == 2 else np.asarray(squares.sum(axis=2))


def _level_slopes(
    shares: Floats, texts: Floats, *, least_share: float = 1e-10
) -> tuple[Floats, Floats]:
    """Return slopes (k, q) and constants (k,) of the log probability of levels.

    A text's log probability is sum_l x_l log p_l + (1 - sum_l x_l) log (1 - sum_l p_l).

    ``least_share``: smallest probability of a level, and of having none of a text's levels.
    """
    shares = np.clip(shares, least_share, 1.0)
    slopes, constants = np.log(shares), np.zeros(len(shares))
    for text in np.unique(texts):
        mine = texts == text
        none = np.log(np.maximum(1.0 - shares[:, mine].sum(axis=1), least_share))
        slopes[:, mine] -= none[:, None]
        constants += none
    return slopes, constants


def row_logs(kind: Kind, state: State, X: Rows, model: Densities) -> Floats:
    """Return the log density of each row in each component, including shares, (n, k + e).

    A row with missing values has the density of its present ones; a missing text counts with the
    overall shares of its levels.
    """
    if not has_gaps(X):
        return log_densities(X, model)
    return PresentValues(model, kind.log_noise).logs(_with_texts(state, X))


def row_sums(kind: Kind, state: State, data: Data, model: Densities) -> Moments:
    """Return the sums over rows of one step of expectation and maximisation; see `em_pass`."""
    if not has_gaps(data.X):
        return em_pass(data.X, model, data.sample_weight)
    present, sums = PresentValues(model, kind.log_noise), list[Moments]()
    for part in in_parts(data, 4 * model.means.size):
        X = _with_texts(state, part.X)
        tau, logs = posteriors(present.logs(X))
        logs = np.where(np.isfinite(logs), logs, 0.0)
        sums.append(present.moments(X, logs, tau, row_weights(part)))
    return Moments(*(np.sum(each, axis=0) for each in zip(*sums, strict=True)))


def has_gaps(X: Rows) -> bool:
    """Return whether a row has missing values."""
    return bool(np.isnan(X.max(initial=-np.inf)))


def _with_texts(state: State, X: Rows) -> Rows:
    """Return rows with missing texts replaced by the overall shares of their levels."""
    places = np.flatnonzero(texts_of(state, X.shape[1]))
    if not len(places) or not has_gaps(X[:, places]):
        return X
    filled, overall = X.astype(np.float64), state.memory["overall"][places]
    filled[:, places] = np.where(np.isnan(X[:, places]), overall, X[:, places])
    return filled


def responsibilities(kind: Kind, state: State, X: Rows) -> Floats:
    """Return tau, the probability of each component for each row, (n, k), noise last if any."""
    return posteriors(row_logs(kind, state, X, densities(kind, state)))[0]


def posteriors(logs: Floats) -> tuple[Floats, Floats]:
    """Return the probability of each component for each row, (n, k), and its log density, (n,).

    A row without density in any component belongs to none.

    Parameters
    ----------
    logs : ndarray of shape (n, k)
        The log density of each row in each component, including shares.

    Examples
    --------
    >>> posteriors(np.log([[1.0, 3.0]]))[0]
    array([[0.25, 0.75]])
    """
    top = logs.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    shares: Floats = logs - top
    np.exp(shares, out=shares)
    total = shares.sum(axis=1, keepdims=True)
    shares /= np.where(total > 0, total, 1.0)
    with np.errstate(divide="ignore"):
        likelihoods: Floats = (top + np.log(total))[:, 0]
    return shares, likelihoods


def cluster_probabilities(kind: Kind, state: State, X: Rows, *, apart: bool = False) -> Floats:
    """Return the probabilities (n, k) of clusters that are sets of components; see `MergedMixture`.

    With ``apart``, what they lack to 1 is noise.
    """
    cluster = state.memory["cluster"].astype(int)
    mixture = components_of(kind, state)
    logs = row_logs(kind, mixture, seen(state, X), densities(kind, mixture))
    tau, _ = posteriors(logs if apart else logs[:, : len(cluster)])
    clusters = np.zeros((len(X), len(state.centers)))
    # one by one: the order of additions in a matrix product is not fixed
    for j, own in enumerate(cluster):
        clusters[:, own] += tau[:, j]
    return clusters


def log_likelihoods(kind: Kind, state: State, X: Rows) -> Floats:
    """Return the log density of each row, (n,)."""
    logs = row_logs(kind, state, X, densities(kind, state))
    sums: Floats = np.logaddexp.reduce(logs, axis=1)
    return sums


@dataclass(frozen=True, slots=True)
class LogLikelihood:
    """Negative log likelihood of the rows in a mixture of normal distributions.

    Parameters
    ----------
    covariance_type, log_noise, levels
        As in `GaussianMixture`.
    merged : bool, default=False
        Whether the state is that of a `MergedMixture`, whose clusters are sets of components.

    Notes
    -----
    A site sends two numbers, the log likelihood of its rows and their weight.

    Examples
    --------
    >>> memory = {"precisions_cholesky": np.ones((1, 1, 1))}
    >>> state = State(np.zeros((1, 1)), np.ones(1), memory=memory)
    >>> rows = Data(np.array([[0.0], [2.0]]))
    >>> answer = LogLikelihood().client_step(state, rows, np.random.default_rng(0))
    >>> round(LogLikelihood().score(state, answer), 4)  # 2 + ln(2 pi)
    3.8379
    """

    client_additive = server_additive = True
    maximise = False
    answer_shape = one_number

    covariance_type: CovarianceType = "full"
    log_noise: float | None = None
    levels: bool = False
    merged: bool = False

    @property
    def allowed(self) -> ranges.Allowed:
        """The ranges of what a site may be asked."""
        memory = memory_of_clusters(self) if self.merged else memory_of(self)
        sizes = sizes_of(self, merged=self.merged)
        return Allowed({**FIELDS, "merged": EITHER}, CENTERS, memory, sizes=sizes, gaps=True)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the log likelihood of the rows, and their weight."""
        if self.merged:
            data = replace(data, X=seen(state, data.X))
            state = components_of(self, state)
        sums = row_sums(self, state, data, densities(self, state, data))
        return one_line(sums.tallies[2].sum(), data)

    def score(self, state: State, total: Summary) -> float:
        """Return the negative log likelihood of all rows."""
        return -float(total.sums[0, 0])


@dataclass(frozen=True, slots=True)
class MixtureOverlap:
    """Rows that the components of a mixture share, their fourth moments, and the likelihood.

    Parameters
    ----------
    covariance_type, log_noise, levels
        As in `GaussianMixture`.
    present : int, default=0
        Only rows with at least this many numbers count in C and F, as missing values look like an
        overlap. The weights N_j of these rows are then sent too; in F, a row with missing values
        counts as normal.

    Notes
    -----
    A site sends k (k + 3 + 2 p) numbers: for each component C_j1 to C_jk, F_j, its part of the log
    likelihood of the rows, for each of p numeric columns the sums of tau u^2 and of tau u^4,
    u being the difference from the mean over the deviation given the other columns, and the weight
    of the rows; and as many for noise, if any. With ``present``, k more.

    Examples
    --------
    >>> memory = {"precisions_cholesky": np.ones(2)}
    >>> state = State(np.array([[0.0], [0.0]]), np.array([1.0, 1.0]), memory=memory)
    >>> rows = Data(np.array([[0.0], [2.0]]))
    >>> MixtureOverlap("spherical").client_step(state, rows, np.random.default_rng(0)).sums.round(4)
    array([[ 0.5   ,  0.5   ,  8.    , -1.9189,  2.    ,  8.    ],
           [ 0.5   ,  0.5   ,  8.    , -1.9189,  2.    ,  8.    ]])
    """

    client_additive = server_additive = True

    covariance_type: CovarianceType = "full"
    log_noise: float | None = None
    levels: bool = False
    present: int = 0

    @property
    def allowed(self) -> ranges.Allowed:
        """The ranges of what a site may be asked."""
        fields = {**FIELDS, "present": Whole(0, 1, "d")}
        return Allowed(fields, CLUSTERS, memory_of(self), sizes=sizes_of(self), gaps=True)

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each component, and for noise."""
        k, p = len(state.centers), int((texts_of(state, n_columns) == 0).sum())
        return k + (self.log_noise is not None), k + 2 + 2 * p + (self.present > 0)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return shared rows, fourth moments and likelihoods of the components."""
        model, k = densities(self, state, data), len(state.centers)
        lines, p = len(model.offsets), len(model.numeric)
        sums = np.zeros((lines, self.answer_shape(state, data.X.shape[1])[1]))
        weights, support = np.zeros(lines), np.zeros(lines)
        for part in in_parts(data, 4 * lines + 2 * p):
            w, numbers = row_weights(part), part.X[:, model.numeric]
            logs = row_logs(self, state, part.X, model)
            tau, likelihood = posteriors(logs)
            weighed = full = w[:, None] * tau
            fourth = _distances(part, logs, model, k) ** 2
            if has_gaps(part.X):
                there = p - np.isnan(numbers).sum(axis=1)
                full = np.where(there >= self.present, 1.0, 0.0)[:, None] * weighed
                fourth = np.where((there == p)[:, None], fourth, p * p + 2 * p)
            sums[:k, :k] += full[:, :k].T @ tau[:, :k]
            sums[:k, k] += (weighed[:, :k] * fourth).sum(axis=0)
            sums[:, k + 1] += np.where(np.isfinite(likelihood), likelihood, 0.0) @ weighed
            sums[:k, k + 2 : k + 2 + 2 * p] += _by_column(numbers, weighed, model)
            if self.present:
                sums[:, -1] += full.sum(axis=0)
            weights += weighed.sum(axis=0)
            support += (tau if w.all() else tau[w > 0]).sum(axis=0)
        return Summary(sums, weights, support)

    def score(self, state: State, total: Summary) -> float:
        """Return the log likelihood of all rows."""
        return float(total.sums[:, len(state.centers) + 1].sum())

    def kurtosis(self, state: State, total: Summary) -> Floats:
        """Return the kurtosis of each component's rows in each numeric column, (k, p)."""
        k = len(state.centers)
        seconds, fourths = np.hsplit(total.sums[:k, k + 2 : -1 if self.present else None], 2)
        kurtosis: Floats = total.weights[:k, None] * fourths / np.maximum(seconds**2, 1e-300)
        return kurtosis

    maximise = True


def _by_column(numbers: Rows, weighed: Floats, model: Densities) -> Floats:
    """Return sums of tau u^2, then of tau u^4, by column, (k, 2 p), as normal ones if missing."""
    precisions = np.broadcast_to(_precisions(model.factors), model.means.shape)
    gaps, sums = np.isnan(numbers) if has_gaps(numbers) else None, []
    for tau, mean, each in zip(weighed.T, model.means, precisions, strict=False):
        squares = numbers - mean
        squares *= squares
        missing: Any = 0.0
        if gaps is not None:
            squares[gaps], missing = 0.0, tau @ gaps
        second = tau @ squares * each + missing
        squares *= squares
        sums.append(np.append(second, tau @ squares * each**2 + 3.0 * missing))
    return np.array(sums)


def _distances(part: Data, logs: np.ndarray, model: Densities, k: int) -> np.ndarray:
    """Return squared Mahalanobis distances (n, k), from the numeric part of the log densities."""
    others = model.offsets[:k]
    with np.errstate(invalid="ignore"):
        if len(model.other):
            others = others + part.X[:, model.other] @ model.slopes[:k].T
        distances = 2.0 * (others - logs[:, :k])
    return np.where(np.isfinite(distances), np.maximum(distances, 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class ColumnSpread:
    """Squared distances of rows to their nearest centres in each column.

    These are needed by `MixtureLikelihood`.

    Notes
    -----
    A site sends d + 1 numbers: the sums of w (x - c)^2 over its rows, and their weight. They are
    not held back by a limit on the size of clusters, only by one on the rows of a site.

    Examples
    --------
    >>> rows = Data(np.array([[0.0, 1.0], [2.0, 1.0], [9.0, 5.0]]))
    >>> state = State.at(np.array([[1.0, 1.0], [9.0, 2.0]]))
    >>> ColumnSpread().client_step(state, rows, np.random.default_rng(0)).sums
    array([[2., 9.]])
    """

    allowed = ranges.Allowed(centers=ranges.CENTERS)
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a number for each column."""
        return 1, n_columns

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums of squared differences to the nearest centre, by column."""
        sums = np.zeros(data.X.shape[1])
        for part in in_parts(data, 2 * len(sums)):
            labels, _ = clusters_of(part, state.centers)
            sums += row_weights(part) @ (part.X - state.centers[labels]) ** 2
        if (within := data.within) is not None:
            sums += within
        return one_line(sums, data)


@dataclass(frozen=True, slots=True)
class MixtureLikelihood:
    """Bayesian information criterion of the clusters as a mixture of clouds of equal shape.

        BIC = p log n - 2 log L,        p = (k - 1) + k d + d

    after G. Schwarz, Estimating the dimension of a model, Ann. Statist. 6, 1978, with the sign of
    scikit-learn's ``GaussianMixture.bic``: the most likely k has the *smallest* BIC, and k = 1 is
    possible. k counts clusters with rows, and d columns that are not constant. The scale of a
    column does not matter.

    It is asked about the state that `mixture_round` returns from the totals of a first round.

    Deviation: the parameters are those of k-means, not the most likely ones, so that log L is a
    little too small. A few rounds of expectation and maximisation changed no choice of k.

    Notes
    -----
    A site sends two numbers, log L of its rows and their weight, and receives the mean and size of
    each cluster and the variance of each column. The numbers reveal little, unless the site has
    very few rows; they are not held back by a limit on the size of clusters, only by one on the
    rows of a site.

    Examples
    --------
    >>> state = State(
    ...     np.array([[0.0], [4.0]]), np.array([2.0, 2.0]),
    ...     memory={"means": np.array([[0.0], [4.0]]), "columns": np.array([1.0])},
    ... )
    >>> rows = Data(np.array([[-1.0], [1.0], [3.0], [5.0]]))
    >>> answer = MixtureLikelihood().client_step(state, rows, np.random.default_rng(0))
    >>> round(MixtureLikelihood().score(state, answer), 4)
    22.3692
    """

    allowed = ranges.Allowed(
        centers=ranges.CENTERS,
        memory={"means": ranges.Array(("k", "d")), "columns": ranges.Array(("d",), least=0.0)},
    )
    client_additive = server_additive = True
    maximise = False
    answer_shape = one_number

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return log L of the rows, 0 if all are equal, and their weight."""
        sizes, columns, total = state.weights, state.memory["columns"], 0.0
        some, varied = sizes > 0, columns > 0
        if some.any() and varied.any():
            shares = np.log(sizes[some] / sizes[some].sum())
            shares -= np.log(2 * pi * columns[varied]).sum() / 2
            means, deviations = state.memory["means"][some][:, varied], np.sqrt(columns[varied])
            for part in in_parts(data, 2 * len(sizes) + 2 * len(columns)):
                scaled = (part.X[:, varied] - means[0]) / deviations
                squared = scipy.spatial.distance.cdist(
                    scaled, (means - means[0]) / deviations, "sqeuclidean"
                )
                total += float(
                    row_weights(part) @ scipy.special.logsumexp(shares - squared / 2, axis=1)
                )
        return one_line(total, data)

    def score(self, state: State, total: Summary) -> float:
        """Return the criterion; minus infinity if all rows are equal, nan for n <= k."""
        k, d = int((state.weights > 0).sum()), int((state.memory["columns"] > 0).sum())
        n, [weight] = float(state.weights.sum()), total.weights
        if not (weight > 0 and n > k):
            return float("nan")
        if not d:
            return float("-inf")
        likelihood = float(total.sums[0, 0] * n / weight)
        return (k - 1 + k * d + d) * log(n) - 2 * likelihood


def mixture_round(state: State, scatter: Summary, spread: Summary, *, least: float = 1e-6) -> State:
    """Return the state about which `MixtureLikelihood` is asked.

    Parameters
    ----------
    state : State
        The centres of the first round.
    scatter, spread : Summary
        The totals of `Scatter` and `ColumnSpread` about these centres.
    least : float
        The smallest variance of a column within clusters, relative to that over all rows.

    Returns
    -------
    State
        The same centres; its memory holds ``means`` (k, d) and ``columns`` (d,), the variance of
        each column within the clusters, 0 if a column is constant.
    """
    clusters = Clusters.from_total(state, scatter)
    n = max(float(clusters.weights.sum()), 1.0)
    moved = clusters.weights @ clusters.moves**2 / n
    within = np.maximum(spread.sums[0] / max(float(spread.weights[0]), 1.0) - moved, 0.0)
    means = (clusters.centers - clusters.centers[0]) + clusters.moves
    apart = means - clusters.weights @ means / n
    overall = within + clusters.weights @ apart**2 / n
    rounding = (CONSTANT_UP_TO * np.abs(clusters.means).max(axis=0)) ** 2
    columns = np.where(overall > rounding, np.maximum(within, least * overall), 0.0)
    memory = {"means": clusters.means, "columns": columns}
    return State(clusters.centers, clusters.weights, memory=memory)
