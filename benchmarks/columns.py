"""How often a column that one site exports otherwise is named, and how often an honest one is.

    .venv/bin/python benchmarks/columns.py [--draws 3] [--honest 50] [--kinds TEXT] [--show]
        [--network]

Three sites of four domains (a clinic, a weather service, shops, a survey) hold the same columns, in
honest shares of the same kinds of rows. Of each kind, one site then exports a column as people do:
in another unit, recoded, with a code for missing values, and so on. Counted is whether `check`
names the column with the right explanation, with another one, or not at all; and, of honest
partitions, in how many columns something is said. Draws are of seeds on which nothing was tuned
unless --seed says otherwise.
"""

from __future__ import annotations

import argparse
import re
import shlex
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.random import Generator
from typer.testing import CliRunner

from fedcluster.engines import LocalEngine
from fedcluster.errors import FewGroupsWarning, InputError, SiteError
from fedcluster.jobs import execute, fit_of
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.cli import app
from fedcluster_app.report.job_files import write_job
from fedcluster_app.site.file import SiteFile

Frame = pd.DataFrame
Change = Callable[[Frame, Generator], Frame]

SITES = ("east", "north", "south")


# Domains: rows of kinds 0, 1, ...


def clinic(kinds: np.ndarray, rng: Generator) -> Frame:
    """Patients: healthy, diabetic, with weak kidneys."""
    n = len(kinds)

    def of(means: list[float], spread: float) -> np.ndarray:
        return rng.normal(np.array(means)[kinds], spread)

    male = rng.random(n) < np.array([0.45, 0.6, 0.5])[kinds]
    height = np.where(male, rng.normal(178, 7, n), rng.normal(165, 6, n))
    bmi = of([24, 31, 27], 3.2)
    admitted = np.datetime64("2022-01-01") + rng.integers(0, 900, n)
    age = of([46, 62, 70], 9).clip(18, 99)
    born = admitted - (age * 365.25).astype(int)
    return pd.DataFrame(
        {
            "age": age.round().astype(int),
            "sex": np.where(male, 1, 2),
            "height": height.round(),
            "weight": (bmi * (height / 100) ** 2).round(1),
            "sbp": of([121, 139, 150], 11).round(),
            "dbp": of([76, 84, 88], 8).round(),
            "glucose": of([93, 168, 104], 14).round(),
            "hba1c": of([5.4, 7.8, 5.8], 0.5).round(1),
            "creatinine": np.exp(
                rng.normal(np.log(np.array([0.85, 0.95, 2.2])[kinds]), 0.18)
            ).round(2),
            "chol": of([190, 214, 201], 30).round(),
            "los": (1 + rng.poisson(np.array([3, 6, 8])[kinds])).astype(int),
            "smoker": np.where(rng.random(n) < np.array([0.2, 0.4, 0.3])[kinds], "yes", "no"),
            "ward": np.array(["medicine", "diabetes", "nephrology"])[
                np.where(rng.random(n) < 0.85, kinds, rng.integers(0, 3, n))
            ],
            "admitted": admitted.astype("datetime64[D]").astype(str),
            "born": born.astype("datetime64[D]").astype(str),
        }
    )


def weather(kinds: np.ndarray, rng: Generator) -> Frame:
    """Days: winter, summer, storms."""
    n = len(kinds)
    temp = rng.normal(np.array([1, 21, 9])[kinds], 4.5)
    return pd.DataFrame(
        {
            "temp": temp.round(1),
            "tmax": (temp + 3 + rng.gamma(4, 1, n)).round(1),
            "humidity": rng.normal(np.array([84, 55, 78])[kinds], 9).clip(5, 100).round(),
            "wind": rng.gamma(4, np.array([0.9, 0.7, 2.6])[kinds]).round(1),
            "pressure": rng.normal(np.array([1018, 1015, 998])[kinds], 6).round(1),
            "rain": np.where(
                rng.random(n) < 0.55, 0.0, rng.gamma(0.8, np.array([3, 4, 14])[kinds])
            ).round(1),
            "radiation": rng.normal(np.array([60, 240, 70])[kinds], 25).clip(5).round(),
        }
    )


