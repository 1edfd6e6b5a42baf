"""Question of a site to the coordinator that does not let it in: how its key stands."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from fedcluster.errors import InputError
from fedcluster.transports.flower import _launcher as launcher
from fedcluster.transports.flower import _programs as programs

KNOWN, UNKNOWN = "known", "unknown"


def standing(address: str, authority: Path | None, key: Path) -> str:
    """Return how a key stands: known, unknown, or why and since when it does not count.

    Parameters
    ----------
    address : str
        HOST:PORT of the coordinator.
    authority : Path, optional
        Who must vouch for it.
    key : Path
        The file of the private key.

    Returns
    -------
    str
        Empty if the coordinator does not say.
    """
    try:
        private = load_ssh_private_key(key.read_bytes(), None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            return ""
        reply = programs.get(address, launcher.STANDING, authority, headers=_signed(private))
    except (OSError, ValueError, InputError, httpx.TransportError):
        return ""
    told = reply.text[:100] if reply.status_code == 200 else ""
    return told if told.isascii() and told.isprintable() else ""


def _signed(key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """Return the headers by which one shows that he has a key."""
    now = f"{time.time():.0f}"
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    signature = key.sign((launcher.STANDING + now).encode(), ec.ECDSA(SHA256()))
    told = (base64.b64encode(der).decode(), now, base64.b64encode(signature).decode())
    return dict(zip(launcher.SIGNED, told, strict=True))


def why_not_let_in(told: str) -> str:
    """Return what to say of a key that was refused.

    Examples
    --------
    >>> why_not_let_in("revoked on 2026-11-22T20:00:00+00:00")
    "this site's key was revoked on 2026-11-22T20:00:00+00:00; ask the coordinator for a new one"
    """
    if told == KNOWN:
        return (
            "another program with this site's key is connected: its folder was copied, or is in "
            "use twice; end one of them, or ask the coordinator for a new key"
        )
    if told.startswith(("revoked", "replaced")):
        return f"this site's key was {told}; ask the coordinator for a new one"
    if told.startswith("removed"):
        return f"the coordinator has this site {told}"
    if told == UNKNOWN:
        return "the coordinator does not know this site's key; ask for the site's folder anew"
    return ""
