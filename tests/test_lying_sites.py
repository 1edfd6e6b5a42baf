"""Sites that lie: what a coordinator believes of them, and what is done about the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedcluster.cli import app
from fedcluster.errors import InputError
from fedcluster.federation._folder import Federation, bound, create

SITES = ("north", "south")


def invoke(*words: object) -> tuple[int, str]:
    outcome = CliRunner().invoke(app, [str(word) for word in words])
    return outcome.exit_code, outcome.output


# What a federation states of its sites


def test_stated_rows_and_ranges_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows, ranges = {"north": 5000.0}, {'a "b"\\c, ü': (-1.5, 1e3), "age": (0.0, 120.0)}
    create(tmp_path / "f", SITES, "127.0.0.1:1", insecure=True, rows=rows, ranges=ranges)
    read = Federation.load(tmp_path / "f")
    assert (dict(read.rows), dict(read.ranges)) == (rows, ranges)
    bound(read, {"south": 80.0}, {"age": (0.0, 130.0)})
    again = Federation.load(tmp_path / "f")
    assert again.rows == {"north": 5000.0, "south": 80.0}
    assert again.ranges == {**ranges, "age": (0.0, 130.0)}
    assert (again.address, again.sites, again.insecure) == (read.address, read.sites, True)


def test_a_federation_without_bounds_has_none(tmp_path: Path) -> None:
    create(tmp_path / "f", SITES, "127.0.0.1:8443", insecure=True)
    read = Federation.load(tmp_path / "f")
    assert (read.rows, read.ranges) == ({}, {})
    assert "[" not in (tmp_path / "f" / "federation.toml").read_text().partition("insecure")[2]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--rows", "west:50"], "rows of 'west': the federation has no such site"),
        (["--rows", "north:0"], "rows of 'north' must be a number above 0"),
        (["--rows", "north"], "--rows 'north' must be SITE:ROWS, as in north:5000"),
        (["--rows", "north:nan"], "rows of 'north' must be a number above 0"),
        (["--range", "age:0"], "--range 'age:0' must be COLUMN:LOW:HIGH, as in age:0:120"),
        (["--range", "age:120:0"], "the range of 'age' must go up, not from 120 to 0"),
        (["--range", "age:0:inf"], "the range of 'age' must be two numbers"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(options, reason, tmp_path: Path) -> None:
    new = ("federation", "new", tmp_path / "f", "--sites", "north,south", "--insecure")
    status, said = invoke(*new, *options)
    assert status != 0
    assert reason in " ".join(said.split())
    assert not (tmp_path / "f").exists()


def test_bounds_are_stated_and_changed_by_commands(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    new = ("federation", "new", folder, "--sites", "north,south", "--insecure")
    assert invoke(*new, "--rows", "north:5000,south:80", "--range", "age:0:120")[0] == 0
    status, said = invoke("federation", "bounds", folder, "--rows", "south:90")
    assert (status, said.splitlines()) == (
        0,
        ["north: at most 5,000 rows", "south: at most 90 rows", "age: from 0 to 120"],
    )
    assert Federation.load(folder).rows == {"north": 5000.0, "south": 90.0}


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    create(tmp_path / "f", SITES, "127.0.0.1:8443", insecure=True)
    path = tmp_path / "f" / "federation.toml"
    path.write_text(path.read_text() + "\n[ranges]\nage = [0]\n")
    with pytest.raises(InputError, match="is damaged: the range of 'age' must be two numbers"):
        Federation.load(tmp_path / "f")
