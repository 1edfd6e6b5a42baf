"""Figures 6, 7 and 9: handwritten characters by writer, and cells of four cancers by hospital.

Scores need no labels. The silhouette is that of the pooled rows. The simplified silhouette takes
distances to centres: central k-means' own, and the pooled means of the federated clusters, to
which FKM assigns the rows anew while k-FED's keep their labels.

FEMNIST's ten writers are read from ../shared/reference, or from LEAF's files in
reproduction/data/femnist. The cells are not published: where reproduction/data/four_cancers.h5ad
is missing, made-up rows stand in for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from fedcluster import FederatedKMeans, MinClusterSize, State, nearest, run
from fedcluster.algorithms import FKM, KFed
from fedcluster.core import Floats, Labels
from fedcluster.metrics.silhouettes import silhouettes
from fedcluster.recipes import evaluation
from fedcluster.rounds import run_plan
from reproduction.baselines import central_kmeans
from reproduction.datasets import SplitRows
from reproduction.fkm import published
from reproduction.fkm.drawing import quartile_box
from reproduction.fkm.plane import size_cells
from reproduction.fkm.runs import Sample, engine
from reproduction.indices import pooled_silhouette
from reproduction.pictures import (
    OURS,
    PUBLISHED,
    RECIPE,
    Box,
    box_of,
    boxes,
    legend,
    panels,
    places,
    save,
)
from reproduction.real_datasets import four_cancers, leaf_femnist, like_four_cancers
from reproduction.results import HERE, REFERENCE, Cell, Estimate, Row, Tolerance, write_table
from reproduction.runs import runs_of

PIXELS = REFERENCE / "femnist_10clients.npz"
LEAF = HERE / "data" / "femnist"
CELLS = HERE / "data" / "four_cancers.h5ad"

Method = FKM | KFed | int | str
"""A federated algorithm, the restarts of pooled k-means, or our default."""

FEMNIST: dict[str, Method] = {
    "FKM as in 2023": FKM.program_2023(60),
    "FKM as in 2024": FKM.program_2024(60),
    "kFed": KFed(60),
    "informed": KFed(60, 21),
    "central": 10,
    "default": "auto",
}
CANCERS: dict[str, Method] = {
    "FKM": FKM.program_2024(4),
    "kFed": KFed(4),
    "central": 1,
    "default": "auto",
}
Setting = tuple[str, int, Method]
"""Data set, k, method."""


@cache
def rows_of(data: str) -> SplitRows:
    if data == "femnist" and PIXELS.exists():
        with np.load(PIXELS) as file:
            X, writer = file["pixels_u8"] / 255.0, file["client"]
        return SplitRows(X, np.zeros(len(X), np.intp), np.array([f"client-{i}" for i in writer]))
    if data == "femnist":
        return leaf_femnist(LEAF)
    split: Literal["iid", "non-iid"] = "iid" if data == "iid" else "non-iid"
    return four_cancers(CELLS, split) if CELLS.exists() else like_four_cancers(split)


def scores(setting: Setting, seed: int) -> tuple[float, float]:
    """Silhouette and simplified silhouette of one run."""
    data, k, method = setting
    rows = rows_of(data)
    centers = centers_of(rows, k, method, seed)
    labels = nearest(rows.X, centers)[0]
    if isinstance(method, KFed):
        return pooled_silhouette(rows.X, labels), of_kept_labels(rows.X, labels)
    indices = run_plan(evaluation(State.at(centers)), engine(rows)).value
    name = "simplified-silhouette" + ("" if isinstance(method, int) else "-of-means")
    return pooled_silhouette(rows.X, labels), indices[name]


def of_kept_labels(X: Floats, labels: Labels) -> float:
    """The papers' simplified silhouette of k-FED: at the means, but with the labels from before."""
    used = np.unique(labels)
    distances = cdist(X, np.stack([X[labels == j].mean(axis=0) for j in used]))
    mine = np.arange(len(X)), np.searchsorted(used, labels)
    own = distances[mine]
    distances[mine] = np.inf
    return float(silhouettes(own, distances.min(axis=1)).mean())


