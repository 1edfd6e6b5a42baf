"""A site's own codes become those that all sites share, as its rows are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from fedcluster.core import Column, Data
from fedcluster.errors import InputError
from fedcluster.io._columns import codes, columns_of
from fedcluster.io._sources import OpenRows

Meanings = Mapping[str, Mapping[str, str]]
"""By column: what each of a site's own codes is called by all sites."""


class CommonCodes:
    """Rows in common codes.

    Parameters
    ----------
    rows : OpenRows
        The rows with the site's own codes.
    meanings : mapping of str to mapping of str to str
        By column, the common name of each code.
    owner : str
        How an error message begins, such as "site 'north'".
    """

    def __init__(self, rows: OpenRows, meanings: Meanings, owner: str) -> None:
        self._rows, self._meanings, self._owner = rows, meanings, owner

    def __repr__(self) -> str:
        return f"CommonCodes({self._rows!r})"

    def __len__(self) -> int:
        """The number of rows, of those without weight too."""
        return len(self._rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to cluster by."""
        return self._rows.columns

    def chunks(self) -> Iterator[Data]:
        """The rows in parts."""
        return (
            in_common_codes(chunk, self._meanings, self._owner) for chunk in self._rows.chunks()
        )

    def load(self) -> Data:
        """All rows."""
        return in_common_codes(self._rows.load(), self._meanings, self._owner)


def in_common_codes(data: Data, meanings: Meanings, owner: str) -> Data:
    """Rows whose codes are replaced by their meanings; what is missing stays so.

    Raises
    ------
    InputError
        If a column holds a code of which nothing is said.

    Examples
    --------
    >>> rows = Data(np.array([[2.0], [1.0], [np.nan]]), columns=(Column("sex"),))
    >>> found = in_common_codes(rows, {"sex": {"1": "M", "2": "F"}}, "site 'north'")
    >>> found.columns, found.X.ravel()
    ((Column(name='sex', kind='text', levels=('F', 'M')),), array([ 0.,  1., nan]))
    """
    X, columns = data.X.copy(), list(columns_of(data))
    for j, column in enumerate(columns):
        if (meaning := meanings.get(column.name)) is None:
            continue
        own, code = codes(data, j)
        there = ~np.isnan(code)
        used = np.unique(code[there].astype(np.intp))
        if unknown := [own[i] for i in used if own[i] not in meaning]:
            raise InputError(
                f"{owner}, column {column.name!r}: [codes] does not say what {unknown[0]!r} means; "
                f"it knows {', '.join(map(repr, meaning))}"
            )
        levels = tuple(sorted(set(meaning.values())))
        place = np.array([levels.index(meaning[c]) if c in meaning else -1 for c in own])
        if there.any():
            X[there, j] = place[code[there].astype(np.intp)]
        columns[j] = Column(column.name, "text", levels)
    return replace(data, X=X, columns=tuple(columns))
