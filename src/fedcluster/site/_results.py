"""Results that a federation leaves at a site: the model and the cluster of each row.

A coordinator may make up a model for which it takes longer, or fails, to label certain rows. So a
model is acknowledged once it is written down, and rows are labelled after that:

    receive -> RECEIVED -- labelling begins --> LABELS, which says at the end how that went

Both are in the state of the site: a kill at any moment leaves what is still to be done.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.core import Data
from fedcluster.io.outputs import atomic_folder, check_folder, json_text, lock, write_labels
from fedcluster.io.sources import OwnTable
from fedcluster.model import Model
from fedcluster.privacy.site_state import SiteState, get, put

Chunks = Callable[[tuple[str, ...], bool], Iterable[Data] | None]
"""``chunks(columns, raw)`` gives the rows to label, None where they are others than were asked."""

RECEIVED = "received"
"""The name of a model whose labels were not begun."""
LABELS = "labels"
"""The name of the model whose labels are being written, and then of what became of them."""

NO_LABELS = "no rows were labelled"
OTHERS = "they have changed since the run began: label them with fedcluster predict"


@dataclass(frozen=True, slots=True)
class ReceivedModels:
    """Models that came to a site, and what became of the labels of its rows.

    Parameters
    ----------
    state : SiteState
        The state of the site, in a file.
    results : Path
        The folder that receives the model and the labels.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> from fedcluster.privacy.site_state import get, STATE_FILE
    >>> models = ReceivedModels(SiteState(Path(mkdtemp()) / STATE_FILE), Path(mkdtemp()))
    >>> models.state.create()
    >>> models.receive({"centers": [[0.5]]}, "the rows of the run")
    >>> models.are_waiting, models.outcome()
    (True, 'a model came, and the labels of rows are still to be written')
    >>> with models.next() as came:
    ...     _ = models.finish("labels are written")
    >>> models.are_waiting, models.outcome()[20:]
    (False, 'labels are written')
    """

    state: SiteState
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
        with self.state.transaction() as file:
            put(file, "models", RECEIVED, {"rows": rows, "model": model})

    @property
    def are_waiting(self) -> bool:
        """True if labels are still to be written, or were begun and not finished."""
        received, labels = self._read()
        return received is not None or "model" in labels

    @contextmanager
    def next(self) -> Iterator[dict[str, Any] | None]:
        """Take the model that came last, None where all is done; one process at a time does."""
        with self._locked():
            with self.state.transaction() as file:
                if (came := get(file, "models", RECEIVED)) is not None:
                    put(file, "models", LABELS, came)
                    file.execute("DELETE FROM models WHERE name = ?", (RECEIVED,))
            labels = self._read()[1]
            yield labels if "model" in labels else None

    def give_up(self, why: str) -> str:
        """Write down that the labels which were begun are not to be had; return that."""
        with self._locked():
            outcome = f"{NO_LABELS}: {why}"
            return self.finish(outcome) if "model" in self._read()[1] else outcome

    @contextmanager
    def _locked(self) -> Iterator[None]:
        assert self.state.path is not None
        with self.state.path.with_name("labels.lock").open("ab") as file:
            lock(file)
            yield

    def finish(self, outcome: str) -> str:
        """Write down, and return, what became of the model that was taken."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self.state.transaction() as file:
            put(file, "models", LABELS, {"time": now, "said": outcome})
        return outcome

    def outcome(self) -> str:
        """Return what became of the last model, empty where none came."""
        received, labels = self._read()
        if received is not None or "model" in labels:
            return "a model came, and the labels of rows are still to be written"
        return f"{labels['time'][:19].replace('T', ' ')} {labels['said']}" if labels else ""

    def _read(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Return the model that was received, and the one with labels or what became of it."""
        if not self.state.is_there:
            return None, {}
        with self.state.transaction() as file:
            return get(file, "models", RECEIVED), get(file, "models", LABELS) or {}


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
