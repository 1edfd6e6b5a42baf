"""The coordinator: it runs Flower's SuperLink, registers its sites, and has jobs done by them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import httpx
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    StartRunRequest,
    StopRunRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab

from fedcluster.errors import InputError, SiteError
from fedcluster.federation._expiry import check_valid
from fedcluster.federation._folder import Federation
from fedcluster.federation._notices import running
from fedcluster.federation._private import private_files
from fedcluster.io._outputs import atomic_write
from fedcluster.transports.flower import _programs as programs
from fedcluster.transports.flower._launcher import SECRET_FILE
from fedcluster.transports.flower._programs import Access, ManagedProcess
from fedcluster.transports.flower._registry import NODES, Registry, nodes_now

PATIENCE = 300.0
"""Seconds that a SuperLink has to start, on a machine that does much else."""


APP = Path(__file__).with_name("app.toml")
"""What Flower asks for to take a run. No code is in it: a run is carried out by `carry_out`."""


@contextmanager
def serve(federation: Federation) -> Iterator[ManagedProcess]:
    """Run the SuperLink of a federation while the block lasts.

    Its secret changes with each start. What begins or shows runs finds it in ``flower/secret``.

    Raises
    ------
    InputError
        If it does not start, or its interfaces for administrators are open to others.
    """
    check_valid(federation)
    home, published = federation.file("flower"), federation.file("flower", "secret")
    log = home / "superlink.log"
    folder = federation.folder
    with private_files(), running(folder), programs.private_folder(home) as private:
        options = superlink_options(federation, private / "secret")
        with ManagedProcess.running("superlink", options, log, home) as superlink:
            _wait_until_healthy(federation, superlink)
            secret = programs.secret_in(private)
            access = _access(federation, secret)
            programs.check_guard(access)
            with atomic_write(published) as temporary:
                temporary.write_bytes(secret)
            with Registry(federation, access).kept():
                yield superlink


def superlink_options(federation: Federation, secret: Path) -> list[str]:
    """Return the options of Flower's SuperLink, which starts no app itself."""
    trust = ["--insecure"]
    if not federation.insecure:
        trust = [
            "--enable-supernode-auth",
            *("--ssl-ca-certfile", str(federation.authority)),
            *("--ssl-certfile", str(federation.file("certificates", "server.crt"))),
            *("--ssl-keyfile", str(federation.file("certificates", "server.key"))),
        ]
    return [
        *trust,
        *("--host", federation.place.listens, "--port", str(federation.port)),
        *("--database", str(federation.file("flower", "state.db"))),
        *("--isolation", "process", SECRET_FILE, str(secret)),
        "--disable-runtime-dependency-installation",
    ]


def _wait_until_healthy(federation: Federation, superlink: ManagedProcess) -> None:
    end = time.monotonic() + PATIENCE
    while not is_started(federation):
        superlink.check()
        if time.monotonic() > end:
            raise InputError(
                f"Flower's superlink did not start within {PATIENCE:g} s; see {superlink.log}"
            )
        time.sleep(0.1)
    superlink.check()  # another may listen at its port


def is_started(federation: Federation) -> bool:
    """Return whether the SuperLink of a federation answers on this machine."""
    with suppress(InputError):
        address, authority = federation.local_address, federation.authority
        how = (authority, programs.LOCAL_TIMEOUT, federation.host)
        return programs.is_healthy(address, *how)
    return False


def access_to(federation: Federation) -> Access:
    """Return how the coordinator's own programs reach its SuperLink.

    Raises
    ------
    InputError
        If the federation was never started.
    """
    try:
        secret = federation.file("flower", "secret").read_bytes()
    except OSError as error:
        raise _not_started(federation) from error
    return _access(federation, secret)


def _access(federation: Federation, secret: bytes) -> Access:
    """Return how programs of this machine reach the SuperLink; its certificate is for the host."""
    return Access(federation.local_address, federation.authority, secret, federation.host)


def _not_started(federation: Federation) -> InputError:
    folder = federation.folder
    return InputError(f"{folder} is not started: run fedcluster federation start {folder}")


def _control(federation: Federation) -> closing[ControlHttpClient]:
    """Return a client of Flower's interface for administrators, to be closed by a block."""
    return closing(programs.client(ControlHttpClient, access_to(federation), 3))


