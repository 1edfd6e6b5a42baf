"""Processes that hold a site's rows, forked from a server that has imported what they need.

That, with the start of numba, takes each a second of its own otherwise. `test_worker` starts them
as sites do. Commands that need a process of their own are forked likewise.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from fedcluster_app.site.process import serve


class Forked:
    """Such a process, with what `Worker` uses of `subprocess.Popen`."""

    def __init__(
        self, command: Sequence[str], pass_fds: Sequence[int], env: Mapping[str, str], **_: Any
    ) -> None:
        with Connection(os.dup(pass_fds[0])) as pipe:
            given = (pipe, command[-1], os.getcwd(), dict(env))
            self._process = _server(env["PYTHONPATH"]).Process(target=_serve, args=given)
            self._process.daemon = True
            self._process.start()

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def wait(self) -> int:
        self._process.join()
        code: int = self._process.exitcode
        return code

    def kill(self) -> None:
        self._process.kill()


def run_command(*arguments: str, folder: Path | None = None, path: str = "") -> Any:
    """Return the status and the output of a command, which looks for modules in a path, too."""
    if os.name != "posix":
        program = Path(sys.executable).with_name("fedcluster")
        env = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(
            [program, *arguments], text=True, capture_output=True, cwd=folder, env=env
        )
    with TemporaryDirectory() as made:
        said = [Path(made, name) for name in ("stdout", "stderr")]
        given = (arguments, str(folder or Path.cwd()), path, [*map(str, said)])
        looked = os.pathsep.join(filter(None, sys.path))
        process = _server(looked).Process(target=_command, args=given)
        process.start()
        process.join()
        stdout, stderr = (each.read_text("utf-8") for each in said)
    return SimpleNamespace(returncode=process.exitcode, stdout=stdout, stderr=stderr)


def _command(arguments: Sequence[str], folder: str, path: str, said: Sequence[str]) -> None:
    from fedcluster_app.cli import app

    for stream, name in enumerate(said, 1):
        os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600), stream)
    if path:
        sys.path.insert(0, path)
    sys.argv[:] = ["fedcluster", *arguments]
    with chdir(folder):
        app()


@cache
def _server(path: str) -> Any:
    """Return what starts processes; it imports the module of the call below, and so this one."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = path  # what it imports at its start it looks for there only
    try:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["forked_modules"])
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH", None)  # two threads may begin at once
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return context


def _serve(pipe: Connection, last: str, folder: str, env: Mapping[str, str]) -> None:
    """Go on as the process of a site begins; its parent, the server, ends with the tests."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:] = env["PYTHONPATH"].split(os.pathsep)
    sys.argv[1:] = [str(pipe.fileno()), str(os.getppid()), last]
    serve()
