"""The number of clusters of a few draws of each family of kinds, by likelihood."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.kinds import KINDS, drawn
from fedcluster import select_k
from reproduction.datasets import plane16

FAMILIES = {
    "round, 3 of 30 rows": 7,
    "skewed": 7,
    "different shapes": 7,
    "long, side by side": 7,
    "5 % noise": 8,
    "one box": 6,
    "one lognormal": 6,
    "3 and texts of 2, 2, 4": 8,
    "one and three texts": 6,
    "3 and a yes/no number": 6,
    "telling texts, 3": 6,
    "texts alone, 3": 6,
}
"""Kinds, and the largest k that is tried here."""


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "most"), FAMILIES.items(), ids=list(FAMILIES))
def test_a_draw_of_each_family_has_its_number_of_clusters(kind: str, most: int) -> None:
    rows, site = drawn(kind, 100)
    table = rows.table()
    found = select_k(table, range(1, most + 1), sites=site, prepare="standard", random_state=0)
    assert found.n_clusters == rows.k, found.reason
    assert found.says["likelihood"] == rows.k
    assert not np.isnan(found.table[rows.k]["likelihood"])


@pytest.mark.thorough
def test_sixteen_clusters_are_found_beyond_the_first_range() -> None:
    rows, site = drawn("K = 16", 100)
    found = select_k(rows.table(), sites=site, prepare="standard", random_state=0)
    assert found.n_clusters == 16
    assert set(found.results) == {15, 16, 17}  # it and its neighbours, not every k


@pytest.mark.thorough
def test_sixteen_clusters_that_overlap_are_not_merged_into_one() -> None:
    """Means 3.3 deviations apart: by the plain BIC eight long components are likeliest."""
    data = plane16(noise=1.5)
    found = select_k(data.X, sites=data.site, random_state=0)
    assert found.n_clusters == 16, found.reason


def test_there_are_forty_kinds() -> None:
    assert len(KINDS) == 40
