"""HTML from templates: every text is escaped, unless it is HTML already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from fedcluster.texts import called, printable, shortened

TEMPLATES = Path(__file__).parent / "templates"


def joined(content: Any) -> Markup:
    r"""Return content as HTML: lists are concatenated, None is left out, and texts are escaped.

    Control characters in texts are replaced by their codes.

    Examples
    --------
    >>> print(joined(["a < b", None, [Markup("<br>"), "\x1b[2J", 3]]))
    a &lt; b<br>\x1b[2J3
    """
    if isinstance(content, list | tuple):
        return Markup("").join(map(joined, content))
    if isinstance(content, Markup):
        return content
    return Markup("") if content is None else escape(printable(str(content)))


TEMPLATE = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    finalize=joined,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATE.globals.update(shortened=shortened, called=called)
parts: Any = TEMPLATE.get_template("parts.html").module
"""The parts of pages as functions: the macros of ``templates/parts.html``."""
