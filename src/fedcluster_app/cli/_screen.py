"""Screen of the command line: one-line errors, progress on stderr, results on stdout.

Lines are never broken within words or cut off, whatever the width.
"""

from __future__ import annotations

import io
import itertools
import logging
import os
import re
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, replace
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self, TypeVar

import typer
from typer.core import TyperGroup

from fedcluster.texts import replace_unknown_signs

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table as RichTable

    from fedcluster.errors import InputError
    from fedcluster.rounds import CommunicationRound
    from fedcluster.texts import Table
    from fedcluster_app.trust.findings import Finding


Doing = Callable[[str], None]
"""Function that shows the current activity."""


def silent(what: str) -> None:
    """Show nothing."""


def watching(doing: Doing) -> Callable[[CommunicationRound], None]:
    """Return a function that shows each finished round of a job."""
    from fedcluster.texts import counted

    number, sites = itertools.count(1), partial(counted, what="site")
    return lambda done: doing(f"round {next(number)} done with {sites(len(done.answered))}")


def prepare(commands: Sequence[Any]) -> None:
    """Give commands and subcommands this parser, and help whose lines are those of the screen."""
    for command in commands:
        paragraphs = (command.help or "").split("\n\n")
        command.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)
        command.make_parser = partial(_parser, command)
        if command.name in ADVANCED:
            command.rich_help_panel = "Advanced"
        prepare(list(getattr(command, "commands", {}).values()))


def _parser(command: Any, context: Any) -> Any:
    """Return the parser of a command, for which every value of a repeated option counts."""
    options = [
        each
        for each in command.params
        if each.param_type_name == "option" and not (each.multiple or each.count)
    ]
    for each in options:
        each.multiple = True  # otherwise the parser keeps the last value only
    parser = type(command).make_parser(command, context)
    for each in options:
        each.multiple = False
    parse = parser.parse_args

    def parse_args(args: list[str]) -> tuple[dict[str, Any], list[str], list[Any]]:
        given, rest, order = parse(args)
        for each in options:
            if each.name in given:
                given[each.name] = _joined(each, given[each.name], context)
        return given, rest, order

    parser.parse_args = parse_args
    return parser


def _joined(option: Any, values: Sequence[Any], context: Any) -> Any:
    """Return one value for all occurrences of an option: lists, whose metavar has a comma, joined.

    Raises
    ------
    BadParameter
        If the option takes one value and its occurrences differ.
    """
    if "," in (option.metavar or ""):
        return ",".join(values)
    if len(different := dict.fromkeys(map(str, values))) > 1 and not context.resilient_parsing:
        both = " and as ".join(different)
        raise typer.BadParameter(f"it is given as {both}; give it once", context, option)
    return values[-1]


COMMANDS = ("  fedcluster ", "  python ")
"""Beginnings of lines that are commands to be pasted, and must not be broken."""
ANY_WIDTH = 100_000
"""Width for lines that may have any length."""


def wraps(console: Console) -> bool:
    """Return whether lines are wrapped: on a screen, not in a file or pipe."""
    return console.is_terminal or "COLUMNS" in os.environ


def write_line(console: Console, line: str, head: str = "", style: str = "") -> None:
    """Print a line, wrapped between words at the width of the screen, with commands whole.

    Its head, by default the whole line, is styled on a terminal.
    """
    from rich.text import Text

    whole = line.startswith(COMMANDS) or not wraps(console)
    text = Text(line if whole else broken(line, console.width))
    text.stylize(style, 0, len(head or text))
    console.print(text, soft_wrap=True)


def broken(line: str, width: int) -> str:
    """Return a line wrapped between words; a longer word stays whole.

    Examples
    --------
    >>> print(broken("  No row of north-east-hospital was held back.", 20))
      No row of
      north-east-hospital
      was held back.
    """
    indent = line[: len(line) - len(line.lstrip())]
    lines = wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)


def write_table(console: Console, table: Table) -> None:
    """Print a table; on a narrow screen, with less space, wrapped headers, or row after row."""
    write_line(console, table.title, style="bold")
    broken_heads = [name.replace("-", "-\n") for name in table.header]
    ways = ((header, blanks) for header in (table.header, broken_heads) for blanks in (1, 0))
    drawn = (_drawn(replace(table, header=header), blanks) for header, blanks in ways)
    if fitting := next((each for each in drawn if _width(console, each) <= console.width), None):
        console.print(fitting)
    elif wraps(console):
        _write_records(console, table)
    else:
        widest = _drawn(table, 1)
        type(console)(width=_width(console, widest), file=console.file).print(widest)
    console.print()


