"""Groups (microaggregation): steps see means of at least p rows, and nothing else of a site.

J. Domingo-Ferrer & J. M. Mateo-Sanz, Practical data-oriented microaggregation for statistical
disclosure control, IEEE Trans. Knowledge and Data Engineering 14 (2002).

A site's rows are partitioned once. What leaves it, whatever is asked and however often, is a
function of one fixed set of sums, each over at least p rows (persons, where rows say whose they
are), and of what is the same for the whole site: names of columns and levels, the number of
groups, and of each column of numbers one scatter within groups.

The partition is secret, kept by the site, and never made anew: the same rows give the same groups.
Rows that were never grouped form groups of their own once there are p of them; where a row is
changed or removed, its group leaves for good. The rest of such a group may join a new group, which
has at least p rows that stood in no sum before. So no linear combination of the sums of all
versions stands for fewer than p rows: in the newest group of the combination are p rows that no
other sum of it holds. A row that is changed looks like one that is gone and a new one: unless rows
say whose they are, a new group has p rows beyond as many as are gone. Where they do, a group whose
persons have changed stays if its sum was told before, or p of them have values that are in no sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Floats, RowStream
from fedcluster.io._columns import Passes, columns_of
from fedcluster.io._rows import chunks_of
from fedcluster.privacy._limits import Groups
from fedcluster.privacy._means import GroupMeans
from fedcluster.privacy._partition import NewGroups, Numbers, Partition
from fedcluster.privacy._survey import Chunks, SiteTable, any_passes, placed, survey

BATCH = 1 << 17
"""Rows of a stream that are partitioned together, at least."""


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The groups of one site, kept in a file where its rows change from run to run.

    Parameters
    ----------
    groups : Groups
        The protection.
    file : Path, optional
        Where the site keeps the partition; without it, rows are grouped for this process alone.
    roles : mapping of str to str, optional
        The columns that say whose rows they are, what they weigh and their labels, by the keys of
        a site file; by default only whether there are any.
    """

    groups: Groups
    file: Path | None = None
    roles: Mapping[str, str] | None = None

    def grouped(
        self, rows: Data | RowStream, passes: Passes = any_passes, *, save: bool = True
    ) -> Data:
        """Return the means of the groups of a site's rows; no rows where there are too few.

        Parameters
        ----------
        rows : Data or RowStream
            The rows.
        passes : callable, optional
            ``passes(counts, n)`` says which texts and labels, with so many of the n rows (persons)
            each, may leave besides what groups say; by default all.
        save : bool, default=True
            Whether new groups are kept; without, nothing may be made of them but to look.

        Raises
        ------
        InputError
            If the file is of other columns, of another p or of other rows, or cannot be read.
        """
        means = self.means(rows, passes, save=save)
        data = means.data()
        return data if means.n_units >= self.groups.min_rows else data.take(slice(0))

    def means(
        self, rows: Data | RowStream, passes: Passes = any_passes, *, save: bool = True
    ) -> GroupMeans:
        """Return the sums over the groups of a site's rows, as `grouped` does their means."""

        def chunks() -> Iterator[Data]:
            return filter(len, map(Data.weighed, chunks_of(rows)))

        before = self._kept(chunks)
        table = survey(chunks(), self.groups.p, before.key if self.file else b"", passes)
        after = before.described(table.columns, self.file)
        if self.file is not None:
            before.check_rows(table.units, self.file)
            after = after.without_broken(table.units)
        if len(table.units) >= self.groups.min_rows:
            after = _with_new_groups(after, table, chunks, self.groups)
        if self.file is not None:
            after = after.noting(table.units)
        means = GroupMeans(table, after, chunks)
        if save and self.file is not None and means.partition is not before:
            means.partition.save(self.file)
        return means

    def _kept(self, chunks: Chunks) -> Partition:
        """Return the partition that the site has kept."""
        first = next(iter(chunks()), None)
        names = [] if first is None else [column.name for column in columns_of(first)]
        if self.file is None:
            return Partition.empty(self.groups.p, names)
        layout = _layout(first, self.roles)
        return Partition.load(self.file, self.groups.p, names, self.groups.generation, layout)


def _layout(first: Data | None, roles: Mapping[str, str] | None) -> dict[str, str]:
    """Return what the groups of a site are of, by its first rows and its site file."""
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
    return {**{role: named.get(role, "none") for role in given}, "unit": unit}


def _with_new_groups(
    before: Partition, table: SiteTable, chunks: Chunks, groups: Groups
) -> Partition:
    """Return the partition with groups of units that were never in one, if there are enough.

    A new row may be one that is gone, with another value: a group has p rows beyond as many.
    """
    place = before.places(table.units)
    is_new, p = place < 0, groups.p
    if not table.units.are_persons:
        p += len(before.units) - int(np.count_nonzero(~is_new))
    if np.count_nonzero(is_new) < p:
        return before
    made = NewGroups(before.n_groups, p)
    waiting: list[tuple[Numbers, Floats]] = []
    is_waiting = ~is_new & (np.append(before.members, -1)[place] < 0)
    for units, points in _batches(table, chunks, groups.scale, is_new):
        made.add(units[is_new[units]], points[is_new[units]])
        waiting.append((units[is_waiting[units]], points[is_waiting[units]]))
    if made.units:
        made.take_in(*map(np.concatenate, zip(*waiting, strict=True)))
    return before.with_groups(table.units, made)


def _batches(
    table: SiteTable, chunks: Chunks, scale: str, is_new: NDArray[np.bool_]
) -> Iterator[tuple[Numbers, Floats]]:
    """Yield units with their points, many at once; persons as the means of their rows, all."""
    units, points, n_new = [], [], 0
    for start, chunk in placed(chunks()):
        here = table.units.of_rows[start : start + len(chunk)]
        units.append(here)
        points.append(table.points(table.shown(chunk), scale))
        n_new += int(np.count_nonzero(is_new[here]))
        if n_new >= BATCH and not table.units.are_persons:
            yield np.concatenate(units), np.concatenate(points)
            units, points, n_new = [], [], 0
    if units:
        yield table.units.means_of(np.concatenate(units), np.concatenate(points))
