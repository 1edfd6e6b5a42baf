"""Moments of the rows in many small cells, and the cells themselves, grown from sums alone.

The rows of a cell, called a leaf, are those nearest to its point. Leaves with second moments
describe clusters of any shape, and a mixture of normal components can be fitted to them without a
round: with w, m and S the weight, mean and covariance of a leaf, its expected log density in a
component is

    w (log N(m; mu, Sigma) - tr(Sigma^-1 S) / 2)

(J. J. Verbeek, J. R. J. Nunnink & N. Vlassis, Accelerated EM-based clustering of large data sets,
Data Min. Knowl. Discov. 13, 2006, equation (6)). Leaves are halved along their axis of largest
variance as if they were normal: the halves of a leaf with variance v have their means at +- sqrt(2
v / pi) and the variance (1 - 2 / pi) v.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import pi, sqrt

import numpy as np
from numpy.random import Generator

from fedcluster.core import Data, Floats, Labels, Rows, State, Summary, coarse
from fedcluster.core.ranges import EITHER, MEANS, Allowed, Array
from fedcluster.kernels import nearest
from fedcluster.metrics.gaussians import variance_within
from fedcluster.metrics.moments import add_by_cluster, in_parts, no_rows, row_weights
from fedcluster.metrics.objectives import nearest_present


@dataclass(frozen=True, slots=True)
class LeafMoments:
    """First and second moments, about each of many points, of the rows nearest to it.

    The state's memory has ``unit`` (d,), which divides the differences in each column when the
    nearest point is sought, and ``texts`` (d,): 0 for a numeric column, else the number of its
    text.

    Parameters
    ----------
    products : bool, default=True
        Whether products of two columns are sent, and not only squares.
    gaps : bool, default=False
        Whether rows may have missing values: they count for the point nearest in their present
        columns, as if they coincided with it in the others; the weight of missing values in each
        column is sent too.

    Notes
    -----
    With p numeric columns, a site sends for each point d + 1 + p (p + 1) / 2 numbers, or d + 1 + p,
    and with ``gaps`` d more.

    Examples
    --------
    >>> memory = {"unit": np.ones(1), "texts": np.zeros(1)}
    >>> state = State(np.array([[1.0], [9.0]]), np.zeros(2), memory=memory)
    >>> rows = Data(np.array([[0.0], [3.0], [8.0]]))
    >>> LeafMoments().client_step(state, rows, np.random.default_rng(0)).sums
    array([[ 1.,  5.],
           [-1.,  1.]])
    """

    client_additive = server_additive = True

    products: bool = True
    gaps: bool = False

    @property
    def allowed(self) -> Allowed:
        """The ranges of what a site may be asked."""
        memory = {"unit": Array(("d",), 1e-100), "texts": Array(("d",), 0.0)}
        fields = {"products": EITHER, "gaps": EITHER}
        return Allowed(fields, MEANS, memory, gaps=self.gaps)

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each point."""
        p = int((state.memory["texts"] == 0).sum())
        seconds = p * (p + 1) // 2 if self.products else p
        return len(state.centers), n_columns * (1 + self.gaps) + seconds

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the sums of the rows' differences from their point, and of their products."""
        k, d = state.centers.shape
        numeric = np.flatnonzero(state.memory["texts"] == 0)
        upper = np.triu_indices(len(numeric)) if self.products else (np.arange(len(numeric)),) * 2
        total = no_rows(k, self.answer_shape(state, d)[1])
        for part in in_parts(data, 4 * d + len(upper[0])):
            labels, apart = self._apart(state, part.X)
            missing = np.isnan(apart)
            apart[missing] = 0.0
            numbers = apart[:, numeric]
            sums = [apart, numbers[:, upper[0]] * numbers[:, upper[1]]]
            sums += [missing.astype(np.float64)] if self.gaps else []
            counted = np.column_stack([*sums, np.ones(len(part))])
            added = add_by_cluster(labels, counted, row_weights(part), k)
            rows = np.bincount(labels, minlength=k).astype(np.float64)
            total += Summary(added[:, :-1], added[:, -1], rows)
        if (spread := variance_within(data)) is not None:
            squares = d + np.flatnonzero(upper[0] == upper[1])
            total.sums[:, squares] += total.weights[:, None] * spread[numeric]
        return total

    def _apart(self, state: State, X: Rows) -> tuple[Labels, Floats]:
        """Return the point of each row, (n,), and its difference from the row, (n, d)."""
        scaled, unit = X / state.memory["unit"], state.memory["unit"]
        find = nearest_present if self.gaps else nearest
        labels, _ = find(scaled, state.centers / unit)
        return labels, X - state.centers[labels]


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """Leaves that together hold all rows.

    Attributes
    ----------
    weights : ndarray of shape (L,)
        The weight of each leaf's rows.
    means : ndarray of shape (L, d)
        The means.
    covariances : ndarray of shape (L, p, p)
        The covariances, in the numeric columns.
    missing : ndarray of shape (d,), optional
        The share of all rows with a missing value in each column.
    """

    weights: Floats
    means: Floats
    covariances: Floats
    missing: Floats | None = None

    @classmethod
    def from_total(
        cls, step: LeafMoments, state: State, total: Summary, overall: Floats, least: float
    ) -> Leaves:
        """Return the leaves from the total of `LeafMoments` about their points.

        Without products, covariances between columns are those pooled within all leaves.

        Parameters
        ----------
        step, state, total
            The question and its total answer.
        overall : ndarray of shape (p, p)
            The covariance of all rows.
        least : float
            The smallest weight of a leaf: smaller ones become part of the nearest one.
        """
        d = state.centers.shape[1]
        numeric = np.flatnonzero(state.memory["texts"] == 0)
        some = np.flatnonzero(total.weights > 0)
        n, sums = total.weights[some], total.sums[some]
        moved, squares = sums[:, :d] / n[:, None], sums[:, d : d + step_width(step, len(numeric))]
        present = np.ones_like(moved)
        if step.gaps:
            present = np.maximum(1.0 - sums[:, -d:] / n[:, None], 0.0)
            moved = np.divide(moved, present, out=np.zeros_like(moved), where=present > 0)
        centered = moved[:, numeric]
        within = _covariances(squares / n[:, None], centered, present[:, numeric], overall)
        if not step.products:
            within = _with_common(within, n, centered + state.centers[some][:, numeric], overall)
        missing = n @ (1.0 - present) / n.sum()
        leaves = cls(n, state.centers[some] + moved, within, missing)
        return leaves.joined(state.memory["unit"], numeric, least)

    def joined(self, unit: Floats, numeric: np.ndarray, least: float) -> Leaves:
        """Return leaves in which those of less weight than ``least`` are part of the nearest."""
        large = self.weights >= least
        if large.all() or not large.any():
            return self
        places = np.flatnonzero(large)
        near, _ = nearest(self.means / unit, self.means[places] / unit)
        near[places] = np.arange(len(places))
        return self.merged(near, len(places), numeric)

    def merged(self, labels: Labels, k: int, numeric: np.ndarray) -> Leaves:
        """Return k leaves, each made of those with the same label."""
        n = np.bincount(labels, self.weights, k).astype(np.float64)
        means = add_by_cluster(labels, self.means, self.weights, k) / n[:, None]
        apart = (self.means - means[labels])[:, numeric]
        seconds = self.covariances + apart[:, :, None] * apart[:, None, :]
        flat = seconds.reshape(len(seconds), -1)
        covariances = add_by_cluster(labels, flat, self.weights, k) / n[:, None]
        return Leaves(n, means, covariances.reshape(k, *seconds.shape[1:]), self.missing)

    def halves(self, unit: Floats, numeric: np.ndarray) -> Leaves:
        """Return twice as many leaves: both halves of each, with their means and covariances.

        Each is halved along its first principal axis in the numeric columns, in units.
        """
        scale = unit[numeric]
        values, vectors = np.linalg.eigh(self.covariances / scale[:, None] / scale)
        length = np.sqrt(2 / pi * np.maximum(values[:, -1:], 0.0))  # no length without a column
        away = length * vectors[:, :, -1:].sum(axis=2) * scale
        kept = np.tile(self.covariances - away[:, :, None] * away[:, None], (2, 1, 1))
        means = np.tile(self.means, (2, 1))
        means[:, numeric] += np.concatenate([away, -away])
        return Leaves(np.tile(self.weights / 2, 2), means, kept, self.missing)

    def halved(self, most: int, unit: Floats, numeric: np.ndarray, least: float) -> Floats:
        """Return the points, at most ``most``, of leaves halved successively, always the widest.

        The widest has the largest weight times variance along its first axis, with columns in their
        units. A leaf of less than twice ``least`` is not halved.
        """
        spreads, steps = self._axes(unit, numeric)
        sizes = self.weights * spreads.max(axis=1, initial=0.0)
        largest = float(sizes.max())
        every = zip(coarse(-sizes, largest), self.weights, self.means, spreads, strict=True)
        queue = [(size, i, w, mean, v, i) for i, (size, w, mean, v) in enumerate(every)]
        heapify(queue)
        done, number = list[Floats](), len(queue)
        while queue and len(queue) + len(done) < most:
            _, _, w, mean, variances, leaf = heappop(queue)
            widest = float(variances.max(initial=0.0))
            # Variance along its first axis up to which a leaf is not halved.
            if w < 2 * least or widest <= 1e-12:
                done.append(mean)
                continue
            j = int(coarse(variances, widest).argmax())
            step = sqrt(2 * variances[j] / pi) * steps[leaf, j]
            kept = variances.copy()
            kept[j] *= 1 - 2 / pi
            size = coarse(-w / 2 * kept.max(), largest)
            for at in (mean - step, mean + step):
                heappush(queue, (size, number, w / 2, at, kept, leaf))
                number += 1
        return np.array([*done, *(each[3] for each in sorted(queue, key=lambda each: each[1]))])

    def _axes(self, unit: Floats, numeric: np.ndarray) -> tuple[Floats, Floats]:
        """Return variances along the axes of each leaf, (L, d), and the axes, (L, d, d).

        For numbers, these are the principal axes, in units; each level is an axis of its own.
        """
        (count, d), p, scale = self.means.shape, len(numeric), unit[numeric]
        other = np.setdiff1d(np.arange(d), numeric)
        scaled = self.covariances / scale[:, None] / scale
        values, vectors = np.linalg.eigh(scaled)
        variances = np.einsum("lii->li", scaled)
        if count == 1 and np.array_equal(scaled[0], np.diag(variances[0])):
            # equal variances must not be ordered by rounding errors
            values, vectors = variances, np.eye(p)[None]
        spreads, steps = np.zeros((count, d)), np.zeros((count, d, d))
        spreads[:, :p] = np.maximum(values, 0.0)
        shares = np.clip(self.means[:, other], 0.0, 1.0)
        spreads[:, p:] = shares * (1 - shares)
        steps[:, :p, numeric] = np.swapaxes(vectors * scale[:, None], 1, 2)
        steps[:, np.arange(p, d), other] = 1.0
        return spreads, steps


