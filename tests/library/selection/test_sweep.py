"""A sweep over k: who may take how many rounds, and what is asked once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcluster import Client, Data, LocalEngine
from fedcluster.algorithms import FFCM
from fedcluster.core import Result, State
from fedcluster.recipes.specifications import fit_of
from fedcluster.rounds import EarlyStop, Plan, gather, run_plan
from fedcluster.selection import Rule
from fedcluster.selection.sweep import _in_time, box, clustered_by, gaps, select_k_plan, sweep

ROWS = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], 12, axis=0)
ROWS = ROWS + np.random.default_rng(0).normal(size=ROWS.shape)


def engine() -> LocalEngine:
    return LocalEngine(
        Client(name, Data(X)) for name, X in {"a": ROWS[::2], "b": ROWS[1::2]}.items()
    )


def lasting(n: int) -> Plan[Any]:
    """A plan of n rounds; told to end it takes two more. Its result is when it was told."""
    for done in range(n):
        try:
            yield []
        except EarlyStop:
            yield []
            yield []
            return done
    return None


def ends(plan: Plan[Any]) -> Any:
    """The result of a plan whose rounds ask nothing."""
    next(plan)
    while True:
        try:
            plan.send([])
        except StopIteration as stop:
            return stop.value


@pytest.mark.parametrize(("leader", "told"), [(10, 12), (9, 11), (8, 9), (7, 8), (3, 8), (1, 8)])
def test_the_others_end_in_half_as_many_rounds_more_as_the_largest_k_took(leader, told):
    """One round before them, one more of their own and three for what comes after: after L rounds
    of the largest k, all is to be done by 1.5 (1 + L). For L = 9 that is 15, for which ten rounds
    leave time, and eleven do not; where L is below 7, by twelve.
    """
    plans = [lasting(100), lasting(leader)]
    assert ends(gather(_in_time(plans))) == [told, None]


def test_without_a_leader_that_ends_first_nobody_is_told() -> None:
    assert ends(gather(_in_time([lasting(30), lasting(25), lasting(40)]))) == [None] * 3


def test_moments_are_measured_in_two_rounds() -> None:
    """The second time about the mean, at which an offset costs nothing."""
    outcome = run_plan(sweep([2, 3], fit_of(3)), engine())
    steps = [step for r in outcome.communication_rounds for step in r.steps]
    assert steps.count("Moments") == 2
    swept = outcome.value
    assert swept.weight == 36
    np.testing.assert_allclose(swept.mean, ROWS.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(swept.variance, ROWS.var(axis=0), rtol=1e-13)
    assert list(swept.results) == list(swept.scores) == [2, 3]


def first_rows(X, k, random_state):
    """Seeds that an init of one's own takes."""
    return X[:k]


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ({}, {"SiteSummaries": 1}),
        ({"init": "sums"}, {"SiteSummaries": 0}),
        ({"algorithm": "kfed"}, {"SiteSummaries": 0, "VarianceTree": 0, "KFed": 3}),
        ({"algorithm": "fkm"}, {"SiteSummaries": 0, "VarianceTree": 0}),
        ({"init": "k-means++", "n_init": 2}, {"SiteSummaries": 0, "FKM": 6}),
        ({"init": first_rows}, {"SiteSummaries": 0}),
    ],
    ids=lambda each: ", ".join(each),
)
def test_sites_describe_themselves_once_where_every_start_comes_from_that(spec, asked):
    """As finely as the largest k needs it; not where algorithms start by themselves."""
    outcome = run_plan(sweep([4, 2, 3, 3], fit_of(1, **spec)), engine())
    assert list(outcome.value.results) == [2, 3, 4]
    steps = [step for r in outcome.communication_rounds[:1] for step in r.steps]
    for name, n in asked.items():
        assert steps.count(name) == n, name
    later = [step for r in outcome.communication_rounds[1:] for step in r.steps]
    assert "SiteSummaries" not in later
    sizes = {k: result.state.centers.shape for k, result in outcome.value.results.items()}
    assert sizes == {k: (k, 2) for k in (2, 3, 4)}


def test_fuzzy_indices_cluster_by_the_papers_program() -> None:
    program: dict[str, Any] = {"local": "converge", "support": "u"}
    assert clustered_by("gap") == clustered_by("vote") == {"m": None}
    assert clustered_by("gap", 3.0) == {"m": 3.0}
    assert clustered_by("xie-beni") == {"m": 2.0}
    assert clustered_by("xie-beni", 1.5) == {"m": 1.5}
    assert clustered_by("fuzzy-db") == {
        "m": 2.0, "algorithm": FFCM(2.0, averaging="avg_2", **program)
    }  # fmt: skip
    assert clustered_by("fuzzy-db", 1.5, "avg_1") == {
        "m": 1.5, "algorithm": FFCM(1.5, averaging="avg_1", **program)
    }  # fmt: skip


def test_the_gap_is_that_of_the_within_sums_in_the_rows_box_or_the_given_one() -> None:
    plan = select_k_plan([2, 3], fit_of(1, seed=4), Rule("vote"))
    own = run_plan(plan, engine()).value
    within = {k: scores["within"] for k, scores in own.table.items()}
    expected = gaps(within, 36, box(ROWS.mean(axis=0), ROWS.var(axis=0)), seed=4)
    for k, scores in own.table.items():
        assert (scores["gap"], scores["gap-error"]) == pytest.approx(expected[k], rel=1e-9)
    bounds = np.array([-20.0]), np.array([20.0])
    wide = run_plan(select_k_plan([2, 3], fit_of(1, seed=4), Rule("gap", bounds=bounds)), engine())
    expected = gaps(within, 36, (np.full(2, -20.0), np.full(2, 20.0)), seed=4)
    assert wide.value.table[3]["gap"] == pytest.approx(expected[3][0], rel=1e-9)
    assert wide.value.rule == "gap"
    assert isinstance(wide.value.results[3], Result)
    assert isinstance(wide.value.results[3].state, State)
