"""Cells of tables: the kind of a column, and the conversion to numbers and days.

Numbers written as text have a point or a comma as the decimal sign.
"""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.errors import InputError
from fedcluster.frames.columns import is_missing
from fedcluster.lazy import LazyModule

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LazyModule("pyarrow", "compute")

POINT, COMMA = ".", ","
NAMES = {POINT: "decimal points", COMMA: "decimal commas"}

GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}([.,]\d{3})+[.,]\d+")
"""A number with grouped thousands that can be read in no other way."""
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}")
"""A number that can also be read as a whole number with grouped thousands."""
TIMES: tuple[Any, ...] = (datetime.date, datetime.time, datetime.timedelta)
"""Python's types of times; a column of one of them is not numeric."""
HOW = '--set source.decimal=, or, in a site file, decimal = "," under [source]'


def other(decimal: str | None) -> str:
    """Return the other decimal sign."""
    return POINT if decimal == COMMA else COMMA


def parsed(text: str, decimal: str | None = POINT) -> float:
    """Return the number that a text stands for.

    Raises
    ------
    ValueError
        If the text is not a number, is ambiguous because it has a point although the decimal sign
        is a comma, or is a whole number with more digits than a float holds.

    Examples
    --------
    >>> parsed("36.6"), parsed("-36,6", ",")
    (36.6, -36.6)
    """
    if decimal == COMMA:
        if POINT in text:
            raise ValueError(f"{text!r} has a point")
        text = text.replace(COMMA, POINT)
    if "_" in text:
        # Python would read the underscore as part of a number
        raise ValueError(f"{text!r} is a code")
    if is_long(text):
        raise ValueError(f"{text!r} has more digits than a number")
    return float(text.replace("\u2212", "-"))


def is_long(text: str) -> bool:
    """Return whether a text is a whole number with more digits than a float holds, as long keys.

    Examples
    --------
    >>> [is_long(text) for text in ("20230301181139587", "-2000000000000000000", "1e30", "0.1")]
    [True, False, False, False]
    """
    digits = text.strip().removeprefix("-")
    # Number of digits that a float holds of any number.
    return digits.isdecimal() and len(digits.rstrip("0")) > 15 and int(digits) > 2**53


def is_number(text: str, decimal: str | None = POINT) -> bool:
    """Return whether a text is a number.

    Examples
    --------
    >>> is_number("1,5"), is_number("1,5", ","), is_number("1.5", ","), is_number("1.234,5", ",")
    (False, True, False, False)
    >>> is_number("1_2")
    False
    """
    try:
        parsed(text, decimal)
    except ValueError:
        return False
    return True


NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?"
AFFINE = re.compile(
    rf"([+-]?(?:{NUMBER})?)\s*\*?\s*x\s*([+-]\s*(?:{NUMBER}))|([+-]?(?:{NUMBER}))", re.I
)
"""A factor and a summand, or only a factor."""


def affine(text: str) -> tuple[float, float]:
    """Return the factor and the summand that convert values to another unit.

    Raises
    ------
    ValueError
        If the text has another form, or the factor is 0 or infinite.

    Examples
    --------
    >>> affine("7.5"), affine("1.8x+32"), affine("x - 273.15")
    ((7.5, 0.0), (1.8, 32.0), (1.0, -273.15))
    """
    found = AFFINE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no factor")
    factor, added, alone = found.groups()
    if alone is None and factor in ("", "+", "-"):
        factor += "1"
    scale, shift = float(alone or factor), float((added or "0").replace(" ", ""))
    if not 0 < abs(scale) < math.inf or math.isinf(shift):
        raise ValueError(f"{text!r} is no factor")
    return scale, shift


def decimals_of(columns: Mapping[str, Sequence[str]]) -> str:
    """Return the decimal sign of a file: a comma only if that is certain.

    There must be a column of numbers with decimal commas, at least one of which cannot separate
    thousands, and no column of numbers with decimal points.

    Examples
    --------
    >>> decimals_of({"a": ["36,6", "37"], "b": ["x, y", "z"]}), decimals_of({"a": ["1,234", "12"]})
    (',', '.')
    >>> decimals_of({"a": ["36,6"], "b": ["1.5"]}), decimals_of({"a": ["36,6", "warm"]})
    ('.', '.')
    """
    certain = False
    for cells in columns.values():
        there = [cell.strip() for cell in cells if not is_missing(cell)]
        commas = [cell for cell in there if COMMA in cell]
        if any(POINT in cell for cell in there) and all(map(is_number, there)):
            return POINT
        if commas and all(is_number(cell, COMMA) for cell in there):
            certain |= not all(map(THOUSANDS.fullmatch, commas))
    return COMMA if certain else POINT