def shops(kinds: np.ndarray, rng: Generator) -> Frame:
    """Customers: rare, regular, large."""
    n = len(kinds)
    orders = 1 + rng.poisson(np.array([1, 7, 15])[kinds])
    return pd.DataFrame(
        {
            "orders": orders,
            "revenue": (orders * rng.lognormal(np.log(np.array([28, 40, 160])[kinds]), 0.4)).round(
                2
            ),
            "discount": rng.beta(2, np.array([30, 12, 6])[kinds]).round(3),
            "visits": rng.normal(np.array([1300, 2400, 3900])[kinds], 420)
            .clip(400)
            .round()
            .astype(int),
            "days": rng.gamma(3, np.array([40, 12, 9])[kinds]).round().astype(int),
            "basket": rng.normal(np.array([2.4, 4.1, 7.8])[kinds], 0.8).clip(1).round(1),
            "member": rng.binomial(1, np.array([0.1, 0.6, 0.9])[kinds]),
            "channel": np.array(["web", "store", "phone"])[
                np.where(rng.random(n) < 0.8, kinds, rng.integers(0, 3, n))
            ],
        }
    )


def survey(kinds: np.ndarray, rng: Generator) -> Frame:
    """Persons with answers 1 to 5."""
    means = np.array(
        [
            [4.3, 1.8, 3.0, 4.0, 2.2, 3.1],
            [1.9, 4.2, 3.4, 2.1, 4.4, 3.3],
            [3.2, 3.0, 1.6, 3.9, 3.8, 4.5],
        ]
    )
    answers = rng.normal(means[kinds], 0.8).round().clip(1, 5).astype(int)
    frame = pd.DataFrame(answers, columns=[f"q{j + 1}" for j in range(6)])
    frame["age"] = rng.normal(np.array([35, 52, 44])[kinds], 10).clip(18, 90).round().astype(int)
    frame["income"] = (
        rng.lognormal(np.log(np.array([24_000, 39_000, 52_000])[kinds]), 0.35).round(-2).astype(int)
    )
    return frame


DOMAINS = {"clinic": clinic, "weather": weather, "shops": shops, "survey": survey}


def sites_of(domain: str, rng: Generator, n: int = 150, evenness: float = 6.0) -> dict[str, Frame]:
    """Draw rows of three sites, each with shares of its own."""
    sites = {}
    for site in SITES:
        m = int(n * rng.uniform(0.7, 1.4))
        kinds = rng.choice(3, m, p=rng.dirichlet([evenness] * 3))
        sites[site] = DOMAINS[domain](kinds, rng)
    return sites


# Kinds of mistakes


@dataclass(frozen=True)
class Kind:
    """What one site does, and what should be said.

    Parameters
    ----------
    name, domain, column : str
        The kind; the domain; the column that should be named.
    change : callable
        Returns the changed frame of one site.
    right : str
        A pattern of the right explanation or remedy.
    """

    name: str
    domain: str
    column: str
    change: Change
    right: str


def scaled(column: str, factor: float, shift: float = 0.0, digits: int = 1) -> Change:
    return lambda f, _: f.assign(**{column: (f[column] * factor + shift).round(digits)})


def mapped(column: str, to: dict[object, object]) -> Change:
    return lambda f, _: f.assign(**{column: f[column].map(to)})


def some(column: str, share: float, value: object) -> Change:
    def change(f: Frame, rng: Generator) -> Frame:
        cells = f[column].astype(object)
        cells[rng.random(len(f)) < share] = value
        return f.assign(**{column: cells})

    return change


def written(column: str, how: Callable[[object], str]) -> Change:
    return lambda f, _: f.assign(**{column: [how(value) for value in f[column]]})


def function(column: str, how: Callable[[np.ndarray], np.ndarray], digits: int = 3) -> Change:
    return lambda f, _: f.assign(**{column: np.round(how(f[column].to_numpy(float)), digits)})


