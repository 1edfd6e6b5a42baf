"""Clusters joined back: keys beside labels, tables with clusters, and nothing that is a formula."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy.spatial.distance import cdist
from typed import fails, run

from fedcluster import kernels
from fedcluster.core import State
from fedcluster.frames.rows import FileSource
from fedcluster.model import Model
from fedcluster.model.assignment import Assignment
from fedcluster_app.tables._files import CsvFile
from fedcluster_app.tables.outputs import harmless, write_joined
from fedcluster_app.tables.sources import OwnTable

pytestmark = pytest.mark.usefixtures("here")


def cells(file, delimiter=","):
    with open(file, newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines, delimiter=delimiter))


@pytest.fixture
def ages():
    """Two sites of two far groups; keys with zeros in front, and what would be a formula."""
    rng = np.random.default_rng(3)
    values = {}
    for site, n in (("north", 12), ("south", 9)):
        values[site] = np.repeat([20.0, 70.0], [n // 2, n - n // 2]) + rng.normal(size=n).round(2)
        lines = [f'{site[0]}00{i},{v},"=HYPERLINK(""x"")",-5' for i, v in enumerate(values[site])]
        Path(f"{site}.csv").write_text("patient,age,remark,cluster\n" + "\n".join(lines) + "\n")
    return values


FORMULAS = ["+cmd|' /C calc'!A0", "\t=1", "=1+1", "-1+1", "@sum", " =1"]
OTHERS = ["-5", "-36,6", "+4912345", "-1.234,5", "-", "a=b", "", "'=1"]


@pytest.mark.parametrize("cell", [*FORMULAS, *OTHERS])
def test_only_a_text_that_begins_as_a_formula_gets_an_apostrophe(cell):
    assert harmless(cell) == (f"'{cell}" if cell in FORMULAS else cell)


FIT = "fit north.csv south.csv --columns age -k 2"


def test_keys_stand_beside_the_clusters_and_are_not_clustered_by(ages):
    run(f"{FIT} --out plain")
    assert run(f"{FIT} --id-column patient --out out").exit_code == 0
    for site in ages:
        lines = cells(f"out/labels/{site}.csv")
        assert list(lines[0]) == ["row", "patient", "cluster"]
        assert [line["patient"] for line in lines] == [f"{site[0]}00{i}" for i in range(len(lines))]
        plain = cells(f"plain/labels/{site}.csv")
        assert [line["cluster"] for line in lines] == [line["cluster"] for line in plain]
    assert Path("out/model.json").read_bytes() == Path("plain/model.json").read_bytes()
    assert "n001" not in Path("out/history.json").read_text()
    other = "fit north.csv south.csv -k 2 --id-column age --categories remark --out other"
    assert run(other).exit_code == 0
    assert "age" not in Model.load("other").columns


def test_tables_are_written_again_with_cluster_distance_and_margin(ages):
    ran = run(f"{FIT} --append --out out")
    assert "out/tables (2 files)" in ran.stdout
    assert "tables/north.csv" in json.loads(Path("out/history.json").read_text())["files"]
    model = Model.load("out")
    for site, values in ages.items():
        lines = cells(f"out/tables/{site}.csv")
        names = ["patient", "age", "remark", "cluster", "cluster_2", "cluster_name"]
        assert list(lines[0]) == [*names, "distance", "margin"]
        told = [line["cluster_name"] for line in lines]
        assert told == ["older" if age > 50 else "younger" for age in values]
        assert [line["patient"] for line in lines] == [f"{site[0]}00{i}" for i in range(len(lines))]
        assert {line["remark"] for line in lines} == {'\'=HYPERLINK("x")'}
        assert {line["cluster"] for line in lines} == {"-5"}
        labels = [line["cluster"] for line in cells(f"out/labels/{site}.csv")]
        assert [line["cluster_2"] for line in lines] == labels
        distances = np.sort(cdist(model.prepared(values[:, np.newaxis]), model.centers), axis=1)
        found = np.array([[float(line["distance"]), float(line["margin"])] for line in lines])
        np.testing.assert_allclose(found[:, 0], distances[:, 0], rtol=1e-9)
        np.testing.assert_allclose(found[:, 1], 1 - distances[:, 0] / distances[:, 1], rtol=1e-9)


def test_predict_joins_too_and_a_row_without_a_cluster_stays_empty(ages):
    run(f"{FIT} --missing drop")
    Path("new.csv").write_text("key;age\n007;21,5\n008;\n009;70,25\n")
    ran = run("predict result new.csv --append --id-column key --out more")
    assert "Ignored" not in ran.stdout
    assert [line["key"] for line in cells("more/new.csv")] == ["007", "008", "009"]
    lines = cells("more/tables/new.csv", ";")
    assert [line["age"] for line in lines] == ["21,5", "", "70,25"]
    assert all("," in lines[i][name] for i in (0, 2) for name in ("distance", "margin"))
    again = CsvFile.open(Path("more/tables/new.csv"))
    assert (again.delimiter, again.decimal) == (";", ",")
    assert all(lines[1][name] == "" for name in ("cluster", "cluster_name", "distance", "margin"))
    run("name", "result/model.json", f"{lines[0]['cluster']}==1+1")
    run("predict result new.csv --append --out named")
    assert cells("named/tables/new.csv", ";")[0]["cluster_name"] == "'=1+1"
    assert lines[0]["cluster"] != lines[2]["cluster"]


def test_one_file_of_all_sites_is_parted_as_its_rows_are():
    lines = [f"{'ab'[i % 2]},k{i},{i % 3}.5" for i in range(30)]
    Path("all.csv").write_text("home,key,x\n" + "\n".join(lines) + "\n")
    run("fit all.csv --site-column home --columns x -k 2 --append --id-column key")
    for place, home in enumerate("ab"):
        keys = [f"k{i}" for i in range(place, 30, 2)]
        assert [line["key"] for line in cells(f"result/labels/{home}.csv")] == keys
        table = cells(f"result/tables/{home}.csv")
        assert [line["key"] for line in table] == keys
        assert {line["home"] for line in table} == {home}


def test_tables_of_an_earlier_run_go_with_it(ages):
    run(f"{FIT} --append")
    run("fit north.csv --columns age -k 2 --append --overwrite")
    assert [path.name for path in Path("result/tables").iterdir()] == ["north.csv"]


def test_what_cannot_be_joined_is_one_line(ages):
    for line, said in {
        "north.csv --id-column code":
            "site 'north' has no column 'code'; it has patient, age, remark, cluster",
        "north.csv --id-column age --columns age":
            "--id-column 'age' is among --columns too; leave it out there",
    }.items():  # fmt: skip
        assert fails(f"fit -k 2 {line}") == said


def test_a_file_that_changes_before_the_tables_are_written_is_an_error(ages):
    own = OwnTable.open(FileSource(Path("north.csv")), "site 'north'")
    Path("north.csv").write_text("patient,age\n1,2\n")
    with pytest.raises(ValueError, match=r"north.csv has changed .*start again"):
        own.read(range(1, 2))


def test_other_kinds_of_cells_are_written_as_text_or_as_they_are(tmp_path):
    table = pa.table(
        {
            "=a": pa.array(["@x", None, "y"]).dictionary_encode(),
            "list": [["-"], None, ["=1"]],
            "n": [-1, 2, None],
        }
    )
    write_joined(tmp_path / "t.csv", table, {"cluster": np.array([0, -1, 1])})
    assert cells(tmp_path / "t.csv") == [
        {"'=a": "'@x", "list": "['-']", "n": "-1", "cluster": "0"},
        {"'=a": "", "list": "", "n": "2", "cluster": ""},
        {"'=a": "y", "list": "['=1']", "n": "", "cluster": "1"},
    ]
    pa.parquet.write_table(table.select(["n"]), tmp_path / "a.parquet")
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(3, 2))
    for name, names in (("a.parquet", ["n"]), ("a.npy", ["x0", "x1"])):
        own = OwnTable.open(FileSource(tmp_path / name), "it")
        assert own.read(np.array([3, 1])).column_names == names
    assert own.read(np.array([3, 1])).to_pylist() == [{"x0": 4, "x1": 5}, {"x0": 0, "x1": 1}]


def test_margins_are_those_of_the_two_nearest_centres_over_the_columns_that_are_there():
    rng = np.random.default_rng(0)
    rows, centers = rng.normal(size=(40, 3)), rng.normal(size=(5, 3))
    assignment = Assignment(State.at(centers))
    labels = kernels.nearest(rows, centers)[0]
    both = np.sort(cdist(rows, centers), axis=1)
    own, clear = assignment.margins(rows, labels)
    np.testing.assert_allclose(own, both[:, 0], rtol=1e-12)
    np.testing.assert_allclose(clear, 1 - both[:, 0] / both[:, 1], rtol=1e-9)
    rows[:, 2] = np.nan
    flat = cdist(rows[:, :2], centers[:, :2])
    own, clear = assignment.margins(rows, labels)
    np.testing.assert_allclose(own, flat[np.arange(40), labels], rtol=1e-12)
    assert ((clear >= -1) & (clear <= 1)).all()
    assert clear.min() < 0  # another centre is nearer than that of the row's cluster
    one = Assignment(State.at(centers[:1])).margins(rows, np.zeros(40, np.int32))
    assert np.isnan(one[1]).all()
