"""Specification of a preprocessor, and the agreement on the columns that it is fitted to.

All differences between the sites are reported before sums are requested. Each site discloses the
names and kinds of its columns, like its own name and limits. The texts of a column are values of
rows: a site names only those that several of its rows share and that its limits permit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from fedcluster.core import Column
from fedcluster.errors import InputError, listed
from fedcluster.options.choices import MISSING, SCALES, Missing, Scale
from fedcluster.options.refusals import refused
from fedcluster.preprocessing._differences import (
    BySite,
    bare,
    by_name,
    level_warnings,
    sites_by,
)
from fedcluster.preprocessing.transform import Preprocessor
from fedcluster.preprocessing.units import Moments
from fedcluster.texts.words import setting

HOLDS = {
    "number": "numbers",
    "text": "text",
    "date": "dates",
    "mixed": "numbers and text",
    "empty": "no value",
}
LARGEST_WEIGHT = 1e12
UNUSABLE = {"date", "mixed", "empty"}
"""Kinds of columns that cannot be clustered by."""
DATES = "dates; --set dates=age, month, weekday or since makes numbers of them"
NOT_CHOSEN = "not chosen"


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
    unit: bool = False
    then: Any = None

    def __post_init__(self) -> None:
        for name, known in (("scale", SCALES), ("missing", MISSING)):
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
        """Raise an error for options that are incompatible with a user's own preparation."""
        if self.then is not None and (self.pca is not None or self.missing == "ignore"):
            raise ValueError("a preparation of one's own takes whole rows, and no pca besides")

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
    "dates", "text with more than", "text of which most rows", "its name is that of a code",
    "numbers with zeros in front", "numbers and text", "text at", "numbers at", "at ",
)  # fmt: skip
"""Beginnings of the reasons for leaving out columns that may hold information."""


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

    def with_decisions(
        self, left_out: Mapping[str, str], notes: Sequence[str], warnings: Sequence[str] = ()
    ) -> Self:
        """Return the report with findings added from before the sites were asked."""
        left_out, notes = {**left_out, **self.left_out}, (*notes, *self.notes)
        warnings = (*warnings, *self.warnings)
        return replace(self, left_out=left_out, notes=notes, warnings=warnings)


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns that the sites agree on.

    Parameters
    ----------
    columns : tuple of Column
        The columns that are used, in the order of the first site, with the levels named by any site
        in alphabetical order.
    left_out : mapping of str to str
        The other columns, each with the reason.
    only_at : mapping of (str, str) to str
        Levels (column, level) that only one of several sites named, and that site.
    flooded : mapping of str to str
        Columns that exceed `MOST_CATEGORIES` levels because of a single one of at least three
        sites, and that site.
    warnings : tuple of str
        Warnings of columns that a few sites keep all others from using, and of text columns in
        which sites seem to use two names for one thing.
    """

    columns: tuple[Column, ...]
    left_out: Mapping[str, str]
    only_at: Mapping[tuple[str, str], str]
    flooded: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def agree(described: Mapping[str, Sequence[Column]], chosen: Sequence[str] | None = None) -> Schema:
    """Return the columns that all sites have, or raise an error if they differ.

    Parameters
    ----------
    described : mapping of str to sequence of Column
        The columns of each site.
    chosen : sequence of str, optional
        The columns to use, in this order, which every site must have. By default, all columns that
        are the same at every site; others are left out with a reason.

    Raises
    ------
    InputError
        If chosen columns are missing at a site, mix numbers and text between sites, or hold dates
        or nothing, or if no column is left. One line names every site and column.

    Examples
    --------
    >>> north = [Column("age"), Column("sex", "text", ("F", "M"))]
    >>> south = [Column("sex", "text", ("F",)), Column("age"), Column("note", "text")]
    >>> west = [Column("age"), Column("sex", "text", ("F",))]
    >>> schema = agree({"north": north, "south": south, "west": west})
    >>> [column.name for column in schema.columns], schema.left_out
    (['age', 'sex'], {'note': 'only south has it'})
    >>> schema.only_at
    {('sex', 'M'): 'north'}
    """
    by_site = by_name(described)
    names = list(dict.fromkeys(name for told in by_site.values() for name in told))
    if chosen is None:
        reasons = {name: _unusable_for(by_site, name) for name in names}
        left_out = {name: reason for name, reason in reasons.items() if reason}
        chosen = [name for name in names if name not in left_out]
        if not chosen:
            why = "; ".join(f"{name!r} ({reason})" for name, reason in left_out.items())
            raise InputError(f"the sites have no column in common: {why}")
    else:
        wanted = set(chosen)
        left_out = {name: NOT_CHOSEN for name in names if name not in wanted}
        _check_alike(by_site, chosen)
    columns: list[Column] = []
    only_at: dict[tuple[str, str], str] = {}
    for name in chosen:
        sites = dict(sorted(sites_by(by_site, name, lambda column: column.levels).items()))
        kind = next(iter(by_site.values()))[name].kind
        columns.append(Column(name, kind, tuple(sites)))
        only_at |= {(name, level): s[0] for level, s in sites.items() if len(s) == 1 < len(by_site)}
    flooded = _flooded(columns, only_at) if len(by_site) > 2 else {}
    texts = [column.name for column in columns if column.kind == "text"]
    told = {site: [each[name] for name in texts] for site, each in by_site.items()}
    odd = [_odd_site_warning(by_site, name) for name, why in left_out.items() if why != NOT_CHOSEN]
    warnings = (*filter(None, odd), *level_warnings(told))
    return Schema(tuple(columns), left_out, only_at, flooded, warnings)


def _flooded(columns: Sequence[Column], only_at: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Return the columns that would have few levels without one site, and that site."""
    own: dict[str, Counter[str]] = {}
    for (name, _), site in only_at.items():
        own.setdefault(name, Counter())[site] += 1
    flooded = {}
    for column in columns:
        many = len(column.levels)
        its_own = own.get(column.name, {}).items()
        sites = [site for site, n in its_own if 0 < many - n <= MOST_CATEGORIES < many]
        if len(sites) == 1:
            flooded[column.name] = sites[0]
    return flooded


