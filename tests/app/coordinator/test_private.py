"""Files of a federation on a machine that others use too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedcluster.errors import InputError
from fedcluster_app.coordinator.folder import Federation, create
from fedcluster_app.transports.flower.node import take_part
from fedcluster_app.trust.owned_files import check_private, private_files

OTHER = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return create(tmp_path / "trial", ["north"], "127.0.0.1:8443").folder


def test_what_is_made_is_accepted(folder: Path) -> None:
    assert Federation.load(folder).sites == ("north",)
    folder.chmod(0o755)  # a folder that others may enter is nobody's but the owner's to write
    assert Federation.load(folder).sites == ("north",)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o720, 0o702])
@pytest.mark.parametrize("inner", ["", "certificates", "keys", "keys/north.pub", "federation.toml"])
def test_a_federation_in_which_others_may_write_is_refused(folder, inner, mode) -> None:
    (folder / inner).chmod(mode)
    with pytest.raises(
        InputError, match=rf"^other users .* may write {folder / inner}: chmod go-r"
    ):
        Federation.load(folder)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o660, 0o666])
@pytest.mark.parametrize("key", ["certificates/server.key", "certificates/permit.key"])
def test_a_key_that_others_may_read_is_refused(folder, key, mode) -> None:
    (folder / key).chmod(mode)
    with pytest.raises(InputError, match=f"^other users of this machine may read {folder / key}"):
        Federation.load(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("inner", ["", "certificates", "certificates/server.key"])
def test_what_belongs_to_another_is_refused(folder, inner) -> None:
    os.chown(folder / inner, OTHER, -1)
    with pytest.raises(InputError, match=f"{folder / inner} belongs to another user"):
        Federation.load(folder)


@pytest.mark.parametrize(
    ("inner", "mode", "what"),
    [
        ("", 0o775, "write"),
        ("site.toml", 0o646, "write"),
        ("state/ca.crt", 0o664, "write"),
        ("state/coordinator.pub", 0o662, "write"),
        ("state/key", 0o640, "read"),
    ],
)
def test_a_site_that_others_may_change_does_not_start(folder, inner, mode, what) -> None:
    site = folder / "sites/north"
    (site / inner).chmod(mode)
    heard: list[str] = []
    with pytest.raises(InputError, match=f"other users of this machine may {what} {site / inner}"):
        take_part(site / "site.toml", heard.append)
    assert heard == []


def test_a_link_is_judged_by_what_it_leads_to(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("")
    target.chmod(0o666)
    link.symlink_to(target)
    with pytest.raises(InputError, match=f"may write {link}"):
        check_private([link])
    check_private([tmp_path / "nothing"], secret=[tmp_path / "nothing"])


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o002, 0o077])
def test_the_umask_comes_back(umask, tmp_path) -> None:
    before = os.umask(umask)
    try:
        with private_files():
            (tmp_path / "file").write_text("")
            (tmp_path / "folder").mkdir()
        (tmp_path / "later").write_text("")
    finally:
        assert os.umask(before) == umask
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "later").stat().st_mode & 0o777 == 0o666 & ~umask
