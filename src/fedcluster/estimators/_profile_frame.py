"""Profiles of clusters as a data frame of pandas."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcluster._profiles import ColumnProfile, NumberProfile, Profiles
from fedcluster.errors import InputError


def pandas() -> Any:
    """Return the library.

    Raises
    ------
    InputError
        Where it is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise InputError("this needs pip install 'fedcluster[pandas]'") from error
    return pandas


def profile_frame(profiles: Profiles) -> Any:
    """Return a line for each cluster, and one for all, with a column for all that is told.

    Of a column of numbers ``age``, that is its mean as ``age``, and ``age spread``, ``age median``
    and ``age difference``; of a text ``ward``, shares of levels as ``ward=level``, and ``ward
    association``.
    """
    pd, weights = pandas(), profiles.weights
    k = len(weights)
    told: dict[str, Any] = {
        "name": [*profiles.names, "all"],
        "size": np.append(weights, weights.sum()),
        "share": np.append(profiles.shares, profiles.shares.sum()),
        "sites": [*(len(profiles.sites_of(j)) for j in range(k)), len(profiles.sizes)],
    }
    columns = [(name, values) for each in profiles.columns for name, values in _columns(each)]
    frame = pd.DataFrame(told, index=pd.Index([*range(k), "all"], name="cluster"))
    told_of = pd.DataFrame(dict(enumerate(values for _, values in columns)), index=frame.index)
    told_of.columns = [name for name, _ in columns]
    return pd.concat([frame, told_of], axis=1)


def _columns(column: ColumnProfile) -> list[tuple[str, Any]]:
    """Return what is told of one column, by name."""
    name = column.name
    if isinstance(column, NumberProfile):
        return [
            (name, column.means),
            (f"{name} spread", column.spreads),
            (f"{name} median", column.medians),
            (f"{name} difference", np.append(column.differences, np.nan)),
        ]
    levels = zip(column.levels, column.shares.T, strict=True)
    return [
        *((f"{name}={level}", share) for level, share in levels),
        (f"{name} association", np.append(column.associations, np.nan)),
    ]
