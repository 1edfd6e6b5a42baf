"""Stability of clusters under resampling of the rows, gaps between them, and their meaning.

Numbers of rows in each pair of clusters of two models, and their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.metrics.external import adjusted_rand_index
from fedcluster.texts import Table, escaped


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    """Weight of the rows in each pair of clusters of two models.

    Parameters
    ----------
    rows : ndarray of shape (k + 1, l + 1)
        The weight of the rows in each pair, as far as the sites' limits show it. The last line is
        about rows of no cluster of the first model, the last column of the second.
    weight : float
        The weight of all rows.

    Examples
    --------
    >>> import numpy as np
    >>> crossing = Crossing(np.array([[40.0, 0, 0], [9, 50, 0], [0, 0, 0]]), 102.0)
    >>> crossing.hidden, crossing.meaning[0][:50]
    (3.0, 'Matching each cluster with one of the other model,')
    """

    rows: Floats
    weight: float

    @property
    def between(self) -> Floats:
        """Rows in a cluster of each model, (k, l)."""
        return self.rows[:-1, :-1]

    @property
    def hidden(self) -> float:
        """Weight of the rows in pairs that limits hold back."""
        return max(self.weight - float(self.rows.sum()), 0.0)

    @property
    def meaning(self) -> list[str]:
        """Sentences on how far the models agree, and on rows that are not compared."""
        both, total = self.between, float(self.between.sum())
        if not total:
            lines = ["No pair of clusters has enough rows at a site to be shown."]
        else:
            matched = (
                float(both[scipy.optimize.linear_sum_assignment(both, maximize=True)].sum()) / total
            )
            lines = [
                f"Matching each cluster with one of the other model, {100 * matched:.3g} % of the "
                "rows are in matched clusters (adjusted Rand index "
                f"{adjusted_rand_index(both):.2f})."
            ]
        left = {"the first": self.rows[-1].sum(), "the second": self.rows[:, -1].sum()}
        lines += [
            f"Rows in no cluster of {which} model: {weight:,.10g}."
            for which, weight in left.items()
            if weight
        ]
        if self.hidden > 1e-6 * self.weight:
            lines.append(
                f"Not shown: {self.hidden:,.10g} rows in pairs that are too small at their site "
                "for its limits."
            )
        return lines

    def plain(self) -> dict[str, Any]:
        """Return the content for files and for programs."""
        return {"rows": self.rows.tolist(), "weight": self.weight, "meaning": self.meaning}


NO_PROOF = (
    "A doubtful cluster may be a part of a larger one: do not rely on it, nor on an unstable one. "
    "Stability does not show whether there are too few clusters."
)


@dataclass(frozen=True, slots=True, eq=False)
class Stability:
    """Stability of k clusters under a bootstrap of the rows, and the gaps between them.

    Parameters
    ----------
    jaccards : ndarray of shape (b, k)
        For each replicate and cluster, the largest Jaccard coefficient (rows in both over rows in
        either) with a cluster of the replicate. NaN for a cluster without rows.
    neighbours : ndarray of shape (k,)
        The cluster whose centre is nearest, or of sets of components that with the largest density
        between; a single cluster is its own neighbour.
    between : ndarray of shape (k,)
        The minimal density between a cluster and its neighbour, along the line between their
        centres or the ridge of a mixture, relative to the lower of the two peaks; NaN if unknown.
    left_out : int, default=0
        Number of replicates that did not finish in time and are not in ``jaccards``.

    Examples
    --------
    >>> jaccards = np.array([[1.0, 0.9, 0.7], [0.9, 0.9, 0.5]])
    >>> stability = Stability(jaccards, np.array([1, 2, 1]), np.array([0.1, 1.2, 1.2]))
    >>> stability.means.round(2), stability.words
    (array([0.95, 0.9 , 0.6 ]), ('stable', 'doubtful', 'unstable'))
    """

    jaccards: Floats
    neighbours: NDArray[np.intp]
    between: Floats
    left_out: int = 0
    found_from = 0.8
    """Mean Jaccard coefficient from which on a cluster is found again (.75 in C. Hennig)."""
    gap_upto = 0.5
    """Density between it and its neighbour, relative to the lower of the two peaks, up to which
    there is a gap. Measured by benchmarks/stability.py."""

    @property
    def means(self) -> Floats:
        """Return the mean Jaccard coefficient of each cluster, (k,)."""
        if not len(self.jaccards):
            return np.full(len(self.neighbours), np.nan)
        means: Floats = self.jaccards.mean(axis=0)
        return means

    @property
    def words(self) -> tuple[str, ...]:
        """Return "stable", "doubtful" or "unstable" for each cluster, "unknown" without rows."""
        return tuple(map(word, self.means.tolist(), self.between.tolist()))

    def reordered(self, order: NDArray[np.intp]) -> Stability:
        """Return the stability with clusters in another order; -1 is one without rows."""
        places = np.argsort(order)[np.count_nonzero(order < 0) :]
        known = np.where(order < 0, np.nan, 1.0)
        return replace(
            self,
            jaccards=self.jaccards[:, order] * known,
            neighbours=places[self.neighbours[order]],
            between=self.between[order] * known,
        )

    @property
    def found_again(self) -> NDArray[np.intp]:
        """The number of replicates in which each cluster is found again, (k,).

        It is found again if its Jaccard coefficient is at least .8.
        """
        again: NDArray[np.intp] = (self.jaccards >= self.found_from).sum(axis=0)
        return again

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: a table, and its meaning."""
        content = self.plain()
        table = stability_table(content).plain_html()
        return table + "".join(f"<p>{escaped(each)}</p>" for each in content["meaning"])

    def plain(self) -> dict[str, Any]:
        """Return the stability as JSON-compatible values; numbers may be NaN."""
        content = {"replicates": len(self.jaccards), "left_out": self.left_out}
        clusters = [self._cluster(j) for j in range(len(self.neighbours))]
        return content | {"clusters": clusters, "meaning": self.sentences()}

    def _cluster(self, j: int) -> dict[str, Any]:
        """Return the stability of one cluster as JSON-compatible values."""
        own = self.jaccards[:, j]
        return {
            "cluster": j,
            "stability": float(self.means[j]),
            "lowest": float(own.min()) if len(own) else np.nan,
            "highest": float(own.max()) if len(own) else np.nan,
            "found_again": int(self.found_again[j]),
            "word": self.words[j],
            "neighbour": int(self.neighbours[j]),
            "between": float(self.between[j]),
        }

    def sentences(self) -> list[str]:
        """Describe the stability in sentences."""
        if len(self.neighbours) == 1:
            return ["A single cluster has nothing to be compared with.", *self._lacking()]
        groups = {each: [j for j, own in enumerate(self.words) if own == each] for each in WHY}
        sentences = [
            f"{_clusters(those)} {'is' if len(those) == 1 else 'are'} {why}"
            for why, those in zip(WHY.values(), groups.values(), strict=True)
            if those
        ]
        every = "All clusters are found again if the rows are drawn again, with gaps between them."
        return [*(sentences or [every]), *self._lacking(), NO_PROOF]

    def _lacking(self) -> list[str]:
        """Return a sentence on the replicates that were left out, if there are any."""
        if not self.left_out:
            return []
        n = len(self.jaccards) + self.left_out
        which = f"{self.left_out} of {n} replicates {'is' if self.left_out == 1 else 'are'}"
        return [
            f"{which} left out: {'it' if self.left_out == 1 else 'they'} had not ended after 1.5 "
            "times the rounds of the fit, or had too few rows."
        ]


