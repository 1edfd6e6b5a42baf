"""Tables, and HTML and SVG from Python: text is escaped unless it is HTML already."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedcluster.texts.untrusted import printable, shortened

VOID = {"br", "input", "meta"}
"""Elements without a closing tag."""


class Html(str):
    """Text that is HTML already, so that nothing escapes it again."""

    __slots__ = ()


def element(name: str, /, *content: Any, **attributes: Any) -> Html:
    r"""Return an element; content and attributes are escaped unless they are `Html`.

    Parameters
    ----------
    name : str
        Such as "td" or "path".
    *content : object
        Texts and elements, or lists of them, in order. None is skipped.
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
    """Return texts and elements, or lists of them, concatenated as HTML."""
    parts = (
        joined(*each) if isinstance(each, list | tuple) else "" if each is None else _safe(each)
        for each in content
    )
    return Html("".join(parts))


def _safe(value: Any) -> str:
    """Return a value escaped for HTML, with control characters replaced by their codes."""
    return value if isinstance(value, Html) else html.escape(printable(str(value)), quote=True)


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell of a table: its content, and the class of its colour on a page.

    Parameters
    ----------
    content : object
        A text, a number as text, or HTML.
    class_ : str
        The class in the style sheet.
    """

    content: Any
    class_: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Table for a screen, a page or a notebook: the first column names its rows.

    Parameters
    ----------
    title : str
        What the table shows.
    header : sequence
        The heads of the columns.
    rows : sequence of sequence
        Texts; on a page also HTML or `Cell`. All columns except the first hold numbers.
    total : sequence, optional
        A highlighted last line, which is not sorted on a page.

    Examples
    --------
    >>> Table("ages", ["cluster", "mean"], [[0, "41"]]).plain_html()  # doctest: +ELLIPSIS
    '<table><caption>ages</caption>...<tr><th scope="row">0</th><td>41</td></tr></tbody></table>'
    """

    title: str
    header: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    total: Sequence[Any] = ()

    def html(self, class_: str = "", *, sites: bool = False) -> Html:
        """Return the table for a page, where a script can sort its columns; empty without rows.

        Parameters
        ----------
        class_ : str
            An additional class of the style sheet.
        sites : bool, default=False
            Whether the rows are the sites of a run in their order, which can be hidden.
        """
        if not self.rows:
            return Html()
        lines = [_row(row, data_site=i if sites else None) for i, row in enumerate(self.rows)]
        foot = element("tfoot", _row(self.total)) if self.total else None
        drawn = self._drawn(lines, foot, class_=f"sortable {class_}".strip())
        return element(
            "div", drawn, class_="scroll", tabindex=0, role="region", aria_label=self.title
        )

    def plain_html(self) -> Html:
        """Return the table for a notebook, without a style or a script."""
        return self._drawn([_row(row) for row in self.rows])

    def _drawn(self, lines: Sequence[Html], foot: Html | None = None, **attributes: Any) -> Html:
        heads = [element("th", each, scope="col") for each in self.header]
        return element(
            "table",
            element("caption", self.title),
            element("thead", element("tr", heads)),
            element("tbody", lines),
            foot,
            **attributes,
        )


def _row(cells: Sequence[Any], **attributes: Any) -> Html:
    first, *others = (each if isinstance(each, Cell) else Cell(each) for each in cells)
    return element(
        "tr",
        element("th", first.content, scope="row"),
        [element("td", each.content, class_=each.class_ or None) for each in others],
        **attributes,
    )


def section(key: str, heading: str, *content: Any) -> Html:
    """Return a section of a page with its heading, if any; empty without content."""
    inner = [each for each in content if each]
    head = element("h2", heading) if heading else None
    return element("section", head, inner, id=key) if inner else Html()


def paragraphs(*lines: Any) -> Html:
    """Return a paragraph for each line."""
    return joined([element("p", each) for each in lines])


def listed_items(items: Sequence[Any]) -> Html:
    """Return items as an HTML list, empty if there are none."""
    return element("ul", [element("li", each) for each in items]) if items else Html()


def named(name: Any, *, longest_name: int = 120) -> Html:
    """Return an untrusted name, shortened and isolated from the direction of other text.

    ``longest_name``: number of characters of a name that are shown.
    """
    return element("bdi", shortened(str(name), longest_name))


def names_listed(names: Sequence[Any], most: int | None = None) -> list[Any]:
    """Return untrusted names with commas between, and the number of those left out.

    Examples
    --------
    >>> joined(names_listed(["a", "b", "c"], 2))
    '<bdi>a</bdi>, <bdi>b</bdi> and 1 more'
    """
    shown = names[:most]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else None
    return [[part for name in shown for part in (", ", named(name))][1:], more]


def titled(heading: str, chart: Html) -> Html:
    """Return a chart under a heading, empty if there is none."""
    return element("div", element("h3", heading), chart, class_="small") if chart else chart


def beside(chart: Html, numbers: Html, *, wide: bool = False) -> Html:
    """Return a chart and the table with its numbers, side by side where there is room.

    A wide table stands below.
    """
    if not chart:
        return numbers
    drawn = element("figure", chart, class_="scroll", tabindex=0, role="group", aria_label="Chart")
    return element("div", drawn, numbers, class_=None if wide else "beside")
