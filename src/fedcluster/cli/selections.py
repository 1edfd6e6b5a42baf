"""What ``select-k`` and ``fit -k auto`` do with a choice of k: ask, write, show."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcluster.cli import preparing, runs
from fedcluster.cli.runs import Doing
from fedcluster.data.files import InputError
from fedcluster.data.outputs import json_text, whole_folder
from fedcluster.estimators import selecting
from fedcluster.report import Table, number, plain
from fedcluster.selection import Selection

__all__ = [
    "Choosing",
    "Chosen",
    "choose",
    "draw",
    "enough_rows",
    "index_table",
    "k_range",
    "of",
    "result",
    "rule",
    "shown",
    "write",
]

FORMAT = {"format": "fedcluster-selection", "format_version": 1}
MOST = 12
HEADERS = {
    "mixture-bic": "BIC",
    "gap": "gap",
    "calinski-harabasz": "Calinski-H.",
    "squared-silhouette": "silhouette",
    "davies-bouldin": "Davies-B.",
    "inertia": "inertia",
}


@dataclass(frozen=True, slots=True, eq=False)
class Choosing:
    """A choice of k, and what it took."""

    selection: Selection
    rounds: int
    seed: int
    numbers_sent: Mapping[str, int]
    prepared: Sequence[str] = ()
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """What a choice of k adds to the outputs of a fit: nothing where k was given."""

    warnings: tuple[str, ...] = ()
    draw: Callable[[Path, Any], list[str]] = lambda folder, record: []
    content: Mapping[str, Any] = field(default_factory=dict)
    shown: tuple[Table | str, ...] = ()


def of(estimator: Any) -> Chosen:
    """What an estimator has chosen."""
    selection = estimator.selection_
    if selection is None:
        return Chosen()
    return Chosen(
        selection.warnings,
        lambda folder, record: draw(folder, selection),
        {"selection": _content(selection)},
        (index_table(selection), _verdict(selection)),
    )


def k_range(k_min: int, k_max: int | None) -> range:
    """Each k to try, checked."""
    most = max(k_min, MOST) if k_max is None else k_max
    for option, value in (("--k-min", k_min), ("--k-max", most)):
        if value < 1:
            raise InputError(f"{option} must be at least 1, not {value}")
    if k_min > most:
        raise InputError(f"--k-min {k_min} is above --k-max {most}; the first k comes first")
    return range(k_min, most + 1)


def enough_rows(ks: range, tables: Mapping[str, runs.Table], *, given: bool) -> range:
    """As many k as there are rows for; refuses more where the user asked for them."""
    rows = sum(map(len, tables.values()))
    if ks[0] > rows or (given and ks[-1] > rows):
        option, k = ("--k-min", ks[0]) if ks[0] > rows else ("--k-max", ks[-1])
        raise InputError(
            f"{option} {k} asks for more clusters than there are rows in all ({rows}); "
            f"ask for at most {rows}"
        )
    return range(ks[0], min(ks[-1], rows) + 1)


def rule(
    name: str, averaging: str, bounds: str | None, m: float | None, *, elbow: bool
) -> dict[str, Any]:
    """The rule as `fedcluster.select_k` takes it, checked."""
    if elbow and name == "vote":
        raise InputError("--elbow is for a single index; name it by --rule")
    if m is not None and not 1 < m < math.inf:
        raise InputError(f"-m must be above 1, not {m:g}; near 1, degrees are nearly 0 and 1")
    return {
        "rule": name,
        "pick": "elbow" if elbow else "best",
        "averaging": averaging,
        "bounds": None if bounds is None else _bounds(bounds),
        "m": m,
    }


def _bounds(text: str) -> tuple[list[float], list[float]]:
    """LOW:HIGH pairs, one for each column or one for all."""
    try:
        pairs = [tuple(map(float, pair.split(":"))) for pair in text.split(",")]
        lower, upper = ([float(x) for x in side] for side in zip(*pairs, strict=True))
    except ValueError:
        lower, upper = [math.nan], [math.nan]
    if not all(
        low <= high < math.inf and low > -math.inf for low, high in zip(lower, upper, strict=True)
    ):
        raise InputError(
            f"--bounds '{text}' must be LOW:HIGH for all columns, or one such pair for each column "
            "with commas between, as in 0:120,-5:5"
        )
    return lower, upper


def choose(
    tables: Mapping[str, runs.Table],
    ks: Sequence[int],
    parameters: Mapping[str, Any],
    seed: int,
    doing: Doing,
) -> Choosing:
    """Cluster with each k, score, choose."""
    d = len(next(iter(tables.values())).columns)
    if parameters["bounds"] is not None and parameters["prepare"] is not None:
        raise InputError("--bounds are those of rows that are taken as they are: add --scale none")
    if parameters["bounds"] is not None and len(parameters["bounds"][0]) not in (1, d):
        given = len(parameters["bounds"][0])
        raise InputError(f"--bounds has {given} pairs, but there are {d} columns to cluster by")
    estimator = selecting(ks, random_state=seed, **parameters)
    rounds = itertools.count(1)
    estimator._watch = lambda exchange: doing(
        f"round {next(rounds)} done with {len(exchange.answered)} sites"
    )
    doing(f"clustering with k = {ks[0]} to {ks[-1]}")
    runs.fitted(estimator, tables)
    assert estimator.selection_ is not None
    return Choosing(
        estimator.selection_,
        estimator.n_iter_,
        seed,
        estimator.numbers_sent_,
        preparing.sentences(estimator),
        preparing.content(estimator),
    )


def draw(folder: Path, selection: Selection) -> list[str]:
    """Write selection.json and, where there is matplotlib, curves.png; returns their names."""
    content = FORMAT | _content(selection)
    (folder / "selection.json").write_text(json_text(content), encoding="utf-8")
    try:
        selection.plot(folder / "curves.png")
    except ImportError:
        warnings.warn(
            "no picture of the curves without matplotlib: pip install 'fedcluster[plot]'",
            stacklevel=2,
        )
        return ["selection.json"]
    return ["selection.json", "curves.png"]


def write(out: Path, found: Choosing) -> list[str]:
    """Write a choice into a folder; returns the files."""
    with whole_folder(out) as folder:
        return draw(folder, found.selection)


def result(found: Choosing, out: Path | None, files: Sequence[str]) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        **_content(found.selection),
        "seed": found.seed,
        "rounds": found.rounds,
        "numbers_sent": dict(found.numbers_sent),
        **found.content,
        "out": None if out is None else str(out),
        "files": list(files),
    }


def _content(selection: Selection) -> dict[str, Any]:
    return {
        "n_clusters": selection.n_clusters,
        "rule": selection.rule,
        "reason": selection.reason,
        "warnings": list(selection.warnings),
        "says": dict(selection.says),
        "table": [{"k": k, **plain(dict(scores))} for k, scores in selection.table.items()],
    }


def shown(found: Choosing, out: Path | None, files: Sequence[str]) -> list[Table | str]:
    """What people see."""
    sites = len(found.numbers_sent)
    took = (
        f"All k in the same {found.rounds} rounds with {sites} site{'' if sites == 1 else 's'}, "
        f"{sum(found.numbers_sent.values()):,} numbers sent. Seed {found.seed}."
    )
    wrote = [f"Wrote {' and '.join(str(out / file) for file in files)}."] if out and files else []
    return [index_table(found.selection), _verdict(found.selection), *found.prepared, took, *wrote]


def _verdict(selection: Selection) -> str:
    n = selection.n_clusters
    return f"{n} cluster{'' if n == 1 else 's'}. {selection.reason}"


def index_table(selection: Selection) -> Table:
    """Every k with its indices; a star stands where an index says: this one."""
    own = selection.rule.split(",")[0]
    indices = [i for i in dict.fromkeys([*HEADERS, own]) if i in selection.says]
    rows = []
    for k, scores in selection.table.items():
        stars = ["*" if selection.says[i] == k else " " for i in indices]
        cells = [f"{_short(scores[i])} {star}" for i, star in zip(indices, stars, strict=True)]
        rows.append((f"{k} <" if k == selection.n_clusters else str(k), *cells))
    return Table(
        "What each index says of each k (* its choice, < the verdict)",
        ("k", *(HEADERS.get(i, i) + "  " for i in indices)),
        tuple(rows),
    )


def _short(x: float) -> str:
    """Four digits of what is small, whole numbers of what is large."""
    if math.isnan(x):
        return "-"
    return f"{x:.4f}" if abs(x) < 10 else f"{x:,.1f}" if abs(x) < 1e5 else number(float(f"{x:.6g}"))
