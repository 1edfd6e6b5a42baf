"""Size limits: a line of a summary that stands for too few rows does not leave the site.

Owned by the site and applied to every summary, those of seeding and of metrics included. They
protect a single round; over many rounds two nearly equal sums can still be subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcluster.core import Summary


@dataclass(frozen=True, slots=True)
class MinClusterSize:
    """Hold back each line that stands for fewer than ``p`` rows (Garst & Reinders, section 3.2).

    Counted are rows, not their weights. What is held back is missing in the total, so the
    result is no longer exactly the pooled one; p = 1 holds nothing back.

    Parameters
    ----------
    p : int, default=2
        The smallest number of rows that a line may stand for. The paper's value is 2.

    Examples
    --------
    >>> import numpy as np
    >>> lone_and_pair = Summary(np.array([[5.0], [8.0]]), np.array([1.0, 2.0]))
    >>> MinClusterSize(2)(lone_and_pair, n_rows=3).sums.ravel()
    array([0., 8.])
    """

    p: int = 2

    def __post_init__(self) -> None:
        if self.p < 1:
            raise ValueError(f"min_cluster_size must be at least 1, not {self.p}")

    def __call__(self, summary: Summary, n_rows: int) -> Summary:
        """Keep the lines of at least ``p`` rows."""
        return summary.keep(summary.rows >= self.p)


@dataclass(frozen=True, slots=True)
class MinRows:
    """Hold back everything where the site has fewer than ``n`` rows in all.

    Parameters
    ----------
    n : int, default=2
        The smallest number of rows with which a site takes part. With 2, the row of a site
        that has only one never leaves.
    """

    n: int = 2

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"the smallest number of rows must be at least 1, not {self.n}")

    def __call__(self, summary: Summary, n_rows: int) -> Summary:
        """Keep everything or nothing."""
        return summary if n_rows >= self.n else summary.keep(summary.rows < 0)
