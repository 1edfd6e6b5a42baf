"""The command line as an analyst meets it."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import typer
from typed import cases, everything, fails, run
from typer.testing import CliRunner

import fedcluster
from fedcluster import FederatedKMeans
from fedcluster.core import Limit
from fedcluster.errors import SiteError
from fedcluster.model import Model
from fedcluster.options.choices import ALGORITHMS, FUZZY_ALGORITHMS, INITS
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.recipes.specifications import WORDS
from fedcluster_app.cli import _runs as runs
from fedcluster_app.cli import app
from fedcluster_app.cli._screen import ADVANCED, IN_ORDER_OF_USE, Screen, prepare
from fedcluster_app.report import messages
from fedcluster_app.report.tables import SiteRecord, cluster_table
from fedcluster_app.tables.matrices import Matrix
from fedcluster_app.tables.outputs import write_labels

pytestmark = pytest.mark.usefixtures("here", "short_searches")


def grouped():
    """Rows in three groups at two sites, of which each lacks one."""
    rng = np.random.default_rng(0)
    groups = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])
    return {
        "north": groups[rng.integers(0, 2, 30)] + rng.normal(size=(30, 2)),
        "south": groups[rng.integers(1, 3, 20)] + rng.normal(size=(20, 2)),
    }


def write(file, **columns):
    """Write a table, all digits of its numbers included."""
    if file.endswith(".parquet"):
        pa.parquet.write_table(pa.table(columns), file)
    else:
        pa.csv.write_csv(pa.table(columns), file)


def written(rows):
    """A file of each site, with columns in different orders."""
    write("north.csv", x=rows["north"][:, 0], y=rows["north"][:, 1])
    write("south.csv", y=rows["south"][:, 1], x=rows["south"][:, 0])
    return ["north.csv", "south.csv"]


rows = pytest.fixture(scope="module")(grouped)
files = pytest.fixture(written)


def labels(site, out="out"):
    lines = Path(out, "labels", f"{site}.csv").read_text().splitlines()
    assert lines[0] == "row,cluster"
    return [[int(value) for value in line.split(",")] for line in lines[1:]]


def test_fit_writes_what_the_estimator_finds(rows, files):
    arguments = ("-k", 3, "--seed", 5, "--scale", "none", "--out", "out")
    assert run("fit", *files, *arguments).exit_code == 0
    estimator = FederatedKMeans(3, random_state=5).fit(rows)
    model = Model.load("out/model.json")
    np.testing.assert_array_equal(model.centers, estimator.cluster_centers_)
    assert (model.columns, model.seed) == (("x", "y"), 5)
    for site, found in estimator.site_labels_.items():
        assert labels(site) == [[i + 1, label] for i, label in enumerate(found.tolist())]
    history = json.loads(Path("out/history.json").read_text())
    assert history["inertia"] == estimator.inertia_
    told = [(site["name"], site["values_sent"]) for site in history["sites"]]
    assert told == [(site, estimator.values_sent_[site]) for site in ("north", "south")]
    assert len(history["history"]) == len(estimator.history_)
    written = [*files, "out", "out/labels", *(f"out/{file}" for file in history["files"])]
    assert sorted(everything()) == sorted(written)


def test_the_order_of_columns_of_files_and_of_rows_and_the_format_do_not_matter(rows, files):
    run("fit", *files, "-k", 3, "--out", "out")
    Path("turned").mkdir()
    write("turned/renamed.csv", x=rows["north"][:, 0], y=rows["north"][:, 1])
    write("turned/south.csv", note=["a"] * 20, x=rows["south"][:, 0], y=rows["south"][:, 1])
    turned = ["turned/south.csv", "north=turned/renamed.csv"]
    run("fit", *turned, "-k", 3, "--out", "again")
    for name in ("model.json", "labels/north.csv", "labels/south.csv"):
        assert Path("out", name).read_text() == Path("again", name).read_text()
    both = np.concatenate([rows["south"], rows["north"]])
    site = ["south"] * 20 + ["north"] * 30
    write("all.parquet", x=both[:, 0], hospital=site, y=both[:, 1])
    ran = run("fit all.parquet --site-column hospital -k 3 --out one --json")
    assert Path("out/model.json").read_text() == Path("one/model.json").read_text()
    assert labels("north", "one") == [[row + 20, c] for row, c in labels("north")]
    assert json.loads(ran.stdout)["columns"] == ["x", "y"]


def test_every_option_reaches_the_estimator(rows, files):
    write("north.csv", x=rows["north"][:, 0], w=[1.0, 2.0] * 15)
    ran = run(
        "fit north.csv -k 2 --out out --algorithm fkm --set fit.init=random --set fit.n_init=3 "
        "--set fit.max_iter=7 --set fit.tol=0.01 --min-cluster-size 4 --seed 9 "
        "--set weight_column=w --json --scale none"
    )
    algorithm = Model.load("out/model.json").algorithm
    steps = algorithm["steps"]
    asked = {"name": "fkm", "init": "random", "max_iter": 7, "min_cluster_size": 4}
    asked |= {"n_clusters": 2, "n_init": 3, "tol": 0.01}
    assert dict(algorithm) | asked == algorithm
    assert "client_init='random'" in steps[0]
    assert Model.load("out/model.json").weights.sum() == 45
    result = json.loads(ran.stdout)
    assert result["seed"] == 9
    assert result["sites"][0]["limits"][-1] == {"name": "MinClusterSize", "p": 4}


def test_the_names_to_choose_from_are_those_of_the_estimator():
    options = {name: each.metadata for name, each in WORDS.items()}
    first, _, explained = options["algorithm"]["help"].partition(", or MODULE.NAME, your own. ")
    assert first.split(", ") == list({**ALGORITHMS, **FUZZY_ALGORITHMS})
    every = [*ALGORITHMS, *FUZZY_ALGORITHMS]
    assert [name for name in re.findall(r"(\w+)[:,;] ", explained) if name in every] == every
    assert options["init"]["choices"] == INITS


def test_what_is_printed_can_be_read_aloud(files):
    Path("tiny.csv").write_text("x,y\n0.5,0.5\n")
    ran = run("fit", *files, "tiny.csv", "-k", 3, "--out", "out")
    assert ran.stderr == ""
    shown = ran.stdout
    assert "\nRows by site and cluster\nsite    0   1   2  rows  numbers sent" in shown
    line = next(line for line in shown.splitlines() if line.startswith("all"))
    counts = [int(count) for count in line.split()[1:5]]
    assert sum(counts[:3]) == counts[3] == 51
    assert "3 clusters, inertia " in shown
    assert "with 3 sites. Algorithm auto, seed 0.\n" in shown
    assert "Limits in force: a site with fewer than 2 rows sends nothing.\n" in shown
    assert "Site tiny took no part: its limits held back its only row" in shown
    written = "model.json, out/history.json, out/study.toml, out/report.html and out/labels (3 file"
    assert shown.endswith(f"Wrote out/{written}s).\n")
    assert len(labels("tiny")) == 1


def test_a_cluster_of_one_row_that_leaves_is_told_and_can_be_held_back():
    Path("north.csv").write_text("x\n0\n1\n2\n1\n0\n90\n")
    Path("south.csv").write_text("x\n90\n91\n92\n91\n90\n1\n0\n1\n")
    told = "1 in a message of north and 1 of south), which reveals that row to whoever reads the "
    arguments = ("fit", "north.csv", "south.csv", "-k", 2, "--out", "out", "--overwrite")
    assert told in run(*arguments).stdout
    held = run(*arguments, "--min-cluster-size", 2).stdout
    assert told not in held
    assert "a site does not send a cluster of fewer than 2 of its rows" in held
    assert "In some rounds, limits held back up to 1 row of north." in held


def test_json_is_one_object_and_quiet_is_silent(files):
    ran = run("fit", *files, "-k", 3, "--out", "out", "--json")
    result = json.loads(ran.stdout)
    assert (result["out"], result["n_clusters"], result["warnings"]) == ("out", 3, [])
    assert all(Path("out", file).is_file() for file in result["files"])
    assert [sum(site["clusters"]) for site in result["sites"]] == [30, 20]
    assert run("fit", *files, "-k", 3, "--out", "out", "--overwrite", "--quiet").output == ""


@pytest.mark.parametrize(
    ("of_north", "k"),
    [
        pytest.param("1,2\n1,2\n1,2\n", 1, id="equal rows"),
        pytest.param("1,2\n4,5\n", 3, id="fewer rows than clusters"),
        pytest.param("1,2\n1,2\n3,2\n", 2, id="a constant column"),
    ],
)
def test_dull_rows_work(files, of_north, k):
    Path("north.csv").write_text(f"x,y\n{of_north}")
    assert run("fit", *files, "-k", k, "--out", "out").exit_code == 0
    assert len(labels("north")) == of_north.count("\n")


def test_a_warning_is_one_line_and_part_of_the_json():
    Path("same.csv").write_text("x\n7\n7\n7\n")
    ran = run("fit", "same.csv", "-k", 2, "--out", "out", "--json")
    assert ran.exit_code == 0
    [line] = ran.stderr.splitlines()
    assert line.startswith("warning: only 1 of 2 clusters have rows: ")
    assert json.loads(ran.stdout)["warnings"] == [line.removeprefix("warning: ")]


@pytest.mark.parametrize(
    ("arguments", "line"),
    cases("""
        north.csv -k 2 --site-column hospital => north.csv has no column 'hospital'; it has x, y
        north.csv other/north.csv -k 2
            => two sites are called 'north' (north.csv and other/north.csv); \
