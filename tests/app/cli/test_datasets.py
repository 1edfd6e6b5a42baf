"""The papers' data: FKM's bit by bit, others by their sizes, means and deviations; and readers."""

import json
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from reproduction.datasets import ffcm_case, g2, pentagon, plane16, read_g2, triebe, variable_k
from reproduction.real_datasets import four_cancers, leaf_femnist, like_four_cancers


def sizes(rows):
    return [len(X) for X, _ in rows.sites.values()]


def counts(rows, k):
    return [np.bincount(y, minlength=k).tolist() for _, y in rows.sites.values()]


def test_sites_have_the_published_sizes_and_numbers_of_clusters():
    assert sizes(plane16(0.1)) == [185, 144, 194, 74, 203]
    assert sizes(plane16(1.0)) == [174, 146, 187, 102, 191]
    assert sizes(plane16(10.0)) == [200, 162, 140, 158, 140]
    rows = variable_k()
    assert sizes(rows) == [473, 10, 34, 173, 98]
    assert [len(np.unique(y)) for _, y in rows.sites.values()] == [16, 1, 3, 10, 7]
    assert len(variable_k(500).X) == 7992


@pytest.mark.parametrize("beta", ["0.1", "1", "10"])
def test_rows_of_plane16_are_the_published_bits(reference, beta):
    """The published file lists the rows site by site, for another assignment to sites."""
    with np.load(reference / "fkm_regular_split.npz") as published:
        X, y = published[f"regular_beta{beta}_X"], published[f"regular_beta{beta}_label"]
    rows = plane16(float(beta))
    ours, theirs = np.lexsort(rows.X.T), np.lexsort(X.T)
    np.testing.assert_array_equal(rows.X[ours], X[theirs])
    np.testing.assert_array_equal(rows.y[ours], y[theirs])


@pytest.mark.parametrize("make", [plane16, variable_k])
def test_sites_hold_all_rows_in_the_order_of_their_names(make):
    rows = make()
    assert list(rows.sites) == [f"client-{i}" for i in range(5)]
    for name, (X, y) in rows.sites.items():
        np.testing.assert_array_equal(X, rows.X[rows.site == name])
        np.testing.assert_array_equal(y, rows.y[rows.site == name])
    assert sum(sizes(rows)) == len(rows.X) == len(rows.y)


def test_noise_is_the_same_for_every_beta_and_none_strays_from_no_cluster():
    np.testing.assert_array_equal(plane16(0.1, noise=1.5).X, plane16(10, noise=1.5).X)
    grid = [(x, y) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5)]
    np.testing.assert_array_equal(plane16(per_cluster=1, noise=0).X, grid)


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (plane16, {"beta": 0.0}),
        (g2, {"dimensions": 0, "deviation": 10}),
        (plane16, {"noise": -1.0}),
        (plane16, {"per_cluster": 0}),
        (variable_k, {"per_cluster": 4}),
        (pentagon, {"rows_per_cluster": 5}),
        (g2, {"dimensions": 2, "deviation": -1.0}),
    ],
)
def test_impossible_data_are_refused(make, wrong):
    said = f"{make.__name__} needs .* not .*{next(iter(wrong.values()))}"
    with pytest.raises(ValueError, match=said):
        make(**wrong)


def test_triebe_is_fifty_sites_of_ten_rows_around_one_of_five_means():
    train, test = triebe()
    for rows in (train, test):
        assert list(rows.sites) == [f"client-{i:02}" for i in range(50)]
        assert rows.X.shape == (500, 1)
        np.testing.assert_array_equal(rows.y, np.repeat(np.arange(5), 100))
        assert sizes(rows) == [10] * 50
    assert not np.isin(test.X, train.X).any()


def test_triebe_s_clusters_have_the_means_and_the_deviation_of_the_paper():
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
def test_sites_of_the_ffcm_cases_hold_so_many_rows_of_each_cluster(case):
    means, sd = FFCM_MEANS[case[0]]
    rows = ffcm_case(case, seed=1)
    assert list(rows.sites) == [f"client-{i}" for i in range(len(FFCM_COUNTS[case]))]
    assert counts(rows, len(means)) == FFCM_COUNTS[case]
    for j, mean in enumerate(means):
        X = rows.X[rows.y == j]
        np.testing.assert_allclose(X.mean(axis=0), mean, atol=4.5 * sd / len(X) ** 0.5)
        np.testing.assert_allclose(X.std(axis=0), sd, atol=4.5 * sd / (2 * len(X)) ** 0.5)


def test_an_unknown_case_is_refused():
    with pytest.raises(ValueError, match="ffcm_case knows 1a, 1b, 2, 3a, 3b, 3c, 3d, not '4'"):
        ffcm_case("4")


