"""Dates in data frames become numbers, as those of files do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typed import fails, run

from fedcluster import FederatedKMeans, Model, PreprocessingSpec

pytestmark = pytest.mark.usefixtures("short_searches")

BORN = pd.Series(pd.to_datetime(["1950-03-01", "1962-07-15", "1971-12-31", "1988-02-29"] * 15))
FORMS: dict[str, Callable[[pd.Series], Any]] = {
    "datetime64": lambda born: born,
    "with a zone": lambda born: born.dt.tz_localize("Europe/Berlin"),
    "dates": lambda born: born.dt.date,
    "texts": lambda born: born.dt.strftime("%d.%m.%Y"),
    "numbers": lambda born: born.dt.strftime("%Y%m%d").astype(int),
}


def fitted(k: int, rows: Any, **spec: Any) -> Any:
    """A model, of dates that are prepared as said."""
    return FederatedKMeans(k, prepare=PreprocessingSpec(**spec), random_state=0).fit(rows)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["age:2024-03-01", "month", "weekday", "since:2000-01-01"])
def test_dates_of_data_frames_become_numbers(how: str, form: str, tmp_path: Path) -> None:
    made: dict[str, pd.Series] = {
        "month": BORN.dt.month,
        "weekday": BORN.dt.weekday + 1,
        "since:2000-01-01": (BORN - pd.Timestamp("2000-01-01")).dt.days,
        "age:2024-03-01": (pd.Timestamp("2024-03-01") - BORN).dt.days / 365.2425,
    }
    frame = pd.DataFrame({"born": FORMS[form](BORN), "x": np.arange(60) % 7.0})
    numbers = frame.assign(born=made[how].astype(float))
    model = fitted(3, {"a": frame[:40], "b": frame[40:]}, dates={"born": how})
    plain = fitted(3, {"a": numbers[:40], "b": numbers[40:]})
    np.testing.assert_allclose(model.cluster_centers_, plain.cluster_centers_, rtol=1e-12)
    assert model.preprocessor_.numeric[0].date == how
    np.testing.assert_array_equal(model.predict(frame), model.labels_)
    path = tmp_path / "rows.csv"
    frame.assign(born=FORMS["dates"](BORN)).to_csv(path, index=False)
    np.testing.assert_array_equal(model.predict(path), model.labels_)


def test_dates_that_are_missing_or_none_are_said() -> None:
    frame = pd.DataFrame({"born": BORN.mask(np.arange(60) == 3), "x": np.arange(60.0) / 2})
    model = fitted(2, frame, missing="mean", dates={"born": "month"})
    assert model.fit_report_.missing == {"site": {"born": 1}}
    for dates, message in (
        ({"x": "age"}, "site 'a', column 'x', row 0: 0.0 is no date; this column is to hold dates"),
        ({"berth": "age"}, "dates= names 'berth', and no site has such a column"),
        ({"born": "year"}, "dates become age, age:YYYY-MM-DD"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted(2, {"a": frame}, dates=dates)


def hours(model: Any) -> Any:
    return np.sort(model.preprocessor_.invert(model.cluster_centers_), axis=0)


def test_hours_are_those_of_the_time_zone(tmp_path: Path) -> None:
    night = pd.Series(pd.to_datetime(["2024-01-01 23:30", "2024-01-02 00:30"] * 9, utc=True))
    frame = pd.DataFrame({"utc": night, "oslo": night.dt.tz_convert("Europe/Oslo")})
    frame["text"] = night.dt.strftime("%Y-%m-%d  %I:%M %p")
    model = fitted(2, frame, dates=dict.fromkeys(("utc", "oslo", "text"), "hour"))
    np.testing.assert_allclose(hours(model), [[0.5, 0.5, 0.5], [23.5, 1.5, 23.5]])
    np.testing.assert_array_equal(model.predict(pl.from_pandas(frame)), model.labels_)
    frame = pd.DataFrame({"text": ["2024-01-01T23:30+01:00", "2024-01-02 00:30:00+01:00"] * 9})
    frame.to_csv(path := tmp_path / "zone.csv", index=False)
    for rows in (frame, path):
        model = fitted(2, {"north": rows}, dates={"text": "hour"})
        np.testing.assert_allclose(hours(model), [[0.5], [23.5]])
    for none in ("2024-01-01 25:30", "2024-01-01 10:75", "2024-01-01 13:30 pm"):
        with pytest.raises(ValueError, match=f"'{none}' is no date; this column is to hold dates"):
            fitted(2, pd.DataFrame({"text": [none, "2024-01-01 10:30"]}), dates={"text": "hour"})
    with pytest.raises(ValueError, match="column 'utc', row 0: the value, a Timedelta"):
        FederatedKMeans(2).fit(pd.DataFrame({"utc": night - night[0]}))


def written(days: list[int], form: str) -> pd.DataFrame:
    """Persons born in March of 1930 to 1969, on some days, as a site writes it."""
    born = pd.Series([pd.Timestamp(1930 + i % 40, 3, day) for i, day in enumerate(days)])
    return pd.DataFrame({"born": born.dt.strftime(form), "x": np.arange(len(days)) % 7.0})


def read_as(how: str, **sites: pd.DataFrame) -> tuple[dict[str, float], str]:
    """The mean of the numbers that dates become, by site, and what is said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = fitted(1, sites, dates={"born": how})
    moments = model.fit_report_.moments["born"]
    lines = "\n".join(str(each.message) for each in said)
    return {site: each[0] for site, each in moments.items()}, lines


