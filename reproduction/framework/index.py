"""How a run is made and scored, and what was published."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcluster import Client, Data, LocalEngine, State, Task, run
from fedcluster.algorithms import FFCM
from fedcluster.metrics import METRICS
from fedcluster.metrics.objectives import FuzzyScatter
from reproduction.results import (
    HERE,
)

Array = NDArray[np.float64]

M = 2.0
KMEANS_AVERAGING, FEDERATED_AVERAGING = "avg_2", "avg_1"
AVERAGINGS = {KMEANS_AVERAGING: "k-means avg.", FEDERATED_AVERAGING: "federated avg."}
MOST_ROUNDS = 20


def fuzzy_db(state: State, asked: LocalEngine) -> float:
    """The index of a state's centres, from one round of sums."""
    [answers] = asked.ask([Task(FuzzyScatter(M), state)])
    return METRICS["fuzzy-db"].score(state, answers.total())


def federated(averaging: Any, asked: LocalEngine, k: int, d: int, seed: int) -> State:
    """FFCM as its authors' program: local convergence, support u, a start in the unit box."""
    start = State.at(np.random.default_rng([seed, k]).uniform(size=(k, d)))
    ffcm = FFCM(M, averaging, local="converge", support="u", relative=False)
    return run(ffcm, asked, start, seed=seed, max_rounds=MOST_ROUNDS).state


def pooled_engine(X: Array) -> LocalEngine:
    return LocalEngine([Client("pooled", Data(X))])


@lru_cache(maxsize=1)
def published() -> pd.DataFrame:
    data = pd.read_csv(HERE / "published" / "stallmann.csv")
    return data[data.paper == "framework"]


def published_value(table: str, dataset: str, method: str, quantity: str) -> float:
    """One value; the CSV names the tables A to G, some with a note."""
    data = published()
    at = data.table.str.startswith(f"Table {table}") & (data.quantity == quantity)
    at &= (data.dataset == dataset) & (data.method == method)
    [value] = data[at].value
    return float(value)
