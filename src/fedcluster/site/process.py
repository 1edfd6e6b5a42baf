"""Process of a site that holds its rows and works; it is ended where a question costs too much.

    parent                                    child
    Worker(make, limits)  -- make, limits --> work = make()          with the parent's plugins
    worker(asked)         -- asked ---------> answer = work(asked)   reads rows, as long as it takes
                          <-- result -------- answer()               under the limit of time

The child lives from question to question, so that rows are read and kernels are loaded once. One
that was ended is started anew with the next question. It ends with its parent; a lasting one first
ends the call that it is at.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

from fedcluster.errors import EndedError
from fedcluster.io.plugins import LOADED, load_plugins
from fedcluster.io.records import Positive

with suppress(ModuleNotFoundError):  # Windows has none, and no process of a site
    import resource

Asked = TypeVar("Asked")
Result = TypeVar("Result")

COMMAND = "from fedcluster.site.process import serve; serve()"
OUT_OF_MEMORY = 77
"""Exit status of a child that could have no more memory."""
PATIENCE = 10
"""How many times as long as its processor time a question may take by the clock, for waiting."""
LOWEST = 19
"""How far the priority of a child is lowered that works while nobody waits."""
TOO_EXPENSIVE = "too expensive for the site's limits"
MEGABYTE = 10**6


def _most_memory() -> int:
    """Return three quarters of the memory of this machine, in megabytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4 // MEGABYTE


@dataclass(frozen=True, slots=True)
class Cost:
    """What one question of a coordinator may cost a site; the process that works on it is ended.

    Parameters
    ----------
    seconds : int, default=600
        Processor time, of all cores together.
    memory_mb : int, optional
        Memory in megabytes, with the rows that are held; by default three quarters of what the
        machine has.
    message_mb : int, default=100
        The size of a message in megabytes.
    """

    seconds: Positive = 600
    memory_mb: Positive = field(default_factory=_most_memory)
    message_mb: Positive = 100


class Worker(Generic[Asked, Result]):
    """Function that is carried out in a process of its own, with limits on what a call may cost.

    Parameters
    ----------
    make : callable
        Makes the function, there. That prepares for a call, without a limit of time, and returns
        what carries it out. What it takes, and what comes of it, can be pickled.
    limits : Cost
        What a call may cost.
    lasting : bool, default=False
        Whether a call is finished at the lowest priority, and also after the parent has ended.

    Raises
    ------
    EndedError
        From a call that was ended: by a limit, or by `end`. The next one finds a new process.
    Exception
        What the function raises.
    """

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

    def start(self) -> None:
        """Start the process, where there is none: it is ready when the first call comes."""
        if self._process is not None and self._process.poll() is None:
            return
        self._pipe, theirs = Pipe()
        parent = 0 if self._lasting else os.getpid()  # with whose end the child ends
        self._why = ""
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", COMMAND, str(theirs.fileno()), str(parent)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for the parent, which ends it
            )
        with suppress(OSError):  # one that has ended already is noticed at the answer
            self._pipe.send(LOADED)
            self._pipe.send((self._make, self._limits))

    def __call__(self, request: Asked) -> Result:
        """Return what the function returns."""
        with self._turn:
            self.start()
            assert self._pipe is not None
            try:
                self._pipe.send(request)
                if not self._pipe.poll(PATIENCE * self._limits.seconds):
                    self.end(f"{TOO_EXPENSIVE}: no answer by the clock")
                result, error = self._pipe.recv()
            except (EOFError, OSError):
                raise EndedError(self._reason()) from None
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def end(self, why: str = "the site ends") -> None:
        """End the process at once, from any thread; a call that runs raises an error that says why.

        Parameters
        ----------
        why : str
            The reason, which the coordinator is told.
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
        if code in (OUT_OF_MEMORY, -signal.SIGKILL):
            return f"{TOO_EXPENSIVE}: {self._limits.memory_mb:,} MB of memory"
        return f"{TOO_EXPENSIVE}: its process has ended with status {code}"


def serve() -> None:
    """Work for the parent until it ends: the child's main function."""
    pipe, parent = Connection(int(sys.argv[1])), int(sys.argv[2])
    if parent:
        Thread(target=_end_with, args=[parent], daemon=True).start()
    else:
        os.nice(LOWEST)
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


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(0)


def _limit(kind: int, value: int) -> None:
    """Set a resource limit of this process, unless the machine's is lower; -1 is no limit."""
    _, hard = resource.getrlimit(kind)
    lower = value if hard < 0 else min(value, hard)
    resource.setrlimit(kind, (hard if value < 0 else lower, hard))


def _result(
    work: Callable[[Any], Callable[[], Any]], request: Any, seconds: int
) -> tuple[Any, Exception | None]:
    """Return a function's result or its error; one that cannot travel becomes one of its name."""
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
