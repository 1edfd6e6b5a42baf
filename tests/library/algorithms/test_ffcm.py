"""FFCM by hand, papers/algorithms.md, section 4; and exact federated fuzzy c-means."""

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from partitions import on_line

from fedcluster import Client, Data, LocalEngine, State, Summary, run
from fedcluster.algorithms import FFCM, Lloyd, _ffcm
from fedcluster.errors import HeldBackError
from fedcluster.kernels import memberships
from fedcluster.kernels.fuzzy import fuzzy_cmeans

FUZZIFIERS = [1.1, 2.0, 1.5, 3.0]
SUPPORTS: tuple[Any, ...] = ("u^m", "u")
VARIANTS = {
    f"{averaging} {local} {support} m={m}": FFCM(m, averaging, local, support)
    for averaging in ("avg_1", "avg_2")
    for local in ("step", "converge")
    for support in SUPPORTS
    for m in (1.0, 1.5, 2.0)
} | {"avg_2 reseeded": FFCM(2.0, "avg_2", "converge", "u", reseed=True)}
every_variant = pytest.mark.parametrize("ffcm", VARIANTS.values(), ids=VARIANTS.keys())


def engine(*sites: np.ndarray) -> LocalEngine:
    return LocalEngine(Client(f"s{i:02}", Data(X), ()) for i, X in enumerate(sites))


def asked(ffcm: FFCM, centers: np.ndarray, rows: np.ndarray) -> Summary:
    """One site's answer."""
    return ffcm.client_step(State.at(centers), Data(rows), np.random.default_rng(0))


def centers_of(message: Summary) -> np.ndarray:
    """The centres on a line that a message says something about."""
    some = message.weights > 0
    return message.sums[some, 0] / message.weights[some]


def sent(*centers_and_supports: tuple[float, float]) -> Summary:
    """A message of centres on a line, with their supports and no errors."""
    centers, supports = np.array(centers_and_supports, dtype=float).T
    return Summary(np.column_stack([centers * supports, 0 * supports]), supports)


def merged(ffcm: FFCM, state: State, *messages: Summary, seed: int = 0) -> State:
    return ffcm.server_step(state, messages, np.random.default_rng(seed))


def plain_cmeans(X, w, centers, m, rounds):
    """Bezdek's alternation on pooled rows, none of which is on a centre."""
    for _ in range(rounds):
        squared = np.square(X[:, None] - centers).sum(axis=2)
        u = (squared.min(axis=1, keepdims=True) / squared) ** (1 / (m - 1))
        v = w[:, None] * (u / u.sum(axis=1, keepdims=True)) ** m
        centers = v.T @ X / v.sum(axis=0)[:, None]
    return centers


def clouds(rng: np.random.Generator, n: int, k: int, d: int) -> np.ndarray:
    return 4 * rng.normal(size=(k, d))[rng.integers(0, k, n)] + rng.normal(size=(n, d))


@pytest.mark.parametrize("m", FUZZIFIERS)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 5),
    d=st.integers(1, 3),
    n_sites=st.integers(1, 12),
    offset=st.sampled_from([0.0, 1e3]),
)
def test_exact_steps_are_central_over_any_partition(m, seed, k, d, n_sites, offset):
    """After 25 rounds, weights and all, within 1e-12 of the largest coordinate."""
    rng = np.random.default_rng(seed)
    X, weight = clouds(rng, 60, k, d) + offset, rng.integers(1, 4, 60).astype(float)
    start = X[rng.choice(60, k, replace=False)] + 0.01 * rng.normal(size=(k, d))
    site = rng.integers(0, n_sites, 60)
    sites = LocalEngine(
        Client(f"s{i:02}", Data(X[site == i], weight[site == i]), ()) for i in np.unique(site)
    )
    ours = run(FFCM(m, tol=0), sites, State.at(start), max_rounds=25).state
    central = plain_cmeans(X, weight, start, m, ours.round)
    assert_allclose(ours.centers, central, rtol=0, atol=1e-12 * np.abs(X).max())


def test_the_objective_falls_in_every_round() -> None:
    """J_m of the centres that a round was asked about, and at last that of central memberships."""
    X = clouds(np.random.default_rng(3), 100, 3, 2)
    result = run(FFCM(), engine(X[:20], X[20:]), State.at(X[:3]))
    J = [round_.inertia for round_ in result.history]
    assert (np.diff(J) <= 1e-9).all()
    u = memberships(X, result.state.centers, 2.0)
    now = (u**2 * np.square(X[:, None] - result.state.centers).sum(axis=2)).sum()
    assert J[-1] == pytest.approx(now, rel=1e-6)


