"""Checkpoints: every exchange is written down, and a run that was broken off goes on from there.

A plan is a function of the answers that it receives. So there is nothing to save but these: a new
plan of the same run is given the recorded answers, one exchange after the other, and then the
sites are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcluster.core import Answers, Column, Engine, Floats, Site, Task
from fedcluster.engines._wire import (
    WireError,
    digest,
    pack,
    read_columns,
    read_summaries,
    unpack,
    write_columns,
    write_summaries,
    write_tasks,
)
from fedcluster.errors import InputError
from fedcluster.io._outputs import atomic_write

FORMAT = {"format": "fedcluster-exchange", "format_version": 1}
STREAMS = "streams"
LARGEST = 1 << 40
"""Bytes of the largest file that is read; it is our own."""


class RecordedEngine:
    """Ask another engine, and write down what comes, one file for each exchange.

    Parameters
    ----------
    engine : Engine
        Who is asked.
    folder : Path
        Where the files are, and those of the run that is to go on; made where it is not there.
        They hold what the coordinator has seen: sums and weights of each site.

    Attributes
    ----------
    replayed : int
        Exchanges that were not asked, because their answers were there.

    Raises
    ------
    InputError
        Where a file is damaged, or of a run with other tasks or sites.

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

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine, self._folder = engine, folder
        self._done, self.replayed = 0, 0
        self._kept: Mapping[str, Any] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites of the engine; whether rows come in chunks stays as at the first round.

        A run that goes on then starts as it did, whoever answers now.
        """
        if self._kept is None and not (self._folder / STREAMS).exists():
            return self._engine.sites
        kept = self._streams()
        return tuple(replace(s, streams=kept.get(s.name) is True) for s in self._engine.sites)

    def _streams(self) -> Mapping[str, Any]:
        """Whether the rows of each site come in chunks: recorded, or as it is told now."""
        if self._kept is None:
            now = {site.name: site.streams for site in self._engine.sites}
            self._kept = self._told(STREAMS, {STREAMS: True}, lambda: now)
        return self._kept

    def _names(self) -> list[str]:
        return [site.name for site in self._engine.sites]

    def describe(self, texts: Collection[str] = ()) -> Mapping[str, tuple[Column, ...]]:
        """Give the recorded descriptions, or ask and record; a plan needs them once."""
        about = {"describe": sorted(texts), "sites": self._names()}
        told = self._told("described", about, lambda: self._written(texts))
        try:
            return {str(site): read_columns(columns) for site, columns in told.items()}
        except WireError as error:
            raise _damaged(self._folder / "described", error) from error

    def _written(self, texts: Collection[str]) -> dict[str, Any]:
        """What the sites tell of their columns, as JSON can hold it."""
        told = self._engine.describe(texts)
        return {site: write_columns(columns) for site, columns in told.items()}

    def classes(self) -> Mapping[str, tuple[str, ...] | None]:
        """Give the recorded labels, or ask and record."""
        about = {"labels": True, "sites": self._names()}
        told = self._told("labels", about, lambda: dict(self._engine.classes()))
        return {str(site): None if each is None else tuple(each) for site, each in told.items()}

    def _told(
        self, name: str, about: Mapping[str, Any], ask: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """What the sites tell once, by site: from the file of this name, or asked and recorded."""
        question = digest(pack(about, {}))
        path = self._folder / name
        if not path.exists():
            told = ask()
            with atomic_write(path) as temporary:
                temporary.write_bytes(pack({**FORMAT, "question": question, "told": told}, {}))
        header, _ = _header(path, question)
        if not isinstance(header.get("told"), dict):
            raise _damaged(path, WireError("it does not say what was told"))
        return dict(header["told"])

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Give the recorded answers, or ask and record."""
        self._streams()
        names = self._names()
        asked = names if sites is None else [name for name in names if name in set(sites)]
        headers, arrays = write_tasks(tasks)
        question = digest(pack({"tasks": headers, "asked": asked, "sites": names}, arrays))
        path = self._folder / f"exchange-{self._done:04d}"
        if path.exists():
            answers = _read(path, question, len(tasks))
            self.replayed += 1
        else:
            answers = self._engine.ask(tasks, asked)
            _write(path, question, answers)
        self._done += 1
        return answers


def _write(path: Path, question: str, answers: Sequence[Answers]) -> None:
    header: dict[str, Any] = {
        **FORMAT,
        "question": question,
        "answered": list(answers[0].by_site) if answers else [],
        "missing": list(answers[0].missing) if answers else [],
    }
    arrays: dict[str, Floats] = {}
    for t, answer in enumerate(answers):
        of_task = write_summaries(answer.summaries)
        arrays |= {f"{t}.{name}": array for name, array in of_task.items()}
    with atomic_write(path) as temporary:
        temporary.write_bytes(pack(header, arrays))


def _header(path: Path, question: str) -> tuple[Mapping[str, Any], Mapping[str, Floats]]:
    """What a file records, if it is of this question."""
    try:
        header, arrays = unpack(path.read_bytes(), LARGEST)
        if {key: header[key] for key in FORMAT} != FORMAT:
            raise WireError("another format")
        written = header["question"]
    except (WireError, LookupError, OSError) as error:
        raise _damaged(path, error) from error
    if written != question:
        raise InputError(
            f"{path} records another run: other tasks, sites, seed or settings; give the run "
            "that it records, or another folder"
        )
    return header, arrays


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} is damaged ({error}); start the run anew elsewhere")


def _read(path: Path, question: str, n_tasks: int) -> list[Answers]:
    header, arrays = _header(path, question)
    answers = []
    try:
        answered, missing = header["answered"], header["missing"]
        for t in range(n_tasks):
            prefix = f"{t}."
            mine = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
            summaries = read_summaries(mine)
            answers.append(Answers(dict(zip(answered, summaries, strict=True)), tuple(missing)))
    except (WireError, LookupError, ValueError) as error:
        raise _damaged(path, error) from error
    return answers
