"""Plan that fits a preprocessor in a few rounds, from its specification and the sites' columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms import SiteSummaries
from fedcluster.core import Answers, Column, Floats, State, Summary, Task
from fedcluster.errors import InputError
from fedcluster.frames.columns import quoted
from fedcluster.lazy import LazyModule
from fedcluster.metrics.moments import Squares
from fedcluster.preprocessing.agreement import Schema
from fedcluster.preprocessing.columns import AnyColumn, Category, NumericColumn
from fedcluster.preprocessing.moments import (
    ColumnMoments,
    Missing,
    histogram_task,
    principal,
    quantiles,
)
from fedcluster.preprocessing.screening import constant_warnings, named_targets
from fedcluster.preprocessing.site_effects import among
from fedcluster.preprocessing.spec import (
    HAS_FEW,
    MOST_CATEGORIES,
    FitReport,
    PreprocessingSpec,
)
from fedcluster.preprocessing.transform import Preprocessor, preparation
from fedcluster.preprocessing.units import Moments, site_moments, unit_warnings
from fedcluster.rounds import Plan, with_preprocessing
from fedcluster.texts import some_of

site_model = LazyModule("fedcluster.preprocessing.site_model")

NEGATIVE: Floats = np.array([-np.inf, np.nextafter(0.0, -np.inf), np.inf])
"""Edges of the cells that separate negative values from others."""
PAIR = re.compile(r"\s*\d+(\.\d+)?\s*/\s*\d+(\.\d+)?\s*")
"""A text of two numbers, such as a blood pressure."""


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A fitted preprocessor, and the facts found while it was fitted."""

    preprocessor: Preprocessor
    fit_report: FitReport


def fit(
    prepare: PreprocessingSpec, schema: Schema, *, seed: int = 0, smallest: int = 1
) -> Plan[Fitted]:
    """Plan the fit of a preprocessor: a round for missing values and levels, then scaling.

    Standardising takes this round alone, one more for values far from 0, and one more if values are
    missing; quantiles take up to five, more if values repeat, and principal components two or about
    ten.

    Parameters
    ----------
    prepare : PreprocessingSpec
        The requested preprocessing.
    schema : Schema
        The columns that the sites have agreed on.
    seed : int, default=0
        Determines the first basis for the principal components of many columns, and the search for
        offsets of sites.
    smallest : int, default=1
        The smallest group of rows that all sites' limits permit.

    Raises
    ------
    InputError
        If a column cannot be prepared in this way; the message names sites and columns.
    """
    first, left_out = _first(prepare, schema)
    seen = yield from with_preprocessing(_summarise(first), first)
    answers = seen.missing.by_site
    missing = _missing_values(prepare, seen.missing, first.names)
    columns, pooled, too_rare = _pool(prepare, first.columns, seen.counts)
    left_out |= too_rare
    _check_columns(prepare, columns, left_out)
    chosen = replace(first, columns=columns)
    filled = yield from _fill(prepare, chosen, seen)
    scaled, moments = yield from _scale(prepare, filled, seen, bool(missing))
    notes, unlinked = list[str](), list[str]()
    if prepare.adjust != "none":
        scaled, notes, unlinked = yield from _adjusted(prepare, scaled, seen, seed, smallest)
    scaled = _weighted(prepare, scaled)
    then = yield from _then(prepare, scaled, seed)
    scaled = replace(scaled, principal=then, unit=prepare.unit)
    counts = {site: (each.weights - each.sums[:, 0]).tolist() for site, each in answers.items()}
    there = {n: {site: each[j] for site, each in counts.items()} for j, n in enumerate(first.names)}
    used = {(c.name, level) for c in chosen.categories for level in c.levels}
    only_at = {key: site for key, site in schema.only_at.items() if key in used}
    warnings = (
        *schema.warnings,
        *unlinked,
        *(
            named_targets(first.names, [c.name for c in first.categories])
            if prepare.columns is None
            else ()
        ),
        *_mostly_missing(answers, first.names),
        *constant_warnings(moments),
        *unit_warnings(moments, there),
    )
    report = FitReport(
        *(missing, left_out, pooled, only_at, tuple(notes)),
        clipped=seen.clipped,
        warnings=warnings,
        moments=moments,
    )
    return Fitted(scaled, report)


