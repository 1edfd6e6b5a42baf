"""Commands as they are typed, in this process."""

from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from fedcluster_app.cli import app


def run(*arguments: object) -> Result:
    """Run a command; it must not fail unexpectedly."""
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if ran.exception and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran


def invoke(*arguments: object) -> tuple[int, str]:
    """The exit status of a command, and all that it says."""
    ran = run(*arguments)
    return ran.exit_code, ran.output


def fails(*arguments: object) -> str:
    """The line that a command of bad input leaves on stderr, and nothing else anywhere."""
    before = everything()
    ran = run(*arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert everything() == before
    [line] = ran.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def everything() -> dict[str, bytes | None]:
    """The content of each file here, and None for each folder."""
    paths = Path().rglob("*")
    return {path.as_posix(): path.read_bytes() if path.is_file() else None for path in paths}
