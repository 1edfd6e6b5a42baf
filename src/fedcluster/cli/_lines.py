"""Lines and tables on a screen of any width: nothing is broken inside a word, or cut off."""

from __future__ import annotations

import os
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from fedcluster._report._tables import Table

ANY_WIDTH = 100_000
"""Characters of a line that is as long as it need be."""


def wraps(console: Console) -> bool:
    """Return whether lines end where a screen does: a file or a program gets them whole."""
    return console.is_terminal or "COLUMNS" in os.environ


def write_line(console: Console, line: str, head: str = "", style: str = "") -> None:
    """Print a line, broken between words where the screen ends; a word longer than it is whole.

    Its head, all of it by default, is in a style on a terminal.
    """
    from rich.text import Text

    text = Text(broken(line, console.width) if wraps(console) else line)
    text.stylize(style, 0, len(head or text))
    console.print(text, soft_wrap=True)


def broken(line: str, width: int) -> str:
    """Return a line with ends of lines between words, as far as words are not longer than those.

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
    """Print a table, with less between its columns or row after row where a screen is narrow."""
    write_line(console, table.title, style="bold")
    drawn = [_drawn(table, blanks) for blanks in (1, 0)]
    widths = [_width(console, each) for each in drawn]
    if fitting := [each for each, n in zip(drawn, widths, strict=True) if n <= console.width]:
        console.print(fitting[0])
    elif wraps(console):
        _write_records(console, table)
    else:
        type(console)(width=widths[0], file=console.file).print(drawn[0])
    console.print()


def _drawn(table: Table, blanks: int) -> RichTable:
    """Return a table whose columns are so many blanks and one more apart."""
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
    """Return how many characters a table takes where nothing is cut off."""
    from rich.measure import Measurement

    options = console.options.update(max_width=ANY_WIDTH)
    return Measurement.get(console, options, drawn).maximum


def _write_records(console: Console, table: Table) -> None:
    """Print a table for which a screen is too narrow: each row, and below it what it holds."""
    for first, *cells in [*table.rows, *([table.total] if table.total else [])]:
        write_line(console, first, style="bold")
        told = zip(table.header[1:], cells, strict=True)
        held = [f"{name.strip()} {cell.strip()}" for name, cell in told if cell.strip()]
        write_line(console, f"  {', '.join(held)}")
