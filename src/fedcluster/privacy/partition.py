"""The secret partition of a site's rows, and its changes as rows are added and removed.

A unit is a row, or a person with all rows. Units that were ever in a group are remembered: every
new group has at least p units that were in none before. A row is known by its content, a person by
an identity, and also by its content if the identity is written otherwise; see `persons`.

It keeps all sums that a site told, over all versions of its rows, to see what follows from them.
Each sum is a linear equation. Its unknowns are values of units: a value that changes is another
unknown. A value follows from the sums if its unit vector lies in their row space.
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
from fedcluster.core.files import atomic_write, opened_folder, write_durably
from fedcluster.errors import InputError
from fedcluster.frames.columns import columns_of
from fedcluster.privacy.limits import Rules
from fedcluster.privacy.persons import Persons, apart_from, mixed, places_of, unique_ids

Ids = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class DisclosedSums:
    """The sums that were told, each once.

    Parameters
    ----------
    values : ndarray of shape (t,), uint64
        Digests of the values that were added up, sum after sum.
    sums : ndarray of shape (t,), int32
        The number of each value's sum; -1 for values in sums that were held back.
    known : ndarray of shape (s,), uint64
        Sorted digests of all sums that were noted, told or held back.

    Examples
    --------
    >>> whole, rest = np.arange(6, dtype=np.uint64), np.arange(1, 6, dtype=np.uint64)
    >>> told = DisclosedSums().adding(whole, np.zeros(6, np.int32), np.uint64([1]))
    >>> told.n_following, told.adding(rest, np.zeros(5, np.int32), np.uint64([2])).n_following
    (0, 1)
    """

    values: Ids = field(default_factory=lambda: np.empty(0, np.uint64))
    sums: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    known: Ids = field(default_factory=lambda: np.empty(0, np.uint64))

    def adding(self, values: Ids, sums: NDArray[np.integer], noted: Ids) -> DisclosedSums:
        """Return these and further sums of values (t,), numbered by ``sums``, (t,), or held back.

        Nothing is added if all sums were noted before.
        """
        known = np.union1d(self.known, noted)
        if len(known) == len(self.known):
            return self
        first = int(self.sums.max(initial=-1)) + 1
        return replace(
            self,
            values=np.concatenate([self.values, values]),
            sums=np.concatenate([self.sums, np.where(sums < 0, -1, sums + first).astype(np.int32)]),
            known=known,
        )

    @property
    def n_following(self) -> int:
        """Return how many single values follow from all sums together.

        A sum with two values that are in no other takes no part in a combination that is a single
        value, and is left out, until all are or those that are left must be solved.
        """
        _, value = np.unique(self.values[self.sums >= 0], return_inverse=True)
        of_sum = self.sums[self.sums >= 0]
        while len(value):
            is_alone = np.bincount(value)[value] == 1
            stays = np.bincount(of_sum, is_alone)[of_sum] < 2
            if stays.all():
                break
            value, of_sum = value[stays], of_sum[stays]
        return _n_solved(value, of_sum)


def _n_solved(value: NDArray[np.intp], of_sum: NDArray[np.int32]) -> int:
    """Return how many values can be solved for, from the pairs of a value and its sum, (t,)."""
    if not len(value):
        return 0
    (_, column), (_, line) = (np.unique(each, return_inverse=True) for each in (value, of_sum))
    n_lines = int(line.max()) + 1
    pairs = scipy.sparse.coo_array((np.ones(len(line)), (line, n_lines + column)))
    side = max(pairs.shape)
    square = scipy.sparse.coo_array((pairs.data, pairs.coords), shape=(side, side))
    _, part = scipy.sparse.csgraph.connected_components(square, directed=False)
    order = np.argsort(part[line], kind="stable")
    ends = np.flatnonzero(np.diff(part[line][order])) + 1
    return sum(_n_solved_of(column[some], line[some]) for some in np.split(order, ends))


def _n_solved_of(column: NDArray[np.intp], line: NDArray[np.intp], *, exact: float = 1e-9) -> int:
    """Return how many values can be solved for, of sums that are connected.

    ``exact``: largest deviation of a squared length from 0 or 1 that rounding causes.
    """
    (_, column), (_, line) = (np.unique(each, return_inverse=True) for each in (column, line))
    sums = np.zeros((int(line.max()) + 1, int(column.max()) + 1))
    sums[line, column] = 1.0
    _, size, basis = np.linalg.svd(sums, full_matrices=False)
    inside = (basis[size > exact * size[0]] ** 2).sum(axis=0)
    return int(np.count_nonzero(np.abs(inside - 1.0) < exact))


Numbers = NDArray[np.int64]
Cells = NDArray[np.uint32]
"""Digests of single values, by row and column."""

PARTITION_VERSION = 3
FOR_GOOD = -2
"""In place of the number of a group: the unit is gone, and a person has said that it stays so."""


class LostRowsError(InputError):
    """Error of rows of which most are gone, perhaps for a moment only."""


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
        The identities of all units that were ever grouped; of persons, as they are written now.
    disclosed : DisclosedSums
        All sums that were disclosed: of the values of persons, by column; of rows, whose values do
        not change, of whole groups.
    members : ndarray of shape (u,)
        The number of each unit's group; -1 if that was dissolved, -2 if the unit is gone for good.
    scatter : mapping of str to float
        As in `fedcluster.core.Grouped`, for the groups numbered ``scatter_groups``.
    scatter_units : mapping of str to float
        The unit in which the scatter of a column is rounded, since it was first told.
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
    persons : Persons
        The content of the units, if they are persons.
    n_versions : int
        The number of versions of the rows that were grouped.
    version : int
        A digest of the last of them.
    """

    key: bytes
    p: int
    columns: tuple[str, ...]
    layout: Mapping[str, str] = field(default_factory=dict)
    units: Ids = field(default_factory=lambda: np.empty(0, np.uint64))
    disclosed: DisclosedSums = field(default_factory=DisclosedSums)
    members: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    scatter: Mapping[str, float] = field(default_factory=dict)
    scatter_units: Mapping[str, float] = field(default_factory=dict)
    scatter_groups: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    n_groups: int = 0
    generation: int = 1
    digest: str = ""
    previous: str = ""
    log: str = ""
    source: str = ""
    names: tuple[str, ...] = ()
    cells: Cells = field(default_factory=lambda: np.empty((0, 0), np.uint32))
    persons: Persons = field(default_factory=Persons)
    n_versions: int = 0
    version: int = 0

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
        is_gone = places_of(units.ids, self.units) < 0
        after = self
        if (back := ~is_gone & (self.members == FOR_GOOD)).any():
            after = replace(self, members=np.where(back, -1, self.members))
        gone = self.members[is_gone & (self.members >= 0)]
        return after.without(np.union1d(gone, self._few_new(units)))

    def _few_new(self, units: Units) -> Numbers:
        """Return the groups of persons whose present sums would reveal fewer than p of them."""
        if not units.are_persons:
            return np.empty(0, np.int64)
        now = self._grouped(units)
        new = ~np.isin(now.of_units, self.disclosed.values) & now.present
        n_new = np.zeros(now.of_groups.shape, np.int64)
        np.add.at(n_new, now.place, new)
        few = (n_new < self.p) & ~np.isin(now.of_groups, self.disclosed.known)
        return now.numbers[few.any(axis=1)]

    def following(self, units: Units) -> Partition:
        """Return the partition with the identities of present persons as they are written now."""
        if not units.are_persons or not len(self.units):
            return self
        kept, raw, width = self.persons, units.ids, units.persons.content.shape[1]
        if kept.content.shape[1] != width:  # the columns have changed since
            kept = Persons.unknown(self.units, width)
        own = kept.found(units.persons, places_of(self.units, raw), self.members >= 0)
        gone, ids = np.ones(len(self.units), bool), self.units.copy()
        gone[own[own >= 0]] = False
        ids[gone] = apart_from(ids[gone], raw)
        ids[own[own >= 0]] = raw[own >= 0]
        return replace(self, units=ids, persons=kept)

    def doubtful(self, units: Units) -> tuple[NDArray[np.bool_], int]:
        """Return which units that were in no group may be gone ones, and how many may be so.

        A row may be any that is gone, with another value.
        """
        gone = (places_of(units.ids, self.units) < 0) & (self.members != FOR_GOOD)
        is_new = self.places(units) < 0
        if not len(self.units):
            return np.zeros(len(units), bool), 0
        if not units.are_persons:
            return is_new, int(np.count_nonzero(gone))
        some = np.flatnonzero(is_new)
        may_be, n_gone = self.persons.resembled(units.persons.take(some), gone)
        is_new[some] = may_be
        return is_new, n_gone

    def raised(self, units: Units, generation: int) -> Partition:
        """Return the partition where what is gone is gone for good, if a person has said so.

        Units that are known are never grouped anew.
        """
        if self.generation >= generation:
            return self
        gone = places_of(units.ids, self.units) < 0
        members = self.without(self.members[gone & (self.members >= 0)]).members
        return replace(self, members=np.where(gone, FOR_GOOD, members), generation=generation)

    def noting(self, units: Units, disclosed: NDArray[np.bool_] | None = None) -> Partition:
        """Return the partition with what its units hold now, and what its groups now disclose.

        Parameters
        ----------
        units : Units
            The present units.
        disclosed : ndarray of shape (g, d) or (g, 1), optional
            Which columns are disclosed of each group; by default all.
        """
        place = self.places(units)
        here, place = place >= 0, place[place >= 0]
        kept = self.persons
        if units.are_persons:
            now = units.persons.take(np.flatnonzero(here))
            content, row = now.content, now.row
            if len(kept) != len(self.units):
                kept = Persons.unknown(self.units, content.shape[1])
            if len(place) and (
                (kept.content[place] != content).any() or (kept.row[place] != row).any()
            ):
                every = kept.content.copy(), kept.row.copy()
                every[0][place], every[1][place] = content, row
                kept = Persons(kept.origin, *every)
        after = replace(self, persons=kept)
        sums = after._with_disclosed(units, disclosed)  # noqa: SLF001
        if sums is self.disclosed and kept is self.persons and units.version == self.version:
            return self
        n_versions = self.n_versions + (units.version != self.version)
        return replace(after, disclosed=sums, n_versions=n_versions, version=units.version)

    def _with_disclosed(self, units: Units, disclosed: NDArray[np.bool_] | None) -> DisclosedSums:
        """Return all sums that were told, with those that the groups tell now."""
        now = self._grouped(units)
        (g, c), tells = now.of_groups.shape, np.ones(now.of_groups.shape, bool)
        if disclosed is not None:
            any_of_it = np.any(disclosed, axis=1, keepdims=True)
            d = (c - 3) // 2
            each = np.broadcast_to(disclosed, (g, d)) if units.are_persons else any_of_it[:, :0]
            tells = np.hstack([each, each, np.repeat(any_of_it, c - 2 * each.shape[1], axis=1)])
        is_new = ~np.isin(now.of_groups, self.disclosed.known)
        number = np.where(tells, np.cumsum(is_new).reshape(g, c) - 1, -1)
        unit, column = np.nonzero(is_new[now.place] & now.present)
        sums = number[now.place[unit], column]
        return self.disclosed.adding(now.of_units[unit, column], sums, now.of_groups.ravel())

    def check_disclosed(self, file: Path) -> None:
        """Raise an error if a value follows from all sums that would then have been told.

        Raises
        ------
        InputError
            With the number of values; nothing was told of these rows yet.
        """
        if n := self.disclosed.n_following:
            raise InputError(
                f"{file}: after {self.n_versions:,} versions of the rows, {n:,} values of single "
                "rows would follow from all sums together: nothing is told; give the rows back "
                "the values and persons that they had in the last version"
            )

    def _grouped(self, units: Units) -> _Digests:
        """Return digests of what the groups disclose about their units."""
        place = self.places(units)
        member = np.append(self.members, -1)[place]
        here = member >= 0
        numbers, of_group = np.unique(member[here], return_inverse=True)
        ids, contents, present = units.ids[here, None], units.contents[here], units.present[here]
        if len(self.persons):
            ids = self.persons.origin[place[here], None]
        if not units.are_persons:
            contents, present = ids, np.ones(ids.shape, bool)
        of_units = mixed(contents, ids)
        of_groups = np.zeros((len(numbers), of_units.shape[1]), np.uint64)
        np.add.at(of_groups, of_group, of_units)
        of_groups = mixed(of_groups, numbers[:, None].astype(np.uint64))
        return _Digests(numbers, of_group, of_units, present, of_groups)

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

    def knowing(self, units: Units, some: NDArray[np.bool_]) -> Partition:
        """Return the partition in which some units count as grouped before, in no group here."""
        new = np.flatnonzero(some & (self.places(units) < 0))
        if not len(new):
            return self
        persons = self.persons
        if len(units.persons):
            persons = persons.and_(units.persons.take(new))
        return replace(
            self,
            units=np.append(self.units, units.ids[new]),
            members=np.append(self.members, np.full(len(new), -1)),
            persons=persons,
        )

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
                "other groups of the same rows would reveal single rows: write it as it was"
            )

    def check_rows(self, units: Units, file: Path) -> None:
        """Raise an error if most of the units that are in groups are gone or unknown.

        Raises
        ------
        LostRowsError
            If most are gone and few are there, as when a file is read while it is written.
        InputError
            If most are unknown: the same rows, with changed values or under other identities,
            would be grouped again and again.
        """
        live = self.units[self.members >= 0]
        n_there = int(np.count_nonzero(places_of(units.ids, live) >= 0))
        if 2 * n_there >= len(live):
            return
        what = "persons" if units.are_persons else "rows"
        advice = f"generation = {self.generation + 1} under [groups]"
        if 2 * len(units) < len(live):
            raise LostRowsError(
                f"{file}: only {n_there:,} of {len(live):,} {what} that were grouped are there. "
                "Nothing is told, and nothing was changed: put the others back, or, if they are "
                f"gone for good, write {advice}, and those that are left keep their groups"
            )
        them, had = ("identities", "had before") if units.are_persons else ("values", "had")
        raise InputError(
            f"{file}: {len(live) - n_there:,} of {len(live):,} {what} that were grouped are gone "
            f"or have changed. If the {what} are the same, give them back the {them} that they "
            f"{had}, as grouping them anew would reveal single rows; if they are others, write "
            f"{advice}"
        )

    def places(self, units: Units) -> NDArray[np.intp]:
        """Return the index of each unit in the partition, (u,); -1 if it was in no group."""
        return places_of(self.units, units.ids)

    def with_groups(self, units: Units, made: NewGroups) -> Partition:
        """Return the partition with new groups of units that were in none."""
        some = np.concatenate(made.units)
        ids = np.concatenate([self.units, units.ids[some]])
        members, order = (
            np.concatenate([self.members, *made.groups]),
            np.argsort(ids, kind="stable"),
        )
        persons = self.persons
        if len(units.persons):
            persons = persons.and_(units.persons.take(some)).take(order)
        return replace(
            self, units=ids[order], members=members[order], persons=persons, n_groups=made.n_groups
        )

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
        known = {**layout, **kept.layout}
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
        if head["format"] != PARTITION_VERSION:
            raise ValueError(head["format"])
        return cls(
            bytes(arrays["key"]),
            head["p"],
            tuple(head["columns"]),
            head["layout"],
            arrays["units"],
            DisclosedSums(arrays["told"], arrays["sums"], arrays["known"]),
            arrays["members"],
            scatter=head["scatter"],
            scatter_units=head["scatter_units"],
            scatter_groups=arrays["scatter_groups"],
            n_groups=head["n_groups"],
            generation=head["generation"],
            previous=head["previous"],
            log=head["log"],
            source=head["source"],
            names=tuple(head["names"]),
            cells=arrays["cells"],
            persons=Persons(arrays["origin"], arrays["content"], arrays["row"]),
            n_versions=head["n_versions"],
            version=head["version"],
        )

    def save(self, file: Path) -> str:
        """Write the partition, private to its owner, completely or not at all; return its digest.

        It is on the disk when this returns, as the line of the log that tells the digest will be.
        """
        head = {
            "format": PARTITION_VERSION,
            "p": self.p,
            "columns": self.columns,
            "previous": self.digest,
        }
        named = ("layout", "scatter", "scatter_units", "n_groups", "generation", "log", "source")
        head |= {name: getattr(self, name) for name in (*named, "names", "n_versions", "version")}
        parts = ("units", "members", "cells")
        arrays = {name: getattr(self, name) for name in parts}
        sums = self.disclosed
        arrays |= {"told": sums.values, "sums": sums.sums, "known": sums.known}
        arrays |= {name: getattr(self.persons, name) for name in ("origin", "content", "row")}
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
class _Digests:
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
    each = [(mixed(known[:, None], secret) >> np.uint64(32)) for known in columns]
    return np.hstack(each).astype(np.uint32)


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
    persons : Persons
        What the persons hold; empty for rows.
    """

    ids: Ids
    contents: Ids
    present: NDArray[np.bool_]
    of_rows: NDArray[np.intp]
    are_persons: bool
    persons: Persons = field(default_factory=Persons)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def version(self) -> int:
        """A digest of all units with their content."""
        whole = self.persons.whole if len(self.persons) else np.zeros(len(self), np.uint64)
        return int(mixed(self.ids[:, None], whole[:, None]).sum(dtype=np.uint64))

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
            ids = np.broadcast_to(np.uint64(0), self._n)  # broadcast_to takes no memory
            place, empty = np.broadcast_to(np.intp(0), self._n), np.empty((0, 0))
            contents, present = empty.astype(np.uint64), empty.astype(np.bool_)
            return Units(ids, contents, present, place, are_persons=False)
        if not self._persons:
            rows = np.concatenate(self._rows)
            ids, none = unique_ids(rows) if self._key else rows, np.empty((len(rows), 0))
            contents, present = none.astype(np.uint64), none.astype(np.bool_)
            return Units(ids, contents, present, np.arange(len(rows)), are_persons=False)
        persons, row, unit = np.unique(
            np.concatenate(self._persons), return_index=True, return_inverse=True
        )
        if not self._key:
            nothing = np.empty((len(persons), 0))
            ids, contents = persons.view(np.uint64), nothing.astype(np.uint64)
            return Units(ids, contents, nothing.astype(np.bool_), unit, are_persons=True)
        parts = ((t.values, t.there, t.weight, t.labels) for t in self._terms)
        terms = _Terms(*map(np.concatenate, zip(*parts, strict=True)))
        contents, present = terms.of_persons(unit, self._texts)
        ids, d = person_ids(persons, self._key), (contents.shape[1] - 3) // 2
        values = mixed(contents[:, :d], contents[:, d : 2 * d])
        sizes = mixed(contents[:, 2 * d, None], contents[:, 2 * d + 1, None])
        every = np.hstack([values, sizes, contents[:, -1:]])
        return Units(
            ids, contents, present, unit, are_persons=True, persons=Persons(ids, every, row)
        )


class NewGroups:
    """Groups of units that were in none before.

    Parameters
    ----------
    n_groups : int
        The number of the first one.
    p : int
        The smallest number of units in a group, which may be raised for those that follow.
    """

    def __init__(self, n_groups: int, p: int) -> None:
        self.n_groups, self.p = n_groups, p
        self.units: list[Numbers] = []
        self.groups: list[Numbers] = []

    def add(self, units: Numbers, points: Floats, rules: Rules) -> NDArray[np.intp]:
        """Partition new units (u,) with points (u, e), if there are enough.

        Returns the indices of units in no group: all if too few, or those that rules exclude.
        """
        if len(units) < self.p:
            return np.arange(len(units))
        labels = rules.mended(kernels.partition(points, self.p), points)
        stays = labels >= 0
        if stays.any():
            self.units.append(units[stays])
            self.groups.append(labels[stays].astype(np.int64) + self.n_groups)
            self.n_groups += int(labels.max()) + 1
        return np.flatnonzero(~stays)
