"""Site files: all that a site decides for itself; every kind of source, the same rows."""

import json
import os
import re
import sqlite3
import stat
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from typed import fails, run

from fedcluster import Client, Data, State, Task
from fedcluster.algorithms import Lloyd
from fedcluster.errors import InputError
from fedcluster.frames.reader import ColumnRoles
from fedcluster.metrics import Inertia
from fedcluster.preprocessing.agreement import DATES
from fedcluster.privacy.disclosure import PersonCounter
from fedcluster_app.site.file import SiteFile
from fedcluster_app.tables import open_rows
from fedcluster_app.tables import table_rows as spool
from fedcluster_app.tables._files import CsvFile
from fedcluster_app.tables.table_rows import DiskCache, cached_rows

pytestmark = pytest.mark.usefixtures("here")

ROWS = np.random.default_rng(0).normal(size=(60, 3)).round(3) + np.arange(60)[:, None] % 3 * 9
FRAME = pd.DataFrame(ROWS, columns=["age", "bmi", "dose"]).assign(
    weight=np.arange(60) % 4, who=[f"p{i // 5}" for i in range(60)], what=["a", "b"] * 30
)


def toml(source: str, *lines: str, name: str = "north") -> SiteFile:
    Path(f"{name}.toml").write_text("\n".join([f'name = "{name}"', *lines, "[source]", source]))
    return SiteFile.load(f"{name}.toml")


def sources() -> dict[str, str]:
    """The same rows in every kind of table."""
    FRAME.to_csv("rows.csv", index=False)
    FRAME.to_csv("rows.tsv.gz", index=False, sep="\t")
    FRAME.to_parquet("rows.parquet", index=False)
    Path("folder").mkdir()
    for i in range(3):
        FRAME[20 * i : 20 * i + 20].to_parquet(f"folder/part-{i}.parquet", index=False)
    Path("folder", "_SUCCESS").touch()
    with sqlite3.connect("rows.db") as connection:
        FRAME.to_sql("rows", connection, index=False)
    connection.close()
    observed = FRAME[["weight", "who", "what"]].set_index(pd.Index([str(i) for i in range(60)]))
    kept = anndata.AnnData(ROWS, observed, pd.DataFrame(index=["age", "bmi", "dose"]))
    kept.write_h5ad("rows.h5ad")
    return {
        "csv": 'path = "rows.csv"',
        "tsv": 'path = "rows.tsv.gz"',
        "parquet": 'path = "rows.parquet"',
        "folder": 'path = "folder"',
        "sqlite": 'url = "sqlite:///rows.db"\nquery = "SELECT * FROM rows"',
        "h5ad": 'path = "rows.h5ad"',
    }


ROLES = """columns = ["dose", "age"]
weight_column = "weight"
group_column = "who"
label_column = "what\""""


@pytest.mark.parametrize("in_memory", [0, 1 << 20])
@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "folder", "sqlite", "h5ad"])
def test_every_source_gives_the_same_rows(kind, in_memory, monkeypatch) -> None:
    monkeypatch.setattr(spool, "READ", 20)
    rows = toml(sources()[kind], ROLES, f"values_in_memory = {in_memory}").rows()
    assert isinstance(rows, Data) == bool(in_memory)
    data = rows if isinstance(rows, Data) else rows.load()
    np.testing.assert_allclose(data.X, ROWS[:, [2, 0]], rtol=1e-6 if kind == "h5ad" else 0)
    np.testing.assert_array_equal(data.sample_weight, np.arange(60) % 4)
    np.testing.assert_array_equal(data.y, ["a", "b"] * 30)
    assert data.groups is not None
    np.testing.assert_array_equal(np.unique(data.groups, return_index=True)[1] % 5, 0)
    assert len(np.unique(data.groups)) == 12


@pytest.mark.parametrize("path", ["x.npy", "x.npz"])
def test_matrices_without_names_are_given_some(path) -> None:
    np.save("x.npy", ROWS)
    scipy.sparse.save_npz("x.npz", scipy.sparse.coo_array(ROWS))
    assert toml(f'path = "{path}"').opened().columns == ("x0", "x1", "x2")
    named = f'path = "{path}"\nnames = ["age", "bmi", "dose"]'
    data = toml(named, 'columns = ["dose", "age"]').client().data
    np.testing.assert_allclose(data.X, ROWS[:, [2, 0]], rtol=1e-6)
    np.save("x.npy", np.where(ROWS > 18, np.nan, ROWS))
    raw = toml('path = "x.npy"').client(raw=True).data
    assert [column.name for column in raw.columns] == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(np.isnan(raw.X), ROWS > 18)


