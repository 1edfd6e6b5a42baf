"""Attacks by single questions: answers that are rows, and sums that are subtracted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from fedcluster.algorithms import FFCM, FKM, FedAvg, Lloyd, VarianceTree
from fedcluster.core import Floats, State, Step, Summary, Task
from fedcluster.metrics.clusters import Inertia, Scatter
from fedcluster.metrics.external import Agreement, Contingency
from fedcluster.metrics.leaves import LeafMoments
from fedcluster.metrics.moments import Means, Moments
from fedcluster.metrics.silhouettes import SimplifiedSilhouette
from fedcluster.model.assigned_rows import AssignedRows
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing.columns import Category
from fedcluster.preprocessing.moments import Covariance, Principal, histogram_task
from fedcluster.preprocessing.site_effects import SiteEffects
from fedcluster_app.audit._site import Coordinator, Public

Below = Callable[[Floats], Floats | None]
"""Function that returns, for thresholds (t,), the sums over the rows below, weight last."""


def between(
    below: Below,
    low: float,
    high: float,
    step: float,
    *,
    first: int = 257,
    most: int = 12_000,
    rounds: int = 14,
) -> tuple[Floats, Floats]:
    """Return sums over the rows between neighbouring thresholds, and the middles of these.

    Intervals with more than one row are divided until they are narrower than a step.

    Parameters
    ----------
    below : callable
        Asks for the sums below thresholds; returns None if refused.
    low, high, step : float
        The range of the column, and the smallest difference of two values.
    first : int
        Number of thresholds in the first message of a search.
    most : int
        Largest number of thresholds in a search.

    Returns
    -------
    middles : ndarray of shape (i,)
        The middles of the intervals that contain rows.
    sums : ndarray of shape (i, p)
        The sums over their rows, with the weight last.
    """
    at = np.linspace(low - step / 2, high + step / 2, first)
    known = below(at)
    for _ in range(rounds):
        if known is None or len(at) >= most:
            break
        apart = np.diff(known[:, -1])
        wide = (apart > 1.5) & (np.diff(at) > step * 0.6)
        cuts = (at[:-1] + np.diff(at) / 2)[wide][: most - len(at)]
        if not len(cuts):
            break
        more = below(cuts)
        if more is None:
            break
        order = np.argsort(np.append(at, cuts), kind="stable")
        at, known = np.append(at, cuts)[order], np.concatenate([known, more])[order]
    if known is None:
        return np.empty(0), np.empty((0, 1))
    sums = np.diff(known, axis=0)
    some = sums[:, -1] > 0.5
    return (at[:-1] + np.diff(at) / 2)[some], sums[some]


def below_of(
    coordinator: Coordinator, task: Callable[[float], Task], read: Callable[[Summary], Floats]
) -> Below:
    """Return a function that asks one task for each threshold.

    Parameters
    ----------
    coordinator : Coordinator
        The attacking coordinator.
    task : callable
        Returns the task for a threshold.
    read : callable
        Returns the sums below the threshold from the answer, with the weight last.
    """

    def below(at: Floats) -> Floats | None:
        answers = coordinator.ask([task(float(t)) for t in at])
        if any(answer is None for answer in answers):
            return None
        return np.array([read(answer) for answer in answers if answer is not None])

    return below


def two_sides(total: Floats, d: int) -> Callable[[Summary], Floats]:
    """Return a function that reads the sums below from two lines, one possibly held back.

    Parameters
    ----------
    total : ndarray of shape (d + 1,)
        The sums over all rows, with the weight last.
    d : int
        The number of relevant sums in a line.
    """

    def read(answer: Summary) -> Floats:
        below, above = np.column_stack([answer.sums[:, :d], answer.weights])[:2]
        return np.asarray(total - above if above[-1] > 0 else below)

    return read


def total_of(coordinator: Coordinator, how: Preprocessor | None = None) -> Floats | None:
    """Return the sums over all prepared rows, (d + 1,), with the weight last."""
    public = coordinator.public
    answer = coordinator.ask_one(Moments(), State(), how or public.plain())
    if answer is None or not answer.weights.any():
        return None
    d = answer.sums.shape[1] // 2
    return np.append(answer.sums[0, :d], answer.weights[0])


def far_centers(public: Public, j: int, at: float) -> State:
    """Return two far centres that separate the rows at a point in column j."""
    centers = np.array([public.middle, public.middle])
    centers[:, j] = at - 2 * public.width[j], at + 2 * public.width[j]
    return State.at(centers)


SEEDS = 3000
NOTHING = "(nothing)"


def _seeded(coordinator: Coordinator, step: Step, state: State) -> Floats:
    """Return the lines of the answers for many seeds, divided by their weights, as claims."""
    public, how = coordinator.public, coordinator.public.plain()
    n = min(SEEDS, 8 * public.n_rows)
    lines = [np.empty((0, len(public.numbers)))]
    for answer in coordinator.ask([Task(step, state, seed, how) for seed in range(n)]):
        if answer is not None:
            some = answer.weights > 0
            lines.append(answer.sums[some, : len(public.numbers)] / answer.weights[some][:, None])
    return public.records(np.concatenate(lines))


def seeds_that_are_rows(coordinator: Coordinator) -> Floats:
    """Ask for seeds before any iteration, each of which is a row."""
    return _seeded(coordinator, FKM(1, client_init="random", init_iterations=0), State())


def batches_of_one(coordinator: Coordinator) -> Floats:
    """Ask for mini-batches of one row, with a rate at which the last row becomes the centre."""
    public, total = coordinator.public, total_of(coordinator)
    rate = float(public.n_rows if total is None else total[-1])
    step = FedAvg(batch_size=1, client_rate=rate)
    return _seeded(coordinator, step, State.at(public.middle[None, :]))


def _cut(
    coordinator: Coordinator,
    columns: Sequence[int],
    step: Step,
    state: Callable[[Public, int, float], State] = far_centers,
) -> Floats:
    """Return claims from sums over the rows between many points of some columns.

    Parameters
    ----------
    coordinator : Coordinator
        The attacking coordinator.
    columns : sequence of int
        The columns to divide.
    step : Step
        The step whose sums are requested.
    state : callable
        Returns the state that separates the rows at a point in a column.
    """
    public, how = coordinator.public, coordinator.public.plain()
    d, claims = len(public.numbers), [public.claims(0)]
    for j in columns:
        if (total := total_of(coordinator, how)) is not None:

            def task(at: float, j: int = j) -> Task:
                return Task(step, state(public, j, at), preprocessor=how)

            ask = below_of(coordinator, task, two_sides(total, d))
            _, sums = between(ask, public.low[j], public.high[j], public.step[j])
            claims.append(public.records(sums[:, :d] / sums[:, -1:]))
    return np.concatenate(claims)


def far_centres(coordinator: Coordinator) -> Floats:
    """Ask for Lloyd's sums about two far centres that divide at many points, and subtract."""
    return _cut(coordinator, coordinator.public.widest, Lloyd())


