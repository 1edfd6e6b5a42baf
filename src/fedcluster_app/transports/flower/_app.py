"""The coordinator's part of one run, in a separate process.

    python -m fedcluster_app.transports.flower._app PARENT FOLDER PLUGIN...

The token of the run's task and the coordinator's secret are read from standard input, a line each,
because everybody can read arguments. The job is in ``job.json`` of a run in the federation's
folder; no code comes with a run.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
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

from fedcluster.errors import SiteError
from fedcluster_app.coordinator.folder import CANCEL, Federation
from fedcluster_app.coordinator.lifecycle import RevokedSites
from fedcluster_app.coordinator.run_job import lack, run_in_folder, terms_of
from fedcluster_app.coordinator.runs import find_run
from fedcluster_app.tables.plugins import load_plugins
from fedcluster_app.transports.flower import _launcher as launcher
from fedcluster_app.transports.flower import _programs as programs
from fedcluster_app.transports.flower._transport import discover_nodes, flower_engine
from fedcluster_app.transports.flower.coordinator import access_by, nodes_now
from fedcluster_app.trust.owned_files import end_with, private_files
from fedcluster_app.wire.exchange import never, no_listener
from fedcluster_app.wire.recorder import PROGRESS, note
from fedcluster_app.wire.remote import RemoteEngine


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
    """Run the job of the task whose token is on standard input."""
    parent, home, *plugins = sys.argv[1:]
    end_with(int(parent))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    launcher.hasten()
    load_plugins(plugins)
    federation = Federation.load(Path(home))
    token, secret = sys.stdin.read().split("\n")
    access = access_by(federation, secret.encode())
    # Number of times that an unresponsive SuperLink is asked.
    with private_files(), programs.task(access, token, 5) as runtime:
        task_input = runtime.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = task_input.task_id, task_input.run.run_id
        TaskIdentity.node_id = task_input.context.node_id
        run, grid = run_from_proto(task_input.run), RunGrid(runtime)
        grid.set_run(run)
        folder = find_run(federation, str(run.override_config.get("job")))
        error = run_job(grid, folder) if folder else "the run has no job in the federation's folder"
        how = SubStatus.FAILED if error else SubStatus.COMPLETED
        push_task_output(runtime, None, how, error)


def run_job(grid: Grid, folder: Path) -> str:
    """Run the job in a folder and write its outcome there; return its error, if any."""

    def connect(content: Mapping[str, Any]) -> RemoteEngine:
        def responded(site: str) -> None:
            note(folder / PROGRESS, heard=site)

        return engine_for(grid, content, (folder / CANCEL).exists, responded, folder.parents[1])

    return run_in_folder(connect, folder, _reason)


def _reason(error: Exception) -> str:
    """Return the message for an error of Flower's interface."""
    if not isinstance(error, httpx.HTTPStatusError):
        return ""
    status = error.response.status_code
    return "the run was stopped" if status == 401 else f"Flower answers {status}"


def engine_for(
    grid: Grid,
    content: Mapping[str, Any],
    cancelled: Callable[[], bool] = never,
    responded: Callable[[str], None] = no_listener,
    home: Path | None = None,
) -> RemoteEngine:
    """Return the engine that asks the sites of a job, until it is cancelled.

    The folder ``home`` of the federation has the current keys of each site.

    Raises
    ------
    SiteError
        If sites report their own names and too few are connected.
    """
    deadline = content["deadline"]
    known = {int(node): name for node, name in content["nodes"].items()}
    nodes = {node: name for node, name in known.items() if name in content["sites"]}
    if content["insecure"]:
        nodes = discover_nodes(grid, content["sites"], deadline)
        if absent := lack(content, nodes.values()):
            raise SiteError(absent)
    how: dict[str, Any] = {"deadline": deadline, "cancelled": cancelled, "responded": responded}
    if home is not None and not content["insecure"]:
        how["revoked"] = RevokedSites(home, nodes.values())
        how["now"] = partial(nodes_now, home / "flower", nodes)
    return flower_engine(grid, nodes, **how, **terms_of(content))


if __name__ == "__main__":
    main()
