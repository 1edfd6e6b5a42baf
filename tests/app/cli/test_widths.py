"""Help, messages and tables on screens of 40, 80 and 120 characters."""

import re
import shlex
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

PROGRAM: Any = typer.main.get_command(app)


def commands(command, names=()):
    """All commands and groups of commands, each by the words that call it."""
    yield names, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*names, name))


EVERY = dict(commands(PROGRAM))


@pytest.mark.parametrize("names", EVERY, ids=" ".join)
def test_help_names_every_option_whole(names, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    given = ["x"] if names[:2] == ("federation", "run") and len(names) > 2 else []
    text = run("", *names[:2], *given, *names[2:], "--help").stdout
    assert max(map(len, text.splitlines())) <= 80, text
    options = [each for param in EVERY[names].params for each in param.opts if each[:2] == "--"]
    assert set(options) <= set(text.split())
    assert "\\[" not in text


LEAVES = [names for names, command in EVERY.items() if not hasattr(command, "commands")]


@pytest.mark.parametrize("names", LEAVES, ids=" ".join)
def test_every_command_has_an_example_that_it_takes(names):
    command = EVERY[names]
    program, *given = shlex.split(command.epilog)[1:]
    assert command.epilog.startswith(f"Example: {program}")
    assert program == "fedcluster"
    for name in names:
        given = given[given.index(name) + 1 :]  # the folder of a federation stands between
    parsed = command.make_context(names[-1], list(given))
    assert not parsed.args


def test_a_broken_line_keeps_its_words_and_its_indentation():
    line = "Some sums stood for a single row: --min-cluster-size 2 holds " + "x" * 30 + " back."
    lines = broken(line, 24).splitlines()
    assert " ".join(lines) == line
    assert [each for each in lines if len(each) > 24] == ["x" * 30]
    assert all(each.startswith("  ") for each in broken(f"  {line}", 24).splitlines())


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (17, ["site   rows held"]),
        (12, ["north", "rows", "1,000,", "held 2"]),
        (20, ["site    rows  held"]),
        (None, ["site    rows  held"]),  # into a file
    ],
)
def test_a_table_has_less_between_columns_and_then_records(monkeypatch, capsys, width, lines):
    monkeypatch.delenv("COLUMNS", raising=False)
    if width:
        monkeypatch.setenv("COLUMNS", str(width))
    table = Table("Sites", ("site", "rows", "held"), (("north", "1,000", "2"),))
    write_table(Console(width=width or 12), table)
    said = capsys.readouterr().out.splitlines()
    assert [each.strip() for each in said[1 : 1 + len(lines)]] == lines
    assert "…" not in "".join(said)


@pytest.mark.thorough
@pytest.mark.usefixtures("here")
def test_messages_and_tables_have_the_same_words_at_every_width(monkeypatch):
    """Nothing is cut off, and nothing but a path is longer than a line."""
    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        X = rng.normal(size=(30, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 10, axis=0)
        frame = pd.DataFrame(X, columns=["age", "bmi"]).assign(
            kind=[*"abc"] * 10, born="1950-01-01"
        )
        frame.to_csv(f"{site}.csv", index=False)
    files = "north.csv south.csv"
    for command in (
        f"fit {files} -k 3 --overwrite --exclude kind",
        f"check {files}",
        f"evaluate result {files} --label-column kind",
        f"predict result {files} --out labels --overwrite",
        f"select-k {files} --k-max 3 --exclude kind",
        "fit nowhere.csv -k 3",
    ):
        for width in (40, 80, 120):
            monkeypatch.setenv("COLUMNS", str(width))
            for line in run(command).output.splitlines():
                assert len(line.rstrip()) <= width or " " not in line.strip(), line
                assert not line.rstrip().endswith("…")


def test_a_command_to_paste_stays_whole(monkeypatch):
    """Of a command in two lines, a shell would run the first."""
    written = StringIO()
    monkeypatch.setenv("COLUMNS", "40")
    console = Console(file=written, width=40)
    files = " ".join(f"clinics/{site}.csv" for site in ("north", "south", "west"))
    fit = f"  fedcluster fit {files} -k auto --out result"
    lines = ["  python -m fedcluster_app.datasets clinics", fit]
    for line in lines:
        write_line(console, line)
    assert written.getvalue().splitlines()[-2:] == lines
    assert len(fit) > 80


@pytest.mark.usefixtures("here")
def test_a_comparison_of_few_sites_leaves_none_out(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    sites = ("north", "south", "west", "south-west")
    for site in sites:
        Path(f"{site}.csv").write_text("age,pressure\n31.25,120.5\n47.5,131.25\n,99.125\n")
    shown = run("check", *(f"{site}.csv" for site in sites)).stdout
    assert "Sites side by side\n" in shown
    assert all(f"{site} numbers, 33% missing" in " ".join(shown.split()) for site in sites)


@pytest.mark.thorough
@pytest.mark.usefixtures("here", "short_search")
def test_long_tables_are_cut_to_twelve_rows_and_say_where_the_others_are(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    tables: list[Table] = []
    monkeypatch.setattr(_screen, "write_table", lambda _console, table: tables.append(table))
    rng = np.random.default_rng(0)
    centers = 9 * rng.normal(size=(15, 20))
    files = [f"hospital-{i:02}.csv" for i in range(20)]
    for file in files:
        rows = centers[rng.integers(0, 15, 30)] + rng.normal(size=(30, 20))
        frame = pd.DataFrame(rows, columns=[f"measurement_{j:02}" for j in range(20)])
        frame.to_csv(file, index=False)
    fitted = run("fit -k 15 --profile", *files).stdout
    ks = "--k-min 2 --k-max 15 --set select_k.rule=vote"
    chosen = run(f"select-k {ks} --out chosen", *files).stdout
    for command in ("evaluate result", "check", "predict result --out new"):
        run(command, *files)
    assert max(len(table.rows) for table in tables) == 12
    model, history = Path("result/model.json"), Path("result/history.json")
    assert [re.sub(r"Cluster \d+: .*", "Cluster", table.title) for table in tables] == [
        f"Centres, in the units of the columns (8 more clusters and 8 more columns: see {model})",
        f"Clusters (3 more rows: see {history})",
        *["Cluster"] * 12,
        f"Rows by site and cluster (9 sites and clusters 9 to 14 together: see {history})",
        "What each index says of each k (* its choice, < the verdict) (2 more k: see "
        f"{Path('chosen/selection.json')})",
        "How good the clusters are (18 more sites, 3 more rows: see --json)",
        "Sites side by side (17 more sites, 8 more rows: see --json)",
        "Rows by site and cluster (9 sites together: see --json)",
    ]
    assert f"Clusters 12 to 14, and all columns and sites: {history}." in fitted
    assert tables[14].rows[-1][0] == "… 9 more sites"
    [verdict] = [row for table in tables for row in table.rows if row[0].endswith(" <")]
    assert chosen.strip().startswith(f"{verdict[0].split()[0]} clusters.")
    assert sum(cell.endswith("*") for row in tables[-4].rows for cell in row) == 6


def test_into_a_file_every_message_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    [line] = run("fit", "nowhere/" + "x" * 60 + ".csv", "-k", 3).stderr.splitlines()
    assert len(line) > 80
