"""Files of a job, made from its report: what ``--json`` shows, and what stays in a folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcluster.core.files import json_text, plain
from fedcluster.jobs import JobReport, model_name, model_of, procedure_of, tried
from fedcluster.metrics.clusters import MEANINGS
from fedcluster.model.file import Model
from fedcluster.model.run import Run
from fedcluster.recipes.robust import plain as plain_influence
from fedcluster.recipes.specifications import Compare, Evaluate, Fit, Profile, SelectK

if TYPE_CHECKING:
    from fedcluster.selection import Selection
from fedcluster_app.report.messages import better, meaning
from fedcluster_app.report.messages import objective as objective_line
from fedcluster_app.report.page import reported
from fedcluster_app.report.tables import SiteRecord

JOB_VERSION = 1
"""Version of the files of jobs; ``docs/schemas`` has their JSON schemas."""

HISTORY = "fedcluster-history"
"""Name of the format of ``history.json``."""

FILES = {
    Fit: "history.json",
    SelectK: "selection.json",
    Evaluate: "scores.json",
    Profile: "profiles.json",
    Compare: "comparison.json",
}
"""The file that holds the content of a job, whose name is also that of its format."""

OF_CENTERS = ("centers", "weights", "centers_in_units")
"""Keys of a model file that hold the centres."""


def content_of(report: JobReport, records: Sequence[SiteRecord] = ()) -> dict[str, Any]:
    """Return the content of a job's file and of ``--json``, without its rounds.

    Parameters
    ----------
    report : JobReport
        The report of the job.
    records : sequence of SiteRecord
        What local sites hold and sent, which is added.
    """
    account = _account(report, records)
    match report.job:
        case Fit():
            return _of_fit(report, account)
        case SelectK():
            return {**verdict(report.outcome.value), "seed": report.job.seed, **account}
        case Evaluate():
            return _of_evaluation(report, account)
        case Profile():
            return {"model": str(report.job.model), **_described(report), **account}
        case Compare():
            found = report.outcome.value
            compared = {**plain(found), "sentences": found.sentences}
            return {"model": str(report.job.model), "comparison": compared, **account}


def write_report(folder: Path, report: JobReport, content: Mapping[str, Any]) -> list[str]:
    """Write the content of a choice of k, or of a job on a model; return the names of files."""
    if isinstance(report.job, SelectK):
        return write_selection(folder, report)
    name = FILES[type(report.job)]
    _write(folder / name, f"fedcluster-{Path(name).stem}", report, content)
    return [name]


def write_job(
    folder: Path, report: JobReport, name: str = "", doubts: Sequence[str] = ()
) -> dict[str, Any]:
    """Write all files of a job of any kind; return the content to show.

    Parameters
    ----------
    folder : Path
        An empty folder.
    report : JobReport
        The report of the job.
    name : str
        The name of the run on the page of a fit.
    doubts : sequence of str
        Doubts about a fit, which are added to its files.
    """
    content = content_of(report)
    if not isinstance(report.job, Fit):
        write_report(folder, report, content)
        return content
    files = [] if tried(report.job.n_clusters) is None else write_selection(folder, report)
    content["warnings"] = list(doubts)
    model = model_of(report)
    model.save(folder / "model.json")
    files += ["model.json", "history.json"]
    write_history(folder, report, content, files, Run(name or folder.name, model.plain()))
    return content


def write_history(
    folder: Path,
    report: JobReport,
    content: Mapping[str, Any],
    files: Sequence[str],
    page: Run | None,
) -> list[str]:
    """Write ``history.json``, the record of all rounds, and the page about it and the model.

    Parameters
    ----------
    folder : Path
        The folder, which has the other files already.
    report : JobReport
        The report of the job.
    content : mapping
        The content of the report.
    files : sequence of str
        The names of all files.
    page : Run or None
        The name of the run and its model, for the page; None if there is no page.

    Returns
    -------
    list of str
        The names of all files, including the page.
    """
    whole = {**content, "history": plain(report.clustering.history)}
    if page is not None:
        rounds = {"communication_rounds": report.outcome.account()}
        files = [*files, *reported(folder, replace(page, history=whole | rounds))]
    _write(folder / "history.json", HISTORY, report, {**content, "files": list(files), **whole})
    return list(files)


def write_selection(folder: Path, report: JobReport) -> list[str]:
    """Write ``selection.json`` and, with matplotlib, ``curves.png``; return their names."""
    selection, account = report.outcome.value, {"seed": report.job.seed, **_account(report)}
    content = {**verdict(selection), **_beside(report), **account}
    _write(folder / "selection.json", "fedcluster-selection", report, content)
    return [
        "selection.json",
        *pictured("picture of the curves", folder / "curves.png", selection.plot),
    ]


def _write(path: Path, kind: str, report: JobReport, content: Mapping[str, Any]) -> None:
    """Write a file of a job: its content, and every round with the sites."""
    rounds = {"communication_rounds": report.outcome.account()}
    whole = {"format": kind, "format_version": JOB_VERSION, **content, **rounds}
    path.write_text(json_text(whole), encoding="utf-8")


def _of_fit(report: JobReport, account: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of ``history.json`` and ``--json`` for a fit, without its rounds."""
    fit, result, chosen = procedure_of(report.job).job, report.clustering, report.outcome.value
    return {
        "n_clusters": len(result.state.centers),
        "model": model_name(result.algorithm),
        "algorithm": str(fit.algorithm),
        "columns": list(report.columns),
        "seed": fit.seed,
        "stop_reason": result.reason,
        "inertia": plain(result.state.inertia),
        "inertia_error": plain(report.inertia_error),
        "objective": report.objective,
        "weights": result.state.weights.tolist(),
        **({} if report.privacy is None else {"privacy": report.privacy.plain()}),
        **account,
        **({"influence": plain_influence(report.influence)} if report.influence else {}),
        **({"selection": verdict(chosen) | _beside(report)} if hasattr(chosen, "says") else {}),
        **_described(report),
    }


