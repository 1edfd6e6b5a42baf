"""The estimator of mixtures, and fit --model mixture: scikit-learn's names, texts, noise, files."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture as PooledMixture
from typer.testing import CliRunner

from fedcluster import Client, Data, FederatedGaussianMixture, LocalEngine, Model
from fedcluster.errors import InputError
from fedcluster.options.choices import COVARIANCES, Covariance
from fedcluster.privacy import Groups
from fedcluster.recipes import _mixtures
from fedcluster_app.cli import app

IRIS = load_iris().data
SITES = np.random.default_rng(0).integers(0, 4, len(IRIS))
every_type = pytest.mark.parametrize("kind", sorted(COVARIANCES))  # diag and full in make test
NAMES = ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_")


def fitted(kind: Covariance = "full", k: int = 3, **how: Any) -> FederatedGaussianMixture:
    model = FederatedGaussianMixture(k, covariance_type=kind, random_state=0, **how)
    return model.fit(IRIS, sites=SITES)


by_default = cache(fitted)
"""Of each shape one fit, which several tests look at and none changes."""


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@every_type
def test_from_a_given_start_all_is_scikit_learns(kind: Covariance) -> None:
    """Attributes and methods, where both have taken the same steps."""
    own = PooledMixture(3, covariance_type=kind, n_init=2, random_state=3, max_iter=2).fit(IRIS)
    start = {
        "weights_init": own.weights_,
        "means_init": own.means_,
        "precisions_init": own.precisions_,
    }
    how = {**start, "max_iter": 7, "tol": 1e-9, "reg_covar": 0.0}
    pooled, ours = PooledMixture(3, covariance_type=kind, **how).fit(IRIS), fitted(kind, **how)
    for name in NAMES:
        one, other = getattr(ours, name), getattr(pooled, name)
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9, err_msg=name)
    assert ours.lower_bound_ == pytest.approx(pooled.lower_bound_, rel=1e-9)
    assert (ours.n_iter_, ours.converged_) == (pooled.n_iter_, pooled.converged_)
    np.testing.assert_allclose(ours.predict_proba(IRIS), pooled.predict_proba(IRIS), atol=1e-8)
    np.testing.assert_array_equal(ours.predict(IRIS), pooled.predict(IRIS))
    np.testing.assert_array_equal(ours.labels_, pooled.predict(IRIS))
    np.testing.assert_allclose(ours.score_samples(IRIS), pooled.score_samples(IRIS), rtol=1e-8)
    assert ours.score(IRIS) == pytest.approx(pooled.score(IRIS))
    assert ours.bic(IRIS) == pytest.approx(pooled.bic(IRIS))
    assert ours.aic(IRIS) == pytest.approx(pooled.aic(IRIS))


@every_type
def test_the_default_is_as_likely_as_ten_starts_of_scikit_learn(kind: Covariance) -> None:
    pooled = PooledMixture(3, covariance_type=kind, n_init=10, random_state=0).fit(IRIS)
    assert by_default(kind).lower_bound_ > pooled.lower_bound_ - 1e-3


@pytest.mark.usefixtures("short_search")
def test_the_order_of_components_is_by_weight_and_belongs_to_all() -> None:
    """Means, covariances and shares are reordered together: densities add up to the score."""
    model = by_default("full")
    assert (np.diff(model.weights_) <= 0).all()
    parts = [
        weight * multivariate_normal.pdf(IRIS, mean, covariance)
        for weight, mean, covariance in zip(
            model.weights_, model.means_, model.covariances_, strict=True
        )
    ]
    np.testing.assert_allclose(model.score_samples(IRIS), np.log(np.sum(parts, axis=0)))


def test_drawn_rows_have_the_moments_of_the_mixture() -> None:
    for kind in COVARIANCES:
        model = by_default(kind)
        X, y = model.sample(20_000)
        assert X.shape == (20_000, 4)
        np.testing.assert_allclose(np.bincount(y) / 20_000, model.weights_, atol=0.02)
        mean = np.mean(X[y == 0], axis=0)
        np.testing.assert_allclose(mean, model.means_[0], atol=0.05)
        np.testing.assert_allclose(np.var(X), np.var(IRIS), rtol=0.05)


def test_noise_takes_what_no_component_explains() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 0.5, (200, 2)), rng.normal(9, 0.5, (200, 2))])
    X = np.concatenate([X, rng.uniform(-20, 30, (40, 2))])
    for noise in (True, 2500.0):
        model = FederatedGaussianMixture(2, noise=noise, random_state=0).fit([X[::2], X[1::2]])
        assert 0.07 < model.noise_ < 0.12
        assert model.weights_.sum() + model.noise_ == pytest.approx(1.0)
        far = model.predict([[-18.0, 25.0], [0.0, 0.0]])
        assert far.tolist()[0] == -1
        assert far[1] >= 0
        assert model.predict_proba([[-18.0, 25.0]]).sum() < 0.01
        assert np.linalg.det(model.covariances_).max() < 0.2
    density = 2500.0 * np.exp(model.score_samples([[-18.0, 25.0]]))
    assert density == pytest.approx(model.noise_, rel=1e-6)


def table(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Two classes, told by two columns of text and, weakly, by one of numbers."""
    rng = np.random.default_rng(seed)
    one = rng.random(n) < 0.4
    a = np.where(rng.random(n) < np.where(one, 0.9, 0.15), "yes", "no")
    b = np.where(one, rng.choice(["x", "y", "z"], n, p=[0.8, 0.1, 0.1]), rng.choice(["x", "z"], n))
    c = np.where(rng.random(n) < np.where(one, 0.85, 0.1), "high", "low")
    return pd.DataFrame({"a": a, "b": b, "c": c, "size": rng.normal(one * 2.0, 1.0), "one": one})


