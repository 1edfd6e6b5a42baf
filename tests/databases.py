"""A PostgreSQL server of the tests' own: started, reached over loopback, stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ports import free_port

PASSWORD = "s3cr3t:/@%w rd"
"""With all that a URL gives a meaning to."""


@dataclass
class Server:
    """A running server, its port, and how to stop and start it."""

    programs: Path
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://fed:${{FED_PASSWORD}}@127.0.0.1:{self.port}/postgres"

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(
            f"host=127.0.0.1 port={self.port} user=fed dbname=postgres",
            password=PASSWORD,
            autocommit=True,
        )

    def execute(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement)

    def start(self) -> None:
        import psycopg

        command: list[Any] = [self.programs / "postgres", "-D", self.folder / "data"]
        command += ["-p", str(self.port)]
        for option in ("fsync=off", "listen_addresses=127.0.0.1", "unix_socket_directories="):
            command += ["-c", option]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **_unprivileged())
        for _ in range(200):
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                time.sleep(0.1)
        raise RuntimeError((self.folder / "log").read_text())

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)  # a fast shutdown: ends all sessions
            self.process.wait(30)
            self.process = None


def programs() -> Path | None:
    """The folder of PostgreSQL's programs."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("initdb"):
        folders.insert(0, Path(found).resolve().parent)
    return next((f for f in folders if (f / "postgres").exists()), None)


@contextmanager
def running() -> Iterator[Server]:
    """A fresh server, which is gone with all its files at the end."""
    folder = Path(tempfile.mkdtemp(prefix="fedcluster-postgres-", dir="/tmp"))
    found = programs()
    assert found
    server = Server(found, folder, free_port())
    try:
        (folder / "password").write_text(PASSWORD)
        if user := _unprivileged().get("user"):
            shutil.chown(folder, user)
            shutil.chown(folder / "password", user)
        command: list[Any] = [
            found / "initdb", "-D", folder / "data", "-U", "fed", "-A", "scram-sha-256", "-N",
            f"--pwfile={folder / 'password'}", "--encoding=UTF8", "--no-locale",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, cwd="/", **_unprivileged())
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then it runs as another user."""
    if os.geteuid() != 0:
        return {}
    import pwd  # not on Windows

    names = {user.pw_name for user in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": user.pw_name, "group": user.pw_gid, "extra_groups": []}
