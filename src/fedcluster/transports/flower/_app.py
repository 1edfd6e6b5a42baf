"""The coordinator's part of one run, in a process of its own; sites answer by themselves.

    python -m fedcluster.transports.flower._app PARENT FOLDER

The token of the run's task comes on standard input: arguments are there for all to read. What is
done stands in ``job.json`` of a run in the federation's folder; no code comes with a run.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from flwr.common.constant import SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.runtime_pb2 import PullTaskInputRequest
from flwr.serverapp import Grid
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import push_task_output

from fedcluster._artefacts import result_of, write_job
from fedcluster._report._messages import groups_line, influence_line, limit_line
from fedcluster.core import Engine, SiteInfo
from fedcluster.engines._believed import Believed
from fedcluster.engines._forgetting import ForgettingEngine
from fedcluster.engines._recorded import RecordedEngine
from fedcluster.engines._remote import RemoteEngine
from fedcluster.engines._watched import PROGRESS, WatchedEngine, note
from fedcluster.engines._wire import WireError
from fedcluster.errors import CancelledError, HeldBackError, InputError, SiteError
from fedcluster.federation._bounds import FIRST_ROWS, first_rows, keep_first_rows
from fedcluster.federation._folder import CANCEL, Federation
from fedcluster.federation._private import private_files
from fedcluster.io._outputs import atomic_folder, atomic_write, write_json
from fedcluster.jobs import Fit, Job, execute, job_from_json, preprocessing_of
from fedcluster.transports.flower import _launcher as launcher
from fedcluster.transports.flower import _programs as programs
from fedcluster.transports.flower._coordinator import access_to
from fedcluster.transports.flower._transport import discover_nodes, flower_engine, never, unheard

LOGGER = logging.getLogger(__name__)

HASH_DIGITS = 64
"""Digits of the hash of a line of a site's log."""

TRIES = 5
"""How often the SuperLink is asked where it does not answer."""


class RunGrid(HttpGrid):
    """Flower's grid of one run, over a client of ours.

    Parameters
    ----------
    runtime : RuntimeHttpClient
        The client of the run's task.
    """

    def __init__(self, runtime: RuntimeHttpClient) -> None:
        super().__init__(token="the client has it")
        self._client = runtime


def main() -> None:
    """Carry out the run of the task whose token is on standard input."""
    parent, home = sys.argv[1:]
    threading.Thread(target=launcher.end_with, args=[int(parent)], daemon=True).start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    federation = Federation.load(Path(home))
    with private_files(), programs.task(access_to(federation), sys.stdin.read(), TRIES) as runtime:
        given = runtime.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
        TaskIdentity.node_id = given.context.node_id
        run, grid = run_from_proto(given.run), RunGrid(runtime)
        grid.set_run(run)
        folder = run_folder(federation, str(run.override_config.get("job")))
        error = attempt(grid, folder) if folder else "the run has no job in the federation's folder"
        how = SubStatus.FAILED if error else SubStatus.COMPLETED
        push_task_output(runtime, None, how, error)


def run_folder(federation: Federation, name: str) -> Path | None:
    """Return the folder of a run that a job was written for, None where there is none."""
    jobs = federation.file("runs").glob("*/job.json")
    return next((path.parent for path in jobs if path.parent.name == name), None)


def attempt(grid: Grid, folder: Path) -> str:
    """Carry out the job in a folder and write its outcome there; return its error, if any."""
    try:
        content = json.loads((folder / "job.json").read_text("utf-8"))
        engine = engine_for(
            grid,
            content,
            (folder / CANCEL).exists,
            lambda site: note(folder / PROGRESS, heard=site),
        )
        outcome = {"done": True, **conduct(engine, content, folder)}
    except (CancelledError, InputError, HeldBackError, SiteError, WireError) as error:
        outcome = {"done": False, "error": str(error)}
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        why = "the run was stopped" if status == 401 else f"Flower answers {status}"
        outcome = {"done": False, "error": why}
    except Exception as error:
        LOGGER.exception("the run failed")
        outcome = {"done": False, "error": f"{type(error).__name__}: {error}"}
    write_json(folder / "outcome.json", outcome)
    return str(outcome.get("error", ""))


