"""Numbers of rows in each pair of clusters of two models, and their meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy

from fedcluster.core import Floats
from fedcluster.metrics.external import adjusted_rand_index


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
            told = ["No pair of clusters has enough rows at a site to be shown."]
        else:
            matched = (
                float(both[scipy.optimize.linear_sum_assignment(both, maximize=True)].sum()) / total
            )
            told = [
                f"Matching each cluster with one of the other model, {100 * matched:.3g} % of the "
                "rows are in matched clusters (adjusted Rand index "
                f"{adjusted_rand_index(both):.2f})."
            ]
        left = {"the first": self.rows[-1].sum(), "the second": self.rows[:, -1].sum()}
        told += [
            f"Rows in no cluster of {which} model: {weight:,.10g}."
            for which, weight in left.items()
            if weight
        ]
        if self.hidden > 1e-6 * self.weight:
            told.append(
                f"Not shown: {self.hidden:,.10g} rows in pairs that are too small at their site "
                "for its limits."
            )
        return told

    def plain(self) -> dict[str, Any]:
        """Return the content for files and for programs."""
        return {"rows": self.rows.tolist(), "weight": self.weight, "meaning": self.meaning}
