"""Comparisons of clusters by outcomes, beside scipy on the pooled rows and published examples."""

import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typed import fails, run

from fedcluster import Client, Data, LocalEngine, MinClusterSize, MinRows, Model
from fedcluster.core import Column, Filter
from fedcluster.errors import InputError
from fedcluster.jobs import Compare, execute
from fedcluster.model.outcomes import (
    OutcomeComparison,
    association_within,
    counts_compared,
    holm,
    kruskal,
    log_rank,
    numbers_compared,
    odds_ratio,
)
from fedcluster.privacy import Groups
from fedcluster.recipes import outcomes as plans

COLUMNS = ("x", "died", "days", "cost", "ward", "site")


def study(seed: int, *, differ: bool = True) -> tuple[int, np.ndarray]:
    """k and drawn rows: their cluster, x, and outcomes with gaps that differ between clusters."""
    rng = np.random.default_rng(seed)
    k, n_sites = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    site = np.repeat(np.arange(n_sites), rng.integers(60, 200, n_sites))
    n, c = len(site), rng.integers(0, k, len(site))
    odds, pace = (rng.uniform(0.5, 1.5, k)[c] if differ else np.ones(n) for _ in range(2))
    died = rng.random(n) < 0.3 * odds * (1 - 0.1 * site)
    days = rng.exponential(300 * pace)
    days = np.ceil(days / 30) if seed % 3 == 0 else days
    cost = rng.choice([0.0, 1e6]) + rng.lognormal(0.0, 1.0, n) * pace + site
    cost[rng.random(n) < 0.1] = np.nan
    days[rng.random(n) < 0.05] = np.nan
    ward = rng.integers(0, 3, n)
    return k, np.column_stack([c, died, days, cost, ward, site]).astype(np.float64)


def compared(
    k: int,
    rows: np.ndarray,
    *outcomes: str,
    time: str | None = None,
    least: int = 1,
    groups: Groups | None = None,
) -> tuple[OutcomeComparison, ...]:
    """The comparisons of rows of which cluster j has x = j."""
    limits: list[Filter] = [MinRows(2), MinClusterSize(least)]
    ward = Column("ward", "text", ("p", "q", "r"))
    columns = tuple(ward if name == "ward" else Column(name) for name in COLUMNS)
    clients = [
        Client(f"s{s:.0f}", Data(rows[rows[:, 5] == s], columns=columns), limits, protection=groups)
        for s in np.unique(rows[:, 5])
    ]
    model = Model(np.arange(float(k))[:, None], np.ones(k), ("x",))
    found = execute(Compare(model, outcomes, time), LocalEngine(clients)).outcome.value
    return tuple(found.outcomes)


def tables_of(k: int, rows: np.ndarray, j: int, levels: int) -> np.ndarray:
    """The counts of a column, by site, cluster and level."""
    of_site = [rows[rows[:, 5] == s] for s in np.unique(rows[:, 5])]
    table = np.zeros((len(of_site), k, levels))
    for counts, own in zip(table, of_site, strict=True):
        np.add.at(counts, (own[:, 0].astype(int), own[:, j].astype(int)), 1)
    return table


def clock_tests(days: np.ndarray, died: np.ndarray, c: np.ndarray, site: np.ndarray) -> float:
    """The stratified log-rank statistic, time by time."""
    k = int(c.max()) + 1
    z, v = np.zeros(k), np.zeros((k, k))
    for s in np.unique(site):
        for t in np.unique(days[(died == 1) & (site == s)]):
            there, now = (site == s) & (days >= t), (site == s) & (days == t) & (died == 1)
            p, n, d = np.bincount(c[there], minlength=k) / there.sum(), there.sum(), now.sum()
            z += np.bincount(c[now], minlength=k) - d * p
            v += d * (n - d) / max(n - 1, 1) * (np.diag(p) - np.outer(p, p))
    return float(z @ np.linalg.pinv(v) @ z)