def engine_for(
    grid: Grid,
    content: Mapping[str, Any],
    cancelled: Callable[[], bool] = never,
    heard: Callable[[str], None] = unheard,
) -> RemoteEngine:
    """Return the engine that asks the sites of a job, until it is cancelled.

    Raises
    ------
    SiteError
        If too few sites are connected that say their names themselves.
    """
    deadline = content["deadline"]
    told = {int(node): name for node, name in content["nodes"].items()}
    nodes = {node: name for node, name in told.items() if name in content["sites"]}
    if content["insecure"]:
        nodes = discover_nodes(grid, content["sites"], deadline)
        lacking = sorted(set(content["sites"]) - set(nodes.values()))
        enough = content["quorum"] or len(content["sites"])
        if len(nodes) < enough:
            raise SiteError(f"not connected: {', '.join(lacking)}; {enough} sites are needed")
    terms = {"quorum": content["quorum"], "permit": content.get("permit")}
    terms["believed"] = believed_of(content)
    terms["secure"] = content.get("secure", False)
    how = {"deadline": deadline, "cancelled": cancelled, "heard": heard}
    return flower_engine(grid, nodes, **how, **terms)


def believed_of(content: Mapping[str, Any]) -> Believed:
    """Return what is believed of the sites' rows, as ``job.json`` states it."""
    path = Path(content.get("first_rows", FIRST_ROWS))
    return Believed(
        content.get("rows", {}),
        first_rows(path) if "first_rows" in content else {},
        {name: (low, high) for name, (low, high) in content.get("ranges", {}).items()},
        f"if that is right: fedcluster federation bounds {path.parent} --rows {{site}}:{{rows}}",
    )


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
    job = with_stated(job_from_json(content["job"], content["parameters"]), content)
    folder.mkdir(parents=True, exist_ok=True)
    columns = _columns(engine, job, content["columns"], folder)
    recorded = RecordedEngine(_forgetting(engine, content), folder / "communication_rounds")
    watched = WatchedEngine(recorded, folder / PROGRESS, engine.refusals)
    with _first_rows_kept(engine, content):
        report = execute(job, watched, columns=columns)
    report = replace(report, sites=engine.introduce(), refusals=tuple(engine.refusals))
    _write_log_heads(folder, report.sites)
    out = Path(content["out"])
    with atomic_folder(out) as partial:
        shown = write_job(partial, report, out.name)
        files = sorted(path.name for path in partial.iterdir())
    kept: tuple[str, ...] = ()
    doubts = [*report.fit_report.warnings]
    doubts += ["sites write [factors] and [codes] into their site files"] if doubts else []
    if "model.json" in files:
        model = json.loads((out / "model.json").read_text("utf-8"))
        kept = engine.give(model)
        doubts += groups_line(report.sites, len(model["centers"]))
    if isinstance(job, Fit):
        doubts += influence_line(report.influence)
        doubts += limit_line(job, result_of(report), options=True)
    written = {"out": str(out), "files": files, "model_at": list(kept), "doubts": doubts}
    return {**shown, **written}


def with_stated(job: Job, content: Mapping[str, Any]) -> Job:
    """Return a job with what the federation states of rows and columns, under a privacy budget.

    Sites are then not asked for either.
    """
    if not isinstance(job, Fit) or job.epsilon is None:
        return job
    ranges, rows = content.get("ranges", {}), content.get("rows", {})
    if not job.bounds and ranges:
        job = replace(job, bounds={name: ranges[name] for name in content["columns"] or ranges})
    stated = sum(rows.values()) if set(content["sites"]) <= set(rows) else None
    return replace(job, n_rows=stated)


def _forgetting(engine: RemoteEngine, content: Mapping[str, Any]) -> Engine:
    """Return the engine of a run that forgets a site, over the records of the run with it."""
    told = content.get("forgets")
    if told is None:
        return engine
    return ForgettingEngine(engine, Path(told["run"]) / "communication_rounds", told["site"])


def _write_log_heads(folder: Path, sites: Sequence[SiteInfo]) -> None:
    """Write the hash of the last line of each site's log, by which a change would be noticed."""
    heads = {site.name: site.log for site in sites if len(site.log) == HASH_DIGITS}
    write_json(folder / "log-heads.json", heads)


@contextmanager
def _first_rows_kept(engine: RemoteEngine, content: Mapping[str, Any]) -> Iterator[None]:
    """Write down at the end of a block what sites first told of their rows, whatever happens."""
    try:
        yield
    finally:
        if "first_rows" in content:
            keep_first_rows(Path(content["first_rows"]), engine.rows_told)


def _columns(
    engine: RemoteEngine, job: Job, chosen: list[str] | None, folder: Path
) -> tuple[str, ...]:
    """Choose the columns that all sites are asked about, and return them in one order.

    Raises
    ------
    InputError
        If two sites have other columns, where rows are taken as they are.
    """
    if isinstance(job, Fit) and job.epsilon is not None:
        named = tuple(chosen or job.bounds or ())
        engine.choose_publicly(named)
        return named
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


if __name__ == "__main__":
    main()
