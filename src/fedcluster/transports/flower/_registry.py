"""Which keys Flower lets in: those that the federation's folder names, looked at again and again.

Flower knows a site by a node, and a node by one key, for good: a new key is a new node. While a run
goes on, `nodes_now` says by which nodes it reaches the sites that it began with.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    UnregisterNodeRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, public_key_to_bytes

from fedcluster.coordinator.certificates import REMOVED, accepted_keys, former_keys, key_digest
from fedcluster.coordinator.folder import Federation
from fedcluster.coordinator.lifecycle import promote, state_of, take_notice
from fedcluster.coordinator.renewal import expiry_notice
from fedcluster.errors import InputError
from fedcluster.io.outputs import write_json
from fedcluster.io.records import record_or
from fedcluster.transports.flower import _programs as programs
from fedcluster.transports.flower._programs import Access

LOGGER = logging.getLogger(__name__)

LOOK = 0.5
"""Seconds between two looks at the folder."""

AGAIN = 5.0
"""Seconds between two questions whether a site has used its new key, or a run has ended."""

NODES, STATUSES = "nodes.json", "standing.json"
"""Files in ``flower``: the nodes of each site, of its key and of its new one; how keys stand."""

DAY = 86_400.0
"""Seconds between two lines about a certificate that ends soon."""

RUNS = 100
"""How many runs are looked through for one that goes on."""

KNOWN = "known"


class Registry:
    """The registrations of a federation's keys with its SuperLink.

    Parameters
    ----------
    federation : Federation
        The federation.
    access : Access
        How the SuperLink is reached.
    """

    def __init__(self, federation: Federation, access: Access) -> None:
        self._folder, self._access = federation.folder, access
        self._seen = ""
        self._asked, self._waits = 0.0, False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Register what the folder names, now and while the block lasts.

        Raises
        ------
        InputError
            If the folder is damaged now; later that is only logged.
        """
        self.update()
        ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=[ended], daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _watch(self, ended: threading.Event) -> None:
        spoken = time.monotonic()  # the command that starts has just done so
        while not ended.wait(LOOK):
            try:
                waited = self._waits and time.monotonic() - self._asked > AGAIN
                if waited or self._seen != state_of(self._folder):
                    self.update()
                if time.monotonic() - spoken > DAY:
                    spoken = time.monotonic()
                    if notice := expiry_notice(Federation.load(self._folder)):
                        LOGGER.warning("%s", notice)
            except (InputError, httpx.HTTPError, OSError) as error:
                LOGGER.warning("the sites' keys stay as they are: %s", error)
                ended.wait(AGAIN)

    def update(self) -> None:
        """Let Flower know the keys that count, and no others."""
        seen, self._asked = state_of(self._folder), time.monotonic()
        federation = Federation.load(self._folder)
        nodes: dict[str, list[int]] = {}
        if not federation.insecure:
            with closing(programs.client(ControlHttpClient, self._access, 3)) as control:
                nodes, self._waits = _registered(federation, control)
        write_json(federation.file("flower", NODES), nodes)
        write_json(federation.file("flower", STATUSES), key_status(federation))
        take_notice(federation.folder, seen)
        self._seen = seen


def _registered(
    federation: Federation, control: ControlHttpClient
) -> tuple[dict[str, list[int]], bool]:
    """Register and unregister keys; return the nodes, and whether something is waited for."""
    here = {
        bytes(node.public_key): node
        for node in control.ListNodes(ListNodesRequest()).nodes_info
        if node.status != "unregistered"
    }
    keys = accepted_keys(federation.folder, federation.sites)
    nodes: dict[str, list[int]] = {site: [] for site in keys}
    for site, own in keys.items():
        for key in own:
            node = here.get(public_key_to_bytes(key))
            nodes[site].append(node.node_id if node else _register(control, site, key))
    kept = {public_key_to_bytes(key) for own in keys.values() for key in own}
    waits = _unregister(federation, control, {k: n.node_id for k, n in here.items()}, kept)
    online = {node.node_id for node in here.values() if node.status == "online"}
    used = [site for site, own in nodes.items() if online.intersection(own[1:])]
    if used:
        promote(federation.folder, used)
        LOGGER.info("sites with a new key: %s", ", ".join(used))
    return nodes, waits or any(any(own[1:]) for own in nodes.values())


def _register(control: ControlHttpClient, site: str, key: ec.EllipticCurvePublicKey) -> int:
    """Register a key of a site and return its node, 0 where Flower does not take it."""
    request = RegisterNodeRequest(public_key=public_key_to_bytes(key), name=site)
    try:
        return int(control.RegisterNode(request).node_id)
    except httpx.HTTPStatusError as error:
        LOGGER.warning("Flower does not take the key of %s: %s", site, error.response.text[:200])
        return 0


def _unregister(
    federation: Federation,
    control: ControlHttpClient,
    here: Mapping[bytes, int],
    kept: set[bytes],
) -> bool:
    """Unregister what does not count; return whether a removed site still takes part in a run."""
    surplus = {key: node for key, node in here.items() if key not in kept}
    former = former_keys(federation.folder)
    known = {key: former.get(key_digest(bytes_to_public_key(key))) for key in surplus}
    removed = {key: past.site for key, past in known.items() if past and past.why == REMOVED}
    asked = _asked_now(federation, control) if removed else set()
    busy = {key for key, site in removed.items() if site in asked}
    for key in surplus.keys() - busy:
        with suppress(httpx.HTTPStatusError):  # somebody else has done it
            control.UnregisterNode(UnregisterNodeRequest(node_id=surplus[key]))
    return bool(busy)


def _asked_now(federation: Federation, control: ControlHttpClient) -> set[str]:
    """Return the sites that runs, which go on, ask."""
    latest = control.ListRuns(ListRunsRequest(limit=RUNS)).run_dict.values()
    running = {run.run_id for run in latest if run.status.status != "finished"}
    asked: set[str] = set()
    for file in federation.file("runs").glob("*/flower-run"):
        if record_or(file, int, 0) in running:
            job = record_or(file.with_name("job.json"), dict[str, Any], {})
            asked.update(job.get("sites", ()))
    return asked


def key_status(federation: Federation) -> dict[str, str]:
    """Return how each key stands, by its SHA-256, for whoever shows that he has it."""
    former = {
        digest: f"{key.why} on {key.at}" for digest, key in former_keys(federation.folder).items()
    }
    keys = {} if federation.insecure else accepted_keys(federation.folder, federation.sites)
    return former | {key_digest(key): KNOWN for own in keys.values() for key in own}


def nodes_now(home: Path, begun: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the nodes that a message to each site may reach now, the newest last.

    Parameters
    ----------
    home : Path
        The folder ``flower`` of the federation.
    begun : mapping of int to str
        The site behind each node that a run began with.
    """
    nodes = {site: [node] for node, site in begun.items()}
    known = record_or(home / NODES, dict[str, list[int]], {})
    for site in known.keys() & nodes.keys():
        nodes[site] += filter(None, known[site])
    return nodes
