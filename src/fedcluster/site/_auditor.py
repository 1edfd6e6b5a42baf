"""Keeper of a site's permits and log: every question and what left, written before it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.core import Floats, Summary, Task, first_alike
from fedcluster.engines.responder import AuditEntry, Auditor, Request
from fedcluster.engines.wire import ASKED, about_of
from fedcluster.errors import InputError
from fedcluster.io.outputs import atomic_write, write_durably
from fedcluster.privacy.budget import BudgetLedger
from fedcluster.site.audit_log import AuditLog, Head, Line, read_log
from fedcluster.site.permits import Asked, SitePermits, next_round
from fedcluster.texts.untrusted import printable

MOST_SIGNS = 2_000
"""Signs of a text of a question that stand in a line of the log; the question itself is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class SiteAuditor(Auditor):
    """Keeper of the permits and of the log of one site.

    Parameters
    ----------
    log : AuditLog
        The log.
    questions : QuestionFolder
        Where questions are kept.
    asked_by : str
        The coordinator, as far as the transport knows it.
    permits : SitePermits, optional
        With them, only what a permit covers is answered.
    columns : sequence of str
        The columns that the site has.
    say : callable taking a str
        Receives what is written down, in one line each.
    budget : BudgetLedger, optional
        The ledger of the site's privacy budget: each line says what is spent, so that the ledger
        cannot fall back behind the log unnoticed.
    """

    log: AuditLog
    questions: QuestionFolder
    asked_by: str
    permits: SitePermits | None = None
    columns: Sequence[str] = ()
    say: Callable[[str], object] = str
    budget: BudgetLedger | None = None

    def admit(self, request: Request) -> str:
        """Check that a permit covers a question, where the site demands one.

        The reply tells the hash of the last line of the log: the coordinator can show later that
        the log was the same up to there.
        """
        with self.log.locked() as head:
            self._used(request, head)
            return head.hash

    def record(self, entry: AuditEntry) -> None:
        """Write a line, and keep the question; the permit is held against it once more."""

        def line(head: Head) -> Line:
            used = {} if entry.refused else self._used(entry.request, head)
            kept = self.questions.keep(entry.request, refused=bool(entry.refused))
            spent: Line = {} if self.budget is None else {"spent": self.budget.rho}
            return {"asked_by": self.asked_by, **used, **kept, **spent, **_line(entry)}

        site = self.log.append(line).site
        tasks, size = len(entry.tasks), len(entry.reply)
        self.say(
            f"site {site}: a question was refused: {printable(entry.refused)}"
            if entry.refused
            else f"site {site}: answered {tasks} tasks with {size:,} bytes"
        )

    def _used(self, request: Request, head: Head) -> Line:
        """Return what a line says of the permit that covers a question, nothing without permits."""
        if self.permits is None:
            return {}
        asked = Asked.from_header(request.header, request.digest, self.columns)
        return next_round(self.permits.admit(asked, head), asked, head)


@dataclass(frozen=True, slots=True)
class QuestionFolder:
    """Folder of the questions in the log, each once, under its hash.

    Where they take more than their room, the oldest go. Refused ones have a folder and a tenth of
    the room for themselves, so that they drive out no answered one.

    Parameters
    ----------
    path : Path
        The folder.
    room : int
        Bytes that all take together.

    Attributes
    ----------
    sizes : dict of Path to int
        How many bytes are in a folder, as far as this program knows.
    """

    path: Path
    room: int
    sizes: dict[Path, int] = field(default_factory=dict, init=False, compare=False)

    def keep(self, request: Request, *, refused: bool = False) -> Line:
        """Keep a question; return what the log's line says of it and of those that went."""
        folder, room = self.path, self.room
        if refused:
            folder, room = self.path / "refused", self.room // 10
        question, digest = request.content, request.digest
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / digest
        if file.exists():
            file.touch()
        elif len(question) <= room:
            with atomic_write(file) as temporary:
                write_durably(temporary, question)
            if folder in self.sizes:
                self.sizes[folder] += len(question)
        about = {"question": digest, "question_bytes": len(question), "kept": len(question) <= room}
        dropped: list[str] = []
        if self.sizes.get(folder, room + 1) > room:
            self.sizes[folder], dropped = _drop(folder, room)
        return {**about, "dropped": dropped} if dropped else about

    def check(self, log: Path) -> int:
        """Check that the questions which the log says are kept are there, unchanged; count them.

        Raises
        ------
        InputError
            Naming the line of the log and the file.
        """
        kept: dict[Path, int] = {}
        for line in read_log(log):
            folder = self.path / "refused" if line.get("refused") else self.path
            if line.get("kept"):
                kept[folder / line["question"]] = line["line"]
            for digest in line.get("dropped", ()):
                kept.pop(folder / digest, None)
        for file, number in kept.items():
            if not file.exists():
                raise InputError(f"{file}: the question of line {number} of the log is gone")
            if sha256(file.read_bytes()).hexdigest() != file.name:
                raise InputError(f"{file}: the question of line {number} of the log was changed")
        return len(kept)


