"""The cells of a column as Arrow holds them: what they are, and the numbers that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from fedcluster.core import Floats, Rows
from fedcluster.io._decimals import NAMES, POINT, is_number, may_be_number, other, parsed

MISSING = {"", "na", "n/a", "nan", "null", "none", "#n/a"}


def is_numeric(column: pa.ChunkedArray, decimal: str | None = POINT) -> bool:
    """Whether all values are numbers or missing, perhaps written as text."""
    kind = column.type
    if is_text(kind):
        return all(reads_as_number(cell, decimal) for cell in column.to_pylist())
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    )


def as_floats(column: pa.ChunkedArray, decimal: str | None = POINT) -> NDArray[np.floating[Any]]:
    """A numeric column as floats, NaN where a value is missing; float32 stays what it is."""
    if is_text(column.type):
        cells = column.to_pylist()
        return np.array([np.nan if is_missing(cell) else parsed(cell, decimal) for cell in cells])
    if not pa.types.is_float32(column.type):
        column = column.cast(pa.float64(), safe=False)
    values: NDArray[np.floating[Any]] = column.to_numpy()
    return values


def kind_of(column: pa.ChunkedArray, decimal: str | None = POINT) -> str:
    """What a column holds: "number", "text", "date", "mixed", or "empty" without any value.

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


def missing_in(column: pa.ChunkedArray) -> int:
    """How many values are missing."""
    if is_text(column.type):
        return sum(map(is_missing, column.to_pylist()))
    return int(pa.compute.sum(pa.compute.is_null(column, nan_is_null=True)).as_py() or 0)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is that of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def reads_as_number(cell: object, decimal: str | None = POINT) -> bool:
    """Whether a cell is a number, one written as text, or missing."""
    if isinstance(cell, str):
        return is_missing(cell) or is_number(cell, decimal)
    return cell is None or isinstance(cell, float)


def is_missing(cell: str | None) -> bool:
    """Whether a text, or what is none, stands for a missing value."""
    return cell is None or cell.strip().lower() in MISSING


def levels_of(column: pa.ChunkedArray) -> tuple[tuple[str, ...], Floats]:
    """The texts of a column without blanks around, and the code of each row, NaN for none."""
    coded = column.combine_chunks().dictionary_encode()
    written = [text.strip() for text in coded.dictionary.to_pylist()]
    levels = sorted({text for text in written if not is_missing(text)})
    place = {text: float(i) for i, text in enumerate(levels)}
    codes = np.array([*(place.get(text, np.nan) for text in written), np.nan])
    return tuple(levels), codes[coded.indices.fill_null(len(written)).to_numpy()]


def mostly_numbers(levels: Sequence[str], codes: Floats) -> bool:
    """Whether more than half of the texts, row by row, are numbers, with commas or points."""
    numbers = np.array([may_be_number(text) for text in levels], dtype=bool)
    there = codes[~np.isnan(codes)].astype(np.intp)
    return len(there) > 0 and bool(numbers[there].mean() > 0.5)


def numbered_groups(names: Any) -> NDArray[np.int64]:
    """Names of persons as numbers that mean nothing, (n,): equal where the names are."""
    coded = pa.array(names).dictionary_encode()
    numbers = np.array([hash(name.strip()) for name in coded.dictionary.to_pylist()], np.int64)
    found: NDArray[np.int64] = numbers[coded.indices.to_numpy()]
    return found


def counts_rows(values: Rows) -> bool:
    """Whether values go up by one from row to row."""
    return len(values) > 2 and bool((np.diff(values) == 1).all())
