"""Groups (microaggregation): steps see only means over at least p rows of a site.

J. Domingo-Ferrer & J. M. Mateo-Sanz, Practical data-oriented microaggregation for statistical
disclosure control, IEEE Trans. Knowledge and Data Engineering 14 (2002).

A site's rows are partitioned once. What leaves the site, whatever is asked and however often, is a
function of one fixed set of sums, each over at least p rows (or persons, if rows have owners), and
of facts about the whole site: names of columns and levels, the number of groups, and one scatter
within groups for each numeric column.

The partition is secret, kept by the site, and never made anew: the same rows give the same groups.
New rows form groups of their own once there are p of them; if a row changes or is removed, its
group is dissolved for good, and its other rows are in no group again. So each row is in one sum
over all versions, and no linear combination of them involves fewer than p rows. A changed row
looks like a removed and a new one: unless rows have owners, a new group needs p new rows in
addition to the number of removed ones. If they have owners, a group whose persons' values changed
stays if its sum was disclosed before, or if p of them have values that are in no sum. A person is
known by an identity, and by the content if the identity is written otherwise; see `persons`.

What follows from all sums of all versions is also computed, from what was told and not from these
rules, before anything is told of a new version; see `partition`.

Rows that other groups of a site hold: what was grouped once is new in no other groups.

Two groupings of the same rows together tell of single rows, whatever differs between them: columns,
the smallest size, rules, a flag more. So the files of groups in a folder are its register. Each
has a digest of every value of the rows in its groups, by which other groups of the folder recognise
these rows.

The rows of others may agree with them in a column of few values. So columns are compared in parts,
each of as few columns as tell nearly all rows apart. Rows are taken for the same if they agree in
half of the parts, or in one in which more rows agree than rows of others would: as many of the
grouped rows agree with another one of them. Columns that changed since, or are not in both, do not
hide them, as long as a part is left.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Floats, RowStream
from fedcluster.core.files import has_locks, lock, opened_folder
from fedcluster.errors import InputError
from fedcluster.frames.columns import Passes, columns_of
from fedcluster.frames.rows import chunks_of
from fedcluster.privacy._means import (
    Chunks,
    GroupMeans,
    Scatter,
    SiteTable,
    any_passes,
    placed,
    survey,
)
from fedcluster.privacy.limits import Contents, Groups, Rules, members_of
from fedcluster.privacy.partition import (
    Cells,
    Ids,
    NewGroups,
    Numbers,
    OtherSettingsError,
    Partition,
    UnitReader,
    Units,
    cells_of,
    known_by,
)
from fedcluster.privacy.persons import mixed, unique_ids

SUFFIX = ".groups"


def earlier_file(file: Path, generation: int) -> Path:
    """Return the file that keeps the groups of an earlier generation."""
    return file.with_suffix(f".generation-{generation}{SUFFIX}")


def others_of(file: Path) -> list[Path]:
    """Return the other files of groups in the folder of a file, those of its own past included."""
    return [each for each in sorted(file.parent.glob(f"*{SUFFIX}")) if each != file]


def names_of(data: Data, roles: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of all values of rows: columns, weights and labels."""
    names = [column.name for column in columns_of(data)]
    names += [] if data.sample_weight is None else [roles.get("weight_column", " weight")]
    return (*names, *([] if data.y is None else [roles.get("label_column", " label")]))


def with_cells(kept: Cells, new: Cells) -> Cells:
    """Return the digests of some rows and of others, each row once."""
    if not len(kept):
        return new
    known, ids = (unique_ids(_digests(cells, range(new.shape[1]))) for cells in (kept, new))
    return np.concatenate([kept, new[~np.isin(ids, known)]])


