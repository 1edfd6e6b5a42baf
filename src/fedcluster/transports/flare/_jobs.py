"""A job of FLARE: three JSON files that name two installed classes and a run, and no code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcluster.io._outputs import atomic_folder, write_json
from fedcluster.transports.flare._locks import CONTROLLER, EXECUTOR

TOPIC = "fedcluster"
"""The topic of questions on FLARE's auxiliary channel."""


def write_flare_job(
    folder: Path, runs: Sequence[str], sites: Sequence[str], quorum: int | None
) -> Path:
    """Write a job that carries out runs, whose jobs are in the federation's folder.

    Parameters
    ----------
    folder : Path
        The folder to write.
    runs : sequence of str
        The names of the runs.
    sites : sequence of str
        The sites that the job starts at.
    quorum : int, optional
        The fewest of them that must be connected; by default all.
    """
    meta: dict[str, Any] = {
        "name": "-".join(["fedcluster", *runs])[:100],
        "resource_spec": {},
        "min_clients": quorum or len(sites),
        "deploy_map": {"app": ["server", *sites]},
    }
    server = {
        "format_version": 2,
        "workflows": [{"id": "runs", "path": CONTROLLER, "args": {"runs": list(runs)}}],
        "components": [],
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["none"], "executor": {"path": EXECUTOR}}],
        "components": [],
    }
    with atomic_folder(folder) as partial:
        (partial / "app" / "config").mkdir(parents=True)
        write_json(partial / "meta.json", meta)
        write_json(partial / "app" / "config" / "config_fed_server.json", server)
        write_json(partial / "app" / "config" / "config_fed_client.json", client)
    return folder
