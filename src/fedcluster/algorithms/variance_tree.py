"""A start from sums alone: a tree of cuts along the columns of largest variance.

T. Su & J. G. Dy, In search of deterministic methods for initializing k-means and Gaussian mixture
clustering, Intelligent Data Analysis 11 (2007): variance partition, continued past k leaves.

    round t, leaves with reference points m_l:
      site i:   for each leaf l and its rows x:  sum of x,  sum of (x - m_l)^2 by column,  number
      server:   mean and variances of each leaf from the totals;
                a cut with fewer than q rows on one side is undone, and the next one in that leaf
                falls at the mean of the larger side, so that a few outliers do not stop the tree;
                the leaves with the largest sums of squares, at most doubling their number and
                never past L, are cut at their mean in their column of largest variance

The leaves' weighted means describe all rows as well as the sites' own centres would, without
revealing any site's own centres. It takes about log2(L) + 2 rounds.

Leaves are boxes, and a row in a long box may be nearer to the mean of another. Therefore passes of
Lloyd's algorithm may follow, in which each row counts for the nearest mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster.algorithms.merging import means, total
from fedcluster.core import Data, Floats, State, Summary
from fedcluster.core.ranges import MEANS, Allowed, Array, Box, LineBounds, Whole
from fedcluster.kernels import hard_pass
from fedcluster.kernels.rows import Cuts, Places, leaf_sums
from fedcluster.metrics import Inertia

SINGLE_LEAF = {
    **dict.fromkeys(("parent", "child", "feature", "threshold"), np.zeros(0)),
    **dict.fromkeys(("undone", "column", "value"), np.zeros(1)),
}
"""The tree without cuts."""

PASS = "pass"
"""Name in a state's memory of the number of the pass, (1,): 0 while the tree grows."""


@dataclass(frozen=True, slots=True)
class VarianceTree:
    """Description of all rows by the weighted means of a tree's leaves.

    Parameters
    ----------
    n_leaves : int
        L, the largest number of leaves.
    min_rows : int, default=1
        q: a leaf of smaller weight is not kept.
    passes : int, default=0
        Passes in which rows count for the nearest mean, after the tree has grown.

    Notes
    -----
    A site sends at most L (2 d + 1) numbers a round, and L (d + 1) in a pass.

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
        {"n_leaves": MEANS, "min_rows": Whole(1, 1_000_000), "passes": Whole(0, 10)},
        replace(MEANS, least=0),
        memory={
            "parent": Array(("cuts",), below="k"),
            "child": Array(("cuts",), below="k"),
            "feature": Array(("cuts",), below="d"),
            "threshold": Array(("cuts",)),
            "undone": Array(("k",), least=0.0),
            "column": Array(("k",), below="d"),
            "value": Array(("k",)),
            PASS: Array(("one",), least=0.0, most=10.0),
        },
        optional=True,
        sizes={"cuts": Whole(0, 1, "k"), "one": Whole(1, 1)},
    )
    client_additive = server_additive = True
    needs_centers = False
    min_cluster_size = 1
    objective = Inertia

    n_leaves: int
    min_rows: int = 1
    passes: int = 0
    tries = 6  # number of cuts of one leaf that are undone before the leaf is left uncut

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: sums for each leaf and, before passes, also squares."""
        return max(1, len(state.centers)), n_columns if pass_number(state) else 2 * n_columns

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: of means of rows and of squares about the reference."""
        sums = box.means(max(1, len(state.centers)))
        if pass_number(state):
            return sums
        squares = box.squares(leaves(state, len(box.low))[1])
        low = np.where(np.isfinite(squares), 0.0, -np.inf)
        return LineBounds(np.hstack([sums.low, low]), np.hstack([sums.high, squares]))

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return for each leaf the sums of its rows and of their centred squares.

        In a pass, return the sums of the rows that are nearest to each mean.
        """
        if pass_number(state):
            groups = hard_pass(data.X, state.centers, data.sample_weight)
            return Summary(groups.sums, groups.weights, groups.counts.astype(np.float64))
        cuts, reference = leaves(state, data.X.shape[1])
        return Summary(*leaf_sums(data.X, cuts, reference, data.sample_weight, data.cache))

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Measure the leaves, undo cuts that left too few rows, and cut the most varied leaves."""
        answer = total(answers)
        if number := pass_number(state):
            return self._nearest(state, answer, number)
        tree, sums, weights = _Tree.from_state(state), answer.sums, answer.weights
        d = sums.shape[1] // 2
        tree, sums, weights, reference = _undo(tree, sums, weights, state.centers, self.min_rows)
        centers = means(sums[:, :d], weights, otherwise=reference)
        squares = sums[:, d:] - weights[:, None] * (centers - reference) ** 2
        # without centres this is the first round, which asks for the mean only
        if not len(state.centers):
            return State(centers, weights, round=state.round + 1, memory=tree.memory())
        chosen = self._to_cut(tree, squares, weights)
        settled = not len(chosen)
        memory = tree.cut(chosen, squares, centers).memory(int(settled and self.passes > 0))
        centers = np.concatenate([centers, centers[chosen]])
        weights = np.append(weights, weights[chosen])
        done = settled and not self.passes
        return State(centers, weights, round=state.round + 1, converged=done, memory=memory)

    def _nearest(self, state: State, answer: Summary, number: int) -> State:
        """Return the means of the rows nearest to each old mean; one without rows stays."""
        centers = means(answer.sums, answer.weights, otherwise=state.centers)
        memory = {**state.memory, PASS: np.array([number + 1.0])}
        done = number >= self.passes
        return State(centers, answer.weights, round=state.round + 1, converged=done, memory=memory)

    def _to_cut(self, tree: _Tree, squares: Floats, weights: Floats) -> Places:
        """Return the leaves to cut, by decreasing sum of squares, as many as there is room for."""
        room = min(len(weights), self.n_leaves - len(weights))
        within = squares.sum(axis=1)
        able = (weights >= 2 * self.min_rows) & (within > 0) & (tree.undone < self.tries)
        order = np.argsort(-within, kind="stable")
        chosen: Places = order[able[order]][:room]
        return chosen


def leaves(state: State, n_columns: int) -> tuple[Cuts, Floats]:
    """Return the cuts of the tree in a state, and the reference point of each leaf's squares."""
    reference = state.centers if len(state.centers) else np.zeros((1, n_columns))
    return _Tree.from_state(state).cuts(*reference.shape), reference


