"""Plans of rounds, and the loop that carries them out: ask, server step, history, stop.

A *plan* is a generator: it yields the tasks of a round, receives their answers and returns its
result. It knows no engine. So runs compose: ``gather`` lets any number of plans share their
rounds, because on a real network a round costs seconds and its content nothing, and
``run_plan`` is the one place where an engine is asked.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from fedcluster.core import (
    Algorithm,
    Answers,
    Engine,
    Iteration,
    Metric,
    Result,
    RowTransform,
    State,
    Task,
)
from fedcluster.core.ranges import allowed_of
from fedcluster.core.task import sampled, stream
from fedcluster.engines.reply_validation import without_too_large
from fedcluster.errors import HeldBackError, SiteError

__all__ = ["Outcome", "Plan", "everyone", "gather", "iterate", "run", "run_plan", "server_update"]


LOGGER = logging.getLogger(__name__)


class EarlyStop(Exception):
    """Request thrown into a plan to finish with what it has."""


ENOUGH = "as the other fits were done"
"""Reason given for the end of a run whose plan was asked to finish."""


T = TypeVar("T")
Plan = Generator[list[Task], list[Answers], T]


def iterate(
    algorithm: Algorithm, start: State | None = None, *, seed: int = 0, max_rounds: int = 300
) -> Plan[Result]:
    """Plan one run of an algorithm: rounds from ``start`` until it has converged.

    Parameters
    ----------
    algorithm : Algorithm
        What each site and the server do in a round.
    start : State, optional
        The state to start from, by default an empty one.
    seed : int, default=0
        Determines every random choice, at the sites and at the server.
    max_rounds : int, default=300
        The largest number of rounds.

    Returns
    -------
    Plan of Result
        To be given to `run_plan` or `gather`.
    """
    state = State() if start is None else start
    history: list[Iteration] = []
    while len(history) < max_rounds:
        [answers] = yield [Task(algorithm, state, seed)]
        state, done = server_update(algorithm, state, answers, seed)
        history.append(done)
        if state.converged:
            break
    return Result(state, tuple(history), reason(state, len(history)), algorithm)


def reason(state: State, rounds: int, cut: str = "") -> str:
    """Return the reason why a run stopped, in words; ``cut`` if it was ended from outside."""
    counted = f"{rounds} round{'' if rounds == 1 else 's'}"
    if state.converged:
        return f"converged after {counted}"
    return f"stopped after {counted}, {cut}" if cut else f"stopped at the limit of {counted}"


def server_update(
    algorithm: Algorithm, state: State, answers: Answers, seed: int
) -> tuple[State, Iteration]:
    """Return the state after a server step (unchanged without answers) and the round's record."""
    if answers.by_site:
        new, answers = _stepped(algorithm, state, answers, seed)
    else:
        new = replace(state, round=state.round + 1)
    shift = float("nan")
    if new.centers.shape == state.centers.shape and len(new.centers):
        shift = float(np.sqrt(((new.centers - state.centers) ** 2).sum(axis=1).max()))
    return new, Iteration(
        round=new.round,
        step=type(algorithm).__name__,
        inertia=new.inertia,
        shift=shift,
        answered=answers.answered,
        missing=answers.missing,
        values_sent=answers.values_sent,
    )


def _stepped(
    algorithm: Algorithm, state: State, answers: Answers, seed: int
) -> tuple[State, Answers]:
    """Return a finite state, and the answers that it was computed from.

    If one answer makes the state not finite, the run continues without it if enough others remain.

    Raises
    ------
    SiteError
        If too few answers remain; the error names the site.
    ValueError
        If no single site is the cause.
    """
    whose = f"{type(algorithm).__name__}.server_step, round {state.round + 1},"

    def step(answers: Answers) -> State:
        made = algorithm.server_step(state, answers.summaries, stream(seed, state.round))
        if not isinstance(made, State):
            raise TypeError(f"{whose} returned {type(made).__name__}, not a State")
        return made

    new = step(answers)
    if np.isfinite(new.centers).all():
        return new, answers
    for name in answers.by_site if len(answers.by_site) > 1 else ():
        others = answers.without(name)
        with np.errstate(all="ignore"):
            new = step(others)
        if np.isfinite(new.centers).all():
            why = f"site {name!r}: with its answer, {whose} returned centres that are not finite"
            if not answers.n_spare:
                raise SiteError(f"{why}; a quorum lets the run go on without it")
            LOGGER.warning("%s; left out", why)
            return new, others
    raise ValueError(f"{whose} returned centres that are not finite: a mean over no rows?")


def gather(plans: Sequence[Plan[T]]) -> Plan[list[T]]:
    """Let plans share their rounds: each round carries the tasks of all unfinished plans."""
    results: dict[int, T] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(plans)))
    while answers:
        asked: dict[int, list[Task]] = {}
        for i, given in answers.items():
            try:
                asked[i] = plans[i].send(given)
            except StopIteration as stop:
                results[i] = stop.value
        every = iter((yield [task for tasks in asked.values() for task in tasks]) if asked else ())
        answers = {i: [next(every) for _ in tasks] for i, tasks in asked.items()}
    return [results[i] for i in range(len(plans))]


