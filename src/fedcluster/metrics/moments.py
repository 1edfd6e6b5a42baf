"""Sums over rows, by cluster and by column: numbers, means and squares.

The one-round formula, E[x^2] - E[x]^2, fails if a mean is far from 0: at an offset of 1e8, no digit
of the variance is left. See T. F. Chan, G. H. Golub & R. J. LeVeque, Algorithms for computing the
sample variance, American Statistician 37 (1983); centred squares are their corrected two-pass
algorithm, equation (1.7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.random import Generator
from numpy.typing import ArrayLike

from fedcluster.core import Data, Floats, Labels, State, Step, Summary
from fedcluster.core.ranges import NO_CENTERS, Allowed, Box, LineBounds, Whole


def in_parts(data: Data, numbers: int, *, part_bytes: int = 1 << 23) -> Iterator[Data]:
    """Yield the rows in parts small enough that ``numbers`` numbers per row take few bytes."""
    rows = max(1, part_bytes // (8 * numbers))
    for start in range(0, len(data), rows):
        yield data.take(slice(start, start + rows))


def row_weights(data: Data) -> Floats:
    """Return the weight of each row, (n,)."""
    return np.ones(len(data)) if data.sample_weight is None else data.sample_weight


def add_by_cluster(labels: Labels, values: Floats, weight: Floats, k: int) -> Floats:
    """Return sums (k, p) of weight (n,) times values (n, p) over the rows of each label.

    Examples
    --------
    >>> add_by_cluster(np.array([0, 2, 2]), np.array([[1.0], [2.0], [3.0]]), np.ones(3), 3)
    array([[1.],
           [0.],
           [5.]])
    """
    n = len(labels)
    belongs = scipy.sparse.csr_array((weight, labels, np.arange(n + 1)), shape=(n, k))
    sums: Floats = belongs.T @ values
    return sums


def by_cluster(part: Data, labels: Labels, values: Floats, k: int) -> Summary:
    """Return the sums of values (n, p), the weights and the numbers of the rows of each label."""
    counted = np.column_stack([values, np.ones(len(part))])
    sums = add_by_cluster(labels, counted, row_weights(part), k)
    return Summary(sums[:, :-1], sums[:, -1], np.bincount(labels, minlength=k).astype(np.float64))


def no_rows(k: int, p: int) -> Summary:
    """Return the summary over no rows, with k lines of p sums."""
    return Summary(np.zeros((k, p)), np.zeros(k), np.zeros(k))


def one_line(values: ArrayLike, data: Data) -> Summary:
    """Return a message of one line: sums (p,) over all rows of a site, and their weight."""
    sums = np.atleast_2d(np.asarray(values, dtype=np.float64))
    return Summary(sums, np.array([row_weights(data).sum()]), np.array([float(len(data))]))


def one_number(step: Step, state: State, n_columns: int) -> tuple[int | None, int]:  # noqa: ARG001
    """Return the shape of an answer of one number; used as the `answer_shape` of a step."""
    return 1, 1


def center_of(state: State, d: int) -> Floats:
    """Return the only centre of a state, (d,), or 0 if it has none."""
    return state.centers[0] if len(state.centers) else np.zeros(d)


def mean(total: Summary) -> float:
    """Return the only sum of a total divided by its weight; nan if limits held back everything."""
    [[value]], [weight] = total.sums, total.weights
    return float(value / weight) if weight else float("nan")


@dataclass(frozen=True, slots=True)
class SiteSize:
    """Number of rows and their weight, without any of their values.

    From it, a coordinator knows the number of columns, and can check that no later answer weighs
    more than all rows together. The sites' filters apply to it as to any answer.

    Notes
    -----
    A site sends d + 1 numbers, once: its number of rows for each column, and their weight.

    Examples
    --------
    >>> rows = Data(np.zeros((5, 2)), sample_weight=np.full(5, 2.0))
    >>> answer = SiteSize().client_step(State(), rows, np.random.default_rng(0))
    >>> answer.sums, answer.weights
    (array([[5., 5.]]), array([10.]))
    """

    allowed = Allowed(centers=NO_CENTERS, gaps=True)
    client_additive = server_additive = maximise = True
    counts_rows = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a number for each column."""
        return 1, n_columns

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Count rows, once for each column."""
        return one_line(np.full(data.X.shape[1], data.n_rows), data)

    def score(self, state: State, total: Summary) -> float:
        """Return the number of rows of all sites."""
        return float(total.sums[0, 0]) if total.sums.size else 0.0


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums of w (x - c) and w (x - c)^2 over all rows, with c the only centre of a state.

    An empty state asks about c = 0, which gives the mean; asked again about the mean, the squares
    keep their digits at any offset of the rows.

    Notes
    -----
    A site sends 2 d + 1 numbers. They reveal the mean and the variance of each of its columns, and
    are not held back by a limit on the size of clusters, only by one on the rows of a site.

    Examples
    --------
    >>> rows = Data(np.array([[1.0], [3.0]]))
    >>> Moments().client_step(State.at([[1.0]]), rows, np.random.default_rng(0)).sums
    array([[2., 4.]])
    """

    allowed = Allowed(centers=Whole(0, 1))
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: two numbers for each column."""
        return 1, 2 * n_columns

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the sums, and the weight of all rows."""
        d = data.X.shape[1]
        about = center_of(state, d)
        sums = np.zeros(2 * d)
        for part in in_parts(data, 2 * d):
            apart = part.X - about
            sums += np.concatenate([_sums(apart, part), _sums(apart**2, part)])
        if (within := data.within) is not None:
            sums[d:] += within
        return one_line(sums, data)

    @staticmethod
    def mean_and_variance(state: State, total: Summary) -> tuple[Floats, Floats]:
        """Return mean and variance of each column, (d,) each, from the total of the step."""
        moved, squares = np.split(total.sums[0] / total.weights[0], 2)
        variance: Floats = np.maximum(squares - moved**2, 0.0)
        return center_of(state, len(moved)) + moved, variance


