"""Flower's ServerApp: it does the coordinator's part of one job; sites answer by themselves."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedcluster._artefacts import write_job
from fedcluster.engines._recorded import RecordedEngine
from fedcluster.engines._remote import RemoteEngine
from fedcluster.engines._wire import WireError
from fedcluster.errors import HeldBackError, InputError, SiteError
from fedcluster.io._outputs import atomic_folder, atomic_write, write_json
from fedcluster.jobs import Job, execute, job_from_json, preprocessing_of
from fedcluster.transports.flower._transport import discover_nodes, flower_engine

LOGGER = logging.getLogger(__name__)

HASH_DIGITS = 64
"""Digits of the hash of a line of a site's log."""

client = ClientApp()
"""An app that does nothing: a site answers by its own package, ``fedcluster site start``."""

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Carry out the job in the folder that the run names; its outcome comes there."""
    folder = Path(str(context.run_config["job"]))
    try:
        content = json.loads((folder / "job.json").read_text("utf-8"))
        outcome = {"done": True, **conduct(engine_for(grid, content), content, folder)}
    except (InputError, HeldBackError, SiteError, WireError) as error:
        outcome = {"done": False, "error": str(error)}
    except Exception as error:
        LOGGER.exception("the run failed")
        outcome = {"done": False, "error": f"{type(error).__name__}: {error}"}
    write_json(folder / "outcome.json", outcome)
    if not outcome["done"]:
        raise RuntimeError(outcome["error"])


def engine_for(grid: Grid, content: Mapping[str, Any]) -> RemoteEngine:
    """Return the engine that asks the sites of a job.

    Raises
    ------
    SiteError
        If too few sites are connected that say their names themselves.
    """
    deadline = content["deadline"]
    nodes = {int(node): name for node, name in content["nodes"].items()}
    if content["insecure"]:
        nodes = discover_nodes(grid, content["sites"], deadline)
        lacking = sorted(set(content["sites"]) - set(nodes.values()))
        enough = content["quorum"] or len(content["sites"])
        if len(nodes) < enough:
            raise SiteError(f"not connected: {', '.join(lacking)}; {enough} sites are needed")
    terms = {"quorum": content["quorum"], "permit": content.get("permit")}
    return flower_engine(grid, nodes, deadline=deadline, **terms)


def conduct(engine: RemoteEngine, content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Carry out a job and write its files; every exchange is recorded in ``folder``.

    Parameters
    ----------
    engine : RemoteEngine
        The engine that asks the sites.
    content : mapping
        The content of ``job.json``.
    folder : Path
        The folder of the run; records there are not asked for again.

    Returns
    -------
    dict
        The outcome, as the coordinator shows it.
    """
    job = job_from_json(content["job"], content["parameters"])
    folder.mkdir(parents=True, exist_ok=True)
    columns = _columns(engine, job, content["columns"], folder)
    recorded = RecordedEngine(engine, folder / "communication_rounds")
    report = execute(job, recorded, columns=columns)
    report = replace(report, sites=engine.introduce(), refusals=tuple(engine.refusals))
    heads = {site.name: site.log for site in report.sites if len(site.log) == HASH_DIGITS}
    write_json(folder / "log-heads.json", heads)
    out = Path(content["out"])
    with atomic_folder(out) as partial:
        shown = write_job(partial, report)
        files = sorted(path.name for path in partial.iterdir())
    kept: tuple[str, ...] = ()
    if "model.json" in files:
        kept = engine.give(json.loads((out / "model.json").read_text("utf-8")))
    return {**shown, "out": str(out), "files": files, "model_at": list(kept)}


def _columns(
    engine: RemoteEngine, job: Job, chosen: list[str] | None, folder: Path
) -> tuple[str, ...]:
    """Choose the columns that all sites are asked about, and return them in one order.

    Raises
    ------
    InputError
        If two sites have other columns, where rows are taken as they are.
    """
    raw = preprocessing_of(job) is not None
    engine.choose(chosen, raw=raw)
    if raw:
        return tuple(chosen or ())
    sites = [site for site in engine.introduce() if site.answered]
    told = {site.name: tuple(column.name for column in site.columns) for site in sites}
    first, *others = told
    columns = told[first]
    for site in others:
        if differing := sorted(set(columns) ^ set(told[site])):
            raise InputError(
                f"sites {first!r} and {site!r} have not the same columns: {', '.join(differing)}; "
                "name those to cluster by with --columns"
            )
    record = folder / "columns.json"
    if record.exists():
        columns = tuple(json.loads(record.read_text("utf-8")))
    with atomic_write(record) as temporary:
        temporary.write_text(json.dumps(columns), encoding="utf-8")
    engine.choose(columns)
    return columns
