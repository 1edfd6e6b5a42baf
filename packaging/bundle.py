"""Build the offline bundle: all wheels with their hashes, an SBOM, units and container files.

Usage: bundle.py WHEEL FOLDER. The bundle is for machines like this one: its system, its processor
and its version of Python are part of the file's name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from hashlib import sha256
from pathlib import Path

from packaging.utils import parse_wheel_filename

HERE = Path(__file__).parent
SHIPPED = ("INSTALL.md", "container/Containerfile", "container/compose.yaml")
UNITS = "systemd/*@.*"

PYTHON = sysconfig.get_python_version()
"""The version of Python that the wheels are for, without its last part."""

PIP = ("-m", "pip", "--disable-pip-version-check")
"""Pip, as a module of the environment that is to be changed."""


def extras_of(wheel: Path) -> list[str]:
    """Return the extras that a wheel offers: the bundle holds them all."""
    with zipfile.ZipFile(wheel) as packed:
        name = next(name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(packed.read(name).decode())
    return metadata.get_all("Provides-Extra") or []


def download(wheel: Path, wheels: Path) -> None:
    """Put a wheel and all that it needs into a folder; nothing is compiled here or later."""
    wanted = f"fedcluster[{','.join(extras_of(wheel))}] @ {wheel.absolute().as_uri()}"
    run(sys.executable, *PIP, "download", "-qq", "--only-binary=:all:", "-d", wheels, wanted)


def requirements(wheels: Path) -> str:
    """Return the exact version and the hash of each wheel, as pip reads them.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "six-1.17.0-py2.py3-none-any.whl").write_bytes(b"")
    ...     print(requirements(Path(folder))[:40])
    six==1.17.0 --hash=sha256:e3b0c44298fc1c
    """
    lines = []
    for file in sorted(wheels.glob("*.whl")):
        name, version, _, _ = parse_wheel_filename(file.name)
        lines.append(f"{name}=={version} --hash=sha256:{sha256(file.read_bytes()).hexdigest()}\n")
    return "".join(lines)


def install(bundle: Path, folder: Path) -> Path:
    """Install a bundle as its INSTALL.md says; return the new environment's Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    hashed = ("--require-hashes", "-r", bundle / "requirements.txt")
    run(python, *PIP, "install", "-qq", "--no-index", "--find-links", bundle / "wheels", *hashed)
    return python


def list_components(python: Path, bundle: Path) -> None:
    """Write the software bill of materials of an environment, in CycloneDX's format."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    options = ("--output-reproducible", "--validate", "--spec-version", "1.6")
    run(tool, "environment", *options, "--output-file", bundle / "sbom.cdx.json", python)


def pack(bundle: Path, out: Path, moment: int) -> None:
    """Pack a folder; the same content gives the same bytes."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() else 0o644
        member.mtime = moment
        return member

    partial = out.with_name(f".{out.name}.partial")
    with tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as packed:
        for path in [bundle, *sorted(bundle.rglob("*"))]:
            name = Path(out.name.removesuffix(".tar"), path.relative_to(bundle))
            packed.add(path, str(name), recursive=False, filter=plain)
    partial.replace(out)


def run(*command: object) -> None:
    """Run a program that must succeed, without this environment's settings of Python."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([str(part) for part in command], env=clean, check=True)


def shipped() -> Iterable[Path]:
    """Return the files that a bundle holds besides wheels, requirements and components."""
    return [*(HERE / name for name in SHIPPED), *sorted(HERE.glob(UNITS))]


def build(wheel: Path, out: Path) -> Path:
    """Build the bundle of a wheel into a folder; return its file."""
    with tempfile.TemporaryDirectory(dir=out) as name:
        bundle = Path(name) / "bundle"
        (bundle / "wheels").mkdir(parents=True)
        download(wheel, bundle / "wheels")
        (bundle / "requirements.txt").write_text(requirements(bundle / "wheels"), encoding="utf-8")
        for file in shipped():
            copied = bundle / file.relative_to(HERE)
            copied.parent.mkdir(exist_ok=True)
            text = file.read_text("utf-8").replace("PYTHON_VERSION", PYTHON)
            copied.write_text(text, encoding="utf-8")
        python = install(bundle, Path(name) / "venv")
        list_components(python, bundle)
        version = wheel.name.split("-")[1]
        system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        tag = f"cp{PYTHON.replace('.', '')}"
        file = out / f"fedcluster-{version}-offline-{tag}-{system}.tar"
        pack(bundle, file, int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
    return file


def main() -> None:
    """Build the bundle of the given wheel into the given folder."""
    wheel, out = map(Path, sys.argv[1:])
    file = build(wheel, out.absolute())
    digest = sha256(file.read_bytes()).hexdigest()
    (out / f"{file.name}.sha256").write_text(f"{digest}  {file.name}\n", encoding="ascii")
    print(f"{file.name}: {file.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
