"""Files of rows: what is read, and what is said of files that cannot be read."""

import gzip
import os
import re
import stat
from pathlib import Path
from threading import get_ident
from typing import Any
from zipfile import ZipFile

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcluster.core.files import atomic_write, json_text, write_durably
from fedcluster.errors import InputError, ReadingNote
from fedcluster.frames.columns import column_list
from fedcluster.frames.reader import ColumnRoles
from fedcluster_app.cli._options import ValueOptions
from fedcluster_app.cli._reading import named_sources, read_sites
from fedcluster_app.site.file import SiteFile
from fedcluster_app.tables import outputs
from fedcluster_app.tables._files import values_in
from fedcluster_app.tables.outputs import atomic_folder, check_folder, label_files

pytestmark = pytest.mark.usefixtures("here")

TWO = "x,y\n1,2\n3,4\n"


def read(text, name="north.csv", columns=None, encoding="utf-8"):
    """The table of one site from the text of its file."""
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    (table,) = read_sites(named_sources([name]), columns).values()
    return table


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (TWO, "a.csv"),
        (TWO, "A.CSV"),
        ("x;y\n1;2\n3;4\n", "semicolon.csv"),
        ("x\ty\n1\t2\n3\t4\n", "tab.csv"),
        ("x\ty\n1\t2\n3\t4\n", "tab.tsv"),
        ("x|y\n1|2\n3|4\n", "bar.csv"),
        ("\ufeffx,y\r\n1,2\r\n3,4\r\n", "bom.csv"),
        ('"x", y \n1, 2\n 3 ,4', "blanks.csv"),
        ("\nx,y\n\n1,2\n\n\n3,4\n\n", "blank_lines.csv"),
        ("x,y\n+1,2e0\n3,4.\n", "signs.csv"),
        (gzip.compress(TWO.encode(), mtime=0), "packed.csv.gz"),
    ],
)
def test_dialects_of_csv_are_read_alike(text, name):
    table = read(text, name)
    assert table.columns == ("x", "y")
    np.testing.assert_array_equal(table.data.X, [[1, 2], [3, 4]])
    assert table.data.X.dtype == np.float64
    assert table.data.X.flags.c_contiguous
    assert list(table.row_ids) == [1, 2]


def test_quoted_names_and_values_may_hold_the_delimiter_and_line_breaks():
    table = read('"height, cm","a ""b""",note\n1,2,"one,\ntwo"\n3,4,x\n', columns=['a "b"'])
    np.testing.assert_array_equal(table.data.X, [[2], [4]])
    assert table.ignored == ("height, cm", "note")


def test_whole_numbers_and_truth_values_are_numbers():
    np.testing.assert_array_equal(read("a,b\ntrue,7\nfalse,8\n").data.X, [[1, 7], [0, 8]])


def test_parquet_keeps_float32_and_takes_every_kind_of_number():
    columns = {
        "f": pa.array([1.5, 2.5], pa.float32()),
        "dotted.name": pa.array([1, 2], pa.float32()),
        "i": pa.array([1, 2], pa.int8()),
        "b": pa.array([True, False]),
        "d": pa.array([1, 2]).cast(pa.decimal128(22, 2)),
    }
    pa.parquet.write_table(pa.table(columns), "north.parquet")
    given = named_sources(["north.parquet"])
    assert read_sites(given, ["dotted.name", "f"])["north"].dtype == np.float32
    whole = read_sites(given)["north"].data
    assert whole.X.dtype == np.float64
    np.testing.assert_array_equal(whole.X, [[1.5, 1, 1, 1, 1], [2.5, 2, 2, 0, 2]])


def test_columns_are_matched_by_name():
    Path("a.csv").write_text("x,y\n1,2\n")
    Path("b.csv").write_text("y,x\n4,3\n")
    tables = read_sites(named_sources(["b.csv", "a.csv"]))
    assert list(tables) == ["a", "b"]
    assert tables["b"].columns == ("x", "y")
    np.testing.assert_array_equal(tables["b"].data.X, [[3, 4]])


def test_chosen_columns_come_in_the_chosen_order_and_the_rest_is_ignored():
    table = read("id,x,name,y\n1,2,Ann,3\n", columns=["y", "x"])
    assert (table.columns, table.ignored) == (("y", "x"), ("id", "name"))
    np.testing.assert_array_equal(table.data.X, [[3, 2]])


