"""FKM by hand: the details of papers/algorithms.md, sections 1.1 to 1.3, one fact a test."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from partitions import on_line
from sklearn.cluster import KMeans

from fedcluster import Client, Data, LocalEngine, MinClusterSize, State, Summary, Task
from fedcluster.algorithms import FKM, fkm
from fedcluster.kernels.iteration import lloyd
from fedcluster.rounds import run


def in_order(lines: np.ndarray) -> np.ndarray:
    return lines[np.lexsort(lines.T)]


def asked(fkm: FKM, centers: np.ndarray | None, rows: np.ndarray) -> Summary:
    """One site's answer, before its filters."""
    state = State() if centers is None else State.at(centers)
    return fkm.client_step(state, Data(rows), np.random.default_rng(0))


def sent(*centers_and_sizes: tuple[float, float]) -> Summary:
    """A message of centres on a line, with their sizes."""
    centers, sizes = np.array(centers_and_sizes).T
    return Summary((centers * sizes)[:, None], sizes)


def first_rows(X: np.ndarray, k: int, random_state: int) -> np.ndarray:
    """Seeds known beforehand: rows 0 and 2."""
    return X[[0, 2]]


def centers_of(message: Summary) -> list[float]:
    """The centres on a line that a message says something about."""
    some = message.weights > 0
    return (message.sums[some, 0] / message.weights[some]).tolist()


def test_a_site_sends_seeds_or_seeds_after_lloyd() -> None:
    """Seeds 0 and 8 of the rows 0 2 8 10; one iteration moves them to the means 1 and 9."""
    rows = on_line(0, 2, 8, 10)
    for iterations, centers in ((0, [0, 8]), (1, [1, 9])):
        message = asked(FKM(2, client_init=first_rows, init_iterations=iterations), None, rows)
        assert_allclose(centers_of(message), centers)
        assert_array_equal(message.weights, [2, 2])


def test_a_site_draws_seeds_among_its_rows() -> None:
    """With k = n every row is drawn, by k-means++ and at random."""
    for init in ("k-means++", "random"):
        message = asked(FKM(3, client_init=init, init_iterations=0), None, on_line(0, 5, 9))
        assert_allclose(sorted(centers_of(message)), [0, 5, 9])


def test_the_papers_and_the_programs_differ_in_three_switches() -> None:
    """The text is silent on the server's start; the program of 2024 hides rows behind means."""
    paper, of_2023, of_2024 = FKM.paper(3), FKM.program_2023(3), FKM.program_2024(3)
    assert of_2023 == replace(paper, server_seeding="unweighted")
    assert of_2024 == replace(paper, init_iterations=1, server_n_init=1)
    rows = on_line(0, 1, 5, 6, 9, 10)
    assert set(centers_of(asked(of_2023, None, rows))) <= set(rows.ravel())
    assert_allclose(in_order(asked(of_2024, None, rows).sums), [[1], [11], [19]])


def test_the_best_draw_at_a_site_is_the_one_of_least_inertia() -> None:
    """Of the seeds 0 1 and then 0 9 for the rows 0 1 9 10, the second: inertia 2, not 64 + 81."""
    draws = iter([on_line(0, 1), on_line(0, 9)])
    fkm = FKM(2, client_init=lambda *_, **__: next(draws), client_n_init=2, init_iterations=0)
    assert_allclose(centers_of(asked(fkm, None, on_line(0, 1, 9, 10))), [0, 9])


def test_a_site_of_fewer_rows_than_k_sends_its_rows_as_seeds_and_its_filter_all_of_them_not():
    """Three rows are three seeds of size 1; p = 2 lets none of them leave."""
    fkm, rows = FKM(5, init_iterations=0), on_line(0, 5, 9)
    message = asked(fkm, None, rows)
    assert_array_equal(message.weights, [1, 1, 1])
    client = Client("few", Data(rows), [MinClusterSize(2)])
    assert client.answer(Task(fkm, State())).n_values == 0


@pytest.mark.parametrize(
    ("empty", "centers", "weights"),
    [
        ("drop", [1, 11.5], [2, 2]),
        ("keep", [1, 11.5, 30], [2, 2, 0]),
        ("relocate", [1, 10, 13], [2, 1, 1]),
    ],
)
def test_a_centre_without_rows(empty, centers, weights):
    """No row of 0 2 10 13 is nearest to 30. Dropped, it is not there; kept, it stays at 30 with
    size 0 and so says nothing; relocated, it takes 13, the row farthest from its centre 10.
    """
    message = asked(FKM(3, empty_clusters=empty), on_line(0, 10, 30), on_line(0, 2, 10, 13))
    assert_array_equal(message.weights, weights)
    says = message.weights > 0
    assert_allclose(centers_of(message), np.array(centers)[says])


@pytest.mark.parametrize(("weighted", "low"), [(True, 0.2), (False, 1.0)])
def test_the_server_weighs_centres_by_their_sizes_or_not(weighted: bool, low: float) -> None:
    """0 of size 9 and 2 of size 1 meet at 0.2, or unweighted at 1. The state has the rows behind
    each centre either way.
    """
    answers = [sent((0, 9), (10, 4)), sent((2, 1))]
    state = FKM(2, weighted=weighted).server_step(State(), answers, np.random.default_rng(0))
    order = np.argsort(state.centers[:, 0])
    assert_allclose(state.centers[order, 0], [low, 10])
    assert_array_equal(state.weights[order], [10, 4])


