"""A column of one site beside the rows elsewhere that are alike in the other columns.

Sites have other shares of the same kinds of rows, so that their columns differ honestly. Rows that
are alike in all other columns are of the same kinds: whatever the shares, their values are drawn
alike. So each row of a site is matched with its nearest rows elsewhere, by the ranks of the other
columns, and the site's values are compared with those of the matches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats


@dataclass(frozen=True, slots=True)
class Matching:
    """How rows are matched."""

    neighbors: int = 8  # matches of a row
    folds: int = 12
    """Parts of the columns; those of one part are matched by all others at once, as a match takes
    the longest."""
    farther: float = 1.25  # mean square of the distances to matches, beside those of the matches
    surely: float = 3.5  # standard errors by which values go less with their matches
    own: int = 200  # rows of a site that are matched
    elsewhere: int = 600  # rows among which matches are sought


HOW = Matching()


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Values of a column at a site, and those of the rows that match them.

    Parameters
    ----------
    values : ndarray of shape (n,)
        The values at the site, nan where they are missing.
    usual : ndarray of shape (m,)
        The values elsewhere, in increasing order.
    weights : ndarray of shape (m,)
        How often the row of each was a match, as shares.
    near : ndarray of shape (n,)
        The mean rank of the matches of each row.
    elsewhere : callable
        Returns the rank correlation of values elsewhere with their matches there.
    astray : callable
        Returns how much less values rise with their matches than those elsewhere do, if that is
        surely less than half; else 0.
    """

    values: Floats
    usual: Floats
    weights: Floats
    near: Floats
    elsewhere: Callable[[], float]
    astray: Callable[[], float] = float

    @property
    def known(self) -> Floats:
        """The values that are not missing."""
        known: Floats = self.values[~np.isnan(self.values)]
        return known

    @property
    def noise(self) -> float:
        """The unlikeness that is due to chance."""
        effective = 1.0 / float((self.weights**2).sum())
        return _length((1.0 / len(self.known) + 1.0 / effective) / 6.0)

    @property
    def moments(self) -> tuple[float, float]:
        """The mean and standard deviation of the matches."""
        mean = float(self.weights @ self.usual)
        return mean, math.sqrt(float(self.weights @ (self.usual - mean) ** 2))

    def unlike(self, x: Floats) -> float:
        """Return how unlike values are, which the site's may be after a conversion, and matches.

        Those that are nan are left out.

        It is the distance of Cramér and von Mises between both distributions, expressed as the
        shift of a normal distribution in its deviations that has it, as long as it is small: 1.9 at
        most.
        """
        x, total = np.sort(x[~np.isnan(x)]), np.append(0.0, np.cumsum(self.weights))
        there = total[np.searchsorted(self.usual, self.usual, "right")]
        here = np.searchsorted(x, self.usual, "right") / len(x)
        among = float(self.weights @ (here - there) ** 2)
        there = total[np.searchsorted(self.usual, x, "right")]
        here = np.searchsorted(x, x, "right") / len(x)
        return _length((among + float(((here - there) ** 2).mean())) / 2.0)

    def along(self, x: Floats) -> float:
        """Return the rank correlation of values with their matches, 0 if all are equal."""
        there = ~np.isnan(x + self.near)
        return _correlation(ranks(x[there], x[there]), self.near[there]) if there.any() else 0.0


def _length(square: float) -> float:
    """Return the shift of a normal distribution, in deviations, at a distance."""
    return math.sqrt(square * 2.0 * math.pi * math.sqrt(3.0))


def ranks(x: Floats, among: Floats) -> Floats:
    """Return mean ranks from 0 to 1 among values."""
    ordered = np.sort(among)
    both = np.searchsorted(ordered, x, "left") + np.searchsorted(ordered, x, "right")
    shares: Floats = both / (2.0 * len(among))
    return shares


def _correlation(x: Floats, y: Floats) -> float:
    x, y = x - x.mean(), y - y.mean()
    size = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / size if size > 1e-12 * len(x) else 0.0


def matched(own: Floats, others: Floats, by: Collection[int]) -> dict[int, Matched]:
    """Return the columns of a site beside their matches elsewhere, by index.

    Parameters
    ----------
    own : ndarray of shape (n, d)
        The rows of the site, nan where a value is missing.
    others : ndarray of shape (m, d)
        The rows elsewhere.
    by : collection of int
        The columns that tell which rows are alike; each column is matched by the others of these.
    """
    own, others, d = _some(own, HOW.own), _some(others, HOW.elsewhere), own.shape[1]
    U, V = _in_ranks(own, others)
    found: dict[int, Matched] = {}
    for part in np.array_split(np.arange(d), max(1, min(d, HOW.folds))):
        beside = [j for j in by if j not in part]
        nearest = _nearest(U[:, beside], V[:, beside])
        there = cache(partial(_matches_elsewhere, V, beside))
        theirs = cache(partial(_like_matches, U, V, beside, nearest))
        for j in part.tolist():
            of_others = cache(partial(_along_elsewhere, V[:, j], there))
            column = _of_column(own[:, j], others[:, j], V[:, j], nearest, of_others)
            if column is not None:
                places = np.where(np.isnan(own[:, j]), np.nan, U[:, j])
                astray = partial(_astray, places, column.near, V[:, j], theirs)
                found[j] = replace(column, astray=astray)
    return found