def test_one_file_is_parted_by_the_column_of_sites():
    Path("all.csv").write_text("x,where,w\n1,01,1\n2, b ,2\n3,01,0.5\n4,1,3\n")
    tables = read_sites(named_sources(["all.csv"]), ColumnRoles(site="where", weight="w"))
    assert list(tables) == ["01", "1", "b"]
    assert tables["01"].data.X.tolist() == [[1.0], [3.0]]
    assert tables["01"].data.sample_weight is not None
    assert tables["01"].data.sample_weight.tolist() == [1.0, 0.5]
    assert [*tables["01"].row_ids] == [1, 3]
    Path("all.csv").write_text("x,where\n1,b\n2,B\n")
    with pytest.warns(ReadingNote, match="^sites 'B' and 'b' may be one; if so, write both in one"):
        read_sites(named_sources(["all.csv"]), ColumnRoles(site="where"))


def test_sites_are_named_after_files_or_as_they_are_told():
    found = named_sources(["d/South.csv.gz", "Upper North=d/a=b.csv", "x.y.parquet"])
    assert [(site, Path(str(source)).as_posix()) for site, source in found.items()] == [
        ("South", "d/South.csv.gz"),
        ("Upper North", "d/a=b.csv"),
        ("x.y", "x.y.parquet"),
    ]


def test_a_file_with_an_equals_sign_in_its_name_is_a_file():
    Path("a=b.csv").write_text(TWO)
    assert list(named_sources(["a=b.csv"])) == ["a=b"]


def test_a_column_that_counts_the_rows_is_warned_of():
    with pytest.warns(UserWarning, match="clustered by 'id' too, which only counts the rows; "):
        read("id,x\n1,5\n2,7\n3,1\n")


