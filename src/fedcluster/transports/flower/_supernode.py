"""A site's end of Flower: its SuperNode holds the connection; questions are answered here.

They are answered by the package that is installed at the site: the code of an app that a
coordinator sends is not run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flwr.clientapp import ClientApp
from flwr.common.constant import SubStatus
from flwr.supercore.constant import TaskType
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedcluster._site import SiteFile
from fedcluster.errors import InputError
from fedcluster.federation._certificates import issue
from fedcluster.federation._identity import IDENTITY, PEERS
from fedcluster.federation._membership import Membership
from fedcluster.federation._private import check_private, private_files
from fedcluster.federation._reloading import ReloadingSite
from fedcluster.transports.flower import _launcher as launcher
from fedcluster.transports.flower import _programs as programs
from fedcluster.transports.flower._launcher import SECRET_FILE
from fedcluster.transports.flower._programs import Access, ManagedProcess
from fedcluster.transports.flower._transport import client_app

LOGGER = logging.getLogger(__name__)

FORGOTTEN = 75.0
"""Seconds after which Flower has noticed that a SuperNode was killed."""

POLL = 0.1
"""Seconds between two looks for what a program prints."""

TRIES = 1
"""How often a SuperNode is asked: it is on this machine, and whether it runs we see."""

HERE = "127.0.0.1"
"""Where the SuperNode listens for this process."""


@private_files()
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
    own = (membership.certificate, "coordinator.pub", "flower", PEERS)
    check_private(
        [folder, path, *(folder / name for name in own if name)],
        secret=[folder / (membership.key or "key"), folder / "permit.key", folder / IDENTITY],
    )
    launcher.hasten()
    home = folder / "flower"
    responder = ReloadingSite(path, say)
    _wait_for_coordinator(site.name, membership, folder, say)
    with programs.private_folder(home) as private:
        certify(private)
        while True:
            address = f"{HERE}:{programs.free_port()}"
            access = Access(address, private / "ca.crt", programs.secret_in(private))
            options = supernode_options(membership, folder, access, private)
            with connected(membership, options, home, say) as supernode:
                say(f"site {site.name}: connected; Ctrl-C ends it")
                answer(supernode, access, responder)
                say(
                    f"site {site.name}: connecting again, as Flower's program has ended: "
                    f"{supernode.complaint()}"
                )
            time.sleep(1)


def certify(private: Path) -> None:
    """Write a certificate by which this process knows the SuperNode that it starts.

    As soon as that ends, another program of this machine may listen at its port.
    """
    public, secret = issue(HERE, ())
    for name, content in (public | secret).items():
        (private / Path(name).name).write_bytes(content)


def supernode_options(
    membership: Membership, folder: Path, access: Access, private: Path
) -> list[str]:
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
        *("--host", HERE, "--port", access.address.rpartition(":")[2]),
        *("--isolation", "process"),
        *("--ssl-ca-certfile", str(private / "ca.crt")),
        *("--ssl-certfile", str(private / "server.crt")),
        *("--ssl-keyfile", str(private / "server.key")),
        *(SECRET_FILE, str(private / "secret")),
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


def answer(supernode: ManagedProcess, access: Access, responder: ReloadingSite) -> None:
    """Take the questions from the SuperNode while it runs, and answer them in turn.

    Each is fetched by a thread of its own: Flower may announce one that never comes, because its
    run was broken off meanwhile.
    """
    app = client_app(lambda _context: responder)
    for token in programs.tokens(supernode, access, TaskType.CLIENT_APP):
        threading.Thread(target=answer_one, args=(access, token, app), daemon=True).start()


def answer_one(access: Access, token: str, app: ClientApp) -> None:
    """Answer one question, and tell the SuperNode meanwhile that it is being worked on."""
    try:
        with programs.task(access, token, TRIES) as runtime:
            message, context, _, _ = pull_task_input(runtime)
            push_message(runtime, app(message, context), context)
            push_task_output(runtime, context, SubStatus.COMPLETED, "")
    except Exception as error:
        LOGGER.warning("a question was lost, its run may have ended: %s", type(error).__name__)
