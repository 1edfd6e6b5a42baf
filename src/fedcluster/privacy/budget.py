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

Bounds on what a site is asked in one message, one run and one day, and the count of it.

Ledger of what a site has spent of its privacy budget, over all runs.

A question is charged before it is answered, in one transaction that is on the disk before any row
is read. So a crash in between costs an answer that nobody got, and never gives one for nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from hashlib import sha256
from math import fsum
from typing import Any

import numpy as np
import scipy  # its parts wait until they are used, as commands are to start at once

from fedcluster.core import RowTransform
from fedcluster.errors import InputError
from fedcluster.io.records import Names, Positive
from fedcluster.privacy.site_state import SiteState, get, last, put

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
    """Return the zCDP parameter rho of answers with these noise multipliers, inf without.

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


@lru_cache(maxsize=64)
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
            'privacy budgets need more packages: pip install "fedcluster[privacy]"'
        ) from error
    return privacy_loss_distribution


LONGEST_RUN = 64
"""Characters of the name of a run."""

KEPT_RUNS = 1000
"""Runs of which it is known what they asked."""


class PolicyError(ValueError):
    """Refusal of a question: the rule that it breaks, and nothing else."""

    def __str__(self) -> str:
        return f"by the policy of the site: {super().__str__()}"


@dataclass(frozen=True, slots=True)
class PolicyLimits:
    """Bounds on requests, the table ``[policy]`` of a site file; they narrow those of steps.

    Parameters
    ----------
    max_clusters : int
        The largest number of clusters; starts may have twice as many centres.
    max_tasks : int
        Tasks in a message.
    max_numbers : int
        Numbers in a message, and in the answer to it.
    max_rounds_per_run, max_rounds_per_day, max_runs_per_day : int
        Questions, and runs that are begun; a day is one of UTC.
    max_preparations : int
        Ways to prepare the rows in one run, of which one may have principal components.
    steps : tuple of str
        The steps that may be asked; without any, all that the site knows.
    denied : tuple of str
        Those of them that may not.
    """

    max_clusters: Positive = 500
    max_tasks: Positive = 4000
    max_numbers: Positive = 12_500_000
    max_rounds_per_run: Positive = 2000
    max_rounds_per_day: Positive = 10_000
    max_runs_per_day: Positive = 200
    max_preparations: Positive = 7
    steps: Names = ()
    denied: Names = ()


def _today() -> date:
    return datetime.now(UTC).date()


class Ledger:
    """Count of what a coordinator asks, which outlives the site's program.

    Parameters
    ----------
    state : SiteState, optional
        What holds it; without one, the count ends with the program.
    today : callable
        Returns the day. One before the last that was counted is counted as that.
    """

    def __init__(self, state: SiteState | None = None, today: Callable[[], date] = _today) -> None:
        self._state, self._today = state or SiteState(), today

    def admit(
        self,
        header: Mapping[str, Any],
        preparations: Sequence[RowTransform],
        limits: PolicyLimits,
    ) -> None:
        """Count one question of a run, before it is answered.

        Raises
        ------
        PolicyError
            If it is one too many, or comes again; it is not counted then.
        InputError
            If the state of the site cannot be used.
        """
        run, exchange = header.get("run"), header.get("exchange")
        if not isinstance(run, str) or not run.isprintable() or not 0 < len(run) <= LONGEST_RUN:
            raise PolicyError(f"run must be a name of at most {LONGEST_RUN} characters")
        with self._state.transaction() as file:
            counted, (rounds, begun) = last(file, "days") or ("", (0, 0))
            day = max(counted, self._today().isoformat())
            if day != counted:
                rounds = begun = 0
            before = get(file, "asked", run)
            after = _admitted(before, exchange, preparations, limits)
            begun += before is None
            if rounds >= limits.max_rounds_per_day:
                raise PolicyError(f"at most {limits.max_rounds_per_day:,} rounds a day")
            if begun > limits.max_runs_per_day:
                raise PolicyError(f"at most {limits.max_runs_per_day:,} runs a day")
            put(file, "asked", run, after, KEPT_RUNS)
            put(file, "days", day, (rounds + 1, begun), 1)


def _admitted(
    before: Mapping[str, Any] | None,
    exchange: Any,
    preparations: Sequence[RowTransform],
    limits: PolicyLimits,
) -> dict[str, Any]:
    """Return what a run has asked after one more question."""
    known = before or {"rounds": 0, "last": -1, "preparations": [], "principal": []}
    if type(exchange) is not int or exchange <= known["last"]:
        raise PolicyError("exchange must be a whole number that rises within a run")
    if known["rounds"] >= limits.max_rounds_per_run:
        raise PolicyError(f"at most {limits.max_rounds_per_run:,} rounds in a run")
    plain = [how.plain() for how in preparations]
    every = {*known["preparations"], *map(_digest, plain)}
    principal = {_digest(each["principal"]) for each in plain if each.get("principal") is not None}
    principal |= set(known["principal"])
    if len(every) > limits.max_preparations:
        raise PolicyError(f"at most {limits.max_preparations} preparations in a run")
    if len(principal) > 1:
        raise PolicyError("at most one preparation with principal components in a run")
    return {
        "rounds": known["rounds"] + 1,
        "last": exchange,
        "preparations": sorted(every),
        "principal": sorted(principal),
    }


def _digest(plain: Any) -> str:
    return sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Charge:
    """One charge: when, for which question of which run, how many answers, and what they cost."""

    time: str
    run: str
    exchange: int
    answers: int
    rho: float


class BudgetLedger:
    """Ledger of one site.

    Parameters
    ----------
    state : SiteState
        What holds it.
    budget : Budget
        What all answers to all runs together may cost.
    known : callable, optional
        Returns the rho that was spent by other records, such as the log of what left. A state that
        says less was replaced by an older one, and admits nothing.

    Examples
    --------
    >>> ledger = BudgetLedger(SiteState(), Budget(1.0, 1e-6))
    >>> ledger.charge({"run": "a", "exchange": 0}, answers=2, rho=0.01)
    >>> round(ledger.spent, 3)
    0.575
    """

    def __init__(
        self, state: SiteState, budget: Budget, known: Callable[[], float] = float
    ) -> None:
        self.state, self.budget, self._known = state, budget, known

    def charge(self, header: Mapping[str, Any], *, answers: int, rho: float) -> None:
        """Write down what the answers to one question cost, before they are computed.

        Raises
        ------
        PolicyError
            If they cost more than is left; then nothing is charged.
        InputError
            If the state cannot be used or lacks charges, or rho is no cost.
        """
        if not answers:
            return
        if not rho > 0:
            raise InputError(f"an answer cannot cost rho {rho}")
        known = self._known()
        with self.state.transaction() as file:
            spent = fsum(each for (each,) in file.execute("SELECT rho FROM spent"))
            self._check_whole(spent, known)
            if not self.budget.allows(spent + rho):
                raise PolicyError(self._refusal(spent, rho))
            now = datetime.now(UTC).isoformat(timespec="seconds")
            row = (now, str(header.get("run")), int(header["exchange"]), answers, rho)
            file.execute(
                "INSERT INTO spent (time, run, exchange, answers, rho) VALUES (?, ?, ?, ?, ?)", row
            )

    @property
    def charges(self) -> list[Charge]:
        """All charges, the oldest first."""
        if not self.state.is_there:
            return []
        with self.state.transaction() as file:
            every = "SELECT time, run, exchange, answers, rho FROM spent ORDER BY id"
            return [Charge(*row) for row in file.execute(every)]

    @property
    def rho(self) -> float:
        """Return the cost of all charges together."""
        return fsum(each.rho for each in self.charges)

    @property
    def spent(self) -> float:
        """Return epsilon of all charges, at the delta and for the group size of the budget."""
        return self.budget.spent(self.rho)

    def check(self) -> None:
        """Check that the state holds all that other records know of.

        Raises
        ------
        InputError
            If not, with what to do.
        """
        self._check_whole(self.rho, self._known())

    def _check_whole(self, spent: float, known: float) -> None:
        if spent < known:  # equal sums of equal charges: both are correctly rounded
            raise InputError(
                f"{self.state.path} says that rho {spent:g} is spent of the privacy budget, and "
                f"the log of what left that it was {known:g}: put back a copy, or what is spent "
                "would be forgotten"
            )

    def _refusal(self, spent: float, rho: float) -> str:
        """Return why a question is refused; what was spent depends on no row."""
        epsilon, delta = self.budget.epsilon, self.budget.delta
        return (
            f"the privacy budget of epsilon {epsilon:g} at delta {delta:g} would be exceeded: "
            f"{self.budget.spent(spent):.3g} is spent, and these answers would make it "
            f"{self.budget.spent(spent + rho):.3g}"
        )
