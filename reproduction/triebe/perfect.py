"""How many points a perfect reproduction has inside the published bands.

A band is that of a few runs, three to thirty, and the runs have heavy tails: most end near the
optimum, some far from it. So the mean of other runs of the same program often lies outside. How
often is simulated, both sides drawn from our own runs: of each published point as many runs as the
paper took, for its mean and its band, and as many as we took for our mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.triebe.runs import COLUMNS, FITS, Found, points, published_runs, setting_of

DRAWS = 2000
"""Reproductions that are simulated."""

Counts = NDArray[np.int64]
"""Points inside, of each simulated reproduction."""


def points_inside(
    panels: Sequence[str],
    found: Found,
    server: str = FITS,
    which: Sequence[str] = ("train", "test"),
) -> dict[str, Counts]:
    """By panel; only points whose setting was run, and that have a published mean."""
    rng = np.random.default_rng(0)
    ours = {
        setting: _draws(sample, len(sample), rng).mean(axis=1) for setting, sample in found.items()
    }
    counts = {panel: np.zeros(DRAWS, np.int64) for panel in panels}
    for panel in panels:
        for at_x in _by_place(panel).values():
            setting = setting_of(at_x[0], server)
            if setting not in found:
                continue
            theirs = _draws(found[setting], published_runs(at_x[0]), rng)
            off = np.abs(ours[setting] - theirs.mean(axis=1))
            judged = [
                COLUMNS[p.metric, w] for p in at_x for w in which if not np.isnan(p.train_mean)
            ]
            counts[panel] += (off <= theirs.std(axis=1))[:, judged].sum(axis=1)
    return counts


def _by_place(panel: str) -> dict[str, list[Any]]:
    """The points of both measures at each place of the x axis: they are of the same runs."""
    places: dict[str, list[Any]] = {}
    for point in points(panel):
        places.setdefault(point.x, []).append(point)
    return places


def _draws(sample: NDArray[np.float64], runs: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """So many runs out of a sample (n, 4), for each reproduction: (DRAWS, runs, 4)."""
    return sample[rng.integers(len(sample), size=(DRAWS, runs))]


def least(counts: Counts) -> int:
    """What nineteen of twenty perfect reproductions reach: the 5 % quantile."""
    return int(np.quantile(counts, 0.05, method="lower"))


def in_words(counts: Counts) -> str:
    """The mean, and the range without the lowest and the highest twentieth."""
    most = int(np.quantile(counts, 0.95, method="higher"))
    return f"{counts.mean():.0f} (5 to 95 %: {least(counts)} to {most})"
