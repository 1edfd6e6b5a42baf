"""Offsets of sites: a row is the centre of its subtype, plus the offset of its site, plus noise.

    x = c_z + b_s + e,   e ~ N(0, Σ),   z = j at site s with probability π_sj

A site knows c, Σ and its own rows, and finds its offset b_s and its shares π_s by EM, from several
starts, because a step of EM never leaves a place where one subtype is taken for another:

    r_j ∝ π_sj N(x; c_j + b_s, Σ),   π_sj = (Σ r_j + 1/k) / (n + 1),   b_s = w (x̄ - Σ_j r̄_j c_j)
    w = n τ² / (n τ² + σ²)           offsets vary by τ² between sites, in units in which both Σ and
                                     these variances are along the columns

A site with a single subtype has no offset of its own: any subtype fits it. There, only τ² decides.

A site may also multiply what it measures by a gain, in each column. This is first told by the
deviation of its rows within clusters that it finds by itself, beside that of other sites, which
needs neither centres nor offsets; then by its rows beside centres and noise (`gains_beside`).

A column of codes, such as 0 and 1, has neither: its shares differ by patients, not by laboratory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster import kernels
from fedcluster.core import Floats, first_of_each, lexicographic
from fedcluster.core.ranges import LARGEST

Table = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Registration:
    """How a site looks for its offset."""

    steps: int = 12
    """Steps of EM from each start: enough for the draws of `site_model.Effort.means`."""
    prior_rows: float = 1.0
    """Number of rows that the prior of a site's shares counts as."""
    gains: int = 3
    """Times that a gain is found anew from the offset, and the offset from the gain."""
    rows: int = 4096
    """Rows of a site with which starts are compared: enough for shares of a hundredth."""


def whitening(noise: Floats) -> Floats:
    """Return the matrix (d, d) by which rows have noise I in place of a covariance (d, d).

    Examples
    --------
    >>> whitening(np.diag([4.0, 1.0]))
    array([[0.5, 0. ],
           [0. , 1. ]])
    """
    white: Floats = np.linalg.inv(np.linalg.cholesky(noise)).T
    return white


