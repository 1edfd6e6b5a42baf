"""Rows that a database answers a query with, through SQLAlchemy.

Rows come through a cursor at the server, some at a time. Passwords come from the environment or
from a file, and every message is searched for them before anyone sees it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pyarrow as pa

from fedcluster.data.spool import UnreachableError, patiently
from fedcluster.data.tables import FilePart, InputError, readable

try:
    import sqlalchemy
    from sqlalchemy.engine import URL, Connection, CursorResult
    from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
except ImportError as error:
    raise InputError(
        "reading a database needs SQLAlchemy: pip install 'fedcluster[sql]'"
    ) from error

__all__ = ["Query"]

PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
SECRET = re.compile(r"pass|pwd|secret|token|key$", re.IGNORECASE)
REFUSED = re.compile(r"password|authentication|access denied|login failed", re.IGNORECASE)


class Query:
    """A query to a database: a table that can be read some rows at a time.

    Parameters
    ----------
    url : str
        Where the database is, as SQLAlchemy writes it; ``${NAME}`` stands for a variable of the
        environment. A password may not be written there.
    query : str
        What is asked.
    password_file : Path, optional
        A file that holds the password and nothing else.
    folder : Path, optional
        Where a relative path of SQLite begins.
    environment : mapping, optional
        The environment, by default this process's.

    Raises
    ------
    InputError
        If the URL cannot be read or holds a password; later, if the database cannot be reached
        four times, or refuses the query.

    Examples
    --------
    >>> Query("postgresql+psycopg://reader:${PGPASSWORD}@db/clinic", "SELECT age FROM visits")
    Query('postgresql+psycopg://reader:${PGPASSWORD}@db/clinic')
    """

    def __init__(
        self,
        url: str,
        query: str,
        password_file: Path | None = None,
        folder: Path | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        _no_password(url)
        self._url, self._query = url, query
        self._password_file, self._folder = password_file, folder or Path()
        self._environment = environment
        self._live: _Answer | None = None
        self._names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Query({self._url!r})"

    def __str__(self) -> str:
        return "the query's answer"

    @property
    def path(self) -> Path:
        """What messages call it, in a file's place."""
        return Path("the query's answer")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; asks the database, whose answer waits to be read."""
        if not self._names:
            self._live = patiently(self._asked)
            self._names = self._live.names
        return self._names

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[FilePart]:
        """Read columns by name, ``n_rows`` rows at a time, and keep none of them."""
        answer, self._live = self._live or self._asked(), None
        start, place = 0, [answer.names.index(name) for name in columns]
        with answer.connection, self._translating(answer.secrets, answer.connection.dialect.name):
            for rows in answer.result.yield_per(n_rows).partitions(n_rows):
                values = list(zip(*rows, strict=True))
                table = pa.table([_arrow(values[j]) for j in place], list(columns))
                yield FilePart(self, start, table)
                start += len(rows)

    def where(self, row: int) -> str:
        """Where a row, counted from 0, is found."""
        return f"row {row + 1} of the query's answer"

    def _asked(self) -> _Answer:
        """Ask the database; its answer is read later."""
        url, secrets = self._resolved()
        with self._translating(secrets, url.get_backend_name()):
            engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
            connection = engine.connect()
            try:
                result = connection.execution_options(stream_results=True).execute(
                    sqlalchemy.text(self._query.replace(":", "\\:"))
                )
                return _Answer(connection, result, _names(result), secrets)
            except BaseException:
                connection.close()
                raise

    def _resolved(self) -> tuple[URL, list[str]]:
        """The URL with what it stands for, and what of it nobody may see."""
        if PLACEHOLDER.fullmatch(self._url):
            url = _parsed(self._filled(self._url))
        else:
            url = self._filled_parts(_parsed(self._url))
        if self._password_file is not None:
            with readable(self._password_file):
                url = url.set(password=self._password_file.read_text("utf-8").strip())
        hidden = [url.password, *(v for n, v in url.query.items() if SECRET.search(n))]
        return self._existing(url), [str(secret) for secret in hidden if secret]

    def _filled_parts(self, url: URL) -> URL:
        """The URL, each part of it with the environment's values, whatever signs they have."""
        parts: dict[str, Any] = {
            part: self._filled(value)
            for part in ("username", "password", "host", "database")
            if (value := getattr(url, part))
        }
        query = {n: self._filled(v) if isinstance(v, str) else v for n, v in url.query.items()}
        return url.set(**parts, query=query)

    def _filled(self, text: str) -> str:
        """A text with the environment's values."""
        for name in PLACEHOLDER.findall(text):
            if name not in self._environment:
                raise InputError(f"the environment has no variable {name}, which url names")
        return PLACEHOLDER.sub(lambda found: self._environment[found[1]], text)

    def _existing(self, url: URL) -> URL:
        """The URL; of SQLite, which would make a file that is not there, with the file's path."""
        name = url.database
        if url.get_backend_name() != "sqlite" or not name or name.startswith((":", "file:")):
            return url
        path = self._folder / name
        if not path.is_file():
            raise InputError(f"{path} does not exist; check the path")
        return url.set(database=str(path))

    @contextmanager
    def _translating(self, secrets: Sequence[str], backend: str) -> Iterator[None]:
        """Turn what a database or its driver says into one line that holds no password."""
        try:
            yield
            return
        except DBAPIError as error:
            said = _without(secrets, error.orig)
            away = error.connection_invalidated or not error.statement
            again = away and backend != "sqlite" and not REFUSED.search(said)
        except ModuleNotFoundError as error:
            said, away, again = f"its driver is not installed: {error}", True, False
        except SQLAlchemyError as error:
            said, away, again = _without(secrets, error), True, False
        what = f"the database {self._url} cannot be read" if away else "the database says"
        raise (UnreachableError if again else InputError)(f"{what}: {said}")


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """A database's answer that waits to be read, and what of its URL nobody may see."""

    connection: Connection
    result: CursorResult[Any]
    names: tuple[str, ...]
    secrets: Sequence[str] = field(repr=False)


def _parsed(url: str) -> URL:
    try:
        return sqlalchemy.make_url(url)
    except (ArgumentError, ValueError):
        raise InputError(
            "url cannot be read; write it as in postgresql+psycopg://reader:${PGPASSWORD}@db/clinic"
        ) from None


def _no_password(url: str) -> None:
    """Refuse a password that stands in the URL itself."""
    if PLACEHOLDER.fullmatch(url):
        return
    parsed = _parsed(url)
    query = [value for name, value in parsed.query.items() if SECRET.search(name)]
    for secret in [parsed.password, *query]:
        if secret and not PLACEHOLDER.fullmatch(str(secret)):
            raise InputError(
                "url holds a password; put it into the environment and write ${PGPASSWORD} in its "
                "place, or into a file that password_file names"
            )


def _names(result: CursorResult[Any]) -> tuple[str, ...]:
    """The names of an answer's columns, each its own."""
    if not result.returns_rows:
        raise InputError("the query answers without a table; write a SELECT")
    names = tuple(map(str, result.keys()))
    if twice := next((name for name, times in Counter(names).items() if times > 1), None):
        raise InputError(f"the query answers with two columns {twice!r}; name one AS another")
    return names


def _without(secrets: Sequence[str], error: object) -> str:
    """What an error says, in one line and without secrets."""
    said = " ".join(str(error).split())
    for secret in secrets:
        for written in {secret, quote(secret), quote_plus(secret), repr(secret)[1:-1]}:
            said = said.replace(written, "***")
    return said


def _arrow(values: Sequence[Any]) -> pa.Array:
    """A column of Python objects; where they are of many kinds, as they are written."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values])
