"""Numbers and names in sentences and tables."""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

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


def dotted(*parts: str) -> str:
    """Return a key of a TOML file with its tables.

    Examples
    --------
    >>> dotted("codes", "blood type", "A+")
    'codes."blood type"."A+"'
    """
    return ".".join(
        part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else in_toml(part) for part in parts
    )


def in_toml(value: Any) -> str:
    r"""Return a value as TOML writes it, a table in one line.

    Examples
    --------
    >>> print(in_toml({"a b": [1, 2.5, True], "c": "\u007f"}))
    {"a b" = [1, 2.5, true], c = "\u007f"}
    """
    if isinstance(value, Mapping):
        pairs = (f"{dotted(key)} = {in_toml(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(in_toml, value))}]"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def setting(*parts: str, to: Any) -> str:
    r"""Return the option that sets a key of the study file, to be copied; simple texts stay plain.

    Examples
    --------
    >>> setting("codes", "sex", "female", to="F"), setting("missing_values", to=[-999])
    ('--set codes.sex.female=F', "--set 'missing_values=[-999]'")
    >>> setting("codes", "sex", to={"1": "F"})
    '--set \'codes.sex={1 = "F"}\''
    """
    value = f"{to:.12g}" if isinstance(to, float) else in_toml(to)
    if isinstance(to, str) and re.fullmatch(r"\w[\w.:+-]*", to):
        try:
            tomllib.loads(f"value = {to}")
        except tomllib.TOMLDecodeError:
            value = to
    return f"--set {shlex.quote(f'{dotted(*parts)}={value}')}"
