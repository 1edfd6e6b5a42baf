"""Operators: the people who may start runs, identified by tokens stored only as hashes."""

from __future__ import annotations

import getpass
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from fedcluster.core.files import json_text
from fedcluster.errors import InputError
from fedcluster.texts import command_line
from fedcluster_app.records import load_record
from fedcluster_app.trust.audit_log import AuditLog
from fedcluster_app.trust.owned_files import check_private, commit, locked, private_files

OWN = {"line", "previous", "time", "salt", "event", "hash"}
"""Keys that every line of a log has."""

OPERATORS = "operators.json"
"""The file of the operators, in the folder of a federation."""

TOKEN = "operator.token"
"""The file of an operator's own token, in the folder of a federation or of an operator."""

VARIABLE = "FEDCLUSTER_TOKEN"
"""The environment variable of a token, which precedes any file."""

FIRST = "owner"
"""The name of the operator that is created with a federation."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,39}")
PREFIX = "fedcluster-"
"""Prefix of tokens, so that a search for secrets finds them."""


class Operator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Person or program that may start runs.

    Parameters
    ----------
    name : str
        The name, as in the logs.
    digest : str
        The SHA-256 of the token. A token has 256 random bits, so that no slow hash is needed.
    admin : bool
        Whether the operator may cancel, resume and read others' runs, and use their own code.
    added : str
        When the token was created, in UTC.
    """

    name: str
    digest: str
    admin: bool = False
    added: str = ""


class _Operators(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the file of the operators."""

    operators: list[Operator]


def new_operator(name: str, *, admin: bool) -> tuple[Operator, str]:
    """Return a new operator and the token, which is stored nowhere else.

    Raises
    ------
    InputError
        If the name is invalid.
    """
    if not NAME.fullmatch(name):
        raise InputError(
            f"operator {name!r}: use letters, digits, -, _, . and @, at most 40 of them, and begin "
            "with a letter or digit"
        )
    token = PREFIX + secrets.token_urlsafe(32)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Operator(name, _digest(token), admin, now), token


def first_files() -> dict[str, bytes]:
    """Return the files of a new federation's first operator: the list and the token."""
    operator, token = new_operator(FIRST, admin=True)
    return {OPERATORS: _text([operator]), TOKEN: f"{token}\n".encode()}


def operators(folder: Path) -> tuple[Operator, ...]:
    """Return the operators of a federation, none if there is no file of them.

    Raises
    ------
    InputError
        If the file is damaged, or others may read or change it.
    """
    path = folder / OPERATORS
    check_private([path], secret=[path])
    return tuple(load_record(path, _Operators).operators) if path.exists() else ()


def operator_of(folder: Path, token: str) -> Operator | None:
    """Return the operator with this token, or None; tokens are compared in constant time."""
    digest = _digest(token)
    known = [each for each in operators(folder) if hmac.compare_digest(each.digest, digest)]
    return known[0] if known else None


def add_operator(folder: Path, name: str, *, admin: bool) -> str:
    """Add an operator to a federation and return the token.

    Raises
    ------
    InputError
        If the name is invalid or taken.
    """
    operator, token = new_operator(name, admin=admin)
    with _changing(folder) as known:
        if any(each.name.casefold() == name.casefold() for each in known):
            raise InputError(
                f"operator {name!r} has a token; remove it first: "
                f"{command_line('federation', 'operator', folder, name, '--remove')}"
            )
        known.append(operator)
    return token


def remove_operator(folder: Path, name: str) -> None:
    """Remove an operator, whose token is refused from now on.

    Raises
    ------
    InputError
        If there is no such operator.
    """
    with _changing(folder) as known:
        names = [each.name for each in known]
        if name not in names:
            raise InputError(f"there is no operator {name!r}; there are: {', '.join(names)}")
        del known[names.index(name)]


def own_token(folder: Path) -> str:
    """Return the current user's token, from the environment or a file in a folder.

    Raises
    ------
    InputError
        If there is none that can be one, or others may read the file.
    """
    if token := os.environ.get(VARIABLE, "").strip():
        return token
    path = folder / TOKEN
    check_private([path], secret=[path])
    with suppress(OSError):
        token = path.read_text("utf-8", errors="replace").strip()
        if re.fullmatch("[!-~]+", token):
            return token
    raise InputError(
        f"runs need an operator's token: set {VARIABLE}, or write it to {path} (an "
        f"administrator makes one: {command_line('federation', 'operator', folder, 'NAME')})"
    )


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", errors="replace")).hexdigest()


def _text(known: Iterable[Operator]) -> bytes:
    return json_text({"operators": list(map(msgspec.structs.asdict, known))}).encode()


@contextmanager
def _changing(folder: Path) -> Iterator[list[Operator]]:
    """Yield the operators for changes, by one command at a time."""
    with private_files(), locked(folder):
        known = list(operators(folder))
        yield known
        commit(folder, {OPERATORS: _text(known)})


def operators_log(folder: Path) -> AuditLog:
    """Return the log of a federation's operators."""
    return AuditLog(folder / "audit.jsonl", "coordinator")


def noted(folder: Path, event: str, **more: Any) -> None:
    """Log a change of a federation, with the local user who made it.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    event : str
        The change.
    **more : object
        The object of the change: a site, an operator, a permit and so on.
    """
    user = os.environ.get("SUDO_USER") or getpass.getuser()
    operators_log(folder).append(lambda _: {"event": event, **more, "by": user})


def log_line(line: Mapping[str, Any]) -> str:
    """Return a line of the log in readable form.

    Examples
    --------
    >>> log_line({"time": "2026-11-22T10:00:00Z", "event": "run", "operator": "ada", "run": "r1"})
    '2026-11-22T10:00:00Z run operator=ada run=r1'
    """
    more = {key: value for key, value in line.items() if key not in OWN and value is not None}
    words = (f"{key}={value}" for key, value in more.items())
    return " ".join([str(line["time"]), str(line["event"]), *words])
