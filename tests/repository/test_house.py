"""The house: which libraries each room lets in, and how modules are named and bound.

Which room may import which is held by the contracts in pyproject.toml (``make lint``).
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

import fedcluster

SRC = Path(fedcluster.__file__).parents[1]

# Which rooms let in which library. What is not listed here is not declared in pyproject.toml.
LIBRARY = {
    "dask": "engines._dask",
    "distributed": "engines._dask",
    "dp_accounting": "privacy.budget",
    "joblib": "core.threads",
    "llvmlite": "kernels",
    "matplotlib": "plotting selection.verdict",
    "narwhals": "frames.inputs",
    "numba": "kernels",
    "numpy": "",
    "opendp": "privacy.disclosure",
    "pandas": "estimators",
    "pyarrow": "frames",
    "scipy": "",
    "sklearn": "estimators",
    "threadpoolctl": "core.threads",
}
APPLICATION = {
    "anndata": "tables.matrices",
    "click": "cli._reading",
    "Crypto": "secure._masks",
    "cryptography": "coordinator secure site trust transports.flower",
    "dask": "cli._dask",
    "distributed": "cli._dask",
    "duckdb": "tables._files",
    "flwr": "transports.flower",
    "fsspec": "tables.remote",
    "httpx": "coordinator.service_client transports.flower",
    "idna": "trust.identity",
    "jinja2": "report",
    "markupsafe": "report",
    "matplotlib": "report.job_files",
    "msgspec": "cli._study coordinator records site trust",
    "numpy": "",
    "nvflare": "transports.flare",
    "prometheus_client": "coordinator.service",
    "pyarrow": "tables datasets",
    "pyrage": "coordinator.backup",
    "pyreadstat": "tables._files",
    "python_calamine": "tables._files",
    "rich": "cli",
    "scipy": "",
    "sklearn": "datasets",
    "sqlalchemy": "tables._sql",
    "starlette": "coordinator.service transports.flower",
    "typer": "cli",
    "uvicorn": "coordinator.door coordinator.service transports.flower",
    "vantage6": "transports.vantage6",
}
GUESTS = {"fedcluster": LIBRARY, "fedcluster_app": APPLICATION}

# Names that say nothing about what is inside.
NAMELESS = {"common", "helpers", "types", "utils"}


def complaints(src: Path) -> list[str]:
    """What is out of order in the packages, one line each, by file and line."""
    return [
        f"{path.relative_to(src)}:{line}: {what}"
        for package in GUESTS
        for path in sorted((src / package).rglob("*.py"))
        for line, what in _complaints(src, path)
    ]


def _complaints(src: Path, path: Path) -> Iterator[tuple[int, str]]:
    (package, *parts), source = path.relative_to(src).with_suffix("").parts, path.read_text("utf-8")
    guests, module = GUESTS[package], ".".join(parts).removesuffix(".__init__")
    for name in {part.strip("_") for part in parts} & NAMELESS:
        yield 1, f"{name!r} says nothing: name the concept"
    for line, imported in _imports(source, ".".join([package, *parts[:-1]])):
        top = imported.partition(".")[0]
        if top in GUESTS:
            if _is_private_name(src, imported):
                yield line, f"{imported} is private to its module"
        elif top not in guests.keys() | sys.stdlib_module_names:
            yield line, f"{top} is not among the guests: declare it, then let it in"
        elif guests.get(top) and not _is_let_in(module, guests[top]):
            yield line, f"{top} may be imported in {guests[top]} only"


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


def _is_private_name(src: Path, dotted: str) -> bool:
    """Whether a dotted path ends in a private name that is no module."""
    path = src.joinpath(*dotted.split("."))
    is_module = path.is_dir() or path.with_suffix(".py").exists()
    return dotted.rpartition(".")[2].startswith("_") and not (is_module or dotted.endswith("__"))


def _is_let_in(module: str, hosts: str) -> bool:
    return any(f"{module}.".startswith(f"{host}.") for host in hosts.split())


def private_imports(src: Path) -> list[str]:
    """Imports of modules that are private to another room, by file and line."""
    return [
        f"{path.relative_to(src)}:{line}: {imported}"
        for path in sorted(src.rglob("*.py"))
        for room in [".".join(path.relative_to(src).parts[:-1])]
        for line, imported in _imports(path.read_text("utf-8"), room)
        for home in [imported.split("._")[0]]
        if imported.startswith("fedcluster") and "._" in imported.replace("__", "")
        if not f"{room}.".startswith(f"{home}.")
    ]


def test_no_room_imports_a_private_module_of_another():
    assert private_imports(SRC) == []


def test_a_private_import_is_found(tmp_path):
    for name, source in {
        "fedcluster/metrics/_fuzzy.py": "",
        "fedcluster/metrics/indices.py": "from fedcluster.metrics._fuzzy import J",
        "fedcluster/rounds.py": "from fedcluster.metrics._fuzzy import J",
        "fedcluster_app/site/run.py": "from fedcluster import __version__\n"
        "from fedcluster.metrics import _fuzzy",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    assert private_imports(tmp_path) == [
        "fedcluster/rounds.py:1: fedcluster.metrics._fuzzy.J",
        "fedcluster_app/site/run.py:2: fedcluster.metrics._fuzzy",
    ]


def test_no_room_is_crowded():
    """A room has few files; beside the rooms stands what a user imports."""
    rooms = [path.parent for path in SRC.rglob("__init__.py")]
    files = {room: len(list(room.glob("*.py"))) - 1 for room in rooms}
    crowded = {room.name: n for room, n in files.items() if n > (7 if room.parent == SRC else 15)}
    assert not crowded


def inner_imports(src: Path) -> list[str]:
    """Imports inside functions, but for those that keep the start of a program quick."""
    starting = {"cli", "transports"}
    return sorted(
        {
            f"{path.relative_to(src)}: {ast.unparse(node)}"
            for path in src.rglob("*.py")
            if path.relative_to(src).parts[1] not in starting
            for node, is_inside in _import_statements(path.read_text("utf-8"))
            if is_inside
        }
    )


def test_few_things_are_imported_inside_functions():
    """Extras, and what is slow and rarely needed; each says why in a comment."""
    found = inner_imports(SRC)
    assert len(found) <= 15, "\n".join(["", *found])


def test_no_file_imports_one_that_imports_it():
    """A circle of files can be understood only as a whole."""
    names = {path.relative_to(SRC).with_suffix("") for path in SRC.rglob("*.py")}
    modules = {".".join(name.parts) for name in names if name.name != "__init__"}
    arrows = {
        ".".join(path.relative_to(SRC).with_suffix("").parts): {
            imported.rpartition(".")[0]
            for _, imported in _imports(path.read_text("utf-8"), "fedcluster")
            if imported.startswith("fedcluster")
        }
        & modules
        for path in SRC.rglob("*.py")
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
    assert bound_twice(SRC) == []


def test_a_name_bound_twice_is_found(tmp_path):
    source = "A, PASSES = 1, 6\n\n\ndef f():\n    PASSES = 3\n\n\nB, (PASSES, C) = 1, (2, 3)\n"
    (tmp_path / "fit.py").write_text(source)
    assert bound_twice(tmp_path) == ["fit.py:8: PASSES, also in line 1"]


def test_house_is_in_order():
    found = complaints(SRC)
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
    package = SRC / "fedcluster_app"
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
        ("fedcluster/rounds.py", "import flwr.client", "rounds.py:1: flwr is not among the"),
        ("fedcluster/algorithms/lloyd.py", "from sklearn.cluster import KMeans", "sklearn may be"),
        ("fedcluster/metrics/a.py", "import numba as nb", "numba may be imported in kernels only"),
        ("fedcluster/core.py", "def f():\n    import typer", "core.py:2: typer is not among the"),
        (
            "fedcluster_app/cli.py",
            "import matplotlib.pyplot",
            "matplotlib may be imported in report.job_files only",
        ),
        ("fedcluster_app/site/a.py", "from fedcluster.core import _total", "_total is private to"),
        ("fedcluster/selection.py", "import gap_statistic", "gap_statistic is not among the"),
        ("fedcluster/kernels/_utils.py", "", "_utils.py:1: 'utils' says nothing"),
        ("fedcluster_app/wire/helpers/a.py", "", "'helpers' says nothing"),
    ],
)
def test_a_planted_violation_is_found(tmp_path, path, source, complaint):
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    (found,) = complaints(tmp_path)
    assert complaint in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("fedcluster/algorithms/fkm.py", "from .merging import merge\nimport numpy as np"),
        ("fedcluster_app/cli.py", "import typer\nfrom fedcluster import FederatedKMeans"),
        ("fedcluster_app/transports/flower/_app.py", "import flwr"),
        ("fedcluster/kernels/lloyd.py", "import numba\nfrom fedcluster.kernels import fuzzy"),
    ],
)
def test_what_is_let_in_is_left_alone(tmp_path, path, source):
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    assert complaints(tmp_path) == []
