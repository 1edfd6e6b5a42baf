"""The common parts of jobs of all kinds: the procedure, and the report."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from numpy.random import RandomState

from fedcluster import preprocessing as prepared
from fedcluster.core import (
    Column,
    Engine,
    Filter,
    Introduction,
    Labels,
    PlannedStep,
    Result,
    SiteInfo,
)
from fedcluster.core.engine import WithoutSites
from fedcluster.errors import FewGroupsWarning, InputError, listed
from fedcluster.jobs.doubts import group_sizes, inertia_error
from fedcluster.lazy import LazyModule
from fedcluster.metrics.clusters import objective_name
from fedcluster.preprocessing import FitReport, PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.spec import in_words
from fedcluster.privacy.limits import must_round
from fedcluster.recipes.robust import Influence, Listener, robust_rule, with_account
from fedcluster.recipes.specifications import (
    Compare,
    Evaluate,
    Fit,
    Profile,
    SelectK,
    smallest_of,
)
from fedcluster.rounds import CommunicationRound, Outcome, Plan, run_plan, with_preprocessing

if TYPE_CHECKING:
    from fedcluster.model.profiles import Profiles
    from fedcluster.model.stability import Crossing, Stability
    from fedcluster.preprocessing.agreement import Schema
    from fedcluster.preprocessing.fitting import Fitted
    from fedcluster.privacy import PrivacySpent
    from fedcluster.recipes.succession import Succession
    from fedcluster.selection import Selection

release = LazyModule("fedcluster.jobs.release")

Job = Fit | SelectK | Evaluate | Profile | Compare
Watch = Callable[[CommunicationRound], None]


@dataclass(frozen=True, slots=True, eq=False)
class PlanContext:
    """What is known when a plan is made.

    Parameters
    ----------
    sites : sequence of SiteInfo
        The metadata of the sites.
    seed : int
        The seed of the tasks, drawn from that of the job.
    preprocessor : Preprocessor, optional
        The fitted preprocessor, once it exists.
    columns : sequence of str
        The columns of the rows.
    rounds : int
        Number of rounds that the preprocessing took.
    """

    sites: Sequence[SiteInfo]
    seed: int
    preprocessor: Preprocessor | None = None
    columns: Sequence[str] = ()
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class JobResult:
    """Return value of a job's plan: its value, and what was requested in addition.

    A ``preprocessor`` is that of the clusters, if not that of the stage.
    """

    value: Any
    stability: Stability | None = None
    profiles: Profiles | None = None
    beside: Crossing | None = None
    preprocessor: Preprocessor | None = None
    since: Succession | None = None


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
        The sites that were asked, with their limits.
    preprocessor : Preprocessor, optional
        The preprocessor of the rows.
    fit_report : FitReport
        The findings while it was fitted.
    refusals : tuple of Refusal
        The sites missing in each round, and why.
    profiles : Profiles, optional
        The profiles of the clusters, if requested.
    stability : Stability, optional
        Their stability, if requested.
    privacy : PrivacySpent, optional
        The cost of the answers, if there is a privacy budget.
    influence : tuple of Influence
        The influence of each site on the centres of a fit, largest first, if it is known.
    prepare : PreprocessingSpec, optional
        The preprocessing that was fitted, as the job specifies it.
    beside : Crossing, optional
        The rows in each pair of clusters of two models, if requested.
    since : Succession, optional
        What became of the clusters of the fit that this one continues.
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
    prepare: PreprocessingSpec | None = None
    beside: Crossing | None = None
    since: Succession | None = None

    @property
    def clustering(self) -> Result:
        """The clustering that was found or chosen."""
        return clustering_of(self.outcome.value)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the clusters, if they are known."""
        return next((each.names for each in (self.since, self.profiles) if each is not None), ())

    @property
    def objective(self) -> str:
        """The name of a fit's objective, whose value is the inertia of its result."""
        how = {"robust": self.job.robust > 0, "noisy": self.privacy is not None}  # type: ignore[union-attr]
        return objective_name(self.clustering.algorithm, **how)

    @property
    def inertia_error(self) -> float:
        """The share by which the inertia may miss that of the rows; see `doubts.inertia_error`."""
        return inertia_error(self.sites, self.clustering, self.preprocessor)

    @property
    def prepared(self) -> list[str]:
        """Sentences on the preprocessing that was fitted, if one was."""
        if self.prepare is None or self.preprocessor is None:
            return []
        how = {"grouped": bool(group_sizes(self.sites))}
        return in_words(self.prepare, self.preprocessor, self.fit_report, **how)

    def with_decisions(
        self, left_out: Mapping[str, str], notes: Sequence[str], warnings: Sequence[str] = ()
    ) -> Self:
        """Return the report with findings added from before the sites were asked."""
        return replace(self, fit_report=self.fit_report.with_decisions(left_out, notes, warnings))


