"""The secret partition of a site's rows, and what becomes of it as rows come and go.

A unit is a row, or a person with all rows. A unit that was in a group once is known for good:
every group that is made holds at least p units that were in none before.
"""

from __future__ import annotations

import json
import os
import secrets
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fedcluster import kernels
from fedcluster.core import Data, Floats
from fedcluster.errors import InputError
from fedcluster.io._columns import columns_of
from fedcluster.io._outputs import atomic_write

Ids = NDArray[np.uint64]
Numbers = NDArray[np.int64]

COPIES = np.uint64(0x9E3779B97F4A7C15)
"""Odd number by whose multiples the identities of equal rows differ."""
FORMAT = 1
MOST_TIMES = 3
"""A group that others join has at most so many times p units."""


def _no_numbers() -> Numbers:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Who was ever grouped, and with whom.

    Parameters
    ----------
    key : bytes
        Makes the identities: who finds them cannot try values.
    p : int
        The smallest number of units in a group.
    columns : tuple of str
        The columns that a row is known by.
    units : ndarray of shape (u,)
        The identities of all units that were ever grouped, rising.
    contents : ndarray of shape (u, c)
        Those of what they looked like: rows as a whole, persons in each column.
    members : ndarray of shape (u,)
        The number of each unit's group; -1 where that has left.
    fresh : ndarray of shape (u,)
        Whether the unit was in no group before its own.
    scatter : mapping of str to float
        As of `fedcluster.core.Grouped`; of the groups numbered ``scatter_groups``.
    n_groups : int
        How many groups were ever made.
    generation : int
        As of `fedcluster.privacy.Groups`.
    """

    key: bytes
    p: int
    columns: tuple[str, ...]
    units: Ids = field(default_factory=lambda: np.empty(0, np.uint64))
    contents: Ids = field(default_factory=lambda: np.empty((0, 0), np.uint64))
    members: Numbers = field(default_factory=_no_numbers)
    fresh: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    scatter: Mapping[str, float] = field(default_factory=dict)
    scatter_groups: Numbers = field(default_factory=_no_numbers)
    n_groups: int = 0
    generation: int = 1

    @classmethod
    def empty(cls, p: int, columns: Sequence[str], generation: int = 1) -> Partition:
        """Return the partition of a site that has not grouped a row yet."""
        return cls(secrets.token_bytes(32), p, tuple(columns), generation=generation)

    def without_broken(self, units: Units) -> Partition:
        """Return the partition as it stands with the units of now.

        A group leaves if a unit of it is gone, or if some have changed in a column and they are
        fewer than p: the difference of its sums, before and now, would tell of these.
        """
        if not len(self.units):
            return self
        place = _places(units.ids, self.units)
        there, live = place >= 0, self.members >= 0
        contents = self.contents.copy()
        contents[there] = units.contents[place[there]]
        changed = live[:, None] & (contents != self.contents)
        if (there | ~live).all() and not changed.any():
            return self
        n_changed = np.zeros((self.n_groups, changed.shape[1]), np.int64)
        np.add.at(n_changed, self.members[live], changed[live])
        few = np.flatnonzero(((n_changed > 0) & (n_changed < self.p)).any(axis=1))
        broken = np.union1d(self.members[live & ~there], few)
        members = np.where(np.isin(self.members, broken), -1, self.members)
        return replace(self, contents=contents, members=members)

    def check_rows(self, units: Units, file: Path) -> None:
        """Refuse rows most of which are other ones than those that were grouped.

        Raises
        ------
        InputError
            If so, and it is not said whose rows they are: the same persons, with values that have
            changed, would be grouped again and again.
        """
        live = self.units[self.members >= 0]
        n_there = int(np.count_nonzero(_places(units.ids, live) >= 0))
        if units.are_persons or 2 * n_there >= len(live) or 2 * len(units) < len(live):
            return
        raise InputError(
            f"{file}: {len(live) - n_there:,} of {len(live):,} rows that were grouped are gone or "
            "have changed. If they are of the same persons, name whose they are by group_column, "
            "as grouping them anew would tell of single ones; if they are of others, write "
            f"generation = {self.generation + 1} under [groups]"
        )

    def places(self, units: Units) -> NDArray[np.intp]:
        """Return the place of each unit in the partition, (u,); -1 of one that was in no group."""
        return _places(self.units, units.ids)

    def with_groups(self, units: Units, made: NewGroups) -> Partition:
        """Return the partition with new groups, of new units and of some that were known."""
        some = np.concatenate([*made.units, *made.others])
        is_new = np.arange(len(some)) < sum(map(len, made.units))
        stays = ~np.isin(self.units, units.ids[some])
        parts = (
            (self.units, units.ids[some]),
            (self.contents.reshape(-1, units.contents.shape[1]), units.contents[some]),
            (self.members, np.concatenate([*made.groups, *made.joined])),
            (self.fresh, is_new),
        )
        every = [np.concatenate([old[stays], new]) for old, new in parts]
        order = np.argsort(every[0], kind="stable")
        ids, contents, members, fresh = (each[order] for each in every)
        return replace(
            self, units=ids, contents=contents, members=members, fresh=fresh, n_groups=made.n_groups
        )

    # The file

    @classmethod
    def load(cls, file: Path, p: int, columns: Sequence[str], generation: int = 1) -> Partition:
        """Read the partition; make an empty one where there is none of the generation.

        Raises
        ------
        InputError
            If it is of another p or of other columns: another partition of the same rows would
            tell of single ones.
        """
        if not file.exists():
            return cls.empty(p, columns, generation)
        try:
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                kept = cls._from_arrays(arrays)
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{file} is not a partition into groups, or is damaged ({type(error).__name__}); "
                "put back a copy: without it rows would be grouped anew, which tells of single ones"
            ) from error
        if kept.generation < generation:
            return cls.empty(p, columns, generation)
        for what, old, new in (("p", kept.p, p), ("columns", kept.columns, tuple(columns))):
            if old != new:
                raise InputError(
                    f"{file}: the rows were grouped with {what} {_shown(old)}, not {_shown(new)}; "
                    "other groups of the same rows would tell of single ones: write it as it was, "
                    f"or generation = {kept.generation + 1} under [groups] for rows of others"
                )
        return kept

    @classmethod
    def _from_arrays(cls, arrays: Any) -> Partition:
        head = json.loads(bytes(arrays["head"]))
        if head["format"] != FORMAT:
            raise ValueError(head["format"])
        return cls(
            bytes(arrays["key"]),
            head["p"],
            tuple(head["columns"]),
            arrays["units"],
            arrays["contents"],
            arrays["members"],
            arrays["fresh"],
            scatter=head["scatter"],
            scatter_groups=arrays["scatter_groups"],
            n_groups=head["n_groups"],
            generation=head["generation"],
        )

    def save(self, file: Path) -> None:
        """Write the partition, readable by its owner alone; whole or not at all."""
        head = {"format": FORMAT, "p": self.p, "columns": self.columns}
        head |= {name: getattr(self, name) for name in ("scatter", "n_groups", "generation")}
        arrays = {name: getattr(self, name) for name in ("units", "contents", "members", "fresh")}
        with atomic_write(file) as draft, open(os.open(draft, _NEW, 0o600), "wb") as stream:
            np.savez(
                stream,
                allow_pickle=False,
                head=np.frombuffer(json.dumps(head).encode(), np.uint8),
                key=np.frombuffer(self.key, np.uint8),
                scatter_groups=self.scatter_groups,
                **arrays,
            )


_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, int) else ", ".join(value)


# Identities


def row_ids(data: Data, key: bytes) -> Ids:
    """Return the identity of each row, (n,): of its values, texts, weight and label."""
    return _digests(_known(data, key), key)


def _known(data: Data, key: bytes) -> Ids:
    """Return what rows are known by, (n, c): their values, texts, weight and label."""
    columns = [_known_by(data, j, key) for j in range(data.X.shape[1])]
    if data.sample_weight is not None:
        columns.append(_bits(data.sample_weight))
    if data.y is not None:
        names, place = np.unique(data.y.astype(str), return_inverse=True)
        columns.append(_text_ids(names.tolist(), key)[place])
    return np.column_stack(columns)


def _digests(known: Ids, key: bytes) -> Ids:
    """Return the digest of each line of (n, c) numbers, (n,)."""
    lines, width = memoryview(np.ascontiguousarray(known).tobytes()), 8 * known.shape[1]
    starts = range(0, len(lines), width)
    each = b"".join(_digest(lines[start : start + width], key) for start in starts)
    return np.frombuffer(each, np.uint64).copy()


def _known_by(data: Data, j: int, key: bytes) -> Ids:
    """Return what a row is known by in one column, (n,)."""
    levels = columns_of(data)[j].levels
    if not levels:
        return _bits(data.X[:, j])
    codes = np.nan_to_num(data.X[:, j], nan=len(levels)).astype(np.intp)
    return np.append(_text_ids(levels, key), np.uint64(0))[codes]


def _bits(values: NDArray[Any]) -> Ids:
    """Return the bits of numbers; one pattern for all NaN, and for both zeros."""
    numbers = values.astype(np.float64) + 0.0
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint64)


def _text_ids(texts: Iterable[str], key: bytes) -> Ids:
    return np.frombuffer(b"".join(_digest(text.encode(), key) for text in texts), np.uint64)


def _digest(content: Any, key: bytes) -> bytes:
    return blake2b(content, digest_size=8, key=key).digest()


def person_ids(persons: Numbers, key: bytes) -> Ids:
    """Return the identity of each person, (u,)."""
    each = b"".join(_digest(person.tobytes(), key) for person in persons)
    return np.frombuffer(each, np.uint64).copy()


def told_apart(ids: Ids) -> Ids:
    """Return identities of rows, with those of equal rows told apart by a running number.

    Examples
    --------
    >>> apart = told_apart(np.array([7, 5, 7], np.uint64))
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


