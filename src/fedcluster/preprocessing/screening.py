"""Detection, at the sites, of columns that are no features and of rows that are there twice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Floats
from fedcluster.errors import listed
from fedcluster.frames.columns import NumberSample, SourceSummary, columns_of, quoted, words_of
from fedcluster.preprocessing.spec import FitReport, some_of
from fedcluster.preprocessing.units import ODD, Moments
from fedcluster.texts import setting

KEYS = (
    "id", "ids", "key", "uuid", "guid", "mrn", "pid", "nr", "no", "num", "rowid", "index", "idx",
    "ssn", "phone", "tel", "iban", "barcode",
)  # fmt: skip
"""Last words in the names of columns that number rows, persons or things."""
CODES = {
    "zip", "zipcode", "plz", "postcode", "postal", "code", "codes", "icd", "icd9", "icd10", "atc",
    "drg", "loinc",
}  # fmt: skip
"""Last words in the names of columns whose numbers are codes."""


_Samples = Mapping[str, NumberSample]
"""The samples of one column by site."""


def screened(
    sites: Mapping[str, SourceSummary],
    categories: Collection[str] = (),
    made: Collection[str] = (),
) -> FitReport:
    """Return what to leave out and what to ask about of numeric columns.

    Parameters
    ----------
    sites : mapping of str to SourceSummary
        The summary of each site's rows.
    categories : collection of str
        Columns that the user named as categories, which are skipped.
    made : collection of str
        Columns whose numbers were converted from dates, and so are measurements.

    Examples
    --------
    >>> from fedcluster.core import Column, Data
    >>> rows = np.array([[700.0 + i, [1.0, 2.0, 5.0][i % 3]] for i in range(30)])
    >>> data = Data(rows, columns=(Column("patient"), Column("ward")))
    >>> found = screened({"north": SourceSummary.from_data(data)})
    >>> found.left_out
    {'patient': 'it only counts the rows'}
    >>> print(*found.notes)
    Taken as amounts: ward (few whole numbers); if they are codes, say --categories auto,ward.
    """
    by_column: dict[str, dict[str, NumberSample]] = {}
    for site, summary in sites.items():
        for name, column in summary.columns.items():
            if column.sample is not None and name not in categories:
                by_column.setdefault(name, {})[site] = column.sample
    given = {name: each for name, each in by_column.items() if name not in made}
    reasons = {name: no_measurement(name, samples) for name, samples in given.items()}
    left_out = {name: reason for name, reason in reasons.items() if reason}
    used = {name: each for name, each in by_column.items() if name not in left_out}
    if not used and not any(c.kind == "text" for s in sites.values() for c in s.columns.values()):
        left_out, used = {}, by_column
    notes = _notes({name: each for name, each in used.items() if name in given})
    return FitReport(left_out=left_out, notes=tuple(notes))


# Names and keys


def no_measurement(name: str, samples: _Samples) -> str | None:
    """Return why the numbers of a column are not measurements, or None."""
    each, words = list(samples.values()), words_of(name)
    if not all(sample.whole for sample in each):
        return None
    if any(sample.is_padded for sample in each):
        mend = f"--categories auto,{quoted(name)} takes it"
        return f"numbers with zeros in front, which are codes: {mend}"
    long = [sample for sample in each if sample.n > 2]
    if long and all(sample.is_counter for sample in long):
        return "it only counts the rows"
    if CODES & {*words[:1], *words[-1:]}:
        return f"its name is that of a code: --categories auto,{quoted(name)} takes it"
    if words and (words[-1] in KEYS or words[0] == "id"):
        return "its name is that of a key: --columns takes it"
    if not _all_different(each):
        return None
    low, high = min(sample.low for sample in each), max(sample.high for sample in each)
    is_long = low >= 10 ** (ODD.long - 1) and len(f"{low:.0f}") == len(f"{high:.0f}")
    if is_long or all(sample.high - sample.low < ODD.dense * sample.n_rows for sample in each):
        return "whole numbers of which no two are equal, a key: --columns takes it"
    return None


def _all_different(samples: Sequence[NumberSample]) -> bool:
    return all(sample.is_distinct for sample in samples) and sum(s.n for s in samples) >= ODD.enough


def _notes(used: Mapping[str, _Samples]) -> Iterator[str]:
    """Yield sentences on whole numbers that may be codes or keys."""
    few = [name for name, samples in used.items() if _has_few_values(list(samples.values()))]
    distinct = [
        name
        for name, samples in used.items()
        if all(s.whole for s in samples.values()) and _all_different(list(samples.values()))
    ]
    for names, what, mend in (
        (few, "few whole numbers", "codes, say --categories auto,"),
        (distinct, "whole numbers, all different", "keys, say --exclude "),
    ):
        if names:
            first = ",".join(map(quoted, names[:6]))
            yield f"Taken as amounts: {some_of(names)} ({what}); if they are {mend}{first}."


def _has_few_values(samples: Sequence[NumberSample]) -> bool:
    values = np.unique(np.concatenate([sample.values for sample in samples]))
    rows = sum(sample.n for sample in samples)
    is_whole = all(sample.whole for sample in samples)
    return is_whole and 2 < len(values) <= ODD.few and rows >= 5 * len(values)


TARGETS = {
    "target", "label", "labels", "class", "species", "diagnosis", "outcome", "cluster", "clusters",
    "truth", "survived", "churn",
}  # fmt: skip
"""Last words in the names of columns that hold the clusters to be found."""
WEIGHTS = {"pweight", "fweight", "aweight", "iweight", "wgt", "weightvar"}
"""Last words in the names of columns that hold the weights of rows in surveys."""
SURVEYED = {"survey", "sample", "sampling", "design", "final", "household", "person"}
"""Words beside "weight" in such names."""
NAMED = "as its name says"


def no_features(
    sites: Mapping[str, Data],
    *,
    chosen: bool = False,
    filled: bool = False,
) -> Iterator[str]:
    """Yield warnings of columns that are no features, and of repeated and half empty rows.

    Parameters
    ----------
    sites : mapping of str to Data
        The rows of each site before preparation.
    chosen : bool
        Whether the user chose the columns; then there are no warnings of targets and keys.
    filled : bool
        Whether missing values are filled in; then there are warnings of half empty rows.

    Examples
    --------
    >>> from fedcluster.core import Column
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(60, 2))
    >>> rows = np.column_stack([rows, 2.54 * rows[:, 0], rows.sum(axis=1)])
    >>> names = ("inch", "other", "cm", "both")
    >>> data = Data(rows, columns=tuple(map(Column, names)))
    >>> print(*no_features({"north": data}), sep=chr(10))
    columns 'inch' and 'cm' say the same, so that it counts twice; say --exclude cm
    column 'both' is the sum of 'inch' and 'other', so that these count twice; say --exclude both
    """
    numbers = {site: _places(data, "number") for site, data in sites.items()}
    first, *others = numbers.values()
    names = [name for name in first if all(name in each for each in others)]
    samples = [_sample(data, [numbers[site][n] for n in names]) for site, data in sites.items()]
    X = np.concatenate(samples)
    if len(X) >= ODD.enough and names:
        there = ~np.isnan(X).any(axis=1)
        yield from _copies(names, X[there])
        if not chosen:
            yield from _random_keys(names, X)
            yield from _targets(sites, names, X)
    yield from _repeated(sites)
    if filled:
        yield from _half_empty(sites)


def _places(data: Data, kind: str) -> dict[str, int]:
    """Return the indices of the columns of a kind, by name."""
    return {c.name: j for j, c in enumerate(columns_of(data)) if c.kind == kind}


def _spread(n: int) -> slice:
    """Return which of n rows are inspected."""
    return slice(None, None, max(1, -(-n // ODD.most_compared)))


def _sample(data: Data, places: Sequence[int]) -> Floats:
    """Return evenly spaced rows of some columns, (m, d)."""
    rows: Floats = data.X[_spread(len(data))][:, np.array(places, np.intp)].astype(np.float64)
    return rows


# Copies and sums


def _copies(names: Sequence[str], X: Floats) -> Iterator[str]:
    """Yield warnings of columns that equal another column, or a sum of others."""
    deviation = X.std(axis=0) if len(X) else np.zeros(len(names))
    vary = np.flatnonzero(deviation > ODD.rounding * np.abs(X).max(axis=0, initial=1e-300))
    if len(X) < ODD.enough or len(vary) < 2:
        return
    Z = (X[:, vary] - X[:, vary].mean(axis=0)) / deviation[vary]
    copied = np.zeros(len(vary), dtype=bool)
    for start in range(0, len(vary), ODD.most_wide):
        alike = (Z[:, start : start + ODD.most_wide].T @ Z / len(Z)) ** 2 > 1 - ODD.rounding
        for i, same in enumerate(alike, start):
            same[: i + 1] = False
            again = np.flatnonzero(same & ~copied)
            if copied[i] or not len(again) or not _differ_enough(X[:, vary[i]]):
                continue
            copied[again] = True
            first = names[vary[i]]
            for second in (names[j] for j in vary[again]):
                yield (
                    f"columns {first!r} and {second!r} say the same, so that it counts twice; say "
                    f"--exclude {quoted(second)}"
                )
    rest = vary[~copied]
    if 2 < len(rest) <= ODD.most_wide and len(X) > 3 * len(rest):
        yield from _sums([names[i] for i in rest], X[:, rest])


def _differ_enough(values: Floats) -> bool:
    """Return whether a column has more values than two columns share by chance."""
    return len(np.unique(values)) > 2


def _sums(names: Sequence[str], X: Floats) -> Iterator[str]:
    """Yield a warning of a column that is the sum of others, if there is one."""
    Z = X - X.mean(axis=0)
    for j in _summed(Z)[::-1]:
        others = [i for i in range(len(names)) if i != j]
        weights, _, rank, _ = np.linalg.lstsq(Z[:, others], Z[:, j], rcond=1e-10)
        off = ((Z[:, others] @ weights - Z[:, j]) ** 2).sum()
        if rank < len(others) or off > ODD.rounding * (Z[:, j] ** 2).sum():
            continue
        parts = [names[i] for i, w in zip(others, weights, strict=True) if abs(w - 1) < 1e-4]
        none = (np.abs(weights) < 1e-4).sum()
        if 1 < len(parts) <= ODD.few and len(parts) + none == len(others):
            yield (
                f"column {names[j]!r} is the sum of {listed(list(map(repr, parts)))}, so that "
                f"these count twice; say --exclude {quoted(names[j])}"
            )
            return


def _summed(Z: Floats) -> list[int]:
    """Return the columns that are combinations of the others, up to a share of their squares.

    What the others leave of a column is the inverse of an element of the inverse of Z^T Z.
    """
    _, sizes, turned = np.linalg.svd(Z / np.linalg.norm(Z, axis=0), full_matrices=False)
    left = 1 / ((turned.T / np.maximum(sizes, 1e-150)) ** 2).sum(axis=1)
    return np.flatnonzero(left <= 2 * ODD.rounding).tolist()


# Keys and targets


def _random_keys(names: Sequence[str], X: Floats) -> Iterator[str]:
    """Yield warnings of distinct, uniformly drawn whole numbers unrelated to other columns."""
    ranks = np.argsort(np.argsort(X, axis=0), axis=0).astype(np.float64)
    for j, name in enumerate(names):
        values = np.sort(X[:, j])
        n = len(values)
        if n < ODD.few * ODD.fewest or np.isnan(values[-1]) or values[-1] - values[0] < 4 * n:
            continue
        if (values != np.floor(values)).any() or (np.diff(values) == 0).any():
            continue
        even, steps = (values - values[0]) / (values[-1] - values[0]), np.arange(n + 1) / n
        off = max(np.abs(even - steps[1:]).max(), np.abs(even - steps[:-1]).max())
        if off * np.sqrt(n) >= ODD.uniform:
            continue
        middle = (n - 1) / 2
        products = np.abs((ranks[:, j] - middle) @ (ranks - middle))
        products[j] = 0.0
        alike = 12 * products.max() / n**3  # Spearman's rank correlation
        if alike / 2 * np.sqrt(n) < ODD.uniform:
            yield (
                f"column {name!r} holds whole numbers, all different and as if drawn at random: "
                f"if they are keys, say --exclude {quoted(name)}"
            )


def named_targets(names: Sequence[str], texts: Collection[str] = ()) -> Iterator[str]:
    """Yield a warning for each column whose name says that it holds clusters or weights of rows.

    Of columns called y, those of ``texts`` are meant; numbers y are often a place.

    Examples
    --------
    >>> print(*named_targets(["x", "y", "species"]))
    column 'species' may be what the clusters are to find, as its name says; compare
    clusters with it by evaluate --label-column, or say --exclude species
    """
    for name in names:
        words = words_of(name)
        if words and (words[-1] in TARGETS or (words == ["y"] and name in texts)):
            yield _target(name, NAMED)
        if (words and words[-1] in WEIGHTS) or (words[-1:] == ["weight"] and SURVEYED & {*words}):
            yield (
                f"column {name!r} may hold the weights of rows, {NAMED}; if so, say "
                f"{setting('weight_column', to=name)}, or else --columns takes it"
            )


def _target(name: str, why: str) -> str:
    return (
        f"column {name!r} may be what the clusters are to find, {why}; compare "
        f"clusters with it by evaluate --label-column, or say --exclude {quoted(name)}"
    )


def _targets(sites: Mapping[str, Data], names: Sequence[str], X: Floats) -> Iterator[str]:
    """Yield a warning of a column with few values that the clusters of all others determine.

    If they determine several columns, the clusters are clear, and these columns are as good as the
    others.
    """
    targets: list[str] = []
    every = list(_classes(sites, names, X))
    some = slice(None, None, -(-len(every) * X.size // ODD.most_cells) or 1)
    X, place = X[some], {name: j for j, name in enumerate(names)}
    for name, classes in ((name, of_all[some]) for name, of_all in every):
        rest = np.delete(X, place[name], axis=1) if name in place else X
        there = ~np.isnan(rest).any(axis=1) & (classes >= 0)
        values, own = np.unique(classes[there], return_inverse=True)
        deviation = rest[there].std(axis=0) if there.any() else np.zeros(0)
        vary = deviation > 0
        counts = np.bincount(own)
        few = len(own) < ODD.few * ODD.fewest or counts.min(initial=len(own)) < ODD.fewest
        if few or not 2 <= len(values) <= ODD.few or vary.sum() < 2:
            continue
        Z = ((rest[there] - rest[there].mean(axis=0))[:, vary]) / deviation[vary]
        if _determined(Z, own, len(values)):
            targets.append(name)
    if len(targets) == 1 and not list(named_targets(targets)):
        yield _target(targets[0], "as the clusters of the other columns nearly tell it")


def _classes(
    sites: Mapping[str, Data], names: Sequence[str], X: Floats
) -> Iterator[tuple[str, NDArray[np.int8]]]:
    """Yield columns of few whole numbers or texts with the class of each row, or -1."""
    for j, name in enumerate(names):
        there = X[:, j][~np.isnan(X[:, j])]
        few = len(np.unique(there[: ODD.most_compared])) <= ODD.few
        if few and len(there) and (there == np.floor(there)).all():
            values = np.unique(there)
            if len(values) <= ODD.few:
                codes = np.where(np.isnan(X[:, j]), -1, np.searchsorted(values, X[:, j]))
                yield name, codes.astype(np.int8)
    texts = [_places(data, "text") for data in sites.values()]
    for name in texts[0]:
        if all(name in place for place in texts):
            places = [place[name] for place in texts]
            parts = [_levels(data, j) for data, j in zip(sites.values(), places, strict=True)]
            known, code = np.unique(np.concatenate(parts), return_inverse=True)
            if len(known) <= ODD.few + 1:
                yield name, np.where(known[code] == "", -1, code).astype(np.int8)


def _levels(data: Data, j: int) -> NDArray[np.str_]:
    """Return the texts of a column in evenly spaced rows, empty if missing."""
    code = data.X[_spread(len(data)), j]
    levels = np.array([*columns_of(data)[j].levels, ""], dtype=np.str_)
    return levels[np.where(np.isnan(code), len(levels) - 1, code).astype(np.intp)]


def _determined(Z: Floats, own: NDArray[np.intp], k: int) -> bool:
    """Return whether k clusters of rows (n, d) determine the classes of nearly all rows.

    Lloyd's algorithm starts from the means of the classes, and moves away if these are not
    clusters. A row does not count in the mean that it is compared with: in many columns, each row
    is close to any mean of few rows that it is one of.
    """
    labels, rows, squares = own, np.arange(len(Z)), (Z**2).sum(axis=1)
    for _ in range(10):
        member = labels[:, None] == np.arange(k)
        sizes = member.sum(axis=0)
        means = member.T @ Z / np.maximum(sizes, 1)[:, None]
        apart = squares[:, None] - Z @ (2 * means.T) + (means**2).sum(axis=1)
        apart[:, sizes == 0] = np.inf
        size = sizes[labels]
        apart[rows, labels] *= np.divide(size, size - 1, where=size > 1, out=np.ones(len(Z))) ** 2
        last, labels = labels, np.argmin(apart, axis=1)
        if np.array_equal(labels, last):
            break
    return _rand(own, labels) >= ODD.determined


def _rand(one: NDArray[np.intp], other: NDArray[np.intp]) -> float:
    """Return the adjusted Rand index of two labellings (Hubert & Arabie 1985)."""
    table = np.zeros((one.max() + 1, other.max() + 1), dtype=np.intp)
    np.add.at(table, (one, other), 1)
    both, first, second = map(_pairs, (table, table.sum(axis=1), table.sum(axis=0)))
    expected = first * second / _pairs(np.array([len(one)]))
    return (both - expected) / max((first + second) / 2 - expected, 1e-300)


# Rows that are there twice


def _half_empty(sites: Mapping[str, Data]) -> Iterator[str]:
    """Yield a warning for each site of which several rows have less than half of their values."""
    for site, data in sites.items():
        lacking = np.isnan(data.X).sum(axis=1)
        n = int(np.count_nonzero(2 * lacking > data.X.shape[1]))
        if n >= ODD.reported_of(len(data)):
            yield (
                f"site {site!r}: {n:,} of {len(data):,} rows lack more than half of their values; "
                "say --missing drop to leave incomplete rows out"
            )


def _repeated(sites: Mapping[str, Data]) -> Iterator[str]:
    """Yield warnings of rows that are repeated more often than by chance, in or between sites."""
    alike: dict[frozenset[str], dict[str, Data]] = {}
    for site, data in sites.items():
        alike.setdefault(frozenset(c.name for c in data.columns), {})[site] = data
    for names, those in alike.items():
        rows = _numbered(those, sorted(names))
        for site, own in rows.items():
            if (again := len(own) - len(np.unique(own))) >= ODD.reported_of(len(own)):
                yield (
                    f"site {site!r}: {again:,} of {len(own):,} rows repeat an earlier one; if they "
                    "are the same things, delete the repeated rows"
                )
        for (one, a), (other, b) in combinations(rows.items(), 2):
            both = len(np.intersect1d(a, b))
            if np.array_equal(a, b):
                yield (
                    f"sites {one!r} and {other!r} have the same rows: if a file is given twice, "
                    "name it once"
                )
            elif both >= ODD.reported_of(min(len(a), len(b))):
                yield (
                    f"sites {one!r} and {other!r} have {both:,} rows in common; if they are the "
                    "same persons, these count twice: leave them out at one of the sites"
                )


def _numbered(sites: Mapping[str, Data], names: Sequence[str]) -> dict[str, NDArray[np.uint64]]:
    """Return a number for each row of sites with the same columns; equal rows have the same.

    Nothing is returned if chance explains how many rows are equal: if values are coarse, many more
    are equal in all columns except one.
    """
    tables = [_in_codes(data, names, ODD.most_rows) for data in sites.values()]
    X = np.concatenate(tables)
    n, d = X.shape
    if n < ODD.enough or d < 2:
        return {}
    each = [np.unique(x, return_inverse=True)[1].astype(np.uint64) for x in X.T]
    keys = np.random.default_rng(0).integers(1, 2**63, size=(d, 1), dtype=np.uint64) * np.array(
        each
    )
    whole = keys.sum(axis=0, dtype=np.uint64)
    same = _pairs(np.unique(whole, return_counts=True)[1])
    if not same:
        return {}
    dropped = np.linspace(0, d - 1, min(d, ODD.most_dropped)).astype(int)
    near = sum(_pairs(np.unique(whole - keys[j], return_counts=True)[1]) - same for j in dropped)
    by_chance = np.prod([_pairs(np.bincount(x.astype(np.intp))) / (n * (n - 1) / 2) for x in each])
    if same <= max(near, ODD.by_chance * by_chance * n * (n - 1) / 2):
        return {}
    ends = np.cumsum([len(table) for table in tables])[:-1]
    return dict(zip(sites, np.split(whole, ends), strict=True))


def _in_codes(data: Data, names: Sequence[str], most: int) -> Floats:
    """Return a site's first rows, columns in an order, and texts as the same numbers everywhere."""
    X = np.array(data.X[:most], dtype=np.float64)
    for j, column in enumerate(data.columns):
        if column.levels:
            codes = np.array([float(crc32(level.encode())) for level in column.levels])
            is_there = ~np.isnan(X[:, j])
            X[is_there, j] = codes[X[is_there, j].astype(int)]
    places = {column.name: j for j, column in enumerate(data.columns)}
    return X[:, [places[name] for name in names]] if names else X


