"""Data sets to try: clinics, a bank, and handwritten digits.

``python -m fedcluster_app.datasets clinics --out clinics`` writes files. The clinics and the bank
are simulated and contain no personal data; the digits, at five sites that each saw only some of
them, are those of scikit-learn.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from subprocess import list2cmdline
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from pyarrow import csv
from sklearn.datasets import load_digits

from fedcluster.core import Data
from fedcluster.errors import InputError, reason
from fedcluster.texts import replace_unknown_signs

SITES = ("Amsterdam", "Berlin", "Lisbon", "Oslo", "Vienna")


def digits_by_site(seed: int = 0) -> dict[str, Data]:
    """Split scikit-learn's 1797 digits over five sites.

    Each site saw four of the ten digits; each digit was seen at two sites, which share its images
    unevenly. Rows are the grey values of 64 pixels, from 0 to 16; labels, only for comparison, are
    the digits that were written.

    Examples
    --------
    >>> sites = digits_by_site(seed=0)
    >>> {site: tuple(np.unique(digits.y).tolist()) for site, digits in sites.items()}
    {'Amsterdam': (2, 4, 6, 7), 'Berlin': (2, 3, 5, 7), 'Lisbon': (0, 3, 5, 9),
     'Oslo': (0, 1, 8, 9), 'Vienna': (1, 4, 6, 8)}
    """
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(10)
    site = np.empty(len(y), dtype=np.intp)
    for place, digit in enumerate(order):
        images = rng.permutation(np.flatnonzero(y == digit))
        cut = round(len(images) * rng.uniform(0.15, 0.85))
        first = place // 2
        site[images[:cut]], site[images[cut:]] = first, (first - 1) % len(SITES)
    return {name: Data(X[site == i], y=y[site == i]) for i, name in enumerate(SITES)}


__all__ = ["NAMES", "load", "sites_by_label", "write"]

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
"""For each kind of rows, mean and deviation of each number, and the usual level of each text."""
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
"""Number of rows of each kind at each site."""
LOGARITHMS = ("stay", "balance", "calls")
"""Columns whose logarithms are normal, as is nearly so for stays and balances."""


def load(name: str, *, seed: int = 0) -> dict[str, pa.Table]:
    """Return a data set as one table for each site.

    Parameters
    ----------
    name : {"clinics", "bank", "digits"}
        Simulated patients of three clinics, with wards, sexes and some missing values; simulated
        customers of a bank by job; or scikit-learn's 1,797 handwritten digits, of which each of
        five sites saw four.
    seed : int, default=0
        Seed of the random draws.

    Returns
    -------
    dict of str to pyarrow.Table
        The rows of each site.

    Raises
    ------
    InputError
        If there is no data set with that name.

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


def sites_by_label(
    labels: ArrayLike,
    n_sites: int,
    *,
    alpha: float | None = None,
    labels_per_site: int | None = None,
    min_rows: int = 2,
    seed: int = 0,
) -> NDArray[np.intp]:
    """Return the site of each row, for sites that are alike or that differ in their labels.

    Parameters
    ----------
    labels : array_like of shape (n,)
        The labels in which sites differ, such as classes or true clusters.
    n_sites : int
        The number of sites s.
    alpha : float, optional
        The concentration of a symmetric Dirichlet distribution, from which the shares of the sites
        in the rows of each label are drawn (Yurochkin et al., Bayesian nonparametric federated
        learning of neural networks, ICML 2019): 0.1 gives very different sites, 100 nearly equal
        ones. All labels are drawn again until each site has ``min_rows`` rows.
    labels_per_site : int, optional
        The number of shards at each site. Rows sorted by label are cut into this many shards per
        site, as equal as possible, and sites take shards at random (McMahan et al.,
        Communication-efficient learning of deep networks from decentralized data, AISTATS 2017).
        Without this and ``alpha``, rows are distributed randomly and evenly.
    min_rows : int, default=2
        The smallest number of rows of a site.
    seed : int, default=0
        Seed of the draw.

    Returns
    -------
    ndarray of shape (n,)
        Numbers of sites from 0 to s - 1, for ``fit(X, sites=...)``.

    Raises
    ------
    InputError
        If both ways are requested, or sites would have fewer rows.

    Examples
    --------
    >>> labels = np.repeat([0, 1, 2], 40)
    >>> for way in ({}, {"alpha": 0.3}, {"labels_per_site": 1}):
    ...     sites = sites_by_label(labels, 3, **way)
    ...     print(*(np.bincount(labels[sites == i], minlength=3) for i in range(3)))
    [14 15 11] [ 9 19 12] [17  6 17]
    [ 4 29 32] [34  0  0] [ 2 11  8]
    [ 0 40  0] [ 0  0 40] [40  0  0]
    """
    if alpha is not None and labels_per_site is not None:
        raise InputError("give alpha or labels_per_site, and not both")
    for name, value in (("alpha", alpha), ("labels_per_site", labels_per_site)):
        if value is not None and not value > 0:
            raise InputError(f"{name} must be above 0, not {value}")
    rng, label = np.random.default_rng(seed), np.unique(labels, return_inverse=True)[1]
    n_shards = n_sites * (labels_per_site or 1)
    if len(label) < max(n_sites * min_rows, n_shards):
        raise InputError(f"{len(label)} rows are too few for {n_sites} sites")
    if alpha is not None:
        return _by_dirichlet(label, n_sites, alpha, min_rows, rng)
    order = rng.permutation(len(label))
    if labels_per_site is not None:
        order = order[np.argsort(label[order], kind="stable")]
    shard = np.empty(len(label), np.intp)
    shard[order] = np.arange(len(label)) * n_shards // len(label)
    return (rng.permutation(n_shards) % n_sites)[shard]


