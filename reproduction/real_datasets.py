"""Data sets read from files that others publish: single cells of cancers, handwritten characters.

- S. Garst & M. Reinders, Federated K-means clustering, ICPR 2024, figure 7: single cells of
  fourteen patients at three hospitals. The authors do not publish the cells. `four_cancers`
  prepares an AnnData file of them as they did; `like_four_cancers` makes rows that only resemble
  them.
- S. Caldas et al., LEAF: a benchmark for federated settings, 2018, arXiv 1812.01097: characters by
  writer. LEAF's own program makes the files, from images of EMNIST: https://leaf.cmu.edu.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.decomposition import PCA

from fedcluster.core import Floats
from reproduction.datasets import SplitRows

__all__ = ["four_cancers", "leaf_femnist", "like_four_cancers"]

Split = Literal["iid", "non-iid"]
CANCERS = ("Colon", "Endo", "Lung", "Renal")
HOSPITALS: Mapping[Split, tuple[str, ...]] = {
    "iid": (
        "Lung1 Lung2 Endo1 Colon1 Renal1",
        "Lung3 Lung4 Endo2 Colon2 Renal2",
        "Lung5 Lung6 Endo3 Renal3",
    ),
    "non-iid": (
        "Lung1 Lung2 Endo1 Endo2 Endo3",
        "Lung3 Lung4 Colon1 Colon2",
        "Lung5 Lung6 Renal1 Renal2 Renal3",
    ),
}
"""Patients of each client, from the authors' notebooks; their text counts twelve."""


def four_cancers(
    path: str | PathLike[str],
    split: Split = "iid",
    *,
    patient: str = "patient",
    tumour: str = "tumour",
    n_genes: int = 500,
    n_components: int = 5,
) -> SplitRows:
    """Prepare the cells of an AnnData file, and hand them to three clients by patient.

    Keeps cells in which 200 to 2500 genes are seen and less than 5 % of the counts are of
    mitochondrial genes (``MT-...``); scales each cell to 10,000 counts and takes log(1 + x);
    keeps the genes of the largest variance; finds principal components of all cells, and returns
    those of the tumour cells.

    Parameters
    ----------
    path : path
        An ``.h5ad`` file: counts, a cell a row, gene names in ``var_names``.
    split : {"iid", "non-iid"}, default="iid"
        Whether each client sees all cancers, or mainly one or two.
    patient : str, default="patient"
        The column of ``obs`` that names the patient: Lung1 to Lung6, Endo1 to Endo3, Colon1,
        Colon2, Renal1 to Renal3.
    tumour : str, default="tumour"
        The column of ``obs`` that is true for tumour cells.
    n_genes : int, default=500
        Genes kept: 500 in the paper, 2000 in the authors' program.
    n_components : int, default=5
        Principal components kept.

    Returns
    -------
    SplitRows
        The components, of the tumour cells; as true clusters the cancers, in the order of the
        alphabet; ``client-0`` to ``client-2``.

    Raises
    ------
    ImportError
        Without the extra: ``pip install "fedcluster[anndata]"``.
    ValueError
        If a column or all cells of a kind are missing, or a patient is unknown.

    Notes
    -----
    Deviation: the most variable genes are those of the largest variance after the logarithm; the
    authors' program, Seurat, corrects the variance for the mean. Components are equal up to sign.
    """
    cells = _read(path)
    names = np.asarray(_column(path, cells.obs, patient)).astype(str)
    is_tumour = np.asarray(_column(path, cells.obs, tumour)).astype(bool)
    counts = csr_array(cells.X, dtype=np.float64)
    good = _good_cells(counts, np.asarray(cells.var_names).astype(str))
    if not (good & is_tumour).any():
        raise ValueError(
            f"{path}: of {len(good)} cells, {good.sum()} have 200 to 2500 genes and less than 5 % "
            "mitochondrial counts, and none of them is a tumour cell"
        )
    expression = variable_genes(log_normalised(counts[good]), n_genes)
    components = PCA(n_components, svd_solver="covariance_eigh").fit_transform(expression)
    of, names = is_tumour[good], names[good]
    return SplitRows(components[of], cancer_of(names[of]), hospital_of(names[of], split))


def log_normalised(counts: Any) -> Any:
    """Compute log(1 + 10,000 x / total) of each cell (row), sparse, as Seurat's LogNormalize.

    Examples
    --------
    >>> log_normalised(csr_array([[1.0, 3.0], [0.0, 0.0]])).toarray().round(3)
    array([[7.824, 8.923],
           [0.   , 0.   ]])
    """
    total = counts.sum(axis=1)
    per_cell = np.diff(counts.indptr)
    scaled = counts.data * np.repeat(1e4 / np.where(total > 0, total, 1.0), per_cell)
    return csr_array((np.log1p(scaled), counts.indices, counts.indptr), shape=counts.shape)


def variable_genes(expression: Any, n_genes: int) -> Floats:
    """Return the columns of the largest variance, dense, in their order.

    Examples
    --------
    >>> variable_genes(csr_array([[1.0, 0.0, 5.0], [2.0, 0.0, 1.0]]), 2)
    array([[1., 5.],
           [2., 1.]])
    """
    mean = expression.mean(axis=0)
    variance = expression.power(2).mean(axis=0) - mean**2
    kept = np.sort(np.argsort(-variance, kind="stable")[:n_genes])
    dense: Floats = expression[:, kept].toarray()
    return dense


def cancer_of(patients: NDArray[np.str_]) -> NDArray[np.intp]:
    """Return the index of each patient's cancer in `CANCERS`, (n,)."""
    kinds = np.char.rstrip(patients, "0123456789")
    return np.searchsorted(CANCERS, kinds).astype(np.intp)


