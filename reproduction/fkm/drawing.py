"""The papers' box plots: each method's published box beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from reproduction.datasets import SplitRows
from reproduction.fkm import published
from reproduction.fkm.runs import Sample, Source
from reproduction.pictures import (
    OURS,
    POOLED,
    PUBLISHED,
    RECIPE,
    RIVAL,
    RIVAL_PUBLISHED,
    Box,
    box_of,
    boxes,
    legend,
    panels,
    places,
    published_box,
    save,
)

NAMES = {"FKM": "FKM", "informed": "k-FED, best K_l", "kFed": "k-FED", "central": "pooled"}
COLOURS = {
    "FKM": (OURS, PUBLISHED),
    "informed": ("#e69f00", "#eadbb5"),
    "kFed": (RIVAL, RIVAL_PUBLISHED),
    "central": (POOLED, "#b9d8cf"),
}
"""Of ours and of the published."""

Found = Mapping[str, Mapping[Source, Sample]]
"""The scores of a method's runs on each data set."""


def quartile_box(numbers: published.Numbers) -> Box:
    return published_box(numbers["median"], numbers["q25"], numbers["q75"])


def draw_sites(ax: Axes, rows: SplitRows) -> None:
    """A mark for each client."""
    for (name, (X, _)), (colour, marker) in zip(rows.sites.items(), SITES, strict=False):
        ax.plot(*X.T, marker, color=colour, ms=2, mew=0.5, alpha=0.8, label=name)
    on_plane(ax)


SITES = [(OURS, "o"), (RECIPE, "^"), (POOLED, "s"), (RIVAL, "D"), ("black", "x")]


def on_plane(ax: Axes) -> None:
    ax.set(aspect="equal", xlabel="$x_1$", ylabel="$x_2$")


def draw_plane(
    folder: Path, name: str, found: Found, noises: Sequence[str], sizes: Sequence[str]
) -> str:
    """Boxes by noise, a panel for each beta and number of rows; below it, without k-FED, what is
    left after the published median of pooled k-means.
    """
    betas = list(dict.fromkeys(beta for _, beta, *_ in found["FKM"]))
    figure, axes = panels(len(betas), 2 * len(sizes), width=4.8, height=2.6)
    for (line, per_cluster), (column, beta) in product(enumerate(sizes), enumerate(betas)):
        above, below = axes[2 * line, column], axes[2 * line + 1, column]
        drawn = plane_boxes(found, beta, per_cluster, noises)
        pooled = [published.on_plane("central", beta, per_cluster, n)["median"] for n in noises]
        boxes(above, drawn)
        boxes(below, {label: less(drawn[label], pooled) for label in drawn if "k-FED" not in label})
        above.set(title=f"beta {beta}, {per_cluster} rows a cluster", ylabel="ARI")
        below.set_ylabel("ARI less pooled's")
        for ax in (above, below):
            places(ax, noises, "noise")
    legend(figure, axes[0, 0])
    return save(figure, folder, name)


Drawn = tuple[str, list[Box | None]]
"""A colour, and a box for each place."""


def plane_boxes(
    found: Found, beta: str, per_cluster: str, noises: Sequence[str]
) -> dict[str, Drawn]:
    """The published boxes and ours, by label."""
    at = [("plane", beta, per_cluster, noise) for noise in noises]
    drawn: dict[str, Drawn] = {}
    for method in ("FKM", "kFed", "central"):
        theirs = [quartile_box(published.on_plane(method, beta, per_cluster, n)) for n in noises]
        drawn[f"{NAMES[method]}, published"] = (COLOURS[method][1], list(theirs))
        drawn[NAMES[method]] = (COLOURS[method][0], [box_of(found[method][s]) for s in at])
    drawn["our default"] = (RECIPE, [box_of(found["default"][s]) for s in at])
    return drawn


def less(drawn: Drawn, base: Sequence[float]) -> Drawn:
    """Boxes moved down by a number at each place."""
    colour, given = drawn
    moved = [
        box and {part: value - down for part, value in box.items()}
        for box, down in zip(given, base, strict=True)
    ]
    return colour, moved


def draw_curves(folder: Path, curves: Mapping[Source, Sample], noises: Sequence[str]) -> str:
    """FKM after each round: means and deviations; to round 50, as the paper shows."""
    betas = list(dict.fromkeys(beta for _, beta, *_ in curves))
    shown = [i for i, number in enumerate(published.ROUNDS) if number <= 50]
    rounds = np.array(published.ROUNDS)[shown]
    figure, [axes] = panels(len(betas))
    for (ax, beta), (i, noise) in product(zip(axes, betas, strict=True), enumerate(noises)):
        curve, numbers = curves["plane", beta, "50", noise][:, shown], published.CURVES[beta, noise]
        theirs = [published.mean(numbers, str(r)) for r in rounds]
        middle, spread = curve.mean(axis=0), curve.std(axis=0)
        ax.fill_between(
            rounds, middle - spread, np.minimum(middle + spread, 1), color=f"C{i}", alpha=0.15, lw=0
        )
        ax.plot(rounds, middle, color=f"C{i}", label=noise)
        label = "published" if i == len(noises) - 1 else ""
        ax.errorbar(
            rounds,
            [t.value for t in theirs],
            [t.spread for t in theirs],
            fmt="kx",
            ms=3,
            elinewidth=0.4,
            label=label,
        )
        ax.set(title=f"beta {beta}", xlabel="round", ylabel="ARI_w", xlim=(0, 51))
    legend(figure, axes[0], "noise (line and band: ours)")
    return save(figure, folder, "figure_3_curves")


def draw_boxes(
    folder: Path,
    figure: str,
    data: Sequence[str],
    ours: Mapping[str, Sequence[Sample]],
    recipe: Sequence[Sample],
) -> str:
    """Each method's published box beside ours; at the end our default recipe."""
    drawn: dict[str, tuple[str, list[Box | None]]] = {}
    for method, samples in ours.items():
        theirs = published_boxes(figure.removeprefix("figure_"), data, method)
        published_colour, colour = COLOURS[method][1], COLOURS[method][0]
        drawn[f"{NAMES[method]}, published"] = (published_colour, [quartile_box(n) for n in theirs])
        drawn[NAMES[method]] = (colour, [box_of(sample) for sample in samples])
    drawn["our default"] = (RECIPE, [box_of(sample) for sample in recipe])
    picture, [[ax]] = panels(width=7)
    boxes(ax, drawn)
    places(ax, data, "beta" if len(data) > 1 else "")
    ax.set_ylabel("ARI")
    legend(picture, ax)
    return save(picture, folder, figure)


def published_boxes(figure: str, data: Sequence[str], method: str) -> list[published.Numbers]:
    """Of each data set; a box that holds for all of them is there once."""
    keys = [(figure, name, method) for name in data]
    return [published.BOXES.get(key) or published.BOXES[figure, "any", method] for key in keys]
