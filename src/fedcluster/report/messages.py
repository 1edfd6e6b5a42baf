"""The outcome of a job in sentences and tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms import Lloyd
from fedcluster.core import Floats, Labels, Limit, Result, SiteInfo
from fedcluster.errors import listed
from fedcluster.metrics import METRICS
from fedcluster.metrics.indices import CHOOSING
from fedcluster.metrics.objectives import LOG_LIKELIHOOD, MEANINGS, shown_value
from fedcluster.model import Model
from fedcluster.recipes.robust import Influence, striking
from fedcluster.recipes.scores import BY_CHANCE
from fedcluster.recipes.specifications import Fit, rows_of
from fedcluster.report import tables
from fedcluster.report.records import STEP, SiteRecord, is_rounded
from fedcluster.report.run import read_run
from fedcluster.texts.html import Table

LIMITS = {
    "MinRows": "a site with fewer than {} rows sends nothing",
    "MinClusterSize": "a site does not send a cluster of fewer than {} of its rows",
}
UNLIKE = 0.01
"""Ratio of the centres' spreads in two columns below which scales differ much."""
LOSS, FEW_GROUPS, FEW_AT_A_SITE = 0.3, 30, 10
"""Loss of inertia times groups per cluster (docs/quality.md); and numbers of groups that are too
small, at all sites and at one."""
FAR, FEW_FAR = 0.25, 6
"""Inertia that a cluster would add if it joined its nearest, relative to that of all, from which on
it is far; and number of groups in a cluster that is too small then (benchmarks/groups.py)."""
OWNED, CHANCE, FEW_OF_SITE = 0.98, 1e-6, 30
"""Share of a cluster's rows from which on it belongs to one site, and largest probability of
this by chance; and fewest rows of a cluster that only one site is known to have reported."""
MEAN_THE_SAME = "see whether columns mean the same there, as after another unit, device or code"
BUDGET = "noise on every answer, within epsilon {epsilon} at delta {delta} over all runs"
ROUNDED = f"counts of rows are rounded to {STEP}"
GROUPS = (
    "rows are seen in groups of at least {p}, and a site of fewer than {min_rows} sends nothing"
)


def influence_line(influences: Sequence[Influence]) -> list[str]:
    """Return the warning of a site with an outstanding influence on the centres, if any.

    Examples
    --------
    >>> south = [Influence("south", 40.0, 9.0, 3.2, 0, 0.2)]
    >>> others = [Influence(name, 0.1, 0.1, 0.0, 0, 0.4) for name in ("north", "west")]
    >>> influence_line([*south, *others])[0][:66]
    'the centres follow the sums of south: it moves one by 40 times its'
    """
    if odd := [_odd_line(each) for each in influences if each.is_odd]:
        return odd
    first = striking(influences)
    if first is None:
        return []
    return [
        f"the centres follow the sums of {first.site}: it moves one by {first.largest_shift:.3g} "
        f"times its cluster's spread, and without it the other sites' inertia would be "
        f"{100 * (1 - 1 / (1 + (first.inertia_change or 0))):.3g} % less; check its rows"
    ]


def _odd_line(each: Influence) -> str:
    """Return what is odd about a site.

    Examples
    --------
    >>> _odd_line(Influence("west", 0.1, 0.1, 0.0, 1, 0.2, 0.9, 5.0, "ldl", -1.0))
    "column 'ldl' at west: with its sign changed, rows fit the other sites' clusters, and as it is \
they are 5 times as far; check its sign and unit"
    >>> _odd_line(Influence("west", 0.1, 0.1, 0.0, 1, 0.2, 0.9, 5.0))
    'west has 90 % of its rows in clusters of its own, 5 times as far from the clusters of the \
others as their rows: rows of another kind, or columns that mean something else there'
    """
    if each.column is None:
        return (
            f"{each.site} has {100 * each.own:.0f} % of its rows in clusters of its own, "
            f"{each.misfit:.3g} times as far from the clusters of the others as their rows: "
            "rows of another kind, or columns that mean something else there"
        )
    how = "with its sign changed" if each.factor == -1 else f"times about {each.factor:.2g}"
    return (
        f"column {each.column!r} at {each.site}: {how}, rows fit the other sites' clusters, and as "
        f"it is they are {each.misfit:.3g} times as far; check its sign and unit"
    )