give one of them another name, as in north-2=other/north.csv
        =north.csv -k 2 => '=north.csv' must be FILE or NAME=FILE
        north.csv south.csv -k 51
            => -k 51 asks for more clusters than there are rows in all (50); ask for at most 50
        north.csv -k 0 => -k must be at least 1, not 0
        north.csv -k 2 --set fit.tol=nan => fit.tol must be at least 0, not nan
        north.csv -k 2 --set fit.max_iter=0 => fit.max_iter must be at least 1, not 0
        north.csv -k 2 --seed -1 => --seed must be from 0 to 4294967295, not -1
        north.csv -k 2 --columns x,,y
            => --columns 'x,,y' has an empty name; write --columns a,b,c
        north.csv -k 2 --columns x,x => --columns names 'x' twice
        north.csv -k 2 --columns x,y --set weight_column=y
            => --weight-column 'y' is among --columns too; leave it out there
        north.csv -k 2 --set fit.m=1
            => fit.m must be above 1, not 1; near 1, degrees are nearly 0 and 1
        north.csv -k 2 --set fit.m=inf
            => fit.m must be above 1, not inf; near 1, degrees are nearly 0 and 1
        north.csv -k 2 --fuzzy --algorithm fkm
            => --algorithm fkm is for k-means, not for fuzzy clusters (--fuzzy): \
