"""Verdict on the number of clusters: the best k of each index, the vote, the reason in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from fedcluster.core import Floats, Result, State
from fedcluster.errors import InputError, listed
from fedcluster.kernels import nearest
from fedcluster.metrics._indices import CHOOSING, INDICES, JUDGES, METRICS
from fedcluster.selection._curves import draw

Scores = Mapping[int, Mapping[str, float]]

NESTED = 0.02
"""Squares between clusters that may be lost when small clusters are taken for parts of large."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Rule by which k is chosen.

    Parameters
    ----------
    name : str, default="vote"
        One of `RULES`: the vote of the `JUDGES`, or a single index.
    pick : {"best", "elbow"}, default="best"
        For a single index: its best value, or where its curve bends most.
    bounds : pair of ndarray of shape (d,), optional
        Public bounds of the columns, for the references of the gap statistic; by default a box
        of the rows' mean and variance.
    """

    name: str = "vote"
    pick: Literal["best", "elbow"] = "best"
    bounds: tuple[Floats, Floats] | None = None

    def check(self, d: int) -> None:
        """Refuse bounds of another number of columns than d.

        Raises
        ------
        InputError
            With both numbers.

        Examples
        --------
        >>> Rule("gap", bounds=(np.zeros(3), np.ones(3))).check(2)
        Traceback (most recent call last):
            ...
        fedcluster.errors.InputError: the bounds are 3 pairs, but there are 2 columns to
        cluster by; give one pair for all, or one for each column
        """
        for side in self.bounds or ():
            if side.size not in (1, d):
                raise InputError(
                    f"the bounds are {side.size} pairs, but there are {d} columns to cluster by; "
                    "give one pair for all, or one for each column"
                )


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Number of clusters that was chosen, the reason, and all scores and clusterings.

    Parameters
    ----------
    n_clusters : int
        The verdict.
    rule : str
        By which rule.
    reason : str
        Why, in words.
    warnings : tuple of str
        What casts a doubt on it.
    says : mapping of str to int
        The k that each index takes for the best.
    table : mapping of int to mapping of str to float
        All indices of each k, also the ``gap`` and its standard error ``gap-error``; nan where
        an index says nothing.
    results : mapping of int to Result
        The clustering with each k, so that none need be fitted again.
    """

    n_clusters: int
    rule: str
    reason: str
    warnings: tuple[str, ...]
    says: Mapping[str, int]
    table: Scores = field(repr=False)
    results: Mapping[int, Result] = field(repr=False)

    def plot(self, path: str | Path) -> None:
        """Draw the curves of the indices into a PNG; needs matplotlib."""
        draw(self, Path(path))


def judged(scores: Scores, results: Mapping[int, Result], rule: Rule) -> Selection:
    """Return the verdict on clusterings and their indices.

    A k of which some clusters have no rows is nobody's choice, unless every k is such. In a vote
    each judge names its best k, and the most named one is chosen; among equals the first judge's.
    A judge whose best is the largest k has found no best yet: it abstains, unless all do.
    """
    full = [k for k, result in results.items() if (result.state.weights > 0).all()]
    table = {k: scores[k] for k in full or results}
    says = {index: k for index in INDICES if (k := _says(index, table, rule)) is not None}
    if rule.name == "vote":
        k, voters = _vote({j: says[j] for j in JUDGES if j in says}, sorted(results))
    else:
        k, voters = says.get(rule.name, min(table)), (rule.name,)
    silent = [j for j in JUDGES if j in says and j not in voters] if rule.name == "vote" else []
    return Selection(
        n_clusters=k,
        rule=rule.name if rule.pick == "best" else f"{rule.name}, elbow",
        reason=because(k, says, voters, results, rule.name),
        warnings=doubts(k, says, voters, silent, sorted(results), len(table)),
        says=says,
        table=scores,
        results=results,
    )


def _vote(says: Mapping[str, int], tried: Sequence[int]) -> tuple[int, tuple[str, ...]]:
    """Return the verdict, the smallest k where no judge names one, and the judges that counted."""
    if not says:
        return tried[0], ()
    voters = {judge: k for judge, k in says.items() if k < tried[-1]} or dict(says)
    votes = Counter(voters.values())
    most = max(votes.values())
    return next(k for k in voters.values() if votes[k] == most), tuple(voters)


def _says(index: str, table: Scores, rule: Rule) -> int | None:
    """Return the k that an index takes for the best; None where it says nothing."""
    ks = [k for k in table if not np.isnan(table[k].get(index, np.nan))]
    if not ks:
        return None
    values = np.array([table[k][index] for k in ks])
    rising = index == "gap" or bool(METRICS[index].maximise)
    loss = -values if rising else values
    if index == "inertia" or (index == rule.name and rule.pick == "elbow"):
        return ks[_elbow(np.array(ks, dtype=np.float64), loss)]
    if index == "gap":
        best = int(loss.argmin())
        return ks[int(np.argmax(loss <= loss[best] + table[ks[best]]["gap-error"]))]
    return ks[int(loss.argmin())]


def _elbow(ks: Floats, loss: Floats) -> int:
    """Return where a falling curve lies farthest below the line between its ends.

    Examples
    --------
    >>> _elbow(np.arange(1.0, 6.0), np.array([100.0, 30.0, 20.0, 15.0, 12.0]))
    1
    """
    if len(ks) < 3 or not np.isfinite(loss).all():
        return int(loss.argmin())
    line = loss[0] + (loss[-1] - loss[0]) * (ks - ks[0]) / (ks[-1] - ks[0])
    return int((line - loss).argmax())


def because(
    k: int,
    says: Mapping[str, int],
    voters: Collection[str],
    results: Mapping[int, Result],
    rule: str,
) -> str:
    """Return the reason for k in one or two sentences.

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
    """Return what casts a doubt on the verdict k, one sentence each."""
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
    """Return a sentence where the clusters of one clustering are groups of those of the other."""
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
