"""Profiles of clusters: what their rows look like in each column, and what sets them apart.

Names of clusters in words, from what sets each apart: "older, high bp, cardiology".
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar, Self

import numpy as np

from fedcluster.core import Floats
from fedcluster.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class NumberProfile:
    """Profile of a column of numbers, in its own units; k clusters, and last all of them together.

    Parameters
    ----------
    name : str
        The column.
    weights : ndarray of shape (k + 1,)
        The weight of the rows that have a value; missing ones count nowhere.
    means, spreads : ndarray of shape (k + 1,)
        Mean and standard deviation, the root of the mean square (n in the denominator, not n - 1);
        NaN without values.
    medians, steps : ndarray of shape (k + 1,)
        The median, and the step to which it is known; NaN without values.

    Attributes
    ----------
    differences : ndarray of shape (k,)
        Cohen's d of each cluster and all others.
    """

    kind: ClassVar[str] = "number"
    name: str
    weights: Floats
    means: Floats
    spreads: Floats
    medians: Floats
    steps: Floats

    @property
    def differences(self) -> Floats:
        """Return Cohen's d of each cluster and all others, (k,)."""
        own = self.weights[:-1], self.means[:-1], self.spreads[:-1]
        return standardised_differences(*own)

    @property
    def effects(self) -> Floats:
        """Return how far each column sets the clusters apart, (k,): the size of Cohen's d."""
        return np.abs(self.differences)

    def plain(self, j: int) -> dict[str, Any]:
        """Return the profile of cluster j as JSON can hold it; -1 stands for all clusters."""
        told = {
            "weight": float(self.weights[j]),
            "mean": float(self.means[j]),
            "spread": float(self.spreads[j]),
            "median": float(self.medians[j]),
            "median_step": float(self.steps[j]),
        }
        return told if j < 0 else told | {"difference": float(self.differences[j])}


@dataclass(frozen=True, slots=True, eq=False)
class TextProfile:
    """Profile of a column of text; k clusters, and last all of them together.

    Parameters
    ----------
    name : str
        The column.
    levels : tuple of str
        Its l levels.
    weights : ndarray of shape (k + 1,)
        The weight of the rows that have a text.
    counts : ndarray of shape (k + 1, l)
        That of the rows of each level.

    Attributes
    ----------
    shares : ndarray of shape (k + 1, l)
        Of the rows that have a text, those of each level.
    associations : ndarray of shape (k,)
        Cramér's V of the levels and of being in the cluster.
    """

    kind: ClassVar[str] = "text"
    name: str
    levels: tuple[str, ...]
    weights: Floats
    counts: Floats

    @property
    def shares(self) -> Floats:
        """Return the share of each level, (k + 1, l)."""
        known = np.maximum(self.weights, self.counts.sum(axis=1))[:, None]
        shares: Floats = self.counts / np.where(known > 0, known, np.nan)
        return shares

    @property
    def associations(self) -> Floats:
        """Return Cramér's V of the levels and of being in each cluster, (k,)."""
        every = self.counts[:-1]
        return np.array([cramers_v(np.array([own, every.sum(axis=0) - own])) for own in every])

    @property
    def effects(self) -> Floats:
        """Return the Cohen's d that a column of 0 and 1 with the same V would have, (k,).

        The correlation r of such a column with being in the cluster, a share p of the rows, is
        that of d = r / sqrt(p (1 - p) (1 - r^2)): V and d can be ranked together.
        """
        p = self.weights[:-1] / max(float(self.weights[:-1].sum()), 1e-300)
        v = self.associations
        with np.errstate(divide="ignore", invalid="ignore"):
            effects: Floats = v / np.sqrt(p * (1.0 - p) * (1.0 - v**2))
        return np.where(v == 0, 0.0, effects)

    def typical(self, j: int) -> int:
        """Return the level that is more frequent in cluster j than elsewhere by most."""
        own, every = self.counts[j], self.counts[:-1].sum(axis=0)
        rest = every - own
        apart = own / max(own.sum(), 1e-300) - rest / max(rest.sum(), 1e-300)
        return int(np.argmax(apart))

    def plain(self, j: int) -> dict[str, Any]:
        """Return the profile of cluster j as JSON can hold it; -1 stands for all clusters."""
        shares = dict(zip(self.levels, self.shares[j].tolist(), strict=True))
        told = {"weight": float(self.weights[j]), "shares": shares}
        return told if j < 0 else told | {"association": float(self.associations[j])}


