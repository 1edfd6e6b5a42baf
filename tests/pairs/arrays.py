"""Draw combinations in which every pair of values stands that is not refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import combinations, product
from typing import Any, NoReturn

from allpairspy import AllPairs

from fedcluster.core import SiteInfo
from fedcluster.jobs import plan_of, preprocessing_of, steps_of
from pairs.factors import IMPOSSIBLE, NEEDS, SLOW, Combination, defaults, factors_of
from pairs.worlds import MAKERS, AskedError, World, columns_asked, frames, job_of, probe

Value = tuple[str, str]
"""A factor and the name of one of its values."""

OF_SITES = ("site.", "sites", "source", "text", "missing", "dates held", "engine", "way")


def of_sites(factor: str) -> bool:
    """Whether a factor is of the sites, not of the job."""
    return factor.startswith("site.") or factor in OF_SITES


def with_needs(job: str, *values: Value) -> dict[str, str]:
    """The combination of some values, of what they need, and of defaults."""
    c, factors = dict(defaults(job)), factors_of(job)
    for value in sorted(values):
        needed = NEEDS.get(value, {}).items()
        c |= {name: need for name, need in needed if need in factors.get(name, ())}
    return c | dict(values)


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
    slow : bool
        Whether values that take long stand beside every other one; else they are in one
        combination.
    """

    job: str
    seed: int = 0
    slow: bool = False
    _rows: list[dict[str, str]] = field(default_factory=list, init=False)

    @cached_property
    def refused(self) -> Refused:
        return Refused(self.job)

    @cached_property
    def values(self) -> list[list[Value]]:
        """The values of each factor; a seed other than 0 puts them in another order."""
        every = [
            [(name, value) for value in given if self.slow or (name, value) not in SLOW]
            for name, given in factors_of(self.job).items()
        ]
        if self.seed:
            rng = random.Random(self.seed)
            for each in every:
                rng.shuffle(each)
            rng.shuffle(every)
        return every

    def pairs(self) -> Iterator[tuple[Value, Value]]:
        for one, other in combinations(self.values, 2):
            yield from product(one, other)

    @cached_property
    def refusals(self) -> dict[frozenset[Value], Exception]:
        """The pairs that are refused, whatever else is asked for."""
        self.rows()
        return self._refusals

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
            if pair in IMPOSSIBLE or both:
                continue
            if self.refused.by_checks(with_needs(self.job, one, other)) is not None:
                self._try(pair, found)
        return found

    def _try(self, pair: frozenset[Value], found: dict[frozenset[Value], Exception]) -> bool:
        """Note how a pair is refused, and return whether it is."""
        error = self.refused(with_needs(self.job, *sorted(pair)))
        if error is not None:
            found[pair] = error
        return error is not None

    @property
    def bad(self) -> set[frozenset[Value]]:
        """Pairs that stand in no combination, as far as is known.

        Besides those that are refused, two values with which no value of some factor goes.
        """
        every = [value for each in self.values for value in each]
        bit = {value: 1 << i for i, value in enumerate(every)}
        factors = [sum(bit[value] for value in each) for each in self.values]
        against = dict.fromkeys(every, 0)
        bad, more = {*self._refusals, *IMPOSSIBLE}, True
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

    def rows(self) -> list[dict[str, str]]:
        """Combinations that hold all pairs that are not refused.

        Those of `AllPairs`, which knows of no refusal, each without the values that do not go with
        others of it; and more, as long as a pair is left.
        """
        if self._rows:
            return self._rows
        rng, rows = random.Random(self.seed), self._rows
        self._learn()
        pairs = list(map(frozenset, self.pairs()))
        left = dict.fromkeys(pair for pair in pairs if pair not in self._bad)
        for drawn in [list(map(tuple, row)) for row in AllPairs(self.values)]:
            rng.shuffle(drawn)
            self._take(rows, left, self._completed(drawn))
        while left:
            first = [*next(iter(left))]
            if any(self._take(rows, left, row) for row in self._candidates(first, left, rng)):
                continue
            assert self._try(frozenset(first), self._refusals), f"{self.job}: {first} in no row"
            self._learn()
            for pair in self._bad:
                left.pop(pair, None)
        known = factors_of(self.job)
        alone = [value for value in SLOW if value[0] in known and not self.slow]
        rows += [with_needs(self.job, value) for value in alone]
        return rows

    def threes(self, names: Collection[str], most: int | None = None) -> list[dict[str, str]]:
        """Combinations that hold each three values of some factors that go together.

        `AllPairs` leaves threes out. Values that are refused in threes alone are in none.
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
        if row is None or not new or self.refused(row) is not None:
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


def _opposed(bad: Iterable[frozenset[Value]]) -> dict[Value, set[Value]]:
    """Of each value those that it stands beside in no combination."""
    opposed: dict[Value, set[Value]] = {}
    for one, other in bad:
        opposed.setdefault(one, set()).add(other)
        opposed.setdefault(other, set()).add(one)
    return opposed


@cache
def array(job: str, seed: int = 0, *, slow: bool = False) -> Array:
    """The covering array of a job, drawn once."""
    return Array(job, seed, slow)
