"""Inertia of honest sites' rows where others lie, with robust fits and without.

    python benchmarks/lying_sites.py FIRST LAST LIARS [off]
    python benchmarks/lying_sites.py FIRST LAST 1 influence

Ten sites, of which the last ones lie; rows of each kind are drawn anew for each seed from FIRST to
LAST. Ratios are to a fit of the honest sites alone. With "off", usual fits too. With "influence",
which site the influence report of a usual fit puts first, and whether one stands out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcluster import Client, Data, LocalEngine
from fedcluster._attacks._lies import LIES, LyingEngine
from fedcluster.errors import SiteError
from fedcluster.jobs import Fit, JobReport, execute
from fedcluster.kernels import nearest
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.recipes.robust import striking

Rows = dict[str, np.ndarray]
K, SITES, ROWS = 5, 10, 400
APART = {
    "separated": 8.0,
    "overlapping": 2.5,
    "tails": 6.0,
    "unequal": 5.0,
    "shares": 5.0,
    "few": 6.0,
    "two": 6.0,
    "lone": 6.0,
}
"""Distances of the centres; in "few", "two", "lone" a cluster is at three, two, one sites."""
UNEQUAL = (3000, 1200, 500, 300, 200, 150, 120, 100, 80, 60)
HOLDERS = {"few": 3, "two": 2, "lone": 1}


def draw(kind: str, seed: int) -> Rows:
    """Return the rows of all sites, in columns of different units."""
    rng = np.random.default_rng([seed, sum(map(ord, kind))])
    d = int(rng.integers(2, 7))
    centers = rng.normal(size=(K, d)) * APART[kind] / np.sqrt(2 * d)
    sizes = rng.permutation(UNEQUAL) if kind == "unequal" else np.full(SITES, ROWS)
    shares = np.full((SITES, K), 1 / K)
    if kind == "shares":
        shares = rng.dirichlet(np.ones(K), size=SITES)
    if kind in HOLDERS:
        shares[:, 0] = 0.0
        shares[rng.permutation(SITES - 1)[: HOLDERS[kind]], 0] = 1 / K
        shares /= shares.sum(axis=1, keepdims=True)
    rows: Rows = {}
    for i, (n, share) in enumerate(zip(sizes, shares, strict=True)):
        labels = rng.choice(K, size=n, p=share)
        noise = rng.standard_t(3, (n, d)) if kind == "tails" else rng.normal(size=(n, d))
        rows[f"s{i}"] = centers[labels] + noise
    scale, shift = rng.uniform(0.1, 100, size=d), 50 * rng.normal(size=d)
    return {name: X * scale + shift for name, X in rows.items()}


def fit(rows: Rows, lies: Mapping[str, Any], robust: int, seed: int) -> JobReport:
    """Return the fit of scaled rows."""
    engine = LyingEngine(LocalEngine([Client(s, Data(X), ()) for s, X in rows.items()]), lies)
    columns = [f"x{j}" for j in range(rows["s0"].shape[1])]
    job = Fit(K, seed=seed, prepare=PreprocessingSpec(), robust=robust)
    return execute(job, engine, columns=columns)


def inertia(report: JobReport, honest: Rows) -> float:
    """Return the inertia of honest rows, scaled by their own deviations."""
    assert report.preprocessor is not None
    X = np.concatenate(list(honest.values()))
    centers = report.preprocessor.invert(report.outcome.value.state.centers)
    scale = X.std(axis=0)
    return float(nearest(X / scale, centers / scale)[1].sum())


def ratio(rows: Rows, honest: Rows, lies: Mapping[str, Any], robust: int, seed: int) -> float:
    """Return the ratio to a fit of the honest sites alone; inf where the fit is refused."""
    try:
        found = inertia(fit(rows, lies, robust, seed), honest)
    except SiteError:
        return float("inf")
    return found / inertia(fit(honest, {}, 0, seed), honest)


def influence(first: int, last: int) -> None:
    """Print for each lie, over six kinds, how often its site comes first and stands out."""
    liar = f"s{SITES - 1}"
    for name in (None, "scaled", "flipped", "corner", "many rows"):
        found = []
        for kind in list(APART)[:6]:
            for seed in range(first, last):
                lies = {liar: LIES[name]} if name else {}
                found.append(fit(draw(kind, seed), lies, 0, seed).influence)
        leads = sum(each[0].site == liar for each in found)
        stands = sum(striking(each) is not None for each in found)
        told = f"first in {leads} of {len(found)} fits, a site stands out in {stands}"
        print(f"{name or 'honest':10} {told}", flush=True)


def main() -> None:
    """Print a line for each kind of rows and each lie."""
    first, last, n_liars = map(int, sys.argv[1:4])
    if "influence" in sys.argv:
        influence(first, last)
        return
    liars = [f"s{SITES - 1 - i}" for i in range(n_liars)]
    for kind in APART:
        for name in (None, *LIES):
            told: dict[int, list[float]] = {n_liars: []} | ({0: []} if "off" in sys.argv else {})
            for seed in range(first, last):
                rows = draw(kind, seed)
                lies = dict.fromkeys(liars, LIES[name]) if name else {}
                honest = {site: X for site, X in rows.items() if site not in lies}
                for robust, each in told.items():
                    each.append(ratio(rows, honest, lies, robust, seed))
            said = (f"robust={f} {np.median(x):.4f} (max {max(x):.4f})" for f, x in told.items())
            print(f"{kind:12} {name or 'honest':10}", *said, flush=True)


if __name__ == "__main__":
    main()
