"""Files to play with, as ``python -m fedcluster_app.datasets`` writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from fedcluster.errors import InputError
from fedcluster_app.datasets import BANK, CLINICS, NAMES, WHERE, load, main, write


@pytest.mark.parametrize("name", NAMES)
def test_each_seed_gives_its_own_files(name: str, tmp_path: Path) -> None:
    files = write(name, tmp_path / "one")
    again, other = write(name, tmp_path / "again"), write(name, tmp_path / "other", seed=1)
    for one, same in zip(files, again, strict=True):
        assert one.name == same.name
        assert one.read_bytes() == same.read_bytes()
    assert any(a.read_bytes() != b.read_bytes() for a, b in zip(files, other, strict=True))


@pytest.mark.parametrize(("name", "kinds"), [("clinics", CLINICS), ("bank", BANK)])
def test_the_kinds_are_where_they_are_said_to_be(name: str, kinds: dict) -> None:
    """The usual level of the first text tells them apart: nine tenths of the rows, and more."""
    for site, table in load(name).items():
        assert table.num_rows == sum(WHERE[name][site].values())
        for kind, n in WHERE[name][site].items():
            numbers, texts = kinds[kind]
            text, level = next(iter(texts.items()))
            shared = sum(texts_of[text] == level for _, texts_of in kinds.values())
            ages = np.array(table["age"])[np.array(table[text]) == level]
            if shared == 1 and n >= 60:
                assert len(ages) == pytest.approx(n, abs=0.15 * n + 12)
                assert np.median(ages) == pytest.approx(numbers["age"][0], abs=3)
        assert 0 < sum(column.null_count for column in table.columns) < 0.08 * table.num_rows


def test_the_digits_are_scikit_learn_s() -> None:
    rows = np.concatenate(
        [np.array(list(t.to_pydict().values())).T for t in load("digits").values()]
    )
    known = load_digits().data
    assert rows[np.lexsort(rows.T)].tolist() == known[np.lexsort(known.T)].tolist()


def test_the_command_says_what_comes_next(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "fedcluster_app.datasets", "clinics"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = ["clinics/north.csv", "clinics/south.csv", "clinics/west.csv"]
    assert ran.stdout.splitlines() == [
        f"Wrote {', '.join(names)}. Next:",
        f"fedcluster fit {' '.join(names)} -k auto --out result",
    ]
    assert len(pd.read_csv(tmp_path / names[0])) == 150


def test_a_file_that_is_there_is_left_alone(tmp_path, capsys):
    (tmp_path / "south.csv").write_text("mine")
    assert main(["clinics", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said == f"error: {tmp_path / 'south.csv'} exists and differs: choose another --out\n"
    assert [file.name for file in tmp_path.iterdir()] == ["south.csv"]
    (tmp_path / "file").touch()
    assert main(["bank", "--out", str(tmp_path / "file")]) == 2
    assert "cannot be written to" in capsys.readouterr().err
    files = write("bank", tmp_path / "bank")
    assert write("bank", tmp_path / "bank") == files  # the same again is no loss
    with pytest.raises(InputError, match="no data set 'iris': choose one of clinics, bank"):
        load("iris")
