"""Checks of the laws that a step declares, for tests of a user's own algorithm or metric.

Examples
--------
>>> from fedcluster.algorithms import Lloyd
>>> check_laws(Lloyd())

A step that sends a mean where it declares sums is caught:

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class MeanDistance:
...     client_additive = server_additive = True
...
...     def answer_shape(self, state, n_columns):
...         return 1, 1
...
...     def client_step(self, state, data, rng):
...         nearest = abs(data.X[:, None] - state.centers).sum(axis=2).min(axis=1)
...         return Summary(np.array([[nearest.mean()]]), np.array([float(len(data))]))
>>> check_laws(MeanDistance())
Traceback (most recent call last):
    ...
AssertionError: MeanDistance() breaks the law "client_additive" in round 1: ...
"""

from __future__ import annotations

import json
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import scipy
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from fedcluster.algorithms import Lloyd
from fedcluster.algorithms.merging import total
from fedcluster.core import (
    Algorithm,
    Assigns,
    Data,
    Floats,
    Metric,
    Rows,
    SiteInfo,
    State,
    Step,
    Summary,
    Task,
    check_step,
)
from fedcluster.core.ranges import allowed_of
from fedcluster.core.task import stream
from fedcluster.engines import LocalEngine, wire
from fedcluster.engines.client import Client
from fedcluster.engines.reply_validation import ReplyBounds, check_answer
from fedcluster.errors import HeldBackError
from fedcluster.metrics import Inertia
from fedcluster.model.assignment import Assignment
from fedcluster.preprocessing import Preparation
from fedcluster.preprocessing.transform import frozen, own_to_plain
from fedcluster.preprocessing.transform import preparation as checked_preparation
from fedcluster.recipes.fit import canonical
from fedcluster.rounds import run_plan

__all__ = ["Example", "check_laws", "check_preparation"]

ROUNDING = 1e-11
"""Relative difference that another order of addition may cause."""
FEW_ROWS = 10
"""Number of rows that are each left out and moved, to see what depends on them."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """Rows at several sites about which a step is asked.

    Parameters
    ----------
    data : Data
        The rows of all sites. Each site needs a row of positive weight.
    sites : ndarray of shape (n,)
        The site of each row, a number or a name.
    """

    data: Data
    sites: NDArray[Any]

    @classmethod
    def random(cls, seed: int = 0) -> Example:
        """Return 60 normal rows of two columns at three sites, with weights, labels and twins."""
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 2)) + 5.0
        X[30:40] = X[:10]
        weight, y = rng.integers(0, 4, 60).astype(float), rng.integers(0, 3, 60)
        weight[:3], sites = 1.0, np.append([0, 1, 2], rng.integers(0, 3, 57))
        return cls(Data(X, weight, y), sites)

    @property
    def parts(self) -> dict[str, Data]:
        """The rows of each site, without those of weight 0."""
        return {
            f"site {site}": self.data.take(self.sites == site).weighed()
            for site in np.unique(self.sites)
        }

    def start(self, step: Step) -> State:
        """Return the first state for a step: three rows as centres, if it needs any."""
        needs_centers = getattr(step, "needs_centers", not hasattr(step, "server_step"))
        return State.at(self.data.X[:3].astype(np.float64) + 0.25) if needs_centers else State()


def check_laws(
    step: Step,
    example: Example | None = None,
    states: Sequence[State] | None = None,
    *,
    n_rounds: int = 3,
    laws: Sequence[str] | None = None,
) -> None:
    """Check, on example rows, that a step satisfies the laws that it declares.

    An algorithm is followed over several rounds, because a law may only be violated once the server
    has stored something in ``State.memory``.

    Parameters
    ----------
    step : Step
        An algorithm, a metric, or any other step.
    example : Example, optional
        The rows; by default `Example.random`.
    states : sequence of State, optional
        The states to start from; by default that of `Example.start`. A step that reads
        ``State.memory`` in its first round needs states of its own.
    n_rounds : int, default=3
        The number of rounds of an algorithm from each state.
    laws : sequence of str, optional
        Names from `LAWS`; by default all.

    Raises
    ------
    AssertionError
        If a law is violated; the message names the step, the law, the round and the numbers that
        differ, or the error of the step.
    TypeError
        If the step lacks something that every step must declare.
    """
    check_step(step)
    example = Example.random() if example is None else example
    for start in [example.start(step)] if states is None else states:
        for state in _rounds(step, example, start, n_rounds):
            for law in LAWS if laws is None else laws:
                try:
                    LAWS[law](step, state, example)
                except Exception as error:
                    place = f'{step!r} breaks the law "{law}" in round {state.round + 1}'
                    message = error if isinstance(error, AssertionError) else repr(error)
                    raise AssertionError(f"{place}: {message}") from error


def _rounds(step: Step, example: Example, state: State, n_rounds: int) -> Iterator[State]:
    """Yield the states of an algorithm's first rounds; for other steps, the given state."""
    for _ in range(n_rounds):
        yield state
        if not hasattr(step, "server_step"):
            return
        after = _next(step, state, _answers(step, state, example))
        if after is None:
            return
        state = after