PADDED = re.compile(r"\s*0\d+\s*")


def has_padding(cells: Iterable[object]) -> bool:
    """Return whether some cell is a text of digits with a leading zero.

    Examples
    --------
    >>> [has_padding([cell]) for cell in ("01015", "0", "0.5", "10", None)]
    [True, False, False, False, False]
    """
    return any(map(PADDED.fullmatch, filter(None, cells)))  # type: ignore[arg-type]


def may_be_number(text: str) -> bool:
    """Return whether a text is a number with any decimal sign and thousands separator.

    Examples
    --------
    >>> [may_be_number(text) for text in ("36.6", "36,6", "1.234,5", "24.12.2020")]
    [True, True, True, False]
    """
    return is_number(text) or is_number(text, COMMA) or GROUPED.fullmatch(text) is not None


def complaint(text: str, column: Sequence[str], decimal: str | None) -> str | None:
    """Return the message about a number in another notation, with the remedy; or None.

    Parameters
    ----------
    text : str
        The text that is not a number.
    column : sequence of str
        All texts of its column except missing values.
    decimal : {".", ",", None}
        The decimal sign that the option gives; None if the format has no such option because it
        stores numbers as such.

    Examples
    --------
    >>> print(complaint("36,6", ["36,6", "37"], "."))
    '36,6' has a decimal comma, as its column has; say --set source.decimal=, or, in a site
    file, decimal = "," under [source]
    >>> print(complaint("1,234", ["1,234", "12"], "."))
    '1,234' may mean 1.234 or 1234; if 1.234, say --set source.decimal=, or, in a site file,
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
        points = (each for each in column if POINT in each and may_be_number(each.strip()))
        beside = next((f", and {each.strip()!r} a point" for each in points), "")
        return f"{text!r} has a decimal comma{beside}; save the file with decimal points"
    if all(THOUSANDS.fullmatch(each.strip()) for each in column if COMMA in each):
        point, whole = text.replace(COMMA, POINT), text.replace(COMMA, "")
        return (
            f"{text!r} may mean {point} or {whole}; if {point}, say {HOW}; "
            f"if {whole}, save the file without commas"
        )
    return f"{text!r} has a decimal comma, as its column has; say {HOW}"


def _point(text: str, throughout: bool) -> str:
    """Return the message about a point in a file with decimal commas."""
    mend = f"do not say {HOW}" if throughout else "save the file with decimal commas"
    if THOUSANDS.fullmatch(text):
        mend = f"save the file without points of thousands, or {mend}"
    return f"{text!r} has a point, but its decimals were said to begin with a comma; {mend}"


# Numbers as people write them: with symbols, units, and signs that part thousands


BLANKS, APOSTROPHES = " \u00a0\u2009\u202f", "'\u2019"
SYMBOL = r"[%$£¥¢\u20a0-\u20cf]|EUR|USD|GBP|CHF"
"""Pattern of per cent and currency symbols, and some of their names."""
UNIT = r"[a-zA-Z\u00b5\u03bc\u00b0]{1,8}[23\u00b2\u00b3]?(?:/[a-zA-Z]{1,8}[23\u00b2\u00b3]?)?"
"""A unit of measurement, such as kg, mmHg or kg/m\u00b2."""
WRITTEN = re.compile(
    rf"(?P<sign>[-+\u2212]?)[{BLANKS}]*(?P<before>{SYMBOL})?[{BLANKS}]*(?P<own>[-+\u2212]?)"
    rf"(?P<figures>\d[\d.,{APOSTROPHES}{BLANKS}]*?)[{BLANKS}]*(?P<after>{SYMBOL}|{UNIT})?"
)
PLAINLY = str.maketrans({**dict.fromkeys(BLANKS, " "), "\u2019": "'", "\u2212": "-"})
GROUPS = {POINT: (COMMA, " ", "'"), COMMA: (POINT, " ", "'")}
"""Characters that group thousands, by the decimal sign."""


def _symbol_and_figures(text: str) -> tuple[tuple[str, str], str]:
    """Return the symbols around a number, and its sign and digits; no digits if it is not one."""
    match = WRITTEN.fullmatch(text.strip())
    if match is None or (match["before"] and match["after"]) or (match["sign"] and match["own"]):
        return ("", ""), ""
    figures = (match["sign"] + match["own"] + match["figures"]).translate(PLAINLY)
    return (match["before"] or "", match["after"] or ""), figures


def is_amount(text: str) -> bool:
    """Return whether a text is a number with a symbol, a unit, or signs that part thousands.

    Examples
    --------
    >>> [is_amount(text) for text in ("$12", "75 kg", "1 234", "12", "1,5", "24.12.2020")]
    [True, True, True, False, False, False]
    """
    symbol, figures = _symbol_and_figures(text)
    is_more = symbol != ("", "") or is_written_number(text)
    return bool(figures) and is_more and not may_be_number(text.strip())


def unit_of(text: str) -> str:
    """Return the unit behind a number; "" for any other text, or for a symbol.

    Examples
    --------
    >>> unit_of("75 kg"), unit_of("12%"), unit_of("12")
    ('kg', '', '')
    """
    after = _symbol_and_figures(text)[0][1]
    return "" if re.fullmatch(SYMBOL, after) else after


@cache
def _figures(decimal: str, group: str) -> re.Pattern[str]:
    """Return the pattern of a number with a decimal sign and optional grouping."""
    whole = rf"(?:0|[1-9]\d{{0,2}}(?:{re.escape(group)}\d{{3}})*)" if group else r"\d+"
    return re.compile(rf"[-+]?{whole}(?:{re.escape(decimal)}\d+)?")


def is_written_number(text: str) -> bool:
    """Return whether a text is a number in any notation.

    Examples
    --------
    >>> [is_written_number(text) for text in ("1 234,5", "$12", "12%", "12 kg", "24.12.2020")]
    [True, True, True, False, False]
    """
    figures = _symbol_and_figures(text)[1]
    return (
        bool(figures)
        and not unit_of(text)
        and any(
            _figures(sign, group).fullmatch(figures)
            for sign, groups in GROUPS.items()
            for group in ("", *groups)
        )
    )


# Dates, and the numbers that are made of them


FROM_DATES = ("age", "month", "weekday", "since", "hour")
"""What a date, or a time of day, may be converted to."""
SINCE = "2000-01-01"
"""Default day from which days are counted."""
DATES_TRIED = 50
"""Number of texts that are tried first, before all texts."""
TIME = (
    r"(?:(?:T| +)(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2}(?:[.,]\d+)?)?)?(?: ?(?P<half>[ap])m)?"
    r"(?:Z| ?[+-]\d{2}:?\d{2})?)?"
)
MONTHS = {
    name: i
    for i, names in enumerate(
        (
            "jan january januar janvier enero",
            "feb february februar février febrero",
            "mar march märz mär mrz mars marzo",
            "apr april avril abril",
            "may mai mayo",
            "jun june juni juin junio",
            "jul july juli juillet julio",
            "aug august août agosto",
            "sep sept september septembre septiembre",
            "oct october okt oktober octobre octubre",
            "nov november novembre noviembre",
            "dec december dez dezember décembre diciembre",
        ),
        start=1,
    )
    for name in names.split()
}
PATTERNS = {
    order: re.compile(pattern + TIME, re.IGNORECASE)
    for order, pattern in {
        "ymd": r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})",
        "dmy": r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})",
        "mdy": r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})",
        "dmy2": r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{2})",
        "mdy2": r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{2})",
        "dby": r"(\d{1,2})[-. ]+([^\W\d]{3,})[-. ]+(\d{4})",
        "bdy": r"([^\W\d]{3,})[-. ]+(\d{1,2}),? +(\d{4})",
        "ym": r"(\d{4})[-/](\d{1,2})",
        "my": r"(\d{1,2})[-/](\d{4})",
        "HMS": r"(\d{1,2}):(\d{2})(?::(\d{2}))?",
    }.items()
}


def days_of_texts(
    texts: Sequence[str], order: str = "", latest: datetime.date | None = None
) -> Floats | None:
    """Return texts as days since 1970, (n,), or None if one of them is not a date.

    A month is its first day, and a time of day is a part of one.

    Parameters
    ----------
    texts : sequence of str
        The texts.
    order : {"", "dmy", "mdy"}
        What comes first if all dates are ambiguous, as 3/4/2021 is: by default the day.
    latest : date, optional
        The day after which no date with a year of two digits lies; by default the end of 2049.

    Examples
    --------
    >>> days_of_texts(["02.01.1970", "1.2.1970"]), days_of_texts(["12/31/1970", "01/02/1970"])
    (array([ 1., 31.]), array([364.,   1.]))
    >>> days_of_texts(["2 Jan 1970"]), days_of_texts(["1970-01-02 08:30"])
    (array([1.]), array([1.35416667]))
    >>> days_of_texts(["1970-02", "1970-01"]), days_of_texts(["06:00", "18:30:00"])
    (array([31.,  0.]), array([0.25      , 0.77083333]))
    >>> days_of_texts(["1.5", "2.5"])
    """
    for each in sorted(PATTERNS, key=lambda name: bool(order) and not name.startswith(order)):
        head = _days(texts[:DATES_TRIED], each, latest) if len(texts) > DATES_TRIED else texts
        if head is not None and (days := _days(texts, each, latest)) is not None:
            return days
    return None


def orders_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Return what may come first in dates of numbers: "dmy", "mdy", or both if they differ then.

    Examples
    --------
    >>> orders_of(["3/4/2021", "5/5/2021"]), orders_of(["3/4/2021", "3/13/2021"])
    (('dmy', 'mdy'), ('mdy',))
    >>> orders_of(["5/5/2021"]), orders_of(["2021-03-04"])
    ((), ())
    """
    found = {}
    for order in ("dmy", "mdy"):
        days = _days(texts, order, None)
        days = _days(texts, f"{order}2", None) if days is None else days
        if days is not None:
            found[order] = tuple(days.tolist())
    return tuple(found) if len(found) == 1 or len(set(found.values())) > 1 else ()


