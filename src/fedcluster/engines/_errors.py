"""Errors of sites in this process, which name the site and what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from fedcluster._refusals import RefusedError
from fedcluster.core import Task
from fedcluster.errors import SiteError

T = TypeVar("T")


class Named(Protocol):
    """Client of a site, as far as an error needs it."""

    @property
    def name(self) -> str:
        """Name of the site."""


def at_site(client: Named, doing: str | Sequence[Task], do: Callable[..., T], *given: Any) -> T:
    """Return what is done at a site; an error names the site, and what it was doing or asked."""
    try:
        return do(client, *given)
    except RefusedError:
        raise
    except Exception as error:
        if not isinstance(doing, str):
            steps = ", ".join(dict.fromkeys(type(task.step).__name__ for task in doing))
            doing = f"round {doing[0].state.round + 1}, {steps}: "
        what = f"{type(error).__name__}: {error}"
        raise SiteError(f"site {client.name!r}, {doing}{what}") from error
