"""How well clusters are found where sites differ, beside ComBat with and without the true subtypes.

    .venv/bin/python benchmarks/site_effects.py [--kinds even skewed] [--draws 10] [--seed 0]
    .venv/bin/python benchmarks/site_effects.py --studies 2 [--draws 60] [--seed 0]

Each draw has rows of three subtypes, four deviations apart, in five columns at six sites of 40 to
200 rows, unless the kind says otherwise; offsets of sites are 2 or 4 deviations. The adjusted Rand
index is with the subtypes: of k-means of the rows without effects, as they are, and after ComBat
(Johnson 2007, parametric, over pooled rows; "told" has the true subtypes as covariate), and of
ours, over the sites. All have the same scale, which is named.

Studies are of 2 to 6 subtypes in 3 to 10 columns at 3 to 30 sites of 20 to 2,000 rows, with offsets
of up to six deviations in half or all columns, and shares of up to .95, of so many subtypes at each
site at least. A line says the index of rows without effects and of ours, whether the number of
subtypes by the likelihood is right, and how many sites are named in doubt.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from fedcluster import FederatedKMeans, PreprocessingSpec

Rows = NDArray[np.float64]
Places = NDArray[np.intp]
Noise = Callable[[Generator, tuple[int, int]], Rows]


def normal(rng: Generator, shape: tuple[int, int]) -> Rows:
    """Return normal noise of deviation 1."""
    return rng.normal(size=shape)


NOISES: dict[str, Noise] = {
    "heavy": lambda rng, shape: rng.standard_t(5, shape) / np.sqrt(5 / 3),
    "lognormal": lambda rng, shape: (np.exp(0.5 * rng.normal(size=shape)) - 1.1331) / 0.6039,
}
"""Noise of mean 0 and deviation 1."""


@dataclass(frozen=True)
class Kind:
    """What is drawn: shares by a Dirichlet distribution, each subtype lacking with a chance."""

    alpha: float = 0.5
    lack: float = 0.2
    gain: float = 0.0
    noise: str = ""
    rows: tuple[int, int] = (40, 200)
    counts: bool = False
    binary: bool = False


KINDS = {
    "skewed": Kind(),
    "even": Kind(alpha=50.0, lack=0.0),
    "gains": Kind(gain=0.35),
    "even gains": Kind(alpha=50.0, lack=0.0, gain=0.35),
    "heavy": Kind(noise="heavy"),
    "heavy gains": Kind(noise="heavy", gain=0.35),
    "lognormal": Kind(noise="lognormal"),
    "counts": Kind(counts=True),
    "tiny": Kind(rows=(20, 40)),
    "binary": Kind(binary=True),
    "binary gains": Kind(binary=True, gain=0.35),
}


@dataclass(frozen=True)
class Drawn:
    """Rows with effects and without, their sites and subtypes."""

    rows: Rows
    clean: Rows
    sites: Places
    subtypes: Places


def drawn(kind: Kind, offset: float, rng: Generator, S: int = 6, k: int = 3, d: int = 5) -> Drawn:
    """Draw sites that share two subtypes, of five rows each, with another, and so all of them."""
    centers = rng.normal(size=(k, d))
    apart = np.sqrt(((centers[:, None] - centers) ** 2).sum(2))
    centers *= 4.0 / apart[apart > 0].min()
    while True:
        n = np.exp(rng.uniform(*np.log(kind.rows), S)).astype(int)
        shares = rng.dirichlet([kind.alpha] * k, S) * (rng.random((S, k)) > kind.lack) + 1e-12
        shares /= shares.sum(1, keepdims=True)
        z = np.concatenate([rng.choice(k, m, p=p) for m, p in zip(n, shares, strict=True)])
        sites = np.repeat(np.arange(S), n)
        there = np.bincount(sites * k + z, minlength=S * k).reshape(S, k) >= 5
        linked = there.astype(int) @ there.T.astype(int) >= 2
        if connected_components(linked)[0] == 1 and (there.sum(0) >= 2).all():
            break
    clean = centers[z] + NOISES.get(kind.noise, normal)(rng, (len(z), d))
    moved = (offset * rng.normal(size=(S, d)))[sites]
    if kind.counts:
        clean, rows = (
            rng.poisson(np.exp(3.0 + 0.25 * (c))) for c in (centers[z], centers[z] + moved / 2)
        )
        return Drawn(np.log1p(rows), np.log1p(clean), sites, z)
    rows = np.exp(kind.gain * rng.normal(size=(S, d)))[sites] * clean + moved
    if kind.binary:
        sick = (rng.random(len(z)) < np.array([0.1, 0.5, 0.9])[z]).astype(float)
        rows, clean = np.column_stack([rows, sick]), np.column_stack([clean, sick])
    return Drawn(rows, clean, sites, z)


def study(fewest: int, rng: Generator) -> tuple[Drawn, int]:
    """Draw a study of sites with so many subtypes at least, each of which is at two sites."""
    k, d, S = (int(rng.integers(*each)) for each in ((2, 7), (3, 11), (3, 31)))
    centers = rng.normal(size=(k, d))
    apart = np.sqrt(((centers[:, None] - centers) ** 2).sum(2))
    centers *= 4.0 / apart[apart > 0].min()
    n = np.exp(rng.uniform(*np.log((20, 2000)), S)).astype(int)
    there = np.zeros((S, k), dtype=bool)
    while (there.sum(0) < 2).any():
        there = np.argsort(rng.random((S, k)), 1) < rng.integers(fewest, k + 1, S)[:, None]
    shares = rng.dirichlet([0.7] * k, S) * there + 1e-3 * there
    shares /= shares.sum(1, keepdims=True)
    shares = np.where(there.sum(1)[:, None] > 1, np.minimum(shares, 0.95), shares)
    left = (1 - shares.sum(1))[:, None]  # goes to the other subtypes
    others = there & (shares < 0.95)
    shares += left * others / np.maximum(others.sum(1, keepdims=True), 1)
    z = np.concatenate([rng.choice(k, m, p=p) for m, p in zip(n, shares, strict=True)])
    sites = np.repeat(np.arange(S), n)
    clean = centers[z] + rng.normal(size=(len(z), d))
    moved = rng.uniform(0, 6) * rng.normal(size=(S, d)) * (rng.random(d) < rng.choice([0.5, 1.0]))
    return Drawn(clean + moved[sites], clean, sites, z), k


def studies(fewest: int, draws: int, first: int) -> None:
    """Print a line for each study, and how many are as good as without effects, or named."""
    scores = []
    for seed in range(first, first + draws):
        it, k = study(fewest, np.random.default_rng([seed, fewest]))
        model = FederatedKMeans(k, prepare=PreprocessingSpec(adjust="site"), random_state=0)
        with warnings.catch_warnings(action="ignore"):
            model.fit(it.rows, sites=it.sites)
        clean, own = pooled(it.clean, "standard", k), model.labels_
        without, found = (adjusted_rand_score(it.subtypes, each) for each in (clean, own))
        report = model.fit_report_
        assert report is not None
        right = f"with {k} subtypes" in report.notes[0]
        named = sum("share fewer than two subtypes" in line for line in report.warnings)
        scores.append((without, found, found > without - 0.02, right, named > 0))
        print(f"{seed} k {k} sites {it.sites.max() + 1} of {len(it.rows)} rows: {without:.3f} "
              f"{found:.3f}{' k' * right}{' named' * named}", flush=True)  # fmt: skip
    means = np.array(scores, dtype=float)
    close, named = means[:, 2] > 0, means[:, 4] > 0
    print(f"means {means[:, 0].mean():.3f} {means[:, 1].mean():.3f}; within .02: {close.sum()}, or "
          f"named: {(close | named).sum()} of {draws}; named {named.sum()}; "
          f"k right: {int(means[:, 3].sum())}")  # fmt: skip


def combat(X: Rows, sites: Places, subtypes: Places | None = None) -> Rows:
    """Return rows after parametric ComBat."""
    n = np.bincount(sites)
    design = np.eye(len(n))[sites]
    if subtypes is not None:
        design = np.hstack([design, np.eye(subtypes.max() + 1)[subtypes][:, 1:]])
    fitted = np.linalg.lstsq(design, X, rcond=None)[0]
    kept = n @ fitted[: len(n)] / len(X) + design[:, len(n) :] @ fitted[len(n) :]
    pooled = np.sqrt(((X - design @ fitted) ** 2).mean(0))
    pooled = np.where(pooled > 0, pooled, 1.0)
    Z = (X - kept) / pooled
    gamma = np.array([Z[sites == s].mean(0) for s in range(len(n))])
    delta = np.array([Z[sites == s].var(0, ddof=1) for s in range(len(n))])
    out = np.empty_like(Z)
    for s in range(len(n)):
        mean, tau = gamma[s].mean(), gamma[s].var(ddof=1)
        m, v = delta[s].mean(), delta[s].var(ddof=1)
        a, b = (2 * v + m**2) / v, (m * v + m**3) / v
        g, var = gamma[s], delta[s]
        for _ in range(200):
            g = (n[s] * tau * gamma[s] + var * mean) / (n[s] * tau + var)
            var = (b + ((Z[sites == s] - g) ** 2).sum(0) / 2) / (n[s] / 2 + a - 1)
        out[sites == s] = (Z[sites == s] - g) / np.sqrt(var)
    return out * pooled + kept


def pooled(X: Rows, scale: str, k: int = 3) -> Places:
    """Return the clusters of k-means of pooled rows."""
    unit = X.std(0) if scale == "standard" else 1.0
    labels: Places = KMeans(k, n_init=10, random_state=0).fit_predict(X / unit)
    return labels


def ours(X: Rows, sites: Places, scale: str, adjust: str, k: int = 3) -> Places:
    """Return our clusters over the sites."""
    how = PreprocessingSpec(scale, adjust=adjust)
    with warnings.catch_warnings(action="ignore"):
        labels: Places = FederatedKMeans(k, prepare=how, random_state=0).fit(X, sites=sites).labels_
    return labels


def measured(kind: Kind, offset: float, scale: str, seed: int) -> list[float]:
    """Return the index of each way."""
    it = drawn(kind, offset, np.random.default_rng([seed, int(offset)]))
    found = [
        pooled(it.clean, scale),
        pooled(it.rows, scale),
        pooled(combat(it.rows, it.sites), scale),
        pooled(combat(it.rows, it.sites, it.subtypes), scale),
        ours(it.rows, it.sites, scale, "site"),
        ours(it.rows, it.sites, scale, "site-scale"),
    ]
    return [adjusted_rand_score(it.subtypes, labels) for labels in found]


def main() -> None:
    """Print a line of a table for each kind, offset and scale: means over the draws."""
    options = argparse.ArgumentParser()
    options.add_argument("--kinds", nargs="+", default=[*KINDS], choices=KINDS)
    options.add_argument("--draws", type=int, default=10)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--scales", nargs="+", default=["standard", "none"])
    options.add_argument("-v", action="store_true", help="print each draw")
    options.add_argument("--studies", type=int, help="draw studies with as many subtypes at sites")
    given = options.parse_args()
    if given.studies:
        studies(given.studies, given.draws, given.seed)
        return
    ways = "| kind | offsets | scale | without effects | as they are | ComBat | told | site |"
    print(f"{ways} site-scale |", f"|{9 * '---|'}", sep="\n")
    for name in given.kinds:
        for offset in (2.0, 4.0):
            for scale in given.scales:
                each = []
                for seed in range(given.seed, given.seed + given.draws):
                    each.append(measured(KINDS[name], offset, scale, seed))
                    if given.v:
                        print("   ", seed, *(f"{x:.3f}" for x in each[-1]), flush=True)
                means = " | ".join(f"{x:.3f}" for x in np.mean(each, axis=0))
                print(f"| {name} | {offset:g} | {scale} | {means} |", flush=True)


if __name__ == "__main__":
    main()
