"""Detection of columns that one site measures in another unit than the others.

It uses only the means and standard deviations that leave the sites in any case. A column of a site
is odd if its distribution cannot result from mixing the others' rows in other shares: its mean lies
many deviations off, although the site's other columns agree; and, if a common conversion of units
explains it, mean and deviation agree after the conversion.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from fedcluster.core import Answers, Floats
from fedcluster.frames.columns import words_of
from fedcluster.texts import setting

Moments = Mapping[str, tuple[float, float]]
"""Mean and standard deviation of a column, by site."""


@dataclass(frozen=True, slots=True)
class UnitThresholds:
    """From when on a column of a site seems to be measured in another unit."""

    large: float = 5.0
    """Factor from which on distributions that differ by it in mean and deviation are odd if
    little else differs."""
    huge: float = 20.0  # the same, whatever else differs
    tolerances: tuple[tuple[float, ...], ...] = (
        (1.0, 2.0, 0.5, 0.35),
        (5.0, 1.5, 1.0, 0.5),
        (20.0, 1.0, 2.5, 0.9),
    )
    """A factor, and for it and larger ones: least distance of the means, and largest error
    after a conversion, both in deviations of the wider distribution; and largest error of
    deviations, in logarithms."""
    most_off: float = 0.5  # largest logarithmic error of a ratio of means after a conversion
    surer: float = 3.0  # weight of that error, as a ratio is surer than a distance
    likelier: float = 0.2
    """Bonus for conversions of what the name says, or else for powers of ten."""
    near: tuple[tuple[float, ...], ...] = ((1.0, 0.35), (5.0, 0.6), (20.0, 1.8))
    """By factor, how much worse than the best a conversion may fit to be named as well."""
    rounding: float = 1e-6
    """Relative deviation, compared with that of others or the gap, of a constant column."""
    impossible: float = 6.0  # if no unit fits: least distance of the means in deviations
    times: tuple[float, float] = (8.0, 2.5)
    """Or else factor of the means, with the largest ratio between it and the factor of the
    deviations."""
    closer: float = 4.0
    """How many times closer, in logarithms, the others' means and deviations are than a site's."""
    far: float = 2.0  # deviations from which on a column shows that rows are of another kind
    most_units: int = 3  # most units that a warning names
    alone: float = 5.0
    """How many times farther apart than all other columns a column with a small factor must be."""
    fewest_values: int = 20  # of each site, for more than naming a unit that fits
    fewest_columns: int = 2  # other columns, for the same
    wide: float = 1.0  # ratio of deviation to mean up to which a ratio of means is informative
    elsewhere: float = 0.75
    """Distance in deviations between the means of sites from which on their rows differ."""
    enough: int = 5  # weight of a site's values from which on their deviation is reliable
    tails: float = 3.0  # ratio of deviation to mean up to which long tails are judged
    large_of_tails: float = 8.0  # factor from which on they are
    sure: float = 4.0
    """Standard errors, and differences between other sites, that a logarithmic factor reaches."""
    tail_tolerances: tuple[float, float] = (0.15, 0.2)
    """Its largest errors, of means and of deviations, apart from chance."""


UNITS_DIFFER = UnitThresholds()


@dataclass(frozen=True, slots=True)
class Conversion:
    """Conversion between two units: a value is ``scale`` times that in the other, plus ``shift``.

    Parameters
    ----------
    scale, shift : float
        The factor and the summand.
    between : str
        The names of the units.
    kind : str
        The quantity measured, a key of `MEASURED`; empty if it may be anything.

    Examples
    --------
    >>> fahrenheit = Conversion(1.8, 32.0, "degrees Fahrenheit and Celsius", "temperature")
    >>> fahrenheit.written, fahrenheit.inverse.written
    ('1.8x+32', '0.555556x-17.7778')
    """

    scale: float
    shift: float
    between: str
    kind: str = ""

    @property
    def inverse(self) -> Conversion:
        """The inverse conversion."""
        return Conversion(1 / self.scale, 0.0 - self.shift / self.scale, self.between, self.kind)

    @property
    def written(self) -> str:
        """Return the conversion in words."""
        return str(self.value) if self.shift else f"{self.scale:.6g}"

    @property
    def value(self) -> float | str:
        """The conversion as the key ``factors`` takes it."""
        if self.shift:
            return f"{self.scale:.6g}x{self.shift:+.6g}"
        return float(f"{self.scale:.6g}")

    @property
    def size(self) -> float:
        """The factor or its inverse, whichever is larger than 1."""
        return max(self.scale, 1 / self.scale)


def _all_of(factors: Mapping[str, Mapping[float, str]]) -> tuple[Conversion, ...]:
    return tuple(
        Conversion(factor, 0.0, between, kind)
        for kind, those in factors.items()
        for factor, between in those.items()
    )


UNITS = (
    Conversion(1.8, 32.0, "degrees Fahrenheit and Celsius", "temperature"),
    Conversion(1.0, 273.15, "kelvins and degrees Celsius", "temperature"),
    Conversion(10.929, -23.497, "mmol/mol and % of HbA1c", "HbA1c"),
    *_all_of(
        {
            "length": {
                1.609344: "kilometres and miles",
                2.54: "centimetres and inches",
                3.28084: "metres and feet",
                25.4: "millimetres and inches",
                30.48: "centimetres and feet",
            },
            "mass": {2.20462: "kilograms and pounds", 453.592: "grams and pounds"},
            "time": {
                7.0: "days and weeks",
                12.0: "months and years",
                24.0: "hours and days",
                60.0: "minutes and hours, or seconds and minutes",
                365.25: "days and years",
            },
            "pressure": {7.50062: "kPa and mmHg"},
            "glucose": {18.0182: "mmol/l and mg/dl of glucose"},
            "cholesterol": {38.67: "mmol/l and mg/dl of cholesterol"},
            "triglycerides": {88.57: "mmol/l and mg/dl of triglycerides"},
            "creatinine": {88.42: "mg/dl and µmol/l of creatinine"},
            "uric acid": {59.48: "mg/dl and µmol/l of uric acid"},
            "": {
                10.0: "a tenfold unit, as of cm and mm",
                100.0: "a hundredfold unit, as of m and cm, or shares and percent",
                1000.0: "a thousandfold unit, as of g and kg",
                1e6: "a millionfold unit",
            },
        }
    ),
)
"""Conversions between units in use."""
SPECIAL_UNITS = _all_of(
    {
        "length": {
            12.0: "feet and inches",
            39.3701: "metres and inches",
            304.8: "millimetres and feet",
        },
        "mass": {
            6.35029: "kilograms and stones",
            16.0: "pounds and ounces",
            28.3495: "grams and ounces",
            35.274: "kilograms and ounces",
        },
        "time": {
            30.4369: "days and months",
            52.1775: "weeks and years",
            1440.0: "minutes and days",
            3600.0: "seconds and hours",
            86400.0: "seconds and days",
        },
        "speed": {
            1.609344: "km/h and mph",
            1.852: "km/h and knots",
            1.94384: "m/s and knots",
            2.23694: "m/s and mph",
            3.6: "m/s and km/h",
        },
        "volume": {3.78541: "litres and gallons", 29.5735: "millilitres and fluid ounces"},
        "area": {2.47105: "hectares and acres", 10.7639: "square metres and square feet"},
        "pressure": {
            14.5038: "bar and psi",
            33.8639: "hPa and inches of mercury",
        },
        "energy": {4.184: "kilojoules and kilocalories"},
        "angle": {57.2958: "radians and degrees"},
        "bilirubin": {17.1: "mg/dl and µmol/l of bilirubin"},
    }
)
"""Conversions that are considered only if the name of a column says what it measures."""
MEASURED = {
    kind: frozenset(words.split())
    for kind, words in {
        "length": "length len height width depth distance dist circumference waist hip girth "
        "diameter radius thickness altitude elevation mm cm km inch inches ft feet mile miles "
        "metre metres meter meters",
        "mass": "mass weight wt mg kg lb lbs pounds pound ounces oz gram grams",
        "time": "time duration days day hours hour minutes minute seconds months month years year "
        "weeks week age los stay tenure since",
        "temperature": "temp temperature celsius fahrenheit tmax tmin dewp dewpoint",
        "speed": "speed wind gust mph kmh knots",
        "volume": "volume vol ml litre litres liter liters gallon gallons displacement",
        "area": "area acres hectares sqft",
        "pressure": "pressure sbp dbp bp systolic diastolic mmhg kpa hpa psi",
        "energy": "energy calories kcal kj",
        "angle": "angle lat latitude lon longitude degrees radians",
        "glucose": "glucose glu sugar",
        "cholesterol": "cholesterol chol ldl hdl",
        "triglycerides": "triglycerides triglyceride trig",
        "creatinine": "creatinine crea",
        "uric acid": "uric urate",
        "bilirubin": "bilirubin",
        "HbA1c": "hba1c a1c hb",
    }.items()
}
"""Words in the names of columns that say what they measure."""
NAMED = {
    "mm": "millimetres", "cm": "centimetres", "km": "kilometres", "in": "inches", "ft": "feet",
    "inch": "inches", "inches": "inches", "feet": "feet", "mi": "miles", "miles": "miles",
    "kg": "kilograms", "g": "grams", "lb": "pounds", "lbs": "pounds", "oz": "ounces",
    "celsius": "Celsius", "fahrenheit": "Fahrenheit", "seconds": "seconds", "minutes": "minutes",
    "hours": "hours", "days": "days", "weeks": "weeks", "months": "months", "years": "years",
    "mmhg": "mmHg", "kpa": "kPa", "hpa": "hPa", "psi": "psi", "kmh": "km/h", "mph": "mph",
    "ml": "millilitres", "litres": "litres", "liters": "litres", "gallons": "gallons",
}  # fmt: skip
"""Words in the names of columns that name a unit, and its name here."""
YEARS = {"year", "years", "yr", "jahr", "annee", "ano"}
"""Words in the names of columns whose values depend on when a site was open."""


@dataclass(frozen=True, slots=True)
class OddColumn:
    """Column of a site whose distribution does not result from mixing the others' rows.

    Parameters
    ----------
    name, site : str
        The column and the site.
    here, there : (float, float)
        Mean and standard deviation at the site, and their medians at the others.
    fits : tuple of Conversion
        Conversions from the others' unit to the site's after which both agree, best first.
    apart : float
        Distance of the means, in deviations of the wider distribution.
    """

    name: str
    site: str
    here: tuple[float, float]
    there: tuple[float, float]
    fits: tuple[Conversion, ...]
    apart: float

    @property
    def measured(self) -> Conversion:
        """The conversion that maps the others' mean and deviation to the site's."""
        ratio = self.here[1] / self.there[1]
        return Conversion(ratio, self.here[0] - ratio * self.there[0], "")

    @property
    def line(self) -> str:
        """Return the text of the warning."""
        (mean, deviation), (usual, spread) = self.here, self.there
        of = "sites", self.site, "factors", self.name
        found = (
            f"column {self.name!r} has mean {mean:.3g} and deviation {deviation:.3g} at "
            f"{self.site}, {usual:.3g} and {spread:.3g} elsewhere, "
        )
        if not self.fits:
            m = self.measured
            return (
                f"{found}about {m.scale:.3g}x{m.shift:+.3g} of that, as no mixture of the others' "
                f"rows and no usual unit explains: if it is measured otherwise, say "
                f"{setting(*of, to=_rounded(m.inverse).value)}"
            )
        first, *others = self.fits
        more = [f"{each.between} ({each.inverse.written})" for each in others]
        or_else = f", or else {' or '.join(more)}" if more else ""
        say = f"if it is another unit, say {setting(*of, to=first.inverse.value)}"
        return f"{found}as of {first.between}{or_else}: {say}"


def _rounded(conversion: Conversion) -> Conversion:
    scale, shift = (float(f"{x:.3g}") for x in (conversion.scale, conversion.shift))
    return Conversion(scale, shift, conversion.between)


def site_moments(
    center: Floats, answers: Answers, names: Sequence[str], at: UnitThresholds = UNITS_DIFFER
) -> dict[str, Moments]:
    """Return mean and standard deviation of each column by site, from answers to `Squares`.

    Parameters
    ----------
    center : ndarray of shape (d,)
        The point about which squares were computed.
    answers : Answers
        The answers.
    names : sequence of str
        The d columns.
    """
    by_column: dict[str, dict[str, tuple[float, float]]] = {}
    for site, answer in answers.by_site.items():
        for name, of, (sums, squares), weight in zip(
            names, center.tolist(), answer.sums.tolist(), answer.weights.tolist(), strict=True
        ):
            if weight >= at.enough:
                apart = sums / weight
                deviation = math.sqrt(max(squares / weight - apart**2, 0.0))
                by_column.setdefault(name, {})[site] = of + apart, deviation
    return dict(by_column)


def unit_warnings(
    columns: Mapping[str, Moments],
    counts: Mapping[str, Mapping[str, float]] | None = None,
    at: UnitThresholds = UNITS_DIFFER,
) -> Iterator[str]:
    """Yield a warning for each column that seems to have another unit at one site.

    Parameters
    ----------
    columns : mapping of str to mapping of str to (float, float)
        Mean and standard deviation of each column, by site.
    counts : mapping of str to mapping of str to float, optional
        The number of values of each. Without them, there are no warnings for columns with a long
        tail, or if no unit fits.

    Examples
    --------
    >>> pressure = {"north": (138.0, 20.0), "south": (141.0, 19.0), "west": (18.6, 2.6)}
    >>> print(*unit_warnings({"sbp": pressure}))
    column 'sbp' has mean 18.6 and deviation 2.6 at west, 140 and 19.5 elsewhere, as of kPa and
    mmHg: if it is another unit, say --set sites.west.factors.sbp=7.50062
    """
    found = {each.name: (each.site, each.line) for each in odd_columns(columns, counts, at=at)}
    found |= {} if counts is None else _tail_warnings(columns, counts, found, at)
    yield from (found[name][1] for name in columns if name in found)


def odd_columns(
    columns: Mapping[str, Moments],
    counts: Mapping[str, Mapping[str, float]] | None = None,
    at: UnitThresholds = UNITS_DIFFER,
) -> Iterator[OddColumn]:
    """Yield columns that are odd at a site, with or without a fitting unit; one site per column.

    Parameters
    ----------
    columns, counts : mapping
        As in `unit_warnings`.

    Examples
    --------
    >>> length = {"north": (44.2, 5.9), "south": (39.0, 3.0), "west": (1.78, 0.19)}
    >>> [odd] = odd_columns({"bill_length": length})
    >>> odd.site, odd.fits[0].between, odd.fits[0].inverse.written
    ('west', 'millimetres and inches', '25.4')
    """
    seen = {
        name: list(filter(None, (_seen(name, site, moments, at) for site in moments)))
        for name, moments in columns.items()
        if len(moments) > 1
    }
    explained: dict[str, set[str]] = {}
    for each in (odd for those in seen.values() for odd in those):
        explained.setdefault(each.site, set()).update({each.name} if each.fits else ())
    apart = {
        site: _apart(site, {name: m for name, m in columns.items() if name not in names}, at)
        for site, names in explained.items()
    }
    for name, those in seen.items():
        for each in sorted(those, key=lambda odd: not odd.fits):
            if _is_believed(each, apart[each.site], (counts or {}).get(name), at):
                yield each
                break


def _seen(name: str, site: str, moments: Moments, at: UnitThresholds) -> OddColumn | None:
    """Return the odd column if a site's moments are far from the others', which agree."""
    here = mean, deviation = moments[site]
    others = [both for other, both in moments.items() if other != site]
    there = usual, spread = _usual(others)
    # a constant column has the deviation 0
    least = at.rounding * max(deviation, spread, abs(mean - usual))
    if min(deviation, spread) <= least or not _agree(others, here, at):
        return None
    apart = abs(mean - usual) / max(deviation, spread)
    fits = fitting_units(name, here, there, at)
    if not fits and YEARS.intersection(words_of(name)):
        return None
    if not fits and apart < at.impossible and not _is_multiple(here, there, at):
        return None
    return OddColumn(name, site, here, there, tuple(fits), apart)


def _usual(both: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the medians of means and of deviations."""
    mean, deviation = map(median, zip(*both, strict=True))
    return mean, deviation


