"""Procedures of the jobs: a fit, a choice of k, an evaluation and a profile of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np

from fedcluster.algorithms import FFCM, GaussianMixture, Lloyd, MergedMixture
from fedcluster.core import (
    Engine,
    Filter,
    Labels,
    Metric,
    PlannedStep,
    Result,
    RowTransform,
    SiteInfo,
    State,
    check_step,
)
from fedcluster.errors import InputError
from fedcluster.jobs._procedure import (
    Found,
    JobReport,
    Procedure,
    Stage,
    Watch,
    clustering_of,
    drawn,
)
from fedcluster.jobs.doubts import (
    alone_lines,
    far_line,
    few_clusters_line,
    few_line,
    groups_line,
    influence_line,
    limit_line,
    one_site_lines,
)
from fedcluster.metrics import Inertia
from fedcluster.metrics.external import Agreement, Separation
from fedcluster.metrics.moments import Moments
from fedcluster.model.assigned_rows import AssignedRows
from fedcluster.model.file import Model, plain_parameters, state_fields
from fedcluster.model.profiles import Profiles
from fedcluster.model.stability import Stability
from fedcluster.options.choices import imported, made, written
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.moments import Covariance, Missing
from fedcluster.preprocessing.spec import Schema, for_metric
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.recipes import bootstrap, clustering, evaluation, mixture
from fedcluster.recipes import private as budgets
from fedcluster.recipes.combinations import (
    OF_SITES,
    check,
    check_steps,
    check_totals,
    check_weights,
)
from fedcluster.recipes.fit import algorithm_of, clustering_steps, start_step
from fedcluster.recipes.private import PRIVATE_STEPS, private_clustering
from fedcluster.recipes.profiling import assigned_rows, crossed, profile_steps, profiles_of
from fedcluster.recipes.robust import Influence, Listener, influences
from fedcluster.recipes.scores import evaluation_steps, objective_value
from fedcluster.recipes.specifications import (
    MOST_CLUSTERS,
    WORDS,
    Fit,
    PrivateFit,
    SelectK,
    fit_of,
    rows_of,
    smallest_of,
)
from fedcluster.rounds import Plan, gather, run_plan, with_preprocessing
from fedcluster.selection import Rule
from fedcluster.selection.sweep import JUDGING, clustered_by, select_k_plan

MOST_TRIED, ROWS_A_CLUSTER = 50, 10
"""Largest number of clusters that "auto" considers, by likelihood; and rows per cluster."""

NOT_PARAMETERS = {"algorithm", "seed", "means", "start"}
"""Fields of a fit that a model file has elsewhere, or not at all."""
WHERE_SET = {"m", "rule", "profile", "stability", "robust"}
"""Parameters that a model file has only if they are set."""
OF_PRIVACY = {"epsilon", "delta", "group_size", "bounds", "n_rows"}
OF_MIXTURES = {"model", "covariance_type", "reg_covar", "noise"}

KJob = TypeVar("KJob", Fit, SelectK)


class Clustering(Procedure):
    """Procedure of a job that finds clusters; ``fit`` holds the parameters of each clustering."""

    fit: Fit
    auto: bool
    """Whether the job leaves the largest number of clusters open."""

    @property
    def preprocessing(self) -> PreprocessingSpec | Preprocessor | None:
        """The specification of the preprocessing; None if rows are not prepared."""
        return for_metric(self.job.prepare, self.job.metric)

    def check(self, sites: Sequence[SiteInfo] = ()) -> None:
        """Raise an error for a job that is not possible, in general or for these sites."""
        fit = self.fit
        check(fit, sites)
        if fit.epsilon is None:
            ks = tried(fit.n_clusters)
            largest = replace(fit, n_clusters=fit.n_clusters if ks is None else max(ks)).at(sites)
            algorithm = algorithm_of(largest)
            check_steps(fit, algorithm, start_step(largest, algorithm), sites)
        n, most = fit.stability, bootstrap.MOST_REPLICATES
        if n and n is not True and not 0 < n <= most:
            raise InputError(f"stability must be 1 to {most} replicates, not {n}")

    def check_width(self, d: int) -> None:
        """Raise an error for bounds or a start with other than d columns, unless d is 0."""
        fit = self.fit
        if not d:
            return
        if fit.rule is not None:
            fit.rule.check(d)
        k, means = fit.n_clusters, fit.means
        for option, start in {"init": fit.init, "means_init": fit.start}.items():
            centers = start.centers if isinstance(start, State) else start
            if isinstance(centers, np.ndarray) and centers.shape != (k, d):
                raise refused(
                    "start-shape", option=option, shape=centers.shape, n_clusters=k, n_columns=d
                )
        if means is not None and means.centers.shape[1] != d:
            raise InputError(f"means have {means.centers.shape[1]} columns, the rows have {d}")

    def steps(self) -> tuple[PlannedStep, ...]:
        """Return the steps that the job asks whatever the rows and the sites are."""
        if self.fit.epsilon is not None:
            return PRIVATE_STEPS
        return tuple(dict.fromkeys(self._steps()))

    def _steps(self) -> Iterator[PlannedStep]:
        fit, ks = self.fit, tried(self.fit.n_clusters)
        k = 1 if self.auto else max(ks or (fit.n_clusters,))
        if fit.prepare is not None:
            yield Missing
            yield from [Covariance] if fit.prepare.pca else []
        if ks is not None and self._by_likelihood:
            yield from JUDGING
        elif ks is not None:
            yield from clustering_steps(replace(fit, n_clusters=k).cells())
            yield from [*evaluation_steps(fit.m), Moments]
        if fit.model != "merged":
            yield from clustering_steps(replace(fit, n_clusters=k))
        yield from profile_steps(k, fit.prepare) if fit.profile else []
        yield from [Separation, Agreement] if fit.stability else []

    def plan(self, at: Stage, draws: Sequence[int] = ()) -> Plan[Any]:
        """Return the plan of questions about the prepared rows, also drawn again with seeds."""
        self.check(at.sites)
        n_rows, preprocessor = sum(rows_of(at.sites)), at.preprocessor
        fit = replace(type(self)(self.within(n_rows)).fit.at(at.sites), seed=at.seed)
        if (ks := tried(fit.n_clusters)) is None:
            return mixture(fit, preprocessor) if fit.model == "mixture" else clustering(fit)
        if self.auto and self._by_likelihood:
            most = int(min(MOST_TRIED, n_rows // ROWS_A_CLUSTER))
            ks = tuple(range(ks[0], max(ks[-1], most) + 1))
        return select_k_plan(ks, fit, fit.rule, preprocessor=preprocessor, draws=draws)

    @property
    def _by_likelihood(self) -> bool:
        return self.fit.rule is None or self.fit.rule.name == "likelihood"

    def limits(self, smallest: int | None, *, alone: bool) -> list[Filter]:
        """Return the limits for sites without limits of their own; see `limits_of`."""
        self.check()
        if self.fit.epsilon is not None:
            if smallest is not None:
                raise refused("epsilon-limits")
            return []
        if smallest is not None:
            return [MinClusterSize(smallest)]
        p = algorithm_of(replace(self.fit, n_clusters=1)).min_cluster_size
        limits: list[Filter] = [] if alone else [MinRows(2)]
        return [*limits, MinClusterSize(p)] if p > 1 else limits


class FitProcedure(Clustering):
    """Procedure of a fit."""

    def __init__(self, job: Fit) -> None:
        super().__init__(job)
        self.fit, self.auto, self.faults = job, isinstance(job.n_clusters, str), job.robust

    def check_schema(self, schema: Schema) -> None:
        """Raise an error for weights of text columns if a mixture is fitted to the rows."""
        check_weights(self.fit, (each.name for each in schema.columns if each.kind == "text"))

    def within(self, n_rows: float) -> Fit:
        """Return the job restricted to numbers of clusters for which there are enough rows."""
        ks = tried(self.fit.n_clusters, n_rows)
        check_rows(self.fit.n_clusters if ks is None else max(ks, default=1), n_rows)
        return self.fit if ks is None else replace(self.fit, n_clusters=ks)

    def whole_plan(self, at: Stage) -> Plan[Found]:
        """Plan a clustering, with its stability and its profiles if requested."""
        stability = None
        if self.fit.stability:
            value, stability = yield from self._with_stability(at)
        else:
            value = yield from with_preprocessing(self.plan(at), at.preprocessor)
        found, smallest = clustering_of(value), smallest_of(at.sites)
        how = _of_clusters(found, at.preprocessor)
        if not self.fit.profile:
            return Found(value, stability, preprocessor=how)
        profiles = yield from profiles_of(
            found.state, found.algorithm, how, at.columns, smallest=smallest
        )
        return Found(value, stability, profiles, preprocessor=how)

    def _with_stability(self, at: Stage) -> Plan[tuple[Any, Stability]]:
        """Plan a clustering, its replicates and their comparison.

        The replicates share the rounds of the clustering, or of a judgement of clusters of any
        shape; after another choice of k they follow it.
        """
        n = bootstrap.REPLICATES if self.fit.stability is True else int(self.fit.stability)
        k, rounds, how = self.fit.n_clusters, at.rounds, at.preprocessor
        if tried(k) is not None and self.fit.model in ("auto", "merged"):
            draws = bootstrap.draws(n, drawn(self.fit.seed))
            value = yield from with_preprocessing(self.plan(at, draws), how)
            own, left_out = clustering_of(value), n - len(value.replicates)
            how = _of_clusters(own, how)
            told = how.keeping() if how is not None and how.missing == "ignore" else None
            rows = assigned_rows(own.state, own.algorithm, how, told)
            compared = bootstrap.compared(own.state, value.replicates, rows, left_out, value.gaps)
            return value, (yield from compared)
        plan = with_preprocessing(self.plan(at), how)
        if tried(k) is not None:
            value, spent = yield from bootstrap.counted(plan)
            plan, rounds, k = bootstrap.finished(value), rounds + spent, value.n_clusters
        again = bootstrap.replicated(self.fit, k).at(at.sites)
        value, found = yield from bootstrap.beside_replicates(
            plan,
            lambda seed: with_preprocessing(bootstrap.replicate(again, seed), how),
            n,
            drawn(self.fit.seed),
            rounds,
        )
        result = clustering_of(value)
        rows = assigned_rows(result.state, result.algorithm, how)
        return value, (yield from bootstrap.compared(result.state, found, rows, n - len(found)))

    def influence(
        self, value: Any, listener: Listener, seed: int, columns: Sequence[str]
    ) -> tuple[Influence, ...]:
        """Return the influence of each site on the centres of a fit, and which site is odd."""
        return influences(clustering_of(value), listener, seed, columns)

    def foreseen(self, sites: Sequence[SiteInfo]) -> list[str]:
        """Return the warnings that sites have few groups of rows for a stated k."""
        return [] if tried(k := self.fit.n_clusters) is not None else groups_line(sites, k)

    def doubts(self, report: JobReport, labels: Mapping[str, Labels] | None) -> list[str]:
        """Return sentences on reasons to doubt the clusters; see `doubts_of`."""
        weights = report.clustering.state.weights
        k, n_weighed = len(weights), int((weights > 0).sum())
        if labels is None:
            of_rows = [*few_line(n_weighed, k), *alone_lines(report.influence, weights)]
        else:
            of_rows = [*few_clusters_line(labels.values(), k), *one_site_lines(labels, k)]
        return [
            *of_rows,
            *groups_line(report.sites, k),
            *far_line(report.sites, report.clustering),
            *influence_line(report.influence),
            *limit_line(self.fit, report.clustering, options=True),
        ]


class PrivateFitProcedure(FitProcedure):
    """Procedure of a fit under a privacy budget."""

    fit: PrivateFit

    def __init__(self, job: PrivateFit) -> None:
        super().__init__(job)
        self.rows_per_person = job.group_size

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


SHARED = {each.name for each in fields(SelectK)} & WORDS.keys()
"""The parameters that a choice of k and its clusterings have in common."""


class SelectProcedure(Clustering):
    """Procedure of a choice of the number of clusters."""

    def __init__(self, job: SelectK) -> None:
        super().__init__(job)
        self.auto = job.k_max is None
        sides = None if job.bounds is None else tuple(map(np.array, job.bounds))
        parameters = {name: getattr(job, name) for name in SHARED - {"rule", "bounds"}}
        parameters |= clustered_by(job.rule, job.m, job.averaging)
        parameters["rule"] = Rule(job.rule, job.pick, sides)  # type: ignore[arg-type]
        self.fit = fit_of(range(job.k_min, job.k_last + 1), **parameters)

    def check(self, sites: Sequence[SiteInfo] = ()) -> None:
        """Raise an error for a choice that is not possible, in general or for these sites."""
        if self.job.averaging != "avg_2" and self.job.rule != "fuzzy-db":
            raise refused("choice-averaging")
        super().check(sites)

    def within(self, n_rows: float) -> SelectK:
        """Return the job restricted to numbers of clusters for which there are enough rows."""
        job: SelectK = self.job
        check_rows(job.k_max or job.k_min, n_rows)
        few = job.k_max is not None or job.k_last > n_rows
        return replace(job, k_max=min(job.k_last, int(n_rows))) if few else job


def model_of(report: JobReport, *, dtype: str = "float64", **more: Any) -> Model:
    """Return the model of a fit; ``more`` are parameters other than those of the job."""
    job, result = report.job, report.clustering
    values = {each.name: getattr(job, each.name) for each in fields(job)} | more
    values["n_init"] = values["n_init"] or "auto"
    omitted = NOT_PARAMETERS | {name for name in WHERE_SET if not values[name]}
    omitted |= set() if values["model"] == "mixture" else OF_MIXTURES - {"model"}
    values["model"] = model_name(result.algorithm)
    omitted |= {"model"} if values["model"] == "k-means" else set()
    omitted |= OF_PRIVACY if values["epsilon"] is None else set()
    parameters = {name: values[name] for name in sorted(values.keys() - omitted)}
    return Model(
        **state_fields(result.state, result.algorithm),
        columns=report.columns,
        algorithm=plain_parameters(
            values["algorithm"], parameters | {"objective": report.objective}, report.outcome.steps
        ),
        sites=report.sites,
        rounds=len(report.outcome.communication_rounds),
        seed=job.seed,
        dtype=dtype,
        preprocessor=report.preprocessor,
        names=() if report.profiles is None else report.profiles.names,
        privacy={} if report.privacy is None else report.privacy.plain(),
    )


def _of_clusters(found: Result, how: Preprocessor | None) -> Preprocessor | None:
    """Return the preparation of rows for assignment to clusters, from that of the fit.

    Where k-means has values filled in, sets of components are told by the values that are present.
    """
    present = how is not None and how.fills and isinstance(found.algorithm, MergedMixture)
    return replace(how, missing="ignore") if how is not None and present else how


def model_name(algorithm: Any) -> str:
    """Return the name of the kind of model that an algorithm fits."""
    return "mixture" if isinstance(algorithm, GaussianMixture | MergedMixture) else "k-means"


def tried(n_clusters: Any, n_rows: float = MOST_CLUSTERS) -> tuple[int, ...] | None:
    """Return the numbers of clusters to try, in increasing order; None if one is given.

    Examples
    --------
    >>> tried("auto", 3), tried([4, 2, 3]), tried(8)
    ((1, 2, 3), (2, 3, 4), None)
    """
    if isinstance(n_clusters, str):
        return tuple(range(1, int(min(MOST_CLUSTERS, n_rows)) + 1))
    return tuple(sorted(set(map(int, n_clusters)))) if np.iterable(n_clusters) else None


def check_rows(k: int, n_rows: float) -> None:
    """Raise an error for more clusters than the rows that the sites report."""
    if not n_rows:
        raise InputError(
            "the sites tell of no row: each has fewer than its limits or its groups ask for; "
            "ask sites with more rows"
        )
    if k > n_rows:
        raise InputError(
            f"{k} clusters are more than the rows that the sites tell of ({n_rows:g}); "
            "ask for fewer"
        )


class OfModel(Procedure):
    """Procedure of a job about the clusters of a model."""

    @cached_property
    def model(self) -> Model:
        """The model of the job, read from its file if a file is given."""
        return self._read(self.job.model)

    def _read(self, model: Any) -> Model:
        """Return a model, read from its file if need be; beside another, columns have names."""
        read: Model = model if isinstance(model, Model) else Model.load(model, self.job.algorithms)
        two = getattr(self.job, "beside", None) is not None
        return replace(read, preprocessor=read.by_name) if two else read

    @property
    def preprocessing(self) -> Preprocessor | None:
        """The preprocessing that was fitted with the model."""
        return self.model.preprocessor

    def check(self, sites: Sequence[SiteInfo] = ()) -> None:
        """Raise an error for a job that is not possible, in general or for these sites."""
        check(self.job, sites, OF_SITES)

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

    def plan(self, at: Stage) -> Plan[Any]:
        """Return the plan of questions about the rows."""
        self.check(at.sites)
        return self.profiles(at.sites)

    def whole_plan(self, at: Stage) -> Plan[Found]:
        """Plan the profiles, which are also the value of the job."""
        profiles = yield from self.plan(at)
        return Found(profiles, profiles=profiles)


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

    def plan(self, at: Stage) -> Plan[Any]:
        """Return the plan of questions about the prepared rows."""
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
        return Found(scores, profiles=profiles, beside=beside)

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
