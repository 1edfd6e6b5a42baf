"""Cluster handwritten digits at five sites that each saw only some of them: ``make demo``.

    python examples/digits.py [FOLDER]

Compares the common clusters with those of k-means on the pooled rows and of each site alone, and
writes the model and ``centers.png`` into the folder, by default ``demo``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from fedcluster import FederatedKMeans
from fedcluster_app.datasets import digits_by_site

COLOURS = ("#3b6fb6", "#e0853a", "#4a9d6f", "#b4528c", "#8a7cc8")


def main(folder: Path) -> None:
    sites = digits_by_site()
    images = {name: site.X for name, site in sites.items()}
    seen = {name: np.unique(np.asarray(site.y)).tolist() for name, site in sites.items()}
    model = FederatedKMeans(10, random_state=0).fit(images)
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "model.json")
    draw(folder / "centers.png", model, seen)

    X = np.concatenate([*images.values()])
    y = np.concatenate([np.asarray(site.y) for site in sites.values()])
    pooled = KMeans(10, n_init=10, random_state=0).fit(X)
    found = {"fedcluster, no row moved": model, "k-means on pooled rows": pooled}
    for name, own in images.items():
        found[f"{name} alone"] = KMeans(10, n_init=10, random_state=0).fit(own)
    print("who                       of pooled    ARI")
    for name, each in found.items():
        ratio = inertia(X, each.cluster_centers_) / inertia(X, pooled.cluster_centers_)
        print(f"{name:25} {ratio:9.3f}  {adjusted_rand_score(y, each.predict(X)):5.3f}")
    print(
        "Of pooled: the inertia over all images, divided by that of k-means on all of them in one "
        "place. ARI: how far the clusters are the digits that were meant; 1 is wholly.\n"
        f"Wrote {folder}/model.json and {folder}/centers.png."
    )


def inertia(X: NDArray[np.float64], centers: NDArray[np.float64]) -> float:
    """Return the sum of squared distances of rows (n, d) to their nearest centres (k, d)."""
    return float(((X[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum())


def draw(path: Path, model: FederatedKMeans, seen: dict[str, list[int]]) -> None:
    """Draw each centre as an image, with a bar of the sites that have rows of its cluster."""
    figure = Figure(figsize=(9.25, 6), dpi=160)
    counts = [np.bincount(labels, minlength=10) for labels in model.site_labels_.values()]
    for j, center in enumerate(model.cluster_centers_):
        axes = figure.add_subplot(2, 5, j + 1)
        rows = sum(n[j] for n in counts)
        axes.imshow(np.pad(center.reshape(8, 8), 1), cmap="Greys", interpolation="bicubic")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#d8dce2")
        axes.set_title(f"cluster {j}", loc="left", fontsize=9)
        axes.set_title(f"{rows} rows", loc="right", fontsize=8, color="grey")
        bar = axes.inset_axes((0, -0.1, 1, 0.05), xlim=(0, rows))
        bar.axis("off")
        start = 0
        for colour, n in zip(COLOURS, counts, strict=True):
            bar.barh(0, n[j], left=start, color=colour)
            start += n[j]
    figure.subplots_adjust(left=0.03, right=0.97, top=0.84, bottom=0.13, hspace=0.15)
    title = "Ten kinds of handwritten digits, found by five sites that kept their images"
    figure.suptitle(title, x=0.03, ha="left", weight="bold")
    about = "The centres of the clusters. Bars: at which sites the images of a cluster lie."
    figure.text(0.03, 0.9, about, fontsize=9, color="grey")
    for i, (colour, name) in enumerate(zip(COLOURS, seen, strict=True)):
        words = f"{name}: saw {', '.join(map(str, seen[name]))}"
        left = figure.axes[i].get_position().x0
        figure.text(left, 0.04, words, color=colour, fontsize=8)
    figure.savefig(path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
