"""What a federation can be asked to do: each job is a plan and the files that come of it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np

from fedcluster.core import Answers, Engine, Result, SiteInfo, State, Task
from fedcluster.errors import InputError
from fedcluster.federation._accounts import JobReport
from fedcluster.io._outputs import json_text
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.recipes import FitSpec, clustering
from fedcluster.recipes._evaluation import evaluation
from fedcluster.report import plain
from fedcluster.rounds import Plan
from fedcluster.selection import Rule, Selection, clustered_by, select_k_plan

T = TypeVar("T")


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
    def preparing(self) -> PreprocessingSpec | Preprocessor | None:
        """How rows are prepared: what is to be fitted, what was fitted, or not at all."""
        ...

    def settled(self, rows: float, columns: Sequence[str], engine: Engine) -> Job:
        """The job as it is carried out, once the sites have told what they hold.

        Parameters
        ----------
        rows : float
            Of all sites together, as far as they tell.
        columns : sequence of str
            Those that are asked about, where rows are taken as they are.
        engine : Engine
            Who is asked what else there is to know.

        Raises
        ------
        InputError
            If the job makes no sense for these sites.
        """
        ...

    def plan(self, sites: Sequence[SiteInfo]) -> Plan[Any]:
        """What to ask these sites about the prepared rows."""
        ...

    def write(self, folder: Path, account: JobReport) -> dict[str, Any]:
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
    prepare: PreprocessingSpec | None = None

    @property
    def preparing(self) -> PreprocessingSpec | None:
        """What is to be fitted before."""
        return self.prepare

    def settled(self, rows: float, columns: Sequence[str], engine: Engine) -> Fit:
        """The same; refuses more clusters than rows."""
        _check_rows(self.n_clusters, rows)
        return self

    def plan(self, sites: Sequence[SiteInfo]) -> Plan[Result]:
        """The same as an estimator's, with the same random numbers."""
        return clustering(
            FitSpec(
                n_clusters=self.n_clusters,
                algorithm=self.algorithm,
                init=self.init,
                n_init=self.n_init,
                tol=self.tol,
                max_rounds=self.max_iter,
                seed=drawn(self.seed),
                quality=self.quality,
                sums_only=self.sums_only,
                m=self.m,
            ).at(sites)
        )

    def write(self, folder: Path, account: JobReport) -> dict[str, Any]:
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
            rounds=len(account.outcome.communication_rounds),
            inertia=result.state.inertia,
            seed=self.seed,
            preprocessor=account.preprocessor,
        ).save(folder / "model.json")
        summary = self._summary(result, account)
        history = {**summary, "history": plain(result.history)}
        _write(folder / "history.json", "fedcluster-federation", history, account)
        return summary

    def _summary(self, result: Result, account: JobReport) -> dict[str, Any]:
        return {
            "n_clusters": self.n_clusters,
            "algorithm": self.algorithm,
            "columns": list(account.columns),
            "seed": self.seed,
            "stop_reason": result.reason,
            "inertia": plain(result.state.inertia),
            "weights": result.state.weights.tolist(),
            **account.of_preprocessing(self.prepare),
            **account.of_sites(),
        }


def _write(path: Path, kind: str, told: Mapping[str, Any], account: JobReport) -> None:
    """Write what is told of a job, and every round that it took."""
    content = {"format": kind, "format_version": 1, **told}
    content["communication_rounds"] = account.outcome.account()
    path.write_text(json_text(content), encoding="utf-8")


def _check_rows(k: int, rows: float) -> None:
    """Refuse more clusters than rows."""
    if k > rows:
        raise InputError(
            f"{k} clusters are more than the rows that the sites tell of ({rows:g}); ask for fewer"
        )


def drawn(seed: int) -> int:
    """The seed that an estimator draws from its own."""
    return int(np.random.RandomState(seed).randint(2**31 - 1))