class Procedure(ABC):
    """Procedure of a job of one kind: its questions to the sites, and its report.

    Parameters
    ----------
    job : Fit, SelectK, Evaluate or Profile
        The job.
    """

    faults = 0
    """The number of sites that may lie, or not answer."""

    rows_per_person: int | None = None
    """The largest number of rows of a person, if a privacy budget depends on it."""

    def __init__(self, job: Any) -> None:
        self.job = job

    @property
    @abstractmethod
    def preprocessing(self) -> PreprocessingSpec | Preprocessor | None:
        """The preprocessing of the rows: a specification, a fitted preprocessor, or None."""

    @abstractmethod
    def check(self, sites: Sequence[SiteInfo] = ()) -> None:
        """Raise an error for a job that is not possible, in general or for these sites."""

    @abstractmethod
    def steps(self) -> tuple[PlannedStep, ...]:
        """Return the steps that the job asks whatever the rows and the sites are.

        Sites are informed of them before the first question, so that a job that one of them cannot
        do ends at once. Other steps, such as those that find a start, depend on the answers.
        """

    @abstractmethod
    def plan(self, at: PlanContext) -> Plan[Any]:
        """Return the plan of questions about the prepared rows at a stage."""

    def whole_plan(self, at: PlanContext) -> Plan[JobResult]:
        """Plan everything that is asked after the preprocessing."""
        return JobResult((yield from with_preprocessing(self.plan(at), at.preprocessor)))

    def informed_by(self, _engine: Engine) -> Self:
        """Return the procedure with the facts about the sites that it needs before planning."""
        return self

    def own_code(self) -> list[str]:
        """Return the dotted names of user-defined code that the job imports."""
        job = self.job
        names = [getattr(job, "algorithm", ""), getattr(getattr(job, "prepare", None), "then", "")]
        names += [*getattr(job, "algorithms", ()), *getattr(job, "metrics", ())]
        return [name for name in names if isinstance(name, str) and "." in name]

    def public_columns(self, _chosen: Sequence[str] | None) -> tuple[str, ...] | None:
        """Return the columns of a job that does not ask the sites for their columns, else None."""
        return None

    def with_public(
        self,
        _columns: Sequence[str] | None,
        _ranges: Mapping[str, tuple[float, float]],
        _n_rows: float | None,
    ) -> Job:
        """Return the job with public ranges of columns and numbers of rows, if it needs them.

        Sites are then not asked for either.
        """
        job: Job = self.job
        return job

    def limits(self, _smallest: int | None = None, *, alone: bool = False) -> list[Filter]:
        """Return the limits that apply to sites without limits of their own.

        Parameters
        ----------
        smallest : int, optional
            The smallest cluster that a site sends, instead of the algorithm's.
        alone : bool
            Whether all rows belong to one site, which then discloses nothing to others.
        """
        return []

    def within(self, _n_rows: float) -> Any:
        """Return the job restricted to numbers of clusters for which there are enough rows."""
        return self.job

    def check_schema(self, schema: Schema) -> None:  # noqa: B027
        """Raise an error for agreed columns that the job cannot use."""

    def check_width(self, d: int) -> None:  # noqa: B027
        """Raise an error for prepared rows with d columns if the job requires another number."""

    def influence(
        self, _value: Any, _listener: Listener, _seed: int, _columns: Sequence[str]
    ) -> tuple[Influence, ...]:
        """Return the influence of each site on the centres of a fit."""
        return ()

    def foreseen(self, _sites: Sequence[SiteInfo]) -> list[str]:
        """Return doubts about clusters that are known before any is sought."""
        return []

    def doubts(self, _report: JobReport, _labels: Mapping[str, Labels] | None = None) -> list[str]:
        """Return doubts about the clusters that were found, if any were.

        Labels by site show the clusters that have rows; else these are those with a weight.
        """
        return []

    def run(
        self, engine: Engine, columns: Sequence[str], watch: Watch | None, enough: int | None
    ) -> JobReport:
        """Choose columns, fit the preprocessing, run the plan and report on it; see `execute`."""
        seed, steps = drawn(self.job.seed), self.steps()
        engine, fitting = self._agreed(engine, steps, enough)
        # a dry run: refuse what is impossible for these sites before they are asked
        self.plan(PlanContext(introduced := engine.introduce(steps=steps), seed))
        for line in self.foreseen(introduced):
            warnings.warn(line, FewGroupsWarning, stacklevel=4)
        listener = Listener(robust_rule(self.job, engine.introduce(), seed))
        before: Outcome[Any] = Outcome(None, ())
        preprocessor: Any = self.preprocessing
        fit_report = FitReport()
        if fitting is not None:
            before = run_plan(fitting, engine, watch=watch, listener=listener)
            preprocessor, fit_report = before.value.preprocessor, before.value.fit_report
            columns = [column.name for column in preprocessor.columns]
        sites = engine.introduce()
        if fitting is not None and must_round(sites):
            preprocessor = release.released_preprocessor(preprocessor, self.preprocessing, sites)
        rounds = len(before.communication_rounds)
        self.check_width(_width_of(preprocessor, columns, sites))
        outcome = run_plan(
            self.whole_plan(PlanContext(sites, seed, preprocessor, columns, rounds)),
            engine,
            participation=self.job.participation,
            watch=watch,
            listener=listener,
            seed=seed,
        )
        found: JobResult = outcome.value
        report = JobReport(
            self.job,
            replace(outcome, value=with_account(found.value, listener)).after(before),
            tuple(columns),
            engine.introduce(),
            found.preprocessor or preprocessor,
            fit_report,
            profiles=found.profiles,
            stability=found.stability,
            influence=self.influence(found.value, listener, seed, columns),
            prepare=self.preprocessing if fitting is not None else None,  # type: ignore[arg-type]
            beside=found.beside,
            since=found.since,
        )
        return release.published(report) if must_round(report.sites) else report

    def _agreed(
        self, engine: Engine, steps: Sequence[PlannedStep], enough: int | None
    ) -> tuple[Engine, Plan[Fitted] | None]:
        """Return the engine, and the plan that fits a preprocessing; None if there is none to fit.

        Sites with other kinds of columns than most are left out, if enough sites remain.

        Raises
        ------
        InputError
            If there are too many such sites (the message names site, column and kinds), if the
            sites do not agree on columns, or if the job cannot use the prepared columns.
        """
        how = self.preprocessing
        if not isinstance(how, PreprocessingSpec):
            return engine, None
        described, doubts = _described(how, engine, steps), []
        odd, reason = prepared.odd_sites(described, how)
        if odd:
            if len(described) - len(odd) < (enough or len(described)):
                # the error names all differences in the chosen columns
                prepared.agree(described, how.columns)
                raise InputError(reason)
            described = {name: each for name, each in described.items() if name not in odd}
            doubts = [f"left out of the run: {listed(list(odd))}; {reason}"]
            engine = WithoutSites(engine, odd)
        schema = prepared.agree(described, how.columns)
        schema = replace(schema, warnings=(*doubts, *schema.warnings))
        self.check_schema(schema)
        if (width := prepared.n_columns_out(how, schema)) is not None:
            self.check_width(width)
        smallest = smallest_of(engine.introduce())
        return engine, prepared.fit(how, schema, smallest=smallest)


