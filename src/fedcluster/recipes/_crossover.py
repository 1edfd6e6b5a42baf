"""Search for a better k-means than any of many starts leads to: crossover and breathing.

Crossover: D. Gribel & T. Vidal, HG-means: A scalable hybrid genetic algorithm for minimum
sum-of-squares clustering, Pattern Recognition 88 (2019). The individuals of a population are runs
of Lloyd. A child takes half of the centres of each of two individuals, loses one centre, gains
another where rows are far from their centres, and is iterated by Lloyd. The best distinct ones are
kept.

    parents  two, each the better of two that are drawn
    match    centres of both, by the assignment of least squared distance in all
    child    one centre of each pair at random; one of little utility or at random removed;
             one added beside a centre, drawn by its error, or at a mean of all rows, drawn by
             weight times distance (to the power of 0, 1 or 2) to the nearest centre

Deviations: in the paper, one child follows another; here, all children of a generation race in the
same rounds, together with breathing steps of the best individual that has not had one. The paper
has one population; here, four small ones evolve separately before their best individuals form one,
because a single population that keeps only the best soon holds one clustering. The server knows the
centres, so crossover takes no round. No new centre is a row. Half of the children are the best of
several, judged by the weighted means by which the sites described their rows, if there are any.

Breathing step: B. Fritzke, The breathing k-means algorithm, 2020 (arXiv 2006.15666). It adds m
centres beside those of the largest errors, iterates, removes the m of the smallest utilities, and
iterates again; the result is kept if the inertia decreased. In the paper, one step follows another.
A round costs the same whatever it carries, so here steps of many depths m share their rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.random import Generator

from fedcluster.algorithms import Lloyd
from fedcluster.algorithms.breathing import ErrorAndUtility
from fedcluster.core import Floats, Iteration, Result, State, Summary, Task
from fedcluster.core.streams import stream
from fedcluster.kernels import kmeans
from fedcluster.kernels.iteration import lloyd as weighted_lloyd
from fedcluster.metrics import Inertia
from fedcluster.recipes._search import race
from fedcluster.recipes._seeds import places_by_rise
from fedcluster.rounds import Plan, gather, iterate

DEPTHS = (1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12, 15)
"""Depths m of the breathing steps that share their rounds."""

ASIDE = 0.01
"""Distance of a new centre from the old one, in standard deviations of the cluster. The smaller
it is, the more evenly the two share the rows: far away, in many dimensions, a centre gets no
row."""

ROUNDS_WITH_MORE = 5
"""Number of rounds with more centres, before some are removed."""


def breathing_steps(
    lloyd: Lloyd, state: State, summary: Summary, rng: Generator, *, seed: int = 0
) -> Plan[list[State]]:
    """Plan one breathing step of each depth: six rounds, without the final iterations.

    Parameters
    ----------
    lloyd : Lloyd
        The algorithm for the rounds with more centres.
    state : State
        A Lloyd optimum.
    summary : Summary
        The total of `ErrorAndUtility` at this state.
    rng : Generator
        Draws the side of an old centre on which a new one lies.
    seed : int, default=0
        As in `iterate`.
    """
    errors = summary.sums[:, 0]
    spread = np.sqrt(errors / np.maximum(summary.weights, 1.0) / state.centers.shape[1])
    larger = [_with_more_centers(state.centers, errors, spread, m, rng) for m in DEPTHS]
    return (yield from gather([_with_fewer_centers(lloyd, each, state, seed) for each in larger]))


def _with_more_centers(
    centers: Floats, errors: Floats, spread: Floats, m: int, rng: Generator
) -> State:
    """Return the centres, with one added beside each of the m centres with the largest errors."""
    crowded = np.argsort(-errors, kind="stable")[:m]
    aside = ASIDE * rng.normal(size=(len(crowded), centers.shape[1])) * spread[crowded, None]
    return State.at(np.concatenate([centers, centers[crowded] + aside]))


def _with_fewer_centers(lloyd: Lloyd, larger: State, before: State, seed: int) -> Plan[State]:
    """Plan Lloyd with more centres, then with as many as before, dropping the least useful."""
    result = yield from iterate(lloyd, larger, seed=seed, max_rounds=ROUNDS_WITH_MORE)
    [answers] = yield [Task(ErrorAndUtility(), result.state, seed)]
    centers, utility = result.state.centers, answers.total().sums[:, 1]
    surplus = len(centers) - len(before.centers)
    return State.at(np.delete(centers, dispensable(centers, utility, surplus), axis=0))


def dispensable(centers: Floats, utility: Floats, m: int) -> list[int]:
    """Return the m centres of smallest utility, skipping nearest neighbours of chosen ones.

    If too few remain, the centres of next smallest utility are added.
    """
    distance = ((centers[:, None] - centers) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    order = np.argsort(utility, kind="stable").tolist()
    kept: set[int] = set()
    removed: list[int] = []
    for j in order:
        if len(removed) < m and j not in kept:
            removed.append(j)
            kept.add(int(distance[j].argmin()))
    return (removed + [j for j in order if j not in removed])[:m]


KEPT = 12
"""Number of best distinct runs that are kept."""

MOST_NUMBERS = 1 << 22
"""Largest number of values that a site is sent about the children of a generation."""

ROUNDS = 6
"""Number of rounds of a generation's race. The runs that are kept continue in the next one."""

