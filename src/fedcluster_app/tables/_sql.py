"""Rows of a database: of DuckDB as Arrow, else through SQLAlchemy.

All rows come from one statement, so that they are those of one moment, and are fetched in parts.
Passwords come from the environment or from a file, and are removed from every message.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from functools import cached_property, partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, quote_plus

import numpy as np
import pyarrow as pa

from fedcluster.errors import InputError
from fedcluster.frames.cells import column_of
from fedcluster.frames.columns import first_twice
from fedcluster.frames.reader import TablePart
from fedcluster.frames.rows import (
    UnreachableError,
    WarehouseSource,
    check_chosen,
    in_quotes,
    patiently,
    readable,
    statement,
)
from fedcluster_app.tables._files import connect_duckdb
from fedcluster_app.tables.outputs import as_arrow

try:
    import sqlalchemy
    from sqlalchemy.engine import URL, Connection, CursorResult, Engine
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
except ImportError as error:
    raise InputError(
        'reading a database needs SQLAlchemy: pip install "fedcluster[sql]"'
    ) from error


HOW = {"stream_results": True, "max_row_buffer": 1, "postgresql_readonly": True}
"""Execution options: a server-side cursor, small buffers, and read-only access."""
NUMBERS = {bool, int, float, Decimal, type(None)}
"""Types of cells that NumPy converts as Arrow does; of texts, it makes numbers where it can."""
NO_TABLE = "the query answers without a table; write a SELECT"
PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
SECRET = re.compile(r"pass|pwd|secret|token|key$", re.IGNORECASE)
REFUSED = re.compile(r"password|authentication|access denied|login failed", re.IGNORECASE)


class Query:
    """A query to a database: a table that can be read some rows at a time.

    Parameters
    ----------
    source : WarehouseSource
        The address of the database, and the query. A password may not be written in the URL.
    environment : mapping, optional
        The environment, by default this process's.

    Raises
    ------
    InputError
        If the URL is invalid or holds a password; later, if the database cannot be reached in four
        attempts, or refuses the query.
    """

    path = Path("the query's answer")  # shown in messages
    decimal = None  # databases return numbers, not text
    fingerprint = None  # not needed: a query is run once

    def __init__(
        self, source: WarehouseSource, environment: Mapping[str, str] = os.environ
    ) -> None:
        _no_password(source.url)
        source.check()
        self._source, self._environment = source, environment
        self._live: _Answer | None = None

    def __repr__(self) -> str:
        return f"Query({self._source.url!r})"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns; this runs the query, whose result is read later.

        For a table, no rows are requested.
        """
        answer = patiently(lambda: self._asked(none=True))
        if self._source.query is None:
            answer.close()
            check_chosen(self._source, answer.names)
        else:
            self._live = answer
        return answer.names

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, ``n_rows`` rows at a time, without keeping any."""
        answer, self._live = self._live or self._asked(columns), None
        start = 0
        try:
            with answer.translating():
                for rows in answer.tables(columns, n_rows):
                    yield TablePart(self, start, rows)
                    start += rows.num_rows
        finally:
            answer.close()

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is in the result."""
        return f"row {row + 1} of the query's answer"

    def _asked(self, columns: Sequence[str] | None = None, *, none: bool = False) -> _Answer:
        """Run the query; its result is read later."""
        url, secrets = self._resolved()
        if url.get_backend_name() == "duckdb":
            connect, errors = _duckdb(url)
            quoted: Callable[[str], str] = in_quotes
            asked: Any = partial(_ArrowAnswer, connect)
            is_away: Any = _is_here
        else:
            engine = self._engine(url)
            quoted = engine.dialect.identifier_preparer.quote_identifier
            errors = (SQLAlchemyError, engine.dialect.loaded_dbapi.Error)
            asked, is_away = partial(_RowAnswer, engine), partial(_is_lost, engine.dialect)
        translating = partial(_translating, self._source.url, secrets, errors, is_away)
        with translating():
            answer: _Answer = asked(self._statement(columns, quoted, none=none), translating)
            return answer

    def _statement(
        self, columns: Sequence[str] | None, quoted: Callable[[str], str], *, none: bool
    ) -> str:
        if self._source.query is not None:
            return self._source.query
        table = ".".join(map(quoted, str(self._source.table).split(".")))
        wanted = replace(self._source, order=None) if none else self._source
        text = statement(table, columns, wanted, quoted)
        return f"SELECT * FROM ({text}) AS rows_of WHERE 1 = 0" if none else text

    def _engine(self, url: URL) -> Engine:
        try:
            engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
        except ModuleNotFoundError as error:
            raise InputError(
                f"{self._source.url} needs the driver {error.name}, which is not here; install it, "
                "or name another in the url, as in postgresql+psycopg://"
            ) from None
        except NoSuchModuleError:
            raise InputError(
                f"{self._source.url}: no database {url.drivername!r} is known here; mend the url's "
                "first word, or install what SQLAlchemy needs for that database"
            ) from None
        sqlalchemy.event.listen(engine, "before_cursor_execute", _binary)
        if engine.dialect.name == "sqlite":
            sqlalchemy.event.listen(engine, "connect", _read_only)
        return engine

    def _resolved(self) -> tuple[URL, list[str]]:
        """Return the URL with its variables filled in, and its secrets."""
        if PLACEHOLDER.fullmatch(self._source.url):
            url = _parsed(self._filled(self._source.url))
        else:
            url = self._filled_parts(_parsed(self._source.url))
        if (file := self._source.password_file) is not None:
            with readable(file):
                url = url.set(password=file.read_text("utf-8").strip())
        return self._existing(url), _secrets(url)

    def _filled_parts(self, url: URL) -> URL:
        """Replace variables of the environment in each part of the URL, unescaped."""
        parts: dict[str, Any] = {
            part: self._filled(value)
            for part in ("username", "password", "host", "database")
            if (value := getattr(url, part))
        }
        query = {n: self._filled(v) if isinstance(v, str) else v for n, v in url.query.items()}
        return url.set(**parts, query=query)

    def _filled(self, text: str) -> str:
        """Replace variables of the environment in a text."""
        for name in PLACEHOLDER.findall(text):
            if name not in self._environment:
                raise InputError(f"the environment has no variable {name}, which url names")
        return PLACEHOLDER.sub(lambda name: self._environment[name[1]], text)

    def _existing(self, url: URL) -> URL:
        """Return the URL; of a file, which might be created if it is missing, with its path."""
        name = url.database
        if (
            url.get_backend_name() not in ("sqlite", "duckdb")
            or not name
            or name.startswith((":", "file:"))
        ):
            return url
        path = self._source.folder / name
        if not path.is_file():
            raise InputError(f"{path} does not exist; check the path")
        return url.set(database=str(path))


