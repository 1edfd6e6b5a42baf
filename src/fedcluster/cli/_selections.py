"""What ``select-k`` and ``fit -k auto`` do with a choice of k: ask, write, show."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcluster.cli import _preparing as preparing
from fedcluster.cli import _runs as runs
from fedcluster.cli._runs import Doing
from fedcluster.errors import InputError
from fedcluster.estimators import selecting
from fedcluster.io._outputs import atomic_folder, json_text
from fedcluster.io._rows import SiteRows
from fedcluster.report import Table, index_table, plain, verdict_line
from fedcluster.selection import Selection

FORMAT = {"format": "fedcluster-selection", "format_version": 1}
MOST = 12


@dataclass(frozen=True, slots=True, eq=False)
class Choosing:
    """A choice of k, and what it took."""

    selection: Selection
    rounds: int
    seed: int
    values_sent: Mapping[str, int]
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
        (_indices(selection), _verdict(selection)),
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


def enough_rows(ks: range, tables: Mapping[str, SiteRows], *, given: bool) -> range:
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
    name: str, averaging: str, bounds: str | None, m: float | None, *, elbow: bool, raw: bool
) -> dict[str, Any]:
    """The rule as `fedcluster.select_k` takes it, checked; ``raw`` rows are not prepared."""
    if elbow and name == "vote":
        raise InputError("--elbow is for a single index; name it by --rule")
    if m is not None and not 1 < m < math.inf:
        raise InputError(f"-m must be above 1, not {m:g}; near 1, degrees are nearly 0 and 1")
    if bounds is not None and not raw:
        raise InputError("--bounds are those of rows that are taken as they are: add --scale none")
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
    tables: Mapping[str, SiteRows],
    ks: Sequence[int],
    parameters: Mapping[str, Any],
    seed: int,
    doing: Doing,
) -> Choosing:
    """Cluster with each k, score, choose."""
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
        estimator.values_sent_,
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
    with atomic_folder(out) as folder:
        return draw(folder, found.selection)


def result(found: Choosing, out: Path | None, files: Sequence[str]) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        **_content(found.selection),
        "seed": found.seed,
        "rounds": found.rounds,
        "values_sent": dict(found.values_sent),
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
    sites = len(found.values_sent)
    took = (
        f"All k in the same {found.rounds} rounds with {sites} site{'' if sites == 1 else 's'}, "
        f"{sum(found.values_sent.values()):,} numbers sent. Seed {found.seed}."
    )
    wrote = [f"Wrote {' and '.join(str(out / file) for file in files)}."] if out and files else []
    return [_indices(found.selection), _verdict(found.selection), *found.prepared, took, *wrote]


def _indices(selection: Selection) -> Table:
    return index_table(selection.n_clusters, selection.rule, selection.says, selection.table)


def _verdict(selection: Selection) -> str:
    return verdict_line(selection.n_clusters, selection.reason)
