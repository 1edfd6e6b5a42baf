"""Rows, and their partitions over sites."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedcluster.core import Data


def on_line(*values: float) -> NDArray[np.float64]:
    """Rows of one column."""
    return np.array(values, dtype=float)[:, None]


@dataclass(frozen=True)
class Case:
    """Rows with labels, a partition of them, and centres to ask about."""

    X: NDArray[np.float64]
    weight: NDArray[np.float64] | None
    site: NDArray[np.int64]
    centers: NDArray[np.float64]
    y: NDArray[np.int64]

    @property
    def pooled(self) -> Data:
        return Data(self.X, self.weight, self.y)

    @property
    def parts(self) -> dict[str, Data]:
        """The rows of each site that has any."""
        return {f"s{i}": self.pooled.take(self.site == i) for i in np.unique(self.site)}


@st.composite
def cases(draw: st.DrawFn, *, max_rows: int = 40, weights: bool = True) -> Case:
    """Small whole-numbered rows with duplicates and ties, on a scale and at an offset."""
    n, d = draw(st.integers(2, max_rows)), draw(st.integers(1, 4))
    k = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale, offset = draw(st.sampled_from([(1.0, 0.0), (0.1, 0.0), (1.0, 1e4)]))
    X = rng.integers(-5, 6, size=(n, d)).astype(float) * scale + offset
    weight = rng.integers(0, 4, size=n).astype(float) if weights and draw(st.booleans()) else None
    site = rng.integers(0, draw(st.integers(1, 4)), size=n)
    if weight is not None:
        weight[np.unique(site, return_index=True)[1]] += 1.0  # every site has a row that counts
    centers = rng.integers(-5, 6, size=(k, d)).astype(float) * scale + offset + 0.25
    return Case(X, weight, site, centers, y=rng.integers(0, 3, size=n))


@dataclass
class InChunks:
    """Rows in memory, handed out in chunks; counts how often they are read, and how."""

    data: Data
    size: int
    beside: tuple[str, ...] = ()
    read: int = 0
    loaded: int = 0

    def __len__(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterator[Data]:
        self.read += 1
        for start in range(0, len(self.data), self.size):
            yield self.data.take(slice(start, start + self.size))

    def load(self) -> Data:
        self.loaded += 1
        return self.data