def with_preprocessing(plan: Plan[T], preprocessor: RowTransform | None) -> Plan[T]:
    """Let a plan ask about preprocessed rows, except where its tasks have a preprocessor.

    If missing values are ignored, steps that accept none are asked about rows with them filled in.
    """
    ignoring = preprocessor is not None and preprocessor.missing == "ignore"
    whole = preprocessor.completing() if preprocessor and ignoring else preprocessor

    def prepared(task: Task) -> Task:
        how = preprocessor if allowed_of(task.step).gaps else whole
        return task if task.preprocessor else replace(task, preprocessor=how)

    return each_task(plan, prepared)


def each_task(plan: Plan[T], change: Callable[[Task], Task]) -> Plan[T]:
    """Change each task of a plan; a request to finish is passed on to the plan."""
    try:
        tasks = next(plan)
        while True:
            try:
                answers = yield list(map(change, tasks))
            except EarlyStop as stop:
                tasks = plan.throw(stop)
            else:
                tasks = plan.send(answers)
    except StopIteration as stop:
        return cast(T, stop.value)


def everyone(plan: Plan[T]) -> Plan[T]:
    """Let a plan ask all sites in every round, even if the run asks only a sample.

    Examples
    --------
    >>> from fedcluster.metrics import Inertia
    >>> def scored():
    ...     return (yield [Task(Inertia(), State.at([[0.0]]))])
    >>> [task] = next(everyone(scored()))
    >>> task.everyone
    True
    """
    return each_task(plan, lambda task: replace(task, everyone=True))


class Listener(Protocol):
    """A listener to the rounds of a plan, which may change the answers that the plan receives."""

    @property
    def spare(self) -> int:
        """Number of sites with too large sums that the plan can do without."""

    def __call__(self, tasks: Sequence[Task], answers: list[Answers]) -> list[Answers]:
        """Return the answers that the plan receives."""


@dataclass(frozen=True, slots=True)
class CommunicationRound:
    """Record of one exchange with the sites: all tasks of a round together.

    Parameters
    ----------
    steps : tuple of str
        The name of the step of each task.
    answered, missing : tuple of str
        The sites that answered, and those that did not.
    values_sent : mapping of str to int
        The number of values that each site sent.
    """

    steps: tuple[str, ...]
    answered: tuple[str, ...]
    missing: tuple[str, ...]
    values_sent: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """Result of a plan, with all rounds and all steps that the sites were asked.

    Parameters
    ----------
    value : object
        The return value of the plan.
    communication_rounds : tuple of CommunicationRound
        The rounds in their order.
    steps : tuple of str
        The steps that were asked, each once, with all their parameters.
    """

    value: T
    communication_rounds: tuple[CommunicationRound, ...]
    steps: tuple[str, ...] = ()

    def after(self, earlier: Outcome[Any]) -> Self:
        """Return the same result preceded by the rounds and steps of an earlier plan."""
        return replace(
            self,
            communication_rounds=earlier.communication_rounds + self.communication_rounds,
            steps=tuple(dict.fromkeys(earlier.steps + self.steps)),
        )

    def values_sent(self) -> dict[str, int]:
        """Return the total number of values that each site sent."""
        alike: dict[tuple[str, ...], list[list[int]]] = {}  # exchanges, by the sites that answered
        for each in self.communication_rounds:
            alike.setdefault(tuple(each.values_sent), []).append(list(each.values_sent.values()))
        total: Counter[str] = Counter()
        for names, sent in alike.items():
            total.update(dict(zip(names, _added(sent), strict=True)))
        return dict(total)

    def account(self) -> list[dict[str, Any]]:
        """Return all exchanges in order, as JSON-compatible values that add up to `values_sent`.

        Returns
        -------
        list of dict
            ``round`` from 1; ``tasks``, the number of tasks by step; ``missing``, the sites that
            sent nothing; ``values_sent`` by site.

        Examples
        --------
        >>> from fedcluster import Client, Data, LocalEngine
        >>> from fedcluster.algorithms import Lloyd
        >>> sites = LocalEngine([Client("north", Data(np.array([[0.0], [1.0]])))])
        >>> runs = [iterate(Lloyd(), State.at([[start]]), max_rounds=1) for start in (0.0, 9.0)]
        >>> run_plan(gather(runs), sites).account()
        [{'round': 1, 'tasks': {'Lloyd': 2}, 'missing': [], 'values_sent': {'north': 6}}]
        """
        return [
            {
                "round": i,
                "tasks": dict(Counter(exchange.steps)),
                "missing": list(exchange.missing),
                "values_sent": dict(exchange.values_sent),
            }
            for i, exchange in enumerate(self.communication_rounds, start=1)
        ]


