"""Permits: what a study may ask of which sites and until when, signed by coordinator and site.

A permit is a file, ``permit.toml``, with its signatures beside it, ``permit.sig``. What is signed
is not the file but its content in one form (`Permit.canonical`): comments and spaces do not count.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509 import load_pem_x509_certificate

from fedcluster.errors import InputError
from fedcluster.io._outputs import write_json

PERMIT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
GRANTED = "granted by the coordinator"
"""What a coordinator signs that a permit is."""
NO_PERMIT = "this site answers under a permit only"
NOT_COVERED = "does not cover"
"""What a site says where a question names no permit that it has accepted."""

STEPS = (
    *("SiteSize", "Missing", "Means", "Squares", "SiteSummaries", "VarianceTree", "Lloyd"),
    *("Inertia", "Moments", "ColumnSpread", "Spread", "Scatter", "SimplifiedSilhouette"),
    *("SquaredSilhouette", "MixtureLikelihood"),
    *("ColumnShape", "Covariance", "AxisCounts", "GaussianMixture", "MixtureOverlap"),
    *("SphericalKMeans", "TrimmedLloyd", "IncompleteKMeans", "PresentInertia"),
    *("ClusterColumns", "ClusterCells", "Agreement", "Separation"),
    *("ClusterSilhouettes", "LogLikelihood"),
)
"""The steps that fits, choices of k and evaluations ask, whatever they cluster by, but for fuzzy
clusters and algorithms that are asked for by name."""
LABEL_STEPS = ("Contingency", "SiteARI")
"""The steps that compare clusters with labels."""


@dataclass(frozen=True, slots=True)
class Permit:
    """What a study may ask.

    Parameters
    ----------
    id : str
        Its name: letters, digits, - and _, at most 64.
    purpose : str
        What for, in one line.
    coordinator : str
        Who may ask: the SHA-256 of the certificate that vouches for the coordinator.
    sites : tuple of str
        The sites that may be asked.
    columns : tuple of str
        The columns that may be used.
    labels : bool
        Whether the labels of the rows may be asked for.
    steps : tuple of str
        The steps that may be asked, by their registered names.
    rounds : int
        How many questions each site answers.
    start, end : date
        The first and the last day, in UTC.
    """

    id: str
    purpose: str
    coordinator: str
    sites: tuple[str, ...]
    columns: tuple[str, ...]
    labels: bool
    steps: tuple[str, ...]
    rounds: int
    start: date
    end: date

    @classmethod
    def load(cls, path: Path) -> Permit:
        """Read a permit; signatures are checked by `check_signature`.

        Raises
        ------
        InputError
            If it cannot be read, lacks a key, or has one that is unknown or means nothing.
        """
        with _readable(path, "no permit: it is not TOML"):
            content: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        names = [field.name for field in fields(cls)]
        if wrong := sorted(set(names) ^ set(content)):
            raise InputError(f"{path}: a permit has {', '.join(names)}; wrong is {wrong[0]!r}")
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content.items()
        }
        permit = cls(**values)
        permit.check(str(path))
        return permit

    def check(self, where: str) -> None:
        """Check that all that it says means something.

        Raises
        ------
        InputError
            Naming what does not, after ``where``.
        """
        if reason := self._lacks():
            raise InputError(f"{where}: {reason}")

    def _lacks(self) -> str | None:
        texts: dict[str, tuple[str, ...]] = {
            "purpose": (self.purpose,),
            "coordinator": (self.coordinator,),
        }
        texts |= {"sites": self.sites, "columns": self.columns, "steps": self.steps}
        for key, values in texts.items():
            if not isinstance(values, tuple) or not values or not all(map(_is_text, values)):
                return f"{key} must be text without control characters, and not empty"
        if not isinstance(self.id, str) or not PERMIT_ID.fullmatch(self.id):
            return f"id {self.id!r}: use at most 64 letters, digits, - and _"
        if type(self.rounds) is not int or self.rounds < 1:
            return f"rounds must be a whole number of at least 1, not {self.rounds!r}"
        if not isinstance(self.labels, bool):
            return f"labels must be true or false, not {self.labels!r}"
        if type(self.start) is not date or type(self.end) is not date:
            return "start and end must be days, as in end = 2030-12-31"
        return "end is before start" if self.end < self.start else None

    def plain(self) -> dict[str, Any]:
        """Return the permit as JSON can hold it."""
        return asdict(self) | {"start": str(self.start), "end": str(self.end)}

    @property
    def canonical(self) -> bytes:
        """What is signed: JSON with sorted keys and without spaces."""
        return json.dumps(self.plain(), sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """The SHA-256 of the canonical form."""
        return sha256(self.canonical).hexdigest()

    def text(self) -> str:
        """Return the permit as a file."""
        values = {k: v if isinstance(v, date) else _quoted(v) for k, v in asdict(self).items()}
        return "".join(f"{key} = {value}\n" for key, value in values.items())


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def new_key() -> tuple[bytes, bytes]:
    """Make a key to sign with; return the content of the private and of the public file."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, public_file(key)


