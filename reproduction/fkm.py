"""FKM (Garst & Reinders, ICPR 2024; arXiv 2310.01195): figures 1 to 9 of the ICPR paper.

The arXiv paper numbers the same figures 1 to 3, 4 (ICPR 5), 5 (6), 6 (8) and 7 (9).
"""

from __future__ import annotations

from pathlib import Path

from fedcluster.datasets import plane16
from reproduction import pictures
from reproduction.results import EXACT, Cell, Estimate, Row, reproduce, write_table

BETAS = (0.1, 1.0, 10.0)
SIZES = {
    0.1: (185, 144, 194, 74, 203),
    1.0: (174, 146, 187, 102, 191),
    10.0: (200, 162, 140, 158, 140),
}
"""Rows of each client, from the published files."""


def figure_1_data(folder: Path, quick: bool) -> list[Row]:
    """1a: the rows; 1c to 1e: who holds them."""
    figure, [axes] = pictures.panels(4)
    axes[0].scatter(*plane16().X.T, s=4, c=plane16().y, cmap="tab20")
    axes[0].set_title("1a: sixteen clusters")
    cells = []
    for ax, beta in zip(axes[1:], BETAS, strict=True):
        sites = plane16(beta).sites
        for (name, (X, _)), published in zip(sites.items(), SIZES[beta], strict=True):
            ax.scatter(*X.T, s=4, label=name)
            cells.append(
                Cell({"beta": beta, "site": name}, Estimate(len(X)), Estimate(published), EXACT)
            )
        ax.set_title(f"clients at beta {beta:g}")
    files = [pictures.save(figure, folder, "figure_1_data")]
    files += write_table(folder, "figure_1_data", "Rows of each client (figures 1c to 1e)", cells)
    return [Row.of("1a, 1c-e", "rows of each client", cells, files=files)]


def main(quick: bool) -> None:
    reproduce("fkm", [figure_1_data], quick)
