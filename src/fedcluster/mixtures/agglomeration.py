"""Leaves merged successively into clusters of any shape, to start mixtures of every size.

C. Fraley, Algorithms for model-based Gaussian hierarchical clustering, SIAM J. Sci. Comput. 20,
1998: of all pairs of clusters, those two are merged that reduce the classification likelihood the
least. With n, Q and h the weight, the scatter and the counts of levels of a cluster, its negative
is

    n / 2 log det ((Q + nu P) / (n + nu))  -  sum of h log p,      p = (h + m / 2) / (n + 1/2),

m being the shares over all rows. Deviation: clusters are shrunk towards P with a weight of nu = d +
2 rows; P is half the pooled covariance of the leaves and half that of all rows times L^(-2/d),
which is that of a leaf if L leaves shared the volume. The other criterion is Ward's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats, coarse

Criterion = Literal["likelihood", "ward"]
Clusters = dict[int, NDArray[np.intp]]


@dataclass(slots=True, eq=False)
class Parts:
    """Clusters of leaves: weights (n,), means and scatters of numbers, counts of each text.

    Scatters are (n, p, p), or (n, p) if only those of single columns are used.
    """

    weights: Floats
    means: Floats
    scatters: Floats
    counts: Sequence[Floats]

    def joined(self, i: int, others: NDArray[np.intp]) -> Parts:
        """Return the clusters that cluster i would form with each of others."""
        n, m = self.weights[i], self.weights[others]
        apart = self.means[others] - self.means[i]
        factor = n * m / (n + m)
        pull = factor[:, None] * apart
        alone = self.scatters.ndim == 2
        scatters = pull * apart if alone else pull[:, :, None] * apart[:, None, :]
        scatters += self.scatters[i] + self.scatters[others]
        weights = n + m
        return Parts(
            weights,
            self.means[i] + apart * (m / weights)[:, None],
            scatters,
            [each[i] + each[others] for each in self.counts],
        )

    def replace(self, i: int, cluster: Parts) -> None:
        """Replace cluster i by the single cluster in ``cluster``."""
        self.weights[i], self.means[i] = cluster.weights[0], cluster.means[0]
        self.scatters[i] = cluster.scatters[0]
        for mine, given in zip(self.counts, cluster.counts, strict=True):
            mine[i] = given[0]


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """Negative classification likelihood of clusters, or their inertia.

    Parameters
    ----------
    criterion : {"likelihood", "ward"}
        The criterion; Ward's takes clusters with scatters of single columns.
    prior : ndarray of shape (p, p) or (p,)
        P, or its variances, which are also the units of Ward's criterion.
    shares : sequence of ndarray
        The shares of the levels of each text over all rows.
    total : float
        The weight of all rows.
    """

    criterion: Criterion
    prior: Floats
    shares: Sequence[Floats]
    total: float
    at_once = 1 << 15
    """Number of second moments of joined clusters that are held at once, so that a cache holds
    them."""

    @classmethod
    def among(cls, parts: Parts, criterion: Criterion) -> Loss:
        """Return the loss of clusters of the leaves ``parts``."""
        total = max(float(parts.weights.sum()), 1e-300)
        shares = [each.sum(axis=0) / total for each in parts.counts]
        return cls(criterion, _prior(parts), shares, total)

    def of(self, parts: Parts) -> Floats:
        """Return the loss of each cluster, (n,)."""
        loss = self._numbers(parts.weights, parts.scatters)
        for counts, shares in zip(parts.counts, self.shares, strict=True):
            own = (counts + shares / 2) / (counts.sum(axis=1, keepdims=True) + 0.5)
            loss = loss - (counts * np.log(np.maximum(own, 1e-12))).sum(axis=1)
        return loss

    def gained(self, parts: Parts, own: Floats, i: int, others: NDArray[np.intp]) -> Floats:
        """Return what joining cluster i with each of others adds to their losses, ``own`` (n,)."""
        some = max(1, self.at_once // max(parts.scatters[0].size, 1))
        places = range(0, len(others), some)
        joined = [self.of(parts.joined(i, others[at : at + some])) for at in places]
        return coarse(np.concatenate(joined) - own[i] - own[others], self.total)

    def _numbers(self, weights: Floats, scatters: Floats) -> Floats:
        p = scatters.shape[1]
        if not p:
            return np.zeros(len(weights))
        nu = p + 2.0
        if self.criterion == "ward":
            ward: Floats = scatters.sum(axis=1) / (2 * max(float(self.prior.mean()), 1e-300))
            return ward
        if scatters.ndim == 2:
            shrunk = (scatters + nu * self.prior) / (weights + nu)[:, None]
            along: Floats = weights / 2 * np.log(np.maximum(shrunk, 1e-300)).sum(axis=1)
            return along
        shrunk = scatters + nu * self.prior
        shrunk /= (weights + nu)[:, None, None]
        loss: Floats = weights / 2 * _log_det(shrunk)
        return loss


def agglomerated(parts: Parts, criterion: Criterion, most: int) -> Clusters:
    """Return the clusters (L,) of leaves, for each number of clusters from 1 to ``most``.

    Parameters
    ----------
    parts : Parts
        The leaves.
    criterion : {"likelihood", "ward"}
        The criterion by which a pair is chosen.
    most : int
        The largest number of clusters to return.
    """
    scatters = parts.scatters
    if criterion == "ward" and scatters.ndim == 3:
        scatters = np.einsum("lii->li", scatters)
    parts = Parts(
        parts.weights.copy(), parts.means.copy(), scatters.copy(),
        [each.copy() for each in parts.counts],
    )  # fmt: skip
    loss, count = Loss.among(parts, criterion), len(parts.weights)
    own, alive = loss.of(parts), np.ones(count, dtype=bool)
    costs = np.full((count, count), np.inf)
    for i in range(count - 1):
        later = np.arange(i + 1, count)
        costs[i, later] = costs[later, i] = loss.gained(parts, own, i, later)
    labels, found = np.arange(count), Clusters()
    for k in range(count, 0, -1):
        if k <= most:
            found[k] = np.unique(labels, return_inverse=True)[1].ravel()
        if k == 1:
            break
        i, j = sorted(map(int, divmod(int(costs.argmin()), count)))
        parts.replace(i, parts.joined(i, np.array([j])))
        alive[j], labels[labels == j] = False, i
        costs[j] = costs[:, j] = np.inf
        own[i] = loss.of(_one(parts, i))[0]
        others = np.flatnonzero(alive)
        others = others[others != i]
        if len(others):
            costs[i, others] = costs[others, i] = loss.gained(parts, own, i, others)
    return found


def _log_det(matrices: Floats) -> Floats:
    """Return the logs of the determinants of covariances (n, p, p), (n,)."""
    try:
        roots = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:  # singular but for rounding
        return np.asarray(np.linalg.slogdet(matrices)[1])
    return np.asarray(2.0 * np.log(np.einsum("nii->ni", roots)).sum(axis=1))


def _one(parts: Parts, i: int) -> Parts:
    """Return one of the clusters."""
    only = slice(i, i + 1)
    counts = [each[only] for each in parts.counts]
    return Parts(parts.weights[only], parts.means[only], parts.scatters[only], counts)


def _prior(parts: Parts) -> Floats:
    """Return the prior covariance P of the leaves."""
    count, p = parts.means.shape
    share = parts.weights / parts.weights.sum()
    within = parts.scatters.sum(axis=0) / parts.weights.sum()
    apart = parts.means - share @ parts.means
    between = (apart * share[:, None]).T @ apart
    if within.ndim == 1:
        between = np.diag(between)
    prior: Floats = within / 2 + (within + between) * count ** (-2 / max(p, 1)) / 2
    least = 1e-9 * float(np.abs(within + between).max(initial=0.0)) or 1e-300
    return prior + least * (np.eye(p) if within.ndim == 2 else 1.0)
