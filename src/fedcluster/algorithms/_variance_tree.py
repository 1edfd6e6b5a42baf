"""A start from sums alone: a tree of cuts where the rows vary most.

T. Su & J. G. Dy, In search of deterministic methods for initializing k-means and Gaussian mixture
clustering, Intelligent Data Analysis 11 (2007): variance partition, carried on past k leaves.

    round t, leaves with reference points m_l:
      site i:   for each leaf l and its rows x:  sum of x,  sum of (x - m_l)^2 by column,  number
      server:   mean and variances of each leaf from the totals;
                a cut with fewer than q rows on one side is undone, and the next one in that leaf
                falls at the mean of the larger side, so that a few outliers do not stop the tree;
                the leaves with the largest sums of squares, at most doubling their number and
                never past L, are cut at their mean in their column of largest variance

The leaves' means with their weights are as good a description of all rows as the sites' own
centres, and nobody's own centres are seen. About log2(L) + 2 rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from fedcluster._ranges import LEAVES, Allowed, Array, Whole
from fedcluster.algorithms._merging import means, total
from fedcluster.core import Data, Floats, State, Summary
from fedcluster.kernels._rows import Cuts, Places, leaf_sums
from fedcluster.metrics import Inertia

TRIES = 6
"""Cuts of one leaf that are undone before it is left as it is."""

SINGLE_LEAF = {
    **dict.fromkeys(("parent", "child", "feature", "threshold"), np.zeros(0)),
    **dict.fromkeys(("undone", "column", "value"), np.zeros(1)),
}
"""Memory of a tree without cuts."""


@dataclass(frozen=True, slots=True)
class VarianceTree:
    """Describe all rows by the weighted means of a tree's leaves.

    Parameters
    ----------
    n_leaves : int
        L, the largest number of leaves.
    min_rows : int, default=1
        q: a leaf of less weight is not kept.

    Notes
    -----
    A site sends at most L (2 d + 1) numbers a round.

    Examples
    --------
    >>> rows, rng = Data(np.array([[0.0], [1.0], [8.0], [9.0]])), np.random.default_rng(0)
    >>> tree, state = VarianceTree(n_leaves=2, min_rows=1), State()
    >>> while not state.converged:
    ...     state = tree.server_step(state, [tree.client_step(state, rows, rng)], rng)
    >>> state.centers.ravel(), state.weights
    (array([0.5, 8.5]), array([2., 2.]))
    """

    allowed = Allowed(
        {"n_leaves": LEAVES, "min_rows": Whole(1, 1_000_000)},
        replace(LEAVES, least=0),
        memory={
            "parent": Array(("cuts",), below="k"),
            "child": Array(("cuts",), below="k"),
            "feature": Array(("cuts",), below="d"),
            "threshold": Array(("cuts",)),
            "undone": Array(("k",), least=0.0),
            "column": Array(("k",), below="d"),
            "value": Array(("k",)),
        },
        optional=True,
        sizes={"cuts": Whole(0, 1, "k")},
    )
    client_additive = server_additive = True
    needs_centers = False
    min_cluster_size = 1
    objective = Inertia

    n_leaves: int
    min_rows: int = 1

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: sums and squares of each column for each leaf."""
        return max(1, len(state.centers)), 2 * n_columns

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return for each leaf the sums of its rows and of their centred squares."""
        reference = state.centers if len(state.centers) else np.zeros((1, data.X.shape[1]))
        cuts = _Tree.from_state(state).cuts(*reference.shape)
        return Summary(*leaf_sums(data.X, cuts, reference, data.sample_weight))

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Measure the leaves, undo cuts that left too few rows, cut the leaves that vary most."""
        answer = total(answers)
        tree, sums, weights = _Tree.from_state(state), answer.sums, answer.weights
        d = sums.shape[1] // 2
        tree, sums, weights, reference = _undo(tree, sums, weights, state.centers, self.min_rows)
        centers = means(sums[:, :d], weights, otherwise=reference)
        squares = sums[:, d:] - weights[:, None] * (centers - reference) ** 2
        if not len(state.centers):  # the first round knows no reference point: only the mean
            return State(centers, weights, round=state.round + 1, memory=tree.memory())
        chosen = self._to_cut(tree, squares, weights)
        memory, settled = tree.cut(chosen, squares, centers).memory(), not len(chosen)
        centers = np.concatenate([centers, centers[chosen]])
        weights = np.append(weights, weights[chosen])
        return State(centers, weights, round=state.round + 1, converged=settled, memory=memory)

    def _to_cut(self, tree: _Tree, squares: Floats, weights: Floats) -> Places:
        """Return the leaves to cut: by falling sum of squares, as many as there is room for."""
        room = min(len(weights), self.n_leaves - len(weights))
        within = squares.sum(axis=1)
        able = (weights >= 2 * self.min_rows) & (within > 0) & (tree.undone < TRIES)
        order = np.argsort(-within, kind="stable")
        chosen: Places = order[able[order]][:room]
        return chosen


