"""Plan of describing the rows by leaves, which are halved in three rounds or four."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import Any

import numpy as np

from fedcluster.core import RowTransform, Task
from fedcluster.errors import NOT_DESCRIBED, HeldBackError
from fedcluster.metrics.leaves import LeafMoments, Leaves, begun
from fedcluster.mixtures.on_leaves import LeafRows
from fedcluster.mixtures.table import Table, table_plan, with_noise
from fedcluster.rounds import Plan, gather

GROWTH, LIMITED = (8, 64, 256), (8, 24, 64, 192)
"""Number of leaves in successive rounds, without and with limits of the sites."""
LEAST = 5.0
"""Smallest number of rows in a leaf."""
KEPT = 0.9
"""Smallest share of the weight of larger leaves that smaller ones must have in their place: limits
of the sites hold back those of few rows at a site."""
MOST_NUMBERS = 100_000
"""Number of values in a round above which leaves have squares only, no products of columns."""


def leaves_plan(
    preprocessor: RowTransform | None,
    seed: int = 0,
    noise: bool | float = False,
    smallest: int = 1,
) -> Plan[tuple[Table, LeafRows]]:
    """Plan five rounds that describe the rows and their leaves; six if sites have limits.

    A ``noise`` is its volume, and ``smallest`` the fewest rows that limits of all sites let pass.
    """
    table = yield from table_plan(preprocessor, seed)
    goals = GROWTH if smallest == 1 else LIMITED
    described = grown(table, LEAST, seed, goals)
    both: list[Any] = yield from gather([with_noise(table, seed), described])
    noisy, leaves = both
    if not isinstance(noise, bool):
        noisy = replace(noisy, log_noise=-log(noise))
    return noisy, LeafRows(leaves, noisy)


def grown(table: Table, least: float, seed: int = 0, goals: Sequence[int] = GROWTH) -> Plan[Leaves]:
    """Plan the rounds in which leaves are halved, starting from all rows together.

    They end when limits of the sites hold back much of what smaller leaves would tell. That depends
    on sums alone, as not every engine knows the number of sites.

    Parameters
    ----------
    table : Table
        Facts about the rows.
    least : float
        The smallest weight of a leaf.
    seed : int
        As in `iterate`.
    goals : sequence of int
        The number of leaves in each round.
    """
    numeric = np.flatnonzero(table.texts == 0)
    least, products = min(least, table.n), sends_products(table, least)
    most = max(1, int(table.n // least))
    step = LeafMoments(products, table.has_gaps)
    leaves = Leaves(np.array([table.n]), table.mean[None], table.covariance[None])
    for goal in goals:
        points = leaves.halved(min(goal, most), table.unit, numeric, least)
        if len(points) == len(leaves.weights):
            break
        state = begun(points, table.unit, table.texts)
        [answers] = yield [Task(step, state, seed, table.preprocessor)]
        total = answers.total()
        known = leaves.weights.sum() if len(leaves.weights) > 1 else 0.0
        if total.weights.sum() < KEPT * known:
            break
        if not total.weights.any():
            raise HeldBackError(NOT_DESCRIBED)
        leaves = Leaves.from_total(step, state, total, table.covariance, least)
    return leaves


def sends_products(table: Table, least: float) -> bool:
    """Return whether leaves have products of columns, or squares only as they are too many."""
    most, p = table.n // min(least, table.n), table.n_numbers
    return min(most, GROWTH[-1]) * (len(table.texts) + 1 + p * (p + 1) // 2) <= MOST_NUMBERS
