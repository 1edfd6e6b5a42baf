"""Every two options together: refused before a site is asked anything, or they obey the laws.

`pairs.factors` has the values of every option, `pairs.arrays` draws combinations with every pair of
them, `pairs.laws` says what must hold of each; a failure is shown as a line that runs it again.
"""

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import chain, islice, product
from typing import Any

import pytest
from pairs import factors
from pairs.arrays import groups_in, impossible, kept, not_kept, rows
from pairs.laws import Case, differences, laws_of
from pairs.ways import CommandError, commanded, fitted, is_line_of, options, speechless
from pairs.worlds import World, frames, job_of
from searches import shorten
from typer.main import get_command

from fedcluster.engines import LocalEngine
from fedcluster.errors import InputError
from fedcluster.jobs import job_from_json
from fedcluster.recipes.specifications import KINDS, WORDS
from fedcluster_app.cli import app

pytestmark = pytest.mark.thorough
SEED = int(os.environ.get("FEDCLUSTER_PAIRS_SEED", "0"))
"""Draws other combinations."""

GIVEN = os.environ.get("FEDCLUSTER_PAIRS", "")
"""A combination to run again, as a failure shows it."""

OF_ROWS = (
    r"opening its rows, InputError: site '[\w-]+', column '(town|seen|z)', row \d+"
    r"|describing its columns, InputError: column 'ward' has numbers, which groups do not tell"
)
"""How rows are refused that are not what is asked for: by column, with the first of them. Only
these columns hold texts, dates, gaps and codes."""

OF_POLICY = r"by the policy of the site: .*"
"""How a site refuses what its own file forbids."""


PARTS, NEIGHBOURS = 16, 8
"""Tests that the combinations of a job are parted into, for processes that run side by side, and
combinations in a row whose turn it is to be held against the same law."""


def written(job: str, c: factors.Combination) -> str:
    usual = factors.defaults(job)
    return "; ".join([job, *(f"{name}={c[name]}" for name in c if c[name] != usual[name])])


def read(line: str) -> tuple[str, dict[str, str]]:
    job, _, values = line.partition("; ")
    return job, factors.with_needs(job) | dict(factors.values_in(values))


def broken(job: str, c: factors.Combination, place: int, *, all_laws: bool = False) -> list[str]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = Case(job, c, place)
        try:
            laws = laws_of(case, all_laws=all_laws)
        except Exception as error:
            laws, found = {}, [f"{type(error).__name__}: {str(error)[:500]}"]
        for name, law in laws.items():
            try:
                law(case)
            except Exception as error:
                kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
                found.append(f"{name}: {kind}{str(error)[:500]}")
    again = f"FEDCLUSTER_PAIRS='{written(job, c)}' pytest tests/app/cli/test_pairs.py -k again"
    return [f"{line}\n  {again}" for line in found]