@dataclass(frozen=True, slots=True)
class Means:
    """Sum and weight of the present values of each column.

    A site sends 2 d numbers: a line for each column.

    Examples
    --------
    >>> rows = Data(np.array([[1.0, 5.0], [2.0, np.nan]]))
    >>> answer = Means().client_step(State(), rows, np.random.default_rng(0))
    >>> answer.sums.ravel(), answer.weights
    (array([3., 5.]), array([2., 1.]))
    """

    allowed = Allowed(centers=NO_CENTERS, gaps=True)
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each column."""
        return n_columns, 1

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: of the mean of each column."""
        return LineBounds(box.low[:, None], box.high[:, None], disjoint=False)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums over the present values."""
        X, weights, counts = observed(data)
        return Summary(_sums(X, data)[:, None], weights, counts)


@dataclass(frozen=True, slots=True)
class Squares:
    """Sums of x - m and of (x - m)^2 for each column, with m the only centre of a state, (1, d).

    An empty state asks about m = 0. A site sends 3 d numbers: a line for each column.

    Examples
    --------
    >>> rows, mean = Data(np.array([[1.0], [2.0], [6.0]])), State.at(np.array([[3.0]]))
    >>> Squares().client_step(mean, rows, np.random.default_rng(0)).sums
    array([[ 0., 14.]])
    """

    allowed = Allowed(centers=Whole(0, 1), gaps=True)
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: two sums for each column."""
        return n_columns, 2

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: of differences and their squares."""
        mean = center_of(state, len(box.low))
        squares = box.squares(mean[None])[0] + (box.high - box.low) ** 2 / 4
        low = np.where(np.isfinite(squares), 0.0, -np.inf)
        low = np.column_stack([box.low - mean, low])
        return LineBounds(low, np.column_stack([box.high - mean, squares]), disjoint=False)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums over the present values of differences from the centre."""
        X, weights, counts = observed(data)
        apart = X - center_of(state, X.shape[1])
        if (counts < len(X)).any():
            apart[np.isnan(data.X)] = 0.0
        first = _sums(apart, data)
        apart *= apart
        squares = _sums(apart, data)
        if (within := data.within) is not None:
            squares += within
        return Summary(np.column_stack([first, squares]), weights, counts)


def observed(data: Data) -> tuple[Floats, Floats, Floats]:
    """Return values (n, d) with 0 for missing ones, and weight and number of the others, (d,)."""
    X, missing = data.X.astype(np.float64, copy=False), np.isnan(data.X)
    if not missing.any():
        weight = len(X) if data.sample_weight is None else data.sample_weight.sum()
        return X, np.full(X.shape[1], float(weight)), np.full(X.shape[1], float(len(X)))
    there = (~missing).astype(np.float64)
    return np.where(missing, 0.0, X), _sums(there, data), there.sum(axis=0)


def _sums(X: Floats, data: Data) -> Floats:
    """Return weighted sums of the columns, (d,): not by BLAS, whose bits the processor decides."""
    weight = data.sample_weight
    sums: Floats = X.sum(axis=0) if weight is None else np.einsum("i,ij->j", weight, X)
    return sums
