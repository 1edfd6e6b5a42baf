"""How often each rule finds the right number of clusters, on draws that no rule was tuned on.

    .venv/bin/python benchmarks/selection.py [--seeds 4] [--json FILE]
    .venv/bin/python benchmarks/selection.py --paper [--json FILE]

Without --paper: G2-like rows, the FKM papers' sixteen clusters, cases 2 and 3 of FFCM, unbalanced
clusters in six dimensions, and a single cluster; at five sites. The default rule and every index
that it is made of.

With --paper: the framework of Stallmann & Wilbik on the G2 sets with up to 128 dimensions,
z-scored, k = 2 to 5: the share of sets where it finds the two clusters, for 1, 2, 5 and 10 sites
and both averages, beside what the paper says. The published sets are read where their file lies
beside the project (../shared/reference), the others are drawn alike.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcluster import FederatedKMeans, select_k
from fedcluster.selection import INDICES

sys.path.insert(0, str(Path(__file__).parents[1]))
from reproduction.datasets import ffcm_case

G2 = Path(__file__).parent.parent.parent / "shared/reference/g2_d2_to_d8.npz"
GRID = np.array([(x, y) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5)])
UNBALANCED = (20, 40, 60, 100, 150, 250, 400, 600)
APART = 5.0
"""The least distance of two of the unbalanced clusters, in their standard deviations. Nearer, the
best clustering by squared distances splits a large cluster rather than find a small one."""

PUBLISHED = {
    (1, "avg_2"): 92.9, (2, "avg_2"): 91.4, (5, "avg_2"): 88.0, (10, "avg_2"): 87.2,
    (1, "avg_1"): 92.9, (2, "avg_1"): 90.4, (5, "avg_1"): 89.5, (10, "avg_1"): 88.9,
}  # fmt: skip
"""Correct K in per cent (Stallmann & Wilbik 2022, table 3); one site is the central column."""

VALIDATION = 2000
"""The first seed. The rule was chosen with the seeds 0 to 2 of other streams."""


@dataclass(frozen=True)
class Case:
    """Rows with a known number of clusters."""

    family: str
    name: str
    X: NDArray[np.float64]
    k: int
    k_max: int = 12


def g2(d: int, sd: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng([seed, d, sd])
    return np.concatenate([rng.normal(mean, sd, (1024, d)) for mean in (500, 600)])


def unbalanced_means(rng: np.random.Generator) -> NDArray[np.float64]:
    """Uniform in a cube of side 10, drawn anew until they lie apart."""
    while True:
        means = rng.uniform(0, 10, (len(UNBALANCED), 6))
        apart = np.sqrt(((means[:, None] - means) ** 2).sum(axis=2))
        if apart[np.triu_indices(len(means), 1)].min() >= APART:
            return means


def cases(seed: int) -> Iterator[Case]:
    rng = np.random.default_rng([VALIDATION, seed])
    for d in (2, 4, 8, 32):
        for sd in range(10, 71, 10):
            yield Case("G2-like", f"d {d}, sd {sd}", g2(d, sd, VALIDATION + seed), 2)
    for noise in (1.0, 1.1, 1.2, 1.3, 1.4, 1.5):
        X = np.repeat(GRID, 50, axis=0) + rng.normal(0, noise, (800, 2))
        yield Case("sixteen clusters", f"noise {noise}", X, 16, 24)
    for case, k in (("2", 3), ("3a", 4), ("3b", 4), ("3c", 4), ("3d", 4)):
        yield Case("FFCM 2 and 3", f"case {case}", ffcm_case(case, VALIDATION + seed).X, k)
    for i in range(4):
        X = np.repeat(unbalanced_means(rng), UNBALANCED, axis=0)
        yield Case("unbalanced", f"draw {i}", X + rng.normal(size=X.shape), len(UNBALANCED), 14)
    for d in (1, 2, 4, 6, 8, 32):
        yield Case("one cluster", f"d {d}", rng.normal(size=(1000, d)), 1)


def fresh(n_seeds: int, only: str) -> list[dict[str, object]]:
    found = []
    for seed in range(n_seeds):
        for case in (each for each in cases(seed) if only in f"{each.family}, {each.name}"):
            site = np.random.default_rng([seed, 5]).integers(0, 5, len(case.X))
            started = time.perf_counter()
            ks = range(1, case.k_max + 1)
            model = FederatedKMeans(ks, rule="vote", random_state=seed).fit(case.X, sites=site)
            chosen = model.selection_
            likely = select_k(case.X, ks, sites=site, random_state=seed).n_clusters
            found.append(
                {
                    "family": case.family,
                    "name": case.name,
                    "seed": seed,
                    "k": case.k,
                    "says": {"vote": chosen.n_clusters, "likelihood": likely, **chosen.says},
                    "rounds": model.n_iter_,
                    "seconds": time.perf_counter() - started,
                }
            )
    return found


def print_fresh(found: list[dict]) -> None:
    families = list(dict.fromkeys(each["family"] for each in found))
    groups = {f: [e for e in found if e["family"] == f] for f in families} | {"all": found}
    print("| rule | " + " | ".join(f"{f} ({len(g)})" for f, g in groups.items()) + " |")
    print("|---|" + "---|" * len(groups))
    for rule in ("vote", *INDICES):
        if rule not in found[0]["says"]:
            continue
        shares = [np.mean([e["says"].get(rule) == e["k"] for e in g]) for g in groups.values()]
        print(f"| {rule} | " + " | ".join(f"{100 * share:.1f} %" for share in shares) + " |")
    wrong = [e for e in found if e["says"]["likelihood"] != e["k"]]
    for e in wrong:
        print(f"  wrong: {e['family']}, {e['name']}, seed {e['seed']}: {e['says']['likelihood']}")
    seconds = np.array([e["seconds"] for e in found])
    print(f"  median {np.median(seconds):.2f} s, at most {seconds.max():.2f} s for one choice")


def published_sets(most: int) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """The G2 sets, z-scored: those of the file, the others drawn alike."""
    read = np.load(G2) if G2.exists() else {}
    for d in (d for d in (2, 4, 8, 16, 32, 64, 128) if d <= most):
        for sd in range(10, 101, 10):
            X = np.asarray(read[f"g2_{d}_{sd}"], float) if f"g2_{d}_{sd}" in read else g2(d, sd, 0)
            yield d, sd, (X - X.mean(axis=0)) / X.std(axis=0)


def paper(most_rounds: int, most_dimensions: int) -> list[dict[str, object]]:
    found = []
    for d, sd, X in published_sets(most_dimensions):
        for sites, averaging in PUBLISHED:
            if (sites, averaging) == (1, "avg_2"):
                continue
            site = np.random.default_rng([d, sd, sites]).integers(0, sites, len(X))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # clusters without rows, where centres coincide
                chosen = select_k(
                    X, range(2, 6), rule="fuzzy-db", averaging=averaging, sites=site,
                    random_state=0, max_iter=most_rounds,
                )  # fmt: skip
            found.append({"d": d, "sd": sd, "sites": sites, "averaging": averaging,
                          "k": chosen.says["fuzzy-db"]})  # fmt: skip
        print(d, sd, [each["k"] for each in found[-7:]], flush=True)
    return found


def print_paper(found: list[dict]) -> None:
    print("| sites | average | paper | here |\n|---|---|---|---|")
    for (sites, averaging), published in PUBLISHED.items():
        if (sites, averaging) == (1, "avg_2"):
            continue
        ours = [e["k"] == 2 for e in found if (e["sites"], e["averaging"]) == (sites, averaging)]
        name = "central" if sites == 1 else averaging
        print(f"| {sites} | {name} | {published} % | {100 * np.mean(ours):.1f} % |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--only", default="", help="cases with this in the name")
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--most-rounds", type=int, default=50)
    parser.add_argument("--most-dimensions", type=int, default=128)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = (
        paper(given.most_rounds, given.most_dimensions)
        if given.paper
        else fresh(given.seeds, given.only)
    )
    (print_paper if given.paper else print_fresh)(found)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
