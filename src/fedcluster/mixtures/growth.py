"""Plan of describing the rows by leaves, which are halved in three rounds."""

from __future__ import annotations

from collections.abc import Collection
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

GROWTH = (8, 64, 256)
"""Number of leaves in successive rounds."""
LEAST = 5.0
"""Smallest number of rows in a leaf."""
KEPT = 0.9
"""Smallest share of the weight of larger leaves that smaller ones must have in their place: limits
of the sites hold back those of few rows at a site."""
AT_EACH = 1.5
"""Rows of a leaf, for each site and row of the smallest group that a site's limits let it send."""
MOST_NUMBERS = 100_000
"""Number of values in a round above which leaves have squares only, no products of columns."""


def leaves_plan(
    preprocessor: RowTransform | None,
    seed: int = 0,
    noise: bool | float = False,
    least: float = LEAST,
) -> Plan[tuple[Table, LeafRows]]:
    """Plan five rounds that describe the rows and their leaves of at least ``least`` rows.

    A ``noise`` is its volume.
    """
    table = yield from table_plan(preprocessor, seed)
    both: list[Any] = yield from gather([with_noise(table, seed), grown(table, least, seed)])
    noisy, leaves = both
    if not isinstance(noise, bool):
        noisy = replace(noisy, log_noise=-log(noise))
    return noisy, LeafRows(leaves, noisy)


def passing(smallest: int, site_rows: Collection[float]) -> float:
    """Return how many rows leaves need so that the limits of most sites let their parts pass.

    Examples
    --------
    >>> passing(1, [900, 300]), passing(5, [900, 300]), passing(100, [900, 300])
    (0.0, 15.0, 150.0)
    """
    if smallest == 1:
        return 0.0
    return min(AT_EACH * smallest * len(site_rows), sum(site_rows) / GROWTH[0])


def grown(table: Table, least: float, seed: int = 0) -> Plan[Leaves]:
    """Plan the rounds in which leaves are halved, starting from all rows together.

    Parameters
    ----------
    table : Table
        Facts about the rows.
    least : float
        The smallest weight of a leaf.
    seed : int
        As in `iterate`.
    """
    numeric = np.flatnonzero(table.texts == 0)
    least, products = min(least, table.n), sends_products(table, least)
    most = max(1, int(table.n // least))
    step = LeafMoments(products, table.has_gaps)
    leaves = Leaves(np.array([table.n]), table.mean[None], table.covariance[None])
    for goal in GROWTH:
        points = leaves.halved(min(goal, most), table.unit, numeric, least)
        if len(points) == len(leaves.weights):
            break
        state = begun(points, table.unit, table.texts)
        [answers] = yield [Task(step, state, seed, table.preprocessor)]
        total = answers.total()
        if not total.weights.any():
            raise HeldBackError(NOT_DESCRIBED)
        finer = Leaves.from_total(step, state, total, table.covariance, least)
        if len(leaves.weights) > 1 and finer.weights.sum() < KEPT * leaves.weights.sum():
            break
        leaves = finer
    return leaves


def sends_products(table: Table, least: float) -> bool:
    """Return whether leaves have products of columns, or squares only as they are too many."""
    most, p = table.n // min(least, table.n), table.n_numbers
    return min(most, GROWTH[-1]) * (len(table.texts) + 1 + p * (p + 1) // 2) <= MOST_NUMBERS
