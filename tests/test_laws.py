"""The laws of addition, for every step and algorithm: one row of a table each."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partitions import Case, cases

from fedcluster._random import stream
from fedcluster.algorithms import FFCM, FKM, FedAvg, KFed, Lloyd, SiteSummaries, VarianceTree
from fedcluster.algorithms._breathing import ErrorAndUtility
from fedcluster.client import Client
from fedcluster.core import (
    ALGORITHM_DECLARES,
    STEP_DECLARES,
    Algorithm,
    Data,
    State,
    Step,
    Summary,
    Task,
    check_step,
)
from fedcluster.engines import _wire as wire
from fedcluster.errors import HeldBackError
from fedcluster.metrics import (
    ColumnSpread,
    Contingency,
    FuzzyObjective,
    FuzzyScatter,
    Inertia,
    MixtureLikelihood,
    Moments,
    Scatter,
    SimplifiedSilhouette,
    SiteARI,
    Spread,
    SquaredSilhouette,
)
from fedcluster.preprocessing import Covariance, Histogram, Means, Missing, Squares

ALGORITHMS: list[Algorithm] = [
    Lloyd(),
    FKM(2),
    KFed(2),
    FedAvg(epochs=2, batch_size=5, client_rate=0.5),
    FFCM(),
    FFCM(m=1.0),
    FFCM(m=1.5, averaging="avg_2", local="converge", support="u"),
    SiteSummaries(4),
    VarianceTree(4),
]
METRICS: list[Step] = [
    Inertia(),
    FuzzyObjective(1.5),
    Scatter(),
    Spread(),
    SimplifiedSilhouette(),
    SquaredSilhouette(),
    FuzzyScatter(1.5),
    ColumnSpread(),
    MixtureLikelihood(),
    Moments(),
    Contingency.from_classes(range(3)),
    Contingency.from_classes(range(2), complete=False),
    SiteARI(),
]
PREPARATION: list[Step] = [Missing(), Means(), Squares(), Histogram(), Covariance()]
STEPS: list[Step] = [*ALGORITHMS, ErrorAndUtility(), *METRICS, *PREPARATION]


KNOWN = wire.steps_by_name(f"fedcluster.preprocessing.{type(s).__name__}" for s in PREPARATION)


def by_name(steps: Sequence[Step]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("step", steps, ids=lambda step: type(step).__name__)


def asked(step: Step, centers: np.ndarray) -> State:
    """A state that the step may be asked about; a tree grows its own."""
    if isinstance(step, Histogram):
        edges = np.sort(np.append(centers[:, 0], [-np.inf, np.inf]))
        return State(memory={"columns": np.zeros(1), "edges": edges[None, :]})
    if isinstance(step, VarianceTree):
        return State()
    if isinstance(
        step, Spread | SquaredSilhouette | MixtureLikelihood
    ):  # what a first round tells of the clusters
        k = len(centers)
        memory = {"means": centers + 0.5, "variances": np.arange(float(k))}
        if isinstance(step, MixtureLikelihood):
            memory = {"means": centers + 0.5, "columns": np.arange(1.0, centers.shape[1] + 1)}
        return State(centers, np.arange(1.0, k + 1), memory=memory)
    return State.at(centers)


def answer(step: Step, state: State, data: Data, site: str = "s") -> Summary:
    return step.client_step(state, data.weighed(), stream(0, state.round, site))


def assert_close(a: Summary, b: Summary) -> None:
    scale = 1.0 + np.abs(a.sums).max(initial=0.0)
    np.testing.assert_allclose(a.sums, b.sums, rtol=1e-11, atol=1e-11 * scale)
    np.testing.assert_allclose(a.weights, b.weights, rtol=1e-11)
    np.testing.assert_allclose(a.rows, b.rows, rtol=1e-11)


@by_name([step for step in STEPS if step.client_additive])
@given(case=cases())
def test_client_additive(step: Step, case: Case) -> None:
    """The answers of the parts add up to the answer of the whole."""
    state = asked(step, case.centers)
    parts = [answer(step, state, part) for part in case.parts.values()]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert_close(total, answer(step, state, case.pooled))


@by_name([algorithm for algorithm in ALGORITHMS if algorithm.server_additive])
@given(case=cases())
def test_server_additive(step: Algorithm, case: Case) -> None:
    """The server makes the same state of all answers and of their sum."""
    state = asked(step, case.centers)
    answers = [answer(step, state, part) for part in case.parts.values()]
    total = answers[0]
    for part in answers[1:]:
        total = total + part
    apart, summed = (step.server_step(state, a, stream(0, 0)) for a in (answers, [total]))
    np.testing.assert_array_equal(apart.centers, summed.centers)
    np.testing.assert_array_equal(apart.weights, summed.weights)


@by_name(STEPS)
@given(case=cases())
def test_an_answer_has_the_shape_that_its_step_declares(step: Step, case: Case) -> None:
    """Sums of any part of the rows; where any number of lines is right, the width alone."""
    state = asked(step, case.centers)
    lines, width = step.answer_shape(state, case.X.shape[1])
    for part in [case.pooled, *case.parts.values()]:
        sums = answer(step, state, part).sums
        assert sums.shape == (len(sums) if lines is None else lines, width)
    added = step.client_additive or step.server_additive
    assert added <= (lines is not None), "answers of several shapes do not add up"


@by_name(ALGORITHMS)
def test_an_algorithm_declares_what_it_needs(step: Algorithm) -> None:
    check_step(step, ALGORITHM_DECLARES)
    check_step(type(step), ALGORITHM_DECLARES)
    assert step.needs_centers in (True, False)
    assert step.min_cluster_size >= 1
    check_step(step.objective(), [*STEP_DECLARES, "maximise", "score"])
    with pytest.raises(TypeError, match=r"^Inertia lacks needs_centers, min_cluster_size, obj"):
        check_step(Inertia(), ALGORITHM_DECLARES)


@by_name(STEPS)
@given(case=cases())
def test_the_order_of_rows_does_not_matter(step: Step, case: Case) -> None:
    order = np.random.default_rng(1).permutation(len(case.X))
    state = asked(step, case.centers)
    assert_close(answer(step, state, case.pooled), answer(step, state, case.pooled.take(order)))


@by_name([Lloyd(), FKM(3), SiteSummaries(4), Inertia()])  # k-FED projects uncentred rows
@pytest.mark.parametrize("seed", range(5))
def test_means_move_and_stretch_with_the_rows(step: Step, seed: int) -> None:
    """Translation and scale equivariance, on rows without ties."""
    rng = np.random.default_rng(seed)
    X, centers = rng.normal(size=(60, 3)), rng.normal(size=(4, 3))
    a = answer(step, State.at(centers), Data(X))
    b = answer(step, State.at((centers + 64.0) * 4.0), Data((X + 64.0) * 4.0))
    np.testing.assert_array_equal(a.weights, b.weights)
    if isinstance(step, Inertia):
        np.testing.assert_allclose(b.sums, a.sums * 16.0, rtol=1e-12)
    else:
        moved = (a.sums[:, :3] + 64.0 * a.weights[:, None]) * 4.0
        np.testing.assert_allclose(b.sums[:, :3], moved, rtol=1e-12)


@by_name(STEPS)
@given(case=cases())
def test_the_caller_s_rows_are_not_changed(step: Step, case: Case) -> None:
    before = case.X.copy(), case.centers.copy()
    answer(step, asked(step, case.centers), case.pooled)
    np.testing.assert_array_equal(case.X, before[0])
    np.testing.assert_array_equal(case.centers, before[1])


@by_name(STEPS)
def test_a_step_is_its_name_and_its_fields(step: Step) -> None:
    """All of them are scalars; and it pickles."""
    assert is_dataclass(step)
    values = {f.name: getattr(step, f.name) for f in fields(step)}
    assert all(v is None or isinstance(v, int | float | str | bool) for v in values.values())
    assert type(step)(**values) == step == pickle.loads(pickle.dumps(step))


@by_name(STEPS)
@given(case=cases(), seed=st.integers(0, 2**32 - 1))
def test_a_task_and_its_answer_survive_the_wire(step: Step, case: Case, seed: int) -> None:
    """A site that reads the task from bytes answers the same bits, and they arrive as such."""
    task = Task(step, asked(step, case.centers), seed)
    there, back = over_the_wire(task)
    assert there.step == step
    assert there.seed == seed
    client = Client("s", case.pooled.weighed(), filters=())
    here, answered = client.answer(task), back(client.answer(there))
    assert here.sums.tobytes() == answered.sums.tobytes()
    assert here.weights.tobytes() == answered.weights.tobytes()
    assert answered.support is None


@by_name(ALGORITHMS)
@given(case=cases())
def test_a_state_survives_the_wire(step: Algorithm, case: Case) -> None:
    """With the memory that a few rounds gave it, to the last bit."""
    client, state = Client("s", case.pooled.weighed(), filters=()), asked(step, case.centers)
    for _ in range(3):
        before = over_the_wire(Task(step, state))[0].state
        assert same(before, state)
        answer = client.answer(Task(step, state))
        with suppress(HeldBackError):  # too few rows for so many centres
            state = step.server_step(state, [answer], stream(0, state.round))


def over_the_wire(task: Task) -> tuple[Task, Callable[[Summary], Summary]]:
    """A task as it arrives, and the way back for its answer."""
    headers, arrays = wire.write_tasks([task])
    header, received = wire.unpack(wire.pack({"tasks": headers}, arrays))
    [there] = wire.read_tasks(header["tasks"], received, KNOWN)

    def back(answer: Summary) -> Summary:
        message = wire.pack({}, wire.write_summaries([answer]))
        [arrived] = wire.read_summaries(wire.unpack(message)[1])
        return arrived

    return there, back


def same(a: State, b: State) -> bool:
    """Whether two states are the same bits."""
    arrays = [("centers", a.centers, b.centers), ("weights", a.weights, b.weights)]
    arrays += [(name, a.memory[name], b.memory[name]) for name in b.memory]
    equal = all(x.shape == y.shape and x.tobytes() == y.tobytes() for _, x, y in arrays)
    scalars = [(s.round, s.converged, str(s.inertia), list(s.memory)) for s in (a, b)]
    return equal and scalars[0] == scalars[1]


@by_name(STEPS)
@given(case=cases())
def test_a_client_is_a_pure_function_of_the_task(step: Step, case: Case) -> None:
    """Asked twice, with other questions between, it answers the same bits."""
    client, state = Client("s", case.pooled.weighed(), filters=()), asked(step, case.centers)
    first = client.answer(Task(step, state, seed=3))
    client.answer(Task(Lloyd(), State.at(case.centers + 1.0), seed=4))
    second = client.answer(Task(step, state, seed=3))
    np.testing.assert_array_equal(first.sums, second.sums)
    np.testing.assert_array_equal(first.weights, second.weights)
