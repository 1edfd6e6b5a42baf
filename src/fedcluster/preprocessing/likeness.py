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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcluster.core import Floats
from fedcluster.frames.columns import NumberSample
from fedcluster.preprocessing.columns import NumericColumn
from fedcluster.preprocessing.placeholders import (
    evidence,
    in_words,
    placeholder_line,
    placeholders,
    shown,
)
from fedcluster.preprocessing.transform import Principal
from fedcluster.preprocessing.units import (
    ODD,
    Conversion,
    fitting_units,
    unlikeness,
)
from fedcluster.texts import setting


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


def of_unit(unit: Conversion) -> Explanation:
    """Return that values are in another unit."""
    back = unit.inverse
    return Explanation(
        f"as of {unit.between}", lambda x: x * back.scale + back.shift, factor=back.value
    )


EXPLANATIONS = (
    Explanation("as logarithms to base 10", lambda x: 10.0**x, by_hand="10**x"),
    Explanation("as natural logarithms", np.exp, by_hand="exp(x)"),
    Explanation("as logarithms to base 2", np.exp2, by_hand="2**x"),
    Explanation(
        "as with points for thousands",
        lambda x: np.where(x == np.floor(x), x, np.round(1000.0 * x)),
        by_hand="1000x where it has decimals",
    ),
    Explanation("as square roots", np.square, by_hand="x**2"),
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
    is_exact : bool
        Whether the variance is known, and not only a bound of it.
    levels : mapping of str to tuple of float
        Columns that hold a few whole numbers, and these.

    Examples
    --------
    >>> known = KnownColumns(("sbp",), np.array([[120.0], [160.0]]), np.ones(2), np.array([99.0]))
    >>> rows = np.array([[x] for x in (118.0, 125.0, 131.0, 109.0, 155.0, 162.0, 171.0, 149.0)])
    >>> list(known.unlike(rows))
    []
    >>> print(*known.unlike(rows / 7.50062))
    column 'sbp': 8 of 8 values are unlike those of the fit: mean 18.7 and deviation 2.79, there \
140 and 22.3, as of kPa and mmHg; if it is another unit, multiply it by 7.50062
    """

    names: tuple[str, ...]
    centers: Floats
    weights: Floats
    within: Floats
    logs: frozenset[str] = frozenset()
    is_exact: bool = True
    levels: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def unlike(self, X: Floats, site: str | None = None) -> Iterator[str]:
        """Yield a line for each column of rows (n, d) that is unlike the known one.

        ``site`` names the rows for options of the command line.
        """
        kept: dict[str, Floats] = {}
        lines: dict[str, str] = {}
        for j, name in enumerate(self.names):
            x = X[:, j][~np.isnan(X[:, j])]
            if not self.within[j] > 0 or not len(x):
                continue
            kept[name], line = self._of_placeholders(j, x, site)
            line = self._of_few(j, X, x, site) or line
            lines |= {} if line is None else {name: line}
        asked = {name: x for name, x in kept.items() if name not in lines}
        unlike = [name for name, x in asked.items() if self._is_odd(self.names.index(name), x)]
        swapped = dict(self._swapped({name: asked[name] for name in unlike}))
        for name in unlike:
            line = self._of_other(name, asked[name], swapped.get(name), site)
            lines |= {} if line is None else {name: line}
        yield from (lines[name] for name in self.names if name in lines)

    def _is_odd(self, j: int, x: Floats) -> bool:
        """Return whether values are far from the known ones, or one usual unit may explain them."""
        is_near = self.distances(j, x).mean() < ODD.told
        return bool(self.far(j, x)) or self._is_shrunk(j, x) or not is_near

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

    def _is_shrunk(self, j: int, x: Floats) -> bool:
        """Return whether values are much closer together than the known ones, but not equal."""
        deviation = float(x.std())
        least = ODD.share * self._moments(j)[1]
        return self.is_exact and len(x) >= ODD.fewest and 0 < deviation < least

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
        return unlikeness((float(y.mean()), float(y.std())), (mean, deviation))

    def _of_placeholders(self, j: int, x: Floats, site: str | None) -> tuple[Floats, str | None]:
        """Return values without placeholders that are new, and the line of these."""
        found, rest = placeholders(NumberSample.from_values(x))
        is_far = self.distances(j, np.array([*found])) > 1 / ODD.least
        odd = {
            value: count
            for (value, count), far in zip(found.items(), is_far, strict=True)
            if far or rest.low < value < rest.high
        }
        line = placeholder_line(self.names[j], site, odd, len(x), rest) if odd else None
        return x[~np.isin(x, [*odd])], line

    def _of_few(self, j: int, X: Floats, x: Floats, site: str | None) -> str | None:
        """Return the line of a column with few values, or few rows with one; else None."""
        name, n = self.names[j], len(X)
        if n >= ODD.fewest and len(x) < n / 2:
            return f"{in_words(name, site)}: {n - len(x)} of {n} values are missing"
        if (line := self._of_stuck(name, x, site)) is not None:
            return line
        values = np.unique(x)
        levels = self.levels.get(name)
        # one value alone may be the site's number
        is_few = len(values) == 1 or len(x) < ODD.fewest
        if levels is None or is_few or not self._is_recoded(x, levels):
            return None
        known, own = (shown(each) for each in (np.array(levels), values))
        line = f"{in_words(name, site)}: it holds {own}, and {known} in the fit"
        if len(values) != len(levels) or np.ptp(values) != np.ptp(levels):
            return f"{line}; see whether it means the same there"
        ways = [
            Conversion(1.0, levels[0] - values[0], ""),
            Conversion(-1.0, levels[0] + values[-1], ""),
        ]
        way = self._way(X, j, ways)
        if way is None:
            return f"{line}; see which is which"
        found = Explanation("", np.positive, way.value)
        return f"{line}; if rows mean the same, {found.mend(name, site)}"

    def _of_stuck(self, name: str, x: Floats, site: str | None) -> str | None:
        """Return the line of a column of which all values are equal, but no code, or None."""
        if len(x) < ODD.enough or np.ptp(x) > 0 or x[0].is_integer():
            return None
        line = f"{in_words(name, site)}: {len(x)} of {len(x)} values are {x[0]:.6g}"
        return f"{line}; see whether it was measured"

    def _is_recoded(self, x: Floats, levels: Sequence[float]) -> bool:
        """Return whether values are others than a few known ones: one end is new, and one lacks.

        Of two values, any other one is new.
        """
        is_known = np.isin(x, levels)
        new = float(np.mean(~is_known))
        if len(levels) == 2:
            return new >= ODD.share
        ends = [levels[0], levels[-1]]
        lost = [end for end in ends if end not in x]
        return new >= ODD.least and len(lost) == 1 and len(x) >= ODD.enough

    def _way(self, X: Floats, j: int, ways: Sequence[Conversion]) -> Conversion | None:
        """Return which of two codings, of which one is reversed, goes with the other columns."""
        tried = [self._joint(X, j, way.scale * X[:, j] + way.shift) for way in ways]
        apart = tried[1] - tried[0]
        score, error = float(apart.mean()), float(apart.std() / math.sqrt(len(apart)))
        if abs(score) <= math.sqrt(-2 * math.log(ODD.sure)) * error:
            return None
        return ways[0 if score > 0 else 1]

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
        if name in self.logs or len(x) < ODD.fewest or not x.std() > 0:
            return None
        before = float(self.distances(j, x).mean())
        here, there = (float(x.mean()), float(x.std())), self._moments(j)
        units = fitting_units(name, here, there) if before >= ODD.told else []
        found = [
            each
            for each in map(of_unit, units)
            if not self.far(j, back := each.undo(x))
            and self.distances(j, back).mean() < before / ODD.margin
        ]
        if not found:
            return None
        more = "".join(f", or else {each.what[6:]} ({each.factor})" for each in found[1:])
        first = replace(found[0], what=f"{found[0].what}{more}")
        return self._line(name, x, first, site, "if it is another unit, ")

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
        if (line := self._of_unit(j, x, site)) is not None:
            return line
        fits: list[tuple[float, Explanation]] = []
        for each in EXPLANATIONS if len(x) >= ODD.fewest else ():
            with np.errstate(all="ignore"):
                fits.append((self._misfit(j, each.undo(x)), each))
        fits.sort(key=lambda both: both[0])
        is_far = bool(self.far(j, x))
        is_alike = self._misfit(j, x) <= ODD.alike
        sure = (
            fits
            and not is_alike
            and fits[0][0] <= (ODD.alike if is_far else ODD.alike / ODD.margin)
        )
        if sure and fits[1][0] > ODD.margin * fits[0][0]:
            return self._line(name, x, fits[0][1], site, "if so, ")
        return self._line(name, x, None, site) if is_far else None

    def _swapped(self, odd: Mapping[str, Floats]) -> Iterator[tuple[str, str]]:
        """Yield pairs of columns, each of which is like the other one."""
        places = {name: self.names.index(name) for name in odd}
        for name, j in places.items():
            like = [
                other
                for other, i in places.items()
                if other != name and self._misfit(j, odd[name]) > ODD.margin * ODD.alike
                if max(self._misfit(i, odd[name]), self._misfit(j, odd[other])) <= ODD.alike
            ]
            if len(like) == 1:
                yield name, like[0]

    # In words

    def _line(
        self, name: str, x: Floats, found: Explanation | None, site: str | None, given: str = ""
    ) -> str:
        j = self.names.index(name)
        mean, deviation = self._moments(j)
        many = self.far(j, x) or len(x)
        with np.errstate(all="ignore"):
            y = np.log1p(x) if name in self.logs else x
        line = (
            f"{in_words(name, site)}: {many} of {len(x)} values are unlike those of "
            f"the fit: mean {y.mean():.3g} and deviation {y.std():.3g}, there {mean:.3g} and "
            f"{deviation:.3g}"
        )
        if found is None:
            return f"{line}; see whether it means the same there"
        mend = f"; {given}{found.mend(name, site)}" if given else ""
        return f"{line}, {found.what}{mend}"


# What a model knows


def known_columns(model: Any) -> KnownColumns | None:
    """Return what a model knows of its columns of numbers; None if it knows no spread.

    Of its variance in the fit, a column has 1 if it was standardised; within bounds, it has at most
    half their distance (Popoviciu), and within clusters at most the inertia of a row. The model
    holds nothing more for this, so that nothing more is disclosed.

    Parameters
    ----------
    model : Model
        The model.
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
    within = np.maximum(within, ODD.narrow * (within + between))
    if is_known and model.algorithm.get("objective") == "inertia":
        within = np.fmin(within, model.inertia / model.weights.sum())
    is_merged = "parts" in model.memory  # clusters have several components
    if how is None and "precisions_cholesky" in model.memory and not is_merged:
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
        levels=dict(_pairs(model, columns)),
    )


def _pairs(model: Any, columns: Sequence[NumericColumn]) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield standardised columns of two whole numbers, with these.

    Whole numbers with mean a + p have at least the variance p (1 - p), which those of a and a + 1
    alone have.
    """
    variances = _variances(model, columns)
    for column, variance in zip(columns, variances.tolist(), strict=True):
        low = math.floor(column.shift)
        p = column.shift - low
        least, own = p * (1 - p), column.scale**2 * variance
        if _is_standard(model) and not column.log and least > 0 and abs(own / least - 1) < 1e-6:
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
