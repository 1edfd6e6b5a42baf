"""Check the laws that a step declares, in the tests of an algorithm or metric of your own.

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

import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fedcluster.algorithms import Lloyd
from fedcluster.algorithms.merging import total
from fedcluster.core import (
    Algorithm,
    Assigns,
    Data,
    Floats,
    Rows,
    SiteInfo,
    State,
    Step,
    Summary,
    Task,
    check_step,
)
from fedcluster.core.ranges import allowed_of
from fedcluster.core.streams import stream
from fedcluster.engines import LocalEngine, wire
from fedcluster.engines.client import Client
from fedcluster.engines.reply_validation import Believed, check_answer
from fedcluster.errors import HeldBackError
from fedcluster.model.assignment import Assignment
from fedcluster.recipes.fit import canonical

__all__ = ["Example", "check_laws"]

ROUNDING = 1e-11
"""Relative difference that another order of adding may make."""
FEW = 10
"""Rows of which each is left out and moved, to see what depends on it."""
MOVE = 1e-6
"""How far a row is moved, in standard deviations of the rows."""
MOST_ROUNDS, STILL = 200, 20
"""Rounds that an algorithm is followed, and rounds without a move after which it has converged."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """Rows at several sites, for a step to be asked about.

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
        """Return the state that a step is first asked about: three rows' places, where any."""
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
    """Check that a step keeps the laws that it declares, on example rows.

    An algorithm is followed over several rounds, because a law may break only with what the
    server keeps in ``State.memory``.

    Parameters
    ----------
    step : Step
        An algorithm, a metric, or any other step.
    example : Example, optional
        The rows; by default `Example.random`.
    states : sequence of State, optional
        The states to start from; by default what `Example.start` gives. A step that reads
        ``State.memory`` from its first round on needs states of its own.
    n_rounds : int, default=3
        The rounds of an algorithm from each of them.
    laws : sequence of str, optional
        Some of `LAWS`; by default all.

    Raises
    ------
    AssertionError
        Naming the step, the law, the round and the numbers that differ, or what the step raises.
    TypeError
        If the step lacks something that every step declares.
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
                    said = error if isinstance(error, AssertionError) else repr(error)
                    raise AssertionError(f"{place}: {said}") from error


def _rounds(step: Step, example: Example, state: State, n_rounds: int) -> Iterator[State]:
    """Yield the states that an algorithm is asked about in its first rounds; others stay."""
    for _ in range(n_rounds):
        yield state
        if not hasattr(step, "server_step"):
            return
        after = _next(step, state, _answers(step, state, example))
        if after is None:
            return
        state = after


def _next(step: Step, state: State, answers: Sequence[Summary]) -> State | None:
    """Return the state that the server makes of answers; None where rows are too few for it."""
    try:
        return cast(Algorithm, step).server_step(state, answers, stream(0, state.round))
    except HeldBackError:  # too few rows for so many centres
        return None


def _answers(step: Step, state: State, example: Example) -> list[Summary]:
    """Return what the step answers at each site, in the order of their names."""
    return [_answer(step, state, data, name) for name, data in example.parts.items()]


def _answer(step: Step, state: State, data: Data, name: str = "all") -> Summary:
    """Return what the step answers about rows, as a site of this name draws."""
    return step.client_step(state, data, stream(0, state.round, name))


def _client_additive(step: Step, state: State, example: Example) -> None:
    """Where it is declared, the answers of the sites add up to the answer of all rows."""
    if step.client_additive:
        together = _answer(step, state, example.data.weighed())
        _assert_close(total(_answers(step, state, example)), together)


def _server_additive(step: Step, state: State, example: Example) -> None:
    """Where it is declared, the server makes the same state of all answers and of their sum."""
    if step.server_additive and hasattr(step, "server_step"):
        apart = _answers(step, state, example)
        one, other = (
            step.server_step(state, given, stream(0, state.round))
            for given in (apart, [total(apart)])
        )
        try:
            _assert_same(one, other)
        except AssertionError as error:
            hint = "if only the last digits differ, add the answers by Summary.total(answers)"
            raise AssertionError(f"{error}\n{hint}") from error


def _answer_shape(step: Step, state: State, example: Example) -> None:
    """Each answer has the declared shape; where answers are added, it is one shape."""
    lines, width = step.answer_shape(state, example.data.X.shape[1])
    for data in (example.data.weighed(), *example.parts.values()):
        shape = _answer(step, state, data).sums.shape
        assert shape == (shape[0] if lines is None else lines, width), f"it is {shape}"
    added = step.client_additive or step.server_additive
    assert lines is not None or not added, "answers of several shapes do not add up"


def _order_of_rows(step: Step, state: State, example: Example) -> None:
    """The order of rows touches nothing beyond rounding."""
    data = example.data.weighed()
    order = np.random.default_rng(1).permutation(len(data))
    _assert_close(_answer(step, state, data), _answer(step, state, data.take(order)))


def _order_of_sites(step: Step, state: State, example: Example) -> None:
    """The order in which sites are given touches no bit: answers come in that of their names."""
    clients = [Client(name, data, filters=()) for name, data in example.parts.items()]
    one, other = (
        LocalEngine(each).ask([Task(step, state)])[0].by_site for each in (clients, clients[::-1])
    )
    assert list(one) == list(other) == sorted(one)
    for name in one:
        _assert_same(one[name], other[name])


def _purity(step: Step, state: State, example: Example) -> None:
    """A step changes nothing that it is given; asked again it answers the same bits."""
    data = example.data.weighed()
    given = [data.X, data.sample_weight, state.centers, state.weights, *state.memory.values()]
    before = [None if array is None else array.copy() for array in given]
    client = Client("all", data, filters=())
    first = client.answer(Task(step, state, seed=3))
    client.answer(Task(Lloyd(), State.at(data.X[:1].astype(np.float64) + 1.0), seed=4))
    _assert_same(first, client.answer(Task(step, state, seed=3)))
    for array, copy in zip(given, before, strict=True):
        assert_array_equal(array, copy, "what was given is changed")
    if hasattr(step, "server_step"):
        answers = _answers(step, state, example)
        arrays = [*given[2:], *(each for a in answers for each in (a.sums, a.weights))]
        copies = [array.copy() for array in arrays if array is not None]
        one, other = (_next(step, state, answers) for _ in range(2))
        if one is not None and other is not None:
            _assert_same(one, other)
        for array, copy in zip(arrays, copies, strict=True):
            assert_array_equal(array, copy, "server_step changes what it is given")


def _fields(step: Step, _state: State, _example: Example) -> None:
    """A step is its name and its fields, all of them scalars; and it pickles."""
    assert is_dataclass(step), "it is no dataclass"
    values = {field.name: getattr(step, field.name) for field in fields(step)}
    scalar = all(v is None or isinstance(v, int | float | str | bool) for v in values.values())
    assert scalar, f"{values} are not all scalars"
    assert type(step)(**values) == step, "a copy differs"
    kind = type(step)
    if kind.__module__ != "__main__" or hasattr(sys.modules["__main__"], kind.__name__):
        assert step == pickle.loads(pickle.dumps(step)), "a copy differs"  # not in a doctest


def _wire(step: Step, state: State, example: Example) -> None:
    """A site that reads the task from bytes answers the same bits, and they arrive as such."""
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
    """A row of weight 2 counts as two rows, where answers add up; elsewhere weights matter."""
    if getattr(step, "counts_rows", False):
        return
    X, y = example.data.X, example.data.y
    whole, ones = 1 + np.arange(len(X)) % 3, np.ones(len(X))
    rows = replace(example.data, sample_weight=None)
    plain, weighed, one = (
        _answer(step, state, Data(X, weight, y)) for weight in (None, whole.astype(float), ones)
    )
    _assert_close(plain, one)
    if step.client_additive:
        copies = _answer(step, state, rows.take(np.repeat(np.arange(len(X)), whole)))
        hint = "multiply each row's part of sums and weights by its sample_weight"
        _assert_close(replace(weighed, support=None), replace(copies, support=None), hint)
    elif weighed.sums.shape == plain.sums.shape and len(X) > 3:
        ignored = np.array_equal(weighed.sums, plain.sums)
        ignored &= np.array_equal(weighed.weights, plain.weights)
        assert not ignored, "sample_weight changes nothing"


def _few(example: Example, seed: int = 0) -> Data:
    """Return a few rows of weights above 0, moved a little, so that no two are alike."""
    data, rng = example.data.weighed(), np.random.default_rng(seed)
    data = data.take(np.sort(rng.permutation(len(data))[:FEW]))
    X = data.X.astype(np.float64)
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    return replace(data, X=X + 1e-3 * spread * rng.normal(size=X.shape))


def _support(step: Step, state: State, example: Example) -> None:
    """The support of a line counts rows, no weights, and none that the line does not depend on.

    Limits of a site hold back lines of few rows: a line whose support is too large passes them.
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
    told = answer.rows * (answer.weights > 0)
    assert (told <= behind + 1e-6).all(), (
        f"lines tell of {told.tolist()} rows, and depend on {behind.tolist()}: the support is too "
        "large, and limits of a site would hold nothing back"
    )


