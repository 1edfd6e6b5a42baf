"""What a command that runs for long prints and logs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedcluster.cli._screen import say


class Format(StrEnum):
    """What is printed."""

    TEXT = "text"
    JSON = "json"


LogFormat = Annotated[
    Format,
    typer.Option(
        "--log-format",
        help="What is printed: lines for people, or the log, a JSON object in each line.",
    ),
]


@contextmanager
def _warnings_shown() -> Iterator[None]:
    """Write warnings to standard error, of this package and of others; less goes to the log."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


@contextmanager
def telling(
    path: Path, log_format: Format, site: str | None = None, *, quiet: bool = False
) -> Iterator[Callable[[str], None]]:
    """Yield what prints one line and writes it to the log, while the block lasts."""
    from fedcluster.federation._logs import logged

    as_json = log_format is Format.JSON
    with logged(path, printed=as_json and not quiet, site=site) as logger, _warnings_shown():

        def tell(what: str) -> None:
            logger.info(what)
            if log_format is Format.TEXT and not quiet:
                say(what)
                sys.stdout.flush()

        yield tell
