"""What a site remembers from one hard pass to the next, so that late rounds score few rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.kernels._bounds import (
    SLACK,
    TINY,
    Kept,
    Moves,
    bounded_chunk,
    next_centers,
    room_for,
    ways,
)
from fedcluster.kernels._rows import Rows, Weights, as_centers, as_rows, as_weights
from fedcluster.kernels._sweep import (
    Packed,
    Sums,
    add_all,
    chunk_bounds,
    chunks,
    finish,
    pack_centers,
    sweep,
    zero_parts,
)
from fedcluster.kernels._threads import for_each_chunk, thread_count
from fedcluster.kernels._tiles import ADD_LANES

BUDGET = 1 << 28  # bytes that a site may keep
MOST_RUNS = 64  # whose centres are remembered, if not their bounds
WORTH_BOUNDS, ROWS_PER_CENTER = 1 << 22, 8  # from so many multiplications of a full pass on
FAR = 0.125  # ways of centres, in distances to the next one, after which most rows are uncertain
HUGE = 1e30  # ways of centres; where they are longer, nothing is certain
LONGEST_WAIT = 16

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class HardSums:
    """What the rows of each centre add up to; the same as in ``HardPass``.

    Attributes
    ----------
    sums : ndarray of shape (k, d), float64
        Sums of w x over the rows x of each centre.
    weights : ndarray of shape (k,), float64
        Sums of w.
    counts : ndarray of shape (k,), int64
        Numbers of rows with w > 0.
    errors : ndarray of shape (k,), float64
        Sums of w ||x - c||^2, in squared units of the rows.
    """

    sums: NDArray[np.float64]
    weights: NDArray[np.float64]
    counts: NDArray[np.int64]
    errors: NDArray[np.float64]


def hard_sums(
    X: ArrayLike,
    centers: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    cache: dict[str, Any],
) -> HardSums:
    """Sums of ``hard_pass``, the same bits, in less time where the cache knows similar centres.

    Parameters
    ----------
    X : array_like of shape (n, d), float32 or float64
        The rows.
    centers : array_like of shape (k, d)
        The centres.
    sample_weight : array_like of shape (n,), optional
        The rows' weights w >= 0; 1 each by default.
    cache : dict
        What earlier calls with these rows and weights left, and where this one leaves more, at
        most 256 MiB; empty at first. It never changes a result.

    Examples
    --------
    >>> found = hard_sums([[0.0], [1.0], [5.0], [6.0]], centers=[[0.0], [5.0]], cache={})
    >>> found.weights
    array([2., 2.])
    """
    rows, weights, centers = as_rows(X), as_weights(sample_weight), as_centers(centers)
    n, k = len(rows), len(centers)
    if k > 1 and n >= ROWS_PER_CENTER * k and rows.size * k >= WORTH_BOUNDS:
        memory: Memory = cache.setdefault("hard_sums", Memory())
        sums = memory.sweep(rows, centers, weights)
    else:
        _, sums = sweep(rows, centers, weights)
    return HardSums(sums.totals, sums.weights, sums.counts, sums.errors)


class Memory:
    """Some runs, those asked last.

    Several runs may take turns: a question belongs to the run whose centres are nearest. While
    it is answered the run is not in the list, so that two threads never write the same bounds.
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.asked = 0

    def __reduce__(self) -> Any:
        return Memory, ()  # a copy of the rows elsewhere starts anew

    @np.errstate(over="ignore", invalid="ignore")  # then nothing is certain
    def sweep(self, X: Rows, centers: Floats, sample_weight: Weights) -> Sums:
        """Sums over all rows, by bounds where they pay and there is room for them."""
        self.asked += 1
        apart = next_centers(centers)
        run = self._take(centers, apart) or Run(centers)
        own, run.centers, run.asked = ways(run.centers, centers), centers, self.asked
        if run.bounds is None and (run.waits(own, apart) or not self._has_room(X, len(centers))):
            _, sums = sweep(X, centers, sample_weight)
        else:
            sums = run.sweep(X, sample_weight, own, apart)
        self.runs.append(run)
        if len(self.runs) > MOST_RUNS:
            self._remove(self.runs[0])
        return sums

    def _take(self, centers: Floats, apart: Floats) -> Run | None:
        """Take out the run of the most similar centres, if they are similar enough."""
        similar = [run for run in self.runs if run.centers.shape == centers.shape]
        if not similar:
            return None
        known, asked = np.concatenate([run.centers for run in similar]), len(similar) * [centers]
        moved = ways(known, np.concatenate(asked)).reshape(len(similar), -1).mean(axis=1)
        if not moved.min() <= apart.mean() / 2:
            return None
        return self._remove(similar[int(moved.argmin())])

    def _remove(self, run: Run) -> Run | None:
        try:
            self.runs.remove(run)
        except ValueError:  # another thread took it
            return None
        return run

    def _has_room(self, X: Rows, k: int) -> bool:
        """Whether there is room for more bounds, once runs give up theirs that take no turns."""
        total = bytes_needed(X, k)
        for run in sorted(self.runs, key=lambda run: run.asked, reverse=True):
            if run.bounds is not None:
                total += run.bounds.n_bytes
                if total > BUDGET and run.asked < self.asked - 2 * MOST_RUNS:
                    total -= run.bounds.n_bytes
                    run.bounds = None
        return total <= BUDGET