def thresholds_of_a_tree(coordinator: Coordinator) -> Floats:
    """Ask for the leaves of a variance tree with one cut, at many points, and subtract."""

    def state(public: Public, j: int, at: float) -> State:
        cut = {"parent": 0, "child": 1, "feature": j, "threshold": at}
        memory = {name: np.array([float(value)]) for name, value in cut.items()}
        memory |= dict.fromkeys(("undone", "column", "value"), np.zeros(2))
        memory["pass"] = np.zeros(1)
        return State(np.array([public.middle, public.middle]), np.zeros(2), memory=memory)

    return _cut(coordinator, coordinator.public.widest, VarianceTree(2), state)


def moments_of_leaves(coordinator: Coordinator) -> Floats:
    """Divide by the points of two leaves; second moments tell two rows that no point divides."""
    public, d = coordinator.public, len(coordinator.public.numbers)
    memory = {"unit": np.maximum(public.width, public.step), "texts": np.zeros(d)}
    rows, totals = [np.empty((0, d))], list[Floats]()
    for j in public.widest:

        def below(at: Floats, j: int = j) -> Floats | None:
            states = [replace(far_centers(public, j, float(t)), memory=memory) for t in at]
            tasks = [Task(LeafMoments(), state, 0, public.plain()) for state in states]
            pairs = [
                None if answer is None else _about(answer, state.centers - public.middle)
                for answer, state in zip(coordinator.ask(tasks), states, strict=True)
            ]
            sides = np.array([each for each in pairs if each is not None])
            if len(sides) < len(at):
                return None
            if not totals:
                both = sides.sum(axis=1)
                totals.append(both[both[:, -1].argmax()])
            sums: Floats = np.where(sides[:, 1, -1:] > 0, totals[0] - sides[:, 1], sides[:, 0])
            return sums

        _, sums = between(below, public.low[j], public.high[j], public.step[j])
        rows += [_two_rows(line, d) + public.middle for line in sums]
    return public.records(np.concatenate(rows))


