"""Rows of warehouses: of databases, of DuckDB, of Parquet data sets; one state for a run."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from databases import PASSWORD, Server
from pyarrow import parquet
from typed import run

from fedcluster import FederatedKMeans
from fedcluster.errors import InputError
from fedcluster.frames import WarehouseSource
from fedcluster.frames.reader import ColumnRoles
from fedcluster.frames.rows import CHUNK, FileSource, StreamedRows
from fedcluster_app.site.file import SiteFile
from fedcluster_app.tables import open_rows
from fedcluster_app.tables import table_rows as reading
from fedcluster_app.tables._files import connect_duckdb
from fedcluster_app.tables.sources import open_source

N = 2400
YEAR = 2019 + np.arange(N) // 800
AGE, BMI = np.arange(N) % 97 / 4.0, 20.0 + np.arange(N) % 31
TABLE = pa.table(
    {"id": np.arange(N)[::-1], "age": AGE, "bmi": BMI, "year": YEAR, "ward": ["A", "B"] * (N // 2)}
)
ROLES = ColumnRoles(("age", "bmi"))
RULES = "year>=2020, ward=B"
CHOSEN = (YEAR >= 2020) & (np.arange(N) % 2 == 1)
Open = Callable[..., Any]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch, tmp_path):
    monkeypatch.setattr(reading, "READ", 512)
    monkeypatch.chdir(tmp_path)


def write_sqlite(path: str = "rows.db") -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE visits (id INTEGER, age REAL, bmi REAL, year INTEGER, ward TEXT)"
        )
        columns = (TABLE[name].to_pylist() for name in TABLE.column_names)
        database.executemany(
            "INSERT INTO visits VALUES (?, ?, ?, ?, ?)", zip(*columns, strict=True)
        )
        database.commit()


def write_duckdb() -> None:
    duckdb = pytest.importorskip("duckdb")
    with closing(duckdb.connect("rows.duckdb")) as database:
        database.register("held", TABLE)
        database.execute("CREATE TABLE visits AS SELECT * FROM held")


def write_folders(folder: str = "visits") -> None:
    for year in (2019, 2020, 2021):
        place = Path(folder, f"year={year}")
        place.mkdir(parents=True)
        part = TABLE.filter(pa.array(year == YEAR)).drop_columns("year")
        for i in range(2):
            parquet.write_table(part.slice(400 * i, 400), place / f"part-{i}.parquet")


def of_sqlite(**more: Any) -> FileSource:
    write_sqlite()
    return FileSource(Path("rows.db"), table="visits", **more)


def of_duckdb(**more: Any) -> FileSource:
    write_duckdb()
    return FileSource(Path("rows.duckdb"), **more)


def of_folders(**more: Any) -> FileSource:
    write_folders()
    return FileSource(Path("visits"), **more)


def of_store(**more: Any) -> WarehouseSource:
    write_folders()
    return WarehouseSource(f"file://{Path('visits').absolute()}", **more)


def by_duckdb(**more: Any) -> WarehouseSource:
    write_duckdb()
    return WarehouseSource("duckdb:///rows.duckdb", table="visits", **more)


def by_sqlalchemy(**more: Any) -> WarehouseSource:
    write_sqlite()
    return WarehouseSource("sqlite:///rows.db", table="visits", **more)


KINDS = [of_sqlite, of_duckdb, of_folders, of_store, by_duckdb, by_sqlalchemy]


@pytest.mark.parametrize("source", KINDS)
def test_rows_are_those_of_the_table_in_its_order(source: Open) -> None:
    rows = open_rows(source(), ROLES)
    np.testing.assert_array_equal(rows.load().X, np.column_stack([AGE, BMI]))
    assert max(len(chunk) for chunk in rows.read()) <= CHUNK


@pytest.mark.parametrize("source", KINDS)
def test_columns_and_filters_are_pushed_down(source: Open) -> None:
    rows = open_rows(source(where=RULES), ("age", "year"))
    np.testing.assert_array_equal(rows.load().X, np.column_stack([AGE, YEAR])[CHOSEN])


@pytest.mark.parametrize("source", [of_sqlite, of_duckdb, by_duckdb, by_sqlalchemy])
def test_an_order_is_kept(source: Open) -> None:
    rows = open_rows(source(order="id", where="ward='A'"), ("id",)).load()
    np.testing.assert_array_equal(rows.X.ravel(), np.arange(1, N, 2))


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize(
    ("rules", "line"),
    [("nowhere>3", "nowhere"), ("year", "where: 'year' must be as in year>=2020")],
)
def test_a_filter_that_means_nothing_is_one_line(source: Open, rules: str, line: str) -> None:
    with pytest.raises(InputError, match=line) as said:
        open_rows(source(where=rules), ROLES).load()
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("source", [of_sqlite, of_duckdb])
def test_files_that_change_amid_a_run_are_refused(source: Open) -> None:
    opened = open_rows(source(), ROLES)
    if source is of_sqlite:
        with closing(sqlite3.connect("rows.db")) as writer:
            writer.execute("PRAGMA journal_mode = WAL")
            writer.execute("DELETE FROM visits WHERE id < 9")
            writer.commit()
            with pytest.raises(InputError, match=r"rows\.db has changed"):
                opened.load()
    else:
        with closing(__import__("duckdb").connect("rows.duckdb")) as writer:
            writer.execute("DELETE FROM visits WHERE id < 9")
        with pytest.raises(InputError, match=r"rows\.duckdb has changed"):
            opened.load()


@pytest.mark.parametrize("source", [of_folders, of_store])
def test_a_data_set_that_changes_amid_a_run_is_refused(source: Open) -> None:
    opened = open_source(source(), "north")
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
    with closing(sqlite3.connect("rows.db")) as database:
        database.execute(
            "CREATE TABLE mixed AS SELECT CASE WHEN id < 9 THEN .1 ELSE id END AS x FROM visits"
        )
        database.commit()
    rows = open_rows(WarehouseSource("sqlite:///rows.db", table="mixed")).load()
    assert len(rows) == N


def test_what_does_not_go_together_is_refused_as_the_site_file_is_read() -> None:
    for lines, said in {
        'url = "sqlite:///a"': "needs a table or a query, and not both",
        'url = "sqlite:///a"\ntable = "t"\nquery = "SELECT 1"': "and not both",
        'url = "sqlite:///a"\nquery = "SELECT 1"\norder = "a"': "write them into the query",
        'url = "s3://a/b"\ntable = "t"': "a store holds files",
        'path = "a.csv"\nwhere = "a>1"': "where is for",
    }.items():
        Path("a.csv").write_text("a\n1\n2\n")
        Path("north.toml").write_text(f'name = "north"\n[source]\n{lines}\n')
        with pytest.raises(InputError, match=said):
            SiteFile.load("north.toml").opened()


def test_memory_does_not_grow_with_a_table() -> None:
    """Chunks of 512 values: 100,000 rows of Python objects would take above 20 MB."""
    with closing(sqlite3.connect("rows.db")) as database:
        database.execute("CREATE TABLE visits (age REAL, bmi REAL)")
        database.executemany(
            "INSERT INTO visits VALUES (?, ?)", ((i / 2, i) for i in range(100_000))
        )
        database.commit()
    rows: StreamedRows = open_rows(FileSource(Path("rows.db")), ROLES)
    tracemalloc.start()
    assert sum(len(chunk) for chunk in rows.chunks()) == 100_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 9e6


def test_duckdb_is_bounded_and_prints_no_progress_among_results() -> None:
    pytest.importorskip("duckdb")
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


# PostgreSQL


@pytest.fixture(scope="session")
def clinic(postgres: Server) -> Server:
    pytest.importorskip("psycopg")
    postgres.execute(
        "CREATE SCHEMA clinic",
        "CREATE TABLE clinic.visits AS SELECT i AS id, i / 7.0::float8 AS age, "
        "i::numeric / 8 AS exact, (i % 5)::real AS narrow, i % 2 = 0 AS yes, 'p' || i / 4 AS who, "
        "NULLIF(i, 3) AS gap, i::numeric::money AS cost, date '1970-01-01' + i AS born "
        "FROM generate_series(0, 40000) AS i",
    )
    return postgres


def visits(server: Server, **more: Any) -> WarehouseSource:
    return WarehouseSource(server.url, **({"table": "clinic.visits"} | more))


@pytest.fixture(autouse=True)
def _password(monkeypatch):
    monkeypatch.setenv("FED_PASSWORD", PASSWORD)


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
    columns = ("id", "age", "exact", "yes", "narrow")
    source = visits(
        clinic, table=None, query=f"SELECT {', '.join(columns)} FROM clinic.visits ORDER BY id"
    )
    i = np.arange(40_001.0)
    expected = np.column_stack([i, i / 7, i / 8, i % 2 == 0, i % 5])
    np.testing.assert_array_equal(open_rows(source).load().X, expected)


def test_decimals_of_postgres_are_rounded_once(clinic: Server) -> None:
    """Also beside a text, which is not clustered by, and a text that may be a number."""
    exact = [Decimal(f"{x:.12f}") for x in np.random.default_rng(1).uniform(100, 150, 300)]
    values = ", ".join(f"({i}, {x}, {x}, 'p{i % 9}', '0{i}')" for i, x in enumerate(exact))
    clinic.execute(
        "DROP TABLE IF EXISTS clinic.exact",
        "CREATE TABLE clinic.exact (i int8, p numeric(15, 12), q numeric, who text, code text)",
        f"INSERT INTO clinic.exact VALUES {values}",
    )
    source = visits(clinic, table="clinic.exact", order="i")
    for roles in (
        ColumnRoles(("p", "q")),
        ColumnRoles(("p", "q"), group="who"),
        ColumnRoles(("p", "q"), weight="i", label="code"),
    ):
        data = open_rows(source, roles).load()
        np.testing.assert_array_equal(data.X, np.array([exact, exact], float).T)
        if roles.label is not None:
            assert data.y is not None
            assert data.y[:2].tolist() == ["00", "01"]


def test_a_table_of_postgres_is_read_by_columns_filter_and_order(clinic: Server) -> None:
    rows = open_rows(visits(clinic, where="born>=1970-01-11, id<200", order="age"), ("id", "age"))
    np.testing.assert_array_equal(rows.load().X[:, 0], np.arange(10, 200))
    roles = ColumnRoles(("age",), group="who")
    with pytest.raises(
        InputError, match=r"'cost', row 1 .* is of a type that is no number; cast it to numeric"
    ):
        open_rows(visits(clinic), ("cost",)).load()
    data = open_rows(visits(clinic, where="id<100", order="id"), roles)
    assert data.load().groups is not None


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"table": "nowhere"}, "the database says: .*does not exist"),
        ({"where": "who>3", "table": "clinic.visits"}, "the database says: "),
        ({"table": None, "query": "DELETE FROM clinic.visits"}, "the database says: .*DELETE"),
        (
            {"table": None, "query": "SELECT id, gap FROM clinic.visits ORDER BY id"},
            "'gap'.*row 4.*missing",
        ),
    ],
)
def test_what_is_wrong_at_postgres_is_one_line(clinic: Server, more, line) -> None:
    with pytest.raises(InputError, match=line) as said:
        open_rows(visits(clinic, **more), None if more.get("query") else ("age",)).load()
    assert "\n" not in str(said.value)
    assert PASSWORD not in str(said.value)


def test_a_wrong_password_is_shown_nowhere(clinic: Server, monkeypatch) -> None:
    monkeypatch.setenv("FED_PASSWORD", "wrong-" + PASSWORD)
    with pytest.raises(InputError, match="password authentication failed") as said:
        open_rows(visits(clinic)).load()
    assert PASSWORD not in str(said.value)


def test_a_run_sees_one_state_of_a_table(clinic: Server, tmp_path) -> None:
    """Rows that are deleted while it is read, and between rounds, are those of the run."""
    clinic.execute("CREATE TABLE moving AS SELECT * FROM clinic.visits")
    Path("north.toml").write_text(
        f'name = "north"\ncolumns = ["age", "id"]\n[source]\ntable = "moving"\n'
        f'url = "{visits(clinic).url}"\n'
    )
    site = SiteFile.load("north.toml").kept()
    clinic.execute("DELETE FROM moving WHERE id < 1000")
    assert len(site.opened()) == 40_001
    assert (
        site.fingerprint() == site.fingerprint() != SiteFile.load("north.toml").kept().fingerprint()
    )


# The command line and Python


def test_commands_read_databases_and_data_sets_alike(tmp_path) -> None:
    write_sqlite()
    write_duckdb()
    write_folders()
    common = ("-k", "3", "--columns", "age,bmi", "--id-column", "id", "--seed", "1")
    late, early = "where = 'year>=2020'", "where = 'year<2020'"
    for name, sites in {
        "files": [f"path = 'rows.db', {late}", f"path = 'rows.duckdb', {early}"],
        "urls": [
            f"path = 'sqlite:///rows.db', table = 'visits', {late}, order = 'year'",
            "path = 'duckdb:///rows.duckdb', query = 'SELECT * FROM visits WHERE year < 2020'",
        ],
        "folders": [f"path = 'visits', {late}", f"path = 'file://{tmp_path}/visits/', {early}"],
    }.items():
        rows, rows2 = sites
        Path("study.toml").write_text(f"[sites]\nrows = {{ {rows} }}\nrows2 = {{ {rows2} }}\n")
        run("fit", "study.toml", *common, "--out", name, "--append")
    models = [
        json.loads(Path(name, "model.json").read_text()) for name in ("files", "urls", "folders")
    ]
    assert models[0]["centers"] == models[1]["centers"] == models[2]["centers"]
    labels = [Path(name, "labels", "rows.csv").read_text() for name in ("files", "urls", "folders")]
    assert labels[0] == labels[1] == labels[2]
    assert Path("folders/tables/rows2.csv").read_text().startswith('"id","age","bmi","ward","year"')


def test_estimators_take_what_describes_a_source() -> None:
    write_sqlite()
    write_duckdb()
    write_folders()
    duckdb = pytest.importorskip("duckdb")
    model = FederatedKMeans(3, random_state=0)
    pooled = np.column_stack([AGE, BMI])
    expected = model.fit({"a": pooled[YEAR < 2020], "b": pooled[YEAR > 2019]}).cluster_centers_
    source = WarehouseSource("sqlite:///rows.db", "SELECT age, bmi FROM visits WHERE year < 2020")
    rest = ds.dataset("visits", partitioning="hive").to_table(
        ["age", "bmi"], ds.field("year") > 2019
    )
    with closing(duckdb.connect("rows.duckdb", read_only=True)) as database:
        relation = database.sql("SELECT age, bmi FROM visits WHERE year > 2019")
        for table in (rest, relation):
            found = model.fit({"a": source, "b": table}).cluster_centers_
            np.testing.assert_array_equal(found, expected)
    parquet.write_table(TABLE.select(["age", "bmi"]), "rows.parquet")
    every = model.fit({"a": ds.dataset("rows.parquet")}).cluster_centers_
    np.testing.assert_array_equal(every, model.fit({"a": pooled}).cluster_centers_)
