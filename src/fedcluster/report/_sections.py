"""Sections of the report on the clusters: their sizes, sites, differences and stability.

A section is a function that returns its content, nothing where it is not known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedcluster.core import Floats
from fedcluster.model.stability import FOUND, GAP, stability_table
from fedcluster.report import charts
from fedcluster.report.messages import better, few_line, meaning
from fedcluster.report.run import Feature, Run, finite
from fedcluster.report.tables import counted, number, percent, short_number, shown
from fedcluster.texts import html
from fedcluster.texts.untrusted import shortened

Content = Sequence[Any]
MOST_DRAWN = 12
"""Columns in the chart of profiles; the table has all."""
SHOWN = 4
"""Columns that a card shows at most."""
ALL = 0.995
"""Share of the scatter from which on a plane shows all of it, in per cent."""
RINGS = "An ellipse is one standard deviation of the cluster's rows, if its columns are unrelated."
NO_RINGS = "The spread of the rows is not known; fit --profile and profile ask for it."
FAR = 0.3
"""Distance from the mean, in spreads, from which on a card shows a column."""
SPREADS = "standard deviations of the column over all rows"
OF_CENTERS = "standard deviations of the centres in the column, each as heavy as its rows"


def units(run: Run) -> str:
    """Return in what units centres are apart from the mean of all rows."""
    return SPREADS if run.by_spread else OF_CENTERS


def found(run: Run) -> Content:
    """Return a summary of the result, in plain sentences."""
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
    return [html.paragraphs(*lines), html.listed_items(doubts)]


def _count(run: Run) -> html.Html:
    """Return the sentence on the clusters, rows, sites and columns."""
    columns = run.model["columns"]
    sites = counted(len(run.sites), "site")
    what = "rows" if run.counts is not None else "rows (by weight)"
    lead = f"{counted(run.k, 'cluster')} of {number(run.n_rows)} {what} at {sites}, by "
    return html.element(
        "span", lead, counted(len(columns), "column"), ": ", html.names_listed(columns, 8), "."
    )


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
    """Return the choice of the number of clusters; empty without one."""
    verdict = run.history.get("selection") or (run.selection if "says" in run.selection else {})
    return dict(verdict)


def warnings(run: Run) -> list[str]:
    """Return all that casts a doubt on the result."""
    noticed = run.account.get("preprocessing", {}).get("warnings", ())
    lines = [*run.history.get("warnings", ()), *noticed, *chosen(run).get("warnings", ())]
    lines += few_line(int((run.weights > 0).sum()), run.k)
    return list(dict.fromkeys(lines))


def indices_of(run: Run) -> dict[str, float]:
    """Return the indices of this clustering, as far as they are known."""
    if run.scores:
        scores = run.scores["scores"]
    else:
        lines = {line["k"]: line for line in chosen(run).get("table", ())}
        scores = lines.get(run.k or chosen(run).get("n_clusters"), {})
    numbers = {name: value for name, value in scores.items() if value is not None and name != "k"}
    return {name: float(value) for name, value in numbers.items()}


def clusters(run: Run) -> Content:
    """Return a card for each cluster."""
    if not run.k:
        return ()
    size = "the number of its rows" if run.counts is not None else "the weight of its rows"
    lead = (
        f"Each card has the size of a cluster, {size}, and the columns in which its centre is "
        f"farthest from the mean of all rows, in {units(run)}."
    )
    if run.own_profiles:
        lead += " The number after ± is the standard deviation of the cluster's own rows."
    cards = [_card(run, j) for j in range(run.k)]
    return [html.paragraphs(lead), html.element("div", cards, class_="cards")]


def _card(run: Run, j: int) -> html.Html:
    share = run.sizes[j] / max(float(run.sizes.sum()), 1e-300)
    rows = f"{number(float(run.sizes[j]))} rows, {percent(share)}"
    apart = [_apart(each, j) for each in telling(run, j, SHOWN)]
    name = html.named(run.names[j] if run.names else f"Cluster {j}")
    usual = "Near the mean of all rows in every column." if run.features and not apart else None
    return html.element(
        "article",
        html.element(
            "h3", html.element("span", j, class_=f"badge c{j % charts.COLOURS}"), " ", name
        ),
        html.element("p", rows, class_="size"),
        html.element("ul", apart) if apart else None,
        html.element("p", usual) if usual else None,
        html.element("p", _found_again(run, j)) if run.stability else None,
        html.element("p", _held_by(run, j), class_="pale") if run.counts is not None else None,
        class_="card",
        data_cluster=j,
    )


def _found_again(run: Run, j: int) -> list[Any]:
    """Return how stable a cluster is, and how far from its neighbour."""
    cluster, n = run.stability["clusters"][j], run.stability["replicates"]
    if cluster["stability"] is None:
        return ["Stability not known."]
    line = f"found again in {cluster['found_again']} of {counted(n, 'replicate')}"
    mean = f"mean Jaccard coefficient {cluster['stability']:.2f}"
    gap = f". No gap to cluster {cluster['neighbour']}" if cluster["word"] == "doubtful" else ""
    return [html.element("strong", cluster["word"].capitalize()), f": {line}, {mean}{gap}."]


def labelled(run: Run, j: int) -> html.Html:
    """Return a cluster as a table calls it: its number, and its name if it has one.

    Examples
    --------
    >>> labelled(Run(model={"names": ["old"]}), 0), labelled(Run(), 1)
    ('<bdi>cluster 0 (old)</bdi>', '<bdi>cluster 1</bdi>')
    """
    return html.named(f"cluster {j} ({run.names[j]})" if run.names else f"cluster {j}")


def telling(run: Run, j: int, most: int) -> list[Feature]:
    """Return the columns in which a centre lies farthest from the mean of all rows."""
    ranked = sorted(run.features, key=lambda each: -abs(each.apart[j]))[:most]
    return [each for each in ranked if abs(each.apart[j]) >= FAR]


def _apart(feature: Feature, j: int) -> html.Html:
    """Return a column of a card: its value at a centre, and how far that is from the mean."""
    apart = float(feature.apart[j])
    side = "above" if apart > 0 else "below"
    spread = math.nan if feature.level or feature.spreads is None else float(feature.spreads[j])
    return html.element(
        "li",
        html.named(feature.name),
        " ",
        html.element("strong", value(feature, j)),
        f" ± {spread:.3g}" if math.isfinite(spread) else None,
        html.element("span", f" {abs(apart):.1f} {side}", class_="pale"),
    )


def value(feature: Feature, j: int) -> str:
    """Return a centre's value in a column, in its units."""
    x = float(feature.values[j])
    return percent(x) if feature.level else short_number(x)


