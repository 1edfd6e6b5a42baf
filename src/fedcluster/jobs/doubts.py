"""Reasons to doubt the clusters of a fit, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms import Lloyd
from fedcluster.core import Floats, Labels, Result, SiteInfo
from fedcluster.errors import listed
from fedcluster.preprocessing import Preprocessor
from fedcluster.recipes.robust import Influence, striking
from fedcluster.recipes.specifications import Fit, rows_of
from fedcluster.texts import counted, number, some_of

UNLIKE = 0.01
"""Ratio of the centres' spreads in two columns below which scales differ much."""
LOSS, FEW_GROUPS, FEW_AT_A_SITE = 0.3, 30, 10
"""Loss of inertia times groups per cluster (docs/quality.md), and most loss times its square at a
small site; and numbers of groups that are too small, at all sites and at one."""
FAR_SHARE, FEW_FAR = 0.25, 6
"""Inertia that a cluster would add if it joined its nearest, relative to that of all, from which on
it is far; and number of groups in a cluster that is too small then (benchmarks/groups.py)."""
CAPPED, FEW_TOLD, UNKNOWN = 4, 15, 0.01
"""Groups of a site that count less in its scatter; rows, in sizes of a group, from which on it has
ten groups; and largest share of the rows at sites with fewer, for the inertia to be known."""
OWNED, CHANCE, FEW_OF_SITE = 0.98, 1e-6, 30
"""Share of a cluster's rows from which on it belongs to one site, and largest probability of
this by chance; and fewest rows of a cluster that only one site is known to have reported."""
MEAN_THE_SAME = (
    "see whether columns mean the same there, as after another unit, device or code; adjust=site "
    "subtracts offsets"
)


def influence_line(influences: Sequence[Influence]) -> list[str]:
    """Return the warning of a site with an outstanding influence on the centres, if any.

    Examples
    --------
    >>> south = [Influence("south", 40.0, 9.0, 3.2, 0, 0.2, shifted="ldl")]
    >>> others = [Influence(name, 0.1, 0.1, 0.0, 0, 0.4) for name in ("north", "west")]
    >>> print(*influence_line([*south, *others]))
    south alone moves a centre by 40 times the spread of its cluster, most in column 'ldl'; \
without it, the other sites' inertia would be 76.2 % less: check the rows of south
    """
    if odd := [_odd_line(each) for each in influences if each.is_odd]:
        return odd
    first = striking(influences)
    if first is None:
        return []
    where = f", most in column {first.shifted!r}" if first.shifted else ""
    return [
        f"{first.site} alone moves a centre by {first.largest_shift:.3g} times the spread of its "
        f"cluster{where}; without it, the other sites' inertia would be "
        f"{100 * (1 - 1 / (1 + (first.inertia_change or 0))):.3g} % less: check the rows of "
        f"{first.site}"
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


def few_clusters_line(labels: Iterable[Labels], k: int) -> list[str]:
    """Return the warning that some of k clusters have no rows, if it applies.

    Examples
    --------
    >>> few_clusters_line([np.array([0, 1])], 2), len(few_clusters_line([np.array([0, 0])], 2))
    ([], 1)
    """
    there = set().union(*(np.unique(each[each >= 0]).tolist() for each in labels))
    return few_line(len(there), k)


def few_line(with_rows: int, k: int) -> list[str]:
    """Return the warning that some of k clusters have no rows, if it applies."""
    if with_rows == k:
        return []
    return [
        f"only {with_rows} of {k} clusters have rows: fewer distinct rows, or fewer centres from "
        "the sites, than clusters"
    ]


def alone_lines(influences: Sequence[Influence], weights: Floats) -> list[str]:
    """Return the warning of clusters in which only one site reported rows, if none is small.

    Examples
    --------
    >>> alone = {"north": 1, "south": 0}
    >>> told = [Influence(site, 1.0, 1.0, 0.0, n, 0.5) for site, n in alone.items()]
    >>> print(*alone_lines(told, np.array([40.0, 60.0])))
    of some clusters only one site has rows (1 of north): see whether columns mean the same there,
    as after another unit, device or code; adjust=site subtracts offsets
    >>> alone_lines(told, np.array([4.0, 96.0]))
    []
    """
    alone = [f"{each.alone} of {each.site}" for each in influences if each.alone]
    if not alone or len(weights) < 2 or weights.min() < FEW_OF_SITE:
        return []
    return [f"of some clusters only one site has rows ({some_of(alone)}): {MEAN_THE_SAME}"]


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
    mean the same there, as after another unit, device or code; adjust=site subtracts offsets
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
            f"clusters {some_of(clusters)} are one site's each"
            if clusters[1:]
            else f"cluster {clusters[0]} is one site's"
        )
    if whole:
        said.append(f"{some_of(whole)} {'lie' if whole[1:] else 'lies'} in one cluster")
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


