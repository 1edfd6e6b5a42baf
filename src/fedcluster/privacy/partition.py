"""The secret partition of a site's rows, and its changes as rows are added and removed.

A unit is a row, or a person with all rows. Units that were ever in a group are remembered: every
new group has at least p units that were in none before.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fedcluster import kernels
from fedcluster.core import Column, Data, Floats
from fedcluster.core.exact import exact_group_sums, exact_sum
from fedcluster.errors import InputError
from fedcluster.io.columns import columns_of
from fedcluster.io.outputs import atomic_write, opened_folder, write_durably
from fedcluster.privacy.limits import MOST_TIMES, Rules

Ids = NDArray[np.uint64]
Numbers = NDArray[np.int64]
Cells = NDArray[np.uint32]
"""Digests of single values, by row and column."""

COPIES = np.uint64(0x9E3779B97F4A7C15)
"""Odd number whose multiples distinguish the identities of equal rows."""
MIXERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFTS = np.uint64(30), np.uint64(27)
FORMAT = 2
BEFORE_RULES = MappingProxyType({"dominance": "none", "diversity": "none"})
"""Rules of groups made by earlier versions, whose files do not state them."""


def _no_numbers() -> Numbers:
    return np.empty(0, np.int64)


class OtherSettingsError(InputError):
    """Rows were grouped with other settings."""


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Partition: all units that were ever grouped, and their groups.

    Parameters
    ----------
    key : bytes
        The secret key of the identities, without which nobody can test values against them.
    p : int
        The smallest number of units in a group.
    columns : tuple of str
        The columns that identify a row.
    layout : mapping of str to str
        The layout of the rows: ``unit``, "rows" or "persons"; the columns of persons, weights and
        labels, "none" if there is none; and the kind of each column.
    units : ndarray of shape (u,)
        The sorted identities of all units that were ever grouped.
    told : ndarray of shape (t,)
        Sorted digests of all values that sums of persons ever disclosed: of each person in a group,
        in each column; and of each group, in each column. Empty for rows, which do not change.
    members : ndarray of shape (u,)
        The number of each unit's group; -1 if that was dissolved.
    fresh : ndarray of shape (u,)
        Whether the unit was in no earlier group.
    scatter : mapping of str to float
        As in `fedcluster.core.Grouped`, for the groups numbered ``scatter_groups``.
    n_groups : int
        The number of groups that were ever made.
    generation : int
        As in `fedcluster.privacy.Groups`.
    digest : str
        The SHA-256 of the file that it was read from, empty if there was none.
    previous : str
        The digest of the file that this one replaced.
    log : str
        The log that tells the digest of its file, as the site file names it; empty without one.
    source : str
        The source of the rows, empty if it is not known.
    names : tuple of str
        The names of the values of rows: columns, weights and labels.
    cells : ndarray of shape (r, c)
        Digests of these values, of all rows that were ever in a group.
    """

    key: bytes
    p: int
    columns: tuple[str, ...]
    layout: Mapping[str, str] = field(default_factory=dict)
    units: Ids = field(default_factory=lambda: np.empty(0, np.uint64))
    told: Ids = field(default_factory=lambda: np.empty(0, np.uint64))
    members: Numbers = field(default_factory=_no_numbers)
    fresh: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    scatter: Mapping[str, float] = field(default_factory=dict)
    scatter_groups: Numbers = field(default_factory=_no_numbers)
    n_groups: int = 0
    generation: int = 1
    digest: str = ""
    previous: str = ""
    log: str = ""
    source: str = ""
    names: tuple[str, ...] = ()
    cells: Cells = field(default_factory=lambda: np.empty((0, 0), np.uint32))

    @classmethod
    def empty(cls, p: int, columns: Sequence[str], generation: int = 1) -> Partition:
        """Return the partition of a site that has not grouped any row yet."""
        return cls(secrets.token_bytes(32), p, tuple(columns), generation=generation)

    def without_broken(self, units: Units) -> Partition:
        """Return the partition as it stands with the present units.

        A group is dissolved if one of its units is gone. A group of persons is also dissolved if
        its sum in a column was not disclosed before and fewer than p of its persons have values
        there that were in no sum: then a combination of its sums over all versions could reveal
        these persons.
        """
        gone = (_places(units.ids, self.units) < 0) & (self.members >= 0)
        return self.without(np.union1d(self.members[gone], self._few_new(units)))

    def _few_new(self, units: Units) -> Numbers:
        """Return the groups of persons whose present sums would reveal fewer than p of them."""
        now = self._grouped(units)
        new = ~np.isin(now.of_units, self.told) & now.present
        n_new = np.zeros(now.of_groups.shape, np.int64)
        np.add.at(n_new, now.place, new)
        few = (n_new < self.p) & ~np.isin(now.of_groups, self.told)
        return now.numbers[few.any(axis=1)]

    def noting(self, units: Units) -> Partition:
        """Return the partition with digests added of what its groups now disclose."""
        now = self._grouped(units)
        every = np.union1d(self.told, np.concatenate([now.of_units.ravel(), now.of_groups.ravel()]))
        return self if len(every) == len(self.told) else replace(self, told=every)

    def _grouped(self, units: Units) -> _Telling:
        """Return digests of what the groups disclose about their units."""
        member = np.append(self.members, -1)[self.places(units)]
        here = member >= 0
        numbers, place = np.unique(member[here], return_inverse=True)
        of_units = _mixed(units.contents[here], units.ids[here, None])
        of_groups = np.zeros((len(numbers), of_units.shape[1]), np.uint64)
        np.add.at(of_groups, place, of_units)
        of_groups = _mixed(of_groups, numbers[:, None].astype(np.uint64))
        return _Telling(numbers, place, of_units, units.present[here], of_groups)

    def described(self, columns: Sequence[Column], file: Path | None) -> Partition:
        """Return the partition with the kinds of its columns, which must not have changed.

        Raises
        ------
        InputError
            If the kind of a column has changed since the rows were grouped.
        """
        kinds = {f"kind of {column.name}": column.kind for column in columns}
        known = {name: kind for name, kind in self.layout.items() if kind != "empty"}
        if file is not None:
            for name, kind in kinds.items():
                self.check(file, name, known.get(name, kind), kind)
        layout = {**self.layout, **kinds}
        return self if layout == self.layout else replace(self, layout=layout)

    def knowing(self, ids: Ids) -> Partition:
        """Return the partition in which these units count as grouped before, in no group here."""
        new = np.setdiff1d(ids, self.units)
        if not len(new):
            return self
        units, members = np.append(self.units, new), np.append(self.members, np.full(len(new), -1))
        fresh, order = np.append(self.fresh, np.zeros(len(new), bool)), np.argsort(units)
        return replace(self, units=units[order], members=members[order], fresh=fresh[order])

    def without(self, numbers: Sequence[int] | Numbers) -> Partition:
        """Return the partition with some groups dissolved."""
        if not len(numbers):
            return self
        return replace(self, members=np.where(np.isin(self.members, numbers), -1, self.members))

    def check(self, file: Path, what: str, old: Any, new: Any) -> None:
        """Raise an error if something has changed since the rows were grouped.

        Raises
        ------
        InputError
            With advice on what to do.
        """
        if old != new:
            raise OtherSettingsError(
                f"{file}: the rows were grouped with {what} {_shown(old)}, not {_shown(new)}; "
                "other groups of the same rows would tell of single ones: write it as it was"
            )

    def check_rows(self, units: Units, file: Path) -> None:
        """Raise an error for rows most of which are not those that were grouped.

        Raises
        ------
        InputError
            If so, and if rows have no owners: the same persons, with changed values, would be
            grouped again and again.
        """
        live = self.units[self.members >= 0]
        n_there = int(np.count_nonzero(_places(units.ids, live) >= 0))
        if units.are_persons or 2 * n_there >= len(live) or 2 * len(units) < len(live):
            return
        raise InputError(
            f"{file}: {len(live) - n_there:,} of {len(live):,} rows that were grouped are gone or "
            "have changed. If they are of the same persons, give them back the values that they "
            "had, as grouping them anew would tell of single ones; if they are of others, write "
            f"generation = {self.generation + 1} under [groups]"
        )

    def places(self, units: Units) -> NDArray[np.intp]:
        """Return the index of each unit in the partition, (u,); -1 if it was in no group."""
        return _places(self.units, units.ids)

    def with_groups(self, units: Units, made: NewGroups) -> Partition:
        """Return the partition with new groups, of new units and of some known ones."""
        some = np.concatenate([*made.units, *made.others])
        is_new = np.arange(len(some)) < sum(map(len, made.units))
        stays = ~np.isin(self.units, units.ids[some])
        parts = (
            (self.units, units.ids[some]),
            (self.members, np.concatenate([*made.groups, *made.joined])),
            (self.fresh, is_new),
        )
        every = [np.concatenate([old[stays], new]) for old, new in parts]
        order = np.argsort(every[0], kind="stable")
        ids, members, fresh = (each[order] for each in every)
        return replace(self, units=ids, members=members, fresh=fresh, n_groups=made.n_groups)

    # The file

    @classmethod
    def load(
        cls,
        file: Path,
        p: int,
        columns: Sequence[str],
        generation: int = 1,
        layout: Mapping[str, str] = MappingProxyType({}),
    ) -> Partition:
        """Read the partition; return an empty one if there is none of this generation.

        Raises
        ------
        InputError
            If it has another p, other columns or another layout (if given), because a second
            partition of the same rows would reveal single ones.
        """
        new = replace(cls.empty(p, columns, generation), layout=layout)
        if not file.exists():
            return new
        kept = cls.read(file)
        if kept.generation < generation or not len(kept.units):
            return replace(new, digest=kept.digest, log=kept.log)
        kept.check(file, "p", kept.p, p)
        kept.check(file, "columns", kept.columns, tuple(columns))
        known = {**layout, **BEFORE_RULES, **kept.layout}
        for what, now in layout.items():
            kept.check(file, what, known[what], now)
        return replace(kept, layout=known)

    @classmethod
    def read(cls, file: Path) -> Partition:
        """Read the partition of a file, whatever it is of.

        Raises
        ------
        InputError
            If the file is not a partition, or is damaged.
        """
        try:
            content = file.read_bytes()
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                kept = cls._from_arrays(arrays)
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{file} is not a partition into groups, or is damaged ({type(error).__name__}); "
                "put back the newest copy: without it rows would be grouped anew, which tells of "
                "single ones"
            ) from error
        return replace(kept, digest=sha256(content).hexdigest())

    @classmethod
    def _from_arrays(cls, arrays: Any) -> Partition:
        head = json.loads(bytes(arrays["head"]))
        if head["format"] != FORMAT:
            raise ValueError(head["format"])
        return cls(
            bytes(arrays["key"]),
            head["p"],
            tuple(head["columns"]),
            head["layout"],
            arrays["units"],
            arrays["told"],
            arrays["members"],
            arrays["fresh"],
            scatter=head["scatter"],
            scatter_groups=arrays["scatter_groups"],
            n_groups=head["n_groups"],
            generation=head["generation"],
            previous=head.get("previous", ""),  # which an earlier version does not tell
            log=head.get("log", ""),
            source=head.get("source", ""),
            names=tuple(head.get("names", ())),
            cells=arrays["cells"] if "names" in head else np.empty((0, 0), np.uint32),
        )

    def save(self, file: Path) -> str:
        """Write the partition, private to its owner, completely or not at all; return its digest.

        It is on the disk when this returns, as the line of the log that tells the digest will be.
        """
        head = {"format": FORMAT, "p": self.p, "columns": self.columns, "previous": self.digest}
        named = ("layout", "scatter", "n_groups", "generation", "log", "source", "names")
        head |= {name: getattr(self, name) for name in named}
        parts = ("units", "told", "members", "fresh", "cells")
        arrays = {name: getattr(self, name) for name in parts}
        content = io.BytesIO()
        np.savez(
            content,
            allow_pickle=False,
            head=np.frombuffer(json.dumps(head).encode(), np.uint8),
            key=np.frombuffer(self.key, np.uint8),
            scatter_groups=self.scatter_groups,
            **arrays,
        )
        with atomic_write(file) as draft:
            write_durably(draft, content.getbuffer())
        with opened_folder(file.parent) as folder:
            os.fsync(folder)
        return sha256(content.getbuffer()).hexdigest()


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, slots=True, eq=False)
class _Telling:
    """Digests of what groups disclose now.

    Parameters
    ----------
    numbers : ndarray of shape (g,)
        The numbers of the groups.
    place : ndarray of shape (u,)
        The index among these of the group of each grouped unit.
    of_units : ndarray of shape (u, c)
        The digest of each unit in each column.
    present : ndarray of shape (u, c), bool
        Whether the unit adds anything to the sum of the column.
    of_groups : ndarray of shape (g, c)
        The digest of each group in each column.
    """

    numbers: Numbers
    place: NDArray[np.intp]
    of_units: Ids
    present: NDArray[np.bool_]
    of_groups: Ids


