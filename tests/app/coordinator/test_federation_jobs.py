"""Jobs over a network say what the same commands say on one machine, to the last bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_federation import SITES, carried_out, content, engine, site_tomls, with_limits
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
        given = json.loads(json.dumps(content(terms.out, job, columns=terms.columns)))
        told.append(run_job(engine(trial), given, trial / "runs" / str(len(told))))
        return "run"

    monkeypatch.setattr(Coordinator, "begin", begin)
    monkeypatch.setattr(Coordinator, "wait", lambda *how: {"done": True, **told[-1]})
    return lambda *arguments: invoke("federation", "run", trial, *arguments)


@pytest.fixture
def both(trial: Path, over, tmp_path: Path):
    """Do a job on one machine and over a network; return a file of either, and what was said."""

    def done(kind: str, file: str, *options: object) -> tuple[dict, dict, str, str]:
        here, there = tmp_path / "here", tmp_path / "there"
        ran = [
            over(kind, *options, "--out", there),
            invoke(kind, *options, *site_tomls(trial), "--out", here),
        ]
        for status, said in ran:
            assert status == 0, said
        return read(here / file), read(there / file), ran[1][1], ran[0][1]

    return done


def read(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def steps_of(history: dict) -> set[str]:
    return {step for done in history["communication_rounds"] for step in done["tasks"]}


def adds_up(history: dict) -> None:
    """Every number that a site sent stands in an exchange."""
    numbers = [done["round"] for done in history["communication_rounds"]]
    assert numbers == [*range(1, history["rounds"] + 1)]
    for site in history["sites"]:
        sent = [done["values_sent"][site["name"]] for done in history["communication_rounds"]]
        assert sum(sent) == site["values_sent"] > 0


ADDS_UP = {
    "prepared": ["-k", 3],
    "one round": ["-k", 3, "--algorithm", "kfed"],
    "raw and fuzzy": ["-k", 3, "--scale", "none", "--set", "fit.m=2", "--set", "fit.max_iter=4"],
}


@pytest.mark.parametrize("options", ADDS_UP.values(), ids=ADDS_UP)
def test_every_number_that_was_sent_stands_in_an_exchange(trial, both, tmp_path, options) -> None:
    """And the list is the same bits over a network as on one machine."""
    here, there, *_ = both("fit", "history.json", *options)
    assert here["communication_rounds"] == there["communication_rounds"]
    for history in (here, there):
        adds_up(history)
        for site in history["sites"]:
            won = sum(done["values_sent"][site["name"]] for done in history["history"])
            assert won < site["values_sent"]  # which is why there is the list
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
    "prepared": ["-k", 3],
    "raw and fuzzy": ADDS_UP["raw and fuzzy"],
    "fuzzy": ["-k", 3, "--set", "fit.m=2", "--set", "fit.max_iter=4"],
    "columns": ["-k", 2, "--columns", "y", "--scale", "none"],
}
"""k-FED is not among them: it asks each site about all its rows."""


@pytest.mark.thorough
@pytest.mark.parametrize("options", IN_CHUNKS.values(), ids=IN_CHUNKS)
def test_rows_in_chunks_are_not_loaded_at_once(trial, both, many, tmp_path, options) -> None:
    """The start is found from sums alone, over a network as on one machine."""
    here, there, *_ = both("fit", "history.json", *options)
    assert here["communication_rounds"] == there["communication_rounds"]
    assert "VarianceTree" in steps_of(there)
    assert not steps_of(there) & {"SiteSummaries", "FKM"}
    here, there = (read(tmp_path / side / "model.json") for side in ("here", "there"))
    assert here["centers"] == there["centers"]
    assert here["columns"] == there["columns"]
    for site in SITES:
        labels = (trial / "sites" / site / "results" / "labels.csv").read_text()
        assert labels == (tmp_path / "here" / "labels" / f"{site}.csv").read_text()


@pytest.mark.thorough
def test_k_is_chosen_without_loading_rows_that_come_in_chunks(trial, both, many, tmp_path) -> None:
    here, there, *_ = both("select-k", "selection.json", "--k-max", 4)
    assert there["table"] == here["table"]
    assert invoke("fit", *site_tomls(trial), "-k", "2-4", "--out", tmp_path / "fit")[0] == 0


@pytest.mark.thorough
def test_a_resumed_job_starts_as_it_did(trial, tmp_path) -> None:
    """Though the rows that came in chunks are held in memory now."""
    told = []
    for values in (0, 1 << 20):
        hold_at_most(values, trial)
        told.append(carried_out(trial, tmp_path, fit_of(3, prepare=PreprocessingSpec())))
    assert {**told[0], "sites": None} == {**told[1], "sites": None}


@pytest.mark.thorough
def test_a_choice_of_k_and_scores_account_for_every_round_too(trial, over, both, model, tmp_path):
    here, there, *_ = both("select-k", "selection.json", "--k-max", 3)
    assert over("evaluate", model, "--out", tmp_path / "scores")[0] == 0
    assert invoke("fit", *site_tomls(trial), "-k", "2-4", "--out", tmp_path / "fit")[0] == 0
    history = read(tmp_path / "fit" / "history.json")
    for told in (here, there, read(tmp_path / "scores" / "scores.json"), history):
        adds_up(told)
    assert {"Missing", "Squares", "LeafMoments", "Lloyd", "GaussianMixture"} <= steps_of(history)
    assert sent_by(there) == sent_by(here)


def sent_by(told: dict) -> list[tuple[str, int]]:
    return [(site["name"], site["values_sent"]) for site in told["sites"]]


def test_a_site_that_was_missing_sent_nothing_in_that_exchange(trial: Path, tmp_path: Path) -> None:
    carried_out(trial, tmp_path, fit_of(3, participation=0.5, max_iter=6))
    for done in read(tmp_path / "out" / "history.json")["communication_rounds"]:
        assert sorted([*done["missing"], *done["values_sent"]]) == SITES


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        "",
        "--set select_k.rule=fuzzy-db",
        pytest.param(
            "--set select_k.rule=fuzzy-db --set select_k.averaging=avg_1", marks=pytest.mark.long
        ),
        pytest.param(
            "--set select_k.rule=davies-bouldin --set select_k.pick=elbow", marks=pytest.mark.long
        ),
        pytest.param("--set select_k.rule=xie-beni --set select_k.m=1.5", marks=pytest.mark.long),
        "--set select_k.rule=gap --set select_k.bounds=[[0,90],[10,40]] --scale none",
        "--set select_k.sums_only=true --seed 3",
        "--columns x --k-min 2",
    ],
)
def test_the_verdict_is_that_of_select_k_on_one_machine(both, tmp_path, options) -> None:
    """With all that it rests on, to the last bit; and it is shown in the same table."""
    here, there, seen, said = both("select-k", "selection.json", "--k-max", 4, *options.split())
    for key in ("n_clusters", "rule", "reason", "says", "warnings", "table"):
        assert there[key] == here[key], key
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
        ("--k-max 0", "--k-max must be at least 1, not 0"),
        ("--set select_k.bounds=[[0,9]]", "select_k.bounds are those of rows that are taken as"),
        (
            "--set select_k.bounds=[[0,1],[0,1],[0,1]] --scale none",
            "the bounds are 3 pairs, but there are 2 columns to cluster by",
        ),
    ],
)
def test_what_cannot_be_asked_is_one_line(over, tmp_path, options, line) -> None:
    status, said = over("select-k", *options.split(), "--out", tmp_path / "out")
    assert (status, line in said) == (2, True), said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def smallest(trial: Path, least: int) -> None:
    """Let the sites tell of no fewer rows."""
    for path in site_tomls(trial):
        text = path.read_text()
        assert "min_cluster_size = 2" in text
        path.write_text(text.replace("min_cluster_size = 2", f"min_cluster_size = {least}"))


def test_limits_that_let_no_mean_out_are_one_line_on_both_sides(trial, over, tmp_path) -> None:
    """The sites have rows for the clusters, and no group of them is large enough to be told of."""
    lines = [f"{i * i},{i % 4},a" for i in range(12)]
    for toml in site_tomls(trial):
        toml.with_name("rows.csv").write_text("\n".join(["x,y,kind", *lines]))
    smallest(trial, 11)
    line = "every group of rows is smaller than its site's limit"
    status, said = invoke("select-k", *site_tomls(trial))
    assert (status, line in said) == (2, True), said
    with pytest.raises(HeldBackError, match=line):
        carried_out(trial, tmp_path, SelectK(1, 7, prepare=PreprocessingSpec()))


@pytest.fixture
def model(trial: Path, tmp_path: Path) -> Path:
    """A model of these rows, whose own preparation they need."""
    status, said = invoke("fit", *site_tomls(trial), "-k", 3, "--out", tmp_path / "model")
    assert status == 0, said
    return tmp_path / "model" / "model.json"


def add_row(trial: Path, site: str, row: str) -> None:
    path = trial / "sites" / site / "rows.csv"
    path.write_text(path.read_text() + row + "\n")


@pytest.mark.thorough
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
    assert sent_by(there) == sent_by(here)
    assert "ari" in said
    for name in SITES:
        log = (trial / "sites" / name / "logs" / "audit.jsonl").read_text()
        assert "rare" not in log
        [line] = [line for line in map(json.loads, log.splitlines()) if "labels" in line]
        assert line["labels"]["texts"] == 2
    toml = trial / "sites" / "north" / "site.toml"
    assert "2 texts of labels, " in invoke("site", "log", toml)[1]


@pytest.mark.thorough
def test_two_models_are_crossed_as_on_one_machine(trial, both, model, tmp_path) -> None:
    """A pair of few rows is held back, and a row without a cluster counted."""
    options = ["-k", 4, "--columns", "x", "--set", "fit.trim=0.2"]
    status, said = invoke("fit", *site_tomls(trial), *options, "--out", tmp_path / "other")
    assert status == 0, said
    smallest(trial, 3)
    here, there, _, said = both("evaluate", "scores.json", model, "--beside", tmp_path / "other")
    assert there["beside"] == here["beside"]
    own, other = (Model.load(each) for each in (model, tmp_path / "other"))
    table = np.zeros((len(own.weights) + 1, 5))
    for name in SITES:
        rows = pd.read_csv(trial / "sites" / name / "rows.csv")
        mine = np.zeros_like(table)
        np.add.at(mine, (own.predict(rows), other.predict(rows)), 1)  # -1 is the last
        table += np.where(mine < 3, 0, mine)
    assert np.array_equal(there["beside"]["rows"], table)
    assert table[:, -1].any()
    assert there["beside"]["weight"] == 80 > table.sum()
    assert f"{80 - table.sum():.0f} rows in pairs that are too small" in " ".join(said.split())


def test_a_run_about_two_models_goes_on_after_each_round(trial, model, tmp_path) -> None:
    def again() -> dict:
        job = Evaluate(str(model), beside=str(model))
        return carried_out(trial, tmp_path, job, columns=["x", "y"])["beside"]

    first = again()
    for last in sorted((tmp_path / "run" / "communication_rounds").glob("exchange-*"))[::-1]:
        last.unlink()
        assert again() == first
    assert first["weight"] == 80


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


def test_a_missing_label_is_the_site_s_own_matter(trial, model, tmp_path) -> None:
    """The coordinator is told of which kind the error was, and nothing of the row."""
    add_row(trial, "south", "50.0,25.0,")
    with pytest.raises(SiteError, match=r"\(south: failed, see its log: InputError\)"):
        carried_out(trial, tmp_path, Evaluate(str(model), labels=True), columns=["x", "y"])


def test_limits_that_let_no_label_out_are_said(trial, over, model, tmp_path) -> None:
    smallest(trial, 39)
    status, said = over("evaluate", model, "--labels", "--out", tmp_path / "scores")
    assert status == 2
    assert "no site may tell a label: each stands for fewer rows than its site's limits" in said


def test_a_resumed_comparison_asks_for_no_label_again(trial, model, tmp_path) -> None:
    def done() -> dict:
        columns = list(Model.load(model).columns)
        job = Evaluate(str(model), labels=True)
        return {**carried_out(trial, tmp_path, job, columns=columns), "sites": None}

    first, log = done(), trial / "sites" / "north" / "logs" / "audit.jsonl"
    before = log.read_text()
    assert done() == first
    [line] = map(json.loads, log.read_text().removeprefix(before).splitlines())
    assert [task["task"] for task in line["tasks"]] == ["SiteSize()"]
    (tmp_path / "run" / "communication_rounds" / "sites-labels").write_bytes(b"{}\n")
    with pytest.raises(InputError, match="sites-labels is damaged"):
        done()


def test_a_sample_of_the_sites_is_the_same_as_on_one_machine(both) -> None:
    options = ["-k", 2, "--set", "fit.participation=0.5", "--set", "fit.max_iter=6", "--seed", 4]
    here, there, *_ = both("fit", "history.json", *options)
    assert here["communication_rounds"] == there["communication_rounds"]
    assert here["history"] == there["history"]


def test_a_preparation_is_among_the_exchanges(trial: Path, tmp_path: Path) -> None:
    job = fit_of(2, algorithm="kfed", prepare=PreprocessingSpec(missing="mean"))
    carried_out(trial, tmp_path, job)
    tasks = [done["tasks"] for done in read(tmp_path / "out/history.json")["communication_rounds"]]
    assert tasks == [{"Missing": 1, "Squares": 1}, {"KFed": 1}, {"Inertia": 1}]


def test_a_fit_is_continued_over_a_network_as_on_one_machine(both, model, tmp_path) -> None:
    """The model travels with the request; samples differ by a key of each site, clusters do not."""
    here, there, _, said = both("fit", "model.json", "--continue", model)
    assert "Clusters since the earlier fit" in said
    for key in ("centers", "names"):
        assert here[key] == there[key]
    now = [
        [(each["name"], each["rows_now"]) for each in read(path)["since"]["clusters"]]
        for path in (tmp_path / "there/history.json", tmp_path / "here/history.json")
    ]
    assert now[0] == now[1]
