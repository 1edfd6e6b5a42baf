"""The papers' box plots: each method's published box beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

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


def draw_plane(
    folder: Path, name: str, found: Found, noises: Sequence[str], sizes: Sequence[str]
) -> str:
    """Boxes by noise, a panel for each beta and number of rows."""
    betas = list(dict.fromkeys(beta for _, beta, *_ in found["FKM"]))
    figure, axes = panels(len(betas), len(sizes), width=6)
    for (line, per_cluster), (column, beta) in product(enumerate(sizes), enumerate(betas)):
        at = [("plane", beta, per_cluster, noise) for noise in noises]
        drawn: dict[str, tuple[str, list[Box | None]]] = {}
        for method in ("FKM", "kFed", "central"):
            if per_cluster == "50":
                names = [(method, "any" if method == "central" else beta, n) for n in noises]
                theirs = [quartile_box(published.PLANE[name]) for name in names]
                drawn[f"{NAMES[method]}, published"] = (COLOURS[method][1], theirs)
            drawn[NAMES[method]] = (COLOURS[method][0], [box_of(found[method][s]) for s in at])
        drawn["our default"] = (RECIPE, [box_of(found["default"][s]) for s in at])
        boxes(axes[line, column], drawn)
        places(axes[line, column], noises, "noise")
        axes[line, column].set_title(f"beta {beta}, {per_cluster} rows a cluster")
    legend(figure, axes[0, 0])
    return save(figure, folder, name)


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
    picture, [[ax]] = panels(width=9)
    boxes(ax, drawn)
    places(ax, data)
    legend(picture, ax)
    return save(picture, folder, figure)


def published_boxes(figure: str, data: Sequence[str], method: str) -> list[published.Numbers]:
    """Of each data set; a box that holds for all of them is there once."""
    keys = [(figure, name, method) for name in data]
    return [published.BOXES.get(key) or published.BOXES[figure, "any", method] for key in keys]
