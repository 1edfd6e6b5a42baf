"""A site's end of Flower: how it is admitted, what it fetches and sends, and when it ends."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.fleet_pb2 import ActivateNodeResponse, DeactivateNodeRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatResponse
from flwr.supercore.error import ApiErrorCode
from flwr.supernode.fleet_http_client import FleetHttpClient
from ports import free_port, wait_until

from fedcluster.errors import InputError
from fedcluster_app.site.membership import Membership
from fedcluster_app.transports.flower import node as member
from fedcluster_app.transports.flower.node import Node, connected

UNKNOWN = json.dumps({"code": int(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED), "detail": "no"})
NOBODY: Any = None


@pytest.fixture
def superlink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server with one node, 4711, which refuses as many requests as there are reasons."""

    class SuperLink(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            what, answer, status = self.path.rpartition("/")[2], b"", 200
            asked.append((what, content))
            if reasons:
                status, answer = reasons.pop(0)
            elif what == "activate-node":
                answer = ActivateNodeResponse(node_id=4711).SerializeToString()
            elif what == "send-node-heartbeat":
                answer = SendNodeHeartbeatResponse(success=True).SerializeToString()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_what: object) -> None:
            pass

    asked: list[tuple[str, bytes]] = []
    reasons: list[tuple[int, bytes]] = []
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), SuperLink) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        yield type("Known", (), {"address": address, "asked": asked, "reasons": reasons})
        server.shutdown()


@pytest.fixture
def site(superlink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Membership:
    """A site whose key the coordinator says that it knows, over an unencrypted connection."""
    key = ec.generate_private_key(ec.SECP384R1())
    monkeypatch.setattr(member, "_key", lambda *_: key)
    monkeypatch.setattr(member.Credentials, "key_status", lambda *_: "known")
    membership = Membership(superlink.address, "system", "key")
    fleet = lambda *_: client_of(superlink.address)  # noqa: E731
    monkeypatch.setattr(member, "_fleet", fleet)
    return membership


def client_of(address: str) -> FleetHttpClient:
    return FleetHttpClient.from_server_address(address, True, None, [])


def requests(superlink: Any) -> list[str]:
    return [what for what, _ in superlink.asked]


@pytest.mark.parametrize("moved", [False, True])
def test_a_site_comes_and_goes_and_ends_what_a_killed_program_left(
    superlink, site, tmp_path, moved
):
    """By a program in the same folder of the same machine: a copy ends nothing of the first."""
    here, there = tmp_path / "here", tmp_path / "there"
    with connected(site, here, print) as node:
        assert isinstance(node, Node)
        assert requests(superlink) == ["activate-node"]
    assert requests(superlink) == ["activate-node", "deactivate-node"]
    assert DeactivateNodeRequest.FromString(superlink.asked[-1][1]).node_id == 4711
    del superlink.asked[:]
    if moved:
        here.rename(there)
    with connected(site, there if moved else here, print):
        pass
    left = [] if moved else ["deactivate-node"]
    assert requests(superlink) == [*left, "activate-node", "deactivate-node"]


def test_only_a_site_that_was_connected_once_waits_to_be_let_in(
    superlink, site, tmp_path, monkeypatch
):
    """Flower says the same of a key that is unknown and of one that was killed just now."""
    heard, status, refusal = list[str](), "", (412, UNKNOWN.encode())
    monkeypatch.setattr(member.Credentials, "key_status", lambda *_: status)
    superlink.reasons += [refusal] * 2
    unknown = pytest.raises(InputError, match="the coordinator does not know this site's key")
    with unknown, connected(site, tmp_path, heard.append):
        pass
    mark = tmp_path / "state/flower/connected"
    assert not mark.exists()
    mark.parent.mkdir(parents=True)
    mark.touch()
    superlink.reasons[:], status = [refusal] * 2, "known"
    with connected(site, tmp_path, heard.append):
        assert heard == ["the site's earlier program still counts as connected; waiting"]
    monkeypatch.setattr(member, "FORGOTTEN", -1.0)
    superlink.reasons[:], status = [(200, b""), refusal], ""
    another = "another program with this site's key is connected, or"
    with pytest.raises(InputError, match=another), connected(site, tmp_path, heard.append):
        pass


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (401, "refuses this site's signature; set the clocks of both"),
        (500, "Flower's superlink answers 500: out of memory"),
    ],
)
def test_why_a_site_is_not_admitted(status, says, superlink, site, tmp_path):
    superlink.reasons.append((status, b"out of\nmemory"))
    with pytest.raises(InputError, match=says), connected(site, tmp_path, print):
        pass


def test_a_coordinator_that_is_away_is_waited_for(site, tmp_path, monkeypatch):
    heard, waits = list[str](), list[float]()
    away = client_of(f"127.0.0.1:{free_port()}")
    monkeypatch.setattr(member, "_fleet", lambda *_: away)

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise InterruptedError

    # the module's own: threads of other tests sleep, too
    monkeypatch.setattr(member, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    with pytest.raises(InterruptedError), connected(site, tmp_path, heard.append):
        pass
    assert heard == [f"nobody answers at {site.coordinator}; waiting"]


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_a_request_that_is_refused_does_not_end_the_site(status, superlink, monkeypatch):
    """A run may end, or a sign of life come late, at any time; a key that is refused ends it."""
    with closing(client_of(superlink.address)) as client:
        node = Node(client, 4711)
        monkeypatch.setattr(node, "_rest", lambda: None)
        superlink.reasons += [(status, b"")] * 3
        thread = threading.Thread(target=node.answer, args=[NOBODY])
        thread.start()
        wait_until(lambda: node.why_ended or len(superlink.asked) > 20)
        refused = "the coordinator does not accept its key any more"
        assert node.why_ended == (refused if status == 401 else "")
        assert requests(superlink).count("pull-messages") > 3 or status == 401
        node.end("enough")
        thread.join(60)
        assert not thread.is_alive()


def test_a_question_whose_run_has_ended_is_lost_and_nothing_else(superlink, caplog):
    with closing(client_of(superlink.address)) as client:
        node = Node(client, 4711)
        tree: Any = type("Tree", (), {"object_id": "one", "children": []})
        superlink.reasons.append((403, b""))
        node._answer(1, tree, NOBODY)  # noqa: SLF001
        assert caplog.messages == ["a question was lost, its run may have ended: HTTPStatusError"]
        assert not node.why_ended


def test_a_certificate_that_is_not_trusted_ends_the_connection(monkeypatch):
    def refused(*_: object) -> None:
        try:
            raise ssl.SSLCertVerificationError("not trusted")
        except ssl.SSLError as error:
            raise httpx.ConnectError("no") from error

    client: Any = type("Client", (), {"PullMessages": refused, "SendNodeHeartbeat": refused})()
    node = Node(client, 1)
    node.answer(NOBODY)
    assert node.why_ended.startswith("the coordinator's certificate is not trusted")
