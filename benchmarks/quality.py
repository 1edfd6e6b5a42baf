"""Every algorithm on every data set: how close it comes to pooled clustering, and at what cost.

    .venv/bin/python benchmarks/quality.py [--seeds 30] [--sets plane,families,...] [--json FILE]

J is the inertia (for fuzzy rows J_m) divided by the median of pooled k-means with ten restarts
(of the best of five central runs). ARI_w is the mean of the sites' adjusted Rand indices weighted
by their rows, ARI that of all rows. FEMNIST is read where its file lies beside the project
(../shared/reference) and left out otherwise.

``--sets families`` fits the default and sums only on every set of `families`, drawn anew for each
of ``--seeds`` seeds and split in every way. Its table has a line for each family: fits; the share
with J above 1.01 and with J at most 1.001; the largest J, and where; rounds, mean and largest; and
the largest ratio of numbers that a site sent to values that it holds, over sites of 1,000 rows and
more with eight columns and more, and over all. ``--cache FILE`` keeps the pooled inertias. With
``--sets "fuzzy families"``, fuzzy c-means on the same sets, one seed at random sites.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
from families import SETS, Rows, RowSet, cases
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from fedcluster import FederatedFuzzyCMeans, FederatedKMeans
from fedcluster.algorithms import FFCM, FKM, KFed

sys.path.insert(0, str(Path(__file__).parents[1]))
from reproduction.baselines import central_fuzzy_cmeans
from reproduction.datasets import SplitRows, ffcm_case, plane16, variable_k

FEMNIST = Path(__file__).parent.parent.parent / "shared/reference/femnist_10clients.npz"
OLD_FKM = {"init_iterations": 0, "server_seeding": "unweighted"}


@dataclass(frozen=True)
class Row:
    """One line of the table; means over the seeds."""

    data: str
    method: str
    seeds: int
    J: float
    J_max: float
    J_at_1001: float
    ari_w: float
    ari_w_sd: float
    ari: float
    rounds: float
    rounds_max: int
    numbers: float
    seconds: float


def kmeans_methods(k: int) -> dict[str, FederatedKMeans]:
    """What is compared; pooled k-means is the same estimator's judge, scikit-learn's."""
    return {
        "auto": FederatedKMeans(k),
        "auto, sums only": FederatedKMeans(k, sums_only=True),
        "lloyd, k-means++": FederatedKMeans(k, algorithm="lloyd", init="k-means++"),
        "fkm": FederatedKMeans(k, algorithm="fkm", max_iter=100, tol=0),
        "fkm of 2023": FederatedKMeans(k, algorithm=FKM(k, **OLD_FKM), max_iter=100),
        "kfed": FederatedKMeans(k, algorithm=KFed(k)),
        "fedavg": FederatedKMeans(k, algorithm="fedavg", max_iter=100),
    }


def fuzzy_methods(k: int, m: float) -> dict[str, FederatedFuzzyCMeans]:
    avg_1 = FFCM(m, local="converge", support="u")
    avg_2 = FFCM(m, averaging="avg_2", local="converge", support="u")
    return {
        "fuzzy auto": FederatedFuzzyCMeans(k, m=m),
        "fuzzy auto, sums only": FederatedFuzzyCMeans(k, m=m, sums_only=True),
        "ffcm avg_1": FederatedFuzzyCMeans(k, m=m, algorithm=avg_1, max_iter=100),
        "ffcm avg_2": FederatedFuzzyCMeans(k, m=m, algorithm=avg_2, max_iter=100),
    }


def plane_sets() -> Iterator[tuple[str, SplitRows, int]]:
    for beta, noise, n in product((0.1, 1, 10), (1, 1.5), (50, 200)):
        yield f"plane {beta:g}/{noise:g}/{n}", plane16(beta, n, noise), 16
    yield "variable k", variable_k(), 16


def femnist() -> Iterator[tuple[str, SplitRows, int]]:
    if FEMNIST.exists():
        file = np.load(FEMNIST)
        site = np.array([f"client-{i}" for i in file["client"]])
        yield "femnist", SplitRows(file["pixels_u8"] / 255.0, np.zeros(len(site), int), site), 60


def fuzzy_sets() -> Iterator[tuple[str, SplitRows, int, float]]:
    for case in ("1a", "1b", "2", "3a", "3b", "3c", "3d"):
        k, m = (4, 2.0) if case.startswith("3") else (3, 1.1 if case == "2" else 2.0)
        yield f"ffcm case {case}", ffcm_case(case), k, m
    yield "plane 0.1/1/50", plane16(0.1, 50, 1.0), 16, 2.0
    yield "plane 0.1/1.5/50", plane16(0.1, 50, 1.5), 16, 2.0


def weighted_ari(rows: SplitRows, labels: np.ndarray) -> float:
    """FKM's score: per-site adjusted Rand indices, weighted by the sites' rows."""
    names, sizes = np.unique(rows.site, return_counts=True)
    here = [rows.site == name for name in names]
    scores = [adjusted_rand_score(rows.y[of], labels[of]) for of in here]
    return float(np.average(scores, weights=sizes))


def measured(name: str, method: str, rows: SplitRows, reference: float, models: list) -> Row:
    ratios = [model.inertia_ / reference for model in models]
    ari_w = [weighted_ari(rows, model.labels_) for model in models]
    return Row(
        data=name,
        method=method,
        seeds=len(models),
        J=statistics.mean(ratios),
        J_max=max(ratios),
        J_at_1001=float(np.mean([ratio <= 1.001 for ratio in ratios])),
        ari_w=statistics.mean(ari_w),
        ari_w_sd=statistics.pstdev(ari_w),
        ari=statistics.mean(adjusted_rand_score(rows.y, model.labels_) for model in models),
        rounds=statistics.mean(getattr(model, "n_iter_", 0) for model in models),
        rounds_max=max(getattr(model, "n_iter_", 0) for model in models),
        numbers=statistics.mean(
            max(getattr(model, "values_sent_", {"": 0}).values()) for model in models
        ),
        seconds=statistics.mean(model.seconds for model in models),
    )


def fitted(model: FederatedKMeans, rows: SplitRows, seed: int) -> FederatedKMeans:
    begun = time.perf_counter()
    model = type(model)(**{**model.get_params(deep=False), "random_state": seed})
    model.fit(rows.X, sites=rows.site)
    model.seconds = time.perf_counter() - begun
    return model


def pooled(rows: SplitRows, k: int, seed: int) -> KMeans:
    begun = time.perf_counter()
    model = KMeans(k, n_init=10, random_state=seed).fit(rows.X)
    model.seconds, model.n_iter_ = time.perf_counter() - begun, 0
    return model


def table(arguments: argparse.Namespace) -> Iterator[Row]:
    hard = [*plane_sets()] if "plane" in arguments.sets else []
    hard += [*femnist()] if "femnist" in arguments.sets else []
    for name, rows, k in hard:
        central = [pooled(rows, k, seed) for seed in range(arguments.seeds)]
        reference = statistics.median(model.inertia_ for model in central)
        yield measured(name, "pooled, 10 restarts", rows, reference, central)
        for method, model in kmeans_methods(k).items():
            if arguments.method in method:
                models = [fitted(model, rows, seed) for seed in range(arguments.seeds)]
                yield measured(name, method, rows, reference, models)
    for name, rows, k, m in fuzzy_sets() if "fuzzy" in arguments.sets else ():
        best = float(central_fuzzy_cmeans(rows.X, k, m, n_init=5).last_pass.errors.sum())
        for method, fuzzy in fuzzy_methods(k, m).items():
            if arguments.method in method:
                models = [fitted(fuzzy, rows, seed) for seed in range(arguments.seeds)]
                yield measured(name, method, rows, best, models)


@dataclass(frozen=True)
class FamilyFit:
    """One fit on a set of a family: what it reached, and what it cost."""

    family: str
    data: str
    split: str
    seed: int
    method: str
    J: float
    rounds: int
    ratio: float
    large_ratio: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.data}, {self.split}, seed {self.seed}"


class PooledInertias:
    """Median inertia of five pooled k-means with ten restarts, kept in a file if one is given."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known = json.loads(path.read_text()) if path and path.exists() else {}

    def of(self, each: RowSet, seed: int, X: Rows) -> float:
        """Return the median for the rows of a set and seed."""
        key = f"{each.name}, seed {0 if each.family == 'real' else seed}"
        if key not in self.known:
            fits = [KMeans(each.k, n_init=10, random_state=r).fit(X) for r in range(5)]
            self.known[key] = statistics.median(fit.inertia_ for fit in fits)
            if self.path:
                self.path.write_text(json.dumps(self.known, indent=1))
        return self.known[key]