@dataclass(frozen=True, slots=True, eq=False)
class _Tree:
    """Cuts of a tree: rows with ``X[:, feature] <= threshold`` stay, the others go to a new leaf.

    In the order in which they were made, cut c parts leaf ``parent[c]``, which keeps the one
    side, from leaf ``child[c]``, the other. Of each leaf: how many cuts of it were ``undone``,
    and where the next one is to fall, ``column`` and ``value``, after the last was.
    """

    parent: Places
    child: Places
    feature: Places
    threshold: Floats
    undone: Places
    column: Places
    value: Floats

    @classmethod
    def from_state(cls, state: State) -> _Tree:
        """Return the tree in a state's memory; a single leaf if there is none."""
        memory = state.memory or SINGLE_LEAF
        reals = ("threshold", "value")
        kinds: dict[str, Any] = {
            f.name: np.float64 if f.name in reals else np.intp for f in fields(cls)
        }
        return cls(*(memory[name].astype(kind) for name, kind in kinds.items()))

    def memory(self) -> dict[str, Floats]:
        """Return the tree as arrays that travel."""
        return {f.name: np.asarray(getattr(self, f.name), dtype=np.float64) for f in fields(self)}

    def cuts(self, n_leaves: int, d: int) -> Cuts:
        """Return the cuts alone; compiled code follows them, so none may point outside."""
        cuts = self.parent, self.child, self.feature, self.threshold
        places = zip(cuts, (n_leaves, n_leaves, d), strict=False)
        inside = all(((place >= 0) & (place < limit)).all() for place, limit in places)
        if not inside or len(set(map(len, cuts))) > 1:
            raise ValueError(f"the cuts are not those of {n_leaves} leaves and {d} columns")
        return cuts

    def cut(self, chosen: Places, squares: Floats, centers: Floats) -> _Tree:
        """Cut leaves at their mean, in their column of largest sum of squares."""
        again = self.undone[chosen] > 0
        feature = np.where(again, self.column[chosen], squares[chosen].argmax(axis=1))
        threshold = np.where(again, self.value[chosen], centers[chosen, feature])
        n, fresh = len(self.undone), np.zeros(len(chosen), dtype=np.intp)
        added = chosen, n + np.arange(len(chosen)), feature, threshold, fresh, fresh, fresh
        present = (getattr(self, f.name) for f in fields(self))
        return _Tree(*map(np.append, present, added))


def _undo(
    tree: _Tree, sums: Floats, weights: Floats, reference: Floats, min_rows: int
) -> tuple[_Tree, Floats, Floats, Floats]:
    """Give a leaf of too few rows back to the leaf that it was cut from, if that was just now.

    Both have the same reference point then, so their sums add up.
    """
    if not len(reference):
        return tree, sums, weights, np.zeros((1, sums.shape[1] // 2))
    small = weights < min_rows
    leafless = ~np.isin(tree.child, tree.parent)
    fresh = leafless & (reference[tree.parent] == reference[tree.child]).all(axis=1)
    undone = fresh & (small[tree.parent] | small[tree.child])
    sums, weights = sums.copy(), weights.copy()
    tries, column, value = tree.undone.copy(), tree.column.copy(), tree.value.copy()
    tries[tree.parent[fresh & ~undone]] = 0
    for c in np.flatnonzero(undone):
        parent, child, feature = tree.parent[c], tree.child[c], tree.feature[c]
        larger = parent if weights[parent] >= weights[child] else child
        tries[parent] += 1
        column[parent], value[parent] = feature, sums[larger, feature] / weights[larger]
        sums[parent] += sums[child]
        weights[parent] += weights[child]
    kept = np.setdiff1d(np.arange(len(weights)), tree.child[undone])
    number = np.full(len(weights), -1)
    number[kept] = np.arange(len(kept))
    cuts = number[tree.parent], number[tree.child], tree.feature, tree.threshold
    leaves = tries, column, value
    tree = _Tree(*(each[~undone] for each in cuts), *(each[kept] for each in leaves))
    return tree, sums[kept], weights[kept], reference[kept]
