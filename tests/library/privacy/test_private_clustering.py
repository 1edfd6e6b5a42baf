"""Private clustering: its steps by hand and by their sensitivity, its plan and its budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from test_laws import PRIVATE, asked

from fedcluster.algorithms import Lloyd, RelativeLloyd
from fedcluster.algorithms.private import BallScatter, BoxMoments, GridCells
from fedcluster.core import Answers, Data, Result, State, Summary, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.preprocessing import Preprocessor
from fedcluster.privacy.budget import Budget, rho_of
from fedcluster.recipes.private import Releases, fewest_rows, nearest_counts, private_clustering
from fedcluster.recipes.specifications import fit_of
from fedcluster.rounds import Plan, each_task, run_plan

STEPS: list[Any] = [*PRIVATE, RelativeLloyd()]
RNG = np.random.default_rng(0)


def step_name(step: Any) -> str:
    return type(step).__name__


def blobs(n: int, d: int, k: int, seed: int = 0) -> np.ndarray:
    """Rows in [-1, 1]^d about k corners of a smaller cube, well apart."""
    rng = np.random.default_rng(seed)
    signs = np.array([[1 if i >> j & 1 else -1 for j in range(d)] for i in range(k)])
    return np.clip(0.6 * signs[rng.integers(k, size=n)] + rng.normal(0, 0.06, (n, d)), -1, 1)


def answer(step: Any, state: State, X: np.ndarray) -> Summary:
    return step.client_step(state, Data(X), RNG)


def inertia(X: np.ndarray, centers: np.ndarray) -> float:
    return float(cdist(X, centers, "sqeuclidean").min(axis=1).sum())


# What one record changes


def rows_at_worst(rng: np.random.Generator, d: int) -> Iterator[np.ndarray]:
    """Corners of the box, its middle, and rows anywhere in it."""
    yield from (np.sign(rng.normal(size=d)) for _ in range(20))
    yield from rng.uniform(-1, 1, (20, d))
    yield np.zeros(d)


@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("step", STEPS, ids=step_name)
def test_no_record_changes_an_answer_more_than_is_declared(step: Any, d: int) -> None:
    """And some record nearly as much, so that there is no more noise than needed."""
    rng, most = np.random.default_rng(d), np.zeros(2)
    for draw in range(10):
        state = asked(step, rng.uniform(-1, 1, (3, d)) * 2.0**-draw)
        memory = {k: v * 0.1 if k == "radius" else v for k, v in state.memory.items()}
        state = State(state.centers, state.weights, memory=memory)
        X = rng.uniform(-1, 1, (30, d))
        before = answer(step, state, X)
        for row in rows_at_worst(rng, d):
            after = answer(step, state, np.vstack([X, row]))
            changed = after.sums - before.sums, after.weights - before.weights
            most = np.maximum(most, [np.linalg.norm(each) for each in changed])
    declared = step.sensitivity(state, d)
    assert most[0] <= declared.sums * (1 + 1e-9)
    assert most[1] <= declared.weights * (1 + 1e-9)
    assert most[0] >= declared.sums * 0.99
    assert most[1] >= declared.weights * 0.99


@pytest.mark.parametrize("step", STEPS, ids=step_name)
def test_sums_are_exact_so_that_rounding_adds_nothing_to_a_record(step: Any) -> None:
    """Rows on the grid of a box, in any order and in parts: the same bits."""
    X = np.trunc(RNG.uniform(-1, 1, (500, 3)) * 2**20) / 2**20
    state = asked(step, np.array([[0.1, 0.2, 0.3], [-0.5, 0.7, 0.1]]))
    whole, turned, one, rest = (answer(step, state, x) for x in (X, X[::-1], X[:123], X[123:]))
    for other in (turned, one + rest):
        assert other.sums.tobytes() == whole.sums.tobytes()
        assert other.weights.tobytes() == whole.weights.tobytes()


# The steps by hand


def test_moments_are_those_of_the_rows() -> None:
    X = RNG.uniform(-1, 1, (200, 3))
    found = answer(BoxMoments(), State(), X)
    np.testing.assert_allclose(found.sums[0], [*X.sum(0), *(X**2).sum(0)], atol=1e-3)
    assert found.weights == 200


def test_second_moments_are_those_of_the_rows_in_a_ball() -> None:
    X, middle = RNG.uniform(-1, 1, (200, 4)), np.full((1, 4), 0.1)
    for radius in (5.0, 0.7):
        state = State(middle, np.zeros(1), memory={"radius": np.array([radius])})
        y = X - 0.1
        y *= np.minimum(1, radius / np.linalg.norm(y, axis=1))[:, None]
        found = BallScatter.matrix(answer(BallScatter(), state, X)) * radius**2
        np.testing.assert_allclose(found, y.T @ y, atol=1e-2)


def grid(axes: np.ndarray, high: Any, bins: Any, radius: float, middle: float = 0.0) -> State:
    """A question about the cells of a grid about a middle."""
    memory = {"axes": axes, "low": -np.array(high), "high": np.array(high)}
    memory |= {"bins": np.array(bins, dtype=float), "radius": np.array([radius])}
    return State(np.full((1, axes.shape[1]), middle), np.zeros(1), memory=memory)


def test_a_grid_counts_as_a_histogram_does() -> None:
    X, state = RNG.normal(size=(300, 2)), grid(np.eye(2), [1.0, 2.0], [4, 3], 1.0, 0.5)
    found, (low, high) = answer(GridCells(), state, X), (state.memory[e] for e in ("low", "high"))
    inside = np.clip(X - 0.5, low + 1e-9, high - 1e-9)
    expected = np.histogramdd(inside, bins=(4, 3), range=[(-1.0, 1.0), (-2.0, 2.0)])[0]
    np.testing.assert_array_equal(found.weights.reshape(4, 3), expected)
    middles = GridCells.middles(state).reshape(4, 3, 2)
    np.testing.assert_allclose(middles[1, 2], [-0.25, 4 / 3])
    with pytest.raises(ValueError, match="at most 65,536 cells, not 90,000"):
        answer(GridCells(), grid(np.eye(2), [1.0, 1.0], [300, 300], 1.0), np.zeros((1, 2)))


def test_a_grid_with_sums_tells_the_means_of_its_cells() -> None:
    X, axes = RNG.uniform(-1, 1, (300, 5)), np.linalg.qr(RNG.normal(size=(5, 5)))[0][:3]
    found = answer(GridCells(means=True), grid(axes, np.ones(3), [2, 1, 2], 9.0), X)
    z = X @ axes.T
    cell = 2 * (z[:, 0] > 0) + (z[:, 2] > 0)
    for i in range(4):
        assert found.weights[i] == (cell == i).sum()
        np.testing.assert_allclose(found.sums[i] * 9.0, z[cell == i].sum(0), atol=1e-2)


def test_relative_updates_with_wide_radii_are_lloyds() -> None:
    X, step = blobs(400, 3, 4), RelativeLloyd()
    start = State.at(X[:4] + 0.01)
    wide = State(start.centers, start.weights, memory={"radius": np.full(4, 9.0)})
    ours = step.server_step(wide, [answer(step, wide, X)], RNG)
    lloyds = Lloyd().server_step(start, [answer(Lloyd(), start, X)], RNG)
    counted = ours.weights > 0.25 * len(X) / 4
    np.testing.assert_allclose(ours.centers[counted], lloyds.centers[counted], atol=1e-4)
    np.testing.assert_array_equal(ours.weights, lloyds.weights)


def test_relative_updates_tell_the_inertia_of_the_moved_centres() -> None:
    X, step = blobs(4000, 2, 4), RelativeLloyd()
    centers = np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]])
    state = State(centers, np.zeros(4), memory={"radius": np.full(4, 2.0)})
    after = step.server_step(state, [answer(step, state, X)], RNG)
    assert after.inertia == pytest.approx(inertia(X, after.centers), rel=1e-3)
    spread = np.sqrt(after.inertia / len(X))
    np.testing.assert_allclose(after.memory["radius"], 2.0 * spread, rtol=1e-6)


def test_no_noise_moves_a_centre_farther_than_its_radius() -> None:
    state = State.at([[0.0, 0.0], [1.0, 1.0]])
    wild = Summary(np.array([[1e6, 0.0, -5.0], [0.0, -1e6, 1e9]]), np.array([-50.0, 3.0]))
    after = RelativeLloyd().server_step(state, [wild], RNG)
    moved = np.linalg.norm(after.centers - state.centers, axis=1)
    np.testing.assert_allclose(moved, np.sqrt(2) / 2)
    assert (after.weights >= 0).all()
    assert after.inertia >= 0


# The plan


def test_nearest_counts_are_no_farther_than_any_others() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        noisy, total = rng.normal(0, 5, 30), rng.uniform(0.1, 40)
        found = nearest_counts(noisy, total)
        assert found.min() >= 0
        assert found.sum() == pytest.approx(total)
        others = rng.dirichlet(np.full(30, 0.2), 200) * total
        assert ((found - noisy) ** 2).sum() <= ((others - noisy) ** 2).sum(axis=1).min() + 1e-9


@pytest.mark.parametrize("n_rows", [None, 5e4, 1e9])
@pytest.mark.parametrize(("k", "d"), [(1, 1), (5, 2), (20, 3), (3, 4), (10, 4), (2, 50)])
@pytest.mark.parametrize("budget", [Budget(0.5, 1e-6), Budget(4.0, 1e-8, group_size=3)])
def test_the_answers_cost_the_budget_and_no_more(k, d, budget, n_rows):
    tasks: list[Task] = []

    def told(task: Task) -> Task:
        tasks.append(task)
        return task

    plan = private_clustering(fit_of(k), budget, n_rows=n_rows, n_columns=d)
    driven(each_task(plan, told), np.zeros((100, d)), 1e6)
    assert rho_of(task.noise for task in tasks) == pytest.approx(budget.rho, rel=1e-9)
    planned = Releases.planned(budget, k, d, n_rows=n_rows or 1e6 + 100)
    assert [task.noise for task in tasks] == list(planned.noises.values())
    [means] = [task.step.means for task in tasks if isinstance(task.step, GridCells)]
    assert means == (d > 3 and k > 4)  # cells along more than three axes are too wide


def test_more_rows_get_more_rounds_of_updates() -> None:
    budget = Budget(1.0, 1e-6)
    rounds = [
        sum("update" in name for name in Releases.planned(budget, 8, 5, n_rows=n_rows).noises)
        for n_rows in (0.0, 3e3, 1e4, 1e5, 1e9)
    ]
    assert rounds == sorted(rounds)
    assert (rounds[0], rounds[-1]) == (2, 8)


def driven(plan: Plan[Result], X: np.ndarray, more_rows: float = 0.0) -> Result:
    """Answer a plan exactly, as if there were more rows at the middle of the box."""
    answers: Any = None
    while True:
        try:
            [task] = plan.send(answers)
        except StopIteration as stop:
            return stop.value
        found = answer(task.step, task.state, X)
        weights = found.weights + more_rows * (found.weights > 0)
        answers = [Answers({"all": Summary(found.sums, weights)})]


def in_a_box(X: np.ndarray, **settings: Any) -> Result:
    """A private clustering of rows at four sites, with the sites' own noise."""
    names = [f"x{j}" for j in range(X.shape[1])]
    box = Preprocessor.in_box(names, [-1.0] * len(names), [1.0] * len(names))
    clients = [Client(f"site {i}", Data(X[i::4]), filters=()) for i in range(4)]

    def bounded(task: Task) -> Task:
        return Task(task.step, task.state, task.seed, box, noise=task.noise)

    plan = private_clustering(**settings, n_rows=len(X), n_columns=X.shape[1], n_noises=4)
    return run_plan(each_task(plan, bounded), LocalEngine(clients)).value


