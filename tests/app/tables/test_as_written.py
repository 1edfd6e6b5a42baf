"""Files as people write them: numbers with symbols, other names, other spellings, titles above."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typed import fails, run

from fedcluster import FederatedKMeans, Model
from fedcluster.core import Data, RowStream
from fedcluster.errors import InputError, ReadingNote
from fedcluster.frames.inputs import read_table
from fedcluster.frames.reader import ColumnRoles
from fedcluster.frames.rows import StreamedRows
from fedcluster_app.site.file import SiteFile
from fedcluster_app.tables import table_rows

pytestmark = pytest.mark.usefixtures("here", "short_searches")

RAW = ColumnRoles(raw=True)


def rows(seed: int = 0, n: int = 40) -> pd.DataFrame:
    """Rows of two clusters: a price, a rate and a text."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(2, size=n)
    return pd.DataFrame(
        {
            "price": (1000 + 3000 * kinds + rng.normal(scale=90, size=n)).round(2),
            "rate": (20 + 30 * kinds + rng.normal(size=n)).round(1),
            "sex": np.where(rng.random(n) < 0.5, "F", "M"),
        }
    )


def write(path: str, frame: pd.DataFrame, sep: str = ",") -> str:
    frame.to_csv(path, index=False, sep=sep)
    return path


def lines(ran, kind: str) -> list[str]:
    """What a command said on stderr of one kind."""
    return [
        line.removeprefix(f"{kind}: ") for line in ran.stderr.splitlines() if line.startswith(kind)
    ]


def centres(folder: str) -> list[list[float]]:
    found: list[list[float]] = json.loads(Path(folder, "model.json").read_text())["centers"]
    return found


# Numbers, titles and totals


def readings(kind: str, cells: list[str]) -> str:
    """The line that refuses a column of a table of a kind."""
    cells = cells * 12
    frame = pd.DataFrame({"x": cells, "y": np.arange(len(cells)) + 0.5})
    if kind == "frame":
        with pytest.raises(InputError) as said:
            FederatedKMeans(2, prepare="auto").fit({"a": frame})
        return str(said.value)
    writers: dict[str, Any] = {
        "csv": frame.to_csv,
        "xlsx": frame.to_excel,
        "parquet": frame.to_parquet,
    }
    writers[kind](f"a.{kind}", index=False)
    return fails("fit", f"a.{kind}", "-k", 2)


@pytest.mark.parametrize("kind", ["csv", "xlsx", "parquet", "frame"])
@pytest.mark.parametrize(
    "cells",
    [
        ["$1,234.50", "$12"],
        ["-$5", "$-7.5"],
        ["1 234,50 €", "2\u00a0000 €"],
        ["1'234", "1\u2019234\u2019567"],
        ["12.5%", "1.5%"],
        ["36,6 €", "1 €"],
        ["EUR 1'234.50", "EUR 3.00"],
        ["75 kg", "80 kg", "91.5 kg"],
        ["1st", "2st"],
    ],
    ids=lambda cells: cells[0],
)
def test_numbers_with_symbols_units_and_thousands_are_refused(kind, cells) -> None:
    said = readings(kind, cells)
    assert said.startswith("site 'a', column 'x', row ")
    assert f"{cells[0]!r} is more than a number; write the numbers alone" in said
    assert "--categories auto,x where all are names" in said
    if kind == "csv":
        named = run("fit", "a.csv", "-k", 2, "--categories", "auto,x", "--out", "b")
        assert named.exit_code == 0, named.stderr


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        ("12%|12|14%", "'12%' is more than a number"),
        ("$5|€6|$7", "'$5' is more than a number"),
        ("$5|free|$7", "'$5' is more than a number"),
        ("1,234|1234|12", "'1,234' may mean 1.234 or 1234"),
        ("1,234|12|987", "'1,234' may mean 1.234 or 1234"),
        ("1.234.567|1.234", "'1.234.567' has more than one point or comma"),
        ("3.5|12%|4.5", "'12%' is more than a number"),
        ("36,6|37", "'36,6' has a decimal comma, as its column has"),
    ],
)
def test_a_column_of_amounts_stops_with_its_first_odd_cell(cells, line) -> None:
    body = "".join(f"{cell};{i}.5;{i}\n" for i, cell in enumerate(cells.split("|")))
    Path("a.csv").write_text(f"x;y;z\n{body}")
    said = fails("fit", "a.csv", "-k", 2, "--set", "source.decimal=.")
    assert said.startswith("site 'a', column 'x', row ")
    assert line in said
    assert said.endswith("; --exclude x or --set lenient=true goes on without")


