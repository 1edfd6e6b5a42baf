"""Rows in chunks: the same answers, in bounded memory, from files that do not change."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partitions import Case, InChunks, cases
from test_laws import STEPS, asked, assert_close, by_name

from fedcluster import Client, Data, LocalEngine, MinClusterSize, MinRows, State, Task, run
from fedcluster.algorithms import FKM, Lloyd
from fedcluster.core import Step
from fedcluster.errors import InputError, SiteError
from fedcluster.frames import ColumnRoles
from fedcluster.frames.rows import side_by_side
from fedcluster.metrics import Inertia
from fedcluster_app.tables import open_rows

ADDITIVE = [step for step in STEPS if step.client_additive]
CENTERS = State.at(np.array([[0.0, 0.0], [5.0, 5.0]]))


@by_name(ADDITIVE)
@given(case=cases(), size=st.sampled_from([1, 7, 1000]))
def test_chunks_answer_as_all_rows_do(step: Step, size: int, case: Case) -> None:
    task = Task(step, asked(step, case.centers))
    chunked = Client("s", InChunks(case.pooled, size), [MinClusterSize(2)])
    whole = Client("s", case.pooled, [MinClusterSize(2)])
    assert_close(chunked.answer(task), whole.answer(task))
    one, other = (
        [(each.lines, each.lone_rows, each.held_back) for each in client.audit_log]
        for client in (chunked, whole)
    )
    assert one == other
    assert len(one) == 1


@by_name([step for step in STEPS if not step.client_additive])
@given(case=cases())
def test_a_step_that_is_not_additive_is_asked_about_all_rows(step: Step, case: Case) -> None:
    task = Task(step, asked(step, case.centers), seed=3)
    chunked, whole = (Client("s", rows) for rows in (InChunks(case.pooled, 2), case.pooled))
    np.testing.assert_array_equal(chunked.answer(task).sums, whole.answer(task).sums)


def test_one_reading_answers_all_tasks_of_a_round() -> None:
    rows = InChunks(Data(np.arange(20.0).reshape(10, 2)), 3)
    engine = LocalEngine([Client("s", rows)])
    tasks = [Task(Lloyd(), CENTERS), Task(FKM(2), State()), Task(Inertia(), CENTERS)]
    together = engine.ask(tasks)
    assert (rows.read, rows.loaded) == (1, 1)
    for task, answers in zip(tasks, together, strict=True):
        alone = Client("s", rows.data).answer(task)
        assert_close(answers.total(), alone)
    assert [sent.step for sent in engine.clients["s"].audit_log] == [repr(t.step) for t in tasks]


def test_a_client_of_chunks_stays_a_pure_function_of_the_task() -> None:
    """Also once it has all rows in memory."""
    rows = InChunks(Data(np.random.default_rng(0).normal(size=(1000, 2)) + 0.1), 7)
    client, task = Client("s", rows), Task(Lloyd(), CENTERS)
    before = client.answer(task)
    client.answer(Task(FKM(2), State()))
    assert client.answer(task).sums.tobytes() == before.sums.tobytes()


def test_limits_see_all_rows_that_have_a_weight_and_without_one_there_is_an_error() -> None:
    data, task = Data(np.ones((8, 2)), np.array([1.0, 0, 1, 1, 1, 0, 1, 1])), Task(Lloyd(), CENTERS)
    for limit, left in ((7, 0), (6, 6)):
        answer = Client("s", InChunks(data, 2), [MinRows(limit)]).answer(task)
        assert answer.weights.sum() == left
    nothing = Client("s", InChunks(Data(np.ones((4, 2)), np.zeros(4)), 3))
    with pytest.raises(SiteError, match=r"site 's', round 1, Lloyd: .* no row of positive weight"):
        LocalEngine([nothing]).ask([task])


# Parquet


def rows_of(n: int = 1000, d: int = 3, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def write(path: Path, X: np.ndarray, row_group_size: int | None = None, **columns: object) -> Path:
    table = pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])} | columns)
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


@pytest.mark.parametrize("row_group_size", [1, 64, 333, None])
@pytest.mark.parametrize("chunk_rows", [1, 7, 100, 5000, None])
def test_parquet_is_read_whole_and_in_order(tmp_path, row_group_size, chunk_rows):
    X = rows_of(700)
    path = write(tmp_path / "a.parquet", X, row_group_size)
    chunks = list(open_rows(path, chunk_rows=chunk_rows).chunks())
    assert max(map(len, chunks)) <= (chunk_rows or 700)
    np.testing.assert_array_equal(np.concatenate([chunk.X for chunk in chunks]), X)
    for chunk in chunks:
        assert chunk.X.flags.c_contiguous
        assert chunk.X.dtype == np.float32


def test_columns_weights_and_several_files(tmp_path: Path) -> None:
    """Columns are those of the first file, without the weight."""
    a, b = rows_of(50), rows_of(31, seed=1)
    weight = np.arange(50) % 3
    paths = [
        write(tmp_path / "a.parquet", a, w=weight, note=["x"] * 50),
        write(tmp_path / "b.parquet", b, note=["y"] * 31, w=np.ones(31)),
    ]
    rows = open_rows(paths, ColumnRoles(("x2", "x0"), weight="w"), chunk_rows=8)
    data = rows.load()
    assert len(rows) == len(data) == 81
    np.testing.assert_array_equal(data.X, np.vstack([a, b])[:, [2, 0]])
    assert data.sample_weight is not None
    np.testing.assert_array_equal(data.sample_weight, [*weight, *np.ones(31)])
    title = f"{paths[0]}, {paths[1]}"
    assert repr(rows) == f"StreamedRows(title={title!r}, columns=('x2', 'x0'))"
    whole, streamed = (Client("s", r).answer(Task(Lloyd(), CENTERS)) for r in (data, rows))
    assert_close(whole, streamed)
    first = write(tmp_path / "c.parquet", a, w=weight)
    more = write(tmp_path / "d.parquet", a, w=weight, more=np.ones(50))
    assert open_rows([first, more], ColumnRoles(weight="w")).columns == ("x0", "x1", "x2")


def test_all_files_are_read_as_one_type(tmp_path: Path) -> None:
    narrow = write(tmp_path / "narrow.parquet", rows_of(9))
    wide = write(tmp_path / "wide.parquet", rows_of(9, dtype="float64"))
    mixed = write(tmp_path / "mixed.parquet", rows_of(9), i=np.arange(9))
    assert {chunk.X.dtype for chunk in open_rows([narrow, wide]).chunks()} == {np.dtype("f8")}
    assert {chunk.X.dtype for chunk in open_rows(mixed).chunks()} == {np.dtype("f8")}
    assert open_rows([narrow, narrow]).load().X.dtype == np.float32


def planted(path: Path, value: object, row: int, column: str = "x1") -> Path:
    X = rows_of(40, dtype="float64")
    values: list[object] = X[:, 1].tolist()
    values[row] = value
    return write(path, np.delete(X, 1, axis=1)[:, :1], 16, **{column: values})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "the value is missing; fill it in or drop the row"),
        (float("nan"), "the value is missing; fill it in or drop the row"),
        (float("inf"), "the value is infinite; fill it in or drop the row"),
    ],
)
@pytest.mark.parametrize("row", [0, 17, 39])
def test_a_bad_value_is_named_by_file_column_and_row(tmp_path, value, said, row):
    path = planted(tmp_path / "a.parquet", value, row)
    with pytest.raises(InputError) as error:
        list(open_rows(path, chunk_rows=6).chunks())
    assert str(error.value) == f"{path}, column 'x1', row {row + 1} of a.parquet: {said}"
    client = Client("north", open_rows(path))
    why = rf"site 'north', round 1, Lloyd: InputError: .* row {row + 1} of a"
    with pytest.raises(SiteError, match=why):
        run(Lloyd(), LocalEngine([client]), CENTERS)


def test_files_that_will_not_do_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    twice = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["x", "x"])
    tables = {"twice": twice, "x": pa.table({"x": [1.0]}), "empty": pa.table({"x": []})}
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    write(tmp_path / "some.parquet", rows_of(2))
    cases: list[tuple[str, Any, int | None, str]] = [
        ("a.csv", None, None, "is not Parquet"),
        ("torn.parquet", None, None, "is not a whole Parquet file"),
        ("none.parquet", None, None, "does not exist"),
        ("twice.parquet", None, None, "two columns of one name"),
        ("some.parquet", [], None, "no column was chosen"),
        ("some.parquet", None, 0, "chunk_rows must be at least 1, not 0"),
        ("x.parquet", ["x", "y"], None, "has no column 'y'; it has x"),
        ("empty.parquet", ["x"], None, "has columns but no rows; add rows or leave the file out"),
    ]
    for name, columns, chunk_rows, said in cases:
        with pytest.raises(InputError, match=said):
            open_rows([tmp_path / name], columns, chunk_rows=chunk_rows)
    with pytest.raises(InputError, match="no Parquet file"):
        open_rows([])
    text = write(tmp_path / "t.parquet", rows_of(3), t=["1", "2", "three"])
    with pytest.raises(InputError, match=r"column 't', row 3 of t.parquet: 'three' is not a num"):
        open_rows(text, chunk_rows=2).load()
    weight = planted(tmp_path / "w.parquet", -1.0, 9, "w")
    with pytest.raises(InputError, match=r"'w', row \d+ of w.parquet: the weight is negative"):
        open_rows(weight, ColumnRoles(weight="w")).load()


def test_a_file_that_changes_between_rounds_is_noticed(tmp_path: Path) -> None:
    table, numbers = write(tmp_path / "a.parquet", rows_of(10)), tmp_path / "a.npy"
    np.save(numbers, rows_of(10))
    opened = [open_rows(table), open_rows(numbers)]
    assert [len(rows.load()) for rows in opened] == [10, 10]
    write(table, rows_of(11, seed=1))
    np.save(numbers, rows_of(11))
    for rows in opened:
        with pytest.raises(InputError, match=r"has changed from \d+ to \d+ bytes since it was"):
            rows.load()


def test_a_file_that_changes_during_a_round_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", rows_of(1000), 50)
    chunks = open_rows(path, chunk_rows=50).chunks()
    next(chunks)
    os.utime(path, ns=(0, 0))
    with pytest.raises(InputError, match="has changed since it was opened; all rounds must"):
        list(chunks)


def test_a_reading_that_is_broken_off_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    for _ in open_rows(write(tmp_path / "a.parquet", rows_of(1000)), chunk_rows=5).chunks():
        break
    assert threading.active_count() == before


PEAK = """
import re, sys
from pathlib import Path
import numpy as np
from fedcluster import Client, Data, State, Task
from fedcluster.algorithms import Lloyd
from fedcluster_app.tables import open_rows
rows, task = open_rows(sys.argv[1]), Task(Lloyd(), State.at(np.zeros((1, 16))))
Client("s", Data(np.zeros((9000, 16), np.float32))).answer(task)
def peak():  # getrusage would count what the parent had, too
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
client = Client("s", rows if sys.argv[2] == "chunks" else rows.load)
print(client.answer(task).weights.sum())
print(peak() - before)
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """Of rows of 256 MB less than a quarter is ever there."""
    path, n = tmp_path / "a.parquet", 1 << 20
    X = np.random.default_rng(0).normal(size=(1 << 10, 16)).astype(np.float32)
    table = pa.table({f"x{j}": np.resize(X[:, j], n) for j in range(16)})
    with pq.ParquetWriter(path, table.schema) as file:
        for _ in range(4):
            file.write_table(table)
    grown = {}
    for how in ("chunks", "at once"):
        script = [sys.executable, "-c", PEAK, str(path), how]
        said = subprocess.run(script, capture_output=True, text=True, check=True).stdout.split()
        assert float(said[0]) == 4 * n
        grown[how] = int(said[1]) / 1024
    assert grown["chunks"] < 64 < 256 < grown["at once"]


