"""Files to play with: ``python -m fedcluster.datasets clinics --out clinics``.

Clinics and bank are simulated, and hold nobody's data; the digits are those of scikit-learn.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv
from sklearn.datasets import load_digits

from fedcluster._demo import digits_by_site
from fedcluster.errors import InputError

__all__ = ["NAMES", "load", "write"]

NAMES = ("clinics", "bank", "digits")
"""Names of data sets."""


Numbers = Mapping[str, tuple[float, float]]
Texts = Mapping[str, str]

CLINICS: dict[str, tuple[Numbers, Texts]] = {
    "newborn's mother": (
        {"age": (30, 5), "pressure": (116, 9), "bmi": (25, 3), "stay": (1.3, 0.3)},
        {"ward": "maternity", "sex": "female"},
    ),
    "athlete": (
        {"age": (26, 6), "pressure": (122, 8), "bmi": (23, 2), "stay": (0.6, 0.4)},
        {"ward": "surgery", "sex": "male"},
    ),
    "high pressure": (
        {"age": (61, 8), "pressure": (162, 11), "bmi": (31, 4), "stay": (1.9, 0.4)},
        {"ward": "cardiology", "sex": "male"},
    ),
    "fragile": (
        {"age": (82, 5), "pressure": (138, 12), "bmi": (22, 3), "stay": (2.6, 0.4)},
        {"ward": "geriatrics", "sex": "female"},
    ),
}
BANK: dict[str, tuple[Numbers, Texts]] = {
    "beginner": (
        {"age": (24, 4), "balance": (6.0, 0.8), "calls": (0.5, 0.4)},
        {"marital": "single", "housing": "no"},
    ),
    "family": (
        {"age": (38, 6), "balance": (6.9, 0.9), "calls": (1.1, 0.5)},
        {"marital": "married", "housing": "yes"},
    ),
    "saver": (
        {"age": (63, 7), "balance": (8.6, 0.8), "calls": (0.4, 0.4)},
        {"marital": "married", "housing": "no"},
    ),
}
"""For each kind of rows mean and deviation of each number, and the usual level of each text."""
WHERE: dict[str, dict[str, dict[str, int]]] = {
    "clinics": {
        "north": {"newborn's mother": 90, "athlete": 60},
        "south": {"athlete": 40, "high pressure": 110, "fragile": 20},
        "west": {"newborn's mother": 30, "high pressure": 50, "fragile": 100},
    },
    "bank": {
        "students": {"beginner": 170, "family": 10},
        "technicians": {"beginner": 80, "family": 300, "saver": 20},
        "managers": {"family": 200, "saver": 120},
        "pensioners": {"family": 10, "saver": 190},
    },
}
"""How many rows of each kind a site has."""
LOGARITHMS = ("stay", "balance", "calls")
"""Columns whose logarithms are normal, as stays and balances nearly are."""


def load(name: str, *, seed: int = 0) -> dict[str, pa.Table]:
    """Return a data set as one table for each site.

    Parameters
    ----------
    name : {"clinics", "bank", "digits"}
        Simulated patients of three clinics, with wards, sexes and some missing values; simulated
        customers of a bank by job; or scikit-learn's 1,797 handwritten digits, of which each of
        five sites saw four.
    seed : int, default=0
        Other seeds give other draws.

    Returns
    -------
    dict of str to pyarrow.Table
        The rows of each site.

    Raises
    ------
    InputError
        If there is no data set of that name.

    Examples
    --------
    >>> tables = load("clinics")
    >>> {site: table.num_rows for site, table in tables.items()}
    {'north': 150, 'south': 170, 'west': 180}
    >>> tables["north"].column_names
    ['age', 'pressure', 'bmi', 'stay', 'ward', 'sex']
    """
    if name == "digits":
        return _digits(seed)
    if name not in NAMES:
        raise InputError(f"there is no data set {name!r}: choose one of {', '.join(NAMES)}")
    kinds = CLINICS if name == "clinics" else BANK
    return {
        site: _drawn(kinds, counts, np.random.default_rng([seed, NAMES.index(name), i]))
        for i, (site, counts) in enumerate(WHERE[name].items())
    }


def _drawn(
    kinds: Mapping[str, tuple[Numbers, Texts]], counts: Mapping[str, int], rng: np.random.Generator
) -> pa.Table:
    """Draw the table of a site: so many rows of each kind, shuffled, with some values missing."""
    kind = np.repeat(list(counts), list(counts.values()))[rng.permutation(sum(counts.values()))]
    numbers, texts = next(iter(kinds.values()))
    columns: dict[str, Any] = {}
    for name in numbers:
        mean, deviation = np.array([kinds[each][0][name] for each in kind]).T
        drawn = rng.normal(mean, deviation)
        columns[name] = (np.exp(drawn) if name in LOGARITHMS else drawn).round(1)
    columns["age"] = columns["age"].clip(18)
    missing = rng.random(len(kind)) < 0.03
    columns[list(numbers)[1]] = pa.array(columns[list(numbers)[1]], mask=missing)
    for name in texts:
        usual = [kinds[each][1][name] for each in kind]
        others = rng.choice(sorted({known[name] for _, known in kinds.values()}), len(kind))
        columns[name] = np.where(rng.random(len(kind)) < 0.9, usual, others)
    return pa.table(columns)


def _digits(seed: int) -> dict[str, pa.Table]:
    names = load_digits().feature_names
    return {
        site: pa.table(dict(zip(names, digits.X.T, strict=True)))
        for site, digits in digits_by_site(seed).items()
    }


def write(name: str, folder: str | Path, *, seed: int = 0) -> list[Path]:
    """Write a data set as one CSV file for each site, and return the files.

    Parameters
    ----------
    name : {"clinics", "bank", "digits"}
        As of `load`.
    folder : path
        The folder, which is made where it is not there.
    seed : int, default=0
        Other seeds give other draws.

    Returns
    -------
    list of Path
        The files that were written.

    Raises
    ------
    InputError
        If there is no such data set, or a file is there already: nothing is written then.
    """
    tables = load(name, seed=seed)
    files = {Path(folder) / f"{site}.csv": table for site, table in tables.items()}
    if there := [file for file in files if file.exists()]:
        raise InputError(f"{there[0]} is there already: choose another --out")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for file, table in files.items():
            csv.write_csv(table, file, csv.WriteOptions(quoting_style="needed"))
    except OSError as error:
        raise InputError(f"{folder} cannot be written to: {error.strerror or error}") from error
    return list(files)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a data set from the command line, and return the exit status."""
    parser = ArgumentParser("python -m fedcluster.datasets", description="Write files to try.")
    parser.add_argument("name", choices=NAMES, help="which data set")
    parser.add_argument("--out", help="the folder; default: the data set's name")
    parser.add_argument("--seed", type=int, default=0, help="other seeds give other draws")
    given = parser.parse_args(arguments)
    try:
        files = write(given.name, given.out or given.name, seed=given.seed)
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    said = f"Wrote {', '.join(map(str, files))}. Next:\n"
    k = 10 if given.name == "digits" else "auto"
    said += f"fedcluster fit {' '.join(map(str, files))} -k {k} --out {given.name}-result\n"
    sys.stdout.write(said)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