def pass_number(state: State) -> int:
    """Return the number, from 1, of the pass that a state asks for; 0 while the tree grows."""
    return int(state.memory[PASS][0]) if PASS in state.memory else 0


@dataclass(frozen=True, slots=True, eq=False)
class _Tree:
    """Cuts of a tree: rows with ``X[:, feature] <= threshold`` stay, the others go to a new leaf.

    In order, cut c splits leaf ``parent[c]``, which keeps one side, and creates leaf ``child[c]``
    for the other. For each leaf, ``undone`` counts its undone cuts; after one, ``column`` and
    ``value`` say where the next cut is made.
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

    def memory(self, number: int = 0) -> dict[str, Floats]:
        """Return the tree as arrays that can be sent, with the number of the next pass."""
        tree = {f.name: np.asarray(getattr(self, f.name), dtype=np.float64) for f in fields(self)}
        return {**tree, PASS: np.array([float(number)])}

    def cuts(self, n_leaves: int, d: int) -> Cuts:
        """Return only the cuts, checked, because compiled code follows them without checks."""
        cuts = self.parent, self.child, self.feature, self.threshold
        places = zip(cuts, (n_leaves, n_leaves, d), strict=False)
        inside = all(((place >= 0) & (place < limit)).all() for place, limit in places)
        if not inside or len(set(map(len, cuts))) > 1:
            raise ValueError(f"the cuts are not those of {n_leaves} leaves and {d} columns")
        return cuts

    def cut(self, chosen: Places, squares: Floats, centers: Floats) -> _Tree:
        """Cut leaves at their mean, in their column of largest sum of squares.

        If columns have equal sums up to rounding, as standardised columns do, the first is taken,
        so that the order in which rows were added does not decide.
        """
        again = self.undone[chosen] > 0
        varying = squares[chosen]
        # Relative difference that is attributed to the rounding of sums.
        largest = varying >= (1 - 1e-9) * varying.max(axis=1, keepdims=True)
        feature = np.where(again, self.column[chosen], largest.argmax(axis=1))
        threshold = np.where(again, self.value[chosen], centers[chosen, feature])
        n, fresh = len(self.undone), np.zeros(len(chosen), dtype=np.intp)
        added = chosen, n + np.arange(len(chosen)), feature, threshold, fresh, fresh, fresh
        present = (getattr(self, f.name) for f in fields(self))
        return _Tree(*map(np.append, present, added))


def _undo(
    tree: _Tree, sums: Floats, weights: Floats, reference: Floats, min_rows: int
) -> tuple[_Tree, Floats, Floats, Floats]:
    """Give a leaf with too few rows back to the leaf that it was cut from, if cut in this round.

    Then both have the same reference point, so their sums add up.
    """
    if not len(reference):
        return tree, sums, weights, np.zeros((1, sums.shape[1] // 2))
    small = weights < min_rows
    leafless = ~_among(tree.parent, len(weights))[tree.child]
    fresh = leafless & (reference[tree.parent] == reference[tree.child]).all(axis=1)
    undone = fresh & (small[tree.parent] | small[tree.child])
    tries = tree.undone.copy()
    tries[tree.parent[fresh & ~undone]] = 0
    if not undone.any():
        return replace(tree, undone=tries), sums, weights, reference
    sums, weights = sums.copy(), weights.copy()
    column, value = tree.column.copy(), tree.value.copy()
    for c in np.flatnonzero(undone):
        parent, child, feature = tree.parent[c], tree.child[c], tree.feature[c]
        larger = parent if weights[parent] >= weights[child] else child
        tries[parent] += 1
        is_disclosed = weights[larger] > 0  # False if the sites held back both sides of the cut
        mean = sums[larger, feature] / weights[larger] if is_disclosed else tree.threshold[c]
        column[parent], value[parent] = feature, mean
        sums[parent] += sums[child]
        weights[parent] += weights[child]
    kept = np.flatnonzero(~_among(tree.child[undone], len(weights)))
    number = np.full(len(weights), -1)
    number[kept] = np.arange(len(kept))
    cuts = number[tree.parent], number[tree.child], tree.feature, tree.threshold
    leaves = tries, column, value
    tree = _Tree(*(each[~undone] for each in cuts), *(each[kept] for each in leaves))
    return tree, sums[kept], weights[kept], reference[kept]


def _among(places: Places, n: int) -> NDArray[np.bool_]:
    """Return a mask of length n that is True at the given places."""
    among = np.zeros(n, dtype=bool)
    among[places] = True
    return among
