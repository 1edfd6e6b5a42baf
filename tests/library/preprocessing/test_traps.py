"""Ordinary files at their worst: what holds no measurements is named before it is clustered by."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score
from typed import fails, run

from fedcluster import Client, LocalEngine
from fedcluster.core import Column, Data
from fedcluster.errors import InputError
from fedcluster.frames.columns import NumberSample, SourceSummary
from fedcluster.jobs import execute, fit_of
from fedcluster.model import Model
from fedcluster.preprocessing import NumericColumn, PreprocessingSpec
from fedcluster.preprocessing.placeholders import typing_errors
from fedcluster.preprocessing.screening import screened
from fedcluster.preprocessing.units import fitting_units, unit_warnings
from fedcluster.privacy import Groups
from fedcluster_app.site.file import SiteFile

pytestmark = pytest.mark.usefixtures("here", "short_searches")

HOSPITALS = ("east", "north", "south")
FILES = [f"{site}.csv" for site in HOSPITALS]
WEST = 'name = "west"\n[source]\npath = "west.csv"\n'
DATES = "dates; --set dates=age makes numbers of them, as do month, weekday, since and hour"


@pytest.fixture
def truth() -> dict[str, np.ndarray]:
    """Files of three hospitals: a date, an id, two columns of text, and commas at one of them."""
    rng = np.random.default_rng(3)
    means = np.array([[45.0, 24.0, 120.0], [70.0, 31.0, 155.0], [28.0, 21.0, 105.0]])
    wards, planted = ["Cardio", "Neuro", "Ortho"], {}
    for number, site in enumerate(HOSPITALS):
        kinds = rng.integers(3, size=150)
        values = means[kinds] + rng.normal(size=(150, 3)) * [3.0, 1.2, 5.0]
        ward = np.where(rng.random(150) < 0.9, kinds, rng.integers(3, size=150))
        day = np.datetime64("2021-01-01") + rng.integers(700, size=150)
        sep, decimal = (";", ",") if site == "east" else (",", ".")
        lines = [sep.join(["patient_id", "admitted", "age", "bmi", "sbp", "ward", "smoker"])]
        for i, kind in enumerate(kinds):
            numbers = [f"{value:.1f}".replace(".", decimal) for value in values[i]]
            smoker = "Y" if kind == 1 else "N"
            cells = [str(4000 * number + i), str(day[i]), *numbers, wards[ward[i]], smoker]
            lines.append(sep.join(cells))
        Path(f"{site}.csv").write_text("\n".join(lines) + "\n")
        planted[site] = kinds
    return planted


def fit(*more: object) -> Any:
    return run("fit", *FILES, "-k", 3, *more)


def told(*words: object) -> Any:
    """What a command says as JSON."""
    return json.loads(run(*words, "--json").stdout)


def labels(folder: str = "result/labels") -> np.ndarray:
    read = (pd.read_csv(Path(folder, file))["cluster"].to_numpy() for file in FILES)
    return np.concatenate([*read])


def numeric(folder: str = "result") -> NumericColumn:
    """The first column of numbers of a model."""
    preprocessor = Model.load(folder).preprocessor
    assert preprocessor is not None
    return preprocessor.numeric[0]


def test_the_first_command_works(truth) -> None:
    ran = fit()
    assert ran.exit_code == 0
    assert ran.stderr.startswith("warning: not clustered by admitted (dates; --set dates=")
    assert ran.stderr.count("\n") == 1
    assert adjusted_rand_score(np.concatenate([truth[s] for s in HOSPITALS]), labels()) >= 0.95
    assert ran.stdout.partition("\n\n")[0].splitlines() == [
        "Prepared: age, bmi and sbp with mean 0 and variance 1; ward and smoker as 5 columns of 0 "
        "and 1.",
        f"Left out: patient_id (it only counts the rows); admitted ({DATES}).",
        "Read with decimal commas: east.",
    ]


def test_check_compares_the_sites_as_a_fit_would_see_them(truth, tmp_path) -> None:
    before = sorted(tmp_path.iterdir())
    said = told("check", *FILES)
    assert said["used"] == ["age", "bmi", "sbp", "ward", "smoker"]
    assert said["left_out"] == {"patient_id": "it only counts the rows", "admitted": DATES}
    assert said["sites"]["east"]["rows"] == 150
    ages = pd.read_csv("east.csv", sep=";", decimal=",")["age"].to_numpy()
    np.testing.assert_allclose(said["moments"]["age"]["east"], [ages.mean(), ages.std()])
    shown = run("check", *FILES).stdout
    assert f"{ages.mean():.4g} ± {ages.std():.3g}" in shown
    assert "Left out: patient_id (it only counts the rows); admitted (" in shown
    assert sorted(tmp_path.iterdir()) == before


def test_columns_are_excluded_and_used_by_name(truth) -> None:
    said = told("fit", *FILES, "-k", 3, "--exclude", "ward,admitted")
    assert said["columns"] == ["age", "bmi", "sbp", "smoker"]
    assert said["preprocessing"]["left_out"] == {"patient_id": "it only counts the rows"}
    refused = "fit", *FILES, "-k", 3, "--overwrite"
    assert fails(*refused, "--exclude", "size") == (
        "--exclude: no site has a column 'size'; there are patient_id, admitted, age, bmi, sbp, "
        "ward, smoker"
    )
    both = fails(*refused, "--exclude", "age", "--columns", "age,bmi")
    assert "--exclude 'age' is among --columns" in both
    Path("south.toml").write_text(WEST.replace("west", "south"))
    one = told("fit", "south.toml", "-k", 3, "--exclude", "ward,patient_id", "--out", "one")
    assert one["columns"] == ["age", "bmi", "sbp", "smoker"]
    chosen = told(*refused, "--columns", "patient_id,age")  # although it was set aside
    assert chosen["columns"] == ["patient_id", "age"]


def test_dates_become_numbers_and_the_model_knows_how(truth) -> None:
    since = ["--set", "dates.admitted=since:2021-01-01"]
    said = told("fit", *FILES, "-k", 3, "--exclude", "patient_id", *since)
    assert said["columns"] == ["admitted", "age", "bmi", "sbp", "ward", "smoker"]
    column = numeric()
    assert (column.name, column.date) == ("admitted", "since:2021-01-01")
    assert 300 < column.shift < 400  # the mean of 0 to 699 days
    run("predict", "result", *FILES, "--out", "new")
    np.testing.assert_array_equal(labels("new"), labels())
    every = told("fit", *FILES, "-k", 3, "--set", "dates=month", "--out", "b")
    assert "admitted" in every["columns"]
    assert numeric("b").date == "month"
    for option, line in (
        ("dates.age=month", "dates: column 'age' holds no dates; admitted does$"),
        ("dates.ward=month", r"dates: column 'ward' holds no dates; '\w+' is none$"),
        ("dates=size", "dates become age, age:YYYY-MM-DD, month, weekday, since, "),
    ):
        assert re.match(line, fails("fit", *FILES, "-k", 3, "--set", option, "--out", "c"))


def test_what_values_mean_can_be_said() -> None:
    rows = range(40)
    north = "".join(f"{130 + i % 9},{'FM'[i % 2]}\n" for i in rows) + "-999,F\n" * 4
    west = "".join(f"{16 + i % 5 / 2},{['female', 'male'][i % 2]}\n" for i in rows)
    for site, text in (("north", north), ("west", west)):
        Path(f"{site}.csv").write_text("sbp,sex\n" + text)
    command = "fit north.csv west.csv -k 2 --set"
    said = ["missing_values=[-999]", "--set", "codes.sex={female='F',male='M'}"]
    ran = told(command, "sites.west.factors.sbp=7.5", "--set", *said)
    model = json.loads(Path("result/model.json").read_text())["preprocessing"]["columns"]
    assert [column.get("levels") for column in model] == [None, ["F", "M"]]
    assert 130 < numeric().shift < 136
    assert ran["preprocessing"]["missing"] == {"north": {"sbp": 4}}
    for value, line in [
        ("sites.west.factors.size=2", "factors: site 'west' has no column 'size' to multiply"),
        ("sites.west.factors.sbp=x", "sites.west.factors.sbp=x: 'x' is no factor"),
        ("codes.female=F", "--set codes.female=F: codes.female must be a table of what "),
    ]:
        assert fails(command, value, "--out", "no").startswith(line)


def test_a_site_file_says_it_too(truth) -> None:
    Path("east.csv").write_text(Path("east.csv").read_text().replace(";Cardio;", ";unknown;"))
    Path("east.toml").write_text(
        'name = "east"\nmissing_values = [45.5, "unknown"]\n[source]\npath = "east.csv"\n'
        '[factors]\nsbp = 2\n[dates]\nadmitted = "since:2021-01-01"\n'
        "[limits]\nmin_rows = 1\nmin_cluster_size = 1\n"
    )
    site = SiteFile.load("east.toml")
    plain = replace(site, missing_values=(), factors={}, dates={})
    data, bare = (each.opened(raw=True).load() for each in (site, plain))
    at = {column.name: j for j, column in enumerate(data.columns)}
    sbp, age, ward = (data.X[:, at[name]] for name in ("sbp", "age", "ward"))
    np.testing.assert_array_equal(sbp, 2 * bare.X[:, at["sbp"]])
    own = bare.X[:, at["age"]]
    np.testing.assert_array_equal(age, np.where(own == 45.5, np.nan, own))
    assert data.columns[at["ward"]].levels == ("Neuro", "Ortho")
    assert np.isnan(ward).any()
    assert [each.columns[at["admitted"]].kind for each in (data, bare)] == ["number", "date"]
    shown = run("check", "east.toml").stdout
    assert "Column 'patient_id' would be clustered by: it only counts the rows; choose" in shown
    for line, said in [
        ("missing_values = 3", "missing_values must be a list of numbers and texts"),
        ("[factors]\nsbp = 0", "sbp must be a number other than 0"),
        ('[dates]\nadmitted = "age"', 'admitted must be "age:YYYY-MM-DD"'),
    ]:
        Path("bad.toml").write_text(f'name = "n"\n{line}\n[source]\npath = "east.csv"\n')
        with pytest.raises(InputError, match=re.escape(said)):
            SiteFile.load("bad.toml")


def test_a_sample_of_many_rows_knows_the_extremes_of_all() -> None:
    values = np.arange(100_000.0) % 1000
    values[77_777] = 1e9
    sample = NumberSample.from_values(values, values[::5])
    assert (sample.low, sample.high, sample.n, sample.n_rows) == (0, 1e9, 20_001, 100_000)
    assert sample.values[-2] < 1000


SEVENTHS = np.arange(40) % 7
ANY = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("name", "values", "left_out"),
    [
        ("x", np.arange(5, 45), "it only counts the rows"),
        ("x", ANY.lognormal(9, 1, 60).round(), None),
        ("zip_code", SEVENTHS, "its name is that of a code: --categories auto,zip_code"),
        ("x", SEVENTHS, None),
        ("x", ANY.permutation(60) / 2, None),
        ("paid", SEVENTHS, None),
        ("valid", SEVENTHS, None),
    ],
)
def test_numbers_that_are_no_measurements_are_left_out(name, values, left_out) -> None:
    X = np.column_stack([values, np.random.default_rng(1).normal(size=len(values))])
    data = Data(X, columns=(Column(name), Column("m")))
    found = screened({"a": SourceSummary.from_data(data)}).left_out
    assert list(found) == ([name] if left_out else [])
    assert not left_out or left_out in found[name]


def write(name: str, columns: dict[str, object]) -> str:
    pd.DataFrame(columns).to_csv(f"{name}.csv", index=False)
    return f"{name}.csv"


def test_values_that_bounds_move_are_counted_by_column_and_site() -> None:
    north = write("north", {"age": [*range(20, 80), 140, 150, -3], "bmi": np.arange(63.0)})
    south = write("south", {"age": [*range(30, 60)], "bmi": np.arange(30.0)})
    fit = "fit", north, south, "-k", 2, "--set"
    said = told(*fit, "prepare.bounds={age=[0,120],bmi=[0,62]}")
    assert said["preprocessing"]["clipped"] == {"north": {"age": 3}}
    assert "Moved to the bounds: 3 of age at north." in said["prepared"]
    held = ["--min-cluster-size", 3, "--overwrite"]  # two above, one below
    assert told(*fit, "prepare.bounds.age=[0,120]", *held)["preprocessing"]["clipped"] == {}


@pytest.mark.parametrize(
    ("here", "there", "factor"),
    [
        ((18.6, 2.6), (140.0, 19.5), 1 / 7.50062),
        ((75.0, 15.0), (165.0, 33.0), 1 / 2.20462),
        ((98.3, 1.2), (36.8, 0.7), None),
        ((1.46, 0.17), (4.26, 0.47), None),  # two kinds of iris
        ((0.1, 0.9), (1.0, 9.0), None),  # mostly zeros
        ((50.0, 12.0), (60.0, 15.0), None),
        ((5.0, 1.0), (50.0, 2.0), None),
    ],
)
def test_a_factor_between_units_changes_mean_and_deviation_alike(here, there, factor) -> None:
    scales = [each.scale for each in fitting_units("x", here, there) if not each.shift]
    assert scales[:1] == ([] if factor is None else [factor])
    back = [each.scale for each in fitting_units("x", there, here) if not each.shift]
    assert back[:1] == ([] if factor is None else [pytest.approx(1 / factor)])


def told_of(**columns: dict[str, np.ndarray]) -> list[str]:
    """What is said of columns, from means, deviations and numbers of values."""
    moments = {
        name: {site: (float(x.mean()), float(x.std())) for site, x in rows.items()}
        for name, rows in columns.items()
    }
    counts = {name: {s: float(len(x)) for s, x in rows.items()} for name, rows in columns.items()}
    return list(unit_warnings(moments, counts))


@pytest.mark.parametrize("tail", [0.5, 0.8, 1.0, 1.3])
def test_another_unit_of_a_column_with_a_long_tail_is_seen(tail) -> None:
    """Of draws on which nothing was tuned most, at the right site, with about the right factor."""
    rng, right, near = np.random.default_rng(1101), 0, 0
    for _ in range(100):
        factor = rng.choice([10.0, 18.0182, 88.42, 1000.0]) ** rng.choice([-1, 1])
        sizes = rng.integers(100, 600, 4)
        rows = {site: rng.lognormal(0, tail, n) for site, n in zip("abcd", sizes, strict=True)}
        lines = told_of(crp=rows | {"c": rows["c"] * factor})
        if lines:
            right += len(lines) == 1 and "--set sites.c.factors.crp=" in lines[0]
            near += abs(np.log(float(re.findall(r"crp=([\d.e-]+\d)", lines[0])[0]) * factor)) < 0.8
    assert right == near >= 60
    assert right >= 75 or tail > 1


@pytest.mark.parametrize("kind", ["same", "moved", "heavier", "zeros"])
def test_long_tails_of_one_unit_are_no_other_unit(kind) -> None:
    """Draws on which nothing was tuned: sites alike, or with other medians, or mostly zeros."""
    rng, alarms = np.random.default_rng(1102), 0
    for _ in range(400):
        rows, tail = {}, rng.uniform(0.5, 2.0)
        for site in "abcdef"[: rng.integers(3, 7)]:
            n = int(np.exp(rng.uniform(np.log(20), np.log(1000))))
            x = rng.lognormal(0.5 * rng.normal() if kind == "moved" else 0.0, tail, n)
            x = rng.pareto(rng.uniform(1, 3), n) + 1 if kind == "heavier" else x
            rows[site] = x * (rng.random(n) < rng.uniform(0.1, 0.6)) if kind == "zeros" else x
        alarms += bool(told_of(crp=rows))
    assert alarms <= 4  # of sites whose medians differ by a factor of 8 by themselves


def test_many_columns_in_other_units_are_no_site_of_another_kind() -> None:
    """A site of which all laboratory values are in other units, and one with other patients."""
    rng = np.random.default_rng(1103)
    factors, columns = (1.0, 1.0, 88.42, 38.67, 10.0), {}
    for j, factor in enumerate(factors):
        x = {site: rng.lognormal(0, 0.9, 300) for site in "abc"}
        columns[f"v{j}"] = x | {"c": x["c"] * factor}

    def said() -> list[str]:
        return [re.findall(r"(v\d)=", line)[0] for line in told_of(**columns)]

    assert said() == ["v2", "v3", "v4"]
    columns["v0"]["c"] += 5.0
    assert said() == []


def test_a_low_value_is_odd_only_where_the_others_end_above_0():
    """Of amounts that reach down to 0, the smallest may be any factor below the second."""
    for n in (25, 60, 200):
        amounts = 100 * np.arange(1.0, n + 1) / n
        amounts[0] = amounts[1] / 1000
        assert typing_errors(NumberSample.from_values(amounts)) == []
        heights = np.linspace(150, 200, n)
        heights[3] /= 100
        assert typing_errors(NumberSample.from_values(heights)) == [heights[3]]


def test_columns_in_other_units_are_no_sign_that_others_are_of_another_kind() -> None:
    """Of five columns of a site, four are in other units, each far from the others'."""
    usual = {f"v{j}": dict.fromkeys("abd", (140.0 + j, 20.0)) for j in range(5)}
    columns = {
        name: moments | {"c": (140.0 / factor, 20.0 / factor)}
        for (name, moments), factor in zip(usual.items(), (1.0, *(7.50062,) * 4), strict=True)
    }
    lines = list(unit_warnings(columns, {name: dict.fromkeys("abcd", 300.0) for name in columns}))
    assert [re.findall(r"(v\d)=", line) for line in lines] == [[f"v{j}"] for j in range(1, 5)]


