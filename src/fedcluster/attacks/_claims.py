"""Score of an attack: how many of its claims are rows of the site."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from fedcluster.core import Floats

EXACT = 1e-3
"""Difference, in steps of a column, up to which a claim is exact."""
NEAR = 0.5
"""And up to which it is right when rounded."""
MOVES = 20
DEVIATIONS = 3.0
"""Standard deviations that chance is allowed for: many attacks are tried."""
MOST = 100_000
"""Claims of one attack that are looked at."""


@dataclass(frozen=True, slots=True)
class Score:
    """Count of what an attack read.

    Parameters
    ----------
    read : int
        Rows of which a claim is exact, in all columns that it names, beyond those that chance
        hits: claims are right by chance as often for the rows of the site as for rows of the same
        kind that it never had.
    near : int
        The same of claims that are right when rounded to the steps of the columns.
    alike : int
        Rows read exactly whose values as many rows share as a group has: not counted above.
    """

    read: int = 0
    near: int = 0
    alike: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Rows that claims are held against.

    Parameters
    ----------
    rows : ndarray of shape (n, d + 1)
        Numbers, and the place of the label, of the site's rows; NaN where one is missing.
    others : ndarray of shape (m, d + 1)
        Of rows of the same kind that the site never had.
    step : ndarray of shape (d + 1,)
        By how much two values differ at least.
    shared : int
        Rows with the same values from which on a value is no longer that of a person.
    """

    rows: Floats
    others: Floats
    step: Floats
    shared: int = 5

    def score(self, claims: Floats) -> Score:
        """Return the score of claims (m, d + 1), NaN where one says nothing."""
        read, alike = self._hit(claims, EXACT)
        near, _ = self._hit(claims, NEAR)
        return Score(min(read, near), near, alike)

    def _hit(self, claims: Floats, tolerance: float) -> tuple[int, int]:
        """Return how many rows are hit beyond chance, and how many that others share."""
        claims = claims[:MOST]
        says = np.isfinite(claims)
        hit, alike = np.zeros((2, len(self.rows)), bool)
        by_chance = 0.0
        for pattern in np.unique(says[says.any(axis=1)], axis=0):
            unit = self.step[pattern]
            named = claims[(says == pattern).all(axis=1)][:, pattern] / unit
            rows, others = self.rows[:, pattern] / unit, self.others[:, pattern] / unit
            here, is_shared = _near(rows, named, tolerance), _shared(rows, rows, self.shared)
            hit |= here & ~is_shared
            alike |= here & is_shared
            elsewhere = _near(others, named, tolerance) & ~_shared(others, rows, self.shared)
            missed = (_near(rows, moved, tolerance) & ~is_shared for moved in _moved(named, rows))
            by_chance += max(
                elsewhere.sum() * len(rows) / max(len(others), 1),
                sum(int(each.sum()) for each in missed) / MOVES,
            )
        most = ceil(by_chance + DEVIATIONS * by_chance**0.5)
        return max(0, int(hit.sum()) - most), int(alike.sum())


def _moved(claims: Floats, rows: Floats) -> Iterator[Floats]:
    """Yield claims moved by a few steps in the widest column: chance hits as they do.

    By at most a sixteenth of the column's range, so that the rows there are about as dense.
    """
    rng, moved = np.random.default_rng(0), claims.copy()
    widest = int(np.argmax([len(np.unique(column)) for column in rows.T]))
    values = rows[np.isfinite(rows[:, widest]), widest]
    farthest = np.clip(np.ptp(values) / 16 if len(values) else 0.0, 3, MOVES)
    for _ in range(MOVES):
        by = rng.integers(1, int(farthest) + 1, len(claims)) * rng.choice([-1, 1], len(claims))
        moved[:, widest] = claims[:, widest] + by
        yield moved


def _shared(rows: Floats, among: Floats, times: int) -> NDArray[np.bool_]:
    """Return whether so many rows have the values of a row, (n,)."""
    every = np.nan_to_num(np.concatenate([among, rows]), nan=np.inf).round(3)
    _, place = np.unique(every, axis=0, return_inverse=True)
    counts = np.bincount(place[: len(among)], minlength=place.max(initial=-1) + 1)
    shared: NDArray[np.bool_] = counts[place[len(among) :]] >= times
    return shared


def _near(rows: Floats, claims: Floats, tolerance: float) -> NDArray[np.bool_]:
    """Return which rows a claim names, (n,); each claim names one row at most.

    Examples
    --------
    >>> _near(np.array([[1.0], [2.0], [np.nan]]), np.array([[2.1], [7.0]]), 0.5)
    array([False,  True, False])
    """
    there = np.flatnonzero(np.isfinite(rows).all(axis=1))
    hit = np.zeros(len(rows), bool)
    if len(there) and len(claims):
        tree = cKDTree(rows[there])
        _, place = tree.query(claims, p=np.inf, distance_upper_bound=tolerance * (1 + 1e-9))
        hit[there[place[place < len(there)]]] = True
    return hit
