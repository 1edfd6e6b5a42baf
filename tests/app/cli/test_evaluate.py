"""``fedcluster evaluate`` as an analyst meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as sk
from typer.testing import CliRunner

from fedcluster.metrics import METRICS
from fedcluster.model import Model
from fedcluster_app.cli import app

COLUMNS = ["age", "bmi"]
SITES = ("north", "south", "west")


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Three kinds of rows at three sites, each of which lacks one; with a column of weights."""
    rng = np.random.default_rng(0)
    middles = {"a": (30, 20), "b": (45, 27), "c": (65, 24)}
    parts = []
    for site, seen in zip(SITES, ("ab", "bc", "ca"), strict=True):
        kind = rng.choice(list(seen), size=40)
        X = np.array([middles[k] for k in kind]) + rng.normal(scale=[6, 2], size=(40, 2))
        frame = pd.DataFrame(X, columns=COLUMNS)
        parts.append(frame.assign(kind=kind, weight=rng.integers(1, 4, 40), site=site))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture
def model(rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The sites' files and a model of three clusters, here."""
    monkeypatch.chdir(tmp_path)
    for site, own in rows.groupby("site"):
        own.drop(columns="site").to_csv(f"{site}.csv", index=False)
    rows.sample(frac=1, random_state=1).to_csv("all.csv", index=False)
    model = Model(np.array([[31.0, 20.0], [44.0, 27.0], [66.0, 24.0]]), np.ones(3), tuple(COLUMNS))
    model.save("model.json")
    return model


FILES = [f"{site}.csv" for site in SITES]
FUZZY = {"partition-coefficient", "xie-beni", "fuzzy-db", "fuzzy-db-squared", "osse"}
FUZZY |= {"fuzzy-objective"}


def run(*arguments: object) -> Any:
    ran = CliRunner().invoke(app, ["evaluate", "model.json", *map(str, arguments)])
    if ran.exception and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran


def found(*arguments: object) -> dict:
    ran = run(*arguments, "--json")
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


def test_scores_are_scikit_learn_s_by_site_and_in_all(model: Model, rows: pd.DataFrame) -> None:
    said = found(*FILES, "--label-column", "kind")
    by_site = [(rows[rows["site"] == site["name"]], site["scores"]) for site in said["sites"]]
    for own, scores in [(rows, said["scores"]), *by_site]:
        X, labels = own[COLUMNS], model.predict(own[COLUMNS])
        assert scores["calinski-harabasz"] == pytest.approx(sk.calinski_harabasz_score(X, labels))
        assert scores["davies-bouldin"] == pytest.approx(sk.davies_bouldin_score(X, labels))
        squared = sk.silhouette_score(X, labels, metric="sqeuclidean")
        assert scores["squared-silhouette"] == pytest.approx(squared)
        assert scores["ari"] == pytest.approx(sk.adjusted_rand_score(own["kind"], labels))
    hard = [name for name in METRICS if name not in FUZZY]
    assert list(said["scores"]) == [*hard, "squared-silhouette-by-chance"]
    assert "squared-silhouette-by-chance" not in said["sites"][0]["scores"]
    assert said["rounds"] == 2
    assert {site["rows"] for site in said["sites"]} == {40}


def test_one_file_of_all_sites_says_the_same(model: Model) -> None:
    apart = found(*FILES, "--label-column", "kind", "--set", "weight_column=weight")
    columns = ("--site-column", "site", "--label-column", "kind", "--set", "weight_column=weight")
    together = found("all.csv", *columns)
    assert together["scores"] == pytest.approx(apart["scores"])
    for one, other in zip(together["sites"], apart["sites"], strict=True):
        assert one["scores"] == pytest.approx(other["scores"]), one["name"]


def test_weights_count_as_repetitions(model: Model, rows: pd.DataFrame) -> None:
    repeated = rows.loc[rows.index.repeat(rows["weight"])]
    repeated.to_csv("repeated.csv", index=False)
    weighed = found(*FILES, "--set", "weight_column=weight")["scores"]
    assert weighed == pytest.approx(found("repeated.csv")["scores"])


def test_what_needs_labels_or_degrees_is_left_out_where_there_are_none(model: Model) -> None:
    hard = found(*FILES)["scores"]
    assert not hard.keys() & {"ari", "nmi", "purity", "mean-site-ari", "fuzzy-db", "xie-beni"}
    Model(model.centers, model.weights, model.columns, {"m": 1.5}).save("model.json")
    fuzzy = found(*FILES)["scores"]
    assert fuzzy.keys() - hard.keys() == FUZZY


def test_the_table_has_a_line_for_each_index_and_a_column_for_each_site(model: Model) -> None:
    lines = run(*FILES, "--label-column", "kind").stdout.splitlines()
    [header] = [line for line in lines if line.startswith("index")]
    assert header.split() == ["index", "better", "all", *SITES]
    shown = [line.split()[0] for line in lines if line]
    scores = found(*FILES, "--label-column", "kind")["scores"]
    first = ["squared-silhouette", "squared-silhouette-by-chance", "ari", "nmi", "purity"]
    assert shown[3:8] == first
    assert len(scores.keys() & set(shown)) == 12
    assert f"How good the clusters are ({len(scores) - 12} more rows: see --json)" in lines
    assert any(line.endswith("Under a site stands what it would find out alone.") for line in lines)
    assert "No row was held back." in lines
    said = found(*FILES, "--label-column", "kind")["meaning"]
    assert said[0].startswith(
        "Reasonably separated: the mean silhouette is about 0.54 (reasonable; "
    )
    assert set(said) <= set(lines)


def test_sites_that_do_not_fit_are_counted(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "64")
    shown = run(*FILES).stdout
    assert "How good the clusters are (2 more sites, 3 more rows: see" in shown
    assert max(map(len, shown.strip().split("\n\n")[0].splitlines())) <= 64
    monkeypatch.setenv("COLUMNS", "72")
    assert "How good the clusters are (1 more site, 3 more rows: see" in run(*FILES).stdout


def test_a_limit_is_named_and_what_it_holds_back_is_missing(model: Model) -> None:
    lines = [f"{30 + i},{20 - i % 3}" for i in range(5)] + [
        f"{43 + i},{27 + i % 2}" for i in range(4)
    ]
    Path("without.csv").write_text("\n".join(["age,bmi", *lines]))
    Path("north.csv").write_text("\n".join(["age,bmi", *lines, "66,24"]))
    held = found("north.csv", "--min-cluster-size", 3)
    assert held["scores"]["bic"] == pytest.approx(found("without.csv")["scores"]["bic"])
    assert held["sites"][0]["limits"] == [{"name": "MinClusterSize", "p": 3}]
    assert "of fewer than 3 of its rows" in run("north.csv", "--min-cluster-size", 3).stdout


def test_an_index_that_says_nothing_is_a_dash_and_null(model: Model) -> None:
    Model(model.centers[:1], np.ones(1), model.columns).save("model.json")
    assert found(*FILES)["scores"]["davies-bouldin"] is None
    shown = run(*FILES).stdout
    assert "– means that an index says nothing." in shown


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["north.csv", "--label-column", "x"], "site 'north' has no column 'x'; it has age, bmi"),
        (["north.csv", "--label-column", "age"], "--label-column 'age' is a column of the model"),
        (["north.csv", "--min-cluster-size", 0], "--min-cluster-size must be at least 1, not 0"),
        ([*FILES, "--site-column", "kind"], "--site-column is for one file of all sites, not for"),
        (["away.csv"], "site 'away': away.csv does not exist; check the path"),
        (["thin.csv"], "site 'thin' has no column 'bmi'; it has age"),
        (
            ["gap.csv", "--label-column", "kind"],
            "site 'gap', column 'kind', row 2 (line 3 of gap.csv): the label is missing; fill",
        ),
        (["north.csv", "--min-cluster-size", 41], "no site sent anything, every group of rows is"),
    ],
)
def test_bad_input_is_one_line(model: Model, arguments: list[object], line: str) -> None:
    Path("thin.csv").write_text("age\n1\n")
    Path("gap.csv").write_text("age,bmi,kind\n1,2,a\n3,4,\n")
    ran = run(*arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    [said] = ran.stderr.splitlines()
    assert said.startswith(f"error: {line}")
