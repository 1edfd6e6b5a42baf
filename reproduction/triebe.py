"""S. Triebe & R. Rajagopal, Federated K-Means: clustering algorithm and proof of concept, 2019.

Fifty sites of ten rows each lie on a line, every site within one of five clusters (means 1 to 5,
deviation 0.2). In each of T = 200 rounds a fraction C of the sites takes E steps of k-means with
the rate beta. Two measures of the end, on the sites that were trained on and on fifty others: the
mean distance to the nearest centre, at best 0.160, and the Davies-Bouldin index, at best 0.32.

What the paper leaves open, and what fits its figures best is used here:

- alpha = (1, 0.5), the server's rate: `SERVER`, tried in `server_rates`.
- whether a cluster is small among all rows (the text) or those of the round (the program).
- Runs: the program takes 30, 10, 10, 3, 3 and 10 for C = 0.01, 0.03, 0.1, 0.3, 1 and central.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fedcluster import Client, Data, FederatedKMeans, LocalEngine, State, Task, nearest, run
from fedcluster.algorithms import FedAvg
from fedcluster.baselines import random_start_kmeans
from fedcluster.core import Algorithm
from fedcluster.datasets import SplitRows, triebe
from fedcluster.rounds import Plan, advance, drive
from reproduction.pictures import OURS, POOLED, PUBLISHED, RECIPE, panels, places, save
from reproduction.results import HERE, Cell, Estimate, Row, Tolerance, reproduce, write_table
from reproduction.runs import runs_of

K, ROUNDS = 5, 200
CENTRAL, DEFAULT = 0, -1
"""In the place of a number of sites: all rows pooled, and our default recipe."""

FITS = "0.5^((t - 1) / 50)"
SERVER: Mapping[str, Mapping[str, Any]] = {
    FITS: {"schedule": "halving"},
    FITS + ", small among all rows": {"schedule": "halving", "total_rows": 500.0},
    "1 / (1 + 0.5 (t - 1) / 10)": {"schedule": "inverse"},
    "t^-0.5": {"schedule": "root"},
    "0.5^((t - 1) / 20)": {"schedule": lambda t: 0.5 ** ((t - 1) / 20)},
    "from 1 to 0.5, linear": {"schedule": lambda t: 1 - 0.5 * (t - 1) / (ROUNDS - 1)},
    "1, momentum 0.5": {"schedule": "constant", "momentum": 0.5},
    "1": {"schedule": "constant"},
    "0.5": {"schedule": "constant", "server_rate": 0.5},
}
"""Readings of alpha = (1, 0.5); the second, of the rule on small clusters, too."""


class Setting(NamedTuple):
    """Sites a round (or `CENTRAL`, `DEFAULT`), epochs, the sites' rate, the server's."""

    sites: int
    epochs: int = 1
    beta: float = 1.0
    server: str = FITS


def federated(setting: Setting) -> FedAvg:
    return FedAvg(epochs=setting.epochs, client_rate=setting.beta, **SERVER[setting.server])


def engine(rows: SplitRows) -> LocalEngine:
    return LocalEngine(Client(name, Data(X)) for name, (X, _) in rows.sites.items())


def one_run(setting: Setting, seed: int) -> list[float]:
    """Both measures on the sites of the training, then on the others."""
    train, test = triebe(seed)
    if setting.sites == CENTRAL:
        centers = random_start_kmeans(train.X, K, rounds=ROUNDS, seed=seed)
    elif setting.sites == DEFAULT:
        centers = FederatedKMeans(K, random_state=seed).fit(train.X, sites=train.site)
        centers = centers.cluster_centers_
    else:
        fedavg = federated(setting)
        start, share = fedavg.random_start(K, 1, seed), setting.sites / 50
        done = run(fedavg, engine(train), start, seed=seed, max_rounds=ROUNDS, participation=share)
        centers = done.state.centers
    return [*measures(train.X, centers), *measures(test.X, centers)]


def measures(X: NDArray[np.float64], centers: NDArray[np.float64]) -> tuple[float, float]:
    """Mean distance to the nearest centre, and the program's Davies-Bouldin index: of distances,
    not squared, and over the clusters that have rows.
    """
    labels, squared = nearest(X, centers)
    distance, used = np.sqrt(squared), np.unique(labels)
    spread = np.array([distance[labels == j].mean() for j in used])
    apart = cdist(centers[used], centers[used]) + np.diag([np.inf] * len(used))
    worst = ((spread[:, None] + spread) / apart).max(axis=1)
    return float(distance.mean()), float(worst.mean())


COLUMNS = {
    ("euclidean", "train"): 0,
    ("davies_bouldin", "train"): 1,
    ("euclidean", "test"): 2,
    ("davies_bouldin", "test"): 3,
}

# The published points

PANELS = {
    "1": "Fig1 (E=1,beta=1.0)",
    "2a": "Fig2a (E=10,beta=1.0)",
    "2b": "Fig2b (E=10,beta=0.1)",
    "3a": "Fig3a (E=5,beta=1.0)",
    "3b": "Fig3b (E=5,beta=0.2)",
    "4a": "Fig4a (C=0.1,beta=1.0)",
    "4b": "Fig4b (C=0.1,beta=0.1)",
    "5a": "Fig5a (C=0.1,E=1)",
    "5b": "Fig5b (C=0.1,E=10)",
}
PUBLISHED_RUNS = {"0.01": 30, "0.03": 10, "0.1": 10, "0.3": 3, "1.0": 3, "central": 10}
RUNS = {CENTRAL: 40, DEFAULT: 40, 1: 40, 5: 40, 15: 40, 50: 10}
LETTERS = {"sample_fraction": "C", "epochs E": "E", "beta": "beta"}


@cache
def published() -> pd.DataFrame:
    """The digitised figures."""
    return pd.read_csv(HERE / "published" / "triebe.csv", dtype={"x": str})


def setting_of(point: Any, server: str = FITS) -> Setting:
    """The setting of a published point; one site a round is the least."""
    if point.x == "central":
        return Setting(CENTRAL)
    given = dict(part.split("=") for part in point.figure.split("(")[1].strip(")").split(","))
    given[LETTERS[point.x_name]] = point.x
    sites = max(int(float(given["C"]) * 50), 1)
    return Setting(sites, int(given["E"]), float(given["beta"]), server)


def points(panel: str) -> list[Any]:
    data = published()
    return list(data[data.figure == PANELS[panel]].itertuples())


Found = dict[Setting, NDArray[np.float64]]


def all_runs(settings: Iterable[Setting], runs: Mapping[int, int]) -> Found:
    """The runs of each setting, done once however many points show it."""
    found: Found = {}
    for n in sorted(set(runs.values())):
        asked = list(dict.fromkeys(s for s in settings if runs[s.sites] == n))
        found |= dict(zip(asked, runs_of(one_run, asked, n), strict=True))
    return found


def cells_of(panel: str, found: Found, server: str = FITS) -> list[Cell]:
    """A cell for each point, on the sites of the training and on the others."""
    return [
        cell(point, which, panel, found, server)
        for point in points(panel)
        for which in ("train", "test")
        if setting_of(point, server) in found
    ]


def cell(point: Any, which: str, panel: str, found: Found, server: str) -> Cell:
    column = COLUMNS[point.metric, which]
    mean, low, high = (getattr(point, f"{which}_{part}") for part in ("mean", "lo", "hi"))
    band = max(high - mean, mean - low)
    runs = PUBLISHED_RUNS[point.x] if point.x_name == "sample_fraction" else 10
    default = found.get(Setting(DEFAULT))
    return Cell(
        {"figure": panel, LETTERS[point.x_name]: point.x, "measure": point.metric, "rows": which},
        Estimate.mean(found[setting_of(point, server)][:, column]),
        None if np.isnan(mean) else Estimate(mean, band, runs),
        Tolerance(errors=0, absolute=band),
        None if default is None else Estimate.mean(default[:, column]),
    )


# Figures 1 to 5


def figures_1_to_5(folder: Path, quick: bool) -> list[Row]:
    """The ends of the runs, over C, E and beta."""
    runs = dict.fromkeys(RUNS, 2) if quick else RUNS
    settings = [setting_of(point) for panel in PANELS for point in points(panel)]
    found = all_runs([*settings, Setting(DEFAULT)], runs)
    cells = {panel: cells_of(panel, found) for panel in PANELS}
    holds = conclusions(found)
    rows = []
    for number in "12345":
        these = [panel for panel in PANELS if panel[0] == number]
        files = [picture(folder, number, these, found)]
        files += write_table(
            folder, f"figure_{number}", f"Figure {number}", [c for p in these for c in cells[p]]
        )
        rows += [
            Row.of(
                f"figure {panel}",
                f"mean distance and Davies-Bouldin index, {PANELS[panel].split('(')[1][:-1]}",
                cells[panel],
                required=0.85,
                shape=holds[panel[0]],
                reason=REASONS.get(panel, CONCLUSIONS[panel[0]]),
                files=files,
            )
            for panel in these
        ]
    everything = [c for panel in PANELS for c in cells[panel]]
    return [
        Row.of(
            "figures 1 to 5",
            "all points inside the published bands, and all conclusions",
            everything,
            required=0.85,
            shape=all(holds.values()),
        ),
        *rows,
    ]


CONCLUSIONS = {
    "1": "C of 0.1 and 0.3 beat central k-means, one site a round is worse",
    "2": "with E = 10 at C = 0.1, beta = 1 hurts and 0.1 mends it",
    "3": "with E = 5 at C = 0.1, beta = 1 hurts and 0.2 mends it",
    "4": "more epochs hurt with beta = 1 and help with 0.1",
    "5": "one epoch wants beta of 0.5 or 1, ten want 0.1",
}
REASONS = {
    "4b": CONCLUSIONS["4"]
    + "; the paper gives two values for E = 1 and beta = 0.1: 0.191 here and 0.250 in figure 5a, "
    "2.5 standard errors apart",
}


def conclusions(found: Found) -> dict[str, bool]:
    """Whether what the paper says of each figure holds, by the mean distance."""

    def distance(sites: int, epochs: int = 1, beta: float = 1.0) -> float:
        return float(found[Setting(sites, epochs, beta)][:, 0].mean())

    best = {E: min((1.0, 0.5, 0.2, 0.1, 0.05), key=lambda b: distance(5, E, b)) for E in (1, 10)}
    return {
        "1": max(distance(5), distance(15)) < distance(CENTRAL) < distance(1),
        "2": distance(5, 10, 0.1) < distance(5) + 0.01 < distance(5, 10, 1.0),
        "3": distance(5, 5, 0.2) < distance(5) + 0.01 < distance(5, 5, 1.0),
        "4": distance(5) < distance(5, 50) and distance(5, 50, 0.1) < distance(5, 1, 0.1),
        "5": best[1] in (0.5, 1.0) and best[10] in (0.1, 0.2),
    }


NAMES = {"euclidean": "mean distance", "davies_bouldin": "Davies-Bouldin index"}


def picture(folder: Path, number: str, these: list[str], found: Found) -> str:
    figure, axes = panels(len(these), 2)
    for column, panel in enumerate(these):
        for row, metric in enumerate(NAMES):
            ax, drawn = axes[row, column], [p for p in points(panel) if p.metric == metric]
            middle = [(p.train_lo + p.train_hi) / 2 for p in drawn]
            half = [(p.train_hi - p.train_lo) / 2 for p in drawn]
            at = np.arange(len(drawn))
            ax.errorbar(at - 0.1, middle, half, fmt="none", color=PUBLISHED, lw=6, alpha=0.5)
            ax.plot(at - 0.1, [p.train_mean for p in drawn], "s", color=PUBLISHED, label="paper")
            ours = [found[setting_of(p)][:, COLUMNS[metric, "train"]] for p in drawn]
            ax.errorbar(
                at + 0.1,
                [o.mean() for o in ours],
                [o.std() for o in ours],
                fmt="o",
                color=OURS,
                label="ours",
            )
            default = found[Setting(DEFAULT)][:, COLUMNS[metric, "train"]].mean()
            ax.axhline(default, color=RECIPE, ls="--", lw=1, label="our default")
            places(ax, [p.x for p in drawn], LETTERS[drawn[0].x_name])
            ax.set_title(f"figure {panel}: {PANELS[panel].split('(')[1][:-1]}", fontsize=9)
            ax.set_ylabel(NAMES[metric])
    axes[0, 0].legend(fontsize=8)
    return save(figure, folder, f"figure_{number}")


# What alpha = (1, 0.5) means


def server_rates(folder: Path, quick: bool) -> list[Row]:
    """Every reading against the points of at most fifteen sites a round and five epochs."""
    runs = dict.fromkeys(RUNS, 1 if quick else 20)
    seen = {setting_of(point) for panel in PANELS for point in points(panel)}
    seen = {s for s in seen if 1 <= s.sites <= 15 and s.epochs <= (1 if quick else 5)}
    asked = [s._replace(server=server) for server in SERVER for s in sorted(seen)]
    found = all_runs(asked, runs)
    cells = []
    for server in SERVER:
        these = [c for panel in PANELS for c in cells_of(panel, found, server)]
        judged = [c for c in these if c.published and c.of["rows"] == "train"]
        inside = np.mean([bool(c.within) for c in judged])
        off = np.mean([abs(c.deviation or 0.0) for c in judged])
        cells.append(Cell({"alpha": server, "of": "points inside"}, Estimate(float(inside))))
        cells.append(Cell({"alpha": server, "of": "mean |deviation|"}, Estimate(float(off))))
    files = write_table(folder, "server_rates", "Readings of alpha = (1, 0.5)", cells)
    best = min(range(len(SERVER)), key=lambda i: cells[2 * i + 1].ours.value)
    return [
        Row(
            "",
            "alpha = (1, 0.5)",
            "which reading of the server's rate fits figures 1 to 5 best",
            "(1, 0.5)",
            f"{list(SERVER)[best]}: {cells[2 * best].ours.value:.0%} of the points inside, "
            f"{cells[2 * best + 1].ours.value:.2f} standard errors off on average",
            None,
            "ours alone",
            "; ".join(
                f"{name}: {cells[2 * i].ours.value:.0%}, {cells[2 * i + 1].ours.value:.2f}"
                for i, name in enumerate(SERVER)
                if i != best
            ),
            " ".join(files),
        )
    ]


# Figures 6 and 7: the centres round by round


def recorded(algorithm: Algorithm, state: State, rounds: int, seed: int) -> Plan[list[State]]:
    """Plan a run that returns all its states."""
    states = [state]
    for _ in range(rounds):
        [answers] = yield [Task(algorithm, states[-1], seed)]
        states.append(advance(algorithm, states[-1], answers, seed)[0])
    return states


def path_of(setting: Setting, seed: int) -> NDArray[np.float64]:
    """The centres after each round, (rounds + 1, k), lowest first."""
    train, _ = triebe(seed)
    fedavg = federated(setting)
    start = fedavg.random_start(K, 1, seed)
    plan = recorded(fedavg, start, ROUNDS, seed)
    states = drive(plan, engine(train), participation=setting.sites / 50, seed=seed).value
    return np.array([np.sort(state.centers.ravel()) for state in states])


def central_path(seed: int, rounds: int = 20) -> NDArray[np.float64]:
    train, _ = triebe(seed)
    fits = [random_start_kmeans(train.X, K, rounds=r, seed=seed) for r in range(1, rounds + 1)]
    return np.array([np.sort(centers.ravel()) for centers in fits])


PUBLISHED_END = np.array([1.43, 2.90, 4.00, 4.83, 5.16])
"""Where the central run of figure 6 ends."""


def figure_6(folder: Path, quick: bool) -> list[Row]:
    """Central k-means freezes within a few rounds, often at a poor optimum."""
    paths = [central_path(seed) for seed in range(6 if quick else 60)]
    moved = [np.abs(np.diff(path, axis=0)).max(axis=1) for path in paths]
    last = [int(np.flatnonzero(m > 1e-9).max(initial=-1)) + 2 for m in moved]
    poor = [bool(np.abs(path[-1] - range(1, 6)).max() > 0.3) for path in paths]
    nearest_run = min(paths, key=lambda path: float(np.abs(path[-1] - PUBLISHED_END).sum()))
    figure, axes = panels()
    _draw_path(axes[0, 0], nearest_run, "central k-means", 1)
    for end in PUBLISHED_END:
        axes[0, 0].axhline(end, color=PUBLISHED, ls=":")
    axes[0, 0].plot([], [], ":", color=PUBLISHED, label="the paper's end")
    axes[0, 0].legend(fontsize=8)
    return [
        Row.of(
            "figure 6",
            "centres of a central run of 20 rounds, the nearest of ours to the paper's end",
            [
                Cell({"centre": j}, Estimate(float(ours)), Estimate(float(theirs)), BY_EYE)
                for j, (ours, theirs) in enumerate(
                    zip(nearest_run[-1], PUBLISHED_END, strict=True), start=1
                )
            ],
            shape=bool(np.median(last) <= 10) and any(poor),
            reason=f"{np.mean(poor):.0%} of {len(paths)} runs end at a poor optimum; the last move "
            f"is in round {np.median(last):.0f} at the median, about 4 in the paper",
            files=[save(figure, folder, "figure_6")],
        )
    ]


BY_EYE = Tolerance(absolute=0.1)
PATHS = {
    "7a": (Setting(5, 1, 1.0), [1.0, 2.0, 3.0, 4.0, 5.0]),
    "7b": (Setting(5, 10, 0.1), [1.02, 2.04, 3.0, 4.0, 5.0]),
}


def figure_7(folder: Path, quick: bool) -> list[Row]:
    """Federated averaging with a tenth of the sites finds all five means, ever more smoothly."""
    figure, axes = panels(2)
    rows = []
    for ax, (panel, (setting, ends)) in zip(axes[0], PATHS.items(), strict=True):
        path = path_of(setting, seed=0)
        _draw_path(
            ax, path, f"figure {panel}: C = 0.1, E = {setting.epochs}, beta = {setting.beta:g}"
        )
        for end in ends:
            ax.axhline(end, color=PUBLISHED, ls=":")
        jumps = np.abs(np.diff(path, axis=0)).max(axis=1)
        early, late = jumps[20:110].max(), jumps[110:].max()
        cells = [
            Cell({"centre": j}, Estimate(float(ours)), Estimate(theirs), BY_EYE)
            for j, (ours, theirs) in enumerate(zip(path[-1], ends, strict=True), start=1)
        ]
        rows.append(
            Row.of(
                f"figure {panel}",
                "centres round by round, one run: where they end",
                cells,
                shape=bool(late < early),
                reason=f"largest move of a centre {early:.2f} in rounds 21 to 110 and {late:.2f} "
                "after, as the server's rate falls",
                files=["figure_7.png"],
            )
        )
    save(figure, folder, "figure_7")
    return rows


def _draw_path(ax: Any, path: NDArray[np.float64], title: str, first: int = 0) -> None:
    ax.plot(range(first, first + len(path)), path, color=OURS, lw=1)
    for mean in range(1, 6):
        ax.axhline(mean, color=POOLED, lw=0.5)
    ax.set_title(title, fontsize=9)
    ax.set_xlabel("round")
    ax.set_ylabel("centres")


def main(quick: bool) -> None:
    reproduce("triebe", [figures_1_to_5, server_rates, figure_6, figure_7], quick)