leave one of the two out
        north.csv -k 2 --set fit.m=2 --algorithm fkm
            => --algorithm fkm is for k-means, not for fuzzy clusters (fit.m): \
leave one of the two out
        north.csv -k 2 --algorithm ffcm
            => --algorithm ffcm is for fuzzy clusters (--fuzzy), not for k-means: leave it out
        north.csv => Missing option '-k' / '--clusters'; see fedcluster fit --help
        north.csv -k 2 --set fit.participation=0
            => fit.participation must be above 0 and at most 1, not 0
    """),
)
def test_bad_input_is_one_line_and_status_2(files, arguments, line):
    assert fails(f"fit {arguments} --out out") == line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("fit north.csv -k two --out out", "'-k' .*fit --help"),
        ("fi", "'fi'. Did you mean 'fit'\\?; see"),
        ("fit north.csv -k 2 --algorithm best --out out", "lloyd.*'best'"),
        ("predict model.json north.csv", "--out"),
        ("predict model.json", "FILE.*predict --help"),
        ("frob", "frob.*fedcluster --help"),
        ("--frob", "--frob.*fedcluster --help"),
    ],
)
def test_a_wrong_command_line_is_one_line_too(files, arguments, words):
    assert re.search(words, fails(arguments))


def every_option(command):
    """Each option that keeps one value, with its command, of a command and those below it."""
    for option in command.params:
        if option.param_type_name == "option" and not option.multiple:
            yield command, option
    for below in getattr(command, "commands", {}).values():
        yield from every_option(below)


def test_an_option_given_twice_keeps_all_values_or_says_that_they_differ():
    every = typer.main.get_command(app)
    prepare([every])
    lists = set()
    for command, option in every_option(every):
        parser, name = command.make_parser(typer.Context(command)), option.opts[0]
        one, other = [name], [*option.secondary_opts, name][:1]
        if not option.is_flag:
            one, other = [name, "a"], [name, "b"]
        value = parser.parse_args([*one])[0][option.name]
        assert value == (True if option.is_flag else "a")
        if "," in (option.metavar or ""):
            assert parser.parse_args([*one, *other])[0][option.name] == "a,b"
            lists.add(name)
            continue
        assert parser.parse_args([*one, *one])[0][option.name] == value
        if one != other:
            with pytest.raises(typer.BadParameter, match=r"is given as (a and as b|True and as F)"):
                parser.parse_args([*one, *other])
    assert {f"--{name}" for name in LISTS} == lists - {"--sites", "--steps"}


LISTS = {
    "exclude": (["age", "crp"], "--exclude names 'age' twice"),
    "columns": (["age", "bmi"], "--columns names 'age' twice"),
    "categories": (["auto", "ward"], "--categories names 'auto' twice"),
}
"""Two values of each option of fit that takes a list, and what is said if the first is given again
with another meaning."""


@pytest.mark.parametrize("option", LISTS)
def test_values_of_a_list_count_in_one_option_and_in_two(option):
    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        numbers = {name: rng.choice(10, 30) / 4 for name in ("age", "bmi", "crp")}
        write(f"{site}.csv", **numbers, sex=rng.choice(["f", "m"], 30), ward=rng.choice([1, 2], 30))
    fit = ["fit", "north.csv", "south.csv", "-k", 2, "--set", "report=false"]
    (first, second), line = LISTS[option]
    runs = {"none": [], "one": [f"--{option}={first},{second}"], "last": [f"--{option}={second}"]}
    runs["two"] = [f"--{option}={first}", f"--{option}={second}"]
    found = {}
    for out, given in runs.items():
        assert run(*fit, *given, "--out", out).exit_code == 0
        found[out] = Path(out, "model.json").read_text()
    assert found["two"] == found["one"] != found["last"] != found["none"]
    assert line in fails(*fit, f"--{option}={first}", f"--{option}={first}", "--out", "again")


def test_no_two_columns_are_renamed_to_one(files):
    fit = ["fit", *files, "-k", 2, "--out", "out"]
    line = fails(*fit, "--set", "rename.x=z", "--set", "rename.y=z")
    assert line == "rename: two columns of site 'north' are to be called 'z'"
    line = fails(*fit, "--set", "rename.x=z", "--set", "sites.south.rename.x=w")
    assert line == "rename gives two different values for 'x'; give one of them"
    assert "'one' in column 'x'" in fails(*fit, "--set", "codes.x.one=a", "--set", "codes.X.one=b")


def test_a_site_that_fails_speaks_for_itself_and_a_fault_is_not_hidden(files, monkeypatch):
    def failing(*args, **parameters):
        raise error

    monkeypatch.setattr(runs, "fit", failing)
    error: Exception = SiteError("site 'north', round 2, Lloyd: the disk\nis on fire")
    line = fails("fit", *files, "-k", 2, "--out", "out")
    assert line == "site 'north', round 2, Lloyd: the disk is on fire"
    error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        run("fit", *files, "-k", 2, "--out", "out")


def test_an_output_folder_is_not_overwritten_unless_told(files):
    arguments = ("fit", *files, "-k", 3, "--out", "out")
    run(*arguments)
    Path("out/mine.txt").write_text("mine")
    Path("out/labels/mine.csv").write_text("mine")
    assert fails(*arguments) == "out is not empty; choose another --out or add --overwrite"
    assert run("fit", "new=north.csv", *arguments[2:], "--overwrite").exit_code == 0
    files = ["history.json", "mine.csv", "mine.txt", "model.json", "new.csv", "report.html"]
    files += ["south.csv", "study.toml"]
    assert sorted(path.name for path in Path("out").rglob("*") if path.is_file()) == files
    Path("file").touch()
    assert fails(*arguments[:-1], "file") == "file is a file; --out names a folder"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (OSError(28, "Disk full"), 2, "out cannot be written: Disk full"),
        (KeyboardInterrupt(), 130, "interrupted; nothing was written"),
    ],
)
def test_nothing_is_ever_half_written(files, monkeypatch, error, status, line, overwrite):
    arguments = ("fit", *files, "-k", 3, "--out", "out", "--overwrite")
    if overwrite:
        run(*arguments)
    before = everything()
    sites = iter("12")

    def failing(*args):
        if next(sites) == "2":
            raise error
        write_labels(*args)

    monkeypatch.setattr(runs, "write_labels", failing)
    ran = run(*arguments, "--seed", 1)
    assert (ran.exit_code, ran.stdout, ran.stderr) == (status, "", f"error: {line}\n")
    assert everything() == before


def test_predict_labels_new_rows_by_the_names_of_the_columns(rows, files):
    run("fit", *files, "-k", 3, "--out", "out")
    write("new.csv", y=rows["north"][:, 1], name=["Ann"] * 30, x=rows["north"][:, 0])
    predict = "predict out/model.json new.csv"
    ran = run(predict, "extra=south.csv", "--out", "more")
    assert Path("more/new.csv").read_text() == Path("out/labels/north.csv").read_text()
    assert Path("more/extra.csv").read_text() == Path("out/labels/south.csv").read_text()
    assert "Ignored at new: column name.\n" in ran.stdout
    assert "numbers sent" not in ran.stdout
    assert ran.stdout.endswith("Wrote more/extra.csv and more/new.csv.\n")
    result = json.loads(run(predict, "--out", "more", "--overwrite", "--json").stdout)
    assert result["ignored"] == {"new": ["name"]}
    assert result["sites"][0]["rows"] == 30
    assert result["files"] == ["new.csv"]
    assert sorted(path.name for path in Path("more").iterdir()) == ["extra.csv", "new.csv"]
    quiet = run(predict, "--out", "quiet", "--quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "line"),
    cases("""
        out/model.json new.csv --out more => site 'new' has no column 'y'; it has x, z
        newer.json north.csv --out more => newer.json .*upgrade fedcluster.*
        out/model.json north.csv --out out
            => out is not empty; choose another --out or add --overwrite
        no.json north.csv --out more => no.json does not exist; fedcluster fit writes a model.json
    """),
)
def test_predict_refuses_what_it_cannot_label(files, arguments, line):
    run("fit", *files, "-k", 3, "--out", "out")
    Path("new.csv").write_text("x,z\n1,2\n")
    Path("newer.json").write_text('{"format": "fedcluster-model", "format_version": 99}')
    assert re.fullmatch(line, fails(f"predict {arguments}"))


def test_sites_may_have_names_that_no_file_can_have():
    Path("all.csv").write_text("site,x\na/b,1\n..,2\nNorth,8\nnorth,9\na/b,5\n..,6\n")
    assert run("fit all.csv --site-column site -k 1 --out out --json --quiet").exit_code == 0
    names = {"..": "%2E%2E.csv", "North": "North.csv", "a/b": "a%2Fb.csv", "north": "north-2.csv"}
    assert sorted(path.name for path in Path("out/labels").iterdir()) == [*names.values()]
    sites = json.loads(Path("out/history.json").read_text())["sites"]
    assert {site["name"]: site["labels"][7:] for site in sites} == names


def test_many_sites_and_many_clusters_still_print(capsys):
    clusters = np.random.default_rng(0).integers(0, 500, (200, 60))
    sites = [
        SiteRecord(f"s {i:03}", n.sum(), tuple(n), "", 9000, rows_held_back=1, lone_rows=1)
        for i, n in enumerate(clusters)
    ]
    screen = Screen(as_json=False, quiet=False)
    screen.result({}, [cluster_table(sites, screen.width, "out/history.json")])
    lines = capsys.readouterr().out.splitlines()
    assert "(189 sites and clusters " in lines[1]
    assert max(map(len, lines[2:])) <= 80
    assert len(lines) < 20
    [others] = [line for line in lines if line.startswith("… 189 more sites  ")]
    total = next(line for line in lines if line.startswith("all "))
    assert not any("…" in line for line in [*lines[3:14], others[1:], total])
    assert total.split()[-2:] == [f"{clusters.sum():,}", f"{9000 * 200:,}"]
    assert max(map(len, messages.notes(sites))) < 250


@pytest.mark.parametrize(
    ("k", "width", "shown"),
    [(60, 80, 6), (7, 80, 7), (3, 80, 3), (8, 80, 6), (60, 40, 1), (2, 10, 2), (1, 10, 1)],
)
def test_the_table_shows_as_many_clusters_as_fit(k, width, shown):
    site = SiteRecord("north", 1000 * k, (1000,) * k, "labels/north.csv", 12345)
    table = cluster_table([site], width, "history.json")
    others = shown < k
    assert len(table.header) == 1 + shown + others + 2
    assert table.rows[0][-2:] == (f"{1000 * k:,}", "12,345")
    assert others == ("together" in table.title)


@dataclass(frozen=True)
class OwnRule:
    a: int
    b: int


ROWS_2 = "a site with fewer than 2 rows sends nothing"
CLUSTERS_5 = "a site does not send a cluster of fewer than 5 of its rows"


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ([(MinRows(2), MinClusterSize(5))] * 2, f"Limits in force: {ROWS_2}; {CLUSTERS_5}."),
        ([(MinRows(2),), ()], f"Limits in force: {ROWS_2} (s0); none (s1)."),
        ([()], "No limit is in force: a single row may leave its site."),
        ([(MinClusterSize(1),)], "No limit is in force: a single row may leave its site."),
        ([(OwnRule(1, 2),)], "Limits in force: OwnRule(a=1, b=2)."),
    ],
)
def test_limits_are_put_in_words(limits, sentence):
    sites = [
        SiteRecord(f"s{i}", 9, (9,), "", values_sent=3, limits=tuple(map(Limit.from_filter, rules)))
        for i, rules in enumerate(limits)
    ]
    assert messages.notes(sites) == [sentence, "No row was held back."]


def test_sites_that_send_more_than_they_hold_are_told_of():
    held = {"few": (64, 12), "fewer": (65, 12), "many": (64, 64), "unknown": (64, 0)}
    sites = [
        SiteRecord(name, 6, (6,), "", values_sent=sent, values_held=values)
        for name, (sent, values) in held.items()
    ]
    said = messages.notes(sites)
    more = "2 sites sent more numbers than their rows have values, for example fewer 65 for 12"
    assert said[-1].startswith(more)
    assert messages.notes(sites[2:]) == said[:-1]


def test_a_long_name_leaves_room_for_the_counts():
    site = SiteRecord("St. Mary's hospital for the north and the south", 9, (4, 5), "", 7)
    table = cluster_table([site], 80, "history.json")
    assert table.rows == (("St. Mary's hospital for the nor…", "4", "5", "9", "7"),)


def test_many_absent_sites_are_counted():
    sites = [SiteRecord(f"s{i}", 1, (1,), "") for i in range(9)]
    assert messages.notes(sites)[-1] == "Nor did 4 more sites."


@pytest.mark.thorough
def test_a_spinner_shows_after_a_second_and_says_what_is_done(monkeypatch):
    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Screen(as_json=False, quiet=False) as screen:
        screen.doing("reading north.csv")
        assert terminal.getvalue() == ""
        time.sleep(1.3)
        logging.getLogger("fedcluster").warning("compiling kernels")
        time.sleep(0.2)
    assert "reading north.csv …" in terminal.getvalue()
    assert "compiling kernels …" in terminal.getvalue()
    assert logging.getLogger("fedcluster").handlers == []


AT_WORK = """
import time
from fedcluster_app.cli._screen import Screen

