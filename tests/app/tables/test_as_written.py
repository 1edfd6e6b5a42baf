"""Files as people write them: numbers with symbols, other names, other spellings, titles above."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from readings import RAW, site_file, workbook
from typed import fails, run

from fedcluster import FederatedKMeans, Model
from fedcluster.errors import InputError, ReadingNote
from fedcluster.frames.inputs import read_table
from fedcluster.frames.reader import ColumnRoles
from fedcluster.frames.rows import StreamedRows
from fedcluster_app.tables import table_rows
from fedcluster_app.tables._files import CsvFile

pytestmark = pytest.mark.usefixtures("here", "short_searches")


def rows(seed: int = 0, n: int = 40) -> pd.DataFrame:
    """Rows of two clusters: a price, a rate and a text."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(2, size=n)
    price = (1000 + 3000 * kinds + rng.normal(scale=90, size=n)).round(2)
    rate = (20 + 30 * kinds + rng.normal(size=n)).round(1)
    return pd.DataFrame(
        {"price": price, "rate": rate, "sex": np.where(rng.random(n) < 0.5, "F", "M")}
    )


def write(path: str, frame: pd.DataFrame, sep: str = ",") -> str:
    frame.to_csv(path, index=False, sep=sep)
    return path


def lines(ran, kind: str) -> list[str]:
    """What a command said on stderr of one kind."""
    said = ran.stderr.splitlines()
    return [line.removeprefix(f"{kind}: ") for line in said if line.startswith(kind)]


def centres(folder: str) -> Any:
    return json.loads(Path(folder, "model.json").read_text())["centers"]


def done(line: str, *arguments: object) -> Any:
    """A command that must end well."""
    ran = run(line, *arguments)
    assert ran.exit_code == 0, ran.stderr
    return ran


@pytest.mark.parametrize("kind", ["xlsx", "csv", "parquet", "frame"])
@pytest.mark.parametrize(
    "cells",
    [
        ["1'234", "1\u2019234\u2019567"], ["75 kg", "80 kg", "91.5 kg"], ["$1,234.50", "$12"],
        ["-$5", "$-7.5"], ["1 234,50 €", "2\u00a0000 €"], ["12.5%", "1.5%"], ["36,6 €", "1 €"],
        ["EUR 1'234.50", "EUR 3.00"], ["1st", "2st"],
    ],
    ids=lambda cells: cells[0],
)  # fmt: skip
def test_numbers_with_symbols_units_and_thousands_are_refused(kind, cells) -> None:
    frame = pd.DataFrame({"x": cells * 12, "y": np.arange(12 * len(cells)) + 0.5})
    if kind == "frame":
        with pytest.raises(InputError) as error:
            FederatedKMeans(2, prepare="auto").fit({"a": frame})
        said = str(error.value)
    else:
        writers: dict[str, Any] = {
            "csv": frame.to_csv,
            "xlsx": frame.to_excel,
            "parquet": frame.to_parquet,
        }
        writers[kind](f"a.{kind}", index=False)
        said = fails("fit", f"a.{kind}", "-k", 2)
    assert said.startswith("site 'a', column 'x', row ")
    assert f"{cells[0]!r} is more than a number; write the numbers alone" in said
    assert "--categories auto,x where all are names" in said
    if kind == "csv":
        done("fit a.csv -k 2 --categories auto,x --out b")


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        ("1.234.567|1.234", "'1.234.567' has more than one point or comma"),
        ("$5|free|$7", "'$5' is more than a number"),
        ("12%|12|14%", "'12%' is more than a number"),
        ("3.5|12%|4.5", "'12%' is more than a number"),
        ("$5|€6|$7", "'$5' is more than a number"),
    ],
)
def test_a_column_of_amounts_stops_with_its_first_odd_cell(cells, line) -> None:
    body = "".join(f"{cell};{i}.5;{i}\n" for i, cell in enumerate(cells.split("|")))
    Path("a.csv").write_text(f"x;y;z\n{body}")
    said = fails("fit a.csv -k 2 --set source.decimal=.")
    assert said.startswith("site 'a', column 'x', row ")
    assert line in said
    assert said.endswith("; --exclude x or --set lenient=true goes on without")


