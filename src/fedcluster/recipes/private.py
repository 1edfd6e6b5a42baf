"""Clustering by k-means with noise on every answer, and the fit under a privacy budget.

All answers together stay within one budget.

The start is decisive and takes the larger part of the budget; two rounds of relative updates
follow, or more if there are many rows.

    1  `BoxMoments`           where the rows lie and how far they spread
    2  `BallScatter`          directions along which they vary, beyond three columns
    3  `GridCells`            cells with noisy counts, clustered at the server: k centres
    4  `RelativeLloyd`        the centres move to the means of their rows

The total cost of all answers is fixed before any row is read: the sum of 1 / (2 noise^2) is exactly
the rho of the budget. The single multipliers are fixed too, unless the number of rows is not
public: then the noisy number from the first answer determines how many rounds share the rest, and
costs add up as before (A. Smith & A. Thakurta, Fully adaptive composition for Gaussian differential
privacy, 2022). Everything except the noise is deterministic, and post-processing of noisy sums at
the server costs nothing.

Counts that noise made negative or small are not real rows: the counts are replaced by the nearest
ones, in the least-squares sense, that are at least 0 and add up to the noisy number of rows (M.
Hay, V. Rastogi, G. Miklau & D. Suciu, VLDB 2010, on constraints as a way to take noise away; the
projection is that of J. Duchi et al., ICML 2008, figure 1).

The fit under a privacy budget checks what it needs, and keeps an account of the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2, prod, sqrt
from typing import Unpack

import numpy as np
import scipy
from numpy.typing import NDArray

from fedcluster.algorithms import Lloyd
from fedcluster.algorithms.private import (
    APART,
    BallScatter,
    BoxMoments,
    GridCells,
    RelativeLloyd,
    clipped,
    radii,
)
from fedcluster.core import (
    Algorithm,
    Answers,
    Engine,
    Floats,
    Introduction,
    Iteration,
    PlannedStep,
    Result,
    SiteInfo,
    State,
    Step,
    Summary,
    Task,
)
from fedcluster.core.task import stream
from fedcluster.errors import InputError
from fedcluster.preprocessing import Preprocessor
from fedcluster.privacy.budget import Budget, PrivacySpent, noise_of, rho_of
from fedcluster.recipes._seeds import best_seeds
from fedcluster.recipes.specifications import Fit, PrivateFit
from fedcluster.rounds import Plan, server_update

PRIVATE_STEPS: tuple[PlannedStep, ...] = (BoxMoments, GridCells, RelativeLloyd)
"""The steps that every private clustering asks."""

MOMENTS, SCATTER, CELLS = 0.05, 0.15, 0.4
"""Parts of rho for the first three releases; without the second, see `PLAIN_CELLS`."""

PLAIN_CELLS = 0.5
"""Part of rho for the cells of at most three columns, when no second moments are released."""

LAST = 0.7
"""Part of the remaining budget for the rounds of updates that the last round takes."""

FEWEST_UPDATES, MOST_UPDATES, PLENTY = 2, 8, 50.0
"""Smallest and largest number of rounds of updates, and the rows per cluster, in noise
multipliers of the whole budget times sqrt(d), from which on each doubling allows one more round."""

GRID_AXES = 3
"""Largest number of axes of a grid of counts alone; with more axes, cells are wide and have
sums."""

REACH, WIDER = 3.0, 1.3
"""Half-width of a grid in standard deviations of the rows, and a radius in their root mean
squared length."""

MOST_GRID = 1 << 15
"""Largest number of cells of a grid."""

FEWEST_CELLS, MOST_AVERAGED, ROWS_SEEN = 4, 4096, 0.15
"""Fewest cells per cluster in a grid of counts; most cells with sums, and their number per row
that stands out from the noise."""

NARROWER = 2.5
"""Half-width of a grid with sums, in standard deviations of the rows."""

TIGHT, LOOSE = 1.5, 2.5
"""Radius of updates in root mean squared distances, for the fewest rounds and for more."""

WIDEST = 2.0
"""Largest first radius, in median distances of a centre to its nearest other one."""

STANDING_OUT = 3.0
"""Standard deviations of the noise by which a cell's count, alone or with its neighbours, must
stand out."""

FLATTEST = 0.01
"""Smallest variance along an axis, relative to that of the first axis."""

SEEN = 12.0
"""Smallest number of rows of a cluster, in noise multipliers of the whole budget times sqrt(d)."""


@dataclass(frozen=True, slots=True)
class Releases:
    """The answers that a private clustering asks for, each with its noise.

    Parameters
    ----------
    noises : mapping of str to float
        The noise multiplier of each release: moments, possibly scatter, cells, and the rounds of
        updates, numbered from 1.
    n_axes : int
        Number of axes along which the rows are described for the start.
    n_noises : float
        Number of independent noise terms in the total of all sites' answers: the number of sites if
        each adds full noise, or 1 if they share it.
    """

    noises: Mapping[str, float]
    n_axes: int
    n_noises: float = 1.0

    @classmethod
    def planned(
        cls,
        budget: Budget,
        n_clusters: int,
        n_columns: int,
        n_noises: float = 1.0,
        n_rows: float = 0.0,
    ) -> Releases:
        """Return the releases whose costs add up to a budget, with more of them for more rows.

        Examples
        --------
        >>> from fedcluster.privacy.budget import rho_of
        >>> releases = Releases.planned(Budget(1.0, 1e-6), n_clusters=5, n_columns=20)
        >>> list(releases.noises), releases.n_axes
        (['moments', 'scatter', 'cells', 'update 1', 'update 2'], 4)
        >>> abs(rho_of(releases.noises.values()) - Budget(1.0, 1e-6).rho) < 1e-12
        True
        """
        n_axes, start = n_columns, {"moments": MOMENTS, "cells": PLAIN_CELLS}
        if n_columns > GRID_AXES:
            n_axes = min(n_columns, max(n_clusters - 1, 1))
            start = {"moments": MOMENTS, "scatter": SCATTER, "cells": CELLS}
        least = fewest_rows(n_clusters, n_columns, budget, n_noises)
        more = log2(max(n_rows * SEEN / (PLENTY * least), 1.0))
        rounds, left = min(FEWEST_UPDATES + int(more), MOST_UPDATES), 1.0 - sum(start.values())
        earlier = [left * (1.0 - LAST) / (rounds - 1)] * (rounds - 1)
        updates = {f"update {i}": x for i, x in enumerate([*earlier, left * LAST], start=1)}
        noises = {name: noise_of(share * budget.rho) for name, share in (start | updates).items()}
        return cls(noises, n_axes, n_noises)

    def scale(self, name: str) -> float:
        """Return the standard deviation of the noise on a count that has all of a release."""
        return self.noises[name] * sqrt(self.n_noises)

    @property
    def spread(self) -> float:
        """The radius of updates, in root mean squared distances."""
        return LOOSE if f"update {FEWEST_UPDATES + 1}" in self.noises else TIGHT


@dataclass(frozen=True, slots=True, eq=False)
class _Box:
    """Location and spread of all rows, estimated from noisy moments.

    Attributes
    ----------
    n_rows : float
        The number of rows.
    mean, variance : ndarray of shape (d,)
        The moments of the columns.
    noise : float
        Standard deviation of the noise in a variance.
    """

    n_rows: float
    mean: Floats
    variance: Floats
    noise: float

    @classmethod
    def from_total(cls, total: Summary, noise: float) -> _Box:
        """Return the estimate from a total whose sums have noise of this standard deviation."""
        n, (sums, squares) = max(float(total.weights[0]), 1.0), np.split(total.sums[0], 2)
        mean = np.clip(sums / n, -1.0, 1.0)
        least = min(2.0 * noise / n, 0.3)
        return cls(n, mean, np.clip(squares / n - mean**2, least, 1.0), noise / n)

    @property
    def radius(self) -> float:
        """The length, about the mean, that most rows do not exceed."""
        return WIDER * sqrt(float(self.variance.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    """Axes along which rows are described for the start.

    Attributes
    ----------
    box : _Box
        The location of the rows.
    axes : ndarray of shape (q, d)
        Orthonormal directions.
    variances : ndarray of shape (q,)
        The variances of the rows along the axes.
    """

    box: _Box
    axes: Floats
    variances: Floats

    def asked(self, low: Floats, high: Floats, bins: Floats) -> State:
        """Return the state about which `GridCells` is asked."""
        radius = np.array([self.box.radius])
        cells = {"low": low, "high": high, "bins": bins, "radius": radius}
        return State(self.box.mean[None], np.zeros(1), memory={"axes": self.axes, **cells})


def private_clustering(
    fit: Fit, budget: Budget, *, n_rows: float | None, n_columns: int, n_noises: float = 1.0
) -> Plan[Result]:
    """Plan a private k-means of rows that lie in [-1, 1]^d.

    Parameters
    ----------
    fit : Fit
        The specification, of which ``n_clusters`` and ``seed`` are used.
    budget : Budget
        The budget for all answers together.
    n_rows : float or None
        Number of rows of all sites, if it is public.
    n_columns : int
        d.
    n_noises : float, default=1
        Number of independent noise terms in a total: that of the sites if each adds full noise.

    Returns
    -------
    Plan of Result
        Centres in [-1, 1]^d by decreasing weight; the weights and the inertia have noise. The
        inertia is that of rows clipped to the last radius.

    Raises
    ------
    InputError
        If there are too few rows: before the first question if their number is public, otherwise
        after the first answer, which costs a twentieth of the budget.
    """
    k, releases = fit.n_clusters, Releases.planned(budget, fit.n_clusters, n_columns, n_noises)
    least = fewest_rows(k, n_columns, budget, n_noises)
    if n_rows is not None:
        check_rows(n_rows, least, k, budget)
    step = BoxMoments()
    total = yield from _asked(step, State(), releases.noises["moments"], fit.seed)
    shape = step.sensitivity(State(), n_columns)
    box = _Box.from_total(total, releases.scale("moments") * shape.sums / sqrt(1 - shape.share))
    if n_rows is None:
        n_rows = box.n_rows
        check_rows(n_rows, least, k, budget)
    releases = Releases.planned(budget, k, n_columns, n_noises, n_rows)
    frame = yield from _frame(box, releases, fit.seed)
    start = yield from _start(frame, releases, fit)
    return (yield from _refined(start, releases, fit.seed))


def fewest_rows(n_clusters: int, n_columns: int, budget: Budget, n_noises: float = 1.0) -> float:
    """Return the fewest rows for which a private clustering is useful, from measurements.

    Examples
    --------
    >>> round(fewest_rows(16, 2, Budget(1.0, 1e-6)), -1)
    1150.0
    """
    return SEEN * sqrt(n_columns) * n_clusters * noise_of(budget.rho) * sqrt(n_noises)


def check_rows(n_rows: float, least: float, n_clusters: int, budget: Budget) -> None:
    """Raise an error rather than spend a budget on too few rows.

    Raises
    ------
    InputError
        If there are too few rows; the message says how many are needed.
    """
    if n_rows < least:
        raise InputError(
            f"{n_rows:,.0f} rows are too few for {n_clusters} clusters with epsilon "
            f"{budget.epsilon:g}: about {least:,.0f} are needed; raise epsilon, ask for fewer "
            "clusters, or add sites"
        )


def _asked(step: Step, state: State, noise: float, seed: int) -> Plan[Summary]:
    """Plan one question with noise; return the total of the answers."""
    [answers] = yield [Task(step, state, seed, noise=noise)]
    return answers.total()


def _frame(box: _Box, releases: Releases, seed: int) -> Plan[_Frame]:
    """Plan the axes along which the rows are described."""
    d = len(box.mean)
    if "scatter" not in releases.noises:
        return _Frame(box, np.eye(d), box.variance)
    state = State(box.mean[None], np.zeros(1), memory={"radius": np.array([box.radius])})
    total = yield from _asked(BallScatter(), state, releases.noises["scatter"], seed)
    values, vectors = np.linalg.eigh(BallScatter.matrix(total))
    first = np.argsort(values)[::-1][: releases.n_axes]
    variances = np.maximum(values[first], 0.0) * box.radius**2 / box.n_rows
    least = FLATTEST * max(float(variances[0]), 1e-12)
    return _Frame(box, vectors[:, first].T, np.maximum(variances, least))


def _start(frame: _Frame, releases: Releases, fit: Fit) -> Plan[State]:
    """Plan the start: cells of the rows, clustered."""
    cells = _counted if releases.n_axes <= GRID_AXES else _averaged
    points, counts = yield from cells(frame, releases, fit)
    means = State(points, nearest_counts(counts, frame.box.n_rows))
    [seeds] = best_seeds(means, fit.n_clusters, 1, stream(fit.seed, 0))
    centers = np.clip(frame.box.mean + seeds.centers @ frame.axes, -1.0, 1.0)
    radius = _first_radius(centers, seeds.weights, frame.box, releases.spread)
    return State(centers, seeds.weights, memory={"radius": np.full(len(centers), radius)})


def _first_radius(centers: Floats, weights: Floats, box: _Box, spread: float) -> float:
    """Return the first radius, from the centres' distances or, if larger, the rows' spread."""
    middle = weights @ centers / weights.sum()
    between = weights @ ((centers - middle) ** 2).sum(axis=1) / weights.sum()
    unsure = 2.0 * box.noise * sqrt(len(box.variance))
    within = max(float(box.variance.sum() - between) - unsure, 0.0)
    usual = float(radii(State.at(centers))[0])
    return float(np.clip(spread * sqrt(within), usual, WIDEST / APART * usual))


def _counted(frame: _Frame, releases: Releases, fit: Fit) -> Plan[tuple[Floats, Floats]]:
    """Plan the middles (cells, q) of small cells, with the noisy counts of occupied ones."""
    box, q, ends = frame.box, len(frame.axes), REACH * np.sqrt(frame.variances)
    low, high = -ends, ends
    if q == len(box.mean):  # without a projection, the axes are the columns
        low, high = np.maximum(low, -1.0 - box.mean), np.minimum(high, 1.0 - box.mean)
    noise = releases.scale("cells")
    bins = _bins(high - low, n_grid_cells(box.n_rows, noise, q, fit.n_clusters))
    state = frame.asked(low, high, bins)
    total = yield from _asked(GridCells(), state, releases.noises["cells"], fit.seed)
    there = standing_out(total.weights.reshape(bins.astype(int)), noise).ravel()
    if np.count_nonzero(there) < fit.n_clusters:
        there[:] = True
    return GridCells.middles(state)[there], total.weights[there]


def _averaged(frame: _Frame, releases: Releases, fit: Fit) -> Plan[tuple[Floats, Floats]]:
    """Plan the noisy means (cells, q) of the rows in wide cells, with their noisy counts."""
    box, ends = frame.box, NARROWER * np.sqrt(frame.variances)
    n_cells = ROWS_SEEN * box.n_rows / releases.scale("cells")
    bins = _widest_cut(2.0 * ends, min(n_cells, MOST_AVERAGED))
    state = frame.asked(-ends, ends, bins)
    total = yield from _asked(GridCells(means=True), state, releases.noises["cells"], fit.seed)
    points = clipped(total.sums / np.maximum(total.weights, 1e-9)[:, None], 1.0)
    return points * box.radius, total.weights


def standing_out(counts: Floats, noise: float) -> NDArray[np.bool_]:
    """Return which counts of a grid exceed noise, alone or with their neighbours.

    The grid may have any shape. Far from all rows there is only noise; without this test, clusters
    would be sought there.

    Examples
    --------
    >>> standing_out(np.array([0.0, 2.0, 0.0, 0.0, 9.0, 1.0]), noise=2.0)
    array([False, False, False, False,  True,  True])
    """
    window = counts.ndim * (3,)
    near = scipy.ndimage.uniform_filter(counts, window, mode="constant") * 3.0**counts.ndim
    cells = (
        scipy.ndimage.uniform_filter(np.ones_like(counts), window, mode="constant")
        * 3.0**counts.ndim
    )
    alone = counts > STANDING_OUT * noise
    together: NDArray[np.bool_] = near > STANDING_OUT * noise * np.sqrt(cells)
    return alone | together


def n_grid_cells(n_rows: float, noise: float, n_axes: int, n_clusters: int) -> float:
    """Return the number of cells of a grid: more if more rows stand out from the noise.

    The rule of Su et al., (n epsilon / 10)^(2 q / (2 + q)), with q times the noise in place of 10 /
    epsilon.

    Examples
    --------
    >>> round(n_grid_cells(3200, 6.0, 2, 16))
    267
    """
    cells = (n_rows / (n_axes * noise)) ** (2 * n_axes / (2 + n_axes))
    return float(np.clip(cells, FEWEST_CELLS * n_clusters, MOST_GRID))


def _bins(lengths: Floats, n_cells: float) -> Floats:
    """Return the number of bins for each length that gives ``n_cells`` nearly cubic cells."""
    side = (float(np.prod(lengths)) / n_cells) ** (1 / len(lengths))
    bins: Floats = np.maximum(1.0, np.round(lengths / side))
    while prod(bins.tolist()) > GridCells.most_cells:
        bins = np.maximum(1.0, np.floor(bins * 0.9))
    return bins


def _widest_cut(lengths: Floats, n_cells: float) -> Floats:
    """Return the number of bins for each length, adding bins in turn where they are widest.

    Examples
    --------
    >>> _widest_cut(np.array([4.0, 2.0, 0.1]), n_cells=8)
    array([4., 2., 1.])
    """
    bins = np.ones(len(lengths))
    while True:
        more = bins.copy()
        more[int((lengths / bins).argmax())] += 1
        if prod(more.tolist()) > min(n_cells, GridCells.most_cells):
            return bins
        bins = more


def nearest_counts(counts: Floats, total: float) -> Floats:
    """Return the nearest non-negative numbers that add up to a total.

    Examples
    --------
    >>> nearest_counts(np.array([5.0, -2.0, 1.0, 2.0]), 4.0)
    array([3.5, 0. , 0. , 0.5])
    """
    falling = np.sort(counts)[::-1]
    less = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    last = int(np.flatnonzero(falling > less)[-1])
    nearest: Floats = np.maximum(counts - less[last], 0.0)
    return nearest


def _refined(start: State, releases: Releases, seed: int) -> Plan[Result]:
    """Plan the rounds of relative updates from a start."""
    step, history = RelativeLloyd(releases.spread), list[Iteration]()
    state = replace(start, round=0)
    for name in (name for name in releases.noises if name.startswith("update")):
        [answers] = yield [Task(step, state, seed, noise=releases.noises[name])]
        state, done = server_update(step, state, answers, seed)
        state = replace(state, centers=np.clip(state.centers, -1.0, 1.0))
        history.append(done)
    order = np.argsort(-state.weights, kind="stable")
    final = State(
        state.centers[order], state.weights[order], round=state.round, inertia=state.inertia
    )
    algorithm: Algorithm = Lloyd()
    return Result(final, tuple(history), "ended when the budget was spent", algorithm)


class AccountedEngine:
    """Engine that asks another engine, with noise only, and adds up the cost.

    Parameters
    ----------
    engine : Engine
        The engine that is asked.
    budget : Budget
        The budget for all answers together.

    Raises
    ------
    InputError
        If a task has no noise or would cost more than is left; then nothing is asked.
    """

    def __init__(self, engine: Engine, budget: Budget) -> None:
        self._engine, self._budget = engine, budget
        self._noises: list[float | None] = []

    def introduce(self, **asked: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the metadata of the sites, without kinds, texts and labels."""
        if asked.get("columns") or asked.get("labels"):
            raise InputError("under a privacy budget, no kinds, texts or labels are asked for")
        return self._engine.introduce(**asked)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to the sites, after adding up their cost."""
        noises = [*self._noises, *(task.noise for task in tasks)]
        if not self._budget.allows(rho_of(noises)):
            raise InputError(
                "a question has no noise, or not enough for the privacy budget: nothing was asked"
            )
        self._noises = noises
        return self._engine.ask(tasks, sites)

    @property
    def spent(self) -> PrivacySpent:
        """Return the cost so far."""
        budget, rho = self._budget, rho_of(self._noises)
        return PrivacySpent(
            budget.spent(rho),
            budget.delta,
            budget.group_size,
            rho,
            len(self._noises),
            budget.epsilon,
        )


def budget_of(fit: PrivateFit) -> Budget:
    """Return the privacy budget of a fit."""
    assert fit.epsilon is not None
    return Budget(float(fit.epsilon), float(fit.delta), int(fit.group_size))


def box_of(fit: PrivateFit, columns: Sequence[str]) -> Preprocessor:
    """Return the preprocessor that brings rows into the box, from the public bounds of a fit.

    Raises
    ------
    InputError
        If a column has no bounds, or there are bounds without a column.
    """
    given = fit.bounds
    assert given is not None  # guaranteed by the checks before the fit
    if not isinstance(given, Mapping):
        low, high = (np.broadcast_to(np.asarray(side, float), len(columns)) for side in given)
        return Preprocessor.in_box(columns, low.tolist(), high.tolist())
    lacking = sorted(set(columns) - set(given)) or sorted(set(given) - set(columns))
    if lacking:
        raise InputError(
            f"bounds must name each of the columns {', '.join(columns)}, and no others: "
            f"{lacking[0]!r}"
        )
    sides = [given[name] for name in columns]
    return Preprocessor.in_box(columns, [low for low, _ in sides], [high for _, high in sides])


def n_noises_of(sites: Sequence[SiteInfo]) -> int:
    """Return the approximate number of full noise terms in a total over sites.

    Examples
    --------
    >>> n_noises_of([SiteInfo(name) for name in "abc"])
    3
    >>> from fedcluster.core import Limit
    >>> told = (Limit("PrivacyBudget", (("epsilon", 1.0), ("colluders", 2))),)
    >>> n_noises_of([SiteInfo(name, told, secure=True) for name in "abcdefghij"])
    1
    """
    noises = 0.0
    for site in sites:
        parameters = {key: value for limit in site.limits for key, value in limit.parameters}
        together = site.secure and isinstance(parameters.get("colluders"), int)
        noises += 1 / max(len(sites) - parameters["colluders"], 1) if together else 1.0
    return max(round(noises), 1)


def n_rows_of(fit: PrivateFit, sites: Iterable[SiteInfo]) -> float | None:
    """Return the number of rows, as stated or as reported by local sites; None if unknown."""
    if fit.n_rows is not None:
        return float(fit.n_rows)
    rows = [site.n_rows for site in sites]
    return None if None in rows else float(sum(n for n in rows if n is not None))
