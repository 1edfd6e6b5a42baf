"""Other versions of fedcluster, installed beside the one that is tested."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import fedcluster

SOURCE = Path(fedcluster.__file__).parent


def installed(folder: Path, version: str, protocol: int | None = None) -> Path:
    """Install this version under another number, with its compiled kernels.

    Returns what PYTHONPATH needs.
    """
    home, kernels = folder / version, SOURCE / "kernels" / "__pycache__"
    package = home / "fedcluster"
    for each in (SOURCE, SOURCE.with_name("fedcluster_app")):
        shutil.copytree(each, home / each.name, ignore=shutil.ignore_patterns("__pycache__"))
    if kernels.is_dir():
        shutil.copytree(kernels, package / kernels.relative_to(SOURCE))
    _replace(package / "__init__.py", r'__version__ = ".*"', f'__version__ = "{version}"')
    if protocol is not None:
        _replace(package / "engines" / "wire.py", r"PROTOCOL = \d+", f"PROTOCOL = {protocol}")
    (home / f"fedcluster-{version}.dist-info").mkdir()
    about = f"Metadata-Version: 2.1\nName: fedcluster\nVersion: {version}\n"
    (home / f"fedcluster-{version}.dist-info" / "METADATA").write_text(about, "utf-8")
    return home


def _replace(path: Path, pattern: str, by: str) -> None:
    text, n = re.subn(pattern, by, path.read_text("utf-8"), count=1)
    assert n == 1
    path.write_text(text, "utf-8")
