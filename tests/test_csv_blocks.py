"""Large CSV files are read in blocks, and what is read is what Arrow reads from the whole file."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from fedcluster.errors import InputError
from fedcluster.frames import ColumnRoles
from fedcluster.frames.columns import extremes
from fedcluster.frames.reader import Reader
from fedcluster_app.tables._files import BLOCK, LARGE, BlockReader, CsvFile, read_blocks

SIZE = 1 << 10
"""Bytes of a block, for files that are soon written."""


def lines_of(n: int) -> list[str]:
    """Lines of numbers as people write them: whole, missing, with exponents, beyond 2^53."""
    rng = np.random.default_rng(0)
    cells = ["", "NA", "0", "-0.0", "007", "1e-300", "9007199254740993", "0.1", "-12", "1e5", "nan"]
    wholes = rng.integers(-(10**6), 10**6, n)
    floats = rng.normal(size=n)
    odd = rng.choice(cells, n)
    return [f"{a},{b!r},{c}" for a, b, c in zip(wholes, floats.tolist(), odd, strict=True)]


def written(path: Path, lines: list[str], *, end: str = "\n", last: str = "\n") -> CsvFile:
    names = ",".join(f"c{j}" for j in range(lines[0].count(",") + 1))
    path.write_bytes((end.join([names, *lines]) + last).encode())
    return CsvFile.open(path, ".")


def blocks_of(file: CsvFile, *, missing: bool = True) -> tuple[np.ndarray, pa.Table] | None:
    places = [str(i) for i in range(len(file.names))]
    reader = BlockReader(
        file.path,
        file.header_lines,
        pa.csv.ReadOptions(column_names=places, use_threads=False, block_size=BLOCK + 1),
        pa.csv.ParseOptions(delimiter=file.delimiter, ignore_empty_lines=len(places) > 1),
        pa.csv.ConvertOptions(include_columns=places, decimal_point=file.decimal),
    )
    return read_blocks(reader, places, missing=missing, size=SIZE)


def same(file: CsvFile, *, raw: bool = True) -> None:
    """The rows and columns of both ways are the same bits."""
    roles = ColumnRoles(file.names, raw=raw)
    part = file.read_rows(file.names, [], [], missing=raw)
    assert part is not None
    fast = Reader("it", part, roles).data()
    slow = Reader("it", file.read(file.names), roles).data()
    assert fast.columns == slow.columns
    np.testing.assert_array_equal(fast.X, slow.X)
    np.testing.assert_array_equal(np.signbit(fast.X), np.signbit(slow.X))


@pytest.mark.parametrize("last", ["", "\n", "\n\n\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_blocks_hold_what_the_whole_file_holds(tmp_path: Path, end: str, last: str) -> None:
    file = written(tmp_path / "a.csv", lines_of(2_000), end=end, last=last)
    read = blocks_of(file)
    assert read is not None
    whole = Reader("it", file.read(file.names), ColumnRoles(file.names, raw=True)).data().X
    np.testing.assert_array_equal(read[0], whole)
    assert read[1].column_names == []


def test_one_column_counts_blank_lines(tmp_path: Path) -> None:
    cells = [line.split(",")[1] if i % 7 else "" for i, line in enumerate(lines_of(500))]
    file = written(tmp_path / "a.csv", cells)
    read = blocks_of(file)
    assert read is not None
    whole = Reader("it", file.read(file.names), ColumnRoles(file.names, raw=True)).data().X
    np.testing.assert_array_equal(read[0], whole)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('1,"2\n",3', "a line that ends in quotes"),
        ("1,2", "too few values"),
        ("1,2,3,4", "too many values"),
        ("", "a blank line"),
        ("1,x,3", "text after numbers"),
        ("true,2,3", "a truth value after numbers"),
        ("0x1F,2,3", "a number that only whole ones may be"),
        ("1,inf,3", "an infinite value"),
        ("1,2\r3,4,5", "another end of lines"),
    ],
)
def test_what_is_not_simple_is_left_to_arrow(tmp_path: Path, line: str, why: str) -> None:
    lines = [f"{i},{i / 7!r},{-i}" for i in range(6_000)]
    file = written(tmp_path / "a.csv", [*lines[:5_000], line, *lines[5_000:]])
    assert blocks_of(file) is None, why


def quoted_file(path: Path, cells: list[str], end: str = "\n") -> CsvFile:
    """Texts and names in quotes, as R and spreadsheets write them, and a number here and there."""
    values = np.random.default_rng(4).normal(size=400).tolist()
    rows = zip(values, itertools.cycle(cells), strict=False)
    lines = [
        f"{x!r},{cell},{f'{i}' if i % 3 else f'{chr(34)}{i}{chr(34)}'}"
        for i, (x, cell) in enumerate(rows)
    ]
    path.write_bytes(end.join(['"c0","c1, d","c2"', *lines, ""]).encode())
    return CsvFile.open(path, ".")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_values_in_quotes_are_read_as_from_the_whole_file(tmp_path: Path, end: str) -> None:
    cells = ['"Cardio"', '"a, b"', '"say ""so"""', '""', "Neuro", '"NA"', '5" pipe', '"x"y"', '"Ü"']
    file = quoted_file(tmp_path / "a.csv", cells, end)
    read = blocks_of(file)
    assert read is not None
    whole = file.read(file.names).rows
    assert read[1].column("1").to_pylist() == whole.column("c1, d").to_pylist()
    for name, x in (("c0", read[0][:, 0]), ("c2", read[0][:, 2])):
        np.testing.assert_array_equal(x, whole.column(name).to_numpy())


