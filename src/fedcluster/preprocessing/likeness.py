"""Whether columns of new rows are like those that are known, and what explains it if not.

Of the known rows there are sums alone: the means of clusters, and the variance within them. Honest
new rows are some of the known kinds in other shares, such as older patients or a single subtype:
rows that make up a share p of the known ones have at most 1 / p times their mean squared distance,
whatever the distribution (Markov's inequality). Values farther than that are of another kind, of
another unit, or stand for something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcluster.core import Floats
from fedcluster.frames.columns import NumberSample
from fedcluster.preprocessing.columns import NumericColumn
from fedcluster.preprocessing.screening import sentinel
from fedcluster.preprocessing.transform import Principal
from fedcluster.preprocessing.units import Conversion, fitting_units
from fedcluster.texts import setting


@dataclass(frozen=True, slots=True)
class LikenessThresholds:
    """From when on a column of new rows is unlike the known ones."""

    least: float = 0.1  # share of the known rows that honest new rows are drawn from, at least
    sure: float = 1e-4  # probability of a false alarm in a column of such rows
    told: float = 1.5
    """Mean squared distance, over that within the clusters, from which on a usual unit that
    explains it is believed."""
    mended: float = 0.5  # largest ratio of that distance after an explanation to that before
    alike: float = (
        1.0  # largest difference of mean, in deviations, and of the deviation's logarithm
    )
    closely: float = 0.4  # the same, of values that are only closer together
    margin: float = 2.0  # how many times worse than the best the next explanation must fit
    shrunk: float = 0.05  # ratio of deviations from which on logarithms are considered
    fewest: int = 8  # values for more than naming values that are far
    missing: float = 0.5  # share of missing values from which on they are named
    strange: float = 0.05  # share of other values in a column of two whole numbers
    clearly: float = 4.0  # standard errors by which one of two codings must fit better
    narrow: float = 0.01  # least share of a column's variance that lies within clusters


LIKENESS = LikenessThresholds()


@dataclass(frozen=True, slots=True)
class Explanation:
    """What may have been done to a column, in words, and how it is undone."""

    what: str
    undo: Callable[[Floats], Floats]
    factor: float | str | None = None
    by_hand: str = ""

    def mend(self, name: str, site: str | None) -> str:
        """Return what to do: an option of the command line for a site, or else words."""
        if site is not None and self.factor is not None:
            return f"say {setting('sites', site, 'factors', name, to=self.factor)}"
        if self.factor is not None and not isinstance(self.factor, str):
            return f"multiply it by {self.factor:.6g}"
        return f"take {self.by_hand or self.factor} of it"


def _of_unit(unit: Conversion) -> Explanation:
    back = unit.inverse
    return Explanation(
        f"as of {unit.between}", lambda x: x * back.scale + back.shift, factor=back.value
    )


OTHERWISE = (
    Explanation("as with another sign", np.negative, -1.0),
    Explanation("as logarithms to base 10", lambda x: 10.0**x, by_hand="10**x"),
    Explanation("as natural logarithms", np.exp, by_hand="exp(x)"),
    Explanation("as powers of 10", np.log10, by_hand="log10(x)"),
    Explanation("as exponentials", np.log, by_hand="log(x)"),
)
"""What may have been done to a column whatever it measures."""


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
    where : str
        What has these columns, for messages.
    is_exact : bool
        Whether the variance is known, and not only a bound of it.
    pairs : mapping of str to float
        Columns that hold two whole numbers, one after the other, and the lower one.

    Examples
    --------
    >>> known = KnownColumns(("sbp",), np.array([[120.0], [160.0]]), np.ones(2), np.array([99.0]))
    >>> rows = np.array([[x] for x in (118.0, 125.0, 131.0, 109.0, 155.0, 162.0, 171.0, 149.0)])
    >>> list(known.unlike(rows))
    []
    >>> print(*known.unlike(rows / 7.50062))
    column 'sbp': 8 of 8 values are unlike those of the fit: mean 18.7 and deviation 2.84, there \
140 and 22.3, as of kPa and mmHg; if it is another unit, multiply it by 7.50062
    """

    names: tuple[str, ...]
    centers: Floats
    weights: Floats
    within: Floats
    logs: frozenset[str] = frozenset()
    where: str = "the fit"
    is_exact: bool = True
    pairs: Mapping[str, float] = field(default_factory=dict)
    at: LikenessThresholds = LIKENESS

    def unlike(self, X: Floats, site: str | None = None) -> Iterator[str]:
        """Yield a line for each column of rows (n, d) that is unlike the known one.

        ``site`` names the rows for options of the command line.
        """
        given = {name: X[:, j][~np.isnan(X[:, j])] for j, name in enumerate(self.names)}
        odd: dict[str, Floats] = {}
        lines: dict[str, str] = {}
        for j, (name, x) in enumerate(given.items()):
            if not self.within[j] > 0 or not len(x):
                continue
            if (line := self._of_few(j, X, x, site)) is not None:
                lines[name] = line
                continue
            kept, signs = self._without_signs(j, x)
            if signs:
                lines[name] = self._of_signs(j, x, signs, site)
            elif (line := self._of_unit(j, kept, site)) is not None:
                lines[name] = line
            elif self.far(j, kept) or self._is_shrunk(j, kept):
                odd[name] = kept
        swapped = dict(self._swapped(odd))
        for name, x in odd.items():
            if (line := self._of_other(name, x, swapped.get(name), site)) is not None:
                lines[name] = line
        yield from (lines[name] for name in self.names if name in lines)

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
        with np.errstate(divide="ignore"):
            most = np.minimum(1.0, 1.0 / (self.at.least * t))
        share = np.arange(1, n + 1) / n
        with np.errstate(all="ignore"):
            rest = np.where(share < 1, (1 - share) * np.log((1 - share) / (1 - most)), 0.0)
            evidence = n * (share * np.log(share / most) + rest)
        evidence = np.where(share > most, np.nan_to_num(evidence, nan=0.0), 0.0)
        best = int(np.argmax(evidence)) if n else 0
        is_sure = n and evidence[best] > -math.log(self.at.sure)
        return max(best + 1, int(np.count_nonzero(t > 1 / self.at.least))) if is_sure else 0

    def _is_shrunk(self, j: int, x: Floats) -> bool:
        """Return whether values are much closer together than the known ones, but not equal."""
        deviation = float(x.std())
        least = self.at.shrunk * self._moments(j)[1]
        return self.is_exact and len(x) >= self.at.fewest and 0 < deviation < least

    # What explains it

    def _moments(self, j: int) -> tuple[float, float]:
        """Return mean and deviation of a column over all clusters."""
        shares = self.weights / self.weights.sum()
        mean = float(shares @ self.centers[:, j])
        between = float(shares @ (self.centers[:, j] - mean) ** 2)
        return mean, math.sqrt(self.within[j] + between)

    def _misfit(self, j: int, x: Floats) -> float:
        """Return the difference of values from the known ones: inf if they are far from these."""
        with np.errstate(all="ignore"):
            y = np.log1p(x) if self.names[j] in self.logs else x
        if not np.isfinite(y).all() or not y.std() > 0 or self.far(j, x):
            return math.inf
        mean, deviation = self._moments(j)
        return math.hypot((y.mean() - mean) / deviation, math.log(y.std() / deviation))

    def _without_signs(self, j: int, x: Floats) -> tuple[Floats, list[tuple[float, int]]]:
        """Return values without those that stand for others, and these with their counts."""
        signs: list[tuple[float, int]] = []
        kept = x
        while (value := sentinel(NumberSample.from_values(kept))) is not None and len(signs) < 3:
            is_far = self.distances(j, np.array([value]))[0] > 1 / self.at.least
            if not (is_far or kept.min() < value < kept.max()):
                break
            signs.append((value, int(np.count_nonzero(kept == value))))
            kept = kept[kept != value]
        return kept, signs

    def _of_signs(
        self, j: int, x: Floats, signs: Sequence[tuple[float, int]], site: str | None
    ) -> str:
        name = self.names[j]
        which = " and ".join(f"{value:.6g} ({count} times)" for value, count in signs)
        values = [value for value, _ in signs]
        say = (
            f"say {setting('missing_values', to=values)}"
            if site is not None
            else "make these values missing"
        )
        return (
            f"{self._column(name, site)}: {sum(n for _, n in signs)} of {len(x)} values, {which}, "
            f"are unlike those of {self.where}; if that means missing, {say}"
        )

    def _of_few(self, j: int, X: Floats, x: Floats, site: str | None) -> str | None:
        """Return the line of a column with few values, or few rows with one; else None."""
        name, n = self.names[j], len(X)
        if n >= self.at.fewest and len(x) < (1 - self.at.missing) * n:
            return f"{self._column(name, site)}: {n - len(x)} of {n} values are missing"
        values = np.unique(x)
        if len(values) == 1 and n >= 2 * self.at.fewest and not float(values[0]).is_integer():
            return (
                f"{self._column(name, site)}: all {len(x)} values are {values[0]:.6g}; see whether "
                "it was measured"
            )
        if name not in self.pairs or len(x) < self.at.fewest:
            return None
        low = self.pairs[name]
        many = int(np.count_nonzero((x != low) & (x != low + 1)))
        if many < self.at.strange * len(x):
            return None
        holds = " and ".join(f"{value:.6g}" for value in values[:2])
        more = " and other values" if len(values) > 2 else ""
        line = (
            f"{self._column(name, site)}: it holds {holds}{more}, and {low:.6g} and {low + 1:.6g} "
            f"in {self.where}"
        )
        ways = [Conversion(1.0, low - values[0], ""), Conversion(-1.0, low + values[-1], "")]
        if len(values) != 2 or values[1] - values[0] != 1:
            return f"{line}; see whether it means the same there"
        tried = [self._joint(X, j, way.scale * X[:, j] + way.shift) for way in ways]
        apart = tried[1] - tried[0]
        error = float(apart.std() / math.sqrt(len(apart)))
        if abs(float(apart.mean())) > self.at.clearly * error:
            found = Explanation("", np.positive, ways[int(apart.mean() < 0)].value)
            return f"{line}; if rows mean the same, {found.mend(name, site)}"
        return f"{line}; see which is which"

    def _joint(self, X: Floats, j: int, values: Floats) -> Floats:
        """Return squared distances of rows to the nearest centre, with other values in j, (n,)."""
        nearest = np.full(len(X), np.inf)
        known = np.where(self.within > 0, self.within, np.inf)
        with np.errstate(all="ignore"):
            Y = np.column_stack(
                [np.log1p(x) if n in self.logs else x for n, x in zip(self.names, X.T, strict=True)]
            )
            Y[:, j] = values
            for center in self.centers:
                np.minimum(nearest, np.nansum((Y - center) ** 2 / known, axis=1), out=nearest)
        return nearest

    def _of_unit(self, j: int, x: Floats, site: str | None) -> str | None:
        """Return the line of a column that another unit explains, or None."""
        name = self.names[j]
        if name in self.logs or len(x) < self.at.fewest:
            return None
        before = float(self.distances(j, x).mean())
        if before < self.at.told:
            return None
        here, there = (float(x.mean()), float(x.std())), self._moments(j)
        if not here[1] > 0:
            return None
        for unit in fitting_units(name, here, there):
            found = _of_unit(unit)
            back = found.undo(x)
            if not self.far(j, back) and self.distances(j, back).mean() < self.at.mended * before:
                return self._line(name, x, found, site, "if it is another unit, ")
        return None

    def _of_other(self, name: str, x: Floats, other: str | None, site: str | None) -> str | None:
        """Return the line of a column that is unlike the known one for another reason, or none.

        Values that are only closer together than the known ones need one.
        """
        if other is not None:
            found = Explanation(f"as of column {other!r}, and that as of this", np.positive)
            both = ((name, other), (other, name))
            say = " ".join(setting("sites", site or "", "rename", a, to=b) for a, b in both)
            mend = "rename both" if site is None else f"say {say}"
            return f"{self._line(name, x, found, site)}; if they are exchanged, {mend}"
        j = self.names.index(name)
        fits: list[tuple[float, Explanation]] = []
        for each in OTHERWISE if len(x) >= self.at.fewest else ():
            with np.errstate(all="ignore"):
                fits.append((self._misfit(j, each.undo(x)), each))
        fits.sort(key=lambda both: both[0])
        is_far = bool(self.far(j, x))
        sure = fits and fits[0][0] <= (self.at.alike if is_far else self.at.closely)
        if sure and fits[1][0] > self.at.margin * fits[0][0]:
            return self._line(name, x, fits[0][1], site, "if so, ")
        return self._line(name, x, None, site) if is_far else None

    def _swapped(self, odd: Mapping[str, Floats]) -> Iterator[tuple[str, str]]:
        """Yield pairs of columns, each of which is like the other one."""
        places = {name: self.names.index(name) for name in odd}
        for name, j in places.items():
            like = [
                other
                for other, i in places.items()
                if max(self._misfit(i, odd[name]), self._misfit(j, odd[other])) <= self.at.alike
            ]
            if len(like) == 1:
                yield name, like[0]

    # In words

    @staticmethod
    def _column(name: str, site: str | None) -> str:
        return f"column {name!r}" if site is None else f"column {name!r} at {site}"

    def _line(
        self, name: str, x: Floats, found: Explanation | None, site: str | None, given: str = ""
    ) -> str:
        j = self.names.index(name)
        mean, deviation = self._moments(j)
        many = self.far(j, x) or len(x)
        with np.errstate(all="ignore"):
            y = np.log1p(x) if name in self.logs else x
        line = (
            f"{self._column(name, site)}: {many} of {len(x)} values are unlike those of "
            f"{self.where}: mean {y.mean():.3g} and deviation {y.std():.3g}, there {mean:.3g} and "
            f"{deviation:.3g}"
        )
        if found is None:
            return f"{line}; see whether it means the same there"
        mend = f"; {given}{found.mend(name, site)}" if given else ""
        return f"{line}, {found.what}{mend}"


