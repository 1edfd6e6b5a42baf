"""What an outsider brings: metrics and algorithms by dotted names, and engines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outsiders import IsotropicEM
from test_replies import Postman
from typed import invoke

from fedcluster import Client, Data, FederatedKMeans, LocalEngine, State, Summary
from fedcluster.core.ranges import CENTERS, Allowed, Array
from fedcluster.engines.wire import STEPS
from fedcluster.errors import InputError
from fedcluster.jobs import Evaluate, execute
from fedcluster.model import Model
from fedcluster.testing import check_laws
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder

EXTENDING = Path(__file__).parents[3] / "docs" / "extending.md"
ROWS = np.concatenate([np.random.default_rng(1).normal(c, 1.0, (40, 2)) for c in (0, 9)])


@dataclass(frozen=True)
class Positive:
    """The weight of rows whose first column is positive."""

    client_additive = server_additive = maximise = True
    allowed = Allowed(centers=CENTERS)

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        return 1, 1

    def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Summary:
        w = np.ones(len(data)) if data.sample_weight is None else data.sample_weight
        positive = np.array([[w[data.X[:, 0] > 0].sum()]])
        return Summary(positive, np.array([w.sum()]), np.array([float(len(data))]))

    def score(self, state: State, total: Summary) -> float:
        return float(total.sums[0, 0])


@dataclass(frozen=True)
class LogVariances(Positive):
    """One that declares the variances of the state's memory, and nothing else of it."""

    allowed = Allowed(centers=CENTERS, memory={"variances": Array(("k",))})

    def score(self, state: State, total: Summary) -> float:
        assert set(state.memory) == {"variances"}
        return float(np.log(state.memory["variances"]).sum())


def engine() -> LocalEngine:
    return LocalEngine([Client("a", Data(ROWS[::2])), Client("b", Data(ROWS[1::2]))])


def test_each_example_is_short_and_there_are_seven() -> None:
    """The lines of code of each section; that they work, their own tests say."""
    sections = EXTENDING.read_text("utf-8").split("\n## ")[1:]
    lengths = [sum(line[:3] in (">>>", "...") for line in each.splitlines()) for each in sections]
    assert sum(map(bool, lengths)) == 7
    assert max(lengths) < 80


def test_metrics_of_ones_own_are_scored_in_the_same_rounds() -> None:
    check_laws(Positive())
    fit = FederatedKMeans(2, algorithm=IsotropicEM(), random_state=0).fit({"a": ROWS})
    model = Model.from_estimator(fit)
    plain = execute(Evaluate(model), engine(), columns=["x0", "x1"]).outcome
    job = Evaluate(model, metrics=["test_outsiders.Positive", LogVariances()])
    report = execute(job, engine(), columns=["x0", "x1"])
    scores = dict(report.outcome.value)
    assert scores.pop("Positive()") == (ROWS[:, 0] > 0).sum()
    expected = np.log(model.memory["variances"]).sum()
    assert scores.pop("LogVariances()") == pytest.approx(expected)
    assert scores == pytest.approx(plain.value, rel=0, nan_ok=True)
    assert len(report.outcome.communication_rounds) == len(plain.communication_rounds)


