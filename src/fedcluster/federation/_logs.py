"""Logs of a coordinator or a site: a JSON object in each line, in files that are rotated."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import cast

from fedcluster.federation._private import private_files

LARGEST, FILES = 10 << 20, 9
"""Bytes of a file from which on another begins, and how many older ones are kept."""

FIELDS = ("site", "run", "round", "operator", "seconds", "missing")
"""What a line tells besides time, level and event, where it is of one."""


class JsonLines(logging.Formatter):
    """Formatter of records as JSON, times in UTC.

    Parameters
    ----------
    site : str, optional
        The site whose log it is.

    Examples
    --------
    >>> record = logging.makeLogRecord({"msg": "run begins", "levelname": "INFO", "created": 0.0})
    >>> record.run = "r1"
    >>> JsonLines().format(record)
    '{"time": "1970-01-01T00:00:00.000Z", "level": "info", "event": "run begins", "run": "r1"}'
    """

    def __init__(self, site: str | None = None) -> None:
        super().__init__()
        self._site = site

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {} if self._site is None else {"site": self._site}
        line |= {key: getattr(record, key) for key in FIELDS if hasattr(record, key)}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _PrivateFile(RotatingFileHandler):
    """Rotating file that only its owner may read, whatever the umask."""

    def _open(self) -> io.TextIOWrapper:
        def opener(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        file = open(self.baseFilename, self.mode, encoding="utf-8", opener=opener)  # noqa: SIM115
        return cast(io.TextIOWrapper, file)


@contextmanager
def logged(path: Path, *, printed: bool, site: str | None = None) -> Iterator[logging.Logger]:
    """Write the log of the package into a file while the block lasts; yields its logger.

    Parameters
    ----------
    path : Path
        The file; older ones have a number behind their names.
    printed : bool
        Whether lines go to standard output, too.
    site : str, optional
        The site whose log it is.
    """
    logger = logging.getLogger("fedcluster")
    with private_files():
        path.parent.mkdir(exist_ok=True)
        handlers: list[logging.Handler] = [
            _PrivateFile(path, maxBytes=LARGEST, backupCount=FILES, encoding="utf-8")
        ]
    handlers += [logging.StreamHandler(sys.stdout)] if printed else []
    before = logger.level
    for handler in handlers:
        handler.setFormatter(JsonLines(site))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield logger
    finally:
        logger.setLevel(before)
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
