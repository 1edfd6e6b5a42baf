"""Membership of a site in a federation: its table in the site file, its answers and its results.

What carries the questions is no matter of this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedcluster._site import SiteFile
from fedcluster._worker import MEGABYTE
from fedcluster.engines._responder import Line, Responder
from fedcluster.engines._turns import Turns
from fedcluster.engines._wire import WireError, steps_by_name
from fedcluster.errors import InputError
from fedcluster.federation._site_worker import SiteWorker
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing._moments import Covariance, Missing
from fedcluster.preprocessing._quantiles import Histogram

PREPARATION = tuple(
    f"{step.__module__}.{step.__name__}" for step in (Histogram, Covariance, Missing)
)
"""The steps that a preparation asks."""

NO_LABELS = (
    "no rows were labelled, because they have changed since the run began: label them with "
    "fedcluster predict"
)


@dataclass(frozen=True, slots=True)
class Membership:
    """The table ``[federation]`` of a site file.

    Parameters
    ----------
    coordinator : str
        HOST:PORT of the coordinator.
    certificate : str, optional
        The file of the authority that vouches for the coordinator.
    key : str, optional
        The file of the site's own key.
    insecure : bool
        Without both, on one machine.
    results : str
        The folder that receives the model and the labels.
    log : str
        The file that says what left.
    steps : tuple of str
        Steps that may be asked besides those of the package.
    """

    coordinator: str
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False
    results: str = "results"
    log: str = "audit.jsonl"
    steps: tuple[str, ...] = ()

    @classmethod
    def from_site_file(cls, site: SiteFile) -> Membership:
        """Read the table of a site file.

        Raises
        ------
        InputError
            If a key is missing, unknown or of a wrong type, or a file is not there.
        """
        where = f"{site.path}: [federation],"
        names, types = [field.name for field in fields(cls)], {"insecure": bool, "steps": list}
        for key, value in site.federation.items():
            if key not in names:
                raise InputError(f"{where} unknown key {key!r}; known: {', '.join(names)}")
            if not isinstance(value, types.get(key, str)):
                raise InputError(f"{where} {key} must not be {value!r}")
        if "coordinator" not in site.federation:
            raise InputError(f'{where} write coordinator = "HOST:PORT" there')
        steps = tuple(map(str, site.federation.get("steps", ())))
        membership = cls(**{**site.federation, "steps": steps})
        credentials = {"certificate": membership.certificate, "key": membership.key}
        for key, name in {} if membership.insecure else credentials.items():
            if name is None:
                raise InputError(f"{where} {key!r} is missing")
            if not (site.path.parent / name).is_file():
                raise InputError(
                    f"{site.path.parent / name} does not exist; it is in the folder that the "
                    "coordinator handed over"
                )
        return membership


def site_responder(site: SiteFile, membership: Membership, say: Callable[[str], None]) -> Turns:
    """Return what answers the questions to a site; reads the names of its columns.

    The rows are in a process of their own, see `SiteWorker`.

    Parameters
    ----------
    site : SiteFile
        The site.
    membership : Membership
        Where it logs what left, what it may be asked, and where it keeps results.
    say : callable taking a str
        Receives what happens, in one line each.

    Raises
    ------
    InputError
        If the rows cannot be read, or ``steps`` of the site file names something else.
    """
    folder = site.path.absolute().parent
    columns = tuple(site.opened(raw=True).columns)
    try:
        steps = steps_by_name([*PREPARATION, *membership.steps])
    except WireError as error:
        raise InputError(f"{site.path}: [federation], steps: {error}") from error

    def log(lines: list[Line]) -> None:
        append_to_log(folder / membership.log, lines)
        size = sum(line["bytes"] for line in lines)
        say(f"site {site.name}: answered {len(lines)} tasks with {size:,} bytes")

    def keep(content: dict[str, Any]) -> None:
        results = folder / membership.results
        labelled = worker.keep(content, results)
        where = f"labels are in {results}" if labelled else f"it is in {results}; {NO_LABELS}"
        say(f"site {site.name}: the model came; {where}")

    worker = SiteWorker(site)
    worker.start()
    responder = Responder(
        worker.client(columns),
        columns=columns,
        choose=worker.client,
        steps=steps,
        preprocessors=Preprocessor.from_plain,
        log=log,
        keep=keep,
    )
    largest = site.cost.message_mb * MEGABYTE
    return Turns(responder.reply, worker.end, worker.begin, largest)


def append_to_log(path: Path, lines: list[Line]) -> None:
    """Append lines to the log of what left; they are on the disk when this returns."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    text = "".join(json.dumps({"time": now, **line}) + "\n" for line in lines)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def read_log(path: Path) -> list[Line]:
    """Return the lines of the log of what left, none where nothing has left.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    try:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
