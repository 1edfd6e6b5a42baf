"""Rows of databases: the same as of files, in bounded memory, and never a password anywhere."""

from __future__ import annotations

import logging
import sqlite3
import threading
import traceback
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from databases import PASSWORD, Server

from fedcluster.errors import InputError
from fedcluster.frames import WarehouseSource
from fedcluster.frames import rows as reading
from fedcluster.frames.reader import ColumnRoles
from fedcluster_app.tables import table_rows as spool
from fedcluster_app.tables._sql import Query
from fedcluster_app.tables.table_rows import cached_rows

ENVIRONMENT = {"FED_PASSWORD": PASSWORD, "NOBODY": "wrong-" + PASSWORD}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(reading.UnreachableError, "pauses", (0.01, 0.02, 0.03))


@pytest.fixture
def sqlite(tmp_path):
    """A function that answers a query over one table of many kinds of columns."""
    with sqlite3.connect(tmp_path / "clinic.db") as connection:
        connection.execute("CREATE TABLE visits (age REAL, n INTEGER, who TEXT, born TEXT, x)")
        connection.executemany(
            "INSERT INTO visits VALUES (?, ?, ?, ?, ?)",
            [
                (20 + i / 2, i, f"p{i // 3}", "1970-01-01", i if i % 2 else f"{i}?")
                for i in range(9)
            ],
        )
    connection.close()
    return lambda query: Query(WarehouseSource("sqlite:///clinic.db", query, folder=tmp_path))


@pytest.fixture(scope="session")
def visits(postgres: Server) -> Server:
    postgres.execute(
        "CREATE TABLE visits AS SELECT i / 7.0::float8 AS age, i AS n, i::numeric / 8 AS exact, "
        "i % 2 = 0 AS yes, (i % 5)::real AS narrow, 'p' || i / 4 AS who, "
        "date '1970-01-01' + i AS born, NULLIF(i, 3) AS gap, NULL::float8 AS void "
        "FROM generate_series(0, 40000) AS i",
        "CREATE SEQUENCE numbers",
        "GRANT ALL ON SEQUENCE numbers TO PUBLIC",
    )
    return postgres


def asked(server: Server, query: str, **more: Any) -> Query:
    return Query(WarehouseSource(server.url, query, **more), ENVIRONMENT)


def complaint(table: Query, columns: list[str] | ColumnRoles | None = None) -> str:
    """The one line that reading ends with; no part of the error holds a password."""
    with pytest.raises(InputError) as caught:
        cached_rows(table, columns, owner="site 'north'").load()
    whole = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert PASSWORD not in whole
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_every_row_of_an_answer_is_read_once(sqlite, monkeypatch, n) -> None:
    monkeypatch.setattr(spool, "READ", 4)
    rows = cached_rows(sqlite(f"SELECT age, n FROM visits LIMIT {n}"))
    expected = np.column_stack([20 + np.arange(n) / 2, np.arange(n)])
    np.testing.assert_array_equal(rows.load().X, expected)
    assert rows.columns == ("age", "n")


def test_postgres_gives_all_kinds_of_numbers(visits: Server) -> None:
    names = ["age", "n", "exact", "yes", "narrow"]
    rows = cached_rows(asked(visits, f"SELECT {', '.join(names)} FROM visits ORDER BY n"))
    i = np.arange(40_001.0)
    expected = np.column_stack([i / 7, i, i / 8, i % 2 == 0, i % 5])
    np.testing.assert_array_equal(rows.load().X, expected)
    np.testing.assert_array_equal(np.concatenate([c.X for c in rows.chunks()]), expected)


def test_groups_and_labels_come_beside_the_numbers(visits: Server) -> None:
    roles = ColumnRoles(("n",), weight="age", group="who", label="who")
    data = cached_rows(asked(visits, "SELECT * FROM visits ORDER BY n"), roles).load()
    assert data.groups is not None
    assert data.y is not None
    np.testing.assert_array_equal(np.diff(data.groups) != 0, np.arange(1, 40_001) % 4 == 0)
    assert data.y[[0, 3, 4]].tolist() == ["p0", "p0", "p1"]
    assert data.sample_weight is not None
    np.testing.assert_allclose(data.sample_weight, np.arange(40_001) / 7)


def test_colons_and_percent_signs_of_a_query_are_left_alone(visits: Server) -> None:
    query = "SELECT n::int8 AS n FROM visits WHERE who LIKE 'p1%' AND ':x' <> '\\:y' AND n < 8"
    np.testing.assert_array_equal(cached_rows(asked(visits, query)).load().X.ravel(), [4, 5, 6, 7])


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT age, born FROM visits", ["'born'", "a date, is not a number", "columns age"]),
        ("SELECT age, who FROM visits", ["'who'", "'p0' is not a number"]),
        ("SELECT n, gap FROM visits ORDER BY n", ["'gap'", "row 4", "missing"]),
        ("SELECT n, void FROM visits", ["'void'", "every value", "leave the column out"]),
        ("SELECT n FROM visits WHERE n < 0", ["has no rows"]),
        ("SELECT n, age AS n FROM visits", ["two columns 'n'"]),
        ("SELECT nothing FROM visits", ["the database says", "nothing", "does not exist"]),
        ("SELECT n FROM nowhere", ["nowhere", "does not exist"]),
        ("SELECT nextval('numbers')", ["the database says", "in a read-only transaction"]),
        ("CREATE TEMP TABLE a (b int)", ["the database says", "syntax error"]),
    ],
)
def test_what_is_wrong_with_an_answer_is_said_in_one_line(visits, query, words) -> None:
    said = complaint(asked(visits, query))
    assert said.startswith("site 'north'")
    for word in words:
        assert word in said


