"""The cost of noise: from noise multipliers to epsilon at a delta, and back.

One answer with noise multiplier s is a Gaussian mechanism of sensitivity 1 / s. Many of them, each
possibly dependent on the ones before, are together exactly one with 1 / s^2 = sum of 1 / s_i^2 (J.
Dong, A. Roth, W. Su, Gaussian differential privacy, J. R. Stat. Soc. B 84, 2022, corollary 3.3). So
only one number is added up: rho = sum of 1 / (2 s_i^2), which is also the cost in zero-concentrated
differential privacy (M. Bun, T. Steinke, TCC 2016, proposition 1.6; of the discrete Gaussian: C.
Canonne, G. Kamath, T. Steinke, NeurIPS 2020, theorem 4). Epsilon at a delta is then computed from
the privacy loss distribution by dp-accounting, which always rounds to the safe side.

Neighbouring tables differ by one record or, for persons with several, by ``group_size`` records:
then the sensitivity is ``group_size`` times as large, and rho ``group_size``^2 times. If a column
says whose the records are, the first ``group_size`` of each person count, and neighbouring tables
differ by one person, with any records. A single record more may then swap which ones count: it
changes an answer by as much as two, and rho 4 times as much covers it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import scipy  # scipy loads its modules lazily, so that commands start fast

from fedcluster.errors import InputError


@dataclass(frozen=True, slots=True)
class Budget:
    """Privacy budget for all answers together: epsilon at a delta, for a number of records.

    Parameters
    ----------
    epsilon : float
        The privacy loss, which is exceeded with probability at most delta.
    delta : float
        The probability; choose it far below 1 / number of records.
    group_size : int, default=1
        The largest number of records of one person: the guarantee covers all of them together.

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
    tolerance = 1e-9  # relative excess of a cost over a budget in rho that is rounding

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 100:
            raise InputError(f"epsilon must be above 0 and at most 100, not {self.epsilon}")
        if not 1e-15 <= self.delta < 0.1:
            raise InputError(f"delta must be from 1e-15 to below 0.1, not {self.delta}")
        if type(self.group_size) is not int or self.group_size < 1:
            raise InputError(f"group_size must be a whole number from 1, not {self.group_size}")

    @property
    def rho(self) -> float:
        """The largest rho, for one record, within the budget; rho is additive."""
        return _most_rho(self.epsilon, self.delta) / self.group_size**2

    def allows(self, rho: float) -> bool:
        """Return whether a cost of rho is within the budget."""
        return rho <= self.rho * (1 + self.tolerance)

    def spent(self, rho: float) -> float:
        """Return the epsilon of a cost rho, at the delta and for the group size of the budget."""
        return epsilon_of(rho * self.group_size**2, self.delta)


def rho_of(noises: Iterable[float | None]) -> float:
    """Return the zCDP parameter rho of answers with these noise multipliers, inf without noise.

    Examples
    --------
    >>> rho_of([2.0, 2.0]), rho_of([]), rho_of([2.0, None])
    (0.25, 0.0, inf)
    """
    return math.fsum(math.inf if noise is None else 1 / (2 * noise**2) for noise in noises)


def noise_of(rho: float) -> float:
    """Return the noise multiplier of an answer that costs rho.

    Examples
    --------
    >>> noise_of(0.125)
    2.0
    """
    return math.sqrt(1 / (2 * rho))


@lru_cache(maxsize=64)
def epsilon_of(rho: float, delta: float) -> float:
    """Return epsilon at a delta for Gaussian answers that cost rho together.

    Raises
    ------
    InputError
        If the packages for accounting are not installed.

    Examples
    --------
    >>> round(epsilon_of(rho_of([3.0]), 1e-6), 3)
    1.448
    """
    if not rho:
        return 0.0
    # Value of rho above which epsilon is too large to be useful.
    if rho > 1e3:
        return math.inf
    # standard deviation of the privacy loss; epsilon is rounded up by a thousandth of it
    spread = math.sqrt(2 * rho)
    loss = _distributions().from_gaussian_mechanism(
        1 / spread, value_discretization_interval=spread * 1e-3
    )
    return float(loss.get_epsilon_for_delta(delta))


@cache
def _most_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho whose epsilon at delta is at most epsilon.

    The exact value (B. Balle, Y.-X. Wang, ICML 2018, theorem 8) is reduced until dp-accounting
    agrees.
    """

    def log_excess(mu: float) -> float:
        above, below = (
            scipy.special.log_ndtr(mu / 2 - epsilon / mu),
            scipy.special.log_ndtr(-mu / 2 - epsilon / mu),
        )
        return float(above + np.log1p(-np.exp(min(epsilon + below - above, -1e-12))))

    slack = math.log(1 / delta)
    # lower bound by Bun and Steinke
    least = math.sqrt(2) * (math.sqrt(epsilon + slack) - math.sqrt(slack))
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
        # optional extra, and slow to import
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as error:
        raise InputError(
            'privacy budgets need more packages: pip install "fedcluster[privacy]"'
        ) from error
    return privacy_loss_distribution


@dataclass(frozen=True, slots=True)
class PrivacySpent:
    """Privacy cost of the answers to a job, as in ``privacy`` of ``model.json``.

    Parameters
    ----------
    epsilon, delta : float
        The privacy loss, which is exceeded with probability at most delta.
    group_size : int
        The largest number of records of a person to whom this applies.
    rho : float
        The cost for one record in zero-concentrated differential privacy, which is additive.
    answers : int
        Number of answers with noise of each site.
    budget : float
        The epsilon that may be spent.
    """

    epsilon: float
    delta: float
    group_size: int
    rho: float
    answers: int
    budget: float

    def plain(self) -> dict[str, Any]:
        """Return the account as JSON-compatible values."""
        return asdict(self)