def _mixed(values: Ids, with_: Ids) -> Ids:
    """Return digests of numbers in columns (n, c), combined with one number per line, (n, 1).

    D. Lea, G. L. Steele, Jr. & C. H. Flood, Fast splittable pseudorandom number generators, 2014.
    """
    columns = np.arange(1, values.shape[1] + 1, dtype=np.uint64)
    mixed = values ^ (with_ * COPIES) ^ (columns * MIXERS[0])
    for mixer, shift in zip(MIXERS, SHIFTS, strict=True):
        mixed = (mixed ^ (mixed >> shift)) * mixer
    return mixed ^ (mixed >> np.uint64(31))


# Identities


def row_ids(data: Data, key: bytes) -> Ids:
    """Return the identity of each row, (n,), from its values, texts, weight and label."""
    return _digests(_known(data, key), key)


def _known(data: Data, key: bytes) -> Ids:
    """Return the values that identify rows, (n, c): values, texts, weight and label."""
    columns = [known_by(data, j, key) for j in range(data.X.shape[1])]
    if data.sample_weight is not None:
        columns.append(_bits(data.sample_weight))
    if data.y is not None:
        columns.append(known_by(data, -1, key))
    return np.column_stack(columns)


def _digests(known: Ids, key: bytes) -> Ids:
    """Return the digest of each line of (n, c) numbers, (n,)."""
    lines, width = memoryview(np.ascontiguousarray(known).tobytes()), 8 * known.shape[1]
    starts = range(0, len(lines), width)
    each = b"".join(_digest(lines[start : start + width], key) for start in starts)
    return np.frombuffer(each, np.uint64).copy()


