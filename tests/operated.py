"""A coordinator's queue and its interface for operators in one process, over no transport."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from fedcluster_app.coordinator import runs as queues
from fedcluster_app.coordinator.folder import Federation
from fedcluster_app.coordinator.operators import operators_log, own_token
from fedcluster_app.coordinator.run_job import RESULT
from fedcluster_app.coordinator.service import Health, Service

FIT = {"job": "fit", "parameters": {"n_clusters": 2}, "options": {}}
PATIENCE = 60.0


class ScriptedCarrier:
    """A carrier whose runs go on until they are told to end."""

    def __init__(self, federation: Federation) -> None:
        self.federation, self.online = federation, ["north"]
        self.begun, self.stopped = list[str](), list[str]()
        self.refuses = self.why = ""
        self.change = threading.Condition()

    def admit(self, keys: object, leaving: object) -> list[str]:
        return []

    def hand_over(self, folder: Path) -> None:
        if self.refuses:
            raise ValueError(self.refuses)
        with self.change:
            self.begun.append(folder.name)
            self.change.notify_all()

    def stop(self, folder: Path) -> None:
        self.stopped.append(folder.name)

    def end(self, folder: Path) -> str | None:
        return self.why or None

    def sites_online(self) -> list[str]:
        return list(self.online)

    def wait_for(self, *names: str) -> None:
        """Wait until these runs have begun, in this order."""
        with self.change:
            assert self.change.wait_for(lambda: self.begun == list(names), PATIENCE), self.begun

    def finish(self, name: str, error: str = "", files: Mapping[str, str] | None = None) -> None:
        """End a run."""
        folder, files = self.federation.file("runs", name), files or {}
        (folder / RESULT).mkdir(exist_ok=True)
        for file, text in files.items():
            (folder / RESULT / file).write_text(text)
        outcome = {"done": not error, "error": error, "files": sorted(files)}
        (folder / "outcome.json").write_text(json.dumps(outcome))


class Client:
    """Requests to an app in this process."""

    def __init__(self, app: Starlette, host: str = "127.0.0.1") -> None:
        carried = httpx.ASGITransport(app, raise_app_exceptions=False, client=(host, 1))
        self._how: dict[str, Any] = {"transport": carried, "base_url": "http://coordinator"}

    def request(self, method: str, path: str, **how: Any) -> httpx.Response:
        async def answer() -> httpx.Response:
            async with httpx.AsyncClient(**self._how) as client:
                return await client.request(method, path, **how)

        return asyncio.run(answer())

    def get(self, path: str, **how: Any) -> httpx.Response:
        return self.request("GET", path, **how)

    def post(self, path: str, **how: Any) -> httpx.Response:
        return self.request("POST", path, **how)


class Asking:
    """An operator who asks the interface in this process."""

    def __init__(self, client: Client, token: str) -> None:
        self._client, self._headers = client, {"Authorization": f"Bearer {token}"}

    def get(self, path: str, status: int = 200) -> Any:
        answer = self._client.get(path, headers=self._headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, body: object = None, status: int = 200) -> Any:
        answer = self._client.post(path, headers=self._headers, json=body or {})
        assert answer.status_code == status, answer.text
        return answer.json()

    def begin(self, **more: Any) -> str:
        return str(self.post("/runs", {**FIT, **more}, 201)["run"])

    def wait_until(self, name: str, state: str) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while (told := self.get(f"/runs/{name}"))["state"] != state:
            assert time.monotonic() < end, told
            time.sleep(0.01)
        return dict(told)


class Operated:
    """The coordinator of a federation: its queue works while the block of `operated` lasts."""

    def __init__(self, carrier: ScriptedCarrier, queue: queues.RunQueue, health: Health) -> None:
        self.carrier, self.queue, self.federation = carrier, queue, carrier.federation
        self.log = operators_log(carrier.federation.folder)
        self.health = health
        self.app = Service(queue, health).app()
        self.client = Client(self.app)

    def by(self, token: str | None = None) -> Asking:
        return Asking(self.client, own_token(self.federation.folder) if token is None else token)


@contextmanager
def operated(federation: Federation) -> Iterator[Operated]:
    carrier = ScriptedCarrier(federation)
    health = Health(carrier)
    with queues.queue_of(carrier, health.follow) as queue:
        yield Operated(carrier, queue, health)
