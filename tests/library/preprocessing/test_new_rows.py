"""New rows: one model gives one answer, whatever they are written in and whoever asks.

Every kind of table meets every way from it to labels.
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
from sklearn.base import clone
from typed import run

from fedcluster import FederatedKMeans, Model
from fedcluster.core import Column, Data
from fedcluster.frames.inputs import Frame
from fedcluster.preprocessing import PreprocessingSpec

pytestmark = pytest.mark.usefixtures("short_searches")

SPEC = PreprocessingSpec(missing="mean", dates={"born": "age:2024-01-01"}, columns=None)


def draw(seed: int, n: int = 60) -> pd.DataFrame:
    """Rows of three clusters, with numbers, text and dates."""
    rng = np.random.default_rng(seed)
    near = rng.integers(0, 3, n)
    day = pd.Timestamp("1950-01-01") + pd.to_timedelta(near * 9000 + rng.integers(0, 2000, n), "D")
    made = {
        "age": np.round(20 + 25 * near + rng.normal(0, 2, n), 3),
        "dose": np.round(np.array([3750.0, 120.0, 9000.0])[near] + rng.normal(0, 40, n), 2),
        "sex": np.where(rng.random(n) < 0.5, "F", "M"),
        "born": day.strftime("%Y-%m-%d"),
    }
    return pd.DataFrame(made)


ROWS, NEW = draw(0), draw(100, 24)
NUMBERS = ROWS[["age", "dose"]]


FITS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "prepared": lambda rows: FederatedKMeans(3, prepare=SPEC, random_state=0).fit(rows),
    "as they are": lambda rows: FederatedKMeans(3, random_state=0).fit(rows[["age", "dose"]]),
    "private": lambda rows: FederatedKMeans(
        2, epsilon=50.0, bounds={"age": (0, 100), "dose": (0, 1e4)}, random_state=0
    ).fit(pd.concat([rows[["age", "dose"]]] * 40, ignore_index=True)),
}


@pytest.fixture(scope="module", params=["prepared", "private", "as they are"])
def case(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A fitted estimator and its model file."""
    estimator = FITS[request.param](ROWS)
    path = tmp_path_factory.mktemp("model") / "model.json"
    estimator.save(path)
    return estimator, path


def by_command(path: Path, rows: pd.DataFrame, kind: str) -> np.ndarray:
    """The labels that the command writes for rows in a file."""
    new, out = path.parent / f"new.{kind}", path.parent / "out"
    if kind == "csv":
        rows.to_csv(new, index=False)
    else:
        rows.to_parquet(new, index=False)
    ran = run("predict", path, new, "--out", out, "--overwrite", "--quiet")
    if ran.exit_code:
        raise ValueError(ran.stderr.removeprefix("error: ").strip())
    return pd.read_csv(out / "new.csv")["cluster"].to_numpy()


def as_path(rows: pd.DataFrame, path: Path) -> Path:
    rows.to_parquet(path, index=False)
    return path


