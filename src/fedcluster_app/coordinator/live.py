"""The page that follows a run, made from its events: a file that a browser reads again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedcluster.core.files import atomic_write
from fedcluster.errors import InputError
from fedcluster.model.run import damaged, outcome_of, read_run, written_by
from fedcluster.texts import counted, number
from fedcluster_app.report.html import parts
from fedcluster_app.report.page import HEADINGS, page, report_page
from fedcluster_app.wire.recorder import PROGRESS

Events = Sequence[Mapping[str, Any]]
"""What `WatchedEngine` and the transport logged of a run, in order."""

PAGE = "live.html"
"""File in the folder of a run that follows it."""


def statuses(events: Events, now: float) -> dict[str, str]:
    """Return the state of each site, in words, by name; ``now``: in seconds since 1970."""
    by_site: dict[str, str] = {}
    for event in events:
        if "asked" in event:
            ago = f"asked {now - event['at']:.0f} s ago"
            by_site |= dict.fromkeys(event["asked"], ago)
        elif "heard" in event:
            by_site[event["heard"]] = "answered"
        elif "answered" in event:
            by_site |= dict.fromkeys(event["answered"], "answered")
            missed = event["missing"].items()
            by_site |= {name: f"missed the last round: {why}" for name, why in missed}
    return by_site


def read_progress(folder: Path) -> Events:
    """Read the events of a run, except a last line that is still being written."""
    path, events = folder / PROGRESS, []
    for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
        with suppress(ValueError):
            events.append(json.loads(line))
    return events


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
        contents = _now(read_progress(run), now, str(outcome.get("error", "")))
        shown = {"now": parts.section("now", HEADINGS["now"], *contents)}
        text = page(f"Run {run.name}", run.name, shown, live=goes_on)
    else:
        content = read_run(run)
        with damaged(written_by(run)):
            text = report_page(content)
    with atomic_write(run / PAGE) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return goes_on


def _now(events: Events, now: float, error: str) -> Sequence[Any]:
    """Return the contents of the page: the round, its results so far, and each site."""
    ended = parts.size(f"The run has ended: {error}.") if error else None
    if not (began := [event for event in events if "asked" in event]):
        return [ended or parts.paragraphs("Waiting for the sites.")]
    last, by_site = began[-1], statuses(events, now)
    there = sum(by_site[name] == "answered" for name in last["asked"])
    facts = [
        ["round", f"{last['round']}: {', '.join(last['tasks'])}"],
        ["sites that have answered it", f"{there} of {len(last['asked'])}"],
        ["rounds that have ended", f"{sum('answered' in event for event in events):,}"],
    ]
    shown = {"inertia": f"result of {last['step']}, the best so far"}
    shown |= {"shift": "largest shift of a centre"}
    facts += [[what, number(last[key])] for key, what in shown.items() if last[key] is not None]
    rows = [[parts.named(name), status] for name, status in by_site.items()]
    sites = parts.table(counted(len(rows), "site"), ["site", "now"], rows, "texts")
    return [ended, parts.table("The run", ["what", "now"], facts, "texts"), sites]
