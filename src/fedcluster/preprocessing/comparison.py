"""Which columns one site holds otherwise than the others, and what explains it.

Values of a site are compared with those of rows elsewhere that are alike in the other columns. What
may have been done to a column is tried: an explanation is given if the column is alike after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Floats
from fedcluster.errors import listed
from fedcluster.frames.columns import NumberSample, codes_option, columns_of
from fedcluster.preprocessing.likeness import EXPLANATIONS, Explanation, of_unit
from fedcluster.preprocessing.matching import Matched, like, matched, ranks
from fedcluster.preprocessing.placeholders import (
    evidence,
    in_words,
    misplaced_points,
    placeholder_line,
    placeholders,
    shown,
    typing_errors,
    written,
)
from fedcluster.preprocessing.units import ODD, Conversion, measured, units_of
from fedcluster.texts import setting


@dataclass(frozen=True, slots=True)
class Apart:
    """From when on a column of a site is told to be unlike the others."""

    honest: float = 0.45
    """Unlikeness to like rows elsewhere that honest sites have, in deviations: of 6,705 columns in
    draws of sites with other shares of the same kinds of rows, 1.3 % had more."""
    margin: float = 2.75  # how many times as unlike as after the explanation
    beside: float = 2.0  # how many times as unlike as the other columns of the site
    likelier: float = 0.3  # bonus for a unit of what the name says
    near: float = 0.1  # how much worse than the best, or chance, another one may fit to be named
    sure: float = 4.0  # standard errors from which on a correlation is not by chance
    rest: float = 0.75  # quantile of the unlikeness of the other columns that tells honest sites
    impossible: float = 6.0  # deviations from which on a shift of the values is believed
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
        yield from _renamed(sites, rows)


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
            yield site, [*found], placeholder_line(name, site, found, sample.n, rest[site])
    every = NumberSample.joined(rest.values())
    wrong = typing_errors(every)
    low, high = bounds or (-math.inf, math.inf)
    for site, sample in rest.items():
        off = {*wrong, *misplaced_points(sample, every.less(sample))}
        if odd := sorted(x for x in off if low <= x <= high and x in sample.values):
            inside = every.without(*wrong, *odd)
            yield (
                site,
                odd,
                f"column {name!r} at {site}: {shown(odd)} "
                f"{'are' if odd[1:] else 'is'} far from the others, {written(inside.low)} to "
                f"{written(inside.high)}; if it is wrong, mend it, or say "
                f"{setting('prepare', 'bounds', name, to=[inside.low, inside.high])}",
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Site:
    """Columns of a site beside those elsewhere."""

    name: str
    names: Sequence[str]
    own: Mapping[str, NumberSample]
    others: Mapping[str, NumberSample]
    rows: Floats
    elsewhere: Floats

    def lines(self) -> Iterator[tuple[str, float, str]]:
        """Yield each odd column with its unlikeness and a line about it."""
        few = {name: line for name in self.names if (line := self._of_few(name)) is not None}
        for name, line in few.items():
            yield name, math.inf, line
        for name, (beside, found) in self._found({*few}).items():
            yield name, found.unlike, self._line(name, beside, found)

    # Columns with few values

    def _of_few(self, name: str) -> str | None:
        """Return the line of a column with few values, or one value in many rows, or None."""
        own, others, n = self.own[name], self.others[name], len(self.rows)
        column, there = in_words(name, self.name), self.rows[:, self.names.index(name)]
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
        """Return whether a column holds a few whole numbers at all sites."""
        own, others = self.own[name], self.others[name]
        is_few = len(own.values) <= ODD.few >= len(others.values)
        return is_few and own.whole and others.whole

    # What explains a column

    def _found(self, skipped: Collection[str]) -> dict[str, tuple[Matched, _Found]]:
        """Return columns that are unlike those of like rows and explained, with these."""
        every = {*range(len(self.names))} - {self.names.index(name) for name in skipped}
        beside = matched(self.rows, self.elsewhere, every)
        found = self._explained({j: each for j, each in beside.items() if j in every}, first=True)
        if not found:
            return {}
        # what is odd itself tells nothing about the others
        beside |= matched(self.rows, self.elsewhere, every - set(found))
        rest = [beside[j].unlike(beside[j].values) for j in every & set(beside) - set(found)]
        usual = float(np.quantile(rest, APART.rest)) if rest else math.nan
        again = self._explained({j: beside[j] for j in found}, first=False)
        return {
            self.names[j]: (beside[j], each)
            for j, each in again.items()
            if self._is_sure(beside[j], each, usual)
        }

    def _is_sure(self, beside: Matched, found: _Found, usual: float) -> bool:
        """Return whether other columns of the site are alike enough to tell that one is not."""
        if math.isnan(usual):  # no other column shows which kinds of rows a site has
            return found.unlike >= APART.margin * APART.honest
        if found.unlike >= APART.beside * usual and usual <= APART.comparable:
            return True
        is_level = bool(found.ways) and found.ways[0] in (LONE, UNSURE)
        is_other = is_level or _is_against(beside, beside.values)
        return is_other and usual <= APART.honest

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
        return is_unlike or is_against or self._lone_level(name) is not None

    def _is_part(self, name: str, *, nearest: int = 5, most: float = 3.0) -> bool:
        """Return whether values begin where those of other sites end, as of persons of other ages.

        The gaps at the ends of their range are at most ``most`` times the median distance of
        the ``nearest`` values there.
        """
        own, others = self.own[name].values, self.others[name].values
        below, above = others[others <= own[0]], others[others >= own[-1]]
        is_few = self._has_levels(name) or min(len(own), len(others)) < ODD.fewest
        if is_few or len(below) + len(above) < len(others):
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
                if j != i and _fits(one, other.values, first) and _fits(other, one.values, first)
                if self.own[self.names[i]].whole == self.others[self.names[j]].whole
                if self.own[self.names[j]].whole == self.others[self.names[i]].whole
            ]
            if len(like) == 1:
                fits[i] = like[0]
        return fits

    def _ways(self, name: str, beside: Matched, first: bool) -> tuple[Explanation, ...]:
        """Return what explains a column, best first; nothing if it is not sure."""
        if (lone := self._lone_level(name)) is not None:
            rest = np.where(beside.values == lone, np.nan, beside.values)
            if beside.unlike(rest) <= math.hypot(APART.honest, beside.noise):
                return (LONE,)
        odds: list[tuple[float, Explanation]] = []
        for bonus, way in self._possible(name, beside):
            with np.errstate(all="ignore"):
                back = way.undo(beside.values)
            if _fits(beside, back, first):
                odds.append((beside.unlike(back) - bonus, way))
        odds.sort(key=lambda both: both[0])
        near = max(APART.near, beside.noise)
        if not odds and self._has_levels(name) and self._is_beyond(name):
            return (UNSURE,)
        return tuple(way for off, way in odds if off <= odds[0][0] + near)[:3]

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
        yield from _as_scaled(beside, self.own[name])
        # two clusters, each at one site, may be anyhow apart in one column of two
        is_wide = len(self.names) > 2
        if is_wide and beside.unlike(beside.values) >= APART.other:
            for each in EXPLANATIONS:
                if (bonus := _bonus(each, beside.known)) is not None:
                    yield bonus, each
        yield from self._units(name, beside)
        (mean, spread), x = beside.moments, beside.known
        apart, width = abs(mean - float(x.mean())), max(spread, float(x.std()))
        if apart >= APART.impossible * width > 0:
            sign = -1.0 if _is_against(beside, beside.values) else 1.0
            digits = -round(math.log10(width / math.sqrt(len(x))))
            shift = round(mean - sign * float(x.mean()), digits)
            how = f"{abs(shift):g} {'less' if shift > 0 else 'more'} than that"
            how = f"{shift:g} minus that" if sign < 0 else how
            if abs(shift) > width and (sign < 0 or is_wide):
                way = Conversion(sign, shift, "")
                yield 0.0, Explanation(f"as {how}", undo_of(way), way.value)

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
            line = f"{in_words(name, self.name)}: it holds {own}, and {known} in the other sites"
            if found.ways[0] is UNSURE:
                return f"{line}; see whether it means the same there"
            if found.ways[0] is LONE:
                return self._of_lone(name)
            if own == known:
                line = f"{in_words(name, self.name)}: it goes with the other columns as if reversed"
            if len(found.ways) > 1:
                return f"{line}; see which is which"
            return f"{line}; if rows mean the same, {found.ways[0].mend(name, self.name)}"
        line = (
            f"column {name!r} has mean {x.mean():.3g} and deviation {x.std():.3g} at "
            f"{self.name}, {usual:.3g} and {spread:.3g} in like rows elsewhere"
        )
        if found.other:
            both = ((name, found.other), (found.other, name))
            say = " ".join(setting("sites", self.name, "rename", a, to=b) for a, b in both)
            return (
                f"{line}, as of column {found.other!r}, and that as of this: if they are "
                f"exchanged, say {say}"
            )
        first, *others = found.ways
        if others:
            every = [f"{each.what} ({each.factor or each.by_hand})" for each in found.ways]
            return f"{line}, {' or '.join(every)}; see which it is"
        given = "if it is another unit" if first.what.startswith("as of ") else "if so"
        return f"{line}, {first.what}: {given}, {first.mend(name, self.name)}"

    def _of_lone(self, name: str) -> str:
        """Return the warning of a level that no other site has."""
        value, own = self._lone_level(name) or 0.0, self.own[name]
        share = float(own.counts[own.values == value].sum() / own.n)
        say = setting("missing_values", to=[f"{name}:{written(value)}"])
        return (
            f"{in_words(name, self.name)}: {written(value)} ({share:.1%}) of the values, which no "
            f"other site has; if that means missing, say {say}"
        )


LEVELS = "levels"
LONE = Explanation(LEVELS, np.positive)
"""A level that stands for a missing value."""
UNSURE = Explanation(LEVELS, np.positive)
"""Levels that no other numbering explains."""


def undo_of(way: Conversion) -> Callable[[Floats], Floats]:
    """Return a function that converts values."""
    return lambda x: way.scale * x + way.shift


def of_levels(way: Conversion) -> Explanation:
    """Return another numbering of a few levels."""
    return Explanation(LEVELS, undo_of(way), way.value)


def _fits(beside: Matched, x: Floats, first: bool) -> bool:
    """Return whether values are as those of like rows, and go with them as elsewhere.

    Of a part of the values, as where sites have rows of other ages, the correlation is smaller; and
    so it is at ``first``, when columns by which rows are alike may be odd themselves.
    """
    if np.isinf(x).any() or np.isnan(x).sum() > np.isnan(beside.values).sum():
        return False
    if _is_against(beside, x):
        return False
    usual, error = beside.elsewhere(), 1 / math.sqrt(len(x))
    if not first and usual > APART.sure * error and beside.along(x) < usual / 2 - 2 * error:
        return False
    off, before = beside.unlike(x), beside.unlike(beside.values)
    most, margin = (2 * APART.honest, APART.beside) if first else (APART.honest, APART.margin)
    is_better = off * margin <= before or _is_against(beside, beside.values)
    return off <= math.hypot(most, beside.noise) and is_better


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
        order = np.searchsorted(shares, ranks(beside.known))
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


def _unlike(
    described: Mapping[str, Mapping[str, NumberSample]],
    rows: Mapping[str, Floats],
) -> Iterator[str]:
    """Yield a line for each column of a site's rows (n, d) that is unlike that of the others."""
    every = {name: NumberSample.joined(samples.values()) for name, samples in described.items()}
    X = np.concatenate([*rows.values()])
    place = np.repeat(np.arange(len(rows)), [len(own) for own in rows.values()])
    told: dict[str, tuple[float, str]] = {}
    for i, (site, own) in enumerate(rows.items()):
        samples = {name: each[site] for name, each in described.items()}
        others = {name: each.less(samples[name]) for name, each in every.items()}
        found = _Site(site, list(described), samples, others, own, X[place != i])
        for name, unlike, line in found.lines():
            if unlike > told.get(name, (0.0, ""))[0]:
                told[name] = unlike, line
    yield from (told[name][1] for name in described if name in told)


