"""The study file: what it says is what options say, and a fit writes one that repeats it."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from typed import cases, fails, run

from fedcluster.model import Model
from fedcluster.texts import setting
from fedcluster_app.cli._study import settings_in

pytestmark = pytest.mark.usefixtures("short_searches")

STUDY = """
columns = ["age", "sbp", "sex"]
missing_values = [-999]

[sites]
north = "data/north.csv"
south = { path = "data/south.csv", decimal = ",", rename = { years = "age" } }
west = { path = "data/west.csv", factors = { sbp = 7.5 } }

[codes.sex]
female = "F"

[prepare]
weights = { sex = 0.5 }

[fit]
n_clusters = 3
seed = 7
tol = 0.01
"""


@pytest.fixture(autouse=True)
def _here(here):
    rng = np.random.default_rng(5)
    Path("data").mkdir()
    for site, names in {"north": "age", "south": "years", "west": "age"}.items():
        sep, point = (";", ",") if site == "south" else (",", ".")
        lines = [sep.join([names, "sbp", "sex"])]
        for i in range(40):
            age, sbp = rng.normal((30, 50, 70)[i % 3], 3), rng.normal((110, 130, 150)[i % 3], 4)
            cells = f"{age:.1f}", f"{sbp / (7.5 if site == 'west' else 1):.2f}"
            cells = ("-999", cells[1]) if i == 4 else cells
            word = ("F", "female", "M")[i % 3] if site == "north" else "FM"[i % 2]
            lines.append(sep.join([*(cell.replace(".", point) for cell in cells), word]))
        Path(f"data/{site}.csv").write_text("\n".join(lines))
    Path("study.toml").write_text(STUDY)


def fit(*arguments):
    ran = run("fit", *arguments)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def outcome(folder):
    labels = {path.name: path.read_text() for path in sorted(Path(folder, "labels").iterdir())}
    return Path(folder, "model.json").read_text(), labels


def test_a_study_file_says_what_options_and_settings_say():
    fit("study.toml", "--out", "a")
    files = [f"data/{site}.csv" for site in ("north", "south", "west")]
    said = ["missing_values=[-999]", "codes.sex.female=F", "prepare.weights.sex=0.5"]
    said += ["sites.south.decimal=,", "sites.south.rename.years=age", "sites.west.factors.sbp=7.5"]
    settings = [f"--set={each}" for each in (*said, "fit.tol=0.01")]
    fit(*files, "-k", 3, "--seed", 7, "--columns", "age,sbp,sex", *settings, "--out", "b")
    assert outcome("a") == outcome("b")


def test_a_fit_is_repeated_by_the_file_that_it_writes():
    dates = [f"{40 + i},{i % 7},F,2001-02-{i + 1}" for i in range(9)]
    Path("data/east.csv").write_text("\n".join(["age,sbp,sex,seen", *dates]))
    fit("study.toml", "-k", "2-3", "--set", "fit.max_iter=9", "--out", "deep/a")
    fit("deep/a/study.toml", "--out", "b")
    assert outcome("deep/a") == outcome("b")
    fit("data/east.csv", "-k", 2, "--set", "dates=age", "--columns", "seen", "--out", "c")
    assert 'seen = "age:2' in Path("c/study.toml").read_text()
    fit("c/study.toml", "--out", "d")
    assert outcome("c") == outcome("d")


def test_other_commands_read_the_same_file_and_others_take_the_place_of_its_sites():
    fit("study.toml", "--out", "a")
    for command in ("evaluate a", "profile a", "select-k", "check"):
        ran = run(command, "study.toml", "--json")
        assert ran.exit_code == 0, ran.output
        json.loads(ran.stdout)
    assert run("predict a study.toml --out new").exit_code == 0
    assert run("predict a study.toml north=data/north.csv --out one").exit_code == 0
    for folder, sites in {"new": ["north", "south", "west"], "one": ["north"]}.items():
        assert sorted(path.stem for path in Path(folder).iterdir()) == sites
        for site in sites:
            text = Path(folder, f"{site}.csv").read_text()
            assert text == Path("a/labels", f"{site}.csv").read_text()


@pytest.mark.parametrize(
    ("old", "new", "line"),
    cases("""
        decimal = => decimals =
            => [sites.south], unknown key 'decimals'; did you mean 'decimal'
        sbp = 7.5 => sbp = [] => [sites.west], factors.sbp must be a number other than 0
        tol = => tolerance = => [fit], unknown key 'tolerance'; known are n_clusters,
        [prepare] => [preparing] => unknown key 'preparing'; did you mean 'prepare'?
        seed = 7 => seed = "a" => [fit], seed must be a whole number, not 'a'
        "data/north.csv" => "" => [sites.north], path must be a text
        north = => "n=1" = => [sites]: 'n=1' names no site
        [sites] => [sites => is not TOML
    """),
)
def test_what_is_wrong_in_a_study_file_is_one_line(old, new, line):
    assert old in STUDY
    Path("study.toml").write_text(STUDY.replace(old, new, 1))
    said = fails("fit study.toml --out out")
    assert said.startswith("study.toml")
    assert line in said


@pytest.mark.parametrize(
    ("given", "line"),
    cases("""
        --set fit.seed => --set fit.seed: it must be KEY=VALUE, as in fit.seed=1
        --seed 1 --set fit.seed=2 => --seed and --set fit.seed say different things
        --set fit.sed=1 => --set fit.sed=1: [fit], unknown key 'sed'; did you mean 'seed'?
        --set fit.tol=1 --set fit.tol=2 => --set gives two different values for fit.tol
        --set run.deadline=2 => --set run.deadline: fedcluster fit has no use for this key
        --set sites.east.skip=1
            => sites.east: no file belongs to this site; the sites are north
        --codes sex:f=F
            => --codes is a key of the study file: --set codes.COLUMN.TEXT=NAME
        --max-iter 3 => --max-iter is a key of the study file: --set fit.max_iter=VALUE
        --lenient => --lenient is a key of the study file: --set lenient=true
        -m 3 => -m is a key of the study file: --set fit.m=VALUE
    """),
)
def test_what_is_wrong_on_the_command_line_is_one_line(given, line):
    assert line in fails(f"fit data/north.csv -k 2 {given}")


def test_a_name_of_any_signs_is_a_key_as_messages_write_it():
    for name, text in (("größe, m", 'a"b\\'), ("x.y", "'"), ("a b", "1=2")):
        said = shlex.split(setting("codes", name, text, to="a=b"))[1]
        assert settings_in([said]) == {"codes": {name: {text: "a=b"}}}
    assert settings_in(["out=x", "fit.noise=true"]) == {"out": "x", "fit": {"noise": True}}


def test_columns_of_other_commands_are_not_clustered_by():
    roles = 'label_column = "sex"\nid_column = "sbp"\n'
    unweighed = STUDY[33:].replace("weights =", "bounds = {} #")
    Path("more.toml").write_text(roles + unweighed)
    fit("more.toml", "--set", "out=a")
    assert json.loads(Path("a/model.json").read_text())["columns"] == ["age"]
    assert run("select-k more.toml --json").exit_code == 0
    assert run("evaluate a more.toml --json").exit_code == 0


def test_lists_of_settings_are_joined():
    both = ["--set", "missing_values=[-999]", "--set", "missing_values=['age:4']"]
    fit("study.toml", *both, "--out", "a")
    assert 'missing_values = [-999, "age:4"]' in Path("a/study.toml").read_text()


def test_a_fit_is_continued_and_repeated():
    fit("study.toml", "--out", "a")
    assert run("name a 1=ill").exit_code == 0
    since = json.loads(fit("study.toml", "--continue", "a", "-k", 2, "--out", "b", "--json"))[
        "since"
    ]
    assert [each["became"] for each in since["clusters"]].count(["gone"]) == 1
    assert since["clusters"][1]["name"] == "ill"
    assert "Clusters since the earlier fit" in Path("b/report.html").read_text()
    fit("b/study.toml", "--out", "c/d")
    assert outcome("b") == outcome("c/d")
    fit(*NORTH_AND_WEST, "--continue", "c/d", "--columns", "age,sbp,sex", "--out", "e")
    assert Model.load("e").n_clusters == 2
    said = fails("fit", *NORTH_AND_WEST, "--continue", "a", "--columns", "age", "--out", "h")
    assert said.startswith("the clusters to continue have the column 'sbp', and this fit has not")


NORTH_AND_WEST = ["data/north.csv", "data/west.csv"]


def test_a_fit_starts_from_files():
    """Paths in a study file start at it; a bad file is one line, and nothing is written."""
    Path("start.csv").write_text("age,sbp\n30,110\n70,150\n")
    Path("bad.csv").write_text("age,sbp\n30,high\n")
    begun = [*NORTH_AND_WEST, "-k", 2, "--columns", "age,sbp", "--algorithm", "lloyd"]
    fit(*begun, "--set", "fit.init=start.csv", "--out", "f")
    fit(*begun, "--set", "fit.init=f", "--out", "g")
    assert outcome("f")[1] == outcome("g")[1]
    for said, line in {
        "fit.init=bad.csv": "bad.csv holds no centres: the names of columns, then a line",
        "fit.init=kmeans": "fit.init must be one of auto, summaries, sums, k-means++, random, or a",
        "fit.previous=nothing": "nothing does not exist",
    }.items():
        assert fails("fit", *begun, "--set", said, "--out", "h").startswith(line)
