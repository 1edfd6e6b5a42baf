"""Interface for operators: runs are asked for, watched, cancelled and fetched over HTTP.

Whoever asks shows an operator's token before anything else of a request is read. What is asked
for, and what was refused, stands in a log whose lines are chained by their hashes. A request names
no file of this machine: what a run writes lies in its own folder, from where it is fetched.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from fedcluster._specifications import RunOptions
from fedcluster.errors import InputError, SiteError
from fedcluster.federation._audit_log import AuditLog
from fedcluster.federation._health import Health
from fedcluster.federation._operators import Operator, operator_of
from fedcluster.federation._queue import RunQueue
from fedcluster.federation._relaying import RELAY, Relaying
from fedcluster.federation._runs import (
    DONE,
    GOING,
    OPTIONS,
    QUEUED,
    RESULT,
    Run,
    content_of,
    content_without,
    how_to_go_on,
    outcome_of,
    run_folder,
    runs,
)
from fedcluster.io._outputs import json_text, write_json
from fedcluster.jobs import JOBS, Job, job_from_json

LOGGER = logging.getLogger(__name__)

LARGEST = 64 << 20
"""Bytes of the largest request: a job, and the model that it scores."""

SECONDS = 30.0
"""Seconds in which the body of a request must have come."""

REFUSALS = 10
"""Refused requests of a minute that the log tells of one by one."""

FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
MODEL = "model-asked.json"
"""The model that a run scores, in its folder."""

FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
"""Headers of a proxy: who asks is not who connects."""

Answer = Callable[[Request, Operator], Awaitable[Response]]


class Service:
    """Interface for operators of one federation.

    Parameters
    ----------
    queue : RunQueue
        The runs.
    log : AuditLog
        The log of who asked for what.
    health : Health
        How the sites and the runs are.
    """

    def __init__(self, queue: RunQueue, log: AuditLog, health: Health) -> None:
        self._queue, self._log, self._health = queue, log, health
        self._federation = queue.federation
        self._refused: list[float] = []

    def app(self) -> Starlette:
        """Return the app, to be served."""
        named = "/runs/{name}"
        routes = [
            Route("/health", _is_up),
            Route("/metrics", self._metrics),
            Route("/runs", self._known(self._list)),
            Route("/runs", self._known(self._begin), methods=["POST"]),
            Route(named, self._known(self._show)),
            *(
                Route(f"{named}/{verb}", self._known(answer), methods=["POST"])
                for verb, answer in {
                    "resume": self._resume,
                    "cancel": self._cancel,
                    "forget": self._forget,
                }.items()
            ),
            Route(f"{named}/{RESULT}/{{file}}", self._known(self._file)),
            Route("/sites", self._known(self._sites)),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _refusal})

    def _known(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that answers operators, once it knows whose token was shown."""

        async def endpoint(request: Request) -> Response:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            shown = token.strip() if scheme.lower() == "bearer" else ""
            operator = await run_in_threadpool(operator_of, self._federation.folder, shown)
            if operator is None:
                await run_in_threadpool(self._note_refusal, request)
                raise HTTPException(401, "no operator has this token")
            try:
                return await answer(request, operator)
            except InputError as error:
                raise HTTPException(400, str(error)) from error
            except SiteError as error:
                raise HTTPException(503, str(error)) from error

        return endpoint

    def _note_refusal(self, request: Request) -> None:
        """Write a refused request into the log, but not so many that they fill the disk."""
        now = time.monotonic()
        self._refused = [at for at in self._refused if now - at < 60]
        if len(self._refused) < REFUSALS:
            self._refused.append(now)
            self._note("refused", request, path=str(request.url.path)[:200])

    def _note(self, event: str, request: Request, **more: Any) -> None:
        """Write a line into the log; what it tells of is done once it is on the disk."""
        address = request.client.host if request.client else ""
        self._log.append(lambda _: {"event": event, "from": address, **more})

    def _own(self, request: Request, operator: Operator) -> tuple[Run, Path]:
        """Return the run that a request names, if it is this operator's to deal with."""
        folder = run_folder(self._federation, request.path_params["name"])
        run = Run.load(folder)
        if run.operator != operator.name and not operator.admin:
            about = {"operator": operator.name, "run": run.name}
            self._note("refused", request, path=str(request.url.path)[:200], **about)
            raise HTTPException(
                403, f"run {run.name!r} is {run.operator or 'somebody'}'s, not yours"
            )
        return run, folder

    async def _list(self, request: Request, operator: Operator) -> Response:
        del request, operator
        return _json({"runs": [asdict(run) for run in runs(self._federation)]})

    async def _begin(self, request: Request, operator: Operator) -> Response:
        asked = await _body(request)
        return await run_in_threadpool(self._begun, request, operator, asked)

    def _begun(self, request: Request, operator: Operator, asked: Mapping[str, Any]) -> Response:
        federation = self._queue.federation

        def content(folder: Path) -> Mapping[str, Any]:
            job = _job(asked, folder, operator)
            told = {key: value for key, value in asked["options"].items() if key in OPTIONS}
            given = content_of(federation, folder, job, RunOptions(Path(), **told))
            about = {key: given[key] for key in ("job", "columns", "permit", "secure")}
            self._note("run", request, operator=operator.name, run=folder.name, **about)
            return given

        try:
            run = self._queue.submit(content, operator.name)
        except InputError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InputError(f"the job is damaged: {type(error).__name__}: {error}") from error
        return _json({"run": run.name}, 201)

    async def _show(self, request: Request, operator: Operator) -> Response:
        return await run_in_threadpool(self._shown, request, operator)

    def _shown(self, request: Request, operator: Operator) -> Response:
        run, folder = self._own(request, operator)
        told = {**asdict(run), "doing": self._doing(run)}
        if run.state == DONE:
            told["outcome"] = outcome_of(folder)
        elif run.state not in GOING:
            told["advice"] = how_to_go_on(run, folder, "DIR")
        return _json(told)

    def _doing(self, run: Run) -> str:
        """Return how far a run is."""
        if run.state == QUEUED:
            before = [each for each in runs(self._federation) if each.state in GOING]
            ahead = sum(each.state != QUEUED or each.asked < run.asked for each in before)
            return f"waiting for {ahead} other run{'s' * (ahead != 1)}" if ahead else "beginning"
        return f"{run.rounds} rounds done" if run.rounds else "waiting for the sites"

    async def _resume(self, request: Request, operator: Operator) -> Response:
        def resumed() -> Run:
            run, _ = self._own(request, operator)
            self._note("resume", request, operator=operator.name, run=run.name)
            return self._queue.resume(run.name, operator.name)

        return _json({"run": (await run_in_threadpool(resumed)).name})

    async def _cancel(self, request: Request, operator: Operator) -> Response:
        def cancelled() -> Run:
            run, _ = self._own(request, operator)
            self._note("cancel", request, operator=operator.name, run=run.name)
            return self._queue.cancel(run.name)

        return _json(asdict(await run_in_threadpool(cancelled)))

    async def _forget(self, request: Request, operator: Operator) -> Response:
        site = str((await _body(request)).get("site"))

        def forgotten() -> Run:
            run, _ = self._own(request, operator)
            self._note("forget", request, operator=operator.name, run=run.name, site=site)

            def content(folder: Path) -> Mapping[str, Any]:
                return content_without(self._federation, run.name, site, folder)

            return self._queue.submit(content, operator.name)

        return _json({"run": (await run_in_threadpool(forgotten)).name}, 201)

    async def _file(self, request: Request, operator: Operator) -> Response:
        def found() -> Path:
            run, folder = self._own(request, operator)
            name = str(request.path_params["file"])
            if not FILE.fullmatch(name) or name not in outcome_of(folder).get("files", ()):
                raise HTTPException(404, f"run {run.name!r} has no file {name!r}")
            self._note("result", request, operator=operator.name, run=run.name, file=name)
            return folder / RESULT / name

        return FileResponse(await run_in_threadpool(found))

    async def _sites(self, request: Request, operator: Operator) -> Response:
        del request, operator
        told = await run_in_threadpool(self._health.sites)
        return _json({"sites": told, **await run_in_threadpool(self._health.summary)})

    async def _metrics(self, request: Request) -> Response:
        """Answer Prometheus, which has no token where it is on this machine."""
        if is_local(request):
            return await self._told(request, None)
        return await self._known(self._told)(request)

    async def _told(self, request: Request, operator: Operator | None) -> Response:
        del request, operator
        text = await run_in_threadpool(self._health.metrics)
        return Response(text, media_type="text/plain; version=0.0.4")


