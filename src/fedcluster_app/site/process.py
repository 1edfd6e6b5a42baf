"""Process of a site that holds its rows and works; it is ended if a question costs too much.

    parent                                    child
    Worker(make, limits)  -- make, limits --> work = make()          with the parent's plugins
    worker(asked)         -- asked ---------> answer = work(asked)   reads rows, as long as it takes
                          <-- result -------- answer()               under the limit of time

The child starts with the first question and persists, so that rows are read and kernels are loaded
only once; an hour without a question ends it. If it was ended, the next question restarts it. It
ends with its parent; a lasting one outlives it by a present call, and the program for which the
parent works by at most `LAST` seconds.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from threading import Lock, Timer
from typing import Any, Generic, TypeVar

from fedcluster.errors import EndedError
from fedcluster_app.records import Positive
from fedcluster_app.tables.plugins import LOADED, load_plugins
from fedcluster_app.trust.owned_files import ORPHAN, end_after, end_with, program

with suppress(ModuleNotFoundError):  # the module does not exist on Windows, where sites do not run
    import resource

Asked = TypeVar("Asked")
Result = TypeVar("Result")

COMMAND = "from fedcluster_app.site.process import serve; serve()"
OUT_OF_MEMORY = 77
"""Exit status of a child that ran out of memory."""
LAST = 0.8 * ORPHAN
"""Seconds within which a lasting child finishes its call after the program has ended."""
TOO_EXPENSIVE = "too expensive for the site's limits"
MEGABYTE = 10**6


def _most_memory() -> int:
    """Return three quarters of this machine's memory in megabytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4 // MEGABYTE


@dataclass(frozen=True, slots=True)
class Cost:
    """Largest cost of a question at a site; a process that exceeds it is ended.

    Parameters
    ----------
    seconds : int, default=600
        Processor time in seconds, over all cores.
    memory_mb : int, optional
        Memory in megabytes, including the rows; by default three quarters of the machine's memory.
    message_mb : int, default=100
        The size of a message in megabytes.
    """

    seconds: Positive = 600
    memory_mb: Positive = field(default_factory=_most_memory)
    message_mb: Positive = 100


class Worker(Generic[Asked, Result]):
    """Function that runs in a separate process, with limits on the cost of a call.

    Parameters
    ----------
    make : callable
        Creates the function in the process. The function prepares a call, without a limit on time,
        and returns what carries it out. Arguments and results must be picklable.
    limits : Cost
        The limits on a call.
    lasting : bool, default=False
        Whether calls run at the lowest priority and are finished after the parent has ended, if
        its `program` goes on.

    Raises
    ------
    EndedError
        If a call was ended by a limit or by `end`. The next call gets a new process.
    Exception
        Any error of the function.
    """

    patience = 10
    """Largest ratio of a question's elapsed time to its processor time, to allow for waiting."""

    idle = 3600.0
    """Seconds without a call after which the process is ended, to give its memory back."""

    def __init__(
        self,
        make: Callable[[], Callable[[Asked], Callable[[], Result]]],
        limits: Cost,
        *,
        lasting: bool = False,
    ) -> None:
        self._make, self._limits, self._lasting = make, limits, lasting
        self._turn, self._why = Lock(), ""
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._rest = Timer(0, self.end)

    def _start(self) -> None:
        """Start the process if there is none."""
        if self._process is not None and self._process.poll() is None:
            return
        self._pipe, theirs = Pipe()
        ends_with = (program(), LAST) if self._lasting else (os.getpid(), 0)
        self._why = ""
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", COMMAND, *map(str, (theirs.fileno(), *ends_with))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                # Ctrl-C should reach only the parent, which then ends the child
                start_new_session=True,
            )
        with suppress(OSError):  # if the process has already ended, reading the answer fails
            self._pipe.send(LOADED)
            self._pipe.send((self._make, self._limits))

    def __call__(self, request: Asked) -> Result:
        """Return the result of the function."""
        self._rest.cancel()
        with self._turn:
            self._start()
            assert self._pipe is not None
            try:
                self._pipe.send(request)
                if not self._pipe.poll(self.patience * self._limits.seconds):
                    self.end(f"{TOO_EXPENSIVE}: no answer by the clock")
                result, error = self._pipe.recv()
            except (EOFError, OSError):
                raise EndedError(self._reason()) from None
            finally:
                self._rest = Timer(self.idle, self._end_idle)
                self._rest.daemon = True
                self._rest.start()
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _end_idle(self) -> None:
        with self._turn:  # a call that has come meanwhile is finished
            self.end("the site was not asked for a long time")

    def end(self, why: str = "the site ends") -> None:
        """End the process at once, from any thread; an active call raises an error with the reason.

        Parameters
        ----------
        why : str
            The reason, which is sent to the coordinator.
        """
        if self._process is not None:
            self._why = why
            self._process.kill()
            self._process.wait()

    def _reason(self) -> str:
        """Return why the process has ended."""
        assert self._process is not None
        code = self._process.wait()
        if self._why:
            return self._why
        if code == -signal.SIGXCPU:
            return f"{TOO_EXPENSIVE}: {self._limits.seconds} s of processor time"
        if code == OUT_OF_MEMORY:
            return f"{TOO_EXPENSIVE}: {self._limits.memory_mb:,} MB of memory"
        if code == -signal.SIGKILL:
            return (
                "the site's process that computes was killed, by a person or by its system, whose "
                "log then says that memory ran out; ask again"
            )
        return f"the site's process that computes has ended with status {code}; ask again"


def serve() -> None:
    """Work for the parent until it ends; this is the child's main function."""
    pipe, parent, last = Connection(int(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3])
    if last:
        os.nice(19)  # Amount by which the priority of a child is lowered while nobody waits for it.
        end_after(parent, last)
    else:
        end_with(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(EOFError, OSError):
        try:
            load_plugins(pipe.recv())
            make, limits = pipe.recv()
            _limit(resource.RLIMIT_DATA, limits.memory_mb * MEGABYTE)
            work = make()
            while True:
                request = pipe.recv()
                pipe.send(_result(work, request, limits.seconds))
                del request
        except MemoryError:
            os._exit(OUT_OF_MEMORY)


def _limit(kind: int, value: int) -> None:
    """Set a resource limit of this process, unless the machine's is lower; -1 means no limit."""
    _, hard = resource.getrlimit(kind)
    lower = value if hard < 0 else min(value, hard)
    resource.setrlimit(kind, (hard if value < 0 else lower, hard))


def _result(
    work: Callable[[Any], Callable[[], Any]], request: Any, seconds: int
) -> tuple[Any, Exception | None]:
    """Return a function's result or error; one that cannot be pickled is replaced by its name."""
    try:
        _limit(resource.RLIMIT_CPU, -1)
        answer = work(request)
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + seconds + 1)
        return answer(), None
    except MemoryError:
        raise
    except Exception as error:
        error.add_note(traceback.format_exc())
        with suppress(Exception):
            pickle.loads(pickle.dumps(error))
            return None, error
        return None, RuntimeError(f"{type(error).__name__}: {error}")