def _single_rows(step: Step, state: State, example: Example) -> None:
    """No number of a line of several rows moves with one row alone; and rows are no lines."""
    few = _few(example)
    if len(few) < 4:
        return
    middle = few.X.mean(axis=0)  # rows this close move a smooth number alike
    close = replace(few, X=middle + 0.1 * (few.X - middle))
    found = [_moved_by_few(step, state, rows) for rows in (few, _few(example, 1), close)]
    assert not all(found), f"{found[0]} alone: a row would leave the site"
    if step.answer_shape(state, few.X.shape[1])[0] is None:
        many = few.take(np.tile(np.arange(len(few)), 5))
        noise = np.random.default_rng(3).normal(size=many.X.shape)
        lines = _answer(step, state, replace(many, X=many.X + 1e-3 * few.X.std() * noise))
        n_lines = np.count_nonzero(lines.weights)
        assert n_lines < len(many), f"{len(many)} rows leave as {n_lines} lines: rows are no sums"


def _moved_by_few(step: Step, state: State, few: Data) -> str:
    """Return which number of a line moves with one or two of its rows alone, of more than twice."""
    answer, spread = _answer(step, state, few), max(float(few.X.std()), 1e-9)
    moves, any_moves = np.zeros((2, len(few), *answer.planes[0].shape))
    for i in range(len(few)):
        move = np.zeros_like(few.X)
        move[i] = MOVE * spread
        there, back = (_answer(step, state, replace(few, X=few.X + by * move)) for by in (1, -1))
        if not there.sums.shape == back.sums.shape == answer.sums.shape:
            return ""
        up, down = (each.planes[0] - answer.planes[0] for each in (there, back))
        smooth = np.abs(up + down) <= 1e-2 * np.abs(up)  # else the row has changed its cluster
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
    """A coordinator believes the answers, whatever rows a site has, and the next state is finite.

    Weights are not negative and together not above those of the rows, numbers are finite, and
    within ``line_bounds``, where the step declares it; also where a cluster has no row.
    """
    X = example.data.X
    names = [f"x{j}" for j in range(X.shape[1])]
    low, high = np.nanmin(X, axis=0).tolist(), np.nanmax(X, axis=0).tolist()
    believed = Believed(ranges=dict(zip(names, zip(low, high, strict=True), strict=True)))
    states = [state]
    if state.round == 0 and len(state.centers) > 1 and not state.memory:
        far = state.centers.copy()
        far[-1] += 1e3 * (1.0 + np.abs(far).max())
        states.append(replace(state, centers=far))
    for asked in states:
        answers = []
        for name, data in example.parts.items():
            for part in (data, data.take(np.arange(1))):
                answer = _answer(step, asked, part, name)
                weight = None if part.sample_weight is None else float(part.sample_weight.sum())
                site = SiteInfo(name, n_rows=len(part), weight=weight, n_columns=X.shape[1])
                try:
                    check_answer(Task(step, asked), answer.leaving(), site, believed, names)
                except wire.WireError as error:
                    raise AssertionError(f"a coordinator refuses the answer: {error}") from error
                answers += [answer] if part is data else []
        after = _next(step, asked, answers) if hasattr(step, "server_step") else None
        if after is None:
            continue
        assert after.round == asked.round + 1, f"the next state is of round {after.round}"
        for what, array in {"centers": after.centers, "weights": after.weights}.items():
            assert np.isfinite(array).all(), f"{what} of the next state hold NaN or infinity"
        for what, array in after.memory.items():
            assert not np.isnan(array).any(), f"{what} of the next state holds NaN"


