"""Jobs that sites do together, and the one function that carries them out on any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.random import RandomState

from fedcluster._choices import imported
from fedcluster._combinations import OF_SITES, check, check_steps, check_totals, check_weights
from fedcluster._profiles import Profiles
from fedcluster._refusals import refused
from fedcluster._report._rounding import published
from fedcluster._specifications import (
    MOST_CLUSTERS,
    Evaluate,
    Fit,
    Profile,
    SelectK,
    rows_of,
    smallest_of,
)
from fedcluster._stability import Stability
from fedcluster.algorithms import FFCM
from fedcluster.core import (
    Column,
    Engine,
    Filter,
    Metric,
    PlannedStep,
    Result,
    RowTransform,
    SiteInfo,
    State,
    check_step,
)
from fedcluster.engines._recorder import WithoutSites
from fedcluster.errors import InputError, listed
from fedcluster.metrics import Inertia
from fedcluster.metrics.agreement import Agreement, Separation
from fedcluster.metrics.moments import Moments
from fedcluster.metrics.objectives import objective_name
from fedcluster.model import Model
from fedcluster.preprocessing import FitReport, PreprocessingSpec, Preprocessor
from fedcluster.preprocessing._fitting import Fitted, n_columns_out
from fedcluster.preprocessing._fitting import fit as fit_preprocessor
from fedcluster.preprocessing._moments import Covariance, Missing
from fedcluster.preprocessing._spec import agree, for_metric, odd_sites
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.recipes import clustering, evaluation, mixture
from fedcluster.recipes.bootstrap import (
    MOST_REPLICATES,
    REPLICATES,
    beside_replicates,
    compared,
    counted,
    finished,
    replicate,
    replicated,
)
from fedcluster.recipes.fit import algorithm_of, clustering_steps, start_step
from fedcluster.recipes.private import (
    PRIVATE_STEPS,
    AccountedEngine,
    PrivacySpent,
    box_of,
    budget_of,
    n_noises_of,
    n_rows_of,
    private_clustering,
)
from fedcluster.recipes.profiling import assigned_rows, profile_steps, profiles_of
from fedcluster.recipes.robust import Influence, Listener, influences, robust_rule, with_account
from fedcluster.recipes.scores import evaluation_steps, objective_value
from fedcluster.rounds import (
    CommunicationRound,
    Outcome,
    Plan,
    gather,
    run_plan,
    with_preprocessing,
)
from fedcluster.selection import Rule, Selection
from fedcluster.selection.sweep import clustered_by, select_k_plan

__all__ = ["Evaluate", "Fit", "JobReport", "Profile", "SelectK", "execute"]

MOST_TRIED, ROWS_EACH = 48, 10
"""The largest number of clusters that "auto" tries where 12 are not enough; rows for each."""

Job = Fit | SelectK | Evaluate | Profile
OfModel = Evaluate | Profile
KJob = TypeVar("KJob", Fit, SelectK)
Watch = Callable[[CommunicationRound], None]

JOBS: Mapping[str, type[Any]] = MappingProxyType(
    {"fit": Fit, "select-k": SelectK, "evaluate": Evaluate, "profile": Profile}
)
"""The jobs by their names."""


@dataclass(frozen=True, slots=True, eq=False)
class JobReport:
    """Report of a job: its result, the sites that were asked, and what they sent.

    Parameters
    ----------
    job : Fit, SelectK, Evaluate or Profile
        The job, as it was carried out.
    outcome : Outcome
        The clustering, the choice of k, the scores or the profiles; and every round with the sites.
    columns : tuple of str
        The columns that were asked about.
    sites : tuple of SiteInfo
        Who was asked, with their limits.
    preprocessor : Preprocessor, optional
        What was done to the rows.
    fit_report : FitReport
        What was met while it was fitted.
    refusals : tuple of Refusal
        Who is missing in which round, and why.
    profiles : Profiles, optional
        What sets the clusters apart, where it was asked.
    stability : Stability, optional
        How stable they are, where it was asked.
    privacy : PrivacySpent, optional
        What the answers have cost, where there is a privacy budget.
    influence : tuple of Influence
        How far each site moves the centres of a fit, the farthest first, where that can be told.
    """

    job: Job
    outcome: Outcome[Any]
    columns: tuple[str, ...]
    sites: tuple[SiteInfo, ...]
    preprocessor: Preprocessor | None = None
    fit_report: FitReport = field(default_factory=FitReport)
    refusals: tuple[Any, ...] = ()
    profiles: Profiles | None = None
    stability: Stability | None = None
    privacy: PrivacySpent | None = None
    influence: tuple[Influence, ...] = ()

    @property
    def objective(self) -> str:
        """Name of what a fit made small, whose value is the inertia of its result."""
        assert isinstance(self.job, Fit)
        how = {"robust": self.job.robust > 0, "noisy": self.privacy is not None}
        return objective_name(clustering_of(self.outcome.value).algorithm, **how)

    def with_decisions(self, left_out: Mapping[str, str], notes: Sequence[str]) -> Self:
        """Return the report with columns that were set aside before the sites were asked."""
        return replace(self, fit_report=self.fit_report.with_decisions(left_out, notes))


def execute(
    job: Job,
    engine: Engine,
    *,
    columns: Sequence[str] = (),
    watch: Watch | None = None,
    enough: int | None = None,
) -> JobReport:
    """Carry a job out: agree on columns, fit the preprocessing, run the plan, account for it.

    Parameters
    ----------
    job : Fit, SelectK, Evaluate or Profile
        What to do.
    engine : Engine
        Who is asked.
    columns : sequence of str
        The columns of rows that are taken as they are.
    watch : callable taking a CommunicationRound, optional
        Told of every round as it ends, for a progress bar.
    enough : int, optional
        The fewest sites with which the job may begin where columns of others hold other kinds than
        those of most; by default all.

    Returns
    -------
    JobReport
        What came of it.

    Raises
    ------
    InputError
        If the job makes no sense for these sites.
    HeldBackError
        If the sites' limits hold back everything in the first round.
    SiteError
        If a site fails.

    Examples
    --------
    >>> from fedcluster import Client, Data, LocalEngine
    >>> north = Client("north", Data(np.array([[0.0], [1.0], [2.0]])))
    >>> south = Client("south", Data(np.array([[8.0], [9.0], [10.0]])))
    >>> report = execute(Fit(2), LocalEngine([north, south]), columns=["age"])
    >>> report.outcome.value.state.centers.tolist(), len(report.outcome.communication_rounds)
    ([[1.0], [9.0]], 9)
    """
    check_job(job)
    if isinstance(job, Fit) and job.epsilon is not None:
        return _fit_privately(job, engine, columns, watch)
    seed, how, steps = drawn(job.seed), preprocessing_of(job), steps_of(job)
    if isinstance(job, Evaluate):
        job = replace(job, metrics=tuple(map(_metric, job.metrics)))
        job = _with_classes(job, engine, steps)
    engine, fitting = _agreed(how, engine, steps, job, enough)
    plan_of(job, engine.introduce(steps=steps), seed)  # refuses what makes no sense for them
    listener = Listener(robust_rule(job, engine.introduce(), seed))
    before: Outcome[Any] = Outcome(Fitted(how, FitReport()), ())  # type: ignore[arg-type]
    if fitting is not None:
        before = run_plan(fitting, engine, watch=watch, listener=listener)
        columns = [column.name for column in before.value.preprocessor.columns]
    preprocessor = before.value.preprocessor
    sites = engine.introduce()
    _check_width(job, _width_of(preprocessor, columns, sites))
    plan = plan_of(job, sites, seed, preprocessor)
    plan = _with_objective(
        with_preprocessing(plan, _row_transform(job, preprocessor)), job, preprocessor
    )
    if isinstance(job, Fit) and job.stability:
        plan = _with_stability(plan, job, preprocessor, sites, before)
    whole = _with_profiles(plan, job, preprocessor, columns, sites)
    terms: dict[str, Any] = {"watch": watch, "listener": listener, "seed": seed}
    outcome = run_plan(whole, engine, participation=job.participation, **terms)
    (value, stability), profiles = outcome.value
    return published(
        JobReport(
            job,
            replace(outcome, value=with_account(value, listener)).after(before),
            tuple(columns),
            engine.introduce(),
            preprocessor,
            before.value.fit_report,
            profiles=profiles,
            stability=stability,
            influence=_influence(job, value, listener, seed),
        )
    )


def _fit_privately(
    job: Fit, engine: Engine, columns: Sequence[str], watch: Watch | None
) -> JobReport:
    """Carry a fit out under its privacy budget: every answer has noise, and is counted."""
    budget, box = budget_of(job), box_of(job, columns)
    accounted, seed = AccountedEngine(engine, budget), drawn(job.seed)
    sites = accounted.introduce(steps=steps_of(job))
    check_job(job, sites)
    plan = private_clustering(
        replace(job, seed=seed),
        budget,
        n_rows=n_rows_of(job, sites),
        n_columns=len(columns),
        n_noises=n_noises_of(sites),
    )
    outcome = run_plan(with_preprocessing(plan, box), accounted, seed=seed, watch=watch)
    told = engine.introduce()
    return JobReport(job, outcome, tuple(columns), told, box, privacy=accounted.spent)


def _influence(job: Job, value: Any, listener: Listener, seed: int) -> tuple[Influence, ...]:
    """Return how far each site moves the centres of a fit."""
    return influences(clustering_of(value), listener.kept, seed) if isinstance(job, Fit) else ()


def _with_stability(
    plan: Plan[Any],
    job: Fit,
    preprocessor: Preprocessor | None,
    sites: Sequence[SiteInfo],
    before: Outcome[Any],
) -> Plan[tuple[Any, Stability]]:
    """Plan a clustering, its replicates and their comparison.

    Replicates run beside the clustering, or after a choice of the number of clusters.
    """
    n = REPLICATES if job.stability is True else int(job.stability)
    k, rounds = job.n_clusters, len(before.communication_rounds)
    if tried(k) is not None:
        value, spent = yield from counted(plan)
        plan, rounds, k = finished(value), rounds + spent, value.n_clusters
    again = replicated(job, k).at(sites)

    value, found = yield from beside_replicates(
        plan,
        lambda seed: with_preprocessing(replicate(again, seed), preprocessor),
        n,
        drawn(job.seed),
        rounds,
    )
    result = clustering_of(value)
    how = assigned_rows(result.state, result.algorithm, preprocessor)
    return value, (yield from compared(result.state, found, how, n - len(found)))


def check_job(job: Job, sites: Sequence[SiteInfo] = ()) -> None:
    """Refuse a job that makes no sense, or not for these sites.

    Raises
    ------
    InputError
        With what to do.
    """
    if isinstance(job, OfModel):
        check(job, sites, OF_SITES)
    if isinstance(job, Evaluate):
        check_totals([each for each in job.metrics if not isinstance(each, str)], sites)
    if isinstance(job, OfModel):
        return
    if isinstance(job, SelectK) and job.averaging != "avg_2" and job.rule != "fuzzy-db":
        raise refused("choice-averaging")
    fit = job if isinstance(job, Fit) else _fit_of(job)
    check(fit, sites)
    if fit.epsilon is None:
        ks = tried(fit.n_clusters)
        asked = replace(fit, n_clusters=fit.n_clusters if ks is None else max(ks)).at(sites)
        algorithm = algorithm_of(asked)
        check_steps(fit, algorithm, start_step(asked, algorithm), sites)
    if fit.stability and fit.stability is not True and not 0 < fit.stability <= MOST_REPLICATES:
        raise InputError(
            f"stability must be 1 to {MOST_REPLICATES} replicates, not {fit.stability}"
        )


def _with_profiles(
    plan: Plan[Any],
    job: Job,
    preprocessor: Preprocessor | None,
    columns: Sequence[str],
    sites: Sequence[SiteInfo],
) -> Plan[tuple[tuple[Any, Stability | None], Profiles | None]]:
    """Plan a job with its stability, if it has one, and profiles where they are asked for.

    Those of a model ride in the rounds of its scores.
    """
    smallest = smallest_of(sites)
    if isinstance(job, Evaluate) and job.profile:
        asked: list[Any] = yield from gather(
            [plan, _profiles_of_model(model_of_job(job), smallest)]
        )
        return (asked[0], None), asked[1]
    value = yield from plan
    if not (isinstance(job, Fit) and job.stability):
        value = value, None
    if not isinstance(job, Fit) or not job.profile:
        return value, value[0] if isinstance(job, Profile) else None
    found = clustering_of(value[0])
    profiles = yield from profiles_of(
        found.state, found.algorithm, preprocessor, columns, smallest=smallest
    )
    return value, profiles


def _profiles_of_model(model: Model, smallest: int) -> Plan[Profiles]:
    """Plan the profiles of a model's clusters, under the names that it keeps."""
    return profiles_of(
        model.state,
        model.assigned_by,
        model.preprocessor,
        model.columns,
        names=model.names,
        smallest=smallest,
    )


