"""Detection of columns whose numbers are not measurements, and of placeholder values.

It uses samples of the rows at their sites; see `SourceSummary`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster.errors import listed
from fedcluster.frames.columns import NumberSample, SourceSummary, quoted, words_of
from fedcluster.preprocessing.spec import FitReport, some_of
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


@dataclass(frozen=True, slots=True)
class ScreenThresholds:
    """From when on numbers seem to be no measurements."""

    enough: int = 20  # number of values from which on it is significant that all of them differ
    few_values: int = 12  # number of distinct whole numbers up to which they may be codes
    long: int = 7  # number of digits from which on distinct numbers of equal length are keys
    dense: int = 4  # largest ratio of the range of keys to the number of rows
    sentinel_share: float = 0.005  # share of rows from which on a typical placeholder is frequent
    plain_share: float = 0.02  # the same, of any other value
    sign_gap: float = 0.25
    """Distance from the others, in their ranges, of a frequent value of another sign."""
    plain_gap: float = 2.0  # the same, of a value of no special kind
    zero_gap: float = 0.2  # the same, of zero
    next_gap: float = 8.0
    """Distance of zero from the others, in distances between the lowest of them."""
    low_gap: float = 5.0  # the same, of a value that is too low
    most_typos: int = 3  # typing errors of a column that are named
    factor: float = 0.8  # decimal digits by which a typing error is off, at least
    spread: float = 1.2  # the same, as a multiple of the digits that the other values span
    far: float = 5.0  # for columns that may be 0: distance of a typing error in ranges
    light: float = 8.0  # for these: largest range of the other values, in interquartile distances


SCREENED = ScreenThresholds()


_Samples = Mapping[str, NumberSample]
"""The samples of one column by site."""


def screened(
    sites: Mapping[str, SourceSummary],
    categories: Collection[str] = (),
    made: Collection[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    at: ScreenThresholds = SCREENED,
) -> FitReport:
    """Return what to leave out, ask about and warn of in numeric columns.

    Parameters
    ----------
    sites : mapping of str to SourceSummary
        The summary of each site's rows.
    categories : collection of str
        Columns that the user named as categories, which are skipped.
    made : collection of str
        Columns whose numbers were converted from dates, and so are measurements.
    bounds : mapping of str to (float, float), optional
        Bounds of columns; there are no warnings for values outside, which are clipped.

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
    reasons = {name: no_measurement(name, samples, at) for name, samples in given.items()}
    left_out = {name: reason for name, reason in reasons.items() if reason}
    used = {name: each for name, each in by_column.items() if name not in left_out}
    if not used and not any(c.kind == "text" for s in sites.values() for c in s.columns.values()):
        left_out, used = {}, by_column
    warnings = [
        line
        for name, samples in used.items()
        for site, sample in samples.items()
        for line in (
            *suspicious(name, site, sample, (bounds or {}).get(name), at=at),
            *_constant_alone(name, site, samples, at),
        )
    ]
    notes = _notes({name: each for name, each in used.items() if name in given}, at)
    return FitReport(left_out=left_out, notes=tuple(notes), warnings=tuple(warnings))


# Names and keys


def no_measurement(name: str, samples: _Samples, at: ScreenThresholds = SCREENED) -> str | None:
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
    if not _all_different(each, at):
        return None
    low, high = min(sample.low for sample in each), max(sample.high for sample in each)
    is_long = low >= 10 ** (at.long - 1) and len(f"{low:.0f}") == len(f"{high:.0f}")
    if is_long or all(sample.high - sample.low < at.dense * sample.n_rows for sample in each):
        return "whole numbers of which no two are equal, a key: --columns takes it"
    return None


def _all_different(samples: Sequence[NumberSample], at: ScreenThresholds) -> bool:
    return all(sample.is_distinct for sample in samples) and sum(s.n for s in samples) >= at.enough


def _notes(used: Mapping[str, _Samples], at: ScreenThresholds) -> Iterator[str]:
    """Yield sentences on whole numbers that may be codes or keys."""
    few = [name for name, samples in used.items() if _has_few_values(list(samples.values()), at)]
    distinct = [
        name
        for name, samples in used.items()
        if all(s.whole for s in samples.values()) and _all_different(list(samples.values()), at)
    ]
    for names, what, mend in (
        (few, "few whole numbers", "codes, say --categories auto,"),
        (distinct, "whole numbers, all different", "keys, say --exclude "),
    ):
        if names:
            first = ",".join(map(quoted, names[:6]))
            yield f"Taken as amounts: {some_of(names)} ({what}); if they are {mend}{first}."


def _has_few_values(samples: Sequence[NumberSample], at: ScreenThresholds) -> bool:
    values = np.unique(np.concatenate([sample.values for sample in samples]))
    rows = sum(sample.n for sample in samples)
    is_whole = all(sample.whole for sample in samples)
    return is_whole and 2 < len(values) <= at.few_values and rows >= 5 * len(values)


# Values that stand for something else


