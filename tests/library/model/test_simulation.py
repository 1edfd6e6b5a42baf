"""Rows drawn from a model alone: they are shaped like the sites', and hold its clusters."""

from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score
from typed import fails, run

from fedcluster import (
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedKMeans,
    Model,
    PreprocessingSpec,
)
from fedcluster.errors import InputError
from fedcluster.model.simulation import not_known

pytestmark = pytest.mark.usefixtures("short_searches")


def rows(seed: int = 0, *, offsets: bool = False) -> dict[str, pd.DataFrame]:
    """Three sites' rows of three kinds, in numbers, texts, counts, dates and gaps."""
    rng = np.random.default_rng(seed)
    tables = {}
    for place, name in enumerate(("north", "south", "west")):
        z = rng.choice(3, 240 - 60 * place, p=np.roll([0.5, 0.3, 0.2], place))
        shared = rng.normal(size=len(z))
        off = 25.0 * (place == 2) * offsets
        made = {
            "ward": np.where(rng.random(len(z)) < 0.6, np.array(["a", "b", "c, d"])[z], "a"),
            "glucose": np.array([90.0, 130, 170])[z] + 8 * shared + off,
            "lactate": np.array([1.0, 4.0, 2.0])[z] + 0.2 * shared + rng.normal(0, 0.2, len(z)),
            "smoker": (rng.random(len(z)) < np.array([0.1, 0.9, 0.5])[z]).astype(int),
            "stay": np.exp(np.array([1.0, 2.0, 4.0])[z] + rng.normal(0, 0.3, len(z))),
        }
        days = (3000 * z + rng.normal(0, 600, len(z))).astype("timedelta64[D]")
        table = pd.DataFrame(made).assign(born=np.datetime64("1950-01-01") + days)
        table.loc[rng.random(len(z)) < 0.1, "lactate"] = np.nan
        tables[name] = table
    return tables


DATES = {"born": "age:2020-01-01"}
STANDARD = {"missing": "mean", "dates": DATES}


LOG = {"log": ("stay",)}
BOUNDS = {"glucose": (40.0, 260.0), "lactate": (0.0, 8.0), "smoker": (0, 1), "stay": (0.0, 120.0)}
WITHIN = BOUNDS | {"born": (0.0, 120.0)}


def kmeans(k: Any = 3, prepare: Any = None, kind: Any = FederatedKMeans, **how: Any) -> Any:
    spec = PreprocessingSpec(**STANDARD | (prepare or {}))
    return kind(k, prepare=spec, random_state=0, **how)


KINDS: dict[str, Callable[[], Any]] = {
    "adjusted": lambda: kmeans(prepare={"adjust": "site"} | LOG),
    "full": lambda: kmeans(3, LOG, FederatedGaussianMixture, covariance_type="full"),
    "standard": kmeans,
    "log": lambda: kmeans(3, LOG),
    "robust": lambda: kmeans(3, {"scale": "robust"} | LOG),
    "minmax": lambda: kmeans(3, {"scale": "minmax", "bounds": WITHIN}),
    "gaps": lambda: kmeans(3, {"missing": "ignore"}),
    "components": lambda: kmeans(3, {"pca": 3}),
    "weights": lambda: kmeans(3, {"weights": {"glucose": 4.0}}),
    "raw": lambda: kmeans(3, {"scale": "none", "missing": "drop"}),
    "fuzzy": lambda: kmeans(kind=FederatedFuzzyCMeans),
    "trimmed": lambda: kmeans(trim=0.05),
    "grouped": lambda: kmeans(min_cluster_size=5),
    "auto": lambda: kmeans("auto", LOG),
    "private": lambda: FederatedKMeans(3, epsilon=20.0, delta=1e-5, bounds=BOUNDS, random_state=0),
    "tied": lambda: kmeans(3, LOG, FederatedGaussianMixture, covariance_type="tied"),
    "diag": lambda: kmeans(3, LOG, FederatedGaussianMixture, covariance_type="diag"),
    "spherical": lambda: kmeans(3, LOG, FederatedGaussianMixture, covariance_type="spherical"),
}


def fitted(kind: str, tables: dict[str, pd.DataFrame] | None = None) -> Any:
    tables = tables or rows(offsets=kind == "adjusted")
    if kind == "private":
        tables = {site: table[list(BOUNDS)].dropna() for site, table in tables.items()}
    return KINDS[kind]().fit(tables)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_to_drawn_rows_finds_the_clusters_again(kind: str) -> None:
    """Those that they were drawn from, as well as the model itself labels them."""
    own = fitted(kind)
    model = Model.from_estimator(own)
    if kind == "adjusted":  # no offset makes 0 and 1 unlike themselves
        np.testing.assert_array_equal(model.predict(rows(offsets=True)), own.labels_)
    tables, labels = model.simulate(seed=1)
    told = np.concatenate([*labels.values()])
    drawn = {site: pd.DataFrame(table) for site, table in tables.items()}
    assert [tuple(t.columns) for t in drawn.values()] == [model.columns] * 3
    assert adjusted_rand_score(told, model.predict(drawn)) > 0.9
    assert adjusted_rand_score(told, fitted(kind, drawn).labels_) > 0.9


