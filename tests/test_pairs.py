"""Every two options together: refused before a site is asked anything, or they obey the laws.

`pairs.factors` declares the values of every option, `pairs.arrays` draws combinations that hold
every pair of them, `pairs.laws` says what must hold of each. A combination that fails is shown as a
line that runs it again.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import warnings
from dataclasses import dataclass

import pytest
from pairs.arrays import array, with_needs
from pairs.factors import JOBS, MEETING, Combination, defaults, factors_of, undeclared
from pairs.laws import Case, laws_of

from fedcluster._refusals import table

SEED = int(os.environ.get("FEDCLUSTER_PAIRS_SEED", "0"))
"""Draws other combinations."""

GIVEN = os.environ.get("FEDCLUSTER_PAIRS", "")
"""A combination to run again, as a failure shows it."""

OF_ROWS = r"opening its rows, InputError: site '\w+', column '(\w+)', row \d+"
"""How rows are refused that are not what is asked for: by column, with the first of them."""

OF_POLICY = r"by the policy of the site: .*"
"""How a site refuses what its own file forbids."""

EVERY = {"fit": 6, "select-k": 4, "evaluate": 2, "profile": 2}
"""Of the combinations of a job, each so many-th is tried at once; all are in the long tests."""

THREES = int(os.environ.get("FEDCLUSTER_PAIRS_THREES", "300"))
"""How many combinations of three values are tried, drawn by `SEED`."""

PARTS = 8
"""Tests that the combinations of a job are parted into, for processes that run side by side."""


def written(job: str, c: Combination) -> str:
    """A combination as a line: what is not as by default."""
    usual = defaults(job)
    return "; ".join([job, *(f"{name}={c[name]}" for name in c if c[name] != usual[name])])


def read(line: str) -> tuple[str, dict[str, str]]:
    """A combination from its line."""
    job, *values = line.split("; ")
    return job, with_needs(job) | dict(value.split("=", 1) for value in values)


def broken(job: str, c: Combination, place: int, *, all_laws: bool = False) -> list[str]:
    """The laws that a combination breaks, each with the line that runs it again."""
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
    again = f"FEDCLUSTER_PAIRS='{written(job, c)}' pytest tests/test_pairs.py -k again"
    return [f"{line}\n  {again}" for line in found]


@dataclass(frozen=True)
class Drawn:
    """The combinations of a job, and how pairs are refused: in the table's words, and in others."""

    rows: list[dict[str, str]]
    in_table: dict[str, str]
    others: dict[str, str]


@pytest.fixture
def drawn(job: str, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """What one of the processes that run tests draws for all: most of a minute for a fit."""
    folder = tmp_path_factory.getbasetemp()
    path = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / f"pairs-{job}.json"
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            every = array(job, SEED)
            said: tuple[dict[str, str], dict[str, str]] = {}, {}
            for pair, error in every.refusals.items():
                is_other = getattr(error, "refusal", None) not in table().values()
                said[is_other][", ".join(map("=".join, sorted(pair)))] = str(error)
            content = {"rows": every.rows(), "in_table": said[0], "others": said[1]}
            path.write_text(json.dumps(content), "utf-8")
    return Drawn(**json.loads(path.read_text("utf-8")))


@pytest.fixture(autouse=True)
def _searches_are_short(impatient: None) -> None:
    """A search of quality="best" ends after a generation without a gain."""


def test_every_option_has_values() -> None:
    assert undeclared() == {}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("part", range(PARTS))
def test_combinations_of_every_pair_obey_the_laws(job: str, part: int, drawn: Drawn) -> None:
    rows = list(enumerate(drawn.rows))[part :: PARTS * EVERY[job]]
    found = [line for place, c in rows for line in broken(job, c, place // PARTS)]
    assert rows
    assert not found, "\n".join([f"{len(found)} laws are broken", *found])


@pytest.mark.parametrize("job", JOBS)
def test_a_refused_pair_is_in_the_table_and_asks_nobody(job: str, drawn: Drawn) -> None:
    """Probing fails where a site is asked. What rows hold, and a site's policy, are no options."""
    assert drawn.in_table
    known = f"{OF_ROWS}|{OF_POLICY}"
    told = {pair: said for pair, said in drawn.others.items() if not re.search(known, said)}
    assert not told, job


@pytest.mark.long
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_combination_obeys_all_laws(job: str, part: int) -> None:
    rows = array(job, SEED, slow=True).rows()[part::PARTS]
    found = [line for c in rows for line in broken(job, c, 0, all_laws=True)]
    assert not found, "\n".join([f"{len(found)} laws are broken", *found])


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_combinations_of_three_obey_all_laws(part: int) -> None:
    """Of factors that meet in one place."""
    rows = array("fit", SEED).threes(MEETING, THREES)[part::PARTS]
    found = [line for c in rows for line in broken("fit", c, 0, all_laws=True)]
    assert not found, "\n".join([f"{len(found)} laws are broken", *found])


@pytest.mark.skipif(not GIVEN, reason="no combination is given by FEDCLUSTER_PAIRS")
def test_a_combination_again() -> None:
    found = broken(*read(GIVEN), place=0, all_laws=True)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("job", JOBS)
def test_a_line_is_read_as_it_was_written(job: str) -> None:
    c = {name: list(values)[-1] for name, values in factors_of(job).items()}
    assert read(written(job, c)) == (job, c)
