"""Words and tables for the outcome of a job, and for the answers that left a site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcluster.errors import listed
from fedcluster.model import Model
from fedcluster.report.messages import by_interest, objective, privacy_lines
from fedcluster.report.tables import (
    centers_table,
    index_table,
    number,
    profiles_shown,
    verdict_line,
)
from fedcluster.texts.html import Table

HOLDING_ALL = ("profiles.json", "scores.json", "history.json")


def shown(outcome: Mapping[str, Any], width: int) -> list[Table | str]:
    """Return the outcome of a job as tables and lines, on a screen so many characters wide."""
    parts: list[Table | str] = [*outcome.get("prepared", ()), *_centers(outcome, width)]
    parts += profiles_shown(outcome, width, file_of(outcome))
    if "weights" in outcome:
        clusters = tuple((str(j), number(w)) for j, w in enumerate(outcome["weights"]))
        total = ("all", number(sum(outcome["weights"])))
        parts.append(Table("Rows by cluster", ("cluster", "rows"), clusters, total))
    missing = outcome.get("missing", [])
    parts += _sites(outcome.get("sites", []), missing)
    if verdict := outcome.get("selection") or ("says" in outcome and outcome):
        parts += _verdict(verdict, str(file_of(outcome) or "--json"))
    elif "scores" in outcome:
        known = {name: score for name, score in outcome["scores"].items() if score is not None}
        better = outcome["better"]
        scores = tuple(
            (name, better[name] or "", number(known[name])) for name in by_interest(known)
        )
        parts.append(Table("All sites together", ("index", "better", "score"), scores))
        parts += outcome["meaning"]
    if "stop_reason" in outcome:
        measured = "" if outcome["inertia"] is None else f"; {objective(outcome)}"
        parts.append(f"{outcome['rounds']} rounds, {outcome['stop_reason']}{measured}.")
    return [*parts, *privacy_lines(outcome), *_absences(missing)[:5], *_written(outcome)]


def _sites(sites: Sequence[Mapping[str, Any]], missing: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return the table of the sites, if there are some."""
    missed = Counter(refusal["site"] for refusal in missing)
    rows = tuple(
        (s["name"], _rows_in_words(s), f"{s['values_sent']:,}", str(missed[s["name"]]))
        for s in sites
    )
    header = ("site", "rows", "numbers sent", "rounds missed")
    return [Table("Sites", header, rows)] if sites else []


def _rows_in_words(site: Mapping[str, Any]) -> str:
    """Return how many rows a site told of; under secure sums or a privacy budget, none."""
    return "not told" if site["weight"] is None else number(site["weight"])


def file_of(outcome: Mapping[str, Any]) -> Path | None:
    """Return the file that has all of the outcome, None where there is none."""
    files = [name for name in outcome.get("files", ()) if name in HOLDING_ALL]
    return Path(outcome["out"]) / files[0] if files else None


def _absences(missing: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return which rounds went without a site and why, in one line for each site and reason.

    Examples
    --------
    >>> away = {"site": "west", "reason": "not connected"}
    >>> _absences([{**away, "exchange": n} for n in (1, 2, 3, 5)])
    ['Rounds 1, 2, 3 and 5 without west: not connected.']
    >>> _absences([{**away, "exchange": n} for n in range(4, 44)])
    ['40 rounds from 4 to 43 without west: not connected.']
    """
    rounds: dict[tuple[str, str], list[str]] = {}
    for refusal in missing:
        about = (refusal["site"], refusal["reason"])
        rounds.setdefault(about, []).append(str(refusal["exchange"]))
    lines = []
    for (site, reason), numbers in rounds.items():
        when = f"{'Round' if len(numbers) == 1 else 'Rounds'} {listed(numbers)}"
        if len(numbers) > 6:
            when = f"{len(numbers)} rounds from {numbers[0]} to {numbers[-1]}"
        lines.append(f"{when} without {site}: {reason}.")
    return lines


def _centers(outcome: Mapping[str, Any], width: int) -> list[Table]:
    """Return the centres of prepared rows, in the units of the columns."""
    if not {"prepared", "privacy"} & outcome.keys() or "model.json" not in outcome["files"]:
        return []
    path = Path(outcome["out"]) / "model.json"
    own = [outcome["algorithm"]] if "." in outcome.get("algorithm", "") else []  # as it was asked
    model = Model.load(path, own)
    if model.preprocessor is None:
        return []
    table = centers_table(model.preprocessor, model.centers, width, str(path))
    return [table] if table else []


def _verdict(verdict: Mapping[str, Any], elsewhere: str) -> list[Table | str]:
    """Return the scores of each index, the verdict, and the doubts about it."""
    n, scores = verdict["n_clusters"], {line["k"]: line for line in verdict["table"]}
    return [
        index_table(n, verdict["rule"], verdict["says"], scores, elsewhere),
        verdict_line(n, verdict["reason"]),
        *(f"But: {doubt}" for doubt in verdict["warnings"]),
    ]


def _written(outcome: Mapping[str, Any]) -> list[str]:
    lines = [f"Wrote {', '.join(outcome['files'])} to {outcome['out']}."]
    if "model.json" in outcome["files"]:
        kept = outcome["model_at"]
        lacking = [s["name"] for s in outcome.get("sites", []) if s["name"] not in kept]
        if kept:
            where = ", ".join(kept)
            lines.append(
                f"The model is at {where}; each labels its own rows by it from now on, and tells "
                "nobody how that goes."
            )
        if lacking:
            lines.append(f"It is not at {', '.join(lacking)}: send model.json there.")
    return lines
