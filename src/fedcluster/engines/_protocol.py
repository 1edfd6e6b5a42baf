"""The protocol: the words of a message that both ends must know, and refusals of other words.

New versions may say new words in a question. An older site refuses what it does not know, and the
refusal names both versions: a word that was ignored might change what is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedcluster._version import VERSION

PROTOCOL = 1
"""The version of the protocol; both ends must have the same."""

QUESTION = frozenset(
    {"about", "cancel", "columns", "described", "exchange", "labels", "model", "permit"}
    | {"protocol", "raw", "run", "sums", "tasks"}
)
TASK = frozenset(
    {"converged", "fields", "inertia", "memory", "noise", "preprocessing", "resampled"}
    | {"round", "seed", "step"}
)
"""What a question and each of its tasks may say. A site that does not know a word does not answer:
it might change what is asked. What may be ignored stands in ``about``."""

LONGEST_ABOUT = 100
"""Characters of a text of the metadata, at most."""


class WireError(ValueError):
    """Message that cannot be sent, is not understood or not believed; says what is wrong."""


class UnknownError(WireError):
    """Word that is not known here: another version of fedcluster may know it."""


def about(**more: Any) -> dict[str, Any]:
    """Return the metadata of a message, which another version may ignore."""
    return {"about": {"fedcluster": VERSION, **more}}


def about_of(header: Mapping[str, Any], key: str) -> str:
    """Return a text of the metadata of a message, "" if it is not there."""
    metadata = header.get("about")
    value = metadata.get(key) if isinstance(metadata, Mapping) else None
    return value[:LONGEST_ABOUT] if isinstance(value, str) else ""


def planned_of(header: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the steps that a run will ask, by name and maybe parameters, from the metadata.

    Raises
    ------
    WireError
        If they are not understood.
    """
    metadata = header.get("about")
    planned = metadata.get("steps", []) if isinstance(metadata, Mapping) else []
    if not isinstance(planned, list) or not all(isinstance(each, dict) for each in planned):
        raise WireError("the steps that are planned are not a list of names with parameters")
    return planned


def versions(header: Mapping[str, Any], mine: str, theirs: str) -> str:
    """Return the versions of both ends, as a complaint ends, "" where they are the same.

    Examples
    --------
    >>> versions({"about": {"fedcluster": "9.9"}}, "this site", "the coordinator")
    '; this site has fedcluster ..., the coordinator 9.9: install the same at both'
    """
    other = about_of(header, "fedcluster") or "an unknown one"
    if other == VERSION:
        return ""
    return f"; {mine} has fedcluster {VERSION}, {theirs} {other}: install the same at both"


def check_known(words: Iterable[Any], known: frozenset[str], what: str) -> None:
    """Refuse words that this version does not know.

    Raises
    ------
    UnknownError
        Naming the first.
    """
    if unknown := sorted({str(word) for word in words} - known):
        raise UnknownError(f"{what} says {unknown[0][:40]!r}, which is not known here")