CELL = "site 'north', column {}, row {} (line {} of north.csv): "


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", None, "site 'north': north.csv is empty; expected a header line and rows"),
        ("\n\n", None, "site 'north': north.csv is empty; expected a header line and rows"),
        (
            "x,y\n",
            None,
            "site 'north': north.csv has a header but no rows; add rows or leave the file out",
        ),
        (
            "id,name,x\n1,Ann,5\n2,Bob,6\n3,Cid,4\n",
            None,
            CELL.format("'name'", 1, 2) + "'Ann' is not a number; choose columns with --columns x",
        ),
        (
            "x,y\n1,2\n\n3,twelve\n5,6\n7,8\n",
            None,
            CELL.format("'y'", 2, 4) + "'twelve' is not a number, as most of this column are; "
            "mend it or choose columns with --columns x",
        ),
        (
            "name\nAnn\n",
            None,
            CELL.format("'name'", 1, 2) + "'Ann' is not a number; there is no other column",
        ),
        (
            "when,x y,z\n2024-01-01,1,2\n",
            ["when", "x y", "z"],
            CELL.format("'when'", 1, 2) + "the value, a date, is not a number; "
            "choose columns with --columns 'x y,z'",
        ),
        (
            b"x,name\n1,Ann\n2,Zo\xeb\n",
            None,
            CELL.format("'name'", 1, 2) + "'Ann' is not a number; choose columns with --columns x",
        ),
        (
            "x;y\n1,500;2\n1234;2\n",
            None,
            CELL.format("'x'", 1, 2)
            + "'1,500' may mean 1.500 or 1500; if 1.500, say --set source.decimal=, or, in a "
            'site file, decimal = "," under [source]; if 1500, save the file without commas',
        ),
        (
            "x,y\n1,\n3,2\n,5\n",
            None,
            CELL.format("'x'", 3, 4) + "the value is missing; fill it in or drop the row",
        ),
        (
            "x,y\n1,NA\n3,2\n1,nan\n1,\n",
            None,
            CELL.format("'y'", 1, 2)
            + "the value is missing, as 2 more of this column are; fill it in or drop the row",
        ),
        (
            "x\n1\n\n3\n",
            None,
            CELL.format("'x'", 2, 3) + "the value is missing; fill it in or drop the row",
        ),
        (
            "x,y\n1,2\n3,-inf\n",
            None,
            CELL.format("'y'", 2, 3) + "the value is infinite; fill it in or drop the row",
        ),
        (
            'x,note\n1,"a\nb"\n2,c\n,d\n',
            ["x"],
            CELL.format("'x'", 3, 5) + "the value is missing; fill it in or drop the row",
        ),
        (
            "x,y\n1,2\n3\n",
            None,
            "site 'north': row 2 (line 3 of north.csv) has 1 value, "
            "but the header names 2 columns; mend that line",
        ),
        (
            "x,x\n1,2\n",
            None,
            "site 'north', column 'x': north.csv has two columns of this name; rename one of them",
        ),
        (
            ",x,y\n7,1,2\n",
            None,
            "site 'north': a column has no name; choose columns with --columns x,y",
        ),
        (
            "5.1,3.5\n4.9,3.0\n",
            None,
            "site 'north': the first line of north.csv seems to hold values, not the names of its "
            "columns (cell 1 is a number, as those below); put a line with names above it, or "
            'name them, as in --set \'sites.north.names=["A", "B", "C"]\' or, in a site file, '
            'names = ["A", "B", "C"] under [source]',
        ),
        ("x,y\n1,2\n", ["x", "z"], "site 'north' has no column 'z'; it has x, y"),
    ],
)
def test_what_is_wrong_with_a_csv_is_said_in_one_line(text, columns, message):
    with pytest.raises(InputError) as said:
        read(text, columns=columns)
    assert str(said.value) == message


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
        ["region", "2019", "2020", "2021"],
        ["2021", "2020"],
        ["id", "0", "1", "2"],
        ["1", "2", "3", "4", "5"],
        ["sample", *(f"{400 + 2.5 * i}" for i in range(12))],
        ["id", "0h", "6h", "12h"],
        ["gene1", "gene2", "gene3"],
    ],
)
@pytest.mark.parametrize("decimals", [0, 2])
def test_numbers_may_be_names_where_they_count_or_are_years(header, decimals):
    rng = np.random.default_rng(decimals)
    text = [0] if header[0] in ("region", "sample") else []
    cells = rng.gamma(2, 30, (30, len(header))) + 5
    rows = [
        [f"r{i}" if j in text else f"{x:.{decimals}f}" for j, x in enumerate(row)]
        for i, row in enumerate(cells)
    ]
    assert values_in(header, rows) == ""


def test_years_and_counts_above_such_values_are_values():
    years = [["1950", "2019"], ["1961", "2020"], ["1943", "2019"]]
    assert values_in(years[0], years[1:]) == "cell 1 is a number, as those below"
    stages = [["Ann", "1", "2"], ["Bob", "3", "2"], ["Eve", "1", "4"]]
    assert values_in(stages[0], stages[1:]) == "cell 2 is a number, as those below"
    grown = [[chr(65 + i), *(str(50 + i + 9 * j) for j in range(9))] for i in range(9)]
    assert values_in(grown[0], grown[1:]) == "cell 2 is a number, as those below"


def _named(*names):
    """What says the names of the columns of a file."""
    return ValueOptions(source={"names": names})


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "xlsx"])
def test_a_table_without_a_header_is_read_by_names_that_are_said(ending):
    name = f"north.{ending}"
    rows = [["Ann", "F", 77.5], ["Bob", "M", 60.25], ["Eve", "F", 41.0]]
    if ending == "xlsx":
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        book.save(name)
    else:
        text = "".join(f"{a},{b},{c}\n" for a, b, c in rows).encode()
        Path(name).write_bytes(gzip.compress(text) if ending == "csv.gz" else text)
    with pytest.raises(InputError, match="seems to hold values, not the names of its columns"):
        read_sites(named_sources([name]), ColumnRoles(raw=True))
    sources = named_sources([name], _named("who", "sex", "age"))
    assert read_sites(sources, ["age"])["north"].data.X.ravel().tolist() == [77.5, 60.25, 41.0]
    with pytest.raises(InputError, match="has 3 columns, but names has 2"):
        read_sites(named_sources([name], _named("who", "sex")))
    sources = named_sources([name], _named("Ann", "F", "77.5"))  # that it is a header is said, too
    assert read_sites(sources, ["77.5"])["north"].data.X.ravel().tolist() == [60.25, 41.0]
    assert read_sites(named_sources([name]), ["77.5"])["north"].data.X.tolist() == [[60.25], [41]]


