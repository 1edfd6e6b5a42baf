"""The coordinator: it starts Flower's SuperLink, lets the sites in, and has jobs done."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StopRunRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedcluster.errors import InputError, SiteError
from fedcluster.federation._folders import Federation
from fedcluster.federation._jobs import JOBS, Job
from fedcluster.io._outputs import atomic_write, json_text
from fedcluster.transports.flower._processes import ManagedProcess, answers, environment, tries

PATIENCE = 60.0
"""Seconds that a SuperLink has to start."""

LOOK = 0.2
"""Seconds between two looks for an outcome."""

ASK = 5.0
"""Seconds between two questions whether a run still goes on."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """On which terms a job is done.

    Parameters
    ----------
    out : Path
        The folder that receives the files.
    columns : tuple of str, optional
        What to cluster by; without it all columns, which must then be the same everywhere.
    quorum : int, optional
        The smallest number of sites that must answer a round; by default all.
    deadline : float
        Seconds after which a round goes on without those that have not answered.
    """

    out: Path
    columns: tuple[str, ...] | None = None
    quorum: int | None = None
    deadline: float = 120.0


@contextmanager
def serve(federation: Federation) -> Iterator[ManagedProcess]:
    """Run the SuperLink of a federation while the block lasts.

    Raises
    ------
    InputError
        If it does not start.
    """
    home = federation.file("flower")
    home.mkdir(exist_ok=True)
    _write_connection(federation)
    log = home / "superlink.log"
    with ManagedProcess.running("superlink", _options(federation), log, home) as superlink:
        _wait_until_healthy(federation, superlink)
        _write_nodes(federation)
        yield superlink


def _options(federation: Federation) -> list[str]:
    host = federation.host if federation.host in ("127.0.0.1", "::1") else "0.0.0.0"
    if federation.host == "localhost":
        host = "127.0.0.1"
    trust = ["--insecure"]
    if not federation.insecure:
        files = {
            "--ssl-ca-certfile": "ca.crt",
            "--ssl-certfile": "server.crt",
            "--ssl-keyfile": "server.key",
        }
        trust = ["--enable-supernode-auth"]
        for option, name in files.items():
            trust += [option, str(federation.file("certificates", name))]
    return [
        *trust,
        *("--host", host, "--port", str(federation.port)),
        *("--database", str(federation.file("flower", "state.db"))),
        "--disable-runtime-dependency-installation",
    ]


def _write_connection(federation: Federation) -> None:
    """What Flower's own command ``flwr`` needs to find the SuperLink."""
    lines = ["[superlink]", 'default = "federation"', "[superlink.federation]"]
    lines.append(f"address = {json.dumps(_here(federation))}")
    if federation.insecure:
        lines.append("insecure = true")
    else:
        certificate = str(federation.file("certificates", "ca.crt"))
        lines.append(f"root-certificates = {json.dumps(certificate)}")
    path = federation.file("flower", "config.toml")
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _here(federation: Federation) -> str:
    """The address of the SuperLink on this machine."""
    return f"127.0.0.1:{federation.port}"


def _wait_until_healthy(federation: Federation, superlink: ManagedProcess) -> None:
    end = time.monotonic() + PATIENCE
    while not _is_healthy(federation):
        superlink.check()
        if time.monotonic() > end:
            raise InputError(
                f"Flower's superlink did not start within {PATIENCE:g} s; see {superlink.log}"
            )
        time.sleep(0.1)
    superlink.check()  # another may listen at its port


def _is_healthy(federation: Federation) -> bool:
    authority = None if federation.insecure else federation.file("certificates", "ca.crt")
    try:
        return answers(_here(federation), authority)
    except InputError:
        return False


@contextmanager
def _control(federation: Federation) -> Iterator[ControlHttpClient]:
    """Flower's interface for administrators."""
    certificate = None
    if not federation.insecure:
        certificate = federation.file("certificates", "ca.crt").read_bytes()
    logging.getLogger("flwr").setLevel(logging.ERROR)  # what it tries is not for the screen
    client = ControlHttpClient.from_server_address(
        server_address=_here(federation),
        insecure=federation.insecure,
        root_certificates=certificate,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        retry_invoker=tries(3),
    )
    try:
        yield client
    finally:
        client.close()


def _write_nodes(federation: Federation) -> None:
    """Register the sites' keys that Flower does not know, and write down who is which node."""
    nodes: dict[str, int] = {}
    if not federation.insecure:
        with _control(federation) as control:
            known = {
                node.public_key: node.node_id
                for node in control.ListNodes(ListNodesRequest()).nodes_info
                if node.status != "unregistered"
            }
            for site in federation.sites:
                key = _public_key(federation.file("keys", f"{site}.pub"))
                nodes[site] = known.get(key) or _register(control, site, key)
    with atomic_write(federation.file("flower", "nodes.json")) as temporary:
        temporary.write_text(json.dumps(nodes), encoding="utf-8")


