"""What combinations of two options have shown to be wrong, each by itself."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pairs.arrays import with_needs
from pairs.ways import invoke
from pairs.worlds import World, frames, job_of, secure

from fedcluster import Client, Data, LocalEngine, State
from fedcluster.engines._remote import RemoteEngine
from fedcluster.errors import InputError, SiteError
from fedcluster.federation._conduct import conduct
from fedcluster.jobs import Evaluate, Fit, execute
from fedcluster.model import Model
from fedcluster.privacy import Groups

ROWS = np.arange(12.0)[:, None]


class Silent:
    """A transport of a coordinator that is to send nothing."""

    def exchange(self, messages: object, enough: int) -> None:
        raise AssertionError("a site was asked")


def engine(protection: Groups | None = None) -> LocalEngine:
    return LocalEngine([Client(name, Data(ROWS), protection=protection) for name in "ab"])


@pytest.mark.parametrize("n_clusters", ["auto", 2])
def test_groups_that_leave_no_row_are_said_so(n_clusters: object) -> None:
    with pytest.raises(InputError, match="the sites tell of no row: each has fewer than"):
        execute(Fit(n_clusters), engine(Groups(min_rows=20)), columns=["x"])


def test_a_start_has_as_many_centres_as_there_are_clusters() -> None:
    start = State.at([[1.0], [9.0], [5.0]])
    with pytest.raises(InputError, match=r"start has shape \(3, 1\), but n_clusters=2"):
        execute(Fit(2, model="mixture", start=start), engine(), columns=["x"])


def test_rows_of_no_cluster_are_not_said_to_be_missing() -> None:
    """Those of a trimmed model whose clusters are far away."""
    trimmed = execute(Fit(2, trim=0.1), engine(), columns=["x"])
    result = trimmed.outcome.value
    model = Model(
        result.state.centers + 1e6,
        result.state.weights,
        ("x",),
        memory=dict(result.state.memory),
        assigned_by=result.algorithm,
    )
    assert set(model.predict(ROWS)) == {-1}
    with pytest.raises(SiteError, match="or belongs to no cluster of the model"):
        execute(Evaluate(model), engine(), columns=["x"])


def test_secure_sums_know_columns_of_text_from_the_first_question_on() -> None:
    """The size of all rows is asked for in the same introduction, and names columns alone."""
    c = with_needs("fit", ("engine", "secure"), ("text", "True"))
    world = World("fit", c, frames(c))
    told = secure(world, job_of(world)).introduce(columns=True)
    assert [{each.name: each.kind for each in site.columns}["town"] for site in told] == [
        "text"
    ] * 3


@pytest.mark.parametrize("bounds", [(0.0, 1.0), None])
def test_a_private_run_names_its_columns(tmp_path: Path, bounds: object) -> None:
    job = {"epsilon": 1.0, "n_clusters": 2, "bounds": bounds}
    content = {"job": "fit", "parameters": job, "columns": None, "sites": ["a"]}
    silent = RemoteEngine(Silent(), ["a"])  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=r"name them in --bounds, as in age=0:120, or by --columns"
    ):
        conduct(silent, {**content, "out": str(tmp_path / "out")}, tmp_path / "run")


def test_what_casts_a_doubt_is_everywhere_in_the_same_words(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    pd.DataFrame(rng.normal(size=(90, 2)), columns=["x", "y"]).to_csv(tmp_path / "a.csv")
    out = tmp_path / "out"
    status, said = invoke(
        "fit", tmp_path / "a.csv", "--columns=x,y", "-k5", "--max-iter=1", "-o", out
    )
    assert status == 0, said
    [line] = json.loads((out / "history.json").read_text())["warnings"]
    assert line.startswith("stopped at the limit of 1 round")
    assert f"warning: {line}" in said
    page = html.unescape(re.sub("<[^>]*>", "", (out / "report.html").read_text()))
    assert line in page
