"""Ledger of what a site has spent of its privacy budget, over all runs, in one SQLite file.

A question is charged before it is answered, in one transaction that is on the disk before any row
is read. So a crash in between costs an answer that nobody got, and never gives one for nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import fsum
from pathlib import Path
from typing import Any

from fedcluster.errors import InputError
from fedcluster.privacy._accounting import Budget
from fedcluster.privacy._ledger import PolicyError

WAIT = 60.0
"""Seconds to wait for another process that writes."""

TABLE = (
    "CREATE TABLE IF NOT EXISTS spent (id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, "
    "run TEXT NOT NULL, exchange INTEGER NOT NULL, answers INTEGER NOT NULL, "
    "rho REAL NOT NULL CHECK (rho > 0))"
)


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
    path : Path
        The file; several processes may use it.
    budget : Budget
        What all answers to all runs together may cost.
    known : callable, optional
        Returns the rho that was spent by other records, such as the log of what left. A file that
        says less was emptied, replaced or removed, and admits nothing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = BudgetLedger(Path(folder) / "privacy.sqlite", Budget(1.0, 1e-6))
    ...     ledger.charge({"run": "a", "exchange": 0}, answers=2, rho=0.01)
    ...     round(ledger.spent, 3)
    0.575
    """

    def __init__(self, path: Path, budget: Budget, known: Callable[[], float] = float) -> None:
        self.path, self.budget, self._known = path, budget, known

    def charge(self, header: Mapping[str, Any], *, answers: int, rho: float) -> None:
        """Write down what the answers to one question cost, before they are computed.

        Raises
        ------
        PolicyError
            If they cost more than is left; then nothing is charged.
        InputError
            If the file cannot be written or lacks charges, or rho is no cost.
        """
        if not answers:
            return
        if not rho > 0:
            raise InputError(f"an answer cannot cost rho {rho}")
        known = self._known()
        with self._opened() as file:
            file.execute("BEGIN IMMEDIATE")
            spent = fsum(each for (each,) in file.execute("SELECT rho FROM spent"))
            self._check_whole(spent, known)
            if not self.budget.allows(spent + rho):
                file.execute("ROLLBACK")
                raise PolicyError(self._refusal(spent, rho))
            now = datetime.now(UTC).isoformat(timespec="seconds")
            row = (now, str(header.get("run")), int(header["exchange"]), answers, rho)
            file.execute(
                "INSERT INTO spent (time, run, exchange, answers, rho) VALUES (?, ?, ?, ?, ?)", row
            )
            file.execute("COMMIT")

    @property
    def charges(self) -> list[Charge]:
        """All charges, the oldest first."""
        if not self.path.exists():
            return []
        with self._opened() as file:
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
        """Check that the file holds all that other records know of.

        Raises
        ------
        InputError
            If not, with what to do.
        """
        self._check_whole(self.rho, self._known())

    def _check_whole(self, spent: float, known: float) -> None:
        if spent < known:  # equal sums of equal charges: both are correctly rounded
            raise InputError(
                f"{self.path} says that rho {spent:g} is spent of the privacy budget, and the log "
                f"of what left that it was {known:g}: put back a copy, or what is spent would be "
                "forgotten"
            )

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file; each transaction is begun and ended by hand, and is on the disk then."""
        try:
            with closing(sqlite3.connect(self.path, WAIT, isolation_level=None)) as file:
                file.execute("PRAGMA synchronous = FULL")
                file.execute(TABLE)
                yield file
        except sqlite3.Error as error:
            raise InputError(
                f"{self.path} cannot be used: {error}; it says what is spent of the privacy budget"
            ) from error

    def _refusal(self, spent: float, rho: float) -> str:
        """Return why a question is refused; what was spent depends on no row."""
        epsilon, delta = self.budget.epsilon, self.budget.delta
        return (
            f"the privacy budget of epsilon {epsilon:g} at delta {delta:g} would be exceeded: "
            f"{self.budget.spent(spent):.3g} is spent, and these answers would make it "
            f"{self.budget.spent(spent + rho):.3g}"
        )