def work():
    print("at work", flush=True)
    time.sleep(600)

with Screen(as_json=False, quiet=False) as screen:
    screen.wait_for(work)
"""


def test_an_interrupt_does_not_wait_for_numerical_work():
    """It strikes the main thread, whose work is to wait: numba's handing over is left alone."""
    command, pipe = [sys.executable, "-c", AT_WORK], subprocess.PIPE
    run = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "at work\n"
    run.send_signal(signal.SIGINT)
    _, complaint = run.communicate(timeout=120)
    assert (run.returncode, complaint) == (130, "error: interrupted; nothing was written\n")


def test_without_a_terminal_a_line_says_every_ten_seconds_what_is_done(capsys, monkeypatch):
    now = iter([0.0, 4.0, 11.0, 12.0, 22.5, 23.0])
    monkeypatch.setattr("fedcluster_app.cli._screen.EVERY", 10.0)
    monkeypatch.setattr("fedcluster_app.cli._screen.time.monotonic", lambda: next(now))
    with Screen(as_json=False, quiet=False) as screen:
        for i in range(5):
            screen.doing(f"round {i} done")
    assert capsys.readouterr().err == "11 seconds: round 1 done …\n22 seconds: round 3 done …\n"
    monkeypatch.undo()


def test_a_log_without_a_terminal_hears_of_the_compilation_only(capsys):
    for quiet in (True, False):
        with Screen(as_json=False, quiet=quiet) as screen:
            screen.doing("reading")
            logging.getLogger("fedcluster").warning("compiling kernels")
    assert capsys.readouterr().err == "compiling kernels …\n"


