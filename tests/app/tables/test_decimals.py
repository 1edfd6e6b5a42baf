"""Decimal commas: files as European hospitals and companies write them."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from readings import RAW, read, refused, site_file, write
from typed import fails, remedies, run

from fedcluster import FederatedKMeans
from fedcluster.core import Data
from fedcluster.errors import InputError
from fedcluster.frames import WarehouseSource
from fedcluster.frames.cells import as_floats, is_number, parsed
from fedcluster.frames.inputs import read_table
from fedcluster.frames.reader import ColumnRoles
from fedcluster_app.tables import open_rows
from fedcluster_app.tables import table_rows as spool
from fedcluster_app.tables._files import CsvFile
from fedcluster_app.tables.table_rows import cached_rows

pytestmark = pytest.mark.usefixtures("here")

GERMAN = """\
Größe;Gewicht;Temperatur;Station;Note
1,64;78,5;36,6;Süd;2,0
1,7;;38,25;Süd;1,3
1,58;92;-0,5;Nord;2,0
NA;81,05;37;Nord;1,3
2;1,5e2;+36,9;"Süd, oben";2,0
"""
QUOTED = "\n".join(
    ";".join(f'"{cell}"' for cell in line.replace('"', "").split(";"))
    for line in GERMAN.splitlines()
)
IN_COMMAS = QUOTED.replace('";"', '","')
VALUES = np.array(
    [
        [1.64, 78.5, 36.6],
        [1.7, np.nan, 38.25],
        [1.58, 92, -0.5],
        [np.nan, 81.05, 37],
        [2, 150, 36.9],
    ]
)
WIDE = pa.decimal256(50, 20)


@pytest.mark.parametrize("path", ["north.csv.gz", "north.csv"])
@pytest.mark.parametrize("text", [QUOTED, "\ufeff" + GERMAN, GERMAN, IN_COMMAS])
def test_a_german_file_is_read(text: str, path: str) -> None:
    data = read(write(path, text), RAW, decimal=",").data
    np.testing.assert_array_equal(data.X[:, :3], VALUES)
    assert [column.kind for column in data.columns] == ["number"] * 3 + ["text", "number"]
    assert data.columns[3].levels == ("Nord", "Süd", "Süd, oben")


@pytest.mark.parametrize("in_memory", [0, 1 << 20])
@pytest.mark.parametrize("path", ["rows.csv.gz", "rows.csv"])
@pytest.mark.parametrize("text", [QUOTED, GERMAN])
def test_a_site_file_says_what_decimals_begin_with(text, path, in_memory, monkeypatch):
    monkeypatch.setattr(spool, "READ", 6)
    lines = [f"values_in_memory = {in_memory}", 'label_column = "Note"']
    weighed = site_file(write(path, text), *lines, 'weight_column = "Gewicht"', decimal=",")
    with pytest.raises(InputError, match=r"'Gewicht', row 2 .*: the value is missing"):
        len(weighed.rows(raw=True))
    held = site_file(path, *lines, decimal=",").rows(raw=True)
    assert isinstance(held, Data) == bool(in_memory)
    data = held if isinstance(held, Data) else held.load()
    np.testing.assert_array_equal(data.X[:, :3], VALUES)
    np.testing.assert_array_equal(data.y, ["2,0", "1,3", "2,0", "1,3", "2,0"])  # as written


def test_values_that_are_text_for_arrow_are_numbers_too() -> None:
    """Blanks, and signs for missing values that Arrow does not know, make a column text."""
    write("a.csv", "x;y\n 1,5 ;None\n2,5;0,25\n")
    np.testing.assert_array_equal(read("a.csv", ["x"], decimal=",").data.X, [[1.5], [2.5]])
    raw = read("a.csv", RAW, decimal=",").data
    np.testing.assert_array_equal(raw.X, [[1.5, np.nan], [2.5, 0.25]])
    one = read(write("one.csv", "x\n1,5\n2\n"), decimal=",").data  # which needs no delimiter
    np.testing.assert_array_equal(one.X, [[1.5], [2]])


def test_later_blocks_may_be_of_another_kind() -> None:
    """The first block has whole numbers, the last a number of another form and a comma."""
    n = 200_000
    text = "".join(f"{i};{i}\n" for i in range(n)) + "7,5;None\n"
    file = CsvFile.open(Path(write("rows.csv", "a;b\n" + text)), ",")
    np.testing.assert_array_equal(cached_rows(file, ["a"]).load().X.ravel(), [*range(n), 7.5])
    with pytest.raises(InputError, match=rf"column 'b', row {n + 1} .*: the value is missing"):
        len(cached_rows(file, ["b"]))


def test_parquet_has_no_decimal_sign_and_that_of_csv_is_a_point_or_a_comma() -> None:
    pa.parquet.write_table(pa.table({"x": [1.5, 2.5], "t": ["1,5", "2,5"]}), "a.parquet")
    assert read("a.parquet", ["x"], decimal=",").data.X.tolist() == [[1.5], [2.5]]
    said = refused("a.parquet", decimal=",")
    assert "'1,5' has a decimal comma; save the file with decimal p" in said
    with pytest.raises(InputError, match=r"decimal is for CSV, and .*a\.parquet is none"):
        site_file("a.parquet", decimal=",").rows()
    with pytest.raises(InputError, match=r"""\[source\], decimal must be "\." or ",", not ';'"""):
        site_file(write("a.csv", GERMAN), decimal=";")


def test_a_german_date_is_a_date() -> None:
    write("a.csv", "x;y\n24.12.2020;1,5\n25.12.2020;2\n")
    assert read("a.csv", RAW, decimal=",").data.columns[0].kind == "date"
    said = refused("a.csv", decimal=",")
    assert "'24.12.2020' is not a number; choose columns with" in said


SAY = '--set source.decimal=, or, in a site file, decimal = "," under [source]'


@pytest.mark.parametrize("columns", [None, RAW])
@pytest.mark.parametrize(
    ("column", "decimal", "words"),
    [
        ("36,6 37 38,25", ".", f"row 1 (line 2 of a.csv): '36,6' has a decimal comma, as its "
         f"column has; say {SAY}"),
        ("1234 1,234 5,678", ".", "row 2 (line 3 of a.csv): '1,234' may mean 1.234 or 1234; if "
         f"1.234, say {SAY}; if 1234, save the file without commas"),
        ("1,234 5,6", ".", f"row 1 (line 2 of a.csv): '1,234' has a decimal comma, as its column "
         f"has; say {SAY}"),
        ("0,125 0,250", ".", f"'0,125' has a decimal comma, as its column has; say {SAY}"),
        ("36,6 36.7", ".", "'36,6' has a decimal comma, and '36.7' a point; save the file with "
         "decimal points"),
        ("1.234,5 1234", ".", "'1.234,5' has more than one point or comma; save the file without "
         "those of thousands"),
        ("1.234,5 1234,5", ",", "'1.234,5' has more than one point or comma; save the file without "
         "those of thousands"),
        ("36.6 37.1", ",", "'36.6' has a point, but its decimals were said to begin with a comma; "
         f"do not say {SAY}"),
        ("36,6 37.1", ",", "row 2 (line 3 of a.csv): '37.1' has a point, but its decimals were "
         "said to begin with a comma; save the file with decimal commas"),
        ("1234,6 1.234", ",", "'1.234' has a point, but its decimals were said to begin with a "
         "comma; save the file without points of thousands, or save the file with decimal commas"),
        ("36,6 37 warm", ".", "'36,6' has a decimal comma; save the file with decimal points"),
    ],
)  # fmt: skip
def test_what_is_doubtful_is_said_and_not_guessed(columns, column, decimal, words) -> None:
    write("a.csv", "x;y\n" + "".join(f"{cell};1\n" for cell in column.split()))
    if columns is not None:
        there = read("a.csv", columns, decimal=decimal)
        assert there.columns == ("y",)
        assert there.unreadable["x"].endswith(words)
        columns = replace(columns, values=("x", "y"))
    said = refused("a.csv", columns, decimal=decimal)
    assert said.startswith("site 'a', column 'x', row ")
    assert said.endswith(words)


CERTAIN = ["36,6 37 38,25", "1,234 5,6", "0,125 0,250"]
UNCERTAIN = ["12 1,234 5,678", "36,6 36.7", "36,6 37 warm", "36.6 37"]


@pytest.mark.parametrize("column", [*CERTAIN, *UNCERTAIN])
@pytest.mark.parametrize("other", ["word, with comma", "1", "2.5"])
def test_decimal_commas_are_found_where_they_are_certain(column, other) -> None:
    write("a.csv", "x;y\n" + "".join(f"{cell};{other}\n" for cell in column.split()))
    is_comma = column in CERTAIN and other != "2.5"
    assert CsvFile.open(Path("a.csv")).decimal == ("," if is_comma else ".")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_comma_is_read_as_exactly_as_a_point(value: float) -> None:
    assert parsed(repr(value).replace(".", ","), ",") == value
    assert is_number(repr(value).replace(".", ",")) == ("." not in repr(value))


EXACT = [Decimal(f"{x:.12f}") for x in np.random.default_rng(0).uniform(-150, 150, 300)]
"""Arrow's own conversion of decimals gets the last bit of every seventh wrong."""


