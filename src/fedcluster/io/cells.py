"""Cells of tables: what a column of them holds, and the numbers that they stand for.

Where numbers are written as text, their decimals begin with a point or a comma.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from numbers import Number
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.io.columns import is_missing
from fedcluster.io.recoding import days_of_numbers, days_of_texts

POINT, COMMA = ".", ","
NAMES = {POINT: "decimal points", COMMA: "decimal commas"}

GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}([.,]\d{3})+[.,]\d+")
"""A number whose thousands are parted, and that can be nothing else."""
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}")
"""What may as well be a whole number whose thousands are parted."""
TIMES: tuple[Any, ...] = (datetime.date, datetime.time, datetime.timedelta)
"""What Python holds of times; a column of one of them is no column of numbers."""
TRIED = 100
"""Cells that are tried before all are."""
HOW = '--decimal , or, in a site file, decimal = "," under [source]'


def other(decimal: str | None) -> str:
    """Return the sign that decimals do not begin with."""
    return POINT if decimal == COMMA else COMMA


def parsed(text: str, decimal: str | None = POINT) -> float:
    """Return the number that a text stands for.

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
    """Return whether a text is a number.

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


def decimals_of(columns: Mapping[str, Sequence[str]]) -> str:
    """Return what the decimals of a file begin with: a comma only where that is certain.

    Some column must be of numbers with decimal commas, of which one cannot be a comma of
    thousands, and no column may be of numbers with decimal points.

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


def has_padding(text: object) -> bool:
    """Return whether a cell is a text of digits with a zero in front.

    Examples
    --------
    >>> [has_padding(cell) for cell in ("01015", "0", "0.5", "10", None)]
    [True, False, False, False, False]
    """
    digits = text.strip() if isinstance(text, str) else ""
    return len(digits) > 1 and digits.isdigit() and digits[0] == "0"


def may_be_number(text: str) -> bool:
    """Return whether a text is a number with any sign before decimals and between thousands.

    Examples
    --------
    >>> [may_be_number(text) for text in ("36.6", "36,6", "1.234,5", "24.12.2020")]
    [True, True, True, False]
    """
    return is_number(text) or is_number(text, COMMA) or GROUPED.fullmatch(text) is not None


def complaint(text: str, column: Sequence[str], decimal: str | None) -> str | None:
    """Return what is wrong with a text that is a number written otherwise, and what to do.

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
    """Return the complaint about a point where decimals were said to begin with a comma."""
    mend = f"do not say {HOW}" if throughout else "save the file with decimal commas"
    if THOUSANDS.fullmatch(text):
        mend = f"save the file without points of thousands, or {mend}"
    return f"{text!r} has a point, but its decimals were said to begin with a comma; {mend}"


# Columns as Arrow holds them


def as_arrow(cells: Sequence[Any]) -> pa.Array:
    """Return the cells of a column, None where one is missing, as Arrow holds them.

    That is as numbers, truth values or dates, or else as texts, everything as it is written.

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
            return pa.array([_without_zone(cell) for cell in cells])
    return pa.array([None if cell is None else _written(cell) for cell in cells], pa.string())


def column_of(cells: Sequence[Any]) -> pa.Array:
    """Return the cells of a column of a database, of the type that they are of.

    Where they are of many types, a column of numbers is of floats, another one of texts.
    """
    try:
        return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        is_number = all(cell is None or isinstance(cell, int | float) for cell in cells)
        kind = float if is_number else str
        return pa.array([None if cell is None else kind(cell) for cell in cells])


def _without_zone(cell: Any) -> Any:
    """Return a date as it is written where it was taken."""
    return cell.replace(tzinfo=None) if isinstance(cell, datetime.datetime) else cell


def _written(cell: Any) -> str:
    """Return a cell as text; where columns are mixed, whole numbers may be floats."""
    if not isinstance(cell, str | bytes | Number | datetime.date | datetime.time):
        raise TypeError(f"argument must be a string or a real number, not {type(cell).__name__!r}")
    if isinstance(cell, bytes):
        return cell.decode(errors="replace")
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is that of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_numeric(column: pa.ChunkedArray, decimal: str | None = POINT) -> bool:
    """Return whether all values are numbers or missing, perhaps written as text."""
    kind = column.type
    if is_text(kind):
        head = column.slice(0, TRIED).to_pylist()
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


def as_floats(column: pa.ChunkedArray, decimal: str | None = POINT) -> NDArray[np.floating[Any]]:
    """Return a numeric column as floats, NaN where a value is missing; float32 stays float32."""
    if is_text(column.type):
        cells, places = _places_of(column)
        each = np.array([np.nan if is_missing(c) else parsed(str(c), decimal) for c in cells])
        numbers: NDArray[np.floating[Any]] = each[places]
        return numbers
    if not pa.types.is_float32(column.type):
        column = column.cast(pa.float64(), safe=False)
    dtype: Any = np.float32 if pa.types.is_float32(column.type) else np.float64
    values: NDArray[np.floating[Any]] = np.empty(len(column), dtype)
    end = 0
    for chunk in column.chunks:  # to_numpy of Arrow would import pandas, half a second
        start, end = end, end + len(chunk)
        _write_floats(chunk, values[start:end])
    return values


