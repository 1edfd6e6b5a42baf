"""Every format goes the same way: into commands, site files and estimators."""

from __future__ import annotations

import datetime
import json
import sqlite3
import sys
import warnings
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import anndata
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from outsiders import IsotropicEM
from readings import RAW, read, refused, site_file, workbook
from typed import fails, run

from fedcluster import FederatedFuzzyCMeans, FederatedGaussianMixture, FederatedKMeans
from fedcluster.errors import InputError
from fedcluster.frames import ColumnRoles, FileSource
from fedcluster.frames.columns import MISSING, is_missing
from fedcluster.frames.inputs import read_table
from fedcluster.frames.reader import ArrowTable
from fedcluster.options.choices import Scale
from fedcluster_app.cli._reading import named_sources, read_sites
from fedcluster_app.tables import open_rows, sources
from fedcluster_app.tables.plugins import load_plugins
from fedcluster_app.tables.sources import Format

pytestmark = pytest.mark.usefixtures("here", "short_searches")

NAMES = ["age", "bmi", "dose"]
ROWS = (np.random.default_rng(0).normal(size=(60, 3)) + np.arange(60)[:, None] % 3 * 9).round(3)
FRAME = pd.DataFrame(ROWS, columns=NAMES)


def excel(path: str, frame: pd.DataFrame, *above: list[str]) -> str:
    cells = frame.astype(object).where(frame.notna(), None).itertuples(index=False)
    return workbook(path, *above, list(frame.columns), *cells)


def write(path: str) -> str:
    """The rows in a file of the kind that the path says."""
    kind = path.rpartition(".")[2]
    if kind == "csv":
        FRAME.to_csv(path, index=False)
    elif kind == "parquet":
        FRAME.to_parquet(path, index=False)
    elif kind == "xlsx":
        excel(path, FRAME)
    elif kind == "db":
        with closing(sqlite3.connect(path)) as database:
            FRAME.to_sql("rows", database, index=False)
    elif kind == "npy":
        np.save(path, ROWS)
    elif kind == "npz":
        scipy.sparse.save_npz(path, scipy.sparse.csr_array(ROWS))
    else:
        anndata.AnnData(ROWS, var=pd.DataFrame(index=NAMES)).write_h5ad(path)
    return path


KINDS = ["h5ad", "xlsx", "csv", "parquet", "npy", "npz", "db"]


