"""Sections of the report on how sure one can be: stability of the clusters, and indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcluster._html import Html
from fedcluster._pages import _charts as charts
from fedcluster._pages._account import finite, shown
from fedcluster._pages._parts import beside, paragraphs, section, table
from fedcluster._pages._run import Run
from fedcluster._pages._sections import indices_of
from fedcluster._report._messages import counted
from fedcluster._report._scores import better, meaning
from fedcluster._stability import DOUBTFUL, STABLE

GAP = {"clear": "(clear)", "touching": "(touching)", "none": "(no gap)", "unknown": ""}
"""What a table says of how far a cluster is from the nearest."""


def stability(run: Run) -> Html:
    """Return how well each cluster is found again where rows are drawn anew."""
    if not run.stability:
        return Html()
    clusters = run.stability["clusters"]
    drawn = [
        (each["cluster"], *(finite(each[part]) for part in ("lowest", "stability", "highest")))
        for each in clusters
    ]
    words = "; ".join(f"cluster {each['cluster']} is {each['word']}" for each in clusters[:8])
    label = "Jaccard coefficient: lowest, mean and highest"
    name = "How well clusters are found again"
    chart = charts.ranges(name, f"{words}.", drawn, label, (0.0, 1.0), (DOUBTFUL, STABLE))
    rows = [[f"cluster {each['cluster']}: {each['word']}", *_line(each)] for each in clusters]
    header = ["cluster", "mean", "lowest", "found again", "nearest", "separation"]
    told = counted(run.stability["replicates"], "replicate")
    numbers = table(f"Stability in {told}", header, rows, class_="narrow")
    lead = (
        "Each site drew bootstrap samples of its rows, and each sample was clustered again (a "
        "replicate). The Jaccard coefficient compares a cluster with its best match in a "
        "replicate: of the rows in either, it is the share of rows in both. Dashed lines mark "
        f"{DOUBTFUL}, from which a cluster counts as found again, and {STABLE}, from which it is "
        "stable. The separation is the distance from the nearest cluster, in standard deviations."
    )
    said = paragraphs([lead, *run.stability["meaning"]])
    return section("stability", "Stability", said, beside(chart, numbers))


def silhouettes(run: Run) -> Html:
    """Return how much nearer the rows of each cluster are to their centre than to the next."""
    told = [
        (j, finite(each["silhouette"]), finite(each["silhouette_spread"]))
        for j, each in enumerate(run.told.get("clusters", ()))
        if each.get("silhouette") is not None
    ]
    if not told:
        return Html()
    drawn = [(j, max(mean - sd, -1.0), mean, min(mean + sd, 1.0)) for j, mean, sd in told]
    lowest = min(low for _, low, _, _ in drawn)
    worst, mean, _ = min(told, key=lambda each: each[1])
    name = "Silhouettes by cluster"
    about = f"The least separated is cluster {worst}, with a mean of {mean:.2f}."
    label = "simplified silhouette: mean ± standard deviation"
    chart = charts.ranges(name, about, drawn, label, (0.0 if lowest >= 0 else -1.0, 1.0))
    rows = [[f"cluster {j}", f"{mean:.2f}", f"{sd:.2f}"] for j, mean, sd in told]
    numbers = table(name, ["cluster", "mean", "standard deviation"], rows, class_="narrow")
    lead = (
        "The simplified silhouette of a row is 1 at the centre of its cluster, 0 halfway to "
        "another centre, and negative if another centre is closer. A cluster with a low mean "
        "overlaps with another one."
    )
    said = paragraphs([lead, about])
    return section("silhouettes", name, said, beside(chart, numbers))


def _line(told: Mapping[str, Any]) -> list[str]:
    """Return what the table says of the stability of a cluster."""
    return [
        *(_rounded(told[part]) for part in ("stability", "lowest")),
        str(told["found_again"]),
        str(told["neighbour"]),
        f"{_rounded(told['separation'])} {GAP[told['apart']]}".strip(),
    ]


def _rounded(x: Any) -> str:
    return "–" if x is None else f"{x:.2f}"


def quality(run: Run) -> Html:
    """Return the indices of the clustering, and what they mean."""
    scores = indices_of(run)
    if not scores:
        return Html()
    rows = [[name, _better(name, run.scores), shown(value)] for name, value in scores.items()]
    numbers = table("Indices", ["index", "better", "score"], rows)
    return section("quality", "Quality", paragraphs(meaning(scores)), numbers)


def _better(name: str, scores: Mapping[str, Any]) -> str:
    """Return whether the higher or the lower score is the better one, as the file says."""
    return scores.get("better", {}).get(name, better(name)) or ""
