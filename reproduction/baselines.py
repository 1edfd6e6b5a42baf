"""Baselines of the papers, for simulation only.

Each needs what federated clustering does without: all rows in one place, or their true clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import numpy as np

from fedcluster.algorithms import FedAvg, KFed
from fedcluster.core import Data, Engine, Floats, Rows, State
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.kernels import kmeans, kmeans_plusplus
from fedcluster.kernels.fuzzy import FuzzyFit, fuzzy_cmeans
from fedcluster.kernels.iteration import LloydFit
from fedcluster.rounds import run

__all__ = ["central_fuzzy_cmeans", "central_kmeans", "informed_kfed", "random_start_kmeans"]


def central_kmeans(X: Rows, n_clusters: int, *, n_init: int = 10, seed: int = 0) -> LloydFit:
    """Run k-means on pooled rows: the best of several runs from k-means++.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The pooled rows.
    n_clusters : int
        k.
    n_init : int, default=10
        Runs, of which the one of least inertia is kept.
    seed : int, default=0
        Makes the seeds.

    Examples
    --------
    >>> fit = central_kmeans(np.array([[0.0], [1.0], [8.0], [9.0]]), 2)
    >>> np.sort(fit.centers, axis=0).ravel(), fit.inertia
    (array([0.5, 8.5]), 1.0)
    """
    return kmeans(X, n_clusters, rng=np.random.default_rng(seed), n_init=n_init)


def central_fuzzy_cmeans(
    X: Rows,
    n_clusters: int,
    m: float = 2.0,
    *,
    n_init: int = 5,
    tol: float = 1e-4,
    seed: int = 0,
) -> FuzzyFit:
    """Run fuzzy c-means on pooled rows: the best of several runs from k-means++ (Bezdek, 1981).

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The pooled rows.
    n_clusters : int
        k.
    m : float, default=2
        The fuzzifier, above 1.
    n_init : int, default=5
        Runs, of which the one of least J_m is kept.
    tol : float, default=1e-4
        A run ends when the Frobenius norm of the change of its memberships falls below this, or
        after 1000 iterations, as in Stallmann & Wilbik's program.
    seed : int, default=0
        Makes the seeds.

    Examples
    --------
    >>> fit = central_fuzzy_cmeans(np.array([[0.0], [1.0], [9.0], [10.0]]), 2)
    >>> np.sort(fit.centers, axis=0).ravel().round(2)
    array([0.5, 9.5])
    """
    rng = np.random.default_rng(seed)
    starts = [X[kmeans_plusplus(X, n_clusters, rng=rng)] for _ in range(n_init)]
    fits = [fuzzy_cmeans(X, start, m, tol=tol) for start in starts]
    return min(fits, key=lambda fit: float(fit.last_pass.errors.sum()))


def random_start_kmeans(
    X: Rows,
    n_clusters: int,
    *,
    rounds: int = 200,
    reassign_share: float = 0.01,
    reassign_after: int = 20,
    low: float = 0.0,
    high: float | None = None,
    seed: int = 0,
) -> Floats:
    """Run Triebe & Rajagopal's central k-means: Lloyd from one random start in a box; (k, d).

    A centre without rows stays; one of less than ``reassign_share`` of the rows for
    ``reassign_after`` rounds in a row gets a new random place. All rounds are done. Without
    k-means++ and without restarts it often ends in a poor optimum.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The pooled rows.
    n_clusters : int
        k.
    rounds : int, default=200
        T.
    reassign_share, reassign_after, low, high
        As in `FedAvg`: it is the same algorithm at a single site, with alpha = beta = 1.
    seed : int, default=0
        Makes the start and the new places.

    Examples
    --------
    >>> X = np.array([[0.9], [1.1], [1.9], [2.1]])
    >>> np.sort(random_start_kmeans(X, 2), axis=0).ravel()
    array([1., 2.])
    """
    lloyd = FedAvg(
        schedule="constant",
        reassign_share=reassign_share,
        reassign_after=reassign_after,
        low=low,
        high=high,
    )
    pooled = LocalEngine([Client("pooled", Data(X), filters=())])
    start = lloyd.random_start(n_clusters, X.shape[1], seed)
    return run(lloyd, pooled, start, seed=seed, max_rounds=rounds).state.centers


def informed_kfed(
    engine: Engine,
    n_clusters: int,
    score: Callable[[State], float],
    *,
    runs: int = 1,
    seed: int = 0,
) -> KFed:
    """Return k-FED with the K_l that scores best: an oracle, for the score sees true clusters.

    The "informed" baseline of Garst & Reinders (ICPR 2024): every K_l is tried.

    Parameters
    ----------
    engine : Engine
        The sites.
    n_clusters : int
        K.
    score : callable
        How good a state is, more is better; in the paper a mean ARI with the true clusters.
    runs : int, default=1
        Runs of each K_l over which the score is averaged.
    seed : int, default=0
        Makes the first run, ``seed + 1`` the second, and so on.

    Returns
    -------
    KFed
        To be run as any algorithm.

    Examples
    --------
    >>> from fedcluster.kernels import nearest
    >>> sites = {"a": np.array([[0.0], [0.2], [5.0], [5.2]]), "b": np.array([[9.0], [9.2], [9.4]])}
    >>> engine = LocalEngine(Client(name, Data(X)) for name, X in sites.items())
    >>> X, y = np.concatenate(list(sites.values())), np.array([0, 0, 1, 1, 2, 2, 2])
    >>> def right_pairs(state):
    ...     label = nearest(X, state.centers)[0]
    ...     return ((label[:, None] == label) == (y[:, None] == y)).sum()
    >>> informed_kfed(engine, 3, right_pairs)
    KFed(n_clusters=3, local_clusters=2)
    """

    def mean_score(kfed: KFed) -> float:
        return fmean(score(run(kfed, engine, seed=seed + i).state) for i in range(runs))

    fewest = -(-n_clusters // len(engine.introduce()))
    return max((KFed(n_clusters, local) for local in range(fewest, n_clusters + 1)), key=mean_score)