def summary_line(content: Mapping[str, Any]) -> str:
    """Return a fit in one line, from the content of ``history.json``."""
    return (
        f"{tables.counted(content['n_clusters'], 'cluster')}, {objective(content)}, "
        f"{content['stop_reason']}; {tables.counted(content['rounds'], 'round')} in all with "
        f"{tables.counted(len(content['sites']), 'site')}. Algorithm {content['algorithm']}, "
        f"seed {content['seed']}."
    )


def objective(content: Mapping[str, Any]) -> str:
    """Return the value of the objective of a fit, from the content of ``history.json``.

    Examples
    --------
    >>> objective({"model": "k-means", "inertia": 12.5})
    'inertia 12.5'
    >>> objective({"model": "mixture", "inertia": 12.5})
    'log-likelihood -12.5'
    >>> objective({"model": "k-means", "inertia": 12.5, "objective": "fuzzy-objective"})
    'fuzzy-objective 12.5'
    """
    inertia = math.nan if content["inertia"] is None else content["inertia"]
    name = named_objective(content)
    return f"{name} {tables.number(shown_value(name, inertia))}"


def named_objective(content: Mapping[str, Any]) -> str:
    """Return the name of the objective of a fit, from the content of ``history.json``."""
    usual = LOG_LIKELIHOOD if content.get("model") == "mixture" else "inertia"
    return str(content.get("objective", usual))


def notes(
    sites: Sequence[SiteRecord], absent_too: str = " It has labels all the same."
) -> list[str]:
    """Return sentences on what left the sites and what was held back.

    ``absent_too`` ends the sentence on a site that took no part.
    """
    lines = [_limits_in_force(sites)]
    absent = [site for site in sites if not site.took_part]
    held = [site for site in sites if site.took_part and site.rows_held_back]
    lone = [site for site in sites if site.lone_rows]
    for site in absent[:5]:
        rows = "its only row" if site.rows == 1 else f"all its {site.rows:,} rows"
        why = f"its limits held back {rows}.{absent_too}"
        if not (site.rows or site.limits):
            why = "it has no rows of positive weight."
        lines.append(f"Site {site.name} took no part: {why}")
    if absent[5:]:
        lines.append(f"Nor did {tables.counted(len(absent) - 5, 'more site')}.")
    if held:
        some = [f"{tables.counted(site.rows_held_back, 'row')} of {site.name}" for site in held]
        lines.append(f"In some rounds, limits held back up to {_list(some)}.")
    elif not absent:
        lines.append("No row was held back.")
    if lone:
        first, *others = lone
        some = [f"up to {first.lone_rows} in a message of {first.name}"]
        some += [f"{site.lone_rows} of {site.name}" for site in others]
        lines.append(
            f"Some sums were over a single row ({_list(some)}), which reveals that row to whoever "
            "reads the message. --min-cluster-size 2 holds such sums back."
        )
    return lines + _more_than_held(sites)


