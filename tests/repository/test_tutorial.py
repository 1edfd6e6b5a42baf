"""The tutorial, as a newcomer would type it: Python and commands, in one folder, in order."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import run_command

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCKS = re.findall(r"```(python|console)\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.S)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_tutorial_does_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {kind for kind, _ in BLOCKS} == {"python", "console"}
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for i, (kind, text) in enumerate(BLOCKS):
        (run_python if kind == "python" else run_commands)(text, f"block {i}", scope)


def run_python(text: str, name: str, scope: dict[str, object]) -> None:
    example = doctest.DocTestParser().get_doctest(text, scope, name, str(TUTORIAL), 0)
    runner = doctest.DebugRunner(optionflags=FLAGS)
    runner.run(example, clear_globs=False)
    scope.update(example.globs)
    assert runner.tries > 0


def started(program: str, *arguments: str) -> Any:
    place = Path(sys.executable).with_name(program)
    return subprocess.run([place, *arguments], capture_output=True, text=True, check=False)


def run_commands(text: str, name: str, scope: dict[str, object]) -> None:
    for shown in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, expected = shown.partition("\n")
        program, *arguments = shlex.split(command)
        done = run_command(*arguments) if program == "fedcluster" else started(program, *arguments)
        assert done.returncode == 0, f"{name}: {command}: {done.stderr}"
        assert doctest.OutputChecker().check_output(expected, done.stdout, FLAGS), done.stdout
