"""Operators: the people who may start runs, each known by a token of which only a hash is kept."""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster.federation._private import check_private, private_files
from fedcluster.io._outputs import atomic_write, json_text

OPERATORS = "operators.json"
"""The file of the operators, in the folder of a federation."""

TOKEN = "operator.token"
"""The file of an operator's own token, in the folder of a federation or of an operator."""

VARIABLE = "FEDCLUSTER_TOKEN"
"""The environment variable that names a token, before any file does."""

FIRST = "owner"
"""The name of the operator that is made with a federation."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,39}")
PREFIX = "fedcluster-"
"""How a token begins, so that a search for secrets finds it."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A person, or a program, who may start runs.

    Parameters
    ----------
    name : str
        The name, as it stands in the logs.
    digest : str
        The SHA-256 of the token. A token has 256 random bits, so that no slow hash is needed.
    admin : bool
        Whether also the runs of others may be cancelled, resumed and read, and own code asked for.
    added : str
        When the token was made, UTC.
    """

    name: str
    digest: str
    admin: bool = False
    added: str = ""


def new_operator(name: str, *, admin: bool) -> tuple[Operator, str]:
    """Return an operator and the token, which is kept nowhere else.

    Raises
    ------
    InputError
        If the name is none.
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
    """Return the files of a new federation's first operator: the list, and the token."""
    operator, token = new_operator(FIRST, admin=True)
    return {OPERATORS: _text([operator]).encode(), TOKEN: f"{token}\n".encode()}


def operators(folder: Path) -> tuple[Operator, ...]:
    """Return the operators of a federation, none where the file is not there.

    Raises
    ------
    InputError
        If the file is damaged, or others may read or change it.
    """
    path = folder / OPERATORS
    try:
        check_private([path], secret=[path])
        told = json.loads(path.read_text("utf-8"))["operators"]
        return tuple(Operator(**each) for each in told)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, LookupError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be used: {error}") from error


def operator_of(folder: Path, token: str) -> Operator | None:
    """Return whose token this is, None where it is nobody's; each is compared in equal time."""
    given = _digest(token)
    known = [each for each in operators(folder) if hmac.compare_digest(each.digest, given)]
    return known[0] if known else None


def add_operator(folder: Path, name: str, *, admin: bool) -> str:
    """Add an operator to a federation and return the token.

    Raises
    ------
    InputError
        If the name is none, or somebody has it.
    """
    operator, token = new_operator(name, admin=admin)

    def added(known: tuple[Operator, ...]) -> Iterable[Operator]:
        if any(each.name.casefold() == name.casefold() for each in known):
            raise InputError(
                f"operator {name!r} has a token; remove it first: fedcluster federation operator "
                f"remove {folder} {name}"
            )
        return (*known, operator)

    _change(folder, added)
    return token


def remove_operator(folder: Path, name: str) -> None:
    """Remove an operator, whose token is refused from now on.

    Raises
    ------
    InputError
        If there is no such operator.
    """

    def removed(known: tuple[Operator, ...]) -> Iterable[Operator]:
        if name not in (names := [each.name for each in known]):
            raise InputError(f"there is no operator {name!r}; there are: {', '.join(names)}")
        return [each for each in known if each.name != name]

    _change(folder, removed)


def own_token(folder: Path) -> str:
    """Return the token of whoever runs this program: from the environment, or a file in a folder.

    Raises
    ------
    InputError
        If there is none, or others may read the file.
    """
    if token := os.environ.get(VARIABLE, "").strip():
        return token
    path = folder / TOKEN
    check_private([path], secret=[path])
    try:
        return path.read_text("utf-8").strip()
    except OSError as error:
        raise InputError(
            f"runs need an operator's token: set {VARIABLE}, or write it to {path} (an "
            f"administrator makes one: fedcluster federation operator add {folder} NAME)"
        ) from error


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", errors="replace")).hexdigest()


def _text(known: Iterable[Operator]) -> str:
    return json_text({"operators": [asdict(each) for each in known]})


@private_files()
def _change(folder: Path, change: Callable[[tuple[Operator, ...]], Iterable[Operator]]) -> None:
    """Write other operators; one process at a time."""
    with (folder / ".operators.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = _text(change(operators(folder)))
        with atomic_write(folder / OPERATORS) as temporary:
            temporary.write_text(changed, encoding="utf-8")
