"""What a user says of values that are written otherwise than they are meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedcluster.core import Column, Data
from fedcluster.errors import InputError
from fedcluster.io._columns import Meanings, column_list, columns_of


@dataclass(frozen=True, slots=True)
class Mending:
    """Changes of values as they are read, the same wherever the rows come from.

    Parameters
    ----------
    missing : tuple of str
        Values, of numbers or texts, that mean that there is none.
    codes : mapping of str to mapping of str to str
        By column, what some of its texts are called instead; the others stay.
    factors : mapping of str to mapping of str to float
        By site, what its columns are multiplied with.

    Examples
    --------
    >>> rows = Data(np.array([[18.0, 0.0], [-999.0, 1.0]]),
    ...             columns=(Column("sbp"), Column("sex", "text", ("F", "female"))))
    >>> mending = Mending(("-999",), {"sex": {"female": "F"}}, {"west": {"sbp": 7.5}})
    >>> mended = mending.mended(rows, "west")
    >>> mended.X, mended.columns[1].levels
    (array([[135.,   0.],
           [ nan,   0.]]), ('F',))
    """

    missing: tuple[str, ...] = ()
    codes: Meanings = field(default_factory=dict)
    factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def mended(self, data: Data, site: str) -> Data:
        """Return the rows of a site as they are meant."""
        factors = self.factors.get(site, {})
        if not (self.missing or self.codes or factors):
            return data
        columns = list(columns_of(data))
        names = [column.name for column in columns]
        if unknown := [name for name in factors if name not in names]:
            raise InputError(f"--factor: site {site!r} has no column {unknown[0]!r} to multiply")
        X = data.X.copy()
        numbers = [float(text) for text in self.missing if _is_number(text)]
        for j, column in enumerate(columns):
            if column.kind == "number":
                X[np.isin(X[:, j], numbers), j] = np.nan
                X[:, j] *= factors.get(column.name, 1.0)
            elif column.kind == "text":
                columns[j] = self._renamed(column, X, j)
        return replace(data, X=X, columns=tuple(columns) if data.columns else ())

    def _renamed(self, column: Column, X: np.ndarray, j: int) -> Column:
        """Return a column of text with the names that are meant, and change its codes."""
        meaning = self.codes.get(column.name, {})
        if not meaning and not set(self.missing) & set(column.levels):
            return column
        meant = [None if t in self.missing else meaning.get(t, t) for t in column.levels]
        levels = sorted({level for level in meant if level is not None})
        place = np.array([np.nan if t is None else levels.index(t) for t in meant])
        there = ~np.isnan(X[:, j])
        X[there, j] = place[X[there, j].astype(np.intp)]
        return Column(column.name, "text", tuple(levels))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_mending(
    missing: str | None, codes: str | None, factors: Sequence[str] | str | None
) -> Mending:
    """Return what the options of a command say.

    Examples
    --------
    >>> mending = read_mending("-999,unknown", "sex:female=F,sex:male=M", "west:sbp=7.5")
    >>> mending.missing, mending.codes, mending.factors
    (('-999', 'unknown'), {'sex': {'female': 'F', 'male': 'M'}}, {'west': {'sbp': 7.5}})
    """
    by_site: dict[str, dict[str, float]] = {}
    for site, name, value in _triples(factors, "--factor", "west:sbp=7.5"):
        if not _is_number(value) or not 0 < abs(float(value)) < np.inf:
            raise InputError(f"--factor {site}:{name}={value}: {value!r} is no factor")
        by_site.setdefault(site, {})[name] = float(value)
    by_column: dict[str, dict[str, str]] = {}
    for name, text, meant in _triples(codes, "--codes", "sex:female=F"):
        by_column.setdefault(name, {})[text] = meant
    return Mending(tuple(column_list(missing, "--missing-values") or ()), by_column, by_site)


def _triples(text: object, option: str, example: str) -> list[tuple[str, str, str]]:
    """Return A:B=C, with commas between, as triples."""
    parts = column_list(text, option) if isinstance(text, str) else []
    triples = []
    for part in parts or []:
        both, equals, value = part.rpartition("=")
        first, colon, second = both.partition(":")
        if not (equals and colon and first.strip() and second.strip() and value.strip()):
            raise InputError(f"{option} {part!r} must be as in {example}, with commas between")
        triples.append((first.strip(), second.strip(), value.strip()))
    return triples
