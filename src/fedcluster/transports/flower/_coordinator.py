"""The coordinator: it runs Flower's SuperLink, registers its sites, and has jobs done by them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
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

from fedcluster._specifications import RunOptions
from fedcluster.errors import InputError, SiteError
from fedcluster.federation._folder import Federation
from fedcluster.federation._permits import Permit
from fedcluster.io._outputs import write_json
from fedcluster.jobs import JOBS, Job
from fedcluster.transports.flower import _programs as programs
from fedcluster.transports.flower._programs import ManagedProcess

PATIENCE = 300.0
"""Seconds that a SuperLink has to start, on a machine that does much else."""

LOOK = 0.2
"""Seconds between two looks for an outcome."""

ASK = 5.0
"""Seconds between two questions whether a run still goes on."""

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
        programs.check_guard(federation.local_address, federation.authority)
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
    """Write the file by which Flower's own command ``flwr`` finds the SuperLink."""
    lines = ["[superlink]", f'default = "{CONNECTION}"', f"[superlink.{CONNECTION}]"]
    lines.append(f"address = {json.dumps(federation.local_address)}")
    if (authority := federation.authority) is None:
        lines.append("insecure = true")
    else:
        lines.append(f"root-certificates = {json.dumps(str(authority))}")
    path = federation.file("flower", "config.toml")
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


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
        return programs.is_healthy(address, authority, programs.LOCAL_TIMEOUT)
    return False


def _control(federation: Federation) -> closing[ControlHttpClient]:
    """Return a client of Flower's interface for administrators, to be closed by a block."""
    address, authority = federation.local_address, federation.authority
    certificate = authority.read_bytes() if authority else None
    return closing(programs.client(ControlHttpClient, address, 3, certificate=certificate))


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


def _hand_over(federation: Federation, folder: Path) -> None:
    """Hand Flower the run whose job is in a folder."""
    command = [
        *(sys.executable, "-c", "from flwr.cli.app import app; app()"),
        *("run", str(APP), CONNECTION),
        *("--format", "json", "-c", f"job={json.dumps(str(folder))}"),
    ]
    home = programs.environment(federation.file("flower"))
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


def _stop(federation: Federation, folder: Path) -> None:
    """Let Flower stop a run, if there is anybody to stop it."""
    with suppress(httpx.HTTPError, OSError, ValueError), _control(federation) as control:
        control.StopRun(StopRunRequest(run_id=_run_id(folder)))


def sites_online(federation: Federation) -> list[str]:
    """Return the names of the sites that are connected."""
    with _control(federation) as control:
        nodes = control.ListNodes(ListNodesRequest()).nodes_info
    names = registered_nodes(federation)
    return sorted(names.get(n.node_id, str(n.node_id)) for n in nodes if n.status == "online")


def begin(federation: Federation, job: Job, options: RunOptions) -> Path:
    """Hand a job to Flower and return the folder of the run.

    Raises
    ------
    InputError
        If the quorum or the deadline means nothing, the federation is not started, or Flower does
        not take the job.
    """
    if options.quorum is not None and not 1 <= options.quorum <= len(federation.sites):
        raise InputError(
            f"--quorum must be from 1 to {len(federation.sites)}, not {options.quorum}"
        )
    if not options.deadline > 0:
        raise InputError(f"--deadline must be above 0 seconds, not {options.deadline:g}")
    if options.permit is not None:
        permit = Permit.load(federation.file("permits", f"{options.permit}.toml"))
        options = replace(options, columns=options.columns or permit.columns)
    name = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-") + os.urandom(2).hex()
    folder = federation.file("runs", name)
    content = {
        "job": next(name for name, kind in JOBS.items() if isinstance(job, kind)),
        "parameters": asdict(job),
        "sites": list(federation.sites),
        "insecure": federation.insecure,
        **asdict(options),
        "out": str(options.out.absolute()),
    }
    _submit(federation, folder, content)
    return folder


def resume(federation: Federation, name: str) -> Path:
    """Let a run that was broken off go on.

    Raises
    ------
    InputError
        If there is no such run, or it has ended well.
    """
    folder = federation.file("runs", name)
    try:
        content = json.loads((folder / "job.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        known = ", ".join(runs(federation))
        raise InputError(f"there is no run {name!r}; there are: {known}") from error
    if _outcome(folder).get("done"):
        raise InputError(f"run {name!r} has ended; its result is in {content['out']}")
    (folder / "outcome.json").unlink(missing_ok=True)
    _submit(federation, folder, content)
    return folder


def _submit(federation: Federation, folder: Path, content: Mapping[str, Any]) -> None:
    """Write a job down and hand it to Flower."""
    nodes = registered_nodes(federation)
    if not is_started(federation):
        raise InputError(
            f"no coordinator answers at {federation.local_address}; start it with fedcluster "
            f"federation start {federation.folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "job.json", {**content, "nodes": nodes})
    _hand_over(federation, folder)


def wait(federation: Federation, folder: Path, doing: Callable[[str], None]) -> dict[str, Any]:
    """Wait for the outcome of a run, and say meanwhile how far it is.

    Raises
    ------
    SiteError
        If the run failed, with its reason and how it can go on.
    """
    asked = time.monotonic()
    try:
        while not (outcome := _outcome(folder)):
            rounds = sum(1 for _ in (folder / "communication_rounds").glob("exchange-*"))
            doing(f"{rounds} rounds done" if rounds else "waiting for the sites")
            time.sleep(LOOK)
            if time.monotonic() - asked > ASK:
                _check(federation, folder)
                asked = time.monotonic()
    except KeyboardInterrupt:
        _stop(federation, folder)
        raise
    if not outcome["done"]:
        raise SiteError(f"{outcome['error']}; {_go_on(folder)}")
    return outcome


def _go_on(folder: Path) -> str:
    federation = folder.parents[1]
    return f"when that is mended: fedcluster federation run {federation} resume {folder.name}"


def _outcome(folder: Path) -> dict[str, Any]:
    """Return the outcome of a run, empty while there is none."""
    with suppress(OSError, ValueError):
        return dict(json.loads((folder / "outcome.json").read_text("utf-8")))
    return {}


def _check(federation: Federation, folder: Path) -> None:
    """Complain where a run has ended and left no outcome, or nobody is left to end it."""
    run = _run_id(folder)
    try:
        with _control(federation) as control:
            status = control.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
    except httpx.HTTPError as error:
        raise SiteError(
            f"the coordinator at {federation.local_address} has gone; {_go_on(folder)}"
        ) from error
    if status.status == "finished" and not _outcome(folder):
        reason = status.details or status.sub_status
        raise SiteError(f"the run has ended without a result: {reason}; {_go_on(folder)}")


def runs(federation: Federation) -> dict[str, str]:
    """Return the runs by their names, and how they ended."""
    folders = sorted(federation.file("runs").glob("*/job.json"))
    outcomes = {path.parent.name: _outcome(path.parent) for path in folders}
    return {
        name: ("done" if outcome["done"] else outcome["error"]) if outcome else "not ended"
        for name, outcome in outcomes.items()
    }