def privacy_lines(content: Mapping[str, Any], *, exact: bool = False) -> list[str]:
    """Return the privacy cost of a fit in lines; none for a fit without a budget.

    ``exact`` adds that files other than the model hold numbers from the rows without noise.

    Examples
    --------
    >>> spent = {"epsilon": 0.9, "delta": 1e-6, "group_size": 1, "rho": 0.028, "answers": 4}
    >>> line = privacy_lines({"privacy": {**spent, "budget": 1.0}})[0]
    >>> line[:63], line[-24:]
    ('Privacy budget spent: epsilon 0.9 of 1 at delta 1e-06 for each ', ' in 4 answers of a site.')
    """
    if not (spent := content.get("privacy")):
        return []
    whose = "each row (each person, where a column says whose the rows are)"
    if spent["group_size"] > 1:
        whose = f"each person with up to {spent['group_size']:g} rows"
    line = (
        f"Privacy budget spent: epsilon {tables.number(spent['epsilon'])} of {spent['budget']:g} "
        f"at delta {spent['delta']:g} for {whose}, in {spent['answers']:g} answers of a site."
    )
    more = (
        "Only model.json is covered by it. Labels, history.json and report.html hold exact numbers "
        "of the rows here: do not pass them on."
    )
    return [line, more] if exact else [line]


def _more_than_held(sites: Sequence[SiteRecord]) -> list[str]:
    """Return a sentence on sites that sent more numbers than they hold, if any."""
    more = [site for site in sites if 0 < site.values_held < site.values_sent]
    if not more:
        return []
    most = max(more, key=lambda site: site.values_sent / site.values_held)
    return [
        f"{tables.counted(len(more), 'site')} sent more numbers than their rows have values, for "
        f"example {most.name} {most.values_sent:,} for {most.values_held:,}, because sums are sent "
        "for every cluster, start and round. Fewer clusters or --algorithm lloyd send less."
    ]


def _limits_in_force(sites: Sequence[SiteRecord]) -> str:
    """Return the limits in plain words, by site if they differ."""
    by_limit: dict[str, list[str]] = {}
    for site in sites:
        by_limit.setdefault("; ".join(limits_in_words(site.limits)), []).append(site.name)
    if list(by_limit) == [""]:
        return "No limit is in force: a single row may leave its site."
    if len(by_limit) == 1:
        return f"Limits in force: {next(iter(by_limit))}."
    each = [f"{limit or 'none'} ({_list(names)})" for limit, names in by_limit.items()]
    return f"Limits in force: {'; '.join(each)}."


def limits_in_words(limits: Sequence[Limit]) -> list[str]:
    """Return limits in words; those that hold nothing back are left out."""
    words = []
    for limit in limits:
        if limit.name == "Groups":
            words.append(GROUPS.format(**dict(limit.parameters)))
            words += [ROUNDED] if is_rounded([limit]) else []
            continue
        parameters = dict(limit.parameters)
        if limit.name == "PrivacyBudget" and {"epsilon", "delta"} <= parameters.keys():
            words.append(BUDGET.format(**parameters))
            continue
        if limit.name not in LIMITS:
            words.append(str(limit))
            continue
        [(_, smallest)] = limit.parameters
        if smallest > 1:
            words.append(LIMITS[limit.name].format(smallest))
    return words


def few_clusters_line(labels: Iterable[Labels], k: int) -> list[str]:
    """Return the warning that some of k clusters have no rows, if it applies.

    Examples
    --------
    >>> few_clusters_line([np.array([0, 1])], 2), len(few_clusters_line([np.array([0, 0])], 2))
    ([], 1)
    """
    there = sum(np.bincount(each[each >= 0], minlength=k) > 0 for each in labels)
    return few_line(int(np.count_nonzero(there)), k)


def few_line(with_rows: int, k: int) -> list[str]:
    """Return the warning that some of k clusters have no rows, if it applies."""
    if with_rows == k:
        return []
    return [
        f"only {with_rows} of {k} clusters have rows: fewer distinct rows, or fewer centres from "
        "the sites, than clusters"
    ]


def two_sites_line(n_sites: int) -> list[str]:
    """Return the warning that each of two sites can subtract its own sums, if it applies.

    Examples
    --------
    >>> print(*two_sites_line(2))
    of two sites, each learns the other's sums of each cluster, as the model tells those of both: \
ask at least three
    """
    told = "of two sites, each learns the other's sums of each cluster, as the model tells those of"
    return [f"{told} both: ask at least three"] if n_sites == 2 else []


