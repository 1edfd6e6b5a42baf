"""Made-up patients to play attacks against."""

from __future__ import annotations

import numpy as np

from fedcluster.core import Column, Data

TOWNS = ("Ahlen", "Bonn", "Celle", "Zell")


def simulated(n: int = 400, seed: int = 0, *, missing: float = 0.02) -> Data:
    """Return rows of made-up patients: whole numbers, decimals, a flag, texts and a diagnosis.

    One of them alone lives in Zell, and one alone has the flag.

    Examples
    --------
    >>> [column.name for column in simulated(40).columns]
    ['age', 'weight', 'pressure', 'flag', 'town']
    """
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, n)
    age = rng.normal(np.array([30, 45, 60, 75])[kind], 8).round().clip(18, 99)
    weight = rng.normal(np.array([60, 80, 70, 90])[kind], 9).round(1)
    pressure = rng.normal(np.array([115, 130, 145, 160])[kind], 11).round()
    flag, town = np.zeros(n), rng.integers(0, 3, n).astype(np.float64)
    flag[rng.integers(n)], town[rng.integers(n)] = 1.0, 3.0
    X = np.column_stack([age, weight, pressure, flag, town])
    X[:, :3][rng.random((n, 3)) < missing] = np.nan
    numbers = tuple(Column(name) for name in ("age", "weight", "pressure", "flag"))
    y = rng.choice(["ill", "well"], n, p=[0.3, 0.7])
    return Data(X, None, y, (*numbers, Column("town", "text", TOWNS)))