def has_short_years(texts: Sequence[str]) -> bool:
    """Return whether dates are written with years of two digits."""
    return any(_days(texts, order, None) is not None for order in ("dmy2", "mdy2"))


def _days(texts: Sequence[str], order: str, latest: datetime.date | None) -> Floats | None:
    days = np.empty(len(texts))
    for i, text in enumerate(texts):
        match = PATTERNS[order].fullmatch(text.strip())
        day = None if match is None else _day(match.groups(), order, latest)
        time = None if match is None else _part_of_day(match)
        if day is None or time is None:
            return None
        days[i] = day + time
    return days if len(texts) else None


def _day(parts: Sequence[str], order: str, latest: datetime.date | None) -> float | None:
    """Return the days since 1970 of the parts of a date, or None if there is no such day."""
    part = dict(zip(order, parts, strict=False))
    if order == "HMS":
        hours, minutes, seconds = (int(part[key] or 0) for key in order)
        is_time = max(hours / 24, minutes / 60, seconds / 60) < 1
        return (hours + minutes / 60 + seconds / 3600) / 24 if is_time else None
    month = part.get("m") or str(MONTHS.get(part.get("b", "").lower(), 0))
    year, last = int(part["y"]), (latest or datetime.date(2049, 12, 31)).toordinal()
    try:
        if order.endswith("2"):
            years = (2000 + year, 1900 + year)
            days = [datetime.date(each, int(month), int(part["d"])).toordinal() for each in years]
            return float(next((day for day in days if day <= last), days[-1]) - EPOCH)
        return float(datetime.date(year, int(month), int(part.get("d", 1))).toordinal() - EPOCH)
    except ValueError:
        return None