def test_what_is_deprecated_in_libraries_is_not_the_users_matter():
    class OfALibrary(UserWarning, DeprecationWarning):
        pass

    with Screen(as_json=False, quiet=False) as screen:
        warnings.warn("old", OfALibrary, stacklevel=1)
        warnings.warn("older", DeprecationWarning, stacklevel=1)
        warnings.warn("new", UserWarning, stacklevel=1)
    assert screen.warnings == ["new"]


def test_help_is_shown_without_a_command_and_names_all_of_them():
    shown = run().stdout
    assert run("--help").stdout == shown
    for command in ("fit", "predict", "check"):
        assert f"\n│ {command} " in shown
    assert "--install-completion" in shown


@pytest.mark.parametrize("group", [(), ("federation",), ("site",), ("flare",)])
def test_help_lists_commands_in_the_order_of_use_and_advanced_ones_apart(group):
    shown = run(*group, "--help").stdout.partition("─ Commands ")[2]
    usual, _, advanced = (
        re.findall(r"^│ (\S+)", part, re.M) for part in shown.partition("─ Advanced ")
    )
    assert usual == sorted(usual, key=IN_ORDER_OF_USE.index)
    assert advanced == sorted(advanced, key=ADVANCED.index)
    assert usual[0] in ("check", "new", "start", "kit")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("fit --algorithm f", {"fkm", "fedavg", "fcm", "ffcm"}),
        ("federation run trial fit --scale r", {"robust"}),
        ("fit --metric ", {"euclidean", "cosine"}),
        ("war", {"warm-up"}),
    ],
)
def test_a_shell_completes_commands_and_names(words, completed):
    given = f"fedcluster {words}"
    env = {"COMP_WORDS": given, "COMP_CWORD": str(given.count(" "))}
    env["_FEDCLUSTER_COMPLETE"] = "complete_bash"
    ran = CliRunner().invoke(app, [], env=env, prog_name="fedcluster")
    assert set(ran.stdout.split()) == completed


