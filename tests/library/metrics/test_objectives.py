"""What a fit makes small has one name and one value wherever a person meets it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_planned_steps import BOXED, ROWS, Absolute, Mine
from typer.testing import CliRunner

from fedcluster import (
    Client,
    Data,
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedKMeans,
    LocalEngine,
)
from fedcluster.core import Column
from fedcluster.jobs import Evaluate, Fit, JobReport, execute, fit_of, model_of
from fedcluster.metrics.clusters import MEANINGS, REPORTED
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.texts import number
from fedcluster_app.cli import app
from fedcluster_app.report.job_files import content_of, write_job
from fedcluster_app.report.messages import objective

pytestmark = pytest.mark.usefixtures("short_searches")

CASES: dict[str, tuple[Fit, str, bool]] = {
    "k-means": (fit_of(2), "inertia", True),
    "k-FED": (fit_of(2, algorithm="kfed"), "inertia", True),
    "FKM": (fit_of(2, algorithm="fkm"), "inertia", True),
    "averaging": (fit_of(2, algorithm="fedavg"), "inertia", True),
    "directions": (fit_of(2, metric="cosine"), "inertia", True),
    "trimmed": (fit_of(2, trim=0.1), "inertia", True),
    "fuzzy": (fit_of(2, m=1.5), "fuzzy-objective", True),
    "incomplete": (fit_of(2, prepare=PreprocessingSpec(missing="ignore")), "present-inertia", True),
    "mixture": (fit_of(2, model="mixture"), "log-likelihood", True),
    "own": (fit_of(2, algorithm=Mine()), "Absolute(power=1.0)", True),
    "own, by its name": (
        fit_of(2, algorithm="test_planned_steps.Mine"),
        "Absolute(power=1.0)",
        True,
    ),
    "robust": (fit_of(2, robust=1), "robust-inertia", False),
    "private": (fit_of(2, **BOXED), "noisy-inertia", False),
    "a chosen k": (fit_of([2, 3], m=2.0), "fuzzy-objective", True),
}
"""A fit, the name of its objective, and whether `evaluate` can ask it again."""


def engine(*, missing: bool = False) -> LocalEngine:
    columns = (Column("x"), Column("y"))
    rows = {name: X.copy() for name, X in ROWS.items()}
    if missing:
        rows["a"][::7, 0] = np.nan
    return LocalEngine([Client(name, Data(X, columns=columns)) for name, X in rows.items()])


Fitted = tuple[JobReport, LocalEngine, str, bool]


@pytest.fixture(params=CASES.values(), ids=list(CASES), scope="module")
def fitted(request: pytest.FixtureRequest) -> Fitted:
    """A fit of each kind, with the sites, the name of its objective, and whether it scores it."""
    job, name, again = request.param
    sites = engine(missing=name == "present-inertia")
    return execute(job, sites, columns=["x", "y"]), sites, name, again


def told_value(name: str, report: JobReport) -> float:
    inertia = float(model_of(report).inertia)
    return -inertia if name == "log-likelihood" else inertia


def test_the_files_and_the_screen_have_one_name_and_one_value(fitted, tmp_path):
    report, _, name, _ = fitted
    shown = write_job(tmp_path, report, "study")
    history = json.loads((tmp_path / "history.json").read_text())
    kept = json.loads((tmp_path / "model.json").read_text())
    assert report.objective == history["objective"] == kept["algorithm"]["objective"] == name
    assert history["inertia"] == kept["inertia"]
    assert objective(shown) == f"{name} {number(told_value(name, report))}"

    page = (tmp_path / "report.html").read_text()
    by_round = name if name in MEANINGS else REPORTED
    assert f'<th scope="col">{by_round}</th>' in page
    assert f"<p>The {by_round} " in page
    assert f'<th scope="col">step</th><th scope="col">{by_round}</th>' in page
    assert f'<th scope="row">objective</th><td>{name}</td>' in page


def test_scores_of_the_model_have_the_same_name_and_value(fitted):
    report, sites, name, again = fitted
    job = Evaluate(model_of(report), algorithms=[Mine], n_references=0)
    scored = execute(job, sites, columns=["x", "y"])
    scores, value = scored.outcome.value, told_value(name, report)
    said = content_of(scored)["meaning"]
    told = [line for line in said if line.startswith("The fit itself tells")]
    assert np.isfinite(scores["inertia"])
    assert (name in scores) == again
    if again:
        assert scores[name] == pytest.approx(value, rel=1e-9)
        assert not told
    else:
        line = f"The fit itself tells {name} {number(value)}, which is {MEANINGS[name]}."
        assert told == [line]


def asked(job: Fit) -> tuple[LocalEngine, Model]:
    """Sites, and the model of a fit of their rows."""
    return (sites := engine()), model_of(execute(job, sites, columns=["x", "y"]))


def test_an_objective_of_ones_own_that_is_not_named_is_told_with_the_remedy():
    sites, model = asked(fit_of(2, algorithm=Mine()))
    scored = execute(Evaluate(model), sites, columns=["x", "y"])
    assert content_of(scored)["meaning"][-1] == (
        f"The fit itself tells Absolute(power=1.0) {number(model.inertia)}, which is an objective "
        "of your own: name its algorithm by --algorithm to score it again."
    )


def test_a_metric_that_is_named_beside_the_algorithm_is_scored_once():
    sites, model = asked(fit_of(2, algorithm=Mine()))
    job = Evaluate(model, metrics=[Absolute()], algorithms=[Mine])
    scored = execute(job, sites, columns=["x", "y"])
    assert scored.outcome.communication_rounds[0].steps.count("Absolute") == 1
    assert content_of(scored)["better"]["Absolute(power=1.0)"] == "lower"


def test_the_log_likelihood_of_a_mixture_with_noise_is_that_of_the_last_step_but_one():
    """A step never makes it smaller, and one below the tolerance changes it by less than that."""
    sites, model = asked(fit_of(2, model="mixture", noise=True))
    scores = execute(Evaluate(model), sites, columns=["x", "y"]).outcome.value
    assert 0 <= scores["log-likelihood"] + model.inertia <= 1e-4 * 240


ESTIMATORS: dict[str, tuple[Any, str, str]] = {
    "k-means": (FederatedKMeans(2, random_state=0), "inertia", "inertia"),
    "fuzzy": (FederatedFuzzyCMeans(2, random_state=0), "fuzzy-objective", "fuzzy-objective"),
    "mixture": (
        FederatedGaussianMixture(2, random_state=0),
        "log-likelihood",
        "negative log-likelihood",
    ),
    "own": (FederatedKMeans(2, algorithm=Mine(), random_state=0), "Absolute(power=1.0)", REPORTED),
    "robust": (FederatedKMeans(2, robust=1, random_state=0), "robust-inertia", "robust-inertia"),
}


@pytest.mark.parametrize(("estimator", "name", "axis"), ESTIMATORS.values(), ids=ESTIMATORS)
def test_estimators_and_their_plots_name_it(estimator, name, axis, tmp_path):
    plotting = pytest.importorskip("fedcluster.plotting")
    fitted = estimator.fit(ROWS)
    assert fitted.objective_ == name
    display = plotting.ConvergenceDisplay.from_estimator(fitted)
    assert display.ax_.get_ylabel() == axis
    if name not in MEANINGS:
        assert (
            Model.from_estimator(fitted).algorithm["objective"] == name
        )  # no file holds an own one
        return
    fitted.save(tmp_path / "model.json")
    read = type(fitted).load(tmp_path / "model.json")
    assert (read.objective_, read.inertia_) == (name, fitted.inertia_)


def test_both_commands_agree(tmp_path: Path):
    files, out = [tmp_path / f"{name}.csv" for name in ROWS], tmp_path / "out"
    for file, X in zip(files, ROWS.values(), strict=True):
        np.savetxt(file, X, delimiter=",", header="x,y", comments="")

    def run(*words: object) -> str:
        ran = CliRunner().invoke(app, [str(word) for word in words])
        assert ran.exit_code == 0, ran.output
        return ran.output

    own = "test_planned_steps.Mine"
    said = run("fit", "-k", 2, *files, "--algorithm", own, "--scale", "none", "--out", out)
    model = json.loads((out / "model.json").read_text())
    assert f"Absolute(power=1.0) {number(model['inertia'])}" in said
    assert "inertia" not in said
    told = run("evaluate", out, *files, "--set", f"fit.algorithm={own}", "--json")
    scores = json.loads(told)["scores"]
    assert scores["Absolute(power=1.0)"] == pytest.approx(model["inertia"], rel=1e-9)
    assert scores["inertia"] != pytest.approx(model["inertia"], rel=0.1)


def test_what_a_name_means_is_told_beside_the_scores():
    sites, model = asked(fit_of(2, m=2.0))
    said = content_of(execute(Evaluate(model), sites, columns=["x", "y"]))["meaning"]
    assert f"fuzzy-objective is {MEANINGS['fuzzy-objective']}." in said
