"""M. Stallmann & A. Wilbik, On a framework for federated cluster analysis, Applied Sciences 2022.

The sites run FFCM for each number of clusters K and then, in one more round, send what the fuzzy
Davies-Bouldin index is made of; the K of the least index is chosen. Tables 1 and 2 do so on
artificial rows, tables 3 to 7 on the hundred G2 sets, z-scored, at 2, 5 and 10 sites.

What the paper leaves open, and what fits its tables and is used here:

- The artificial rows: never published; `datasets.pentagon` stands in.
- The index: S_i of mean distances (q = 1), not of mean squares, since the least index is 0.546.
- The K of tables 3 to 7: {2, 3, 4} or {2, ..., 5} (`table_3`).
- Starts: uniform in the unit box, at the pooled rows, too.
- Which table is which: kept apart by the maxima, which k-means averaging keeps small.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcluster import Client, Data, FederatedFuzzyCMeans, LocalEngine, State, Task, run
from fedcluster.algorithms import FFCM
from fedcluster.baselines import central_fuzzy_cmeans
from fedcluster.datasets import pentagon
from fedcluster.metrics import METRICS, FuzzyScatter, knowledge_gap
from reproduction import bank
from reproduction.ffcm import DEVIATIONS, DIMENSIONS, engine, g2_rows
from reproduction.pictures import OURS, POOLED, PUBLISHED, RECIPE, panels, save
from reproduction.results import (
    HERE,
    Cell,
    Estimate,
    Row,
    Tolerance,
    reproduce,
    write_table,
)
from reproduction.runs import runs_of

Array = NDArray[np.float64]

M = 2.0
KMEANS_AVERAGING, FEDERATED_AVERAGING = "avg_2", "avg_1"
AVERAGINGS = {KMEANS_AVERAGING: "k-means avg.", FEDERATED_AVERAGING: "federated avg."}
MOST_ROUNDS = 50


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


# Tables 1 and 2: the artificial rows, by a stand-in

ARTIFICIAL_K = range(2, 9)


def artificial_run(averaging: str, seed: int) -> list[list[float]]:
    """The index by K: pooled, federated, of the federated centres at each site, our default's."""
    rows = pentagon(seed)
    asked, whole = engine(rows.X, rows.site), pooled_engine(rows.X)
    found = []
    for k in ARTIFICIAL_K:
        pooled = State.at(central_fuzzy_cmeans(rows.X, k, M, seed=seed).centers)
        state = federated(averaging, asked, k, 2, seed)
        own = [fuzzy_db(state, pooled_engine(X)) for X, _ in rows.sites.values()]
        model = FederatedFuzzyCMeans(k, m=M, random_state=seed).fit(rows.X, sites=rows.site)
        default = fuzzy_db(State.at(model.cluster_centers_), whole)
        found.append([fuzzy_db(pooled, whole), fuzzy_db(state, whole), *own, default])
    return found


def tables_1_and_2(folder: Path, quick: bool) -> list[Row]:
    """The choice of K by the index; five clusters are there."""
    settings = list(AVERAGINGS)
    runs = dict(zip(settings, runs_of(artificial_run, settings, 2 if quick else 20), strict=True))
    rows = []
    figure, axes = panels(2)
    for number, letter, averaging, ax in zip((1, 2), "AB", AVERAGINGS, axes[0], strict=True):
        cells = [
            artificial_cell(letter, k, column, runs[averaging])
            for k in ARTIFICIAL_K
            for column in (0, 1, 2, 3, 4)
            if column < 2 or k <= 5
        ]
        files = write_table(folder, f"table_{number}", f"Table {number}: a stand-in", cells)
        middle = np.median(runs[averaging], axis=0)
        ks = list(ARTIFICIAL_K)
        _draw_index(ax, cells, f"table {number}: {AVERAGINGS[averaging]}", middle[:, 5])
        chosen = {name: ks[int(middle[:, c].argmin())] for name, c in WHO.items()}
        holds = chosen["central"] == 5 and (chosen["federated"] == 5) == (number == 1)
        chose_5 = np.mean(runs[averaging][:, :, 1].argmin(axis=1) == ks.index(5))
        rows.append(
            Row.of(
                f"table {number}",
                f"fuzzy Davies-Bouldin by K, {AVERAGINGS[averaging]}, on a stand-in for the rows",
                cells,
                shape=holds,
                reason=f"chosen by the medians: central {chosen['central']}, federated "
                f"{chosen['federated']} (5 in {chose_5:.0%} of the runs), our default "
                f"{ks[int(middle[:, 5].argmin())]}; published 5 and {5 if number == 1 else 3}. "
                "The rows are ours, so that only the choice can be compared",
                files=["tables_1_and_2.png", *files],
            )
        )
    axes[0, 0].legend(fontsize=8)
    save(figure, folder, "tables_1_and_2")
    return rows


