"""Coordinator over Flower: runs the SuperLink, registers the keys of sites, submits runs.

Flower admits the keys in the federation's folder, which is read repeatedly. In Flower, a site is a
node, and a node never changes its key, so a new key creates a new node. During a run, nodes are
read again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
import sqlite3
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto import control_pb2
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.primitives.asymmetric import bytes_to_public_key

from fedcluster.core.files import write_json
from fedcluster.errors import InputError, SiteError
from fedcluster_app.coordinator import certificates as pki
from fedcluster_app.coordinator.folder import Federation
from fedcluster_app.records import record_or
from fedcluster_app.tables.plugins import LOADED
from fedcluster_app.transports.flower import _launcher as launcher
from fedcluster_app.transports.flower import _programs as programs
from fedcluster_app.transports.flower._programs import Access
from fedcluster_app.trust.findings import unanswered
from fedcluster_app.trust.owned_files import ManagedProcess, wait_for_port

LOGGER = logging.getLogger(__name__)


NODES, STATUSES, STATE = "nodes.json", "standing.json", "state.db"
"""Files in ``flower``: the nodes of each site, by its key and its new one; the status of keys; and
the database of the SuperLink, to which a run adds less than 1 kB once it has ended."""


KNOWN = "known"


@contextmanager
def controlling(access: Access) -> Iterator[ControlHttpClient]:
    """Yield a client of Flower's interface for administrators, which answers within the block.

    Raises
    ------
    SiteError
        If Flower's SuperLink does not answer.
    """
    try:
        with closing(programs.client(ControlHttpClient, access, 3)) as control:
            yield control
    except httpx.HTTPError as error:
        raise SiteError(unanswered(error, "Flower's superlink")) from error


def _register(control: ControlHttpClient, site: str, key: pki.PublicKey) -> int:
    """Register a site's key and return its node, 0 if Flower does not accept it."""
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    try:
        request = control_pb2.RegisterNodeRequest(public_key=pem, name=site)
        return int(control.RegisterNode(request).node_id)
    except httpx.HTTPStatusError as error:
        LOGGER.warning("Flower does not take the key of %s: %s", site, error.response.text[:200])
        return 0


def key_status(federation: Federation) -> dict[str, str]:
    """Return the status of each key by its SHA-256, for its owner."""
    gone = pki.former_keys(federation.folder).items()
    former = {digest: f"{key.why} on {key.at}" for digest, key in gone}
    keys = pki.accepted_keys(federation.folder, federation.sites)
    return former | {pki.key_digest(key): KNOWN for own in keys.values() for key in own}


def known_nodes(home: Path) -> dict[str, list[int]]:
    """Return the nodes by which each site is reached, newest last; ``home``: as in `NODES`."""
    return record_or(home / NODES, dict[str, list[int]], {})


APP = Path(__file__).with_name("app.toml")
"""Parameters that Flower requires for a run. It has no code: what runs is the job of a run."""


@contextmanager
def serve(federation: Federation) -> Iterator[tuple[FlowerCarrier, ManagedProcess]]:
    """Run the SuperLink of a federation within the block.

    Its secret changes with each start. Only this process knows it, and passes it to its children;
    the file with the secret is removed once the SuperLink has started.

    Raises
    ------
    InputError
        If it does not start, or its interfaces for administrators are open to others.
    """
    home = federation.file("flower")
    home.mkdir(parents=True, exist_ok=True)
    # Size in bytes from which on the database is begun anew, as it holds nothing that lasts.
    if (home / STATE).exists() and (home / STATE).stat().st_size > 64 << 20:
        for each in home.glob(f"{STATE}*"):
            each.unlink()
    secret, file = secrets.token_hex(32), home / "secret"
    file.write_text(secret, encoding="ascii")
    options = superlink_options(federation, file)
    command = [sys.executable, "-P", launcher.__file__, str(os.getpid()), *options]
    log, env = home / "superlink.log", programs.environment(home, listens=federation.place.listens)
    with ManagedProcess.running("Flower's superlink", command, log, env) as superlink:
        try:
            superlink.wait_for_start(lambda: is_started(federation))
        finally:
            file.unlink()
        access = access_by(federation, secret.encode())
        programs.check_guard(access)
        with closing(FlowerCarrier(federation, access)) as carrier:
            yield carrier, superlink


def check_state(federation: Federation, orphan: float = 0.0) -> None:
    """Raise an error if Flower's SuperLink, which does not run, would not start.

    A copy of its database is opened, so that nothing changes. A program that was left over may
    listen at its port for some seconds, ``orphan``.

    Raises
    ------
    InputError
        With advice.
    """
    path = federation.file("flower", STATE)
    with TemporaryDirectory() as name:
        for each in path.parent.glob(f"{STATE}*"):
            shutil.copy(each, name)
        try:
            with closing(sqlite3.connect(Path(name, STATE))) as database:
                [(found,)] = database.execute("PRAGMA quick_check(1)")
        except (sqlite3.Error, OSError) as error:
            found = str(error)
    if found != "ok":
        raise InputError(f"{path} is damaged ({found}): remove it, and the sites connect anew")
    wait_for_port(federation.place.listens, federation.port, orphan)


