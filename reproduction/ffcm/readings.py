"""What the paper leaves open, tried both ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reproduction.ffcm.cases import (
    QUANTITIES,
    SIZES,
    TABLES,
    Found,
    case_runs,
    published_value,
    scale_of_gap,
    true_centers,
)
from reproduction.ffcm.methods import VARIANTS
from reproduction.indices import knowledge_gap
from reproduction.results import (
    Cell,
    Estimate,
    Row,
    Tolerance,
    write_table,
)


def variants(folder: Path, quick: bool) -> list[Row]:
    """One step or convergence, u or u^m, weighted or not: which gives the tables' SSE."""
    found = case_runs(quick)
    groups = {
        "central start": ("central", ["central", "central, best of five"]),
        "avg_1's local work and support": ("avg_1", [v for v in VARIANTS if v[:5] == "avg_1"]),
        "avg_2's local work and weights": ("avg_2", [v for v in VARIANTS if v[:5] == "avg_2"]),
    }
    cells, rows = [], []
    for name, (method, tried) in groups.items():
        off = {variant: mean_off(method, variant, found) for variant in tried}
        cells += [Cell({"open": name, "variant": v}, Estimate(off[v])) for v in tried]
        best = min(off, key=off.__getitem__)
        others = ", ".join(f"{v} {off[v]:.1%}" for v in tried if v != best)
        rows.append(
            Row(
                paper="",
                figure="tables 2 to 4, open",
                what=f"{name}: mean deviation of the SSE columns",
                published="",
                ours=f"{best} fits best, {off[best]:.1%}",
                deviation_in_se=None,
                verdict="ours alone",
                reason=others,
            )
        )
    write_table(folder, "variants", "What the paper leaves open: mean |deviation| of SSE", cells)
    return rows


def mean_off(method: str, variant: str, found: Found) -> float:
    """Mean relative deviation of within and outside SSE over tables 2 to 4."""
    off = []
    for case in TABLES:
        for column, quantity in enumerate(QUANTITIES[:2]):
            theirs = published_value(case, method, quantity)
            if theirs:
                off.append(abs(found[case, variant][:, column].mean() / theirs - 1))
    return float(np.mean(off))


def gaps_of_table_4(folder: Path, quick: bool) -> list[Row]:
    """Three readings of the gap of table 4; one run's plain sum cannot be as small as 0.12."""
    found = case_runs(quick)
    off: dict[str, list[float]] = {
        "sum": [],
        "of the runs' mean centres": [],
        "sum / (K sqrt d)": [],
    }
    cells = []
    for case in SIZES:
        true = true_centers(case)
        for method in ("central", "avg_2"):
            runs = found[case, method]
            total = float(runs[:, 2].mean())
            mean = knowledge_gap(runs[:, 3:].mean(axis=0).reshape(true.shape), true)
            read = dict(zip(off, (total, mean, total / scale_of_gap(case)), strict=True))
            value = published_value(case, method, "GT gap") or np.nan
            for reading, ours in read.items():
                off[reading].append(abs(np.log(ours / value)))
                of = {"rows": SIZES[case], "method": method, "gap": reading}
                cells.append(Cell(of, Estimate(ours), Estimate(value), Tolerance(0, relative=0.25)))
    files = write_table(folder, "table_4_gaps", "Readings of the gap of table 4", cells)
    factor = {reading: float(np.exp(np.mean(logs))) for reading, logs in off.items()}
    best = min(factor, key=factor.__getitem__)
    return [
        Row(
            paper="",
            figure="table 4, gap",
            what="which reading of the gap fits central and avg_2",
            published="",
            ours=f"{best} fits best, off by a factor of {factor[best]:.2f}",
            deviation_in_se=None,
            verdict="ours alone",
            reason=", ".join(f"{r} {f:.2f}" for r, f in factor.items() if r != best),
            files=" ".join(files),
        )
    ]