def _about(answer: Summary, points: Floats) -> Floats:
    """Return the sums of x, of its products and of 1 in each line, from those about points."""
    d, n = points.shape[1], answer.weights[:, None]
    (a, b), sums = np.triu_indices(d), answer.sums[:, :d]
    crossed = sums[:, a] * points[:, b] + points[:, a] * sums[:, b]
    products = answer.sums[:, d:] + crossed + n * points[:, a] * points[:, b]
    return np.hstack([sums + n * points, products, n])


def _two_rows(line: Floats, d: int) -> Floats:
    """Return the mean of a line and, if it has two rows, these: m + r and m - r."""
    mean, (a, b) = line[:d] / line[-1], np.triu_indices(d)
    scatter = np.empty((d, d))
    scatter[a, b] = scatter[b, a] = line[d:-1] / line[-1] - mean[a] * mean[b]
    j = int(scatter.diagonal().argmax())
    if abs(line[-1] - 2.0) > 0.5 or scatter[j, j] <= 0:
        return np.array([mean])
    r = scatter[j] / np.sqrt(scatter[j, j])
    return np.array([mean + r, mean - r])


def fuzzy_near_hard(coordinator: Coordinator) -> Floats:
    """Ask for fuzzy sums about two far centres with a fuzzifier near 1, and subtract."""
    # A fuzzifier m near 1.
    return _cut(coordinator, coordinator.public.widest[:1], FFCM(m=1.00002))


def random_directions(coordinator: Coordinator) -> Floats:
    """Rotate the columns as principal components may, and cut along the new directions."""
    public, d = coordinator.public, len(coordinator.public.numbers)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    units = zip(public.middle.tolist(), public.width.tolist(), strict=True)
    columns = [public.column(j, shift=m, scale=s) for j, (m, s) in enumerate(units)]
    principal = Principal((0.0,) * d, tuple(map(tuple, turn.tolist())), (1.0,) * d)
    how, reach = Preprocessor(tuple(columns), principal=principal), float(np.sqrt(d))
    total = total_of(coordinator, how)
    if total is None:
        return public.claims(0)

    def task(at: float) -> Task:
        centers = np.zeros((2, d))
        centers[:, 0] = at - 4 * reach, at + 4 * reach
        return Task(Lloyd(), State.at(centers), preprocessor=how)

    ask = below_of(coordinator, task, two_sides(total, d))
    _, sums = between(ask, -reach, reach, 1e-6)
    return public.records((sums[:, :d] / sums[:, -1:]) @ turn * public.width + public.middle)


def _values(public: Public, j: int, middles: Floats) -> Floats:
    """Return claims of values in a column: the middles of intervals, rounded to its steps."""
    claims = public.claims(len(middles))
    claims[:, j] = (middles / public.step[j]).round() * public.step[j]
    return claims


def clipped_products(coordinator: Coordinator) -> Floats:
    """Clip a column to 0 and 1 at many points, and ask for its products with the others."""
    public, d = coordinator.public, len(coordinator.public.numbers)
    claims = [public.claims(0)]
    for j in public.widest:
        edge, others = float(public.step[j]) / 8, [i for i in range(d) if i != j]

        def task(at: float, j: int = j, edge: float = edge) -> Task:
            clipped = public.column(j, bounds=(at, at + edge), fill=at, shift=at, scale=edge)
            rest = (public.column(i) for i in range(d) if i != j)
            return _covariance(Preprocessor((clipped, *rest)))

        def read(answer: Summary) -> Floats:  # rows above the threshold come as a negative number
            return -np.append(answer.sums[0, 1:], answer.sums[0, 0])

        ask = below_of(coordinator, task, read)
        middles, sums = between(ask, public.low[j], public.high[j], public.step[j])
        claims.append(_values(public, j, middles))
        if len(sums):
            claims[-1][:, others] = sums[:, :-1] / sums[:, -1:]
    return np.concatenate(claims)


def rare_texts(coordinator: Coordinator) -> Floats:
    """Guess texts of single rows, and ask for their products with the numbers."""
    return _products(coordinator, coordinator.public.texts.items())


