"""Groups: what leaves a site is a function of sums over at least p rows, whatever is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from partitions import InChunks
from test_laws import STEPS, asked

from fedcluster import FederatedKMeans
from fedcluster.algorithms import FFCM, FKM, FedAvg, KFed, Lloyd, SiteSummaries
from fedcluster.core import Column, Data, Filter, Grouped, State, Step, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.jobs import execute, fit_of
from fedcluster.metrics import Inertia
from fedcluster.metrics.clusters import Scatter
from fedcluster.metrics.external import Contingency, SiteARI
from fedcluster.metrics.gaussians import ColumnSpread
from fedcluster.metrics.moments import Moments, Squares
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.columns import Category, NumericColumn
from fedcluster.preprocessing.moments import Covariance, Principal
from fedcluster.preprocessing.site_effects import SiteEffects
from fedcluster.privacy import Dominance, Grouping, Groups, MinClusterSize, MinRows
from fedcluster.privacy import partition as partitions
from fedcluster.privacy.limits import Rules
from fedcluster.privacy.persons import unique_ids

pytestmark = pytest.mark.usefixtures("short_searches")

TOWNS = ("Ahlen", "Bonn", "Celle", "Zell")
COLUMNS = (Column("age"), Column("bmi"), Column("town", "text", TOWNS))
P = 5


def patients(n: int = 320, seed: int = 0, missing: float = 0.05) -> Data:
    """Whole numbers, so that every sum is exact in any order."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [rng.integers(18, 95, n), rng.integers(15, 45, n), rng.integers(0, len(TOWNS), n)]
    ).astype(np.float64)
    X[rng.random(X.shape) < missing] = np.nan
    y = rng.choice(["ill", "well"], n)
    return Data(X, None, y, COLUMNS)


def grouped(data: Data | InChunks, protection: Groups | Grouping) -> Any:
    return Client("north", data, protection=protection).data


def members(data: Data, groups: Groups | Grouping | int = P) -> list[np.ndarray]:
    """The rows of each group, found as the site finds them."""
    groups = Groups(groups) if isinstance(groups, int) else groups
    seen: dict[int, list[int]] = {}

    class Spy(partitions.NewGroups):
        def add(self, units: np.ndarray, points: np.ndarray, rules: Any = None) -> np.ndarray:
            before, out = len(self.units), super().add(units, points, rules)
            made = [np.concatenate([*each[before:], []]) for each in (self.units, self.groups)]
            for unit, group in zip(*made, strict=True):
                seen.setdefault(int(group), []).append(int(unit))
            return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedcluster.privacy.groups.NewGroups", Spy)
        grouped(data, groups)
    unit = np.arange(len(data))
    if data.groups is None:  # rows without any value are in no group
        unit = np.flatnonzero(~np.isnan(data.X).all(axis=1))
    return [unit[rows] for _, rows in sorted(seen.items())]


def hold(patch: pytest.MonkeyPatch, groups: list[np.ndarray]) -> None:
    """Hold the partition, whatever the rows are."""
    labels = np.empty(sum(map(len, groups)), np.int32)
    for number, rows in enumerate(groups):
        labels[rows] = number
    patch.setattr("fedcluster.kernels.partition", lambda points, p: labels)
    patch.setattr(Rules, "mended", lambda _self, labels, _points: labels)


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_rows_of_like_weight_are_grouped(scale: str) -> None:
    weight = np.where(np.arange(60) % 2, 100.0, 1.0)
    data = Data(np.random.default_rng(0).normal(size=(60, 1)), weight)
    seen = grouped(data, Groups(P, scale=scale))
    assert set(seen.sample_weight / seen.grouped.counts) == {1.0, 100.0}


def test_steps_see_the_means_of_groups_and_their_weights() -> None:
    data = patients(missing=0.0)
    groups = members(data)
    seen = grouped(data, Groups(P))
    assert min(map(len, groups)) >= P
    assert sorted(np.concatenate(groups)) == list(range(len(data)))
    assert np.array_equal(seen.sample_weight, [len(rows) for rows in groups])
    assert np.allclose(seen.X[:, :2], [data.X[rows, :2].mean(axis=0) for rows in groups])
    shares = seen.grouped.shares[2].toarray()
    towns = [data.X[rows, 2].astype(int) for rows in groups]
    assert np.allclose(shares, [np.bincount(each, minlength=4) / len(each) for each in towns])
    assert data.y is not None
    labels = [[np.sum(data.y[rows] == name) for name in ("ill", "well")] for rows in groups]
    assert np.array_equal(seen.grouped.labels, labels)
    assert seen.y is None
    assert seen.groups is None


