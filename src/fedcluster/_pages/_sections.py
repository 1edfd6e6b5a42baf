"""Sections of the report on the clusters: what was found, where, and how they differ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcluster._html import Html, element
from fedcluster._pages import _charts as charts
from fedcluster._pages._parts import (
    LONGEST_NAME,
    Cell,
    beside,
    listed_of,
    named,
    paragraphs,
    percent,
    section,
)
from fedcluster._pages._parts import table as tabled
from fedcluster._pages._run import Feature, Run
from fedcluster._report._messages import counted, few_line
from fedcluster._report._scores import meaning
from fedcluster._report._tables import number
from fedcluster._texts import shortened
from fedcluster.core import Floats

MOST_DRAWN = 12
"""Columns in the chart of profiles; the table has all."""
TOLD = 4
"""Columns that a card tells of."""
ALL = 0.995
"""Share of the scatter from which on a plane shows all of it, in per cent."""
RINGS = "An ellipse is one standard deviation of the cluster's rows, if its columns are unrelated."
NO_RINGS = "The spread of the rows is not known; fit --profile and profile ask for it."
GAPS = {
    "clear": "Clearly apart from",
    "touching": "Touches",
    "none": "No gap to",
    "unknown": "Nearest is",
}
"""What a card says of a cluster's neighbour."""
FAR = 0.3
"""Spreads from which on a card tells of a column."""
SPREADS = "standard deviations of the column over all rows"
OF_CENTERS = "standard deviations of the centres in the column, each as heavy as its rows"


def units(run: Run) -> str:
    """Return in what units centres are apart from the mean of all rows."""
    return SPREADS if run.by_spread else OF_CENTERS


def found(run: Run) -> Html:
    """Return what was found, in plain sentences."""
    lines: list[Any] = []
    if run.k:
        lines.append(_count(run))
        lines += _sizes(run)
    if verdict := chosen(run):
        lines.append(verdict["reason"])
    lines += meaning(indices_of(run))[:1]
    if stop := run.history.get("stop_reason"):
        rounds = counted(run.history["rounds"], "round")
        lines.append(f"The search {stop}; it took {rounds} with the sites in all.")
    doubts = warnings(run)
    if doubts:
        lines.append(f"{counted(len(doubts), 'doubt')} to read before you rely on the result:")
    return section("found", "What was found", paragraphs(lines), listed_of(doubts))


def _count(run: Run) -> Html:
    """Return the sentence on the clusters, rows, sites and columns."""
    columns = run.model["columns"]
    shown = [part for name in columns[:8] for part in (named(name), ", ")][:-1]
    more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""
    sites = counted(len(run.sites), "site")
    what = "rows" if run.counts is not None else "rows (by weight)"
    lead = f"{counted(run.k, 'cluster')} of {number(run.n_rows)} {what} at {sites}, by "
    return element("span", lead, counted(len(columns), "column"), ": ", shown, more, ".")


def _sizes(run: Run) -> list[str]:
    """Return the sentence on the largest and the smallest cluster."""
    outside = run.n_rows - float(run.sizes.sum())
    lines = [f"In no cluster: {counted(round(outside), 'row')}."] if outside >= 1 else []
    if run.k < 2 or not run.sizes.sum() > 0:
        return lines
    share = run.sizes / run.sizes.sum()
    most, least = int(share.argmax()), int(share.argmin())
    if share[most] == share[least]:
        return [*lines, f"Each cluster has {percent(share[0])} of the rows."]
    return [
        *lines,
        f"The largest, cluster {most}, has {percent(share[most])} of the rows; the smallest, "
        f"cluster {least}, {percent(share[least])}.",
    ]


def chosen(run: Run) -> dict[str, Any]:
    """Return the choice of the number of clusters, empty where none was asked."""
    verdict = run.history.get("selection") or (run.selection if "says" in run.selection else {})
    return dict(verdict)


def warnings(run: Run) -> list[str]:
    """Return all that casts a doubt on the result."""
    met = run.account.get("preprocessing", {}).get("warnings", ())
    lines = [*run.history.get("warnings", ()), *met, *chosen(run).get("warnings", ())]
    lines += few_line(int((run.weights > 0).sum()), run.k)
    return list(dict.fromkeys(lines))


def indices_of(run: Run) -> dict[str, float]:
    """Return the indices of this clustering, as far as they are known."""
    if run.scores:
        told = run.scores["scores"]
    else:
        lines = {line["k"]: line for line in chosen(run).get("table", ())}
        told = lines.get(run.k or chosen(run).get("n_clusters"), {})
    numbers = {name: value for name, value in told.items() if value is not None and name != "k"}
    return {name: float(value) for name, value in numbers.items()}


