"""Figures 4 and 5: FKM without its parts, sites with few clusters; and the server's k-means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.algorithms import FKM, KFed
from reproduction.datasets import variable_k
from reproduction.fkm import published
from reproduction.fkm.drawing import draw_boxes, draw_sites, quartile_box
from reproduction.fkm.plane import ALLOWED, BETAS, every, median_cells, size_cells
from reproduction.fkm.runs import (
    OF_2023,
    OF_2024,
    Sample,
    Source,
    central,
    default,
    fkm,
    kfed,
)
from reproduction.pictures import (
    OURS,
    PUBLISHED,
    RECIPE,
    box_of,
    boxes,
    legend,
    panels,
    places,
    save,
)
from reproduction.results import Cell, Estimate, Row, Tolerance, write_table
from reproduction.runs import runs_of

SERVERS = {
    "as in 2023: seeds without weights, ten restarts": OF_2023,
    "seeds without weights, one restart": replace(OF_2023, server_n_init=1),
    "seeds by weight, ten restarts": FKM.paper(16),
    "seeds by weight, one restart": replace(OF_2023, server_seeding="weighted", server_n_init=1),
    "as in 2024: the last, and a local iteration before the first message": OF_2024,
}
VARIABLE: Source = ("variable",)


def server_settings(folder: Path, quick: bool) -> list[Row]:
    """The papers do not say how the server's k-means starts: which way has the 2023 numbers?"""
    data: dict[Source, published.Numbers] = {
        ("plane", "0.1", "50", "1"): published.CURVES["0.1", "1"],
        ("plane", "0.1", "50", "1.5"): published.CURVES["0.1", "1.5"],
        VARIABLE: published.CURVES["variable", "1"],
    }
    asked = list(product(SERVERS, data))
    runs = 6 if quick else 100
    found = runs_of(fkm, [(SERVERS[server], source, (100,)) for server, source in asked], runs)
    cells: dict[str, list[Cell]] = {server: [] for server in SERVERS}
    for (server, source), sample in zip(asked, found, strict=True):
        of = {"server": server, "data": " ".join(source)}
        theirs = published.mean(data[source], "100")
        cells[server].append(Cell(of, Estimate.mean(sample[:, 0]), theirs, ALLOWED))
    fits = min(cells, key=lambda server: np.mean([misfit(cell) for cell in cells[server]]))
    tried = "; ".join(f"{s}: {sum(bool(c.within) for c in cells[s])} of 3 within" for s in cells)
    return [
        Row.of(
            "server k-means",
            f"mean ARI_w of FKM; fits best: {fits}",
            cells[fits],
            reason=f"left open by the papers; tried: {tried}",
            files=write_table(folder, "server_settings", "Mean ARI_w by server", every(cells)),
        )
    ]


def misfit(cell: Cell) -> float:
    return abs(cell.ours.value - cell.published.value) if cell.published else 0.0


# Figure 4

RETAIN: dict[str, Any] = {"empty_clusters": "relocate"}
RANDOM: dict[str, Any] = {"client_init": "random", "client_n_init": 10}
HUNDRED: dict[str, Any] = {"local_iterations": 100, "init_iterations": 100}
UNWEIGHTED: dict[str, Any] = {"weighted": False}
VARIANTS: Mapping[str, FKM] = {
    "paper": OF_2024,
    "retain-empty": replace(OF_2024, **RETAIN),
    "random-init": replace(OF_2024, **RANDOM),
    "100-iterations": replace(OF_2024, **HUNDRED),
    "unweighted": replace(OF_2024, **UNWEIGHTED),
    "all-but-iterations": replace(OF_2024, **RETAIN, **RANDOM, **UNWEIGHTED),
    "all-four": replace(OF_2024, **RETAIN, **RANDOM, **UNWEIGHTED, **HUNDRED),
}


