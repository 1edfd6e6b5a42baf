"""Whether columns of rows are like those that are known, and what explains it if not.

Single values of a column may stand for something else: a code for a missing value, or a typing
error.

Of the rows of a fit there are sums alone: the means of clusters, and the variance within them.
Honest new rows are some of the known kinds in other shares, as older patients or a single subtype:
rows that make up a share p of the known ones have at most 1 / p times their mean squared distance,
whatever the distribution (Markov's inequality). Values farther than that are of another kind, of
another unit, or stand for something else.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Floats
from fedcluster.frames.columns import NumberSample, columns_of
from fedcluster.preprocessing.columns import NumericColumn
from fedcluster.preprocessing.explaining import Columns
from fedcluster.preprocessing.matching import Matched
from fedcluster.preprocessing.placeholders import evidence, in_words, placeholder_line, placeholders
from fedcluster.preprocessing.transform import Principal
from fedcluster.preprocessing.units import ODD

QUANTILES = np.array([NormalDist().inv_cdf((i + 0.5) / 8) for i in range(8)])
NORMAL = QUANTILES / QUANTILES.std()
"""Values that stand for a normal distribution, with its mean 0 and deviation 1."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownColumns:
    """What is known of columns of numbers without their rows.

    Parameters
    ----------
    names : tuple of str
        The d columns.
    centers : ndarray of shape (k, d)
        The means of clusters, of log(1 + x) in columns of ``logs``.
    weights : ndarray of shape (k,)
        The weights of their rows.
    within : ndarray of shape (d,)
        The variance within clusters, or more.
    logs : frozenset of str
        Columns of which the logarithm is taken.
    is_exact : bool
        Whether the variance is known, and not only a bound of it.
    levels : mapping of str to tuple of float
        Columns that hold a few whole numbers, and these.
    are_others : bool
        Whether they are those of the other sites of a fit. These may lack whole kinds of rows that
        the site has, so that far values tell something if they are the fewer.

    Examples
    --------
    >>> known = KnownColumns(("sbp",), np.array([[120.0], [160.0]]), np.ones(2), np.array([99.0]))
    >>> rows = np.array([[x] for x in (118.0, 125.0, 131.0, 109.0, 155.0, 162.0, 171.0, 149.0)])
    >>> list(known.unlike(rows))
    []
    >>> print(*known.unlike(rows / 7.50062))
    column 'sbp' has mean 18.7 and deviation 2.79, 140 and 22.3 in like rows of the fit, as of kPa \
and mmHg: if it is another unit, say --set sites.new.factors.sbp=7.50062
    """

    names: tuple[str, ...]
    centers: Floats
    weights: Floats
    within: Floats
    logs: frozenset[str] = frozenset()
    is_exact: bool = True
    levels: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    are_others: bool = False

    @property
    def where(self) -> str:
        """Where the known rows are."""
        return "the other sites" if self.are_others else "the fit"

    def unlike(self, X: Floats, site: str | None = None) -> Iterator[str]:
        """Yield a line for each column of rows (n, d) that is unlike the known one.

        They say what to do by options of the command line, in which ``site`` names the rows.
        """
        X = X.astype(np.float64)
        lines: dict[str, str] = {}
        for j, name in enumerate(self.names):
            if self.within[j] > 0 and not np.isnan(X[:, j]).all():
                few = self._of_few(name, X[:, j], site)
                X[:, j], found = self._of_placeholders(j, X[:, j], site)
                if (line := few or found) is not None:
                    lines[name] = line
            else:
                X[:, j] = np.nan
        asked = {
            name: x[~np.isnan(x)]
            for name, x in zip(self.names, X.T, strict=True)
            if name not in lines and not np.isnan(x).all()
        }
        far = {name: self.far(self.names.index(name), x) for name, x in asked.items()}
        lines |= self._explained(
            X, asked, {*asked} if self.is_exact else {*filter(far.get, far)}, site
        )
        for name in far.keys() - lines.keys():
            if far[name] and not (self.are_others and far[name] >= len(asked[name]) / 2):
                lines[name] = self._line(name, asked[name], far[name], site)
        yield from (lines[name] for name in self.names if name in lines)

    def _explained(
        self, X: Floats, asked: Mapping[str, Floats], may_be_odd: set[str], site: str | None
    ) -> dict[str, str]:
        """Return the lines of columns that are explained."""
        most = min(ODD.most_compared, max(1, ODD.most_cells // (len(self.centers) * len(X.T))))
        some = X[:: max(1, -(-len(X) // most))]
        places = [
            j for j, n in enumerate(self.names) if n in asked and not np.isnan(some[:, j]).all()
        ]
        some, asked = some[:, places], {self.names[j]: asked[self.names[j]] for j in places}
        if len(some) < ODD.fewest or not places:
            return {}
        match = partial(self._matched, some, places)
        usual = match(range(len(places)))
        own = {name: NumberSample.from_values(x) for name, x in asked.items()}
        others = {
            name: NumberSample.from_values(np.array(self.levels[name]))
            if name in self.levels
            else replace(NumberSample.from_values(usual[i].usual), whole=False)
            for i, name in enumerate(asked)
        }
        # half of two others may be odd themselves, which makes them wide
        limits = {"honest": 0.3, "wider": 0.25} if self.are_others else {"honest": 0.7}
        columns = Columns(
            site, [*asked], own, others, some, match, where=self.where, are_rows=False, **limits
        )
        skipped = asked.keys() - may_be_odd
        return {name: line for name, _, line in columns.lines(skipped)}

    def _matched(self, X: Floats, places: Sequence[int], by: Collection[int]) -> dict[int, Matched]:
        """Return columns of rows beside the values that those of the nearest clusters have.

        Within clusters, values are taken as normal; whole numbers are known as such.
        """
        with np.errstate(all="ignore"):
            logs = [self.names[j] in self.logs for j in places]
            Y = np.where(logs, np.log1p(X), X)
        centers, within = self.centers[:, places], self.within[places]
        squares = np.nan_to_num((Y[:, None] - centers) ** 2 / within, nan=0.0, posinf=1e30)
        every = squares[:, :, [*by]].sum(axis=2)
        found = {}
        for i, log in enumerate(logs):
            is_alone = not {*by} - {i}
            nearest = (every - squares[:, :, i] * (i in by)).argmin(axis=1)
            nearest = nearest[~np.isnan(X[:, i])]
            if len(nearest):
                found[i] = self._beside(X[:, i], None if is_alone else nearest, places[i], log=log)
        return found

    def _beside(self, x: Floats, nearest: NDArray[np.intp] | None, j: int, *, log: bool) -> Matched:
        """Return a column beside values of the clusters of its rows, or of all if none is known."""
        centers, width, is_there = self.centers[:, j], self.within[j], ~np.isnan(x)
        shares, near = self.weights / self.weights.sum(), np.full(len(x), np.nan)
        mean = float(shares @ centers)
        between = float(shares @ (centers - mean) ** 2)
        near[is_there] = mean
        if nearest is not None:
            near[is_there], shares = centers[nearest], np.bincount(nearest, minlength=len(centers))
        usual = (centers[:, None] + math.sqrt(width) * NORMAL).ravel()
        usual = np.expm1(usual) if log else usual
        usual = np.round(usual) if (x[is_there] == np.floor(x[is_there])).all() else usual
        weights = np.repeat(shares / shares.sum() / len(NORMAL), len(NORMAL))
        order = np.argsort(usual, kind="stable")
        order = order[weights[order] > 0]
        bound = math.sqrt(between / (between + width)) if nearest is not None else 0.0
        return Matched(x, usual[order], weights[order], near, lambda: bound)

    # How far values are

    def distances(self, j: int, x: Floats) -> Floats:
        """Return the squared distances of values to the nearest centre, over the variance."""
        with np.errstate(all="ignore"):
            y = np.log1p(x) if self.names[j] in self.logs else x
            nearest = np.full(len(y), np.inf)
            for center in self.centers[:, j]:
                np.minimum(nearest, (y - center) ** 2, out=nearest)
        distances: Floats = np.nan_to_num(nearest / self.within[j], nan=np.inf)
        return distances

    def far(self, j: int, x: Floats) -> int:
        """Return the number of values of a column that are farther than those of any like rows.

        Of like rows, a share 1 / (``least`` t) has at least the distance t. The number is that of
        the farthest values which are least likely (Chernoff's bound), 0 if chance explains it.
        """
        t = np.sort(self.distances(j, x))[::-1]
        n = len(t)
        if not n or t[0] <= 1 / ODD.least:
            return 0
        with np.errstate(divide="ignore"):
            most = np.minimum(1.0, 1.0 / (ODD.least * t))
        odds = n * evidence(np.arange(1, n + 1) / n, most)
        best = int(np.argmax(odds))
        is_sure = odds[best] > -math.log(ODD.sure)
        return max(best + 1, int(np.count_nonzero(t > 1 / ODD.least))) if is_sure else 0

    # What explains it

    def _moments(self, j: int) -> tuple[float, float]:
        """Return mean and deviation of a column over all clusters."""
        shares = self.weights / self.weights.sum()
        mean = float(shares @ self.centers[:, j])
        between = float(shares @ (self.centers[:, j] - mean) ** 2)
        return mean, math.sqrt(self.within[j] + between)

    def _of_placeholders(self, j: int, x: Floats, site: str | None) -> tuple[Floats, str | None]:
        """Return values (n,), nan for placeholders that are new, and the line of these."""
        found, rest = placeholders(NumberSample.from_values(x))
        is_far = self.distances(j, np.array([*found])) > 1 / ODD.least
        odd = {
            value: count
            for (value, count), far in zip(found.items(), is_far, strict=True)
            if far or rest.low < value < rest.high
        }
        n = int((~np.isnan(x)).sum())
        line = placeholder_line(self.names[j], site, odd, n, rest) if odd else None
        return np.where(np.isin(x, [*odd]), np.nan, x), line

    def _of_few(self, name: str, x: Floats, site: str | None) -> str | None:
        """Return the line of a column with few values, or all equal but no code; else None."""
        known, n = x[~np.isnan(x)], len(x)
        if n >= ODD.fewest and len(known) < n / 2:
            return f"{in_words(name, site)}: {n - len(known)} of {n} values are missing"
        if len(known) < ODD.enough or np.ptp(known) > 0 or known[0].is_integer():
            return None
        line = f"{in_words(name, site)}: {len(known)} of {len(known)} values are {known[0]:.6g}"
        return f"{line}; see whether it was measured"

    def _line(self, name: str, x: Floats, many: int, site: str | None) -> str:
        """Return the line of a column that nothing explains."""
        mean, deviation = self._moments(self.names.index(name))
        with np.errstate(all="ignore"):
            y = np.log1p(x) if name in self.logs else x
        return (
            f"{in_words(name, site)}: {many} of {len(x)} values are unlike those of "
            f"{self.where}: mean {y.mean():.3g} and deviation {y.std():.3g}, there {mean:.3g} and "
            f"{deviation:.3g}; see whether it means the same there"
        )


# What a model knows


@dataclass(slots=True, eq=False)
class OwnSums:
    """Sums over all rows of a site in a fit, by which it tells the other sites' from a model.

    Parameters
    ----------
    weights : ndarray of shape (k,)
        The weights of its rows in each cluster.
    sums : ndarray of shape (k, d)
        Their sums of scaled numbers.
    squares : ndarray of shape (d,)
        The sums of their squares over all clusters.
    rows : list of ndarray of shape (n, d)
        Some of the rows, in the units of the columns.
    rare : float
        The share of its rows from which on it has a cluster.
    fewest : float
        The least share of the other sites in a cluster that tells what they have there.
    block : int
        The number of rows that are summed at a time.
    """

    weights: Floats
    sums: Floats
    squares: Floats
    rows: list[Floats] = field(default_factory=list)
    rare: float = 0.02
    fewest: float = 0.1
    block: int = 4096

    @classmethod
    def of(cls, model: Any, chunks: Iterable[Data]) -> Self:
        """Return the sums of rows before preparation, in chunks."""
        k, d = len(model.centers), len(model.preprocessor.numeric)
        own = cls(np.zeros(k), np.zeros((k, d)), np.zeros(d))
        for data in chunks:
            for start in range(0, len(data), own.block):
                own.add(model, data.take(slice(start, start + own.block)))
        return own

    def add(self, model: Any, data: Data) -> None:
        """Add some rows; of many, fewer and fewer are kept."""
        columns, k = model.preprocessor.numeric, len(self.weights)
        place = {column.name: j for j, column in enumerate(columns_of(data))}
        at = [place[column.name] for column in columns]
        Z = np.hstack([c.apply(data, j) for c, j in zip(columns, at, strict=True)])
        Z, rows = np.nan_to_num(Z), model.row_form.aligned(data)
        shares = model.assignment.memberships(rows)
        if shares is None:
            shares = model.assignment.labels(rows)[:, None] == np.arange(k)
        weights = np.ones(len(data)) if data.sample_weight is None else data.sample_weight
        shares = np.nan_to_num(shares) * weights[:, None]
        self.weights += shares.sum(axis=0)
        self.sums += shares.T @ Z
        self.squares += shares.sum(axis=1) @ Z**2
        self.rows.append(data.X[:, at].astype(np.float64))
        while sum(map(len, self.rows)) > 4 * ODD.most_compared:
            self.rows[:] = [each[::2] for each in self.rows]

    def of_others(
        self, centers: Floats, weights: Floats, variances: Floats
    ) -> tuple[Floats, Floats, Floats, Floats, NDArray[np.bool_]]:
        """Return what the other sites hold, given that of all sites.

        The rows are compared with clusters in which the site has rows, too, if most of its rows are
        in such: the others may be those of another site that holds its columns otherwise.

        Parameters
        ----------
        centers, weights : ndarray of shape (k, d), (k,)
            The clusters of all sites.
        variances : ndarray of shape (d,)
            The variances of all sites' scaled columns, of mean 0.

        Returns
        -------
        centers, weights : ndarray of shape (j, d), (j,)
            The clusters of the others.
        means, variances : ndarray of shape (d,)
            Their scaled columns.
        compared : ndarray of shape (j,), bool
            The clusters with which the rows are compared.
        """
        rest = weights - self.weights
        total, every = weights @ centers, weights.sum()
        n = max(float(rest.sum()), self.fewest)
        squares = every * variances + total**2 / every
        means = (total - self.sums.sum(axis=0)) / n
        spreads = np.maximum((squares - self.squares) / n - means**2, 0.0)
        kept = rest > self.fewest * weights
        own, rows = self.weights[kept], self.weights.sum()
        compared = own > self.rare * rows
        compared |= own[compared].sum() < rows / 2
        centers = (weights[:, None] * centers - self.sums)[kept] / rest[kept, None]
        return centers, rest[kept], means, spreads, compared


def _is_told(model: Any) -> bool:
    """Return whether a model's centres are means, so that a site can tell those of the others."""
    how, is_mean = model.preprocessor, model.algorithm.get("m") is None
    is_plain = how is not None and how.principal is None and not how.unit
    return is_plain and is_mean and _is_standard(model) and len(model.centers) > 0


def known_columns(model: Any, own: OwnSums | None = None) -> KnownColumns | None:
    """Return what a model knows of its columns of numbers; None if it knows no spread.

    Of its variance in the fit, a column has 1 if it was standardised; within bounds, it has at most
    half their distance (Popoviciu), and within clusters at most the inertia of a row. The model
    holds nothing more for this, so that nothing more is disclosed.

    Parameters
    ----------
    model : Model
        The model.
    own : OwnSums, optional
        The sums of a site that took part. Then it is what the model knows of the other sites, if
        centres of standardised columns are means.
    """
    how, weights = model.preprocessor, model.weights
    columns = tuple(map(NumericColumn, model.columns)) if how is None else how.numeric
    if not columns or not weights.sum() > 0 or (own is not None and not _is_told(model)):
        return None
    shift, scale = (np.array([getattr(c, key) for c in columns]) for key in ("shift", "scale"))
    centers, is_known = _scaled_centers(model), how is None or how.principal is None
    shares = weights / weights.sum()
    if centers is None:
        centers, weights, shares = np.zeros((1, len(columns))), np.ones(1), np.ones(1)
    means, variances = np.zeros(len(columns)), _variances(model, columns)
    compared = np.ones(len(weights), dtype=bool)
    if own is not None:
        centers, weights, means, variances, compared = own.of_others(centers, weights, variances)
        shares = weights / weights.sum()
    between = shares @ (centers - shares @ centers) ** 2
    within = variances - between
    within = np.maximum(within, ODD.narrow * (within + between))
    if own is None and is_known and model.algorithm.get("objective") == "inertia":
        within = np.fmin(within, model.inertia / model.weights.sum())
    is_merged = "parts" in model.memory  # clusters have several components
    if how is None and "precisions_cholesky" in model.memory and not is_merged:
        within = _of_mixture(model, shares)
    if not compared.any() or np.isnan(within).any():
        return None
    # a constant column is not scaled
    constant = (between < 1e-12) & (scale == 1.0) & (how is not None)
    return KnownColumns(
        tuple(column.name for column in columns),
        centers[compared] * scale + shift,
        weights[compared],
        np.where(constant, 0.0, within * scale**2),
        frozenset(column.name for column in columns if column.log),
        is_exact=_is_standard(model),
        levels=dict(_pairs(columns, means, variances)) if _is_standard(model) else {},
        are_others=own is not None,
    )


def _pairs(
    columns: Sequence[NumericColumn], means: Floats, variances: Floats
) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield standardised columns of two whole numbers, with these.

    Whole numbers with mean a + p have at least the variance p (1 - p), which those of a and a + 1
    alone have.
    """
    for column, mean, variance in zip(columns, means.tolist(), variances.tolist(), strict=True):
        mean = column.shift + column.scale * mean
        low = math.floor(mean)
        p = mean - low
        least, own = p * (1 - p), column.scale**2 * variance
        if not column.log and least > 0 and abs(own / least - 1) < 1e-6:
            yield column.name, (float(low), low + 1.0)


def _is_standard(model: Any) -> bool:
    """Return whether columns were standardised, so that their variance is known."""
    said = model.algorithm.get("prepare")
    scale = said.get("scale") if isinstance(said, Mapping) else said
    return scale in ("standard", "auto") and not model.privacy and model.preprocessor is not None


def _scaled_centers(model: Any) -> Floats | None:
    """Return the centres (k, d) in scaled columns of numbers; None if others were clustered by."""
    how, centers = model.preprocessor, model.centers
    if not len(centers) or (how is not None and how.unit):
        return None
    if how is None:
        return np.asarray(centers)
    if how.principal is not None:
        if not isinstance(how.principal, Principal):
            return None
        centers = how.principal.invert(centers)
    kinds = [isinstance(c, NumericColumn) for c in how.columns for _ in c.names]
    return np.asarray(centers[:, kinds])


def _variances(model: Any, columns: Sequence[NumericColumn]) -> Floats:
    """Return the variance of each scaled column in the fit, or a bound of it; nan if unknown."""
    said = model.algorithm.get("prepare")
    weights = (said.get("weights") or {}) if isinstance(said, Mapping) else {}
    if _is_standard(model):
        return np.array([float(weights.get(column.name, 1.0)) for column in columns])
    return np.array([_within_bounds(column) for column in columns])


def _within_bounds(column: NumericColumn) -> float:
    """Return the largest variance of a scaled column within its bounds; nan without them."""
    if column.bounds is None:
        return math.nan
    low, high = np.log1p(column.bounds) if column.log else column.bounds
    return float(((high - low) / 2 / column.scale) ** 2)


def _of_mixture(model: Any, shares: Floats) -> Floats:
    """Return the variance within components of each column of a mixture of normal distributions."""
    root = model.memory["precisions_cholesky"]
    k, d = model.centers.shape
    is_tied = model.algorithm.get("covariance_type") == "tied"
    if root.shape == (k, d, d) or is_tied:
        own = (np.linalg.inv(root) ** 2).sum(axis=-2)
    else:
        own = 1.0 / root.reshape(k, -1) ** 2
    within: Floats = np.broadcast_to(own, (k, d)).T @ shares
    return within