def _part_of_day(match: re.Match[str]) -> float | None:
    """Return the time behind a date as a part of a day, 0 without one, None if it is no time."""
    hours, minutes, seconds = (float((match[key] or "0").replace(",", ".")) for key in "HMS")
    if max(hours / (24 if match["half"] is None else 13), minutes / 60, seconds / 60) >= 1:
        return None
    hours = hours if match["half"] is None else hours % 12 + 12 * (match["half"] in "pP")
    return (hours + minutes / 60 + seconds / 3600) / 24


EPOCH = datetime.date(1970, 1, 1).toordinal()


def days_of_numbers(
    values: NDArray[np.floating], fewest: int = 3, *, first: int = 18000101, last: int = 21001231
) -> Floats | None:
    """Return numbers YYYYMMDD as days since 1970, keeping NaN; None if they are not dates.

    Fewer than ``fewest`` numbers are not taken for dates.

    ``first`` and ``last``: range of whole numbers that may be dates YYYYMMDD.

    Examples
    --------
    >>> days_of_numbers(np.array([19700102.0, np.nan, 19710101.0, 19700101.0]))
    array([  1.,  nan, 365.,   0.])
    >>> days_of_numbers(np.array([19701301.0, 19700101.0]))
    """
    head = values[:DATES_TRIED]
    if not ((head >= first) & (head <= last) | np.isnan(head)).all():
        return None
    there = ~np.isnan(values)
    dates = values[there]
    if len(dates) < fewest or not ((dates >= first) & (dates <= last)).all():
        return None
    if not (dates == np.floor(dates)).all():
        return None
    numbers, place = np.unique(dates.astype(np.int64), return_inverse=True)
    texts = [f"{n // 10000}-{n // 100 % 100}-{n % 100}" for n in numbers.tolist()]
    days = _days(texts, "ymd", None)
    if days is None:
        return None
    result = np.full(len(values), np.nan)
    result[there] = days[place]
    return result


