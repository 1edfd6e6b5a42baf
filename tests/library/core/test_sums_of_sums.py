"""Sums of sums: totals of some sites each, added again, are the total of all sites, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_laws import STEPS, asked

from fedcluster import Client, Data, State, Summary, Task
from fedcluster.algorithms import Lloyd

RNG = np.random.default_rng(3)
SPOTS = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 1.0], [0.0, 9.0, 2.0], [9.0, 9.0, 3.0]])
NAMES = [f"s{i:02}" for i in range(64)]


def rows(n: int) -> Data:
    """Rows of columns whose values have very different exponents."""
    X = SPOTS[RNG.integers(0, 4, n)] + RNG.normal(size=(n, 3))
    return Data(X * [1.0, 1e-9, 1e7], RNG.choice([0.1, 1.0, 3.7], n), y=RNG.integers(0, 3, n))


ROWS = {name: rows(int(RNG.integers(5, 40))) for name in NAMES}
START = State.at(SPOTS * [1.0, 1e-9, 1e7] + 0.1)
ADDITIVE = [step for step in STEPS if step.server_additive]


def summaries(task: Task, names: Sequence[str] = NAMES) -> list[Summary]:
    return [Client(name, ROWS[name]).answer(task) for name in names]


def totals(parts: Sequence[Summary], size: int) -> list[Summary]:
    return [Summary.total(parts[i : i + size]) for i in range(0, len(parts), size)]


def same(one: Summary, other: Summary) -> None:
    assert one.planes.tobytes() == other.planes.tobytes()


@pytest.mark.parametrize("step", ADDITIVE, ids=repr)
def test_totals_of_eight_sites_each_have_the_bits_of_64_sites(step: Any) -> None:
    task = Task(step, asked(step, START.centers), seed=4)
    flat = summaries(task)
    tree = totals(flat, 8)
    same(Summary.total(flat), Summary.total(tree))
    same(Summary.total(flat), Summary.total(totals(tree, 3)))
    if hasattr(step, "server_step"):
        one, other = (
            step.server_step(task.state, each, np.random.default_rng(0)) for each in (flat, tree)
        )
        assert one.centers.tobytes() == other.centers.tobytes()
        assert one.weights.tobytes() == other.weights.tobytes()


@given(st.integers(0, 2**32 - 1))
def test_sites_in_any_groups_give_the_same_total(seed: int) -> None:
    flat = summaries(Task(Lloyd(), START), NAMES[:12])
    order = np.random.default_rng(seed).permutation(12)
    same(Summary.total(flat), Summary.total(totals([flat[i] for i in order], 4)))
