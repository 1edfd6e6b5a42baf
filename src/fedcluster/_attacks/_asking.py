"""Attacks by single questions: answers that are rows, and sums that are subtracted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedcluster._attacks._coordinator import Coordinator, Public
from fedcluster._attacks._search import below_of, between, far_centers, total_of, two_sides
from fedcluster.algorithms import FFCM, FKM, FedAvg, Lloyd, VarianceTree
from fedcluster.core import Floats, State, Step, Summary, Task
from fedcluster.metrics.clusters import Inertia, Scatter
from fedcluster.metrics.external import Contingency
from fedcluster.metrics.moments import Means
from fedcluster.metrics.silhouettes import SimplifiedSilhouette
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing._columns import Category
from fedcluster.preprocessing._moments import Covariance, Principal
from fedcluster.preprocessing._quantiles import histogram_task

SEEDS = 3000
NOTHING = "(nothing)"
LEVELS = 50
"""Levels of one question."""
NEARLY_HARD = 1.00002
"""A fuzzifier m near 1."""
FAR = 1e4
"""Distance of a centre, in widths of the column's range."""


def means_of(answers: list[Summary | None], public: Public) -> Floats:
    """Return the lines of answers, divided by their weights, as claims."""
    lines = [
        answer.sums[:, : len(public.numbers)][answer.weights > 0]
        / answer.weights[answer.weights > 0][:, None]
        for answer in answers
        if answer is not None
    ]
    return public.records(np.concatenate([np.empty((0, len(public.numbers))), *lines]))


def seeds_that_are_rows(coordinator: Coordinator) -> Floats:
    """Ask for seeds before any iteration: each is a row."""
    public = coordinator.public
    step, how = FKM(1, client_init="random", init_iterations=0), public.plain()
    n = min(SEEDS, 8 * public.n_rows)
    return means_of(coordinator.ask([Task(step, State(), seed, how) for seed in range(n)]), public)


def batches_of_one(coordinator: Coordinator) -> Floats:
    """Ask for mini-batches of one row with a rate that makes the last row the centre."""
    public = coordinator.public
    total = total_of(coordinator)
    rate = float(public.n_rows if total is None else total[-1])
    step, how = FedAvg(batch_size=1, client_rate=rate), public.plain()
    state, n = State.at(public.middle[None, :]), min(SEEDS, 8 * public.n_rows)
    return means_of(coordinator.ask([Task(step, state, seed, how) for seed in range(n)]), public)


def _along(coordinator: Coordinator, j: int, make: object, d: int, how: Preprocessor) -> Floats:
    """Return claims from sums over the rows between thresholds of column j."""
    public, total = coordinator.public, total_of(coordinator, how)
    if total is None:
        return public.claims(0)
    ask = below_of(coordinator, make, two_sides(total, d))  # type: ignore[arg-type]
    _, sums = between(ask, public.low[j], public.high[j], public.step[j])
    return public.records(sums[:, :d] / sums[:, -1:])


def _each(claims: Iterator[Floats], public: Public) -> Floats:
    return np.concatenate([public.claims(0), *claims])


def far_centres(coordinator: Coordinator) -> Floats:
    """Ask for Lloyd's sums about two far centres at many places, and subtract."""
    public, how = coordinator.public, coordinator.public.plain()

    def claims(j: int) -> Floats:
        def task(at: float) -> Task:
            centers = far_centers(public.middle, j, at, 2 * public.width[j])
            return Task(Lloyd(), centers, preprocessor=how)

        return _along(coordinator, j, task, len(public.numbers), how)

    return _each(map(claims, public.widest), public)


