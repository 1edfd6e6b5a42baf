"""Rules of disclosure control that groups keep: dominance and diversity, and the strict preset."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from partitions import InChunks
from test_protection import grouped, members
from typed import run

from benchmarks.audit import kinds
from fedcluster.core import Column, Data, State, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.jobs import SelectK, execute, fit_of
from fedcluster.metrics.moments import Moments
from fedcluster.privacy import Dominance, Grouping, Groups
from fedcluster.privacy import groups as grouping
from fedcluster.privacy.limits import Contents, Rules, rounded
from fedcluster.privacy.partition import Partition, row_ids
from fedcluster.privacy.persons import unique_ids
from fedcluster_app.audit._site import AttackedSite, Protection, public_of, split
from fedcluster_app.audit.audit import ATTACKS, played
from fedcluster_app.site.file import SiteFile

USUAL = Dominance()
RULED = Groups(5, dominance=USUAL)
SICK = {"label_column": "diagnosis"}
DIVERSE = Groups(5, sensitive=("diagnosis",), diversity=2)
NAMED_ONLY = replace(DIVERSE, diversity=1)
"""Who is sensitive without diversity makes no other groups."""


def heavy(n: int = 300, seed: int = 0, missing: float = 0.05) -> Data:
    """Rows of three columns, one of which a few rows make up."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_cauchy(n), rng.normal(50, 9, n).round(), rng.normal(size=n)])
    X[rng.random(X.shape) < missing] = np.nan
    return Data(X)


def dominates(values: np.ndarray, rule: Dominance = USUAL) -> bool:
    """By hand: whether the largest hold too much, or the rest hides the largest too little."""
    sizes = sorted((abs(x) for x in values if not np.isnan(x)), reverse=True)
    if not sum(sizes):
        return False
    too_much = sum(sizes[: rule.largest]) / sum(sizes) > rule.share
    return too_much or sum(sizes[2:]) / sizes[0] < rule.rest


def told(values: np.ndarray, p: int) -> bool:
    return int(np.count_nonzero(~np.isnan(values))) >= p


# Dominance


ONE = Dominance(largest=1, share=0.99, rest=0.2)
"""The p%-rule alone: the rest must hide the largest from the second largest."""


@pytest.mark.parametrize(
    ("rule", "values", "expected"),
    [
        (USUAL, (90.0, 4.0, 3.0, 3.0), True),  # two hold 94 %
        (USUAL, (50.0, 40.0, 10.0), False),  # 90 %, and the rest is 20 % of the largest
        (USUAL, (50.0, 41.0, 9.0), True),
        (USUAL, (0.0, 0.0, 0.0), False),
        (USUAL, (-90.0, 4.0, 3.0, 3.0), True),  # it is the size that counts
        (USUAL, (5.0, 5.0, 5.0, 5.0, 5.0), False),
        (ONE, (1.0, 0.9, 0.19), True),
        (ONE, (1.0, 0.9, 0.21), False),
    ],
)
def test_dominance_is_that_of_the_rules_of_statistical_agencies(rule, values, expected) -> None:
    column = np.array(values)
    assert bool(rule.dominated(np.abs(column)[:, None])[0]) == expected
    assert dominates(column, rule) == expected


@pytest.mark.parametrize("groups", [RULED, Groups.strict()])
@pytest.mark.parametrize("seed", range(3))
def test_no_sum_that_is_told_is_dominated(groups, seed) -> None:
    data = heavy(seed=seed)
    found = members(data, groups)
    sums = [data.X[rows, j] for rows in found for j in range(3)]
    assert min(map(len, found)) >= groups.p
    assert not any(dominates(values) for values in sums if told(values, groups.p))
    usual = [data.X[rows, j] for rows in members(data, 5) for j in range(3)]
    assert any(dominates(values) for values in usual if told(values, 5))
    seen = grouped(data, groups)
    assert seen.n_rows == sum(map(len, found)) > 0.9 * len(data)


def test_what_persons_add_counts_and_not_their_rows() -> None:
    """Of a person with many rows, each of which is small, the sum is large; so is the weight."""
    who = np.concatenate([np.arange(60), np.full(400, 60)]).astype(np.int64)
    data = Data(np.random.default_rng(0).normal(10, 1, (len(who), 2)), groups=who)
    seen = grouped(data, RULED)
    assert seen.n_rows == 60
    assert np.abs(seen.X - 10).max() < 3
    assert grouped(replace(data, groups=None), RULED).n_rows == 460


