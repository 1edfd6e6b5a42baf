"""Files of one site: written, and read as a command and a site file read them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from fedcluster.errors import InputError
from fedcluster.frames.reader import ColumnRoles
from fedcluster_app.cli._options import ValueOptions
from fedcluster_app.cli._reading import named_sources, read_sites
from fedcluster_app.site.file import SiteFile

RAW = ColumnRoles(raw=True)


def write(path: str, content: str | bytes, encoding: str = "utf-8") -> str:
    """A file of a text or of bytes, packed if it is called so."""
    written = content if isinstance(content, bytes) else content.encode(encoding)
    Path(path).write_bytes(gzip.compress(written, mtime=0) if path.endswith(".gz") else written)
    return path


def workbook(path: str, *rows: Sequence[Any], merged: Sequence[str] = (), **sheets: Any) -> str:
    """A workbook of rows, some cells of which are merged, or of sheets; hidden are those with _."""
    book = openpyxl.Workbook()
    for title, cells in (sheets or {"Sheet": rows}).items():
        sheet = book.create_sheet(title.strip("_")) if sheets else book.active
        sheet.sheet_state = "hidden" if title.endswith("_") else "visible"
        for row in cells:
            sheet.append(row)
        for each in merged:
            sheet.merge_cells(each)
    if sheets:
        del book["Sheet"]
    book.save(path)
    return path


def read(path: str, columns: Any = None, sites: Any = None, **said: Any) -> Any:
    """The rows of the one site of a file, with what is said of all sources or of each site's."""
    given = named_sources([path], ValueOptions(sites or {}, said))
    [rows] = read_sites(given, columns).values()
    return rows


def refused(path: str, columns: Any = None, sites: Any = None, **said: Any) -> str:
    """The line that refuses it."""
    with pytest.raises(InputError) as error:
        read(path, columns, sites, **said)
    assert "\n" not in str(error.value)
    return str(error.value)


def site_file(path: str | None, *lines: str, name: str = "north", **source: Any) -> Any:
    """A site file with more lines, and a file or something else as its source."""
    source |= {"path": path} if path else {}
    said = [f"{key} = {json.dumps(value)}" for key, value in source.items()]
    text = "\n".join([f'name = "{name}"', *lines, "[source]", *said])
    Path(f"{name}.toml").write_text(text, "utf-8")
    return SiteFile.load(f"{name}.toml")
