"""What Flower runs: the coordinator's part of one job; the sites answer by themselves."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedcluster.core import Engine, HeldBackError, SiteError
from fedcluster.data.outputs import json_text, whole_file, whole_folder
from fedcluster.data.tables import InputError
from fedcluster.engines.flower import FlowerEngine, introductions
from fedcluster.engines.recorded import RecordedEngine
from fedcluster.engines.remote import RemoteEngine
from fedcluster.engines.wire import WireError
from fedcluster.federation.accounts import Account
from fedcluster.federation.jobs import Job, drawn, job_of, noted
from fedcluster.preparation import Findings, Fitted, Preparation, Prepare, Schema, agree
from fedcluster.preparation import fit as fit_preparation
from fedcluster.rounds import Outcome, drive, prepared

__all__ = ["client", "conduct", "server"]

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
        outcome = {"done": True, **conduct(_engine(grid, content), content, folder)}
    except (InputError, HeldBackError, SiteError, WireError) as error:
        outcome = {"done": False, "error": str(error)}
    except Exception as error:
        LOGGER.exception("the run failed")
        outcome = {"done": False, "error": f"{type(error).__name__}: {error}"}
    with whole_file(folder / "outcome.json") as temporary:
        temporary.write_text(json_text(outcome), encoding="utf-8")
    if not outcome["done"]:
        raise RuntimeError(outcome["error"])


def _engine(grid: Grid, content: Mapping[str, Any]) -> RemoteEngine:
    deadline = content["deadline"]
    nodes = {int(node): name for node, name in content["nodes"].items()}
    if content["insecure"]:
        nodes = introductions(grid, content["sites"], deadline)
        lacking = sorted(set(content["sites"]) - set(nodes.values()))
        enough = content["quorum"] or len(content["sites"])
        if len(nodes) < enough:
            raise SiteError(f"not connected: {', '.join(lacking)}; {enough} sites are needed")
    return FlowerEngine(grid, nodes, quorum=content["quorum"], deadline=deadline)


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
    recorded = RecordedEngine(engine, folder / "exchanges")
    columns, schema = _agreed(engine, recorded, job, content["columns"], folder)
    job = job.settled(sum(engine.weights.values()), columns, recorded)
    account = _carried_out(job, columns, schema, engine, recorded)
    out = Path(content["out"])
    with whole_folder(out) as partial:
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
) -> Account:
    """Fit the preparation if there is one to fit, and do the job on prepared rows."""
    steps: dict[str, None] = {}
    before: Outcome[Fitted] | None = None
    how = job.preparing
    preparation = how if isinstance(how, Preparation) else None
    if isinstance(how, Prepare) and schema is not None:
        before = drive(noted(fit_preparation(how, schema), steps), recorded)
        preparation = before.value.preparation
        columns = tuple(column.name for column in preparation.columns)
    found = drive(
        noted(prepared(job.plan(recorded.sites), preparation), steps),
        recorded,
        participation=job.participation,
        seed=drawn(job.seed),
    )
    exchanges = before.exchanges + found.exchanges if before else found.exchanges
    return Account(
        Outcome(found.value, exchanges),
        columns,
        engine.sites,
        engine.weights,
        tuple(steps),
        tuple(engine.refusals),
        preparation,
        before.value.findings if before else Findings(),
    )


def _agreed(
    engine: RemoteEngine, recorded: Engine, job: Job, wanted: list[str] | None, folder: Path
) -> tuple[tuple[str, ...], Schema | None]:
    """The columns that all are asked about; their schema, if a preparation is to be fitted."""
    if job.preparing is None:
        return _in_one_order(engine, wanted, folder), None
    engine.choose(wanted, raw=True)
    if isinstance(job.preparing, Preparation):
        engine.greet()
        return tuple(wanted or ()), None
    schema = agree(recorded.describe(job.preparing.named), job.preparing.columns)
    if not engine.weights:  # the descriptions were recorded
        engine.greet()
    return (), schema


def _in_one_order(engine: RemoteEngine, wanted: list[str] | None, folder: Path) -> tuple[str, ...]:
    """Ask the sites what they hold; the columns that all are asked about, in one order.

    Raises
    ------
    InputError
        If two sites have other columns, or those that a resumed run asked about are others.
    """
    engine.choose(wanted)
    engine.greet()
    first, *others = sorted(engine.columns)
    columns = engine.columns[first]
    for site in others:
        if differing := sorted(set(columns) ^ set(engine.columns[site])):
            raise InputError(
                f"sites {first!r} and {site!r} have not the same columns: {', '.join(differing)}; "
                "name those to cluster by with --columns"
            )
    record = folder / "columns.json"
    if record.exists():
        columns = tuple(json.loads(record.read_text("utf-8")))
    with whole_file(record) as temporary:
        temporary.write_text(json.dumps(columns), encoding="utf-8")
    engine.choose(columns)
    return columns
