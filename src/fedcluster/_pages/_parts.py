"""Parts that the sections of a page share: sections, tables, and a chart beside its table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedcluster._html import Html, element
from fedcluster._texts import shortened

LONGEST_NAME = 120
"""Characters that are shown of a name."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell of a table: what it shows, and the class of its colour.

    Parameters
    ----------
    shown : object
        A text, a number as text, or HTML.
    class_ : str
        Its class in the style sheet.
    """

    shown: Any
    class_: str = ""


def section(key: str, heading: str, *content: Any) -> Html:
    """Return a section with its heading; nothing where it has no content."""
    inner = [each for each in content if each]
    if not inner:
        return Html()
    return element("section", element("h2", heading), inner, id=key)


def paragraphs(lines: Sequence[Any], class_: str | None = None) -> Html:
    """Return a paragraph for each line."""
    return Html("".join(element("p", each, class_=class_) for each in lines))


def table(
    caption: str,
    header: Sequence[Any],
    rows: Sequence[Sequence[Any]],
    *,
    total: Sequence[Any] = (),
    sites: bool = False,
    class_: str = "",
) -> Html:
    """Return a table whose first column names its rows; a script lets its columns sort.

    Parameters
    ----------
    caption : str
        What it shows.
    header : sequence
        The heads of the columns.
    rows : sequence of sequence
        Texts, HTML or `Cell`; what is not in the first column is a number.
    total : sequence, optional
        A last line that is not sorted.
    sites : bool, default=False
        Whether the rows are the sites of a run in their order, which can be hidden.
    class_ : str
        A class of the style sheet besides.
    """
    if not rows:
        return Html()
    lines = [_row(row, data_site=i if sites else None) for i, row in enumerate(rows)]
    body = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", [element("th", each, scope="col") for each in header])),
        element("tbody", lines),
        element("tfoot", _row(total)) if total else None,
        class_=f"sortable {class_}".strip(),
    )
    return element("div", body, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _row(cells: Sequence[Any], **attributes: Any) -> Html:
    first, *others = cells
    return element(
        "tr",
        element("th", _shown(first), scope="row"),
        [element("td", _shown(each), class_=_class(each)) for each in others],
        **attributes,
    )


def _shown(cell: Any) -> Any:
    return cell.shown if isinstance(cell, Cell) else cell


def _class(cell: Any) -> str | None:
    return cell.class_ or None if isinstance(cell, Cell) else None


def named(name: Any) -> Html:
    """Return a name from elsewhere, cut to length; it turns no text around it."""
    return element("bdi", shortened(str(name), LONGEST_NAME))


def listed_of(items: Sequence[Any]) -> Html:
    """Return items as a list, nothing where there are none."""
    return element("ul", [element("li", each) for each in items]) if items else Html()


def titled(heading: str, chart: Html) -> Html:
    """Return a chart under a heading, nothing where there is none."""
    if not chart:
        return chart
    return element("div", element("h3", heading), chart, class_="small")


def beside(chart: Html, numbers: Html) -> Html:
    """Return a chart and the table with its numbers, side by side where there is room."""
    if not chart:
        return numbers
    drawn = element("figure", chart, class_="scroll", tabindex=0, role="group", aria_label="Chart")
    return element("div", drawn, numbers, class_="beside")


def percent(share: float) -> str:
    """Return a share in percent, an en dash where it is not known.

    Examples
    --------
    >>> percent(0.3406), percent(0.004), percent(1.0), percent(math.nan)
    ('34 %', '0.4 %', '100 %', '–')
    """
    if not math.isfinite(share):
        return "–"
    return f"{share:.0%}".replace("%", " %") if share >= 0.1 else f"{100 * share:.2g} %"