def _adjusted(
    prepare: PreprocessingSpec, scaled: Preprocessor, seen: _Summaries, seed: int, smallest: int
) -> Plan[tuple[Preprocessor, list[str], list[str]]]:
    """Plan the model by which sites find their offsets; also return what it says, and doubts.

    Sites describe their numbers by means, in one round. Columns that are scaled by what is found in
    the rows are scaled anew without the offsets that the server finds by these means, for which
    quantiles take further rounds.
    """
    if seen.moments is None:
        raise InputError(f"adjust={prepare.adjust!r} is for columns of numbers, and there is none")
    spread = np.sqrt(np.where(_is_constant(seen.moments), 1.0, seen.moments.variance))
    pairs = zip(seen.moments.mean.tolist(), spread.tolist(), strict=True)
    about = replace(scaled, columns=scaled.numeric)
    about = about.changed([{"shift": mean, "scale": scale} for mean, scale in pairs])
    step = SiteSummaries(site_model.SITE_EFFORT.means, smallest, 2 * smallest)
    asked = [Task(step, State(), seed, about), Task(Squares(), State(), preprocessor=about)]
    described, squares = yield asked
    names = [name for name, each in described.by_site.items() if each.weights.any()]
    points = site_model.Points.of(
        [described.by_site[name] for name in names], [squares.by_site[name] for name in names]
    )
    told = _have_offsets(prepare, seen.moments, seen.moments.mean + spread * points.X)
    own = replace(points, X=points.X[:, told], inside=points.inside[:, told])
    found = site_model.modelled(own, seed, prepare.adjust == "site-scale")
    own, deviations, model, of_gains, gains = found
    lines = model.in_words(own, list(compress(about.names, told)), seed, of_gains)
    least = smallest if smallest > 1 else 0
    effects = model.effects(told, seen.moments.mean, spread, deviations, least, of_gains)
    adjusted, about = replace(scaled, effects=effects), replace(about, effects=effects)
    if prepare.scale in ("standard", "robust"):
        less = among(told, site_model.found_offsets(own, model) * deviations)
        without = {
            name: _without(squares.by_site[name], *each)
            for name, *each in zip(names, less, among(told, 1 / gains, 1.0), strict=True)
        }
        adjusted = yield from _scaled_anew(adjusted, about, without, prepare.scale)
    return adjusted, lines, [*model.doubts(names), *_too_few(described, len(model.centers), least)]


def _scaled_anew(
    adjusted: Preprocessor, about: Preprocessor, squares: Mapping[str, Summary], how: str
) -> Plan[Preprocessor]:
    """Plan scales of columns, from the squares of rows that ``about`` prepares without offsets."""
    moments = ColumnMoments.of(np.zeros(len(about.columns)), Answers(squares)).precise()
    again, _ = yield from with_preprocessing(_scales(how, moments), about)
    scales = [
        {"shift": own.shift + own.scale * shift, "scale": own.scale * scale}
        for own, (shift, scale) in zip(about.numeric, again, strict=True)
    ]
    return adjusted.changed(scales)