@pytest.fixture(autouse=True)
def _searches_are_short(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """In `make test` all searches have few runs."""
    if not request.node.get_closest_marker("long"):
        shorten(monkeypatch.setattr)


def test_every_option_has_values() -> None:
    assert factors.undeclared() == {}


SHOWN = {"--out", "--overwrite", "--json", "--quiet", "--keep-names"}
"""Options of what is shown and written of a result."""


@pytest.mark.parametrize("job", factors.JOBS)
def test_every_option_of_a_command_is_said_in_a_combination(job: str) -> None:
    """A value of a factor says it, and the law of commands holds it against the job."""
    said: set[str] = set()
    for c in kept(job):
        world = World(job, c, frames(c))
        if c["way"] in factors.COMMANDS and not speechless(world):
            said |= {word.split("=")[0] for word in options(world) if word.startswith("-")}
    command = get_command(app).commands[job]  # type: ignore[attr-defined]
    names = [{*each.opts} for each in command.params if each.param_type_name == "option"]
    assert not [each for each in names if not each & (said | SHOWN)]
    assert not SHOWN & said


def holds(lines: list[str]) -> None:
    assert not lines, "\n".join([f"{len(lines)} laws are broken", *lines])


@pytest.mark.parametrize("job", factors.JOBS)
@pytest.mark.parametrize("part", range(PARTS))
def test_combinations_of_every_pair_obey_the_laws(job: str, part: int) -> None:
    rows = list(enumerate(kept(job)))[part::PARTS]
    assert rows
    holds([line for place, c in rows for line in broken(job, c, place // NEIGHBOURS)])


@pytest.mark.parametrize("job", factors.JOBS)
def test_a_pair_in_no_combination_is_refused_by_the_table_and_asks_nobody(job, monkeypatch):
    """Trying fails where a site is asked. What rows hold, and a site's policy, are no options.

    An estimator and a command refuse options by the same row, one pair for each line.
    """
    refused, lost = not_kept(job)
    assert impossible(job).isdisjoint(chain(*map(groups_in, kept(job))))
    assert not lost, "in no combination: cd tests && python -m pairs.arrays"
    rows: Mapping[Any, Any] = {
        pair: getattr(each, "refusal", None) for pair, each in refused.items()
    }
    others = {pair: str(refused[pair]) for pair, row in rows.items() if row is None}
    assert [s for s in others.values() if not re.search(f"{OF_ROWS}|{OF_POLICY}", s)] == []
    monkeypatch.setattr(LocalEngine, "ask", lambda *_: pytest.fail("a site was asked"))
    of_job = [
        pair for pair, row in rows.items() if row and dict(pair).keys() <= {*factors.JOBS[job][1]}
    ]
    said = {str(refused[pair]): pair for pair in of_job}
    for pair, way in product(said.values(), ("pandas", "files") if job == "fit" else ("files",)):
        world = World(job, c := factors.with_needs(job, *pair) | {"way": way}, frames(c))
        if not speechless(world):
            with pytest.raises((InputError, ValueError, CommandError)) as caught:
                (fitted if job == "fit" else commanded)(world)
            line = str(caught.value).splitlines()[-1].removeprefix("error: ")
            named = re.match("algorithm must be one of", line)  # those of the estimator
            assert named or is_line_of(rows[pair], line), (sorted(pair), way, line)


@pytest.mark.long
@pytest.mark.parametrize("job", factors.JOBS)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_combination_obeys_all_laws(job: str, part: int) -> None:
    drawn = islice(rows(job, SEED), part, None, PARTS)
    holds([line for c in drawn for line in broken(job, c, 0, all_laws=True)])


BROKEN = (
    "evaluate; model=plain; site.protection=groups; way=files",
    "evaluate; model=prepared; site.protection=groups; way=files",
    "fit; n_clusters=auto; model=merged; prepare=levels; text=True",
    "fit; n_clusters=auto; model=auto; prepare=levels; text=True",
    "fit; algorithm=fkm; n_clusters=1; source=sqlite; participation=0.6; seed=7; prepare=median; "
    "site.policy=narrow; site.group_column=person; sites=6; tol=0.0; init=k-means++; profile=True; "
    "stability=True; way=odd files",
    "fit; algorithm=lloyd; n_clusters=1; trim=0.1; means=given; init=array; grouped=True; "
    "prepare=pca; sums_only=True; tol=0.0; missing=True; sites=4; smallest=4; source=parquet; "
    "site.groups=3; site.protection=groups; site.weight_column=weight; site.factors=offset; "
    "site.columns=('y', 'x', 'z'); site.missing_values=('z:-999',); engine=resumed wire",
)
"""Combinations in which rounding decided: which of two mixtures that are alike is the likelier; on
which side of an edge, the mean, a row is counted for the median; whether a share of a group that a
site tells is below 0, which the coordinator refuses; and files that were grouped in other units
than those in which their rows are clustered: a column of wide range decides."""


@pytest.mark.parametrize("line", [GIVEN] if GIVEN else BROKEN)
def test_a_law_that_was_broken_holds_again(line: str) -> None:
    holds(broken(*read(line), place=0, all_laws=True))


def test_a_fit_that_is_sent_is_of_its_kind_and_says_the_same() -> None:
    """Every kind of fit, with each parameter that it has; others are refused, or no names."""
    jobs = [job_of(World("fit", c, frames(c))) for c in kept("fit")]
    assert {*map(type, jobs)} == {*KINDS}
    for job in jobs:
        own = {each.name for each in fields(job) if each.init}
        for name in WORDS.keys() - own:
            with pytest.raises(TypeError, match=name):
                type(job)(job.n_clusters, **{name: None})
        again = job_from_json("fit", asdict(job))
        assert type(again) is type(job)
        assert differences(asdict(job), asdict(again)) == []


@pytest.mark.parametrize("job", factors.JOBS)
def test_a_line_is_read_as_it_was_written(job: str) -> None:
    c = {name: list(values)[-1] for name, values in factors.factors_of(job).items()}
    assert read(written(job, c)) == (job, c)