def clusters(run: Run) -> Html:
    """Return a card for each cluster."""
    if not run.k:
        return Html()
    size = "the number of its rows" if run.counts is not None else "the weight of its rows"
    lead = (
        f"Each card has the size of a cluster, {size}, and the columns in which its centre is "
        f"farthest from the mean of all rows, in {units(run)}."
    )
    if run.told:
        lead += " The number after ± is the standard deviation of the cluster's own rows."
    cards = [_card(run, j) for j in range(run.k)]
    return section(
        "clusters", "Clusters", paragraphs([lead]), element("div", cards, class_="cards")
    )


def _card(run: Run, j: int) -> Html:
    share = run.sizes[j] / max(float(run.sizes.sum()), 1e-300)
    rows = f"{number(float(run.sizes[j]))} rows, {percent(share)}"
    ranked = sorted(run.features, key=lambda each: -abs(each.apart[j]))
    told = [_told(each, j) for each in ranked[:TOLD] if abs(each.apart[j]) >= FAR]
    usual = "Near the mean of all rows in every column." if run.features and not told else None
    return element(
        "article",
        element(
            "h3", element("span", j, class_=f"badge c{j % charts.COLOURS}"), " ", called(run, j)
        ),
        element("p", rows, class_="size"),
        element("ul", told) if told else None,
        element("p", usual) if usual else None,
        element("p", _found_again(run, j)) if run.stability else None,
        element("p", _held_by(run, j), class_="pale") if run.counts is not None else None,
        class_="card",
        data_cluster=j,
    )


def _found_again(run: Run, j: int) -> list[Any]:
    """Return how stable a cluster is, and how far from its neighbour."""
    told, n = run.stability["clusters"][j], run.stability["replicates"]
    if told["stability"] is None:
        return ["Stability not known."]
    said = f"found again in {told['found_again']} of {counted(n, 'replicate')}"
    mean = f"mean Jaccard coefficient {told['stability']:.2f}"
    gap = f". {GAPS[told['apart']]} cluster {told['neighbour']}" if run.k > 1 else ""
    return [element("strong", told["word"].capitalize()), f": {said}, {mean}{gap}."]


def called(run: Run, j: int) -> Html:
    """Return what a cluster is called."""
    return named(run.names[j] if run.names else f"Cluster {j}")


def _told(feature: Feature, j: int) -> Html:
    """Return a column of a card: its value at a centre, and how far that is from the mean."""
    apart = float(feature.apart[j])
    side = "above" if apart > 0 else "below"
    spread = math.nan if feature.level or feature.spreads is None else float(feature.spreads[j])
    return element(
        "li",
        named(feature.name),
        " ",
        element("strong", value(feature, j)),
        f" ± {spread:.3g}" if math.isfinite(spread) else None,
        element("span", f" {abs(apart):.1f} {side}", class_="pale"),
    )


def value(feature: Feature, j: int) -> str:
    """Return a centre's value in a column, in its units."""
    x = float(feature.values[j])
    if not math.isfinite(x):
        return "–"
    if feature.level:
        return percent(x)
    return f"{x:.4g}" if abs(x) < 1e4 else f"{x:,.0f}"


def _held_by(run: Run, j: int) -> list[Any]:
    """Return which sites have rows of a cluster."""
    assert run.counts is not None
    some = [site for site, n in zip(run.sites, run.counts[:, j], strict=True) if n > 0]
    if len(some) == len(run.sites):
        return ["At every site."]
    if not some:
        return ["At no site."]
    names = [part for site in some[:5] for part in (named(site["name"]), ", ")][:-1]
    more = f" and {len(some) - 5} more" if len(some) > 5 else ""
    return ["At ", *names, more, "."]


def by_site(run: Run) -> Html:
    """Return the rows of each cluster at each site; known only where the rows are."""
    counts = run.counts
    if counts is None:
        return Html()
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    usual = counts.sum(axis=0) / max(float(counts.sum()), 1.0)
    rows = [
        [
            named(site["name"]),
            *(_share_cell(counts[i, j], share[i, j], usual[j]) for j in range(run.k)),
            f"{counts[i].sum():,.0f}",
        ]
        for i, site in enumerate(run.sites)
    ]
    total = ["all", *(f"{n:,.0f}" for n in counts.sum(axis=0)), f"{counts.sum():,.0f}"]
    lead = (
        "The table counts the rows of each site in each cluster, with their share of the site's "
        "rows. Colours compare this share with that of all sites together: brown is above, blue "
        "is below, and a stronger colour is farther away."
    )
    header = ["site", *(f"cluster {j}" for j in range(run.k)), "rows"]
    shown = tabled("Rows by site and cluster", header, rows, total=total, sites=True, class_="heat")
    return section("sites", "Clusters by site", paragraphs([lead]), shown)


