"""Run the tests nearest to a file, for as long as a person waits: ``make near FILE=...``.

    .venv/bin/python benchmarks/near.py src/fedcluster/recipes/robust.py

A file of the package is tried by its doctests and by the tests of its room, one of tests/ by
itself. When tests have run for 15 seconds no further one begins; the last line says how many were
not run. Tests marked ``long`` or ``network`` are left to `make long` and `make network`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mutants import PACKAGE, ROOT, tests_of

SECONDS = 15.0
"""How long tests may begin; to collect them takes some seconds more."""


class Hurry:
    """Plugin of pytest that lets no test begin once the time is over."""

    end = 0.0
    left_out = 0

    def pytest_collection_finish(self) -> None:
        """Let the time begin."""
        self.end = time.monotonic() + SECONDS

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool | None:
        """Pass over a test that would begin too late."""
        if time.monotonic() < self.end:
            return None
        self.left_out += 1
        return True

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how many tests were not run."""
        if self.left_out:
            terminalreporter.line(f"{self.left_out} tests were not run: {SECONDS:.0f} s were over")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests and return the exit status of pytest."""
    files = list(sys.argv[1:] if arguments is None else arguments)
    if not files:
        print("Name a file: make near FILE=src/fedcluster/rounds.py", file=sys.stderr)
        return 2
    chosen: list[str] = []
    for file in files:
        path = Path(file).resolve()
        if not path.is_file():
            print(f"{file} is not there: name a file of src/ or tests/", file=sys.stderr)
            return 2
        inside = path.relative_to(ROOT).as_posix()
        if inside.startswith(PACKAGE):
            chosen += [inside, *tests_of(inside.removeprefix(f"{PACKAGE}/"))]
        else:
            chosen.append(inside)
    options = ["-x", "-q", "-m", "not network and not long", f"--rootdir={ROOT}"]
    found = [str(ROOT / each) for each in dict.fromkeys(chosen) if (ROOT / each).is_file()]
    return int(pytest.main([*options, *found], plugins=[Hurry()]))


if __name__ == "__main__":
    sys.exit(main())