def exchanged(one: str, other: str) -> Change:
    return lambda f, _: f.rename(columns={one: other, other: one})


def stuck(column: str, share: float) -> Change:
    def change(f: Frame, rng: Generator) -> Frame:
        cells = f[column].to_numpy(float).copy()
        start = int(len(f) * (1 - share) * rng.random())
        cells[start : start + int(len(f) * share)] = cells[start]
        return f.assign(**{column: cells})

    return change


def lost_points(column: str, share: float) -> Change:
    def change(f: Frame, rng: Generator) -> Frame:
        x = f[column].to_numpy(float).copy()
        hit = rng.random(len(x)) < share
        x[hit] *= 10
        return f.assign(**{column: x.round(1)})

    return change


def mistyped(column: str) -> Change:
    def change(f: Frame, rng: Generator) -> Frame:
        x = f[column].to_numpy(float).copy()
        x[rng.integers(len(x))] *= 100
        return f.assign(**{column: x})

    return change


def days(column: str, pattern: str) -> Change:
    return lambda f, _: f.assign(**{column: pd.to_datetime(f[column]).dt.strftime(pattern)})


def serial(column: str) -> Change:
    return lambda f, _: f.assign(
        **{column: (pd.to_datetime(f[column]) - pd.Timestamp("1899-12-30")).dt.days}
    )


def mean_filled(column: str, share: float) -> Change:
    def change(f: Frame, rng: Generator) -> Frame:
        x = f[column].to_numpy(float).copy()
        x[rng.random(len(x)) < share] = round(x.mean(), 4)
        return f.assign(**{column: x})

    return change


def half_empty(f: Frame, rng: Generator) -> Frame:
    f = f.astype(object).copy()
    f.loc[rng.random(len(f)) < 0.3, list(f)[1:]] = np.nan
    return f


def standardised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / x.std()


def ranged(x: np.ndarray) -> np.ndarray:
    return (x - x.min()) / np.ptp(x)


def below(x: np.ndarray) -> np.ndarray:
    return np.roll(x, 1)


def ranks(x: np.ndarray) -> np.ndarray:
    return pd.Series(x).rank().to_numpy()


