"""What the papers compare with."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from skfuzzy.cluster import cmeans
from sklearn.cluster import KMeans

from fedcluster import Client, Data, LocalEngine, State, run
from fedcluster.algorithms import FedAvg, KFed
from fedcluster.kernels import memberships
from reproduction.baselines import (
    central_fuzzy_cmeans,
    central_kmeans,
    informed_kfed,
    random_start_kmeans,
)
from reproduction.datasets import ffcm_case, plane16, triebe

OBJECTIVES = 4  # the place of J_m after each iteration in what scikit-fuzzy returns


@pytest.mark.parametrize("seed", range(3))
def test_central_k_means_is_as_good_as_scikit_learn_s(seed: int) -> None:
    X = plane16().X
    theirs = KMeans(16, n_init=10, random_state=seed).fit(X)
    ours = central_kmeans(X, 16, seed=seed)
    assert ours.inertia == pytest.approx(theirs.inertia_, rel=0.005)
    assert ours.inertia == pytest.approx(cdist(X, ours.centers, "sqeuclidean").min(1).sum())


@pytest.mark.parametrize("case", ["1b", "2", "3a", "3d"])
def test_central_fuzzy_c_means_is_the_best_that_scikit_fuzzy_finds(case: str) -> None:
    """J_m at most that of its best of five runs, and it stays where we end."""
    X, m, k = ffcm_case(case).X, 1.1 if case == "2" else 2.0, 3 if case < "3" else 4
    ours = central_fuzzy_cmeans(X, k, m, tol=1e-9)
    first = np.random.default_rng(0).uniform(size=(5, k, len(X)))
    objectives = [
        cmeans(X.T, k, m, 1e-9, 1000, init=u / u.sum(axis=0))[OBJECTIVES][-1] for u in first
    ]
    assert ours.last_pass.errors.sum() <= min(objectives) * (1 + 1e-9)
    stays = cmeans(X.T, k, m, 0, 5, init=memberships(X, ours.centers, m).T)
    assert_allclose(stays[0], ours.centers, atol=1e-8)
    assert_allclose(stays[OBJECTIVES], ours.last_pass.errors.sum(), rtol=1e-12)


def test_the_best_of_many_runs_is_kept() -> None:
    X = ffcm_case("2").X
    objectives = [
        central_fuzzy_cmeans(X, 5, 1.1, n_init=n, seed=3).last_pass.errors.sum()
        for n in range(1, 7)
    ]
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[-1] < objectives[0]


def test_federated_averaging_over_all_sites_is_random_start_k_means() -> None:
    """With alpha = 1, as the paper's figure 1 has it for C = 1; new places are the same, too."""
    train, _ = triebe(1)
    sites = LocalEngine(Client(name, Data(X)) for name, (X, _) in train.sites.items())
    fedavg = FedAvg(schedule="constant")
    federated = run(fedavg, sites, fedavg.random_start(5, 1, 7), seed=7, max_rounds=60).state
    central = random_start_kmeans(train.X, 5, rounds=60, seed=7)
    assert_allclose(federated.centers, central, rtol=1e-12)


def test_informed_kfed_tries_every_k_l_and_keeps_the_best() -> None:
    """From K_l = 4, the fewest that give 16 centres at five sites; 3 runs of each, whose seeds
    are known. The score is the known one of each run: best in the mean is K_l = 9.
    """
    rows = plane16()
    sites = LocalEngine(Client(name, Data(X), ()) for name, (X, _) in rows.sites.items())
    known = {
        run(KFed(16, local), sites, seed=seed).state.centers.tobytes(): (local, seed)
        for local in range(4, 17)
        for seed in (5, 6, 7)
    }
    seen = []

    def score(state: State) -> float:
        local, seed = known[state.centers.tobytes()]
        seen.append((local, seed))
        return {9: 2.0, 12: 30.0 if seed == 5 else -20.0}.get(local, 0.0)

    assert informed_kfed(sites, 16, score, runs=3, seed=5) == KFed(16, local_clusters=9)
    assert_array_equal(seen, [(local, seed) for local in range(4, 17) for seed in (5, 6, 7)])