def common_axes(noise: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Return a whitening (d, d) by which offsets vary along the columns only, and how much, (d,).

    ``spread`` (d,) are their variances in the units of the rows, of which the noise is (d, d).

    Examples
    --------
    >>> white, along = common_axes(np.diag([4.0, 1.0]), np.array([8.0, 5.0]))
    >>> along
    array([2., 5.])
    """
    white = whitening(noise)
    along, turn = np.linalg.eigh((white.T * spread) @ white)
    return white @ turn, np.maximum(along, 0.0)


def registered(
    X: Floats,
    weights: Floats,
    centers: Floats,
    starts: Floats,
    spread: Floats,
    how: Registration = Registration(),
) -> tuple[Floats, Floats]:
    """Return the offset (d,) of one site and its shares (k,), the most likely of several starts.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The site's rows, or weighted means of them, in units in which the noise is I.
    weights : ndarray of shape (n,)
        How many rows each stands for.
    centers : ndarray of shape (k, d)
        The centres of the subtypes.
    starts : ndarray of shape (m, d)
        The offsets to start from; see `starts_of`.
    spread : ndarray of shape (d,)
        The variance of offsets between sites.
    how : Registration, optional
        The number of steps, and the prior.

    Examples
    --------
    >>> centers = np.array([[0.0], [10.0]])
    >>> rows = np.array([[2.5], [3.5], [12.0], [13.0], [14.0]])
    >>> starts = starts_of(rows.mean(0), centers)
    >>> offset, shares = registered(rows, np.ones(5), centers, starts, np.array([100.0]))
    >>> offset.round(2), shares.round(2)
    (array([2.99]), array([0.42, 0.58]))
    """
    k, n = len(centers), weights.sum()
    b, mean = starts, weights @ X / n
    shrink = n * spread / (n * spread + 1.0)
    shares = np.full((len(b), k), 1 / k)
    near = weights * (centers @ X.T - (centers**2).sum(1)[:, None] / 2)
    for step in range(how.steps + 1):
        # log of share and density of each centre, start and row, without what centres share
        logs = np.log(shares) - b @ centers.T
        likely = near[:, None] + logs.T[..., None] * weights
        top = likely.max(0)
        likely -= top
        np.exp(likely, out=likely)
        total = likely.sum(0)
        if step == how.steps:
            break
        r = np.einsum("jbi,bi->bj", likely, weights / total)
        shares = (r + how.prior_rows / k) / (n + how.prior_rows)
        b = shrink * (mean - r / n @ centers)
    found = (np.log(total) + top).sum(1) + how.prior_rows / k * np.log(shares).sum(1)
    found += n * (b @ mean - (b**2).sum(1) / 2) - (b**2 / (2 * spread + 1e-12)).sum(1)
    best = int(found.argmax())
    return b[best], shares[best]


def starts_of(mean: Floats, centers: Floats) -> Floats:
    """Return offsets (m, d) that put a mean on a centre, or between two or all of them.

    Examples
    --------
    >>> starts_of(np.array([7.0]), np.array([[0.0], [10.0]])).ravel()
    array([ 0.,  2.,  7., -3.,  2.])
    """
    one, other = np.triu_indices(len(centers), 1)
    middles = (centers[one] + centers[other]) / 2
    starts: Floats = mean - np.vstack([mean, centers.mean(0), centers, middles])
    return starts


def own_deviations(
    X: Floats,
    weights: Floats,
    within: Floats | float = 0.0,
    least: int = 0,
    persons: NDArray[np.int64] | None = None,
) -> tuple[Floats, float]:
    """Return deviations (d,) of a site's rows within clusters of its own, and how many rows tell.

    Parameters
    ----------
    X, weights : ndarray of shape (n, d) and (n,)
        The rows, or means of rows, and how many rows each stands for.
    within : ndarray of shape (d,), optional
        The scatter of rows about their means.
    least, persons
        As in `SiteEffects`; rows of smaller clusters do not count, until there is none.

    Examples
    --------
    >>> rows = np.concatenate([np.arange(9.0), 50 + np.arange(9.0)])
    >>> own_deviations(np.column_stack([rows, np.ones(18)]), np.ones(18))
    (array([2.73861279, 0.        ]), 18.0)
    """
    order = lexicographic([*X.T])[:: -(-len(X) // Registration().rows)]
    n = float(weights.sum())
    X, weights = X[order], weights[order] * (n / weights[order].sum())
    persons = None if persons is None else persons[order]
    found, z = _own_clusters(X, weights, within)
    kept = _are_enough(z, weights, persons, least)
    if kept.all():
        return found, n
    if not kept.any():
        return np.zeros(X.shape[1]), 0.0
    share = float(weights[kept].sum()) / n
    persons = None if persons is None else persons[kept]
    return own_deviations(X[kept], weights[kept], within * share, least, persons)


def _own_clusters(
    X: Floats, w: Floats, within: Floats | float, *, most: int = 6
) -> tuple[Floats, NDArray[np.intp]]:
    """Return deviations within as many clusters as the smallest BIC says, and those of rows."""
    n, Y = float(w.sum()), X - w @ X / w.sum()
    scale = np.sqrt((w @ Y**2 + within) / n)
    scale = np.where(scale > 0, scale, 1.0)
    Y, rng, best = Y / scale, np.random.default_rng(0), np.inf
    found, z = scale, np.zeros(len(X), dtype=np.intp)
    for q in range(1, most + 1):
        if q > 1 and (n < 8 * q or len(Y) < 2 * q):
            break
        unit = np.ones(Y.shape[1])
        for _ in range(5 if q > 1 else 1):  # in deviations within the clusters before
            fit = kernels.kmeans(Y / unit, q, w, rng=rng, n_init=4)
            apart = w @ (Y - fit.centers[fit.labels] * unit) ** 2 + within / scale**2
            unit = np.sqrt(apart / max(n - q, 1.0) + 1e-12)
        share = np.maximum(np.bincount(fit.labels, w, q) / n, 1e-12)
        bic = 2 * n * np.log(unit).sum() - 2 * n * share @ np.log(share)
        bic += q * (Y.shape[1] + 1) * np.log(n)
        if bic < best:
            best, z = bic, fit.labels.astype(np.intp)
            found = np.where(unit > 1e-5, unit * scale, 0.0)
    return found, z


def gains_of(logs: Floats, variance: Floats, errors: Floats | float) -> Floats:
    """Return gains, given their logarithms, the variances of these in general, and of errors."""
    shrunk = variance / np.maximum(variance + errors, 1e-300)
    gains: Floats = np.exp(np.clip(logs, -3.0, 3.0) * shrunk)
    return gains


def logs_of(deviations: Floats) -> Floats:
    """Return logarithms of deviations, 0 of those that are not known."""
    return np.log(np.where(deviations > 0, deviations, 1.0))


def gains_beside(
    X: Floats, r: Floats, within: Floats | float, centers: Floats, noise: Floats
) -> tuple[Floats, Floats]:
    """Return the logarithms of the gains (d,) of a site, the most likely, and their variances.

    With 1 / gain = u, x u - c has the variance σ² about its mean, and the likelihood is largest for
    u² Sxx - u Sxc - n σ² = 0.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The site's rows.
    r : ndarray of shape (n, k)
        The weight of each in each subtype.
    within : ndarray of shape (d,)
        The scatter of rows about X, if these are means.
    centers, noise : ndarray of shape (k, d) and (d,)
        The centres, and the variances within subtypes.

    Examples
    --------
    >>> rows, r = np.array([[1.0], [3.0], [21.0], [23.0]]), np.eye(2)[[0, 0, 1, 1]]
    >>> log_gain, _ = gains_beside(rows, r, 0.0, np.array([[0.0], [10.0]]), np.array([0.25]))
    >>> np.exp(log_gain).round(2)
    array([2.])
    """
    w, n = r.sum(axis=1), float(r.sum())
    Y, C = X - w @ X / n, centers - r.sum(axis=0) @ centers / n
    square, product = w @ Y**2 + within, (r.T @ Y * C).sum(axis=0)
    u = (product + np.sqrt(product**2 + 4 * square * n * noise)) / np.maximum(2 * square, 1e-300)
    u = np.where(square > 0, u, 1.0)
    return -np.log(np.maximum(u, 1e-300)), 1.0 / (n + u**2 * square / noise)


@dataclass(frozen=True, slots=True)
class SiteEffects:
    """What all sites share of a model with offsets; each finds its own offset from it.

    Parameters
    ----------
    centers : tuple of tuple of float
        Centres of the subtypes (k, d), in the units of the columns of numbers.
    noise : tuple of tuple of float
        Covariance within subtypes (d, d).
    spread : tuple of float
        Variance of offsets between sites (d,).
    least : int, default=0
        The number of rows, or persons, of a subtype at a site from which on they count for its
        offset, where limits hide what fewer rows have; if no subtype has as many, it is 0.
    gains : tuple of three tuples of float, default=()
        If sites have gains: typical deviations within their own clusters (d,), the variance of the
        logarithms of gains (d,), and the place that gains leave where it is (d,).

    Examples
    --------
    >>> effects = SiteEffects(((0.0,), (10.0,)), ((1.0,),), (9.0,))
    >>> _, offset = effects.adjustment(np.array([[2.5], [3.5], [12.5], [13.5]]), np.ones(4))
    >>> offset.round(2)
    array([2.92])
    """

    centers: Table
    noise: Table
    spread: tuple[float, ...]
    least: int = 0
    gains: Table = ()
    clear = 12.0
    """Squared distance of the nearest two centres, in variances of offsets, from which on an offset
    is not taken for a subtype."""
    kept = 0.8
    """Share of the distance between centres without offsets from which on these hardly matter."""
    most = 12
    """Largest number of centres: a site compares starts for each pair of them."""
    fewest = 20
    """Number of rows of a site below which its offset may be wrong: with fewer, one new site in
    four had another solution almost as likely, with 20 rows none of 40."""

    def is_clear(self, n: float) -> bool:
        """Return whether n rows of one subtype are not taken for another, with another offset.

        Examples
        --------
        >>> effects = SiteEffects(((0.0,), (3.0,)), ((1.0,),), (0.5,))
        >>> effects.is_clear(1), effects.is_clear(9)
        (False, True)
        """
        C, noise = np.array(self.centers), np.diag(np.array(self.noise)) / n
        one, other = np.triu_indices(len(C), 1)
        apart, every = (C[one] - C[other]) ** 2, np.stack([noise + self.spread, noise])
        far, known = (apart[:, None] / every).sum(axis=2).min(axis=0, initial=np.inf)
        return bool(far >= min(self.clear, self.kept * known))

    @property
    def told(self) -> NDArray[np.bool_]:
        """Whether a column has an offset, (d,): the model puts all of it at 0 else."""
        told: NDArray[np.bool_] = np.any([*self.centers, self.spread], axis=0)
        return told

    def adjustment(
        self,
        X: Floats,
        weights: Floats,
        within: Floats | float = 0.0,
        persons: NDArray[np.int64] | None = None,
    ) -> tuple[Floats, Floats]:
        """Return what the rows (n, d) of a site are multiplied by, and what is then subtracted."""
        if not self.gains:
            return np.ones(X.shape[1]), self._found(X, weights, persons)[0]
        typical, variance, still = map(np.array, self.gains)
        told, gains = typical > 0, np.ones(X.shape[1])
        if told.any():  # along codes, rows would part in clusters of their own
            inside = np.broadcast_to(within, len(told))[told]
            own, n = own_deviations(X[:, told], weights, inside, self.least, persons)
            # the logarithm of a deviation of n rows has the variance 1 / 2n
            apart = (logs_of(own) - logs_of(typical[told])) * (own > 1e-6 * typical[told])
            gains[told] = gains_of(apart, variance[told], 0.5 / max(n, 1.0))
        centers, noise = np.array(self.centers), np.diag(np.array(self.noise))
        for _ in range(Registration().gains):
            _, r = self._found((X - still) / gains + still, weights, persons)
            if not r.any():
                break
            logs, errors = gains_beside(X, r, within, centers, noise)
            gains = gains_of(logs, variance * told, errors)
        offset, _ = self._found((X - still) / gains + still, weights, persons)
        return 1.0 / gains, offset - still * (1.0 - 1.0 / gains)

    def _found(
        self, X: Floats, weights: Floats, persons: NDArray[np.int64] | None
    ) -> tuple[Floats, Floats]:
        """Return the offset (d,), and the weights of rows in subtypes (n, k) that decide it."""
        white, spread = common_axes(np.array(self.noise), np.array(self.spread))
        X, centers = X @ white, np.array(self.centers) @ white
        starts, how = starts_of(weights @ X / weights.sum(), centers), Registration()
        if (every := -(-len(X) // how.rows)) > 1:
            few = lexicographic([*X.T])[::every]
            best, _ = registered(X[few], weights[few], centers, starts, spread, how)
            starts = best[None]
        found, shares = registered(X, weights, centers, starts, spread, how)
        near = (X - found) @ centers.T - (centers**2).sum(1) / 2 + np.log(shares)
        near -= near.max(axis=1, keepdims=True)
        r = np.exp(near)
        r *= (weights / r.sum(axis=1))[:, None]
        if self.least:
            z = near.argmax(axis=1)
            kept = _are_enough(z, weights, persons, self.least)
            n = weights[kept].sum()
            apart = weights[kept] @ (X[kept] - centers[z[kept]])
            found = apart * spread / (n * spread + 1.0)
            r = np.eye(len(centers))[z] * (weights * kept)[:, None]
        return found @ np.linalg.inv(white), r

    def check(self, width: int) -> None:
        """Check the shapes, and that the noise is a covariance.

        Raises
        ------
        ValueError
            If not.
        """
        C, noise, spread = map(np.array, (self.centers, self.noise, self.spread))
        gains = np.array(self.gains or np.zeros((3, width)))
        shapes = [C.shape[1:], noise.shape, spread.shape, gains.shape]
        if shapes != [(width,), (width, width), (width,), (3, width)]:
            raise ValueError("offsets and gains of sites must be of as many columns as are numbers")
        if not all((np.abs(each) <= LARGEST).all() for each in (C, noise, spread, gains)):
            raise ValueError("centres and variances of offsets must be finite, and those of gains")
        if (spread < 0).any() or (gains[:2] < 0).any():
            raise ValueError("variances of offsets, and of gains, are at least 0")
        if type(self.least) is not int or self.least < 0 or not 0 < len(C) <= self.most:
            raise ValueError(f"offsets of sites need 1 to {self.most} centres, and a limit of rows")
        try:
            np.linalg.cholesky(noise)
        except np.linalg.LinAlgError:
            raise ValueError("the noise within subtypes must be a covariance") from None

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Self:
        """Return the effects from JSON.

        Raises
        ------
        ValueError, LookupError, TypeError
            If the content has another form.
        """
        centers, noise, gains = (table(content.get(x, ())) for x in ("centers", "noise", "gains"))
        [spread] = table([content["spread"]])
        return cls(centers, noise, spread, content.get("least", 0), gains)


def among(told: NDArray[np.bool_], lines: Sequence[Floats] | Floats, rest: float = 0.0) -> Floats:
    """Return lines about some columns as lines about all (n, d), with a number for the rest."""
    out = np.full((len(lines), len(told)), rest)
    out[:, told] = lines
    return out


def table(lines: Any) -> Table:
    """Return a table of numbers from JSON."""
    return tuple(tuple(map(float, line)) for line in lines)


def _are_enough(
    z: NDArray[np.intp], weights: Floats, persons: NDArray[np.int64] | None, least: int
) -> NDArray[np.bool_]:
    """Return which rows are in a subtype of as many rows, or persons, as count."""
    each = weights if persons is None else first_of_each([persons, z])
    enough: NDArray[np.bool_] = np.bincount(z, each)[z] >= least
    return enough
