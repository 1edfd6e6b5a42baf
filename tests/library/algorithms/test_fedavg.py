"""Federated averaging by hand: papers/algorithms.md, section 3, one fact a test."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from partitions import on_line

from fedcluster import Client, Data, LocalEngine, State, Summary, run
from fedcluster.algorithms import FedAvg, Lloyd
from fedcluster.core.task import stream

RNG = np.random.default_rng(0)


def asked(fedavg: FedAvg, centers: np.ndarray, rows: np.ndarray, seed: int = 0) -> Summary:
    """One site's answer."""
    return fedavg.client_step(State.at(centers), Data(rows), np.random.default_rng(seed))


def centers_of(message: Summary) -> np.ndarray:
    """The centres on a line that a message says something about."""
    some = message.weights > 0
    return message.sums[some, 0] / message.weights[some]


def sent(*centers_and_sizes: tuple[float, float]) -> Summary:
    """A message of centres on a line, with their sizes."""
    centers, sizes = np.array(centers_and_sizes, dtype=float).T
    return Summary((centers * sizes)[:, None], sizes)


def after(fedavg: FedAvg, state: State, *rounds: Summary, seed: int = 0) -> State:
    """The state after rounds in which one site sends these messages."""
    rng = np.random.default_rng(seed)
    for message in rounds:
        state = fedavg.server_step(state, [message], rng)
    return state


def test_the_counts_are_those_of_the_last_epoch() -> None:
    """Of the rows 0 4 5 20, the centre 0 has only 0 and 7 the rest: 0 and 29/3, of 1 and 3 rows.
    In the second epoch 4 is nearer to 0: 2 and 12.5, of 2 and 2; not of 3 and 5 in all.
    """
    for epochs, means, sizes in ((1, [0, 29 / 3], [1, 3]), (2, [2, 12.5], [2, 2])):
        message = asked(FedAvg(epochs=epochs), on_line(0, 7), on_line(0, 4, 5, 20))
        assert_allclose(centers_of(message), means)
        assert_array_equal(message.weights, sizes)


def test_batches_are_drawn_at_random_and_weigh_less_as_an_epoch_goes_on() -> None:
    """Rows 0 2 6 10, B = 2, beta = 1/2, the centre 0. After a batch of mean G it is G / 2, after
    the other, of mean 9 - G: G / 2 + 1/4 (9 - G - G / 2) = 9 / 4 + G / 8. The mean G of a pair is
    1, 3, 5, 4, 6 or 8, each as likely.
    """
    fedavg, rows = FedAvg(batch_size=2, client_rate=0.5), on_line(0, 2, 6, 10)
    ends = [centers_of(asked(fedavg, on_line(0), rows, seed))[0] for seed in range(300)]
    values, times = np.unique(np.round(ends, 12), return_counts=True)
    assert_allclose(values, [9 / 4 + G / 8 for G in (1, 3, 4, 5, 6, 8)])
    assert times.min() > 50 - 4 * np.sqrt(300 * (1 / 6) * (5 / 6))


def test_batches_stay_and_their_order_changes_from_epoch_to_epoch() -> None:
    """As above in two epochs, with the rows 0 0 8 8 and so batch means 0 and 8 or 4 and 4. An
    epoch takes c to c / 2 + G / 2 and on to 3/8 c + 3/8 G + 1/4 G': with G, G' = 4 to
    3/8 c + 5/2, with 0, 8 to 3/8 c + 2 and with 8, 0 to 3/8 c + 3.
    """
    fedavg = FedAvg(epochs=2, batch_size=2, client_rate=0.5)
    ends = {centers_of(asked(fedavg, on_line(0), on_line(0, 0, 8, 8), s))[0] for s in range(200)}
    same = 3 / 8 * 5 / 2 + 5 / 2
    assert ends == {same, *(3 / 8 * first + second for first in (2, 3) for second in (2, 3))}


