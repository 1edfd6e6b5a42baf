"""fedcluster as a vantage6 algorithm: the functions that nodes and server call by name.

| stage | function | where |
|---|---|---|
| data extraction | `read_table` | at a node, from its database |
| preprocessing | `group_rows` | at a node: from here on there are means of groups alone |
| federated compute | those of `KINDS` | at a node, on the means |
| central compute | `fit`, `select_k`, `evaluate`, `profile` | at one node, on no data |

Version 4 has no stages: the database of a node is then a file of means, written by ``fedcluster
site groups``. In both versions, a node without means answers nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedcluster.coordinator.run_job import run_job
from fedcluster.core import Data
from fedcluster.engines.client import Client
from fedcluster.engines.remote import RemoteEngine
from fedcluster.engines.responder import Auditor, Responder
from fedcluster.engines.wire import unpack
from fedcluster.errors import InputError
from fedcluster.io.means_file import ABOUT, means_of, means_table
from fedcluster.io.reader import ArrowTable, ColumnRoles
from fedcluster.io.rows import FileSource
from fedcluster.io.sources import OwnTable, load
from fedcluster.model.assigned_rows import row_transform
from fedcluster.privacy import Grouping, Groups
from fedcluster.privacy.budget import Ledger, PolicyLimits
from fedcluster.privacy.disclosure import Disclosure
from fedcluster.privacy.limits import Limits
from fedcluster.privacy.policy import Policy
from fedcluster.privacy.site_state import STATE_FILE, SiteState
from fedcluster.site.membership import folder_auditor
from fedcluster.transports.vantage6._questions import (
    STEPS,
    Vantage6Transport,
    kind_of,
    question_of,
    write_numbers,
)
from fedcluster.transports.vantage6._versions import (
    begin,
    central_function,
    extraction_function,
    partial_function,
    preprocessing_function,
    site_name,
)

FOLDERS = ("SESSION_FOLDER", "TEMPORARY_FOLDER")
"""Variables with the folder that a node keeps for the tasks of a session, or of a job."""


@extraction_function
def read_table(connection_details: Mapping[str, str]) -> Any:
    """Read the file that is a node's database: rows in any format, or means of groups."""
    return OwnTable.open(FileSource(Path(connection_details["uri"])), "the database").read_all()


def grouped_rows(frame: Any) -> Any:
    """Form groups of at least five rows; the rest of the session sees only their means.

    It takes no arguments, because groups of other sizes, or by other columns, would reveal single
    rows.
    """
    if ABOUT in frame.columns:
        return frame
    rows = ArrowTable.of_frame(frame, "the data frame")
    data = load([rows], ColumnRoles(rows.names, raw=True), "the data frame").data
    groups = Groups()
    means = Grouping(groups).grouped(data)
    return means_table(means, {"made": {"p": groups.p, "min_rows": groups.min_rows}})


group_rows = preprocessing_function(grouped_rows)


def answered(kind: str, site: str, frame: Any, **arguments: Any) -> dict[str, Any]:
    """Return a site's answer from its means: its metadata, and sums over groups."""
    for task in arguments.get("tasks") or ():
        if kind_of(task["step"]) != kind:
            raise InputError(f"{kind} does not answer {task['step']}")
    reply = _responder(site, *means_of(frame)).reply(question_of(arguments))
    header, arrays = unpack(reply)
    return {"facts": header, "sums": write_numbers(arrays)}


def _responder(name: str, data: Data, about: Mapping[str, Any]) -> Responder:
    """Return a responder for means of groups, by the rules stored with them."""
    if about.get("permits"):
        raise InputError("this site answers under permits alone, which vantage6 does not carry")
    groups = Groups(about["made"]["p"], about["made"]["min_rows"])
    rules = Disclosure.of(Limits(**about.get("limits", {})).filters)
    client = Client(name, data, rules, Grouping(groups))
    columns = tuple(column.name for column in data.columns)
    folder = next((Path(os.environ[n]) for n in FOLDERS if n in os.environ), Path())
    state, auditor = SiteState(), Auditor()
    if folder.is_dir() and folder != Path():
        state = SiteState(folder / STATE_FILE)
        state.create()
        auditor = folder_auditor(folder, name, "vantage6", columns, print)
    policy = PolicyLimits(**about.get("policy", {}))
    return Responder(
        client.with_columns(columns, raw=True),
        columns=columns,
        choose=client.with_columns,
        steps=STEPS,
        preprocessors=partial(row_transform, steps=STEPS),
        policy=Policy(policy, Ledger(state), None, Disclosure.of(rules, groups)),
        auditor=auditor,
    )


