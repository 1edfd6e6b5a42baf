"""The papers' data: FKM's bit by bit, the others' by their sizes, means and deviations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reproduction.datasets import (
    SplitRows,
    ffcm_case,
    g2,
    pentagon,
    plane16,
    read_g2,
    triebe,
    variable_k,
)

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


@pytest.mark.parametrize(
    "make", [plane16, variable_k, lambda: triebe()[0], lambda: ffcm_case("2"), lambda: g2(2, 10)]
)
def test_numpys_global_random_state_is_neither_read_nor_touched(make) -> None:
    before = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    first, second = make().X, make().X
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(np.random.get_state(legacy=False)["state"]["key"], before)  # noqa: NPY002


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (plane16, {"beta": 0.0}),
        (plane16, {"noise": -1.0}),
        (plane16, {"per_cluster": 0}),
        (variable_k, {"per_cluster": 4}),
        (pentagon, {"rows_per_cluster": 5}),
        (g2, {"dimensions": 0, "deviation": 10}),
        (g2, {"dimensions": 2, "deviation": -1.0}),
    ],
)
def test_impossible_data_are_refused(make, wrong) -> None:
    with pytest.raises(
        ValueError, match=f"{make.__name__} needs .* not .*{next(iter(wrong.values()))}"
    ):
        make(**wrong)


def test_triebe_is_fifty_sites_of_ten_rows_around_one_of_five_means() -> None:
    train, test = triebe()
    for rows in (train, test):
        assert list(rows.sites) == [f"client-{i:02}" for i in range(50)]
        assert rows.X.shape == (500, 1)
        for i, (X, y) in enumerate(rows.sites.values()):
            assert X.shape == (10, 1)
            np.testing.assert_array_equal(y, [i // 10] * 10)
    assert not np.isin(test.X, train.X).any()


def test_triebe_s_clusters_have_the_means_and_the_deviation_of_the_paper() -> None:
    """Of 10 times as many sites: means within 4 standard errors, 0.2 / sqrt(1000)."""
    for rows in triebe(3, sites_per_cluster=100):
        for j in range(5):
            X = rows.X[rows.y == j]
            assert abs(X.mean() - (j + 1)) < 4 * 0.2 / 1000**0.5
            assert abs(X.std() - 0.2) < 4 * 0.2 / 2000**0.5


FFCM_COUNTS = {
    "1a": [[333, 333, 333]] * 3,
    "1b": [[333, 333, 333], [333, 333, 333], [500, 500, 0]],
    "2": [[900, 50, 50], [50, 900, 50]],
    "3a": [[50, 50, 0, 0], [0, 500, 500, 0], [0, 0, 50, 50]],
    "3b": [[50, 50, 0, 0], [0, 500, 500, 0], [0, 0, 500, 500]],
    "3c": [[500, 500, 0, 0], [0, 50, 50, 0], [0, 0, 50, 50]],
    "3d": [[500, 500, 0, 0], [0, 500, 500, 0], [0, 0, 500, 500]],
}
FFCM_MEANS = {
    "1": ([[-2, -2], [0, 0], [2, 2]], 0.5),
    "2": ([[5, 0], [5, 10], [10, 10]], 1.1),
    "3": ([[0, 0], [0, 10], [10, 10], [10, 0]], 1.0),
}


@pytest.mark.parametrize("case", FFCM_COUNTS)
def test_sites_of_the_ffcm_cases_hold_so_many_rows_of_each_cluster(case: str) -> None:
    means, sd = FFCM_MEANS[case[0]]
    rows = ffcm_case(case, seed=1)
    counts = [np.bincount(y, minlength=len(means)).tolist() for _, y in rows.sites.values()]
    assert list(rows.sites) == [f"client-{i}" for i in range(len(counts))]
    assert counts == FFCM_COUNTS[case]
    for j, mean in enumerate(means):
        X = rows.X[rows.y == j]
        np.testing.assert_allclose(X.mean(axis=0), mean, atol=4.5 * sd / len(X) ** 0.5)
        np.testing.assert_allclose(X.std(axis=0), sd, atol=4.5 * sd / (2 * len(X)) ** 0.5)


def test_a_seed_makes_the_rows() -> None:
    for make in (lambda seed: triebe(seed)[0], lambda seed: ffcm_case("2", seed)):
        np.testing.assert_array_equal(make(5).X, make(5).X)
        assert not np.isin(make(5).X, make(6).X).any()


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(ValueError, match="ffcm_case knows 1a, 1b, 2, 3a, 3b, 3c, 3d, not '4'"):
        ffcm_case("4")


@pytest.mark.parametrize("dimensions", [2, 4, 8])
@pytest.mark.parametrize("deviation", range(10, 101, 10))
def test_g2_is_drawn_like_the_published_sets(reference, dimensions, deviation):
    """Their means and deviations, in each cluster and over all coordinates, within 4 standard
    errors of the difference; whole numbers, and as many rows in the same order.
    """
    with np.load(reference / "g2_d2_to_d8.npz") as published:
        theirs = published[f"g2_{dimensions}_{deviation}"].astype(float)
    rows = g2(dimensions, deviation)
    assert rows.X.shape == theirs.shape
    np.testing.assert_array_equal(rows.X, np.round(rows.X))
    error = deviation / (1024 * dimensions) ** 0.5
    for half in (slice(1024), slice(1024, None)):
        ours = rows.X[half]
        assert ours.mean() == pytest.approx(theirs[half].mean(), abs=4 * 2**0.5 * error)
        assert ours.std() == pytest.approx(theirs[half].std(), abs=4 * error)


def test_the_values_of_g2_are_cut_and_not_rounded(reference: Path) -> None:
    """In all published sets of deviation 10 the mean is half a unit too low, 9 standard errors."""
    with np.load(reference / "g2_d2_to_d8.npz") as published:
        theirs = [(published[f"g2_{d}_10"] - 500.0)[:1024].ravel() for d in (2, 4, 8)]
    ours = [(g2(d, 10).X - 500)[:1024].ravel() for d in (2, 4, 8)]
    for values in map(np.concatenate, (ours, theirs)):
        assert values.mean() == pytest.approx(-0.5, abs=4 * 10 / len(values) ** 0.5)


def test_g2_gives_each_row_to_one_of_the_sites_and_the_rows_do_not_depend_on_them() -> None:
    two, ten = g2(4, 30, n_sites=2), g2(4, 30)
    np.testing.assert_array_equal(two.X, ten.X)
    for rows, n_sites in ((two, 2), (ten, 10)):
        assert len(rows.sites) == n_sites
        assert min(sizes(rows)) > 2048 / n_sites - 5 * (2048 / n_sites) ** 0.5


def test_g2_files_are_read(tmp_path: Path) -> None:
    rows = g2(2, 30, seed=7)
    path = tmp_path / "g2-2-30.txt"
    np.savetxt(path, rows.X, fmt="   %d", delimiter="   ")
    read = read_g2(path, seed=7)
    np.testing.assert_array_equal(read.X, rows.X)
    np.testing.assert_array_equal(read.y, rows.y)
    np.testing.assert_array_equal(read.site, rows.site)


def test_a_file_that_is_no_g2_set_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_text("1 2\n3 4\n")
    with pytest.raises(ValueError, match=r"other\.txt has 2 rows, a G2 set has 2048"):
        read_g2(path)
    path.write_text("1 two\n")
    with pytest.raises(ValueError, match=r"other\.txt is not a table of numbers .*two"):
        read_g2(path)


def test_pentagon_is_five_clusters_of_which_each_site_holds_two() -> None:
    rows = pentagon(seed=3)
    counts = [np.bincount(y, minlength=5).tolist() for _, y in rows.sites.values()]
    assert counts == [[100, 200, 0, 0, 0], [0, 0, 200, 200, 0], [100, 0, 0, 0, 200]]
    means = np.array([rows.X[rows.y == j].mean(axis=0) for j in range(5)])
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), 5, atol=4.5 / 200**0.5)
    neighbours = np.linalg.norm(means - np.roll(means, 1, axis=0), axis=1)
    np.testing.assert_allclose(neighbours, 10 * np.sin(np.pi / 5), atol=4.5 * (2 / 200) ** 0.5)
