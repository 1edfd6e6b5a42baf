"""A site's end of FLARE: an installed executor that answers questions and takes no arguments."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from fedcluster.errors import InputError
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership
from fedcluster_app.transports.flare.locks import TOPIC, check_locks, place_of
from fedcluster_app.transports.reloading import ReloadingSite, check_files
from fedcluster_app.trust.owned_files import end_with, private_files

JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Name of a job's folder in a kit."""

NOT_STARTED = "the site's program did not start; its own log says why"
"""The only reason that FLARE gets for a problem at a site, as it may pass it on."""


class SiteExecutor(Executor):
    """Executor that answers the questions of a run, each once even if it is repeated.

    It has no arguments, so that a job cannot influence it: its rows, and what it may be asked, are
    determined by the site's own files. It carries out no tasks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._site: ReloadingSite | None = None
        self._lock = threading.Lock()
        self._working: dict[bytes, Future[bytes]] = {}

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Start answering when the run starts, and stop when it ends."""
        if event_type == EventType.START_RUN:
            end_with(os.getppid())  # without this, FLARE tries to connect forever
            try:
                self._start(fl_ctx)
            except Exception as error:
                known = isinstance(error, InputError)
                self.logger.error("%s", error, exc_info=not known)
                self.system_panic(NOT_STARTED, fl_ctx)
        elif event_type == EventType.END_RUN and self._site is not None:
            self._site.end("the run has ended")

    def _start(self, fl_ctx: FLContext) -> None:
        engine = fl_ctx.get_engine()
        kit = Path(engine.get_workspace().get_root_dir())
        with private_files():
            self._site = flare_responder(kit, fl_ctx.get_identity_name(), self.logger.info)
        forget_jobs(kit)
        engine.register_aux_message_handler(topic=TOPIC, message_handle_func=self.answer)

    def answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the reply to a request, after any request that is being answered."""
        question = request.get("question")
        if not isinstance(question, bytes) or self._site is None:
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        with self._lock:
            first = question not in self._working
            working = self._working.setdefault(question, Future())
        if first:
            reply = b""
            try:
                reply = self._site.reply(question)
            finally:
                with self._lock:
                    del self._working[question]
                working.set_result(reply)
        return Shareable({"reply": working.result()})

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Refuse a task, as questions come by another channel."""
        return make_reply(ReturnCode.TASK_UNSUPPORTED)


def forget_jobs(kit: Path, kept: int = 10) -> None:
    """Remove the folders that FLARE's client keeps of jobs, except for the newest."""
    jobs = [path for path in kit.iterdir() if JOB.fullmatch(path.name)]
    for folder in sorted(jobs, key=lambda path: path.stat().st_mtime)[:-kept]:
        shutil.rmtree(folder, ignore_errors=True)


def flare_responder(kit: Path, identity: str, say: Callable[[str], None]) -> ReloadingSite:
    """Return a responder for the site of a kit.

    Parameters
    ----------
    kit : Path
        The kit.
    identity : str
        FLARE's name of the site, from its certificate.
    say : callable taking a str
        Called with one line for each event.

    Raises
    ------
    InputError
        If the kit lacks a lock, the site file is invalid or belongs to another site, others may
        read its keys, or the rows cannot be read.
    """
    check_locks(kit)
    path = place_of(kit, "site")
    site = SiteFile.load(path)
    if site.name != identity:
        raise InputError(
            f"{path} is of site {site.name!r}, and FLARE knows this one as {identity!r}"
        )
    check_files(path, Membership.from_site_file(site))
    return ReloadingSite(path, say)
