"""Turn the formulas of a page into MathML, which browsers draw without a script or a font to fetch.

The Markdown extension arithmatex marks what stands between ``$`` and ``$$``; code is left alone.
GitHub draws the same source by itself.
"""

import re
from html import unescape

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **_: object) -> str:
    """Return the HTML of a page with its formulas drawn."""
    return FORMULA.sub(lambda found: drawn(*found.groups()), html)


def drawn(element: str, latex: str) -> str:
    """Return one formula as MathML, in a box that scrolls where it is a line of its own."""
    inline = element == "span"
    math = convert(unescape(latex).strip(), display="inline" if inline else "block")
    if "\\" in math:  # the converter leaves what it does not know as it is
        raise PluginError(f"not all of this formula was understood: {latex}")
    return math if inline else f'<div class="formula" tabindex="0">{math}</div>'