def thresholds_of_a_tree(coordinator: Coordinator) -> Floats:
    """Ask for the two leaves of a variance tree with one cut at many places, and subtract."""
    public, how = coordinator.public, coordinator.public.plain()
    reference, nothing = np.array([public.middle, public.middle]), np.zeros(2)

    def claims(j: int) -> Floats:
        def task(at: float) -> Task:
            cut = {"parent": 0, "child": 1, "feature": j, "threshold": at}
            memory = {name: np.array([float(value)]) for name, value in cut.items()}
            memory |= dict.fromkeys(("undone", "column", "value"), nothing)
            memory["pass"] = np.zeros(1)
            state = State(reference, nothing, memory=memory)
            return Task(VarianceTree(2), state, preprocessor=how)

        return _along(coordinator, j, task, len(public.numbers), how)

    return _each(map(claims, public.widest), public)


def fuzzy_near_hard(coordinator: Coordinator) -> Floats:
    """Ask for fuzzy sums whose fuzzifier is nearly 1 about two far centres, and subtract."""
    public, how = coordinator.public, coordinator.public.plain()

    def claims(j: int) -> Floats:
        def task(at: float) -> Task:
            centers = far_centers(public.middle, j, at, 2 * public.width[j])
            return Task(FFCM(m=NEARLY_HARD), centers, preprocessor=how)

        return _along(coordinator, j, task, len(public.numbers), how)

    return _each(map(claims, public.widest[:1]), public)


def random_directions(coordinator: Coordinator) -> Floats:
    """Turn the columns as principal components may, and cut along a direction of their own."""
    public, d = coordinator.public, len(coordinator.public.numbers)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    columns = [public.column(j, shift=m, scale=s) for j, (m, s) in enumerate(_units(public))]
    principal = Principal((0.0,) * d, tuple(map(tuple, turn.tolist())), (1.0,) * d)
    how, reach = Preprocessor(tuple(columns), principal=principal), float(np.sqrt(d))
    total = total_of(coordinator, how)
    if total is None:
        return public.claims(0)

    def task(at: float) -> Task:
        return Task(Lloyd(), far_centers(np.zeros(d), 0, at, 4 * reach), preprocessor=how)

    ask = below_of(coordinator, task, two_sides(total, d))
    _, sums = between(ask, -reach, reach, 1e-6)
    return public.records((sums[:, :d] / sums[:, -1:]) @ turn * public.width + public.middle)


def _units(public: Public) -> list[tuple[float, float]]:
    return list(zip(public.middle.tolist(), public.width.tolist(), strict=True))


def clipped_products(coordinator: Coordinator) -> Floats:
    """Clip a column to 0 and 1 at many places, and ask for its products with the others."""
    public, d = coordinator.public, len(coordinator.public.numbers)

    def claims(j: int) -> Floats:
        edge = float(public.step[j]) / 8
        others = [public.column(i) for i in range(d) if i != j]

        def task(at: float) -> Task:
            clipped = public.column(j, bounds=(at, at + edge), fill=at, shift=at, scale=edge)
            how = Preprocessor((clipped, *others))
            return Task(Covariance(), State.at(np.zeros((1, d))), preprocessor=how)

        def read(answer: Summary) -> Floats:  # the rows above, as a negative number below
            return -np.append(answer.sums[0, 1:], answer.sums[0, 0])

        ask = below_of(coordinator, task, read)
        middles, sums = between(ask, public.low[j], public.high[j], public.step[j])
        found = public.claims(len(sums))
        if not len(found):
            return found
        found[:, [i for i in range(d) if i != j]] = sums[:, :-1] / sums[:, -1:]
        found[:, j] = (middles / public.step[j]).round() * public.step[j]
        return found

    return _each(map(claims, public.widest), public)


def rare_texts(coordinator: Coordinator) -> Floats:
    """Guess texts that single rows have, and ask for their products with the numbers."""
    public = coordinator.public
    numbers = tuple(public.column(j) for j in range(len(public.numbers)))
    hows = [
        Preprocessor((_category(name, levels[i : i + LEVELS]), *numbers))
        for name, levels in public.texts.items()
        for i in range(0, len(levels), LEVELS)
    ]
    return _products(coordinator, hows)


