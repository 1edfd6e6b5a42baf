"""Commands as they are typed, in this process."""

import shlex
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
    before = everything()
    ran = run(line, *arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert everything() == before
    [said] = ran.stderr.splitlines()
    assert said.startswith("error: ")
    return said.removeprefix("error: ")


def everything() -> dict[str, bytes | None]:
    """The content of each file here, and None for each folder."""
    paths = Path().rglob("*")
    return {path.as_posix(): path.read_bytes() if path.is_file() else None for path in paths}
