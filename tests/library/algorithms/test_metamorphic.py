"""What follows for clusters from a change of rows: of every kind of model, to a stated bound.

No expected value is needed: rows in other units, or weights of 2, say by themselves what must come
of them. The rows are in three clusters that any search finds.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcluster import FederatedFuzzyCMeans, FederatedGaussianMixture, FederatedKMeans
from fedcluster.errors import InputError
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.privacy import Groups

pytestmark = [
    pytest.mark.usefixtures("short_searches"),
    pytest.mark.filterwarnings("ignore:rows are seen in groups"),
]

Sites = dict[str, pd.DataFrame]

MEANS = np.array([[0.0, 160.0, 0.0], [8.0, 352.0, 0.25], [-8.0, 256.0, -0.25]])
UNITS = np.array([4.0, 0.25, 256.0])
"""Values are multiples of one over these, so that moved rows have the same digits."""
FINE: dict[str, Any] = {"tol": 1e-12, "n_init": 1}

KINDS: Mapping[str, Callable[..., Any]] = {
    "k-means": lambda **how: FederatedKMeans(3, **how),
    "mixture": lambda **how: FederatedGaussianMixture(3, **FINE, **how),
    "sums only": lambda **how: FederatedKMeans(3, sums_only=True, **how),
    "trimmed": lambda **how: FederatedKMeans(3, trim=0.0625, **how),
    "limits": lambda **how: FederatedKMeans(3, min_cluster_size=4, **how),
    "groups": lambda **how: FederatedKMeans(3, protection=Groups(3, min_rows=6), **how),
    "fuzzy": lambda **how: FederatedFuzzyCMeans(3, **FINE, **how),
}

BOUNDS = {"fuzzy": 1e-6, "mixture": 1e-6}
"""How far centres may lie apart, in spreads of a column; what is not here ends exactly."""
EXACT = 1e-9


def rows() -> Sites:
    """Four sites of 24 rows, eight of each cluster."""
    rng = np.random.default_rng(4)
    sites = {}
    for name in ("north", "east", "south", "west"):
        kind = np.arange(24) % 3
        near = np.rint(rng.normal(size=(24, 3)) * 2) / UNITS
        frame = pd.DataFrame(MEANS[kind] + near / 4, columns=["x", "y", "z"])
        sites[name] = frame.assign(id=[f"{name}{i}" for i in range(24)])
    return sites


def found(kind: str, sites: Sites, scale: Any = "none", **beside: Any) -> tuple[Any, Any]:
    """The label of each row by its key, and the centres in the units of the rows."""
    model = KINDS[kind](prepare=PreprocessingSpec(scale), random_state=0)
    model.fit({name: frame.drop(columns="id") for name, frame in sites.items()}, **beside)
    labels = {
        key: int(label)
        for name, frame in sites.items()
        for key, label in zip(frame["id"], model.site_labels_[name], strict=True)
    }
    return labels, model.centers_frame_


def alike(one: tuple[Any, Any], other: tuple[Any, Any], bound: float) -> None:
    """The same clusters, however they are numbered, with their centres to a bound."""
    (labels, centers), (same, moved) = one, other
    assert labels.keys() == same.keys()
    pairs = {(labels[key], same[key]) for key in labels}
    numbers = dict(pairs)
    assert len(pairs) == len(numbers) == len(set(numbers.values()))
    assert (-1 in numbers) == (numbers.get(-1, 0) == -1)
    values = ["x", "y", "z"]
    apart = (
        moved[values].iloc[[numbers[j] for j in range(3)]].to_numpy() - centers[values].to_numpy()
    )
    spread = MEANS.std(axis=0)
    assert (np.abs(apart) <= bound * spread).all(), (np.abs(apart) / spread).max()


def in_another_order(sites: Sites) -> Sites:
    """Sites, rows and columns."""
    rng = np.random.default_rng(1)
    return {
        name: frame.iloc[rng.permutation(len(frame))][["z", "id", "x", "y"]]
        for name, frame in reversed(sites.items())
    }


def with_a_site_split(sites: Sites) -> Sites:
    north, *others = sites
    frame = sites[north]
    half = np.arange(len(frame)) % 6 < 3
    parts = {"near": frame[half], "far": frame[~half]}
    return {**parts, **{name: sites[name] for name in others}}


def renamed(sites: Sites) -> Sites:
    return {f"{name} {i}": frame for i, (name, frame) in enumerate(sites.items(), 1)}


def with_columns(how: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Sites], Sites]:
    return lambda sites: {name: how(frame) for name, frame in sites.items()}


def as_they_are(centers: pd.DataFrame) -> pd.DataFrame:
    return centers


NAMES = {"x": "z", "y": "a height", "z": "B"}
CHANGES: Mapping[str, tuple[Callable[[Sites], Sites], Callable[..., Any], tuple[Any, ...]]] = {
    "in other units": (
        with_columns(lambda each: each.assign(y=3.0 * each["y"], z=1e-3 * each["z"])),
        lambda centers: centers.assign(y=centers["y"] / 3.0, z=centers["z"] * 1e3),
        ("robust", "standard"),
    ),
    "in another order": (in_another_order, as_they_are, ("none",)),
    "a site split": (with_a_site_split, as_they_are, ("none",)),
    "sites renamed": (renamed, as_they_are, ("none",)),
    "columns renamed": (
        with_columns(lambda each: each.rename(columns=NAMES)),
        lambda centers: centers.rename(columns={new: old for old, new in NAMES.items()}),
        ("none",),
    ),
    "moved": (
        with_columns(lambda each: each.assign(x=each["x"] + 64, y=each["y"] - 128)),
        lambda centers: centers.assign(x=centers["x"] - 64, y=centers["y"] + 128),
        ("none", "standard"),
    ),
}
"""What is done to the rows, what takes the centres back, and how rows are prepared."""
OF_GROUPS = {"in another order", "a site split"}
"""Changes after which other rows are grouped: then no more is said than whose each row is."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "scale"), [(name, scale) for name, (_, _, ways) in CHANGES.items() for scale in ways]
)
def test_a_change_of_rows_that_says_nothing_changes_no_cluster(kind, change, scale):
    sites, (changed, back, _) = rows(), CHANGES[change]
    labels, centers = found(kind, changed(sites), scale)
    bound = EXACT if change == "columns renamed" else BOUNDS.get(kind, EXACT)
    bound = np.inf if kind == "groups" and change in OF_GROUPS else bound
    alike(found(kind, sites, scale), (labels, back(centers)), bound)


