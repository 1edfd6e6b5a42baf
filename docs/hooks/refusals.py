"""Make the page of what does not go together from the table in the code.

    .venv/bin/python docs/hooks/refusals.py

writes docs/refusals.md; a test compares it with the table.
"""

import re
from itertools import groupby
from pathlib import Path

from fedcluster.options.refusals import RefusedCombination, table

PAGE = Path(__file__).parents[1] / "refusals.md"
INTRODUCTION = """\
# What does not go together

Not every option makes sense with every other one, with every source of rows, and with every
protection. Each combination that is refused is listed here, with the line that you see and the
reason. It is refused before a site is asked for a single number, by the same line in Python, on the
command line and over a network. An option that has its default value is never refused. In
Python, the error is an `InputError` whose attribute `refusal` names the row.

This page is made from the table in the code.
"""


def page() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for title, rows in groupby(table().values(), lambda row: row.section):
        lines = [f"| `{row.key}` | {together(row)} | {said(row)} | {row.reason} |" for row in rows]
        head = "| key | what | line | reason |\n|---|---|---|---|"
        parts.append("\n".join([f"## {title}\n", head, *lines, ""]))
    return "\n".join(parts)


def together(row: RefusedCombination) -> str:
    """Return what is combined, with options as code."""
    return " with ".join(", ".join(map(as_code, each.split(", "))) for each in row.options)


def as_code(option: str) -> str:
    """Return an option as code, and words as they are."""
    is_code = option.startswith("-") or "=" in option or " " not in option
    return f"`{option}`" if is_code else option


def said(row: RefusedCombination) -> str:
    """Return the line, with dots for values; also that of the command line, where it differs."""
    lines = [re.sub(r"\{.*?\}", "…", each) for each in (row.line, row.command) if each]
    return "<br>".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
