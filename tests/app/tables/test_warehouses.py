"""Rows of databases, of DuckDB, of Parquet data sets: as those of files, and never a password."""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
import threading
import traceback
import tracemalloc
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from databases import PASSWORD, Server
from pyarrow import parquet
from readings import site_file
from typed import run

from fedcluster import FederatedKMeans
from fedcluster.errors import InputError
from fedcluster.frames import WarehouseSource
from fedcluster.frames.reader import ColumnRoles
from fedcluster.frames.rows import CHUNK, FileSource, UnreachableError
from fedcluster_app.site.file import SiteFile
from fedcluster_app.tables import open_rows, table_rows
from fedcluster_app.tables._files import connect_duckdb
from fedcluster_app.tables._sql import Query, _without
from fedcluster_app.tables.sources import open_source
from fedcluster_app.tables.table_rows import cached_rows

N = 2400
YEAR = 2019 + np.arange(N) // 800
AGE, BMI = np.arange(N) % 97 / 4.0, 20.0 + np.arange(N) % 31
WARD = ["A", "B"] * (N // 2)
TABLE = pa.table({"id": np.arange(N)[::-1], "age": AGE, "bmi": BMI, "year": YEAR, "ward": WARD})
ROLES = ColumnRoles(("age", "bmi"))
RULES = "year>=2020, ward=B"
CHOSEN = (YEAR >= 2020) & (np.arange(N) % 2 == 1)


@pytest.fixture(autouse=True)
def _here_and_impatient(monkeypatch, tmp_path):
    monkeypatch.setattr(table_rows, "READ", 512)
    monkeypatch.setattr(UnreachableError, "pauses", (0.01, 0.02, 0.03))
    monkeypatch.setenv("FED_PASSWORD", PASSWORD)
    monkeypatch.chdir(tmp_path)


def sqlite(path: str, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for each in statements:
            database.execute(each)
        database.commit()


def write_sqlite() -> None:
    names, rows = ", ".join(TABLE.column_names), TABLE.to_pylist()
    values = ", ".join(str(tuple(row.values())) for row in rows)
    sqlite(
        "rows.db",
        "CREATE TABLE visits (id INTEGER, age REAL, bmi REAL, year INTEGER, ward TEXT)",
        f"INSERT INTO visits ({names}) VALUES {values}",
    )


def write_duckdb() -> Any:
    duckdb = pytest.importorskip("duckdb")
    with closing(duckdb.connect("rows.duckdb")) as database:
        database.register("held", TABLE)
        database.execute("CREATE TABLE visits AS SELECT * FROM held")
    return duckdb


def write_folders() -> None:
    for year in (2019, 2020, 2021):
        place = Path("visits", f"year={year}")
        place.mkdir(parents=True)
        part = TABLE.filter(pa.array(year == YEAR)).drop_columns("year")
        for i in range(2):
            parquet.write_table(part.slice(400 * i, 400), place / f"part-{i}.parquet")


WRITERS = {"rows.db": write_sqlite, "rows.duckdb": write_duckdb, "visits": write_folders}
KINDS = ["file://visits", "duckdb:///rows.duckdb", *WRITERS, "sqlite:///rows.db"]


def source_of(kind: str, **more: Any) -> Any:
    """A file, a folder or an address of the rows, which are written there."""
    [write] = [write for name, write in WRITERS.items() if kind.endswith(name)]
    write()
    if kind.startswith("file"):
        return WarehouseSource(f"file://{Path('visits').absolute()}", **more)
    if kind in ("visits", "rows.duckdb"):  # the only table needs no name
        return FileSource(Path(kind), **more)
    source = FileSource(Path(kind)) if kind in WRITERS else WarehouseSource(kind, table="visits")
    return replace(source, table="visits", **more)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_table_in_its_order(kind: str) -> None:
    rows = open_rows(source_of(kind), ROLES)
    np.testing.assert_array_equal(rows.load().X, np.column_stack([AGE, BMI]))
    assert max(len(chunk) for chunk in rows.read()) <= CHUNK


@pytest.mark.parametrize("kind", KINDS)
def test_columns_and_filters_are_pushed_down(kind: str) -> None:
    rows = open_rows(source_of(kind, where=RULES), ("age", "year"))
    np.testing.assert_array_equal(rows.load().X, np.column_stack([AGE, YEAR])[CHOSEN])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "visits" not in kind])
