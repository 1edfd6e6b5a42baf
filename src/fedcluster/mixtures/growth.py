"""Plan of describing the rows by leaves, which are halved in three rounds or four."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np

from fedcluster.core import RowTransform, Task
from fedcluster.errors import NOT_DESCRIBED, HeldBackError
from fedcluster.metrics.leaves import LeafMoments, Leaves, begun
from fedcluster.mixtures.on_leaves import LeafRows
from fedcluster.mixtures.table import Table, table_plan, with_noise
from fedcluster.rounds import Plan, gather


@dataclass(frozen=True, slots=True)
class Growth:
    """How leaves grow, round after round."""

    goals: tuple[int, ...] = (8, 64, 256)
    """Number of leaves in successive rounds, without limits of the sites."""
    limited: tuple[int, ...] = (8, 24, 64, 192)  # the same, with them
    least: float = 5.0  # rows in a leaf, at least
    kept: float = 0.9
    """Smallest share of the weight of larger leaves that smaller ones must have in their place:
    limits of the sites hold back those of few rows at a site."""
    most_numbers: int = 100_000
    """Number of values in a round above which leaves have squares only, no products of columns."""


GROWN = Growth()


def leaves_plan(
    preprocessor: RowTransform | None,
    seed: int = 0,
    noise: bool | float = False,
    smallest: int = 1,
    growth: Growth = GROWN,
) -> Plan[tuple[Table, LeafRows]]:
    """Plan five rounds that describe the rows and their leaves; six if sites have limits.

    A ``noise`` is its volume, and ``smallest`` the fewest rows that limits of all sites let pass.
    """
    table = yield from table_plan(preprocessor, seed)
    goals = growth.goals if smallest == 1 else growth.limited
    described = grown(table, growth.least, seed, goals, growth=growth)
    both: list[Any] = yield from gather([with_noise(table, seed), described])
    noisy, leaves = both
    if not isinstance(noise, bool):
        noisy = replace(noisy, log_noise=-log(noise))
    return noisy, LeafRows(leaves, noisy)


def grown(
    table: Table,
    least: float,
    seed: int = 0,
    goals: Sequence[int] = GROWN.goals,
    growth: Growth = GROWN,
) -> Plan[Leaves]:
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
    least, products = min(least, table.n), sends_products(table, least, growth)
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
        if total.weights.sum() < growth.kept * known:
            break
        if not total.weights.any():
            raise HeldBackError(NOT_DESCRIBED)
        leaves = Leaves.from_total(step, state, total, table.covariance, least)
    return leaves


def sends_products(table: Table, least: float, growth: Growth = GROWN) -> bool:
    """Return whether leaves have products of columns, or squares only as they are too many."""
    most, p = table.n // min(least, table.n), table.n_numbers
    return (
        min(most, growth.goals[-1]) * (len(table.texts) + 1 + p * (p + 1) // 2)
        <= growth.most_numbers
    )