MODEL = Model(ROWS[:2], np.ones(2), ("x0", "x1"))


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("no_module.Mine", "metric 'no_module.Mine' cannot be used: No module named"),
        ("outsiders.Nothing", "has no attribute 'Nothing'"),
        (IsotropicEM(), "IsotropicEM lacks maximise, score"),
    ],
)
def test_what_is_no_metric_is_refused(metric: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        execute(Evaluate(MODEL, metrics=[metric]), engine(), columns=["x0", "x1"])


def test_an_own_metric_is_asked_over_a_network_where_the_site_knows_it() -> None:
    steps: dict[str, Any] = {**STEPS, "Positive": Positive}
    site = Responder(Client("a", Data(ROWS)), columns=("x0", "x1"), steps=steps)
    remote = RemoteEngine(Postman({"a": site}), ["a"])
    report = execute(Evaluate(MODEL, metrics=[Positive()]), remote, columns=["x0", "x1"])
    assert report.outcome.value["Positive()"] == (ROWS[:, 0] > 0).sum()


def test_an_estimator_fits_any_engine_in_the_place_of_rows() -> None:
    model, other, of_table = (FederatedKMeans(2, random_state=0) for _ in range(3))
    model.fit(engine=engine())
    assert not hasattr(model, "labels_")
    centers = other.fit_engine(engine()).cluster_centers_
    np.testing.assert_array_equal(model.cluster_centers_, centers)
    of_table.fit(engine=LocalEngine.from_table(Data(ROWS), sites=np.arange(80) % 2))
    np.testing.assert_allclose(of_table.cluster_centers_, centers)
    for rows in ({"X": ROWS}, {"sites": ["a"] * 80}, {"groups": np.arange(80)}):
        with pytest.raises(ValueError, match="or the engine alone"):
            FederatedKMeans(2).fit(engine=engine(), **rows)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    for i, name in enumerate("ab"):
        np.save(f"{name}.npy", ROWS[i::2])
    return ["a.npy", "b.npy"]


def run(*arguments: object, code: int = 0) -> str:
    status, said = invoke("", *arguments)
    assert status == code, said
    return " ".join(said.split())


def test_dotted_names_on_the_command_line(files: list[str]) -> None:
    algorithm = ("--algorithm", "outsiders.IsotropicEM")
    run("fit", *files, "-k", 2, *algorithm, "--scale", "none", "--out", "fit")
    named = ("--set", "fit.algorithm=outsiders.IsotropicEM")
    run("predict", "fit", *files, *named, "--out", "new")
    for name in ("a.csv", "b.csv"):
        fitted, found = Path("fit/labels", name), Path("new", name)
        assert fitted.read_text().splitlines()[0] == "row,cluster,membership_0,membership_1"
        one, other = (np.loadtxt(at, delimiter=",", skiprows=1)[:, 1] for at in (fitted, found))
        np.testing.assert_array_equal(one, other)
    metric = ("--set", "evaluate.metrics=test_outsiders.Positive")
    run("evaluate", "fit", *files, *named, *metric, "--out", "scores")
    told = json.loads(Path("scores/scores.json").read_text())
    assert told["scores"]["Positive()"] == (ROWS[:, 0] > 0).sum()
    assert told["better"]["Positive()"] == "higher"
    said = run("predict", "fit", *files, "--out", "none", code=2)
    assert "rows are assigned by outsiders.IsotropicEM" in said


@dataclass(frozen=True)
class Beyond(Positive):
    """The weight of rows whose first column is above a number."""

    limit: float = 0.0
    of: str = "all"

    def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Summary:
        moved = Data(data.X - self.limit, data.sample_weight)
        return super().client_step(state, moved, rng)


def test_parameters_of_ones_own_on_the_command_line(files: list[str]) -> None:
    mine, alone = "outsiders.IsotropicEM(tol=0.125)", files[0]
    run("fit", alone, "-k", 2, "--algorithm", mine, "--scale", "none", "--out", "fit")
    made = json.loads(Path("fit/model.json").read_text())
    assert made["assigned_by"]["parameters"]["tol"] == 0.125
    assert made["algorithm"]["name"] == mine
    metric = ("--set", "evaluate.metrics=test_outsiders.Beyond(limit=5, of='all, (but) some')")
    for name in ("outsiders.IsotropicEM", mine):
        named = ("--set", f"fit.algorithm={name}")
        run("predict", "fit", alone, *named, "--out", "new", "--overwrite")
        run("evaluate", "fit", alone, *named, *metric, "--out", "s", "--overwrite")
        scores = json.loads(Path("s/scores.json").read_text())["scores"]
        [score] = [scores[name] for name in scores if name.startswith("Beyond(limit=5")]
        assert score == (ROWS[::2, 0] > 5).sum()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("(0.125)", "write it as my_module.Mine(beta=3, rule='mean')"),
        ("(tol=x)", "write it as my_module.Mine(beta=3, rule='mean')"),
        ("(tol=0.1", "write it as my_module.Mine(beta=3, rule='mean')"),
        ("(**{'tol': 1})", "write it as my_module.Mine(beta=3, rule='mean')"),
        ("(tol=__import__('os'))", "write it as my_module.Mine("),
        ("(beta=3)", "unexpected keyword argument 'beta'"),
    ],
)
def test_wrong_parameters_of_ones_own_are_refused(files: list[str], written, said) -> None:
    algorithm = ("--algorithm", f"outsiders.IsotropicEM{written}")
    assert said in run("fit", *files, "-k", 2, *algorithm, "--out", "fit", code=2)
    assert not Path("fit").exists()
