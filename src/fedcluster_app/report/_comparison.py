"""Comparison of a clustering with those of one cluster more and one less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.errors import listed
from fedcluster.metrics.indices import CHOOSING
from fedcluster.model.run import Run, finite
from fedcluster.texts import html
from fedcluster.texts.words import number, shown
from fedcluster_app.report._summary import chosen, label
from fedcluster_app.report.messages import favoured

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