WHO = {"central": 0, "federated": 1, "client1": 2, "client2": 3, "client3": 4}
ROUGHLY = Tolerance(errors=0, relative=0.1)


def artificial_cell(letter: str, k: int, column: int, runs: Array) -> Cell:
    who = list(WHO)[column]
    at = list(ARTIFICIAL_K).index(k)
    return Cell(
        {"K": k, "rows": who},
        Estimate.median(runs[:, at, column]),
        Estimate(published_value(letter, f"artificial 3 clients, K={k}", who, "FuzzyDB")),
        ROUGHLY,
        Estimate.median(runs[:, at, 5]) if column < 2 else None,
    )


def _draw_index(ax: Any, cells: Sequence[Cell], title: str, default: Array) -> None:
    for who, colour in (("central", POOLED), ("federated", OURS)):
        these = [c for c in cells if c.of["rows"] == who]
        ks = [c.of["K"] for c in these]
        ax.plot(ks, [c.ours.value for c in these], "o-", color=colour, label=f"ours, {who}")
        theirs = [c.published.value for c in these if c.published]
        ax.plot(ks, theirs, "s--", color=colour, alpha=0.4, label=f"paper, {who}")
    ax.plot(list(ARTIFICIAL_K), default, ":", color=RECIPE, label="our default")
    ax.set(title=title, xlabel="K", ylabel="fuzzy Davies-Bouldin", ylim=(0, 3.2))


# Tables 3 to 7: the hundred G2 sets

SITES = (2, 5, 10)
G2_K = (2, 3, 4, 5)


def g2_run(setting: tuple[str, int, int, int], seed: int) -> list[list[float]]:
    """Index and gap by K of one set; ``method`` is an averaging, "central" or "our default"."""
    method, dimensions, deviation, n_sites = setting
    X = g2_rows(dimensions, deviation)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    Z, true = (X - mean) / scale, (np.array([[500.0], [600.0]]) - mean) / scale
    site = np.random.default_rng([seed, n_sites]).integers(0, n_sites, len(Z))
    asked, whole = engine(Z, site), pooled_engine(Z)
    found = []
    for k in G2_K:
        state = g2_state(method, asked if method in AVERAGINGS else whole, k, Z, site, seed)
        found.append([fuzzy_db(state, whole), knowledge_gap(state.centers, true)])
    return found


def g2_state(
    method: str, asked: LocalEngine, k: int, Z: Array, site: NDArray[Any], seed: int
) -> State:
    if method == "our default":
        model = FederatedFuzzyCMeans(k, m=M, random_state=seed).fit(Z, sites=site)
        return State.at(model.cluster_centers_)
    if method in AVERAGINGS:
        return federated(method, asked, k, Z.shape[1], seed)
    start = State.at(np.random.default_rng([seed, k]).uniform(size=(k, Z.shape[1])))
    ffcm = FFCM(M, local="converge", relative=False)
    return run(ffcm, asked, start, seed=seed, max_rounds=1).state


