"""Clusters of an earlier fit found again among those of a new one, and what has changed since.

The rows of the new fit are counted in each pair of an earlier cluster and a new one. A new cluster
is an earlier one if most of its rows are in that, more than by chance, and the earlier centre lies
within it: not farther from its centre than its rows are, as a root mean square. Of several such
clusters, as after a split or where one appears beside it, the nearest takes the number. As most
rows of a cluster are in one other at most, none gets two numbers, and no number two clusters.

Whether clusters moved or grew is judged by one step of the earlier fit, from its final state, on
the new rows. That state T0 is a fixed point for the earlier rows, so that on rows of the same
population the step T gives T0 - e0 + e, e0 and e being the errors of sums over the earlier and the
new rows: the uncertain boundaries between clusters, which both have in common, cancel. The variance
of e is that of the same step on bootstrap samples, and that of e0 is as many times larger as there
were fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from fedcluster.algorithms import FFCM, Lloyd, MergedMixture, SphericalKMeans, TrimmedLloyd
from fedcluster.core import Algorithm, Answers, Floats, Result, RowTransform, State, Task
from fedcluster.errors import InputError
from fedcluster.metrics.clusters import Scatter
from fedcluster.metrics.external import Agreement
from fedcluster.model.file import Model
from fedcluster.model.outcomes import holm, said_p
from fedcluster.model.run import Run
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing.transform import by_columns
from fedcluster.recipes.bootstrap import draws
from fedcluster.recipes.fit import ordered
from fedcluster.recipes.profiling import assigned_rows, crossed
from fedcluster.rounds import Plan, gather, server_update
from fedcluster.texts import Table, percent, short_number


@dataclass(frozen=True, slots=True, eq=False)
class Succession:
    """Clusters of an earlier fit in a new one, by number.

    Parameters
    ----------
    names : tuple of str
        Their names, k of them.
    order : ndarray of shape (k,)
        The place of each among the clusters as they were found; -1 if it is gone.
    then, now : ndarray of shape (k,)
        Weights of their rows in both fits; NaN for a new cluster, 0 for one that is gone.
    moved, changed : ndarray of shape (k, p)
        How far each moved along each prepared column, in standard deviations of its rows, and the
        probability of such a move by chance, after Holm's correction; NaN where it is not known.
    grown : ndarray of shape (k,)
        The same probability of the change of its share of the rows in clusters that stayed.
    columns : tuple of str
        The p columns.
    notes : tuple of str
        Sentences on what both fits do not have in common.
    """

    names: tuple[str, ...]
    order: NDArray[np.intp]
    then: Floats
    now: Floats
    moved: Floats
    changed: Floats
    grown: Floats
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()
    level = 0.05
    """Probability that any of the sentences speaks of a change although there is none."""

    def _cluster(self, j: int) -> dict[str, Any]:
        """Return what became of a cluster as JSON-compatible values."""
        stayed = ~np.isnan(self.then) & (self.order >= 0)
        then, now = (
            float(np.where(stayed, each, np.nan)[j] / (each[stayed].sum() or np.nan))
            for each in (self.then, self.now)
        )
        told = np.nan_to_num(self.changed[j], nan=2.0)
        at = int(np.lexsort((-np.abs(self.moved[j]), told))[0])
        became = ["moved"] * bool(told[at] < self.level)
        became += ["grew" if now > then else "shrank"] * bool(self.grown[j] < self.level)
        if not stayed[j]:
            became = ["gone" if self.order[j] < 0 else "new"]
        return {
            "cluster": j,
            "name": self.names[j],
            "became": became or ["the same"],
            "rows_then": float(self.then[j]),
            "rows_now": float(self.now[j]),
            "share_then": then,
            "share_now": now,
            "moved": float(self.moved[j, at]),
            "column": self.columns[at],
            "chance_moved": float(self.changed[j, at]),
            "chance_grown": float(self.grown[j]),
        }

    def plain(self) -> dict[str, Any]:
        """Return the content for files and for programs; numbers may be NaN."""
        clusters = [self._cluster(j) for j in range(len(self.names))]
        return {"clusters": clusters, "meaning": [*map(_sentence, clusters), *self.notes]}


def _sentence(cluster: Mapping[str, Any]) -> str:
    """Return in a sentence what became of a cluster."""
    of, grown = cluster, f"by chance {said_p(cluster['chance_grown'])}"
    shares = f"from {percent(of['share_then'])} to {percent(of['share_now'])} of the rows"
    way = "up" if of["moved"] > 0 else "down"
    why = {
        "new": f"is new: {short_number(of['rows_now'])} rows",
        "gone": "is gone; no other cluster gets its number",
        "the same": "is the same",
        "moved": f"moved by {abs(of['moved']):.2f} deviations {way} in {of['column']} "
        f"(by chance {said_p(of['chance_moved'])})",
    }
    said = [why.get(w, f"{w} {shares} in clusters that stayed ({grown})") for w in of["became"]]
    return f"Cluster {of['cluster']} ({of['name']}) {' and '.join(said)}."


def succession_table(content: Mapping[str, Any]) -> Table:
    """Return what became of clusters as a table, given `Succession.plain` or its JSON."""
    rows = []
    for each in content["clusters"]:
        then, now, moved = (short_number(each[key]) for key in ("rows_then", "rows_now", "moved"))
        moved = moved if moved == "–" else f"{each['moved']:+z.2f} {each['column']}"
        p, grown = (each[key] for key in ("chance_moved", "chance_grown"))
        p, grown = (said_p(each).removeprefix("p ").removeprefix("= ") for each in (p, grown))
        who = (str(each["cluster"]), each["name"], ", ".join(each["became"]))
        rows.append((*who, then, now, grown, moved, p))
    return Table(
        "Clusters since the earlier fit, in deviations; probabilities of a change by chance",
        ("cluster", "name", "became", "rows then", "now", "by chance", "moved", "by chance"),
        tuple(rows),
    )


def earlier(model: Model, how: Preprocessor | None, columns: Sequence[str]) -> Floats | None:
    """Return the centres of an earlier fit that are not gone, in the form of prepared rows.

    None if a column has none.
    """
    centers = by_columns(how, columns).placed(model.centers_in_units, len(model.centers))
    there = centers[model.there]
    return None if np.isnan(there).any() else there


def matched(shared: Floats, apart: Floats, reach: Floats) -> NDArray[np.intp]:
    """Return the place of each earlier cluster among new ones, (k,); -1 if it is gone.

    Parameters
    ----------
    shared : ndarray of shape (k + 1, l)
        Rows in each earlier cluster, or in none, and each new one.
    apart : ndarray of shape (k, l)
        The distance between their centres.
    reach : ndarray of shape (l,)
        The root mean square of the distances of a new cluster's rows to its centre.

    Examples
    --------
    >>> shared = np.array([[90.0, 60.0, 0.0], [0.0, 1.0, 40.0], [0.0, 0.0, 0.0]])
    >>> apart = np.array([[0.2, 0.9, 5.0], [6.0, 5.0, 0.1]])
    >>> matched(shared, apart, np.ones(3))
    array([0, 2])
    """
    k, every = len(apart), shared.sum(axis=0)
    most = shared[:-1].max(axis=0) > every / 2
    usual = shared[:-1].sum(axis=1)[:, None] / max(float(shared.sum()), 1e-300)
    fits = most & (shared[:-1] >= usual * every) & (apart <= reach)
    fits &= np.arange(k)[:, None] == shared[:-1].argmax(axis=0)
    nearest = np.where(fits, apart, np.inf).argmin(axis=1)
    return np.where(fits.any(axis=1), nearest, -1)


def continued(
    found: Result,
    how: Preprocessor | None,
    model: Model,
    columns: Sequence[str],
    seed: int,
    *,
    together: int = 1,
    n_replicates: int = 50,
) -> Plan[tuple[Result, Succession]]:
    """Plan two rounds that number the clusters of a new fit as those of an earlier one.

    Parameters
    ----------
    found : Result
        The new clusters.
    how : Preprocessor or None
        The preparation of their rows.
    model : Model
        The earlier fit.
    columns : sequence of str
        The columns of the new fit.
    seed : int
        Determines the bootstrap samples.
    together : int, default=1
        The number of rows that sites use as one, in groups.
    n_replicates : int, default=50
        The number of samples.

    Returns
    -------
    Plan of (Result, Succession)
        The clusters, those that are gone among them, with a weight of 0; and what has changed.
    """
    _check(model, columns, found.state)
    before, after, state = model.by_name, by_columns(how, columns), found.state
    own = assigned_rows(model.state, model.assigned_by, before)
    other = assigned_rows(state, found.algorithm, after)
    plans: list[Plan[Any]] = [crossed(own, other), _spread(state, other)]
    plans += [_spread(model.state.standing, own)] * (together > 1)
    crossing, reach, *wide = yield from gather(plans)
    places = after.placed(model.centers_in_units, len(model.centers))
    apart = np.sqrt(np.nansum((places[:, None] - state.centers) ** 2, axis=2))
    order = np.where(model.there, matched(crossing.rows[:, :-1], apart, reach), -1)
    fresh = np.setdiff1d(np.arange(len(state.centers)), order)
    units = dict(zip(after.names, after.invert(state.centers[fresh]).T.tolist(), strict=True))
    beside, stayed = before.placed(units, len(fresh)), order >= 0
    if not takes_more(model):  # rows of new clusters would seem to move those that had them
        fed = crossing.rows[:-1, fresh].sum(axis=1) > 0.02 * crossing.rows[:-1].sum(axis=1)
        beside, stayed = beside[:0], stayed & ~fed
    centers, weights = yield from _again(model, own, beside, seed, n_replicates)
    centers = _widened(centers, weights[0], *wide) if wide else centers
    order = np.append(order, fresh)
    found = replace(found, state=_numbered(found, order, places))
    then, moved, changed, grown = (
        np.concatenate([each, np.full((len(fresh), *each.shape[1:]), np.nan)])
        for each in (model.weights, *_changes(model, centers, weights, stayed, together))
    )
    names, notes = _names(model, found, how, columns), tuple(_notes(model, how, columns))
    changes = (then, found.state.weights, moved, changed, grown)
    return found, Succession(names, order, *changes, before.names_out, notes)


def _notes(model: Model, how: Preprocessor | None, columns: Sequence[str]) -> Iterator[str]:
    """Yield sentences on what both fits do not have in common."""
    if added := ", ".join(sorted(set(columns) - set(model.columns))):
        yield f"The earlier fit had no column {added}."
    adjusts = how is not None and how.effects is not None
    if adjusts != model.adjusts:
        which = "this" if adjusts else "the earlier"
        yield f"Only {which} fit subtracted offsets of sites, which may seem changes of clusters."


def _check(model: Model, columns: Sequence[str], state: State) -> None:
    """Raise an error for an earlier fit that cannot be continued with these columns."""
    if lacking := sorted(set(model.columns) - set(columns)):
        raise InputError(
            f"the clusters to continue have the column {lacking[0]!r}, and this fit has not: "
            "cluster by the same columns, or start anew"
        )
    if not len(state.centers) or not len(model.centers):
        raise InputError("clusters without centres cannot be continued: start anew")


def _spread(state: State, how: Any) -> Plan[Floats]:
    """Plan one round about the mean squares of clusters' rows; return their roots, (k,)."""
    [answers] = yield [Task(Scatter(), State.at(state.centers), preprocessor=how, everyone=True)]
    total = answers.total()
    told = total.weights > 0
    squares = total.sums[:, -2] / np.where(told, total.weights, 1.0)
    return np.where(told, np.sqrt(np.maximum(squares, 0.0)), np.inf)


