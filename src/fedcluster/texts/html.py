"""Tables for a screen, a page or a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedcluster.texts.untrusted import printable


class Html(str):
    """Text that is HTML already, so that nothing escapes it again."""

    __slots__ = ()


def escaped(value: Any) -> str:
    r"""Return a value as HTML, with control characters replaced by their codes.

    Examples
    --------
    >>> print(escaped("a < b \x1b[2J"), escaped(Html("<br>")))
    a &lt; b \x1b[2J <br>
    """
    return value if isinstance(value, Html) else html.escape(printable(str(value)))


@dataclass(frozen=True, slots=True)
class Table:
    """Table for a screen or a notebook: the first column names its rows.

    Parameters
    ----------
    title : str
        What the table shows.
    header : sequence
        The heads of the columns.
    rows : sequence of sequence
        Texts; in a notebook also HTML. All columns except the first hold numbers.
    total : sequence, optional
        A highlighted last line of a screen.

    Examples
    --------
    >>> Table("ages", ["cluster", "mean"], [[0, "41"]]).plain_html()  # doctest: +ELLIPSIS
    '<table><caption>ages</caption>...<tr><th scope="row">0</th><td>41</td></tr></tbody></table>'
    """

    title: str
    header: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    total: Sequence[Any] = ()

    def plain_html(self) -> str:
        """Return the table for a notebook, without a style or a script."""
        heads = "".join(f'<th scope="col">{escaped(each)}</th>' for each in self.header)
        lines = "".join(
            f'<tr><th scope="row">{escaped(first)}</th>'
            f"{''.join(f'<td>{escaped(each)}</td>' for each in others)}</tr>"
            for first, *others in self.rows
        )
        return (
            f"<table><caption>{escaped(self.title)}</caption><thead><tr>{heads}</tr></thead>"
            f"<tbody>{lines}</tbody></table>"
        )