def _by_dirichlet(
    label: NDArray[np.intp],
    n_sites: int,
    alpha: float,
    min_rows: int,
    rng: np.random.Generator,
    *,
    most_draws: int = 100,
) -> NDArray[np.intp]:
    """Return the site of each row, with Dirichlet shares of the sites in each label.

    ``most_draws``: number of draws of Dirichlet shares after which too small sites are an error.
    """
    site = np.empty(len(label), np.intp)
    for _ in range(most_draws):
        for rows in map(rng.permutation, map(np.flatnonzero, label == np.unique(label)[:, None])):
            ends = np.cumsum(rng.dirichlet(np.full(n_sites, alpha)))[:-1]
            site[rows] = np.searchsorted(ends, (np.arange(len(rows)) + 0.5) / len(rows))
        if np.bincount(site, minlength=n_sites).min() >= min_rows:
            return site
    raise InputError(
        f"with alpha={alpha}, {most_draws} draws left some of {n_sites} sites fewer than "
        f"{min_rows} rows; make alpha larger, or sites fewer"
    )


def _drawn(
    kinds: Mapping[str, tuple[Numbers, Texts]], counts: Mapping[str, int], rng: np.random.Generator
) -> pa.Table:
    """Draw the table of a site: rows of each kind, shuffled, with some values missing."""
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
        As in `load`.
    folder : path
        The folder, which is created if missing.
    seed : int, default=0
        Seed of the random draws.

    Returns
    -------
    list of Path
        The files that were written.

    Raises
    ------
    InputError
        If there is no such data set, or a file exists already and holds something else; then
        nothing is written.
    """
    contents: dict[Path, bytes] = {}
    for site, table in load(name, seed=seed).items():
        csv.write_csv(table, buffer := BytesIO(), csv.WriteOptions(quoting_style="needed"))
        contents[Path(folder) / f"{site}.csv"] = buffer.getvalue()
    try:
        for file, content in contents.items():
            if file.exists() and file.read_bytes() != content:
                raise InputError(f"{file} exists and differs: choose another --out")
        Path(folder).mkdir(parents=True, exist_ok=True)
        for file, content in contents.items():
            file.write_bytes(content)
    except OSError as error:
        raise InputError(f"{folder} cannot be written to: {reason(error)}") from error
    return list(contents)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a data set from the command line, and return the exit status."""
    parser = ArgumentParser("python -m fedcluster_app.datasets", description="Write files to try.")
    parser.add_argument("name", choices=NAMES, help="which data set")
    parser.add_argument("--out", help="the folder; default: the data set's name")
    parser.add_argument("--seed", type=int, default=0, help="other seeds give other draws")
    options = parser.parse_args(arguments)
    replace_unknown_signs()
    try:
        files = write(options.name, options.out or options.name, seed=options.seed)
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    text = f"Wrote {', '.join(map(str, files))}. Next:\n"
    command = ["fedcluster", "fit", *map(str, files)]
    k = "10" if options.name == "digits" else "auto"
    command += ["-k", k, "--out", "result"]
    sys.stdout.write(f"{text}{list2cmdline(command)}\n")  # double quotes work in all shells
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
