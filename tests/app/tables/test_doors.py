"""More doors: SQLite, DuckDB, SAS, SPSS and Stata, read as any table is."""

import datetime
import sqlite3
import sys
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from readings import RAW, read, refused, site
from sklearn.base import clone

from fedcluster import FederatedKMeans
from fedcluster.errors import ReadingNote
from fedcluster.preprocessing import PreprocessingSpec

pytestmark = pytest.mark.usefixtures("here")


def sqlite(path, *statements, **tables):
    """A database of tables, each given as a text of columns and a list of rows."""
    with closing(sqlite3.connect(path)) as database:
        for name, (columns, rows) in tables.items():
            name = name.replace('"', '""')
            database.execute(f'CREATE TABLE "{name}" ({columns})')
            marks = ", ".join("?" * len(columns.split(",")))
            database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        for each in statements:
            database.execute(each)
        database.commit()


ONE = ("x REAL", [(1.0,), (2.0,)])
PATIENTS = ("age REAL, sex TEXT, n INTEGER", [(61.5, "F", 3), (None, "M", 4), (47, None, 5)])


def test_a_table_of_sqlite_is_read_without_a_site_file_and_only_read():
    sqlite("clinic.sqlite", patients=PATIENTS, visits=ONE)
    before = Path("clinic.sqlite").read_bytes()
    rows = read("clinic.sqlite", RAW, table="patients")
    assert rows.name == "clinic"
    assert [column.kind for column in rows.data.columns] == ["number", "text", "number"]
    expected = np.array([[61.5, 0, 3], [np.nan, 1, 4], [47, np.nan, 5]])
    np.testing.assert_array_equal(rows.data.X, expected)
    assert Path("clinic.sqlite").read_bytes() == before
    assert [path.name for path in Path().iterdir()] == ["clinic.sqlite"]
    held = site("clinic.sqlite", table="patients").rows(["age", "n"], raw=True)
    np.testing.assert_array_equal(held.X, expected[:, [0, 2]])


def test_the_only_table_needs_no_name_and_a_view_is_one():
    odd = 'odd "name"; --'
    sqlite("one.db", **{odd: ONE})
    assert read("one.db").data.X.tolist() == read("one.db", table=odd).data.X.tolist() == [[1], [2]]
    sqlite("one.db", 'CREATE VIEW twice AS SELECT 2 * x AS y FROM "odd ""name""; --"')
    assert read("one.db", table="twice").data.X.tolist() == [[2], [4]]


def test_cells_of_several_kinds_in_one_column_are_read_as_in_other_sources():
    mixed = [(1, 1, 1e30), (2.5, "a", 1.0), (None, 3, 2.0)]
    sqlite("m.sqlite", t=("whole, mixed, huge", mixed))
    rows = read("m.sqlite", RAW)
    assert [column.kind for column in rows.data.columns] == ["number", "number"]
    assert list(rows.unreadable) == ["mixed"]
    np.testing.assert_array_equal(rows.data.X[:, 0], [1, 2.5, np.nan])


@pytest.mark.parametrize(
    ("file", "table", "line"),
    [
        ("a.sqlite", "c", "a.sqlite has no table 'c'; it has t, u"),
        (
            "a.sqlite",
            None,
            "a.sqlite has the tables t, u; name one, as in --set sites.a.table=NAME",
        ),
        ("torn.db", None, "torn.db cannot be read as SQLite: file is not a database"),
        ("none.db", None, "none.db does not exist; check the path"),
        ("no.db", None, "no.db has the tables none; name one, as in --set sites.no.table=NAME"),
        ("a.csv", "t", "table is for SQLite and DuckDB, and a.csv is none"),
        ("few.db", None, "few.db has a header but no rows; add rows or leave the file out"),
    ],
)
def test_what_cannot_be_read_is_one_line(file, table, line):
    sqlite("a.sqlite", t=ONE, u=ONE)
    sqlite("few.db", t=("x REAL", []))
    Path("torn.db").write_bytes(b"no database, but text" * 100)
    Path("no.db").write_bytes(b"")
    Path("a.csv").write_text("x\n1\n")
    own = {} if table is None else {"a": {"table": table}}
    assert refused(file, RAW, own).partition(": ")[2] == line


def test_a_table_of_duckdb_is_read():
    duckdb = pytest.importorskip("duckdb")
    with closing(duckdb.connect("clinic.duckdb")) as database:
        database.execute("CREATE TABLE patients (age DOUBLE, sex VARCHAR, born DATE)")
        database.execute("INSERT INTO patients VALUES (61.5, 'F', '2000-01-02'), (NULL, 'M', NULL)")
    rows = read("clinic.duckdb", RAW)
    assert [column.kind for column in rows.data.columns] == ["number", "text", "date"]
    np.testing.assert_array_equal(rows.data.X[:, 0], [61.5, np.nan])
    said = refused("clinic.duckdb", RAW, table="b")
    assert said.endswith("clinic.duckdb has no table 'b'; it has patients")
    Path("torn.duckdb").write_bytes(b"no database" * 1000)
    assert "torn.duckdb cannot be read as DuckDB: " in refused("torn.duckdb", RAW)


