"""K-means over sites of which few answer in each round, without remembering any of them.

O. Cappe & E. Moulines, On-line expectation-maximization algorithm for latent data models, Journal
of the Royal Statistical Society B 71 (2009), with the answers of a round in place of an
observation:

    round t   a sample of the sites answers;  s_t = the total of their sums
    S_t = (1 - g_t) S_{t-1} + g_t s_t,   g_t = (t + 1)^-0.6
    server step from S_t

`sampled_run` remembers the last sums of each site, which takes as much memory as all answers of a
round: for a million sites, of eight clusters in eight columns, 640 MB for each run. Here one total
is kept for each run, whatever the number of sites, and no round asks all of them. The server needs
only totals, so secure sums are possible.

The start is found in the same way. The leaves of a variance tree, which grows on the samples of its
rounds, are the first centres of many small clusters; twelve rounds average their sums, so that they
also describe rows of sites that are rarely available.

Deviations: s_t are sums and not means, so a round in which more rows answered counts more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedcluster.algorithms import Lloyd, VarianceTree
from fedcluster.core import (
    ALL_SITES,
    Algorithm,
    Answers,
    Floats,
    Iteration,
    Result,
    State,
    Summary,
    Task,
)
from fedcluster.core.streams import stream
from fedcluster.errors import InputError
from fedcluster.recipes._seeds import best_seeds
from fedcluster.recipes.fit import canonical, description, keeps_sums
from fedcluster.rounds import Plan, server_update

__all__ = ["stepwise"]

EXPONENT = 0.6
"""Exponent by which the weight of a new round decreases; above 1/2 so that noise averages out."""

STAYING = {6: 4, 12: 2, 18: 1}
"""Number of runs that continue after each of these rounds."""

LEAVES, PASSES = 16, 12
"""Number of means per cluster from which the starts are sought, at least 256, and of rounds that
average them."""


@dataclass(slots=True)
class _Run:
    """A run from one start.

    Parameters
    ----------
    state : State
        Its present state.
    history : tuple of Iteration
        Its rounds.
    exponent : float
        Exponent by which the weight of a new round decreases; with 1, all rounds count alike.
    planes : ndarray of shape (k, p + 1), optional
        Running average of the totals: sums and weights.
    inertia : float
        Running average of the inertia per row.
    """

    state: State
    history: tuple[Iteration, ...] = ()
    exponent: float = EXPONENT
    planes: Floats | None = None
    inertia: float = field(default=np.inf)

    def update(self, algorithm: Algorithm, answers: Answers, seed: int) -> None:
        """Make the server step from the running average of totals."""
        if not answers.by_site:
            return
        [new] = Summary.total(answers.summaries).planes[:1]
        gain = (len(self.history) + 1.0) ** -self.exponent
        self.planes = new if self.planes is None else (1 - gain) * self.planes + gain * new
        given = {ALL_SITES: Summary.from_planes(self.planes[None])}
        state, done = server_update(algorithm, self.state, Answers(given), seed)
        done = replace(
            done,
            answered=answers.answered,
            missing=answers.missing,
            values_sent=answers.values_sent,
        )
        self.history = (*self.history, done)
        self.inertia = state.inertia / max(state.weights.sum(), np.finfo(float).tiny)
        self.state = replace(state, converged=False)


def stepwise(
    algorithm: Algorithm, n_clusters: int, *, rounds: int = 60, n_init: int = 8, seed: int = 0
) -> Plan[Result]:
    """Plan a clustering in a fixed number of rounds, each of which may ask other sites.

    A variance tree grows over the first rounds; its means are averaged over twelve more and give
    the starts; runs from these share the following rounds. At some rounds, only the better half of
    the runs continues; the same sites answer for all runs, so their inertia is compared on the same
    rows.

    Parameters
    ----------
    algorithm : Algorithm
        An algorithm that declares both laws and reports the inertia in its states, like `Lloyd`.
    n_clusters : int
        The number of clusters k.
    rounds : int, default=60
        The number of rounds, including about 25 for the start.
    n_init : int, default=8
        The number of starts.
    seed : int, default=0
        Determines every random choice of the server.

    Returns
    -------
    Plan of Result
        To be given to `run_plan`, with an engine that asks a sample of its sites, as `CrowdEngine`
        does, or with ``participation``. Its inertia is an estimate from the sums of the last
        rounds.

    Raises
    ------
    InputError
        If sums of different rounds of the algorithm cannot be combined, or there are too few
        rounds.

    Examples
    --------
    >>> from fedcluster.algorithms import Lloyd
    >>> from fedcluster.engines import CrowdEngine
    >>> from fedcluster.rounds import run_plan
    >>> rng = np.random.default_rng(0)
    >>> rows = np.repeat(np.array([[0.0, 0.0], [9.0, 9.0]]), 10000, axis=0)
    >>> rows += rng.normal(size=rows.shape)
    >>> crowd = CrowdEngine([(rows, np.arange(0, 20001, 10))], participation=0.1)
    >>> result = run_plan(stepwise(Lloyd(), 2, rounds=30), crowd).value
    >>> sorted(result.state.centers.round().astype(int).tolist())
    [[0, 0], [9, 9]]
    """
    if not keeps_sums(algorithm):
        raise InputError(f"sums of {type(algorithm).__name__} in different rounds do not mix")
    means, history = yield from _means(max(256, LEAVES * n_clusters), n_clusters, seed)
    if len(history) >= rounds:
        raise InputError(f"the start took {len(history)} rounds: allow more than {rounds}")
    starts = best_seeds(means, n_clusters, n_init, stream(seed, means.round))
    runs = [_Run(start) for start in starts]
    for number in range(1, rounds - len(history) + 1):
        answers = yield [Task(algorithm, run.state, seed) for run in runs]
        for run, answer in zip(runs, answers, strict=True):
            run.update(algorithm, answer, seed)
        runs = _staying(runs, number)
    best = _staying(runs, max(STAYING))[0]
    reason = f"stopped after {rounds} rounds that asked a sample"
    state = canonical(best.state, algorithm)
    return Result(state, history + best.history, reason, algorithm)


def _means(n_means: int, n_clusters: int, seed: int) -> Plan[tuple[State, tuple[Iteration, ...]]]:
    """Plan the means of the rows of all sites that answer in some rounds, with these rounds."""
    tree = yield from description(VarianceTree(n_means), n_clusters, seed)
    fine = _Run(State(tree.state.centers, tree.state.weights), exponent=1.0)
    for _ in range(PASSES):
        [answers] = yield [Task(Lloyd(), fine.state, seed)]
        fine.update(Lloyd(), answers, seed)
    return fine.state, tree.history + fine.history


def _staying(runs: Sequence[_Run], number: int) -> list[_Run]:
    """Return the runs that continue after a round, best first."""
    best = sorted(runs, key=lambda run: run.inertia)
    return best[: STAYING.get(number, len(best))]
