"""Another user of a machine on which a coordinator and its sites run: he starts and reads nothing.

The test plays him as root, with a second user's rights, beside a real federation.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.routing import iter_route_contexts
from federations import LINUX, RunningFederation, federation, open_to_others
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import ListRunsRequest, StartRunRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.superlink.main import create_app as create_superlink
from ports import free_port, wait_until
from strangers import listening, stranger

from fedcluster.core.files import write_json
from fedcluster_app.coordinator.folder import ADDRESS, create
from fedcluster_app.coordinator.service import started
from fedcluster_app.transports.flower import _programs as programs
from fedcluster_app.transports.flower import coordinator
from fedcluster_app.trust.owned_files import private_files

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.network,
    LINUX,
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0,
        reason="only root can play another user: run it as root, in a container for example",
    ),
]

RNG = np.random.default_rng(0)
ROWS = {name: RNG.normal(size=(40, 2)) for name in ("north", "south")}

CODE = """
import pathlib
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

pathlib.Path({out!r}).write_text("loaded")
server, client = ServerApp(), ClientApp()


@server.main()
def main(grid, context):
    pathlib.Path({out!r}).write_text("run")
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that all may enter: what is in it must protect itself."""
    path = Path(tempfile.mkdtemp(prefix="fedcluster-door-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[RunningFederation]:
    """A federation in the middle of a run: a site is asked, and does not answer."""
    before = os.umask(0)
    try:
        with federation(folder, ROWS) as running:
            os.umask(before)
            run = running.run("fit", "-k", 2, "--quorum", 1, "--out", folder / "out")
            running.wait_for_exchange(1)
            with running.held("south"):
                time.sleep(5)
                yield running
            run.end()
    finally:
        os.umask(before)


def port_for_operators(running: RunningFederation) -> int:
    address = json.loads((running.folder / ADDRESS).read_text())["address"]
    return int(address.rpartition(":")[2])


def evil(out: Path) -> bytes:
    """An app that leaves a mark where its code is run."""
    about = coordinator.APP.read_text().replace("fedcluster:none", "mine:server", 1)
    about = about.replace("fedcluster:none", "mine:client")
    files = {"pyproject.toml": about.encode(), "mine.py": CODE.format(out=str(out)).encode()}
    fab, _ = build_fab_from_files(files)
    fab_message = fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
    return StartRunRequest(fab=fab_message).SerializeToString()


def flower_headers() -> dict[str, str]:
    """By which Flower's programs tell their version to each other."""
    request, nothing = httpx.Request("POST", "http://localhost"), ListRunsRequest()
    own = RuntimeVersionHttpInterceptor(component_name="flwr")
    context = ProtobufRequestContext("", nothing, request)
    own.intercept(context, lambda _: httpx.Response(200))
    return {name: value for name, value in request.headers.items() if "flwr" in name}


def routes(app: Any) -> list[str]:
    """The paths that an app of Flower serves, and two that it does not."""
    found: list[Any] = [context.route for context in iter_route_contexts(app.routes)]
    return sorted({route.path for route in found} | {"/", "/x"})


def test_the_ports_of_a_federation_are_known(running: RunningFederation) -> None:
    """Two of the coordinator, one as its address says; none of a site."""
    ports = (running.federation.port, port_for_operators(running))
    assert listening(running.pids()) == {("tcp", f"here:{port}") for port in ports}


def test_another_user_is_refused_at_every_port(running: RunningFederation, folder: Path) -> None:
    """At every path of Flower's, in every way: with the right headers and a run that would do."""
    body, headers = evil(folder / "mark"), flower_headers()
    assert headers
    asked = [
        (running.federation.port, method, path, content)
        for path in routes(create_superlink())
        for method, content in (("POST", b""), ("POST", body), ("GET", b""))
    ]
    assert len(asked) > 200
    answers = stranger(asked, headers=headers)["asked"]
    for (_, _, path, _), status in zip(asked, answers, strict=True):
        assert path == "/health" or 400 <= status < 500, path
        assert path.startswith(("/v1/fleet/", "/health")) or status == 403, path
    assert not (folder / "mark").exists()


def test_another_user_is_no_operator(running: RunningFederation) -> None:
    """He learns that the coordinator is there."""
    port, body = port_for_operators(running), json.dumps({"job": "fit"}).encode()
    [run] = (path.name for path in (running.folder / "runs").iterdir())
    paths = ["/", "/runs", "/sites", f"/runs/{run}", f"/runs/{run}/result/model.json"]
    paths += [f"/runs/{run}/{verb}" for verb in ("cancel", "resume", "forget")]
    ways = [("GET", b""), ("POST", body), ("POST", b"")]
    asked = [(port, method, path, content) for method, content in ways for path in paths]
    for token in ("", "guess"):
        answers = stranger(asked, headers={"Authorization": f"Bearer {token}"})["asked"]
        assert set(answers) <= {401, 404, 405}, answers
        assert answers.count(401) == 12
    assert stranger([(port, "GET", "/health", b"")])["asked"] == [200]


def test_another_user_reads_and_writes_no_file(running: RunningFederation) -> None:
    """Whatever the umask, each is for its owner only; the test's own files aside."""
    paths = [running.folder, *running.folder.rglob("*")]
    assert len(paths) > 30
    found = stranger(paths=paths)
    assert found["readable"] == found["writable"] == []
    open_ones = open_to_others(running.folder)
    assert {path.name for path in open_ones} <= {"rows.csv", "site.toml"}, open_ones


def test_no_process_shows_a_secret(running: RunningFederation) -> None:
    """What it was started with is there for all to read; its environment and memory are not."""
    secrets = [path.read_text() for path in running.folder.rglob("secret")]
    secrets += [(running.folder / "operator.token").read_text().strip()]
    assert len(secrets) == 1
    found = stranger(pids=running.pids())
    assert found["inside"] == []
    shown = "\n".join(found["cmdlines"])
    assert "transports.flower._app" in shown
    assert "--token" not in shown
    assert not [secret for secret in secrets if secret in shown]


def test_not_even_the_coordinator_runs_the_code_of_an_app(folder: Path) -> None:
    """Who knows the secret can start a run, but what it does stands in the federation's folder."""
    own = create(folder / "own", ["a"], f"127.0.0.1:{free_port()}")
    request = StartRunRequest.FromString(evil(folder / "mark"))
    mine = own.file("runs", "20260101-000000-aaaa")
    with private_files(), started(own, coordinator) as (carrier, _):
        assert isinstance(carrier, coordinator.FlowerCarrier)
        assert list(own.folder.rglob("secret")) == []
        with closing(programs.client(ControlHttpClient, carrier.access, 1)) as control:
            run = control.StartRun(request).run_id
            mine.mkdir(parents=True)
            write_json(mine / "job.json", {"sites": [], "parameters": {}})
            carrier.hand_over(mine)  # the process of this run alone is begun
            wait_until((mine / "outcome.json").exists)
            status = control.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
    assert status.status != "running"
    assert not (folder / "mark").exists()
