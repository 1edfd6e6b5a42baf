"""A newcomer's first afternoon: the pages as they are typed, where nothing else is installed."""

import os
import re
import shutil
import subprocess
import sysconfig
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fedcluster_app import datasets

ROOT = Path(__file__).parents[3]
SRC = ROOT / "src"
INSTALLS = re.compile(r'python -m pip install \\?"\.\[([\w,]+)\]\\?"(.*)')
JUPYTER = ("ipykernel", "nbclient")
"""What runs the cells of a notebook where Jupyter is installed."""

THOROUGH = pytest.mark.thorough
PAGES = [
    "docs/tutorial.md",
    pytest.param("README.md", marks=THOROUGH),
    pytest.param("docs/report.md", marks=THOROUGH),
    pytest.param("docs/notebooks/analyst.ipynb", marks=THOROUGH),
    pytest.param("docs/notebooks/researcher.ipynb", marks=THOROUGH),
]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="packages are linked")


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says_when_typed_line_by_line(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text("utf-8")
    extras, beside = INSTALLS.findall(text)[0]
    needed = [f"fedcluster[{extras}]", *(JUPYTER if "notebook" in beside else ())]
    python = environment(tmp_path / "env", needed)
    folder = tmp_path / "own"
    folder.mkdir()
    homes = {"HOME": str(folder), "IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)}
    env = {"PATH": os.environ["PATH"], "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", **homes}
    if page in ("README.md", "docs/report.md"):  # their reader has files of such names
        north, south, *_ = datasets.write("clinics", folder)
        shutil.copy(south, north.with_name("new.csv"))
    typed = subprocess.run(
        [python, ROOT / "tests/newcomer.py", ROOT / page],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=env,
    )
    assert typed.returncode == 0, typed.stdout[-2000:] + typed.stderr


def environment(folder: Path, needed: list[str]) -> Path:
    """Make an environment that has what these requirements need, and return its Python."""
    venv.create(folder, symlinks=True)
    place = Path(sysconfig.get_path("purelib", vars={"base": folder, "platbase": folder}))
    tops: dict[str, Path] = {
        "fedcluster": SRC / "fedcluster",
        "fedcluster_app": SRC / "fedcluster_app",
    }
    for each in closure(needed):
        for file in each.files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not top.endswith(".pth"):
                tops.setdefault(top, Path(str(each.locate_file(top))))
    for name, path in tops.items():
        (place / name).symlink_to(path.resolve())
    command = folder / "bin" / "fedcluster"
    command.write_text(
        f"#!{folder}/bin/python\nfrom fedcluster_app.cli import app\napp()\n", "utf-8"
    )
    command.chmod(0o755)
    return folder / "bin" / "python"


def closure(needed: list[str]) -> list[Distribution]:
    """The distributions that pip would install for these requirements, without other extras."""
    seen: dict[tuple[str, str], Distribution] = {}
    waiting = [(Requirement(each), "") for each in needed]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in ("", *requirement.extras):
            if (requirement.name, wanted) not in seen:
                found = seen[requirement.name, wanted] = distribution(requirement.name)
                waiting += [(Requirement(each), wanted) for each in found.requires or []]
    return [*seen.values()]
