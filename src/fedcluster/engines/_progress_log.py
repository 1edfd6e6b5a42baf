"""Progress of a run, a line of JSON for each event, for whoever watches it."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from fedcluster.core import Answers, Engine, Floats, Introduction, SiteInfo, Task
from fedcluster.engines._recorder import WrappedEngine
from fedcluster.errors import SiteError

PROGRESS = "progress.jsonl"
"""The file of events in the folder of a run."""


def note(path: Path, **event: Any) -> None:
    """Append an event to the file of a run, with the time in seconds since 1970."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**event, "at": time.time()}) + "\n")


class WatchedEngine(WrappedEngine):
    """Engine that asks another one and notes each round as it begins and ends.

    The beginning of a round lists the sites that are asked, and the result of the round before: the
    smallest inertia of its runs, and by how much the centres of that run moved. If too few sites
    answer, the event lists those that did not, and why.

    Parameters
    ----------
    engine : Engine
        The engine that is asked.
    path : Path
        The file of events, which begins anew.
    refusals : sequence of Refusal
        The refusals that the engine below keeps.

    Examples
    --------
    >>> import tempfile
    >>> from fedcluster import Client, Data, LocalEngine
    >>> from fedcluster.algorithms import Lloyd
    >>> from fedcluster.core import State
    >>> sites = LocalEngine([Client("north", Data(np.array([[0.0], [1.0]])))])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, PROGRESS)
    ...     answers = WatchedEngine(sites, path).ask([Task(Lloyd(), State.at([[0.0]]))])
    ...     began, ended = map(json.loads, path.read_text().splitlines())
    >>> began["round"], began["asked"], ended["answered"], ended["missing"]
    (1, ['north'], {'north': 3}, {})
    """

    def __init__(self, engine: Engine, path: Path, refusals: Sequence[Any] = ()) -> None:
        super().__init__(engine)
        self._path, self._refusals = path, refusals
        self._round = 0
        self._before: list[Floats] = []
        path.write_text("", encoding="utf-8")

    def introduce(self, **asked: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return what the sites tell of themselves."""
        with self.failure_noted():
            return super().introduce(**asked)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Ask the sites, and note when and whom, and who answered."""
        _, asked = self._names(sites)
        self._round, known = self._round + 1, len(self._refusals)
        steps = Counter(type(task.step).__name__ for task in tasks)
        note(self._path, round=self._round, asked=asked, tasks=steps, **self._found(tasks))
        with self.failure_noted(round=self._round):
            answers = self._engine.ask(tasks, asked)
        reasons = self._reasons(known)
        sent = Counter[str]()
        for each in answers:
            sent.update(each.values_sent)
        missing = {name: reasons.get(name, "") for name in asked if name not in sent}
        note(self._path, round=self._round, answered=sent, missing=missing)
        return answers

    @contextmanager
    def failure_noted(self, **about: int) -> Iterator[None]:
        """Note the sites that did not answer if a block ends because too few did."""
        known = len(self._refusals)
        try:
            yield
        except SiteError:
            note(self._path, **about, failed=self._reasons(known))
            raise

    def _reasons(self, known: int) -> dict[str, str]:
        """Return why sites were refused since so many refusals were known."""
        return {refusal.site: refusal.reason for refusal in self._refusals[known:]}

    def _found(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """Return the step of most tasks, their smallest inertia, and how far its centres moved.

        The run was that of the round before whose centres are nearest.
        """
        steps = [type(task.step).__name__ for task in tasks]
        most = Counter(steps).most_common(1)[0][0]
        alike = [task for task, step in zip(tasks, steps, strict=True) if step == most]
        known = [task for task in alike if math.isfinite(task.state.inertia)]
        best = min(known, key=lambda task: task.state.inertia, default=None)
        before, self._before = self._before, [task.state.centers for task in tasks]
        if best is None:
            return {"step": most, "inertia": None, "shift": None}
        centers = best.state.centers
        moves = [
            float(np.sqrt(((each - centers) ** 2).sum(axis=1).max()))
            for each in before
            if each.shape == centers.shape and len(centers)
        ]
        shift = min(moves, default=None)
        return {"step": most, "inertia": float(best.state.inertia), "shift": shift}