def _widened(centers: Floats, rows: Floats, wide: Floats) -> Floats:
    """Return centres of samples (n + 1, k, p) that vary as if single rows had been drawn.

    Means of groups vary by less; ``wide`` is the root mean square of the distances of rows.
    """
    seen = np.sqrt(np.nansum(centers[1:].var(axis=0, ddof=1), axis=1) * rows)
    more = np.fmax(wide / np.where(seen > 0, seen, np.nan), 1.0)[:, None]
    varied: Floats = centers[0] + more * (centers - centers[0])
    return varied


def _numbered(found: Result, order: NDArray[np.intp], places: Floats) -> State:
    """Return the state with clusters in this order; those that are gone keep their last centres."""
    state = ordered(found.state, cast(Algorithm, found.algorithm), order)
    if (order >= 0).all():
        return state
    last = np.vstack([places, state.centers[len(places) :]])
    centers = np.where(order[:, None] >= 0, state.centers, np.nan_to_num(last))
    return replace(
        state, centers=centers, memory={**state.memory, "gone": (order < 0).astype(np.float64)}
    )


def _names(
    model: Model, result: Result, how: Preprocessor | None, columns: Sequence[str]
) -> tuple[str, ...]:
    """Return the names of clusters: those they have, and of new ones what sets them apart."""
    known = list(Run(model=model.plain()).names)
    about = Model(result.state.centers, result.state.weights, tuple(columns), preprocessor=how)
    for j, name in enumerate(Run(model=about.plain()).names[len(known) :], len(known)):
        known.append(str(j) if name in known else name)
    return tuple(known)