def verdict(selection: Selection) -> dict[str, Any]:
    """Return a choice of k in the form for files."""
    return {
        "n_clusters": selection.n_clusters,
        "rule": selection.rule,
        "reason": selection.reason,
        "warnings": list(selection.warnings),
        "says": dict(selection.says),
        "table": [{"k": k, **plain(dict(scores))} for k, scores in selection.table.items()],
    }


def _beside(report: JobReport) -> dict[str, Any]:
    """Return the clusterings with one cluster less and one more than chosen, if known."""
    choice, by_k = report.outcome.value, {}
    for k in (choice.n_clusters - 1, choice.n_clusters + 1):
        if k > 1 and k in choice.results:
            state = choice.results[k].state
            model = Model(
                state.centers, state.weights, report.columns, preprocessor=report.preprocessor
            )
            content = model.plain()
            by_k[str(k)] = {key: content[key] for key in OF_CENTERS if key in content}
    return {"beside": by_k}


def _of_evaluation(report: JobReport, account: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of ``scores.json`` and ``--json``, without the rounds."""
    asked: Any = procedure_of(report.job)
    scores, classes = report.outcome.value, asked.job.classes
    metrics = (*asked.metrics, *([] if asked.objective is None else [asked.objective]))
    content = {
        "model": str(asked.job.model),
        "scores": plain(scores),
        "better": {name: better(name, metrics) for name in scores},
        "meaning": [*meaning(scores), *_of_the_fit(asked.model, scores)],
        **({} if classes is None else {"classes": sorted(classes)}),
        **_described(report),
        **account,
    }
    return content


def _of_the_fit(model: Model, scores: Mapping[str, float]) -> list[str]:
    """Return the value of the fit's objective, unless it is among the scores of its model."""
    name = str(model.algorithm.get("objective", "inertia"))
    if name == "inertia" or name in scores:
        return []
    own = "an objective of your own: name its algorithm by --algorithm to score it again"
    line = objective_line({"inertia": plain(model.inertia), "objective": name})
    return [f"The fit itself tells {line}, which is {MEANINGS.get(name, own)}."]


def _account(report: JobReport, records: Sequence[SiteRecord] = ()) -> dict[str, Any]:
    """Return the account of a job: its rounds, sites, missing sites and preprocessing.

    Parameters
    ----------
    report : JobReport
        The report of the job.
    records : sequence of SiteRecord
        What local sites hold and sent, which is added.
    """
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
                **(here[site.name].local_facts if site.name in here else {}),
            }
            for site in report.sites
        ],
        "missing": plain(report.refusals),
        **_preprocessing(report),
    }


def _preprocessing(report: JobReport) -> dict[str, Any]:
    """Return the description of a fitted preprocessing: sentences, and data."""
    if not (lines := report.prepared):
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
            "warnings": list(met.doubts),
        },
    }


def _described(report: JobReport) -> dict[str, Any]:
    """Return profiles and stability of clusters and the rows of two models, if requested."""
    parts = ("profiles", "stability", "beside", "since")
    found = {name: getattr(report, name) for name in parts}
    return {name: plain(each.plain()) for name, each in found.items() if each is not None}


def pictured(what: str, path: Path, draw: Callable[[Path], None]) -> list[str]:
    """Write a picture; return the name of its file, or only a warning without matplotlib.

    Parameters
    ----------
    what : str
        What the file shows, such as "picture of the curves".
    path : Path
        The file.
    draw : callable taking a Path
        Writes it.
    """
    try:
        draw(path)
    except ImportError:
        warnings.warn(
            f'no {what} without matplotlib: pip install "fedcluster[plot]"',
            stacklevel=3,
        )
        return []
    return [path.name]
