"""Rounds that ask a sample of the sites, with the last sums of those that are not asked.

R. M. Neal & G. E. Hinton, A view of the EM algorithm that justifies incremental, sparse, and other
variants, Learning in Graphical Models (1998), with sites in the place of rows:

    round 0   every site answers;  T_i = its sums
    round t   a sample of the sites answers anew;  T_i = its sums, the others' stay as they are
              server step from all T_i

Old sums belong to an assignment of a site's rows that still stands, only not the nearest one any
more. With T_i of that assignment,

    F = sum over sites and clusters of |x - c_j|^2,  x in cluster j of T_i

becomes smaller when a site answers (its rows go to the nearest centres) and when the server moves
the centres (they become the means). So it falls in every round, whoever is asked, and where it
does not, no site would answer anything else. Without the others' sums, centres follow the sample:
the rounds of a run would end wherever the last one left them.

Sums of the absent can stand in only where step(A + B) = step(A) + step(B) and the server needs
nothing but the total, which a step declares (`client_additive`, `server_additive`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from fedcluster._specifications import FitSpec
from fedcluster.algorithms import GaussianMixture
from fedcluster.core import Algorithm, Answers, Iteration, Result, State, Summary, Task
from fedcluster.recipes._search import race
from fedcluster.rounds import ENOUGH, EarlyStop, Plan, everyone, reason, server_update

PASSES = 6
"""Times that a site is asked, on average, before all are asked again."""

MOST_SAMPLED = 36
"""Rounds that ask a sample, at most; then all sites are asked until the centres rest."""

KEPT = {1: 12, 2: 6, 3: 3}
"""Runs that go on after a site was asked so often, on average."""


@dataclass(slots=True)
class Sampled:
    """A run whose rounds ask a sample of the sites.

    Parameters
    ----------
    state : State
        Where it is.
    history : tuple of Iteration
        Its rounds.
    sums : mapping of str to Summary
        The last answer of each site.
    still : int
        Rounds since its centres moved.
    """

    state: State
    history: tuple[Iteration, ...] = ()
    sums: Mapping[str, Summary] = field(default_factory=dict)
    still: int = 0

    def update(self, algorithm: Algorithm, answers: Answers, seed: int) -> None:
        """Make the server step from the new sums, and from the last ones of all others."""
        every = {**self.sums, **answers.by_site}
        self.sums = {name: every[name] for name in sorted(every)}
        state, done = server_update(algorithm, self.state, Answers(self.sums), seed)
        done = replace(
            done,
            answered=answers.answered,
            missing=answers.missing,
            values_sent=answers.values_sent,
        )
        self.history = (*self.history, done)
        self.still = self.still + 1 if state.converged else 0
        self.state = replace(state, converged=False)


def keeps_sums(algorithm: Algorithm) -> bool:
    """Return whether the last sums of a site that is not asked can stand in for it."""
    about_means = isinstance(algorithm, GaussianMixture)  # of the round: sums of two do not mix
    return algorithm.client_additive and algorithm.server_additive and not about_means


def sampled_run(algorithm: Algorithm, starts: Sequence[State], spec: FitSpec) -> Plan[Result]:
    """Plan the best of runs whose rounds ask a sample of the sites, ended by rounds with all.

    Parameters
    ----------
    algorithm : Algorithm
        One that `keeps_sums`, and reports the inertia in its states.
    starts : sequence of State
        The starts.
    spec : FitSpec
        The fraction of the sites, the seed and the largest number of rounds.
    """
    best, told = yield from _sampled_rounds(algorithm, starts, spec)
    left = 1 if told else max(1, spec.max_iter - len(best.history))
    end = race(algorithm, [best.state], seed=spec.seed, max_rounds=left)
    [result] = yield from everyone(end)
    history = best.history + result.history
    of = f", best of {len(starts)} starts" if len(starts) > 1 else ""
    cut = "" if len(history) >= spec.max_iter else ENOUGH
    return Result(result.state, history, reason(result.state, len(history), cut) + of)


def _sampled_rounds(
    algorithm: Algorithm, starts: Sequence[State], spec: FitSpec
) -> Plan[tuple[Sampled, bool]]:
    """Plan rounds until centres rest, all sites first and last; whether it was told to end."""
    runs = [Sampled(start) for start in starts]
    a_pass = ceil(1 / spec.participation)
    done, last = 0, min(PASSES * a_pass, MOST_SAMPLED, max(1, spec.max_iter // 2))
    while done <= last:
        of_all = done in (0, last)
        try:
            answers = yield [Task(algorithm, r.state, spec.seed, everyone=of_all) for r in runs]
        except EarlyStop:
            return runs[0], True
        for run, answer in zip(runs, answers, strict=True):
            run.update(algorithm, answer, spec.seed)
        runs.sort(key=lambda run: run.state.inertia)
        passes, rest = divmod(done, a_pass)
        runs = runs if rest else runs[: KEPT.get(passes, len(runs))]
        rests = done < last and min(run.still for run in runs) > a_pass
        done = last if rests else done + 1
    return runs[0], False