@pytest.mark.parametrize("ending", ["xpt", "zsav", "sav", "dta"])
def test_files_of_statistics_programs_are_read_with_the_names_of_codes(ending):
    pyreadstat = pytest.importorskip("pyreadstat")
    table = pd.DataFrame(
        {
            "age": [61.5, None, 47],
            "sex": [1, 2, 1],
            "score": [1.0, 2.0, 9.0],
            "ward": ["Süd", "", "Nord"],
            "born": [datetime.date(2000, 1, 2), None, datetime.date(2001, 1, 1)],
        }
    )
    labels = {"variable_value_labels": {"sex": {1: "male", 2: "female"}, "score": {9: "refused"}}}
    write = {"sav": "sav", "zsav": "sav", "dta": "dta", "xpt": "xport"}[ending]
    more = labels if ending != "xpt" else {}
    packed = {"compress": True} if ending == "zsav" else {}
    getattr(pyreadstat, f"write_{write}")(table, f"a.{ending}", **more, **packed)
    said = pytest.warns(ReadingNote, match="column 'score': 9 is 'refused'; if that means missing")
    with said if more else nullcontext():
        data = read(f"a.{ending}", RAW).data
    assert [column.name for column in data.columns] == [*table]
    kinds = ["number", "text" if more else "number", "number", "text", "date"]
    assert [column.kind for column in data.columns] == kinds
    np.testing.assert_array_equal(data.X[:, 0], [61.5, np.nan, 47])
    np.testing.assert_array_equal(np.isnan(data.X[:, 3]), [False, True, False])
    if more:
        assert data.columns[1].levels == ("female", "male")
    Path(f"torn.{ending}").write_bytes(b"no such file" * 100)
    assert f"torn.{ending} is not a whole .{ending} file" in refused(f"torn.{ending}", RAW)


@pytest.mark.parametrize(
    ("module", "file", "extra"),
    [("pyreadstat", "a.sav", "stats"), ("duckdb", "a.duckdb", "duckdb")],
)
def test_without_the_extra_one_line_names_it(module, file, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    Path(file).write_bytes(b"")
    assert f'reading {file} needs pip install "fedcluster[{extra}]"' in refused(file, RAW)


def frame():
    """Rows of three hospitals, with two far groups each."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 60)) + np.repeat([0, 9], 30)
    names = [f"cell-{i}" for i in range(60)]
    return pd.DataFrame({"x": x, "hospital": ["b", "a", "c"] * 20, "y": y}, index=names)


@pytest.mark.parametrize("library", ["polars", "anndata", "pandas"])
@pytest.mark.parametrize("prepare", ["standard", None])
def test_sites_may_be_the_name_of_a_column(library, prepare):
    """Of a data frame, or of what AnnData has in obs."""
    rows = frame()
    model = FederatedKMeans(2, random_state=0, prepare=prepare)
    expected = clone(model).fit(rows[["x", "y"]], sites=rows["hospital"])
    given = rows
    if library == "polars":
        given = pytest.importorskip("polars").from_pandas(rows)
    elif library == "anndata":
        anndata = pytest.importorskip("anndata")
        given = anndata.AnnData(rows[["x", "y"]], obs=rows[["hospital"]])
    found = clone(model).fit(given, sites="hospital")
    assert [site.name for site in found.sites_] == ["a", "b", "c"]
    assert found.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert list(found.feature_names_in_) == ["x", "y"]
    assert list(rows) == ["x", "hospital", "y"]


def test_clusters_stand_in_obs_of_anndata_and_a_row_without_one_has_none():
    anndata = pytest.importorskip("anndata")
    rows = frame()
    cells = anndata.AnnData(rows[["x", "y"]], obs=rows[["hospital"]])
    spec = PreprocessingSpec(missing="drop")
    model = FederatedKMeans(2, random_state=0, prepare=spec).fit(cells, sites="hospital")
    assert model.annotate(cells, key="kmeans") is cells
    assert cells.obs["kmeans"].dtype == "category"
    assert cells.obs["kmeans"].tolist() == model.labels_.astype(str).tolist()
    assert list(cells.obs) == ["hospital", "kmeans"]
    cells.write_h5ad("labelled.h5ad")
    again = anndata.read_h5ad("labelled.h5ad").obs["kmeans"]
    assert again.tolist() == cells.obs["kmeans"].tolist()
    rows.iloc[3, 0] = np.nan
    labelled = model.annotate(anndata.AnnData(rows[["x", "y"]])).obs["cluster"]
    assert labelled.isna().tolist() == [i == 3 for i in range(60)]


def test_a_name_of_a_column_that_is_not_there_is_one_line():
    said = "no column 'ward' that names sites; it has x, hospital, y"
    with pytest.raises(ValueError, match=said):
        FederatedKMeans(2).fit(frame(), sites="ward")
    with pytest.raises(ValueError, match="sites='ward' names a column of a data frame or of AnnD"):
        FederatedKMeans(2).fit(np.zeros((4, 2)), sites="ward")