def test_a_server_step_by_hand() -> None:
    """2 of size 3 and 6 of size 1 meet at 3: from 1, half of the way is 2; 7 is used by nobody."""
    messages = [sent((2, 3), (9, 0)), sent((6, 1), (9, 0))]
    state = FedAvg(server_rate=0.5).server_step(State.at(on_line(1, 7)), messages, RNG)
    assert_allclose(state.centers, [[2], [7]])
    assert_array_equal(state.weights, [4, 0])
    assert state.round == 1


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("inverse", {1: 1, 11: 2 / 3, 21: 1 / 2, 31: 2 / 5}),
        ("halving", {1: 1, 51: 1 / 2, 101: 1 / 4}),
        ("root", {1: 1, 4: 1 / 2, 100: 1 / 10}),
        ("constant", {1: 1, 200: 1}),
        (lambda t: 0.5 ** ((t - 1) / 50), {1: 1, 51: 1 / 2, 101: 1 / 4}),
    ],
    ids=["inverse", "halving", "root", "constant", "callable"],
)
def test_the_server_s_rate_follows_its_schedule(schedule, rates: dict[int, float]) -> None:
    """From 0 towards 1 in round t."""
    fedavg = FedAvg(schedule=schedule, server_rate=0.5)
    for t, rate in rates.items():
        before = State(on_line(0), np.ones(1), round=t - 1)
        assert_allclose(after(fedavg, before, sent((1, 5))).centers, [[rate / 2]])


@pytest.mark.parametrize("sizes", [(150, 1), (150, 0)])
def test_a_cluster_small_for_20_rounds_gets_a_new_place(sizes: tuple[int, int]) -> None:
    """1 is less than 1 % of the 151 rows of this round's sites."""
    message = sent((2, sizes[0]), (9, sizes[1]))
    start = State.at(on_line(2, 9))
    assert_allclose(after(FedAvg(), start, *[message] * 19).centers, [[2], [9]])
    for seed in range(5):
        state = after(FedAvg(), start, *[message] * 20, seed=seed)
        assert state.centers[0] == 2
        assert 0 <= state.centers[1] < 3


@pytest.mark.parametrize(
    ("fedavg", "size", "moves"),
    [
        (FedAvg(), 1, False),  # 1 of 100 rows is not below 1 % of 100, the program's rule
        (FedAvg(total_rows=1000), 9, True),  # of 1000 in all, the paper's, it is
        (FedAvg(total_rows=1000), 1, True),
        (FedAvg(total_rows=1000), 10, False),
        (FedAvg(reassign_share=0), 0, False),
    ],
)
def test_small_is_below_a_share_of_this_round_s_rows_or_of_all(fedavg, size, moves):
    state = after(fedavg, State.at(on_line(2, 9)), *[sent((2, 100 - size), (9, size))] * 20)
    assert (state.centers[1] != 9) == moves
    assert state.centers[0] == 2


def test_the_rounds_must_follow_each_other() -> None:
    """After a round in which the cluster is not small they count anew, as after a new place."""
    fedavg, small, large = FedAvg(), sent((2, 150), (9, 0)), sent((2, 150), (9, 2))
    state = after(fedavg, State.at(on_line(2, 9)), *[small] * 19, large, *[small] * 19)
    assert_allclose(state.centers, [[2], [9]])
    moved = after(fedavg, state, small)
    assert moved.centers[1] != 9
    assert_array_equal(after(fedavg, moved, *[small] * 19).centers, moved.centers)
    assert after(fedavg, moved, *[small] * 20, seed=1).centers[1] != moved.centers[1]


def test_a_centre_in_a_new_place_has_lost_its_momentum() -> None:
    """The cluster of one row in 151 moves towards 9 in the first round and away in the second. In
    the third nothing is nearest to it: it stays.
    """
    fedavg = FedAvg(momentum=0.5, reassign_after=2)
    small = sent((2, 150), (9, 1))
    before = after(fedavg, State.at(on_line(2, 7)), small)
    assert before.memory["velocity"][1] == 1
    moved = after(fedavg, before, small)
    later = after(fedavg, moved, sent((2, 150), (9, 0)))
    assert moved.centers[1] != before.centers[1]
    assert_array_equal(later.centers[1], moved.centers[1])


@pytest.mark.parametrize(("box", "low", "high"), [({}, 0, 3), ({"low": -4, "high": -2}, -4, -2)])
def test_new_places_are_uniform_in_the_box(box, low, high):
    """[0, k + 1)^d by default; 1000 numbers have their mean within 4 standard errors."""
    message = Summary(np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([1.0, 0.0]))
    start, fedavg = State.at([[1.0, 1.0], [50.0, 50.0]]), FedAvg(reassign_after=1, **box)
    places = np.array([after(fedavg, start, message, seed=s).centers[1] for s in range(500)])
    assert (places >= low).all()
    assert (places < high).all()
    error = (high - low) / np.sqrt(12 * places.size)
    assert abs(places.mean() - (low + high) / 2) < 4 * error
    assert places.min() < low + 0.05 * (high - low)
    assert places.max() > high - 0.05 * (high - low)


