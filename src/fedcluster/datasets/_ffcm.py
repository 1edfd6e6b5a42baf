"""The made-up data of the FFCM paper.

M. Stallmann & A. Wilbik, Towards federated clustering: a federated fuzzy c-means algorithm
(FFCM), FL-AAAI 2022. They publish no seed: the rows are drawn anew from ``seed``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcluster.datasets._split import SplitRows, clouds

_DIAGONAL = ((-2.0, -2.0), (0.0, 0.0), (2.0, 2.0))
_HIDDEN = ((5.0, 0.0), (5.0, 10.0), (10.0, 10.0))
_SQUARE = ((0.0, 0.0), (0.0, 10.0), (10.0, 10.0), (10.0, 0.0))
_THIRDS, _HALVES = (333, 333, 333), (500, 500, 0)
FFCM_CASES: Mapping[str, tuple[tuple[tuple[float, ...], ...], float, tuple[tuple[int, ...], ...]]]
FFCM_CASES = {
    "1a": (_DIAGONAL, 0.5, (_THIRDS, _THIRDS, _THIRDS)),
    "1b": (_DIAGONAL, 0.5, (_THIRDS, _THIRDS, _HALVES)),
    "2": (_HIDDEN, 1.1, ((900, 50, 50), (50, 900, 50))),
    "3a": (_SQUARE, 1.0, ((50, 50, 0, 0), (0, 500, 500, 0), (0, 0, 50, 50))),
    "3b": (_SQUARE, 1.0, ((50, 50, 0, 0), (0, 500, 500, 0), (0, 0, 500, 500))),
    "3c": (_SQUARE, 1.0, ((500, 500, 0, 0), (0, 50, 50, 0), (0, 0, 50, 50))),
    "3d": (_SQUARE, 1.0, ((500, 500, 0, 0), (0, 500, 500, 0), (0, 0, 500, 500))),
}
"""The clusters' means, their standard deviation, and the rows of each cluster at each site."""


def ffcm_case(case: str, seed: int = 0) -> SplitRows:
    """The made-up data of the FFCM paper on a plane, by case (Stallmann & Wilbik, 2022).

    Parameters
    ----------
    case : {"1a", "1b", "2", "3a", "3b", "3c", "3d"}
        ``"1a"``, ``"1b"``: clusters (-2, -2), (0, 0), (2, 2) at three sites that hold 333 rows of
        each; in 1b (experiment 2, table 2) the third holds 500 rows of the first two, and none
        of the last.
        ``"2"``: a cluster hidden from two sites (table 3, figure 1; the paper takes m = 1.1):
        (5, 0), (5, 10), (10, 10), of which one site holds 900, 50 and 50 rows and the other 50,
        900 and 50.
        ``"3a"`` to ``"3d"``: the corners of a square of side 10, of which three sites hold two
        neighbours each, in halves; 100, 1000 and 100 rows, (100, 1000, 1000), (1000, 100, 100),
        and 1000 each (table 4).
    seed : int, default=0
        Makes the draws.

    Returns
    -------
    SplitRows
        The rows by site, held by ``client-0``, ``client-1``, ...

    Notes
    -----
    Standard deviations are 0.5 (inferred from table 2; the paper does not say), 1.1 and 1.

    Examples
    --------
    >>> {name: len(X) for name, (X, y) in ffcm_case("3a").sites.items()}
    {'client-0': 100, 'client-1': 1000, 'client-2': 100}
    """
    if case not in FFCM_CASES:
        raise ValueError(f"ffcm_case knows {', '.join(FFCM_CASES)}, not {case!r}")
    means, noise, counts = FFCM_CASES[case]
    return clouds(np.array(means), noise, np.array(counts), np.random.default_rng(seed))
