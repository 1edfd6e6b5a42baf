"""Permits: what a study may ask of which sites until when, signed by coordinator and site.

A permit is a file, ``permit.toml``, with its signatures beside it, ``permit.sig``. The signature
covers the canonical form of the content (`Permit.canonical`), not comments and spaces.

A site stores the permits that it has accepted, and checks whether a question is covered by one.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
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
from msgspec import Struct, structs

from fedcluster.core.files import atomic_write, write_json
from fedcluster.engines.wire import Header, WireError, is_texts, planned_of
from fedcluster.errors import InputError
from fedcluster_app.records import load_record
from fedcluster_app.trust.audit_log import AuditLog, Head, Line

PERMIT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
GRANTED = "granted by the coordinator"
"""Role in which a coordinator signs a permit."""
NO_PERMIT = "this site answers under a permit only"
NOT_COVERED = "does not cover"
"""Message of a site for a question without an accepted permit."""

STEPS = (
    *("SiteSize", "Missing", "Means", "Squares", "Histogram", "SiteSummaries", "VarianceTree"),
    *("Lloyd", "Inertia", "Moments", "ColumnSpread", "Spread", "Scatter", "SimplifiedSilhouette"),
    *("SquaredSilhouette", "MixtureLikelihood"),
    *("ColumnShape", "Covariance", "AxisCounts", "GaussianMixture", "MixtureOverlap"),
    *("LeafMoments", "MergedMixture"),
    *("SphericalKMeans", "TrimmedLloyd", "IncompleteKMeans", "PresentInertia"),
    "FKM",
    *("ClusterColumns", "ClusterCells", "Agreement", "Separation"),
    *("ClusterSilhouettes", "LogLikelihood"),
)
"""Steps of fits, choices of k and evaluations of any clustering, except for fuzzy
clusters and algorithms that are requested by name."""
LABEL_STEPS = ("Contingency", "SiteARI")
"""The steps that compare clusters with labels."""


@dataclass(frozen=True, slots=True)
class Permit:
    """Permit: what a study may ask.

    Parameters
    ----------
    id : str
        Its name: letters, digits, - and _, at most 64.
    purpose : str
        The purpose in one line.
    coordinator : str
        The coordinator, by the SHA-256 of the certificate that vouches for it.
    sites : tuple of str
        The sites that may be asked.
    columns : tuple of str
        The columns that may be used.
    labels : bool
        Whether the labels of the rows may be requested.
    steps : tuple of str
        The steps that may be asked, by their registered names.
    rounds : int
        The number of questions that each site answers.
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
            If it cannot be read, or a key is missing, unknown or invalid.
        """
        permit = load_record(path, cls)
        permit.check(str(path))
        return permit

    def check(self, where: str) -> None:
        """Check that all values of the permit are valid.

        Raises
        ------
        InputError
            With the invalid value, after ``where``.
        """
        if reason := self._lacks():
            raise InputError(f"{where}: {reason}")

    def _lacks(self) -> str | None:
        texts: dict[str, tuple[str, ...]] = {
            "purpose": (self.purpose,),
            "coordinator": (self.coordinator,),
            "sites": self.sites,
            "columns": self.columns,
            "steps": self.steps,
        }
        for key, values in texts.items():
            if not values or not all(each.strip() and each.isprintable() for each in values):
                return f"{key} must be text without control characters, and not empty"
        if not PERMIT_ID.fullmatch(self.id):
            return f"id {self.id!r}: use at most 64 letters, digits, - and _"
        if self.rounds < 1:
            return f"rounds must be a whole number of at least 1, not {self.rounds!r}"
        return "end is before start" if self.end < self.start else None

    def plain(self) -> dict[str, Any]:
        """Return the permit as JSON-compatible values."""
        return asdict(self) | {"start": str(self.start), "end": str(self.end)}

    @property
    def canonical(self) -> bytes:
        """The signed form: JSON with sorted keys and without spaces."""
        return json.dumps(self.plain(), sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """The SHA-256 of the canonical form."""
        return sha256(self.canonical).hexdigest()

    def text(self) -> str:
        """Return the permit in the form of a file."""
        quoted = partial(json.dumps, ensure_ascii=False)
        values = {k: v if isinstance(v, date) else quoted(v) for k, v in asdict(self).items()}
        return "".join(f"{key} = {value}\n" for key, value in values.items())


def new_key() -> tuple[bytes, bytes]:
    """Create a signing key; return the content of the private and the public file."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, public_text(key.public_key()).encode()


def make_key(path: Path) -> None:
    """Write a new signing key, private to its owner; an existing file is kept."""
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(new_key()[0])


def public_text(key: Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey) -> str:
    """Return a public key in the form of its file and of ``peers.toml``."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def load_key(path: Path) -> Ed25519PrivateKey:
    """Read a private signing key written by `new_key`."""
    with _readable(path, "no key to sign permits with"):
        key = load_ssh_private_key(path.read_bytes(), None)
        if not isinstance(key, Ed25519PrivateKey):
            raise TypeError
    return key


def load_public_key(path: Path) -> Ed25519PublicKey:
    """Read a public key, written by `new_key`, that verifies signatures."""
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
    """Return the identity of a coordinator in permits and logs.

    It is the SHA-256 of the certificate of its own authority. With a public authority, the
    coordinator is whoever has a certificate for the host, so it is the SHA-256 of the host's name.
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
    """Return the role in which a site signs a permit."""
    return f"accepted by {site}"


