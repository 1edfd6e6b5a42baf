"""Commands as they are typed, in this process."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from fedcluster_app.cli import app


def run(line: object = "", *arguments: object) -> Any:
    """Run a command, of which the first words may be one text; it must not fail unexpectedly."""
    ran = CliRunner().invoke(app, [*shlex.split(str(line)), *map(str, arguments)])
    if ran.exception and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran


def invoke(line: object, *arguments: object) -> tuple[int, str]:
    """The exit status of a command, and all that it says."""
    ran = run(line, *arguments)
    return ran.exit_code, ran.output


def fails(line: object, *arguments: object) -> Any:
    """The line that a command of bad input leaves on stderr, and nothing else anywhere."""
    assert not Path("pyproject.toml").exists(), "a test of files asks for the fixture `here`"
    before = everything()
    ran = run(line, *arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert everything() == before
    [said] = ran.stderr.splitlines()
    assert said.startswith("error: ")
    return said.removeprefix("error: ")


def cases(table: str) -> list[list[str]]:
    """Cases of a test, a line for each: what is typed => what it says, perhaps in the next line."""
    lines = re.sub(r"\n *=> ", " => ", table).strip().splitlines()
    return [list(map(str.strip, line.split(" => "))) for line in lines]


def remedies(line: str) -> list[list[str]]:
    """The options that a line says to type, as the shell reads them; those in a row are one."""
    one = r"--(?:set|exclude|missing|categories) (?:'(?:[^']|'\\'')*'|\S+)"
    said = re.findall(rf"(?<!as in )({one}(?: {one})*)", line)
    return [shlex.split(each if each.endswith("=,") else each.rstrip(",;:)")) for each in said]


def as_study(files: Iterable[str], options: Sequence[str]) -> str:
    """A study file of sites, with what options --set say."""
    lines = [f"sites.{Path(file).stem}.path = {json.dumps(file)}" for file in files]
    for key, _, value in (said.partition("=") for said in options[1::2]):
        try:
            tomllib.loads(f"value = {value}")
        except tomllib.TOMLDecodeError:
            value = json.dumps(value)
        lines.append(f"{key} = {value}")
    return "\n".join(lines)


def everything() -> dict[str, bytes | None]:
    """The content of each file here, and None for each folder."""
    paths = Path().rglob("*")
    return {path.as_posix(): path.read_bytes() if path.is_file() else None for path in paths}
