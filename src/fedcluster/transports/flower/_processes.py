"""Starting Flower's programs and ending them: none outlives the one that started it."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException, RemoteDisconnected
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import httpx
from flwr.supercore.retry import RetryInvoker, exponential

from fedcluster.errors import InputError

PATIENCE = 5.0
"""Seconds that a program has to end by itself."""

FAREWELL = re.compile(
    r"Shutting down|Waiting for \w+ shutdown|FastAPI lifespan|\w+ shutdown complete|Finished server"
)
"""What a server says after the reason why it ends."""

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's programs: their files in ``home``, nothing sent elsewhere."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }


def answers(address: str, authority: Path | None) -> bool:
    """Whether a SuperLink answers at an address; False where nobody does.

    Parameters
    ----------
    address : str
        HOST:PORT.
    authority : Path, optional
        The certificate of the authority that must vouch for it; without it nothing is encrypted.

    Raises
    ------
    InputError
        If somebody answers, but not as it should be.
    """
    scheme = "http" if authority is None else "https"
    try:
        context = None if authority is None else ssl.create_default_context(cafile=authority)
        with urlopen(f"{scheme}://{address}/health", timeout=5, context=context) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError, HTTPException) as error:
        why = getattr(error, "reason", error)
        if isinstance(why, ssl.SSLCertVerificationError):
            raise InputError(
                f"the coordinator's certificate is not vouched for by {authority}: another "
                f"answers at {address}, or the site's folder is of another federation"
            ) from error
        if isinstance(why, ssl.SSLError):
            raise InputError(f"the coordinator at {address} does not encrypt: {why}") from error
        if authority is None and isinstance(why, RemoteDisconnected | ConnectionResetError):
            raise InputError(
                f"the coordinator wants an encrypted connection at {address}: write certificate "
                "and key in the site's file, not insecure"
            ) from error
        return False


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def tries(most: int) -> RetryInvoker:
    """How often a Flower program is asked where nobody answers.

    Flower's own patience ends the process that asks, where the answer is 401: a site whose sign
    of life came just after its answer, or belongs to a run that is over, would vanish.
    """
    return RetryInvoker(lambda: exponential(max_delay=20), httpx.TransportError, most, None)


class ManagedProcess:
    """One of Flower's programs while it runs.

    Parameters
    ----------
    name : {"superlink", "supernode"}
    process : Popen
    log : Path
        The file that receives what it prints.
    """

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name, self.process, self.log = name, process, log

    @classmethod
    @contextmanager
    def running(
        cls, name: str, options: Sequence[str], log: Path, home: Path
    ) -> Iterator[ManagedProcess]:
        """Start a program; it is ended with the block."""
        home.mkdir(parents=True, exist_ok=True)
        leash = [
            sys.executable,
            "-m",
            "fedcluster.transports.flower._launcher",
            str(os.getpid()),
            name,
        ]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*leash, *options],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment(home),
                start_new_session=True,  # Ctrl-C is for us, and we end it
            )
        program = cls(name, process, log)
        try:
            yield program
        finally:
            program.end()

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def end(self) -> None:
        """End it, at first by asking."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE)
        if self.runs:
            self.process.kill()
        self.process.wait()
        _end_group(self.process.pid)

    def printed(self) -> str:
        """What it has printed, without colours."""
        with suppress(OSError):
            return COLOURS.sub("", self.log.read_text("utf-8", errors="replace"))
        return ""

    def wait_for(self, text: str, seconds: float) -> bool:
        """Wait until it has printed a text; False if it does not, or ends."""
        end = time.monotonic() + seconds
        while self.runs and time.monotonic() < end:
            if text in self.printed():
                return True
            time.sleep(0.1)
        return text in self.printed()

    def complaint(self) -> str:
        """What it said in the end, in one line."""
        lines = [line.strip() for line in self.printed().splitlines()]
        lines = [re.sub(r"^(INFO|WARNING|ERROR|DEBUG)\s*:\s*", "", line) for line in lines]
        lines = [line for line in lines if line and not FAREWELL.match(line)]
        return " ".join(lines[-4:])[-300:] or "it said nothing"

    def check(self) -> None:
        """Complain if it has ended.

        Raises
        ------
        InputError
            With what it said last and where to read on.
        """
        if not self.runs:
            raise InputError(f"Flower's {self.name} has ended: {self.complaint()}; see {self.log}")


def _end_group(group: int) -> None:
    """End what a program has started and left behind."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, 9)