def _check_alike(by_site: BySite, names: Sequence[str]) -> None:
    """Raise an error for columns that a site lacks, or that differ between sites."""
    differences = [_differences(by_site, name) for name in names]
    complaints = [line for lines in differences for line in lines]
    agreed = [name for name, lines in zip(names, differences, strict=True) if not lines]
    if complaints:
        mend = f"mend that or choose among {', '.join(agreed)}"
        advice = mend if agreed else "mend that: no column is the same everywhere"
        raise InputError(f"{'; '.join(complaints)}; {advice}")


def _unusable_for(by_site: BySite, name: str) -> str | None:
    """Return why a column cannot be used at all sites, or None."""
    having = [site for site, told in by_site.items() if name in told]
    alike = _alike(by_site, name)
    if len(having) <= len(by_site) / 2:
        return f"only {listed(having)} {'has' if len(having) == 1 else 'have'} it{alike}"
    if len(having) < len(by_site):
        return f"lacking at {listed([site for site in by_site if site not in having])}{alike}"
    kinds = _sites_by_kind(by_site, name)
    if set(kinds) == {"date"}:
        return DATES
    if len(kinds) > 1 or set(kinds) & UNUSABLE:
        everywhere = len(kinds) == 1
        return ", ".join(
            HOLDS[kind] if everywhere else f"{HOLDS[kind]} at {listed(sites)}"
            for kind, sites in kinds.items()
        )
    return None