def _next(step: Step, state: State, answers: Sequence[Summary]) -> State | None:
    """Return the state that the server computes from answers; None if there are too few rows."""
    try:
        return cast(Algorithm, step).server_step(state, answers, stream(0, state.round))
    except HeldBackError:  # the example has too few rows for k centres
        return None


def _answers(step: Step, state: State, example: Example) -> list[Summary]:
    """Return the step's answer at each site, sorted by name."""
    return [_answer(step, state, data, name) for name, data in example.parts.items()]


def _answer(step: Step, state: State, data: Data, name: str = "all") -> Summary:
    """Return the step's answer about rows, with the random draws of the named site."""
    return step.client_step(state, data, stream(0, state.round, name))


def _client_additive(step: Step, state: State, example: Example) -> None:
    """If declared, the answers of the sites add up to the answer about all rows."""
    if step.client_additive:
        together = _answer(step, state, example.data.weighed())
        _assert_close(total(_answers(step, state, example)), together)


def _server_additive(step: Step, state: State, example: Example) -> None:
    """If declared, the server computes the same state from all answers and from their sum."""
    if step.server_additive and hasattr(step, "server_step"):
        apart = _answers(step, state, example)
        one, other = (
            step.server_step(state, answers, stream(0, state.round))
            for answers in (apart, [total(apart)])
        )
        try:
            _assert_same(one, other)
        except AssertionError as error:
            hint = "if only the last digits differ, add the answers by Summary.total(answers)"
            raise AssertionError(f"{error}\n{hint}") from error


def _answer_shape(step: Step, state: State, example: Example) -> None:
    """Each answer has the declared shape; answers that are added have the same shape."""
    lines, width = step.answer_shape(state, example.data.X.shape[1])
    for data in (example.data.weighed(), *example.parts.values()):
        shape = _answer(step, state, data).sums.shape
        assert shape == (shape[0] if lines is None else lines, width), f"it is {shape}"
    added = step.client_additive or step.server_additive
    assert lines is not None or not added, "answers of several shapes do not add up"


def _order_of_rows(step: Step, state: State, example: Example) -> None:
    """The order of rows changes nothing beyond rounding."""
    data = example.data.weighed()
    order = np.random.default_rng(1).permutation(len(data))
    _assert_close(_answer(step, state, data), _answer(step, state, data.take(order)))


def _order_of_sites(step: Step, state: State, example: Example) -> None:
    """The order of sites changes no bit, because answers are sorted by name."""
    clients = [Client(name, data, filters=()) for name, data in example.parts.items()]
    one, other = (
        LocalEngine(each).ask([Task(step, state)])[0].by_site for each in (clients, clients[::-1])
    )
    assert list(one) == list(other) == sorted(one)
    for name in one:
        _assert_same(one[name], other[name])


def _purity(step: Step, state: State, example: Example) -> None:
    """A step changes none of its inputs, and gives the same bits when asked again."""
    data = example.data.weighed()
    arrays = [data.X, data.sample_weight, data.y, state.centers, state.weights]
    arrays += state.memory.values()
    with _unchanged(arrays, "what was given is changed"):
        client = Client("all", data, filters=())
        first = client.answer(Task(step, state, seed=3))
        client.answer(Task(Lloyd(), State.at(data.X[:1].astype(np.float64) + 1.0), seed=4))
        _assert_same(first, client.answer(Task(step, state, seed=3)))
        moved = Task(step, replace(state, centers=state.centers * 1.25), seed=3)
        alone = Client("all", replace(data), filters=()).answer(moved)
        _assert_same(alone, client.answer(moved))
    if not hasattr(step, "server_step"):
        return
    answers = _answers(step, state, example)
    arrays = [each for a in answers for each in (a.sums, a.weights, a.support)]
    arrays += [state.centers, state.weights, *state.memory.values()]
    with _unchanged(arrays, "server_step changes what it is given"):
        one, other = (_next(step, state, answers) for _ in range(2))
        if one is not None and other is not None:
            _assert_same(one, other)


@contextmanager
def _unchanged(arrays: Sequence[Any], complaint: str) -> Iterator[None]:
    """Check that arrays, and the global random generators, do not change."""
    some: list[NDArray[Any]] = [array for array in arrays if array is not None]
    copies = [array.copy() for array in some]
    before = str(np.random.get_state()), random.getstate()  # noqa: NPY002
    yield
    for array, copy in zip(some, copies, strict=True):
        assert_array_equal(array, copy, complaint)
    after = str(np.random.get_state()), random.getstate()  # noqa: NPY002
    assert before == after, "it uses the generator of numpy or Python: draw from rng alone"


