"""Every documented job over a network, within the policy that sites have by default."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from grids import KNOWN
from test_replies import Postman

from fedcluster import Client, Data, MinClusterSize, MinRows, Task
from fedcluster.core import Column
from fedcluster.options.choices import ALGORITHMS, FUZZY_ALGORITHMS, INITS
from fedcluster.privacy import Groups
from fedcluster_app.coordinator.run_job import run_job
from fedcluster_app.extend import RemoteEngine, Responder
from fedcluster_app.wire.policy import Policy, PolicyLimits

NUMBERS, SITES = ("age", "bmi", "hb"), "abc"


def rows_of(site: str) -> Data:
    rng = np.random.default_rng(list(site.encode()))
    about = np.repeat([[40.0, 22.0, 9.0], [60.0, 31.0, 12.0], [75.0, 25.0, 15.0]], 30, axis=0)
    numbers = about + rng.normal(size=(90, 3))
    texts = np.column_stack([rng.integers(0, 2, 90), rng.integers(0, 3, 90)]).astype(float)
    X = np.column_stack([numbers, texts, np.where(rng.random(90) < 0.1, np.nan, numbers[:, 0])])
    wards = Column("ward", "text", ("east", "north", site))
    columns = (*map(Column, NUMBERS), Column("sex", "text", ("F", "M")), wards, Column("late"))
    return Data(X, None, np.repeat(["ill", "well", "mild"], 30), columns)


def chosen(site: str, names: Sequence[str], *, raw: bool = False) -> Client:
    rows = rows_of(site)
    places = [[column.name for column in rows.columns].index(name) for name in names]
    columns = tuple(rows.columns[j] for j in places) if raw else ()
    rows = replace(rows, X=np.ascontiguousarray(rows.X[:, places]), columns=columns)
    if site == "a":
        return Client(site, rows, protection=Groups(5))
    return Client(site, rows, [MinRows(2), MinClusterSize(2)])


class Counting(Policy):
    most: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.rounds: Counter[str] = Counter()
        self.preparations: dict[str, set[str]] = defaultdict(set)

    def check(self, header: Any, tasks: Sequence[Task] = (), *about: Any) -> None:
        super().check(header, tasks, *about)
        run = header["run"]
        self.rounds[run] += 1
        hows = [task.preprocessor for task in tasks if task.preprocessor is not None]
        self.preparations[run] |= {json.dumps(how.plain()) for how in hows}
        states = [task.state for task in tasks]
        arrays = [array for s in states for array in (s.centers, s.weights, *s.memory.values())]
        now = {"tasks": len(tasks), "numbers": sum(array.size for array in arrays)}
        now |= {"rounds": self.rounds[run], "preparations": len(self.preparations[run])}
        for name, n in now.items():
            self.most[name] = max(self.most[name], n)


def carried_out(
    job: str, parameters: dict[str, Any], folder: Path, columns: Sequence[str] | None = NUMBERS
) -> dict[str, Any]:
    names = tuple(column.name for column in rows_of("a").columns)
    clients = {site: chosen(site, names, raw=True) for site in SITES}
    choose = {site: partial(chosen, site) for site in SITES}
    sites = {
        s: Responder(clients[s], columns=names, choose=choose[s], policy=Counting(), **KNOWN)
        for s in SITES
    }
    asked = {"columns": columns and list(columns), "out": str(folder / "out")}
    content = {"job": job, "parameters": parameters, **asked}
    return run_job(RemoteEngine(Postman(sites), SITES), content, folder)


FITS: list[Any] = [
    *({"algorithm": name} for name in ALGORITHMS if name != "fedavg"),
    *({"algorithm": name, "m": 1.5} for name in FUZZY_ALGORITHMS),
    *({"algorithm": "lloyd", "init": init} for init in INITS),
    *({"algorithm": "fkm", "init": init} for init in INITS if init not in ("summaries", "sums")),
    {"sums_only": True},
    {"trim": 0.1},
    {"n_clusters": "auto"},
    {"algorithm": "fedavg", "max_iter": 5},  # it would go on to its limit of rounds
    {"algorithm": "fedcluster.algorithms.KFed"},
    {"algorithm": "fedcluster.algorithms.FedAvg", "max_iter": 30},
]
PREPARATIONS: list[dict[str, Any]] = [
    {},
    {"scale": "robust", "missing": "median", "pca": 2, "log": ["bmi"]},
    {"scale": "minmax", "bounds": {name: [0, 100] for name in NUMBERS}},
    {"missing": "mean", "scale": "none"},
    {"missing": "drop", "scale": "robust", "pca": 3, "categories": ["sex", "ward"]},
    {"missing": "median", "scale": "standard", "categories": "none", "pca": 1},
    {"missing": "drop", "scale": "none", "pca": 1, "rare": 40},
]


ROBUST = {"scale": "robust", "missing": "median", "pca": 2}
JOBS: list[Any] = [
    ("select-k", {"prepare": ROBUST}, None),
    *(("fit", {"n_clusters": 3, **how}, NUMBERS) for how in FITS),
    *(  # others ask as the vote
        ("select-k", {"rule": rule, "k_max": 4}, NUMBERS)
        for rule in ("likelihood", "vote", "xie-beni", "fuzzy-db")
    ),
]


@pytest.mark.parametrize(("job", "asked", "columns"), JOBS, ids=str)
def test_every_fit_and_choice_of_k_is_within_the_policy(job, asked, columns, tmp_path) -> None:
    assert carried_out(job, asked, tmp_path, columns)["out"]


@pytest.mark.parametrize("how", PREPARATIONS, ids=str)
def test_every_preparation_is_within_the_policy(how: dict[str, Any], tmp_path: Path) -> None:
    """And the scores of its model, in a run of their own."""
    columns = None if "missing" in how else [*NUMBERS, "sex", "ward"]
    carried_out("fit", {"n_clusters": 3, "prepare": how}, tmp_path / "fit", columns)
    model = tmp_path / "fit" / "out" / "model.json"
    named = json.loads(model.read_text("utf-8"))["columns"]
    asked = {"model": str(model), "labels": True}
    assert carried_out("evaluate", asked, tmp_path / "scores", named)["out"]


@pytest.mark.parametrize("missing", ["mean", "median"])
def test_a_profile_of_prepared_rows_with_texts_is_within_the_policy(missing, tmp_path, monkeypatch):
    """It asks about the rows as they are, as well, and where a round costs much, at once."""
    monkeypatch.setattr(RemoteEngine, "asks_early", True)
    asked = {"n_clusters": 3, "prepare": ROBUST | {"missing": missing}, "profile": True}
    assert carried_out("fit", asked, tmp_path, None)["out"]
    assert Counting.most["preparations"] == PolicyLimits().max_preparations


def test_there_is_head_room() -> None:
    """After the jobs above, of most bounds at most a fifth was needed; of preparations all."""
    limits, most = PolicyLimits(), Counting.most
    assert most["tasks"] * 5 <= limits.max_tasks
    assert most["rounds"] * 5 <= limits.max_rounds_per_run
    assert most["numbers"] * 5 <= limits.max_numbers
    assert most["preparations"] <= limits.max_preparations