@dataclass(frozen=True, slots=True)
class SelectK:
    """Say how many clusters there are; the parameters of `fedcluster.select_k`.

    Parameters
    ----------
    k_min, k_max : int
        The first and the last number of clusters that are tried, all in the same rounds.
    fewer : bool
        Whether fewer are tried where there are fewer rows; otherwise that is refused.
    rule, pick, averaging, m
        How the number is chosen.
    bounds : pair of sequences of float, optional
        Public bounds of the columns of rows that are taken as they are.
    sums_only : bool
        Whether the start is found from sums alone.
    """

    k_min: int = 1
    k_max: int = 12
    fewer: bool = False
    rule: str = "vote"
    pick: str = "best"
    averaging: str = "avg_2"
    bounds: tuple[Sequence[float], Sequence[float]] | None = None
    m: float | None = None
    sums_only: bool = False
    participation: float = 1.0
    seed: int = 0
    prepare: PreprocessingSpec | None = None

    @property
    def preparing(self) -> PreprocessingSpec | None:
        """What is to be fitted before."""
        return self.prepare

    def settled(self, rows: float, columns: Sequence[str], engine: Engine) -> SelectK:
        """With no more numbers than there are rows for; refuses bounds that do not fit."""
        _check_rows(self.k_min if self.fewer else self.k_max, rows)
        if self.prepare is None:
            self._rule().check(len(columns))
        return replace(self, k_max=min(self.k_max, int(rows)))

    def _rule(self) -> Rule:
        bounds = self.bounds
        sides = None if bounds is None else (np.array(bounds[0]), np.array(bounds[1]))
        return Rule(self.rule, self.pick, sides)  # type: ignore[arg-type]

    def plan(self, sites: Sequence[SiteInfo]) -> Plan[Selection]:
        """The same as of ``fedcluster select-k``."""
        by = clustered_by(self.rule, self.m, self.averaging)
        choice = FitSpec(self.k_max, seed=drawn(self.seed), sums_only=self.sums_only, **by)
        return select_k_plan(range(self.k_min, self.k_max + 1), choice.at(sites), self._rule())

    def write(self, folder: Path, account: JobReport) -> dict[str, Any]:
        """``selection.json``: the verdict, its reason, and all indices for each number.

        With matplotlib their curves too, ``curves.png``.
        """
        found: Selection = account.outcome.value
        told = {
            "n_clusters": found.n_clusters,
            "rule": found.rule,
            "reason": found.reason,
            "doubts": list(found.warnings),
            "says": dict(found.says),
            "scores": {str(k): plain(dict(scores)) for k, scores in found.table.items()},
            **account.of_preprocessing(self.prepare),
            **account.of_sites(),
        }
        _write(folder / "selection.json", "fedcluster-federated-selection", told, account)
        with suppress(ImportError):
            found.plot(folder / "curves.png")
        return told


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Say how good the clusters of a model are, by every index that applies.

    Parameters
    ----------
    model : str
        The model's file, on the coordinator's machine.
    labels : bool
        Whether clusters are compared with the reference labels that every site must then have.
    classes : sequence of str, optional
        These labels, once the sites have told them.
    """

    model: str
    labels: bool = False
    classes: Sequence[str] | None = None
    participation: float = 1.0
    seed: int = 0

    @property
    def preparing(self) -> Preprocessor | None:
        """What the model does to rows."""
        return Model.load(self.model).preprocessor

    def settled(self, rows: float, columns: Sequence[str], engine: Engine) -> Evaluate:
        """With the labels that the sites have, where clusters are compared with them."""
        return replace(self, classes=_agreed_classes(engine)) if self.labels else self

    def plan(self, sites: Sequence[SiteInfo]) -> Plan[dict[str, float]]:
        """Two rounds."""
        model = Model.load(self.model)
        return evaluation(
            State(model.centers, model.weights),
            m=model.algorithm.get("m"),
            classes=self.classes,
            complete=False,
            seed=self.seed,
        )

    def write(self, folder: Path, account: JobReport) -> dict[str, Any]:
        """``scores.json``: the indices of all sites together."""
        compared = {} if self.classes is None else {"classes": list(self.classes)}
        scores = plain(account.outcome.value)
        told = {"scores": scores, "model": self.model, **compared, **account.of_sites()}
        _write(folder / "scores.json", "fedcluster-federated-scores", told, account)
        return told


def _agreed_classes(engine: Engine) -> tuple[str, ...]:
    """All labels that the sites tell of, in alphabetical order.

    Raises
    ------
    InputError
        If a site has none, or no site may tell one.
    """
    told = {site.name: site.labels for site in engine.introduce(labels=True) if site.answered}
    lacking = [site for site, classes in told.items() if classes is None]
    if lacking:
        raise InputError(
            f"no labels to compare with at {', '.join(lacking)}: write label_column = "
            '"NAME" in the site.toml there and start the site anew, or leave out --labels'
        )
    every = {label for classes in told.values() for label in classes or ()}
    if not every:
        raise InputError(
            "no site may tell a label: each stands for fewer rows than its site's limits ask "
            "for; leave out --labels"
        )
    return tuple(sorted(every))


JOBS: Mapping[str, type[Any]] = MappingProxyType(
    {"fit": Fit, "select-k": SelectK, "evaluate": Evaluate}
)
"""The jobs by their names."""


def job_of(content: Mapping[str, Any]) -> Job:
    """The job that ``job.json`` holds."""
    parameters = dict(content["parameters"])
    if parameters.get("prepare") is not None:
        parameters["prepare"] = PreprocessingSpec(**parameters["prepare"])
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
