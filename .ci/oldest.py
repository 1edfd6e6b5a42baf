"""Print pip's constraints for the oldest versions that pyproject.toml allows.

One line for each lower bound, as ``numpy==2.0``: of the dependencies, of the extras but those of
Flower and vantage6, and of the libraries whose tables the estimators take. The tests' own tools
stay new. Flower is left out: its releases that are allowed need newer versions of what they share
with fedcluster.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

APART = {"flower", "vantage6"}  # extras with an environment of their own
OF_THE_SAME_TIME = {"click<8.5"}  # typer 0.20 loses the help of arguments to a newer one
TAKEN = {"pandas", "polars"}  # tables of these, as scikit-learn takes them, without an extra


def requirements() -> Iterator[Requirement]:
    """Yield what the package requires or takes, with and without extras."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = content["project"]
    extras = project["optional-dependencies"]
    for lines in (
        project["dependencies"],
        *(extras[name] for name in extras.keys() - APART),
    ):
        yield from map(Requirement, lines)
    for needed in map(Requirement, content["dependency-groups"]["test"]):
        if needed.name in TAKEN:
            yield needed


def main() -> None:
    """Print each constraint once, sorted."""
    bounds = OF_THE_SAME_TIME | {
        f"{needed.name}=={bound.version}"
        for needed in requirements()
        for bound in needed.specifier
        if bound.operator == ">="
    }
    print(*sorted(bounds), sep="\n")


if __name__ == "__main__":
    main()
