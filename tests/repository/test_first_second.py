"""What the command line imports: help, mistakes and small jobs wait for nothing they do not use."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fedcluster.frames.cells import as_floats, levels_of

SLOW = {"numba", "llvmlite", "sklearn", "matplotlib", "pandas", "flwr"}
SLOW |= {
    f"scipy.{part}" for part in ("linalg", "optimize", "sparse", "spatial", "special", "stats")
}
"""What takes tenths of seconds; scipy itself, without its parts, a hundredth."""
PROGRAM = """
import json, sys
from fedcluster_app.cli import app
try:
    app(sys.argv[1:], prog_name="fedcluster")
except SystemExit:
    pass
print(json.dumps(sorted(name for name in sys.modules if name.count(".") < 2)), file=sys.stderr)
"""


def imported(*arguments: object, at: Path) -> set[str]:
    """The libraries that are there after a command."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        cwd=at, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(json.loads(ran.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "fit --help",
        "federation run trial fit --help",
        "site start --help",
        "--version",
        "fitt",
        "fit north.csv -k many",
        "fit -k 3",
        "fit north.csv -k 0",
        "fit nowhere.csv -k 3",
        "predict nowhere.json north.csv --out labels",
    ],
)
def test_help_and_mistakes_wait_for_no_library(arguments: str, tmp_path: Path) -> None:
    assert not imported(*arguments.split(), at=tmp_path) & SLOW


@pytest.mark.thorough
def test_a_fit_of_small_files_waits_for_what_it_uses(tmp_path: Path) -> None:
    """scikit-learn alone takes a second, and is what estimators are for."""
    for site in ("north", "south"):
        rows = [f"{i % 3 * 9 + i / 100},{i % 3 * 5 - i / 70},{'abc'[i % 3]}" for i in range(30)]
        (tmp_path / f"{site}.csv").write_text("\n".join(["x,y,kind", *rows]))
    there = imported("fit", "north.csv", "south.csv", "-k", 3, at=tmp_path)
    assert (tmp_path / "result" / "model.json").exists()
    assert not there & {"sklearn", "matplotlib", "pandas", "flwr", "sqlalchemy"}


FLOATS = pa.array([1.5, None, -0.0, float("nan"), 2.0**60, None, float("inf"), 7.0] * 3)


@pytest.mark.parametrize(
    "column",
    [
        FLOATS,
        FLOATS.cast(pa.float32()),
        FLOATS.slice(3, 11),
        FLOATS.slice(9, 0),
        pa.array([], pa.float64()),
        pa.nulls(5),
        pa.array([1, None, 3]),
        pa.array([True, None, False]).slice(1),
        pa.array([Decimal("1.25"), None]),
    ],
    ids=str,
)
def test_numbers_of_arrow_are_those_that_it_hands_over_itself(column: pa.Array) -> None:
    """Its own way imports pandas; chunks of which some begin within a byte of what is missing."""
    chunked = pa.chunked_array([column, column.slice(1), column.slice(len(column) // 2)])
    floats = chunked if column.type == pa.float32() else chunked.cast(pa.float64(), safe=False)
    ours = as_floats(chunked)
    np.testing.assert_array_equal(ours, floats.to_numpy())
    assert ours.dtype == floats.to_numpy().dtype
    assert ours.flags.writeable


TEXTS = pa.array(["b", None, "a", "", " b ", "NA", None, "c"] * 3)


@pytest.mark.parametrize(
    "column",
    [
        TEXTS,
        TEXTS.slice(3, 11),
        TEXTS.slice(9, 0),
        TEXTS.cast(pa.large_string()),
        TEXTS.dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
        pa.array([None, None], pa.string()),
    ],
    ids=lambda column: f"{column.type} {len(column)}",
)
def test_levels_of_arrow_are_those_of_its_cells(column: pa.Array) -> None:
    chunked = pa.chunked_array([column, column.slice(1)])
    levels, codes = levels_of(chunked)
    cells = [("" if cell is None else cell.strip()) for cell in chunked.to_pylist()]
    assert levels == tuple(sorted({cell for cell in cells if cell not in {"", "NA"}}))
    coded = [levels.index(cell) if cell in levels else np.nan for cell in cells]
    np.testing.assert_array_equal(codes, coded)
