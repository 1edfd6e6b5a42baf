"""Combinations of options that are refused, each with its message and its reason.

All of them are in one table, ``refusals.toml``, which the page of the command line shows.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedcluster.errors import InputError


@dataclass(frozen=True, slots=True)
class RefusedCombination:
    """Combination of options, sources, protections and engines that is refused.

    Parameters
    ----------
    key : str
        Its stable name, such as "trim-fuzzy".
    section : str
        The section of the page that lists it.
    options : tuple of str
        The combined options, by their names for users; "fuzzy, --fuzzy" if the command line has
        another name.
    line : str
        The message: what is incompatible, in the names of Python, and what to do; a template.
    reason : str
        Why it is refused.
    command : str
        The message in the names of the command line, if it differs; a template.
    when : tuple of str
        The conditions of `fedcluster.recipes.combinations` that must all hold; () for a combination
        that is refused elsewhere.
    """

    key: str
    section: str
    options: tuple[str, ...]
    line: str
    reason: str
    command: str = ""
    when: tuple[str, ...] = ()


@cache
def table() -> Mapping[str, RefusedCombination]:
    """Return all refused combinations by key, in the order of the page."""
    content = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text("utf-8"))
    return MappingProxyType(
        {
            key: RefusedCombination(
                key,
                section["title"],
                tuple(row["options"]),
                row["line"],
                row["reason"],
                row.get("command", ""),
                tuple(row.get("when", "").split()),
            )
            for section in content["section"]
            for key, row in section.items()
            if key != "title"
        }
    )


_PLACE = re.compile(r"\\\{.*?\\\}")
"""Pattern of a placeholder in an escaped template."""


class RefusedError(InputError):
    """A combination of options is refused; ``refusal`` is its row in `table`."""

    refusal: RefusedCombination


def refused(key: str, *, command: bool = False, **values: Any) -> RefusedError:
    """Return the error that refuses a combination.

    Parameters
    ----------
    key : str
        The key of the row in `table`.
    command : bool
        Whether to use the names of the command line.
    **values : object
        The values for the placeholders of the message.

    Examples
    --------
    >>> refused("choice-averaging")
    RefusedError("averaging is for rule='fuzzy-db' alone: leave it out")
    >>> refused("choice-averaging").refusal.options
    ('averaging', 'rule')
    """
    row = table()[key]
    template = row.command if command and row.command else row.line
    return _error(row, template.format(**values))


def _error(row: RefusedCombination, line: str) -> RefusedError:
    error = RefusedError(line)
    error.refusal = row
    return error


def refusal_in(reason: str) -> RefusedError | None:
    """Return the error of the table that matches a site's reason for not answering, if any.

    Examples
    --------
    >>> refusal_in("refused: groups of rows and noise do not go together: use one of the two")
    RefusedError('groups of rows and noise do not go together: use one of the two')
    >>> refusal_in("not connected")
    """
    for row in table().values():
        pattern = _PLACE.sub(lambda _: r"\S+", re.escape(row.line))
        if line := re.search(f"{pattern}$", reason):
            return _error(row, line[0])
    return None