def _is_multiple(here: tuple[float, float], there: tuple[float, float], at: UnitThresholds) -> bool:
    """Return whether mean and deviation of two sites differ by about the same large factor."""
    if min(*here, *there) <= 0 or max(here[1] / here[0], there[1] / there[0]) > at.wide:
        return False
    of_mean, of_deviation = (abs(math.log(a / b)) for a, b in zip(here, there, strict=True))
    least, between = map(math.log, at.times)
    is_one_way = (here[0] > there[0]) == (here[1] > there[1])
    return is_one_way and of_mean >= least and abs(of_mean - of_deviation) <= between


def fitting_units(
    name: str,
    here: tuple[float, float],
    there: tuple[float, float],
    at: UnitThresholds = UNITS_DIFFER,
) -> list[Conversion]:
    """Return conversions that explain mean and deviation of two sites, best first.

    If the name of the column says what it measures, conversions of other quantities are excluded.

    Examples
    --------
    >>> [each.scale for each in fitting_units("sbp", (1380.0, 200.0), (140.0, 19.5))]
    [10.0]
    >>> fitting_units("sbp", (30.0, 12.0), (46.0, 15.0))
    []
    """
    odds: list[tuple[float, Conversion]] = []
    is_said = bool(measured(name))
    least = min(apart for _, apart, *_ in at.tolerances) * max(here[1], there[1])
    for unit in () if abs(here[0] - there[0]) < least else units_of(name):
        for each in (unit, unit.inverse):
            off = _misfit(each, here, there, at)
            if off is not None:
                odds.append((off - (at.likelier if bool(unit.kind) == is_said else 0.0), each))
    odds.sort(key=lambda both: both[0])
    near = odds[0][0] + _row(at.near, odds[0][1])[1] if odds else 0.0
    return [each for off, each in odds if off <= near][: at.most_units]


