"""Facts about all rows that are needed before mixtures are fitted, from sums.

Components are shrunk towards the pooled covariance: S_j <- (Q_j + nu W) / (N_j + nu), nu = d / 2 +
1. Small ones are dropped. Texts have shares of their own in each component only where that is
likelier for its number of parameters. Noise has the density 1 / V over the rows' ranges along
their principal axes. Rows that are seen as one, as those of a group or a person, count as one for
what is likely, and for nu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np

from fedcluster.algorithms.gaussian_mixture import GaussianMixture
from fedcluster.core import Floats, RowTransform, State, Summary, Task, coarse
from fedcluster.metrics.columns import AxisCounts, ColumnShape, Shapes, quantiles_of
from fedcluster.metrics.gaussians import CovarianceType
from fedcluster.metrics.moments import Moments
from fedcluster.preprocessing import Category, NumericColumn, Preprocessor
from fedcluster.preprocessing.moments import ColumnMoments, Covariance
from fedcluster.rounds import Plan

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

EDGES = np.concatenate([-np.geomspace(0.05, 40.0, 48)[::-1], [0.0], np.geomspace(0.05, 40.0, 48)])
"""Edges of cells along a principal axis, in standard deviations."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Facts about the rows that are known before mixtures are fitted.

    Parameters
    ----------
    n : float
        The weight of all rows.
    texts : ndarray of shape (d,)
        For each prepared column, the number of its text if it is a level; else 0.
    mean, variance : ndarray of shape (d,)
        Moments of all rows, in the columns of the mixtures.
    floors : ndarray of shape (d,)
        The smallest variance of each column.
    covariance : ndarray of shape (p, p)
        The covariance of all rows in the numeric columns.
    log_noise : float
        The log density of noise in the numeric columns.
    shift, scale : ndarray of shape (d,)
        Shift and scale from the columns used for clustering to those of the mixtures.
    preprocessor : RowTransform or None
        The preparation of rows for mixtures; None if it is that for clustering.
    between : ndarray of shape (d,)
        The share of each column's variance that is likely between clusters; see `Shapes`.
    rows_each : float
        The mean number of rows that are seen as one; see `Shapes`.
    share : float
        The share of the rows that a component has at least, where there are more columns.
    """

    n: float
    texts: Floats
    mean: Floats
    variance: Floats
    floors: Floats
    covariance: Floats
    log_noise: float
    shift: Floats
    scale: Floats
    preprocessor: RowTransform | None
    between: Floats
    rows_each: float = 1.0
    share: float = 0.04
    fewest_rows = 6
    """Number of rows below which a component is dropped, and where there are more columns, at most
    `share` of all rows: the tails of real rows, which are not normal, are many small components."""
    regularised = 1e-6  # amount added to variances, relative to the mean variance of a column
    settled = 1e-5  # change of the log likelihood per row below which a mixture has converged

    @classmethod
    def by_column(
        cls, texts: Floats, moments: ColumnMoments, preprocessor: RowTransform | None
    ) -> Table:
        """Return the facts of which only moments of single columns are known."""
        d, numbers = len(texts), texts == 0
        return cls(
            float(moments.weights.max()), texts, moments.mean, moments.variance, np.zeros(d),
            np.diag(moments.variance[numbers]), 0.0, np.zeros(d), np.ones(d), preprocessor,
            np.zeros(d),
        )  # fmt: skip

    def with_products(self, total: Summary) -> Table:
        """Return the table with the covariance of columns, from products about their means."""
        covariance, numbers = _covariance(total, np.zeros(len(self.mean))), self.texts == 0
        return replace(self, covariance=covariance[np.ix_(numbers, numbers)])

    @property
    def has_gaps(self) -> bool:
        """Whether mixtures are fitted to rows with missing values."""
        return self.preprocessor is not None and self.preprocessor.missing == "ignore"

    @property
    def n_numbers(self) -> int:
        """The number of numeric columns."""
        return int((self.texts == 0).sum())

    @property
    def n_levels(self) -> list[int]:
        """The number of levels of each text; one column of 0 and 1 counts as two."""
        sizes = np.bincount(self.texts[self.texts > 0].astype(int))[1:]
        return [max(int(each), 2) for each in sizes]

    def step(self, kind: Kind) -> GaussianMixture:
        """Return the step that fits mixtures of a kind to these rows."""
        shape, noise = kind
        d = self.n_numbers
        return GaussianMixture(
            shape,
            tol=self.settled,
            reg_covar=self.regularised,
            log_noise=self.log_noise if noise else None,
            levels=bool((self.texts > 0).any()),
            shrinkage=self.rows_each * (d / 2 + 1),
            min_weight=self.fewest(shape),
            floors=True,
        )

    def fewest(self, shape: CovarianceType) -> float:
        """Return the weight below which a component is dropped.

        Of fewer rows than columns, a covariance of its own is hardly more than the pooled one.
        """
        d = self.n_numbers
        least = d if shape == "full" else min(d, self.share * self.n)
        return min(max(float(least), self.fewest_rows), self.n / 2)

    def start(self, step: GaussianMixture, centers: Floats) -> State:
        """Return a state from which a mixture starts, at means (k, d)."""
        given = {"texts": self.texts} if step.levels else {}
        return step.start(centers, floors=self.floors, **given)

    @property
    def n_seen(self) -> float:
        """The weight of all rows, those of a group counting as one."""
        return self.n / self.rows_each

    @property
    def unit(self) -> Floats:
        """The deviation of each column within clusters, (d,); 1 for levels and constants.

        In columns of one unit by all rows, the many that tell nothing would decide which leaf is
        nearest.
        """
        unit: Floats = self.deviations * np.where(self.texts == 0, np.sqrt(1 - self.between), 1.0)
        return unit

    @property
    def deviations(self) -> Floats:
        """The standard deviation of each column, (d,); 1 for levels and constants."""
        varies = (self.texts == 0) & (self.variance > 0)
        return np.where(varies, np.sqrt(np.where(varies, self.variance, 1.0)), 1.0)

    def bic(self, kind: Kind, state: State, likelihood: float) -> float:
        """Return how likely a mixture is for its number of parameters."""
        k = int((state.weights > 0).sum())
        parameters = self.n_parameters(kind, state)
        return criterion(likelihood / self.rows_each, self.n_seen, k, parameters)

    def n_parameters(self, kind: Kind, state: State) -> tuple[int, int]:
        """Return the numbers of parameters of a mixture's single components, and of all."""
        alive = state.weights > 0
        shares = state.memory.get("shares", np.zeros((len(alive), 0)))
        differ = [
            bool((np.diff(shares[:, self.texts == number][alive], axis=0) != 0).any())
            for number in range(1, len(self.n_levels) + 1)
        ]
        texts = list(zip(self.n_levels, differ, strict=True))
        return n_parameters(kind[0], int(alive.sum()), self.n_numbers, texts, noise=kind[1])

    def with_common(self, state: State) -> State:
        """Return a state in which uninformative texts have their overall shares everywhere."""
        if "shares" not in state.memory:
            return state
        shares = state.memory["shares"].copy()
        for number, own in enumerate(_own_shares(state, self), start=1):
            if not own:
                mine = self.texts == number
                shares[:, mine] = state.memory["overall"][mine]
        return replace(state, memory={**state.memory, "shares": shares})

    def seen(self, centers: Floats) -> Floats:
        """Return centres of clusters in the columns of the mixtures."""
        moved: Floats = (centers - self.shift) / self.scale
        return moved

    def clustered(self, centers: Floats) -> Floats:
        """Return points in the columns used for clustering, from those of the mixtures."""
        moved: Floats = centers * self.scale + self.shift
        return moved