def test_means_are_those_of_the_rows_and_variances_nearly() -> None:
    data = patients(800, missing=0.0)
    numbers = Preprocessor((NumericColumn("age", shift=50.0, scale=10.0), NumericColumn("bmi")))
    towns = Preprocessor((Category("town", ("Bonn", "Celle"), other=True), NumericColumn("age")))
    exact, seen = Client("n", data), Client("n", data, protection=Groups(P))
    for how, middle in ((numbers, [0.5, 30.0]), (towns, [0.3, 0.3, 0.3, 55.0])):
        for step in (Moments(), Squares(), Covariance(), Inertia()):
            task = Task(step, State.at(np.array([middle])), preprocessor=how)
            one, other = exact.answer(task), seen.answer(task)
            assert np.allclose(one.weights, other.weights)
            if isinstance(step, Covariance):
                assert np.allclose(np.diag(one.sums), np.diag(other.sums), rtol=0.01)
            else:
                assert np.allclose(one.sums, other.sums, rtol=0.01, atol=1e-6), step
    components = ((1.0, 0.0), (0.0, 1.0))
    turned = replace(numbers, principal=Principal((0.5, 30.0), components, (1.0, 1.0)))
    task = Task(Covariance(), State.at(np.zeros((1, 2))), preprocessor=turned)
    one, other = exact.answer(task), seen.answer(task)
    assert np.allclose(np.diag(one.sums), np.diag(other.sums), rtol=0.01)


def test_no_products_of_columns_tell_the_row_that_alone_has_a_flag() -> None:
    """The scatter of a flag and an age would be the age of the one row that has the flag."""
    X = patients(800, missing=0.0).X
    X[:, 2] = np.arange(800) == 17
    flagged = Data(X, columns=(*COLUMNS[:2], Column("flag")))
    how = Preprocessor(tuple(NumericColumn(column.name) for column in flagged.columns))
    task = Task(Covariance(), State.at(np.zeros((1, 3))), preprocessor=how)
    assert Client("n", flagged).answer(task).sums[2].tolist() == X[17].tolist()
    client = Client("n", flagged, protection=Groups(P))
    told, seen = client.answer(task).sums[2], client.data
    [group] = np.flatnonzero(seen.X[:, 2])
    assert np.allclose(told, seen.X[group])  # what the mean of the group tells, and no more


def test_scatter_is_told_of_columns_that_many_groups_vary_in() -> None:
    data = patients(800, missing=0.0)
    data.X[:, 1] = np.where(np.arange(800) < 5, 40.0, 0.0)
    scatter = grouped(data, Groups(P)).grouped.scatter
    assert scatter["age"] > 0
    assert scatter["bmi"] == 0
    assert not any(grouped(patients(40, missing=0.0), Groups(P)).grouped.scatter.values())


def kinds(seed: int) -> dict[str, np.ndarray]:
    """Rows of three columns in four overlapping clusters."""
    rng = np.random.default_rng(seed)
    cluster, middles = rng.integers(0, 4, 400), 2 * rng.normal(size=(4, 3))
    X = middles[cluster] + rng.normal(size=(400, 3))
    there, spent = rng.random(X.shape) < 0.15, rng.lognormal(3, 1, X.shape).round()
    return {
        "numbers": X,
        "heavy tails": rng.pareto(2.0, X.shape),
        "whole": np.rint(2 * X),
        "decimals": X.round(1),
        "zero-inflated": np.where(there, spent, 0.0) + 30 * (cluster % [[2], [3], [4]]).T,
        "gaps": np.where(rng.random(X.shape) < 0.1, np.nan, X),
        "far from 0": 500 + X,
    }


UNITS = (1e-12, 1e-6, 0.37, 1e6, 1e12)


