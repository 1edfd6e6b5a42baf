"""A file of groups that is not the one written last is refused: rows would be grouped twice."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_worker import FEDERATION, started
from typer.testing import CliRunner

from fedcluster.core import Data
from fedcluster.errors import InputError
from fedcluster.privacy.partition import Partition
from fedcluster_app.cli import app
from fedcluster_app.site.file import SiteFile
from fedcluster_app.trust.audit_log import GroupsLog, head_of, verify

N = 90


ROWS = np.random.default_rng(0).normal(50, 9, (500, 2)).round(2)


def made(folder: Path, n: int = N, first: int = 0, name: str = "site", more: str = "") -> SiteFile:
    """Write a site file and n of its rows, of a stream that is always the same."""
    (folder / "state").mkdir(parents=True, exist_ok=True)
    lines = [f"{age},{bmi}\n" for age, bmi in ROWS[first : first + n].tolist()]
    (folder / "rows.csv").write_text("".join(["age,bmi\n", *lines]))
    path, own = folder / f"{name}.toml", 'name = "north"\ncolumns = ["age", "bmi"]\n'
    path.write_text(f'{own}[source]\npath = "rows.csv"\n{more}{FEDERATION}')
    return SiteFile.load(path)


def grouped(site: SiteFile) -> Data:
    """Group the rows as a question does."""
    return site.grouped_client().data


def refused(use: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        use()
    assert "\n" not in str(error.value)


def start(site: SiteFile) -> None:
    with started(site):
        pass


def test_an_older_copy_is_refused_and_the_newest_is_not(tmp_path) -> None:
    site = made(tmp_path)
    grouped(site)
    shutil.copy(site.groups_file, tmp_path / "copy")
    newest = grouped(made(tmp_path, N + 20))
    content = site.groups_file.read_bytes()
    shutil.copy(tmp_path / "copy", site.groups_file)
    site = made(tmp_path, N + 26)
    said = r"site\.groups is a copy of .*, and groups were made since, as audit\.jsonl shows: put"
    for use in (site.check_groups, lambda: grouped(site), lambda: start(site)):
        refused(use, said)
    for command in (["check"], ["site", "log"], ["site", "doctor"]):
        shown = CliRunner().invoke(app, [*command, str(site.path)])
        assert shown.exit_code > 0
        assert "groups were made since" in " ".join(shown.output.split())
    site.groups_file.unlink()
    site.groups_file.symlink_to(tmp_path / "copy")
    refused(site.check_groups, said)
    site.groups_file.unlink()
    site.groups_file.write_bytes(content)
    assert len(grouped(site)) >= len(newest)


def stop(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", [(Path, "replace"), (GroupsLog, "note")])
@pytest.mark.parametrize("versions", [(N, 20, 40, 60), (0, 0, 20), (N, 0, 20), (N, 20)])
def test_a_kill_at_any_point_leaves_a_site_that_goes_on(tmp_path, where, versions) -> None:
    """Before a file is in its place, or before the log tells of it; again and again."""
    whole, *killed = versions
    if whole:
        grouped(made(tmp_path))
    for more in killed:
        site = made(tmp_path, N + more)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where[0], where[1], stop)
            try:
                grouped(site)
            except KeyboardInterrupt:
                killed = []
    assert not killed  # it was killed at least once
    site.check_groups(("age", "bmi"))
    assert len(grouped(site)) > 10
    site.check_groups()
    known = head_of(tmp_path / "audit.jsonl").groups["site.groups"]
    assert known == Partition.read(site.groups_file).digest
    verify(tmp_path / "audit.jsonl")


def test_files_of_another_site_and_a_log_of_before_are_refused(tmp_path) -> None:
    site, other = made(tmp_path / "a"), made(tmp_path / "b", first=200)
    grouped(site)
    log = {path: path.read_bytes() for path in site.path.parent.glob("audit*")}
    for more in (20, 40):
        grouped(made(tmp_path / "a", N + more))
    newest = site.groups_file.read_bytes()
    grouped(other)
    shutil.copy(other.groups_file, site.groups_file)
    refused(lambda: grouped(site), "not the file of which audit.jsonl tells, but older, or another")
    site.groups_file.write_bytes(newest)
    site.check_groups()
    for path, content in log.items():
        path.write_bytes(content)
    refused(site.check_groups, "not the file of which audit.jsonl tells")


@pytest.mark.parametrize("columns", ['["age", "bmi"]', '["age"]'])
def test_other_settings_are_refused_before_the_first_question(tmp_path, columns) -> None:
    site = made(tmp_path)
    grouped(site)
    start(site)
    other = made(tmp_path, name="hips", more="[groups]\np = 6\n" if "bmi" in columns else "")
    other.path.write_text(other.path.read_text().replace('["age", "bmi"]', columns))
    said = "would reveal single rows: write it as it was; fedcluster check"
    refused(lambda: start(SiteFile.load(other.path)), said)


@pytest.mark.parametrize("more", ["", "[groups]\ngeneration = 2\n"])
def test_a_file_that_is_gone_is_missed(tmp_path, more) -> None:
    """By another generation, too: nothing is left by which rows could be seen to be others."""
    grouped(made(tmp_path))
    site = made(tmp_path, more=more)
    site.groups_file.unlink()
    for use in (grouped, start):
        refused(partial(use, site), "site.groups is missing, and answers have left")


def test_the_next_file_of_a_log_tells_of_groups_too(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("fedcluster_app.trust.audit_log.MEGABYTES", 0)
    site = made(tmp_path)
    site.path.write_text(site.path.read_text() + "log_megabytes = 0\n")
    site = SiteFile.load(site.path)
    grouped(site)
    known = head_of(tmp_path / "audit.jsonl").groups
    log: Any = site._groups_log  # noqa: SLF001
    log._log.append(lambda _head: {"event": "anything"})  # noqa: SLF001
    assert (tmp_path / "audit-0001.jsonl").exists()
    assert head_of(tmp_path / "audit.jsonl").groups == known != {}
