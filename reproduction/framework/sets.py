"""Tables 3 to 7: the hundred G2 sets at 2, 5 and 10 sites."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.framework.g2_runs import (
    CENTRAL,
    CIRCLES,
    FEDERATED,
    GAP,
    INDEX,
    METHODS,
    SITES,
    Method,
    chosen,
    correct,
    default_runs,
    g2_runs,
)
from reproduction.framework.index import AVERAGINGS, Array, published_value
from reproduction.pictures import OURS, PUBLISHED, legend, panels, save
from reproduction.results import Cell, Estimate, Row, Tolerance, write_table

QUANTILES = {"q25": 0.25, "median": 0.5, "q75": 0.75, "min": 0.0, "max": 1.0}
WITHIN_10 = Tolerance(0, relative=0.1)


def published_correct(method: Method) -> float:
    name, n = method
    if method == CENTRAL:
        return published_value("C", "G2 sets", "central", "% correct K")
    return published_value("C", f"G2 sets, {n} clients", AVERAGINGS[name], "% correct K")


def named(method: Method) -> dict[str, Any]:
    return {"method": AVERAGINGS.get(method[0], method[0]), "sites": method[1]}


def correct_cells(found: dict[Method, Array]) -> list[Cell]:
    """Table 3: the per cent of the runs that choose two clusters."""
    return [
        Cell(
            named(method),
            Estimate(correct(found[method]), runs=len(found[method])),
            Estimate(published_correct(method)),
            Tolerance(errors=0, absolute=3.0),
        )
        for method in METHODS
    ]


ASSUMED = (
    "assumed: rows in the unit box, random memberships at the pooled rows, integers of [-10, 10) "
    "at the sites, as the authors' programs stood in March 2022. The sets that decide have two "
    "columns, or deviations of 90 and more, where all centres fall together and either K has the "
    "least index by chance"
)


def table_3(folder: Path, quick: bool) -> list[Row]:
    """In how many runs the right K = 2 has the least index."""
    found = g2_runs(quick)
    cells = correct_cells(found)
    circling = sum(int(found[method][:, :, CIRCLES].sum()) for method in FEDERATED)
    return [
        Row.of(
            "table 3",
            "% of the runs that choose K = 2 out of 2 and 3; allowed are 3 points",
            cells,
            required=6 / 7,
            shape=min(c.ours.value for c in cells) > 80,
            reason=f"{ASSUMED}; {circling} federated runs circle; {beside_default(quick)}",
            files=write_table(folder, "table_3", "Table 3", cells),
        )
    ]


def beside_default(quick: bool) -> str:
    """Our default beside the pooled rows, on the first run of the sets that both have."""
    narrow, central = default_runs(quick), g2_runs(quick)[CENTRAL]
    first = central[:: len(central) // n_sets(quick)][: len(narrow)]
    return (
        f"our default {correct(narrow):.0f} %, on the first {len(narrow)} sets, of which central "
        f"{correct(first):.0f} %"
    )


def n_sets(quick: bool) -> int:
    return 9 if quick else 100


def quantile_cells(
    letter: str, averaging: str, quantity: str, tolerance: Tolerance, found: dict[Method, Array]
) -> list[Cell]:
    """Quantiles over all runs: of the index at the K that each chose, of the gap at K = 2."""

    def values(method: Method) -> Array:
        runs = found[method]
        if quantity == "knowledge gap":
            return np.asarray(runs[:, 0, GAP])
        return np.asarray(runs[np.arange(len(runs)), chosen(runs), INDEX])

    return [
        Cell(
            {**named(method), "quantile": name},
            Estimate(float(np.quantile(values(method), q)), runs=len(found[method])),
            Estimate(
                published_value(
                    letter,
                    "G2 sets",
                    "central" if method == CENTRAL else f"{method[1]} clients",
                    f"{quantity} {name}",
                )
            ),
            tolerance,
        )
        for method in (CENTRAL, *((averaging, n) for n in SITES))
        for name, q in QUANTILES.items()
    ]


def tables_4_and_5(folder: Path, quick: bool) -> list[Row]:
    """Quantiles of the index over the runs."""
    found, tolerance = g2_runs(quick), Tolerance(0, relative=0.02)
    return [
        quantile_row(
            folder,
            number,
            quantile_cells(letter, averaging, "FuzzyDB", tolerance, found),
            f"fuzzy Davies-Bouldin of the chosen K, {AVERAGINGS[averaging]}: quartiles and minimum "
            "within 2 %",
            ("q25", "median", "q75", "min"),
            "a maximum is that of one collapsed set and not judged; its size tells the scale of "
            "the rows, since a federation stops when its centres move by less than 1e-4",
        )
        for number, letter, averaging in zip((4, 5), "DE", AVERAGINGS, strict=True)
    ]


def tables_6_and_7(folder: Path, quick: bool) -> list[Row]:
    """Quantiles of the knowledge gap over the runs."""
    found = g2_runs(quick)
    return [
        quantile_row(
            folder,
            number,
            quantile_cells(letter, averaging, "knowledge gap", WITHIN_10, found),
            f"knowledge gap at K = 2, {AVERAGINGS[averaging]}: quartiles within 10 %",
            ("q25", "median", "q75"),
            "assumed: standardised Euclidean distances, as the program's until April 2022, at the "
            "true K; they do not depend on the rows' scale. Minimum and maximum are of one set "
            "each and not judged; sets of 256 columns and more are drawn anew",
        )
        for number, letter, averaging in zip((6, 7), "FG", AVERAGINGS, strict=True)
    ]


def quantile_row(
    folder: Path,
    number: int,
    cells: Sequence[Cell],
    what: str,
    judged: Sequence[str],
    reason: str,
) -> Row:
    """One of tables 4 to 7, and its picture."""
    files = [draw_quantiles(folder, number, cells, what.split(":")[0].split(",")[0])]
    files += write_table(folder, f"table_{number}", f"Table {number}", cells)
    return Row.of(
        f"table {number}",
        what,
        [c for c in cells if c.of["quantile"] in judged],
        shape=same_as_pooled(cells),
        reason=reason,
        files=files,
    )


def draw_quantiles(folder: Path, number: int, cells: Sequence[Cell], quantity: str) -> str:
    """Quantiles by the number of sites; the maximum, far above the others, by itself."""
    figure, axes = panels(2, width=3.4)
    names = ["pooled", *(f"{n} sites" for n in SITES)]
    for ax, quantiles in ((axes[0, 0], ("min", "q25", "median", "q75")), (axes[0, 1], ("max",))):
        for quantile, mark in zip(quantiles, "v<o>" if len(quantiles) > 1 else "^", strict=True):
            these = [c for c in cells if c.of["quantile"] == quantile]
            places = np.arange(len(these))
            theirs = [c.published.value for c in these if c.published]
            ours = [c.ours.value for c in these]
            ax.plot(places - 0.1, theirs, mark, color=PUBLISHED, label=f"paper, {quantile}")
            ax.plot(places + 0.1, ours, mark, color=OURS, label=f"ours, {quantile}")
        ax.set_xticks(range(len(names)), names, rotation=30)
        ax.set(yscale="log", ylabel=quantity)
    axes[0, 0].set_title(f"table {number}: minimum and quartiles")
    axes[0, 1].set_title("maximum")
    legend(figure, axes[0, 0])
    return save(figure, folder, f"table_{number}")


def same_as_pooled(cells: Sequence[Cell]) -> bool:
    """The paper's conclusion: the federated median is the pooled one's, within 5 %."""
    medians = [c.ours.value for c in cells if c.of["quantile"] == "median"]
    return all(abs(median / medians[0] - 1) < 0.05 for median in medians)
