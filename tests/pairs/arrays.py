"""Draw combinations in which every pair of values stands that is not refused.

Drawing takes minutes: each combination is tried, and where it is refused it is found out why. What
was drawn is therefore kept in `drawn.json`, which the tests hold against the values of today.
`python -m pairs.arrays SECONDS`, in the folder of the tests, draws what is lacking, and searches
for fewer combinations of the same pairs, so long for each job, and for quicker ones.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain, combinations, product
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any, NoReturn

import numpy as np

from fedcluster.core import SiteInfo
from fedcluster.jobs import plan_of, preprocessing_of, steps_of
from pairs.factors import (
    IMPOSSIBLE,
    JOBS,
    LIFTS,
    QUICK,
    Combination,
    Value,
    defaults,
    factors_of,
    with_needs,
)
from pairs.fewer import Cover, fewer, quicker
from pairs.ways import unspoken
from pairs.worlds import MAKERS, AskedError, World, columns_asked, frames, job_of, probe

DRAWN = 30
"""How many combinations are drawn for one that is tried."""

OF_SITES = ("site.", "sites", "source", "text", "missing", "dates held", "engine", "way")


def of_sites(factor: str) -> bool:
    """Whether a factor is of the sites, not of the job."""
    return factor.startswith("site.") or factor in OF_SITES


class Introduced:
    """Sites that are introduced once for all jobs, and never asked."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._told = make, dict[str, Any]()

    @cached_property
    def engine(self) -> Any:
        return self._make()

    def introduce(self, **asked: Any) -> tuple[SiteInfo, ...]:
        key = repr(sorted(asked.items()))
        if key not in self._told:
            try:
                self._told[key] = self.engine.introduce(**asked)
            except Exception as error:
                self._told[key] = error
                self.__dict__.pop("engine", None)  # of a run that has failed
        if isinstance(self._told[key], Exception):
            raise self._told[key]
        return self._told[key]

    def ask(self, tasks: Any, sites: Any = None) -> NoReturn:
        raise AskedError


class Refused:
    """How combinations are refused before a site is asked, each tried once."""

    def __init__(self, job: str) -> None:
        self.job = job
        self._known: dict[frozenset[Value], Exception | None] = {}
        self._sites: dict[Any, Introduced] = {}

    def __call__(self, c: Combination) -> Exception | None:
        """How a combination is refused; None where a site would be asked."""
        return self._once(c, self._tried)

    def by_checks(self, c: Combination) -> Exception | None:
        """How the checks that a job begins with refuse it, which is seen sooner than by a run."""
        return self._once(c, self._checked, "checks")

    def _once(
        self, c: Combination, how: Callable[[Combination], Exception | None], *kind: str
    ) -> Exception | None:
        key = frozenset((name, value) for name, value in c.items() if name != "way")
        key |= {("tried by", each) for each in kind}
        if key not in self._known:
            try:
                self._known[key] = how(c)
            except Exception as error:
                self._known[key] = error
        return self._known[key]

    def _tried(self, c: Combination) -> Exception | None:
        world = World(self.job, c, frames(c))
        job = job_of(world)
        return probe(world, job, self._introduced(c, world, job))

    def _introduced(self, c: Combination, world: World, job: Any) -> Introduced:
        raw, named = preprocessing_of(job) is not None, columns_asked(world, job)
        sites = tuple(item for item in c.items() if of_sites(item[0]) and item[0] != "way")
        key = sites, raw, str(named), getattr(job, "epsilon", None), c.get("bounds")
        if key not in self._sites:
            make = MAKERS[c["engine"]]
            self._sites[key] = Introduced(lambda: make(world, job))
        return self._sites[key]

    def _checked(self, c: Combination) -> None:
        world = World(self.job, c, frames(c))
        job = job_of(world)
        sites = self._introduced(c, world, job).introduce(steps=steps_of(job))
        plan_of(job, sites, seed=0)


