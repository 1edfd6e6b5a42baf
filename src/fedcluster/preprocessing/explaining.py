"""What may have been done to a column, and which of it makes the column like those that are known.

Units, codes, exchanged columns and the like are tried: an explanation is given if the column is
alike after it, and as what to do if no other one fits about as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster.core import Floats
from fedcluster.frames.columns import NumberSample
from fedcluster.preprocessing.matching import Matched, ranks
from fedcluster.preprocessing.placeholders import evidence, in_words, shown, written
from fedcluster.preprocessing.units import ODD, Conversion, measured, units_of
from fedcluster.texts import setting

NEW = "new"
"""The site of rows that have none, in options."""


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """What may have been done to a column, in words, and how it is undone."""

    what: str
    undo: Callable[[Floats], Floats]
    factor: float | str | None = None
    by_hand: str = ""

    def mend(self, name: str, site: str | None) -> str:
        """Return what to do at a site: an option of the command line, or else words."""
        if self.factor is not None:
            return f"say {setting('sites', site or NEW, 'factors', name, to=self.factor)}"
        return f"take {self.by_hand} of it"


def undo_of(way: Conversion) -> Callable[[Floats], Floats]:
    """Return a function that converts values."""
    return lambda x: way.scale * x + way.shift


def of_unit(unit: Conversion) -> Explanation:
    """Return that values are in another unit."""
    back = unit.inverse
    return Explanation(f"as of {unit.between}", undo_of(back), back.value)


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


@dataclass(frozen=True, slots=True)
class Apart:
    """From when on a column of a site is told to be unlike the others."""

    honest: float = 0.45
    """Unlikeness to like rows elsewhere that honest sites have, in deviations: of 6,705 columns in
    draws of sites with other shares of the same kinds of rows, 1.3 % had more."""
    beside: float = 2.0  # how many times as unlike as the other columns of the site
    likelier: float = 0.3  # bonus for a unit of what the name says
    near: float = 0.1  # how much worse than the best, or chance, another one may fit to be named
    sure: float = 4.0  # standard errors from which on a correlation is not by chance
    rest: float = 0.75  # quantile of the unlikeness of the other columns that tells honest sites
    comparable: float = 0.55  # unlikeness of the other columns of a site, at most
    other: float = 1.3  # unlikeness from which on more than a unit is believed
    wide: float = 1.6  # logarithm of the factor from which on a unit needs no name that says it


APART = Apart()


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What explains a column of a site, best first, and how sure it is."""

    unlike: float
    ways: tuple[Explanation, ...]
    other: str = ""  # the column with which it is exchanged


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Columns of a site, or of new rows, beside those that are known.

    Parameters
    ----------
    site : str, optional
        The site, for options of the command line.
    names : sequence of str
        The d columns.
    own, others : mapping of str to NumberSample
        The values of each column here, and those that are known.
    rows : ndarray of shape (n, d)
        The rows, nan where a value is missing.
    match : callable
        Returns the columns beside those of like rows, given the columns that tell these.
    where : str
        Where the known rows are.
    are_rows : bool
        Whether the known values are values of rows, which show digits and gaps.
    honest : float
        Unlikeness that honest rows have; more where the known values are those of normal clusters.
    wider : float
        The largest logarithm of the ratio of both deviations after what explains the values.
    """

    site: str | None
    names: Sequence[str]
    own: Mapping[str, NumberSample]
    others: Mapping[str, NumberSample]
    rows: Floats
    match: Callable[[Collection[int]], dict[int, Matched]]
    where: str = "the other sites"
    are_rows: bool = True
    honest: float = APART.honest
    wider: float = math.inf

    def lines(self, skipped: Collection[str] = ()) -> Iterator[tuple[str, float, str]]:
        """Yield each column that is explained, with its unlikeness and a line about it."""
        beside, found = self._found(skipped)
        for j, each in found.items():
            yield self.names[j], each.unlike, self._line(self.names[j], beside[j], each)
        for j in beside.keys() - found.keys():
            if astray := self._astray(self.names[j], beside[j]):
                yield self.names[j], astray, f"{in_words(self.names[j], self.site)}: {ASTRAY}"

    def _astray(self, name: str, beside: Matched) -> float:
        """Return how much less than elsewhere values go with the others of their rows."""
        is_alike = beside.unlike(beside.values) < APART.honest
        is_varied = 2 * self.own[name].counts.max() < self.own[name].n
        return beside.astray() if is_alike and is_varied else 0.0

    def few(self) -> dict[str, str]:
        """Return the lines of columns with few values, or one value in many rows."""
        lines = {name: self._of_few(name) for name in self.names}
        return {name: line for name, line in lines.items() if line is not None}

    # Columns with few values

    def _of_few(self, name: str) -> str | None:
        """Return the line of a column with few values, or one value in many rows, or None."""
        own, others, n = self.own[name], self.others[name], len(self.rows)
        column, there = in_words(name, self.site), self.rows[:, self.names.index(name)]
        there = there[~np.isnan(there)]
        if n >= ODD.fewest and len(there) < n / 2:
            return f"{column}: {n - len(there)} of {n} values are missing"
        is_few = others.whole and len(others.values) <= ODD.few
        if is_few or min(own.n, others.n) < ODD.enough or own.is_distinct:
            return None
        first, usual = int(own.counts.max()), float(others.counts.max() / others.n)
        value = float(own.values[np.argmax(own.counts)])
        is_odd = value != 0
        if len(own.values) > 1:
            grid, share = float(np.diff(own.values).min()), first / own.n
            is_long = abs(value) >= ODD.few * grid and share >= ODD.often * usual
            is_long = is_long and first >= ODD.margin * np.sort(own.counts)[-2]
            found = own.n * evidence(np.array([share]), np.array([usual]))[0]
            is_odd = is_long and found > -math.log(ODD.sure / len(own.values))
        line = (
            f"{column}: {first} of {own.n} values are {value:.6g}, and at most {usual:.1%} are one "
            "value in the other sites; see whether it was measured"
        )
        return line if is_odd else None

    def _lone_level(self, name: str) -> float | None:
        """Return a level beyond all others that this site alone has, often; or None."""
        own, others = self.own[name], self.others[name]
        if not self._has_levels(name) or not np.isin(others.values, own.values).all():
            return None
        for value, count in ((own.low, own.counts[0]), (own.high, own.counts[-1])):
            share, is_beyond = count / own.n, not others.low <= value <= others.high
            is_often = count >= ODD.fewest and share >= ODD.share and share * others.n >= ODD.enough
            if is_beyond and is_often:
                return value
        return None

    def _has_levels(self, name: str) -> bool:
        """Return whether a column holds a few whole numbers at all sites, each in many rows."""
        own, others = self.own[name], self.others[name]
        is_few = len(own.values) <= ODD.few >= len(others.values)
        are_many = not self.are_rows or min(own.n, others.n) >= ODD.enough
        return is_few and are_many and own.whole and others.whole

    # What explains a column

    def _found(self, skipped: Collection[str]) -> tuple[dict[int, Matched], dict[int, _Found]]:
        """Return columns beside those of like rows, and which are unlike these and explained."""
        every = {*range(len(self.names))} - {self.names.index(name) for name in skipped}
        beside = {j: each for j, each in self.match(every).items() if j in every}
        found = self._explained(beside, first=True)
        if not found:
            return beside, found
        # what is odd itself tells nothing about the others, but for levels that are all moved
        others, moved = every - set(found), dict[int, _Found]()
        if not others:
            moved = {j: each for j, each in found.items() if self._is_moved(self.names[j])}
        again = self.match(others)
        beside |= {j: each for j, each in again.items() if j in every and j not in moved}
        honest = [beside[j].unlike(beside[j].values) for j in others & set(beside)]
        usual = float(np.quantile(honest, APART.rest)) if honest else math.nan
        rest = {j: beside[j] for j in found.keys() - moved.keys()}
        found = self._explained(rest, first=False) | moved
        is_sure = self._is_sure
        sure = {j: x for j, x in found.items() if is_sure(self.names[j], beside[j], x, usual)}
        return beside, sure

    def _is_sure(self, name: str, beside: Matched, found: _Found, usual: float) -> bool:
        """Return whether other columns of the site are alike enough to tell that one is not."""
        if math.isnan(usual):  # no other column shows which kinds of rows a site has
            is_moved = bool(found.ways) and self._is_moved(name)
            return is_moved or found.unlike >= ODD.margin * APART.honest
        if found.unlike >= APART.beside * usual and usual <= APART.comparable:
            return True
        is_level = bool(found.ways) and found.ways[0] in (LONE, UNSURE)
        is_other = is_level or _is_against(beside, beside.values)
        return is_other and usual <= APART.honest

    def _is_moved(self, name: str) -> bool:
        """Return whether both ends of a few levels are others, by as much."""
        own, others = self.own[name], self.others[name]
        is_moved = own.low != others.low and own.low - others.low == own.high - others.high
        return is_moved and self._has_levels(name)

    def _explained(self, beside: Mapping[int, Matched], *, first: bool) -> dict[int, _Found]:
        odd = {j: each for j, each in beside.items() if self._is_odd(self.names[j], each)}
        exchanged = self._exchanged(odd, first)
        found = {}
        for j, each in odd.items():
            if j in exchanged:
                found[j] = _Found(each.unlike(each.values), (), self.names[exchanged[j]])
            elif ways := self._ways(self.names[j], each, first):
                found[j] = _Found(each.unlike(each.values), ways)
        return found

    def _is_odd(self, name: str, beside: Matched) -> bool:
        if self._is_part(name):
            return False
        is_unlike = beside.unlike(beside.values) >= math.hypot(APART.honest, beside.noise)
        is_against = _is_against(beside, beside.values)
        is_level = self._is_moved(name) or self._lone_level(name) is not None
        return is_unlike or is_against or is_level

    def _is_part(self, name: str, *, nearest: int = 5, most: float = 3.0) -> bool:
        """Return whether values begin where those of other sites end, as of persons of other ages.

        The gaps at the ends of their range are at most ``most`` times the median distance of
        the ``nearest`` values there.
        """
        own, others = self.own[name].values, self.others[name].values
        below, above = others[others <= own[0]], others[others >= own[-1]]
        is_few = self._has_levels(name) or min(len(own), len(others)) < ODD.fewest
        if not self.are_rows or is_few or len(below) + len(above) < len(others):
            return False
        for low, high in ((below, own), (own, above)):
            if len(low) and len(high):
                beside = np.append(np.diff(low[-nearest - 1 :]), np.diff(high[: nearest + 1]))
                if high[0] - low[-1] > most * np.median(beside):
                    return False
        return True

    def _exchanged(self, odd: Mapping[int, Matched], first: bool) -> dict[int, int]:
        """Return which columns are alike if they are exchanged with another one."""
        fits: dict[int, int] = {}
        for i, one in odd.items():
            like = [
                j
                for j, other in odd.items()
                if j != i
                and self._fits(one, other.values, first)
                and self._fits(other, one.values, first)
                if self._is_written_as(self.names[i], self.names[j])
                if self._is_written_as(self.names[j], self.names[i])
            ]
            if len(like) == 1:
                fits[i] = like[0]
        return fits

    def _is_written_as(self, name: str, other: str) -> bool:
        """Return whether values are whole numbers if those of another column are, if known."""
        return not self.are_rows or self.own[name].whole == self.others[other].whole

    def _ways(self, name: str, beside: Matched, first: bool) -> tuple[Explanation, ...]:
        """Return what explains a column, best first; nothing if it is not sure."""
        if (lone := self._lone_level(name)) is not None:
            rest = np.where(beside.values == lone, np.nan, beside.values)
            if beside.unlike(rest) <= math.hypot(self.honest, beside.noise):
                return (LONE,)
        odds: list[tuple[float, Explanation]] = []
        is_moved = self._is_moved(name)
        for bonus, way in self._possible(name, beside):
            with np.errstate(all="ignore"):
                back = way.undo(beside.values)
            if self._fits(beside, back, first, is_likely=is_moved):
                odds.append((beside.unlike(back) - bonus, way))
        odds.sort(key=lambda both: both[0])
        near = max(APART.near, beside.noise)
        if not odds and self._has_levels(name) and self._is_beyond(name):
            return (UNSURE,)
        return tuple(way for off, way in odds if off <= odds[0][0] + near)[:3]

    def _fits(self, beside: Matched, x: Floats, first: bool, *, is_likely: bool = False) -> bool:
        """Return whether values are as those of like rows, and go with them as elsewhere.

        They must be so better than before, and by a margin if they are not likely to.

        Of a part of the values, as where sites have rows of other ages, the correlation is
        smaller; and so it is at ``first``, when columns by which rows are alike may be odd, too.
        """
        if np.isinf(x).any() or np.isnan(x).sum() > np.isnan(beside.values).sum():
            return False
        if _is_against(beside, x):
            return False
        with np.errstate(all="ignore"):
            if abs(np.log(np.nanstd(x)) - np.log(beside.moments[1])) > self.wider:
                return False
        usual, error = beside.elsewhere(), 1 / math.sqrt(len(x))
        if not first and usual > APART.sure * error and beside.along(x) < usual / 2 - 2 * error:
            return False
        off, before = beside.unlike(x), beside.unlike(beside.values)
        most, margin = (2 * self.honest, APART.beside) if first else (self.honest, ODD.margin)
        margin = 1.0 if is_likely else margin
        is_better = off * margin <= before or _is_against(beside, beside.values)
        return off <= math.hypot(most, beside.noise) and is_better

    def _is_beyond(self, name: str) -> bool:
        """Return whether many values lie beyond all others, and some of these never occur."""
        own, others = self.own[name], self.others[name]
        beyond = (own.values < others.low) | (own.values > others.high)
        many = own.counts[beyond].sum() >= ODD.reported_of(own.n)
        return bool(many and 0.5 <= np.isin(others.values, own.values).mean() < 1)

    def _possible(self, name: str, beside: Matched) -> Iterator[tuple[float, Explanation]]:
        """Yield explanations that a column may have, each with a bonus."""
        if self._has_levels(name):
            yield from self._renumbered(name, _is_against(beside, beside.values))
            return
        own, is_against = self.own[name], _is_against(beside, beside.values)
        yield from _as_scaled(beside, own)
        if is_against:
            yield 0.0, _shifted(Conversion(-1.0, own.low + own.high, ""))
        if not self.are_rows and own.whole and len(own.values) <= ODD.few:
            yield 0.0, _shifted(Conversion(1.0, 1.0, ""))
            yield 0.0, _shifted(Conversion(1.0, -1.0, ""))
        # two clusters, each at one site, may be anyhow apart in one column of two
        is_wide = len(self.names) > 2
        if is_wide and beside.unlike(beside.values) >= APART.other:
            for each in EXPLANATIONS:
                if (bonus := _bonus(each, beside.known)) is not None:
                    yield bonus, each
        yield from self._units(name, beside)
        (mean, spread), x = beside.moments, beside.known
        apart, width = abs(mean - float(x.mean())), max(spread, float(x.std()))
        if apart >= ODD.impossible * width > 0:
            sign = -1.0 if is_against else 1.0
            digits = -round(math.log10(width / math.sqrt(len(x))))
            shift = round(mean - sign * float(x.mean()), digits)
            if abs(shift) > width and (sign < 0 or is_wide):
                yield 0.0, _shifted(Conversion(sign, shift, ""))

    def _units(self, name: str, beside: Matched) -> Iterator[tuple[float, Explanation]]:
        """Yield other units, those of what the name says with a bonus."""
        is_said = bool(measured(name))
        for unit in units_of(name):
            is_likely = bool(unit.kind) == is_said
            if unit.scale < 0 and self._has_other_sign(name, beside):
                yield 0.0, of_unit(unit)
            elif unit.scale > 0 and (is_likely or unit.extent >= APART.wide):
                for way in (unit, unit.inverse):
                    yield APART.likelier * is_likely, of_unit(way)

    def _has_other_sign(self, name: str, beside: Matched) -> bool:
        """Return whether values fall where others rise, or have all another sign than these."""
        own, others = self.own[name], self.others[name]
        is_other = own.high <= 0 <= others.low or others.high <= 0 <= own.low
        return is_other or _is_against(beside, beside.values)

    def _renumbered(self, name: str, is_against: bool) -> Iterator[tuple[float, Explanation]]:
        """Yield other numberings of a few levels: from another one on, or in the other order."""
        own, others = self.own[name], self.others[name]
        widths = own.high - own.low, others.high - others.low
        if others.low <= own.low and own.high <= others.high:
            if is_against:
                yield 0.0, of_levels(Conversion(-1.0, others.low + others.high, ""))
        elif widths[0] >= widths[1] - (widths[1] > ODD.fewest - 2):
            yield 0.0, of_levels(Conversion(1.0, others.low - own.low, ""))
            yield 0.0, of_levels(Conversion(-1.0, others.low + own.high, ""))
        if widths[0] and widths[0] != widths[1] and len(own.values) == len(others.values):
            scale = widths[1] / widths[0]
            yield 0.0, of_levels(Conversion(scale, others.low - scale * own.low, ""))

    def _line(self, name: str, beside: Matched, found: _Found) -> str:
        """Return the warning of a column that is explained."""
        x, (usual, spread) = beside.known, beside.moments
        if not found.other and found.ways[0].what == LEVELS:
            own, known = (shown(each[name].values) for each in (self.own, self.others))
            line = f"{in_words(name, self.site)}: it holds {own}, and {known} in {self.where}"
            if found.ways[0] is UNSURE:
                return f"{line}; see whether it means the same there"
            if found.ways[0] is LONE:
                return self._of_lone(name)
            if own == known:
                line = f"{in_words(name, self.site)}: it goes with the other columns as if reversed"
            if len(found.ways) > 1:
                return f"{line}; see which is which"
            return f"{line}; if rows mean the same, {found.ways[0].mend(name, self.site)}"
        at = "" if self.site is None else f" at {self.site}"
        elsewhere = "elsewhere" if self.where == "the other sites" else f"of {self.where}"
        line = (
            f"column {name!r} has mean {x.mean():.3g} and deviation {x.std():.3g}{at}, "
            f"{usual:.3g} and {spread:.3g} in like rows {elsewhere}"
        )
        if found.other:
            both = ((name, found.other), (found.other, name))
            say = " ".join(setting("sites", self.site or NEW, "rename", a, to=b) for a, b in both)
            return (
                f"{line}, as of column {found.other!r}, and that as of this: if they are "
                f"exchanged, say {say}"
            )
        first, *others = found.ways
        if others:
            every = [f"{each.what} ({each.factor or each.by_hand})" for each in found.ways]
            return f"{line}, {' or '.join(every)}; see which it is"
        given = "if it is another unit" if first.what.startswith("as of ") else "if so"
        return f"{line}, {first.what}: {given}, {first.mend(name, self.site)}"

    def _of_lone(self, name: str) -> str:
        """Return the warning of a level that no other site has."""
        value, own = self._lone_level(name) or 0.0, self.own[name]
        share = float(own.counts[own.values == value].sum() / own.n)
        say = setting("missing_values", to=[f"{name}:{written(value)}"])
        return (
            f"{in_words(name, self.site)}: {written(value)} ({share:.1%}) of the values, which no "
            f"other site has; if that means missing, say {say}"
        )


ASTRAY = (
    "unlike elsewhere, its values are unrelated to the other columns; see whether it was sorted or "
    "moved alone"
)
LEVELS = "levels"
LONE = Explanation(LEVELS, np.positive)
"""A level that stands for a missing value."""
UNSURE = Explanation(LEVELS, np.positive)
"""Levels that no other numbering explains."""


def _shifted(way: Conversion) -> Explanation:
    """Return that values are counted from another point, or down from one."""
    how = f"{abs(way.shift):g} {'less' if way.shift > 0 else 'more'} than that"
    how = f"{way.shift:g} minus that" if way.scale < 0 else how
    return Explanation(f"as {how}", undo_of(way), way.value)


def of_levels(way: Conversion) -> Explanation:
    """Return another numbering of a few levels."""
    return Explanation(LEVELS, undo_of(way), way.value)


def _is_against(beside: Matched, x: Floats) -> bool:
    """Return whether values fall where those of like rows rise, as they do elsewhere."""
    least = APART.sure / math.sqrt(len(x))
    return beside.along(x) < -least and beside.elsewhere() > least


def _as_scaled(beside: Matched, own: NumberSample) -> Iterator[tuple[float, Explanation]]:
    """Yield what rescaled values exactly as is usual before an analysis."""
    (center, width), (mean, spread), low = own.moments, beside.moments, float(beside.usual[0])
    shares, places = np.cumsum(beside.weights), np.cumsum(own.counts) - (own.counts - 1) / 2
    ask = "the values as they were measured instead"
    if abs(center) < 0.01 and abs(width - 1) < 0.02:
        undo = undo_of(Conversion(spread, mean, ""))
        yield 1.0, Explanation("as with mean 0 and deviation 1", undo, by_hand=ask)
    if len(own.values) > ODD.few and (own.low, own.high) == (0.0, 1.0):
        undo = undo_of(Conversion(float(np.ptp(beside.usual)), low, ""))
        yield 1.0, Explanation("as scaled from 0 to 1", undo, by_hand=ask)
    if len(own.values) > ODD.few and np.allclose(places, own.values):
        back = beside.values.copy()
        order = np.searchsorted(shares, ranks(beside.known, beside.known))
        back[~np.isnan(back)] = beside.usual[np.minimum(order, len(shares) - 1)]
        yield 1.0, Explanation("as ranks", lambda _: back, by_hand=ask)


def _bonus(way: Explanation, x: Floats) -> float | None:
    """Return the bonus of an explanation, None if values can't be what it says.

    With points for thousands, numbers below 1000 are whole, and larger than all others.
    """
    if "points" not in way.what:
        return 0.0
    whole = x == np.floor(x)
    is_possible = whole.any() and not whole.all() and np.median(x[whole]) > 10 * x[~whole].max()
    return 1.0 if is_possible else None
