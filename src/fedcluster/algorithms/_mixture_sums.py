"""Sums over the rows of a mixture's components, as messages and as covariances."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms.merging import means
from fedcluster.core import Floats, State, Summary
from fedcluster.errors import InputError
from fedcluster.kernels.em import Moments
from fedcluster.metrics.gaussians import CONSTANT_UP_TO, Kind, texts_of

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
    + nu W) / (N_j + nu).
    """
    scatter, p = scatters(kind, sums, moved), moved.shape[1]
    if kind.covariance_type == "spherical":
        scatter = scatter / max(p, 1)
    if kind.covariance_type == "tied":
        pooled: Floats = scatter / sums.pooled
        return pooled
    shared = scatter.sum(axis=0) / sums.pooled
    weights = sums.weights + shrinkage
    flat = (scatter + shrinkage * shared).reshape(len(scatter), -1)
    own = means(flat, weights, np.broadcast_to(shared.ravel(), flat.shape))
    return own.reshape(scatter.shape)


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

    Spherical ones have no floor, and one least variance, (1,).
    """
    if kind.covariance_type == "spherical":
        return np.maximum(covariance, 0.0) + least
    if kind.covariance_type == "diag":
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
    if not covariance.size:  # all columns are levels
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
