"""``make mutants``: small mutations of the code, drawn anew by any seed, in a copy of the tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import mutants

pytestmark = pytest.mark.thorough

SOURCE = b'''
def part(rows: "int | None", size=8):
    """Not this -1, nor that of an annotation."""
    if size < 1:
        raise ValueError(f"{size + 1} is too small")
    return [r for r in rows if r >= 0 and not r % size] + min(rows, 2.5 * size)
'''


def changed(source: bytes) -> set[str]:
    """The lines that any mutation writes, without their indentation."""
    every = [m for changes in mutants.mutations(source) for m in changes]
    lines = {line for m in every for line in m.apply(source).decode().splitlines()}
    return {line.strip() for line in lines - set(source.decode().splitlines())}


def test_operators_bounds_terms_signs_constants_and_guards_are_mutated() -> None:
    returned = "return [r for r in rows if r >= 0 and not r % size] + min(rows, 2.5 * size)"
    assert changed(SOURCE) == {
        'def part(rows: "int | None", size=7):',
        'def part(rows: "int | None", size=9):',
        'def part(rows: "int | None", size=16):',
        "if size <= 1:",
        "if size >= 1:",
        "if size < 0:",
        "if size < 2:",
        "if False:",
        returned.replace(">=", ">"),
        returned.replace(">=", "<"),
        returned.replace("0", "1"),
        returned.replace("and", "or"),
        returned.replace("not r % size", "(r % size)"),
        returned.replace("+", "-"),
        returned.replace(" + min(rows, 2.5 * size)", "").replace("return ", "return (") + ")",
        "return (min(rows, 2.5 * size))",
        returned.replace("min", "max"),
        returned.replace("*", "/"),
        returned.replace("2.5 * size", "(2.5)"),
        returned.replace("2.5 * size", "(size)"),
        returned.replace("2.5", "5.0"),
    }


def test_every_mutant_can_be_parsed_and_differs() -> None:
    """Of some, drawn from all files."""
    package = mutants.ROOT / mutants.PACKAGE
    sources = {file: (package / file).read_bytes() for file in mutants.modules()}
    for file, mutation in mutants.sample(sources, 60, 0):
        mutant = mutation.apply(sources[file])
        assert mutant != sources[file]
        ast.parse(mutant)


def test_every_file_has_tests_besides_those_of_all() -> None:
    for file, tests in mutants.modules().items():
        assert tests[:-1], file
        assert all((mutants.ROOT / test).is_file() for test in tests), file
    rooms = {"/".join(Path(file).with_suffix("").parts[:2]) for file in mutants.modules()}
    assert {*mutants.ELSEWHERE} <= rooms


def test_the_copy_has_every_module_of_the_package_and_nothing_that_was_made(tree: Path) -> None:
    """A room of the package may be called as a folder that is made at the root."""
    for folder in ("site", ".venv", mutants.PACKAGE + "/site"):
        (tree / folder).mkdir()
        (tree / folder / "one.py").write_text("")
    copy = mutants.Copy(tree.parent / "copied").root
    there = {str(path.relative_to(copy)) for path in copy.rglob("one.py")}
    assert there == {f"{mutants.PACKAGE}/site/one.py"}


def test_a_seed_is_a_sample() -> None:
    sources = {"a.py": SOURCE, "b.py": SOURCE}
    assert mutants.sample(sources, 4, 1) == mutants.sample(sources, 4, 1)
    assert mutants.sample(sources, 4, 1) != mutants.sample(sources, 4, 2)
    assert {file for file, _ in mutants.sample(sources, 99, 1)} == {"a.py", "b.py"}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project whose test knows one half of its only function."""
    package = tmp_path / mutants.PACKAGE / "fedcluster"
    (package / "kernels").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (package / "__init__.py").write_text("")
    (package / "rounds.py").write_text("def steps(n):\n    return n + 1 if n > 3 else 0\n")
    (tmp_path / "tests" / "conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('quick')\n"
    )
    (tmp_path / "tests" / "test_one.py").write_text(
        "from fedcluster.rounds import steps\ndef test():\n    assert steps(9) == 10\n"
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "ELSEWHERE", {"fedcluster/rounds": "one"})
    monkeypatch.setattr(mutants, "EVERYWHERE", "")
    return tmp_path


def test_killed_and_survived_are_told_apart(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    assert mutants.main(["--n", "3", "--seed", "3", "--at-least", "0.99"]) == 1
    said = capsys.readouterr().out
    assert "killed   src/fedcluster/rounds.py:2" in said
    assert "SURVIVED src/fedcluster/rounds.py:2" in said
    assert re.search(r"[12] of 3 mutants killed, \d+%", said)
    after = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    assert after == before  # the working tree is not touched


def test_tests_that_fail_without_a_mutant_are_no_tests(tree: Path) -> None:
    (tree / "tests" / "test_one.py").write_text("def test():\n    assert False\n")
    with pytest.raises(SystemExit, match="fail without any mutant"):
        mutants.main(["--n", "1"])


def test_the_sample_can_be_shown_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main(["--list", "--n", "3", "--only", "fedcluster/privacy"]) == 0
    assert capsys.readouterr().out.count("src/fedcluster/privacy/") == 3


def test_the_tests_nearest_to_a_file_are_run_with_its_examples():
    merging, nowhere = (
        subprocess.run(
            [sys.executable, "benchmarks/near.py", file],
            cwd=mutants.ROOT,
            capture_output=True,
            text=True,
        )
        for file in ("tests/library/algorithms/test_merging.py", "nowhere.py")
    )
    assert merging.returncode == 0, merging.stdout + merging.stderr
    assert re.search(r"^\d+ passed", merging.stdout, re.M)
    said = "nowhere.py is not there: name a file of src/ or tests/\n"
    assert (nowhere.returncode, nowhere.stderr) == (2, said)
