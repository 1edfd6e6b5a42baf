"""Engines that wrap another one: to leave sites out, to record answers, to report progress.

A plan is a function of the answers that it receives, so a list of these is a checkpoint of a run: a
new plan of the same run first receives the recorded answers, exchange by exchange; then the sites
are asked again.

A run without a site asks the same questions as the run with it until one of them depends on that
site's answers. Up to that question, the recorded answers of the other sites are used; from then on,
they are asked. So the result is exactly that of a run that never asked the site.

The progress of a run is written as a line of JSON for each event, for anyone who watches it.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from fedcluster.core import Answers, Engine, Floats, Introduction, PlannedStep, SiteInfo, Task
from fedcluster.core.engine import WrappedEngine
from fedcluster.core.files import atomic_write
from fedcluster.engines import wire
from fedcluster.errors import InputError, SiteError

FORMAT = {"format": "fedcluster-exchange", "format_version": 1}


class RecordedEngine(WrappedEngine):
    """Engine that asks another engine and records the answers, one file per exchange.

    Parameters
    ----------
    engine : Engine
        The engine that is asked.
    folder : Path
        The folder of the files, including those of a run to be resumed; created if missing. The
        files hold what the coordinator has seen: sums and weights of each site.
    forgets : tuple of (Path, str), optional
        The records of an earlier run, and a site of that run that must not be asked: the other
        sites' answers to the same questions are taken from these records.

    Attributes
    ----------
    replayed : int
        Number of exchanges answered from ``folder``.
    reused : int
        Number of exchanges answered from the records of the earlier run.

    Raises
    ------
    InputError
        If a file is damaged or belongs to a run with other tasks or sites, or if the engine asks
        the site to be forgotten.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from fedcluster import Client, Data, LocalEngine
    >>> from fedcluster.algorithms import Lloyd
    >>> from fedcluster.core import State
    >>> sites = LocalEngine([Client("north", Data(np.array([[0.0], [1.0]])))])
    >>> task = Task(Lloyd(), State.at([[0.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [before] = RecordedEngine(sites, Path(folder)).ask([task])
    ...     again = RecordedEngine(sites, Path(folder))
    ...     [after] = again.ask([task])
    >>> after.total().weights == before.total().weights, again.replayed
    (array([ True]), 1)
    """

    def __init__(
        self, engine: Engine, folder: Path, forgets: tuple[Path, str] | None = None
    ) -> None:
        super().__init__(engine)
        self._folder, self._forgets = folder, forgets
        self._done, self.replayed, self.reused = 0, 0, 0
        self._sites: tuple[SiteInfo, ...] | None = None
        self._steps: Sequence[PlannedStep] = ()
        if forgets is not None and forgets[1] in {site.name for site in engine.introduce()}:
            raise InputError(f"site {forgets[1]!r} is to be forgotten, and must not be asked")
        folder.mkdir(parents=True, exist_ok=True)

    def introduce(self, **requested: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the recorded metadata of the sites; the first time, ask for it and record it.

        A resumed run thus starts as before, whichever sites answer now. The planned steps are not
        recorded: sites are told of them again before the next question.
        """
        self._steps = requested.get("steps") or self._steps
        parts = [name for name in ("columns", "labels") if requested.get(name)]
        if self._sites is not None and not parts:
            return self._sites
        columns, texts = "columns" in parts, sorted(requested.get("texts", ()))
        wanted: Introduction = {"columns": columns, "texts": texts, "labels": "labels" in parts}
        path, question = (
            self._folder / "-".join(["sites", *parts]),
            wire.digest(wire.pack(wanted, {})),
        )
        if not path.exists():
            planned: Introduction = {**wanted, "steps": self._steps}
            planned["first_tasks"] = requested.get("first_tasks")
            sites = self._engine.introduce(**planned)
            known = [{key: getattr(site, key) for key in wire.LEARNT} for site in sites]
            plain = [wire.write_site(site) | more for site, more in zip(sites, known, strict=True)]
            _write(path, question, {"sites": plain}, {})
        with _reading(path) as (header, _):
            _check_same(path, header, question)
            infos = tuple(
                wire.read_site(
                    SiteInfo(**{key: each[key] for key in wire.LEARNT if key in each}), each
                )
                for each in header["sites"]
            )
        if not parts:
            self._sites = infos
        return infos

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Return the recorded answers, or ask and record."""
        names, recipients = self._names(sites, self._steps)
        path, question = (
            self._folder / f"exchange-{self._done:04d}",
            _question(tasks, names, recipients),
        )
        if path.exists():
            with _reading(path) as (header, arrays):
                _check_same(path, header, question)
                answers = _read_answers(header, arrays, len(tasks))
            self.replayed += 1
        else:
            answers = self._reused(tasks, names, recipients) or self._engine.ask(tasks, recipients)
            every = [summary for answer in answers for summary in answer.by_site.values()]
            first = answers[0]
            about: dict[str, Any] = {"answered": list(first.by_site), "missing": first.missing}
            about |= {} if first.enough is None else {"enough": first.enough}
            about |= {"summed": first.summed} if first.summed else {}
            _write(path, question, about, wire.write_summaries(every))
        self._done += 1
        return answers

    def _reused(
        self, tasks: Sequence[Task], names: Sequence[str], recipients: Sequence[str]
    ) -> list[Answers] | None:
        """Return the sites' answers to this question in the run with the forgotten site."""
        if self._forgets is None or self.reused + self.replayed < self._done:
            return None
        folder, site = self._forgets
        path = folder / f"exchange-{self._done:04d}"
        with_it = sorted([*names, site]), sorted([*recipients, site])
        kept = kept_answers(path, tasks, *with_it) if path.exists() else None
        if kept is None or not set(recipients) <= set(kept[0].by_site):
            return None
        self.reused += 1
        return [Answers({n: each.by_site[n] for n in recipients}, (), each.enough) for each in kept]


def kept_answers(
    path: Path, tasks: Sequence[Task], names: Sequence[str], recipients: Sequence[str]
) -> list[Answers] | None:
    """Return single sites' recorded answers to these tasks; None if other tasks were asked.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    with _reading(path, "fit anew without the site") as (header, arrays):
        if header["question"] != _question(tasks, names, recipients) or header.get("summed"):
            return None
        return _read_answers(header, arrays, len(tasks))


def _question(tasks: Sequence[Task], names: Sequence[str], recipients: Sequence[str]) -> str:
    """Return the digest of a question to some of the sites."""
    headers, arrays = wire.write_tasks(tasks)
    return wire.digest(
        wire.pack({"tasks": headers, "asked": list(recipients), "sites": list(names)}, arrays)
    )


def _read_answers(header: wire.Header, arrays: wire.Arrays, n_tasks: int) -> list[Answers]:
    """Return the recorded answers to each task."""
    names, every = header["answered"], wire.read_summaries(arrays)
    more = tuple(header["missing"]), header.get("enough"), tuple(header.get("summed", ()))
    parts = (every[t * len(names) :][: len(names)] for t in range(n_tasks))
    return [Answers(dict(zip(names, part, strict=True)), *more) for part in parts]


def _write(path: Path, question: str, header: wire.Header, arrays: wire.Arrays) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(wire.pack({**FORMAT, "question": question, **header}, arrays))


@contextmanager
def _reading(
    path: Path, remedy: str = "start the run anew elsewhere"
) -> Iterator[tuple[wire.Header, wire.Arrays]]:
    """Open a record for reading; any failure means that the file is damaged."""
    try:
        # Largest size, in bytes, of a file that is read; only our own files are.
        header, arrays = wire.unpack(path.read_bytes(), 1 << 40)
        if {key: header[key] for key in FORMAT} != FORMAT:
            raise wire.WireError("another format")
        yield header, arrays
    except InputError:
        raise
    except (ValueError, LookupError, TypeError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}); {remedy}") from error


def _check_same(path: Path, header: wire.Header, question: str) -> None:
    """Raise an error if a record belongs to another question."""
    if header["question"] != question:
        raise InputError(
            f"{path} records another run: other tasks, sites, seed or settings; give the run "
            "that it records, or another folder"
        )


PROGRESS = "progress.jsonl"
"""Name of the file of events in the folder of a run."""


def note(path: Path, **event: Any) -> None:
    """Append an event to the file of a run, with the time in seconds since 1970."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**event, "at": time.time()}) + "\n")


class WatchedEngine(WrappedEngine):
    """Engine that asks another engine and logs each round as it begins and ends.

    The event of a round's beginning lists the sites that are asked and the result of the previous
    round: the smallest inertia of its runs, and how far the centres of that run moved. If too few
    sites answer, the event lists those that did not, and why.

    Parameters
    ----------
    engine : Engine
        The engine that is asked.
    path : Path
        The file of events, which is started anew.
    refusals : sequence of Refusal
        The list of refusals that the wrapped engine maintains.

    Examples
    --------
    >>> import tempfile
    >>> from fedcluster import Client, Data, LocalEngine
    >>> from fedcluster.algorithms import Lloyd
    >>> from fedcluster.core import State
    >>> sites = LocalEngine([Client("north", Data(np.array([[0.0], [1.0]])))])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, PROGRESS)
    ...     answers = WatchedEngine(sites, path).ask([Task(Lloyd(), State.at([[0.0]]))])
    ...     began, ended = map(json.loads, path.read_text().splitlines())
    >>> began["round"], began["asked"], ended["answered"], ended["missing"]
    (1, ['north'], {'north': 3}, {})
    """

    def __init__(self, engine: Engine, path: Path, refusals: Sequence[Any] = ()) -> None:
        super().__init__(engine)
        self._path, self._refusals = path, refusals
        self._round = 0
        self._before: list[Floats] = []
        path.write_text("", encoding="utf-8")

    def introduce(self, **requested: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the metadata of the sites."""
        with self.failure_noted():
            return super().introduce(**requested)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Ask the sites; log the time, the sites asked, and the sites that answer."""
        _, recipients = self._names(sites)
        self._round, known = self._round + 1, len(self._refusals)
        steps = Counter(type(task.step).__name__ for task in tasks)
        note(self._path, round=self._round, asked=recipients, tasks=steps, **self._found(tasks))
        with self.failure_noted(round=self._round):
            answers = self._engine.ask(tasks, recipients)
        reasons = self._reasons(known)
        sent = Counter[str]()
        for each in answers:
            sent.update(each.values_sent)
        missing = {name: reasons.get(name, "") for name in recipients if name not in sent}
        note(self._path, round=self._round, answered=sent, missing=missing)
        return answers

    @contextmanager
    def failure_noted(self, **about: int) -> Iterator[None]:
        """Log the sites that did not answer if a block fails because too few did."""
        known = len(self._refusals)
        try:
            yield
        except SiteError:
            note(self._path, **about, failed=self._reasons(known))
            raise

    def _reasons(self, known: int) -> dict[str, str]:
        """Return why sites were refused, leaving out the first ``known`` refusals."""
        return {refusal.site: refusal.reason for refusal in self._refusals[known:]}

    def _found(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """Return the most frequent step, its smallest inertia, and the move of those centres.

        The move is measured from the nearest centres of the previous round.
        """
        steps = [type(task.step).__name__ for task in tasks]
        most = Counter(steps).most_common(1)[0][0]
        alike = [task for task, step in zip(tasks, steps, strict=True) if step == most]
        known = [task for task in alike if math.isfinite(task.state.inertia)]
        best = min(known, key=lambda task: task.state.inertia, default=None)
        before, self._before = self._before, [task.state.centers for task in tasks]
        if best is None:
            return {"step": most, "inertia": None, "shift": None}
        centers = best.state.centers
        moves = [
            float(np.sqrt(((each - centers) ** 2).sum(axis=1).max()))
            for each in before
            if each.shape == centers.shape and len(centers)
        ]
        shift = min(moves, default=None)
        return {"step": most, "inertia": float(best.state.inertia), "shift": shift}
