"""What is said where the limit of rounds ends a fit, and that it is said only where it is true."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from typed import run

from fedcluster import (
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedKMeans,
    select_k,
)
from fedcluster.algorithms import FKM

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(0)
ROWS = {name: RNG.uniform(size=(150, 2)) for name in ("north", "south")}
UNLIKE = {name: rows * [1.0, 1000.0] for name, rows in ROWS.items()}
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


def test_more_starts_are_named_where_there_is_one_and_scales_where_columns_differ() -> None:
    model = FederatedKMeans(6, max_iter=1, tol=0, random_state=0)
    one = clone(model).set_params(algorithm="lloyd")
    assert "or n_init above 1" in said(one)[0]
    assert "n_init" not in said(one.set_params(n_init=4))[0]
    assert "prepare='standard', as columns differ much in scale" in said(model, UNLIKE)[0]
    assert "prepare" not in said(model)[0]
    assert "prepare" not in said(model.set_params(prepare="standard"), UNLIKE)[0]


@pytest.mark.parametrize("algorithm", ["fedavg", FKM(3)], ids=str)
def test_an_algorithm_without_an_end_is_not_blamed(algorithm: Any) -> None:
    assert not said(FederatedKMeans(3, algorithm=algorithm, max_iter=2, random_state=0))


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_a_k_that_was_ended_early_has_not_reached_the_limit() -> None:
    select_k(ROWS, range(1, 5), random_state=0)


@pytest.fixture(scope="module")
def moons() -> tuple[Any, Any]:
    """Rows at two sites of which k-means hides the shapes, and where each belongs."""
    X, y = make_moons(240, noise=0.05, random_state=0)
    return {"north": X[::2], "south": X[1::2]}, np.concatenate([y[::2], y[1::2]])


def test_each_call_that_a_choice_of_k_proposes_runs_and_helps(moons: Any) -> None:
    rows, y = moons
    hiding = FederatedKMeans("auto", random_state=0).fit(rows)
    assert hiding.selection_ is not None
    [line] = [each for each in hiding.selection_.warnings if "hides the shapes" in each]
    call = re.search(r"FederatedGaussianMixture\(.*?\)", line)
    assert call is not None
    model = eval(call[0], {"FederatedGaussianMixture": FederatedGaussianMixture})
    assert adjusted_rand_score(y, model.set_params(random_state=0).fit(rows).labels_) > 0.95


def written(folder: Path, sites: Any) -> list[str]:
    """The command that fits the rows of sites in files."""
    for name, rows in sites.items():
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header="x,y", comments="")
    return ["fit", *map(str, sorted(folder.glob("*.csv")))]


@pytest.mark.thorough
def test_each_option_that_a_fit_proposes_is_one_that_it_takes(moons: Any, tmp_path: Path) -> None:
    fit = written(tmp_path, {name: rows[::2] for name, rows in moons[0].items()})
    fit += ["-k", "2-4", "--out"]
    words = re.sub(r"\s+", " ", run(*fit, tmp_path / "out", "--model", "k-means").output)
    proposed = re.findall(r"(--[a-z-]+)(?: (\d+|auto|lloyd|merged|diag)\b)?", words)
    assert {"--model", "--min-cluster-size", "--algorithm"} <= {option for option, _ in proposed}
    for i, (option, value) in enumerate(dict.fromkeys(proposed)):
        typed = run(*fit, tmp_path / str(i), option, *([value] if value else []))
        assert typed.exit_code == 0, (option, value, typed.output)


@pytest.mark.parametrize("how", [{}, {"n_init": 4}, {"algorithm": "lloyd"}])
def test_each_way_on_that_a_limit_proposes_runs(how: dict[str, Any]) -> None:
    fit = FederatedKMeans(6, max_iter=1, tol=0, random_state=0, **how)
    [line] = said(fit, UNLIKE)
    ways: dict[str, dict[str, Any]] = {
        "a larger max_iter": {"max_iter": 100},
        "a tol above 0": {"tol": 1e-3},
        "n_init above 1": {"n_init": 2},
        "prepare='standard'": {"prepare": "standard"},
    }
    _, _, proposed = line.partition("; try ")
    found = {way for way in ways if way in proposed}
    assert len(found) == len(proposed.split(", or "))
    for way in found:
        said(clone(fit).set_params(**ways[way]), UNLIKE)


def test_the_command_names_its_options(tmp_path: Path) -> None:
    fit = written(tmp_path, ROWS)
    done = run(*fit, "-k", 6, "--set", "fit.max_iter=1", "--out", tmp_path / "out")
    assert done.exit_code == 0
    words = re.sub(r"\s+", " ", done.stderr)
    assert "stopped at the limit of 1 round, " in words
    assert "try a larger fit.max_iter, or a fit.tol above 0.0001" in words
