"""Filling in, bounding, shifting and scaling, against plain NumPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcluster.kernels.rows import scale_rows


@st.composite
def cases(draw):
    """Rows with missing values, of which some columns are filled in and some are bounded."""
    n, d = draw(st.integers(0, 40)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X = rng.normal(0, 10.0 ** draw(st.integers(-3, 8)), (n, d))
    X[rng.random((n, d)) < draw(st.sampled_from([0.0, 0.2]))] = np.nan
    fill = np.where(rng.random(d) < 0.5, rng.normal(size=d), np.nan)
    bounds = np.where(rng.random(d) < 0.5, [[-1.0], [2.0]], [[-np.inf], [np.inf]])
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    step = np.where(rng.random(d) < 0.5, 2.0**-9, 0.0)
    return X.astype(dtype), rng.normal(size=d), rng.uniform(0.1, 9, d), step, fill, bounds


@given(cases())
def test_as_in_plain_numpy_to_the_last_bit(case):
    X, shift, scale, step, fill, (low, high) = case
    x = np.clip(X.astype(float), low, high)
    x = (np.where(np.isnan(x), fill, x) - shift) / scale
    x = np.where(step > 0, np.rint(x * 2**9) / 2**9, x)
    found = np.empty_like(X)
    lacks = scale_rows(X, found, shift, scale, step, fill, np.array([low, high]))
    assert_array_equal(found, x.astype(X.dtype))
    assert lacks == np.isnan(x).any()