def registered_nodes(federation: Federation) -> dict[int, str]:
    """Return the name of the site behind each node that was registered with Flower.

    Raises
    ------
    InputError
        If the federation was never started.
    """
    try:
        content = json.loads(federation.file("flower", NODES).read_text("utf-8"))
        return {int(node): str(name) for name, node in content.items()}
    except (OSError, ValueError) as error:
        raise _not_started(federation) from error


def carry_out(federation: Federation, superlink: ManagedProcess) -> None:
    """Carry out the runs that Flower has taken while it runs, each in a process of its own.

    Nothing of an app is run: the process does what ``job.json`` says in a folder of the federation.
    """
    apps: list[subprocess.Popen[bytes]] = []
    try:
        for token in programs.tokens(superlink, access_to(federation), TaskType.SERVER_APP):
            apps = [app for app in apps if app.poll() is None]
            apps.append(_begin_app(federation, token))
    finally:
        for app in apps:
            programs.end(app)
    superlink.check()


def _begin_app(federation: Federation, token: str) -> subprocess.Popen[bytes]:
    """Start the process of a run; the token of its task is for nobody else, so it is handed in."""
    home = federation.file("flower")
    module = "fedcluster.transports.flower._app"
    with (home / "runs.log").open("ab") as log, TemporaryFile() as handed:
        handed.write(token.encode())
        handed.seek(0)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(os.getpid()), str(federation.folder)],
            stdin=handed,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=programs.environment(home),
            start_new_session=True,  # Ctrl-C is for us, and we end it
        )


@dataclass(frozen=True, slots=True)
class FlowerCarrier:
    """Carrier of the runs of a federation by Flower's SuperLink.

    Parameters
    ----------
    federation : Federation
        The federation, whose coordinator is started.
    """

    federation: Federation

    def ready(self) -> Mapping[str, Any]:
        """Return which of Flower's nodes is which site.

        Raises
        ------
        InputError
            If the coordinator is not started.
        """
        nodes = registered_nodes(self.federation)
        if not is_started(self.federation):
            raise InputError(
                f"no coordinator answers at {self.federation.local_address}; start it with "
                f"fedcluster federation start {self.federation.folder}"
            )
        return {"nodes": nodes}

    def hand_over(self, folder: Path) -> None:
        """Hand Flower the run whose job is in a folder.

        Raises
        ------
        InputError
            If Flower does not take it.
        """
        fab, _ = build_fab_from_files({"pyproject.toml": APP.read_bytes()})
        request = StartRunRequest(
            fab=fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {})),
            override_config=user_config_to_proto({"job": folder.name}),
        )
        try:
            with _control(self.federation) as control:
                run = control.StartRun(request).run_id
        except httpx.HTTPStatusError as error:
            why = " ".join(error.response.text.split())[:300]
            raise InputError(f"Flower did not take the run: {why}") from error
        (folder / "flower-run").write_text(str(run), encoding="utf-8")

    def stop(self, folder: Path) -> None:
        """Let Flower stop a run, if there is anybody to stop it."""
        with suppress(httpx.HTTPError, OSError, ValueError), _control(self.federation) as control:
            control.StopRun(StopRunRequest(run_id=_run_id(folder)))

    def end(self, folder: Path) -> str | None:
        """Return why Flower has ended a run, None while it goes on.

        Raises
        ------
        SiteError
            If Flower's SuperLink does not answer.
        """
        run = _run_id(folder)
        try:
            with _control(self.federation) as control:
                status = control.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
        except httpx.HTTPError as error:
            address = self.federation.local_address
            raise SiteError(f"the coordinator at {address} has gone") from error
        return (status.details or status.sub_status) if status.status == "finished" else None


def _run_id(folder: Path) -> int:
    return int((folder / "flower-run").read_text("utf-8"))


def sites_online(federation: Federation) -> list[str]:
    """Return the names of the sites that are connected."""
    with _control(federation) as control:
        nodes = control.ListNodes(ListNodesRequest()).nodes_info
    begun = registered_nodes(federation)
    names = {
        n: site for site, own in nodes_now(federation.file("flower"), begun).items() for n in own
    }
    return sorted({names.get(n.node_id, str(n.node_id)) for n in nodes if n.status == "online"})