def known_rows(
    kept: Partition, chunks: Chunks, roles: Mapping[str, str], *, many: int = 4
) -> NDArray[np.bool_]:
    """Return whether each of some rows is in groups, or was, (n,).

    Parameters
    ----------
    kept : Partition
        The groups. If they were made by an earlier version, which kept no digests, all rows may be.
    chunks : callable
        Returns the rows.
    roles : mapping of str to str
        The columns of weights and labels.
    many : int
        Number of parts from which on a column or two that changed leave enough of them as they
        were.
    """
    ours: list[Cells] = []
    shared: list[int] = []
    n = 0
    for chunk in chunks():
        names = names_of(chunk, roles)
        shared = [j for j, name in enumerate(kept.names) if name in names]
        ours.append(cells_of(chunk, kept.key)[:, [names.index(kept.names[j]) for j in shared]])
        n += len(chunk)
    if not kept.names or not shared or not len(kept.cells):
        return np.full(n, bool(len(kept.units)) and not kept.names)
    theirs, rows = kept.cells[:, shared], np.concatenate(ours)
    columns = list(range(len(shared)))
    parts = [*_parts(theirs, columns)] or [columns]
    turned = [columns[j:] + columns[:j] for j in columns[1:]] if len(parts) < many else []
    others = [part for order in turned for part in islice(_parts(theirs, order), 1)]
    agree, known = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    for i, part in enumerate([*parts, *others]):
        ids, of_kept = _digests(rows, part), _digests(theirs, part)
        same = np.isin(unique_ids(ids), unique_ids(of_kept))
        agree += same & (i < len(parts))
        if _are_more_than_chance(same, of_kept):
            known |= same
    return np.asarray(known | (agree >= max(1, len(parts) // 2)))


def _digests(cells: Cells, part: Iterable[int]) -> Ids:
    """Return a digest of each row in some columns, the same for equal rows, (n,)."""
    ids = np.zeros(len(cells), np.uint64)
    for j in part:
        ids ^= mixed(cells[:, [j]].astype(np.uint64), np.full((1, 1), j, np.uint64))[:, 0]
    return ids


def _parts(cells: Cells, columns: Iterable[int], *, apart: float = 0.9) -> Iterator[list[int]]:
    """Yield the parts of columns, in an order, by which rows are told apart.

    ``apart``: share of rows with different values from which on a part of the columns identifies a
    row.
    """
    part, ids = list[int](), np.zeros(len(cells), np.uint64)
    for j in columns:
        part.append(j)
        ids ^= _digests(cells, [j])
        if len(np.unique(ids)) >= apart * len(cells):
            yield part
            part, ids = [], np.zeros(len(cells), np.uint64)


def _are_more_than_chance(same: NDArray[np.bool_], ids: Ids, *, deviations: float = 3.0) -> bool:
    """Return whether more rows (n,) agree with grouped ones than would if they were of others.

    ``deviations``: standard deviations by which more rows agree than by chance, of a number that is
    as for rare events.
    """
    _, times = np.unique(ids, return_counts=True)
    chance = float(times[times > 1].sum()) / len(ids) * len(same)
    return bool(np.count_nonzero(same) > chance + deviations * (chance + 1.0) ** 0.5)


LOGGER = logging.getLogger(__name__)

BATCH = 1 << 17
"""Smallest number of rows of a stream that are partitioned together."""


class GroupsLog(Protocol):
    """What tells, beside the file of groups, which one was written last."""

    name: str

    def check(self, file: Path, kept: Partition | None) -> None:
        """Raise an InputError if a file, or that there is none, is not what was written last."""

    def note(self, file: Path, digest: str) -> None:
        """Record the digest of a file that was written."""


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The groups of one site, kept in a file if its rows change between runs.

    Parameters
    ----------
    groups : Groups
        The protection.
    file : Path, optional
        The file with the partition; without it, rows are grouped for this process only.
    roles : mapping of str to str, optional
        The columns of persons, weights and labels, by the keys of a site file; by default only
        their presence is recorded.
    log : GroupsLog, optional
        What tells which file was written last.
    source : str
        The source of the rows, by which other site files of the folder find these groups.
    """

    groups: Groups
    file: Path | None = None
    roles: Mapping[str, str] | None = None
    log: GroupsLog | None = None
    source: str = ""

    def grouped(
        self, rows: Data | RowStream, passes: Passes = any_passes, *, save: bool = True
    ) -> Data:
        """Return the means of the groups of a site's rows; no rows if there are too few.

        Parameters
        ----------
        rows : Data or RowStream
            The rows. Rows that are already means of groups are returned unchanged.
        passes : callable, optional
            ``passes(counts, n)`` returns which texts and labels, each of counts of the n rows
            (persons), may leave as far as groups allow; by default all.
        save : bool, default=True
            Whether new groups are stored; if not, they may only be inspected.

        Raises
        ------
        InputError
            If the file belongs to other columns, another p or other rows, or cannot be read.
        """
        if isinstance(rows, Data) and rows.grouped is not None:
            return rows
        with self._alone():
            return self._made(rows, passes, save=save)[0]

    def in_blocks(self, rows: RowStream, passes: Passes = any_passes) -> Iterator[Data]:
        """Group rows once, block by block, in memory that does not grow with their number.

        The membership in groups is not stored, so later rows cannot be in any.

        Parameters
        ----------
        rows : RowStream
            The rows, each of a different person, which are read twice.
        passes : callable, optional
            As in `grouped`.

        Yields
        ------
        Data
            The means of the groups of a block. Only the last item, which has no rows, has the
            scatter.

        Raises
        ------
        InputError
            If there are too few rows.
        """

        def chunks() -> Iterator[Data]:
            return filter(len, map(Data.valued, chunks_of(rows)))

        table = survey(chunks(), self.groups.p, None, passes)
        if len(table.units) < self.groups.min_rows:
            raise InputError(
                f"there are {len(table.units):,} rows, and min_rows asks for {self.groups.min_rows}"
            )
        label, scatter = (self.roles or {}).get("label_column"), Scatter()
        empty = Partition.empty(self.groups.p, [column.name for column in table.columns])
        for block in _blocks(chunks()):
            reader = UnitReader(b"")
            for chunk in block:
                reader.add(chunk)
            here = replace(table, units=reader.units())
            holder = ContentReader(here, partial(iter, block), self.groups, label)
            means = GroupMeans(here, _with_new_groups(empty, holder), holder.chunks)
            scatter.add(means.squares, means.means)
            last = means.data().with_scatter({})
            yield last
        yield last.take(slice(0)).with_scatter(scatter.disclosed)

    def examined(
        self, rows: Data | RowStream, *, all_columns: bool = False
    ) -> tuple[Data, Examined]:
        """Return the result of `grouped` with facts for the owner only; store nothing.

        The facts are about agreement in sensitive columns, or in all columns.
        """
        with self._alone():
            data, holder, partition = self._made(rows, any_passes, save=False)
        number = np.append(partition.members, -1)[partition.places(holder.table.units)]
        if all_columns:
            names = tuple(column.name for column in holder.table.columns)
            holder = replace(holder, groups=replace(self.groups, sensitive=names, diversity=1))
        rules, stays = Rules(self.groups, holder.contents()), number >= 0
        groups = [np.flatnonzero(stays)[units] for units in members_of(number[stays])]
        groups = groups if len(data) else []
        sums, sensitive, g = tuple(holder.sums), holder.groups.sensitive, len(groups)
        amounts = np.array([rules.amounts(units) for units in groups])
        agree = np.array([rules.agree(units) for units in groups], dtype=bool)
        single = np.empty((0, len(sums) + 1))
        if groups:
            largest, rest, _ = rules.singles(groups)
            single = largest / np.where(largest > 0, largest + rest, 1.0)
        return data, Examined(
            len(stays),
            np.array([len(units) for units in groups], dtype=np.int64),
            sums,
            amounts.reshape(g, 3, len(sums) + 1),
            single,
            sensitive,
            agree.reshape(g, len(sensitive)),
            partition.n_versions,
            partition.disclosed.n_following,
        )

    def _made(
        self, rows: Data | RowStream, passes: Passes, *, save: bool
    ) -> tuple[Data, ContentReader, Partition]:
        """Return the means of groups, a reader of their units' content, and the partition."""

        def chunks() -> Iterator[Data]:
            return filter(len, map(Data.valued, chunks_of(rows)))

        before = self._kept(chunks)
        table = survey(chunks(), self.groups.p, before.key if self.file else b"", passes)
        holder = ContentReader(table, chunks, self.groups, (self.roles or {}).get("label_column"))
        after, elsewhere = self._standing(before, holder)
        if len(table.units) >= self.groups.min_rows:
            after = _with_new_groups(after, holder)
            if self.groups.diversity > 1 and not after.n_groups:
                holder.check_values()
        means = GroupMeans(table.of_grouped(after, chunks, passes), after, chunks)
        after, data = means.partition, means.data()
        if self.file is not None:
            _check_left(self.file, after, table.units, elsewhere)
            noted = after.noting(table.units, means.disclosed)
            if noted.disclosed is not after.disclosed:
                noted.check_disclosed(self.file)
            after = noted
        if save and after is not before:
            self._save(after, table.units, chunks)
        return (
            data if len(table.units) >= self.groups.min_rows else data.take(slice(0)),
            holder,
            after,
        )

    def _standing(
        self, before: Partition, holder: ContentReader
    ) -> tuple[Partition, NDArray[np.bool_]]:
        """Return the stored partition as it stands now, and which units are in other groups."""
        columns, units = holder.table.columns, holder.table.units
        after = before.described(columns, self.file)
        if self.file is None:
            return after, np.zeros(len(units), bool)
        after = after.following(units).raised(units, self.groups.generation)
        after.check_rows(units, self.file)
        elsewhere = self._elsewhere(before, units, holder.chunks)
        after = after.knowing(units, elsewhere)
        return holder.without_broken(after.without_broken(units)), elsewhere

    def _kept(self, chunks: Chunks) -> Partition:
        """Return the partition that the site has stored."""
        first = next(iter(chunks()), None)
        names = [] if first is None else [column.name for column in columns_of(first)]
        if self.file is None:
            return Partition.empty(self.groups.p, names)
        if self.log is not None:
            self.log.check(self.file, Partition.read(self.file) if self.file.exists() else None)
        layout = _layout(first, self.roles, self.groups)
        p, generation = self.groups.p, self.groups.generation
        try:
            before = Partition.load(self.file, p, names, generation, layout)
        except OtherSettingsError as error:
            kept = Partition.read(self.file)
            if 2 * np.count_nonzero(known := known_rows(kept, chunks, self.roles or {})) > len(
                known
            ):
                raise
            raise InputError(
                f"{error}; most rows are new, so write generation = "
                f"{kept.generation + 1} under [groups]"
            ) from error
        if not before.digest or len(before.units):
            return before
        with suppress(OtherSettingsError):
            earlier = Partition.load(self.file, p, names, 1, layout)
            return self._confirmed(earlier, chunks) or before
        return before

    def _confirmed(self, earlier: Partition, chunks: Chunks) -> Partition | None:
        """Return the groups of a generation ago if this one says that most rows are gone for good.

        That is so if few rows are left, and most of these are known.
        """
        if not len(earlier.units):
            return None
        units = survey(chunks(), earlier.p, earlier.key).units
        n_known = np.count_nonzero(earlier.following(units).places(units) >= 0)
        few = 2 * len(units) < np.count_nonzero(earlier.members >= 0)
        return earlier if few and 2 * n_known >= len(units) else None

    def _elsewhere(self, before: Partition, units: Units, chunks: Chunks) -> NDArray[np.bool_]:
        """Return whether each unit is in other groups of the folder, or was, (u,)."""
        assert self.file is not None
        found = np.zeros(len(units), np.bool_)
        # a new generation was begun: the file still holds the former one
        is_raised = bool(before.digest) and not len(before.units)
        for path in [*others_of(self.file), *([self.file] if is_raised else [])]:
            known = known_rows(Partition.read(path), chunks, self.roles or {})
            found[units.of_rows[known]] = True
        return found

    def _save(self, after: Partition, units: Units, chunks: Chunks) -> None:
        """Store a partition in place of the file that it was read from.

        The log is told after the file is written. So a kill leaves a log that is one file behind at
        most, which the file itself tells, since the log hears of that file before it is replaced.
        """
        if self.file is None:
            return
        if self.log is not None and after.digest:
            self.log.note(self.file, after.digest)
        if after.digest and (old := Partition.read(self.file)).generation < after.generation:
            shutil.copy2(self.file, earlier_file(self.file, old.generation))
        grouped = (np.append(after.members, -1)[after.places(units)] >= 0)[units.of_rows]
        cells = np.concatenate([cells_of(chunk, after.key) for chunk in chunks()])[grouped]
        after = replace(
            after,
            log="" if self.log is None else self.log.name,
            source=self.source,
            names=names_of(next(iter(chunks())), self.roles or {}),
            cells=with_cells(after.cells, cells),
        )
        digest = after.save(self.file)
        if self.log is not None:
            self.log.note(self.file, digest)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other process read or write the file within the block, where there are locks."""
        if self.file is None or not has_locks():
            yield
            return
        with opened_folder(self.file.parent) as folder:
            lock(folder)
            yield


def _layout(first: Data | None, roles: Mapping[str, str] | None, groups: Groups) -> dict[str, str]:
    """Return the layout of a site's groups, from its first rows and its site file."""
    if first is None:
        return {}
    given = {
        "group_column": first.groups is not None,
        "weight_column": first.sample_weight is not None,
        "label_column": first.y is not None,
    }
    named = {role: "named" for role, is_given in given.items() if is_given}
    unit = "rows" if first.groups is None else "persons"
    named |= roles or {}
    return {**{role: named.get(role, "none") for role in given}, "unit": unit, **groups.rules}


def _check_left(file: Path, kept: Partition, units: Units, elsewhere: NDArray[np.bool_]) -> None:
    """Check that units are left for groups, where some are in other groups of the folder.

    Raises
    ------
    InputError
        If there is no group.
    """
    n = np.count_nonzero(elsewhere & (np.append(kept.members, -1)[kept.places(units)] < 0))
    if not n:
        return
    if (kept.members < 0).all():
        raise InputError(
            f"{file}: {n:,} of {len(units):,} rows (or persons) are in other groups of its folder, "
            f"{', '.join(path.name for path in others_of(file)) or 'an earlier generation'}, and a "
            "second grouping would reveal single rows: answer with the source, columns and "
            "settings of those groups; other rows need a folder of their own"
        )
    LOGGER.warning(
        "%d of %d rows (or persons) are left out: they are in other groups", n, len(units)
    )


@dataclass(frozen=True, slots=True, eq=False)
class ContentReader:
    """Reader of the content of units, which reads it anew on request.

    Parameters
    ----------
    table : SiteTable
        The survey of the rows.
    chunks : callable
        Returns the rows.
    groups : Groups
        The protection.
    label : str, optional
        The name of the column of labels.
    """

    table: SiteTable
    chunks: Chunks
    groups: Groups
    label: str | None = None

    @property
    def sums(self) -> dict[str, int]:
        """The numeric columns whose sums are not counts, by name."""
        of_numbers = enumerate(zip(self.table.columns, self.table.flags, strict=True))
        return {c.name: j for j, (c, flag) in of_numbers if c.kind == "number" and not flag}

    @property
    def sensitive(self) -> list[int]:
        """The sensitive columns, -1 for labels.

        Raises
        ------
        InputError
            If a sensitive column is not one that the site may disclose.
        """
        place = {column.name: j for j, column in enumerate(self.table.columns)}
        place |= {} if self.label is None or self.table.classes is None else {self.label: -1}
        for name in self.groups.sensitive:
            if name not in place:
                raise InputError(
                    f"sensitive column {name!r} is not among those that may be told, "
                    f"{', '.join(place)}: leave it out of sensitive"
                )
        return [place[name] for name in self.groups.sensitive]

    def held(self, chunk: Data) -> Contents:
        """Return the content of the rows of a chunk."""
        weight = np.ones(len(chunk)) if chunk.sample_weight is None else chunk.sample_weight
        values = chunk.X[:, list(self.sums.values())].astype(np.float64)
        adds, there = np.nan_to_num(values) * weight[:, None], ~np.isnan(values)
        number, holds = np.arange(len(chunk), dtype=np.uint64), []
        for j in self.sensitive:
            known = known_by(chunk, j, b"")
            is_there = np.ones(len(chunk), bool) if j < 0 else ~np.isnan(chunk.X[:, j])
            holds.append(np.column_stack([number, known])[is_there])
        weights = np.column_stack([there * weight[:, None], np.ones(len(chunk))])
        return Contents.raw(np.column_stack([adds, weight]), weights, holds)

    def compared(self, contents: Contents) -> Contents:
        """Return the content of units, with values that many of them share taken for known."""
        steps = [self.table.steps[j] for j in self.sums.values()]
        return contents.compared(self.groups.p, [*steps, self.table.steps[-1]])

    def contents(self) -> Contents:
        """Return the content of all units."""
        units = self.table.units
        every = Contents.together([self.held(chunk) for chunk in self.chunks()])
        of_units = every.of_persons(units.of_rows, len(units)) if units.are_persons else every
        return self.compared(of_units)

    def without_broken(self, kept: Partition) -> Partition:
        """Return the partition without the groups of persons that no longer satisfy the rules.

        Groups of rows always satisfy the rules, because rows do not change.
        """
        if not self.table.units.are_persons:
            return kept
        number = np.append(kept.members, -1)[kept.places(self.table.units)]
        rules, here = Rules(self.groups, self.contents()), np.flatnonzero(number >= 0)
        groups = [here[units] for units in members_of(number[here])]
        return kept.without([int(number[groups[g][0]]) for g in rules.broken_of(groups)])

    def check_values(self) -> None:
        """Raise an error for sensitive columns with too few values for any group.

        Raises
        ------
        InputError
            With the first such column.
        """
        least = self.groups.diversity
        pairs = Contents.together([self.held(chunk) for chunk in self.chunks()]).holds
        for name, each in zip(self.groups.sensitive, pairs, strict=True):
            if (n := len(np.unique(each[:, 1]))) < least:
                raise InputError(
                    f"sensitive column {name!r} has {n} different values, and diversity asks for "
                    f"{least} in each group: leave it out of sensitive and of what may be told"
                )


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """Facts about the groups of a site, for its owner only.

    Parameters
    ----------
    n_units : int
        The number of all units of the site.
    counts : ndarray of shape (g,)
        The number of units in each group.
    sums : tuple of str
        The c columns whose sums are not counts.
    amounts : ndarray of shape (g, 3, c + 1)
        The two largest amounts that a unit adds to a sum, and the total of all, in absolute values;
        0 for sums that are not disclosed. The last column is the sum of weights.
    single : ndarray of shape (g, c + 1)
        The largest share that a value which fewer than p units share has in what the sum of a group
        adds to values that more units share; see `fedcluster.privacy.limits`.
    columns : tuple of str
        The s columns in which groups may agree.
    agree : ndarray of shape (g, s)
        Whether all units of a group have the same value.
    n_versions : int
        The number of versions of the rows so far, if groups are kept.
    n_following : int
        The number of single values that follow from all sums that were told.
    """

    n_units: int
    counts: NDArray[np.int64]
    sums: tuple[str, ...]
    amounts: Floats
    single: Floats
    columns: tuple[str, ...]
    agree: NDArray[np.bool_]
    n_versions: int
    n_following: int

    @property
    def n_out(self) -> int:
        """The number of units that are in no group."""
        return self.n_units - int(self.counts.sum())

    @property
    def shares(self) -> Floats:
        """Return the shares of the largest unit, and of the two largest, by sum, (g, 2, c + 1)."""
        largest = np.cumsum(self.amounts[:, :2], axis=1)
        total = self.amounts[:, 2:]
        return np.asarray(largest / np.where(total > 0, total, 1.0))

    @property
    def most(self) -> dict[str, float]:
        """Return, by column, the largest share of one unit in the sum of a group."""
        largest = self.shares[:, 0].max(axis=0, initial=0.0).tolist()
        return dict(zip(self.sums, largest, strict=False))

    @property
    def agreeing(self) -> dict[str, float]:
        """Return, by column, the share of the groups in which all units have the same value."""
        shares = self.agree.sum(axis=0) / max(len(self.agree), 1)
        return dict(zip(self.columns, shares.tolist(), strict=True))


def _with_new_groups(before: Partition, holder: ContentReader) -> Partition:
    """Return the partition with groups of units that were never grouped, if there are enough.

    A new row may be a removed one with another value, so a group needs p rows in addition to the
    number of removed ones; so do groups of persons who may be others that are gone. Units left over
    are tried together again until they form no group, so that reading the same rows again gives no
    further groups.
    """
    units, groups = holder.table.units, holder.groups
    is_new, (doubtful, n_gone) = before.places(units) < 0, before.doubtful(units)
    pools = [(is_new & ~doubtful, groups.p), (doubtful, groups.p + n_gone)]
    pools = [(some, p) for some, p in pools if np.count_nonzero(some) >= p]
    if not pools:
        return before
    made = NewGroups(before.n_groups, groups.p)
    left: list[list[_Batch]] = [[] for _ in pools]
    for batch in _batches(holder, is_new):
        for (of_pool, p), rest in zip(pools, left, strict=True):
            rest.append(_add(made, batch.take(of_pool[batch.units]), groups, p))
    for (_, p), rest in zip(pools, left, strict=True):
        n_groups, batch = -1, _Batch.together(rest)
        while made.n_groups > n_groups:
            n_groups = made.n_groups
            batch = _add(made, batch, groups, p)
    return before.with_groups(units, made) if made.units else before


def _blocks(chunks: Iterable[Data]) -> Iterator[list[Data]]:
    """Yield chunks that are partitioned together, joined as in `_batches`."""
    block: list[Data] = []
    for chunk in chunks:
        block.append(chunk)
        if sum(map(len, block)) >= BATCH:
            yield block
            block = []
    if block:
        yield block


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Units, with their points and their content."""

    units: Numbers
    points: Floats
    contents: Contents

    def take(self, some: NDArray[Any]) -> _Batch:
        """Return some of the units, selected by increasing indices or by booleans."""
        places = np.flatnonzero(some) if some.dtype == bool else some
        return _Batch(self.units[places], self.points[places], self.contents.take(places))

    @classmethod
    def together(cls, parts: Sequence[_Batch]) -> _Batch:
        """Return all units of several batches."""
        units, points = (
            np.concatenate([getattr(p, n) for p in parts]) for n in ("units", "points")
        )
        return cls(units, points, Contents.together([part.contents for part in parts]))


def _add(made: NewGroups, batch: _Batch, groups: Groups, p: int) -> _Batch:
    """Form groups of new units; return the units that are in none."""
    made.p = p
    rules = Rules(groups, batch.contents, p, batch.points)
    return batch.take(made.add(batch.units, batch.points, rules))


def _batches(holder: ContentReader, is_new: NDArray[np.bool_]) -> Iterator[_Batch]:
    """Yield batches of units with their points; persons, as means of their rows, all at once."""
    table, groups = holder.table, holder.groups
    apart = [j for j in holder.sensitive if groups.diversity > 1]
    parts: list[_Batch] = []
    n_new = 0
    for start, chunk in placed(holder.chunks()):
        here = table.units.of_rows[start : start + len(chunk)]
        points = table.points(table.shown(chunk), groups.scale, apart)
        parts.append(_Batch(here, points, holder.held(chunk)))
        n_new += int(np.count_nonzero(is_new[here]))
        if n_new >= BATCH and not table.units.are_persons:
            yield _compared(parts, holder)
            parts, n_new = [], 0
    if parts:
        yield _compared(parts, holder)


def _compared(parts: Sequence[_Batch], holder: ContentReader) -> _Batch:
    """Return the units of several chunks, compared with each other."""
    every, units = _Batch.together(parts), holder.table.units
    contents = every.contents
    if units.are_persons:
        contents = contents.of_persons(every.units, len(units))
    return _Batch(*units.means_of(every.units, every.points), holder.compared(contents))