def run_plan(
    plan: Plan[T],
    engine: Engine,
    *,
    participation: float = 1.0,
    seed: int = 0,
    watch: Callable[[CommunicationRound], None] | None = None,
    listener: Listener | None = None,
) -> Outcome[T]:
    """Carry a plan out on an engine.

    Parameters
    ----------
    plan : Plan
        The plan.
    engine : Engine
        The engine that asks the sites.
    participation : float, default=1
        The fraction C of the sites that is asked in a round, a new sample each time but at least
        one site. A round with a task for `everyone` asks all sites.
    seed : int, default=0
        Determines the samples.
    watch : callable taking a CommunicationRound, optional
        Called with the record of each round, for instance for a progress bar.
    listener : Listener, optional
        Receives the answers of every round and returns those for the plan.

    Raises
    ------
    HeldBackError
        If the sites' limits hold back everything in the first exchange.
    SiteError
        If a site fails.
    """
    communication_rounds: list[CommunicationRound] = []
    steps: dict[str, None] = {}
    answers: Any = None
    names = [site.name for site in engine.introduce()]
    while True:
        try:
            tasks = plan.send(answers)
        except StopIteration as stop:
            return Outcome(stop.value, tuple(communication_rounds), tuple(steps))
        distinct = {id(task.step): task.step for task in tasks}
        steps.update(dict.fromkeys(map(repr, distinct.values())))
        share = 1.0 if any(task.everyone for task in tasks) else participation
        chosen = sampled(len(names), share, seed, len(communication_rounds))
        recipients = None if len(chosen) == len(names) else [names[i] for i in chosen]
        spare = 0 if listener is None else listener.spare
        answers = without_too_large(tasks, engine.ask(tasks, recipients), spare)
        communication_rounds.append(_exchange(tasks, answers))
        answers = answers if listener is None else listener(tasks, answers)
        if len(communication_rounds) == 1 and _is_nothing(communication_rounds[0], answers):
            assigned = any(task.preprocessor and task.preprocessor.assignments for task in tasks)
            raise HeldBackError(_who_held_back(engine, communication_rounds[0], assigned))
        if watch is not None:
            watch(communication_rounds[-1])


def _is_nothing(exchange: CommunicationRound, answers: Sequence[Answers]) -> bool:
    """Return whether no site sent anything; for masked answers, their total decides."""
    if answers[0].summed:
        return not any(each.weights.any() for answer in answers for each in answer.summaries)
    return not any(exchange.values_sent.values())


def _exchange(tasks: Sequence[Task], answers: Sequence[Answers]) -> CommunicationRound:
    """Return the record of one exchange."""
    names, sent = answers[0].answered, _added([answer.numbers_sent for answer in answers])
    steps = tuple(type(task.step).__name__ for task in tasks)
    return CommunicationRound(steps, names, answers[0].missing, dict(zip(names, sent, strict=True)))


def _added(numbers: Sequence[ArrayLike]) -> list[int]:
    """Return the sums, at each position, of several lists of whole numbers."""
    added: list[int] = np.array(numbers, dtype=np.int64).sum(axis=0).tolist()
    return added


def _who_held_back(engine: Engine, exchange: CommunicationRound, assigned: bool) -> str:
    """Return the message that explains why the first exchange brought nothing.

    Rows may belong to no cluster if the sites have ``assigned`` them.
    """
    if not exchange.answered:
        return f"no site answered in the first round: {', '.join(exchange.missing)} did not"
    by_limit: dict[str, list[str]] = {}
    for site in engine.introduce():
        if site.name in exchange.answered:
            limit = " and ".join(map(str, site.limits)) or "no limit"
            by_limit.setdefault(limit, []).append(site.name)
    limits = "; ".join(f"{limit} at {', '.join(names)}" for limit, names in by_limit.items())
    return (
        f"no site sent anything, every group of rows is smaller than its site's limit ({limits})"
        f"{' or belongs to no cluster of the model' * assigned}: "
        "lower the limit or ask for fewer clusters"
    )


def run(
    algorithm: Algorithm,
    engine: Engine,
    start: State | None = None,
    *,
    seed: int = 0,
    max_rounds: int = 300,
    participation: float = 1.0,
) -> Result:
    """Run one algorithm on an engine until it has converged: `run_plan` of `iterate`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster import Client, Data, LocalEngine
    >>> from fedcluster.algorithms import Lloyd
    >>> engine = LocalEngine(
    ...     [Client("north", Data(np.array([[0.0], [1.0]]))),
    ...      Client("south", Data(np.array([[8.0], [9.0], [10.0]])))]
    ... )
    >>> result = run(Lloyd(), engine, State.at(np.array([[0.0], [1.0]])))
    >>> result.state.centers.ravel(), result.reason
    (array([0.5, 9. ]), 'converged after 3 rounds')
    """
    plan = iterate(algorithm, start, seed=seed, max_rounds=max_rounds)
    return run_plan(plan, engine, participation=participation, seed=seed).value


def state_for(metric: Metric, state: State) -> State:
    """Return the state for a metric: the clusters, with the memory that it declares."""
    declared = allowed_of(metric).memory
    return replace(state, memory={n: a for n, a in state.memory.items() if n in declared})