def step_of(model: Model) -> Any:
    """Return the step of a model whose fixed point its clusters are."""
    m, own = model.algorithm.get("m"), model.assigned_by
    if isinstance(own, MergedMixture | TrimmedLloyd):
        return Scatter()
    usual = SphericalKMeans(0.0) if model.algorithm.get("metric") == "cosine" else Lloyd(0.0)
    return own or (usual if m is None else FFCM(float(m)))


def steps(model: Model) -> list[Any]:
    """Return the steps that continuing a model asks."""
    return [Agreement, Scatter, Lloyd, step_of(model)]


def takes_more(model: Model) -> bool:
    """Return whether the step of a model may be asked with further centres."""
    return not model.memory.keys() - {"gone"}


def _again(
    model: Model, how: RowTransform, beside: Floats, seed: int, n: int
) -> Plan[tuple[Floats, Floats]]:
    """Plan one round of a step of the earlier fit on the new rows, and on bootstrap samples.

    ``beside`` are centres of new clusters, which take their rows out of those of others.

    Returns
    -------
    Plan of (ndarray of shape (n + 1, k, p), ndarray of shape (n + 1, k))
        Centres and weights after the step: of all rows, then of each sample.
    """
    step, state, k = step_of(model), model.state.standing, len(model.centers)
    # sites allow few preparations in a run: that of the counts, unless it fills or leaves out rows
    gaps = model.by_name.missing == "ignore" and not isinstance(step, Scatter)
    changes = gaps or getattr(step, "log_noise", None) is not None
    transform: RowTransform = model.by_name if changes else how
    if isinstance(step, Scatter):
        state = State.at(state.centers)
    elif takes_more(model):
        state = State.at(np.vstack([state.centers, beside[~np.isnan(beside).any(axis=1)]]))
    tasks = [
        Task(step, state, seed, transform, everyone=True, resampled=each)
        for each in (None, *draws(n, seed))
    ]
    made = [_stepped(step, state, each, seed) for each in (yield tasks)]
    centers, weights = (np.array([getattr(m, e) for m in made]) for e in ("centers", "weights"))
    return centers[:, :k], weights[:, :k]


