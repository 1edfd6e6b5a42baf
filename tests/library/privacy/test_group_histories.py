"""Random histories of a site's rows: what all sums of all versions together can tell."""

from __future__ import annotations

from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcluster.core import Column, Data
from fedcluster.errors import InputError
from fedcluster.privacy import Grouping, Groups
from fedcluster.privacy import groups as grouping
from fedcluster.privacy._means import GroupMeans
from fedcluster.privacy.partition import DisclosedSums, LostRowsError, Partition, UnitReader
from fedcluster_app.audit._combining import solved
from fedcluster_app.audit._histories import renamed
from fedcluster_app.audit._site import AttackedSite, AttackRun, Protection, public_of

P = 3
PRIME = 2**31 - 1
MOST, VERSIONS = 40, 9
Unknown = tuple[int, Any]


def rank(lines: list[dict[Unknown, int]]) -> int:
    """Return the rank of sums of unknowns, by elimination modulo a large prime."""
    left, found = [dict(line) for line in lines], 0
    while left:
        line = left.pop()
        if not line:
            continue
        found += 1
        unknown, own = next(iter(line.items()))
        inverse = pow(own, -1, PRIME)
        for other in left:
            if factor := other.get(unknown, 0) * inverse % PRIME:
                for each, value in line.items():
                    if new := (other.get(each, 0) - factor * value) % PRIME:
                        other[each] = new
                    else:
                        other.pop(each, None)
    return found


def known_of_few(lines: list[dict[Unknown, int]]) -> list[tuple[int, ...]]:
    """Return the sets of fewer than P units of which a combination of the sums tells.

    One tells of no others than of a set if the sums without those of the set depend on each other.
    """
    every = rank(lines)
    units = sorted({unit for line in lines for unit, _ in line})
    together = {
        pair for line in lines for pair in combinations(sorted({unit for unit, _ in line}), P - 1)
    }
    found = []
    for few in [*((unit,) for unit in units), *sorted(together)]:
        without = [{u: v for u, v in line.items() if u[0] not in few} for line in lines]
        if rank(without) < every:
            found.append(few)
    return found