@pytest.mark.parametrize("make", [lambda seed: triebe(seed)[0], lambda seed: ffcm_case("2", seed)])
def test_a_seed_makes_the_rows(make):
    np.testing.assert_array_equal(make(5).X, make(5).X)
    assert not np.isin(make(5).X, make(6).X).any()


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


def test_the_values_of_g2_are_cut_and_not_rounded(reference):
    """In all published sets of deviation 10 the mean is half a unit too low, 9 standard errors."""
    with np.load(reference / "g2_d2_to_d8.npz") as published:
        theirs = [(published[f"g2_{d}_10"] - 500.0)[:1024].ravel() for d in (2, 4, 8)]
    ours = [(g2(d, 10).X - 500)[:1024].ravel() for d in (2, 4, 8)]
    for values in map(np.concatenate, (ours, theirs)):
        assert values.mean() == pytest.approx(-0.5, abs=4 * 10 / len(values) ** 0.5)


def test_g2_gives_each_row_to_one_of_the_sites_and_the_rows_do_not_depend_on_them():
    two, ten = g2(4, 30, n_sites=2), g2(4, 30)
    np.testing.assert_array_equal(two.X, ten.X)
    for rows, n_sites in ((two, 2), (ten, 10)):
        assert len(rows.sites) == n_sites
        assert min(sizes(rows)) > 2048 / n_sites - 5 * (2048 / n_sites) ** 0.5


def test_g2_files_are_read_and_others_refused(tmp_path):
    rows, path = g2(2, 30, seed=7), tmp_path / "g2-2-30.txt"
    np.savetxt(path, rows.X, fmt="   %d", delimiter="   ")
    read = read_g2(path, seed=7)
    np.testing.assert_array_equal(read.X, rows.X)
    np.testing.assert_array_equal(read.y, rows.y)
    np.testing.assert_array_equal(read.site, rows.site)
    path.write_text("1 2\n3 4\n")
    with pytest.raises(ValueError, match=r"g2-2-30\.txt has 2 rows, a G2 set has 2048"):
        read_g2(path)
    path.write_text("1 two\n")
    with pytest.raises(ValueError, match=r"g2-2-30\.txt is not a table of numbers .*two"):
        read_g2(path)


def test_pentagon_is_five_clusters_of_which_each_site_holds_two():
    rows = pentagon(seed=3)
    assert counts(rows, 5) == [[100, 200, 0, 0, 0], [0, 0, 200, 200, 0], [100, 0, 0, 0, 200]]
    means = np.array([rows.X[rows.y == j].mean(axis=0) for j in range(5)])
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), 5, atol=4.5 / 200**0.5)
    neighbours = np.linalg.norm(means - np.roll(means, 1, axis=0), axis=1)
    np.testing.assert_allclose(neighbours, 10 * np.sin(np.pi / 5), atol=4.5 * (2 / 200) ** 0.5)


# Readers of real data, on small made-up files


def leaf_file(path, writers):
    data = {name: {"x": x, "y": y} for name, (x, y) in writers.items()}
    sizes = [len(y) for _, y in writers.values()]
    content = {"users": list(writers), "num_samples": sizes, "user_data": data}
    path.write_text(json.dumps(content), "utf-8")
    return path


def test_leaf_s_writers_are_sites(tmp_path):
    leaf_file(tmp_path / "b.json", {"f1": ([[0.5, 0.0]], [61]), "f0": ([[0.0, 0.0]], [7])})
    leaf_file(tmp_path / "a.json", {"f9": ([[1.0, 0.25], [0.75, 1.0]], [3, 0])})
    rows = leaf_femnist(tmp_path, writers=2)
    np.testing.assert_array_equal(rows.X, [[1.0, 0.25], [0.75, 1.0], [0.5, 0.0]])
    np.testing.assert_array_equal(rows.y, [3, 0, 61])
    assert rows.site.tolist() == ["f9", "f9", "f1"]
    assert len(leaf_femnist(tmp_path, writers=None).sites) == 3


@pytest.mark.parametrize(
    ("writers", "complaint"),
    [
        ({"f1": ([[0.0], [1.0]], [3])}, "writer f1 has 2 images, .* and 1 labels"),
        ({"f1": ([[0.0]], [3]), "f2": ([[0.0, 1.0]], [3])}, r"one size, not \[1, 2\] pixels"),
        ({}, "holds no writers"),
        ({"f1": ([[0.0], [1.0, 2.0]], [3, 4])}, "writer f1 has 2 images, which must be of one"),
    ],
)
def test_what_is_wrong_with_leaf_s_writers_is_told(tmp_path, writers, complaint):
    with pytest.raises(ValueError, match=complaint):
        leaf_femnist(leaf_file(tmp_path / "a.json", writers))