@dataclass
class Array:
    """The covering array of a job.

    Parameters
    ----------
    job : str
        The job.
    seed : int
        Another one draws other combinations.
    """

    job: str
    seed: int = 0
    _rows: list[dict[str, str]] = field(default_factory=list, init=False)

    @cached_property
    def refused(self) -> Refused:
        return Refused(self.job)

    @cached_property
    def values(self) -> list[list[Value]]:
        """The values of each factor; a seed other than 0 puts them in another order."""
        every = [[(name, value) for value in given] for name, given in factors_of(self.job).items()]
        if self.seed:
            rng = random.Random(self.seed)
            for each in every:
                rng.shuffle(each)
            rng.shuffle(every)
        return every

    @cached_property
    def impossible(self) -> set[frozenset[Value]]:
        """Pairs of which no combination can be made, or which no user can ask for."""
        return {*IMPOSSIBLE, *unspoken(self.job)}

    def pairs(self) -> Iterator[tuple[Value, Value]]:
        for one, other in combinations(self.values, 2):
            yield from product(one, other)

    def held_against(
        self, rows: Iterable[Combination]
    ) -> tuple[dict[frozenset[Value], Exception], set[frozenset[Value]]]:
        """How the pairs that stand in none of some combinations are refused, and which are not."""
        held = {frozenset(pair) for row in rows for pair in combinations(row.items(), 2)}
        absent = {*map(frozenset, self.pairs())} - held - self.impossible
        self._refusals = {}
        for pair in absent:
            self._try(pair, self._refusals)
        return self._refusals, absent - self.bad

    @cached_property
    def _refusals(self) -> dict[frozenset[Value], Exception]:
        """Refused pairs that are known, at first those that the checks of a job refuse.

        Two values of sites are tried only where no combination holds them: each pair of these needs
        other site files.
        """
        found: dict[frozenset[Value], Exception] = {}
        for one, other in self.pairs():
            pair = frozenset([one, other])
            both = of_sites(one[0]) and of_sites(other[0])
            if pair in self.impossible or both:
                continue
            if self.refused.by_checks(with_needs(self.job, one, other)) is not None:
                self._try(pair, found)
        return found

    def _try(self, pair: frozenset[Value], found: dict[frozenset[Value], Exception]) -> bool:
        """Note how a pair is refused, and return whether it is."""
        errors = [self.refused(row) for row in self._with_lifts(pair)]
        if errors[0] is not None and None not in errors:
            found[pair] = errors[0]
        return pair in found

    def _with_lifts(self, pair: Iterable[Value]) -> list[dict[str, str]]:
        """The combinations of a pair and what it needs, without and with each of its lifts."""
        pair = tuple(pair)
        lifts = [[LIFTS[value]] for value in pair if value in LIFTS]
        return [with_needs(self.job, *pair, *more) for more in ([], *lifts)]

    @property
    def bad(self) -> set[frozenset[Value]]:
        """Pairs that stand in no combination, as far as is known.

        Besides those that are refused, two values with which no value of some factor goes.
        """
        every = [value for each in self.values for value in each]
        bit = {value: 1 << i for i, value in enumerate(every)}
        factors = [sum(bit[value] for value in each) for each in self.values]
        against = dict.fromkeys(every, 0)
        bad, more = {*self._refusals, *self.impossible}, True
        while more:
            for one, other in (tuple(pair) for pair in bad):
                if one in bit and other in bit:
                    against[one] |= bit[other]
                    against[other] |= bit[one]
            free = ((pair, ~(against[pair[0]] | against[pair[1]])) for pair in self.pairs())
            found = {frozenset(pair) for pair, left in free if not all(map(left.__and__, factors))}
            more = bool(found - bad)
            bad |= found
        return bad

    def rows(self, known: Iterable[Mapping[str, str]] = ()) -> list[dict[str, str]]:
        """Combinations that hold all pairs that are not refused: some that are known, and more.

        Each of these is the best of some that are drawn: value by value, whichever goes with those
        before it and holds most pairs that are left. Three values may be refused that go together:
        then one of them is left out, or the combination is made of ever fewer pairs.
        """
        if self._rows:
            return self._rows
        rng, rows = random.Random(self.seed), self._rows
        self._learn()
        left = {pair: None for pair in map(frozenset, self.pairs()) if pair not in self._bad}
        for row in known:
            self._take(rows, left, dict(row))
        while left:
            drawn = self._drawn(left, rng)
            if self._take(rows, left, drawn):
                continue
            some = self._refused_together(drawn) if drawn else []
            if frozenset(some) not in left or not self._try(frozenset(some), self._refusals):
                less = [[v for v in drawn.items() if v != out] for out in some]
                if any(self._take(rows, left, self._completed(each)) for each in less):
                    continue
                first = sorted(next(iter(left)))
                lifted = (dict(row) for row in self._with_lifts(first))
                more = chain(lifted, self._candidates(first, left, rng))
                if any(self._take(rows, left, row) for row in more):
                    continue
                assert self._try(frozenset(first), self._refusals), f"{self.job}: {first} in no row"
            self._learn()
            for pair in self._bad:
                left.pop(pair, None)
        self._leave_out_needless()
        return rows

    def _leave_out_needless(self) -> None:
        """Leave out combinations whose pairs all stand in others."""
        pairs = [[*map(frozenset, combinations(row.items(), 2))] for row in self._rows]
        often, needed = Counter(chain.from_iterable(pairs)), []
        for row, own in zip(self._rows, pairs, strict=True):
            if min(often[pair] for pair in own) > 1:
                often.subtract(own)
            else:
                needed.append(row)
        self._rows[:] = needed

    def fewer(self, seconds: float) -> list[dict[str, str]]:
        """Fewer and quicker combinations that hold the pairs of those that are drawn."""
        cover = Cover(self.values, self._rows, self.bad)
        fewer(cover, self._not_together, np.random.default_rng(self.seed), seconds=seconds)
        quick = [(name, defaults(self.job)[name]) for name in QUICK if name in factors_of(self.job)]
        quicker(cover, lambda c: self.refused(c) is not None, quick)
        self._rows[:] = map(cover.combination, cover.rows)
        return self._rows

    def _not_together(self, row: Mapping[str, str]) -> list[Value]:
        return [] if self.refused(row) is None else self._refused_together(row)

    def _drawn(self, left: Collection[frozenset[Value]], rng: random.Random) -> dict[str, str]:
        """Of some combinations the one in which most of the pairs that are left stand."""
        place = {
            value: i for i, value in enumerate(value for each in self.values for value in each)
        }
        wanted = np.zeros((len(place), len(place)), dtype=np.int64)
        for one, other in map(tuple, left):
            wanted[place[one], place[other]] = wanted[place[other], place[one]] = 1
        pairs, found = list(map(sorted, left)), [dict[str, str]()]
        for first in rng.choices(pairs, k=DRAWN):
            row: dict[str, str] = {}
            free = {each[0][0]: each for each in self.values} | {v[0]: [v] for v in first}
            names = sorted(
                rng.sample(list(free), len(free)), key=lambda name: name not in dict(first)
            )
            gain = wanted.sum(axis=1) / (1 + wanted.sum())
            for name in names:
                each = free.pop(name)
                for value in sorted(rng.sample(each, len(each)), key=lambda v: -gain[place[v]]):
                    against = self._against.get(value, set())
                    others = {n: [v for v in own if v not in against] for n, own in free.items()}
                    if all(others.values()):
                        row[name], free = value[1], others
                        gain = gain + wanted[place[value]]
                        break
            found += [row] * (len(row) == len(names))
        held = [[place[value] for value in row.items()] for row in found]
        return max(zip(held, found, strict=True), key=lambda x: wanted[np.ix_(x[0], x[0])].sum())[1]

    def _refused_together(self, row: Mapping[str, str]) -> list[Value]:
        """The fewest values, all others by default, that are refused as a combination is."""
        usual, error = defaults(self.job), self.refused(row)
        some = [value for value in row.items() if self._is_special(value)]
        size = len(some)
        while size > 1:
            size = (size + 1) // 2
            for i in reversed(range(0, len(some), size)):
                fewer = some[:i] + some[i + size :]
                less = {**usual, **dict(fewer)}
                if self._go_together(less.items()) and alike(self.refused(less), error):
                    some = fewer
        return some

    def threes(self, names: Collection[str], most: int | None = None) -> list[dict[str, str]]:
        """Combinations that hold each three values of some factors that go together.

        Values that are refused in threes alone are in none.
        """
        self._learn()
        rng = random.Random(self.seed)
        values = [each for each in self.values if each[0][0] in names]
        every = (three for some in combinations(values, 3) for three in product(*some))
        left = dict.fromkeys(frozenset(three) for three in every if self._go_together(three))
        order, rows = list(left), list[dict[str, str]]()
        rng.shuffle(order)
        for first in order:
            if first not in left or len(rows) == most:
                continue
            others = [rng.choice(each) for each in rng.sample(self.values, len(self.values))]
            tried = self._completed([*first, *others]), with_needs(self.job, *sorted(first))
            for row in tried:
                if row is not None and first <= row.items() and self.refused(row) is None:
                    rows.append(row)
                    for three in combinations([(n, row[n]) for n in row if n in names], 3):
                        left.pop(frozenset(three), None)
                    break
        return rows

    def _go_together(self, values: Iterable[Value]) -> bool:
        """Whether no two values are refused, as far as is known."""
        return not any(b in self._against.get(a, ()) for a, b in combinations(values, 2))

    def _candidates(
        self, first: list[Value], left: Iterable[frozenset[Value]], rng: random.Random
    ) -> Iterator[dict[str, str] | None]:
        """Yield combinations that hold a pair, with ever fewer of the other pairs that are left."""
        more = [[*pair] for pair in left]
        rng.shuffle(more)
        while len(more) > 1:
            yield self._completed([*first, *(value for pair in more for value in pair)])
            more = more[: len(more) // 4]
        yield self._completed(first)
        yield with_needs(self.job, *first)

    def _learn(self) -> None:
        """Draw from now on with all refusals that are known."""
        self._bad = self.bad
        self._against = _opposed(self._bad)

    def _take(
        self, rows: list[dict[str, str]], left: dict[Any, None], row: dict[str, str] | None
    ) -> bool:
        """Take a combination that is not refused and holds pairs that are left."""
        pairs = [] if row is None else [frozenset(pair) for pair in combinations(row.items(), 2)]
        new = [pair for pair in pairs if pair in left]
        if row is None or not new or not self.impossible.isdisjoint(pairs):
            return False
        if self.refused(row) is not None:
            return False
        rows.append(row)
        for pair in new:
            del left[pair]
        return True

    def _completed(self, wanted: Iterable[Value]) -> dict[str, str] | None:
        """A combination with as many values as go together, the first before all others."""
        row: dict[str, str] = {}
        free = {each[0][0]: sorted(each, key=self._is_special) for each in self.values}
        last = (value for each in list(free.values()) for value in each)
        for value in (*wanted, *last):
            if value in free.get(value[0], ()):
                against = self._against.get(value, set())
                others = {
                    name: [other for other in each if other not in against]
                    for name, each in free.items()
                    if name != value[0]
                }
                if all(others.values()):
                    row[value[0]], free = value[1], others
                    if not free:
                        return row
        return None

    def _is_special(self, value: Value) -> bool:
        return value[1] != defaults(self.job)[value[0]]


def alike(one: Exception | None, other: Exception | None) -> bool:
    """Whether two combinations are refused for the same reason."""
    said = [getattr(each, "refusal", None) or str(each)[:40] for each in (one, other)]
    return one is not None and said[0] == said[1]


def _opposed(bad: Iterable[frozenset[Value]]) -> dict[Value, set[Value]]:
    """Of each value those that it stands beside in no combination."""
    opposed: dict[Value, set[Value]] = {}
    for one, other in bad:
        opposed.setdefault(one, set()).add(other)
        opposed.setdefault(other, set()).add(one)
    return opposed


@cache
def array(job: str, seed: int = 0) -> Array:
    """The covering array of a job, drawn once."""
    return Array(job, seed)


DRAWN_BEFORE = Path(__file__).with_name("drawn.json")
"""By job the names of the values of each factor, and of each combination their places there."""

PLACES = digits + ascii_lowercase
"""How places are written, one after the other."""


def keep(job: str, rows: Iterable[Combination]) -> None:
    """Keep what was drawn of a job."""
    values = {name: list(each) for name, each in factors_of(job).items()}
    places = [[values[name].index(row[name]) for name in values] for row in rows]
    known = json.loads(DRAWN_BEFORE.read_text("utf-8")) if DRAWN_BEFORE.exists() else {}
    known[job] = {"values": values, "rows": ["".join(PLACES[i] for i in each) for each in places]}
    DRAWN_BEFORE.write_text(json.dumps(known, indent=1) + "\n", "utf-8")


@cache
def kept(job: str) -> list[dict[str, str]]:
    """What was drawn of a job before.

    A combination with a value that there is no more is left out.
    """
    content = json.loads(DRAWN_BEFORE.read_text("utf-8"))[job]
    usual, factors, values = defaults(job), factors_of(job), content["values"].items()
    rows = [
        {name: each[PLACES.index(i)] for i, (name, each) in zip(places, values, strict=True)}
        for places in content["rows"]
    ]
    known = [row for row in rows if all(row[n] in factors.get(n, ()) for n in row)]
    return [{**usual, **row} for row in known]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in JOBS:
        drawn, before = Array(name), kept(name)
        for row in before:
            pairs = set(map(frozenset, combinations(row.items(), 2)))
            row["way"] = row["way"] if drawn.impossible.isdisjoint(pairs) else "none"
        drawn.rows(before)
        keep(name, drawn.fewer(float(sys.argv[1]) if sys.argv[1:] else 60.0))
