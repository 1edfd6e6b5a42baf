"""Who vouches for a coordinator: an authority of its own, or those that a machine trusts.

Keys by which sites know each other; they pass them on themselves, not through the coordinator.

Each site has an Ed25519 key of its own, ``identity.key``, and ``peers.toml`` with the public keys
of all sites, the same file everywhere:

    north = "ssh-ed25519 AAAA..."
    south = "ssh-ed25519 AAAA..."
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedcluster.errors import InputError
from fedcluster.io.records import load_record
from fedcluster.privacy.site_state import STATE_FILE, SiteState
from fedcluster.site.permits import load_key, make_key, public_text

SYSTEM = "system"
"""What a site file says of the certificate where a public authority vouches for the coordinator."""


def system_store() -> Path:
    """Return the file of the authorities that this machine trusts.

    Raises
    ------
    InputError
        If there is none.
    """
    found = ssl.get_default_verify_paths()
    usual = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
    for path in filter(None, (found.cafile, *usual, "/etc/ssl/cert.pem")):
        if os.access(path, os.R_OK):
            return Path(path)
    raise InputError(
        "this machine has no file of trusted authorities: install the package ca-certificates, or "
        "set SSL_CERT_FILE"
    )


IDENTITY, PEERS = "identity.key", "peers.toml"
"""Files beside the site file: the site's own secret, and the public keys of all sites."""


def identity(folder: Path, *, make: bool = False) -> Ed25519PrivateKey:
    """Read the key of a site.

    Parameters
    ----------
    folder : Path
        The folder of the site file.
    make : bool, default=False
        Whether to make one where there is none; the state of the site, which says in which secure
        sums it has answered, is made before it.

    Raises
    ------
    InputError
        If it is not there, or no such key.
    """
    path = folder / IDENTITY
    if make and not path.exists():
        SiteState(folder / STATE_FILE).create()
        make_key(path)
    if not path.exists():
        raise InputError(f"{path} is missing: fedcluster site key makes it")
    return load_key(path)


def fingerprint(peers: Mapping[str, Ed25519PublicKey]) -> str:
    """Return a digest of the sites' names and keys, for people to compare by telephone."""
    lines = "\n".join(f"{name} {public_text(peers[name])}" for name in sorted(peers))
    digits = sha256(lines.encode()).hexdigest()[:32]
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def load_peers(path: Path) -> dict[str, Ed25519PublicKey]:
    """Read the public keys of all sites.

    Raises
    ------
    InputError
        If the file is not there, or holds something else, or two sites have one key.
    """
    if not path.exists():
        raise InputError(
            f"{path} is missing: write into it the line that fedcluster site key shows at each "
            "site, the same file for all"
        )
    content = load_record(path, dict[str, str])
    peers = {name: _public(path, name, text) for name, text in content.items()}
    if len(set(map(public_text, peers.values()))) < len(peers):
        raise InputError(f"{path}: two sites have the same key: each makes its own")
    return peers


def _public(path: Path, name: str, text: str) -> Ed25519PublicKey:
    try:
        key = load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path}: the key of {name} is no public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{path}: the key of {name} is not one that fedcluster site key shows")
    return key


def check_own(path: Path, name: str, peers: Mapping[str, Ed25519PublicKey], own: str) -> None:
    """Check that the key of a site is the one that all sites have of it.

    Raises
    ------
    InputError
        If it is another, or not there.
    """
    if name not in peers or public_text(peers[name]) != own:
        raise InputError(
            f"{path}: the key of {name} is not that of this site: fedcluster site key shows it"
        )