@pytest.mark.parametrize("kind", kinds(0))
@pytest.mark.parametrize("groups", [Groups(), Groups(scale="none"), Groups.strict()])
def test_groups_and_their_scatter_are_the_same_in_any_unit(groups: Groups, kind: str) -> None:
    """In that of one column, too, if columns are scaled."""
    X = kinds(9)[kind]
    known = grouped(Data(X), groups)
    for unit in UNITS:
        factor = np.array([unit, 1.0, 1.0] if groups.scale == "standard" else [unit] * 3)
        seen = grouped(Data(X * factor), groups)
        assert np.array_equal(seen.grouped.counts, known.grouped.counts)
        np.testing.assert_allclose(seen.X, known.X * factor, rtol=1e-12)
        scatter = np.array([*known.grouped.scatter.values()])
        told = np.array([*seen.grouped.scatter.values()])
        np.testing.assert_allclose(told, scatter * factor**2, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:rows are seen in groups:UserWarning")
@pytest.mark.parametrize("kind", ["heavy tails", "decimals"])
@pytest.mark.parametrize("groups", [Groups(), Groups.strict()])
def test_clusters_of_groups_are_the_same_in_any_unit(groups: Groups, kind: str) -> None:
    """What is published under strict rules has decimal steps, so its units are powers of ten."""
    X = kinds(9)[kind]

    def labels(unit: float) -> np.ndarray:
        rows = X * [unit, 1.0, 1.0]
        model = FederatedKMeans(4, prepare="standard", protection=groups, random_state=0)
        return model.fit([rows[::2], rows[1::2]]).labels_

    known = labels(1.0)
    units = [unit for unit in UNITS if unit != 0.37 or groups.preset == "standard"]
    assert all(np.array_equal(labels(unit), known) for unit in units)


def test_the_scatter_keeps_the_unit_in_which_it_was_first_rounded(tmp_path: Path) -> None:
    """What is rounded in a second way is known better."""
    rng, file = np.random.default_rng(0), tmp_path / "site.groups"
    rows = rng.normal(size=(200, 2))
    more = [10.0**i + rng.normal(size=(60, 2)) for i in (1, 2, 3)]
    grouping = Grouping(Groups(), file)
    grouping.grouped(Data(rows))
    units = dict(partitions.Partition.read(file).scatter_units)
    assert set(units) == {"x0", "x1"}
    n_groups = 0
    for n in (1, 2, 3):
        told: Any = grouping.grouped(Data(np.vstack([rows, *more[:n]]))).grouped
        kept = partitions.Partition.read(file)
        assert len(kept.scatter_groups) > n_groups
        n_groups = len(kept.scatter_groups)
        assert kept.scatter_units == units
        for name, each in told.scatter.items():
            steps = each / units[name] * 2.0**14
            assert steps == np.rint(steps)


def test_a_group_with_fewer_values_than_p_tells_nothing_of_a_column() -> None:
    data = patients(400, missing=0.3)
    groups = members(data)
    seen = grouped(data, Groups(P))
    there = np.array([(~np.isnan(data.X[rows])).sum(axis=0) for rows in groups])
    told = there[(there >= P).any(axis=1)] >= P
    assert np.array_equal(~np.isnan(seen.X), told)
    assert 0 < told.mean() < 1
    kept = [rows for rows, n in zip(groups, there, strict=True) if (n >= P).any()]
    ages = [data.X[rows, 0] for rows, has_age in zip(kept, told[:, 0], strict=True) if has_age]
    assert np.allclose(seen.X[told[:, 0], 0], [np.nanmean(age) for age in ages])


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((40, 40, 20, 4), ("Ahlen", "Bonn", "Celle")),
        ((40, 40, 20, 5), TOWNS),
        ((92, 4, 2, 2), ("Ahlen",)),
        ((60, 37, 3, 0), ("Ahlen", "Bonn")),
    ],
)
def test_texts_of_fewer_rows_than_p_do_not_exist(counts, expected) -> None:
    """Where all others together are fewer too, they count as missing; and of labels, one more."""
    codes = np.repeat(np.arange(4.0), counts)
    data = Data(codes[:, None], None, np.array(TOWNS)[codes.astype(int)], COLUMNS[2:])
    client = Client("north", data, protection=Groups(P))
    [column] = client.describe()
    assert column.levels == expected
    few = 0 < sum(n for n in counts if n < P) < P
    assert client.classes() == expected[: len(expected) - few]
    assert client.data.grouped is not None
    shares = client.data.grouped.shares[0].sum(axis=1)
    assert client.data.grouped.shares[0].shape[1] == len(expected)
    assert np.allclose(shares, 1) == (few or min(counts) >= P)


def test_a_column_of_numbers_cannot_become_text() -> None:
    client = Client("north", patients(), protection=Groups(P))
    with pytest.raises(InputError, match=r"age.*numbers"):
        client.describe(["age"])
    guess = Preprocessor((Category("age", tuple(map(str, range(18, 95)))),))
    with pytest.raises(InputError, match="age"):
        client.answer(Task(Moments(), State(), preprocessor=guess))