Method = tuple[str, int]
CENTRAL: Method = ("central", 1)
DEFAULT: Method = ("our default", 10)
FEDERATED: list[Method] = [(averaging, n) for averaging in AVERAGINGS for n in SITES]


@lru_cache(maxsize=1)
def g2_runs(quick: bool) -> dict[Method, Array]:
    """By method: (runs over all sets, K, index and gap)."""
    dimensions, deviations = (DIMENSIONS[:3], (10, 50, 100)) if quick else (DIMENSIONS, DEVIATIONS)
    found: dict[Method, list[Array]] = {}
    for methods, runs in (([CENTRAL, *FEDERATED], 1 if quick else 2), ([DEFAULT], 1)):
        settings = [
            (method, d, s, n) for d in dimensions for s in deviations for method, n in methods
        ]
        for setting, these in zip(settings, runs_of(g2_run, settings, runs), strict=True):
            found.setdefault((setting[0], setting[3]), []).append(these)
    return {method: np.concatenate(these) for method, these in found.items()}


def chosen(runs: Array, largest: int) -> NDArray[np.intp]:
    """Which of the K up to ``largest`` has the least index, by its place."""
    return np.asarray(runs[:, : G2_K.index(largest) + 1, 0].argmin(axis=1))


def correct(runs: Array, largest: int) -> float:
    """Per cent of the runs that choose two clusters."""
    return float(100 * (chosen(runs, largest) == 0).mean())


def best_range(quick: bool) -> int:
    """The largest K with which table 3 comes out nearest."""

    def off(largest: int) -> float:
        found = g2_runs(quick)
        return sum(
            abs(correct(found[method], largest) - published_correct(method))
            for method in (CENTRAL, *FEDERATED)
        )

    return min(G2_K[1:], key=off)


def published_correct(method: Method) -> float:
    name, n = method
    if method == CENTRAL:
        return published_value("C", "G2 sets", "central", "% correct K")
    return published_value("C", f"G2 sets, {n} clients", AVERAGINGS[name], "% correct K")


def named(method: Method) -> dict[str, Any]:
    return {"method": AVERAGINGS.get(method[0], method[0]), "sites": method[1]}


def table_3(folder: Path, quick: bool) -> list[Row]:
    """In how many runs the right K = 2 has the least index."""
    found = g2_runs(quick)
    best = best_range(quick)
    cells = [
        Cell(
            {**named(method), "K": f"2 to {largest}"},
            Estimate(correct(found[method], largest), runs=len(found[method])),
            Estimate(published_correct(method)),
            Tolerance(errors=0, absolute=3.0),
            Estimate(correct(found[DEFAULT], largest)),
        )
        for largest in G2_K[1:]
        for method in (CENTRAL, *FEDERATED)
    ]
    these = [c for c in cells if c.of["K"] == f"2 to {best}"]
    spread = {largest: correct(found[CENTRAL], largest) for largest in G2_K[1:]}
    return [
        Row.of(
            "table 3",
            f"% of the runs that choose K = 2 out of 2 to {best}; allowed are 3 points",
            these,
            shape=min(c.ours.value for c in these) > 80,
            reason=f"K from 2 to {best} fits best; central by the largest K: "
            + ", ".join(f"{k}: {percent:.0f} %" for k, percent in spread.items())
            + f"; our default {correct(found[DEFAULT], best):.0f} %",
            files=write_table(folder, "table_3", "Table 3", cells),
        )
    ]


QUANTILES = {"q25": 0.25, "median": 0.5, "q75": 0.75, "min": 0.0, "max": 1.0}