@pytest.mark.parametrize(
    "cell", ["12 kg a day", "5-10", "1.2.3", "v1", "12%%", "$5€", "007 123", "1,23,4"]
)
def test_what_is_no_number_is_none(cell) -> None:
    data = read_table({"x": [cell] * 3, "y": [1.0, 2.0, 4.5]}, RAW)
    assert data.columns[0].levels == (cell,)


def test_codes_are_no_numbers() -> None:
    data = read_table({"x": ["5%", "7%"]}, ColumnRoles(raw=True, coded=("x",)))
    assert data.columns[0].levels == ("5%", "7%")


@pytest.mark.parametrize("in_memory", [0, 1 << 20])
def test_a_site_file_and_a_model_refuse_amounts_too(in_memory, monkeypatch) -> None:
    monkeypatch.setattr(table_rows, "READ", 9)
    amounts = rows(0).assign(price=[f"${x}" for x in rows(0)["price"]])
    write("north.csv", amounts, ";")
    Path("north.toml").write_text(
        f'name = "north"\nvalues_in_memory = {in_memory}\n[source]\npath = "north.csv"\n'
    )
    with pytest.raises(InputError, match="is more than a number"):
        all_of(SiteFile.load("north.toml").rows(raw=True))
    model = FederatedKMeans(2, prepare="standard", random_state=0).fit(rows(0))
    with pytest.raises(InputError, match=r"column 'price', row 0: .* is more than a number"):
        model.predict(amounts)


@pytest.mark.parametrize("fuzzy", [False, True])
def test_labels_of_rows_in_chunks_are_written_without_all_rows(fuzzy, monkeypatch) -> None:
    frames = {"north": rows(0), "south": rows(1)}
    for name, frame in frames.items():
        write(f"{name}.csv", frame)
        Path(f"{name}.toml").write_text(
            f'name = "{name}"\nprotection = "limits"\nvalues_in_memory = 0\n'
            f'[source]\npath = "{name}.csv"\n'
        )
    monkeypatch.setattr(table_rows, "READ", 9)
    monkeypatch.setattr(StreamedRows, "load", lambda self: pytest.fail("all rows"))
    kind = ("--fuzzy",) if fuzzy else ()
    assert not run("fit", "north.toml", "south.toml", "-k", "2", "--out", "out", *kind).exit_code
    model = Model.load("out/model.json")
    for name, frame in frames.items():
        written = pd.read_csv(f"out/labels/{name}.csv")
        assert written["cluster"].tolist() == model.predict(frame).tolist()
        if fuzzy:
            degrees = model.memberships(frame)
            assert degrees is not None
            found = written[["membership_0", "membership_1"]]
            np.testing.assert_allclose(found, degrees, rtol=1e-9)


def all_of(rows: Data | RowStream) -> Data:
    return rows if isinstance(rows, Data) else rows.load()


# Names of columns


def other_names() -> dict[str, pd.DataFrame]:
    """Three sites that spell the names of the columns in their own ways."""
    return {
        "north": rows(0),
        "south": rows(1).rename(columns={"price": "PRICE ", "rate": "Ra-te"})[
            ["sex", "Ra-te", "PRICE "]
        ],
        "west": rows(2).rename(columns={"sex": "séx"}),
    }


def plain_and_other(sep: str = ",") -> tuple[list[str], list[str]]:
    Path("plain").mkdir(exist_ok=True)
    plain = [write(f"plain/{n}.csv", rows(i)) for i, n in enumerate(("north", "south", "west"))]
    return plain, [write(f"{name}.csv", frame, sep) for name, frame in other_names().items()]


