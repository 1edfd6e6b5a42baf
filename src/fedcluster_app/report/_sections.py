"""Details of the report on the clusters: their sites, differences, stability and number.

A section is a function that returns its content, or nothing if it is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster import metrics as measures
from fedcluster import model as models
from fedcluster.core import Floats
from fedcluster.errors import listed
from fedcluster.model.outcomes import said_p
from fedcluster.model.run import Feature, Run, finite
from fedcluster.preprocessing.site_model import SITE_EFFORT
from fedcluster.recipes.succession import succession_table
from fedcluster.texts import counted, number, percent, short_number, shortened, shown
from fedcluster_app.report import charts
from fedcluster_app.report._summary import chosen, label, value
from fedcluster_app.report.html import parts
from fedcluster_app.report.messages import better, favoured, meaning

Content = Sequence[Any]
RINGS = "An ellipse is one standard deviation of the cluster's rows, if its columns are unrelated."
SPREADS = "standard deviations of the column over all rows"
ESTIMATED = (
    "standard deviations of the column, as they are estimated from the centres and the inertia"
)


def units(run: Run) -> str:
    """Return in what units clusters are apart from all rows."""
    return SPREADS if run.by_spread else ESTIMATED


def indices_of(run: Run) -> dict[str, float]:
    """Return the known indices of this clustering."""
    if run.scores:
        scores = run.scores["scores"]
    else:
        lines = {line["k"]: line for line in chosen(run).get("table", ())}
        scores = lines.get(run.k or chosen(run).get("n_clusters"), {})
    numbers = {name: value for name, value in scores.items() if value is not None and name != "k"}
    return {name: float(value) for name, value in numbers.items()}


def by_site(run: Run) -> Content:
    """Return the number of rows of each cluster at each site; known only if the rows are local."""
    counts = run.counts
    if counts is None:
        return ()
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    usual = counts.sum(axis=0) / max(float(counts.sum()), 1.0)
    rows = [
        [
            parts.named(site["name"]),
            *(_share_cell(counts[i, j], share[i, j], usual[j]) for j in range(run.k)),
            f"{counts[i].sum():,.0f}",
        ]
        for i, site in enumerate(run.sites)
    ]
    total = ["all", *(f"{n:,.0f}" for n in counts.sum(axis=0)), f"{counts.sum():,.0f}"]
    lead = (
        "Each bar is a site, and each part of it the share of a cluster in the site's rows. In the "
        "table, colours compare this share with that of all sites together: brown is above, blue "
        "is below, and a stronger colour is farther away."
    )
    header = ["site", *(label(run, j) for j in range(run.k)), "rows"]
    title = "Rows by site and cluster"
    table = parts.table(title, header, rows, "heat named", sites=True, total=total)
    return [parts.paragraphs(lead), parts.beside(_bars(run), table, wide=run.k > 5)]


def _bars(run: Run) -> Any:
    """Return a chart of the shares of the clusters at each site; None if they are not known."""
    if run.counts is None or run.k < 2:
        return None
    names, total = [site["name"] for site in run.sites], run.counts.sum(axis=0)
    share = [each / max(float(each.sum()), 1.0) for each in (total, *run.counts)]
    about = f"{run.k} clusters at {counted(len(names), 'site')}, and in all"
    return charts.bars("Clusters by site", about, ["all sites", *names], share)


def _share_cell(n: float, share: float, usual: float) -> dict[str, str]:
    """Return a count with its share, coloured by the deviation from the usual share."""
    spread = math.sqrt(max(usual * (1 - usual), 1e-12))
    shade = charts.shade(2 * (share - usual) / spread)
    return {"words": f"{n:,.0f}", "small": percent(share), "shade": shade}


def outcomes(run: Run) -> Content:
    """Return the tests of outcomes that were not clustered by, and survival curves."""
    if not run.outcomes:
        return ()
    lead = (
        "Rows count as independent, those of a group as one; p-values are corrected for the number "
        "of outcomes by Holm's method. Clusters can differ in an outcome without being its cause."
    )
    rows = [
        [
            parts.named(each["name"]),
            each["test"]["name"],
            *_tested(each["corrected"]),
            "; ".join(
                f"{MEASURES[name]} {_interval(size)}" for name, size in each["effect"].items()
            )
            or "by cluster below",
        ]
        for each in run.outcomes
    ]
    header = ["outcome", "test", "p", "p within sites", "size, with interval of 95 %"]
    return [
        parts.paragraphs(lead),
        parts.listed_items(run.comparison["comparison"]["sentences"]),
        parts.table("Tests of outcomes", header, rows, "texts"),
        *(
            part
            for each in run.outcomes
            for part in (_survival if each["kind"] == "survival" else _by_cluster)(run, each)
        ),
    ]


MEASURES = {"cramers_v": "Cramér's V", "omega_squared": "ω²"}


def _tested(corrected: Sequence[Any]) -> list[str]:
    return [
        "–" if p is None else said_p(p).removeprefix("p ").removeprefix("= ") for p in corrected
    ]


def _interval(estimate: Mapping[str, Any] | None) -> str:
    """Return an estimate and its interval."""
    ends = estimate and [estimate[key] for key in ("value", "low", "high")]
    if not ends or ends[0] is None:
        return "–"
    value, low, high = map(_rounded, ends)
    return f"{value} ({low} to {high})"


def _rounded(x: float | None) -> str:
    """Return a number to two significant digits, or more if it is large."""
    return short_number(x if x is None or abs(x) >= 100 else float(f"{x:.2g}"))


def _survival(run: Run, outcome: Mapping[str, Any]) -> Content:
    """Return Kaplan-Meier curves of an outcome, beside the median times and hazard ratios."""
    seen = [(j, each) for j, each in enumerate(outcome["clusters"]) if each["rows"]]
    if not seen:
        return ()
    name = f"Without the event: {outcome['name']}"
    about = "The share of each cluster's rows that have not had the event, by time."
    chart = charts.survival(name, about, seen, outcome["name"].rpartition(" by ")[2])
    rows = [
        [
            label(run, j),
            f"{each['rows']:,.0f}",
            f"{each['events']:,.0f}",
            "not reached" if each["median"] is None else short_number(each["median"]),
            _interval(each["hazard_ratio"]),
        ]
        for j, each in seen
    ]
    header = ["cluster", "rows", "events", "median time", "hazard ratio to all others"]
    return [parts.beside(chart, parts.table(name, header, rows, "narrow"))]


def _by_cluster(run: Run, outcome: Mapping[str, Any]) -> Content:
    """Return a table of the clusters' means or shares of an outcome, with their intervals."""
    clusters = outcome["clusters"]
    if outcome["kind"] == "number":
        header, keys = ["mean"], ["mean"]
    elif any("share" in each for each in clusters):
        header = ["share of 1", "odds ratio to all others", "odds ratio within sites"]
        keys = ["share", "odds_ratio", "odds_ratio_by_site"]
    else:
        header = keys = sorted({level for each in clusters for level in each["counts"]})
    rows = [
        [
            label(run, j),
            f"{each['rows']:,.0f}",
            *(
                f"{each['counts'].get(key, 0):,.0f}" if keys is header else _interval(each.get(key))
                for key in keys
            ),
        ]
        for j, each in enumerate(clusters)
    ]
    return [parts.table(outcome["name"], ["cluster", "rows", *map(parts.named, header)], rows)]


