"""Log of who asked the coordinator for what: a chain of hashes, as the logs of sites are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcluster.federation._audit_log import AuditLog
from fedcluster.federation._folder import Federation

OWN = {"line", "previous", "time", "salt", "event", "hash"}
"""What every line of a log has."""


def operators_log(federation: Federation) -> AuditLog:
    """Return the log of a federation's operators."""
    return AuditLog(federation.file("audit.jsonl"), "coordinator")


def log_line(line: Mapping[str, Any]) -> str:
    """Return a line of the log for people.

    Examples
    --------
    >>> log_line({"time": "2026-11-22T10:00:00Z", "event": "run", "operator": "ada", "run": "r1"})
    '2026-11-22T10:00:00Z run operator=ada run=r1'
    """
    told = {key: value for key, value in line.items() if key not in OWN and value is not None}
    words = (f"{key}={value}" for key, value in told.items())
    return " ".join([str(line["time"]), str(line["event"]), *words])