@pytest.mark.parametrize(
    "cell", ["1,23,4", "12%%", "12 kg a day", "5-10", "1.2.3", "v1", "$5€", "007 123", "5%"]
)
def test_what_is_no_number_is_none_and_neither_are_codes(cell) -> None:
    roles = ColumnRoles(raw=True, coded=("x",)) if cell == "5%" else RAW
    data = read_table({"x": [cell] * 3, "y": [1.0, 2.0, 4.5]}, roles)
    assert data.columns[0].levels == (cell,)


@pytest.mark.parametrize("in_memory", [0, 1 << 20])
def test_a_site_file_and_a_model_refuse_amounts_too(in_memory, monkeypatch) -> None:
    monkeypatch.setattr(table_rows, "READ", 9)
    amounts = rows(0).assign(price=[f"${x}" for x in rows(0)["price"]])
    own = site_file(write("north.csv", amounts, ";"), f"values_in_memory = {in_memory}")
    with pytest.raises(InputError, match="is more than a number"):
        len(own.rows(raw=True))
    model = FederatedKMeans(2, prepare="standard", random_state=0).fit(rows(0))
    with pytest.raises(InputError, match=r"column 'price', row 0: .* is more than a number"):
        model.predict(amounts)


@pytest.mark.parametrize("kind", ["", "--fuzzy"])
def test_labels_of_rows_in_chunks_are_written_without_all_rows(kind, monkeypatch) -> None:
    frames = {"north": rows(0), "south": rows(1)}
    for name, frame in frames.items():
        own = ['protection = "limits"', "values_in_memory = 0"]
        site_file(write(f"{name}.csv", frame), *own, name=name)
    monkeypatch.setattr(table_rows, "READ", 9)
    monkeypatch.setattr(StreamedRows, "load", lambda self: pytest.fail("all rows"))
    done(f"fit north.toml south.toml -k 2 --out out {kind}")
    model = Model.load("out/model.json")
    for name, frame in frames.items():
        written = pd.read_csv(f"out/labels/{name}.csv")
        assert written["cluster"].tolist() == model.predict(frame).tolist()
        if kind:
            degrees = model.memberships(frame)
            assert degrees is not None
            found = written[["membership_0", "membership_1"]]
            np.testing.assert_allclose(found, degrees, rtol=1e-9)


def other_names() -> dict[str, pd.DataFrame]:
    """Three sites that spell the names of the columns in their own ways."""
    south = rows(1).rename(columns={"price": "PRICE ", "rate": "Ra-te"})
    return {
        "north": rows(0),
        "south": south[["sex", "Ra-te", "PRICE "]],
        "west": rows(2).rename(columns={"sex": "séx"}),
    }


def plain_and_other() -> tuple[list[str], list[str]]:
    Path("plain").mkdir(exist_ok=True)
    plain = [write(f"plain/{n}.csv", rows(i)) for i, n in enumerate(("north", "south", "west"))]
    return plain, [write(f"{name}.csv", frame) for name, frame in other_names().items()]


def other_texts() -> dict[str, pd.DataFrame]:
    """The same, and other spellings of texts; in files, too."""
    frames = other_names()
    for site, column, texts in (("south", "sex", ("f ", " M")), ("west", "séx", ("F", "m\u0301"))):
        known = dict(zip("FM", texts, strict=True))
        frames[site][column] = frames[site][column].map(known)
        write(f"{site}.csv", frames[site])
    return frames