def test_of_two_sites_nobody_knows_which_has_another_unit() -> None:
    x = np.random.default_rng(0).lognormal(0, 1, 500)
    assert told_of(crp={"a": x, "b": 88.42 * x}) == []
    assert len(told_of(crp={"a": x, "b": x[::-1] * 88.42, "c": 1.1 * x})) == 1
    assert told_of(crp={"a": x, "b": x * 88.42, "c": 10 * x}) == []


def test_what_no_unit_explains_is_named_with_what_was_measured() -> None:
    """A column that lies six deviations off at a site whose other columns are as elsewhere."""
    alike = dict.fromkeys("abc", (5.0, 1.0))
    x = {"a": (50.0, 5.0), "b": (51.0, 5.0), "c": (280.0, 15.0)}
    columns = {"x": x, "y": alike, "z": alike}
    counts = {name: dict.fromkeys("abc", 100.0) for name in columns}
    [line] = unit_warnings(columns, counts)
    assert "at c, 50.5 and 5 elsewhere, about 3x+128 of that, as no mixture" in line
    assert line.endswith("say --set sites.c.factors.x=0.333x-42.8")
    assert not list(unit_warnings(columns | {"x": x | {"c": (75.0, 15.0)}}, counts))
    moved = {"a": (5.0, 1.0), "b": (5.0, 1.0), "c": (9.0, 1.0)}
    assert not list(unit_warnings({**columns, "y": moved, "z": moved}, counts))  # other rows
    assert not list(unit_warnings({"x": x}, {"x": counts["x"]}))  # nothing beside it


