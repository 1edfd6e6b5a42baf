"""The demonstration: what it splits, what it compares, what it draws."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

from fedcluster.model import Model
from fedcluster_app import datasets as demo
from fedcluster_app.cli import app
from fedcluster_app.datasets import compare, digits_by_site, seen
from fedcluster_app.report.records import Comparison


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


def test_inertia_and_index_are_those_of_all_rows(monkeypatch):
    monkeypatch.setattr(demo, "_centers", lambda X, k, seed: X[:k])  # no k-means: fast
    sites = digits_by_site(0)
    X, y = load_digits(return_X_y=True)
    means = np.stack([X[y == digit].mean(axis=0) for digit in range(10)])
    ours, pooled, *alone = compare(sites, means)
    squared = ((X[:, None] - means) ** 2).sum(axis=2)
    assert ours.inertia == pytest.approx(squared.min(axis=1).sum())
    assert ours.ari == adjusted_rand_score(y, squared.argmin(axis=1))
    assert (pooled.ratio, ours.ratio) == (1.0, ours.inertia / pooled.inertia)
    assert [c.name for c in alone] == [f"{site} alone" for site in sites]


def read(path):
    return json.loads(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The demonstration run twice into the same folder."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    first = CliRunner().invoke(app, ["demo", "--out", str(folder)])
    (folder / "mine.txt").write_text("mine")
    compared = [Comparison(**each) for each in read(folder / "history.json")["comparison"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "compare", lambda *args: compared)
        second = CliRunner().invoke(app, ["demo", "--out", str(folder), "--json"])
    assert (first.exit_code, second.exit_code) == (0, 0)
    return folder, first.stdout, json.loads(second.stdout)


def test_the_demo_reaches_pooled_quality_and_no_site_does_alone(shown):
    _, _, result = shown
    ours, pooled, *alone = result["comparison"]
    assert ours["ratio"] < 1.001
    assert ours["ari"] > pooled["ari"] - 0.02
    assert len(alone) == 5
    assert min(site["ratio"] for site in alone) > 1.3


def test_the_demo_prints_the_comparison(shown):
    _, text, _ = shown
    for word in ("of pooled", "ARI", "fedcluster, no row moved", "Vienna alone", "centers.png"):
        assert word in text
    assert "1.000 is as good" in text
    assert "The 1,797 images stayed where they are. At most " in text
    assert max(map(len, text.partition("How good")[2].partition("\n\n")[0].splitlines())) <= 80


def test_the_demo_ends_with_what_to_do_next(shown):
    folder, text, _ = shown
    said, _, steps = text.partition("Then try files, one for each site:\n")
    assert said.endswith(f"Open {folder}/report.html and {folder}/centers.png.\n")
    assert [line.split()[:3] for line in steps.splitlines()] == [
        ["python", "-m", "fedcluster_app.datasets"],
        ["fedcluster", "fit", "clinics/north.csv"],
    ]


def test_the_demo_writes_what_fit_writes_and_a_picture(shown):
    folder, _, result = shown
    assert (folder / "centers.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert Model.load(folder / "model.json").centers.shape == (10, 64)
    assert all((folder / file).is_file() for file in result["files"])
    assert (folder / "mine.txt").read_text() == "mine"
    assert read(folder / "history.json")["comparison"] == result["comparison"]


def test_without_matplotlib_only_the_picture_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(demo, "compare", lambda *args: [])
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["demo", "--quiet"])
    assert ran.exit_code == 0
    assert ran.stdout == ""
    assert ran.stderr == (
        'warning: no picture of the centres without matplotlib: pip install "fedcluster[plot]"\n'
    )
    assert Path("demo/model.json").is_file()
    assert not Path("demo/centers.png").exists()