def test_names_are_matched_without_case_blanks_and_accents() -> None:
    plain, files = plain_and_other()
    assert run("fit", *plain, "-k", 2, "--out", "a").stderr == ""
    ran = run("fit", *files, "-k", 2, "--out", "b")
    assert ran.exit_code == 0, ran.stderr
    assert centres("a") == centres("b")
    assert lines(ran, "note") == [
        "site 'south': column 'PRICE' is taken for 'price', 'Ra-te' is taken for 'rate'",
        "site 'west': column 'séx' is taken for 'sex'",
    ]
    assert json.loads(Path("b/model.json").read_text())["columns"] == ["price", "rate", "sex"]
    told = run("predict", "a", *files, "--out", "new")
    assert len(lines(told, "note")) == 2
    for file in files:
        assert Path("new", file).read_text() == Path("a/labels", file).read_text()
    frames = other_names()
    with pytest.warns(ReadingNote, match="is taken for"):
        model = FederatedKMeans(2, prepare="standard", random_state=0).fit(frames)
    expected = FederatedKMeans(2, prepare="standard", random_state=0)
    expected.fit({name: rows(i) for i, name in enumerate(frames)})
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    with pytest.warns(ReadingNote, match="'séx' is taken for 'sex'"):
        np.testing.assert_array_equal(model.predict(frames["west"]), expected.site_labels_["west"])


@pytest.mark.parametrize(
    "options",
    [
        ["--columns", "Price,RATE"],
        ["--exclude", "Sex"],
        ["--exclude", "sex", "--set", "prepare.log=['Price']"],
        ["--categories", "SEX", "--set", "prepare.weights.'ra te'=2"],
        [
            *("--set", "sites.south.factors.PRICE=2", "--set", "sites.west.factors.Price=0.5"),
            *("--exclude", "sex"),
        ],
        ["--set", "codes.SEX.F=female", "--set", "missing_values=['M']"],
        ["--scale", "none", "--columns", "PRICE,rate"],
        ["--scale", "none", "--exclude", "s ex"],
        ["--set", "weight_column=Rate", "--exclude", "sex"],
        ["--id-column", "RATE"],
    ],
    ids=" ".join,
)
def test_options_name_columns_as_any_site_spells_them(options) -> None:
    plain, files = plain_and_other()
    known = {"Price": "price", "PRICE": "price", "RATE": "rate", "Rate": "rate", "ra te": "rate"}
    known |= {"Sex": "sex", "SEX": "sex", "s ex": "sex"}
    usual = list(options)
    for spelled, name in known.items():
        usual = [each.replace(spelled, name) for each in usual]
    one = run("fit", *plain, "-k", 2, "--out", "a", *usual)
    assert one.exit_code == 0, one.stderr
    other = run("fit", *files, "-k", 2, "--out", "b", *options)
    assert other.exit_code == 0, other.stderr
    assert centres("a") == centres("b")


def test_what_may_be_two_is_not_matched_and_it_is_said() -> None:
    write("north.csv", rows(0).assign(Price=1.5 * rows(0)["rate"]))
    write("south.csv", rows(1).rename(columns={"price": "PRICE"}))
    ran = run("fit", "north.csv", "south.csv", "-k", 2, "--json")
    told = json.loads(ran.stdout)
    assert told["columns"] == ["rate", "sex"]
    expected = (
        "the columns 'price', 'Price' and 'PRICE' are not joined, as a site has two of them; "
        "rename one "
        "at that site"
    )
    assert expected in told["warnings"]


def test_columns_are_renamed_by_an_option() -> None:
    plain, _ = plain_and_other()
    write("south.csv", rows(1).rename(columns={"price": "Preis", "rate": "x1"}))
    write("west.csv", rows(2).rename(columns={"price": "Preis"}))
    run("fit", *plain, "-k", 2, "--out", "a")
    files = ["plain/north.csv", "south.csv", "west.csv"]
    option = ["--set", "rename.Preis=price", "--set", "sites.south.rename.x1=rate"]
    ran = run("fit", *files, "-k", 2, "--out", "b", *option)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert centres("a") == centres("b")
    run("predict", "b", *files, "--out", "new", *option)
    assert Path("new/west.csv").read_text() == Path("a/labels/west.csv").read_text()
    either = ["--exclude", "sex", "--columns", "Preis,rate", "--set", "sites.south.factors.x1=1"][
        2:
    ]
    assert run("fit", *files, "-k", 2, "--out", "c", *option, *either).exit_code == 0
    for value, line in [
        ("rename.a=b", "rename: no site has a column 'a'"),
        ("sites.west.rename.a=b", "rename: site 'west' has no column 'a'"),
        (
            "sites.east.rename.a=b",
            "sites.east: no file belongs to this site; the sites are north, south, west",
        ),
        ("rename.rate=sex", "rename: site 'north' has a column 'sex' already"),
        ("rename=rate", "--set rename=rate: rename must be a table, not 'rate'"),
    ]:
        assert fails("fit", *files, "-k", 2, "--out", "d", "--set", value) == line


