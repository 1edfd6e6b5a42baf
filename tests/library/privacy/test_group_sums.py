"""Sums over groups are correctly rounded: no bit tells of what they are sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from partitions import InChunks
from test_protection import P, grouped, hold

from fedcluster.core import Column, Data
from fedcluster.core.exact import ExactSums, exact_product
from fedcluster.privacy import Grouping, Groups

N_GROUPS, SIZE = 60, 8
GROUPS = [np.arange(SIZE * i, SIZE * (i + 1)) for i in range(N_GROUPS)]


def twins(seed: int, most: int, by: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers (n,) and others with the same sums in each group."""
    rng = np.random.default_rng(seed)
    one = rng.integers(-most, most, (N_GROUPS, SIZE))
    apart = rng.integers(1, by, (N_GROUPS, SIZE // 2))
    other = rng.permuted(one + np.hstack([apart, -apart]), axis=1)
    assert np.array_equal(one.sum(axis=1), other.sum(axis=1))
    assert (one != other).all(axis=1).mean() > 0.9
    return one.ravel(), other.ravel()


def same_bits(one: Data, other: Data, monkeypatch: pytest.MonkeyPatch) -> bool:
    hold(monkeypatch, GROUPS)
    a, b = (grouped(data, Groups(P)) for data in (one, other))
    assert len(a) == N_GROUPS
    assert (a.grouped is None) == (b.grouped is None)
    bits = [(x.X.tobytes(), x.sample_weight.tobytes(), x.grouped.counts.tobytes()) for x in (a, b)]
    labels = [x.grouped.labels for x in (a, b)]
    shares = [x.grouped.shares[1].toarray().tobytes() for x in (a, b)]
    return bits[0] == bits[1] and np.array_equal(*labels) and shares[0] == shares[1]


def site(values: np.ndarray, weight: np.ndarray | None = None) -> Data:
    town = np.tile([0.0, 1.0, 1.0, 0.0], N_GROUPS * 2).astype(values.dtype)
    X, y = np.column_stack([values, town]), np.tile(["ill", "well"], N_GROUPS * 4)
    return Data(X, weight, y, (Column("age"), Column("town", "text", ("Bonn", "Celle"))))


@pytest.mark.parametrize("digits", range(7))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_decimals_with_the_same_sums_give_the_same_bits(digits, dtype, monkeypatch) -> None:
    for seed in range(3):
        one, other = twins(seed, 60_000, 9_000)
        values = [(x / 10.0**digits).astype(dtype) for x in (one, other)]
        assert same_bits(site(values[0]), site(values[1]), monkeypatch)
    sums = [np.add.reduceat(x, np.arange(0, len(x), SIZE)) for x in values]
    assert digits == 0 or (sums[0] != sums[1]).any()  # as numbers, their sums differ


def test_numbers_of_all_digits_with_the_same_sums_give_the_same_bits(monkeypatch) -> None:
    for seed in range(6):
        one, other = twins(seed, 1 << 50, 1 << 47)
        assert same_bits(site(one * 2.0**-44), site(other * 2.0**-44), monkeypatch)


@pytest.mark.parametrize("digits", [0, 1, 3])
def test_weights_that_are_decimals_do_not_matter_either(digits, monkeypatch) -> None:
    """Rows of a group change places: sums of weights, and of weights times values, stay."""
    rng = np.random.default_rng(digits)
    weight = rng.integers(1, 900, N_GROUPS * SIZE) / 10.0**digits
    values = rng.integers(0, 10_000, len(weight)) / 100
    order = np.concatenate([group[[2, 3, 0, 1, 6, 7, 4, 5]] for group in GROUPS])
    order = order.reshape(N_GROUPS, 2, 4)[:, ::-1].ravel()
    one, other = site(values, weight), site(values[order], weight[order])
    hold(monkeypatch, GROUPS)
    a, b = (grouped(data, Groups(P)) for data in (one, other))
    assert a.X[:, 0].tobytes() == b.X[:, 0].tobytes()
    assert a.sample_weight.tobytes() == b.sample_weight.tobytes()
    whole = np.rint(weight * 10**digits) * np.rint(values * 100)  # exact, as are their sums
    exact = whole.reshape(N_GROUPS, SIZE).sum(axis=1) / 10**digits / 100
    assert np.allclose(a.X[:, 0] * a.sample_weight, exact, rtol=1e-15)


@pytest.mark.parametrize("values", ["decimals", "numbers"])
def test_neither_order_nor_chunks_change_a_bit(values, tmp_path) -> None:
    rng, file = np.random.default_rng(0), tmp_path / "s.groups"
    X = rng.normal(50, 20, (700, 2)) * [1.0, 1e-7]
    X = X.round(3) if values == "decimals" else X
    data, order = Data(X, rng.uniform(0.5, 2.0, 700)), rng.permutation(700)
    seen = [
        grouped(x, Grouping(Groups(P), file)) for x in (data, data.take(order), InChunks(data, 64))
    ]
    assert len(seen[0]) > 50
    assert file.stat().st_mode & 0o077 == 0
    for what in ("X", "sample_weight", "within"):
        assert len({getattr(each, what).tobytes() for each in seen}) == 1


def test_exact_sums_are_those_of_fractions() -> None:
    rng = np.random.default_rng(2)
    values = np.ldexp(rng.normal(size=3000), rng.integers(-300, 300, 3000))
    group = rng.integers(0, 40, 3000)
    sums = ExactSums(41)
    for part in np.array_split(np.arange(3000), 7):
        sums.add(values[part], group[part])
    sums.add(np.empty(0), np.empty(0, np.intp))
    expected = [
        float(sum(map(Fraction, values[group == g].tolist()), Fraction())) for g in range(41)
    ]
    assert sums.total.tolist() == expected
    a, b = values[:50], values[50:100]
    product, rest = exact_product(a, b)
    for x, y, p, r in zip(a, b, product, rest, strict=True):
        assert Fraction(x) * Fraction(y) == Fraction(p) + Fraction(r)
