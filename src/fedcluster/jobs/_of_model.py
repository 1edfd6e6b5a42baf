"""Procedures of jobs about the clusters of a model: their scores, and what they look like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, Self

from fedcluster.algorithms import FFCM
from fedcluster.core import Engine, Metric, PlannedStep, RowTransform, SiteInfo, State, check_step
from fedcluster.errors import InputError
from fedcluster.jobs._procedure import Found, JobReport, Procedure, Stage
from fedcluster.metrics import Inertia
from fedcluster.metrics.objectives import MEANINGS
from fedcluster.model import Model
from fedcluster.model.profiles import Profiles
from fedcluster.options.choices import imported
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import Preprocessor
from fedcluster.recipes import evaluation
from fedcluster.recipes.combinations import OF_SITES, check, check_totals
from fedcluster.recipes.profiling import assigned_rows, profile_steps, profiles_of
from fedcluster.recipes.scores import evaluation_steps, objective_value
from fedcluster.recipes.specifications import smallest_of
from fedcluster.report.messages import better, meaning
from fedcluster.report.messages import objective as objective_line
from fedcluster.report.records import SiteRecord, plain
from fedcluster.rounds import Plan, gather, with_preprocessing


class OfModel(Procedure):
    """Procedure of a job about the clusters of a model."""

    @cached_property
    def model(self) -> Model:
        """The model of the job, read from its file where one is named."""
        job = self.job
        return job.model if isinstance(job.model, Model) else Model.load(job.model, job.algorithms)

    @property
    def preprocessing(self) -> Preprocessor | None:
        """How rows are prepared, which was fitted with the model."""
        return self.model.preprocessor

    def check(self, sites: Sequence[SiteInfo] = ()) -> None:
        """Refuse a job that makes no sense, or not for these sites."""
        check(self.job, sites, OF_SITES)

    def steps(self) -> tuple[PlannedStep, ...]:
        """Return the steps that the job asks whatever the rows and the sites are."""
        algorithm = self.model.assigned_by
        return (*([] if algorithm is None else [algorithm]), *self._steps())

    def _steps(self) -> Iterator[PlannedStep]:
        """Yield the steps that profiles of the clusters ask."""
        yield from profile_steps(len(self.model.centers), self.model.preprocessor)

    def profiles(self, sites: Sequence[SiteInfo]) -> Plan[Profiles]:
        """Plan the profiles of the model's clusters, under the names that it keeps."""
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

    file = "profiles.json"

    def plan(self, at: Stage) -> Plan[Any]:
        """Return what to ask about the rows."""
        self.check(at.sites)
        return self.profiles(at.sites)

    def whole_plan(self, at: Stage) -> Plan[Found]:
        """Plan the profiles, which are the value of the job, too."""
        profiles = yield from self.plan(at)
        return Found(profiles, profiles=profiles)

    def content(self, report: JobReport, records: Sequence[SiteRecord] = ()) -> dict[str, Any]:
        """Return what ``profiles.json`` and ``--json`` say of clusters, without the rounds."""
        return {"model": str(self.job.model), **report.described(), **report.account(records)}