def sheets(name, **tables):
    """A workbook with some sheets."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in tables.items():
        sheet = book.create_sheet(title.strip("_"))
        sheet.sheet_state = "hidden" if title.endswith("_") else "visible"
        for row in rows:
            sheet.append(row)
    book.save(name)


def test_a_workbook_with_several_tables_asks_for_the_sheet():
    first, second = [["age", "bmi"], [31, 22], [47, 30]], [["age", "bmi"], [52, 28], [61, 25]]
    sheets("two.xlsx", a=first, b=second)
    with pytest.raises(InputError, match=r"the sheets 'a' \(3 lines\), 'b' \(3 lines\): name one"):
        read_sites(named_sources(["two.xlsx"]))
    found = read_sites(named_sources(["two.xlsx"], ValueOptions({"two": {"sheet": "b"}})))["two"]
    assert found.data.X.tolist() == [[52, 28], [61, 25]]
    sheets("one.xlsx", cover=[["Export of May"], ["made by us"]], b=second, lists_=first)
    with pytest.warns(ReadingNote, match=r"one\.xlsx: sheet 'b' is read, and not 'cover'"):
        found = read_sites(named_sources(["one.xlsx"]))["one"]
    assert found.data.X.tolist() == [[52, 28], [61, 25]]


def merged(name, rows, *ranges):
    """A workbook of which some cells are merged."""
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for each in ranges:
        book.active.merge_cells(each)
    book.save(name)


def test_cells_merged_over_rows_count_for_each_of_them():
    ages = [31.5, 47, 52, 61, 38, 44]
    wards = ["A", None, None, "B", None, "C"]
    rows: list[list[Any]] = [["ward", "age"], *map(list, zip(wards, ages, strict=True))]
    merged("n.xlsx", rows, "A2:A4", "A5:A6")
    said = r"'A' of the merged cells A2:A4 counts for each of their rows, and so do 1 more"
    with pytest.warns(ReadingNote, match=rf"n\.xlsx: {said}"):
        found = read_sites(named_sources(["n.xlsx"]), ColumnRoles(raw=True))["n"].data
    assert found.columns[0].levels == ("A", "B", "C")
    assert found.X.tolist() == [[w, a] for w, a in zip([0, 0, 0, 1, 1, 2], ages, strict=True)]
    merged("t.xlsx", [["Export"], [], *rows], "A1:B1", "A4:A6", "A7:A8")
    with pytest.warns(ReadingNote, match="'A' of the merged cells A4:A6"):
        same = read_sites(
            named_sources(["t.xlsx"], ValueOptions(source={"skip": 2})), ColumnRoles(raw=True)
        )["t"].data
    assert same.X.tolist() == found.X.tolist()
    filled = [["ward", "age"], *([w or "D", a] for w, a in rows[1:]), [None] * 2]
    merged("e.xlsx", filled, "A8:B8", "A9:C9")
    whole = read_sites(named_sources(["e.xlsx"]), ColumnRoles(raw=True))["e"].data
    assert whole.X[:, 1].tolist()[:6] == ages  # empty cells that are merged say nothing


@pytest.mark.parametrize(
    ("rows", "cells", "why"),
    [
        ([["age", "bmi", None], [31, 22, 1], [47, 30, 2]], "B1:C1", "of its header are merged"),
        ([["age", "bmi"], [None, "kg"], [31, 22], [47, 30]], "A1:A2", "of its header are merged"),
        ([["age", "bmi"], [31, 22], [47, None]], "A3:B3", "are merged over columns"),
        ([["age", "bmi"], [31, None], [None, None]], "A2:B3", "are merged over columns"),
        ([["x", "bmi"], *[[1, 22]] * 3, ["Source: us", None]], "A5:B5", "are merged over columns"),
    ],
)
def test_other_merged_cells_are_refused_by_their_place(rows, cells, why):
    merged("n.xlsx", rows, cells)
    with pytest.raises(InputError, match=f"n.xlsx: the cells {cells} {why}"):
        read_sites(named_sources(["n.xlsx"]), ColumnRoles(raw=True))


@pytest.mark.parametrize("cells", [["=A2*2", "=A3*2", "=A4*2"], [62.5, "=A3*2", 90]])
def test_formulas_without_a_value_are_refused(cells):
    """As programs write them that do not compute; a formula's empty text is a missing value."""
    merged("n.xlsx", [["age", "twice"], *zip([31, 47, 45], cells, strict=True)])
    place = "B2 of sheet 'Sheet' has a formula but no value, and so have 2 more"
    place = place if cells[0] == "=A2*2" else "B3 of sheet 'Sheet' has a formula but no value;"
    with pytest.raises(InputError, match=rf"n\.xlsx: cell {place}"):
        read_sites(named_sources(["n.xlsx"]), ColumnRoles(raw=True))


