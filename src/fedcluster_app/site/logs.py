"""The log and the privacy budget of a site in words: questions, and their cost.

Also the logs of programs: a JSON object per line, in rotated files.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from math import fsum
from pathlib import Path
from typing import Any, cast

from fedcluster.core import Limit
from fedcluster.errors import reason
from fedcluster.texts import Table, number, printable
from fedcluster_app.trust.audit_log import BEGUN
from fedcluster_app.trust.owned_files import check_writable, private_files
from fedcluster_app.wire.policy import BudgetLedger, Charge

TOLD = {"described": "describe", "labels": "labels"}
"""Metadata of a site by their names in the log, and the task under which they are listed."""


def answers_of(lines: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the log's content for each answer, split into the parts of each question.

    Each part has the ``time``, ``run``, ``round``, ``asked_by``, ``permit`` and ``limits`` of its
    question, and its own ``task``; other events are left out.
    """
    for line in lines:
        if "question" not in line:
            continue
        keys = ("time", "run", "round", "asked_by", "permit", "columns", "question")
        about = {key: line.get(key) for key in keys}
        about |= {"operator": line["operator"]} if "operator" in line else {}
        about["limits"] = line.get("told", {}).get("limits", [])
        if "refused" in line:
            yield {**about, "task": "none", "refused": line["refused"], "bytes": line["bytes"]}
            continue
        for key, task in TOLD.items():
            if key in line:
                yield {**about, "task": task, **line[key]}
        if not any(line.get(key) for key in (*TOLD, "tasks", "model")):
            yield {**about, "task": "introduce", "bytes": line["bytes"]}
        if line.get("model") is not None:
            yield {**about, "task": "none", "model": line["model"], "bytes": line["bytes"]}
        for task in line.get("tasks", ()):
            yield {**about, **task}


