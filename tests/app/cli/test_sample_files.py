"""Files to play with, as ``python -m fedcluster_app.datasets`` writes them, and rows by label."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from fedcluster import Model
from fedcluster.errors import InputError
from fedcluster_app.datasets import (
    BANK,
    CLINICS,
    NAMES,
    WHERE,
    digits_by_site,
    load,
    main,
    sites_by_label,
    write,
)

DIGITS = load_digits().data


@pytest.mark.parametrize("name", NAMES)
def test_each_seed_gives_its_own_files(name, tmp_path):
    one, again = write(name, tmp_path / "one"), write(name, tmp_path / "again")
    other = write(name, tmp_path / "other", seed=1)
    assert [(file.name, file.read_bytes()) for file in one] == [
        (file.name, file.read_bytes()) for file in again
    ]
    assert any(a.read_bytes() != b.read_bytes() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("name", "kinds"), [("clinics", CLINICS), ("bank", BANK)])
def test_the_kinds_are_where_they_are_said_to_be(name, kinds):
    """The usual level of the first text tells them apart: nine tenths of the rows, and more."""
    for site, table in load(name).items():
        assert table.num_rows == sum(WHERE[name][site].values())
        for kind, n in WHERE[name][site].items():
            numbers, texts = kinds[kind]
            text, level = next(iter(texts.items()))
            shared = sum(texts_of[text] == level for _, texts_of in kinds.values())
            ages = np.array(table["age"])[np.array(table[text]) == level]
            if shared == 1 and n >= 60:
                assert len(ages) == pytest.approx(n, abs=0.15 * n + 12)
                assert np.median(ages) == pytest.approx(numbers["age"][0], abs=3)
        assert 0 < sum(column.null_count for column in table.columns) < 0.08 * table.num_rows


@pytest.mark.thorough
def test_the_command_says_what_comes_next(tmp_path):
    command = [sys.executable, "-m", "fedcluster_app.datasets", "clinics"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    names = ["clinics/north.csv", "clinics/south.csv", "clinics/west.csv"]
    assert ran.stdout.splitlines() == [
        f"Wrote {', '.join(names)}. Next:",
        f"fedcluster fit {' '.join(names)} -k auto --out result",
    ]
    assert len(pd.read_csv(tmp_path / names[0])) == 150


def test_a_file_that_is_there_is_left_alone(tmp_path, capsys):
    (tmp_path / "south.csv").write_text("mine")
    assert main(["clinics", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said == f"error: {tmp_path / 'south.csv'} exists and differs: choose another --out\n"
    assert [file.name for file in tmp_path.iterdir()] == ["south.csv"]
    (tmp_path / "file").touch()
    assert main(["bank", "--out", str(tmp_path / "file")]) == 2
    assert "cannot be written to" in capsys.readouterr().err
    files = write("bank", tmp_path / "bank")
    assert write("bank", tmp_path / "bank") == files  # the same again is no loss
    with pytest.raises(InputError, match="no data set 'iris': choose one of clinics, bank"):
        load("iris")


# Digits at five sites


def digits_at(site):
    return np.unique(np.asarray(site.y)).tolist()


def in_order(X):
    return X[np.lexsort(X.T)]


@pytest.mark.parametrize("seed", range(3))
def test_every_digit_is_at_two_sites_and_no_row_is_lost(seed):
    sites = digits_by_site(seed).values()
    seen = [digits_at(site) for site in sites]
    assert [len(each) for each in seen] == [4] * 5
    assert sorted(np.concatenate(seen)) == sorted([*range(10)] * 2)
    X = np.concatenate([digits.X for digits in sites])
    np.testing.assert_array_equal(in_order(X), in_order(DIGITS))


def test_the_split_follows_the_seed_and_files_hold_the_digits_of_scikit_learn():
    first, again, other = digits_by_site(0), digits_by_site(0), digits_by_site(1)
    assert all(np.array_equal(first[site].X, again[site].X) for site in first)
    assert any(digits_at(first[site]) != digits_at(other[site]) for site in first)
    rows = [np.array(list(table.to_pydict().values())).T for table in load("digits").values()]
    np.testing.assert_array_equal(in_order(np.concatenate(rows)), in_order(DIGITS))


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


# Sites that are alike or not, as the field's papers have them

LABELS = np.repeat([0, 1, 2, 3], [400, 300, 200, 100])


def shares(sites):
    """The share of each site in each label."""
    table = np.array([np.bincount(sites[label == LABELS], minlength=5) for label in range(4)])
    return table / table.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(5))
def test_sites_by_label_are_as_unlike_as_they_are_asked_for(seed):
    alike, shards, again, other = (
        sites_by_label(LABELS, 5, labels_per_site=labels, seed=at)
        for labels, at in ((None, seed), (2, seed), (2, seed), (2, seed + 9))
    )
    assert np.bincount(alike).tolist() == np.bincount(shards).tolist() == [200] * 5
    most, some, least = (
        shares(sites_by_label(LABELS, 5, alpha=alpha, seed=seed)).std() for alpha in (100, 1, 0.1)
    )
    assert shares(alike).std() < 0.05 < some < least
    assert most < 0.03
    assert max(len(np.unique(LABELS[shards == site])) for site in range(5)) <= 4
    assert np.array_equal(shards, again)
    assert not np.array_equal(shards, other)


def test_shares_of_sites_are_those_of_a_dirichlet_distribution():
    """Of shares of 5 sites the variance is (1/5) (4/5) / (5 alpha + 1)."""
    for alpha in (0.5, 2.0):
        drawn = [
            shares(sites_by_label(LABELS, 5, alpha=alpha, min_rows=0, seed=seed))
            for seed in range(100)
        ]
        assert np.mean(drawn) == pytest.approx(0.2)
        assert np.var(drawn) == pytest.approx(0.16 / (5 * alpha + 1), rel=0.15)


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ({"alpha": 1.0, "labels_per_site": 1}, "and not both"),
        ({"alpha": 0.001}, "make alpha larger, or sites fewer"),
        ({"alpha": 0.0}, "alpha must be above 0, not 0.0"),
        ({"labels_per_site": -1}, "labels_per_site must be above 0"),
        ({"n_sites": 501}, "1000 rows are too few for 501 sites"),
    ],
)
def test_sites_that_cannot_be_made_are_refused(how, line):
    with pytest.raises(InputError, match=line):
        sites_by_label(LABELS, **{"n_sites": 5, **how})
