"""A site's end of Flower: one of its nodes, whose questions are answered in this process.

Flower's own program for a node, the SuperNode, would only pass the messages on. Code in an app that
a coordinator sends is neither fetched nor run.
"""

from __future__ import annotations

import base64
import logging
import platform
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.common.serde import message_to_proto
from flwr.proto import fleet_pb2
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node as NodeNumber
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedcluster.core.files import write_json
from fedcluster.errors import InputError, first_cause
from fedcluster_app.coordinator.certificates import NEXT_KEY, file_state
from fedcluster_app.records import record_or
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership
from fedcluster_app.transports.flower import _launcher as launcher
from fedcluster_app.transports.flower import _programs as programs
from fedcluster_app.transports.flower._programs import ends_soon
from fedcluster_app.transports.flower._transport import replied
from fedcluster_app.transports.reloading import ReloadingSite, check_files
from fedcluster_app.trust.findings import distrusted, unanswered
from fedcluster_app.trust.owned_files import private_files, repeated, running
from fedcluster_app.trust.site_state import state_folder

KNOWN, UNKNOWN, NOT_TOLD = "known", "unknown", "not told"
CLOCK = launcher.CLOCK.decode()

TAKEN_BACK = 78
"""Exit status of a site whose key does not count any more, so that nobody starts it again."""

LOGGER = logging.getLogger(__name__)

FORGOTTEN = 75.0
"""Seconds after which Flower has noticed that a node was killed."""


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
    with running(folder, "program of this site"):
        responder = ReloadingSite(path, say)
        if prepare is not None:
            prepare(say)
        _wait_for_coordinator(site.name, Credentials(membership, folder), say)
        while True:
            check_files(path, membership)
            credentials = Credentials(membership, folder)
            credentials.take_new_key()
            with connected(membership, folder, say) as node:
                say(f"site {site.name}: connected; Ctrl-C ends it")
                with credentials.followed(node):
                    node.answer(responder)
                credentials.check()
                say(f"site {site.name}: connecting again, as {node.why_ended}")
            time.sleep(1)


def _wait_for_coordinator(name: str, own: Credentials, say: Callable[[str], None]) -> None:
    """Wait until somebody answers; raise an error if it is not the coordinator."""
    say(f"site {name}: connecting to {own.coordinator}")
    if not programs.is_healthy(own.coordinator, own.authority):
        say(f"site {name}: nobody answers at {own.coordinator} yet; waiting")
        while not programs.is_healthy(own.coordinator, own.authority):
            time.sleep(1)
    if notice := ends_soon(own.coordinator):
        say(f"site {name}: {notice}")


