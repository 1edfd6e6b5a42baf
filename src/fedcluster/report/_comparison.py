"""Comparison of two clusterings: of two runs, or with one cluster more or less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.errors import listed
from fedcluster.metrics.indices import CHOOSING
from fedcluster.model.crossing import Crossing
from fedcluster.model.file import digest_of
from fedcluster.report import charts
from fedcluster.report._summary import chosen, clusters, label, sure, title_of
from fedcluster.report.messages import favoured
from fedcluster.report.run import Run, finite
from fedcluster.texts import html
from fedcluster.texts.words import counted, number, percent, shown

LIKELIHOOD = "likelihood"


def why(run: Run) -> Sequence[Any]:
    """Return the reason for the number of clusters, compared with one less and one more."""
    verdict = chosen(run)
    if not verdict:
        return ()
    k = verdict["n_clusters"]
    others = neighbours(run) if run.k == k else {}
    changes = {j: _changes(run, other) for j, other in others.items()}
    plain = [[f"With {j}, ", line, "."] for j, lines in changes.items() for line in lines[:1]]
    known = [line["k"] for line in verdict["table"]]
    rows = [
        [
            html.element("strong", f"{j} (chosen)") if j == k else j,
            "as on the first page" if j == k else html.joined(*_items(changes.get(j, ()))),
            html.joined(*_items(_support(verdict, j))),
        ]
        for j in (k - 1, k, k + 1)
        if j == k or j in known
    ]
    header = ["clusters", "what changes", "what supports it"]
    return [
        html.paragraphs(f"{favoured(verdict)}.", *plain),
        html.Table("One cluster less, and one more", header, rows).html("texts"),
    ]


def _items(lines: Sequence[Any]) -> list[Any]:
    return [html.element("div", line) for line in lines] or ["not known"]


def neighbours(run: Run) -> dict[int, Run]:
    """Return the clusterings with one cluster less and one more, if known."""
    model = {key: part for key, part in run.model.items() if key != "names"}
    beside = chosen(run).get("beside", {})
    return {int(j): Run(model={**model, **own}) for j, own in beside.items()}


def nearest_of(run: Run, other: Run) -> NDArray[np.intp]:
    """Return the nearest cluster in another clustering to each centre, (k,), by common columns.

    Columns are scaled by their spreads.
    """
    of_other = {each.name: each for each in other.features}
    pairs = [(each, of_other[each.name]) for each in run.features if each.name in of_other]
    pairs = [(one, two) for one, two in pairs if one.unit > 0]
    if not pairs or not other.k:
        return np.zeros(run.k, dtype=np.intp)
    mine = np.stack([one.values / one.unit for one, _ in pairs], axis=1)
    theirs = np.stack([two.values / one.unit for one, two in pairs], axis=1)
    squares: Floats = ((mine[:, None] - theirs) ** 2).sum(axis=2)
    place: NDArray[np.intp] = np.nan_to_num(squares, nan=np.inf).argmin(axis=1)
    return place


def _changes(run: Run, other: Run) -> list[Any]:
    """Return which clusters are joined with one cluster less, or split with one more."""
    fewer = other.k < run.k
    coarse, fine = (other, run) if fewer else (run, other)
    place = nearest_of(fine, coarse)
    lines = []
    for j in range(coarse.k):
        parts = np.flatnonzero(place == j).tolist()
        if len(parts) < 2:
            continue
        told = [
            html.joined(
                label(run, i) if fewer else html.named(other.names[i]),
                f" ({number(float(fine.sizes[i]))} rows)",
            )
            for i in parts
        ]
        several = [
            piece
            for i, one in enumerate(told)
            for piece in (one, " and " if i == len(told) - 2 else ", ")
        ][:-1]
        lines.append(
            html.joined(*several, " would be one")
            if fewer
            else html.joined(label(run, j), " would part in ", *several)
        )
    return lines or ["clusters would be arranged otherwise"]


def _support(verdict: Mapping[str, Any], k: int) -> list[str]:
    """Return what supports a number of clusters: the indices that choose it, or its likelihood."""
    scores = {line["k"]: line for line in verdict["table"]}
    if list(verdict["says"]) == [LIKELIHOOD]:
        every = {j: finite(line.get(LIKELIHOOD)) for j, line in scores.items()}
        own, best = every.get(k, np.nan), np.nanmax([*every.values(), -np.inf])
        if not np.isfinite(own):
            return ["no mixture with so many clusters was likely enough to be tried"]
        below = "the best" if own == best else f"{number(round(best - own, 1))} below the best"
        return [f"{CHOOSING[LIKELIHOOD].label}: {shown(round(own, 1))}, {below}"]
    names = [CHOOSING[i].label for i, j in verdict["says"].items() if j == k and i in CHOOSING]
    return [listed(names)] if names else ["no index"]


MOST_PARTS = 4
"""Number of clusters that are named where the rows of a cluster are in several."""


def compared(runs: tuple[Run, Run], crossing: Crossing | None) -> Mapping[str, Any]:
    """Return the sections on two runs by their keys.

    Parameters
    ----------
    runs : (Run, Run)
        The runs.
    crossing : Crossing or None
        The rows in each cluster of the first and of the second; None if they were not counted.
    """
    one, two = runs
    lead = [
        [html.element("strong", html.named(each.name)), f": {title_of(each)}."] for each in runs
    ]
    moved = _by_centers(runs) if crossing is None else _by_rows(runs, crossing)
    return {
        "found": [html.paragraphs(*lead), *moved],
        "first": [clusters(one)],
        "second": [clusters(two)],
        "differences": [_differences(runs)],
    }


def crossing_of(one: Run, other: Run) -> Crossing | None:
    """Return the rows in each pair of clusters, if one run was evaluated beside the other."""
    models = [digest_of(each.model) for each in (one, other)]
    for run, digests in ((one, models), (other, models[::-1])):
        beside = run.scores.get("beside")
        if beside is not None and list(beside["models"]) == digests:
            found = Crossing.from_plain(beside)
            return found if run is one else found.turned
    return None


def _by_rows(runs: tuple[Run, Run], crossing: Crossing) -> list[Any]:
    """Return where the rows of each cluster are in the other run, as a chart and as tables."""
    one, two = runs
    rows = crossing.between
    about = f"{number(float(rows.sum()))} rows, from {one.k} clusters to {two.k}."
    chart = charts.flow("Where the rows are", about, rows, one.names, two.names)
    return [
        html.paragraphs(" ".join(crossing.meaning)),
        html.titled(f"From {one.name} to {two.name}", chart),
        _parts(one, two, rows, f"Where each cluster of {one.name} is in {two.name}"),
        _parts(two, one, rows.T, f"Where each cluster of {two.name} was in {one.name}"),
    ]


def _parts(run: Run, other: Run, rows: Floats, title: str) -> html.Html:
    """Return a table of the clusters of a run, and of the clusters of another with their rows."""
    lines = []
    for j, own in enumerate(rows):
        total = float(own.sum())
        order = [i for i in np.argsort(-own, kind="stable").tolist() if own[i] > 0]
        parts = [
            html.element("div", label(other, i), f" {percent(float(own[i]) / total)}")
            for i in order[:MOST_PARTS]
        ]
        rest = len(order) - MOST_PARTS
        more = [html.element("div", f"and {counted(rest, 'cluster')} more")] if rest > 0 else []
        lines.append([label(run, j), number(total), html.joined(parts or "no row shown", more)])
    return html.Table(title, ["cluster", "rows", "there"], lines).html("texts")


def _by_centers(runs: tuple[Run, Run]) -> list[Any]:
    """Return the nearest cluster in the other run to each, where no rows were counted."""
    one, two = runs
    why_not = (
        "Which rows changed their cluster is known only with the rows: name the files of the "
        "sites, as in fedcluster report FIRST SECOND north.csv south.csv."
    )
    if not _common(one, two):
        return [html.paragraphs(f"The runs have no column in common. {why_not}")]
    tables = []
    for run, other in (runs, runs[::-1]):
        lines = [
            [
                label(run, j),
                number(float(run.sizes[j])),
                label(other, i),
                number(float(other.sizes[i])),
            ]
            for j, i in enumerate(nearest_of(run, other).tolist())
        ]
        header = ["cluster", "rows", "nearest", "its rows"]
        title = f"For each cluster of {run.name}, the nearest of {other.name}"
        tables.append(html.Table(title, header, lines).html("texts"))
    by = "Nearest by the means of the columns that both runs have."
    return [html.paragraphs(f"{by} {why_not}"), html.beside(*tables)]


def _common(one: Run, two: Run) -> bool:
    return bool({each.name for each in one.features} & {each.name for each in two.features})


def _differences(runs: tuple[Run, Run]) -> html.Html:
    """Return what differs between two runs: rows, sites, columns, parameters and certainty."""
    facts = [_facts(run) for run in runs]
    names = dict.fromkeys(name for each in facts for name in each)
    rows = [
        [name, *(each.get(name, "–") for each in facts)]
        for name in names
        if name in ALWAYS or facts[0].get(name) != facts[1].get(name)
    ]
    header = ["what", *(html.named(run.name) for run in runs)]
    return html.Table("What differs", header, rows).html("texts")


ALWAYS = ("day", "rows", "sites", "clusters", "how sure")
"""What is shown of two runs even where it is the same."""


def _facts(run: Run) -> dict[str, Any]:
    """Return what describes a run, each in a few words."""
    verdict = chosen(run)
    told = ("steps", "n_clusters")
    algorithm = {k: v for k, v in run.model.get("algorithm", {}).items() if k not in told}
    prepare = algorithm.pop("prepare", None)
    parameters = {**algorithm, **(prepare if isinstance(prepare, Mapping) else {})}
    return {
        "day": run.date,
        "rows": number(run.n_rows),
        "sites": html.names_listed([site["name"] for site in run.sites], MOST_NAMED),
        "columns": html.names_listed(list(run.model.get("columns", ())), MOST_NAMED),
        "clusters": run.k,
        "why so many": f"{favoured(verdict)}." if verdict else "The number was given.",
        "how sure": sure(run),
        "seed": run.model.get("seed"),
        **{name: str(value) for name, value in parameters.items() if value not in (None, [], {})},
    }


MOST_NAMED = 12
"""Number of sites and columns that are named."""
