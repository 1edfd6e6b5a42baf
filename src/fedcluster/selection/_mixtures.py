"""Plan of fitting mixtures of all k and shapes in the same rounds, and of what they need first.

Each mixture starts from the k-means of its k, and takes `ROUNDS` rounds of expectation and
maximisation; one more tells how far its components overlap. Components lean on the covariance
within all of them: S_j <- (Q_j + nu W) / (N_j + nu), nu = d / 2 + 1. Small ones are dropped. Texts
have shares of their own in each component only where that is likelier for its number of
parameters. Noise has the density 1 / V over the rows' ranges along their principal axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, log
from typing import Any

import numpy as np

from fedcluster.algorithms.gaussian_mixture import GaussianMixture
from fedcluster.core import Floats, RowTransform, State, Summary, Task
from fedcluster.core.streams import stream
from fedcluster.kernels import kmeans
from fedcluster.metrics.columns import ON_GRID, AxisCounts, ColumnShape, Shapes, quantiles_of
from fedcluster.metrics.gaussians import CovarianceType, MixtureOverlap
from fedcluster.metrics.moments import Moments
from fedcluster.preprocessing import Category, NumericColumn, Preprocessor
from fedcluster.preprocessing.moments import Covariance
from fedcluster.rounds import Plan, gather, server_update
from fedcluster.selection._likelihood import Mixture, n_parameters

ROUNDS, TRIAL = 8, 3
"""Rounds of a mixture; and those after which the likelier of two starts goes on."""
RESTARTS = 5
"""Of the k-means of means, by numbers alone, that a second start is."""
FEWEST = 6
"""Rows, or as many as columns, below which a component is dropped."""
MOST_NUMBERS = 100_000
"""Numbers of a round that all mixtures together may take; above, full covariances are left out."""
REGULARISED = 1e-6
"""Added to variances, as a share of the mean variance of a column."""
LEAST = 1e-6
"""The least variance of a column, as a share of that over all rows."""
SETTLED = 1e-6
"""Change of the log likelihood of a row by which a mixture has converged."""

Kind = tuple[CovarianceType, bool]
KINDS: tuple[Kind, ...] = (
    ("spherical", False),
    ("diag", False),
    ("tied", False),
    ("full", False),
    ("diag", True),
    ("tied", True),
    ("full", True),
)
"""Shapes of components, and whether there is noise."""
FULL: tuple[Kind, ...] = (("full", False), ("full", True))

EDGES = np.concatenate([-np.geomspace(0.05, 40.0, 48)[::-1], [0.0], np.geomspace(0.05, 40.0, 48)])
"""Edges of cells along a principal axis, in standard deviations."""
LEAST_VARIANCE = 1e-180
"""Variance along an axis below which its unit could not be told to a site."""
RANGE = (0.001, 0.999)
"""Shares of the rows below the ends of a range."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What is known of the rows before mixtures are fitted.

    Parameters
    ----------
    n : float
        The weight of all rows.
    texts : ndarray of shape (d,)
        Of each prepared column, the number of the text that it is a level of; 0 of numbers.
    mean, variance : ndarray of shape (d,)
        Of all rows, as the mixtures see them.
    floors : ndarray of shape (d,)
        The least variance of each column.
    log_noise : float
        The log density of noise in the columns of numbers.
    shift, scale : ndarray of shape (d,)
        What turns columns, as they are clustered, into those that mixtures see.
    preprocessor : RowTransform or None
        How rows are prepared for mixtures; None where as they are clustered.
    """

    n: float
    texts: Floats
    mean: Floats
    variance: Floats
    floors: Floats
    log_noise: float
    shift: Floats
    scale: Floats
    preprocessor: RowTransform | None

    @property
    def n_numbers(self) -> int:
        """Return the number of columns of numbers."""
        return int((self.texts == 0).sum())

    @property
    def n_levels(self) -> list[int]:
        """Return the number of levels of each text; one column of 0 and 1 has two."""
        sizes = np.bincount(self.texts[self.texts > 0].astype(int))[1:]
        return [max(int(each), 2) for each in sizes]

    def step(self, kind: Kind) -> GaussianMixture:
        """Return the step that fits mixtures of a kind to these rows."""
        shape, noise = kind
        d = self.n_numbers
        spread = float(self.variance[self.texts == 0].mean()) if d else 1.0
        return GaussianMixture(
            shape,
            tol=SETTLED,
            reg_covar=REGULARISED * spread or REGULARISED,
            log_noise=self.log_noise if noise else None,
            levels=bool((self.texts > 0).any()),
            shrinkage=d / 2 + 1,
            min_weight=min(float(max(FEWEST, d)), self.n / 2),
            floors=True,
        )

    def seen(self, centers: Floats) -> Floats:
        """Return centres of clusters in the columns that mixtures see."""
        moved: Floats = (centers - self.shift) / self.scale
        return moved


def table_plan(preprocessor: RowTransform | None, seed: int = 0) -> Plan[Table]:
    """Plan three rounds that collect what mixtures need of the rows."""
    how = _by_column(preprocessor)
    [answers] = yield [Task(Moments(), State(), seed)]
    total = answers.total()
    mean, _ = Moments.mean_and_variance(State(), total)
    n, about = float(total.weights[0]), State.at(mean[None])
    shift, scale = _raw(how, len(mean))
    asked = replace(about, memory={"shift": shift, "scale": scale})
    told, scattered = yield [Task(ColumnShape(), asked, seed), Task(Covariance(), about, seed)]
    shapes, texts = Shapes.from_total(asked, told.total()), _texts(how, len(mean))
    covariance = _covariance(scattered.total(), shapes.mean - mean)
    two = _two_valued(shapes, how) & (texts == 0)
    low, width = np.zeros(len(mean)), np.ones(len(mean))
    low[two], width[two] = shapes.values[0, two], np.diff(shapes.values[:, two], axis=0)[0]
    texts[two] = texts.max(initial=0.0) + 1.0 + np.arange(two.sum())
    own = _with_levels(how, two, low * scale + shift, width * scale)
    width[texts > 0] *= _level_scale(how, len(mean), two)[texts > 0]
    floors = _floors(shapes, shapes.grid / scale)
    log_noise = yield from _log_noise(shapes.mean, covariance, texts == 0, seed)
    return Table(
        n, texts, (shapes.mean - low) / width, shapes.variance / width**2, floors, log_noise, low,
        width, own,
    )  # fmt: skip


def _by_column(preprocessor: RowTransform | None) -> Preprocessor | None:
    """Return a preparation of each column for itself; None where it is none, or mixes columns."""
    if not isinstance(preprocessor, Preprocessor) or preprocessor.unit:
        return None
    return None if preprocessor.principal else preprocessor


def _floors(shapes: Shapes, grid: Floats) -> Floats:
    """Return the least variance of each column, (d,): by its grid, or what two values differ by."""
    gap = np.nan_to_num(np.diff(shapes.values, axis=0)[0])
    least = np.where(shapes.variance > 0, LEAST * shapes.variance, 1.0)
    floors: Floats = np.maximum(np.maximum(grid, gap) ** 2 / 4, least)
    return floors


def _two_valued(shapes: Shapes, preprocessor: Preprocessor | None) -> Any:
    """Return whether each column has two values, and can be seen as 0 and 1, (d,)."""
    if preprocessor is not None:
        return ~np.isnan(shapes.values[0])
    apart = np.abs(np.nan_to_num(shapes.values, nan=9.0) - np.array([[0.0], [1.0]]))
    return (apart <= ON_GRID).all(axis=0)


def _raw(preprocessor: Preprocessor | None, d: int) -> tuple[Floats, Floats]:
    """Return shift and scale, (d,) each, that turn prepared numbers into values as they were."""
    shift, scale = np.zeros(d), np.ones(d)
    if preprocessor is None:
        return shift, scale
    places = _places(preprocessor)
    for column, [j, *_] in zip(preprocessor.columns, places, strict=True):
        if isinstance(column, NumericColumn):
            shift[j], scale[j] = column.shift, column.scale
    return shift, scale


def _places(preprocessor: Preprocessor) -> list[list[int]]:
    """Return the places of the prepared columns of each column."""
    ends = np.cumsum([len(column.names) for column in preprocessor.columns]).tolist()
    return [list(range(a, b)) for a, b in zip([0, *ends], ends, strict=False)]


def _texts(preprocessor: Preprocessor | None, d: int) -> Floats:
    """Return of each prepared column the number of the text whose level it is; 0 of numbers."""
    texts = np.zeros(d)
    if preprocessor is not None:
        pairs = zip(preprocessor.columns, _places(preprocessor), strict=True)
        levels = [places for column, places in pairs if isinstance(column, Category)]
        for number, places in enumerate(levels, start=1):
            texts[places] = number
    return texts


def _level_scale(preprocessor: Preprocessor | None, d: int, two: Any) -> Floats:
    """Return what a row of a level is in its column, as it is clustered, (d,); else 1."""
    scale = np.ones(d)
    if preprocessor is not None:
        for column, places in zip(preprocessor.columns, _places(preprocessor), strict=True):
            if isinstance(column, Category):
                scale[places] = 1.0 / column.scale
    return np.where(two, 1.0, scale)


def _with_levels(
    preprocessor: Preprocessor | None, two: Any, low: Floats, width: Floats
) -> RowTransform | None:
    """Return a preparation in which columns of two values, and levels, are 0 and 1.

    None where they are already.
    """
    if preprocessor is None:
        return None
    columns: list[Any] = []
    for column, [j, *_] in zip(preprocessor.columns, _places(preprocessor), strict=True):
        if isinstance(column, Category):
            columns.append(replace(column, scale=1.0))
        elif two[j]:
            columns.append(replace(column, shift=float(low[j]), scale=float(width[j])))
        else:
            columns.append(column)
    own = replace(preprocessor, columns=tuple(columns))
    return None if own == preprocessor else own.completing()


def _covariance(total: Summary, moved: Floats) -> Floats:
    """Return the covariance of all rows, (d, d), from products about a point nearby."""
    products: Floats = total.sums / np.maximum(total.weights, 1e-300)[:, None]
    return products - np.outer(moved, moved)


def _log_noise(mean: Floats, covariance: Floats, numbers: Any, seed: int) -> Plan[float]:
    """Plan the round that tells log 1 / V, V the product of the ranges along principal axes."""
    [places] = np.nonzero(numbers)
    if not len(places):
        return 0.0
    values, vectors = np.linalg.eigh(covariance[np.ix_(places, places)])
    least = max(1e-12 * float(values.max()), LEAST_VARIANCE)
    sd = np.sqrt(np.maximum(values, least))
    axes = np.zeros((len(places), len(mean)))
    axes[:, places] = vectors.T / sd[:, None]
    state = replace(State.at(mean[None]), memory={"axes": axes, "edges": EDGES})
    [answers] = yield [Task(AxisCounts(), state, seed)]
    counts = answers.total().weights.reshape(len(places), -1)
    low, high = quantiles_of(counts, EDGES, RANGE).T
    return -float(np.log(np.maximum(high - low, 1e-3) * sd).sum())


def mixtures_plan(
    results: Mapping[int, State],
    table: Table,
    kinds: Sequence[Kind],
    means: State | None = None,
    seed: int = 0,
) -> Plan[list[Mixture]]:
    """Plan a mixture of each kind for each k, all in the same rounds; those that are left.

    One of which all components are small is dropped.

    Parameters
    ----------
    results : mapping of int to State
        The clusters that k-means found, by k.
    table : Table
        What is known of the rows.
    kinds : sequence of (str, bool)
        Shapes, and whether there is noise.
    means : State, optional
        Weighted means of the rows: where there are texts, a second start is found among them by
        numbers alone.
    seed : int, default=0
        Makes the second start.
    """
    each = [
        _fitted(kind, k, starts, table, seed)
        for k, starts in _starts(results, table, means, seed).items()
        for kind in kinds
    ]
    fitted = yield from gather(each)
    return [mixture for mixture in fitted if len(mixture.weights)]


def kinds_for(table: Table, ks: Sequence[int]) -> list[Kind]:
    """Return the kinds of mixtures that are fitted: fewer where they would take many numbers.

    Full covariances without noise are left out first, then all full ones. Without numbers,
    components have no shape.
    """
    d, width = table.n_numbers, len(table.texts)
    if not d:
        return [("diag", False)]
    starts = 2 if (table.texts > 0).any() else 1
    chosen = list(KINDS)
    for left_out in FULL:
        if starts * _numbers(chosen, ks, d, width) <= MOST_NUMBERS:
            break
        chosen.remove(left_out)
    return chosen


def _numbers(kinds: Sequence[Kind], ks: Sequence[int], d: int, width: int) -> int:
    """Return how many numbers a site sends in a round of mixtures of these kinds and sizes."""
    own = {"spherical": 1, "diag": d, "tied": 0, "full": d * (d + 1) // 2}
    sent = 0
    for shape, noise in kinds:
        shared = d * (d + 1) // 2 if shape == "tied" else 0
        sent += sum((k + noise) * (width + own[shape] + 2) + shared for k in ks)
    return sent


def _starts(
    results: Mapping[int, State], table: Table, means: State | None, seed: int
) -> dict[int, list[State]]:
    """Return the centres that the mixtures of each k start from: one start, or two with texts."""
    starts = {k: [table.seen(state.centers)] for k, state in results.items()}
    numbers = table.texts == 0
    if numbers.all() or not numbers.any():
        return {k: [State.at(each) for each in every] for k, every in starts.items()}
    rng = stream(seed, 0, "numbers")
    for k, every in starts.items():
        centers = np.repeat(table.mean[None], k, axis=0)
        if means is None:
            centers[:, numbers] = every[0][:, numbers]
        else:
            points = table.seen(means.centers)[:, numbers]
            copies = np.resize(points, (max(len(points), k), points.shape[1]))
            weights = np.pad(means.weights, (0, len(copies) - len(points)))
            centers[:, numbers] = kmeans(copies, k, weights, rng=rng, n_init=RESTARTS).centers
        every.append(centers)
    return {k: [State.at(each) for each in every] for k, every in starts.items()}


def _fitted(kind: Kind, k: int, starts: Sequence[State], table: Table, seed: int) -> Plan[Mixture]:
    """Plan one mixture: the likelier of its starts, and how far its components overlap."""
    step = table.step(kind)
    given = {"texts": table.texts} if step.levels else {}
    runs = [step.start(start.centers, floors=table.floors, **given) for start in starts]
    for done in range(ROUNDS):
        asked = [i for i, run in enumerate(runs) if not run.converged]
        if not asked:
            break
        answers = yield [Task(step, runs[i], seed, table.preprocessor) for i in asked]
        for i, answer in zip(asked, answers, strict=True):
            runs[i] = _with_common(server_update(step, runs[i], answer, seed)[0], table)
        if done == TRIAL:
            runs = [min(runs, key=lambda run: np.inf if isnan(run.inertia) else run.inertia)]
    best = min(runs, key=lambda run: np.inf if isnan(run.inertia) else run.inertia)
    last = MixtureOverlap(step.covariance_type, step.log_noise, step.levels)
    asked_about = replace(best, memory={n: best.memory[n] for n in last.allowed.memory})
    [answer] = yield [Task(last, asked_about, seed, table.preprocessor)]
    return _mixture(kind, k, best, answer.total(), table)


def _own_shares(state: State, table: Table) -> list[bool]:
    """Return of each text whether its levels' shares in the components are likely their own.

    With h_jl the weight of level l in component j, p_jl its share there and m_l its share of all
    rows: where the sum of h_jl log(p_jl / m_l) is above (k - 1) (L - 1) log n / 2.
    """
    own = []
    weights, alive = state.weights[:, None], state.weights > 0
    for number, levels in enumerate(table.n_levels, start=1):
        mine = table.texts == number
        counts, shares = weights * state.centers[:, mine], state.memory["shares"][:, mine]
        overall = state.memory["overall"][mine]
        if mine.sum() == 1:
            counts, shares = (np.hstack([a, b - a]) for a, b in ((counts, weights), (shares, 1.0)))
            overall = np.append(overall, 1.0 - overall)
        gained = np.log(np.maximum(shares, 1e-10)) - np.log(np.maximum(overall, 1e-10))
        gain = float((np.maximum(counts, 0.0) * gained)[alive].sum())
        own.append(gain > (alive.sum() - 1) * (levels - 1) / 2 * log(max(table.n, 1.0)))
    return own


def _with_common(state: State, table: Table) -> State:
    """Return a state in which texts that tell nothing have their overall shares everywhere."""
    if "shares" not in state.memory:
        return state
    shares = state.memory["shares"].copy()
    for number, own in enumerate(_own_shares(state, table), start=1):
        if not own:
            mine = table.texts == number
            shares[:, mine] = state.memory["overall"][mine]
    return replace(state, memory={**state.memory, "shares": shares})


def _mixture(kind: Kind, k: int, state: State, total: Summary, table: Table) -> Mixture:
    """Return a mixture with the statistics of its last round."""
    shape, has_noise = kind
    alive = (total.weights[: len(state.centers)] > 0) & (state.weights > 0)
    weights = total.weights[: len(alive)][alive]
    fourth = float(total.sums[: len(alive), -2][alive].sum() / max(float(weights.sum()), 1e-300))
    shares = state.memory.get("shares", np.zeros((len(alive), 0)))
    differ = [
        bool((np.diff(shares[:, table.texts == number][alive], axis=0) != 0).any())
        for number in range(1, len(table.n_levels) + 1)
    ]
    texts = list(zip(table.n_levels, differ, strict=True))
    noise = float(total.weights[-1] / max(float(total.weights.sum()), 1e-300))
    precisions = state.memory["precisions_cholesky"]
    c, d = int(alive.sum()), table.n_numbers
    return Mixture(
        shape,
        k,
        weights,
        total.sums[: len(alive), : len(alive)][np.ix_(alive, alive)],
        fourth,
        MixtureOverlap().score(state, total),
        n_parameters(shape, c, d, texts, noise=has_noise),
        d,
        noise if has_noise else None,
        1.0 / precisions[alive] ** 2 if shape == "spherical" and d else None,
    )
