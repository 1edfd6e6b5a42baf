"""A run that goes on, as its file of events tells of it."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedcluster._pages._run import Run
from fedcluster.algorithms import FFCM, GaussianMixture
from fedcluster.algorithms.relative_lloyd import RelativeLloyd
from fedcluster.engines._progress_log import PROGRESS
from fedcluster.engines._wire import STEPS
from fedcluster.metrics.objectives import NAMES, REPORTED, objective_name

FOUND = ("step", "inertia", "shift")
"""What a round begins with: what those before it have found."""
MIXTURE = "GaussianMixture"
"""The step whose inertia is the negative log-likelihood."""
RECENT = 5
"""Rounds that an estimate rests on."""
REST = 1e-3
"""Share of its largest shift at which a centre nearly rests."""
LATE = 2.0
"""A site is late that takes longer than a usual round by this factor."""
GONE = 2
"""Rounds in a row that a site has missed when it counts as gone."""


@dataclass(frozen=True)
class Progress:
    """Events of a run, and the time when they are looked at.

    Parameters
    ----------
    events : sequence of mapping
        What `WatchedEngine` and the transport noted, in their order.
    now : float
        The time, in seconds since 1970.
    """

    events: Sequence[Mapping[str, Any]]
    now: float

    @cached_property
    def began(self) -> Sequence[Mapping[str, Any]]:
        """Return the rounds as they began."""
        return [event for event in self.events if "asked" in event]

    @cached_property
    def ended(self) -> Mapping[int, Mapping[str, Any]]:
        """Return the rounds that have ended, by their numbers."""
        return {event["round"]: event for event in self.events if "answered" in event}

    @property
    def open(self) -> Mapping[str, Any] | None:
        """Return the round that has begun and not ended."""
        last = self.began[-1] if self.began else None
        return None if last is None or last["round"] in self.ended else last

    @cached_property
    def seconds(self) -> float:
        """Return what a round took of late, in seconds; nan before the first has ended."""
        took = [
            self.ended[event["round"]]["at"] - event["at"]
            for event in self.began
            if event["round"] in self.ended
        ]
        return statistics.median(took[-RECENT:]) if took else math.nan

    def statuses(self) -> dict[str, str]:
        """Return what each site does, in words, by name."""
        names = dict.fromkeys(name for event in self.began for name in event["asked"])
        return {name: self._status(name) for name in names}

    def _status(self, name: str) -> str:
        missed = [event["missing"][name] for event in self._asked_of(name)]
        if (now := self.open) is not None and name in now["asked"]:
            heard = (event.get("heard") for event in self.events[self.events.index(now) :])
            if name in heard:
                return "answered"
            waited = self.now - now["at"]
            if waited > LATE * self.seconds and waited > 1:
                return f"late, asked {_lasting(waited)} ago"
            return "asked"
        if not missed:
            return "answered" if self.ended else "asked"
        return f"{'gone' if len(missed) >= GONE else 'missed the last round'}: {missed[-1]}"

    def _asked_of(self, name: str) -> list[Mapping[str, Any]]:
        """Return the last rounds, without a gap, that a site was asked in and missed."""
        lost: list[Mapping[str, Any]] = []
        for done in reversed(list(self.ended.values())):
            if name in done["missing"]:
                lost.insert(0, done)
            elif name in done["answered"]:
                break
        return lost

    def left(self) -> str:
        """Return how long the run may still take, in words; empty where nothing is known.

        Shifts of a centre fall like a geometric series: the estimate is the time until they are
        small beside the largest one. A search may begin anew at any time.
        """
        moved = [event["shift"] for event in self.began if event["shift"]]
        if len(moved) < RECENT or math.isnan(self.seconds):
            return ""
        recent = moved[-RECENT:]
        factor = (recent[-1] / recent[0]) ** (1 / (RECENT - 1))
        small = REST * max(moved)
        if recent[-1] <= small:
            return "nearly at rest"
        if factor >= 1:
            return ""
        rounds = math.ceil(math.log(small / recent[-1]) / math.log(factor))
        return f"about {_lasting(rounds * self.seconds)}, if centres come to rest as they do now"

    def run(self, name: str) -> Run:
        """Return what is known as a run, for the sections of the report."""
        sites = dict.fromkeys(name for event in self.began for name in event["asked"])
        rounds = [self._account(event) for event in self.began if event["round"] in self.ended]
        known = [event for event in self.began if event["inertia"] is not None]
        step = known[-1]["step"] if known else ""
        found = [
            {"round": event["round"] - 1} | {name: event[name] for name in FOUND}
            for event in known
            if event["step"] == step
        ]
        content = {
            "rounds": len(rounds),
            "model": "mixture" if step == MIXTURE else "k-means",
            "objective": measured_by(step),
            "sites": [{"name": site} for site in sites],
            "history": found,
            "missing": list(self._missing()),
            "communication_rounds": rounds,
        }
        return Run(name, history=content)

    def _account(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return a round that has ended as the files of a job tell of it."""
        done = self.ended[event["round"]]
        told = {"missing": list(done["missing"]), "values_sent": done["answered"]}
        return {"round": event["round"], "tasks": event["tasks"], **told}

    def _missing(self) -> Iterator[dict[str, Any]]:
        for number, done in self.ended.items():
            for site, reason in done["missing"].items():
                yield {"site": site, "exchange": number, "reason": reason}


def measured_by(step: str) -> str:
    """Return the name of what the rounds of a step tell as its inertia.

    Examples
    --------
    >>> measured_by("FFCM"), measured_by("Lloyd"), measured_by("Mine")
    ('fuzzy-objective', 'inertia', 'inertia as the algorithm reports it')
    """
    kind: Any = STEPS.get(step)
    if kind in (FFCM, GaussianMixture):
        kind = kind()  # their objective depends on their parameters
    if kind in NAMES or not hasattr(kind, "objective"):
        return NAMES.get(kind, REPORTED)
    return objective_name(kind, noisy=kind is RelativeLloyd)


def read_progress(folder: Path, now: float) -> Progress:
    """Read the events of a run; a line that is being written is left for the next time."""
    path, events = folder / PROGRESS, []
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return Progress(events, now)


def _lasting(seconds: float) -> str:
    """Return a time in words.

    Examples
    --------
    >>> _lasting(0.3), _lasting(61), _lasting(7200)
    ('1 s', '1 min 1 s', '2 h 0 min')
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
