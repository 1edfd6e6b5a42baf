"""Install an offline bundle as its INSTALL.md says, on a machine without a network, and fit.

Usage: try_bundle.py BUNDLE.tar. Where this system allows it, all is done in a network namespace of
its own, in which there is nothing but loopback; where it does not, that is said.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")
"""Runs a program without a network; of util-linux."""

INSTALL = """
set -e
python -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-index \\
    --find-links "$1/wheels" --require-hashes -r "$1/requirements.txt"
venv/bin/fedcluster --version
printf 'x\\n1\\n2\\n' > north.csv
printf 'x\\n10\\n11\\n' > south.csv
venv/bin/fedcluster fit north.csv south.csv -k 2 --scale none --out out --quiet
venv/bin/fedcluster federation new trial --sites north,south,west --address 127.0.0.1:8443
"""


def offline() -> tuple[str, ...]:
    """Return what runs a program without a network, nothing where that is not possible here."""
    if shutil.which(NAMESPACE[0]) is None:
        return ()
    tried = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False)
    return NAMESPACE if tried.returncode == 0 else ()


def main(bundle: Path) -> None:
    """Try a bundle."""
    with tempfile.TemporaryDirectory() as name:
        folder, begin = Path(name), offline()
        with tarfile.open(bundle) as packed:
            packed.extractall(folder, filter="data")
        unpacked = folder / bundle.name.removesuffix(".tar")
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        command = [*begin, "sh", "-c", INSTALL, "sh", str(unpacked)]
        subprocess.run(command, cwd=folder, env={**clean, "PATH": path}, check=True)
        centers = json.loads((folder / "out/model.json").read_text("utf-8"))["centers"]
        components = json.loads((unpacked / "sbom.cdx.json").read_text("utf-8"))["components"]
    assert sorted(centers) == [[1.5], [10.5]], centers
    where = "without a network" if begin else "where the network could not be cut off"
    print(f"{bundle.name}: {len(components)} components, installs and fits, {where}.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
