"""One sweep over the rows: labels, sums, weights, counts and errors."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcluster.kernels import _hard, hard_pass, hard_sums, nearest
from fedcluster.kernels import _sweep as sweep
from fedcluster.kernels._blocks import zero_parts
from fedcluster.kernels._hard import HardPass
from fedcluster.kernels.rows import chunk_bounds

FIELDS = HardPass.__slots__


def plain_pass(X, centers, sample_weight=None):
    """The same in plain NumPy: all differences at once, in float64."""
    X, centers = np.asarray(X, float), np.asarray(centers, float)
    w = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, float)
    squared = np.square(X[:, np.newaxis] - centers).sum(axis=2)
    labels = squared.argmin(axis=1).astype(np.int32)
    members = labels[:, np.newaxis] == np.arange(len(centers))
    weighted = members * w[:, np.newaxis]
    counts = members[w > 0].sum(axis=0)
    errors = (weighted * squared).sum(axis=0)
    return HardPass(labels, weighted.T @ X, weighted.sum(axis=0), counts, errors)


def assert_same(found, expected, *, rtol=1e-12, atol=0.0):
    assert_array_equal(found.labels, expected.labels)
    assert_array_equal(found.counts, expected.counts)
    for field in ("sums", "weights", "errors"):
        assert_allclose(getattr(found, field), getattr(expected, field), rtol, atol, err_msg=field)


def assert_same_bits(found, expected):
    for field in FIELDS:
        assert_array_equal(getattr(found, field), getattr(expected, field), field)


@st.composite
def grids(draw, offsets=(0.0, 1e8), dtypes=(np.float32, np.float64)):
    """Rows, centres and weights on a coarse grid, where ties, duplicates and zeros abound."""
    n, d, k = (draw(st.integers(1, most)) for most in (130, 20, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.integers(1, 5))
    offset = draw(st.sampled_from(offsets))
    # steps of 8: what float32 can still tell apart at 1e8
    X = 8 * rng.integers(-spread, spread + 1, (n, d)) + offset
    centers = 8 * rng.integers(-spread, spread + 1, (k, d)) + offset
    sample_weight = draw(st.sampled_from([None, rng.integers(0, 4, n)]))
    return X.astype(draw(st.sampled_from(dtypes))), centers, sample_weight


@given(grids())
def test_small_data_take_a_shorter_way_to_the_same_bits(case):
    found = hard_pass(*case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "is_small", lambda X: False)
        assert_same_bits(hard_pass(*case), found)


def test_sums_of_the_same_rows_are_the_same_bits():
    """Else centres would never come to rest, but tremble by rounding for ever."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4)) + 20 * rng.normal(size=(6, 4))[rng.integers(0, 6, 500)]
    centers = X[:6]
    for _ in range(30):
        found = hard_pass(X, centers)
        means = found.sums / found.weights.clip(1)[:, np.newaxis]
        centers = np.where(found.counts[:, np.newaxis] > 0, means, centers)
    for direction in (-np.inf, np.inf):
        beside = hard_pass(X, np.nextafter(centers, direction))
        assert_array_equal(beside.labels, found.labels)
        assert_array_equal(beside.sums, found.sums)


def test_types_are_those_promised():
    """Whole numbers are rows, too."""
    double = np.dtype(float)
    for found in (
        hard_pass(np.zeros((3, 2), np.float32), np.zeros((4, 2), np.float32)),
        hard_pass([[0], [4]], [[1]]),
    ):
        dtypes = [getattr(found, field).dtype for field in FIELDS]
        assert dtypes == [np.int32, double, double, np.int64, double]
    assert_array_equal(found.sums, [[4]])
    assert_array_equal(found.errors, [10])


@given(grids())
def test_a_pass_is_that_of_plain_numpy(case):
    X, centers, sample_weight = case
    found = hard_pass(X, centers, sample_weight)
    assert_same(found, plain_pass(X, centers, sample_weight), atol=1e-12 * np.abs(X).max())


@given(grids())
def test_labels_do_not_depend_on_the_rows_around(case):
    X, centers, _ = case
    X = X + np.random.default_rng(0).normal(size=X.shape).astype(X.dtype)
    labels = hard_pass(X, centers).labels
    assert_array_equal(hard_pass(X[::-1], centers).labels, labels[::-1])
    assert_array_equal(hard_pass(X[1:], centers).labels, labels[1:])
    assert_array_equal(hard_pass(X[:1], centers).labels, labels[:1])


