"""Fit under a privacy budget: what it needs, and the account of what was asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Unpack

import numpy as np

from fedcluster._specifications import Fit
from fedcluster.core import Answers, Engine, Introduction, SiteInfo, Task
from fedcluster.errors import InputError
from fedcluster.preprocessing import Preprocessor
from fedcluster.privacy._accounting import Budget, rho_of


@dataclass(frozen=True, slots=True)
class PrivacySpent:
    """What the answers to a job have cost, as ``privacy`` of ``model.json`` holds it.

    Parameters
    ----------
    epsilon, delta : float
        The privacy loss that is exceeded with probability delta at most.
    group_size : int
        The records that one person has, at most, to whom that applies.
    rho : float
        The same as zero-concentrated differential privacy counts it, of one record; it adds up.
    answers : int
        Answers with noise of each site.
    budget : float
        The epsilon that might be spent.
    """

    epsilon: float
    delta: float
    group_size: int
    rho: float
    answers: int
    budget: float

    def plain(self) -> dict[str, Any]:
        """Return the account as JSON can hold it."""
        return asdict(self)


class AccountedEngine:
    """Engine that asks another one, with noise only, and counts what that costs.

    Parameters
    ----------
    engine : Engine
        Who is asked.
    budget : Budget
        What all answers together may cost.

    Raises
    ------
    InputError
        Where a task has no noise, or would cost more than is left; then nothing is asked.
    """

    def __init__(self, engine: Engine, budget: Budget) -> None:
        self._engine, self._budget = engine, budget
        self._noises: list[float | None] = []

    def introduce(self, **asked: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return what the sites tell of themselves but for kinds, texts and labels."""
        if asked.get("columns") or asked.get("labels"):
            raise InputError("under a privacy budget, no kinds, texts or labels are asked for")
        return self._engine.introduce(**asked)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to the sites, and count them before."""
        noises = [*self._noises, *(task.noise for task in tasks)]
        if not self._budget.allows(rho_of(noises)):
            raise InputError(
                "a question has no noise, or not enough for the privacy budget: nothing was asked"
            )
        self._noises = noises
        return self._engine.ask(tasks, sites)

    @property
    def spent(self) -> PrivacySpent:
        """Return what was spent so far."""
        budget, rho = self._budget, rho_of(self._noises)
        return PrivacySpent(
            budget.spent(rho),
            budget.delta,
            budget.group_size,
            rho,
            len(self._noises),
            budget.epsilon,
        )


def budget_of(fit: Fit) -> Budget:
    """Return the privacy budget of a fit."""
    assert fit.epsilon is not None
    return Budget(float(fit.epsilon), float(fit.delta), int(fit.group_size))


def box_of(fit: Fit, columns: Sequence[str]) -> Preprocessor:
    """Return what brings rows into the box, by the public bounds of a fit.

    Raises
    ------
    InputError
        If a column has no bounds, or bounds have no column.
    """
    given = fit.bounds
    assert given is not None  # or the fit was refused
    if not isinstance(given, Mapping):
        low, high = (np.broadcast_to(np.asarray(side, float), len(columns)) for side in given)
        return Preprocessor.in_box(columns, low.tolist(), high.tolist())
    lacking = sorted(set(columns) - set(given)) or sorted(set(given) - set(columns))
    if lacking:
        raise InputError(
            f"bounds must name each of the columns {', '.join(columns)}, and no others: "
            f"{lacking[0]!r}"
        )
    sides = [given[name] for name in columns]
    return Preprocessor.in_box(columns, [low for low, _ in sides], [high for _, high in sides])


def n_noises_of(sites: Sequence[SiteInfo]) -> int:
    """Return about how many noises, each of them all that was asked for, a total of sites has.

    Examples
    --------
    >>> n_noises_of([SiteInfo(name) for name in "abc"])
    3
    >>> from fedcluster.core import Limit
    >>> told = (Limit("PrivacyBudget", (("epsilon", 1.0), ("colluders", 2))),)
    >>> n_noises_of([SiteInfo(name, told, secure=True) for name in "abcdefghij"])
    1
    """
    noises = 0.0
    for site in sites:
        told = {key: value for limit in site.limits for key, value in limit.parameters}
        together = site.secure and isinstance(told.get("colluders"), int)
        noises += 1 / max(len(sites) - told["colluders"], 1) if together else 1.0
    return max(round(noises), 1)


def n_rows_of(fit: Fit, sites: Iterable[SiteInfo]) -> float | None:
    """Return how many rows there are, as stated or as sites of this process tell; None unknown."""
    if fit.n_rows is not None:
        return float(fit.n_rows)
    told = [site.n_rows for site in sites]
    return None if None in told else float(sum(n for n in told if n is not None))
