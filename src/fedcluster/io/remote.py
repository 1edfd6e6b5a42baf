"""Copies of remote files: from web servers, and from stores that pyarrow or fsspec can read.

Parts of an address before the host or after the path may be secret and are never shown.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.fs

from fedcluster.errors import InputError

WEB = ("http", "https")
STORES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "file")
OTHERS = ("sftp", "ftp", "smb", "az", "oss", "webhdfs", "github", "hf", "dropbox", "gdrive")
"""Schemes that only fsspec can read, with further packages."""
SCHEMES = (*WEB, *STORES, *OTHERS)
"""Schemes of file addresses; addresses with other schemes are databases."""
SECONDS = 60.0
"""Timeout, in seconds, of requests to web servers."""


@cache
def fetched(address: str) -> Path:
    """Return a local copy of a remote file, which is deleted when the process ends.

    Raises
    ------
    InputError
        If the file cannot be fetched.
    """
    parts = urlsplit(address)
    name = PurePosixPath(unquote(parts.path)).name
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
    if not name:
        raise InputError(f"{shown} names no file")
    copy = Path(_folder().name, f"{len(list(Path(_folder().name).iterdir()))}", name)
    copy.parent.mkdir()
    try:
        _copy(address, copy)
    except HTTPError as error:
        error.close()
        raise InputError(
            f"{shown} cannot be fetched: the server answers {error.code}; check the address"
        ) from None
    except ImportError as error:
        raise InputError(f"{shown} cannot be fetched: {error}".split("\n")[0]) from None
    except Exception as error:  # file systems of fsspec raise those of the libraries they use
        raise InputError(
            f"{shown} cannot be fetched: {type(error).__name__}; check the address"
        ) from error
    return copy


def _copy(address: str, copy: Path) -> None:
    scheme = urlsplit(address).scheme
    with copy.open("wb") as file:
        if scheme in WEB:
            with urlopen(address, timeout=SECONDS) as answer:
                shutil.copyfileobj(answer, file)
        elif scheme in OTHERS:
            _copy_by_fsspec(address, file)
        else:
            store, path = pa.fs.FileSystem.from_uri(address)
            with store.open_input_stream(path, compression=None) as stream:
                shutil.copyfileobj(stream, file)


def _copy_by_fsspec(address: str, file: BinaryIO) -> None:
    """Copy a file by fsspec."""
    try:
        import fsspec  # an optional extra
    except ImportError:
        raise ImportError('that needs pip install "fedcluster[fsspec]"') from None
    with fsspec.open(address, "rb") as stream:
        shutil.copyfileobj(stream, file)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of copies, which is deleted when the process ends."""
    return tempfile.TemporaryDirectory(prefix="fedcluster-")
