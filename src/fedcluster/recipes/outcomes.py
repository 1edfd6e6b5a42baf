"""Plan that compares the clusters of a model by outcomes that were not clustered by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Answers, Floats, State, Task, coarse
from fedcluster.errors import InputError
from fedcluster.metrics.columns import ClusterCells, ClusterColumns
from fedcluster.model.outcomes import (
    Comparison,
    OutcomeComparison,
    OutcomeTest,
    counts_compared,
    numbers_compared,
    survival_compared,
)
from fedcluster.model.profiles import is_zero_or_one
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing.moments import FEWEST_IN_CELL
from fedcluster.recipes.profiling import Column, ColumnSums, Layout, first_sums, layout_of
from fedcluster.rounds import Plan


def comparing(
    k: int,
    reported: Preprocessor,
    time: str | None = None,
    *,
    names: Sequence[str] = (),
    smallest: int = 1,
) -> Plan[Comparison]:
    """Plan three rounds that compare k clusters by outcomes.

    The first asks for counts, means and spreads by cluster, as `profiling` does; the second again
    about the means, and for counts in cells that are finest near them; the third for counts in
    cells with about equally many rows, which are the same for all clusters.

    Parameters
    ----------
    k : int
        The number of clusters.
    reported : Preprocessor
        The transform to the outcomes, as they are, and to the time.
    time : str, optional
        The column with the time of outcomes of 0 and 1, or until which they are 0.
    names : sequence of str
        The names of the clusters.
    smallest : int, default=1
        The smallest group of rows that all sites' limits permit.

    Returns
    -------
    Plan of Comparison
        To be asked about rows with assigned clusters.
    """
    seen = yield from _summed(k, reported, smallest, time)
    if time is not None and (seen.clock not in seen.grids or not seen.binary):
        raise InputError(
            f"time={time!r} needs numbers, and an outcome of 0 and 1 that happens then"
        )
    tasks: dict[tuple[int, int | None], Task] = {
        (i, None): _cells(seen.about, i, grid) for i, grid in seen.grids.items() if i != seen.clock
    }
    for i, value in product(seen.binary if time else (), (1, 0)):
        tasks[i, value] = _cells(seen.about, seen.clock, seen.grids[seen.clock], i + 1, value)
    answers = (yield [*tasks.values()]) if tasks else ()
    counted = {key: _by_site(each, k) for key, each in zip(tasks, answers, strict=True)}
    outcomes = [
        replace(found, lacking=found.lacking or seen.without(seen.known(each)))
        for each in seen.layout
        if each[0] != time
        for found in [seen.compared(each, counted, time)]
    ]
    if len(seen.sums) == 1:  # of secure sums, nothing is known by site
        whole = "secure sum" if seen.is_total else ""
        outcomes = [replace(each, by_site=OutcomeTest(whole)) for each in outcomes]
    return Comparison.of(outcomes, names)


@dataclass(frozen=True, slots=True, eq=False)
class _Summed:
    """Sums of the outcomes by cluster, and the grids for the numbers among them."""

    layout: Layout
    about: State
    sums: Mapping[str, ColumnSums]
    binary: Sequence[int]
    grids: Mapping[int, Floats]
    is_total: bool
    together: Floats
    least: int
    clock: int

    def compared(
        self, column: Column, counted: Mapping[tuple[int, int | None], Floats], time: str | None
    ) -> OutcomeComparison:
        """Return the comparison by an outcome, given the weights in cells of it, or of time."""
        name, levels, places = column
        i, together = int(places[0]), self.together
        if levels is not None:
            return counts_compared(name, levels, *self.counts(places), together)
        if i not in self.binary:  # in groups, or without spread, it has no cells
            cells = counted.get((i, None), np.zeros((1, len(together), 0))).sum(axis=0)
            more = (float(self.about.centers[0, i]), self.lacking(i, cells), together)
            return numbers_compared(name, *self.moments(i), cells, *more)
        if time is None:
            tables = np.moveaxis(self.ones(i)[::-1], 0, 2)
            return counts_compared(name, ("0", "1"), tables, together=together)
        told = np.stack([counted[i, value] for value in (1, 0)])
        hidden = self.lacking(i, told)
        ways = completed(told, self.ones(i), self.least) if hidden else [told]
        found = survival_compared(name, time, self.grids[self.clock], ways, hidden)
        return found if hidden else replace(found, lacking=self.without(float(told.sum())))

    def known(self, column: Column) -> float:
        """Return the weight of the rows that have a value in a column."""
        _, levels, (i, *_) = column
        return sum(
            float(
                (own.weights[:, i] if levels is None else own.known[:, int(own.texts[i]) - 1]).sum()
            )
            for own in self.sums.values()
        )

    def without(self, counted: float) -> float:
        """Return the weight of all rows but those counted."""
        rows = sum(float(n.sum()) for own in self.sums.values() for n in own.sizes.values())
        return rows - counted if rows - counted > 1e-6 * rows else 0.0

    def moments(self, i: int) -> tuple[Floats, Floats, Floats]:
        """Return weights, means less an origin, and sums of squares of a column, (s, k) each."""
        n, moved, spreads = (
            np.stack([getattr(each, what)[:, i] for each in self.sums.values()])
            for what in ("weights", "moved", "spreads")
        )
        apart = self.about.centers[:, i] - self.about.centers[0, i]
        return n, np.where(n > 0, apart + moved, 0.0), n * np.nan_to_num(spreads) ** 2

    def ones(self, i: int) -> Floats:
        """Return the weights of rows with 1, and with 0, in a column, (2, s, k)."""
        n, means, _ = self.moments(i)
        ones = n * (means + self.about.centers[0, i])
        whole = np.rint(ones)
        ones = np.where(abs(ones - whole) < 1e-6, whole, ones)  # whole but for rounding
        return np.stack([ones, n - ones])

    def counts(self, places: NDArray[np.intp]) -> tuple[Floats, float]:
        """Return the counts of texts (s, k, l), and the weight of rows of clusters left out.

        These are the clusters of which a site tells only a part.
        """
        tables, hidden = [], 0.0
        for own in self.sums.values():
            table, known = own.weights[:, places], own.known[:, int(own.texts[places[0]]) - 1]
            whole = known - table.sum(axis=1) <= 1e-9 * known
            hidden += float(known[~whole].sum())
            tables.append(np.where(whole[:, None], table, 0.0))
        return np.stack(tables), hidden

    def lacking(self, i: int, counted: Floats) -> float:
        """Return the weight of the rows with a value that are in no cell, if there are limits."""
        here = self.moments(i)[0].sum() - counted.sum()
        return max(float(here), 0.0) if self.least > 1 else 0.0


def completed(told: Floats, ones: Floats, least: int) -> list[Floats]:
    """Return ways in which limits may hide few rows of cells (2, s, k, c).

    First the mean of the extremes; then, of each cluster, they are in its first empty cells and of
    others in the last, and the reverse. ``ones`` (2, s, k) is the weight of all rows.
    """
    room = (told == 0) * (least - 1.0)
    missing = (ones - told.sum(axis=-1))[..., None]
    early, late = (
        np.clip(missing - np.cumsum(each, axis=-1) + each, 0.0, each)
        for each in (room, room[..., ::-1])
    )
    late = late[..., ::-1]
    is_own = np.eye(told.shape[2], dtype=bool)[:, :, None]
    ways = [np.where(own, a, b) for a, b in ((early, late), (late, early)) for own in is_own]
    return [told + each for each in ((early + late) / 2, *ways)]


def _summed(k: int, reported: Preprocessor, smallest: int, time: str | None) -> Plan[_Summed]:
    """Plan two rounds for sums by cluster, and for the grids of numbers."""
    layout = layout_of((), reported)
    first, about = yield from first_sums(np.zeros((k, reported.n_columns_out)), layout)
    means, spreads = (each[-1] for each in first.moments)
    numbers = [int(places[0]) for _, levels, places in layout if levels is None]
    binary = [i for i in numbers if is_zero_or_one(means[i], spreads[i])]
    usual = 2.0 * smallest * k * len(first.sizes) if smallest > 1 else float(FEWEST_IN_CELL)
    fewest = dict.fromkeys(numbers, usual)
    clock = next((int(at[0]) for name, _, at in layout if name == time), -1)
    if clock >= 0 and smallest > 1:
        # rows with an event and others are counted apart; of more rows, a smaller share is hidden
        fewest[clock] = max(2 * usual, 0.4 * (2 * usual * first.weights[:, clock].sum()) ** 0.5)
    edges = {
        i: _around(means[i], spreads[i], first.weights[:, i].sum() / fewest[i])
        for i in numbers
        if i not in binary and spreads[i] > 0 and (first.together == 1).all()
    }
    if clock in edges:  # an edge beside 0 tells negative times
        edges[clock] = np.unique(np.r_[edges[clock], np.nextafter(0.0, -inf)])
    cells = [_cells(about, i, each) for i, each in edges.items()]
    again, *counted = yield [Task(ClusterColumns(), about, everyone=True), *cells]
    grids = {
        i: _even(each.total().weights.reshape(k + 1, -1)[-1], edges[i], fewest[i])
        for i, each in zip(edges, counted, strict=True)
    }
    times = counted[[*edges].index(clock)].by_site if clock in edges else {}
    for site, each in times.items():
        if n := each.weights.reshape(k + 1, -1)[-1, edges[clock][1:] < 0].sum():
            raise InputError(
                f"time {time!r} is negative in {n:,.0f} of the rows at {site}: mend these"
            )
    sums = {at: ColumnSums(about, Answers({at: own})) for at, own in again.by_site.items()}
    is_total, together = bool(again.summed), ColumnSums(about, again).together
    return _Summed(layout, about, sums, binary, grids, is_total, together, smallest, clock)


def _around(mean: float, spread: float, n_cells: float, most_cells: int = 400) -> Floats:
    """Return edges of cells that are finest at the mean and reach ten spreads from it."""
    n = int(np.clip(2 * n_cells, 20, most_cells))
    cuts = mean + spread * np.sinh(np.linspace(-3.0, 3.0, n))
    return _edges(cuts, 20.0 * spread + abs(mean))


def _even(counts: Floats, edges: Floats, fewest: float, most_cells: int = 400) -> Floats:
    """Return edges of cells with about as many rows in each, from counts in other cells."""
    upto = np.cumsum(np.maximum(counts, 0.0))[:-1]
    n = int(np.clip(upto[-1] // fewest, 2, most_cells))
    places = np.interp(np.linspace(0, upto[-1], n + 1)[1:-1], upto, edges[1:-1])
    return _edges(places, np.abs(places).max())


def _edges(cuts: Floats, largest: float) -> Floats:
    """Return the edges of cells between cuts, which are rounded and may repeat."""
    edges: Floats = np.r_[-inf, np.unique(coarse(cuts, largest)), inf]
    return edges


def _cells(about: State, i: int, edges: Floats, given: int | None = None, value: int = 1) -> Task:
    """Return the task that counts the rows of each cluster in the same cells of a column."""
    k = len(about.centers)
    memory = {
        "columns": np.array([float(i)]),
        "edges": np.tile(edges, (k, 1, 1)),
        "overall": edges[None],
    }
    state = State(about.centers, about.weights, round=1, memory=memory)
    return Task(ClusterCells(given, value), state, everyone=True)


def _by_site(answers: Answers, k: int) -> Floats:
    """Return the weights in the cells of each cluster, (s, k, c), by site."""
    every = [each.weights.reshape(k + 1, -1)[:k] for each in answers.by_site.values()]
    return np.maximum(np.stack(every), 0.0)
