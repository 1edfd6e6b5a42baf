"""The coordinator's end of FLARE: a controller that carries out a run, and who is let in."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from socket import create_server as create_listener
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.drivers.aio_context import AioContext
from nvflare.fuel.f3.drivers.driver_params import DriverParams

from fedcluster.core.files import write_json
from fedcluster.errors import InputError, SiteError
from fedcluster_app.coordinator import certificates as pki
from fedcluster_app.coordinator.door import Door
from fedcluster_app.coordinator.folder import CANCEL, Federation
from fedcluster_app.coordinator.lifecycle import state_of
from fedcluster_app.coordinator.run_job import engine_of, run_in_folder
from fedcluster_app.coordinator.runs import find_run, still_asked
from fedcluster_app.records import record_or
from fedcluster_app.transports.flare.locks import TOPIC, USED, check_locks, place_of
from fedcluster_app.trust.owned_files import end_with, private_files
from fedcluster_app.wire.exchange import NoReplyError, ThreadedCarrier
from fedcluster_app.wire.remote import RemoteEngine

RECHECK = 0.25
"""Seconds between two questions to a site that is not connected."""

ABORTED = "FLARE aborted the job of the run: "
BLAMED = r"(?:job {0} due to reported failure from |job_id='{0}'; client_name=')([\w-]+)"
"""Pattern of FLARE's log: the site whose process of a job failed, or has gone."""

GONE = {ReturnCode.COMMUNICATION_ERROR, ReturnCode.TOPIC_UNKNOWN, ReturnCode.ERROR}
GONE |= {"SERVICE_UNAVAILABLE", "service_unavailable"}
"""FLARE's message when a message has not reached a site's program."""


def listen_behind_door() -> None:
    """Let FLARE's server, which this process becomes, accept its sites behind a door."""
    loop = AioContext.get_global_context().get_event_loop()

    async def create_server(protocol: Any, host: str, port: Any, **how: Any) -> Door:
        door = Door(lambda _: protocol(), how["ssl"])
        door.open(create_listener((host, int(port)), backlog=how["backlog"]))
        return door

    vars(loop)["create_server"] = create_server


