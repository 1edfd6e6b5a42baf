"""Hard passes one after another: bounds save work and never change a bit."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Thread
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcluster.core import Floats
from fedcluster.kernels import _hard as hard
from fedcluster.kernels import hard_pass, hard_sums, nearest
from fedcluster.kernels._blocks import pack_centers
from fedcluster.kernels._hard import (
    _lower,
    _rounding,
    _upper,
    bounded_chunk,
    displacements,
    next_centers,
)
from fedcluster.kernels.rows import as_weights

VARIABLE = "FEDCLUSTER_NUM_THREADS"


@contextmanager
def bounds_everywhere(**others):
    """However little they pay."""
    with pytest.MonkeyPatch.context() as patch:
        settings = {"WORTH_BOUNDS": 0, "ROWS_PER_CENTER": 0, "FAR": np.inf, "FEWEST": np.inf}
        settings |= others
        for name, value in settings.items():
            patch.setattr(hard, name, value)
        patch.setattr(hard.BoundedSweep, "pay", lambda self, X: True)
        patch.setattr(hard.Run, "least_time", lambda self, X, own: 0.0)
        yield


@pytest.fixture
def everywhere():
    """Bounds are kept, however little they pay."""
    with bounds_everywhere():
        yield


@pytest.fixture
def cache() -> dict[str, Any]:
    """What a site keeps from question to question."""
    return {}


def known(cache):
    """The bounds of the run that was asked last."""
    return cache["hard_sums"].runs[-1].bounds


def assert_as_in_a_full_pass(X, centers, sample_weight, cache):
    found = hard_sums(X, centers, sample_weight, cache=cache)
    expected = hard_pass(X, centers, sample_weight)
    for field in ("sums", "weights", "counts", "errors"):
        assert_array_equal(getattr(found, field), getattr(expected, field), field)
    if "hard_sums" in cache and known(cache):
        assert_array_equal(known(cache).rows.labels, expected.labels)
    return expected


def assert_nearest_as_without(X, centers, sample_weight, cache):
    found, expected = nearest(X, centers, sample_weight, cache=cache), nearest(X, centers)
    for ours, theirs in zip(found, expected, strict=True):
        assert_array_equal(ours, theirs)


def put(centers, j, center):
    centers = centers.copy()
    centers[j] = center
    return centers


# How centres go on, given rows, centres, two of their indices, normal noise as large as the rows
# spread, and a source of chance.
WAYS = {
    "average": lambda X, C, two, noise, rng: rounds(X, C, {}, 1),
    "little": lambda X, C, two, noise, rng: C + 1e-3 * noise,
    "a hair": lambda X, C, two, noise, rng: C + 1e-7 * noise,
    "by rounding": lambda X, C, two, noise, rng: np.nextafter(C, np.sign(noise) * np.inf),
    "far": lambda X, C, two, noise, rng: C + noise,
    "one": lambda X, C, two, noise, rng: put(C, two[0], C[two[0]] + noise[0] / 8),
    "onto another": lambda X, C, two, noise, rng: put(C, two[0], C[two[1]]),
    "beside another": lambda X, C, two, noise, rng: put(C, two[0], C[two[1]] + 1e-6 * noise[0]),
    "swap": lambda X, C, two, noise, rng: put(C, two, C[two[::-1]]),
    "onto rows": lambda X, C, two, noise, rng: rng.choice(X, len(C)).astype(float),
    "not at all": lambda X, C, two, noise, rng: C,
}


@st.composite
def rows(draw):
    """Rows with ties, duplicates and huge offsets, or none of these; weights, some of them 0."""
    n, d = draw(st.integers(1, 400)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    kind = draw(st.sampled_from(["grid", "normal", "blobs", "equal"]))
    offset, scale = draw(
        st.sampled_from([(0, 1), (1e8, 8), (0, 1e-30), (0, 1e-9), (0, 1e18), (0, 1e30)])
    )
    X = {
        "grid": rng.integers(-2, 3, (n, d)),
        "normal": rng.normal(size=(n, d)),
        "blobs": rng.normal(size=(n, d)) + 9 * rng.normal(size=(4, d))[rng.integers(0, 4, n)],
        "equal": np.ones((n, d)),
    }[kind]
    sample_weight = draw(st.sampled_from([None, rng.integers(0, 3, n).astype(float)]))
    return (scale * X + offset).astype(dtype), sample_weight, rng


QUESTIONS = st.tuples(st.sampled_from([*WAYS, "back"]), st.integers(0, 2), st.booleans())


@pytest.mark.thorough
@given(rows(), st.integers(1, 30), st.integers(1, 3), st.lists(QUESTIONS, min_size=2, max_size=14))
def test_no_sequence_of_questions_changes_a_bit(case, k, n_runs, questions):
    X, sample_weight, rng = case
    starts = [rng.choice(X, k).astype(float) for _ in range(n_runs)]
    runs, spread = [[start] for start in starts], np.abs(X - X.mean(axis=0)).max()
    cache: dict[str, Any] = {}
    with np.errstate(over="ignore", invalid="ignore"), bounds_everywhere():
        for how, run, asks_labels in questions:
            before = runs[run % n_runs]
            if how == "back":
                before.append(before[rng.integers(len(before))])
            else:
                noise = spread * rng.normal(size=before[-1].shape)
                before.append(WAYS[how](X, before[-1], rng.integers(0, k, 2), noise, rng))
            if asks_labels:
                assert_nearest_as_without(X, before[-1], sample_weight, cache)
            assert_as_in_a_full_pass(X, before[-1], sample_weight, cache)


@pytest.mark.thorough
@settings(max_examples=15)
@given(
    st.integers(0, 2**32),
    st.sampled_from([np.float32, np.float64]),
    st.booleans(),
    st.sampled_from([40, 440]),
)
def test_nor_over_many_chunks(seed, dtype, is_weighted, d):
    rng = np.random.default_rng(seed)
    X, _ = blobs(dtype, seed, n=9000, d=d, k=9)
    sample_weight = rng.integers(0, 3, len(X)).astype(float) if is_weighted else None
    centers = rng.choice(X, 150).astype(float)
    cache: dict[str, Any] = {}
    with bounds_everywhere():
        for _ in range(6):
            found = assert_as_in_a_full_pass(X, centers, sample_weight, cache)
            some = found.weights > 0
            centers[some] = found.sums[some] / found.weights[some, np.newaxis]
        assert len(known(cache).parts) > 2
        assert_nearest_as_without(X, centers, sample_weight, cache)


def test_a_centre_at_rest_loses_the_row_that_another_one_takes(everywhere, cache):
    """It alone is doubtful, so that no other row has the sums of its old cluster added anew."""
    X = np.concatenate([np.zeros(20), np.full(20, 10.0), [4.9]])[:, None]
    for second, counts in ((10.0, [21, 20]), (9.0, [20, 21])):
        found = assert_as_in_a_full_pass(X, np.array([[0.0], [second]]), None, cache)
        assert found.counts.tolist() == counts


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_centres_that_move_far_are_scored_and_others_keep_bounds(dtype, offset, everywhere, cache):
    """A few jump to other rows, onto another centre, or away from all; some come back."""
    rng, n_far = np.random.default_rng(0), list[int]()
    X, _ = blobs(dtype, n=6000, d=12, k=64)
    X = (X + offset).astype(dtype)
    homes = np.array([X[i] for i in rng.choice(len(X), 64, replace=False)], float)
    centers = homes.copy()
    for turn in range(24):
        found = assert_as_in_a_full_pass(X, centers, None, cache)
        if bounds := known(cache):
            assert_bounds_hold(X, centers, bounds)
            n_far.append(bounds.n_far)
        some = found.weights > 0
        centers[some] = found.sums[some] / found.weights[some, np.newaxis]
        far = rng.choice(64, turn % 5, replace=False)
        centers[far] = X[rng.choice(len(X), len(far))]
        if turn % 5 == 3:
            centers[far[0]], centers[far[1]] = centers[(far[0] + 1) % 64], 40 + offset
        if turn % 5 == 4:
            centers[far] = homes[far]
    assert_nearest_as_without(X, centers, None, cache)
    assert n_far.count(8) > 9
    assert known(cache).n_scored < len(X) / 2


def blobs(dtype=np.float64, seed=0, n=40_000, d=8, k=20):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) + 8 * rng.normal(size=(k, d))[rng.integers(0, k, n)]).astype(dtype)
    return X, rng.choice(X, k).astype(float)


def rounds(X, centers, cache, n_rounds):
    """Lloyd's algorithm with the sums of a site."""
    for _ in range(n_rounds):
        found = hard_sums(X, centers, cache=cache)
        means = found.sums / np.maximum(found.counts, 1)[:, np.newaxis]
        centers = np.where(found.counts[:, np.newaxis] > 0, means, centers)
    return centers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_late_rounds_touch_few_rows(dtype, cache):
    X, centers = blobs(dtype)
    late = rounds(X, centers, cache, 30)
    bounds = known(cache)
    assert bounds.n_scored <= bounds.n_doubtful < 0.2 * len(X)
    assert bounds.n_added < 0.5 * len(X)
    with pytest.MonkeyPatch.context() as patch:
        expected = nearest(X, late)
        patch.setattr(hard, "assign", None)  # labels take no full pass
        for ours, theirs in zip(nearest(X, late, cache=cache), expected, strict=True):
            assert_array_equal(ours, theirs)