def table_plan(preprocessor: RowTransform | None, seed: int = 0) -> Plan[Table]:
    """Plan all facts that mixtures need about the rows, except the noise.

    They take a round for prepared rows whose means are near 0, and whose scales are their
    deviations; and else two.
    """
    how = _by_column(preprocessor)
    if preprocessor is None:
        [answers] = yield [Task(Moments(), State(), seed)]
        mean, variance = Moments.mean_and_variance(State(), answers.total())
        shapes, covariance = yield from _shapes(how, mean, _decade(np.sqrt(variance)), seed)
    else:
        mean = np.zeros(preprocessor.n_columns_out)
        decade = _decade(_raw(how, len(mean))[1])
        shapes, covariance = yield from _shapes(how, mean, decade, seed)
        is_scaled = (_raw(how, len(mean))[1] != 1.0) | (_texts(how, len(mean)) > 0)
        found = np.where(is_scaled, decade, _decade(np.sqrt(shapes.variance)))
        # Squared mean, in variances, up to which fourth powers about 0 tell columns of two values.
        if (shapes.mean**2 > 64.0 * shapes.variance).any() or (found != decade).any():
            shapes, covariance = yield from _shapes(how, shapes.mean, found, seed)
    texts, (shift, scale) = _texts(how, len(mean)), _raw(how, len(mean))
    two = _two_valued(shapes, how) & (texts == 0)
    low, width = np.zeros(len(mean)), np.ones(len(mean))
    low[two], width[two] = shapes.values[0, two], np.diff(shapes.values[:, two], axis=0)[0]
    texts[two] = texts.max(initial=0.0) + 1.0 + np.arange(two.sum())
    apart = coarse(width * scale, width * scale)
    own = _with_levels(how, two, coarse(low * scale + shift, apart), apart)
    width[texts > 0] *= _level_scale(how, len(mean), two)[texts > 0]
    floors, numbers = _floors(shapes, shapes.grid / scale), texts == 0
    return Table(
        shapes.n, texts, (shapes.mean - low) / width, shapes.variance / width**2, floors,
        covariance[np.ix_(numbers, numbers)], 0.0, low, width, own,
        shapes.between, shapes.rows_each,
    )  # fmt: skip


