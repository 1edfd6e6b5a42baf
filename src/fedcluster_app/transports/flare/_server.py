"""The coordinator's end of FLARE: an installed controller that carries out a run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedcluster.errors import InputError, SiteError
from fedcluster_app.coordinator.folder import CANCEL, Federation
from fedcluster_app.coordinator.run_job import engine_over, run_in_folder, terms_of
from fedcluster_app.coordinator.runs import find_run
from fedcluster_app.transports.flare.locks import TOPIC, check_locks, place_of
from fedcluster_app.trust.owned_files import end_with, private_files
from fedcluster_app.wire.exchange import NoReplyError, RetryingTransport, ThreadedCarrier
from fedcluster_app.wire.recorder import PROGRESS, note
from fedcluster_app.wire.remote import RemoteEngine

RECHECK = 0.25
"""Seconds between two questions to a site that is not connected."""

ABORTED = "FLARE aborted the job of the run: "
BLAMED = r"(?:job {0} due to reported failure from |job_id='{0}'; client_name=')([\w-]+)"
"""Pattern of FLARE's log: the site whose process of a job failed, or has gone."""

GONE = {
    ReturnCode.COMMUNICATION_ERROR,
    ReturnCode.TOPIC_UNKNOWN,
    ReturnCode.ERROR,
    "SERVICE_UNAVAILABLE",
    "service_unavailable",
}
"""FLARE's message when a message has not reached a site's program."""


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


def flare_engine(
    caller: Callable[[str, bytes, float], bytes],
    content: Mapping[str, Any],
    cancelled: Callable[[], bool],
    responded: Callable[[str], None],
) -> RemoteEngine:
    """Return the engine that asks the sites of a job, as specified in ``job.json``."""
    sites, deadline = content["sites"], content["deadline"]
    # Seconds that the first exchange waits for sites, whose programs start at different times.
    exchanges = RetryingTransport(
        ThreadedCarrier(caller, sites),
        deadline,
        cancelled,
        responded,
        grace=min(30.0, deadline),
        recheck=RECHECK,
    )
    return engine_over(exchanges, sites, **terms_of(content))


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
        return flare_engine(
            caller, content, cancelled, lambda site: note(folder / PROGRESS, heard=site)
        )

    with private_files():
        return run_in_folder(connect, folder)
