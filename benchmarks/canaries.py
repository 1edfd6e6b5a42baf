"""Audit of a stated epsilon by canaries: what the best attacker finds out of many runs.

    python benchmarks/canaries.py [--runs 500]

One half of the runs has a canary, the record that is farthest from all others, and the other half
does not. The attacker knows all other rows, every question and every answer, and decides by the
likelihood ratio of all answers, which no other test beats (Neyman and Pearson). From the shares of
right and wrong decisions follows a lower bound on epsilon, at 95 % by Clopper and Pearson, for the
threshold that one half of the runs chooses and the other half tries (M. Jagielski, J. Ullman,
A. Oprea, Auditing differentially private machine learning, NeurIPS 2020). It is never above the
stated epsilon, unless something is wrong: a sensitivity, the noise, or the account.

`mechanism` audits one answer, `recipe` a whole fit, and `broken` an answer whose sensitivity is
stated ten times too small, which the audit must notice.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.stats import beta

from fedcluster import Client, Data, LocalEngine
from fedcluster.algorithms.private import RelativeLloyd
from fedcluster.core import Answers, Sensitive, Sensitivity, State, Task
from fedcluster.jobs import execute
from fedcluster.preprocessing import Preprocessor
from fedcluster.privacy.budget import Budget, noise_of
from fedcluster.privacy.disclosure import scales
from fedcluster.recipes.specifications import fit_of

DELTA, SURE = 1e-6, 0.05
Ratios = tuple[np.ndarray, np.ndarray]
"""The attacker's scores of the runs without and with the canary."""


@dataclass(frozen=True)
class Understated:
    """A step that states a tenth of its sensitivity: a mistake that an audit must find."""

    inner: RelativeLloyd = field(default_factory=RelativeLloyd)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        right = self.inner.sensitivity(state, n_columns)
        return replace(right, sums=right.sums / 10, weights=right.weights / 10)


class Listening:
    """Engine of one site that tells an attacker of every question and answer."""

    def __init__(self, rows: np.ndarray) -> None:
        self.engine = LocalEngine([Client("north", Data(rows), filters=())])
        self.heard: list[tuple[Task, Answers]] = []
        self.introduce = self.engine.introduce

    def ask(self, tasks: Any, sites: Any = None) -> list[Answers]:
        answers = self.engine.ask(tasks, sites)
        self.heard += zip(tasks, answers, strict=True)
        return answers


def rows_and_canary(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three clusters in [-1, 1]^2, and the farthest record that there can be."""
    rng = np.random.default_rng(0)
    rows = rng.normal(rng.choice([-0.5, 0.0, 0.5], (n, 1)), 0.08, (n, 2))
    return np.clip(rows, -1, 1), np.array([[1.0, 1.0]])


def ratio(task: Task, answer: Any, rows: np.ndarray, canary: np.ndarray) -> float:
    """Return the logarithm of how much likelier an answer is with the canary than without it."""
    exact = replace(task, noise=None)
    without, with_it = (
        Client("north", Data(each), filters=()).answer(exact)
        for each in (rows, np.concatenate([rows, canary]))
    )
    told = 0.0
    assert isinstance(task.step, Sensitive)
    assert task.noise is not None
    sds = scales(task.step.sensitivity(task.state, rows.shape[1]), task.noise)
    for name, sd in zip(("sums", "weights"), sds, strict=True):
        if sd:
            a, b = getattr(without, name), getattr(with_it, name)
            told += float(((b - a) * (getattr(answer, name) - (a + b) / 2)).sum()) / sd**2
    return told


def audited(ask: Callable[[Listening, int], object], runs: int) -> Ratios:
    """Return the scores of so many runs without, and with the canary."""
    rows, canary = rows_and_canary()
    found = []
    for there in (rows, np.concatenate([rows, canary])):
        scores = []
        for run in range(runs // 2):
            site = Listening(there)
            ask(site, run)
            told = [ratio(task, a.by_site["north"], rows, canary) for task, a in site.heard]
            scores.append(sum(told))
        found.append(np.array(scores))
    return found[0], found[1]


def lower_bound(without: np.ndarray, with_it: np.ndarray) -> float:
    """Return the epsilon that runs show, surely at 95 %, at the delta of the audit.

    Examples
    --------
    >>> lower_bound(np.zeros(1000), np.ones(1000)) > 4
    True
    >>> lower_bound(np.arange(1000.0), np.arange(1000.0))
    0.0
    """
    halves = [(each[::2], each[1::2]) for each in (without, with_it)]
    (tune_0, try_0), (tune_1, try_1) = halves
    every = np.unique(np.concatenate([tune_0, tune_1]))
    between = [(a + b) / 2 for a, b in pairwise(every)]
    best = max(between, key=lambda t: _epsilon(tune_0 > t, tune_1 > t), default=0.0)
    return max(_epsilon(try_0 > best, try_1 > best), 0.0)


def _epsilon(false: np.ndarray, true: np.ndarray) -> float:
    """Return the epsilon that decisions show, by one-sided bounds on both rates."""
    n, m, wrong, right = len(false), len(true), false.sum(), true.sum()
    most = 1.0 if wrong == n else beta.ppf(1 - SURE / 2, wrong + 1, n - wrong)
    least = 0.0 if right == 0 else beta.ppf(SURE / 2, right, m - right + 1)
    return float(np.log(max(least - DELTA, 1e-300) / most))


def mechanism(epsilon: float, runs: int, step: Any = None) -> float:
    """Return what an audit of one answer shows."""
    noise, how = noise_of(Budget(epsilon, DELTA).rho), Preprocessor.in_box(["x0", "x1"], *BOX)
    centers = State.at([[-0.5, -0.5], [0.0, 0.0], [0.5, 0.5]])
    task = Task(step or RelativeLloyd(), centers, preprocessor=how, noise=noise)
    return lower_bound(*audited(lambda site, _: site.ask([task]), runs))


def recipe(epsilon: float, runs: int) -> float:
    """Return what an audit of a whole fit shows."""
    bounds = {"x0": (-1.0, 1.0), "x1": (-1.0, 1.0)}

    def fit(site: Listening, run: int) -> object:
        job = fit_of(3, epsilon=epsilon, delta=DELTA, bounds=bounds, seed=run, n_rows=1e6)
        return execute(job, site, columns=["x0", "x1"])

    return lower_bound(*audited(fit, runs))


BOX = ([-1.0, -1.0], [1.0, 1.0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=500)
    runs = parser.parse_args().runs
    print("epsilon  one answer  whole fit  a tenth of the sensitivity")
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        shown = [mechanism(epsilon, runs), recipe(epsilon, runs)]
        broken = mechanism(epsilon, runs, Understated())
        print(f"{epsilon:7g}  {shown[0]:10.2f}  {shown[1]:9.2f}  {broken:26.2f}", flush=True)


if __name__ == "__main__":
    main()
