"""fedcluster as a vantage6 algorithm: the functions that nodes and server call by name.

| stage | function | where |
|---|---|---|
| data extraction | `read_table` | at a node, from its database: means of groups alone |
| federated compute | `answer` | at a node, on the means |
| central compute | `fit`, `select_k`, `evaluate`, `profile` | at one node, on no data |

The database of a node is a file of means, written by ``fedcluster site groups``. vantage6 keeps
nothing between sessions, and groups made anew in each would tell of single rows as these change, or
are filtered before. So a node without means reads nothing and answers nothing.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, Unpack

from fedcluster.core import Data
from fedcluster.engines.client import Client
from fedcluster.engines.wire import WireError, steps_by_name, unpack
from fedcluster.errors import InputError
from fedcluster.frames.rows import FileSource
from fedcluster.model.assigned_rows import row_transform
from fedcluster.privacy import Grouping, Groups
from fedcluster.privacy.disclosure import Disclosure
from fedcluster_app.coordinator.run_job import MODEL_FILES, run_job
from fedcluster_app.site.file import Limits
from fedcluster_app.site.membership import folder_auditor
from fedcluster_app.tables.means_file import ABOUT, means_of
from fedcluster_app.tables.sources import OwnTable
from fedcluster_app.trust.site_state import STATE_FILE, SiteState
from fedcluster_app.wire.policy import Ledger, Policy, PolicyLimits
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Auditor, Responder

STEPS = steps_by_name()

Tasks = Callable[[Mapping[str, Any], Sequence[int]], Any]
"""Function that starts a task at organisations; it returns a function that waits for results."""


class Vantage6Transport:
    """Transport in which an exchange is a task for each question, all started at once.

    Parameters
    ----------
    create : callable
        See `Tasks`.
    organizations : mapping of str to int
        The organisations by name of site.

    Attributes
    ----------
    exchanges : int
        The number of exchanges.
    """

    def __init__(self, create: Tasks, organizations: Mapping[str, int]) -> None:
        self._create, self._organizations = create, organizations
        self.exchanges = 0

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        """Ask each site and wait for all."""
        self.exchanges += 1
        asked: dict[bytes, list[int]] = {}
        for name, message in messages.items():
            asked.setdefault(message, []).append(self._organizations[name])
        begun = [self._create({"question": written(m)}, ids) for m, ids in asked.items()]
        replies = _replies([result for results in begun for result in results()])
        replies = {name: replies[name] for name in messages if name in replies}
        return replies, {n: "no result that can be read" for n in messages if n not in replies}


def written(message: bytes) -> str:
    """Return a message as vantage6 carries it."""
    return base64.b64encode(message).decode()


def _replies(results: Sequence[Any]) -> dict[str, bytes]:
    """Return results by the site that they name, dropping a site that two results name."""
    found: dict[str, list[bytes]] = {}
    for result in results:
        with suppress(LookupError, TypeError, ValueError, WireError):
            reply = base64.b64decode(result["reply"])
            found.setdefault(str(unpack(reply)[0]["site"]), []).append(reply)
    return {name: each[0] for name, each in found.items() if len(each) == 1}


try:
    from vantage6.algorithm.decorator import (
        algorithm_client,
        central,
        data_extraction,
        dataframe,
        federated,
    )

    SESSIONS = True
except ImportError:
    SESSIONS = False

    def _plain(function: Any) -> Any:
        """Return a function as it is."""
        return function

    central = data_extraction = _plain  # vantage6 4 has no sessions
    try:
        from vantage6.algorithm.tools.decorators import algorithm_client, data
    except ImportError:  # without vantage6 the functions stay undecorated
        algorithm_client = _plain

        def data(_n_databases: int) -> Any:
            """Return what returns a function as it is."""
            return _plain


__all__ = ["answer", "evaluate", "fit", "profile", "select_k"]
if SESSIONS:  # vantage6 4 reads the database itself and has no sessions
    __all__ += ["read_table"]

FOLDERS = ("SESSION_FOLDER", "TEMPORARY_FOLDER")
"""Variables with the folder that a node keeps for the tasks of a session, or of a job."""


def central_function(function: Any) -> Any:
    """Let a function run once, with a client for starting tasks as its first argument."""
    return central(algorithm_client(function))


def partial_function(function: Any) -> Any:
    """Let a function run at each organisation, with its name and data frame."""
    if SESSIONS:

        @wraps(function)
        def answer(frame: Any, **arguments: Any) -> Any:
            return function(site_name(int(os.environ["ORGANIZATION_ID"])), frame, **arguments)

        return federated(dataframe(1)(answer))

    @wraps(function)
    def answer_of(frame: Any, client: Any, **arguments: Any) -> Any:
        return function(site_name(client.organization_id), frame, **arguments)

    return algorithm_client(data(1)(answer_of))


def site_name(organization: int) -> str:
    """Return the site name of an organisation."""
    return f"organization {organization}"


def begin(
    client: Any, arguments: Mapping[str, Any], organizations: Sequence[int]
) -> Callable[[], Sequence[Any]]:
    """Let organisations answer a question; return a function that waits for the results."""
    asked = {"method": "answer", "kwargs": arguments}
    given = {"method": "answer", "arguments": arguments} if SESSIONS else {"input_": asked}
    task = client.task.create(organizations=list(organizations), name="fedcluster answer", **given)
    return lambda: client.wait_for_results(task_id=task["id"])


def table_means(connection_details: Mapping[str, str]) -> Any:
    """Read the file that is a node's database: means of groups.

    Raises
    ------
    InputError
        If it holds rows.
    """
    table = OwnTable.open(FileSource(Path(connection_details["uri"])), "the database").read_all()
    if ABOUT not in table.column_names:
        raise InputError(
            "the database holds rows, and groups made in each session would reveal single rows: "
            "let fedcluster site groups write their means once, and name that file"
        )
    return table


read_table = data_extraction(table_means)


def answered(site: str, frame: Any, question: str) -> dict[str, str]:
    """Return a site's reply from its means: its metadata, and sums over groups."""
    reply = _responder(site, *means_of(frame)).reply(base64.b64decode(question))
    return {"reply": written(reply)}


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


