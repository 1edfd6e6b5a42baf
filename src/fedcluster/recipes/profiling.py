"""Plans about the rows of clusters: profiles of their columns, and clusters of another model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms import Lloyd
from fedcluster.core import Algorithm, Answers, Assigns, Floats, PlannedStep, State, Task, coarse
from fedcluster.metrics.columns import ClusterCells, ClusterColumns, n_texts
from fedcluster.metrics.external import Agreement
from fedcluster.metrics.silhouettes import ClusterSilhouettes, silhouettes_by_cluster
from fedcluster.model.assigned_rows import AssignedRows, CrossedRows
from fedcluster.model.profiles import ColumnProfile, NumberProfile, Profiles, TextProfile, proposed
from fedcluster.model.stability import Crossing
from fedcluster.preprocessing import Category, PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.moments import FEWEST_IN_CELL, MOST_CELLS
from fedcluster.rounds import Plan, gather, with_preprocessing

Column = tuple[str, tuple[str, ...] | None, NDArray[np.intp]]
"""A column of rows in their own units: the name, the levels of a text, the positions in a row."""
Layout = Sequence[Column]


def profiling(
    centers: Floats,
    columns: Sequence[str],
    reported: Preprocessor | None = None,
    *,
    names: Sequence[str] = (),
    smallest: int = 1,
) -> Plan[Profiles]:
    """Plan two rounds that profile the rows of each cluster, column by column.

    The first one asks for means, spreads and levels; the second for these again about the means, so
    that an offset costs no digits, and for counts in cells around the medians.

    Parameters
    ----------
    centers : ndarray of shape (k, p)
        A point near the rows of each cluster, in the columns of the profile.
    columns : sequence of str
        The names of the columns if ``reported`` is None.
    reported : Preprocessor, optional
        The transform to the columns of the profile, which it names.
    names : sequence of str, optional
        The names of the clusters; by default names are proposed.
    smallest : int, default=1
        The smallest group of rows that all sites' limits permit.

    Returns
    -------
    Plan of Profiles
        To be asked about rows with assigned clusters.

    Examples
    --------
    >>> from fedcluster import Client, Data, LocalEngine
    >>> from fedcluster.rounds import run_plan
    >>> north = Client("north", Data(np.array([[40.0], [42.0], [44.0]])))
    >>> south = Client("south", Data(np.array([[80.0], [84.0]])))
    >>> plan = profiling(np.array([[40.0], [80.0]]), ["age"])
    >>> profiles = run_plan(plan, LocalEngine([north, south])).value
    >>> profiles.columns[0].means, profiles.names
    (array([42., 82., 58.]), ('younger', 'older'))
    """
    layout = layout_of(columns, reported)
    first, about = yield from first_sums(np.array(centers), layout)
    cells = _cells(layout, first, smallest)
    again, *counted = yield [Task(ClusterColumns(), about, everyone=True), *cells]
    sums = ColumnSums(about, again)
    medians = np.full((2, *sums.weights_of_all.shape), np.nan)
    for task, answer in zip(cells, counted, strict=True):
        places = task.state.memory["columns"].astype(int)
        medians[:, :, places] = _medians(task.state, answer, sums.weights_of_all[:, places])
    profiles = Profiles(sums.sizes, tuple(_profile(each, sums, medians) for each in layout))
    return profiles.named(names or proposed(profiles))


def profile_steps(
    n_clusters: int, preprocessor: Preprocessor | PreprocessingSpec | None
) -> list[PlannedStep]:
    """Return the steps that profiles of ``n_clusters`` clusters ask whatever the rows are."""
    if n_clusters < 2 or (preprocessor is not None and preprocessor.missing == "ignore"):
        return [ClusterColumns]
    return [ClusterColumns, ClusterSilhouettes]


def profiles_of(
    state: State,
    algorithm: Algorithm | None = None,
    preprocessor: Preprocessor | None = None,
    columns: Sequence[str] = (),
    *,
    names: Sequence[str] = (),
    smallest: int = 1,
) -> Plan[Profiles]:
    """Plan the profiles of the clusters of a final state, in the units of the columns.

    Parameters
    ----------
    state : State
        The clusters.
    algorithm : Algorithm, optional
        The algorithm of the clusters, which assigns the rows if it has its own rule.
    preprocessor : Preprocessor, optional
        The preparation of rows before they are assigned.
    columns, names, smallest
        As in `profiling`.
    """
    k, reported = len(state.centers) or len(state.weights), preprocessor and preprocessor.as_found
    if len(state.centers):
        centers = state.centers if preprocessor is None else preprocessor.invert(state.centers)
    else:
        centers = np.zeros((k, len(columns) if reported is None else reported.n_columns_out))
    plan = profiling(centers, columns, reported, names=names, smallest=smallest)
    plan = with_preprocessing(plan, assigned_rows(state, algorithm, preprocessor, reported))
    if len(state.centers) < 2 or (preprocessor and preprocessor.missing == "ignore"):
        return plan
    how = assigned_rows(state, algorithm, preprocessor)
    return _with_silhouettes(plan, with_preprocessing(_silhouettes(state.centers), how))


def _with_silhouettes(plan: Plan[Profiles], silhouettes: Plan[Floats]) -> Plan[Profiles]:
    """Plan profiles and silhouettes in the same rounds."""
    plans: list[Plan[Any]] = [plan, silhouettes]
    profiles, both = yield from gather(plans)
    found: Profiles = replace(profiles, silhouettes=both)
    return found


def _silhouettes(centers: Floats) -> Plan[Floats]:
    """Plan one round about the silhouettes of each cluster; return mean and spread, (2, k)."""
    [answers] = yield [Task(ClusterSilhouettes(), State.at(centers), everyone=True)]
    return silhouettes_by_cluster(answers.total())


def assigned_rows(
    state: State,
    algorithm: Algorithm | None,
    preprocessor: Preprocessor | None,
    reported: Preprocessor | None = None,
) -> AssignedRows:
    """Return the transform that prepares rows and assigns them to clusters, as `predict` does.

    Parameters
    ----------
    state, algorithm, preprocessor
        As in `profiles_of`.
    reported : Preprocessor, optional
        The transform to the columns of the profile; by default those of the assignment.
    """
    state = state.standing
    if isinstance(algorithm, Assigns):
        asked = Task(algorithm, replace(state, inertia=0.0, converged=False))
    else:
        asked = Task(Lloyd(), State.at(state.centers))
    return AssignedRows(preprocessor, asked, reported)


def crossed(one: AssignedRows, other: AssignedRows) -> Plan[Crossing]:
    """Plan one round that counts the rows in each pair of clusters of two models.

    The weight of all rows is asked for too, so that it is known how many rows limits hide.

    Parameters
    ----------
    one, other : AssignedRows
        How each model prepares and assigns rows; see `assigned_rows`.

    Examples
    --------
    >>> from fedcluster import Client, Data, LocalEngine
    >>> from fedcluster.rounds import run_plan
    >>> rows = Client("north", Data(np.array([[0.0], [1.0], [2.0], [7.0], [8.0], [9.0]])))
    >>> two, three = (
    ...     assigned_rows(State.at(np.array(centers)), None, None)
    ...     for centers in ([[0.0], [8.0]], [[0.0], [6.5], [9.0]])
    ... )
    >>> run_plan(crossed(two, three), LocalEngine([rows])).value.between
    array([[3., 0., 0.],
           [0., 1., 2.]])
    """
    k, places = one.n_clusters, np.arange(other.n_clusters + 1.0)[:, None]
    how = CrossedRows(one, other)
    pairs, every = yield [
        Task(Agreement(k + 1), State.at(places), preprocessor=how, everyone=True),
        Task(Agreement(1), State.at(places[:1]), preprocessor=how, everyone=True),
    ]
    rows = pairs.total().weights.reshape(k + 1, -1)
    return Crossing(rows, float(every.total().weights.sum()))


def layout_of(columns: Sequence[str], reported: Preprocessor | None) -> Layout:
    """Return the layout of rows that a preprocessor describes, or of plain numeric columns."""
    if reported is None:
        return [(name, None, np.array([j])) for j, name in enumerate(columns)]
    stops = np.cumsum([len(column.names) for column in reported.columns])
    every = zip(reported.columns, stops, strict=True)
    return [
        (
            column.name,
            column.all_levels if isinstance(column, Category) else None,
            np.arange(stop - len(column.names), stop),
        )
        for column, stop in every
    ]


def texts_of(layout: Layout) -> Floats:
    """Return, for each position in a row, the number of its text, or 0 for numbers."""
    is_text = [levels is not None for _, levels, _ in layout]
    texts = np.where(is_text, np.cumsum(is_text), 0)
    return np.repeat(texts, [len(places) for *_, places in layout]).astype(np.float64)


class ColumnSums:
    """Sums of the columns of k clusters, from the answers to `ClusterColumns`.

    Parameters
    ----------
    state : State
        The state that was asked about.
    answers : Answers
        The answers.
    """

    def __init__(self, state: State, answers: Answers) -> None:
        k, d = state.centers.shape
        total = answers.total()
        weights = np.maximum(total.weights, 0.0).reshape(k, -1)
        # the rows that are seen as one, in a group, in the mean over the rows of each cluster
        others, rows = np.maximum(total.sums.reshape(k, -1, 2)[:, 0, 0], 0), weights[:, 0]
        self.together = 1.0 + np.divide(others, rows, out=np.zeros(k), where=rows > 0)
        self.sizes: Mapping[str, Floats] = {
            site: summary.weights.reshape(k, -1)[:, 0] for site, summary in answers.by_site.items()
        }
        self.known, self.weights = weights[:, 1 : 1 + n_texts(state)], weights[:, -d:]
        safe = np.where(self.weights > 0, self.weights, np.nan)
        sums = total.sums.reshape(k, -1, 2)[:, -d:] / safe[:, :, None]
        moved, squares = sums.transpose(2, 0, 1)
        self.centers, self.texts = state.centers, state.memory["texts"]
        self.moved, self.means = moved, state.centers + moved
        self.spreads = np.sqrt(np.maximum(squares - moved**2, 0.0))

    @property
    def points(self) -> Floats:
        """Return the means (k, d), or the centre asked about for a cluster without rows."""
        there = (self.weights > 0) & (self.texts == 0)
        return np.where(there, self.means, self.centers)

    @property
    def weights_of_all(self) -> Floats:
        """Return the weights of each cluster and of all clusters together, (k + 1, d)."""
        return np.vstack([self.weights, self.weights.sum(axis=0)])

    @property
    def moments(self) -> tuple[Floats, Floats]:
        """Return means and spreads of each cluster and of all together, (k + 1, d) each."""
        weights, apart = self.weights, self.points - self.points[0]
        total = np.where(weights.sum(axis=0) > 0, weights.sum(axis=0), np.nan)
        mean = (weights * apart).sum(axis=0) / total
        squares = weights * (np.nan_to_num(self.spreads) ** 2 + (apart - mean) ** 2)
        spread = np.sqrt(squares.sum(axis=0) / total)
        means = np.vstack([self.means, self.points[0] + mean])
        return means, np.vstack([self.spreads, spread])


def first_sums(centers: Floats, layout: Layout) -> Plan[tuple[ColumnSums, State]]:
    """Plan one round about the columns of clusters; also return the state to ask about next."""
    state = State(centers, np.zeros(len(centers)), memory={"texts": texts_of(layout)})
    [answers] = yield [Task(ClusterColumns(), state, everyone=True)]
    first = ColumnSums(state, answers)
    return first, State(first.points, state.weights, round=1, memory=state.memory)


def _cells(layout: Layout, sums: ColumnSums, smallest: int) -> list[Task]:
    """Return the task that counts rows around the medians; None without numeric columns.

    The median lies within a standard deviation of the mean: H. Hotelling & L. M. Solomons, Annals
    of Mathematical Statistics 3, 1932.
    """
    numbers = [int(places[0]) for _, levels, places in layout if levels is None]
    if not numbers:
        return []
    held = np.array([sizes > 0 for sizes in sums.sizes.values()]).sum(axis=0)
    rows = np.maximum(FEWEST_IN_CELL, 2.0 * smallest * np.append(held, len(sums.sizes)))
    rows = rows if smallest > 1 else np.full(len(rows), float(FEWEST_IN_CELL))
    means, spreads = (np.nan_to_num(each) for each in sums.moments)
    edges = np.empty((len(rows), len(numbers), MOST_CELLS + 3))
    for j, t in np.ndindex(edges.shape[:2]):
        i = numbers[t]
        n_cells = int(np.clip(sums.weights_of_all[j, i] // rows[j], 2, MOST_CELLS))
        reach = 1.001 * spreads[j, i] + 4 * np.spacing(abs(means[j, i]))
        cuts = coarse(np.linspace(means[j, i] - reach, means[j, i] + reach, n_cells + 1), reach)
        edges[j, t] = np.pad(np.r_[-inf, cuts, inf], (0, MOST_CELLS - n_cells), mode="edge")
    memory = {"columns": np.array(numbers, float), "edges": edges[:-1], "overall": edges[-1]}
    state = State(sums.points, np.zeros(len(sums.points)), round=1, memory=memory)
    return [Task(ClusterCells(), state, everyone=True)]


def _medians(state: State, answers: Answers, weights: Floats) -> Floats:
    """Return the medians and their resolutions, (2, k + 1, t)."""
    edges = np.concatenate([state.memory["edges"], state.memory["overall"][None]])
    counts = np.maximum(answers.total().weights, 0.0).reshape(*edges.shape[:2], -1)
    medians = np.full((2, *weights.shape), np.nan)
    for place in np.ndindex(weights.shape):
        if counts[place].any():
            medians[(slice(None), *place)] = _median(
                counts[place], edges[place], float(weights[place])
            )
    return medians


def _median(counts: Floats, edges: Floats, weight: float) -> tuple[float, float]:
    """Return the median of rows in cells, and the width of the interval that contains it.

    It is the mean of the values of two ranks, which coincide if the weight is odd. Rows that limits
    hide may lie anywhere.

    Examples
    --------
    >>> _median(np.array([0.0, 2.0, 2.0, 0.0]), np.array([-inf, 0.0, 1.0, 2.0, inf]), 4.0)
    (1.0, 1.0)
    """
    place = 0.5 * max(weight - 1.0, 0.0)
    hidden = max(weight - counts.sum(), 0.0)
    hidden = hidden if hidden > 1e-9 * weight else 0.0
    values, widths = [], []
    upto = np.cumsum(counts)
    for rank in (np.floor(place), np.ceil(place)):
        first, last = (_cell(upto, max(rank - less, 0.0)) for less in (hidden, 0.0))
        low, high = _ends(edges, first)[0], _ends(edges, last)[1]
        cell = _cell(upto, max(rank - hidden / 2, 0.0))
        start, stop = _ends(edges, cell)
        inside = (rank - hidden / 2 + 0.5 - upto[cell] + counts[cell]) / counts[cell]
        values.append(start + (stop - start) * min(max(inside, 0.0), 1.0))
        widths.append(high - low)
    return float(sum(values)) / 2, max(widths)


def _cell(upto: Floats, rank: float) -> int:
    """Return the cell of the row with a given rank, from the cumulative weights."""
    return int(min(np.searchsorted(upto, rank, side="right"), np.argmax(upto >= upto[-1])))


def _ends(edges: Floats, cell: int) -> tuple[float, float]:
    """Return the ends of a cell; an infinite end is replaced by the finite one."""
    start, stop = float(edges[cell]), float(edges[cell + 1])
    return (stop, stop) if start == -inf else (start, start) if stop == inf else (start, stop)


def _profile(column: Column, sums: ColumnSums, medians: Floats) -> ColumnProfile:
    """Return the profile of one column."""
    name, levels, places = column
    weights = sums.weights_of_all
    if levels is not None:
        known = sums.known[:, int(sums.texts[places[0]]) - 1]
        return TextProfile(name, levels, np.append(known, known.sum()), weights[:, places])
    j = int(places[0])
    means, spreads = (each[:, j] for each in sums.moments)
    return NumberProfile(name, weights[:, j], means, spreads, *medians[:, :, j])