def quantile_cells(
    letter: str, averaging: str, quantity: str, tolerance: Tolerance, quick: bool
) -> list[Cell]:
    """Quantiles over all runs, at the K that each run chose."""
    found, best = g2_runs(quick), best_range(quick)
    column = ("FuzzyDB", "knowledge gap").index(quantity)

    def at_chosen(method: Method) -> Array:
        runs = found[method]
        return runs[np.arange(len(runs)), chosen(runs, best), column]

    return [
        Cell(
            {**named(method), "quantile": name},
            Estimate(float(np.quantile(at_chosen(method), q))),
            Estimate(
                published_value(
                    letter,
                    "G2 sets",
                    "central" if method == CENTRAL else f"{method[1]} clients",
                    f"{quantity} {name}",
                )
            ),
            tolerance,
            Estimate(float(np.quantile(at_chosen(DEFAULT), q))),
        )
        for method in (CENTRAL, *((averaging, n) for n in SITES))
        for name, q in QUANTILES.items()
    ]


def tables_4_and_5(folder: Path, quick: bool) -> list[Row]:
    """Quantiles of the index over the runs."""
    return [
        quantile_row(
            folder,
            number,
            quantile_cells(letter, averaging, "FuzzyDB", Tolerance(0, relative=0.02), quick),
            f"fuzzy Davies-Bouldin of the chosen K, {AVERAGINGS[averaging]}: quartiles and minimum "
            "within 2 %",
            ("q25", "median", "q75", "min"),
            "a maximum is that of one collapsed set and not judged",
        )
        for number, letter, averaging in zip((4, 5), "DE", AVERAGINGS, strict=True)
    ]


def tables_6_and_7(folder: Path, quick: bool) -> list[Row]:
    """Quantiles of the knowledge gap over the runs."""
    return [
        quantile_row(
            folder,
            number,
            quantile_cells(letter, averaging, "knowledge gap", Tolerance(0, relative=0.1), quick),
            f"knowledge gap at the chosen K, z-scored, {AVERAGINGS[averaging]}: quartiles within "
            "10 %",
            ("q25", "median", "q75"),
            "that the gap is of z-scored rows is inferred; minimum and maximum are of one set "
            "each, drawn anew, and not judged",
        )
        for number, letter, averaging in zip((6, 7), "FG", AVERAGINGS, strict=True)
    ]


def quantile_row(
    folder: Path,
    number: int,
    cells: Sequence[Cell],
    what: str,
    judged: Sequence[str],
    reason: str,
) -> Row:
    """One of tables 4 to 7, and its picture."""
    figure, axes = panels()
    ax = axes[0, 0]
    for place, name in enumerate(QUANTILES):
        these = [c for c in cells if c.of["quantile"] == name]
        for i, c in enumerate(these):
            at = place + 0.2 * (i - 1.5)
            assert c.published
            ax.plot(at - 0.04, c.published.value, "s", color=PUBLISHED, ms=6)
            ax.plot(at + 0.04, c.ours.value, "o", color=OURS, ms=5)
    ax.plot([], [], "s", color=PUBLISHED, label="paper")
    ax.plot([], [], "o", color=OURS, label="ours: pooled, 2, 5, 10 sites")
    ax.set_xticks(range(len(QUANTILES)), list(QUANTILES))
    ax.set(yscale="log", title=f"table {number}")
    ax.legend(fontsize=8)
    files = [save(figure, folder, f"table_{number}")]
    files += write_table(folder, f"table_{number}", f"Table {number}", cells)
    return Row.of(
        f"table {number}",
        what,
        [c for c in cells if c.of["quantile"] in judged],
        shape=same_as_pooled(cells),
        reason=reason,
        files=files,
    )


def same_as_pooled(cells: Sequence[Cell]) -> bool:
    """The paper's conclusion: the federated median is the pooled one's, within 5 %."""
    medians = [c.ours.value for c in cells if c.of["quantile"] == "median"]
    return all(abs(median / medians[0] - 1) < 0.05 for median in medians)


def main(quick: bool) -> None:
    figures = [tables_1_and_2, table_3, tables_4_and_5, tables_6_and_7, *bank.FIGURES]
    reproduce("framework", figures, quick)