def alone_lines(influences: Sequence[Influence], weights: Floats) -> list[str]:
    """Return the warning of clusters in which only one site reported rows, if none is small.

    Examples
    --------
    >>> alone = {"north": 1, "south": 0}
    >>> told = [Influence(site, 1.0, 1.0, 0.0, n, 0.5) for site, n in alone.items()]
    >>> print(*alone_lines(told, np.array([40.0, 60.0])))
    of some clusters only one site has rows (1 of north): see whether columns mean the same there,
    as after another unit, device or code
    >>> alone_lines(told, np.array([4.0, 96.0]))
    []
    """
    alone = [f"{each.alone} of {each.site}" for each in influences if each.alone]
    if not alone or len(weights) < 2 or weights.min() < FEW_OF_SITE:
        return []
    return [f"of some clusters only one site has rows ({_list(alone)}): {MEAN_THE_SAME}"]


def one_site_lines(by_site: Mapping[str, Labels], k: int) -> list[str]:
    """Return the warning of clusters within one site, and of sites within one cluster.

    Parameters
    ----------
    by_site : mapping of str to ndarray of shape (n,)
        The cluster of each row, by site; -1 is none.
    k : int
        The number of clusters.

    Examples
    --------
    >>> north, south = np.repeat([0, 1], 20), np.repeat(2, 40)
    >>> print(*one_site_lines({"north": north, "south": south}, 3))
    cluster 2 is one site's and south lies in one cluster, to 98 % and more: see whether columns
    mean the same there, as after another unit, device or code
    >>> one_site_lines({"north": north, "south": north}, 3)
    []
    """
    counts = np.array([np.bincount(each[each >= 0], minlength=k) for each in by_site.values()])
    of_sites, of_clusters, n = counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    if min(counts.shape) < 2 or not n:
        return []
    alone = _owned(counts, of_sites / n)
    whole = [
        name for name, one in zip(by_site, _owned(counts.T, of_clusters / n), strict=True) if one
    ]
    said = []
    if clusters := [str(j) for j in range(k) if alone[j]]:
        said.append(
            f"clusters {_list(clusters)} are one site's each"
            if clusters[1:]
            else f"cluster {clusters[0]} is one site's"
        )
    if whole:
        said.append(f"{_list(whole)} {'lie' if whole[1:] else 'lies'} in one cluster")
    if not said:
        return []
    return [f"{' and '.join(said)}, to 98 % and more: {MEAN_THE_SAME}"]


def _owned(counts: Floats, shares: Floats) -> NDArray[np.bool_]:
    """Return for each column of counts whether one line has nearly all, beyond chance.

    ``shares`` are the overall shares of the lines.
    """
    total, first = counts.sum(axis=0), counts.argmax(axis=0)
    nearly = counts.max(axis=0) >= OWNED * np.maximum(total, 1)
    with np.errstate(divide="ignore"):
        chance = total * np.log(shares[first]) + math.log(counts.shape[1])
    owned: NDArray[np.bool_] = nearly & (chance < math.log(CHANCE))
    return owned


