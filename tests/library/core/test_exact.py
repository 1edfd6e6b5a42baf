"""Exact sums: against fractions, whoever adds what first."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcluster import Summary
from fedcluster.core.exact import FEW_ARRAYS, canonical, exact_sum
from fedcluster.kernels.site_sums import add_lines, empty_accumulator, may_exceed, planes_of

DIGITS = st.sampled_from([1, 3, 1 << 52, (1 << 53) - 1, (1 << 52) + 1]) | st.integers(1, 1 << 53)
NUMBERS = st.builds(
    lambda digits, exponent, sign: sign * math.ldexp(digits, exponent),
    DIGITS,
    st.integers(-1074, 900) | st.integers(-110, 10),
    st.sampled_from([1, -1]),
) | st.sampled_from([0.0, -0.0, 5e-324, -5e-324])
TERMS = st.lists(NUMBERS, min_size=1, max_size=3 * FEW_ARRAYS)


def expansion(numbers: list[float]) -> list[float]:
    """The canonical expansion by fractions, whose division is correctly rounded."""
    left = sum(map(Fraction, numbers), Fraction(0))
    planes: list[float] = []
    while left or not planes:
        planes.append(left.numerator / left.denominator)
        left -= Fraction(planes[-1])
    return planes


def bits(numbers: Any) -> list[bytes]:
    return [float(x).hex().encode() for x in numbers]


@given(numbers=TERMS)
@example(numbers=[2.0**e for e in (300, 200, 100, 0, -100)])  # each needs a number of its own
@example(numbers=[1.0, 2.0**-53, 2.0**-120])  # a tie that the rest breaks
def test_a_sum_is_its_canonical_expansion_in_compiled_code_too(numbers: list[float]) -> None:
    expected, planes = bits(expansion(numbers)), exact_sum([np.array([x]) for x in numbers])[:, 0]
    assert bits(planes) == expected
    assert len(planes) <= 40  # 53 bits a number, from 2^-1074 to 2^1024
    assert bits(canonical(list(planes[:, None]))[:, 0]) == expected
    accumulator = empty_accumulator(1, 1)
    add_lines(np.array(numbers)[:, None], accumulator)
    assert bits(canonical(planes_of(accumulator))[:, 0, 0]) == expected


@given(numbers=TERMS, data=st.data())
def test_sums_of_sums_have_the_bits_of_the_flat_sum(numbers: list[float], data: Any) -> None:
    """Each number at any node of a tree of two floors, the nodes in any order."""
    nodes = data.draw(st.lists(st.integers(0, 3), min_size=len(numbers), max_size=len(numbers)))
    lines = [Summary(np.array([[x, 1.0]]), np.ones(1)) for x in numbers]
    groups = [[line for line, at in zip(lines, nodes, strict=True) if at == i] for i in range(4)]
    parts = [Summary.total(group) for group in groups if group]
    flat, total = Summary.total(lines), Summary.total(data.draw(st.permutations(parts)))
    if len(lines) > 1:
        assert_array_equal(total.planes, flat.planes)
        assert total.planes.tobytes() == flat.planes.tobytes()


@pytest.mark.parametrize("width", [0, 5, 30, 120, 700])
def test_compiled_code_adds_many_numbers_of_any_exponents(width: int) -> None:
    """Cut at steps that grow, settled before they round, and compressed where there are many."""
    rng = np.random.default_rng(width)
    for n in (1, 60, 5000):
        numbers = rng.normal(size=(n, 3)) * 2.0 ** rng.integers(-width, width + 1, size=(n, 3))
        numbers[rng.random((n, 3)) < 0.2] = 0.0
        accumulator = empty_accumulator(1, 3)
        add_lines(numbers, accumulator)
        expected = exact_sum(list(numbers[:, None]))
        assert canonical(planes_of(accumulator)).tobytes() == expected.tobytes()


@given(numbers=TERMS, most=st.integers(-1000, 950))
@example(numbers=[1.0, 31.0], most=3)  # the second is cut at the step of the first
def test_what_was_added_is_known_to_be_small_though_it_cancels(numbers, most):
    """No number above a bound is missed, and one far below it is no reason to look."""
    accumulator, bound = empty_accumulator(1, 1), math.ldexp(1.0, most)
    largest = max(map(abs, numbers))
    add_lines(np.array([*numbers, *(-x for x in numbers)])[:, None], accumulator)
    assert not canonical(planes_of(accumulator)).any()
    assert may_exceed(accumulator, bound) >= (largest > bound)
    assert may_exceed(accumulator, bound) <= (32 * largest > bound)


def test_as_many_numbers_as_are_needed_and_no_more() -> None:
    whole = [Summary(np.full((2, 3), float(i)), np.full(2, 5.0)) for i in range(50)]
    assert Summary.total(whole).rest is None
    tenth = Summary.total([Summary(np.full((2, 3), 0.1), np.full(2, 5.0))] * 10)
    assert tenth.rest is not None
    assert tenth.rest.shape == (1, 2, 4)
    assert not tenth.rest[..., -1].any()
    assert tenth.n_values == 2 * tenth.leaving().n_values == 16
    assert Summary.total([Summary(np.zeros((0, 3)), np.zeros(0))] * 9).sums.shape == (0, 3)


@pytest.mark.parametrize("n", [2, FEW_ARRAYS + 1, 3000])
def test_what_is_not_finite_or_may_overflow_is_added_as_it_was(n: int) -> None:
    for wrong in (np.inf, -np.inf, np.nan, 1e300):
        planes = exact_sum([np.array([wrong, 1.0])] + [np.array([0.5, 0.5])] * (n - 1))
        assert_array_equal(planes, [[wrong, 1.0 + 0.5 * (n - 1)]])
    accumulator = empty_accumulator(1, 1)
    add_lines(np.array([[np.inf], [1.0], [-np.inf], [2.0]] * 50), accumulator)
    assert np.isnan(canonical(planes_of(accumulator))).all()
    for wrong in (np.inf, -np.inf, np.nan):
        for numbers in ([wrong, 1.0], [1.0, wrong], [wrong, 1e300, wrong, 0.0]):
            accumulator = empty_accumulator(1, 1)
            add_lines(np.array(numbers)[:, None], accumulator)
            assert may_exceed(accumulator, 1e308)


def test_many_arrays_and_many_cells_are_added_in_parts() -> None:
    """Where parts need different numbers of planes, too."""
    rng = np.random.default_rng(0)
    terms = rng.normal(size=(3000, 40)) * 2.0 ** rng.integers(-40, 40, size=(3000, 1))
    planes = exact_sum(list(terms))
    assert_array_equal(planes[0], [math.fsum(column) for column in terms.T.tolist()])
    terms = rng.normal(size=(6, 3, 9000)) * 2.0 ** rng.integers(-40, 40, size=(6, 3, 1))
    terms[:, 2], terms[0, 2, -1], terms[1, 2, -1] = 1.0, 2.0**300, 2.0**-300
    planes = exact_sum(list(terms))
    assert planes.shape == (3, 3, 9000)
    for line in range(3):
        for start in range(0, 9000, 1000):
            cells = line, slice(start, start + 1000)
            part = exact_sum([term[cells] for term in terms])
            assert_array_equal(planes[: len(part), *cells], part)
            assert not planes[len(part) :, *cells].any()


@given(numbers=TERMS, data=st.data())
def test_a_total_without_a_part_is_the_sum_of_the_others(numbers: list[float], data: Any) -> None:
    """To the bit, with what rounding took, and where the part is itself a sum."""
    lines = [Summary(np.array([[x, 1.0]]), np.ones(1), np.full(1, 3.0)) for x in numbers]
    part = data.draw(st.integers(0, len(lines) - 1))
    ours = Summary.total([lines[part], Summary(np.array([[1e-30, 1e30]]), np.ones(1))])
    others = Summary.total([*lines[:part], Summary(np.zeros((1, 2)), np.zeros(1))])
    rest = Summary.total([others, ours, *lines[part + 1 :]]).without(ours)
    assert_array_equal(rest.planes, Summary.total([others, *lines[part + 1 :]]).planes)
    assert rest.rows == 3.0 * (len(lines) - 1)