@pytest.mark.parametrize("power", [-12, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_no_unit_changes_a_label(kind: str, power: int) -> None:
    sites = rows()
    scaled = with_columns(lambda each: each.assign(**{n: 10.0**power * each[n] for n in "xyz"}))
    for scale in ("none", "standard"):
        assert found(kind, scaled(sites), scale)[0] == found(kind, sites, scale)[0]


@pytest.mark.parametrize("unit", [0.37, 1e-12, 1e12])
@pytest.mark.parametrize("scale", ["robust", "standard"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_unit_decides_between_centres_that_are_equally_near(kind, scale, unit):
    """Answers from 1 to 5, of which many rows lie between two clusters."""
    rng = np.random.default_rng(2)
    answers = {site: pd.DataFrame(rng.integers(1, 6, (90, 3)), columns=[*"xyz"]) for site in "ab"}
    others = {site: (unit * frame).assign(id=range(90)) for site, frame in answers.items()}
    answers = {site: frame.assign(id=range(90)) for site, frame in answers.items()}
    assert found(kind, others, scale)[0] == found(kind, answers, scale)[0]


@pytest.mark.filterwarnings("ignore:site .* rows repeat an earlier one")
@pytest.mark.parametrize("scale", ["none", "standard"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_weight_2_is_two_rows(kind: str, scale: Any) -> None:
    sites = rows()
    twice = {name: frame.loc[frame.index.repeat(2)] for name, frame in sites.items()}
    weights = {name: np.full(len(frame), 2.0) for name, frame in sites.items()}
    bound = np.inf if kind == "groups" else BOUNDS.get(kind, EXACT)
    alike(found(kind, sites, scale, sample_weight=weights), found(kind, twice, scale), bound)


@pytest.mark.parametrize("prepare", [None, PreprocessingSpec()])
@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_column_is_refused_by_name_by_models_and_estimators(kind, prepare, tmp_path):
    sites = with_columns(lambda frame: frame.drop(columns="id"))(rows())
    fitted = KINDS[kind](prepare=prepare, random_state=0).fit(sites)
    fitted.save(tmp_path / "model.json")
    model, loaded = Model.load(tmp_path / "model.json"), type(fitted).load(tmp_path / "model.json")
    ways = [model.predict, fitted.predict, fitted.transform, fitted.score, loaded.predict]
    ways += [model.memberships] if model.fuzzy else []
    others = ("predict_proba", "score_samples", "bic")
    ways += [getattr(fitted, name) for name in others if hasattr(fitted, name)]
    for way in ways:
        for column in ("y", "z"):
            with pytest.raises((InputError, ValueError), match=rf"\b{column}\b") as caught:
                way(sites["north"].drop(columns=column))
            assert len(str(caught.value).splitlines()) < 4, way
