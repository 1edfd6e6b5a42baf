"""A site's answers have the same bits on any number of threads, ours and those of BLAS."""

import os
import subprocess
import sys
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
from fedcluster.kernels._tiles import HAS_AVX512

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


FITS = """
import hashlib, warnings
import numpy as np
from threadpoolctl import threadpool_info
from fedcluster import FederatedKMeans

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
means = rng.normal(size=(30, 64)) / 3
X, found = means[rng.integers(30, size=9000)] + rng.normal(size=(9000, 64)), hashlib.sha256()
weights, parts = rng.uniform(0.5, 2.0, 9000), [8000, 8400]  # rows of a site in several chunks
for how in ({}, {"metric": "cosine"}, {"init": "sums"}, {"prepare": "standard"}):
    for dtype in ("f4", "f8"):
        fit = FederatedKMeans(30, random_state=0, max_iter=12, **how)
        of_sites = np.split(X.astype(dtype), parts)
        fit.fit(of_sites, sample_weight=np.split(weights, parts) if "prepare" in how else None)
        found.update(fit.cluster_centers_.tobytes() + fit.labels_.tobytes())
kinds = {each["architecture"] for each in threadpool_info() if each["user_api"] == "blas"}
print(found.hexdigest(), *kinds)
"""


def bits_of_fits(**settings: str) -> list[str]:
    """A digest of centres and labels of several fits in a process of its own, and BLAS's kernel."""
    names = "OPENBLAS_CORETYPE", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"
    kept = {name: value for name, value in os.environ.items() if name not in names}
    given = kept | {"FEDCLUSTER_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} | settings
    done = subprocess.run(
        [sys.executable, "-c", FITS], capture_output=True, text=True, check=True, env=given
    )
    return done.stdout.split()


@pytest.fixture(scope="module")
def plain_bits() -> str:
    return bits_of_fits()[0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings",
    [
        {"FEDCLUSTER_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"},
        {"OPENBLAS_CORETYPE": "Haswell"},
        {"OPENBLAS_CORETYPE": "SkylakeX"},
        {"OPENBLAS_CORETYPE": "Nehalem"},
        pytest.param(
            {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""}, marks=pytest.mark.long
        ),
    ],
    ids=lambda settings: "-".join(settings.values()),
)
def test_neither_threads_nor_the_kernels_of_a_processor_change_a_fit(
    settings: dict[str, str], plain_bits: str
) -> None:
    kind = settings.get("OPENBLAS_CORETYPE")
    if kind == "SkylakeX" and not HAS_AVX512:
        pytest.skip("no kernel that this processor runs")
    digest, *kinds = bits_of_fits(**settings)
    assert digest == plain_bits
    if kind and kinds != [kind]:
        pytest.skip(f"BLAS here has no kernel {kind}, but {kinds}")


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
