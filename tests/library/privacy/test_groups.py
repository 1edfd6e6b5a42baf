"""Whose rows they are: limits count persons, whichever way the rows are given."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from typed import fails, run

from fedcluster import Client, Data, FederatedFuzzyCMeans, FederatedKMeans, MinRows, select_k
from fedcluster.core import Column, Limit
from fedcluster.errors import HeldBackError
from fedcluster.privacy import Grouping, Groups, MinClusterSize
from fedcluster.recipes.fit import algorithm_of
from fedcluster.recipes.specifications import fit_of

RNG = np.random.default_rng(0)
SITE = np.repeat(["north", "south"], 40)
X = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]], 20, axis=0)
X = X + RNG.normal(size=X.shape) / 4
WHO = np.array([*["ann"] * 10, *(f"p{i}" for i in range(70))])  # ann has half of a cluster
FRAMES = {site: pd.DataFrame(X[site == SITE], columns=["a", "b"]) for site in ("north", "south")}
NAMES = {site: WHO[site == SITE] for site in FRAMES}


@pytest.mark.parametrize(
    "model",
    [
        FederatedKMeans(4, min_cluster_size=3, random_state=0),
        FederatedKMeans(4, algorithm="lloyd", min_cluster_size=3, random_state=0),
        FederatedKMeans(4, prepare="standard", min_cluster_size=3, random_state=0),
        FederatedKMeans("auto", min_cluster_size=3, random_state=0),
        FederatedFuzzyCMeans(4, min_cluster_size=3, random_state=0),
    ],
    ids=lambda model: re.sub(r"\s+", " ", str(model)),
)
def test_limits_count_persons(model: Any) -> None:
    """A few rows are enough, and not where all of them may be those of one person."""
    free = clone(model).fit(FRAMES)
    bound = clone(model).fit(FRAMES, groups=NAMES)
    assert bound.rows_held_back_["north"] > free.rows_held_back_["north"]


@pytest.mark.parametrize("prepare", [None, "standard"])
def test_every_form_of_groups_is_the_same(prepare: Any) -> None:
    model = FederatedKMeans(4, prepare=prepare, min_cluster_size=3, random_state=0)

    def found(**given: Any) -> tuple[dict[str, int], bytes]:
        fitted = clone(model).fit(**given)
        return fitted.rows_held_back_, fitted.cluster_centers_.tobytes()

    rows = X if prepare is None else pd.DataFrame(X, columns=["a", "b"])
    named = found(X=FRAMES, groups=NAMES)
    assert named[0]["north"] > 0
    codes = np.unique(WHO, return_inverse=True)[1]
    for whose in (WHO, pl.Series(WHO), pd.Series(WHO, dtype="category"), codes):
        assert found(X=rows, sites=SITE, groups=whose) == named
    turned = {"south": NAMES["south"], "north": NAMES["north"].tolist()}
    assert found(X=FRAMES, groups=turned) == named
    listed = found(X=list(FRAMES.values()), groups=list(NAMES.values()))
    names = {"north": "site-0", "south": "site-1"}
    frames, persons = ({names[site]: given[site] for site in names} for given in (FRAMES, NAMES))
    assert listed == found(X=frames, groups=persons)


def test_fit_predict_and_fit_transform_take_them() -> None:
    model = FederatedKMeans(4, min_cluster_size=3, random_state=0)
    labels = model.fit_predict(X, sites=SITE, groups=WHO)
    np.testing.assert_array_equal(labels, model.labels_)
    assert model.rows_held_back_["north"] > 0
    again = clone(model)
    assert again.fit_transform(X, sites=SITE, groups=WHO).shape == (80, 4)
    assert again.rows_held_back_ == model.rows_held_back_


def test_they_are_what_a_client_has() -> None:
    tables = {name: frame.to_numpy() for name, frame in FRAMES.items()}
    whose = {name: np.unique(NAMES[name], return_inverse=True)[1] for name in FRAMES}
    clients = [
        Client(name, Data(rows, groups=whose[name]), [MinClusterSize(3)])
        for name, rows in tables.items()
    ]
    model = FederatedKMeans(4, min_cluster_size=3, random_state=0)
    ours = clone(model).fit(tables, groups=NAMES)
    theirs = clone(model).set_params(min_cluster_size="auto").fit_clients(clients)
    np.testing.assert_array_equal(ours.cluster_centers_, theirs.cluster_centers_)
    assert ours.rows_held_back_ == theirs.rows_held_back_


def test_a_site_of_one_person_never_takes_part() -> None:
    """Persons are those of the rows that weigh something."""
    one = {"north": ["ann"] * 40, "south": NAMES["south"]}
    weight = np.where((WHO == "ann") | (SITE == "south"), 1.0, 0.0)
    ways: list[dict[str, Any]] = [
        {"X": FRAMES, "groups": one},
        {"X": X, "sites": SITE, "groups": WHO, "sample_weight": weight},
    ]
    for given in ways:
        model = FederatedKMeans(2, random_state=0)
        with pytest.warns(UserWarning, match="^north took no part"):
            assert model.fit(**given).values_sent_["north"] == 0
        assert [site.limits for site in model.sites_] == [(Limit.from_filter(MinRows(2)),)] * 2
        assert model.rows_held_back_["north"] == (10 if "sites" in given else 40)
    assert algorithm_of(fit_of(4)).min_cluster_size == 1


def test_what_is_too_small_to_start_from_is_said() -> None:
    """Smaller groups are asked for where there are too few; they may all be held back."""
    rows = {"a": np.array([[0.0], [1], [2], [50], [51], [52]]), "b": np.array([[0.5], [1], [49]])}
    whose = {"a": ["ann", "bob", "cid", "dan", "dan", "dan"], "b": ["eve", "fay", "gus"]}
    model = FederatedKMeans(2, min_cluster_size=2, random_state=0)
    assert np.isfinite(model.fit(rows, groups=whose).cluster_centers_).all()
    model.set_params(min_cluster_size=9)
    with pytest.raises(HeldBackError, match="no site sent anything, every group of rows"):
        model.fit(rows)


def test_select_k_takes_them() -> None:
    found = select_k(X, range(1, 6), sites=SITE, groups=WHO, random_state=0, min_cluster_size=5)
    assert found.n_clusters == 4


BY_SITE = {"X": FRAMES}
ONE = "groups must have one array for each of the sites ['north', 'south'], not "
WRONG: list[tuple[dict[str, Any], Any, str]] = [
    ({"X": X}, WHO[:7], "groups has shape (7,), but there are 80 rows"),
    ({"X": X}, NAMES, "groups must be one array, as X is one table"),
    ({"X": X, "sites": SITE}, WHO[:7], "groups has 7 entries for 80 rows"),
    ({"X": X, "sites": SITE}, "ann", "groups has 1 entries for 80 rows"),
    (
        {"X": X, "sites": SITE},
        WHO[:, None],
        "site 'north', groups has shape (40, 1), but there are 40",
    ),
    (BY_SITE, {"north": WHO[:40]}, ONE + "['north']"),
    (BY_SITE, WHO, ONE + "one ndarray"),
    (
        BY_SITE,
        NAMES | {"south": WHO[:39]},
        "site 'south', groups has shape (39,), but there are 40",
    ),
    ({"X": X}, [*WHO[:79].tolist(), None], "row 79: groups names no person"),
    (
        BY_SITE,
        NAMES | {"south": [*WHO[:3], " ", *WHO[:36]]},
        "site 'south', row 3: groups names no person",
    ),
    (
        BY_SITE,
        {"north": [1.0] * 40, "south": [1.0] * 39 + [np.nan]},
        "site 'south', row 39: groups names no person",
    ),
]


@pytest.mark.parametrize("prepare", [None, "standard"])
@pytest.mark.parametrize(("given", "groups", "message"), WRONG)
def test_wrong_groups_are_refused_in_one_line(given, groups, message, prepare) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        FederatedKMeans(2, prepare=prepare, random_state=0).fit(**given, groups=groups)
    assert "\n" not in str(error.value)


# The command line


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    for site, frame in FRAMES.items():
        frame.assign(who=NAMES[site]).to_csv(f"{site}.csv", index=False)
        Path(f"{site}.toml").write_text(
            f'name = "{site}"\ngroup_column = "who"\n[source]\npath = "{site}.csv"\n'
            "[limits]\nmin_rows = 2\nmin_cluster_size = 3\n"
        )
    together = pd.concat(FRAMES.values()).assign(who=WHO, at=SITE)
    together.to_csv("all.csv", index=False)
    return [f"{site}.csv" for site in FRAMES]


@pytest.mark.parametrize("scale", ["standard", "none"])
def test_fit_reads_a_column_of_persons(files: list[str], scale: str) -> None:
    persons, found = ["--group-column", "who", "--min-cluster-size", 3], list[Any]()
    for given in (
        [*files, *persons],
        ["all.csv", "--site-column", "at", *persons],
        ["north.toml", "south.toml"],
    ):
        out = Path(f"out-{len(found)}")
        ran = run("fit", *given, "-k", 4, "--scale", scale, "--out", out)
        assert ran.exit_code == 0, ran.stderr
        history, model = (json.loads((out / f"{n}.json").read_text()) for n in ("history", "model"))
        found.append((model["centers"], [site["rows_held_back"] for site in history["sites"]]))
        assert model["columns"] == ["a", "b"]
    assert found[0] == found[1] == found[2]
    assert found[0][1][0] > 0


def test_evaluate_and_select_k_read_it_too(files: list[str]) -> None:
    run("fit", *files, "-k", 4, "--columns", "a,b", "--out", "out")
    whose = ["--group-column", "who", "--min-cluster-size", 15]
    told, one, free = (
        json.loads(run("evaluate", "out/model.json", *given, "--json").stdout)["sites"]
        for given in (
            (*files, *whose),
            ("all.csv", "--site-column", "at", *whose),
            (*files, *whose[2:]),
        )
    )
    assert [site["rows_held_back"] for site in told] == [site["rows_held_back"] for site in one]
    assert told[0]["rows_held_back"] > free[0]["rows_held_back"]
    chosen = run("select-k", *files, "--k-max", 5, "--group-column", "who", "--scale", "none")
    assert (chosen.exit_code, chosen.stderr) == (0, "")  # names are no column to cluster by


def test_a_wrong_column_of_persons_is_one_line(files: list[str]) -> None:
    fit = ["fit", *files, "-k", 2, "--out", "out", "--group-column"]
    assert fails(*fit, "nobody") == "site 'north' has no column 'nobody'; it has a, b, who"
    assert fails(*fit, "a", "--columns", "a,b").startswith("--group-column 'a' is among --columns")
    said = fails("fit", "north.toml", "-k", 2, "--out", "out", "--group-column", "who")
    assert said == "--group-column is what each site file says itself: leave it out"
    Path("north.csv").write_text("a,b,who\n1,2,x\n3,4,\n")
    assert "column 'who', row 2 (line 3 of north.csv): it is not said whose row" in fails(
        *fit, "who"
    )


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_rows_that_wait_for_a_group_tell_nothing(seed, persons, tmp_path):
    """Neither by a text or label that enough rows have with them, nor by decimals or a gap."""
    rng = np.random.default_rng(seed)
    n, p, new = 60, 5, int(rng.integers(1, 5))
    values = rng.normal(50, 9, (n + new, 2)).round(1)
    values[:n, 1] = np.nan if seed % 3 == 0 else values[:n, 1]
    values[n:, 0] += [0.0, 0.25, 1 / 3][seed % 3]
    values[n:, 1] = values[n:, 1] if seed % 2 else np.nan
    names = np.array(["often", "usual", "seldom"])
    text, label = rng.integers(0, 2, (2, n + new))
    text[: p - 1], text[n:], label[p - new : p], label[n:] = 2, 2, 2, 2

    def told(rows: slice) -> tuple[object, ...]:
        X = np.column_stack([values, text])[rows]
        columns = (Column("a"), Column("b"), Column("town", "text", tuple(names)))
        ids = np.arange(n + new)[rows] if persons else None
        data = Data(X, None, names[label[rows]], columns, ids)
        client = Client("s", data, (), Grouping(Groups(p=p), tmp_path / "s.groups"))
        seen: Any = client.data
        shares = {j: each.toarray().tobytes() for j, each in seen.grouped.shares.items()}
        facts = client.describe(), client.classes(), seen.X.tobytes(), seen.sample_weight.tobytes()
        return *facts, shares, seen.grouped.labels.tobytes(), seen.grouped.scatter

    before = told(slice(n))
    assert told(slice(None)) == before
    assert before[1]
