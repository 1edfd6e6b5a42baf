"""What a coordinator has asked of a site, and what it cost of the site's privacy budget.

Questions to a site are counted, and bounded per message, run and day. A ledger records what a site
has spent of its privacy budget over all runs.

A question is charged before it is answered, in one transaction that is on the disk before any row
is read. So a crash in between may charge for an answer that nobody received, but no answer is ever
free.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from math import fsum
from typing import Any

from fedcluster.core import RowTransform
from fedcluster.errors import InputError, PolicyError
from fedcluster.privacy.budget import Budget
from fedcluster_app.records import Names, Positive
from fedcluster_app.trust.site_state import SiteState, get, last, put


@dataclass(frozen=True, slots=True)
class PolicyLimits:
    """Bounds on requests, the table ``[policy]`` of a site file; they narrow those of steps.

    Parameters
    ----------
    max_clusters : int
        The largest number of clusters; states may have twice as many centres.
    max_tasks : int
        The largest number of tasks in a message.
    max_numbers : int
        The largest number of values in a message, and in the answer to it.
    max_rounds_per_run, max_rounds_per_day, max_runs_per_day : int
        The largest numbers of questions, and of started runs; days are in UTC.
    max_preparations : int
        The largest number of ways to prepare the rows in one run, one of which may have principal
        components.
    steps : tuple of str
        The allowed steps; if empty, all steps that the site knows.
    denied : tuple of str
        The steps that are excluded.
    """

    max_clusters: Positive = 500
    max_tasks: Positive = 4000
    max_numbers: Positive = 12_500_000
    max_rounds_per_run: Positive = 2000
    max_rounds_per_day: Positive = 10_000
    max_runs_per_day: Positive = 200
    max_preparations: Positive = 8
    steps: Names = ()
    denied: Names = ()


def _today() -> date:
    return datetime.now(UTC).date()


class Ledger:
    """Count of a coordinator's questions, which persists when the site's program ends.

    Parameters
    ----------
    state : SiteState, optional
        The storage of the count; without one, it ends with the program.
    today : callable
        Returns the day. A day before the last one counted is treated as the last one.
    """

    longest_run = 64  # largest number of characters in the name of a run
    kept_runs = 1000  # number of runs whose questions are remembered

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
            If it is one too many, or is repeated; then it is not counted.
        InputError
            If the state of the site cannot be used.
        """
        run, exchange = header.get("run"), header.get("exchange")
        if not (isinstance(run, str) and run.isprintable() and 0 < len(run) <= self.longest_run):
            raise PolicyError(f"run must be a name of at most {self.longest_run} characters")
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
            put(file, "asked", run, after, self.kept_runs)
            put(file, "days", day, (rounds + 1, begun), 1)


def _admitted(
    before: Mapping[str, Any] | None,
    exchange: Any,
    preparations: Sequence[RowTransform],
    limits: PolicyLimits,
) -> dict[str, Any]:
    """Return the counts of a run after one more question."""
    known = before or {"rounds": 0, "last": -1, "preparations": [], "principal": []}
    if type(exchange) is not int or exchange < 0:
        raise PolicyError("exchange must be a whole number of at least 0")
    if exchange <= known["last"]:
        raise PolicyError("exchange must rise within a run; if the site restarted, resume the run")
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
    """One charge: its time, question and run, the number of answers, and their cost."""

    time: str
    run: str
    exchange: int
    answers: int
    rho: float


class BudgetLedger:
    """Ledger of one site's privacy budget.

    Parameters
    ----------
    state : SiteState
        The storage of the ledger.
    budget : Budget
        The budget for all answers in all runs together.
    known : callable, optional
        Returns the rho spent according to other records, such as the log of what left. If the state
        has less, it was replaced by an older one, and all questions are refused.

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
        """Record the cost of the answers to one question before they are computed.

        Raises
        ------
        PolicyError
            If the cost exceeds what is left; then nothing is charged.
        InputError
            If the state cannot be used or lacks charges, or rho is not a valid cost.
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
        """Return all charges, oldest first."""
        if not self.state.is_there:
            return []
        with self.state.transaction() as file:
            every = "SELECT time, run, exchange, answers, rho FROM spent ORDER BY id"
            return [Charge(*row) for row in file.execute(every)]

    @property
    def rho(self) -> float:
        """Return the total cost of all charges."""
        return fsum(each.rho for each in self.charges)

    @property
    def left(self) -> float:
        """Return the rho that is not spent."""
        return max(self.budget.rho - self.rho, 0.0)

    @property
    def spent(self) -> float:
        """Return the epsilon of all charges, at the delta and for the group size of the budget."""
        return self.budget.spent(self.rho)

    def check(self) -> None:
        """Check that the state has all charges that other records have.

        Raises
        ------
        InputError
            If not; the message says what to do.
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
