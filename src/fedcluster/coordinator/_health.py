"""Health of a federation at its coordinator, for people and for Prometheus.

It is read from what runs note of their progress. Names of sites, times and counts are in it, and
nothing of what a site answered.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, Info, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fedcluster.coordinator.folder import Federation
from fedcluster.coordinator.renewal import certificates, own_certificates
from fedcluster.coordinator.runs import State, runs
from fedcluster.engines.recorder import PROGRESS
from fedcluster.errors import InputError

LOGGER = logging.getLogger(__name__)

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Bounds of the histogram of seconds a round."""

FRESH = 5.0
"""Seconds for which it is believed which sites are connected."""


class Health:
    """What a coordinator has seen of its sites and runs since it started.

    Parameters
    ----------
    federation : callable
        Return the federation, as its folder describes it now.
    online : callable
        Return the names of the sites that are connected.
    version : str
        The version of the coordinator's program.
    """

    def __init__(
        self,
        federation: Callable[[], Federation],
        online: Callable[[], list[str]],
        version: str,
    ) -> None:
        self._federation, self._online = federation, online
        self._version = version
        self._change = threading.Lock()
        self._known: tuple[float, list[str]] = (-FRESH, [])
        self._read: tuple[Path | None, int] = (None, 0)
        self._began = 0.0
        self._responded: set[str] = set()
        self._last: dict[str, float] = {}
        self._rounds: dict[str, Counter[str]] = {"answered": Counter(), "missed": Counter()}
        self._seconds: list[float] = []
        self._registry = CollectorRegistry()
        self._round_seconds = Histogram(
            "fedcluster_round_seconds",
            "Seconds from a question to the last answer.",
            buckets=BUCKETS,
            registry=self._registry,
        )
        info = Info("fedcluster", "The coordinator's program.", registry=self._registry)
        info.info({"version": version})
        self._registry.register(self)

    def follow(self, folder: Path) -> None:
        """Take in what a run has noted since the last call."""
        with self._change:
            for event in self._new(folder / PROGRESS):
                with suppress(LookupError, TypeError, ValueError, AttributeError):
                    self._take(event, folder.name)

    def _new(self, path: Path) -> Iterator[dict[str, Any]]:
        """Yield the events that were not read yet; a file that begins anew is read anew."""
        before, offset = self._read
        with suppress(OSError):
            size = path.stat().st_size
            offset = offset if before == path and size >= offset else 0
            with path.open("rb") as file:
                file.seek(offset)
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._read = path, offset + len(whole)
            for line in whole.splitlines():
                with suppress(ValueError):
                    yield dict(json.loads(line))

    def _take(self, event: Mapping[str, Any], run: str) -> None:
        at = float(event["at"])
        if "heard" in event:
            self._last[str(event["heard"])] = at
            self._responded.add(str(event["heard"]))
        elif "asked" in event:
            self._began, self._responded = at, set()
        elif "failed" in event:  # without a number where sites were to tell of themselves
            responded, self._responded = self._responded if "round" in event else set(), set()
            failed = list(event["failed"])
            self._count([name for name in sorted(responded) if name not in failed], failed)
        elif self._responded:  # else the round was not asked, but read from the records
            seconds, self._responded = max(0.0, at - self._began), set()
            answered, missing = list(event["answered"]), list(event["missing"])
            self._count(answered, missing)
            self._seconds = [*self._seconds[-99:], seconds]
            self._round_seconds.observe(seconds)
            about = {"run": run, "round": event["round"], "seconds": round(seconds, 3)}
            LOGGER.info("round is done", extra={**about, "missing": missing})

    def _count(self, answered: list[str], missing: list[str]) -> None:
        self._rounds["answered"].update(answered)
        self._rounds["missed"].update(missing)

    def sites(self) -> dict[str, dict[str, Any]]:
        """Return for each site whether it is connected, when it answered last, and how often."""
        now, online = self._known
        if time.monotonic() - now > FRESH:
            online = self._online()
            self._known = time.monotonic(), online
        with self._change:
            return {
                name: {
                    "connected": name in online,
                    "last_answer": self._last.get(name),
                    **{key: counts[name] for key, counts in self._rounds.items()},
                }
                for name in self._federation().sites
            }

    def summary(self) -> dict[str, Any]:
        """Return what there is to know of the coordinator, besides its sites."""
        federation = self._federation()
        states = Counter(run.state for run in runs(federation))
        with self._change:
            seconds = self._seconds[-1:], sum(self._seconds) / max(1, len(self._seconds))
        last, mean = seconds
        return {
            "version": self._version,
            "queue": states[State.QUEUED],
            "runs": {state: states[state] for state in State},
            "seconds_of_last_round": last[0] if last else None,
            "seconds_of_a_round": mean if last else None,
            "days_of_certificate": days_of_certificate(federation),
        }

    def metrics(self) -> bytes:
        """Return all of it in Prometheus's text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are known when they are asked for."""
        sites, summary = self.sites(), self.summary()
        for key, text in {
            "answered": "Rounds that a site answered.",
            "missed": "Rounds that went, or failed, without a site that was asked.",
        }.items():
            counter = CounterMetricFamily(f"fedcluster_site_rounds_{key}", text, labels=["site"])
            for name, site in sites.items():
                if site[key]:
                    counter.add_metric([name], site[key])
            yield counter
        answers = {name: site["last_answer"] for name, site in sites.items()}
        known = {name: at for name, at in answers.items() if at is not None}
        connected = {name: site["connected"] for name, site in sites.items()}
        about = "When a site answered last."
        yield _gauge("site_connected", "Whether a site is connected.", "site", connected)
        yield _gauge("site_last_answer_timestamp_seconds", about, "site", known)
        yield _gauge("runs", "Runs by their state.", "state", summary["runs"])
        yield _gauge("queue_length", "Runs that wait.", "", {"": summary["queue"]})
        days = summary["days_of_certificate"]
        days = {"": float("nan") if days is None else days}
        yield _gauge("certificate_days", "Days until the coordinator's certificate ends.", "", days)


def _gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a gauge with a value for each value of its label; one without a label has one."""
    gauge = GaugeMetricFamily(f"fedcluster_{name}", text, labels=[label] if label else [])
    for key, value in values.items():
        gauge.add_metric([key] if label else [], value)
    return gauge


def days_of_certificate(federation: Federation) -> float | None:
    """Return in how many days the coordinator's certificate ends, None where there is none."""
    try:
        chains = [certificates(path) for path in own_certificates(federation)]
    except InputError:
        return None
    if not chains:
        return None
    ends = min(each.not_valid_after_utc for chain in chains for each in chain)
    return (ends - datetime.now(UTC)).total_seconds() / 86400
