"""More doors: SQLite, DuckDB, SAS, SPSS and Stata, read as any table is."""

import datetime
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from fedcluster import FederatedKMeans
from fedcluster.core import Data
from fedcluster.errors import InputError, ReadingNote
from fedcluster.frames.reader import ColumnRoles
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.cli._options import ValueOptions
from fedcluster_app.cli._reading import named_sources, read_sites
from fedcluster_app.site.file import SiteFile

pytestmark = pytest.mark.usefixtures("here")

RAW = ColumnRoles(raw=True)


def read(file, table=None, roles=RAW):
    own = {} if table is None else {file.partition(".")[0]: {"table": table}}
    [rows] = read_sites(named_sources([file], ValueOptions(own)), roles).values()
    return rows


def sqlite(path, **tables):
    """Write tables given as a text of columns and a list of rows."""
    with closing(sqlite3.connect(path)) as database:
        for name, (columns, rows) in tables.items():
            name = name.replace('"', '""')
            database.execute(f'CREATE TABLE "{name}" ({columns})')
            marks = ", ".join("?" * len(rows[0]))
            database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        database.commit()


PATIENTS = ("age REAL, sex TEXT, n INTEGER", [(61.5, "F", 3), (None, "M", 4), (47, None, 5)])


def test_a_table_of_sqlite_is_read_without_a_site_file():
    sqlite("clinic.sqlite", patients=PATIENTS, visits=("x REAL", [(1.0,), (2.0,)]))
    rows = read("clinic.sqlite", "patients")
    assert rows.name == "clinic"
    assert [column.kind for column in rows.data.columns] == ["number", "text", "number"]
    expected = [[61.5, 0, 3], [np.nan, 1, 4], [47, np.nan, 5]]
    np.testing.assert_array_equal(rows.data.X, expected)
    Path("site.toml").write_text(
        'name = "a"\n[source]\npath = "clinic.sqlite"\ntable = "patients"\n'
    )
    held = SiteFile.load("site.toml").rows(["age", "n"], raw=True)
    assert isinstance(held, Data)
    np.testing.assert_array_equal(held.X, np.array(expected)[:, [0, 2]])


def test_the_only_table_needs_no_name_and_a_view_is_one():
    sqlite("one.db", **{'odd "name"; --': ("x REAL", [(1.0,), (2.0,)])})
    assert read("one.db").data.X.tolist() == [[1], [2]]
    assert read("one.db", 'odd "name"; --').data.X.tolist() == [[1], [2]]
    with closing(sqlite3.connect("one.db")) as database:
        database.execute('CREATE VIEW twice AS SELECT 2 * x AS y FROM "odd ""name""; --"')
    assert read("one.db", "twice").data.X.tolist() == [[2], [4]]


def test_estimators_take_paths_of_databases():
    for site in "ab":
        sqlite(f"{site}.db", t=("x REAL", [(float(i % 2 * 9 + i / 9),) for i in range(8)]))
    model = FederatedKMeans(2, random_state=0).fit(["a.db", "b.db"])
    np.testing.assert_allclose(np.sort(model.cluster_centers_.ravel()), [1 / 3, 9 + 4 / 9])


def test_cells_of_several_kinds_in_one_column_are_read_as_in_other_sources():
    mixed = [(1, 1, 10**30), (2.5, "a", 1.0), (None, 3, 2.0)]
    sqlite("m.sqlite", t=("whole, mixed, huge", [(a, b, float(c)) for a, b, c in mixed]))
    rows = read("m.sqlite")
    assert [column.kind for column in rows.data.columns] == ["number", "number"]
    assert list(rows.unreadable) == ["mixed"]
    np.testing.assert_array_equal(rows.data.X[:, 0], [1, 2.5, np.nan])


def test_a_database_is_only_read():
    sqlite("a.sqlite", t=("x REAL", [(1.0,)]))
    before = Path("a.sqlite").read_bytes()
    read("a.sqlite")
    assert Path("a.sqlite").read_bytes() == before
    assert [path.name for path in Path().iterdir()] == ["a.sqlite"]


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("a.sqlite c", "a.sqlite has no table 'c'; it has t, u"),
        ("a.sqlite", "a.sqlite has the tables t, u; name one, as in --set sites.a.table=NAME"),
        ("torn.db", "torn.db cannot be read as SQLite: file is not a database"),
        ("none.db", "none.db does not exist; check the path"),
        ("empty.db", "empty.db has the tables none; name one, as in --set sites.empty.table=NAME"),
        ("a.csv t", "table is for SQLite and DuckDB, and a.csv is none"),
    ],
)
def test_what_cannot_be_read_is_one_line(argument, line):
    sqlite("a.sqlite", t=("x REAL", [(1.0,)]), u=("x REAL", [(1.0,)]))
    Path("torn.db").write_bytes(b"no database, but text" * 100)
    Path("empty.db").write_bytes(b"")
    Path("a.csv").write_text("x\n1\n")
    with pytest.raises(InputError) as said:
        read(*argument.split())
    assert str(said.value).partition(": ")[2] == line


def test_a_table_without_rows_says_so():
    with closing(sqlite3.connect("a.db")) as database:
        database.execute("CREATE TABLE t (x REAL)")
    with pytest.raises(InputError, match=r"a\.db has a header but no rows"):
        read("a.db")


