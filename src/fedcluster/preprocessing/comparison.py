"""Which columns one site holds otherwise than the others, and what explains it.

Values of a site are compared with those of rows elsewhere that are alike in the other columns. What
may have been done to a column is tried: an explanation is given if the column is alike after it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Floats
from fedcluster.errors import listed
from fedcluster.frames.columns import NumberSample, codes_option, columns_of
from fedcluster.preprocessing.agreement import level_warnings
from fedcluster.preprocessing.explaining import Columns
from fedcluster.preprocessing.matching import like, matched
from fedcluster.preprocessing.placeholders import (
    misplaced_points,
    placeholder_line,
    placeholders,
    shown,
    typing_errors,
    written,
)
from fedcluster.preprocessing.units import ODD
from fedcluster.texts import setting


def unlike_sites(
    sites: Mapping[str, Data],
    named: Collection[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
) -> Iterator[str]:
    """Yield a line for each column of numbers of which a site's values are unlike the others.

    Parameters
    ----------
    sites : mapping of str to Data
        The rows of each site before preparation.
    named : collection of str
        Columns that the user named as categories, which are skipped.
    bounds : mapping of str to (float, float), optional
        Bounds of columns; values outside are clipped, and so are no typing errors.
    """
    places = {site: _numbers(data) for site, data in sites.items()}
    first, *others = places.values()
    names = [n for n in first if n not in named and all(n in each for each in others)]
    rows = {
        site: data.X[:: max(1, -(-len(data) // ODD.most_rows))][
            :, [places[site][name] for name in names]
        ].astype(np.float64)
        for site, data in sites.items()
    }
    described: dict[str, dict[str, NumberSample]] = {}
    for j, name in enumerate(names):
        samples = {
            site: NumberSample.from_values(data.X[:, places[site][name]], rows[site][:, j])
            for site, data in sites.items()
        }
        for site, odd, line in _odd_values(name, samples, (bounds or {}).get(name)):
            yield line
            rows[site][np.isin(rows[site][:, j], odd), j] = np.nan
            samples[site] = samples[site].without(*odd)
        described[name] = samples
    if len(rows) > 1:
        yield from _unlike(described, rows)
        yield from _renamed(sites, rows)


def _odd_values(
    name: str,
    samples: Mapping[str, NumberSample],
    bounds: tuple[float, float] | None,
) -> Iterator[tuple[str, list[float], str]]:
    """Yield sites with values of a column that stand for something else, and a line about them."""
    rest: dict[str, NumberSample] = {}
    for site, sample in samples.items():
        found, rest[site] = placeholders(sample)
        if found:
            yield site, [*found], placeholder_line(name, site, found, sample.n, rest[site])
    every = NumberSample.joined(rest.values())
    wrong = typing_errors(every)
    low, high = bounds or (-math.inf, math.inf)
    for site, sample in rest.items():
        off = {*wrong, *misplaced_points(sample, every.less(sample))}
        if odd := sorted(x for x in off if low <= x <= high and x in sample.values):
            inside = every.without(*wrong, *odd)
            yield (
                site,
                odd,
                f"column {name!r} at {site}: {shown(odd)} "
                f"{'are' if odd[1:] else 'is'} far from the others, {written(inside.low)} to "
                f"{written(inside.high)}; if it is wrong, mend it, or say "
                f"{setting('prepare', 'bounds', name, to=[inside.low, inside.high])}",
            )


def _unlike(
    described: Mapping[str, Mapping[str, NumberSample]],
    rows: Mapping[str, Floats],
) -> Iterator[str]:
    """Yield a line for each column of a site's rows (n, d) that is unlike that of the others."""
    every = {name: NumberSample.joined(samples.values()) for name, samples in described.items()}
    X = np.concatenate([*rows.values()])
    place = np.repeat(np.arange(len(rows)), [len(own) for own in rows.values()])
    told: dict[str, tuple[float, str]] = {}
    for i, (site, own) in enumerate(rows.items()):
        samples = {name: each[site] for name, each in described.items()}
        others = {name: each.less(samples[name]) for name, each in every.items()}
        match = partial(matched, own, X[place != i])
        found = Columns(site, list(described), samples, others, own, match)
        few = found.few()
        for name, unlike, line in (*((n, math.inf, x) for n, x in few.items()), *found.lines(few)):
            if unlike > told.get(name, (0.0, ""))[0]:
                told[name] = unlike, line
    yield from (told[name][1] for name in described if name in told)


def _renamed(sites: Mapping[str, Data], rows: Mapping[str, Floats]) -> Iterator[str]:
    """Yield a line for each column of text in which a site has other names for levels elsewhere.

    Which of the levels that it lacks one of its own is, rows tell that are alike in the numbers.
    """
    texts = {site: _texts(data, len(rows[site])) for site, data in sites.items()}
    for name in next(iter(texts.values())):
        if not all(name in each for each in texts.values()):
            continue
        counts = {site: Counter(filter(None, own[name].tolist())) for site, own in texts.items()}
        every = sum(counts.values(), Counter[str]())
        for site, own in counts.items():
            new = sorted(t for t, n in own.items() if n == every[t] >= ODD.fewest)
            lost = sorted(t for t, n in every.items() if t not in own and n >= ODD.fewest)
            if not 0 < len(new) <= len(lost) <= ODD.few or _is_spelled(sites, name):
                continue
            others, elsewhere = (
                np.concatenate([each for key, each in of_sites.items() if key != site])
                for of_sites in ({key: each[name] for key, each in texts.items()}, rows)
            )
            place, matches = like(rows[site], elsewhere)
            pairs = _renames(texts[site][name][place], others[matches], new, lost)
            if len(pairs) == len(new) == len({*pairs.values()}):
                first = listed([f"{a!r} is what others call {b!r}" for a, b in pairs.items()])
                yield (
                    f"column {name!r} at {site}: by rows that are alike in the other columns, "
                    f"{first}; if so, say {codes_option(name, [*pairs.items()])}"
                )


def _is_spelled(sites: Mapping[str, Data], name: str) -> bool:
    """Return whether a column of text has a warning of its own, which pairs texts by spelling."""
    described = {
        site: [column for column in data.columns if column.name == name]
        for site, data in sites.items()
    }
    return any(level_warnings(described))


def _texts(data: Data, n: int) -> dict[str, NDArray[np.str_]]:
    """Return n evenly spaced rows of columns of text, empty where missing."""
    found = {}
    for j, column in enumerate(columns_of(data)):
        if column.kind == "text" and column.levels:
            code = data.X[:: max(1, -(-len(data) // n)), j]
            levels = np.array([*column.levels, ""], dtype=np.str_)
            found[column.name] = levels[np.where(np.isnan(code), -1, code).astype(np.intp)]
    return found


def _renames(
    own: NDArray[np.str_], matches: NDArray[np.str_], new: Sequence[str], lost: Sequence[str]
) -> dict[str, str]:
    """Return which lost level most matches have of rows with a new one, more than of the rest."""
    pairs = {}
    for level in new:
        is_level = own == level
        if not is_level.any():
            continue
        shares = {other: float((matches[is_level] == other).mean()) for other in lost}
        best = max(shares, key=lambda other: shares[other])
        usual = float((matches[~is_level] == best).mean()) if not is_level.all() else 1.0
        if shares[best] >= max(0.5, ODD.margin * usual):
            pairs[level] = best
    return pairs


def _numbers(data: Data) -> dict[str, int]:
    """Return the indices of the columns of numbers, by name."""
    return {c.name: j for j, c in enumerate(columns_of(data)) if c.kind == "number"}