def line_of_sites(n_sites: int, seed: int) -> dict[str, np.ndarray]:
    """Ten rows a site around one of 1, 2, 3."""
    rng = np.random.default_rng(seed)
    return {f"s{i:02}": rng.normal(i % 3 + 1, 0.2, (10, 1)) for i in range(n_sites)}


def engine(sites: dict[str, np.ndarray]) -> LocalEngine:
    return LocalEngine(Client(name, Data(X)) for name, X in sites.items())


@pytest.mark.parametrize(("fraction", "sites"), [(0.03, 1), (0.1, 5), (0.3, 15), (1, 50)])
def test_a_fraction_of_the_sites_takes_part(fraction: float, sites: int) -> None:
    """m = max(int(C M), 1) of M = 50, without repetition and others in each round."""
    asked_sites = engine(line_of_sites(50, 0))
    start = FedAvg().random_start(3, 1, 0)
    result = run(FedAvg(), asked_sites, start, max_rounds=8, participation=fraction)
    took_part = [round_.answered for round_ in result.history]
    assert [len(set(names)) for names in took_part] == [sites] * 8
    assert (len(set(took_part)) == 1) == (fraction == 1)


def test_over_all_sites_it_is_lloyd() -> None:
    """One epoch, C = alpha = beta = 1: the same centres after each round."""
    rows = engine(line_of_sites(12, 1))
    start = State.at(on_line(0.5, 1.2, 3.3))
    for rounds in range(1, 6):
        ours = run(FedAvg(schedule="constant"), rows, start, max_rounds=rounds).state
        lloyd = run(Lloyd(tol=-1), rows, start, max_rounds=rounds).state
        assert_allclose(ours.centers, lloyd.centers, rtol=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_a_run_is_that_of_plain_numpy(seed: int) -> None:
    """30 rounds with everything but batches and new places, by the paper's formulas."""
    sites = line_of_sites(20, seed)
    fedavg = FedAvg(epochs=3, client_rate=0.3, server_rate=0.9, momentum=0.4, reassign_share=0)
    start = fedavg.random_start(3, 1, seed)
    result = run(fedavg, engine(sites), start, seed=seed, max_rounds=30, participation=0.3)
    gamma, velocity = start.centers.ravel(), np.zeros(3)
    for round_ in result.history:
        sums, sizes = np.zeros(3), np.zeros(3)
        for name in round_.answered:
            mu, x = gamma.copy(), sites[name].ravel()
            for _ in range(3):
                nearest = np.abs(x[:, None] - mu).argmin(axis=1)
                for k in set(nearest.tolist()):
                    mu[k] += 0.3 * (x[nearest == k].mean() - mu[k])
            size = np.bincount(nearest, minlength=3)
            sums, sizes = sums + size * mu, sizes + size
        alpha = 0.9 / (1 + 0.5 * (round_.round - 1) / 10)
        target = np.where(sizes > 0, sums / np.maximum(sizes, 1), gamma)
        velocity = 0.4 * velocity + 0.6 * alpha * (target - gamma)
        gamma = gamma + velocity
    assert_allclose(result.state.centers.ravel(), gamma, rtol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"epochs": 0}, "epochs and batch_size must be at least 1, not 0 and None"),
        ({"batch_size": 0}, "epochs and batch_size must be at least 1, not 1 and 0"),
        ({"schedule": "linear"}, "halving, root, constant or a callable, not 'linear'"),
    ],
)
def test_impossible_parameters_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        FedAvg(**wrong)


def test_a_random_start_is_drawn_from_a_stream_of_its_own() -> None:
    """From 0 to k + 1 in each column."""
    start = FedAvg().random_start(3, 2, seed=5)
    expected = stream(5, 0, "Gamma_0").uniform(0, 4, size=(3, 2))
    assert_array_equal(start.centers, expected)
    assert_array_equal(start.weights, np.zeros(3))
    bounded = FedAvg(low=-2, high=7).random_start(3, 2, seed=5).centers
    assert_allclose(bounded, expected / 4 * 9 - 2)
