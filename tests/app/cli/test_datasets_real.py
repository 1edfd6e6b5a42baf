"""Readers of the papers' real data, on small made-up files, and the stand-in for the cancers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from reproduction.real_datasets import four_cancers, leaf_femnist, like_four_cancers


def leaf_file(path: Path, writers: dict[str, tuple[list, list]]) -> Path:
    data = {name: {"x": x, "y": y} for name, (x, y) in writers.items()}
    counts = [len(y) for _, y in writers.values()]
    path.write_text(
        json.dumps({"users": list(writers), "num_samples": counts, "user_data": data}), "utf-8"
    )
    return path


def test_leaf_s_writers_are_sites(tmp_path: Path) -> None:
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
        ({}, "holds no writers"),
        ({"f1": ([[0.0], [1.0]], [3])}, "writer f1 has 2 images, .* and 1 labels"),
        ({"f1": ([[0.0], [1.0, 2.0]], [3, 4])}, "writer f1 has 2 images, which must be of one"),
        ({"f1": ([[0.0]], [3]), "f2": ([[0.0, 1.0]], [3])}, r"one size, not \[1, 2\] pixels"),
    ],
)
def test_what_is_wrong_with_leaf_s_writers_is_told(tmp_path, writers, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        leaf_femnist(leaf_file(tmp_path / "a.json", writers))


def test_a_file_that_is_not_leaf_s_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no file that ends in \.json"):
        leaf_femnist(tmp_path)
    (tmp_path / "a.json").write_text("[]", "utf-8")
    with pytest.raises(ValueError, match=r'a\.json is not a file of LEAF: it lacks "users"'):
        leaf_femnist(tmp_path)
    (tmp_path / "a.json").write_text('{"users": ["f1"], "user_data": {}}', "utf-8")
    with pytest.raises(ValueError, match='writer f1 is named in "users" but has no data'):
        leaf_femnist(tmp_path / "a.json")


GENES = 300
PATIENTS = ("Lung1", "Endo2", "Colon1", "Renal3")


def made_up_cells() -> tuple[np.ndarray, pd.DataFrame, list[str]]:
    """Forty cells of 300 genes, the last of which is mitochondrial; every fifth is of no tumour."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(3.0, (40, GENES)).astype(float)
    counts[:, -1] = 0.0
    counts[0, 150:] = 0.0  # too few genes
    counts[1, -1] = counts[1].sum()  # half of the counts
    obs = pd.DataFrame(
        {
            "patient": [PATIENTS[i % 4] for i in range(40)],
            "tumour": [i % 5 > 0 for i in range(40)],
        },
        index=[f"cell{i}" for i in range(40)],
    )
    return counts, obs, [f"G{i}" for i in range(GENES - 1)] + ["mt-ND1"]


def h5ad_file(folder: Path, *, sparse: bool = True, **columns) -> Path:
    anndata = pytest.importorskip("anndata")
    counts, obs, genes = made_up_cells()
    cells = anndata.AnnData(
        csr_matrix(counts) if sparse else counts,
        obs=obs.assign(**columns),
        var=pd.DataFrame(index=genes),
    )
    cells.write_h5ad(folder / "cells.h5ad")
    return folder / "cells.h5ad"


@pytest.mark.parametrize("sparse", [True, False])
def test_cells_are_prepared_as_the_paper_describes(tmp_path: Path, sparse: bool) -> None:
    """Against the same steps on a dense matrix, with numpy's singular values."""
    counts, obs, _ = made_up_cells()
    kept = np.arange(40) > 1
    expression = np.log1p(1e4 * counts[kept] / counts[kept].sum(axis=1, keepdims=True))
    most = np.sort(np.argsort(-expression.var(axis=0))[:50])
    centred = expression[:, most] - expression[:, most].mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    tumour = obs.tumour.to_numpy()[kept]
    rows = four_cancers(h5ad_file(tmp_path, sparse=sparse), n_genes=50)
    np.testing.assert_allclose(np.abs(rows.X), np.abs(u * s)[tumour, :5], rtol=1e-6, atol=1e-8)


def test_cells_go_to_their_patients_clients(tmp_path: Path) -> None:
    path = h5ad_file(tmp_path)
    homes: dict[Any, list[int]] = {
        "iid": [0, 1, 0, 2],
        "non-iid": [1, 0, 0, 2],
    }  # of Colon1, Endo2, Lung1 and Renal3
    for split, home in homes.items():
        rows = four_cancers(path, split, n_components=2)
        assert rows.X.shape == (38 - 7, 2)  # cells 5, 10, ..., 35 are of no tumour
        assert rows.site.tolist() == [f"client-{home[cancer]}" for cancer in rows.y]


@pytest.mark.parametrize(
    ("columns", "asked", "complaint"),
    [
        ({}, {"patient": "who"}, "no column 'who' in obs, only patient, tumour"),
        ({"patient": "Liver1"}, {}, "there is no client for Liver1: the patients are Colon1, "),
        ({}, {"split": "both"}, "split must be one of iid, non-iid, not 'both'"),
        ({"tumour": False}, {}, "of 40 cells, 38 have .* and none of them is a tumour cell"),
    ],
)
def test_what_is_wrong_with_the_cells_is_told(tmp_path, columns, asked, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        four_cancers(h5ad_file(tmp_path, **columns), **asked)


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r'pip install "fedcluster\[anndata\]"'):
        four_cancers(tmp_path / "cells.h5ad")


def test_the_stand_in_has_the_same_rows_at_other_clients() -> None:
    iid, apart = like_four_cancers("iid"), like_four_cancers("non-iid")
    np.testing.assert_array_equal(iid.X, apart.X)
    assert iid.X.shape == (14 * 150, 5)
    mix = [
        np.bincount(y, minlength=4) / len(y)
        for rows in (iid, apart)
        for _, y in rows.sites.values()
    ]
    assert np.ptp(mix[:3], axis=0).max() < 0.25 < np.ptp(mix[3:], axis=0).max()