def known_by(data: Data, j: int, key: bytes) -> Ids:
    """Return the values that identify rows in one column, or in the labels for -1, (n,)."""
    if j < 0 and data.y is not None:
        names, place = np.unique(data.y.astype(str), return_inverse=True)
        return _text_ids(names.tolist(), key)[place]
    levels = columns_of(data)[j].levels
    if not levels:
        return _bits(data.X[:, j])
    codes = np.nan_to_num(data.X[:, j], nan=len(levels)).astype(np.intp)
    return np.append(_text_ids(levels, key), np.uint64(0))[codes]


def cells_of(data: Data, key: bytes) -> Cells:
    """Return a digest of each value of rows, (n, c): of columns, weights and labels."""
    secret = np.frombuffer(key[:8], np.uint64)[:, None]
    columns = _known(data, key).T
    each = [(_mixed(known[:, None], secret) >> np.uint64(32)) for known in columns]
    return np.hstack(each).astype(np.uint32)


def line_ids(cells: Cells, part: Sequence[int]) -> Ids:
    """Return the identity of each row by its digests in some columns, equal rows apart, (n,)."""
    each = _mixed(cells[:, part].astype(np.uint64), np.zeros((1, 1), np.uint64))
    return unique_ids(np.bitwise_xor.reduce(each, axis=1))