def test_a_site_with_too_few_rows_sends_nothing() -> None:
    data = patients(19, missing=0.0)
    client = Client("north", data, protection=Groups(P, min_rows=20))
    answer = client.answer(Task(Lloyd(), State.at(np.zeros((2, 3)))))
    assert answer.sums.shape == (2, 4)
    assert not answer.weights.any()
    assert not answer.sums.any()
    assert all(not column.levels for column in client.describe())
    assert len(grouped(patients(20, missing=0.0), Groups(P, 20))) >= 2


def test_persons_count_and_their_rows_stay_together() -> None:
    rng = np.random.default_rng(3)
    persons = np.repeat(np.arange(60), rng.integers(1, 8, 60))
    data = Data(rng.normal(size=(len(persons), 2)), groups=persons)
    seen = grouped(data, Groups(P))
    assert len(seen) <= 60 // P
    assert seen.grouped.counts.sum() <= len(persons)
    few = Data(rng.normal(size=(100, 2)), groups=np.repeat(np.arange(19), 6)[:100])
    assert len(grouped(few, Groups(P, 20))) == 0


def test_a_sum_that_one_row_or_person_dominates_is_not_told() -> None:
    rng = np.random.default_rng(0)
    weights = np.ones(60)
    weights[7] = 1e6
    data = Data(rng.normal(size=(60, 2)), weights)
    seen = grouped(data, Groups(P))
    assert seen.sample_weight.max() < 100
    persons = np.concatenate([np.arange(40), np.full(1000, 40)])
    rows = Data(rng.normal(size=(1040, 2)), groups=persons)
    assert grouped(rows, Groups(P)).sample_weight.max() < 100


# No function of a proper part of a group


def balanced(seed: int, n_groups: int = 24) -> tuple[Data, Data, list[np.ndarray]]:
    """Rows, others with the same sums and the same scatter, and their groups.

    A group's rows stand in pairs on both sides of its mean; where the pairs change places, towns
    and labels stay, so that every row of at least two values is another.
    """
    rng = np.random.default_rng(seed)
    parts, others, labels = [], [], []
    for number in range(n_groups):
        middle, apart = rng.integers(20, 90, (1, 2)), rng.integers(1, 15, (4, 2))
        pairs = (apart[:, None, :] * np.array([1, -1])[None, :, None]).astype(np.float64)
        if number % 3 == 0:
            pairs[0, :, 0] = np.nan  # one pair has no age
        towns = np.repeat(rng.integers(0, len(TOWNS), 4), 2)[:, None]
        turned = pairs[[1, 2, 3, 0]] * rng.choice([1, -1], (4, 1, 1))
        parts.append(np.hstack([middle + pairs.reshape(8, 2), towns]))
        others.append(np.hstack([middle + turned.reshape(8, 2), towns]))
        labels.append(rng.choice(["ill", "well"], 8))
    y = np.concatenate(labels)
    other_y = np.concatenate([np.roll(each, 3) for each in labels])
    groups = [np.arange(8 * i, 8 * i + 8) for i in range(n_groups)]
    rows, changed = np.concatenate(parts), np.concatenate(others)
    return Data(rows, None, y, COLUMNS), Data(changed, None, other_y, COLUMNS), groups


def dominated() -> tuple[Data, Data, list[np.ndarray]]:
    """Rows, others with the same sums in each group, of which one row has all, and the groups."""
    rng = np.random.default_rng(0)
    even = rng.integers(40, 60, (8, 12, 2)).astype(float)
    one_has_all = np.zeros_like(even)
    one_has_all[:, 3] = even.sum(axis=1)
    towns, y = rng.integers(0, len(TOWNS), (96, 1)), rng.choice(["ill", "well"], 96)
    made = [np.hstack([X.reshape(96, 2), towns]) for X in (even, one_has_all)]
    one, other = (Data(X, None, y, COLUMNS) for X in made)
    return one, other, [np.arange(12 * i, 12 * i + 12) for i in range(8)]


