"""The size of the house: a ratchet, which goes down alone.

A change that needs more raises a number here, and its commit says what it gave for it. A number
that lies more than 2 % above what there is must come down.
"""

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

import fedcluster
from fedcluster.options.refusals import table
from fedcluster_app.cli import app

SRC = Path(fedcluster.__file__).parents[1]
ROOT = Path(__file__).parents[2]
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
NO_CODE |= {tokenize.ENDMARKER}

MOST = {
    "lines of the library": 29_891,
    "lines of the application": 21_132,
    "modules": 238,
    "functions": 4_721,
    "modules that a fit loads": 73,
    "constants": 247,
    "commands": 44,
    "options": 228,
    "options of fit": 25,
    "refused combinations": 48,
    "words of the pages": 35_995,
    "pages": 28,
    "lines of tests": 60_060,
    "lines of tests of refusals and pairs": 2_598,
}


@cache
def tree(path: Path) -> ast.Module:
    """The code of a file."""
    return ast.parse(path.read_text("utf-8"))


def modules(package: str = "*") -> list[Path]:
    """The files of a package, or of both."""
    return [path for each in SRC.glob(package) for path in sorted(each.rglob("*.py"))]


def lines(package: str) -> int:
    """The lines of code, without docstrings and comments."""
    return sum(map(lines_of, modules(package)))


def lines_of(path: Path) -> int:
    """The lines of a file that hold code."""
    texts = [
        range(node.lineno, (node.end_lineno or 0) + 1)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
    ]
    held = {
        line
        for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(held.difference(*texts))


def loaded() -> int:
    """The modules of the library that a fit of k-means to arrays loads."""
    fit = (
        "import sys, numpy, fedcluster\n"
        "rows = numpy.random.default_rng(0).normal(size=(3, 200, 4))\n"
        "fedcluster.FederatedKMeans(3, random_state=0).fit([*rows])\n"
        "print(sum(name.startswith('fedcluster') for name in sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", fit], capture_output=True, text=True, check=True)
    return int(ran.stdout)


def functions() -> int:
    """The functions and methods."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(isinstance(node, kinds) for path in modules() for node in ast.walk(tree(path)))


def constants() -> list[str]:
    """The names at the top of modules that are bound to numbers alone."""
    return [
        name.id
        for path in modules()
        for node in tree(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        if _is_number(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    ]


def _is_number(value: ast.expr) -> bool:
    """Whether an expression is made of numbers alone."""
    plain = (ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)
    found = [*ast.walk(value)]
    are_numbers = all(
        type(each.value) in (int, float) for each in found if isinstance(each, ast.Constant)
    )
    return are_numbers and all(isinstance(each, plain) for each in found)


@cache
def commands() -> dict[str, TyperCommand]:
    """Every command that does something, by its words."""

    def within(command: object, words: tuple[str, ...]) -> dict[str, TyperCommand]:
        if isinstance(command, TyperGroup):
            inner = command.commands.items()
            return {k: v for name, each in inner for k, v in within(each, (*words, name)).items()}
        return {" ".join(words): command} if isinstance(command, TyperCommand) else {}

    return within(typer.main.get_command(app), ())


def options(name: str = "") -> int:
    """The options of a command, or of all."""
    return sum(
        parameter.param_type_name == "option"
        for words, command in commands().items()
        if words.startswith(name)
        for parameter in command.params
    )


def pages() -> list[Path]:
    """The pages of the documentation."""
    return sorted((ROOT / "docs").rglob("*.md"))


def words() -> int:
    """The words of the pages: whatever white space parts, in tables and code too."""
    return sum(len(page.read_text("utf-8").split()) for page in pages())


def lines_of_tests(*patterns: str) -> int:
    """All lines of files of the tests, blank ones, comments and docstrings as well."""
    files = {path for pattern in patterns for path in (ROOT / "tests").glob(pattern)}
    return sum(len(path.read_text("utf-8").splitlines()) for path in files)


COUNTED: dict[str, Callable[[], int]] = {
    "lines of the library": lambda: lines("fedcluster"),
    "lines of the application": lambda: lines("fedcluster_app"),
    "modules": lambda: len(modules()),
    "modules that a fit loads": loaded,
    "functions": functions,
    "constants": lambda: len(constants()),
    "commands": lambda: len(commands()),
    "options": options,
    "options of fit": lambda: options("fit"),
    "refused combinations": lambda: len(table()),
    "words of the pages": words,
    "pages": lambda: len(pages()),
    "lines of tests": lambda: lines_of_tests("**/*.py"),
    "lines of tests of refusals and pairs": lambda: lines_of_tests(
        "pairs/*.py", "app/cli/test_pairs.py", "app/cli/test_refusals.py"
    ),
}


@pytest.mark.parametrize("what", MOST)
def test_the_house_is_not_larger_and_its_numbers_follow_it_down(what):
    assert 0.98 * MOST[what] <= COUNTED[what]() <= MOST[what]


def test_no_two_modules_give_a_number_the_same_name():
    assert [name for name, n in Counter(constants()).items() if n > 1] == []


def test_lines_are_those_of_code(tmp_path):
    path = tmp_path / "a.py"
    path.write_text('"""A text\n\nof three lines."""\n\n# a comment\nx = (  # one\n    1\n)\n')
    assert lines_of(path) == 3
