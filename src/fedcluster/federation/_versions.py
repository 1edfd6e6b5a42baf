"""Versions of a site's rows: a run is about those that it began with, or about none."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from fedcluster.io._outputs import atomic_write

RUNS = 100
"""Runs whose rows are known, the last ones."""


class Versions:
    """Which version of the rows each of the last runs is about, kept in a file.

    The file outlives the program: a run that goes on after a restart is still about the rows that
    it began with.

    Parameters
    ----------
    path : Path
        The file.
    changed : callable taking a str
        Told the hash of a version that follows another one.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     versions = Versions(Path(folder) / "rows.json", print)
    ...     for run, rows in [("a", "old"), ("b", "new")]:
    ...         versions.begin(run, rows)
    ...     versions.of("a"), versions.of("b"), Versions(versions.path, print).of("a")
    11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437
    ('old', 'new', 'old')
    """

    def __init__(self, path: Path, changed: Callable[[str], object]) -> None:
        self.path, self._changed = path, changed
        self._last, self._runs = _read(path)

    def of(self, run: str) -> str | None:
        """Return the fingerprint of the rows that a run is about, None of one that is not known."""
        return self._runs.get(run)

    def begin(self, run: str, fingerprint: str) -> None:
        """Write down that a run is about rows with a fingerprint."""
        self._runs[run] = fingerprint
        while len(self._runs) > RUNS:
            del self._runs[next(iter(self._runs))]
        before, self._last = self._last, fingerprint
        with atomic_write(self.path) as temporary:
            content = {"last": fingerprint, "runs": self._runs}
            temporary.write_text(json.dumps(content), encoding="utf-8")
        if before not in (None, fingerprint):
            self._changed(sha256(fingerprint.encode()).hexdigest())


def _read(path: Path) -> tuple[str | None, dict[str, str]]:
    """Return the last fingerprint and those of runs; nothing of a file that says nothing."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        content = json.loads(path.read_text("utf-8"))
        runs = {str(run): str(fingerprint) for run, fingerprint in content["runs"].items()}
        return str(content["last"]), runs
    return None, {}