def test_centres_come_to_rest(cache):
    """Sums of the same rows are the same bits, although they are added from the centre."""
    X, centers = blobs()
    last = rounds(X, centers, cache, 80)
    assert_array_equal(rounds(X, last, cache, 1), last)
    assert (known(cache).n_scored, known(cache).n_added) == (0, 0)
    assert pickle.loads(pickle.dumps(cache))["hard_sums"].runs == []


@pytest.mark.parametrize(("d", "is_tried"), [(3, False), (24, True)])
def test_bounds_that_do_not_pay_are_given_up(d, is_tried, cache):
    """Rows without clusters: of few columns they are not even tried, since centres do not rest."""
    X = np.random.default_rng(0).normal(size=(60_000, d))
    rounds(X, X[:24].copy(), cache, 8)
    run = cache["hard_sums"].runs[-1]
    assert run.bounds is None
    assert (run.far < hard.FAR) == is_tried


@pytest.mark.parametrize("places", [6, 1, 0, 2])
def test_runs_that_take_turns_have_bounds_while_there_is_room(places, cache):
    X = np.random.default_rng(0).normal(size=(3000, 2))
    runs = [X[5 * i : 5 * i + 5].copy() for i in range(6)]
    budget = int(hard.bytes_needed(X, 5) * (places + 0.5))
    with bounds_everywhere(BUDGET=budget):
        for _ in range(5):
            for centers in runs:
                assert_as_in_a_full_pass(X, centers, None, cache)
                centers += 1e-4
    with_bounds = [run for run in cache["hard_sums"].runs if run.bounds]
    assert len(with_bounds) == places
    assert sum(run.bounds.n_bytes for run in with_bounds) <= budget


