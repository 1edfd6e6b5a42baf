"""A table that is grouped once: the file of means, and the site that answers from it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from typed import fails, run

from fedcluster import FederatedKMeans
from fedcluster.core import Data
from fedcluster.core.files import lock
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.privacy import Grouping, Groups
from fedcluster.privacy import groups as groups_module
from fedcluster.privacy.limits import Dominance
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.means import group_once
from fedcluster_app.tables.means_file import means_of, means_table, read_means

pytestmark = pytest.mark.usefixtures("short_searches")

N = 3000


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch) -> None:
    """Let few rows be many: chunks of hundreds, in blocks of a thousand."""
    monkeypatch.setattr(groups_module, "BATCH", 1000)
    monkeypatch.setattr("fedcluster.frames.rows.CHUNK", 75)


def rows(seed: int = 0, n: int = N) -> pa.Table:
    """Numbers with gaps, texts some of which are rare, labels, and weights; none stands alone."""
    rng = np.random.default_rng(seed)
    place = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 3)) + 6 * place[:, None]
    X[rng.random(n) < 0.05, 1] = np.nan
    sex = np.array(["F", "M", "rare"])[np.minimum(rng.integers(0, 200, n), 199) // 99 % 3]
    y = np.array(["well", "sick", "ill"])[place]
    whole = np.round(X[:, 2], 1).clip(-1.5, 13.5)
    return pa.table(
        {"a": X[:, 0], "b": X[:, 1], "c": whole, "sex": sex, "y": y, "w": rng.random(n) + 1}
    )


def site_of(
    folder: Path, *more: str, table: pa.Table | None = None, file: str = "site", of: str = "t"
) -> SiteFile:
    """Write a site of such rows, by default those that are there, and hold none in memory."""
    if table is not None or not (folder / f"{of}.parquet").exists():
        pa.parquet.write_table(table or rows(), folder / f"{of}.parquet", row_group_size=700)
    lines = [f'name = "{folder.name}"', 'protection = "groups"', 'label_column = "y"', *more]
    source = ["values_in_memory = 0", "[source]", f'path = "{of}.parquet"']
    path = folder / f"{file}.toml"
    path.write_text("\n".join([*lines, *source]))
    site = SiteFile.load(path)
    if site.columns is None:
        site.confirm()
    return site


def same(a: Data, b: Data) -> None:
    """Compare means, and all that stands behind them."""
    assert a.grouped is not None
    assert b.grouped is not None
    assert a.columns == b.columns
    for name in ("X", "sample_weight"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for name in ("counts", "behind", "labels"):
        np.testing.assert_array_equal(getattr(a.grouped, name), getattr(b.grouped, name))
    for name in ("classes", "even", "scatter"):
        assert getattr(a.grouped, name) == getattr(b.grouped, name)
    assert a.grouped.shares.keys() == b.grouped.shares.keys()
    for j, share in a.grouped.shares.items():
        np.testing.assert_array_equal(share.toarray(), b.grouped.shares[j].toarray())


@pytest.mark.parametrize(
    "groups", [Groups(), Groups(p=9, scale="none"), Groups(dominance=Dominance(), p=6)]
)
@pytest.mark.parametrize("more", ["", 'weight_column = "w"'])
def test_blocks_give_the_groups_that_all_rows_in_memory_give(tmp_path, groups, more) -> None:
    stream = site_of(tmp_path, more).rows(raw=True)
    assert not isinstance(stream, Data)
    grouping = Grouping(groups)
    parts = list(grouping.in_blocks(stream))
    assert 3 < len(parts) < 6  # few blocks, and the scatter
    known = grouping.grouped(stream)
    np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), known.X)
    counts = [part.grouped.counts for part in parts if part.grouped is not None]
    assert known.grouped is not None
    np.testing.assert_array_equal(np.concatenate(counts), known.grouped.counts)
    assert parts[-1].grouped is not None
    assert parts[-1].grouped.scatter == known.grouped.scatter
    assert np.concatenate(counts).min() >= groups.p


@pytest.mark.parametrize("through", ["arrow", "pandas", "parquet of pandas"])
def test_a_table_of_means_survives_programs_on_its_way(tmp_path, through) -> None:
    groups = Grouping(Groups()).grouped(site_of(tmp_path).rows(raw=True))
    table = means_table(groups, {"p": 5})
    if through != "arrow":
        frame = table.to_pandas()
        if through != "pandas":
            frame.to_parquet(tmp_path / "x.parquet")
            frame = pd.read_parquet(tmp_path / "x.parquet")
        table = pa.Table.from_pandas(frame.copy())
    again, about = means_of(table)
    assert about["p"] == 5
    same(again, groups)


def test_a_file_of_means_is_read_a_column_at_a_time(tmp_path, monkeypatch) -> None:
    """The means may fill the memory: there must be no copy of all of them."""
    site, sizes = site_of(tmp_path), []
    group_once(site)
    read = pa.parquet.ParquetFile.read

    def noted(file: pa.parquet.ParquetFile, **asked: list[str]) -> pa.Table:
        table = read(file, **asked)
        sizes.append(table.num_columns)
        return table

    monkeypatch.setattr(pa.parquet.ParquetFile, "read", noted)
    read_means(site.means_file)
    assert len(sizes) > 4
    assert set(sizes) == {1}


def fit(clients: list[Client]) -> FederatedKMeans:
    """Cluster by two of the columns."""
    engine = LocalEngine([client.with_columns(["a", "c"]) for client in clients])
    return FederatedKMeans(3, random_state=0).fit(engine=engine)


def test_a_site_answers_from_its_means_and_reads_no_row_any_more(tmp_path, monkeypatch) -> None:
    sites = []
    for i, name in enumerate(("north", "south")):
        (tmp_path / name).mkdir()
        sites.append(site_of(tmp_path / name, table=rows(i)))
    before = [site.grouped_client() for site in sites]
    fitted = fit(before)
    for site in sites:
        site.groups_file.unlink()
        n_groups, n_in, n_rows = done = group_once(site)
        assert n_groups > N / 10
        assert n_in == n_rows == N
        content = site.means_file.read_bytes()
        assert group_once(site) == done  # grouped once means once
        assert site.means_file.read_bytes() == content
        assert site.means_file.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(SiteFile, "rows", None)
    clients = [site.grouped_client() for site in sites]
    for client, known in zip(clients, before, strict=True):
        same(client.data, known.data)
    np.testing.assert_array_equal(fit(clients).cluster_centers_, fitted.cluster_centers_)


def test_persons_are_grouped_with_all_their_rows(tmp_path) -> None:
    person = pa.array(np.arange(N) % 500)
    site = site_of(tmp_path, 'group_column = "who"', table=rows().append_column("who", person))
    known = site.grouped_client().data
    site.groups_file.unlink()
    group_once(site)
    same(site.grouped_client().data, known)
    assert known.grouped is not None
    assert known.grouped.counts.min() >= 6 * 5


def refused(site: SiteFile, why: str, *, by_both: bool = True) -> None:
    """No means are made, and no answer is given from means or groups, for a reason in one line."""
    uses = [lambda: len(site.grouped_client().data), lambda: group_once(site)]
    for use in uses if by_both else uses[:1]:
        with pytest.raises(InputError, match=why) as said:
            use()
        assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("groups = { p = 6 }", "grouped with p 5, not 6"),
        ('columns = ["a", "b"]', "grouped with columns"),
        ("limits = { min_cluster_size = 9 }", "grouped with [limits]"),
        ('missing_values = ["-9"]', "grouped with missing_values"),
        ("groups = { generation = 2 }", "grouped with generation 1, not 2"),
        ("privacy = { dominance = true }", "grouped with dominance"),
    ],
)
def test_other_options_are_refused(tmp_path, more, what) -> None:
    group_once(site_of(tmp_path))
    refused(site_of(tmp_path, more), re.escape(what), by_both=False)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("", "source has changed .* folder of their own"),
        ("groups = { generation = 2 }", "grouped with generation 1, not 2"),
    ],
)
def test_other_rows_are_refused(tmp_path, more, why) -> None:
    """By another generation, too: the means do not tell whether rows are others."""
    group_once(site_of(tmp_path))
    refused(site_of(tmp_path, more, table=rows(7)), why)


def test_rows_in_groups_get_no_means_and_rows_with_means_no_groups(tmp_path) -> None:
    site = site_of(tmp_path)
    len(site.grouped_client().data)
    (tmp_path / "site.groups").rename(tmp_path / "other.groups")
    with pytest.raises(InputError, match=r"rows are in the groups of other\.groups"):
        group_once(site_of(tmp_path, table=rows()[::-1], of="u"))
    (tmp_path / "other.groups").unlink()
    group_once(site_of(tmp_path))
    refused(site_of(tmp_path, file="second"), r"in the groups of site\.means\.parquet")


def test_means_have_the_columns_whose_names_somebody_at_the_site_has_seen(tmp_path) -> None:
    """They may go to a node of vantage6, which tells the names of what it is given."""
    site = site_of(tmp_path)
    site.columns_file.unlink()
    said = r"nobody at this site has confirmed .* write columns = "
    with pytest.raises(InputError, match=said) as no:
        group_once(site)
    assert "\n" not in str(no.value)
    assert ("fedcluster check" in str(no.value)) == bool(site.federation)
    assert not site.means_file.exists()
    site.columns_file.write_text('{"columns": ["c", "a"]}')
    group_once(site)
    assert {column.name for column in read_means(site.means_file)[0].columns} == {"a", "c"}


def test_no_other_rows_of_a_folder_are_grouped_beside_means(tmp_path) -> None:
    """They may be the same, in a copy, a later export or the file of another study."""
    group_once(site_of(tmp_path))
    other = site_of(tmp_path, table=rows().slice(1), file="second", of="u")
    refused(other, r"in the groups of site\.means\.parquet.* of their own")
    assert [path.name for path in tmp_path.glob("*.means.parquet")] == ["site.means.parquet"]
    assert not [*tmp_path.rglob("*.groups")]


def test_an_interrupted_run_leaves_no_file_and_starts_over(tmp_path, monkeypatch) -> None:
    site = site_of(tmp_path)
    made: list[tuple[object, ...]] = []

    def interrupted(*arguments):
        if made:
            raise KeyboardInterrupt
        made.append(arguments)
        return means_table(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("fedcluster_app.tables.means_file.means_table", interrupted)
        with pytest.raises(KeyboardInterrupt):
            group_once(site)
    there = ["site.columns", "site.toml", "t.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == there
    assert group_once(site)[2] == N


def test_a_killed_run_leaves_nothing_behind_and_two_do_not_run_at_once(tmp_path) -> None:
    site = site_of(tmp_path)
    broken_off = tmp_path / ".site.means.parquet-1-2.partial"
    broken_off.write_bytes(b"half")
    with site.path.open("rb") as other:
        lock(other)
        with pytest.raises(InputError, match="are being grouped by another process"):
            group_once(site)
    assert broken_off.exists()
    group_once(site)
    assert not broken_off.exists()


def test_a_table_that_changes_while_it_is_grouped_is_refused(tmp_path, monkeypatch) -> None:
    site = site_of(tmp_path)

    def touched(*arguments):
        os.utime(tmp_path / "t.parquet", ns=(1, 1))
        return means_table(*arguments)

    monkeypatch.setattr("fedcluster_app.tables.means_file.means_table", touched)
    with pytest.raises(InputError, match="has changed"):
        group_once(site)
    assert not site.means_file.exists()


def test_commands_group_and_check_and_refuse(here, tmp_path) -> None:
    site = site_of(tmp_path).path
    done = run("site groups", site)
    assert done.exit_code == 0
    assert "groups of at least 5 rows, 3,000 of 3,000 rows" in done.output
    assert "rows are seen in groups of at least 5" in run("check", site).output
    (tmp_path / "site.means.parquet").write_bytes(b"no Parquet")
    assert "it is not a whole Parquet file" in fails("check", site)
    (tmp_path / "site.means.parquet").unlink()
    site_of(tmp_path, table=rows(0, 10))
    assert "there are 10 rows, and min_rows asks for 20" in fails("site groups", site)