def sign(path: Path, permit: Permit, role: str, key: Ed25519PrivateKey) -> None:
    """Add a signature to those of a permit.

    Parameters
    ----------
    path : Path
        The file of the signatures, which need not exist.
    permit : Permit
        The permit to sign.
    role : str
        The role: `GRANTED`, or the result of `accepted`.
    key : Ed25519PrivateKey
        The signer's key.
    """
    signature = b64encode(key.sign(_message(permit, role))).decode()
    signed = signatures(path) if path.exists() else {}
    signed[role] = Signature(public_text(key.public_key()), signature)
    write_json(path, {role: structs.asdict(each) for role, each in signed.items()})


class Signature(Struct, forbid_unknown_fields=True, frozen=True):
    """Signature of a permit and the public key of its signer, both as text."""

    key: str
    signature: str


def signatures(path: Path) -> dict[str, Signature]:
    """Return the signatures of a permit, by role."""
    return load_record(path, dict[str, Signature])


def check_signature(path: Path, permit: Permit, role: str, key: Ed25519PublicKey) -> None:
    """Check that the holder of a key signed a permit.

    Raises
    ------
    InputError
        If the file has no such signature, or it belongs to another content or key.
    """
    signed = signatures(path)
    try:
        signature = b64decode(signed[role].signature, validate=True)
        key.verify(signature, _message(permit, role))
    except (LookupError, TypeError, ValueError, InvalidSignature) as error:
        raise InputError(
            f"{path}: permit {permit.id!r} is not {role} with the key that is known here: it was "
            "changed afterwards, or signed with another key"
        ) from error


def _message(permit: Permit, role: str) -> bytes:
    return f"fedcluster permit, {role}\n".encode() + permit.canonical


State = Mapping[str, Any]
"""State of a permit: the accepted digest, the number of rounds used, the hash of the last
answered question, and whether it was revoked."""


@dataclass(frozen=True, slots=True)
class SitePermits:
    """The permits of a site.

    The acceptance, use and revocation of permits are recorded only in the site's log: without that
    log, no permit is accepted.

    Parameters
    ----------
    folder : Path
        The folder of accepted permits.
    site : str
        The name of the site.
    coordinator : str
        The identity of the coordinator in permits; see `coordinator_identity`.
    granter : Path
        The coordinator's public key that verifies permits.
    key : Path
        The site's own signing key, created when it is first needed.
    """

    folder: Path
    site: str
    coordinator: str
    granter: Path
    key: Path

    def read(self, path: Path) -> Permit:
        """Read a permit that the coordinator offers.

        Raises
        ------
        InputError
            If it is not signed by the coordinator, or belongs to another federation or site.
        """
        permit = Permit.load(path)
        check_signature(path.with_suffix(".sig"), permit, GRANTED, load_public_key(self.granter))
        if permit.coordinator != self.coordinator:
            raise InputError(f"{path}: permit {permit.id!r} is of another federation")
        if self.site not in permit.sites:
            raise InputError(f"{path}: permit {permit.id!r} is not for site {self.site!r}")
        return permit

    def accept(self, path: Path, log: AuditLog) -> Permit:
        """Sign a permit, store it and log that; an existing count of its rounds continues.

        Raises
        ------
        InputError
            As in `read`, and if its last day has passed.
        """
        permit = self.read(path)

        def entry(head: Head) -> Line:
            if _today(head) > permit.end:
                raise InputError(f"{path}: the last day of permit {permit.id!r} is over")
            self._keep(permit, signatures(path.with_suffix(".sig")))
            old = head.permits.get(permit.id, {"used": 0, "last": ""})
            return _entry("accepted", permit.id, {**old, "digest": permit.digest, "revoked": False})

        log.append(entry)
        return permit

    def _keep(self, permit: Permit, signed: Mapping[str, Signature]) -> None:
        make_key(self.key)
        self.folder.mkdir(exist_ok=True)
        kept = self._file(permit.id)
        with atomic_write(kept) as temporary:
            temporary.write_text(permit.text(), encoding="utf-8")
        write_json(kept.with_suffix(".sig"), {GRANTED: structs.asdict(signed[GRANTED])})
        sign(kept.with_suffix(".sig"), permit, accepted(self.site), load_key(self.key))

    def revoke(self, name: str, log: AuditLog) -> None:
        """Record that a permit is no longer accepted.

        Raises
        ------
        InputError
            If it was never accepted.
        """

        def entry(head: Head) -> Line:
            if name not in head.permits:
                known = ", ".join(head.permits) or "none"
                raise InputError(f"permit {name!r} was never accepted here; there is {known}")
            return _entry("revoked", name, {**head.permits[name], "revoked": True})

        log.append(entry)

    def known(self, head: Head) -> list[tuple[Permit, State]]:
        """Return the permits that were accepted here, with their states."""
        return [(self._accepted(name, state), state) for name, state in head.permits.items()]

    def sites(self, name: str) -> tuple[str, ...]:
        """Return the sites of a permit under which a request was admitted.

        Raises
        ------
        InputError
            As in `read`.
        """
        return self.read(self._file(name)).sites

    def admit(self, request: Asked, head: Head) -> Permit:
        """Return the permit that covers a question.

        Raises
        ------
        WireError
            If there is none, in words for the coordinator.
        InputError
            If the permit at the site was changed, in words for the site.
        """
        state = head.permits.get(request.permit)
        if state is None:
            raise WireError(f"{NO_PERMIT}, and the question names none that it has accepted")
        permit = self._accepted(request.permit, state)
        if reason := _not_covered(permit, state, request, head):
            raise WireError(f"permit {permit.id!r} {reason}")
        return permit

    def _accepted(self, name: str, state: State) -> Permit:
        """Return an accepted permit after checking that it is unchanged."""
        path = self._file(name)
        permit = self.read(path)
        own = load_key(self.key).public_key()
        check_signature(path.with_suffix(".sig"), permit, accepted(self.site), own)
        if permit.digest != state["digest"]:
            raise InputError(f"{path} is not the permit that was accepted: accept it again")
        return permit

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.toml"


