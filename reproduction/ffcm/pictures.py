"""Figures 1 to 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from reproduction.baselines import central_fuzzy_cmeans
from reproduction.datasets import ffcm_case
from reproduction.ffcm.cases import case_runs, true_centers
from reproduction.ffcm.methods import Array, clustered
from reproduction.pictures import OURS, POOLED, RECIPE, panels, save
from reproduction.results import (
    Cell,
    Estimate,
    Row,
    Tolerance,
    write_table,
)


def figure_1(folder: Path, quick: bool) -> list[Row]:
    """A cluster hidden from two sites: each finds two by itself, the pooled rows show three."""
    true = true_centers("2")
    seen = []
    for seed in range(3 if quick else 20):
        rows = ffcm_case("2", seed)
        tables = [X for X, _ in rows.sites.values()] + [rows.X]
        fits = [central_fuzzy_cmeans(X, 3, 1.1, seed=seed).centers for X in tables]
        seen.append([len(np.unique(cdist(f, true).argmin(axis=1))) for f in fits])
        if seed == 0:
            _draw_figure_1(folder, tables, fits)
    found = np.median(seen, axis=0)
    of = ["site 1", "site 2", "pooled"]
    return [
        Row.of(
            "figure 1",
            "clusters found, each site alone and pooled (case 2, m = 1.1)",
            [
                Cell({"rows": name}, Estimate(float(ours)), Estimate(theirs), Tolerance(0))
                for name, ours, theirs in zip(of, found, (2.0, 2.0, 3.0), strict=True)
            ],
            reason="a true cluster counts as found if it is the nearest to some centre; median of "
            f"{len(seen)} draws",
            files=["figure_1.svg"],
        )
    ]


def _draw_figure_1(folder: Path, tables: list[Array], fits: list[Array]) -> None:
    figure, axes = panels(3)
    for ax, X, centers, name in zip(
        axes[0], tables, fits, ("site 1", "site 2", "pooled"), strict=True
    ):
        scatter(ax, X, {"fuzzy c-means": (centers, OURS, "x")}, true_centers("2"), name)
    axes[0, 0].legend(fontsize=8)
    save(figure, folder, "figure_1")


def scatter(
    ax: Any, X: Array, marks: dict[str, tuple[Array, str, str]], true: Array, title: str
) -> None:
    ax.plot(*X.T, ".", ms=1, color="#cccccc")
    ax.plot(*true.T, "o", mfc="none", mec="black", ms=9, label="true")
    for label, (centers, colour, mark) in marks.items():
        ax.plot(*centers.T, mark, color=colour, ms=8, mew=2, label=label)
    ax.set_title(title, fontsize=9)
    ax.set_aspect("equal")


PUBLISHED_CENTERS = {
    "avg_1": [(-2.01, -1.98), (-0.01, -0.13), (1.34, 1.49)],
    "avg_2": [(-1.98, -1.97), (0.0, -0.01), (2.0, 2.0)],
}


def figure_2(folder: Path, quick: bool) -> list[Row]:
    """Case 1: avg_1 draws the lost cluster's centre inwards, avg_2 does not."""
    found, rows = case_runs(quick), ffcm_case("1b", 0)
    figure, axes = panels(2)
    cells = []
    for ax, (method, theirs) in zip(axes[0], PUBLISHED_CENTERS.items(), strict=True):
        runs = found["1b", method][:, 3:]
        ours = runs.mean(axis=0).reshape(3, 2)
        marks = {
            "paper": (np.array(theirs), RECIPE, "+"),
            "ours": (ours, OURS, "x"),
        }
        scatter(ax, rows.X, marks, true_centers("1b"), method)
        cells += [
            Cell(
                {"method": method, "centre": j + 1, "coordinate": "xy"[i]},
                Estimate.mean(runs[:, 2 * j + i]),
                Estimate(theirs[j][i], float(runs[:, 2 * j + i].std()), 10),
                Tolerance(errors=3, absolute=0.05),
            )
            for j in range(3)
            for i in range(2)
        ]
    axes[0, 0].legend(fontsize=8)
    files = [save(figure, folder, "figure_2")]
    files += write_table(
        folder,
        "figure_2",
        "Centres of figure 2 and table 2 (the paper gives no deviations; ours stand for them)",
        cells,
    )
    far = np.linalg.norm(found["1b", "avg_1"][:, 7:9].mean(axis=0) - 2)
    near = np.linalg.norm(found["1b", "avg_2"][:, 7:9].mean(axis=0) - 2)
    return [
        Row.of(
            "figure 2",
            "centres of case 1, mean of the runs",
            cells,
            shape=bool(near < far / 4),
            files=files,
        )
    ]


def figure_3(folder: Path, quick: bool) -> list[Row]:
    """Case 3, the first of its sizes: who holds what, and what the methods find."""
    rows, found = ffcm_case("3a", 0), case_runs(quick)
    figure, axes = panels(3)
    colours = (OURS, RECIPE, POOLED)
    for (name, (X, _)), colour in zip(rows.sites.items(), colours, strict=True):
        axes[0, 0].plot(*X.T, ".", ms=2, color=colour, label=name)
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].set_title("sites", fontsize=9)
    for ax, method in zip(axes[0, 1:], ("avg_1", "avg_2"), strict=True):
        centers = clustered(method, rows.X, rows.site, 4, 2.0, 0)
        scatter(ax, rows.X, {"one run": (centers, OURS, "x")}, true_centers("3a"), method)
        ax.legend(fontsize=8)
    lost = {m: float(found["3a", m][:, 2].mean()) for m in ("avg_1", "avg_2")}
    return [
        Row.of(
            "figure 3",
            "case 3: avg_2 finds the four clusters, avg_1 does not; gap of avg_1, avg_2",
            [Cell({"method": m}, Estimate.mean(found["3a", m][:, 2])) for m in lost],
            shape=lost["avg_2"] < lost["avg_1"] / 2,
            files=[save(figure, folder, "figure_3")],
        )
    ]
