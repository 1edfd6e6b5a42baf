"""Texts in the logs of Flower's programs: the only place that reads meaning from them.

tests/test_flower_contract.py holds each pattern against the installed release of Flower.
"""

from __future__ import annotations

import re

CONNECTED = "SuperNode ID:"
"""The SuperLink has let a SuperNode in."""

REFUSED = "[code: 2004]"
"""The SuperLink does not know a SuperNode's key, or the key is connected already."""

UNSIGNED = "SuperNode terminated gracefully"
"""All that a SuperNode prints where its signed time is not accepted."""

SHUTDOWN = re.compile(
    r"Shutting down|Waiting for \w+ shutdown|FastAPI lifespan|\w+ shutdown complete|Finished server"
)
"""Lines that a server prints after the reason why it ends."""

LEVEL = re.compile(r"^(\S+Z )?(INFO|WARNING|ERROR|DEBUG)\s*(:|\[[\w.]+\])\s*")
"""The beginning of a line of Flower, and with the time of a line of its web server."""

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences that colour a line."""


def reason_of_end(printed: str) -> str:
    """Return what a program printed last, but for its shutdown, in one line."""
    lines = [LEVEL.sub("", line.strip()) for line in printed.splitlines()]
    lines = [line for line in lines if line and not SHUTDOWN.match(line)]
    return " ".join(lines[-4:])[-300:] or "it said nothing"