def write_duckdb(table: pa.Table) -> WarehouseSource:
    duckdb = pytest.importorskip("duckdb")
    with closing(duckdb.connect("a.duckdb")) as database:
        database.register("held", table)
        database.execute("CREATE TABLE exact AS SELECT * FROM held")
    return WarehouseSource("duckdb:///a.duckdb", table="exact")


@pytest.mark.parametrize("beside", [True, False])
def test_decimals_of_every_source_are_rounded_once(beside: bool) -> None:
    more = {"who": pa.array(["a", "b"] * 150)} if beside else {}
    table = pa.table({"p": pa.array(EXACT, pa.decimal128(15, 12)), **more})
    wide = table.set_column(0, "p", pa.chunked_array([table["p"].chunk(0).cast(WIDE)]))
    pyarrow.parquet.write_table(table, "a.parquet")
    pyarrow.parquet.write_table(wide, "wide.parquet")
    write("a.csv", "\n".join(["p", *map(str, EXACT)]))
    frame = pd.DataFrame({"p": EXACT, **{name: each.to_pylist() for name, each in more.items()}})
    duck, roles = write_duckdb(table), ColumnRoles(("p",), group="who" if beside else None)
    files: list[Any] = [Path("a.parquet"), Path("wide.parquet"), duck]
    if not beside:
        files += [Path("a.csv")]
        expected = FederatedKMeans(3, random_state=0).fit({"a": Path("a.csv")}).cluster_centers_
        for source in files:
            centers = FederatedKMeans(3, random_state=0).fit({"a": source}).cluster_centers_
            assert centers.tobytes() == expected.tobytes()
    rounded = [float(each) for each in EXACT]
    for source in files:
        np.testing.assert_array_equal(open_rows(source, roles).load().X[:, 0], rounded)
    for held in (table, wide, frame, pl.DataFrame(frame), {"p": EXACT}):
        np.testing.assert_array_equal(read_table(held, ColumnRoles(("p",))).X[:, 0], rounded)


