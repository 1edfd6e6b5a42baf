"""What a federation can be asked to do: each job is a plan and the files that come of it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np

from fedcluster.core import Answers, Result, Site, State, Task
from fedcluster.data.outputs import json_text
from fedcluster.data.tables import InputError
from fedcluster.engines.remote import Refusal
from fedcluster.model import Model
from fedcluster.preparation import Findings, Preparation, Prepare, in_words
from fedcluster.recipes import Choice, clustering
from fedcluster.recipes.evaluation import evaluation
from fedcluster.report import plain
from fedcluster.rounds import Outcome, Plan
from fedcluster.selection.choosing import choosing
from fedcluster.selection.verdict import Selection

__all__ = ["JOBS", "Account", "Evaluate", "Fit", "Job", "SelectK", "job_of", "noted"]

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
    preparation : Preparation, optional
        What was done to the rows.
    findings : Findings
        What was met while it was fitted.
    """

    outcome: Outcome[Any]
    columns: tuple[str, ...]
    sites: tuple[Site, ...]
    weights: Mapping[str, float]
    steps: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    preparation: Preparation | None = None
    findings: Findings = field(default_factory=Findings)


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

    @property
    def preparing(self) -> Prepare | Preparation | None:
        """How rows are prepared: what is to be fitted, what was fitted, or not at all."""
        ...

    def check(self, rows: float) -> None:
        """Refuse what makes no sense for so many rows of all sites together."""
        ...

    def plan(self) -> Plan[Any]:
        """What to ask about the prepared rows."""
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
    prepare: Prepare | None = None

    @property
    def preparing(self) -> Prepare | None:
        """What is to be fitted before."""
        return self.prepare

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
                seed=_drawn(self.seed),
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
            preparation=account.preparation,
        ).save(folder / "model.json")
        summary = self._summary(result, account)
        history = {"format": "fedcluster-federation", "format_version": 1, **summary}
        history["history"] = plain(result.history)
        history["exchanges"] = account.outcome.account()
        (folder / "history.json").write_text(json_text(history), encoding="utf-8")
        return summary

    def _summary(self, result: Result, account: Account) -> dict[str, Any]:
        return {
            "n_clusters": self.n_clusters,
            "algorithm": self.algorithm,
            "columns": list(account.columns),
            "seed": self.seed,
            "stop_reason": result.reason,
            "inertia": plain(result.state.inertia),
            "weights": result.state.weights.tolist(),
            **_prepared(self.prepare, account),
            **_common(account),
        }


def _prepared(prepare: Prepare | None, account: Account) -> dict[str, Any]:
    """What is told of a preparation: sentences, and the same for programs."""
    if prepare is None or account.preparation is None:
        return {}
    found = account.findings
    return {
        "prepared": in_words(prepare, account.preparation, found),
        "preparation": {
            "missing": plain(found.missing),
            "left_out": plain(found.left_out),
            "pooled": plain(found.pooled),
            "only_at": [[*key, site] for key, site in found.only_at.items()],
        },
    }


def _drawn(seed: int) -> int:
    """The seed that an estimator draws from its own."""
    return int(np.random.RandomState(seed).randint(2**31 - 1))


def _common(account: Account) -> dict[str, Any]:
    """What is told of every job: rounds, sites, who was missing."""
    sent = account.outcome.numbers_sent()
    return {
        "rounds": len(account.outcome.exchanges),
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


@dataclass(frozen=True, slots=True)
class SelectK:
    """Say how many clusters there are; all numbers are tried in the same rounds."""

    k_min: int = 1
    k_max: int = 12
    participation: float = 1.0
    seed: int = 0
    prepare: Prepare | None = None

    @property
    def preparing(self) -> Prepare | None:
        """What is to be fitted before."""
        return self.prepare

    def check(self, rows: float) -> None:
        """Refuse more clusters than rows."""
        Fit(self.k_max).check(rows)

    def plan(self) -> Plan[Selection]:
        """The same as of ``fedcluster select-k``."""
        return choosing(
            range(self.k_min, self.k_max + 1), Choice(self.k_max, seed=_drawn(self.seed))
        )

    def write(self, folder: Path, account: Account) -> dict[str, Any]:
        """``selection.json``: the verdict, its reason, and all indices for each number."""
        found: Selection = account.outcome.value
        told = {
            "n_clusters": found.n_clusters,
            "reason": found.reason,
            "doubts": list(found.warnings),
            "says": dict(found.says),
            "scores": {str(k): plain(dict(scores)) for k, scores in found.table.items()},
            **_prepared(self.prepare, account),
            **_common(account),
        }
        content = {"format": "fedcluster-federated-selection", "format_version": 1, **told}
        (folder / "selection.json").write_text(json_text(content), encoding="utf-8")
        return told


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Say how good the clusters of a model are, by every index that needs no labels.

    Parameters
    ----------
    model : str
        The model's file, on the coordinator's machine.
    """

    model: str
    participation: float = 1.0
    seed: int = 0

    @property
    def preparing(self) -> Preparation | None:
        """What the model does to rows."""
        return Model.load(self.model).preparation

    def check(self, rows: float) -> None:
        """Any number of rows will do."""

    def plan(self) -> Plan[dict[str, float]]:
        """Two rounds."""
        model = Model.load(self.model)
        fuzzifier = model.algorithm.get("m")
        return evaluation(State(model.centers, model.weights), m=fuzzifier, seed=self.seed)

    def write(self, folder: Path, account: Account) -> dict[str, Any]:
        """``scores.json``: the indices of all sites together."""
        told = {"scores": plain(account.outcome.value), "model": self.model, **_common(account)}
        content = {"format": "fedcluster-federated-scores", "format_version": 1, **told}
        (folder / "scores.json").write_text(json_text(content), encoding="utf-8")
        return told


JOBS: Mapping[str, type[Any]] = MappingProxyType(
    {"fit": Fit, "select-k": SelectK, "evaluate": Evaluate}
)
"""The jobs by their names."""


def job_of(content: Mapping[str, Any]) -> Job:
    """The job that ``job.json`` holds."""
    parameters = dict(content["parameters"])
    if parameters.get("prepare") is not None:
        parameters["prepare"] = Prepare(**parameters["prepare"])
    job: Job = JOBS[content["job"]](**parameters)
    return job


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
