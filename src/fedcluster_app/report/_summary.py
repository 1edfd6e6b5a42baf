"""First page of the report, for any reader: results, their certainty, and what left sites.

It can be printed on one sheet. Each number is shown with that of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcluster.errors import listed
from fedcluster.jobs.doubts import few_line
from fedcluster.model.run import Feature, Run
from fedcluster.texts import counted, number, percent, short_number, shortened
from fedcluster_app.report.html import parts
from fedcluster_app.report.messages import favoured

FACTS = 3
"""Number of columns on a card."""
NOT_TESTED = (
    "Whether other rows would give the same clusters is not known: fit --stability tests it."
)


def summary(run: Run, picture: Any = None) -> Sequence[Any]:
    """Return the most important results on one sheet, with a chart."""
    doubts = doubts_of(run)
    return [
        parts.paragraphs(_lead(run), *_columns(run)),
        parts.asked("How sure?", sure(run), " Read the doubts below first." if doubts else None),
        clusters(run),
        picture,
        _doubts(doubts),
        parts.asked("What left the sites?", _left(run)) if run.rounds else None,
    ]


def title_of(run: Run) -> str:
    """Return the result in a few words."""
    sites = counted(len(run.sites), "site")
    if run.k:
        return f"{counted(run.k, 'cluster')} of {number(run.n_rows)} rows at {sites}"
    if run.model:
        return f"No clusters at {sites}"
    if verdict := chosen(run):
        return f"{counted(verdict['n_clusters'], 'cluster')}, chosen at {sites}"
    return f"Scores at {sites}"


def chosen(run: Run) -> dict[str, Any]:
    """Return the choice of the number of clusters; empty without one."""
    verdict = run.history.get("selection") or (run.selection if "says" in run.selection else {})
    return dict(verdict)


def _lead(run: Run) -> list[Any]:
    """Return the sentence on rows, sites and clusters."""
    sites = counted(len(run.sites), "site")
    named = [site["name"] for site in run.sites]
    where = [f"{sites} (", parts.names_listed(named, 5), ")"] if len(named) > 0 else [sites]
    if not run.k:
        return [title_of(run), "."]
    if run.k == 1:
        return [f"The {number(run.n_rows)} rows at ", where, " are one cluster: no groups."]
    what = "rows" if run.counts is not None else "rows (by weight)"
    outside = round(run.n_rows - float(run.sizes.sum())) if run.counts is not None else 0
    more = f" In no cluster: {counted(outside, 'row')}." if outside >= 1 else ""
    return [f"The {number(run.n_rows)} {what} at ", where, f" fall into {run.k} clusters.{more}"]


def _columns(run: Run) -> list[Any]:
    """Return the sentence on the columns: those compared, and those left out."""
    columns = run.account.get("columns") or run.model.get("columns", ())
    out = list(run.account.get("preprocessing", {}).get("left_out", ()))
    if not columns:
        return []
    used = [name for name in columns if name not in out]
    line = ["Compared by ", counted(len(used), "column"), ": ", parts.names_listed(used, 12), "."]
    return [[*line, *([" Left out: ", parts.names_listed(out, 5), "."] if out else [])]]


def sure(run: Run) -> str:
    """Return how certain the clusters are, in one plain sentence."""
    if not run.k:
        return "These scores are not about one clustering."
    verdict = chosen(run)
    if run.k == 1:
        alone = "One cluster has nothing to be compared with"
        return f"{favoured(verdict) if verdict else alone}."
    if words := [each["word"] for each in run.stability.get("clusters", ())]:
        return _found_again(words, run.stability["replicates"])
    if verdict:
        return f"{favoured(verdict)}. {NOT_TESTED}"
    return (
        f"The number {run.k} was given: whether the rows form groups at all was not asked (fit -k "
        f"auto asks). {NOT_TESTED}"
    )


def _found_again(words: Sequence[str], replicates: int) -> str:
    """Return a summary of the words for stability.

    Examples
    --------
    >>> print(_found_again(["stable", "unstable"], 20))
    Of 2 clusters, 1 is found again in new samples of the rows (20 were drawn); do not rely on the \
others.
    >>> print(_found_again(["stable", "doubtful", "doubtful"], 20))
    All 3 clusters are found again in new samples of the rows (20 were drawn). Only 1 stands apart \
