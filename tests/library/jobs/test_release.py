"""What is published about sites whose counts are rounded, as its recipient can attack it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typed import run

from fedcluster.core import Column, Data
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.jobs import Evaluate, Profile, execute, fit_of
from fedcluster.jobs.release import means_of, shares_of
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.privacy import Groups
from fedcluster.privacy.limits import rounded
from fedcluster.selection import Rule
from fedcluster_app.report.job_files import write_job
from fedcluster_app.report.release_check import findings


def people(n: int, seed: int) -> Data:
    """Rows with flags, one of one person, counts, decimals and gaps, ages, years and texts."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, 3, n)
    names = ["age", "bmi", "smoker", "rare", "kids", "year", "sex", "town"]
    age, bmi = rng.normal(50, 5, n) + 20 * cluster, rng.normal(27, 4, n) + 3 * cluster
    smoker, rare = rng.random(n) < 0.2 + 0.3 * cluster, np.arange(n) == seed % n
    kids, year, sex = rng.poisson(0.4, n), 2000 + rng.integers(0, 20, n), 1 + (rng.random(n) < 0.5)
    town = rng.choice(3, n, p=[0.6, 0.36, 0.04])
    told = [age.round(0), bmi.round(1), smoker, rare, kids, year, sex, town]
    values = np.column_stack(told).astype(float)
    values[rng.random(n) < 0.05, 1] = np.nan
    kinds: list[Any] = [Column(name) for name in names[:-1]]
    towns = Column("town", "text", ("Ahlen", "Bonn", "Celle"))
    return Data(values, None, None, (*kinds, towns))


def written(folder: Path, clients: list[Client], job: Any) -> dict[str, Any]:
    """Carry out a job and write its files; return their content by name."""
    report = execute(job, LocalEngine(clients), columns=[c.name for c in clients[0].data.columns])
    folder.mkdir()
    write_job(folder, report)
    return {path.name: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}


SCALES = ["standard", "none", "robust"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_no_file_about_strict_sites_gives_counts_back(seed, tmp_path) -> None:
    """All numbers of rows within the rounding are tried, as an attacker does."""
    rng, found = np.random.default_rng(seed), dict[tuple[str, str, str], Any]()
    rows = [people(int(rng.integers(300, 400)), 3 * seed + i) for i in range(3)]
    spec = PreprocessingSpec(scale=SCALES[seed], missing="mean")
    for preset in ("standard", "strict"):
        groups = replace(Groups.strict(), preset=preset)
        clients = [Client(f"s{i}", each, (), groups) for i, each in enumerate(rows)]
        fit, previous = (str(tmp_path / f"{each} fit") for each in (preset, "standard"))
        jobs: dict[str, Any] = {
            "fit": fit_of(3, seed=0, prepare=spec, profile=True, stability=2),
            "auto": fit_of([2, 3], seed=0, prepare=spec, rule=Rule("squared-silhouette")),
            "profile": Profile(fit),
            "evaluate": Evaluate(fit, profile=True),
            "next": fit_of(3, seed=1, prepare=spec, previous=previous),
        }
        for name, job in jobs.items():
            content = written(tmp_path / f"{preset} {name}", clients, job)
            found |= {(preset, name, file): findings(each) for file, each in content.items()}
    assert {key for key, each in found.items() if key[0] == "strict" and each} == set()
    leaking = {key[1:] for key, each in found.items() if key[0] == "standard" and each}
    assert leaking >= {("fit", "model.json"), ("fit", "history.json"), ("profile", "profiles.json")}
    model = json.loads((tmp_path / "strict fit/model.json").read_text())
    assert model["centers_in_units"]["rare"] == [0.0] * 3  # of one person at each site
    exact = json.loads((tmp_path / "standard fit/model.json").read_text())
    counts = np.multiply(exact["centers_in_units"]["rare"], exact["weights"])
    assert ((counts > 0) & (counts < 4)).any()


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(20, 700),
    share=st.floats(0, 1),
    unit=st.sampled_from([0.01, 0.1, 1.0, 5.0]),
    seed=st.integers(0, 99),
)
def test_every_number_of_rows_within_the_rounding_fits_what_is_told(n, share, unit, seed) -> None:
    """Of a flag and of a column of any digits, whatever else is told of the same rows."""
    ones = round(share * n)
    values = np.random.default_rng(seed).normal(30 * unit, 9 * unit, n)
    total = float(np.rint(values / unit).sum() * unit)
    told = float(shares_of(np.array([ones / n]), np.array([float(n)]))[0])
    spread = float(values.std())
    mean = float(means_of(np.array([total / n]), np.array([float(n)]), spread)[0])
    alike = [m for m in range(max(n - 6, 1), n + 7) if rounded(m) == rounded(n)]
    assert len(alike) >= 5
    for m in alike:
        counts = np.arange(m + 1)
        others = shares_of(counts / m, np.full(m + 1, float(m)))
        assert np.count_nonzero(others == told) >= 2
        near = np.rint(total / n * m / unit) + np.arange(-60, 61)
        of = np.array([float(m)])
        sums = [means_of(np.array([s * unit / m]), of, spread)[0] for s in near.tolist()]
        assert sum(each == mean for each in sums) >= 2
    assert told == 0 or told == 1 or 10 <= round(told * rounded(n)) <= rounded(n) - 10


def test_an_officer_checks_a_file(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    clients = [Client(f"s{i}", people(320 + i, i), (), Groups.strict()) for i in range(3)]
    written(tmp_path / "out", clients, fit_of(3, seed=0, prepare=PreprocessingSpec(missing="mean")))
    said = run("check", "out/model.json")
    assert said.exit_code == 0, said.stdout
    assert "passes: nothing in it gives rounded counts back" in said.stdout
    model = json.loads(Path("out/model.json").read_text())
    n, model["weights"][1] = model["weights"][0] - 2, 447.0
    model["centers_in_units"]["age"][0] = 20001 / n
    Path("out/changed.json").write_text(json.dumps(model))
    said = run("check", "out/changed.json")
    assert said.exit_code == 1
    assert said.stdout.startswith("weights[1] is 447: counts are 0, or at least 10 and multiples")
    told = f"age of cluster 0 is a mean of {n:g} rows, and the sum is 20001: {n + 2:g} rows are"
    assert told in " ".join(said.stdout.split())
    said = run("check", "nothing.json")
    assert said.exit_code == 2
    assert "is damaged" in said.stderr


@pytest.mark.parametrize("column", ["weight", "rows", "missing", "age"])
def test_rounded_means_are_no_finding_whatever_the_column_is_called(column) -> None:
    """2500 is known to hundreds; 0.9 may come with the error of a sum; few digits tell no n."""
    content: dict[str, Any] = {"weights": [25.0, 85.0, 165.0]}
    means = {column: [2500.0, 0.8999999999999999, 66.0]}
    profile = {"cluster": 0, "columns": [{"column": "sex", "weight": 25, "shares": {column: 0.4}}]}
    assert findings({**content, "centers_in_units": means, "profile": profile}) == []
    [found] = findings({**content, "centers_in_units": {column: [0.0, 7 / 83, 0.0]}})
    said = "of cluster 1 is a mean of 83 rows, and the sum is 7: 85 rows are published"
    assert found == f"{column} {said}"