# Memory maps


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "float64", ">f4", "int16"])
def test_a_map_is_read_in_chunks(tmp_path: Path, order: Any, dtype: str) -> None:
    X = np.asarray(rows_of(500) * 100, dtype=dtype, order=order)
    np.save(tmp_path / "a.npy", X)
    rows = open_rows(tmp_path / "a.npy", chunk_rows=64)
    chunks, expected = list(rows.chunks()), "float32" if dtype == "float32" else "float64"
    assert {len(chunk) for chunk in chunks} == {64, 500 % 64}
    assert all(chunk.X.flags.c_contiguous for chunk in chunks)
    assert {chunk.X.dtype.name for chunk in chunks} == {expected}
    assert len(rows) == 500
    np.testing.assert_array_equal(rows.load().X, X)


def test_a_map_without_a_header_and_weights(tmp_path: Path) -> None:
    X, weight = rows_of(200), np.arange(200) % 4
    X.tofile(tmp_path / "a.bin")
    np.save(tmp_path / "w.npy", weight)
    mapped = np.memmap(tmp_path / "a.bin", np.float32, "r", shape=X.shape)
    data = Data(X, weight.astype(float))
    task = Task(Lloyd(), State.at(np.zeros((1, 3))))
    for weights in (tmp_path / "w.npy", weight):
        rows = open_rows(mapped, sample_weight=weights, chunk_rows=17)
        assert_close(Client("s", rows).answer(task), Client("s", data).answer(task))
    assert repr(rows) == "StreamedRows(title='the rows', columns=('x0', 'x1', 'x2'))"


