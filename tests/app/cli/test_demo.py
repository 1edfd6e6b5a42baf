"""The example of five sites with handwritten digits: what it splits, prints and draws."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedcluster import Model
from fedcluster_app.datasets import digits_by_site


def seen(digits):
    return np.unique(digits.y).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_every_digit_is_at_two_sites_and_no_row_is_lost(seed):
    sites = digits_by_site(seed)
    assert len(sites) == 5
    assert all(len(seen(digits)) == 4 for digits in sites.values())
    assert sorted(d for digits in sites.values() for d in seen(digits)) == sorted([*range(10)] * 2)
    X = np.concatenate([digits.X for digits in sites.values()])
    np.testing.assert_array_equal(
        X[np.lexsort(X.T)], (whole := load_digits().data)[np.lexsort(whole.T)]
    )


def test_the_split_follows_the_seed():
    first, again, other = digits_by_site(0), digits_by_site(0), digits_by_site(1)
    assert all(np.array_equal(first[site].X, again[site].X) for site in first)
    assert not all(
        np.array_equal(np.asarray(first[site].y), np.asarray(other[site].y)) for site in first
    )


def test_the_example_reaches_pooled_quality_and_no_site_does_alone(tmp_path, capsys):
    example = Path(__file__).parents[3] / "examples" / "digits.py"
    runpy.run_path(str(example))["main"](tmp_path / "demo")
    told = re.findall(r"^(.+?) +(\d\.\d{3}) +(\d\.\d{3})$", capsys.readouterr().out, re.MULTILINE)
    ours, pooled, *alone = [(float(ratio), float(ari)) for _, ratio, ari in told]
    assert ours[0] < 1.001
    assert ours[1] > pooled[1] - 0.02
    assert len(alone) == 5
    assert min(ratio for ratio, _ in alone) > 1.3
    assert Model.load(tmp_path / "demo" / "model.json").centers.shape == (10, 64)
    assert (tmp_path / "demo" / "centers.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
