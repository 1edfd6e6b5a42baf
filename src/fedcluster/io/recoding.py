"""Recoding of columns: codes of several sources made one, and values that are written otherwise."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats
from fedcluster.errors import InputError
from fedcluster.io.columns import Meanings, column_list, columns_of, is_missing, renamed

# Values that are written otherwise


@dataclass(frozen=True, slots=True)
class Recoding:
    """Changes of values as they are read, the same wherever the rows come from.

    Parameters
    ----------
    missing : tuple of str
        Values, of numbers or texts, that mean that there is none.
    codes : mapping of str to mapping of str to str
        By column, what some of its texts are called instead; the others stay.
    factors : mapping of str to mapping of str to float
        By site, what its columns are multiplied with.

    Examples
    --------
    >>> rows = Data(np.array([[18.0, 0.0], [-999.0, 1.0]]),
    ...             columns=(Column("sbp"), Column("sex", "text", ("F", "female"))))
    >>> recoding = Recoding(("-999",), {"sex": {"female": "F"}}, {"west": {"sbp": 7.5}})
    >>> recoded = recoding.apply(rows, "west")
    >>> recoded.X, recoded.columns[1].levels
    (array([[135.,   0.],
           [ nan,   0.]]), ('F',))
    """

    missing: tuple[str, ...] = ()
    codes: Meanings = field(default_factory=dict)
    factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def apply(self, data: Data, site: str) -> Data:
        """Return the rows of a site as they are meant."""
        factors = self.factors.get(site, {})
        if not (self.missing or self.codes or factors):
            return data
        columns = list(columns_of(data))
        names = [column.name for column in columns]
        if unknown := [name for name in factors if name not in names]:
            raise InputError(f"--factor: site {site!r} has no column {unknown[0]!r} to multiply")
        X = data.X.copy()
        numbers = [float(text) for text in self.missing if _is_number(text)]
        for j, column in enumerate(columns):
            if column.kind == "number":
                X[np.isin(X[:, j], numbers), j] = np.nan
                X[:, j] *= factors.get(column.name, 1.0)
            elif column.kind == "text":
                meaning = {**self.codes.get(column.name, {}), **dict.fromkeys(self.missing)}
                if not meaning.keys().isdisjoint(column.levels):
                    meant = [meaning.get(level, level) for level in column.levels]
                    named = (level for level in meant if level is not None)
                    X[:, j], levels = renamed(X[:, j], meant, named)
                    columns[j] = Column(column.name, "text", levels)
        return replace(data, X=X, columns=tuple(columns) if data.columns else ())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def recoding_from_options(
    missing: str | None, codes: str | None, factors: Sequence[str] | str | None
) -> Recoding:
    """Return what the options of a command say.

    Examples
    --------
    >>> recoding = recoding_from_options("-999,unknown", "sex:female=F,sex:male=M", "west:sbp=7.5")
    >>> recoding.missing, recoding.codes, recoding.factors
    (('-999', 'unknown'), {'sex': {'female': 'F', 'male': 'M'}}, {'west': {'sbp': 7.5}})
    """
    by_site: dict[str, dict[str, float]] = {}
    for site, name, value in _triples(factors, "--factor", "west:sbp=7.5"):
        if not _is_number(value) or not 0 < abs(float(value)) < np.inf:
            raise InputError(f"--factor {site}:{name}={value}: {value!r} is no factor")
        by_site.setdefault(site, {})[name] = float(value)
    by_column: dict[str, dict[str, str]] = {}
    for name, text, meant in _triples(codes, "--codes", "sex:female=F"):
        by_column.setdefault(name, {})[text] = meant
    return Recoding(tuple(column_list(missing, "--missing-values") or ()), by_column, by_site)


def _triples(text: object, option: str, example: str) -> list[tuple[str, str, str]]:
    """Return A:B=C, with commas between, as triples."""
    parts = column_list(text, option) if isinstance(text, str) else []
    triples = []
    for part in parts or []:
        both, equals, value = part.rpartition("=")
        first, colon, second = both.partition(":")
        if not (equals and colon and first.strip() and second.strip() and value.strip()):
            raise InputError(f"{option} {part!r} must be as in {example}, with commas between")
        triples.append((first.strip(), second.strip(), value.strip()))
    return triples


# Dates, and the numbers that are made of them


HOW = ("age", "month", "weekday", "since")
"""What may be made of a date."""
YEAR = 365.2425
"""Days of a year."""
SINCE = "2000-01-01"
"""The day that days are counted from where none is given."""
FIRST, LAST = 18000101, 21001231
"""Whole numbers between which YYYYMMDD may lie."""
TRIED = 50
"""Texts that are tried before all are."""
TIME = r"(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[ap]m)?(?:Z| ?[+-]\d{2}:?\d{2})?)?"
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
    }.items()
}


def days_of_texts(texts: Sequence[str]) -> Floats | None:
    """Return the days since 1970 of texts, (n,), or None where one of them is no date.

    Where 3/4/2021 may be March or April throughout, the day is taken to stand first.

    Examples
    --------
    >>> days_of_texts(["02.01.1970", "1.2.1970"]), days_of_texts(["12/31/1970", "01/02/1970"])
    (array([ 1., 31.]), array([364.,   1.]))
    >>> days_of_texts(["2 Jan 1970"]), days_of_texts(["1970-01-02 08:30"])
    (array([1.]), array([1.]))
    >>> days_of_texts(["1.5", "2.5"])
    """
    for order, pattern in PATTERNS.items():
        head = _days(texts[:TRIED], order, pattern) if len(texts) > TRIED else texts
        if head is not None and (days := _days(texts, order, pattern)) is not None:
            return days
    return None


def _days(texts: Sequence[str], order: str, pattern: re.Pattern[str]) -> Floats | None:
    days = np.empty(len(texts))
    for i, text in enumerate(texts):
        match = pattern.fullmatch(text.strip())
        day = None if match is None else _day(match.groups(), order)
        if day is None:
            return None
        days[i] = day
    return days if len(texts) else None


def _day(parts: Sequence[str], order: str) -> float | None:
    """Return the days since 1970 of the parts of a date, or None where there is no such day."""
    given = dict(zip(order, parts, strict=False))
    month = given.get("m") or str(MONTHS.get(given.get("b", "").lower(), 0))
    year = int(given["y"])
    if order.endswith("2"):
        year += 2000 if year < 50 else 1900
    try:
        return float(datetime.date(year, int(month), int(given["d"])).toordinal() - EPOCH)
    except ValueError:
        return None


EPOCH = datetime.date(1970, 1, 1).toordinal()


def days_of_numbers(values: NDArray[np.floating], fewest: int = 3) -> Floats | None:
    """Return the days since 1970 of numbers YYYYMMDD, NaN as they are, or None if they are none.

    Fewer than ``fewest`` numbers are none.

    Examples
    --------
    >>> days_of_numbers(np.array([19700102.0, np.nan, 19710101.0, 19700101.0]))
    array([  1.,  nan, 365.,   0.])
    >>> days_of_numbers(np.array([19701301.0, 19700101.0]))
    """
    head = values[:TRIED]
    if not ((head >= FIRST) & (head <= LAST) | np.isnan(head)).all():
        return None
    there = ~np.isnan(values)
    given = values[there]
    if len(given) < fewest or not ((given >= FIRST) & (given <= LAST)).all():
        return None
    if not (given == np.floor(given)).all():
        return None
    numbers, place = np.unique(given.astype(np.int64), return_inverse=True)
    days = _days([f"{n // 10000}-{n // 100 % 100}-{n % 100}" for n in numbers.tolist()], *YMD)
    if days is None:
        return None
    found = np.full(len(values), np.nan)
    found[there] = days[place]
    return found


YMD = ("ymd", PATTERNS["ymd"])


def days_of_values(values: NDArray[Any]) -> Floats | None:
    """Return the days since 1970 of dates of any kind, NaN where one is missing, or None.

    None where some value is no date: neither a date of Python or numpy, nor a text of one, nor a
    number YYYYMMDD.

    Examples
    --------
    >>> days_of_values(np.array(["1970-01-03T12:00", "NaT"], dtype="datetime64[m]"))
    array([ 2., nan])
    >>> days_of_values(np.array([datetime.date(1970, 1, 2), None])), days_of_values(np.ones(2))
    (array([ 1., nan]), None)
    """
    if values.dtype.kind == "M":
        days = values.astype("datetime64[D]").astype(np.float64)
        return np.where(np.isnat(values), np.nan, days)
    if values.dtype.kind in "fiu":
        return days_of_numbers(values.astype(np.float64))
    there = np.array([not is_missing(value) for value in values], dtype=bool)
    given: list[Any] = values[there].tolist()
    found: Floats | None = None
    if given and all(isinstance(value, datetime.date) for value in given):
        found = np.array([value.toordinal() - EPOCH for value in given], dtype=np.float64)
    elif all(isinstance(value, str) for value in given):
        found = days_of_texts(given)
    if found is None:
        return None
    days = np.full(len(values), np.nan)
    days[there] = found
    return days


def is_date(cell: object) -> bool:
    """Return whether a cell is a date of any kind, as of `days_of_values`.

    Examples
    --------
    >>> [is_date(cell) for cell in ("2.1.1970", 19700102.0, 1970, "low")]
    [True, True, False, False]
    """
    if isinstance(cell, int | float):
        return days_of_numbers(np.array([float(cell)]), 1) is not None
    return isinstance(cell, datetime.date) or days_of_texts([str(cell)]) is not None


def checked_how(how: str, today: datetime.date | None = None) -> str:
    """Return how a date becomes a number, with the day that it counts from or to.

    Parameters
    ----------
    how : str
        "age", "age:2024-12-31", "month", "weekday", "since" or "since:2000-01-01".
    today : date, optional
        The day that ages are counted to where none is given.

    Examples
    --------
    >>> checked_how("age", datetime.date(2024, 5, 1)), checked_how("since"), checked_how("month")
    ('age:2024-05-01', 'since:2000-01-01', 'month')
    """
    kind, _, day = how.partition(":")
    try:
        known = datetime.date.fromisoformat(day).isoformat() if day else ""
    except ValueError:
        kind = ""
    if kind not in HOW or (day and kind in ("month", "weekday")):
        raise InputError(
            "dates become age, age:YYYY-MM-DD, month, weekday, since or since:YYYY-MM-DD, "
            f"not {how}"
        )
    if kind in ("month", "weekday"):
        return kind
    if not known:
        known = SINCE if kind == "since" else (today or datetime.date.today()).isoformat()
    return f"{kind}:{known}"


def numbers_of(days: Floats, how: str) -> Floats:
    """Return the numbers that dates become, (n,), of their days since 1970.

    Examples
    --------
    >>> days = days_of_texts(["1970-01-01", "2000-03-01"])
    >>> numbers_of(days, "age:2010-01-01").round(1), numbers_of(days, "month")
    (array([40. ,  9.8]), array([1., 3.]))
    >>> numbers_of(days, "weekday"), numbers_of(days, "since:2000-01-01")  # 1 is a Monday
    (array([4., 3.]), array([-10957.,     60.]))
    """
    kind, _, day = how.partition(":")
    if kind in ("age", "since"):
        start = datetime.date.fromisoformat(day).toordinal() - EPOCH
        return (start - days) / YEAR if kind == "age" else days - start
    numbers = np.full(len(days), np.nan)
    there = ~np.isnan(days)
    whole = np.floor(days[there]).astype("datetime64[D]")
    if kind == "weekday":
        numbers[there] = (np.floor(days[there]) + 3) % 7 + 1
    else:
        numbers[there] = whole.astype("datetime64[M]").astype(int) % 12 + 1
    return numbers