def _register(control: ControlHttpClient, site: str, key: bytes) -> int:
    return int(control.RegisterNode(RegisterNodeRequest(public_key=key, name=site)).node_id)


def _public_key(path: Path) -> bytes:
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no public key: {error}") from error
    return public_key_to_bytes(key)  # type: ignore[arg-type]


def begin(federation: Federation, job: Job, terms: RunOptions) -> Path:
    """Have a job done; returns the folder of the run.

    Raises
    ------
    InputError
        If the federation is not started, or Flower does not take the job.
    """
    if terms.quorum is not None and not 1 <= terms.quorum <= len(federation.sites):
        raise InputError(f"--quorum must be from 1 to {len(federation.sites)}, not {terms.quorum}")
    name = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-") + os.urandom(2).hex()
    folder = federation.file("runs", name)
    content = {
        "job": next(name for name, kind in JOBS.items() if isinstance(job, kind)),
        "parameters": asdict(job),  # type: ignore[call-overload]
        "columns": terms.columns,
        "sites": list(federation.sites),
        "quorum": terms.quorum,
        "deadline": terms.deadline,
        "insecure": federation.insecure,
        "out": str(terms.out.absolute()),
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
        there = federation.file("runs")
        known = sorted(path.name for path in there.iterdir()) if there.is_dir() else []
        raise InputError(f"there is no run {name!r}; there are: {', '.join(known)}") from error
    if _outcome(folder).get("done"):
        raise InputError(f"run {name!r} has ended; its result is in {content['out']}")
    (folder / "outcome.json").unlink(missing_ok=True)
    _submit(federation, folder, content)
    return folder


def _submit(federation: Federation, folder: Path, content: Mapping[str, Any]) -> None:
    """Hand a job to Flower."""
    nodes = federation.nodes()
    if not _is_healthy(federation):
        raise InputError(
            f"no coordinator answers at {_here(federation)}; start it with fedcluster federation "
            f"start {federation.folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / "job.json") as temporary:
        temporary.write_text(json_text({**content, "nodes": nodes}), encoding="utf-8")
    app, job = federation.file("app"), json.dumps(str(folder))
    home = federation.file("flower")
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from flwr.cli.app import app; app()"),
            *("run", str(app), "federation", "--format", "json", "-c", f"job={job}"),
        ],
        capture_output=True,
        text=True,
        env=environment(home),
        check=False,
    )
    said = _json_in(done.stdout)
    if not said.get("success"):
        why = said.get("error-message") or done.stderr.strip()[-300:] or done.stdout.strip()[-300:]
        raise InputError(f"Flower did not take the run: {' '.join(str(why).split())}")
    (folder / "flower-run").write_text(str(said["run-id"]), encoding="utf-8")


def _json_in(text: str) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(text[text.index("{") :])
        return found if isinstance(found, dict) else {}
    return {}


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
    with suppress(OSError, ValueError):
        found = json.loads((folder / "outcome.json").read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def _check(federation: Federation, folder: Path) -> None:
    """Complain where a run has ended and left no outcome, or nobody is left to end it."""
    run = int((folder / "flower-run").read_text("utf-8"))
    try:
        with _control(federation) as control:
            status = control.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
    except httpx.HTTPError as error:
        raise SiteError(
            f"the coordinator at {_here(federation)} has gone; {_go_on(folder)}"
        ) from error
    if status.status == "finished" and not _outcome(folder):
        why = status.details or status.sub_status
        raise SiteError(f"the run has ended without a result: {why}; {_go_on(folder)}")


def _stop(federation: Federation, folder: Path) -> None:
    with suppress(httpx.HTTPError, OSError, ValueError), _control(federation) as control:
        run = int((folder / "flower-run").read_text("utf-8"))
        control.StopRun(StopRunRequest(run_id=run))


def runs(federation: Federation) -> dict[str, str]:
    """The runs by their names, and how they ended."""
    folders = sorted(federation.file("runs").glob("*/job.json"))
    ended = {path.parent.name: _outcome(path.parent) for path in folders}
    return {
        name: ("done" if found["done"] else found["error"]) if found else "not ended"
        for name, found in ended.items()
    }


def sites_online(federation: Federation) -> Sequence[str]:
    """The sites that are connected."""
    with _control(federation) as control:
        nodes = control.ListNodes(ListNodesRequest()).nodes_info
    names = federation.nodes()
    return sorted(names.get(n.node_id, str(n.node_id)) for n in nodes if n.status == "online")