def groups_line(sites: Sequence[SiteInfo], result: Result) -> list[str]:
    """Return the warnings that groups of rows are large, or that a site has none, if they apply.

    Examples
    --------
    >>> from fedcluster.core import State
    >>> from fedcluster.privacy import Groups
    >>> ten = Result(State(np.zeros((10, 1)), np.full(10, 60.0)), (), "")
    >>> [line] = groups_line([SiteInfo("north", (Groups(p=5).limit,), n_rows=600)], ten)
    >>> line[25:53], line[75:104]
    ('and a cluster has 12 groups ', 'expect about 2 % more inertia')
    >>> north = SiteInfo("north", (Groups(p=5).limit,), n_rows=6000)
    >>> groups_line([north], ten)
    []
    >>> groups_line([north, SiteInfo("south", (Groups(p=5).limit,), n_rows=0)], ten)
    ['south answered for no row: none is in a group; see fedcluster site doctor there']
    >>> many = [SiteInfo(f"s{i}", (Groups(p=5).limit,), n_rows=100) for i in range(60)]
    >>> groups_line(many, ten)[0][:65]
    'rows are seen in groups, and at 60 of 60 sites a cluster has fewe'
    """
    limits = [limit for site in sites for limit in site.limits if limit.name == "Groups"]
    if not limits:
        return []
    silent = [site.name for site in sites if site.n_rows == 0]
    advice = "answered for no row: none is in a group; see fedcluster site doctor there"
    said = [f"{_list(silent)} {advice}"] if silent else []
    p, n = max(dict(limit.parameters)["p"] for limit in limits), sum(rows_of(sites))
    lines, ratio = _far_line(result, n, p), n / (len(result.state.weights) * p)
    if ratio >= FEW_GROUPS:
        return [*said, *lines, *_small_sites_line(sites, len(result.state.weights), p)]
    return [
        *said,
        *lines,
        f"rows are seen in groups, and a cluster has {ratio:.0f} groups of {p} rows on average: "
        f"expect about {100 * LOSS / max(ratio, 1):.1g} % more inertia than without groups, "
        "several times as much where clusters overlap or are small; take fewer clusters, or more "
        "rows",
    ]


def _small_sites_line(sites: Sequence[SiteInfo], k: int, p: int) -> list[str]:
    """Return the warning that most rows are at sites with few groups for a cluster, if so."""
    rows = [float(site.n_rows or 0) for site in sites]
    small = [n for n in rows if 0 < n < FEW_AT_A_SITE * k * p]
    if 2 * sum(small) <= sum(rows):
        return []
    return [
        f"rows are seen in groups, and at {len(small)} of {len(sites)} sites a cluster has fewer "
        f"than {FEW_AT_A_SITE} groups of {p} rows: groups hold rows of several clusters, and the "
        "inertia of rows is above the one that is shown; merge sites, or use secure sums instead "
        "of groups"
    ]


def _far_line(result: Result, n: float, p: int) -> list[str]:
    """Return the warning that clusters of few groups of p of the n rows lie far from the others.

    Groups of far rows blur them, and others like them may have no cluster of their own.
    """
    state, k = result.state, len(result.state.centers)
    weights, total = state.weights, float(state.weights.sum())
    if k < 2 or type(result.algorithm) is not Lloyd or not total * state.inertia > 0:
        return []
    apart = ((state.centers[:, None] - state.centers) ** 2).sum(axis=2)
    shared = weights[:, None] * weights / np.maximum(weights[:, None] + weights, 1e-300)
    joined = shared * apart + np.where(np.eye(k, dtype=bool), np.inf, 0.0)
    few = (weights > 0) & (weights * (n / total) <= FEW_FAR * p)
    far = np.flatnonzero(few & (joined.min(axis=1) >= FAR * state.inertia))
    if not len(far):
        return []
    which = "cluster" if len(far) == 1 else "clusters"
    return [
        f"rows are seen in groups of {p}, and {which} {listed(list(map(str, far)))} of a few "
        f"groups {'lies' if len(far) == 1 else 'lie'} far from all others: groups blur such rows, "
        "so expect 10 % more inertia than without groups, or several times as much; leave far "
        "values out or take logarithms"
    ]


