"""Identities: the authority of a coordinator, its address, and the keys of sites.

A coordinator has its own certificate authority, or one that the machine trusts. Sites exchange
their keys directly, not through the coordinator.

Each site has an Ed25519 key of its own, ``identity.key``, and ``peers.toml`` with the public keys
of all sites, the same file everywhere:

    north = "ssh-ed25519 AAAA..."
    south = "ssh-ed25519 AAAA..."
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import idna
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedcluster.errors import InputError
from fedcluster_app.records import load_record
from fedcluster_app.trust.permits import load_key, make_key, public_text
from fedcluster_app.trust.site_state import STATE_FILE, SiteState

SYSTEM = "system"
"""Value of ``certificate`` in a site file for a coordinator with a public authority."""


def check_key(path: Path) -> None:
    """Raise an error for a damaged private key of a site; there may be none.

    Raises
    ------
    InputError
        With advice.
    """
    try:
        if path.exists():
            load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is not a whole key: ask the coordinator for a new one (federation rotate-key)"
        ) from error


def system_store() -> Path:
    """Return the file of the authorities that this machine trusts.

    Raises
    ------
    InputError
        If there is no such file.
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
"""Files of a site: its own secret, in its `state_folder`, and beside the site file all keys."""


def identity(folder: Path, *, make: bool = False) -> Ed25519PrivateKey:
    """Read the key of a site.

    Parameters
    ----------
    folder : Path
        The folder of its state.
    make : bool, default=False
        Whether to create a missing key; the state of the site, which records its secure sums, is
        created before it.

    Raises
    ------
    InputError
        If the key is missing or invalid.
    """
    path = folder / IDENTITY
    if make and not path.exists():
        SiteState(folder / STATE_FILE).create()
        make_key(path)
    if not path.exists():
        raise InputError(f"{path} is missing: fedcluster site key makes it")
    return load_key(path)


def fingerprint(peers: Mapping[str, Ed25519PublicKey]) -> str:
    """Return a digest of the sites' names and keys, for comparison by telephone."""
    lines = "\n".join(f"{name} {public_text(peers[name])}" for name in sorted(peers))
    digits = sha256(lines.encode()).hexdigest()[:32]
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def load_peers(path: Path) -> dict[str, Ed25519PublicKey]:
    """Read the public keys of all sites.

    Raises
    ------
    InputError
        If the file is missing or invalid, or two sites have the same key.
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
    """Check that a site's key is the one in the common file of all sites.

    Raises
    ------
    InputError
        If it is different or missing.
    """
    if name not in peers or public_text(peers[name]) != own:
        raise InputError(
            f"{path}: the key of {name} is not that of this site: fedcluster site key shows it"
        )


ALL, ALL_V6 = "0.0.0.0", "::"
"""IPv4 and IPv6 addresses that stand for all interfaces of a machine."""

NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")
"""An ASCII host name; underscores occur in names of containers."""

EXAMPLE = "as in 127.0.0.1:8443 or [::1]:8443"


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a coordinator.

    Parameters
    ----------
    host : str
        The host name or IP address for the sites, in ASCII.
    port : int
        The port.
    bind : str, optional
        The IP address at which it listens. By default the host if that is a loopback address,
        otherwise all interfaces, for the host's version of IP.
    """

    host: str
    port: int
    bind: str | None = None

    @classmethod
    def read(cls, address: str, bind: str | None = None) -> Address:
        """Read HOST:PORT; a name with non-ASCII letters is encoded (IDNA 2008).

        Raises
        ------
        InputError
            If the address or ``bind`` is invalid.

        Examples
        --------
        >>> str(Address.read("klinikum-köln.example:8443"))
        'xn--klinikum-kln-ejb.example:8443'
        >>> Address.read("[::1]:8443").local
        '[::1]:8443'
        """
        host, _, port = address.rpartition(":")
        is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not bare or not is_port or (":" in bare and bare == host):
            raise InputError(f"--address {address!r} must be HOST:PORT, {EXAMPLE}")
        if bind is not None and number(bind) is None:
            raise InputError(f"--bind {bind!r} must be this machine's IP address, 0.0.0.0 or ::")
        return cls(_host(address, bare), int(port), bind)

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only sites on this machine can reach it."""
        return is_loopback(self.host) and (self.bind is None or is_loopback(self.bind))

    @property
    def listens(self) -> str:
        """The IP address at which the coordinator listens."""
        if self.bind is not None:
            return self.bind
        own = number(self.host)
        if own is None:
            return "127.0.0.1" if self.host == "localhost" else ALL
        return str(own) if own.is_loopback else ALL_V6 if own.version == 6 else ALL

    @property
    def local(self) -> str:
        """HOST:PORT for programs on the coordinator's machine."""
        here = {ALL: "127.0.0.1", ALL_V6: "::1"}
        return f"{bracketed(here.get(self.listens, self.listens))}:{self.port}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names for a certificate: the host, and where the coordinator listens."""
        wild = self.bind is None or number(self.bind) in (number(ALL), number(ALL_V6))
        return (self.host,) if wild else (self.host, str(self.bind))


def number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return a host as an IP address, None if it is a name."""
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None


def bracketed(host: str) -> str:
    """Return a host in the form that precedes a port."""
    return f"[{host}]" if ":" in host else host


def _host(address: str, host: str) -> str:
    """Return a host in ASCII."""
    if (own := number(host)) is not None:
        return str(own)
    if NAME.fullmatch(host):
        return host.lower()
    try:
        encoded = idna.encode(host.rstrip("."), uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise InputError(f"--address {address!r}: {host!r} is no name of a host: {error}") from None
    return encoded


def is_loopback(host: str) -> bool:
    """Return whether a host is only this machine."""
    own = number(host)
    return host == "localhost" if own is None else own.is_loopback
