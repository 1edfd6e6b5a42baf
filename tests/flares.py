"""A real federation on this machine over NVIDIA FLARE: provisioned, with mutual TLS."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from federations import Command, RunningFederation
from ports import free_port

from fedcluster_app.transports.flare.coordinator import make_kits


class RunningFlare(RunningFederation):
    """The same federation as over Flower, with FLARE's programs."""

    def __init__(self, folder: Path, rows: Mapping[str, np.ndarray]) -> None:
        super().__init__(folder, rows)
        make_kits(self.federation)
        toml = self.folder / "federation.toml"  # operators elsewhere need a port that stays
        toml.write_text(toml.read_text().replace("127.0.0.1:0", f"127.0.0.1:{free_port()}"))

    def kit(self, name: str) -> Path:
        return self.site(name) / "flare"

    @property
    def server_kit(self) -> Path:
        return self.folder / "flare" / "server"

    def join(self, *names: str) -> None:
        self.start_sites(*names)
        for name in names:
            self.sites[name].wait_for("Successfully registered client")

    def kill(self, command: Command) -> None:
        """All at once, as a machine that loses its power."""
        for pid in self.programs(command):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        command.process.wait()


@contextmanager
def flare(folder: Path, rows: Mapping[str, np.ndarray]) -> Iterator[RunningFlare]:
    """A running federation with all its sites; whatever happens, nothing of it is left."""
    running = RunningFlare(folder, rows)
    try:
        running.start()
        running.join(*rows)
        yield running
    finally:
        running.end()
        for pid in running.left_over(20):
            os.kill(pid, signal.SIGKILL)
