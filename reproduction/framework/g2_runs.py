"""How tables 3 to 7 cluster the hundred G2 sets, as the program of March 2022 did."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from fedcluster import FederatedFuzzyCMeans, LocalEngine, State, run
from reproduction.ffcm.methods import engine
from reproduction.framework.index import AVERAGINGS, Array, M, fuzzy_db, pooled_engine
from reproduction.framework.lean import LeanFFCM, converged
from reproduction.g2_sets import DEVIATIONS, DIMENSIONS, g2_rows, true_centers
from reproduction.indices import knowledge_gap
from reproduction.runs import runs_of

SITES = (2, 5, 10)
MOST_ROUNDS = 100
"""The program stops after 1,000. A run that circles with a period that divides 60 is by then where
it is after 100. Of the seven found in ten runs of the sets of 2 to 128 columns and deviations of 60
and more, six do, with periods of 2, 3 and 4; one did not repeat within 60 rounds."""

Start = Literal["memberships", "integers", "unit box", "400 to 700"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What the paper leaves open; the defaults are the program of March 2022.

    Parameters
    ----------
    rows : {"unit box", "raw", "z-scored"}
        Scaled by the least and largest number of the whole table, left alone, or by columns.
    pooled : {"memberships", "unit box", "400 to 700"}
        The start of the pooled rows: random memberships, or centres.
    federated : {"integers", "unit box"}
        The start of the federation: integers of [-10, 10), or centres in the unit box.
    reseed : bool
        Whether the k-means of avg_2 starts anew in each round, as before 17 December 2021.
    most_k : int
        The largest K tried; the least is 2.
    """

    rows: Literal["unit box", "raw", "z-scored"] = "unit box"
    pooled: Start = "memberships"
    federated: Start = "integers"
    reseed: bool = False
    most_k: int = 3


PROGRAM = Setting()

Method = tuple[str, int]
CENTRAL: Method = ("central", 1)
DEFAULT: Method = ("our default", 10)
FEDERATED: list[Method] = [(averaging, n) for averaging in AVERAGINGS for n in SITES]
METHODS = [CENTRAL, *FEDERATED]

INDEX, GAP, PLAIN_GAP, CIRCLES = range(4)
"""What a run leaves for each K: the index, the gap with standardised and with plain distances,
and whether it did not converge."""

NARROW = 16
"""Our default, exact steps from 32 starts, is run on the first 40 sets, up to so many columns."""


def scaled(X: Array, true: Array, how: str) -> tuple[Array, Array]:
    """Rows and true centres on the same scale.

    Examples
    --------
    >>> scaled(np.array([[0.0], [4.0]]), np.array([[1.0]]), "unit box")[1]
    array([[0.25]])
    """
    if how == "raw":
        return X, true
    if how == "z-scored":
        mean, deviation = X.mean(axis=0), X.std(axis=0)
        return (X - mean) / deviation, (true - mean) / deviation
    least, width = X.min(), X.max() - X.min()
    return (X - least) / width, (true - least) / width


def start(how: Start, k: int, X: Array, rng: Generator) -> Array:
    """The first centres, (k, d)."""
    shape = (k, X.shape[1])
    if how == "unit box":
        return rng.uniform(size=shape)
    if how == "integers":
        return rng.integers(-10, 10, shape).astype(float)
    if how == "400 to 700":
        return rng.integers(400, 700, shape).astype(float)
    u = rng.uniform(size=(len(X), k))
    weights = (u / u.sum(axis=1, keepdims=True)) ** M
    return np.asarray(weights.T @ X / weights.sum(axis=0)[:, None])


def g2_run(job: tuple[Setting, tuple[Method, ...], int, int], seed: int) -> list[list[list[float]]]:
    """One set by all methods: by method and K the index, both gaps, and whether it circles."""
    setting, methods, dimensions, deviation = job
    X, true = scaled(g2_rows(dimensions, deviation), true_centers(dimensions), setting.rows)
    whole, found = pooled_engine(X), []
    for method, n_sites in methods:
        site = np.random.default_rng([seed, n_sites]).integers(0, n_sites, len(X))
        asked = engine(X, site)
        tried = range(2, setting.most_k + 1)
        states = [clustered(setting, method, asked, X, site, k, seed) for k in tried]
        found.append([measured(state, whole, true) for state in states])
    return found


def measured(state: State, whole: LocalEngine, true: Array) -> list[float]:
    gaps = [knowledge_gap(state.centers, true, distance=d) for d in ("seuclidean", "euclidean")]
    with np.errstate(divide="ignore"):  # centres that coincide: the index is infinite
        return [fuzzy_db(state, whole), *gaps, float(not state.converged)]


def clustered(
    setting: Setting,
    method: str,
    asked: LocalEngine,
    X: Array,
    site: NDArray[Any],
    k: int,
    seed: int,
) -> State:
    if method == "our default":
        with warnings.catch_warnings():  # of centres that coincide: they do in many of these sets
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = FederatedFuzzyCMeans(k, m=M, random_state=seed).fit(X, sites=site)
        return State(model.cluster_centers_, np.ones(k), converged=True)
    rng = np.random.default_rng([seed, k, len(np.unique(site))])
    if method == "central":
        found = converged(X, start(setting.pooled, k, X, rng))
        return State(found, np.ones(k), converged=True)
    averaging: Literal["avg_1", "avg_2"] = "avg_1" if method == "avg_1" else "avg_2"
    ffcm = LeanFFCM(
        M, averaging, local="converge", support="u", relative=False, reseed=setting.reseed
    )
    first = State.at(start(setting.federated, k, X, rng))
    return run(ffcm, asked, first, seed=seed, max_rounds=MOST_ROUNDS).state


def sets_of(quick: bool) -> list[tuple[int, int]]:
    if quick:
        return [(d, s) for d in DIMENSIONS[:3] for s in (10, 50, 100)]
    return [(d, s) for d in DIMENSIONS for s in DEVIATIONS]


@lru_cache(maxsize=16)
def g2_runs(quick: bool, setting: Setting = PROGRAM, runs: int = 10) -> dict[Method, Array]:
    """By method: (sets times runs, K, index and so on)."""
    jobs = [(setting, tuple(METHODS), d, s) for d, s in sets_of(quick)]
    found = np.concatenate(runs_of(g2_run, jobs, min(runs, 2) if quick else runs))
    return {method: found[:, i] for i, method in enumerate(METHODS)}


@lru_cache(maxsize=1)
def default_runs(quick: bool) -> Array:
    """Our default on the narrow sets, one run of each: (sets, K, index and so on)."""
    jobs = [(PROGRAM, (DEFAULT,), d, s) for d, s in sets_of(quick) if d <= NARROW]
    return np.concatenate(runs_of(g2_run, jobs, 1))[:, 0]


def chosen(runs: Array) -> NDArray[np.intp]:
    """Which K has the least index, by its place."""
    return np.asarray(runs[:, :, INDEX].argmin(axis=1))


def correct(runs: Array) -> float:
    """Per cent of the runs that choose two clusters."""
    return float(100 * (chosen(runs) == 0).mean())
