"""Flower's ServerApp: the coordinator's part of one job; the sites answer by themselves."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedcluster.core import Engine
from fedcluster.engines._recorded import RecordedEngine
from fedcluster.engines._remote import RemoteEngine
from fedcluster.engines._wire import WireError
from fedcluster.errors import HeldBackError, InputError, SiteError
from fedcluster.federation._accounts import JobReport
from fedcluster.federation._jobs import Job, drawn, job_of, noted
from fedcluster.io._outputs import atomic_folder, atomic_write, write_json
from fedcluster.preprocessing import (
    FitReport,
    Fitted,
    PreprocessingSpec,
    Preprocessor,
    Schema,
    agree,
)
from fedcluster.preprocessing import fit as fit_preprocessor
from fedcluster.rounds import Outcome, run_plan, with_preprocessing
from fedcluster.transports.flower._transport import discover_nodes, flower_engine

LOGGER = logging.getLogger(__name__)

client = ClientApp()
"""Nothing: a site answers by its own package, ``fedcluster site start``."""

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
    return flower_engine(grid, nodes, quorum=content["quorum"], deadline=deadline)


def conduct(engine: RemoteEngine, content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Carry out a job and write its files; every exchange is recorded in ``folder``.

    Parameters
    ----------
    engine : RemoteEngine
        Who is asked.
    content : mapping
        What ``job.json`` holds.
    folder : Path
        The folder of the run; records there are not asked for again.

    Returns
    -------
    dict
        What there is to show.
    """
    job = job_of(content)
    folder.mkdir(parents=True, exist_ok=True)
    recorded = RecordedEngine(engine, folder / "communication_rounds")
    columns, schema = _agreed(engine, recorded, job, content["columns"], folder)
    weight = sum(site.weight or 0.0 for site in engine.introduce())
    job = job.settled(weight, columns, recorded)
    account = _carried_out(job, columns, schema, engine, recorded)
    out = Path(content["out"])
    with atomic_folder(out) as partial:
        shown = job.write(partial, account)
        files = sorted(path.name for path in partial.iterdir())
    kept: tuple[str, ...] = ()
    if "model.json" in files:
        kept = engine.give(json.loads((out / "model.json").read_text("utf-8")))
    return {**shown, "out": str(out), "files": files, "model_at": list(kept)}


def _carried_out(
    job: Job,
    columns: tuple[str, ...],
    schema: Schema | None,
    engine: RemoteEngine,
    recorded: Engine,
) -> JobReport:
    """Fit the preparation if there is one to fit, and do the job on prepared rows."""
    steps: dict[str, None] = {}
    before: Outcome[Fitted] | None = None
    how = job.preparing
    preprocessor = how if isinstance(how, Preprocessor) else None
    if isinstance(how, PreprocessingSpec) and schema is not None:
        before = run_plan(noted(fit_preprocessor(how, schema), steps), recorded)
        preprocessor = before.value.preprocessor
        columns = tuple(column.name for column in preprocessor.columns)
    found = run_plan(
        noted(with_preprocessing(job.plan(recorded.introduce()), preprocessor), steps),
        recorded,
        participation=job.participation,
        seed=drawn(job.seed),
    )
    communication_rounds = (
        before.communication_rounds + found.communication_rounds
        if before
        else found.communication_rounds
    )
    return JobReport(
        Outcome(found.value, communication_rounds),
        columns,
        engine.introduce(),
        tuple(steps),
        tuple(engine.refusals),
        preprocessor,
        before.value.fit_report if before else FitReport(),
    )


def _agreed(
    engine: RemoteEngine, recorded: Engine, job: Job, wanted: list[str] | None, folder: Path
) -> tuple[tuple[str, ...], Schema | None]:
    """The columns that all are asked about; their schema, if a preparation is to be fitted."""
    if job.preparing is None:
        return _in_one_order(engine, wanted, folder), None
    engine.choose(wanted, raw=True)
    if isinstance(job.preparing, Preprocessor):
        engine.introduce()
        return tuple(wanted or ()), None
    sites = recorded.introduce(columns=True, texts=job.preparing.named)
    described = {site.name: site.columns for site in sites if site.answered}
    return (), agree(described, job.preparing.columns)


def _in_one_order(engine: RemoteEngine, wanted: list[str] | None, folder: Path) -> tuple[str, ...]:
    """Ask the sites what they hold; the columns that all are asked about, in one order.

    Raises
    ------
    InputError
        If two sites have other columns, or those that a resumed run asked about are others.
    """
    engine.choose(wanted)
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