class Admission(FLComponent):
    """Component of FLARE's server that lets in sites by the keys of their kits, as in ``keys``.

    FLARE lets in every kit that its authority signed. This is asked, in place of what compares the
    names of a connection and its certificate, which it asks first; and it closes connections whose
    key counts no more. A removed site stays for the runs that ask it.
    """

    again = 0.5  # seconds between two looks at the folder

    def __init__(self) -> None:
        super().__init__()
        self._server: Any = None
        self._manager: Any = None
        self._names: Any = None
        self._kit, self._home = Path(), Path()
        self._seen, self._leaving = "", False
        self._sites: dict[str, str] = {}
        self._here: dict[str, tuple[str, str]] = {}
        self._used: dict[str, str] = {}

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Begin when FLARE's server does, with those who have connected meanwhile."""
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            engine = fl_ctx.get_engine()
            self._server, self._kit = engine.server, Path(engine.get_workspace().get_root_dir())
            self._home = place_of(self._kit, "server")
            self._used = record_or(self._kit / USED, dict[str, str], {})
            self._manager = self._server.cell.core_cell.communicator.conn_manager
            self._names, self._manager.identity_resolver = self._manager.identity_resolver, self
            self._look_again()
            for name, early in [*self._manager.sfm_conns.items()]:
                if early.sfm_endpoint is not None:
                    own = str(early.conn.get_conn_properties().get(DriverParams.PEER_CN.value))
                    try:
                        self.require_match(
                            early.sfm_endpoint.endpoint.name, own, f"connection {name}"
                        )
                    except ValueError:
                        early.conn.close()
            threading.Thread(target=self._watch, name="admission", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(self.again)
            self._look_again()

    def _look_again(self) -> None:
        try:
            self.look()
        except (InputError, OSError) as error:
            self.logger.warning("the sites' keys stay as they are: %s", error)

    def look(self) -> None:
        """Read which keys count, and close the connections of others."""
        if (seen := state_of(self._home)) != self._seen or self._leaving:
            federation = Federation.load(self._home)
            keys = pki.accepted_keys(self._home, federation.sites)
            sites = {pki.key_digest(key): site for site, own in keys.items() for key in own}
            leaving = still_asked(federation)
            self._sites, self._seen, self._leaving = leaving | sites, seen, bool(leaving)
        for name, (site, digest) in [*self._here.items()]:
            here, counts = self._manager.sfm_conns.get(name), self._sites.get(digest) == site
            if here is None or not counts:
                self._here.pop(name, None)
            if here is not None and not counts:
                self.logger.info("%s is let in no more", site)
                here.conn.close()
                for token, client in [*self._server.client_manager.get_clients().items()]:
                    if client.name == site:
                        self._server.logout_client(token)

    def require_match(self, endpoint: str, name: str, about: str) -> None:
        """Refuse a connection whose certificate is of another name, or has a key that counts not.

        Raises
        ------
        ValueError
            With the reason, for FLARE's log.
        """
        self._names.require_match(endpoint, name, about)
        if endpoint.partition(".")[0] == FQCN.ROOT_SERVER or "@" in name:  # FLARE's own, or persons
            return
        known = about.removeprefix("connection ")
        shown = self._manager.sfm_conns[known].conn.websocket.get_extra_info("ssl_object")
        digest = pki.certified_digest(shown.getpeercert(True))
        self._look_again()
        if self._sites.get(digest) != name:
            past = pki.former_keys(self._home).get(digest)
            why = f"was {past.why} on {past.at}" if past else "is not known here"
            raise ValueError(f"the key of this kit of {name} {why}")
        self._here[known] = name, digest
        if digest not in self._used:
            still = {each: site for each, site in self._used.items() if each in self._sites}
            self._used = {**still, digest: name}
            write_json(self._kit / USED, self._used)


class FlareCaller:
    """Function that asks one site on FLARE's auxiliary channel; see `fedcluster_app.wire.exchange`.

    Parameters
    ----------
    engine : ServerEngineSpec
        FLARE's engine in the process of a job.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __call__(self, site: str, message: bytes, seconds: float) -> bytes:
        """Return the reply of a site."""
        with self._engine.new_context() as fl_ctx:
            replies = self._engine.send_aux_request(
                targets=[site],
                topic=TOPIC,
                request=Shareable({"question": message}),
                timeout=seconds,
                fl_ctx=fl_ctx,
                optional=True,
            )
        reply = (replies or {}).get(site)
        if reply is None:
            raise NoReplyError("not connected", gone=True)
        code = reply.get_return_code()
        if code == ReturnCode.TIMEOUT:
            raise TimeoutError
        if code in GONE:
            raise NoReplyError("not connected", gone=True)
        if code != ReturnCode.OK:  # FLARE's return code, without the error message of the site
            raise NoReplyError(f"FLARE says {code}")
        content = reply.get("reply")
        return content if isinstance(content, bytes) else b""


class RunController(Controller):
    """Controller that carries out a run.

    A FLARE job only names the run: what it does is in its ``job.json``, in the federation's folder
    on this machine. Records are kept there too, so that a run that is submitted again continues,
    in any job of FLARE.

    Parameters
    ----------
    run : str
        The name of the run.
    """

    def __init__(self, run: str) -> None:
        super().__init__()
        self._run = run
        self._federation: Federation | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        """End with FLARE's server from now on; raise an error for a kit that lacks a lock."""
        end_with(os.getppid())
        kit = Path(fl_ctx.get_engine().get_workspace().get_root_dir())
        try:
            check_locks(kit)
            self._federation = Federation.load(place_of(kit, "server"))
        except InputError as error:
            self.system_panic(str(error), fl_ctx)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Carry out the run; one that has ended, as its job was submitted twice, is left alone."""
        if self._federation is None:
            return
        folder = find_run(self._federation, self._run)
        if folder is None:
            self.log_error(fl_ctx, "the job names a run that the federation does not have")
            return
        engine, job = fl_ctx.get_engine(), str(fl_ctx.get_job_id())
        log = Path(engine.get_workspace().get_root_dir()) / "log.txt"
        error = run_job(FlareCaller(engine), folder, abort_signal, lambda: blamed(log, job))
        self.log_info(fl_ctx, f"run {folder.name}: {error or 'done'}")

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: Any
    ) -> None:
        """Ignore the result of a task, as there are no tasks."""


def blamed(log: Path, job: str) -> str:
    """Return at which site the process of a job failed, nothing if FLARE's log does not say."""
    told = log.read_text("utf-8", errors="replace") if log.exists() else ""
    known = re.search(BLAMED.format(job), told)
    return f"its process at {known[1]} failed or was killed" if known else ""


def run_job(caller: FlareCaller, folder: Path, abort_signal: Signal, why: Callable[[], str]) -> str:
    """Run the job in a folder; return its error, if any. ``why``: why FLARE has aborted it."""

    def cancelled() -> bool:
        asked_for = (folder / CANCEL).exists()
        if abort_signal.triggered and not asked_for:
            raise SiteError(ABORTED + (why() or "in its console, or as its log says"))
        return asked_for

    def connect(content: Mapping[str, Any]) -> RemoteEngine:
        sites, carrier = content["sites"], ThreadedCarrier(caller, content["sites"])
        # Seconds that the first exchange waits for sites, whose programs start at different times.
        how = {"grace": min(30.0, content["deadline"]), "recheck": RECHECK}
        return engine_of(carrier, sites, content, folder, cancelled, **how)

    with private_files():
        return run_in_folder(connect, folder)
