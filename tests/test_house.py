"""The house: which module of fedcluster may import which.

The tables are the law. Where the code teaches better, change them and say why in docs/design.md.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

import fedcluster

# From the ground up. A room may import from every floor below its own, and from no other room.
# ``__init__`` is the package's front door: what stands above it may use the public names.
FLOORS = (
    "errors lazy",
    "core",
    "options texts",
    "io kernels",
    "metrics privacy",
    "algorithms",
    "engines",
    "rounds secure",
    "preprocessing",
    "mixtures model",
    "recipes",
    "selection",
    "extend testing",
    "jobs",
    "report",
    "site",
    "attacks estimators plotting",
    "__init__",
    "coordinator datasets",
    "transports",
    "cli",
    "__main__",
)

# Which rooms let in which library. What is not listed here is not declared in pyproject.toml.
ANYWHERE = " ".join(FLOORS)
GUESTS = {
    "anndata": "io.matrices",
    "Crypto": "secure._masks",
    "cryptography": "coordinator secure site transports.flower",
    "dp_accounting": "privacy.budget",
    "flwr": "transports.flower",
    "httpx": "coordinator.service_client transports.flower",
    "idna": "site.identity",
    "llvmlite": "kernels",
    "matplotlib": "plotting report.pictures selection.verdict",
    "msgspec": "coordinator io.records site",
    "narwhals": "io.inputs",
    "numba": "kernels",
    "nvflare": "transports.flare",
    "prometheus_client": "coordinator.service",
    "numpy": ANYWHERE,
    "opendp": "privacy.disclosure",
    "pyarrow": "io datasets",
    "pyrage": "coordinator.backup",
    "rich": "cli",
    "scipy": ANYWHERE,
    "starlette": "coordinator.service transports.flower",
    "uvicorn": "coordinator.service transports.flower",
    "click": "cli._reading",
    "dask": "cli._dask engines._dask",
    "distributed": "cli._dask engines._dask",
    "duckdb": "io._files",
    "fsspec": "io.remote",
    "pandas": "estimators",
    "pyreadstat": "io._files",
    "python_calamine": "io._files",
    "sqlalchemy": "io._sql",
    "sklearn": "cli._demo datasets estimators",
    "threadpoolctl": "core.threads",
    "typer": "cli",
    "vantage6": "transports.vantage6",
}

# Names that say nothing about what is inside.
NAMELESS = {"common", "helpers", "types", "utils"}

LEVEL = {room: level for level, floor in enumerate(FLOORS) for room in floor.split()}


def complaints(package: Path) -> list[str]:
    """What is out of order in a package, one line each, by file and line."""
    return [
        f"{path.relative_to(package.parent)}:{line}: {what}"
        for path in sorted(package.rglob("*.py"))
        for line, what in _complaints(package, path)
    ]


def _complaints(package: Path, path: Path) -> Iterator[tuple[int, str]]:
    parts, source = path.relative_to(package).with_suffix("").parts, path.read_text("utf-8")
    room, module = parts[0], ".".join(parts).removesuffix(".__init__")
    if room not in LEVEL:
        yield 1, f"give it a room in the house: {room!r} stands on no floor"
        return
    for name in {part.strip("_") for part in parts} & NAMELESS:
        yield 1, f"{name!r} says nothing: name the concept"
    for line, imported in _imports(source, ".".join(["fedcluster", *parts[:-1]])):
        top, _, rest = imported.partition(".")
        if imported == "fedcluster.__version__":
            continue
        if top == "fedcluster":
            target = rest.split(".")[0]
            target = target if target in LEVEL else "__init__"
            if target != room and LEVEL[target] >= LEVEL[room]:
                yield line, f"{room} may not import {target}, which does not stand below it"
            if _is_private_name(package, rest):
                yield line, f"{imported} is private to its module"
        elif top not in GUESTS.keys() | sys.stdlib_module_names:
            yield line, f"{top} is not among the guests: declare it, then let it in"
        elif not _is_let_in(module, GUESTS.get(top, ANYWHERE)):
            yield line, f"{top} may be imported in {GUESTS[top]} only"


@cache
def _import_statements(source: str) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import of a module, and whether it stands in a function."""
    nodes = list(ast.walk(ast.parse(source)))
    functions = [
        range(f.lineno, (f.end_lineno or 0) + 1) for f in nodes if isinstance(f, ast.FunctionDef)
    ]
    return [
        (node, any(node.lineno in lines for lines in functions))
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def _imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Every import of a module, inside functions too: its line and the absolute dotted name."""
    for node, _ in _import_statements(source):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        else:
            origin = resolve_name("." * node.level + (node.module or ""), package)
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def _is_private_name(package: Path, dotted: str) -> bool:
    """Whether a dotted path ends in a private name that is no module of the package."""
    path = package.joinpath(*dotted.split("."))
    is_module = path.is_dir() or path.with_suffix(".py").exists()
    return dotted.rpartition(".")[2].startswith("_") and not (is_module or dotted.endswith("__"))


def _is_let_in(module: str, hosts: str) -> bool:
    return any(f"{module}.".startswith(f"{host}.") for host in hosts.split())


def private_imports(package: Path) -> list[str]:
    """Imports of modules that are private to another room, by file and line."""
    return [
        f"{path.relative_to(package)}:{line}: {imported}"
        for path in sorted(package.rglob("*.py"))
        for room in [".".join(["fedcluster", *path.relative_to(package).parts[:-1]])]
        for line, imported in _imports(path.read_text("utf-8"), room)
        for home in [imported.split("._")[0]]
        if imported.startswith("fedcluster.") and "._" in imported.replace("__", "")
        if not f"{room}.".startswith(f"{home}.")
    ]


def test_no_room_imports_a_private_module_of_another():
    assert private_imports(Path(fedcluster.__file__).parent) == []


def test_a_private_import_is_found(tmp_path):
    for name, source in {
        "metrics/_fuzzy.py": "",
        "metrics/indices.py": "from fedcluster.metrics._fuzzy import J",
        "rounds.py": "from fedcluster.metrics._fuzzy import J",
        "jobs/run.py": "from fedcluster import __version__\nfrom fedcluster.metrics import _fuzzy",
    }.items():
        path = tmp_path / "fedcluster" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    assert private_imports(tmp_path / "fedcluster") == [
        "jobs/run.py:2: fedcluster.metrics._fuzzy",
        "rounds.py:1: fedcluster.metrics._fuzzy.J",
    ]


def test_no_room_is_crowded():
    """A room has few files; beside the rooms stands what a user imports."""
    package = Path(fedcluster.__file__).parent
    rooms = [package, *(path.parent for path in package.rglob("*/__init__.py"))]
    files = {room: len(list(room.glob("*.py"))) - 1 for room in rooms}
    crowded = {room.name: n for room, n in files.items() if n > (7 if room == package else 15)}
    assert not crowded


def inner_imports(package: Path) -> list[str]:
    """Imports inside functions, but for those that keep the start of a program quick."""
    starting = {"cli", "transports"}
    return sorted(
        {
            f"{path.relative_to(package)}: {ast.unparse(node)}"
            for path in package.rglob("*.py")
            if path.relative_to(package).parts[0] not in starting
            for node, is_inside in _import_statements(path.read_text("utf-8"))
            if is_inside
        }
    )


def test_few_things_are_imported_inside_functions():
    """Extras, and what is slow and rarely needed; each says why in a comment."""
    found = inner_imports(Path(fedcluster.__file__).parent)
    assert len(found) <= 15, "\n".join(["", *found])


def test_no_file_imports_one_that_imports_it():
    """A circle of files can be understood only as a whole."""
    package = Path(fedcluster.__file__).parent
    names = {path.relative_to(package).with_suffix("") for path in package.rglob("*.py")}
    modules = {".".join(name.parts) for name in names if name.name != "__init__"}
    arrows = {
        ".".join(path.relative_to(package).with_suffix("").parts): {
            imported.partition(".")[2].rpartition(".")[0]
            for _, imported in _imports(path.read_text("utf-8"), "fedcluster")
            if imported.startswith("fedcluster.")
        }
        & modules
        for path in package.rglob("*.py")
        if path.name != "__init__.py"
    }
    while leaves := {name for name, below in arrows.items() if not below & arrows.keys()}:
        arrows = {name: below for name, below in arrows.items() if name not in leaves}
    assert not arrows, f"in a circle, or above one: {', '.join(sorted(arrows))}"


def bound_twice(package: Path) -> list[str]:
    """Names that a module binds twice at its top level: whoever reads the first gets the second."""
    found = []
    for path in sorted(package.rglob("*.py")):
        bound: dict[str, int] = {}
        for node in ast.parse(path.read_text("utf-8")).body:
            for name in _bound_by(node):
                if name in bound:
                    place = path.relative_to(package)
                    found.append(f"{place}:{node.lineno}: {name}, also in line {bound[name]}")
                bound[name] = node.lineno
    return found


def _bound_by(node: ast.stmt) -> list[str]:
    """The names that a statement binds; ``x += 1`` and loops bind none anew."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        overload = any("overload" in ast.unparse(each) for each in node.decorator_list)
        return [] if overload else [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):  # a module and one in it are one name
        return [each.asname or each.name for each in node.names]
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    is_plain = isinstance(node, ast.Assign | ast.AnnAssign)
    stored = [each for target in targets for each in ast.walk(target)] if is_plain else []
    names = [each for each in stored if isinstance(each, ast.Name)]
    return [each.id for each in names if isinstance(each.ctx, ast.Store)]


def test_no_module_binds_a_name_twice():
    assert bound_twice(Path(fedcluster.__file__).parent) == []


def test_a_name_bound_twice_is_found(tmp_path):
    source = "A, PASSES = 1, 6\n\n\ndef f():\n    PASSES = 3\n\n\nB, (PASSES, C) = 1, (2, 3)\n"
    (tmp_path / "fit.py").write_text(source)
    assert bound_twice(tmp_path) == ["fit.py:8: PASSES, also in line 1"]


def test_house_is_in_order():
    found = complaints(Path(fedcluster.__file__).parent)
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize(
    ("transport", "words"),
    [
        ("flower", ("flwr", "superlink", "supernode", "clientapp", "serverapp")),
        ("flare", ("nvflare", "aux_request", "shareable")),
    ],
)
def test_nothing_outside_its_package_names_what_is_inside_a_transport(transport, words):
    """The command line says which programs it runs; the rest knows that there is a transport."""
    package = Path(fedcluster.__file__).parent
    outside = [
        path
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[:2] != ("transports", transport)
        and path.relative_to(package).parts[0] != "cli"
    ]
    assert len(outside) > 50
    right = "server-predeployed-flwr"  # of FLARE, which nobody gets
    text = {path: path.read_text("utf-8").lower().replace(right, "") for path in outside}
    assert [(str(p), word) for p in outside for word in words if word in text[p]] == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("core.py", "import fedcluster.rounds", "core.py:1: core may not import rounds"),
        ("rounds.py", "\nfrom fedcluster.report import run", "rounds.py:2: rounds may not"),
        ("rounds.py", "from fedcluster import cli", "rounds may not import cli"),
        ("rounds.py", "from fedcluster import Lloyd", "rounds may not import __init__"),
        ("rounds.py", "from . import cli", "rounds may not import cli"),
        ("engines/local.py", "from ..rounds import run", "engines may not import rounds"),
        ("io/__init__.py", "from .. import kernels", "io may not import kernels"),
        ("metrics/a.py", "import fedcluster.privacy", "metrics may not import privacy"),
        ("core.py", "def f():\n    import fedcluster.rounds", "core.py:2: core may not"),
        ("core.py", "if 0:\n    import fedcluster.rounds", "core.py:2: core may not"),
        ("engines/local.py", "import flwr.client", "local.py:1: flwr may be imported in trans"),
        ("algorithms/lloyd.py", "from sklearn.cluster import KMeans", "sklearn may be"),
        ("metrics/internal.py", "import numba as nb", "numba may be imported in kernels only"),
        (
            "cli.py",
            "import matplotlib.pyplot",
            "matplotlib may be imported in plotting report.pictures selection.verdict only",
        ),
        ("rounds.py", "from fedcluster.core import _total", "_total is private to its module"),
        ("selection.py", "import gap_statistic", "gap_statistic is not among the guests"),
        ("kernels_extra.py", "", "kernels_extra.py:1: give it a room in the house"),
        ("kernels/_utils.py", "", "_utils.py:1: 'utils' says nothing"),
        ("metrics/helpers/a.py", "", "'helpers' says nothing"),
    ],
)
def test_a_planted_violation_is_found(tmp_path, path, source, complaint):
    file = tmp_path / "fedcluster" / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    (found,) = complaints(tmp_path / "fedcluster")
    assert complaint in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("__init__.py", "from fedcluster.estimators import FederatedKMeans"),
        ("algorithms/fkm.py", "from .merging import merge\nfrom ..kernels import assign"),
        ("cli.py", "import typer\nfrom fedcluster import FederatedKMeans, demo"),
        ("transports/flower/_app.py", "import flwr"),
        ("kernels/lloyd.py", "import numba\nfrom fedcluster.kernels import fuzzy"),
        ("metrics/internal.py", "import numpy as np\nfrom fedcluster.core import State"),
    ],
)
def test_what_points_down_is_left_alone(tmp_path, path, source):
    file = tmp_path / "fedcluster" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    assert complaints(tmp_path / "fedcluster") == []
