"""kFed by hand: papers/algorithms.md, section 2, one fact a test."""

from unittest.mock import Mock

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from partitions import on_line

from fedcluster import Data, State, Summary
from fedcluster.algorithms import KFed, _kfed
from fedcluster.algorithms._kfed import core_means, local_start, top_directions
from fedcluster.kernels import kmeans_plusplus
from fedcluster.kernels.iteration import lloyd


def asked(kfed: KFed, rows: np.ndarray, seed: int = 0) -> Summary:
    """One site's answer, before its filters."""
    return kfed.client_step(State(), Data(rows), np.random.default_rng(seed))


def served(kfed: KFed, *answers: Summary) -> State:
    return kfed.server_step(State(), answers, np.random.default_rng(0))


def sent(centers: np.ndarray, sizes: list[float] | None = None) -> Summary:
    weights = np.ones(len(centers)) if sizes is None else np.array(sizes)
    return Summary(centers * weights[:, None], weights)


@pytest.mark.parametrize(
    ("rows", "seeds", "means"),
    [
        # 3 * 2 <= 6, so 2 belongs to the core of 0 and 6 to that of 8; 3 * 3 > 5
        ([0, 2, 3, 6, 8], [0, 8], [1, 7]),
        # with a third seed, 2 is as far from it as from 0, and 6 as from 8
        ([0, 2, 4, 6, 8], [0, 8, 4], [0, 8, 4]),
        ([0, 1.9, 8], [0, 8], [0.95, 8]),
        ([0, 2.1, 8], [0, 8], [0, 8]),
        ([0, 2.5, 8], [0, 8], [0, 8]),
        ([0, 3.9, 8], [0, 8], [0, 8]),
        ([0, 2, 7], [0], [3]),
    ],
)
def test_a_core_has_the_rows_at_most_a_third_as_far(rows, seeds, means):
    assert_allclose(core_means(on_line(*rows), on_line(*seeds)), on_line(*means))


def test_seeds_that_coincide_start_where_they_are() -> None:
    """Four equal rows: two seeds of the same value, no mean of nothing, one centre sent."""
    assert_allclose(local_start(on_line(1, 1, 1, 1), 2, np.random.default_rng(0)), on_line(1, 1))
    message = asked(KFed(2), on_line(1, 1, 1, 1))
    assert_array_equal(message.weights, [4, 0])
    assert_allclose(message.sums[0], [4])


def test_the_projection_does_not_centre() -> None:
    """The rows (5, 0), (5, 1), (5, -1) vary along the second axis only; the first singular
    vector of the matrix as it is, X'X = diag(75, 2), is the first axis.
    """
    V = top_directions(np.array([[5.0, 0.0], [5.0, 1.0], [5.0, -1.0]]), 1)
    assert_allclose(np.abs(V), [[1.0], [0.0]], atol=1e-15)


def test_a_start_lies_in_the_span_of_the_top_directions() -> None:
    """With K_l = 1 the projection drops the second coordinate, the local Lloyd has it again."""
    rows = np.array([[5.0, 0.0], [5.0, 3.0], [5.0, -1.0], [5.0, -2.0]])
    start = local_start(rows, 1, np.random.default_rng(0))
    assert_allclose(start, [[5.0, 0.0]], atol=1e-12)


def test_fewer_dimensions_than_local_clusters() -> None:
    """Three pairs on a line, K_l = 3 > d = 1, where the authors' program stops: D^2 is 0 at a
    seed's twin, so that the seeds are 0, 10 and 20.
    """
    message = asked(KFed(3), on_line(0, 0, 10, 10, 20, 20))
    assert_array_equal(message.weights, [2, 2, 2])
    assert_allclose(np.sort(message.sums[:, 0] / 2), [0, 10, 20])


