"""The local work of FFCM's program in one compiled loop: small sites, many iterations, m = 2.

The library's passes are made for many rows, with sums of full precision; most of their time here
would go into starting them. Centres agree to 1e-12 (tests/test_reproduction_fuzzy.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from fedcluster import Data, State
from fedcluster.algorithms import FFCM
from fedcluster.core import Floats


@dataclass(frozen=True, slots=True)
class LeanFFCM(FFCM):
    """FFCM with m = 2 whose sites converge in one compiled loop."""

    def _converged(self, state: State, data: Data) -> Floats:
        return converged(data.X.astype(np.float64, copy=False), state.centers, self.local_tol)


def converged(X: Floats, centers: Floats, tol: float = 1e-4, max_iter: int = 1000) -> Floats:
    """Return the centres of fuzzy c-means with m = 2 from given ones, (k, d).

    It stops as the program does: when the Frobenius norm of the change of all memberships falls
    below ``tol``.

    Examples
    --------
    >>> converged(np.array([[0.0], [1.0], [9.0], [10.0]]), np.array([[0.0], [1.0]])).round(2)
    array([[0.5],
           [9.5]])
    """
    found = np.array(centers, float)
    u = np.zeros((len(X), len(found)))
    sums, weights = np.empty_like(found), np.empty(len(found))
    _sweep(X, found, u, sums, weights)
    for _ in range(max_iter):
        found = sums / weights[:, None]
        if _sweep(X, found, u, sums, weights) < tol:
            break
    return found


@njit(cache=True, fastmath={"reassoc", "contract"})
def _sweep(X: Floats, centers: Floats, u: Floats, sums: Floats, weights: Floats) -> float:
    """Renew memberships, sums of u^2 x and of u^2; return how far memberships moved."""
    k, d = centers.shape
    sums[:], weights[:], moved = 0.0, 0.0, 0.0
    near = np.empty(k)
    for i in range(len(X)):
        for j in range(k):
            squares = 0.0
            for c in range(d):
                squares += (X[i, c] - centers[j, c]) ** 2
            near[j] = 1.0 / max(squares, 1e-300)
        near /= near.sum()
        for j in range(k):
            moved += (near[j] - u[i, j]) ** 2
            u[i, j] = near[j]
            weight = near[j] ** 2
            weights[j] += weight
            for c in range(d):
                sums[j, c] += weight * X[i, c]
    return np.sqrt(moved)
