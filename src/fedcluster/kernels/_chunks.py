"""Chunks of rows, which depend on the sizes alone: each has its own sums, added in their order."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from fedcluster.kernels._rows import PADDING, Rows, pad

FEWEST_CHUNK_ROWS, MOST_CHUNK_ROWS, MOST_CHUNKS = 2048, 65536, 128
SMALL = 1 << 14  # numbers
CHUNK_WORK = 1 << 24  # multiplications of a value with a centre's; all else counts as 16 more


def is_small(X: Rows) -> bool:
    """Return whether one call of a compiled function, on a copy of the rows, is fastest."""
    return X.size <= SMALL


def chunks(X: Rows, bounds: Sequence[int]) -> list[tuple[slice, Rows]]:
    """Return the rows of each chunk: a slice of X, and an array that begins with them."""
    sources = [(slice(*bound), X[bound[0] :]) for bound in pairwise(bounds)]
    rows, tail = sources[-1]
    return [*sources[:-1], (rows, pad(tail))]


@lru_cache(maxsize=256)
def chunk_bounds(n: int, k: int, d: int) -> tuple[int, ...]:
    """Compute the bounds of the chunks from the sizes alone: enough work in each, few sums to keep.

    All are alike but the last, whose rows must be padded; what lies beyond the others is in X.
    Small data are one chunk.
    """
    if n * d <= SMALL:
        return 0, n
    size = min(max(CHUNK_WORK // ((k + 16) * d), FEWEST_CHUNK_ROWS), MOST_CHUNK_ROWS)
    size = max(size, n // MOST_CHUNKS + 1)
    most = max(n - PADDING, 0)
    n_chunks = (most - 1) // size + 1
    return *(chunk * most // n_chunks for chunk in range(n_chunks)), most, n