def ablation(folder: Path, quick: bool) -> list[Row]:
    """4: FKM of 2024 without one of its parts, and without all of them."""
    asked = list(product(BETAS, VARIANTS))
    sources = [("plane", beta, "50", "1") for beta in BETAS]
    runs = 6 if quick else published.RUNS
    settings = [(VARIANTS[v], ("plane", beta, "50", "1"), (100,)) for beta, v in asked]
    found = {
        key: sample[:, 0] for key, sample in zip(asked, runs_of(fkm, settings, runs), strict=True)
    }
    recipe = runs_of(default, sources, max(runs // 4, 4))
    by_beta = {
        beta: [ablation_cell(beta, v, found[beta, v], ours) for v in VARIANTS]
        for beta, ours in zip(BETAS, recipe, strict=True)
    }
    files = [draw_ablation(folder, found, recipe)]
    files += write_table(folder, "figure_4", "Mean ARI_w of FKM's variants", every(by_beta))
    pairs = [clear_pairs(cells) for cells in by_beta.values()]
    wrong = [f"{a} and {b}" for some in pairs for a, b, kept in some if not kept]
    reason = f"{sum(map(len, pairs))} pairs of variants differ clearly in the paper; "
    reason += f"other order in ours: {', '.join(wrong)}" if wrong else "all have its order in ours"
    return [
        Row.of(
            "figure 4",
            "mean ARI_w of FKM without one part, and without all, in the program of 2024",
            every(by_beta),
            shape=not wrong,
            reason=reason,
            files=files,
        )
    ]


def ablation_cell(beta: str, variant: str, sample: Sample, recipe: Sample) -> Cell:
    theirs = published.mean(published.ABLATION[variant, beta])
    of = {"beta": beta, "variant": variant}
    allowed = Tolerance(errors=3, absolute=0.005)
    return Cell(of, Estimate.mean(sample), theirs, allowed, Estimate.mean(recipe))


def clear_pairs(cells: Sequence[Cell]) -> list[tuple[str, str, bool]]:
    """Pairs of variants further apart in the paper than the tolerance, and if ours keep order."""
    found = []
    for one, other in combinations(cells, 2):
        a, b = one.published, other.published
        if a and b and abs(a.value - b.value) > 3 * np.hypot(a.error, b.error) + 0.005:
            kept = (one.ours.value < other.ours.value) == (a.value < b.value)
            found.append((one.of["variant"], other.of["variant"], kept))
    return found


def draw_ablation(
    folder: Path, found: Mapping[tuple[str, str], Sample], recipe: Sequence[Sample]
) -> str:
    figure, [axes] = panels(3, width=5.5)
    for ax, beta, ours in zip(axes, BETAS, recipe, strict=True):
        theirs = [quartile_box(published.ABLATION[variant, beta]) for variant in VARIANTS]
        drawn = {
            "published": (PUBLISHED, [*theirs, None]),
            "ours": (OURS, [*(box_of(found[beta, v]) for v in VARIANTS), None]),
            "our default": (RECIPE, [None] * len(VARIANTS) + [box_of(ours)]),
        }
        boxes(ax, drawn)
        places(ax, [v.replace("-", "\n", 1) for v in (*VARIANTS, "our-default")])
        ax.tick_params(axis="x", labelsize=5)
        ax.set(title=f"beta {beta}", ylabel="ARI_w")
    legend(figure, axes[0])
    return save(figure, folder, "figure_4")


# Figure 5


def few_clusters(folder: Path, quick: bool) -> list[Row]:
    """5a: sites that hold 16, 1, 3, 10 and 7 clusters; 5b: the scores."""
    runs = 8 if quick else published.RUNS
    [curve] = runs_of(fkm, [(OF_2023, VARIABLE, published.ROUNDS)], runs)
    [pooled] = runs_of(central, [(VARIABLE, ())], runs)
    ours = {
        "FKM": [curve[:, -1]],
        "kFed": runs_of(kfed, [(KFed(16, 14), VARIABLE)], runs),
        "central": [pooled[:, 0]],
    }
    recipe = runs_of(default, [VARIABLE], runs)
    medians = {method: median_cells("5b", ["variable"], method, ours[method]) for method in ours}
    numbers = published.CURVES["variable", "1"]
    by_round = [
        Cell(
            {"data": "variable", "method": "FKM, mean", "round": str(r)},
            Estimate.mean(scores),
            published.mean(numbers, str(r)),
            ALLOWED,
            Estimate.mean(recipe[0]),
        )
        for r, scores in zip(published.ROUNDS, curve.T, strict=True)
    ]
    clients = size_cells(variable_k(), "variable")
    picture, [[ax]] = panels(width=5)
    draw_sites(ax, variable_k())
    ax.set_title("sites that hold 16, 1, 3, 10 and 7 clusters")
    legend(picture, ax)
    title = "Median ARI; then the mean ARI_w of FKM by round (figure 5b)"
    files = [draw_boxes(folder, "figure_5b", ["variable"], ours, recipe)]
    files += write_table(folder, "figure_5b", title, [*every(medians), *by_round])
    return [
        Row.of(
            "figure 5a", "rows of each client", clients, files=[save(picture, folder, "figure_5a")]
        ),
        Row.of(
            "figure 5b",
            "median ARI, and mean ARI_w of FKM by round",
            [*every(medians), *by_round],
            required=0.95,
            reason=f"our default recipe: {recipe[0].mean():.4f}",
            files=files,
        ),
    ]
