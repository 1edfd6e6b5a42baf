"""Checkpoints: every exchange is written down, and a run that was broken off goes on from there.

A plan is a function of the answers that it receives. So there is nothing to save but these: a new
plan of the same run is given the recorded answers, one exchange after the other, and then the
sites are asked again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcluster.core import Answers, Engine, Floats, SiteInfo, Task
from fedcluster.engines._wire import (
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
        self._sites: tuple[SiteInfo, ...] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def introduce(
        self, *, columns: bool = False, texts: Collection[str] = (), labels: bool = False
    ) -> tuple[SiteInfo, ...]:
        """Return what the sites told of themselves when they were first asked, or ask and record.

        A run that goes on then starts as it did, whoever answers now.
        """
        if self._sites is not None and not (columns or labels):
            return self._sites
        asked = {"columns": columns, "texts": sorted(texts), "labels": labels}
        parts = ["sites", *(name for name in ("columns", "labels") if asked[name])]
        path, question = self._folder / "-".join(parts), digest(pack(asked, {}))
        if not path.exists():
            sites = self._engine.introduce(columns=columns, texts=texts, labels=labels)
            with atomic_write(path) as temporary:
                told = {**FORMAT, "question": question, "sites": [*map(write_site, sites)]}
                temporary.write_bytes(pack(told, {}))
        header, _ = _header(path, question)
        try:
            told_sites = tuple(read_site(str(each["name"]), each) for each in header["sites"])
        except (WireError, LookupError, TypeError) as error:
            raise _damaged(path, error) from error
        if not (columns or labels):
            self._sites = told_sites
        return told_sites

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Give the recorded answers, or ask and record."""
        names = [site.name for site in self._engine.introduce()]
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
