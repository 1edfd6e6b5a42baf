"""A run in which the sites of a federation answer as one: what a relay asks, they are asked.

The program of the relay, a site of another federation, and the process of the run belong to the
same user of one machine. Questions and replies are files in the folder of the run, so that there
is no further port, and either end may be restarted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Unpack

from fedcluster.coordinator.folder import CANCEL
from fedcluster.core import Answers, Introduction, SiteInfo, Task
from fedcluster.engines.relay import Relay
from fedcluster.engines.remote import RemoteEngine
from fedcluster.engines.responder import Responder
from fedcluster.engines.wire import steps_by_name
from fedcluster.errors import CancelledError, SiteError
from fedcluster.io.outputs import atomic_write, write_json
from fedcluster.io.records import record_or
from fedcluster.model.assigned_rows import row_transform
from fedcluster.preprocessing.fitting import STEPS as PREPARATION
from fedcluster.privacy.budget import PolicyError
from fedcluster.privacy.limits import Limits
from fedcluster.site.owned_files import private_files

BOX = "relayed"
"""The folder in that of a run that holds questions and replies."""

QUESTION, REPLIED = "asked-", "replied-"
"""How their files begin."""

READY, ENDED = "columns.json", "ended"
"""The files that say that questions may come, and that no more will."""

IDLE = 300.0
"""Seconds without a question after which a run ends, which goes on with the next one."""

POLL = 0.01
"""Seconds between two looks for a question or a reply."""


@dataclass(frozen=True, slots=True)
class Relaying:
    """Job of the sites behind a relay.

    Parameters
    ----------
    name : str
        The name of the relay among the sites of the other federation.
    fewest : int
        The smallest number of sites behind an answer.
    lines : bool
        Whether that holds for each line of an answer, too.
    min_rows, min_cluster_size : int
        The relay's own limits on totals.
    steps : tuple of str
        Steps that may be asked besides those of the package.
    """

    kind: ClassVar[str] = "relay"

    name: str
    fewest: int = 3
    lines: bool = False
    min_rows: int = 1
    min_cluster_size: int = 1
    steps: tuple[str, ...] = ()


class Choosing:
    """Engine that asks the sites of a run about some of their columns.

    Parameters
    ----------
    engine : RemoteEngine
        The engine of the run.
    columns : sequence of str or None
        The columns; None for all.
    raw : bool
        Whether they are still to be prepared.
    """

    def __init__(self, engine: RemoteEngine, columns: Sequence[str] | None, *, raw: bool) -> None:
        self._engine, self._columns, self._raw = engine, columns, raw

    def introduce(self, **requested: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the metadata of the sites.

        Raises
        ------
        PolicyError
            If too few of them answer all steps that will be asked; it names no site.
        """
        self._engine.choose(self._columns, raw=self._raw)
        try:
            return self._engine.introduce(**requested)
        except SiteError as error:
            if not requested.get("steps"):
                raise
            raise PolicyError(
                "too few sites behind the relay answer where all steps of the run are named; the "
                "relay's own run says why"
            ) from error

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to the sites."""
        self._engine.choose(self._columns, raw=self._raw)
        return self._engine.ask(tasks, sites)


def relay(engine: RemoteEngine, content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Answer the questions to a relay until there are no more; return the outcome of the run.

    Parameters
    ----------
    engine : RemoteEngine
        The engine that asks the sites.
    content : mapping
        The content of ``job.json``.
    folder : Path
        The folder of the run.

    Raises
    ------
    CancelledError
        If the run is cancelled.
    SiteError
        If too few sites answer at the start, or nobody asks for long.
    """
    job = Relaying(**{**content["parameters"], "steps": tuple(content["parameters"]["steps"])})
    box = folder / BOX
    engine.name_job(folder.name, content.get("operator"))
    with private_files():
        box.mkdir(exist_ok=True)
        responder = _responder(engine, job)
        write_json(box / READY, {"columns": responder.columns})
        answered = 0
        for request in _questions(box, folder / CANCEL):
            reply = responder.reply(request.read_bytes())
            with atomic_write(box / request.name.replace(QUESTION, REPLIED)) as temporary:
                temporary.write_bytes(reply)
            request.unlink(missing_ok=True)
            answered += 1
    return {"out": content["out"], "files": [], "answered": answered, "model_at": [], "doubts": []}


def _responder(engine: RemoteEngine, job: Relaying) -> Responder:
    """Return what answers for all sites of a run."""
    limits = Limits(job.min_rows, job.min_cluster_size).filters

    def choose(columns: Sequence[str] | None, *, raw: bool = False) -> Relay:
        chosen = Choosing(engine, columns, raw=raw)
        return Relay(job.name, chosen, job.fewest, lines=job.lines, filters=limits)

    def keep(model: dict[str, Any]) -> None:
        engine.give(model)

    metadata = choose(None, raw=True).introduce()
    columns = tuple(column.name for column in metadata.columns)
    steps = steps_by_name([*PREPARATION, *job.steps])
    return Responder(
        choose(columns),
        columns=columns,
        choose=choose,
        steps=steps,
        preprocessors=partial(row_transform, steps=steps),
        keep=keep,
    )


def _questions(box: Path, cancel: Path) -> Iterator[Path]:
    """Yield the files of questions as they come, the oldest first."""
    last = time.monotonic()
    while not (box / ENDED).exists():
        if cancel.exists():
            raise CancelledError("the run was cancelled")
        if time.monotonic() - last > IDLE:
            raise SiteError("the relay has asked nothing for long; it goes on when it asks again")
        if requests := sorted(box.glob(f"{QUESTION}*")):
            yield requests[0]
            last = time.monotonic()
        else:
            time.sleep(POLL)


def disclosed_columns(box: Path) -> tuple[str, ...] | None:
    """Return the names of the columns of all sites, None until they are known."""
    return record_or(box / READY, dict[str, tuple[str, ...]], {}).get("columns")
