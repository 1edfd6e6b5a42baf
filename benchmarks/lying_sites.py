"""Inertia of honest sites' rows where others lie, with robust fits and without.

    python benchmarks/lying_sites.py FIRST LAST LIARS [off]
    python benchmarks/lying_sites.py FIRST LAST 1 influence

Ten sites, of which the last ones lie; rows of each kind are drawn anew for each seed from FIRST to
LAST. Ratios are to a fit of the honest sites alone. With "off", usual fits too. With "influence",
which site the influence report of a usual fit puts first, and whether one stands out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Unpack

import numpy as np

from fedcluster import Client, Data, LocalEngine
from fedcluster.core import Answers, Engine, Floats, Introduction, SiteInfo, Summary, Task
from fedcluster.errors import SiteError
from fedcluster.jobs import JobReport, execute, fit_of
from fedcluster.kernels import nearest
from fedcluster.metrics.moments import SiteSize
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.preprocessing.moments import Missing
from fedcluster.recipes.robust import striking

MANY = 1e9
"""Rows that a site claims which has far fewer."""


@dataclass(frozen=True, slots=True)
class Lie:
    """Answers of a lying site.

    Parameters
    ----------
    tell : callable
        Makes the sums (k, p) that are told of the true ones, the weights (k,), and the number d of
        columns of prepared rows. Sums beyond the first d of a line are squares.
    rows : float, optional
        How many rows the site claims; by default those that it has.
    """

    tell: Callable[[Floats, Floats, int], Floats]
    rows: float | None = None

    def answer(self, task: Task, honest: Summary, n_rows: float, d: int) -> Summary:
        """Return what is told in the place of an honest answer."""
        if isinstance(task.step, SiteSize | Missing):
            return honest
        factor = 1.0 if self.rows is None else self.rows / n_rows
        weights = factor * honest.weights
        sums = np.where(weights[:, None] > 0, self.tell(factor * honest.sums, weights, d), 0.0)
        return Summary(sums, weights)


def corner(sums: Floats, weights: Floats, d: int) -> Floats:
    """Return the sums of as many rows in a corner that other rows reach too, with their squares."""
    told = np.abs(sums)
    told[:, :d] = REACH * weights[:, None]
    return told


def scaled(sums: Floats, _weights: Floats, _d: int) -> Floats:
    """Return a hundred times the sums."""
    return 100.0 * sums


def flipped(sums: Floats, _weights: Floats, _d: int) -> Floats:
    """Return the sums with the other sign, squares too."""
    return -sums


def overflowing(sums: Floats, _weights: Floats, _d: int) -> Floats:
    """Return sums whose squares overflow."""
    return np.where(sums != 0, 1e300, 0.0)


REACH = 4.0
"""The corner, in units of prepared rows: four standard deviations in each column."""

LIES: Mapping[str, Lie] = MappingProxyType(
    {
        "scaled": Lie(scaled),
        "flipped": Lie(flipped),
        "corner": Lie(corner),
        "many rows": Lie(corner, MANY),
        "overflow": Lie(overflowing),
    }
)
"""The lies of the table in ``benchmarks/results/quality.md``."""


class LyingEngine:
    """Engine some of whose sites lie.

    Parameters
    ----------
    engine : Engine
        Who is asked.
    lies : mapping of str to Lie
        The sites that lie, and how.
    """

    def __init__(self, engine: Engine, lies: Mapping[str, Lie]) -> None:
        self._engine, self._lies = engine, lies

    def introduce(self, **asked: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return what the sites tell of themselves; liars tell of the rows that they claim."""
        sites = self._engine.introduce(**asked)
        return tuple(map(self._claimed, sites))

    def _claimed(self, site: SiteInfo) -> SiteInfo:
        lie = self._lies.get(site.name)
        return site if lie is None or lie.rows is None else replace(site, n_rows=lie.rows)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Ask the sites, and let those that lie tell what they like."""
        rows = {site.name: site.n_rows or 1.0 for site in self._engine.introduce()}
        told = []
        for task, answers in zip(tasks, self._engine.ask(tasks, sites), strict=True):
            by_site = dict(answers.by_site)
            for name, lie in self._lies.items():
                if name in by_site:
                    honest = by_site[name]
                    d = task.state.centers.shape[1] or honest.sums.shape[1]
                    by_site[name] = lie.answer(task, honest, rows[name], d)
            told.append(Answers(by_site, answers.missing, answers.enough))
        return told


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
    job = fit_of(K, seed=seed, prepare=PreprocessingSpec(), robust=robust)
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
            bounds = (n_liars, 0) if "off" in sys.argv else (n_liars,)
            told: dict[int, list[float]] = {robust: [] for robust in bounds}
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
