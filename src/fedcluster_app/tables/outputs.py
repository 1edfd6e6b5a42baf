"""Folders that are written completely or not at all, and tables of labels.

Text that begins like a spreadsheet formula is written with an apostrophe before it, because keys
and texts come from files that anybody may have written. The signs are those of OWASP's page on "CSV
injection".
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import stat
import tempfile
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from numpy.typing import NDArray

from fedcluster.core import Floats, Labels
from fedcluster.errors import InputError, reason
from fedcluster.frames.cells import POINT, is_text, may_be_number
from fedcluster.frames.columns import is_missing

FORMULA = r"^(\s*[=+\-@＝＋－＠]|[\t\r\n])"  # noqa: RUF001
"""First characters of a text that a spreadsheet program may take for a formula."""
RESERVED = {"con", "prn", "aux", "nul"} | {f"{p}{i}" for p in ("com", "lpt") for i in range(10)}


def check_folder(out: Path, *, overwrite: bool) -> None:
    """Raise an error for a folder that cannot be written, before any work is done.

    Raises
    ------
    InputError
        If it is a file, is not empty and ``overwrite`` is not set, or is not writable.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; --out names a folder")
    if not overwrite and out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} is not empty; choose another --out or add --overwrite")
    here = _existing(out)
    if not here.is_dir():
        raise InputError(f"{out} cannot be written: {here} is a file")
    if not os.access(here, os.W_OK | os.X_OK):
        raise InputError(f"{out} cannot be written: no permission to write in {here}")


@contextmanager
def atomic_folder(out: Path, *, obsolete: Iterable[str] = ()) -> Iterator[Path]:
    """Write the files of a folder in a temporary place; all appear at once when complete.

    Files of the same names are replaced; everything else in the folder stays. After an error, no
    new file remains and the old ones are unchanged. New files and folders are private to their
    owner.

    Parameters
    ----------
    out : Path
        The folder, which need not exist.
    obsolete : iterable of str
        Files in it, by relative path, that are removed when the new ones appear.

    Yields
    ------
    Path
        The folder to write in.
    """
    temporary = None
    try:
        here = _existing(out.parent)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}-", suffix=".partial", dir=here))
        new, old = temporary / "new", temporary / "old"
        new.mkdir()
        yield new
        for path in (new, *new.rglob("*")):
            if not path.is_symlink():  # readable and writable for the owner only
                path.chmod(stat.S_IMODE(path.stat().st_mode) & stat.S_IRWXU)
        if out.exists():
            _replace(new, out, old, obsolete)
        else:
            out.parent.mkdir(parents=True, exist_ok=True)
            new.rename(out)
    except OSError as error:
        names = [Path(name) for name in (error.filename, error.filename2) if name]
        file = next((name for name in names if name.is_relative_to(out)), out)
        raise InputError(f"{file} cannot be written: {reason(error)}") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _existing(path: Path) -> Path:
    """Return the path itself or the nearest of its parents that exists."""
    path = path.absolute()
    return next(p for p in (path, *path.parents) if p.exists())


def _replace(new: Path, out: Path, old: Path, obsolete: Iterable[str]) -> None:
    """Move the new files in and the replaced ones away; undo all if one move fails."""
    files = sorted(p.relative_to(new) for p in new.rglob("*") if p.is_file())
    gone = [p for p in map(Path, obsolete) if p not in files and (out / p).is_file()]
    moved: list[Path] = []
    try:
        for file in [*gone, *files]:
            if (out / file).is_dir():
                raise InputError(f"{out / file} is a folder, where a file would be written")
            moved.append(file)
            _move(out / file, old / file)
            _move(new / file, out / file)
    except BaseException:
        for file in reversed(moved):
            if (old / file).exists():
                _move(old / file, out / file)
            elif file not in gone and not (new / file).exists():
                (out / file).unlink(missing_ok=True)
        raise


def _move(here: Path, there: Path) -> None:
    if here.exists():
        for folder in reversed([each for each in there.parents if not each.exists()]):
            folder.mkdir(stat.S_IRWXU, exist_ok=True)
        here.replace(there)


def write_labels(
    path: Path,
    rows: Sequence[int] | NDArray[np.int64],
    labels: Labels,
    memberships: Floats | None = None,
    keys: tuple[str, pa.ChunkedArray] | None = None,
    *,
    lines: int = 1 << 16,
) -> None:
    """Write one line for each row: its number in the site's file, from 1, and its cluster.

    With ``memberships`` (n, k), also write the memberships; with ``keys``, the name of a column and
    its n cells, write these after the number.

    ``lines``: number of lines of labels that are written at a time.
    """
    degrees = np.zeros((len(labels), 0)) if memberships is None else memberships
    names = ["row", "cluster", *(f"membership_{j}" for j in range(degrees.shape[1]))]
    if keys is not None:
        names.insert(1, free_name(harmless(keys[0]), names))
    cells = None if keys is None else harmless_cells(keys[1])
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(names)
    with path.open("wb") as file:
        file.write(header.getvalue().encode())
        for start in range(0, len(labels), lines):
            part = slice(start, start + lines)
            columns = [as_arrow(each) for each in (_numbers(rows[part]), labels[part])]
            columns += map(as_arrow, degrees[part].T)
            if cells is not None:
                columns.insert(1, cells.slice(start, lines))
            table = pa.table(columns, names)
            pa.csv.write_csv(table, file, pa.csv.WriteOptions(include_header=False))