def test_an_order_is_kept(kind: str) -> None:
    rows = open_rows(source_of(kind, order="id", where="ward='A'"), ("id",)).load()
    np.testing.assert_array_equal(rows.X.ravel(), np.arange(1, N, 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rules", "line"),
    [("nowhere>3", "nowhere"), ("year", "where: 'year' must be as in year>=2020")],
)
def test_a_filter_that_means_nothing_is_one_line(kind: str, rules: str, line: str) -> None:
    with pytest.raises(InputError, match=line) as said:
        open_rows(source_of(kind, where=rules), ROLES).load()
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("kind", ["rows.db", "rows.duckdb"])
def test_files_that_change_amid_a_run_are_refused(kind: str) -> None:
    opened = open_rows(source_of(kind), ROLES)
    if kind == "rows.db":
        writer = sqlite3.connect("rows.db")
        writer.execute("PRAGMA journal_mode = WAL")
    else:
        writer = __import__("duckdb").connect("rows.duckdb")
    with closing(writer):
        writer.execute("DELETE FROM visits WHERE id < 9")
        writer.commit()
        if kind == "rows.db":  # DuckDB lets nobody read meanwhile
            with pytest.raises(InputError, match=r"rows\.db has changed"):
                opened.load()
            return
    with pytest.raises(InputError, match=r"rows\.duckdb has changed"):
        opened.load()


@pytest.mark.parametrize("kind", ["visits", "file://visits"])
def test_a_data_set_that_changes_amid_a_run_is_refused(kind: str) -> None:
    opened = open_source(source_of(kind), "north")
    assert isinstance(opened, list)
    [table] = opened
    parts = table.parts(["age"], 100)
    assert next(parts).rows.num_rows <= 100
    parquet.write_table(TABLE.drop_columns("year"), "visits/year=2021/part-1.parquet")
    with pytest.raises(InputError, match=r"visits has changed since it was opened"):
        list(parts)


def test_a_file_of_a_data_set_that_lacks_a_column_is_named() -> None:
    write_folders()
    parquet.write_table(TABLE.select(["id", "age"]), "visits/year=2021/part-1.parquet")
    with pytest.raises(InputError, match=r"year=2021/part-1\.parquet.*'bmi'"):
        open_rows(FileSource(Path("visits")), ROLES)


def test_a_type_that_changes_within_sqlite_is_read() -> None:
    write_sqlite()
    mixed = "SELECT CASE WHEN id < 9 THEN .1 ELSE id END AS x FROM visits"
    assert len(open_rows(WarehouseSource("sqlite:///rows.db", mixed)).load()) == N


@pytest.mark.parametrize("n", [1, 512, 2, 513])
def test_every_row_of_an_answer_is_read_once(n) -> None:
    write_sqlite()
    rows = open_rows(WarehouseSource("sqlite:///rows.db", f"SELECT age, bmi FROM visits LIMIT {n}"))
    np.testing.assert_array_equal(rows.load().X, np.column_stack([AGE, BMI])[:n])
    assert rows.columns == ("age", "bmi")


def test_what_does_not_go_together_is_refused_as_the_site_file_is_read() -> None:
    Path("a.csv").write_text("a\n1\n2\n")
    for source, said in [
        ({"url": "sqlite:///a"}, "needs a table or a query, and not both"),
        ({"url": "sqlite:///a", "table": "t", "query": "SELECT 1"}, "and not both"),
        ({"url": "sqlite:///a", "query": "SELECT 1", "order": "a"}, "write them into the query"),
        ({"url": "s3://a/b", "table": "t"}, "a store holds files"),
        ({"path": "a.csv", "where": "a>1"}, "where is for"),
    ]:
        with pytest.raises(InputError, match=said):
            site_file(source.pop("path", None), **source).opened()


def test_memory_does_not_grow_with_a_table() -> None:
    """Chunks of 512 values: 100,000 rows of Python objects would take above 20 MB."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)"
    sqlite(
        "rows.db", f"CREATE TABLE visits AS {numbers} SELECT i / 2. AS age, i * 1. AS bmi FROM n"
    )
    rows = open_rows(FileSource(Path("rows.db")), ROLES)
    tracemalloc.start()
    assert sum(len(chunk) for chunk in rows.chunks()) == 100_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 9e6


def test_duckdb_is_bounded_and_prints_no_progress_among_results() -> None:
    write_duckdb()
    names = ("enable_progress_bar", "memory_limit", "threads", "temp_directory")
    asked = ", ".join(f"current_setting('{name}')" for name in names)
    with closing(connect_duckdb("rows.duckdb")) as database:
        [(bar, memory, threads, sorting)] = database.execute(f"SELECT {asked}").fetchall()
    assert (bar, memory, threads) == (False, "488.2 MiB", 4)
    assert Path(sorting).parent.stat().st_mode & 0o777 == 0o700


PEAK = """
import re, sys
from pathlib import Path
from fedcluster.frames import WarehouseSource
from fedcluster_app.tables import open_rows
from fedcluster.frames.reader import ColumnRoles
from fedcluster.frames.rows import FileSource
rows = open_rows(eval(sys.argv[1]), ColumnRoles(("age", "bmi")))
assert sum(len(chunk) for chunk in rows.chunks()) == int(sys.argv[2])
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def peak(source: Any, n: int) -> float:
    """Return the most memory of a process that reads n rows, in MB."""
    asked = [sys.executable, "-c", PEAK, repr(source).replace("PosixPath", "Path"), str(n)]
    done = subprocess.run(asked, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return float(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["folder", "rows.parquet", "one.parquet"])
def test_memory_of_a_process_does_not_grow_with_a_data_set(kind: str) -> None:
    """Of two columns with 4 times the rows, 190 MB more, an eighth may be held at once."""
    duckdb = pytest.importorskip("duckdb")
    peaks = []
    for n in (1 << 22, 1 << 24):
        made = f"SELECT random() AS age, random() AS bmi, 2019 + i // {n // 4} AS year"
        how = "FORMAT parquet" + ", PARTITION_BY (year), OVERWRITE" * (kind == "folder")
        with closing(duckdb.connect()) as here:
            here.execute(f"COPY ({made} FROM range({n}) AS of(i)) TO '{kind}' ({how})")
        where, found = ("year>=2020", n * 3 // 4) if kind == "rows.parquet" else (None, n)
        peaks.append(peak(FileSource(Path(kind), where=where), found))
    assert peaks[1] - peaks[0] < 24, peaks


@pytest.mark.long
def test_memory_of_a_process_is_that_which_duckdb_may_use(tmp_path) -> None:
    """A file of 1 GB that is sorted takes 2.5 GB without a bound."""
    duckdb = pytest.importorskip("duckdb")
    n = 1 << 24
    made = ", ".join(f"random() AS {name}" for name in ("age", "bmi", *"abcdef"))
    with closing(duckdb.connect("large.duckdb")) as here:
        here.execute(f"CREATE TABLE t AS SELECT {made} FROM range({n})")
    assert peak(FileSource(Path("large.duckdb"), order="age"), n) < 900
    assert [each.name for each in tmp_path.iterdir()] == ["large.duckdb"]


def complaint(table: Query, columns: Any = None) -> str:
    """The one line that reading ends with; no part of the error holds a password."""
    with pytest.raises(InputError) as caught:
        cached_rows(table, columns, owner="site 'north'").load()
    whole = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert PASSWORD not in whole
    assert "\n" not in str(caught.value)
    return str(caught.value)


def about(url: str, query: str = "SELECT 1", **environment: str) -> str:
    return complaint(Query(WarehouseSource(url, query), environment))


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("PRAGMA temp_store = 2", "without a table; write a SELECT"),
        ("DELETE FROM visits", "the database says: attempt to write a readonly database"),
        ("DROP TABLE visits", "the database says: attempt to write a readonly database"),
        ("CREATE TABLE a AS SELECT 1", "the database says: attempt to write a readonly database"),
        ("SELECT age, iif(id % 2, id, id || '?') AS x FROM visits", "'2398?' is not a number"),
        ("SELECT age, '1970-01-01' AS born FROM visits", "'1970-01-01' is not a number"),
    ],
)
def test_what_is_no_question_or_no_number_is_refused_by_sqlite(query, line) -> None:
    write_sqlite()
    assert line in about("sqlite:///rows.db", query)
    assert len(open_rows(FileSource(Path("rows.db")), ROLES)) == N  # nothing was deleted


def test_sqlite_does_not_make_a_file_that_is_not_there(tmp_path) -> None:
    assert "none.db does not exist" in about("sqlite:///none.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://fed@db/clinic?password=hunter2",
        "mysql://fed@db/clinic?ssl_token=hunter2",
        "postgresql+psycopg://fed:hunter2@db/clinic",
        "postgresql//fed:hunter2",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_repeated(url) -> None:
    with pytest.raises(InputError) as caught:
        Query(WarehouseSource(url, "SELECT 1"))
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_what_a_driver_says_is_searched_for_passwords() -> None:
    said = f"no host 'x:{PASSWORD}' or s3cr3t%3A/%40%25w%20rd in s3cr3t%3A%2F%40%25w+rd"
    assert _without([PASSWORD], said) == "no host 'x:***' or *** in ***"


def test_what_is_not_here_is_named() -> None:
    said = about("postgresql+psycopg://fed:${NO_SUCH}@db/x")
    assert "the environment has no variable NO_SUCH" in said
    said = about("postgresql+nosuch://db/x")
    assert "no database 'postgresql+nosuch' is known here" in said


@pytest.mark.skipif(find_spec("cx_Oracle") is not None, reason="this driver is installed")
def test_a_driver_that_is_not_installed_is_named() -> None:
    said = about("oracle+cx_oracle://db/x")
    assert "needs the driver cx_Oracle, which is not here; install it" in said


def test_a_database_that_is_down_is_tried_four_times() -> None:
    url = "postgresql+psycopg://fed:${P}@127.0.0.1:1/x"
    said = about(url, P=PASSWORD)
    assert said.startswith(f"site 'north': the database {url}")
    assert said.endswith("(tried 4 times)")


# PostgreSQL


@pytest.fixture(scope="session")
def clinic(postgres: Server) -> Server:
    postgres.execute(
        "CREATE SCHEMA clinic",
        "CREATE TABLE clinic.visits AS SELECT i AS id, i / 7.0::float8 AS age, "
        "i::numeric / 8 AS exact, (i % 5)::real AS narrow, i % 2 = 0 AS yes, 'p' || i / 4 AS who, "
        "NULLIF(i, 3) AS gap, NULL::float8 AS void, i::numeric::money AS cost, "
        "date '1970-01-01' + i AS born FROM generate_series(0, 40000) AS i",
        "CREATE SEQUENCE numbers",
        "GRANT ALL ON SEQUENCE numbers TO PUBLIC",
    )
    return postgres


def visits(server: Server, query: str | None = None, **more: Any) -> WarehouseSource:
    """A table, or the answer to a query, in which V stands for the table of visits."""
    table = {} if query else {"table": "clinic.visits"}
    asked = query and query.replace("V", "clinic.visits")
    return WarehouseSource(server.url, asked, **(table | more))


@pytest.mark.long
@pytest.mark.parametrize("order", [None, "age"])
def test_memory_of_a_process_does_not_grow_with_a_table_of_postgres(clinic, order) -> None:
    peaks = []
    for n in (1 << 20, 1 << 22):
        made = f"SELECT random() AS age, random() AS bmi FROM generate_series(1, {n})"
        clinic.execute("DROP TABLE IF EXISTS large", f"CREATE TABLE large AS {made}")
        peaks.append(peak(visits(clinic, table="large", order=order), n))
    assert peaks[1] - peaks[0] < 24, peaks


def test_postgres_gives_all_kinds_of_numbers(clinic: Server) -> None:
    rows = open_rows(visits(clinic, "SELECT id, age, exact, yes, narrow FROM V ORDER BY id"))
    i = np.arange(40_001.0)
    expected = np.column_stack([i, i / 7, i / 8, i % 2 == 0, i % 5])
    np.testing.assert_array_equal(rows.load().X, expected)
    np.testing.assert_array_equal(np.concatenate([c.X for c in rows.chunks()]), expected)


def test_groups_and_labels_come_beside_the_numbers(clinic: Server) -> None:
    roles = ColumnRoles(("id",), weight="age", group="who", label="who")
    data = open_rows(visits(clinic, "SELECT * FROM V ORDER BY id"), roles).load()
    assert data.groups is not None
    assert data.y is not None
    np.testing.assert_array_equal(np.diff(data.groups) != 0, np.arange(1, 40_001) % 4 == 0)
    assert data.y[[0, 3, 4]].tolist() == ["p0", "p0", "p1"]
    assert data.sample_weight is not None
    np.testing.assert_allclose(data.sample_weight, np.arange(40_001) / 7)


def test_colons_and_percent_signs_of_a_query_are_left_alone(clinic: Server) -> None:
    query = "SELECT id::int8 FROM V WHERE who LIKE 'p1%' AND ':x' <> '\\:y' AND id < 8"
    assert open_rows(visits(clinic, query)).load().X.ravel().tolist() == [4, 5, 6, 7]


def test_decimals_of_postgres_are_rounded_once(clinic: Server) -> None:
    """Also beside a text, which is not clustered by, and a text that may be a number."""
    exact = [Decimal(f"{x:.12f}") for x in np.random.default_rng(1).uniform(100, 150, 300)]
    values = ", ".join(f"({i}, {x}, {x}, 'p{i % 9}', '0{i}')" for i, x in enumerate(exact))
    clinic.execute(
        "CREATE TABLE clinic.exact (i int8, p numeric(15, 12), q numeric, who text, code text)",
        f"INSERT INTO clinic.exact VALUES {values}",
    )
    source = visits(clinic, table="clinic.exact", order="i")
    columns = ("p", "q")
    for roles in (
        ColumnRoles(columns),
        ColumnRoles(columns, group="who"),
        ColumnRoles(columns, weight="i", label="code"),
    ):
        data = open_rows(source, roles).load()
        np.testing.assert_array_equal(data.X, np.array([exact, exact], float).T)
    assert data.y is not None
    assert data.y[:2].tolist() == ["00", "01"]


def test_a_table_of_postgres_is_read_by_columns_filter_and_order(clinic: Server) -> None:
    rows = open_rows(visits(clinic, where="born>=1970-01-11, id<200", order="age"), ("id", "age"))
    np.testing.assert_array_equal(rows.load().X[:, 0], np.arange(10, 200))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT nextval('numbers')", ["the database says", "in a read-only transaction"]),
        ("SELECT id, gap FROM V ORDER BY id", ["'gap'", "row 4", "missing"]),
        ("SELECT age, born FROM V", ["'born'", "a date, is not a number", "columns age"]),
        ("SELECT age, who FROM V", ["'who'", "'p0' is not a number"]),
        ("SELECT age, cost FROM V", ["'cost', row 1", "of a type that is no number; cast it to"]),
        ("SELECT id, void FROM V", ["'void'", "every value", "leave the column out"]),
        ("SELECT id FROM V WHERE id < 0", ["has no rows"]),
        ("SELECT id, age AS id FROM V", ["two columns 'id'"]),
        ("SELECT nothing FROM V", ["the database says", "nothing", "does not exist"]),
        ("SELECT n FROM nowhere", ["the database says", "nowhere", "does not exist"]),
        ("CREATE TEMP TABLE a (b int)", ["the database says", "syntax error"]),
        ("DELETE FROM V", ["the database says", "DELETE"]),
        ({"table": "nowhere"}, ["the database says", "does not exist"]),
        ({"where": "who>3"}, ["the database says: "]),
    ],
)
def test_what_is_wrong_with_an_answer_is_said_in_one_line(clinic, query, words) -> None:
    asked = {"query": query} if isinstance(query, str) else query
    columns = None if isinstance(query, str) else ("age",)
    said = complaint(Query(visits(clinic, **asked)), columns)
    assert said.startswith("site 'north'")
    for word in words:
        assert word in said


