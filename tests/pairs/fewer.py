"""Put the pairs of combinations into fewer combinations.

One combination after the other is taken out, and the pairs that stood in it alone are put into the
others, whose values move as in a tabu search. See Nayeri, Colbourn and Konjevod, Randomized
post-optimization of covering arrays (2013). In the end, quick values take the place of those that
hold no pair alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from itertools import combinations

import numpy as np

from pairs.factors import Combination, Value

TABU = 8
"""Steps for which a value that was put into a combination stays there."""


class Cover:
    """Combinations as rows of a table of values, with how often each pair stands in them.

    Parameters
    ----------
    values : list of lists
        The values of each factor.
    rows : sequence of combinations
        The combinations.
    bad : collection of pairs
        Pairs that no combination may hold.
    """

    def __init__(
        self,
        values: Sequence[Sequence[Value]],
        rows: Sequence[Combination],
        bad: Collection[frozenset[Value]],
    ) -> None:
        self.every = [value for each in values for value in each]
        self.place = {value: i for i, value in enumerate(self.every)}
        names = [each[0][0] for each in values]
        self.factor = np.array([names.index(name) for name, _ in self.every])
        self.rows = np.array([[self.place[name, row[name]] for name in names] for row in rows])
        n = len(self.every)
        self.against = np.zeros((n, n), dtype=bool)
        for pair in bad:
            if all(value in self.place for value in pair):
                one, other = (self.place[value] for value in pair)
                self.against[one, other] = self.against[other, one] = True
        self.wanted = ~self.against & (self.factor[:, None] != self.factor)
        self.count = np.zeros((n, n), dtype=np.int64)
        for row in self.rows:
            self.count[np.ix_(row, row)] += 1
        self.wanted &= self.count > 0
        self.together: dict[int, list[list[int]]] = {}

    def combination(self, row: np.ndarray) -> dict[str, str]:
        return dict(self.every[i] for i in row)

    def forbid(self, some: Collection[Value]) -> None:
        """No combination may hold some values together."""
        places = [self.place[value] for value in some]
        for i in places:
            self.together.setdefault(i, []).append([j for j in places if j != i])

    def alone(self) -> np.ndarray:
        """How many pairs stand in each combination alone."""
        single = (self.count == 1) & self.wanted
        return np.array([single[np.ix_(row, row)].sum() // 2 for row in self.rows])

    def without(self, i: int) -> set[tuple[int, int]]:
        """Take a combination out; return the pairs that stand in no other."""
        row = self.rows[i]
        self.rows = np.delete(self.rows, i, axis=0)
        self.count[np.ix_(row, row)] -= 1
        lost = [pair for pair in combinations(row, 2) if self._lacks(*pair)]
        return {(int(min(pair)), int(max(pair))) for pair in lost}

    def _lacks(self, one: int, other: int) -> bool:
        return bool(self.wanted[one, other] and self.count[one, other] == 0)

    def scores(self, pair: tuple[int, int]) -> np.ndarray:
        """Of each combination, how many pairs are lost, less those won, where it takes a pair."""
        score, new = np.zeros(len(self.rows)), self.rows.copy()
        new[:, self.factor[list(pair)]] = pair
        single, fresh = ((self.count == n) & self.wanted for n in (1, 0))
        for value in pair:
            old = self.rows[:, self.factor[value]]
            lost, won = single[old[:, None], self.rows], fresh[value, new]
            score += (old != value) * (lost.sum(axis=1) - won.sum(axis=1))
            score[self.against[value, new].any(axis=1)] = np.inf
            for others in self.together.get(value, ()):
                factors = self.factor[others]
                score[(new[:, factors] == others).all(axis=1)] = np.inf
        return score

    def put(self, i: int, value: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Put a value into a combination; return the pairs that are lost and won."""
        row, factor = self.rows[i], self.factor[value]
        old, rest = row[factor], np.delete(row, factor)
        self.count[old, rest] -= 1
        self.count[rest, old] -= 1
        lost = [(min(old, x), max(old, x)) for x in rest if self._lacks(old, x)]
        won = [(min(value, x), max(value, x)) for x in rest if self._lacks(value, x)]
        self.count[value, rest] += 1
        self.count[rest, value] += 1
        row[factor] = value
        return lost, won

    def search(self, left: set[tuple[int, int]], rng: np.random.Generator, steps: int) -> bool:
        """Move values until no pair is left, or for some steps none more has found room."""
        held = np.full(self.rows.shape, -1)
        best, since = len(left), 0
        for step in range(100 * steps):
            if not left:
                return True
            if since > steps:
                return False
            since += 1
            pair = sorted(left)[rng.integers(len(left))]
            score = self.scores(pair)
            factors = self.factor[list(pair)]
            moved = self.rows[:, factors] != np.array(pair)
            score[((held[:, factors] > step) & moved).any(axis=1)] += 2
            if not np.isfinite(score).any():
                continue
            i = int(np.argmin(score + rng.random(len(score)) / 2))
            for value in pair:
                if self.rows[i, self.factor[value]] != value:
                    lost, won = self.put(i, value)
                    left.difference_update(won)
                    left.update(lost)
                    held[i, self.factor[value]] = step + TABU + rng.integers(TABU)
            if len(left) < best:
                best, since = len(left), 0
        return False


def fewer(
    cover: Cover,
    refused: Callable[[Combination], Collection[Value]],
    rng: np.random.Generator,
    *,
    seconds: float,
    steps: int = 100,
) -> None:
    """Take combinations out while their pairs find room in the others.

    Parameters
    ----------
    cover : Cover
        The combinations.
    refused : callable
        The values for which a combination is refused; none where it is not.
    rng : Generator
        What moves are drawn with.
    seconds : float
        When to end.
    steps : int
        Moves without a gain after which a combination stays.
    """
    known, end = {tuple(row) for row in cover.rows}, time.monotonic() + seconds
    tried: dict[bytes, int] = {}
    while time.monotonic() < end:
        often = np.array([tried.get(row.tobytes(), 0) for row in cover.rows])
        i = int(np.argmin(cover.alone() * (1 + often) + rng.random(len(often))))
        key = cover.rows[i].tobytes()
        tried[key] = tried.get(key, 0) + 1
        if min(often) > 2:
            return
        rows, count = cover.rows.copy(), cover.count.copy()
        found = cover.search(cover.without(i), rng, steps)
        new = [row for row in cover.rows if tuple(row) not in known] if found else []
        for row in new:
            if some := refused(cover.combination(row)):
                cover.forbid(some)
                found = False
        known |= {tuple(row) for row in new if found}
        if not found:
            cover.rows, cover.count = rows, count


def quicker(cover: Cover, refused: Callable[[Combination], bool], quick: Sequence[Value]) -> None:
    """Put quick values into combinations in which no pair is lost for them."""
    for new in map(cover.place.__getitem__, quick):
        factor = cover.factor[new]
        for i, row in enumerate(cover.rows):
            old, rest = row[factor], np.delete(row, factor)
            alone = cover.wanted[old, rest] & (cover.count[old, rest] == 1)
            if old == new or alone.any() or cover.against[new, rest].any():
                continue
            cover.put(i, new)
            if refused(cover.combination(row)):
                cover.put(i, old)
