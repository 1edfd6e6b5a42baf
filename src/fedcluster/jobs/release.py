"""Release of results about sites whose counts are rounded: nothing gives the exact counts back.

Answers of sites remain exact sums of their groups, because rounded sums would change the
clustering. What a job publishes is rounded at its end: model, profiles, scores, pages and tables.
Sites and labels use the model as it is published.

- *Counts* are multiples of 5, and at least 10 unless they are 0.
- *Shares* are ratios of rounded counts, and so are means of columns of 0 and 1.
- *Means* of n values are rounded to steps of ten spreads of the column divided by n, and of whole
  numbers to 5 / n at least: for each n that is rounded alike, several sums are possible, whatever
  the digits of the values are.
- *Spreads* are those of squares that are rounded so, or of rounded shares.
- *Other numbers* are rounded by what ten rows can change.

`fedcluster_app.report.release_check` looks at what is published as an attacker does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedcluster.core import Floats, Result, SiteInfo
from fedcluster.jobs._procedure import choice_of
from fedcluster.model.profiles import NumberProfile, Profiles, TextProfile, is_zero_or_one
from fedcluster.model.stability import Crossing, Stability
from fedcluster.preprocessing import NumericColumn, PreprocessingSpec, Preprocessor
from fedcluster.privacy.limits import SMALLEST, STEP, rounded

NEARLY = 1e-6
"""Tolerance by which sums of shares may differ from a whole number."""
FEWEST_RELEASED = 20
"""Smallest number of rows of a site with groups."""
ROWS = 2.0 * STEP
"""Number of rows whose change a published number does not show."""
Report = TypeVar("Report", bound=Any)


def rows_of_all(sites: Sequence[SiteInfo]) -> float:
    """Return the number of rows of all sites, as far as known, and at least 10."""
    total = next((site.total_rows for site in sites if site.total_rows is not None), None)
    known = sum(site.n_rows or 0.0 for site in sites) if total is None else total
    return max(float(known), SMALLEST)


def to_steps(values: Any, least: Any) -> Floats:
    """Return values rounded to steps of 1, 2 or 5 times a power of ten, at least as large as given.

    Examples
    --------
    >>> to_steps(np.array([68.0953, 0.02341, 5.0]), np.array([0.3, 0.011, 0.0]))
    array([6.8e+01, 2.0e-02, 5.0e+00])
    """
    values, least = np.broadcast_arrays(np.asarray(values, float), np.asarray(least, float))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = np.ceil(np.log10(least / 5.0))
        step = 5.0 * 10.0**power
        step = np.where(step / 5.0 * 2.0 >= least, step / 5.0 * 2.0, step)
        step = np.where(10.0**power >= least, 10.0**power, step)
        digits = np.maximum(-power, 0.0)
        found = np.rint(np.rint(values / step) * step * 10.0**digits) / 10.0**digits
    result: Floats = np.where((least > 0) & np.isfinite(found), found, values) + 0.0
    return result


def coarse(value: float, n: float, least: float = 0.0) -> float:
    """Return a number rounded by what ten of n rows can change, in units of ``least`` or more.

    Examples
    --------
    >>> coarse(3834.4018, 1355.0), coarse(0.00735, 1355.0, 1.0)
    (3850.0, 0.01)
    """
    return float(to_steps(value, max(abs(value), least) * ROWS / max(n, ROWS)))


def shares_of(shares: Floats, n: Floats) -> Floats:
    """Return shares of n rows as ratios of rounded counts.

    Neither the count nor that of the other rows is below 10, unless it is 0.

    Examples
    --------
    >>> shares_of(np.array([1 / 448, 40 / 448, 447 / 448]), np.array([448.0])) * 450
    array([  0.,  40., 450.])
    """
    of = np.maximum(rounded(n), SMALLEST)
    count = rounded(np.nan_to_num(shares) * n)
    rest = of - count
    count = np.where((rest > 0) & (rest < SMALLEST), of - rounded((1 - shares) * n), count)
    few = (count < SMALLEST) | ((of - count > 0) & (of - count < SMALLEST))
    count = np.where(few, np.where(shares < 0.5, 0.0, of), np.minimum(count, of))
    result: Floats = np.where(np.isfinite(shares), count / of, shares)
    return result


def are_whole(sums: Floats) -> bool:
    """Return whether sums (k,) are whole numbers, as those of whole numbers are.

    Examples
    --------
    >>> are_whole(np.array([40890.0, 30225.0])), are_whole(np.array([12.1, 7.0]))
    (True, False)
    >>> are_whole(np.array([4.089e-10, 0.0]))
    False
    """
    known = sums[np.isfinite(sums)]
    near = np.maximum(np.abs(known) * 1e-12, np.minimum(np.abs(known) * 1e-3, 1e-9))
    return bool((np.abs(known - np.rint(known)) <= near).all() and (near < 1e-3).all())


def means_of(means: Floats, n: Floats, spread: float = 0.0) -> Floats:
    """Return the means (k,) of one column in k clusters of n rows (k,), as they may be published.

    Parameters
    ----------
    means : ndarray of shape (k,)
        The means, in the units of the column.
    n : ndarray of shape (k,)
        The number of rows of each.
    spread : float
        The spread of the column; if it is not known, that of the means counts.

    Examples
    --------
    >>> means_of(np.array([1 / 448, 0.25]), np.array([448.0, 400.0]))
    array([0.  , 0.25])
    >>> means_of(np.array([68.09531, 73.72]), np.array([598.0, 408.0]), 16.3)
    array([68. , 73.5])
    """
    means = np.asarray(means, dtype=np.float64)
    whole, inside = are_whole(means * n), np.nan_to_num(means, nan=0.5)
    if whole and ((inside >= 0) & (inside <= 1)).all():
        return shares_of(means, n)
    known = np.isfinite(means) & (n > 0)
    if not spread and known.any():
        center = np.average(means[known], weights=n[known])
        spread = math.sqrt(np.average((means[known] - center) ** 2, weights=n[known]))
    least = max(STEP * whole, ROWS * spread) / np.maximum(rounded(n), SMALLEST)
    return to_steps(means, least)


def spreads_of(spreads: Floats, exact: Floats, published: Floats, n: Floats) -> Floats:
    """Return the spreads (k,) of one column in k clusters, as they may be published.

    Parameters
    ----------
    spreads, exact : ndarray of shape (k,)
        The spreads and the means.
    published : ndarray of shape (k,)
        The means as they are published.
    n : ndarray of shape (k,)
        The number of rows of each.
    """
    square = spreads**2
    flag = np.abs(square - exact * (1 - exact)) <= 1e-9 * np.maximum(exact**2, square)
    if flag[np.isfinite(square)].all():
        result: Floats = np.where(
            np.isfinite(square), np.sqrt(np.maximum(published * (1 - published), 0)), np.nan
        )
        return result
    least = max(STEP * are_whole(exact * n), ROWS * float(np.nanmax(square)))
    least = least / np.maximum(rounded(n), SMALLEST)
    return np.sqrt(np.maximum(to_steps(square, least), 0.0))


# What a job publishes


def released_preprocessor(
    how: Preprocessor, spec: PreprocessingSpec, sites: Sequence[SiteInfo]
) -> Preprocessor:
    """Return a fitted preprocessor whose numbers may be published where sites require that.

    Rows are prepared by it from then on, so that clusters and labels fit to what is published.
    """
    n = rows_of_all(sites)
    columns = tuple(
        _of_column(each, n, math.sqrt(spec.weights.get(each.name, 1.0)))
        if isinstance(each, NumericColumn) and spec.scale in ("standard", "robust", "none")
        else each
        for each in how.columns
    )
    return replace(how, columns=columns)


def _of_column(column: NumericColumn, n: float, weight: float) -> NumericColumn:
    """Return a numeric column with a shift, a scale and a fill that may be published."""
    spread, of = column.scale * weight, np.array([n])
    mean, square = np.array([column.shift]), spread**2
    if is_zero_or_one(column.shift, spread):
        share = float(shares_of(mean, of)[0])
        square = max(share * (1 - share), SMALLEST / n)
        shift = share
    elif column.scale == 1.0 and column.shift == 0.0:
        shift = 0.0
    else:
        shift = float(means_of(mean, of, spread)[0])
        square = float(to_steps(square, ROWS * square / n))
    fill = column.fill
    if fill is not None:
        # the spread of an unscaled column is not known
        near = min(abs(fill), 1.0) if column.scale == 1.0 else spread
        fill = shift if fill == column.shift else float(means_of(np.array([fill]), of, near)[0])
    return replace(column, shift=shift, scale=math.sqrt(square) / weight, fill=fill)


def published(report: Report) -> Report:
    """Return a report whose numbers may be published where a site requires that."""
    n, fit_report, profiles = rows_of_all(report.sites), report.fit_report, report.profiles
    missing, clipped = _by_site(fit_report.missing), _by_site(fit_report.clipped)
    stability, crossing = report.stability, report.beside
    found: Report = replace(
        report,
        outcome=replace(report.outcome, value=_of_value(report.outcome.value, report, n)),
        sites=tuple(map(_of_site, report.sites)),
        fit_report=replace(fit_report, missing=missing, clipped=clipped),
        profiles=None if profiles is None else of_profiles(profiles),
        stability=stability and _of_stability(stability, report.clustering.state.weights),
        influence=tuple(_numbers(each, n, 1.0) for each in report.influence),
        beside=crossing and Crossing(rounded(crossing.rows), float(rounded(crossing.weight))),
        since=report.since and _of_succession(report.since, n),
    )
    return found


def _if_counts(weights: Any) -> Any:
    """Return weights, rounded if they are counts: whole numbers, or shares of whole rows.

    Shares of rows add up to a whole number, which is larger than for weights normalised to 1.

    Examples
    --------
    >>> _if_counts(np.array([12.25, 28.75])), _if_counts(np.array([0.25, 0.75]))
    (array([10., 30.]), array([0.25, 0.75]))
    """
    return rounded(weights) if _are_counts(weights) else weights


def _are_counts(weights: Any) -> bool:
    numbers = np.atleast_1d(weights)[np.isfinite(np.atleast_1d(weights))]
    each, total = (np.abs(n - np.rint(n)) for n in (numbers, numbers.sum()))
    shares = numbers.sum() >= FEWEST_RELEASED and total < max(NEARLY, NEARLY**1.5 * numbers.sum())
    return bool(shares or (each < NEARLY).all())


def _of_site(site: SiteInfo) -> SiteInfo:
    """Return the metadata of a site with rounded sizes."""
    sizes = (site.n_rows, site.total_rows)
    n, total = (None if each is None else float(rounded(each)) for each in sizes)
    weight = None if site.weight is None else float(_if_counts(site.weight))
    return replace(site, n_rows=n, total_rows=total, weight=weight)


def _numbers(value: Any, n: float, least: float = 0.0) -> Any:
    """Return a value with all its numbers that are not whole rounded, in records and mappings."""
    if isinstance(value, float):
        return coarse(value, n, least) if math.isfinite(value) else value
    if isinstance(value, Mapping):
        return {key: _numbers(each, n, least) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(_numbers(each, n, least) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        made = {f.name: _numbers(getattr(value, f.name), n, least) for f in fields(value) if f.init}
        return replace(value, **made)
    return value


def _of_value(value: Any, report: Any, n: float) -> Any:
    """Return the result of a job as it may be published."""
    if isinstance(value, Result):
        return _of_result(value, report, n)
    if (choice := choice_of(value)) is not None:
        results = {k: _of_result(each, report, n) for k, each in choice.results.items()}
        return replace(choice, results=results, table=_numbers(dict(choice.table), n))
    if isinstance(value, Profiles):
        return of_profiles(value)
    return _numbers(value, n) if isinstance(value, Mapping) else value


def _of_result(result: Result, report: Any, n: float) -> Result:
    """Return a clustering with centres and other numbers that may be published."""
    state = result.state
    counted = _are_counts(state.weights)
    rows = state.weights if counted else np.full(len(state.weights), n)
    state = replace(
        state,
        centers=_centers(state.centers, rows, report),
        weights=rounded(state.weights) if counted else state.weights,
        inertia=_numbers(float(state.inertia), n),
        memory={name: _of_memory(name, each, n) for name, each in state.memory.items()},
    )
    history = tuple(_numbers(each, n) for each in result.history)
    return replace(result, state=state, history=history)


def _centers(centers: Floats, n: Floats, report: Any) -> Floats:
    """Return centres (k, p) as they may be published, column by column in their own units."""
    published, how = np.array(centers, dtype=np.float64), report.preprocessor
    if not published.size:
        return published
    linear = how is not None and how.principal is None and not how.unit
    spreads = _spreads_of(report)
    j = 0
    for column in how.columns if linear else ():
        for name in column.names:
            shift = column.shift if isinstance(column, NumericColumn) else 0.0
            values = published[:, j] * column.scale + shift
            if isinstance(column, NumericColumn):
                values = means_of(values, n, spreads.get(name, 0.0))
            elif not column.coded:
                values = shares_of(values, n)
            published[:, j] = (values - shift) / column.scale
            j += 1
    for column_of in range(j, published.shape[1]):
        published[:, column_of] = means_of(published[:, column_of], n, spreads.get(column_of, 0.0))
    return published


def _spreads_of(report: Any) -> dict[Any, float]:
    """Return the spreads of columns by name, or by place without a preparation, if known."""
    spreads: dict[Any, float] = {}
    how, spec = report.preprocessor, report.prepare
    if how is not None and spec is not None and spec.scale in ("standard", "robust"):
        for column in how.numeric:
            spreads[column.name] = column.scale * math.sqrt(spec.weights.get(column.name, 1.0))
    for j, column in enumerate(() if report.profiles is None else report.profiles.columns):
        if isinstance(column, NumberProfile) and math.isfinite(column.spreads[-1]):
            logarithm = how is not None and any(c.log for c in how.numeric if c.name == column.name)
            if not logarithm:
                spreads.setdefault(j if how is None else column.name, float(column.spreads[-1]))
    return spreads


def _of_memory(name: str, array: Floats, n: float) -> Floats:
    """Return an array of a state's memory as it may be published."""
    array = array.astype(np.float64)
    if name in ("cluster", "texts", "neighbours", "gone"):
        return array
    if name in ("parts", "seen", "noise") and array.sum() > 1:
        return np.asarray(np.maximum(rounded(array), SMALLEST))
    if name in ("shares", "overall"):
        return shares_of(array, np.full(array.shape[-1:], n))
    return to_steps(array, np.abs(array) * ROWS / max(n, ROWS))