from the nearest other: the others may be parts of larger clusters.
    """
    k, apart = len(words), words.count("stable")
    found, drawn = (
        apart + words.count("doubtful"),
        f"in new samples of the rows ({replicates} were drawn)",
    )
    every = "Both" if k == 2 else f"All {k}"
    if apart == k:
        return f"{every} clusters are found again {drawn}, and stand apart from each other."
    if not found:
        return f"No cluster is found again {drawn}: do not rely on them."
    if found < k:
        some = f"Of {k} clusters, {found} {'is' if found == 1 else 'are'} found again {drawn}"
        some += "; do not rely on the others."
    else:
        some = f"{every} clusters are found again {drawn}."
    if apart == found:
        return some
    if not apart:
        return f"{some} But none stands apart from the nearest other: they may be parts of others."
    return (
        f"{some} Only {apart} {'stands' if apart == 1 else 'stand'} apart from the nearest other: "
        "the others may be parts of larger clusters."
    )


def clusters(run: Run, *, most_lines: int = 24) -> Any:
    """Return the clusters as cards, or as lines of a table if there are many.

    ``most_lines``: of lines in a table; further ones are in the details.
    """
    if run.k < 2:  # a single cluster has nothing to be compared with
        return None
    if run.k <= 12:
        return parts.cards([card(run, j) for j in range(run.k)])
    largest = np.sort(np.argsort(-run.sizes, kind="stable")[:most_lines]).tolist()
    rows = [[label(run, j), size(run, j), _joined(run, j), _held_by(run, j) or ""] for j in largest]
    rest = f" ({most_lines} largest of {run.k}; all: Profiles)" if run.k > most_lines else ""
    header = ["cluster", "rows", "what sets it apart", "where"]
    return parts.table(f"Clusters{rest}", header, rows, "texts clusters")


def card(run: Run, j: int) -> Any:
    """Return the card of a cluster: its name, size, differences, stability and sites."""
    facts = [_fact(each, j) for each in run.facts(j, FACTS)]
    again = _again(run, j) if run.stability else None
    return parts.card(j, run.names[j], size(run, j), facts, _held_by(run, j), again)


def label(run: Run, j: int) -> Any:
    """Return the label of a cluster in tables: its number and its name.

    Examples
    --------
    >>> print(label(Run(model={"names": ["old"], "weights": [1.0]}), 0))
    <span class="badge c0">0</span> <bdi>old</bdi>
    """
    return parts.label(j, run.names[j])


def fact(feature: Feature, j: int) -> str:
    """Return a column on a card as text: the cluster's value, and that of all rows."""
    of_all = value(feature, feature.overall)
    return f"{feature.name} {value(feature, float(feature.values[j]))} (all rows {of_all})"


def size(run: Run, j: int) -> str:
    """Return the size of a cluster in words."""
    share = run.sizes[j] / max(float(run.sizes.sum()), 1e-300)
    return f"{number(float(run.sizes[j]))} rows, {percent(share)}"


def _joined(run: Run, j: int) -> list[Any]:
    """Return the facts of a cluster in one line."""
    return [part for each in run.facts(j, FACTS) for part in ("; ", _fact(each, j))][1:]


def _fact(feature: Feature, j: int) -> Any:
    """Return a column on a card: the cluster's value, and that of all rows."""
    own, of_all = (value(feature, float(x)) for x in (feature.values[j], feature.overall))
    return parts.fact(feature.name, own, of_all)


def value(feature: Feature, x: float) -> str:
    """Return a value in a column, to a tenth of its spread at least, or a share in percent.

    Examples
    --------
    >>> one = np.zeros(1)
    >>> value(Feature("age", one, 0.0, one, one, unit=23.0), 59.7825)
    '60'
    >>> value(Feature("bmi", one, 0.0, one, one, unit=4.9), -0.01), percent(0.5)
    ('0.0', '50 %')
    """
    if feature.level:
        return percent(x)
    if not (math.isfinite(x) and math.isfinite(feature.unit) and feature.unit > 0):
        return short_number(x)
    digits = max(0, 1 - math.floor(math.log10(feature.unit)))
    return f"{round(x, digits) + 0.0:,.{digits}f}" if digits < 7 else short_number(x)


def _again(run: Run, j: int) -> list[Any]:
    """Return the stability of a cluster in words."""
    cluster, n = run.stability["clusters"][j], run.stability["replicates"]
    if cluster["stability"] is None:
        return ["Stability not known."]
    gap = f", but no gap to cluster {cluster['neighbour']}" if cluster["word"] == "doubtful" else ""
    word = parts.strong(cluster["word"].capitalize())
    return [word, f": found again {cluster['found_again']} of {n} times{gap}."]


