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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcluster.core import Data, Floats
from fedcluster.errors import listed
from fedcluster.frames.columns import NumberSample, columns_of
from fedcluster.preprocessing.columns import NumericColumn
from fedcluster.preprocessing.transform import Principal
from fedcluster.preprocessing.units import (
    ODD,
    Conversion,
    fitting_units,
    odd_columns,
    unlikeness,
)
from fedcluster.texts import setting

SIGNS = frozenset((-9.0, -8.0, -7.0, -2.0, -1.0, 7.0, 8.0, 9.0))
"""Small numbers that people use as placeholders for an unknown value."""


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
    Explanation("as logarithms to base 10", lambda x: 10.0**x, by_hand="10**x"),
    Explanation("as natural logarithms", np.exp, by_hand="exp(x)"),
    Explanation(
        "as with points for thousands",
        lambda x: np.where(x == np.floor(x), x, np.round(1000.0 * x)),
        by_hand="1000x where it has decimals",
    ),
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
    levels : mapping of str to tuple of float
        Columns that hold a few whole numbers, and these.
    often : mapping of str to float
        Columns of measurements, and the share of the commonest value.
    rows : callable, optional
        Returns the known rows (n, d), if there are any.
    whole : frozenset of str
        Columns of whole numbers, of those between which values may have been exchanged.
    between : bool
        Whether the known rows are those of other sites, whose kinds a site need not have: then only
        what is explained is said.

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
    where: str = "the fit"
    is_exact: bool = True
    levels: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    often: Mapping[str, float] = field(default_factory=dict)
    rows: Callable[[], Floats] | None = None
    whole: frozenset[str] | None = None
    between: bool = False

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
            kept[name], line = (x, None) if self.between else self._of_placeholders(j, x, site)
            line = self._of_few(j, X, x, site) or line
            lines |= {} if line is None else {name: line}
        asked = {name: x for name, x in kept.items() if name not in lines}
        unlike = [name for name, x in asked.items() if self._is_odd(self.names.index(name), x)]
        swapped = dict(self._swapped({name: asked[name] for name in unlike}))
        is_other = self.between and self._is_other(kept, {*unlike, *lines}, swapped)
        for name in unlike if not is_other else ():
            line = self._of_other(name, asked[name], swapped.get(name), site)
            lines |= {} if line is None else {name: line}
        yield from (lines[name] for name in self.names if name in lines)

    def _is_odd(self, j: int, x: Floats) -> bool:
        """Return whether values are far from the known ones, or one usual unit may explain them."""
        is_near = self.distances(j, x).mean() < ODD.told
        return bool(self.far(j, x)) or self._is_shrunk(j, x) or not is_near

    def _is_other(
        self, kept: Mapping[str, Floats], odd: Collection[str], swapped: Collection[str]
    ) -> bool:
        """Return whether the other columns show that rows are of another kind."""
        rest = {self.names.index(name): x for name, x in kept.items() if name not in odd}
        apart = [self._apart(j, x) for j, x in rest.items()]
        many = len(odd) - len(swapped) > max(1, len(rest))
        return many or max(apart, default=0.0) > ODD.alike / 2

    def _apart(self, j: int, x: Floats) -> float:
        mean, deviation = self._moments(j)
        with np.errstate(all="ignore"):
            y = np.log1p(x) if self.names[j] in self.logs else x
        return abs(float(y.mean()) - mean) / deviation

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
        evidence = n * _evidence(np.arange(1, n + 1) / n, most)
        best = int(np.argmax(evidence))
        is_sure = evidence[best] > -math.log(ODD.sure)
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
        line = _placeholder_line(self.names[j], site, odd, len(x), rest) if odd else None
        return x[~np.isin(x, [*odd])], line

    def _of_few(self, j: int, X: Floats, x: Floats, site: str | None) -> str | None:
        """Return the line of a column with few values, or few rows with one; else None."""
        name, n = self.names[j], len(X)
        if n >= ODD.fewest and len(x) < n / 2:
            return f"{_column(name, site)}: {n - len(x)} of {n} values are missing"
        if (line := self._of_stuck(name, x, site)) is not None:
            return line
        values = np.unique(x)
        levels = self.levels.get(name)
        # one value alone may be the site's number
        is_few = len(values) == 1 or len(x) < ODD.fewest
        if levels is None or is_few or not self._is_recoded(x, levels):
            return None
        known, own = (_shown(each) for each in (np.array(levels), values))
        line = f"{_column(name, site)}: it holds {own}, and {known} in {self.where}"
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
        """Return the line of measurements of which many are equal, unlike elsewhere, or None."""
        values, counts = np.unique(x, return_counts=True)
        first, value = int(counts.max()), float(values[np.argmax(counts)])
        if len(x) < ODD.enough or first == 1:
            return None
        if name not in self.often and len(values) > 1:
            return None
        usual, grid = self.often.get(name, 0.0), float(np.diff(values).min(initial=np.inf))
        if len(values) == 1:
            # all may be the same code, or 0 as what never occurred
            is_odd = value != 0 if usual else not value.is_integer()
        else:
            share = first / len(x)
            is_long = abs(value) >= ODD.few * grid and share >= ODD.often * usual
            evidence = len(x) * _evidence(np.array([share]), np.array([usual]))[0]
            is_odd = is_long and evidence > -math.log(ODD.sure / len(values))
        elsewhere = f", and at most {usual:.1%} are one value in {self.where}" if usual else ""
        line = f"{_column(name, site)}: {first} of {len(x)} values are {value:.6g}{elsewhere}"
        return f"{line}; see whether it was measured" if is_odd else None

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
        if self.rows is None:
            tried = [self._joint(X, j, way.scale * X[:, j] + way.shift) for way in ways]
            apart = tried[1] - tried[0]
            score, error = float(apart.mean()), float(apart.std() / math.sqrt(len(apart)))
        else:
            own, known = _correlations(X)[j], _correlations(self.rows())[j]
            others = np.arange(len(known)) != j
            score = float((own * known)[others].sum())
            error = math.sqrt(float((known[others] ** 2).sum()) / len(X))
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
        # of sites, the sums say it
        if self.between or name in self.logs or len(x) < ODD.fewest or not x.std() > 0:
            return None
        before = float(self.distances(j, x).mean())
        here, there = (float(x.mean()), float(x.std())), self._moments(j)
        units = fitting_units(name, here, there) if before >= ODD.told else []
        found = [
            each
            for each in map(_of_unit, units)
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
        for each in OTHERWISE if len(x) >= ODD.fewest else ():
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
        return self._line(name, x, None, site) if is_far and not self.between else None

    def is_written_as(self, name: str, x: Floats) -> bool:
        """Return whether values are whole numbers if those of a column are, as far as is known."""
        return self.whole is None or (name in self.whole) == bool((x == np.floor(x)).all())

    def _swapped(self, odd: Mapping[str, Floats]) -> Iterator[tuple[str, str]]:
        """Yield pairs of columns, each of which is like the other one."""
        places = {name: self.names.index(name) for name in odd}
        for name, j in places.items():
            like = [
                other
                for other, i in places.items()
                if other != name and self._misfit(j, odd[name]) > ODD.margin * ODD.alike
                if self.is_written_as(name, odd[other]) and self.is_written_as(other, odd[name])
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
            f"{_column(name, site)}: {many} of {len(x)} values are unlike those of "
            f"{self.where}: mean {y.mean():.3g} and deviation {y.std():.3g}, there {mean:.3g} and "
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


# What sites know of each other


def unlike_sites(
    sites: Mapping[str, Data],
    named: Collection[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
) -> Iterator[str]:
    """Yield a line for each column of numbers of which a site's values are unlike the others.

    Parameters
    ----------
    sites : mapping of str to Data
        The rows of each site before preparation.
    named : collection of str
        Columns that the user named as categories, which are skipped.
    bounds : mapping of str to (float, float), optional
        Bounds of columns; values outside are clipped, and so are no typing errors.
    """
    places = {site: _numbers(data) for site, data in sites.items()}
    first, *others = places.values()
    names = [n for n in first if n not in named and all(n in each for each in others)]
    rows = {
        site: data.X[:: max(1, -(-len(data) // ODD.most_rows))][
            :, [places[site][name] for name in names]
        ].astype(np.float64)
        for site, data in sites.items()
    }
    described: dict[str, dict[str, NumberSample]] = {}
    for j, name in enumerate(names):
        samples = {
            site: NumberSample.from_values(data.X[:, places[site][name]], rows[site][:, j])
            for site, data in sites.items()
        }
        for site, odd, line in _odd_values(name, samples, (bounds or {}).get(name)):
            yield line
            rows[site][np.isin(rows[site][:, j], odd), j] = np.nan
            samples[site] = samples[site].without(*odd)
        described[name] = samples
    if len(rows) > 1:
        yield from _unlike(described, rows)


def _odd_values(
    name: str,
    samples: Mapping[str, NumberSample],
    bounds: tuple[float, float] | None,
) -> Iterator[tuple[str, list[float], str]]:
    """Yield sites with values of a column that stand for something else, and a line about them."""
    rest: dict[str, NumberSample] = {}
    for site, sample in samples.items():
        found, rest[site] = placeholders(sample)
        if found:
            yield site, [*found], _placeholder_line(name, site, found, sample.n, rest[site])
    every = NumberSample.joined(rest.values())
    wrong = typing_errors(every)
    inside = every.without(*wrong)
    low, high = bounds or (-math.inf, math.inf)
    for site, sample in rest.items():
        if odd := [value for value in wrong if low <= value <= high and value in sample.values]:
            yield (
                site,
                odd,
                f"column {name!r} at {site}: {listed(list(map(_number, odd)))} "
                f"{'are' if odd[1:] else 'is'} far from the others, {_number(inside.low)} to "
                f"{_number(inside.high)}; if it is wrong, mend it, or say "
                f"{setting('prepare', 'bounds', name, to=[inside.low, inside.high])}",
            )


def _unlike(
    described: Mapping[str, Mapping[str, NumberSample]],
    rows: Mapping[str, Floats],
) -> Iterator[str]:
    """Yield a line for each column of a site's rows (n, d) that is unlike that of the others."""
    moments = {
        name: {site: sample.moments for site, sample in samples.items()}
        for name, samples in described.items()
        if all(sample.n for sample in samples.values())
    }
    counts = {name: dict.fromkeys(of_site, 1e9) for name, of_site in moments.items()}
    # of those, the sums say enough
    units = {f"column {each.name!r}" for each in odd_columns(moments, counts) if each.fits}
    every = {name: NumberSample.joined(samples.values()) for name, samples in described.items()}
    said: set[str] = set()
    for site, X in rows.items():
        others = {name: each.less(described[name][site]) for name, each in every.items()}

        def of_others(site: str = site) -> Floats:
            return np.concatenate([each for other, each in rows.items() if other != site])

        for line in _known_samples(others, of_others).unlike(X, site):
            column = line.partition(" at ")[0]
            if column not in said and (column not in units or "exchanged" in line):
                yield line
            said.add(column)


def _numbers(data: Data) -> dict[str, int]:
    """Return the indices of the columns of numbers, by name."""
    return {c.name: j for j, c in enumerate(columns_of(data)) if c.kind == "number"}


def _known_samples(samples: Mapping[str, NumberSample], rows: Callable[[], Floats]) -> KnownColumns:
    """Return what the values at other sites show of their columns."""
    levels: dict[str, tuple[float, ...]] = {}
    often: dict[str, float] = {}
    for name, sample in samples.items():
        values, counts, n = sample.values, sample.counts, sample.n
        if n < ODD.enough:
            continue
        if not sample.whole or len(values) > ODD.few:
            often[name] = float(counts.max() / n)
        elif (
            n >= ODD.few * ODD.fewest
            and 1 <= np.ptp(values) == len(values) - 1
            and min(counts[0], counts[-1]) >= ODD.least * n
        ):
            levels[name] = tuple(values.tolist())
    moments = np.array([each.moments for each in samples.values()]).reshape(-1, 2)
    return KnownColumns(
        tuple(samples),
        moments[:, :1].T,
        np.ones(1),
        moments[:, 1] ** 2,
        where="the other sites",
        levels=levels,
        often=often,
        rows=rows,
        whole=frozenset(name for name, sample in samples.items() if sample.whole),
        between=True,
    )


def _correlations(X: Floats) -> Floats:
    """Return the correlations (d, d) of columns (n, d), 0 for constant ones, with gaps as means."""
    there = np.logical_not(np.isnan(X))
    n = np.maximum(there.sum(axis=0), 1)
    apart = np.where(there, X - np.nan_to_num(X).sum(axis=0) / n, 0.0)
    size = np.sqrt((apart**2).sum(axis=0))
    apart /= np.where(size > 0, size, 1.0)
    correlations: Floats = apart.T @ apart
    return correlations


def _evidence(share: Floats, most: Floats) -> Floats:
    """Return how unlikely a share of values is where at most another is due, for each value.

    By Chernoff's bound, n times that is at most minus the logarithm of its probability.
    """
    with np.errstate(all="ignore"):
        rest = np.where(share < 1, (1 - share) * np.log((1 - share) / (1 - most)), 0.0)
        evidence = np.nan_to_num(share * np.log(share / most) + rest, nan=0.0)
    unlikely: Floats = np.where(share > most, evidence, 0.0)
    return unlikely


# Values that stand for something else


def placeholders(sample: NumberSample) -> tuple[dict[float, int], NumberSample]:
    """Return values that seem to stand for missing ones, with their counts, and the other values.

    Examples
    --------
    >>> ages = np.arange(20.0, 80.0)
    >>> found, rest = placeholders(NumberSample.from_values(np.append(ages, [-999.0] * 5)))
    >>> found, rest.low, rest.high
    ({-999.0: 5}, 20.0, 79.0)
    >>> placeholders(NumberSample.from_values(ages))[0]
    {}
    """
    found: dict[float, int] = {}
    while len(found) < 3 and (value := _placeholder(sample)) is not None:
        found[value] = int(sample.counts[sample.values == value].sum())
        sample = sample.without(value)
    return found, sample


def _placeholder(sample: NumberSample) -> float | None:
    """Return the first or last value if it is far from all others, or a frequent one, or None."""
    if len(sample.values) < 4:
        return None
    for end in (0, -1):
        value, count = float(sample.values[end]), int(sample.counts[end])
        rest = sample.without(value)
        while _is_sign(value) and len(rest.values) > 3 and _is_sign(float(rest.values[end])):
            rest = rest.without(float(rest.values[end]))
        if _is_apart(value, count, rest):
            return value
    # a long one among measurements, of which few are equal
    value = float(sample.values[np.argmax(sample.counts)])
    *_, second, most = np.sort(sample.counts)
    is_long = _is_sign(value) and abs(value) >= 99.9
    return value if is_long and most >= ODD.often * second else None


def _is_apart(value: float, count: int, rest: NumberSample) -> bool:
    gap = max(rest.low - value, value - rest.high) / (rest.high - rest.low)
    is_often, share = count >= 3, count / (count + rest.n)
    if value == 0:
        return is_often and len(rest.values) > ODD.few and gap > ODD.gap
    if _is_sign(value):
        is_only_negative = value <= -99 and rest.low >= 0
        return (is_often and is_only_negative) or gap > (ODD.gap if is_often else ODD.margin)
    if not is_often or share < ODD.rare:
        return False
    if value in SIGNS and share <= 0.5 and _is_beside(value, rest):
        return True
    return value.is_integer() and count >= 5 and gap > ODD.margin


def _is_sign(value: float) -> bool:
    """Return whether people use this number as a placeholder for an unknown value.

    Examples
    --------
    >>> [_is_sign(value) for value in (-999.0, 99.99, 8888.8, 9.0, 998.0, 1.9)]
    [True, True, True, False, False, False]
    """
    digits = f"{abs(value):.15g}".replace(".", "")
    return len(digits) > 1 and set(digits) in ({"9"}, {"8"}, {"7"})


def _is_beside(value: float, rest: NumberSample) -> bool:
    """Return whether a small number stands for an unknown value beside others.

    It is the only negative one, where others have decimals or all are above 0; or follows a few
    whole numbers, of which the next two are lacking.
    """
    if value < 0:
        return rest.low > 0 or (rest.low >= 0 and not rest.whole)
    return rest.whole and len(rest.values) <= ODD.few and value - rest.high > 2


def _placeholder_line(
    name: str, site: str | None, found: Mapping[float, int], n: int, rest: NumberSample
) -> str:
    which = listed([f"{_number(value)} ({count / n:.1%})" for value, count in found.items()])
    values = [value if value else f"{name}:0" for value in found]
    say = f"say {setting('missing_values', to=values)}" if site else "make these values missing"
    return (
        f"{_column(name, site)}: {which} of the values, the others are {_number(rest.low)} to "
        f"{_number(rest.high)}; if that means missing, {say}"
    )


def typing_errors(sample: NumberSample) -> list[float]:
    """Return the few values far from the others, among which a power of ten brings them.

    Examples
    --------
    >>> heights = np.arange(150.0, 200.0)
    >>> typing_errors(NumberSample.from_values(np.append(heights, 17_800.0)))
    [17800.0]
    >>> typing_errors(NumberSample.from_values(heights))
    []
    """
    values, n = sample.values, sample.n
    most = min(3, max(1, int(ODD.rare * n)))
    if n < ODD.enough or len(values) < ODD.fewest:
        return []
    quartiles = sample.quantile(0.75) - sample.quantile(0.25)
    for k in range(1, most + 1):
        for odd, rest in ((slice(-k, None), slice(-k)), (slice(k), slice(k, None))):
            is_rare = sample.counts[odd].sum() <= most
            if is_rare and _is_mistyped(values[odd], values[rest], quartiles):
                return [float(value) for value in values[odd]]
    return []


def _is_mistyped(odd: Floats, rest: Floats, quartiles: float) -> bool:
    """Return whether odd values are far from the rest, and powers of ten bring them there.

    Of amounts that reach down to 0, a small one is near the others; and the wider these are beside
    the distance of their quartiles, the farther some lie.
    """
    low, high = float(rest[0]), float(rest[-1])
    powers = 10.0 ** np.array([-3, -2, -1, 1, 2, 3])
    back = np.abs(odd)[:, None] * np.append(powers, -powers)
    if not ((low <= back) & (back <= high)).any(axis=1).all():
        return False
    if low > 0 and odd[0] > 0:
        is_apart = odd[0] > high or low - odd[-1] > ODD.gap * (high - low)
        off = max(odd[0] / high, low / odd[-1])
        return bool(is_apart and math.log(off) >= ODD.spread * math.log(high / low))
    return bool(max(odd[0] - high, low - odd[-1]) * quartiles > ODD.spread * (high - low) ** 2)


# In words


def _column(name: str, site: str | None) -> str:
    return f"column {name!r}" if site is None else f"column {name!r} at {site}"


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def _shown(values: Floats, most: int = 5) -> str:
    """Return the first values in words."""
    return listed([_number(value) for value in values[:most]] + ["more"] * (len(values) > most))
