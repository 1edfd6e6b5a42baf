"""List what does not go together on the page of the command line, from the table in the code."""

import re
from itertools import groupby
from typing import Any

from fedcluster.options.refusals import RefusedCombination, table


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return the text of a page, with all refused combinations where it has a place for them."""
    return (
        markdown.replace("<!-- refusals -->", shown())
        if page.file.src_uri == "commands.md"
        else markdown
    )


def shown() -> str:
    """Return a table for each part of the table in the code."""
    parts = []
    for title, rows in groupby(table().values(), lambda row: row.section):
        lines = [f"| {together(row)} | {said(row)} | {row.reason} |" for row in rows]
        parts.append("\n".join([f"| {title} | line | reason |\n|---|---|---|", *lines, ""]))
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