def test_a_password_comes_from_the_environment_or_a_file(postgres: Server) -> None:
    file = Path("password")
    file.write_text(PASSWORD + "\n")
    bare = postgres.url.replace(":${FED_PASSWORD}", "")
    whole = {"URL": postgres.url.replace("${FED_PASSWORD}", "s3cr3t%3A%2F%40%25w%20rd")}
    for query in (
        Query(WarehouseSource(postgres.url, "SELECT 1 AS one")),
        Query(WarehouseSource(bare, "SELECT 1 AS one", file), {}),
        Query(WarehouseSource("${URL}", "SELECT 1 AS one"), whole),
    ):
        assert cached_rows(query).load().X.tolist() == [[1.0]]
        assert PASSWORD not in repr(query) + str(query) + repr(vars(query).get("_live"))


def test_a_wrong_password_is_said_once_and_shown_nowhere(postgres, monkeypatch, caplog) -> None:
    """Trying it again might lock the account."""
    monkeypatch.setattr(UnreachableError, "pauses", (60.0,))
    caplog.set_level(logging.DEBUG)
    said = about(postgres.url, FED_PASSWORD="wrong-" + PASSWORD)
    assert "cannot be reached" in said
    assert "password authentication failed" in said
    assert "wrong-" not in caplog.text + said


