"""External indices: agreement of clusters with reference labels.

The indices follow from n_jc, the number of rows of class c in cluster j. These are sums, so the
indices over all rows are exact. The classes must be agreed on first; they travel with the request.

`SiteARI` needs no agreement, because each site compares with its own labels. It is less
informative: if two sites put the same class into different clusters, both are right.

Agreement of two clusterings of the same rows, and the gap between neighbouring clusters.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import Data, Floats, Labels, State, Summary
from fedcluster.core.ranges import CENTERS, CLUSTERS, EITHER, UNTOLD, Allowed, Array, Texts
from fedcluster.kernels import nearest
from fedcluster.metrics import moments
from fedcluster.metrics.clusters import clusters_of
from fedcluster.metrics.columns import in_cells
from fedcluster.metrics.gaussians import (
    FIELDS,
    CovarianceType,
    cluster_probabilities,
    memory_of_clusters,
    sizes_of,
)

NO_INFORMATION = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class Contingency:
    """Contingency table: number of rows of each pair of a cluster and one of q classes.

    Parameters
    ----------
    classes : str
        The q classes, as a JSON list of texts; `from_classes` writes it. Labels are
        compared as text.
    complete : bool, default=True
        Whether these are all classes. If not, rows of other classes are missing from the table,
        like those of pairs that a limit holds back.

    Notes
    -----
    A site sends at most k q numbers, one for each of its pairs of cluster and class. Each is a line
    of its own, so that a limit on the size of clusters holds back small pairs. The numbers reveal
    how often each class occurs at the site, and in which clusters.

    Raises
    ------
    ValueError
        If the rows have no labels, or a label is not among the classes although these are complete.

    Examples
    --------
    >>> step, state = Contingency.from_classes(["a", "b"]), State.at(np.array([[0.0], [9.0]]))
    >>> rows = Data(np.array([[0.0], [1.0], [8.0]]), y=np.array(["a", "b", "b"]))
    >>> contingency_table(state, step.client_step(state, rows, np.random.default_rng(0)))
    array([[1., 1.],
           [0., 1.]])
    """

    allowed = Allowed({"classes": Texts(), "complete": EITHER}, CENTERS)
    client_additive = server_additive = True

    classes: str = "[]"
    complete: bool = True

    @classmethod
    def from_classes(cls, classes: Iterable[Any], *, complete: bool = True) -> Self:
        """Return the step for these classes, sorted as text."""
        return cls(json.dumps(sorted(set(map(str, classes)))), complete)

    @property
    def names(self) -> list[str]:
        """The classes."""
        names: list[str] = json.loads(self.classes)
        return names

    def disclosed_only(self, labels: Collection[str]) -> Self:
        """Return the step with every class disguised that is not among the given labels."""
        names = [name if name in labels else UNTOLD + name for name in self.names]
        return replace(self, classes=json.dumps(names))

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line without sums for each pair of cluster and class."""
        return len(state.centers) * len(self.names), 0

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the weights of the rows of each pair of cluster and class, without sums."""
        parts, data = data.label_parts(), data.labelled()
        labels, _ = clusters_of(data, state.centers)
        places = self._places(_reference(data))
        known = places >= 0
        pairs = labels[known] * len(self.names) + places[known]
        weights, parts = moments.row_weights(data)[known], parts[known]
        most = len(state.centers) * len(self.names)
        return Summary(
            np.zeros((most, 0)), _counted(pairs, weights, most), _counted(pairs, parts, most)
        )

    def _places(self, y: NDArray[Any]) -> NDArray[np.intp]:
        """Return the index of each label among the classes, (n,); -1 if it is not there."""
        here, codes = np.unique(y.astype(str), return_inverse=True)
        place = {name: i for i, name in enumerate(self.names)}
        strange = sum(name not in place for name in here)
        if strange and self.complete:
            raise ValueError(
                f"{strange} of the {len(here)} labels here are not among the "
                f"{len(place)} classes that were asked about"
            )
        return np.array([place.get(name, -1) for name in here], dtype=np.intp)[codes]


@dataclass(frozen=True, slots=True)
class SiteARI:
    """Mean of the sites' own adjusted Rand indices, weighted by their rows.

        sum_i n_i ARI_i / sum_i n_i

    S. Garst & M. Reinders, Federated K-means clustering (ICPR 2024; arXiv 2310.01195), which report
    it for FKM and k-FED; it is not the index of the pooled rows.

    Notes
    -----
    A site sends two numbers, n_i ARI_i and n_i; no limit on the size of clusters holds them back.
    They reveal how well the clusters fit the site's labels. The step is not additive over rows.

    Raises
    ------
    ValueError
        If the rows have no labels.
    """

    allowed = Allowed(centers=CENTERS)
    client_additive = False
    server_additive = maximise = True
    answer_shape = moments.one_number

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the site's index times its weight, and its weight."""
        data = data.labelled()
        labels, _ = clusters_of(data, state.centers)
        weight = moments.row_weights(data)
        table = _crossed(labels, _reference(data), weight, len(state.centers))
        return moments.one_line(weight.sum() * adjusted_rand_index(table), data)

    def score(self, state: State, total: Summary) -> float:
        """Return the mean."""
        return moments.mean(total)