class History:
    """A site whose units come, change, go and come back, and every sum that it told."""

    def __init__(self, folder: Path, seed: int, *, persons: bool) -> None:
        self.rng, self.persons = np.random.default_rng(seed), persons
        self.file = folder / "s.groups"
        self.values = self.rng.integers(1, 60, (MOST, 2)).astype(float)
        self.there = np.arange(MOST) < self.rng.integers(22, MOST)
        self.kept = [self.values.copy()]
        self.sums: list[list[dict[Unknown, int]]] = [[], [], []]
        self.n_told = 0

    def change(self) -> None:
        """Change values, or who is there, in one of many ways."""
        rng, j = self.rng, int(self.rng.integers(2))
        some = rng.choice(MOST, int(rng.integers(1, 9)), replace=False)
        earlier = self.kept[int(rng.integers(len(self.kept)))]
        match int(rng.integers(8)):
            case 0:
                self.values[some, j] = rng.integers(1, 60, len(some))
            case 1:
                self.values[:, j] += 100.0 * rng.integers(1, 4)
            case 2:
                self.values = earlier.copy()
            case 3:
                self.values[some] = earlier[some]
            case 4:
                self.values = earlier.copy()
                self.values[some, j] = rng.integers(1, 60, len(some))
            case 5:
                self.there[some[:3]] = False
            case 6:
                self.there[some] = True
            case _:
                self.values[some, j] = np.nan
        self.kept.append(self.values.copy())

    def open(self) -> None:
        """Open the rows as they are now; note which sums of whom are told."""
        here = np.flatnonzero(self.there)
        here = here[~np.isnan(self.values[here]).all(axis=1)]
        rows = Data(self.values[here], groups=here.astype(np.int64) if self.persons else None)
        opened: list[GroupMeans] = []

        class Spy(GroupMeans):
            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                opened.append(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(grouping, "GroupMeans", Spy)
            try:
                seen = Grouping(Groups(P, min_rows=P), self.file).grouped(rows)
            except InputError:  # most rows are others
                return
        [means] = opened
        group, is_told = means._group[means._table.units.of_rows], means.disclosed  # noqa: SLF001
        assert len(seen) == np.count_nonzero(is_told.any(axis=1))
        for g in range(len(means.numbers)):
            members = here[group == g]
            for j in range(2):
                if is_told[g, j % is_told.shape[1]]:
                    there = members[~np.isnan(self.values[members, j])].tolist()
                    line: dict[Unknown, int] = {(i, self.values[i, j]): 1 for i in there}
                    self.n_told += line not in self.sums[j]
                    self.sums[j].append(line)


def told(folder: Path, seed: int, *, persons: bool) -> tuple[int, list[tuple[int, ...]]]:
    """Return how many sums a history tells, and of whom they tell too much."""
    folder.mkdir()
    site = History(folder, seed, persons=persons)
    for _ in range(VERSIONS):
        site.open()
        site.change()
    return site.n_told, [few for j in range(2) for few in known_of_few(site.sums[j])]


@pytest.mark.parametrize("persons", [True, False])
@pytest.mark.parametrize("many", [15, pytest.param(500, marks=pytest.mark.long)])
def test_nothing_of_fewer_than_p_can_be_solved_for(tmp_path, persons, many) -> None:
    found = [told(tmp_path / str(seed), seed, persons=persons) for seed in range(many)]
    assert [few for _, few in found if few] == []
    assert np.mean([n for n, _ in found]) > 12  # more than the first version tells


def test_the_solver_finds_what_sums_tell() -> None:
    """Two sums that differ by one; four of which a combination is one, and no difference is."""
    whole = {(i, 0): 1 for i in range(12)}
    changed = [set(range(6)), {0, *range(6, 11)}, set(range(11))]
    versions = [{(i, int(i in some)): 1 for i in range(12)} for some in changed]
    assert known_of_few([whole, {u: v for u, v in whole.items() if u[0]}]) != []
    assert known_of_few([whole, versions[0]]) == []
    assert (0,) in known_of_few([whole, *versions])


def units_of(X: np.ndarray, key: bytes, weight: np.ndarray | None = None) -> Any:
    reader = UnitReader(key)
    reader.add(Data(X, weight, groups=np.arange(len(X), dtype=np.int64)))
    return reader.units()


@pytest.fixture
def twelve() -> tuple[np.ndarray, Partition]:
    """Twelve persons of one group of at least five, whose sums were told."""
    X = np.random.default_rng(0).integers(1, 60, (12, 2)).astype(float)
    empty = Partition.empty(5, ["a", "b"])
    units = units_of(X, empty.key)
    ids: dict[str, Any] = {"units": np.sort(units.ids), "members": np.zeros(12, np.int64)}
    return X, Partition(empty.key, 5, ("a", "b"), n_groups=1, **ids).noting(units)


def stays(X: np.ndarray, kept: Partition, weight: np.ndarray | None = None) -> bool:
    return bool((kept.without_broken(units_of(X, kept.key, weight)).members >= 0).all())


@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_a_group_stays_where_no_person_has_a_new_value_or_weight_or_p_have(twelve, n) -> None:
    """Who told of all, of all but five and of all but five others told of the two that are left."""
    X, kept = twelve
    other, gone, weight = X.copy(), X.copy(), np.ones(12)
    other[:n, 0] += 100.0
    weight[:n] = 2.0
    gone[:5, 0] = np.nan  # values that are gone are no new ones
    assert stays(other, kept) == (n in (0, 5))
    assert stays(X, kept, weight) == (n in (0, 5))
    assert not stays(gone, kept)


def test_a_version_that_was_told_may_come_back(twelve) -> None:
    X, kept = twelve
    inches = X * [39.37, 1.0]
    kept = kept.without_broken(units_of(inches, kept.key)).noting(units_of(inches, kept.key))
    assert stays(X, kept)
    X[3, 0] += 1.0
    assert not stays(X, kept)
    assert not stays(np.vstack([inches[:6], X[6:]]), kept)  # some of either: none is new


def test_three_sums_whose_combination_is_one_person_are_not_told(twelve) -> None:
    """No two of them differ by fewer than five persons."""
    X, kept = twelve
    for some in ([0, 1, 2, 3, 4, 5], [0, 6, 7, 8, 9, 10]):
        version = X.copy()
        version[some, 0] += 100.0
        assert stays(version, kept)
        kept = kept.noting(units_of(version, kept.key))
    X[:11, 0] += 100.0
    assert not stays(X, kept)


def test_the_order_of_a_persons_rows_does_not_matter(tmp_path) -> None:
    rng, site = np.random.default_rng(1), Grouping(Groups(5), tmp_path / "s.groups")
    data, order = Data(rng.normal(size=(300, 2)), groups=np.arange(300) // 5), rng.permutation(300)
    first, again = (site.grouped(each) for each in (data, data.take(order)))
    assert len(again) == len(first) > 5
    assert np.array_equal(again.X, first.X)


# What the groups are of


def rows(**more: Any) -> Data:
    rng = np.random.default_rng(0)
    return Data(rng.integers(20, 90, (120, 2)).astype(float), **more)


NAMED = {"group_column": "pid", "weight_column": "w", "label_column": "ill"}
GIVEN: dict[str, Any] = {
    "group_column": {"groups": np.arange(120)},
    "weight_column": {"sample_weight": np.ones(120)},
    "label_column": {"y": np.repeat(["a", "b"], 60)},
}


@pytest.mark.parametrize("role", NAMED)
@pytest.mark.parametrize("how", ["named later", "named no more", "another"])
def test_a_role_that_changes_is_refused_in_one_line(tmp_path, role, how) -> None:
    file, given = tmp_path / "s.groups", {role: NAMED[role]}
    named, unnamed = (rows(**GIVEN[role]), given), (rows(), dict[str, str]())
    before, after = {
        "named later": (unnamed, named),
        "named no more": (named, unnamed),
        "another": (named, (rows(**GIVEN[role]), {role: "other"})),
    }[how]
    Grouping(Groups(5), file, before[1]).grouped(before[0])
    content = file.read_bytes()
    old, new = (roles.get(role, "none") for _, roles in (before, after))
    for groups, why in (
        (Groups(5), f"s.groups: the rows were grouped with {role} {old}, not {new}; other groups"),
        (Groups(5, generation=2), "an earlier generation, and a second grouping would reveal"),
    ):
        with pytest.raises(InputError, match=why) as error:
            Grouping(groups, file, after[1]).grouped(after[0])
        assert "\n" not in str(error.value)
        assert file.read_bytes() == content


def test_a_column_that_holds_something_else_is_refused(tmp_path) -> None:
    """One without a value may get some."""
    X = rows().X
    number, text = Column("age"), Column("age", "text", tuple(map(str, range(90))))
    empty = np.column_stack([np.full(120, np.nan), X[:, 1]])

    def opened(column: Column, X: np.ndarray, file: str = "s.groups") -> Data:
        site = Grouping(Groups(5), tmp_path / file)
        return site.grouped(Data(X, columns=(column, Column("bmi")), groups=np.arange(120)))

    assert len(opened(number, X)) > 10
    for column, given, kind in ((text, X, "text"), (number, empty, "empty")):
        with pytest.raises(InputError, match=f"kind of age number, not {kind}; other groups"):
            opened(column, given)
    assert len(opened(number, X)) > 10
    first = opened(number, empty, "other.groups")
    filled = opened(number, X, "other.groups")
    assert len(filled) == len(first)
    assert np.isfinite(filled.X).all()


# Persons under other identities

KINDS = {
    "measured": lambda rng, n, d: rng.normal(50, 15, (n, d)).round(3),
    "tied": lambda rng, n, d: rng.integers(20, 90, (n, d)).astype(float),
    "few values": lambda rng, n, d: rng.integers(0, 8, (n, d)).astype(float),
}


def drawn(seed: int) -> Data:
    """Rows of a kind, with one to three rows of a person, and one to five columns."""
    rng = np.random.default_rng(seed)
    draw, d = KINDS[sorted(KINDS)[int(rng.integers(3))]], int(rng.choice([1, 2, 5]))
    whose = np.repeat(np.arange(140), rng.integers(1, int(rng.choice([2, 4])), 140))
    return Data(draw(rng, len(whose), d), groups=whose)


@pytest.mark.parametrize("many", [8, pytest.param(200, marks=pytest.mark.long)])
def test_no_person_follows_whatever_becomes_of_the_identities(tmp_path, many) -> None:
    """By what `fedcluster audit` plays, of fresh rows."""
    found, n_groups = [], 0
    for seed in range(many):
        (folder := tmp_path / str(seed)).mkdir()
        subject = AttackedSite(drawn(seed), drawn(seed), Protection("groups", Groups(5)), folder)
        play = AttackRun(subject, public_of(subject.rows))
        found.append(int(np.isfinite(renamed(play, seed)).sum()))
        n_groups += len({*chain(*(each.units.tolist() for each in (play, *play.versions)))})
    assert found == [0] * many
    assert n_groups > 10 * many


@pytest.mark.parametrize("how", ["written otherwise", "given to others"])
@pytest.mark.parametrize("kind", KINDS)
def test_persons_under_other_identities_keep_their_groups(tmp_path, how, kind) -> None:
    rng, site = np.random.default_rng(1), Grouping(Groups(5), tmp_path / "s.groups")
    X, ids = KINDS[kind](rng, 120, 2), np.arange(120)
    others = ids + 1000 if how == "written otherwise" else rng.permutation(ids)
    first, again = (site.grouped(Data(X, groups=each)) for each in (ids, others))
    assert len(first) > 5
    assert np.array_equal(first.X, again.X)
    assert np.array_equal(np.array(first.sample_weight), np.array(again.sample_weight))


@pytest.mark.parametrize("persons", [True, False])
def test_a_table_of_others_is_refused_until_it_is_said_that_they_are(tmp_path, persons) -> None:
    file, X = tmp_path / "s.groups", rows().X

    def opened(X: np.ndarray, first: int = 0, generation: int = 1) -> int:
        who = np.arange(first, first + 120) if persons else None
        return len(Grouping(Groups(5, generation=generation), file).grouped(Data(X, groups=who)))

    assert opened(X) > 10
    X[:30] += 1.0
    assert 0 < opened(X) < 15  # those of which none changed
    content = file.read_bytes()
    with pytest.raises(InputError, match=r"that were grouped are gone or have changed"):
        opened(X + 0.5, 500)
    assert file.read_bytes() == content
    assert opened(X + 0.5, 500, generation=2) > 10
    assert file.read_bytes() != content


# Rows of which most are gone


@pytest.mark.parametrize("persons", [True, False])
def test_a_file_that_was_read_while_it_was_written_costs_no_group(tmp_path, persons) -> None:
    file, X = tmp_path / "s.groups", np.random.default_rng(0).normal(size=(490, 2))
    X[:100] += 50.0

    def opened(n: int, generation: int = 1) -> Data:
        site = Grouping(Groups(5, generation=generation), file)
        return site.grouped(Data(X[:n], groups=np.arange(n) if persons else None))

    first = opened(490)
    content = file.read_bytes()
    with pytest.raises(LostRowsError, match=r"only 100 of 490 .* that were grouped are there"):
        opened(100)
    assert file.read_bytes() == content
    assert np.array_equal(first.X, opened(490).X)
    left = opened(100, generation=2)  # a person has said that the others are gone for good
    assert 10 < len(left) <= 20
    assert np.isin(left.X[:, 0], first.X[:, 0]).all()
    back = opened(490, generation=2)  # and they are not grouped anew if they come back
    assert np.array_equal(back.X, left.X)


# What follows from everything told


def test_a_partition_that_groups_the_same_persons_again_is_noticed(tmp_path, monkeypatch) -> None:
    """By a computation on what was told, whichever rule was broken; nothing more is then told."""
    file, data = tmp_path / "s.groups", rows(groups=np.arange(120))
    site = Grouping(Groups(5), file)
    site.grouped(data)
    assert site.examined(data)[1].n_following == 0
    content = file.read_bytes()
    monkeypatch.setattr(Partition, "without_broken", lambda kept, units: kept)
    with pytest.raises(InputError, match=r"after 2 versions of the rows, \d+ values of single"):
        site.grouped(data.take(np.arange(120) != 3))  # whose group has more than five
    assert file.read_bytes() == content


@pytest.mark.parametrize("seed", range(6))
def test_what_follows_is_what_can_be_solved_for(seed) -> None:
    rng = np.random.default_rng(seed)
    lines = [rng.choice(14, int(rng.integers(2, 7)), replace=False) for _ in range(9)]
    values = np.concatenate(lines).astype(np.uint64)
    sums = np.repeat(np.arange(len(lines)), [len(line) for line in lines])
    told = DisclosedSums().adding(values, sums, np.arange(1, 10, dtype=np.uint64))
    behind = np.array([np.isin(np.arange(14), line) for line in lines], dtype=float)
    place, found = solved(behind, behind @ np.arange(14.0)[:, None])
    assert told.n_following == len(place)
    assert np.allclose(found[:, 0], place)