def test_a_formula_may_have_an_empty_text():
    merged("n.xlsx", [["age", "twice"], [31, 62], [47, "=IF(A3,TEXT(,),1)"], [45, 90]])
    written = b'<c r="B3" t="str"><f>IF(A3,TEXT(,),1)</f><v></v></c>'
    with ZipFile("n.xlsx") as old, ZipFile("m.xlsx", "w") as new:
        for name in old.namelist():
            cells = old.read(name)
            new.writestr(name, re.sub(rb'<c r="B3"[^>]*>.*?</c>', lambda _: written, cells))
    found = read_sites(named_sources(["m.xlsx"]), ColumnRoles(raw=True))["m"].data
    np.testing.assert_array_equal(found.X, [[31, 62], [47, np.nan], [45, 90]])


def test_a_workbook_whose_parts_are_called_otherwise_is_read():
    """Some programs write their names in other letters than where these are told."""
    merged("n.xlsx", [["age", "twice"], [31, 62], [47, None], [45, 90]])
    with ZipFile("n.xlsx") as old, ZipFile("m.xlsx", "w") as new:
        for name in old.namelist():
            new.writestr(name.replace("sheet1.xml", "Sheet1.xml"), old.read(name))
    found = read_sites(named_sources(["m.xlsx"]), ColumnRoles(raw=True))["m"].data
    np.testing.assert_array_equal(found.X, [[31, 62], [47, np.nan], [45, 90]])


LONG = ["20230301181139587", "20230301181139591", "20230301181139593"]


def test_whole_numbers_with_more_digits_than_a_float_are_texts():
    text = "\n".join(["moment,price", *map(",".join, zip(LONG, "123", strict=True))])
    found = read(text, columns=ColumnRoles(raw=True)).data
    assert found.columns[0].levels == tuple(LONG)
    table = pa.table({"moment": pa.array([*map(int, LONG)]), "price": [1, 2, 3]})
    for kind in (pa.int64(), pa.uint64(), pa.decimal128(20, 0)):
        cast = table.set_column(0, "moment", table["moment"].cast(kind))
        pa.parquet.write_table(cast, "long.parquet")
        same = read_sites(named_sources(["long.parquet"]), ColumnRoles(raw=True))["long"].data
        assert same.columns[0].levels == tuple(LONG)
    with pytest.raises(InputError, match=f"'{LONG[0]}' has more digits than a number holds"):
        read(text, columns=("moment", "price"))


@pytest.mark.parametrize("cell", ["1e18", "2000000000000000000", "1234567890123456", "1e-300"])
def test_other_long_numbers_are_numbers(cell):
    found = read(f"x,y\n{cell},1\n-{cell},2\n3,4\n", columns=ColumnRoles(raw=True)).data
    assert found.X[:, 0].tolist() == [float(cell), -float(cell), 3.0]