@partial_function
def answer(site: str, frame: Any, question: str) -> dict[str, str]:
    """Answer a question by sums over groups, and facts about the whole site."""
    return answered(site, frame, question)


class _Engine(RemoteEngine):
    """Engine whose sites store no model, which is the result of the central task."""

    asks_early = True

    def give(self, model: Mapping[str, Any]) -> tuple[str, ...]:
        return ()


OWN = ("algorithms", "metrics")
"""Parameters of jobs that name users' own code, which is not in the image."""
PREPARED: Mapping[str, Any] = {"fit": {"prepare": {}}, "select-k": {"prepare": {}}}
"""Parameters of jobs that prepare rows, unless options say otherwise."""


class Terms(TypedDict, total=False):
    """What each job may be asked with."""

    organizations: Sequence[int] | None
    quorum: int | None
    seed: int
    options: Mapping[str, Any] | None


def _carried_out(
    client: Any,
    job: str,
    parameters: Mapping[str, Any],
    *,
    columns: Sequence[str] | None = None,
    organizations: Sequence[int] | None = None,
    quorum: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Carry a job out; return its files, and the number of exchanges."""
    options = options or {}
    if {*OWN} & {*options} or "." in str(options.get("algorithm")):
        raise InputError("options name code of your own, which is not in the image")
    known = organizations or [each["id"] for each in client.organization.list()]
    sites = {site_name(int(each)): int(each) for each in known}
    transport = Vantage6Transport(partial(begin, client), sites)
    engine = _Engine(transport, sites, quorum=quorum)
    with TemporaryDirectory() as name:
        out, asked = Path(name, "result"), {**PREPARED.get(job, {}), **options, **parameters}
        for key in {*MODEL_FILES} & {*parameters}:
            model = Path(name, MODEL_FILES[key])
            model.write_text(json.dumps(parameters[key]), encoding="utf-8")
            asked[key] = str(model)
        content: dict[str, Any] = {"job": job, "parameters": {**asked, "seed": seed}}
        content |= {"sites": sorted(sites), "out": str(out), "columns": columns, "quorum": quorum}
        outcome = run_job(engine, content, Path(name, "run"))
        files = {path.name: json.loads(path.read_text("utf-8")) for path in out.glob("*.json")}
    shown = {key: value for key, value in outcome.items() if key not in ("out", "files")}
    return {"exchanges": transport.exchanges, "outcome": shown, "files": files}


@central_function
def fit(
    client: Any, n_clusters: int, columns: Sequence[str] | None = None, **terms: Unpack[Terms]
) -> dict[str, Any]:
    """Cluster the rows of all organisations; options are further parameters of a fit."""
    return _carried_out(client, "fit", {"n_clusters": n_clusters}, columns=columns, **terms)


@central_function
def select_k(
    client: Any,
    k_min: int = 1,
    k_max: int | None = None,
    columns: Sequence[str] | None = None,
    **terms: Unpack[Terms],
) -> dict[str, Any]:
    """Choose the number of clusters; options are further parameters of a choice."""
    bounds = {"k_min": k_min, "k_max": k_max}
    return _carried_out(client, "select-k", bounds, columns=columns, **terms)


@central_function
def evaluate(
    client: Any,
    model: Mapping[str, Any],
    beside: Mapping[str, Any] | None = None,
    **terms: Unpack[Terms],
) -> dict[str, Any]:
    """Score the clusters of a model, the content of ``model.json``; compare it with another."""
    models = {"model": model} | ({} if beside is None else {"beside": beside})
    return _carried_out(client, "evaluate", models, **terms)


@central_function
def profile(client: Any, model: Mapping[str, Any], **terms: Unpack[Terms]) -> dict[str, Any]:
    """Profile the clusters of a model, given as the content of ``model.json``."""
    return _carried_out(client, "profile", {"model": model}, **terms)