def clustering_of(value: Any) -> Result:
    """Return the clustering that a fit found, or chose."""
    result: Result = value.results[value.n_clusters] if isinstance(value, Selection) else value
    return result


def _row_transform(job: Job, preprocessor: Preprocessor | None) -> RowTransform | None:
    """Return what sites do to their rows: prepare them and, for scores, maybe assign them."""
    model = model_of_job(job) if isinstance(job, Evaluate) else None
    if model is None or model.assigned_by is None:
        return preprocessor
    if not len(model.centers):
        raise InputError("the model has no centres, which its scores are about")
    return assigned_rows(model.state, model.assigned_by, preprocessor)


def objective_of(job: Evaluate) -> Metric | None:
    """Return what the algorithm of a model makes small; None of k-means, or if it is not known."""
    model = model_of_job(job)
    algorithm = model.assigned_by or _own_algorithm(model, job.algorithms)
    m = model.algorithm.get("m")
    if algorithm is None and m:
        algorithm = FFCM(float(m))
    objective = Inertia() if algorithm is None else algorithm.objective()
    return None if objective == Inertia() else _metric(objective)


def _with_objective(plan: Plan[Any], job: Job, preprocessor: Preprocessor | None) -> Plan[Any]:
    """Plan the scores of a model, and in their rounds the value of what its fit made small.

    Other plans stay as they are.
    """
    objective = objective_of(job) if isinstance(job, Evaluate) else None
    if objective is None or objective in job.metrics:  # type: ignore[union-attr]
        return plan
    state = model_of_job(job).state  # type: ignore[arg-type]
    return _scored_by_both(
        plan, with_preprocessing(objective_value(objective, state), preprocessor)
    )


