"""Files of rows: what is read, and what is said of files that cannot be read."""

import csv
import gzip
import io
import os
import re
import stat
from pathlib import Path
from threading import get_ident
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from readings import RAW, read, refused, site_file, workbook, write

from fedcluster.core.files import atomic_write, json_text, write_durably
from fedcluster.errors import InputError, ReadingNote
from fedcluster.frames.columns import column_list, extremes
from fedcluster.frames.reader import ColumnRoles, Reader
from fedcluster.frames.rows import FileSource
from fedcluster_app.cli._options import ValueOptions
from fedcluster_app.cli._reading import named_sources, read_sites
from fedcluster_app.tables import outputs
from fedcluster_app.tables._files import CsvFile, values_in
from fedcluster_app.tables.outputs import atomic_folder, check_folder, label_files

pytestmark = pytest.mark.usefixtures("here")

TWO = "x,y\n1,2\n3,4\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (TWO, "a.csv"), (TWO, "packed.csv.gz"), (TWO, "A.CSV"), ("x|y\n1|2\n3|4\n", "bar.csv"),
        ("x;y\n1;2\n3;4\n", "semicolon.csv"), ("x\ty\n1\t2\n3\t4\n", "tab.csv"),
        ("x\ty\n1\t2\n3\t4\n", "tab.tsv"), ("\ufeffx,y\r\n1,2\r\n3,4\r\n", "bom.csv"),
        ('"x", y \n1, 2\n 3 ,4', "blanks.csv"), ("x,y\n+1,2e0\n3,4.\n", "signs.csv"),
        ("\nx,y\n\n1,2\n\n\n3,4\n\n", "blank_lines.csv"),
    ],
)  # fmt: skip
def test_dialects_of_csv_are_read_alike(text, name):
    table = read(write(name, text))
    assert table.columns == ("x", "y")
    np.testing.assert_array_equal(table.data.X, [[1, 2], [3, 4]])
    assert table.data.X.dtype == np.float64
    assert table.data.X.flags.c_contiguous
    assert list(table.row_ids) == [1, 2]


@pytest.mark.parametrize(
    ("text", "chosen", "columns", "ignored", "X"),
    [
        ('"height, cm","a ""b""",note\n1,2,"one,\ntwo"\n3,4,x\n', ['a "b"'], ['a "b"'],
         ["height, cm", "note"], [[2], [4]]),
        ("id,x,name,y\n1,2,Ann,3\n", ["y", "x"], ["y", "x"], ["id", "name"], [[3, 2]]),
        ("a,b\ntrue,7\nfalse,8\n", None, ["a", "b"], [], [[1, 7], [0, 8]]),
        ("0,1\n5,7\n", None, ["0", "1"], [], [[5, 7]]),
    ],
    ids=["quotes and line breaks", "in the chosen order", "truth values", "0 and 1 as names"],
)  # fmt: skip
def test_values_of_the_chosen_columns_are_read(text, chosen, columns, ignored, X):
    table = read(write("north.csv", text), chosen)
    assert ([*table.columns], [*table.ignored]) == (columns, ignored)
    np.testing.assert_array_equal(table.data.X, X)


def test_parquet_keeps_float32_and_takes_every_kind_of_number():
    columns = {
        "f": pa.array([1.5, 2.5], pa.float32()),
        "dotted.name": pa.array([1, 2], pa.float32()),
        "i": pa.array([1, 2], pa.int8()),
        "b": pa.array([True, False]),
        "d": pa.array([1, 2]).cast(pa.decimal128(22, 2)),
    }
    pa.parquet.write_table(pa.table(columns), "north.parquet")
    assert read("north.parquet", ["dotted.name", "f"]).dtype == np.float32
    whole = read("north.parquet").data
    assert whole.X.dtype == np.float64
    np.testing.assert_array_equal(whole.X, [[1.5, 1, 1, 1, 1], [2.5, 2, 2, 0, 2]])


def test_columns_are_matched_by_name_and_what_one_site_lacks_is_named():
    given = named_sources([write("b.csv", "y,x\n4,3\n"), write("a.csv", "x,y\n1,2\n")])
    tables = read_sites(given)
    assert list(tables) == ["a", "b"]
    assert tables["b"].columns == ("x", "y")
    np.testing.assert_array_equal(tables["b"].data.X, [[3, 4]])
    write("a.csv", "x,y,z\n1,2,3\n")
    said = "site 'b' has no column 'z', which site 'a' has; choose columns with --columns x,y"
    with pytest.raises(InputError, match=f"^{said}$"):
        read_sites(given)


