"""Files of statistics programs: SAS, SPSS and Stata, through pyreadstat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedcluster.errors import InputError
from fedcluster.io._reader import ArrowTable
from fedcluster.io._rows import readable

READERS = {
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".dta": "read_dta",
}
"""What reads a file, by the ending of its name."""


def open_statistics(path: Path) -> ArrowTable:
    """Read a file of SAS, SPSS or Stata; what a program calls missing is missing.

    A column of codes that all have names ("value labels") is read as these names.

    Raises
    ------
    InputError
        If it is no such file, or if the extra ``stats`` is not installed.
    """
    try:
        import pyreadstat  # an optional extra
    except ImportError as error:
        raise InputError(f"reading {path} needs pip install 'fedcluster[stats]'") from error
    with readable(path):
        path.open("rb").close()
    read = getattr(pyreadstat, READERS[path.suffix.lower()])
    try:
        columns, known = read(str(path), output_format="dict")
    except (pyreadstat.ReadstatError, UnicodeError) as error:
        raise InputError(f"{path} is not a whole {path.suffix} file: {error}") from error
    labels = known.variable_value_labels
    arrays = {str(name): _named(cells, labels.get(name, {})) for name, cells in columns.items()}
    return ArrowTable(path, pa.table(arrays))


def _named(cells: Sequence[Any], names: Mapping[Any, str]) -> pa.Array:
    """Return a column, with the names of its codes where all have one.

    Examples
    --------
    >>> _named([1.0, 2.0, None], {1: "male", 2: "female"}).to_pylist()
    ['male', 'female', None]
    >>> _named([36.6, 99.0], {99: "refused"}).to_pylist()
    [36.6, 99.0]
    """
    cells = [None if cell is None or cell != cell else cell for cell in cells]
    held = {cell for cell in cells if cell is not None}
    if held and held <= names.keys():
        return pa.array([None if cell is None else str(names[cell]) for cell in cells])
    return pa.array(cells)