def contingency_table(state: State, total: Summary) -> Floats:
    """Return the numbers of rows by cluster and class, (k, q), from the total of `Contingency`."""
    return total.weights.reshape(len(state.centers), -1)


def adjusted_rand_index(table: ArrayLike) -> float:
    """Return the adjusted Rand index of a contingency table: 1 for equal groups, 0 by chance.

    L. Hubert & P. Arabie, Comparing partitions, J. Classification 2, 1985, eq. 5. Equal to
    scikit-learn's ``adjusted_rand_score``.

    Parameters
    ----------
    table : array_like of shape (k, q)
        Rows by cluster and class.

    Examples
    --------
    >>> adjusted_rand_index([[3, 0], [0, 2]]), round(adjusted_rand_index([[2, 1], [0, 2]]), 4)
    (1.0, 0.1667)
    """
    counts = np.asarray(table, dtype=np.float64)

    def pairs(n: Any) -> float:
        return float((n * (n - 1) / 2).sum())

    same, clusters, classes = pairs(counts), pairs(counts.sum(axis=1)), pairs(counts.sum(axis=0))
    every = pairs(counts.sum())
    chance = clusters * classes / every if every else 0.0
    most = (clusters + classes) / 2
    return (same - chance) / (most - chance) if most != chance else 1.0


def mutual_information(table: ArrayLike) -> float:
    """Return the normalised mutual information, I / mean of both entropies, from 0 to 1.

    A. Strehl & J. Ghosh, Cluster ensembles, JMLR 3, 2002, with the arithmetic mean. Equal to
    scikit-learn's ``normalized_mutual_info_score``.

    Examples
    --------
    >>> mutual_information([[2, 0], [0, 2]]), mutual_information([[2, 2], [1, 1]])
    (1.0, 0.0)
    """
    share = np.asarray(table, dtype=np.float64)
    share = share / share.sum()
    clusters, classes = share.sum(axis=1), share.sum(axis=0)
    some = share > 0
    surprise = np.log(share[some] / np.outer(clusters, classes)[some])
    information = float(share[some] @ surprise)
    entropies = _entropy(clusters) + _entropy(classes)
    if not entropies:
        return 1.0
    return min(1.0, 2 * information / entropies) if information > NO_INFORMATION else 0.0


def purity(table: ArrayLike) -> float:
    """Return the share of rows in the most frequent class of their cluster.

    It is 1 if each row is a cluster.

    Y. Zhao & G. Karypis, Criterion functions for document clustering, 2001.

    Examples
    --------
    >>> purity([[2, 1], [0, 1]])
    0.75
    """
    counts = np.asarray(table, dtype=np.float64)
    return float(counts.max(axis=1).sum() / counts.sum())


def _entropy(shares: Floats) -> float:
    """Return minus the sum of p log p."""
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum())


def _crossed(labels: Labels, y: NDArray[Any], weight: Floats, k: int) -> Floats:
    """Return the contingency table of one site's clusters and labels, (k, q)."""
    here, codes = np.unique(y, return_inverse=True)
    return _counted(labels * len(here) + codes, weight, k * len(here)).reshape(k, len(here))


def _counted(numbers: NDArray[np.integer], weight: Floats, n: int) -> Floats:
    """Return the weight of each number from 0 to n - 1, (n,)."""
    return np.bincount(numbers, weight, n).astype(np.float64)


def _reference(data: Data) -> NDArray[Any]:
    if data.y is None:
        raise ValueError("the rows here have no labels to compare with")
    return data.y


@dataclass(frozen=True, slots=True)
class Agreement:
    """Rows of each pair of their assigned cluster and that of another clustering.

    Parameters
    ----------
    n_clusters : int
        The number k of clusters to which rows are assigned; if they are not, that of the other
        clustering is used.
    merged : bool, default=False
        Whether the state is that of a `MergedMixture`; by default, the other cluster of a row is
        that of the nearest centre.
    covariance_type, log_noise, levels
        Parameters of this mixture, as in `GaussianMixture`.

    Notes
    -----
    A site sends at most k k' numbers, k' being the number of centres: a line without sums for each
    pair, so that a limit on the size of clusters holds back small ones.

    Examples
    --------
    >>> rows = Data(np.array([[0.0], [4.0], [9.0]]), assigned=np.array([0, 0, 1], dtype=np.int32))
    >>> state = State.at([[0.0], [8.0]])
    >>> Agreement(2).client_step(state, rows, np.random.default_rng(0)).weights
    array([2., 0., 0., 1.])
    """

    client_additive = server_additive = True

    n_clusters: int = 1
    merged: bool = False
    covariance_type: CovarianceType = "full"
    log_noise: float | None = None
    levels: bool = False

    @property
    def allowed(self) -> Allowed:
        """The ranges of what a site may be asked."""
        fields: dict[str, Any] = {"n_clusters": CLUSTERS, "merged": EITHER, **FIELDS}
        if not self.merged:
            return Allowed(fields, CENTERS)
        sizes = sizes_of(self, merged=True)
        return Allowed(fields, CENTERS, memory_of_clusters(self), sizes=sizes, gaps=True)

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each pair."""
        return self.n_clusters * len(state.centers), 0

    def others(self, state: State, data: Data) -> Labels:
        """Return the other cluster of each row, (n,)."""
        if not self.merged:
            return nearest(data.X, state.centers)[0]
        parts = moments.in_parts(data, 4 * len(state.memory["parts"]))
        labels = [cluster_probabilities(self, state, each.X).argmax(axis=1) for each in parts]
        return np.concatenate([np.zeros(0, np.int32), *labels]).astype(np.int32)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the weight and the number of the rows of each pair."""
        other = self.others(state, data)
        own = np.minimum(other if data.assigned is None else data.assigned, self.n_clusters - 1)
        pairs, most = own * len(state.centers) + other, self.n_clusters * len(state.centers)
        weights, counts = (
            np.bincount(pairs, each, most).astype(np.float64)
            for each in (moments.row_weights(data), np.ones(len(data)))
        )
        return Summary(np.zeros((most, 0)), weights, counts)