def site_files(rename: bool = False) -> list[str]:
    """Site files of the sites with names of their own."""
    for name, frame in other_names().items():
        more = ""
        if name == "south" and rename:
            more = '[rename]\nPreis = "price"\n'
            frame = frame.rename(columns={"PRICE ": "Preis"})
        write(f"{name}.csv", frame)
        Path(name).mkdir(exist_ok=True)  # groups of other rows in one folder may look like theirs
        Path(f"{name}/site.toml").write_text(
            f'name = "{name}"\n[source]\npath = "../{name}.csv"\n{more}'
            "[limits]\nmin_rows = 1\nmin_cluster_size = 1\n"
        )
    return ["north/site.toml", "south/site.toml", "west/site.toml"]


@pytest.mark.parametrize("rename", [False, True])
@pytest.mark.parametrize("more", [[], ["--columns", "Price,rate"], ["--set", "protection=groups"]])
def test_site_files_are_matched_too(rename, more) -> None:
    plain, _ = plain_and_other()
    files = site_files(rename=rename)
    usual = [each.replace("Price", "price") for each in more]
    limits = ["--min-cluster-size", 1]
    run("fit", *plain, "-k", 2, "--out", "a", *usual, *limits)
    ran = run("fit", *files, "-k", 2, "--out", "b", *more)
    assert ran.exit_code == 0, ran.stderr
    np.testing.assert_allclose(centres("a"), centres("b"), rtol=1e-6)
    assert any("'séx' is taken for 'sex'" in line for line in lines(ran, "note")) == (
        "--columns" not in more
    )
    again = run("predict", "a", *files, "--out", "new")
    assert again.exit_code == 0, again.stderr
    same = Path("new/south.csv").read_text()
    if not more:
        assert same == Path("a/labels/south.csv").read_text()
    if rename:
        south = Path("south/site.toml")
        south.write_text(south.read_text().replace('"price"', '"sex"'))
        said = fails("fit", *files, "-k", 2, "--out", "c")
        assert said == "site 'south', [rename]: two columns are called 'sex'"


def test_a_value_that_means_none_is_no_number_where_rows_are_taken_as_they_are() -> None:
    frame = rows(0)[["price", "rate"]]
    frame.loc[[4, 9], "rate"] = -999.0
    write("north.csv", frame)
    source = 'name = "north"\nmissing_values = [-999]\n[source]\npath = "north.csv"\n'
    Path("north.toml").write_text(source)
    where = "site 'north', column 'rate', row 5: the value is missing (NaN)"
    plain = ["-k", 2, "--scale", "none"]
    assert where in fails("fit", "north.csv", *plain, "--set=missing_values=[-999]")
    assert where in fails("fit", "north.toml", *plain)
    assert run("fit", "north.toml", "-k", 2, "--out", "filled").exit_code == 0
    Path("north.toml").write_text(f"values_in_memory = 0\n{source}")
    streamed = SiteFile.load("north.toml").rows()
    assert isinstance(streamed, RowStream)
    with pytest.raises(InputError, match=re.escape(where)):
        list(streamed.chunks())


def test_a_sensitive_column_is_named_as_the_site_calls_it() -> None:
    write("north.csv", rows(0).rename(columns={"sex": "Geschlecht"}))
    Path("north.toml").write_text(
        'name = "north"\n[source]\npath = "north.csv"\n[rename]\nGeschlecht = "sex"\n'
        '[privacy]\nsensitive = ["Geschlecht"]\ndiversity = 2\n'
    )
    site = SiteFile.load("north.toml")
    assert site.grouping.groups.sensitive == ("sex",)


# Titles above a table, and totals below


