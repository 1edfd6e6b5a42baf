"""Numbers and names in sentences and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedcluster.errors import listed
from fedcluster.texts.untrusted import shortened

NOTHING = "–"
"""Placeholder for an unknown number."""


def number(x: float) -> str:
    """Return a number to six significant digits, with commas.

    Examples
    --------
    >>> number(1165165.3), number(78.851441), number(4.0), number(-2.5e-7), number(3e15)
    ('1,165,165', '78.8514', '4', '-2.5e-07', '3e+15')
    """
    if not math.isfinite(x) or x == 0 or not 1e-4 <= abs(x) < 1e15:
        return f"{x:g}"
    digits = max(0, 5 - math.floor(math.log10(abs(x))))
    text = f"{x:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def shown(x: float | None) -> str:
    """Return a number as a table shows it; an en dash if unknown.

    Examples
    --------
    >>> shown(2.5), shown(None), shown(math.nan)
    ('2.5', '–', '–')
    """
    return NOTHING if x is None or math.isnan(x) else number(x)


def short_number(x: float | None) -> str:
    """Return a number to four significant digits, without decimals if it is large.

    Examples
    --------
    >>> short_number(36.6123), short_number(123456.7), short_number(None)
    ('36.61', '123,457', '–')
    """
    if x is None or not math.isfinite(x):
        return NOTHING
    return f"{x:.4g}" if abs(x) < 1e4 else f"{x:,.0f}"


def percent(share: float) -> str:
    """Return a share in percent, an en dash if unknown.

    Examples
    --------
    >>> percent(0.3406), percent(0.004), percent(1.0), percent(math.nan)
    ('34 %', '0.4 %', '100 %', '–')
    """
    if not math.isfinite(share):
        return NOTHING
    return f"{share:.0%}".replace("%", " %") if share >= 0.1 else f"{100 * share:.2g} %"


def counted(n: int, what: str) -> str:
    """Return a number and its noun, in the plural if needed.

    Examples
    --------
    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def some_of(names: Sequence[str], most: int = 5) -> str:
    """Return the first names in a sentence's form, and how many more there are.

    Examples
    --------
    >>> some_of(["a", "b"]), some_of(["a", "b", "c"], most=1)
    ('a and b', 'a and 2 more')
    """
    more = [f"{len(names) - most} more"] if len(names) > most else []
    shown = [*names[:most], *more]
    return listed(shown)


def called(j: int, names: Sequence[str]) -> str:
    """Return the label of a cluster in charts: its number, and its name if it has one."""
    return f"{j} {shortened(names[j], 80)}" if names else f"cluster {j}"