def _scored_by_both(plan: Plan[Any], of_fit: Plan[Any]) -> Plan[Any]:
    scores, found = yield from gather([plan, of_fit])
    return scores | found


def _own_algorithm(model: Model, algorithms: Sequence[Any]) -> Any:
    """Return the algorithm that found a model's clusters, if it is one of these, else None."""
    told = model.algorithm.get("name")
    given = dict(told) if isinstance(told, Mapping) else {"n_clusters": len(model.weights)}
    name = str(given.pop("name", told)).rpartition(".")[2]
    for kind in (imported(each) if isinstance(each, str) else each for each in algorithms):
        if kind.__name__ == name:
            known = {each.name for each in fields(kind)}
            return kind(**{key: value for key, value in given.items() if key in known})
    return None


def _metric(given: Any) -> Metric:
    """Return a metric, which may stand under a dotted name.

    Raises
    ------
    InputError
        If there is none, or it lacks something.
    """
    try:
        metric: Metric = imported(given)() if isinstance(given, str) else given
        check_step(metric, Metric)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise InputError(f"metric {given!r} cannot be used: {error}") from error
    return metric


def fitted_preprocessing(how: PreprocessingSpec, engine: Engine) -> Fitted:
    """Return the preprocessing alone, fitted as for a job."""
    fitted: Fitted = run_plan(_fitting(how, _told(how, engine, ())), engine).value
    return fitted