def limit_line(job: Fit, result: Result, *, options: bool = False) -> list[str]:
    """Return advice for a run that was ended by the limit on rounds, if it was.

    There is no advice for an algorithm without a test of convergence, which cannot end otherwise.

    Parameters
    ----------
    job : Fit
        The job.
    result : Result
        Its result.
    options : bool, default=False
        Whether to use the command line's names of parameters.
    """
    algorithm, step = result.algorithm, type(result.algorithm).__name__
    tol = getattr(algorithm, "tol", None)
    moves = [done.shift for done in result.history if done.step == step]
    endless = tol is None or (not tol and algorithm and not algorithm.client_additive)
    if endless or result.state.converged or len(moves) < job.max_iter:
        return []
    named = (lambda name: "--" + name.replace("_", "-")) if options else str
    ways = [f"a larger {named('max_iter')}", f"a {named('tol')} above {tol:g}"]
    if job.n_init in (None, 1) and job.algorithm in ("lloyd", "fcm") and isinstance(job.init, str):
        ways.append(f"{named('n_init')} above 1, as it ends with the first of the best starts")
    spread = np.ptp(result.state.centers, axis=0)
    if job.prepare is None and spread.min() < UNLIKE * spread.max():
        scale = "--scale standard" if options else "prepare='standard'"
        ways.append(f"{scale}, as columns differ much in scale")
    additive = algorithm is not None and algorithm.server_additive  # else others come each time
    moved = f", centres still moved by up to {tables.number(moves[-1])}" if additive else ""
    limit = tables.counted(job.max_iter, "round")
    return [f"stopped at the limit of {limit}{moved}; try {', or '.join(ways)}"]