def test_a_step_by_hand() -> None:
    """Rows 0 1 4, centres 0 and 4, m = 2: the row 1 has u = 0.9 and 0.1. Sums of u^2 are 1.81 and
    1.01, means 0.81 / 1.81 and 4.01 / 1.01, and J_m is 0.81 and 0.01 times 9.
    """
    message, by_u = (
        asked(FFCM(support=support), on_line(0, 4), on_line(0, 1, 4)) for support in SUPPORTS
    )
    assert_allclose(message.weights, [1.81, 1.01])
    assert_allclose(message.sums, [[0.81, 0.81], [4.01, 0.09]])
    assert_allclose(message.rows, [1.9, 1.1])
    assert_allclose(by_u.weights, [1.9, 1.1])  # the same centres weigh otherwise
    assert_allclose(centers_of(by_u), centers_of(message))


@pytest.mark.parametrize("support", SUPPORTS)
def test_to_converge_is_the_site_s_own_fuzzy_c_means(support: Any) -> None:
    """The supports belong to the centres that it ends at."""
    rows, start = on_line(0, 1, 2, 9, 10, 11), on_line(0, 1)
    message = asked(FFCM(local="converge", support=support), start, rows)
    centers = fuzzy_cmeans(rows, start, 2.0).centers
    u = memberships(rows, centers, 2.0)
    assert_allclose(centers_of(message), centers.ravel(), rtol=1e-12)
    assert_allclose(np.sort(centers.ravel()), [1, 10], atol=0.05)
    assert_allclose(message.weights, (u if support == "u" else u**2).sum(axis=0), rtol=1e-12)


@every_variant
@pytest.mark.parametrize(
    ("rows", "start"),
    [
        ([[0, 0, 0, 5], [5, 5, 9]], [0, 5, 5]),  # on centres, and two of these on one row
        ([[0], [0, 1, 5, 6, 9, 10]], [0.2, 5.3, 9.6]),
        ([[0, 5], [0, 1, 5, 6, 9, 10]], [0.2, 5.3, 9.6]),
    ],
)
def test_rows_may_coincide_with_centres_or_be_fewer(ffcm: FFCM, rows: Any, start: Any) -> None:
    """No division of 0 by 0; means stay within the rows but for rounding."""
    sites = engine(*(on_line(*X) for X in rows))
    centers = run(ffcm, sites, State.at(on_line(*start)), max_rounds=5).state.centers
    assert np.isfinite(centers).all()
    assert ((centers >= -1e-12) & (centers <= max(rows[-1]) + 1e-12)).all()


def test_avg_1_is_the_mean_by_position() -> None:
    """0 of support 3 and 4 of support 1 meet at 1; a centre of no support stays at 7."""
    for state in (State.at(on_line(5, 7)), State(on_line(5, 7), np.ones(2), round=3)):
        state = merged(FFCM(), state, sent((0, 3), (0, 0)), sent((4, 1), (0, 0)))
        assert_allclose(state.centers, [[1], [7]])
        assert_array_equal(state.weights, [4, 0])


@pytest.mark.parametrize(("weighted", "low", "high"), [(False, 1, 11), (True, 0.5, 10.5)])
def test_avg_2_clusters_the_sites_centres_whatever_their_positions(weighted, low, high):
    """0 and 2, of supports 3 and 1, come in other positions at the second site. The weight of a
    centre is the support behind it, not at its position.
    """
    ffcm = FFCM(averaging="avg_2", weighted=weighted)
    state = merged(ffcm, State.at(on_line(50, 60)), sent((0, 3), (10, 6)), sent((12, 2), (2, 1)))
    order = np.argsort(state.centers[:, 0])
    assert_allclose(state.centers[order], [[low], [high]])
    assert_array_equal(state.weights[order], [4, 8])


CORNERS = np.array([[0.0, 0.0], [0.0, 2.0], [3.0, 0.0], [3.0, 2.0]])


