"""The papers' box plots: each method's published box beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from reproduction.fkm import published
from reproduction.fkm.runs import Sample
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


def quartile_box(numbers: published.Numbers) -> Box:
    return published_box(numbers["median"], numbers["q25"], numbers["q75"])


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
    picture, [[ax]] = panels(width=8)
    boxes(ax, drawn)
    places(ax, data)
    ax.legend(fontsize="x-small")
    return save(picture, folder, figure)


def published_boxes(figure: str, data: Sequence[str], method: str) -> list[published.Numbers]:
    """Of each data set; a box that holds for all of them is there once."""
    keys = [(figure, name, method) for name in data]
    return [published.BOXES.get(key) or published.BOXES[figure, "any", method] for key in keys]
