"""The procedure of a fit under a privacy budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedcluster.core import Engine, Filter, PlannedStep
from fedcluster.errors import InputError
from fedcluster.jobs._kinds import FitProcedure
from fedcluster.jobs._procedure import JobReport, Watch, drawn
from fedcluster.options.refusals import refused
from fedcluster.recipes import private as budgets
from fedcluster.recipes.private import private_clustering
from fedcluster.recipes.specifications import Fit, PrivateFit
from fedcluster.rounds import run_plan, with_preprocessing


class PrivateFitProcedure(FitProcedure):
    """Procedure of a fit under a privacy budget."""

    fit: PrivateFit

    def __init__(self, job: PrivateFit) -> None:
        super().__init__(job)
        self.rows_per_person = job.group_size

    def steps(self) -> tuple[PlannedStep, ...]:
        """Return the steps that the job asks whatever the rows and the sites are."""
        return budgets.PRIVATE_STEPS

    def limits(self, smallest: int | None, *, alone: bool) -> list[Filter]:
        """Return no limits, which would hold nothing back."""
        self.check()
        if smallest is not None:
            raise refused("epsilon-limits")
        return []

    def public_columns(self, chosen: Sequence[str] | None) -> tuple[str, ...]:
        """Return the chosen columns, or those that have bounds.

        Raises
        ------
        InputError
            If there are none.
        """
        bounds = self.fit.bounds
        named = tuple(chosen or (bounds if isinstance(bounds, Mapping) else ()))
        if not named:
            raise InputError(
                "under a privacy budget no site is asked which columns it has: name them in "
                "--set 'prepare.bounds.age=[0, 120]', or by --columns"
            )
        return named

    def with_public(
        self,
        columns: Sequence[str] | None,
        ranges: Mapping[str, tuple[float, float]],
        n_rows: float | None,
    ) -> Fit:
        """Return the fit with the number of rows, and with the ranges as bounds if it has none."""
        stated = {name: ranges[name] for name in columns or ranges if name in ranges}
        return replace(self.fit, bounds=self.fit.bounds or stated or None, n_rows=n_rows)

    def run(
        self, engine: Engine, columns: Sequence[str], watch: Watch | None, enough: int | None
    ) -> JobReport:
        """Carry out the fit, with noise on every answer and an account of the cost."""
        budget, box = budgets.budget_of(self.fit), budgets.box_of(self.fit, columns)
        accounted, seed = budgets.AccountedEngine(engine, budget), drawn(self.fit.seed)
        sites = accounted.introduce(steps=self.steps())
        self.check(sites)
        plan = private_clustering(
            replace(self.fit, seed=seed),
            budget,
            n_rows=budgets.n_rows_of(self.fit, sites),
            n_columns=len(columns),
            n_noises=budgets.n_noises_of(sites),
        )
        outcome = run_plan(with_preprocessing(plan, box), accounted, seed=seed, watch=watch)
        sites = engine.introduce()
        return JobReport(self.fit, outcome, tuple(columns), sites, box, privacy=accounted.spent)