def test_few_rows_do_not_dominate_the_weight_of_a_group() -> None:
    rng = np.random.default_rng(0)
    weight = np.where(np.arange(60) < 2, 20.0, 1.0)
    data = Data(rng.integers(0, 2, (60, 1)).astype(float), weight)
    of_groups = [[weight[rows] for rows in members(data, groups)] for groups in (RULED, 5)]
    assert not any(map(dominates, of_groups[0]))
    assert not any(np.count_nonzero(each > 1) == 1 for each in of_groups[1])


def test_columns_of_0_and_1_are_counts_and_do_not_count() -> None:
    rng = np.random.default_rng(0)
    flag = (np.arange(200) == 7).astype(float)
    data = Data(np.column_stack([rng.normal(50, 9, 200), flag]))
    assert grouped(data, RULED).n_rows == 200
    win = replace(data, X=data.X * [1.0, 123_456.78])  # two values, of which one is a secret
    assert grouped(win, RULED).n_rows == 199
    assert not any(dominates(win.X[rows, 1]) for rows in members(win, RULED))


def test_a_row_that_dominates_any_group_stays_out() -> None:
    X = np.random.default_rng(0).normal(50, 9, (200, 1)).round(1)
    for far in (1e9, -3e12):
        X[17] = far
        for groups in (RULED, Groups(5)):
            seen = grouped(Data(X), groups)
            assert seen.n_rows == 199
            assert np.abs(seen.X).max() < 100


def test_who_is_left_of_a_group_joins_another() -> None:
    """Of five one stays out, as nineteen are too many for one group; four are too few for it.

    The eighteen that are left are cut where all parts keep the rules.
    """
    adds = np.ones((19, 1))
    adds[0] = 1e9
    rules = Rules(RULED, Contents.raw(adds, np.ones_like(adds)))
    labels = np.repeat(np.array([0, 1], np.int32), [5, 14])
    mended = rules.mended(labels, np.arange(19.0)[:, None])
    assert mended[0] == -1
    assert np.bincount(mended[1:]).min() >= 5
    assert len(mended) == 19


@pytest.mark.parametrize("persons", [False, True])
def test_the_same_rows_give_the_same_groups_in_any_order_and_when_read_again(
    tmp_path, monkeypatch, persons
) -> None:
    """Though more rows stay out than are in a group, they are not tried otherwise."""
    rng = np.random.default_rng(0)
    far = np.repeat([1e4, -1e4, 1e8, 1e12, -1e12], 2) * rng.uniform(1, 3, 10)
    X = np.concatenate([rng.normal(0, 1, 150), far, 10.0 ** np.arange(13, 40)])[:, None]
    data = Data(X, groups=np.arange(len(X), dtype=np.int64) if persons else None)
    file = tmp_path / "s.groups"
    site = Grouping(RULED, file)
    first = grouped(data, site)
    assert len(X) - first.n_rows > 2 * RULED.p
    kept = Partition.load(file, 5, ["x0"])
    for other in (data, data.take(rng.permutation(len(X))), InChunks(data, 64)):
        again = grouped(other, site)
        assert np.array_equal(first.X, again.X)
        assert np.array_equal(first.sample_weight, again.sample_weight)
    now = Partition.load(file, 5, ["x0"])
    assert np.array_equal(now.units, kept.units)
    assert np.array_equal(now.members, kept.members)
    if not persons:
        monkeypatch.setattr(grouping, "BATCH", 40)
        (tmp_path / "batches").mkdir()
        batches = Grouping(RULED, tmp_path / "batches" / "s.groups")
        some = grouped(InChunks(data, 16), batches)
        assert np.array_equal(some.X, grouped(InChunks(data, 16), batches).X)


def test_rows_that_stay_out_of_several_groups_are_tried_together_at_once(tmp_path) -> None:
    """Else they would be when the same rows are read again."""
    region = np.repeat(np.arange(10), 30)
    cost = np.where(np.arange(300) % 30 == 0, 1000.0, 1.0) * np.linspace(1, 1.5, 300)
    data = Data(np.column_stack([cost, region[:, None] == np.tile(np.arange(10), 4)]))
    site = Grouping(RULED, tmp_path / "s.groups")
    first, again = grouped(data, site), grouped(data, site)
    assert first.n_rows == 300
    assert np.count_nonzero(first.X[:, 0] > 900) in (1, 2)
    assert np.array_equal(first.X, again.X)