def test_one_cell_with_too_many_digits_is_named():
    text = "x,y\n1,1\n18446744073709551616,2\n3,4\n"
    said = "row 2 (line 3 of north.csv): '18446744073709551616' has more digits than a number holds"
    found = read(text, columns=ColumnRoles(raw=True))
    assert found.unreadable == {"x": f"{said}; leave the column out"}


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_rows_without_any_value_are_no_rows(ending):
    rows: list[Any] = [
        ["age", "bmi", "sex"],
        [31, 22, "f"],
        ["", "", ""],
        [47, "", "m"],
        *[["", "", ""]] * 9,
    ]
    if ending == "csv":
        Path("n.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    else:
        sheets("n.xlsx", a=[[cell or None for cell in row] for row in rows])
    with pytest.warns(ReadingNote, match=r"(1 row is|10 rows are) left out .* any value, as row 2"):
        found = read_sites(named_sources([f"n.{ending}"]), ColumnRoles(raw=True))["n"]
    assert found.data.X[:, 0].tolist() == [31, 47]
    assert list(found.row_ids) == [1, 3]
    source = f'name = "n"\n[source]\npath = "n.{ending}"\n'
    Path("site.toml").write_text(source)
    own: Any = SiteFile.load("site.toml").rows(raw=True)
    assert len(own.valued()) == 2  # of which groups are made


def test_codes_with_underscores_are_texts():
    with pytest.raises(InputError, match="'1_2' is not a number"):
        read("bed,x\n1_2,1\n10_1,2\n")
    found = read("bed,x\n1_2,1\n10_1,2\n1_2,3\n", columns=ColumnRoles(raw=True))
    assert [column.kind for column in found.data.columns] == ["text", "number"]


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16", "utf-16-le"]
)
@pytest.mark.parametrize("name", ["north.csv", "north.csv.gz"])
def test_the_encoding_of_a_csv_is_found(encoding, name):
    text = "größe,ort\n1.5,Köln\n2.5,Zoë\n".encode(encoding)
    Path(name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    read = read_sites(named_sources([name]), ColumnRoles(raw=True))["north"]
    assert read.columns == ("größe", "ort")
    assert read.data.columns[1].levels == ("Köln", "Zoë")
    np.testing.assert_array_equal(read.data.X[:, 0], [1.5, 2.5])


def test_columns_may_be_called_0_1_2():
    assert read("0,1\n5,7\n").columns == ("0", "1")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", None, "site 'x': x.csv does not exist; check the path"),
        ("x.parquet", None, "site 'x': x.parquet does not exist; check the path"),
        (
            "x.doc",
            b"PK",
            "site 'x.doc': x.doc is of an unknown kind; known are .csv, .csv.gz, .tsv, .tsv.gz, "
            ".parquet, .pq, .xlsx, .npy, .npz, .h5ad, .sqlite, .sqlite3, .db, .duckdb, .sas7bdat, "
            ".xpt, .sav, .zsav, .dta",
        ),
        (
            "x.parquet",
            b"x,y",
            "site 'x': x.parquet is not a whole Parquet file; write it again",
        ),
        ("x.csv.gz", b"x,y", "site 'x': x.csv.gz is not a whole gzip file; write it again"),
        (
            "x.csv.gz",
            gzip.compress(b"x,y\n" * 999, mtime=0)[:30],
            "site 'x': x.csv.gz is not a whole gzip file; write it again",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name, content, message):
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(InputError) as said:
        read_sites(named_sources([name]))
    assert str(said.value) == message


def test_a_folder_and_a_forbidden_file_are_no_files(monkeypatch):
    refused = r"^\. is a folder; give one file for each site, or write \./ if"
    with pytest.raises(InputError, match=refused):
        read_sites(named_sources(["."]))

    def forbidden(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    Path("x.csv").write_text(TWO)
    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(
        InputError, match=r"^site 'x': x\.csv cannot be read: Permission denied; close it in"
    ):
        read_sites(named_sources(["x.csv"]))


def test_a_column_that_one_site_lacks_is_named_with_the_common_ones():
    Path("north.csv").write_text("x,y,z\n1,2,3\n")
    Path("south.csv").write_text("y,x\n1,2\n")
    with pytest.raises(InputError) as said:
        read_sites(named_sources(["north.csv", "south.csv"]))
    assert str(said.value) == (
        "site 'south' has no column 'z', which site 'north' has; choose columns with --columns x,y"
    )


def test_a_column_is_needed():
    Path("all.csv").write_text("where\na\n")
    with pytest.raises(InputError, match=r"^site 'all': there is no column to cluster by$"):
        read_sites(named_sources(["all.csv"]), ColumnRoles(site="where"))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("w", "site 'north', column 'w', row 2 (line 3 of north.csv): the weight is negative; "),
        ("v", "site 'north', column 'v', row 1 (line 2 of north.csv): 'much' is not a number; "),
        ("u", "site 'north' has no column 'u'; it has x, w, v"),
    ],
)
def test_weights_are_numbers_from_zero(column, message):
    Path("north.csv").write_text("x,w,v\n1,0,much\n1,-1,2\n")
    with pytest.raises(InputError) as said:
        read_sites(named_sources(["north.csv"]), ColumnRoles(("x",), weight=column))
    assert str(said.value).startswith(message)