def groups_line(sites: Sequence[SiteInfo], k: int) -> list[str]:
    """Return the warnings that sites have few groups for k clusters, or none, if they apply.

    They need no result, so that they can be read before a fit.

    Examples
    --------
    >>> from fedcluster.privacy import Groups
    >>> def told(*rows: int) -> list[str]:
    ...     sites = [SiteInfo("north", (Groups(p=5).limit,), n_rows=n) for n in rows]
    ...     return groups_line(sites, 10)
    >>> told(1000)[0][29:103]
    'a cluster has 20 groups of 5 rows in all: expect about 1.5 % more inertia '
    >>> told(6000), told(6000, 0)
    ([], ['north answered for no row: see fedcluster site doctor there'])
    >>> told(*[100] * 60)[0][29:119]
    'a cluster has 120 groups of 5 rows in all, fewer than 10 at 60 of 60 sites: expect up to a'
    >>> told(6000, *[25] * 100)[0][72:133]
    'fewer than 10 at 100 of 101 sites: expect up to about 35 % mo'
    """
    silent = [site.name for site in sites if site.n_rows == 0 and site.limits]
    advice = "answered for no row: see fedcluster site doctor there"
    said, sizes = [f"{some_of(silent)} {advice}"] if silent else [], group_sizes(sites)
    if not sizes:
        return said
    p, rows = max(sizes.values()), rows_of(sites)
    each, of_all = [n / (k * p) for n in rows if n > 0], sum(rows) / (k * p)
    small = [ratio for ratio in each if ratio < FEW_AT_A_SITE]
    of_small = sum(ratio / max(ratio, 0.5) ** 2 for ratio in small) / max(of_all, 1e-300)
    if 2 * sum(small) > of_all or of_small > 1 / FEW_GROUPS:
        few = f", fewer than {FEW_AT_A_SITE} at {len(small)} of {len(each)} sites: expect up to"
        most = LOSS * max(of_small, 1 / max(of_all, 1))
        ways = "; take fewer clusters, merge sites, or use secure sums instead of groups"
    elif of_all < FEW_GROUPS:
        few, most = ": expect", LOSS / max(of_all, 1)
        ways = ", several times as much where clusters overlap or are small; take fewer clusters"
    else:
        return said
    return [
        *said,
        f"rows are seen in groups, and a cluster has {of_all:.0f} groups of {p} rows in all"
        f"{few} about {100 * most:.2g} % more inertia than without groups{ways}",
    ]


def group_sizes(sites: Sequence[SiteInfo]) -> dict[str, int]:
    """Return the smallest number of rows of a group, by site that groups its rows."""
    return {
        site.name: int(dict(limit.parameters)["p"])
        for site in sites
        for limit in site.limits
        if limit.name == "Groups"
    }


def inertia_error(
    sites: Sequence[SiteInfo], result: Result, preprocessor: Preprocessor | None
) -> float:
    """Return by which share the inertia may miss that of the rows: 0 if these are not grouped.

    Sites tell their groups' means and, per column, the scatter within groups, in which the four
    largest of g groups count as the fifth. If the scatter falls off exponentially, that takes
    4 / g of it; the error is twice as much. With heavy tails, ties and columns that are mostly 0 it
    may be several times as much, as few groups have most of the scatter. It is not known, as NaN,
    if more than a hundredth of the rows is at sites that may have fewer than ten groups, which tell
    no scatter, or if the preparation or the algorithm hides it.

    Examples
    --------
    >>> from fedcluster.core import State
    >>> from fedcluster.privacy import Groups
    >>> two = Result(State(np.zeros((2, 1)), np.ones(2)), (), "", Lloyd())
    >>> def known(*rows: int) -> float:
    ...     sites = [SiteInfo("north", (Groups(p=5).limit,), n_rows=n) for n in rows]
    ...     return inertia_error(sites, two, None)
    >>> known(1000, 1000), known(1000, 60), inertia_error([SiteInfo("north", n_rows=9)], two, None)
    (0.04, nan, 0.0)
    """
    p = group_sizes(sites)
    if not p:
        return 0.0
    held = {site.name: site.n_rows or math.nan for site in sites if site.n_rows != 0}
    rows, how = list(held.values()), preprocessor
    changed = how is not None and (how.unit or any(c.log or c.bounds for c in how.numeric))
    if changed or type(result.algorithm) is not Lloyd:
        return math.nan
    few = sum(n for name, n in held.items() if n < FEW_TOLD * p.get(name, 0))
    error = 2 * CAPPED * sum(p.get(name, 0) for name in held) / sum(rows)
    return math.nan if few > UNKNOWN * sum(rows) else error


def far_line(sites: Sequence[SiteInfo], result: Result) -> list[str]:
    """Return the warning that clusters of few groups lie far from the others, if some do.

    Groups of far rows blur them, and others like them may have no cluster of their own.
    """
    sizes = group_sizes(sites)
    state, k = result.state, len(result.state.centers)
    weights, total = state.weights, float(state.weights.sum())
    is_hard = sizes and k > 1 and type(result.algorithm) is Lloyd
    if not is_hard or not total * state.inertia > 0:
        return []
    p, n = max(sizes.values()), sum(rows_of(sites))
    apart = ((state.centers[:, None] - state.centers) ** 2).sum(axis=2)
    shared = weights[:, None] * weights / np.maximum(weights[:, None] + weights, 1e-300)
    joined = shared * apart + np.where(np.eye(k, dtype=bool), np.inf, 0.0)
    few = (weights > 0) & (weights * (n / total) <= FEW_FAR * p)
    far = np.flatnonzero(few & (joined.min(axis=1) >= FAR_SHARE * state.inertia))
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
    named = "fit.{}".format if options else str
    ways = [f"a larger {named('max_iter')}", f"a {named('tol')} above {tol:g}"]
    if job.n_init in (None, 1) and job.algorithm in ("lloyd", "fcm") and isinstance(job.init, str):
        ways.append(f"{named('n_init')} above 1, as it ends with the first of the best starts")
    spread = np.ptp(result.state.centers, axis=0)
    if job.prepare is None and spread.min() < UNLIKE * spread.max():
        scale = "--scale standard" if options else "prepare='standard'"
        ways.append(f"{scale}, as columns differ much in scale")
    # otherwise each fit would draw other starts
    additive = algorithm is not None and algorithm.server_additive
    moved = f", centres still moved by up to {number(moves[-1])}" if additive else ""
    limit = counted(job.max_iter, "round")
    return [f"stopped at the limit of {limit}{moved}; try {', or '.join(ways)}"]