def test_avg_2_starts_anew_in_the_first_round_and_at_the_old_centres_later() -> None:
    """Corners of a rectangle 3 by 2. From its long sides' middles k-means stays there; the best
    of ten starts is at the short sides'.
    """
    message = Summary(np.column_stack([CORNERS, np.zeros(4)]), np.ones(4))
    ffcm, long_sides = FFCM(averaging="avg_2"), np.array([[1.5, 0.0], [1.5, 2.0]])
    first = merged(ffcm, State.at(long_sides), message).centers
    later = merged(ffcm, State(long_sides, np.ones(2), round=1), message).centers
    assert_allclose(first[np.argsort(first[:, 0])], [[0, 1], [3, 1]])
    assert_allclose(later, long_sides)


@pytest.mark.parametrize(
    ("before", "centers", "weights"),
    [
        ([[9, 0], [-5, 0]], [[3, 1], [0, 1]], [7, 3]),
        ([[9, 0], [7, 0]], [[3, 1], [3, 1]], [3.5, 3.5]),  # one is the nearest to both
        ([[1.6, 0], [1.6, 2]], [[3, 1], [3, 1]], [3.5, 3.5]),  # where k-means would stay
    ],
)
def test_avg_2_reseeded_starts_anew_in_every_round_and_keeps_the_order(before, centers, weights):
    """The short sides' middles, from the long sides' whatever the seed; in the order of the
    centres before, of which the nearest new one replaces each.
    """
    supports = np.array([1.0, 2.0, 3.0, 4.0])
    message = Summary(np.column_stack([CORNERS * supports[:, None], np.zeros(4)]), supports)
    state = State(np.array(before, float), np.ones(2), round=1)
    ffcm = FFCM(averaging="avg_2", reseed=True)
    for seed in range(5):
        found = merged(ffcm, state, message, seed=seed)
        assert_allclose(found.centers, centers)
        assert_array_equal(found.weights, weights)


def test_the_text_and_the_program_of_2021() -> None:
    assert FFCM.paper(1.5, "avg_2") == FFCM(1.5, "avg_2", relative=False)
    program: dict[str, Any] = {"local": "converge", "support": "u", "relative": False}
    assert FFCM.program_2021(1.5) == FFCM(1.5, **program)
    assert FFCM.program_2021(1.5, "avg_2") == FFCM(1.5, "avg_2", reseed=True, **program)


def test_avg_2_of_too_few_centres() -> None:
    """An error in the first round; later nothing changes, and that is no convergence."""
    ffcm, start, few = FFCM(averaging="avg_2"), on_line(0, 5, 9), sent((0, 2), (1, 2), (0, 0))
    with pytest.raises(HeldBackError, match=r"at least 3 centres .* first round and received 2"):
        merged(ffcm, State.at(start), few)
    later = merged(ffcm, State(start, np.ones(3), round=4), few)
    assert_array_equal(later.centers, start)
    assert (later.round, later.converged) == (5, False)


@pytest.mark.parametrize("averaging", ["avg_1", "avg_2"])
def test_nothing_received_is_no_convergence(averaging: Any) -> None:
    state = State(on_line(0, 5), np.ones(2), round=4)
    state = merged(FFCM(averaging=averaging), state, sent((0, 0), (0, 0)))
    assert_array_equal(state.centers, on_line(0, 5))
    assert not state.converged


def test_eps_is_a_distance_or_a_share_of_the_rows_deviation() -> None:
    """From 0 and 8 to 0.3 and 8.4 is 0.5 in all. Twenty rows of J_m 80 - 20 * 4^2 / 20 = 64
    around 0.3 and 8.4, with 4.05^2 between these and their middle: a deviation of 4.49.
    """
    state = State.at(on_line(0, 8))
    message = Summary(np.array([[3.0, 40.0], [84.0, 24.0]]), np.array([10.0, 10.0]))
    deviation = np.sqrt(64 / 20 + 4.05**2)
    for tol, stops in ((0.51, True), (0.49, False)):
        assert merged(FFCM(tol=tol, relative=False), state, message).converged == stops
        assert merged(FFCM(tol=tol / deviation), state, message).converged == stops


