"""Flower's SuperLink: it is started for a federation, registers its sites, and takes its runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StopRunRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedcluster.errors import InputError
from fedcluster.federation._folder import Federation
from fedcluster.io._outputs import write_json
from fedcluster.transports.flower._http import LOCAL_TIMEOUT, check_guard, client, is_healthy
from fedcluster.transports.flower._processes import ManagedProcess, environment

PATIENCE = 300.0
"""Seconds that a SuperLink has to start, on a machine that does much else."""

LOCAL = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "::1": "::1"}
"""Addresses that the SuperLink listens at where no other machine is to reach it."""

CONNECTION = "federation"
"""The name of the SuperLink in the configuration of Flower's own command."""

APP = Path(__file__).with_name("app")
"""The folder of the app that Flower runs; all of its code is in this package."""


@contextmanager
def serve(federation: Federation) -> Iterator[ManagedProcess]:
    """Run the SuperLink of a federation while the block lasts.

    Raises
    ------
    InputError
        If it does not start, or its interfaces for administrators are open to other machines.
    """
    home = federation.file("flower")
    home.mkdir(exist_ok=True)
    write_connection(federation)
    log = home / "superlink.log"
    with ManagedProcess.running("superlink", superlink_options(federation), log, home) as superlink:
        _wait_until_healthy(federation, superlink)
        check_guard(local_address(federation), _authority(federation))
        _write_nodes(federation)
        yield superlink


def superlink_options(federation: Federation) -> list[str]:
    """Return the options of Flower's SuperLink."""
    trust = ["--insecure"]
    if not federation.insecure:
        trust = [
            "--enable-supernode-auth",
            *("--ssl-ca-certfile", str(federation.file("certificates", "ca.crt"))),
            *("--ssl-certfile", str(federation.file("certificates", "server.crt"))),
            *("--ssl-keyfile", str(federation.file("certificates", "server.key"))),
        ]
    return [
        *trust,
        *("--host", LOCAL.get(federation.host, "0.0.0.0"), "--port", str(federation.port)),
        *("--database", str(federation.file("flower", "state.db"))),
        "--disable-runtime-dependency-installation",
    ]


def write_connection(federation: Federation) -> None:
    """Write what Flower's own command ``flwr`` needs to find the SuperLink."""
    lines = ["[superlink]", f'default = "{CONNECTION}"', f"[superlink.{CONNECTION}]"]
    lines.append(f"address = {json.dumps(local_address(federation))}")
    if (authority := _authority(federation)) is None:
        lines.append("insecure = true")
    else:
        lines.append(f"root-certificates = {json.dumps(str(authority))}")
    path = federation.file("flower", "config.toml")
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def local_address(federation: Federation) -> str:
    """Return the address of the SuperLink on this machine."""
    return f"127.0.0.1:{federation.port}"


def _authority(federation: Federation) -> Path | None:
    return None if federation.insecure else federation.file("certificates", "ca.crt")


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
        return is_healthy(local_address(federation), _authority(federation), LOCAL_TIMEOUT)
    return False


@contextmanager
def _control(federation: Federation) -> Iterator[ControlHttpClient]:
    """Give a client of Flower's interface for administrators."""
    authority = _authority(federation)
    certificate = authority.read_bytes() if authority else None
    control = client(ControlHttpClient, local_address(federation), 3, certificate=certificate)
    try:
        yield control
    finally:
        control.close()


def _write_nodes(federation: Federation) -> None:
    """Register the sites' keys that Flower does not know, and write down who is which node."""
    nodes: dict[str, int] = {}
    if not federation.insecure:
        with _control(federation) as control:
            registered = {
                node.public_key: node.node_id
                for node in control.ListNodes(ListNodesRequest()).nodes_info
                if node.status != "unregistered"
            }
            for site in federation.sites:
                key = _public_key(federation.file("keys", f"{site}.pub"))
                if key not in registered:
                    request = RegisterNodeRequest(public_key=key, name=site)
                    registered[key] = int(control.RegisterNode(request).node_id)
                nodes[site] = registered[key]
    write_json(federation.file("flower", "nodes.json"), nodes)


def _public_key(path: Path) -> bytes:
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no public key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InputError(f"{path} is no public key of an elliptic curve")
    return public_key_to_bytes(key)


def registered_nodes(federation: Federation) -> dict[int, str]:
    """Return the name of the site behind each node that was registered with Flower.

    Raises
    ------
    InputError
        If the federation was never started.
    """
    try:
        content = json.loads(federation.file("flower", "nodes.json").read_text("utf-8"))
        return {int(node): str(name) for name, node in content.items()}
    except (OSError, ValueError) as error:
        folder = federation.folder
        raise InputError(
            f"{folder} is not started: run fedcluster federation start {folder}"
        ) from error


def submit_run(federation: Federation, folder: Path) -> None:
    """Hand Flower the run whose job is in a folder.

    Raises
    ------
    InputError
        If Flower does not take it.
    """
    command = [
        *(sys.executable, "-c", "from flwr.cli.app import app; app()"),
        *("run", str(APP), CONNECTION),
        *("--format", "json", "-c", f"job={json.dumps(str(folder))}"),
    ]
    home = environment(federation.file("flower"))
    done = subprocess.run(command, capture_output=True, text=True, env=home, check=False)
    reply = _json_in(done.stdout)
    if not reply.get("success"):
        why = reply.get("error-message") or done.stderr.strip()[-300:] or done.stdout.strip()[-300:]
        raise InputError(f"Flower did not take the run: {' '.join(str(why).split())}")
    (folder / "flower-run").write_text(str(reply["run-id"]), encoding="utf-8")


def _json_in(text: str) -> dict[str, Any]:
    """Return the JSON object that a text ends with, empty where it has none."""
    with suppress(ValueError):
        return dict(json.loads(text[text.index("{") :]))
    return {}


def _run_id(folder: Path) -> int:
    return int((folder / "flower-run").read_text("utf-8"))


def reason_of_finish(federation: Federation, folder: Path) -> str | None:
    """Return why a run is finished, None while it goes on.

    Raises
    ------
    ConnectionError
        If the SuperLink has gone.
    """
    run = _run_id(folder)
    try:
        with _control(federation) as control:
            status = control.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
    except httpx.HTTPError as error:
        raise ConnectionError(str(error)) from error
    return str(status.details or status.sub_status) if status.status == "finished" else None


def stop_run(federation: Federation, folder: Path) -> None:
    """Let Flower stop a run, if there is anybody to stop it."""
    with suppress(httpx.HTTPError, OSError, ValueError), _control(federation) as control:
        control.StopRun(StopRunRequest(run_id=_run_id(folder)))


def sites_online(federation: Federation) -> list[str]:
    """Return the names of the sites that are connected."""
    with _control(federation) as control:
        nodes = control.ListNodes(ListNodesRequest()).nodes_info
    names = registered_nodes(federation)
    return sorted(names.get(n.node_id, str(n.node_id)) for n in nodes if n.status == "online")
