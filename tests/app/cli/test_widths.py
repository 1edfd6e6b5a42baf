"""Help, messages and tables on screens of 40, 80 and 120 characters."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from rich.console import Console
from typed import run

from fedcluster.texts import Table
from fedcluster_app.cli import _screen, app
from fedcluster_app.cli._screen import broken, write_line, write_table

WIDTHS = (40, 80, 120)


PROGRAM: Any = typer.main.get_command(app)


def commands(command: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All commands and groups of commands, each as the words that call it."""
    yield names
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*names, name))


EVERY = list(commands(PROGRAM))


def help_of(names: tuple[str, ...]) -> str:
    given = ["x"] if names[:2] == ("federation", "run") and len(names) > 2 else []
    return str(run(*names[:2], *given, *names[2:], "--help").stdout)


@pytest.mark.parametrize("names", EVERY, ids=" ".join)
def test_help_names_every_option_whole(names, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text, command = help_of(names), PROGRAM
    assert max(map(len, text.splitlines())) <= 80, text
    for name in names:
        command = command.commands[name]
    options = [name for each in command.params for name in each.opts if name.startswith("--")]
    assert set(options) <= set(text.split())


@pytest.mark.parametrize("names", [each for each in EVERY if each], ids=" ".join)
def test_every_command_has_an_example_that_it_takes(names: tuple[str, ...]) -> None:
    command = PROGRAM
    for name in names:
        command = command.commands[name]
    if hasattr(command, "commands"):
        return
    assert command.epilog.startswith("Example: fedcluster "), names
    program, *given = shlex.split(command.epilog.removeprefix("Example: "))
    assert program == "fedcluster"
    for name in names:
        given = given[given.index(name) + 1 :]  # the folder of a federation stands between
    parsed = command.make_context(names[-1], list(given))
    assert not parsed.args


def test_a_broken_line_keeps_its_words_and_its_indentation() -> None:
    line = "Some sums stood for a single row: --min-cluster-size 2 holds " + "x" * 30 + " back."
    lines = broken(line, 24).splitlines()
    assert " ".join(lines) == line
    assert [each for each in lines if len(each) > 24] == ["x" * 30]
    assert all(each.startswith("  ") for each in broken(f"  {line}", 24).splitlines())


@pytest.mark.parametrize(
    ("width", "columns", "lines"),
    [
        (20, True, ["site    rows  held"]),
        (17, True, ["site   rows held"]),
        (12, True, ["north", "  rows", "  1,000,", "  held 2"]),
        (12, False, ["site    rows  held"]),  # into a file
    ],
)
def test_a_table_has_less_between_columns_and_then_records(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
    columns: bool,
    lines: list[str],
) -> None:
    if columns:
        monkeypatch.setenv("COLUMNS", str(width))
    else:
        monkeypatch.delenv("COLUMNS", raising=False)
    table = Table("Sites", ("site", "rows", "held"), (("north", "1,000", "2"),))
    write_table(Console(width=width), table)
    said = capsys.readouterr().out.splitlines()
    assert [each.strip() for each in said[1 : 1 + len(lines)]] == [each.strip() for each in lines]
    assert "…" not in "".join(said)


def test_messages_and_tables_have_the_same_words_at_every_width(tmp_path, monkeypatch):
    """Nothing is cut off, and nothing but a path is longer than a line."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        X = rng.normal(size=(30, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 10, axis=0)
        frame = pd.DataFrame(X, columns=["age", "bmi"]).assign(
            kind=np.repeat([*"abc"], 10), born="1950-01-01"
        )
        frame.to_csv(f"{site}.csv", index=False)
    files = ["north.csv", "south.csv"]
    for arguments in (
        ["fit", *files, "-k", 3, "--overwrite", "--exclude", "kind"],
        ["check", *files],
        ["evaluate", "result", *files, "--label-column", "kind"],
        ["predict", "result", *files, "--out", "labels", "--overwrite"],
        ["select-k", *files, "--k-max", 3, "--exclude", "kind"],
        ["fit", "nowhere.csv", "-k", 3],
    ):
        for width in WIDTHS:
            monkeypatch.setenv("COLUMNS", str(width))
            ran = run(*arguments)
            for line in (ran.stdout + ran.stderr).splitlines():
                assert len(line.rstrip()) <= width or " " not in line.strip(), line
                assert not line.rstrip().endswith("…")


def test_a_command_to_paste_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a command in two lines, a shell would run the first."""
    written = StringIO()
    monkeypatch.setenv("COLUMNS", "40")
    console = Console(file=written, width=40)
    files = " ".join(f"clinics/{site}.csv" for site in ("north", "south", "west"))
    lines = [
        "  python -m fedcluster_app.datasets clinics",
        f"  fedcluster fit {files} -k auto --out result",
    ]
    for line in lines:
        write_line(console, line)
    assert written.getvalue().splitlines()[-2:] == lines[-2:]
    assert len(lines[-1]) > 80


def test_a_comparison_of_few_sites_leaves_none_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    sites = ("north", "south", "west", "south-west")
    for site in sites:
        Path(f"{site}.csv").write_text("age,pressure\n31.25,120.5\n47.5,131.25\n,99.125\n")
    shown = run("check", *(f"{site}.csv" for site in sites)).stdout
    assert "Sites side by side\n" in shown
    assert all(f"{site} numbers, 33% missing" in " ".join(shown.split()) for site in sites)


@pytest.mark.usefixtures("short_search")
def test_long_tables_are_cut_to_twelve_rows_and_say_where_the_others_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    tables: list[Table] = []
    monkeypatch.setattr(_screen, "write_table", lambda _console, table: tables.append(table))
    rng = np.random.default_rng(0)
    centers = 9 * rng.normal(size=(15, 20))
    names = [f"measurement_{j:02}" for j in range(20)]
    for i in range(20):
        rows = centers[rng.integers(0, 15, 30)] + rng.normal(size=(30, 20))
        pd.DataFrame(rows, columns=names).to_csv(f"hospital-{i:02}.csv", index=False)
    files = [f"hospital-{i:02}.csv" for i in range(20)]
    fitted = run("fit", *files, "-k", 15, "--profile").stdout
    ks = ["--k-min", 2, "--k-max", 15, "--set", "select_k.rule=vote"]
    chosen = run("select-k", *files, *ks, "--out", "chosen").stdout
    run("evaluate", "result", *files)
    run("check", *files)
    run("predict", "result", *files, "--out", "new")
    assert max(len(table.rows) for table in tables) == 12
    model, history, choice = Path("result/model.json"), Path("result/history.json"), "chosen"
    assert [re.sub(r"Cluster \d+: .*", "Cluster", table.title) for table in tables] == [
        f"Centres, in the units of the columns (8 more clusters and 8 more columns: see {model})",
        f"Clusters (3 more rows: see {history})",
        *["Cluster"] * 12,
        f"Rows by site and cluster (9 sites and clusters 9 to 14 together: see {history})",
        "What each index says of each k (* its choice, < the verdict) (2 more k: see "
        f"{Path(choice, 'selection.json')})",
        "How good the clusters are (18 more sites, 3 more rows: see --json)",
        "Sites side by side (17 more sites, 8 more rows: see --json)",
        "Rows by site and cluster (9 sites together: see --json)",
    ]
    assert f"Clusters 12 to 14, and all columns and sites: {history}." in fitted
    [of_sites] = [table for table in tables if table.title.endswith(f"together: see {history})")]
    assert of_sites.rows[-1][0] == "… 9 more sites"
    [verdict] = [row for table in tables for row in table.rows if row[0].endswith(" <")]
    assert chosen.strip().startswith(f"{verdict[0].split()[0]} clusters.")
    assert sum(cell.endswith("*") for row in tables[-4].rows for cell in row) == 6


def test_into_a_file_every_message_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    [line] = run("fit", "nowhere/" + "x" * 60 + ".csv", "-k", 3).stderr.splitlines()
    assert len(line) > 80
