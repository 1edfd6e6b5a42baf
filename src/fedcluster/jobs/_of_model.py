"""Procedures of jobs about the clusters of a model: its evaluation and its profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, Self

from fedcluster.algorithms import FFCM, Lloyd
from fedcluster.core import Engine, Metric, PlannedStep, RowTransform, SiteInfo, State, check_step
from fedcluster.errors import InputError
from fedcluster.jobs._procedure import JobResult, PlanContext, Procedure
from fedcluster.metrics import Inertia
from fedcluster.metrics.external import Agreement
from fedcluster.model.assigned_rows import AssignedRows
from fedcluster.model.file import Model
from fedcluster.model.profiles import Profiles
from fedcluster.options.choices import imported, made, written
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import Preprocessor
from fedcluster.recipes import evaluation
from fedcluster.recipes.combinations import OF_SITES, check, check_totals, without_offsets
from fedcluster.recipes.profiling import assigned_rows, crossed, profile_steps, profiles_of
from fedcluster.recipes.scores import evaluation_steps, objective_value
from fedcluster.recipes.specifications import smallest_of
from fedcluster.rounds import Plan, gather, with_preprocessing


class OfModel(Procedure):
    """Procedure of a job about the clusters of a model."""

    @cached_property
    def model(self) -> Model:
        """The model of the job, read from its file if a file is given."""
        return self._read(self.job.model)

    def _read(self, model: Any) -> Model:
        """Return a model, read from its file; beside more columns, its own have names."""
        read: Model = model if isinstance(model, Model) else Model.load(model, self.job.algorithms)
        more = getattr(self.job, "beside", None) or getattr(self.job, "outcomes", None)
        return read if more is None else replace(read, preprocessor=read.by_name)

    @property
    def preprocessing(self) -> Preprocessor | None:
        """The preprocessing that was fitted with the model."""
        return self.model.preprocessor

    def check(self, sites: Sequence[SiteInfo] = ()) -> None:
        """Raise an error for a job that is not possible, in general or for these sites."""
        check(self.job, sites, OF_SITES)
        what = without_offsets(sites)
        models = (self.model, getattr(self, "other", None)) if what else ()
        if any(model is not None and model.adjusts for model in models):
            raise refused("adjust-site", what=what)

    def steps(self) -> tuple[PlannedStep, ...]:
        """Return the steps that the job asks whatever the rows and the sites are."""
        algorithm = self.model.assigned_by
        return (*([] if algorithm is None else [algorithm]), *self._steps())

    def _steps(self) -> Iterator[PlannedStep]:
        """Yield the steps that profiles of the clusters ask."""
        yield from profile_steps(len(self.model.centers), self.model.preprocessor)

    def profiles(self, sites: Sequence[SiteInfo]) -> Plan[Profiles]:
        """Plan the profiles of the model's clusters, under their names in the model."""
        model = self.model
        return profiles_of(
            model.state,
            model.assigned_by,
            model.preprocessor,
            model.columns,
            names=model.names,
            smallest=smallest_of(sites),
        )


class ProfileProcedure(OfModel):
    """Procedure of profiles of a model's clusters."""

    def plan(self, at: PlanContext) -> Plan[Any]:
        """Return the plan of questions about the rows."""
        self.check(at.sites)
        return self.profiles(at.sites)

    def whole_plan(self, at: PlanContext) -> Plan[JobResult]:
        """Plan the profiles, which are also the value of the job."""
        profiles = yield from self.plan(at)
        return JobResult(profiles, profiles=profiles)


