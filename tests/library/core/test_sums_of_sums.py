"""Sums of sums: totals of some sites each, added again, are the total of all sites, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from test_laws import STEPS, asked

from fedcluster import Client, Data, State, Summary, Task

RNG = np.random.default_rng(3)
SPOTS = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 1.0], [0.0, 9.0, 2.0], [9.0, 9.0, 3.0]])
SCALES = [1.0, 1e-9, 1e7]
"""Rows of columns whose values have very different exponents."""


def rows(n: int) -> Data:
    X = SPOTS[RNG.integers(0, 4, n)] + RNG.normal(size=(n, 3))
    return Data(X * SCALES, RNG.choice([0.1, 1.0, 3.7], n), y=RNG.integers(0, 3, n))


SITES = [Client(f"s{i:02}", rows(int(RNG.integers(5, 40)))) for i in range(64)]


def totals(parts: Sequence[Summary], size: int) -> list[Summary]:
    return [Summary.total(parts[i : i + size]) for i in range(0, len(parts), size)]


@pytest.mark.parametrize("step", [step for step in STEPS if step.server_additive], ids=repr)
def test_totals_of_eight_sites_each_have_the_bits_of_64_sites(step: Any) -> None:
    task = Task(step, asked(step, State.at(SPOTS * SCALES + 0.1).centers), seed=4)
    flat = [site.answer(task) for site in SITES]
    tree = totals(flat, 8)
    planes = Summary.total(flat).planes.tobytes()
    assert Summary.total(tree).planes.tobytes() == planes
    assert Summary.total(totals(tree, 3)).planes.tobytes() == planes
    if hasattr(step, "server_step"):
        rng = np.random.default_rng
        one, other = (step.server_step(task.state, each, rng(0)) for each in (flat, tree))
        assert one.centers.tobytes() == other.centers.tobytes()
        assert one.weights.tobytes() == other.weights.tobytes()