def _too_few(described: Answers, k: int, least: int) -> list[str]:
    """Return the warning of sites with so few rows that limits may leave no subtype for an offset.

    Examples
    --------
    >>> a, b = (Summary(np.zeros((1, 1)), np.array([n])) for n in (8.0, 9.0))
    >>> print(*_too_few(Answers({"a": a, "b": b}), 2, 5))
    each subtype may have fewer than 5 rows at a: a site then subtracts no offset, and its rows may
    be in wrong clusters; ask for a lower min_cluster_size there, or leave it out
    """
    rows = {name: each.weights.sum() for name, each in described.by_site.items()}
    few = [name for name, n in rows.items() if n <= k * (least - 1)]
    if not few:
        return []
    return [
        f"each subtype may have fewer than {least} rows at {some_of(few)}: a site then subtracts "
        "no offset, and its rows may be in wrong clusters; ask for a lower min_cluster_size there, "
        "or leave it out"
    ]


def _without(squares: Summary, less: Floats, factor: Floats) -> Summary:
    """Return the sums and sums of squares of a site's rows times a factor (d,), less a number."""
    n, (sums, of_squares) = squares.weights, (squares.sums * np.stack([factor, factor**2], 1)).T
    moved = [sums - n * less, of_squares - 2 * less * sums + n * less**2]
    return replace(squares, sums=np.stack(moved, axis=1))


def _then(prepare: PreprocessingSpec, scaled: Preprocessor, seed: int) -> Plan[Any]:
    """Plan the fit of principal components or of the user's own preparation, if any."""
    if prepare.pca is not None:
        return (yield from with_preprocessing(principal(prepare.pca, seed=seed), scaled))
    if prepare.then is None:
        return scaled.principal
    own = preparation(prepare.then)
    if hasattr(own, "fit"):
        own = preparation((yield from with_preprocessing(own.fit(scaled.names), scaled)))
    own.check(len(scaled.names))
    return own


def n_columns_out(prepare: PreprocessingSpec, schema: Schema) -> int | None:
    """Return the number of columns of prepared rows; None if it depends on counts of texts.

    Raises
    ------
    InputError
        If a column cannot be prepared in this way.
    """
    if prepare.pca is not None or prepare.then is not None:
        return prepare.pca
    first, _ = _first(prepare, schema)
    return None if first.categories else len(first.names)


def _first(prepare: PreprocessingSpec, schema: Schema) -> tuple[Preprocessor, dict[str, str]]:
    """Return the columns before they are fitted, and why others are left out."""
    columns: list[AnyColumn] = []
    left_out, named, logs = dict(schema.left_out), set(prepare.named), set(prepare.log)
    for column in schema.columns:
        if "auto" in prepare.categories and column.name in schema.flooded:
            column, what = _without_flood(column, schema)
            left_out |= what
        if column.name not in named and column.kind == "number":
            bounds = prepare.bounds.get(column.name)
            date, log = prepare.dates.get(column.name), column.name in logs
            columns.append(NumericColumn(column.name, bounds, log, date=date))
        elif reason := _unfit(prepare, column, is_named=column.name in named):
            left_out[column.name] = reason
        else:
            columns.append(Category(column.name, column.levels, coded=True))
    _check_columns(prepare, columns, left_out)
    _check_numbers(prepare, columns)
    return Preprocessor(tuple(columns), missing="keep"), left_out


def _without_flood(column: Column, schema: Schema) -> tuple[Column, dict[str, str]]:
    """Return a column without the many levels of a single site, and what is left out."""
    site, name = schema.flooded[column.name], column.name
    kept = tuple(level for level in column.levels if schema.only_at.get((name, level)) != site)
    what = f"{len(column.levels) - len(kept)} texts of {name}"
    return replace(column, levels=kept), {what: f"too many, and only {site} has them"}


def _unfit(prepare: PreprocessingSpec, column: Column, *, is_named: bool) -> str | None:
    """Return the reason why a text column cannot be a category, or None."""
    if not column.levels:
        return "text of which no two rows of a site are equal"
    if is_named:
        return None
    if "auto" not in prepare.categories:
        return "text, and not among the categories"
    if len(column.levels) > MOST_CATEGORIES:
        return _composite(column) or f"text with more than {MOST_CATEGORIES} different values"
    return None