def test_some_row_of_each_site_weighs_something():
    Path("a.csv").write_text("x,site,w\n1,a,0\n2,b,1\n3,a,0\n")
    message = r"^site 'a', column 'w': every weight is 0; leave the site out or weigh some row$"
    with pytest.raises(InputError, match=message):
        read_sites(named_sources(["a.csv"]), ColumnRoles(site="site", weight="w"))
    Path("a.csv").write_text("x,w\n1,0\n")
    with pytest.raises(InputError, match=message):
        read_sites(named_sources(["a.csv"]), ColumnRoles(weight="w"))


def test_a_row_without_a_site_is_named():
    Path("all.csv").write_text("x,where\n1,a\n2,\n")
    with pytest.raises(InputError) as said:
        read_sites(named_sources(["all.csv"]), ColumnRoles(site="where"))
    assert str(said.value) == (
        "all.csv, column 'where', row 2 (line 3 of all.csv): the site's name is missing"
    )


def test_two_sites_of_one_name_are_refused():
    with pytest.raises(InputError) as said:
        named_sources(["a/north.csv", "b/north.parquet"])
    assert str(said.value) == (
        "two sites are called 'north' (a/north.csv and b/north.parquet); give one of them another "
        "name, as in north-2=b/north.parquet"
    )


@pytest.mark.parametrize("argument", ["postgresql+psycopg://me:s3cr3t@db/x", "north=sqlite:///x"])
def test_the_address_of_a_database_belongs_into_a_site_file(argument):
    with pytest.raises(
        InputError, match=r"^(postgresql\+psycopg|sqlite)://\.\.\.: a database needs"
    ):
        named_sources([argument])


@pytest.mark.parametrize("text", ["", "a,,b", " ", "a,b,a"])
def test_a_list_of_columns_has_names_and_each_once(text):
    with pytest.raises(InputError, match="--columns"):
        column_list(text)


def test_other_columns_than_the_models_are_ignored():
    Path("new.csv").write_text("name,y,x\nAnn,1,2\n")
    table = read_sites(named_sources(["new.csv"]), ["x", "y"])["new"]
    assert (table.data.X.tolist(), table.ignored) == ([[2.0, 1.0]], ("name",))


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