class Node:
    """One of the nodes of a coordinator's SuperLink: fetches questions and sends the replies.

    Parameters
    ----------
    client : FleetHttpClient
        The client of the SuperLink's interface for sites, with the key of the site.
    number : int
        Flower's number of the node.
    """

    quick, idle = 0.1, 3.0
    """Seconds between two requests for a question: while there are some, and after a long time
    without."""
    leave = 3.0
    """Seconds that a site takes at most to tell the coordinator that it goes."""

    def __init__(self, client: FleetHttpClient, number: int) -> None:
        self._client, self._number = client, NodeNumber(node_id=number)
        self._wakes, self._ended, self.why_ended = threading.Event(), threading.Event(), ""
        self._without = 0.0  # seconds since the last question
        self._retry = RetryInvoker(
            partial(exponential, max_delay=20),
            (httpx.TransportError, httpx.HTTPStatusError),
            None,
            None,
            should_giveup=self._is_final,
            wait_function=self._wait_for_end,
        )

    @property
    def has_ended(self) -> bool:
        """Return whether the node fetches no questions any more."""
        return self._ended.is_set()

    def _wait_for_end(self, seconds: float) -> None:
        self._ended.wait(seconds)

    def _rest(self) -> None:
        """Wait before the next request, up to a tenth of the time without a question."""
        seconds = min(max(self.quick, self._without / 10), self.idle)
        self._without += seconds
        self._wakes.wait(seconds)
        self._wakes.clear()

    def end(self, why: str) -> None:
        """Let `answer` return."""
        self.why_ended = self.why_ended or why
        self._ended.set()
        self._wakes.set()

    def answer(self, responder: ReloadingSite) -> None:
        """Answer questions until the coordinator refuses the node, or `end` is called.

        Each is fetched and answered by a separate thread, because Flower may announce a question
        that never arrives if its run was interrupted.
        """
        heart = HeartbeatSender(self._lives)
        heart.start()
        try:
            while not self.has_ended:
                for run, tree in self._pulled():
                    self._without = 0.0
                    how = (run, tree, responder)
                    threading.Thread(target=self._answer, args=how, daemon=True).start()
                self._rest()
        finally:
            self.end("this program ends")
            if heart.is_running:
                heart.stop()

    def _pulled(self) -> list[tuple[int, ObjectTree]]:
        """Return the questions that wait, by their run."""
        try:
            request = fleet_pb2.PullMessagesRequest(node=self._number)
            pulled = self._retry.invoke(self._client.PullMessages, request)
        except httpx.HTTPError as error:
            if not self.has_ended:  # the reason is said where it ends
                LOGGER.warning("no question can be fetched: %s", str(error).partition("\n")[0])
            return []
        runs = [message.metadata.run_id for message in pulled.messages_list]
        return list(zip(runs, pulled.message_object_trees, strict=True))

    def _is_final(self, error: Exception) -> bool:
        """Return whether a request is not repeated; the reason may end the connection."""
        if isinstance(error, httpx.HTTPStatusError):
            status = error.response.status_code
            if status == httpx.codes.UNAUTHORIZED:
                self.end("the coordinator does not accept its key any more")
            return self.has_ended or status < httpx.codes.BAD_GATEWAY
        if isinstance(cause := first_cause(error), ssl.SSLError):
            self.end(f"the coordinator's certificate is not trusted: {cause}")
        return self.has_ended

    def _lives(self) -> bool:
        """Tell the SuperLink that this node is connected; return whether it was told."""
        try:
            request = SendNodeHeartbeatRequest(
                node=self._number, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
            )
            if not self._client.SendNodeHeartbeat(request).success:
                self.end("the coordinator does not know its node any more")
        except httpx.HTTPError as error:
            return self._is_final(error)
        return True

    def _answer(self, run: int, tree: ObjectTree, responder: ReloadingSite) -> None:
        """Fetch a question, and send the reply to it."""
        client, retry = self._client, self._retry.invoke
        how = (self._number, run)
        began = time.monotonic()
        try:
            question = pull_and_inflate_object_from_tree(
                tree,
                make_pull_object_fn_protobuf(partial(retry, client.PullObject), *how),
                make_confirm_message_received_fn_protobuf(
                    partial(retry, client.ConfirmMessageReceived), *how
                ),
                return_type=Message,
            )
            question.metadata.__dict__["_message_id"] = tree.object_id
            reply = replied(question, responder)
            reply.metadata.__dict__["_message_id"] = reply.object_id
            request = fleet_pb2.PushMessagesRequest(
                node=self._number,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[time.monotonic() - began],
            )
            pushed = retry(client.PushMessages, request)
            push = make_push_object_fn_protobuf(
                partial(retry, client.PushObject), *how, pushed.session_id
            )
            objects = get_all_nested_objects(reply)
            push_objects(objects, push, object_ids_to_push=set(pushed.objects_to_push))
        except Exception as error:
            LOGGER.warning("a question was lost, its run may have ended: %s", type(error).__name__)
        self._without = 0.0
        self._wakes.set()


@contextmanager
def connected(membership: Membership, folder: Path, say: Callable[[str], None]) -> Iterator[Node]:
    """Connect a site as a node, of which the coordinator takes leave with the block.

    Flower refuses a key that is connected already, and that of a killed program counts as connected
    until its heartbeat has been missing for a while. So the connection that a program in this
    folder has left behind is ended first; where it is not known, the site keeps trying.
    """
    mark = state_folder(folder) / "flower" / "connected"
    here = f"{platform.node()}:{folder.resolve()}"
    own = Credentials(membership, folder)
    key = _key(own.key)
    with _fleet(own, key) as fleet:
        if left := record_or(mark, dict[str, int], {}).get(here):
            _leave(fleet, left)
        public = public_key_to_bytes(key.public_key())
        number = _admitted(fleet, public, own, say, before=mark.exists())
        mark.parent.mkdir(parents=True, exist_ok=True)
        write_json(mark, {here: number})
        try:
            yield Node(fleet, number)
        finally:
            _leave(fleet, number)


def _leave(fleet: FleetHttpClient, number: int) -> None:
    """Tell a coordinator that a node is not connected any more, if it listens."""

    def tell() -> None:
        with suppress(httpx.HTTPError, RuntimeError):
            fleet.DeactivateNode(fleet_pb2.DeactivateNodeRequest(node_id=number))

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    thread.join(Node.leave)


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_ssh_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path} is not a key of a site")
    return key


def _fleet(own: Credentials, key: ec.EllipticCurvePrivateKey) -> FleetHttpClient:
    """Return a client of the SuperLink's interface for sites."""
    programs.reach_directly()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # fedcluster reports the errors
    return FleetHttpClient.from_server_address(
        server_address=own.coordinator,
        insecure=False,
        root_certificates=own.authority.read_bytes(),
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="fedcluster"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ],
    )


