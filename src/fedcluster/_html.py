"""HTML and SVG from Python: text is escaped unless it is HTML already."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from fedcluster._texts import printable

VOID = {"br", "input", "meta"}
"""Elements without an end."""


class Html(str):
    """Text that is HTML already, so that nothing escapes it again."""

    __slots__ = ()


def element(name: str, /, *content: Any, **attributes: Any) -> Html:
    r"""Return an element; what it holds, and its attributes, are escaped unless they are `Html`.

    Parameters
    ----------
    name : str
        Such as "td" or "path".
    *content : object
        Texts and elements, one after the other; lists of them, too. None is nothing.
    **attributes : object
        Such as ``class_`` or ``stroke_width``: an underscore at the end is dropped, others become
        hyphens. None and False leave an attribute out, True has no value.

    Examples
    --------
    >>> element("td", "a < b & c", element("br"), class_="number", data_value=3, hidden=False)
    '<td class="number" data-value="3">a &lt; b &amp; c<br></td>'
    >>> element("p", ["one", None, "\x1b[2J"], title='"')
    '<p title="&quot;">one\\x1b[2J</p>'
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_safe(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{joined(*content)}</{name}>")


def joined(*content: Any) -> Html:
    """Return texts and elements, and lists of them, one after the other as HTML."""
    parts = (
        joined(*each) if isinstance(each, list | tuple) else "" if each is None else _safe(each)
        for each in content
    )
    return Html("".join(parts))


def plain_table(caption: str, header: Sequence[Any], rows: Sequence[Sequence[Any]]) -> Html:
    """Return a table without a style, as a notebook shows it; the first cell of a row names it.

    Examples
    --------
    >>> plain_table("ages", ["cluster", "mean"], [[0, "41"]])  # doctest: +ELLIPSIS
    '<table><caption>ages</caption>...<tr><th scope="row">0</th><td>41</td></tr></tbody></table>'
    """
    lines = [
        element("tr", element("th", first, scope="row"), [element("td", each) for each in others])
        for first, *others in rows
    ]
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", [element("th", each, scope="col") for each in header])),
        element("tbody", lines),
    )


def _safe(value: Any) -> str:
    """Return a value as HTML shows it, and its signs that direct a screen as their codes."""
    return value if isinstance(value, Html) else html.escape(printable(str(value)), quote=True)