KINDS = [
    # another unit
    Kind("glucose in mmol/l", "clinic", "glucose", scaled("glucose", 1 / 18.0182), "glucose=18.0"),
    Kind(
        "creatinine in µmol/l",
        "clinic",
        "creatinine",
        scaled("creatinine", 88.42, digits=0),
        "creatinine=0.0113",
    ),
    Kind("cholesterol in mmol/l", "clinic", "chol", scaled("chol", 1 / 38.67), "chol=38.67"),
    Kind("height in m", "clinic", "height", scaled("height", 0.01, digits=2), "height=100"),
    Kind("height in inches", "clinic", "height", scaled("height", 1 / 2.54), "height=2.54"),
    Kind(
        "weight in pounds", "clinic", "weight", scaled("weight", 2.20462, digits=0), "weight=0.4535"
    ),
    Kind("weight in g", "clinic", "weight", scaled("weight", 1000, digits=0), "weight=0.001"),
    Kind("age in months", "clinic", "age", scaled("age", 12, 5, 0), "age=0.083"),
    Kind(
        "birth year for age",
        "clinic",
        "age",
        lambda f, _: f.assign(age=2023 - f.age),
        "202[1-5]",
    ),
    Kind("sbp in kPa", "clinic", "sbp", scaled("sbp", 1 / 7.50062), "sbp=7.5"),
    Kind(
        "HbA1c in mmol/mol",
        "clinic",
        "hba1c",
        scaled("hba1c", 10.929, -23.497, 0),
        r"hba1c=0\.0915|0.091499",
    ),
    Kind("stay in hours", "clinic", "los", scaled("los", 24, 3, 0), "los=0.0416"),
    Kind("temperature in °F", "weather", "temp", scaled("temp", 1.8, 32), r"temp=0.5555"),
    Kind("temperature in K", "weather", "temp", scaled("temp", 1, 273.15), r"temp=1x-273"),
    Kind("wind in km/h", "weather", "wind", scaled("wind", 3.6), "wind=0.277"),
    Kind("wind in knots", "weather", "wind", scaled("wind", 1.94384), "wind=0.514"),
    Kind("wind in mph", "weather", "wind", scaled("wind", 2.23694), "wind=0.447"),
    Kind(
        "pressure in kPa", "weather", "pressure", scaled("pressure", 0.1, digits=2), "pressure=10"
    ),
    Kind(
        "pressure in inHg",
        "weather",
        "pressure",
        scaled("pressure", 1 / 33.8639, digits=2),
        "pressure=33.86",
    ),
    Kind(
        "pressure as anomaly",
        "weather",
        "pressure",
        scaled("pressure", 1, -1013.25),
        "1013|pressure=1x",
    ),
    Kind("rain in inches", "weather", "rain", scaled("rain", 1 / 25.4, digits=2), "rain=25.4"),
    Kind("revenue in cents", "shops", "revenue", scaled("revenue", 100, digits=0), "revenue=0.01"),
    Kind(
        "revenue in thousands",
        "shops",
        "revenue",
        scaled("revenue", 0.001, digits=3),
        "revenue=1000",
    ),
    Kind("discount in percent", "shops", "discount", scaled("discount", 100), "discount=0.01"),
    Kind("days as weeks", "shops", "days", scaled("days", 1 / 7), "days=7"),
    Kind("income by month", "survey", "income", scaled("income", 1 / 12, digits=0), "income=12"),
    Kind("income in thousands", "survey", "income", scaled("income", 0.001), "income=1000"),
    # recoded
    Kind("sex 0/1 for 1/2", "clinic", "sex", mapped("sex", {1: 1, 2: 0}), "sex="),
    Kind("sex 0/1 for 1/2, other order", "clinic", "sex", mapped("sex", {1: 0, 2: 1}), "sex="),
    Kind(
        "sex 1/2 reversed", "clinic", "sex", mapped("sex", {1: 2, 2: 1}), "sex=|reversed|exchanged"
    ),
    Kind("sex as letters", "clinic", "sex", mapped("sex", {1: "M", 2: "F"}), "codes|correct"),
    Kind(
        "answers 0 to 4",
        "survey",
        "q2",
        mapped("q2", dict(zip(range(1, 6), range(5), strict=True))),
        "q2=1x",
    ),
    Kind(
        "answers reversed",
        "survey",
        "q2",
        lambda f, _: f.assign(q2=6 - f.q2),
        'q2=-1x|q2="-1x|reversed',
    ),
    Kind(
        "answers 1 to 7",
        "survey",
        "q5",
        lambda f, _: f.assign(q5=(f.q5 * 1.5 - 0.5).round().astype(int)),
        "holds",
    ),
    Kind("answers 10 to 50", "survey", "q3", scaled("q3", 10, digits=0), "q3=0.1|holds"),
    Kind("member 1/2 for 0/1", "shops", "member", mapped("member", {0: 2, 1: 1}), "member="),
    Kind(
        "member yes/no", "shops", "member", mapped("member", {0: "no", 1: "yes"}), "codes|correct"
    ),
    Kind(
        "smoker ja/nein", "clinic", "smoker", mapped("smoker", {"yes": "ja", "no": "nein"}), "codes"
    ),
    Kind(
        "ward in another language",
        "clinic",
        "ward",
        mapped("ward", {"medicine": "Innere", "diabetes": "Diabetes", "nephrology": "Nieren"}),
        "ward",
    ),
    Kind(
        "ward as numbers",
        "clinic",
        "ward",
        mapped("ward", {"medicine": 1, "diabetes": 2, "nephrology": 3}),
        "ward",
    ),
    Kind(
        "channel with capital letters",
        "shops",
        "channel",
        mapped("channel", {"web": "WEB", "store": "STORE", "phone": "PHONE"}),
        "codes|is taken for",
    ),
    # exchanged, transformed
    Kind(
        "height and weight exchanged", "clinic", "height", exchanged("height", "weight"), "rename"
    ),
    Kind("sbp and dbp exchanged", "clinic", "sbp", exchanged("sbp", "dbp"), "rename"),
    Kind("q1 and q2 exchanged", "survey", "q1", exchanged("q1", "q2"), "rename|exchanged"),
    Kind("changed sign", "weather", "temp", scaled("temp", -1), "temp=-1|sign"),
    Kind("sign of wind", "weather", "wind", scaled("wind", -1), "wind=-1|sign"),
    Kind(
        "log10 of revenue",
        "shops",
        "revenue",
        function("revenue", np.log10),
        "logarithms to base 10",
    ),
    Kind(
        "log of creatinine",
        "clinic",
        "creatinine",
        function("creatinine", np.log),
        "natural logarithms",
    ),
    Kind("log2 of glucose", "clinic", "glucose", function("glucose", np.log2), "base 2|logarithm"),
    Kind(
        "standardised glucose",
        "clinic",
        "glucose",
        function("glucose", standardised),
        "standard|mean 0",
    ),
    Kind(
        "visits from 0 to 1",
        "shops",
        "visits",
        function("visits", ranged),
        "from 0 to 1|0 and 1|scaled",
    ),
    Kind("sbp as ranks", "clinic", "sbp", function("sbp", ranks), "rank|unlike"),
    Kind(
        "square root of radiation",
        "weather",
        "radiation",
        function("radiation", np.sqrt),
        "square root|unlike",
    ),
    Kind("lost decimal points", "weather", "temp", scaled("temp", 10, digits=0), "temp=0.1"),
    Kind(
        "points lost in a tenth", "clinic", "weight", lost_points("weight", 0.1), "unlike|far from"
    ),
    Kind("one value mistyped", "clinic", "height", mistyped("height"), "far from|bounds"),
    Kind(
        "points for thousands",
        "shops",
        "visits",
        written("visits", lambda v: f"{v:,}".replace(",", ".")),
        "thousands",
    ),
    Kind("stuck for half", "weather", "humidity", stuck("humidity", 0.5), "values are"),
    Kind("stuck for a fifth", "weather", "pressure", stuck("pressure", 0.2), "values are"),
    Kind("stuck always", "weather", "pressure", stuck("pressure", 1.0), "values are|unlike"),
    Kind("a third filled with the mean", "clinic", "chol", mean_filled("chol", 0.35), "values are"),
    # codes for missing values
    Kind("-999", "clinic", "chol", some("chol", 0.06, -999), "missing"),
    Kind("999", "clinic", "age", some("age", 0.04, 999), "missing"),
    Kind("99 of ages", "clinic", "age", some("age", 0.15, 999), "missing"),
    Kind("0 of blood pressure", "clinic", "sbp", some("sbp", 0.05, 0), "missing"),
    Kind("0 of glucose", "clinic", "glucose", some("glucose", 0.1, 0), "missing"),
    Kind("-1 of orders", "shops", "orders", some("orders", 0.05, -1), "missing"),
    Kind("-9 of answers", "survey", "q4", some("q4", 0.06, -9), "missing"),
    Kind("9 of answers", "survey", "q4", some("q4", 0.06, 9), "missing"),
    Kind("0 of answers", "survey", "q4", some("q4", 0.08, 0), "missing|holds"),
    Kind("6 of answers", "survey", "q4", some("q4", 0.08, 6), "missing|holds"),
    Kind("9999 of radiation", "weather", "radiation", some("radiation", 0.05, 9999), "missing"),
    Kind("99.9 of rain", "weather", "rain", some("rain", 0.05, 99.9), "missing"),
    Kind(
        "32767 of pressure",
        "weather",
        "pressure",
        some("pressure", 0.04, 32767),
        "missing|far from",
    ),
    Kind("1e20 of wind", "weather", "wind", some("wind", 0.04, 1e20), "missing|unlike|far from"),
    Kind("-9999.0 of temp", "weather", "temp", some("temp", 0.03, -9999.0), "missing"),
    Kind("98 % missing", "clinic", "chol", some("chol", 0.98, np.nan), "missing"),
    Kind("rows half empty", "clinic", "", half_empty, "lack more than half"),
    # dates
    Kind(
        "days and months exchanged", "clinic", "admitted", days("admitted", "%m/%d/%Y"), "admitted"
    ),
    Kind("dates as numbers of a spreadsheet", "clinic", "admitted", serial("admitted"), "admitted"),
    Kind("years with two digits", "clinic", "born", days("born", "%d.%m.%y"), "born"),
]