def _held_by(run: Run, j: int) -> list[Any]:
    """Return the sites of a cluster, by decreasing share of their rows."""
    if run.counts is None or not run.sites:
        return []
    share = run.counts[:, j] / np.maximum(run.counts.sum(axis=1), 1.0)
    order = [i for i in np.argsort(-share, kind="stable").tolist() if share[i] > 0]
    if not order:
        return ["At no site."]
    pieces: list[Any] = []
    for i in order[:3]:
        pieces += [
            ", " if pieces else "",
            f"{percent(share[i])} of {'' if pieces else 'the rows of '}",
            parts.named(run.sites[i]["name"]),
        ]
    less, none = len(order[3:]), len(run.sites) - len(order)
    if less:
        pieces.append(f"; less at {counted(less, 'other site')}")
    elif none:
        pieces.append("; none elsewhere")
    return [*pieces, "."]


def doubts_of(run: Run) -> list[str]:
    """Return all doubts about the result, most important first.

    Unstable clusters come first, then hidden rows, clusters that a single site may cause, the
    number of clusters, and the columns.
    """
    noticed = run.account.get("preprocessing", {}).get("warnings", ())
    lines = [
        *_not_stable(run),
        *_much_hidden(run),
        *few_line(int((run.weights > 0).sum()), run.k),
        *run.history.get("warnings", ()),
        *chosen(run).get("warnings", ()),
        *noticed,
    ]
    return list(dict.fromkeys(lines))


def _not_stable(run: Run) -> list[str]:
    """Return a sentence on clusters that are not found again, or have no gap."""
    by_word: dict[str, list[str]] = {}
    for each in run.stability.get("clusters", ()):
        by_word.setdefault(each["word"], []).append(str(each["cluster"]))
    why = {
        "unstable": "not found again in other draws of the rows",
        "doubtful": "not apart from the neighbour, maybe a part of a larger one",
    }
    return [
        f"{'cluster' if len(by_word[word]) == 1 else 'clusters'} {listed(by_word[word])}: {said}"
        for word, said in why.items()
        if word in by_word
    ]


def _much_hidden(run: Run, *, many_hidden: float = 0.1) -> list[str]:
    """Return a sentence on many rows hidden by limits: from the last round, or from profiles.

    ``many_hidden``: share of rows hidden by limits from which on this is a doubt.
    """
    so = "clusters may be missing, or others than all rows would make"
    if run.unseen >= many_hidden:
        return [f"limits hid {percent(run.unseen)} of all rows in the last round: {so}"]
    much = [
        f"{percent(share)} of the rows of {shortened(site['name'], 40)}"
        for site, share in zip(run.sites, run.hidden, strict=True)
        if "rows_held_back" not in site and math.isfinite(share) and share >= many_hidden
    ]
    more = [f"{len(much) - 3} more sites"] if len(much) > 3 else []
    return [f"limits hid up to {listed([*much[:3], *more])} in a message: {so}"] if much else []


def _doubts(doubts: Sequence[str], *, most_doubts: int = 6) -> Any:
    """Return the doubts as a list, most important first.

    ``most_doubts``: number of doubts on the first page; all are in the details.
    """
    if not doubts:
        return parts.asked("Doubts?", "No further one was noticed.")
    rest = len(doubts) - most_doubts
    more = [f"and {rest} more, which stand under The data"] if rest > 0 else []
    weightiest = parts.listed_items([*doubts[:most_doubts], *more], "doubts")
    return [parts.asked("Doubts?", "The weightiest first:"), weightiest]


def _left(run: Run) -> str:
    """Return one sentence on what left the sites."""
    if run.history.get("privacy"):
        spent = run.history["privacy"]
        return (
            "Numbers with random noise, and nothing else (epsilon "
            f"{number(spent['epsilon'])} of {spent['budget']:g})."
        )
    if any(site.get("secure") for site in run.sites):
        return "Masked numbers, of which only the sums of all sites together can be read; no row."
    sent = sum(site.get("values_sent", 0) for site in run.sites)
    line = f"Sums and counts ({number(sent)} numbers in {counted(len(run.rounds), 'round')})"
    limits = [{m["name"]: m for m in site.get("limits", ())} for site in run.sites]
    if limits and all("Groups" in each for each in limits):
        p = min(each["Groups"]["p"] for each in limits)
        return f"{line}, no row; every sum is about groups of at least {p} rows."
    if lone := sum(bool(site.get("lone_rows")) for site in run.sites):
        return (
            f"{line}. At {counted(lone, 'site')} some of these were about a single row, and reveal "
            "it to whoever reads the messages; next time, fit --min-cluster-size 5 holds such sums "
            "back."
        )
    if limits and all("MinClusterSize" in each for each in limits):
        p = min(each["MinClusterSize"]["p"] for each in limits)
        return f"{line}, no row; no sum is about fewer than {p} rows of a cluster."
    return f"{line}, no row."
