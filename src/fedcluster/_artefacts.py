"""Files of a job, in one format wherever it ran; ``docs/schemas`` has their JSON schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedcluster._pages._page import reported
from fedcluster._report._messages import objective as objective_line
from fedcluster._report._pictures import pictured
from fedcluster._report._scores import better, meaning
from fedcluster._report._tables import SiteRecord, plain
from fedcluster.core import Result
from fedcluster.io._outputs import json_text
from fedcluster.jobs import (
    Evaluate,
    Fit,
    JobReport,
    Profile,
    SelectK,
    clustering_of,
    model_of_job,
    objective_of,
    preprocessing_of,
    tried,
)
from fedcluster.metrics.objectives import MEANINGS
from fedcluster.model import Model, plain_parameters, state_fields
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.preprocessing._messages import in_words
from fedcluster.recipes.robust import plain as plain_influence
from fedcluster.selection import Selection

HISTORY = "fedcluster-history"
SELECTION = "fedcluster-selection"
SCORES = "fedcluster-scores"
PROFILES = "fedcluster-profiles"
FORMAT_VERSION = 1
NOT_PARAMETERS = ("algorithm", "seed", "means", "start")
ASKED_BESIDES = ("profile", "stability", "robust")
OF_PRIVACY = ("epsilon", "delta", "group_size", "bounds", "n_rows")
OF_MIXTURES = ("model", "covariance_type", "reg_covar", "noise")


def result_of(report: JobReport) -> Result:
    """Return the clustering that a fit found, or chose."""
    return clustering_of(report.outcome.value)


def model_of(report: JobReport, *, dtype: str = "float64", **more: Any) -> Model:
    """Return the model of a fit; ``more`` are parameters besides those of the job."""
    job, result = report.job, result_of(report)
    assert isinstance(job, Fit)
    names = [each.name for each in fields(job) if each.name not in NOT_PARAMETERS]
    given = {name: getattr(job, name) for name in names} | more
    given["n_init"] = job.n_init or "auto"
    optional = {name for name in ("m", "rule") if given[name] is None}
    optional |= set(OF_MIXTURES if job.model == "k-means" else ())
    optional |= {name for name in ASKED_BESIDES if not given[name]}
    optional |= set(OF_PRIVACY if job.epsilon is None else ())
    parameters = {name: given[name] for name in sorted(given.keys() - optional)}
    return Model(
        **state_fields(result.state, result.algorithm),
        columns=report.columns,
        algorithm=plain_parameters(
            job.algorithm, parameters | {"objective": report.objective}, report.outcome.steps
        ),
        sites=report.sites,
        rounds=len(report.outcome.communication_rounds),
        seed=job.seed,
        dtype=dtype,
        preprocessor=report.preprocessor,
        names=() if report.profiles is None else report.profiles.names,
        privacy={} if report.privacy is None else report.privacy.plain(),
    )


def fit_content(report: JobReport, records: Sequence[SiteRecord] = ()) -> dict[str, Any]:
    """Return what ``history.json`` and ``--json`` say of a fit, without its rounds."""
    job, result = report.job, result_of(report)
    assert isinstance(job, Fit)
    chosen = report.outcome.value
    return {
        "n_clusters": len(result.state.centers),
        "model": job.model,
        "algorithm": str(job.algorithm),
        "columns": list(report.columns),
        "seed": job.seed,
        "stop_reason": result.reason,
        "inertia": plain(result.state.inertia),
        "objective": report.objective,
        "weights": result.state.weights.tolist(),
        **({} if report.privacy is None else {"privacy": report.privacy.plain()}),
        **_account(report, records),
        **({"influence": plain_influence(report.influence)} if report.influence else {}),
        **({"selection": _verdict(chosen)} if isinstance(chosen, Selection) else {}),
        **_profiles(report),
    }


def _of_the_fit(job: Evaluate, scores: Mapping[str, float]) -> list[str]:
    """Return what a fit made small, where that is not among the scores of its model."""
    model = model_of_job(job)
    name = str(model.algorithm.get("objective", "inertia"))
    if name == "inertia" or name in scores:
        return []
    own = "an objective of your own: name its algorithm by --algorithm to score it again"
    told = objective_line({"inertia": plain(model.inertia), "objective": name})
    return [f"The fit itself tells {told}, which is {MEANINGS.get(name, own)}."]


def profiles_content(report: JobReport, records: Sequence[SiteRecord] = ()) -> dict[str, Any]:
    """Return what ``profiles.json`` and ``--json`` say of clusters, without the rounds."""
    job = report.job
    assert isinstance(job, Profile)
    return {"model": str(job.model), **_profiles(report), **_account(report, records)}


def _profiles(report: JobReport) -> dict[str, Any]:
    """Return what is told of profiles and stability of clusters, where they were asked for."""
    told = {"profiles": report.profiles, "stability": report.stability}
    return {name: plain(each.plain()) for name, each in told.items() if each is not None}


def selection_content(report: JobReport) -> dict[str, Any]:
    """Return what ``selection.json`` and ``--json`` say of a choice of k, without its rounds."""
    return {**_verdict(report.outcome.value), "seed": report.job.seed, **_account(report)}


def scores_content(report: JobReport, records: Sequence[SiteRecord] = ()) -> dict[str, Any]:
    """Return what ``scores.json`` and ``--json`` say of an evaluation, without its rounds."""
    job, scores = report.job, report.outcome.value
    assert isinstance(job, Evaluate)
    objective = objective_of(job)
    metrics = (*job.metrics, *([] if objective is None else [objective]))
    return {
        "model": str(job.model),
        "scores": plain(scores),
        "better": {name: better(name, metrics) for name in scores},
        "meaning": [*meaning(scores), *_of_the_fit(job, scores)],
        **({} if job.classes is None else {"classes": sorted(job.classes)}),
        **_profiles(report),
        **_account(report, records),
    }


def write_job(
    folder: Path, report: JobReport, name: str = "", doubts: Sequence[str] = ()
) -> dict[str, Any]:
    """Write the files of a job of any kind, and of a fit a page that calls it by its name.

    What casts a doubt on a fit stands in both.

    Returns what there is to show.
    """
    job = report.job
    if isinstance(job, Fit):
        chosen = [] if tried(job.n_clusters) is None else write_selection(folder, report)
        files = [*chosen, "model.json", "history.json"]
        content = {**fit_content(report), "warnings": list(doubts)}
        model_of(report).save(folder / "model.json")
        write_history(folder, report, content, files, name)
        return content
    if isinstance(job, SelectK):
        write_selection(folder, report)
        return selection_content(report)
    if isinstance(job, Profile):
        content = profiles_content(report)
        write_profiles(folder, report, content)
        return content
    content = scores_content(report)
    write_scores(folder, report, content)
    return content


def write_history(
    folder: Path,
    report: JobReport,
    content: Mapping[str, Any],
    files: Sequence[str],
    page: str | None,
) -> list[str]:
    """Write ``history.json``: what happened, round by round; and the page on all files.

    Parameters
    ----------
    folder : Path
        Where the other files are already.
    report : JobReport
        What came of the job.
    content : mapping
        What is told of it.
    files : sequence of str
        The names of all files.
    page : str or None
        What the page calls the run; None for no page.

    Returns
    -------
    list of str
        The names of all files, with that of the page.
    """
    path, history = folder / "history.json", plain(result_of(report).history)
    told = {**content, "files": list(files), "history": history}
    _write(path, HISTORY, report, told)
    if page is not None and (more := reported(folder, page)):
        told["files"] += more
        _write(path, HISTORY, report, told)
    return list(told["files"])


def write_selection(folder: Path, report: JobReport) -> list[str]:
    """Write ``selection.json`` and, with matplotlib, ``curves.png``; returns their names."""
    _write(folder / "selection.json", SELECTION, report, selection_content(report))
    return ["selection.json", *pictured("curves", folder / "curves.png", report.outcome.value.plot)]


def write_scores(folder: Path, report: JobReport, content: Mapping[str, Any]) -> None:
    """Write ``scores.json``: the indices of all sites together."""
    _write(folder / "scores.json", SCORES, report, content)


def write_profiles(folder: Path, report: JobReport, content: Mapping[str, Any]) -> None:
    """Write ``profiles.json``: what sets the clusters of a model apart."""
    _write(folder / "profiles.json", PROFILES, report, content)


def _write(path: Path, kind: str, report: JobReport, content: Mapping[str, Any]) -> None:
    rounds = {"communication_rounds": report.outcome.account()}
    told = {"format": kind, "format_version": FORMAT_VERSION, **content, **rounds}
    path.write_text(json_text(told), encoding="utf-8")


def _verdict(selection: Selection) -> dict[str, Any]:
    return {
        "n_clusters": selection.n_clusters,
        "rule": selection.rule,
        "reason": selection.reason,
        "warnings": list(selection.warnings),
        "says": dict(selection.says),
        "table": [{"k": k, **plain(dict(scores))} for k, scores in selection.table.items()],
    }


def _account(report: JobReport, records: Sequence[SiteRecord] = ()) -> dict[str, Any]:
    """Return what is told of every job: rounds, sites, who was missing, the preprocessing."""
    sent, here = report.outcome.values_sent(), {record.name: record for record in records}
    return {
        "rounds": len(report.outcome.communication_rounds),
        "sites": [
            {
                "name": site.name,
                "weight": site.weight,
                "limits": plain(site.limits),
                "values_sent": sent.get(site.name, 0),
                **({"secure": True} if site.secure else {}),
                **(here[site.name].told_here if site.name in here else {}),
            }
            for site in report.sites
        ],
        "missing": plain(report.refusals),
        **_preprocessing(report),
    }


def _preprocessing(report: JobReport) -> dict[str, Any]:
    """Return what is told of a preprocessing that was fitted: sentences, and data."""
    if not (lines := sentences(report)):
        return {}
    met = report.fit_report
    return {
        "prepared": lines,
        "preprocessing": {
            "missing": plain(met.missing),
            "left_out": plain(met.left_out),
            "pooled": plain(met.pooled),
            "only_at": [[*key, site] for key, site in met.only_at.items()],
            "clipped": plain(met.clipped),
            "warnings": list(met.warnings),
        },
    }


def sentences(report: JobReport) -> list[str]:
    """Return what people are told of a preprocessing that was fitted."""
    of_model = isinstance(report.job, Evaluate | Profile)
    how = None if of_model else preprocessing_of(report.job)
    if not isinstance(how, PreprocessingSpec) or report.preprocessor is None:
        return []
    return in_words(how, report.preprocessor, report.fit_report)
