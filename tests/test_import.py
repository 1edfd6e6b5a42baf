"""The front door: quick to open, and everything that it names is there."""

import subprocess
import sys

import pytest

import fedcluster

SLOW = ("numba", "pandas", "sklearn")

# What the help of a command may load besides Python's own: it takes a tenth of a second.
QUICK = {
    "annotated_doc",
    "click",
    "fedcluster",
    "rich",
    "shellingham",
    "typer",
    "typing_extensions",
}


def test_importing_fedcluster_loads_no_slow_library():
    """A command that only prints its help need not wait for numba, pandas and scikit-learn."""
    code = f"import sys, fedcluster; print(*sys.modules.keys() & set({SLOW!r}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


@pytest.mark.parametrize("command", [[], ["fit"], ["federation", "run"], ["site", "start"]])
def test_help_loads_no_library_but_that_of_the_command_line(command):
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom fedcluster.cli import app\n"
        f"try: app({[*command, '--help']})\nexcept SystemExit as end: assert not end.code\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before}, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("Usage:")
    assert set(ran.stderr.split()) - set(sys.stdlib_module_names) <= QUICK


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["fit"], ["frob"]])
def test_python_dash_m_does_what_the_command_does(arguments):
    command = "import sys; from fedcluster.cli import app; sys.argv[0] = 'fedcluster'; app()"
    as_command, as_module = (
        subprocess.run([sys.executable, *way, *arguments], capture_output=True, text=True)
        for way in (["-c", command], ["-m", "fedcluster"])
    )
    assert as_module.stdout + as_module.stderr
    assert (as_module.returncode, as_module.stdout, as_module.stderr) == (
        as_command.returncode,
        as_command.stdout,
        as_command.stderr,
    )


def test_public_names_are_sorted_and_resolve():
    assert list(fedcluster.__all__) == sorted(fedcluster.__all__)
    for name in fedcluster.__all__:
        assert hasattr(fedcluster, name), f"fedcluster.__all__ names {name!r}, which is not there"
