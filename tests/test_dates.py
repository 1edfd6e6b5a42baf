"""Dates in data frames become numbers, as those of files do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcluster import FederatedKMeans, PreprocessingSpec

pytestmark = pytest.mark.usefixtures("short_searches")

BORN = pd.Series(pd.to_datetime(["1950-03-01", "1962-07-15", "1971-12-31", "1988-02-29"] * 15))
FORMS: dict[str, Callable[[pd.Series], Any]] = {
    "datetime64": lambda born: born,
    "with a zone": lambda born: born.dt.tz_localize("Europe/Berlin"),
    "dates": lambda born: born.dt.date,
    "texts": lambda born: born.dt.strftime("%d.%m.%Y"),
    "numbers": lambda born: born.dt.strftime("%Y%m%d").astype(int),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["age:2024-03-01", "month", "weekday", "since:2000-01-01"])
def test_dates_of_data_frames_become_numbers(how: str, form: str, tmp_path: Path) -> None:
    day = pd.Timestamp("2024-03-01")
    made: dict[str, pd.Series] = {
        "month": BORN.dt.month,
        "weekday": BORN.dt.weekday + 1,
        "since:2000-01-01": (BORN - pd.Timestamp("2000-01-01")).dt.days,
        "age:2024-03-01": (day - BORN).dt.days / 365.2425,
    }
    expected = made[how].astype(float)
    x = np.arange(60) % 7.0
    frame = pd.DataFrame({"born": FORMS[form](BORN), "x": x})
    spec = PreprocessingSpec(dates={"born": how})
    model = FederatedKMeans(3, prepare=spec, random_state=0).fit({"a": frame[:40], "b": frame[40:]})
    plain = FederatedKMeans(3, prepare="standard", random_state=0)
    plain.fit({"a": (both := pd.DataFrame({"born": expected, "x": x}))[:40], "b": both[40:]})
    np.testing.assert_allclose(model.cluster_centers_, plain.cluster_centers_, rtol=1e-12)
    assert model.preprocessor_ is not None
    assert model.preprocessor_.numeric[0].date == how
    np.testing.assert_array_equal(model.predict(frame), model.labels_)
    path = tmp_path / "rows.csv"
    frame.assign(born=FORMS["dates"](BORN)).to_csv(path, index=False)
    np.testing.assert_array_equal(model.predict(path), model.labels_)


def test_dates_that_are_missing_or_none_are_said() -> None:
    frame = pd.DataFrame({"born": BORN.mask(np.arange(60) == 3), "x": np.arange(60.0) / 2})
    spec = PreprocessingSpec(missing="mean", dates={"born": "month"})
    model = FederatedKMeans(2, prepare=spec, random_state=0).fit(frame)
    assert model.fit_report_ is not None
    assert model.fit_report_.missing == {"site": {"born": 1}}
    for dates, message in (
        ({"x": "age"}, "site 'a', column 'x', row 0: 0.0 is no date; this column is to hold dates"),
        ({"berth": "age"}, "dates= names 'berth', and no site has such a column"),
        ({"born": "year"}, "dates become age, age:YYYY-MM-DD"),
    ):
        with pytest.raises(ValueError, match=message):
            FederatedKMeans(2, prepare=PreprocessingSpec(dates=dates)).fit({"a": frame})
