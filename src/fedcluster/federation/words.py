"""What came of a job, and what left a site, in words and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcluster.report import Table, number

__all__ = ["log_table", "shown"]


def shown(outcome: Mapping[str, Any]) -> list[Table | str]:
    """The outcome of a job as tables and lines."""
    parts: list[Table | str] = []
    if "weights" in outcome:
        clusters = tuple((str(j), number(w)) for j, w in enumerate(outcome["weights"]))
        total = ("all", number(sum(outcome["weights"])))
        parts.append(Table("Rows by cluster", ("cluster", "rows"), clusters, total))
    sites = outcome.get("sites", [])
    if sites:
        rows = tuple(
            (s["name"], number(s["weight"] or 0), f"{s['numbers_sent']:,}", _missed(outcome, s))
            for s in sites
        )
        parts.append(Table("Sites", ("site", "rows", "numbers sent", "rounds missed"), rows))
    if "rounds" in outcome:
        inertia = outcome["inertia"]
        measured = "" if inertia is None else f"; inertia {number(inertia)}"
        parts.append(f"{outcome['rounds']} rounds, {outcome['stop_reason']}{measured}.")
    for refusal in outcome.get("missing", [])[:5]:
        parts.append(f"Round {refusal['exchange']} without {refusal['site']}: {refusal['reason']}.")
    return [*parts, *_written(outcome)]


def _missed(outcome: Mapping[str, Any], site: Mapping[str, Any]) -> str:
    return str(sum(refusal["site"] == site["name"] for refusal in outcome.get("missing", [])))


def _written(outcome: Mapping[str, Any]) -> list[str]:
    lines = [f"Wrote {', '.join(outcome['files'])} to {outcome['out']}."]
    if "model.json" in outcome["files"]:
        kept = outcome["model_at"]
        lacking = [s["name"] for s in outcome.get("sites", []) if s["name"] not in kept]
        lines.append(f"The model and the labels are at {', '.join(kept) or 'no site'}.")
        if lacking:
            lines.append(f"They are not at {', '.join(lacking)}: send model.json there.")
    return lines


def log_table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """What left a site, one line for each answer; the last ones of a long log."""
    rows = tuple(
        (
            str(line.get("time", ""))[:19].replace("T", " "),
            str(line.get("round", "")),
            str(line.get("task", "")),
            "x".join(map(str, line.get("shape", []))),
            number(line["smallest_weight"]) if line.get("smallest_weight") is not None else "",
            f"{line.get('bytes', 0):,}",
        )
        for line in lines
    )
    size = sum(line.get("bytes", 0) for line in lines)
    return Table(
        "What left this site",
        ("time (UTC)", "round", "task", "shape", "smallest weight", "bytes"),
        rows,
        ("all", "", f"{len(lines)} answers", "", "", f"{size:,}"),
    )
