"""Bootstrap of a site's rows: how often each is drawn, as its weight.

Each row is drawn so often as a Poisson number of mean 1 says, by itself: that is what drawing n of
n rows with replacement comes to where they are many, and no site need know how many rows the others
have. J. A. Hanley & B. MacGibbon, Creating non-parametric bootstrap samples using Poisson
frequencies, Computer Methods and Programs in Biomedicine 83, 2006.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data


def resampled(data: Data, seed: int, site: str, key: bytes = b"") -> Data:
    """Return the rows that are drawn, each with its weight times how often it is.

    The same rows for the same seed, site and key, in any order. All rows of a person are drawn
    together; a row that is the mean of a group, by as many draws as rows stand behind it.

    Parameters
    ----------
    data : Data
        The rows of a site.
    seed : int
        Makes the draw.
    site : str
        The name of the site.
    key : bytes
        What only the site knows. Without it, who knows the seed knows which rows were drawn, by
        their place in lexicographic order; sums over many known draws give the rows away.

    Examples
    --------
    >>> drawn = resampled(Data(np.arange(5.0)[:, None]), 1, "north")
    >>> drawn.X.ravel(), drawn.sample_weight
    (array([0., 1.]), array([1., 1.]))
    """
    kept: dict[Any, Any] = data.cache.setdefault("resampled", {})
    if "order" not in kept:
        numbered = replace(data, assigned=np.arange(len(data), dtype=np.int32))
        kept["order"] = numbered.canonical().assigned
    if (seed, site, key) not in kept:
        rng = np.random.default_rng([seed, *site.encode(), *key])
        kept[seed, site, key] = _times(data, kept["order"], rng)
    times = kept[seed, site, key]
    weight = np.ones(len(data)) if data.sample_weight is None else data.sample_weight
    if data.grouped is not None:
        times = times / data.grouped.counts
    return replace(data, sample_weight=weight * times).take(times > 0)


def _times(data: Data, order: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.uint16]:
    """Return how often each row is drawn, drawn in the order that is given."""
    times = np.zeros(len(data), dtype=np.uint16)
    if data.grouped is not None:
        times[order] = rng.poisson(data.grouped.counts[order])
    elif data.groups is None:
        times[order] = rng.poisson(1.0, len(data))
    else:
        _, first, person = np.unique(data.groups[order], return_index=True, return_inverse=True)
        times[order] = rng.poisson(1.0, len(first))[np.argsort(np.argsort(first))[person]]
    return times
