"""Say what the newest releases of Flower and FLARE break: allowed by pyproject.toml, and the next.

    python .ci/newest.py [FOLDER]

Each is put into a folder before the installed one, without what it needs in turn: a library that it
needs anew is named as missing. The tests that name each thing that the package relies on decide.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
TRANSPORTS = "tests/app/transports"
TESTS = {
    "flwr": f"{TRANSPORTS}/test_flower_contract.py",
    "nvflare": f"{TRANSPORTS}/test_flare.py",
}
"""The tests of what the package relies on, by the library."""


def releases() -> Iterator[tuple[str, str]]:
    """Yield which releases are wanted, by the library."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    for line in content["dependency-groups"]["dev"]:
        needed = Requirement(line) if isinstance(line, str) else None
        if needed is not None and needed.name in TESTS:
            [last] = [each.version for each in needed.specifier if each.operator == "<"]
            yield needed.name, str(needed)
            yield needed.name, f"{needed.name}>={last}"


def broken(name: str, wanted: str, folder: Path) -> list[str]:
    """Return what a release breaks, a line each; first the release itself."""
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--upgrade"]
    got = subprocess.run([*pip, "--target", str(folder), wanted], capture_output=True, check=False)
    found = sorted(folder.glob(f"{name}-*.dist-info"))
    if got.returncode or not found:
        return [f"{wanted}: there is none"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")])}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS[name]],
        capture_output=True,
        text=True,
        env=env,
        cwd=ROOT,
        check=False,
    )
    lines = re.findall(
        r"^(?:FAILED|ERROR) .*|^E +\w*(?:Import|ModuleNotFound)Error.*", ran.stdout, re.M
    )
    said = lines or ([] if ran.returncode == 0 else ran.stdout.splitlines()[-3:])
    state = f"{len(said)} things break" if said else "nothing breaks"
    return [f"{found[-1].name.removesuffix('.dist-info')} ({wanted}): {state}", *said]


def main() -> None:
    """Print what each release breaks; fail if one that is allowed does."""
    at = Path(sys.argv[1] if sys.argv[1:] else ROOT / ".cache" / "newest")
    bad = False
    for i, (name, wanted) in enumerate(releases()):
        said = broken(name, wanted, at / f"{name}-{i}")
        print(*said, sep="\n  ", flush=True)
        bad |= "<" in wanted and len(said) > 1
    sys.exit(bad)


if __name__ == "__main__":
    main()
