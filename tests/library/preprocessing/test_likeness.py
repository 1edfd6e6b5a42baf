"""New rows are asked whether they are like those of the fit."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from typed import run

from fedcluster import FederatedGaussianMixture, FederatedKMeans
from fedcluster.core import Column, Data
from fedcluster.errors import UnlikeRowsWarning
from fedcluster.frames.columns import code_questions
from fedcluster.model import Model
from fedcluster.preprocessing import NumericColumn, PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.comparison import unlike_sites
from fedcluster.preprocessing.likeness import KnownColumns, OwnSums, known_columns
from fedcluster.texts import for_site

Frame = pd.DataFrame
Change = Callable[[Frame], Frame]


def patients(rng: np.random.Generator, n: int) -> Frame:
    """Rows of three kinds of patients."""
    kind = rng.integers(3, size=n)

    def of(means: list[float], spread: float, digits: int = 0) -> np.ndarray:
        values = rng.permutation(means)[kind] + spread * rng.normal(size=n)
        return np.asarray(values.round(digits))

    made = {
        "age": of([30, 50, 72], 7),
        "sex": np.where(rng.random(n) < rng.permutation([0.1, 0.5, 0.9])[kind], 1.0, 2.0),
        "height": of([160, 170, 180], 7),
        "weight": of([62, 78, 95], 8, 1),
        "glucose": of([95, 120, 180], 9),
        "creatinine": np.exp(of([-0.2, 0.2, 0.9], 0.2, 2)).round(2),
        "hba1c": of([5.4, 6.5, 8.4], 0.4, 1),
        "temp": of([36.6, 37.2, 38.4], 0.3, 1),
        "income": np.exp(of([8.0, 8.4, 8.8], 0.4, 3)).round(),
        "answer": np.clip(of([1.8, 3.0, 4.3], 0.6), 1, 5),
    }
    return Frame(made)


def changed(name: str, change: Callable[[pd.Series], Any]) -> Change:
    return lambda rows: rows.assign(**{name: change(rows[name])})


def set_to(name: str, value: float) -> Change:
    """Every twelfth value of a column is another."""
    return changed(name, lambda x: x.where(np.arange(len(x)) % 12 > 0, value))


def times(name: str, factor: float, shift: float = 0.0, digits: int = 1) -> Change:
    return changed(name, lambda x: (x * factor + shift).round(digits))


def exchanged(rows: Frame) -> Frame:
    return rows.rename(columns={"height": "weight", "weight": "height"})


CHANGES: dict[str, tuple[str, Change, str]] = {
    "mmol": ("glucose", times("glucose", 1 / 18.0182), "of glucose.*factors.glucose=18.0182"),
    "umol": ("creatinine", times("creatinine", 88.42), "of creatinine.*=0.0113097"),
    "ifcc": ("hba1c", times("hba1c", 10.929, -23.497, 0), "HbA1c.*=0.0914997x"),
    "months": ("age", times("age", 12), "months and years.*age=0.0833333"),
    "metres": ("height", times("height", 0.01, digits=2), "factors.height=100"),
    "inches": ("height", times("height", 1 / 2.54), "factors.height=2.54"),
    "pounds": ("weight", times("weight", 2.20462), "factors.weight=0.453593"),
    "fahrenheit": ("temp", times("temp", 1.8, 32), "factors.temp=0.555556x-17.7778"),
    "thousands": ("income", times("income", 0.001, digits=2), "factors.income=1000"),
    "sign": ("temp", times("temp", -1), "factors.temp=-1"),
    "shift": ("age", times("age", 1, 1000), "1000 more than that.*factors.age=1x-1000"),
    "log10": ("income", changed("income", lambda x: np.log10(x).round(3)), "take 10..x"),
    "ln": ("glucose", changed("glucose", lambda x: np.log(x).round(3)), "take exp.x"),
    "exchanged": ("height", exchanged, "rename.height=weight --set sites.new.rename.weight=height"),
    "codes": ("sex", times("sex", 1, -1), "holds 0 and 1, and 1 and 2 in the fit.*=1x.1"),
    "other codes": ("sex", times("sex", -1, 2), "holds 0 and 1, and 1 and 2 in the fit.*-1x.2"),
    "-999": ("glucose", set_to("glucose", -999), r"-999 \(8.7%.*missing_values=\[-999\]"),
    "999.9": ("hba1c", set_to("hba1c", 999.9), r"missing_values=\[999.9\]"),
    "99.99": ("hba1c", set_to("hba1c", 99.99), r"missing_values=\[99.99\]"),
    "-1": ("age", set_to("age", -1), r"missing_values=\[-1\]"),
    "9": ("answer", set_to("answer", 9), r"missing_values=\[9\]"),
    "8": ("answer", set_to("answer", 8), r"missing_values=\[8\]"),
    "stuck": ("temp", lambda x: x.assign(temp=36.6), "150 of 150 values are 36.6"),
    "missing": (
        "weight",
        changed("weight", lambda x: x.where(np.arange(len(x)) % 9 == 0)),
        "133 of 150 values are missing",
    ),
}


@pytest.fixture(scope="module")
def drawn() -> list[tuple[Model, Frame]]:
    """Models, and new rows of the same kinds."""
    made = []
    for seed in range(2):
        rows = patients(np.random.default_rng(seed), 750)
        how = PreprocessingSpec(missing="mean")
        fit = FederatedKMeans(3, prepare=how, random_state=0)
        model = Model.from_estimator(fit.fit(rows[:600], sites=np.arange(600) % 3))
        made.append((model, rows[600:].reset_index(drop=True)))
    return made


@pytest.mark.parametrize("kind", CHANGES)
def test_new_rows_of_another_unit_or_code_are_named_with_what_mends_it(kind, drawn) -> None:
    """By options, and in Python, where it makes the column alike."""
    name, change, said = CHANGES[kind]
    for model, rows in drawn:
        lines = model.check({"new": change(rows)}, options=True)
        assert [line for line in lines if line.startswith(f"column {name!r} ")][:1] == [
            line for line in lines if re.search(said, line)
        ][:1]
        assert len(lines) == (2 if kind == "exchanged" else 1), lines
    model, rows = drawn[0]
    new = change(rows)
    told = as_told(model.check(new)[0], new)
    assert told is None if kind in ("stuck", "missing") else model.check(told) == ()


def test_the_options_that_are_said_run_and_restore_the_clusters(drawn, here) -> None:
    model, rows = drawn[0]
    model.save("model.json")
    truth = model.predict(rows)
    for kind, (_, change, _) in CHANGES.items():
        change(rows).to_csv("new.csv", index=False)
        ran = run("predict", "model.json", "new.csv", "--out", "out", "--overwrite")
        said = dict.fromkeys(re.findall(r"--set (?:'[^']*'|\S+)", ran.stderr.replace("\n", " ")))
        assert ran.stderr.startswith("warning: "), kind
        refused = run("predict", "model.json", "new.csv", "--out", "none", "--strict")
        assert refused.exit_code == 2, kind
        assert refused.stderr.endswith("by --strict, nothing was written\n"), refused.stderr
        assert not Path("none").exists(), kind
        if not said:
            continue
        options = shlex.split(" ".join(said))
        again = ("--out", "out", "--overwrite", "--json", "--strict", *options)
        mended = run("predict", "model.json", "new.csv", *again)
        assert mended.exit_code == 0, (kind, options, mended.stderr)
        assert json.loads(mended.stdout)["warnings"] == [], (kind, mended.stderr)
        labels = pd.read_csv(Path("out", "new.csv"))["cluster"].to_numpy()
        known = np.arange(150) % 12 > 0 if "missing" in next(iter(said)) else slice(None)
        assert (labels == truth)[known].mean() >= 0.98, kind


def test_python_warns_once_for_each_column_and_says_what_to_do_there(drawn) -> None:
    model, rows = drawn[0]
    with warnings.catch_warnings(action="error"):
        model.predict(rows)
    with pytest.warns(UnlikeRowsWarning, match=r"multiply it by 18\.0182$") as heard:
        model.predict({"north": rows, "west": CHANGES["mmol"][1](rows)})
    assert [str(each.message)[:12] for each in heard] == ["site 'west',"]


def as_told(line: str, rows: Frame) -> Any:
    """Return rows, or a preparation, after what a warning says; None if that is nothing."""
    name = line.split("'")[1]
    if spec := re.search(r"say (PreprocessingSpec\(.*\))$", line):
        return eval(spec[1], {"PreprocessingSpec": PreprocessingSpec})
    if factor := re.search(r"multiply it by (\S+)$", line):
        return rows.assign(**{name: rows[name] * float(factor[1])})
    if formula := re.search(r"take (\S+) of it$", line):
        written = re.sub(r"(\d)x", r"\1*x", formula[1])
        return rows.assign(**{name: eval(written, {"exp": np.exp, "x": rows[name]})})
    if value := re.search(r"make (\S+) missing$", line):
        return rows.assign(**{name: rows[name].where(rows[name] != float(value[1]))})
    if other := re.search(r"leave '(\w+)' out$", line):
        return rows.drop(columns=other[1])
    both = dict(re.findall(r"rename '(\w+)' to '(\w+)'", line))
    return rows.rename(columns=both) if both else None


FITTED: dict[str, tuple[str, Change, str]] = {
    **{kind: (name, change, "") for kind, (name, change, _) in CHANGES.items()},
    "far": ("hba1c", changed("hba1c", lambda x: x.where(np.arange(len(x)) != 3, 541.0)), "is far"),
    "twice": ("income", lambda rows: rows.assign(income=10.0 * rows.age), ""),
    "half stuck": (
        "temp",
        changed("temp", lambda x: x.where(np.arange(len(x)) % 2 == 0, 36.6)),
        "values are 36.6",
    ),
    "points": ("visits", changed("visits", lambda x: x.where(x < 1000, x / 1000)), "thousands"),
    "answers from 0": ("answer", times("answer", 1, -1), "it holds 0"),
}
"""What a site of three does to its rows, and what all of them do."""


@pytest.mark.parametrize("kind", FITTED)
def test_what_a_fit_says_in_python_makes_the_column_alike(kind) -> None:
    rng, (name, change, words) = np.random.default_rng(12), FITTED[kind]
    every = patients(rng, 900).assign(visits=rng.normal(1600, 600, 900).clip(300).round())
    sites = {s: every[i::3].reset_index(drop=True) for i, s in enumerate(("east", "north", "west"))}
    others = sites if kind == "twice" else ["west"]
    sites |= {site: change(sites[site]) for site in others}

    def said(sites: dict[str, Frame], prepare: PreprocessingSpec) -> list[str]:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            FederatedKMeans(3, random_state=0, prepare=prepare).fit(sites)
        return [str(each.message) for each in heard]

    filled = PreprocessingSpec(missing="mean")
    lines = said(sites, filled)
    assert repr(name) in lines[0]
    assert words in lines[0]
    assert len(lines) == (2 if kind == "exchanged" else 1), lines
    assert not any("--" in line for line in lines)
    told = {site: as_told(lines[0], sites[site]) for site in others}
    if isinstance(told["west"], PreprocessingSpec):
        assert not said(sites, replace(filled, bounds=told["west"].bounds))
    elif told["west"] is not None:
        assert not said(sites | told, filled)
    else:
        assert kind in ("stuck", "half stuck", "missing", "points"), lines


def honest(rng: np.random.Generator) -> tuple[Frame, np.ndarray]:
    """Rows with columns of many shapes, and their subtypes."""
    n, k = int(rng.choice([300, 1500])), int(rng.integers(1, 5))
    kind, age = rng.integers(k, size=n), rng.normal(50, 18, n).clip(1, 99).round()
    rows = {"age": age}
    for name in ("weight", "glucose", "temp", "wind", "sbp", "income", "x1", "x2"):
        own = rng.normal(0, 1.5, k)[kind] + rng.normal(0, 0.5) * (age - 50) / 18
        noise = rng.normal(size=n)
        shapes: list[Any] = [
            lambda own=own, e=noise: rng.uniform(-50, 200) + rng.uniform(1, 30) * (own + e),
            lambda own=own, e=noise: np.exp(rng.uniform(-1, 4) + rng.uniform(0.3, 1.6) * (own + e)),
            lambda own=own: 50 + 5 * (own + rng.standard_t(2, n)),
            lambda own=own, e=noise: np.clip(np.round(3 + own + e), 1, 5),
            lambda own=own, e=noise: (own + e > rng.uniform(-1, 2.5)) + float(rng.integers(2)),
            lambda own=own: rng.poisson(np.exp(own / 2 + rng.uniform(-1, 2))).astype(float),
            lambda e=noise: np.where(rng.random(n) < rng.uniform(0.2, 0.9), 0, np.exp(1 + e)),
        ]
        rows[name] = shapes[rng.integers(len(shapes))]().round(2)
    return Frame(rows), kind


def parts(rows: Frame, kind: np.ndarray, rng: np.random.Generator) -> Iterator[Frame]:
    """Some rows of the same population: any, few, of one subtype, young, or old ones."""
    some, by_age = rng.permutation(len(rows)), np.argsort(rows["age"].to_numpy())
    yield rows.iloc[some[: len(rows) // 3]]
    yield rows.iloc[some[: rng.integers(1, 15)]]
    yield rows[kind == kind[0]]
    yield rows.iloc[by_age[: len(rows) // 8]]
    yield rows.iloc[by_age[-len(rows) // 8 :]]


def test_a_column_without_a_value_in_the_rows_that_are_matched_is_left_alone() -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(50, 5, (4001, 2)).round(1)
    rows[::3, 1] = np.nan
    known = KnownColumns(("a", "b"), np.full((1, 2), 50.0), np.ones(1), np.full(2, 25.0))
    assert list(known.unlike(rows)) == []
    [line] = known.unlike(np.column_stack([rows[:, 0] / 100, rows[:, 1]]))
    assert line.endswith("say --set sites.new.factors.a=100")


def test_honest_new_rows_of_other_shares_are_like_those_of_the_fit() -> None:
    said, columns = [], 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows, kind = honest(rng)
        known = rng.random(len(rows)) < 0.7
        X, scale = rows[known].to_numpy(), str(rng.choice(["standard", "none"]))
        shift, spread = (X.mean(0), X.std(0)) if scale == "standard" else (0 * X[0], 0 * X[0] + 1)
        spread = np.where(spread > 0, spread, 1.0)
        found = KMeans(int(rng.integers(2, 7)), n_init=1, random_state=0).fit((X - shift) / spread)
        names = tuple(map(str, rows))
        how = zip(names, shift, spread, strict=True)
        columns_of = (NumericColumn(name, shift=float(a), scale=float(b)) for name, a, b in how)
        model = Model(
            found.cluster_centers_,
            np.bincount(found.labels_).astype(float),
            names,
            {"objective": "inertia", "prepare": {"scale": scale}},
            inertia=float(found.inertia_),
            preprocessor=Preprocessor(tuple(columns_of), "drop") if scale == "standard" else None,
        )
        for part in parts(rows[~known], kind[~known], rng):
            columns += len(rows.columns)
            said += [(seed, len(part), line) for line in model.check(part)]
    assert len(said) * 200 <= columns, said[:5]


def test_a_mixture_and_rows_without_a_preparation_are_known_too() -> None:
    rows = patients(np.random.default_rng(5), 600)[["glucose", "weight"]]
    fit = FederatedGaussianMixture(3, random_state=0).fit([rows[:200], rows[200:400]])
    assert Model.from_estimator(fit).check(rows[400:]) == ()
    [line] = Model.from_estimator(fit).check(CHANGES["mmol"][1](rows[400:]))
    assert "column 'glucose' has mean 7.31" in line


def as_data(rows: Any, names: Any = None) -> Data:
    """Rows of numbers as a site holds them."""
    columns = tuple(map(Column, map(str, rows if names is None else names)))
    return Data(np.asarray(rows, float), columns=columns)


def test_answers_that_all_begin_with_0_at_one_site_are_renumbered(here) -> None:
    rng = np.random.default_rng(3)
    for site in "abc":
        kind = rng.integers(2, size=100)
        means = np.where((kind[:, None] + np.arange(5)) % 2, 1.7, 4.4)
        answers = np.clip(np.round(rng.normal(means, 0.7)), 1, 5).astype(int) - (site == "c")
        Frame(answers, columns=[f"q{j}" for j in range(5)]).to_csv(f"{site}.csv", index=False)
    lines = run("check", "a.csv", "b.csv", "c.csv").stderr.splitlines()
    assert [line.rpartition(" --set ")[2] for line in lines] == [
        f"sites.c.factors.q{j}=1x+1" for j in range(5)
    ]


def test_what_is_written_otherwise_is_not_exchanged_nor_what_others_hold_mistyped() -> None:
    rng, names = np.random.default_rng(0), ("age", "other", "near", "far")
    sites = {}
    for site, (mean, far) in {"a": (30, 50), "b": (30, 50), "c": (60, 5)}.items():
        X = rng.normal([mean, 90 - mean, 50, far], [9, 9, 5, far / 10], (200, 4)).round(2)
        X[:, 0] = X[:, 0].round()
        sites[site] = as_data(X, names)
    assert list(unlike_sites(sites)) == []
    sites["a"].X[0, 2:] = [521.0, 5.21]
    [line] = unlike_sites(sites)
    assert line.startswith("column 'near' at a: 521 is far from the others, ")
    assert list(unlike_sites(sites, bounds={"near": (0, 100)})) == []
    assert list(unlike_sites(sites, named=["near"])) == []
    alone = list(unlike_sites({"a": sites["a"]}))
    assert [each.partition(" is far")[0] for each in alone] == [
        "column 'near' at a: 521",
        "column 'far' at a: 5.21",
    ]
    whole = {site: as_data(x.X[:, :3].round(), names[:3]) for site, x in sites.items()}
    assert any("rename.age=other" in each for each in unlike_sites(whole))


def test_codes_are_paired_by_other_columns_and_never_by_the_alphabet() -> None:
    rng, sites = np.random.default_rng(1), {}
    words, answers = ("mild", "moderate", "none", "severe"), ("agree", "disagree", "neutral")
    for site in "abc":
        kind, answer = rng.integers(4, size=120), rng.integers(3, size=120)
        coded = np.array([2, 3, 1, 4])[kind] if site == "c" else kind
        columns = [Column("x"), Column("grade", "text", words), Column("q", "text", answers)]
        if site == "c":
            columns[1:] = [Column("grade"), Column("q")]
        X = np.column_stack([np.array([1, 2, 0, 3])[kind] + rng.normal(size=120), coded, answer])
        sites[site] = Data(X, columns=tuple(columns))
    asked = code_questions(sites)
    pairs = '{1 = "none", 2 = "mild", 3 = "moderate", 4 = "severe"}'
    assert asked["grade"].endswith(f"say --set 'codes.grade={pairs}'")
    assert asked["q"].endswith("say which is which by codes.q of a study file")
    yes = [Column("smoker", "text", ("Ja", "Nein"))]
    smokers = {"a": Data(np.arange(40.0)[:, None] % 2, columns=tuple(yes))}
    smokers["b"] = Data(np.arange(40.0)[:, None] % 2, columns=(Column("smoker"),))
    assert 'codes.smoker={0 = "Nein", 1 = "Ja"}' in code_questions(smokers)["smoker"]


def test_weights_of_a_survey_are_asked_about_and_the_option_works(here) -> None:
    rows = patients(np.random.default_rng(2), 120)[["age", "weight", "height"]]
    rows["pweight"] = np.linspace(1.0, 9.0, 120).round(2)
    rows.to_csv("a.csv", index=False)
    rows[::-1].to_csv("b.csv", index=False)
    [line] = [x for x in run("check", "a.csv", "b.csv").stderr.splitlines() if "pweight" in x]
    assert line.startswith("warning: column 'pweight' may hold the weights of rows")
    option = shlex.split(re.search(r"--set \S+(?=,)", line)[0])  # type: ignore[index]
    again = run("check", "a.csv", "b.csv", *option)
    assert (again.exit_code, "pweight" in again.stderr) == (0, False), again.stderr


BY_THE_MODEL = (
    *("mmol", "umol", "months", "metres", "pounds", "fahrenheit", "sign", "shift", "exchanged"),
    *("codes", "other codes", "-999", "99.99", "stuck", "missing"),
)
"""Kinds of changes that a site finds from sums over all sites alone."""


def fitted(frames: dict[str, Frame], k: int = 3) -> tuple[Model, dict[str, Data]]:
    """A model of sites, and their rows as these hold them."""
    with warnings.catch_warnings(action="ignore"):
        fit = FederatedKMeans(k, prepare=PreprocessingSpec(missing="mean"), random_state=0)
        model = Model.from_estimator(fit.fit(frames))
    return model, {s: as_data(own, model.columns) for s, own in frames.items()}


@pytest.mark.parametrize("kind", BY_THE_MODEL)
def test_a_site_finds_by_the_model_how_it_differs_from_the_others(kind) -> None:
    name, change, said = CHANGES[kind]
    rows = patients(np.random.default_rng(len(kind)), 900)
    frames = {site: rows[i::3].reset_index(drop=True) for i, site in enumerate(("a", "b", "new"))}
    model, held = fitted(frames | {"new": change(frames["new"])[list(rows)]})
    found = {s: model.beside_others([d.take(slice(99)), d.take(slice(99, None))], s)
             for s, d in held.items()}  # fmt: skip
    assert (*found["a"], *found["b"]) == ()
    names = {line.split("'")[1] for line in found["new"]}
    assert names == ({"height", "weight"} if kind == "exchanged" else {name}), found["new"]
    if "factors" in said or "rename" in said:
        assert re.search(said.replace("in the fit", "in the other sites"), found["new"][0])
        line = for_site(found["new"][0])
        assert re.search(rf"write {name} = .* under \[(factors|rename)\] in its file", line)


def test_means_of_the_other_sites_follow_from_those_of_all() -> None:
    rows = patients(np.random.default_rng(3), 300)
    frames = {"a": rows[:100], "b": rows[100:180], "c": rows[180:]}
    model, held = fitted(frames)
    own = OwnSums.of(model, [held["c"].take(slice(50)), held["c"].take(slice(50, None))])
    known = known_columns(model, own)
    assert known is not None
    others = rows[:180].to_numpy(float)
    labels = model.predict(others)
    means = [others[labels == j].mean(axis=0) for j in range(3)]
    np.testing.assert_allclose(known.centers, means, rtol=1e-9)
    np.testing.assert_allclose(known.weights, np.bincount(labels), rtol=1e-9)
    within = ((others - np.array(means)[labels]) ** 2).mean(axis=0)
    np.testing.assert_allclose(known.within, within, rtol=1e-6)
    assert known.levels == {"sex": (1.0, 2.0)}


def test_of_many_rows_some_are_kept_and_a_site_alone_is_compared_with_none() -> None:
    rows = patients(np.random.default_rng(2), 30_000)
    model, held = fitted({"a": rows})
    own = OwnSums.of(model, [held["a"]])
    assert 2000 <= sum(map(len, own.rows)) <= 8000
    np.testing.assert_allclose(own.weights, model.weights)
    assert model.beside_others([held["a"]], "a") == model.beside_others([], "a") == ()


@pytest.mark.thorough
def test_honest_sites_are_like_the_others() -> None:
    said, columns = [], 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows, kind = honest(rng)
        chance = rng.dirichlet([2.0] * 3, size=kind.max() + 1)[kind]
        site = (rng.random((len(rows), 1)) > chance.cumsum(axis=1)).sum(axis=1)
        frames = {str(s): rows[site == s] for s in range(3) if (site == s).sum() > 20}
        model, held = fitted(frames, k=int(rng.integers(2, 6)))
        said += [x for s, d in held.items() for x in model.beside_others([d], s)]
        columns += rows.shape[1]
    assert len(said) <= columns / 200, said
