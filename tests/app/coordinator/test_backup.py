"""Backups of a federation, their return elsewhere, and another address of its coordinator."""

from __future__ import annotations

import io
import json
import re
import stat
import sys
import tarfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pyrage
import pytest
from operated import operated
from typed import invoke

from fedcluster.errors import InputError
from fedcluster_app.coordinator.backup import back_up, restore
from fedcluster_app.coordinator.folder import Federation, create
from fedcluster_app.coordinator.lifecycle import CERTIFICATE, certificates
from fedcluster_app.coordinator.operators import operators_log
from fedcluster_app.coordinator.run_job import MODEL_FILES, located
from fedcluster_app.coordinator.runs import Run
from fedcluster_app.trust.audit_log import read_log, verify

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a coordinator does not run there")
WORD = "correct horse"


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    """With a run that was done, and one that a coordinator was at."""
    federation = create(tmp_path / "trial", ["north", "south"], "one.example.org:8443")
    with operated(federation) as coordinator:
        owner = coordinator.by()
        done, going = owner.begin(), owner.begin()
        coordinator.carrier.wait_for(done)
        coordinator.carrier.finish(done, files={"model.json": "{}"})
        owner.wait_until(done, "done")
        coordinator.carrier.wait_for(done, going)
        exchange = federation.file("runs", going, "communication_rounds", "exchange-0000")
        exchange.parent.mkdir()
        exchange.write_bytes(b"answers")
    federation.file("sites", "north", "rows.csv").write_text("x\n1\n")
    federation.file("flower").mkdir()
    federation.file("flower", "state.db").write_text("of Flower")
    return federation


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key for each passphrase: to try one takes a second, on purpose."""
    key = cache(lambda word: pyrage.x25519.Identity.generate())
    way = SimpleNamespace(
        encrypt=lambda content, word: pyrage.encrypt(content, [key(word).to_public()]),
        decrypt=lambda content, word: pyrage.decrypt(content, [key(word)]),
    )
    monkeypatch.setattr(pyrage, "passphrase", way)


def kept(folder: Path) -> dict[str, bytes]:
    """What must be the same after a restoration."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    own = {name: path for name, path in files.items() if "/." not in f"/{name}"}
    other = ("sites/", "flower/", "audit.")
    return {name: path.read_bytes() for name, path in own.items() if not name.startswith(other)}


@pytest.fixture
def back(federation: Federation, quick: None, tmp_path: Path) -> Federation:
    """The federation, restored from a backup."""
    assert back_up(federation.folder, tmp_path / "file", WORD) > 12
    return restore(tmp_path / "file", tmp_path / "elsewhere", WORD)


def test_all_that_a_coordinator_needs_comes_back_for_its_owner_only(federation, back, tmp_path):
    """No row is in it, and neither log nor permit knows of another coordinator."""
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert kept(back.folder) == kept(federation.folder)
    assert not back.file("sites").exists()
    assert not back.file("flower").exists()
    events = [line["event"] for line in read_log(back.file("audit.jsonl"))]
    assert events[-2:] == ["backed up", "restored"]
    verify(operators_log(back.folder).path)
    for path in (back.folder, *back.folder.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_restored_federation_goes_on_with_the_run_that_it_was_at(back):
    with operated(back) as coordinator:
        states = {run["state"] for run in coordinator.by().get("/runs")["runs"]}
        assert states <= {"done", "running", "queued"}
        [name] = [path.parent.name for path in back.file("runs").glob("*/communication_rounds")]
        coordinator.carrier.wait_for(name)
    assert Run.load(back.file("runs", name)).rounds == 1


def test_a_backup_is_made_while_a_coordinator_writes(federation, quick, tmp_path):
    """Also what a run of now has is of one moment: a state is not ahead of the files."""
    with operated(federation) as coordinator:
        name = coordinator.by().begin()
        back_up(federation.folder, tmp_path / "file", WORD)
    assert restore(tmp_path / "file", tmp_path / "elsewhere", WORD).file("runs", name).is_dir()


def packed(name: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    return pyrage.passphrase.encrypt(content.getvalue(), WORD)


@pytest.mark.parametrize(
    ("content", "word", "said"),
    [
        (lambda: b"no backup", WORD, "or the file is no backup"),
        (lambda: packed("../beside"), WORD, "'../beside', which is no file of a backup"),
        (lambda: packed("/tmp/beside"), WORD, "which is no file of a backup"),
        (lambda: packed("x"), "another", "the passphrase is wrong"),
    ],
)
def test_what_is_no_backup_or_of_another_passphrase_writes_nothing(
    content, word, said, quick, tmp_path
):
    (tmp_path / "file").write_bytes(content())
    with pytest.raises(InputError, match=said):
        restore(tmp_path / "file", tmp_path / "elsewhere", word)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.thorough
def test_the_commands_take_the_passphrase_from_a_file_of_the_owner(federation, tmp_path):
    secret, folder, file = tmp_path / "word", federation.folder, tmp_path / "file"
    secret.write_text(f"{WORD}\n")
    secret.chmod(0o644)

    def says(name: str, *arguments: object, said: str, status: int = 0) -> str:
        found = invoke(f"federation {name}", *arguments)
        assert (found[0], said in found[1]) == (status, True), found[1]
        return found[1]

    how = ("--passphrase-file", secret)
    assert "--passphrase-file" in says("backup", folder, file, said="no terminal", status=2)
    says("backup", folder, file, *how, said="may read", status=2)
    secret.chmod(0o600)
    inside = federation.file("file")
    says("backup", folder, inside, *how, said="write the backup elsewhere", status=2)
    says("backup", folder, file, *how, said="")
    says("restore", file, folder, *how, said="is not an empty folder", status=2)
    told = says("restore", file, tmp_path / "new", *how, said="federation start")
    assert re.search(r", with (1 site|\d+ sites)\. End", told)


def test_no_path_of_a_run_is_that_of_a_folder(federation: Federation) -> None:
    """Those of a model that is asked about, and of a run that forgets a site, too."""
    for job in federation.file("runs").glob("*/job.json"):
        assert str(federation.folder) not in job.read_text()
    content = {
        "out": "result",
        "first_rows": "../../first-rows.json",
        "parameters": dict(MODEL_FILES),
        "forgets": {"run": "../before", "site": "north"},
    }
    folder = federation.file("runs", "now")
    there = located(json.loads(json.dumps(content)), folder)
    assert Path(there["out"]) == folder / "result"
    for key, file in MODEL_FILES.items():
        assert Path(there["parameters"][key]) == folder / file
    assert Path(there["first_rows"]).resolve() == federation.file("first-rows.json")
    assert Path(there["forgets"]["run"]).resolve() == federation.file("runs", "before")


def test_another_address_has_a_certificate(federation: Federation) -> None:
    """The authority stays, so sites need nothing but the address, and permits count."""
    folder, authority = federation.folder, federation.file("certificates/ca.crt").read_bytes()
    toml = federation.file("federation.toml")
    toml.write_text(toml.read_text().replace(federation.address, "two.example.org:9443"))
    status, said = invoke("federation", "certificate", folder)
    assert status == 0, said
    there = Federation.load(folder)
    assert (there.host, there.port) == ("two.example.org", 9443)
    names = str(certificates(there.file(CERTIFICATE))[0].extensions)
    assert ("two.example.org" in names, "one.example.org" in names) == (True, False)
    assert there.file("certificates/ca.crt").read_bytes() == authority
    assert "two.example.org:9443" in there.file("README.md").read_text()