@every_variant
def test_a_run_does_not_depend_on_the_unit_of_the_rows(ffcm: FFCM) -> None:
    """Nor on their origin: as many rounds, and the same centres, from a start far from them."""
    rng = np.random.default_rng(0)
    X, start = clouds(rng, 90, 3, 2), rng.uniform(size=(3, 2)) - 8

    def end(unit: float, at: float) -> State:
        sites = engine(*np.split(unit * (X + at), 3))
        return run(ffcm, sites, State.at(unit * (start + at)), seed=1).state

    plain, stretched, moved = end(1.0, 0.0), end(1024.0, 0.0), end(1.0, 4096.0)
    assert plain.converged
    assert plain.round == stretched.round == moved.round
    assert_allclose(stretched.centers / 1024, plain.centers, atol=1e-8)
    assert_allclose(moved.centers - 4096, plain.centers, atol=1e-8)


@every_variant
def test_a_run_that_has_converged_would_not_move_on(ffcm: FFCM) -> None:
    X = clouds(np.random.default_rng(5), 90, 3, 2)
    sites = engine(*np.split(X, 3))
    end = run(ffcm, sites, State.at(X[:3])).state
    assert end.converged
    after = run(ffcm, sites, end, max_rounds=1).state
    assert np.linalg.norm(after.centers - end.centers) <= 2 * ffcm.tol * X.std(axis=0).mean()


def test_with_m_1_and_avg_1_a_step_is_lloyd() -> None:
    X = clouds(np.random.default_rng(1), 60, 3, 2)
    sites, start = engine(X[:10], X[10:]), State.at(X[:3])
    for rounds in range(1, 5):
        ours = run(FFCM(m=1.0, tol=-1), sites, start, max_rounds=rounds).state
        exact = run(Lloyd(tol=-1), sites, start, max_rounds=rounds).state
        assert_allclose(ours.centers, exact.centers, rtol=1e-14)
        assert_allclose(ours.inertia, exact.inertia)


@pytest.mark.parametrize("support", SUPPORTS)
def test_with_m_1_to_converge_is_the_site_s_own_k_means(support: Any) -> None:
    """As Kumar et al.: means of the sites' k-means by their numbers of rows. Rows 0 1 9 10 11 from
    0 and 1 end at 0.5 of 2 and 10 of 3; rows 0 20 at themselves.
    """
    ffcm = FFCM(m=1.0, local="converge", support=support)
    message = asked(ffcm, on_line(0, 1), on_line(0, 1, 9, 10, 11))
    assert_allclose(centers_of(message), [0.5, 10])
    assert_array_equal(message.weights, [2, 3])
    other = asked(ffcm, on_line(0, 1), on_line(0, 20))
    state = merged(ffcm, State.at(on_line(0, 1)), message, other)
    assert_allclose(state.centers, [[1 / 3], [50 / 4]])


@pytest.mark.parametrize("m", [0.9, 0.0, float("nan")])
def test_a_fuzzifier_below_1_is_refused(m: float) -> None:
    with pytest.raises(ValueError, match=r"at least 1 \(hard\), not"):
        FFCM(m)


def test_the_limits_of_what_runs_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 iterations at a site and 500 at the server, or until little moves."""
    asked = Mock()
    for name in ("fuzzy_cmeans", "lloyd", "kmeans"):
        asked.attach_mock(Mock(wraps=getattr(_ffcm, name)), name)
        monkeypatch.setattr(_ffcm, name, getattr(asked, name))
    rows = np.random.default_rng(0).normal(size=(40, 2)) * [1, 5]
    for m, at_site, tolerated in (
        (2.0, "fuzzy_cmeans", 1e-3),
        (1.0, "lloyd", 1e-3 * rows.var(axis=0).mean()),
    ):
        ffcm = FFCM(m, local="converge", averaging="avg_2", local_tol=1e-3)
        answer = ffcm.client_step(State.at(rows[:3]), Data(rows), np.random.default_rng(0))
        state = merged(ffcm, State.at(rows[:3]), answer)
        merged(ffcm, state, answer)
        (local, _, of_site), (first, _, start), (later, _, of_server) = asked.mock_calls[-3:]
        assert (local, first, later) == (at_site, "kmeans", "lloyd")
        assert of_site["max_iter"] == 1000
        assert of_site["tol"] == pytest.approx(tolerated, rel=1e-12)
        assert start["max_iter"] == of_server["max_iter"] == 500
        received = answer.sums[:, :2] / answer.weights[:, None]
        assert of_server["tol"] == pytest.approx(1e-4 * received.var(axis=0).mean(), rel=1e-9)
        assert of_server["empty"] == "relocate"