def _admitted(
    fleet: FleetHttpClient,
    public: bytes,
    own: Credentials,
    say: Callable[[str], None],
    *,
    before: bool,
) -> int:
    """Return the number of the node that the SuperLink has for a key.

    A site that was connected ``before`` waits until its earlier program does not count any more.
    """
    end, said = time.monotonic() + (FORGOTTEN if before else 0), ""
    request = fleet_pb2.ActivateNodeRequest(
        public_key=public, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
    )
    while True:
        late = time.monotonic() > end
        try:
            return int(fleet.ActivateNode(request).node_id)
        except httpx.HTTPStatusError as error:
            if (refusal := own.refusal(error, before=before, late=late)) is not None:
                raise refusal from error
            waits = "the site's earlier program still counts as connected; waiting"
        except httpx.TransportError as error:
            if isinstance(cause := first_cause(error), ssl.SSLCertVerificationError):
                why = distrusted(cause, own.coordinator, own.authority)
                raise InputError(why) from error
            waits = f"nobody answers at {own.coordinator}; waiting"
        if waits != said:
            say(waits)
        said = waits
        time.sleep(1)


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
        self.coordinator, self.key = membership.coordinator, folder / membership.key
        self.authority = membership.authority(folder)
        self._next = state_folder(folder) / NEXT_KEY

    def key_status(self, key: Path | None = None) -> str:
        """Return the status of the site's key, or of another one.

        It is known, unknown, or why and since when the key is invalid; nothing if the coordinator
        does not answer.
        """
        return self.told(key or self.key).get("status", "")

    def told(self, key: Path) -> dict[str, str]:
        """Return what the coordinator says to the owner of a key, see `told_by_coordinator`."""
        try:
            headers = _signed(_key(key))
            reply = programs.get(
                self.coordinator, launcher.KEY_STATUS, self.authority, headers=headers
            )
        except (OSError, ValueError, InputError, httpx.TransportError):
            return {}
        if reply.status_code != 200:
            return {}
        version = reply.headers.get(launcher.VERSION, "")
        said = {"status": reply.text[:100], "version": version[:100]}
        return {what: text for what, text in said.items() if text.isascii() and text.isprintable()}

    def take_new_key(self) -> None:
        """Replace the site's key by the waiting one, if the coordinator knows it."""
        if self._next.exists() and self.key_status(self._next) == KNOWN:
            self._next.replace(self.key)

    def followed(self, node: Node) -> AbstractContextManager[None]:
        """End a connection as soon as its files have changed, within the block."""
        used = before = self._state()
        asked = 0.0

        def look() -> None:
            nonlocal before, asked
            if time.monotonic() - asked > self.ask:
                self.take_new_key()
                asked = time.monotonic()
            now = self._state()
            if now == before != used and None not in now:  # the files are complete
                node.end("its key, or who vouches for the coordinator, is another")
            before = now

        return repeated(look, self.interval)

    def _state(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(map(file_state, (self.key, self.authority)))

    def check(self) -> None:
        """Raise an error if the coordinator no longer accepts the site's key.

        Raises
        ------
        InputError
            With the reason.
        """
        how = self.key_status()
        if how not in {"", KNOWN, UNKNOWN} and not how.startswith(CLOCK):
            raise _not_let_in(how, f"{self.coordinator} has ended it: {why_not_let_in(how)}")

    def refusal(
        self, error: httpx.HTTPStatusError, *, before: bool, late: bool
    ) -> InputError | None:
        """Return why a site is not let in, None if that may end with its earlier program.

        Parameters
        ----------
        error : HTTPStatusError
            The answer of Flower's SuperLink.
        before : bool
            Whether the site was connected before.
        late : bool
            Whether the earlier program would have been forgotten.
        """
        said, how = FlowerError.from_json(error.response.text), ""
        if said is not None and said.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
            how = self.key_status() or NOT_TOLD  # it is not known, or connected already
            if how in {NOT_TOLD, KNOWN} and not late:
                return None
        why = why_not_let_in(UNKNOWN if how == NOT_TOLD and not before else how)
        if not why and error.response.status_code == httpx.codes.UNAUTHORIZED:
            why = (
                "the coordinator refuses this site's signature; set the clocks of both machines, "
                "of which this one may be 5 s fast or 5 minutes slow, and no more"
            )
        why = why or unanswered(error, "Flower's superlink")
        return _not_let_in(how, f"the connection to {self.coordinator} failed: {why}")


def told_by_coordinator(path: Path) -> dict[str, str]:
    """Return what the coordinator says to the owner of a site's key: ``status`` and ``version``.

    Parameters
    ----------
    path : Path
        The site file.
    """
    try:
        own = Credentials(Membership.from_site_file(SiteFile.load(path)), path.absolute().parent)
    except InputError:
        return {}
    return own.told(own.key)


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
    if status == NOT_TOLD:
        return "another program with this site's key is connected, or the key is not known any more"
    if status == UNKNOWN:
        return "the coordinator does not know this site's key; ask for the site's folder anew"
    return ""