def test_a_table_of_duckdb_is_read():
    duckdb = pytest.importorskip("duckdb")
    with closing(duckdb.connect("clinic.duckdb")) as database:
        database.execute("CREATE TABLE patients (age DOUBLE, sex VARCHAR, born DATE)")
        database.execute("INSERT INTO patients VALUES (61.5, 'F', '2000-01-02'), (NULL, 'M', NULL)")
    rows = read("clinic.duckdb")
    assert [column.kind for column in rows.data.columns] == ["number", "text", "date"]
    np.testing.assert_array_equal(rows.data.X[:, 0], [61.5, np.nan])
    with pytest.raises(InputError, match=r"clinic\.duckdb has no table 'b'; it has patients"):
        read("clinic.duckdb", "b")
    Path("torn.duckdb").write_bytes(b"no database" * 1000)
    with pytest.raises(InputError, match=r"torn\.duckdb cannot be read as DuckDB: "):
        read("torn.duckdb")


@pytest.mark.parametrize("ending", ["sav", "zsav", "dta", "xpt"])
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
    getattr(pyreadstat, f"write_{write}")(
        table, f"a.{ending}", **more, **({"compress": True} if ending == "zsav" else {})
    )
    said = pytest.warns(ReadingNote, match="column 'score': 9 is 'refused'; if that means missing")
    with said if more else nullcontext():
        data = read(f"a.{ending}").data
    kinds = {column.name: column.kind for column in data.columns}
    coded = "text" if more else "number"
    assert kinds == {
        "age": "number",
        "sex": coded,
        "score": "number",
        "ward": "text",
        "born": "date",
    }
    np.testing.assert_array_equal(data.X[:, 0], [61.5, np.nan, 47])
    np.testing.assert_array_equal(np.isnan(data.X[:, 3]), [False, True, False])
    if more:
        assert data.columns[1].levels == ("female", "male")
    Path(f"torn.{ending}").write_bytes(b"no such file" * 100)
    with pytest.raises(InputError, match=rf"torn\.{ending} is not a whole \.{ending} file"):
        read(f"torn.{ending}")


@pytest.mark.parametrize(
    ("module", "file", "extra"),
    [("pyreadstat", "a.sav", "stats"), ("duckdb", "a.duckdb", "duckdb")],
)
def test_without_the_extra_one_line_names_it(module, file, extra, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    Path(file).write_bytes(b"")
    with pytest.raises(
        InputError, match=rf'reading {file} needs pip install "fedcluster\[{extra}\]"'
    ):
        read(file)


def frame():
    """Rows of three hospitals, with two far groups each."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 60)) + np.repeat([0, 9], 30)
    return pd.DataFrame({"x": x, "hospital": ["b", "a", "c"] * 20, "y": y})


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("prepare", [None, "standard"])
def test_sites_may_be_the_name_of_a_column_of_a_data_frame(library, prepare):
    rows = frame()
    model = FederatedKMeans(2, random_state=0, prepare=prepare)
    expected = clone(model).fit(rows[["x", "y"]], sites=rows["hospital"])
    given = rows if library == "pandas" else pytest.importorskip("polars").from_pandas(rows)
    found = clone(model).fit(given, sites="hospital")
    assert [site.name for site in found.sites_] == ["a", "b", "c"]
    assert found.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert list(found.feature_names_in_) == ["x", "y"]
    assert list(rows) == ["x", "hospital", "y"]


def test_sites_and_labels_of_anndata_stand_in_obs():
    anndata = pytest.importorskip("anndata")
    rows = frame().set_axis([f"cell-{i}" for i in range(60)])
    cells = anndata.AnnData(rows[["x", "y"]], obs=rows[["hospital"]])
    model = FederatedKMeans(2, random_state=0)
    expected = clone(model).fit(rows[["x", "y"]], sites=rows["hospital"])
    found = model.fit(cells, sites="hospital")
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert found.annotate(cells, key="kmeans") is cells
    assert cells.obs["kmeans"].dtype == "category"
    assert cells.obs["kmeans"].tolist() == expected.labels_.astype(str).tolist()
    assert list(cells.obs) == ["hospital", "kmeans"]
    cells.write_h5ad("labelled.h5ad")
    again = anndata.read_h5ad("labelled.h5ad").obs["kmeans"]
    assert again.tolist() == cells.obs["kmeans"].tolist()


def test_a_row_without_a_cluster_has_none_in_obs():
    anndata = pytest.importorskip("anndata")
    rows = frame()[["x", "y"]].set_axis([f"cell-{i}" for i in range(60)])
    spec = PreprocessingSpec(missing="drop")
    model = FederatedKMeans(2, random_state=0, prepare=spec).fit([rows])
    rows.iloc[3, 0] = np.nan
    labelled = model.annotate(anndata.AnnData(rows)).obs["cluster"]
    assert labelled.isna().tolist() == [i == 3 for i in range(60)]


def test_a_name_of_a_column_that_is_not_there_is_one_line():
    with pytest.raises(
        ValueError, match="no column 'ward' that names sites; it has x, hospital, y"
    ):
        FederatedKMeans(2).fit(frame(), sites="ward")
    with pytest.raises(ValueError, match="sites='ward' names a column of a data frame or of AnnD"):
        FederatedKMeans(2).fit(np.zeros((4, 2)), sites="ward")
