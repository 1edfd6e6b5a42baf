"""What ``evaluate`` does between the arguments and the screen: read, ask the sites, show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcluster.client import Client
from fedcluster.core import Filter, State
from fedcluster.engines import LocalEngine
from fedcluster.errors import InputError
from fedcluster.io._rows import SiteRows, chunks_of
from fedcluster.metrics import METRICS
from fedcluster.model import Model
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.recipes import evaluation
from fedcluster.report import SiteRecord, Table, number, plain, site_record
from fedcluster.rounds import Outcome, run_plan, with_preprocessing

NOTHING = "–"
GAP = 2

Scores = Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """All scores of a model on the rows of some sites.

    Parameters
    ----------
    scores : mapping of str to float
        Over all sites, by index.
    by_site : mapping of str to mapping
        What each site finds of its own rows alone.
    sites : tuple of SiteRecord
        What each site sent for ``scores``.
    rounds : int
        That it took.
    """

    scores: Scores
    by_site: Mapping[str, Scores]
    sites: tuple[SiteRecord, ...]
    rounds: int


def clients(sites: Mapping[str, SiteRows], min_cluster_size: int) -> list[Client]:
    """Return the sites as they answer, with the limits of the command line or of site files."""
    if min_cluster_size > 1 and any(site.limits is not None for site in sites.values()):
        raise InputError("--min-cluster-size and --label-column are what a site file says itself")
    limits: list[Filter] = [MinRows(2)] if len(sites) > 1 else []
    limits += [MinClusterSize(min_cluster_size)] if min_cluster_size > 1 else []
    return [
        Client(name, site.rows, limits if site.limits is None else site.limits)
        for name, site in sites.items()
    ]


def evaluate(model: Model, clients: Sequence[Client]) -> Evaluation:
    """All indices that apply to a model's clusters, on these sites' rows."""
    classes = _classes(clients)
    together = _asked(model, clients, classes)
    by_site = {
        client.name: _asked(model, [Client(client.name, client.rows, ())], classes).value
        for client in clients
    }
    records = tuple(
        _record(client, model, together.values_sent()[client.name]) for client in clients
    )
    return Evaluation(together.value, by_site, records, len(together.communication_rounds))


def _classes(clients: Sequence[Client]) -> set[str] | None:
    """All labels of all sites, which a federation would agree on beforehand."""
    found = {client.name: _labels_of(client) for client in clients}
    lacking = [name for name, labels in found.items() if labels is None]
    if len(lacking) == len(found):
        return None
    if lacking:
        raise InputError(
            f"site {lacking[0]!r} names no label_column and another site does; name one at every "
            "site, or at none"
        )
    return set().union(*(labels for labels in found.values() if labels is not None))


def _labels_of(client: Client) -> set[str] | None:
    """The labels that a site has; none of them may be missing."""
    found: set[str] = set()
    for chunk in chunks_of(client.rows):
        if chunk.y is None:
            return None
        found.update(chunk.y.tolist())
    if "" in found:
        raise InputError(
            f"site {client.name!r}: the label of a row is missing; fill it in or drop the row"
        )
    return found


def _asked(
    model: Model, clients: Sequence[Client], classes: set[str] | None
) -> Outcome[dict[str, float]]:
    m = model.algorithm.get("m")
    plan = evaluation(State.at(model.centers), m=None if m is None else float(m), classes=classes)
    return run_plan(with_preprocessing(plan, model.preprocessor), LocalEngine(clients))


def _record(client: Client, model: Model, values_sent: int) -> SiteRecord:
    """What a site holds and sent."""
    return site_record(
        client.name,
        np.concatenate([model.predict(chunk.weighed()) for chunk in chunks_of(client.rows)]),
        len(model.centers),
        "",
        values_sent=values_sent,
        limits=client.site.limits,
        rows_held_back=min(max(sent.held_back for sent in client.audit_log), len(client.rows)),
        lone_rows=max(sent.lone_rows for sent in client.audit_log),
    )


def table(found: Evaluation, width: int) -> Table:
    """A line for each index, for a screen of so many columns; the last sites may not fit."""
    sites = found.by_site if len(found.by_site) > 1 else {}
    header = ["index", "better", "all", *sites]
    lines = [
        [name, _better(name) or "", _cell(score), *(_cell(own[name]) for own in sites.values())]
        for name, score in found.scores.items()
    ]
    kept = _fitting([header, *lines], width)
    cut = len(header) - kept
    more = f" ({cut} more {'site' if cut == 1 else 'sites'} in --json)" if cut else ""
    return Table(
        f"How good the clusters are{more}",
        tuple(header[:kept]),
        tuple(tuple(line[:kept]) for line in lines),
    )


def _better(index: str) -> str | None:
    """Whether the higher or the lower score is the better one, if either is."""
    return {True: "higher", False: "lower", None: None}[METRICS[index].maximise]


def _cell(score: float) -> str:
    return NOTHING if math.isnan(score) else number(score)


def _fitting(lines: Sequence[Sequence[str]], width: int) -> int:
    """How many columns have room, at least those of all rows together."""
    widths = [max(map(len, column)) + GAP for column in zip(*lines, strict=True)]
    return max(3, int((np.cumsum(widths) <= width).sum()))


def summary_line(found: Evaluation) -> str:
    """How it was found out, in one line."""
    sent = sum(site.values_sent for site in found.sites)
    rows = sum(site.rows for site in found.sites)
    said = f"{rows:,} rows; {sent:,} numbers sent in {found.rounds} rounds."
    if len(found.sites) > 1:
        said += " Under a site stands what it would find out alone."
    every = [found.scores, *found.by_site.values()]
    if any(math.isnan(score) for scores in every for score in scores.values()):
        said += f" {NOTHING} means that an index says nothing."
    return said


def result(found: Evaluation, model_file: str) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "model": model_file,
        "rounds": found.rounds,
        "scores": plain(found.scores),
        "better": {name: _better(name) for name in found.scores},
        "sites": [
            {
                "name": site.name,
                "rows": site.rows,
                "clusters": list(site.clusters),
                "scores": plain(found.by_site[site.name]),
                "values_sent": site.values_sent,
                "limits": plain(site.limits),
                "rows_held_back": site.rows_held_back,
                "lone_rows": site.lone_rows,
            }
            for site in found.sites
        ],
    }