def _composite(column: Column | Category) -> str | None:
    """Return the reason against a column of pairs such as 120/80, or None.

    Examples
    --------
    >>> _composite(Column("bp", "text", ("120/80", "135 / 85.5")))
    'two numbers in each cell, as 120/80: make two columns of them'
    >>> _composite(Column("ward", "text", ("120/80", "a/b")))
    """
    if not all(PAIR.fullmatch(level) for level in column.levels):
        return None
    return f"two numbers in each cell, as {column.levels[0]}: make two columns of them"


def _check_columns(
    prepare: PreprocessingSpec, columns: Sequence[AnyColumn], left_out: Mapping[str, str]
) -> None:
    """Raise an error if columns named by the user, or all columns, would be left out."""
    used = {column.name: None for column in columns}
    for name in dict.fromkeys([*(prepare.columns or ()), *prepare.named, *prepare.weights]):
        if name in left_out:
            raise InputError(f"column {name!r} cannot be used: {left_out[name]}")
        if name not in used and name in prepare.weights:
            raise InputError(f"there is no column {name!r} to weigh; there are {', '.join(used)}")
        if name not in used:
            raise InputError(f"there is no column {name!r} to make categories of")
    origins: dict[str, str] = {}
    for column in columns:
        for name in column.names:
            if (other := origins.setdefault(name, column.name)) != column.name:
                raise InputError(
                    f"columns {other!r} and {column.name!r} would both give a column {name!r}: "
                    "rename one of them, or leave it out"
                )
    if not columns:
        reasons = "; ".join(f"{name!r} is {why}" for name, why in left_out.items())
        raise InputError(f"there is no column to cluster by: {reasons}")


def _check_numbers(prepare: PreprocessingSpec, columns: Sequence[AnyColumn]) -> None:
    """Raise an error for logarithms or bounds of non-numeric columns, and for missing bounds."""
    numbers = {column.name: None for column in columns if isinstance(column, NumericColumn)}
    for what, names in (("the logarithm", prepare.log), ("bounds", prepare.bounds)):
        if unknown := [name for name in names if name not in numbers]:
            raise InputError(
                f"{what} of {unknown[0]!r}: that is no column of numbers; there are "
                f"{', '.join(numbers) or 'none'}"
            )
    if prepare.scale == "minmax" and (without := [n for n in numbers if n not in prepare.bounds]):
        raise InputError(
            f"scaling by minmax needs bounds of {', '.join(map(repr, without))}: give them, since "
            "a site's smallest and largest values are single rows and never leave it"
        )


def first_tasks(columns: Sequence[Column] | None) -> list[Task]:
    """Return the first tasks about numeric columns of raw rows, those of the site for None."""
    how = Preprocessor.as_they_are(columns or ())
    return [Task(step, State(), preprocessor=how) for step in (Missing(), Squares())]


@dataclass(frozen=True, slots=True, eq=False)
class _Summaries:
    """Answers of the first round: missing values, moments of numbers, and counts of levels."""

    missing: Answers
    moments: ColumnMoments | None
    counts: Mapping[str, Floats]
    clipped: Mapping[str, Mapping[str, int]]


