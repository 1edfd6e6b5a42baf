"""Every kind of fit, and the choice of k: the same bits here, over Flower and over FLARE."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import PATIENCE, RunningFederation, federation, read_json
from flares import RunningFlare, flare
from typer.testing import CliRunner

from fedcluster.jobs import Evaluate, Fit, Job, SelectK, fit_of
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.recipes.specifications import RunOptions
from fedcluster_app.cli import app
from fedcluster_app.coordinator.service_client import Coordinator

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

RNG = np.random.default_rng(0)
ROWS = {
    name: RNG.normal(size=(n, 2)) * 2 + RNG.integers(0, 4, (n, 1)) * [3.0, 5.0]
    for name, n in {"north": 60, "south": 80, "west": 70}.items()
}
PREPARED = PreprocessingSpec(missing="mean")
KINDS: dict[str, tuple[Job, list[object]]] = {
    "default": (fit_of(3), []),
    "prepared": (fit_of(3, prepare=PREPARED), []),
    "sums only": (fit_of(3, sums_only=True), ["--set", "fit.sums_only=true"]),
    "lloyd": (fit_of(3, algorithm="lloyd", init="summaries"), ["--set", "fit.init=summaries"]),
    "fkm": (fit_of(3, algorithm="fkm"), ["--algorithm", "fkm"]),
    "kfed": (fit_of(3, algorithm="kfed"), ["--algorithm", "kfed"]),
    "fedavg": (
        fit_of(3, algorithm="fedavg", max_iter=20),
        ["--algorithm", "fedavg", "--set", "fit.max_iter=20"],
    ),
    "fuzzy": (fit_of(3, m=2.0), ["--set", "fit.m=2"]),
    "ffcm": (fit_of(3, m=2.0, algorithm="ffcm"), ["--set", "fit.m=2", "--algorithm", "ffcm"]),
    "mixture": (
        fit_of(3, model="mixture", n_init=2),
        ["--model", "mixture", "--set", "fit.n_init=2"],
    ),
    "trimmed": (fit_of(3, trim=0.1), ["--set", "fit.trim=0.1"]),
    "cosine": (fit_of(3, metric="cosine"), ["--metric", "cosine"]),
    "select": (SelectK(k_max=4, prepare=PREPARED), ["--k-max", 4]),
}
"""Jobs, and the options of the command that does the same on one machine."""

OVER_FLARE = ("default", "prepared", "sums only", "kfed", "mixture", "select")
"""Those with messages of their own: FLARE takes some 10 s for each job."""


@pytest.fixture(scope="module", params=[federation, flare], ids=["flower", "flare"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningFederation]:
    with request.param(tmp_path_factory.mktemp("transport"), ROWS) as running:
        yield running


def test_every_algorithm_gives_the_same_bits(running: RunningFederation, tmp_path: Path) -> None:
    asked = [name for name in KINDS if isinstance(running, RunningFlare) <= (name in OVER_FLARE)]
    over(running, {name: KINDS[name][0] for name in asked}, tmp_path / "there")
    tomls = [running.site(name) / "site.toml" for name in ROWS]
    for name in asked:
        job, options = KINDS[name]
        there, here = tmp_path / "there" / name, tmp_path / "here" / name
        here_too(job, [*tomls, *options], here)
        assert told(job, there) == told(job, here), name


def over(running: RunningFederation, jobs: Mapping[str, Job], out: Path) -> None:
    """Have jobs done by the coordinator's queue, one after the other."""
    coordinator = Coordinator.at(running.folder)
    begun = {
        name: coordinator.begin(job, RunOptions(out / name, deadline=PATIENCE))
        for name, job in jobs.items()
    }
    for name, run in begun.items():
        coordinator.wait(run, out / name, lambda _said: None)


def here_too(job: Job, arguments: list[object], out: Path) -> None:
    """Do a job by a command on this machine; rows are scaled where the job prepares them."""
    how: list[object] = ["select-k"]
    if isinstance(job, Fit):
        how = ["fit", "-k", job.n_clusters, *([] if job.prepare else ["--scale", "none"])]
    ran = CliRunner().invoke(app, [*map(str, how), *map(str, arguments), "--out", str(out)])
    assert ran.exit_code == 0, ran.output


def test_two_models_are_crossed_with_the_same_counts(running, tmp_path):
    files = [tmp_path / f"{name}.json" for name in ("one", "other")]
    Model(np.array([[0.0, 1.0], [9.0, 14.0]]), np.ones(2), ("x", "y")).save(files[0])
    Model(np.array([[0.0], [7.0], [9.0]]), np.ones(3), ("x",)).save(files[1])
    job = Evaluate(str(files[0]), beside=str(files[1]))
    over(running, {"crossed": job}, tmp_path)
    tomls = [running.site(name) / "site.toml" for name in ROWS]
    given = [files[0], *tomls, "--beside", files[1], "--json"]
    ran = CliRunner().invoke(app, ["evaluate", *map(str, given)])
    assert ran.exit_code == 0, ran.output
    here = json.loads(ran.output[ran.output.index("{") :])["beside"]
    assert read_json(tmp_path / "crossed" / "scores.json")["beside"] == here
    assert np.sum(here["rows"]) > 0


def told(job: Job, folder: Path) -> dict[str, Any]:
    """The model or the choice of a folder, but for how parameters and sites were given."""
    if isinstance(job, SelectK):
        selection = read_json(folder / "selection.json")
        assert [site["name"] for site in selection.pop("sites")] == sorted(ROWS)
        return selection
    model = json.loads((folder / "model.json").read_text("utf-8"))
    model.pop("algorithm")
    return model
