"""The first sheet of an Excel file: its first line names the columns."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedcluster.errors import InputError
from fedcluster.io._reader import ArrowTable
from fedcluster.io._rows import readable


def open_excel(path: Path) -> ArrowTable:
    """Read the first sheet of an ``.xlsx`` file.

    Raises
    ------
    InputError
        If it is no Excel file or empty, or if the extra ``excel`` is not installed.
    """
    try:
        import python_calamine as calamine  # an optional extra
    except ImportError as error:
        raise InputError(f"reading {path} needs pip install 'fedcluster[excel]'") from error
    with readable(path):
        path.open("rb").close()
        try:
            sheet = calamine.load_workbook(path).get_sheet_by_index(0)
            lines = sheet.to_python(skip_empty_area=False)
        except (calamine.CalamineError, calamine.ZipError, calamine.XmlError) as error:
            raise InputError(f"{path} is not a whole Excel file: {error}") from error
    header = next((i for i, line in enumerate(lines) if any(cell != "" for cell in line)), None)
    if header is None:
        raise InputError(f"{path} is empty; expected a header line and rows")
    names = [str(cell).strip() for cell in lines[header]]
    columns = zip(*lines[header + 1 :], strict=True) if lines[header + 1 :] else [()] * len(names)
    arrays = [_column(list(cells)) for cells in columns]
    return ArrowTable(path, pa.Table.from_arrays(arrays, names), header + 1)


def _column(cells: list[Any]) -> pa.Array:
    """Return the cells of a column: numbers, dates, or else everything as it is written."""
    given = [cell for cell in cells if cell != ""]
    for kinds, type_ in (((bool,), pa.bool_()), ((int, float), pa.float64())):
        if all(isinstance(cell, kinds) for cell in given):
            return pa.array([None if cell == "" else cell for cell in cells], type_)
    if all(isinstance(cell, datetime.date) for cell in given):
        return pa.array([None if cell == "" else cell for cell in cells])
    return pa.array([None if cell == "" else _written(cell) for cell in cells], pa.string())


def _written(cell: Any) -> str:
    """Return a cell as text; Excel's numbers are floats, also those of whole numbers."""
    whole = isinstance(cell, float) and cell.is_integer()
    return str(int(cell) if whole else cell)
