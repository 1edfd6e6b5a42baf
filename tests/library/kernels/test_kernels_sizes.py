"""How work is divided, and what is laid out for it: never a matter of results, but of time."""

import os
import subprocess
import sys
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import sklearn.cluster  # noqa: F401, loads OpenMP
from numba import njit
from numba.core import types
from numba.core.registry import cpu_target
from numpy.testing import assert_array_equal
from threadpoolctl import threadpool_limits

from fedcluster.core import threads as kernel_threads
from fedcluster.core.threads import for_each_chunk, thread_count
from fedcluster.kernels import _hard, _sweep, fuzzy, hard_pass
from fedcluster.kernels._blocks import anchor_of, pack_centers
from fedcluster.kernels._tiles import (
    ADD_LANES,
    VECTOR_BYTES,
    Code,
    aligned_zeros,
    block_rows,
    lanes,
)
from fedcluster.kernels.rows import (
    as_columns,
    as_given_weights,
    as_rows,
    as_weights,
    chunk_bounds,
    pad,
)
from fedcluster.kernels.seeding import default_trials


@pytest.mark.parametrize(
    ("n", "k", "d", "n_chunks", "rows"),
    [
        (1 << 14, 5, 1, 1, None),  # small
        ((1 << 14) + 1, 5, 1, 1, None),  # and hardly more
        (1_000_000, 16, 32, 62, 16_384),  # 2^24 products, a centre and 16 more for each value
        (64 + 2 * 16_384 - 1, 16, 32, 2, 16_384),
        (64 + 2 * 16_384, 16, 32, 2, 16_384),
        (64 + 2 * 16_384 + 1, 16, 32, 3, 16_384),
        (1_000_000, 1, 1, 16, 65_536),  # no more rows than these,
        (100_000, 1000, 100, 49, 2048),  # no less,
        (100_000_000, 1, 1, 128, 781_251),  # but no more chunks than 128
    ],
)
def test_chunks_have_much_work_and_few_sums(n, k, d, n_chunks, rows):
    """All are alike; what is left for the last one, whose rows are padded, is 64 rows."""
    bounds = chunk_bounds(n, k, d)
    assert (bounds[0], bounds[-1]) == (0, n)
    if rows is None:
        assert len(bounds) - 1 == (1 if n * d <= 1 << 14 else 2)
        return
    assert bounds[-2] == n - 64
    sizes = np.diff(bounds[:-1])
    assert len(sizes) == n_chunks
    assert np.ptp(sizes) <= 1
    assert sizes.max() <= rows
    assert -(-(n - 64) // rows) == n_chunks


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What takes the place of the work, and remembers how it was divided."""
    monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", "7")
    asked = Mock()
    for module in (fuzzy, _hard, _sweep):
        monkeypatch.setattr(module, "for_each_chunk", asked)
    return asked


@pytest.mark.parametrize(
    ("n", "d", "k", "divided"),
    [
        (60_000, 4, 12, (3, 7)),  # 2^20 / 48 rows a chunk
        (200_000, 1, 1, None),  # one chunk, which needs no thread
        (10_000, 15, 200, (10, 7)),  # 1024 rows at least
        (200_000, 16, 2, (128, 7)),  # matrix products: as many chunks as there may be
        (5000, 16, 2, (5, 1)),  # of 1024 rows at least; less work than a thread is worth
        (1 << 13, 16, 2, (8, 7)),
        ((1 << 13) - 1, 16, 2, (8, 1)),
    ],
)
def test_fuzzy_passes_have_chunks_of_enough_rows(asked, n, d, k, divided):
    X = np.zeros((n, d), np.float32)
    fuzzy.fuzzy_pass(X, np.arange(k)[:, None] + np.zeros((k, d)), 2.0)
    assert (asked.call_args and asked.call_args.args[1:]) == divided


@pytest.mark.parametrize(("n", "divided"), [(17_000, (2, 1)), (150_000, (4, 7))])
def test_passes_of_one_chunk_have_one_thread(asked, n, divided):
    """And one for the rows that are padded."""
    X, centers, weights = np.zeros((n, 1)), np.array([[0.0], [1.0]]), as_weights(None)
    _sweep.sweep(X, centers, weights)
    assert asked.call_args.args[1:] == divided
    bounds, packed = _hard.BoundedSweep(X, 2), pack_centers(X, centers)
    bounds.sweep(X, weights, packed, np.zeros(2), np.ones(2))
    assert asked.call_args.args[1:] == divided


@pytest.mark.parametrize(
    ("n_chunks", "n_threads", "helpers"), [(3, 8, 2), (8, 3, 2), (5, 1, 0), (1, 5, 0), (0, 4, 0)]
)
def test_helpers_are_as_many_as_threads_or_chunks_less_the_caller(
    monkeypatch, n_chunks, n_threads, helpers
):
    pool, done = Mock(), list[int]()
    monkeypatch.setattr(kernel_threads, "_pool", lambda: pool)
    for_each_chunk(done.append, n_chunks, n_threads)
    assert pool.submit.call_count == helpers
    assert done == list(range(n_chunks))


@pytest.mark.parametrize(
    ("own", "of_openmp", "threads"),
    [
        (None, None, 11),
        ("0", None, 11),
        ("0", "3", 3),
        ("2", None, 2),
        ("40", "1", 40),
        (None, "4,2", 4),
        ("", "64", 11),
        (None, "many", 11),
    ],
)
def test_threads_are_as_told_and_no_more_than_cores(own, of_openmp, threads, monkeypatch):
    monkeypatch.setattr(kernel_threads, "_core_count", lambda: 11)
    monkeypatch.setattr(kernel_threads, "_openmp", tuple)
    for name, value in (("FEDCLUSTER_NUM_THREADS", own), ("OMP_NUM_THREADS", of_openmp)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert thread_count() == threads


def test_limits_of_openmp_count(monkeypatch):
    for name in ("FEDCLUSTER_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with threadpool_limits(1, "openmp"):
        assert thread_count() == 1
    monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", "two")
    with pytest.raises(ValueError, match="FEDCLUSTER_NUM_THREADS is 'two': give a number"):
        thread_count()


def test_a_quota_of_the_machine_counts() -> None:
    """As joblib finds it: a variable states one."""
    code = "from fedcluster.core.threads import thread_count; print(thread_count())"
    environ = {"PATH": os.environ["PATH"], "LOKY_MAX_CPU_COUNT": "1"}
    assert subprocess.check_output([sys.executable, "-c", code], env=environ) == b"1\n"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeros_begin_a_line_of_the_cache(dtype: type) -> None:
    X: np.ndarray = np.empty(0, dtype)
    for rows, columns in ((1, 1), (3, 8), (100, 7), (5, 0)):
        zeros = njit(lambda X, n, m: aligned_zeros(X.dtype, (n, m)))(X, rows, columns)
        assert zeros.shape == (rows, columns)
        assert zeros.ctypes.data % 64 == 0 or not zeros.size
        assert not zeros.any()


def test_of_two_centres_equally_close_to_their_mean_the_first_is_the_shift() -> None:
    one_column = np.zeros((1, 1))
    for centers, shift in (
        ([0.0, 2.0], 0.0),
        ([2.0, 0.0], 2.0),
        ([0.0, 10.0, 11.0, 12.0, 100.0], 12.0),
        ([-100.0, 0.0, 0.5], 0.0),
    ):
        assert pack_centers(one_column, np.array(centers)[:, None]).shift[0] == shift


def test_a_centre_beyond_what_float32_holds_is_its_own_anchor() -> None:
    centers = np.array([[0.1, 0.9e38], [2e38, -2e38]])
    anchors = [anchor_of(center) for center in centers.ravel()]
    assert_array_equal(anchors[:2], centers[0].astype(np.float32).astype(float))
    assert_array_equal(anchors[2:], centers[1])
    # and rows on a centre leave no residual, however large
    for scale in (1.0, 1e38):
        rows = np.repeat(scale * centers[:1], 17_000, axis=0)
        assert hard_pass(rows, scale * centers).sums[0, 0] == pytest.approx(17_000 * rows[0, 0])


def test_rows_for_kernels_are_read_only_and_padded_by_64() -> None:
    X, ones = np.arange(6.0).reshape(3, 2), as_given_weights(as_weights(None), 3)
    for array in (as_rows(X), as_columns(X), as_weights(X[:, 0]), pad(X), as_weights(None), ones):
        assert not array.flags.writeable
        assert array.flags.c_contiguous
    assert X.flags.writeable
    assert np.shares_memory(as_rows(X), X)
    assert_array_equal(pad(X), np.vstack([X, np.zeros((64, 2))]))
    assert_array_equal(ones, np.ones(3))
    assert ones is as_given_weights(as_weights(None), 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_block_is_three_vectors_of_rows(dtype: type) -> None:
    rows: np.ndarray = np.zeros((1, 1), dtype)
    assert block_rows(rows) == 3 * lanes(rows)
    assert lanes(np.zeros((1, 1), np.float32)) == 2 * lanes(np.zeros((1, 1)))
    assert block_rows(rows) <= 48  # what lies beyond the last row must be padding


def test_trials_are_two_and_the_logarithm() -> None:
    assert [default_trials(k) for k in (1, 2, 3, 7, 8, 20, 21, 55)] == [2, 2, 3, 3, 4, 4, 5, 6]


def test_a_vector_holds_as_many_numbers_as_fit_unless_it_is_said() -> None:
    context: Any = cpu_target.target_context
    for kind, size in ((types.float32, 4), (types.float64, 8)):
        assert Code(context, None, kind, 0).lanes == VECTOR_BYTES // size
        assert Code(context, None, kind, ADD_LANES).lanes == ADD_LANES
