"""The address of a coordinator: the one for sites, and where it listens on its own machine."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

import idna

from fedcluster.errors import InputError

ALL, ALL_V6 = "0.0.0.0", "::"
"""Numbers that stand for all of a machine, old and new."""

NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")
"""A name in ASCII; an underscore is in names of containers."""

EXAMPLE = "as in 127.0.0.1:8443 or [::1]:8443"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a coordinator is.

    Parameters
    ----------
    host : str
        The name or number by which sites reach it, in ASCII.
    port : int
        The port.
    bind : str, optional
        The number of its machine that it listens at. Without it, that is the host where this is
        a loopback number, or else all of the machine, by numbers of the same kind as the host.
    """

    host: str
    port: int
    bind: str | None = None

    @classmethod
    def read(cls, address: str, bind: str | None = None) -> Address:
        """Read HOST:PORT; a name with other letters than ASCII's is encoded (IDNA 2008).

        Raises
        ------
        InputError
            If it, or what it listens at, means nothing.

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
            raise InputError(f"--bind {bind!r} must be a number of this machine, or 0.0.0.0 or ::")
        return cls(_host(address, bare), int(port), bind)

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Return whether sites of this machine alone can reach it."""
        return is_loopback(self.host) and (self.bind is None or is_loopback(self.bind))

    @property
    def listens(self) -> str:
        """Return the number that the coordinator listens at."""
        if self.bind is not None:
            return self.bind
        own = number(self.host)
        if own is None:
            return "127.0.0.1" if self.host == "localhost" else ALL
        return str(own) if own.is_loopback else ALL_V6 if own.version == 6 else ALL

    @property
    def local(self) -> str:
        """Return HOST:PORT for programs of the coordinator's machine."""
        here = {ALL: "127.0.0.1", ALL_V6: "::1"}
        return f"{bracketed(here.get(self.listens, self.listens))}:{self.port}"

    @property
    def names(self) -> tuple[str, ...]:
        """Return what a certificate names: the host, and where the coordinator listens."""
        wild = self.bind is None or number(self.bind) in (number(ALL), number(ALL_V6))
        return (self.host,) if wild else (self.host, str(self.bind))


def number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return a host as a number, None where it is a name."""
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None


def bracketed(host: str) -> str:
    """Return a host as it stands before a port."""
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
    """Return whether a host is this machine alone."""
    own = number(host)
    return host == "localhost" if own is None else own.is_loopback
