"""Jobs over a network say what the same commands say on one machine, to the last bit."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_federation import SITES, content, engine, site_tomls, with_limits
from typed import invoke

from fedcluster.engines.client import Client
from fedcluster.errors import HeldBackError, InputError, SiteError
from fedcluster.jobs import Evaluate, SelectK, fit_of
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.coordinator.folder import create
from fedcluster_app.coordinator.run_job import run_job
from fedcluster_app.coordinator.service_client import Coordinator

pytestmark = pytest.mark.usefixtures("short_searches")

LABELLED = ('[source]\npath = "rows.csv"', 'label_column = "kind"\n\n[source]\npath = "rows.csv"')
GROUPS = {"a": (30, 20), "b": (45, 27), "c": (65, 24)}


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A federation whose sites have two columns of three groups of rows, and their labels."""
    create(tmp_path / "trial", SITES, "cluster.example.org:8443")
    rng = np.random.default_rng(0)
    for name, seen in zip(SITES, ("ab", "bc"), strict=True):
        kinds = rng.choice(list(seen), size=40)
        rows = np.array([GROUPS[kind] for kind in kinds]) + rng.normal(scale=[6, 2], size=(40, 2))
        lines = [f"{x},{y},{kind}" for (x, y), kind in zip(rows.tolist(), kinds, strict=True)]
        site = tmp_path / "trial" / "sites" / name
        (site / "rows.csv").write_text("\n".join(["x,y,kind", *lines, ""]))
        toml = (site / "site.toml").read_text()
        assert LABELLED[0] in toml
        (site / "site.toml").write_text(toml.replace(*LABELLED))
        with_limits(site)
    return tmp_path / "trial"


@pytest.fixture
def over(trial: Path, monkeypatch: pytest.MonkeyPatch):
    """Run a command for the coordinator, with its sites in this process in Flower's place."""
    told: list[dict] = []

    def begin(coordinator, job, terms):
        given = {"job": job.kind, "parameters": asdict(job), "columns": terms.columns}
        given = json.loads(json.dumps({**given, "out": str(terms.out)}))
        told.append(run_job(engine(trial), given, trial / "runs" / str(len(told))))
        return "run"

    monkeypatch.setattr(Coordinator, "begin", begin)
    monkeypatch.setattr(Coordinator, "wait", lambda *how: {"done": True, **told[-1]})
    return lambda *arguments: invoke("federation", "run", trial, *arguments)


