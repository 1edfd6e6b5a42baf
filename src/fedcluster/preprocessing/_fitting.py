"""The plan that fits a preprocessor: it is asked for, agreed on and fitted in a few rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Answers, Floats, State, Task
from fedcluster.errors import InputError
from fedcluster.metrics._moments import Means
from fedcluster.preprocessing._columns import Category, NumericColumn
from fedcluster.preprocessing._contents import (
    Missing,
    level_cells,
    missing_by_site,
    pool,
    refuse_empty,
    refuse_missing,
    unfit,
)
from fedcluster.preprocessing._moments import mean_of, variances
from fedcluster.preprocessing._principal import principal
from fedcluster.preprocessing._quantiles import Histogram, quantiles
from fedcluster.preprocessing._schema import Schema
from fedcluster.preprocessing._spec import FitReport, PreprocessingSpec
from fedcluster.preprocessing._transform import Preprocessor
from fedcluster.rounds import Plan, with_preprocessing


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A fitted preprocessor, and what was met while it was fitted."""

    preprocessor: Preprocessor
    fit_report: FitReport


def fit(prepare: PreprocessingSpec, schema: Schema, *, seed: int = 0) -> Plan[Fitted]:
    """Plan a preprocessor: one round looks at what is there, the next ones scale it.

    Standardising takes two rounds, one more where values are missing and their rows dropped;
    quantiles take about eight, principal components two or about ten.

    Parameters
    ----------
    prepare : PreprocessingSpec
        What to do.
    schema : Schema
        What the sites have agreed on.
    seed : int
        Makes the first basis of principal components in many columns.

    Raises
    ------
    InputError
        If a column cannot be prepared so, naming sites and columns.
    """
    first, left_out = _first(prepare, schema)
    look = yield from with_preprocessing(_look(first), first)
    refuse_empty(look.missing, first.names)
    missing = missing_by_site(look.missing, first.names)
    if prepare.missing == "error":
        refuse_missing(missing)
    columns, pooled, more_left_out = pool(prepare, first.columns, look.counts)
    left_out |= more_left_out
    _check_columns(prepare, columns, left_out)
    chosen = replace(first, columns=columns)
    filled = yield from _fill(prepare, chosen, look)
    scaled = yield from _scale(prepare, filled, look, bool(missing))
    if prepare.pca is not None:
        components = yield from with_preprocessing(principal(prepare.pca, seed=seed), scaled)
        scaled = replace(scaled, principal=components)
    only_at = {
        key: site
        for key, site in schema.only_at.items()
        if any(c.name == key[0] and isinstance(c, Category) and key[1] in c.levels for c in columns)
    }
    return Fitted(scaled, FitReport(missing, left_out, pooled, only_at))


def _first(prepare: PreprocessingSpec, schema: Schema) -> tuple[Preprocessor, dict[str, str]]:
    """Return the columns as they are looked at first, and why others are left out."""
    columns: list[NumericColumn | Category] = []
    left_out = dict(schema.left_out)
    for column in schema.columns:
        if column.name not in prepare.named and column.kind == "number":
            bounds = prepare.bounds.get(column.name)
            columns.append(NumericColumn(column.name, bounds, column.name in prepare.log))
        elif reason := unfit(prepare, column):
            left_out[column.name] = reason
        else:
            columns.append(Category(column.name, column.levels, coded=True))
    _check_columns(prepare, columns, left_out)
    _check_numbers(prepare, columns)
    return Preprocessor(tuple(columns), missing="keep"), left_out


def _check_columns(
    prepare: PreprocessingSpec,
    columns: Sequence[NumericColumn | Category],
    left_out: Mapping[str, str],
) -> None:
    """Refuse to leave out what was named, or everything."""
    for name in dict.fromkeys([*(prepare.columns or ()), *prepare.named]):
        if name in left_out:
            raise InputError(f"column {name!r} cannot be used: {left_out[name]}")
        if name not in [column.name for column in columns]:
            raise InputError(f"there is no column {name!r} to make categories of")
    if not columns:
        reasons = "; ".join(f"{name!r} is {why}" for name, why in left_out.items())
        raise InputError(f"there is no column to cluster by: {reasons}")