@pytest.mark.parametrize(("n", "d", "k"), [(4000, 2, 4), (6000, 6, 4), (20000, 6, 6)])
def test_private_centres_are_nearly_the_best(n: int, d: int, k: int) -> None:
    """In a plane, by a grid along two of six axes, and between hyperplanes."""
    X = blobs(n, d, k)
    result = in_a_box(X, fit=fit_of(k), budget=Budget(4.0, 1e-6))
    corners = [np.all((X > 0) == signs, axis=1) for signs in np.unique(X > 0, axis=0)]
    best = inertia(X, np.array([X[rows].mean(axis=0) for rows in corners]))
    assert inertia(X, result.state.centers) <= 1.1 * best
    assert (np.diff(result.state.weights) <= 0).all()
    assert abs(result.state.weights.sum() - n) < 0.05 * n
    if d > 2:  # in the plane, its noise is a third of it
        assert result.state.inertia == pytest.approx(best, rel=0.2)


def test_equal_noise_gives_equal_centres() -> None:
    X, budget = blobs(5000, 5, 7), Budget(1.0, 1e-6)
    plans = [private_clustering(fit_of(7), budget, n_rows=5000, n_columns=5) for _ in range(2)]
    assert len({driven(plan, X).state.centers.tobytes() for plan in plans}) == 1


