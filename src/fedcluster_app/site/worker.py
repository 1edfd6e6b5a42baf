"""Process that holds the rows of a site, and the results that a federation leaves there.

The process is ended if a request takes too long or too much memory. The site's own program reads
requests and writes its log; the process holds the rows and answers. A run is answered from the rows
as they were when it began, or not at all.

The results are the model and the cluster of each row. A malicious coordinator may craft a model
whose labelling is slow, or fails, for certain rows. So a model is acknowledged once it is stored,
and rows are labelled after that:

    receive -> RECEIVED -- labelling begins --> LABELS, which says at the end how that went

Both are in the state of the site, so that after a kill at any moment the remaining work is known.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from fedcluster.core import Data, SiteInfo, Summary, Task
from fedcluster.core.files import atomic_write, json_text, lock, remove_broken_off
from fedcluster.engines.client import Client
from fedcluster.engines.wire import WireError
from fedcluster.errors import InputError
from fedcluster.frames.rows import WarehouseSource, chunks_of
from fedcluster.model import Model
from fedcluster.privacy.partition import LostRowsError
from fedcluster.texts import for_site
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.process import Worker
from fedcluster_app.tables.outputs import atomic_folder, check_folder, free_name, write_labels
from fedcluster_app.tables.sources import OwnTable
from fedcluster_app.trust.site_state import SiteState, get, last, put

Chunks = Callable[[tuple[str, ...], bool], Iterable[Data] | None]
"""``chunks(columns, raw)`` returns the rows to label, None if they have changed since."""

RECEIVED = "received"
"""Name of a model whose labelling has not begun."""
LABELS = "labels"
"""Name of the model whose labels are being written, and later of its outcome."""

NO_LABELS = "no rows were labelled"
SILENT = "no row is in a group, and nothing is told of any: see fedcluster site doctor"
OTHERS = "they have changed since the run began: label them with fedcluster predict"


@dataclass(frozen=True, slots=True)
class ReceivedModels:
    """Models that a site received, and the outcomes of labelling its rows.

    Parameters
    ----------
    state : SiteState
        The state of the site, in a file.
    results : Path
        The folder that receives the model and the labels.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> from fedcluster_app.trust.site_state import get, STATE_FILE
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
        """Store a model for rows with a fingerprint; it is on disk when this returns.

        This takes the same actions and the same time whatever the rows are.

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
        """Return whether labels are still to be written, or were begun and not finished."""
        received, labels = self._read()
        return received is not None or "model" in labels

    @contextmanager
    def next(self) -> Iterator[dict[str, Any] | None]:
        """Take the most recent model, None if all is done; by one process at a time."""
        with self._locked():
            with self.state.transaction() as file:
                if (came := get(file, "models", RECEIVED)) is not None:
                    put(file, "models", LABELS, came)
                    file.execute("DELETE FROM models WHERE name = ?", (RECEIVED,))
            labels = self._read()[1]
            yield labels if "model" in labels else None

    def give_up(self, why: str) -> str:
        """Record, and return, that the labels that were begun cannot be had."""
        with self._locked():
            (received, labels), outcome = self._read(), f"{NO_LABELS}: {why}"
            if received is None and "said" in labels:  # they are written
                return str(labels["said"])
            return self.finish(outcome) if "model" in labels else outcome

    @contextmanager
    def _locked(self) -> Iterator[None]:
        assert self.state.path is not None
        with self.state.path.with_name("labels.lock").open("ab") as file:
            lock(file)
            yield

    def finish(self, outcome: str) -> str:
        """Record and return the outcome of the model that was being applied."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self.state.transaction() as file:
            put(file, "models", LABELS, {"time": now, "said": outcome})
        return outcome

    def outcome(self) -> str:
        """Return the outcome of the last model, empty if there was none."""
        received, labels = self._read()
        if received is not None or "model" in labels:
            return "a model came, and the labels of rows are still to be written"
        return f"{labels['time'][:19].replace('T', ' ')} {labels['said']}" if labels else ""

    def _read(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Return the received model, and the one being applied or its outcome."""
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
    """Write the received model and the cluster of each row, chunk by chunk; both stay here.

    Those of an earlier model are kept; see `keep_earlier`.

    Parameters
    ----------
    chunks : callable
        Returns the rows.
    content : mapping
        The content of ``model.json``.
    results : Path
        The folder.
    algorithms : sequence of str
        Dotted names of algorithms, in addition to those of the package, that the site lets assign
        rows.

    own : OwnTable, optional
        The table with the rows' keys, opened before the rows; the keys are written beside the
        clusters.

    Returns
    -------
    str
        Why no rows were labelled, empty if they were. Changed rows are not labelled, because the
        model belongs to other rows.
    """
    remove_broken_off(results)
    remove_oldest(results)
    with atomic_folder(results, obsolete=["labels.csv", "labels.json", DOUBTS]) as partial:
        path, labels = partial / "model.json", partial / "labels.csv"
        path.write_text(json_text(content), encoding="utf-8")
        keep_earlier(results, partial)
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


EARLIER = "earlier"
"""Folder of the results of earlier runs, in that of the last."""


def remove_oldest(results: Path) -> None:
    """Remove the results of runs before the last ones."""
    for folder in sorted(results.glob(f"{EARLIER}/*"))[: -Versions.runs_kept]:
        shutil.rmtree(folder)


def keep_earlier(results: Path, new: Path) -> None:
    """Keep the model and labels of an earlier run, in a folder named by when they were written.

    Nothing is kept of the model that is written once more.

    Parameters
    ----------
    results : Path
        The folder of the last results.
    new : Path
        The folder of the new ones, with their model, which will replace those of the same names.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> results, new = Path(mkdtemp()), Path(mkdtemp())
    >>> for folder, content in ((results, "old"), (new, "new")):
    ...     _ = (folder / "model.json").write_text(content)
    >>> os.utime(results / "model.json", (0, 0))
    >>> keep_earlier(results, new)
    >>> [str(path.relative_to(new)) for path in new.rglob("earlier/*/*")]
    ['earlier/19700101-000000/model.json']
    """
    model = results / "model.json"
    if not model.is_file() or model.read_bytes() == (new / "model.json").read_bytes():
        return
    written = datetime.fromtimestamp(model.stat().st_mtime, UTC)
    name = f"{written:%Y%m%d-%H%M%S}"
    place = new / EARLIER / free_name(name, {path.name for path in results.glob(f"{EARLIER}/*")})
    place.mkdir(parents=True)
    for file in (model, *(results / name for name in ("labels.csv", "labels.json", DOUBTS))):
        if file.is_file():
            shutil.copy2(file, place)


def _label(rows: Iterable[Data], model: Model, file: Path, own: OwnTable | None) -> None:
    """Write the cluster of each row into a file, and beside it the model with the site's offset."""
    predictions = []
    for chunk in rows:
        predictions.append((model.predict(chunk), model.memberships(chunk)))
        if model.adjusts:  # rows of a site are then one chunk
            model.at_site(chunk).save(file.with_suffix(".json"))
    labels = np.concatenate([labels for labels, _ in predictions])
    memberships = [each for _, each in predictions if each is not None]
    numbers = np.arange(1, len(labels) + 1)
    keys = None if own is None else own.keys(range(1, len(labels) + 1))
    write_labels(file, numbers, labels, np.concatenate(memberships) if memberships else None, keys)


DOUBTS = "doubts.txt"
"""File of lines about columns of a site that are unlike those of the other sites."""


def compare_results(
    chunks: Chunks, results: Path, site: str, algorithms: Sequence[str] = ()
) -> list[str]:
    """Return lines about columns in which the rows are unlike those of the other sites.

    The model in the folder tells those of all sites; the lines are written beside it.
    """
    model = Model.load(results / "model.json", algorithms)
    rows = chunks(tuple(model.columns), model.preprocessor is not None) or ()
    lines = [*map(for_site, model.beside_others(rows, site))]
    if lines:
        with atomic_write(results / DOUBTS) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return lines


CHANGED = "the rows have changed since the run began: start it anew"


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """Call of a client's method with some columns, for rows with a fingerprint."""

    fingerprint: str
    columns: tuple[str, ...]
    raw: bool
    method: str
    arguments: Mapping[str, Any]


class Versions:
    """Versions of a site's rows: a run uses the version that it began with, or none.

    A run that is resumed after a restart still uses the rows that it began with.

    Parameters
    ----------
    state : SiteState
        The state of the site, which holds the fingerprint of the rows of each of the last runs.
    changed : callable taking a str
        Called with the hash of each version that replaces another one.

    Examples
    --------
    >>> versions = Versions(SiteState(), print)
    >>> for run, rows in [("a", "old"), ("b", "new")]:
    ...     versions.begin(run, rows)
    11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437
    >>> versions.of("a"), versions.of("b"), versions.of("c")
    ('old', 'new', None)
    """

    runs_kept = 100
    """Number of most recent runs whose version of the rows is known, and whose results are kept."""

    def __init__(self, state: SiteState, changed: Callable[[str], object]) -> None:
        self._state, self._changed = state, changed

    def of(self, run: str) -> str | None:
        """Return the fingerprint of a run's rows, None for an unknown run."""
        with self._state.transaction() as file:
            return get(file, "rows", run)  # type: ignore[no-any-return]

    def begin(self, run: str, fingerprint: str) -> None:
        """Record that a run uses rows with a fingerprint."""
        with self._state.transaction() as file:
            before = last(file, "rows")
            put(file, "rows", run, fingerprint, self.runs_kept)
        if before is not None and before[1] != fingerprint:
            self._changed(sha256(fingerprint.encode()).hexdigest())


class SiteWorker:
    """A site that answers by a separate process.

    Parameters
    ----------
    site : SiteFile
        The site.
    versions : Versions
        The versions of the rows by run.
    models : ReceivedModels
        The store of received models.
    say : callable taking a str
        Called with one line for each outcome.
    """

    def __init__(
        self,
        site: SiteFile,
        versions: Versions,
        models: ReceivedModels,
        say: Callable[[str], object],
    ) -> None:
        self._site, self._versions, self._models = site, versions, models
        self._worker: Worker[_Call, Any] = Worker(partial(_Holder, site), site.cost)
        self._labelling = Labelling(site, models, say)
        self._rows: str | Exception = ""
        self._say, self._run, self._said_in = say, "", ""
        self.end = self._worker.end

    def finish_labels(self) -> None:
        """Finish labels that an earlier process of the site began."""
        if self._models.are_waiting:
            self._labelling.go_on()

    def begin(self, run: str) -> None:
        """Answer questions of this run from now on, from the rows as they were when it began.

        Errors are raised by the first call, which can inform the coordinator.
        """
        self._run = run
        try:
            known = self._versions.of(run)
            self._rows = self._fingerprint() if known is None else known
            if known is None:
                self._versions.begin(run, self._rows)
        except Exception as error:
            self._rows = error

    def _fingerprint(self) -> str:
        """Return the fingerprint of the present rows, for which they may have to be read."""
        fingerprint = self._site.fingerprint()
        if fingerprint:
            return fingerprint
        return str(self._worker(_Call("", (), False, "read anew", {})))

    def client(self, columns: Sequence[str], *, raw: bool = False) -> WorkerClient:
        """Return the client of the site with these columns."""

        def call(method: str, arguments: Mapping[str, Any]) -> Any:
            rows = self._rows_of_the_run()
            result = self._worker(_Call(rows, tuple(columns), raw, method, arguments))
            if method == "introduce" and result.n_rows == 0 and self._said_in != self._run:
                self._said_in = self._run
                self._say(f"site {self._site.name}: {SILENT}")
            return result

        return WorkerClient(self._site.name, call)

    def keep(self, model: Mapping[str, Any]) -> None:
        """Store a model; its rows are labelled after this returns."""
        self._models.receive(model, self._rows_of_the_run())
        self._labelling.go_on()

    def _rows_of_the_run(self) -> str:
        """Return the fingerprint of the rows of the run."""
        if isinstance(self._rows, Exception):
            raise self._rows
        return self._rows


class Labelling:
    """Labelling of rows by received models, in a separate process that nobody waits for.

    Neither the reply to the message with a model nor the reply to the next question depends on it,
    in content or in time. The process has the lowest priority. It outlives a run, and the site's
    program by some seconds only; unfinished work is done at the next start.

    Parameters
    ----------
    site : SiteFile
        The site.
    models : ReceivedModels
        The models and their outcomes.
    say : callable taking a str
        Called with one line for each outcome.
    """

    tries = 2
    """Number of times in a row that labelling may fail; after that it waits for the next start."""

    def __init__(
        self, site: SiteFile, models: ReceivedModels, say: Callable[[str], object]
    ) -> None:
        self._name, self._models, self._say = site.name, models, say
        self._worker: Worker[ReceivedModels, str] = Worker(
            partial(Labeller, site), site.cost, lasting=True
        )
        self._came = Event()
        self._thread: Thread | None = None

    def go_on(self) -> None:
        """Let labels be written, after those that are being written."""
        self._came.set()
        if self._thread is None:
            self._thread = Thread(target=self._follow, daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        while True:
            self._came.wait()
            self._came.clear()
            try:
                self._label()
            except InputError as error:  # the state of the site cannot be used
                self._say(f"site {self._name}: labels are not written: {error}")
            self._worker.end()  # ending the process frees its rows

    def _label(self) -> None:
        failed = 0
        while self._models.are_waiting and failed < self.tries:
            try:
                outcome, failed = self._worker(self._models), 0
            except Exception as error:
                outcome, failed = self._models.give_up(str(error)), failed + 1
            self._say(f"site {self._name}: {outcome}")


class Labeller:
    """Function that labels the rows of a site by the last model, in the labelling process."""

    def __init__(self, site: SiteFile) -> None:
        self._site = site

    def __call__(self, models: ReceivedModels) -> Callable[[], str]:
        """Return the function that writes the labels, after reading the rows."""
        with ExitStack() as stack:
            came = stack.enter_context(models.next())
            if came is None:  # an earlier process has written its labels
                return models.outcome
            holder, to = _Holder(self._site), {"results": models.results}
            keep, compare = (
                holder(_Call(came["rows"], (), False, method, to | more))
                for method, more in (
                    ("keep", {"content": came["model"]}),
                    ("compare", {"site": self._site.name}),
                )
            )
            held = stack.pop_all()

        def labelled() -> str:
            with held:
                why = keep()
                without = f"the model is in {models.results}, and {NO_LABELS}: {why}"
                whole = f"model and labels are in {models.results}"
                outcome = models.finish(without if why else whole)
                try:  # whatever becomes of it, the labels stay
                    said = "" if why else "".join(f". Look at {line}" for line in compare())
                except Exception as error:
                    said = f". Columns were not compared: {type(error).__name__}: {error}"
                return models.finish(outcome + said) if said else outcome

        return labelled


@dataclass(frozen=True, slots=True, eq=False)
class WorkerClient:
    """Client that works in another process, with the same answers as `Client`."""

    name: str
    call: Callable[..., Any]

    def introduce(self, **requested: Any) -> SiteInfo:
        """Return the metadata of the site."""
        return self.call("introduce", requested)  # type: ignore[no-any-return]

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Return the answers to all tasks of a round."""
        return self.call("answers", {"tasks": tasks})  # type: ignore[no-any-return]


class _Holder:
    """Clients of a site by columns, in the worker's process."""

    moment = 3.0
    """Seconds after which rows of which most are gone are read again, as a file may be written."""
    key_bytes = 16
    """Number of random bytes for the site's bootstrap samples, which nobody else can know."""
    clients = 4  # number of most recent choices of columns whose rows are held at the same time

    def __init__(self, site: SiteFile) -> None:
        self._site, self._fingerprint = site, ""
        self._key = os.urandom(self.key_bytes)
        self._clients: dict[tuple[tuple[str, ...], bool], Client] = {}
        self._groups: Client | None = None

    def __call__(self, call: _Call) -> Callable[[], Any]:
        """Return the call of the client's method, after reading and grouping the rows."""
        if call.method == "read anew":
            self._site = _held(self._site)
            return self._site.fingerprint
        if call.fingerprint != self._fingerprint:
            self._turn_to(call)
        if call.method in ("keep", "compare"):
            steps = tuple(self._site.federation.get("steps", ()))
            if call.method == "compare":
                return partial(compare_results, self._chunks, algorithms=steps, **call.arguments)
            own = self._site.own_table()
            return partial(keep_results, self._chunks, algorithms=steps, own=own, **call.arguments)
        client = self._client(call.columns, raw=call.raw)
        return partial(getattr(client, call.method), **call.arguments)

    def _turn_to(self, call: _Call) -> None:
        """Switch to the rows of a call, if they are others."""
        source = self._site.source
        by_digest = isinstance(source, WarehouseSource) and source.version is None
        if by_digest and not self._site.fingerprint():
            self._site = _held(self._site)
        if call.method != "keep" and self._site.fingerprint() != call.fingerprint:
            raise WireError(CHANGED)
        if not by_digest:
            self._site = _held(self._site)
        self._clients, self._groups, self._fingerprint = {}, None, call.fingerprint

    def _client(self, columns: tuple[str, ...], *, raw: bool) -> Client:
        client = self._clients.pop((columns, raw), None) or self._opened(columns, raw=raw)
        self._clients[columns, raw] = client  # most recently used comes last
        while len(self._clients) > self.clients:
            del self._clients[next(iter(self._clients))]
        return client

    def _opened(self, columns: tuple[str, ...], *, raw: bool) -> Client:
        try:
            client = self._protected(columns, raw=raw)
        except LostRowsError:
            time.sleep(self.moment)
            self._groups = None
            client = self._protected(columns, raw=raw)
        client.key = self._key
        len(client.rows)
        if self._site.fingerprint() != self._fingerprint:
            raise WireError(CHANGED)
        return client

    def _protected(self, columns: tuple[str, ...], *, raw: bool) -> Client:
        """Return the client for ungrouped rows, or for some columns of the groups."""
        if not self._site.is_grouped:
            return self._site.client(columns, raw=raw)
        if self._groups is None:
            self._groups = self._site.grouped_client()
        return self._groups.with_columns(columns, raw=raw)

    def _chunks(self, columns: tuple[str, ...], raw: bool) -> Iterable[Data] | None:
        """Return the rows that the question was about, None if the site's rows have changed."""
        source = self._site.client(columns, raw=raw).source
        return chunks_of(source) if self._site.fingerprint() == self._fingerprint else None


def _held(site: SiteFile) -> SiteFile:
    """Return a site with its database queried now, and only once; one with files is unchanged.

    If the means of its groups are in a file, no rows are read.
    """
    return site if site.has_means else site.kept()