@pytest.mark.parametrize("seed", range(12))
def test_tests_equal_those_of_the_pooled_rows(seed):
    k, rows = study(seed)
    died, ward, cost = compared(k, rows, "died", "ward", "cost")
    for found, j, levels in ((died, 1, 2), (ward, 4, 3)):
        tables = tables_of(k, rows, j, levels)
        expected = stats.chi2_contingency(tables.sum(axis=0), correction=False)
        assert found.test.p == pytest.approx(expected.pvalue, rel=1e-9)
        assert found.by_site.p == pytest.approx(association_within(tables).p)
    there = ~np.isnan(rows[:, 3])
    c, y, site = rows[there, 0].astype(int), rows[there, 3], rows[there, 5].astype(int)
    groups = [y[c == j] - y.min() for j in range(k)]
    welch = stats.f_oneway(*groups, equal_var=False)
    assert cost.test.statistic == pytest.approx(welch.statistic, rel=1e-9)
    assert cost.test.p == pytest.approx(welch.pvalue, rel=1e-8)
    sites, both = np.eye(9)[site], np.c_[np.eye(9)[site], np.eye(k)[c]]
    within, full = (
        float(((y - y.min() - X @ np.linalg.lstsq(X, y - y.min())[0]) ** 2).sum())
        for X in (sites, both)
    )
    left = len(y) - len(np.unique(site)) - k + 1
    expected = (within - full) / (k - 1) / full * left
    assert cost.by_site.statistic == pytest.approx(expected, rel=1e-9)
    ranks: Any = cost.ranks
    assert ranks.between[0] - 1e-9 <= stats.kruskal(*groups).statistic <= ranks.between[1] + 1e-9
    corrected = [each.corrected[0] for each in (died, ward, cost)]
    assert corrected == holm([each.test.p for each in (died, ward, cost)])
    gaps = np.isnan(rows[:, [1, 4, 3]]).sum(axis=0)
    assert [died.lacking, ward.lacking, cost.lacking] == gaps.tolist()
    assert f"; {gaps[2]} rows lack a value" in cost.sentence()


@pytest.mark.parametrize("seed", range(12))
def test_survival_lies_within_its_stated_error(seed):
    k, rows = study(seed)
    (found,) = compared(k, rows, "died", time="days")
    assert found.lacking == (n_gaps := int(np.isnan(rows[:, 2]).sum())) > 0
    assert f"; {n_gaps} rows lack the event or its time" in found.sentence()
    c, died, days = (rows[~np.isnan(rows[:, 2]), j] for j in range(3))
    site = rows[~np.isnan(rows[:, 2]), 5]
    for test, strata in ((found.test, site * 0), (found.by_site, site)):
        exact = clock_tests(days, died, c.astype(int), strata)
        assert test.between is not None
        assert test.between[0] - 1e-9 <= exact <= test.between[1] + 1e-9
        assert test.statistic == pytest.approx(exact, rel=0.35, abs=0.7)
    for j, own in enumerate(found.clusters):
        own_days, own_died = days[c == j], died[c == j]
        sample = stats.CensoredData.right_censored(own_days, own_died == 0)
        alive = stats.ecdf(sample).sf.evaluate(np.array(own["time"][:-1]))
        assert (alive <= np.array(own["surviving"][:-1]) + 1e-9).all()
        assert (alive >= np.array(own["surviving_at_least"][:-1]) - 1e-9).all()
        assert own["events"] == own_died.sum()


def test_each_time_in_a_cell_of_its_own_gives_the_log_rank_test_itself():
    rng = np.random.default_rng(1)
    days, died, c = rng.integers(0, 9, 90), rng.random(90) < 0.7, rng.integers(0, 2, 90)
    cells = np.zeros((2, 1, 2, 9))
    np.add.at(cells[:, 0], (died.astype(int), c, days), 1)
    one, other = (stats.CensoredData.right_censored(days[c == j], ~died[c == j]) for j in range(2))
    test, _, _ = log_rank(cells[1], cells[0])
    assert test.p == pytest.approx(stats.logrank(one, other).pvalue, rel=1e-9)


