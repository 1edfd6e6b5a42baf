"""What a federation can be asked to do: each job is a plan and the files that come of it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np

from fedcluster.core import Answers, Result, Site, Task
from fedcluster.data.outputs import json_text
from fedcluster.data.tables import InputError
from fedcluster.engines.remote import Refusal
from fedcluster.model import Model
from fedcluster.recipes import Choice, clustering
from fedcluster.report import plain
from fedcluster.rounds import Outcome, Plan

__all__ = ["JOBS", "Account", "Fit", "Job", "noted"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """What came of a job.

    Parameters
    ----------
    outcome : Outcome
        What the plan returned.
    columns : tuple of str
        The columns that were asked about.
    sites : tuple of Site
        Who was asked, with their limits.
    weights : mapping of str to float
        What the rows of each site weigh, as it told.
    steps : tuple of str
        What was asked, each once.
    refusals : tuple of Refusal
        Who is missing in which exchange.
    """

    outcome: Outcome[Any]
    columns: tuple[str, ...]
    sites: tuple[Site, ...]
    weights: Mapping[str, float]
    steps: tuple[str, ...]
    refusals: tuple[Refusal, ...]


class Job(Protocol):
    """A frozen dataclass of scalars, so that it can be written down and resumed."""

    @property
    def seed(self) -> int:
        """Makes every random choice."""
        ...

    @property
    def participation(self) -> float:
        """The fraction of the sites that is asked in a round."""
        ...

    def check(self, rows: float) -> None:
        """Refuse what makes no sense for so many rows of all sites together."""
        ...

    def plan(self) -> Plan[Any]:
        """What to ask."""
        ...

    def write(self, folder: Path, account: Account) -> dict[str, Any]:
        """Write files into a folder; returns what there is to show.

        A ``model.json`` among them is given to every site.
        """
        ...


@dataclass(frozen=True, slots=True)
class Fit:
    """Find clusters; the parameters of `FederatedKMeans` and, with ``m``, of the fuzzy one.

    What a site holds back is not among them: it is the site's.
    """

    n_clusters: int
    algorithm: str = "auto"
    init: str = "auto"
    n_init: int | None = None
    max_iter: int = 300
    tol: float = 1e-4
    quality: str = "good"
    sums_only: bool = False
    m: float | None = None
    participation: float = 1.0
    seed: int = 0

    def check(self, rows: float) -> None:
        """Refuse more clusters than rows."""
        if self.n_clusters > rows:
            raise InputError(
                f"{self.n_clusters} clusters are more than the rows that the sites tell of "
                f"({rows:g}); ask for fewer"
            )

    def plan(self) -> Plan[Result]:
        """The same as an estimator's, with the same random numbers."""
        return clustering(
            Choice(
                n_clusters=self.n_clusters,
                algorithm=self.algorithm,
                init=self.init,
                n_init=self.n_init,
                tol=self.tol,
                max_rounds=self.max_iter,
                seed=int(np.random.RandomState(self.seed).randint(2**31 - 1)),
                quality=self.quality,
                sums_only=self.sums_only,
                m=self.m,
            )
        )

    def write(self, folder: Path, account: Account) -> dict[str, Any]:
        """``model.json`` and ``history.json``; the labels are written at the sites."""
        result: Result = account.outcome.value
        chosen = {name: value for name, value in asdict(self).items() if value is not None}
        del chosen["seed"]
        Model(
            centers=result.state.centers,
            weights=result.state.weights,
            columns=account.columns,
            algorithm={"name": chosen.pop("algorithm"), **chosen, "steps": list(account.steps)},
            sites=account.sites,
            rounds=len(account.outcome.exchanges),
            inertia=result.state.inertia,
            seed=self.seed,
        ).save(folder / "model.json")
        summary = self._summary(result, account)
        history = {"format": "fedcluster-federation", "format_version": 1, **summary}
        history["history"] = plain(result.history)
        (folder / "history.json").write_text(json_text(history), encoding="utf-8")
        return summary

    def _summary(self, result: Result, account: Account) -> dict[str, Any]:
        sent = account.outcome.numbers_sent()
        return {
            "n_clusters": self.n_clusters,
            "algorithm": self.algorithm,
            "columns": list(account.columns),
            "seed": self.seed,
            "rounds": len(account.outcome.exchanges),
            "stop_reason": result.reason,
            "inertia": plain(result.state.inertia),
            "weights": result.state.weights.tolist(),
            "sites": [
                {
                    "name": site.name,
                    "weight": account.weights.get(site.name),
                    "limits": list(site.limits),
                    "numbers_sent": sent.get(site.name, 0),
                }
                for site in account.sites
            ],
            "missing": [plain(refusal) for refusal in account.refusals],
        }


JOBS: Mapping[str, type[Any]] = MappingProxyType({"fit": Fit})
"""The jobs by their names."""


def noted(plan: Plan[T], steps: dict[str, None]) -> Generator[list[Task], list[Answers], T]:
    """The same plan; every step that it asks is noted."""
    answers: list[Answers] | None = None
    while True:
        try:
            tasks = next(plan) if answers is None else plan.send(answers)
        except StopIteration as stop:
            found: T = stop.value
            return found
        steps |= dict.fromkeys(repr(task.step) for task in tasks)
        answers = yield tasks
