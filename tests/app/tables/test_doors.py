"""More doors: databases, statistics programs, files elsewhere and objects of other libraries."""

import datetime
import gzip
import io
import re
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from readings import RAW, read, refused, site_file
from sklearn.base import clone
from typed import run

from fedcluster import FederatedKMeans
from fedcluster.errors import InputError, ReadingNote
from fedcluster.frames.rows import FileSource
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.cli._reading import named_sources

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
    held = site_file("clinic.sqlite", table="patients").rows(["age", "n"], raw=True)
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


# Files elsewhere: fetched once, named as they are there, and nothing secret is shown


ELSEWHERE = "key;age\nk1;1,5\nk2;2,5\nk3;90,25\nk4;91,5\n"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    """The address of a server on the loopback interface, and what it was asked."""
    asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            found = "north" in self.path
            body = ELSEWHERE.encode() if found else b""
            self.send_response(200 if found else 403)
            self.end_headers()
            self.wfile.write(gzip.compress(body) if ".gz" in self.path else body)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}", asked
        httpd.shutdown()
        thread.join()


def not_fetched(address):
    """The line that says why a file is not fetched; it holds no secret."""
    with pytest.raises(InputError) as said:
        named_sources([address])
    assert "s3cr3t" not in str(said.value)
    assert "\n" not in str(said.value)
    return str(said.value)


def test_a_file_of_a_web_server_is_fetched_once_and_named_after_its_path(server):
    address, asked = server
    given = [f"{address}/d/north.csv?token=s3cr3t", f"south={address}/north.csv.gz"]
    how = "fit -k 2 --append --id-column key --out out --set sites.north.decimal=,"
    ran = run(how, *given)
    assert ran.exit_code == 0, ran.stderr
    assert sorted(path.name for path in Path("out/labels").iterdir()) == ["north.csv", "south.csv"]
    assert asked == ["/d/north.csv?token=s3cr3t", "/north.csv.gz"]
    for text in (ran.stdout, ran.stderr, *map(Path.read_text, Path("out").glob("*.*"))):
        assert "s3cr3t" not in text


def test_an_address_of_a_store_is_read_by_arrow(tmp_path):
    Path("a b.csv").write_text("x\n1\n2\n")
    rows = read(f"it=file://{tmp_path}/a%20b.csv")
    assert rows.name == "it"
    assert rows.data.X.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/other.csv?sig=s3cr3t", "/other.csv cannot be fetched: the server answers 403; check"),
        ("/?sig=s3cr3t", "/ names no file"),
    ],
)
def test_what_cannot_be_fetched_is_one_line_without_secrets(server, path, line):
    assert line in not_fetched(server[0] + path)


def test_nobody_there_is_one_line():
    said = not_fetched("http://me:s3cr3t@127.0.0.1:1/a.csv?sig=s3cr3t")
    assert re.match(r"http://127\.0\.0\.1/a\.csv cannot be fetched: \w+Error; ", said)
    said = not_fetched("https://me:s3cr3t@x/a.csv:decimal=;")
    assert said.startswith("decimal of a file is a key")


def test_other_stores_are_read_by_fsspec(monkeypatch):
    fsspec = pytest.importorskip("fsspec")

    def opened(self, path, mode="rb", **options):
        if "secret" in path:
            raise LookupError("of a library of its own, s3cr3t")
        return io.BytesIO(ELSEWHERE.encode())

    shelf = type("Shelf", (fsspec.AbstractFileSystem,), {"protocol": "sftp", "_open": opened})
    fsspec.register_implementation("sftp", shelf, clobber=True)
    [(site, source)] = named_sources(["sftp://me@x.example/d/north.csv"]).items()
    assert isinstance(source, FileSource)
    assert (site, source.path.name, source.path.read_text()) == ("north", "north.csv", ELSEWHERE)
    said = not_fetched("sftp://me:s3cr3t@x.example/secret.csv")
    assert re.match("sftp://x.example/secret.csv .* fetched: LookupError;", said)

    def lacking(address, mode):
        raise ImportError("SFTPFileSystem requires 'paramiko' to be installed\nand more")

    monkeypatch.setattr(fsspec, "open", lacking)
    said = not_fetched("sftp://x.example/b.csv")
    assert re.search(r"/b.csv cannot be fetched: SFTP.* 'paramiko' to be ins", said)


def test_without_fsspec_one_line_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    said = not_fetched("sftp://me:s3cr3t@x.example/a.csv?b=s3cr3t")
    needed = 'that needs pip install "fedcluster[fsspec]"'
    assert said == f"sftp://x.example/a.csv cannot be fetched: {needed}"


def test_copies_go_when_the_process_ends(tmp_path):
    Path("a.csv").write_text("x\n1\n")
    code = f"from fedcluster_app.tables.remote import fetched; print(fetched('file://{tmp_path}/a.csv'))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    copy = Path(ran.stdout.strip())
    assert copy.name == "a.csv"
    assert not copy.exists()
    assert not copy.parent.parent.exists()


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