def _fields(step: Step, _state: State, _example: Example) -> None:
    """A step is its name and its fields, all of them scalars, and can be pickled."""
    assert is_dataclass(step), "it is no dataclass"
    assert type(step).__dataclass_params__.frozen, "it is no frozen dataclass"
    values = {field.name: getattr(step, field.name) for field in fields(step)}
    scalar = all(v is None or isinstance(v, int | float | str | bool) for v in values.values())
    assert scalar, f"{values} are not all scalars"
    assert type(step)(**values) == step, "a copy differs"
    kind = type(step)
    if kind.__module__ != "__main__" or hasattr(sys.modules["__main__"], kind.__name__):
        # a class defined in a doctest cannot be pickled
        assert step == pickle.loads(pickle.dumps(step)), "a copy differs"


def _wire(step: Step, state: State, example: Example) -> None:
    """A site that reads the task from bytes gives the same bits, which survive the journey back."""
    task = Task(step, state, seed=2**32 - 1)
    headers, arrays = wire.write_tasks([task])
    header, received = wire.unpack(wire.pack({"tasks": headers}, arrays))
    [there] = wire.read_tasks(header["tasks"], received, {type(step).__name__: type(step)})
    assert (there.step, there.seed) == (step, task.seed)
    _assert_same(there.state, state)
    client = Client("all", example.data, filters=())
    message = wire.pack({}, wire.write_summaries([client.answer(there)]))
    [arrived] = wire.read_summaries(wire.unpack(message)[1])
    _assert_same(arrived, client.answer(task).leaving())


def _sample_weight(step: Step, state: State, example: Example) -> None:
    """A row of weight 2 counts as two rows if answers are additive; otherwise weights matter."""
    X, y = example.data.X, example.data.y
    whole, ones = 1 + np.arange(len(X)) % 3, np.ones(len(X))
    rows = replace(example.data, sample_weight=None)
    plain, weighed, one = (
        _answer(step, state, Data(X, weight, y)) for weight in (None, whole.astype(float), ones)
    )
    _assert_close(plain, one)
    if getattr(step, "counts_rows", False):
        return
    if step.client_additive:
        copies = _answer(step, state, rows.take(np.repeat(np.arange(len(X)), whole)))
        hint = "multiply each row's part of sums and weights by its sample_weight"
        _assert_close(replace(weighed, support=None), replace(copies, support=None), hint)
    elif weighed.sums.shape == plain.sums.shape and len(X) > 3:
        ignored = np.array_equal(weighed.sums, plain.sums)
        ignored &= np.array_equal(weighed.weights, plain.weights)
        assert not ignored, "sample_weight changes nothing"
        if hasattr(step, "server_step"):
            heavy = _answer(step, state, Data(X, 4.0 * whole.astype(np.float64), y))
            times = Summary(4.0 * weighed.sums, 4.0 * weighed.weights, weighed.support)
            _assert_close(heavy, times, "weights four times as large make such sums and weights")


def _labels(step: Step, state: State, example: Example) -> None:
    """An algorithm reads no reference labels, as most rows have none."""
    data = example.data.weighed()
    if hasattr(step, "server_step") and data.y is not None:
        without = _answer(step, state, replace(data, y=None))
        _assert_same(_answer(step, state, data), without)


def _precision(step: Step, state: State, example: Example) -> None:
    """Sums over float32 rows are float64, and equal those of the same rows in float64.

    Results for a single row may have the type of the rows.
    """
    few = _few(example)
    # number of repetitions, to see how exactly rows are added
    few = few.take(np.tile(np.arange(len(few)), 1000 if not state.round else 1))
    narrow = replace(few, X=few.X.astype(np.float32))
    wide = replace(narrow, X=narrow.X.astype(np.float64))
    one, other = _answer(step, state, narrow), _answer(step, state, wide)
    for each in (one, other):
        types = f"sums have type {each.sums.dtype}, weights {each.weights.dtype}"
        assert each.sums.dtype == each.weights.dtype == np.float64, types
    if step.client_additive:
        scale = 1.0 + np.abs(other.sums).max(initial=0.0)
        hint = "add in float64, whatever the type of the rows"
        assert_allclose(one.sums, other.sums, rtol=1e-6, atol=1e-6 * scale, err_msg=hint)


def _few(example: Example, seed: int = 0, n: int = FEW_ROWS) -> Data:
    """Return n rows with weights above 0, moved a little so that no two are equal."""
    data, rng = example.data.weighed(), np.random.default_rng(seed)
    return _apart(data.take(np.sort(rng.permutation(len(data))[:n])), rng)


def _apart(data: Data, rng: np.random.Generator) -> Data:
    """Return rows moved a little, so that no two are equal, or equally near to two centres."""
    X = data.X.astype(np.float64)
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    return replace(data, X=X + 1e-3 * spread * rng.normal(size=X.shape))