def _bits(values: NDArray[Any]) -> Ids:
    """Return the bits of numbers, with one pattern for all NaN and for both zeros."""
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


def _places(ids: Ids, wanted: Ids) -> NDArray[np.intp]:
    """Return the index of each wanted identity among others, -1 if it is not there."""
    if not len(ids):
        return np.full(len(wanted), -1, np.intp)
    order = np.argsort(ids, kind="stable")
    place = order[np.searchsorted(ids, wanted, sorter=order).clip(max=len(ids) - 1)]
    return np.where(ids[place] == wanted, place, -1)


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The units to be grouped: the rows of a site, or the persons whose rows they are.

    Parameters
    ----------
    ids : ndarray of shape (u,)
        Their identities.
    contents : ndarray of shape (u, c)
        The amount that each person adds to each sum of the group; empty for rows.
    present : ndarray of shape (u, c), bool
        Whether the person has a value there.
    of_rows : ndarray of shape (n,)
        The index of each row's unit.
    are_persons : bool
        Whether the units are persons.
    """

    ids: Ids
    contents: Ids
    present: NDArray[np.bool_]
    of_rows: NDArray[np.intp]
    are_persons: bool

    def __len__(self) -> int:
        return len(self.ids)

    def means_of(self, units: Numbers, points: Floats) -> tuple[Numbers, Floats]:
        """Return the distinct units, each with the mean of its points."""
        if not self.are_persons:
            return units, points
        sums = np.zeros((len(self), points.shape[1]))
        for j, values in enumerate(points.T):
            sums[:, j] = exact_sum(exact_group_sums(values, units, len(self)))[0]
        return np.arange(len(self)), sums / np.bincount(units, minlength=len(self))[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class _Terms:
    """Amounts that rows of persons add to the sums of their group.

    Parameters
    ----------
    values : ndarray of shape (n, d), uint64
        The bits of a number, or a digest of a text; 0 for a missing value.
    there : ndarray of shape (n, d), bool
        Whether a value is present.
    weight : ndarray of shape (n,)
        The weights of the rows.
    labels : ndarray of shape (n,), uint64
        Digests of the labels, 0 without labels.
    """

    values: Ids
    there: NDArray[np.bool_]
    weight: Floats
    labels: Ids

    @classmethod
    def of(cls, chunk: Data, key: bytes) -> _Terms:
        """Return the amounts of some rows."""
        weight = np.ones(len(chunk)) if chunk.sample_weight is None else chunk.sample_weight
        values, there = np.zeros(chunk.X.shape, np.uint64), ~np.isnan(chunk.X)
        for j, column in enumerate(columns_of(chunk)):
            known = known_by(chunk, j, key)
            if column.levels:
                known = _digests(np.column_stack([known, _bits(weight)]), key)
            else:
                known = _bits(weight * chunk.X[:, j])
            values[:, j] = np.where(there[:, j], known, 0)
        labels = np.zeros(len(chunk), np.uint64)
        if chunk.y is not None:
            labels = _digests(np.column_stack([known_by(chunk, -1, key), _bits(weight)]), key)
        return cls(values, there, weight, labels)

    def of_persons(self, unit: NDArray[np.intp], texts: Collection[int]) -> tuple[Ids, Any]:
        """Return the amount that each person adds, (u, c), and whether it is present, (u, c).

        The columns are the values (d), with texts at ``texts``; the presence of values (d); the
        number of rows; their weight; and their labels.
        """
        u, d = int(unit.max()) + 1, self.values.shape[1]
        found, present = np.zeros((u, 2 * d + 3), np.uint64), np.ones((u, 2 * d + 3), bool)
        weight = _total(self.weight, unit, u)
        for j in range(d):
            is_there = np.bincount(unit, self.there[:, j], u) > 0
            present[:, j] = present[:, d + j] = is_there
            every = bool(self.there[:, j].all())
            found[:, d + j] = weight if every else _total(self.weight * self.there[:, j], unit, u)
            if j in texts:
                np.add.at(found[:, j], unit, self.values[:, j])
            else:
                found[:, j] = _total(self.values[:, j].copy().view(np.float64), unit, u)
        found[:, 2 * d] = np.bincount(unit, minlength=u)
        found[:, 2 * d + 1] = weight
        np.add.at(found[:, -1], unit, self.labels)
        return found, present


def _total(values: Floats, unit: NDArray[np.intp], n_units: int) -> Ids:
    """Return the bits of the correctly rounded sum of each unit's values, (u,)."""
    return _bits(exact_sum(exact_group_sums(values, unit, n_units))[0])


