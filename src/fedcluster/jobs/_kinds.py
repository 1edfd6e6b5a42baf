"""Procedures of jobs that find clusters: a fit, also under a privacy budget, and a choice of k."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcluster import preprocessing, recipes
from fedcluster.core import Engine, Filter, Floats, Labels, PlannedStep, Result, SiteInfo, State
from fedcluster.errors import InputError
from fedcluster.jobs._procedure import (
    JobReport,
    JobResult,
    PlanContext,
    Procedure,
    Watch,
    clustering_of,
    drawn,
    with_clustering,
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
from fedcluster.lazy import LazyModule
from fedcluster.metrics.moments import Moments
from fedcluster.model.file import Model, plain_parameters, state_fields
from fedcluster.options.choices import is_step
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.spec import for_metric
from fedcluster.preprocessing.transform import by_columns
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.recipes.combinations import check, check_steps, check_weights
from fedcluster.recipes.fit import algorithm_of, clustering, clustering_steps, start_step
from fedcluster.recipes.robust import Influence, Listener, influences
from fedcluster.recipes.specifications import (
    MOST_CLUSTERS,
    WORDS,
    Fit,
    PrivateFit,
    Rule,
    SelectK,
    fit_of,
    rows_of,
    smallest_of,
    together_of,
)
from fedcluster.rounds import Plan, run_plan, with_preprocessing

MOST_TRIED, ROWS_A_CLUSTER = 50, 10
"""Largest number of clusters that "auto" considers, by likelihood; and rows per cluster."""

NOT_PARAMETERS = {"algorithm", "seed", "means", "start", "previous", "also", "init_columns"}
"""Fields of a fit that a model file has elsewhere, or not at all."""
WHERE_SET = {"m", "rule", "profile", "stability", "robust"}
"""Parameters that a model file has only if they are set."""
OF_PRIVACY = {"epsilon", "delta", "group_size", "bounds", "n_rows"}
OF_MIXTURES = {"model", "covariance_type", "reg_covar", "noise"}

if TYPE_CHECKING:
    from fedcluster.model.stability import Stability
    from fedcluster.preprocessing.agreement import Schema

bootstrap = LazyModule("fedcluster.recipes.bootstrap")
succession = LazyModule("fedcluster.recipes.succession")
budgets = LazyModule("fedcluster.recipes.private")
profiling = LazyModule("fedcluster.recipes.profiling")
sweep = LazyModule("fedcluster.selection.sweep")


class Clustering(Procedure):
    """Procedure of a job that finds clusters; ``fit`` holds the parameters of each clustering."""

    fit: Fit
    auto: bool
    """Whether the job leaves the largest number of clusters open."""

    @cached_property
    def previous(self) -> Model | None:
        """The model that the fit continues, read from its file if a file is given."""
        given = self.fit.previous
        return given if given is None or isinstance(given, Model) else Model.load(given)

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
        if (n := fit.stability) not in (False, True) and not 0 < n <= bootstrap.MOST_REPLICATES:
            most = bootstrap.MOST_REPLICATES
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
            own = option == "init" and fit.init_columns
            if isinstance(centers, np.ndarray) and centers.shape != (k, d) and not own:
                raise refused(
                    "start-shape", option=option, shape=centers.shape, n_clusters=k, n_columns=d
                )
        if means is not None and means.centers.shape[1] != d:
            raise InputError(f"means have {means.centers.shape[1]} columns, the rows have {d}")

    def steps(self) -> tuple[PlannedStep, ...]:
        """Return the steps that the job asks whatever the rows and the sites are."""
        return tuple(dict.fromkeys(self._steps()))

    def _steps(self) -> Iterator[PlannedStep]:
        fit, ks = self.fit, tried(self.fit.n_clusters)
        k = 1 if self.auto else max(ks or (fit.n_clusters,))
        if fit.prepare is not None:
            yield preprocessing.Missing
            yield from [preprocessing.Covariance] if fit.prepare.pca else []
        if ks is not None and self._by_likelihood:
            yield from sweep.JUDGING
        elif ks is not None:
            yield from clustering_steps(replace(fit, n_clusters=k).cells())
            yield from [*recipes.evaluation_steps(fit.m), Moments]
        if fit.model != "merged":
            yield from clustering_steps(replace(fit, n_clusters=k))
        yield from profiling.profile_steps(k, fit.prepare) if fit.profile else []
        yield from bootstrap.COMPARING if fit.stability else []
        yield from [] if self.previous is None else succession.steps(self.previous)

    def plan(self, at: PlanContext, draws: Sequence[int] = ()) -> Plan[Any]:
        """Return the plan of questions about the prepared rows, also drawn again with seeds."""
        self.check(at.sites)
        n_rows, preprocessor = sum(rows_of(at.sites)), at.preprocessor
        fit = replace(type(self)(self.within(n_rows)).fit.at(at.sites), seed=at.seed)
        fit = self._with_starts(fit, at) if len(at.columns) else fit
        if (ks := tried(fit.n_clusters)) is None:
            is_mixture = fit.model == "mixture"
            return recipes.mixture(fit, preprocessor) if is_mixture else clustering(fit)
        if self.auto and self._by_likelihood:
            most = int(min(MOST_TRIED, n_rows // ROWS_A_CLUSTER))
            ks = tuple(range(ks[0], max(ks[-1], most) + 1))
        how = {"preprocessor": preprocessor, "draws": draws}
        chosen: Plan[Any] = sweep.select_k_plan(ks, fit, fit.rule, **how)
        return chosen

    def _with_starts(self, fit: Fit, at: PlanContext) -> Fit:
        """Return the fit with starts in the form of prepared rows."""
        if self.previous is not None:
            also = succession.earlier(self.previous, at.preprocessor, at.columns)
            fit = replace(fit, also=also)
        if not fit.init_columns:
            return fit
        init: Floats = fit.init  # type: ignore[assignment]
        values = dict(zip(fit.init_columns, init.T.tolist(), strict=True))
        centers = by_columns(at.preprocessor, at.columns).placed(values, len(init))
        if np.isnan(centers).any() or len(centers) != fit.n_clusters:
            raise InputError(
                f"init has {len(centers)} centres with the columns {', '.join(fit.init_columns)}: "
                f"{fit.n_clusters} clusters of {', '.join(at.columns)} need one number of each"
            )
        return replace(fit, init=centers)

    @property
    def _by_likelihood(self) -> bool:
        return self.fit.rule is None or self.fit.rule.name == "likelihood"

    def limits(self, smallest: int | None = None, *, alone: bool = False) -> list[Filter]:
        """Return the limits for sites without limits of their own."""
        self.check()
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

    def whole_plan(self, at: PlanContext) -> Plan[JobResult]:
        """Plan a clustering, with its stability and its profiles if requested."""
        stability = None
        if self.fit.stability:
            value, stability = yield from self._with_stability(at)
        else:
            value = yield from with_preprocessing(self.plan(at), at.preprocessor)
        found, smallest = clustering_of(value), smallest_of(at.sites)
        how, since = _of_clusters(found, at.preprocessor), None
        if self.previous is not None:
            found, since = yield from succession.continued(
                found, how, self.previous, at.columns, at.seed, together=together_of(at.sites)
            )
            value = with_clustering(value, found)
            stability = stability and stability.reordered(since.order)
        if not self.fit.profile:
            return JobResult(value, stability, preprocessor=how, since=since)
        profiles = yield from profiling.profiles_of(
            found.state,
            found.algorithm,
            how,
            at.columns,
            names=() if since is None else since.names,
            smallest=smallest,
        )
        return JobResult(value, stability, profiles, preprocessor=how, since=since)

    def _with_stability(self, at: PlanContext) -> Plan[tuple[Any, Stability]]:
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
            reported = how.keeping() if how is not None and how.missing == "ignore" else None
            rows = profiling.assigned_rows(own.state, own.algorithm, how, reported)
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
        rows = profiling.assigned_rows(result.state, result.algorithm, how)
        return value, (yield from bootstrap.compared(result.state, found, rows, n - len(found)))

    def influence(
        self, value: Any, listener: Listener, seed: int, columns: Sequence[str]
    ) -> tuple[Influence, ...]:
        """Return the influence of each site on the centres of a fit, and which site is odd."""
        found = clustering_of(value)
        if "gone" in found.state.memory:
            there = found.state.memory["gone"] == 0
            found = replace(found, state=State.at(found.state.centers[there]))
        return influences(found, listener, seed, columns)

    def foreseen(self, sites: Sequence[SiteInfo]) -> list[str]:
        """Return the warnings that sites have few groups of rows for a stated k."""
        return [] if tried(k := self.fit.n_clusters) is not None else groups_line(sites, k)

    def doubts(self, report: JobReport, labels: Mapping[str, Labels] | None = None) -> list[str]:
        """Return sentences on reasons to doubt the clusters."""
        state = report.clustering.state
        n_gone = int(state.memory.get("gone", np.zeros(1)).sum())
        k, weights = len(state.weights) - n_gone, state.weights[state.weights > 0]
        if labels is None:
            of_rows = [*few_line(len(weights), k), *alone_lines(report.influence, weights)]
        else:
            of_rows = few_clusters_line(labels.values(), k)
            of_rows += one_site_lines(labels, k + n_gone)
        return [
            *of_rows,
            *groups_line(report.sites, k),
            *far_line(report.sites, report.clustering),
            *influence_line(report.influence),
            *limit_line(self.fit, report.clustering, options=True),
        ]


SHARED = {each.name for each in fields(SelectK)} & WORDS.keys()
"""The parameters that a choice of k and its clusterings have in common."""


class SelectProcedure(Clustering):
    """Procedure of a choice of the number of clusters."""

    def __init__(self, job: SelectK) -> None:
        super().__init__(job)
        self.auto = job.k_max is None
        sides = None if job.bounds is None else tuple(map(np.array, job.bounds))
        parameters = {name: getattr(job, name) for name in SHARED - {"rule", "bounds"}}
        parameters |= sweep.clustered_by(job.rule, job.m, job.averaging)
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
        names=report.names,
        privacy={} if report.privacy is None else report.privacy.plain(),
    )


def _of_clusters(found: Result, how: Preprocessor | None) -> Preprocessor | None:
    """Return the preparation of rows for assignment to clusters, from that of the fit.

    Where k-means has values filled in, sets of components are told by the values that are present.
    """
    present = how is not None and how.fills and is_step(found.algorithm, "MergedMixture")
    return replace(how, missing="ignore") if how is not None and present else how


def model_name(algorithm: Any) -> str:
    """Return the name of the kind of model that an algorithm fits."""
    return "mixture" if is_step(algorithm, "GaussianMixture", "MergedMixture") else "k-means"


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


class PrivateFitProcedure(FitProcedure):
    """Procedure of a fit under a privacy budget."""

    fit: PrivateFit

    def __init__(self, job: PrivateFit) -> None:
        super().__init__(job)
        self.rows_per_person = job.group_size

    def steps(self) -> tuple[PlannedStep, ...]:
        """Return the steps that the job asks whatever the rows and the sites are."""
        steps: tuple[PlannedStep, ...] = budgets.PRIVATE_STEPS
        return steps

    def limits(self, smallest: int | None = None, *, alone: bool = False) -> list[Filter]:
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
        plan = budgets.private_clustering(
            replace(self.fit, seed=seed),
            budget,
            n_rows=budgets.n_rows_of(self.fit, sites),
            n_columns=len(columns),
            n_noises=budgets.n_noises_of(sites),
        )
        outcome = run_plan(with_preprocessing(plan, box), accounted, seed=seed, watch=watch)
        sites = engine.introduce()
        return JobReport(self.fit, outcome, tuple(columns), sites, box, privacy=accounted.spent)
