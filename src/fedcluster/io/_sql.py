"""Rows of a query to a database, through SQLAlchemy.

Rows are fetched in parts through a server-side cursor. Passwords come from the environment or from
a file, and are removed from every message.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import numpy as np
import pyarrow as pa

from fedcluster.errors import InputError
from fedcluster.io.cells import column_of
from fedcluster.io.columns import first_twice
from fedcluster.io.reader import TablePart
from fedcluster.io.rows import SqlSource, UnreachableError, patiently, readable

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
PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
SECRET = re.compile(r"pass|pwd|secret|token|key$", re.IGNORECASE)
REFUSED = re.compile(r"password|authentication|access denied|login failed", re.IGNORECASE)


class Query:
    """A query to a database: a table that can be read some rows at a time.

    Parameters
    ----------
    source : SqlSource
        The address of the database, and the query. A password may not be written in the URL.
    environment : mapping, optional
        The environment, by default this process's.

    Raises
    ------
    InputError
        If the URL is invalid or holds a password; later, if the database cannot be reached in four
        attempts, or refuses the query.
    """

    path = Path("the query's answer")  # what messages call it
    decimal = None  # numbers need not be written as text
    fingerprint = None  # a database is asked once

    def __init__(self, source: SqlSource, environment: Mapping[str, str] = os.environ) -> None:
        _no_password(source.url)
        self._source, self._environment = source, environment
        self._live: _Answer | None = None

    def __repr__(self) -> str:
        return f"Query({self._source.url!r})"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns; this runs the query, whose result is read later."""
        self._live = patiently(self._asked)
        return self._live.names

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, ``n_rows`` rows at a time, without keeping any."""
        answer, self._live = self._live or self._asked(), None
        start, place = 0, [answer.names.index(name) for name in columns]
        try:
            raw = answer.connection.connection.dbapi_connection
            with self._translating(answer.secrets, answer.connection.dialect, raw):
                for rows in _batches(answer.result, n_rows):
                    yield TablePart(self, start, pa.table(_columns(rows, place), list(columns)))
                    start += len(rows)
        finally:
            _close(answer.connection, answer.result)

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is in the result."""
        return f"row {row + 1} of the query's answer"

    def _asked(self) -> _Answer:
        """Run the query; its result is read later."""
        url, secrets = self._resolved()
        engine = self._engine(url)
        with self._translating(secrets, engine.dialect):
            connection, result = engine.connect(), None
            try:
                result = connection.execution_options(**HOW).execute(
                    sqlalchemy.text(self._source.query.replace(":", "\\:"))
                )
                answer = _Answer(connection, result, _names(result), secrets)
                weakref.finalize(answer, _close, connection, result)  # should nobody read it
                return answer
            except BaseException:
                _close(connection, result)
                raise

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
        """Return the URL; for SQLite, which would create a missing file, with an existing path."""
        name = url.database
        if url.get_backend_name() != "sqlite" or not name or name.startswith((":", "file:")):
            return url
        path = self._source.folder / name
        if not path.is_file():
            raise InputError(f"{path} does not exist; check the path")
        return url.set(database=str(path))

    @contextmanager
    def _translating(self, secrets: Sequence[str], dialect: Any, raw: Any = None) -> Iterator[None]:
        """Turn an error of a database or its driver into one line without passwords."""
        try:
            yield
            return
        except (SQLAlchemyError, dialect.loaded_dbapi.Error) as error:
            failed: InputError = self._complaint(error, secrets, dialect, raw)
        raise failed  # outside: what the driver said, password and all, is not its context

    def _complaint(self, error: Any, secrets: Sequence[str], dialect: Any, raw: Any) -> InputError:
        """Return the error in one line, of a class that shows whether it may be temporary."""
        cause = getattr(error, "orig", None) or error
        reason = _without(secrets, cause)
        connected = getattr(error, "statement", "fetched") is not None
        lost = getattr(error, "connection_invalidated", False)
        if connected and not lost and not dialect.is_disconnect(cause, raw, None):
            return InputError(f"the database says: {reason}")
        away = f"the database {self._source.url} cannot be reached: {reason}"
        passes = dialect.name != "sqlite" and not REFUSED.search(reason)
        return UnreachableError(away) if passes else InputError(away)


@dataclass(frozen=True, eq=False)
class _Answer:
    """Result of a query that has not been read yet, and the secrets of its URL."""

    connection: Connection
    result: CursorResult[Any]
    names: tuple[str, ...]
    secrets: Sequence[str] = field(repr=False)


def _close(connection: Connection, result: CursorResult[Any] | None) -> None:
    """Close a result and its connection, even if the connection is lost."""
    with suppress(Exception):  # the driver's own error, which SQLAlchemy would log
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
    """Return the names of the columns of a result, which must differ."""
    if not result.returns_rows:
        raise InputError("the query answers without a table; write a SELECT")
    names = tuple(map(str, result.keys()))
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
    try:
        return [pa.array(column) for column in np.array(rows, dtype=np.float64).T]
    except (TypeError, ValueError, OverflowError):
        return [column_of(column) for column in zip(*rows, strict=True)]
