"""Jobs that sites carry out together, and the one function that runs them on any engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from fedcluster.core import Engine, SiteInfo
from fedcluster.jobs._kinds import model_name as model_name
from fedcluster.jobs._kinds import model_of as model_of
from fedcluster.jobs._kinds import tried as tried
from fedcluster.jobs._procedure import Job as Job
from fedcluster.jobs._procedure import JobReport, PlanContext, Procedure, Watch
from fedcluster.jobs._procedure import choice_of as choice_of
from fedcluster.jobs._procedure import clustering_of as clustering_of
from fedcluster.jobs._procedure import drawn as drawn
from fedcluster.jobs._procedure import fitted_preprocessing as fitted_preprocessing
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.recipes.specifications import (
    Compare,
    Evaluate,
    Fit,
    PrivateFit,
    Profile,
    Rule,
    SelectK,
    fit_of,
)
from fedcluster.rounds import Plan

__all__ = ["Compare", "Evaluate", "Fit", "JobReport", "Profile", "SelectK", "execute", "fit_of"]

JOBS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {Fit.kind: fit_of, **{job.kind: job for job in (SelectK, Evaluate, Profile, Compare)}}
)
"""What makes a job of each name from its parameters."""

PROCEDURES: Mapping[type[Any], str] = MappingProxyType(
    {
        PrivateFit: "_kinds:PrivateFitProcedure",
        Fit: "_kinds:FitProcedure",
        SelectK: "_kinds:SelectProcedure",
        Evaluate: "_of_model:EvaluateProcedure",
        Profile: "_of_model:ProfileProcedure",
        Compare: "_outcomes:CompareProcedure",
    }
)
"""The procedure of each kind of job, and its module, which is loaded for the first such job."""


def execute(
    job: Job,
    engine: Engine,
    *,
    columns: Sequence[str] = (),
    watch: Watch | None = None,
    enough: int | None = None,
) -> JobReport:
    """Carry a job out: agree on columns, fit the preprocessing, run the plan, keep account.

    Parameters
    ----------
    job : Fit, SelectK, Evaluate, Profile or Compare
        The job.
    engine : Engine
        The engine that asks the sites.
    columns : sequence of str
        The columns of rows that are not prepared.
    watch : callable taking a CommunicationRound, optional
        Called with the record of each round, for instance for a progress bar.
    enough : int, optional
        The smallest number of sites with which the job may begin if columns of the others have
        other kinds than at most sites; by default all.

    Returns
    -------
    JobReport
        The report.

    Raises
    ------
    InputError
        If the job is not possible for these sites.
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
    >>> report = execute(fit_of(2), LocalEngine([north, south]), columns=["age"])
    >>> report.outcome.value.state.centers.tolist(), len(report.outcome.communication_rounds)
    ([[1.0], [9.0]], 9)
    """
    procedure = procedure_of(job)
    procedure.check()
    return procedure.informed_by(engine).run(engine, columns, watch, enough)


def procedure_of(job: Job) -> Procedure:
    """Return the procedure of a job."""
    home = next(home for kind, home in PROCEDURES.items() if isinstance(job, kind))
    module, name = home.split(":")
    procedure: Procedure = getattr(import_module(f"fedcluster.jobs.{module}"), name)(job)
    return procedure


def plan_of(job: Job, sites: Sequence[SiteInfo]) -> Plan[Any]:
    """Return the plan of questions to these sites about rows as they are.

    Raises
    ------
    InputError
        If the job is not possible for these sites.
    """
    return procedure_of(job).plan(PlanContext(sites, drawn(job.seed), None))


def job_from_json(name: str, parameters: Mapping[str, Any]) -> Job:
    """Return the job with this name and these parameters, as read from JSON."""
    made = dict(parameters)
    for key, kind in (("prepare", PreprocessingSpec), ("rule", Rule)):
        if isinstance(made.get(key), Mapping):
            made[key] = kind(**made[key])
    if isinstance(made.get("init"), list):
        made["init"] = np.array(made["init"])
    job: Job = JOBS[name](**made)
    return job