def _support(step: Step, state: State, example: Example) -> None:
    """The support of a line counts rows, not weights, and only rows that the line depends on.

    Limits of a site hold back lines over few rows, and would let through a line with too large a
    support.
    """
    few = _few(example)
    weight = np.ones(len(few)) if few.sample_weight is None else few.sample_weight
    answer, heavy = (_answer(step, state, replace(few, sample_weight=weight * by)) for by in (1, 4))
    for each in (answer, heavy):
        assert each.rows.shape == each.weights.shape, f"support has shape {each.rows.shape}"
        assert np.isfinite(each.rows).all(), "support holds NaN or infinity"
        assert (each.rows >= 0).all(), "support is negative"
    assert heavy.rows.max(initial=0.0) <= len(few) + ROUNDING, (
        f"it tells of {heavy.rows.max():g} rows, there are {len(few)}: give Summary(sums, weights, "
        "support), the number of rows behind each line"
    )
    behind = np.zeros(len(answer.weights))
    if len(few) < 4:
        return
    for i in range(len(few)):
        without = _answer(step, state, few.take(np.arange(len(few)) != i))
        if without.sums.shape != answer.sums.shape:
            return
        a, b = without.planes[0], answer.planes[0]
        behind += (np.abs(a - b) > 1e-10 * (1.0 + np.abs(b))).any(axis=1)
    counted = answer.rows[answer.weights > 0]
    assert (counted > 0).all(), f"lines of weight above 0 tell of {counted.tolist()} rows"
    counts = answer.rows * (answer.weights > 0)
    assert (counts <= behind + 1e-6).all(), (
        f"lines tell of {counts.tolist()} rows, and depend on {behind.tolist()}: the support is "
        "too large, and limits of a site would hold nothing back"
    )


def _single_rows(step: Step, state: State, example: Example) -> None:
    """No number in a line over several rows depends on one row only, and no line is a row."""
    few, other = (_few(example, seed, 2 * FEW_ROWS) for seed in (0, 1))
    if len(few) < 4:
        return
    moved = [_moved_by_few(step, state, rows) for rows in (few, other)]
    middle = few.X.mean(axis=0)
    for near in (middle, *state.centers) if all(moved) else ():
        # smooth results change by the same amount in both directions
        close = replace(few, X=near + 0.1 * (few.X - middle))
        found = _moved_by_few(step, state, close)
        assert not found, f"{found} alone: a row would leave the site"
    if step.answer_shape(state, few.X.shape[1])[0] is None:
        many = few.take(np.tile(np.arange(len(few)), 5))
        noise = np.random.default_rng(3).normal(size=many.X.shape)
        lines = _answer(step, state, replace(many, X=many.X + 1e-3 * few.X.std() * noise))
        n_lines = np.count_nonzero(lines.weights)
        assert n_lines < len(many), f"{len(many)} rows leave as {n_lines} lines: rows are no sums"


def _moved_by_few(step: Step, state: State, few: Data) -> str:
    """Return a number of a line, over more rows, that one or two of its rows move alone."""
    answer, spread = _answer(step, state, few), max(float(few.X.std()), 1e-9)
    moves, any_moves = np.zeros((2, len(few), *answer.planes[0].shape))
    for i in range(len(few)):
        move = np.zeros_like(few.X)
        # Distance by which a row is moved, in standard deviations of the rows.
        move[i] = 1e-6 * spread
        there, back = (_answer(step, state, replace(few, X=few.X + by * move)) for by in (1, -1))
        if not there.sums.shape == back.sums.shape == answer.sums.shape:
            return ""
        up, down = (each.planes[0] - answer.planes[0] for each in (there, back))
        smooth = np.abs(up + down) <= 1e-2 * np.abs(up)  # otherwise the row changed its cluster
        moves[i] = np.where(smooth, np.abs(up), 0.0)
        any_moves[i] = np.maximum(np.abs(up), np.abs(down))
    moves = -np.sort(-moves, axis=0)
    large = moves[0] > 1e-12 * (1.0 + np.abs(answer.planes[0]))
    for n_rows in (1, 2):
        others = any_moves.sum(axis=0) - moves[:n_rows].sum(axis=0)
        alone = large & (others <= 1e-2 * moves[0])
        places = np.argwhere(alone & (answer.rows > 2 * n_rows)[:, None]).tolist()
        for j, p in places[:1]:
            return f"number {p} of line {j}, of {answer.rows[j]:g} rows, depends on {n_rows}"
    return ""