def test_too_few_rows_are_refused_before_any_question() -> None:
    """Or after the first answer, where no number is public."""

    def plan(n_rows: float | None) -> Plan[Result]:
        return private_clustering(fit_of(8), Budget(0.1, 1e-6), n_rows=n_rows, n_columns=4)

    with pytest.raises(InputError, match=r"^500 rows are too few for 8 clusters with epsilon 0.1"):
        next(plan(500))
    [task] = next(plan(1e6))
    assert isinstance(task.step, BoxMoments)
    with pytest.raises(InputError, match="500 rows are too few"):
        driven(plan(None), blobs(500, 4, 8))


@pytest.mark.parametrize(
    ("k", "d", "budget", "n_noises"),
    [
        (9, 5, Budget(1, 1e-6), 1),
        (8, 6, Budget(1, 1e-6), 1),
        (8, 5, Budget(0.5, 1e-6), 1),
        (8, 5, Budget(1, 1e-9), 1),
        (8, 5, Budget(1, 1e-6, group_size=2), 1),
        (8, 5, Budget(1, 1e-6), 4),
    ],
)
def test_less_budget_and_more_noise_need_more_rows(k, d, budget, n_noises):
    assert fewest_rows(k, d, budget, n_noises) > fewest_rows(8, 5, Budget(1, 1e-6))