def _write_floats(chunk: pa.Array, out: NDArray[np.floating[Any]]) -> None:
    """Write an array of floats, NaN where a value is missing."""
    out[:] = _values(chunk, out.dtype)
    out[_is_null(chunk)] = np.nan


def _values(array: pa.Array, dtype: Any) -> NDArray[Any]:
    """Return the numbers of an array, anything where one is missing."""
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _is_null(array: pa.Array) -> NDArray[np.bool_]:
    """Return where an array has no value."""
    if not array.null_count:
        return np.zeros(len(array), dtype=bool)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    nulls: NDArray[np.bool_] = bits[array.offset : array.offset + len(array)] == 0
    return nulls


def _places_of(texts: pa.ChunkedArray) -> tuple[list[str | None], NDArray[np.intp]]:
    """Return the different texts and then None, and the place of each cell's among them, (n,)."""
    coded = texts.combine_chunks().dictionary_encode()
    different = [*coded.dictionary.to_pylist(), None]
    places = _values(coded.indices, str(coded.indices.type)).astype(np.intp)
    places[_is_null(coded.indices)] = len(different) - 1
    return different, places


def kind_of(column: pa.ChunkedArray, decimal: str | None = POINT) -> str:
    """Return what a column holds: "number", "text", "date", "mixed", or "empty" without a value.

    Numbers whose decimals begin with the other sign are "decimal commas" or "decimal points".
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
    if decimal and not all(numbers) and all(is_number(cell, other(decimal)) for cell in cells):
        return NAMES[other(decimal)]
    return "number" if all(numbers) else "mixed" if any(numbers) else "text"


def days_of(column: pa.ChunkedArray) -> Floats | None:
    """Return the days since 1970 of a column of dates, NaN where one is missing, (n,).

    None where it has times of a day, or spans of time.
    """
    if not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
        return None
    seconds = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64()).cast(pa.float64())
    days: Floats = np.floor(seconds.to_numpy() / 86_400)
    return days


def dates_in(column: pa.ChunkedArray, decimal: str | None = POINT) -> Floats | None:
    """Return the days since 1970 of a column of dates of any form, NaN where one is missing.

    None where some value is no date.
    """
    if pa.types.is_temporal(column.type):
        return days_of(column)
    if not is_text(column.type):
        return days_of_numbers(as_floats(column), 1) if is_numeric(column) else None
    levels, codes = levels_of(column)
    found = days_of_texts(levels)
    if found is None:
        numbers = as_floats(column, decimal) if is_numeric(column, decimal) else None
        return None if numbers is None else days_of_numbers(numbers, 1)
    return at_codes(found, codes)


def missing_in(column: pa.ChunkedArray) -> int:
    """Return how many values are missing."""
    if is_text(column.type):
        return sum(map(is_missing, column.to_pylist()))
    return int(pa.compute.sum(pa.compute.is_null(column, nan_is_null=True)).as_py() or 0)


def reads_as_number(cell: object, decimal: str | None = POINT) -> bool:
    """Return whether a cell is a number, one written as text, or missing."""
    if isinstance(cell, str):
        return is_missing(cell) or is_number(cell, decimal)
    return cell is None or isinstance(cell, float)


def levels_of(column: pa.ChunkedArray) -> tuple[tuple[str, ...], Floats]:
    """Return the texts of a column without blanks around, and the code of each row, or NaN."""
    cells, places = _places_of(column)
    written = ["" if text is None else text.strip() for text in cells]
    levels = sorted({text for text in written if not is_missing(text)})
    code = {text: float(i) for i, text in enumerate(levels)}
    return tuple(levels), np.array([code.get(text, np.nan) for text in written])[places]


def at_codes(values: Floats, codes: Floats) -> Floats:
    """Return the value of each code, (n,), NaN where a code is."""
    place = np.where(np.isnan(codes), len(values), codes).astype(np.intp)
    return np.append(values, np.nan)[place]


def mostly_numbers(levels: Sequence[str], codes: Floats) -> bool:
    """Return whether more than half of the texts, row by row, are numbers of any form."""
    numbers = np.array([may_be_number(text) for text in levels], dtype=bool)
    there = codes[~np.isnan(codes)].astype(np.intp)
    return len(there) > 0 and bool(numbers[there].mean() > 0.5)


def numbered_groups(names: Any) -> NDArray[np.int64]:
    """Return names of persons as numbers that mean nothing, (n,): equal where the names are."""
    different, places = _places_of(pa.chunked_array([pa.array(names)]))
    digests = b"".join(
        blake2b((name or "").strip().encode(), digest_size=8).digest() for name in different
    )
    groups: NDArray[np.int64] = np.frombuffer(digests, np.int64)[places]
    return groups