def test_a_database_that_comes_back_is_read(clinic: Server, monkeypatch) -> None:
    monkeypatch.setattr(UnreachableError, "pauses", (0.5,) * 20)
    clinic.stop()
    back = threading.Timer(0.3, clinic.start)
    back.start()
    rows = open_rows(visits(clinic, "SELECT id FROM V"))
    assert len(rows) == 40_001
    back.join()
    assert not np.isnan(rows.load().X).any()


def test_a_connection_that_breaks_while_it_is_read_starts_again(clinic, monkeypatch):
    broken: list[bool] = []
    real = Query.parts

    def breaking(self, *arguments):
        for i, part in enumerate(real(self, *arguments)):
            if i == 1 and not broken:
                broken.append(True)
                clinic.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND usename = 'fed'"
                )
            yield part

    monkeypatch.setattr(Query, "parts", breaking)
    rows = open_rows(visits(clinic, "SELECT id FROM V")).load()
    np.testing.assert_array_equal(np.sort(rows.X.ravel()), np.arange(40_001.0))
    assert broken


def test_a_run_sees_one_state_of_a_table(clinic: Server) -> None:
    """Rows that are deleted while it is read, and between rounds, are those of the run."""
    clinic.execute("CREATE TABLE moving AS SELECT * FROM clinic.visits")
    moving = site_file(None, 'columns = ["age", "id"]', url=clinic.url, table="moving").kept()
    clinic.execute("DELETE FROM moving WHERE id < 1000")
    assert len(moving.opened()) == 40_001
    other = SiteFile.load("north.toml").kept()
    assert moving.fingerprint() == moving.fingerprint() != other.fingerprint()