def _renamed(sites: Mapping[str, Data], rows: Mapping[str, Floats]) -> Iterator[str]:
    """Yield a line for each column of text in which a site has other names for levels elsewhere.

    Which of the levels that it lacks one of its own is, rows tell that are alike in the numbers.
    """
    texts = {site: _texts(data, len(rows[site])) for site, data in sites.items()}
    for name in next(iter(texts.values())):
        if not all(name in each for each in texts.values()):
            continue
        for site, own in texts.items():
            others = np.concatenate([each[name] for key, each in texts.items() if key != site])
            new, lost = _apart(own[name], others), _apart(others, own[name])
            if not 0 < len(new) <= len(lost) <= ODD.few:
                continue
            elsewhere = np.concatenate([X for key, X in rows.items() if key != site])
            place, matches = like(rows[site], elsewhere)
            pairs = _renames(own[name][place], others[matches], new, lost)
            if len(pairs) == len(new) == len({*pairs.values()}):
                first = listed([f"{a!r} is what others call {b!r}" for a, b in pairs.items()])
                yield (
                    f"column {name!r} at {site}: by rows that are alike in the other columns, "
                    f"{first}; if so, say {codes_option(name, [*pairs.items()])}"
                )


def _texts(data: Data, n: int) -> dict[str, NDArray[np.str_]]:
    """Return n evenly spaced rows of columns of text, empty where missing."""
    found = {}
    for j, column in enumerate(columns_of(data)):
        if column.kind == "text" and column.levels:
            code = data.X[:: max(1, -(-len(data) // n)), j]
            levels = np.array([*column.levels, ""], dtype=np.str_)
            found[column.name] = levels[np.where(np.isnan(code), -1, code).astype(np.intp)]
    return found


def _apart(texts: NDArray[np.str_], others: NDArray[np.str_]) -> list[str]:
    """Return the texts that several rows have, and none of others."""
    levels, counts = np.unique(texts[~np.isin(texts, others)], return_counts=True)
    return [str(level) for level in levels[counts >= ODD.fewest] if level]


def _renames(
    own: NDArray[np.str_], matches: NDArray[np.str_], new: Sequence[str], lost: Sequence[str]
) -> dict[str, str]:
    """Return which lost level most matches have of rows with a new one, more than of the rest."""
    pairs = {}
    for level in new:
        is_level = own == level
        if not is_level.any():
            continue
        shares = {other: float((matches[is_level] == other).mean()) for other in lost}
        best = max(shares, key=lambda other: shares[other])
        usual = float((matches[~is_level] == best).mean()) if not is_level.all() else 1.0
        if shares[best] >= max(0.5, APART.margin * usual):
            pairs[level] = best
    return pairs


def _numbers(data: Data) -> dict[str, int]:
    """Return the indices of the columns of numbers, by name."""
    return {c.name: j for j, c in enumerate(columns_of(data)) if c.kind == "number"}
