"""Rows drawn from a model alone, in tables shaped like those of its sites.

A prepared row is the centre of its cluster, or of a component of a mixture, plus what is drawn
within it, plus the offset of its site; it is then taken back to the units of the columns:

    x = c_z + e + b_s,   z ~ weights,   e ~ N(0, Σ),   b_s ~ N(0, τ²)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster.core import Floats, Labels
from fedcluster.errors import InputError
from fedcluster.frames.cells import dates_of
from fedcluster.metrics.gaussians import components_of, drawn
from fedcluster.preprocessing.columns import OTHER, Category, NumericColumn
from fedcluster.preprocessing.likeness import known_columns
from fedcluster.preprocessing.transform import Preprocessor, Principal

Tables = dict[str, dict[str, NDArray[Any]]]
"""Cells (n,) of columns, by site."""


def simulated(
    model: Any, n_rows: int | None, seed: int, *, most: int = 100_000
) -> tuple[Tables, dict[str, Labels]]:
    """Return tables and the clusters that their rows were drawn from, by site; see `Model`.

    ``most``: largest number of rows of a site if none is given.
    """
    if not len(model.centers):
        raise InputError("the model has no centres to draw rows about; fit one that has them")
    sites = [site.name for site in model.sites] or ["rows"]
    usual = min(max(1, round(model.weights.sum() / len(sites))), most)
    n = usual if n_rows is None else n_rows
    if n < 1:
        raise InputError(f"a site has at least 1 row, not {n}")
    rng, at = np.random.default_rng(seed), np.repeat(np.arange(len(sites)), n)
    prepared, labels = _within_clusters(model, len(at), rng)
    columns = _in_units(model, prepared + _offsets(model, len(sites), rng)[at], rng)
    return (
        {site: {name: x[at == s] for name, x in columns.items()} for s, site in enumerate(sites)},
        {site: labels[at == s] for s, site in enumerate(sites)},
    )


def not_known(model: Any) -> Iterator[str]:
    """Yield sentences on what a model does not hold, and what simulated rows have instead."""
    yield (
        "The model does not hold how many rows and which clusters each site has, how many values "
        "are missing, which numbers are whole, nor columns that were left out: each site gets as "
        "many rows, without gaps, of the columns of the model and with the shares of all sites."
    )
    if model.adjusts:
        yield "Offsets of sites are drawn anew, as large as those of the fit."
    elif "precisions_cholesky" not in model.memory and _root(model) is None:
        yield (
            "The model does not hold how wide clusters are: a quarter of the distance between the "
            "nearest two centres is taken for their deviation."
        )


def _within_clusters(model: Any, n: int, rng: Generator) -> tuple[Floats, Labels]:
    """Return prepared rows (n, p) without offsets, with the shares of levels, and their labels."""
    state, kind = model.state, model.assigned_by
    is_mixture = "precisions_cholesky" in state.memory
    parts = components_of(kind, state) if "means" in state.memory else state
    shares = np.maximum(parts.weights, 0.0) + 1e-300  # noise can leave no weight above 0
    places = rng.choice(len(shares), n, p=shares / shares.sum())
    rows = parts.centers[places]
    if not is_mixture:
        root = _root(model)
        if root is None:
            apart = np.linalg.norm(model.centers[:, None] - model.centers, axis=2)
            wide = apart[apart > 0].min(initial=math.inf) / 4
            root = _along(model, wide if math.isfinite(wide) else 1.0)
        return rows + rng.normal(size=rows.shape) @ root, places.astype(np.int32)
    for j in np.unique(places):
        rows[places == j] += drawn(kind, parts, j, int((places == j).sum()), rng)
    shift, scale = _scaling(state.memory)
    clusters = state.memory.get("cluster", np.arange(len(shares)))
    return rows * scale + shift, clusters[places].astype(np.int32)


def _scaling(memory: Any) -> tuple[Floats, Floats]:
    """Return shift and scale from the columns of components to prepared ones."""
    return memory.get("shift", np.zeros(1)), memory.get("scale", np.ones(1))


def _numbers(how: Preprocessor) -> tuple[NDArray[np.intp], Floats]:
    """Return the places of the numeric columns before principal components, and their scales."""
    stops = np.cumsum([len(column.names) for column in how.columns])
    return stops[how.places(NumericColumn)] - 1, np.array([c.scale for c in how.numeric])


def _root(model: Any) -> Floats | None:
    """Return the matrix (p, p) that makes of normal numbers what lies within clusters.

    None if the model does not hold how wide these are.
    """
    how, C, weights, known = model.by_name, model.centers, model.weights, known_columns(model)
    shares, (_, scale) = np.maximum(weights, 0.0) / max(weights.sum(), 1e-300), _numbers(how)
    within = model.inertia / max(weights.sum(), 1e-300)
    if how.effects is not None:
        return _along(model, np.linalg.cholesky(np.array(how.effects.noise)).T / scale)
    if isinstance(how.principal, Principal):
        between = shares @ (C - shares @ C) ** 2
        return _along(model, np.sqrt(np.maximum(np.array(how.principal.variances) - between, 0.0)))
    if known is not None and known.is_exact and not how.unit and how.principal is None:
        return _along(model, np.sqrt(known.within) / scale)
    if model.algorithm.get("objective") != "inertia" or not math.isfinite(within):
        return None
    if how.principal is None:  # levels vary within clusters too, as they are 0 or one value
        top = np.array([isinstance(c, Category) / c.scale for c in how.columns for _ in c.names])
        within -= float((shares @ np.maximum(C * (top - C), 0.0))[top > 0].sum())
    n = C.shape[1] if how.principal else max(1, len(scale))
    return _along(model, math.sqrt(max(within, 0.0) / n))


def _along(model: Any, wide: Floats | float) -> Floats:
    """Return a matrix (p, p) that is wide along the columns of numbers, but for two values."""
    how, p = model.by_name, model.centers.shape[1]
    places, two = _numbers(how)[0], _two_values(model)
    if how.principal is not None:
        return np.eye(p) * wide
    root = np.zeros((p, p))
    root[np.ix_(places, places)] = wide if np.ndim(wide) == 2 else np.eye(len(places)) * wide
    root[:, [j for j, c in zip(places, how.numeric, strict=True) if c.name in two]] = 0.0
    return root


def _offsets(model: Any, n_sites: int, rng: Generator) -> Floats:
    """Return the offsets (S, p) of sites in prepared columns, which add up to 0."""
    offsets, how = np.zeros((n_sites, model.centers.shape[1])), model.by_name
    if how.effects is not None:
        places, scale = _numbers(how)
        anew = rng.normal(size=(n_sites, len(scale))) * np.sqrt(how.effects.spread) / scale
        offsets[:, places] = anew - anew.mean(axis=0)
    return offsets


def _in_units(model: Any, prepared: Floats, rng: Generator) -> dict[str, NDArray[Any]]:
    """Return columns of prepared rows as files have them: texts, dates and numbers."""
    how, two = model.by_name, _two_values(model)
    stops = np.cumsum([len(column.names) for column in how.columns])
    columns: dict[str, NDArray[Any]] = {}
    for column, x in zip(how.columns, np.split(how.invert(prepared), stops[:-1], 1), strict=True):
        if isinstance(column, Category):
            names = ["other" if level == OTHER else level for level in column.all_levels]
            up = np.cumsum(np.clip(x, 1e-12, None), axis=1)
            place = (rng.random((len(x), 1)) * up[:, -1:] > up).sum(axis=1)
            columns[column.name] = np.array(names)[place]
        elif column.name in two:
            low, high = two[column.name]
            upper = rng.random(len(x)) * (high - low) < x[:, 0] - low
            columns[column.name] = np.where(upper, high, low)
        else:
            columns[column.name] = _cells(column, x[:, 0])
    return {name: columns[name] for name in model.columns if name in columns}


def _two_values(model: Any) -> dict[str, tuple[float, ...]]:
    """Return the columns of numbers that have two values, with these."""
    how, known, memory = model.by_name, known_columns(model), model.memory
    two = {} if known is None else dict(known.levels)
    if how.effects is not None:
        shares = model.weights / max(model.weights.sum(), 1e-300)
        mean = shares @ how.invert(model.centers)[:, _numbers(how)[0]]
        lows = zip(how.numeric, np.floor(mean).tolist(), how.effects.told, strict=True)
        two |= {column.name: (low, low + 1.0) for column, low, told in lows if not told}
    if "texts" in memory and how.principal is None:
        shift, scale = _scaling(memory)
        ends = np.array([[0.0], [1.0]]) * scale + shift + np.zeros(model.centers.shape[1])
        for column, place in zip(how.numeric, _numbers(how)[0], strict=True):
            if memory["texts"][place] > 0:
                two[column.name] = tuple(np.round(how.invert(ends)[:, place], 9))
    return two


def _cells(column: NumericColumn, x: Floats) -> NDArray[Any]:
    """Return numbers (n,) within bounds, rounded to a hundredth of a deviation, or dates."""
    low, high = column.bounds or (-math.inf, math.inf)
    x = np.clip(x, max(low, 0.0) if column.log else low, high)
    if column.date is not None:
        return dates_of(x, column.date)
    deviation = float(np.std(x))
    return np.round(x, 9 if deviation == 0 else max(0, math.ceil(2 - math.log10(deviation))))
