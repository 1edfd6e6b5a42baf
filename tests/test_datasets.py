"""The FKM papers' data, bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedcluster.datasets import SplitRows, plane16, variable_k

PUBLISHED_SIZES = {
    0.1: [185, 144, 194, 74, 203],
    1.0: [174, 146, 187, 102, 191],
    10.0: [200, 162, 140, 158, 140],
}


def sizes(rows: SplitRows) -> list[int]:
    return [len(X) for X, _ in rows.sites.values()]


@pytest.mark.parametrize("beta", PUBLISHED_SIZES)
def test_sites_of_plane16_have_the_published_sizes(beta: float) -> None:
    assert sizes(plane16(beta)) == PUBLISHED_SIZES[beta]


def test_sites_of_variable_k_have_the_published_sizes_and_numbers_of_clusters() -> None:
    rows = variable_k()
    assert sizes(rows) == [473, 10, 34, 173, 98]
    assert [len(np.unique(y)) for _, y in rows.sites.values()] == [16, 1, 3, 10, 7]
    assert len(variable_k(500).X) == 7992


@pytest.mark.parametrize("beta", ["0.1", "1", "10"])
def test_rows_of_plane16_are_the_published_bits(reference: Path, beta: str) -> None:
    """The published file lists the rows site by site, for another assignment to sites."""
    with np.load(reference / "fkm_regular_split.npz") as published:
        X, y = published[f"regular_beta{beta}_X"], published[f"regular_beta{beta}_label"]
    rows = plane16(float(beta))
    ours, theirs = np.lexsort(rows.X.T), np.lexsort(X.T)
    np.testing.assert_array_equal(rows.X[ours], X[theirs])
    np.testing.assert_array_equal(rows.y[ours], y[theirs])


@pytest.mark.parametrize("make", [plane16, variable_k])
def test_sites_hold_all_rows_in_the_order_of_their_names(make) -> None:
    rows = make()
    assert list(rows.sites) == [f"client-{i}" for i in range(5)]
    for name, (X, y) in rows.sites.items():
        np.testing.assert_array_equal(X, rows.X[rows.site == name])
        np.testing.assert_array_equal(y, rows.y[rows.site == name])
    assert sum(sizes(rows)) == len(rows.X) == len(rows.y)


def test_the_pooled_rows_do_not_depend_on_beta() -> None:
    np.testing.assert_array_equal(plane16(0.1, noise=1.5).X, plane16(10, noise=1.5).X)


def test_no_rows_stray_from_their_cluster_without_noise() -> None:
    grid = [-7.5, -2.5, 2.5, 7.5]
    np.testing.assert_array_equal(
        plane16(per_cluster=1, noise=0).X, [(x, y) for x in grid for y in grid]
    )


@pytest.mark.parametrize("make", [plane16, variable_k])
def test_numpys_global_random_state_is_neither_read_nor_touched(make) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = make().X, make().X
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (plane16, {"beta": 0.0}),
        (plane16, {"noise": -1.0}),
        (plane16, {"per_cluster": 0}),
        (variable_k, {"per_cluster": 4}),
    ],
)
def test_impossible_data_are_refused(make, wrong) -> None:
    with pytest.raises(
        ValueError, match=f"{make.__name__} needs .* not .*{next(iter(wrong.values()))}"
    ):
        make(**wrong)