def offsets(run: Run) -> Content:
    """Return by how much sites differ whatever their rows are, by column."""
    how = run.model.get("preprocessing") or {}
    effects, columns = how.get("effects"), how.get("columns", ())
    if not effects:
        return ()
    numbers = [each for each in columns if each["kind"] == "number"]
    wide = np.sqrt(effects["spread"])
    sizes = wide / np.sqrt(np.diag(effects["noise"]))
    order = np.argsort(-sizes, kind="stable").tolist()
    large = [numbers[j]["name"] for j in order if sizes[j] >= SITE_EFFORT.named]
    said: list[Any] = ["Sites hardly differ but by their patients."]
    if large:
        named = parts.names_listed(large, 12)
        said = ["Sites differ by laboratory, device or code, not by patients, in ", named, "."]
    lead = (
        "Each site found its own offset and subtracted it from its rows; the offsets themselves "
        "stay at the sites. The table has their standard deviation between sites."
    )
    lead = lead if wide.any() else "Offsets are no larger than by chance: none was subtracted."
    rows = [
        [
            parts.named(f"log(1 + {each['name']})" if each["log"] else each["name"]),
            _rounded(float(wide[j])),
            {"words": _rounded(float(sizes[j])), "small": "", "shade": charts.shade(sizes[j])},
        ]
        for j, each in ((j, numbers[j]) for j in order)
    ]
    header = ["column", "in its units", "in deviations within a subtype"]
    return [
        parts.paragraphs(said, lead),
        parts.table("Size of the offsets", header, rows, "heat named"),
    ]