def versions(folder: Path, groups: Groups) -> Iterator[tuple[dict[float, int], Data]]:
    """In which group each value is, version by version of a site whose rows come and go."""
    rng, file = np.random.default_rng(0), folder / "s.groups"
    values = np.exp(2 * rng.normal(size=600))
    rows, n = list(range(150)), 150
    for _ in range(15):
        data = Data(values[rows][:, None])
        seen = grouped(data, Grouping(groups, file))
        kept = Partition.load(file, groups.p, ["x0"])
        ids = unique_ids(row_ids(data, kept.key))
        member = dict(zip(kept.units.tolist(), kept.members.tolist(), strict=True))
        groups_of = [member.get(unit, -1) for unit in ids.tolist()]
        yield dict(zip(values[rows].tolist(), groups_of, strict=True)), seen
        gone = rng.choice(rows, 3, replace=False).tolist()
        rows, n = [r for r in rows if r not in gone] + list(range(n, n + 8)), n + 8


@pytest.mark.parametrize("groups", [RULED, Groups(5)])
def test_no_combination_of_sums_of_all_versions_is_dominated(groups, tmp_path) -> None:
    """Each row is in one sum for good; so what hides a row in it cannot be taken away."""
    sums: dict[int, frozenset[float]] = {}
    for member, seen in versions(tmp_path, groups):
        live: dict[int, set[float]] = {}
        for value, group in member.items():
            if group >= 0:
                live.setdefault(group, set()).add(value)
        assert len(live) == len(seen)
        for group, values in live.items():
            assert sums.setdefault(group, frozenset(values)) == values
    every = [value for values in sums.values() for value in values]
    assert len(sums) > 25
    assert len(every) == len(set(every))
    rng = np.random.default_rng(1)
    for _ in range(2000):
        some = rng.choice(len(sums), int(rng.integers(1, 4)), replace=False)
        factors = rng.choice([-1.0, 1.0, 0.5, 1e-3, 1e3], len(some))
        parts = [f * np.array([*sums[g]]) for f, g in zip(factors, some, strict=True)]
        if groups.dominance is None:
            parts = [np.abs(part - np.sort(part)[(len(part) - 1) // 2]) for part in parts]
            distances = np.sort(np.concatenate(parts))
            assert distances[:-1].sum() > 0.09 * distances[-1]
        else:
            assert not dominates(np.concatenate(parts))


def test_a_group_of_persons_leaves_when_one_of_it_dominates(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X, who = rng.normal(50, 9, (120, 1)).round(1), np.arange(120, dtype=np.int64)
    sites = [Grouping(groups, tmp_path / str(i)) for i, groups in enumerate((RULED, Groups(5)))]
    before = [grouped(Data(X, groups=who), site) for site in sites]
    X = X + 1.0  # of everybody: no group has fewer than p new values
    X[7] = 1e6
    after = [grouped(Data(X, groups=who), site) for site in sites]
    assert [len(a) - len(b) for a, b in zip(before, after, strict=True)] == [1, 1]
    assert max(each.X.max() for each in after) < 100


@pytest.mark.long
@pytest.mark.parametrize("kind", ["heavy tails", "patients", "persons"])
@pytest.mark.parametrize("groups", [Groups.strict(), RULED])
def test_no_attack_reads_a_row_of_a_site_with_rules(groups, kind, tmp_path) -> None:
    data = kinds(3, 250)[kind]
    mine, others = split(data, np.random.default_rng(0))
    subject, public = AttackedSite(mine, others, Protection("n", groups), tmp_path), public_of(data)
    scores = {a.name: played(a, subject, public).score.read for a in ATTACKS if a.promised}
    assert set(scores.values()) == {0}


# Single values


def costs(rng: np.random.Generator, n: int, share: float) -> np.ndarray:
    amounts = np.exp(rng.normal(7, 1.2, n)).round(2)
    return np.where(rng.random(n) < share, amounts, 0.0)


SINGLES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "1 % not 0": lambda rng, n: costs(rng, n, 0.01),
    "5 % not 0": lambda rng, n: costs(rng, n, 0.05),
    "20 % not 0": lambda rng, n: costs(rng, n, 0.2),
    "below 0 too": lambda rng, n: costs(rng, n, 0.05) * rng.choice([-1.0, 1.0], n),
    "98.6 mostly": lambda rng, n: 98.6 + costs(rng, n, 0.03),
    "prices": lambda rng, n: rng.choice([0.0, 50.0, 100.0], n) + costs(rng, n, 0.03),
    "100 but for one": lambda rng, n: np.where(np.arange(n) == 7, rng.uniform(200, 300), 100.0),
    "-1, 0, 1 and few": lambda rng, n: np.where(
        rng.random(n) < 0.03, rng.normal(0, 200, n).round(2), rng.integers(-1, 2, n)
    ),
    "two of each": lambda rng, n: np.repeat(costs(rng, n // 2, 0.05), 2),
}


def read_blindly(sums: np.ndarray, weights: np.ndarray, p: int) -> set[float]:
    """Claims of single values: a sum less what many rows share, which means tell, by how many."""
    means, times = np.unique((sums / weights).round(6), return_counts=True)
    known, few = {0.0, *means[times > 1].tolist()}, weights < 4 * p
    rest = {
        (round(total - (n - 2 - i) * a - i * b, 2), b)
        for total, n in zip(sums[few], weights[few] + 1, strict=True)
        for a in known
        for b in known
        for i in range(int(n) - 1 if a != b else 1)
    }
    claims = {claim for claim, _ in rest} | {round((claim + b) / 2, 2) for claim, b in rest}
    return {claim for claim in claims if min(abs(claim - each) for each in known) > 0.005}


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("kind", SINGLES)
def test_no_value_is_alone_among_values_that_many_share(kind, persons) -> None:
    """What remains of a sum is no value of a row, more often than one of another draw."""
    read = by_chance = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        column, other = (SINGLES[kind](rng, 500).round(2) for _ in range(2))
        X = np.column_stack([rng.normal(50, 9, 500).round(), column])
        seen = grouped(Data(X, groups=np.arange(500) if persons else None), Groups(5))
        assert seen.n_rows > 490
        weights = seen.sample_weight
        claims = read_blindly(seen.X[:, 1] * weights, weights, 5)
        common = [x for x, n in zip(*np.unique(column, return_counts=True), strict=True) if n >= 5]
        of_rows, of_others = (set(each.tolist()) - {*common} for each in (column, other))
        read, by_chance = read + len(claims & of_rows), by_chance + len(claims & of_others)
    assert read <= by_chance + 3 * by_chance**0.5


def alone_by_hand(values: list[float], shared: set[float], *, dense: bool) -> bool:
    """By the formula, for rows of weight 1."""
    ordered = sorted(values)
    middle = ordered[(len(values) - 1) // 2]

    def is_among(x: float) -> bool:
        return dense and min(shared) <= x <= max(shared)

    def distance(x: float) -> float:
        return min(abs(x - y) for y in ({middle} if is_among(x) else {middle, *shared}))

    singles = [x for x in values if x not in shared and distance(x) > 0]
    if not singles:
        return False
    top = max(singles, key=lambda x: (distance(x), x))
    hiding = [x for x in values if x != top and (is_among(top) or x not in shared)]
    return sum(map(distance, hiding)) < 0.1 * distance(top)


@pytest.mark.parametrize("seed", range(4))
def test_the_rule_on_single_values_is_its_formula(seed) -> None:
    rng = np.random.default_rng(seed)
    n_alone = 0
    for step, known in ((1.0, [0.0, 100.0]), (1.0, [0.0, 1.0, 2.0]), (0.25, [7.0])):
        others = (rng.normal(0, 300, 40) / step).round() * step
        values = np.concatenate([rng.choice(known, 200), others])
        contents = Contents.raw(values[:, None], np.ones((240, 1))).compared(5, [step])
        shared = {x for x in values.tolist() if np.count_nonzero(values == x) >= 5}
        rules, dense = Rules(Groups(5), contents), len(known) == 3
        some = [np.sort(rng.choice(240, int(rng.integers(5, 9)), replace=False)) for _ in range(99)]
        found = rules.alone(some)[:, 0] >= 0
        expected = [alone_by_hand(values[units].tolist(), shared, dense=dense) for units in some]
        assert found.tolist() == expected
        n_alone += sum(expected)
    assert 20 < n_alone < 280


# Diversity


def ill(n: int = 300, seed: int = 0, share: float = 0.9) -> Data:
    """Rows whose diagnosis follows their first column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.where((X[:, 0] > 1.2) ^ (rng.random(n) > share), "ill", "well")
    return Data(X, y=y)


@pytest.mark.parametrize("diversity", [2, 3])
@pytest.mark.parametrize("where", ["label", "text", "number"])
def test_each_group_has_so_many_values_of_a_sensitive_column(where, diversity) -> None:
    rng = np.random.default_rng(0)
    codes = rng.choice(4, 400, p=[0.85, 0.07, 0.05, 0.03]).astype(float)
    codes[:9] = np.nan
    X, levels = rng.normal(size=(400, 2)), ("a", "b", "c", "d")
    data = {
        "label": Data(X, y=np.array([*levels, ""])[np.nan_to_num(codes, nan=0).astype(int)]),
        "text": Data(
            np.column_stack([X, codes]),
            columns=(Column("x"), Column("y"), Column("diagnosis", "text", levels)),
        ),
        "number": Data(
            np.column_stack([X, codes]), columns=tuple(map(Column, ("x", "y", "diagnosis")))
        ),
    }[where]
    values = codes if where != "label" else np.nan_to_num(codes, nan=0)
    groups = Groups(5, sensitive=("diagnosis",), diversity=diversity)
    roles = SICK if where == "label" else None
    found, usual = members(data, Grouping(groups, roles=roles)), members(data, 5)

    def n_values(rows: np.ndarray) -> int:
        return len({x for x in values[rows] if not np.isnan(x)})

    assert min(map(n_values, found)) >= diversity
    assert sum(map(len, found)) == 400
    assert min(map(n_values, usual)) < 2


def test_a_sensitive_column_does_not_count_in_what_is_alike() -> None:
    """Else groups of one value are sought first, and then joined to large ones."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=400), rng.integers(0, 2, 400)])
    columns = (Column("age"), Column("diagnosis", "text", ("ill", "well")))
    found = members(Data(X, columns=columns), DIVERSE)
    assert np.mean(list(map(len, found))) < 8


def test_persons_may_have_several_values_and_none_may_be_everybody_s() -> None:
    """A group with two values, of which all persons have one, tells that one of each."""
    rng, n = np.random.default_rng(0), 60
    who = np.concatenate([np.arange(n), np.arange(0, n, 4)]).astype(np.int64)
    y = np.where(np.arange(len(who)) < n, "flu", "HIV")
    y[rng.choice(n, 15, replace=False)] = "none"
    data = Data(rng.normal(size=(len(who), 2)), y=y, groups=who)
    free, kept = (Grouping(g, roles=SICK).examined(data) for g in (NAMED_ONLY, DIVERSE))
    assert kept[1].agreeing == {"diagnosis": 0.0}
    assert kept[0].n_rows == len(who)
    assert free[1].agreeing["diagnosis"] > 0.1


def test_the_owner_learns_how_many_groups_agree_and_nobody_else() -> None:
    data = ill()
    sites = [Grouping(groups, roles=SICK) for groups in (Groups(5), NAMED_ONLY, DIVERSE)]
    shares = [site.examined(data)[1].agreeing for site in sites]
    assert shares[0] == {}
    assert shares[1]["diagnosis"] > 0.3
    assert shares[2] == {"diagnosis": 0.0}
    plain, told, kept = (Client("north", data, (), site) for site in sites)
    assert plain.site == told.site
    assert np.array_equal(plain.data.X, told.data.X)
    assert str(kept.site.limits[0]) == "Groups(p=5, min_rows=20, diversity=2)"


@pytest.mark.parametrize(
    ("roles", "why"),
    [
        (SICK, "'diagnosis' has 1 different values, and diversity asks"),
        (None, "sensitive column 'diagnosis' is not among those that may"),
    ],
)
def test_too_few_values_for_any_group_are_refused_in_one_line(roles, why) -> None:
    data = replace(ill(), y=np.full(300, "well"))
    with pytest.raises(InputError, match=why) as error:
        Grouping(DIVERSE, roles=roles).grouped(data)
    assert "\n" not in str(error.value)


def test_new_rows_of_one_value_wait(tmp_path) -> None:
    data, site = ill(), Grouping(DIVERSE, tmp_path / "s.groups", SICK)
    first = site.grouped(data)
    more = ill(20, 1)
    y = np.concatenate([data.y, np.full(20, "well")])
    later = site.grouped(Data(np.concatenate([data.X, more.X]), y=y))
    assert later.n_rows == first.n_rows == 300


def test_both_rules_go_together_with_weights_texts_and_missing_values() -> None:
    rng, n = np.random.default_rng(0), 400
    X = np.column_stack([rng.lognormal(0, 2, n), rng.integers(0, 3, n), rng.normal(size=n)])
    X[rng.random((n, 3)) < 0.1] = np.nan
    columns = (Column("cost"), Column("diagnosis", "text", ("a", "b", "c")), Column("z"))
    data = Data(X, rng.lognormal(0, 1.5, n).round(2) + 0.01, columns=columns)
    groups = replace(DIVERSE, dominance=Dominance())
    found = members(data, groups)
    assert data.sample_weight is not None
    for rows in found:
        assert len({x for x in X[rows, 1] if not np.isnan(x)}) >= 2
        assert not dominates(data.sample_weight[rows])
        for j in (0, 2):
            assert not (told(X[rows, j], 5) and dominates(X[rows, j] * data.sample_weight[rows]))


# Changes


RULES: list[tuple[Groups, str]] = [
    (RULED, "dominance single values, not 2 below 90 %, rest 10 %"),
    (replace(RULED, dominance=Dominance(share=0.8)), "dominance single values, not 2 below 80 %"),
    (DIVERSE, "diversity none, not 2 of diagnosis"),
    (Groups.strict(), "p 5, not 10"),
]


@pytest.mark.parametrize(("groups", "line"), RULES)
def test_rules_that_change_are_refused_in_one_line(tmp_path, groups, line) -> None:
    """Other groups of the same rows would reveal single rows."""
    file, data = tmp_path / "s.groups", ill()

    def refused(other: Groups, why: str) -> None:
        before = file.read_bytes()
        with pytest.raises(InputError, match=why) as error:
            Grouping(other, file, SICK).grouped(data)
        assert "\n" not in str(error.value)
        assert file.read_bytes() == before

    Grouping(Groups(5), file, SICK).grouped(data)
    refused(groups, f"the rows were grouped with {line}")
    assert len(Grouping(NAMED_ONLY, file, SICK).grouped(data)) > 10
    file.unlink()
    Grouping(groups, file, SICK).grouped(data)
    refused(Groups(groups.p), "the rows were grouped with")
    refused(
        Groups(groups.p, generation=2), "earlier generation, and a second grouping would reveal"
    )


# What rules may be


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Groups.strict(dominance=Dominance(share=0.95)),
            "preset 'strict' has dominance 2 below 90 %, rest 10 %, or less, not 2 below 95 %",
        ),
        (lambda: Groups(preset="secret"), "preset must be one of standard, strict, not 'secret'"),
        (lambda: Groups(2, dominance=Dominance()), "2 equal rows do not keep it"),
        (lambda: Groups(5, diversity=2), "name some, or leave it out"),
        (lambda: Groups(5, sensitive=("x",), diversity=6), "diversity must be 1 to p=5, not 6"),
    ],
)
def test_rules_that_make_no_sense_or_loosen_a_preset_are_refused(make, message) -> None:
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


# The site file

SITE = """name = "north"
label_column = "diagnosis"
columns = ["age", "cost", "town"]
[source]
path = "rows.csv"
[privacy]
"""
NETWORK = (
    '[federation]\ncoordinator = "localhost:8443"\ncertificate = "system"\nkey = "site.toml"\n'
)
KEPT = {
    'preset = "standard"': Groups(),
    'preset = "strict"': Groups.strict(),
    'preset = "strict"\n[groups]\np = 12': Groups.strict(p=12),
    "dominance = true": Groups(dominance=Dominance()),
    "dominance = false": Groups(),
    "dominance = { largest = 1, share = 0.5 }": Groups(dominance=Dominance(1, 0.5)),
    'preset = "strict"\ndominance = { largest = 3, share = 0.8, rest = 0.2 }': Groups.strict(
        dominance=Dominance(3, 0.8, 0.2)
    ),
    'sensitive = ["diagnosis"]\ndiversity = 3': Groups(sensitive=("diagnosis",), diversity=3),
    'preset = "strict"\n' + NETWORK + "secure = true": Groups.strict(),
}
REFUSED = {
    'preset = "none"': "preset must be one of standard, strict, not 'none'",
    'preset = "strict"\n[groups]\np = 9': "preset 'strict' has groups of at least 10 rows, not 9",
    'preset = "strict"\ndominance = false': "preset 'strict' has dominance 2 below 90 %",
    'dominance = "yes"': "[privacy], dominance must be true, false or its numbers",
    "dominance = { share = 1.0 }": "share, between 0 and 1",
    "dominance = { shares = 0.5 }": "dominance: unknown key 'shares'; did you mean 'share'?",
    "diversity = 2": "[groups], diversity is that of sensitive columns",
    'sensitive = "diagnosis"': "sensitive must be a list of names",
    'sensitive = ["age", "b"]': "'b' is not among columns, nor the label_column",
    "presets = 1": "unknown key 'presets'; did you mean 'preset'?",
    'preset = "strict"\n' + NETWORK: "write secure = true under [federation]",
    'preset = "strict"\n' + NETWORK + 'secure = true\nallow_alone = ["n"]': "leave out allow_alone",
}


@pytest.mark.parametrize(("privacy", "groups"), KEPT.items())
def test_a_site_file_names_rules_for_its_groups(tmp_path, privacy, groups) -> None:
    (path := tmp_path / "site.toml").write_text(SITE + privacy + "\n")
    site = SiteFile.load(path)
    assert site.groups == groups
    assert site.privacy is None
    assert site.protection == (None if groups == Groups() else "groups")


@pytest.mark.parametrize(("privacy", "message"), REFUSED.items())
def test_what_a_site_file_may_not_say_of_rules_is_one_line(tmp_path, privacy, message) -> None:
    (path := tmp_path / "site.toml").write_text(SITE + privacy + "\n")
    with pytest.raises(InputError, match=re.escape(message)) as error:
        SiteFile.load(path)
    assert "\n" not in str(error.value)


# What people are told

N = 637


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)

    def written(privacy: str) -> list[str]:
        for i in range(3):
            n = N + i
            town = rng.choice(["Ahlen", "Bonn", "Celle"], n, p=[0.6, 0.382, 0.018])
            town[:9], town[9:21] = "Zell", "Celle"
            cluster = rng.integers(0, 3, n)
            age, cost = (rng.normal(50, 4, n) + 20 * cluster).round(1), rng.lognormal(2, 1, n)
            ill = np.where(rng.random(n) < 0.9, "none", "some")
            frame = pd.DataFrame({"age": age, "cost": cost, "town": town, "diagnosis": ill})
            frame.loc[::41, "age"] = np.nan
            (folder := Path(f"s{i}")).mkdir(exist_ok=True)
            frame.to_csv(folder / "rows.csv", index=False)
            (folder / "site.toml").write_text(SITE.replace("north", f"s{i}") + privacy + "\n")
        return [f"s{i}/site.toml" for i in range(3)]

    return written


COUNTS = {"weight", "weights", "rows", "rows_held_back", "clusters", "sizes", "size", "missing"}


def counts_in(content: Any, key: str = "") -> Iterator[float]:
    """Numbers of a JSON object that count rows, by their keys."""
    if isinstance(content, dict):
        for name, each in content.items():
            yield from counts_in(each, key if key in {"missing", "sizes"} else name)
    elif isinstance(content, list):
        for each in content:
            yield from counts_in(each, key)
    elif isinstance(content, int | float) and not isinstance(content, bool) and key in COUNTS:
        yield content


@pytest.mark.thorough
@pytest.mark.parametrize("preset", ["standard", "strict"])
def test_reports_on_strict_sites_round_counts_to_5(sites, preset) -> None:
    files, strict = sites(f'preset = "{preset}"\ndominance = true'), preset == "strict"
    options = ("-k", 3, "--missing", "mean", "--profile", "--out", "out")
    ran = run("fit", *files, *options)
    assert ran.exit_code == 0, ran.stderr
    model, history, report = (
        Path("out", name).read_text() for name in ("model.json", "history.json", "report.html")
    )
    scored = run("evaluate", "out/model.json", *files, "--profile", "--json")
    described = run("profile", "out/model.json", *files, "--json")
    n_counts: list[int] = []
    for told in (model, history, scored.stdout, described.stdout):
        content = json.loads(told)
        content.pop("communication_rounds", None)
        even = [n % 5 == 0 for n in counts_in(content) if n]
        assert all(even) == strict
        n_counts.append(len(even))
    assert sum(n_counts[:2]) > 30
    assert min(n_counts[2:]) > 10
    text = re.sub(r"<[^>]*>", " ", report)
    exact = {str(n) for n in (N, N + 1, N + 2, 3 * N + 3)} | {f"{3 * N + 3:,}"}
    assert any(n in re.findall(r"[\d,]+", text + ran.stdout) for n in exact) != strict
    assert ("counts of rows are rounded to 5" in text) == strict
    assert ("Zell" in model) != strict


@pytest.mark.thorough
def test_sites_answer_a_strict_report_exactly() -> None:
    """What is rounded is what is told of it: the centres are near those of the exact answers."""
    found, rows = list[Any](), [heavy(400, i, missing=0.0) for i in range(3)]
    for preset in ("standard", "strict"):
        groups = replace(Groups.strict(), preset=preset)
        clients = [Client(f"s{i}", each, (), groups) for i, each in enumerate(rows)]
        for job in (fit_of(3, seed=0, profile=True), SelectK(2, 3, seed=0)):
            found.append(execute(job, LocalEngine(clients), columns=["a", "b", "c"]))
    usual, chosen, strict, rounded_choice = (report.outcome.value for report in found)
    spread = np.concatenate([each.X for each in rows]).std(axis=0)
    near = 5 * spread / usual.state.weights[:, None]  # half of what ten rows can change
    assert (np.abs(usual.state.centers - strict.state.centers) <= 2.5 * near).all()
    assert not np.array_equal(usual.state.centers, strict.state.centers)
    assert np.array_equal(rounded(usual.state.weights), strict.state.weights)
    assert not np.array_equal(usual.state.weights, strict.state.weights)
    assert chosen.n_clusters == rounded_choice.n_clusters
    for report in found:
        is_even = all(site.n_rows is None or site.n_rows % 5 == 0 for site in report.sites)
        assert is_even == (report in found[2:])
    assert not any((each.state.weights % 5).any() for each in rounded_choice.results.values())
    exact, told = (found[i].profiles for i in (0, 2))
    assert told.weights.tolist() == rounded(exact.weights).tolist()
    for site, sizes in exact.sizes.items():
        assert rounded(sizes).tolist() == told.sizes[site].tolist()
    assert any((c.answer(Task(Moments(), State())).weights % 5).any() for c in clients)


def test_weights_that_are_no_counts_are_not_rounded() -> None:
    rng = np.random.default_rng(0)
    rows = [Data(rng.normal(size=(203, 2)), rng.uniform(0.1, 0.4, 203)) for _ in range(3)]
    clients = [Client(f"s{i}", each, (), Groups.strict()) for i, each in enumerate(rows)]
    report = execute(fit_of(2, seed=0), LocalEngine(clients))
    assert (report.outcome.value.state.weights % 5 != 0).all()
    assert [site.n_rows for site in report.sites if site.n_rows] != []


LINES = {
    'preset = "strict"\nsensitive = ["diagnosis"]': [
        r"preset +strict",
        r"dominance +2 below 90 %, rest 10 %",
        r"largest share of one in a sum, \w+ +\d+\.\d%",
        r"groups whose members agree in diagnosis +\d+\.\d%",
    ],
    'sensitive = ["diagnosis", "town"]\ndiversity = 2': [
        r"diversity +2",
        r"groups whose members agree in town +0\.0%",
    ],
}


@pytest.mark.parametrize("privacy", LINES)
def test_check_tells_the_owner_what_groups_keep(sites, privacy) -> None:
    first, *_ = sites(privacy)
    said = run("check", first)
    assert said.exit_code == 0, said.stderr
    for line in LINES[privacy]:
        assert re.search(line, " ".join(said.stdout.split())), line
    assert not Path(first).with_suffix(".groups").exists()
    content = json.loads(run("check", first, "--json").stdout)["groups"]
    assert ("preset" in content) == ("preset" in privacy)
    assert 0 <= content["agreeing"]["diagnosis"] < 0.7


def test_a_strict_site_says_so_to_the_coordinator(sites) -> None:
    first, *_ = sites('preset = "strict"')
    client = SiteFile.load(Path(first)).grouped_client()
    rules = {"p": 10, "min_rows": 20, "dominance": "2 below 90 %, rest 10 %", "preset": "strict"}
    assert dict(client.site.limits[0].parameters) == rules
    levels = {column.name: column.levels for column in client.describe()}
    assert levels["town"] == ("Ahlen", "Bonn", "Celle")  # nine rows are of Zell
