"""Files elsewhere: of a web server, or of an object store that pyarrow knows, copied here first.

What stands in an address before the host or after the path may be secret and is never shown.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.fs

from fedcluster.errors import InputError

WEB = ("http", "https")
STORES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "file")
SCHEMES = (*WEB, *STORES)
"""What an address of a file begins with; others are databases."""
SECONDS = 60.0
"""How long a web server may be silent."""


@cache
def fetched(address: str) -> Path:
    """Return a copy of a file elsewhere, which is there until the process ends.

    Raises
    ------
    InputError
        If it cannot be fetched.
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
    except (OSError, pa.ArrowInvalid, HTTPException, ValueError) as error:
        raise InputError(
            f"{shown} cannot be fetched: {type(error).__name__}; check the address"
        ) from error
    return copy


def _copy(address: str, copy: Path) -> None:
    with copy.open("wb") as file:
        if urlsplit(address).scheme in WEB:
            with urlopen(address, timeout=SECONDS) as answer:
                shutil.copyfileobj(answer, file)
        else:
            store, path = pa.fs.FileSystem.from_uri(address)
            with store.open_input_stream(path, compression=None) as stream:
                shutil.copyfileobj(stream, file)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of copies, which goes when the process ends."""
    return tempfile.TemporaryDirectory(prefix="fedcluster-")
