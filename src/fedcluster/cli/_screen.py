"""Output of the command line: an error in one line, progress on stderr, results on stdout."""

from __future__ import annotations

import io
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import typer.core
from typer.core import TyperGroup

from fedcluster.cli._help import readable
from fedcluster.cli._lines import write_line, write_table

if TYPE_CHECKING:
    from fedcluster._report._tables import Table


INTERRUPTED = 130
"""The exit status after Ctrl-C."""

T = TypeVar("T")

typer.core.HAS_RICH = False  # else help shows "\\[default: 0]", escaped for a markup that is off


class OneLine(TyperGroup):
    """Says in one line what is wrong with what was given, and leaves with status 2."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run a command and exit."""
        extra["standalone_mode"] = False
        readable([self])
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # rather a ? than no result
                stream.reconfigure(errors="replace")
        try:
            status = super().main(*args, **extra)
        except Exception as error:
            if (line := _advice(error)) is None:
                raise
            complain("error", line)
            status = 2
        sys.exit(status if isinstance(status, int) else 0)


def _advice(error: Exception) -> str | None:
    """Return the message of an error that is meant for people, else None."""
    from fedcluster.errors import HeldBackError, InputError, SiteError

    if isinstance(error, InputError | HeldBackError | SiteError):
        return str(error)
    if hasattr(error, "format_message"):  # the command line itself is wrong
        command = getattr(getattr(error, "ctx", None), "command_path", "fedcluster")
        said = error.format_message().rstrip(".").replace("Value error, ", "")
        said = re.sub(r"( Did you mean .*\?)\1", r"\1", said)  # said twice, by typer and by click
        return f"{said}; see {command} --help"
    return None


def complain(kind: str, message: str) -> None:
    """Print one line on stderr, its first word in colour on a terminal."""
    from rich.console import Console

    colour = {"error": "bold red", "warning": "bold yellow"}[kind]
    line = f"{kind}: {' '.join(message.splitlines())}"
    write_line(Console(stderr=True), line, f"{kind}:", colour)


def say(message: str) -> None:
    """Print one line on stdout."""
    from rich.console import Console

    write_line(Console(), message)


def needs(module: str, extra: str) -> None:
    """Complain if an optional library is not installed."""
    from fedcluster.errors import InputError

    if find_spec(module) is None:
        raise InputError(f'this needs {module}; install it with pip install "fedcluster[{extra}]"')


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Let Ctrl-C, or a request to end, end the block and nothing more."""

    def end(*_signalled: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Screen:
    """Screen of a command: progress and warnings on stderr, its result on stdout.

    Parameters
    ----------
    as_json : bool
        The result is one JSON object.
    quiet : bool
        No progress and no result; warnings and errors only.
    """

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        from rich.console import Console

        self.as_json, self.quiet = as_json, quiet
        self.warnings: list[str] = []
        self._out = Console(markup=False, highlight=False, emoji=False)
        self._err = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._spinner = (
            self._err.status("starting …") if self._err.is_terminal and not quiet else None
        )
        self._timer = threading.Timer(1.0, self._spinner.start if self._spinner else bool)
        self._filters = warnings.catch_warnings()
        self._log = logging.Handler()
        self._log.handle = self._compiling  # type: ignore[method-assign]

    def __enter__(self) -> Self:
        """Listen to warnings and to the log, and wait a second before the spinner shows."""
        self._filters.__enter__()
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)  # of libraries, for those who write
        warnings.showwarning = lambda message, *_rest, **_more: self.warnings.append(str(message))
        logger = logging.getLogger("fedcluster")
        logger.addHandler(self._log)
        logger.setLevel(logging.INFO)
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Stop the spinner, and say what was warned of."""
        self._timer.cancel()
        self._timer.join()
        if self._spinner:
            self._spinner.stop()
        logger = logging.getLogger("fedcluster")
        logger.removeHandler(self._log)
        logger.setLevel(logging.NOTSET)
        self._filters.__exit__(None, None, None)
        for message in self.warnings:
            complain("warning", message)
        if kind is KeyboardInterrupt:
            complain("error", "interrupted; nothing was written")

    @property
    def width(self) -> int:
        """Return the number of characters in a line of the screen."""
        return self._out.width

    def doing(self, what: str) -> None:
        """Say what takes so long."""
        if self._spinner:
            self._spinner.update(f"{what} …")

    def wait_for(self, work: Callable[[], T]) -> T:
        """Do numerical work, which has written nothing yet, so that Ctrl-C ends it cleanly.

        The work has a thread of its own: an interrupt that strikes while numba hands a result
        over crashes the process, and only the main thread is struck.
        """
        with ThreadPoolExecutor(1) as thread:
            try:
                done = thread.submit(work)
                while not done.done():
                    wait([done], timeout=0.2)
            except KeyboardInterrupt:
                self.__exit__(KeyboardInterrupt)
                sys.stderr.flush()
                os._exit(INTERRUPTED)  # without waiting for the work
            return done.result()

    def _compiling(self, record: logging.LogRecord) -> bool:
        """Say what the log says: that kernels are compiled."""
        self.doing(record.getMessage())
        if not self._spinner and not self.quiet:
            write_line(self._err, f"{record.getMessage()} …")
        return True

    def result(self, content: Mapping[str, Any], shown: Iterable[Table | str]) -> None:
        """Show a result: all of its content to a machine, tables and lines to people."""
        from fedcluster.io._outputs import json_text

        if self.quiet:
            return
        if self.as_json:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8")
            sys.stdout.write(json_text({**content, "warnings": self.warnings}))
            return
        below_table = False
        for part in shown:
            if isinstance(part, str):
                write_line(self._out, part)
            else:
                self._out.print("" if below_table else "\n", end="")
                write_table(self._out, part)
            below_table = not isinstance(part, str)
