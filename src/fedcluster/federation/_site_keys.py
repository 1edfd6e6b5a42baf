"""Keys by which the coordinator knows its sites: those that count, and those that do so no more.

``keys/NAME.pub`` is the key of a site. ``keys/NAME.next.pub`` is one that replaces it as soon as
the site has used it; until then both count. ``keys/former.json`` has the keys that were taken back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)

from fedcluster.errors import InputError
from fedcluster.federation._certificates import site_key
from fedcluster.federation._private import private_files
from fedcluster.io._outputs import atomic_write

FORMER = "keys/former.json"
"""The file of keys that do not count any more."""
LARGEST = 10_000
"""Bytes of the largest file that can be a public key."""
CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)

REVOKED, REPLACED, REMOVED = "revoked", "replaced", "removed"
"""Why a key does not count any more."""


NEXT_KEY, PUBLIC_KEY = "key.next", "key.pub"
"""Files beside a site file: a key that waits for the coordinator, and its public part."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that a site has made.

    Parameters
    ----------
    public : Path
        The file of its public part.
    digest : str
        The beginning of the public part's SHA-256, for people to compare.
    waits : bool
        Whether the site has another key, which counts until the coordinator has accepted this one.
    """

    public: Path
    digest: str
    waits: bool


@dataclass(frozen=True, slots=True)
class FormerKey:
    """A key that does not count any more.

    Parameters
    ----------
    site : str
        The site whose key it was.
    why : {"revoked", "replaced", "removed"}
        Why it does not count.
    at : str
        Since when, in UTC.
    """

    site: str
    why: str
    at: str


def make_site_key(folder: Path, key: str) -> NewKey:
    """Make a key of a site, in its own folder; one that waited before goes.

    Parameters
    ----------
    folder : Path
        The folder of the site file.
    key : str
        The name of the file of the site's key.
    """
    private, public = site_key()
    own = folder / key
    waits = own.exists()
    with private_files():
        with atomic_write(folder / NEXT_KEY if waits else own) as temporary:
            temporary.write_bytes(private)
        with atomic_write(folder / PUBLIC_KEY) as temporary:
            temporary.write_bytes(public)
    return NewKey(folder / PUBLIC_KEY, digest_of(folder / PUBLIC_KEY), waits)


def digest_of(path: Path) -> str:
    """Return the beginning of the SHA-256 of a public key, for people to compare.

    Raises
    ------
    InputError
        If the file holds none.
    """
    digits = key_digest(read_public_key(path))[:32]
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def current(site: str) -> str:
    """Return the name of the file of a site's key."""
    return f"keys/{site}.pub"


def upcoming(site: str) -> str:
    """Return the name of the file of the key that is to replace a site's key."""
    return f"keys/{site}.next.pub"


def read_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    """Read a public key.

    Raises
    ------
    InputError
        If it cannot be read, or is no key of a site.
    """
    try:
        with path.open("rb") as file:
            key = load_ssh_public_key(file.read(LARGEST))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path} is no public key of a site: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, CURVES):
        raise InputError(
            f"{path} is no public key of a site: fedcluster site new-key makes one, and writes its "
            "public part to key.pub"
        )
    return key


def public_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return a public key as its file holds it."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def key_digest(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 of a public key."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return sha256(der).hexdigest()


def accepted_keys(
    folder: Path, sites: Iterable[str]
) -> dict[str, tuple[ec.EllipticCurvePublicKey, ...]]:
    """Return the keys that count of each site: its own, then the one that is to replace it.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    sites : iterable of str
        The names of its sites.

    Raises
    ------
    InputError
        If a file holds something else.
    """
    gone, keys = former_keys(folder), {}
    for site in sites:
        paths = [folder / name(site) for name in (current, upcoming)]
        read = [read_public_key(path) for path in paths if path.exists()]
        keys[site] = tuple(key for key in read if key_digest(key) not in gone)
    return keys


def former_keys(folder: Path) -> dict[str, FormerKey]:
    """Return the keys that do not count any more, by their SHA-256.

    Raises
    ------
    InputError
        If the file is damaged: then no key can be trusted.
    """
    path = folder / FORMER
    try:
        content = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return {str(digest): FormerKey(**told) for digest, told in content.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {error}; put back a copy") from error


def with_former(folder: Path, keys: Mapping[str, str], why: str) -> dict[str, bytes]:
    """Return the file of former keys with more of them.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    keys : mapping of str to str
        The site whose key it was, by the SHA-256 of the key.
    why : str
        Why they do not count any more.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    former: dict[str, Any] = {k: asdict(told) for k, told in former_keys(folder).items()}
    former |= {digest: asdict(FormerKey(site, why, now)) for digest, site in keys.items()}
    return {FORMER: json.dumps(former, indent=1).encode()}