def is_date(cell: object) -> bool:
    """Return whether a cell is a date: a Python date, a date in text, or a number YYYYMMDD.

    Examples
    --------
    >>> [is_date(cell) for cell in ("2.1.1970", 19700102.0, 1970, "low")]
    [True, True, False, False]
    """
    if isinstance(cell, int | float):
        return days_of_numbers(np.array([float(cell)]), 1) is not None
    return isinstance(cell, datetime.date) or days_of_texts([str(cell)]) is not None


def checked_how(how: str, today: datetime.date | None = None) -> str:
    """Return the specification of how a date becomes a number, with its reference day.

    Parameters
    ----------
    how : str
        "age", "age:2024-12-31", "month", "weekday", "since", "since:2000-01-01" or "hour" (of
        times); followed by ":dmy" or ":mdy" for what comes first in dates such as 3/4/2021.
    today : date, optional
        The day at which ages are computed if none is given.

    Examples
    --------
    >>> checked_how("age", datetime.date(2024, 5, 1)), checked_how("since"), checked_how("month")
    ('age:2024-05-01', 'since:2000-01-01', 'month')
    """
    kind, day, order = _parts_of(how)
    try:
        known = datetime.date.fromisoformat(day).isoformat() if day else ""
    except ValueError:
        kind = ""
    if kind not in FROM_DATES or (day and kind not in ("age", "since")):
        raise InputError(
            "dates become age, age:YYYY-MM-DD, month, weekday, since, since:YYYY-MM-DD or hour, "
            f"not {how}"
        )
    if not known and kind in ("age", "since"):
        known = SINCE if kind == "since" else (today or datetime.date.today()).isoformat()
    return ":".join(filter(None, (kind, known, order)))


def _parts_of(how: str) -> tuple[str, str, str]:
    """Return the kind of number of a conversion, its reference day, and the order of dates."""
    kind, *more = how.split(":")
    order = more.pop() if more and more[-1] in ("dmy", "mdy") else ""
    return kind, ":".join(more), order


def order_of(how: str) -> str:
    """Return what comes first in dates, "dmy" or "mdy", as a conversion says; "" if it does not."""
    return _parts_of(how)[2]


def latest_of(how: str) -> datetime.date:
    """Return the day after which no date lies: nobody is born after an age is taken."""
    kind, day, _ = _parts_of(how)
    return datetime.date.fromisoformat(day) if kind == "age" else datetime.date.today()