def _summarise(first: Preprocessor) -> Plan[_Summaries]:
    """Plan the first round: missing values, moments of numbers, and counts of levels."""
    numbers, categories = first.numeric, first.categories
    tasks = [Task(Missing(), State())]
    if categories:
        # each cell holds one coded level, the last one the texts that no site named
        edges = [np.arange(-0.5, len(c.levels) + 1) for c in categories]
        tasks.append(histogram_task(first.places(Category), edges))
    if numbers:
        tasks.append(Task(Squares(), State(), preprocessor=replace(first, columns=numbers)))
    bounded = [column for column in numbers if column.bounds is not None]
    if bounded:
        bounds = np.array([column.bounds for column in bounded], dtype=np.float64)
        edges = [np.array([-np.inf, np.nextafter(a, -np.inf), b, np.inf]) for a, b in bounds]
        tasks.append(_counting(bounded, edges))
    logarithms = [c for c in numbers if c.log and (c.bounds is None or c.bounds[0] < 0)]
    if logarithms:
        tasks.append(_counting(logarithms, [NEGATIVE] * len(logarithms)))
    missing, *others = yield tasks
    if logarithms:
        _check_negative(logarithms, others.pop())
    clipped = _clipped(bounded, others.pop() if bounded else Answers({}))
    moments = ColumnMoments.of(np.zeros(len(numbers)), others[-1]) if numbers else None
    counts = {}
    if categories:
        cells = others[0].total().weights.reshape(len(categories), -1)
        counts = {c.name: n[: len(c.levels) + 1] for c, n in zip(categories, cells, strict=True)}
    return _Summaries(missing, moments, counts, clipped)


def _counting(columns: Sequence[NumericColumn], edges: Sequence[Floats]) -> Task:
    """Return the task that counts the raw values of columns in cells between given edges."""
    as_they_are = tuple(NumericColumn(column.name) for column in columns)
    asked = histogram_task(range(len(columns)), edges)
    return replace(asked, preprocessor=Preprocessor(as_they_are, missing="keep"))


def _check_negative(columns: Sequence[NumericColumn], answers: Answers) -> None:
    """Raise an error for logarithms of columns with negative values, if limits disclose these.

    Over a network, a site does not fail because of a single negative value, which would reveal a
    row.
    """
    found = [
        f"column {name!r} has {round(cells[0]):,} negative values at {site}"
        for site, name, cells in _counted(columns, answers)
        if cells[0]
    ]
    if found:
        raise InputError(f"{'; '.join(found)}, of which there is no logarithm: take it as it is")


def _counted(
    columns: Sequence[NumericColumn], answers: Answers
) -> Iterator[tuple[str, str, list[float]]]:
    """Yield the site, the column and the counts of cells from each answer to `_counting`."""
    for site, answer in answers.by_site.items():
        cells = answer.weights.reshape(len(columns), -1).tolist()
        yield from ((site, c.name, each) for c, each in zip(columns, cells, strict=True))


def _clipped(bounded: Sequence[NumericColumn], answers: Answers) -> dict[str, dict[str, int]]:
    """Return the nonzero numbers of values outside the bounds, by site and column."""
    clipped: dict[str, dict[str, int]] = {}
    for site, name, cells in _counted(bounded, answers):
        if n := cells[0] + cells[-1]:
            clipped.setdefault(site, {})[name] = round(n)
    return clipped