def test_other_matrices_of_anndata_have_names() -> None:
    kept = anndata.AnnData(ROWS, layers={"raw": ROWS + 1}, obsm={"X_pca": ROWS[:, :2] * 2})
    kept.write_h5ad("rows.h5ad")
    site = toml('path = "rows.h5ad"\nmatrix = "obsm/X_pca"')
    assert site.opened().columns == ("X_pca_0", "X_pca_1")
    np.testing.assert_allclose(site.client().data.X, ROWS[:, :2] * 2, rtol=1e-6)
    layer = toml('path = "rows.h5ad"\nmatrix = "layers/raw"').client()
    np.testing.assert_allclose(layer.data.X, ROWS + 1, rtol=1e-6)
    with pytest.raises(InputError, match="no matrix 'obsm/none'"):
        toml('path = "rows.h5ad"\nmatrix = "obsm/none"').opened()


def test_sparse_counts_become_dense_a_chunk_at_a_time() -> None:
    counts = scipy.sparse.random(500, 40, 0.05, random_state=0, format="csc")
    rows = open_rows(counts, chunk_rows=64)
    assert {chunk.X.dtype for chunk in rows.chunks()} == {np.dtype(np.float32)}
    assert max(len(chunk) for chunk in rows.chunks()) == 64
    task = Task(Lloyd(), State.at(counts.toarray()[:3]))
    dense = Data(counts.toarray().astype(np.float32))
    one, other = (Client("s", each).answer(task).sums for each in (rows, dense))
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_a_federation_may_ask_for_what_the_site_allows_only() -> None:
    FRAME.to_csv("rows.csv", index=False)
    site = toml('path = "rows.csv"', 'columns = ["age", "bmi"]')
    np.testing.assert_array_equal(site.client(["bmi"]).data.X, ROWS[:, [1]])
    with pytest.raises(InputError, match=r"no column 'dose' to cluster by; north\.toml allows age"):
        _ = site.client(["dose"]).data


NOISE = "[privacy]\nepsilon = 2\ndelta = 1e-6"
WRONG = {
    'columns = "a"': 'names, as in ["age", "bmi"], not',
    'colums = ["a"]': "did you mean 'columns'?",
    'columns = ["a"]\nweight_column = "a"': "named twice",
    "values_in_memory = -1": "of at least 0, not -1",
    "id_column = 3": "id_column must be a text, not 3",
    'columns = ["a"]\nid_column = "a"': "id_column 'a' is another column's part",
    'protection = "none"': "protection must be one of groups, limits, not 'none'",
    "[limits]\nmin_row = 3": "did you mean 'min_rows'?",
    "[limits]\nmin_rows = 0": "at least 1, not 0",
    "[groups]\np = 1": "[groups], p must be a whole number of at least 2, not 1",
    "[groups]\np = 9\nmin_rows = 8": "[groups], min_rows must be at least p=9, not 8",
    '[groups]\nscale = "log"': "scale must be one of standard, none, not 'log'",
    "[groups]\nq = 9": "unknown key 'q'",
    "[privacy]": "write epsilon there, a number",
    "[privacy]\nepsilon = -1\ndelta = 1e-6": "epsilon must be above 0",
    '[privacy]\nepsilon = "2"': "epsilon must be a number, as in epsilon = 4.0",
    "[privacy]\nepsilon = 2\ndelta = 0.5": "delta must be from",
    f"{NOISE}\ngroup_size = 0": "group_size must be a whole number",
    f"{NOISE}\nepsilom = 1": "unknown key 'epsilom'",
    f'protection = "groups"\n{NOISE}': "noise takes the place of groups",
    f"[limits]\nmin_rows = 9\n{NOISE}": "leave out protection and [limits",
    f'weight_column = "w"\n{NOISE}': "rows with weights cannot have noise",
}
WRONG_SOURCES = {
    "": 'write path = "FILE"',
    "path = 3": "path must be a text, not 3",
    'path = "a"\nquery = "b"': "[source], unknown key 'query'",
    'url = "sqlite:///a"': "[source]: a database needs a table or a query, and not both",
}
KEYS = 'name = "n"\nid_column = "i"\n[source]\n'
WRONG_FILES = {
    "name =": "is not TOML",
    '[source]\npath = "a.csv"': "'name' is missing",
    'name = "n"': '[source], write path = "FILE"',
    f'{KEYS}url = "sqlite:///a"\nquery = "b"': "id_column is for files: a database gives its rows",
    f'{KEYS}path = "a"\n[codes]\ni = {{ 1 = "M" }}': "[codes], 'i' is no column to cluster by",
    **{f'name = "n"\n[source]\n{source}': words for source, words in WRONG_SOURCES.items()},
    **{f'name = "n"\n{more}\n[source]\npath = "a"': words for more, words in WRONG.items()},
}