@given(grids())
def test_nearest_gives_the_labels_of_a_pass_and_plain_distances(case):
    X, centers, _ = case
    labels, squared = nearest(X, centers)
    assert_array_equal(labels, hard_pass(X, centers).labels)
    assert_array_equal(squared, np.square(X - centers[labels]).sum(axis=1))


@given(grids(offsets=[0.0], dtypes=[np.float64]))
def test_an_offset_changes_no_label_and_no_error(case):
    X, centers, sample_weight = case
    X = X + np.random.default_rng(0).integers(-3, 4, X.shape) / 8
    at_zero = hard_pass(X, centers, sample_weight)
    far = hard_pass(X + 1e8, centers + 1e8, sample_weight)
    assert_array_equal(far.labels, at_zero.labels)
    assert_array_equal(far.errors, at_zero.errors)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 5, 16, 33, 100])
@pytest.mark.parametrize("k", [1, 4, 7, 64])
def test_shapes_off_every_block_size(dtype, d, k):
    rng = np.random.default_rng(d * k)
    X, centers = rng.normal(size=(997, d)).astype(dtype), rng.normal(size=(k, d))
    found, expected = hard_pass(X, centers), plain_pass(X, centers)
    if dtype == np.float64:
        assert_same(found, expected, rtol=1e-10, atol=1e-10)
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    assert found.errors.sum() == pytest.approx(expected.errors.sum(), rel=tolerance)


def test_no_rows_add_nothing():
    found = hard_pass(np.empty((0, 2)), [[0.0, 0.0], [1.0, 1.0]])
    assert found.labels.shape == (0,)
    assert_array_equal(found.sums, np.zeros((2, 2)))
    assert_array_equal(found.weights, [0, 0])


def test_an_outlying_centre_does_not_blur_the_others():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)).astype(np.float32)
    centers = np.vstack([rng.normal(size=(8, 3)), np.full((1, 3), 1e6)])
    expected = plain_pass(X, centers)
    assert hard_pass(X, centers).errors.sum() == pytest.approx(expected.errors.sum(), rel=1e-6)


@pytest.mark.parametrize(
    "layout",
    [
        np.asfortranarray,
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X: X[::-1][::-1],
        lambda X: X.astype(">f8"),
        lambda X: np.frombuffer(b"0" + X.tobytes(), np.uint8)[1:].view(float).reshape(X.shape),
    ],
    ids=["fortran", "strided", "reversed", "big-endian", "unaligned and read-only"],
)
def test_every_layout_gives_the_same(layout):
    rng = np.random.default_rng(0)
    X, centers = rng.normal(size=(100, 6)), rng.normal(size=(5, 6))
    found = hard_pass(layout(X), layout(centers), layout(np.ones((100, 1)))[:, 0])
    assert_same_bits(found, hard_pass(X, centers))


SCALES = {"tiny": 1e-42, "small": 1e-30, "large": 1e18, "larger": 1e19, "huge": 1e150}


@pytest.fixture
def by_way(monkeypatch: pytest.MonkeyPatch) -> Callable[..., HardPass]:
    """A pass over rows of any number, scored in float32 first or not."""

    def pass_over(*case: Any, single: bool) -> HardPass:
        monkeypatch.setattr(sweep, "is_small", lambda X: False)
        monkeypatch.setattr(sweep, "WORTH_SINGLE", 1 if single else 1 << 60)
        return hard_pass(*case)

    return pass_over


@pytest.mark.parametrize(
    "kind", ["apart", "uniform", "ties", "midway", "close", "far", "alike", *SCALES]
)
@pytest.mark.parametrize(("n", "d", "k"), [(700, 3, 5), (400, 40, 67), (300, 17, 2)])
def test_rows_scored_in_float32_first_have_the_same_bits(by_way, kind, n, d, k):
    """Where float32 cannot tell two centres apart, float64 decides, and the first of equals."""
    rng = np.random.default_rng(k)
    X = rng.random((n, d))
    C = X[rng.choice(n, k, replace=False)] + 1e-3
    if kind == "apart":
        X, C = 20 * C[rng.integers(k, size=n)] + X, 20 * C
    elif kind == "ties":
        X, C = X.round(), C.round()
    elif kind == "midway":  # between two centres, but for less than float32 tells
        X = C[rng.integers(k, size=(n, 2))].mean(axis=1) + 1e-9 * rng.normal(size=(n, d))
    elif kind == "close":
        C = C[:1] + 1e-8 * rng.normal(size=(k, d))
    elif kind == "far":
        X, C = X + 1e9, C + 1e9
    elif kind in SCALES:
        X, C = SCALES[kind] * X, SCALES[kind] * C
    elif kind == "alike":
        C[1:] = C[0]
    weights = rng.integers(0, 3, n).astype(float)
    assert_same_bits(by_way(X, C, weights, single=True), by_way(X, C, weights, single=False))


