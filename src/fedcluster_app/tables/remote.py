"""Copies of remote files: from web servers, and from stores that pyarrow or fsspec can read.

Parts of an address before the host or after the path may be secret and are never shown.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from fedcluster.errors import InputError
from fedcluster.frames.rows import OTHERS, STORES, in_order

WEB = ("http", "https")
SCHEMES = (*WEB, *STORES, *OTHERS)
"""Schemes of file addresses; addresses with other schemes are databases."""


@cache
def fetched(address: str) -> Path:
    """Return a local copy of a remote file, which is deleted when the process ends.

    Raises
    ------
    InputError
        If the file cannot be fetched.
    """
    name = PurePosixPath(unquote(urlsplit(address).path)).name
    if not name:
        raise InputError(f"{shown(address)} names no file")
    copy = own_folder() / f"{len(list(own_folder().iterdir()))}" / name
    copy.parent.mkdir()
    with reachable(address):
        _copy(address, copy)
    return copy


def shown(address: str) -> str:
    """Return an address without the parts that may be secret."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


@contextmanager
def reachable(address: str) -> Iterator[None]:
    """Turn errors of reading an address into one line."""
    try:
        yield
    except HTTPError as error:
        error.close()
        raise InputError(
            f"{shown(address)} cannot be fetched: the server answers {error.code}; check the "
            "address"
        ) from None
    except ImportError as error:
        raise InputError(f"{shown(address)} cannot be fetched: {error}".split("\n")[0]) from None
    except Exception as error:  # fsspec passes on errors of many libraries
        raise InputError(
            f"{shown(address)} cannot be fetched: {type(error).__name__}; check the address"
        ) from error


def store_at(address: str) -> tuple[pa.fs.FileSystem, str]:
    """Return the store of an address, and the path in it."""
    with reachable(address):
        if urlsplit(address).scheme not in OTHERS:
            found: tuple[pa.fs.FileSystem, str] = pa.fs.FileSystem.from_uri(address)
            return found
        store, path = _fsspec().core.url_to_fs(address)
        return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(store)), path


def _copy(address: str, copy: Path) -> None:
    scheme = urlsplit(address).scheme
    with copy.open("wb") as file:
        if scheme in WEB:
            # Timeout, in seconds, of requests to web servers.
            with urlopen(address, timeout=60.0) as answer:
                shutil.copyfileobj(answer, file)
        elif scheme in OTHERS:
            with _fsspec().open(address, "rb") as stream:
                shutil.copyfileobj(stream, file)
        else:
            store, path = pa.fs.FileSystem.from_uri(address)
            with store.open_input_stream(path, compression=None) as stream:
                shutil.copyfileobj(stream, file)


def _fsspec() -> Any:
    try:
        import fsspec.core  # optional extra
    except ImportError:
        raise ImportError('that needs pip install "fedcluster[fsspec]"') from None
    return fsspec


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fedcluster-")


def own_folder() -> Path:
    """Return a folder for copies, open to this user only, that is deleted as the process ends."""
    return Path(_own_folder().name)


PARQUET = r"\.parq(uet)?$"
"""What the names of Parquet files end in, as Dask finds them in a folder."""


def check_alike(places: Iterable[str]) -> None:
    """Check that there are Parquet files, all with the columns of the first.

    Parameters
    ----------
    places : iterable of str
        Files, patterns of files, and folders, here or in a store.

    Raises
    ------
    InputError
        If a place has no file, or two files differ in a column.
    """
    names: dict[str, list[str]] = {}
    for place in places:
        store, path = _fsspec().core.url_to_fs(place)
        found = store.glob(path) if "*" in path else [path]
        inside = [file for each in found if store.isdir(each) for file in sorted(store.find(each))]
        files = [file for file in inside if re.search(PARQUET, file)]
        files += [each for each in found if not store.isdir(each)]
        if not files:
            what = "no file matches" if "*" in place else "there is no Parquet file in"
            raise InputError(f"{what} {place}; check the path")
        # Number of files of which the columns are read at a time, as a store answers after a while.
        columns = in_order(partial(_columns_of, store), files, 16)
        names |= zip(files, columns, strict=True)
    (first, wanted), *others = names.items()
    for file, own in others:
        if odd := sorted(set(own) ^ set(wanted)):
            has, lacks = (file, first) if odd[0] in own else (first, file)
            raise InputError(
                f"{has} has a column {odd[0]!r}, and {lacks} has none; write the files alike"
            )


def _columns_of(store: Any, file: str) -> list[str]:
    """Return the names of the columns of a Parquet file."""
    with store.open(file) as opened:
        return list(pyarrow.parquet.read_schema(opened).names)