ALONG = np.array([-np.inf, -0.15, 0.15, 0.35, 0.45, 0.55, 0.65, 0.85, 1.15, np.inf])
"""Edges of the cells on the line from a centre, at 0, to its neighbour's, at 1."""


@dataclass(frozen=True, slots=True)
class Separation:
    """Rows in nine cells along the line from each cluster's centre to that of its neighbour.

    The rows are those of both clusters. The state's memory has ``neighbours (k,)``, the index of
    each cluster's neighbour. The position of a row x is (x - c) . (c' - c) / |c' - c|^2, with c and
    c' the two centres.

    Notes
    -----
    A site sends 9 k numbers: a line without sums for each cell.

    Examples
    --------
    >>> memory = {"neighbours": np.array([1.0, 0.0])}
    >>> state = State(np.array([[0.0], [8.0]]), np.zeros(2), memory=memory)
    >>> rows = Data(np.array([[-1.0], [1.0], [3.0], [8.0]]))
    >>> Separation().client_step(state, rows, np.random.default_rng(0)).weights.reshape(2, 9)
    array([[0., 2., 0., 1., 0., 0., 0., 1., 0.],
           [0., 1., 0., 0., 0., 1., 0., 2., 0.]])
    """

    allowed = Allowed(centers=CENTERS, memory={"neighbours": Array(("k",), below="k")})
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: nine lines without sums for each cluster."""
        return (len(ALONG) - 1) * len(state.centers), 0

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the weights and the numbers of rows of the cells."""
        centers, neighbours = state.centers, state.memory["neighbours"].astype(int)
        total = moments.no_rows((len(ALONG) - 1) * len(centers), 0)
        for part in moments.in_parts(data, 4 * centers.shape[1] + 8):
            labels, _ = clusters_of(part, centers)
            weights, cells = moments.row_weights(part), []
            for j, other in enumerate(neighbours):
                mine = (labels == j) | (labels == other)
                line = centers[other] - centers[j]
                square = float(line @ line)
                along = (part.X[mine] - centers[j]) @ line / square if square > 0 else line[:0]
                cells.append(in_cells(along, weights[mine][: len(along)], ALONG))
            weight, count = np.concatenate(cells, axis=1)
            total += Summary(np.zeros((len(weight), 0)), weight, count)
        return total


def lowest_between(cells: Floats, rows: Floats) -> Floats:
    """Return the minimal density between two centres, relative to the lower peak, (k,).

    It is near 0 if there is a gap between the two clusters, and 1 or more if one cluster was cut in
    two; NaN if a peak has no rows. Rows that limits held back are assumed to be distributed evenly
    over the empty cells.

    Parameters
    ----------
    cells : ndarray of shape (k, 9)
        The weights of the cells of `Separation`.
    rows : ndarray of shape (k,)
        The weight of each cluster together with its neighbour.

    Examples
    --------
    >>> apart, cut = [0.0, 29, 5, 0, 0, 1, 6, 30, 2], [9, 20, 25, 16, 17, 16, 24, 21, 8.0]
    >>> cells = np.array([apart, cut])
    >>> lowest_between(cells, cells.sum(axis=1)).round(2)
    array([0.1 , 1.42])
    """
    empty = cells == 0
    lacking = (rows - cells.sum(axis=1)).clip(0.0) / np.maximum(empty.sum(axis=1), 1)
    density = (cells + lacking[:, None] * empty)[:, 1:-1] / np.diff(ALONG[1:-1])
    peaks = np.minimum(density[:, :2].max(axis=1), density[:, -2:].max(axis=1))
    # one row more: a gap among few rows is weak evidence
    least = density[:, 2:5].min(axis=1) + 1 / (ALONG[4] - ALONG[3])
    share: Floats = np.divide(least, peaks, out=np.full(len(cells), np.nan), where=peaks > 0)
    return share