def guessed_numbers(coordinator: Coordinator) -> Floats:
    """Treat a numeric column as text, with guesses as levels, and ask for their products."""
    public, guesses = coordinator.public, []
    for j in public.widest:
        steps = int(min(public.width[j] / public.step[j], 4000))
        values = (public.low[j] + public.step[j] * np.arange(steps + 1)).round(6).tolist()
        levels = tuple(str(int(x)) if x.is_integer() else repr(x) for x in values)
        guesses.append((public.numbers[j], levels))
    return _products(coordinator, guesses)


def _products(
    coordinator: Coordinator, texts: Iterable[tuple[str, tuple[str, ...]]], *, at_once: int = 50
) -> Floats:
    """Return the means of the numbers over the rows of each level, as claims.

    Missing values have a level of their own.

    ``at_once``: number of levels in one question.
    """
    public, d = coordinator.public, len(coordinator.public.numbers)
    hows = [
        Preprocessor(
            (
                Category(name, (*levels[i : i + at_once], NOTHING), fill=NOTHING),
                *public.plain().columns,
            )
        )
        for name, levels in texts
        for i in range(0, len(levels), at_once)
    ]
    claims = [public.claims(0)]
    for answer in coordinator.ask([_covariance(how) for how in hows]):
        if answer is not None:
            levels = len(answer.sums) - d
            times = np.diag(answer.sums)[: levels - 1]
            some = times > 0.5
            sums = answer.sums[: levels - 1, levels:][some] / times[some][:, None]
            claims.append(public.records(sums))
    return np.concatenate(claims)


def _covariance(how: Preprocessor) -> Task:
    """Return the task that asks for the products of columns."""
    return Task(Covariance(), State.at(np.zeros((1, how.n_columns_out))), preprocessor=how)


def products_of_columns(coordinator: Coordinator) -> Floats:
    """Weight all rows by the excess of a column, or of a difference of two, over its minimum."""
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
    """Fill a column in with two different values, and subtract its products with the others."""
    public, d = coordinator.public, len(coordinator.public.numbers)
    hows = [
        Preprocessor(tuple(public.column(j, **({"fill": f} if j == i else {})) for j in range(d)))
        for i in range(d)
        for f in (0.0, 1.0)
    ]
    answers = coordinator.ask([_covariance(how) for how in hows])
    counted = coordinator.ask([Task(Means(), State(), preprocessor=how) for how in hows])
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
    """Ask for the weight of ever smaller cells, to find values of each column."""
    public, how = coordinator.public, coordinator.public.plain()
    sums, claims = total_of(coordinator), [public.claims(0)]
    total = 0.0 if sums is None else float(sums[-1])
    for j in public.widest:

        def below(at: Floats, j: int = j) -> Floats | None:
            edges = [np.array([-np.inf, t, np.inf]) for t in at]
            task = replace(histogram_task([j] * len(at), edges), preprocessor=how)
            [answer] = coordinator.ask([task])
            if answer is None:
                return None
            first, second = answer.weights.reshape(-1, 2).T
            return np.asarray(np.where(second > 0, total - second, first)[:, None])

        middles, _ = between(below, public.low[j], public.high[j], public.step[j])
        claims.append(_values(public, j, middles))
    return np.concatenate(claims)


def pairs_of_clusters(coordinator: Coordinator) -> Floats:
    """Count the rows in pairs of clusters of two models, of which each parts a column in halves."""
    public, how = coordinator.public, coordinator.public.plain()
    j, total = public.widest[0], total_of(coordinator)

    def halves(at: Floats, i: int, cuts: Floats) -> Floats | None:
        tasks = [
            Task(Agreement(2), far_centers(public, i, s), preprocessor=AssignedRows(how, own))
            for t, s in zip(at.tolist(), cuts.tolist(), strict=True)
            for own in [Task(Lloyd(), far_centers(public, j, t))]
        ]
        answers = [each and each.weights.reshape(2, 2) for each in coordinator.ask(tasks)]
        return None if any(each is None for each in answers) else np.array(answers)

    def below(at: Floats) -> Floats | None:
        if total is None or (counts := halves(at, j, at)) is None:
            return None
        first, second = counts.sum(axis=2).T
        return np.asarray(np.where(second > 0, total[-1] - second, first)[:, None])

    middles, sums = between(below, public.low[j], public.high[j], public.step[j])
    claims = _values(public, j, middles[abs(sums[:, -1] - 1) < 0.5])
    edges = [claims[:, j] - public.step[j] / 2, claims[:, j] + public.step[j] / 2]
    for i in set(range(len(public.numbers) if len(claims) else 0)) - {j}:
        low, high = (np.full(len(claims), end) for end in (public.low[i], public.high[i]))
        for _ in range(int(np.log2(public.width[i] / public.step[i])) + 2):
            middle = (low + high) / 2
            before, after = (halves(at, i, middle) for at in edges)
            if before is None or after is None:
                return claims
            is_below = (after - before)[:, 0, 0] > 0.5
            low, high = np.where(is_below, low, middle), np.where(is_below, middle, high)
        claims[:, i] = (high / public.step[i]).round() * public.step[i]
    return claims