def _check_numbers(prepare: PreprocessingSpec, columns: Sequence[NumericColumn | Category]) -> None:
    """Refuse to do to columns what they are not made for."""
    measures = [column.name for column in columns if isinstance(column, NumericColumn)]
    for what, names in (("the logarithm", prepare.log), ("bounds", prepare.bounds)):
        if unknown := [name for name in names if name not in measures]:
            raise InputError(
                f"{what} of {unknown[0]!r}: that is no column of numbers; there are "
                f"{', '.join(measures) or 'none'}"
            )
    if prepare.scale == "minmax" and (without := [m for m in measures if m not in prepare.bounds]):
        raise InputError(
            f"scaling by minmax needs bounds of {', '.join(map(repr, without))}: give them, since "
            "a site's smallest and largest values are single rows and never leave it"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """Answers of the first round: missing values, moments of numbers, counts of levels."""

    missing: Answers
    mean: Floats
    weights: Floats
    counts: Mapping[str, Floats]


def _look(first: Preprocessor) -> Plan[_Look]:
    """Plan the first round."""
    measures, categories = first.numeric, first.categories
    tasks = [Task(Missing(), State())]
    if categories:
        tasks.append(Task(Histogram(), State(memory=level_cells(first, categories))))
    if measures:
        tasks.append(Task(Means(), State(), preprocessor=replace(first, columns=measures)))
    missing, *others = yield tasks
    mean = weights = np.empty(0)
    if measures:
        total = others[-1].total()
        mean, weights = mean_of(total), total.weights
    counts = {}
    if categories:
        cells = others[0].total().weights.reshape(len(categories), -1)
        counts = {c.name: n[: len(c.levels) + 1] for c, n in zip(categories, cells, strict=True)}
    return _Look(missing, mean, weights, counts)


def _fill(prepare: PreprocessingSpec, chosen: Preprocessor, look: _Look) -> Plan[Preprocessor]:
    """Plan what missing values become."""
    if prepare.missing in ("error", "drop"):
        return replace(chosen, missing=prepare.missing)
    fills = look.mean
    if prepare.missing == "median" and chosen.numeric:
        numbers = replace(chosen, columns=chosen.numeric)
        plan = _quantiles([0.5], look.mean, look.weights)
        [fills], *_ = yield from with_preprocessing(plan, numbers)
    changes = [{"fill": value} for value in fills.tolist()]
    return _changed(replace(chosen, missing="error"), changes)


def _changed(preprocessor: Preprocessor, changes: Sequence[Mapping[str, Any]]) -> Preprocessor:
    """Return the preprocessor with fields changed of each column of numbers, in their order."""
    change = iter(changes)
    columns = tuple(
        replace(column, **next(change)) if isinstance(column, NumericColumn) else column
        for column in preprocessor.columns
    )
    return replace(preprocessor, columns=columns)


def _quantiles(
    shares: Sequence[float], mean: Floats, weights: Floats
) -> Plan[tuple[Floats, Floats, Floats]]:
    """Plan quantiles, their steps, and the standard deviations of columns with these means."""
    mean, variance = yield from variances(mean)
    values, steps = yield from quantiles(shares, mean, variance, weights)
    return values, steps, np.sqrt(variance)


def _scale(
    prepare: PreprocessingSpec, filled: Preprocessor, look: _Look, is_missing: bool
) -> Plan[Preprocessor]:
    """Plan the scales of the columns of numbers."""
    measures = filled.numeric
    if prepare.scale == "none" or not measures:
        return filled
    if prepare.scale == "minmax":
        scales = {measure.name: _from_bounds(measure) for measure in measures}
    else:
        known = not is_missing or (prepare.missing == "mean" and prepare.scale == "standard")
        moments = (look.mean, look.weights) if known else None
        # a row is dropped for what any column lacks; else the numbers are all that is needed
        all_of_it = is_missing and prepare.missing == "drop"
        asked = filled if all_of_it else replace(filled, columns=measures)
        fitted = yield from with_preprocessing(_scales(prepare.scale, moments), asked)
        scales = dict(zip(asked.names, fitted, strict=True))
    pairs = [scales[measure.name] for measure in measures]
    return _changed(filled, [{"shift": shift, "scale": scale} for shift, scale in pairs])


def _from_bounds(measure: NumericColumn) -> tuple[float, float]:
    """Return the shift and the scale by which the bounds become 0 and 1."""
    low, high = np.array(measure.bounds, dtype=np.float64)
    if measure.log:
        low, high = np.log1p(low), np.log1p(high)
    return float(low), float(high - low)


def _scales(scale: str, moments: tuple[Floats, Floats] | None) -> Plan[list[tuple[float, float]]]:
    """Plan the shift and the scale of each column, from means and weights if they are known."""
    if moments is None:
        [answers] = yield [Task(Means(), State())]
        total = answers.total()
        moments = mean_of(total), total.weights
    mean, weights = moments
    if scale == "standard":
        shift, variance = yield from variances(mean)
        spread = np.sqrt(np.where(_is_constant(shift, variance, weights), 1.0, variance))
    else:
        [low, shift, high], steps, deviation = yield from _quantiles([0.25, 0.5, 0.75], *moments)
        told_apart = high - low > steps[0] + steps[2]
        instead = np.where(_is_constant(mean, deviation**2, weights), 1.0, deviation)
        spread = np.where(told_apart, high - low, instead)
    return list(zip(shift.tolist(), spread.tolist(), strict=True))


def _is_constant(mean: Floats, variance: Floats, weights: Floats) -> NDArray[np.bool_]:
    """Return whether a variance is nothing but rounding, by scikit-learn's bound."""
    eps = np.finfo(np.float64).eps
    constant: NDArray[np.bool_] = variance <= weights * eps * variance + (weights * mean * eps) ** 2
    return constant
