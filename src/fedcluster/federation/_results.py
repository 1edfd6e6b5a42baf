"""Results that a federation leaves at a site: the model and the cluster of each row."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.core import Data
from fedcluster.io._joining import OwnTable
from fedcluster.io._outputs import atomic_folder, json_text, write_labels
from fedcluster.model import Model

Chunks = Callable[[tuple[str, ...], bool], Iterable[Data] | None]
"""``chunks(columns, raw)`` gives the rows to label, None where they are others than were asked."""


def keep_results(
    chunks: Chunks,
    content: Mapping[str, Any],
    results: Path,
    algorithms: Sequence[str] = (),
    own: OwnTable | None = None,
) -> bool:
    """Write the model that came, and the cluster of each row, chunk by chunk: both stay here.

    Parameters
    ----------
    chunks : callable
        Gives the rows.
    content : mapping
        The model, as ``model.json`` holds it.
    results : Path
        The folder.
    algorithms : sequence of str
        Algorithms besides those of the package that the site lets assign rows, by dotted names.

    own : OwnTable, optional
        The table that holds the rows' keys, opened before their rows are asked for; they are
        written beside the clusters.

    Returns
    -------
    bool
        Whether rows were labelled; where they have changed, their labels would be of other rows
        than the model, and earlier labels go.
    """
    for broken_off in results.parent.glob(f".{results.name}-*.partial"):
        shutil.rmtree(broken_off, ignore_errors=True)
    with atomic_folder(results, obsolete=["labels.csv"]) as partial:
        path = partial / "model.json"
        path.write_text(json_text(content), encoding="utf-8")
        model = Model.load(path, algorithms)
        rows = chunks(tuple(model.columns), model.preprocessor is not None)
        if rows is None:
            return False
        predictions = [(model.predict(chunk), model.memberships(chunk)) for chunk in rows]
        labels = np.concatenate([labels for labels, _ in predictions])
        memberships = [each for _, each in predictions if each is not None]
        write_labels(
            partial / "labels.csv",
            np.arange(1, len(labels) + 1),
            labels,
            np.concatenate(memberships) if memberships else None,
            None if own is None else own.keys(range(1, len(labels) + 1)),
        )
        return True