ColumnProfile = NumberProfile | TextProfile


@dataclass(frozen=True, slots=True, eq=False)
class Profiles:
    """Profiles of k clusters over all sites.

    Parameters
    ----------
    sizes : mapping of str to ndarray of shape (k,)
        The weight of each cluster's rows, by site.
    columns : tuple of NumberProfile or TextProfile
        The columns.
    names : tuple of str
        What the clusters are called.
    silhouettes : ndarray of shape (2, k), optional
        The mean and the standard deviation of the simplified silhouettes of each cluster's rows:
        how much nearer its own centre is than the next, from 1 (at the centre) over 0 (halfway) to
        -1. None where there is no second centre, or where values that are missing stay so.
    totals : ndarray of shape (k,), optional
        The weight of each cluster's rows over all sites, where sizes are rounded; else their sum.

    Examples
    --------
    >>> age = NumberProfile(
    ...     "age", np.array([10.0, 30.0, 40.0]), np.array([80.0, 40.0, 50.0]),
    ...     np.array([5.0, 5.0, 18.0]), np.array([80.0, 40.0, 42.0]), np.ones(3)
    ... )
    >>> sizes = {"north": np.array([10.0, 0.0]), "south": np.array([0.0, 30.0])}
    >>> profiles = Profiles(sizes, (age,))
    >>> profiles.shares, profiles.sites_of(0), round(profiles.ranked(0)[0][1], 2)
    (array([0.25, 0.75]), ('north',), 7.8)
    """

    sizes: Mapping[str, Floats]
    columns: tuple[ColumnProfile, ...]
    names: tuple[str, ...] = ()
    silhouettes: Floats | None = None
    totals: Floats | None = None

    @property
    def weights(self) -> Floats:
        """Return the weight of each cluster's rows over all sites, (k,)."""
        if self.totals is not None:
            return self.totals
        weights: Floats = np.sum(list(self.sizes.values()), axis=0)
        return weights

    @property
    def shares(self) -> Floats:
        """Return each cluster's share of all rows in a cluster, (k,)."""
        weights = self.weights
        shares: Floats = weights / max(float(weights.sum()), 1e-300)
        return shares

    def sites_of(self, j: int) -> tuple[str, ...]:
        """Return the sites that told of rows of cluster j."""
        return tuple(site for site, sizes in self.sizes.items() if sizes[j] > 0)

    def ranked(self, j: int) -> list[tuple[ColumnProfile, float]]:
        """Return the columns with their effects, that which sets cluster j apart most first.

        A column whose effect is not known comes last.
        """
        effects = [float(column.effects[j]) for column in self.columns]
        order = sorted(
            range(len(effects)), key=lambda i: math.inf if math.isnan(effects[i]) else -effects[i]
        )
        return [(self.columns[i], effects[i]) for i in order]

    def named(self, names: Sequence[str]) -> Self:
        """Return the same profiles with other names of the clusters."""
        return replace(self, names=tuple(names))

    def plain(self) -> dict[str, Any]:
        """Return the profiles as JSON can hold them; numbers may be NaN or infinite.

        The columns of a cluster come in the order of `ranked`.
        """
        weights, shares = self.weights.tolist(), self.shares.tolist()
        clusters = [
            {
                "cluster": j,
                "name": self.names[j] if self.names else str(j),
                "weight": weights[j],
                "share": shares[j],
                "sites": {site: float(self.sizes[site][j]) for site in self.sites_of(j)},
                **self._silhouette(j),
                "columns": [
                    {"column": column.name, "kind": column.kind, "effect": effect} | column.plain(j)
                    for column, effect in self.ranked(j)
                ],
            }
            for j in range(len(weights))
        ]
        every = [{"column": c.name, "kind": c.kind} | c.plain(-1) for c in self.columns]
        return {"clusters": clusters, "all": {"weight": sum(weights), "columns": every}}

    def _silhouette(self, j: int) -> dict[str, float]:
        """Return the silhouettes of cluster j as JSON can hold them; empty if unknown."""
        if self.silhouettes is None:
            return {}
        mean, spread = self.silhouettes[:, j].tolist()
        return {"silhouette": mean, "silhouette_spread": spread}


