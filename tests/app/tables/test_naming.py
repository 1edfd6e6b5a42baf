"""How files of sites are named, with options of their own: decimals, letters, sheets."""

import re
from pathlib import Path

import openpyxl
import pytest
from typed import run

from fedcluster.core import Data
from fedcluster.errors import InputError, ReadingNote
from fedcluster.frames.reader import ColumnRoles
from fedcluster.frames.rows import FileSource
from fedcluster_app.cli._options import ValueOptions
from fedcluster_app.cli._reading import named_sources, read_sites
from fedcluster_app.site.file import SiteFile
from fedcluster_app.tables.sources import open_source

pytestmark = pytest.mark.usefixtures("here")

RAW = ColumnRoles(raw=True)


def texts_of(source):
    return read_sites({"it": source}, RAW)["it"].data.columns[0].levels


def test_what_is_said_of_a_site_counts_before_what_is_said_of_all():
    sites = {
        "east": {"decimal": ",", "encoding": "latin-1"},
        "book": {"sheet": "Ward B"},
        "rows": {"names": ("age", "bmi")},
        "cells": {"matrix": "obsm/X_pca"},
    }
    files = ["east=d/east_de.csv", "book.xlsx", "rows.npy", "plain.csv", "cells.h5ad"]
    found = named_sources(files, ValueOptions(sites, {"decimal": ".", "encoding": "cp1252"}))
    assert found == {
        "book": FileSource(Path("book.xlsx"), sheet="Ward B"),
        "cells": FileSource(Path("cells.h5ad"), matrix="obsm/X_pca"),
        "east": FileSource(Path("d/east_de.csv"), decimal=",", encoding="latin-1"),
        "plain": FileSource(Path("plain.csv"), decimal=".", encoding="cp1252"),
        "rows": FileSource(Path("rows.npy"), names=("age", "bmi")),
    }


def test_a_file_that_is_called_like_one_with_options_is_that_file():
    Path("a.csv:decimal=,").write_text("x\n1\n")
    assert named_sources(["a.csv:decimal=,"])["a.csv:decimal=,"] == FileSource(
        Path("a.csv:decimal=,")
    )
    assert str(named_sources(["ward:3=x.csv"])["ward:3"]) == "x.csv"


def test_an_option_behind_a_file_says_which_key_it_is():
    with pytest.raises(InputError, match=r"^decimal of a .*: --set sites\.SITE\.decimal=VALUE$"):
        named_sources(["a.csv:decimal=,"])


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252", "utf-16", "mac-roman", "cp437"])
def test_letters_are_read_as_a_file_is_said_to_be_written(encoding):
    Path("a.csv").write_bytes("ort;n\nMünchen;1\nKöln;2\n".encode(encoding))
    [source] = named_sources(["a.csv"], ValueOptions(source={"encoding": encoding})).values()
    assert texts_of(source) == ("Köln", "München")
    Path("site.toml").write_text(
        f'name = "a"\n[source]\npath = "a.csv"\nencoding = "{encoding}"\n', "utf-8"
    )
    rows = SiteFile.load("site.toml").rows(raw=True)
    assert isinstance(rows, Data)
    assert rows.columns[0].levels == ("Köln", "München")


def test_an_encoding_that_is_none_or_another_says_how_to_save_the_file():
    Path("a.csv").write_bytes("ort\nMünchen\n".encode("cp1252"))
    for encoding in ("klingon", "rot13", "base64", "undefined"):
        with pytest.raises(InputError, match=rf"^site 'it': .*'{encoding}'.* file as UTF-8$"):
            open_source(FileSource(Path("a.csv"), encoding=encoding), "site 'it'")
    with pytest.raises(InputError, match=r"a\.csv is not ascii throughout; save it as UTF-8"):
        texts_of(FileSource(Path("a.csv"), encoding="ascii"))


def test_letters_that_are_no_utf8_late_in_a_file_say_how_to_save_it():
    late = b"ort\n" + b"Koeln\n" * 200_000 + "München\n".encode("cp1252")
    Path("a.csv").write_bytes(late)
    with pytest.raises(InputError, match=r"save .* as UTF-8"):
        texts_of(FileSource(Path("a.csv")))


def test_a_sheet_of_a_book_is_read_by_its_name():
    book = openpyxl.Workbook()
    for title, value in (("Ward A", 1), ("Ward B", 2)):
        sheet = book.create_sheet(title)
        sheet.append(["x"])
        sheet.append([value])
    del book["Sheet"]
    book.save("book.xlsx")
    given = ["a=book.xlsx", "b=book.xlsx", "first=book.xlsx"]
    sheets = ValueOptions({"a": {"sheet": "Ward A"}, "b": {"sheet": "Ward B"}})
    with pytest.warns(ReadingNote, match="sheet 'Ward A' is read, and not 'Ward B'"):
        read = read_sites(named_sources(given, sheets))
    assert [read[site].data.X.tolist() for site in read] == [[[1]], [[2]], [[1]]]
    with pytest.raises(InputError, match=r"book\.xlsx has no sheet 'C'; it has Ward A, Ward B$"):
        read_sites(named_sources(["book.xlsx"], ValueOptions({"book": {"sheet": "C"}})))
    Path("rows.csv").write_text("x\n1\n")
    with pytest.raises(InputError, match=r"sheet is for Excel, and rows\.csv is none"):
        read_sites(named_sources(["rows.csv"], ValueOptions({"rows": {"sheet": "A"}})))


def test_check_takes_one_file_with_keys():
    Path("a.csv").write_text("x;y\n" + "".join(f"{i},5;{i % 7},25\n" for i in range(30)))
    ran = run("check", "it=a.csv", "--set", "sites.it.decimal=,")
    assert ran.exit_code == 0
    assert re.search(r"^x +clustered by +15 ", ran.stdout, re.MULTILINE)
