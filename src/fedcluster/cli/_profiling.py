"""Work of ``profile`` and ``name`` between the arguments and the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcluster._artefacts import write_profiles
from fedcluster._report._tables import SiteRecord
from fedcluster.cli import _indices as indices
from fedcluster.cli import _runs as runs
from fedcluster.engines import LocalEngine
from fedcluster.errors import InputError
from fedcluster.io._outputs import atomic_folder
from fedcluster.io._rows import SiteRows
from fedcluster.jobs import JobReport, Profile, execute


def profiled(
    job: Profile, tables: Mapping[str, SiteRows], min_cluster_size: int
) -> tuple[JobReport, tuple[SiteRecord, ...]]:
    """Ask these sites what sets the clusters apart; returns also what each sent."""
    clients = indices.clients_for(tables, min_cluster_size)
    report = execute(job, LocalEngine(clients))
    k = len(job.model.weights)
    records = (
        runs.record_of(client, report, indices.labels_of(job.model, client), k)
        for client in clients
    )
    return report, tuple(records)


def write(out: Path, report: JobReport, content: Mapping[str, Any]) -> list[str]:
    """Write ``profiles.json`` into a folder; returns the line that says so."""
    with atomic_folder(out) as folder:
        write_profiles(folder, report, content)
    return [f"Wrote {out / 'profiles.json'}."]


def names_by_number(given: Sequence[str]) -> dict[int, str]:
    """Return names by the number of the cluster, from CLUSTER=NAME.

    Examples
    --------
    >>> names_by_number(["0=older, high bp", "2=young"])
    {0: 'older, high bp', 2: 'young'}
    """
    names: dict[int, str] = {}
    for each in given:
        number, equals, name = each.partition("=")
        if not equals or not number.strip().isdecimal():
            raise InputError(f"{each!r} names no cluster: write its number, =, and the name")
        if int(number) in names:
            raise InputError(f"cluster {int(number)} is named twice; name it once")
        names[int(number)] = name
    return names