def profiles(run: Run) -> Content:
    """Return how the clusters differ, column by column."""
    features = sorted(run.features, key=lambda each: -float(np.abs(each.apart).max()))
    if not features or run.k < 2:
        return ()
    lead = (
        "The table is a heat map: each cluster's mean or share beside that of all rows, and how "
        f"far it is from there (small number and colour), in {units(run)}. Columns that separate "
        "the clusters most come first. Check boxes hide clusters; the heads sort the table."
    )
    header = ["column", "all rows", *(label(run, j) for j in range(run.k))]
    rows = [
        [
            parts.named(each.name),
            value(each, each.overall),
            *(_value_cell(each, j) for j in range(run.k)),
        ]
        for each in features
    ]
    spread = [each for each in features if each.spreads is not None and not each.level]
    # Number of columns whose spreads within the clusters are drawn.
    drawn = [_spread_chart(run, each) for each in spread[:6]]
    return [
        parts.paragraphs(lead),
        parts.controls("cluster", run.k),
        parts.table("Clusters, in the units of the columns", header, rows, "heat named"),
        parts.charts(drawn),
    ]


def _spread_chart(run: Run, feature: Feature) -> Any:
    """Return a chart of the mean and one standard deviation of each cluster's rows, and of all."""
    assert feature.spreads is not None
    low, high = feature.values - feature.spreads, feature.values + feature.spreads
    known = np.isfinite(low) & np.isfinite(high)
    if not known.any() or not low[known].min() < high[known].max():
        return None
    rows = [
        (j, float(low[j]), float(feature.values[j]), float(high[j]))
        for j in np.flatnonzero(known).tolist()
    ]
    ends = (float(low[known].min()), float(high[known].max()))
    every = [feature.overall] if ends[0] < feature.overall < ends[1] else []
    name = shortened(feature.name, 40)
    about = "The mean of each cluster's rows, and one standard deviation to both sides."
    caption = "mean ± standard deviation; dashed: all rows"
    return parts.titled(name, charts.ranges(name, about, rows, caption, ends, every, run.names))


def _value_cell(feature: Feature, j: int) -> dict[str, str]:
    apart, words = float(feature.apart[j]), value(feature, float(feature.values[j]))
    return {"words": words, "small": f"{apart:+z.1f}", "shade": charts.shade(apart)}


def picture(run: Run, *, most: int = 12) -> Any:
    """Return the chart of the first page: a map of the clusters, or else their shares at sites.

    ``most``: clusters and sites that it shows; of more there is none.
    """
    if run.k > most:
        return None
    found = _map(run)
    return found[0] if found else _bars(run) if len(run.sites) <= most else None


def _map(run: Run) -> tuple[Any, Floats, Floats, float] | None:
    """Return a chart of the centres, these, their places in it, and the share of the scatter."""
    if run.k < 3 or len(run.features) < 2:
        return None
    X = np.stack([each.apart for each in run.features], axis=1)
    axes, shares = _axes(X, run.weights / max(float(run.weights.sum()), 1e-300))
    if not len(axes):
        return None
    places, about = X @ axes.T, f"{run.k} discs, one for each cluster"
    along = [_along(run, axis) for axis in axes]
    chart = charts.plane(
        "Map of the clusters", about, places, run.sizes, _rings(run, axes), along, run.names
    )
    return chart, X, places, float(shares[:2].sum())