def step_width(step: LeafMoments, p: int) -> int:
    """Return the number of second moments of p columns that are sent for a point."""
    return p * (p + 1) // 2 if step.products else p


def _covariances(squares: Floats, moved: Floats, present: Floats, overall: Floats) -> Floats:
    """Return covariances (L, p, p) from mean products about the points, zero if not sent.

    A missing value counts as the leaf's mean, with the variance of the present ones.
    """
    count, p = moved.shape
    seconds = np.zeros((count, p, p))
    both = present[:, :, None] * present[:, None, :]
    diagonal = np.arange(p)
    both[:, diagonal, diagonal] = present
    if squares.shape[1] == p and p > 1:
        seconds[:, diagonal, diagonal] = squares
        both *= np.eye(p)
    else:
        a, b = np.triu_indices(p)
        seconds[:, a, b] = seconds[:, b, a] = squares
    seconds -= both * moved[:, :, None] * moved[:, None, :]
    there = np.maximum(present, 1e-300)
    variances = np.where(present > 0, seconds[:, diagonal, diagonal] / there, np.diag(overall))
    seconds[:, diagonal, diagonal] = np.maximum(variances, 0.0)
    return seconds


def _with_common(variances: Floats, weights: Floats, means: Floats, overall: Floats) -> Floats:
    """Return covariances whose off-diagonal parts are what the means leave of all rows'."""
    share = weights / weights.sum()
    centered = means - share @ means
    common = overall - (centered * share[:, None]).T @ centered
    diagonal = np.arange(len(overall))
    common[diagonal, diagonal] = 0.0
    covariances: Floats = variances + common
    return covariances


def begun(centers: Floats, unit: Floats, texts: Floats) -> State:
    """Return the state for asking about points, which have the same bits in any order of rows.

    Rows of few values may be as near to one point as to another.
    """
    unit = coarse(unit, unit)
    return replace(State.at(coarse(centers, unit)), memory={"unit": unit, "texts": texts})