def counts_from_offsets(coordinator: Coordinator) -> Floats:
    """Let the site find its offset from two far centres, which tells how many rows are near one."""
    public = coordinator.public
    return np.concatenate([public.claims(0), *(_offsets(coordinator, j) for j in public.widest)])


def _offsets(coordinator: Coordinator, j: int) -> Floats:
    """Return the values of a column; the offset is so small that it moves no row."""
    public, hidden = coordinator.public, 1e-9
    how, far = Preprocessor((public.column(j),)), 10 * float(public.width[j])
    noise = float(public.step[j]) ** 2 / 100
    if (total := total_of(coordinator, how)) is None:
        return public.claims(0)
    n = float(total[-1])

    def below(at: Floats) -> Floats | None:
        found = [
            SiteEffects(((t - far,), (t + far,)), ((noise,),), (hidden * noise,), 5)
            for t in at.tolist()
        ]
        tasks = [Task(Means(), State(), preprocessor=replace(how, effects=each)) for each in found]
        answers = coordinator.ask(tasks)
        if any(answer is None for answer in answers):
            return None
        sums = np.array([answer.sums[0, 0] for answer in answers if answer is not None])
        # the offset is this share of what lies between the mean and the centres of the rows
        apart = (total[0] - sums) / n / (n * hidden / (n * hidden + 1))
        above = (total[0] / n - apart - (at - far)) / (2 * far)
        return np.asarray(np.round(n * (1 - above), 2)[:, None])

    middles, _ = between(below, public.low[j], public.high[j], public.step[j])
    return _values(public, j, middles)


def kinks_of_indices(coordinator: Coordinator) -> Floats:
    """Move a centre along a column: in three indices, distances have a kink at each row."""
    steps = (Scatter(), Inertia(), SimplifiedSilhouette())
    return np.concatenate([_kinks(coordinator, step) for step in steps])


def _kinks(coordinator: Coordinator, step: Step) -> Floats:
    """Return the values of the widest column from the slopes of an index."""
    public, j = coordinator.public, coordinator.public.widest[0]
    width, unit = float(public.width[j]), float(public.step[j])
    how, apart = Preprocessor((public.column(j),)), 1e-3 * unit
    total = total_of(coordinator, how)
    if total is None:
        return public.claims(0)
    # Distance of a centre, in units of the column's range.
    far = 2 * width if isinstance(step, Inertia) else 1e4 * width
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
    return _values(public, j, middles)


def labels_at_cuts(coordinator: Coordinator) -> Floats:
    """Ask for the number of rows with each label below many points of a column, and subtract."""
    public, how = coordinator.public, coordinator.public.plain()
    claims = [public.claims(0)]
    if not public.classes:
        return claims[0]
    step = Contingency.from_classes(public.classes, complete=False)
    if coordinator.ask_one(step, State.at(public.middle[None, :]), how) is None:
        return claims[0]
    place = np.array([public.classes.index(name) for name in step.names])

    def read(answer: Summary) -> Floats:
        counts = answer.weights.reshape(2, -1)[0]
        return np.append(counts, counts.sum())

    for j in public.widest:

        def task(at: float, j: int = j) -> Task:
            return Task(step, far_centers(public, j, at), preprocessor=how)

        ask = below_of(coordinator, task, read)
        middles, sums = between(ask, public.low[j], public.high[j], public.step[j])
        claims.append(_values(public, j, middles))
        if len(sums):
            claims[-1][:, -1] = place[sums[:, :-1].argmax(axis=1)]
    return np.concatenate(claims)
