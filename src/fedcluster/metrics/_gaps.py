"""Mixtures of normal distributions over the values that rows have.

Z. Ghahramani & M. I. Jordan, Supervised learning from incomplete data via an EM approach, Adv.
Neural Inf. Process. Syst. 6, 1994: with o and m the columns that a row has and lacks, its density
is N(x_o; mu_o, S_oo), and the expected missing values are

    x_m = mu_m + S_mo S_oo^-1 (x_o - mu_o),   of covariance   S_mm - S_mo S_oo^-1 S_om.

Rows that lack the same columns are processed together.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log, pi

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats, Rows
from fedcluster.kernels.em import Densities, Moments, log_densities


class PresentValues:
    """Mixture components restricted to the values that rows have.

    Parameters
    ----------
    model : Densities
        The components for complete rows.
    log_noise : float, optional
        The log density of noise, the last component; a row with missing values gets its part, by
        the number of its columns.
    """

    at_once = 1 << 20  # number of differences from means that are held at a time

    def __init__(self, model: Densities, log_noise: float | None = None) -> None:
        self.model, self.log_noise = model, log_noise or 0.0
        self.k, self.p = model.means.shape
        factors = model.factors
        self.diagonal = factors.ndim == 2
        if self.diagonal:
            self.variances = 1.0 / np.maximum(factors**2, 1e-300)
        else:
            self.roots = np.linalg.inv(np.triu(factors))
            covariances = np.swapaxes(self.roots, 1, 2) @ self.roots
            self.covariances = np.broadcast_to(covariances, (self.k, self.p, self.p))

    def parts(self, X: Rows) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
        """Yield the indices of rows with the same numeric columns, and these columns."""
        there = ~np.isnan(X[:, self.model.numeric])
        patterns, mine = np.unique(there, axis=0, return_inverse=True)
        order = np.argsort(mine.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(mine.ravel(), minlength=len(patterns)))
        size = max(1, self.at_once // max(1, self.k * self.p))
        for pattern, some in zip(patterns, np.split(order, ends[:-1]), strict=True):
            for start in range(0, len(some), size):
                yield some[start : start + size], pattern

    def logs(self, X: Rows) -> Floats:
        """Return the log density of each row in each component, including shares, (n, k + e).

        That of a row has the same bits whatever other rows there are.
        """
        logs = np.empty((len(X), len(self.model.offsets)))
        for places, there in self.parts(X):
            logs[places] = log_densities(X[places], self._restricted(there))
        return logs

    def _restricted(self, there: NDArray[np.bool_]) -> Densities:
        """Return the components for rows that have these numeric columns only.

        With S_j = R_j^T R_j and Q T the QR decomposition of the columns of R_j that rows have, the
        covariance of these is T^T T, and T^-1 is the factor of its inverse.
        """
        model, lacking = self.model, int((~there).sum())
        if not lacking:
            return model
        if self.diagonal or lacking == self.p:
            factors = model.factors[:, there] if self.diagonal else np.ones((self.k, 0))
        else:
            factors = np.linalg.inv(np.linalg.qr(self.roots[:, :, there], mode="r"))
        offsets = model.offsets + 0.0
        offsets[: self.k] += (
            lacking / 2 * log(2 * pi) + _log_dets(factors) - _log_dets(model.factors)
        )
        offsets[self.k :] -= self.log_noise * lacking / self.p
        return model._replace(
            means=model.means[:, there],
            factors=factors,
            offsets=offsets,
            numeric=model.numeric[there],
        )

    def _seen(self, X: Rows, there: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return differences from the means, (n, k, o), and precisions of the present columns."""
        numbers = X[:, self.model.numeric[there]].astype(np.float64)
        apart = numbers[:, None, :] - self.model.means[None, :, there]
        if self.diagonal:
            return apart, np.empty(0)
        return apart, np.linalg.inv(self.covariances[:, there][:, :, there])

    def moments(self, X: Rows, logs: Floats, tau: Floats, weights: Floats) -> Moments:
        """Return the sums of one step of expectation and maximisation, as `em_pass` does.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Rows.
        logs : ndarray of shape (n,)
            The log density of each row.
        tau : ndarray of shape (n, k + e)
            The probability of each component.
        weights : ndarray of shape (n,)
            The weight of each row.
        """
        k, p, model = self.k, self.p, self.model
        weighed = weights[:, None] * tau
        tallies = np.array([weighed.sum(axis=0), tau[weights > 0].sum(axis=0), logs @ weighed])
        first, second = np.zeros((k, p)), np.zeros((k, p) if self.diagonal else (k, p, p))
        for places, there in self.parts(X):
            own = weighed[places, :k]
            apart, marginal = self._seen(X[places], there)
            whole, left = self._expected(apart, marginal, there)
            first += np.einsum("nk,nki->ki", own, whole)
            if self.diagonal:
                second += np.einsum("nk,nki->ki", own, whole**2)
                second += own.sum(axis=0)[:, None] * left
            else:
                second += np.einsum("nk,nki,nkj->kij", own, whole, whole, optimize=True)
                second += own.sum(axis=0)[:, None, None] * left
        if not self.diagonal and len(model.factors) == 1:
            second = second.sum(axis=0, keepdims=True)
        return Moments(tallies, first, second, weighed.T @ X[:, model.other].astype(np.float64))

    def _expected(
        self, apart: Floats, marginal: Floats, there: NDArray[np.bool_]
    ) -> tuple[Floats, Floats]:
        """Return expected differences from the means, (n, k, p), and the remaining variance."""
        whole = np.zeros((len(apart), self.k, self.p))
        whole[:, :, there] = apart
        if self.diagonal:
            return whole, np.where(there, 0.0, self.variances)
        left = np.zeros((len(self.covariances), self.p, self.p))
        if not there.all():
            across = self.covariances[:, ~there][:, :, there]
            slopes = across @ marginal
            whole[:, :, ~there] = np.einsum("kij,nkj->nki", slopes, apart)
            lacking = self.covariances[:, ~there][:, :, ~there]
            inner = np.ix_(np.arange(len(left)), ~there, ~there)
            left[inner] = lacking - slopes @ np.swapaxes(across, 1, 2)
        return whole, left


def _log_dets(factors: Floats) -> Floats:
    """Return the logs of the determinants of factors, (k,) or (1,)."""
    along = factors if factors.ndim == 2 else np.einsum("kii->ki", factors)
    logs: Floats = np.log(np.maximum(np.abs(along), 1e-300)).sum(axis=1)
    return logs
