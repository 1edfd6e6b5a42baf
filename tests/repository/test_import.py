"""The front door: quick to open, and everything that it names is there."""

import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedcluster
import fedcluster_app
from fedcluster import FederatedFuzzyCMeans, FederatedGaussianMixture, FederatedKMeans, Model
from fedcluster.errors import InputError

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

SLOW = ("numba", "pandas", "sklearn")
WAITING = ("fedcluster.jobs", "jinja2", "numba", "scipy.stats", "sklearn")
"""What the program of a site that waits does not hold: fourteen of them share a machine."""

# What the help of a command may load besides Python's own: rich loads what draws its texts.
QUICK = {"annotated_doc", "attr", "click", "fedcluster", "fedcluster_app", "markdown_it", "mdurl"}
QUICK |= {"pygments", "rich", "shellingham", "typer", "typing_extensions"}


@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("fedcluster", SLOW),
        ("fedcluster_app.transports.flower.node", WAITING),
        ("fedcluster_app.site.membership", WAITING),
    ],
)
def test_importing_a_module_loads_none_of_others(module, others):
    """Help need not wait for slow libraries, nor a site that waits hold what a coordinator does."""
    code = f"import sys, {module}; print(*sys.modules.keys() & set({others!r}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


@pytest.mark.parametrize("command", [[], ["fit"], ["federation", "run"], ["site", "start"]])
def test_help_loads_no_library_but_that_of_the_command_line(command):
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom fedcluster_app.cli import app\n"
        f"try: app({[*command, '--help']})\nexcept SystemExit as end: assert not end.code\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before}, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split()[0] == "Usage:"
    assert set(ran.stderr.split()) - set(sys.stdlib_module_names) <= QUICK


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", ["--version", "--help", "fit", "frob"])
def test_python_dash_m_does_what_the_command_does(arguments):
    command = "import sys; from fedcluster_app.cli import app; sys.argv[0] = 'fedcluster'; app()"
    as_command, as_module = (
        subprocess.run([sys.executable, *way, *arguments.split()], capture_output=True, text=True)
        for way in (["-c", command], ["-m", "fedcluster_app"])
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


def public_modules() -> Iterator[ModuleType]:
    """Both packages, their rooms, and the modules beside them: what they list is public.

    A module in a room, whatever its name, is for fedcluster itself.
    """
    for package in (fedcluster, fedcluster_app):
        yield package
        start = f"{package.__name__}."
        for module in walk_packages(package.__path__, start, onerror=lacks_an_extra):
            is_loose = module.name.count(".") == 1
            if (module.ispkg or is_loose) and "._" not in module.name:
                try:
                    yield import_module(module.name)
                except ImportError:
                    lacks_an_extra(module.name)


def lacks_an_extra(name: str) -> None:
    """Only the package that needs Flower may not be there, where Flower is not installed."""
    assert name.startswith("fedcluster_app.transports.flower")
    assert find_spec("flwr") is None


def listed(module: ModuleType) -> dict[tuple[str, object], str]:
    """What a module's ``__all__`` lists, by name and identity, and the path of each.

    A package without ``__all__`` only holds others.
    """
    names = module.__all__ if hasattr(module, "__all__") or not _is_package(module) else []
    return {(name, id(getattr(module, name))): f"{module.__name__}.{name}" for name in names}


def _is_package(module: ModuleType) -> bool:
    return hasattr(module, "__path__")


def shown(path: str) -> dict[tuple[str, object], str]:
    """What ``::: path`` on a page of the reference shows: all names of a module, or one object."""
    module, _, name = path.rpartition(".")
    try:
        return listed(import_module(path))
    except ModuleNotFoundError:
        return {(name, id(getattr(import_module(module), name))): path}


@pytest.mark.parametrize("module", public_modules(), ids=lambda module: module.__name__)
def test_all_names_of_each_public_module_resolve(module):
    assert len(listed(module)) == len(getattr(module, "__all__", []))


def test_the_reference_names_exactly_the_public_names():
    """One place serves a name that several modules list, as the front door does."""
    public: dict[tuple[str, object], str] = {}
    on_the_page: dict[tuple[str, object], str] = {}
    for module in public_modules():
        public = listed(module) | public
    pages = "\n".join(page.read_text("utf-8") for page in sorted(REFERENCE.glob("*.md")))
    for path in re.findall(r"^::: (\S+)$", pages, re.MULTILINE):
        on_the_page |= {("private", path): path} if "._" in path else shown(path)
    differences = [
        *(f"not in docs/reference/: {public[key]}" for key in public.keys() - on_the_page.keys()),
        *(f"not public: {on_the_page[key]}" for key in on_the_page.keys() - public.keys()),
    ]
    assert not differences, "\n".join([f"of {len(public)} public names", *sorted(differences)])


# Without an extra

PROJECT = tomllib.loads((REFERENCE.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]


def named(requirements: list[str]) -> set[str]:
    """The names of required distributions, as they are compared."""
    return {re.split(r"[\[<>=!~ ]", each)[0].lower().replace("_", "-") for each in requirements}


of_modules = cache(packages_distributions)


@cache
def models() -> dict[str, Any]:
    """Estimators, fitted and not, and what they hold."""
    rows = np.random.default_rng(0).normal(size=(40, 2))
    kinds = (FederatedKMeans, FederatedFuzzyCMeans, FederatedGaussianMixture)
    found: dict[str, Any] = {f"new {kind.__name__}": kind(2) for kind in kinds}
    for kind in kinds:
        how: dict[str, Any] = {"random_state": 0, "prepare": "standard", "profile": True}
        fitted = kind(2, **how).fit(rows, sites=np.arange(40) % 2)
        found[kind.__name__] = fitted
        found[f"Model of {kind.__name__}"] = Model.from_estimator(fitted)
        found[f"profiles of {kind.__name__}"] = fitted.profiles_
    found["private"] = FederatedKMeans(2, epsilon=9.0, bounds=(-5, 5), random_state=0).fit(rows)
    found["selection"] = FederatedKMeans(range(1, 3), random_state=0).fit(rows).selection_
    return found


@pytest.fixture
def without(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An extra whose packages are as if they were not installed."""
    models()
    always = named(PROJECT["dependencies"])
    absent = named(PROJECT["optional-dependencies"][request.param]) - always
    gone = {
        module
        for module, of in of_modules().items()
        if absent & named(of) and not always & named(of)
    }

    def no_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in gone:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=no_spec), *sys.meta_path])
    for name in gone & sys.modules.keys():
        monkeypatch.delitem(sys.modules, name)
    return str(request.param)


@pytest.mark.thorough
@pytest.mark.parametrize("without", PROJECT["optional-dependencies"], indirect=True)
def test_what_needs_an_absent_extra_is_no_attribute(without: str) -> None:
    """`hasattr`, `dir` and notebooks, which look at each attribute, expect AttributeError."""
    for what, model in models().items():
        held = dir(model)
        inspect.getmembers(model)
        repr(model)
        for name in dir(type(model)):
            assert hasattr(model, name) or name not in held
        if isinstance(model, FederatedKMeans) and not what.startswith("new"):
            assert hasattr(model, "centers_frame_") == (without != "pandas")
    if without == "pandas":
        for wrong in (AttributeError, InputError):
            for name in ("centers_frame_", "profile_"):
                with pytest.raises(wrong, match=r'pip install "fedcluster\[pandas\]"'):
                    getattr(models()["FederatedKMeans"], name)


ALONE = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        absent = ("fedcluster_app", "typer", "rich", "msgspec", "pyarrow", "cryptography")
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
import numpy as np
from fedcluster import FederatedGaussianMixture, FederatedKMeans, Model
from fedcluster.errors import NotInstalledError

tables = {"north": np.repeat([[0.0, 1.0], [9.0, 9.0]], 20, axis=0), "south": np.eye(2) * 8}
found = FederatedKMeans(2, random_state=0).fit(tables)
found.save("model.json")
assert Model.load("model.json").predict(tables["north"]).tolist() == [0] * 20 + [1] * 20
FederatedGaussianMixture(2, random_state=0).fit(tables)
found._repr_html_()
try:
    found.predict("rows.csv")
except NotInstalledError as error:
    print(error)
"""


def test_the_library_fits_arrays_without_the_application_and_its_libraries(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, cwd=tmp_path
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == (
        "files and pages need the package fedcluster_app, and it lacks fedcluster_app: "
        "pip install fedcluster\n"
    )