FEW, ALL = [1 + i % 12 for i in range(40)], [1 + i % 28 for i in range(40)]
ASKS = "'03/01/1930' and all others may begin with the day or with the month; write month:dmy"


@pytest.mark.parametrize(
    ("north", "south", "note"),
    [
        ((FEW, "%m/%d/%Y"), (ALL, "%m/%d/%Y"), "'north', column 'born': '03/01/1930' is read with"),
        ((FEW, "%d-%m-%Y"), (ALL, "%d-%m-%Y"), "'01-03-1930' is read with the day first"),
        ((ALL, "%m/%d/%Y"), (ALL, "%d/%m/%Y"), ""),
        ((FEW, "%d.%m.%Y"), (ALL, "%m/%d/%Y"), "'01.03.1930' is read with the day first"),
        ((FEW, "%Y-%m-%d"), (FEW, "%Y/%m/%d"), ""),
        ((FEW, "%m/%d/%y"), (ALL, "%m/%d/%y"), "is read with the month first"),
    ],
)
def test_the_order_of_dates_is_that_of_the_column_or_of_the_others(north, south, note):
    found, said = read_as("month", north=written(*north), south=written(*south))
    assert found == {"north": 3, "south": 3}
    assert note in said
    assert bool(note) == ("is read with" in said)


@pytest.mark.parametrize("south", [(FEW, "%m/%d/%Y"), (FEW, "%d/%m/%Y"), (FEW, "%Y-%m-%d")])
def test_where_nothing_shows_the_order_of_dates_a_line_asks(south):
    with pytest.raises(ValueError, match=ASKS):
        read_as("month", north=written(FEW, "%m/%d/%Y"), south=written(*south))
    sites = {"north": written(FEW, "%m/%d/%Y"), "south": written(ALL, "%d.%m.%Y")}
    found, said = read_as("month:mdy", **sites)
    assert found == {"north": 3, "south": 3}
    assert "'03/01/1930' is read with the month first" in said
    both = {"west": written(ALL, "%d/%m/%Y"), "east": written(ALL, "%m/%d/%Y")}
    with pytest.raises(ValueError, match=ASKS):  # the others do not agree
        read_as("month", north=written(FEW, "%m/%d/%Y"), **both)


@pytest.mark.parametrize("form", ["%d.%m.%y", "%m/%d/%y", "%d-%m-%y"])
def test_nobody_is_born_after_the_day_of_an_age(form):
    how, full = "age:2024-12-31", written(ALL, "%Y-%m-%d")
    found, said = read_as(how, north=written(ALL, form), south=full)
    assert found["north"] == found["south"]
    assert "years of two digits are read as 1925 to 2024" in said


FIT = "fit north.csv south.csv --set report=false"


@pytest.mark.usefixtures("here")
def test_files_are_read_in_one_order_too():
    written(FEW, "%m/%d/%Y").to_csv("north.csv", index=False)
    written(ALL, "%m/%d/%Y").to_csv("south.csv", index=False)
    month = "-k 1 --set dates.born=month"
    for files in ("north.csv south.csv", "south.csv north.csv"):
        ran = run(f"{FIT.replace('north.csv south.csv', files)} {month} --overwrite")
        assert ran.exit_code == 0, ran.output
        said = "site 'north', column 'born': '03/01/1930' is read with the month first"
        assert said in ran.stderr
    assert ASKS in fails(f"{FIT.replace(' south.csv', '')} {month} --out other")


@pytest.mark.filterwarnings("ignore::fedcluster.errors.ReadingNote", "ignore:sites 'north' and")
@pytest.mark.parametrize("form", ["%m/%d/%Y", "%d/%m/%Y", "%d-%m-%y"])
@pytest.mark.usefixtures("here")
def test_a_model_knows_the_order_of_the_dates_of_its_fit(form):
    """A certain order at the fit is that of later dates that show none."""
    sites = {"north": written(ALL, form), "south": written(ALL[::-1], form)}
    model = fitted(3, sites, dates={"born": "age:2024-12-31"})
    short, full = written(FEW, form), written(FEW, "%Y-%m-%d")
    np.testing.assert_array_equal(model.predict(short), model.predict(full))
    for name, rows in {**sites, "later": short}.items():
        rows.to_csv(f"{name}.csv", index=False)
    age = "-k 3 --set dates.born=age:2024-12-31"
    for line in (f"{FIT} {age} --out out", "predict out/model.json later.csv --out p"):
        ran = run(line)
        assert ran.exit_code == 0, ran.output
    first = {"m": "month", "d": "day"}[form[1]]
    assert f"is read with the {first} first" in ran.stderr
    labels = pd.read_csv("p/later.csv")["cluster"]
    np.testing.assert_array_equal(labels, Model.load("out").predict(full))
    other = {"m": "%d/%m/%Y", "d": "%m/%d/%Y"}[form[1]]  # a column that shows its order is read so
    iso = written(ALL, "%Y-%m-%d")
    np.testing.assert_array_equal(model.predict(written(ALL, other)), model.predict(iso))


@pytest.mark.filterwarnings("ignore:sites 'north' and", "ignore:column 'born' is 3 in all")
def test_where_the_sites_of_a_fit_differ_later_dates_ask():
    sites = {"north": written(ALL, "%m/%d/%Y"), "south": written(ALL[::-1], "%d/%m/%Y")}
    model = fitted(2, sites, dates={"born": "month"})
    with pytest.raises(ValueError, match=ASKS):
        model.predict(written(FEW, "%m/%d/%Y"))