def _drop(folder: Path, room: int) -> tuple[int, list[str]]:
    """Remove the oldest files of a folder until the others fit; return their size, and who went."""
    files = sorted(
        (about.st_mtime_ns, file.name, about.st_size)
        for file in folder.iterdir()
        if file.is_file() and (about := file.stat())
    )
    size, dropped = sum(each for _, _, each in files), []
    for _, name, each in files:
        if size <= room:
            break
        (folder / name).unlink(missing_ok=True)
        size -= each
        dropped.append(name)
    return size, dropped


def _line(entry: AuditEntry) -> Line:
    """Return what the log says of a question and its reply: sizes and hashes, never a value."""
    header, run = entry.request.header, entry.request.header.get("run")
    number = header.get("exchange")
    line: Line = {
        "run": run[:100] if isinstance(run, str) else None,
        "round": number + 1 if isinstance(number, int) and 0 <= number < 1 << 53 else None,
        "reply": sha256(entry.reply).hexdigest(),
        "bytes": len(entry.reply),
    }
    operator = about_of(header, "operator")
    line |= {"operator": operator} if operator else {}
    if entry.refused:  # nothing more of a header that may be anything
        return {**line, "refused": entry.refused[:MOST_SIGNS]}
    columns = header.get("columns")
    line |= {"columns": columns if len(str(columns)) <= MOST_SIGNS else _digest(columns)}
    line |= {"model": _digest(header["model"])} if "model" in header else {}
    tasks = _task_lines(entry.tasks, entry.answers)
    return {**line, **_metadata(entry.metadata), "tasks": tasks}


def _task_lines(tasks: Sequence[Task], answers: Sequence[Summary]) -> list[Line]:
    """Return what the log says of each task and its answer; a preparation is digested once."""
    firsts = first_alike(tasks)
    digests = {
        i: None if (how := tasks[i].preprocessor) is None else _digest(how.plain())
        for i in set(firsts)
    }
    return [
        {**_task_line(task, answer), "preparation": digests[first]}
        for task, answer, first in zip(tasks, answers, firsts, strict=True)
    ]


def _task_line(task: Task, answer: Summary) -> Line:
    state = task.state
    arrays = {"centers": state.centers, "weights": state.weights, **state.memory}
    weights = answer.weights[answer.weights != 0]
    return {
        "task": repr(task.step)[:MOST_SIGNS],
        "seed": task.seed,
        "state_round": state.round,
        "state": {name[:100]: _array(array) for name, array in arrays.items() if array.size},
        "shape": list(answer.sums.shape),
        "numbers": answer.n_values,
        "smallest_weight": float(weights.min()) if weights.size else None,
        "bytes": answer.sums.nbytes + answer.weights.nbytes,
        **({} if task.noise is None else {"noise": task.noise}),
    }


def _metadata(metadata: Mapping[str, Any]) -> Line:
    """Return what the log says of what the site told of itself; of texts, how many there are."""
    line: Line = {"told": {key: metadata[key] for key in metadata if key not in ASKED}}
    if (columns := metadata.get("described")) is not None:
        texts = sum(len(levels) for _, _, levels in columns)
        size = len(json.dumps(columns))
        line["described"] = {"number": len(columns), "texts": texts, "bytes": size}
    if (labels := metadata.get("labels")) is not None:
        line["labels"] = {"texts": len(labels), "bytes": len(json.dumps(labels))}
    return line


def _digest(plain: Any) -> str:
    return sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _array(array: Floats) -> list[Any]:
    """Return the shape and the hash of an array, as it travels."""
    return [*array.shape, sha256(np.ascontiguousarray(array, "<f8").tobytes()).hexdigest()]