def family_fits(seeds: int, pooled_inertias: PooledInertias, only: str) -> Iterator[FamilyFit]:
    """Fit what sites of every set find by default and from sums only."""
    for each, seed, split in cases(seeds):
        X, y = each.rows(seed)
        site, reference = each.sites(X, y, split, seed), pooled_inertias.of(each, seed, X)
        names, sizes = np.unique(site, return_counts=True)
        for method, sums_only in (("auto", False), ("auto, sums only", True)):
            if only not in f"{method} {each.name}":
                continue
            model = FederatedKMeans(each.k, sums_only=sums_only)
            model = fitted(model, SplitRows(X, y, site), seed)
            sent = np.array([model.values_sent_[str(name)] for name in names])
            ratios = sent / (sizes * X.shape[1])
            large = ratios[(sizes >= 1000) & (X.shape[1] >= 8)]
            yield FamilyFit(
                *(each.family, each.name, split, seed, method),
                *(model.inertia_ / reference, model.n_iter_),
                *(float(ratios.max()), float(large.max(initial=0.0)), model.seconds),
            )


def fuzzy_family_fits(only: str) -> Iterator[FamilyFit]:
    """Fit fuzzy clusters on every set, its first seed, at random sites; J is J_m."""
    for each in SETS:
        (X, y), split = each.rows(0), each.splits()[0]
        if only in each.name:
            site = each.sites(X, y, split, 0)
            best = float(central_fuzzy_cmeans(X, each.k, 2.0, n_init=5).last_pass.errors.sum())
            for method, sums_only in (("auto", False), ("auto, sums only", True)):
                model = FederatedFuzzyCMeans(each.k, sums_only=sums_only)
                model = fitted(model, SplitRows(X, y, site), 0)
                J, rounds = model.inertia_ / best, model.n_iter_
                yield FamilyFit(
                    *(each.family, each.name, split, 0, method),
                    *(J, rounds, 0.0, 0.0, model.seconds),
                )


