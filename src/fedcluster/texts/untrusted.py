"""Texts from other machines: checks for control characters, and forms that are safe to show."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping
from typing import Any

LONGEST = 4_000
"""Largest number of characters of an accepted text."""
CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1, with escape sequences and ends of lines
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # ends of lines and directions of writing
    "\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]"  # halves of characters, notes, tags
)


def is_plain(text: str, longest: int = LONGEST) -> bool:
    r"""Return whether a text is not too long and has no control characters.

    Examples
    --------
    >>> [is_plain(text) for text in ("Zürich", "a\tb", "\x1b[2J", "\u202egpj.exe", "a" * 5000)]
    [True, False, False, False, False]
    """
    return len(text) <= longest and CONTROLS.search(text) is None


def printable(text: str) -> str:
    r"""Return a text with control characters replaced by codes, shortened if it is long.

    Examples
    --------
    >>> print(printable("no\x1b[31m such\ncolumn"))
    no\x1b[31m such\ncolumn
    """
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text[:LONGEST])


def replace_unknown_signs() -> None:
    """Let standard output and error replace characters that their encoding lacks by ``?``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def shortened(text: str, most: int) -> str:
    """Return a text, shortened to ``most`` characters with an ellipsis.

    Examples
    --------
    >>> shortened("age", 3), shortened("blood pressure", 6)
    ('age', 'blood…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def first_not_plain(value: Any, longest: int = LONGEST) -> str | None:
    """Return the first text or key in JSON content that is not plain, else None."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if not is_plain(each, longest):
                return each
        elif isinstance(each, Mapping):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple):
            waiting += each
    return None