def test_names_and_texts_are_matched_without_case_blanks_and_accents() -> None:
    plain, files = plain_and_other()
    frames = other_texts()
    assert done("fit -k 2 --out a", *plain).stderr == ""
    ran = done("fit -k 2 --out b", *files)
    assert centres("a") == centres("b")
    notes = [
        "site 'south': column 'PRICE' is taken for 'price', 'Ra-te' is taken for 'rate'",
        "site 'west': column 'séx' is taken for 'sex'",
        "site 'south', column 'sex': 'f' is taken for 'F'",
        "site 'west', column 'sex': 'm\u0301' is taken for 'M'",
    ]
    assert lines(ran, "note") == notes
    assert Model.load("b").columns == ("price", "rate", "sex")
    told = done("predict a --out new", *files)
    notes[3] = notes[3].replace("column 'sex'", "column 'séx'")
    assert sorted(lines(told, "note")) == sorted(notes)
    assert "does not know" not in told.stdout
    for file in files:
        assert Path("new", file).read_text() == Path("a/labels", file).read_text()
    with pytest.warns(ReadingNote, match="is taken for"):
        model = FederatedKMeans(2, prepare="standard", random_state=0).fit(frames)
    expected = FederatedKMeans(2, prepare="standard", random_state=0)
    expected.fit({name: rows(i) for i, name in enumerate(frames)})
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_allclose(model.cluster_centers_, centres("a"), rtol=1e-12)
    with pytest.warns(ReadingNote) as said:
        labels = model.predict(frames["west"])
    for pair in ("'séx' is taken for 'sex'", "'m\u0301' is taken for 'M'"):
        assert any(pair in str(each.message) for each in said)
    np.testing.assert_array_equal(labels, expected.site_labels_["west"])


@pytest.mark.parametrize(
    "options",
    [
        """--categories SEX --set "prepare.weights.'ra te'=2" """,
        "--set sites.south.factors.PRICE=2 --set sites.west.factors.Price=0.5 --exclude sex",
        "--columns Price,RATE",
        "--exclude Sex",
        """--exclude sex --set "prepare.log=['Price']" """,
        """--set codes.SEX.F=female --set "missing_values=['M']" """,
        "--scale none --columns PRICE,rate",
        "--scale none --exclude 's ex'",
        "--set weight_column=Rate --exclude sex",
        "--id-column RATE",
    ],
)
def test_options_name_columns_as_any_site_spells_them(options) -> None:
    plain, files = plain_and_other()
    usual = re.sub("PRICE|Price", "price", re.sub("RATE|Rate|ra te", "rate", options))
    done(f"fit -k 2 --out a {re.sub('SEX|Sex|s ex', 'sex', usual)}", *plain)
    done(f"fit -k 2 --out b {options}", *files)
    assert centres("a") == centres("b")


def test_columns_are_renamed_by_an_option() -> None:
    plain, _ = plain_and_other()
    write("south.csv", rows(1).rename(columns={"price": "Preis", "rate": "x1"}))
    coded = rows(2)["sex"].map({"F": 1, "M": 2})
    write("west.csv", rows(2).assign(sex=coded).rename(columns={"price": "Preis"}))
    run("fit -k 2 --out a", *plain)
    files = ["plain/north.csv", "south.csv", "west.csv"]
    option = "--set rename.Preis=price --set sites.south.rename.x1=rate"
    option += """ --set 'codes.sex={1 = "F", 2 = "M"}'"""
    assert done(f"fit -k 2 --out b {option}", *files).stderr == ""
    assert centres("a") == centres("b")
    run(f"predict b --out new {option}", *files)
    assert Path("new/west.csv").read_text() == Path("a/labels/west.csv").read_text()
    done(f"fit -k 2 --out c --columns Preis,rate --set sites.south.factors.x1=1 {option}", *files)
    east = "no file belongs to this site; the sites are north, south, west"
    write("west.csv", rows(2).rename(columns={"price": "Preis"}))
    for value, line in [
        ("rename.a=b", "rename: no site has a column 'a'"),
        ("sites.west.rename.a=b", "rename: site 'west' has no column 'a'"),
        ("sites.east.rename.a=b", f"sites.east: {east}"),
        ("rename.rate=sex", "rename: site 'north' has a column 'sex' already"),
        ("rename=rate", "--set rename=rate: rename must be a table, not 'rate'"),
    ]:
        assert fails("fit -k 2 --out d --set", value, *files) == line


