"""What the preset "strict" costs beside "standard": the inertia of centres found from groups.

    .venv/bin/python benchmarks/strict.py [--seeds 3] [--ratio 30] [--kinds lognormal]

The kinds of rows of benchmarks/groups.py, at three sites, with so many groups of 10 rows for each
cluster. J is the inertia on exact rows, in standard deviations, over that of pooled k-means with
ten restarts (the median of three runs). "strict" is groups of 10 in which no row dominates a sum;
"diverse" has, besides, two diagnoses in each group, of which nine rows in ten have one. The last
columns are the share of rows that strict groups leave out, and the largest share that one row has
in a sum: of standard groups, of ten, of strict ones.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.groups import KINDS, Rows, inertia
from fedcluster import Client, Data, FederatedKMeans, Model
from fedcluster.core import Column
from fedcluster.privacy import Grouping, Groups

SITES = 3
SICK = {"label_column": "diagnosis"}
PRESETS = {
    "standard": Groups(),
    "ten": Groups(10),
    "strict": Groups.strict(),
    "diverse": Groups.strict(sensitive=("diagnosis",), diversity=2),
}


def found(X: Rows, y: np.ndarray, k: int, groups: Groups, seed: int) -> tuple[Rows, float, float]:
    """Return the centres that are found from groups, and shares.

    These are of the rows in no group, and of one row in a sum at most.
    """
    parts = np.array_split(np.random.default_rng(seed).permutation(len(X)), SITES)
    names, grouping = (
        tuple(Column(f"x{j}") for j in range(X.shape[1])),
        Grouping(groups, roles=SICK),
    )
    rows = [Data(X[part], y=y[part], columns=names) for part in parts]
    clients = [Client(f"site {i}", data, (), grouping) for i, data in enumerate(rows)]
    model = FederatedKMeans(k, prepare="standard", random_state=seed).fit_clients(clients)
    centers = Model.from_estimator(model).centers_in_units
    behind = sum(client.data.n_rows for client in clients)
    most = max(max(grouping.examined(data)[1].most.values(), default=0.0) for data in rows)
    return np.array([centers[column.name] for column in names]).T, 1 - behind / len(X), most


def drawn(kind: str, ratio: int, seed: int) -> dict[str, tuple[float, float, float]]:
    """Return J and the two shares, by preset, of one draw of a kind."""
    rng, (k, draw) = np.random.default_rng(seed), KINDS[kind]
    X = draw(rng, ratio * 10 * k, k)
    scale = X.std(axis=0)
    scale = np.where(scale > 0, scale, 1)
    y = np.where(rng.random(len(X)) < 0.9, "none", "some")
    pooled = statistics.median(
        KMeans(k, n_init=10, random_state=r).fit(X / scale).inertia_ for r in range(3)
    )
    runs = {name: found(X, y, k, groups, seed) for name, groups in PRESETS.items()}
    return {
        name: (inertia(X / scale, centers / scale) / pooled, *more)
        for name, (centers, *more) in runs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ratio", type=int, default=30, help="groups of 10 rows a cluster")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    options = parser.parse_args()
    every: dict[str, list[float]] = {name: [] for name in PRESETS}
    print(f"{'data':20} {'K':>3}" + "".join(f"{name:>10}" for name in PRESETS), flush=True)
    for kind in options.kinds:
        ran = [drawn(kind, options.ratio, seed) for seed in range(options.seeds)]
        middle = {name: statistics.median(run[name][0] for run in ran) for name in PRESETS}
        for name, each in middle.items():
            every[name].append(each)
        told = "".join(f"{each:10.4f}" for each in middle.values())
        out = np.mean([run["strict"][1] for run in ran])
        most = [np.median([run[name][2] for run in ran]) for name in ("standard", "ten", "strict")]
        shares = "".join(f"{share:9.2%}" for share in (out, *most))
        print(f"{kind:20} {KINDS[kind][0]:3}{told}{shares}", flush=True)
    for name, of in (("median", statistics.median), ("largest", max)):
        print(f"{name:24}" + "".join(f"{of(each):10.4f}" for each in every.values()))


if __name__ == "__main__":
    main()
