"""Jobs that sites do together, and the one function that carries them out on any engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.random import RandomState

from fedcluster._choices import imported
from fedcluster._profiles import Profiles
from fedcluster._specifications import (
    MOST_CLUSTERS,
    Evaluate,
    Fit,
    Profile,
    SelectK,
    smallest_of,
    weight_of,
)
from fedcluster._stability import Stability
from fedcluster.core import (
    Engine,
    Filter,
    Metric,
    Result,
    RowTransform,
    SiteInfo,
    State,
    check_step,
)
from fedcluster.errors import InputError
from fedcluster.model import Model
from fedcluster.preprocessing import FitReport, PreprocessingSpec, Preprocessor
from fedcluster.preprocessing._fitting import Fitted
from fedcluster.preprocessing._fitting import fit as fit_preprocessor
from fedcluster.preprocessing._spec import agree, for_metric
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.recipes import clustering, evaluation, mixture
from fedcluster.recipes._bootstrap import (
    MOST_REPLICATES,
    REPLICATES,
    beside_replicates,
    compared,
    counted,
    finished,
    replicate,
    replicated,
)
from fedcluster.recipes._clustering import algorithm_of
from fedcluster.recipes._influence import Influence, influences
from fedcluster.recipes._private import private_clustering
from fedcluster.recipes._private_fit import (
    AccountedEngine,
    PrivacySpent,
    box_of,
    budget_of,
    n_noises_of,
    n_rows_of,
)
from fedcluster.recipes._profiling import assigned_rows, profiles_of
from fedcluster.recipes._robust import Listener, robust_rule, with_account
from fedcluster.rounds import (
    CommunicationRound,
    Outcome,
    Plan,
    gather,
    run_plan,
    with_preprocessing,
)
from fedcluster.selection import Rule, Selection
from fedcluster.selection._sweep import clustered_by, select_k_plan

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

    def with_decisions(self, left_out: Mapping[str, str], notes: Sequence[str]) -> Self:
        """Return the report with columns that were set aside before the sites were asked."""
        return replace(self, fit_report=self.fit_report.with_decisions(left_out, notes))


def execute(
    job: Job, engine: Engine, *, columns: Sequence[str] = (), watch: Watch | None = None
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
    if isinstance(job, Fit) and job.epsilon is not None:
        return _fit_privately(job, engine, columns, watch)
    if isinstance(job, Evaluate):
        job = replace(job, metrics=tuple(map(_metric, job.metrics)))
        job = _with_classes(job, engine) if job.labels else job
    seed, how = drawn(job.seed), preprocessing_of(job)
    fitting = _fitting(how, engine) if isinstance(how, PreprocessingSpec) else None
    plan_of(job, engine.introduce(), seed)  # refuses what makes no sense for these sites
    listener = Listener(robust_rule(job, engine.introduce(), seed))
    before: Outcome[Any] = Outcome(Fitted(how, FitReport()), ())  # type: ignore[arg-type]
    if fitting is not None:
        before = run_plan(fitting, engine, watch=watch, listener=listener)
        columns = [column.name for column in before.value.preprocessor.columns]
    preprocessor = before.value.preprocessor
    _check_width(job, len(preprocessor.names_out) if preprocessor else len(columns))
    sites = engine.introduce()
    plan = plan_of(job, sites, seed, preprocessor)
    plan = with_preprocessing(plan, _row_transform(job, preprocessor))
    if isinstance(job, Fit) and job.stability:
        plan = _with_stability(plan, job, preprocessor, sites, before)
    whole = _with_profiles(plan, job, preprocessor, columns, sites)
    terms: dict[str, Any] = {"watch": watch, "listener": listener, "seed": seed}
    outcome = run_plan(whole, engine, participation=job.participation, **terms)
    (value, stability), profiles = outcome.value
    return JobReport(
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


def _fit_privately(
    job: Fit, engine: Engine, columns: Sequence[str], watch: Watch | None
) -> JobReport:
    """Carry a fit out under its privacy budget: every answer has noise, and is counted."""
    budget, box = budget_of(job), box_of(job, columns)
    accounted, sites, seed = AccountedEngine(engine, budget), engine.introduce(), drawn(job.seed)
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
    _check_replicable(job, sites)
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


def _check_replicable(job: Fit, sites: Sequence[SiteInfo]) -> None:
    """Refuse stability of what cannot be replicated.

    Raises
    ------
    InputError
        With what to do.
    """
    if job.model == "mixture":
        raise InputError("stability is for clusters of k-means and fuzzy c-means: leave it out")
    if job.stability is not True and not 0 < int(job.stability) <= MOST_REPLICATES:
        raise InputError(
            f"stability must be 1 to {MOST_REPLICATES} replicates, not {job.stability}"
        )
    if streams := [site.name for site in sites if site.streams]:
        raise InputError(
            f"stability draws rows anew, which must be held at once, and those of {streams[0]} "
            "come in chunks: leave it out"
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
        asked: list[Any] = yield from gather([plan, _profiles_of_model(_model(job), smallest)])
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
    model = _model(job) if isinstance(job, Evaluate) else None
    if model is None or model.assigned_by is None:
        return preprocessor
    if not len(model.centers):
        raise InputError("the model has no centres, which its scores are about")
    return assigned_rows(model.state, model.assigned_by, preprocessor)


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
    fitted: Fitted = run_plan(_fitting(how, engine), engine).value
    return fitted


def _fitting(how: PreprocessingSpec, engine: Engine) -> Plan[Fitted]:
    """Return the plan that fits a preprocessing to the columns that the sites tell of."""
    sites = engine.introduce(columns=True, texts=how.named)
    described = {site.name: site.columns for site in sites if site.answered}
    return fit_preprocessor(how, agree(described, how.columns))


def plan_of(
    job: Job,
    sites: Sequence[SiteInfo],
    seed: int | None = None,
    preprocessor: Preprocessor | None = None,
) -> Plan[Any]:
    """Return what to ask these sites about the prepared rows, with a seed that was drawn."""
    seed = drawn(job.seed) if seed is None else seed
    if isinstance(job, Profile):
        return _profiles_of_model(_model(job), smallest_of(sites))
    if isinstance(job, Evaluate):
        model = _model(job)
        return evaluation(
            State(model.centers, model.weights, memory=model.memory),
            m=model.algorithm.get("m"),
            classes=job.classes,
            complete=not job.labels,
            metrics=job.metrics,
            n_references=0 if model.assigned_by else job.n_references,  # theirs are the nearest
            seed=seed,
        )
    n_rows = weight_of(sites)
    fit = within(job, n_rows) if isinstance(job, Fit) else _fit_of(within(job, n_rows))
    ks = tried(fit.n_clusters)
    if fit.trim and ks is not None:
        raise InputError("trim is for one number of clusters: choose it first, without trim")
    fit = replace(fit.at(sites), seed=seed)
    algorithm_of(replace(fit, n_clusters=1))  # refuses wishes that contradict each other
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
        _check_rows(job.n_clusters if ks is None else max(ks), n_rows)
        return job if ks is None else replace(job, n_clusters=ks)
    _check_rows(job.k_max or job.k_min, n_rows)
    few = job.k_max is not None or job.k_last > n_rows
    return replace(job, k_max=min(job.k_last, int(n_rows))) if few else job


def _check_rows(k: int, n_rows: float) -> None:
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


def _with_classes(job: Evaluate, engine: Engine) -> Evaluate:
    """Return a comparison with all labels that the sites tell of, in alphabetical order.

    Raises
    ------
    InputError
        If a site has none, or no site may tell one.
    """
    sites = engine.introduce(labels=True)
    by_site = {site.name: site.labels for site in sites if site.answered}
    lacking = [site for site, classes in by_site.items() if classes is None]
    if lacking:
        raise InputError(
            f"no labels to compare with at {', '.join(lacking)}: write label_column = "
            '"NAME" in the site.toml there and start the site anew, or leave out --labels'
        )
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
    if isinstance(job, Fit) and job.epsilon is not None:
        if smallest is not None:
            raise InputError("limits hold nothing back under a privacy budget: leave them out")
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


_SHARED = {each.name for each in fields(SelectK)} & {each.name for each in fields(Fit)} - {"rule"}


def preprocessing_of(job: Job) -> PreprocessingSpec | Preprocessor | None:
    """Return how rows are prepared: what is to be fitted, what was fitted, or not at all."""
    if isinstance(job, OfModel):
        return _model(job).preprocessor
    return for_metric(job.prepare, job.metric)


def _model(job: OfModel) -> Model:
    return job.model if isinstance(job.model, Model) else Model.load(job.model, job.algorithms)


def _check_width(job: Job, d: int) -> None:
    """Refuse bounds or a start of another number of columns than d."""
    if isinstance(job, OfModel):
        return
    fit = job if isinstance(job, Fit) else _fit_of(job)
    if fit.rule is not None:
        fit.rule.check(d)
    if isinstance(fit.init, np.ndarray) and fit.init.shape != (fit.n_clusters, d):
        raise InputError(
            f"init has shape {fit.init.shape}, but n_clusters={fit.n_clusters} and the rows have "
            f"{d} columns"
        )
