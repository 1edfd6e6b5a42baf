"""Indices of centres against known ones, as there are of made-up data: no site is asked."""

from __future__ import annotations

from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

Matching = Literal["closest", "one-to-one"]


def knowledge_gap(found: ArrayLike, known: ArrayLike, matching: Matching = "closest") -> float:
    """Sum of the distances from the centres that were found to known ones; in units of the rows.

    M. Stallmann & A. Wilbik, FFCM (FL-AAAI 2022), after their program: each is compared with the
    closest known one. So a known centre may be missed unnoticed; matched one to one, it is not.

    Parameters
    ----------
    found : array_like of shape (k, d)
        The centres that were found.
    known : array_like of shape (q, d)
        The true ones.
    matching : {"closest", "one-to-one"}, default="closest"
        As published; or each to one of its own by the matching of least sum (H. W. Kuhn, The
        Hungarian method, 1955), which leaves the surplus out where k and q differ.

    Examples
    --------
    >>> found, known = [[0.0], [1.0]], [[0.0], [9.0]]
    >>> knowledge_gap(found, known), knowledge_gap(found, known, "one-to-one")
    (1.0, 8.0)
    """
    apart = cdist(np.asarray(found), np.asarray(known))
    if matching == "closest":
        return float(apart.min(axis=1).sum())
    return float(apart[linear_sum_assignment(apart)].sum())


def normalised_gap(found: ArrayLike, known: ArrayLike, matching: Matching = "closest") -> float:
    """The knowledge gap by sqrt(d), which compares data of different width (FFCM, table 5).

    Examples
    --------
    >>> normalised_gap([[3.0, 3.0, 3.0, 3.0]], [[0.0, 0.0, 0.0, 0.0]])
    3.0
    """
    return knowledge_gap(found, known, matching) / sqrt(np.asarray(found).shape[1])