class EvaluateProcedure(OfModel):
    """Procedure of an evaluation."""

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The user's own metrics."""
        return tuple(map(_metric, self.job.metrics))

    @cached_property
    def objective(self) -> Metric | None:
        """Objective of the model's algorithm; None for k-means, or if it is unknown."""
        algorithm = self.model.assigned_by or self._own_algorithm()
        m = self.model.algorithm.get("m")
        if algorithm is None and m:
            algorithm = FFCM(float(m))
        objective = Inertia() if algorithm is None else algorithm.objective()
        return None if objective == Inertia() else _metric(objective)

    @cached_property
    def other(self) -> Model | None:
        """The model beside that of the job, if there is one."""
        return None if self.job.beside is None else self._read(self.job.beside)

    def _own_algorithm(self) -> Any:
        """Return the algorithm of the clusters if it is one of the job's, else None."""
        name = self.model.algorithm.get("name")
        k = {"n_clusters": len(self.model.weights)}
        parameters = dict(name) if isinstance(name, Mapping) else k
        given: dict[str, Any] = {}
        name = str(parameters.pop("name", name))
        with suppress(ValueError):
            name, given = written(name)
        parameters, name = parameters | given, name.rpartition(".")[2]
        own = self.job.algorithms
        for kind in (imported(written(a)[0]) if isinstance(a, str) else a for a in own):
            if kind.__name__ == name:
                known = {each.name for each in fields(kind)}
                return kind(**{key: value for key, value in parameters.items() if key in known})
        return None

    def check(self, sites: Sequence[SiteInfo] = ()) -> None:
        """Raise an error for an evaluation that is not possible, in general or for these sites."""
        super().check(sites)
        check_totals([each for each in self.job.metrics if not isinstance(each, str)], sites)

    def _steps(self) -> Iterator[PlannedStep]:
        """Yield the steps that the scores ask, and those of the profiles if requested."""
        yield from self.metrics
        yield from [] if self.objective is None else [self.objective]
        yield from evaluation_steps(self.model.algorithm.get("m"), labels=self.job.labels)
        yield from super()._steps() if self.job.profile else ()
        if self.other is not None:
            every = (self.model.assigned_by, self.other.assigned_by)
            yield from [Agreement, *(Lloyd if each is None else each for each in every)]

    def informed_by(self, engine: Engine) -> Self:
        """Return the procedure, with the labels to compare with, as known or as reported by sites.

        Raises
        ------
        InputError
            If a site has no labels, or no site may disclose one.
        """
        job = replace(self.job, metrics=self.metrics)
        if job.labels or job.classes is not None:
            sites = engine.introduce(labels=True, steps=self.steps())
            by_site = {site.name: site.labels for site in sites if site.answered}
            lacking = [site for site, classes in by_site.items() if classes is None]
            if lacking:
                raise refused("labels-none", sites=", ".join(lacking))
        if job.labels:
            every = {label for classes in by_site.values() for label in classes or ()}
            if not every:
                raise InputError(
                    "no site may tell a label: each stands for fewer rows than its site's limits "
                    "ask for; leave out --labels"
                )
            job = replace(job, classes=tuple(sorted(every)))
        return type(self)(job)

    def plan(self, at: PlanContext) -> Plan[Any]:
        """Return the plan of questions about the prepared rows."""
        self.check(at.sites)
        model, job = self.model, self.job
        state = model.state.standing
        return evaluation(
            State(state.centers, state.weights, memory=state.memory),
            m=model.algorithm.get("m"),
            classes=job.classes,
            complete=not job.labels,
            metrics=job.metrics,
            # reference rows are compared by the nearest centre only
            n_references=0 if model.assigned_by else job.n_references,
            seed=at.seed,
        )

    def whole_plan(self, at: PlanContext) -> Plan[JobResult]:
        """Plan the scores and, in the same rounds, what else is requested."""
        plans: list[Plan[Any]] = [
            with_preprocessing(self.plan(at), self._row_transform(at.preprocessor))
        ]
        objective = None if self.objective in self.job.metrics else self.objective
        if objective is not None:
            value = objective_value(objective, self.model.state)
            plans.append(with_preprocessing(value, at.preprocessor))
        if self.job.profile:
            plans.append(self.profiles(at.sites))
        if self.other is not None:
            plans.append(crossed(*map(_assigned, (self.model, self.other))))
        scores, *more = yield from gather(plans)
        beside = None if self.other is None else more.pop()
        profiles = more.pop() if self.job.profile else None
        scores = scores if objective is None else scores | more[0]
        return JobResult(scores, profiles=profiles, beside=beside)

    def _row_transform(self, preprocessor: Preprocessor | None) -> RowTransform | None:
        """Return the transform at the sites: preparation and, if needed, assignment of rows."""
        if self.model.assigned_by is None:
            return preprocessor
        if not len(self.model.centers):
            raise InputError("the model has no centres, which its scores are about")
        return assigned_rows(self.model.state, self.model.assigned_by, preprocessor)


def _assigned(model: Model) -> AssignedRows:
    """Return how a model prepares and assigns rows."""
    return assigned_rows(model.state, model.assigned_by, model.preprocessor)


def _metric(metric: Any) -> Metric:
    """Return a metric, which may be given by its dotted name.

    Raises
    ------
    InputError
        If it does not exist, or is incomplete.
    """
    try:
        found: Metric = made(metric) if isinstance(metric, str) else metric
        check_step(found, Metric)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise InputError(f"metric {metric!r} cannot be used: {error}") from error
    return found
