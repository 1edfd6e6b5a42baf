"""Mistakes planted in steps that are right but for one thing: `check_laws` notices each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from fedcluster.core import Data, Floats, Rows, State, Summary
from fedcluster.extend import CENTERS, Allowed, Array, LineBounds, Real, means, total
from fedcluster.metrics import Inertia
from fedcluster.testing import check_laws


def weights_of(data: Data) -> Floats:
    return np.ones(len(data)) if data.sample_weight is None else data.sample_weight


@dataclass(frozen=True)
class Momentum:
    """K-means with a momentum, right in every way; plants replace one of its parts."""

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True
    needs_centers: ClassVar[bool] = True
    min_cluster_size: ClassVar[int] = 1
    objective: ClassVar[Any] = Inertia
    allowed: ClassVar[Allowed] = Allowed(
        {"rate": Real(0, 1)}, CENTERS, {"pace": Array(("k", "d"), -1e6, 1e6)}, optional=True
    )
    rate: float = 0.2

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        return len(state.centers), n_columns

    def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Summary:
        near = ((data.X[:, None] - state.centers) ** 2).sum(axis=2).argmin(axis=1)
        belongs = (near[:, None] == np.arange(len(state.centers))).astype(float)
        weighed = belongs * weights_of(data)[:, None]
        return Summary(weighed.T @ data.X, weighed.sum(axis=0), belongs.sum(axis=0))

    def server_step(
        self, state: State, answers: Sequence[Summary], rng: np.random.Generator
    ) -> State:
        sent = total(answers)
        pace = state.memory.get("pace", np.zeros_like(state.centers))
        move = means(sent.sums, sent.weights, state.centers) - state.centers
        pace = self.rate * pace + (1 - self.rate) * move
        done = bool(np.abs(pace).max() < 1e-6)
        return State(
            state.centers + pace,
            sent.weights,
            round=state.round + 1,
            converged=done,
            memory={"pace": pace},
        )


GOOD = Momentum()
Client = Callable[[Summary, State, Data, np.random.Generator], Summary]
Server = Callable[[State, State, Sequence[Summary], np.random.Generator], State]


def client(change: Client, **more: Any) -> Momentum:
    """Return the step whose answer is changed."""

    def client_step(self: Any, state: State, data: Data, rng: np.random.Generator) -> Summary:
        return change(Momentum.client_step(self, state, data, rng), state, data, rng)

    kind = type("Planted", (Momentum,), {"client_step": client_step, **more})
    return _known(kind)


def server(change: Server, **more: Any) -> Momentum:
    """Return the step whose next state is changed."""

    def server_step(
        self: Any, state: State, answers: Sequence[Summary], rng: np.random.Generator
    ) -> State:
        return change(Momentum.server_step(self, state, answers, rng), state, answers, rng)

    kind = type("Planted", (Momentum,), {"server_step": server_step, **more})
    return _known(kind)


def _known(kind: Any) -> Momentum:
    kind.__module__ = "__main__"  # the law of pickling is not what is planted
    made: Momentum = kind()
    return made


def unweighted(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    return Momentum().client_step(state, replace(data, sample_weight=None), rng)


def half_weighted(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    plain = Momentum().client_step(state, replace(data, sample_weight=None), rng)
    return Summary(plain.sums, s.weights, s.support)


def extremes(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    sums = s.sums.copy()
    sums[s.weights > 0] = data.X[np.lexsort(data.X.T)[-1]]
    return Summary(sums, s.weights, s.support)


def first_row_beside(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    sums = np.column_stack([s.sums, np.where(s.weights > 0, data.X[:, 0].max(), 0.0)])
    return Summary(sums, s.weights, s.support)


def row_in_digits(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    weight = s.weights + np.where(s.weights > 0, 1e-3 * data.X[:, 0].min(), 0.0)
    return Summary(s.sums, weight, s.support)


def every_row(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    order = np.lexsort(data.X.T)
    return Summary(data.X[order].astype(float), weights_of(data)[order], np.full(len(data), 9.0))


def honest_rows(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    order = np.lexsort(data.X.T)
    return Summary(data.X[order].astype(np.float64), weights_of(data)[order], np.ones(len(data)))


def global_noise(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    return Summary(
        s.sums + np.random.default_rng().random() * (s.weights > 0)[:, None], s.weights, s.support
    )


def not_a_number(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    with np.errstate(invalid="ignore"):
        return Summary(s.sums / s.weights[:, None] * s.weights[:, None], s.weights, s.support)


def plain_division(new: State, state: State, answers: Any, rng: Any) -> State:
    sent = total(answers)
    with np.errstate(invalid="ignore", divide="ignore"):
        return replace(new, centers=sent.sums / sent.weights[:, None])


def changes_given(new: State, state: State, answers: Any, rng: Any) -> State:
    state.centers[:] = new.centers
    return new


APART: dict[str, Any] = {"client_additive": False, "server_additive": False}
WIDE: dict[str, Any] = {"answer_shape": lambda self, state, d: (len(state.centers), d + 1)}
ANY: dict[str, Any] = {"answer_shape": lambda self, state, d: (None, d)}
MEDIAN = "the median of the rows"
PLANTS: dict[str, Momentum] = {
    "ignores sample_weight": client(unweighted),
    "ignores sample_weight, and adds nothing up": client(unweighted, **APART),
    "weighs weights but not sums": client(half_weighted),
    "tells no support": client(lambda s, *_: Summary(s.sums, s.weights)),
    "tells weights as support": client(lambda s, *_: Summary(s.sums, s.weights, s.weights)),
    "tells all rows as support": client(
        lambda s, _, data, *__: Summary(s.sums, s.weights, np.full(len(s.weights), 1.0 * len(data)))
    ),
    "tells a large support": client(
        lambda s, *_: Summary(s.sums, s.weights, np.full(len(s.weights), 100.0))
    ),
    "has a support of one number": client(
        lambda s, *_: Summary(s.sums, s.weights, np.array([s.support.sum()]))
    ),
    "puts the largest row into each line": client(extremes, **APART),
    "puts a row beside sums": client(first_row_beside, **APART, **WIDE),
    "hides a row in the weights": client(row_in_digits, **APART),
    "sends every row as a line, with a false support": client(every_row, **APART, **ANY),
    "sends every row as a line": client(honest_rows, **APART, **ANY),
    "sends medians": client(
        lambda s, _, data, *__: Summary(
            np.where(s.weights > 0, 1.0, 0.0)[:, None] * np.median(data.X, axis=0),
            s.weights,
            s.support,
        ),
        **APART,
    ),
    "sends means as sums": client(
        lambda s, *_: Summary(s.sums / np.maximum(s.weights, 1)[:, None], s.weights, s.support)
    ),
    "sends negative weights": client(lambda s, *_: Summary(s.sums, -s.weights, s.support)),
    "sends sums of empty lines": client(lambda s, *_: Summary(s.sums + 1.0, s.weights), **APART),
    "sends NaN for an empty cluster": client(not_a_number),
    "sends float32": client(lambda s, *_: Summary(s.sums.astype(np.float32), s.weights, s.support)),
    "draws from a generator of its own": client(global_noise, **APART),
    "declares another shape": client(lambda s, *_: s, **WIDE),
    "tells the order of rows": client(
        lambda s, _, data, *__: Summary(s.sums + data.X[0] * (s.weights > 0)[:, None], s.weights),
        **APART,
    ),
    "loses its memory": server(lambda new, *_: replace(new, memory={})),
    "loses its memory in the second round": server(
        lambda new, *_: new if new.round < 2 else replace(new, memory={})
    ),
    "keeps a memory that it does not declare": server(
        lambda new, *_: replace(new, memory={**new.memory, "more": np.ones(1)})
    ),
    "leaves the range of its memory": server(
        lambda new, *_: replace(new, memory={"pace": new.memory["pace"] + 2e6})
    ),
    "leaves the range of its centres": server(
        lambda new, *_: replace(new, centers=new.centers[:0], weights=new.weights[:0])
    ),
    "has a default beyond its range": _known(
        type(
            "Planted",
            (Momentum,),
            {"allowed": Allowed({"rate": Real(0.5, 1)}, CENTERS, GOOD.allowed.memory, True)},
        )
    ),
    "never converges": server(lambda new, *_: replace(new, converged=False)),
    "always converges": server(lambda new, *_: replace(new, converged=True)),
    "makes NaN of an empty cluster": server(plain_division),
    "forgets the round": server(lambda new, *_: replace(new, round=0)),
    "counts the sites": server(
        lambda new, _, answers, *__: replace(new, centers=new.centers + len(answers))
    ),
    "changes the state that it is given": server(changes_given),
    "draws the next state": server(
        lambda new, *_: replace(new, centers=new.centers + np.random.default_rng().random())
    ),
}


def test_the_step_without_a_mistake_is_right() -> None:
    check_laws(GOOD)
    check_laws(client(lambda s, *_: s))
    check_laws(server(lambda new, *_: new, **APART))


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_mistake_is_noticed(plant: str) -> None:
    with pytest.raises(AssertionError, match="breaks the law"):
        check_laws(PLANTS[plant])


@dataclass(frozen=True)
class Far:
    """The share of rows far from every centre; ``how`` says what is wrong with it."""

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True
    maximise: ClassVar[bool] = False
    how: str = ""
    r: float = 1.0

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        return 1, 1

    def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Summary:
        distance = np.sqrt(((data.X[:, None] - state.centers) ** 2).sum(axis=2).min(axis=1))
        weight = weights_of(data)
        far, rows = (distance > self.r) @ weight, float(len(data))
        if self.how == "counts":
            far = float((distance > self.r).sum())
        if self.how == "root":
            far = np.sqrt(far)
        if self.how == "infinite":
            far = np.inf
        if self.how == "above":
            return Summary(np.array([[far]]), np.array([2 * weight.sum()]), np.array([rows]))
        support = np.array([2 * rows if self.how == "twice" else rows])
        return Summary(np.array([[far]]), np.array([weight.sum()]), support)

    def score(self, state: State, total: Summary) -> float:
        return float(total.sums[0, 0] / total.weights[0])


@pytest.mark.parametrize("how", ["counts", "root", "infinite", "above", "twice"])
def test_a_mistake_in_a_metric_is_noticed(how: str) -> None:
    check_laws(Far())
    with pytest.raises(AssertionError, match="breaks the law"):
        check_laws(Far(how))


@dataclass(frozen=True)
class Beyond(Far):
    """Distances, with bounds that they leave."""

    def line_bounds(self, state: State, box: Any) -> Any:
        return LineBounds(np.zeros(1), np.full(1, 0.01))


@dataclass(frozen=True)
class ByOthers(Momentum):
    """Assigns a row by the rows beside it."""

    def assign(self, state: State, X: Rows) -> Any:
        centred = X - X.mean(axis=0)
        return (centred[:, :1] > 0).astype(int)[:, 0]


def test_mistakes_in_what_a_step_may_declare_besides_are_noticed() -> None:
    with pytest.raises(AssertionError, match='breaks the law "answers"'):
        check_laws(Beyond())
    with pytest.raises(AssertionError, match='breaks the law "assign"'):
        check_laws(ByOthers())