def ignored_lines(ignored: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns of each file that a model does not use, one line for equal ones."""
    by_columns: dict[tuple[str, ...], list[str]] = {}
    for site, columns in ignored.items():
        by_columns.setdefault(tuple(columns), []).append(site)
    return [
        f"Ignored at {_list(sites)}: {'column' if len(columns) == 1 else 'columns'} "
        f"{_list(columns, most=8)}."
        for columns, sites in by_columns.items()
        if columns
    ]


MOST_FILES = 6
"""Largest number of written files that a line names."""


def written_lines(out: Path | None, files: Sequence[str]) -> list[str]:
    """Return the line that names the written files, if any, or counts those in a folder.

    Examples
    --------
    >>> out = Path("out")
    >>> written_lines(out, ["model.json", "labels/north.csv", "labels/south.csv"])
    ['Wrote out/model.json and out/labels (2 files).']
    >>> written_lines(out, [f"site-{i}.csv" for i in range(20)])
    ['Wrote out (20 files).']
    """
    if out is None:
        return []
    shown = [str(out / file) for file in files if "/" not in file]
    if len(shown) > MOST_FILES:
        shown = [f"{out} ({len(shown)} files)"]
    for folder in dict.fromkeys(file.rpartition("/")[0] for file in files if "/" in file):
        held = [file for file in files if file.startswith(f"{folder}/")]
        one = len(held) == 1
        shown.append(str(out / held[0]) if one else f"{out / folder} ({len(held)} files)")
    return [f"Wrote {_list(shown, most=MOST_FILES)}."]


def _list(names: Sequence[str], most: int = 5) -> str:
    more = [f"{len(names) - most} more"] if len(names) > most else []
    shown = [*names[:most], *more]
    return listed(shown)


def favoured(verdict: Mapping[str, Any]) -> str:
    """Describe how clearly a number of clusters was chosen."""
    k, says = verdict["n_clusters"], verdict["says"]
    if verdict["warnings"]:
        return f"{k} is the best answer, with doubts (below)"
    known = [n for index, n in says.items() if index in CHOOSING]
    other = sorted({n for n in known if n != k})
    if other:
        agree = sum(n == k for n in known)
        return (
            f"{agree} of {len(known)} indices say {k}; others say {listed(list(map(str, other)))}"
        )
    return f"The rows clearly favour {k} over the other numbers tried"


SILHOUETTE = "squared-silhouette"
STRUCTURES = (
    (0.71, "Clearly separated", "strong"),
    (0.51, "Reasonably separated", "reasonable"),
    (0.26, "Weakly separated", "weak"),
    (-1.0, "Overlapping", "below weak"),
)
"""Silhouettes, with their meaning and their name in Kaufman & Rousseeuw (1990, p. 88)."""
AGREEMENTS = ((0.9, "excellent"), (0.8, "good"), (0.65, "moderate"), (-1.0, "poor"))
"""Adjusted Rand indices, with the name of the agreement in Steinley (2004)."""
HARDLY = 0.93
"""Distance from a perfect silhouette, relative to that by chance, above which a silhouette is
hardly better than chance."""
JUDGED = {SILHOUETTE, BY_CHANCE, "ari", "inertia", "within", "total"}
"""Indices that have sentences of their own."""
SUMS = (
    "inertia is the sum of squared distances of the rows to their centres, within that to the "
    "means of the clusters' rows: the same where the centres are these means. Both fall with every "
    "further cluster, so that a small one is no sign of a good k."
)
OTHERS = (
    "The other indices have no thresholds in their sources: compare them between models of the "
    "same rows, the higher or lower the better as the column says."
)


FIRST = (SILHOUETTE, BY_CHANCE, "ari", "nmi", "purity", "mean-site-ari", "inertia", "within")
"""Indices that a table shows first, after users' own."""


def by_interest(names: Iterable[str]) -> list[str]:
    """Return names of indices in their order in tables for people.

    Examples
    --------
    >>> by_interest(["inertia", "wsse", "squared-silhouette", "my_module.Mine()"])
    ['my_module.Mine()', 'squared-silhouette', 'inertia', 'wsse']
    """
    places = {name: place for place, name in enumerate(dict.fromkeys((*FIRST, *METRICS)))}
    return sorted(names, key=lambda name: places.get(name, -1))


def better(index: str, metrics: Sequence[Any] = ()) -> str | None:
    """Return whether a higher or a lower score is better, if either is.

    Parameters
    ----------
    index : str
        The name of an index, or a user's own metric as text.
    metrics : sequence of Metric
        The user's own metrics.
    """
    own = {str(metric): bool(metric.maximise) for metric in metrics}
    if index in own:
        higher: bool | None = own[index]
    elif index in MEANINGS:
        higher = index == LOG_LIKELIHOOD
    else:
        higher = METRICS[index].maximise if index in METRICS else None
    return {True: "higher", False: "lower", None: None}[higher]


def meaning(scores: Mapping[str, float]) -> list[str]:
    """Return the meaning of scores, a sentence or two each, with the source of each threshold.

    Examples
    --------
    >>> meaning({"squared-silhouette": 0.3, "squared-silhouette-by-chance": 0.4})
    ['No structure beyond chance: the squared silhouette is 0.3; rows of a single cloud, cut into \
as many clusters, reach up to 0.4.']
    >>> [clear, *_] = meaning({"squared-silhouette": 0.95, "ari": 0.93})
    >>> clear.split(":")[0]
    'Clearly separated'
    """
    lines = _separation(scores.get(SILHOUETTE, math.nan), scores.get(BY_CHANCE, math.nan))
    lines += _agreement(scores.get("ari", math.nan))
    if {"inertia", "within"} <= scores.keys():
        lines.append(SUMS)
    lines += [
        f"{name} is {MEANINGS[name]}." for name in scores if name in MEANINGS.keys() - METRICS
    ]
    return [*lines, OTHERS] if scores.keys() & METRICS.keys() - JUDGED else lines


def _separation(silhouette: float, chance: float) -> list[str]:
    """Return the meaning of a silhouette, compared with that of a single cloud."""
    if math.isnan(silhouette):
        return []
    cloud = f"rows of a single cloud, cut into as many clusters, reach up to {chance:.2g}"
    if silhouette <= chance:
        return [f"No structure beyond chance: the squared silhouette is {silhouette:.2g}; {cloud}."]
    plain = round(1 - math.sqrt(1 - max(silhouette, 0.0)), 2)
    _, words, name = next(each for each in STRUCTURES if plain >= each[0])
    hardly = 1 - silhouette > HARDLY * (1 - chance)
    words = f"{words}, hardly more than chance" if hardly else words
    beyond = "" if math.isnan(chance) else f" By chance, {cloud}."
    return [
        f"{words}: the squared silhouette is {silhouette:.2g}, that of plain distances about "
        f"{plain:.2g}: {name}, where Kaufman & Rousseeuw (1990, p. 88) call a structure strong "
        f"from 0.71 on, reasonable from 0.51, weak from 0.26.{beyond}"
    ]


def _agreement(ari: float) -> list[str]:
    """Return the meaning of an adjusted Rand index."""
    if math.isnan(ari):
        return []
    name = next(name for least, name in AGREEMENTS if ari >= least)
    return [
        f"The agreement with the labels is {name}: an adjusted Rand index of {ari:.2g}, where "
        "chance gives 0. Excellent is 0.9 and more, good 0.8, moderate 0.65 (Steinley 2004)."
    ]


HOLDING_ALL = ("profiles.json", "scores.json", "history.json")


def shown(outcome: Mapping[str, Any], width: int) -> list[Table | str]:
    """Return the outcome of a job as tables and lines for a screen of a given width."""
    parts: list[Table | str] = [*outcome.get("prepared", ()), *_centers(outcome, width)]
    parts += tables.profiles_shown(outcome, width, file_of(outcome))
    if "weights" in outcome and "profiles" not in outcome:
        parts.append(tables.names_table(_names(outcome), np.array(outcome["weights"])))
    missing = outcome.get("missing", [])
    parts += _sites(outcome.get("sites", []), missing)
    if verdict := outcome.get("selection") or ("says" in outcome and outcome):
        parts += _verdict(verdict, str(file_of(outcome) or "--json"))
    elif "scores" in outcome:
        known = {name: score for name, score in outcome["scores"].items() if score is not None}
        better = outcome["better"]
        scores = tuple(
            (name, better[name] or "", tables.number(known[name])) for name in by_interest(known)
        )
        parts.append(Table("All sites together", ("index", "better", "score"), scores))
        parts += outcome["meaning"]
    if "stop_reason" in outcome:
        measured = "" if outcome["inertia"] is None else f"; {objective(outcome)}"
        parts.append(f"{outcome['rounds']} rounds, {outcome['stop_reason']}{measured}.")
    return [*parts, *privacy_lines(outcome), *_absences(missing)[:5], *_written(outcome)]


def _sites(sites: Sequence[Mapping[str, Any]], missing: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return the table of the sites, if there are any."""
    missed = Counter(refusal["site"] for refusal in missing)
    rows = tuple(
        (s["name"], _rows_in_words(s), f"{s['values_sent']:,}", str(missed[s["name"]]))
        for s in sites
    )
    header = ("site", "rows", "numbers sent", "rounds missed")
    return [Table("Sites", header, rows)] if sites else []


def _rows_in_words(site: Mapping[str, Any]) -> str:
    """Return the number of rows of a site, unknown under secure sums or a privacy budget."""
    return "not told" if site["weight"] is None else tables.number(site["weight"])


def file_of(outcome: Mapping[str, Any]) -> Path | None:
    """Return the file with the complete outcome, None if there is none."""
    files = [name for name in outcome.get("files", ()) if name in HOLDING_ALL]
    return Path(outcome["out"]) / files[0] if files else None


def _absences(missing: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the rounds that sites missed and why, in one line per site and reason.

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
    table = tables.centers_table(model.preprocessor, model.centers, model.weights, width, str(path))
    return [table] if table else []


def _names(outcome: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the clusters as in the report."""
    if "model.json" not in outcome["files"]:
        return [""] * len(outcome["weights"])
    return read_run(Path(outcome["out"])).names


def _verdict(verdict: Mapping[str, Any], elsewhere: str) -> list[Table | str]:
    """Return the scores of each index, the verdict, and the doubts about it."""
    n, scores = verdict["n_clusters"], {line["k"]: line for line in verdict["table"]}
    return [
        tables.index_table(n, verdict["rule"], verdict["says"], scores, elsewhere),
        tables.verdict_line(n, verdict["reason"]),
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
