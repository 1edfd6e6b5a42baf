"""The same conditions for every library whose time is measured: threads, and BLAS as it is.

A script calls `start` first, which runs it again in a clean environment where it has to, and
prints `conditions`, which refuses to go on where a library runs on another number of threads.
"""

from __future__ import annotations

import os
import sys

from threadpoolctl import threadpool_info

from fedcluster.core.threads import thread_count

HOLD_DOWN = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_DEBUG_CPU_TYPE", "OMP_THREAD_LIMIT"}
"""Variables that slow some libraries and not others."""

COUNTS = {f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "FEDCLUSTER")}


def start(threads: int) -> None:
    """Run this script again, unless its environment gives all libraries the same conditions."""
    fair = {name: value for name, value in os.environ.items() if name not in HOLD_DOWN}
    fair |= dict.fromkeys(COUNTS, str(threads))
    if fair != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], fair)


def conditions(threads: int) -> str:
    """Return a line of the threads and the BLAS kernels of all libraries that are loaded.

    Raises
    ------
    SystemExit
        If one of them runs on another number of threads.
    """
    libraries, ours = threadpool_info(), thread_count()
    counts = {each["prefix"]: each["num_threads"] for each in libraries} | {"ours": ours}
    if other := {name: n for name, n in counts.items() if n != threads}:
        raise SystemExit(f"not all on {threads} threads, so no ratio would be fair: {other}")
    kernels = {
        f"{each['prefix']} {each['architecture']}" for each in libraries if "architecture" in each
    }
    return f"{threads} threads for all; {', '.join(sorted(kernels))}"
