"""The pool: the same bits on any number of threads, for any number of callers, after a fork."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedcluster.core.threads import BufferPool, for_each_chunk
from fedcluster.kernels import hard_pass, kmeans, nearest
from fedcluster.kernels._hard import HardPass
from fedcluster.kernels.iteration import lloyd

VARIABLE = "FEDCLUSTER_NUM_THREADS"


def large(dtype, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30_000, 32)).astype(dtype)
    return X, X[:64].astype(float), rng.uniform(0, 2, len(X))


def assert_same_bits(found, expected):
    for field in HardPass.__slots__:
        assert_array_equal(getattr(found, field), getattr(expected, field), field)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_the_number_of_threads(dtype, monkeypatch):
    X, centers, weights = large(dtype)
    monkeypatch.setenv(VARIABLE, "1")
    expected, labels = hard_pass(X, centers, weights), nearest(X, centers)
    fit = lloyd(X, centers, max_iter=3)
    for n_threads in (2, 5):
        monkeypatch.setenv(VARIABLE, str(n_threads))
        assert_same_bits(hard_pass(X, centers, weights), expected)
        assert_array_equal(nearest(X, centers), labels)
        assert_array_equal(lloyd(X, centers, max_iter=3).centers, fit.centers)


def test_a_large_kmeans_in_one_thread_has_the_bits_of_lloyd(monkeypatch):
    X, _, _ = large(np.float64)
    one = kmeans(X, 16, rng=np.random.default_rng(0), n_init=1, max_iter=2)
    start = kmeans(X, 16, rng=np.random.default_rng(0), n_init=1, max_iter=0).centers
    monkeypatch.setenv(VARIABLE, "2")
    assert_array_equal(lloyd(X, start, max_iter=2, empty="relocate").centers, one.centers)


def lists() -> tuple[BufferPool[list[int]], list[list[int]]]:
    """Buffers whose sum is a list of all, and those that were made."""
    made: list[list[int]] = []

    def new() -> list[int]:
        made.append([])
        return made[-1]

    def add(total: list[int], part: list[int]) -> None:
        total.extend(part)
        part.clear()

    return BufferPool(new, add), made


@pytest.mark.parametrize("order", [[], [2, 0, 3, 1], [0, 1, 2, 3], [3, 2, 1, 0]])
def test_what_chunks_find_is_added_in_their_order(order: list[int]) -> None:
    buffers, _ = lists()
    for chunk in order:
        buffer = buffers.take()
        assert buffer == []
        buffer.append(chunk)
        buffers.hand_in(chunk, buffer)
    assert buffers.total == sorted(order)


def test_a_buffer_serves_many_chunks() -> None:
    buffers, made = lists()

    def work(chunk: int) -> None:
        buffer = buffers.take()
        buffer.append(chunk)
        buffers.hand_in(chunk, buffer)

    for_each_chunk(work, 100, 1)
    assert buffers.total == list(range(100))
    assert len(made) == 2


@pytest.mark.parametrize("bad", [0, 7])
def test_an_error_reaches_the_caller(bad):
    def work(chunk):
        if chunk == bad:
            raise ValueError(f"chunk {chunk}")

    with pytest.raises(ValueError, match=f"chunk {bad}"):
        for_each_chunk(work, 8, 2)


def test_each_chunk_is_done_once_and_may_have_chunks():
    done: list[int] = []
    for_each_chunk(lambda _: for_each_chunk(done.append, 10, 4), 10, 9)
    assert sorted(done) == sorted([*range(10)] * 10)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
def test_a_forked_child_has_its_own_pool():
    script = """
        import os
        from fedcluster.core.threads import for_each_chunk
        done: list[int] = []
        for_each_chunk(done.append, 100, 2)
        child = os.fork()
        if child == 0:
            for_each_chunk(done.append, 100, 2)
            os._exit(0 if len(done) == 200 else 1)
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=30)
