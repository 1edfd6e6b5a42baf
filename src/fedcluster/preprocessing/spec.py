"""Specification of a preprocessor, and what was found while it was fitted, also in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedcluster.errors import listed
from fedcluster.options.choices import ADJUSTS, MISSING, SCALES, Adjust, Missing, Scale
from fedcluster.options.refusals import refused
from fedcluster.preprocessing.transform import Preprocessor

if TYPE_CHECKING:
    from fedcluster.preprocessing.units import Moments

LARGEST_WEIGHT = 1e12


@dataclass(frozen=True, slots=True)
class PreprocessingSpec:
    """Specification of how the rows of all sites are preprocessed before clustering.

    Parameters
    ----------
    scale : {"standard", "minmax", "robust", "none"}
        How numeric columns are scaled: to mean 0 and variance 1; so that the given ``bounds``
        become 0 and 1; to median 0 and interquartile range 1; or not at all. Categories are 0 and
        1.
    missing : {"error", "drop", "mean", "median", "ignore"}
        How missing values are treated: as errors; by dropping their rows, which get no label; by
        filling in the mean or the median of all sites, in categories the most frequent level; or by
        computing distances over the columns that a row has.
    categories : "auto", "none" or sequence of str
        The columns that are categories, which become a column of 0 and 1 for each level; "auto"
        takes text columns with at most 20 levels and leaves other text out. Where "auto" is among
        the names, as in ``("auto", "ward")``, these are categories besides.
    rare : int, default=10
        Levels with fewer rows in total are pooled.
    log : sequence of str
        Columns that are replaced by log(1 + x) before anything else is computed.
    bounds : mapping of str to (float, float)
        Bounds of columns; a value outside is replaced by the nearer bound.
    weights : mapping of str to float
        Factors, by column, of the squared differences (for a category, over all its levels); by
        default 1.
    dates : mapping of str to str
        How dates are converted to numbers when they are read, by column, as "age:2024-12-31",
        "month", "weekday" or "since:2000-01-01"; kept in the model for new rows.
    pca : int, optional
        The number of principal components of the scaled columns to cluster by.
    columns : sequence of str, optional
        The columns to use; by default those that all sites have.
    then : Preparation or str, optional
        A preparation of the user's own, or its dotted name, which is applied after everything
        except ``unit``; see `fedcluster.extend.Preparation`.
    adjust : {"none", "site", "site-scale"}
        "site" subtracts from the numbers of each site its own offset, which a model with offsets,
        subtypes and shares of each site finds, such as that of a scanner or a laboratory; see
        `docs/preprocessing.md`. "site-scale" first divides by a gain of each site. A text means
        the same at each site.
    unit : bool, default=False
        Whether each row is finally divided by its length, so that only its direction counts, as
        with ``metric="cosine"``; a row of zeros has no direction, is dropped and gets no label.

    Raises
    ------
    ValueError
        If a name is unknown or a number is out of range.
    """

    scale: Scale = "standard"
    missing: Missing = "error"
    categories: str | Sequence[str] = "auto"
    rare: int = 10
    log: Sequence[str] = ()
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    dates: Mapping[str, str] = field(default_factory=dict)
    pca: int | None = None
    columns: Sequence[str] | None = None
    adjust: Adjust = "none"
    unit: bool = False
    then: Any = None

    def __post_init__(self) -> None:
        for name, known in (("scale", SCALES), ("missing", MISSING), ("adjust", ADJUSTS)):
            if getattr(self, name) not in known:
                some = ", ".join(map(repr, known))
                raise ValueError(f"{name} must be one of {some}, not {getattr(self, name)!r}")
        if isinstance(self.categories, str) and self.categories not in ("auto", "none"):
            raise ValueError(
                f"categories must be 'auto', 'none' or a list of columns, not {self.categories!r}"
            )
        if self.missing == "ignore" and (self.pca is not None or self.unit):
            raise refused(
                "missing-whole", what="principal components" if self.pca else "rows of length 1"
            )
        self._check_then()
        if self.pca is not None and self.pca < 1:
            raise ValueError(f"pca must be at least 1, not {self.pca}")
        for name, (low, high) in self.bounds.items():
            if not -np.inf < low < high < np.inf:
                raise ValueError(f"the bounds of {name!r}, {low} and {high}, are no interval")
        for name, factor in self.weights.items():
            if not 0 < factor <= LARGEST_WEIGHT:
                raise ValueError(
                    f"the weight of {name!r} must be above 0 and at most {LARGEST_WEIGHT:g}, not "
                    f"{factor}; to leave a column out, name the others in columns"
                )

    def _check_then(self) -> None:
        """Raise an error for options that are incompatible with others that mix columns."""
        whole = {"pca": self.pca, "rows of length 1": self.unit, "then": self.then}
        whole |= {"missing='ignore'": self.missing == "ignore"}
        if self.adjust != "none" and (what := [name for name, asked in whole.items() if asked]):
            raise refused("adjust-site", what=what[0])
        if self.then is not None and (self.pca is not None or self.missing == "ignore"):
            raise ValueError("a preparation of your own takes whole rows: leave pca out")

    def in_names(self, names: Mapping[str, str]) -> Self:
        """Return the specification with some columns renamed."""
        if not names:
            return self

        def of_each(given: Any) -> Any:
            return given if isinstance(given, str) else [names.get(name, name) for name in given]

        def by(given: Mapping[str, Any]) -> dict[str, Any]:
            return {names.get(name, name): value for name, value in given.items()}

        return replace(
            self,
            categories=of_each(self.categories),
            log=of_each(self.log),
            bounds=by(self.bounds),
            weights=by(self.weights),
            dates=by(self.dates),
            columns=None if self.columns is None else of_each(self.columns),
        )

    @property
    def said(self) -> tuple[str, ...]:
        """All columns that are named."""
        given = (self.named, self.log, self.bounds, self.weights, self.dates, self.columns or ())
        return tuple(dict.fromkeys(name for names in given for name in names))

    @property
    def named(self) -> tuple[str, ...]:
        """Columns that are named as categories."""
        if isinstance(self.categories, str):
            return ()
        return tuple(name for name in self.categories if name != "auto")


def for_metric(prepare: PreprocessingSpec | None, metric: str) -> PreprocessingSpec | None:
    """Return the preprocessing that a metric needs: rows of unit length for "cosine".

    Examples
    --------
    >>> for_metric(None, "euclidean") is None
    True
    >>> for_metric(PreprocessingSpec("robust"), "cosine") == PreprocessingSpec("robust", unit=True)
    True
    """
    if metric != "cosine":
        return prepare
    return replace(prepare or PreprocessingSpec("none", categories="none"), unit=True)


MOST_CATEGORIES = 20
"""Number of levels up to which a text column counts as a category without being named."""


HELD_SOMETHING = (
    "dates", "text with more than", "text of which most rows", "text without a value",
    "two numbers in each cell", "its name is that of a code",
    "numbers with zeros in front", "numbers and text", "text at", "numbers at", "at ",
)  # fmt: skip
"""Beginnings of the reasons for leaving out columns that may hold information."""


HAS_FEW = " has a value in "
"""What the warning of a column without values in most rows says after its name."""


@dataclass(frozen=True, slots=True, eq=False)
class FitReport:
    """Facts about the columns that were found while fitting a preprocessor.

    Parameters
    ----------
    missing : mapping of str to mapping of str to int
        Number of missing values, by site and column.
    left_out : mapping of str to str
        Columns that are not used, each with the reason.
    pooled : mapping of str to tuple of str
        The rare levels of each column that were pooled.
    only_at : mapping of (str, str) to str
        Levels (column, level) that only one of several sites named, and that site.
    notes : tuple of str
        Sentences on used columns that may have another meaning.
    clipped : mapping of str to mapping of str to int
        Number of values that were clipped to the bounds, by site and column, as far as the sites'
        limits permit.
    moments : mapping of str to mapping of str to (float, float)
        Mean and standard deviation of numeric columns, by column and site, if they were needed for
        scaling.
    warnings : tuple of str
        Warnings of suspicious values and columns, and of differences between the sites that look
        like another unit or another spelling.
    """

    missing: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    pooled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    only_at: Mapping[tuple[str, str], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    clipped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    moments: Mapping[str, Moments] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """The warnings, and the left-out columns that hold something."""
        lost = {
            name: why
            for name, why in self.left_out.items()
            if why.startswith(HELD_SOMETHING) and not any(repr(name) in w for w in self.warnings)
        }
        lines = [f"not clustered by {left_out_in_words(lost)}"] if lost else []
        return (*self.warnings, *lines)

    def reworded(self, say: Callable[[str], str]) -> Self:
        """Return the report with its sentences in other words."""
        warnings, notes = tuple(map(say, self.warnings)), tuple(map(say, self.notes))
        left_out = {name: say(why) for name, why in self.left_out.items()}
        return replace(self, warnings=warnings, notes=notes, left_out=left_out)

    def with_decisions(
        self, left_out: Mapping[str, str], notes: Sequence[str], warnings: Sequence[str] = ()
    ) -> Self:
        """Return the report with findings added from before the sites were asked."""
        left_out, notes = {**left_out, **self.left_out}, (*notes, *self.notes)
        # the rows show more than the sums: nothing is said twice of a column at a site
        few = [line.partition(HAS_FEW)[0] for line in self.warnings if HAS_FEW in line]
        warnings = [
            line
            for line in warnings
            if not (line.endswith(" are missing") and line.partition(" at ")[0] in few)
        ]
        of_rows = [column for line in warnings if (column := _column_of(line))]
        rest = [x for x in self.warnings if " has mean " not in x or _column_of(x) not in of_rows]
        warnings = (*warnings, *rest)
        return replace(self, left_out=left_out, notes=notes, warnings=warnings)


def _column_of(line: str) -> str:
    """Return the column of which a warning says what it holds at a site, or nothing."""
    is_held = " has mean " in line or re.match(r"column '[^']*' at ", line)
    return line.split("'")[1] if is_held and line.startswith("column '") else ""


# In words


SCALED = {
    "standard": "with mean 0 and variance 1",
    "robust": "with median 0 and quartiles 1 apart",
    "minmax": "with their bounds as 0 and 1",
    "none": "as they are",
}
FILLED = {
    "drop": "their rows are dropped and have the label -1",
    "mean": "filled in with the mean, or the commonest text, of all sites",
    "ignore": "they count in no distance; rows without any value have the label -1",
    "median": "filled in with the median, or the commonest text, of all sites",
    "present": "not filled in, as clusters are told by the values that a row has; rows without any "
    "value have the label -1",
}


def in_words(
    prepare: PreprocessingSpec,
    preprocessor: Preprocessor,
    report: FitReport,
    *,
    grouped: bool = False,
) -> list[str]:
    """Return sentences on a fitted preprocessor, missing values, and left-out columns.

    Sites that group rows tell missing values by groups: all rows of a group that has too few.
    """
    numbers, categories = preprocessor.numeric, preprocessor.categories
    said = []
    if numbers:
        said.append(f"{some_of([n.name for n in numbers])} {SCALED[prepare.scale]}")
    if logs := [n.name for n in numbers if n.log]:
        said.append(f"of {some_of(logs)} the logarithm")
    if categories:
        levels = sum(len(c.names) for c in categories)
        said.append(f"{some_of([c.name for c in categories])} as {levels} columns of 0 and 1")
    if prepare.weights:
        weights = [f"{name} {factor:g} times" for name, factor in prepare.weights.items()]
        said.append(f"squares of {some_of(weights)}")
    if preprocessor.principal is not None:
        what = "principal components" if prepare.then is None else "columns of a preparation"
        said.append(f"of all that {len(preprocessor.names_out)} {what}")
    if preprocessor.unit:
        said.append("each row divided by its length; rows of zeros have the label -1")
    sentences = [f"Prepared: {'; '.join(said)}."]
    left = preprocessor.missing == "ignore" != prepare.missing
    return [
        *sentences,
        *met_in_words(report, "present" if left else prepare.missing, grouped=grouped),
    ]


def met_in_words(report: FitReport, missing: str, *, grouped: bool = False) -> Iterator[str]:
    """Yield sentences on what was found while fitting a preprocessor."""
    if report.missing:
        counted = ", by whole groups of rows" if grouped else ""
        yield f"Missing values{counted}: {_where(report.missing)}; {FILLED[missing]}."
    if report.clipped:
        yield f"Moved to the bounds: {_where(report.clipped)}."
    if report.left_out:
        yield f"Left out: {left_out_in_words(report.left_out)}."
    yield from report.notes
    for name, levels in report.pooled.items():
        yield f"Rare values of {name} are one: {some_of(levels)}."


def left_out_in_words(left_out: Mapping[str, str]) -> str:
    """Return sentences on left-out columns, grouped by reason.

    Examples
    --------
    >>> left_out_in_words({"born": "dates", "note": "text", "seen": "dates"})
    'born and seen (dates); note (text)'
    """
    by_reason: dict[str, list[str]] = {}
    for name, why in left_out.items():
        by_reason.setdefault(why, []).append(name)
    return "; ".join(f"{some_of(names)} ({why})" for why, names in by_reason.items())


def noticed_in_words(
    unknown: Mapping[str, Mapping[str, int]], filled: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """Return sentences on unknown texts and missing values in new rows, by site and column."""
    said = []
    if unknown:
        said.append(f"Texts that the model does not know, taken for none: {_where(unknown)}.")
    if filled:
        said.append(f"Missing values: {_where(filled)}; filled in as in the fit.")
    return said


def _where(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return counts by site and column, in words."""
    parts = [(n, name, site) for site, names in counts.items() for name, n in names.items()]
    return some_of([f"{n:,} of {name} at {site}" for n, name, site in parts])


def some_of(names: Sequence[str], most: int = 6) -> str:
    """Return names as a sentence lists them: at most ``most``, and the number of others."""
    if len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} more"]
    return listed(names)
