"""New rows: one model gives one answer, whatever they are written in and whoever asks.

Every kind of table meets every way from it to labels. Rows are drawn anew for each seed.
"""

from __future__ import annotations

import re
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from typer.testing import CliRunner

from fedcluster import FederatedKMeans, Model
from fedcluster.core import Column, Data
from fedcluster.frames.inputs import Frame
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.cli import app

pytestmark = pytest.mark.usefixtures("short_searches")

SEEDS = range(2)
SPEC = PreprocessingSpec(missing="mean", dates={"born": "age:2024-01-01"}, columns=None)


def draw(seed: int, n: int = 60) -> pd.DataFrame:
    """Rows of three clusters, with numbers, text and dates."""
    rng = np.random.default_rng(seed)
    near = rng.integers(0, 3, n)
    day = pd.Timestamp("1950-01-01") + pd.to_timedelta(near * 9000 + rng.integers(0, 2000, n), "D")
    return pd.DataFrame(
        {
            "age": np.round(20 + 25 * near + rng.normal(0, 2, n), 3),
            "dose": np.round(np.array([3750.0, 120.0, 9000.0])[near] + rng.normal(0, 40, n), 2),
            "sex": np.where(rng.random(n) < 0.5, "F", "M"),
            "born": day.strftime("%Y-%m-%d"),
        }
    )


FITS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "prepared": lambda rows: FederatedKMeans(3, prepare=SPEC, random_state=0).fit(rows),
    "as they are": lambda rows: FederatedKMeans(3, random_state=0).fit(rows[["age", "dose"]]),
    "private": lambda rows: FederatedKMeans(
        2, epsilon=50.0, bounds={"age": (0, 100), "dose": (0, 1e4)}, random_state=0
    ).fit(pd.concat([rows[["age", "dose"]]] * 40, ignore_index=True)),
}


@pytest.fixture(
    scope="module",
    params=[
        ("private", 0),
        *((fit, seed) for fit in ("prepared", "as they are") for seed in SEEDS),
    ],
    ids=str,
)
def case(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, pd.DataFrame]:
    """A fitted estimator, its model file, and rows that were not in the fit."""
    fit, seed = request.param
    estimator = FITS[fit](draw(seed))
    path = tmp_path_factory.mktemp("model") / "model.json"
    estimator.save(path)
    return estimator, path, draw(100 + seed, 24)


# The ways from a table to labels


def by_command(path: Path, rows: pd.DataFrame, kind: str) -> np.ndarray:
    """The labels that the command writes for rows in a file."""
    new, out = path.parent / f"new.{kind}", path.parent / "out"
    if kind == "csv":
        rows.to_csv(new, index=False)
    else:
        rows.to_parquet(new, index=False)
    given = ["predict", path, new, "--out", out, "--overwrite", "--quiet"]
    ran = CliRunner().invoke(app, list(map(str, given)))
    if ran.exit_code:
        raise ValueError(ran.stderr.removeprefix("error: ").strip())
    return pd.read_csv(out / "new.csv")["cluster"].to_numpy()


def as_path(rows: pd.DataFrame, path: Path) -> Path:
    rows.to_parquet(path, index=False)
    return path


WAYS: dict[str, Callable[[Any, Path, pd.DataFrame], Any]] = {
    "estimator": lambda fitted, path, rows: fitted.predict(rows),
    "estimator, polars": lambda fitted, path, rows: fitted.predict(pl.from_pandas(rows)),
    "estimator, Arrow": lambda fitted, path, rows: fitted.predict(arrow(rows)),
    "loaded estimator": lambda fitted, path, rows: type(fitted).load(path).predict(rows),
    "model": lambda fitted, path, rows: Model.from_estimator(fitted).predict(rows),
    "model file": lambda fitted, path, rows: Model.load(path).predict(rows),
    "model file, polars": lambda fitted, path, rows: Model.load(path).predict(pl.from_pandas(rows)),
    "model file, Arrow": lambda fitted, path, rows: Model.load(path).predict(arrow(rows)),
    "model file, columns": lambda fitted, path, rows: Model.load(path).predict(
        {name: rows[name].tolist() for name in rows}
    ),
    "model file, sites": lambda fitted, path, rows: Model.load(path).predict({"new": rows}),
    "model file, Parquet": lambda fitted, path, rows: Model.load(path).predict(
        as_path(rows, path.parent / "rows.parquet")
    ),
    "command, CSV": lambda fitted, path, rows: by_command(path, rows, "csv"),
    "command, Parquet": lambda fitted, path, rows: by_command(path, rows, "parquet"),
}


