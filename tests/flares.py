"""A real federation on this machine over NVIDIA FLARE: provisioned, with mutual TLS."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from federations import PATIENCE, Command, RunningFederation

from fedcluster.core.files import write_json
from fedcluster.jobs import Job
from fedcluster.recipes.specifications import RunOptions
from fedcluster_app.coordinator import runs
from fedcluster_app.coordinator.runs import Carrier
from fedcluster_app.transports.flare.coordinator import FlareCarrier, make_kits


class RunningFlare(RunningFederation):
    """The same federation as over Flower, with FLARE's programs."""

    def __init__(self, folder: Path, rows: Mapping[str, np.ndarray]) -> None:
        super().__init__(folder, rows)
        make_kits(self.federation)

    def kit(self, name: str) -> Path:
        return self.site(name) / "flare"

    @property
    def server_kit(self) -> Path:
        return self.folder / "flare" / "server"

    def start(self) -> Command:
        self.coordinator = self.command("flare", "start", self.server_kit, name="start")
        end = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.federation.port)).close()
                return self.coordinator
            assert self.coordinator.process.poll() is None, self.coordinator.said()
            assert time.monotonic() < end
            time.sleep(0.1)

    def join(self, *names: str) -> None:
        for name in names:
            self.sites[name] = self.command("flare", "start", self.kit(name), name=name)
        for name in names:
            self.sites[name].wait_for("Successfully registered client")

    def connected(self) -> set[str]:
        return set(FlareCarrier(self.federation).sites_online())

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


def written(carrier: Carrier, job: Job, options: RunOptions) -> Path:
    """Write a run that is to be handed over in some other way; return its folder."""
    folder = runs.new_run(carrier.federation)
    folder.mkdir(parents=True)
    content = runs.content_of(carrier.federation, folder, job, options)
    write_json(folder / "job.json", {**content, "out": str(options.out)})
    runs.write_job(carrier, folder)
    return folder