def _places(ids: Ids, wanted: Ids) -> NDArray[np.intp]:
    """Return the place of each wanted identity among others, -1 where it is not there."""
    if not len(ids):
        return np.full(len(wanted), -1, np.intp)
    order = np.argsort(ids, kind="stable")
    place = order[np.searchsorted(ids, wanted, sorter=order).clip(max=len(ids) - 1)]
    return np.where(ids[place] == wanted, place, -1)


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Who is grouped: the rows of a site, or the persons whose rows they are.

    Parameters
    ----------
    ids : ndarray of shape (u,)
        Their identities.
    contents : ndarray of shape (u, c)
        The identities of what they look like: rows as a whole, persons in each column.
    of_rows : ndarray of shape (n,)
        The place of each row's unit.
    are_persons : bool
        Whether they are persons.
    """

    ids: Ids
    contents: Ids
    of_rows: NDArray[np.intp]
    are_persons: bool

    def __len__(self) -> int:
        return len(self.ids)

    def means_of(self, units: Numbers, points: Floats) -> tuple[Numbers, Floats]:
        """Return each unit once, with the mean of its points."""
        if not self.are_persons:
            return units, points
        sums = np.zeros((len(self), points.shape[1]))
        np.add.at(sums, units, points)
        return np.arange(len(self)), sums / np.bincount(units, minlength=len(self))[:, None]


class UnitReader:
    """Reader of units, chunk by chunk.

    Parameters
    ----------
    key : bytes
        The site's key of identities; empty where none are kept, which saves their making.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._rows: list[Ids] = []
        self._persons: list[Numbers] = []
        self._n = 0

    def add(self, chunk: Data) -> None:
        """Read a chunk."""
        numbers = np.arange(self._n, self._n + len(chunk), dtype=np.uint64)
        self._n += len(chunk)
        if chunk.groups is not None:
            self._persons.append(chunk.groups)
        known = _known(chunk, self._key) if self._key else numbers[:, None]
        is_rows = bool(self._key) and chunk.groups is None
        self._rows.append(_digests(known, self._key)[:, None] if is_rows else known)

    def units(self) -> Units:
        """Return all units."""
        rows = np.concatenate(self._rows)
        if not self._persons:
            ids = told_apart(rows[:, 0]) if self._key else rows[:, 0]
            return Units(ids, ids[:, None], np.arange(len(rows)), are_persons=False)
        persons, unit = np.unique(np.concatenate(self._persons), return_inverse=True)
        contents = np.zeros((len(persons), rows.shape[1]), np.uint64)
        np.add.at(contents, unit, rows + COPIES)  # so that a row of zeros counts, too
        contents = _digests(contents.reshape(-1, 1), self._key).reshape(contents.shape)
        ids = person_ids(persons, self._key) if self._key else persons.view(np.uint64)
        return Units(ids, contents, unit, are_persons=True)