def _believable(step: Step, state: State, example: Example) -> None:
    """A coordinator accepts the answers for any rows, and the next state is finite.

    Weights are not negative and do not exceed those of the rows in total; numbers are finite, and
    within ``line_bounds`` if these are declared, even for a cluster without rows.
    """
    X = example.data.X
    names = [f"x{j}" for j in range(X.shape[1])]
    low, high = np.nanmin(X, axis=0).tolist(), np.nanmax(X, axis=0).tolist()
    bounds = ReplyBounds(ranges=dict(zip(names, zip(low, high, strict=True), strict=True)))
    states = [state]
    if state.round == 0 and len(state.centers) > 1 and not state.memory:
        far = state.centers.copy()
        far[-1] += 1e3 * (1.0 + np.abs(far).max())
        states.append(replace(state, centers=far))
    for start in states:
        answers = []
        for name, data in example.parts.items():
            for part in (data, data.take(np.arange(1))):
                answer = _answer(step, start, part, name)
                weight = None if part.sample_weight is None else float(part.sample_weight.sum())
                site = SiteInfo(name, n_rows=len(part), weight=weight, n_columns=X.shape[1])
                try:
                    check_answer(Task(step, start), answer.leaving(), site, bounds, names)
                except wire.WireError as error:
                    raise AssertionError(f"a coordinator refuses the answer: {error}") from error
                answers += [answer] if part is data else []
        after = _next(step, start, answers) if hasattr(step, "server_step") else None
        if after is None:
            continue
        assert after.round == start.round + 1, f"the next state is of round {after.round}"
        for what, array in {"centers": after.centers, "weights": after.weights}.items():
            assert np.isfinite(array).all(), f"{what} of the next state hold NaN or infinity"
        for what, array in after.memory.items():
            assert not np.isnan(array).any(), f"{what} of the next state holds NaN"


def _allowed(step: Step, state: State, example: Example) -> None:
    """Parameters and the server's states are within ``allowed``, and states are complete."""
    allowed, sizes = allowed_of(step), {"max_clusters": 1000, "d": example.data.X.shape[1]}
    for name, held in allowed.fields.items():
        value = getattr(step, name, None)
        assert not hasattr(step, name) or held.holds(value, sizes), (
            f"{name}={value!r} is not {held}"
        )
    if state.converged or not state.round or not hasattr(step, "server_step"):
        return
    try:
        allowed.check_state(state, sizes)
    except ValueError as error:
        raise AssertionError(f"a site refuses the next question: {error}") from error
    lost = allowed.memory and not state.memory
    assert not lost, f"the memory is lost: {', '.join(allowed.memory)}"


def _convergence(
    step: Step, state: State, example: Example, *, most_rounds: int = 200, resting: int = 20
) -> None:
    """An algorithm converges when no centre moves, but not while it moves as at first.

    Neither do the arrays of its memory, but for counts, which grow by the same in each round. It
    also ends: its moves decrease, and no state recurs. An algorithm without this property declares
    ``converges = False``; a run then ends after ``max_iter`` rounds.

    ``most_rounds``: for which an algorithm is followed. ``resting``: rounds without a move after
    which it has converged.
    """
    algorithm = cast(Algorithm, step)
    if not hasattr(step, "server_step") or state.round or not algorithm.needs_centers:
        return
    ends, moves, met = getattr(step, "converges", True), [], {_digest(state): 0}
    memories = [state.memory]
    for _ in range(most_rounds):
        after = _next(step, state, _answers(step, state, example))
        if after is None or after.centers.shape != state.centers.shape:
            return
        _allowed(step, after, example)
        moves.append(float(np.abs(after.centers - state.centers).max(initial=0.0)))
        memories.append(after.memory)
        if not ends:
            state = after
            continue
        if state.converged:
            _has_ended(state.round, moves, memories)
            return
        scale = 1.0 + np.abs(after.centers).max(initial=0.0)
        still = max(moves[-resting:]) <= 1e-12 * scale
        assert len(moves) < resting or not still or after.converged, (
            f"it has not converged after {resting} rounds that moved no centre"
        )
        back = met.setdefault(_digest(after), after.round)
        assert after.converged or back in (state.round, after.round), (
            f"the state of round {back} comes back after round {after.round}: {ENDLESS}"
        )
        state = after
    early, late = max(moves[-100:-50]), max(moves[-50:])
    assert not ends or late <= max(0.85 * early, 1e-9 * scale), (
        f"after {most_rounds} rounds centres move by {late:g}, and no less: {ENDLESS}"
    )


def _has_ended(
    n_rounds: int, moves: Sequence[float], memories: Sequence[Mapping[str, Any]]
) -> None:
    """Raise an error if centres or memory of the last two rounds change as they did at first."""
    said = f"it says that it has converged after round {n_rounds}, "
    assert min(moves[-2:]) <= 0.1 * max(moves), (
        f"{said}which moved a centre by {moves[-2]:g}, and the next one does by {moves[-1]:g}"
    )
    for name in memories[-1]:
        arrays = [memory[name] for memory in memories if name in memory]
        if len(arrays) < 3 or len({array.shape for array in arrays}) > 1:
            continue
        with np.errstate(invalid="ignore"):
            steps = np.nan_to_num(np.diff(np.array(arrays), axis=0))
        sizes, size = np.abs(steps).reshape(len(steps), -1).max(axis=1, initial=0.0), arrays[-1]
        size = np.abs(size).max(initial=0.0, where=np.isfinite(size))
        is_count = np.allclose(steps[-1], steps[-2], rtol=1e-6, atol=0.0)
        least, share = sizes[-2:].min(), sizes[-2:].min() / max(float(size), 1e-12)
        # Relative change of an array of the memory in a round that a tolerance does not explain:
        # mixtures that have converged by their likelihood change precisions by up to 2 % in a
        # round.
        assert least <= 0.1 * sizes.max() or share <= 0.03 or is_count, (
            f"{said}and {name} of its memory still changes by {share:.0%} in a round"
        )