@dataclass(slots=True, eq=False)
class Run:
    """Questions about centres each of which are near those before.

    Attributes
    ----------
    centers : ndarray of shape (k, d), float64
        The centres asked last.
    asked : int
        When, in questions.
    bounds : Bounds, optional
        What is known of the rows for these centres.
    wait, patience : int
        Questions to answer by full passes before bounds are tried; how many after the next
        failure. Where centres go a long way nothing is gained by bounds, and each try costs.
    """

    centers: Floats
    asked: int = 0
    bounds: Bounds | None = None
    wait: int = 1
    patience: int = 1

    def waits(self, own: Floats, apart: Floats) -> bool:
        """Whether it is too early to try bounds."""
        is_early = self.wait > 0 or not own.max() <= FAR * apart.mean()
        self.wait = max(self.wait - 1, 0)
        return is_early

    def sweep(self, X: Rows, sample_weight: Weights, own: Floats, apart: Floats) -> Sums:
        """Sums by bounds, which are given up if that took longer than a full pass."""
        packed = pack_centers(X, self.centers)
        bounds = self.bounds or Bounds(X, packed, len(own))
        is_new, sums = not bounds.is_known, bounds.sweep(X, sample_weight, packed, own, apart)
        if is_new or bounds.pay(X):
            self.bounds = bounds
        else:
            self.bounds, self.wait = None, self.patience
            self.patience = min(2 * self.patience, LONGEST_WAIT)
        return sums


def bytes_needed(X: Rows, k: int) -> int:
    """What bounds of these rows for k centres take, about."""
    (n, d), n_chunks = X.shape, len(chunk_bounds(len(X), k, X.shape[1])) - 1
    return 12 * n + 8 * n_chunks * k * (d + 2 * ADD_LANES)


class Bounds:
    """What is known of the rows for one set of centres.

    Attributes
    ----------
    kept : Kept
        Labels and bounds of the rows, once they are known.
    others : ndarray of shape (k,), float64
        The longest way of another centre in each pass, added up.
    parts : list of Parts
        The sums of each chunk.
    n_doubtful, n_scored, n_added : int
        Rows that looked uncertain in the last pass, that were scored, and that were added.
    """

    def __init__(self, X: Rows, packed: Packed, k: int) -> None:
        self.kept, self.others, self.is_known = room_for(len(X)), np.zeros(k), False
        self.limits = chunk_bounds(len(X), k, X.shape[1]).tolist()
        self.parts = [zero_parts(packed) for _ in self.limits[1:]]
        self.n_doubtful = self.n_scored = self.n_added = 0

    @property
    def n_bytes(self) -> int:
        """What it takes."""
        return sum(array.nbytes for known in (self.kept, *self.parts) for array in known)

    def sweep(
        self, X: Rows, sample_weight: Weights, packed: Packed, own: Floats, apart: Floats
    ) -> Sums:
        """Sums at new centres; all is known for these afterwards.

        ``own`` (k,) are the ways of the centres, ``apart`` (k,) the distances to the next ones.
        """
        moves = self._let_pass(own, apart, _rounding(X, packed, len(own)))
        sources, (labels, lower, above) = chunks(X, self.limits), self.kept
        counts = np.zeros((len(sources), 3), np.int64)

        def work(chunk: int) -> None:
            rows, source = sources[chunk]
            kept, weights = Kept(labels[rows], lower[rows], above[rows]), sample_weight[rows]
            counts[chunk] = bounded_chunk(
                source, weights, packed, kept, moves, self.parts[chunk], self.is_known
            )

        for_each_chunk(work, len(sources), thread_count() if len(sources) > 2 else 1)
        self.n_doubtful, self.n_scored, self.n_added = counts.sum(axis=0).tolist()
        self.is_known = True
        return finish(add_all(self.parts), packed, X.shape[1])

    def _let_pass(self, own: Floats, apart: Floats, rounding: tuple[float, float]) -> Moves:
        """Add the longest way of another centre to ``others``."""
        longest = int(own.argmax())
        most = np.full(len(own), own[longest])
        most[longest] = np.delete(own, longest).max()
        others = self.others + most
        self.others = np.where(others < HUGE, others, np.inf)
        # (l - u) (2 u + l - u) = l^2 - u^2 > 4 E, whatever u, if l - u is more than this
        ample = max(rounding[0] / 2, rounding[1] ** 0.5)
        enough = (self.others + own + ample) * (1 + SLACK)
        return Moves(
            own == 0,
            self.others.astype(np.float32),
            enough.astype(np.float32),
            apart.astype(np.float32),
            (np.float32(rounding[0]), np.float32(rounding[1])),
        )

    def pay(self, X: Rows) -> bool:
        """Whether the last pass took about as long as a full one at most.

        In nanoseconds as measured. It may take a little longer: the next ones will not.
        """
        (n, d), k = X.shape, len(self.others)
        score, add, read = 1.5 + 0.003 * X.itemsize * k * d, 2.6 + 0.3 * d, 0.25 * d
        spent = 1.4 * n + (5.5 + read) * self.n_doubtful
        spent += (9 + read + 1.4 * score) * self.n_scored + (3 + add) * self.n_added
        return spent < 1.25 * (score + add) * n


def _rounding(X: Rows, packed: Packed, k: int) -> tuple[float, float]:
    """What 4 E is at most, per unit of u and besides.

    The score of a centre is 1/2 ||c - s||^2 - (x - s).(c - s), both differences rounded, the
    product added up in d steps: wrong by at most E = (d + 8) eps M (||x - s|| + M / 2), with eps
    the unit roundoff and M the longest ||c - s||; and ||x - s|| <= u + M.
    """
    d, eps = X.shape[1], float(np.finfo(X.dtype).eps) / 2
    from_shift = packed.centers[:, :d] - packed.shift[:d]
    longest = float(np.sqrt(np.square(from_shift).sum(axis=1).max())) * float(1 + SLACK)
    per_distance = 4 * (d + 8) * eps * longest * float(1 + 4 * SLACK)
    # what float32 flushes to 0 in a score comes on top
    return per_distance, per_distance * 1.5 * longest + (d + 8) * float(TINY) ** 2