def test_a_run_that_is_over_makes_room(cache):
    X = np.random.default_rng(0).normal(size=(3000, 2))
    with bounds_everywhere(BUDGET=int(1.5 * hard.bytes_needed(X, 5)), MOST_RUNS=4):
        for centers, times in ((X[:5].copy(), 3), (X[5:10].copy(), 20)):
            for _ in range(times):
                assert_as_in_a_full_pass(X, centers, None, cache)
                centers += 1e-4
    assert known(cache)
    assert sum(run.bounds is not None for run in cache["hard_sums"].runs) == 1


def test_old_runs_are_forgotten(cache):
    X = np.random.default_rng(0).normal(size=(500, 2))
    with bounds_everywhere(MOST_RUNS=5):
        for i in range(20):
            hard_sums(X, X[i : i + 3] * (i + 1), cache=cache)
    assert len(cache["hard_sums"].runs) == 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_the_number_of_threads(dtype, monkeypatch):
    X, start = blobs(dtype, n=30_000, d=32, k=64)
    found = []
    for n_threads in ("1", "2", "5"):
        monkeypatch.setenv(VARIABLE, n_threads)
        found.append(rounds(X, start, {}, 6))
    assert_array_equal(found, [found[0]] * 3)


def test_many_callers_may_share_a_cache(cache, monkeypatch):
    monkeypatch.setenv(VARIABLE, "2")
    X, _ = blobs()
    starts = [X[i::2000].copy() for i in range(3)] * 3
    expected = [rounds(X, start, {}, 8) for start in starts[:3]] * 3
    with ThreadPoolExecutor(6) as callers:
        found = list(callers.map(lambda start: rounds(X, start, cache, 8), starts))
    assert_array_equal(found, expected)