@given(st.integers(-(10**37), 10**37), st.integers(-20, 38))
def test_any_decimal_is_rounded_once(digits: int, scale: int) -> None:
    with localcontext(prec=80):
        number = Decimal(digits).scaleb(-scale)
    column = pa.chunked_array([pa.array([number, None], pa.decimal128(38, scale))])
    assert as_floats(column)[0] == float(number)
    assert np.isnan(as_floats(column)[1])


@pytest.fixture
def files() -> list[str]:
    """Two German files, and the same rows in the usual form and in site files."""
    rng = np.random.default_rng(0)
    Path("usual").mkdir()
    for i, name in enumerate(("north", "south")):
        frame = pd.DataFrame(rng.normal(size=(40, 2)).round(3), columns=["Größe", "Gewicht"])
        frame.loc[::2] += 9
        frame["Art"] = ["a", "b"] * 20
        frame.loc[3 + i, "Gewicht"] = np.nan
        frame.to_csv(f"{name}.csv", sep=";", decimal=",", index=False)
        frame.to_csv(f"usual/{name}.csv", index=False)
        limits = "limits = { min_rows = 1, min_cluster_size = 1 }"
        site_file(f"{name}.csv", limits, name=name, decimal=",")
    return ["north.csv", "south.csv"]


COMMAS = ("--set", "source.decimal=,")


@pytest.mark.thorough
def test_every_command_reads_them(files: list[str]) -> None:
    usual = [f"usual/{file}" for file in files]
    ways = {"a": usual, "b": [*files, *COMMAS], "c": ["north.toml", "south.toml"], "found": files}
    for out, way in ways.items():
        assert run("fit --columns Größe,Gewicht -k 2 --out", out, *way).exit_code == 0
    a, *others = (json.loads(Path(out, "model.json").read_text())["centers"] for out in ways)
    assert others == [a] * 3
    assert run("predict", "a/model.json", *usual, "--out", "d").exit_code == 0
    assert run("predict", "a/model.json", *files, "--out", "e", *COMMAS).exit_code == 0
    assert Path("d/south.csv").read_text() == Path("e/south.csv").read_text()
    for command in ("evaluate a/model.json --label-column Art", "select-k --k-max 3"):
        one, other = run(command, *usual, "--json"), run(command, *files, "--json", *COMMAS)
        assert (one.exit_code, other.exit_code) == (0, 0), one.stderr
        assert one.stdout == other.stdout


def test_one_site_with_decimal_commas_is_told_to_say_so_for_itself() -> None:
    rows = "".join(f"{i * i % 17}.5;{i * 7 % 19}\n" for i in range(30))
    for name, text in (("a", rows), ("b", rows.replace(".", ","))):
        write(f"{name}.csv", f"x;y\n{text}")
    asked = ["check", "a.csv", "b.csv", "--set", "source.decimal=."]
    own, *_ = remedies(fails(*asked))
    assert own == ["--set", "sites.b.decimal=,"]
    assert run(*asked, *own).exit_code == 0


def test_site_files_say_it_themselves(files: list[str]) -> None:
    run("fit", "north.toml", "-k", 2, "--out", "out")
    for command in ("fit -k 2", "predict out/model.json"):
        said = fails(command, "north.toml", "--out", "new", *COMMAS)
        assert said == "source is what each site file says itself: leave it out"


def test_check_shows_them(files: list[str]) -> None:
    for source in ({"decimal": ","}, {}):
        site_file("north.csv", **source)
        found = json.loads(run("check", "north.toml", "--json").stdout)["columns"]
        assert [column["holds"] for column in found] == ["number", "number", "text"]
    site_file("north.csv", decimal=".")
    said = run("check", "north.toml").stdout
    assert said.count("  decimal commas  ") == 2
    assert 'Größe, Gewicht may have decimal commas: then write decimal = "," under' in said
    site_file("usual/north.csv", decimal=",")
    assert "may have decimal points: then leave decimal" in run("check", "north.toml").stdout