def titled(frame: pd.DataFrame, titles: list[str], sep: str = ",", decimal: str = ".") -> str:
    return "".join(f"{line}\n" for line in titles) + frame.to_csv(
        index=False, sep=sep, decimal=decimal
    )


@pytest.mark.parametrize(
    ("titles", "n"),
    [
        (["Report of 2024"], 1),
        (["Report", "", "by Ann"], 2),
        (["Report,,", "Clinic,North,", ",,"], 2),
        (['"Report, of', '2024"'], 1),
        ([], 0),
        ([""], 0),
    ],
)
@pytest.mark.parametrize(("sep", "decimal"), [(",", "."), (";", ","), ("\t", ".")])
def test_titles_above_a_table_are_refused_with_the_lines_to_skip(titles, n, sep, decimal) -> None:
    plain = [write(f"plain-{i}.csv", rows(i)) for i in range(2)]
    titles = [line.replace(",", sep) for line in titles]
    for i in range(2):
        Path(f"own-{i}.csv").write_text(titled(rows(i), titles, sep, decimal))
    named = [f"plain-{i}=own-{i}.csv" for i in range(2)]
    run("fit", *plain, "-k", 2, "--out", "a")
    skip = len(titles)
    if n:
        said = fails("fit", *named, "-k", 2)
        assert (
            f"seems to be a title, and line {skip + 1} the header; say --set sites.own-0.skip="
            in said
        )
    own = [f"--set=sites.plain-{i}.skip={skip}" for i in range(2)]
    one = run("fit", *named, "-k", 2, "--out", "d", *own)
    other = run("fit", *named, "-k", 2, "--out", "c", "--set", f"source.skip={skip}")
    assert one.stderr == other.stderr == ""
    assert centres("a") == centres("c") == centres("d")


@pytest.mark.parametrize("titles", [[], ["Report"], ["Report", "", "by Ann"]])
def test_titles_of_a_sheet_are_refused_too(titles) -> None:
    frame = rows(0)
    empty = [None] * (len(frame.columns) - 1)
    cells = [*([title or None, *empty] for title in titles), list(frame.columns)]
    cells += frame.values.tolist()
    pd.DataFrame(cells).to_excel("north.xlsx", header=False, index=False)
    write("plain.csv", frame)
    run("fit", "north=plain.csv", "-k", 2, "--out", "a")
    if titles:
        said = f"'Report' seems to be a title, and line {len(titles) + 1} the header"
        assert said in fails("fit", "north.xlsx", "-k", 2)
    skipped = ["--set", f"sites.north.skip={len(titles)}"]
    assert run("fit", "north.xlsx", "-k", 2, "--out", "c", *skipped).stderr == ""
    assert centres("a") == centres("c")
    Path("north.toml").write_text(
        f'name = "north"\n[source]\npath = "north.xlsx"\nskip = {len(titles)}\n'
    )
    assert len(SiteFile.load("north.toml").rows(raw=True)) == len(frame)


@pytest.mark.parametrize(
    "text",
    [
        "a\nx,y\n",
        ",x\n0,5\n1,6\n",
        "name,\nann,5\nbob,6\n",
        "a,b\n1,2,3\n4,5,6\n",
        "a\nb,c,d\n1,2,3\n4,5\n",
        "x\n1\n2\n",
        "a;b\n1,5;2,5\n3,5;4,5\n",
    ],
)
def test_what_is_no_title_is_the_header(text) -> None:
    from fedcluster_app.tables._files import CsvFile

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
        assert line in fails("fit", file, "-k", 2, "--set", f"sites.north.skip={skip}")


@pytest.mark.parametrize("word", ["Total", "Summe:", "total"])
def test_a_total_below_a_table_is_refused(word) -> None:
    frame = rows(0)
    write(
        "north.csv", pd.concat([frame, frame.sum(numeric_only=True).to_frame().T.assign(sex=word)])
    )
    shown = word.strip()
    said = f"site 'north', column 'sex': the last row, {shown!r}, is the total of the others"
    assert said in fails("fit", "north.csv", "-k", 2)
    with pytest.raises(InputError, match="is the total of the others"):
        FederatedKMeans(2, prepare="auto").fit({"north": pd.read_csv("north.csv")})
    numbers = frame.select_dtypes("number")
    write("south.csv", pd.concat([numbers, numbers.sum().to_frame().T]))
    assert fails("fit", "south.csv", "-k", 2) == (
        "site 'south': the last row is the sum of all others; delete it"
    )
    write("north.csv", frame.assign(sex=["Total", *frame["sex"][1:-1], "Total"]))
    assert lines(run("fit", "north.csv", "-k", 2, "--overwrite"), "warning") == []