def test_one_file_is_parted_by_the_column_of_sites():
    given = named_sources([write("all.csv", "x,where,w\n1,01,1\n2, b ,2\n3,01,0.5\n4,1,3\n")])
    tables = read_sites(given, ColumnRoles(site="where", weight="w"))
    assert list(tables) == ["01", "1", "b"]
    assert tables["01"].data.X.tolist() == [[1.0], [3.0]]
    assert tables["01"].data.sample_weight is not None
    assert tables["01"].data.sample_weight.tolist() == [1.0, 0.5]
    assert [*tables["01"].row_ids] == [1, 3]
    write("all.csv", "x,where\n1,b\n2,B\n")
    with pytest.warns(ReadingNote, match="^sites 'B' and 'b' may be one; if so, write both in one"):
        read_sites(given, ColumnRoles(site="where"))


def test_sites_are_named_after_files_or_as_they_are_told():
    write("c=d.csv", TWO)
    found = named_sources(["d/South.csv.gz", "Upper North=d/a=b.csv", "x.y.parquet", "c=d.csv"])
    assert {site: Path(str(source)).as_posix() for site, source in found.items()} == {
        "South": "d/South.csv.gz",
        "Upper North": "d/a=b.csv",
        "c=d": "c=d.csv",
        "x.y": "x.y.parquet",
    }


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


def test_a_key_behind_a_file_is_told_where_it_belongs_unless_the_file_is_called_so():
    assert str(named_sources(["ward:3=x.csv"])["ward:3"]) == "x.csv"
    odd = "a.csv:decimal=,"
    with pytest.raises(InputError, match=r"^decimal of a .*: --set sites\.SITE\.decimal=VALUE$"):
        named_sources([odd])
    assert named_sources([write(odd, TWO)]) == {odd: FileSource(Path(odd))}


def test_a_column_that_counts_the_rows_is_warned_of():
    with pytest.warns(UserWarning, match="clustered by 'id' too, which only counts the rows; "):
        read(write("north.csv", "id,x\n1,5\n2,7\n3,1\n"))


MISSING = "the value is missing; fill it in or drop the row"
EMPTY = "site 'north': north.csv is empty; expected a header line and rows"


