"""Forty kinds of rows with a known number of clusters, and how often a rule finds it.

    .venv/bin/python benchmarks/kinds.py [--draws 10] [--rule likelihood] [--json FILE]

Round and other clusters of numbers, rows without clusters, rows with noise, many clusters, and
clusters with columns of text, at three sites; draws that no rule was tuned on. Numbers are z-scored
and text taken as text, as the command line does. With --json each draw is saved as it is done, so
that a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster import select_k
from fedcluster.options.choices import RuleName

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STREAM = 61_507
"""The first number of every seed; the rule was chosen with other streams."""
SITES = 3


@dataclass(frozen=True)
class Draw:
    """Rows of one kind: numbers, texts as codes, the cluster of each row and the true k."""

    X: Floats
    k: int
    cluster: Ints
    texts: tuple[Ints, ...] = ()
    skewed: bool = field(default=False)

    def table(self) -> pd.DataFrame:
        columns = {f"x{j}": x for j, x in enumerate(self.X.T)}
        names = {f"t{j}": [f"level {c}" for c in codes] for j, codes in enumerate(self.texts)}
        return pd.DataFrame(columns | names)

    def sites(self, rng: Generator) -> Ints:
        """Return the site of each row; where labels are skewed, each cluster has its own."""
        even = rng.integers(0, SITES, len(self.X))
        if not self.skewed:
            return even
        return np.where(rng.random(len(even)) < 0.9, self.cluster % SITES, even)


def apart(rng: Generator, k: int, d: int, least: float, side: float | None = None) -> Floats:
    """Return k means in d columns, no two nearer than ``least``, drawn from a cube."""
    side = side or least * max(1.5, 1.6 * k ** (1 / d))
    while True:
        means = np.empty((0, d))
        for _ in range(400 * k):
            mean = rng.uniform(0, side, d)
            if not len(means) or ((means - mean) ** 2).sum(axis=1).min() >= least**2:
                means = np.vstack([means, mean])
            if len(means) == k:
                return means
        side *= 1.1


def clouds(rng: Generator, means: Floats, sizes: Sequence[int], sd: float = 1.0) -> Draw:
    cluster = np.repeat(np.arange(len(means)), sizes)
    X = means[cluster] + rng.normal(0, sd, (len(cluster), means.shape[1]))
    return Draw(X, len(means), cluster)


def round_clouds(k: int, d: int, n: int, least: float = 6.0) -> Callable[[Generator], Draw]:
    return lambda rng: clouds(rng, apart(rng, k, d, least), [n // k] * k)


def unequal(rng: Generator) -> Draw:
    sizes = (40, 60, 100, 200, 500)
    return clouds(rng, apart(rng, 5, 4, 7.0), sizes)


def skewed(rng: Generator) -> Draw:
    means = apart(rng, 4, 3, 7.0)
    cluster = np.repeat(np.arange(4), 220)
    return Draw(means[cluster] + (rng.gamma(4.0, 0.5, (880, 3)) - 2.0), 4, cluster)


def hierarchical(rng: Generator) -> Draw:
    coarse = apart(rng, 3, 2, 40.0)
    means = np.concatenate([c + apart(rng, 3, 2, 7.0, 12.0) for c in coarse])
    return clouds(rng, means, [90] * 9)


def few_tell(rng: Generator) -> Draw:
    """Three clusters; k-means itself finds no more in so many columns that tell nothing."""
    draw = clouds(rng, apart(rng, 3, 3, 7.0, 7.0), [400] * 3)
    return Draw(np.hstack([draw.X, rng.normal(size=(1200, 37))]), 3, draw.cluster)


def label_skew(rng: Generator) -> Draw:
    draw = clouds(rng, apart(rng, 6, 4, 6.5), [130] * 6)
    return Draw(draw.X, 6, draw.cluster, skewed=True)


def whole_numbers(rng: Generator) -> Draw:
    draw = clouds(rng, apart(rng, 4, 3, 6.5), [200] * 4)
    return Draw(np.round(draw.X * 1.5), 4, draw.cluster)


def counts(rng: Generator) -> Draw:
    rates = np.array([[2, 30, 8], [25, 5, 8], [25, 35, 60.0]]) * rng.uniform(0.9, 1.1, (3, 3))
    cluster = np.repeat(np.arange(3), 250)
    return Draw(rng.poisson(rates[cluster]).astype(float), 3, cluster)


def shapes(rng: Generator) -> Draw:
    """Four clusters, each with a covariance of its own, axes turned and up to 1 : 4 long."""
    means, rows = apart(rng, 4, 3, 13.0), []
    for mean in means:
        turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        rows.append(mean + rng.normal(size=(220, 3)) * rng.uniform(0.7, 2.8, 3) @ turn)
    return Draw(np.concatenate(rows), 4, np.repeat(np.arange(4), 220))


def variances(rng: Generator) -> Draw:
    means, sds = apart(rng, 4, 3, 13.0), np.array([0.5, 1.0, 2.0, 3.0])
    cluster = np.repeat(np.arange(4), 200)
    return Draw(means[cluster] + rng.normal(size=(800, 3)) * sds[cluster, None], 4, cluster)


def long_parallel(rng: Generator) -> Draw:
    """Three long clusters side by side: one covariance, five deviations apart across it."""
    cluster = np.repeat(np.arange(3), 250)
    X = rng.normal(size=(750, 2)) * (5.0, 0.8)
    X[:, 1] += 6.0 * cluster
    turn, _ = np.linalg.qr(rng.normal(size=(2, 2)))
    return Draw(X @ turn, 3, cluster)


def noisy(share: float) -> Callable[[Generator], Draw]:
    def draw(rng: Generator) -> Draw:
        clean = clouds(rng, apart(rng, 4, 3, 8.0), [220] * 4)
        n = round(share * 880)
        low, high = clean.X.min(axis=0) - 2, clean.X.max(axis=0) + 2
        X = np.concatenate([clean.X, rng.uniform(low, high, (n, 3))])
        return Draw(X, 4, np.append(clean.cluster, rng.integers(0, 4, n)))

    return draw


def heavy_tails(rng: Generator) -> Draw:
    means, cluster = apart(rng, 3, 3, 14.0), np.repeat(np.arange(3), 260)
    return Draw(means[cluster] + rng.standard_t(4, (780, 3)), 3, cluster)


def one(draw: Callable[[Generator], Floats]) -> Callable[[Generator], Draw]:
    def drawn(rng: Generator) -> Draw:
        X = draw(rng)
        return Draw(X, 1, np.zeros(len(X), dtype=np.int64))

    return drawn


def correlated(rng: Generator) -> Floats:
    d = 4
    mixing = rng.normal(size=(d, d))
    return rng.normal(size=(800, d)) @ (mixing * (6.0, 2.0, 1.0, 0.6))


def banana(rng: Generator) -> Floats:
    x = rng.normal(0, 1.0, 800)
    return np.column_stack([x, x**2 + rng.normal(0, 0.5, 800)])


def two_near(rng: Generator) -> Draw:
    distance = rng.uniform(2.0, 2.9)
    direction = rng.normal(size=3)
    direction *= distance / np.sqrt((direction**2).sum())
    return clouds(rng, np.array([np.zeros(3), direction]), [400, 400])


def two_apart(rng: Generator) -> Draw:
    direction = rng.normal(size=4)
    direction *= 4.5 / np.sqrt((direction**2).sum())
    return clouds(rng, np.array([np.zeros(4), direction]), [400, 400])


def likert(rng: Generator) -> Draw:
    """Eight answers from 1 to 5, three habits of answering."""
    levels = np.array([[1.5, 4.5, 3], [4.5, 1.5, 3], [3, 3, 1.3], [1.7, 3, 4.6]])
    profile = levels[rng.integers(0, 4, 8)].T
    while (
        np.sqrt(((profile[:, None] - profile) ** 2).sum(axis=2))[np.triu_indices(3, 1)].min() < 4.4
    ):
        profile = levels[rng.integers(0, 4, 8)].T
    cluster = np.repeat(np.arange(3), 260)
    return Draw(np.clip(np.round(rng.normal(profile[cluster], 0.8)), 1, 5), 3, cluster)


def uninformative(k: int, levels: Sequence[int], least: float = 6.5) -> Callable[[Generator], Draw]:
    """Clusters of numbers, with texts that are drawn alike in each."""

    def draw(rng: Generator) -> Draw:
        clean = clouds(rng, apart(rng, k, 3, least), [250] * k if k > 1 else [750])
        n = len(clean.X)
        texts = tuple(rng.choice(m, n, p=rng.dirichlet(np.full(m, 6.0))) for m in levels)
        return Draw(clean.X, k, clean.cluster, texts)

    return draw


def informative(
    k: int, d: int, levels: Sequence[int], sharp: float, least: float
) -> Callable[[Generator], Draw]:
    """Clusters of numbers and of texts: in each cluster a level has the share ``sharp``."""

    def draw(rng: Generator) -> Draw:
        clean = clouds(rng, apart(rng, k, d, least), [220] * k)
        texts = []
        for m in levels:
            main = rng.permutation(np.arange(k) % m)
            shares = np.full((k, m), (1 - sharp) / (m - 1))
            shares[np.arange(k), main] = sharp
            texts.append(drawn_levels(rng, shares[clean.cluster]))
        return Draw(clean.X, k, clean.cluster, tuple(texts))

    return draw


def drawn_levels(rng: Generator, shares: Floats) -> Ints:
    """Return a level for each row, by its shares (n, levels)."""
    return (rng.random(len(shares))[:, None] > shares.cumsum(axis=1)[:, :-1]).sum(axis=1)


def yes_no_number(rng: Generator) -> Draw:
    """Three clusters of numbers and a column of 0 and 1 that says nothing."""
    clean = clouds(rng, apart(rng, 3, 3, 6.5), [250] * 3)
    coin = (rng.random(750) < 0.35).astype(float)
    return Draw(np.column_stack([clean.X, coin]), 3, clean.cluster)


def texts_alone(rng: Generator) -> Draw:
    """Three latent classes of eight texts with three levels."""
    cluster, texts = np.repeat(np.arange(3), 280), []
    for _ in range(8):
        main = rng.permutation(3)
        shares = np.full((3, 3), 0.1)
        shares[np.arange(3), main] = 0.8
        texts.append(drawn_levels(rng, shares[cluster]))
    return Draw(np.zeros((840, 0)), 3, cluster, tuple(texts))


KINDS: dict[str, Callable[[Generator], Draw]] = {
    "round, 4 in 2 columns": round_clouds(4, 2, 800),
    "round, 6 in 10 columns": round_clouds(6, 10, 900),
    "round, 3 of 30 rows": round_clouds(3, 3, 90, 7.0),
    "round, 5 in 20 columns": round_clouds(5, 20, 1000, 7.0),
    "unequal": unequal,
    "skewed": skewed,
    "hierarchical": hierarchical,
    "40 columns, 3 tell": few_tell,
    "label skew": label_skew,
    "whole numbers": whole_numbers,
    "counts": counts,
    "answers from 1 to 5": likert,
    "different shapes": shapes,
    "different variances": variances,
    "long, side by side": long_parallel,
    "heavy tails": heavy_tails,
    "5 % noise": noisy(0.05),
    "10 % noise": noisy(0.10),
    "one normal, 3 columns": one(lambda rng: rng.normal(size=(700, 3))),
    "one normal, 15 columns": one(lambda rng: rng.normal(size=(700, 15))),
    "one box": one(lambda rng: rng.uniform(size=(800, 3))),
    "one correlated normal": one(correlated),
    "one lognormal": one(lambda rng: rng.lognormal(0, 0.7, (800, 3))),
    "one exponential": one(lambda rng: rng.exponential(size=(800, 3))),
    "one of whole numbers": one(lambda rng: np.round(rng.normal(0, 1.5, (700, 4)))),
    "one banana": one(banana),
    "two, 2 to 2.9 apart": two_near,
    "two, 4.5 apart": two_apart,
    "K = 8": round_clouds(8, 4, 960),
    "K = 16": round_clouds(16, 3, 1440, 7.0),
    "K = 25": round_clouds(25, 4, 1500, 7.0),
    "3 and a yes/no text": uninformative(3, (2,)),
    "3 and texts of 2, 2, 4": uninformative(3, (2, 2, 4)),
    "one and three texts": uninformative(1, (2, 3, 5)),
    "one and six texts": uninformative(1, (2, 2, 3, 3, 4, 6)),
    "3 and a yes/no number": yes_no_number,
    "telling texts, 3": informative(3, 3, (3, 3, 2), 0.8, 5.0),
    "telling texts, 4": informative(4, 2, (4, 4, 4), 0.85, 5.0),
    "telling texts, 5": informative(5, 4, (5, 3), 0.8, 5.5),
    "texts alone, 3": texts_alone,
}


def drawn(kind: str, draw: int) -> tuple[Draw, Ints]:
    """Return the rows of a draw of a kind, and the site of each."""
    rng = np.random.default_rng([STREAM, list(KINDS).index(kind), draw])
    rows = KINDS[kind](rng)
    return rows, rows.sites(rng)


def asked(kind: str, draw: int, rule: RuleName, protection: str | None) -> dict[str, object]:
    """Return what a rule says of one draw."""
    rows, site = drawn(kind, draw)
    started = time.perf_counter()
    chosen = select_k(
        rows.table(), sites=site, prepare="standard", rule=rule, random_state=draw,
        protection=protection,
    )  # fmt: skip
    return {
        "kind": kind,
        "draw": draw,
        "k": rows.k,
        "says": chosen.n_clusters,
        "reason": chosen.reason,
        "warnings": list(chosen.warnings),
        "seconds": time.perf_counter() - started,
    }


def print_table(found: Sequence[dict]) -> None:
    print("| kind | k | right | says |\n|---|---|---|---|")
    for kind in KINDS:
        each = [one for one in found if one["kind"] == kind]
        if not each:
            continue
        right = sum(one["says"] == one["k"] for one in each)
        others = [str(one["says"]) for one in each if one["says"] != one["k"]]
        print(f"| {kind} | {each[0]['k']} | {right} of {len(each)} | {', '.join(others)} |")
    right = sum(one["says"] == one["k"] for one in found)
    wrong = [one for one in found if one["says"] != one["k"]]
    warned = sum(bool(one["warnings"]) for one in wrong)
    sure = sum(not one["warnings"] for one in found if one["says"] == one["k"])
    print(f"\nright: {right} of {len(found)}, {100 * right / max(len(found), 1):.1f} %")
    print(f"warned: {warned} of {len(wrong)} wrong verdicts, {right - sure} of {right} right ones")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rule", default="likelihood")
    parser.add_argument("--protection", choices=["groups"], help="of the sites")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--json", type=Path, help="where draws are kept")
    options = parser.parse_args()
    kept = options.json
    found = json.loads(kept.read_text()) if kept and kept.exists() else []
    done = {(one["kind"], one["draw"]) for one in found}
    for draw in range(options.first, options.first + options.draws):
        for kind in options.kinds:
            if (kind, draw) not in done:
                found.append(asked(kind, draw, options.rule, options.protection))
                if kept:
                    kept.write_text(json.dumps(found, indent=1))
    print_table(found)


if __name__ == "__main__":
    main()
