"""Client of the interface for operators, for the command line on any machine."""

from __future__ import annotations

import json
import re
import shlex
import ssl
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import msgspec

from fedcluster.core.files import json_text, plain, write_json
from fedcluster.errors import InputError, SiteError, first_cause
from fedcluster.jobs import Job
from fedcluster.model.file import read
from fedcluster.recipes.specifications import RunOptions
from fedcluster.texts import command_line
from fedcluster_app.coordinator.folder import ADDRESS, Federation
from fedcluster_app.coordinator.operators import TOKEN, own_token
from fedcluster_app.coordinator.run_job import MODEL_FILES
from fedcluster_app.coordinator.runs import GOING, OPTIONS, State, check_options, run_folder
from fedcluster_app.records import load_record, record_or
from fedcluster_app.tables.outputs import atomic_folder
from fedcluster_app.trust.findings import unanswered
from fedcluster_app.trust.owned_files import check_private, private_files

REMOTE = "operator.toml"
"""The file in an operator's folder with the coordinator's address."""


RESULTS = "asked"
"""The folder, beside the token, that records where the files of runs are to be written."""

FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\.(json|html|png|csv|svg)")
"""Allowed names of result files."""


class _Remote(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the file that tells an operator how to reach the coordinator."""

    coordinator: str
    certificate: str


@dataclass(frozen=True)
class Coordinator:
    """A coordinator from an operator's point of view.

    Parameters
    ----------
    folder : Path
        The folder of the federation, or of the operator.
    authority : Path
        The certificate of the authority that vouches for it.
    federation : Federation, optional
        The federation, on the coordinator's own machine.
    elsewhere : str
        HOST:PORT, on another machine.
    """

    folder: Path
    authority: Path
    federation: Federation | None = None
    elsewhere: str = ""
    interval = 0.2  # seconds between two checks for an outcome
    farewell = 20.0  # seconds within which a cancelled run informs its sites
    patience = 60.0  # seconds within which an answer must come

    @classmethod
    def at(cls, folder: Path) -> Coordinator:
        """Return the coordinator of a folder: of its federation, or the one in ``operator.toml``.

        Raises
        ------
        InputError
            If the folder is neither.
        """
        if (path := folder / REMOTE).is_file():
            check_private([folder, path])
            remote = load_record(path, _Remote)
            return cls(folder.resolve(), folder / remote.certificate, elsewhere=remote.coordinator)
        federation = Federation.load(folder)
        return cls(federation.folder, federation.authority, federation)

    @cached_property
    def address(self) -> str:
        """The HOST:PORT at which the coordinator listens to operators.

        Raises
        ------
        InputError
            If the coordinator is not started.
        """
        if self.federation is None:
            return self.elsewhere
        listens = record_or(self.federation.file(ADDRESS), dict[str, str], {})
        if "address" not in listens:
            how = command_line("federation", "start", self.folder)
            raise InputError(f"{self.folder} is not started: run {how}")
        return listens["address"]

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        """Return the answer to a request.

        Raises
        ------
        InputError
            If the coordinator refuses it, or cannot be trusted.
        SiteError
            If nobody answers.
        """
        token = own_token(self.folder)
        content = None if body is None else json_text(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            request = self._client.build_request(method, path, content=content, headers=headers)
            if self.federation is not None:  # the certificate need not contain the IP address
                request.extensions["sni_hostname"] = self.federation.host
            answer = self._client.send(request)
        except httpx.TransportError as error:
            if isinstance(cause := first_cause(error), ssl.SSLCertVerificationError):
                raise InputError(
                    f"the coordinator's certificate is not vouched for by {self.authority}: {cause}"
                ) from error
            start = command_line("federation", "start", self.folder)
            is_gone = isinstance(cause, ConnectionRefusedError) and self.federation is not None
            how = f"start it with {start}" if is_gone else "try again, or see its log"
            said = unanswered(error, f"the coordinator at {self.address}")
            raise SiteError(f"{said}; {how}") from error
        if answer.status_code >= 400:
            raise InputError(_complaint(answer))
        return answer

    @cached_property
    def _client(self) -> httpx.Client:
        try:
            trusted = ssl.create_default_context(cafile=self.authority)
        except OSError as error:
            raise InputError(f"{self.authority} holds no certificate: put back a copy") from error
        url = f"https://{self.address}"
        client = httpx.Client(base_url=url, verify=trusted, timeout=self.patience, trust_env=False)
        weakref.finalize(self, client.close)
        return client

    def get(self, path: str) -> dict[str, Any]:
        """Return the answer of the coordinator to a GET request."""
        return dict(self.ask("GET", path).json())

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Post a request and return the answer of the coordinator."""
        return dict(self.ask("POST", path, body or {}).json())

    def begin(self, job: Job, options: RunOptions) -> str:
        """Request a run and return its name."""
        parameters = plain(asdict(job))
        body = {"job": job.kind, "options": {key: getattr(options, key) for key in OPTIONS}}
        # a model is sent with the job; that of a fit is the name of its kind
        held = MODEL_FILES.keys() - ({"model"} if "algorithms" not in parameters else {})
        models = {key: parameters.pop(key, None) for key in sorted(held)}
        body |= {key: read(Path(file)) for key, file in models.items() if file is not None}
        return self._noted(self.post("/runs", {**body, "parameters": parameters}), options.out)

    def resume(self, name: str) -> str:
        """Request that a run is resumed and return its name."""
        return str(self.post(f"/runs/{name}/resume")["run"])

    def answers(self) -> bool:
        """Return whether a coordinator listens."""
        try:
            return self._client.get("/health").status_code == 200
        except (InputError, httpx.TransportError):
            return False

    def forget(self, name: str, site: str, out: Path) -> str:
        """Request a run again as if a site had never been asked; return its name."""
        return self._noted(self.post(f"/runs/{name}/forget", {"site": site}), out)

    def _noted(self, answer: Mapping[str, Any], out: Path) -> str:
        """Record where the files of a run are to be written, for a later resumption."""
        name = str(answer["run"])
        if not re.fullmatch(r"[\w-]+", name):
            raise InputError(f"the coordinator names a run {name!r}")
        with private_files():
            (self.folder / RESULTS).mkdir(exist_ok=True)
            write_json(self.folder / RESULTS / f"{name}.json", {"out": str(out.absolute())})
        return name

    def out_of(self, name: str) -> Path:
        """Return where the files of a run are to be written, as recorded when it began.

        Raises
        ------
        InputError
            If the run was started elsewhere.
        """
        noted = record_or(self.folder / RESULTS / f"{name}.json", dict[str, str], {})
        if "out" not in noted:
            raise InputError(
                f"run {name!r} was not begun here: say with --out where its files belong"
            )
        return Path(noted["out"])

    def wait(self, name: str, out: Path, doing: Callable[[str], None]) -> dict[str, Any]:
        """Wait for a run, fetch its files and return its outcome.

        Raises
        ------
        SiteError
            If the run failed; the message has the reason and advice on how to continue.
        """
        where = command_line("federation", "run", self.folder, "resume", name)
        try:
            while (run := self.get(f"/runs/{name}"))["state"] in GOING:
                doing(str(run["doing"]))
                time.sleep(self.interval)
        except KeyboardInterrupt:
            self._cancel(name, doing)
            raise
        except SiteError as error:
            raise SiteError(f"{error}; then: {where}") from error
        if run["state"] != State.DONE:
            here = f"run {shlex.quote(str(self.folder))} resume"
            raise SiteError(
                f"{run['error']}; {str(run.get('advice', '')).replace('run DIR resume', here)}"
            )
        return self.fetch(run, out)

    def _cancel(self, name: str, doing: Callable[[str], None]) -> None:
        doing("telling the sites that it is cancelled")
        with suppress(InputError, SiteError):
            self.post(f"/runs/{name}/cancel")
            end = time.monotonic() + self.farewell
            while self.get(f"/runs/{name}")["state"] in GOING and time.monotonic() < end:
                time.sleep(self.interval)

    def fetch(self, run: Mapping[str, Any], out: Path) -> dict[str, Any]:
        """Write the files of a finished run, and return its outcome with their location."""
        outcome = dict(run["outcome"])
        files = [str(name) for name in outcome["files"]]
        if odd := [name for name in files if not FILE.fullmatch(name)]:
            raise InputError(f"the coordinator names a file {odd[0]!r}, which is none of a result")
        with atomic_folder(out) as partial:
            for file in files:
                answer = self.ask("GET", f"/runs/{run['name']}/result/{file}")
                (partial / file).write_bytes(answer.content)
        return {**outcome, "out": str(out)}

    def check(self, *, options: RunOptions | None = None, run: str | None = None) -> None:
        """Raise an error, before anything is asked, for invalid options or an unknown run.

        For a coordinator on another machine, its server checks them.
        """
        if self.federation is not None and options is not None:
            check_options(self.federation, options)
        if self.federation is not None and run is not None:
            run_folder(self.federation, run)


def _complaint(answer: httpx.Response) -> str:
    with suppress(ValueError, LookupError, TypeError):
        return str(answer.json()["error"])
    return f"the coordinator answers {answer.status_code}; see its log"


def check_remote(federation: Federation, out: Path) -> None:
    """Raise an error for an operator's folder that could not be used on another machine.

    Raises
    ------
    InputError
        If the folder exists, or the coordinator listens to operators on its own machine only.
    """
    if out.exists():
        raise InputError(f"{out} exists; choose another --out")
    port = federation.service.rpartition(":")[2]
    if port == "0":
        raise InputError(
            f"operators are listened to at {federation.service} only: in "
            f"{federation.file('federation.toml')}, set service to an address that others reach, "
            'such as service = "0.0.0.0:8444", and start the coordinator anew'
        )


@private_files()
def write_remote(federation: Federation, out: Path, token: str) -> None:
    """Write the folder of an operator: the coordinator's address and authority, and the token."""
    host, _, port = federation.service.rpartition(":")
    reached = federation.host if host in {"0.0.0.0", "[::]"} else host
    files = {
        REMOTE: f'coordinator = {json.dumps(f"{reached}:{port}")}\ncertificate = "ca.crt"\n',
        "ca.crt": federation.file("certificates", "ca.crt").read_text("utf-8"),
        TOKEN: f"{token}\n",
    }
    with atomic_folder(out) as partial:
        for name, text in files.items():
            (partial / name).write_text(text, encoding="utf-8")