def _decade(size: Floats) -> Floats:
    """Return the largest powers of ten that half of some deviations reach, (d,); 1 for 0.

    The steps of grids are then from half to five deviations, down to a 20th or a 200th of one.
    """
    # Share of a decade by which a deviation may miss one that it reaches in another unit.
    powers: Floats = 10.0 ** np.floor(np.log10(np.where(size > 0, size / 2, 1.0)) + 1e-9)
    return powers


def _shapes(
    how: Preprocessor | None, about: Floats, decade: Floats, seed: int
) -> Plan[tuple[Shapes, Floats]]:
    """Plan the round for the shapes of columns and their covariance; grids are in decades."""
    center = State.at(about[None])
    shift, scale = _raw(how, len(about))
    asked = replace(center, memory={"shift": shift / decade, "scale": scale / decade})
    answers, scattered = yield [Task(ColumnShape(), asked, seed), Task(Covariance(), center, seed)]
    shapes = Shapes.from_total(asked, answers.total())
    shapes = replace(shapes, grid=shapes.grid * decade)
    return shapes, _covariance(scattered.total(), shapes.mean - about)


def _by_column(preprocessor: RowTransform | None) -> Preprocessor | None:
    """Return a preparation of single columns; None if there is none, or it mixes columns."""
    if not isinstance(preprocessor, Preprocessor) or preprocessor.unit:
        return None
    return None if preprocessor.principal else preprocessor


def _floors(shapes: Shapes, grid: Floats, *, share: float = 1e-6) -> Floats:
    """Return the smallest variance of each column, (d,), from its grid or gap of two values.

    ``share``: the smallest variance of a column, relative to that over all rows.
    """
    gap = np.nan_to_num(np.diff(shapes.values, axis=0)[0])
    least = np.where(shapes.variance > 0, share * shapes.variance, 1.0)
    floors: Floats = np.maximum(np.maximum(grid, gap) ** 2 / 4, least)
    return floors


def _two_valued(shapes: Shapes, preprocessor: Preprocessor | None) -> Any:
    """Return which columns have two values and can be treated as 0 and 1, (d,)."""
    if preprocessor is not None:
        return ~np.isnan(shapes.values[0])
    apart = np.abs(np.nan_to_num(shapes.values, nan=9.0) - np.array([[0.0], [1.0]]))
    return (apart <= ColumnShape.on_grid).all(axis=0)


def _raw(preprocessor: Preprocessor | None, d: int) -> tuple[Floats, Floats]:
    """Return shift and scale, (d,) each, from prepared numbers to raw values."""
    shift, scale = np.zeros(d), np.ones(d)
    if preprocessor is None:
        return shift, scale
    places = _places(preprocessor)
    for column, [j, *_] in zip(preprocessor.columns, places, strict=True):
        if isinstance(column, NumericColumn):
            shift[j], scale[j] = column.shift, column.scale
    return shift, scale


def _places(preprocessor: Preprocessor) -> list[list[int]]:
    """Return the positions of the prepared columns of each raw column."""
    ends = np.cumsum([len(column.names) for column in preprocessor.columns]).tolist()
    return [list(range(a, b)) for a, b in zip([0, *ends], ends, strict=False)]


def _texts(preprocessor: Preprocessor | None, d: int) -> Floats:
    """Return, for each prepared column, the number of its text if it is a level; else 0."""
    texts = np.zeros(d)
    if preprocessor is not None:
        pairs = zip(preprocessor.columns, _places(preprocessor), strict=True)
        levels = [places for column, places in pairs if isinstance(column, Category)]
        for number, places in enumerate(levels, start=1):
            texts[places] = number
    return texts