class UnitReader:
    """Reader of units, chunk by chunk.

    Parameters
    ----------
    key : bytes or None
        The site's key for identities; empty if none are kept, which saves computing them. With
        None, rows are only counted.
    """

    def __init__(self, key: bytes | None) -> None:
        self._key = key
        self._rows: list[Ids] = []
        self._persons: list[Numbers] = []
        self._terms: list[_Terms] = []
        self._texts: set[int] = set()
        self._n = 0

    def add(self, chunk: Data) -> None:
        """Read a chunk."""
        numbers = np.arange(self._n, self._n + len(chunk), dtype=np.uint64)
        self._n += len(chunk)
        if chunk.groups is not None:
            self._persons.append(chunk.groups)
            if self._key:
                self._terms.append(_Terms.of(chunk, self._key))
                self._texts |= {j for j, c in enumerate(columns_of(chunk)) if c.levels}
        elif self._key is not None:
            self._rows.append(row_ids(chunk, self._key) if self._key else numbers)

    def units(self) -> Units:
        """Return all units."""
        if self._key is None and not self._persons:
            ids = np.broadcast_to(np.uint64(0), self._n)  # which takes no memory
            place, empty = np.broadcast_to(np.intp(0), self._n), np.empty((0, 0))
            contents, present = empty.astype(np.uint64), empty.astype(np.bool_)
            return Units(ids, contents, present, place, are_persons=False)
        if not self._persons:
            rows = np.concatenate(self._rows)
            ids, none = unique_ids(rows) if self._key else rows, np.empty((len(rows), 0))
            contents, present = none.astype(np.uint64), none.astype(np.bool_)
            return Units(ids, contents, present, np.arange(len(rows)), are_persons=False)
        persons, unit = np.unique(np.concatenate(self._persons), return_inverse=True)
        if not self._key:
            nothing = np.empty((len(persons), 0))
            ids, contents = persons.view(np.uint64), nothing.astype(np.uint64)
            return Units(ids, contents, nothing.astype(np.bool_), unit, are_persons=True)
        parts = ((t.values, t.there, t.weight, t.labels) for t in self._terms)
        terms = _Terms(*map(np.concatenate, zip(*parts, strict=True)))
        contents, present = terms.of_persons(unit, self._texts)
        return Units(person_ids(persons, self._key), contents, present, unit, are_persons=True)


class NewGroups:
    """Groups of units that were in none before, and the units that join them.

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

    def add(self, units: Numbers, points: Floats, rules: Rules | None = None) -> NDArray[np.intp]:
        """Partition new units (u,) with points (u, e), if there are enough.

        Returns the indices of units in no group: all if too few, or those that rules exclude.
        """
        if len(units) < self._p:
            return np.arange(len(units))
        labels = kernels.partition(points, self._p)
        out = np.empty(0, np.intp)
        if rules is not None:
            labels = rules.mended(labels, points)
            out = np.flatnonzero(labels < 0)
            stays = labels >= 0
            units, points, labels = units[stays], points[stays], labels[stays]
        if not len(units):
            return out
        sizes = np.bincount(labels)
        sums = np.zeros((len(sizes), points.shape[1]))
        np.add.at(sums, labels, points)
        self._centers.append(sums / sizes[:, None])
        self._sizes.append(sizes)
        self.units.append(units)
        self.groups.append(labels.astype(np.int64) + self.n_groups)
        self.n_groups += len(sizes)
        return out

    def take_in(self, units: Numbers, points: Floats) -> None:
        """Assign units (w,) of dissolved groups to the nearest new group that is not too large."""
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