WHY = {
    "unstable": "unstable: other clusters are found if the rows are drawn again.",
    "doubtful": "doubtful: found again, but no gap to the nearest cluster was seen.",
    "unknown": "not compared: there are no rows, or no replicate ended in time.",
}
"""Explanations of each word except the best."""


def _clusters(numbers: Sequence[int]) -> str:
    """Return clusters as the subject of a sentence."""
    return f"Cluster{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def word(mean: float, between: float) -> str:
    """Return in one word how far a cluster can be relied on.

    Parameters
    ----------
    mean : float
        Its mean Jaccard coefficient.
    between : float
        The minimal density between it and its neighbour, relative to the lower peak; NaN for a
        single cluster.

    Examples
    --------
    >>> word(0.95, 0.1), word(0.85, 0.1), word(0.95, 1.0), word(0.6, 0.1), word(np.nan, 0.1)
    ('stable', 'stable', 'doubtful', 'unstable', 'unknown')
    """
    if np.isnan(mean):
        return "unknown"
    if mean < Stability.found_from:
        return "unstable"
    return "doubtful" if between > Stability.gap_upto else "stable"


def jaccards(table: Floats) -> Floats:
    """Return the largest Jaccard coefficient of each line's cluster over all columns, (k,).

    C. Hennig, Cluster-wise assessment of cluster stability, Computational Statistics & Data
    Analysis 52, 2007, section 2.

    Parameters
    ----------
    table : ndarray of shape (k, q)
        Number of rows of each pair of clusters.

    Examples
    --------
    >>> jaccards(np.array([[8.0, 2.0], [0.0, 10.0]])).round(2)
    array([0.8 , 0.83])
    """
    union = table.sum(axis=1)[:, None] + table.sum(axis=0) - table
    share = np.divide(table, union, out=np.zeros_like(table), where=union > 0)
    return np.where(table.sum(axis=1) > 0, share.max(axis=1), np.nan)


def stability_table(stability: Mapping[str, Any]) -> Table:
    """Return the stability of clusters as a table, given `Stability.plain` or its JSON.

    Examples
    --------
    >>> content = Stability(np.array([[1.0], [0.9]]), np.array([0]), np.array([np.nan])).plain()
    >>> stability_table(content).rows
    (('0', 'stable', '0.95', '0.90', '2', '0', '–'),)
    """
    rows = []
    for each in stability["clusters"]:
        numbers = (each["stability"], each["lowest"], each["between"])
        mean, lowest, between = ("–" if x is None or np.isnan(x) else f"{x:.2f}" for x in numbers)
        nearest = (str(each["found_again"]), str(each["neighbour"]), between)
        rows.append((str(each["cluster"]), each["word"], mean, lowest, *nearest))
    return Table(
        f"Stability in {stability['replicates']} replicates",
        ("cluster", "stability", "mean", "lowest", "found again", "nearest", "density between"),
        tuple(rows),
    )
