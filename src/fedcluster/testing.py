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
from dataclasses import dataclass, fields, is_dataclass
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fedcluster._assignment import Assignment
from fedcluster._random import stream
from fedcluster.algorithms import Lloyd
from fedcluster.algorithms.merging import total
from fedcluster.client import Client
from fedcluster.core import (
    Algorithm,
    Assigns,
    Data,
    Floats,
    Rows,
    State,
    Step,
    Summary,
    Task,
    check_step,
)
from fedcluster.engines import LocalEngine
from fedcluster.engines import _wire as wire
from fedcluster.errors import HeldBackError
from fedcluster.recipes.fit import canonical

__all__ = ["Example", "check_laws"]

ROUNDING = 1e-11
"""Relative difference that another order of adding may make."""


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
        Naming the step, the law, the round and the numbers that differ.
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
                except AssertionError as error:
                    place = f'{step!r} breaks the law "{law}" in round {state.round + 1}'
                    raise AssertionError(f"{place}: {error}") from error


def _rounds(step: Step, example: Example, state: State, n_rounds: int) -> Iterator[State]:
    """Yield the states that an algorithm is asked about in its first rounds; others stay."""
    for _ in range(n_rounds):
        yield state
        if not hasattr(step, "server_step"):
            return
        try:
            state = step.server_step(state, _answers(step, state, example), stream(0, state.round))
        except HeldBackError:  # too few rows for so many centres
            return


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


def _assert_close(a: Summary, b: Summary) -> None:
    scale = 1.0 + np.abs(a.sums).max(initial=0.0)
    assert_allclose(a.sums, b.sums, rtol=ROUNDING, atol=ROUNDING * scale, err_msg="sums")
    assert_allclose(a.weights, b.weights, rtol=ROUNDING, err_msg="weights")
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
        "assign": _assign,
    }
)
"""What is checked, by name: two laws that a step declares, and seven that every step keeps."""