class NewGroups:
    """Groups that are made of units that were in none before, and who joins them.

    Parameters
    ----------
    n_groups : int
        The number of the first one.
    p : int
        The smallest number of units in a group.
    """

    def __init__(self, n_groups: int, p: int) -> None:
        self.n_groups, self._p = n_groups, p
        self.units: list[Numbers] = []
        self.groups: list[Numbers] = []
        self.others: list[Numbers] = []
        self.joined: list[Numbers] = []
        self._centers: list[Floats] = []
        self._sizes: list[Numbers] = []

    def add(self, units: Numbers, points: Floats) -> None:
        """Partition new units (u,) with points (u, e), if they are enough."""
        if len(units) < self._p:
            return
        labels = kernels.partition(points, self._p)
        sizes = np.bincount(labels)
        sums = np.zeros((len(sizes), points.shape[1]))
        np.add.at(sums, labels, points)
        self._centers.append(sums / sizes[:, None])
        self._sizes.append(sizes)
        self.units.append(units)
        self.groups.append(labels.astype(np.int64) + self.n_groups)
        self.n_groups += len(sizes)

    def take_in(self, units: Numbers, points: Floats) -> None:
        """Let units (w,) whose group has left join the nearest new one that is not too large."""
        if not self._sizes or not len(units):
            return
        first = self.n_groups - sum(map(len, self._sizes))
        sizes = np.concatenate(self._sizes)
        apart, nearest = scipy.spatial.cKDTree(np.concatenate(self._centers)).query(points)
        joins = np.zeros(len(units), bool)
        for unit in np.argsort(apart, kind="stable"):
            joins[unit] = sizes[nearest[unit]] < MOST_TIMES * self._p
            sizes[nearest[unit]] += joins[unit]
        self.others.append(units[joins])
        self.joined.append(first + nearest[joins])
