"""Influence of each site on a clustering, from the answers of its last round; takes no round.

c_j    the centres, c_ij those of the same server step without site i, s_j the spread of a cluster
shift  |c_j - c_ij| / s_j
J_i    inertia of the other sites' rows about c_ij; about c_j it is larger by the sum of
n_j |c_j - c_ij|^2 over the others' rows, with the clusters as they are
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fedcluster._random import stream
from fedcluster.algorithms import FFCM, Lloyd, SphericalKMeans
from fedcluster.algorithms._merging import means, total
from fedcluster.core import Answers, Floats, Result, State, Task

Exchange = list[tuple[Task, Answers]]
Kept = deque[Exchange]

ROUNDS = 8
"""Rounds that are remembered: a run that wins a race may have ended before others."""

SITES = range(3, 51)
"""Numbers of sites whose influence is told: of two, neither stands out; of many, none does."""

FEWEST = 1e-6
"""Share of the rows by which influence is divided at least."""

STRIKING, SHIFT, TIMES = 0.05, 0.5, 3.0
"""A site stands out that adds such a share to the others' inertia and moves a centre by so much of
its cluster's spread, and adds so many times as much as any other."""


@dataclass(frozen=True, slots=True)
class Influence:
    """Influence of one site on the centres.

    Parameters
    ----------
    site : str
        The site.
    largest_shift, mean_shift : float
        Distance of the centres from those without it, the largest one and the mean over the rows
        of the other sites; in units of the clusters' spread (the root mean squared distance).
    inertia_change : float or None
        By what share the inertia of the other sites' rows is larger than about centres without it;
        None where the answers do not tell it.
    alone : int
        Number of clusters of which only this site told rows.
    share : float
        Its share of the weight of all rows, as it told it.
    """

    site: str
    largest_shift: float
    mean_shift: float
    inertia_change: float | None
    alone: int
    share: float


def remember(kept: Kept, tasks: Sequence[Task], answers: Sequence[Answers]) -> None:
    """Keep the answers of a round that make states, among those of the last rounds."""
    pairs = zip(tasks, answers, strict=True)
    if made := [pair for pair in pairs if hasattr(pair[0].step, "server_step")]:
        kept.append(made)


def influences(result: Result, kept: Kept, seed: int) -> tuple[Influence, ...]:
    """Return the influence of each site; none where it cannot be told.

    First comes the site that adds the most to the others' inertia for its share of the rows: a
    large honest site moves centres more than a small one that lies.

    Parameters
    ----------
    result : Result
        The clustering.
    kept : deque of exchanges
        The last rounds, see `remember`.
    seed : int
        The seed of the run.
    """
    for exchange in reversed(kept):
        for task, answers in exchange:
            if task.step == result.algorithm and len(answers.by_site) in SITES:
                state = _made(task, answers, seed)
                if state is not None and _is_same(state, result.state):
                    told = Answers(dict(answers.by_site))  # each once, also where they were joined
                    each = [_of(name, task, told, state, seed) for name in told.by_site]
                    return tuple(sorted(each, key=_rank, reverse=True))
    return ()


def striking(found: Sequence[Influence]) -> Influence | None:
    """Return the site that stands out, if one does."""
    if not found or found[0].inertia_change is None:
        return None
    first, *others = [each.inertia_change or 0.0 for each in found]
    much = first > STRIKING and found[0].largest_shift > SHIFT
    return found[0] if much and first > TIMES * max(others) else None


def _rank(each: Influence) -> tuple[float, float]:
    change = each.inertia_change
    much = each.largest_shift if change is None else change
    return much / max(each.share, FEWEST), each.largest_shift


def _made(task: Task, answers: Answers, seed: int) -> State | None:
    """Return the state that answers make; None where they are too few."""
    step: Any = task.step
    try:
        state: State = step.server_step(
            task.state, answers.summaries, stream(seed, task.state.round)
        )
    except ValueError:
        return None
    return state