def units_of(name: str) -> list[Conversion]:
    """Return the conversions that are possible for a column, given its name."""
    words, kinds = words_of(name), measured(name)
    unit = next((NAMED[word] for word in words[::-1] if word in NAMED), None)
    known = (each for each in (*UNITS, *SPECIAL_UNITS) if not each.kind or each.kind in kinds)
    kept = list(known if kinds else UNITS)
    if unit is None:
        return kept
    return [each for each in kept if not each.kind or unit in re.findall(r"[\w/]+", each.between)]


def measured(name: str) -> set[str]:
    """Return the quantities that the name of a column may say."""
    words = words_of(name)
    return {kind for kind, those in MEASURED.items() if those.intersection(words)}


def _row(rows: Iterable[tuple[float, ...]], unit: Conversion) -> tuple[float, ...]:
    """Return the row of the largest factor that a conversion reaches."""
    return max(each for each in rows if each[0] <= unit.size)


def _misfit(
    unit: Conversion, here: tuple[float, float], there: tuple[float, float], at: UnitThresholds
) -> float | None:
    """Return how badly a conversion explains the difference of two sites; None if not at all."""
    (mean, deviation), (usual, spread) = here, there
    is_wide = mean * usual <= 0 or max(deviation / abs(mean), spread / abs(usual)) > at.wide
    if is_wide and not unit.shift:
        return None
    _, apart, of_mean, of_deviation = _row(at.tolerances, unit)
    if abs(mean - usual) < apart * max(deviation, spread):
        return None
    mean, deviation = (mean - unit.shift) / unit.scale, deviation / unit.scale
    off = abs(mean - usual) / max(deviation, spread), abs(math.log(deviation / spread))
    of_ratio = 0.0 if unit.shift else abs(math.log(mean / usual))
    if off[0] > of_mean or off[1] > of_deviation or of_ratio > at.most_off:
        return None
    return math.hypot(max(off[0], at.surer * of_ratio), 2 * off[1])