def _partial(kind: str, what: str) -> Any:
    """Return the function for a kind of question."""

    def function(site: str, frame: Any, tasks: Any = (), states: Any = None, **more: Any) -> Any:
        return answered(kind, site, frame, tasks=list(tasks), states=states, **more)

    function.__name__, function.__doc__ = kind, what
    return partial_function(function)


site_facts = _partial("site_facts", "Tell columns, limits and the number of rows of a site.")
row_summaries = _partial("row_summaries", "Describe all rows by sums over groups of them.")
column_sums = _partial("column_sums", "Tell sums, squares and counts of columns over all rows.")
cluster_sums = _partial("cluster_sums", "Tell sums and weights of the rows of each cluster.")
cluster_scores = _partial("cluster_scores", "Tell sums that indices of clusters are made of.")
profiles = _partial("profiles", "Tell counts and sums of columns in each cluster.")


class _Engine(RemoteEngine):
    """Engine whose sites store no model, which is the result of the central task."""

    looks = True

    def give(self, model: Mapping[str, Any]) -> tuple[str, ...]:
        return ()


OWN = ("algorithms", "metrics")
"""Parameters of jobs that name users' own code, which is not in the image."""


def _carried_out(
    client: Any,
    job: str,
    parameters: Mapping[str, Any],
    options: Mapping[str, Any] | None,
    terms: dict[str, Any],
) -> dict[str, Any]:
    """Carry a job out; return its files, and the number of exchanges."""
    options = dict(options or {})
    if {*OWN} & {*options} or "." in str(options.get("algorithm")):
        raise InputError("options name code of your own, which is not in the image")
    known = terms["organizations"] or [each["id"] for each in client.organization.list()]
    sites = {site_name(int(each)): int(each) for each in known}
    transport = Vantage6Transport(partial(begin, client), sites)
    engine = _Engine(transport, sites, quorum=terms["quorum"])
    with TemporaryDirectory() as name:
        model, out = Path(name, "model.json"), Path(name, "result")
        parameters = {**options, **parameters, "seed": terms["seed"]}
        if "model" in parameters:
            model.write_text(json.dumps(parameters["model"]), encoding="utf-8")
            parameters["model"] = str(model)
        content: dict[str, Any] = {
            "job": job,
            "parameters": parameters,
            "sites": sorted(sites),
            "out": str(out),
        }
        content |= {"columns": terms.get("columns"), "quorum": terms["quorum"]}
        outcome = run_job(engine, content, Path(name, "run"))
        files = {path.name: json.loads(path.read_text("utf-8")) for path in out.glob("*.json")}
    shown = {key: value for key, value in outcome.items() if key not in ("out", "files")}
    return {"exchanges": transport.exchanges, "outcome": shown, "files": files}


@central_function
def fit(
    client: Any,
    n_clusters: int,
    columns: Sequence[str] | None = None,
    organizations: Sequence[int] | None = None,
    quorum: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Cluster the rows of all organisations; options are further parameters of a fit."""
    terms = {"organizations": organizations, "quorum": quorum, "seed": seed, "columns": columns}
    parameters = {"n_clusters": n_clusters}
    return _carried_out(client, "fit", parameters, {"prepare": {}, **(options or {})}, terms)


@central_function
def select_k(
    client: Any,
    k_min: int = 1,
    k_max: int | None = None,
    columns: Sequence[str] | None = None,
    organizations: Sequence[int] | None = None,
    quorum: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Choose the number of clusters; options are further parameters of a choice."""
    terms = {"organizations": organizations, "quorum": quorum, "seed": seed, "columns": columns}
    parameters = {"k_min": k_min, "k_max": k_max}
    return _carried_out(client, "select-k", parameters, {"prepare": {}, **(options or {})}, terms)


@central_function
def evaluate(
    client: Any,
    model: Mapping[str, Any],
    organizations: Sequence[int] | None = None,
    quorum: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Score the clusters of a model, given as the content of ``model.json``."""
    terms = {"organizations": organizations, "quorum": quorum, "seed": seed}
    return _carried_out(client, "evaluate", {"model": model}, options, terms)


@central_function
def profile(
    client: Any,
    model: Mapping[str, Any],
    organizations: Sequence[int] | None = None,
    quorum: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Profile the clusters of a model, given as the content of ``model.json``."""
    terms = {"organizations": organizations, "quorum": quorum, "seed": seed}
    return _carried_out(client, "profile", {"model": model}, None, terms)
