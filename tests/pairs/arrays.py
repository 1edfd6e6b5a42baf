"""Combinations in which every pair of values stands that is not refused, kept in `drawn.json`.

The tests hold what is kept against the values of today. `python -m pairs.arrays`, in the folder of
the tests, draws what is lacking, and leaves out what is needless.
"""

import json
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, combinations, product
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any

from fedcluster.jobs import procedure_of
from pairs import factors
from pairs.ways import unspoken
from pairs.worlds import MAKERS, AskedError, Counted, World, columns_asked, frames, job_of, run

Some = frozenset[factors.Value]
"""Values that a combination may hold."""

OF_SITES = ("sites", "source", "text", "missing", "dates held", "engine")
DRAWN = Path(__file__).with_name("drawn.json")
"""By job the names of the values of each factor, and of each combination their places there."""
PLACES = digits + ascii_lowercase
"""How places are written, one after the other."""


class Refused:
    """How the combinations of a job are refused before a site is asked, each tried once."""

    def __init__(self, job: str) -> None:
        self.job = job
        self._known: dict[Some, Exception | None] = {}
        self._engines: dict[Any, Any] = {}

    def __call__(self, c: factors.Combination) -> Exception | None:
        """How a combination is refused; None where a site would be asked."""
        key = frozenset((name, value) for name, value in c.items() if name != "way")
        if key not in self._known:
            self._known[key] = None
            try:
                self._try(c)
            except Exception as error:
                self._known[key] = error
        return self._known[key]

    def _try(self, c: factors.Combination) -> None:
        world = World(self.job, c, frames(c))
        job = job_of(world)
        raw, named = procedure_of(job).preprocessing is not None, columns_asked(world, job)
        sites = (v for v in c.items() if v[0].startswith("site.") or v[0] in OF_SITES)
        key = (*sites, raw, str(named), getattr(job, "epsilon", None), c.get("bounds"))
        if key not in self._engines:
            made = MAKERS[c["engine"]](world, job)
            self._engines[key] = Counted(made, 0, AskedError)
        try:
            run(world, job, self._engines[key])
        except AskedError:
            return
        except Exception:
            del self._engines[key]  # of a run that has failed
            raise
        raise AssertionError("no site was asked, and there is a result")


refused_in = cache(Refused)


def pairs(job: str) -> Iterator[Some]:
    values = [[(name, value) for value in each] for name, each in factors.factors_of(job).items()]
    for one, other in combinations(values, 2):
        yield from map(frozenset, product(one, other))


def groups_in(c: factors.Combination) -> set[Some]:
    """The pairs of values in a combination."""
    return {frozenset(some) for some in combinations(c.items(), 2)}


@cache
def impossible(job: str) -> set[Some]:
    """Pairs of which no combination can be made, or which no user can ask for."""
    made = ((pair, factors.with_needs(job, *pair).items()) for pair in pairs(job))
    return {pair for pair, c in made if any(apart <= c for apart in factors.APART)} | unspoken(job)


@cache
def not_kept(job: str) -> tuple[dict[Some, Exception], list[Some]]:
    """How the pairs in none of the combinations that are kept are refused, and which are not."""
    held = impossible(job).union(*map(groups_in, kept(job)))
    refused, lost = dict[Some, Exception](), list[Some]()
    for pair in pairs(job):
        errors = [] if pair in held else [*map(refused_in(job), with_lifts(job, pair))]
        if None in errors:
            lost.append(pair)
        elif errors and errors[0]:
            refused[pair] = errors[0]
    return refused, lost


def with_lifts(job: str, some: Some) -> Iterator[dict[str, str]]:
    """The combinations of some values and what they need, without and with each of their lifts."""
    lifts = [
        factors.values_in(factors.LIFTS[v])
        for v in map("=".join, sorted(some))
        if v in factors.LIFTS
    ]
    return (factors.with_needs(job, *some, *more) for more in ([], *lifts))


def rows(job: str, seed: int, known: Iterable[Any] = ()) -> Iterator[dict[str, str]]:
    """Combinations that hold all pairs that go together: those that are known, and more.

    Values that are refused together are in none.
    """
    apart, rng = not_kept(job)[0].keys() | impossible(job), random.Random(seed)
    left = dict.fromkeys(pair for pair in pairs(job) if pair not in apart)

    def holds_more(c: Mapping[str, str]) -> bool:
        held = [some for some in left if some <= c.items()]
        for some in held:
            del left[some]
        return bool(held)

    for c in known:
        if holds_more(c):
            yield dict(c)
    for first in rng.sample([*left], len(left)):
        if first in left and (row := grown(job, first, rng.sample([*left], len(left)))):
            holds_more(row)
            yield row


def grown(job: str, first: Some, more: Iterable[Some]) -> dict[str, str] | None:
    """A combination of some values, and of as many others as go together with them."""
    apart = {*not_kept(job)[0], *impossible(job)}

    def goes(c: factors.Combination) -> bool:
        return apart.isdisjoint(groups_in(c)) and refused_in(job)(c) is None

    def with_more(c: dict[str, str], some: Sequence[Some]) -> dict[str, str]:
        new = c | dict(chain(*some))
        if goes(new) or not some:
            return new
        half = len(some) // 2
        return with_more(with_more(c, some[:half]), some[half:]) if half else c

    row, fixed, chosen = next(filter(goes, with_lifts(job, first)), None), dict(first), []
    for some in more:
        new = fixed | dict(some)
        adds = len(new) > len(fixed) and fixed.items() <= new.items()
        if adds and apart.isdisjoint(groups_in(new)):
            fixed = new
            chosen.append(some)
    return row and with_more(row, chosen)


def keep(job: str, rows: Iterable[factors.Combination]) -> None:
    values = {name: list(each) for name, each in factors.factors_of(job).items()}
    places = ["".join(PLACES[values[n].index(row[n])] for n in values) for row in rows]
    content = {"values": {n: " | ".join(each) for n, each in values.items()}, "rows": places}
    known = json.loads(DRAWN.read_text("utf-8")) | {job: content}
    DRAWN.write_text(json.dumps(known, indent=1) + "\n", "utf-8")


@cache
def kept(job: str) -> list[dict[str, str]]:
    """What was drawn of a job before, but for combinations with a value that there is no more."""
    content = json.loads(DRAWN.read_text("utf-8"))[job]
    values = {name: each.split(" | ") for name, each in content["values"].items()}
    found = (
        {name: values[name][PLACES.index(i)] for name, i in zip(values, places, strict=True)}
        for places in content["rows"]
    )
    return [
        {**factors.defaults(job), **row}
        for row in found
        if all(row[name] in factors.factors_of(job).get(name, ()) for name in row)
    ]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in factors.JOBS:
        for c in kept(name):
            c["way"] = c["way"] if impossible(name).isdisjoint(groups_in(c)) else "none"
        good = [c for c in kept(name) if impossible(name).isdisjoint(groups_in(c))]
        keep(name, [c for c in good if refused_in(name)(c) is None])
        kept.cache_clear()
        keep(name, [*rows(name, 0, kept(name))])
