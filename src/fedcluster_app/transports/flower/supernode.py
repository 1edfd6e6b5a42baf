"""A site's end of Flower: its SuperNode holds the connection; questions are answered here.

They are answered by the installed package: code in an app that a coordinator sends is not run.
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)
from flwr.clientapp import ClientApp
from flwr.common.constant import SubStatus
from flwr.supercore.constant import TaskType
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedcluster.errors import InputError
from fedcluster_app.coordinator.certificates import NEXT_KEY, file_state, issue
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership
from fedcluster_app.transports.flower import _launcher as launcher
from fedcluster_app.transports.flower import _programs as programs
from fedcluster_app.transports.flower._launcher import SECRET_FILE
from fedcluster_app.transports.flower._programs import Access, ManagedProcess, ends_soon
from fedcluster_app.transports.flower._transport import client_app
from fedcluster_app.transports.reloading import ReloadingSite, check_files
from fedcluster_app.trust.owned_files import private_files, running
from fedcluster_app.trust.site_state import state_folder

KNOWN, UNKNOWN, CLOCK = "known", "unknown", launcher.CLOCK.decode()

TAKEN_BACK = 78
"""Exit status of a site whose key does not count any more, so that nobody starts it again."""

LOGGER = logging.getLogger(__name__)

FORGOTTEN = 75.0
"""Seconds after which Flower has noticed that a SuperNode was killed."""


HERE = "127.0.0.1"
"""Address at which the SuperNode listens for this process."""


@private_files()
def take_part(
    path: Path,
    say: Callable[[str], None],
    prepare: Callable[[Callable[[str], None]], None] | None = None,
) -> None:
    """Answer the questions of a federation until interrupted.

    Parameters
    ----------
    path : Path
        The site file.
    say : callable taking a str
        Called with one line for each event.
    prepare : callable, optional
        Called with ``say`` after all checks, before the site connects.

    Raises
    ------
    InputError
        If the site file is invalid, the rows cannot be read, or the coordinator refuses the site.
    """
    site = SiteFile.load(path)
    membership = Membership.from_site_file(site)
    folder = path.absolute().parent
    check_files(path, membership)
    launcher.hasten()
    with running(folder, "program of this site"), programs.private_folder(home_of(path)) as private:
        responder = ReloadingSite(path, say)
        if prepare is not None:
            prepare(say)
        _wait_for_coordinator(site.name, membership, folder, say)
        certify(private)
        while True:
            check_files(path, membership)
            credentials = Credentials(membership, folder)
            credentials.take_new_key()
            address = f"{HERE}:{programs.free_port()}"
            access = Access(address, private / "ca.crt", (private / "secret").read_bytes())
            options = supernode_options(membership, folder, access, private)
            with connected(membership, options, folder, say) as supernode:
                say(f"site {site.name}: connected; Ctrl-C ends it")
                with credentials.followed(supernode):
                    answer(supernode, access, responder)
                say(f"site {site.name}: connecting again, {credentials.why_again(supernode)}")
            time.sleep(1)


def home_of(path: Path) -> Path:
    """Return the folder of Flower's files of a site."""
    return state_folder(path.absolute().parent) / "flower"


def certify(private: Path) -> None:
    """Write a certificate by which this process recognises its SuperNode.

    When the SuperNode ends, another local program may listen at its port.
    """
    public, secret = issue([HERE], ())
    for name, content in (public | secret).items():
        if name != "certificates/ca.key":  # nothing else is signed by this authority
            (private / Path(name).name).write_bytes(content)


