"""Clusters that keep their numbers and names from year to year."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcluster import (
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedKMeans,
    Model,
    PreprocessingSpec,
)
from fedcluster.errors import InputError
from fedcluster.recipes.succession import matched

PLACES = np.array([[0.0, 0], [8, 0], [0, 8], [8, 8]])
YEARS = [[300, 200, 100, 0], [350, 260, 120, 0], [400, 300, 0, 90], [450, 380, 0, 300]]
"""Rows of each class, by year: class 2 vanishes when class 3 appears, beside classes 1 and 2."""


def year(i: int) -> tuple[dict[str, Any], np.ndarray]:
    """The rows of three sites in a year, and the classes of all rows, site after site."""
    rng, classes = np.random.default_rng([7, i]), np.repeat(range(4), YEARS[i])
    rng.shuffle(classes)
    rows = PLACES[classes] + rng.normal(size=(len(classes), 2))
    rows[classes == 0, 0] += 0.4 * i
    parts = np.array_split(rows, 3)
    return dict(zip("abc", parts, strict=True)), classes


MAKERS: dict[str, Any] = {
    "k-means": lambda k, **how: FederatedKMeans(k, **how),
    "scaled": lambda k, **how: FederatedKMeans(k, prepare="standard", profile=True, **how),
    "auto": lambda _, **how: FederatedKMeans("auto", stability=2, **how),
    "trimmed": lambda k, **how: FederatedKMeans(k, trim=0.01, **how),
    "grouped": lambda k, **how: FederatedKMeans(k, protection="groups", **how),
    "fuzzy": lambda k, **how: FederatedFuzzyCMeans(k, **how),
    "mixture": lambda k, **how: FederatedGaussianMixture(k, **how),
    "merged": lambda _, **how: FederatedGaussianMixture("auto", merge=True, **how),
}


def check_saved(path: Path, fitted: Any, rows: np.ndarray, n_rows: list[int]) -> None:
    """The model file assigns rows as the fit does, and none to a cluster that is gone."""
    again, labels = Model.load(path), fitted.predict(rows)
    np.testing.assert_array_equal(again.predict(rows), labels)
    assert set(np.unique(labels)) <= {-1, *np.flatnonzero(n_rows)}
    assert len(again.centers) == len(fitted.cluster_weights_)
    assert again.n_clusters == np.count_nonzero(n_rows)


@pytest.mark.parametrize("kind", MAKERS)
def test_clusters_keep_number_and_name_and_the_changes_are_said(kind: str, tmp_path: Path) -> None:
    """A number that is gone stays free, in files, labels and the next years."""
    path, names = tmp_path / "model.json", ("old", "young", "ill", "3")
    became = []
    for i, n_rows in enumerate(YEARS):
        rows, classes = year(i)
        how: dict[str, Any] = {"random_state": 0} | ({"previous": path} if i else {})
        fitted = MAKERS[kind](np.count_nonzero(n_rows), **how).fit(rows)
        if not i:
            fitted.cluster_names_ = names[:3]
        else:
            said = fitted.succession_.plain()["clusters"]
            became.append([set(each["became"]) for each in said])
            assert fitted.cluster_names_[:3] == names[:3]
        kept = fitted.labels_ >= 0
        assert np.mean(fitted.labels_[kept] == classes[kept]) > 0.97  # numbers are by size here
        fitted.save(path)
        check_saved(path, fitted, np.concatenate(list(rows.values())), n_rows)
        assert len(fitted.cluster_weights_) == (3 if i < 2 else 4)
    assert "moved" in became[0][0]
    assert became[0][1:] == [{"the same"}, {"the same"}]
    assert became[1][2:] == [{"gone"}, {"new"}]
    assert became[1][1] == {"the same"}
    assert became[2][2] == {"gone"}
    assert became[2][3] == {"grew"}
    assert "shrank" in became[2][0] | became[2][1]


def test_the_nearest_of_the_clusters_that_an_earlier_one_became_takes_its_number() -> None:
    """Merged clusters have the number of the larger; chance, and a far centre, match nothing."""
    assert matched(np.array([[30.0], [20], [0]]), np.zeros((2, 1)), np.ones(1)).tolist() == [0, -1]
    half = np.array([[25.0], [25], [0]])
    assert matched(half, np.zeros((2, 1)), np.ones(1)).tolist() == [-1, -1]
    split = np.array([[60.0, 40.0], [0, 0]])
    assert matched(split, np.array([[0.4, 0.3]]), np.ones(2)).tolist() == [1]
    assert matched(split, np.array([[1.4, 1.3]]), np.ones(2)).tolist() == [-1]
    outside = np.array([[40.0], [0], [60]])  # most rows were in no cluster
    assert matched(outside, np.zeros((2, 1)), np.ones(1)).tolist() == [-1, -1]
    usual = np.array([[70.0, 15, 5], [0, 5, 5], [0, 0, 0]])  # 3/4 of any rows are in the first
    apart = np.array([[9.0, 0, 0], [0, 0, 0]])
    assert matched(usual, apart, np.ones(3)).tolist() == [-1, -1]


@pytest.mark.thorough
def test_years_of_the_same_population_are_not_said_to_have_changed() -> None:
    """At 5 %: of 40 pairs of years, 2 are expected, and more than 6 are unlikely (.3 %)."""
    changed = 0
    for seed in range(40):
        rng = np.random.default_rng([3, seed])
        classes = rng.choice(3, 1500, p=[0.5, 0.3, 0.2])
        rows = PLACES[classes] / 2 + rng.normal(size=(1500, 2))
        first = FederatedKMeans(3, random_state=0).fit(rows[:600])
        after: Any = FederatedKMeans(3, random_state=0, previous=first).fit(rows[600:])
        said = after.succession_.plain()["clusters"]
        changed += any(each["became"] != ["the same"] for each in said)
    assert changed <= 6


def test_columns_that_differ_are_said_in_one_line() -> None:
    """A start in the units of the columns needs all of them; one more column is only mentioned."""
    pd = pytest.importorskip("pandas")
    rows = pd.DataFrame(np.concatenate(list(year(0)[0].values())), columns=["age", "bmi"])
    rows["sex"] = np.random.default_rng(0).choice(["F", "M"], len(rows))
    first = FederatedKMeans(3, prepare="auto", random_state=0).fit(rows)
    how: dict[str, Any] = {"prepare": "auto", "random_state": 0}
    more: Any = FederatedKMeans(None, previous=first, **how).fit(rows.assign(ldl=rows.age**2))
    assert more.succession_.plain()["meaning"][-1] == "The earlier fit had no column ldl."
    with pytest.raises(InputError, match="have the column 'sex', and this fit has not"):
        FederatedKMeans(3, previous=first, **how).fit(rows[["age", "bmi"]])
    own: Any = FederatedKMeans(3, previous=first, prepare=PreprocessingSpec(adjust="site"))
    meaning = own.fit(rows, sites=np.arange(len(rows)) % 3).succession_.plain()["meaning"]
    assert meaning[-1].startswith("Only this fit subtracted offsets of sites")
    begun = FederatedKMeans(3, init=first.centers_frame_, algorithm="lloyd", **how).fit(rows)
    np.testing.assert_allclose(begun.cluster_centers_, first.cluster_centers_)
    with pytest.raises(InputError, match="init has 3 centres with the columns age: 3 clusters"):
        FederatedKMeans(3, init=first.centers_frame_[["age"]], **how).fit(rows)