def _mostly_missing(answers: Mapping[str, Summary], names: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each column in which most rows of the sites have no value."""
    if answers:
        rows = np.sum([answer.weights for answer in answers.values()], axis=0)
        there = rows - np.sum([answer.sums[:, 0] for answer in answers.values()], axis=0)
        for name, n, of in zip(names, there.tolist(), rows.tolist(), strict=True):
            if 2 * n < of:
                yield (
                    f"column {name!r}{HAS_FEW}{n:,.0f} of {of:,.0f} rows only; if that "
                    f"is too few, say --exclude {quoted(name)}"
                )


def _missing_values(
    prepare: PreprocessingSpec, answers: Answers, names: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return the nonzero numbers of missing values, by site and column.

    Raises
    ------
    InputError
        If a site has no value at all in a column, or a value is missing although missing values are
        errors; the message names every such site and column.
    """
    missing, empty = {}, []
    for site, answer in answers.by_site.items():
        each = list(zip(names, answer.sums[:, 0], answer.weights, strict=True))
        empty += [f"column {name!r} at {site}" for name, n, rows in each if rows and n == rows]
        if any(answer.sums[:, 0]):
            missing[site] = {name: int(n) for name, n, _ in each if n}
    if empty:
        raise InputError(f"every value is missing of {'; '.join(empty)}; leave out column or site")
    if missing and prepare.missing == "error":
        counts = [(n, name, site) for site in missing for name, n in missing[site].items()]
        where = "; ".join(f"{n} of {name!r} at {site}" for n, name, site in counts)
        raise InputError(
            f"values are missing: {where}; drop their rows or fill them in: missing is one of "
            "drop, mean, median and ignore, as in --missing mean or "
            'prepare=PreprocessingSpec(missing="mean")'
        )
    return missing


def _pool(
    prepare: PreprocessingSpec, columns: Sequence[AnyColumn], counts: Mapping[str, Floats]
) -> tuple[tuple[AnyColumn, ...], dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the columns with frequent levels only, the pooled levels, and columns left out."""
    kept: list[AnyColumn] = []
    pooled: dict[str, tuple[str, ...]] = {}
    left_out: dict[str, str] = {}
    named = set(prepare.named)
    for column in columns:
        if isinstance(column, NumericColumn):
            kept.append(column)
            continue
        *each, unnamed = counts[column.name].tolist()
        by_level = dict(zip(column.levels, each, strict=True))
        levels = tuple(level for level, n in by_level.items() if n >= prepare.rare)
        rare = tuple(level for level, n in by_level.items() if n < prepare.rare)
        others = unnamed + sum(n for n in each if n < prepare.rare)
        is_named = column.name in named
        if reason := _too_rare(levels, sum(each) + unnamed, others, is_named):
            left_out[column.name] = (None if is_named else _composite(column)) or reason
            continue
        commonest = column.levels[int(np.argmax(each))]
        fill = None if prepare.missing in ("error", "drop") else commonest
        kept.append(Category(column.name, levels, others > 0, fill))
        if rare:
            pooled[column.name] = rare
    return tuple(kept), pooled, left_out


def _too_rare(levels: Sequence[str], rows: float, others: float, named: bool) -> str | None:
    """Return the reason why levels this rare cannot form a category, or None."""
    if not levels:
        return "text without a value that enough rows share"
    if not named and others > rows / 2:
        return "text of which most rows have a value that few share"
    if not named and len(levels) == 1 and not others:
        return f"the same text, {levels[0]!r}, everywhere"
    return None


def _fill(prepare: PreprocessingSpec, chosen: Preprocessor, seen: _Summaries) -> Plan[Preprocessor]:
    """Plan the values that replace missing ones."""
    if prepare.missing in ("error", "drop"):
        return replace(chosen, missing=prepare.missing)
    fills: Sequence[float] = () if seen.moments is None else seen.moments.mean.tolist()
    if prepare.missing == "median" and seen.moments is not None:
        numbers = replace(chosen, columns=chosen.numeric)
        plan = _quantiles([0.5], seen.moments.precise())
        [medians], *_ = yield from with_preprocessing(plan, numbers)
        fills = medians.tolist()
    changes = [{"fill": value} for value in fills]
    missing = "ignore" if prepare.missing == "ignore" else "error"
    return replace(chosen, missing=missing).changed(changes)


def _quantiles(
    shares: Sequence[float], plan: Plan[ColumnMoments]
) -> Plan[tuple[Floats, Floats, ColumnMoments]]:
    """Plan quantiles, their resolutions, and the moments from which their search begins."""
    found = yield from plan
    values, steps = yield from quantiles(shares, found.mean, found.variance, found.weights)
    return values, steps, found


def _scale(
    prepare: PreprocessingSpec, filled: Preprocessor, seen: _Summaries, is_missing: bool
) -> Plan[tuple[Preprocessor, dict[str, Moments]]]:
    """Plan the scales of the numeric columns, and return the answers that were used."""
    numbers, moments = filled.numeric, dict[str, Moments]()
    if prepare.scale == "none" or seen.moments is None:
        return filled, moments
    if prepare.scale == "minmax":
        scales = {column.name: _scale_from_bounds(column) for column in numbers}
    else:
        ignored = prepare.missing == "ignore"
        standard_mean = prepare.missing == "mean" and prepare.scale == "standard"
        if not is_missing or ignored:
            plan = seen.moments.precise()
        elif standard_mean:  # filling in the mean does not change the mean
            plan = ColumnMoments.about(seen.moments.mean)
        else:
            plan = ColumnMoments.unknown()
        # rows are dropped for any missing value; otherwise only numeric columns matter
        all_of_it = is_missing and prepare.missing == "drop"
        asked = filled if all_of_it else replace(filled, columns=numbers)
        asked = asked.keeping() if ignored else asked
        fitted, found = yield from with_preprocessing(_scales(prepare.scale, plan), asked)
        scales = dict(zip(asked.names, fitted, strict=True))
        by_column = site_moments(found.center, found.answers, asked.names)
        moments = {c.name: by_column[c.name] for c in numbers if c.name in by_column and not c.log}
    pairs = [scales[column.name] for column in numbers]
    step = NumericColumn.finest
    changes = [{"shift": shift, "scale": scale, "step": step} for shift, scale in pairs]
    return filled.changed(changes), moments


def _scale_from_bounds(column: NumericColumn) -> tuple[float, float]:
    """Return the shift and the scale that map the bounds to 0 and 1."""
    low, high = np.array(column.bounds, dtype=np.float64)
    if column.log:
        low, high = np.log1p(low), np.log1p(high)
    return float(low), float(high - low)


def _scales(
    scale: str, plan: Plan[ColumnMoments]
) -> Plan[tuple[list[tuple[float, float]], ColumnMoments]]:
    """Plan the shift and the scale of each column, and return the moments that were used."""
    if scale == "standard":
        found = yield from plan
        shift = found.mean
        spread = np.sqrt(np.where(_is_constant(found), 1.0, found.variance))
    else:
        values, steps, found = yield from _quantiles([0.25, 0.5, 0.75], plan)
        low, shift, high = values
        is_distinct = high - low > steps[0] + steps[2]
        instead = np.where(_is_constant(found), 1.0, np.sqrt(found.variance))
        spread = np.where(is_distinct, high - low, instead)
    return list(zip(shift.tolist(), spread.tolist(), strict=True)), found


def _weighted(prepare: PreprocessingSpec, scaled: Preprocessor) -> Preprocessor:
    """Return the preprocessor with scales adjusted to the weights of columns."""
    columns = (column.weighted(prepare.weights.get(column.name, 1.0)) for column in scaled.columns)
    return replace(scaled, columns=tuple(columns))


def _have_offsets(
    prepare: PreprocessingSpec, found: ColumnMoments, means: Floats
) -> NDArray[np.bool_]:
    """Return which columns have offsets: codes of two neighbouring whole numbers have none.

    Values from a to a + 1 with the mean a + p have at most the variance p (1 - p), which a and
    a + 1 alone reach. Sums of groups tell nearly all of it: three quarters are asked for, of which
    values that are even have less than half. ``means`` (n, d) are of some rows.
    """
    low = np.floor(found.mean)
    share = found.mean - low
    inside = (np.abs(means - low - 0.5) <= 0.5 + 1e-9).all(axis=0)
    told = ~(inside & (found.variance >= 0.75 * share * (1 - share)))
    if not told.any():
        raise InputError(f"adjust={prepare.adjust!r} is for columns with more than two values")
    return np.asarray(told)


def _is_constant(found: ColumnMoments) -> NDArray[np.bool_]:
    """Return whether a variance is only rounding, by scikit-learn's bound."""
    eps, variance, weights = np.finfo(np.float64).eps, found.variance, found.weights
    rounding = weights * eps * variance + (weights * found.mean * eps) ** 2
    constant: NDArray[np.bool_] = variance <= rounding
    return constant
