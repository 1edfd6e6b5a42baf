"""Profiles of clusters: the columns of their rows, and how clusters differ.

Clusters are named in words by their differences: "older, high bp, cardiology".
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any, ClassVar, Self

import numpy as np

from fedcluster.core import Floats


@dataclass(frozen=True, eq=False)
class NumberProfile:
    """Profile of a numeric column, in its own units; for k clusters, then all together.

    Parameters
    ----------
    name : str
        The column.
    weights : ndarray of shape (k + 1,)
        The weight of the rows with a value; missing values are ignored.
    means, spreads : ndarray of shape (k + 1,)
        Mean and standard deviation (with n in the denominator, not n - 1); NaN without values.
    medians, steps : ndarray of shape (k + 1,)
        The median, and its resolution; NaN without values.

    Attributes
    ----------
    differences : ndarray of shape (k,)
        Cohen's d between each cluster and all others.
    """

    kind: ClassVar[str] = "number"
    name: str
    weights: Floats
    means: Floats
    spreads: Floats
    medians: Floats
    steps: Floats

    @cached_property
    def differences(self) -> Floats:
        """Cohen's d between each cluster and all others, (k,)."""
        own = self.weights[:-1], self.means[:-1], self.spreads[:-1]
        return standardised_differences(*own)

    @cached_property
    def effects(self) -> Floats:
        """The absolute value of Cohen's d, (k,)."""
        return np.abs(self.differences)

    def plain(self, j: int) -> dict[str, Any]:
        """Return the profile of cluster j as JSON-compatible values; -1 stands for all clusters."""
        content = {
            "weight": float(self.weights[j]),
            "mean": float(self.means[j]),
            "spread": float(self.spreads[j]),
            "median": float(self.medians[j]),
            "median_step": float(self.steps[j]),
        }
        return content if j < 0 else content | {"difference": float(self.differences[j])}


