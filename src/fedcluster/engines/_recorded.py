"""Checkpoints: a record of every exchange, from which a run that was broken off goes on.

A plan is a function of the answers that it receives. So there is nothing to save but these: a new
plan of the same run is given the recorded answers, one exchange after the other, and then the
sites are asked again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedcluster.core import Answers, Engine, PlannedStep, SiteInfo, Task
from fedcluster.engines._wire import (
    LEARNT,
    Arrays,
    Header,
    WireError,
    digest,
    pack,
    read_site,
    read_summaries,
    unpack,
    write_site,
    write_summaries,
    write_tasks,
)
from fedcluster.errors import InputError
from fedcluster.io._outputs import atomic_write

FORMAT = {"format": "fedcluster-exchange", "format_version": 1}
LARGEST = 1 << 40
"""Bytes of the largest file that is read; it is our own."""


class RecordedEngine:
    """Engine that asks another one and records what comes, one file for each exchange.

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
        self._sites: tuple[SiteInfo, ...] | None = None
        self._steps: tuple[PlannedStep, ...] = ()
        folder.mkdir(parents=True, exist_ok=True)

    def introduce(
        self,
        *,
        columns: bool = False,
        texts: Collection[str] = (),
        labels: bool = False,
        steps: Sequence[PlannedStep] = (),
    ) -> tuple[SiteInfo, ...]:
        """Return what the sites told of themselves when they were first asked, or ask and record.

        A run that goes on then starts as it did, whoever answers now. The steps to come are not
        recorded: the sites are told of them again before they are asked more.
        """
        self._steps = tuple(steps) or self._steps
        if self._sites is not None and not (columns or labels):
            return self._sites
        asked = {"columns": columns, "texts": sorted(texts), "labels": labels}
        parts = ["sites", *(name for name in ("columns", "labels") if asked[name])]
        path, question = self._folder / "-".join(parts), digest(pack(asked, {}))
        if not path.exists():
            sites = self._engine.introduce(
                columns=columns, texts=texts, labels=labels, steps=self._steps
            )
            known = [{key: getattr(site, key) for key in LEARNT} for site in sites]
            plain = [write_site(site) | more for site, more in zip(sites, known, strict=True)]
            _write(path, question, {"sites": plain}, {})
        with _reading(path, question) as (header, _):
            told = tuple(
                read_site(SiteInfo(**{key: each[key] for key in LEARNT if key in each}), each)
                for each in header["sites"]
            )
        if not (columns or labels):
            self._sites = told
        return told

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Give the recorded answers, or ask and record."""
        names, asked = names_asked(self._engine, sites, self._steps)
        question = _question(tasks, names, asked)
        path = self._folder / f"exchange-{self._done:04d}"
        if path.exists():
            answers = _read_answers(path, question, len(tasks))
            self.replayed += 1
        else:
            answers = self._engine.ask(tasks, asked)
            every = [summary for answer in answers for summary in answer.by_site.values()]
            first = answers[0]
            told: dict[str, Any] = {"answered": list(first.by_site), "missing": first.missing}
            told |= {} if first.enough is None else {"enough": first.enough}
            told |= {"summed": first.summed} if first.summed else {}
            _write(path, question, told, write_summaries(every))
        self._done += 1
        return answers


def _question(tasks: Sequence[Task], names: Sequence[str], asked: Sequence[str]) -> str:
    """Return the digest of what some of the sites are asked."""
    headers, arrays = write_tasks(tasks)
    return digest(pack({"tasks": headers, "asked": list(asked), "sites": list(names)}, arrays))


def names_asked(
    engine: Engine, sites: Iterable[str] | None, steps: Sequence[PlannedStep] = ()
) -> tuple[list[str], list[str]]:
    """Return the names of all sites of an engine, and of those that are asked, in their order."""
    names = [site.name for site in engine.introduce(steps=steps)]
    return names, names if sites is None else [name for name in names if name in set(sites)]


def kept_answers(
    path: Path, tasks: Sequence[Task], names: Sequence[str], asked: Sequence[str]
) -> list[Answers] | None:
    """Return the recorded answers to these tasks; None where others were asked.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    question = _question(tasks, names, asked)
    try:
        header, _ = unpack(path.read_bytes(), LARGEST)
    except (ValueError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}); fit anew without the site") from error
    if header.get("question") != question or header.get("summed"):
        return None
    return _read_answers(path, question, len(tasks))


def _read_answers(path: Path, question: str, n_tasks: int) -> list[Answers]:
    """Return the recorded answers to each task."""
    with _reading(path, question) as (header, arrays):
        names, missing = header["answered"], tuple(header["missing"])
        more = header.get("enough"), tuple(header.get("summed", ()))
        every, n = read_summaries(arrays), len(names)
        parts = [every[t * n : t * n + n] for t in range(n_tasks)]
        answers = [Answers(dict(zip(names, part, strict=True)), missing, *more) for part in parts]
    return answers


def _write(path: Path, question: str, header: Header, arrays: Arrays) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(pack({**FORMAT, "question": question, **header}, arrays))


@contextmanager
def _reading(path: Path, question: str) -> Iterator[tuple[Header, Arrays]]:
    """Give what a file records, if it is of this question; whatever fails, it is damaged."""
    try:
        header, arrays = unpack(path.read_bytes(), LARGEST)
        if {key: header[key] for key in FORMAT} != FORMAT:
            raise WireError("another format")
        if header["question"] != question:
            raise InputError(
                f"{path} records another run: other tasks, sites, seed or settings; give the run "
                "that it records, or another folder"
            )
        yield header, arrays
    except InputError:
        raise
    except (ValueError, LookupError, TypeError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}); start the run anew elsewhere") from error