@pytest.mark.parametrize("scale", ["standard", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_a_file_for_the_commands(kind: str, scale: str) -> None:
    path = write(f"rows.{kind}")
    for out, file in {"out": path, "csv": write("other.csv")}.items():
        fit = run(f"fit {file} -k 3 --scale {scale} --out {out}")
        assert fit.exit_code == 0, fit.stderr
    labels = Path("out/labels/rows.csv").read_text()
    assert labels == Path("csv/labels/other.csv").read_text()
    assert run(f"predict out/model.json {path} --out new").exit_code == 0
    assert Path("new/rows.csv").read_text() == labels
    assert run(f"evaluate out/model.json {path}").exit_code == 0
    assert run(f"select-k {path} --k-max 4 --scale {scale}").exit_code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_a_source_of_a_site(kind: str) -> None:
    data = site_file(write(f"rows.{kind}")).client().data
    np.testing.assert_allclose(data.X, ROWS, rtol=1e-6 if kind in ("npz", "h5ad") else 0)
    assert f"60 rows from rows.{kind}" in run("check north.toml").stdout


@pytest.mark.parametrize("prepare", [None, "standard"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:sites .* have the same rows")
def test_a_path_stands_for_its_rows_in_python(kind: str, prepare: Scale | None) -> None:
    path = write(f"rows.{kind}")
    model = FederatedKMeans(3, prepare=prepare, random_state=0)
    labels = model.fit({"a": path, "b": Path(path)}).labels_
    rows = ROWS.astype(np.float32) if kind in ("npz", "h5ad") else ROWS
    again = FederatedKMeans(3, prepare=prepare, random_state=0).fit({"a": rows, "b": rows})
    np.testing.assert_array_equal(labels, again.labels_)
    assert model.cluster_centers_.tobytes() == again.cluster_centers_.tobytes()
    np.testing.assert_array_equal(model.predict({"a": path}), labels[:60])
    np.testing.assert_array_equal(model.predict(path), labels[:60])
    np.testing.assert_array_equal(model.fit([path, path]).labels_, labels)
    assert len(model.fit(path).labels_) == 60
    if kind not in ("npy", "npz"):
        assert list(model.feature_names_in_) == NAMES


@pytest.mark.parametrize(
    ("of_sparse", "estimator"),
    [
        (scipy.sparse.csc_matrix, FederatedKMeans),
        (anndata.AnnData, FederatedFuzzyCMeans),
        (anndata.AnnData, FederatedKMeans),
    ],
)
def test_sparse_rows_and_anndata_are_those_of_arrays(of_sparse: Any, estimator: type) -> None:
    tables = {"a": of_sparse(ROWS[:30]), "b": of_sparse(ROWS[30:])}
    model = estimator(3, random_state=0).fit(tables)
    arrays = estimator(3, random_state=0).fit({"a": ROWS[:30], "b": ROWS[30:]})
    assert model.cluster_centers_.tobytes() == arrays.cluster_centers_.tobytes()
    np.testing.assert_array_equal(model.predict(tables), arrays.labels_)
    halves = np.repeat(["a", "b"], 30)
    whole = estimator(3, random_state=0).fit(of_sparse(ROWS), sites=halves)
    assert whole.cluster_centers_.tobytes() == arrays.cluster_centers_.tobytes()


def test_memberships_are_not_fitted_to_sparse_rows() -> None:
    sparse = scipy.sparse.csr_array(ROWS)
    for model in (
        FederatedFuzzyCMeans(3),
        FederatedGaussianMixture(3),
        FederatedKMeans(3, algorithm=IsotropicEM()),
    ):
        for X in (sparse, {"a": ROWS, "b": sparse}, [sparse, sparse]):
            with pytest.raises(ValueError, match="takes no sparse rows; make them dense"):
                model.fit(X)
    model = FederatedFuzzyCMeans(3, random_state=0).fit(sparse.toarray())
    np.testing.assert_array_equal(model.predict(sparse), model.labels_)


def test_sites_may_come_in_different_forms() -> None:
    tables = {"a": write("a.csv"), "b": FRAME[["dose", "age", "bmi"]], "c": pl.DataFrame(FRAME)}
    model = FederatedKMeans(3, random_state=0).fit(tables)
    frames = FederatedKMeans(3, random_state=0).fit(dict.fromkeys("abc", FRAME))
    assert model.cluster_centers_.tobytes() == frames.cluster_centers_.tobytes()


def test_weights_and_groups_come_beside_paths() -> None:
    beside: Any = {"sample_weight": {"a": np.arange(60) % 3}, "groups": {"a": np.arange(60) // 2}}
    model = FederatedKMeans(3, random_state=0).fit({"a": write("a.csv")}, **beside)
    frame = FederatedKMeans(3, random_state=0).fit({"a": FRAME}, **beside)
    assert model.cluster_centers_.tobytes() == frame.cluster_centers_.tobytes()


def test_what_is_wrong_with_a_path_is_said_in_one_line() -> None:
    Path("a.csv").write_text("x,name\n1,Ann\n2,Bob\n")
    model = FederatedKMeans(1)
    with pytest.raises(InputError, match=r"^site 'n', column 'name', row 1 \(line 2 of a.csv\): "):
        model.fit({"n": "a.csv"})
    with pytest.raises(InputError, match=r"^a\.csv, column 'name', .* columns of numbers: 'x'$"):
        model.fit("a.csv")
    with pytest.raises(InputError, match=r"^site 'n': none\.csv does not exist"):
        model.fit({"n": "none.csv"})
    with pytest.raises(ValueError, match="site 'b' has no column 'age'; it has bmi, dose"):
        model.fit({"a": write("b.csv"), "b": FRAME[["bmi", "dose"]]})
    with pytest.raises(InputError, match="has no column 'dose'"):
        FRAME[["age", "bmi"]].to_csv("two.csv", index=False)
        model.fit("b.csv").predict("two.csv")


def of_lines(path: Path) -> ArrowTable:
    """A toy format: one JSON object a line."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return ArrowTable(path, pa.Table.from_pylist(rows))


@pytest.mark.parametrize("formats", [[".jsonl"], {".jsonl": of_lines}])
def test_what_a_plugin_calls_formats_must_be_formats(formats, monkeypatch):
    monkeypatch.setitem(sys.modules, "party", module := ModuleType("party"))
    vars(module)["FORMATS"] = formats
    with pytest.raises(InputError, match="'party': FORMATS must map endings of files to Format"):
        load_plugins(["party"])
    assert ".jsonl" not in sources.FORMATS


def test_a_new_format_is_one_function_and_one_row_of_the_table(monkeypatch):
    monkeypatch.setitem(sources.FORMATS, ".jsonl", Format("JSON lines", of_lines))
    FRAME.to_json("rows.jsonl", orient="records", lines=True)
    np.testing.assert_array_equal(open_rows("rows.jsonl", ["bmi"]).load().X, ROWS[:, [1]])
    site_file("rows.jsonl", name="n")
    assert "60 rows from rows.jsonl" in run("check n.toml").stdout
    for given in ("rows.jsonl", "n.toml"):
        assert run(f"fit {given} -k 3 --out {given}.out").exit_code == 0
    assert Path("rows.jsonl.out/labels/rows.csv").exists()
    assert run("predict rows.jsonl.out/model.json rows.jsonl --out new").exit_code == 0
    assert len(FederatedKMeans(3, random_state=0).fit({"a": "rows.jsonl"}).labels_) == 60
    Path("bad.jsonl").write_text('{"x": 1.0}\n{"x": null}\n')
    said = "the value is missing; fill it in or drop the row"
    where = "site 'bad', column 'x', row 2 (line 2 of bad.jsonl)"
    assert fails("fit bad.jsonl -k 1 --scale none --out bad") == f"{where}: {said}"


def test_an_option_of_another_format_is_refused() -> None:
    write("rows.npy")
    said = r"^rows\.npy: matrix is for \.h5ad, and rows\.npy is none"
    with pytest.raises(InputError, match=said):
        open_rows(FileSource(Path("rows.npy"), matrix="X"))
    titles = r"names is for CSV and Excel and \.npy and \.npz, and .*a\.pq is none"
    with pytest.raises(InputError, match=titles):
        open_rows(FileSource(Path("a.pq"), names=("x",)))


def test_the_first_sheet_of_an_excel_file_is_a_table() -> None:
    frame = FRAME.assign(
        sex=pd.Series(["m", "f", None] * 20),
        code=["7", 8, 9.5] * 20,
        yes=[True, False] * 30,
        born=[datetime.datetime(2020, 1, 1)] * 60,
    )
    frame.loc[7, "age"] = np.nan
    data = read(excel("rows.XLSX", frame, [], []), RAW).data
    kinds = [(column.name, column.kind) for column in data.columns]
    assert kinds[3:] == [("sex", "text"), ("code", "number"), ("yes", "number"), ("born", "date")]
    np.testing.assert_array_equal(np.isnan(data.X[:, 0]), np.arange(60) == 7)
    np.testing.assert_array_equal(data.X[:3, 4], [7, 8, 9.5])
    said = "'age', row 8 (line 11 of rows.XLSX): the value is mi"
    assert said in refused("rows.XLSX", ["age"])


def test_what_is_no_excel_file_is_said() -> None:
    Path("torn.xlsx").write_bytes(b"PK and no more")
    workbook("empty.xlsx")
    excel("header.xlsx", FRAME[:0])
    for name, said in {
        "torn": "is not a whole Excel file",
        "empty": "is empty; expected a header line and rows",
        "header": "has a header but no rows",
        "none": "does not exist; check the path",
    }.items():
        assert refused(f"{name}.xlsx").startswith(f"site '{name}': {name}.xlsx {said}")


@pytest.mark.parametrize("sign", [" NA ", " ", "n/a", "#N/A", "null", "nan", "<NA>"])
def test_what_is_missing_is_the_same_everywhere(sign: str) -> None:
    frame = pd.DataFrame({"age": ["1", sign, "3"], "sex": ["m", "f", sign]})
    frame.to_csv("rows.csv", index=False)
    frame.to_parquet("rows.parquet", index=False)
    excel("rows.xlsx", frame)
    tables = (frame, pl.DataFrame(frame), frame.to_numpy(), frame.astype("category"))
    for data in (
        *(read(path, RAW).data for path in ("rows.csv", "rows.parquet", "rows.xlsx")),
        *(read_table(table, RAW) for table in tables),
    ):
        np.testing.assert_array_equal(np.isnan(data.X), [[0, 0], [1, 0], [0, 1]])
        assert data.columns[1].levels == ("f", "m")


def test_none_is_missing_among_numbers_and_one_of_the_texts_among_texts() -> None:
    frame = pd.DataFrame({"age": ["1", "None", "3"], "pain": ["mild", "none", "None"]})
    frame.to_csv("rows.csv", index=False)
    for data in (read("rows.csv", RAW).data, read_table(frame, RAW)):
        np.testing.assert_array_equal(np.isnan(data.X), [[0, 0], [1, 0], [0, 0]])
        assert data.columns[1].levels == ("None", "mild", "none")


def test_what_arrow_takes_for_missing_is_so_for_all() -> None:
    defaults = pa.csv.ConvertOptions().null_values
    assert {text.lower() for text in defaults} <= MISSING
    assert all(map(is_missing, defaults))


def test_names_are_taken_as_they_are_written() -> None:
    """A person, a label or a site may be called NA; only what is blank is missing."""
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "who": ["NA", "NA", "b"], "at": ["none", "n", "n"]})
    frame.to_csv("rows.csv", index=False)
    roles = ColumnRoles(("x",), group="who", label="who", site="at")
    sites = read_sites(named_sources(["rows.csv"]), roles)
    assert list(sites) == ["n", "none"]
    assert sites["none"].data.y is not None
    assert sites["none"].data.y.tolist() == ["NA"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FederatedKMeans(1).fit(frame[["x"]], groups=frame["who"])