def suspicious(
    name: str,
    site: str,
    sample: NumberSample,
    bounds: tuple[float, float] | None = None,
    at: ScreenThresholds = SCREENED,
) -> Iterator[str]:
    """Yield warnings of a column's values at a site that are not measurements."""
    signs: list[tuple[float, float]] = []
    rest = sample
    while (value := sentinel(rest, at)) is not None and len(signs) < 3:
        count = int(rest.counts[rest.values == value].sum())
        signs.append((value, count / sample.n))
        rest = rest.without(value)
    if signs:
        which = listed([f"{_number(value)} ({share:.1%})" for value, share in signs])
        values = [v if v else f"{name}:0" for v, _ in signs]
        yield (
            f"column {name!r} at {site}: {which} of the values, the others are "
            f"{_number(rest.low)} to {_number(rest.high)}; if that means missing, say "
            f"{setting('missing_values', to=values)}"
        )
    low, high = bounds or (-np.inf, np.inf)
    if odd := [value for value in typing_errors(rest, at) if low <= value <= high]:
        inside = rest
        for value in odd:
            inside = inside.without(value)
        are = "is" if len(odd) == 1 else "are"
        yield (
            f"column {name!r} at {site}: {listed(list(map(_number, odd)))} {are} far from the "
            f"others, {_number(inside.low)} to {_number(inside.high)}; if it is wrong, mend it, "
            f"or say {setting('prepare', 'bounds', name, to=[inside.low, inside.high])}"
        )


def _constant_alone(
    name: str, site: str, samples: Mapping[str, NumberSample], at: ScreenThresholds
) -> Iterator[str]:
    """Yield a warning of a measurement with one value at a site and many at all others."""
    others = [sample for other, sample in samples.items() if other != site]
    if not others or min(len(each.values) for each in others) <= at.few_values:
        return
    own = samples[site]
    if own.n >= at.enough and len(own.values) == 1 and own.values[0]:  # zeros are counts of nothing
        value = _number(float(own.values[0]))
        yield (
            f"column {name!r} is {value} in all rows of {site}, and varies elsewhere; if it was "
            f"not measured there, mend it or say --exclude {quoted(name)}"
        )


def sentinel(sample: NumberSample, at: ScreenThresholds = SCREENED) -> float | None:
    """Return a frequent value that is far from all others, or None.

    Examples
    --------
    >>> ages = np.arange(20.0, 80.0)
    >>> sentinel(NumberSample.from_values(np.concatenate([ages, [-999.0] * 5])))
    -999.0
    >>> sentinel(NumberSample.from_values(ages))
    """
    if len(sample.values) < 4:
        return None
    for end in (0, -1):
        value, count = float(sample.values[end]), int(sample.counts[end])
        rest = sample.without(value)
        while _is_sign(value) and len(rest.values) > 3 and _is_sign(float(rest.values[end])):
            rest = rest.without(float(rest.values[end]))
        if _is_sentinel(value, count / sample.n, count, rest, at):
            return value
    return None


def _is_sentinel(
    value: float, share: float, count: int, rest: NumberSample, at: ScreenThresholds
) -> bool:
    gap = rest.low - value if value < rest.low else value - rest.high
    size = rest.high - rest.low
    if count < 3 or share < at.sentinel_share:
        return False
    if value == 0:
        near = float(np.median(np.diff(rest.values[: at.few_values])))  # of neighbouring values
        is_apart = rest.low > max(at.zero_gap * size, at.next_gap * near)
        return len(rest.values) > at.few_values and is_apart
    if _is_sign(value):
        is_outside = value < 0 <= rest.low and value <= -99
        return is_outside or gap > at.sign_gap * size
    is_plain = value.is_integer() and count >= 5 and share >= at.plain_share
    return is_plain and gap > at.plain_gap * size


def _is_sign(value: float) -> bool:
    """Return whether people use this number as a placeholder for an unknown value."""
    digits = f"{abs(value):.0f}"
    return float(value).is_integer() and len(digits) > 1 and set(digits) in ({"9"}, {"8"}, {"7"})


def typing_errors(sample: NumberSample, at: ScreenThresholds = SCREENED) -> list[float]:
    """Return the few values that are off by a factor of about ten or a hundred, if any.

    Examples
    --------
    >>> heights = np.arange(150.0, 200.0)
    >>> typing_errors(NumberSample.from_values(np.append(heights, 17_800.0)))
    [17800.0]
    >>> typing_errors(NumberSample.from_values(heights))
    []
    """
    values = sample.values
    if sample.n < at.enough or len(values) < 6:
        return []
    below = [sample.low] if sample.low < values[0] else []
    above = [sample.high] if sample.high > values[-1] else []
    values = np.concatenate([below, values, above])
    if len(values) < 8:
        return []
    counts = np.concatenate([[0] * len(below), sample.counts, [0] * len(above)])
    most = min(at.most_typos, max(1, sample.n // 50))
    for n in range(1, most + 1):
        for odd, rest in ((slice(-n, None), slice(-n)), (slice(n), slice(n, None))):
            if counts[odd].sum() <= most and _is_off(values[odd], values[rest], sample, at):
                return [float(value) for value in values[odd]]
    return []


def _is_off(odd: np.ndarray, rest: np.ndarray, sample: NumberSample, at: ScreenThresholds) -> bool:
    """Return whether all odd values are far from the rest of the values."""
    low, high = rest[0], rest[-1]
    if low > 0 and odd[0] > 0:
        digits = np.log10(high / low)
        off = np.log10(max(odd[0] / high, low / odd[-1]))
        if not (digits > 0 and off >= max(at.factor, at.spread * digits)):
            return False
        near = np.diff(rest[: at.few_values]).mean()  # amounts may have any smallest value
        return bool(odd[0] > high or low > at.low_gap * near)
    if not max(odd[0] - high, low - odd[-1]) > at.far * (high - low):
        return False
    quartiles = sample.quantile(0.75) - sample.quantile(0.25)
    return bool(high - low <= at.light * quartiles)


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"