def standardised_differences(weights: Floats, means: Floats, spreads: Floats) -> Floats:
    """Return Cohen's d of each of k groups and all others together, (k,).

    d = (m_1 - m_2) / s with s^2 = (S_1 + S_2) / (n_1 + n_2 - 2), S sums of squares about the own
    mean: J. Cohen, Statistical Power Analysis for the Behavioral Sciences, 2nd ed. 1988, section
    2.5, equations 2.5.1 and 2.5.2. A weight counts as so many rows.

    Parameters
    ----------
    weights, means, spreads : ndarray of shape (k,)
        Of the groups; the spreads have n in the denominator.

    Returns
    -------
    ndarray of shape (k,)
        NaN where a group or all others have no rows, or both have one; infinite where nothing
        spreads and the means differ.

    Examples
    --------
    >>> standardised_differences(np.array([2.0, 2.0]), np.array([3.0, 1.0]), np.ones(2)).round(4)
    array([ 1.4142, -1.4142])
    """
    differences = np.full(len(weights), np.nan)
    some = weights > 0
    for j in np.flatnonzero(some):
        others = some.copy()
        others[j] = False
        n, m = weights[others], means[others]
        if not len(n) or weights[j] + n.sum() <= 2:
            continue
        rest = m[0] + float(n @ (m - m[0])) / float(n.sum())  # one of them keeps its own bits
        squares = weights[j] * spreads[j] ** 2
        squares += float(n @ (spreads[others] ** 2 + (m - rest) ** 2))
        differences[j] = _ratio(means[j] - rest, math.sqrt(squares / (weights[j] + n.sum() - 2)))
    return differences


def _ratio(apart: float, spread: float) -> float:
    if spread > 0:
        return float(apart / spread)
    return 0.0 if apart == 0 else math.copysign(math.inf, apart)


def cramers_v(table: Floats) -> float:
    """Return Cramér's V of a table of counts: 0 where lines have the same shares, 1 at most.

    V = sqrt(chi^2 / (n (min(r, c) - 1))), r and c the lines and columns that have rows: H. Cramér,
    Mathematical Methods of Statistics, 1946, section 21.9.

    Returns
    -------
    float
        NaN without two lines that have rows; 0 where all rows are in one column.

    Examples
    --------
    >>> cramers_v(np.array([[10.0, 0.0], [0.0, 10.0]])), cramers_v(np.array([[5.0, 5.0]] * 2))
    (1.0, 0.0)
    """
    table = table[table.sum(axis=1) > 0]
    table = table[:, table.sum(axis=0) > 0]
    if len(table) < 2:
        return math.nan
    if table.shape[1] < 2:
        return 0.0
    n = table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    chi = float(((table - expected) ** 2 / expected).sum())
    return min(1.0, math.sqrt(chi / (n * (min(table.shape) - 1))))


TELLING, SLIGHT = 0.5, 0.2
"""Effects from which on a column is named, and where that does not tell clusters apart: medium and
small ones after J. Cohen, Statistical Power Analysis for the Behavioral Sciences, 2nd ed. 1988."""
TERMS = 3
"""Columns in a name, where these tell the clusters apart."""
AGES = re.compile(r"\b(age|alter)\b", re.IGNORECASE)
PLAIN = re.compile(r"y|n|yes|no|ja|nein|true|false|other|unknown|.|[\d.,<>=+ -]*", re.IGNORECASE)
"""Levels that say nothing without the name of their column."""
LONGEST = 200
"""Characters of a name that is given."""


