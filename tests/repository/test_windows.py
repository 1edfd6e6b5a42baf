"""Windows, where analysts sit: commands on files need nothing that only Linux and macOS have."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import numpy as np
import on_windows
import pytest
from on_windows import COMMANDS, FILES, MODEL, REFUSED
from typer.testing import CliRunner

from fedcluster.frames.rows import FILE_OPTIONS
from fedcluster_app import datasets
from fedcluster_app.cli import _reading as reading
from fedcluster_app.cli import app
from fedcluster_app.cli._options import ValueOptions


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of two sites, with letters that cp1252 has and others that it lacks."""
    folder = tmp_path_factory.mktemp("Eigene Dateien ü")
    rng = np.random.default_rng(0)
    for file in FILES:
        rows = rng.normal(size=(40, 2)).round(2) + 9 * rng.integers(0, 2, (40, 1))
        lines = ["größe,температура", *(f"{x},{y}" for x, y in rows)]
        (folder / file).write_text("\n".join(lines), encoding="utf-8")
    (folder / "site.toml").write_text('name = "north"\n[source]\npath = "north.csv"\n', "utf-8")
    return folder


@pytest.fixture(scope="module")
def ran(folder):
    """What each command did, and the labels of the estimators."""
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", on_windows.__file__],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "ignore::EncodingWarning", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    *commands, labels = map(json.loads, done.stdout.splitlines())
    return {tuple(command): rest for command, *rest in commands}, labels


@pytest.mark.thorough
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_on_files_needs_no_posix_and_no_letter_that_the_screen_lacks(ran, command):
    status, shown, complaints = ran[0][tuple(command)]
    assert status == 0, complaints
    assert shown
    assert "Traceback" not in complaints
    if command[0:1] == ["check"] and FILES[1] in command:
        assert "größe" in shown
        assert "???????????" in shown


@pytest.mark.thorough
def test_files_have_all_letters(ran, folder):
    model = json.loads((folder / MODEL).read_text("utf-8"))
    assert ran[0][tuple(COMMANDS[8])][0] == 0
    assert model["columns"] == ["größe", "температура"]
    assert "меньше" in model["names"]
    assert "температура" in (folder / "result/report.html").read_text("utf-8")
    assert (folder / "result/labels/Köln & Süd.csv").is_file()


@pytest.mark.thorough
def test_estimators_need_no_posix(ran):
    assert [sorted(counts) for counts in ran[1]] == [[3, 4]] * 3


@pytest.mark.thorough
@pytest.mark.parametrize("command", REFUSED, ids=" ".join)
def test_what_needs_posix_is_refused_in_one_line(ran, command):
    status, shown, complaints = ran[0][tuple(command)]
    assert (status, shown) == (2, "")
    assert re.fullmatch(
        r"error: a site or a coordinator runs on Linux or macOS[^\n]*\n", complaints
    )


class WindowsPath(PureWindowsPath):
    """A path of Windows, of a file that is not there."""

    def exists(self):
        return False


@pytest.mark.parametrize(
    ("argument", "site", "path", "options"),
    [
        (r"C:\data\north.csv", "north", r"C:\data\north.csv", {}),
        ("C:/data/n.csv", "n", r"C:\data\n.csv", {"encoding": "cp1252"}),
        (r"C://data/north.csv", "north", r"C:\data\north.csv", {}),
        (r"north=C:\data\n1.csv", "north", r"C:\data\n1.csv", {}),
        (r"Upper North=C:\my data\größe.xlsx", "Upper North", r"C:\my data\größe.xlsx",
         {"sheet": "a b"}),
        (r"\\server\share\north.csv", "north", r"\\server\share\north.csv", {}),
    ],
)  # fmt: skip
def test_a_drive_is_no_option_and_no_address(monkeypatch, argument, site, path, options):
    monkeypatch.setattr(reading, "Path", WindowsPath)
    [(name, source)] = reading.named_sources([argument], ValueOptions({site: options})).items()
    assert (name, str(source)) == (site, path)
    given = {option: getattr(source, option) for option in FILE_OPTIONS}
    assert {option: value for option, value in given.items() if value is not None} == options


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a b.csv").write_text("x\n1\n2\n9\n", "utf-8")
    fit("--out", "out")


def fit(*options):
    arguments = ["fit", "a b.csv", "-k", "2", *options]
    return CliRunner().invoke(app, arguments)


def keep(monkeypatch, method, kept):
    """Let another program keep a file."""
    real = getattr(Path, method)

    def refuse(path, *given, **more):
        names = [str(path), *map(str, given)]
        if any(name.endswith(kept) for name in names):
            raise PermissionError(13, "Permission denied", str(path), None, *map(str, given[:1]))
        return real(path, *given, **more)

    monkeypatch.setattr(Path, method, refuse)


TO_DO = "Permission denied; close it in other programs, or get the right to it"


def test_a_file_that_is_open_elsewhere_is_named_where_it_is_read(here, monkeypatch):
    keep(monkeypatch, "open", "a b.csv")
    ran = fit("--out", "other")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == f"error: site 'a b': a b.csv cannot be read: {TO_DO}\n"
    assert not Path("other").exists()


def test_a_file_that_is_open_elsewhere_is_named_where_it_is_replaced(here, monkeypatch):
    before = {path: path.read_bytes() for path in Path("out").rglob("*.*")}
    keep(monkeypatch, "replace", "out/labels/a b.csv")
    ran = fit("--out", "out", "--overwrite", "--seed", "1")
    labels = Path("out/labels/a b.csv")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == f"error: {labels} cannot be written: {TO_DO}\n"
    assert {path: path.read_bytes() for path in Path("out").rglob("*.*")} == before


def test_a_model_that_is_open_elsewhere_is_named(here, monkeypatch):
    keep(monkeypatch, "replace", "model.json")
    ran = CliRunner().invoke(app, ["name", "out/model.json", "0=low"])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == f"error: {Path('out/model.json')} cannot be used: {TO_DO}\n"


def test_the_command_that_a_data_set_ends_with_can_be_pasted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert datasets.main(["clinics", "--out", "my data"]) == 0
    [*_, line] = capsys.readouterr().out.splitlines()
    north = Path("my data", "north.csv")
    assert f'"{north}" ' in line
