"""Results that a federation leaves at a site: the model and the cluster of each row.

A coordinator may make up a model for which it takes longer, or fails, to label certain rows. So a
model is acknowledged once it is written down, and rows are labelled after that:

    receive -> model-received.json -- labelling begins --> labels.json, which says at the end how
                                                          that went

A kill at any moment leaves a file that says what is still to be done.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.core import Data
from fedcluster.io._joining import OwnTable
from fedcluster.io._outputs import (
    atomic_folder,
    atomic_write,
    check_folder,
    json_text,
    write_durably,
    write_json,
    write_labels,
)
from fedcluster.model import Model

Chunks = Callable[[tuple[str, ...], bool], Iterable[Data] | None]
"""``chunks(columns, raw)`` gives the rows to label, None where they are others than were asked."""

RECEIVED = "model-received.json"
"""The file, beside the site file, that has a model whose labels were not begun."""
LABELS = "labels.json"
"""The file, beside the site file, that has the model whose labels are being written, and then says
what became of them."""

NO_LABELS = "no rows were labelled"
OTHERS = "they have changed since the run began: label them with fedcluster predict"


@dataclass(frozen=True, slots=True)
class ReceivedModels:
    """Models that came to a site, and what became of the labels of its rows.

    Parameters
    ----------
    folder : Path
        The folder of the site file.
    results : Path
        The folder that receives the model and the labels.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> models = ReceivedModels(Path(mkdtemp()), Path(mkdtemp()))
    >>> models.receive({"centers": [[0.5]]}, "the rows of the run")
    >>> models.are_waiting, models.state()
    (True, 'a model came, and the labels of rows are still to be written')
    >>> with models.next() as came:
    ...     _ = models.finish("labels are written")
    >>> models.are_waiting, models.state()[20:]
    (False, 'labels are written')
    """

    folder: Path
    results: Path

    def receive(self, model: Mapping[str, Any], rows: str) -> None:
        """Write down a model of rows with a fingerprint; it is on the disk when this returns.

        What this does, and for how long, does not depend on the rows.

        Raises
        ------
        InputError
            If the results could not be written.
        """
        check_folder(self.results, overwrite=True)
        with atomic_write(self.folder / RECEIVED) as temporary:
            write_durably(temporary, json_text({"rows": rows, "model": model}).encode())

    @property
    def are_waiting(self) -> bool:
        """True if labels are still to be written, or were begun and not finished."""
        return (self.folder / RECEIVED).exists() or "model" in self._told()

    @contextmanager
    def next(self) -> Iterator[dict[str, Any] | None]:
        """Take the model that came last, None where all is done; one process at a time does."""
        with self._locked():
            with suppress(FileNotFoundError):
                (self.folder / RECEIVED).replace(self.folder / LABELS)
            told = self._told()
            yield told if "model" in told else None

    def give_up(self, why: str) -> str:
        """Write down that the labels which were begun are not to be had; return that."""
        with self._locked():
            said = f"{NO_LABELS}: {why}"
            return self.finish(said) if "model" in self._told() else said

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / LABELS).with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def finish(self, said: str) -> str:
        """Write down, and return, what became of the model that was taken."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(self.folder / LABELS, {"time": now, "said": said})
        return said

    def state(self) -> str:
        """Return what became of the last model, empty where none came."""
        if self.are_waiting:
            return "a model came, and the labels of rows are still to be written"
        told = self._told()
        return f"{str(told['time'])[:19].replace('T', ' ')} {told['said']}" if told else ""

    def _told(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            told = json.loads((self.folder / LABELS).read_text("utf-8"))
            if isinstance(told, dict) and ("model" in told or {"time", "said"} <= told.keys()):
                return told
        return {}


def keep_results(
    chunks: Chunks,
    content: Mapping[str, Any],
    results: Path,
    algorithms: Sequence[str] = (),
    own: OwnTable | None = None,
) -> str:
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
    str
        Why no rows were labelled, empty where they were. If the rows have changed, their labels
        would be of other rows than the model. Earlier labels go, as they are of another model.
    """
    for broken_off in results.parent.glob(f".{results.name}-*.partial"):
        shutil.rmtree(broken_off, ignore_errors=True)
    with atomic_folder(results, obsolete=["labels.csv"]) as partial:
        path, labels = partial / "model.json", partial / "labels.csv"
        path.write_text(json_text(content), encoding="utf-8")
        model = Model.load(path, algorithms)
        try:
            rows = chunks(tuple(model.columns), model.preprocessor is not None)
            if rows is None:
                return OTHERS
            _label(rows, model, labels, own)
        except MemoryError:
            raise
        except Exception as error:
            labels.unlink(missing_ok=True)
            return f"{type(error).__name__}: {error}"
    return ""


def _label(rows: Iterable[Data], model: Model, file: Path, own: OwnTable | None) -> None:
    """Write the cluster of each row into a file."""
    predictions = [(model.predict(chunk), model.memberships(chunk)) for chunk in rows]
    labels = np.concatenate([labels for labels, _ in predictions])
    memberships = [each for _, each in predictions if each is not None]
    numbers = np.arange(1, len(labels) + 1)
    keys = None if own is None else own.keys(range(1, len(labels) + 1))
    write_labels(file, numbers, labels, np.concatenate(memberships) if memberships else None, keys)
