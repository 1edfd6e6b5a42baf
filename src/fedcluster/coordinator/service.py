"""Interface for operators: runs are asked for, watched, cancelled and fetched over HTTP.

Whoever asks shows an operator's token before anything else of a request is read. What is asked
for, and what was refused, stands in a log whose lines are chained by their hashes. A request names
no file of this machine: what a run writes lies in its own folder, from where it is fetched.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedcluster import __version__
from fedcluster.coordinator._health import Health
from fedcluster.coordinator._relaying import Relaying
from fedcluster.coordinator.folder import ADDRESS, Federation
from fedcluster.coordinator.fresh_certificate import FRESH, FreshCertificate
from fedcluster.coordinator.operators import Operator, operator_of, operators_log
from fedcluster.coordinator.runs import (
    GOING,
    OPTIONS,
    RESULT,
    Carrier,
    Run,
    RunQueue,
    State,
    content_of,
    content_without,
    how_to_go_on,
    outcome_of,
    queue_of,
    run_folder,
    runs,
)
from fedcluster.errors import InputError, SiteError
from fedcluster.io.outputs import json_text, write_json
from fedcluster.jobs import JOBS, Job, job_from_json, procedure_of
from fedcluster.recipes.specifications import RunOptions
from fedcluster.site.addresses import is_loopback
from fedcluster.site.audit_log import AuditLog

LOGGER = logging.getLogger(__name__)

FIRST_LINE = 20.0
"""Seconds in which the head of a request must have come."""

CONNECTIONS = 200
"""Connections at the same time; more are refused."""

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

Endpoint = Callable[[Request], Awaitable[Response]]
Answer = Callable[[Request, Operator, Mapping[str, Any]], Response]
"""Answers a request of an operator, with the JSON object that came with it."""


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
        run = "/runs/{name}"
        routes = [
            Route("/health", _is_up),
            Route("/metrics", self._metrics),
            Route("/runs", self._known(self._list)),
            Route("/runs", self._known(self._begin, brings=True), methods=["POST"]),
            Route(run, self._known(self._show)),
            Route(f"{run}/resume", self._known(self._resume), methods=["POST"]),
            Route(f"{run}/cancel", self._known(self._cancel), methods=["POST"]),
            Route(f"{run}/forget", self._known(self._forget, brings=True), methods=["POST"]),
            Route(f"{run}/{RESULT}/{{file}}", self._known(self._file)),
            Route("/sites", self._known(self._sites)),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _refusal})

    def _known(self, answer: Answer, *, brings: bool = False) -> Endpoint:
        """Return an endpoint that answers operators, once it knows whose token was shown.

        With ``brings``, the request must bring a JSON object, which is read only then.
        """

        async def endpoint(request: Request) -> Response:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            shown = token.strip() if scheme.lower() == "bearer" else ""
            operator = await run_in_threadpool(operator_of, self._federation.folder, shown)
            if operator is None:
                await run_in_threadpool(self._note_refusal, request)
                raise HTTPException(401, "no operator has this token")
            body = await _body(request) if brings else {}
            try:
                return await run_in_threadpool(answer, request, operator, body)
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

    def _own(
        self, request: Request, operator: Operator, event: str = "", **more: Any
    ) -> tuple[Run, Path]:
        """Return the run that a request names, if this operator may deal with it; log the event."""
        folder = run_folder(self._federation, request.path_params["name"])
        run = Run.load(folder)
        about = {"operator": operator.name, "run": run.name}
        if run.operator != operator.name and not operator.admin:
            self._note("refused", request, path=str(request.url.path)[:200], **about)
            raise HTTPException(
                403, f"run {run.name!r} is {run.operator or 'somebody'}'s, not yours"
            )
        if event:
            self._note(event, request, **about, **more)
        return run, folder

    def _list(self, request: Request, operator: Operator, body: Mapping[str, Any]) -> Response:
        return _json({"runs": [asdict(run) for run in runs(self._federation)]})

    def _begin(self, request: Request, operator: Operator, body: Mapping[str, Any]) -> Response:
        federation = self._queue.federation

        def content(folder: Path) -> Mapping[str, Any]:
            job = _job(body, folder, operator)
            options = {key: value for key, value in body["options"].items() if key in OPTIONS}
            content = content_of(federation, folder, job, RunOptions(Path(), **options))
            about = {key: content[key] for key in ("job", "columns", "permit", "secure")}
            self._note("run", request, operator=operator.name, run=folder.name, **about)
            return content

        try:
            run = self._queue.submit(content, operator.name)
        except InputError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InputError(f"the job is damaged: {type(error).__name__}: {error}") from error
        return _json({"run": run.name}, 201)

    def _show(self, request: Request, operator: Operator, body: Mapping[str, Any]) -> Response:
        run, folder = self._own(request, operator)
        content = {**asdict(run), "doing": self._doing(run)}
        if run.state == State.DONE:
            content["outcome"] = outcome_of(folder)
        elif run.state not in GOING:
            content["advice"] = how_to_go_on(run, folder, "DIR")
        return _json(content)

    def _doing(self, run: Run) -> str:
        """Return how far a run is."""
        if run.state == State.QUEUED:
            before = [each for each in runs(self._federation) if each.state in GOING]
            ahead = sum(each.state != State.QUEUED or each.asked < run.asked for each in before)
            return f"waiting for {ahead} other run{'s' * (ahead != 1)}" if ahead else "beginning"
        return f"{run.rounds} rounds done" if run.rounds else "waiting for the sites"

    def _resume(self, request: Request, operator: Operator, body: Mapping[str, Any]) -> Response:
        run, _ = self._own(request, operator, "resume")
        return _json({"run": self._queue.resume(run.name, operator.name).name})

    def _cancel(self, request: Request, operator: Operator, body: Mapping[str, Any]) -> Response:
        run, _ = self._own(request, operator, "cancel")
        return _json(asdict(self._queue.cancel(run.name)))

    def _forget(self, request: Request, operator: Operator, body: Mapping[str, Any]) -> Response:
        site = str(body.get("site"))
        run, _ = self._own(request, operator, "forget", site=site)

        def content(folder: Path) -> Mapping[str, Any]:
            return content_without(self._federation, run.name, site, folder)

        return _json({"run": self._queue.submit(content, operator.name).name}, 201)

    def _file(self, request: Request, operator: Operator, body: Mapping[str, Any]) -> Response:
        run, folder = self._own(request, operator)
        name = str(request.path_params["file"])
        if not FILE.fullmatch(name) or name not in outcome_of(folder).get("files", ()):
            raise HTTPException(404, f"run {run.name!r} has no file {name!r}")
        self._note("result", request, operator=operator.name, run=run.name, file=name)
        return FileResponse(folder / RESULT / name)

    def _sites(self, request: Request, operator: Operator, body: Mapping[str, Any]) -> Response:
        return _json({"sites": self._health.sites(), **self._health.summary()})

    async def _metrics(self, request: Request) -> Response:
        """Answer Prometheus, which has no token where it is on this machine."""

        def text(*_known: Any) -> Response:
            return Response(self._health.metrics(), media_type="text/plain; version=0.0.4")

        if is_local(request):
            return await run_in_threadpool(text)
        return await self._known(text)(request)


def _relaying(body: Mapping[str, Any], operator: Operator) -> Relaying:
    """Return the job of the sites behind a relay, which waits for questions."""
    if not operator.admin:
        raise InputError(f"operator {operator.name!r} may not relay: only administrators may")
    parameters = dict(body["parameters"])
    steps = tuple(map(str, parameters.pop("steps")))
    return Relaying(**parameters, steps=steps)


def _job(body: Mapping[str, Any], folder: Path, operator: Operator) -> Job | Relaying:
    """Return the job that a request asks for; the model that came with it lies in its folder."""
    if body["job"] == Relaying.kind:
        return _relaying(body, operator)
    if body["job"] not in JOBS:
        raise InputError(f"there is no job {body['job']!r}; there are: {', '.join(JOBS)}")
    parameters = dict(body["parameters"])
    if "model" in body:
        path = folder / MODEL
        write_json(path, dict(body["model"]))
        parameters["model"] = str(path)
    elif parameters.get("model") not in {None, "k-means", "mixture"}:
        raise InputError("the model must come with the request; no file of this machine is read")
    job = job_from_json(body["job"], parameters)
    if procedure_of(job).own_code() and not operator.admin:
        raise InputError(
            f"operator {operator.name!r} may not ask for code of one's own: only administrators "
            "may (fedcluster federation operator add --admin)"
        )
    return job


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
    return is_loopback(request.client.host)


class PromptProtocol(H11Protocol):
    """HTTP of which the head of a request must come soon, or the connection is closed."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of the first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, if it is not there."""
        super().data_received(data)
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._wait_for_head()
        elif self._late is not None:
            self._late.cancel()
            self._late = None

    def shutdown(self) -> None:
        """End an idle connection without waiting for the other end to agree."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
        else:
            super().shutdown()

    def _wait_for_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(FIRST_LINE, self.transport.abort)


@contextmanager
def operated(carrier: Carrier) -> Iterator[RunQueue]:
    """Carry out runs and listen to operators while the block lasts; yields the runs."""
    federation = carrier.federation
    health = Health(lambda: Federation.load(federation.folder), carrier.sites_online, __version__)
    with queue_of(carrier, health.follow) as queue:
        log = operators_log(federation.folder)
        with served(federation, Service(queue, log, health).app()) as address:
            log.append(lambda _: {"event": "started", "address": address})
            yield queue
            log.append(lambda _: {"event": "ended"})


@contextmanager
def served(federation: Federation, app: Starlette) -> Iterator[str]:
    """Serve the interface for operators while the block lasts; yields where.

    Raises
    ------
    InputError
        If its address means nothing, or cannot be listened at.
    """
    listener = _listening(federation)
    server = uvicorn.Server(_config(federation, app))
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="service", daemon=True
    )
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    path = federation.file(ADDRESS)
    thread.start()
    try:
        _wait(server, thread)
        write_json(path, {"address": address})
        yield address
    finally:
        path.unlink(missing_ok=True)
        server.should_exit = True
        thread.join(10)
        listener.close()


def _listening(federation: Federation) -> socket.socket:
    host, _, port = federation.service.rpartition(":")
    host = host.strip("[]")
    if federation.insecure and not is_loopback(host):
        raise InputError(f"service = {federation.service!r}: without encryption, use 127.0.0.1:0")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        listener.close()
        raise InputError(
            f"service = {federation.service!r} of federation.toml cannot be listened at: {error}"
        ) from error
    return listener


def _config(federation: Federation, app: Starlette) -> uvicorn.Config:
    encrypted: dict[str, Any] = {}
    if not federation.insecure:
        files = {"ssl_certfile": "server.crt", "ssl_keyfile": "server.key"}
        encrypted = {key: federation.file("certificates", name) for key, name in files.items()}
    config = uvicorn.Config(
        app,
        http=PromptProtocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=1,
        **encrypted,
    )
    config.load()
    if config.ssl is not None:
        context, fresh = config.ssl, FreshCertificate(lambda **_: context)
        fresh(certfile=config.ssl_certfile, keyfile=config.ssl_keyfile)
        threading.Thread(target=_follow, args=[fresh], name="certificate", daemon=True).start()
    return config


def _follow(certificate: FreshCertificate) -> None:
    """Show a renewed certificate to whoever connects from then on."""
    while True:
        time.sleep(FRESH)
        if certificate.refresh():
            LOGGER.info("the certificate was renewed")


def _wait(server: uvicorn.Server, thread: threading.Thread) -> None:
    while not server.started:
        if not thread.is_alive():
            raise InputError("the interface for operators did not start")
        time.sleep(0.02)