def preparations(rng: np.random.Generator) -> list[Preprocessor]:
    """One that is honest, and others that a site may be asked to make."""
    low = float(rng.uniform(20, 60))
    age = NumericColumn("age", shift=low, scale=float(rng.uniform(0.1, 30)), fill=low)
    bmi = NumericColumn("bmi", fill=0.0)
    town = Category("town", TOWNS[: rng.integers(1, 5)], other=True, fill=TOWNS[0])
    places, spread = np.column_stack([[low, 1e6], [30.0, 30.0]]), rng.uniform(1e-9, 1e3, 2)
    offsets = SiteEffects.from_plain({"centers": places, "noise": np.eye(2), "spread": spread})
    gains = ((low, 1.0), tuple(spread.tolist()), (low, 30.0))
    angle = rng.uniform(0, 6)
    turn = ((np.cos(angle), np.sin(angle)), (-np.sin(angle), np.cos(angle)))
    return [
        Preprocessor((age, bmi)),
        Preprocessor((age, bmi, town)),
        Preprocessor((replace(age, bounds=(low, low + 1e-3)), replace(bmi, bounds=(30.0, 31.0)))),
        Preprocessor((replace(age, log=True), replace(town, levels=("nowhere", "Zell")))),
        Preprocessor((age, bmi), principal=Principal((0.0, 0.0), turn, (1.0, 1.0))),
        Preprocessor((NumericColumn("age"), NumericColumn("bmi")), missing="drop"),
        Preprocessor((age, bmi, town), effects=offsets),
        Preprocessor((age, bmi), effects=replace(offsets, gains=gains)),
    ]


HOSTILE: list[Step] = [
    FKM(1, client_init="random", init_iterations=0),
    FKM(4, client_init="k-means++", init_iterations=0),
    FedAvg(batch_size=1, client_rate=8.0),
    FedAvg(epochs=3, batch_size=1, client_rate=1.0),
    KFed(3),
    SiteSummaries(200),
    FFCM(m=1.01),
    Contingency.from_classes(["ill", "well"]),
    SiteARI(),
]


def questions(rng: np.random.Generator) -> Iterator[Task]:
    """Every step about random states, near and far, of rows prepared in many ways."""
    for how in preparations(rng):
        d = how.n_columns_out
        for step in [*STEPS, *HOSTILE]:
            if isinstance(step, Contingency) and step.names != ["ill", "well"]:
                continue
            far = 10.0 ** rng.integers(0, 4)
            centers = np.sort(rng.normal(0, far, (int(rng.integers(2, 6)), d)), axis=0)
            state = asked(step, centers)
            if not getattr(step, "needs_centers", True):
                state = State()
            if isinstance(step, Squares | Covariance):
                state = State.at(centers[:1])
            yield Task(step, state, int(rng.integers(1 << 30)), how)


@pytest.mark.parametrize("kind", [0, "dominated", 1, 2, 3])
def test_no_bit_of_any_answer_depends_on_a_proper_part_of_a_group(kind, monkeypatch) -> None:
    """Rows change within their groups, so that the sums and the site's scatter stay.

    With limits on sums over groups as without: what they hold back depends on no row either. Nor is
    anything left blank because a row dominates.
    """
    limits: list[Filter] = [MinRows(40), MinClusterSize(20)] if kind in (1, 3) else []
    rows, changed, groups = dominated() if kind == "dominated" else balanced(kind)
    assert not np.array_equal(rows.X, changed.X, equal_nan=True)
    hold(monkeypatch, groups)
    rule = Groups(P, dominance=Dominance() if kind == "dominated" else None)
    one, other = (Client("north", data, limits, rule) for data in (rows, changed))
    assert one.describe() == other.describe()
    assert one.classes() == other.classes()
    assert one.site == other.site
    n_answers = n_exact = 0
    exact_one, exact_other = (Client("north", data, filters=()) for data in (rows, changed))
    for task in questions(np.random.default_rng(0 if kind == "dominated" else kind)):
        a, b = one.answer(task), other.answer(task)
        assert np.array_equal(a.sums, b.sums, equal_nan=True), task.step
        assert np.array_equal(a.weights, b.weights), task.step
        n_answers += 1
        with np.errstate(all="ignore"):
            n_exact += not np.array_equal(
                exact_one.answer(task).sums, exact_other.answer(task).sums, equal_nan=True
            )
    assert n_answers > 150
    assert n_exact > n_answers / 3  # without groups, the same questions tell the rows apart