@dataclass(frozen=True, slots=True)
class _Apart:
    """How many deviations a site's means lie from those of the others: columns, far ones, most."""

    columns: int
    far: int
    most: float


def _is_believed(
    odd: OddColumn, apart: _Apart, counts: Mapping[str, float] | None, at: UnitThresholds
) -> bool:
    """Return whether an odd column is not explained by different rows, given all other columns.

    Those that a unit explains do not count, as this one does unless a unit explains it.
    """
    itself = 0 if odd.fits else 1
    n_others = apart.columns - itself
    is_other = 3 * (apart.far - itself * (odd.apart > at.elsewhere)) > n_others
    if odd.fits:
        size, farthest = odd.fits[0].size, max(at.elsewhere, apart.most)
        if not is_other or (size >= at.huge and odd.apart >= at.far):
            return True
        return odd.apart >= at.alone * farthest or (size >= at.large and farthest <= at.far)
    if counts is None or min(counts.values()) < at.fewest_values or is_other:
        return False
    return n_others >= at.fewest_columns or _is_multiple(odd.here, odd.there, at)


def _apart(site: str, columns: Mapping[str, Moments], at: UnitThresholds) -> _Apart:
    """Return how far a site's means lie from those of the others."""
    apart: list[float] = []
    for moments in columns.values():
        others = [both for other, both in moments.items() if other != site]
        if site in moments and others:
            (mean, deviation), (usual, spread) = moments[site], _usual(others)
            wider = max(deviation, spread)
            apart.append(abs(mean - usual) / wider if wider else 0.0)
    return _Apart(len(apart), sum(each > at.elsewhere for each in apart), max([0.0, *apart]))


