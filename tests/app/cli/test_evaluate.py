"""``fedcluster evaluate`` as an analyst meets it."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typed
from sklearn import metrics as sk
from typed import cases, fails

from fedcluster.metrics import METRICS
from fedcluster.model import Model

COLUMNS = ["age", "bmi"]
SITES = ("north", "south", "west")


@pytest.fixture(scope="module")
def rows():
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


@pytest.fixture(autouse=True)
def model(rows, here):
    """The sites' files and a model of three clusters, here."""
    for site, own in rows.groupby("site"):
        own.drop(columns="site").to_csv(f"{site}.csv", index=False)
    rows.sample(frac=1, random_state=1).to_csv("all.csv", index=False)
    model = Model(np.array([[31.0, 20.0], [44.0, 27.0], [66.0, 24.0]]), np.ones(3), tuple(COLUMNS))
    model.save("model.json")
    return model


FILES = [f"{site}.csv" for site in SITES]
LABELS = ("--label-column", "kind")
WEIGHTS = ("--set", "weight_column=weight")
FUZZY = {"partition-coefficient", "xie-beni", "fuzzy-db", "fuzzy-db-squared", "osse"}
FUZZY |= {"fuzzy-objective"}


def run(*arguments):
    return typed.run("evaluate model.json", *arguments).stdout


def found(*arguments):
    return json.loads(run(*arguments, "--json"))


def test_scores_are_scikit_learn_s_by_site_and_in_all(model, rows):
    said = found(*FILES, *LABELS)
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


def test_one_file_of_all_sites_says_the_same():
    apart = found(*FILES, *LABELS, *WEIGHTS)
    together = found("all.csv", "--site-column", "site", *LABELS, *WEIGHTS)
    assert together["scores"] == pytest.approx(apart["scores"])
    for one, other in zip(together["sites"], apart["sites"], strict=True):
        assert one["scores"] == pytest.approx(other["scores"]), one["name"]


def test_weights_count_as_repetitions(rows):
    rows.loc[rows.index.repeat(rows["weight"])].to_csv("repeated.csv", index=False)
    weighed = found(*FILES, *WEIGHTS)["scores"]
    assert weighed == pytest.approx(found("repeated.csv")["scores"])


def test_what_needs_labels_or_degrees_is_left_out_where_there_are_none(model):
    hard = found(*FILES)["scores"]
    assert not hard.keys() & {"ari", "nmi", "purity", "mean-site-ari", *FUZZY}
    Model(model.centers, model.weights, model.columns, {"m": 1.5}).save("model.json")
    fuzzy = found(*FILES)["scores"]
    assert fuzzy.keys() - hard.keys() == FUZZY


def test_the_table_has_a_line_for_each_index_and_a_column_for_each_site():
    lines = run(*FILES, *LABELS).splitlines()
    [header] = [line for line in lines if line.startswith("index")]
    assert header.split() == ["index", "better", "all", *SITES]
    shown = [line.split()[0] for line in lines if line]
    said = found(*FILES, *LABELS)
    first = ["squared-silhouette", "squared-silhouette-by-chance", "ari", "nmi", "purity"]
    assert shown[3:8] == first
    assert len(said["scores"].keys() & set(shown)) == 12
    assert f"How good the clusters are ({len(said['scores']) - 12} more rows: see --json)" in lines
    assert any(line.endswith("Under a site stands what it would find out alone.") for line in lines)
    assert "No row was held back." in lines
    reason = "Reasonably separated: the mean silhouette is about 0.54 (reasonable; "
    assert said["meaning"][0].startswith(reason)
    assert set(said["meaning"]) <= set(lines)


def test_sites_that_do_not_fit_are_counted(monkeypatch):
    monkeypatch.setenv("COLUMNS", "64")
    shown = run(*FILES)
    assert "How good the clusters are (2 more sites, 3 more rows: see" in shown
    assert max(map(len, shown.strip().split("\n\n")[0].splitlines())) <= 64
    monkeypatch.setenv("COLUMNS", "72")
    assert "How good the clusters are (1 more site, 3 more rows: see" in run(*FILES)


def test_a_limit_is_named_and_what_it_holds_back_is_missing():
    lines = [f"{30 + i},{20 - i % 3}" for i in range(5)] + ["43,27", "44,28", "45,27", "46,28"]
    Path("without.csv").write_text("\n".join(["age,bmi", *lines]))
    Path("north.csv").write_text("\n".join(["age,bmi", *lines, "66,24"]))
    held = found("north.csv", "--min-cluster-size", 3)
    assert held["scores"]["bic"] == pytest.approx(found("without.csv")["scores"]["bic"])
    assert held["sites"][0]["limits"] == [{"name": "MinClusterSize", "p": 3}]
    assert "of fewer than 3 of its rows" in run("north.csv", "--min-cluster-size", 3)


def test_an_index_that_says_nothing_is_a_dash_and_null(model):
    Model(model.centers[:1], np.ones(1), model.columns).save("model.json")
    assert found(*FILES)["scores"]["davies-bouldin"] is None
    assert "– means that an index says nothing." in run(*FILES)


@pytest.mark.parametrize(
    ("arguments", "line"),
    cases("""
        gap.csv --label-column kind
            => site 'gap', column 'kind', row 2 (line 3 of gap.csv): the label is missing; fill
        north.csv --min-cluster-size 41 => no site sent anything, every group of rows is
        north.csv --label-column x => site 'north' has no column 'x'; it has age, bmi
        north.csv --label-column age => --label-column 'age' is a column of the model
        north.csv --min-cluster-size 0 => --min-cluster-size must be at least 1, not 0
        thin.csv => site 'thin' has no column 'bmi'; it has age
    """),
)
def test_bad_input_is_one_line(arguments, line):
    Path("thin.csv").write_text("age\n1\n")
    Path("gap.csv").write_text("age,bmi,kind\n1,2,a\n3,4,\n")
    assert fails(f"evaluate model.json {arguments}").startswith(line)
