"""A site's end of Flower: its SuperNode holds the connection; questions are answered here.

They are answered by the package that is installed at the site: the code of an app that a
coordinator sends is not run.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

import httpx
from flwr.clientapp import ClientApp
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedcluster._site import SiteFile
from fedcluster.engines._turns import Turns
from fedcluster.errors import InputError
from fedcluster.federation._membership import Membership, site_responder
from fedcluster.transports.flower import _programs as programs
from fedcluster.transports.flower._programs import ManagedProcess
from fedcluster.transports.flower._transport import client_app

LOGGER = logging.getLogger(__name__)

FORGOTTEN = 75.0
"""Seconds after which Flower has noticed that a SuperNode was killed."""

POLL = 0.1
"""Seconds between two looks for a question, or for what a program prints."""


def take_part(path: Path, say: Callable[[str], None]) -> None:
    """Answer the questions of a federation until interrupted.

    Parameters
    ----------
    path : Path
        The site file.
    say : callable taking a str
        Receives what happens, in one line each.

    Raises
    ------
    InputError
        If the site file is wrong, the rows cannot be read, or the coordinator refuses the site.
    """
    site = SiteFile.load(path)
    membership = Membership.from_site_file(site)
    folder = path.absolute().parent
    responder = site_responder(site, membership, say)
    _wait_for_coordinator(site.name, membership, folder, say)
    secret = secrets.token_bytes(32)
    home = folder / "flower"
    home.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(prefix="secret-", dir=home) as file:  # for this user's eyes only
        file.write(secret)
        file.flush()
        while True:
            port = programs.free_port()
            options = supernode_options(membership, folder, port, Path(file.name))
            with connected(membership, options, home, say) as supernode:
                say(f"site {site.name}: connected; Ctrl-C ends it")
                answer(supernode, port, secret, responder)
                say(
                    f"site {site.name}: connecting again, as Flower's program has ended: "
                    f"{supernode.complaint()}"
                )
            time.sleep(1)


def supernode_options(membership: Membership, folder: Path, port: int, secret: Path) -> list[str]:
    """Return the options of Flower's SuperNode."""
    trust = ["--insecure"]
    if not membership.insecure:
        trust = [
            *("--root-certificates", str(folder / str(membership.certificate))),
            *("--auth-supernode-private-key", str(folder / str(membership.key))),
        ]
    return [
        *trust,
        *("--superlink", membership.coordinator),
        *("--port", str(port)),
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(secret)),
    ]


def _wait_for_coordinator(
    name: str, membership: Membership, folder: Path, say: Callable[[str], None]
) -> None:
    """Wait until somebody answers; complain where it is not the coordinator."""
    authority = None if membership.insecure else folder / str(membership.certificate)
    say(f"site {name}: connecting to {membership.coordinator}")
    if not programs.is_healthy(membership.coordinator, authority):
        say(f"site {name}: nobody answers at {membership.coordinator} yet; waiting")
        while not programs.is_healthy(membership.coordinator, authority):
            time.sleep(1)


@contextmanager
def connected(
    membership: Membership, options: Sequence[str], home: Path, say: Callable[[str], None]
) -> Iterator[ManagedProcess]:
    """Start a SuperNode and wait until it is connected to the coordinator.

    Flower refuses a key that is connected already, and one that was killed counts as connected
    until its heart has not been heard for a while. So a site that was connected once is patient.
    """
    mark, told = home / "connected", False
    end = time.monotonic() + (FORGOTTEN if mark.exists() else 0)
    while True:
        began = time.monotonic()
        with ManagedProcess.running(
            "supernode", options, home / "supernode.log", home
        ) as supernode:
            if _connects(supernode):
                mark.touch()
                yield supernode
                return
            if programs.REFUSED not in supernode.printed() or began > end:
                raise InputError(_why_refused(supernode, membership, before=mark.exists()))
        if not told:
            say("the site's earlier program still counts as connected; waiting")
        told = True
        time.sleep(1)


def _connects(supernode: ManagedProcess) -> bool:
    """Wait until a SuperNode is connected, or return False if it ends before."""
    while True:
        ended = not supernode.runs
        if programs.CONNECTED in supernode.printed():
            return True
        if ended:
            return False
        time.sleep(POLL)


def _why_refused(supernode: ManagedProcess, membership: Membership, *, before: bool) -> str:
    """Return why a SuperNode ended before it was connected, now or ever."""
    said, where = supernode.printed(), f"see {supernode.log}"
    if programs.REFUSED in said and before:
        why = "another program with this site's key is connected, or the key is not known any more"
    elif programs.REFUSED in said:
        why = "the coordinator does not know this site's key; ask for the site's folder anew"
    elif programs.UNSIGNED in said:
        why = (
            "the coordinator refuses this site's signature; set the clocks of both machines, of "
            "which this one may be 5 s fast or 5 minutes slow, and no more"
        )
    else:
        why = supernode.complaint()
    return f"the connection to {membership.coordinator} failed: {why}; {where}"


def answer(supernode: ManagedProcess, port: int, secret: bytes, responder: Turns) -> None:
    """Take the questions from the SuperNode while it runs, and answer them in turn.

    Each is fetched by a thread of its own: Flower may announce one that never comes, because its
    run was broken off meanwhile.
    """
    app = client_app(lambda _context: responder)
    acquire = "/flwr.proto.Runtime/AcquireTask"
    known = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={acquire})
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    address = f"127.0.0.1:{port}"  # within this machine; whether the program runs we see
    runtime = programs.client(RuntimeHttpClient, address, 1, known)
    while supernode.runs:
        try:
            task = runtime.AcquireTask(request)
            if task.HasField("task") and task.token:
                token = RuntimeTokenHttpInterceptor(task.token)
                one = programs.client(RuntimeHttpClient, address, 1, token)
                threading.Thread(target=answer_one, args=(one, app), daemon=True).start()
                continue
        except httpx.HTTPError as error:
            LOGGER.warning("the SuperNode does not answer: %s", error)
        time.sleep(POLL)


def answer_one(runtime: RuntimeHttpClient, app: ClientApp) -> None:
    """Answer one question, and tell the SuperNode meanwhile that it is being worked on."""

    def works() -> bool:
        with suppress(httpx.HTTPError):
            runtime.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    heart = HeartbeatSender(works)
    heart.start()
    try:
        message, context, _, _ = pull_task_input(runtime)
        push_message(runtime, app(message, context), context)
        push_task_output(runtime, context, SubStatus.COMPLETED, "")
    except Exception as error:
        LOGGER.warning("a question was lost, its run may have ended: %s", type(error).__name__)
    finally:
        heart.stop()
        runtime.close()