def read(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def on_one_machine_and_over_a_network(trial, over, folder: Path, options) -> tuple[dict, dict]:
    """The histories of a fit both ways, whose exchanges are the same to the bit."""
    status, said = over("fit", *options, "--out", folder / "there")
    assert status == 0, said
    status, said = invoke("fit", *site_tomls(trial), *options, "--out", folder / "here")
    assert status == 0, said
    here, there = (read(folder / side / "history.json") for side in ("here", "there"))
    assert here["communication_rounds"] == there["communication_rounds"]
    return here, there


ADDS_UP = {
    "prepared": ["-k", 3],
    "one round": ["-k", 3, "--algorithm", "kfed"],
    "raw and fuzzy": ["-k", 3, "--scale", "none", "--set", "fit.m=2", "--set", "fit.max_iter=4"],
}


@pytest.mark.parametrize("options", ADDS_UP.values(), ids=ADDS_UP)
def test_every_number_that_was_sent_stands_in_an_exchange(trial, over, tmp_path, options) -> None:
    """And the list is the same bits over a network as on one machine."""
    here, there = on_one_machine_and_over_a_network(trial, over, tmp_path, options)
    for history in (here, there):
        assert [done["round"] for done in history["communication_rounds"]] == [
            *range(1, history["rounds"] + 1)
        ]
        for site in history["sites"]:
            sent = sum(
                done["values_sent"][site["name"]] for done in history["communication_rounds"]
            )
            assert sent == site["values_sent"] > 0
            won = sum(done["values_sent"][site["name"]] for done in history["history"])
            assert won < sent  # which is why there is the list
    _, said = invoke("fit", *site_tomls(trial), *options, "--out", tmp_path / "again", "--json")
    assert "communication_rounds" not in json.loads(said[said.index("{") :])  # after warnings


def hold_at_most(values: int, trial: Path) -> None:
    """Let the sites write how many values they hold in memory."""
    for path in site_tomls(trial):
        lines = [x for x in path.read_text().splitlines() if not x.startswith("values_in_memory")]
        path.write_text("\n".join([f"values_in_memory = {values}", *lines]))


@pytest.fixture
def many(trial: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows come in chunks, and whoever asks for all at once fails."""

    def refuse(client: Client) -> None:
        raise AssertionError("all rows were loaded at once")

    hold_at_most(0, trial)
    monkeypatch.setattr(Client, "data", property(refuse))


IN_CHUNKS = {
    **ADDS_UP,
    "fuzzy": ["-k", 3, "--set", "fit.m=2", "--set", "fit.max_iter=4"],
    "columns": ["--columns", "y"],
}
del IN_CHUNKS["one round"]  # k-FED asks each site about all its rows


@pytest.mark.parametrize("options", IN_CHUNKS.values(), ids=IN_CHUNKS)
def test_rows_in_chunks_are_not_loaded_at_once(trial, over, many, tmp_path, options) -> None:
    """The start is found from sums alone, over a network as on one machine."""
    options = options if "-k" in options else ["-k", 2, *options]
    here, there = on_one_machine_and_over_a_network(trial, over, tmp_path, options)
    steps = {step for done in there["communication_rounds"] for step in done["tasks"]}
    assert "VarianceTree" in steps
    assert not steps & {"SiteSummaries", "FKM"}
    here, there = (read(tmp_path / side / "model.json") for side in ("here", "there"))
    assert here["centers"] == there["centers"]
    for site in SITES:
        labels = (trial / "sites" / site / "results" / "labels.csv").read_text()
        assert labels == (tmp_path / "here" / "labels" / f"{site}.csv").read_text()


def test_k_is_chosen_without_loading_rows_that_come_in_chunks(trial, over, many, tmp_path) -> None:
    assert over("select-k", "--k-max", 4, "--out", tmp_path / "there")[0] == 0
    here = ["--k-max", 4, "--out", tmp_path / "here"]
    assert invoke("select-k", *site_tomls(trial), *here)[0] == 0
    assert invoke("fit", *site_tomls(trial), "-k", "2-4", "--out", tmp_path / "fit")[0] == 0
    one, other = (read(tmp_path / side / "selection.json") for side in ("here", "there"))
    assert other["table"] == one["table"]


def test_a_resumed_job_starts_as_it_did(trial, tmp_path) -> None:
    """Though the rows that came in chunks are held in memory now."""
    given = content(tmp_path / "out", fit_of(3, prepare=PreprocessingSpec()))
    hold_at_most(0, trial)
    first = run_job(engine(trial), given, tmp_path / "run")
    hold_at_most(1 << 20, trial)
    again = run_job(engine(trial), given, tmp_path / "run")
    assert {**first, "sites": None} == {**again, "sites": None}


def test_the_exchanges_of_a_choice_of_k_add_up_too(trial: Path, tmp_path: Path) -> None:
    invoke("fit", *site_tomls(trial), "-k", "2-4", "--out", tmp_path / "out")
    history = read(tmp_path / "out" / "history.json")
    steps = {step for done in history["communication_rounds"] for step in done["tasks"]}
    assert {"Missing", "Squares", "LeafMoments", "Lloyd", "GaussianMixture"} <= steps
    for site in history["sites"]:
        sent = [done["values_sent"][site["name"]] for done in history["communication_rounds"]]
        assert sum(sent) == site["values_sent"]


def test_a_choice_of_k_and_scores_account_for_every_round_too(trial, over, model, tmp_path):
    assert over("select-k", "--k-max", 3, "--out", tmp_path / "k")[0] == 0
    assert over("evaluate", model, "--out", tmp_path / "scores")[0] == 0
    for path in (tmp_path / "k" / "selection.json", tmp_path / "scores" / "scores.json"):
        told = read(path)
        assert [done["round"] for done in told["communication_rounds"]] == [
            *range(1, told["rounds"] + 1)
        ]
        for site in told["sites"]:
            sent = sum(done["values_sent"][site["name"]] for done in told["communication_rounds"])
            assert sent == site["values_sent"] > 0
    said = invoke("select-k", *site_tomls(trial), "--k-max", 3, "--json")[1]
    here = json.loads(said[said.index("{") :])  # after a line of warning
    there = read(tmp_path / "k" / "selection.json")["sites"]
    assert [(site["name"], site["values_sent"]) for site in there] == [
        (site["name"], site["values_sent"]) for site in here["sites"]
    ]


def test_a_site_that_was_missing_sent_nothing_in_that_exchange(trial: Path, tmp_path: Path) -> None:
    job = fit_of(3, participation=0.5, max_iter=6)
    run_job(engine(trial), content(tmp_path / "out", job), tmp_path / "run")
    for done in read(tmp_path / "out" / "history.json")["communication_rounds"]:
        assert sorted([*done["missing"], *done["values_sent"]]) == SITES


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--set", "select_k.rule=fuzzy-db"],
        pytest.param(
            ["--set", "select_k.rule=fuzzy-db", "--set", "select_k.averaging=avg_1"],
            marks=pytest.mark.long,
        ),
        pytest.param(
            ["--set", "select_k.rule=davies-bouldin", "--set", "select_k.pick=elbow"],
            marks=pytest.mark.long,
        ),
        pytest.param(
            ["--set", "select_k.rule=xie-beni", "--set", "select_k.m=1.5"], marks=pytest.mark.long
        ),
        ["--set=select_k.rule=gap", "--set=select_k.bounds=[[0,90],[10,40]]", "--scale", "none"],
        ["--set", "select_k.sums_only=true", "--seed", 3],
        ["--columns", "x", "--k-min", 2],
    ],
    ids=str,
)
def test_the_verdict_is_that_of_select_k_on_one_machine(trial, over, tmp_path, options) -> None:
    """With all that it rests on, to the last bit; and it is shown in the same table."""
    status, said = over("select-k", "--k-max", 4, *options, "--out", tmp_path / "there")
    assert status == 0, said
    status, seen = invoke(
        "select-k", *site_tomls(trial), "--k-max", 4, *options, "--out", tmp_path / "here"
    )
    assert status == 0, seen
    here, there = (read(tmp_path / side / "selection.json") for side in ("here", "there"))
    for key in ("n_clusters", "rule", "reason", "says"):
        assert there[key] == here[key], key
    assert there["warnings"] == here["warnings"]
    assert there["table"] == here["table"]
    pictures = [(tmp_path / side / "curves.png").read_bytes() for side in ("here", "there")]
    assert pictures[0] == pictures[1]
    shown = seen[seen.index("What each index says") : seen.index(there["reason"])]
    assert shown in said


def test_without_k_max_there_are_at_most_as_many_clusters_as_rows(
    trial, over, tmp_path, monkeypatch
) -> None:
    for module in ("recipes.specifications", "jobs._kinds"):
        monkeypatch.setattr(f"fedcluster.{module}.MOST_CLUSTERS", 12)
    for toml in site_tomls(trial):
        toml.with_name("rows.csv").write_text("x,y,kind\n1,2,a\n2,1,a\n9,9,b\n")
        toml.write_text(toml.read_text().replace("min_cluster_size = 2", "min_cluster_size = 1"))
    assert over("select-k", "--out", tmp_path / "out")[0] == 0
    table = read(tmp_path / "out" / "selection.json")["table"]
    assert [line["k"] for line in table] == [1, 2, 3, 4, 5, 6]
    status, said = over("select-k", "--k-max", 7, "--out", tmp_path / "more")
    assert status == 2
    assert "7 clusters are more than the rows that the sites tell of (6); ask for fewer" in said


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--set", "select_k.pick=elbow"],
            "select_k.pick = elbow is for a single index; name it by select_k.rule",
        ),
        (["--k-min", 5, "--k-max", 3], "--k-min 5 is above --k-max 3; the first k comes first"),
        (["--k-max", 0], "--k-max must be at least 1, not 0"),
        (["--set", "select_k.m=1"], "select_k.m must be above 1, not 1"),
        (
            ["--set", "select_k.bounds=[[0,9]]"],
            "select_k.bounds are those of rows that are taken as",
        ),
        (
            ["--set", "select_k.bounds=[[0,1],[0,1],[0,1]]", "--scale", "none"],
            "the bounds are 3 pairs, but there are 2 columns to cluster by",
        ),
        (["--seed", -1], "--seed must be from 0 to 4294967295, not -1"),
    ],
)
def test_what_cannot_be_asked_is_one_line(over, tmp_path, options, line) -> None:
    status, said = over("select-k", *options, "--out", tmp_path / "out")
    assert (status, line in said) == (2, True), said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_limits_that_let_no_mean_out_are_one_line_on_both_sides(trial, over, tmp_path) -> None:
    """The sites have rows for the clusters, and no group of them is large enough to be told of."""
    lines = [f"{i * i},{i % 4},a" for i in range(12)]
    for toml in site_tomls(trial):
        toml.with_name("rows.csv").write_text("\n".join(["x,y,kind", *lines]))
        old = toml.read_text()
        toml.write_text(re.sub("min_cluster_size = [0-9]+", "min_cluster_size = 11", old))
        assert toml.read_text() != old
    line = "every group of rows is smaller than its site's limit"
    status, said = invoke("select-k", *site_tomls(trial))
    assert (status, line in said) == (2, True), said
    with pytest.raises(HeldBackError, match=line):
        job = content(tmp_path / "out", SelectK(1, 7, prepare=PreprocessingSpec())) | {
            "job": "select-k"
        }
        run_job(engine(trial), job, tmp_path / "run")


@pytest.fixture
def model(trial: Path, tmp_path: Path) -> Path:
    """A model of these rows, whose own preparation they need."""
    status, said = invoke("fit", *site_tomls(trial), "-k", 3, "--out", tmp_path / "model")
    assert status == 0, said
    return tmp_path / "model" / "model.json"


def add_row(trial: Path, site: str, row: str) -> None:
    path = trial / "sites" / site / "rows.csv"
    path.write_text(path.read_text() + row + "\n")


def test_labels_are_compared_as_on_one_machine(trial, over, model, tmp_path) -> None:
    """A label of a single row is not told, and its row is missing in both, under the limits."""
    add_row(trial, "south", "50.0,25.0,rare")
    status, said = over("evaluate", model, "--labels", "--out", tmp_path / "scores")
    assert status == 0, said
    there = read(tmp_path / "scores" / "scores.json")
    here = json.loads(invoke("evaluate", model, *site_tomls(trial), "--json")[1])
    assert there["scores"] == here["scores"]
    assert {"ari", "nmi", "purity", "mean-site-ari"} <= there["scores"].keys()
    assert there["classes"] == ["a", "b", "c"]
    assert [site["values_sent"] for site in there["sites"]] == [
        site["values_sent"] for site in here["sites"]
    ]
    assert "ari" in said
    for name, told in zip(SITES, (2, 2), strict=True):
        log = (trial / "sites" / name / "logs" / "audit.jsonl").read_text()
        assert "rare" not in log
        [line] = [line for line in map(json.loads, log.splitlines()) if "labels" in line]
        assert line["labels"]["texts"] == told
    toml = trial / "sites" / "north" / "site.toml"
    assert "2 texts of labels, " in invoke("site", "log", toml)[1]


def test_two_models_are_crossed_as_on_one_machine(trial, over, model, tmp_path) -> None:
    """A pair of few rows is held back, and a row without a cluster counted."""
    options = ["-k", 4, "--columns", "x", "--set", "fit.trim=0.2"]
    status, said = invoke("fit", *site_tomls(trial), *options, "--out", tmp_path / "other")
    assert status == 0, said
    for path in site_tomls(trial):
        path.write_text(path.read_text().replace("min_cluster_size = 2", "min_cluster_size = 3"))
    beside = ["--beside", tmp_path / "other"]
    status, said = over("evaluate", model, *beside, "--out", tmp_path / "scores")
    assert status == 0, said
    there = read(tmp_path / "scores" / "scores.json")
    here = json.loads(invoke("evaluate", model, *site_tomls(trial), *beside, "--json")[1])
    assert there["beside"] == here["beside"]
    own, other = (Model.load(each) for each in (model, tmp_path / "other"))
    rows = [pd.read_csv(trial / "sites" / name / "rows.csv") for name in SITES]
    table = np.zeros((len(own.weights) + 1, 5))
    for each in rows:
        mine = np.zeros_like(table)
        np.add.at(mine, (own.predict(each), other.predict(each)), 1)  # -1 is the last
        table += np.where(mine < 3, 0, mine)
    assert np.array_equal(there["beside"]["rows"], table)
    assert table[:, -1].any()
    assert there["beside"]["weight"] == 80 > table.sum()
    assert f"{80 - table.sum():.0f} rows in pairs that are too small" in " ".join(said.split())


def test_a_run_about_two_models_goes_on_after_each_round(trial, model, tmp_path) -> None:
    job = Evaluate(str(model), beside=str(model))
    given = content(tmp_path / "out", job, columns=["x", "y"]) | {"job": "evaluate"}
    first = run_job(engine(trial), given, tmp_path / "run")
    for last in sorted((tmp_path / "run" / "communication_rounds").glob("exchange-*"))[::-1]:
        last.unlink()
        assert run_job(engine(trial), given, tmp_path / "run")["beside"] == first["beside"]
    assert first["beside"]["weight"] == 80


def test_without_being_asked_for_no_label_is_told(trial, over, model, tmp_path) -> None:
    assert over("evaluate", model, "--out", tmp_path / "scores")[0] == 0
    told = read(tmp_path / "scores" / "scores.json")
    assert not told.keys() & {"classes"} | told["scores"].keys() & {"ari", "mean-site-ari"}
    assert "labels" not in (trial / "sites" / "north" / "logs" / "audit.jsonl").read_text()


def test_a_site_without_labels_is_named(trial, over, model, tmp_path) -> None:
    toml = trial / "sites" / "south" / "site.toml"
    toml.write_text(toml.read_text().replace(*LABELLED[::-1]))
    status, said = over("evaluate", model, "--labels", "--out", tmp_path / "scores")
    assert status == 2
    assert said == (
        'error: no labels to compare with at south: write label_column = "NAME" in the site.toml '
        "there and start the site anew, or leave out --labels\n"
    )
    assert "Contingency" not in (trial / "sites" / "north" / "logs" / "audit.jsonl").read_text()


def test_a_missing_label_is_the_site_s_own_matter(trial, over, model, tmp_path) -> None:
    """The coordinator is told of which kind the error was, and nothing of the row."""
    add_row(trial, "south", "50.0,25.0,")
    given = content(tmp_path / "scores", Evaluate(str(model), labels=True), columns=["x", "y"])
    with pytest.raises(SiteError, match=r"\(south: failed, see its log: InputError\)"):
        run_job(engine(trial), given | {"job": "evaluate"}, tmp_path / "run")


def test_limits_that_let_no_label_out_are_said(trial, over, model, tmp_path) -> None:
    for path in site_tomls(trial):
        path.write_text(path.read_text().replace("min_cluster_size = 2", "min_cluster_size = 39"))
    status, said = over("evaluate", model, "--labels", "--out", tmp_path / "scores")
    assert status == 2
    assert "no site may tell a label: each stands for fewer rows than its site's limits" in said


def test_a_resumed_comparison_asks_for_no_label_again(trial, model, tmp_path) -> None:
    job = Evaluate(str(model), labels=True)
    columns = list(Model.load(model).columns)
    given = content(tmp_path / "out", job, columns=columns) | {"job": "evaluate"}
    first = run_job(engine(trial), given, tmp_path / "run")
    before = (trial / "sites" / "north" / "logs" / "audit.jsonl").read_text()
    again = run_job(engine(trial), given, tmp_path / "run")
    assert {**first, "sites": None} == {**again, "sites": None}
    after = (trial / "sites" / "north" / "logs" / "audit.jsonl").read_text().removeprefix(before)
    [line] = map(json.loads, after.splitlines())
    assert [task["task"] for task in line["tasks"]] == ["SiteSize()"]
    (tmp_path / "run" / "communication_rounds" / "sites-labels").write_bytes(b"{}\n")
    with pytest.raises(InputError, match="sites-labels is damaged"):
        run_job(engine(trial), given, tmp_path / "run")


def test_a_sample_of_the_sites_is_the_same_as_on_one_machine(trial, over, tmp_path) -> None:
    options = ["-k", 2, "--set", "fit.participation=0.5", "--set", "fit.max_iter=6", "--seed", 4]
    assert over("fit", *options, "--out", tmp_path / "there")[0] == 0
    assert invoke("fit", *site_tomls(trial), *options, "--out", tmp_path / "here")[0] == 0
    here, there = (read(tmp_path / side / "history.json") for side in ("here", "there"))
    assert here["communication_rounds"] == there["communication_rounds"]
    assert here["history"] == there["history"]


def test_a_preparation_is_among_the_exchanges(trial: Path, tmp_path: Path) -> None:
    job = fit_of(2, algorithm="kfed", prepare=PreprocessingSpec(missing="mean"))
    run_job(engine(trial), content(tmp_path / "out", job), tmp_path / "run")
    communication_rounds = read(tmp_path / "out" / "history.json")["communication_rounds"]
    assert [done["tasks"] for done in communication_rounds] == [
        {"Missing": 1, "Squares": 1},
        *({step: 1} for step in ("KFed", "Inertia")),
    ]


def test_a_fit_is_continued_over_a_network_as_on_one_machine(trial, over, model, tmp_path) -> None:
    """The model travels with the request; samples differ by a key of each site, clusters do not."""
    options = ["--continue", model]
    status, said = over("fit", *options, "--out", tmp_path / "next")
    assert status == 0, said
    assert "Clusters since the earlier fit" in said
    assert invoke("fit", *site_tomls(trial), *options, "--out", tmp_path / "here")[0] == 0
    one, other = (read(tmp_path / name / "model.json") for name in ("next", "here"))
    assert {key: one[key] for key in ("centers", "names")} == {
        key: other[key] for key in ("centers", "names")
    }
    counts = [
        [(each["name"], each["rows_now"]) for each in read(path)["since"]["clusters"]]
        for path in (tmp_path / "next" / "history.json", tmp_path / "here" / "history.json")
    ]
    assert counts[0] == counts[1]
