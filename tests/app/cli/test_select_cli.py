"""``fedcluster select-k`` and ``fit -k auto`` as an analyst meets them."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from test_cli import grouped, written
from typed import cases, fails, run

from fedcluster import FederatedKMeans, select_k
from fedcluster.model import Model
from fedcluster.options.choices import AVERAGINGS, RULES
from fedcluster.recipes.specifications import SelectK

pytestmark = pytest.mark.usefixtures("here", "short_searches")


rows = pytest.fixture(scope="module")(grouped)
files = pytest.fixture(written)

RAW = ("--scale", "none")
"""The rows as they are, to compare with what Python finds of them."""


def chosen(files, *options):
    return json.loads(run("select-k --json", *files, *options).stdout)


def test_the_verdict_is_that_of_select_k(rows, files):
    printed = chosen(files, "--k-max", 6, "--seed", 3, *RAW)
    found = select_k(rows, range(1, 7), random_state=3)
    assert (printed["n_clusters"], printed["reason"]) == (3, found.reason)
    assert printed["says"] == dict(found.says)
    assert [line["k"] for line in printed["table"]] == list(range(1, 7))
    for line in printed["table"]:
        for index, score in found.table[line["k"]].items():
            assert line[index] == (None if np.isnan(score) else pytest.approx(score, rel=1e-9))
    assert printed["files"] == []
    assert sorted(path.name for path in Path().iterdir()) == files


def test_what_was_prepared_is_said_and_a_doubt_is_a_warning(files):
    ran = run("select-k", *files, "--k-max", 3)
    assert "Prepared: x and y with mean 0 and" in ran.stdout
    assert ran.stderr == "warning: k = 3 is the largest that was tried; try larger ones\n"
    assert run("select-k", *files, "--k-max", 3, "--quiet").stdout == ""
    assert chosen(files, "--k-max", 4)["preprocessing"]["left_out"] == {}


def test_without_k_max_there_are_at_most_as_many_clusters_as_rows():
    Path("few.csv").write_text("x\n1\n2\n3\n9\n")
    assert [line["k"] for line in chosen(["few.csv"])["table"]] == [1, 2, 3, 4]


def test_what_is_printed_can_be_read_aloud(files):
    ran = run("select-k", *files, "--k-max", 5, "--out", "chosen", *RAW)
    assert (ran.exit_code, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    [verdict] = [line for line in lines if line.startswith("3 <")]
    assert verdict.count("*") == 1
    [said] = [line for line in lines if line.startswith("3 clusters. ")]
    assert said.startswith("3 clusters. A mixture of 3 normal distributions")
    assert lines[-1] == "Wrote chosen/selection.json and chosen/curves.png."
    kept = json.loads(Path("chosen/selection.json").read_text())
    assert (kept["format"], kept["n_clusters"]) == ("fedcluster-selection", 3)
    assert len(kept["table"]) == 5
    assert Path("chosen/curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "k"),
    [
        ("--set select_k.rule=fuzzy-db --set select_k.averaging=avg_1", 2),  # each lacks a cluster
        ("--set select_k.rule=gap --set select_k.bounds=[[-5,25],[-5,25]]", 3),
        ("--set select_k.rule=fuzzy-db", 3),
        ("--set select_k.rule=inertia", 2),
        ("--set select_k.rule=davies-bouldin --set select_k.pick=elbow", 3),
        ("--set select_k.rule=xie-beni --set select_k.m=1.5", 3),
        ("--set select_k.sums_only=true --min-cluster-size 2", 3),
        ("--columns x,y", 3),
    ],
)
def test_every_option_is_heard(files, options, k):
    printed = chosen(files, "--k-max", 5, *options.split(), *RAW)
    assert printed["n_clusters"] == k
    if "rule=" in options:
        assert printed["rule"].startswith(options.partition("rule=")[2].split()[0])


@pytest.mark.parametrize("rule", RULES)
def test_the_table_fits_on_a_screen_of_80_signs(files, rule):
    """Neither a verdict nor a star is cut off."""
    shown = run("select-k", *files, "--set", f"select_k.rule={rule}").stdout
    assert "…" not in shown
    assert max(map(len, shown[: shown.index(" clusters.")].splitlines())) <= 80


def test_the_names_to_choose_from_are_those_of_select_k():
    choices = {each.name: each.metadata.get("choices", ()) for each in fields(SelectK)}
    assert tuple(choices["rule"]) == RULES
    assert set(choices["averaging"]) == set(AVERAGINGS)


def test_fit_chooses_and_writes_why(rows, files):
    ran = run("fit", *files, "-k", "auto", "--seed", 5, "--out", "out", *RAW)
    assert ran.exit_code == 0, ran.stderr
    model = Model.load("out/model.json")
    expected = FederatedKMeans("auto", random_state=5).fit(rows)
    np.testing.assert_allclose(model.centers, expected.cluster_centers_)
    assert model.algorithm["n_clusters"] == "auto"
    history = json.loads(Path("out/history.json").read_text())
    assert history["selection"]["n_clusters"] == history["n_clusters"] == 3
    assert {"selection.json", "curves.png"} <= set(history["files"])
    assert "3 clusters. A mixture of 3 normal distributions" in ran.stdout
    assert "clusters, inertia" in ran.stdout


def test_fit_chooses_from_a_range(files):
    ran = run("fit", *files, "-k", "2-4", "--fuzzy", "--out", "out", "--json")
    assert json.loads(ran.stdout)["n_clusters"] == 3
    assert len(Model.load("out/model.json").centers) == 3


@pytest.mark.parametrize(
    ("arguments", "line"),
    cases("""
        --k-max 51
            => --k-max 51 asks for more clusters than there are rows in all (50); ask for at most 50
        --set select_k.bounds=[1] => --set select_k.bounds=[1]: [select_k], bounds[0]
        --k-min 51
            => --k-min 51 asks for more clusters than there are rows in all (50); ask for at most 50
        --k-min 5 --k-max 3 => --k-min 5 is above --k-max 3; the first k comes first
        --k-min 0 => --k-min must be at least 1, not 0
        --k-max 0 => --k-max must be at least 1, not 0
        --set select_k.pick=elbow
            => select_k.pick = elbow is for a single index; name it by select_k.rule
        --set select_k.m=1 => select_k.m must be above 1, not 1; near 1, degrees are nearly 0 and 1
        --set select_k.bounds=[[0,1],[0,1],[0,1]]
            => the bounds are 3 pairs, but there are 2 columns to cluster by; give one pair for all
        --set select_k.bounds=[[1,0]] => select_k.bounds must be pairs LOW, HIGH, as in [[
        --set select_k.rule=best => [select_k], rule must be one of likelihood, vote,
        --columns z => site 'north' has no column 'z'
        --min-cluster-size 99 => no site sent anything
        --seed -1 => --seed must be from 0 to 4294967295, not -1
    """),
)
def test_bad_input_is_one_line_and_status_2(files, arguments, line):
    assert line in fails(f"select-k {arguments} --out out", *files, *RAW)


@pytest.mark.parametrize("k", ["two", "5-2", "0-3", "1.5"])
def test_a_k_that_is_no_number_is_refused(files, k):
    line = fails("fit", *files, "-k", k, "--out", "out")
    assert f"'{k}' is not a number of clusters; give a whole number, auto, or" in line