def test_admissions_at_berkeley():
    """P. J. Bickel, E. A. Hammel & J. W. O'Connell, Science 187, 1975, as R's mantelhaen.test."""
    men = [[512, 313], [353, 207], [120, 205], [138, 279], [53, 138], [22, 351]]
    women = [[89, 19], [17, 8], [202, 391], [131, 244], [94, 299], [24, 317]]
    tables = np.stack([men, women], axis=1).astype(float)
    assert association_within(tables).statistic == pytest.approx(1.5246, abs=5e-5)
    by_site = odds_ratio(tables[:, :, ::-1], 0)
    assert by_site.value == pytest.approx(0.9046968, abs=5e-8)
    assert [by_site.low, by_site.high] == pytest.approx([0.7719074, 1.0603298], abs=5e-8)
    pooled = counts_compared("admitted", ("0", "1"), tables)
    assert pooled.sentence().startswith("Nothing")  # no correction yet
    assert pooled.test.statistic == pytest.approx(92.2053, abs=5e-5)
    total = counts_compared("admitted", ("0", "1"), tables.sum(axis=0)[None])  # as of secure sums
    [told] = pooled.clusters[0].keys() - total.clusters[0].keys()
    assert told == "odds_ratio_by_site"


def test_small_tables_are_tested_exactly():
    """R. A. Fisher's lady tasting tea, The Design of Experiments, 1935; a larger one by drawing."""
    tea = counts_compared("cup", ("0", "1"), np.array([[[3.0, 1.0], [1.0, 3.0]]]))
    assert tea.test.p == pytest.approx(34 / 70)
    rng = np.random.default_rng(0)
    table = np.array([[[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]]])
    found = counts_compared("level", ("p", "q", "r"), table).test
    a = np.eye(3)[np.repeat([0, 1, 2], 5)]
    chi = [((a.T @ rng.permutation(a) - 5 / 3) ** 2).sum() * 3 / 5 for _ in range(9999)]
    assert found.p == pytest.approx(np.mean(np.array(chi) >= found.statistic - 1e-9), abs=0.01)
    assert counts_compared("none", ("0", "1"), np.zeros((2, 3, 2))).test.p != 0


@pytest.mark.thorough
def test_clusters_that_differ_nowhere_are_said_to_differ_in_one_study_of_twenty():
    """Three thousand studies; sites that differ in the outcome and in the shares of clusters."""
    rng = np.random.default_rng(0)
    rejected = np.zeros((3000, 4))
    for at in range(3000):
        apart = rng.dirichlet([9, 9, 9], 4)
        rate = rng.uniform(0.2, 0.6, 4)
        c = [rng.choice(3, 80, p=p) for p in apart]
        died = [rng.random(80) < r for r in rate]
        days = [rng.exponential(1 / r, 80) for r in rate]
        cells = [np.minimum(each * 4, 19).astype(int) for each in days]
        both = np.zeros((2, 4, 3, 20))
        for s, (cs, ds, ts) in enumerate(zip(c, died, cells, strict=True)):
            np.add.at(both[:, s], (ds.astype(int), cs, ts), 1)
        tables = both.sum(axis=3).transpose(1, 2, 0)
        rejected[at] = [
            association_within(tables).p < 0.05,
            log_rank(both[1], both[0])[0].p < 0.05,
            kruskal(both[:, 0].sum(axis=0)).p < 0.05,
            counts_compared("died", ("0", "1"), tables[:1]).test.p < 0.05,
        ]
    assert (rejected.mean(axis=0) >= 0.04).all(), rejected.mean(axis=0)
    assert (rejected.mean(axis=0) <= 0.06).all(), rejected.mean(axis=0)