CANDIDATES, ITERATIONS = 4, 5
"""Number of candidates of which the best becomes a child; iterations on the means to judge them."""

ALIKE, GAIN = 1e-5, 1e-6
"""Relative difference of inertia below which runs are the same, and below which there is no
gain."""

GENERATIONS = 100
"""Largest number of generations of a population, within the rounds that a site permits."""

ERROR, UTILITY, WEIGHT = -3, -2, -1
"""Columns of genes after the centres."""


@dataclass(frozen=True, slots=True)
class Population:
    """Size of a population, and how long it evolves.

    Parameters
    ----------
    children : int
        Number of children in a generation.
    patience : int
        Number of generations without gain after which evolution ends.
    draws : int
        The index of its first stream of random numbers.
    """

    children: int
    patience: int
    draws: int


SUBPOPULATIONS = tuple(Population(32, 3, 1_000_000 + 1000 * i) for i in range(1, 5))
MERGED = Population(128, 8, 1_000_000)
"""The population formed by the best individuals of those that evolve separately."""


@dataclass(frozen=True, slots=True, eq=False)
class Individual:
    """A run of Lloyd in a population.

    Parameters
    ----------
    state : State
        The state with its centres.
    inertia : float
        The exact inertia of its centres, unaffected by limits.
    summary : Summary
        The total of `ErrorAndUtility` at its state.
    had_breathing_step : bool, default=False
        Whether it has had its breathing step.
    """

    state: State
    inertia: float
    summary: Summary
    had_breathing_step: bool = False

    @property
    def genes(self) -> Floats:
        """Return centres, errors, utilities and weights, (k, d + 3)."""
        return np.column_stack([self.state.centers, self.summary.sums, self.summary.weights])


Evolved = tuple[list[Individual], tuple[Iteration, ...]]
"""The best distinct individuals, and the rounds of each generation's best run."""


def search(
    results: Sequence[Result], means: State, *, seed: int = 0, max_rounds: int = 300
) -> Plan[Result]:
    """Plan a search from runs of Lloyd: four populations, then one of their best individuals.

    Parameters
    ----------
    results : sequence of Result
        Runs of Lloyd, best first.
    means : State
        Weighted means that describe all rows; empty if the sites sent none.
    seed, max_rounds
        As in `iterate`; ``max_rounds`` limits the last run.

    Returns
    -------
    Plan of Result
        The best run, at a fixed point of Lloyd.
    """
    begun = results[0]
    if len(begun.state.centers) < 2:
        return begun
    states = [replace(result.state, converged=False) for result in results]
    individuals = distinct((yield from _surveyed(states, seed)))
    evolved = yield from gather(
        [evolve(individuals[:1], means, each, seed=seed) for each in SUBPOPULATIONS]
    )
    history = min(evolved, key=lambda each: each[0][0].inertia)[1]
    every = distinct([individual for each, _ in evolved for individual in each])
    individuals, last = yield from evolve(every, means, MERGED, seed=seed)
    end = yield from iterate(Lloyd(0.0), individuals[0].state, seed=seed, max_rounds=max_rounds)
    why = f"{begun.reason}; no gain in the last {MERGED.patience} generations"
    return Result(end.state, begun.history + history + last + end.history, why)