def test_mixed_types_and_dates_of_sqlite_are_named(sqlite) -> None:
    assert "'0?' is not a number" in complaint(sqlite("SELECT age, x FROM visits"))
    assert "'1970-01-01' is not a number" in complaint(sqlite("SELECT age, born FROM visits"))


def test_what_is_no_question_is_refused(sqlite) -> None:
    assert "without a table; write a SELECT" in complaint(sqlite("PRAGMA temp_store = 2"))
    for query in ("DELETE FROM visits", "DROP TABLE visits", "CREATE TABLE a AS SELECT 1"):
        assert "the database says: attempt to write a readonly database" in complaint(sqlite(query))
    assert len(cached_rows(sqlite("SELECT n FROM visits"))) == 9  # and nothing was deleted


def test_sqlite_does_not_make_a_file_that_is_not_there(tmp_path) -> None:
    assert "none.db does not exist" in complaint(
        Query(WarehouseSource("sqlite:///none.db", "SELECT 1", None, tmp_path))
    )
    assert not list(tmp_path.iterdir())


# Passwords


def test_a_password_comes_from_the_environment_or_a_file(visits: Server, tmp_path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    bare = visits.url.replace(":${FED_PASSWORD}", "")
    whole = {"URL": visits.url.replace("${FED_PASSWORD}", "s3cr3t%3A%2F%40%25w%20rd")}
    for query in (
        asked(visits, "SELECT 1 AS one"),
        Query(WarehouseSource(bare, "SELECT 1 AS one", file), {}),
        Query(WarehouseSource("${URL}", "SELECT 1 AS one"), whole),
    ):
        assert cached_rows(query).load().X.tolist() == [[1.0]]
        assert PASSWORD not in repr(query) + str(query) + repr(vars(query).get("_live"))


def test_a_wrong_password_is_said_once_and_shown_nowhere(visits, monkeypatch, caplog) -> None:
    """Trying it again might lock the account."""
    monkeypatch.setattr(reading.UnreachableError, "pauses", (60.0,))
    caplog.set_level(logging.DEBUG)
    url = visits.url.replace("FED_PASSWORD", "NOBODY")
    said = complaint(Query(WarehouseSource(url, "SELECT 1"), ENVIRONMENT))
    assert "cannot be reached" in said
    assert "password authentication failed" in said
    assert ENVIRONMENT["NOBODY"] not in caplog.text + said


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://fed:hunter2@db/clinic",
        "postgresql+psycopg://fed@db/clinic?password=hunter2",
        "mysql://fed@db/clinic?ssl_token=hunter2",
        "postgresql//fed:hunter2",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_repeated(url) -> None:
    with pytest.raises(InputError) as caught:
        Query(WarehouseSource(url, "SELECT 1"))
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_variable_that_is_not_set_is_named() -> None:
    said = complaint(
        Query(WarehouseSource("postgresql+psycopg://fed:${NO_SUCH}@db/x", "SELECT 1"), {})
    )
    assert "the environment has no variable NO_SUCH" in said


def test_what_a_driver_says_is_searched_for_passwords() -> None:
    from fedcluster_app.tables._sql import _without

    said = f"no host 'x:{PASSWORD}' or s3cr3t%3A/%40%25w%20rd in s3cr3t%3A%2F%40%25w+rd"
    assert _without([PASSWORD], said) == "no host 'x:***' or *** in ***"


def test_an_unknown_driver_is_named() -> None:
    assert "no database 'postgresql+nosuch' is known here" in (
        complaint(Query(WarehouseSource("postgresql+nosuch://db/x", "SELECT 1")))
    )


@pytest.mark.skipif(find_spec("cx_Oracle") is not None, reason="this driver is installed")
def test_a_driver_that_is_not_installed_is_named() -> None:
    assert "needs the driver cx_Oracle, which is not here; install it" in (
        complaint(Query(WarehouseSource("oracle+cx_oracle://db/x", "SELECT 1")))
    )


# A database that is down


def test_a_database_that_is_down_is_tried_four_times() -> None:
    said = complaint(
        Query(
            WarehouseSource("postgresql+psycopg://fed:${P}@127.0.0.1:1/x", "SELECT 1"),
            {"P": PASSWORD},
        )
    )
    assert said.startswith("site 'north': the database postgresql+psycopg://fed:${P}@127.0.0.1:1/x")
    assert said.endswith("(tried 4 times)")


def test_a_database_that_comes_back_is_read(visits: Server, monkeypatch) -> None:
    monkeypatch.setattr(reading.UnreachableError, "pauses", (0.5,) * 20)
    visits.stop()
    back = threading.Timer(0.3, visits.start)
    back.start()
    rows = cached_rows(asked(visits, "SELECT n FROM visits"))
    assert len(rows) == 40_001
    back.join()
    assert not np.isnan(rows.load().X).any()


def test_a_connection_that_breaks_while_it_is_read_starts_again(visits, monkeypatch):
    broken: list[int] = []
    query = asked(visits, "SELECT n FROM visits")
    real = Query.parts

    def breaking(self, *arguments):
        for i, part in enumerate(real(self, *arguments)):
            if i == 1 and not broken:
                broken.append(True)
                visits.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND usename = 'fed'"
                )
            yield part

    monkeypatch.setattr(Query, "parts", breaking)
    monkeypatch.setattr(spool, "READ", 500)
    np.testing.assert_array_equal(np.sort(cached_rows(query).load().X.ravel()), np.arange(40_001.0))
    assert broken