def print_families(fits: Sequence[FamilyFit]) -> None:
    """Print one line for each method and family, and one for all."""
    groups = defaultdict(list)
    for fit in fits:
        groups[fit.method, fit.family].append(fit)
        groups[fit.method, "all"].append(fit)
    heads = ("method", "family", "fits", ">1.01", "<1.001", "largest", "rounds", "large", "ratio")
    print("{:16} {:10} {:>5} {:>6} {:>6} {:>8} {:>9} {:>6} {:>7}  worst".format(*heads))
    for (method, family), group in groups.items():
        J, rounds = np.array([fit.J for fit in group]), [fit.rounds for fit in group]
        print(
            f"{method:16} {family:10} {len(group):5} {(J > 1.01).mean():6.3f} "
            f"{(J <= 1.001).mean():6.3f} {J.max():8.5f} {np.mean(rounds):5.1f}/{max(rounds):<3} "
            f"{max(fit.large_ratio for fit in group):6.2f} {max(fit.ratio for fit in group):7.2f}"
            f"  {group[int(J.argmax())]}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--sets", default="plane,femnist,fuzzy")
    parser.add_argument("--method", default="", help="only methods whose name has this in it")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cache", type=Path, help="with families: where pooled inertias stay")
    arguments = parser.parse_args()
    if arguments.sets == "fuzzy families":
        print_families([*fuzzy_family_fits(arguments.method)])
        return
    if arguments.sets == "families":
        kept = PooledInertias(arguments.cache)
        fits = [*family_fits(arguments.seeds, kept, arguments.method)]
        print_families(fits)
        if arguments.json:
            arguments.json.write_text(json.dumps([asdict(fit) for fit in fits], indent=1))
        return
    heads = ("data", "method", "J", "max", "<1.001", "ARI_w", "sd", "ARI", "rounds", "numbers", "s")
    print("{:17} {:22} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>9} {:>9} {:>6}".format(*heads))
    rows = []
    for row in table(arguments):
        rows.append(asdict(row))
        print(
            f"{row.data:17} {row.method:22} {row.J:8.5f} {row.J_max:8.5f} {row.J_at_1001:6.2f} "
            f"{row.ari_w:6.4f} {row.ari_w_sd:6.4f} {row.ari:6.4f} "
            f"{row.rounds:5.1f}/{row.rounds_max:<3} {row.numbers:9.0f} {row.seconds:6.2f}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
