"""Ledger of what a site has spent of its privacy budget, over all runs.

A question is charged before it is answered, in one transaction that is on the disk before any row
is read. So a crash in between costs an answer that nobody got, and never gives one for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import fsum
from typing import Any

from fedcluster.errors import InputError
from fedcluster.io._site_state import SiteState
from fedcluster.privacy._accounting import Budget
from fedcluster.privacy._ledger import PolicyError


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
