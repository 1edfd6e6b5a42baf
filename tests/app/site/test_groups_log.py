"""A file of groups that is not the one written last is refused: rows would be grouped twice."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedcluster.core import Data
from fedcluster.errors import InputError
from fedcluster.privacy.partition import Partition
from fedcluster_app.cli import app
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_responder
from fedcluster_app.trust.audit_log import GroupsLog, head_of, verify

N = 90


def write(path: Path, first: int, n: int) -> None:
    """Write n rows of age and bmi, of a stream of rows that is always the same."""
    rows = np.random.default_rng(0).normal(50, 9, (500, 2)).round(2)[first : first + n]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["age", "bmi"], *rows.tolist()])


def made(folder: Path, n: int = N, first: int = 0, name: str = "site", more: str = "") -> SiteFile:
    """Write a site file and its rows."""
    (folder / "state").mkdir(parents=True, exist_ok=True)
    write(folder / "rows.csv", first, n)
    path = folder / f"{name}.toml"
    path.write_text(
        f'name = "north"\ncolumns = ["age", "bmi"]\n[source]\npath = "rows.csv"\n{more}'
        '[federation]\ncoordinator = "127.0.0.1:1"\ncertificate = "system"\nkey = "site.toml"\n'
    )
    return SiteFile.load(path)


def grouped(site: SiteFile) -> Data:
    """Group the rows as a question does."""
    return site.grouped_client().data


def refused(use: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        use()
    assert "\n" not in str(error.value)


def start(site: SiteFile) -> None:
    site_responder(site, Membership.from_site_file(site), lambda _line: None).end("")


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
    site.groups_file.write_bytes(content)
    assert len(grouped(site)) >= len(newest)


def stop(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", [(Path, "replace"), (GroupsLog, "note")])
@pytest.mark.parametrize(
    "versions", [(0, 0, 20), (N, 0, 20), (N, 20), (N, 20, 40), (N, 20, 40, 60)]
)
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
    grouped(made(tmp_path / "a", N + 20))
    grouped(made(tmp_path / "a", N + 40))
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
    refused(lambda: grouped(site), "site.groups is missing, and answers have left")


def test_a_file_is_put_back_through_a_link_in_vain(tmp_path) -> None:
    site = made(tmp_path)
    grouped(site)
    shutil.copy(site.groups_file, tmp_path / "copy")
    site = made(tmp_path, N + 20)
    grouped(site)
    site.groups_file.unlink()
    site.groups_file.symlink_to(tmp_path / "copy")
    refused(site.check_groups, "groups were made since")


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