def odd_sites(
    described: Mapping[str, Sequence[Column]], prepare: PreprocessingSpec
) -> tuple[dict[str, list[str]], str]:
    """Return the sites that hold another kind in a column than most, if a fit would use it.

    Otherwise a single site that calls a column text, by mistake or to change the clusters, would
    cause it to be left out everywhere. A site that lacks a column, or has no value in it, does not
    count as odd.

    Parameters
    ----------
    described : mapping of str to sequence of Column
        The columns of each site.
    prepare : PreprocessingSpec
        The requested preprocessing.

    Returns
    -------
    odd : dict of str to list of str
        The odd sites, each with the columns.
    said : str
        What all sites hold in these columns, with advice.

    Raises
    ------
    InputError
        If no kind has a majority of sites.

    Examples
    --------
    >>> number, text = Column("age"), Column("age", "text", ("old",))
    >>> sites = {"north": [number], "south": [number], "west": [text, Column("bmi")]}
    >>> odd, said = odd_sites(sites, PreprocessingSpec())
    >>> odd
    {'west': ['age']}
    >>> print(said)
    column 'age' holds numbers at north and south, text at west: correct it at west, or name columns
    without 'age'
    >>> odd_sites({"north": [number], "west": [text]}, PreprocessingSpec())
    Traceback (most recent call last):
    fedcluster.errors.InputError: column 'age' holds numbers at north, text at west, and no kind is
    that of most sites: correct it, or name columns without 'age'
    """
    by_site = by_name(described)
    apart, undecided = _apart(by_site, prepare)
    if undecided and prepare.columns is None:
        raise InputError(
            f"{_held(by_site, undecided)}, and no kind is that of most sites: correct it, or name "
            f"columns without {listed([*map(repr, undecided)])}"
        )
    if not apart:
        return {}, ""
    sites = dict.fromkeys(site for each in apart.values() for site in each)
    odd = {site: [name for name, each in apart.items() if site in each] for site in sites}
    mend = (
        f"correct it at {listed(list(odd))}, or name columns without {listed([*map(repr, apart)])}"
    )
    return odd, f"{_held(by_site, apart)}: {mend}"


def columns_apart(
    described: Mapping[str, Sequence[Column]], prepare: PreprocessingSpec
) -> dict[str, str]:
    """Return the columns that a fit would use if all sites held the same kind, and their kinds.

    In a column that is named as a category, numbers are texts as well.

    Parameters
    ----------
    described, prepare : mapping, PreprocessingSpec
        As in `odd_sites`.

    Examples
    --------
    >>> number, text = Column("age"), Column("age", "text", ("old",))
    >>> columns_apart({"north": [number], "west": [text]}, PreprocessingSpec())
    {'age': "column 'age' holds numbers at north, text at west: correct it"}
    """
    by_site, named = by_name(described), set(prepare.named)
    apart, undecided = _apart(by_site, prepare)
    names = {"number", "text", "empty"}
    apart = {
        name: sites
        for name, sites in apart.items()
        if name not in named or _sites_by_kind(by_site, name).keys() - names
    }
    said = {name: _held(by_site, [name]) for name in apart}
    where = {n: "" if n in undecided else f" at {listed(sites)}" for n, sites in apart.items()}
    return {name: f"{held}: correct it{where[name]}" for name, held in said.items()}


def _apart(by_site: BySite, prepare: PreprocessingSpec) -> tuple[dict[str, list[str]], list[str]]:
    """Return the sites that differ from the majority, by column, and columns without a majority."""
    names = dict.fromkeys(name for told in by_site.values() for name in told)
    apart: dict[str, list[str]] = {}
    undecided: list[str] = []
    named = set(prepare.named)
    for name in names if prepare.columns is None else prepare.columns:
        kinds = _sites_by_kind(by_site, name)
        kinds.pop("empty", None)
        most = max(kinds, key=lambda kind: len(kinds[kind]), default="empty")
        others = [site for kind, sites in kinds.items() if kind != most for site in sites]
        agreed = len(kinds.get(most, ())) > len(others)
        if not others or (agreed and not _is_used(by_site, name, most, prepare, named)):
            continue
        apart[name] = others
        undecided += [] if agreed else [name]
    return apart, undecided


def _held(by_site: BySite, names: Iterable[str]) -> str:
    """Return what the sites hold in some columns, in words."""
    return "; ".join(phrase for name in names for phrase in _kinds(by_site, name))


