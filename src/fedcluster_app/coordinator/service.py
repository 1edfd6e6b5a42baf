"""HTTP interface of a coordinator for operators and their runs, and for Prometheus.

An operator must show a token before anything else of a request is read. Requests and refusals are
logged in lines that are chained by their hashes. A request cannot name files of this machine: a run
writes into its own folder, from which results are fetched.

Health metrics come from the progress logs of runs. They contain names of sites, times and counts,
but no answers of sites.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, Histogram, Info, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from fedcluster import __version__
from fedcluster.core.files import json_text, write_json
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import JOBS, Job, job_from_json, procedure_of
from fedcluster.options.choices import MODELS
from fedcluster.recipes.specifications import RunOptions
from fedcluster_app.coordinator import lifecycle
from fedcluster_app.coordinator import runs as queues
from fedcluster_app.coordinator.certificates import accepted_keys, following, key_digest
from fedcluster_app.coordinator.door import DoorServer
from fedcluster_app.coordinator.folder import ADDRESS, Federation
from fedcluster_app.coordinator.operators import Operator, operator_of
from fedcluster_app.coordinator.run_job import MODEL_FILES, RESULT, outcome_of
from fedcluster_app.coordinator.runs import GOING, Carrier, Run, RunQueue, State
from fedcluster_app.trust import owned_files
from fedcluster_app.trust.audit_log import AuditLog
from fedcluster_app.wire.recorder import PROGRESS


class Health:
    """What a coordinator has observed of its sites and runs since it started.

    Parameters
    ----------
    carrier : Carrier
        Tells who is connected.
    """

    connected_for = 5.0  # seconds for which the list of connected sites is cached

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._change = threading.Lock()
        self._known: tuple[float, list[str]] = (-float("inf"), [])
        self._here: set[str] = set()
        self._read: tuple[Path | None, int] = (None, 0)
        self._began = 0.0
        self._responded: set[str] = set()
        self._last: dict[str, float] = {}
        self._rounds: dict[str, Counter[str]] = {"answered": Counter(), "missed": Counter()}
        self._seconds: list[float] = []
        self._registry = CollectorRegistry()
        # Bounds of the histogram of seconds per round.
        self._round_seconds = Histogram(
            "fedcluster_round_seconds",
            "Seconds from a question to the last answer.",
            buckets=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
            registry=self._registry,
        )
        info = Info("fedcluster", "The coordinator's program.", registry=self._registry)
        info.info({"version": __version__})
        self._registry.register(self)

    @property
    def _federation(self) -> Federation:
        return Federation.load(self._carrier.federation.folder)

    def follow(self, folder: Path) -> None:
        """Process the events that a run has logged since the last call."""
        with self._change:
            for event in self._new(folder / PROGRESS):
                with suppress(LookupError, TypeError, ValueError, AttributeError):
                    self._take(event, folder.name)

    def _new(self, path: Path) -> Iterator[dict[str, Any]]:
        """Yield the events that were not read yet; a file that was restarted is read again."""
        before, offset = self._read
        with suppress(OSError), path.open("rb") as file:
            goes_on = before == path and path.stat().st_size >= offset
            self._read = path, file.seek(offset if goes_on else 0)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read = path, file.tell()
                with suppress(ValueError):
                    yield dict(json.loads(line))

    def _take(self, event: Mapping[str, Any], run: str) -> None:
        at = float(event["at"])
        if "heard" in event:
            self._last[str(event["heard"])] = at
            self._responded.add(str(event["heard"]))
        elif "asked" in event:
            self._began, self._responded = at, set()
        elif "failed" in event:  # introductions have no round number
            responded, self._responded = self._responded if "round" in event else set(), set()
            failed = list(event["failed"])
            self._count([name for name in sorted(responded) if name not in failed], failed)
        elif self._responded:  # without replies, the round was read from the records
            seconds, self._responded = max(0.0, at - self._began), set()
            answered, missing = list(event["answered"]), list(event["missing"])
            self._count(answered, missing)
            self._seconds = [*self._seconds[-99:], seconds]
            self._round_seconds.observe(seconds)
            about = {"run": run, "round": event["round"], "seconds": round(seconds, 3)}
            LOGGER.info("round is done", extra={**about, "missing": missing})

    def _count(self, answered: list[str], missing: list[str]) -> None:
        self._rounds["answered"].update(answered)
        self._rounds["missed"].update(missing)

    def sites(self) -> dict[str, dict[str, Any]]:
        """Return each site's connection, its last answer and its number of answers."""
        now, online = self._known
        if time.monotonic() - now > self.connected_for:
            online = self._carrier.sites_online()
            self._known = time.monotonic(), online
        with self._change:
            return {
                name: {
                    "connected": name in online,
                    "last_answer": self._last.get(name),
                    **{key: counts[name] for key, counts in self._rounds.items()},
                }
                for name in self._federation.sites
            }

    def note_sites(self, log: AuditLog) -> None:
        """Log which sites have connected and disconnected since the last call."""
        with suppress(InputError, SiteError):
            now = {name for name, about in self.sites().items() if about["connected"]}
            for name in sorted(now ^ self._here):
                event = "connected" if name in now else "disconnected"
                log.append(partial(_of_member, event, name))
            self._here = now

    def summary(self) -> dict[str, Any]:
        """Return all facts about the coordinator except its sites."""
        federation = self._federation
        states = Counter(run.state for run in queues.runs(federation))
        with self._change:
            seconds = self._seconds[-1:], sum(self._seconds) / max(1, len(self._seconds))
        last, mean = seconds
        return {
            "version": __version__,
            "queue": states[State.QUEUED],
            "runs": {state: states[state] for state in State},
            "seconds_of_last_round": last[0] if last else None,
            "seconds_of_a_round": mean if last else None,
            "days_of_certificate": days_of_certificate(federation),
        }

    def metrics(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are computed on request."""
        sites, summary = self.sites(), self.summary()
        for key, text in {
            "answered": "Rounds that a site answered.",
            "missed": "Rounds that went, or failed, without a site that was asked.",
        }.items():
            counter = CounterMetricFamily(f"fedcluster_site_rounds_{key}", text, labels=["site"])
            for name, site in sites.items():
                if site[key]:
                    counter.add_metric([name], site[key])
            yield counter
        answers = {name: site["last_answer"] for name, site in sites.items()}
        known = {name: at for name, at in answers.items() if at is not None}
        connected = {name: site["connected"] for name, site in sites.items()}
        about = "When a site answered last."
        yield _gauge("site_connected", "Whether a site is connected.", "site", connected)
        yield _gauge("site_last_answer_timestamp_seconds", about, "site", known)
        yield _gauge("runs", "Runs by their state.", "state", summary["runs"])
        yield _gauge("queue_length", "Runs that wait.", "", {"": summary["queue"]})
        end = end_of_certificate(self._federation)
        ends = {"": float("nan") if end is None else end.timestamp()}
        about = "When the coordinator's certificate ends."
        yield _gauge("certificate_end_timestamp_seconds", about, "", ends)


def _gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a Prometheus gauge with one value, or one for each value of its label."""
    gauge = GaugeMetricFamily(f"fedcluster_{name}", text, labels=[label] if label else [])
    for key, value in values.items():
        gauge.add_metric([key] if label else [], value)
    return gauge


def days_of_certificate(federation: Federation) -> float | None:
    """Return the days until the coordinator's certificate expires, None if there is none."""
    end = end_of_certificate(federation)
    return None if end is None else (end - datetime.now(UTC)).total_seconds() / 86400


def end_of_certificate(federation: Federation) -> datetime | None:
    """Return when the coordinator's certificate expires, None if there is none."""
    with suppress(InputError):
        paths = lifecycle.own_certificates(federation)
        chains = map(lifecycle.certificates, paths)
        return min(each.not_valid_after_utc for chain in chains for each in chain)
    return None


LOGGER = logging.getLogger(__name__)


LARGEST_REQUEST = 64 << 20
"""Size in bytes of the largest request: a job with the model that it scores."""

NOBODY_KNOWN = "the coordinator cannot read who may start runs: see fedcluster federation doctor"
"""Answer to everybody, who may be a stranger, if the file of operators is damaged."""

REQUEST_SECONDS = 30.0
"""Seconds within which the body of a request must arrive."""


FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")

Endpoint = Callable[[Request], Awaitable[Response]]
Answer = Callable[[Request, Operator, Mapping[str, Any]], Response]
"""Function that answers a request of an operator, given its JSON object."""


class Service:
    """Interface for operators of one federation.

    Parameters
    ----------
    queue : RunQueue
        The runs, with the log of requests by operator.
    health : Health
        The health of the sites and the runs.
    """

    refusals_logged = 10  # number of refused requests per minute that are logged individually

    def __init__(self, queue: RunQueue, health: Health) -> None:
        self._queue, self._log, self._health = queue, queue.log, health
        self._federation = queue.federation
        self._refused: list[float] = []

    def app(self) -> Starlette:
        """Return the application to serve."""
        run = "/runs/{name}"
        routes = [
            Route("/health", _is_up),
            Route("/metrics", self._known(self._metrics)),
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
        """Return an endpoint for operators, which checks their token first.

        With ``brings``, the request must have a JSON object, which is only read after the check.
        """

        async def endpoint(request: Request) -> Response:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            shown = token.strip() if scheme.lower() == "bearer" else ""
            try:
                operator = await run_in_threadpool(operator_of, self._federation.folder, shown)
            except InputError as error:
                LOGGER.error("%s", error)
                raise HTTPException(503, NOBODY_KNOWN) from error
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
        """Log a refused request, limited per minute so that the log does not fill the disk."""
        now = time.monotonic()
        self._refused = [at for at in self._refused if now - at < 60]
        if len(self._refused) < self.refusals_logged:
            self._refused.append(now)
            self._note("refused", request, path=str(request.url.path)[:200])

    def _note(self, event: str, request: Request, **more: Any) -> None:
        """Write a line into the log before acting on the event."""
        address = request.client.host if request.client else ""
        self._log.append(lambda _: {"event": event, "from": address, **more})

    def _own(
        self, request: Request, operator: Operator, event: str = "", **more: Any
    ) -> tuple[Run, Path]:
        """Return the run that a request names, if this operator may access it; log the event."""
        folder = queues.run_folder(self._federation, request.path_params["name"])
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
        return _json({"runs": [asdict(run) for run in queues.runs(self._federation)]})

    def _begin(self, request: Request, operator: Operator, body: Mapping[str, Any]) -> Response:
        federation = self._queue.federation

        def content(folder: Path) -> Mapping[str, Any]:
            job = _job(body, folder, operator)
            options = {
                key: value for key, value in body["options"].items() if key in queues.OPTIONS
            }
            content = queues.content_of(federation, folder, job, RunOptions(Path(), **options))
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
            content["advice"] = queues.how_to_go_on(run, folder, "DIR")
        return _json(content)

    def _doing(self, run: Run) -> str:
        """Describe in words the progress of a run."""
        if run.state == State.QUEUED:
            before = [each for each in queues.runs(self._federation) if each.state in GOING]
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
            return queues.content_without(self._federation, run.name, site, folder)

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

    def _metrics(self, request: Request, operator: Operator, body: Mapping[str, Any]) -> Response:
        return Response(self._health.metrics(), media_type="text/plain; version=0.0.4")


def _job(body: Mapping[str, Any], folder: Path, operator: Operator) -> Job:
    """Return the job that a request contains; its model is stored in the folder."""
    if body["job"] not in JOBS:
        raise InputError(f"there is no job {body['job']!r}; there are: {', '.join(JOBS)}")
    parameters = dict(body["parameters"])
    for key, file in MODEL_FILES.items():
        if key in body:
            write_json(folder / file, dict(body[key]))
            parameters[key] = str(folder / file)
        elif parameters.get(key) not in {None, *(MODELS if key == "model" else ())}:
            raise InputError("a model must come with the request; no file of this machine is read")
    job = job_from_json(body["job"], parameters)
    if procedure_of(job).own_code() and not operator.admin:
        raise InputError(
            f"operator {operator.name!r} may not run code of their own: only administrators "
            "may (fedcluster federation operator DIR NAME --admin)"
        )
    return job


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request, unless it is too large or too slow."""
    try:
        raw = await asyncio.wait_for(_read(request), REQUEST_SECONDS)
        content = json.loads(raw)
    except TimeoutError as error:
        raise HTTPException(
            408, f"the request did not come within {REQUEST_SECONDS:g} s"
        ) from error
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
        if len(raw) > LARGEST_REQUEST:
            raise HTTPException(413, f"the request is larger than {LARGEST_REQUEST >> 20} MB")
    return bytes(raw)


async def _is_up(_request: Request) -> Response:
    return _json({"status": "ok"})


async def _refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = {"WWW-Authenticate": "Bearer"} if error.status_code == 401 else None
    return JSONResponse({"error": error.detail}, error.status_code, headers)


def _json(content: Mapping[str, Any], status: int = 200) -> Response:
    """Return a JSON answer; numbers that JSON lacks become null."""
    return Response(json_text(content), status, media_type="application/json")


@contextmanager
def started(
    federation: Federation, transport: ModuleType
) -> Iterator[tuple[Carrier, owned_files.ManagedProcess]]:
    """Let the sites of a federation connect within the block, and nobody else.

    Yields the transport's carrier of runs and its program.

    Parameters
    ----------
    federation : Federation
        The federation.
    transport : module
        One of `fedcluster_app.transports`. Its ``check_state`` raises an error if its program would
        not start, and waits some seconds for its port; its ``serve`` runs it within a block.

    Raises
    ------
    InputError
        If the folder is damaged or in use, or the transport does not start.
    """
    lifecycle.check_start(federation)
    with owned_files.private_files(), owned_files.running(federation.folder):
        transport.check_state(federation, owned_files.ORPHAN)
        with transport.serve(federation) as (carrier, program), FolderWatch(carrier).kept():
            yield carrier, program


class FolderWatch:
    """Watch of a federation's folder: lets the transport know its sites and their keys.

    Parameters
    ----------
    carrier : Carrier
        The transport.
    """

    interval = 0.5  # seconds between two checks of the folder
    again = 5.0
    """Seconds between two checks whether a pending change has come about, and after an error."""
    day = 86_400.0  # seconds between two lines about a certificate that expires soon

    def __init__(self, carrier: Carrier) -> None:
        self._admit, self._folder = carrier.admit, carrier.federation.folder
        self._seen, self._asked, self._waits = "", 0.0, False
        self._spoken = time.monotonic()  # the start command prints this notice

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Take notice of the folder, now and repeatedly within the block.

        Raises
        ------
        InputError
            If the folder is damaged now; later damage is only logged.
        SiteError
            If the transport does not answer now.
        """
        self.update()
        with owned_files.repeated(self._look, self.interval):
            yield

    def _look(self) -> float | None:
        """Update what has changed; return for how long to rest."""
        now = time.monotonic()
        try:
            waited = self._waits and now - self._asked > self.again
            if waited or self._seen != lifecycle.state_of(self._folder):
                self.update()
            if now - self._spoken > self.day:
                self._spoken = now
                if notice := lifecycle.expiry_notice(Federation.load(self._folder)):
                    LOGGER.warning("%s", notice)
        except (InputError, SiteError, OSError) as error:
            LOGGER.warning("the sites' keys stay as they are: %s", error)
            return self.again
        return None

    def update(self) -> None:
        """Let the transport know the keys that count now, and replace those that are not used."""
        self._asked = time.monotonic()
        seen, federation = lifecycle.state_of(self._folder), Federation.load(self._folder)
        keys = accepted_keys(self._folder, federation.sites)
        leaving = queues.still_asked(federation)
        here = self._admit(keys, leaving)
        new = {site: key_digest(key) for site, own in keys.items() for key in own[1:]}
        if used := [site for site, digest in new.items() if digest in here]:
            lifecycle.promote(self._folder, used)
            LOGGER.info("sites with a new key: %s", ", ".join(used))
        lifecycle.take_notice(self._folder, seen)
        self._seen, self._waits = seen, bool(new or leaving)


@contextmanager
def operated(carrier: Carrier) -> Iterator[RunQueue]:
    """Carry out runs and listen to operators within the block; yield the queue of runs."""
    federation = carrier.federation
    health = Health(carrier)
    with queues.queue_of(carrier, health.follow) as queue:
        log = queue.log
        with served(federation, Service(queue, health).app()) as address:
            log.append(lambda _: {"event": "started", "address": address})
            why = "asked to"
            try:
                noting = owned_files.repeated(partial(health.note_sites, log), Health.connected_for)
                with noting, closing(queue):  # before the transport ends, which ends no run
                    yield queue
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                why = type(error).__name__
                raise
            finally:
                log.append(lambda _: {"event": "ended", "why": why})


def _of_member(event: str, name: str, _head: object) -> dict[str, Any]:
    return {"event": event, "member": name}


@contextmanager
def served(federation: Federation, app: Starlette) -> Iterator[str]:
    """Serve the interface for operators within the block; yield its address.

    Raises
    ------
    InputError
        If its address is invalid or not available.
    """
    listener = listening(federation)
    server = DoorServer(_config(federation, app))
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="service", daemon=True
    )
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    path = federation.file(ADDRESS)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise InputError("the interface for operators did not start")
            time.sleep(0.02)
        write_json(path, {"address": address})
        yield address
    finally:
        path.unlink(missing_ok=True)
        server.should_exit = True
        thread.join(10)
        listener.close()


def listening(federation: Federation) -> socket.socket:
    """Return a socket at the address for operators.

    Raises
    ------
    InputError
        If the address is invalid or not available.
    """
    host, _, port = federation.service.rpartition(":")
    host = host.strip("[]")
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
    chain = [federation.file("certificates", f"server.{end}") for end in ("crt", "key")]
    # Largest number of simultaneous connections; with more, those of strangers are closed.
    config = uvicorn.Config(
        app,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=200,
        timeout_graceful_shutdown=1,
        ssl_certfile=chain[0],
        ssl_keyfile=chain[1],
    )
    config.load()
    assert config.ssl is not None
    following(config.ssl, *chain)
    return config