@dataclass(frozen=True, slots=True)
class Asked:
    """Requirements of a question on a permit.

    Parameters
    ----------
    permit : str
        The permit that the question names, empty if none.
    columns : tuple of str
        The columns that the question is about.
    named : bool
        Whether the question names them; otherwise they are those of the site.
    labels : bool
        Whether the question asks for labels.
    steps : frozenset of str
        The steps in the question, those by which its preparations assign rows, and those planned
        in its run.
    question : str
        The hash of the question: a repeated question is the same round.
    """

    permit: str
    columns: tuple[str, ...]
    named: bool
    labels: bool
    steps: frozenset[str]
    question: str

    @classmethod
    def from_header(cls, header: Header, question: str, own: Sequence[str]) -> Asked:
        """Read the requirements of a question from its header, for a site with its own columns.

        Raises
        ------
        WireError
            If the header is not understood.
        """
        columns, tasks = header.get("columns"), header.get("tasks", [])
        described = header.get("described", [])
        if not is_texts(described) or not (columns is None or is_texts(columns)):
            raise WireError("the columns that are asked for are not a list of names")
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise WireError("the tasks are not a list")
        named = [*tasks, *planned_of(header)]
        named += [each for task in tasks for each in _within(task.get("preprocessing"))]
        steps = frozenset(str(each.get("step")) for each in named)
        return cls(
            permit=str(header.get("permit", "")),
            columns=(*(own if columns is None else columns), *described),
            named=columns is not None,
            labels="labels" in header or not steps.isdisjoint(LABEL_STEPS),
            steps=steps,
            question=question,
        )


def _within(how: Any) -> list[dict[str, Any]]:
    """Return the tasks by which a preparation assigns rows to clusters, as JSON.

    Raises
    ------
    WireError
        If they are not understood.
    """
    if not isinstance(how, dict):  # none, or the number of an earlier task with the same
        return []
    parts = how.get("crossed", [how])
    try:
        return [dict(part["assigned"]["task"]) for part in parts if "assigned" in part]
    except (LookupError, TypeError, ValueError) as error:
        raise WireError("the preparation of a task is not understood") from error


def next_round(permit: Permit, request: Asked, head: Head) -> dict[str, Any]:
    """Return the log's fields for the use of a permit by an answered question."""
    state = head.permits[permit.id]
    used = state["used"] + (state["last"] != request.question)
    new = {**state, "used": used, "last": request.question}
    return {"permit": permit.id, "permits": {permit.id: new}}


def _not_covered(permit: Permit, state: State, request: Asked, head: Head) -> str | None:
    """Return why a permit does not cover a question, None if it does."""
    if state["revoked"]:
        return "was revoked by this site"
    if not permit.start <= _today(head) <= permit.end:
        return f"is for the days from {permit.start} to {permit.end}, UTC"
    if state["used"] >= permit.rounds and state["last"] != request.question:
        return f"is for {permit.rounds:,} rounds, and all are used"
    if columns := [name for name in request.columns if name not in permit.columns]:
        listed = f": {', '.join(columns)}" if request.named else "; name those that it does"
        return f"{NOT_COVERED} all columns{listed}"
    if request.labels and not permit.labels:
        return f"{NOT_COVERED} labels"
    if steps := sorted(request.steps - set(permit.steps)):
        return f"{NOT_COVERED} step {steps[0]!r}"
    return None


def _today(head: Head) -> date:
    """Return the day, which never precedes the log even if the clock goes back."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return date.fromisoformat(max(now, head.latest)[:10])


def _entry(what: str, name: str, state: State) -> Line:
    return {"event": f"permit {what}", "permit": name, "permits": {name: state}}
