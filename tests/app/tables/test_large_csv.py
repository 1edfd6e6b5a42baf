"""CSV files of many of Arrow's blocks are read as written, and what is wrong is said by line."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from fedcluster.errors import InputError
from fedcluster.frames import ColumnRoles
from fedcluster.frames.columns import extremes
from fedcluster.frames.reader import Reader
from fedcluster_app.tables._files import CsvFile

BLOCK = 1 << 20
"""Bytes that Arrow reads at a time."""
NUMBERS = ["0.1", "-0.0", "1e-300", "9007199254740993", "007", "-12", "1e5", "", "NA", "nan"]
TEXTS = ["Cardio", "a, b", 'say "so"', "", "Ü", "two\nlines", "two\r\nlines", " Neuro "]


def large(path: Path, columns: dict[str, list[str]], end: str = "\n") -> CsvFile:
    """A file of more than two blocks, in quotes where a cell needs them."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end)
    n = 3 * BLOCK // sum(len(each[0]) + 1 for each in columns.values())
    rows = zip(*(np.resize(each, n) for each in columns.values()), strict=True)
    writer.writerows([list(columns), *rows])
    written = text.getvalue().encode()
    assert len(written) > 2 * BLOCK
    path.write_bytes(gzip.compress(written, 0) if path.suffix == ".gz" else written)
    return CsvFile.open(path, ".")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("raw", [True, False])
def test_each_cell_is_read_as_it_is_written(tmp_path: Path, end: str, name: str, raw: bool) -> None:
    rng = np.random.default_rng(1)
    values = {"x": [repr(each) for each in rng.normal(size=977).tolist()]}
    values["n"] = NUMBERS[: None if raw else 7]
    texts = {"ward": TEXTS} if raw else {}
    file = large(tmp_path / name, values | texts, end)
    data = Reader("it", file.read(file.names), ColumnRoles(file.names, raw=raw)).data()
    for j, cells in enumerate(values.values()):
        expected = [float(each) if each not in ("", "NA") else np.nan for each in cells]
        np.testing.assert_array_equal(data.X[:, j], np.resize(expected, len(data)))
    for j in range(len(values), data.X.shape[1]):
        levels = [*data.columns[j].levels, None]
        places = np.nan_to_num(data.X[:, j], nan=len(levels) - 1).astype(int)
        meant = [" ".join(each.split()) or None for each in TEXTS]
        found = [None if (t := levels[i]) is None else " ".join(t.split()) for i in places]
        assert found == np.resize(np.array(meant, object), len(found)).tolist()


def test_weights_and_labels_come_beside(tmp_path: Path) -> None:
    file = large(tmp_path / "a.csv", {"a": ["1.25", "2"], "w": ["1", "2.5"], "y": ["x", "7", "07"]})
    part = file.read(["a", "w", "y"], ["y"])
    data = Reader("it", part, ColumnRoles(("a",), weight="w", label="y")).data()
    assert data.sample_weight is not None
    assert data.y is not None
    assert data.sample_weight[:3].tolist() == [1, 2.5, 1]
    assert data.y[:4].tolist() == ["x", "7", "07", "x"]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("3,inf\n", r"column 'b', row {row} .line {line} of a.csv.: the value is infinite"),
        ("3\n", r"row {row} .line {line} of a.csv. has 1 value, but the header names 2"),
        ("3,4,5\n", r"row {row} .line {line} of a.csv. has 3 values, but the header names 2"),
        ("3,x\n", r"column 'b', row {row} .line {line} of a.csv.: 'x' is not a number"),
    ],
)
def test_what_is_wrong_is_said_by_its_line(tmp_path: Path, raw: bool, last: str, said: str) -> None:
    file = large(tmp_path / "a.csv", {"a": ["1.25", "2"], "b": ["1", "2.5"]})
    n = len(Reader("it", file.read(["a", "b"]), ColumnRoles(("a", "b"), raw=raw)).data())
    with file.path.open("a") as end:
        end.write(last)
    file = CsvFile.open(file.path)
    with pytest.raises(InputError, match=said.format(row=n + 1, line=n + 2)):
        Reader("it", file.read(["a", "b"]), ColumnRoles(("a", "b"), raw=raw)).data()


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (5, 3), (9_000, 3), (300, 9_000)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_extremes_of_a_sample_are_those_of_all_rows(shape, order):
    X = np.random.default_rng(3).normal(size=shape)
    X[X > 1] = np.nan
    X[:, 1] = np.nan
    low, high = extremes(np.array(X, order=order))
    for j in (0, 1, 2):
        there = X[~np.isnan(X[:, j]), j]
        expected = (there.min(), there.max()) if len(there) else (np.nan, np.nan)
        np.testing.assert_array_equal((low[j], high[j]), expected)