def everywhere(name: str, domain: str, column: str, change: Change, right: str) -> Kind:
    """A kind of which all sites do the same."""
    return Kind(f"all: {name}", domain, column, change, right)


def slashed(f: Frame, _: Generator) -> Frame:
    both = [f"{a:.0f}/{b:.0f}" for a, b in zip(f.sbp, f.dbp, strict=True)]
    return f.drop(columns=["sbp", "dbp"]).assign(bp=both)


def weighted(f: Frame, rng: Generator) -> Frame:
    return f.assign(pweight=rng.lognormal(6, 0.8, len(f)).round(2))


def minutes(f: Frame, rng: Generator) -> Frame:
    return f.assign(op_time=[f"{v // 60:02d}:{v % 60:02d}" for v in rng.integers(20, 240, len(f))])


def months(f: Frame, rng: Generator) -> Frame:
    return f.assign(month=[f"2023-{m:02d}" for m in rng.integers(1, 13, len(f))])


def scientific(f: Frame, rng: Generator) -> Frame:
    return f.assign(case=[f"{v:.5E}" for v in rng.integers(10**11, 10**12, len(f))])


def pointed(f: Frame, rng: Generator) -> Frame:
    return f.assign(ward=rng.integers(1, 5, len(f)).astype(float))


def numbered(f: Frame, _: Generator) -> Frame:
    f = f.copy()
    f.insert(0, "Unnamed: 0", range(len(f)))
    return f


