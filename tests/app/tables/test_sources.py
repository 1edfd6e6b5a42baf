"""Every format goes the same way: into commands, site files and estimators."""

from __future__ import annotations

import datetime
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import anndata
import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from outsiders import IsotropicEM
from typed import fails, run

from fedcluster import FederatedFuzzyCMeans, FederatedGaussianMixture, FederatedKMeans
from fedcluster.errors import InputError
from fedcluster.frames import ColumnRoles, FileSource
from fedcluster.frames.columns import MISSING, is_missing
from fedcluster.frames.inputs import read_table
from fedcluster.frames.reader import TablePart
from fedcluster.options.choices import Scale
from fedcluster_app.cli._reading import named_sources, read_sites
from fedcluster_app.site.file import SiteFile
from fedcluster_app.tables import open_rows, sources
from fedcluster_app.tables.plugins import load_plugins
from fedcluster_app.tables.sources import Format

pytestmark = pytest.mark.usefixtures("here", "short_searches")

NAMES = ["age", "bmi", "dose"]
ROWS = (np.random.default_rng(0).normal(size=(60, 3)) + np.arange(60)[:, None] % 3 * 9).round(3)
FRAME = pd.DataFrame(ROWS, columns=NAMES)


def excel(path: str, frame: pd.DataFrame, blank_lines: int = 0) -> str:
    book = openpyxl.Workbook()
    for _ in range(blank_lines):
        book.active.append([])
    for line in [list(frame.columns), *frame.itertuples(index=False)]:
        book.active.append([None if pd.isna(cell) else cell for cell in line])
    book.save(path)
    return path


def write(path: str) -> str:
    """The rows in a file of the kind that the path says."""
    if path.endswith(".csv"):
        FRAME.to_csv(path, index=False)
    elif path.endswith(".parquet"):
        FRAME.to_parquet(path, index=False)
    elif path.endswith(".xlsx"):
        excel(path, FRAME)
    elif path.endswith(".npy"):
        np.save(path, ROWS)
    elif path.endswith(".npz"):
        scipy.sparse.save_npz(path, scipy.sparse.csr_array(ROWS))
    else:
        anndata.AnnData(ROWS, var=pd.DataFrame(index=NAMES)).write_h5ad(path)
    return path


KINDS = ["csv", "parquet", "xlsx", "npy", "npz", "h5ad"]


