"""Rows split over sites that are alike or not, as the field's papers do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcluster.errors import InputError
from fedcluster_app.datasets import sites_by_label

LABELS = np.repeat([0, 1, 2, 3], [400, 300, 200, 100])


def shares(sites: Any) -> Any:
    """The share of each site in each label."""
    table = np.array([np.bincount(sites[label == LABELS], minlength=5) for label in range(4)])
    return table / table.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(5))
def test_sites_by_label_are_as_unlike_as_they_are_asked_for(seed: int) -> None:
    alike = sites_by_label(LABELS, 5, seed=seed)
    assert np.bincount(alike).tolist() == [200] * 5
    spreads = [
        shares(sites_by_label(LABELS, 5, alpha=alpha, seed=seed)).std() for alpha in (100, 1, 0.1)
    ]
    assert shares(alike).std() < 0.05 < spreads[1] < spreads[2]
    assert spreads[0] < 0.03
    shards = sites_by_label(LABELS, 5, labels_per_site=2, seed=seed)
    assert np.bincount(shards).tolist() == [200] * 5
    assert max(len(np.unique(LABELS[shards == site])) for site in range(5)) <= 4
    assert np.array_equal(shards, sites_by_label(LABELS, 5, labels_per_site=2, seed=seed))
    assert not np.array_equal(shards, sites_by_label(LABELS, 5, labels_per_site=2, seed=seed + 9))


def test_shares_of_sites_are_those_of_a_dirichlet_distribution() -> None:
    """Of shares of 5 sites the variance is (1/5) (4/5) / (5 alpha + 1)."""
    for alpha in (0.5, 2.0):
        drawn = [
            shares(sites_by_label(LABELS, 5, alpha=alpha, min_rows=0, seed=seed))
            for seed in range(100)
        ]
        assert np.mean(drawn) == pytest.approx(0.2)
        assert np.var(drawn) == pytest.approx(0.16 / (5 * alpha + 1), rel=0.15)


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ({"alpha": 1.0, "labels_per_site": 1}, "and not both"),
        ({"alpha": 0.0}, "alpha must be above 0, not 0.0"),
        ({"labels_per_site": -1}, "labels_per_site must be above 0"),
        ({"n_sites": 501}, "1000 rows are too few for 501 sites"),
        ({"alpha": 0.001}, "make alpha larger, or sites fewer"),
    ],
)
def test_sites_that_cannot_be_made_are_refused(how: Any, line: str) -> None:
    with pytest.raises(InputError, match=line):
        sites_by_label(LABELS, **{"n_sites": 5, **how})
