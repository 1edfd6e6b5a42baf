"""What is said where the limit of rounds ends a fit, and that it is said only where it is true."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from typer.testing import CliRunner

from fedcluster import FederatedFuzzyCMeans, FederatedKMeans, select_k
from fedcluster.algorithms import FKM
from fedcluster.cli import app

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(0)
ROWS = {name: RNG.uniform(size=(150, 2)) for name in ("north", "south")}
START = ROWS["north"][:6]


def said(estimator: Any, rows: Any = ROWS) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(rows)
    return [str(each.message) for each in caught if each.category is ConvergenceWarning]


def test_a_fit_that_the_limit_ends_says_what_to_try() -> None:
    model = FederatedKMeans(6, algorithm="lloyd", init=START, max_iter=2)
    [line] = said(model)
    moved = model.history_[-1]["shift"]
    assert line == (
        f"stopped at the limit of 2 rounds, centres still moved by up to {moved:.6g}; try a larger "
        "max_iter, or a tol above 0.0001"
    )
    assert not said(FederatedKMeans(6, algorithm="lloyd", init=START))


@pytest.mark.parametrize(
    "estimator",
    [
        FederatedKMeans(6, max_iter=1, random_state=0),
        FederatedKMeans(
            6, init="k-means++", n_init=4, max_iter=3, participation=0.5, tol=0, random_state=0
        ),
        FederatedFuzzyCMeans(6, max_iter=3, tol=1e-9, random_state=0),
        FederatedKMeans([2, 6], rule="inertia", max_iter=1, tol=0, random_state=0),
    ],
    ids=["auto", "sampled", "fuzzy", "k"],
)
def test_so_does_every_search(estimator: Any) -> None:
    [line] = said(estimator)
    assert line.startswith(f"stopped at the limit of {estimator.max_iter} round")
    assert "n_init" not in line  # there are many starts


def test_more_starts_are_named_where_there_is_one() -> None:
    one = FederatedKMeans(6, algorithm="lloyd", max_iter=1, tol=0, random_state=0)
    assert "or n_init above 1" in said(one)[0]
    assert "n_init" not in said(one.set_params(n_init=4))[0]


def test_scales_are_named_where_columns_differ() -> None:
    unlike = {name: rows * [1.0, 1000.0] for name, rows in ROWS.items()}
    model = FederatedKMeans(6, max_iter=1, tol=0, random_state=0)
    assert "prepare='standard', as columns differ much in scale" in said(model, unlike)[0]
    assert "prepare" not in said(model)[0]
    assert "prepare" not in said(model.set_params(prepare="standard"), unlike)[0]


@pytest.mark.parametrize("algorithm", ["fedavg", FKM(3)], ids=str)
def test_an_algorithm_without_an_end_is_not_blamed(algorithm: Any) -> None:
    assert not said(FederatedKMeans(3, algorithm=algorithm, max_iter=2, random_state=0))


def test_a_k_that_was_ended_early_has_not_reached_the_limit() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        select_k(ROWS, range(1, 5), random_state=0)


def test_the_command_names_its_options(tmp_path: Path) -> None:
    for name, rows in ROWS.items():
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="x,y", comments="")
    given = ["fit", *map(str, sorted(tmp_path.glob("*.csv"))), "-k", "6", "--max-iter", "1"]
    done = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0
    words = re.sub(r"\s+", " ", done.stderr)
    assert "stopped at the limit of 1 round, " in words
    assert "try a larger --max-iter, or a --tol above 0.0001" in words
