"""One coding of texts for all parts of a site's rows, each of which may come with its own."""

from __future__ import annotations

import numpy as np

from fedcluster.core import Column, Data, Rows


class Coding:
    """What the columns of parts hold that have passed, and one number for each of their texts.

    Examples
    --------
    >>> coding = Coding()
    >>> one = Data(np.array([[0.0], [1.0]]), columns=(Column("sex", "text", ("f", "m")),))
    >>> other = Data(np.array([[0.0]]), columns=(Column("sex", "text", ("m",)),))
    >>> coding.recoded(one).ravel().tolist(), coding.recoded(other).ravel().tolist()
    ([0.0, 1.0], [1.0])
    >>> coding.columns
    (Column(name='sex', kind='text', levels=('f', 'm')),)
    """

    def __init__(self) -> None:
        self._kinds: dict[str, set[str]] = {}
        self._numbers: dict[str, dict[str, int]] = {}

    def recoded(self, data: Data) -> Rows:
        """The rows of a part (n, d) in the common coding."""
        X = data.X
        for j, column in enumerate(data.columns):
            empty = bool(np.isnan(data.X[:, j]).all()) and column.kind == "number"
            self._kinds.setdefault(column.name, set()).add("empty" if empty else column.kind)
            if column.levels:
                known = self._numbers.setdefault(column.name, {})
                number = [known.setdefault(level, len(known)) for level in column.levels]
                if number != list(range(len(number))):
                    X = X.copy() if X is data.X else X
                    there = ~np.isnan(X[:, j])
                    X[there, j] = np.array(number)[X[there, j].astype(np.intp)]
        return X

    @property
    def columns(self) -> tuple[Column, ...]:
        """What the columns hold in all parts together."""
        return tuple(
            Column(name, _common(kinds), tuple(self._numbers.get(name, ())))
            for name, kinds in self._kinds.items()
        )


def _common(kinds: set[str]) -> str:
    """What a column holds that holds this in one part and that in another."""
    held = kinds - {"empty"}
    return "mixed" if len(held) > 1 else next(iter(held), "empty")