def _allowed(step: Step, state: State, example: Example) -> None:
    """Parameters, and states that the server made, are what ``allowed`` declares; none is lost."""
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


def _convergence(step: Step, state: State, example: Example) -> None:
    """An algorithm converges once no centre moves, and not while centres move as at first.

    One that goes round in a circle has not converged, and breaks no law.
    """
    algorithm = cast(Algorithm, step)
    if not hasattr(step, "server_step") or state.round or not algorithm.needs_centers:
        return
    if not getattr(step, "converges", True):
        return
    moves: list[float] = []
    for _ in range(MOST_ROUNDS):
        after = _next(step, state, _answers(step, state, example))
        if after is None or after.centers.shape != state.centers.shape:
            return
        moves.append(float(np.abs(after.centers - state.centers).max(initial=0.0)))
        if state.converged:
            least = min(moves[-2:])
            assert least <= 0.1 * max(moves), (
                f"it says that it has converged after round {state.round}, which moved a centre by "
                f"{moves[-2]:g}, and the next one does by {moves[-1]:g}"
            )
            return
        still = max(moves[-STILL:]) <= 1e-12 * (1.0 + np.abs(after.centers).max(initial=0.0))
        assert len(moves) < STILL or not still or after.converged, (
            f"it has not converged after {STILL} rounds that moved no centre"
        )
        state = after


