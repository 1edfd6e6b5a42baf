"""A second study of the same rows gets the same groups, or is refused; rows of others are not."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcluster.core import Data
from fedcluster.errors import InputError
from fedcluster.privacy.partition import Partition, row_ids
from fedcluster.privacy.persons import unique_ids
from fedcluster_app.site.file import SiteFile

N = 120
NAMES = ("age", "bmi", "chol", "flag")
BY = 'columns = ["age", "bmi"]\n'
DIVERSE = '[privacy]\nsensitive = ["bmi"]\ndiversity = 2\n'
RAISED = "[groups]\ngeneration = 2\n"


def persons(first: int = 0, n: int = N, seed: int = 0) -> np.ndarray:
    """Rows of a stream of persons that is always the same."""
    rng = np.random.default_rng(seed)
    age, bmi = rng.uniform(20, 95, 900).round(2), rng.normal(27, 4, 900).round(2)
    chol, flag = rng.normal(5.5, 1, 900).round(3), rng.integers(0, 2, 900)
    X = np.column_stack([age, bmi, chol, flag])
    return X[first : first + n]


def study(
    folder: Path,
    name: str = "site",
    top: str = BY,
    more: str = "",
    rows: np.ndarray | None = None,
    file: str = "rows.csv",
    names: tuple[str, ...] = NAMES,
) -> SiteFile:
    """Write a site file, and its rows unless they are there."""
    (folder / "state").mkdir(parents=True, exist_ok=True)
    if rows is not None or not (folder / file).exists():
        rows = persons() if rows is None else rows
        with (folder / file).open("w", newline="") as stream:
            csv.writer(stream).writerows([names, *rows[:, : len(names)].tolist()])
    path = folder / f"{name}.toml"
    path.write_text(
        f'name = "north"\n{top}[source]\npath = "{file}"\n{more}'
        '[federation]\ncoordinator = "127.0.0.1:1"\ncertificate = "system"\nkey = "site.toml"\n'
    )
    return SiteFile.load(path)


def grouped(site: SiteFile) -> Data:
    return site.grouped_client().data


def changed(j: int) -> np.ndarray:
    X = persons()
    X[:, j] += 1.0
    return X


COPY, OTHER = {"name": "hips", "top": BY, "file": "copy.csv"}, {"name": "hips", "more": RAISED}
SECOND: dict[str, dict[str, Any]] = {
    "other columns": {"name": "hips", "top": 'columns = ["age", "chol"]\n'},
    "one column": {**OTHER, "top": 'columns = ["bmi"]\n'},
    "all columns": {**OTHER, "top": ""},
    "another p": {"name": "hips", "more": "[groups]\np = 6\ngeneration = 2\n"},
    "p alone": {"name": "hips", "more": "[groups]\np = 6\n"},
    "another scale": {"more": f'{RAISED}scale = "none"\n'},
    "another rule": {"more": RAISED + DIVERSE},
    "a generation": {"more": RAISED},
    "a flag more": {**OTHER, "top": "", "rows": persons()},
    "a name and a unit": {"more": f'{RAISED}[rename]\nage = "years"\n[factors]\nage = 12\n'},
    "a factor": {"more": f"{RAISED}[factors]\nage = 12\n"},
    "a copy": COPY,
    "a copy in another order": {**COPY, "rows": persons()[::-1]},
    "a copy of fewer columns": {**COPY, "top": 'columns = ["age"]\n', "names": ("age",)},
    "a part of the rows": {**COPY, "rows": persons(30, 50)},
    "weights": {**OTHER, "top": f'{BY}weight_column = "chol"\n'},
    "a column corrected": {"more": RAISED, "rows": changed(0)},
    "the other one": {"more": RAISED, "rows": changed(1)},
    "persons": {**OTHER, "top": f'{BY}group_column = "chol"\n'},
}


@pytest.mark.parametrize("how", SECOND)
@pytest.mark.parametrize("first", [BY, 'columns = ["age", "bmi", "flag"]\n'])
def test_a_second_grouping_of_the_same_rows_is_refused(tmp_path, how, first) -> None:
    site = study(tmp_path, top=first)
    grouped(site)
    before = site.groups_file.read_bytes()
    with pytest.raises(InputError, match="would reveal single rows") as error:
        grouped(study(tmp_path, **SECOND[how]))
    assert "\n" not in str(error.value)
    assert "generation = " not in str(error.value)
    assert site.groups_file.read_bytes() == before


@pytest.mark.parametrize("j", range(3))
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_few_values_are_known_by_the_columns_that_are_as_they_were(tmp_path, j, seed):
    """One column does not tell whole numbers apart, two do. Rows of others are not left out."""
    X = np.random.default_rng(seed).integers(20, 90, (N + 300, 4)).astype(float)
    top = 'columns = ["age", "bmi", "chol"]\n'
    grouped(study(tmp_path, top=top, rows=X[:N]))
    recoded = X[:N].copy()
    recoded[:, j] *= 12
    ways: list[dict[str, Any]] = [{"more": RAISED}, {"name": "hips", "file": "hips.csv"}]
    for way in ways:
        with pytest.raises(InputError, match="would reveal single rows"):
            grouped(study(tmp_path, top=top, rows=recoded, **way))
    others = study(tmp_path, "others", top, "", X[N:], "others.csv")
    data = grouped(others)
    assert data.grouped is not None
    assert data.grouped.counts.sum() > 270


def test_the_same_study_under_another_name_gets_the_same_groups(tmp_path) -> None:
    """Of two coordinators, or as its site file was renamed; and both go on with them."""
    first = grouped(study(tmp_path))
    second = study(tmp_path, "hips")
    np.testing.assert_array_equal(grouped(second).X, first.X)
    (tmp_path / "link.csv").symlink_to(tmp_path / "rows.csv")
    linked = study(tmp_path, "third", file="link.csv")
    assert {second.groups_file, linked.groups_file} == {study(tmp_path).groups_file}
    more = grouped(study(tmp_path, "hips", rows=persons(0, N + 20)))
    np.testing.assert_array_equal(grouped(study(tmp_path)).X, more.X)
    assert [path.name for path in (tmp_path / "state").glob("*.groups")] == ["site.groups"]


def groups_of(site: SiteFile) -> dict[int, set[tuple[float, ...]]]:
    kept, rows = Partition.read(site.groups_file), site.rows(raw=True)
    assert isinstance(rows, Data)
    ids = unique_ids(row_ids(rows, kept.key)).tolist()
    place = dict(zip(kept.units.tolist(), kept.members.tolist(), strict=True))
    found: dict[int, set[tuple[float, ...]]] = {}
    for i, row in zip(ids, rows.X.tolist(), strict=True):
        found.setdefault(place.get(i, -1), set()).add(tuple(row))
    return {number: some for number, some in found.items() if number >= 0}


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_others_are_grouped_and_known_ones_left_out(tmp_path, seed) -> None:
    """Each new group has p rows that are in no other: so no fewer can be solved for."""
    rng = np.random.default_rng(seed)
    X = persons(0, 700, seed)
    grouped(study(tmp_path, rows=X[:N]))
    both = int(rng.integers(0, N))
    mixed = rng.permutation(np.concatenate([X[:both], X[N : N + int(rng.integers(80, 200))]]))
    ways: list[dict[str, Any]] = [{"more": RAISED}, {"name": "hips", "file": "hips.csv"}]
    second = study(tmp_path, **ways[seed % 2], rows=mixed)
    grouped(second)
    told = {tuple(row) for row in X[:N, :2].tolist()}
    made = groups_of(second)
    assert len(made) > 5
    assert min(len(some - told) for some in made.values()) >= 5
    grouped(study(tmp_path, **ways[seed % 2], rows=np.concatenate([mixed, X[both:N][:9]])))
    assert min(len(some - told) for some in groups_of(second).values()) >= 5


def test_a_generation_is_advised_where_rows_are_others(tmp_path) -> None:
    """Columns that no other study has may be grouped as they are."""
    grouped(study(tmp_path))
    top = 'columns = ["age", "chol"]\n'
    alone = study(tmp_path, "hips", 'columns = ["chol"]\n', rows=persons(), file="copy.csv")
    assert len(grouped(alone)) > 10
    alone.groups_file.unlink()
    with pytest.raises(InputError, match=r"rows are new, .* generation = 2 under \[groups\]"):
        grouped(study(tmp_path, top=top, rows=persons(300)))
    assert len(grouped(study(tmp_path, top=top, more=RAISED))) > 10
    with pytest.raises(InputError, match=r"site\.generation-1\.groups"):
        grouped(study(tmp_path, more="[groups]\ngeneration = 3\n", rows=persons()))
