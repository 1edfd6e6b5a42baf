"""What the indices say, who is believed, and why: a verdict with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from fedcluster.core import Floats, Result
from fedcluster.errors import InputError
from fedcluster.metrics._indices import INDICES, JUDGES, METRICS
from fedcluster.selection._curves import Curves, draw
from fedcluster.selection._messages import because, doubts

Scores = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """How k is chosen.

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
    """The chosen number of clusters, why, and all that was found on the way.

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
        draw(Curves(self.n_clusters, self.rule, self.reason, self.says, self.table), Path(path))


def judged(scores: Scores, results: Mapping[int, Result], rule: Rule) -> Selection:
    """The verdict on clusterings and their indices.

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
    """The verdict and those whose votes counted; the smallest k where nobody says anything."""
    if not says:
        return tried[0], ()
    voters = {judge: k for judge, k in says.items() if k < tried[-1]} or dict(says)
    votes = Counter(voters.values())
    most = max(votes.values())
    return next(k for k in voters.values() if votes[k] == most), tuple(voters)


def _says(index: str, table: Scores, rule: Rule) -> int | None:
    """The k that an index takes for the best; None where it says nothing."""
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
    """Where a falling curve lies farthest below the line between its ends.

    Examples
    --------
    >>> _elbow(np.arange(1.0, 6.0), np.array([100.0, 30.0, 20.0, 15.0, 12.0]))
    1
    """
    if len(ks) < 3 or not np.isfinite(loss).all():
        return int(loss.argmin())
    line = loss[0] + (loss[-1] - loss[0]) * (ks - ks[0]) / (ks[-1] - ks[0])
    return int((line - loss).argmax())
