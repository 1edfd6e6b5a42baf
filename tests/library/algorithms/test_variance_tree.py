"""The tree of cuts, round by round and by hand."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from partitions import on_line

from fedcluster import Data, State, Summary
from fedcluster.algorithms import VarianceTree

RNG = np.random.default_rng(0)


def grown(tree: VarianceTree, rows: np.ndarray) -> list[State]:
    """The state after each round, until the tree says that it is done."""
    states = [State()]
    while not states[-1].converged:
        answer = tree.client_step(states[-1], Data(rows), RNG)
        states.append(tree.server_step(states[-1], [answer], RNG))
    return states[1:]


def test_a_leaf_that_cannot_give_two_large_enough_ones_is_not_cut() -> None:
    """q = 2: of three rows one side would have fewer than two, of four both may have two."""
    tree = VarianceTree(2, min_rows=2)
    assert [len(state.centers) for state in grown(tree, on_line(0, 1, 10))] == [1, 1]
    four = grown(tree, on_line(0, 1, 10, 11))
    assert [len(state.centers) for state in four] == [1, 2, 2]
    assert_allclose(four[-1].centers, on_line(0.5, 10.5))


def test_a_leaf_falls_at_its_mean_in_the_column_that_varies_most() -> None:
    """Mean (1, 5): the second column has the larger sum of squares, so (3, 4) stays with (0, 0)
    and (1, 1), although the first column would part it from them.
    """
    rows = np.array([[0.0, 0], [3, 4], [1, 1], [0, 15]])
    states = grown(VarianceTree(2, min_rows=1), rows)
    assert_allclose(states[0].centers, [[1, 5]])
    assert_allclose(states[-1].centers, [[4 / 3, 5 / 3], [0.0, 15.0]])
    assert_array_equal(states[-1].weights, [3, 1])


def test_leaves_at_most_double_and_those_that_vary_most_are_cut_first() -> None:
    """Three pairs on a line, L = 3: first at 5 between 1 and 8.., then the wider side alone."""
    states = grown(VarianceTree(3, min_rows=1), on_line(0, 1, 8, 9, 20, 21))
    assert [len(state.centers) for state in states] == [1, 2, 3, 3]
    assert_allclose(np.sort(states[-1].centers.ravel()), [0.5, 8.5, 20.5])


def test_a_cut_that_leaves_too_few_rows_is_undone_and_falls_elsewhere() -> None:
    """Rows 0 1 2 3 and an outlier at 94, q = 2: the cut at the mean, 20, leaves one row beyond it.
    It is undone, and the next one falls at the mean of the larger side, 1.5: 0 1 | 2 3 94.
    """
    states = grown(VarianceTree(2, min_rows=2), on_line(0, 1, 2, 3, 94))
    assert_allclose(states[-1].centers, on_line(0.5, 33))
    assert_array_equal(states[-1].weights, [2, 3])


def test_rows_that_are_equal_are_not_cut() -> None:
    states = grown(VarianceTree(4, min_rows=1), on_line(7, 7, 7, 7))
    assert_allclose(states[-1].centers, on_line(7))
    assert [len(state.centers) for state in states] == [1, 1]


@pytest.mark.parametrize(
    ("points", "weights", "threshold"),
    [
        ([[0.0, 5], [10, 5]], [9.0, 3.0], 5),  # they are alike in one column by chance
        ([[0.0, 5], [0, 5]], [9.0, 3.0], 1),  # both are still asked about one mean
        ([[0.0, 5], [0, 5]], [3.0, 9.0], 9),
        ([[0.0, 5], [0, 5]], [4.0, 4.0], 1),  # the leaf that was cut is the larger of equals
        ([[0.0, 5], [0, 5]], [5.0, 5.0], 5),
    ],
)
def test_only_a_cut_that_is_fresh_may_be_undone(points, weights, threshold):
    """And falls at the mean of the larger leaf instead. A leaf may also get smaller because a site
    stays away: its cut stands.
    """
    memory = {
        "parent": np.zeros(1), "child": np.ones(1), "feature": np.zeros(1),
        "threshold": np.full(1, 5.0), "undone": np.zeros(2), "column": np.zeros(2),
        "value": np.zeros(2),
    }  # fmt: skip
    state = State(np.array(points), np.array([6.0, 6.0]), round=2, memory=memory)
    each = np.array(weights)
    sums = np.column_stack([each[:, None] * [[1.0, 5.0], [9.0, 5.0]], np.zeros((2, 2))])
    sums[:, 2:] = each[:, None] * (np.array([[1.0, 5.0], [9.0, 5.0]]) - points) ** 2
    after = VarianceTree(2, min_rows=5).server_step(state, [Summary(sums, each)], RNG)
    is_undone = threshold != 5
    assert after.memory["undone"][0] == is_undone
    assert after.memory["value"][0] == is_undone * threshold
    if each.sum() >= 10:  # enough for a cut, at once
        assert list(after.memory["threshold"]) == [threshold]


@pytest.mark.parametrize(("undone", "leaves"), [(0, 2), (1, 2), (5, 2), (6, 1), (7, 1)])
def test_a_leaf_is_tried_six_times(undone: int, leaves: int) -> None:
    """First in the column that varies most, at its mean; then where it is remembered."""
    memory = {name: np.zeros(0) for name in ("parent", "child", "feature", "threshold")}
    tried = {"undone": undone, "column": 1, "value": 7}
    memory |= {name: np.full(1, float(value)) for name, value in tried.items()}
    state = State(np.array([[2.0, 3.0]]), np.full(1, 12.0), round=1, memory=memory)
    answer = Summary(np.array([[24.0, 36.0, 60.0, 12.0]]), np.full(1, 12.0))
    after = VarianceTree(4, min_rows=5).server_step(state, [answer], RNG)
    assert len(after.centers) == leaves
    assert after.converged == (leaves == 1)
    if leaves == 2:
        cut = after.memory["feature"].item(), after.memory["threshold"].item()
        assert cut == ((0, 2) if undone == 0 else (1, 7))
        assert list(after.memory["undone"]) == [undone, 0]


def test_in_a_pass_rows_count_for_the_nearest_mean() -> None:
    """The cut is at 4, the mean, and 5 goes with 15; as far from both means, it then joins 0."""
    rows = on_line(0, 0, 0, 5, 15)
    leaves = grown(VarianceTree(2), rows)[-1]
    assert_allclose(leaves.centers, on_line(0, 10))
    states = grown(VarianceTree(2, passes=2), rows)
    assert [state.converged for state in states[-3:]] == [False, False, True]
    assert_allclose(states[-2].centers, on_line(1.25, 15))
    assert_allclose(states[-1].centers, on_line(1.25, 15))
    assert_array_equal(states[-1].weights, [4, 1])
    tree = VarianceTree(2, passes=2)
    assert tree.answer_shape(states[-2], 1) == (2, 1)
    assert tree.answer_shape(states[-4], 1) == (2, 2)


def test_a_mean_that_is_nearest_to_no_row_stays() -> None:
    tree = VarianceTree(2, passes=1)
    state = grown(VarianceTree(2, passes=3), on_line(0, 1, 10, 11))[-2]
    moved, rows = replace(state, centers=np.array([[0.5], [99.0]])), Data(np.array([[0.0], [1.0]]))
    after = tree.server_step(moved, [tree.client_step(moved, rows, RNG)], RNG)
    assert_allclose(after.centers, on_line(0.5, 99))
    assert_array_equal(after.weights, [2, 0])


def test_a_cut_whose_sides_are_both_held_back_is_undone() -> None:
    """The sites let no group out: nothing is divided by its weight of 0, and the tree ends."""
    tree = VarianceTree(2, min_rows=5)
    state = grown(tree, on_line(0, 1, 2, 3, 4, 5, 6, 7, 8, 9))[1]
    assert_allclose(state.centers, on_line(4.5, 4.5))
    with np.errstate(all="raise"):
        after = tree.server_step(state, [Summary(np.zeros((2, 2)), np.zeros(2))], RNG)
    assert after.converged
    assert_allclose(after.centers, on_line(4.5))
    assert_array_equal(after.weights, [0])
