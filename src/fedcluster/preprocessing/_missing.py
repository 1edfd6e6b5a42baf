"""How many values are missing, by site and column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedcluster.core import Answers, Data, State, Summary
from fedcluster.errors import InputError


@dataclass(frozen=True, slots=True)
class Missing:
    """How many values of each column are missing, out of how many rows.

    A site sends 2 d numbers: a line for each column. Rows are counted, whatever they weigh.

    Examples
    --------
    >>> rows = Data(np.array([[1.0, 5.0], [2.0, np.nan]]))
    >>> Missing().client_step(State(), rows, np.random.default_rng(0)).sums.ravel()
    array([0., 1.])
    """

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each column."""
        return n_columns, 1

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Counts of NaN."""
        n, d = data.X.shape
        return Summary(
            np.isnan(data.X).sum(axis=0, dtype=np.float64)[:, None], np.full(d, float(n))
        )


def missing_by_site(answers: Answers, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """The numbers of missing values by site and column, of those that lack some."""
    found = {
        site: {name: int(n) for name, n in zip(names, answer.sums[:, 0], strict=True) if n}
        for site, answer in answers.by_site.items()
    }
    return {site: columns for site, columns in found.items() if columns}


def refuse_empty(answers: Answers, names: Sequence[str]) -> None:
    """Refuse columns of which a site has no value at all: nothing there tells how to fill them.

    Raises
    ------
    InputError
        Naming every such site and column.
    """
    empty = [
        f"column {name!r} at {site}"
        for site, answer in answers.by_site.items()
        for name, n, rows in zip(names, answer.sums[:, 0], answer.weights, strict=True)
        if rows and n == rows
    ]
    if empty:
        raise InputError(f"every value is missing of {'; '.join(empty)}; leave out column or site")


def refuse_missing(missing: Mapping[str, Mapping[str, int]]) -> None:
    """Refuse missing values, naming every site and column.

    Raises
    ------
    InputError
        If there is one.
    """
    if missing:
        where = "; ".join(
            f"{n} of {name!r} at {site}"
            for site, columns in missing.items()
            for name, n in columns.items()
        )
        raise InputError(
            f"values are missing: {where}; drop their rows or fill them in: missing is one of "
            "drop, mean and median"
        )