def arrow(rows: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(rows, preserve_index=False)


WAYS: dict[str, Callable[[Any, Path, pd.DataFrame], Any]] = {
    "estimator": lambda fitted, _, rows: fitted.predict(rows),
    "estimator, polars": lambda fitted, _, rows: fitted.predict(pl.from_pandas(rows)),
    "estimator, Arrow": lambda fitted, _, rows: fitted.predict(arrow(rows)),
    "loaded estimator": lambda fitted, path, rows: type(fitted).load(path).predict(rows),
    "model": lambda fitted, _, rows: Model.from_estimator(fitted).predict(rows),
    "model file": lambda _, path, rows: Model.load(path).predict(rows),
    "model file, polars": lambda _, path, rows: Model.load(path).predict(pl.from_pandas(rows)),
    "model file, Arrow": lambda _, path, rows: Model.load(path).predict(arrow(rows)),
    "model file, columns": lambda _, path, rows: Model.load(path).predict(rows.to_dict("list")),
    "model file, sites": lambda _, path, rows: Model.load(path).predict({"new": rows}),
    "model file, Parquet": lambda _, path, rows: Model.load(path).predict(
        as_path(rows, path.parent / "rows.parquet")
    ),
    "command, CSV": lambda _, path, rows: by_command(path, rows, "csv"),
    "command, Parquet": lambda _, path, rows: by_command(path, rows, "parquet"),
}


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
    estimator, path = case
    table = TAKEN[kind](NEW, np.random.default_rng(7))
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
        np.testing.assert_array_equal(expected, estimator.predict(NEW))


def test_missing_numbers_are_filled_in_or_refused_alike(case: Any) -> None:
    estimator, path = case
    table = NEW.assign(dose=NEW["dose"].mask(np.arange(24) == 4))
    if Model.load(path).preprocessor is not None:
        expected = estimator.predict(table)
        for way, labels in WAYS.items():
            np.testing.assert_array_equal(labels(estimator, path, table), expected, err_msg=way)
        return
    for labels in WAYS.values():
        with pytest.raises(ValueError, match=r"column 'dose', row .: the value is missing|row 5 "):
            labels(estimator, path, table)


def test_labels_of_the_fit_are_those_of_every_way(case: Any) -> None:
    estimator, path = case
    for way, labels in WAYS.items():
        found = labels(estimator, path, ROWS)
        np.testing.assert_array_equal(found, estimator.labels_[: len(ROWS)], err_msg=way)


def doses(change: Callable[[pd.Series], Any]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda rows: rows.assign(dose=change(rows["dose"]))


REFUSED: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "one text": (
        doses(lambda dose: dose.astype(str).mask(dose.index == 4, "low")),
        "'low' is not a number, as most of this column are; mend it or drop the row",
    ),
    "a column lacks": (lambda rows: rows.drop(columns="dose"), "has no column 'dose'; it has"),
    "all columns lack": (
        lambda rows: rows.drop(columns=["age", "dose"]),
        "has no columns 'age' and 'dose'; it has",
    ),
    "all text": (doses(lambda _: "low"), "'low' is not a number; drop the row"),
    "a decimal comma": (doses(lambda _: "37,5"), "'37,5' has a decimal comma"),
    "dates": (doses(lambda _: pd.to_datetime(NEW["born"]).dt.date), "is not a number"),
    "infinite": (doses(lambda dose: dose.mask(dose.index == 4, np.inf)), "the value is infinite"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_all_ways_refuse_by_name_in_the_same_words(case: Any, kind: str) -> None:
    estimator, path = case
    change, words = REFUSED[kind]
    for way, labels in WAYS.items():
        with pytest.raises(ValueError, match=re.escape(words)) as error:
            labels(estimator, path, change(NEW))
        assert "'dose'" in str(error.value), way
        assert "\n" not in str(error.value), way


@pytest.fixture(scope="module")
def prepared() -> Any:
    """What predicts by a prepared fit: its estimator and its model."""
    estimator = FITS["prepared"](ROWS)
    return estimator.predict, Model.from_estimator(estimator).predict


@pytest.fixture(scope="module")
def plain() -> Any:
    """Labels of two columns of numbers, and what predicts by their fit."""
    estimator = FederatedKMeans(3, random_state=0).fit(NUMBERS)
    return estimator.labels_, (estimator.predict, Model.from_estimator(estimator).predict)


@pytest.mark.parametrize(("born", "words"), [("soon", "'soon' "), ("35.5", "")])
def test_what_is_no_date_is_refused_where_the_fit_had_dates(born, words, prepared) -> None:
    table = NEW.assign(born=born)
    said = f"column 'born', row 0: .*{words}is no date; this column is to hold dates"
    for predict in prepared:
        for given in (table, pl.from_pandas(table)):
            with pytest.raises(ValueError, match=said):
                predict(given)


def test_arrays_are_taken_by_place_if_they_have_the_width(plain) -> None:
    labels, predicting = plain
    rows = NUMBERS.to_numpy()
    for array in (
        *(rows, rows.tolist(), rows.astype(str), rows.astype(object), np.asfortranarray(rows)),
        *(scipy.sparse.csr_array(rows), Data(rows)),
    ):
        for predict in predicting:
            np.testing.assert_array_equal(predict(array), labels)
            with pytest.raises(ValueError, match=r"X has 1 features, but .* is expecting 2"):
                predict(Data(rows[:, :1]) if isinstance(array, Data) else rows[:, :1])


def test_rows_that_know_their_columns_are_aligned_and_checked(plain) -> None:
    labels, predicting = plain
    known = Data(NUMBERS.to_numpy()[:, ::-1].copy(), columns=(Column("dose"), Column("age")))
    texts = Data(known.X * 0, columns=(Column("dose", "text", ("low",)), Column("age")))
    cells = anndata.AnnData(NUMBERS[["dose", "age"]].to_numpy())
    cells.var_names = ["dose", "age"]
    for predict in predicting:
        np.testing.assert_array_equal(predict(known), labels)
        np.testing.assert_array_equal(predict(cells), labels)
        with pytest.raises(ValueError, match="column 'dose', row 0: 'low' is not a number"):
            predict(texts)


@pytest.mark.parametrize("kind", ["text", "date", "mixed"])
def test_prepared_rows_of_another_kind_are_refused(kind: Any, prepared) -> None:
    wrong = Column("age", kind, ("old",) if kind == "text" else ())
    data = Data(np.zeros((3, 4)), columns=(wrong, *map(Column, ("dose", "sex", "born"))))
    with pytest.raises(ValueError, match=r"column 'age'.*(not a number|and no numbers); drop the"):
        prepared[1](data)


def test_a_name_that_comes_twice_is_refused(plain) -> None:
    twice = pd.concat([NUMBERS, NUMBERS[["age"]]], axis=1)
    for act in (*plain[1], FederatedKMeans(2).fit):
        with pytest.raises(ValueError, match="column 'age': there are two columns of this name"):
            act(twice)


def test_an_array_s_model_needs_the_names_of_places_or_an_array() -> None:
    array = NUMBERS.to_numpy()
    model = Model.from_estimator(FederatedKMeans(3, random_state=0).fit(array))
    with pytest.raises(ValueError, match="the table has no columns 'x0' and 'x1'; it has age, d"):
        model.predict(NUMBERS)
    renamed = NUMBERS.set_axis(["x0", "x1"], axis=1)[["x1", "x0"]]
    np.testing.assert_array_equal(model.predict(renamed), model.predict(array))


@pytest.mark.parametrize("prepare", [None, SPEC])
def test_a_fit_reads_tables_of_all_kinds_alike(prepare: Any, tmp_path: Path) -> None:
    rows = ROWS if prepare else NUMBERS
    texts = rows.assign(dose=rows["dose"].astype(str), where=np.repeat(["b", "a"], 30))
    texts.to_csv(tmp_path / "rows.csv", index=False)
    fit = FederatedKMeans(3, prepare=prepare, random_state=0)
    model = clone(fit).fit(rows, sites=texts["where"])
    parts = {str(site): table.drop(columns="where") for site, table in texts.groupby("where")}
    paths = {site: tmp_path / f"{site}.csv" for site in parts}
    for site, path in paths.items():
        parts[site].to_csv(path, index=False)
    mixed = {"a": pl.from_pandas(parts["a"]), "b": parts["b"][list(parts["b"])[::-1]]}
    by_site = [clone(fit).fit(given) for given in (mixed, paths)]
    for table in (texts, pl.from_pandas(texts), arrow(texts)):
        other = clone(fit).fit(table, sites="where")
        np.testing.assert_array_equal(other.labels_, model.labels_)
        assert list(other.feature_names_in_) == list(rows)
        by_site.append(other)
    for each in by_site:
        np.testing.assert_array_equal(each.cluster_centers_, model.cluster_centers_)


def test_a_masked_value_is_missing() -> None:
    rows = NUMBERS.to_numpy()
    masked = np.ma.masked_array(rows, mask=rows == rows[7, 1])
    with pytest.raises(ValueError, match="column 'x1', row 7: the value is missing"):
        FederatedKMeans(3).fit(masked)


@pytest.mark.parametrize("cell", [{"foo": 1}, [1.0], object()], ids=["dict", "list", "object"])
def test_what_is_neither_text_nor_number_is_refused(cell: Any) -> None:
    rows = NUMBERS.astype(object)
    rows.at[3, "dose"] = cell
    for prepare in (None, "standard"):
        with pytest.raises(TypeError, match=r"column 'dose'.* must be a string or a real number"):
            FederatedKMeans(3, prepare=prepare).fit(rows)


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