# What a model knows


def known_columns(model: Any, at: LikenessThresholds = LIKENESS) -> KnownColumns | None:
    """Return what a model knows of its columns of numbers; None if it knows no spread.

    Of its variance in the fit, a column has 1 if it was standardised; within bounds, it has at most
    half their distance (Popoviciu), and within clusters at most the inertia of a row. The model
    holds nothing more for this, so that nothing more is disclosed.

    Parameters
    ----------
    model : Model
        The model.
    at : LikenessThresholds
        The thresholds.
    """
    how, weights = model.preprocessor, model.weights
    columns = tuple(map(NumericColumn, model.columns)) if how is None else how.numeric
    if not columns or not weights.sum() > 0:
        return None
    shift, scale = (np.array([getattr(c, key) for c in columns]) for key in ("shift", "scale"))
    centers, is_known = _scaled_centers(model), how is None or how.principal is None
    shares = weights / weights.sum()
    if centers is None:
        centers, weights, shares = np.zeros((1, len(columns))), np.ones(1), np.ones(1)
    between = shares @ (centers - shares @ centers) ** 2
    within = _variances(model, columns) - between
    within = np.maximum(within, at.narrow * (within + between))
    if is_known and model.algorithm.get("objective") == "inertia":
        within = np.fmin(within, model.inertia / model.weights.sum())
    if how is None and "precisions_cholesky" in model.memory:
        within = _of_mixture(model, shares)
    if np.isnan(within).any():
        return None
    # a constant column is not scaled
    constant = (between < 1e-12) & (scale == 1.0) & (how is not None)
    return KnownColumns(
        tuple(column.name for column in columns),
        centers * scale + shift,
        weights,
        np.where(constant, 0.0, within * scale**2),
        frozenset(column.name for column in columns if column.log),
        is_exact=_is_standard(model),
        pairs=dict(_pairs(model, columns)),
    )


def _pairs(model: Any, columns: Sequence[NumericColumn]) -> Iterator[tuple[str, float]]:
    """Yield standardised columns of two whole numbers, with the lower one.

    Whole numbers with mean a + p have at least the variance p (1 - p), which those of a and a + 1
    alone have.
    """
    variances = _variances(model, columns)
    for column, variance in zip(columns, variances.tolist(), strict=True):
        low = math.floor(column.shift)
        p = column.shift - low
        least, own = p * (1 - p), column.scale**2 * variance
        if _is_standard(model) and not column.log and least > 0 and abs(own / least - 1) < 1e-6:
            yield column.name, float(low)


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
