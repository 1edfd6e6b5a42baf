"""Attacks on sites with groups, over kinds of rows: the most rows that one attack reads."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np

from fedcluster.core import Column, Data
from fedcluster_app.audit._site import simulated
from fedcluster_app.audit.audit import PROTECTIONS, audit


def kinds(seed: int = 0, n: int = 300) -> Mapping[str, Data]:
    """Return rows of many kinds, not prepared."""
    rng = np.random.default_rng(seed)
    whole = rng.integers(0, 3000, (n, 3)).astype(np.float64)
    codes = np.column_stack([rng.integers(0, 2, (n, 4)), rng.integers(0, 90, n)]).astype(float)
    some = np.where(rng.random((n, 2)) < 0.05, rng.lognormal(7.0, 1.2, (n, 2)), 0.0).round(2)
    ages, relapses = rng.integers(20, 96, n), rng.poisson(1.0, n)
    costs = np.column_stack([ages, relapses, some[:, 0], 98.6 + some[:, 1]])
    patients, names = simulated(n, seed), tuple(Column(f"c{j}") for j in range(3))
    away = np.where(rng.random((n, 5)) < 0.3, np.nan, patients.X)
    return {
        "patients": patients,
        "whole numbers": Data(whole, columns=names),
        "decimals": Data(rng.normal(size=(n, 3)), columns=names),
        "each row twice": Data(np.repeat(whole[: n // 2], 2, axis=0), columns=names),
        "heavy tails": Data(rng.lognormal(0.0, 2.0, (n, 3)).round(3), columns=names),
        "costs of few": Data(costs, columns=tuple(Column(f"c{j}") for j in range(4))),
        "codes": Data(codes, columns=tuple(Column(f"c{j}") for j in range(5))),
        "persons": Data(whole, columns=names, groups=np.arange(n) // 3),
        "a heavy weight": Data(whole, np.where(np.arange(n) == 9, 1e6, 1.0), columns=names),
        "much missing": Data(away, None, patients.y, patients.columns),
        "30 rows": Data(whole[:30], columns=names),
        "100 rows": Data(whole[:100], columns=names),
    }


def main(seeds: int) -> int:
    """Print the most rows read by kind of rows and protection; return how many groups let out."""
    worst = 0
    for seed in range(seeds):
        for kind, data in kinds(seed).items():
            for each in audit(data, PROTECTIONS, n_clusters=3, seed=seed):
                reading = max(each.readings, key=lambda r: r.score.read * r.promised)
                by = f"by {reading.attack}" if each.worst else ""
                print(
                    f"{seed} {kind:15} {each.protection:10} {each.worst:4} of {each.n_rows} rows, "
                    f"members {each.membership.value:5.2f}, J {each.quality or 0:.4f} {by}",
                    flush=True,
                )
                worst = max(worst, each.worst if "groups" in each.protection else 0)
    return worst


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