def _level_scale(preprocessor: Preprocessor | None, d: int, two: Any) -> Floats:
    """Return the value that marks a level in its column, as used for clustering, (d,); else 1."""
    scale = np.ones(d)
    if preprocessor is not None:
        for column, places in zip(preprocessor.columns, _places(preprocessor), strict=True):
            if isinstance(column, Category):
                scale[places] = 1.0 / column.scale
    return np.where(two, 1.0, scale)


def _with_levels(
    preprocessor: Preprocessor | None, two: Any, low: Floats, width: Floats
) -> RowTransform | None:
    """Return a preparation in which levels, and columns of two values, are 0 and 1.

    Return None if they are already.
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
    if own.fills:
        return replace(own, missing="ignore")
    return None if own == preprocessor else own


def _covariance(total: Summary, moved: Floats) -> Floats:
    """Return the covariance of all rows, (d, d), from products about a nearby point."""
    products: Floats = total.sums / np.maximum(total.weights, 1e-300)[:, None]
    return products - np.outer(moved, moved)


def with_noise(table: Table, seed: int = 0) -> Plan[Table]:
    """Plan the round for log 1 / V, V being the product of the ranges along principal axes."""
    [places] = np.nonzero(table.texts == 0)
    if not len(places):
        return table
    values, vectors = np.linalg.eigh(table.covariance)
    # Smallest variance along an axis, so that axes scaled to unit variance can be sent to a site.
    least = max(1e-12 * float(values.max()), 1e-180)
    sd = np.sqrt(np.maximum(values, least))
    axes = np.zeros((2 * len(places), len(table.mean)))
    axes[: len(places), places] = vectors.T / sd[:, None]
    axes[len(places) :, places] = np.eye(len(places)) / table.deviations[places][:, None]
    mean = table.clustered(table.mean)
    state = replace(State.at(mean[None]), memory={"axes": axes, "edges": EDGES})
    [answers] = yield [Task(AxisCounts(), state, seed)]
    counts = answers.total().weights.reshape(len(axes), -1)
    # Shares of the rows below the two ends of a range.
    low, high = quantiles_of(counts, EDGES, (0.001, 0.999)).T
    ranges = np.log(np.maximum(high - low, 1e-3) * np.append(sd, table.deviations[places]))
    return replace(table, log_noise=-float(ranges.reshape(2, -1).sum(axis=1).min()))


def _own_shares(state: State, table: Table) -> list[bool]:
    """Return for each text whether components likely have their own shares of its levels.

    With h_jl the weight of level l in component j, p_jl its share there and m_l its share of all
    rows: this is so if the sum of h_jl log(p_jl / m_l) is above (k - 1) (L - 1) log n / 2, where
    rows that are seen as one count as one.
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
        cost = (alive.sum() - 1) * (levels - 1) / 2 * log(max(table.n_seen, 1.0))
        own.append(gain > table.rows_each * cost)
    return own


def criterion(log_likelihood: float, n: float, k: int, parameters: tuple[int, int]) -> float:
    """Return the criterion log L - p / 2 log(n / k) - q / 2 log n.

    Examples
    --------
    >>> round(criterion(-100.0, np.e**4, 1, (4, 2)), 9)
    -112.0
    """
    own, shared = parameters
    rows = max(n, 1.0)
    return log_likelihood - own / 2 * log(max(rows / max(k, 1), 1.0)) - shared / 2 * log(rows)


def n_parameters(
    covariance_type: str, k: int, d: int, texts: Sequence[tuple[int, bool]], *, noise: bool
) -> tuple[int, int]:
    """Return p and q, the numbers of parameters of single components and of all together.

    Parameters
    ----------
    covariance_type : str
        The shape of the components.
    k, d : int
        The numbers of components and of numeric columns.
    texts : sequence of (int, bool)
        For each text, the number of its levels, and whether components have their own shares.
    noise : bool
        Whether there is noise.

    Examples
    --------
    >>> n_parameters("full", 3, 2, [(4, True), (2, False)], noise=True)
    (24, 8)
    """
    each = {"spherical": 1, "diag": d, "tied": 0, "full": d * (d + 1) // 2}
    own = k * (d + each[covariance_type] if d else 0)
    own += k * sum(most - 1 for most, mine in texts if mine)
    shared = k - 1 + sum(most - 1 for most, mine in texts if not mine) + noise * (1 + 2 * d)
    return own, shared + (covariance_type == "tied") * d * (d + 1) // 2