def site_files(*, rename: bool) -> list[str]:
    """Site files of the sites with names of their own."""
    for name, frame in other_names().items():
        more = ""
        if name == "south" and rename:
            more = '[rename]\nPreis = "price"\n'
            frame = frame.rename(columns={"PRICE ": "Preis"})
        write(f"{name}.csv", frame)
        Path(name).mkdir()  # groups of other rows in one folder may look like theirs
        Path(f"{name}/site.toml").write_text(
            f'name = "{name}"\n[source]\npath = "../{name}.csv"\n{more}'
            "[limits]\nmin_rows = 1\nmin_cluster_size = 1\n"
        )
    return ["north/site.toml", "south/site.toml", "west/site.toml"]


@pytest.mark.parametrize("rename", [True, False])
@pytest.mark.parametrize("more", ["", "--set protection=groups", "--columns Price,rate"])
def test_site_files_are_matched_too(rename, more) -> None:
    plain, _ = plain_and_other()
    files = site_files(rename=rename)
    done(f"fit -k 2 --out a --min-cluster-size 1 {more.replace('Price', 'price')}", *plain)
    ran = done(f"fit -k 2 --out b {more}", *files)
    np.testing.assert_allclose(centres("a"), centres("b"), rtol=1e-6)
    is_said = any("'séx' is taken for 'sex'" in line for line in lines(ran, "note"))
    assert is_said == ("--columns" not in more)
    done("predict a --out new", *files)
    if not more:
        assert Path("new/south.csv").read_text() == Path("a/labels/south.csv").read_text()
    if rename:
        south = Path("south/site.toml")
        south.write_text(south.read_text().replace('"price"', '"sex"'))
        said = fails("fit -k 2 --out c", *files)
        assert said == "site 'south', [rename]: two columns are called 'sex'"


def test_a_value_that_means_none_is_no_number_where_rows_are_taken_as_they_are() -> None:
    frame = rows(0)[["price", "rate"]]
    frame.loc[[4, 9], "rate"] = -999.0
    missing = "missing_values = [-999]"
    site_file(write("north.csv", frame), missing)
    where = "site 'north', column 'rate', row 5: the value is missing (NaN)"
    assert where in fails("fit north.csv -k 2 --scale none --set=missing_values=[-999]")
    assert where in fails("fit north.toml -k 2 --scale none")
    done("fit north.toml -k 2 --out filled")
    streamed: Any = site_file("north.csv", "values_in_memory = 0", missing).rows()
    with pytest.raises(InputError, match=re.escape(where)):
        list(streamed.chunks())


def test_a_sensitive_column_is_named_as_the_site_calls_it() -> None:
    write("north.csv", rows(0).rename(columns={"sex": "Geschlecht"}))
    privacy = 'privacy = { sensitive = ["Geschlecht"], diversity = 2 }'
    own = site_file("north.csv", 'rename = { Geschlecht = "sex" }', privacy)
    assert own.grouping.groups.sensitive == ("sex",)


