"""Tables 2 to 5 together, and one thing at a time done otherwise than in the program of 2021."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reproduction.ffcm.cases import IN_2021, TABLES, Measure, Runs, case_cells, case_runs
from reproduction.ffcm.methods import METHODS, PROGRAMS
from reproduction.ffcm.pictures import center_cells
from reproduction.ffcm.sets import table_5_cells
from reproduction.results import Cell, Estimate, Row, write_table

REQUIRED = 0.9
"""The share of the tables' cells that must be within."""


def _instead(**columns: str) -> Measure:
    """The measures of 2021 with some columns replaced, by name, in every table."""
    return {
        table: tuple(columns.get(name.replace(" ", "_"), name) for name in names)  # type: ignore[misc]
        for table, names in IN_2021.items()
    }


MEASURES: Mapping[str, Measure] = {
    "SSE over all rows": _instead(own_within="row within", own_outside="row outside"),
    "the server's centres where not converged": _instead(
        own_within="site within", own_outside="site outside"
    ),
    "plain gaps in table 4": _instead(seuclidean="plain"),
    "standardised gaps in table 3": _instead(plain="seuclidean"),
}
"""What was measured, with one thing done otherwise."""


def tables_2_to_5(folder: Path, quick: bool) -> list[Row]:
    """How many of the tables' numbers are within, and how many of tables 2 to 4 otherwise."""
    found = case_runs(quick)
    cells = [*_all_cells(found), *center_cells(quick)]
    cells += [c for m in METHODS for c in table_5_cells(quick)[m]]
    changed = {name: _all_cells(found, program=name) for name in PROGRAMS}
    changed |= {name: _all_cells(found, measure=measure) for name, measure in MEASURES.items()}
    counts = {name: sum(bool(cell.within) for cell in each) for name, each in changed.items()}
    most = len(changed["2021"])
    files = write_table(
        folder,
        "one_change",
        f"Cells of tables 2 to 4 within, of {most}: the program of 2021, and with one change",
        [Cell({"program": name}, Estimate(n)) for name, n in counts.items()],
    )
    others = ", ".join(f"{name} {n}" for name, n in counts.items() if name != "2021")
    return [
        Row.of(
            "tables 2 to 5",
            f"all cells; at least {REQUIRED:.0%} of them must be within",
            cells,
            required=REQUIRED,
            reason=f"three standard errors of the difference, the ten published runs taken as "
            f"spread as ours, or 10 %; of the {most} of tables 2 to 4, {counts['2021']} are "
            f"within, with one change to the program of 2021: {others}",
            files=files,
        )
    ]


def _all_cells(found: Runs, program: str = "2021", measure: Measure = IN_2021) -> list[Cell]:
    return [
        cell
        for case in TABLES
        for method in METHODS
        for cell in case_cells(case, method, found, program, measure)
        if cell.published
    ]