def centers_of(rows: SplitRows, k: int, method: Method, seed: int) -> Floats:
    if isinstance(method, int):
        return central_kmeans(rows.X, k, n_init=method, seed=seed).centers
    if isinstance(method, str):
        return FederatedKMeans(k, random_state=seed).fit(rows.X, sites=rows.site).cluster_centers_
    limits = [MinClusterSize(2)] if isinstance(method, FKM) else []
    return run(method, engine(rows, *limits), seed=seed, max_rounds=100).state.centers


def femnist(folder: Path, quick: bool) -> list[Row]:
    """6a and 6b: the silhouettes; 9: the rows of each writer."""
    figures = {"6a": "silhouette", "6b": "simplified silhouette"}
    if not PIXELS.exists() and not LEAF.exists():
        why = "the images are not at hand: put LEAF's files into reproduction/data/femnist"
        missing = {**figures, "9": "images of each writer"}
        return [Row.left_out(f"figure {figure}", what, why) for figure, what in missing.items()]
    runs = {"FKM as in 2023": 16, "FKM as in 2024": 40, "default": 16}
    found = {
        name: runs_of(scores, [("femnist", 60, method)], 1 if quick else runs.get(name, 60))[0]
        for name, method in FEMNIST.items()
    }
    rows = []
    for i, (figure, what) in enumerate(figures.items()):
        samples = {name: sample[:, i] for name, sample in found.items()}
        rows += silhouette_rows(folder, figure, what, samples)
    sizes = size_cells(rows_of("femnist"), "femnist")
    return [*rows, Row.of("figure 9", "images of each writer", sizes, files=[draw_sizes(folder)])]


def silhouette_rows(
    folder: Path, figure: str, what: str, samples: Mapping[str, Sample]
) -> list[Row]:
    """The figure with the server of 2023, which its authors had, and with that of 2024."""
    cells, recipe = {}, Estimate.median(samples["default"])
    for name, sample in samples.items():
        method = "FKM" if name.startswith("FKM") else name
        if method != "default":
            theirs = published.median(published.BOXES[figure, "femnist", method])
            of, allowed = {"method": name}, Tolerance(0, absolute=0.006)
            cells[name] = Cell(of, Estimate.median(sample), theirs, allowed, recipe)
    newer = cells["FKM as in 2024"]
    older = [cell for name, cell in cells.items() if name != "FKM as in 2024"]
    name = f"figure_{figure}"
    files = [draw_silhouettes(folder, name, samples, what)]
    files += write_table(folder, name, f"Median {what} on FEMNIST", list(cells.values()))
    runs = ", ".join(f"{name} {len(sample)}" for name, sample in samples.items())
    closer = min(("2023", "2024"), key=lambda year: off(cells[f"FKM as in {year}"]))
    return [
        Row.of(
            f"figure {figure}",
            f"median {what} of FKM as in 2023, k-FED, best K_l = 21, pooled",
            older,
            reason=f"runs: {runs}; our default: {recipe}",
            files=files,
        ),
        Row.of(
            f"figure {figure}, server of 2024",
            f"median {what} of FKM as in 2024",
            [newer],
            reason=f"tried since the papers leave the server open; closer: as in {closer}",
        ),
    ]


def off(cell: Cell) -> float:
    return abs(cell.ours.value - cell.published.value) if cell.published else np.inf


