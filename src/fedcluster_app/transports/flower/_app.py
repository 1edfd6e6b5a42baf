"""The coordinator's part of one run, in a separate process.

    python -m fedcluster_app.transports.flower._app PARENT FOLDER PLUGIN...

The token of the run's task and the coordinator's secret are read from standard input, a line each,
because everybody can read arguments. The job is in ``job.json`` of a run in the federation's
folder; no code comes with a run.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
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

from fedcluster_app.coordinator.folder import Federation
from fedcluster_app.coordinator.run_job import engine_of, run_in_folder
from fedcluster_app.coordinator.runs import find_run
from fedcluster_app.tables.plugins import load_plugins
from fedcluster_app.transports.flower import _launcher as launcher
from fedcluster_app.transports.flower import _programs as programs
from fedcluster_app.transports.flower._transport import FlowerCarrier
from fedcluster_app.transports.flower.coordinator import access_by, known_nodes
from fedcluster_app.trust.owned_files import end_with, private_files
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
        nodes = partial(known_nodes, folder.parents[1] / "flower")
        return engine_of(FlowerCarrier(grid, nodes), content["sites"], content, folder)

    return run_in_folder(connect, folder, _reason)


def _reason(error: Exception) -> str:
    """Return the message for an error of Flower's interface."""
    if not isinstance(error, httpx.HTTPStatusError):
        return ""
    status = error.response.status_code
    return "the run was stopped" if status == 401 else f"Flower answers {status}"


if __name__ == "__main__":
    main()