def _relaying(asked: Mapping[str, Any], operator: Operator) -> Relaying:
    """Return the job of the sites behind a relay, which waits for questions."""
    if not operator.admin:
        raise InputError(f"operator {operator.name!r} may not relay: only administrators may")
    parameters = dict(asked["parameters"])
    steps = tuple(map(str, parameters.pop("steps")))
    return Relaying(**parameters, steps=steps)


def _job(asked: Mapping[str, Any], folder: Path, operator: Operator) -> Job | Relaying:
    """Return the job that a request asks for; the model that came with it lies in its folder."""
    if asked["job"] == RELAY:
        return _relaying(asked, operator)
    if asked["job"] not in JOBS:
        raise InputError(f"there is no job {asked['job']!r}; there are: {', '.join(JOBS)}")
    parameters = dict(asked["parameters"])
    own = [parameters.get("algorithm"), *parameters.get("algorithms", ())]
    own += parameters.get("metrics", ())
    if any("." in str(name) for name in own) and not operator.admin:
        raise InputError(
            f"operator {operator.name!r} may not ask for code of one's own: only administrators "
            "may (fedcluster federation operator add --admin)"
        )
    if "model" in asked:
        path = folder / MODEL
        write_json(path, dict(asked["model"]))
        parameters["model"] = str(path)
    elif parameters.get("model") not in {None, "k-means", "mixture"}:
        raise InputError("the model must come with the request; no file of this machine is read")
    return job_from_json(asked["job"], parameters)


async def _body(request: Request) -> dict[str, Any]:
    """Return the object that a request brings, unless it is too large or too slow."""
    try:
        raw = await asyncio.wait_for(_read(request), SECONDS)
        content = json.loads(raw)
    except TimeoutError as error:
        raise HTTPException(408, f"the request did not come within {SECONDS:g} s") from error
    except ClientDisconnect as error:
        raise HTTPException(400, "the request was broken off") from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the request is no JSON") from error
    if not isinstance(content, dict):
        raise HTTPException(400, "the request is no JSON object")
    return content


async def _read(request: Request) -> bytes:
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > LARGEST:
            raise HTTPException(413, f"the request is larger than {LARGEST >> 20} MB")
    return bytes(raw)


async def _is_up(request: Request) -> Response:
    del request
    return _json({"status": "ok"})


async def _refusal(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    headers = {"WWW-Authenticate": "Bearer"} if error.status_code == 401 else None
    return JSONResponse({"error": error.detail}, error.status_code, headers)


def _json(content: Mapping[str, Any], status: int = 200) -> Response:
    """Return an answer in JSON; numbers that JSON does not have are null."""
    return Response(json_text(content), status, media_type="application/json")


def is_local(request: Request) -> bool:
    """Return whether a request comes from a program of this machine, and not through a proxy."""
    if request.client is None or any(name in request.headers for name in FORWARDED):
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
