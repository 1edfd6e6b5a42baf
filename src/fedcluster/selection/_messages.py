"""A verdict in words: who says what, how the answers hang together, and what to doubt."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from fedcluster.core import Result, State
from fedcluster.errors import listed
from fedcluster.kernels import nearest
from fedcluster.metrics._indices import CHOOSING

NESTED = 0.02
"""Squares between clusters that may be lost when small clusters are taken for parts of large."""


def because(
    k: int,
    says: Mapping[str, int],
    voters: Collection[str],
    results: Mapping[int, Result],
    rule: str,
) -> str:
    """Why k was chosen, in one or two sentences.

    Parameters
    ----------
    k : int
        The verdict.
    says : mapping of str to int
        What each index takes for the best.
    voters : collection of str
        The indices that were asked.
    results : mapping of int to Result
        The clusterings.
    rule : str
        The rule's name.
    """
    if not any(voter in says for voter in voters):
        return "No index says anything: the rows are too few or too much alike. The smallest k."
    if rule != "vote":
        return f"{_capital(CHOOSING[rule].label)} says {k}."
    by_k: dict[int, list[str]] = {k: []}
    for voter in voters:
        by_k.setdefault(says[voter], []).append(CHOOSING[voter].label)
    said = [f"{listed(names)} {_say(names)} {other}" for other, names in by_k.items()]
    tie = len(by_k) > 1 and max(len(by_k[j]) for j in by_k if j != k) == len(by_k[k])
    broken = f"; in a tie {by_k[k][0]} decides" if tie else ""
    coarser = sorted((j for j in by_k if 1 < j < k), key=lambda j: -len(by_k[j]))
    nests = [_nest(results[j].state, results[k].state) for j in coarser]
    return " ".join([f"{_capital(', '.join(said))}{broken}.", *filter(None, nests[:1])])


def doubts(
    k: int,
    says: Mapping[str, int],
    voters: Collection[str],
    abstaining: Sequence[str],
    tried: Sequence[int],
    full: int,
) -> tuple[str, ...]:
    """What casts a doubt on the verdict k, one sentence each."""
    sentences = []
    if abstaining:
        names = [CHOOSING[index].label for index in abstaining]
        sentences.append(
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} still rising at "
            f"k = {tried[-1]}, the largest that was tried, and had no vote; try larger ones"
        )
    others = sorted({says[voter] for voter in voters if voter in says and 1 < says[voter] != k})
    if others and len(voters) > 1:
        sentences.append(
            f"the indices disagree: {listed([str(each) for each in [k, *others]])} clusters are "
            "each the best by some; look at the curves"
        )
    if k == tried[-1] > 1:
        sentences.append(f"k = {k} is the largest that was tried; try larger ones")
    if k == tried[0] > 1:
        sentences.append(f"k = {k} is the smallest that was tried; try smaller ones")
    if full < len(tried):
        sentences.append(
            f"{len(tried) - full} of {len(tried)} clusterings have clusters without rows and "
            "were left aside"
        )
    return tuple(sentences)


def _nest(coarse: State, fine: State) -> str:
    """Says so where the clusters of one clustering are groups of those of the other."""
    few, many, weights = len(coarse.centers), len(fine.centers), fine.weights
    groups, _ = nearest(fine.centers, coarse.centers)
    sizes = np.bincount(groups, weights, few)
    if not (sizes > 0).all():
        return ""
    means = np.stack([np.bincount(groups, weights * x, few) for x in fine.centers.T], axis=1)
    lost = sizes @ ((means / sizes[:, None] - coarse.centers) ** 2).sum(axis=1)
    overall = weights @ fine.centers / weights.sum()
    between = weights @ ((fine.centers - overall) ** 2).sum(axis=1)
    if lost > NESTED * between:
        return ""
    return f"The {many} clusters lie in {few} super-clusters."


def _say(names: Sequence[str]) -> str:
    return "says" if len(names) == 1 else "say"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