def draw_silhouettes(folder: Path, name: str, samples: Mapping[str, Sample], what: str) -> str:
    figure, [[ax]] = panels(width=7)
    theirs: list[Box | None] = []
    for method in samples:
        key = name.removeprefix("figure_"), "femnist", method.split()[0]
        theirs.append(quartile_box(published.BOXES[key]) if key in published.BOXES else None)
    ours: list[Box | None] = [box_of(sample) for sample in samples.values()]
    drawn = {
        "published": (PUBLISHED, theirs),
        "ours": (OURS, [*ours[:-1], None]),
        "our default": (RECIPE, [*[None] * (len(ours) - 1), ours[-1]]),
    }
    boxes(ax, drawn)
    places(ax, [method.replace(" as", "\nas") for method in samples])
    ax.set_ylabel(what)
    legend(figure, ax)
    return save(figure, folder, name)


def draw_sizes(folder: Path) -> str:
    sizes = [len(X) for X, _ in rows_of("femnist").sites.values()]
    figure, [[ax]] = panels()
    ax.bar(range(len(sizes)), sizes, color=OURS, label="ours", alpha=0.6)
    ax.plot(published.SITES["femnist"], "k_", ms=14, label="published")
    ax.set(xlabel="writer", ylabel="images")
    ax.set_xticks(range(len(sizes)))
    legend(figure, ax)
    return save(figure, folder, "figure_9")


# Figure 7


def cancers(folder: Path, quick: bool) -> list[Row]:
    """7a and 7b: each hospital has all cancers; 7c and 7d: mainly one or two."""
    runs = 4 if quick else published.RUNS if CELLS.exists() else 40
    rows = []
    for split, letters in {"iid": ("7a", "7b"), "non-iid": ("7c", "7d")}.items():
        found = runs_of(scores, [(split, 4, method) for method in CANCERS.values()], runs)
        samples = dict(zip(CANCERS, found, strict=True))
        for i, (figure, what) in enumerate(zip(letters, ("", "simplified "), strict=True)):
            of = {name: sample[:, i] for name, sample in samples.items()}
            rows.append(cancer_row(folder, figure, split, f"{what}silhouette", of))
    return rows


def cancer_row(
    folder: Path, figure: str, split: str, what: str, samples: Mapping[str, Sample]
) -> Row:
    """Compared with the paper where the paper's cells are at hand, and alone on the stand-in."""
    cells = []
    for name in ("FKM", "kFed", "central"):
        theirs = published.mean(published.CANCERS[figure, split, name])
        cell = Cell({"data": split, "method": name}, Estimate.mean(samples[name]))
        cell = replace(cell, recipe=Estimate.mean(samples["default"]))
        cells.append(replace(cell, published=theirs) if CELLS.exists() else cell)
    means = [published.CANCERS[figure, split, name]["mean"] for name in ("FKM", "kFed", "central")]
    title = f"Mean {what}, four cancers, {split}"
    picture, [[ax]] = panels(width=5)
    boxes(ax, {"ours": (OURS, [box_of(sample) for sample in samples.values()])})
    places(ax, list(samples))
    ax.set_ylabel(what)
    ax.set_title(title + ("" if CELLS.exists() else " (made-up rows)"))
    files = [save(picture, folder, f"figure_{figure}")]
    files += write_table(folder, f"figure_{figure}", title, cells)
    return Row.of(
        f"figure {figure}",
        f"mean {what}, {split}",
        cells,
        reason=what_it_tells([cell.ours.value for cell in cells], means),
        files=files,
        stand_in=not CELLS.exists(),
    )


def what_it_tells(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Of FKM, k-FED and pooled: whether FKM is the closer one, where rows can tell at all."""
    apart, published_apart = (max(values) - min(values) for values in (ours, theirs))
    fkm, kfed, central = ours
    holds = "holds" if abs(fkm - central) < abs(kfed - central) else "does not hold"
    tells = f"that FKM is closer to pooled than k-FED {holds}"
    if apart < published_apart / 10:
        tells = (
            f"the methods are {apart:.4f} apart, in the paper {published_apart:.4f}: "
            "this panel cannot tell anything"
        )
    if CELLS.exists():
        return tells
    return f"the cells are not published: on made-up rows that stand in for them, {tells}"