def cell(column, row, line):
    return f"site 'north', column {column!r}, row {row} (line {line} of north.csv): "


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", None, EMPTY),
        ("id,name,x\n1,Ann,5\n2,Bob,6\n3,Cid,4\n", None,
         cell("name", 1, 2) + "'Ann' is not a number; choose columns with --columns x"),
        ("\n\n", None, EMPTY),
        ("x,y\n", None,
         "site 'north': north.csv has a header but no rows; add rows or leave the file out"),
        ("x,y\n1,2\n\n3,twelve\n5,6\n7,8\n", None,
         cell("y", 2, 4) + "'twelve' is not a number, as most of this column are; "
         "mend it or choose columns with --columns x"),
        ("name\nAnn\n", None,
         cell("name", 1, 2) + "'Ann' is not a number; there is no other column"),
        ("when,x y,z\n2024-01-01,1,2\n", ["when", "x y", "z"],
         cell("when", 1, 2) + "the value, a date, is not a number; "
         "choose columns with --columns 'x y,z'"),
        ("x,y\n1,\n3,2\n,5\n", None, cell("x", 3, 4) + MISSING),
        ("x,y\n1,NA\n3,2\n1,nan\n1,\n", None,
         cell("y", 1, 2) + MISSING.replace(";", ", as 2 more of this column are;")),
        ("x\n1\n\n3\n", None, cell("x", 2, 3) + MISSING),
        ("x,y\n1,2\n3,-inf\n", None, cell("y", 2, 3) + MISSING.replace("missing", "infinite")),
        ('x,note\n1,"a\nb"\n2,c\n,d\n', ["x"], cell("x", 3, 5) + MISSING),
        ("x,y\n1,2\n3\n", None, "site 'north': row 2 (line 3 of north.csv) has 1 value, "
         "but the header names 2 columns; mend that line"),
        ("x,x\n1,2\n", None,
         "site 'north', column 'x': north.csv has two columns of this name; rename one of them"),
        (",x,y\n7,1,2\n", None,
         "site 'north': a column has no name; choose columns with --columns x,y"),
        ("5.1,3.5\n4.9,3.0\n", None,
         "site 'north': the first line of north.csv seems to hold values, not the names of its "
         "columns (cell 1 is a number, as those below); put a line with names above it, or "
         'name them, as in --set \'sites.north.names=["A", "B", "C"]\' or, in a site file, '
         'names = ["A", "B", "C"] under [source]'),
        ("x,y\n1,2\n", ["x", "z"], "site 'north' has no column 'z'; it has x, y"),
        ("x,w\n1,0\n1,-1\n", ColumnRoles(("x",), weight="w"),
         cell("w", 2, 3) + "the weight is negative; weights are at least 0"),
        ("x,w\n1,much\n1,2\n", ColumnRoles(("x",), weight="w"),
         cell("w", 1, 2) + "'much' is not a number; mend it"),
        ("x,w\n1,2\n", ColumnRoles(("x",), weight="u"),
         "site 'north' has no column 'u'; it has x, w"),
        ("x,w\n1,0\n", ColumnRoles(weight="w"),
         "site 'north', column 'w': every weight is 0; leave the site out or weigh some row"),
        ("x,at,w\n1,a,0\n2,b,1\n3,a,0\n", ColumnRoles(site="at", weight="w"),
         "site 'a', column 'w': every weight is 0; leave the site out or weigh some row"),
        ("x,where\n1,a\n2,\n", ColumnRoles(site="where"),
         "north.csv, column 'where', row 2 (line 3 of north.csv): the site's name is missing"),
        ("where\na\n", ColumnRoles(site="where"),
         "site 'north': there is no column to cluster by"),
        ("bed,x\n1_2,1\n10_1,2\n", None,
         cell("bed", 1, 2) + "'1_2' is not a number; choose columns with --columns x"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_csv_is_said_in_one_line(text, columns, message):
    assert refused(write("north.csv", text), columns) == message


CELLS = {
    "name": (lambda rng, i: rng.choice(["Ann", "Eve", "José", "O'Neil"]), "first name"),
    "surname": (lambda rng, i: "".join(map(chr, rng.integers(97, 123, 7))).title(), "Nachname"),
    "key": (lambda rng, i: f"P{i:04d}", "case1"),
    "digest": (lambda rng, i: rng.bytes(6).hex(), "sha1"),
    "number": (lambda rng, i: str(1000 + i), "id"),
    "address": (lambda rng, i: f"{rng.choice(['ann', 'bo'])}{i}@example.org", "e-mail"),
    "sex": (lambda rng, i: rng.choice(["F", "M"]), "sex"),
    "ward": (lambda rng, i: rng.choice(list("ABCD")), "ward 7"),
    "code": (lambda rng, i: f"{rng.choice(list('CEI'))}{rng.integers(10, 99)}", "ICD10"),
    "age": (lambda rng, i: str(rng.integers(18, 95)), "age"),
    "value": (lambda rng, i: f"{rng.normal(25, 4):.1f}", "CD4"),
    "comma": (lambda rng, i: f"{rng.normal(25, 4):.2f}".replace(".", ","), "T1"),
    "flag": (lambda rng, i: str(rng.integers(0, 2)), "M"),
    "day": (lambda rng, i: f"19{rng.integers(30, 99)}-0{rng.integers(1, 9)}-11", "dob"),
    "date": (lambda rng, i: f"{rng.integers(1, 28)}.{rng.integers(1, 12)}.1960", "Geburtstag"),
    "time": (lambda rng, i: f"2020-01-0{rng.integers(1, 9)} 1{rng.integers(10)}:30", "seen"),
    "weight": (lambda rng, i: f"{rng.integers(50, 99)} kg", "24h"),
    "pressure": (lambda rng, i: f"{rng.integers(90, 180)}/{rng.integers(50, 99)}", "RR"),
}
"""What a column holds in one row, and a name that it may have."""


def drawn_table(seed, n_rows=40):
    """A header, and rows of some kinds, one of them at least of few values or of digits."""
    rng = np.random.default_rng(seed)
    kinds = [*rng.choice(list(CELLS)[2:], 1), *rng.choice(list(CELLS), rng.integers(1, 7))]
    rows = [[str(CELLS[kind][0](rng, i)) for kind in kinds] for i in range(n_rows)]
    if seed % 2:  # some cells are empty, but not of the first row
        rows[1:] = [[cell if rng.random() > 0.1 else "" for cell in row] for row in rows[1:]]
    return [f"{CELLS[kind][1]}{'_' * i}" for i, kind in enumerate(kinds)], rows


@pytest.mark.parametrize("seed", range(150))
def test_a_row_in_place_of_the_header_is_noticed_and_a_header_is_not(seed):
    header, rows = drawn_table(seed)
    assert values_in(rows[0], rows[1:])
    assert values_in(header, rows) == ""


@pytest.mark.parametrize(
    "header",
    [
        "region 2019 2020 2021", "id 0h 6h 12h", "2021 2020", "id 0 1 2", "1 2 3 4 5",
        " ".join(["sample", *(f"{400 + 2.5 * i}" for i in range(12))]), "gene1 gene2 gene3",
    ],
)  # fmt: skip
@pytest.mark.parametrize("decimals", [0, 2])
def test_numbers_may_be_names_where_they_count_or_are_years(header, decimals):
    names = header.split()
    cells = np.random.default_rng(decimals).gamma(2, 30, (30, len(names))) + 5
    rows = [[f"{x:.{decimals}f}" for x in row] for row in cells]
    if names[0] in ("region", "sample"):
        rows = [[f"r{i}", *row[1:]] for i, row in enumerate(rows)]
    assert values_in(names, rows) == ""


def test_years_and_counts_above_such_values_are_values():
    years = [["1950", "2019"], ["1961", "2020"], ["1943", "2019"]]
    assert values_in(years[0], years[1:]) == "cell 1 is a number, as those below"
    stages = [["Ann", "1", "2"], ["Bob", "3", "2"], ["Eve", "1", "4"]]
    assert values_in(stages[0], stages[1:]) == "cell 2 is a number, as those below"
    grown = [[chr(65 + i), *(str(50 + i + 9 * j) for j in range(9))] for i in range(9)]
    assert values_in(grown[0], grown[1:]) == "cell 2 is a number, as those below"


@pytest.mark.parametrize("ending", ["csv.gz", "xlsx", "csv"])
def test_a_table_without_a_header_is_read_by_names_that_are_said(ending):
    name = f"north.{ending}"
    rows = [["Ann", "F", 77.5], ["Bob", "M", 60.25], ["Eve", "F", 41.0]]
    if ending == "xlsx":
        workbook(name, *rows)
    else:
        write(name, "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    assert "seems to hold values, not the names of its columns" in refused(name, RAW)
    named = read(name, ["age"], names=("who", "sex", "age"))
    assert named.data.X.tolist() == [[77.5], [60.25], [41.0]]
    assert "has 3 columns, but names has 2" in refused(name, names=("who", "sex"))
    header = read(name, ["77.5"], names=("Ann", "F", "77.5"))  # that it is one is said, too
    assert header.data.X.tolist() == read(name, ["77.5"]).data.X.tolist() == [[60.25], [41.0]]


def test_a_workbook_with_several_tables_asks_for_the_sheet():
    first, second = [["age", "bmi"], [31, 22], [47, 30]], [["age", "bmi"], [52, 28], [61, 25]]
    workbook("two.xlsx", a=first, b=second)
    assert "the sheets 'a' (3 lines), 'b' (3 lines): name one" in refused("two.xlsx")
    assert read("two.xlsx", sheet="b").data.X.tolist() == [[52, 28], [61, 25]]
    assert refused("two.xlsx", sheet="C").endswith("two.xlsx has no sheet 'C'; it has a, b")
    assert "sheet is for Excel, and a.csv is none" in refused(
        write("a.csv", TWO), sites={"a": {"sheet": "a"}}
    )
    workbook("one.xlsx", cover=[["Export of May"], ["made by us"]], b=second, lists_=first)
    with pytest.warns(ReadingNote, match=r"one\.xlsx: sheet 'b' is read, and not 'cover'"):
        assert read("one.xlsx").data.X.tolist() == [[52, 28], [61, 25]]


def test_cells_merged_over_rows_count_for_each_of_them():
    ages = [31.5, 47, 52, 61, 38, 44]
    wards = ["A", None, None, "B", None, "C"]
    rows: list[list[Any]] = [["ward", "age"], *map(list, zip(wards, ages, strict=True))]
    workbook("n.xlsx", *rows, merged=["A2:A4", "A5:A6"])
    said = r"'A' of the merged cells A2:A4 counts for each of their rows, and so do 1 more"
    with pytest.warns(ReadingNote, match=rf"n\.xlsx: {said}"):
        found = read("n.xlsx", RAW).data
    assert found.columns[0].levels == ("A", "B", "C")
    assert found.X.tolist() == [[w, a] for w, a in zip([0, 0, 0, 1, 1, 2], ages, strict=True)]
    workbook("t.xlsx", ["Export"], [], *rows, merged=["A1:B1", "A4:A6", "A7:A8"])
    with pytest.warns(ReadingNote, match="'A' of the merged cells A4:A6"):
        assert read("t.xlsx", RAW, skip=2).data.X.tolist() == found.X.tolist()
    filled = [["ward", "age"], *([w or "D", a] for w, a in rows[1:]), [None] * 2]
    workbook("e.xlsx", *filled, merged=["A8:B8", "A9:C9"])
    whole = read("e.xlsx", RAW).data
    assert whole.X[:, 1].tolist()[:6] == ages  # empty cells that are merged say nothing


@pytest.mark.parametrize(
    ("rows", "cells", "why"),
    [
        ([["age", "bmi", None], [31, 22, 1], [47, 30, 2]], "B1:C1", "of its header are merged"),
        ([["age", "bmi"], [31, 22], [47, None]], "A3:B3", "are merged over columns"),
        ([["age", "bmi"], [None, "kg"], [31, 22], [47, 30]], "A1:A2", "of its header are merged"),
        ([["age", "bmi"], [31, None], [None, None]], "A2:B3", "are merged over columns"),
        ([["x", "bmi"], *[[1, 22]] * 3, ["Source: us", None]], "A5:B5", "are merged over columns"),
    ],
)
def test_other_merged_cells_are_refused_by_their_place(rows, cells, why):
    said = refused(workbook("n.xlsx", *rows, merged=[cells]), RAW)
    assert f"n.xlsx: the cells {cells} {why}" in said


@pytest.mark.parametrize(
    ("cells", "place"),
    [
        (["=A2*2", "=A3*2", "=A4*2"], "B2 of sheet 'Sheet' {}, and so have 2 more"),
        ([62.5, "=A3*2", 90], "B3 of sheet 'Sheet' {};"),
    ],
)
def test_formulas_without_a_value_are_refused(cells, place):
    """As programs write them that do not compute; a formula's empty text is a missing value."""
    workbook("n.xlsx", ["age", "twice"], *zip([31, 47, 45], cells, strict=True))
    said = place.format("has a formula but no value")
    assert f"n.xlsx: cell {said}" in refused("n.xlsx", RAW)


@pytest.mark.parametrize("part", ["sheet1.xml", "Sheet1.xml"])
def test_a_formula_may_have_an_empty_text_and_parts_of_a_workbook_other_names(part):
    """Some programs write their names in other letters than where these are told."""
    workbook("n.xlsx", ["age", "twice"], [31, 62], [47, "=IF(A3,TEXT(,),1)"], [45, 90])
    written = b'<c r="B3" t="str"><f>IF(A3,TEXT(,),1)</f><v></v></c>'
    with ZipFile("n.xlsx") as old, ZipFile("m.xlsx", "w") as new:
        for name in old.namelist():
            cells = re.sub(rb'<c r="B3"[^>]*>.*?</c>', lambda _: written, old.read(name))
            new.writestr(name.replace("sheet1.xml", part), cells)
    np.testing.assert_array_equal(read("m.xlsx", RAW).data.X, [[31, 62], [47, np.nan], [45, 90]])


LONG = ["20230301181139587", "20230301181139591", "20230301181139593"]


def test_whole_numbers_with_more_digits_than_a_float_are_texts():
    write("n.csv", "\n".join(["moment,price", *map(",".join, zip(LONG, "123", strict=True))]))
    assert read("n.csv", RAW).data.columns[0].levels == tuple(LONG)
    for kind in (pa.int64(), pa.uint64(), pa.decimal128(20, 0)):
        moments = pa.array([*map(int, LONG)]).cast(kind)
        pa.parquet.write_table(pa.table({"moment": moments, "price": [1, 2, 3]}), "n.parquet")
        assert read("n.parquet", RAW).data.columns[0].levels == tuple(LONG)
    said = f"'{LONG[0]}' has more digits than a number holds"
    assert said in refused("n.csv", ("moment", "price"))
    found = read(write("n.csv", "x,y\n1,1\n18446744073709551616,2\n3,4\n"), RAW)
    said = "row 2 (line 3 of n.csv): '18446744073709551616' has more digits than a number holds"
    assert found.unreadable == {"x": f"{said}; leave the column out"}


@pytest.mark.parametrize(
    "cell", ["1e18", "1_2", "2000000000000000000", "1234567890123456", "1e-300"]
)
def test_other_long_numbers_are_numbers_and_codes_with_underscores_texts(cell):
    found = read(write("n.csv", f"x,y\n{cell},1\n-{cell},2\n3,4\n"), RAW).data
    if "_" in cell:
        assert found.columns[0].levels == ("-1_2", "1_2", "3")
    else:
        assert found.X[:, 0].tolist() == [float(cell), -float(cell), 3.0]


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_rows_without_any_value_are_no_rows(ending):
    rows: Any = [
        ["age", "bmi", "sex"],
        [31, 22, "f"],
        [None] * 3,
        [47, None, "m"],
        *[[None] * 3] * 9,
    ]
    if ending == "csv":
        write("n.csv", "".join(",".join(str(cell or "") for cell in row) + "\n" for row in rows))
    else:
        workbook("n.xlsx", *rows)
    with pytest.warns(ReadingNote, match=r"(1 row is|10 rows are) left out .* any value, as row 2"):
        found = read(f"n.{ending}", RAW)
    assert found.data.X[:, 0].tolist() == [31, 47]
    assert list(found.row_ids) == [1, 3]
    assert len(site_file(f"n.{ending}").rows(raw=True).valued()) == 2  # of which groups are made


ENCODINGS = ["latin-1", "utf-16", "utf-8", "utf-8-sig", "cp1252", "utf-16-le"]


@pytest.mark.parametrize("encoding", [*ENCODINGS, "mac-roman", "cp437"])
@pytest.mark.parametrize("name", ["north.csv", "north.csv.gz"])
def test_the_encoding_of_a_csv_is_found_or_said(encoding, name):
    write(name, "größe;ort\n1,5;Köln\n2,5;München\n", encoding)
    found = [read(name, RAW, encoding=encoding), site_file(name, encoding=encoding).rows(raw=True)]
    for each in [read(name, RAW), *found] if encoding in ENCODINGS else found:
        data = getattr(each, "data", each)
        assert [column.name for column in data.columns] == ["größe", "ort"]
        assert data.columns[1].levels == ("Köln", "München")
        np.testing.assert_array_equal(data.X[:, 0], [1.5, 2.5])


@pytest.mark.parametrize("encoding", ["klingon", "rot13", "base64", "undefined", "ascii"])
def test_an_encoding_that_is_none_or_another_says_how_to_save_the_file(encoding):
    said = refused(write("a.csv", "ort\nMünchen\n", "cp1252"), RAW, encoding=encoding)
    if encoding == "ascii":
        assert "a.csv is not ascii throughout; save it as UTF-8" in said
    else:
        assert re.search(rf"^site 'a': .*'{encoding}'.* file as UTF-8$", said)


def test_letters_that_are_no_utf8_late_in_a_file_say_how_to_save_it():
    late = b"ort\n" + b"Koeln\n" * 200_000 + "München\n".encode("cp1252")
    assert re.search(r"save .* as UTF-8", refused(write("a.csv", late), RAW))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", None, "does not exist; check the path"),
        ("x.csv.gz", b"x,y", "is not a whole gzip file; write it again"),
        ("x.csv.gz", gzip.compress(b"x,y\n" * 999, mtime=0)[:30],
         "is not a whole gzip file; write it again"),
        ("x.parquet", None, "does not exist; check the path"),
        ("x.parquet", b"x,y", "is not a whole Parquet file; write it again"),
        ("x.doc", b"PK",
         "is of an unknown kind; known are .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .pq, .xlsx, "
         ".npy, .npz, .h5ad, .sqlite, .sqlite3, .db, .duckdb, .sas7bdat, .xpt, .sav, .zsav, .dta"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named(name, content, message):
    if content is not None:
        Path(name).write_bytes(content)
    owner = "x.doc" if name == "x.doc" else "x"
    assert refused(name) == f"site '{owner}': {name} {message}"


def test_a_folder_and_a_forbidden_file_are_no_files(monkeypatch):
    assert refused(".").startswith(". is a folder; give one file for each site, or write ./ if")

    def forbidden(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    write("x.csv", TWO)
    monkeypatch.setattr(Path, "open", forbidden)
    said = "site 'x': x.csv cannot be read: Permission denied; close it in"
    assert refused("x.csv").startswith(said)


@pytest.mark.parametrize("argument", ["postgresql+psycopg://me:s3cr3t@db/x", "north=sqlite:///x"])
def test_the_address_of_a_database_belongs_into_a_site_file(argument):
    kind = argument.removeprefix("north=").partition(":")[0]
    assert refused(argument).startswith(f"{kind}://...: a database needs")


@pytest.mark.parametrize("text", ["", "a,,b", " ", "a,b,a"])
def test_a_list_of_columns_has_names_and_each_once(text):
    with pytest.raises(InputError, match="--columns"):
        column_list(text)


@given(st.lists(st.text(min_size=1), max_size=8, unique=True))
def test_files_of_labels_are_safe_and_differ_on_every_file_system(sites):
    files = label_files(sites)
    assert list(files) == sites
    assert len({file.casefold() for file in files.values()}) == len(sites)
    for file in files.values():
        folder, name = file.split("/")
        assert folder == "labels"
        assert len(name.encode()) < 200
        assert not set(name) & set('\\:*?"<>|\0\n')
        assert name[0] not in ".- "


BLOCK = 1 << 20
"""Bytes that Arrow reads at a time."""
NUMBERS = ["0.1", "-0.0", "1e-300", "9007199254740993", "007", "-12", "1e5", "", "NA", "nan"]
TEXTS = ["Cardio", "a, b", 'say "so"', "", "Ü", "two\nlines", "two\r\nlines", " Neuro "]


def large(path: Path, columns: dict[str, list[str]], end: str = "\n") -> CsvFile:
    """A file of more than two blocks, in quotes where a cell needs them."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end)
    n = 3 * BLOCK // sum(len(each[0]) + 1 for each in columns.values())
    rows = zip(*(np.resize(each, n) for each in columns.values()), strict=True)
    writer.writerows([list(columns), *rows])
    written = text.getvalue().encode()
    assert len(written) > 2 * BLOCK
    path.write_bytes(gzip.compress(written, 0) if path.suffix == ".gz" else written)
    return CsvFile.open(path, ".")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("raw", [True, False])
def test_each_cell_is_read_as_it_is_written(end: str, name: str, raw: bool) -> None:
    rng = np.random.default_rng(1)
    values = {"x": [repr(each) for each in rng.normal(size=977).tolist()]}
    values["n"] = NUMBERS[: None if raw else 7]
    texts = {"ward": TEXTS} if raw else {}
    file = large(Path(name), values | texts, end)
    data = Reader("it", file.read(file.names), ColumnRoles(file.names, raw=raw)).data()
    for j, cells in enumerate(values.values()):
        expected = [float(each) if each not in ("", "NA") else np.nan for each in cells]
        np.testing.assert_array_equal(data.X[:, j], np.resize(expected, len(data)))
    for j in range(len(values), data.X.shape[1]):
        levels = [*data.columns[j].levels, None]
        places = np.nan_to_num(data.X[:, j], nan=len(levels) - 1).astype(int)
        meant = [" ".join(each.split()) or None for each in TEXTS]
        found = [None if (t := levels[i]) is None else " ".join(t.split()) for i in places]
        assert found == np.resize(np.array(meant, object), len(found)).tolist()


def test_weights_and_labels_come_beside() -> None:
    file = large(Path("a.csv"), {"a": ["1.25", "2"], "w": ["1", "2.5"], "y": ["x", "7", "07"]})
    part = file.read(["a", "w", "y"], ["y"])
    data = Reader("it", part, ColumnRoles(("a",), weight="w", label="y")).data()
    assert data.sample_weight is not None
    assert data.y is not None
    assert data.sample_weight[:3].tolist() == [1, 2.5, 1]
    assert data.y[:4].tolist() == ["x", "7", "07", "x"]


@pytest.mark.thorough
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("3,inf\n", r"column 'b', row {row} .line {line} of a.csv.: the value is infinite"),
        ("3\n", r"row {row} .line {line} of a.csv. has 1 value, but the header names 2"),
        ("3,4,5\n", r"row {row} .line {line} of a.csv. has 3 values, but the header names 2"),
        ("3,x\n", r"column 'b', row {row} .line {line} of a.csv.: 'x' is not a number"),
    ],
)
def test_what_is_wrong_is_said_by_its_line(raw: bool, last: str, said: str) -> None:
    file = large(Path("a.csv"), {"a": ["1.25", "2"], "b": ["1", "2.5"]})
    n = len(Reader("it", file.read(["a", "b"]), ColumnRoles(("a", "b"), raw=raw)).data())
    with file.path.open("a") as end:
        end.write(last)
    file = CsvFile.open(file.path)
    with pytest.raises(InputError, match=said.format(row=n + 1, line=n + 2)):
        Reader("it", file.read(["a", "b"]), ColumnRoles(("a", "b"), raw=raw)).data()


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (5, 3), (9_000, 3), (300, 9_000)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_extremes_of_a_sample_are_those_of_all_rows(shape, order):
    X = np.random.default_rng(3).normal(size=shape)
    X[X > 1] = np.nan
    X[:, 1] = np.nan
    low, high = extremes(np.array(X, order=order))
    for j in (0, 1, 2):
        there = X[~np.isnan(X[:, j]), j]
        expected = (there.min(), there.max()) if len(there) else (np.nan, np.nan)
        np.testing.assert_array_equal((low[j], high[j]), expected)


def tree(folder="."):
    """The text of each file."""
    files = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def put(folder, text, *names):
    """Write a text into some files of a folder."""
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)


def test_a_folder_appears_when_it_is_whole():
    with atomic_folder(Path("deep/er/out")) as folder:
        put(folder, "new", "labels/a.csv")
        assert not Path("deep").exists()
    assert tree() == {"deep/er/out/labels/a.csv": "new"}


def test_a_folder_that_is_there_loses_only_what_is_replaced():
    out, old = Path("out"), ["labels/a.csv", "labels/b.csv"]
    put(out, "old", "model.json", "mine.txt", "labels/mine.csv", *old)
    with atomic_folder(out, obsolete=[*old, "labels/c.csv"]) as folder:
        put(folder, "new", "labels/a.csv", "model.json")
    assert tree(out) == {
        "labels/a.csv": "new", "labels/mine.csv": "old", "mine.txt": "old", "model.json": "new",
    }  # fmt: skip


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("moves", range(7))
def test_after_an_error_everything_is_as_it_was(monkeypatch, moves, error):
    """However many files were moved before the error."""
    out = Path("out")
    put(out, "old", "a", "b", "gone")
    done: list[None] = []
    before, move = tree(), outputs._move  # noqa: SLF001

    def failing(here, there):
        if len(done) == moves:
            monkeypatch.setattr(outputs, "_move", move)
            raise error
        done.append(move(here, there))

    monkeypatch.setattr(outputs, "_move", failing)
    with pytest.raises(error), atomic_folder(out, obsolete=["gone"]) as folder:
        put(folder, "new", "a", "b", "c")
    assert tree() == before
    assert list(Path().iterdir()) == [out]


def test_a_folder_in_a_files_place_is_left_alone():
    Path("out/model.json/mine").mkdir(parents=True)
    with pytest.raises(InputError, match=r"out/model\.json is a folder"):  # noqa: SIM117
        with atomic_folder(Path("out")) as folder:
            put(folder, "new", "model.json")
    assert Path("out/model.json/mine").is_dir()


def test_a_full_disk_is_said_in_one_line():
    said = r"^out cannot be written: No space left on device$"
    with pytest.raises(InputError, match=said), atomic_folder(Path("out")):
        raise OSError(28, "No space left on device")
    assert tree() == {}


def test_a_file_keeps_its_old_content_until_the_new_one_is_whole():
    Path("a").write_text("old")
    with pytest.raises(TypeError), atomic_write(Path("a")) as temporary:
        temporary.write_text("half")
        raise TypeError("no text")
    assert tree() == {"a": "old"}


@pytest.fixture
def open_umask():
    """Others may do anything with what is written carelessly."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    """Who may do what with a file or a folder."""
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder):
    return {str(path.relative_to(folder)): mode(path) for path in sorted(folder.rglob("*"))}


def test_what_is_written_is_for_its_owner_alone(open_umask):
    out = Path("out")
    with atomic_folder(out) as folder:
        assert mode(folder.parent) == 0o700  # nobody enters meanwhile
        put(folder, "new", "labels/a.csv", "start.sh")
        (folder / "start.sh").chmod(0o755)
    assert mode(out) == 0o700
    assert modes(out) == {"labels": 0o700, "labels/a.csv": 0o600, "start.sh": 0o700}


def test_what_comes_into_an_open_folder_is_for_its_owner_alone(open_umask):
    """The folder stays as its owner has made it; who had let others read a file says so again."""
    out = Path("out")
    out.mkdir(mode=0o755)
    put(out, "old", "model.json", "mine.txt")
    with atomic_folder(out) as folder:
        put(folder, "new", "model.json", "history.json")
    assert mode(out) == 0o755
    assert modes(out) == {"history.json": 0o600, "mine.txt": 0o666, "model.json": 0o600}


def test_a_file_is_for_its_owner_alone_while_it_is_written_and_after(open_umask):
    Path("a").write_text("old")
    Path(f".a-{os.getpid()}-{get_ident()}.partial").write_text("of a program that was killed")
    with atomic_write(Path("a")) as temporary:
        assert (temporary.read_text(), mode(temporary)) == ("", 0o600)
        temporary.write_text("new")
    write_durably(Path("log"), b"one line\n")
    write_durably(Path("log"), b"another\n")
    assert tree() == {"a": "new", "log": "one line\nanother\n"}
    assert modes(Path()) == {"a": 0o600, "log": 0o600}


def test_a_folder_that_cannot_be_written_is_refused_before_the_work():
    put(Path(), "mine", "file", "full/mine")
    for out, message in {
        "file": "file is a file; --out names a folder",
        "file/in": f"file/in cannot be written: {Path('file').absolute()} is a file",
        "full": "full is not empty; choose another --out or add --overwrite",
    }.items():
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            check_folder(Path(out), overwrite=False)
    check_folder(Path("full"), overwrite=True)
    check_folder(Path("new/er"), overwrite=False)


def test_json_that_is_no_json_is_never_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"a": float("nan")})
