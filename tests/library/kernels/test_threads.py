"""A site's answers have the same bits on any number of threads, ours and those of BLAS."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from partitions import InChunks
from test_laws import STEPS, asked, by_name
from threadpoolctl import threadpool_info, threadpool_limits

from fedcluster import Client, Data, Task
from fedcluster.core.threads import blas_on_one_thread
from fedcluster.frames.rows import in_order

RNG = np.random.default_rng(0)
CENTERS = np.array([[0.0, 0.0, 0.0], [3.0, 3.0, 1.0], [6.0, 0.0, 2.0]])
ROWS = RNG.normal(size=(24_000, 3)) + CENTERS[RNG.integers(0, 3, 24_000)]
DATA = Data(ROWS, RNG.uniform(0.5, 2.0, len(ROWS)), RNG.integers(0, 3, len(ROWS)).astype(str))
SMALL = DATA.take(slice(300))  # for what compares all pairs of a site's rows
SLOW = {"KFed"}


@by_name(STEPS)
@pytest.mark.parametrize("chunks", [False, True], ids=["whole", "chunks"])
def test_no_number_of_threads_changes_an_answer(step, chunks, monkeypatch):
    data = SMALL if type(step).__name__ in SLOW else DATA
    task, answers = Task(step, asked(step, CENTERS), seed=1), []
    for ours, of_blas in ((1, 1), (2, 2), (5, 1), (1, 2)):
        monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", str(ours))
        with threadpool_limits(of_blas, "blas"):
            client = Client("s", InChunks(data, 11_000) if chunks else data)
            answers.append(client.answer(task))
    for other in answers[1:]:
        assert other.sums.tobytes() == answers[0].sums.tobytes()
        assert other.weights.tobytes() == answers[0].weights.tobytes()


def test_what_is_done_by_several_threads_comes_in_order() -> None:
    """The later parts are done first."""
    done = [threading.Event() for _ in range(7)]

    def work(i: int) -> int:
        assert i == 6 or done[i + 1].wait(10)
        done[i].set()
        return i * i

    assert list(in_order(work, range(7), 7)) == [0, 1, 4, 9, 16, 25, 36]


def test_an_error_comes_in_its_turn_and_ends_the_rest() -> None:
    before, taken = threading.active_count(), []

    def parts() -> Iterator[int]:
        for i in range(100):
            taken.append(i)
            yield i

    results = in_order(lambda i: 1 / (i - 2), parts(), 2)
    assert [next(results), next(results)] == [-0.5, -1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert len(taken) < 10
    assert threading.active_count() == before


def blas_threads() -> set[int]:
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


def test_blas_has_one_thread_until_the_last_caller_is_through() -> None:
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        with blas_on_one_thread():
            with blas_on_one_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before == {2}
        with pytest.raises(ValueError, match="within"), blas_on_one_thread():
            raise ValueError("within")
        assert blas_threads() == {2}