def _drawn(table: Table, blanks: int) -> RichTable:
    """Return a table for rich, with the given number of blanks between columns."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, blanks, 0, 0))
    for i, name in enumerate(table.header):
        drawn.add_column(Text(name), justify="right" if i else "left", no_wrap=True)
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    if table.total:
        drawn.add_section()
        drawn.add_row(*map(Text, table.total), style="bold")
    return drawn


def _width(console: Console, drawn: RichTable) -> int:
    """Return the width of a table that is not cut off."""
    from rich.measure import Measurement

    options = console.options.update(max_width=ANY_WIDTH)
    return Measurement.get(console, options, drawn).maximum


def _write_records(console: Console, table: Table) -> None:
    """Print a table row by row, with the cells of each below."""
    for first, *cells in [*table.rows, *([table.total] if table.total else [])]:
        write_line(console, first, style="bold")
        named_cells = zip(table.header[1:], cells, strict=True)
        held = [f"{name.strip()} {cell.strip()}" for name, cell in named_cells if cell.strip()]
        write_line(console, f"  {', '.join(held)}")


EVERY = 10.0
"""Seconds between two lines of progress without a terminal."""
REFUSALS = "fedcluster_app.wire"
"""The logger of a site's refusals, many of which attacks provoke."""
INTERRUPTED = 130
"""The exit status after Ctrl-C."""

T = TypeVar("T")


HELD: ContextVar[dict[Any, Any] | None] = ContextVar("held", default=None)
"""Objects that a command keeps until it ends; None outside a command."""


IN_ORDER_OF_USE = (
    *("kit", "check", "fit", "select-k", "report", "profile", "name", "compare", "evaluate"),
    *("predict", "simulate", "federation", "site", "flare", "watch", "new", "start", "doctor"),
    *("show", "run", "cancel", "reload", "log", "evidence", "permit", "key", "operator", "backup"),
    *("restore", "prune", "add-site", "remove-site", "rotate-key"),
)
ADVANCED = ("warm-up", "audit", "certificate", "groups")
"""Commands as help lists them; advanced ones by themselves, and those of neither list last."""


class Commands(TyperGroup):
    """Group of commands whose help lists them in the order of use."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        order = (*IN_ORDER_OF_USE, *ADVANCED)
        return sorted(super().list_commands(ctx), key=lambda name: (*order, name).index(name))


class OneLine(Commands):
    """Group of commands that shows a user's error in one line and exits with its status."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run a command and exit."""
        extra["standalone_mode"] = False
        prepare([self])
        replace_unknown_signs()
        held = HELD.set({})
        try:
            status = super().main(*args, **extra)
        except Exception as error:
            if (line := _advice(error)) is None:
                raise
            complain("error", line)
            status = getattr(error, "status", 2)
        finally:
            HELD.reset(held)
        sys.exit(status if isinstance(status, int) else 0)


def _advice(error: Exception) -> str | None:
    """Return the message of an error that is meant for users, else None."""
    from fedcluster.errors import HeldBackError, InputError, SiteError, reason

    if isinstance(error, InputError | HeldBackError | SiteError):
        return str(error)
    if isinstance(error, PermissionError) and error.filename:
        return f"{error.filename2 or error.filename} cannot be used: {reason(error)}"
    if "no locator available" in str(error):  # numba's words, as a module is imported
        return "compiled kernels can be stored nowhere: set NUMBA_CACHE_DIR to a folder of yours"
    if hasattr(error, "format_message"):  # an error in the command line itself
        command = getattr(getattr(error, "ctx", None), "command_path", "fedcluster")
        if now := said_now(str(getattr(error, "option_name", "")), command):
            return now
        line = error.format_message().rstrip(".").replace("Value error, ", "")
        # typer and click both add the suggestion
        line = re.sub(r"( Did you mean .*\?)\1", r"\1", line)
        return f"{line}; see {command} --help"
    return None


SAID = {
    "codes": "codes.COLUMN.TEXT=NAME",
    "factor": "sites.SITE.factors.COLUMN=FACTOR",
    "rename": "rename.OLD=NEW",
    "missing_values": "missing_values=[VALUE]",
    "dates": "dates.COLUMN=age",
    "decimal": "source.decimal=,",
    "encoding": "source.encoding=NAME",
    "skip_rows": "source.skip=N",
    "lenient": "lenient=true",
    "metric": "evaluate.metrics=MODULE.NAME",
    "weight_column": "weight_column=NAME",
    "protection": "protection=groups",
    "plugin": "plugins=[MODULE]",
    "engine": "engine=dask",
    "no_report": "report=false",
    "log": "prepare.log=[COLUMN]",
    "bounds": "prepare.bounds.COLUMN=[LOW,HIGH]",
    "weight": "prepare.weights.COLUMN=FACTOR",
    "pca": "prepare.pca=N",
    "prepare": "prepare.then=MODULE.NAME",
    "elbow": "select_k.pick=elbow",
    "deadline": "run.deadline=SECONDS",
}
"""How keys of a study file are set that were options of the command line by another name."""