def proposed(profiles: Profiles) -> tuple[str, ...]:
    """Return a name for each cluster, each another one, from what sets it apart most.

    Examples
    --------
    >>> import numpy as np
    >>> n = np.array([50.0, 50.0, 100.0])
    >>> age = NumberProfile("age", n, np.array([80.0, 40.0, 60.0]), np.full(3, 5.0), n, n)
    >>> proposed(Profiles({"north": n[:-1]}, (age,)))
    ('older', 'younger')
    """
    k = len(profiles.weights)
    if k == 1:
        return ("all rows",)
    names = [_name(profiles, j, TERMS, TELLING) for j in range(k)]
    for n_terms in range(TERMS + 1, 2 * TERMS + 1):
        often = Counter(names)
        names = [
            _name(profiles, j, n_terms, SLIGHT) if often[name] > 1 else name
            for j, name in enumerate(names)
        ]
    return _numbered(names)


def _name(profiles: Profiles, j: int, n_terms: int, least: float) -> str:
    """Return what sets cluster j apart most, in words: numbers first, then texts."""
    if not profiles.weights[j] > 0:
        return "no rows"
    ranked = [column for column, effect in profiles.ranked(j) if effect >= least][:n_terms]
    ranked.sort(key=lambda column: not isinstance(column, NumberProfile))
    return ", ".join(dict.fromkeys(_term(column, j) for column in ranked)) or "average"


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, those that come again with a number.

    Examples
    --------
    >>> _numbered(["old", "young", "old"])
    ('old', 'young', 'old (2)')
    """
    different: list[str] = []
    for name in names:
        tried = (name if i == 1 else f"{name} ({i})" for i in count(1))
        different.append(next(each for each in tried if each not in different))
    return tuple(different)


def _term(column: ColumnProfile, j: int) -> str:
    """Return in words how cluster j differs from the others in a column."""
    words = " ".join(column.name.replace("_", " ").split()) or column.name
    if isinstance(column, NumberProfile):
        high = bool(column.differences[j] > 0)
        if _is_zero_or_one(column):
            return f"{words}={int(high)}"
        if AGES.search(words):
            return "older" if high else "younger"
        return f"{'high' if high else 'low'} {words}"
    at = column.typical(j)
    level = column.levels[at]
    named = f"{words} {level}" if PLAIN.fullmatch(level.strip("()")) else level
    return named if column.shares[j, at] >= 0.5 else f"more {named}"


def _is_zero_or_one(column: NumberProfile) -> bool:
    """Return whether all values are 0 or 1: then the mean square is the mean, and only then.

    So it is for other values between and beyond 0 and 1 that balance each other, which is rare.
    """
    mean, spread = column.means[-1], column.spreads[-1]
    return bool(math.isclose(spread**2 + mean**2, mean, rel_tol=1e-9) and 0.0 < mean < 1.0)


def checked_names(names: Sequence[str], k: int) -> tuple[str, ...]:
    """Return names of k clusters, without blanks at their ends.

    Raises
    ------
    InputError
        If they are not as many, or one is empty, too long, not printable, or comes twice.
    """
    given = tuple(str(name).strip() for name in names)
    if len(given) != k:
        raise InputError(f"{k} clusters need {k} names, not {len(given)}")
    for name in given:
        if not 0 < len(name) <= LONGEST or not name.isprintable():
            raise InputError(
                f"a cluster's name has 1 to {LONGEST} characters that can be printed, not {name!r}"
            )
    if twice := [name for name, often in Counter(given).items() if often > 1]:
        raise InputError(f"two clusters cannot both be called {twice[0]!r}")
    return given
