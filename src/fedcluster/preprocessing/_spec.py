"""What is asked of a preparation, and what was met on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

SCALES = ("standard", "minmax", "robust", "none")
MISSING = ("error", "drop", "mean", "median")


@dataclass(frozen=True, slots=True)
class PreprocessingSpec:
    """What to do to the rows of all sites before they are clustered.

    Parameters
    ----------
    scale : {"standard", "minmax", "robust", "none"}
        Of the columns of numbers: mean 0 and variance 1; the given ``bounds`` become 0 and 1;
        median 0 and distance of the quartiles 1; as they are. Categories are 0 and 1.
    missing : {"error", "drop", "mean", "median"}
        What becomes of missing values: an error; their rows are dropped and get no label; they
        are filled in with the mean or the median of all sites, categories with the most frequent
        level.
    categories : "auto", "none" or sequence of str
        The columns that are categories, and become a column of 0 and 1 for each level; "auto" are
        those of text with at most 20 levels, and other text is left out.
    rare : int
        A level of fewer rows in all is pooled with others of its kind.
    log : sequence of str
        Columns of which log(1 + x) is taken, before all else is computed.
    bounds : mapping of str to (float, float)
        Columns with bounds: a value outside is moved to the nearer one.
    pca : int, optional
        How many principal components of all this are clustered by.
    columns : sequence of str, optional
        The columns to use; by default those that all sites have.

    Raises
    ------
    ValueError
        If a name is unknown or a number means nothing.
    """

    scale: str = "standard"
    missing: str = "error"
    categories: str | Sequence[str] = "auto"
    rare: int = 10
    log: Sequence[str] = ()
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    pca: int | None = None
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name, known in (("scale", SCALES), ("missing", MISSING)):
            if getattr(self, name) not in known:
                some = ", ".join(map(repr, known))
                raise ValueError(f"{name} must be one of {some}, not {getattr(self, name)!r}")
        if isinstance(self.categories, str) and self.categories not in ("auto", "none"):
            raise ValueError(
                f"categories must be 'auto', 'none' or a list of columns, not {self.categories!r}"
            )
        if self.pca is not None and self.pca < 1:
            raise ValueError(f"pca must be at least 1, not {self.pca}")
        for name, (low, high) in self.bounds.items():
            if not -np.inf < low < high < np.inf:
                raise ValueError(f"the bounds of {name!r}, {low} and {high}, are no interval")

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that are named as categories."""
        return () if isinstance(self.categories, str) else tuple(self.categories)


@dataclass(frozen=True, slots=True, eq=False)
class FitReport:
    """What was met on the way, to be told.

    Parameters
    ----------
    missing : mapping of str to mapping of str to int
        How many values are missing, by site and column.
    left_out : mapping of str to str
        Columns that are not used, each with the reason.
    pooled : mapping of str to tuple of str
        The rare levels of each column that were pooled.
    only_at : mapping of (str, str) to str
        Levels (column, level) that a single one of several sites named, and that site.
    """

    missing: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    pooled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    only_at: Mapping[tuple[str, str], str] = field(default_factory=dict)