def test_a_site_of_at_most_local_k_rows_sends_them_all() -> None:
    """Three rows, two of them equal, with K_l = 3: each a centre of size 1."""
    message = asked(KFed(4, 3), on_line(5, 1, 5))
    assert_array_equal(message.weights, [1, 1, 1])
    assert_array_equal(message.rows, [1, 1, 1])
    assert_allclose(np.sort(message.sums[:, 0]), [1, 5, 5])


def test_local_lloyd_runs_to_the_end() -> None:
    """Two groups on a line, from whatever seeds: means 1 and 11 of three rows each."""
    for seed in range(10):
        message = asked(KFed(2), on_line(0, 1, 2, 10, 11, 12), seed)
        assert_array_equal(message.weights, [3, 3])
        assert_allclose(np.sort(message.sums[:, 0]), [3, 33])


@pytest.mark.parametrize(
    ("order", "centers"), [("abcd", [[1.5, 0], [1.5, 2]]), ("acbd", [[0, 1], [3, 1]])]
)
def test_the_server_starts_at_the_first_sites_centres_and_weighs_none(order, centers):
    """The corners of a rectangle 3 by 2, K = K_l = 2: both ways to pair them are stable, and the
    first site's corners decide. One corner has 97 rows behind it, which count in the state only.
    """
    corners = {"a": [0, 0], "b": [0, 2], "c": [3, 0], "d": [3, 2]}
    one, other = np.array([corners[c] for c in order], float).reshape(2, 2, 2)
    state = served(KFed(2), sent(one, [97, 1]), sent(other, [1, 1]))
    assert_allclose(state.centers, centers)
    assert_array_equal(state.weights, [98, 2])


def test_the_server_adds_the_farthest_centres_received() -> None:
    """K = 3, K_l = 1, received 0 | 1 | 10 | 12: from 0 the farthest is 12, then 10 (2 from 12)
    and not 1 (1 from 0). Lloyd from 0, 12, 10 leaves 10 and 12 alone and joins 0 and 1.
    """
    state = served(KFed(3, 1), *(sent(on_line(c)) for c in (0, 1, 10, 12)))
    assert_allclose(state.centers, on_line(0.5, 12, 10))
    assert_array_equal(state.weights, [2, 1, 1])
    assert state.converged


def test_a_first_site_of_few_centres_is_filled_up_by_the_next() -> None:
    """K = K_l = 2: the first site sends 0 alone, so that the start is 0 and the next one's 1;
    Lloyd over 0 1 5 6 goes from there to 0.5 and 5.5.
    """
    state = served(KFed(2), sent(on_line(0)), sent(on_line(1, 5)), sent(on_line(6)))
    assert_allclose(state.centers, on_line(0.5, 5.5))


def test_too_few_centres_received_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least 3 centres from the sites and received 2"):
        served(KFed(3), sent(on_line(0, 1)))


@pytest.mark.parametrize("local", [0, 4])
def test_local_clusters_lie_between_1_and_k(local: int) -> None:
    with pytest.raises(ValueError, match=f"between 1 and n_clusters=3, not {local}"):
        KFed(3, local)


def test_seeds_have_no_trials_and_lloyd_ends_where_little_moves(monkeypatch):
    """By 1e-4 of the mean variance of a column of what is clustered, at sites and at the server."""
    monkeypatch.setattr(_kfed, "lloyd", asked_lloyd := Mock(wraps=lloyd))
    monkeypatch.setattr(_kfed, "kmeans_plusplus", seeds := Mock(wraps=kmeans_plusplus))
    rows = np.random.default_rng(0).normal(size=(30, 2)) * [1, 5]
    served(KFed(3), sent(rows[:4]), asked(KFed(3), rows))
    assert [call.kwargs["n_local_trials"] for call in seeds.call_args_list] == [1]
    of_site, of_server = asked_lloyd.call_args_list
    for call in (of_site, of_server):
        variance = call.args[0].var(axis=0).mean()
        assert call.kwargs["tol"] == pytest.approx(1e-4 * variance, rel=1e-12)
    assert of_server.kwargs["empty"] == "relocate"
    assert "empty" not in of_site.kwargs