def superlink_options(federation: Federation, secret: Path) -> list[str]:
    """Return the options of Flower's SuperLink, which starts no app itself."""
    return [
        "--enable-supernode-auth",
        *("--ssl-ca-certfile", str(federation.authority)),
        *("--ssl-certfile", str(federation.file("certificates", "server.crt"))),
        *("--ssl-keyfile", str(federation.file("certificates", "server.key"))),
        *("--host", federation.place.listens, "--port", str(federation.port)),
        *("--database", str(federation.file("flower", STATE))),
        *("--isolation", "process", launcher.SECRET_FILE, str(secret)),
        "--disable-runtime-dependency-installation",
    ]


def is_started(federation: Federation) -> bool:
    """Return whether the SuperLink of a federation answers on this machine."""
    with suppress(InputError):
        how = federation.authority, programs.LOCAL_TIMEOUT, federation.host
        return programs.is_healthy(federation.place.local, *how)
    return False


def access_by(federation: Federation, secret: bytes) -> Access:
    """Return the access of local programs to the SuperLink, with a certificate for the host."""
    return Access(federation.place.local, federation.authority, secret, federation.host)


@dataclass(slots=True)
class FlowerCarrier:
    """Carrier of the runs of a federation by Flower's SuperLink, each in a process of its own.

    Parameters
    ----------
    federation : Federation
        The federation, whose coordinator is started.
    access : Access
        The access to the SuperLink.
    """

    federation: Federation
    access: Access
    _process: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """End the process of the last run."""
        self._process.close()

    def admit(
        self, keys: Mapping[str, Sequence[pki.PublicKey]], leaving: Mapping[str, str]
    ) -> Collection[str]:
        """Register these keys with the SuperLink, and unregister others.

        Raises
        ------
        SiteError
            If Flower's SuperLink does not answer.
        """
        nodes: dict[str, list[int]] = {site: [] for site in (*keys, *leaving.values())}
        with controlling(self.access) as control:
            listed = control.ListNodes(control_pb2.ListNodesRequest()).nodes_info
            known = [node for node in listed if node.status != "unregistered"]
            here = {pki.key_digest(bytes_to_public_key(node.public_key)): node for node in known}
            for digest in here.keys() & leaving.keys():
                nodes[leaving[digest]].append(here[digest].node_id)
            surplus = here.keys() - leaving.keys()
            for site, own in keys.items():
                for key in own:
                    node = here.get(pki.key_digest(key))
                    nodes[site].append(node.node_id if node else _register(control, site, key))
                surplus -= set(map(pki.key_digest, own))
            for digest in surplus:
                with suppress(httpx.HTTPStatusError):  # it was already removed
                    control.UnregisterNode(
                        control_pb2.UnregisterNodeRequest(node_id=here[digest].node_id)
                    )
        numbers = {site: [*filter(None, own)] for site, own in nodes.items()}
        write_json(self.federation.file("flower", NODES), numbers)
        write_json(self.federation.file("flower", STATUSES), key_status(self.federation))
        return {digest for digest, node in here.items() if node.status == "online"}

    def hand_over(self, folder: Path) -> None:
        """Submit the run whose job is in a folder to Flower, and start its process.

        No code of an app is run: the process carries out ``job.json``.

        Raises
        ------
        InputError
            If Flower does not accept it.
        SiteError
            If Flower's SuperLink does not answer.
        """
        fab, _ = build_fab_from_files({"pyproject.toml": APP.read_bytes()})
        request = control_pb2.StartRunRequest(
            fab=fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {})),
            override_config=user_config_to_proto({"job": folder.name}),
        )
        with controlling(self.access) as control:
            try:
                run = control.StartRun(request).run_id
            except httpx.HTTPStatusError as error:
                why = " ".join(error.response.text.split())[:300]
                raise InputError(f"Flower did not take the run: {why}") from error
        (folder / "flower-run").write_text(str(run), encoding="utf-8")
        home, token = self.federation.file("flower"), programs.token_of(self.access, run)
        arguments = map(str, (os.getpid(), self.federation.folder, *LOADED))
        command = [sys.executable, "-P", "-m", "fedcluster_app.transports.flower._app", *arguments]
        env = programs.environment(home)
        env |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        log, told = folder / "process.log", b"\n".join([token.encode(), self.access.secret])
        self.close()
        process = ManagedProcess.running("the process of the run", command, log, env, told)
        self._process.enter_context(process)

    def stop(self, folder: Path) -> None:
        """Let Flower stop a run, if it is active."""
        with suppress(SiteError, OSError, ValueError), controlling(self.access) as control:
            control.StopRun(control_pb2.StopRunRequest(run_id=_run_id(folder)))

    def end(self, folder: Path) -> str | None:
        """Return why Flower has ended a run, None if it has not.

        Raises
        ------
        SiteError
            If Flower's SuperLink does not answer.
        """
        run = _run_id(folder)
        with controlling(self.access) as control:
            status = control.ListRuns(control_pb2.ListRunsRequest(run_id=run)).run_dict[run].status
        return (status.details or status.sub_status) if status.status == "finished" else None

    def sites_online(self) -> list[str]:
        """Return the names of the sites that are connected.

        Raises
        ------
        SiteError
            If Flower's SuperLink does not answer.
        """
        with controlling(self.access) as control:
            nodes = control.ListNodes(control_pb2.ListNodesRequest()).nodes_info
        known = known_nodes(self.federation.file("flower"))
        names = {node: site for site, own in known.items() for node in own}
        online = {n.node_id for n in nodes if n.status == "online"}
        return sorted({names.get(node, str(node)) for node in online})


def _run_id(folder: Path) -> int:
    return int((folder / "flower-run").read_text("utf-8"))
