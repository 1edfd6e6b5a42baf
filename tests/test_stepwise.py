"""Few sites a round: the quality of all of them, and what is kept between rounds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcluster import Client, Data, LocalEngine, State, Task
from fedcluster.algorithms import FKM, GaussianMixture, Lloyd
from fedcluster.core import Summary
from fedcluster.engines import CrowdEngine
from fedcluster.errors import InputError
from fedcluster.metrics import Inertia
from fedcluster.recipes import stepwise
from fedcluster.recipes._stochastic_em import PASSES, _Run
from fedcluster.rounds import run_plan

RNG = np.random.default_rng(2)
N_SITES, K = 4000, 4
SPOTS = RNG.normal(size=(K, 3)) * 3
HOME = np.sort(RNG.integers(0, K, N_SITES))
OWN = np.repeat(HOME, 10)
BOUNDS = np.arange(0, 10 * N_SITES + 1, 10)
UNEQUAL = np.concatenate(
    [[0], np.sort(RNG.choice(len(OWN) - 1, N_SITES - 1, False) + 1), [len(OWN)]]
)


def turning(number: int) -> NDArray[np.bool_]:
    """Half of the clusters' sites at a time."""
    return (HOME + 2 * (number // 3)) % K < K // 2


KINDS: dict[str, Any] = {
    "alike": (RNG.permutation(OWN), BOUNDS, None),
    "a cluster each": (OWN, BOUNDS, None),
    "unequal": (RNG.permutation(OWN), UNEQUAL, None),
    "other sites at other times": (OWN, BOUNDS, turning),
}


SLOW = pytest.param("alike", marks=pytest.mark.long)


@pytest.mark.parametrize("kind", [SLOW, *[kind for kind in KINDS if kind != "alike"]])
def test_few_sites_a_round_find_the_clusters_of_all(kind: str) -> None:
    """A twentieth of the sites, 2,000 rows a round, against Lloyd from the true centres."""
    labels, bounds, available = KINDS[kind]
    rows = SPOTS[labels] + RNG.normal(size=(len(labels), 3))
    crowd = CrowdEngine([(rows, bounds)], participation=0.05, available=available)
    outcome = run_plan(stepwise(Lloyd(), K, rounds=50, seed=1), crowd)
    assert len(crowd.n_asked) == len(outcome.communication_rounds) == 50
    assert max(crowd.n_asked) <= 0.05 * N_SITES
    everyone = CrowdEngine([(rows, bounds)])
    best = SPOTS
    for _ in range(5):
        [answers] = everyone.ask([Task(Lloyd(), State.at(best))])
        best = Lloyd().server_step(State.at(best), answers.summaries, RNG).centers
    mine, pooled = (
        everyone.ask([Task(Inertia(), State.at(each))])[0].total().sums.sum()
        for each in (outcome.value.state.centers, best)
    )
    assert mine <= 1.01 * pooled


def test_the_average_of_totals_is_the_recursion_of_the_paper() -> None:
    """By hand: (1 - g) S + g s, with g = 1, 2^-0.6, 3^-0.6."""
    rows = [Data(np.array([[0.0], [2.0 * i]])) for i in range(1, 4)]
    engine = LocalEngine(Client(str(i), data) for i, data in enumerate(rows))
    outcome = run_plan(stepwise(Lloyd(), 1, rounds=20, n_init=1), engine, participation=0.4, seed=4)
    n_tree = sum(done.step == "VarianceTree" for done in outcome.value.history)
    start = n_tree + PASSES
    assert n_tree + PASSES + 3 < 20
    sums, centre = np.zeros(2), 0.0
    for t, done in enumerate(outcome.value.history[start:]):
        [name] = done.answered
        gain = (t + 1) ** -0.6
        sums = (1 - gain) * sums + gain * np.array([rows[int(name)].X.sum(), 2.0])
        centre = sums[0] / sums[1]
    np.testing.assert_allclose(outcome.value.state.centers, [[centre]])
    assert outcome.value.reason == "stopped after 20 rounds that asked a sample"
    assert len(outcome.value.history) == 20


def test_a_round_without_an_answer_changes_nothing() -> None:
    rows = np.repeat([[0.0], [9.0]], 200, axis=0)

    def available(number: int) -> NDArray[np.bool_]:
        return np.full(40, number % 5 != 4)

    crowd = CrowdEngine([(rows, np.arange(0, 401, 10))], available=available)
    result = run_plan(stepwise(Lloyd(), 2, rounds=30), crowd).value
    np.testing.assert_allclose(np.sort(result.state.centers, axis=0), [[0], [9]], atol=1e-9)


@pytest.mark.parametrize("algorithm", [FKM(2), GaussianMixture()], ids=repr)
def test_algorithms_whose_sums_do_not_mix_are_refused(algorithm: Any) -> None:
    with pytest.raises(InputError, match="in different rounds do not mix"):
        next(stepwise(algorithm, 2))


def test_too_few_rounds_are_refused() -> None:
    crowd = CrowdEngine([(np.arange(40.0)[:, None], np.arange(0, 41, 4))])
    with pytest.raises(InputError, match=r"the start took \d+ rounds: allow more than 2"):
        run_plan(stepwise(Lloyd(), 2, rounds=2), crowd)


def test_nothing_is_kept_that_grows_with_the_sites() -> None:
    """A million sites that answer leave one total of 64 numbers behind."""
    assert [*_Run.__slots__] == ["state", "history", "exponent", "planes", "inertia"]
    assert Summary(np.zeros((8, 7)), np.zeros(8)).planes[0].size == 64


def test_the_page_on_scale_runs() -> None:
    page = (Path(__file__).parents[1] / "docs" / "scale.md").read_text("utf-8")
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(block, "scale.md", "exec"), {})