def test_a_file_that_is_not_leaf_s_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no file that ends in \.json"):
        leaf_femnist(tmp_path)
    (tmp_path / "a.json").write_text("[]", "utf-8")
    with pytest.raises(ValueError, match=r'a\.json is not a file of LEAF: it lacks "users"'):
        leaf_femnist(tmp_path)
    (tmp_path / "a.json").write_text('{"users": ["f1"], "user_data": {}}', "utf-8")
    with pytest.raises(ValueError, match='writer f1 is named in "users" but has no data'):
        leaf_femnist(tmp_path / "a.json")


PATIENTS = ("Lung1", "Endo2", "Colon1", "Renal3")


def made_up_cells():
    """Forty cells of 300 genes, the last of which is mitochondrial; every fifth is of no tumour."""
    counts = np.random.default_rng(0).poisson(3.0, (40, 300)).astype(float)
    counts[:, -1] = 0.0
    counts[0, 150:] = 0.0  # too few genes
    counts[1, -1] = counts[1].sum()  # half of the counts
    columns = {"patient": [*PATIENTS] * 10, "tumour": [i % 5 > 0 for i in range(40)]}
    return counts, pd.DataFrame(columns, index=[f"cell{i}" for i in range(40)])


def h5ad_file(folder, *, sparse=True, **columns):
    anndata = pytest.importorskip("anndata")
    counts, obs = made_up_cells()
    genes = pd.DataFrame(index=[f"G{i}" for i in range(299)] + ["mt-ND1"])
    X = csr_matrix(counts) if sparse else counts
    anndata.AnnData(X, obs=obs.assign(**columns), var=genes).write_h5ad(folder / "cells.h5ad")
    return folder / "cells.h5ad"


@pytest.mark.parametrize("sparse", [True, False])
def test_cells_are_prepared_as_the_paper_describes(tmp_path, sparse):
    """Against the same steps on a dense matrix, with numpy's singular values."""
    counts, obs = made_up_cells()
    kept = np.arange(40) > 1
    expression = np.log1p(1e4 * counts[kept] / counts[kept].sum(axis=1, keepdims=True))
    most = np.sort(np.argsort(-expression.var(axis=0))[:50])
    centred = expression[:, most] - expression[:, most].mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    tumour = obs.tumour.to_numpy()[kept]
    rows = four_cancers(h5ad_file(tmp_path, sparse=sparse), n_genes=50)
    np.testing.assert_allclose(np.abs(rows.X), np.abs(u * s)[tumour, :5], rtol=1e-6, atol=1e-8)


def test_cells_go_to_their_patients_clients(tmp_path):
    path = h5ad_file(tmp_path)
    homes: dict[Any, list[int]] = {"iid": [0, 1, 0, 2], "non-iid": [1, 0, 0, 2]}
    for split, home in homes.items():
        rows = four_cancers(path, split, n_components=2)  # of Colon1, Endo2, Lung1 and Renal3
        assert rows.X.shape == (38 - 7, 2)  # cells 5, 10, ..., 35 are of no tumour
        assert rows.site.tolist() == [f"client-{home[cancer]}" for cancer in rows.y]


@pytest.mark.parametrize(
    ("columns", "asked", "complaint"),
    [
        ({"patient": "Liver1"}, {}, "there is no client for Liver1: the patients are Colon1, "),
        ({"tumour": False}, {}, "of 40 cells, 38 have .* and none of them is a tumour cell"),
        ({}, {"patient": "who"}, "no column 'who' in obs, only patient, tumour"),
        ({}, {"split": "both"}, "split must be one of iid, non-iid, not 'both'"),
    ],
)
def test_what_is_wrong_with_the_cells_is_told(tmp_path, columns, asked, complaint):
    with pytest.raises(ValueError, match=complaint):
        four_cancers(h5ad_file(tmp_path, **columns), **asked)


def test_without_the_extra_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r'pip install "fedcluster\[anndata\]"'):
        four_cancers(tmp_path / "cells.h5ad")


def test_the_stand_in_has_the_same_rows_at_other_clients():
    iid, apart = like_four_cancers("iid"), like_four_cancers("non-iid")
    np.testing.assert_array_equal(iid.X, apart.X)
    assert iid.X.shape == (14 * 150, 5)
    mixes = [np.array(counts(rows, 4)) / np.array(sizes(rows))[:, None] for rows in (iid, apart)]
    assert np.ptp(mixes[0], axis=0).max() < 0.25 < np.ptp(mixes[1], axis=0).max()