ENDLESS = "let it converge, or declare converges = False"


def _digest(state: State) -> bytes:
    """Return everything that a site or the server reads of a state except its round."""
    arrays = (state.centers, state.weights, *state.memory.values())
    return b"".join(array.tobytes() for array in arrays)


def _memory(step: Step, state: State, example: Example, *, followed: int = 5) -> None:
    """Centres, weights, inertia and the memory of clusters follow from the answers of their round.

    A memory is stale if each of its arrays only repeats results of an earlier round. Former centres
    and weights may be kept. An inertia that is not measured is NaN.

    ``followed``: rounds in which its memory is compared with that from other answers.
    """
    if not hasattr(step, "server_step") or state.round or not cast(Algorithm, step).needs_centers:
        return
    own = {name for name, array in allowed_of(step).memory.items() if "k" in array.shape}
    stale, inertias = [{"centers"}, {"weights"}, {"inertia"}, own], set()
    for _ in range(followed):
        answers = _answers(step, state, example)
        after, *others = (_next(step, state, each) for each in (answers, *_others(answers)))
        if after is None:
            return
        if state.round:  # the first round has no earlier state
            kept, former = _parts(after), (state.centers, state.weights)
            changed = {
                name
                for name in kept
                for other in others
                if other is not None
                and (
                    name not in _parts(other) or not np.array_equal(kept[name], _parts(other)[name])
                )
            }
            changed |= {
                name for name in own & kept.keys() for a in former if np.array_equal(kept[name], a)
            }
            stale = [each for each in stale if not each & changed]
        if not own & after.memory.keys():  # no memory, or lost memory, which another law covers
            stale = [each for each in stale if each is not own]
        if not np.array_equal(after.centers, state.centers):
            inertias.add(after.inertia)
        state = after
    assert len(inertias) != 1 or state.round < followed or np.isnan([*inertias]).all(), (
        f"the inertia is {inertias.pop():g} in each round, though centres move"
    )
    if stale := [each for each in stale if each]:
        names = " and ".join(", ".join(sorted(each)) for each in stale)
        raise AssertionError(f"the answers of a round do not change {names} of the next state")


def _parts(state: State) -> dict[str, Any]:
    """Return the arrays of a state by name."""
    own = {"centers": state.centers, "weights": state.weights, "inertia": state.inertia}
    return {**state.memory, **own}


def _others(answers: Sequence[Summary]) -> list[list[Summary]]:
    """Return answers about other rows: from one site only, reweighted, moved, and similar."""
    return [
        list(answers[:1]),
        [replace(a, sums=a.sums * i, weights=a.weights * i) for i, a in enumerate(answers, 1)],
        [replace(a, sums=1.5 * a.sums + (a.weights > 0)[:, np.newaxis]) for a in answers],
        [replace(a, sums=0.01 * a.sums) for a in answers],
    ]


def _score(step: Step, state: State, example: Example) -> None:
    """The score of a metric is one number, which does not depend on the order of clusters."""
    if not hasattr(step, "score"):
        return
    metric = cast(Metric, step)
    assert isinstance(metric.maximise, bool), f"maximise is {metric.maximise!r}"
    added = total(_answers(step, state, example))
    with _unchanged([added.sums, added.weights, state.centers], "score changes what it is given"):
        score = metric.score(state, added)
        assert_array_equal(score, metric.score(state, added), "asked again, it is another one")
    assert isinstance(score, float | int | np.floating | np.integer), f"the score is {score!r}"
    if state.memory or len(state.centers) < 2:
        return
    apart = replace(example, data=_apart(example.data, np.random.default_rng(2)))
    answer = total(_answers(step, state, apart))
    score = metric.score(state, answer)
    if (answer.weights > 0).all():
        assert np.isfinite(score), f"the score is {score}, though all lines have rows"
    order = np.roll(np.arange(len(state.centers)), 1)
    turned = replace(state, centers=state.centers[order], weights=state.weights[order])
    again = metric.score(turned, total(_answers(step, turned, apart)))
    assert_allclose(again, score, rtol=1e-9, atol=1e-9, err_msg="order of clusters")