def _told(
    how: PreprocessingSpec, engine: Engine, steps: Sequence[PlannedStep]
) -> dict[str, tuple[Column, ...]]:
    """Return the columns that the sites tell of."""
    sites = engine.introduce(columns=True, texts=how.named, steps=steps)
    return {site.name: site.columns for site in sites if site.answered}


def _agreed(
    how: Any, engine: Engine, steps: Sequence[PlannedStep], job: Job, enough: int | None
) -> tuple[Engine, Plan[Fitted] | None]:
    """Return the engine, and the plan that fits a preprocessing, None where there is none to fit.

    Sites that hold other kinds than most are left out, if so many may be.

    Raises
    ------
    InputError
        If more hold others, naming site, column and kinds, or as of `_fitting`.
    """
    if not isinstance(how, PreprocessingSpec):
        return engine, None
    told = _told(how, engine, steps)
    odd, said = odd_sites(told, how)
    if not odd:
        return engine, _fitting(how, told, job)
    if len(told) - len(odd) < (enough or len(told)):
        agree(told, how.columns)  # names all differences in columns that were chosen
        raise InputError(said)
    others = {name: columns for name, columns in told.items() if name not in odd}
    doubt = f"left out of the run: {listed(list(odd))}; {said}"
    return WithoutSites(engine, odd), _fitting(how, others, job, [doubt])


