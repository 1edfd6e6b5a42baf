"""What algorithms minimise, by name; the inertia of rows with missing values.

Distances and inertia of rows with missing values: over the columns that a row has.

    |x - c|^2 = sum of (x_l - c_l)^2 over the columns l that x has

as in k-POD, J. T. Chi, E. C. Chi & R. G. Baraniuk, k-POD: a method for k-means clustering of
missing data, American Statistician 70 (2016), whose objective is the sum of these. J. K. Dixon,
Pattern recognition with partly missing data, IEEE Trans. Systems, Man, and Cybernetics 9 (1979),
multiplies it by d / (number of columns that x has), so that distances of rows with few and with
many values can be compared. That factor is the same for all centres, and moves no row to another.

Names of what algorithms make small: the number that `State.inertia` of a final state is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.random import Generator

from fedcluster.core import Algorithm, Data, Floats, Labels, Metric, Rows, State, Summary
from fedcluster.core.ranges import CENTERS, Allowed, Box, LineBounds
from fedcluster.metrics._fuzzy import FuzzyObjective
from fedcluster.metrics.clusters import Inertia
from fedcluster.metrics.gaussians import LogLikelihood
from fedcluster.metrics.moments import one_line, one_number, row_weights

BLOCK = 1 << 16
"""Distances that are computed at a time."""


def nearest_present(X: Rows, centers: Floats) -> tuple[Labels, Floats]:
    """Return the nearest centre of each row, (n,), and the squared distance to it, (n,).

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows, NaN where a value is missing; one without any value is at the distance 0 of all.
    centers : ndarray of shape (k, d)
        The centres.

    Examples
    --------
    >>> nan = float("nan")
    >>> nearest_present(np.array([[1.0, nan], [nan, 7.0]]), np.array([[0.0, 9.0], [5.0, 0.0]]))
    (array([0, 0], dtype=int32), array([1., 4.]))
    """
    k, d = centers.shape
    labels, squared = np.empty(len(X), dtype=np.int32), np.empty(len(X))
    size = max(1, BLOCK // max(1, k))
    for start in range(0, len(X), size):
        rows = X[start : start + size].T.astype(np.float64)
        there, distances = ~np.isnan(rows), np.zeros((k, rows.shape[1]))
        rows[~there] = 0.0
        for j in range(d):
            apart = rows[j] - centers[:, j, None]
            apart *= there[j]
            apart *= apart
            distances += apart
        nearest = distances.argmin(axis=0)
        labels[start : start + size] = nearest
        squared[start : start + size] = distances[nearest, np.arange(len(nearest))]
    return labels, squared


@dataclass(frozen=True, slots=True)
class PresentInertia:
    """Sum of the weighted squared distances of rows to their centres, over the values there are.

    A site sends two numbers, its part of the sum and its weight.

    Examples
    --------
    >>> rows = Data(np.array([[1.0, np.nan], [np.nan, 7.0]]))
    >>> state = State.at(np.array([[0.0, 9.0], [5.0, 0.0]]))
    >>> PresentInertia().client_step(state, rows, np.random.default_rng(0)).sums
    array([[5.]])
    """

    allowed = Allowed(centers=CENTERS, gaps=True)
    client_additive = server_additive = True
    maximise = False
    answer_shape = one_number

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: of the squared distance to the nearest centre."""
        most = box.distances(state.centers).min()
        return LineBounds(0.0 if np.isfinite(most) else -np.inf, most)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the site's part of the sum and the weight of its rows."""
        total = nearest_present(data.X, state.centers)[1] @ row_weights(data)
        if (within := data.within) is not None:
            total += within.sum()
        return one_line(total, data)

    def score(self, state: State, total: Summary) -> float:
        """Return the sum."""
        return float(total.sums[0, 0])


LOG_LIKELIHOOD = "log-likelihood"
REPORTED = "inertia as the algorithm reports it"
"""What a round of an algorithm of one's own tells, whose objective is asked after the last one."""

NAMES: Mapping[type, str] = MappingProxyType(
    {
        Inertia: "inertia",
        PresentInertia: "present-inertia",
        FuzzyObjective: "fuzzy-objective",
        LogLikelihood: LOG_LIKELIHOOD,
    }
)

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "inertia": "the sum of squared distances of the rows to their centres",
        "present-inertia": "the sum of squared distances over the values that are not missing",
        "fuzzy-objective": "the sum of squared distances by membership to the power m",
        LOG_LIKELIHOOD: "the logarithm of the density of the rows",
        "noisy-inertia": "the sum of squared distances, clipped and with the noise of the budget",
        "robust-inertia": "the sum of squared distances, of sites that are farthest off bounded",
    }
)
"""What the objectives of the package are."""


def objective_name(
    algorithm: Algorithm | None, *, robust: bool = False, noisy: bool = False
) -> str:
    """Return the name of an algorithm's objective; of one's own, the metric as it is written.

    Parameters
    ----------
    algorithm : Algorithm or None
        The algorithm; None for one that is not known.
    robust : bool, default=False
        Whether the fit bounds what single sites can change.
    noisy : bool, default=False
        Whether the fit has a privacy budget.

    Examples
    --------
    >>> from fedcluster.algorithms import FFCM, Lloyd
    >>> objective_name(Lloyd()), objective_name(Lloyd(), robust=True), objective_name(FFCM(2.0))
    ('inertia', 'robust-inertia', 'fuzzy-objective')
    """
    name = "inertia" if algorithm is None else metric_name(algorithm.objective())
    changed = "noisy-" if noisy else "robust-" if robust else ""
    return f"{changed}{name}" if name == "inertia" else name


def metric_name(metric: Metric) -> str:
    """Return the name of an objective: a word, or for one's own how it is written."""
    return NAMES.get(type(metric), str(metric))


def shown_value(name: str, value: float) -> float:
    """Return an objective as people read it: the log-likelihood, of which minus is made small."""
    return -value if name == LOG_LIKELIHOOD else value


def round_name(name: str) -> str:
    """Return the name of what each round of a run with this objective reports."""
    return name if name in MEANINGS else REPORTED
