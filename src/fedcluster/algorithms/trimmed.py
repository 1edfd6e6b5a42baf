"""Trimmed k-means: the rows that are farthest from all centres belong to no cluster.

J. A. Cuesta-Albertos, A. Gordaliza & C. Matran, Trimmed k-means: an attempt to robustify
quantizers, Annals of Statistics 25 (1997); concentration steps as in L. A. Garcia-Escudero,
A. Gordaliza & C. Matran, Trimming tools in exploratory data analysis, JCGS 12 (2003), section 3:

    r^2 <- the quantile 1 - alpha of d^2,  d the distance of a row to its nearest centre
    c_j <- the mean of the rows that are nearest to c_j and have d <= r

Both halves from sums, in one round, with the r of the round before:

    site i:   over its rows nearest to c_j with d <= r:  sum of x, sum of d^2, number, for each j;
              of all its rows: the number with d^2 in each of 32 cells
    server:   means from the sums;  r^2 <- the upper end of the cell that holds the quantile, and
              the next cells lie closely around it: its own 1/6 of the width as long as it stays

No site sends a distance. Centres stay in place until r is known within a factor of two, and have
converged only if it is again for where they stand. A centre without rows within r is moved next to
the centre of the largest error, which reveals no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.random import Generator

from fedcluster.algorithms.merging import mean_variance, means, total
from fedcluster.core import Data, Floats, Labels, Rows, State, Summary
from fedcluster.core.ranges import CENTERS, TOLERANCE, Allowed, Array, Box, LineBounds, Real, Whole
from fedcluster.kernels import nearest
from fedcluster.metrics import Inertia
from fedcluster.metrics.moments import add_by_cluster, in_parts, no_rows, row_weights

EDGES = np.geomspace(1e-30, 1e30, 31)
"""Number of edges between the cells of squared distances in the first round."""


MEMORY: Mapping[str, Array] = {
    "radius": Array(("one",), least=0.0),
    "edges": Array(("edges",), least=0.0, rising=True),
    "seen": Array(("one",), least=0.0),
}


@dataclass(frozen=True, slots=True)
class TrimmedLloyd:
    """Exact federated trimmed k-means; starts at a state that has centres.

    Parameters
    ----------
    trim : float
        alpha, the share of the weight of all rows that belongs to no cluster, 0 to 0.5.
    tol : float, default=1e-4
        As in `Lloyd`, with the variance of the rows that are kept.

    Notes
    -----
    The state's memory holds r^2 (``radius``, 0 while it is not known), the 31 ``edges`` between
    the cells, and the weight of all rows (``seen``). A site sends at most (k + 32) (d + 2)
    numbers a round, none of the k lines while r is not known.

    Examples
    --------
    >>> rows = Data(np.array([[0.0], [1.0], [2.0], [50.0]]))
    >>> step, state, rng = TrimmedLloyd(trim=0.25), State.at([[3.0]]), np.random.default_rng(0)
    >>> while not state.converged:
    ...     state = step.server_step(state, [step.client_step(state, rows, rng)], rng)
    >>> state.centers, step.assign(state, rows.X)
    (array([[1.]]), array([ 0,  0,  0, -1], dtype=int32))
    """

    allowed = Allowed(
        {"trim": Real(0, 0.5), "tol": TOLERANCE},
        CENTERS,
        memory=MEMORY,
        optional=True,
        sizes={"one": Whole(1, 1), "edges": Whole(len(EDGES), len(EDGES))},
    )
    client_additive = server_additive = needs_centers = True
    min_cluster_size = 1
    objective = Inertia

    trim: float
    tol: float = 1e-4

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each centre, and one for each cell."""
        return len(state.centers) + len(EDGES) + 1, n_columns + 1

    def assign(self, state: State, X: Rows) -> Labels:
        """Return the nearest centre of each row, or -1 for a row that is farther away than r."""
        labels, squared = nearest(X, state.centers)
        radius = state.memory["radius"][0] if state.memory else np.inf
        return np.where(squared <= radius, labels, -1).astype(np.int32)

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: as for `Lloyd`; cells have no sums."""
        kept = box.sums_and_errors(state.centers)
        cells = np.zeros((len(EDGES) + 1, len(box.low) + 1))
        low, high = (np.vstack([side, cells]) for side in (kept.low, kept.high))
        return LineBounds(low, high, disjoint=False)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums over the rows within r of each centre, and the cells' counts of rows."""
        radius, edges = _memory(state, "radius", [0.0])[0], _memory(state, "edges", EDGES)
        k, d = len(state.centers), data.X.shape[1]
        scatter = 0.0 if data.within is None else data.within.sum() / row_weights(data).sum()
        answer = no_rows(k + len(edges) + 1, d + 1)
        for part in in_parts(data, 3 * len(edges) + 2 * d):
            labels, squared = nearest(part.X, state.centers)
            below = share_below(squared, scatter, d, np.append(edges, radius))
            inside = below[:, -1] if radius else np.zeros(len(part))
            cells = np.diff(below[:, :-1], axis=1, prepend=0.0, append=1.0)
            # counts of groups are rounded, so the cumulative sums may not be monotone
            cells = np.maximum(cells, 0.0)
            values = np.column_stack([part.X, squared + scatter, np.ones(len(part))])
            weights = row_weights(part)
            sums = add_by_cluster(labels, values, weights * inside, k)
            answer += Summary(
                np.vstack([sums[:, :-1], np.zeros((cells.shape[1], d + 1))]),
                np.append(sums[:, -1], weights @ cells),
                np.append(np.bincount(labels, inside, minlength=k), cells.sum(axis=0)),
            )
        return answer

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Move each centre to the mean of its rows within r, and narrow the cells around r."""
        answer, k, done = total(answers), len(state.centers), state.round + 1
        search = RadiusSearch.after(state, answer, self.trim)
        radius = _memory(state, "radius", [0.0])[0]
        if radius == 0:  # a radius of 0 means that it is not known yet
            return State(state.centers, state.weights, round=done, memory=search.memory())
        sums, errors, weights = answer.sums[:k, :-1], answer.sums[:k, -1], answer.weights[:k]
        centers = means(sums, weights, otherwise=state.centers)
        centers = _without_empty(centers, errors, weights, rng)
        moved = float(((centers - state.centers) ** 2).sum())
        scale = mean_variance(centers, errors, weights, state.centers) if self.tol else 0.0
        inertia = float(errors.sum() + radius * (search.target - weights.sum()))
        settled = moved <= self.tol * scale and search.confirms(radius)
        memory = search.memory()
        return State(
            centers, weights, round=done, inertia=inertia, converged=settled, memory=memory
        )


def _without_empty(centers: Floats, errors: Floats, weights: Floats, rng: Generator) -> Floats:
    """Return centres, with those without rows moved next to those of the largest errors.

    Otherwise, a centre whose rows are all trimmed would stay among outliers for ever.
    """
    empty = np.flatnonzero(weights <= 0)
    crowded = np.argsort(-errors, kind="stable")[: len(empty)]
    crowded = crowded[errors[crowded] > 0]
    empty = empty[: len(crowded)]
    spread = np.sqrt(errors[crowded] / weights[crowded] / centers.shape[1])
    # Distance at which an empty centre is put beside another, in its standard deviations.
    aside = 0.01 * rng.normal(size=(len(crowded), centers.shape[1])) * spread[:, None]
    moved = centers.copy()
    moved[empty] = centers[crowded] + aside
    return moved


def share_below(squared: Floats, scatter: float, d: int, bounds: Floats) -> Floats:
    """Return the share of each row whose squared distance is at most each bound, (n, b).

    For a single row, 0 or 1. A group mean represents rows around it, whose squared distance to it
    is ``scatter`` on average: if they are normal, their squared distances to a centre at a squared
    distance s have the mean s + scatter and the variance (4 s scatter + 2 scatter^2) / d, and
    nearly the gamma distribution with these (E. B. Wilson & M. M. Hilferty, PNAS 17, 1931, for its
    shares).

    Examples
    --------
    >>> share_below(np.array([1.0, 4.0]), 0.0, 2, np.array([1.0, 2.0]))
    array([[1., 1.],
           [0., 0.]])
    >>> share_below(np.array([1.0, 4.0]), 1.0, 2, np.array([1.0, 4.0])).round(2)
    array([[0.34, 0.88],
           [0.03, 0.44]])
    """
    if scatter == 0:
        return (squared[:, None] <= bounds).astype(np.float64)
    mean = squared + scatter
    ninth = (4 * squared * scatter + 2 * scatter**2) / (9 * d * mean**2)
    roots = np.cbrt(bounds / mean[:, None])
    shares: Floats = scipy.special.ndtr((roots - 1 + ninth[:, None]) / np.sqrt(ninth[:, None]))
    return shares


def _memory(state: State, name: str, otherwise: Floats | list[float]) -> Floats:
    """Return an array of the memory, or ``otherwise`` if the state has no memory."""
    return np.asarray(state.memory.get(name, otherwise), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class RadiusSearch:
    """Search for r^2: what is known of it after a round.

    Parameters
    ----------
    radius : float
        The smallest edge with the share 1 - alpha of the rows at and below it; 0 if not known.
    edges : ndarray of shape (31,)
        Edges between the next cells.
    seen : float
        The weight of all rows.
    target : float
        The weight that is kept: a whole number for unweighted rows.
    found : bool
        Whether the quantile lies between the edges that were asked about.
    exact : bool
        Whether no smaller radius keeps as much.
    hidden : bool
        Whether limits hid rows. Half of these are assumed to be within the radius, and cells are
        not narrowed, which would hide more rows.
    """

    radius: float
    edges: Floats
    seen: float
    target: float
    found: bool
    exact: bool
    hidden: bool
    known = 4.0  # ratio of a cell's ends above which r is not known within a factor of two
    resolution = 2.0**-30
    """Width of a cell, relative to its upper end, at which it is not divided any more."""

    def memory(self) -> dict[str, Floats]:
        """Return the arrays for the memory of the state."""
        one, seen = np.array([self.radius]), np.array([self.seen])
        return {"radius": one, "edges": self.edges, "seen": seen}

    def confirms(self, radius: float) -> bool:
        """Return whether a radius in use is the one that is sought, within a factor of two."""
        return self.hidden or (self.found and self.radius * self.known >= radius)

    @classmethod
    def after(cls, state: State, answer: Summary, trim: float) -> RadiusSearch:
        """Return the search after an answer: the next radius, and the edges to ask about."""
        edges, counts = _memory(state, "edges", EDGES), answer.weights[len(state.centers) :]
        seen = max(float(counts.sum()), _memory(state, "seen", [0.0])[0])
        target = (1 - trim) * seen
        if seen == np.floor(seen):
            target = float(np.ceil(target - 1e-9 * seen))
        hidden = max(0.0, seen * (1 - 1e-9) - counts.sum())
        upto = np.cumsum(counts) + hidden / 2
        cell = int(np.searchsorted(upto, target * (1 - 1e-12)))
        if not 0 < cell < len(edges):
            # the first cell begins at 0: take the smallest positive edge
            radius = float(edges[-1] if cell else edges[edges > 0][0])
            following, found = _wider(edges, cell), cell == 0 == edges[0]
            return cls(radius, following, seen, target, bool(found), False, hidden > 0)
        low, high = edges[cell - 1], edges[cell]
        if 0 < cls.known * low < high:
            following = np.geomspace(low / 2, 2 * high, len(edges))
            return cls(0.0, following, seen, target, True, False, hidden > 0)
        exact = upto[cell] <= target * (1 + 1e-12) or high - low <= cls.resolution * high
        following = edges if hidden else _closer(low, high)
        return cls(high, following, seen, target, True, bool(exact), hidden > 0)


def _wider(edges: Floats, cell: int) -> Floats:
    """Return edges that reach nine times as far on the side of the quantile."""
    reach = 8 * (edges[-1] - edges[0])
    low, high = (edges[0], edges[-1] + reach) if cell else (edges[0] - reach, edges[-1])
    return np.linspace(max(low, 0.0), high, len(edges))


def _closer(low: float, high: float) -> Floats:
    """Return edges around a cell, with room for a quantile that moves with the centres."""
    aside = 2 * (high - low)
    return np.linspace(max(low - aside, 0.0), high + aside, len(EDGES))
