"""What noise costs: from noise multipliers to epsilon at a delta, and back.

One answer with noise multiplier s is a Gaussian mechanism of sensitivity 1 / s. Many of them, each
about what the ones before said, are together exactly one with 1 / s^2 = sum of 1 / s_i^2 (J. Dong,
A. Roth, W. Su, Gaussian differential privacy, J. R. Stat. Soc. B 84, 2022, corollary 3.3). So one
number is added up: rho = sum of 1 / (2 s_i^2), which is also what zero-concentrated differential
privacy counts (M. Bun, T. Steinke, TCC 2016, proposition 1.6; of the discrete Gaussian: C. Canonne,
G. Kamath, T. Steinke, NeurIPS 2020, theorem 4). Epsilon at a delta is then read from the privacy
loss distribution by dp-accounting, whose rounding is always to the worse side.

Neighbours are tables of which one has one record more, or ``group_size`` records more, than the
other: that many times the sensitivity, and so ``group_size``^2 times rho.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy  # its parts wait until they are used, as commands are to start at once

from fedcluster.errors import InputError

MOST_RHO = 1e3
"""Above it, epsilon is beyond any use."""

TOLERANCE = 1e-9
"""Relative slack, for rounding, by which what is spent may be above a budget in rho."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What all answers together may cost: epsilon at a delta, for so many records.

    Parameters
    ----------
    epsilon : float
        The privacy loss that is not exceeded but with probability delta.
    delta : float
        That probability; choose it far below 1 / number of records.
    group_size : int, default=1
        The most records that one person has: the promise is about all of them together.

    Raises
    ------
    InputError
        If one of them is out of range.

    Examples
    --------
    >>> round(Budget(1.0, 1e-6).rho, 4), round(Budget(1.0, 1e-6, group_size=2).rho, 4)
    (0.028, 0.007)
    """

    epsilon: float
    delta: float
    group_size: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 100:
            raise InputError(f"epsilon must be above 0 and at most 100, not {self.epsilon}")
        if not 1e-15 <= self.delta < 0.1:
            raise InputError(f"delta must be from 1e-15 to below 0.1, not {self.delta}")
        if type(self.group_size) is not int or self.group_size < 1:
            raise InputError(f"group_size must be a whole number from 1, not {self.group_size}")

    @property
    def rho(self) -> float:
        """Largest rho, of one record, that stays within the budget; it adds up."""
        return _most_rho(self.epsilon, self.delta) / self.group_size**2

    def allows(self, rho: float) -> bool:
        """Return whether so much may be spent."""
        return rho <= self.rho * (1 + TOLERANCE)

    def spent(self, rho: float) -> float:
        """Return epsilon of so much rho, at the delta and for the group size of the budget."""
        return epsilon_of(rho * self.group_size**2, self.delta)


def rho_of(noises: Iterable[float | None]) -> float:
    """Return rho of one record, of answers with these noise multipliers; infinite without noise.

    Examples
    --------
    >>> rho_of([2.0, 2.0]), rho_of([]), rho_of([2.0, None])
    (0.25, 0.0, inf)
    """
    return math.fsum(math.inf if noise is None else 1 / (2 * noise**2) for noise in noises)


def noise_of(rho: float) -> float:
    """Return the noise multiplier of an answer that costs so much rho.

    Examples
    --------
    >>> noise_of(0.125)
    2.0
    """
    return math.sqrt(1 / (2 * rho))


def epsilon_of(rho: float, delta: float) -> float:
    """Return epsilon at a delta of Gaussian answers that cost rho together.

    Raises
    ------
    InputError
        If the packages that count are not installed.

    Examples
    --------
    >>> round(epsilon_of(rho_of([3.0]), 1e-6), 3)
    1.448
    """
    if not rho:
        return 0.0
    if rho > MOST_RHO:
        return math.inf
    # Below the grid of 1e-4, a finer one is needed for small losses.
    interval = min(1e-4, math.sqrt(2 * rho) * 1e-3)
    loss = _distributions().from_gaussian_mechanism(
        1 / math.sqrt(2 * rho), value_discretization_interval=interval
    )
    return float(loss.get_epsilon_for_delta(delta))


@cache
def _most_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho whose epsilon at delta is at most epsilon.

    The exact value (B. Balle, Y.-X. Wang, ICML 2018, theorem 8) is made smaller until dp-accounting
    agrees.
    """

    def log_excess(mu: float) -> float:
        above, below = (
            scipy.special.log_ndtr(mu / 2 - epsilon / mu),
            scipy.special.log_ndtr(-mu / 2 - epsilon / mu),
        )
        return float(above + np.log1p(-np.exp(min(epsilon + below - above, -1e-12))))

    slack = math.log(1 / delta)
    least = math.sqrt(2) * (math.sqrt(epsilon + slack) - math.sqrt(slack))  # by Bun and Steinke
    mu = scipy.optimize.brentq(
        lambda mu: log_excess(mu) - math.log(delta), least, 10 * (least + delta)
    )
    rho = float(mu**2 / 2)
    while (found := epsilon_of(rho, delta)) > epsilon:
        rho *= (epsilon / found) ** 2 * (1 - 1e-7)
    return rho


def _distributions() -> Any:
    """Return dp-accounting's module of privacy loss distributions."""
    try:
        from dp_accounting.pld import privacy_loss_distribution  # an extra, slow to import
    except ImportError as error:
        raise InputError(
            "privacy budgets need more packages: pip install 'fedcluster[privacy]'"
        ) from error
    return privacy_loss_distribution