def _of_stability(stability: Stability, weights: Floats) -> Stability:
    """Return the stability of clusters as it may be published."""
    n = np.maximum(weights, SMALLEST)
    return replace(
        stability,
        jaccards=to_steps(stability.jaccards, ROWS / n),
        between=to_steps(stability.between, ROWS / n),
    )


def _of_succession(since: Any, n: float) -> Any:
    """Return what became of earlier clusters as it may be published."""
    steps = ROWS / np.maximum(since.now, SMALLEST)
    return replace(
        since,
        then=_if_counts(since.then),
        now=_if_counts(since.now),
        moved=to_steps(since.moved, steps[:, None]),
        changed=to_steps(since.changed, steps[:, None]),
        grown=to_steps(since.grown, ROWS / max(n, ROWS)),
    )


def of_profiles(profiles: Profiles) -> Profiles:
    """Return profiles as they may be published; those of all rows add up those of clusters."""
    columns = tuple(
        _of_numbers(column) if isinstance(column, NumberProfile) else _of_texts(column)
        for column in profiles.columns
    )
    sizes = {site: _if_counts(each) for site, each in profiles.sizes.items()}
    totals, silhouettes = _if_counts(profiles.weights), profiles.silhouettes
    if silhouettes is not None:
        silhouettes = to_steps(silhouettes, ROWS / np.maximum(profiles.weights, SMALLEST))
    return replace(profiles, sizes=sizes, columns=columns, totals=totals, silhouettes=silhouettes)