def _tail_warnings(
    columns: Mapping[str, Moments],
    counts: Mapping[str, Mapping[str, float]],
    found: Mapping[str, tuple[str, str]],
    at: UnitThresholds,
) -> dict[str, tuple[str, str]]:
    """Return the sites and warnings of long-tailed columns, by column, beyond those found.

    Sites whose rows are of another kind, judged by columns without a difference in unit, are
    skipped.
    """
    tails: dict[str, tuple[str, str]] = {}
    for name in columns.keys() - found.keys():
        for site in columns[name]:
            odd = _in_tail(name, site, columns[name], counts[name], at)
            if odd is not None:
                tails[name] = site, odd.line + ", or what its own units differ by"
    odd_sites = {name: site for name, (site, _) in {**found, **tails}.items()}
    rest = {
        site: {name: moments for name, moments in columns.items() if odd_sites.get(name) != site}
        for site in {site for site, _ in tails.values()}
    }
    apart = {site: _apart(site, those, at) for site, those in rest.items()}
    return {
        name: each
        for name, each in tails.items()
        if 3 * apart[each[0]].far <= apart[each[0]].columns
    }


def _in_tail(
    name: str, site: str, moments: Moments, counts: Mapping[str, float], at: UnitThresholds
) -> OddColumn | None:
    """Return a long-tailed column that a site has in another unit, or None.

    Such distributions overlap in any units. At least two other sites must agree, and the factor
    must far exceed both the chance variation of means and the differences between the other sites.
    """
    sites = [site, *(other for other in moments if other != site)]
    means, deviations = np.array([moments[each] for each in sites]).T
    if len(sites) < 3 or min(means.min(), deviations.min()) <= 0:
        return None
    widths = deviations / means
    errors = widths / np.sqrt([counts[each] for each in sites])
    error = math.hypot(errors[0], float(np.median(errors[1:])))
    of_means, of_deviations = np.log(means), np.log(deviations)
    ratio = float(of_means[0] - np.median(of_means[1:]))
    ratio_of_deviations = float(of_deviations[0] - np.median(of_deviations[1:]))
    least = max(math.log(at.large_of_tails), at.sure * max(error, float(np.ptp(of_means[1:]))))
    do_agree = 2 * np.ptp(of_deviations[1:]) <= abs(ratio)
    if widths.max() > at.tails or abs(ratio) < least or not do_agree:
        return None
    scales = [u for u in units_of(name) if not u.shift]
    unit = min(scales, key=lambda each: abs(abs(ratio) - math.log(each.scale)))
    off = abs(abs(ratio) - math.log(unit.scale)), abs(ratio - ratio_of_deviations)
    of_mean, of_deviation = at.tail_tolerances
    if off[0] > of_mean + error or off[1] > of_deviation + 2 * error:
        return None
    there = float(np.median(means[1:])), float(np.median(deviations[1:]))
    return OddColumn(name, site, moments[site], there, (unit if ratio > 0 else unit.inverse,), 0.0)


def _agree(
    others: Sequence[tuple[float, float]], here: tuple[float, float], at: UnitThresholds
) -> bool:
    """Return whether sites have about the same mean and deviation, compared with another one."""
    means, deviations = np.array(others).T
    if not (deviations > 0).all():
        return False
    apart = float(means.max() - means.min())
    if apart <= 1.5 * float(deviations.max()) and deviations.max() <= 3 * deviations.min():
        return True
    if min(means.min(), here[0]) <= 0:
        return False
    differences = np.log(np.array(others)), np.log(np.array(others) / np.array(here))
    return bool((at.closer * np.ptp(differences[0], axis=0) <= np.abs(differences[1]).min()).all())
