"""Errors that users meet: each message says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["HeldBackError", "InputError", "SiteError"]


class InputError(ValueError):
    """A file, an option or a value cannot be used; the message names it and the remedy.

    Attributes
    ----------
    refusal : RefusedCombination or None
        What is refused, where options do not go together; see `fedcluster.options.refusals`.
    """

    refusal: Any = None


class SiteError(RuntimeError):
    """Something went wrong at a site; the message names the site, the round and the cause."""


class HeldBackError(ValueError):
    """The sites' limits held back so much that there is nothing to continue with."""


class EndedError(RuntimeError):
    """Work for a question was ended; the message says why, and holds no value."""


class CancelledError(RuntimeError):
    """A run was cancelled by those who started it."""


def first_cause(error: BaseException) -> BaseException:
    """Return the error in which others arose, of which a library names only the nearest a cause."""
    return error if error.__context__ is None else first_cause(error.__context__)


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them: a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
