"""What the decimals of a number begin with where it is written as text: a point or a comma."""

from __future__ import annotations

import re
from collections.abc import Sequence

POINT, COMMA = ".", ","
NAMES = {POINT: "decimal points", COMMA: "decimal commas"}

GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}([.,]\d{3})+[.,]\d+")
"""A number whose thousands are parted, and that can be nothing else."""
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}")
"""What may as well be a whole number whose thousands are parted."""
HOW = '--decimal , or, in a site file, decimal = "," under [source]'


def other(decimal: str | None) -> str:
    """The sign that decimals do not begin with."""
    return POINT if decimal == COMMA else COMMA


def parsed(text: str, decimal: str | None = POINT) -> float:
    """The number that a text stands for.

    Raises
    ------
    ValueError
        If it is none, or has a point where decimals begin with a comma: nobody knows what it is.

    Examples
    --------
    >>> parsed("36.6"), parsed("-36,6", ",")
    (36.6, -36.6)
    """
    if decimal == COMMA:
        if POINT in text:
            raise ValueError(f"{text!r} has a point")
        text = text.replace(COMMA, POINT)
    return float(text)


def is_number(text: str, decimal: str | None = POINT) -> bool:
    """Whether a text is a number.

    Examples
    --------
    >>> is_number("1,5"), is_number("1,5", ","), is_number("1.5", ","), is_number("1.234,5", ",")
    (False, True, False, False)
    """
    try:
        parsed(text, decimal)
    except ValueError:
        return False
    return True


def may_be_number(text: str) -> bool:
    """Whether a text is a number with any sign before its decimals and between its thousands.

    Examples
    --------
    >>> [may_be_number(text) for text in ("36.6", "36,6", "1.234,5", "24.12.2020")]
    [True, True, True, False]
    """
    return is_number(text) or is_number(text, COMMA) or GROUPED.fullmatch(text) is not None


def complaint(text: str, column: Sequence[str], decimal: str | None) -> str | None:
    """What is wrong with a text and what to do, if it is a number that is written otherwise.

    Parameters
    ----------
    text : str
        What is no number.
    column : sequence of str
        All texts of its column that are not missing.
    decimal : {".", ",", None}
        What decimals were said to begin with; None where nobody can say it, since numbers need
        not be texts in such a file.

    Examples
    --------
    >>> print(complaint("36,6", ["36,6", "37"], "."))
    '36,6' has a decimal comma, as its column has; say --decimal , or, in a site file,
    decimal = "," under [source]
    >>> print(complaint("1,234", ["1,234", "12"], "."))
    '1,234' may mean 1.234 or 1234; if 1.234, say --decimal , or, in a site file,
    decimal = "," under [source]; if 1234, save the file without commas
    """
    text = text.strip()
    if GROUPED.fullmatch(text):
        return (
            f"{text!r} has more than one point or comma; save the file without those of thousands"
        )
    if not is_number(text, other(decimal)):
        return None
    throughout = all(is_number(each, other(decimal)) for each in column)
    if decimal == COMMA:
        return _point(text, throughout)
    if decimal is None or not throughout:
        return f"{text!r} has a decimal comma; save the file with decimal points"
    if all(THOUSANDS.fullmatch(each.strip()) for each in column if COMMA in each):
        point, whole = text.replace(COMMA, POINT), text.replace(COMMA, "")
        return (
            f"{text!r} may mean {point} or {whole}; if {point}, say {HOW}; "
            f"if {whole}, save the file without commas"
        )
    return f"{text!r} has a decimal comma, as its column has; say {HOW}"


def _point(text: str, throughout: bool) -> str:
    """The same where commas were asked for."""
    mend = f"do not say {HOW}" if throughout else "save the file with decimal commas"
    if THOUSANDS.fullmatch(text):
        mend = f"save the file without points of thousands, or {mend}"
    return f"{text!r} has a point, but its decimals were said to begin with a comma; {mend}"
