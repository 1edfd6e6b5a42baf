"""FEMNIST, handwritten characters by writer, from LEAF's files.

S. Caldas et al., LEAF: a benchmark for federated settings, 2018, arXiv 1812.01097. LEAF's own
program makes the files, from images of EMNIST: https://leaf.cmu.edu.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.core import Floats
from fedcluster.datasets._split import SplitRows


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
    """The name, images and labels of each writer."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(f"{path} holds no file that ends in .json")
    for file in files:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not {"users", "user_data"} <= content.keys():
            raise ValueError(f'{file} is not a file of LEAF: it lacks "users" or "user_data"')
        for name in content["users"]:
            yield _writer(file, name, content["user_data"])


def _writer(file: Path, name: str, held: dict[str, Any]) -> tuple[str, Floats, Any]:
    if name not in held:
        raise ValueError(f'{file}: writer {name} is named in "users" but has no data')
    images, labels = held[name]["x"], held[name]["y"]
    if len(images) != len(labels) or len({len(image) for image in images}) != 1:
        raise ValueError(
            f"{file}: writer {name} has {len(images)} images, which must be of one size, and "
            f"{len(labels)} labels"
        )
    return name, np.array(images, dtype=np.float64), np.array(labels, dtype=np.intp)
