"""Persons whose identities are written otherwise in a later version of the rows.

Who has the whole content of a person that is gone, under an identity that is unknown, is that
person. Who has nearly the content of one that is gone may be that person, with a corrected value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]
Places = NDArray[np.intp]
Mask = NDArray[np.bool_]

COPIES = np.uint64(0x9E3779B97F4A7C15)
"""Odd number whose multiples distinguish the identities of equal rows."""
MIXERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFTS = np.uint64(30), np.uint64(27)


def mixed(values: Ids, with_: Ids) -> Ids:
    """Return digests of numbers in columns (n, c), combined with one number per line, (n, 1).

    D. Lea, G. L. Steele, Jr. & C. H. Flood, Fast splittable pseudorandom number generators, 2014.
    """
    columns = np.arange(1, values.shape[1] + 1, dtype=np.uint64)
    found = values ^ (with_ * COPIES) ^ (columns * MIXERS[0])
    for mixer, shift in zip(MIXERS, SHIFTS, strict=True):
        found = (found ^ (found >> shift)) * mixer
    return found ^ (found >> np.uint64(31))


def unique_ids(ids: Ids) -> Ids:
    """Return identities of rows in which those of equal rows are distinguished by a number.

    Examples
    --------
    >>> apart = unique_ids(np.array([7, 5, 7], np.uint64))
    >>> apart[:2].tolist(), len(set(apart.tolist()))
    ([7, 5], 3)
    """
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    copy = np.arange(len(ids)) - np.repeat(first, np.diff(np.append(first, len(ids))))
    apart = np.empty_like(ids)
    apart[order] = ordered + copy.astype(np.uint64) * COPIES
    return apart


def places_of(ids: Ids, wanted: Ids) -> Places:
    """Return the index of each wanted identity among others, -1 if it is not there."""
    if not len(ids):
        return np.full(len(wanted), -1, np.intp)
    order = np.argsort(ids, kind="stable")
    place = order[np.searchsorted(ids, wanted, sorter=order).clip(max=len(ids) - 1)]
    return np.where(ids[place] == wanted, place, -1)


def apart_from(ids: Ids, others: Ids) -> Ids:
    """Return identities, replaced where they are among others that are not theirs."""
    while (clash := np.isin(ids, others)).any():
        ids = np.where(clash, ids + COPIES, ids)
    return ids


@dataclass(frozen=True, slots=True, eq=False)
class Persons:
    """Known persons: those of one version of the rows, or all that were ever grouped.

    Parameters
    ----------
    origin : ndarray of shape (u,), uint64
        The identity under which each was first grouped, which stays.
    content : ndarray of shape (u, b), uint64
        Digests of all that a person adds to sums: by column, of its rows and weight, of its labels.
    row : ndarray of shape (u,)
        The person's first row, by which those of equal content are told apart.
    """

    origin: Ids = field(default_factory=lambda: np.empty(0, np.uint64))
    content: Ids = field(default_factory=lambda: np.empty((0, 0), np.uint64))
    row: Places = field(default_factory=lambda: np.empty(0, np.intp))
    agrees = 0.5
    """Least agreement in a column with one's own former value, beyond chance, of most persons whose
    identities are still theirs: 0 if they were shuffled, 1 if nobody's value in it has changed."""

    @classmethod
    def unknown(cls, ids: Ids, width: int) -> Persons:
        """Return persons (u,) of whose content, (u, width), nothing is known."""
        return cls(ids, np.zeros((len(ids), width), np.uint64), np.zeros(len(ids), np.intp))

    def __len__(self) -> int:
        return len(self.origin)

    def take(self, some: Places) -> Persons:
        """Return some of them."""
        return Persons(self.origin[some], self.content[some], self.row[some])

    def and_(self, others: Persons) -> Persons:
        """Return these and others, who get identities of their own."""
        if not len(self):
            return others
        others = replace(others, origin=apart_from(others.origin, self.origin))
        parts = ((getattr(self, n), getattr(others, n)) for n in ("origin", "content", "row"))
        return Persons(*map(np.concatenate, parts))

    @property
    def whole(self) -> Ids:
        """One digest of the whole content of each, (u,)."""
        whole: Ids = mixed(self.content, np.zeros((1, 1), np.uint64)).sum(axis=1, dtype=np.uint64)
        return whole

    def found(self, now: Persons, own: Places, is_live: Mask) -> Places:
        """Return which of these each present person is, (v,), -1 for a new one.

        Parameters
        ----------
        now : Persons
            Those who are present, (v,).
        own : ndarray of shape (v,)
            Which of these has the same identity, -1 if none has.
        is_live : ndarray of shape (u,)
            Whether a person is in a group; of equal contents, these are found first.
        """
        here, kept, same_id = now.whole, self.whole, own
        is_same = (own >= 0) & (here == kept[own])
        changed = np.flatnonzero((own >= 0) & ~is_same)
        others = np.setdiff1d(np.arange(len(self)), own[is_same])
        as_others = changed[np.isin(here[changed], kept[others])]
        tied = np.count_nonzero(~np.isin(kept[own[changed]], _lone(kept)))
        are_most, own = 2 * len(as_others) > len(changed), own.copy()
        beyond_chance = are_most or len(as_others) > 2 * tied
        if beyond_chance and not self._agree(now, as_others, own[as_others]):
            own[changed if are_most else as_others] = -1
        lost, free = np.flatnonzero(own < 0), np.setdiff1d(np.arange(len(self)), own)
        lost = lost[np.argsort(now.row[lost], kind="stable")]
        free = free[np.lexsort((self.row[free], ~is_live[free]))]
        place = places_of(unique_ids(kept[free]), unique_ids(here[lost]))
        own[lost[place >= 0]] = free[place[place >= 0]]
        return np.where((own < 0) & ~np.isin(same_id, own), same_id, own)

    def _agree(self, now: Persons, some: Places, own: Places) -> bool:
        """Return whether some persons have their own former values in a column, beyond chance.

        J. Cohen, A coefficient of agreement for nominal scales, 1960.
        """
        after, before = now.content[some], self.content[own]
        agrees = (after == before).mean(axis=0)
        chance = np.array([_chance(*each) for each in zip(after.T, before.T, strict=True)])
        return bool((agrees - chance >= self.agrees * (1 - chance))[chance < 1].any())

    def resembled(self, now: Persons, is_gone: Mask) -> tuple[Mask, int]:
        """Return which unknown persons, (v,), may be some of these, and how many these may be.

        Two may be the same, but for values that were corrected meanwhile, if they differ in one
        column at most, or agree in a value that nobody else has.

        Parameters
        ----------
        now : Persons
            Persons of unknown identity, (v,).
        is_gone : ndarray of shape (u,)
            Which of these are not present.
        """
        gone = self.content[is_gone]
        doubtful, may_be = np.zeros(len(now), bool), np.zeros(len(gone), bool)
        if not len(now) or not len(gone):
            return doubtful, 0
        varies = (np.concatenate([self.content, now.content]) != now.content[0]).any(axis=0)
        pairs = zip(_without_each(now.content), _without_each(gone), strict=True)
        for j, (new, old) in enumerate(pairs):
            if np.delete(varies, j).any():
                doubtful |= np.isin(new, old)
                may_be |= np.isin(old, new)
            shared = np.intersect1d(_lone(self.content[:, j]), _lone(now.content[:, j]))
            doubtful |= np.isin(now.content[:, j], shared)
            may_be |= np.isin(gone[:, j], shared)
        return doubtful, int(np.count_nonzero(may_be))


def _without_each(content: Ids) -> Iterator[Ids]:
    """Yield digests of contents without one column, for each."""
    each = mixed(content, np.zeros((1, 1), np.uint64))
    total = each.sum(axis=1, dtype=np.uint64)
    yield from (total - column for column in each.T)


def _lone(values: Ids) -> Ids:
    """Return the values that only one has."""
    known, n = np.unique(values, return_counts=True)
    lone: Ids = known[n == 1]
    return lone


def _chance(one: Ids, other: Ids) -> float:
    """Return how often values agree that are paired at random."""
    values, n = np.unique(one, return_counts=True)
    others, m = np.unique(other, return_counts=True)
    _, i, j = np.intersect1d(values, others, return_indices=True)
    return float((n[i] / len(one)) @ (m[j] / len(other)))
