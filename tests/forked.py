"""Processes that hold a site's rows, forked from a server that has imported what they need.

That, with the start of numba, takes each a second of its own otherwise. `test_worker` starts them
as sites do.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

from fedcluster.site.process import serve


class Forked:
    """Such a process, with what `Worker` uses of `subprocess.Popen`."""

    def __init__(
        self, command: Sequence[str], pass_fds: Sequence[int], env: Mapping[str, str], **_: Any
    ) -> None:
        with Connection(os.dup(pass_fds[0])) as pipe:
            given = (pipe, command[-1] != "0", os.getcwd(), dict(env))
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
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return context


def _serve(pipe: Connection, bound: bool, folder: str, env: Mapping[str, str]) -> None:
    """Go on as the process of a site begins; its parent, the server, ends with the tests."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:] = env["PYTHONPATH"].split(os.pathsep)
    sys.argv[1:] = [str(pipe.fileno()), str(os.getppid() if bound else 0)]
    serve()