def test_the_server_keeps_the_best_of_its_restarts() -> None:
    """Centres at the corners of a rectangle 3 by 2: the pairs of the short sides have inertia 4,
    those of the long sides 9 and are stable too. Some single run ends there, no best of ten.
    """
    corners = np.array([[0.0, 0.0], [0.0, 2.0], [3.0, 0.0], [3.0, 2.0]])

    def ends(n_init: int) -> set[float]:
        fkm = FKM(2, server_n_init=n_init)
        answers = [Summary(corners, np.ones(4))]
        states = [fkm.server_step(State(), answers, np.random.default_rng(s)) for s in range(200)]
        return {float(np.ptp(state.centers[:, 0])) for state in states}

    assert ends(1) == {0.0, 3.0}
    assert ends(10) == {3.0}


def test_the_first_answer_makes_the_first_aggregate() -> None:
    """Rows 0 2 8 10: round 1 is the aggregate of the seeds 0 and 8, round 2 of the means."""
    engine = LocalEngine([Client("site", Data(on_line(0, 2, 8, 10)))])
    fkm = FKM(2, client_init=first_rows, init_iterations=0)
    for rounds, centers in ((1, [0, 8]), (2, [1, 9])):
        state = run(fkm, engine, max_rounds=rounds).state
        assert state.round == rounds
        assert_allclose(np.sort(state.centers[:, 0]), centers)


def test_every_round_is_done_unless_a_tolerance_is_asked_for() -> None:
    """Rows 0 0 8 8 are clustered in the first round; the paper goes on, ``tol`` stops."""
    engine = LocalEngine([Client("site", Data(on_line(0, 0, 8, 8)))])
    assert run(FKM(2), engine, max_rounds=7).state.round == 7
    assert run(FKM(2, tol=1e-4), engine, max_rounds=7).state.round == 2


def test_too_few_centres_are_an_error_in_the_first_round_only() -> None:
    """Two centres for K = 3: no start. Later, nothing or too little changes nothing."""
    fkm, rng, few = FKM(3), np.random.default_rng(0), sent((0, 2), (1, 2))
    nothing = sent((0, 2)).keep(np.array([False]))
    for answers in ([few], [few, nothing]):
        with pytest.raises(ValueError, match=r"at least 3 centres .* first round and received 2"):
            fkm.server_step(State(), answers, rng)
    before = State(on_line(0, 5, 9), np.array([2.0, 3.0, 4.0]), round=4)
    for answers in ([few, nothing], [nothing, nothing]):
        after = fkm.server_step(before, answers, rng)
        assert_array_equal(after.centers, before.centers)
        assert_array_equal(after.weights, before.weights)
        assert after.round == 5


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("iterations", [1, 3, 100])
@pytest.mark.parametrize("empty", ["drop", "relocate"])
def test_a_local_update_is_that_of_the_authors_library(iterations, empty):
    """As scikit-learn's KMeans(len(C), init=C, n_init=1, max_iter=I), sizes from its labels."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, centers = rng.normal(size=(60, 2)), 2.0 * rng.normal(size=(10, 2))
        fkm = FKM(10, local_iterations=iterations, empty_clusters=empty)
        message = asked(fkm, centers, X)
        if empty == "drop":
            nearest = ((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
            centers = centers[np.unique(nearest)]
        theirs = KMeans(len(centers), init=centers, n_init=1, max_iter=iterations).fit(X)
        sizes = np.bincount(theirs.labels_, minlength=len(centers))
        some, ours = sizes > 0, message.weights > 0
        weights = message.weights[ours]
        found = np.column_stack([message.sums[ours] / weights[:, None], weights])
        expected = np.column_stack([theirs.cluster_centers_, sizes])[some]
        assert_allclose(in_order(found), in_order(expected), rtol=1e-12, atol=1e-14)


def test_a_seeding_of_one_s_own_is_given_a_whole_number_of_31_bits() -> None:
    """From the round's stream, as scikit-learn's functions take it."""
    seeds = Mock(side_effect=lambda X, k, random_state: X[:k])
    fkm = FKM(2, client_init=seeds, client_n_init=3)
    fkm.client_step(State(), Data(on_line(0, 5, 9)), np.random.default_rng(4))
    rng = np.random.default_rng(4)
    seen = [call.kwargs["random_state"] for call in seeds.call_args_list]
    assert seen == [int(rng.integers(2**31)) for _ in range(3)]


@pytest.mark.parametrize(("tol", "settled"), [(0.0, False), (0.05, False), (0.07, True)])
def test_settled_is_a_share_of_the_variance_of_the_centres_received(tol, settled):
    """Centres 0 and 8 of variance 16: from 1 and 8 they moved by 1, squared, in any order."""
    before = State(on_line(8, 1), np.ones(2), round=1)
    after = FKM(2, tol=tol).server_step(before, [sent((0, 5), (8, 5))], np.random.default_rng(0))
    assert after.converged == settled


def test_a_local_iteration_ends_where_little_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """By 1e-4 of the mean variance of a column at the site."""
    monkeypatch.setattr(fkm, "lloyd", asked := Mock(wraps=lloyd))
    rows = np.random.default_rng(0).normal(size=(30, 2)) * [1, 5]
    algorithm = FKM(3, local_iterations=4, init_iterations=2)
    for state in (State(), State.at(rows[:3])):
        algorithm.client_step(state, Data(rows), np.random.default_rng(0))
    first, later = (call.kwargs for call in asked.call_args_list)
    assert (first["max_iter"], first["empty"]) == (2, "relocate")
    assert (later["max_iter"], later["empty"]) == (4, "drop")
    tolerated = pytest.approx(1e-4 * rows.var(axis=0).mean(), rel=1e-12)
    assert (first["tol"], later["tol"]) == (tolerated, tolerated)