@pytest.mark.parametrize("n", [1e2, 4e3, 1e5])
def test_the_share_of_a_large_difference_has_an_interval_about_it(n):
    """The distribution function of a noncentral F is not a number far from its middle."""
    means, ends = np.array([[0.0, 0.5, 1.0]]), []
    for apart in (1.0, 4.0):
        sums = (np.full((1, 3), n), apart * means, np.full((1, 3), n))
        share = numbers_compared("cost", *sums, np.zeros((3, 0))).effect["omega_squared"]
        assert 0 < share.low < share.value < share.high < 1
        ends.append(share.high - share.low)
    assert ends[0] < 3 / np.sqrt(3 * n)


def test_what_a_site_holds_back_is_left_out_and_said():
    """Of a cluster in which a level is held back, no level counts; no test if it is much."""
    rows = np.zeros((240, 6))
    rows[:, 0] = np.tile([0, 1], 120)
    rows[:, 4] = np.repeat([0, 1, 0, 1], [60, 60, 112, 8])
    rows[120:, 5] = 1
    (ward,) = compared(2, rows, "ward", least=5)
    assert ward.held_back == 120  # four rows of q in each cluster of the second site
    assert [each["counts"]["p"] for each in ward.clusters] == [30, 30]
    assert np.isnan(ward.corrected[0])
    assert "120 rows are held back or incomplete" in ward.sentence()
    rows[:, 1], rows[:, 2] = np.arange(240) % 3 == 0, np.arange(240) % 120
    (died,) = compared(2, rows, "died", time="days", least=15)
    assert np.isnan(died.corrected[0])
    assert died.held_back > 0
    assert died.sentence().endswith("incomplete): limits of sites hide too much")
    (days,) = compared(2, rows, "days", least=40)
    assert days.ranks is None or np.isnan(days.ranks.p)
    assert days.corrected[0] < 1
    (told,) = compared(2, rows, "ward", least=4)
    assert (told.held_back, told.test.p) == (0, 1.0)
    (alone,) = compared(2, rows[:120], "ward")
    assert alone.sentence().endswith("(q 50 %, q 50 %; p = 1.000)")


@pytest.mark.thorough
def test_survival_behind_limits_is_tested_with_few_rows_and_tells_no_small_cell(monkeypatch):
    """Rows that limits hide in cells of time are placed as they speak least for a difference."""
    told: list[np.ndarray] = []
    whole = plans.completed

    def kept(cells: np.ndarray, ones: np.ndarray, least: int) -> list[np.ndarray]:
        told.append(cells)
        return whole(cells, ones, least)

    monkeypatch.setattr(plans, "completed", kept)
    found = {}
    for ratio in (1.0, 2.5):
        for seed in range(20):
            rng = np.random.default_rng([int(ratio), seed])
            c, site = rng.integers(0, 2, 600).astype(float), np.repeat([0.0, 1.0, 2.0], 200)
            days, stop = rng.exponential(600 * (1 + site / 2) / ratio**c), rng.uniform(50, 900, 600)
            rows = np.zeros((600, 6))
            rows[:, 0], rows[:, 5], rows[:, 1] = c, site, days < stop
            rows[:, 2] = np.ceil(np.minimum(days, stop))
            limited, free = (compared(2, rows, "died", time="days", least=n)[0] for n in (5, 1))
            assert 0 < limited.held_back < 60
            pairs = zip(limited.corrected, free.corrected, strict=True)
            found[ratio, seed] = [p >= 0.7 * q - 1e-9 for p, q in pairs], limited.corrected
    assert min(each[each > 0].min() for each in told) >= 5
    assert sum(sum(low) for low, _ in found.values()) >= 76
    assert sum(p < 0.05 for (r, _), (_, both) in found.items() if r == 1 for p in both) <= 4
    assert sum(p < 0.05 for (r, _), (_, both) in found.items() if r > 1 for p in both) >= 38


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_a_group_count_as_one(seed):
    """Five equal rows in each group: tests and intervals are those of one row of each."""
    k, once = study(seed)
    outcomes = ("died", "cost", "ward")
    own = compared(k, once, *outcomes)
    found = compared(k, np.repeat(once, 5, axis=0), *outcomes, groups=Groups(5, scale="none"))
    tests = [
        [
            (o.test.p, *o.test.df, o.by_site.statistic, *(e.low for e in o.effect.values()))
            for o in each
        ]
        for each in (own, found)
    ]
    assert tests[1] == [pytest.approx(each, rel=1e-8) for each in tests[0]]
    assert [o.ranks for o in found] == [None] * 3
    for one, each in zip(own, found, strict=True):
        for a, b in zip(one.clusters, each.clusters, strict=True):
            assert (5 * a["rows"], a["shown"]) == (pytest.approx(b["rows"]), b["shown"])
            for key in {"share", "odds_ratio", "odds_ratio_by_site", "mean"} & a.keys():
                assert astuple(b[key]) == pytest.approx(astuple(a[key]), rel=1e-8)