def arrow(rows: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(rows, preserve_index=False)


# What all ways take alike


def shuffled(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    more = rows.assign(note="x", weight=1.0, cluster="none")
    return more[rng.permutation(np.array(list(more))).tolist()]


def gaps(rows: pd.DataFrame, sign: Any) -> pd.DataFrame:
    """Missing values where the fit has filled some in."""
    return rows.assign(sex=rows["sex"].mask(np.arange(len(rows)) % 5 == 1, sign))


TAKEN: dict[str, Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]] = {
    "as in the fit": lambda rows, rng: rows,
    "shuffled, with more": shuffled,
    "reversed": lambda rows, rng: rows[list(rows)[::-1]],
    "numbers as text": lambda rows, rng: rows.assign(
        age=rows["age"].astype(str), dose=rows["dose"].map("{:.2f}".format)
    ),
    "numbers with blanks": lambda rows, rng: rows.assign(dose=" " + rows["dose"].astype(str) + " "),
    "nullable types": lambda rows, rng: rows.astype({"age": "Float64", "sex": "string"}),
    "categorical text": lambda rows, rng: rows.astype({"sex": "category"}),
    "text is missing": lambda rows, rng: gaps(rows, None),
    "text says that it is missing": lambda rows, rng: gaps(rows, "n/a"),
    "an unknown text": lambda rows, rng: gaps(rows, "X"),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_all_ways_give_one_answer(case: Any, kind: str) -> None:
    estimator, path, rows = case
    table = TAKEN[kind](rows, np.random.default_rng(7))
    told = kind == "an unknown text" and "sex" in Model.load(path).columns
    for way, labels in WAYS.items():
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = labels(estimator, path, table)
        if way == "estimator":
            expected = found
        np.testing.assert_array_equal(found, expected, err_msg=way)
        words = [str(each.message) for each in said]
        if "command" not in way:
            assert len(words) == told, way
            assert all("not know, taken for none: 5 of sex at " in line for line in words)
    if kind not in ("text is missing", "text says that it is missing", "an unknown text"):
        np.testing.assert_array_equal(expected, estimator.predict(rows))


def test_missing_numbers_are_filled_in_or_refused_alike(case: Any) -> None:
    estimator, path, rows = case
    table = rows.assign(dose=rows["dose"].mask(np.arange(24) == 4))
    if Model.load(path).preprocessor is not None:
        expected = estimator.predict(table)
        for way, labels in WAYS.items():
            np.testing.assert_array_equal(labels(estimator, path, table), expected, err_msg=way)
        return
    for labels in WAYS.values():
        with pytest.raises(ValueError, match=r"column 'dose', row .: the value is missing|row 5 "):
            labels(estimator, path, table)


def test_labels_of_the_fit_are_those_of_every_way(case: Any) -> None:
    estimator, path, _ = case
    rows = _rows_of(estimator)
    for way, labels in WAYS.items():
        found = labels(estimator, path, rows)
        np.testing.assert_array_equal(found, estimator.labels_[: len(rows)], err_msg=way)


def _rows_of(estimator: Any) -> pd.DataFrame:
    """The rows that an estimator was fitted to."""
    for seed in SEEDS:
        rows = draw(seed)
        if np.array_equal(estimator.predict(rows), estimator.labels_[:60]):
            return rows
    raise AssertionError("labels_ are those of no fit")


# What all ways refuse in the same words


REFUSED: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "a column lacks": (lambda rows: rows.drop(columns="dose"), "has no column 'dose'; it has"),
    "all columns lack": (
        lambda rows: rows.drop(columns=["age", "dose"]),
        "has no columns 'age' and 'dose'; it has",
    ),
    "one text": (
        lambda rows: rows.assign(dose=rows["dose"].astype(str).mask(rows.index == 4, "low")),
        "'low' is not a number, as most of this column are; mend it or drop the row",
    ),
    "all text": (lambda rows: rows.assign(dose="low"), "'low' is not a number; drop the row"),
    "a decimal comma": (lambda rows: rows.assign(dose="37,5"), "'37,5' has a decimal comma"),
    "dates for numbers": (
        lambda rows: rows.assign(dose=pd.to_datetime(rows["born"]).dt.date),
        "is not a number",
    ),
    "an infinite number": (
        lambda rows: rows.assign(dose=rows["dose"].mask(rows.index == 4, np.inf)),
        "the value is infinite",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_all_ways_refuse_by_name_in_the_same_words(case: Any, kind: str) -> None:
    estimator, path, rows = case
    change, words = REFUSED[kind]
    for way, labels in WAYS.items():
        with pytest.raises(ValueError, match=re.escape(words)) as error:
            labels(estimator, path, change(rows))
        assert "'dose'" in str(error.value), way
        assert "\n" not in str(error.value), way


@pytest.mark.parametrize(
    ("born", "words"),
    [
        ("soon", "'soon' is no date; this column is to hold dates"),
        ("35.5", "is no date; this column is to hold dates"),
    ],
)
def test_what_is_no_date_is_refused_where_the_fit_had_dates(born: str, words: str) -> None:
    estimator = FITS["prepared"](draw(0))
    model = Model.from_estimator(estimator)
    for table in (draw(1).assign(born=born), pl.from_pandas(draw(1).assign(born=born))):
        for predict in (estimator.predict, model.predict):
            with pytest.raises(ValueError, match=f"column 'born', row 0: .*{words}"):
                predict(table)


# Tables without names, and what is no table


def test_arrays_are_taken_by_place_if_they_have_the_width() -> None:
    rows = draw(0)[["age", "dose"]]
    estimator = FederatedKMeans(3, random_state=0).fit(rows)
    model = Model.from_estimator(estimator)
    for array in (
        rows.to_numpy(),
        rows.to_numpy().tolist(),
        rows.to_numpy().astype(str),
        rows.to_numpy(object),
        np.asfortranarray(rows.to_numpy()),
        scipy.sparse.csr_array(rows.to_numpy()),
        Data(rows.to_numpy()),
    ):
        for predict in (estimator.predict, model.predict):
            np.testing.assert_array_equal(predict(array), estimator.labels_)
            with pytest.raises(ValueError, match=r"X has 1 features, but .* is expecting 2"):
                predict(Data(array.X[:, :1]) if isinstance(array, Data) else rows.to_numpy()[:, :1])


def test_rows_that_know_their_columns_are_aligned_and_checked() -> None:
    rows = draw(0)[["age", "dose"]]
    estimator = FederatedKMeans(3, random_state=0).fit(rows)
    known = Data(rows.to_numpy()[:, ::-1].copy(), columns=(Column("dose"), Column("age")))
    texts = Data(known.X * 0, columns=(Column("dose", "text", ("low",)), Column("age")))
    cells = anndata.AnnData(rows[["dose", "age"]].to_numpy())
    cells.var_names = ["dose", "age"]
    for predict in (estimator.predict, Model.from_estimator(estimator).predict):
        np.testing.assert_array_equal(predict(known), estimator.labels_)
        np.testing.assert_array_equal(predict(cells), estimator.labels_)
        with pytest.raises(ValueError, match="column 'dose', row 0: 'low' is not a number"):
            predict(texts)


@pytest.mark.parametrize("kind", ["text", "date", "mixed"])
def test_prepared_rows_of_another_kind_are_refused(kind: Any) -> None:
    estimator = FITS["prepared"](draw(0))
    names = ("age", "dose", "sex", "born")
    columns = [Column(name) for name in names[:3]]
    wrong = Column("age", kind, ("old",) if kind == "text" else ())
    data = Data(np.zeros((3, 4)), columns=(wrong, *columns[1:], Column("born")))
    with pytest.raises(ValueError, match=r"column 'age'.*(not a number|and no numbers); drop the"):
        Model.from_estimator(estimator).predict(data)


def test_a_name_that_comes_twice_is_refused() -> None:
    rows = draw(0)[["age", "dose"]]
    estimator = FederatedKMeans(3, random_state=0).fit(rows)
    twice = pd.concat([rows, rows[["age"]]], axis=1)
    for act in (estimator.predict, Model.from_estimator(estimator).predict, FederatedKMeans(2).fit):
        with pytest.raises(ValueError, match="column 'age': there are two columns of this name"):
            act(twice)


def test_an_array_s_model_needs_the_names_of_places_or_an_array() -> None:
    rows = draw(0)[["age", "dose"]]
    model = Model.from_estimator(FederatedKMeans(3, random_state=0).fit(rows.to_numpy()))
    with pytest.raises(ValueError, match="the table has no columns 'x0' and 'x1'; it has age, d"):
        model.predict(rows)
    renamed = rows.set_axis(["x0", "x1"], axis=1)[["x1", "x0"]]
    np.testing.assert_array_equal(model.predict(renamed), model.predict(rows.to_numpy()))


@pytest.mark.parametrize("prepare", [None, SPEC])
def test_a_fit_reads_tables_of_all_kinds_alike(prepare: Any, tmp_path: Path) -> None:
    rows = draw(0) if prepare else draw(0)[["age", "dose"]]
    texts = rows.assign(dose=rows["dose"].astype(str), where=np.repeat(["b", "a"], 30))
    texts.to_csv(tmp_path / "rows.csv", index=False)
    model = FederatedKMeans(3, prepare=prepare, random_state=0).fit(rows, sites=texts["where"])
    for table in (texts, pl.from_pandas(texts), arrow(texts)):
        other = FederatedKMeans(3, prepare=prepare, random_state=0).fit(table, sites="where")
        np.testing.assert_array_equal(other.cluster_centers_, model.cluster_centers_)
        np.testing.assert_array_equal(other.labels_, model.labels_)
        assert list(other.feature_names_in_) == list(rows)
    parts = {site: table.drop(columns="where") for site, table in texts.groupby("where")}
    mixed = {"a": pl.from_pandas(parts["a"]), "b": parts["b"][list(parts["b"])[::-1]]}
    again = FederatedKMeans(3, prepare=prepare, random_state=0).fit(mixed)
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)
    paths = {str(site): tmp_path / f"{site!s}.csv" for site in parts}
    for site, path in paths.items():
        parts[site].to_csv(path, index=False)
    files = FederatedKMeans(3, prepare=prepare, random_state=0).fit(paths)
    np.testing.assert_array_equal(files.cluster_centers_, model.cluster_centers_)


def test_a_masked_value_is_missing() -> None:
    rows = draw(0)[["age", "dose"]].to_numpy()
    masked = np.ma.masked_array(rows, mask=rows == rows[7, 1])
    with pytest.raises(ValueError, match="column 'x1', row 7: the value is missing"):
        FederatedKMeans(3).fit(masked)


@pytest.mark.parametrize("cell", [{"foo": 1}, [1.0], object()], ids=["dict", "list", "object"])
def test_what_is_neither_text_nor_number_is_refused(cell: Any) -> None:
    rows = draw(0)[["age", "dose"]].astype(object)
    rows.at[3, "dose"] = cell
    for prepare in (None, "standard"):
        with pytest.raises(TypeError, match=r"column 'dose'.* must be a string or a real number"):
            FederatedKMeans(3, prepare=prepare).fit(rows)


# What it costs


def test_a_large_array_is_neither_copied_nor_walked() -> None:
    rows = np.random.default_rng(0).normal(size=(200_000, 8))
    model = Model.from_estimator(FederatedKMeans(2, random_state=0).fit(rows[:1000]))
    assert model.prepared(rows) is rows
    tracemalloc.start()
    model.prepared(rows)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < rows.nbytes / 50


def test_no_cell_of_a_frame_of_numbers_is_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(5000, 4)), columns=list("abcd"))
    mixed = rows.astype({"a": np.float32}).assign(b=rows["b"].round().astype(int))
    model = Model.from_estimator(FederatedKMeans(2, random_state=0).fit(rows))

    def walked(*given: Any) -> None:
        raise AssertionError("cell by cell")

    monkeypatch.setattr("fedcluster.frames.inputs.as_arrow", walked)
    monkeypatch.setattr("fedcluster.frames.inputs.is_blank", walked)
    columns: list[str] = []
    read = Frame.column

    def noted(self: Frame, name: str) -> Any:
        columns.append(name)
        return read(self, name)

    monkeypatch.setattr(Frame, "column", noted)
    model.predict(rows)
    model.predict(mixed[list("dcba")])
    assert columns == []
    model.predict(pl.from_pandas(mixed[list("dcba")]))
    assert columns == list("abcd")
