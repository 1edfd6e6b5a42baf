"""Mistakes planted in steps that are right but for one thing: `check_laws` notices each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from fedcluster.core import Data, Floats, Rows, State, Summary, Task
from fedcluster.extend import CENTERS, Allowed, Array, LineBounds, Means, Real, means, total
from fedcluster.metrics import Inertia
from fedcluster.testing import check_laws, check_preparation


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


def two_rows(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    """The mean of two rows in the first line: in a line of all rows, the others are two as well."""
    sums, first = s.sums.copy(), data.canonical().X[:2]
    if len(first) == 2 and s.weights[0]:
        sums[0] = first.mean(axis=0) * s.weights[0]
    return Summary(sums, s.weights, s.support)


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
    "puts two rows into the first line": client(two_rows, **APART),
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


CALLS: list[Any] = []


def sized(value: float) -> Client:
    """Return a change of the answer where rows are many."""
    return lambda s, _, data, *__: Summary(s.sums + value * (len(data) > 20), s.weights, s.support)


def counted_calls(s: Summary, *_: Any) -> Summary:
    CALLS.append(1)
    return Summary(s.sums * (1 + 1e-6 * len(CALLS)), s.weights, s.support)


def from_a_cache(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    kept: Summary = data.cache.setdefault("planted", s)
    return kept


def sorts_rows(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    data.X.sort(axis=0)
    return s


def clears_labels(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    if data.y is not None:
        np.asarray(data.y)[:] = 0
    return s


def reads_labels(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    some = 0.0 if data.y is None else 1e-3 * float(weights_of(data) @ np.asarray(data.y))
    return Summary(s.sums + some * (s.weights > 0)[:, None], s.weights, s.support)


def narrow_sums(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    near = ((data.X[:, None] - state.centers) ** 2).sum(axis=2).argmin(axis=1)
    sums = np.zeros(s.sums.shape, data.X.dtype)
    weights = weights_of(data).astype(data.X.dtype)
    np.add.at(sums, near, data.X * weights[:, None])
    return Summary(sums.astype(np.float64), s.weights, s.support)


def legacy_noise(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    np.random.seed(len(data))  # noqa: NPY002
    noise = np.random.random(s.sums.shape)  # noqa: NPY002
    return Summary(s.sums + noise * (s.weights > 0)[:, None], s.weights, s.support)


def squared_weights(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    return GOOD.client_step(state, replace(data, sample_weight=weights_of(data) ** 2), rng)


def clipped_weights(s: Summary, state: State, data: Data, rng: Any) -> Summary:
    weight = np.minimum(weights_of(data), 3.5)
    return GOOD.client_step(state, replace(data, sample_weight=weight), rng)


def round_trip(new: State, state: State, *_: Any) -> State:
    """Go round three places."""
    turn = np.array([0.0, 1.0, -1.0])[state.round % 3] - np.array([-1.0, 0.0, 1.0])[state.round % 3]
    return replace(new, centers=state.centers + turn, memory=new.memory, converged=False)


def unread(new: State, state: State, *_: Any) -> State:
    return replace(new, memory={"pace": state.memory.get("pace", new.memory["pace"])})


def late(new: State, state: State, *_: Any) -> State:
    """Move by the pace of the round before."""
    pace = state.memory.get("pace", np.ones_like(state.centers))
    return replace(new, centers=state.centers + pace)


def sums_of_sums(new: State, state: State, answers: Any, rng: Any) -> State:
    for answer in answers:
        answer.sums[:] = 0.0
    return new


PLANTS |= {
    "adds a number where a site has many rows": client(sized(1.0)),
    "counts its calls": client(counted_calls),
    "answers from the cache of another state": client(from_a_cache, **APART),
    "sorts the rows that it is given": client(sorts_rows),
    "clears the labels that it is given": client(clears_labels),
    "reads the labels of rows": client(reads_labels),
    "adds in 32 bits where rows have 32": client(narrow_sums),
    "seeds the generator of all programs": client(legacy_noise, **APART),
    "squares weights": client(squared_weights),
    "squares weights, and adds nothing up": client(squared_weights, **APART),
    "bounds weights": client(clipped_weights, **APART),
    "tells half of the rows, and none of a few": client(
        lambda s, *_: Summary(s.sums, s.weights, np.floor(s.rows / 20))
    ),
    "sends whole numbers": client(lambda s, *_: Summary(s.sums.astype(int), s.weights, s.support)),
    "sends columns the other way round": client(
        lambda s, *_: Summary(s.sums.T.copy(), s.weights[: s.sums.shape[1]], None)
    ),
    "sends one line more for many rows": client(
        lambda s, _, data, *__: (
            s
            if len(data) < 15
            else Summary(np.vstack([s.sums, s.sums[:1]]), np.append(s.weights, 0.0), None)
        )
    ),
    "goes round in a circle": server(round_trip),
    "goes to and fro": server(
        lambda new, state, *_: replace(
            new, centers=state.centers + (-1) ** state.round, converged=False
        )
    ),
    "trembles": server(
        lambda new, _, __, rng: replace(
            new, centers=new.centers + 1e-4 * rng.random(new.centers.shape), converged=False
        )
    ),
    "never ends, as its centres grow": server(
        lambda new, *_: replace(new, centers=new.centers * 1.001, converged=False)
    ),
    "converges in the second round": server(lambda new, *_: replace(new, converged=new.round >= 2)),
    "converges while centres move": server(
        lambda new, state, *_: replace(
            new, converged=bool(np.abs(new.centers - state.centers).max() > 1e-6)
        )
    ),
    "leaves the range of its memory in a late round": server(
        lambda new, *_: replace(
            new, memory={"pace": new.memory["pace"] + (2e6 if new.round > 6 else 0.0)}
        )
    ),
    "loses its memory in a late round": server(
        lambda new, *_: new if new.round < 6 else replace(new, memory={})
    ),
    "has a memory of the first round": server(unread),
    "moves by the memory of the round before": server(late),
    "keeps its centres": server(
        lambda new, state, *_: replace(
            new, centers=state.centers, weights=np.ones(len(state.centers))
        )
    ),
    "changes the answers that it is given": server(sums_of_sums),
    "draws from the generator of all programs": server(
        lambda new, *_: replace(
            new,
            inertia=float(np.random.random()),  # noqa: NPY002
        )
    ),
    "tells NaN as weights": server(
        lambda new, *_: replace(new, weights=np.full(len(new.weights), np.nan))
    ),
    "has a memory of 32 bits": server(
        lambda new, *_: replace(new, memory={"pace": new.memory["pace"][:, :1]})
    ),
    "counts the rounds twice": server(lambda new, *_: replace(new, round=new.round + 1)),
}


def assigning(rule: Callable[[Floats], Any]) -> Momentum:
    """Return the step that assigns rows by their squared distances to the centres, (n, k)."""

    def assign(self: Any, state: State, X: Rows) -> Any:
        return rule(((X[:, None] - state.centers) ** 2).sum(axis=2))

    return _known(type("Planted", (Momentum,), {"assign": assign}))


def remembering(change: Callable[[Floats], Floats]) -> Momentum:
    """Return the step with one more number in its memory, which changes in each round."""

    def more(new: State, state: State, *_: Any) -> State:
        return replace(
            new, memory={**new.memory, "heat": change(state.memory.get("heat", np.ones(1)))}
        )

    memory = {**GOOD.allowed.memory, "heat": Array(("one",), 0, 1e9)}
    return server(more, allowed=Allowed({"rate": Real(0, 1)}, CENTERS, memory, optional=True))


def shares(closeness: Floats) -> Floats:
    return closeness / closeness.sum(axis=1, keepdims=True)


PLANTS |= {
    "assigns the farthest centre": assigning(lambda squared: squared.argmax(axis=1)),
    "assigns the second centre": assigning(lambda squared: squared.argsort(axis=1)[:, 1]),
    "assigns the centre after the nearest": assigning(
        lambda squared: (squared.argmin(axis=1) + 1) % squared.shape[1]
    ),
    "assigns all rows to one centre": assigning(
        lambda squared: np.full(len(squared), squared.shape[1] - 1)
    ),
    "has larger memberships in farther clusters": assigning(shares),
    "says that it has converged, and cools": remembering(lambda heat: 0.95 * heat),
    "says that it has converged, and heats": remembering(lambda heat: np.minimum(2 * heat, 1e9)),
    "says that it has converged, and swings": remembering(lambda heat: 3.0 - heat),
    "tells one inertia": server(lambda new, *_: replace(new, inertia=1.0)),
    "tells an inertia of the round": server(lambda new, *_: replace(new, inertia=1.0 / new.round)),
    "tells the weight of the rows as inertia": server(
        lambda new, _, answers, *__: replace(new, inertia=float(total(answers).weights.sum()))
    ),
}


def test_the_step_without_a_mistake_is_right() -> None:
    check_laws(assigning(lambda squared: squared.argmin(axis=1)))
    check_laws(assigning(lambda squared: shares(1 / (1e-9 + squared))))
    check_laws(remembering(lambda count: count + 1))
    check_laws(remembering(lambda kept: kept))
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
        if self.how == "labels":
            far = float((np.asarray(data.y) > 0) @ weight)
        if self.how == "first":
            near = ((data.X - state.centers[0]) ** 2).sum(axis=1)
            far = (near > self.r) @ weight
        if self.how == "infinite":
            far = np.inf
        if self.how == "above":
            return Summary(np.array([[far]]), np.array([2 * weight.sum()]), np.array([rows]))
        support = np.array([2 * rows if self.how == "twice" else rows])
        return Summary(np.array([[far]]), np.array([weight.sum()]), support)

    def score(self, state: State, total: Summary) -> Any:
        share = float(total.sums[0, 0] / total.weights[0])
        if self.how == "changes":
            total.sums[:] = 0.0
        if self.how == "random":
            return share + float(np.random.default_rng().random())
        other = {"array": np.array([share, share]), "nan": np.nan, "none": None, "text": "high"}
        return other.get(self.how, share)


SCORES = ["first", "changes", "random", "array", "nan", "none", "text"]


@pytest.mark.parametrize("how", ["counts", "root", "infinite", "above", "twice", *SCORES])
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


@dataclass(frozen=True)
class OfAll(Momentum):
    """Gives each row a membership of 1 in each cluster."""

    def assign(self, state: State, X: Rows) -> Any:
        return np.ones((len(X), len(state.centers)))


def test_mistakes_in_what_a_step_may_declare_besides_are_noticed() -> None:
    with pytest.raises(AssertionError, match='breaks the law "answers"'):
        check_laws(Beyond())
    with pytest.raises(AssertionError, match='breaks the law "assign"'):
        check_laws(ByOthers())
    with pytest.raises(AssertionError, match="memberships of a row sum to more than 1"):
        check_laws(OfAll())


@dataclass(frozen=True)
class Roots:
    """Cube roots about those of the means; ``how`` says what is wrong with it."""

    how: str = ""
    middle: tuple[float, ...] = ()

    def names(self, names: Sequence[str]) -> list[str]:
        return [f"root of {name}" for name in names[1 if self.how == "names" else 0 :]]

    def fit(self, names: Sequence[str]) -> Any:
        [answers] = yield [Task(Means(), State())]
        sent = answers.total()
        if self.how == "one site":
            sent = next(iter(answers.summaries))
        middle = np.cbrt(sent.sums[:, 0] / sent.weights)
        if self.how == "drawn":
            middle += np.random.default_rng().random()
        return Roots(self.how, tuple(middle.tolist()))

    def apply(self, X: Floats) -> Floats:
        made: Floats = np.cbrt(X) - np.array(self.middle)
        wrong: dict[str, Callable[[], Floats]] = {
            "by others": lambda: made / np.abs(made).max(),
            "place": lambda: made + np.arange(len(X))[:, None],
            "noise": lambda: made + np.random.default_rng().random(),
            "legacy": lambda: made + 0.0 * np.random.random(),  # noqa: NPY002
            "in place": lambda: np.multiply(X, 2.0, out=X),
            "nan": lambda: np.where(made > 0, made, np.nan),
            "whole": lambda: np.round(made).astype(int),
            "no rows": lambda: made[made[:, 0] > 0],
        }
        return wrong.get(self.how, lambda: made)()

    def invert(self, X: Floats) -> Floats:
        if self.how == "inverse":
            return X**3
        if self.how == "inverse shape":
            return X[:, :1]
        return (X + np.array(self.middle)) ** 3

    def check(self, width: int) -> None:
        if self.how == "refuses all" or (width != len(self.middle) and self.how != "any width"):
            raise ValueError("middle has another width")


@dataclass(frozen=True)
class Listed:
    """Has a list, where a site makes a tuple of it."""

    scales: Any = field(default_factory=lambda: [2.0, 1.0])

    def names(self, names: Sequence[str]) -> list[str]:
        return list(names)

    def apply(self, X: Floats) -> Floats:
        return X * np.array(self.scales)

    def invert(self, X: Floats) -> Floats:
        return X / np.array(self.scales)

    def check(self, width: int) -> None:
        if width != 2:
            raise ValueError("for two columns")


WRONG = ["any width", "by others", "drawn", "in place", "inverse shape", "inverse", "legacy"]
WRONG += ["names", "nan", "no rows", "noise", "one site", "place", "refuses all", "whole"]


def test_a_preparation_without_a_mistake_is_right() -> None:
    check_preparation(Roots())


@pytest.mark.parametrize("how", WRONG)
def test_a_mistake_in_a_preparation_is_noticed(how: str) -> None:
    with pytest.raises(AssertionError, match="breaks the law"):
        check_preparation(Roots(how))


def test_a_preparation_that_cannot_travel_is_noticed() -> None:
    check_preparation(Listed((2.0, 1.0)))
    with pytest.raises(AssertionError, match='breaks the law "value"'):
        check_preparation(Listed())