def test_help_says_what_each_argument_is():
    shown = run("predict", "--help").stdout
    assert re.search(r"MODEL\b.*model\.json of a fit, or its folder\.", shown)
    assert re.search(r"FILE\.\.\..*Files of the sites\.", shown)


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout == f"fedcluster {fedcluster.__version__}\n"


def command(*arguments, **environment):
    given = [Path(sys.executable).with_name("fedcluster"), *arguments]
    return subprocess.run(given, capture_output=True, text=True, env=os.environ | environment)


@pytest.mark.thorough
def test_the_command_ends_with_its_status(files):
    ran = command("fit", "nope.csv", "-k", "2", "--out", "out")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error: site 'nope': nope.csv does not exist; check the path\n"
    ran = command("fit", *files, "-k", "2", "--out", "out", "--json")
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["n_clusters"] == 2


@pytest.mark.thorough
def test_a_screen_of_few_signs_gets_question_marks_and_a_program_all_signs(files):
    Path("größe….csv").write_text("x\n1\n2\n", encoding="utf-8")
    arguments = ("fit", "größe….csv", "-k", "1", "--out", "out")
    ran = command(*arguments, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    said = [line for line in ran.stderr.splitlines() if " seconds: " not in line]  # how far it is
    assert (ran.returncode, said) == (0, [])
    assert "gr??e?" in ran.stdout
    ran = command(*arguments, "--overwrite", "--json", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert json.loads(ran.stdout)["sites"][0]["name"] == "größe…"


def test_help_loads_nothing_slow():
    code = (
        "import sys\nfrom fedcluster_app.cli import app\n"
        "try: app(['fit', '--help'])\n"
        "except SystemExit: pass\n"
        "print(*sys.modules.keys() & {'numba', 'numpy', 'pyarrow', 'sklearn'})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == ""


# Fuzzy c-means


def test_fuzzy_writes_degrees_and_predict_gives_the_same(files):
    out, again = Path("out"), Path("again")
    run("fit", *files, "-k", "2", "--set", "fit.m=1.5", "--out", out)
    model = json.loads((out / "model.json").read_text())
    assert model["algorithm"]["m"] == 1.5
    assert "FFCM(m=1.5" in " ".join(model["algorithm"]["steps"])
    for labels in sorted((out / "labels").iterdir()):
        head, *lines = labels.read_text().splitlines()
        assert head == "row,cluster,membership_0,membership_1"
        for line in lines:
            _, cluster, *degrees = line.split(",")
            assert sum(map(float, degrees)) == pytest.approx(1.0)
            assert np.argmax([float(d) for d in degrees]) == int(cluster)
    run("predict", out / "model.json", *files, "--out", again)
    for labels in (out / "labels").iterdir():
        assert (again / labels.name).read_text() == labels.read_text()


def test_a_fit_of_which_too_little_comes_from_the_sites_is_one_line():
    Path("few.csv").write_text("x\n0\n1\n9\n")
    Path("one.csv").write_text("x\n1\n")
    line = fails("fit few.csv -k 2 --algorithm fkm --out out")
    assert line.startswith("FKM needs at least 2 centres from the sites in its first round")
    for given, limit in (
        ("one.csv two=one.csv", "MinRows(n=2)"),
        ("few.csv --min-cluster-size 999", "MinClusterSize(p=999)"),
    ):
        line = fails(f"fit {given} -k 2 --out out")
        assert line.startswith("no site sent anything")
        assert limit in line


@pytest.fixture
def halves():
    """Rows of four groups in half precision."""
    rng = np.random.default_rng(5)
    centers = 3 * rng.normal(size=(4, 6))
    return (centers[rng.integers(4, size=3000)] + rng.normal(size=(3000, 6))).astype(np.float16)


@pytest.mark.parametrize("how", ["half", "bfloat16"])
def test_large_matrices_are_read_in_chunks_with_the_bits_of_doubles(how, halves, monkeypatch):
    stored = X = halves
    if how == "bfloat16":  # as NumPy writes that of ml_dtypes: the first half of a float32
        first = (X.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        stored, X = first.view("V2"), (first.astype(np.uint32) << 16).view(np.float32)
    np.save("rows.npy", stored)
    np.save("double.npy", X.astype(np.float64))
    found = []
    for most in (0, Matrix.held_values):
        monkeypatch.setattr(Matrix, "held_values", most)
        for file in ("rows=rows.npy", "rows=double.npy"):
            out = f"{file[5:]}-{most}"
            told = run("fit", file, "-k", 4, "--out", out)
            assert told.exit_code == 0, told.output
            centers = Model.load(f"{out}/model.json").centers
            found.append([centers.tobytes(), labels("rows", out)])
    assert all(other == found[0] for other in found)


def test_a_matrix_in_chunks_goes_with_other_files_and_says_what_it_does_not(halves, monkeypatch):
    np.save("rows.npy", halves)
    few = {f"x{j}": halves[:50, j] for j in range(6)} | {"x3": np.arange(1, 51)}
    write("few.csv", **few, note=["a", "b"] * 25)
    parts, dense = [], Matrix.dense

    def counted(matrix, rows, columns=None):
        parts.append(rows)
        return dense(matrix, rows, columns)

    monkeypatch.setattr(Matrix, "dense", counted)
    monkeypatch.setattr(Matrix, "held_values", 0)
    told = run("fit", "rows=rows.npy", "few.csv", "-k", 4, "--exclude", "x5", "--out", "both")
    assert told.exit_code == 0, told.output
    assert len(parts) > 2  # read anew in each round
    assert Model.load("both/model.json").columns == ("x0", "x1", "x2", "x4")
    assert [row for row, _ in labels("rows", "both")] == list(range(1, 3001))
    told = run("fit", "rows=rows.npy", "-k", 4, "--stability", "--out", "out")
    assert "of rows come in chunks" in told.output.replace("\n", " ")