@pytest.mark.parametrize("shift", range(0, 60, 7))
@pytest.mark.parametrize("cell", ['"a\nb"', '"a\r\nb"', '"\n"', '"1\n2,3,4"'])
def test_ends_of_lines_in_quotes_are_left_to_arrow(tmp_path: Path, cell: str, shift: int) -> None:
    """Wherever a block ends, no part of a value becomes a row of its own."""
    assert blocks_of(quoted_file(tmp_path / "a.csv", [cell, '"' + "z" * shift + '"'])) is None


def test_a_block_that_ends_within_a_value_is_seen(tmp_path: Path) -> None:
    """Both halves of the value would be rows with as many values as the header has names."""
    lines = ["x,y,1"] * 30
    first = '5" a,6,"'
    used = sum(len(line) + 1 for line in lines) + len(first) + 1
    filler = "z" * (SIZE - used % SIZE - len(",1,1") - 1)
    path = tmp_path / "a.csv"
    rows = [*lines, f"{filler},1,1", first, 'c,c,c"', *lines]
    path.write_text("\n".join(["a,b,c", *rows, ""]))
    assert blocks_of(CsvFile.open(path, ".")) is None


def test_missing_values_are_left_to_arrow_where_there_may_be_none(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", lines_of(500))
    assert blocks_of(file, missing=False) is None
    full = written(tmp_path / "b.csv", [f"{i},{i / 7!r}" for i in range(500)])
    read = blocks_of(full, missing=False)
    assert read is not None
    assert read[0].tolist() == [[i, i / 7] for i in range(500)]


def large(tmp_path: Path, columns: dict[str, list[str]], n: int, end: str = "\n") -> CsvFile:
    path = tmp_path / "large.csv"
    cells = [[each[i % len(each)] for each in columns.values()] for i in range(n)]
    text = end.join([",".join(columns), *(",".join(row) for row in cells)]) + end
    path.write_text(text, newline="")
    assert path.stat().st_size > max(LARGE, BLOCK)
    return CsvFile.open(path)


def test_columns_of_all_kinds_are_read_as_from_the_whole_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    columns = {
        "age": [str(x) for x in rng.integers(18, 90, 977)],
        "ward": ["Cardio", " Neuro", "", "n/a", "Cardio ", "Ürologie"],
        "bmi": [repr(x) for x in rng.normal(25, 4, 991).tolist()],
        "day": ["2024-01-31", "2024-02-29", ""],
        "dose": ["1.5", "", "NA", "0.25"],
        "when": ["20240131", "20240229"],
        "fit": ["true", "false"],
        "none": [""],
        "code": ["01015", "00012"],
    }
    same(large(tmp_path, columns, 60_000))
    same(large(tmp_path, columns, 60_000, "\r\n"))


def test_rows_without_missing_values_are_read_as_from_the_whole_file(tmp_path: Path) -> None:
    values = [repr(x) for x in np.random.default_rng(2).normal(size=997).tolist()]
    same(large(tmp_path, {"a": values, "b": ["1", "2", "3"]}, 130_000), raw=False)


def test_weights_and_labels_come_beside(tmp_path: Path) -> None:
    file = large(tmp_path, {"a": ["1.25", "2"], "w": ["1", "2.5"], "y": ["x", "7", "07"]}, 300_000)
    part = file.read_rows(["a"], ["w", "y"], ["y"], missing=False)
    assert part is not None
    roles = ColumnRoles(("a",), weight="w", label="y")
    fast = Reader("it", part, roles).data()
    slow = Reader("it", file.read(["a", "w", "y"], ["y"]), roles).data()
    for name in ("X", "sample_weight", "y"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name))


@pytest.mark.parametrize("raw", [True, False])
def test_what_is_wrong_is_said_as_of_small_files(tmp_path: Path, raw: bool) -> None:
    file = large(tmp_path, {"a": ["1.25", "2"], "b": ["1", "2.5"]}, 400_000)
    with file.path.open("a") as end:
        end.write("3,inf\n")
    roles = ColumnRoles(("a", "b"), raw=raw)
    file = CsvFile.open(file.path)
    assert file.read_rows(["a", "b"], [], [], missing=raw) is None
    with pytest.raises(InputError, match=r"column 'b', row 400001 .line 400002 of large.csv"):
        Reader("it", file.read(["a", "b"]), roles).data()


def test_small_and_compressed_files_are_left_to_arrow(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", ["1,2"] * 20)
    assert file.read_rows(file.names, [], [], missing=True) is None
    plain = large(tmp_path, {"a": ["1.25", "2"], "b": ["1", "2.5"]}, 400_000)
    packed = tmp_path / "large.csv.gz"
    packed.write_bytes(gzip.compress(plain.path.read_bytes(), 0))
    file = CsvFile.open(packed)
    assert file.read_rows(file.names, [], [], missing=True) is None


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (5, 3), (9_000, 3), (300, 9_000)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_extremes_of_a_sample_are_those_of_all_rows(
    shape: tuple[int, int], order: Literal["C", "F"]
) -> None:
    X = np.random.default_rng(3).normal(size=shape)
    X[X > 1] = np.nan
    X[:, 1] = np.nan
    low, high = extremes(np.array(X, order=order))
    for j in (0, 1, 2):
        there = X[~np.isnan(X[:, j]), j]
        expected = (there.min(), there.max()) if len(there) else (np.nan, np.nan)
        np.testing.assert_array_equal((low[j], high[j]), expected)