def _fitting(
    how: PreprocessingSpec,
    described: Mapping[str, Sequence[Column]],
    job: Job | None = None,
    doubts: Sequence[str] = (),
) -> Plan[Fitted]:
    """Return the plan that fits a preprocessing to the columns that the sites tell of.

    Raises
    ------
    InputError
        If the sites do not agree on columns, or the job cannot use them as they are prepared.
    """
    schema = agree(described, how.columns)
    schema = replace(schema, warnings=(*doubts, *schema.warnings))
    if isinstance(job, Fit):
        texts = [each.name for each in schema.columns if each.kind == "text"]
        check_weights(job, {*texts, *how.named})
    if job is not None and (width := n_columns_out(how, schema)) is not None:
        _check_width(job, width)
    return fit_preprocessor(how, schema)


def steps_of(job: Job) -> tuple[PlannedStep, ...]:
    """Return the steps that a job asks whatever the rows and the sites are.

    Sites are told of them before the first question, so that a job that one of them cannot do ends
    there. Other steps, such as those that find a start, follow from what the sites tell.

    Raises
    ------
    InputError
        If an algorithm, its objective or a metric lacks something.

    Examples
    --------
    >>> steps_of(Fit(3))
    (Lloyd(tol=0.0001), Inertia())
    """
    if isinstance(job, OfModel):
        model = model_of_job(job)
        steps: list[Any] = [] if model.assigned_by is None else [model.assigned_by]
        if isinstance(job, Evaluate):
            objective = objective_of(job)
            steps += [*map(_metric, job.metrics), *([] if objective is None else [objective])]
            steps += evaluation_steps(model.algorithm.get("m"), labels=job.labels)
        shown = isinstance(job, Profile) or job.profile
        return tuple(steps + profile_steps(len(model.centers), model.preprocessor) * shown)
    fit = job if isinstance(job, Fit) else _fit_of(job)
    if fit.epsilon is not None:
        return PRIVATE_STEPS
    return tuple(dict.fromkeys(_fit_steps(fit, chosen=1 if _is_auto(job) else None)))


def _fit_steps(fit: Fit, chosen: int | None) -> Iterator[PlannedStep]:
    """Yield the steps that a clustering, or a choice of the number of clusters, asks for sure."""
    ks = tried(fit.n_clusters)
    k = chosen or max(ks or (fit.n_clusters,))
    if fit.prepare is not None:
        yield Missing
        yield from [Covariance] if fit.prepare.pca else []
    if ks is not None:
        yield from clustering_steps(replace(fit, n_clusters=k, model="k-means"))
        yield from [*evaluation_steps(fit.m), Moments]
    yield from clustering_steps(replace(fit, n_clusters=k))
    yield from profile_steps(k, fit.prepare) if fit.profile else []
    yield from [Separation, Agreement] if fit.stability else []