def test_commands_read_databases_and_data_sets_alike(tmp_path) -> None:
    write_sqlite()
    write_duckdb()
    write_folders()
    late, early = "where = 'year>=2020'", "where = 'year<2020'"
    found = []
    for name, (rows, rows2) in {
        "files": (f"path = 'rows.db', {late}", f"path = 'rows.duckdb', {early}"),
        "urls": (
            f"path = 'sqlite:///rows.db', table = 'visits', {late}, order = 'year'",
            "path = 'duckdb:///rows.duckdb', query = 'SELECT * FROM visits WHERE year < 2020'",
        ),
        "folders": (f"path = 'visits', {late}", f"path = 'file://{tmp_path}/visits/', {early}"),
    }.items():
        Path("study.toml").write_text(f"[sites]\nrows = {{ {rows} }}\nrows2 = {{ {rows2} }}\n")
        options = "-k 3 --columns age,bmi --id-column id --seed 1 --append --out"
        run(f"fit study.toml {options} {name}")
        centers = json.loads(Path(name, "model.json").read_text())["centers"]
        found.append((centers, Path(name, "labels", "rows.csv").read_text()))
    assert found[0] == found[1] == found[2]
    assert Path("folders/tables/rows2.csv").read_text().startswith('"id","age","bmi","ward","year"')


def test_estimators_take_what_describes_a_source() -> None:
    write_sqlite()
    write_folders()
    duckdb = write_duckdb()
    model = FederatedKMeans(3, random_state=0)
    pooled = np.column_stack([AGE, BMI])
    expected = model.fit({"a": pooled[YEAR < 2020], "b": pooled[YEAR > 2019]}).cluster_centers_
    source = WarehouseSource("sqlite:///rows.db", "SELECT age, bmi FROM visits WHERE year < 2020")
    late = ds.field("year") > 2019
    rest = ds.dataset("visits", partitioning="hive").to_table(["age", "bmi"], late)
    with closing(duckdb.connect("rows.duckdb", read_only=True)) as database:
        relation = database.sql("SELECT age, bmi FROM visits WHERE year > 2019")
        for table in (rest, relation):
            found = model.fit({"a": source, "b": table}).cluster_centers_
            np.testing.assert_array_equal(found, expected)
    parquet.write_table(TABLE.select(["age", "bmi"]), "rows.parquet")
    every = model.fit({"a": ds.dataset("rows.parquet")}).cluster_centers_
    np.testing.assert_array_equal(every, model.fit({"a": pooled}).cluster_centers_)
