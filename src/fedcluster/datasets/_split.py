"""Pooled rows, their true clusters and the sites that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster.core import Floats


@dataclass(frozen=True, slots=True, eq=False)
class SplitRows:
    """Rows with their true clusters and the sites that hold them, in the order of generation.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The pooled rows.
    y : ndarray of shape (n,)
        The true cluster of each row.
    site : ndarray of shape (n,)
        The name of the site that holds each row.
    """

    X: Floats
    y: NDArray[np.intp]
    site: NDArray[np.str_]

    @property
    def sites(self) -> dict[str, tuple[Floats, NDArray[np.intp]]]:
        """Rows and true clusters of each site, by name, in the order of the names."""
        holds = {str(name): self.site == name for name in np.unique(self.site)}
        return {name: (self.X[these], self.y[these]) for name, these in holds.items()}


def clouds(means: Floats, noise: float, counts: NDArray[np.intp], rng: Generator) -> SplitRows:
    """Draw normal rows by site, ``counts[i, j]`` of them around mean j at site i."""
    client, cluster = np.divmod(np.repeat(np.arange(counts.size), counts.ravel()), len(means))
    return SplitRows(rng.normal(means[cluster], noise), cluster, client_names(client))


def client_names(client: Any) -> NDArray[np.str_]:
    """Return the name of each row's site from its number, (n,)."""
    width = len(str(max(client)))  # so that names sort as numbers do
    return np.array([f"client-{i:0{width}}" for i in client])
