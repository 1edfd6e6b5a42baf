"""The policy of a site: what it may be asked, decided before any row is read.

Everything that no step declares is denied (`fedcluster.core.ranges`). A refusal names the broken
rule to the coordinator, never a value; the site's log gets the question's own values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcluster.core import PlannedStep, RowTransform, Task
from fedcluster.core.ranges import Sizes, Whole, allowed_of
from fedcluster.errors import InputError, PolicyError
from fedcluster.options.refusals import refused
from fedcluster.privacy.budget import rho_of
from fedcluster.privacy.disclosure import Disclosure
from fedcluster_app.wire.ledger import BudgetLedger, Ledger, PolicyLimits

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
    except Exception as error:  # of a step of one's own
        name = type(task.step).__name__
        raise PolicyError(f"{name} does not tell the shape of an answer") from error
    return (allowed_of(task.step).lines(task.step) if lines is None else lines) * (sums + 1)