def _assign(step: Step, state: State, example: Example) -> None:
    """Rows are assigned independently, and alike for any order of the clusters.

    This applies from the second round on, when there are clusters; their order is changed as in
    `canonical`, by the arrays of the memory that ``allowed`` declares. A row is assigned to the
    cluster whose line of an answer counts it, and where the objective is the inertia, rows are
    nearer to their centres than to others.
    """
    if not isinstance(step, Assigns) or not state.weights.any():
        return
    X, every = example.data.X.copy(), Assignment(state, step)
    turned = canonical(state, cast(Algorithm, step))
    some = np.random.default_rng(1).permutation(len(X))[: len(X) // 2]
    shares, alone = _shares(every, X), _shares(every, X[some])
    assert (shares.sum(axis=1) <= 1 + ROUNDING).all(), "memberships of a row sum to more than 1"
    assert_array_equal(X, example.data.X, "assign changes the rows")
    assert_allclose(alone, shares[some], rtol=ROUNDING, atol=ROUNDING, err_msg="other rows matter")
    place = scipy.spatial.distance.cdist(turned.centers, state.centers)
    place = place.argmin(axis=1) if place.size else np.arange(every.n_clusters)
    if len(np.unique(place)) == len(place):
        there = _shares(Assignment(turned, step), X)
        assert_allclose(there, shares[:, place], rtol=1e-9, atol=1e-9, err_msg="order of clusters")
    _assign_as_answered(cast(Algorithm, step), state, example)


def _assign_as_answered(step: Algorithm, state: State, example: Example) -> None:
    """Rows are assigned to the clusters that answers count them in, or that are near."""
    few, k = _few(example, n=2 * FEW_ROWS), len(state.centers)
    every = Assignment(state, step)
    labels, shares = every.labels(few.X), _shares(every, few.X)
    if state.centers.shape == (k, few.X.shape[1]) and getattr(step, "objective", None) is Inertia:
        squared = scipy.spatial.distance.cdist(few.X, state.centers, "sqeuclidean")
        own, others = (shares * squared).sum(), (shares.sum(axis=1) * squared.mean(axis=1)).sum()
        assert own <= others * (1 + ROUNDING), (
            f"its objective is Inertia, and rows are farther from the centres of their clusters, "
            f"{own:g} in squares, than from any centres, {others:g}"
        )
    whole = _answer(step, state, few).weights
    if len(whole) != k or not step.needs_centers or len(few) < 4:
        return
    rest = [_answer(step, state, few.take(np.arange(len(few)) != i)) for i in range(len(few))]
    if any(each.weights.shape != whole.shape for each in rest):
        return
    lost = whole - np.array([each.weights for each in rest])
    clear = (lost.max(axis=1) > 0.5 * np.abs(lost).sum(axis=1)) & (labels >= 0)
    agrees = labels[clear] == lost[clear].argmax(axis=1)
    assert agrees.sum() >= 0.75 * clear.sum(), (
        f"{len(agrees) - agrees.sum()} of {len(agrees)} rows are assigned to other clusters than "
        "those whose lines of the answer count them"
    )


# Preparations


def check_preparation(preparation: Preparation, example: Example | None = None) -> None:
    """Check, on example rows, that a user's own preparation satisfies its laws.

    Parameters
    ----------
    preparation : Preparation
        The preparation, which is fitted first if it has a method ``fit``.
    example : Example, optional
        The rows; by default `Example.random`.

    Raises
    ------
    AssertionError
        If a law is violated; the message names the preparation, the law and the problem.
    InputError
        If it is not a frozen dataclass with all methods of a `Preparation`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Centred:
    ...     def names(self, names):
    ...         return list(names)
    ...
    ...     def apply(self, X):
    ...         return X - X.mean(axis=0)
    ...
    ...     def invert(self, X):
    ...         return X
    ...
    ...     def check(self, width):
    ...         pass
    >>> check_preparation(Centred())
    Traceback (most recent call last):
        ...
    AssertionError: Centred() breaks the law "row by row": ...
    """
    example = Example.random() if example is None else example
    own = checked_preparation(preparation)
    X, law = example.data.X.astype(np.float64), "fit"
    try:
        fitted = _fitted(own, example, X)
        for law in PREPARATION_LAWS:
            PREPARATION_LAWS[law](fitted, X)
    except Exception as error:
        message = error if isinstance(error, AssertionError) else repr(error)
        raise AssertionError(f'{own!r} breaks the law "{law}": {message}') from error


def _fitted(own: Any, example: Example, X: Floats) -> Any:
    """Return a preparation fitted to the sites, after comparing it with a fit to all rows."""
    if not hasattr(own, "fit"):
        return own
    fits = [
        run_plan(
            own.fit(_names(X)), LocalEngine(Client(name, rows, ()) for name, rows in parts.items())
        )
        for parts in (example.parts, example.parts, {"all": example.data.weighed()})
    ]
    apart, again, together = (checked_preparation(each.value) for each in fits)
    assert apart == again, "fitted again, it is another one"
    _assert_near(together.apply(X), apart.apply(X), "it depends on which site has which rows")
    return apart


def _names(X: Floats) -> list[str]:
    return [f"x{j}" for j in range(X.shape[1])]


def _is_value(own: Any, X: Floats) -> None:
    """The preparation is a frozen dataclass of numbers and tuples, unchanged by sending it."""
    assert type(own).__dataclass_params__.frozen, "it is no frozen dataclass"
    values = json.loads(json.dumps(own_to_plain(own), allow_nan=False))["fields"]
    there = type(own)(**{name: frozen(value) for name, value in values.items()})
    assert there == own, f"a site gets {there!r}"
    assert hash(own) == hash(there), "equal ones have other hashes"
    assert_array_equal(there.apply(X), own.apply(X), "at a site it makes other rows")


def _row_by_row(own: Any, X: Floats) -> None:
    """Each row is mapped independently, to one number per name, and inputs are unchanged."""
    q = len(own.names(_names(X)))
    with _unchanged([X], "apply changes the rows"):
        made, again = own.apply(X), own.apply(X)
    assert_array_equal(made, again, "applied again, it makes other rows")
    assert np.shape(made) == (len(X), q), f"it names {q} columns and makes {np.shape(made)}"
    assert np.issubdtype(made.dtype, np.floating), f"it makes rows of type {made.dtype}"
    assert np.isfinite(made).all(), "it makes NaN or infinity of finite rows"
    some = np.random.default_rng(1).permutation(len(X))[: len(X) // 2]
    _assert_near(own.apply(X[some]), made[some], "other rows matter")
    _assert_near(own.apply(X[:1]), made[:1], "other rows matter")


def _inverse(own: Any, X: Floats) -> None:
    """Rows mapped back to the units of the columns are prepared to the same values again."""
    made = own.apply(X)
    with _unchanged([made], "invert changes the rows"):
        back = own.invert(made)
    assert np.shape(back) == X.shape, f"invert makes {np.shape(back)} of {np.shape(made)}"
    assert_allclose(own.apply(back), made, 1e-6, 1e-6, err_msg="invert is no inverse of apply")


def _width(own: Any, X: Floats) -> None:
    """It accepts rows with the width of its fit, and raises ValueError for others."""
    own.check(X.shape[1])
    for wide in (np.column_stack([X, X[:, :1]]), X[:, :-1]):
        try:
            own.check(wide.shape[1])
        except ValueError:
            continue
        own.apply(wide)  # a table that passed the checks must be accepted


PREPARATION_LAWS: Mapping[str, Callable[[Any, Floats], None]] = MappingProxyType(
    {"value": _is_value, "row by row": _row_by_row, "inverse": _inverse, "width": _width}
)
"""Checks of a preparation, by name."""


def _assert_near(a: Floats, b: Floats, hint: str) -> None:
    assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=hint)


def _shares(assignment: Assignment, X: Rows) -> Floats:
    """Return the memberships of rows, which are 0 and 1 for labels."""
    memberships = assignment.memberships(X)
    if memberships is None:
        labels = assignment.labels(X)
        memberships = np.equal(labels[:, None], np.arange(assignment.n_clusters)).astype(np.float64)
    return memberships


def _assert_close(a: Summary, b: Summary, hint: str = "") -> None:
    scale = 1.0 + np.abs(a.sums).max(initial=0.0)
    assert_allclose(a.sums, b.sums, rtol=ROUNDING, atol=ROUNDING * scale, err_msg=f"sums; {hint}")
    assert_allclose(a.weights, b.weights, rtol=ROUNDING, err_msg=f"weights; {hint}")
    assert_allclose(a.rows, b.rows, rtol=ROUNDING, err_msg="support")


def _assert_same(a: State | Summary, b: State | Summary) -> None:
    """Compare all fields bit by bit."""
    for field in fields(a):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if not isinstance(one, Mapping):
            one, other = {field.name: one}, {field.name: other}
        assert list(one) == list(other), f"{field.name}: {list(one)} and {list(other)}"
        for name in one:
            assert_array_equal(one[name], other[name], name, strict=True)


LAWS: Mapping[str, Callable[[Step, State, Example], None]] = MappingProxyType(
    {
        "client_additive": _client_additive,
        "server_additive": _server_additive,
        "answer_shape": _answer_shape,
        "order of rows": _order_of_rows,
        "order of sites": _order_of_sites,
        "purity": _purity,
        "fields": _fields,
        "wire": _wire,
        "sample_weight": _sample_weight,
        "labels": _labels,
        "precision": _precision,
        "support": _support,
        "single rows": _single_rows,
        "answers": _believable,
        "allowed": _allowed,
        "convergence": _convergence,
        "memory": _memory,
        "score": _score,
        "assign": _assign,
    }
)
"""Checks by name: two laws that a step declares, and those that every step must satisfy."""