def test_float32_decides_most_rows_and_gives_up_where_it_cannot(monkeypatch):
    rows: list[int] = []
    work = sweep.sweep_chunk_in_single

    def listening(*args: Any) -> int:
        rows.append(work(*args))
        return rows[-1]

    monkeypatch.setattr(sweep, "sweep_chunk_in_single", listening)
    X, decided = np.random.default_rng(0).random((2000, 40)), []
    few = X.astype(np.float32)
    for some, centers in ((X, X[:30]), (X, np.repeat(X[:2], 15, axis=0)), (few, X[:30])):
        rows.clear()
        hard_pass(some, centers)
        decided.append(sum(rows))
    assert decided[0] == len(X)
    assert 0 < decided[1] < len(X) / 4
    assert decided[2] == 0


def test_bounds_of_few_rows_tell_whether_those_of_all_would_pay(monkeypatch):
    """One row of 64 is tried; rows without clusters stay uncertain, and there it ends."""
    tried: list[int] = []
    for name in ("look", "sweep"):
        work = getattr(_hard.BoundedSweep, name)

        def listen(self, X, *args, work=work):
            tried.append(len(X))
            return work(self, X, *args)

        monkeypatch.setattr(_hard.BoundedSweep, name, listen)
    rng = np.random.default_rng(0)
    means, uniform = rng.random((60, 200)), rng.random((1024, 200))
    clustered = means[rng.integers(60, size=1024)] + rng.normal(size=(1024, 200)) / 20
    for X, centers, sizes in ((uniform, uniform[:60], [16, 16]), (clustered, means, [16, 1024])):
        cache: dict[str, Any] = {}
        while len(tried) < 2:
            sums = hard_sums(X, centers, cache=cache)
            centers = sums.sums / np.maximum(sums.weights, 1)[:, None]
        assert tried == sizes
        tried.clear()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("k", "d"), [(70, 940), (900, 75)])
def test_of_many_wide_centres_each_row_is_added_in_its_turn(dtype, k, d):
    """The sums of a chunk are those of its rows one by one, relative to centres in float32."""
    rng = np.random.default_rng(k)
    X = rng.normal(size=(5000, d)).astype(dtype)
    centers, weights = rng.normal(size=(k, d)), rng.integers(0, 3, len(X)).astype(float)
    found, total = hard_pass(X, centers, weights), np.zeros((k, d))
    anchors = centers.astype(np.float32).astype(float)
    limits = chunk_bounds(len(X), k, d)
    assert len(limits) > 3
    for start, stop in pairwise(limits):
        part = np.zeros((k, d))
        rows = weights[start:stop, None] * (X[start:stop] - anchors[found.labels[start:stop]])
        np.add.at(part, found.labels[start:stop], rows)
        total += part
    assert_array_equal(found.sums, total + found.weights[:, None] * anchors)
    apart = np.square(X - centers[found.labels]).sum(axis=1) * weights
    assert_allclose(found.errors, np.bincount(found.labels, apart, k), rtol=1e-12)


def test_sums_that_were_used_are_kept_up_to_a_number_of_bytes():
    spare, padded, wider = sweep.SpareParts(most=3 * 8 * 16), np.ones((2, 8)), np.ones((2, 16))
    assert spare.take(padded, 2) == []
    made = [zero_parts(padded) for _ in range(4)]
    spare.keep(*made)
    assert spare.take(wider, 9) == []
    found = spare.take(padded, 2) + spare.take(padded, 9)
    assert [id(parts) for parts in found] == [id(parts) for parts in made[1:]], "not the oldest"
    assert spare.take(padded, 9) == []


@pytest.mark.parametrize("threads", ["1", "2"])
def test_many_passes_keep_no_more_sums_than_a_few_passes_use(threads, monkeypatch):
    """All that are kept are looked through by each pass."""
    monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", threads)
    spare = sweep.SpareParts()
    monkeypatch.setattr(sweep, "spare_parts", spare)
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(60_000, 8)), np.ones(60_000)
    for _ in range(40):
        hard_pass(X, X[:20], weights)
    assert 1 <= len(spare.take(np.ones((20, 8)), 999)) <= 16
    spare.keep(*(zero_parts(np.ones((2, 8))) for _ in range(99)))
    assert len(spare.take(np.ones((2, 8)), 999)) == 16
