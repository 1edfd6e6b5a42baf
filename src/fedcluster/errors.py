"""Errors that users meet: each message says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

__all__ = ["HeldBackError", "InputError", "SiteError"]


class InputError(ValueError):
    """A file, an option or a value cannot be used; the message names it and the remedy.

    Attributes
    ----------
    refusal : RefusedCombination or None
        The refused combination, if options are incompatible; see `fedcluster.options.refusals`.
    status : int
        The exit status of a command that ends with it.
    """

    refusal: Any = None
    status: int = 2


class NotInstalledError(InputError, AttributeError):
    """An attribute needs a library that is not installed, so that an object does not have it."""


class ReadingNote(UserWarning):
    """Note that something was read differently from how it is written; the message says how."""


class UnlikeRowsWarning(UserWarning):
    """Warning that new rows are unlike those of the fit, so its clusters say little of them."""


class FewGroupsWarning(UserWarning):
    """Warning before a fit that sites have few groups of rows for a cluster, or none."""


class SiteError(RuntimeError):
    """Something went wrong at a site; the message names the site, the round and the cause."""


NOT_DESCRIBED = (
    "no site described its rows, every group of rows is smaller than its site's limit: "
    "lower the limit or ask for fewer clusters"
)
"""Message of a `HeldBackError` before the first round of an algorithm."""


class HeldBackError(ValueError):
    """The sites' limits held back so much that there is nothing to continue with."""


class PolicyError(ValueError):
    """Refusal of a question; it names the rule that the question breaks, and nothing else."""

    def __str__(self) -> str:
        return f"by the policy of the site: {super().__str__()}"


class EndedError(RuntimeError):
    """Work on a question was ended; the message says why, and holds no value."""


class CancelledError(RuntimeError):
    """A run was cancelled by those who started it."""


def check_keys(content: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error for unknown keys.

    Raises
    ------
    InputError
        With the name that was probably intended.
    """
    known = list(known)
    for key in content:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise InputError(f"unknown key {key!r}; {hint}")


def first_cause(error: BaseException) -> BaseException:
    """Return the original cause of an error, as libraries name only the nearest one."""
    return error if error.__context__ is None else first_cause(error.__context__)


def reason(error: OSError) -> str:
    """Return why a file cannot be read or written, with advice if another program holds it.

    Examples
    --------
    >>> reason(OSError(28, "No space left on device"))
    'No space left on device'
    >>> reason(PermissionError(13, "Permission denied"))
    'Permission denied; close it in other programs, or get the right to it'
    """
    words = error.strerror or str(error)
    is_kept = isinstance(error, PermissionError)
    return f"{words}; close it in other programs, or get the right to it" if is_kept else words


def listed(names: Sequence[str]) -> str:
    """Return names in a sentence's form: a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


class WireError(ValueError):
    """A message that cannot be sent, or is not understood or accepted; it says what is wrong."""