def said_now(option: str, command: str) -> str:
    """Return how a study file says what was an option of a command; empty if it was none.

    Examples
    --------
    >>> said_now("--n-init", "fedcluster fit")
    '--n-init is a key of the study file: --set fit.n_init=VALUE'
    """
    from fedcluster.recipes.specifications import Fit, SelectK, declared

    name, words = option.lstrip("-").replace("-", "_"), command.split()
    kind = SelectK if words[-1] == "select-k" else Fit
    key = SAID.get(name, "")
    if not key and name in [each.name for each in declared(kind)]:
        key = f"{kind.kind.replace('-', '_')}.{name}=VALUE"
    return f"{option} is a key of the study file: --set {shlex.quote(key)}" if key else ""


def complain(kind: str, message: str) -> None:
    """Print one line on stderr, with the first word coloured on a terminal."""
    from rich.console import Console

    colour = {"error": "bold red", "warning": "bold yellow", "note": "bold"}[kind]
    line = f"{kind}: {' '.join(message.splitlines())}"
    write_line(Console(stderr=True), line, f"{kind}:", colour)


def say(message: str) -> None:
    """Print one line on stdout."""
    from rich.console import Console

    write_line(Console(), message)


def needs(module: str, extra: str) -> None:
    """Raise an error if an optional library is missing."""
    from fedcluster.errors import InputError

    if find_spec(module) is None:
        raise InputError(f'this needs {module}; install it with pip install "fedcluster[{extra}]"')


TRANSPORTS = ("flwr", "nvflare")
"""Packages of transports, of which an examination tells the version."""


def diagnosed(examine: Callable[[], Iterable[Finding]], *, as_json: bool) -> None:
    """Show what an examination finds; exit with status 1 if something is wrong."""
    with Screen(as_json=as_json, quiet=False) as screen:
        screen.doing("examining")
        found = list(examine())
    wrong = [each.what for each in found if each.state == "wrong"]
    screen.result(
        {"findings": [asdict(each) for each in found], "wrong": wrong},
        [f"{each.state:8}  {each.what}: {each.said}" for each in found],
    )
    if wrong:
        raise typer.Exit(1)


def private(context: typer.Context) -> None:
    """Let a command, and what it starts, write files for their owner only, whatever the umask."""

    @contextmanager
    def masked() -> Iterator[None]:
        before = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(before)

    context.with_resource(masked())