def evolve(
    individuals: list[Individual], means: State, population: Population, *, seed: int
) -> Plan[Evolved]:
    """Plan generations until several successive ones do not reduce the inertia.

    Parameters
    ----------
    individuals : list of Individual
        The first individuals.
    means : State
        Weighted means that describe all rows, if any.
    population : Population
        The number of children, and how long it evolves.
    seed : int
        As in `iterate`.
    """
    new_states = _new_states(
        means, len(individuals[0].state.centers), stream(seed, population.draws)
    )
    history: tuple[Iteration, ...] = ()
    failed = generation = 0
    while failed < population.patience and generation < GENERATIONS and individuals[0].inertia > 0:
        generation += 1
        rng, best = stream(seed, population.draws + generation), individuals[0].inertia
        children = _children(individuals, means, population.children, rng)
        raced, new_states, individuals = yield from _generation(
            individuals, new_states + children, rng, seed
        )
        surveyed = yield from _surveyed([result.state for result in raced], seed)
        individuals, history = distinct([*individuals, *surveyed]), history + raced[0].history
        failed = 0 if individuals[0].inertia < best * (1 - GAIN) else failed + 1
    return individuals, history


def _new_states(means: State, k: int, rng: Generator) -> list[State]:
    """Return k-means of the means, as many as a population has members."""
    if len(means.centers) < k:
        return []
    fits = [kmeans(means.centers, k, means.weights, rng=rng, n_init=1) for _ in range(KEPT)]
    return [State.at(fit.centers) for fit in fits]


def _surveyed(states: Sequence[State], seed: int) -> Plan[list[Individual]]:
    """Plan a survey of runs: their exact inertia, and the error and utility of their centres."""
    metric = Inertia()
    tasks = [Task(step, state, seed) for state in states for step in (metric, ErrorAndUtility())]
    totals = [answers.total() for answers in (yield tasks)]
    return [
        Individual(state, metric.score(state, error), summary)
        for state, error, summary in zip(states, totals[::2], totals[1::2], strict=True)
    ]


Generation = tuple[list[Result], list[State], list[Individual]]
"""The winner of a race, the results of breathing steps, and the individuals that remain."""


def _children(
    individuals: list[Individual], means: State, wanted: int, rng: Generator
) -> list[State]:
    """Return children of individuals; every other one is the best of several by the means."""
    genes = [individual.genes for individual in individuals]
    number = affordable(individuals[0].state, wanted)
    return [
        State.at(best_child(genes, means, rng, CANDIDATES if i % 2 else 1)) for i in range(number)
    ]


def _generation(
    individuals: list[Individual], new_states: list[State], rng: Generator, seed: int
) -> Plan[Generation]:
    """Plan a race of new states, with breathing steps of the best individual without one yet."""
    moving = [individual.state for individual in individuals if not individual.state.converged]
    plans: list[Plan[list[Any]]] = [_race([*moving, *new_states], seed)]
    breathing = next(
        (individual for individual in individuals if not individual.had_breathing_step), None
    )
    if breathing is not None:
        steps = breathing_steps(Lloyd(0.0), breathing.state, breathing.summary, rng, seed=seed)
        plans.append(steps)
    raced, *breathed = yield from gather(plans)
    resting = [
        replace(
            individual, had_breathing_step=individual.had_breathing_step or individual is breathing
        )
        for individual in individuals
        if individual.state.converged or individual in (individuals[0], breathing)
    ]
    return raced, [state for states in breathed for state in states], resting


