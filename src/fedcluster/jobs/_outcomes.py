"""Procedure of the comparison of clusters by outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from fedcluster.core import Engine, PlannedStep, SiteInfo
from fedcluster.errors import InputError
from fedcluster.jobs._of_model import OfModel
from fedcluster.jobs._procedure import JobResult, PlanContext
from fedcluster.metrics.columns import ClusterCells, ClusterColumns
from fedcluster.preprocessing import Category, NumericColumn, Preprocessor, agree
from fedcluster.preprocessing.spec import MOST_CATEGORIES
from fedcluster.recipes.outcomes import comparing
from fedcluster.recipes.profiling import assigned_rows
from fedcluster.recipes.specifications import smallest_of
from fedcluster.rounds import Plan, with_preprocessing


class CompareProcedure(OfModel):
    """Procedure of a comparison of clusters by outcomes."""

    def check(self, sites: Sequence[SiteInfo] = ()) -> None:
        """Raise an error for a comparison that is not possible, in general or for these sites."""
        super().check(sites)
        if not self.job.outcomes:
            raise InputError("name an outcome to compare the clusters by")
        if made := [name for name in self.job.columns if name in self.model.columns]:
            raise InputError(
                f"outcome {made[0]!r} was clustered by, and clusters always differ in what made "
                "them: name a column that is not in the model"
            )

    def _steps(self) -> Iterator[PlannedStep]:
        """Yield the steps that the comparison asks."""
        yield from (ClusterColumns, ClusterCells)

    def informed_by(self, engine: Engine) -> Self:
        """Return the procedure, with the kinds of the outcomes as known or as reported by sites.

        Raises
        ------
        InputError
            If an outcome is missing at a site, is of another kind there, or has too many texts.
        """
        job = self.job
        if job.levels is None:
            sites = engine.introduce(columns=True, texts=(), steps=self.steps())
            described = {site.name: site.columns for site in sites if site.answered}
            found = agree(described, job.columns).columns
            levels = {each.name: each.levels if each.kind == "text" else None for each in found}
            job = replace(job, levels=levels)
        for name, own in job.levels.items():
            if own is not None and not 1 < len(own) <= MOST_CATEGORIES:
                raise InputError(
                    f"outcome {name!r} has {len(own)} texts that its sites tell: name a column "
                    f"of numbers, or of 2 to {MOST_CATEGORIES} texts that enough rows share"
                )
        return type(self)(job)

    def plan(self, at: PlanContext) -> Plan[Any]:
        """Return the plan of questions about the rows."""
        self.check(at.sites)
        model, levels = self.model, self.job.levels or {}
        columns = [
            NumericColumn(name) if levels[name] is None else Category(name, tuple(levels[name]))
            for name in self.job.columns
        ]
        reported = Preprocessor(tuple(columns), missing="keep")
        how = assigned_rows(model.state, model.assigned_by, model.preprocessor, reported)
        k, least = len(model.centers) or len(model.weights), smallest_of(at.sites)
        plan = comparing(k, reported, self.job.time, names=model.names, smallest=least)
        return with_preprocessing(plan, how)

    def whole_plan(self, at: PlanContext) -> Plan[JobResult]:
        """Plan the comparison."""
        return JobResult((yield from self.plan(at)))