def numbers_of(days: Floats, how: str) -> Floats:
    """Return dates (n,), given as days since 1970, as ages, months, weekdays, days or hours.

    Examples
    --------
    >>> days = days_of_texts(["1970-01-01", "2000-03-01"])
    >>> numbers_of(days, "age:2010-01-01").round(1), numbers_of(days, "month")
    (array([40. ,  9.8]), array([1., 3.]))
    >>> numbers_of(days, "weekday"), numbers_of(days, "since:2000-01-01")  # 1 is a Monday
    (array([4., 3.]), array([-10957.,     60.]))
    >>> numbers_of(days_of_texts(["06:45"]), "hour")
    array([6.75])
    """
    kind, day, _ = _parts_of(how)
    if kind == "hour":
        return (days - np.floor(days)) * 24.0
    days = np.floor(days)
    if kind in ("age", "since"):
        start = datetime.date.fromisoformat(day).toordinal() - EPOCH
        # Number of days in a year.
        return (start - days) / 365.2425 if kind == "age" else days - start
    numbers = np.full(len(days), np.nan)
    there = ~np.isnan(days)
    whole = days[there].astype("datetime64[D]")
    if kind == "weekday":
        numbers[there] = (days[there] + 3) % 7 + 1
    else:
        numbers[there] = whole.astype("datetime64[M]").astype(int) % 12 + 1
    return numbers


def dates_of(numbers: Floats, how: str) -> NDArray[np.str_]:
    """Return dates (n,), as YYYY-MM-DD, or times that become numbers, rounded to what they tell.

    Examples
    --------
    >>> dates_of(np.array([40.0, -1.0]), "age:2010-01-01").tolist()
    ['1970-01-01', '2010-01-01']
    >>> numbers_of(days_of_texts(dates_of(np.array([3.2, 12.9]), "month")), "month")
    array([ 3., 12.])
    >>> numbers_of(days_of_texts(dates_of(np.array([7.0, 0.0]), "weekday")), "weekday")
    array([7., 1.])
    >>> dates_of(np.array([6.75]), "hour").tolist()
    ['06:45']
    """
    kind, day, _ = _parts_of(how)
    if kind == "hour":
        minutes = np.clip(np.rint(60.0 * numbers), 0, 1439).astype(int)
        return np.array([f"{minute // 60:02d}:{minute % 60:02d}" for minute in minutes.tolist()])
    if kind == "month":
        months = np.clip(np.rint(numbers), 1, 12).astype(int) - 1
        days = months.astype("datetime64[M]").astype("datetime64[D]").astype(int)
    elif kind == "weekday":  # day 4 is the first Monday
        days = np.clip(np.rint(numbers), 1, 7) + 3
    else:
        start = datetime.date.fromisoformat(day).toordinal() - EPOCH
        days = start - np.maximum(numbers, 0.0) * 365.2425 if kind == "age" else start + numbers
    dates: NDArray[np.str_] = np.rint(days).astype(int).astype("datetime64[D]").astype(str)
    return dates


# Columns as Arrow holds them


def as_arrow(cells: Sequence[Any]) -> pa.Array:
    """Return the cells of a column as an Arrow array; None is missing.

    The result has numbers, booleans or dates; any other column becomes text, unchanged.

    Raises
    ------
    TypeError
        If a cell is something else, such as a list.

    Examples
    --------
    >>> as_arrow([1, None, 2.5]).to_pylist(), as_arrow(["a", None, 2.0]).to_pylist()
    ([1.0, None, 2.5], ['a', None, '2'])
    """
    there = [cell for cell in cells if cell is not None]
    if all(isinstance(cell, bool | np.bool_) for cell in there):
        return pa.array([None if cell is None else bool(cell) for cell in cells], pa.bool_())
    if all(isinstance(cell, Number) for cell in there):
        return pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
    for kinds in TIMES:
        if all(isinstance(cell, kinds) for cell in there):
            times = [  # local time, as written in the file
                cell.replace(tzinfo=None) if isinstance(cell, datetime.datetime) else cell
                for cell in cells
            ]
            return pa.array(times)
    return pa.array([None if cell is None else _written(cell) for cell in cells], pa.string())


def column_of(cells: Sequence[Any]) -> pa.Array:
    """Return the cells of a column of a database as an Arrow array of their type.

    A column of mixed types becomes floats if all are numbers, and text otherwise.
    """
    try:
        return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        is_number = all(cell is None or isinstance(cell, int | float) for cell in cells)
        kind = float if is_number else str
        return pa.array([None if cell is None else kind(cell) for cell in cells])


