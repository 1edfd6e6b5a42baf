"""A program that runs commands as on Windows, without what only Linux and macOS have.

What Windows lacks is what typeshed, the types of Python's own library, says.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from functools import partial
from importlib import import_module
from itertools import islice

import numpy as np

MODULES = "crypt curses fcntl grp nis posix pty pwd readline resource spwd syslog termios tty"
NAMES = {
    os: "chown chroot confstr environb fchdir fchmod fchown fdatasync fork forkpty getegid geteuid "
    "getgid getgroups getloadavg getpgid getpgrp getpriority getsid getuid killpg lchown lockf "
    "mkfifo mknod nice openpty pathconf pipe2 posix_spawn pread preadv pwrite pwritev readv "
    "register_at_fork sched_getaffinity sched_setaffinity sendfile setpgid setpriority setsid "
    "setuid statvfs sync sysconf uname wait wait3 wait4 waitid writev O_CLOEXEC O_DIRECTORY "
    "O_DSYNC O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC WNOHANG",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 "
    "SIGWINCH SIGXCPU alarm pthread_kill pthread_sigmask setitimer sigwait",
}
LIBRARIES = "asyncio matplotlib.figure multiprocessing.connection numba pyarrow sklearn.cluster"
"""What finds out on which system it is when it is imported."""

FILES = ("Köln & Süd.csv", "north.csv")
MODEL = "result/model.json"
COMMANDS = [
    ["fit", *FILES, "-k", "1-3", "--profile", "--stability", "--append"],
    ["predict", MODEL, *FILES, "--out", "new"],
    ["select-k", *FILES, "--k-max", "3", "--out", "chosen"],
    ["evaluate", MODEL, *FILES, "--out", "scores"],
    ["profile", MODEL, *FILES, "--out", "profiles"],
    ["check", *FILES],
    ["check", "--help"],
    ["name", MODEL, "0=größer", "1=меньше"],
    ["report", "result"],
    ["audit", "--simulated", "--rows", "50", "--out", "audit"],
    ["warm-up"],
    [],
]
REFUSED = [
    ["site", "start", "site.toml"],
    ["check", "site.toml"],
    ["fit", "site.toml", "-k", "2", "--out", "other"],
    ["federation", "new", "trial", "--sites", "a,b", "--address", "localhost:9443"],
    ["federation", "show", "trial"],
    ["federation", "start", "trial"],
]


def main() -> None:
    """Run the commands of this file as on Windows; print arguments, status, output and errors.

    No text is written or read in the encoding of the system.
    """
    for name in LIBRARIES.split():
        import_module(name)
    for name in MODULES.split():
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in NAMES.items():
        for name in names.split():
            vars(module).pop(name, None)
    warnings.filterwarnings("error", category=EncodingWarning, module="fedcluster")
    from typer.testing import CliRunner

    from fedcluster_app.cli import app

    _hurry()
    for command in [*COMMANDS, *REFUSED]:
        ran = CliRunner(charset="cp1252").invoke(app, command)
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        sys.stdout.write(json.dumps([command, ran.exit_code, ran.stdout, ran.stderr]) + "\n")
    sys.stdout.write(json.dumps(_labels()) + "\n")


def _hurry() -> None:
    """Let what takes long do only a part of it."""
    from searches import shorten

    from fedcluster_app.audit import audit
    from fedcluster_app.cli import _warming as warming

    shorten(setattr)
    played, jobs = partial(audit.audit, attacks=audit.ATTACKS[:4]), warming.jobs
    audit.audit = lambda *given, **more: islice(played(*given, **more), 1)
    warming.jobs = lambda: islice(jobs(), 1)


def _labels() -> list[list[int]]:
    """Return how many rows the clusters of each estimator have."""
    fedcluster = import_module("fedcluster")
    tables = [np.repeat([[0.0], [9.0]], [3, 2], axis=0), np.array([[9.0], [9.0]])]
    return [
        np.bincount(
            np.concatenate(list(estimator(2, random_state=0).fit(tables).site_labels_.values()))
        ).tolist()
        for estimator in (
            fedcluster.FederatedKMeans,
            fedcluster.FederatedFuzzyCMeans,
            fedcluster.FederatedGaussianMixture,
        )
    ]


if __name__ == "__main__":
    main()
