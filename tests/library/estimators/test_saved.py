"""Estimators in files, and their clusters as data frames."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from typed import run

from fedcluster import (
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedKMeans,
    PreprocessingSpec,
)
from fedcluster.algorithms import FKM, Lloyd
from fedcluster.errors import InputError
from fedcluster.model import Model
from fedcluster.preprocessing import NumericColumn
from fedcluster.privacy import Groups
from fedcluster.selection import Rule

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(90, 3)) + 8 * RNG.integers(0, 3, 90)[:, None]
SITE = RNG.integers(0, 3, 90)
FRAME = pd.DataFrame(ROWS, columns=["age", "bmi", "dose"]).assign(
    ward=RNG.choice(["Cardio", "Neuro"], 90)
)
NUMBERS = FRAME.drop(columns="ward")
GAPS = FRAME.mask(RNG.random(FRAME.shape) < 0.1)

BOUNDS = dict.fromkeys(("age", "bmi", "dose"), (-9.0, 30.0))

MODELS: dict[str, tuple[Any, Any]] = {
    "tied": (FederatedGaussianMixture(3, covariance_type="tied", prepare="robust"), FRAME),
    "auto": (FederatedKMeans([2, 3, 4], rule=Rule("bic")), ROWS),
    "k-means": (FederatedKMeans(3), ROWS),
    "columns": (FederatedKMeans(3, algorithm="lloyd", n_init=2), NUMBERS),
    "prepared": (FederatedKMeans(3, prepare="standard"), FRAME),
    "specified": (FederatedKMeans(3, prepare=PreprocessingSpec("minmax", bounds=BOUNDS)), NUMBERS),
    "gaps": (FederatedKMeans(3, prepare=PreprocessingSpec(missing="ignore")), GAPS),
    "trimmed": (FederatedKMeans(3, trim=0.1), ROWS),
    "cosine": (FederatedKMeans(3, metric="cosine"), ROWS),
    "start": (FederatedKMeans(3, algorithm=Lloyd(), init=ROWS[:3]), ROWS),
    "fkm": (FederatedKMeans(3, algorithm=FKM(3)), ROWS),
    "groups": (FederatedKMeans(3, protection=Groups(5)), ROWS),
    "fuzzy": (FederatedFuzzyCMeans(3, m=1.5), ROWS),
    "mixture": (FederatedGaussianMixture(3, noise=True), ROWS),
    "means": (FederatedGaussianMixture(3, covariance_type="diag", means_init=ROWS[:3]), ROWS),
}


def fitted(name: str) -> tuple[Any, Any]:
    model, rows = MODELS[name]
    return clone(model).set_params(random_state=0).fit(rows, sites=SITE), rows


MADE = (
    *("cluster_centers_", "cluster_weights_", "inertia_", "n_clusters_", "n_iter_", "steps_"),
    *("n_features_in_", "centers_frame_"),
)
OF_MIXTURES = (
    *("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_", "noise_"),
    *("lower_bound_", "converged_", "n_components_"),
)


@pytest.mark.filterwarnings("ignore:.*groups")
@pytest.mark.parametrize("name", MODELS)
def test_what_is_loaded_is_what_was_saved_and_can_be_fitted_again(name: str, tmp_path: Path):
    model, rows = fitted(name)
    model.save(tmp_path / "model.json")
    loaded = type(model).load(tmp_path / "model.json")
    methods = ["predict", "transform", "score"]
    methods += ["predict_proba"] if hasattr(model, "predict_proba") else []
    for method in methods + (["bic"] if name == "mixture" else []):
        ours, theirs = (getattr(each, method)(rows) for each in (loaded, model))
        np.testing.assert_array_equal(ours, theirs, err_msg=method)
    for attribute in MADE + (OF_MIXTURES if name == "mixture" else ()):
        ours, theirs = (getattr(each, attribute) for each in (loaded, model))
        np.testing.assert_array_equal(ours, theirs, err_msg=attribute)
    names = getattr(model, "feature_names_in_", np.zeros(0)).tolist()
    assert getattr(loaded, "feature_names_in_", np.zeros(0)).tolist() == names
    assert repr(loaded.get_params()) == repr(model.get_params())
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "model.json").read_bytes()
    again = loaded.fit(rows, sites=SITE)
    assert again.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()


@pytest.mark.parametrize("more", [[], ["--fuzzy"], ["--model", "mixture"]])
def test_the_model_of_a_command_is_an_estimator(more: list[str], tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    NUMBERS.to_csv(path, index=False)
    assert run("fit", path, "-k", 3, *more, "--out", tmp_path / "out").exit_code == 0
    kinds: dict[str, Any] = {"--fuzzy": FederatedFuzzyCMeans, "--model": FederatedGaussianMixture}
    kind: Any = kinds.get(more[0]) if more else FederatedKMeans
    loaded = kind.load(tmp_path / "out")
    model = Model.load(tmp_path / "out")
    np.testing.assert_array_equal(loaded.predict(FRAME), model.predict(FRAME.iloc[:, :3]))
    assert loaded.random_state == 0
    assert loaded.get_params().get("n_clusters", loaded.get_params().get("n_components")) == 3


def test_what_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    with pytest.raises(NotFittedError):
        FederatedKMeans(2).save(path)

    def start(X: Any, k: int, random_state: Any) -> Any:
        return X[:k]

    @dataclass(frozen=True)
    class Mine(Lloyd):
        pass

    @dataclass(frozen=True)
    class Same:
        def names(self, names: Any) -> Any:
            return list(names)

        def check(self, width: int) -> None:
            pass

        def apply(self, X: Any) -> Any:
            return X

        def invert(self, X: Any) -> Any:
            return X

    for name, value, what in (
        ("init", start, "init is a function"),
        ("random_state", np.random.RandomState(0), "random_state is a RandomState"),
        ("algorithm", Mine(), "algorithm is an object of your own"),
        ("prepare", Same(), "prepare is an object of your own"),
        ("prepare", PreprocessingSpec(then=Same()), "prepare is an object of your own"),
    ):
        given: dict[str, Any] = {"algorithm": "lloyd", "random_state": 0, "init": ROWS[:3]}
        if name == "prepare":
            del given["init"]
        model = FederatedKMeans(3, **{**given, name: value}).fit(ROWS, sites=SITE)
        with pytest.raises(InputError, match=f"{what}, which no file can hold; save the clusters"):
            model.save(path)
    assert not path.exists()


def test_the_model_of_another_estimator_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    fitted("fuzzy")[0].save(path)
    with pytest.raises(InputError, match=r"of FederatedFuzzyCMeans: read it by FederatedFuzzyCM"):
        FederatedKMeans.load(path)
    content = json.loads(path.read_text())
    content["algorithm"]["prepare"] = {"name": "PreprocessingSpec", "scale": "huge"}
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"is damaged: 'prepare': scale must be one of"):
        FederatedFuzzyCMeans.load(path)


def test_centres_are_told_in_the_units_of_the_rows() -> None:
    model, rows = fitted("prepared")
    frame = model.centers_frame_
    assert frame.index.name == "cluster"
    assert list(frame.columns) == ["age", "bmi", "dose", "ward=Cardio", "ward=Neuro"]
    numbers = ["age", "bmi", "dose"]
    for cluster in range(3):
        own = rows[model.labels_ == cluster]
        apart = (frame.loc[cluster, numbers] - own[numbers].mean()).abs()
        assert (apart <= NumericColumn.finest * rows[numbers].std()).all()
        share = (own["ward"] == "Neuro").mean()
        assert frame.loc[cluster, "ward=Neuro"] == pytest.approx(share, rel=1e-12)
    sizes = np.bincount(model.labels_)
    assert model.profile_["size"].tolist() == sizes.tolist()
    np.testing.assert_allclose(model.profile_["share"], sizes / 90)
    assert list(model.profile_.columns) == ["size", "share", *frame.columns]
    with pytest.raises(NotFittedError):
        _ = FederatedKMeans(2).centers_frame_


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.full((2, 3), np.nan), "column 'x0', row 0: the value is missing"),
        (ROWS[:, :2], "X has 2 features, but FederatedKMeans is expecting 3"),
        ([["a", "b", "c"]], "column 'x0', row 0: 'a' is not a number"),
        (np.ones((2, 2, 3)), "Found array with dim 3"),
        (np.zeros((0, 3)), "Found array with 0 sample"),
        (ROWS + 1j, "Complex data not supported"),
    ],
)
def test_what_is_wrong_with_rows_to_predict_names_the_site(rows: Any, message: str) -> None:
    acts = [FederatedKMeans(3, random_state=0).fit(ROWS).predict]
    if "expecting" not in message:
        acts.append(FederatedKMeans(3).fit)
    for act in acts:
        with pytest.raises(ValueError, match=f"site 'south'[:,] {message}"):
            act({"north": ROWS, "south": rows})
