"""One site of a federation: it connects to the coordinator, answers, and keeps what is found.

Flower's SuperNode holds the connection. The questions that it receives are answered here, by the
package that is installed at the site: the code of an app that a coordinator sends is not run.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from flwr.clientapp import ClientApp
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedcluster._site import SiteFile
from fedcluster.engines._responder import Line, Responder
from fedcluster.engines._wire import WireError, steps_by_name
from fedcluster.errors import InputError
from fedcluster.io._outputs import atomic_folder, json_text, write_labels
from fedcluster.model import Model
from fedcluster.preprocessing import Preprocessor
from fedcluster.transports.flower._processes import ManagedProcess, answers, free_port, tries
from fedcluster.transports.flower._transport import client_app

LOGGER = logging.getLogger(__name__)

PREPARATION = tuple(
    f"fedcluster.preprocessing.{name}"
    for name in ("Histogram", "Covariance", "Means", "Missing", "Squares")
)
"""The steps that a preparation asks."""

REFUSED = "[code: 2004]"
"""What Flower says of a key that it does not know, or that is connected already."""

UNSIGNED = "SuperNode terminated gracefully"
"""All that Flower says where a signed time is not accepted."""

FORGOTTEN = 75.0
"""Seconds after which Flower has noticed that a SuperNode was killed."""

POLL = 0.1
"""Seconds between two looks for a question."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The table ``[federation]`` of a site file.

    Parameters
    ----------
    coordinator : str
        HOST:PORT of the coordinator.
    certificate : str, optional
        The file of the authority that vouches for the coordinator.
    key : str, optional
        The file of the site's own key.
    insecure : bool
        Without both, on one machine.
    results : str
        The folder that receives the model and the labels.
    log : str
        The file that says what left.
    steps : tuple of str
        Steps that may be asked besides those of the package.
    """

    coordinator: str
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False
    results: str = "results"
    log: str = "audit.jsonl"
    steps: tuple[str, ...] = ()

    @classmethod
    def of(cls, site: SiteFile) -> Membership:
        """From a site file.

        Raises
        ------
        InputError
            If a key is missing, unknown or of a wrong type, or a file is not there.
        """
        content = dict(site.federation)
        wanted = {"insecure": bool, "steps": list}
        for key, value in content.items():
            if key not in {field.name for field in fields(cls)}:
                known = ", ".join(field.name for field in fields(cls))
                raise InputError(f"{site.path}: [federation], unknown key {key!r}; known: {known}")
            if not isinstance(value, wanted.get(key, str)):
                raise InputError(f"{site.path}: [federation], {key} must not be {value!r}")
        if "coordinator" not in content:
            raise InputError(f'{site.path}: [federation], write coordinator = "HOST:PORT" there')
        content["steps"] = tuple(map(str, content.get("steps", ())))
        found = cls(**content)
        found._check_files(site)
        return found

    def _check_files(self, site: SiteFile) -> None:
        for key in ("certificate", "key"):
            name = getattr(self, key)
            if self.insecure:
                continue
            if name is None:
                raise InputError(f"{site.path}: [federation], {key!r} is missing")
            if not (site.path.parent / name).is_file():
                raise InputError(
                    f"{site.path.parent / name} does not exist; it is in the folder that the "
                    "coordinator handed over"
                )

    def options(self, folder: Path, port: int, secret: Path) -> list[str]:
        """The options of Flower's SuperNode."""
        trust = ["--insecure"]
        if not self.insecure:
            trust = [
                *("--root-certificates", str(folder / str(self.certificate))),
                *("--auth-supernode-private-key", str(folder / str(self.key))),
            ]
        return [
            *trust,
            *("--superlink", self.coordinator),
            *("--port", str(port)),
            *("--isolation", "process"),
            *("--superexec-auth-secret-file", str(secret)),
        ]


def take_part(path: Path, say: Callable[[str], None]) -> None:
    """Answer the questions of a federation until interrupted.

    Parameters
    ----------
    path : Path
        The site file.
    say : callable taking a str
        Told what happens, in one line each.

    Raises
    ------
    InputError
        If the site file is wrong, the rows cannot be read, or the coordinator refuses the site.
    """
    site = SiteFile.load(path)
    membership = Membership.of(site)
    folder = path.absolute().parent
    responder = _responder(site, membership, folder, say)
    _wait_for_coordinator(site.name, membership, folder, say)
    secret = secrets.token_bytes(32)
    with _secret_file(folder / "flower", secret) as file:
        while True:
            port = free_port()
            options = membership.options(folder, port, file)
            with _connected(membership, options, folder / "flower", say) as supernode:
                say(f"site {site.name}: connected; Ctrl-C ends it")
                _answer(supernode, port, secret, responder)
                say(
                    f"site {site.name}: connecting again, as Flower's program has ended: "
                    f"{supernode.complaint()}"
                )
            time.sleep(1)


def _responder(
    site: SiteFile, membership: Membership, folder: Path, say: Callable[[str], None]
) -> Responder:
    """The site's end of the wire; reads the names of the columns."""
    columns = tuple(site.opened(raw=True).columns)
    try:
        steps = steps_by_name([*PREPARATION, *membership.steps])
    except WireError as error:
        raise InputError(f"{site.path}: [federation], steps: {error}") from error

    def log(lines: list[Line]) -> None:
        append(folder / membership.log, lines)
        size = sum(line["bytes"] for line in lines)
        say(f"site {site.name}: answered {len(lines)} tasks with {size:,} bytes")

    def keep(content: dict[str, Any]) -> None:
        keep_results(site, content, folder / membership.results)
        say(f"site {site.name}: the model came; labels are in {folder / membership.results}")

    return Responder(
        site.client(columns),
        columns=columns,
        choose=site.client,
        steps=steps,
        preprocessors=Preprocessor.of_plain,
        log=log,
        keep=keep,
    )