def _pairs(counts: NDArray[np.integer]) -> float:
    """Return the number of pairs within groups of these sizes."""
    n = counts.astype(np.float64)
    return float((n * (n - 1) / 2).sum())


# Columns that are constant within sites


def constant_warnings(moments: Mapping[str, Moments]) -> Iterator[str]:
    """Yield a warning for each numeric column that does not vary within any site.

    There is no warning for a column of zeros, such as a count of events that never happened.

    Examples
    --------
    >>> both = {"north": (1.0, 0.0), "south": (2.0, 0.0)}
    >>> print(*constant_warnings({"hospital": both, "unit": dict.fromkeys(both, (7.0, 0.0))}))
    column 'hospital' is the same in all rows of each site (1 at north and 2 at south): it says
    where rows are from, and clusters by it are the sites; say --exclude hospital
    column 'unit' is 7 in all rows and says nothing; say --exclude unit
    """
    for name, by_site in moments.items():
        means = np.array([mean for mean, _ in by_site.values()])
        most = max(deviation for _, deviation in by_site.values())
        size = float(np.abs(means).max())
        apart = float(np.ptp(means))
        if most > ODD.rounding * apart + 1e-12 * size:
            continue
        if apart > 1e-12 * size:
            yield site_name(name, {site: f"{mean:.6g}" for site, (mean, _) in by_site.items()})
        elif size:
            yield (
                f"column {name!r} is {means[0]:.6g} in all rows and says nothing; say --exclude "
                f"{quoted(name)}"
            )


def site_name(name: str, values: Mapping[str, str], what: str = "is the same in all rows") -> str:
    """Return a warning of a column with one value at each site that differs between sites."""
    shown = [f"{value} at {site}" for site, value in list(values.items())[:4]]
    shown += [f"{len(values) - 4} more"] if len(values) > 4 else []
    return (
        f"column {name!r} {what} of each site ({listed(shown)}): it says where "
        f"rows are from, and clusters by it are the sites; say --exclude {quoted(name)}"
    )