def affordable(state: State, wanted: int) -> int:
    """Return the number of children in a generation, fewer if they have many numbers."""
    k, d = map(int, state.centers.shape)
    return max(1, min(wanted, MOST_NUMBERS // (k * (d + 2))))


def _race(starts: Sequence[State], seed: int) -> Plan[list[Result]]:
    """Plan a generation's race: half continue after two rounds, and a fifth after four."""
    keep = {2: -(-len(starts) // 2), 4: -(-len(starts) // 5)}
    return race(Lloyd(0.0), starts, seed=seed, max_rounds=ROUNDS, keep=keep)


def distinct(individuals: Sequence[Individual]) -> list[Individual]:
    """Return the best individuals; of several with the same inertia, only the first."""
    kept: list[Individual] = []
    for i in places_by_rise([individual.inertia for individual in individuals]):
        if not kept or individuals[i].inertia > kept[-1].inertia * (1 + ALIKE):
            kept.append(individuals[i])
    return kept[:KEPT]


def best_child(genes: Sequence[Floats], means: State, rng: Generator, candidates: int) -> Floats:
    """Return the centres (k, d) of the best of several candidate children, by the means.

    Parameters
    ----------
    genes : sequence of ndarray of shape (k, d + 3)
        Centres, errors, utilities and weights of each individual, best first.
    means : State
        Weighted means of all rows; if there are none, only one candidate is drawn.
    rng : Generator
        Draws parents, genes and moves.
    candidates : int
        The number of candidates.
    """
    candidates = candidates if len(means.centers) else 1
    drawn = [_child(genes, means, rng) for _ in range(candidates)]
    if candidates == 1:
        return drawn[0]
    fits = [
        weighted_lloyd(means.centers, each, means.weights, max_iter=ITERATIONS) for each in drawn
    ]
    return drawn[int(np.argmin([fit.inertia for fit in fits]))]


def _child(genes: Sequence[Floats], means: State, rng: Generator) -> Floats:
    """Return the centres of a child of two individuals."""
    one, other = (genes[rng.integers(len(genes), size=2).min()] for _ in range(2))
    child = without_one(crossed(one, other, rng), rng)
    place = beside(child, rng)
    if len(means.centers) and rng.random() < 0.5:
        place = at_a_mean(child[:, :ERROR], means, rng)
    return np.concatenate([child[:, :ERROR], place[None]])


def crossed(one: Floats, other: Floats, rng: Generator) -> Floats:
    """Return one gene of each pair of centres, matched by least squared distance."""
    matched = scipy.optimize.linear_sum_assignment(
        scipy.spatial.distance.cdist(one[:, :ERROR], other[:, :ERROR], "sqeuclidean")
    )[1]
    takes_one: Floats = np.where(rng.random((len(one), 1)) < 0.5, one, other[matched])
    return takes_one


def without_one(genes: Floats, rng: Generator) -> Floats:
    """Return the genes without a random one; half of the time, one of little utility."""
    rank = np.argsort(np.argsort(genes[:, UTILITY], kind="stable"), kind="stable")
    chance = np.ones(len(genes)) if rng.random() < 0.5 else 1.0 / (1 + rank)
    return np.delete(genes, rng.choice(len(genes), p=chance / chance.sum()), axis=0)


def beside(genes: Floats, rng: Generator) -> Floats:
    """Return a point (d,) near a centre drawn by its error: very near, or as far as its rows."""
    errors = np.maximum(genes[:, ERROR], 0.0)
    chance = errors if errors.any() else np.ones(len(genes))
    center = genes[rng.choice(len(genes), p=chance / chance.sum())]
    d = len(center) + ERROR
    spread = np.sqrt(max(center[ERROR], 0.0) / max(center[WEIGHT], 1.0) / d)
    place: Floats = center[:ERROR] + spread * rng.choice([0.05, 1.0]) * rng.normal(size=d)
    return place


def at_a_mean(centers: Floats, means: State, rng: Generator) -> Floats:
    """Return a mean (d,), drawn by weight and a power of its distance to the nearest centre."""
    apart = scipy.spatial.distance.cdist(means.centers, centers).min(axis=1) ** rng.integers(3)
    chance = means.weights * apart
    chance = chance if chance.any() else np.ones(len(chance))
    place: Floats = means.centers[rng.choice(len(chance), p=chance / chance.sum())]
    return place