def like(own: Floats, others: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices (r,) of some rows of a site, and of the rows elsewhere that match each."""
    place, among = (
        np.arange(0, len(X), max(1, -(-len(X) // most)))
        for X, most in ((own, HOW.own), (others, HOW.elsewhere))
    )
    U, V = _in_ranks(own[place], others[among])
    return place, among[_nearest(U, V)]


def _matches_elsewhere(V: Floats, by: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return some rows elsewhere, and the matches there of each."""
    some = np.arange(0, len(V), max(1, -(-len(V) // HOW.own)))
    return some, _nearest(V[some][:, by], V[:, by], some)


def _like_matches(
    U: Floats, V: Floats, by: Sequence[int], nearest: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows elsewhere that match (n,) rows, and the matches there of each.

    None are returned if these are nearer: then rows like those of the site are not there.
    """
    some = np.unique(nearest[:, 0])
    beside = _nearest(V[some][:, by], V[:, by], some)
    here, there = (
        float(((X - V[each[:, 0]])[:, by] ** 2).sum() / len(X))
        for X, each in ((U, nearest), (V[some], beside))
    )
    return (some, beside) if here <= HOW.farther * there else (some[:0], beside[:0])


def _along_elsewhere(
    places: Floats, matches: Callable[[], tuple[NDArray[np.intp], NDArray[np.intp]]]
) -> float:
    some, nearest = matches()
    return _correlation(places[some], places[nearest].mean(axis=1))


def _astray(
    places: Floats,
    near: Floats,
    elsewhere: Floats,
    matches: Callable[[], tuple[NDArray[np.intp], NDArray[np.intp]]],
) -> float:
    """Return how much less ranks (n,) rise with the mean ranks of their matches; see `Matched`.

    Those elsewhere are of rows that match the site's, so that both are of the same kinds.
    """
    there = ~np.isnan(places + near)
    slope, error = _slope(places[there], near[there])
    if max(slope, 0.0) + HOW.surely * error >= 0.5:  # slopes are 1 at most, but for chance
        return 0.0
    some, nearest = matches()
    usual, beside = _slope(elsewhere[some], elsewhere[nearest].mean(axis=1))
    # rows elsewhere are matches of each other, so that chance is larger
    is_less = usual > 2 * HOW.surely * beside and slope + HOW.surely * error < usual / 2
    return usual - slope if is_less else 0.0


def _slope(y: Floats, x: Floats) -> tuple[float, float]:
    """Return the slope of a regression line and its standard error, which may be infinite."""
    if len(x) < 3 or not np.ptp(x) > 0:
        return 0.0, math.inf
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y) / float(x @ x)
    off = y - slope * x
    return slope, math.sqrt(float(off @ off) / (len(x) - 2) / float(x @ x))


def _some(X: Floats, most: int) -> Floats:
    """Return evenly spaced rows."""
    return X[:: max(1, -(-len(X) // most))]


def _in_ranks(own: Floats, others: Floats) -> tuple[Floats, Floats]:
    """Return rows in ranks among the others from 0 to 1, the middle if missing."""
    U, V = np.full(own.shape, 0.5), np.full(others.shape, 0.5)
    for j in range(own.shape[1]):
        known = others[:, j][~np.isnan(others[:, j])]
        for place, x in ((U[:, j], own[:, j]), (V[:, j], others[:, j])):
            if len(known):
                place[~np.isnan(x)] = ranks(x[~np.isnan(x)], known)
    return U, V


def _nearest(U: Floats, V: Floats, same: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
    """Return the nearest rows of V (m, d) to each of U (n, d); all of them, without columns.

    ``same`` are the rows of V that are those of U, and no matches of themselves.
    """
    if not U.shape[1]:
        return np.tile(np.arange(len(V)), (len(U), 1))
    distances = (V**2).sum(axis=1) - 2.0 * U @ V.T
    if same is not None:
        distances[np.arange(len(U)), same] = np.inf
    k = min(HOW.neighbors, len(V) - (same is not None))
    nearest: NDArray[np.intp] = np.argpartition(distances, max(k - 1, 0), axis=1)[:, :k]
    return nearest


def _of_column(
    x: Floats,
    y: Floats,
    places: Floats,
    nearest: NDArray[np.intp],
    elsewhere: Callable[[], float],
) -> Matched | None:
    """Return values (n,) beside those elsewhere (m,), which have ranks; None if there are none."""
    here, there = ~np.isnan(x), ~np.isnan(y)
    counts = np.bincount(nearest[here].ravel(), minlength=len(y)) * there
    if not here.any() or not counts.sum():
        return None
    order = np.argsort(y[there], kind="stable")
    usual, weights = y[there][order], counts[there][order]
    kept = weights > 0
    held = there[nearest]
    near = np.where(held, places[nearest], 0.0).sum(axis=1) / np.maximum(held.sum(axis=1), 1e-9)
    near[~held.any(axis=1)] = np.nan
    return Matched(x, usual[kept], weights[kept] / weights.sum(), near, elsewhere)