def hospital_of(patients: NDArray[np.str_], split: Split) -> NDArray[np.str_]:
    """Return the client of each patient, (n,)."""
    if split not in HOSPITALS:
        raise ValueError(f"split must be one of {', '.join(HOSPITALS)}, not {split!r}")
    homes = {p: f"client-{i}" for i, held in enumerate(HOSPITALS[split]) for p in held.split()}
    unknown = set(patients) - homes.keys()
    if unknown:
        raise ValueError(
            f"there is no client for {', '.join(sorted(unknown))}: the patients are "
            f"{', '.join(sorted(homes))}"
        )
    return np.array([homes[patient] for patient in patients])


def like_four_cancers(
    split: Split = "iid", *, cells_per_patient: int = 150, seed: int = 0
) -> SplitRows:
    """Draw rows that resemble the four cancers, which are not the paper's data.

    Four normal clouds in five dimensions. Two thirds of a patient's cells are of the cloud of
    their cancer, the others of any cloud; each patient's cells are moved by a normal offset of
    their own. The patients are at the paper's three clients.

    Parameters
    ----------
    split : {"iid", "non-iid"}, default="iid"
        Whether each client sees all cancers, or mainly one or two.
    cells_per_patient : int, default=150
        Rows of each of the fourteen patients.
    seed : int, default=0
        Makes the draws; the pooled rows are the same for both splits.

    Returns
    -------
    SplitRows
        As true clusters the clouds; ``client-0`` to ``client-2``.

    Examples
    --------
    >>> {name: len(X) for name, (X, y) in like_four_cancers().sites.items()}
    {'client-0': 750, 'client-1': 750, 'client-2': 600}
    """
    rng = default_rng(seed)
    means = np.concatenate([np.eye(4) * 3.0, np.zeros((4, 1))], axis=1)
    patients = np.array(sorted(" ".join(HOSPITALS["iid"]).split()))
    own = np.repeat(cancer_of(patients), cells_per_patient)
    cloud = np.where(rng.random(len(own)) < 2 / 3, own, rng.integers(4, size=len(own)))
    offset = np.repeat(rng.normal(0.0, 0.4, (len(patients), 5)), cells_per_patient, axis=0)
    return SplitRows(
        means[cloud] + offset + rng.normal(size=(len(own), 5)),
        cloud.astype(np.intp),
        hospital_of(np.repeat(patients, cells_per_patient), split),
    )


def _good_cells(counts: Any, genes: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Return whether each cell has 200 to 2500 genes and under 5 % mitochondrial counts, (n,)."""
    seen = (counts > 0).sum(axis=1)
    mitochondrial = counts[:, np.char.startswith(np.char.upper(genes), "MT-")].sum(axis=1)
    total = counts.sum(axis=1)
    passed: NDArray[np.bool_] = (seen >= 200) & (seen <= 2500) & (mitochondrial < 0.05 * total)
    return passed


def _read(path: str | PathLike[str]) -> Any:
    try:
        from anndata import read_h5ad  # an optional extra
    except ImportError as error:
        raise ImportError(
            'to read .h5ad files, install the extra: pip install "fedcluster[anndata]"'
        ) from error
    return read_h5ad(path)


def _column(path: str | PathLike[str], obs: Any, name: str) -> Any:
    if name not in obs:
        raise ValueError(f"{path} has no column {name!r} in obs, only {', '.join(obs.columns)}")
    return obs[name]


def leaf_femnist(path: str | PathLike[str], writers: int | None = 10) -> SplitRows:
    """Read LEAF's FEMNIST: a site for each writer, a row of 784 pixels for each image.

    The FKM papers (figures 6 and 9) take the first ten writers.

    Parameters
    ----------
    path : path
        A file of LEAF's in JSON, or a folder of them, read in the order of their names.
    writers : int, optional
        Read only so many writers, in the order of the files; None reads all.

    Returns
    -------
    SplitRows
        Pixels from 0 (ink) to 1 (paper), line after line of 28 x 28; the labels 0 to 61 that the
        writers meant; sites by LEAF's names of the writers.

    Raises
    ------
    FileNotFoundError
        If there is no such file, or the folder holds none that ends in ``.json``.
    ValueError
        If a file is not LEAF's, or a writer's images are not of one size or do not match the
        labels.
    """
    read = list(islice(_writers(Path(path)), writers))
    if not read:
        raise ValueError(f"{path} holds no writers")
    names, X, y = zip(*read, strict=True)
    sizes = [len(images) for images in X]
    widths = {images.shape[1] for images in X}
    if len(widths) > 1:
        raise ValueError(f"{path}: images must have one size, not {sorted(widths)} pixels")
    return SplitRows(np.concatenate(X), np.concatenate(y), np.repeat(names, sizes))


def _writers(path: Path) -> Iterator[tuple[str, Floats, Any]]:
    """Read the name, images and labels of each writer, one after another."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(f"{path} holds no file that ends in .json")
    for file in files:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not {"users", "user_data"} <= content.keys():
            raise ValueError(f'{file} is not a file of LEAF: it lacks "users" or "user_data"')
        for name in content["users"]:
            if name not in content["user_data"]:
                raise ValueError(f'{file}: writer {name} is named in "users" but has no data')
            images, labels = (content["user_data"][name][key] for key in "xy")
            if len(images) != len(labels) or len({len(image) for image in images}) != 1:
                raise ValueError(
                    f"{file}: writer {name} has {len(images)} images, which must be of one size, "
                    f"and {len(labels)} labels"
                )
            yield name, np.array(images, dtype=np.float64), np.array(labels, dtype=np.intp)