def test_what_is_wrong_with_a_map_is_said(tmp_path: Path) -> None:
    path, X = tmp_path / "a.npy", rows_of(20)
    X[13, 1] = np.nan
    np.save(path, X)
    (tmp_path / "b.npy").write_bytes(path.read_bytes()[:100])
    np.save(tmp_path / "c.npy", np.array(["a"]))
    cases: list[tuple[Path, Any, str]] = [
        (tmp_path / "b.npy", None, r"b.npy is not a whole .npy file of numbers"),
        (tmp_path / "c.npy", None, r"c.npy: expected rows \(n, d\) of numbers, not <U1"),
        (path, np.ones(3), r"the weights: 3 weights for 20 rows"),
        (tmp_path / "none.npy", None, "does not exist"),
    ]
    for file, weight, said in cases:
        with pytest.raises(InputError, match=said):
            open_rows(file, sample_weight=weight)
    with pytest.raises(ValueError, match=r"a.npy, column 'x1', row 13: the value is missing"):
        open_rows(path, chunk_rows=6).load()
    negative = np.where(np.arange(9) == 7, -1.0, 1.0)
    with pytest.raises(InputError, match=r"the weight of row 7 is negative"):
        open_rows(np.ones((9, 2)), sample_weight=negative, chunk_rows=2).load()


# Columns to rows


@pytest.mark.parametrize(("n", "d"), [(1, 1), (5, 3), (3, 200_000), (200_000, 2), (40_000, 17)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_side_by_side_are_numpy_s_stack(n: int, d: int, dtype: str) -> None:
    X = np.random.default_rng(0).normal(size=(d, n)).astype(dtype)
    rows = side_by_side(list(X))
    assert rows.flags.c_contiguous
    assert rows.dtype == dtype
    np.testing.assert_array_equal(rows, np.stack(list(X), axis=1))