def plan_of(
    job: Job,
    sites: Sequence[SiteInfo],
    seed: int | None = None,
    preprocessor: Preprocessor | None = None,
) -> Plan[Any]:
    """Return what to ask these sites about the prepared rows, with a seed that was drawn.

    Raises
    ------
    InputError
        If the job makes no sense for these sites.
    """
    check_job(job, sites)
    seed = drawn(job.seed) if seed is None else seed
    if isinstance(job, Profile):
        return _profiles_of_model(model_of_job(job), smallest_of(sites))
    if isinstance(job, Evaluate):
        model = model_of_job(job)
        return evaluation(
            State(model.centers, model.weights, memory=model.memory),
            m=model.algorithm.get("m"),
            classes=job.classes,
            complete=not job.labels,
            metrics=job.metrics,
            n_references=0 if model.assigned_by else job.n_references,  # theirs are the nearest
            seed=seed,
        )
    n_rows = sum(rows_of(sites))
    fit = within(job, n_rows) if isinstance(job, Fit) else _fit_of(within(job, n_rows))
    ks = tried(fit.n_clusters)
    fit = replace(fit.at(sites), seed=seed)
    if ks is None:
        return mixture(fit, preprocessor) if fit.model == "mixture" else clustering(fit)
    most = min(MOST_TRIED, int(n_rows // ROWS_EACH)) if _is_auto(job) else None
    by_means = replace(fit, model="k-means")
    selection = select_k_plan(ks, by_means, fit.rule, most=most, preprocessor=preprocessor)
    return selection if fit.model == "k-means" else _chosen_mixture(selection, fit, preprocessor)


def _chosen_mixture(
    choosing: Plan[Selection], fit: Fit, preprocessor: Preprocessor | None
) -> Plan[Selection]:
    """Plan a choice of k, and then a mixture of as many components."""
    selection = yield from choosing
    k = selection.n_clusters
    result = yield from mixture(replace(fit, n_clusters=k), preprocessor)
    return replace(selection, results={**selection.results, k: result})


def _is_auto(job: Fit | SelectK) -> bool:
    """Return whether the job leaves open which is the largest number of clusters."""
    return job.k_max is None if isinstance(job, SelectK) else job.n_clusters == "auto"


def within(job: KJob, n_rows: float) -> KJob:
    """Return a job with no more numbers of clusters than there are rows for.

    Raises
    ------
    InputError
        If it asks for more clusters than rows by name.
    """
    if isinstance(job, Fit):
        ks = tried(job.n_clusters, n_rows)
        _check_rows(job.n_clusters if ks is None else max(ks, default=1), n_rows)
        return job if ks is None else replace(job, n_clusters=ks)
    _check_rows(job.k_max or job.k_min, n_rows)
    few = job.k_max is not None or job.k_last > n_rows
    return replace(job, k_max=min(job.k_last, int(n_rows))) if few else job


def _check_rows(k: int, n_rows: float) -> None:
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


def tried(n_clusters: Any, n_rows: float = MOST_CLUSTERS) -> tuple[int, ...] | None:
    """Return each number of clusters that is tried, rising; None where one is asked for.

    Examples
    --------
    >>> tried("auto", 3), tried([4, 2, 3]), tried(8)
    ((1, 2, 3), (2, 3, 4), None)
    """
    if isinstance(n_clusters, str):
        return tuple(range(1, int(min(MOST_CLUSTERS, n_rows)) + 1))
    return tuple(sorted(set(map(int, n_clusters)))) if np.iterable(n_clusters) else None


def _with_classes(job: Evaluate, engine: Engine, steps: Sequence[PlannedStep]) -> Evaluate:
    """Return the job; a comparison with labels with those known, or all that the sites tell of.

    Raises
    ------
    InputError
        If a site has none, or no site may tell one.
    """
    if not job.labels and job.classes is None:
        return job
    sites = engine.introduce(labels=True, steps=steps)
    by_site = {site.name: site.labels for site in sites if site.answered}
    lacking = [site for site, classes in by_site.items() if classes is None]
    if lacking:
        raise refused("labels-none", sites=", ".join(lacking))
    if not job.labels:
        return job
    every = {label for classes in by_site.values() for label in classes or ()}
    if not every:
        raise InputError(
            "no site may tell a label: each stands for fewer rows than its site's limits ask "
            "for; leave out --labels"
        )
    return replace(job, classes=tuple(sorted(every)))


def limits_of(
    job: Fit | SelectK, smallest: int | None = None, *, alone: bool = False
) -> list[Filter]:
    """Return what sites hold back that say nothing of it themselves.

    Parameters
    ----------
    job : Fit or SelectK
        Its algorithm says from which size on a site sends a cluster.
    smallest : int, optional
        The smallest cluster that a site sends, in the place of the algorithm's.
    alone : bool
        Whether all rows are one site's: they have nowhere to leave.
    """
    check_job(job)
    if isinstance(job, Fit) and job.epsilon is not None:
        if smallest is not None:
            raise refused("epsilon-limits")
        return []
    if smallest is not None:
        return [MinClusterSize(smallest)]
    fit = job if isinstance(job, Fit) else _fit_of(job)
    p = algorithm_of(replace(fit, n_clusters=1)).min_cluster_size
    limits: list[Filter] = [] if alone else [MinRows(2)]
    return [*limits, MinClusterSize(p)] if p > 1 else limits


def drawn(seed: int | RandomState) -> int:
    """Return the seed of the tasks, drawn from that of a job."""
    random = seed if isinstance(seed, RandomState) else RandomState(seed)
    return int(random.randint(2**31 - 1))


def job_from_json(name: str, parameters: Mapping[str, Any]) -> Job:
    """Return the job of a name with these parameters, as JSON holds them."""
    given = dict(parameters)
    for key, kind in (("prepare", PreprocessingSpec), ("rule", Rule)):
        if isinstance(given.get(key), Mapping):
            given[key] = kind(**given[key])
    job: Job = JOBS[name](**given)
    return job


def _fit_of(job: SelectK) -> Fit:
    """Return the clustering with each k that a choice of k rests on."""
    bounds = job.bounds
    sides = None if bounds is None else (np.array(bounds[0]), np.array(bounds[1]))
    parameters = {name: getattr(job, name) for name in _SHARED} | clustered_by(
        job.rule, job.m, job.averaging
    )
    rule = Rule(job.rule, job.pick, sides)  # type: ignore[arg-type]
    return Fit(range(job.k_min, job.k_last + 1), rule=rule, **parameters)


_SHARED = {each.name for each in fields(SelectK)} & {each.name for each in fields(Fit)} - {
    "rule",
    "bounds",
}


def preprocessing_of(job: Job) -> PreprocessingSpec | Preprocessor | None:
    """Return how rows are prepared: what is to be fitted, what was fitted, or not at all."""
    if isinstance(job, OfModel):
        return model_of_job(job).preprocessor
    return for_metric(job.prepare, job.metric)


def model_of_job(job: OfModel) -> Model:
    """Return the model of a job, read from its file where one is named."""
    return job.model if isinstance(job.model, Model) else Model.load(job.model, job.algorithms)


def _width_of(
    preprocessor: Preprocessor | None, columns: Sequence[str], sites: Sequence[SiteInfo]
) -> int:
    """Return how many columns prepared rows have; where no column is named, as the sites tell."""
    if preprocessor is not None:
        return len(preprocessor.names_out)
    return len(columns) or next((site.n_columns for site in sites if site.n_columns), 0)


def _check_width(job: Job, d: int) -> None:
    """Refuse bounds or a start of another number of columns than d, unless that is not known (0).

    Raises
    ------
    InputError
        With what to do.
    """
    if isinstance(job, OfModel) or not d:
        return
    fit = job if isinstance(job, Fit) else _fit_of(job)
    if fit.rule is not None:
        fit.rule.check(d)
    k, means = fit.n_clusters, fit.means
    given = {"init": fit.init, "means_init": fit.start}
    for option, start in given.items():
        centers = start.centers if isinstance(start, State) else start
        if isinstance(centers, np.ndarray) and centers.shape != (k, d):
            raise refused(
                "start-shape", option=option, shape=centers.shape, n_clusters=k, n_columns=d
            )
    if means is not None and means.centers.shape[1] != d:
        raise InputError(f"means have {means.centers.shape[1]} columns, the rows have {d}")
