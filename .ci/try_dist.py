"""Hold what ``make dist`` built against the repository, then install and try it as a user would.

Usage: try_dist.py FOLDER, which holds one source archive and one wheel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]

FIT = """
import json
import numpy as np
from fedcluster import FederatedKMeans
north, south = np.array([[1.0], [2.0]]), np.array([[10.0], [11.0]])
model = FederatedKMeans(2, random_state=0).fit({"north": north, "south": south})
print(json.dumps(sorted(model.cluster_centers_.ravel().tolist())))
"""


def tracked(folder: str = ".") -> set[str]:
    """Return the paths of all files that git knows in a folder of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.split("\0")) - {""}


def check_source_archive(archive: Path) -> None:
    """Refuse a source archive that is not the repository without results, and its metadata."""
    with tarfile.open(archive) as packed:
        names = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in packed.getnames()}
    results = tracked("reproduction/results")  # seven megabytes that `make reproduce` makes again
    refuse_differences(archive, names, tracked() - results | {"PKG-INFO"})


def check_wheel(wheel: Path) -> None:
    """Refuse a wheel that is not the folder ``src`` and its metadata."""
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
    refuse_differences(wheel, names, {path.removeprefix("src/") for path in tracked("src")})


def refuse_differences(archive: Path, names: set[str], expected: set[str]) -> None:
    """End with the names that an archive has too many or too few."""
    lines = [f"  lacks {name}" for name in sorted(expected - names)]
    lines += [f"  should not have {name}" for name in sorted(names - expected)]
    if lines:
        sys.exit("\n".join([f"{archive.name}:", *lines]))


def try_wheel(wheel: Path, version: str) -> None:
    """Install a wheel into a fresh environment and use it from an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python, command = folder / "venv/bin/python", folder / "venv/bin/fedcluster"
        ran(folder, python, "-m", "pip", "install", "-qq", wheel.resolve())
        for start in ([command], [python, "-m", "fedcluster_app"]):
            said = ran(folder, *start, "--version")
            assert said == f"fedcluster {version}\n", said
        assert ran(folder, python, "-c", FIT) == "[1.5, 10.5]\n"
        (folder / "north.csv").write_text("x\n1\n2\n")
        (folder / "south.csv").write_text("x\n10\n11\n")
        ran(folder, command, "fit", "north.csv", "south.csv", "-k", "2", "--out", "out", "--quiet")
        assert (folder / "out/model.json").is_file()


def ran(folder: Path, *command: object) -> str:
    """Run a command in a folder, without this environment's packages; return what it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=clean,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def main(folder: Path) -> None:
    """Check and try the one source archive and the one wheel of a folder."""
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    version = wheel.name.split("-")[1]
    check_source_archive(archive)
    check_wheel(wheel)
    try_wheel(wheel, version)
    print(f"{archive.name} and {wheel.name} are complete, and the wheel works.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