def plane(run: Run) -> Content:
    """Return a chart of the centres in the plane in which they are farthest apart."""
    if (found := _map(run)) is None:
        return ()
    chart, X, places, kept = found
    # Share of the scatter, in per cent, from which on a plane counts as showing all of it.
    hidden = "" if kept > 0.995 else "; clusters that are close here may be far apart otherwise"
    lead = (
        "A map of the clusters, by the two directions in which they are farthest apart (the "
        "principal components of the centres, each weighted by its rows). It holds "
        f"{percent(kept)} of the scatter between them{hidden}. Each axis names the columns that "
        "it follows most. A larger disc is a larger cluster; discs that would cover each other are "
        f"moved apart, with a line to their place. {RINGS if run.own_profiles else ''}"
    )
    rows = []
    for j, (x, y) in enumerate(places):
        far = np.sqrt(((X - X[j]) ** 2).sum(axis=1))
        far[j] = np.inf
        near = (f"{far.min():.2f}", parts.badge(int(far.argmin())))
        rows.append([label(run, j), f"{x:.2f}", f"{y:.2f}", *near])
    header = ["cluster", "across", "up", "distance to the nearest", "which is"]
    numbers = parts.table("Places of the clusters", header, rows, "narrow")
    return [parts.paragraphs(lead), parts.beside(chart, numbers)]


def _along(run: Run, axis: Floats, *, most: int = 3, least: float = 0.2) -> str:
    """Return the columns with the largest loadings on an axis; those that decrease are "less".

    ``most``: columns that label an axis of the map. ``least``: the smallest loading of these.
    """
    order = np.argsort(-np.abs(axis), kind="stable")[:most]
    phrases = [
        f"{'more' if axis[i] > 0 else 'less'} {shortened(run.features[i].name, 24)}"
        for i in order.tolist()
        if abs(axis[i]) >= least
    ]
    return ", ".join(phrases)


def _rings(run: Run, axes: Floats) -> list[Floats | None]:
    """Return the covariance of each cluster's rows in a plane, as if columns were uncorrelated."""
    if not run.own_profiles:
        return [None] * run.k
    units = np.array([each.unit if each.unit > 0 else np.inf for each in run.features])
    spreads = np.array([each.spreads for each in run.features]).T / units
    variances = np.nan_to_num(spreads**2)
    return [(axes * own) @ axes.T for own in variances]