@pytest.mark.parametrize(("sep", "decimal"), [(",", "."), (";", ","), ("\t", ".")])
@pytest.mark.parametrize(
    "titles",
    [
        ["Report,,", "Clinic,North,", ",,"], ['"Report, of', '2024"'], ["Report of 2024"],
        ["Report", "", "by Ann"], [], [""],
    ],
)  # fmt: skip
def test_titles_above_a_table_are_refused_with_the_lines_to_skip(titles, sep, decimal) -> None:
    plain = [write(f"plain-{i}.csv", rows(i)) for i in range(2)]
    named = [f"plain-{i}=own-{i}.csv" for i in range(2)]
    above = "".join(f"{line.replace(',', sep)}\n" for line in titles)
    for i in range(2):
        written = rows(i).to_csv(index=False, sep=sep, decimal=decimal)
        Path(f"own-{i}.csv").write_text(above + written)
    done("fit -k 2 --out a", *plain)
    skip = len(titles)
    if any(titles):
        said = f"seems to be a title, and line {skip + 1} the header; say --set sites.own-0.skip="
        assert said in fails("fit -k 2", *named)
    own = f"--set=sites.plain-0.skip={skip} --set=sites.plain-1.skip={skip}"
    for out, option in {"c": own, "d": f"--set source.skip={skip}"}.items():
        assert run(f"fit -k 2 --out {out} {option}", *named).stderr == ""
    assert centres("a") == centres("c") == centres("d")


@pytest.mark.parametrize("titles", [["Report", None, "by Ann"], ["Report"], []])
def test_titles_of_a_sheet_are_refused_too(titles) -> None:
    frame, skip = rows(0), len(titles)
    workbook("north.xlsx", *([title] for title in titles), [*frame], *frame.values.tolist())
    done("fit -k 2 --out a", f"north={write('plain.csv', frame)}")
    if titles:
        said = f"'Report' seems to be a title, and line {skip + 1} the header"
        assert said in fails("fit north.xlsx -k 2")
    assert run(f"fit north.xlsx -k 2 --out c --set sites.north.skip={skip}").stderr == ""
    assert centres("a") == centres("c")
    assert len(site_file("north.xlsx", skip=skip).rows(raw=True)) == len(frame)


@pytest.mark.parametrize(
    "text",
    [
        "a\nb,c,d\n1,2,3\n4,5\n", "a;b\n1,5;2,5\n3,5;4,5\n", "a\nx,y\n", ",x\n0,5\n1,6\n",
        "name,\nann,5\nbob,6\n", "a,b\n1,2,3\n4,5,6\n", "x\n1\n2\n",
    ],
)  # fmt: skip
def test_what_is_no_title_is_the_header(text) -> None:
    Path("a.csv").write_text(text)
    assert CsvFile.open(Path("a.csv")).header_lines == 1


def test_what_is_wrong_with_an_option_of_lines_is_said() -> None:
    write("north.csv", rows(0))
    rows(0).to_parquet("north.parquet")
    for file, skip, line in [
        ("north.csv", "x", "[sites.north], skip must be a whole number, not 'x'"),
        ("north.parquet", 1, "skip is for CSV and Excel, and north.parquet is none"),
        ("north.csv", 99, "north.csv is empty; expected a header line and rows"),
    ]:
        assert line in fails(f"fit {file} -k 2 --set sites.north.skip={skip}")


@pytest.mark.parametrize("word", ["Summe:", "Total", "total"])
def test_a_total_below_a_table_is_refused(word) -> None:
    frame = rows(0)
    total = frame.sum(numeric_only=True).to_frame().T
    write("north.csv", pd.concat([frame, total.assign(sex=word)]))
    said = f"site 'north', column 'sex': the last row, {word!r}, is the total of the others"
    assert said in fails("fit north.csv -k 2")
    with pytest.raises(InputError, match="is the total of the others"):
        FederatedKMeans(2, prepare="auto").fit({"north": pd.read_csv("north.csv")})
    write("south.csv", pd.concat([frame.select_dtypes("number"), total]))
    said = "site 'south': the last row is the sum of all others; delete it"
    assert fails("fit south.csv -k 2") == said
    write("north.csv", frame.assign(sex=["Total", *frame["sex"][1:-1], "Total"]))
    assert lines(run("fit north.csv -k 2"), "warning") == []
