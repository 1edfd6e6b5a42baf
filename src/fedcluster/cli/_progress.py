"""Progress of a long job: finished and expected rounds, and the remaining time.

A job ends when it has converged, so its number of rounds is not known in advance. The same job on a
sample of the rows takes about as many, and gives a provisional result within seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Self

import numpy as np

from fedcluster.cli._screen import Doing
from fedcluster.core import Answers, Data, Engine, Task
from fedcluster.engines.wrapped import WrappedEngine
from fedcluster.io.rows import SiteRows
from fedcluster.jobs import Fit, Job, SelectK
from fedcluster.rounds import CommunicationRound
from fedcluster.texts.words import counted

LONG = {"given": 1_000_000, "chosen": 100_000}
"""Number of rows from which on a trial is made, for a given and for a chosen k."""
SAMPLE = 10_000
"""Number of rows of a trial; each site has its share, and at least `FEWEST`."""
FEWEST = 50


class TimedEngine(WrappedEngine):
    """Engine that measures the time of sites and server in each round.

    Parameters
    ----------
    engine : Engine
        The engine that is asked.

    Attributes
    ----------
    after : list of (float, float)
        Total seconds of the sites and the server after each round.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._start, self._at_sites = perf_counter(), 0.0
        self.after: list[tuple[float, float]] = []

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Return the answers of the sites; see `Engine`."""
        start = perf_counter()
        answers = self._engine.ask(tasks, sites)
        self._at_sites += perf_counter() - start
        return answers

    def end_round(self) -> None:
        """Append the total seconds of the sites and the server."""
        server = perf_counter() - self._start - self._at_sites
        self.after.append((self._at_sites, server))


@dataclass(frozen=True, slots=True)
class Trial:
    """Durations of the rounds of a job on a sample of the rows.

    Parameters
    ----------
    after : sequence of (float, float)
        Total seconds of the sites and the server after each round, and at the end.
    """

    after: Sequence[tuple[float, float]]

    @classmethod
    def of(cls, engine: TimedEngine) -> Self:
        """Return the trial that an engine has just run."""
        engine.end_round()
        return cls(tuple(engine.after))

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return len(self.after) - 1

    def seconds_left(self, now: Sequence[tuple[float, float]]) -> float:
        """Return the remaining seconds of a job, from the total seconds after each of its rounds.

        Sites and server are slower or faster than in the trial, each by its own factor.

        Examples
        --------
        >>> trial = Trial([(1.0, 1.0), (2.0, 1.0), (3.0, 1.5)])
        >>> trial.seconds_left([(10.0, 2.0)])
        21.0
        """
        i = min(len(now), self.n_rounds) - 1
        parts = zip(now[-1], self.after[i], self.after[-1], strict=True)
        return sum((whole - then) * is_now / max(then, 1e-9) for is_now, then, whole in parts)


def in_words(seconds: float) -> str:
    """Return a duration as people say it.

    Examples
    --------
    >>> in_words(3.2), in_words(75), in_words(200), in_words(9000)
    ('5 seconds', '1 minute', '3 minutes', '2.5 hours')
    """
    if seconds < 58:
        return f"{max(5, 5 * round(seconds / 5))} seconds"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} minute{'s' if minutes > 1 else ''}"
    return f"{seconds / 3600:.1f} hours"


def watching(
    doing: Doing, engine: TimedEngine, trial: Trial | None = None
) -> Callable[[CommunicationRound], None]:
    """Return a function that shows each finished round of a job, with the time left if known."""

    def show(done: CommunicationRound) -> None:
        engine.end_round()
        n = len(engine.after)
        if trial is None:
            doing(f"round {n} done with {counted(len(done.answered), 'site')}")
        elif n >= trial.n_rounds:
            doing(f"round {n} done, about {trial.n_rounds} were expected")
        else:
            left, so_far = trial.seconds_left(engine.after), sum(engine.after[-1])
            line = f"round {n} of about {trial.n_rounds} done, about {in_words(left)} left"
            doing(line, so_far / (so_far + left))

    return show


def sample_of(job: Job, tables: Mapping[str, SiteRows]) -> dict[str, SiteRows] | None:
    """Return a sample of the rows for a trial of a long job.

    Return None if the job is short, or the rows are not in memory or belong to a site file.
    """
    n_rows = sum(map(len, tables.values()))
    is_given = isinstance(job, Fit) and isinstance(job.n_clusters, int)
    if not isinstance(job, Fit | SelectK) or n_rows < LONG["given" if is_given else "chosen"]:
        return None
    if not all(map(_is_plain, tables.values())):
        return None
    return {name: _sampled(table, SAMPLE / n_rows) for name, table in tables.items()}


def _is_plain(table: SiteRows) -> bool:
    """Return whether rows are in memory, and do not belong to a site file."""
    return isinstance(table.rows, Data) and table.protected is None and table.limits is None


def _sampled(table: SiteRows, share: float) -> SiteRows:
    """Return a reproducible sample of the rows of a site."""
    n = min(len(table), max(FEWEST, round(share * len(table))))
    place = np.sort(np.random.default_rng(0).choice(len(table), n, replace=False))
    return replace(table, rows=table.data.take(place), row_ids=np.asarray(table.row_ids)[place])
