"""Sites and a coordinator of secure sums in one process, with a wire that may lose messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedcluster.core import Data
from fedcluster.engines.client import Client
from fedcluster.engines.wire import steps_by_name, unpack
from fedcluster.model.assigned_rows import row_transform
from fedcluster.privacy.disclosure import USUAL, SiteRules
from fedcluster_app.secure.cohort import Terms
from fedcluster_app.secure.site import SecureSite
from fedcluster_app.trust.site_state import SiteState
from fedcluster_app.wire.responder import Responder

STEPS = steps_by_name()


class Wire:
    """A transport that keeps all messages, and may lose the reply of a site at a stage of sums."""

    def __init__(
        self, sites: Mapping[str, Responder], lost: Callable[[str, str], bool] | None = None
    ) -> None:
        self.sites, self.lost = dict(sites), lost or (lambda stage, site: False)
        self.log: list[tuple[str, bytes, bytes]] = []

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        came, reasons = {}, {}
        for name, message in messages.items():
            reply = self.sites[name].reply(message)
            self.log.append((name, message, reply))
            if self.lost(stage_of(message), name):
                reasons[name] = "not connected"
            else:
                came[name] = reply
        return came, reasons

    @property
    def words(self) -> np.ndarray:
        """All masked words that the coordinator received."""
        arrays = [unpack(reply)[1] for _, _, reply in self.log]
        return np.concatenate([a["masked"].view(np.uint64) for a in arrays if "masked" in a])


def stage_of(message: bytes) -> str:
    """The stage of the secure sums that a question belongs to."""
    return str(json.loads(message[: message.index(b"\n")]).get("sums", {}).get("stage", "model"))


def identities(names: Sequence[str]) -> dict[str, Ed25519PrivateKey]:
    return {name: Ed25519PrivateKey.generate() for name in names}


def site(
    name: str,
    data: Data,
    keys: Mapping[str, Ed25519PrivateKey] | None,
    filters: SiteRules = USUAL,
    columns: Sequence[str] = (),
    terms: Terms | None = None,
    state: SiteState | None = None,
    permitted: Callable[[str], Sequence[str]] | None = None,
) -> Responder:
    """One site, with secure sums where there are keys."""
    peers = {each: key.public_key() for each, key in (keys or {}).items()}
    columns = columns or tuple(f"x{j}" for j in range(data.X.shape[1]))
    client = Client(name, data, filters)
    return Responder(
        client,
        columns=columns,
        choose=lambda chosen, raw=False: client,
        steps=STEPS,
        preprocessors=partial(row_transform, steps=STEPS),
        secure=SecureSite(name, keys[name], peers, terms, state, permitted) if keys else None,
    )


def federation(
    parts: Mapping[str, Data],
    lost: Callable[[str, str], bool] | None = None,
    filters: SiteRules = USUAL,
    *,
    secure: bool = True,
    dropouts: bool = False,
) -> Wire:
    keys = identities(list(parts)) if secure else None
    terms = Terms(allow_dropouts=dropouts)
    sites = {name: site(name, data, keys, filters, terms=terms) for name, data in parts.items()}
    return Wire(sites, lost)