def append(path: Path, lines: list[Line]) -> None:
    """Append lines to the log of what left; they are on the disk when this returns."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    text = "".join(json.dumps({"time": now, **line}) + "\n" for line in lines)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
        file.flush()


def keep_results(site: SiteFile, content: Mapping[str, Any], results: Path) -> None:
    """Write the model that came, and the cluster of each row, chunk by chunk: both stay here."""
    with atomic_folder(results) as partial:
        path = partial / "model.json"
        path.write_text(json_text(content), encoding="utf-8")
        model = Model.load(path)
        raw = model.preprocessor is not None
        found = [
            (model.predict(chunk), model.memberships(chunk))
            for chunk in site.opened(model.columns, raw=raw).chunks()
        ]
        labels = np.concatenate([labels for labels, _ in found])
        degrees = [degrees for _, degrees in found if degrees is not None]
        write_labels(
            partial / "labels.csv",
            np.arange(1, len(labels) + 1),
            labels,
            np.concatenate(degrees) if degrees else None,
        )


@contextmanager
def _secret_file(folder: Path, secret: bytes) -> Iterator[Path]:
    """A file with the secret by which the SuperNode knows this process."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"secret-{secrets.token_hex(4)}"
    path.touch(0o600, exist_ok=False)
    path.write_bytes(secret)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _wait_for_coordinator(
    name: str, membership: Membership, folder: Path, say: Callable[[str], None]
) -> None:
    """Wait until somebody answers; complain where it is not the coordinator."""
    authority = None if membership.insecure else folder / str(membership.certificate)
    say(f"site {name}: connecting to {membership.coordinator}")
    told = False
    while not answers(membership.coordinator, authority):
        if not told:
            say(f"site {name}: nobody answers at {membership.coordinator} yet; waiting")
        told = True
        time.sleep(1)


@contextmanager
def _connected(
    membership: Membership, options: Sequence[str], home: Path, say: Callable[[str], None]
) -> Iterator[ManagedProcess]:
    """A SuperNode that is connected to the coordinator.

    Flower refuses a key that is connected already, and one that was killed counts as connected
    until its heart has not been heard for a while. So a site that was connected once is patient.
    """
    mark, told = home / "connected", False
    end = time.monotonic() + (FORGOTTEN if mark.exists() else 0)
    while True:
        with ManagedProcess.running(
            "supernode", options, home / "supernode.log", home
        ) as supernode:
            if _connects(supernode):
                mark.touch()
                yield supernode
                return
            if REFUSED not in supernode.printed() or time.monotonic() > end:
                raise InputError(_why_refused(supernode, membership, before=mark.exists()))
        if not told:
            say("the site's earlier program still counts as connected; waiting")
        told = True
        time.sleep(1)


def _connects(supernode: ManagedProcess) -> bool:
    """Wait as long as it takes; the coordinator may not have started yet."""
    while not supernode.wait_for("SuperNode ID:", 60.0):
        if not supernode.runs:
            return False
    return True


def _why_refused(supernode: ManagedProcess, membership: Membership, *, before: bool) -> str:
    """Why a SuperNode ended before it was connected, now or ever."""
    said, where = supernode.printed(), f"see {supernode.log}"
    if REFUSED in said and before:
        why = "another program with this site's key is connected, or the key is not known any more"
    elif REFUSED in said:
        why = "the coordinator does not know this site's key; ask for the site's folder anew"
    elif UNSIGNED in said:
        why = (
            "the coordinator refuses this site's signature; set the clocks of both machines, of "
            "which this one may be 5 s fast or 5 minutes slow, and no more"
        )
    else:
        why = supernode.complaint()
    return f"the connection to {membership.coordinator} failed: {why}; {where}"


def _answer(supernode: ManagedProcess, port: int, secret: bytes, responder: Responder) -> None:
    """Take the questions from the SuperNode while it runs, and answer them one after the other.

    Each is fetched by a thread of its own: Flower may announce one that never comes, because its
    run was broken off meanwhile.
    """
    app, turn = client_app(lambda context: responder), threading.Lock()
    acquire = "/flwr.proto.Runtime/AcquireTask"
    known = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={acquire})
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    asking = _runtime(port, known)
    while supernode.runs:
        try:
            task = asking.AcquireTask(wanted)
            if task.HasField("task") and task.token:
                one = _runtime(port, RuntimeTokenHttpInterceptor(task.token))
                threading.Thread(target=_answer_one, args=(one, app, turn), daemon=True).start()
                continue
        except httpx.HTTPError as error:
            LOGGER.warning("the SuperNode does not answer: %s", error)
        time.sleep(POLL)


def _runtime(port: int, known: Any) -> RuntimeHttpClient:
    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # we say it in our own words
    return RuntimeHttpClient.from_server_address(
        server_address=f"127.0.0.1:{port}",
        insecure=True,  # within this machine
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="fedcluster"), known],
        retry_invoker=tries(1),  # it is this machine, and whether the program runs we see
    )


def _answer_one(client: RuntimeHttpClient, app: ClientApp, turn: threading.Lock) -> None:
    """Answer one question, and tell the SuperNode meanwhile that it is being worked on."""

    def works() -> bool:
        with suppress(httpx.HTTPError):
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    heart = HeartbeatSender(works)
    heart.start()
    try:
        letter, context, _, _ = pull_task_input(client)
        with turn:
            reply = app(letter, context)
        push_message(client, reply, context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    except Exception as error:
        LOGGER.warning("a question was lost, its run may have ended: %s", type(error).__name__)
    finally:
        heart.stop()
        client.close()