@pytest.mark.parametrize(("text", "words"), WRONG_FILES.items())
def test_what_is_wrong_with_a_site_file_is_said_in_one_line(text, words) -> None:
    Path("site.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        SiteFile.load("site.toml")
    assert words in str(caught.value)
    assert "site.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_copy_has_no_name_and_is_gone_with_the_rows(monkeypatch) -> None:
    Path("tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(Path("tmp").resolve()))
    copy = DiskCache(ColumnRoles(("a", "b", "c")))
    copy.append(Data(ROWS))
    assert not list(Path("tmp").iterdir())
    assert stat.S_IMODE(os.fstat(copy.file.fileno()).st_mode) == 0o600
    np.testing.assert_array_equal(copy.part(7, 2).X, ROWS[7:9])


def test_a_disk_without_room_is_said(monkeypatch) -> None:
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(InputError, match="No space left on device; set TMPDIR"):
        DiskCache(ColumnRoles(("a", "b", "c"))).append(Data(ROWS))


def test_a_text_file_that_changes_while_it_is_read_is_refused(monkeypatch) -> None:
    FRAME[["age", "bmi"]].to_csv("rows.csv", index=False)
    rows = cached_rows(CsvFile.open(Path("rows.csv")), owner="site 'north'")
    real = DiskCache.append

    def meanwhile(self, data):
        real(self, data)
        with open("rows.csv", "a") as file:
            file.write("1,2\n")

    monkeypatch.setattr(DiskCache, "append", meanwhile)
    with pytest.raises(InputError, match=r"^site 'north': rows.csv has changed from \d+ to \d+"):
        len(rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\n", "has no rows"),
        ("a,b\n1,x\n", r"row 1 \(line 2 of rows.csv\): 'x' is not a number; write columns"),
        ("a,b\n1,\n2,\n", "every value is missing"),
        ("a,who\n1,a\n2, \n", "column 'who', row 2 .*: it is not said whose row"),
    ],
)
def test_what_is_wrong_with_a_text_file_is_said_with_the_site(text, words) -> None:
    Path("rows.csv").write_text(text)
    roles = ['group_column = "who"'] * ("who" in text)
    with pytest.raises(InputError, match=f"^site 'north'.*{words}"):
        toml('path = "rows.csv"', *roles).rows()


def test_persons_behind_rows_are_never_more_than_there_are() -> None:
    """Over random groups and random sets of rows."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        groups, counter = rng.integers(0, rng.integers(1, 30), 100), PersonCounter()
        for part in np.array_split(groups, 15):
            counter.add(part)
        known = counter.persons()
        assert len(known) == len(np.unique(groups))
        for n in range(1, 101, 9):
            [behind] = known.min_groups(np.array([float(n)]))
            assert 1 <= behind <= len(np.unique(groups[rng.permutation(100)[:n]]))


@pytest.mark.parametrize("in_memory", [0, 1 << 20])
def test_limits_count_persons_where_the_site_says_whose_rows_they_are(in_memory) -> None:
    """A cluster of ten rows of one person is held back, one of ten persons leaves."""
    who = [*["one"] * 10, *map(str, range(10))]
    pd.DataFrame({"x": np.repeat([0.0, 9.0], 10), "who": who}).to_csv("rows.csv", index=False)
    tasks = [Task(step, State.at([[0.0], [9.0]])) for step in (Lloyd(), Inertia())]

    def client(limit: str) -> Client:
        roles = ('group_column = "who"', f"values_in_memory = {in_memory}")
        return toml(f'path = "rows.csv"\n[limits]\n{limit}', *roles).client()

    held = client("min_cluster_size = 2")
    both = held.answers(tasks)
    assert both[0].weights.tolist() == [0.0, 0.0]  # ten rows may be those of one person
    assert both[0].support is None
    assert both[1].weights.tolist() == [20.0]
    assert held.audit_log[0].held_back == 20
    alone = client("min_rows = 12").answers(tasks)
    assert alone[1].weights.tolist() == [0.0]  # eleven persons


def write_sites(*lines: str) -> list[str]:
    FRAME[["age", "bmi"]].to_csv("a.csv", index=False)
    FRAME[["bmi", "age"]][:40].to_parquet("b.parquet", index=False)
    toml('path = "a.csv"\n[limits]\nmin_rows = 5', *lines, name="north")
    toml('path = "b.parquet"', *lines, name="south")
    return ["north.toml", "south.toml"]


def test_fit_takes_site_files() -> None:
    files = write_sites()
    ran = run("fit", *files, "-k", 3, "--out", "out", "--json")
    model = json.loads(Path("out/model.json").read_text())
    assert model["columns"] == ["age", "bmi"]
    for site, n in zip(model["sites"], (5, 2), strict=True):
        assert site["limits"] == [{"name": "MinRows", "n": n}, {"name": "MinClusterSize", "p": 2}]
    assert ran.exit_code == 0
    labels = pd.read_csv("out/labels/north.csv")
    assert labels.row.tolist() == list(range(1, 61))
    assert (labels.groupby("cluster").row.count() == 20).all()
    write_sites("values_in_memory = 0")  # now in chunks
    run("fit", *files, "-k", 3, "--out", "chunks")
    again = json.loads(Path("chunks/model.json").read_text())
    np.testing.assert_allclose(again["centers"], model["centers"], rtol=1e-12)
    assert "SiteSummaries" not in str(again["algorithm"]["steps"])
    assert Path("chunks/labels/north.csv").read_text() == Path("out/labels/north.csv").read_text()


@pytest.mark.parametrize("more", [[], ["values_in_memory = 0"]])
def test_keys_of_a_site_file_stand_beside_clusters_and_are_not_clustered_by(more) -> None:
    """Of a text file, of a folder whose files hold them as other kinds, and of one site alone."""
    frame = FRAME[["age", "bmi"]]
    keys = [f"0{i}" for i in range(60, 0, -1)]
    frame.assign(key=keys).to_csv("a.csv", index=False)
    Path("b").mkdir()
    frame[:20].assign(key=range(20)).to_parquet("b/1.parquet", index=False)
    frame[20:].assign(key=keys[20:]).to_parquet("b/2.parquet", index=False)
    frame.to_csv("c.csv", index=False)
    toml('path = "a.csv"', 'id_column = "key"', *more, name="north")
    toml('path = "b"', 'id_column = "key"', *more, name="south")
    toml('path = "c.csv"', *more, name="west")
    files = ["north.toml", "south.toml", "west.toml"]
    assert run("fit", *files, "-k", 3, "--out", "out").exit_code == 0
    assert run("predict", "out/model.json", *files, "--out", "labels").exit_code == 0
    for out in ("out/labels", "labels"):
        names = ("north", "south", "west")
        read = {name: pd.read_csv(f"{out}/{name}.csv", dtype={"key": str}) for name in names}
        assert list(read["north"]) == list(read["south"]) == ["row", "key", "cluster"]
        assert read["north"].key.tolist() == keys
        assert read["south"].key.tolist() == [*map(str, range(20)), *keys[20:]]
        assert list(read["west"]) == ["row", "cluster"]
        assert read["north"].cluster.tolist() == read["west"].cluster.tolist()
    assert json.loads(Path("out/model.json").read_text())["columns"] == ["age", "bmi"]
    assert "key" not in Path("out/history.json").read_text()


def test_a_key_may_be_the_person_and_check_names_it() -> None:
    FRAME.to_csv("rows.csv", index=False)
    toml('path = "rows.csv"', 'id_column = "who"', 'columns = ["age", "bmi"]')
    found = json.loads(run("check", "north.toml", "--json").stdout)
    assert {c["name"]: c["role"] for c in found["columns"]}["who"] == "key"
    own = toml('path = "rows.csv"', 'id_column = "who"', 'group_column = "who"').own_table()
    _, keys = own.keys(range(1, 61))  # type: ignore[union-attr, misc]
    assert keys.to_pylist() == FRAME.who.tolist()
    toml('path = "rows.csv"', 'id_column = "whose"')
    lacking = "site 'north' has no column 'whose'; it has age, bmi, dose, weight, who, what"
    assert lacking in run("check", "north.toml").stderr
    assert lacking in run("fit", "north.toml", "-k", 2, "--out", "out").stderr


@pytest.mark.parametrize("in_memory", [1 << 20, 0])
@pytest.mark.parametrize("fit_more", ["", "--scale none", "--fuzzy"])
def test_a_model_is_used_on_site_files_as_on_data_files(fit_more, in_memory) -> None:
    FRAME.to_csv("a.csv", index=False)
    FRAME[["what", "bmi", "age"]][:40].to_parquet("b.parquet", index=False)
    roles = ('columns = ["bmi", "age"]', 'label_column = "what"', f"values_in_memory = {in_memory}")
    sites, files = ["north.toml", "south.toml"], ["north=a.csv", "south=b.parquet"]
    for name, _, path in (each.partition("=") for each in files):
        toml(f'path = "{path}"\n[limits]\nmin_rows = 5', *roles, name=name)
    assert run("fit", *sites, "-k", 3, "--out", "out", *fit_more.split()).exit_code == 0
    for given, out in ((sites, "by-site"), (files, "by-file")):
        assert run("predict", "out/model.json", *given, "--out", out).exit_code == 0
    for name in ("north.csv", "south.csv"):
        texts = [Path(out, name).read_text() for out in ("out/labels", "by-site", "by-file")]
        assert texts[0] == texts[1] == texts[2]
    by_site = json.loads(run("evaluate", "out/model.json", *sites, "--json").stdout)
    more = ["--label-column", "what", "--min-cluster-size", 2]
    by_file = json.loads(run("evaluate", "out/model.json", *files, *more, "--json").stdout)
    [one, _] = by_site["sites"]
    assert one["limits"] == [{"name": "MinRows", "n": 5}, {"name": "MinClusterSize", "p": 2}]
    assert one["rows"] == 60
    for name, score in by_file["scores"].items():
        assert by_site["scores"][name] == pytest.approx(score, rel=1e-9, nan_ok=True)


def test_select_k_takes_site_files() -> None:
    found = json.loads(run("select-k", *write_sites(), "--k-max", 5, "--json").stdout)
    assert found["n_clusters"] == 3


def test_evaluate_over_site_files_says_what_does_not_go_together() -> None:
    run("fit", *write_sites(), "-k", 3, "--out", "out")
    evaluate = ("evaluate", "out/model.json", "north.toml", "south.toml")
    FRAME.to_csv("a.csv", index=False)
    toml('path = "a.csv"', 'columns = ["age", "bmi"]', 'label_column = "what"')
    assert "site 'south' names no label_column" in fails(*evaluate)
    FRAME.assign(what=pd.Series([None, *FRAME.what[1:]])).to_csv("a.csv", index=False)
    assert "site 'north': the label of a row is missing" in fails(*evaluate[:3])
    toml('path = "a.csv"', 'columns = ["age", "dose"]')
    assert "no column 'bmi' to cluster by" in fails("predict", *evaluate[1:], "--out", "new")
    assert not Path("new").exists()


@pytest.mark.parametrize("in_memory", [1 << 20, 0])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_site_s_own_codes_become_those_of_all_sites(suffix, in_memory) -> None:
    numbers, texts = [1, 2, None] * 20, ["1", "2", "w"] * 20
    frame = FRAME[["age"]].assign(sex=pd.array(numbers, "Int64"), mark=texts)
    getattr(frame, f"to_{suffix}")(f"a.{suffix}", index=False)
    codes = '[codes]\nsex = {1 = "M", 2 = "F"}\nmark = {1 = "M", 2 = "F", w = "F"}'
    rows = toml(f'path = "a.{suffix}"\n{codes}', f"values_in_memory = {in_memory}").rows(raw=True)
    data = rows if isinstance(rows, Data) else next(iter(rows.chunks()))
    assert [c.levels for c in data.columns] == [(), ("F", "M"), ("F", "M")]
    np.testing.assert_array_equal(data.X[:3, 1:], [[1, 1], [0, 0], [np.nan, 0]])
    FRAME[["age"]].assign(sex=["F", "M"] * 30, mark="F").to_csv("b.csv", index=False)
    toml('path = "b.csv"', f"values_in_memory = {in_memory}", name="south")
    assert run("fit", "north.toml", "south.toml", "-k", 3, "--out", "out").exit_code == 0
    model = json.loads(Path("out/model.json").read_text())
    assert {"sex=F", "sex=M", "mark=F"} <= set(model["centers_in_units"])


@pytest.mark.parametrize(
    ("codes", "more", "words"),
    [
        ('sex = {1 = "M"}', "", "[codes] does not say what '2' means; it knows '1'"),
        ("sex = {1 = 2}", "", "[codes], sex.1 must be a text, not 2"),
        ("sex = {}", "", "[codes], sex must be a table of what each code means"),
        ('sax = {1 = "M"}', "", "[codes]: the source has no column 'sax'"),
        ('sex = {1 = "M", 2 = "F"}', "--scale none", "leave out --scale none"),
    ],
)
def test_what_is_wrong_with_codes_is_said_in_one_line(codes, more, words) -> None:
    FRAME[["age"]].assign(sex=[1, 2] * 30).to_csv("a.csv", index=False)
    Path("north.toml").write_text(f'name = "n"\n[source]\npath = "a.csv"\n[codes]\n{codes}')
    assert words in fails("fit", "north.toml", "-k", 2, "--out", "out", *more.split())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("north.toml a.csv", "a.csv is not"),
        ("north.toml south.toml --columns age,dose", "site 'north' has no column 'dose'"),
        ("south.toml other.toml", "two sites are called 'south'"),
    ],
)
def test_fit_over_site_files_says_what_does_not_go_together(given, words) -> None:
    write_sites()
    Path("other.toml").write_text(Path("south.toml").read_text())
    assert words in fails("fit", *given.split(), "-k", 2, "--out", "out")


def test_check_shows_what_a_federation_would_meet() -> None:
    frame = FRAME.assign(born=pd.Timestamp("1970-01-01"), odd=["x", *["1"] * 59], none=np.nan)
    frame.loc[3, "bmi"] = np.nan
    frame.to_parquet("rows.parquet")
    source = 'path = "rows.parquet"\n[limits]\nmin_cluster_size = 3'
    toml(source, 'columns = ["age", "bmi"]', 'group_column = "who"')
    before = sorted(Path().iterdir())
    found = json.loads(run("check", "north.toml", "--json").stdout)
    assert {c["name"]: (c["role"], c["holds"], c["missing"]) for c in found["columns"]} == {
        "age": ("clustered by", "number", 0),
        "bmi": ("clustered by", "number", 1),
        "dose": ("not used", "number", 0),
        "weight": ("not used", "number", 0),
        "who": ("group", "text", 0),
        "what": ("not used", "text", 0),
        "born": ("not used", "date", 0),
        "odd": ("not used", "mixed", 0),
        "none": ("not used", "empty", 60),
    }
    assert (found["rows"], found["persons"]) == (60, 12)
    limits = {"min_rows": 2, "takes_part": True, "min_cluster_size": 3, "sent_from_rows": 11}
    assert found["limits"] == limits
    shown = run("check", "north.toml").stdout
    assert "Site north: 60 rows of 12 persons from rows.parquet" in shown
    assert re.search(r"limits count +persons(.*\n)*rows from which on a sum leaves +11 ", shown)
    assert "Nothing was sent." in shown
    assert sorted(Path().iterdir()) == before


def test_check_warns_of_columns_that_a_fit_refuses() -> None:
    FRAME.assign(born=pd.Timestamp("1970-01-01"), none=np.nan).to_parquet("rows.parquet")
    toml('path = "rows.parquet"')
    assert json.loads(run("check", "north.toml", "--json").stdout)["warnings"] == [
        f"column '{name}' holds {what}, which a fit refuses; "
        "write columns = [...] without it into the site file"
        for name, what in (("born", "dates"), ("none", "no value"))
    ]
    left_out = json.loads(run("fit", "north.toml", "-k", 2, "--out", "out", "--json").stdout)
    why = {"born": DATES, "none": "no value", "who": "text without a value that enough rows share"}
    assert left_out["preprocessing"]["left_out"] == why
    named = ["--columns", "age,born"]
    assert "column 'born' holds dates" in fails("fit", "north.toml", "-k", 2, "--out", "o", *named)
    toml('path = "rows.parquet"', 'columns = ["age", "bmi"]')
    assert json.loads(run("check", "north.toml", "--json").stdout)["warnings"] == []


def test_check_tells_a_site_that_it_would_send_nothing() -> None:
    np.save("x.npy", np.where(ROWS > 18, np.nan, ROWS))
    toml('path = "x.npy"\n[limits]\nmin_rows = 100', name="small")
    shown = run("check", "small.toml").stdout
    assert "Limits in force: a site with fewer than 100 rows sends nothing" in shown
    assert "Nothing leaves: this site has too few for its limits." in shown
    FRAME[:1].to_csv("one.csv", index=False)
    toml('path = "one.csv"', name="one")
    assert "Site one: 1 row from one.csv" in run("check", "one.toml").stdout
    assert "Nothing leaves: this site" in run("check", "one.toml").stdout
    missing = (ROWS > 18).sum(axis=0).tolist()
    found = json.loads(run("check", "small.toml", "--json").stdout)
    assert [column["missing"] for column in found["columns"]] == missing


def test_columns_of_a_folder_are_those_of_every_file() -> None:
    Path("folder").mkdir()
    with pytest.raises(InputError, match="is a folder without Parquet files"):
        toml('path = "folder"').rows()
    pq.write_table(pa.table({"a": [1.0], "b": [2.0]}), "folder/1.parquet")
    pq.write_table(pa.table({"a": [1.0]}), "folder/2.parquet")
    with pytest.raises(InputError, match="site 'north' has no column 'b'; it has a"):
        toml('path = "folder"').rows()


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder", "sqlite"])
def test_raw_rows_keep_text_as_one_coding_and_what_is_missing(kind, monkeypatch) -> None:
    monkeypatch.setattr(spool, "READ", 20)
    frame = FRAME.assign(sex=pd.Series([*["m"] * 30, *["f", "m", None] * 10]))
    frame.loc[7, "age"] = np.nan
    monkeypatch.setitem(globals(), "FRAME", frame)
    held = "values_in_memory = 0"
    site = toml(sources()[kind], held, 'columns = ["age", "sex"]', 'group_column = "who"')
    rows = site.rows(raw=True)
    assert not isinstance(rows, Data)
    for data in (rows.load(), *([] if kind in ("parquet", "folder") else rows.chunks())):
        age, sex = data.columns
        assert (age.kind, sex.kind, sorted(sex.levels)) == ("number", "text", ["f", "m"])
    data = rows.load()
    np.testing.assert_array_equal(np.isnan(data.X[:, 0]), np.arange(60) == 7)
    written = [None if np.isnan(c) else data.columns[1].levels[int(c)] for c in data.X[:, 1]]
    assert written == [None if pd.isna(sex) else sex for sex in frame.sex]
    assert data.groups is not None
    assert len(site.client(raw=True).describe()) == 2


def test_check_names_a_code_without_a_meaning() -> None:
    FRAME[["age"]].assign(sex=["m", "f"] * 30).to_csv("a.csv", index=False)
    toml('path = "a.csv"\n[codes]\nsex = { m = "M" }')
    assert "[codes] does not say what 'f' means; it knows 'm'" in fails("check", "north.toml")
    toml('path = "a.csv"\n[codes]\nsex = { m = "M", f = "F" }')
    assert run("check", "north.toml").exit_code == 0