@contextmanager
def until_interrupted() -> Iterator[None]:
    """End the block silently at Ctrl-C or SIGTERM."""

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
        Whether the result is one JSON object.
    quiet : bool
        Whether to show only warnings and errors, no progress and no result.
    muted : str, optional
        A logger that only reports critical messages.
    """

    def __init__(self, *, as_json: bool, quiet: bool, muted: str | None = None) -> None:
        from rich.console import Console

        self.as_json, self.quiet = as_json, quiet
        self._levels = {"fedcluster": logging.INFO} | ({muted: logging.CRITICAL} if muted else {})
        self.warnings: list[str] = []
        self.notes: set[str] = set()
        self._said: set[str] = set()
        self._out = Console(markup=False, highlight=False, emoji=False)
        self._err = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._bar = self._progress_bar() if self._err.is_terminal and not quiet else None
        self._timer = threading.Timer(1.0, self._bar.start if self._bar else bool)
        self._doing, self._start, self._shown = "starting", time.monotonic(), 0.0
        self._filters = warnings.catch_warnings()
        self._log = logging.Handler()
        self._log.handle = self._compiling  # type: ignore[method-assign]

    def __enter__(self) -> Self:
        """Capture warnings and the log; the progress appears after a second."""
        self._filters.__enter__()
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)  # meant for developers of libraries
        warnings.showwarning = lambda message, *_rest, **_more: self._hear(message)
        logging.getLogger("fedcluster").addHandler(self._log)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Stop the progress, and print the warnings."""
        self._timer.cancel()
        self._timer.join()
        if self._bar:
            self._bar.stop()
        logging.getLogger("fedcluster").removeHandler(self._log)
        for name in self._levels:
            logging.getLogger(name).setLevel(logging.NOTSET)
        self._filters.__exit__(None, None, None)
        for message in self.warnings:
            if message in self._said or (kind is not None and message in self.notes):
                continue
            complain("note" if message in self.notes else "warning", message)
        if kind is KeyboardInterrupt:
            complain("error", "interrupted; nothing was written")

    def _hear(self, message: Warning | str) -> None:
        """Keep a warning; notes on what was read are kept once, even if rows are read again.

        What concerns a fit that has not begun is shown at once, and not again at the end.
        """
        from fedcluster.errors import FewGroupsWarning, ReadingNote

        line = str(message)
        if isinstance(message, FewGroupsWarning):
            self._said.add(line)
            complain("warning", line)
            return
        if isinstance(message, ReadingNote):
            if line in self.notes:
                return
            self.notes.add(line)
        self.warnings.append(line)

    @property
    def width(self) -> int:
        """The number of characters in a line of the screen."""
        return self._out.width

    def doing(self, what: str) -> None:
        """Show the current activity."""
        self._doing = what
        if self._bar:
            self._bar.update(self._bar.task_ids[0], description=f"{what} …")
        self._show_if_due()

    def _show_if_due(self) -> None:
        """Show the current activity every ten seconds, if there is no terminal."""
        seconds = time.monotonic() - self._start
        if not self._bar and not self.quiet and seconds - self._shown >= EVERY:
            self._shown = seconds
            write_line(self._err, f"{seconds:.0f} seconds: {self._doing} …")

    def _progress_bar(self) -> Progress:
        """Return what a terminal shows of the progress: the activity and its duration."""
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}", markup=False)
        shown = SpinnerColumn(), TimeElapsedColumn(), text
        bar = Progress(
            *shown, console=self._err, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        bar.add_task("starting …", total=None)
        return bar

    def wait_for(self, work: Callable[[], T]) -> T:
        """Return the result of numerical work, which Ctrl-C ends cleanly.

        The work has a thread of its own, because an interrupt while numba returns a result would
        crash the process, and only the main thread is interrupted.
        """
        with ThreadPoolExecutor(1) as thread:
            try:
                done = thread.submit(work)
                while not done.done():
                    wait([done], timeout=0.2)
                    self._show_if_due()
            except KeyboardInterrupt:
                self.__exit__(KeyboardInterrupt)
                sys.stderr.flush()
                os._exit(INTERRUPTED)  # ends at once, without waiting for threads
            return done.result()

    def _compiling(self, record: logging.LogRecord) -> bool:
        """Show a line of the log that announces the compilation of kernels."""
        self.doing(record.getMessage())
        if not self._bar and not self.quiet:
            write_line(self._err, f"{record.getMessage()} …")
        return True

    def result(
        self,
        content: Mapping[str, Any],
        shown: Iterable[Table | str],
        elsewhere: Path | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """Show a result: its full content as JSON, or tables and lines for people.

        Of a long table, unless it is to be ``whole``, only the first rows are shown, with the place
        of the others: a file, if one is named, or the content.
        """
        from fedcluster.core.files import json_text
        from fedcluster_app.report.tables import cut_off

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
                write_table(self._out, part if whole else cut_off(part, str(elsewhere or "--json")))
            below_table = not isinstance(part, str)


class Format(StrEnum):
    """Format of the printed output."""

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
def telling(
    path: Path, log_format: Format, site: str | None = None, *, quiet: bool = False
) -> Iterator[Callable[[str], None]]:
    """Yield a function that prints a line and writes it to the log, within the block.

    Warnings of all packages go to standard error.
    """
    from fedcluster_app.site.logs import logged

    as_json, shown = log_format is Format.JSON, logging.StreamHandler()
    shown.setLevel(logging.WARNING)
    shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    with logged(path, printed=as_json and not quiet, site=site) as logger, ExitStack() as end:
        logging.getLogger().addHandler(shown)
        end.callback(logging.getLogger().removeHandler, shown)

        def tell(what: str) -> None:
            logger.info(what)
            if log_format is Format.TEXT and not quiet:
                say(what)
                sys.stdout.flush()

        yield tell


def verified_log(
    path: Path, head: str, *checks: Callable[[], object]
) -> tuple[dict[str, Any], list[str], InputError | None]:
    """Check that no line of a log was changed, removed, moved, inserted or cut off.

    Parameters
    ----------
    path : Path
        The log.
    head : str
        The hash of a line that the log must have, or its first digits; empty for any.
    *checks : callable
        Check what is kept beside the log.

    Returns
    -------
    content, lines
        What is shown of a log that is in order.
    wrong : InputError or None
        What is not in order, to be raised once the log is shown.
    """
    from fedcluster.errors import InputError
    from fedcluster.texts import counted
    from fedcluster_app.trust.audit_log import verify

    if head and len(head) < 16:
        raise InputError(f"--head {head!r}: give at least 16 digits of the hash")
    if not (head or path.exists() or path.with_suffix(".head").exists()):
        return {}, [], None
    try:
        end, known = verify(path, head)
        if head and known is None:
            raise InputError(
                f"{path}: no line has the hash {head}: it is not the log that was known"
            )
        for check in checks:
            check()
    except InputError as error:
        return {}, [], error
    lines = [f"The log is in order: {counted(end.line, 'line')} in {counted(end.part, 'file')}."]
    lines += [f"Up to line {known:,} it is the log that was known."] if known else []
    content = {"files": end.part, "head": end.hash, "known_line": known}
    return content, [*lines, f"The last line has the hash {end.hash}"], None
