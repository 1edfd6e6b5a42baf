"""How stable clusters are where rows are drawn anew, how far apart, and what that means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats

STABLE, DOUBTFUL = 0.9, 0.75
"""Mean Jaccard coefficient from which on a cluster is called stable, and doubtful; below it is
unstable. Measured by benchmarks/stability.py; C. Hennig has .75 for a valid, stable cluster."""
CLEAR, CUT = 4.0, 2.65
"""Deviations between neighbours from which on they are clearly apart, and those between the halves
of one normal cloud that is cut in two: 2 sqrt(2 / pi) / sqrt(1 - 2 / pi). Of a uniform one it is
sqrt(12)."""
NO_PROOF = (
    "Stability is no proof that a cluster is real: a cloud without clusters can be cut at the same "
    "place again and again, as where a column of text or a long tail says where. Too few clusters "
    "are never noticed. What is unstable, however, is not to be relied on."
)


@dataclass(frozen=True, slots=True, eq=False)
class Stability:
    """Stability of k clusters under a bootstrap of the rows, and their separation.

    Parameters
    ----------
    jaccards : ndarray of shape (b, k)
        Of each replicate and cluster, the largest Jaccard coefficient with a cluster that was found
        in the replicate: of the rows in either, those in both. NaN of a cluster without rows.
    neighbours : ndarray of shape (k,)
        The cluster whose centre is nearest; of a single cluster itself.
    separations : ndarray of shape (k,)
        The distance of the means of a cluster and its neighbour along the line between their
        centres, in standard deviations along it (Ashman's D); NaN where it is not known.

    Examples
    --------
    >>> jaccards = np.array([[1.0, 0.7], [0.9, 0.5]])
    >>> found = Stability(jaccards, np.array([1, 0]), np.array([5.0, 2.0]))
    >>> found.means.round(2), found.words
    (array([0.95, 0.6 ]), ('stable', 'unstable'))
    """

    jaccards: Floats
    neighbours: NDArray[np.intp]
    separations: Floats

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
        return tuple(
            "unknown"
            if np.isnan(mean)
            else "stable"
            if mean >= STABLE
            else "doubtful"
            if mean >= DOUBTFUL
            else "unstable"
            for mean in self.means.tolist()
        )

    def plain(self) -> dict[str, Any]:
        """Return the stability as JSON can hold it; numbers may be NaN."""
        clusters = [
            {
                "cluster": j,
                "stability": float(self.means[j]),
                "word": self.words[j],
                "neighbour": int(self.neighbours[j]),
                "separation": float(self.separations[j]),
                "apart": apart(float(self.separations[j])),
            }
            for j in range(len(self.neighbours))
        ]
        told = {"replicates": len(self.jaccards), "clusters": clusters}
        return told | {"meaning": self.sentences()}

    def sentences(self) -> list[str]:
        """Return in words what that means."""
        by_word = {
            word: [str(j) for j, each in enumerate(self.words) if each == word]
            for word in ("unstable", "doubtful")
        }
        said = [
            f"{'Cluster' if len(those) == 1 else 'Clusters'} {', '.join(those)} "
            f"{'is' if len(those) == 1 else 'are'} {word}: {WHY[word]}"
            for word, those in by_word.items()
            if those
        ]
        every = "All clusters are found again where rows are drawn anew."
        return [*(said or [every]), NO_PROOF]


WHY = {
    "unstable": "where rows are drawn anew, other clusters are found in its place.",
    "doubtful": "where rows are drawn anew, it loses or gains many rows.",
}


def apart(separation: float) -> str:
    """Return in words how far a cluster is from its neighbour.

    Examples
    --------
    >>> apart(5.0), apart(3.0), apart(2.0)
    ('clear', 'touching', 'none')
    """
    if np.isnan(separation):
        return "unknown"
    return "clear" if separation >= CLEAR else "touching" if separation > CUT else "none"


def jaccards(table: Floats) -> Floats:
    """Return the largest Jaccard coefficient of each line's cluster with one of the columns', (k,).

    C. Hennig, Cluster-wise assessment of cluster stability, Computational Statistics & Data
    Analysis 52, 2007, section 2.

    Parameters
    ----------
    table : ndarray of shape (k, q)
        Rows of each pair of clusters.

    Examples
    --------
    >>> jaccards(np.array([[8.0, 2.0], [0.0, 10.0]])).round(2)
    array([0.8 , 0.83])
    """
    union = table.sum(axis=1)[:, None] + table.sum(axis=0) - table
    share = np.divide(table, union, out=np.zeros_like(table), where=union > 0)
    return np.where(table.sum(axis=1) > 0, share.max(axis=1), np.nan)
