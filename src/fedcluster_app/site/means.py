"""Tables that are grouped once: questions are answered from the stored means of groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

import numpy as np

from fedcluster.core import Data
from fedcluster.core.files import lock, remove_broken_off
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.frames.rows import StreamedRows, WarehouseSource, error_prefix
from fedcluster.options.refusals import refused
from fedcluster.privacy.disclosure import Disclosure
from fedcluster.privacy.groups import known_rows, others_of
from fedcluster.privacy.partition import Partition
from fedcluster_app.site.file import SiteFile
from fedcluster_app.tables.means_file import write_means


def group_once(site: SiteFile) -> tuple[int, int, int]:
    """Group a table in constant memory, and write the means of all groups.

    Returns the numbers of groups, of rows in them, and of rows. An existing file for these rows and
    options is kept.

    Raises
    ------
    InputError
        If the rows were grouped otherwise or lost their means, must not be grouped, are too few,
        change meanwhile, or are being grouped by another process, or if nobody has said which names
        of columns may leave with the means.
    """
    where, path = f"{site.path}: ", site.means_file
    if not site.is_grouped:
        raise refused("means-ungrouped", where=where)
    if isinstance(site.source, WarehouseSource) and site.source.version is None:
        raise refused("means-version", where=where)
    if site.groups_file.exists():
        raise refused("means-partition", where=where)
    made = site.means_made_of()
    rows = site.for_network().opened(raw=True)
    if path.exists():
        data = site.means()
        return len(data), round(data.n_rows), len(rows)
    _check_others(site, rows)

    def blocks() -> Iterator[Data]:
        n_groups = 0
        for block in _grouped(site, rows):
            n_groups += len(block)
            yield block
        if not n_groups:
            raise InputError(f"there are too few rows for groups of {site.groups.p}")
        if site.means_made_of() != made:
            raise InputError("the source has changed while it was read: start again")

    about = {"site": site.name, "made": made, "permits": site.permits}
    about |= {"limits": asdict(site.limits), "policy": asdict(site.policy)}
    with error_prefix(f"site {site.name!r}"), _alone(site):
        n_groups, n_rows = write_means(path, blocks(), about)
    return n_groups, n_rows, len(rows)


def _check_others(site: SiteFile, rows: StreamedRows) -> None:
    """Raise an error for rows that are in other groups of the folder, or in means that are gone."""
    site.check_groups()
    grouping = site.grouping
    for path in others_of(site.groups_file):
        known = known_rows(Partition.read(path), rows.read, grouping.roles or {})
        if n := np.count_nonzero(known):
            raise InputError(
                f"{site.path}: {n:,} of {len(known):,} rows are in the groups of {path.name}, and "
                "a second grouping would reveal single rows; other rows need a folder of their "
                "own"
            )


@contextmanager
def _alone(site: SiteFile) -> Iterator[None]:
    """Let no other process group the rows, and remove what a killed one left behind."""
    with site.path.open("rb") as held:
        try:
            lock(held, wait=False)
        except BlockingIOError:
            raise InputError("its rows are being grouped by another process") from None
        remove_broken_off(site.means_file)
        yield


def _grouped(site: SiteFile, rows: StreamedRows) -> Iterator[Data]:
    """Yield the means of all groups, block by block, or for persons all at once."""
    grouping = replace(site.grouping, file=None)
    if site.group_column is not None:  # the rows of a person need not be adjacent
        yield Client(site.name, rows, site.disclosure, grouping).data
        return
    passes = Disclosure.of(site.disclosure, site.groups).passes
    yield from grouping.in_blocks(rows, passes)
