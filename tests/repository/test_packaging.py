"""The units, container files and the offline bundle that ``make dist`` packs."""

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

PACKAGING = Path(__file__).parents[2] / "packaging"
UNITS = sorted((PACKAGING / "systemd").iterdir())
COMMAND = "/opt/fedcluster/bin/fedcluster"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine"
)


@pytest.fixture(scope="module")
def bundle() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bundle", PACKAGING / "bundle.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def instances(folder: Path) -> list[Path]:
    """Write the units as instances whose program is there, as systemd-analyze wants it."""
    paths = []
    for unit in UNITS:
        paths.append(folder / unit.name.replace("@", "@north"))
        paths[-1].write_text(unit.read_text("utf-8").replace(COMMAND, "/bin/true"), "utf-8")
    return paths


@needs_systemd
def test_systemd_finds_nothing_wrong_in_the_units(tmp_path: Path) -> None:
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *instances(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(UNITS) == 6
    assert (checked.returncode, checked.stderr) == (0, "")


@needs_systemd
def test_systemd_calls_the_units_hardly_exposed(tmp_path: Path) -> None:
    for unit in (each for each in instances(tmp_path) if each.suffix == ".service"):
        subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit],
            stdout=subprocess.DEVNULL,
            check=True,
        )


def test_units_and_compose_run_commands_that_exist() -> None:
    lines = [line for unit in UNITS for line in unit.read_text("utf-8").splitlines()]
    started = {line.partition("=")[2] for line in lines if line.startswith("ExecStart=")}
    [backup] = [line for line in started if line.startswith("/bin/sh -c")]
    assert f"exec {COMMAND} federation backup . " in backup
    assert started - {backup} == {
        f"{COMMAND} {words}"
        for words in (
            "site start site.toml",
            "site doctor site.toml",
            "federation start .",
            "federation doctor .",
        )
    }
    compose = (PACKAGING / "container/compose.yaml").read_text("utf-8")
    assert "command: [federation, start, .]" in compose


def test_container_copies_only_what_the_bundle_has(bundle: ModuleType) -> None:
    text = (PACKAGING / "container/Containerfile").read_text("utf-8")
    copied = re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE)
    assert copied == ["requirements.txt", "wheels"]
    assert "PYTHON_VERSION" in text
    assert "USER 10001" in text
    names = {str(path.relative_to(PACKAGING)) for path in bundle.shipped()}
    assert {"container/Containerfile", "container/compose.yaml", "INSTALL.md"} <= names
    assert {f"systemd/{unit.name}" for unit in UNITS} <= names


def test_requirements_have_the_hash_of_every_wheel(bundle: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a_b-1.0-py3-none-any.whl").write_bytes(b"one")
    (tmp_path / "c-2!3.0-1-py3-none-any.whl").write_bytes(b"")
    first, second = bundle.requirements(tmp_path).splitlines()
    one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    assert first == f"a-b==1.0 --hash=sha256:{one}"
    assert second.startswith("c==2!3.0 --hash=sha256:e3b0c442")


def test_bundle_has_every_extra_of_the_wheel(bundle: ModuleType, tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("x-1.dist-info/METADATA", "Name: x\nProvides-Extra: a\nProvides-Extra: b\n")
    assert bundle.extras_of(wheel) == ["a", "b"]


def test_same_files_are_packed_into_the_same_bytes(bundle: ModuleType, tmp_path: Path) -> None:
    archives = []
    for run in ("one", "two"):
        folder = tmp_path / run
        (folder / "wheels").mkdir(parents=True)
        (folder / "wheels/z.whl").write_bytes(b"z")
        (folder / "a.txt").write_text(run[:0])
        archives.append(tmp_path / f"{run}" / "bundle.tar")
        bundle.pack(folder, archives[-1], 1_700_000_000)
    with tarfile.open(archives[0]) as packed:
        names = packed.getnames()
    assert names == ["bundle", "bundle/a.txt", "bundle/wheels", "bundle/wheels/z.whl"]
    assert archives[0].read_bytes() == archives[1].read_bytes()


ROOT = Path(__file__).parents[2]


def declared(requirements: list[str]) -> set[str]:
    """The names of required distributions, as they are compared."""
    return {re.split(r"[\[<>=!~ ]", each)[0].lower().replace("_", "-") for each in requirements}


EXTRAS = (
    *(
        f"fedcluster_app/{room}"
        for room in ("coordinator", "secure", "site", "transports", "trust")
    ),
    "fedcluster/plotting.py",
)
"""Rooms that only those import who have an extra."""


@pytest.mark.thorough
def test_every_imported_module_is_of_a_declared_dependency() -> None:
    """What only comes along with another package may be gone with its next version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    always = declared(project["dependencies"])
    extras = declared([e for extra in project["optional-dependencies"].values() for e in extra])
    of = {**packages_distributions(), "vantage6": ["vantage6-algorithm-tools"]}
    own = sys.stdlib_module_names | {"fedcluster", "fedcluster_app"}
    strange, seen = [], set()
    for path in (ROOT / "src").rglob("*.py"):
        place = path.relative_to(ROOT / "src").as_posix()
        tree = ast.parse(path.read_text("utf-8"))
        firsts = {id(node) for node in tree.body}
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            is_lazy = id(node) not in firsts or place.startswith(EXTRAS)
            known = always | extras if is_lazy else always
            for name in {each.partition(".")[0] for each in names} - own:
                seen.add(name)
                if not known & declared(of.get(name, [name])):
                    strange.append(f"{place}: {name}")
    assert strange == []
    assert {"numpy", "typer", "pyarrow", "httpx"} <= seen