# Texts


def other_texts(texts: dict[str, list[str]]) -> list[str]:
    """Sites with these texts in the place of F and M."""
    files = []
    for i, (site, (first, second)) in enumerate(texts.items()):
        frame = rows(i)
        sex = frame["sex"].replace({"F": first, "M": second})
        files.append(write(f"{site}.csv", frame.assign(sex=sex)))
    return files


SPELLED = {"north": ["Female", "Male"], "south": ["female ", " MALE"], "west": ["Female", "Málé"]}


def test_texts_are_matched_without_case_blanks_and_accents() -> None:
    files = other_texts({site: ["Female", "Male"] for site in SPELLED})
    run("fit", *files, "-k", 2, "--out", "a")
    other_texts(SPELLED)
    ran = run("fit", *files, "-k", 2, "--out", "b")
    notes = [
        "site 'south', column 'sex': 'MALE' is taken for 'Male', 'female' is taken for 'Female'",
        "site 'west', column 'sex': 'Málé' is taken for 'Male'",
    ]
    assert ran.stderr.splitlines() == [f"note: {line}" for line in notes]
    assert centres("a") == centres("b")
    told = run("predict", "a", *files, "--out", "new")
    assert lines(told, "note") == notes
    assert "does not know" not in told.stdout
    for file in files:
        assert Path("new", file).read_text() == Path("a/labels", file).read_text()
    frames = {site: pd.read_csv(f"{site}.csv") for site in SPELLED}
    with pytest.warns(ReadingNote, match="is taken for"):
        model = FederatedKMeans(2, prepare="standard", random_state=0).fit(frames)
    np.testing.assert_allclose(model.cluster_centers_, centres("a"), rtol=1e-12)
    with pytest.warns(ReadingNote, match="'Málé' is taken for 'Male'"):
        labels = model.predict(frames["west"])
    np.testing.assert_array_equal(labels, model.site_labels_["west"])


def test_texts_of_which_a_site_has_two_are_not_matched() -> None:
    frame = rows(0).assign(sex=np.resize(["AA", "Aa"], 40))
    write("north.csv", frame)
    write("south.csv", rows(1).assign(sex=np.resize(["aA", "Aa"], 40)))
    ran = run("fit", "north.csv", "south.csv", "-k", 2, "--json")
    [line] = json.loads(ran.stdout)["warnings"]
    assert "seem to be one" in line
    assert "--set 'codes.sex={AA = " in line


@pytest.mark.parametrize(
    ("texts", "pairs"),
    [
        (["1", "2"], '{1 = "F", 2 = "M"}'),
        (["True", "False"], '{0 = "F", 1 = "M"}'),
        (["weib", "mann, alt"], '{F = "mann, alt", M = "weib"}'),
    ],
)
def test_codes_of_texts_are_asked_about_and_the_option_works(texts, pairs) -> None:
    files = other_texts({"north": ["F", "M"], "south": texts})
    frame = pd.read_csv("south.csv")
    write("south.csv", frame)
    ran = run("fit", *files, "-k", 2, "--out", "a")
    [line] = [*lines(ran, "warning"), *lines(ran, "error")]  # numbers for texts stop the command
    # the rows do not show it, and the order of the texts would be a guess
    assert "if they mean the same, say which is which by codes.sex of a study file" in line
    assert "--set codes" not in line
    option = ["--set", f"codes.sex={pairs}"]
    again = run("fit", *files, "-k", 2, "--out", "b", *option)
    assert (again.exit_code, again.stderr) == (0, "")
    assert json.loads(Path("b/model.json").read_text())["columns"] == ["price", "rate", "sex"]
    done = run("predict", "b", *files, "--out", "new", *option)
    assert "does not know" not in done.stdout
    assert Path("new/south.csv").read_text() == Path("b/labels/south.csv").read_text()
