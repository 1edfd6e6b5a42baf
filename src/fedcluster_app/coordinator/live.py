"""The page that follows a run, made from its events: a file that a browser reads again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedcluster.algorithms import FFCM, GaussianMixture
from fedcluster.algorithms.private import RelativeLloyd
from fedcluster.core.files import atomic_write
from fedcluster.engines.wire import STEPS, step_of
from fedcluster.errors import InputError
from fedcluster.metrics.clusters import OBJECTIVES, REPORTED, objective_name, shown_value
from fedcluster.model.run import Run, damaged, outcome_of, read_run, written_by
from fedcluster.texts import counted, number
from fedcluster_app.report.html import parts
from fedcluster_app.report.page import HEADINGS, convergence, page, report_page, taking_part
from fedcluster_app.wire.recorder import PROGRESS

RESULTS = ("step", "inertia", "shift")
"""Number of results of earlier rounds in the event of a round."""
MIXTURE = "GaussianMixture"
"""The step whose inertia is the negative log-likelihood."""
PAGE = "live.html"
"""File in the folder of a run that follows it."""


@dataclass(frozen=True)
class Progress:
    """Events of a run, and the time at which they are evaluated.

    Parameters
    ----------
    events : sequence of mapping
        The events that `WatchedEngine` and the transport logged, in order.
    now : float
        The time, in seconds since 1970.
    """

    events: Sequence[Mapping[str, Any]]
    now: float

    @cached_property
    def began(self) -> Sequence[Mapping[str, Any]]:
        """The events of rounds that began."""
        return [event for event in self.events if "asked" in event]

    @cached_property
    def ended(self) -> Mapping[int, Mapping[str, Any]]:
        """The rounds that have ended, by number."""
        return {event["round"]: event for event in self.events if "answered" in event}

    def statuses(self) -> dict[str, str]:
        """Return the state of each site, in words, by name."""
        last = self.began[-1]
        by_site = dict.fromkeys((name for each in self.began for name in each["asked"]), "asked")
        for done in self.ended.values():
            by_site |= dict.fromkeys(done["answered"], "answered")
            by_site |= {
                name: f"missed the last round: {why}" for name, why in done["missing"].items()
            }
        if last["round"] not in self.ended:
            by_site |= dict.fromkeys(last["asked"], f"asked {self.now - last['at']:.0f} s ago")
            heard = [event.get("heard") for event in self.events[self.events.index(last) :]]
            by_site |= {name: "answered" for name in last["asked"] if name in heard}
        return by_site

    def run(self, name: str) -> Run:
        """Return the events as a run, for the sections of the report."""
        sites = dict.fromkeys(name for event in self.began for name in event["asked"])
        rounds = [
            {
                "round": event["round"],
                "tasks": event["tasks"],
                "missing": list(self.ended[event["round"]]["missing"]),
                "values_sent": self.ended[event["round"]]["answered"],
            }
            for event in self.began
            if event["round"] in self.ended
        ]
        missing = [
            {"site": site, "exchange": exchange, "reason": reason}
            for exchange, done in self.ended.items()
            for site, reason in done["missing"].items()
        ]
        known = [event for event in self.began if event["inertia"] is not None]
        step = known[-1]["step"] if known else ""
        history = [
            {"round": event["round"] - 1} | {name: event[name] for name in RESULTS}
            for event in known
            if event["step"] == step
        ]
        content = {
            "rounds": len(rounds),
            "model": "mixture" if step == MIXTURE else "k-means",
            "objective": measured_by(step),
            "sites": [{"name": site} for site in sites],
            "history": history,
            "missing": missing,
            "communication_rounds": rounds,
        }
        return Run(name, history=content)


def measured_by(step: str) -> str:
    """Return the name of the quantity that a step reports as its inertia.

    Examples
    --------
    >>> measured_by("FFCM"), measured_by("Lloyd"), measured_by("Mine")
    ('fuzzy-objective', 'inertia', 'inertia as the algorithm reports it')
    """
    kind: Any = step_of(STEPS[step]) if step in STEPS else None
    if kind in (FFCM, GaussianMixture):
        kind = kind()  # an instance, as the objective depends on the parameters
    if step in OBJECTIVES or not hasattr(kind, "objective"):
        return OBJECTIVES.get(step, REPORTED)
    return objective_name(kind, noisy=kind is RelativeLloyd)


def read_progress(folder: Path, now: float) -> Progress:
    """Read the events of a run, except a last line that is still being written."""
    path, events = folder / PROGRESS, []
    for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
        with suppress(ValueError):
            events.append(json.loads(line))
    return Progress(events, now)


def followed(folder: Path) -> Path:
    """Return the folder of the run to follow; for a federation, its latest run.

    Raises
    ------
    InputError
        If the folder is neither, or the federation has no run yet.
    """
    if (folder / "federation.toml").is_file():
        runs = sorted(path.parent for path in folder.glob("runs/*/job.json"))
        if not runs:
            raise InputError(f"{folder} has no run yet: fedcluster federation run begins one")
        return runs[-1]
    if not (folder / "job.json").is_file():
        read_run(folder)
    return folder


def write_live(run: Path, now: float) -> bool:
    """Write the page about a run, or the report if it has ended well; return if it goes on.

    Parameters
    ----------
    run : Path
        The folder of a federation's run, or of a job's files.
    now : float
        The time, in seconds since 1970.
    """
    outcome = outcome_of(run)
    goes_on = not outcome and (run / "job.json").is_file()
    if goes_on or outcome.get("error"):
        progress = read_progress(run, now)
        known = progress.run(run.name)
        contents = {
            "now": _now(progress, str(outcome.get("error", ""))),
            "convergence": convergence(known, "the best run so far, in the current or last step"),
            "rounds": taking_part(known),
        }
        shown = {key: parts.section(key, HEADINGS[key], *each) for key, each in contents.items()}
        text = page(f"Run {run.name}", run.name, shown, live=goes_on)
    else:
        content = read_run(run)
        with damaged(written_by(run)):
            text = report_page(content)
    with atomic_write(run / PAGE) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return goes_on


def _now(progress: Progress, error: str = "") -> Sequence[Any]:
    """Return the section on the state of a run: its round, first results, and each site."""
    ended = parts.size(f"The run has ended: {error}.") if error else None
    if not progress.began:
        return [ended or parts.paragraphs("Waiting for the sites.")]
    last, facts = progress.began[-1], []
    statuses = {} if error else progress.statuses()
    if not error:
        there = sum(statuses[name] == "answered" for name in last["asked"])
        facts = [
            ["round", f"{last['round']}: {', '.join(last['tasks'])}"],
            ["sites that have answered it", f"{there} of {len(last['asked'])}"],
        ]
    facts.append(["rounds that have ended", f"{len(progress.ended):,}"])
    if last["inertia"] is not None:
        name = measured_by(last["step"])
        value = number(shown_value(name, last["inertia"]))
        facts.append([f"{name}, the best so far in this step", value])
    if last["shift"] is not None:
        facts.append(["largest shift of a centre", number(last["shift"])])
    run = parts.table("The run", ["what", "now"], facts, "texts")
    rows = [[parts.named(name), status] for name, status in statuses.items()]
    return [ended, run, parts.table(counted(len(rows), "site"), ["site", "now"], rows, "texts")]