def _assign(step: Step, state: State, example: Example) -> None:
    """Where it assigns rows, each row for itself, and alike if its clusters have another order.

    From the second round on, when the server knows of clusters; the order of clusters is that of
    `canonical`, by the arrays of the memory that ``allowed`` declares.
    """
    if not isinstance(step, Assigns) or not state.weights.any():
        return
    X, every = example.data.X, Assignment(state, step)
    turned = canonical(state, cast(Algorithm, step))
    some = np.random.default_rng(1).permutation(len(X))[: len(X) // 2]
    given, alone = _shares(every, X), _shares(every, X[some])
    assert_allclose(alone, given[some], rtol=ROUNDING, atol=ROUNDING, err_msg="other rows matter")
    place = cdist(turned.centers, state.centers).argmin(axis=1)
    if len(np.unique(place)) == len(place):
        there = _shares(Assignment(turned, step), X)
        assert_allclose(there, given[:, place], rtol=1e-9, atol=1e-9, err_msg="order of clusters")


def _shares(assignment: Assignment, X: Rows) -> Floats:
    """Return the memberships of rows, 0 and 1 where they have labels."""
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
    """Compare all fields, to the last bit."""
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
        "support": _support,
        "single rows": _single_rows,
        "answers": _believable,
        "allowed": _allowed,
        "convergence": _convergence,
        "assign": _assign,
    }
)
"""What is checked, by name: two laws that a step declares, and those that every step keeps."""
