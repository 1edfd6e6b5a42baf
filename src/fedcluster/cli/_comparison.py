"""Compare the sites' files side by side, as ``fedcluster check FILES`` shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedcluster.cli._options import FileOptions
from fedcluster.cli._reading import Reading, read
from fedcluster.cli._runs import clients_of
from fedcluster.engines import LocalEngine
from fedcluster.io.rows import SiteRows
from fedcluster.jobs import fitted_preprocessing
from fedcluster.preprocessing import FitReport, PreprocessingSpec
from fedcluster.privacy import MinRows
from fedcluster.texts.html import Table

KIND = {"number": "numbers", "date": "dates", "mixed": "mixed", "empty": "nothing"}


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What the files of all sites hold, and what a fit would make of them.

    Parameters
    ----------
    reading : Reading
        The rows, and what was decided on their columns.
    fit_report : FitReport
        What was met while the rows were prepared, with all decisions.
    used : tuple of str
        The columns that a fit would cluster by.
    """

    reading: Reading
    fit_report: FitReport
    used: tuple[str, ...]


def compared(
    files: Sequence[str],
    options: FileOptions,
    prepare: PreprocessingSpec,
    doing: Callable[[str], None] = lambda _what: None,
) -> Comparison:
    """Read the sites' files and prepare their rows, as a fit does before it clusters.

    Raises
    ------
    InputError
        Where a fit would refuse them.
    """
    reading = read(files, options, doing, prepare)
    engine = LocalEngine(clients_of(reading.tables, [MinRows(2)]))
    fitted = fitted_preprocessing(prepare, engine)
    met = fitted.fit_report.with_decisions(reading.left_out, reading.notes)
    return Comparison(reading, met, tuple(c.name for c in fitted.preprocessor.columns))


def comparison_table(comparison: Comparison) -> Table:
    """Return a line for each column: its use, and what it holds at each site.

    Of numbers mean and deviation are shown, which a federation tells as well; of text the number
    of its values. The share of missing values follows.
    """
    tables = comparison.reading.tables
    held = [name for table in tables.values() for name in table.columns]
    names = dict.fromkeys([*held, *comparison.reading.left_out])
    lines = [
        (
            name,
            "clustered by" if name in comparison.used else "left out",
            *(_held(comparison, table, name) for table in tables.values()),
        )
        for name in names
    ]
    rows = ("rows", "", *(f"{len(table):,}" for table in tables.values()))
    return Table("Sites side by side", ("column", "use", *tables), (*lines, rows))


def _held(comparison: Comparison, table: SiteRows, name: str) -> str:
    """Return what a column holds at a site."""
    summary = comparison.reading.summaries.get(table.name)
    if name not in table.columns or summary is None:
        return "" if name in (*table.columns, *table.ignored) else "lacking"
    column = summary.columns[name]
    gaps = column.missing / summary.n_rows
    missing = f", {gaps:.0%} missing" if gaps and column.kind in ("number", "text") else ""
    if column.kind == "text":
        return f"{len(column.levels)} texts{missing}"
    moments = comparison.fit_report.moments.get(name, {}).get(table.name)
    if moments is None:
        return f"{KIND[column.kind]}{missing}"
    mean, deviation = moments
    return f"{mean:.4g} ± {deviation:.3g}{missing}"


def comparison_content(comparison: Comparison) -> dict[str, object]:
    """Return what ``--json`` prints of a comparison."""
    met = comparison.fit_report
    return {
        "sites": {name: _site(table) for name, table in comparison.reading.tables.items()},
        "used": list(comparison.used),
        "left_out": dict(met.left_out),
        "notes": list(met.notes),
        "missing": {site: dict(counts) for site, counts in met.missing.items()},
        "moments": {
            name: {site: list(both) for site, both in moments.items()}
            for name, moments in met.moments.items()
        },
    }


def _site(table: SiteRows) -> Mapping[str, object]:
    told = table.columns_told or ()
    return {"rows": len(table), "columns": {column.name: column.kind for column in told}}