def _is_used(
    by_site: BySite, name: str, kind: str, prepare: PreprocessingSpec, named: Collection[str]
) -> bool:
    """Return whether a fit would use a column if all sites held this kind."""
    if kind != "text" or name in named:
        return kind not in UNUSABLE
    levels = {level for told in by_site.values() if name in told for level in told[name].levels}
    return "auto" in prepare.categories and 0 < len(levels) <= MOST_CATEGORIES


def _odd_site_warning(by_site: BySite, name: str) -> str | None:
    """Return a warning if a few sites keep the others from using a column that most could use.

    Examples
    --------
    >>> told = {site: [Column("age")] for site in ("north", "south")}
    >>> print(_odd_site_warning(by_name({**told, "west": [Column("age", "mixed")]}), "age"))
    column 'age' holds numbers at north and south, numbers and text at west: it is left out at all
    sites because of west alone; correct it there
    """
    kinds = _sites_by_kind(by_site, name)
    most = max(kinds, key=lambda kind: len(kinds[kind]))
    others = [site for site in by_site if site not in kinds[most]]
    if most in UNUSABLE or not others or 2 * len(others) >= len(by_site):
        return None
    differences = "; ".join(_differences(by_site, name))
    alone = " alone" if len(others) == 1 else ""
    return (
        f"{differences}: it is left out at all sites because of {listed(others)}{alone}; correct "
        "it there"
    )


def _sites_by_kind(by_site: BySite, name: str) -> dict[str, list[str]]:
    """Return the sites by the kind of a column that they report."""
    return sites_by(by_site, name, lambda column: [column.kind])


def _differences(by_site: BySite, name: str) -> list[str]:
    """Return the differences between the sites in a column, one phrase each."""
    lacking = [site for site, told in by_site.items() if name not in told]
    if not lacking:
        return _kinds(by_site, name)
    line = f"column {name!r} is lacking at {listed(lacking)}{_alike(by_site, name)}"
    return [line, *_kinds(by_site, name)]


def _kinds(by_site: BySite, name: str) -> list[str]:
    """Return a phrase on what the sites hold in a column, unless all hold the same usable kind."""
    by_kind = _sites_by_kind(by_site, name)
    if len(by_kind) < 2 and not by_kind.keys() & UNUSABLE:
        return []
    holds = [f"{HOLDS[kind]} at {listed(sites)}" for kind, sites in by_kind.items()]
    return [f"column {name!r} holds {', '.join(holds)}"]


def _alike(by_site: BySite, name: str) -> str:
    """Return, for sites without a column, their columns with other spellings of its name."""
    said, lacking = [], [site for site, told in by_site.items() if name not in told]
    is_usual = 2 * len(lacking) < len(by_site)
    for site in lacking:
        if (other := by_site.spelled[site].get(bare(name))) is not None:
            option = setting("sites", site, "rename", other, to=name)
            mend = f" ({option} if it is the same)" if is_usual else ""
            said.append(f"{site} has {other!r}{mend}")
    return f", but {listed(said)}" if said else ""


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
    prepare: PreprocessingSpec, preprocessor: Preprocessor, fit_report: FitReport
) -> list[str]:
    """Return sentences on a fitted preprocessor, missing values, and left-out columns."""
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
    return [*sentences, *met_in_words(fit_report, "present" if left else prepare.missing)]


def met_in_words(fit_report: FitReport, missing: str) -> Iterator[str]:
    """Yield sentences on what was found while fitting a preprocessor."""
    if fit_report.missing:
        yield f"Missing values: {_where(fit_report.missing)}; {FILLED[missing]}."
    if fit_report.clipped:
        yield f"Moved to the bounds: {_where(fit_report.clipped)}."
    if fit_report.left_out:
        yield f"Left out: {left_out_in_words(fit_report.left_out)}."
    yield from fit_report.notes
    for name, levels in fit_report.pooled.items():
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