@contextmanager
def _translating(
    url: str, secrets: Sequence[str], errors: Any, is_away: Callable[..., bool], raw: Any = None
) -> Iterator[None]:
    """Turn an error of a database or its driver into one line without passwords."""
    try:
        yield
        return
    except errors as error:
        reason = _without(secrets, getattr(error, "orig", None) or error)
        failed = InputError(f"the database says: {reason}")
        if is_away(error, raw):
            away = f"the database {url} cannot be reached: {reason}"
            passes = not url.startswith("sqlite") and not REFUSED.search(reason)
            failed = UnreachableError(away) if passes else InputError(away)
    raise failed  # raised outside the except block, as the driver's error may show the password


# Answers


class _Answer(Protocol):
    """Result of a query that is still to be read."""

    names: tuple[str, ...]
    translating: Callable[[], AbstractContextManager[None]]

    def tables(self, columns: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Yield some columns, about ``n_rows`` rows at a time."""

    def close(self) -> None:
        """Close the result and its connection."""


class _RowAnswer:
    """Result that SQLAlchemy returns in rows."""

    def __init__(self, engine: Engine, asked: str, translating: Any) -> None:
        connection, result = engine.connect(), None
        try:
            result = connection.execution_options(**HOW).execute(
                sqlalchemy.text(asked.replace(":", "\\:"))
            )
            self.names = _names(result)
        except BaseException:
            _close(connection, result)
            raise
        self._result, self.close = result, partial(_close, connection, result)
        raw = connection.connection.dbapi_connection
        self.translating = partial(translating, raw=raw)
        weakref.finalize(self, self.close)  # closes the connection if the result is never read

    def tables(self, columns: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Yield some columns, ``n_rows`` rows at a time."""
        places = {name: j for j, name in reversed([*enumerate(self.names)])}
        place = [places[name] for name in columns]
        for rows in _batches(self._result, n_rows):
            yield pa.table(_columns(rows, place), list(columns))


class _ArrowAnswer:
    """Result that DuckDB returns in Arrow batches."""

    def __init__(self, connect: Callable[[], Any], asked: str, translating: Any) -> None:
        self.translating = translating
        held = ExitStack()
        self.close = held.close
        weakref.finalize(self, self.close)  # closes the connection if the result is never read
        try:
            connection = held.enter_context(closing(connect()))
            self._reader = _arrow_of(connection, asked)
            self.names = _different(self._reader.schema.names)
        except BaseException:
            self.close()
            raise

    def tables(self, columns: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Yield some columns in parts of at most ``n_rows`` rows."""
        for batch in self._reader:
            kept = [_plain(batch.column(name)) for name in columns]
            for start in range(0, batch.num_rows, n_rows):
                few = [each.slice(start, n_rows) for each in kept]
                yield pa.Table.from_arrays(few, list(columns))


def _arrow_of(connection: Any, asked: str) -> Any:
    """Return a reader of the Arrow batches of a query's result."""
    if (found := connection.sql(asked)) is None:
        raise InputError(NO_TABLE)
    read = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader
    return read()


def _duckdb(url: URL) -> tuple[Callable[[], Any], Any]:
    """Return a function that opens a DuckDB file read-only, and DuckDB's errors."""
    try:
        duckdb = import_module("duckdb")
    except ImportError:
        raise InputError('duckdb:// needs pip install "fedcluster[duckdb]"') from None
    return partial(connect_duckdb, str(url.database)), (duckdb.Error,)


def _is_here(_error: Any, _raw: Any) -> bool:
    """Return that a file can be reached, whatever is wrong with it."""
    return False


def _is_lost(dialect: Any, error: Any, raw: Any) -> bool:
    """Return whether an error of SQLAlchemy means that the database cannot be reached."""
    connected = getattr(error, "statement", "fetched") is not None
    lost = getattr(error, "connection_invalidated", False)
    cause = getattr(error, "orig", None) or error
    return not connected or bool(lost or dialect.is_disconnect(cause, raw, None))


def _plain(column: pa.Array) -> pa.Array:
    """Return a column of a database's own type as its storage type."""
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _close(connection: Connection, result: CursorResult[Any] | None) -> None:
    """Close a result and its connection, even if the connection is lost."""
    with suppress(Exception):  # SQLAlchemy would log the driver's error
        if result is not None and result.cursor is not None:
            result.cursor.close()
    with suppress(SQLAlchemyError):
        if result is not None:
            result.close()
    with suppress(SQLAlchemyError):
        connection.close()


def _parsed(url: str) -> URL:
    try:
        return sqlalchemy.make_url(url)
    except (ArgumentError, ValueError):
        raise InputError(
            "url cannot be read; write it as in postgresql+psycopg://reader:${PGPASSWORD}@db/clinic"
        ) from None


def _no_password(url: str) -> None:
    """Refuse a password that is written in the URL itself."""
    if PLACEHOLDER.fullmatch(url):
        return
    if not all(map(PLACEHOLDER.fullmatch, _secrets(_parsed(url)))):
        raise InputError(
            "url holds a password; put it into the environment and write ${PGPASSWORD} in its "
            "place, or into a file that password_file names"
        )


def _secrets(url: URL) -> list[str]:
    """Return the password of a URL, and the secrets in its query."""
    hidden = [url.password, *(value for name, value in url.query.items() if SECRET.search(name))]
    return [str(secret) for secret in hidden if secret]


def _names(result: CursorResult[Any]) -> tuple[str, ...]:
    """Return the names of the columns of a result."""
    if not result.returns_rows:
        raise InputError(NO_TABLE)
    return _different(result.keys())


def _different(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the columns after checking that they differ."""
    names = tuple(map(str, names))
    if twice := first_twice(names):
        raise InputError(f"the query answers with two columns {twice!r}; name one AS another")
    return names


def _without(secrets: Sequence[str], error: object) -> str:
    """Return the first line of an error, without secrets."""
    line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    for secret in secrets:
        for written in {secret, quote(secret), quote_plus(secret), repr(secret)[1:-1]}:
            line = line.replace(written, "***")
    return line


def _batches(result: CursorResult[Any], n_rows: int) -> Iterator[Sequence[Any]]:
    """Yield rows as the driver returns them, without the overhead of SQLAlchemy."""
    rows: Sequence[Any] = [tuple(first)] if (first := result.fetchone()) else []
    while rows:
        cursor = result.cursor
        more = cursor.fetchmany(n_rows) if cursor else []
        yield [*rows, *more]
        rows = cursor.fetchmany(n_rows) if cursor and more else []


def _read_only(connection: Any, *_rest: Any) -> None:
    """Keep SQLite from writing, as it ends a transaction on its own if a table is created."""
    connection.execute("PRAGMA query_only = ON")


def _binary(connection: Any, cursor: Any, *_rest: Any) -> None:
    """Let psycopg transfer numbers in binary form, which takes a quarter of the time."""
    if connection.dialect.driver == "psycopg":
        cursor.format = 1


def _columns(rows: Sequence[Sequence[Any]], place: Sequence[int]) -> list[pa.Array]:
    """Return rows of Python objects as columns; fast if all are numbers."""
    if place != list(range(len(rows[0]))):
        rows = [[row[j] for j in place] for row in rows]
    if set(map(type, chain.from_iterable(rows))) <= NUMBERS:
        with suppress(OverflowError):
            return [as_arrow(column) for column in np.array(rows, dtype=np.float64).T]
    return [column_of(column) for column in zip(*rows, strict=True)]