def summed(f: Frame, _: Generator) -> Frame:
    return f.assign(total=f.q1 + f.q2 + f.q3 + f.q4 + f.q5 + f.q6)


def bulky(f: Frame, _: Generator) -> Frame:
    return f.assign(bmi=(f.weight / (f.height / 100) ** 2).round(1))


def doubled(f: Frame, rng: Generator) -> Frame:
    return pd.concat([f, f.sample(frac=0.3, random_state=int(rng.integers(1 << 30)))])


KINDS += [
    everywhere("120/80", "clinic", "bp", slashed, "two numbers"),
    everywhere("survey weights", "survey", "pweight", weighted, "weight_column"),
    everywhere("hours and minutes", "clinic", "op_time", minutes, "op_time"),
    everywhere("year and month", "shops", "month", months, "month"),
    everywhere("keys in scientific notation", "shops", "case", scientific, "case"),
    everywhere("wards as 1.0 to 4.0", "shops", "ward", pointed, "ward"),
    everywhere("an index without a name", "weather", "Unnamed: 0", numbered, "counts|key"),
    everywhere("a total", "survey", "total", summed, "is the sum of"),
    everywhere("doubled rows", "clinic", "", doubled, "repeat"),
    everywhere("years with two digits", "clinic", "born", days("born", "%d.%m.%y"), "born"),
]


KINDS += [  # moved without the rest of their rows
    Kind("sbp sorted alone", "clinic", "sbp", function("sbp", np.sort), "sorted or moved"),
    Kind("visits sorted alone", "shops", "visits", function("visits", np.sort), "sorted or moved"),
    Kind("glucose a row lower", "clinic", "glucose", function("glucose", below), "sorted or moved"),
    Kind("temp a row lower", "weather", "temp", function("temp", below), "sorted or moved"),
    Kind("q2 a row lower", "survey", "q2", function("q2", below), "sorted or moved"),
]


def planted(kind: Kind, rng: Generator) -> dict[str, Frame]:
    """Draw the sites of a kind."""
    sites = sites_of(kind.domain, rng)
    for site in SITES if kind.name.startswith("all:") else SITES[2:]:
        sites[site] = kind.change(sites[site], rng)
    return sites


