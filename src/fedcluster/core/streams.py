"""Random numbers that are the same on every engine: one stream per seed, round and site."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray


def stream(seed: int, round: int, site: str = "") -> Generator:
    """Return the random generator for a seed, round and site; without a site, the server's.

    It is the same on every engine and in any order of sites: ``default_rng([seed, round, *site])``.
    """
    return _Stream([seed, round, *site.encode()])


def sampled(n: int, fraction: float, seed: int, round: int) -> NDArray[np.intp]:
    """Return which of n sites are asked in a round: max(int(C n), 1) of them, in order.

    Drawn from a stream that no site and no server step draws from.
    """
    if fraction >= 1.0:
        return np.arange(n)
    chosen = stream(seed, round, "asked").choice(n, max(int(fraction * n), 1), replace=False)
    return np.sort(chosen)


class _Stream(Generator):
    """A generator that is seeded when it is first used.

    Most steps draw nothing, and seeding takes 20 microseconds: it would make FKM over a hundred
    sites of twenty rows 1.4 times slower. A generator's methods read memory that only seeding
    fills, so every access has to pass through this class. It must be a real `Generator`, because
    NumPy and SciPy refuse anything else.
    """

    def __init__(self, words: list[int]) -> None:
        self._words = words

    def __getattribute__(self, name: str) -> Any:
        words = object.__getattribute__(self, "__dict__").pop("_words", None)
        if words is not None:
            if min(words) >= 0 and max(words) < 1 << 32:  # from a list, it takes twice as long
                words = np.array(words, np.uint32)
            super().__init__(np.random.PCG64(words))
        return super().__getattribute__(name)