def test_a_run_that_another_caller_moves_is_measured_from_where_it_is(
    everywhere, cache, monkeypatch
):
    X, start = blobs(n=2000)

    def measured(before, after):
        found = displacements(before, after)
        if other.ident is None:
            other.start()
            other.join(1.0)  # it waits for this one
        return found

    resting = rounds(X, start, cache, 30)
    moved = resting + 0.1
    expected = [hard_sums(X, centers, cache={}).sums for centers in (resting, moved)]
    other = Thread(target=hard_sums, args=[X, moved], kwargs={"cache": cache})
    monkeypatch.setattr(hard, "displacements", measured)
    assert_array_equal(hard_sums(X, resting, cache=cache).sums, expected[0])
    other.join()
    assert_array_equal(hard_sums(X, moved, cache=cache).sums, expected[1])


def exact_distances(X, centers):
    """With 64 bits instead of 53 or 24: (n, k)."""
    X, centers = X.astype(np.longdouble), centers.astype(np.longdouble)
    return np.sqrt(((X[:, np.newaxis] - centers) ** 2).sum(axis=2))


def assert_bounds_hold(X, centers, bounds):
    """U is at least the distance to the own centre, and l at most that to any other one.

    What is kept of u is l - u, rounded to float32 once more.
    """
    labels, lower, above = bounds.rows
    distances, rows = exact_distances(X, centers), np.arange(len(X))
    own = distances[rows, labels]
    distances[rows, labels] = np.inf
    assert np.all(own <= lower - above.astype(np.longdouble) * (1 - 2.0**-23))
    assert np.all(lower - bounds.others[labels] <= distances.min(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("scale", "offset"), [(1, 0), (1e-15, 0), (1e-3, 300), (1, 300)], ids=str)
def test_bounds_enclose_the_exact_distances(dtype, scale, offset, everywhere, cache):
    rng = np.random.default_rng(0)
    X = (scale * rng.normal(size=(2000, 3)) + offset).astype(dtype)
    centers = rng.choice(X, 5).astype(float)
    for size in (0, 1e-3, 1e-7, 0.1, 1e-3, 1e-5):
        centers = centers + size * scale * rng.normal(size=centers.shape)
        hard_sums(X, centers, cache=cache)
        if bounds := known(cache):  # from the second pass on
            assert_bounds_hold(X, centers, bounds)
    assert known(cache)


@pytest.mark.parametrize("apart", [1.0, 0.1])
def test_a_row_on_the_bisector_of_two_centres_is_scored_in_float32(apart, everywhere):
    """Row after row lies on the way from one centre to another, hardly closer to the first one. The
    bounds of such a row are exact, so that nothing but the margin tells that a full pass in
    float32, whose scores are far larger than their difference, may say otherwise.
    """
    n_wrong, d = 0, 24
    for seed in range(8):
        rng, cache = np.random.default_rng(seed), dict[str, Any]()
        direction = apart * rng.normal(size=d) / np.sqrt(d)
        between = 40.0 + (0.5 - 10.0 ** rng.uniform(-6, -1, (400, 1))) * direction
        X = np.vstack([between, rng.normal(size=(1600, d)), rng.normal(size=(1600, d)) + 20])
        X = X.astype(np.float32)
        one, zero = np.full((1, d), 40.0), np.zeros((1, d))
        start, end = (np.vstack([one, one + x * direction, zero, one / 2]) for x in (3, 1))
        for centers in (start, start, end, end):
            assert_as_in_a_full_pass(X, centers, None, cache)
            if bounds := known(cache):
                assert_bounds_hold(X, centers, bounds)
        assert known(cache).n_scored < len(X) / 2
        n_wrong += (hard_pass(X, end).labels != exact_distances(X, end).argmin(axis=1)).sum()
    assert n_wrong > 100  # float32 does err here


def test_centres_moved_no_further_and_lie_no_closer_than_said():
    """Rounded to float32, and where a square flushes to 0: not at all is 0, and only that is."""
    rng, apart = np.random.default_rng(0), np.where(np.eye(200), np.inf, 0)
    for scale in (1e-12, 1e-25, 1e-170, 1.0):
        before = scale * rng.normal(size=(200, 3))
        after = before + scale * rng.normal(size=before.shape)
        exact = np.sqrt(((after.astype(np.longdouble) - before) ** 2).sum(axis=1))
        moved = displacements(before, after).astype(np.float32)
        assert np.all(moved >= exact)
        assert np.all((moved > 0) & (moved <= exact * (1 + 1e-5) + 1e-19))
        assert_array_equal(displacements(before, before), np.zeros(200))
        least = (exact_distances(before, before) + apart).min(axis=1)
        found, mean = next_centers(before)
        assert np.all(found.astype(np.float32) <= least)
    np.testing.assert_allclose(found, least.astype(float), rtol=1e-5)
    assert mean == pytest.approx(found.mean(), rel=1e-12)
    few, of_few = next_centers(before, 4)
    assert_array_equal(few, np.where(np.arange(200) % 4 == 0, found, 0.0))
    assert of_few == pytest.approx(found[::4].mean(), rel=1e-12)
    assert_array_equal(next_centers(before[[0, 0, 1]])[0][:2], [0, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_more_rows_are_scored_than_bounds_leave_uncertain(dtype, everywhere, cache):
    """A thousand rows from 0.005 to 9.995 and centres at 2.5 and 7.5, which move by 0.1.

    Where the other centre is at most 0.2 further away, a row is doubtful: ten on either side of
    5. Those on the left come closer to their centre; those on the right are scored, and change.
    """
    X = ((np.arange(1000) + 0.5) / 100)[:, np.newaxis].astype(dtype)
    start = np.array([[2.5], [7.5]])
    for moved, counts in (
        (0.0, None),  # a full pass
        (0.0, (1000, 1000, 1000)),  # fills the bounds in
        (0.0, (0, 0, 0)),
        (0.1, (20, 10, 1000)),
        (0.1, (0, 0, 0)),
    ):
        assert_as_in_a_full_pass(X, start + moved, None, cache)
        if counts:
            bounds = known(cache)
            assert (bounds.n_doubtful, bounds.n_scored, bounds.n_added) == counts
    one = start + np.array([[0.104], [0.1]])  # nobody changes: the rows of the other are not added
    assert_as_in_a_full_pass(X, one, None, cache)
    assert (known(cache).n_scored, known(cache).n_added) == (0, 510)


@pytest.mark.parametrize(
    ("d", "k", "dtype", "most"),
    [
        # score 1.5 + 3.072, add 2.6 + 2.4, read 2: 1.25 * 9.572 less 1.4 leave 10.565 a row
        (8, 16, np.float64, {"n_doubtful": 1408, "n_scored": 607, "n_added": 1320}),
        # score 1.5 + 0.072, add 2.6 + 0.6, read 0.5: 1.25 * 4.772 less 1.4 leave 4.565 a row
        (2, 3, np.float32, {"n_doubtful": 760, "n_scored": 390, "n_added": 736}),
    ],
)
def test_bounds_pay_up_to_a_quarter_more_than_a_full_pass(d, k, dtype, most):
    """By the times of `pay`: 5.5 + read for a doubtful row of a thousand, 9 + read + 1.4 score for
    one that is scored, 3 + add for one that is added.
    """
    X = np.zeros((1000, d), dtype)
    for name, n in most.items():
        bounds = hard.BoundedSweep(X, k)
        setattr(bounds, name, n)
        assert bounds.pay(X)
        setattr(bounds, name, n + 1)
        assert not bounds.pay(X)


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "d", "k"), [(5000, 8, 3), (40_000, 16, 20), (40_000, 3, 9)])
def test_the_bytes_that_bounds_need_are_about_those_that_they_take(n, d, k):
    X = np.zeros((n, d))
    bounds, centers = hard.BoundedSweep(X, k), np.zeros((k, d))
    bounds.sweep(X, as_weights(None), pack_centers(X, centers), np.zeros(k), np.zeros(k))
    spare = hard.bytes_needed(X, k) - bounds.n_bytes
    assert 0 <= spare <= 8 * len(bounds.parts) * k * 8


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_four_times_the_rounding_of_a_score_is_bounded(dtype):
    """4 E, E = (d + 8) eps M (u + M + M / 2), for the longest way M from the shift, here 10."""
    X = np.zeros((4, 2), dtype)
    packed = pack_centers(X, np.array([[6.0, 8.0], [0.0, 0.0], [1.0, 1.0], [-3.0, -4.0]]))
    assert_array_equal(packed.shift[:2], [1, 1])
    longest = np.sqrt(5**2 + 7**2)
    eps = np.finfo(dtype).eps / 2
    per_distance, constant = _rounding(X, packed)
    assert 1 < per_distance / (4 * 10 * eps * longest) < 1.0001
    assert 1 < constant / (6 * 10 * eps * longest**2) < 1.0001
    alike = _rounding(X, pack_centers(X, np.ones((3, 2))))
    assert max(alike) < 1e-24, "the shortest way that float32 does not flush to 0"


@pytest.fixture
def seen(everywhere, monkeypatch):
    """What is told of the moves of centres, question by question."""
    monkeypatch.setattr(hard, "bounded_chunk", asked := Mock(wraps=bounded_chunk))
    return asked.call_args_list


def test_what_a_move_of_centres_leaves_certain(seen, cache):
    """Centres 100 apart move by 1, 2 and 0.5: the longest move of another one is 2, 1 and 2."""
    centers, X = np.array([[0.0], [100.0], [300.0]]), np.linspace(-10, 310, 500)[:, np.newaxis]
    for move in ([0, 0, 0], [0, 0, 0], [1, 2, 0.5], [0, 0, 3]):
        centers = centers + np.array(move)[:, np.newaxis]
        hard_sums(X, centers, cache=cache)
    expected: Any = (
        ([True] * 3, [0, 0, 0], [0, 0, 0], [100, 100, 200]),
        ([False] * 3, [2, 1, 2], [1, 2, 0.5], [101, 101, 198.5]),
        ([True, True, False], [5, 4, 2], [0, 0, 3], [101, 101, 201.5]),
    )
    for call, (same, others, own, apart) in zip(seen, expected, strict=True):
        moves = call.args[4]
        assert_array_equal(moves.is_same, same)
        np.testing.assert_allclose(moves.others, others, rtol=1e-5)
        np.testing.assert_allclose(moves.apart, apart, rtol=1e-5)
        ample = max(moves.rounding[0] / 2, moves.rounding[1] ** 0.5)
        assert 0 < ample < 1e-4
        np.testing.assert_allclose(moves.enough - ample, np.add(others, own), rtol=1e-4, atol=1e-6)


def test_it_is_too_early_for_bounds_at_first_and_where_centres_move_far():
    """Of 12 columns, so that centres which move need not cost more than bounds save."""
    X, run, usual = np.zeros((9, 12)), hard.Run(np.zeros((40, 12))), 8.0
    assert run.waits(X, np.zeros(40), usual), "nothing is known of the rows yet"
    run.counts = np.arange(40)
    assert not run.waits(X, np.zeros(40), usual)
    for own, n_moved, is_early in (
        (0.9999, 11, False),
        (1.0, 11, True),
        (1.0, 10, False),  # those would be scored
        (np.nan, 1, True),
    ):
        moved: Floats = np.array([0.1] * (40 - n_moved) + [own] * n_moved)
        assert run.waits(X, moved, usual) == is_early
    run.far = 0.05
    assert [run.waits(X, np.full(40, own), usual) for own in (0.39, 0.41)] == [False, True]


def test_bounds_are_not_tried_where_adding_rows_anew_is_most_of_a_pass():
    """By hand: 1.4 + (3 + 4.1) s of 2.1 + 4.1 ns for a row of 5 columns and 10 centres, float32."""
    X, run = np.zeros((9, 5), np.float32), hard.Run(np.zeros((10, 5)))
    run.counts = np.full(10, 7)
    for n_moved in range(11):
        own = np.where(np.arange(10) < n_moved, 0.01, 0.0)
        least = (1.4 + 7.1 * n_moved / 10) / (1.5 + 0.003 * 4 * 50 + 4.1)
        assert run.least_time(X, own) == pytest.approx(least, rel=1e-12)
        assert run.waits(X, own, 1.0) == (least > 0.75) == (n_moved > 4)


def test_bounds_that_could_not_pay_any_more_are_given_up(everywhere, cache, monkeypatch):
    X = np.random.default_rng(0).normal(size=(500, 2))
    for least, is_kept in ((0.0, False), (0.0, True), (1.01, False)):  # the first is a full pass
        monkeypatch.setattr(hard.Run, "least_time", lambda self, X, own, least=least: least)
        hard_sums(X, X[:3], cache=cache)
        assert (known(cache) is not None) == is_kept


def test_bounds_that_never_pay_are_tried_again_where_centres_move_half_as_far(
    everywhere, cache, monkeypatch
):
    X, centers = np.random.default_rng(0).normal(size=(200, 2)), 5 * np.eye(2)
    tries, moves = [], [0, 1, 1, 1, 0.6, 0.6, 0.4, 0.4, 0.3, 0.3, 0.1, 0.1, 0.06, 0, 0, 0, 0]
    monkeypatch.setattr(hard.BoundedSweep, "pay", lambda self, X: False)
    for move in moves:
        centers = centers + 0.1 * move
        hard_sums(X, centers, cache=cache)
        tries.append(known(cache) is not None)
    # a try fails at the next question, whose move says how far centres may move at the next try
    assert [moves[i] for i in np.flatnonzero(tries)] == [1, 0.4, 0.1, 0]


@pytest.mark.parametrize(("moved", "runs"), [(4.9, 1), (5.1, 2)])
def test_a_question_belongs_to_a_run_half_the_way_to_the_next_centre_away(
    moved, runs, everywhere, cache
):
    """On average over the centres, which are 10 apart; of two runs to the nearer one."""
    X, centers = np.random.default_rng(0).normal(size=(200, 1)), np.array([[0.0], [10.0]])
    for asked in (centers, centers + moved):
        hard_sums(X, asked, cache=cache)
    assert len(cache["hard_sums"].runs) == runs
    for asked in (centers + 0.1, centers + 5, centers + 0.2):
        hard_sums(X, asked, cache=cache)
        assert_array_equal(cache["hard_sums"].runs[-1].centers, asked)
        assert len(cache["hard_sums"].runs) == runs


@pytest.mark.parametrize(
    ("n", "k", "worth", "remembers"),
    [
        (40, 5, 400, True),
        (40, 5, 401, False),
        (39, 5, 1, False),
        (40, 1, 1, False),
        (100, 3, hard.WORTH_BOUNDS, False),
    ],
)
def test_bounds_are_for_many_rows_a_centre_and_for_much_work(
    n, k, worth, remembers, cache, monkeypatch
):
    """Eight rows for each of several centres, and so many products of a value with a centre's."""
    monkeypatch.setattr(hard, "WORTH_BOUNDS", worth)
    X = np.random.default_rng(0).normal(size=(n, 2))
    hard_sums(X, X[:k], cache=cache)
    assert bool(cache) == remembers


def test_an_upper_bound_is_a_distance_and_a_bit_more():
    """More by 2^-19 of it, and by 2^-64."""
    for squared, upper in ((4.0, 2 + 2.0**-18), (0.0, 2.0**-64), (2.0**-120, 2.0**-60 + 2.0**-64)):
        assert _upper(np.float32(squared)) == pytest.approx(upper, rel=1e-7)
    moved = displacements(np.array([[0.0], [1.0], [1.0]]), np.array([[3.0], [1.0], [1 + 1e-170]]))
    np.testing.assert_allclose(moved, [3 * (1 + 2.0**-19), 0, 0], rtol=1e-10)
    flushed = displacements(np.zeros((1, 1)), np.full((1, 1), 1e-170))
    assert flushed[0] == 2.0**-64


def test_a_lower_bound_is_a_distance_and_a_bit_less():
    """From a square of 4 and a gap of 2.5 between half squares, 9; at each step less by 2^-19."""
    step = 2.0**-19
    nine = 3 - 4 * step / 6
    for numbers, lower in (
        ((4, 2.5, 0, 0), nine * (1 - step)),
        ((4, 2.5, 7, 0), (7 + nine) * (1 - step)),
        ((4, 5, 0, 5), nine * (1 - step)),
        ((1, 0, 5, 4), 5 * (1 - step)),
        ((1, 0, 0, 4), -(2.0**-64)),
        ((0, 0, 0, 0), -(2.0**-64)),
        ((1e32, 0, 0, 0), 1e15 * (1 - step)),
    ):
        assert _lower(*map(np.float32, numbers)) == pytest.approx(lower, rel=2e-7), numbers
    nearest_ones, _ = next_centers(np.array([[0.0], [3.0], [10.0]]))
    np.testing.assert_allclose(nearest_ones, np.array([3, 3, 7]) * (1 - step), rtol=1e-10)
    np.testing.assert_allclose(next_centers(np.zeros((1, 2)))[0], [1e15], rtol=1e-7)


@pytest.mark.parametrize(
    ("rounding", "ample"), [((1.0, 0.04), 0.5), ((0.2, 0.04), 0.2), ((0.0, 9.0), 3.0)]
)
def test_enough_is_more_than_rounding_whatever_the_distance(
    seen, cache, monkeypatch, rounding, ample
):
    """l^2 - u^2 > r u + s for every u, if l - u is more than r / 2 and than the root of s."""
    monkeypatch.setattr(hard, "_rounding", lambda X, packed: rounding)
    for _ in range(3):
        hard_sums(np.linspace(0, 10, 50)[:, np.newaxis], [[0.0], [9.0]], cache=cache)
    assert seen
    for call in seen:
        np.testing.assert_allclose(call.args[4].enough, ample, rtol=1e-5)