@pytest.mark.parametrize("scale", ["standard", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_a_file_for_the_commands(kind: str, scale: str) -> None:
    path = write(f"rows.{kind}")
    fit = run("fit", path, "-k", 3, "--scale", scale, "--out", "out")
    assert fit.exit_code == 0, fit.stderr
    assert run("fit", write("other.csv"), "-k", 3, "--scale", scale, "--out", "csv").exit_code == 0
    one, other = (pd.read_csv(f"{out}.csv") for out in ("out/labels/rows", "csv/labels/other"))
    pd.testing.assert_frame_equal(one, other)
    assert run("predict", "out/model.json", path, "--out", "new").exit_code == 0
    assert Path("new/rows.csv").read_text() == Path("out/labels/rows.csv").read_text()
    assert run("evaluate", "out/model.json", path).exit_code == 0
    assert run("select-k", path, "--k-max", 4, "--scale", scale).exit_code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_a_source_of_a_site(kind: str) -> None:
    write(f"rows.{kind}")
    Path("north.toml").write_text(f'name = "north"\n[source]\npath = "rows.{kind}"\n')
    data = SiteFile.load("north.toml").client().data
    np.testing.assert_allclose(data.X, ROWS, rtol=1e-6 if kind in ("npz", "h5ad") else 0)
    assert f"60 rows from rows.{kind}" in run("check", "north.toml").stdout


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
    ("given", "estimator"),
    [
        ("sparse", FederatedKMeans),
        ("anndata", FederatedKMeans),
        ("anndata", FederatedFuzzyCMeans),
    ],
)
def test_sparse_rows_and_anndata_are_those_of_arrays(given: str, estimator: type) -> None:
    of_sparse = {"sparse": scipy.sparse.csc_matrix, "anndata": anndata.AnnData}[given]
    tables = {"a": of_sparse(ROWS[:30]), "b": of_sparse(ROWS[30:])}
    if given == "anndata":
        for table in tables.values():
            table.var_names = NAMES
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
    path, weight = write("a.csv"), np.arange(60) % 3
    model = FederatedKMeans(3, random_state=0)
    model.fit({"a": path}, sample_weight={"a": weight}, groups={"a": np.arange(60) // 2})
    frame = FederatedKMeans(3, random_state=0)
    frame.fit({"a": FRAME}, sample_weight={"a": weight}, groups={"a": np.arange(60) // 2})
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


# A format of one's own


@dataclass(frozen=True)
class Lines:
    """A toy format: one JSON object a line."""

    path: Path
    names: tuple[str, ...]
    decimal: None = None
    fingerprint: None = None

    @classmethod
    def open(cls, path: Path) -> Lines:
        return cls(path, tuple(json.loads(path.read_text().splitlines()[0])))

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        rows = [json.loads(line) for line in self.path.read_text().splitlines()]
        for start in range(0, len(rows), n_rows):
            part = pa.Table.from_pylist(rows[start : start + n_rows])
            yield TablePart(self, start, part.select(list(columns)))

    def where(self, row: int) -> str:
        return f"line {row + 1} of {self.path.name}"


@pytest.mark.parametrize("formats", [[".jsonl"], {".jsonl": Lines.open}])
def test_what_a_plugin_calls_formats_must_be_formats(formats, monkeypatch):
    monkeypatch.setitem(sys.modules, "party", module := ModuleType("party"))
    vars(module)["FORMATS"] = formats
    with pytest.raises(InputError, match="'party': FORMATS must map endings of files to Format"):
        load_plugins(["party"])
    assert ".jsonl" not in sources.FORMATS


def test_a_new_format_is_one_class_and_one_row_of_the_table(monkeypatch):
    monkeypatch.setitem(sources.FORMATS, ".jsonl", Format("JSON lines", Lines.open))
    FRAME.to_json("rows.jsonl", orient="records", lines=True)
    np.testing.assert_array_equal(open_rows("rows.jsonl", ["bmi"]).load().X, ROWS[:, [1]])
    assert run("fit", "rows.jsonl", "-k", 3, "--out", "out").exit_code == 0
    assert Path("out/labels/rows.csv").exists()
    assert run("predict", "out/model.json", "rows.jsonl", "--out", "new").exit_code == 0
    Path("n.toml").write_text('name = "n"\n[source]\npath = "rows.jsonl"\n')
    assert "60 rows from rows.jsonl" in run("check", "n.toml").stdout
    assert run("fit", "n.toml", "-k", 3, "--out", "site").exit_code == 0
    assert len(FederatedKMeans(3, random_state=0).fit({"a": "rows.jsonl"}).labels_) == 60
    Path("bad.jsonl").write_text('{"x": 1.0}\n{"x": null}\n')
    said = fails("fit", "bad.jsonl", "-k", 1, "--scale", "none", "--out", "bad")
    assert (
        said == "site 'bad', column 'x', line 2 of bad.jsonl: the value is missing; fill it in "
        "or drop the row"
    )


def test_an_option_of_another_format_is_refused() -> None:
    write("rows.npy")
    with pytest.raises(
        InputError, match=r"^rows\.npy: matrix is for \.h5ad, and rows\.npy is none"
    ):
        open_rows(FileSource(Path("rows.npy"), matrix="X"))
    titles = r"names is for CSV and Excel and \.npy and \.npz, and .*a\.pq is none"
    with pytest.raises(InputError, match=titles):
        open_rows(FileSource(Path("a.pq"), names=("x",)))


# Excel


def test_the_first_sheet_of_an_excel_file_is_a_table() -> None:
    frame = FRAME.assign(
        sex=pd.Series(["m", "f", None] * 20),
        code=["7", 8, 9.5] * 20,
        yes=[True, False] * 30,
        born=[datetime.datetime(2020, 1, 1)] * 60,
    )
    frame.loc[7, "age"] = np.nan
    excel("rows.XLSX", frame, blank_lines=2)
    rows = read_sites(named_sources(["rows.XLSX"]), ColumnRoles(raw=True))["rows"]
    kinds = [(column.name, column.kind) for column in rows.data.columns]
    assert kinds[3:] == [("sex", "text"), ("code", "number"), ("yes", "number"), ("born", "date")]
    np.testing.assert_array_equal(np.isnan(rows.data.X[:, 0]), np.arange(60) == 7)
    np.testing.assert_array_equal(rows.data.X[:3, 4], [7, 8, 9.5])
    with pytest.raises(
        InputError, match=r"'age', row 8 \(line 11 of rows\.XLSX\): the value is mi"
    ):
        read_sites(named_sources(["rows.XLSX"]), ["age"])


def test_what_is_no_excel_file_is_said() -> None:
    Path("torn.xlsx").write_bytes(b"PK and no more")
    openpyxl.Workbook().save("empty.xlsx")
    excel("header.xlsx", FRAME[:0])
    for path, said in {
        "torn.xlsx": "site 'torn': torn.xlsx is not a whole Excel file",
        "empty.xlsx": "site 'empty': empty.xlsx is empty; expected a header line and rows",
        "header.xlsx": "site 'header': header.xlsx has a header but no rows",
        "none.xlsx": "site 'none': none.xlsx does not exist; check the path",
    }.items():
        with pytest.raises(InputError, match=f"^{said}"):
            read_sites(named_sources([path]), ["age"] if path == "header.xlsx" else None)


# What is missing


@pytest.mark.parametrize("sign", ["n/a", " NA ", "#N/A", "null", "nan", "<NA>", " "])
def test_what_is_missing_is_the_same_everywhere(sign: str) -> None:
    frame = pd.DataFrame({"age": ["1", sign, "3"], "sex": ["m", "f", sign]})
    frame.to_csv("rows.csv", index=False)
    frame.to_parquet("rows.parquet", index=False)
    excel("rows.xlsx", frame)
    for path in ("rows.csv", "rows.parquet", "rows.xlsx"):
        data = read_sites(named_sources([path]), ColumnRoles(raw=True))["rows"].data
        np.testing.assert_array_equal(np.isnan(data.X), [[0, 0], [1, 0], [0, 1]])
        assert data.columns[1].levels == ("f", "m")
    for table in (frame, pl.DataFrame(frame), frame.to_numpy(), frame.astype("category")):
        data = read_table(table, ColumnRoles(raw=True))
        assert data.columns[1].levels == ("f", "m")
        np.testing.assert_array_equal(np.isnan(data.X[:, 1]), [0, 0, 1])
        np.testing.assert_array_equal(np.isnan(data.X[:, 0]), [0, 1, 0])


def test_none_is_missing_among_numbers_and_one_of_the_texts_among_texts() -> None:
    frame = pd.DataFrame({"age": ["1", "None", "3"], "pain": ["mild", "none", "None"]})
    frame.to_csv("rows.csv", index=False)
    for data in (
        read_sites(named_sources(["rows.csv"]), ColumnRoles(raw=True))["rows"].data,
        read_table(frame, ColumnRoles(raw=True)),
    ):
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