def guessed_numbers(coordinator: Coordinator) -> Floats:
    """Call a column of numbers text, with guesses for levels, and ask for their products."""
    public = coordinator.public
    numbers = tuple(public.column(j) for j in range(len(public.numbers)))
    hows = []
    for j in public.widest:
        steps = int(min(public.width[j] / public.step[j], 4000))
        guesses = public.low[j] + public.step[j] * np.arange(steps + 1)
        names = tuple(_written(guess) for guess in guesses.round(6).tolist())
        hows += [
            Preprocessor((_category(public.numbers[j], names[i : i + LEVELS]), *numbers))
            for i in range(0, len(names), LEVELS)
        ]
    return _products(coordinator, hows)


def _category(name: str, levels: tuple[str, ...]) -> Category:
    """Return the preparation of a column of text; what is missing has a level of its own."""
    return Category(name, (*levels, NOTHING), fill=NOTHING)


def _written(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _products(coordinator: Coordinator, hows: list[Preprocessor]) -> Floats:
    """Return the mean of the numbers over the rows of each level, as claims."""
    tasks = [
        Task(Covariance(), State.at(np.zeros((1, how.n_columns_out))), preprocessor=how)
        for how in hows
    ]
    claims, d = [coordinator.public.claims(0)], len(coordinator.public.numbers)
    for answer in coordinator.ask(tasks):
        if answer is not None:
            levels = len(answer.sums) - d
            times = np.diag(answer.sums)[: levels - 1]
            some = times > 0.5
            sums = answer.sums[: levels - 1, levels:][some] / times[some][:, None]
            claims.append(coordinator.public.records(sums))
    return np.concatenate(claims)


def products_of_columns(coordinator: Coordinator) -> Floats:
    """Weigh all rows by what a column, or a difference of two, has beyond its least value."""
    public, d = coordinator.public, len(coordinator.public.numbers)
    answer = coordinator.ask_one(Covariance(), State.at(np.zeros((1, d))), public.plain())
    total = total_of(coordinator)
    if answer is None or total is None:
        return public.claims(0)
    least = public.low + 3 * public.step
    one = answer.sums - least[:, None] * total[:-1]
    weight = total[:-1] - least * total[-1]
    pairs = [(i, j) for i in range(d) for j in range(d) if i != j]
    sums = [*one, *(one[i] - one[j] for i, j in pairs)]
    weights = [*weight, *(weight[i] - weight[j] for i, j in pairs)]
    claims = [s / w for s, w in zip(sums, weights, strict=True) if abs(w) > 1e-9]
    return public.records(np.array(claims).reshape(len(claims), d))


def missing_values(coordinator: Coordinator) -> Floats:
    """Fill a column in with two values, and subtract its products with the others."""
    public, d = coordinator.public, len(coordinator.public.numbers)
    fills = (0.0, 1.0)
    hows = [
        replace(
            public.plain(),
            columns=tuple(public.column(j, **({"fill": f} if j == i else {})) for j in range(d)),
        )
        for i in range(d)
        for f in fills
    ]
    tasks = [Task(Covariance(), State.at(np.zeros((1, d))), preprocessor=how) for how in hows]
    means = [Task(Means(), preprocessor=how, state=State()) for how in hows]
    answers, counted = coordinator.ask(tasks), coordinator.ask(means)
    claims = public.claims(d)
    for i in range(d):
        zero, one = answers[2 * i : 2 * i + 2]
        none, each = counted[2 * i : 2 * i + 2]
        if zero is None or one is None or none is None or each is None:
            continue
        n = float(each.sums[i, 0] - none.sums[i, 0])
        if n > 0.5:
            claims[i, :-1] = (one.sums[i] - zero.sums[i]) / n
            claims[i, i] = np.nan
    return claims


def nested_intervals(coordinator: Coordinator) -> Floats:
    """Ask for the weight of cells that become ever smaller: values of each column."""
    public, how = coordinator.public, coordinator.public.plain()
    sums = total_of(coordinator)
    total = 0.0 if sums is None else float(sums[-1])

    def claims(j: int) -> Floats:
        def below(at: Floats) -> Floats | None:
            edges = [np.array([-np.inf, t, np.inf]) for t in at]
            task = replace(histogram_task([j] * len(at), edges), preprocessor=how)
            [answer] = coordinator.ask([task])
            if answer is None:
                return None
            first, second = answer.weights.reshape(-1, 2).T
            return np.asarray(np.where(second > 0, total - second, first)[:, None])

        middles, _ = between(below, public.low[j], public.high[j], public.step[j])
        found = public.claims(len(middles))
        found[:, j] = (middles / public.step[j]).round() * public.step[j]
        return found

    return _each(map(claims, public.widest), public)


def kinks_of_indices(coordinator: Coordinator) -> Floats:
    """Move a centre along a column: distances have a kink at each row, in three indices."""
    return _each(
        (_kinks(coordinator, step) for step in (Scatter(), Inertia(), SimplifiedSilhouette())),
        coordinator.public,
    )


def _kinks(coordinator: Coordinator, step: Step) -> Floats:
    """Return the values of the widest column from the slopes of an index."""
    public, j = coordinator.public, coordinator.public.widest[0]
    width, unit = float(public.width[j]), float(public.step[j])
    how, apart = Preprocessor((public.column(j),)), 1e-3 * unit
    total = total_of(coordinator, how)
    if total is None:
        return public.claims(0)
    far = 2 * width if isinstance(step, Inertia) else FAR * width
    lone = isinstance(step, Scatter)

    def below(at: Floats) -> Floats | None:
        places = np.concatenate([at - apart, at + apart])
        centers = [[[t]] if lone else [[t - far], [t + far]] for t in places]
        answers = coordinator.ask([Task(step, State.at(c), preprocessor=how) for c in centers])
        if any(answer is None for answer in answers):
            return None
        value = np.array([answer.sums.sum(axis=0)[-1] for answer in answers if answer is not None])
        if isinstance(step, Inertia):  # sum of (|x - t| - far)^2
            value = (-2 * places * total[0] + total[-1] * places**2 - value) / (2 * far)
        elif not lone:  # sum of 2 |x - t| / (far + |x - t|), nearly
            value = value * far / 2
        slope = np.diff(value.reshape(2, -1), axis=0)[0] / (2 * apart)
        return np.asarray(np.round((slope + total[-1]) / 2, 2)[:, None])

    middles, _ = between(below, public.low[j], public.high[j], unit)
    found = public.claims(len(middles))
    found[:, j] = (middles / unit).round() * unit
    return found


def labels_at_cuts(coordinator: Coordinator) -> Floats:
    """Ask how many rows of each label are below many places of a column, and subtract."""
    public, how = coordinator.public, coordinator.public.plain()
    told = _labels_told(coordinator)
    if not told:
        return public.claims(0)
    step = Contingency.from_classes(told, complete=False)
    place = np.array([public.classes.index(name) for name in step.names])

    def claims(j: int) -> Floats:
        def task(at: float) -> Task:
            centers = far_centers(public.middle, j, at, 2 * public.width[j])
            return Task(step, centers, preprocessor=how)

        def read(answer: Summary) -> Floats:
            counts = answer.weights.reshape(2, -1)[0]
            return np.append(counts, counts.sum())

        ask = below_of(coordinator, task, read)
        middles, sums = between(ask, public.low[j], public.high[j], public.step[j])
        found = public.claims(len(sums))
        if not len(found):
            return found
        found[:, j] = (middles / public.step[j]).round() * public.step[j]
        found[:, -1] = place[sums[:, :-1].argmax(axis=1)] if len(sums) else np.nan
        return found

    return _each(map(claims, public.widest), public)


def _labels_told(coordinator: Coordinator) -> tuple[str, ...]:
    """Return the labels that the site answers about: all that there may be."""
    public = coordinator.public
    if not public.classes:
        return ()
    step = Contingency.from_classes(public.classes, complete=False)
    answer = coordinator.ask_one(step, State.at(public.middle[None, :]), public.plain())
    return () if answer is None else public.classes