def _held_by(run: Run, j: int) -> list[Any]:
    """Return which sites have rows of a cluster."""
    assert run.counts is not None
    some = [site for site, n in zip(run.sites, run.counts[:, j], strict=True) if n > 0]
    if len(some) == len(run.sites):
        return ["At every site."]
    if not some:
        return ["At no site."]
    return ["At ", html.names_listed([site["name"] for site in some], 5), "."]


def by_site(run: Run) -> Content:
    """Return the rows of each cluster at each site; known only where the rows are."""
    counts = run.counts
    if counts is None:
        return ()
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    usual = counts.sum(axis=0) / max(float(counts.sum()), 1.0)
    rows = [
        [
            html.named(site["name"]),
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
    table = html.Table("Rows by site and cluster", header, rows, total)
    return [html.paragraphs(lead), table.html("heat", sites=True)]


def _share_cell(n: float, share: float, usual: float) -> html.Cell:
    """Return a count with its share, coloured by how far that is from the usual one."""
    spread = math.sqrt(max(usual * (1 - usual), 1e-12))
    return html.Cell(
        [f"{n:,.0f} ", html.element("small", percent(share))],
        charts.shade(2 * (share - usual) / spread),
    )


def profiles(run: Run) -> Content:
    """Return how the centres differ, column by column."""
    features = sorted(run.features, key=lambda each: -float(np.abs(each.apart).max()))
    if not features or run.k < 2:
        return ()
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
    rows = [
        [html.named(each.name), *(_value_cell(each, j) for j in range(run.k))] for each in features
    ]
    numbers = html.Table("Centres, in the units of the columns", header, rows).html("heat")
    controls = html.element("div", class_="controls", data_hide="cluster", data_count=run.k)
    return [html.paragraphs(lead), controls, html.beside(chart, numbers)]


def _far_apart(feature: Feature) -> str:
    low, high = int(feature.apart.argmin()), int(feature.apart.argmax())
    name = shortened(feature.name, html.LONGEST_NAME)
    return f"{name}, cluster {low} lowest and cluster {high} highest"


def _value_cell(feature: Feature, j: int) -> html.Cell:
    apart = float(feature.apart[j])
    return html.Cell(
        [value(feature, j), " ", html.element("small", f"{apart:+.1f}")], charts.shade(apart)
    )


def plane(run: Run) -> Content:
    """Return the centres in the plane in which they lie farthest apart."""
    if run.k < 3 or len(run.features) < 2:
        return ()
    X = np.stack([each.apart for each in run.features], axis=1)
    weights = run.weights / max(float(run.weights.sum()), 1e-300)
    axes, shares = _axes(X, weights)
    if not len(axes):
        return ()
    places = X @ axes.T
    kept = float(shares[:2].sum())
    hidden = "" if kept > ALL else "; centres that are close here may be far apart in others"
    lead = (
        "The chart shows the first two principal components of the centres, each weighted by its "
        f"rows: the plane in which they are farthest apart. It holds {percent(kept)} of the "
        f"scatter between the clusters{hidden}. A larger disc is a larger cluster. "
        f"{RINGS if run.own_profiles else NO_RINGS}"
    )
    about = f"{run.k} discs, one for each cluster"
    rings = _rings(run, axes)
    chart = charts.plane("Centres in the plane", about, places, run.sizes, rings)
    rows = []
    for j, (x, y) in enumerate(places):
        far = np.sqrt(((X - X[j]) ** 2).sum(axis=1))
        far[j] = np.inf
        near = (f"{far.min():.2f}", str(far.argmin()))
        rows.append([labelled(run, j), f"{x:.2f}", f"{y:.2f}", *near])
    header = ["cluster", "first", "second", "distance to the nearest", "which is cluster"]
    numbers = html.Table("Places of the centres", header, rows).html("narrow")
    return [html.paragraphs(lead), html.beside(chart, numbers)]


def _rings(run: Run, axes: Floats) -> list[Floats | None]:
    """Return the covariance of each cluster's rows in a plane, as if columns were unrelated."""
    if not run.own_profiles:
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


def stability(run: Run) -> Content:
    """Return how well each cluster is found again where rows are drawn anew."""
    if not run.stability:
        return ()
    clusters = run.stability["clusters"]
    drawn = [
        (each["cluster"], *(finite(each[part]) for part in ("lowest", "stability", "highest")))
        for each in clusters
    ]
    words = "; ".join(f"cluster {each['cluster']} is {each['word']}" for each in clusters[:8])
    label = "Jaccard coefficient: lowest, mean and highest"
    name = "How well clusters are found again"
    chart = charts.ranges(name, f"{words}.", drawn, label, (0.0, 1.0), (FOUND,))
    table = stability_table(run.stability)
    header = [table.header[0], *table.header[2:]]  # the word stands beside the cluster
    rows = [[[labelled(run, int(j)), ": ", word], *cells] for j, word, *cells in table.rows]
    numbers = replace(table, header=header, rows=rows).html("narrow")
    lead = (
        "Each site drew bootstrap samples of its rows, and each sample was clustered again (a "
        "replicate). The Jaccard coefficient compares a cluster with its best match in a "
        "replicate: of the rows in either, it is the share of rows in both. A dashed line marks "
        f"{FOUND}, from which a cluster counts as found again. The density between is the least "
        "density of the rows on the way to the nearest cluster, as a share of the lower of the two "
        f"peaks: up to {GAP} there is a gap."
    )
    return [html.paragraphs(lead, *run.stability["meaning"]), html.beside(chart, numbers)]


def silhouettes(run: Run) -> Content:
    """Return how much nearer the rows of each cluster are to their centre than to the next."""
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
    label = "simplified silhouette: mean ± standard deviation"
    chart = charts.ranges(name, about, drawn, label, (0.0 if lowest >= 0 else -1.0, 1.0))
    rows = [[labelled(run, j), f"{mean:.2f}", f"{sd:.2f}"] for j, mean, sd in known]
    numbers = html.Table(name, ["cluster", "mean", "standard deviation"], rows).html("narrow")
    lead = (
        "The simplified silhouette of a row is 1 at the centre of its cluster, 0 halfway to "
        "another centre, and negative if another centre is closer. A cluster with a low mean "
        "overlaps with another one."
    )
    return [html.paragraphs(lead, about), html.beside(chart, numbers)]


def quality(run: Run) -> Content:
    """Return the indices of the clustering, and what they mean."""
    scores = indices_of(run)
    if not scores:
        return ()
    directions = run.scores.get("better", {})
    rows = [
        [name, directions.get(name, better(name)) or "", shown(x)] for name, x in scores.items()
    ]
    numbers = html.Table("Indices", ["index", "better", "score"], rows).html()
    return [html.paragraphs(*meaning(scores)), numbers]
