"""Other versions of fedcluster, installed beside the one that is tested."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import fedcluster

SOURCE = Path(fedcluster.__file__).parent


def installed(
    folder: Path, version: str, protocol: int | None = None, commit: str | None = None
) -> Path | None:
    """Install this version, or an earlier commit of it, under another number.

    Returns what PYTHONPATH needs; None if the commit is not in the history that is here. Compiled
    kernels come along, and count if those of that version have the same sources.
    """
    home, kernels = folder / version, SOURCE / "kernels" / "__pycache__"
    package = home / "fedcluster"
    if commit is None:
        for each in (SOURCE, SOURCE.with_name("fedcluster_app")):
            shutil.copytree(each, home / each.name, ignore=shutil.ignore_patterns("__pycache__"))
    elif not _unpacked(commit, home):
        return None
    if kernels.is_dir():
        shutil.copytree(kernels, package / kernels.relative_to(SOURCE))
    _replace(package / "__init__.py", r'__version__ = ".*"', f'__version__ = "{version}"')
    if protocol is not None:
        _replace(package / "engines" / "wire.py", r"PROTOCOL = \d+", f"PROTOCOL = {protocol}")
    (home / f"fedcluster-{version}.dist-info").mkdir()
    about = f"Metadata-Version: 2.1\nName: fedcluster\nVersion: {version}\n"
    (home / f"fedcluster-{version}.dist-info" / "METADATA").write_text(about, "utf-8")
    return home


def _unpacked(commit: str, home: Path) -> bool:
    archived = ["git", "-C", str(SOURCE.parents[1]), "archive", f"{commit}:src"]
    found = subprocess.run(archived, capture_output=True, check=False)
    if found.returncode == 0:
        with tarfile.open(fileobj=io.BytesIO(found.stdout)) as packed:
            packed.extractall(home, filter="data")
    return found.returncode == 0


def _replace(path: Path, pattern: str, by: str) -> None:
    text, n = re.subn(pattern, by, path.read_text("utf-8"), count=1)
    assert n == 1
    path.write_text(text, "utf-8")
