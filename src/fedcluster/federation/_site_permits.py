"""Permits at a site: which it has accepted, and whether a question is covered by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from fedcluster.engines._protocol import planned_of
from fedcluster.engines._wire import Header, WireError, is_texts
from fedcluster.errors import InputError
from fedcluster.federation._audit_log import AuditLog, Head, Line
from fedcluster.federation._permits import (
    GRANTED,
    LABEL_STEPS,
    NO_PERMIT,
    NOT_COVERED,
    Permit,
    accepted,
    check_signature,
    load_key,
    load_public_key,
    make_key,
    sign,
    signatures,
)
from fedcluster.io._outputs import atomic_write, write_json

State = Mapping[str, Any]
"""What became of a permit: the digest that was accepted, how many rounds are used, the hash of the
last question that was answered, whether it was revoked."""


@dataclass(frozen=True, slots=True)
class SitePermits:
    """The permits of a site.

    Which are accepted, how often each was used and which are revoked stands in the log of what left
    and nowhere else: without that log no permit is accepted.

    Parameters
    ----------
    folder : Path
        The folder of accepted permits.
    site : str
        The name of the site.
    coordinator : str
        By what permits know the coordinator, see `coordinator_identity`.
    granter : Path
        The coordinator's key that permits are checked by.
    key : Path
        The site's own key to sign with; it is made here when it is first needed.
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
            If it is not signed by the coordinator, or for another federation or site.
        """
        permit = Permit.load(path)
        check_signature(path.with_suffix(".sig"), permit, GRANTED, load_public_key(self.granter))
        if permit.coordinator != self.coordinator:
            raise InputError(f"{path}: permit {permit.id!r} is of another federation")
        if self.site not in permit.sites:
            raise InputError(f"{path}: permit {permit.id!r} is not for site {self.site!r}")
        return permit

    def accept(self, path: Path, log: AuditLog) -> Permit:
        """Sign a permit, keep it and write that down; the count of its rounds goes on, if any.

        Raises
        ------
        InputError
            As `read`, and if its last day is over.
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

    def _keep(self, permit: Permit, signed: Mapping[str, Any]) -> None:
        make_key(self.key)
        self.folder.mkdir(exist_ok=True)
        kept = self._file(permit.id)
        with atomic_write(kept) as temporary:
            temporary.write_text(permit.text(), encoding="utf-8")
        write_json(kept.with_suffix(".sig"), {GRANTED: signed[GRANTED]})
        sign(kept.with_suffix(".sig"), permit, accepted(self.site), load_key(self.key))

    def revoke(self, name: str, log: AuditLog) -> None:
        """Write down that a permit is accepted no longer.

        Raises
        ------
        InputError
            If it never was.
        """

        def entry(head: Head) -> Line:
            if name not in head.permits:
                known = ", ".join(head.permits) or "none"
                raise InputError(f"permit {name!r} was never accepted here; there is {known}")
            return _entry("revoked", name, {**head.permits[name], "revoked": True})

        log.append(entry)

    def known(self, head: Head) -> list[tuple[Permit, State]]:
        """Return the permits that were accepted here, with what became of each."""
        return [(self._accepted(name, state), state) for name, state in head.permits.items()]

    def sites(self, name: str) -> tuple[str, ...]:
        """Return the sites of a permit whose use was admitted.

        Raises
        ------
        InputError
            As `read`.
        """
        return self.read(self._file(name)).sites

    def admit(self, asked: Asked, head: Head) -> Permit:
        """Return the permit that covers a question.

        Raises
        ------
        WireError
            If none does, in words for the coordinator.
        InputError
            If the permit at the site was changed; the words are for the site.
        """
        state = head.permits.get(asked.permit)
        if state is None:
            raise WireError(f"{NO_PERMIT}, and the question names none that it has accepted")
        permit = self._accepted(asked.permit, state)
        if reason := _not_covered(permit, state, asked, head):
            raise WireError(f"permit {permit.id!r} {reason}")
        return permit

    def _accepted(self, name: str, state: State) -> Permit:
        """Return an accepted permit, as it was accepted."""
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
    """What a question needs to be covered by a permit.

    Parameters
    ----------
    permit : str
        The permit that it names, empty if none.
    columns : tuple of str
        The columns that it is about.
    named : bool
        Whether it names them itself; else they are those that the site has.
    labels : bool
        Whether it asks for the labels of the rows.
    steps : frozenset of str
        The steps that it asks, and those that its run will ask.
    question : str
        Its hash: one that is asked again is the same round.
    """

    permit: str
    columns: tuple[str, ...]
    named: bool
    labels: bool
    steps: frozenset[str]
    question: str

    @classmethod
    def from_header(cls, header: Header, question: str, own: Sequence[str]) -> Asked:
        """Read what the header of a question asks of a site that has its own columns.

        Raises
        ------
        WireError
            If it is not understood.
        """
        columns, tasks = header.get("columns"), header.get("tasks", [])
        described = header.get("described", [])
        if not is_texts(described) or not (columns is None or is_texts(columns)):
            raise WireError("the columns that are asked for are not a list of names")
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise WireError("the tasks are not a list")
        steps = frozenset(str(task.get("step")) for task in [*tasks, *planned_of(header)])
        return cls(
            permit=str(header.get("permit", "")),
            columns=(*(own if columns is None else columns), *described),
            named=columns is not None,
            labels="labels" in header or not steps.isdisjoint(LABEL_STEPS),
            steps=steps,
            question=question,
        )


def next_round(permit: Permit, asked: Asked, head: Head) -> dict[str, Any]:
    """Return what the log's line says of the use of a permit by a question that is answered."""
    state = head.permits[permit.id]
    used = state["used"] + (state["last"] != asked.question)
    new = {**state, "used": used, "last": asked.question}
    return {"permit": permit.id, "permits": {permit.id: new}}


def _not_covered(permit: Permit, state: State, asked: Asked, head: Head) -> str | None:
    """Return why a permit does not cover a question, None where it does."""
    if state["revoked"]:
        return "was revoked by this site"
    if not permit.start <= _today(head) <= permit.end:
        return f"is for the days from {permit.start} to {permit.end}, UTC"
    if state["used"] >= permit.rounds and state["last"] != asked.question:
        return f"is for {permit.rounds:,} rounds, and all are used"
    if columns := [name for name in asked.columns if name not in permit.columns]:
        listed = f": {', '.join(columns)}" if asked.named else "; name those that it does"
        return f"{NOT_COVERED} all columns{listed}"
    if asked.labels and not permit.labels:
        return f"{NOT_COVERED} labels"
    if steps := sorted(asked.steps - set(permit.steps)):
        return f"{NOT_COVERED} step {steps[0]!r}"
    return None


def _today(head: Head) -> date:
    """Return the day, which does not go back behind the log where a clock does."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return date.fromisoformat(max(now, head.latest)[:10])


def _entry(what: str, name: str, state: State) -> Line:
    return {"event": f"permit {what}", "permit": name, "permits": {name: state}}