def test_drawn_columns_are_as_those_of_files() -> None:
    """Texts of the model, 0 and 1, dates, no negative logarithms; offsets as wide as the fit's."""
    given = rows(offsets=True)
    every = pd.concat([*given.values()])
    model = Model.from_estimator(kmeans(3, LOG).fit(given))
    tables, _ = model.simulate(400)
    drawn = pd.concat([*map(pd.DataFrame, tables.values())])
    assert set(drawn["ward"]) == set(every["ward"])
    assert set(drawn["smoker"]) == {0.0, 1.0}
    assert pd.to_datetime(drawn["born"]).dt.year.between(1925, 2000).all()
    assert drawn["stay"].min() >= 0
    np.testing.assert_allclose(drawn["smoker"].mean(), every["smoker"].mean(), atol=0.06)
    for name in ("glucose", "lactate"):
        assert drawn[name].std() == pytest.approx(every[name].std(), rel=0.12)
        np.testing.assert_array_equal(drawn[name], drawn[name].round(2))
    assert (model.simulate(400)[0]["west"]["glucose"] == tables["west"]["glucose"]).all()
    assert (model.simulate(400, seed=1)[0]["west"]["glucose"] != tables["west"]["glucose"]).any()
    adjusted = Model.from_estimator(fitted("adjusted"))
    assert adjusted.by_name.effects is not None
    smoker = np.concatenate([table["smoker"] for table in adjusted.simulate(400)[0].values()])
    assert {*smoker} == {0.0, 1.0}
    np.testing.assert_allclose(smoker.mean(), every["smoker"].mean(), atol=0.06)
    means = [
        t["glucose"].mean() for seed in range(40) for t in adjusted.simulate(30, seed)[0].values()
    ]
    wanted = np.array(adjusted.by_name.effects.spread)[0]
    assert np.var(means) == pytest.approx(wanted * 2 / 3, rel=0.5)
    with pytest.raises(InputError, match="at least 1 row, not 0"):
        model.simulate(0)


def test_a_model_of_centres_alone_is_as_wide_as_these_are_apart() -> None:
    """A quarter of the distance of the nearest two, and said; without centres, it is refused."""
    model = Model(np.array([[0.0], [8.0], [80.0]]), np.array([5.0, 3.0, 0.0]), ("age",))
    tables, labels = model.simulate(4_000)
    assert tables["rows"]["age"][labels["rows"] == 1].std() == pytest.approx(2.0, rel=0.1)
    assert set(labels["rows"].tolist()) == {0, 1}
    assert "a quarter of the distance" in [*not_known(model)][1]
    many = Model(np.array([[0.0], [8.0]]), np.array([5e9, 3e9]), ("age",)).simulate()[1]
    assert len(many["rows"]) == 100_000
    none = Model(np.zeros((0, 1)), np.ones(2), ("age",))
    with pytest.raises(InputError, match="no centres to draw rows about"):
        none.simulate()


def test_files_are_drawn_from_the_model_file_alone(tmp_path: Path, monkeypatch: Any) -> None:
    """In a folder with nothing else; check, fit with the study file and predict read them."""
    monkeypatch.chdir(tmp_path)
    dates = ["--set", "dates.born=age:2020-01-01"]
    files = [f"{name}.csv" for name in rows()]
    for file, table in zip(files, rows().values(), strict=True):
        table.assign(patient=np.arange(len(table))).to_csv(file, index=False)
    run("fit", *files, "-k", 3, *dates, "--exclude", "patient", "--out", "fitted")
    for kept in ("model.json", "study.toml"):
        Path("fitted", kept).rename(kept)
    rmtree("fitted")
    for file in files:
        Path(file).unlink()
    said = run("simulate", "model.json", "--out", "drawn").stdout
    assert said.startswith("Drew 180 rows for each site.\nThe model does not hold how many rows")
    assert sorted(path.name for path in Path("drawn").iterdir()) == files
    first = Path("drawn/west.csv").read_text()
    assert first.startswith('"ward","glucose","lactate","smoker","stay","born"\n')
    assert fails("simulate", "model.json", "--out", "drawn").startswith("drawn is not empty")
    run("simulate", "model.json", "--out", "drawn", "--overwrite", "--seed", 0)
    assert Path("drawn/west.csv").read_text() == first
    drawn = [f"drawn/{name}" for name in files]
    assert "warning" not in run("check", *drawn, *dates).output
    run("fit", "study.toml", *drawn, "--set", "exclude=[]", "--out", "fitted")
    run("predict", "model.json", *drawn, "--strict", "--out", "labelled")
    one, other = (
        [line.split(",")[1] for line in Path(f"{out}/west.csv").read_text().split()]
        for out in ("fitted/labels", "labelled")
    )
    assert adjusted_rand_score(one, other) > 0.9