@pytest.mark.parametrize(
    ("outcomes", "time", "says"),
    [
        (["x"], None, "outcome 'x' was clustered by, and clusters always differ in what made"),
        (["died"], "x", "outcome 'x' was clustered by"),
        ([], None, "name an outcome"),
        (["cost"], "days", "time='days' needs numbers, and an outcome of 0 and 1"),
        (["died"], "ward", "time='ward' needs numbers"),
        (["dead"], None, "'dead'"),
    ],
)
def test_what_cannot_be_compared_is_refused(outcomes, time, says):
    k, rows = study(0)
    with pytest.raises(InputError, match=says) as error:
        compared(k, rows, *outcomes, time=time)
    assert "\n" not in str(error.value)


def test_a_negative_time_is_refused_with_its_site():
    k, rows = study(1)
    rows[np.flatnonzero(rows[:, 5] == 1)[:2], 2] = [-4.0, -0.5]
    said = "time 'days' is negative in 2 of the rows at s1: mend these"
    with pytest.raises(InputError, match=said):
        compared(k, rows, "died", time="days")
    assert compared(k, rows, "died", "days")[1].kind == "number"
    rows[:, 2] = np.where(rows[:, 2] < 0, 0.0, rows[:, 2])
    assert compared(k, rows, "died", time="days")[0].kind == "survival"


def test_the_command_says_what_python_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    k, rows = study(2)
    table = pd.DataFrame(rows, columns=COLUMNS)
    for s, part in table.groupby("site"):
        part.to_csv(f"s{s:.0f}.csv", index=False)
    files = sorted(map(str, tmp_path.glob("s*.csv")))
    Model(np.arange(float(k))[:, None], np.ones(k), ("x",)).save("model.json")
    ran = run("compare model.json", *files, "--outcome", "died", "--outcome", "cost", "--out", "c")
    own = compared(k, rows, "died", "cost")
    assert ran.exit_code == 0
    assert [line in ran.stdout for line in (f"{each.sentence(2)}." for each in own)] == [True, True]
    written: Any = json.loads(Path("c/comparison.json").read_text("utf-8"))
    shown = [each["corrected"][0] for each in written["comparison"]["outcomes"]]
    assert shown == pytest.approx([each.corrected[0] for each in own])
    assert "was clustered by" in fails("compare model.json", *files, "--outcome", "x", "--out", "d")
    assert "c holds no result (none of model.json, " in fails("report c")
    Path("c/model.json").write_bytes(Path("model.json").read_bytes())
    assert run("report c").exit_code == 0
    assert "Tests of outcomes" in Path("c/report.html").read_text("utf-8")
    ran = run("compare model.json", *files, "--outcome", "died", "--time", "days", "--json")
    assert json.loads(ran.stdout)["comparison"]["outcomes"][0]["name"] == "died by days"