@pytest.mark.usefixtures("short_search")
def test_texts_have_shares_in_each_component() -> None:
    """As EM by hand over the levels, from where it ended: a fixed point."""
    rows = table()
    X = rows[["a", "b", "c", "size"]]
    model = FederatedGaussianMixture(
        2, covariance_type="diag", prepare="standard", tol=1e-9, max_iter=500, random_state=0
    )
    model.fit([X[:200], X[200:]])
    assert model.preprocessor_ is not None
    names = list(model.preprocessor_.names)
    tau = model.predict_proba(X)
    np.testing.assert_allclose(tau.mean(axis=0), model.weights_, atol=1e-4)
    for level in ("a=yes", "b=y", "c=low"):
        column, _, text = level.partition("=")
        shares = tau.T @ (X[column] == text).to_numpy(float) / tau.sum(axis=0)
        np.testing.assert_allclose(model.means_[:, names.index(level)], shares, atol=1e-4)
    agree = (model.labels_ == rows["one"].to_numpy()).mean()
    assert max(agree, 1 - agree) > 0.85
    drawn, _ = model.sample(50)
    assert set(np.unique(drawn[:, names.index("a=yes")])) == {0.0, 1.0}


@pytest.mark.usefixtures("short_search")
def test_latent_classes_where_all_columns_are_text() -> None:
    """The log likelihood is that of the products of shares, by hand."""
    X = table()[["a", "b", "c"]]
    model = FederatedGaussianMixture(
        2, prepare="standard", tol=1e-9, max_iter=500, random_state=0
    ).fit([X[:150], X[150:]])
    assert model.preprocessor_ is not None
    names, shares = list(model.preprocessor_.names), model.state_.memory["shares"]
    row = X.iloc[:1]
    product = np.prod(
        [shares[:, names.index(f"{column}={row[column].iloc[0]}")] for column in X], axis=0
    )
    expected = float(np.log(model.weights_ @ product))
    assert model.score_samples(row)[0] == pytest.approx(expected, rel=1e-6)
    tau = model.predict_proba(X)
    assert 0.05 < tau.mean() < 0.95
    assert ((tau > 0.01) & (tau < 0.99)).any()
    np.testing.assert_allclose(tau.mean(axis=0), model.weights_, atol=1e-4)
    expected_shares = tau.T @ (X["a"] == "yes").to_numpy(float) / tau.sum(axis=0)
    np.testing.assert_allclose(model.means_[:, names.index("a=yes")], expected_shares, atol=1e-4)
    assert model._n_parameters() == 1 + 2 * (1 + 2 + 1)  # noqa: SLF001


def test_groups_give_nearly_the_same_mixture() -> None:
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(0, 1, (300, 2)), rng.normal(6, 2, (300, 2))])
    site = rng.integers(0, 2, 600)
    whole, grouped = (
        FederatedGaussianMixture(2, covariance_type="diag", random_state=0, protection=p).fit(
            X, sites=site
        )
        for p in (None, Groups(5))
    )
    np.testing.assert_allclose(grouped.means_, whole.means_, atol=0.2)
    np.testing.assert_allclose(grouped.covariances_, whole.covariances_, rtol=0.25)


@pytest.mark.usefixtures("short_search")
def test_every_engine_gives_the_same_mixture() -> None:
    parts = {f"s{i}": Data(IRIS[i == SITES]) for i in range(4)}
    one = FederatedGaussianMixture(3, random_state=0).fit_clients(
        [Client(name, part, filters=()) for name, part in parts.items()]
    )
    engine = LocalEngine.from_table(Data(IRIS), sites=[f"s{i}" for i in SITES])
    other = FederatedGaussianMixture(3, random_state=0).fit_engine(engine)
    np.testing.assert_allclose(one.means_, other.means_, atol=1e-6)
    assert one.lower_bound_ == pytest.approx(other.lower_bound_, abs=1e-6)


@pytest.mark.usefixtures("short_search")
def test_the_model_file_labels_as_the_estimator(tmp_path: Path) -> None:
    for how in ({}, {"noise": True}, {"covariance_type": "tied"}):
        model = FederatedGaussianMixture(3, random_state=0, **how).fit(IRIS, sites=SITES)
        Model.from_estimator(model).save(tmp_path / "model.json")
        read = Model.load(tmp_path / "model.json")
        np.testing.assert_array_equal(read.predict(IRIS), model.labels_)
        np.testing.assert_array_equal(read.memberships(IRIS), model.predict_proba(IRIS))