def _stepped(step: Any, state: State, answers: Answers, seed: int) -> State:
    """Return the state after a step; of assigned rows, their means."""
    if not isinstance(step, Scatter):
        return server_update(step, state, answers, seed)[0]
    total = answers.total()
    safe = np.where(total.weights > 0, total.weights, np.inf)[:, None]
    return State(state.centers + total.sums[:, :-2] / safe, total.weights)


def _changes(
    model: Model, centers: Floats, weights: Floats, stayed: NDArray[np.bool_], together: int
) -> tuple[Floats, Floats, Floats]:
    """Return moves, and probabilities of moves and of sizes, as in `Succession`.

    ``centers`` (n + 1, k, p) and ``weights`` (n + 1, k) are those of `_again`. With noise in the
    earlier centres, nothing is judged.
    """
    seen = stayed & (model.weights > 0) & (weights > 0).all(axis=0) & (not model.privacy)
    shares, then = np.where(seen, weights, 0.0), np.where(seen, model.weights, 0.0)
    shares, then = (
        each / np.maximum(each.sum(axis=-1, keepdims=True), 1e-300) for each in (shares, then)
    )
    rows, earlier = (np.where(seen, each, np.nan) for each in (weights[0], model.weights))
    away, n = centers[0] - model.centers, (np.nansum(rows), np.nansum(earlier))
    p_moved = _by_chance(away, centers[1:], rows[:, None], earlier[:, None], together)
    p_grown = np.where(seen, _by_chance(shares[0] - then, shares[1:], *n, together), np.nan)
    every = np.array(holm([*p_moved.ravel().tolist(), *p_grown.tolist()]))
    spread = centers[1:].std(axis=0, ddof=1) * np.sqrt(rows[:, None])
    moved = away / np.where(spread > 0, spread, np.nan)
    return moved, every[: p_moved.size].reshape(p_moved.shape), every[p_moved.size :]


def _by_chance(differences: Floats, drawn: Floats, rows: Any, before: Any, together: int) -> Floats:
    """Return two-sided p-values of differences between means of new rows and of those before.

    Their variance over samples is as uncertain as one of these rows, and one of these samples.
    """
    n = rows / together
    less = np.maximum(n - 1.0, 1e-9)
    error = drawn.std(axis=0, ddof=1) * np.sqrt((1.0 + rows / np.maximum(before, 1e-9)) * n / less)
    t = np.abs(differences) / np.where(error > 0, error, np.nan)
    p: Floats = 2 * scipy.stats.t.sf(t, 1.0 / (1.0 / (len(drawn) - 1) + 1.0 / less))
    return p