def test_a_factor_takes_a_shift() -> None:
    rng = np.random.default_rng(0)
    temp = {site: rng.normal(12, 8, 200) for site in ("north", "south", "west")}
    temp["west"] = temp["west"] * 1.8 + 32
    files = [write(s, {"temp": x.round(1), "wind": rng.normal(4, 1, 200)}) for s, x in temp.items()]
    [line] = [each for each in run("check", *files).stderr.splitlines() if each]
    assert "as of degrees Fahrenheit and Celsius" in line
    assert line.endswith("--set sites.west.factors.temp=0.555556x-17.7778")
    option = line.partition("say ")[2].split()
    said = told("check", *files, *option)
    assert not said["warnings"]
    assert abs(said["moments"]["temp"]["west"][0] - 12) < 1
    Path("west.toml").write_text(WEST + '[factors]\ntemp = "0.555556x-17.7778"\n')
    data = SiteFile.load("west.toml").opened(raw=True).load()
    np.testing.assert_allclose(data.X[:, 0], (temp["west"].round(1) - 32) / 1.8, atol=1e-3)


def test_over_a_network_the_same_is_said_from_sums_alone() -> None:
    rng = np.random.default_rng(0)
    columns = (Column("sbp"), Column("crp"), Column("sex", "text", ("F", "M")))
    clients = []
    for site, factor, levels in (("a", 1.0, "FM"), ("b", 1.0, "FM"), ("c", 0.1, "fM")):
        crp = rng.lognormal(1, 1, 300) * factor
        X = np.column_stack([rng.normal(138, 18, 300) * factor, crp, rng.integers(2, size=300)])
        own = (*columns[:2], Column("sex", "text", tuple(levels)))
        clients.append(Client(site, Data(X, columns=own), protection=Groups()))
    report = execute(fit_of(2, prepare=PreprocessingSpec()), LocalEngine(clients))
    tail, unit, spelling = sorted(report.fit_report.warnings, key=len, reverse=True)
    assert "crp' has mean " in tail
    assert tail.endswith("say --set sites.c.factors.crp=10")
    assert unit.endswith("say --set sites.c.factors.sbp=10")
    assert spelling.endswith("seem to be one; say --set codes.sex.f=F")