def test_fit_and_predict_on_the_command_line(tmp_path: Path) -> None:
    for i in range(2):
        names = ["a", "b", "c", "d"]
        pd.DataFrame(IRIS[i::2], columns=names).to_csv(tmp_path / f"s{i}.csv", index=False)
    files = [str(tmp_path / f"s{i}.csv") for i in range(2)]
    asked = [
        "fit",
        *files,
        "-k",
        "3",
        "--model",
        "mixture",
        "--set",
        "fit.covariance_type=tied",
        "--scale",
        "none",
        "--out",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    content = json.loads((tmp_path / "out" / "model.json").read_text("utf-8"))
    assert content["assigned_by"]["name"] == "GaussianMixture"
    assert np.array(content["memory"]["precisions_cholesky"]).shape == (4, 4)
    done = CliRunner().invoke(
        app, ["predict", str(tmp_path / "out"), *files, "--out", str(tmp_path / "again")]
    )
    assert done.exit_code == 0, done.output
    one, other = (tmp_path / f / "s0.csv" for f in ("out/labels", "again"))
    assert one.read_text("utf-8") == other.read_text("utf-8")


@pytest.mark.usefixtures("short_search")
def test_k_is_chosen_and_then_a_mixture_of_it_is_fitted() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 1, (60, 2)) for c in (0, 12, 24)])
    model = FederatedGaussianMixture("auto", random_state=0).fit([X[::2], X[1::2]])
    assert model.n_components_ == model.n_clusters_ == 3
    assert model.covariances_.shape == (3, 2, 2)
    assert model.selection_ is not None
    assert model.selection_.n_clusters == 3


def test_clusters_of_any_shape_are_found_beyond_thirty_columns() -> None:
    """Covariances that are asked for are tried; a warning names others where rows are few."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 2
    X = 2.0 * y[:, None] + rng.normal(size=(90, 31))
    model = FederatedGaussianMixture("auto", merge=True, random_state=0).fit(X)
    assert model.covariances_.shape[1:] == (31, 31)
    assert model.selection_ is not None
    [*_, line] = model.selection_.warnings
    advice = re.search(r"(covariance_type=.*)", line)
    assert advice is not None
    other = clone(model).set_params(**eval(f"dict({advice[1]})")).fit(X)
    assert adjusted_rand_score(y, other.labels_) == 1.0
    few = FederatedGaussianMixture("auto", merge=True, random_state=0).fit(X[:2])
    assert few.n_clusters_ == 1


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"covariance_type": "round"}, "covariance_type must be one of"),
        ({"reg_covar": -1.0}, "reg_covar must be at least 0"),
        ({"noise": -2.0}, "noise must be True, False or a volume above 0"),
        ({"weights_init": np.ones(3)}, "need means_init"),
        ({"means_init": IRIS[:2]}, r"means_init has shape \(2, 4\)"),
        ({"means_init": IRIS[:3], "precisions_init": np.eye(3)}, "precisions_init has shape"),
        (
            {"means_init": IRIS[:3], "precisions_init": -np.repeat(np.eye(4)[None], 3, 0)},
            "must be positive definite",
        ),
        ({"n_components": 999}, "too few"),
    ],
)
def test_what_makes_no_sense_is_refused(how: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        FederatedGaussianMixture(**{"n_components": 3, **how}).fit(IRIS, sites=SITES)


def test_components_that_collapse_are_an_error_that_says_what_to_do() -> None:
    X = np.repeat([[0.0, 0.0], [5.0, 5.0]], 10, axis=0)
    with pytest.raises(InputError, match="raise reg_covar"):
        FederatedGaussianMixture(2, reg_covar=0.0, random_state=0).fit([X])
    FederatedGaussianMixture(2, random_state=0).fit([X])


def test_parameters_are_those_of_scikit_learn_and_a_clone_has_them() -> None:
    known = {"verbose", "verbose_interval", "warm_start", "init_params"}
    asked = set(PooledMixture().get_params()) - known
    model = FederatedGaussianMixture(4, covariance_type="tied", noise=3.0)
    assert asked <= set(model.get_params())
    assert clone(model).get_params() == model.get_params()


def test_a_search_ends_where_several_starts_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(12 * rng.normal(size=(5, 4)), 80, axis=0) + rng.normal(size=(400, 4))
    soon = FederatedGaussianMixture(5, random_state=0).fit(X)
    assert soon.n_iter_ <= 12
    assert "crossings" not in soon.stop_reason_
    monkeypatch.setattr(_mixtures, "ENOUGH", 99)
    late = FederatedGaussianMixture(5, random_state=0).fit(X)
    assert late.n_iter_ > soon.n_iter_
    assert "crossings" in late.stop_reason_
    assert soon.score(X) == pytest.approx(late.score(X), abs=1e-6)
