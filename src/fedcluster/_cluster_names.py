"""Names of clusters in words, from what sets each apart: "older, high bp, cardiology"."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import count

from fedcluster._profiles import ColumnProfile, NumberProfile, Profiles
from fedcluster.errors import InputError

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