def make_key(path: Path) -> None:
    """Write a new key to sign with, which only the owner may read; a file that is there stays."""
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(new_key()[0])


def public_file(key: Ed25519PrivateKey) -> bytes:
    """Return the content of the public file of a key to sign with."""
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def load_key(path: Path) -> Ed25519PrivateKey:
    """Read a key to sign with, of `new_key`."""
    with _readable(path, "no key to sign permits with"):
        key = load_ssh_private_key(path.read_bytes(), None)
        if not isinstance(key, Ed25519PrivateKey):
            raise TypeError
    return key


def load_public_key(path: Path) -> Ed25519PublicKey:
    """Read the key that signatures are checked by, of `new_key`."""
    with _readable(path, "no key to check permits by"):
        key = load_ssh_public_key(path.read_bytes())
        if not isinstance(key, Ed25519PublicKey):
            raise TypeError
    return key


def authority_digest(certificate: Path) -> str:
    """Return the SHA-256 of the certificate that vouches for a coordinator."""
    with _readable(certificate, "no certificate"):
        return load_pem_x509_certificate(certificate.read_bytes()).fingerprint(SHA256()).hex()


def coordinator_identity(authority: Path | None, host: str) -> str:
    """Return by what permits and logs know a coordinator.

    That is the SHA-256 of the certificate of its own authority. Where a public one vouches for it,
    it is whoever has a certificate of the host, and so that of the host's name.
    """
    return (
        sha256(f"host {host}".encode()).hexdigest()
        if authority is None
        else (authority_digest(authority))
    )


@contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path} holds {what}") from error


def accepted(site: str) -> str:
    """Return what a site signs that a permit is."""
    return f"accepted by {site}"


def sign(path: Path, permit: Permit, role: str, key: Ed25519PrivateKey) -> None:
    """Add a signature to those of a permit.

    Parameters
    ----------
    path : Path
        The file of the signatures, which need not exist.
    permit : Permit
        What is signed.
    role : str
        As what: `GRANTED`, or what `accepted` returns.
    key : Ed25519PrivateKey
        The signer's key.
    """
    signature = b64encode(key.sign(_message(permit, role))).decode()
    about = {"key": public_file(key).decode(), "signature": signature}
    write_json(path, {**(signatures(path) if path.exists() else {}), role: about})


def signatures(path: Path) -> dict[str, Any]:
    """Read the signatures of a permit, by role."""
    with _readable(path, "no signatures of a permit"):
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if not isinstance(content, dict):
            raise TypeError
    return content


def check_signature(path: Path, permit: Permit, role: str, key: Ed25519PublicKey) -> None:
    """Check that the holder of a key signed a permit.

    Raises
    ------
    InputError
        If the file has no such signature, or it is of another content or key.
    """
    given = signatures(path)
    try:
        signature = b64decode(given[role]["signature"], validate=True)
        key.verify(signature, _message(permit, role))
    except (LookupError, TypeError, ValueError, InvalidSignature) as error:
        raise InputError(
            f"{path}: permit {permit.id!r} is not {role} with the key that is known here: it was "
            "changed after that, or signed by another"
        ) from error


def _message(permit: Permit, role: str) -> bytes:
    return f"fedcluster permit, {role}\n".encode() + permit.canonical
