"""Carrying jobs out, and what others ask of a job of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedcluster.core import Engine, Filter, Labels, PlannedStep, SiteInfo
from fedcluster.jobs._kinds import (
    EvaluateProcedure,
    FitProcedure,
    KJob,
    PrivateFitProcedure,
    ProfileProcedure,
    SelectProcedure,
)
from fedcluster.jobs._procedure import Job, JobReport, Procedure, Stage, Watch, drawn
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.recipes.specifications import Evaluate, Fit, Profile, SelectK
from fedcluster.report.records import SiteRecord
from fedcluster.rounds import Plan
from fedcluster.selection import Rule

JOBS: Mapping[str, type[Any]] = MappingProxyType(
    {job.kind: job for job in (Fit, SelectK, Evaluate, Profile)}
)
"""The jobs by their names."""

PROCEDURES: Mapping[type[Any], type[Procedure]] = MappingProxyType(
    {
        Fit: FitProcedure,
        SelectK: SelectProcedure,
        Evaluate: EvaluateProcedure,
        Profile: ProfileProcedure,
    }
)
"""How jobs are carried out, by their kind."""


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
        Called with every round as it ends, for a progress bar.
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
    >>> import numpy as np
    >>> from fedcluster import Client, Data, LocalEngine
    >>> north = Client("north", Data(np.array([[0.0], [1.0], [2.0]])))
    >>> south = Client("south", Data(np.array([[8.0], [9.0], [10.0]])))
    >>> report = execute(Fit(2), LocalEngine([north, south]), columns=["age"])
    >>> report.outcome.value.state.centers.tolist(), len(report.outcome.communication_rounds)
    ([[1.0], [9.0]], 9)
    """
    procedure = procedure_of(job)
    procedure.check()
    return procedure.informed_by(engine).run(engine, columns, watch, enough)


def procedure_of(job: Job) -> Procedure:
    """Return how a job is carried out, and what it needs for that."""
    if isinstance(job, Fit) and job.epsilon is not None:
        return PrivateFitProcedure(job)
    return PROCEDURES[type(job)](job)


def check_job(job: Job, sites: Sequence[SiteInfo] = ()) -> None:
    """Refuse a job that makes no sense, or not for these sites.

    Raises
    ------
    InputError
        With what to do.
    """
    procedure_of(job).check(sites)


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
    return procedure_of(job).steps()


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
    drawn_seed = drawn(job.seed) if seed is None else seed
    return procedure_of(job).plan(Stage(sites, drawn_seed, preprocessor))


def preprocessing_of(job: Job) -> PreprocessingSpec | Preprocessor | None:
    """Return how rows are prepared: what is to be fitted, what was fitted, or not at all."""
    return procedure_of(job).preprocessing


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
    return procedure_of(job).limits(smallest, alone=alone)


def within(job: KJob, n_rows: float) -> KJob:
    """Return a job with no more numbers of clusters than there are rows for.

    Raises
    ------
    InputError
        If it asks for more clusters than rows by name.
    """
    bounded: KJob = procedure_of(job).within(n_rows)
    return bounded


def job_from_json(name: str, parameters: Mapping[str, Any]) -> Job:
    """Return the job of a name with these parameters, as JSON holds them."""
    made = dict(parameters)
    for key, kind in (("prepare", PreprocessingSpec), ("rule", Rule)):
        if isinstance(made.get(key), Mapping):
            made[key] = kind(**made[key])
    job: Job = JOBS[name](**made)
    return job


def doubts_of(report: JobReport, labels: Mapping[str, Labels] | None = None) -> list[str]:
    """Return what casts a doubt on the clusters that a job found, if it found some.

    Parameters
    ----------
    report : JobReport
        What came of the job.
    labels : mapping of str to ndarray, optional
        The labels of the rows by site, which say what clusters have rows, and whose; else those
        with a weight have.
    """
    return procedure_of(report.job).doubts(report, labels)


def content_of(report: JobReport, records: Sequence[SiteRecord] = ()) -> dict[str, Any]:
    """Return what the file of a job and ``--json`` say of it, without its rounds.

    Parameters
    ----------
    report : JobReport
        What came of the job.
    records : sequence of SiteRecord
        What sites of this machine hold and sent, which is told besides.
    """
    return procedure_of(report.job).content(report, records)


def write_report(folder: Path, report: JobReport, content: Mapping[str, Any]) -> list[str]:
    """Write the content of a choice of k, of scores or of profiles; return the names of files."""
    return procedure_of(report.job).write(folder, report, content)


def write_job(
    folder: Path, report: JobReport, name: str = "", doubts: Sequence[str] = ()
) -> dict[str, Any]:
    """Write all files of a job of any kind; return the content that there is to show.

    Parameters
    ----------
    folder : Path
        An empty folder.
    report : JobReport
        What came of the job.
    name : str
        What the page of a fit calls the run.
    doubts : sequence of str
        What casts a doubt on a fit, which its files say.
    """
    return procedure_of(report.job).write_all(folder, report, name, doubts)
