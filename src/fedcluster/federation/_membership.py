"""Membership of a site in a federation: its table in the site file, its answers and its results.

What carries the questions is no matter of this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster._site import SiteFile
from fedcluster.engines._responder import Line, Responder
from fedcluster.engines._wire import WireError, steps_by_name
from fedcluster.errors import InputError
from fedcluster.io._outputs import atomic_folder, json_text, write_labels
from fedcluster.model import Model
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing._moments import Covariance, Missing
from fedcluster.preprocessing._quantiles import Histogram

PREPARATION = tuple(
    f"{step.__module__}.{step.__name__}" for step in (Histogram, Covariance, Missing)
)
"""The steps that a preparation asks."""


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


def site_responder(site: SiteFile, membership: Membership, say: Callable[[str], None]) -> Responder:
    """Return the responder of a site, which answers questions; reads the names of its columns.

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
        keep_results(site, content, folder / membership.results)
        say(f"site {site.name}: the model came; labels are in {folder / membership.results}")

    return Responder(
        site.client(columns),
        columns=columns,
        choose=site.client,
        steps=steps,
        preprocessors=Preprocessor.from_plain,
        log=log,
        keep=keep,
    )


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


def keep_results(site: SiteFile, content: Mapping[str, Any], results: Path) -> None:
    """Write the model that came, and the cluster of each row, chunk by chunk: both stay here."""
    with atomic_folder(results) as partial:
        path = partial / "model.json"
        path.write_text(json_text(content), encoding="utf-8")
        model = Model.load(path)
        raw = model.preprocessor is not None
        predictions = [
            (model.predict(chunk), model.memberships(chunk))
            for chunk in site.opened(model.columns, raw=raw).chunks()
        ]
        labels = np.concatenate([labels for labels, _ in predictions])
        memberships = [each for _, each in predictions if each is not None]
        write_labels(
            partial / "labels.csv",
            np.arange(1, len(labels) + 1),
            labels,
            np.concatenate(memberships) if memberships else None,
        )