def _is_same(state: State, found: State) -> bool:
    """Return whether two states have the same clusters, in any order."""
    if state.centers.shape != found.centers.shape:
        return False
    one, other = (s.centers[np.lexsort(s.centers.T)] for s in (state, found))
    return bool(np.array_equal(one, other))


def _of(name: str, task: Task, answers: Answers, state: State, seed: int) -> Influence:
    """Return the influence of one site."""
    others = answers.without(name)
    without = _made(task, others, seed)
    lines = [np.asarray(a.weights) for a in others.summaries]
    by_cluster = all(len(each) == len(state.centers) for each in lines)
    held = np.sum(lines, axis=0) > 0 if by_cluster else np.ones(len(state.centers), bool)
    told = {site: float(answer.weights.sum()) for site, answer in answers.by_site.items()}
    share, alone = told[name] / (sum(told.values()) or 1.0), int(np.sum(~held))
    if without is None or without.centers.shape != state.centers.shape:
        return Influence(name, float("inf"), float("inf"), None, alone, share)
    centers = without.centers if by_cluster else _matched(without.centers, state.centers)
    shift = np.sqrt(((state.centers - centers) ** 2).sum(axis=1)) / _spread(task, answers, state)
    weights = np.where(held, np.maximum(without.weights, 0.0), 0.0)
    mean = float(shift @ weights / weights.sum()) if weights.sum() else float("inf")
    change = _inertia_change(task, others, state)
    return Influence(name, float(shift.max()), mean, change, alone, share)


def _matched(centers: Floats, to: Floats) -> Floats:
    """Return centres in the order of those that they are nearest to."""
    matched: Floats = centers[linear_sum_assignment(cdist(to, centers))[1]]
    return matched


def _has_errors(task: Task) -> bool:
    return isinstance(task.step, Lloyd | SphericalKMeans | FFCM)


def _spread(task: Task, answers: Answers, state: State) -> Floats:
    """Return the spread of each cluster, (k,), as the middle one of the sites tells it.

    Where answers do not tell it, half the distance to the next centre.
    """
    if _has_errors(task):
        each = []
        for answer in answers.summaries:
            some = answer.weights > 0
            safe = np.where(some, answer.weights, 1.0)
            apart = answer.sums[:, :-1] / safe[:, None] - task.state.centers
            squares = answer.sums[:, -1] / safe - (apart**2).sum(axis=1)
            each.append(np.where(some, np.maximum(squares, 0.0), np.nan))
        whole = float(np.nanmedian(each))
        columns = np.transpose(each)
        middle = [np.nanmedian(c) if np.isfinite(c).any() else whole for c in columns]
        spread = np.sqrt(np.where(np.array(middle) > 0, middle, whole))
    else:
        apart = cdist(state.centers, state.centers)
        np.fill_diagonal(apart, np.inf)
        spread = apart.min(axis=1) / 2 if len(apart) > 1 else np.ones(1)
    positive = spread[np.isfinite(spread) & (spread > 0)]
    return np.where(spread > 0, spread, positive.min() if len(positive) else 1.0)


def _inertia_change(task: Task, others: Answers, state: State) -> float | None:
    """Return by what share the others' inertia is larger about centres than about their means."""
    if not _has_errors(task):
        return None
    answer, asked = total(others.summaries), task.state.centers
    sums, errors, weights = answer.sums[:, :-1], answer.sums[:, -1], answer.weights
    own = means(sums, weights, otherwise=state.centers)
    least = float((errors - weights * ((own - asked) ** 2).sum(axis=1)).sum())
    more = float((weights * ((own - state.centers) ** 2).sum(axis=1)).sum())
    return more / least if least > 0 else float("inf") if more > 0 else 0.0


def plain(found: Sequence[Influence]) -> list[dict[str, Any]]:
    """Return influences as JSON can hold them, None for a number that is not finite."""
    return [{name: _finite(value) for name, value in asdict(each).items()} for each in found]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