def said(sites: dict[str, Frame], *options: str) -> list[str]:
    """Return the lines that `check` says of files of the sites."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{site}.csv") for site in sites]
        for path, frame in zip(paths, sites.values(), strict=True):
            frame.to_csv(path, index=False)
        ran = CliRunner().invoke(app, ["check", *map(str, paths), *options])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    lines = (ran.stderr + ran.stdout.replace("Left out:", "\nLeft out:")).splitlines()
    starts = ("warning:", "error:", "note:", "Left out", "Taken as", "Read")
    return [line for line in lines if line.startswith(starts)]


FEDERATION = """[federation]
coordinator = "127.0.0.1:1"
certificate = "system"
key = "key"
"""


def said_over_a_network(sites: dict[str, Frame]) -> list[str]:
    """Return what each site says of its file, a fit of sums alone, and then each site by the model.

    A site sees its own rows and the model, and the coordinator sums over groups of five rows.
    """
    lines = [line for site, frame in sites.items() for line in said({site: frame})]
    with tempfile.TemporaryDirectory() as name:
        folder, own = Path(name), []
        for site, frame in sites.items():
            (folder / site).mkdir()
            frame.to_csv(folder / site / "rows.csv", index=False)
            file = folder / site / "site.toml"
            file.write_text(f'name = "{site}"\n[source]\npath = "rows.csv"\n{FEDERATION}')
            own.append(SiteFile.load(file))
        prepare = PreprocessingSpec(missing="mean")
        engine = LocalEngine([each.grouped_client() for each in own])
        try:
            report = execute(fit_of(3, prepare=prepare), engine)
        except (InputError, SiteError) as error:
            return [*lines, f"error: {error}"]
        write_job(folder, report)
        model = Model.load(folder / "model.json")
        lines += [f"warning: {line}" for line in report.fit_report.doubts]
        for each in own:
            chunks = each.opened(model.columns, raw=True).chunks()
            lines += [f"warning: {line}" for line in model.beside_others(chunks, each.name)]
    return lines


def verdict(kind: Kind, lines: list[str]) -> str:
    """Return whether what is said is right, names the column, or is silent."""
    everywhere = kind.name.startswith("all:")
    lines = [line for line in lines if everywhere or line.startswith(("warning", "error", "note"))]
    named = rf"(?<!\w){re.escape(kind.column)}(?!\w)"
    about = [line for line in lines if re.search(named, line)]
    # of several units that fit alike, each is named with its factor, and none is proposed
    right = (
        kind.right.replace(f"{kind.column}=", rf"(?:{kind.column}=|\()")
        if kind.column
        else kind.right
    )
    if any(re.search(right, line) for line in about):
        return "right"
    return "named" if about else "SILENT"


def remedies(kind: Kind, lines: list[str]) -> list[list[str]]:
    """Return the options that lines about the column of a kind propose."""
    about = [line for line in lines if repr(kind.column) in line and " say --set " in line]
    return [shlex.split(re.findall(r" say (--set .*?)(?:, or | where |$)", x)[-1]) for x in about]


def is_mended(kind: Kind, sites: dict[str, Frame], options: list[str]) -> bool:
    """Return whether an option runs as it is printed, and nothing is said of the column then."""
    rest = said(sites, *options)
    return not any(repr(kind.column) in x for x in rest if x.startswith(("warning", "error")))


def honest(rng: Generator, how: str) -> dict[str, Frame]:
    """Draw an honest partition: even, by subtype, by age, pure, tiny sites, many sites."""
    domain = str(rng.choice(list(DOMAINS)))
    rows = DOMAINS[domain](rng.integers(0, 3, 600), rng)
    if how == "tiny":
        return sites_of(domain, rng, n=int(rng.integers(12, 40)))
    if how == "by subtype":
        return sites_of(domain, rng, evenness=1.0)
    if how == "pure":
        return {s: DOMAINS[domain](np.full(120, j), rng) for j, s in enumerate(SITES)}
    if how == "by a column":
        numbers = [str(c) for c in rows if rows[c].dtype.kind in "if"]
        ordered = rows.sort_values(str(rng.choice(numbers)), kind="stable", ignore_index=True)
        return {
            s: ordered.iloc[part]
            for s, part in zip(SITES, np.array_split(np.arange(600), 3), strict=True)
        }
    if how == "heavy tails":
        numbers = [str(c) for c in rows if rows[c].dtype.kind in "if"]
        name = str(rng.choice(numbers))
        scale = rows[name].std() or 1.0
        rows[name] = (rows[name] + scale * rng.standard_t(2.5, len(rows))).round(2)
    if how == "skewed":
        for j in range(2):
            rows[f"cost{j}"] = rng.lognormal(5, 1.3, len(rows)).round(2)
            rows[f"count{j}"] = rng.negative_binomial(1, 0.2, len(rows))
    if how == "many":
        return {
            f"site{j}": rows.iloc[part]
            for j, part in enumerate(np.array_split(rng.permutation(len(rows)), 10))
        }
    return {
        s: rows.iloc[part]
        for s, part in zip(SITES, np.array_split(rng.permutation(len(rows)), 3), strict=True)
    }


HONEST_KINDS = (
    "even",
    "by subtype",
    "pure",
    "by a column",
    "tiny",
    "heavy tails",
    "skewed",
    "many",
)
ODD_LINES = re.compile(
    r"unlike|as of|elsewhere|far from|missing_values|values are|it holds|exchanged|factors"
)


def false_alarms(draws: int, seed: int, show: bool) -> Iterator[str]:
    """Count honest columns of which a warning says that they are odd."""
    for how in HONEST_KINDS:
        columns, wrong = 0, 0
        for draw in range(draws):
            sites = honest(np.random.default_rng([seed, draw, HONEST_KINDS.index(how)]), how)
            columns += next(iter(sites.values())).shape[1]
            odd = [
                x for x in said(sites) if x.startswith(("warning", "error")) and ODD_LINES.search(x)
            ]
            wrong += len(odd)
            if show:
                yield from (f"    {how}: {line}" for line in odd)
        yield f"{how:14} {wrong} of {columns} columns"


def of_kind(kind: Kind, asked: argparse.Namespace, total: Counter[str]) -> Iterator[str]:
    """Yield what is said of a kind, and count it."""
    found: list[str] = []
    shown: list[str] = []
    typed: list[bool] = []
    for draw in range(asked.draws):
        rng = np.random.default_rng([asked.seed, draw, sum(kind.name.encode())])
        sites = planted(kind, rng)
        lines = said_over_a_network(sites) if asked.network else said(sites)
        if not asked.network:  # what is said there is for the file of a site
            typed += [is_mended(kind, sites, options) for options in remedies(kind, lines)]
        found.append(verdict(kind, lines))
        heard = [line for line in lines if line.startswith(("warn", "err"))]
        shown += [f"    {line[:300]}" for line in heard if asked.show]
    total.update(found)
    total.update(f"a remedy that {'works' if works else 'FAILS'}" for works in typed)
    found += [f"{len(typed) - sum(typed)} remedies fail"] if not all(typed) else []
    yield from (f"{kind.name:36} {' '.join(found)}", *shown)


def main() -> None:
    """Print what is said of each kind."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--draws", type=int, default=2)
    ask.add_argument("--honest", type=int, default=0)
    ask.add_argument("--seed", type=int, default=7)
    ask.add_argument("--kinds", default="")
    ask.add_argument("--network", action="store_true", help="of sites of a federation")
    ask.add_argument("--show", action="store_true")
    asked = ask.parse_args()
    warnings.filterwarnings("ignore", category=FewGroupsWarning)
    total: Counter[str] = Counter()
    for kind in KINDS if asked.draws else ():
        if asked.kinds in kind.name:
            print(*of_kind(kind, asked, total), sep="\n", flush=True)
    print(dict(total))
    for line in false_alarms(asked.honest, asked.seed, asked.show) if asked.honest else ():
        print(line, flush=True)


if __name__ == "__main__":
    main()