def fitted_preprocessing(how: PreprocessingSpec, engine: Engine) -> Fitted:
    """Return the preprocessing alone, fitted as for a job."""
    schema = prepared.agree(_described(how, engine, ()), how.columns)
    fitted: Fitted = run_plan(prepared.fit(how, schema), engine).value
    return fitted


def _described(
    how: PreprocessingSpec, engine: Engine, steps: Sequence[PlannedStep]
) -> dict[str, tuple[Column, ...]]:
    """Return the columns as the sites describe them."""
    asked: Introduction = {"columns": True, "texts": how.named, "steps": steps}
    # bounds, logarithms and dates change values before the first summary
    if not (how.bounds or how.log or how.dates):
        asked["first_tasks"] = prepared.first_tasks
    sites = engine.introduce(**asked)
    return {site.name: site.columns for site in sites if site.answered}


def clustering_of(value: Any) -> Result:
    """Return the clustering that a fit found, or chose."""
    choice = choice_of(value)
    result: Result = value if choice is None else choice.results[choice.n_clusters]
    return result


def with_clustering(value: Any, found: Result) -> Any:
    """Return the value of a fit with another clustering."""
    choice = choice_of(value)
    if choice is None:
        return found
    return replace(choice, results={**choice.results, choice.n_clusters: found})


def choice_of(value: Any) -> Selection | None:
    """Return the choice of the number of clusters that a job made; None if it made none.

    A choice is known by what it holds, as a fit with a stated number loads no choices.
    """
    return value if hasattr(value, "results") else None


def drawn(seed: int | RandomState) -> int:
    """Return the seed of the tasks, drawn from that of a job."""
    random = seed if isinstance(seed, RandomState) else RandomState(seed)
    return int(random.randint(2**31 - 1))


def _width_of(
    preprocessor: Preprocessor | None, columns: Sequence[str], sites: Sequence[SiteInfo]
) -> int:
    """Return the number of columns of prepared rows; 0 if unknown."""
    if preprocessor is not None:
        return len(preprocessor.names_out)
    return len(columns) or next((site.n_columns for site in sites if site.n_columns), 0)