def _axes(X: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return two principal axes of weighted points, and the shares of all axes; None if equal.

    The sign of an axis is chosen so that its largest coordinate is positive, which makes a page
    reproducible.
    """
    scaled = (X - weights @ X) * np.sqrt(weights)[:, None]
    _, sizes, axes = np.linalg.svd(scaled, full_matrices=False)
    total = float((sizes**2).sum())
    if not total > 0 or len(sizes) < 2:
        return np.zeros((0, X.shape[1])), np.zeros(0)
    first = axes[:2]
    signs = np.sign(first[np.arange(2), np.abs(first).argmax(axis=1)])
    return first * signs[:, None], sizes**2 / total


def stability(run: Run) -> Content:
    """Return how well each cluster is found again in resampled rows."""
    if not run.stability:
        return ()
    clusters = run.stability["clusters"]
    drawn = [
        (each["cluster"], *(finite(each[part]) for part in ("lowest", "stability", "highest")))
        for each in clusters
    ]
    words = "; ".join(f"cluster {each['cluster']} is {each['word']}" for each in clusters[:8])
    caption = "Jaccard coefficient: lowest, mean and highest"
    name = "How well clusters are found again"
    found = models.Stability.found_from
    chart = charts.ranges(name, f"{words}.", drawn, caption, (0.0, 1.0), (found,), run.names)
    table = models.stability_table(run.stability)
    # without the column of verdicts, which are shown beside the names
    header = [table.header[0], *table.header[2:]]
    rows = [[[label(run, int(j)), ": ", word], *cells] for j, word, *cells in table.rows]
    numbers = parts.table(table.title, header, rows, "narrow")
    lead = (
        "Each site drew bootstrap samples of its rows, and each sample was clustered again (a "
        "replicate). The Jaccard coefficient compares a cluster with its best match in a "
        "replicate: of the rows in either, it is the share of rows in both. A dashed line marks "
        f"{found}, from which a cluster counts as found again. The density between is the least "
        "density on the way to the nearest cluster, as a share of the lower of the two peaks: up "
        f"to {models.Stability.gap_upto} there is a gap."
    )
    return [parts.paragraphs(lead, *run.stability["meaning"]), parts.beside(chart, numbers)]


def since(run: Run) -> Content:
    """Return what became of the clusters of an earlier fit."""
    if not (content := run.history.get("since")):
        return ()
    table = succession_table(content)
    lead = (
        "A cluster is one of the earlier fit if most of its rows, today, are in that one, and its "
        "centre is near. Moves are in standard deviations of the cluster's rows, along the column "
        "that changed most surely; probabilities are corrected for their number (Holm)."
    )
    return [
        parts.paragraphs(lead, *content["meaning"]),
        parts.table(table.title, list(table.header), list(map(list, table.rows)), "named"),
    ]


def silhouettes(run: Run) -> Content:
    """Return the silhouettes: rows' distances to their own centre and to the next one."""
    known = [
        (j, finite(each["silhouette"]), finite(each["silhouette_spread"]))
        for j, each in enumerate(run.own_profiles.get("clusters", ()))
        if each.get("silhouette") is not None
    ]
    if not known:
        return ()
    drawn = [(j, max(mean - sd, -1.0), mean, min(mean + sd, 1.0)) for j, mean, sd in known]
    lowest = min(low for _, low, _, _ in drawn)
    worst, mean, _ = min(known, key=lambda each: each[1])
    name = "Simplified silhouettes by cluster"
    about = f"The least separated is cluster {worst}, with a mean of {mean:.2f}."
    caption = "simplified silhouette: mean ± standard deviation"
    ends = (0.0 if lowest >= 0 else -1.0, 1.0)
    chart = charts.ranges(name, about, drawn, caption, ends, (), run.names)
    rows = [[label(run, j), f"{mean:.2f}", f"{sd:.2f}"] for j, mean, sd in known]
    numbers = parts.table(name, ["cluster", "mean", "standard deviation"], rows, "narrow")
    lead = (
        "The simplified silhouette of a row is 1 at the centre of its cluster, 0 halfway to "
        "another centre, and negative if another centre is closer. A cluster with a low mean "
        "overlaps with another one."
    )
    return [parts.paragraphs(lead, about), parts.beside(chart, numbers)]


def quality(run: Run) -> Content:
    """Return the indices of the clustering, and their meaning."""
    scores = indices_of(run)
    if not scores:
        return ()
    directions = run.scores.get("better", {})
    rows = [
        [name, directions.get(name, better(name)) or "", shown(x)] for name, x in scores.items()
    ]
    numbers = parts.table("Indices", ["index", "better", "score"], rows)
    return [parts.paragraphs(*meaning(scores)), numbers]


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
            parts.strong(f"{j} (chosen)") if j == k else j,
            "as on the first page" if j == k else _lines(changes.get(j, ())),
            _lines(_support(verdict, j)),
        ]
        for j in (k - 1, k, k + 1)
        if j == k or j in known
    ]
    header = ["clusters", "what changes", "what supports it"]
    return [
        parts.paragraphs(f"{favoured(verdict)}.", *plain),
        parts.table("One cluster less, and one more", header, rows, "texts"),
    ]


def _lines(lines: Sequence[Any]) -> Any:
    return parts.lines(lines) or "not known"


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
    lines: list[Any] = []
    for j in range(coarse.k):
        joint = np.flatnonzero(place == j).tolist()
        if len(joint) < 2:
            continue
        phrases = [
            [
                label(run, i) if fewer else parts.named(other.names[i]),
                f" ({number(float(fine.sizes[i]))} rows)",
            ]
            for i in joint
        ]
        several = [
            piece
            for i, one in enumerate(phrases)
            for piece in (one, " and " if i == len(phrases) - 2 else ", ")
        ][:-1]
        lines.append(
            [*several, " would be one"] if fewer else [label(run, j), " would part in ", *several]
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
        return [f"{measures.CHOOSING[LIKELIHOOD].label}: {shown(round(own, 1))}, {below}"]
    names = [
        measures.CHOOSING[i].label
        for i, j in verdict["says"].items()
        if j == k and i in measures.CHOOSING
    ]
    return [listed(names)] if names else ["no index"]