def _share_cell(n: float, share: float, usual: float) -> Cell:
    """Return a count with its share, coloured by how far that is from the usual one."""
    spread = math.sqrt(max(usual * (1 - usual), 1e-12))
    shown = [f"{n:,.0f} ", element("small", percent(share))]
    return Cell(shown, charts.shade(2 * (share - usual) / spread))


def profiles(run: Run) -> Html:
    """Return how the centres differ, column by column."""
    features = sorted(run.features, key=lambda each: -float(np.abs(each.apart).max()))
    if not features or run.k < 2:
        return Html()
    lead = (
        f"The chart shows how far each centre is from the mean of all rows, in {units(run)}. "
        "Columns that separate the clusters most come first. Check boxes hide clusters; the heads "
        "of columns sort the table."
    )
    drawn = [(each.name, each.apart) for each in features[:MOST_DRAWN]]
    about = "; ".join(_far_apart(each) for each in features[:3])
    name = "Distances of the centres from the mean of all rows"
    chart = charts.dots(name, f"The clusters lie farthest apart in: {about}.", drawn, "spreads")
    header = ["column", *(f"cluster {j}" for j in range(run.k))]
    rows = [[named(each.name), *(_value_cell(each, j) for j in range(run.k))] for each in features]
    numbers = tabled("Centres, in the units of the columns", header, rows, class_="heat")
    controls = element("div", class_="controls", data_hide="cluster", data_count=run.k)
    return section(
        "profiles",
        "Profiles of the centres",
        paragraphs([lead]),
        controls,
        beside(chart, numbers),
    )


def _far_apart(feature: Feature) -> str:
    low, high = int(feature.apart.argmin()), int(feature.apart.argmax())
    name = shortened(feature.name, LONGEST_NAME)
    return f"{name}, cluster {low} lowest and cluster {high} highest"


def _value_cell(feature: Feature, j: int) -> Cell:
    apart = float(feature.apart[j])
    return Cell([value(feature, j), " ", element("small", f"{apart:+.1f}")], charts.shade(apart))


def plane(run: Run) -> Html:
    """Return the centres in the plane in which they lie farthest apart."""
    if run.k < 3 or len(run.features) < 2:
        return Html()
    X = np.stack([each.apart for each in run.features], axis=1)
    weights = run.weights / max(float(run.weights.sum()), 1e-300)
    axes, shares = _axes(X, weights)
    if not len(axes):
        return Html()
    places = X @ axes.T
    kept = float(shares[:2].sum())
    hidden = "" if kept > ALL else "; centres that are close here may be far apart in others"
    lead = (
        "The chart shows the first two principal components of the centres, each weighted by its "
        f"rows: the plane in which they are farthest apart. It holds {percent(kept)} of the "
        f"scatter between the clusters{hidden}. A larger disc is a larger cluster. "
        f"{RINGS if run.told else NO_RINGS}"
    )
    about = f"{run.k} discs, one for each cluster"
    rings = _rings(run, axes)
    chart = charts.plane("Centres in the plane", about, places, run.sizes, rings)
    rows = [
        [f"cluster {j}", f"{x:.2f}", f"{y:.2f}", f"{_nearest(X, j)[1]:.2f}", f"{_nearest(X, j)[0]}"]
        for j, (x, y) in enumerate(places)
    ]
    header = ["cluster", "first", "second", "distance to the nearest", "which is cluster"]
    numbers = tabled("Places of the centres", header, rows, class_="narrow")
    return section("plane", "Centres in the plane", paragraphs([lead]), beside(chart, numbers))


def _rings(run: Run, axes: Floats) -> list[Floats | None]:
    """Return the covariance of each cluster's rows in a plane, as if columns were unrelated."""
    if not run.told:
        return [None] * run.k
    units = np.array([each.unit if each.unit > 0 else np.inf for each in run.features])
    spreads = np.array([each.spreads for each in run.features]).T / units
    variances = np.nan_to_num(spreads**2)
    return [(axes * own) @ axes.T for own in variances]


def _axes(X: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return two principal axes of weighted points, and the shares of all axes; none of equal ones.

    The sign of an axis is that its largest part is positive, so that a page is the same each time.
    """
    scaled = (X - weights @ X) * np.sqrt(weights)[:, None]
    _, sizes, axes = np.linalg.svd(scaled, full_matrices=False)
    total = float((sizes**2).sum())
    if not total > 0 or len(sizes) < 2:
        return np.zeros((0, X.shape[1])), np.zeros(0)
    first = axes[:2]
    signs = np.sign(first[np.arange(2), np.abs(first).argmax(axis=1)])
    return first * signs[:, None], sizes**2 / total


def _nearest(X: Floats, j: int) -> tuple[int, float]:
    """Return the nearest other centre, and how far it is over all columns."""
    far = np.sqrt(((X - X[j]) ** 2).sum(axis=1))
    far[j] = np.inf
    return int(far.argmin()), float(far.min())