def as_arrow(values: NDArray[Any]) -> pa.Array:
    """Convert numbers to an Arrow array without Arrow's own conversion, which imports pandas."""
    values = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def free_name(name: str, taken: Collection[str]) -> str:
    """Return a name for a new column that no other column has.

    Examples
    --------
    >>> free_name("cluster", ["age"]), free_name("cluster", ["cluster", "cluster_2"])
    ('cluster', 'cluster_3')
    """
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def harmless(text: str) -> str:
    """Return a text, preceded by an apostrophe if a spreadsheet could take it for a formula.

    Examples
    --------
    >>> [harmless(text) for text in ("=1+1", "@sum", "-36,6", "-", "north-east")]
    ["'=1+1", "'@sum", '-36,6', '-', 'north-east']
    """
    is_value = may_be_number(text.strip()) or (is_missing(text) and "\t" not in text)
    return f"'{text}" if re.match(FORMULA, text) and not is_value else text


def harmless_cells(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column that can be written: formulas made harmless, nested values as text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return harmless_cells(column.cast(kind.value_type))
    if not is_text(kind):
        if not (pa.types.is_nested(kind) or pa.types.is_binary(kind)):
            return column
        texts = [None if cell is None else str(cell) for cell in column.to_pylist()]
        column = pa.chunked_array([pa.array(texts, pa.string())])
    doubtful = pa.compute.match_substring_regex(column, FORMULA)
    if not pa.compute.any(doubtful).as_py():
        return column
    cells = [
        None if cell is None else harmless(cell) for cell in column.filter(doubtful).to_pylist()
    ]
    kept = pa.compute.fill_null(doubtful, False).combine_chunks()
    return pa.chunked_array(
        [pa.compute.replace_with_mask(column.combine_chunks(), kept, pa.array(cells, column.type))]
    )


def write_joined(
    path: Path,
    table: pa.Table,
    more: Mapping[str, NDArray[Any]],
    delimiter: str = ",",
    decimal: str = POINT,
) -> None:
    """Write a table as CSV with further columns (n,); NaN, "", and -1 in labels, become empty.

    A number is appended to the name of a new column if that name is taken. New numbers are
    formatted like those of the table.
    """
    columns = {harmless(name): harmless_cells(table[name]) for name in table.column_names}
    for name, values in more.items():
        kind = values.dtype.kind
        none = values < 0 if kind == "i" else values == "" if kind == "U" else np.isnan(values)
        column = pa.array(values, mask=none)
        if decimal != POINT and kind == "f":
            column = pa.compute.replace_substring(column.cast(pa.string()), POINT, decimal)
        cells = pa.chunked_array([column])
        columns[free_name(name, columns)] = harmless_cells(cells) if kind == "U" else cells
    pa.csv.write_csv(pa.table(columns), path, pa.csv.WriteOptions(delimiter=delimiter))


def write_tables(out: Path, tables: Mapping[str, Mapping[str, NDArray[Any]]]) -> list[str]:
    """Write the columns (n,) of each site into a folder, as SITE.csv; return the files."""
    files = label_files(list(tables), "")
    with atomic_folder(out) as folder:
        for site, columns in tables.items():
            write_joined(folder / files[site], pa.table({}), columns)
    return list(files.values())


def _numbers(rows: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers as an array; fast for a range."""
    if isinstance(rows, range):
        return np.arange(rows.start, rows.stop, rows.step)
    return np.asarray(rows)


def label_files(sites: Sequence[str], folder: str = "labels/") -> dict[str, str]:
    """Return names for the sites' label files that are safe on every file system.

    Characters that some file system refuses become ``%`` and their code; names that some file
    system does not distinguish get a number.

    Parameters
    ----------
    sites : sequence of str
        The names of the sites.
    folder : str, default="labels/"
        Prefix of the file names.

    Examples
    --------
    >>> label_files(["north", "St. Mary", "a/b", "..", "North", "-x", "con"])
    ... # doctest: +NORMALIZE_WHITESPACE
    {'north': 'labels/north.csv', 'St. Mary': 'labels/St. Mary.csv', 'a/b': 'labels/a%2Fb.csv',
     '..': 'labels/%2E%2E.csv', 'North': 'labels/North-2.csv', '-x': 'labels/%2Dx.csv',
     'con': 'labels/%63on.csv'}
    """
    files: dict[str, str] = {}
    taken: set[str] = set()
    for site in sites:
        stem = name = _safe(site)
        number = 1
        while _folded(name) in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(_folded(name))
        files[site] = f"{folder}{name}.csv"
    return files


def _safe(name: str) -> str:
    """Return a name as a file name of at most 160 bytes."""
    coded = "".join(c if c.isalnum() or c in " -_.,+=@()&'" else _code(c) for c in name)
    coded = coded.encode()[:160].decode(errors="ignore")
    if set(coded) == {"."}:
        return "".join(map(_code, coded))
    if coded.split(".")[0].casefold() in RESERVED or coded[:1] in {".", " ", "-"}:
        return _code(coded[0]) + coded[1:]
    return coded


def _code(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode())


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())
