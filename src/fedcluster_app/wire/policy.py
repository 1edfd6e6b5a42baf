"""The policy of a site: what it may be asked, decided before any row is read.

Everything that no step declares is denied (`fedcluster.core.ranges`). A refusal names the broken
rule to the coordinator, never a value; the site's log gets the question's own values.

Questions are counted, and bounded per message, run and day. A ledger records what a site has spent
of its privacy budget over all runs. A question is charged before it is answered, in one transaction
that is on the disk before any row is read. So a crash in between may charge for an answer that
nobody received, but no answer is ever free.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from math import fsum
from typing import Any

from fedcluster.core import PlannedStep, RowTransform, Task
from fedcluster.core.ranges import Sizes, Whole, allowed_of
from fedcluster.errors import InputError, PolicyError
from fedcluster.options.refusals import refused
from fedcluster.privacy.budget import Budget, rho_of
from fedcluster.privacy.disclosure import Disclosure
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
        if spent < known:  # equal charges give equal sums, as both are correctly rounded
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


SEEDS = Whole(0, 2**63 - 1)


class Policy:
    """The policy of a site.

    Parameters
    ----------
    limits : PolicyLimits
        The restrictions of the site on what steps declare.
    ledger : Ledger, optional
        The counter of rounds and runs; by default in memory.
    budget : BudgetLedger, optional
        The privacy budget; with one, only questions with noise are answered, and each is charged.
    disclosure : Disclosure, optional
        The rules of the site on what leaves it; by default those of its budget alone.
    """

    def __init__(
        self,
        limits: PolicyLimits | None = None,
        ledger: Ledger | None = None,
        budget: BudgetLedger | None = None,
        disclosure: Disclosure | None = None,
    ) -> None:
        self.limits = limits or PolicyLimits()
        self._ledger, self._budget = ledger or Ledger(), budget
        own = Disclosure(budget=None if budget is None else budget.budget)
        self._disclosure = disclosure or own

    @property
    def refuses(self) -> str:
        """Return the key of the combination with noise that is always refused; "" if none is."""
        return "noise-unbudgeted" if self._disclosure.budget is None else ""

    @property
    def left(self) -> float:
        """The rho that is left of the privacy budget, -1 without one; it depends on no row."""
        return -1.0 if self._budget is None else self._budget.left

    def check_tasks(self, headers: Any) -> None:
        """Check the number of tasks before any of them is read.

        Raises
        ------
        PolicyError
            If there are too many, or they are not a list.
        """
        if not isinstance(headers, list | tuple) or len(headers) > self.limits.max_tasks:
            raise PolicyError(f"at most {self.limits.max_tasks:,} tasks in a message, as a list")

    def check_planned(self, steps: Sequence[PlannedStep]) -> None:
        """Check all planned steps of a run before its first request is answered.

        Raises
        ------
        PolicyError
            With the first step that will be refused.
        """
        for step in steps:
            name = step.__name__ if isinstance(step, type) else type(step).__name__
            try:
                self._check_name(name)
                if not isinstance(step, type):
                    sizes = {"max_clusters": self.limits.max_clusters}
                    allowed_of(step).check_fields(step, sizes)
            except ValueError as error:
                raise PolicyError(f"{name}: {error}") from error

    def check(
        self,
        header: Mapping[str, Any],
        tasks: Sequence[Task] = (),
        columns: Sequence[str] = (),
        width: int = 0,
    ) -> None:
        """Check a question, and count it, without reading any row.

        Parameters
        ----------
        header : mapping
            The run and the number of the question in it, as received.
        tasks : sequence of Task
            The tasks.
        columns : sequence of str
            The names of the columns that are asked about; empty if they have no names.
        width : int
            The number of these columns.

        Raises
        ------
        PolicyError
            With the rule that the question breaks.
        """
        self._check_disclosure(header, tasks)
        preparations = {id(task.preprocessor): task.preprocessor for task in tasks}
        for how in preparations.values():
            _check_preparation(how, columns)
        received = sum(self._check_assigned(how) for how in preparations.values() if how)
        sent = 0
        for task in tasks:
            name = type(task.step).__name__
            how = task.preprocessor
            d, gaps = width, header.get("raw") is True
            if how is not None:
                d, gaps = how.n_columns_out, how.missing in ("keep", "ignore")
            try:
                if gaps and not allowed_of(task.step).gaps:
                    raise ValueError("rows must have no missing value")
                self._check_task(name, task, {"max_clusters": self.limits.max_clusters, "d": d})
            except ValueError as error:
                raise PolicyError(f"{name}: {error}") from error
            sent += _answered(task, d)
            received += _asked(task)
        if max(received, sent) > self.limits.max_numbers:
            most = self.limits.max_numbers
            raise PolicyError(f"at most {most:,} numbers in a message, and in the answer to it")
        self._ledger.admit(header, [p for p in preparations.values() if p], self.limits)
        self._charge(header, tasks)

    def _charge(self, header: Mapping[str, Any], tasks: Sequence[Task]) -> None:
        """Record the cost of the answers to a question, if there is a budget."""
        if self._budget is not None and tasks:
            rho = rho_of(task.noise for task in tasks)
            self._budget.charge(header, answers=len(tasks), rho=rho)

    def _check_disclosure(self, header: Mapping[str, Any], tasks: Sequence[Task]) -> None:
        """Raise an error for answers that may not leave, whatever the rows are."""
        for task in tasks:
            try:
                self._disclosure.check(task)
                if task.noise is not None and self.refuses:
                    raise refused(self.refuses)
                how = task.preprocessor
                if how is not None and how.offset_rows < self._disclosure.least:
                    raise refused("adjust-site", what="a limit that its model does not know")
            except InputError as error:
                exact = f"{type(task.step).__name__}: " if task.noise is None else ""
                raise PolicyError(f"{exact}{error}") from error
        if self._disclosure.budget is not None and {"described", "labels"} & header.keys():
            raise PolicyError("under a privacy budget, no kinds, texts or labels are told")

    def _check_name(self, name: str) -> None:
        if name in self.limits.denied or (self.limits.steps and name not in self.limits.steps):
            raise ValueError("the step is not among those that this site allows")

    def _check_assigned(self, how: RowTransform) -> int:
        """Check the assignment of prepared rows like a question; return its number of values."""
        for task, d in how.assignments:
            name, sizes = type(task.step).__name__, {"max_clusters": self.limits.max_clusters}
            try:
                self._check_task(name, task, {**sizes, "d": d})
            except ValueError as error:
                raise PolicyError(f"{name}: {error}") from error
        return sum(_asked(task) for task, _ in how.assignments)

    def _check_task(self, name: str, task: Task, sizes: Sizes) -> None:
        """Check one task, whose rows have ``d`` columns."""
        self._check_name(name)
        if not SEEDS.holds(task.seed, sizes):
            raise ValueError(f"seed must be {SEEDS}")
        if task.resampled is not None and not SEEDS.holds(task.resampled, sizes):
            raise ValueError(f"resampled must be {SEEDS}")
        allowed = allowed_of(task.step)
        allowed.check_fields(task.step, sizes)
        allowed.check_state(task.state, sizes)


def _check_preparation(how: RowTransform | None, columns: Sequence[str]) -> None:
    if how is None:
        return
    try:
        how.check(columns)
    except (ValueError, TypeError) as error:
        raise PolicyError(f"preparation: {error}") from error


def _asked(task: Task) -> int:
    """Return the number of values that travel with a task."""
    state = task.state
    arrays = (state.centers, state.weights, *state.memory.values())
    return sum(array.size for array in arrays)


def _answered(task: Task, width: int) -> int:
    """Return the largest number of values in the answer to a task."""
    try:
        lines, sums = task.step.answer_shape(task.state, width)
    except Exception as error:  # a user's own step may raise anything
        name = type(task.step).__name__
        raise PolicyError(f"{name} does not tell the shape of an answer") from error
    return (allowed_of(task.step).lines(task.step) if lines is None else lines) * (sums + 1)