@dataclass(frozen=True, eq=False)
class TextProfile:
    """Profile of a text column; for k clusters, then all together.

    Parameters
    ----------
    name : str
        The column.
    levels : tuple of str
        Its l levels.
    weights : ndarray of shape (k + 1,)
        The weight of the rows with a text.
    counts : ndarray of shape (k + 1, l)
        The weight of the rows with each level.

    Attributes
    ----------
    shares : ndarray of shape (k + 1, l)
        The share of each level among the rows with a text.
    associations : ndarray of shape (k,)
        Cramér's V between the levels and membership in the cluster.
    """

    kind: ClassVar[str] = "text"
    name: str
    levels: tuple[str, ...]
    weights: Floats
    counts: Floats

    @property
    def shares(self) -> Floats:
        """The share of each level, (k + 1, l)."""
        known = np.maximum(self.weights, self.counts.sum(axis=1))[:, None]
        shares: Floats = self.counts / np.where(known > 0, known, np.nan)
        return shares

    @cached_property
    def associations(self) -> Floats:
        """Cramér's V between the levels and membership in each cluster, (k,)."""
        every = self.counts[:-1]
        return np.array([cramers_v(np.array([own, every.sum(axis=0) - own])) for own in every])

    @cached_property
    def effects(self) -> Floats:
        """The Cohen's d that a column of 0 and 1 with the same V would have, (k,).

        If such a column has the correlation r with membership in the cluster, which has a share p
        of the rows, then d = r / sqrt(p (1 - p) (1 - r^2)). Thus V and d can be ranked together.
        """
        p = self.weights[:-1] / max(float(self.weights[:-1].sum()), 1e-300)
        v = self.associations
        with np.errstate(divide="ignore", invalid="ignore"):
            effects: Floats = v / np.sqrt(p * (1.0 - p) * (1.0 - v**2))
        return np.where(v == 0, 0.0, effects)

    def typical(self, j: int) -> int:
        """Return the level whose share in cluster j exceeds that elsewhere the most."""
        own, every = self.counts[j], self.counts[:-1].sum(axis=0)
        rest = every - own
        apart = own / max(own.sum(), 1e-300) - rest / max(rest.sum(), 1e-300)
        return int(np.argmax(apart))

    def plain(self, j: int) -> dict[str, Any]:
        """Return the profile of cluster j as JSON-compatible values; -1 stands for all clusters."""
        shares = dict(zip(self.levels, self.shares[j].tolist(), strict=True))
        content = {"weight": float(self.weights[j]), "shares": shares}
        return content if j < 0 else content | {"association": float(self.associations[j])}


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
        The names of the clusters.
    silhouettes : ndarray of shape (2, k), optional
        The mean and the standard deviation of the simplified silhouettes of each cluster's rows,
        from 1 (at the own centre) over 0 (halfway to the next one) to -1. None if there is no
        second centre, or if missing values are kept.
    totals : ndarray of shape (k,), optional
        The weight of each cluster's rows over all sites, if sizes are rounded; by default their
        sum.

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
    telling = 0.5  # effect from which on a column is part of a name
    slight = 0.2
    """The same, of a name that would not be unique: medium and small effects after J. Cohen,
    Statistical Power Analysis for the Behavioral Sciences, 2nd ed. 1988."""
    terms = 3  # columns in a name, if these distinguish the clusters

    @property
    def weights(self) -> Floats:
        """The weight of each cluster's rows over all sites, (k,)."""
        if self.totals is not None:
            return self.totals
        weights: Floats = np.sum(list(self.sizes.values()), axis=0)
        return weights

    @property
    def shares(self) -> Floats:
        """Each cluster's share of all rows in clusters, (k,)."""
        weights = self.weights
        shares: Floats = weights / max(float(weights.sum()), 1e-300)
        return shares

    def sites_of(self, j: int) -> tuple[str, ...]:
        """Return the sites that reported rows in cluster j."""
        return tuple(site for site, sizes in self.sizes.items() if sizes[j] > 0)

    def ranked(self, j: int) -> list[tuple[ColumnProfile, float]]:
        """Return the columns with their effects, by decreasing effect for cluster j.

        Columns with unknown effects come last.
        """
        effects = [float(column.effects[j]) for column in self.columns]
        order = sorted(
            range(len(effects)), key=lambda i: math.inf if math.isnan(effects[i]) else -effects[i]
        )
        return [(self.columns[i], effects[i]) for i in order]

    def named(self, names: Sequence[str]) -> Self:
        """Return the profiles with other names of the clusters."""
        return replace(self, names=tuple(names))

    def plain(self) -> dict[str, Any]:
        """Return the profiles as JSON-compatible values; numbers may be NaN or infinite.

        The columns of a cluster are in the order of `ranked`.
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
        """Return the silhouettes of cluster j as JSON-compatible values; empty if unknown."""
        if self.silhouettes is None:
            return {}
        mean, spread = self.silhouettes[:, j].tolist()
        return {"silhouette": mean, "silhouette_spread": spread}


def standardised_differences(weights: Floats, means: Floats, spreads: Floats) -> Floats:
    """Return Cohen's d between each of k groups and all others together, (k,).

    d = (m_1 - m_2) / s with s^2 = (S_1 + S_2) / (n_1 + n_2 - 2), with S the sum of squares about
    the group's own mean: J. Cohen, Statistical Power Analysis for the Behavioral Sciences, 2nd ed.
    1988, section 2.5, equations 2.5.1 and 2.5.2. A weight counts as that many rows.

    Parameters
    ----------
    weights, means, spreads : ndarray of shape (k,)
        Weights, means and spreads of the groups; the spreads have n in the denominator.

    Returns
    -------
    ndarray of shape (k,)
        NaN if a group or the others have no rows, or both have one row; infinite if there is no
        spread and the means differ.

    Examples
    --------
    >>> standardised_differences(np.array([2.0, 2.0]), np.array([3.0, 1.0]), np.ones(2)).round(4)
    array([ 1.4142, -1.4142])
    """
    groups = list(zip(weights.tolist(), means.tolist(), spreads.tolist(), strict=True))
    return np.array([_difference(groups, j) for j in range(len(groups))], dtype=np.float64)


def _difference(groups: Sequence[tuple[float, float, float]], j: int) -> float:
    """Return Cohen's d between one of the groups and all others that have rows."""
    weight, mean, spread = groups[j]
    others = [each for i, each in enumerate(groups) if i != j and each[0] > 0]
    n = sum(w for w, _, _ in others)
    if not weight > 0 or not others or weight + n <= 2:
        return math.nan
    first = others[0][1]
    # as differences from the first, so that a single part keeps its exact value
    rest = first + sum(w * (m - first) for w, m, _ in others) / n
    squares = sum(w * (s * s + (m - rest) ** 2) for w, m, s in others) + weight * spread * spread
    return _ratio(mean - rest, math.sqrt(squares / (weight + n - 2)))