def supernode_options(
    membership: Membership, folder: Path, access: Access, private: Path
) -> list[str]:
    """Return the options of Flower's SuperNode."""
    trust = ["--insecure"]
    if not membership.insecure:
        trust = [
            *("--root-certificates", str(membership.authority(folder))),
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
    """Wait until somebody answers; raise an error if it is not the coordinator."""
    authority = membership.authority(folder)
    say(f"site {name}: connecting to {membership.coordinator}")
    if not programs.is_healthy(membership.coordinator, authority):
        say(f"site {name}: nobody answers at {membership.coordinator} yet; waiting")
        while not programs.is_healthy(membership.coordinator, authority):
            time.sleep(1)
    if authority is not None and (notice := ends_soon(membership.coordinator)):
        say(f"site {name}: {notice}")


@contextmanager
def connected(
    membership: Membership, options: Sequence[str], folder: Path, say: Callable[[str], None]
) -> Iterator[ManagedProcess]:
    """Start a SuperNode and wait until it is connected to the coordinator.

    Flower refuses a key that is connected already, and a killed SuperNode counts as connected until
    its heartbeat has been missing for a while. So a site that was connected before keeps trying.
    """
    home, waits = state_folder(folder) / "flower", False
    mark, credentials = home / "connected", Credentials(membership, folder)
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
            refused = programs.REFUSED in supernode.printed()
            how = credentials.key_status() if refused else ""
            if not refused or how not in {"", KNOWN} or began > end:
                why = _why_refused(supernode, membership, how, before=mark.exists())
                raise _not_let_in(how, why)
        if not waits:
            say("the site's earlier program still counts as connected; waiting")
        waits = True
        time.sleep(1)


def _connects(supernode: ManagedProcess) -> bool:
    """Wait until a SuperNode is connected; return False if it ends before."""
    while True:
        ended = not supernode.runs
        if programs.CONNECTED in supernode.printed():
            return True
        if ended:
            return False
        time.sleep(0.1)  # Seconds between two checks of a program's output.


def _why_refused(
    supernode: ManagedProcess, membership: Membership, how: str, *, before: bool
) -> str:
    """Return why a SuperNode ended before it was connected."""
    printed, where = supernode.printed(), f"see {supernode.log}"
    if why := why_not_let_in(how):
        pass
    elif programs.REFUSED in printed and before:
        why = "another program with this site's key is connected, or the key is not known any more"
    elif programs.REFUSED in printed:
        why = "the coordinator does not know this site's key; ask for the site's folder anew"
    elif programs.UNSIGNED in printed:
        why = (
            "the coordinator refuses this site's signature; set the clocks of both machines, of "
            "which this one may be 5 s fast or 5 minutes slow, and no more"
        )
    else:
        why = supernode.complaint()
    return f"the connection to {membership.coordinator} failed: {why}; {where}"


class Credentials:
    """Files by which a site and its coordinator authenticate each other; they may change.

    Parameters
    ----------
    membership : Membership
        The membership from the site file.
    folder : Path
        The folder of the site file.
    """

    interval = 1.0  # seconds between two checks for a changed key of the site
    ask = 10.0  # seconds between two checks whether the coordinator knows the waiting key

    def __init__(self, membership: Membership, folder: Path) -> None:
        self._coordinator, self._insecure = membership.coordinator, membership.insecure
        self._key = folder / (membership.key or "key")
        self._next = state_folder(folder) / NEXT_KEY
        self._authority = membership.authority(folder)
        self._changed = False

    def key_status(self, key: Path | None = None) -> str:
        """Return the coordinator's status of the site's key, or of another one."""
        key = key or self._key
        return "" if self._insecure else key_status(self._coordinator, self._authority, key)

    def take_new_key(self) -> None:
        """Replace the site's key by the waiting one, if the coordinator knows it."""
        if self._next.exists() and self.key_status(self._next) == KNOWN:
            self._next.replace(self._key)

    @contextmanager
    def followed(self, supernode: ManagedProcess) -> Iterator[None]:
        """End a SuperNode as soon as its files have changed, within the block."""
        ended = threading.Event()
        if not self._insecure:
            threading.Thread(target=self._follow, args=[supernode, ended], daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def _follow(self, supernode: ManagedProcess, ended: threading.Event) -> None:
        used = before = self._state()
        asked = 0.0
        while not ended.wait(self.interval):
            if time.monotonic() - asked > self.ask:
                self.take_new_key()
                asked = time.monotonic()
            now = self._state()
            if now == before != used and None not in now:  # the files are complete
                self._changed = True
                supernode.process.terminate()
                return
            before = now

    def _state(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(map(file_state, filter(None, (self._key, self._authority))))

    def why_again(self, supernode: ManagedProcess) -> str:
        """Return why the site has to connect again.

        Raises
        ------
        InputError
            If the coordinator no longer accepts its key.
        """
        if self._changed:
            return "as its key, or who vouches for the coordinator, is another"
        how = self.key_status()
        if how not in {"", KNOWN, UNKNOWN} and not how.startswith(CLOCK):
            raise _not_let_in(how, f"{self._coordinator} has ended it: {why_not_let_in(how)}")
        return f"as Flower's program has ended: {supernode.complaint()}"


def answer(supernode: ManagedProcess, access: Access, responder: ReloadingSite) -> None:
    """Fetch the questions from the SuperNode while it runs, and answer them in turn.

    Each is fetched by a separate thread, because Flower may announce a question that never arrives
    if its run was interrupted.
    """
    app = client_app(lambda _context: responder)
    for token in programs.tokens(supernode, access, TaskType.CLIENT_APP):
        threading.Thread(target=answer_one, args=(access, token, app), daemon=True).start()


def answer_one(access: Access, token: str, app: ClientApp) -> None:
    """Answer one question, telling the SuperNode meanwhile that it is being worked on."""
    try:
        # Number of attempts to ask a SuperNode, which is local and known to run.
        with programs.task(access, token, 1) as runtime:
            message, context, _, _ = pull_task_input(runtime)
            push_message(runtime, app(message, context), context)
            push_task_output(runtime, context, SubStatus.COMPLETED, "")
    except Exception as error:
        LOGGER.warning("a question was lost, its run may have ended: %s", type(error).__name__)


def key_status(address: str, authority: Path | None, key: Path) -> str:
    """Return the status of a key: known, unknown, or why and since when it is invalid.

    Parameters
    ----------
    address : str
        HOST:PORT of the coordinator.
    authority : Path, optional
        The certificate of the authority that must vouch for it.
    key : Path
        The file of the private key.

    Returns
    -------
    str
        The status; empty if the coordinator does not answer.
    """
    return _told_of(address, authority, key).get("status", "")


def told_by_coordinator(path: Path) -> dict[str, str]:
    """Return what the coordinator says to the owner of a site's key: ``status`` and ``version``.

    Parameters
    ----------
    path : Path
        The site file.
    """
    try:
        membership, folder = Membership.from_site_file(SiteFile.load(path)), path.absolute().parent
        authority = membership.authority(folder)
    except InputError:
        return {}
    if membership.insecure or not membership.key:
        return {}
    return _told_of(membership.coordinator, authority, folder / membership.key)


def _told_of(address: str, authority: Path | None, key: Path) -> dict[str, str]:
    try:
        private = load_ssh_private_key(key.read_bytes(), None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            return {}
        reply = programs.get(address, launcher.KEY_STATUS, authority, headers=_signed(private))
    except (OSError, ValueError, InputError, httpx.TransportError):
        return {}
    if reply.status_code != 200:
        return {}
    said = {"status": reply.text[:100], "version": reply.headers.get(launcher.VERSION, "")[:100]}
    return {key: text for key, text in said.items() if text.isascii() and text.isprintable()}


def _signed(key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """Return the headers that prove ownership of a key."""
    now = f"{time.time():.0f}"
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    signature = key.sign((launcher.KEY_STATUS + now).encode(), ec.ECDSA(SHA256()))
    values = (base64.b64encode(der).decode(), now, base64.b64encode(signature).decode())
    return dict(zip(launcher.SIGNED, values, strict=True))


def _not_let_in(status: str, why: str) -> InputError:
    """Return an error whose exit status tells a site whose key was taken back from others."""
    error = InputError(why)
    if status.startswith(("revoked", "replaced", "removed")):
        error.status = TAKEN_BACK
    return error


def why_not_let_in(status: str) -> str:
    """Return the message for a key that was refused.

    Examples
    --------
    >>> why_not_let_in("revoked on 2026-11-22T20:00:00+00:00")
    "this site's key was revoked on 2026-11-22T20:00:00+00:00; ask the coordinator for a new one"
    """
    if status == KNOWN:
        return (
            "another program with this site's key is connected: its folder was copied, or is in "
            "use twice; end one of them, or ask the coordinator for a new key"
        )
    if status.startswith(("revoked", "replaced")):
        return f"this site's key was {status}; ask the coordinator for a new one"
    if status.startswith("removed"):
        return f"the coordinator has this site {status}"
    if status.startswith(CLOCK):
        return f"this site's key was {status} at the coordinator: set the clock that is wrong"
    if status == UNKNOWN:
        return "the coordinator does not know this site's key; ask for the site's folder anew"
    return ""