# Versions of the rows


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("scale", ["none", "standard"])
def test_no_order_layout_or_chunk_of_any_numbers_changes_who_is_grouped(scale, persons) -> None:
    """Sums of such numbers have other last digits in another order."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = np.column_stack(
            [rng.normal(50, 9, 200), rng.standard_cauchy(200), rng.integers(0, len(TOWNS), 200)]
        )
        X[rng.random(X.shape) < 0.05] = np.nan
        data = Data(X, columns=COLUMNS, groups=rng.integers(0, 90, 200) if persons else None)
        expected = grouped(data, Groups(P, scale=scale))
        for other in (
            data.take(rng.permutation(200)),
            replace(data, X=np.asfortranarray(X)),
            InChunks(data, 70),
        ):
            found = grouped(other, Groups(P, scale=scale))
            np.testing.assert_allclose(found.X, expected.X, rtol=1e-12)
            np.testing.assert_array_equal(found.sample_weight, expected.sample_weight)
            np.testing.assert_allclose(found.within, expected.within, rtol=1e-12)


class Site:
    """A site whose rows come, go and change, and the sets of rows whose sums it told."""

    def __init__(self, folder: Path) -> None:
        self.file, self.told = folder / "north.groups", dict[int, set[int]]()

    def opened(self, rows: list[int], values: np.ndarray) -> None:
        """Open these rows: in each new group, p of them are in none before."""
        data, live = Data(values), dict[int, set[int]]()
        seen = grouped(data, Grouping(Groups(P), self.file))
        kept = partitions.Partition.load(self.file, P, ["x0", "x1"])
        ids = unique_ids(partitions.row_ids(data, kept.key))
        member = dict(zip(kept.units.tolist(), kept.members.tolist(), strict=True))
        for row, unit in zip(rows, ids.tolist(), strict=True):
            if member.get(unit, -1) >= 0:
                live.setdefault(member[unit], set()).add(row)
        places = [[rows.index(row) for row in group] for _, group in sorted(live.items())]
        sums = np.reshape([values[some].sum(axis=0) for some in places], (-1, 2))
        assert np.allclose(seen.X * seen.sample_weight[:, None], sums)
        before = set[int]().union(*self.told.values())
        for number, group in live.items():
            if number in self.told:
                assert self.told[number] == group
            else:
                assert len(group - before) >= P
                before |= group
        self.told |= live

    def check_that_no_row_follows(self, n: int) -> None:
        sums = np.array([[row in group for row in range(n)] for group in self.told.values()], float)
        rank = np.linalg.matrix_rank(sums)
        for row in np.eye(n):
            assert np.linalg.matrix_rank(np.vstack([sums, row])) == rank + 1


@pytest.mark.parametrize("changed", [0, 45, 2])
def test_over_many_versions_every_sum_has_p_rows_that_no_sum_before_had(tmp_path, changed) -> None:
    """Then no combination of them stands for fewer than p rows, and no row can be solved for.

    A row that changes is no new one: its other values stay.
    """
    rng, site = np.random.default_rng(0), Site(tmp_path)
    rows, n, values = list(range(120)), 120, rng.normal(size=(400, 2))
    for _ in range(8 if changed else 20):
        site.opened(rows, values[rows])
        if changed:
            values[rng.choice(rows, changed, replace=False), 1] += 1.0
        else:
            gone = rng.choice(rows, 3, replace=False).tolist()
            rows, n = [row for row in rows if row not in gone] + list(range(n, n + 5)), n + 5
    assert len(site.told) > 20
    site.check_that_no_row_follows(n)


def test_another_p_or_other_columns_are_refused(tmp_path) -> None:
    data, file = patients(100), tmp_path / "north.groups"
    fewer = Data(data.X[:, :2], columns=COLUMNS[:2])
    grouped(data, Grouping(Groups(5), file))
    for other, p, why in (
        (data, 6, "grouped with p 5, not 6"),
        (fewer, 5, "grouped with columns age, bmi, town, not age, bmi"),
    ):
        with pytest.raises(InputError, match=why):
            grouped(other, Grouping(Groups(p), file))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="is not a partition into groups, or is damaged"):
        grouped(data, Grouping(Groups(5), file))


def test_a_fit_on_groups_is_near_the_exact_one() -> None:
    rng = np.random.default_rng(0)
    centers = rng.uniform(-40, 40, (4, 2))
    X = np.concatenate([rng.normal(c, 1.0, (300, 2)) for c in centers])
    sites = {name: X[i::3] for i, name in enumerate("abc")}
    inertia = []
    for protection in (None, Groups(P)):
        clients = [Client(name, Data(x), protection=protection) for name, x in sites.items()]
        found = execute(fit_of(4, seed=0), LocalEngine(clients)).outcome.value.state.centers
        inertia.append(((X[:, None] - found) ** 2).sum(-1).min(1).sum())
    assert inertia[1] <= 1.003 * inertia[0]


@pytest.mark.parametrize("how", ["standard", "robust"])
@pytest.mark.parametrize("missing", ["mean", "median", "drop"])
def test_every_preparation_works_on_groups(how, missing) -> None:
    job = fit_of(3, prepare=PreprocessingSpec(how, missing=missing), seed=0)

    def prepared(protection: Groups | None) -> Any:
        sites = [Client(n, patients(400, seed), (), protection) for seed, n in enumerate("ab")]
        return execute(job, LocalEngine(sites)).preprocessor

    found, exact = prepared(Groups(P)), prepared(None)
    assert found.names == exact.names
    for one, other in zip(found.numeric, exact.numeric, strict=True):
        assert one.shift == pytest.approx(other.shift, abs=0.15 * other.scale)
        assert one.scale == pytest.approx(other.scale, rel=0.5 if how == "robust" else 0.05)


def test_the_inertia_that_is_told_is_that_of_whole_groups() -> None:
    """That of the means and that within groups, which is told to two digits."""
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [60.0, 0.0], [0.0, 60.0]])
    X = np.concatenate([rng.normal(c, 1.0, (100, 2)) for c in centers])
    state, data = State.at(centers), Data(X)
    exact, near = Client("n", data), Client("n", data, protection=Groups(P))
    for step, column in ((Lloyd(), -1), (Scatter(), 2), (Inertia(), 0)):
        task = Task(step, state)
        one, other = (each.answer(task).sums[:, column].sum() for each in (exact, near))
        assert other == pytest.approx(one, rel=0.02), step
    one, other = (client.answer(Task(ColumnSpread(), state)).sums for client in (exact, near))
    assert np.allclose(one, other, rtol=0.02)


def test_a_site_that_is_too_small_does_not_stop_the_others() -> None:
    """Its columns are told, and nothing else."""
    clients = [
        Client(name, patients(n), protection=Groups(P)) for name, n in (("large", 400), ("s", 12))
    ]
    job = fit_of(3, prepare=PreprocessingSpec(missing="mean"), seed=0)
    report, alone = (execute(job, LocalEngine(some)) for some in (clients, clients[:1]))
    assert np.array_equal(report.outcome.value.state.centers, alone.outcome.value.state.centers)
    assert report.outcome.values_sent()["s"] == 0


def test_a_group_stays_where_nobody_of_it_changed_or_p_did(tmp_path) -> None:
    """Else the difference of its sums, before and now, would stand for fewer persons than p."""
    grouping, X = Grouping(Groups(P), tmp_path / "s"), patients(120, missing=0.0).X

    def opened() -> Any:
        return grouped(Data(X, groups=np.arange(120)), grouping)

    first = opened()
    X += 1.0
    again = opened()  # everybody changed: the groups are as before
    assert np.allclose(again.X, first.X + 1.0)
    assert np.array_equal(again.sample_weight, first.sample_weight)
    X[3] += 5.0
    one = opened()
    assert len(one) == len(first) - 1
    assert all((np.abs(again.X - mean).sum(axis=1) == 0).any() for mean in one.X)


def test_products_with_a_basis_are_those_of_whole_rows_times_it() -> None:
    """Of groups the squares within them belong to it, on the diagonal: here 5, 0 and 7."""
    rng = np.random.default_rng(0)
    X, counts = rng.normal(size=(6, 3)), np.full(6, 5.0)
    means = Grouped(counts, scatter={"x0": 5.0, "x2": 7.0})
    basis = np.linalg.qr(rng.normal(size=(3, 2)))[0]
    at = np.array([[0.5, 0.0, -1.0]])
    asked = State(at, np.zeros(1)), State(at, np.zeros(1), memory={"basis": basis})
    data = Data(X, counts, grouped=means)
    whole, along = (Covariance().client_step(state, data, rng).sums for state in asked)
    by_hand = 5 * (X - at).T @ (X - at) + np.diag([5.0, 0.0, 7.0])
    np.testing.assert_allclose(whole, by_hand, rtol=1e-13)
    np.testing.assert_allclose(along, by_hand @ basis, rtol=1e-12)