def tree(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_folder_appears_when_it_is_whole():
    out = Path("deep/er/out")
    with atomic_folder(out) as folder:
        (folder / "labels").mkdir()
        (folder / "labels/a.csv").write_text("new")
        assert not Path("deep").exists()
    assert tree(Path()) == {"deep/er/out/labels/a.csv": "new"}


def test_a_folder_that_is_there_loses_only_what_is_replaced():
    out = Path("out")
    for name in ("model.json", "mine.txt", "labels/a.csv", "labels/b.csv", "labels/mine.csv"):
        (out / name).parent.mkdir(exist_ok=True, parents=True)
        (out / name).write_text("old")
    with atomic_folder(out, obsolete=["labels/a.csv", "labels/b.csv", "labels/c.csv"]) as folder:
        (folder / "labels").mkdir()
        (folder / "labels/a.csv").write_text("new")
        (folder / "model.json").write_text("new")
    assert tree(Path()) == {
        "out/labels/a.csv": "new",
        "out/labels/mine.csv": "old",
        "out/mine.txt": "old",
        "out/model.json": "new",
    }


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("moves", range(7))
def test_after_an_error_everything_is_as_it_was(monkeypatch, moves, error):
    """However many files were moved before the error."""
    out = Path("out")
    out.mkdir()
    for name in ("a", "b", "gone"):
        (out / name).write_text("old")
    before = tree(Path())
    done: list[None] = []
    move = outputs._move  # noqa: SLF001

    def failing(here, there):
        if len(done) == moves:
            monkeypatch.setattr(outputs, "_move", move)
            raise error
        done.append(move(here, there))

    monkeypatch.setattr(outputs, "_move", failing)
    with pytest.raises(error):
        write("abc", out, obsolete=["gone"])
    assert tree(Path()) == before
    assert list(Path().iterdir()) == [out]


def write(names, out, obsolete):
    with atomic_folder(out, obsolete=obsolete) as folder:
        for name in names:
            (folder / name).write_text("new")


def test_a_folder_in_a_files_place_is_left_alone():
    Path("out/model.json/mine").mkdir(parents=True)
    with (
        pytest.raises(InputError, match=r"out/model\.json is a folder"),
        atomic_folder(Path("out")) as folder,
    ):
        (folder / "model.json").write_text("new")
    assert Path("out/model.json/mine").is_dir()


def test_a_full_disk_is_said_in_one_line():
    with (
        pytest.raises(InputError, match=r"^out cannot be written: No space left on device$"),
        atomic_folder(Path("out")),
    ):
        raise OSError(28, "No space left on device")
    assert tree(Path()) == {}


def test_a_file_keeps_its_old_content_until_the_new_one_is_whole():
    Path("a").write_text("old")
    with pytest.raises(TypeError), atomic_write(Path("a")) as temporary:
        temporary.write_text("half")
        raise TypeError("no text")
    assert tree(Path()) == {"a": "old"}
    with atomic_write(Path("a")) as temporary:
        temporary.write_text("new")
    assert tree(Path()) == {"a": "new"}


@pytest.fixture
def open_umask():
    """Others may do anything with what is written carelessly."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder):
    """The permissions of all files and folders below a folder."""
    paths = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): stat.S_IMODE(p.stat().st_mode) for p in paths}


def test_what_is_written_is_for_its_owner_alone(open_umask):
    out = Path("out")
    with atomic_folder(out) as folder:
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700  # nobody enters meanwhile
        (folder / "labels").mkdir()
        (folder / "labels/a.csv").write_text("new")
        (folder / "start.sh").write_text("new")
        (folder / "start.sh").chmod(0o755)
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert modes(out) == {"labels": 0o700, "labels/a.csv": 0o600, "start.sh": 0o700}


def test_what_comes_into_an_open_folder_is_for_its_owner_alone(open_umask):
    """The folder stays as its owner has made it; who had let others read a file says so again."""
    out = Path("out")
    out.mkdir(mode=0o755)
    (out / "model.json").write_text("old")
    (out / "mine.txt").write_text("old")
    write(["model.json", "history.json"], out, [])
    assert stat.S_IMODE(out.stat().st_mode) == 0o755
    assert modes(out) == {"history.json": 0o600, "mine.txt": 0o666, "model.json": 0o600}


def test_a_file_is_for_its_owner_alone_while_it_is_written_and_after(open_umask):
    Path("a").write_text("old")
    Path(f".a-{os.getpid()}-{get_ident()}.partial").write_text("of a program that was killed")
    with atomic_write(Path("a")) as temporary:
        assert (temporary.read_text(), stat.S_IMODE(temporary.stat().st_mode)) == ("", 0o600)
        temporary.write_text("new")
    write_durably(Path("log"), b"one line\n")
    write_durably(Path("log"), b"another\n")
    assert tree(Path()) == {"a": "new", "log": "one line\nanother\n"}
    assert modes(Path()) == {"a": 0o600, "log": 0o600}


def test_a_folder_that_cannot_be_written_is_refused_before_the_work():
    Path("file").write_text("mine")
    Path("full").mkdir()
    Path("full/mine").write_text("mine")
    for out, message in {
        "file": "file is a file; --out names a folder",
        "file/in": f"file/in cannot be written: {Path('file').absolute()} is a file",
        "full": "full is not empty; choose another --out or add --overwrite",
    }.items():
        with pytest.raises(InputError) as said:
            check_folder(Path(out), overwrite=False)
        assert str(said.value) == message
    check_folder(Path("full"), overwrite=True)
    check_folder(Path("new/er"), overwrite=False)


def test_json_that_is_no_json_is_never_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"a": float("nan")})
