"""A site's end of FLARE: an installed executor that answers questions and takes no arguments."""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from fedcluster.errors import InputError
from fedcluster_app.site.logs import logged
from fedcluster_app.transports.flare.locks import TOPIC
from fedcluster_app.transports.flare.node import flare_responder
from fedcluster_app.transports.reloading import ReloadingSite
from fedcluster_app.trust.owned_files import end_with, private_files, shorten_log
from fedcluster_app.wire.responder import Request, failed

JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Name of a job's folder in a kit."""


class SiteExecutor(Executor):
    """Executor that answers the questions of a run, each once even if it is repeated.

    It has no arguments, so that a job cannot influence it: its rows, and what it may be asked, are
    determined by the site's own files. It carries out no tasks. A site that cannot answer says so,
    and no more, as FLARE may pass it on: its own log says why.
    """

    def __init__(self) -> None:
        super().__init__()
        self._site: ReloadingSite | None = None
        self._reply: Callable[[bytes], bytes] | None = None
        self._logs = ExitStack()  # until the process ends, as rows are labelled after a run
        self._lock = threading.Lock()
        self._working: dict[bytes, Future[bytes]] = {}

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Start answering when the run starts, and stop when it ends."""
        if event_type == EventType.START_RUN:
            end_with(os.getppid())  # without this, FLARE tries to connect forever
            engine, name = fl_ctx.get_engine(), fl_ctx.get_identity_name()
            kit = Path(engine.get_workspace().get_root_dir())
            logger = logging.getLogger(__name__)
            try:
                logger = self._logs.enter_context(
                    logged(kit.parent / "logs" / "site.jsonl", printed=False, site=name)
                )
                with private_files():
                    self._site = flare_responder(kit, name, logger.info)
                self._reply = self._site.reply
                forget_jobs(kit)
            except Exception as error:
                logger.error("%s", error, exc_info=not isinstance(error, InputError))
                self._reply = partial(_failed, name, error)
            engine.register_aux_message_handler(topic=TOPIC, message_handle_func=self.answer)
        elif event_type == EventType.END_RUN and self._site is not None:
            self._site.end("the run has ended")

    def answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the reply to a request, after any request that is being answered."""
        question = request.get("question")
        if not isinstance(question, bytes) or self._reply is None:
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        with self._lock:
            first = question not in self._working
            working = self._working.setdefault(question, Future())
        if first:
            reply = b""
            try:
                reply = self._reply(question)
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


def _failed(site: str, error: Exception, question: bytes) -> bytes:
    return failed(Request.read(question), site, error)


def forget_jobs(kit: Path, kept: int = 10) -> None:
    """Remove the folders that FLARE's client keeps of jobs, except for the newest, and old logs."""
    jobs = [path for path in kit.iterdir() if JOB.fullmatch(path.name)]
    for folder in sorted(jobs, key=lambda path: path.stat().st_mtime)[:-kept]:
        shutil.rmtree(folder, ignore_errors=True)
    shorten_log(kit / "audit.log")
