"""What is decided on the columns of files before they are clustered, where nobody has said it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from fedcluster.core import Data
from fedcluster.errors import listed
from fedcluster.io._rows import SiteRows
from fedcluster.io._samples import SiteSample
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.preprocessing._screening import Screening, screened


def screen(
    tables: Mapping[str, SiteRows],
    prepare: PreprocessingSpec,
    dates: Collection[str] = (),
    *,
    chosen: bool,
) -> tuple[dict[str, SiteRows], Screening]:
    """Return the rows without columns that hold no measurements, and what is said of the others.

    Parameters
    ----------
    tables : mapping of str to SiteRows
        The rows of each site, which are to be prepared.
    prepare : PreprocessingSpec
        What is to be done to them.
    dates : collection of str
        Columns whose dates became numbers.
    chosen : bool
        Whether somebody chose the columns; then none is set aside.
    """
    samples = {
        site: SiteSample.from_data(table.rows, table.padded)
        for site, table in tables.items()
        if isinstance(table.rows, Data)
    }
    screening = screened(samples, prepare.named, dates)
    if chosen:
        return dict(tables), replace(screening, left_out={}, notes=())
    if any(table.limits is not None for table in tables.values()):
        return dict(tables), Screening(warnings=screening.warnings)
    unreadable = {
        name: f"at {site}, {reason}"
        for site, table in tables.items()
        for name, reason in table.unreadable.items()
    }
    left_out = unreadable | dict(screening.left_out)
    rest = {site: table.without(left_out) for site, table in tables.items()}
    return rest, replace(screening, left_out=left_out, notes=(*_written(tables), *screening.notes))


def _written(tables: Mapping[str, SiteRows]) -> Iterator[str]:
    """Yield how files are written that are not written as usual."""
    sites: dict[str, list[str]] = {}
    for site, table in tables.items():
        for what in table.read_as:
            sites.setdefault(what, []).append(site)
    if sites:
        yield f"Read with {'; '.join(f'{what}: {listed(at)}' for what, at in sites.items())}."


def noticed(data: Data) -> list[str]:
    """Return what the rows of one site show that its file lets be clustered by.

    Parameters
    ----------
    data : Data
        Some of its rows, still to be prepared.
    """
    screening = screened({"this site": SiteSample.from_data(data)})
    lines = [
        f"Column {name!r} would be clustered by: {why.partition(': --')[0]}; choose columns "
        "without it if that is not meant."
        for name, why in screening.left_out.items()
    ]
    return [*lines, *(f"Look at {line}." for line in screening.warnings)]
