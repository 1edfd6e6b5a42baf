"""Help that is read on a screen of any width: nothing is broken inside a word or a command."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

import typer

WIDEST, NARROW = 80, 60
"""Characters of a line of help at most, and below which what is explained stands above."""
UNBROKEN = "\u2011"
"""A hyphen at which no line is broken, in the place of those of names."""
EXAMPLE = "Example: "
ARGUMENT = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")
"""A word of a command, with what stands in quotes."""


def pasted(command: str, width: int, indent: int = 0) -> list[str]:
    r"""Return a command as lines that a shell takes for one, none longer than it need be.

    Examples
    --------
    >>> print(*pasted("fedcluster fit north.csv south.csv -k 3", 24), sep="\n")
    fedcluster fit \
      north.csv south.csv \
      -k 3
    """
    lines = [" " * indent]
    for word in ARGUMENT.findall(command):
        if lines[-1].strip() and len(lines[-1]) + len(word) + len(" ") > width - len(" \\"):
            lines[-1] += " \\"
            lines.append(" " * (indent + 2))
        lines[-1] += f" {word}" if lines[-1].strip() else word
    return lines


class Help(typer.Context.formatter_class):  # type: ignore[misc, valid-type]
    """Formatter of help that breaks lines between words only, down to any width."""

    def __init__(self, *_given: Any, **_more: Any) -> None:
        super().__init__(width=max(min(shutil.get_terminal_size().columns, WIDEST) - 2, 20))

    def write(self, string: str) -> None:
        """Write a text with the hyphens that it had."""
        super().write(string.replace(UNBROKEN, "-"))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write how a command is called."""
        usage = f"{prefix or 'Usage: '}{prog} {args}"
        lines = wrap(
            usage, self.width, subsequent_indent=" " * len("Usage: "), break_on_hyphens=False
        )
        self.write("\n".join(lines) + "\n")

    def write_text(self, text: str) -> None:
        """Write paragraphs; an example so that it can be pasted."""
        if not text.startswith(EXAMPLE):
            super().write_text(text.replace("-", UNBROKEN))
            return
        start = " " * self.current_indent
        example = pasted(text.removeprefix(EXAMPLE), self.width, self.current_indent + 2)
        self.write("\n".join([start + EXAMPLE.strip(), *example]) + "\n")

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write what things are, beside them or, on a narrow screen, below."""
        unbroken = [(self._term(first), what.replace("-", UNBROKEN)) for first, what in rows]
        if self.width < NARROW:
            col_max = min(col_max, 4)
        super().write_dl(unbroken, col_max, col_spacing)

    def getvalue(self) -> str:
        """Return what was written, without blanks at the ends of lines."""
        return re.sub(r" +$", "", str(super().getvalue()), flags=re.MULTILINE)

    def _term(self, term: str) -> str:
        """Return an option, the names that it takes on several lines where one is too short."""
        lines, most = [""], self.width - self.current_indent
        for part in re.split(r"(?<=\|)", term):
            if len(lines[-1]) + len(part) > most and lines[-1].strip():
                lines.append(" " * (self.current_indent + 4))
            lines[-1] += part
        return "\n".join(lines)


class HelpContext(typer.Context):
    """Context of a command whose help is such."""

    formatter_class = Help


def readable(commands: Sequence[Any]) -> None:
    """Give commands, and all below them, this help, and lists of them whole sentences."""
    for command in commands:
        command.context_class = HelpContext
        if command.help and not command.short_help:
            command.short_help = " ".join(command.help.split("\n\n")[0].split())
        readable(list(getattr(command, "commands", {}).values()))
