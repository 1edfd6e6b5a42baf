"""The collection of traps: each is read rightly, left out with a line, or warned of.

And no false alarm: of the clean sets, also those whose sites truly differ, nothing is left out and
nothing warned of. Whole numbers with few values may be asked about there.
"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from trap_files import Trap, clean, traps
from typed import as_study, remedies, run

from fedcluster import FederatedKMeans
from fedcluster.core import Column, Data
from fedcluster.errors import InputError, ReadingNote
from fedcluster.frames.columns import codes
from fedcluster.preprocessing.screening import no_features
from fedcluster.texts import for_python
from fedcluster_app.cli._options import FileOptions, Scaling, preparation
from fedcluster_app.cli._runs import Comparison, compared

pytestmark = pytest.mark.usefixtures("here", "short_searches")

TRAPS = {each.name: each for each in traps()}
CLEAN = clean()


def written(trap: Trap) -> list[str]:
    """The files of a trap, in the current folder."""
    for file, content in trap.files.items():
        Path(file).write_bytes(content)
    return list(trap.files)


def looked_at(files: list[str], **options: Any) -> tuple[Comparison, list[str], list[str]]:
    """What is found in files, all that is warned of, and the notes on what is read otherwise."""
    scaling = Scaling(missing="mean", categories=options.pop("categories", None))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = compared(files, FileOptions(**options), preparation(scaling, None))
    noted = [str(each.message) for each in said if each.category is ReadingNote]
    warned = [str(each.message) for each in said if each.category is not ReadingNote]
    return found, [*warned, *found.fit_report.warnings], noted


def held(found: Comparison, column: str, *, text: bool) -> list[object]:
    """What a column holds at the first site, None where nothing."""
    table = found.reading.tables["north"]
    j = table.columns.index(column)
    levels, code = codes(table.data, j)
    if text:
        return [None if np.isnan(x) else levels[int(x)] for x in code]
    return [None if np.isnan(x) else float(x) for x in table.data.X[:, j]]


def lines_about(trap: Trap, found: Comparison, said: list[str]) -> list[str]:
    """What is said that the trap asks for."""
    told = {
        "left out": [found.fit_report.left_out.get(trap.column, "")],
        "warned": [line for line in said if not trap.column or repr(trap.column) in line],
        "asked": [line for line in found.fit_report.notes if trap.column in line],
    }
    return [line for line in told[trap.expected] if trap.words in line]


def test_the_collection_is_as_large_as_it_should_be() -> None:
    assert len(TRAPS) >= 120
    assert len(CLEAN) >= 40


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_read_rightly_left_out_with_a_line_or_warned_of(name: str) -> None:
    trap = TRAPS[name]
    files = written(trap)
    if trap.expected == "refused":
        with pytest.raises(InputError) as refused:
            looked_at(files, **trap.options)
        assert trap.words in str(refused.value)
        if "may mean" not in str(refused.value):
            check_remedies(trap, str(refused.value))
        return
    found, said, noted = looked_at(files, **trap.options)
    if trap.values is not None:
        assert trap.column in found.used
        text = any(isinstance(value, str) for value in trap.values)
        assert held(found, trap.column, text=text) == list(trap.values)
        assert not said
        assert all(trap.words in line for line in noted)
        assert bool(noted) == bool(trap.words)
    else:
        assert lines_about(trap, found, said)
        for line in said:
            check_remedies(trap, line)


def check_remedies(trap: Trap, line: str) -> None:
    """What a line says to type runs and silences it, in the shell and in a study file."""
    for options in remedies(line):
        ways = [[*trap.files, *options]]
        if {*options[::2]} == {"--set"}:
            Path("study.toml").write_text(as_study(trap.files, options))
            ways.append(["study.toml"])
        for way in ways:
            ran = run("check", *way, "--json")
            assert ran.exit_code == 0, (way, ran.stderr)
            assert line not in ran.stderr, way
            assert line not in json.loads(ran.stdout)["warnings"], way


IN_FRAMES = (
    "the site's name", "one number", "a target by its name", "keys at random", "a copy", "a sum",
    "rows twice", "a file twice", "persons at two sites", "Fahrenheit",
    "sentinel -999 in age", "typing 13800 in sbp", "body_mass_g in another unit of mixtures",
)  # fmt: skip


@pytest.mark.parametrize("name", IN_FRAMES)
def test_python_says_of_frames_what_the_command_line_says_of_files(name: str) -> None:
    trap = TRAPS[name]
    _, said, _ = looked_at(written(trap))
    frames = {Path(file).stem: pd.read_csv(file) for file in trap.files}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        FederatedKMeans(2, prepare="auto", random_state=0).fit(frames)
    lines = [str(each.message) for each in warned if each.category is UserWarning]
    assert said
    assert {for_python(line) for line in said} <= {*lines}


def test_auto_leaves_out_what_is_no_measurement_and_predicts_by_name() -> None:
    frames = {
        site: pd.DataFrame({"patient_id": np.arange(60) + 7, "age": x, "sex": ["F", "M"] * 30})
        for site, x in zip("ab", np.random.default_rng(0).normal(50, 9, (2, 60)), strict=True)
    }
    auto = FederatedKMeans(2, prepare="auto", random_state=0).fit(frames)
    assert list(auto.feature_names_in_) == ["age", "sex"]
    assert auto.fit_report_ is not None
    assert list(auto.fit_report_.left_out) == ["patient_id"]
    assert (auto.predict(frames["a"]) == auto.site_labels_["a"]).all()
    with pytest.warns(UserWarning, match="clustered by 'patient_id', too: it only counts the rows"):
        FederatedKMeans(2, prepare="standard", random_state=0).fit(frames)


@pytest.mark.parametrize("kind", ["number", "text"])
def test_a_target_is_told_whatever_is_missing_in_it(kind: str) -> None:
    """Gaps are no class of their own, nor are they the first class; named columns are wanted."""
    rng = np.random.default_rng(11)
    ward = rng.integers(0, 2, 240)
    rows = np.column_stack([rng.normal(size=(240, 3)) + 9 * ward[:, None], ward])
    rows[rng.random(240) < 0.3, 3] = np.nan
    told = Column("ward", kind, ("A", "B") if kind == "text" else ())
    sites = {"north": Data(rows, columns=(*map(Column, "abc"), told))}
    [line] = no_features(sites)
    assert line.startswith("column 'ward' may be what the clusters are to find")
    assert not list(no_features(sites, chosen=True))


def test_clusters_of_one_site_are_a_doubt() -> None:
    rng = np.random.default_rng(0)
    frames = {
        s: pd.DataFrame(rng.normal(m, 1, (60, 2)), columns=["x", "z"])
        for s, m in (("a", 0), ("b", 9))
    }
    for site, frame in frames.items():
        frame.to_csv(f"{site}.csv", index=False)
    line = "clusters 0 and 1 are one site's each and a and b lie in one cluster, to 98 % and more"
    assert run("fit a.csv b.csv -k 2 --out out").exit_code == 0
    warned = json.loads(Path("out/history.json").read_text())["warnings"]
    assert any(each.startswith(line) for each in warned)
    with pytest.warns(UserWarning, match=line):
        FederatedKMeans(2, prepare="auto", random_state=0).fit(frames)
    alike = {"a": frames["a"], "b": frames["a"] + 0.01}
    FederatedKMeans(2, prepare="auto", random_state=0).fit(alike)


PAGE = Path(__file__).parents[3] / "docs" / "odd-files.md"
ROWS = [
    line
    for cell in re.findall(r"^\| (`.+?`) \| ", PAGE.read_text("utf-8"), re.M)
    for line in re.findall(r"`(.+?)`(?:; |$)", cell)
]
"""What a person sees, as the page on odd files has it, with ... for names and values."""


def explained(line: str) -> set[str]:
    """The rows of the page on odd files that explain a line."""
    return {row for row in ROWS if re.search(re.escape(row).replace(r"\.\.\.", ".*"), line)}


@pytest.mark.thorough
def test_the_page_on_odd_files_explains_each_trap_and_nothing_else() -> None:
    seen: dict[str, set[str]] = {}
    for name, trap in TRAPS.items():
        if trap.expected == "read":
            continue
        try:
            found, said, _ = looked_at(written(trap), **trap.options)
            lines = lines_about(trap, found, said)
        except InputError as refusal:
            lines = [str(refusal)]
        seen[name] = set().union(*map(explained, lines))
    assert [name for name, rows in seen.items() if not rows] == []
    assert set(ROWS) - set().union(*seen.values()) == set()


@pytest.mark.parametrize("name", CLEAN)
def test_there_is_no_false_alarm(name: str) -> None:
    for site, frame in CLEAN[name].items():
        frame.to_csv(f"{site}.csv", index=False)
    found, said, noted = looked_at([f"{site}.csv" for site in CLEAN[name]])
    assert not said
    assert not noted
    assert found.fit_report.left_out == {}
    assert list(found.used) == list(frame.columns)
