"""Flower's programs as processes that end with the one that started them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster.transports.flower import _launcher as launcher
from fedcluster.transports.flower._log_patterns import COLOURS, reason_of_end

PATIENCE = 5.0
"""Seconds that a program has to end by itself."""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's programs: their files in ``home``, nothing sent elsewhere.

    Nobody but a proxy on this machine may say for whom it asks: the guard of the SuperLink
    believes that.
    """
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FORWARDED_ALLOW_IPS": "127.0.0.1",
    }


class ManagedProcess:
    """One of Flower's programs while it runs.

    Parameters
    ----------
    name : {"superlink", "supernode"}
        Which program.
    process : Popen
        Its process.
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
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-P", launcher.__file__, str(os.getpid()), name, *options],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment(home),
                start_new_session=True,  # Ctrl-C is for us, and we end it
            )
        try:
            yield cls(name, process, log)
        finally:
            _end(process)

    @property
    def runs(self) -> bool:
        """Return whether it has not ended."""
        return self.process.poll() is None

    def printed(self) -> str:
        """Return what it has printed, without colours."""
        with suppress(OSError):
            return COLOURS.sub("", self.log.read_text("utf-8", errors="replace"))
        return ""

    def complaint(self) -> str:
        """Return what it printed in the end, in one line."""
        return reason_of_end(self.printed())

    def check(self) -> None:
        """Complain if it has ended.

        Raises
        ------
        InputError
            With what it said last and where to read on.
        """
        if not self.runs:
            raise InputError(f"Flower's {self.name} has ended: {self.complaint()}; see {self.log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, at first by asking, and whatever it has started and left behind."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, 9)
    process.wait()