def _ratio(apart: float, spread: float) -> float:
    if spread > 0:
        return float(apart / spread)
    return 0.0 if apart == 0 else math.copysign(math.inf, apart)


def cramers_v(table: Floats) -> float:
    """Return Cramér's V of a table of counts: 0 if all lines have equal shares, at most 1.

    V = sqrt(chi^2 / (n (min(r, c) - 1))), with r and c the numbers of non-empty lines and columns:
    H. Cramér, Mathematical Methods of Statistics, 1946, section 21.9.

    Returns
    -------
    float
        NaN without two non-empty lines; 0 if all rows are in one column.

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


AGES = re.compile(r"\b(age|alter)\b", re.IGNORECASE)
PLAIN = re.compile(r"y|n|yes|no|ja|nein|true|false|other|unknown|.|[\d.,<>=+ -]*", re.IGNORECASE)
"""Levels that mean nothing without the name of their column."""


def proposed(profiles: Profiles) -> tuple[str, ...]:
    """Return a distinct name for each cluster, from its largest differences.

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
    names = [_name(profiles, j, Profiles.terms, Profiles.telling) for j in range(k)]
    for n_terms in range(Profiles.terms + 1, 2 * Profiles.terms + 1):
        often = Counter(names)
        names = [
            _name(profiles, j, n_terms, Profiles.slight) if often[name] > 1 else name
            for j, name in enumerate(names)
        ]
    return _numbered(names)


def _name(profiles: Profiles, j: int, n_terms: int, least: float) -> str:
    """Return the largest differences of cluster j in words: numbers first, then texts."""
    if not profiles.weights[j] > 0:
        return "no rows"
    ranked = [column for column, effect in profiles.ranked(j) if effect >= least][:n_terms]
    ranked.sort(key=lambda column: not isinstance(column, NumberProfile))
    return ", ".join(dict.fromkeys(_term(column, j) for column in ranked)) or "average"


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, with a number added to repeated ones.

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
    """Describe in words how cluster j differs from the others in a column."""
    words = " ".join(column.name.replace("_", " ").split()) or column.name
    if isinstance(column, NumberProfile):
        high = bool(column.differences[j] > 0)
        if is_zero_or_one(column.means[-1], column.spreads[-1]):
            return f"{words}={int(high)}"
        if AGES.search(words):
            return "older" if high else "younger"
        return f"{'high' if high else 'low'} {words}"
    at = column.typical(j)
    level = column.levels[at]
    named = f"{words} {level}" if PLAIN.fullmatch(level.strip("()")) else level
    return named if column.shares[j, at] >= 0.5 else f"more {named}"


def is_zero_or_one(mean: float, spread: float) -> bool:
    """Return whether all values are 0 or 1, as the mean square then equals the mean.

    Other values could give the same equality by balancing each other, but this is rare.
    """
    return bool(math.isclose(spread**2 + mean**2, mean, rel_tol=1e-9) and 0.0 < mean < 1.0)