def event_lines(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each event other than a question or the beginning of a file.

    Examples
    --------
    >>> event_lines([{"event": "the site was reloaded", "time": "2026-11-22T10:00:00.123+00:00"}])
    ['2026-11-22 10:00:00  the site was reloaded']
    """
    events = (line for line in lines if "event" in line and line["event"] != BEGUN)
    return [f"{_when(line)}  {printable(str(line['event']))}" for line in events]


def _when(line: Mapping[str, Any]) -> str:
    return str(line["time"])[:19].replace("T", " ")


def answer_line(answer: Mapping[str, Any]) -> str:
    """Return one line for a part from `answers_of`."""
    when = _when(answer)
    line = f"{when}  round {answer['round']}  "
    if "refused" in answer:
        return f"{when}  refused: {printable(answer['refused'])}"
    if "model" in answer:
        return f"{when}  the model came, nothing left"
    size = f"{answer['bytes']:,} bytes"
    if answer["task"] == "introduce":
        return f"{line}its limits and the names of its columns, {size}"
    if answer["task"] == "describe":
        columns = f"{answer['number']} columns, {answer['texts']} texts"
        return f"{line}the names and kinds of {columns}, {size}"
    if answer["task"] == "labels":
        return f"{line}{answer['texts']} texts of labels, {size}"
    smallest = answer["smallest_weight"]
    least = "nothing in it" if smallest is None else f"smallest weight {number(smallest)}"
    if "noise" in answer:
        least = f"noise multiplier {number(answer['noise'])}"
    lines, width = answer["shape"]
    task = printable(answer["task"])
    return f"{line}{task}: {lines} x {width + 1}, {least}, {size}"


def run_records(answers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the questions of each run, in the order in which runs began.

    Each has the coordinator, the permit, the first and the last time, the numbers of questions
    answered and refused, the columns and, by task, its frequency, smallest weight and number of
    values.
    """
    runs: dict[Any, list[Mapping[str, Any]]] = {}
    for answer in answers:
        key = (answer["run"], answer["asked_by"], answer["permit"])
        runs.setdefault(key, []).append(answer)
    return [_record(key, lines) for key, lines in runs.items()]


def _record(key: Sequence[str | None], answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    tasks: dict[str, list[Mapping[str, Any]]] = {}
    for answer in answers:
        if answer["task"] != "none":
            tasks.setdefault(answer["task"], []).append(answer)
    refused = sum("refused" in answer for answer in answers)
    questions = {answer["question"] for answer in answers if "refused" not in answer}
    named = [answer["columns"] for answer in answers if isinstance(answer["columns"], list)]
    return {
        **dict(zip(("run", "asked_by", "permit"), key, strict=True)),
        "from": answers[0]["time"],
        "to": answers[-1]["time"],
        "questions": len(questions),
        "refused": refused,
        "columns": sorted({name for names in named for name in names}),
        "limits": sorted({str(Limit.from_plain(each)) for a in answers for each in a["limits"]}),
        "group_size": _group_size(answers),
        "tasks": [{"task": task, **_sum(sums)} for task, sums in tasks.items()],
    }


def _group_size(answers: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the smallest size of a group, None if some answer was not made of groups."""
    limits = [answer["limits"] for answer in answers if answer["task"] != "none"]
    sizes = [each["p"] for of_site in limits for each in of_site if each["name"] == "Groups"]
    return min(sizes) if sizes and len(sizes) == len(limits) else None


def _sum(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how often a task was asked, and a summary of its answers."""
    exact = (answer for answer in answers if "noise" not in answer)
    weights = [w for answer in exact if (w := answer.get("smallest_weight")) is not None]
    numbers = sum(answer.get("numbers", 0) for answer in answers)
    texts = max(answer.get("texts", 0) for answer in answers)
    least = min(weights) if weights else None
    return {"times": len(answers), "smallest_weight": least, "numbers": numbers, "texts": texts}


def run_parts(runs: Iterable[Mapping[str, Any]]) -> Iterator[Table | str]:
    """Yield, for each run, a table of its questions, and what can be inferred from the answers."""
    for run in runs:
        first, last = (str(run[key])[:16].replace("T", " ") for key in ("from", "to"))
        when = f"{first} to {last}, UTC"
        permit = f"under permit {printable(run['permit'])}" if run["permit"] else "without a permit"
        title = f"Run {printable(run['run'] or 'without a name')}, {permit}, {when}"
        rows = _rows(run["tasks"])
        total = sum(task["numbers"] for task in run["tasks"])
        header = ("asked", "times", "smallest weight", "numbers")
        if rows:
            yield Table(title, header, tuple(rows), ("all", "", "", f"{total:,}"))
        else:
            yield f"{title}: nothing was answered."
        yield from _sentences(run)


def _rows(tasks: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the rows of the table of a run, merging tasks with the same short form."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for task in tasks:
        alike.setdefault(_in_short(printable(task["task"])), []).append(task)
    rows: list[tuple[str, ...]] = []
    for name, same in alike.items():
        weights = [w for task in same if (w := task["smallest_weight"]) is not None]
        times, numbers = (sum(task[key] for task in same) for key in ("times", "numbers"))
        rows.append((name, f"{times:,}", number(min(weights)) if weights else "", f"{numbers:,}"))
    return rows


def _in_short(task: str, *, widest: int = 60) -> str:
    """Return a task with all parameters or, if that is long, with text parameters only.

    ``widest``: largest number of characters of a task in the table of a run.

    Examples
    --------
    >>> _in_short("Lloyd(tol=0.0001)")
    'Lloyd(tol=0.0001)'
    >>> _in_short("GaussianMixture(covariance_type='full', tol=1e-06, reg_covar=1e-06, floors=1)")
    "GaussianMixture(covariance_type='full', …)"
    """
    if len(task) <= widest:
        return task
    step, _, parameters = task.partition("(")
    texts = re.findall(r"\w+='[^']*'", parameters)
    return f"{step}({', '.join([*texts, '…'])})"[:widest]


def _sentences(run: Mapping[str, Any]) -> Iterator[str]:
    refused = f"; {run['refused']:,} refused" if run["refused"] else ""
    asked_by = printable(run["asked_by"])
    yield f"Questions of {asked_by}: {run['questions']:,} answered{refused}."
    weights = [t["smallest_weight"] for t in run["tasks"] if t["smallest_weight"] is not None]
    about = f" of {printable(', '.join(run['columns'][:20]))}" if run["columns"] else ""
    if weights and (p := run["group_size"]):
        yield (
            f"Who has the answers knows sums{about} over whole groups of at least {p} rows (or "
            f"persons, where a column says whose rows they are), and their weights. A weight below "
            f"{p} is a share of such a group."
        )
    elif weights:
        yield (
            f"Who has the answers knows sums{about} over rows that weigh {number(min(weights))} "
            "or more together, and their weights."
        )
    if run["limits"]:
        yield f"Limits in force: {printable(', '.join(run['limits']))}."
    if texts := max((task["texts"] for task in run["tasks"]), default=0):
        yield f"And up to {texts:,} texts that so many rows share as the limits ask."


def permit_lines(permits: Iterable[Mapping[str, Any]]) -> list[str]:
    """Describe in words what permits allow, and their states."""
    lines = []
    for permit in permits:
        for key in ("id", "purpose", "coordinator", "sites", "columns", "labels", "steps"):
            value = permit[key]
            values = value if isinstance(value, list | tuple) else [value]
            text = ", ".join({True: "yes", False: "no"}.get(each, str(each)) for each in values)
            lines.append(f"{key}: {printable(text)}")
        lines.append(f"days: {permit['start']} to {permit['end']}, UTC")
        used = f", {permit['used']:,} used" if "used" in permit else ", not accepted here"
        revoked = "; REVOKED" if permit.get("revoked") else ""
        lines += [f"rounds: {permit['rounds']:,}{used}{revoked}", ""]
    return lines[:-1]


def budget_content(
    ledger: BudgetLedger, answers: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the content of a ledger as JSON-compatible values, and how much it does not count.

    The rho of runs adds up to that of all, but epsilon does not.
    """
    runs: dict[str, list[Charge]] = {}
    for charge in ledger.charges:
        runs.setdefault(charge.run, []).append(charge)
    budget, rho = ledger.budget, fsum(charge.rho for charge in ledger.charges)
    return {
        "ledger": str(ledger.state.path),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "group_size": budget.group_size,
        "rho": budget.rho,
        "spent": {"epsilon": budget.spent(rho), "rho": rho},
        "left": {"rho": max(budget.rho - rho, 0.0)},
        "runs": [_run(name, charges, ledger) for name, charges in runs.items()],
        "before": sum("spent" not in line and bool(line.get("tasks")) for line in answers),
    }


def _run(name: str, charges: list[Charge], ledger: BudgetLedger) -> dict[str, Any]:
    rho = fsum(charge.rho for charge in charges)
    return {
        "run": name,
        "from": charges[0].time,
        "questions": len(charges),
        "answers": sum(charge.answers for charge in charges),
        "epsilon": ledger.budget.spent(rho),
        "rho": rho,
    }


def budget_parts(content: Mapping[str, Any]) -> Iterator[Table | str]:
    """Yield the budget of a site as a table of its runs, and as sentences."""
    spent, delta = content["spent"], content["delta"]
    if content["runs"]:
        yield Table(
            f"Privacy budget, epsilon at delta {delta:g}",
            ("run", "from", "answers", "epsilon", "rho"),
            tuple(
                (
                    printable(run["run"]),
                    str(run["from"])[:16].replace("T", " "),
                    f"{run['answers']:,}",
                    number(run["epsilon"]),
                    number(run["rho"]),
                )
                for run in content["runs"]
            ),
            ("all", "", "", number(spent["epsilon"]), number(spent["rho"])),
        )
    else:
        yield "No question was answered under this budget."
    yield spent_line(content)
    if before := content["before"]:
        yield f"Not counted: {before:,} answers that left before the site had a budget."


PERSONS = " (each person, where a column says whose the records are)"


def spent_line(content: Mapping[str, Any]) -> str:
    """Return a sentence on how much of a budget is spent and left."""
    spent, delta, whose = content["spent"], content["delta"], f"each record{PERSONS}"
    if (size := content["group_size"]) > 1:
        whose = f"each person with up to {size} records"
    return (
        f"Spent: epsilon {number(spent['epsilon'])} of {content['epsilon']:g} at delta {delta:g}, "
        f"for {whose}. Left: {number(100 * content['left']['rho'] / content['rho'])} % of rho."
    )


LARGEST_LOG, FILES = 10 << 20, 9
"""Size in bytes from which on a new file is started, and number of older files that are kept."""

FIELDS = ("site", "run", "round", "operator", "seconds", "missing")
"""Fields of a line other than time, level and event, if it has them."""


class JsonLines(logging.Formatter):
    """Formatter of records as JSON, times in UTC.

    Parameters
    ----------
    site : str, optional
        The site that the log belongs to.

    Examples
    --------
    >>> record = logging.makeLogRecord({"msg": "run begins", "levelname": "INFO", "created": 0.0})
    >>> record.run = "r1"
    >>> JsonLines().format(record)
    '{"time": "1970-01-01T00:00:00.000Z", "level": "info", "event": "run begins", "run": "r1"}'
    """

    def __init__(self, site: str | None = None) -> None:
        super().__init__()
        self._site = site

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {} if self._site is None else {"site": self._site}
        line |= {key: getattr(record, key) for key in FIELDS if hasattr(record, key)}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _PrivateFile(RotatingFileHandler):
    """Rotating file that only its owner may read, whatever the umask.

    If a line cannot be written, such as on a full disk, one line says so, until one is written.
    """

    _failed = _is_told = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, if it can be written."""
        self._failed = False
        super().emit(record)
        self._is_told = self._failed

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - named by logging
        """Say why the line cannot be written, instead of where in the program."""
        error, self._failed = sys.exc_info()[1], True
        if not self._is_told and sys.stderr is not None:
            why = reason(error) if isinstance(error, OSError) else error
            line = f"{self.baseFilename} cannot be written: {why}; make room for it"
            print(line, file=sys.stderr, flush=True)  # noqa: T201 - there is no log to say it in

    def _open(self) -> io.TextIOWrapper:
        def opener(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        file = open(self.baseFilename, self.mode, encoding="utf-8", opener=opener)  # noqa: SIM115
        return cast(io.TextIOWrapper, file)


@contextmanager
def logged(path: Path, *, printed: bool, site: str | None = None) -> Iterator[logging.Logger]:
    """Write the log of both packages into a file within the block; yield a logger.

    Parameters
    ----------
    path : Path
        The file, in a folder of a site or coordinator; older files have a number appended to their
        names.
    printed : bool
        Whether lines go to standard output too.
    site : str, optional
        The site that the log belongs to.

    Raises
    ------
    InputError
        If what the program must keep beside the log cannot be written.
    """
    check_writable(path.parents[1])
    loggers = [logging.getLogger(name) for name in ("fedcluster", "fedcluster_app")]
    with private_files():
        path.parent.mkdir(exist_ok=True)
        handlers: list[logging.Handler] = [
            _PrivateFile(path, maxBytes=LARGEST_LOG, backupCount=FILES, encoding="utf-8")
        ]
    handlers += [logging.StreamHandler(sys.stdout)] if printed else []
    before = [logger.level for logger in loggers]
    for handler in handlers:
        handler.setFormatter(JsonLines(site))
    for logger in loggers:
        logger.setLevel(logging.INFO)
        for handler in handlers:
            logger.addHandler(handler)
    try:
        yield loggers[-1]
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
            for handler in handlers:
                logger.removeHandler(handler)
        for handler in handlers:
            handler.close()