def _of_numbers(column: NumberProfile) -> NumberProfile:
    n, spread = column.weights, float(column.spreads[-1])
    if not _are_counts(n):
        n = np.full(len(n), float(np.nansum(n)))
    means = means_of(column.means, n, spread if math.isfinite(spread) else 0.0)
    return replace(
        column,
        weights=_added_up(_if_counts(column.weights)),
        means=means,
        spreads=spreads_of(column.spreads, column.means, means, n),
        medians=to_steps(column.medians, column.steps),
        steps=to_steps(column.steps, column.steps / ROWS),
    )


def _of_texts(column: TextProfile) -> TextProfile:
    counts, known = _if_counts(column.counts), _if_counts(column.weights)
    whole = np.abs(column.counts.sum(axis=1) - column.weights) < NEARLY
    known = np.where(whole, counts.sum(axis=1), known)
    return replace(column, weights=_added_up(known), counts=_added_up(counts))


def _added_up(counts: Floats) -> Floats:
    """Return counts of clusters, (k + 1, ...), of which the last line is the sum of the others."""
    result: Floats = np.concatenate([counts[:-1], counts[:-1].sum(axis=0, keepdims=True)])
    return result


def _by_site(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {site: {c: rounded(n) for c, n in each.items()} for site, each in counts.items()}
