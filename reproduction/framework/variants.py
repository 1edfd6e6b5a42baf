"""Tables 3, 6 and 7 with one assumption changed at a time: which change does what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from reproduction.framework.g2_runs import (
    GAP,
    METHODS,
    PLAIN_GAP,
    PROGRAM,
    Method,
    Setting,
    chosen,
    g2_runs,
)
from reproduction.framework.index import AVERAGINGS, Array
from reproduction.framework.sets import WITHIN_10, correct_cells, n_sets, quantile_cells, table_3
from reproduction.results import Cell, Estimate, Row, write_table

SETTINGS: dict[str, Setting] = {
    "raw rows, pooled start in [400, 700)": Setting("raw", "400 to 700"),
    "raw rows, the same, start of the sites in the unit box": Setting(
        "raw", "400 to 700", "unit box"
    ),
    "z-scored rows": replace(PROGRAM, rows="z-scored"),
    "pooled start in the unit box": replace(PROGRAM, pooled="unit box"),
    "start of the sites in the unit box": replace(PROGRAM, federated="unit box"),
    "k-means of the server anew in each round": replace(PROGRAM, reseed=True),
}


def gaps_as(found: dict[Method, Array], column: int, at_chosen: bool) -> dict[Method, Array]:
    """The runs with another gap in the place of the one that tables 6 and 7 take."""
    changed = {}
    for method, runs in found.items():
        at = chosen(runs) if at_chosen else np.zeros(len(runs), int)
        changed[method] = runs.copy()
        changed[method][:, 0, GAP] = runs[np.arange(len(runs)), at, column]
    return changed


def variants(quick: bool) -> Iterator[tuple[str, dict[Method, Array]]]:
    """By name, the runs of each variant: one a set, but for the first three, which have all."""
    found = g2_runs(quick)
    yield "as assumed", found
    yield "as assumed, gap at the chosen K", gaps_as(found, GAP, True)
    yield "as assumed, plain distances", gaps_as(found, PLAIN_GAP, False)
    each = len(found[METHODS[0]]) // n_sets(quick)
    yield "as assumed, one run", {method: runs[::each] for method, runs in found.items()}
    wider = g2_runs(quick, replace(PROGRAM, most_k=5), 1)
    for most in (4, 5):
        yield f"K of 2 to {most}", {method: runs[:, : most - 1] for method, runs in wider.items()}
    for name, setting in SETTINGS.items():
        yield name, g2_runs(quick, setting, 1)


def tally(name: str, found: dict[Method, Array]) -> list[Cell]:
    """How many cells of tables 3, 6 and 7 lie within the tolerances, and the per cents."""
    correct = correct_cells(found)
    cells = [Cell({"variant": name, "of": "table 3, cells within 3 points"}, count(correct))]
    for number, letter, averaging in zip((6, 7), "FG", AVERAGINGS, strict=True):
        quartiles = [
            c
            for c in quantile_cells(letter, averaging, "knowledge gap", WITHIN_10, found)
            if c.of["quantile"] in ("q25", "median", "q75")
        ]
        of = f"table {number}, cells within 10 %"
        cells.append(Cell({"variant": name, "of": of}, count(quartiles)))
    for c in correct:
        of = f"% correct, {c.of['method']}, {c.of['sites']}"
        cells.append(Cell({"variant": name, "of": of}, c.ours, c.published, c.tolerance))
    return cells


def count(cells: list[Cell]) -> Estimate:
    return Estimate(float(sum(bool(c.within) for c in cells)))


def table_3_and_variants(folder: Path, quick: bool) -> list[Row]:
    """Table 3's row, which says how many cells each variant has within."""
    [row] = table_3(folder, quick)
    tallies = [(name, tally(name, found)) for name, found in variants(quick)]
    title = "Tables 3, 6 and 7, one assumption changed at a time"
    cells = [cell for _, these in tallies for cell in these]
    files = [*row.files.split(), *write_table(folder, "variants", title, cells)]
    within = "; ".join(
        f"{name}: {', '.join(f'{c.ours.value:.0f}' for c in these[:3])}" for name, these in tallies
    )
    of = f"of {len(METHODS)}, 12 and 12 cells of tables 3, 6 and 7 lie within, by variant"
    return [replace(row, files=" ".join(files), reason=f"{row.reason}; {of}: {within}")]