class EvaluateProcedure(OfModel):
    """Procedure of an evaluation."""

    file = "scores.json"

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of one's own."""
        return tuple(map(_metric, self.job.metrics))

    @cached_property
    def objective(self) -> Metric | None:
        """What the algorithm of the model makes small; None of k-means, or if it is not known."""
        algorithm = self.model.assigned_by or self._own_algorithm()
        m = self.model.algorithm.get("m")
        if algorithm is None and m:
            algorithm = FFCM(float(m))
        objective = Inertia() if algorithm is None else algorithm.objective()
        return None if objective == Inertia() else _metric(objective)

    def _own_algorithm(self) -> Any:
        """Return the algorithm that found the clusters, if it is one of the job's, else None."""
        name = self.model.algorithm.get("name")
        k = {"n_clusters": len(self.model.weights)}
        parameters = dict(name) if isinstance(name, Mapping) else k
        name = str(parameters.pop("name", name)).rpartition(".")[2]
        for kind in (imported(a) if isinstance(a, str) else a for a in self.job.algorithms):
            if kind.__name__ == name:
                known = {each.name for each in fields(kind)}
                return kind(**{key: value for key, value in parameters.items() if key in known})
        return None

    def check(self, sites: Sequence[SiteInfo] = ()) -> None:
        """Refuse an evaluation that makes no sense, or not for these sites."""
        super().check(sites)
        check_totals([each for each in self.job.metrics if not isinstance(each, str)], sites)

    def _steps(self) -> Iterator[PlannedStep]:
        """Yield the steps that the scores ask, and the profiles where they are asked for."""
        yield from self.metrics
        yield from [] if self.objective is None else [self.objective]
        yield from evaluation_steps(self.model.algorithm.get("m"), labels=self.job.labels)
        yield from super()._steps() if self.job.profile else ()

    def informed_by(self, engine: Engine) -> Self:
        """Return the procedure; a comparison with labels with those known, or all that sites tell.

        Raises
        ------
        InputError
            If a site has none, or no site may tell one.
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

    def plan(self, at: Stage) -> Plan[Any]:
        """Return what to ask about the prepared rows."""
        self.check(at.sites)
        model, job = self.model, self.job
        return evaluation(
            State(model.centers, model.weights, memory=model.memory),
            m=model.algorithm.get("m"),
            classes=job.classes,
            complete=not job.labels,
            metrics=job.metrics,
            n_references=0 if model.assigned_by else job.n_references,  # theirs are the nearest
            seed=at.seed,
        )

    def whole_plan(self, at: Stage) -> Plan[Found]:
        """Plan the scores; in their rounds the value of what the fit made small, and profiles."""
        plans: list[Plan[Any]] = [
            with_preprocessing(self.plan(at), self._row_transform(at.preprocessor))
        ]
        objective = None if self.objective in self.job.metrics else self.objective
        if objective is not None:
            value = objective_value(objective, self.model.state)
            plans.append(with_preprocessing(value, at.preprocessor))
        if self.job.profile:
            plans.append(self.profiles(at.sites))
        scores, *more = yield from gather(plans)
        profiles = more.pop() if self.job.profile else None
        return Found(scores if objective is None else scores | more[0], profiles=profiles)

    def _row_transform(self, preprocessor: Preprocessor | None) -> RowTransform | None:
        """Return what sites do to their rows: prepare them and maybe assign them to clusters."""
        if self.model.assigned_by is None:
            return preprocessor
        if not len(self.model.centers):
            raise InputError("the model has no centres, which its scores are about")
        return assigned_rows(self.model.state, self.model.assigned_by, preprocessor)

    def content(self, report: JobReport, records: Sequence[SiteRecord] = ()) -> dict[str, Any]:
        """Return what ``scores.json`` and ``--json`` say of an evaluation, without its rounds."""
        scores = report.outcome.value
        metrics = (*self.metrics, *([] if self.objective is None else [self.objective]))
        classes = {} if self.job.classes is None else {"classes": sorted(self.job.classes)}
        return {
            "model": str(self.job.model),
            "scores": plain(scores),
            "better": {name: better(name, metrics) for name in scores},
            "meaning": [*meaning(scores), *self._of_the_fit(scores)],
            **classes,
            **report.described(),
            **report.account(records),
        }

    def _of_the_fit(self, scores: Mapping[str, float]) -> list[str]:
        """Return what the fit made small, where that is not among the scores of its model."""
        name = str(self.model.algorithm.get("objective", "inertia"))
        if name == "inertia" or name in scores:
            return []
        own = "an objective of your own: name its algorithm by --algorithm to score it again"
        line = objective_line({"inertia": plain(self.model.inertia), "objective": name})
        return [f"The fit itself tells {line}, which is {MEANINGS.get(name, own)}."]


def _metric(metric: Any) -> Metric:
    """Return a metric, which may stand under a dotted name.

    Raises
    ------
    InputError
        If there is none, or it lacks something.
    """
    try:
        found: Metric = imported(metric)() if isinstance(metric, str) else metric
        check_step(found, Metric)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise InputError(f"metric {metric!r} cannot be used: {error}") from error
    return found