def _written(cell: Any) -> str:
    """Return a cell as text; whole numbers, which mixed columns hold as floats, without a point."""
    if not isinstance(cell, str | bytes | Number | datetime.date | datetime.time):
        raise TypeError(f"argument must be a string or a real number, not {type(cell).__name__!r}")
    if isinstance(cell, bytes):
        return cell.decode(errors="replace")
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a text type."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_numeric(column: pa.ChunkedArray, decimal: str | None = POINT) -> bool:
    """Return whether all values are numbers, possibly written as text, or missing."""
    kind = column.type
    if is_text(kind):
        # Number of cells that are tried first, before all cells.
        head = column.slice(0, 100).to_pylist()
        return all(reads_as_number(cell, decimal) for cell in head) and all(
            reads_as_number(cell, decimal) for cell in column.unique().to_pylist()
        )
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    )


def in_digits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column, as text if some of its whole numbers have more digits than a float holds."""
    kind, texts = column.type, pa.string()
    if pa.types.is_decimal(kind) and kind.scale == 0:
        return column.cast(texts)
    if not pa.types.is_integer(kind):
        return column
    held = column.cast(pa.float64(), safe=False).cast(kind, safe=False)
    return column if held.equals(column) else column.cast(texts)


def as_floats(column: pa.ChunkedArray, decimal: str | None = POINT) -> NDArray[np.floating[Any]]:
    """Return a numeric column as floats with NaN for missing values; float32 is kept.

    Where no cell is missing, the numbers are those of the table itself, and cannot be written.
    """
    if is_text(column.type):
        return floats_of_texts(column, lambda text: parsed(text, decimal))
    if pa.types.is_decimal(column.type):
        # via text: casting decimals to float directly rounds twice
        column = column.cast(pa.string())
    if not pa.types.is_floating(column.type) or pa.types.is_float16(column.type):
        column = column.cast(pa.float64(), safe=False)
    dtype: Any = np.float32 if pa.types.is_float32(column.type) else np.float64
    if column.num_chunks == 1 and not column.null_count:
        return _values(column.chunk(0), dtype)
    values: NDArray[np.floating[Any]] = np.empty(len(column), dtype)
    end = 0
    # chunk by chunk: Arrow's to_numpy imports pandas, which takes half a second
    for chunk in column.chunks:
        start, end = end, end + len(chunk)
        values[start:end] = _values(chunk, dtype)
        values[start:end][_is_null(chunk)] = np.nan
    return values


def floats_of_texts(column: pa.ChunkedArray, parse: Callable[[str], float | None]) -> Floats:
    """Return texts as numbers, (n,), with NaN for those that are missing or not numbers."""
    cells, places = _places_of(column)
    each = [None if is_missing(cell) else parse(str(cell)) for cell in cells]
    numbers: Floats = np.array(each, np.float64)[places]
    return numbers


def _values(array: pa.Array, dtype: Any) -> NDArray[Any]:
    """Return the numbers of an array, with arbitrary values for missing ones."""
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _is_null(array: pa.Array) -> NDArray[np.bool_]:
    """Return a mask of the missing values of an array."""
    if not array.null_count:
        return np.zeros(len(array), dtype=bool)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    nulls: NDArray[np.bool_] = bits[array.offset : array.offset + len(array)] == 0
    return nulls


def _places_of(texts: pa.ChunkedArray) -> tuple[list[str | None], NDArray[np.intp]]:
    """Return the distinct texts followed by None, and the index of each cell in them, (n,)."""
    coded = texts.combine_chunks().dictionary_encode()
    different = [*coded.dictionary.to_pylist(), None]
    places = _values(coded.indices, str(coded.indices.type)).astype(np.intp)
    places[_is_null(coded.indices)] = len(different) - 1
    return different, places


def kind_of(column: pa.ChunkedArray, decimal: str | None = POINT) -> str:
    """Return the kind of a column: "number", "text", "date", "mixed" or "empty".

    Numbers with the other decimal sign are "decimal commas" or "decimal points".
    """
    kind = column.type
    if missing_in(column) == len(column):
        return "empty"
    if pa.types.is_temporal(kind):
        return "date"
    if not is_text(kind):
        return "number" if is_numeric(column) else str(kind)
    cells = [cell for cell in column.to_pylist() if not is_missing(cell)]
    numbers = [is_number(cell, decimal) for cell in cells]
    if not all(numbers) and all(n or is_amount(c) for c, n in zip(cells, numbers, strict=True)):
        return "amounts"
    if decimal and not all(numbers) and all(is_number(cell, other(decimal)) for cell in cells):
        return NAMES[other(decimal)]
    return "number" if all(numbers) else "mixed" if any(numbers) else "text"


def days_of(column: pa.ChunkedArray) -> Floats | None:
    """Return a column of dates or times as days since 1970, NaN for missing values, (n,).

    A time of day is a part of a day, in the time zone of the column. Return None for durations.
    """
    if pa.types.is_time(column.type):
        column, second = column.cast(pa.time64("us")).cast(pa.int64()), 1e6
    elif pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        if getattr(column.type, "tz", None):
            column = pa.compute.local_timestamp(column)
        column, second = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64()), 1.0
    else:
        return None
    days: Floats = column.cast(pa.float64()).to_numpy() / (86_400 * second)
    return days


def dates_in(
    column: pa.ChunkedArray,
    decimal: str | None = POINT,
    read: Callable[[Sequence[str]], Floats | None] = days_of_texts,
) -> Floats | None:
    """Return a column of dates in any form as days since 1970, NaN for missing values.

    Texts are read by a function. Return None if some value is not a date.
    """
    if pa.types.is_temporal(column.type):
        return days_of(column)
    if not is_text(column.type):
        return days_of_numbers(as_floats(column), 1) if is_numeric(column) else None
    levels, codes = levels_of(column)
    days = read(levels)
    if days is None:
        numbers = as_floats(column, decimal) if is_numeric(column, decimal) else None
        return None if numbers is None else days_of_numbers(numbers, 1)
    return at_codes(days, codes)


def missing_in(column: pa.ChunkedArray) -> int:
    """Return the number of missing values."""
    if is_text(column.type):
        return sum(map(is_missing, column.to_pylist()))
    return int(pa.compute.sum(pa.compute.is_null(column, nan_is_null=True)).as_py() or 0)


def reads_as_number(cell: object, decimal: str | None = POINT) -> bool:
    """Return whether a cell is missing or a number, possibly written as text."""
    if isinstance(cell, str):
        return is_missing(cell) or is_number(cell, decimal)
    return cell is None or isinstance(cell, float)


def levels_of(column: pa.ChunkedArray) -> tuple[tuple[str, ...], Floats]:
    """Return the distinct texts of a column, stripped of blanks, and each row's code, or NaN.

    Among texts, "none" is one of them, as in none, mild and severe.
    """
    cells, places = _places_of(column)
    written = ["" if text is None else text.strip() for text in cells]
    levels = sorted({t for t in written if not is_missing(t) or t.lower() == "none"})
    code = {text: float(i) for i, text in enumerate(levels)}
    return tuple(levels), np.array([code.get(text, np.nan) for text in written])[places]


def at_codes(values: Floats, codes: Floats) -> Floats:
    """Return the value of each code, (n,), with NaN for NaN."""
    place = np.where(np.isnan(codes), len(values), codes).astype(np.intp)
    return np.append(values, np.nan)[place]


def mostly_numbers(levels: Sequence[str], codes: Floats) -> bool:
    """Return whether more than half of the texts, counted by row, are numbers in any form.

    They may have a unit, the same one. A single number among texts is a text, such as 4 in the
    drive types 4, f and r of cars.
    """
    symbols = [_symbol_and_figures(text)[0] for text in levels]
    [(usual, _)] = Counter(symbols).most_common(1) or [(("", ""), 0)]
    numbers = np.array(
        [
            not is_long(text)
            and ((symbol == usual != ("", "")) or may_be_number(text) or is_written_number(text))
            for text, symbol in zip(levels, symbols, strict=True)
        ],
        dtype=bool,
    )
    there = codes[~np.isnan(codes)].astype(np.intp)
    return numbers.sum() > 1 and len(there) > 0 and bool(numbers[there].mean() > 0.5)


def numbered_groups(names: Any) -> NDArray[np.int64]:
    """Return hashes of the names of persons, (n,), equal for equal names."""
    different, places = _places_of(pa.chunked_array([pa.array(names)]))
    digests = b"".join(
        blake2b((name or "").strip().encode(), digest_size=8).digest() for name in different
    )
    groups: NDArray[np.int64] = np.frombuffer(digests, np.int64)[places]
    return groups
