"""Detection of columns that one site measures in another unit than the others.

It uses only the means and standard deviations that leave the sites in any case. A column of a site
is odd if these are several times as unlike the others' as those of honest sites are, that have
other shares of the same kinds of rows; and a conversion explains it if they are alike after it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster.core import Answers, Floats
from fedcluster.frames.columns import words_of
from fedcluster.texts import setting

Moments = Mapping[str, tuple[float, float]]
"""Mean and standard deviation of a column, by site."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From when on values, columns and rows of the sites are odd."""

    sure: float = 1e-4  # probability of a false alarm in a column of honest rows
    # unlikeness of means and deviations
    margin: float = 2.75  # how many times as unlike as honest ones, or as the best explanation
    rest: float = 0.9  # quantile of the unlikeness of a site's other columns that is honest
    honest: float = 0.2
    """Unlikeness that honest sites have at least, more by the ratio of deviation to mean."""
    alike: float = 1.0  # unlikeness after an explanation, at most
    tails: tuple[float, float] = (1.0, 3.0)
    """Ratio of deviation to mean up to which factors are told, of two sites and of more."""
    near: float = 0.35  # how much worse than the best a conversion may fit to be named as well
    likelier: float = 0.2
    """Bonus for conversions of what the name says, or else for powers of ten."""
    impossible: float = 6.0  # deviations from which on a column is named though no unit fits
    # distances from the other values
    gap: float = 0.25  # of a code or a low value, in ranges of the others
    spread: float = 1.2  # of a typing error, in ranges of the others or of their logarithms
    # numbers of values or rows
    enough: int = 20  # for judging a distribution
    few: int = 12  # distinct values up to which a column may hold codes
    fewest: int = 5  # that are looked at, or reported
    # shares
    least: float = 0.1  # of known rows, of which honest ones are drawn; of the ends of few values
    share: float = 0.05  # of rows or values that is reported
    rare: float = 0.02  # of values up to which they may be typing errors, and no codes
    narrow: float = 0.01  # of a column's variance that lies within clusters, at least
    rounding: float = 1e-6  # of deviations or of variance that is only rounding
    often: float = 5.0  # how many times as frequent as any other value an odd one is
    by_chance: float = 10.0  # factor by which repetitions must exceed those of independent columns
    # keys and targets
    long: int = 7  # number of digits from which on distinct numbers of equal length are keys
    dense: int = 4  # largest ratio of the range of keys to the number of rows
    uniform: float = 1.36
    """Critical value, at 5 %, of Kolmogorov's distance to a uniform distribution times sqrt(n)."""
    determined: float = 0.85
    """Adjusted Rand index with the clusters from which on they nearly determine the target."""
    # what is inspected
    most_rows: int = 20_000  # of a site
    most_compared: int = 2000  # rows of a site in which columns are compared
    most_cells: int = 1 << 25  # values in all clusterings without a column: a second
    most_wide: int = 200  # columns for which sums of others are sought
    most_dropped: int = 32  # columns that are left out in turn

    def reported_of(self, n: int) -> float:
        """Return how many of n rows must be repeated or half empty to be reported."""
        return max(self.fewest, self.share * n)


ODD = Thresholds()


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
    def is_more(self) -> bool:
        """Whether it is more than a positive factor."""
        return self.shift != 0 or self.scale < 0

    @property
    def extent(self) -> float:
        """The logarithm of the factor or its inverse, at least 1 of a shift or sign."""
        return max(abs(math.log(abs(self.scale))), float(self.is_more))

    def of(self, moments: tuple[float, float]) -> tuple[float, float]:
        """Return mean and deviation after conversion."""
        mean, deviation = moments
        return self.scale * mean + self.shift, abs(self.scale) * deviation


def _all_of(factors: Mapping[str, Mapping[float, str]]) -> tuple[Conversion, ...]:
    return tuple(
        Conversion(factor, 0.0, between, kind)
        for kind, those in factors.items()
        for factor, between in those.items()
    )


UNITS = (
    Conversion(-1.0, 0.0, "numbers with another sign"),
    Conversion(1.8, 32.0, "degrees Fahrenheit and Celsius", "temperature"),
    Conversion(1.0, 273.15, "kelvins and degrees Celsius", "temperature"),
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
            "rain": {25.4: "millimetres and inches"},
            "pay": {12.0: "months and years"},
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
SPECIAL_UNITS = (
    Conversion(10.929, -23.497, "mmol/mol and % of HbA1c", "HbA1c"),
    *_all_of(
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
    ),
)
"""Conversions that are considered only if the name of a column says what it measures."""
MEASURED = {
    kind: frozenset(words.split())
    for kind, words in {
        "length": "length len height width depth distance dist circumference waist hip girth "
        "diameter radius thickness altitude elevation mm cm km inch inches ft feet mile miles "
        "metre metres meter meters size laenge länge groesse größe "
        "taille altura",
        "mass": "mass weight wt mg kg lb lbs pounds pound ounces oz gram grams gewicht poids peso",
        "time": "time duration days day hours hour minutes minute seconds months month years year "
        "weeks week age los stay tenure since alter edad dauer",
        "temperature": "temp temperature temperatur celsius fahrenheit tmax tmin dewp dewpoint",
        "speed": "speed velocity wind gust mph kmh knots",
        "volume": "volume vol ml litre litres liter liters gallon gallons displacement",
        "area": "area acres hectares sqft",
        "pay": "income salary wage wages pay rent revenue sales cost costs",
        "rain": "rain rainfall precipitation snow snowfall",
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
        Their `unlikeness`.
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


def site_moments(center: Floats, answers: Answers, names: Sequence[str]) -> dict[str, Moments]:
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
            if weight >= ODD.fewest:
                apart = sums / weight
                deviation = math.sqrt(max(squares / weight - apart**2, 0.0))
                by_column.setdefault(name, {})[site] = of + apart, deviation
    return dict(by_column)


def unit_warnings(
    columns: Mapping[str, Moments],
    counts: Mapping[str, Mapping[str, float]] | None = None,
) -> Iterator[str]:
    """Yield a warning for each column that seems to have another unit at one site.

    Parameters
    ----------
    columns : mapping of str to mapping of str to (float, float)
        Mean and standard deviation of each column, by site.
    counts : mapping of str to mapping of str to float, optional
        The number of values of each. Without them, there are no warnings if no unit fits.

    Examples
    --------
    >>> pressure = {"north": (138.0, 20.0), "south": (141.0, 19.0), "west": (18.6, 2.6)}
    >>> print(*unit_warnings({"sbp": pressure}))
    column 'sbp' has mean 18.6 and deviation 2.6 at west, 140 and 19.5 elsewhere, as of kPa and
    mmHg: if it is another unit, say --set sites.west.factors.sbp=7.50062
    """
    yield from (each.line for each in odd_columns(columns, counts))


def odd_columns(
    columns: Mapping[str, Moments],
    counts: Mapping[str, Mapping[str, float]] | None = None,
) -> Iterator[OddColumn]:
    """Yield columns that are odd at a site, with or without a fitting unit; one site per column.

    Honest sites are as unlike each other as the others are in this column, and as this site is in
    all columns that no unit explains.

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
    honest: dict[str, dict[str, float]] = {}
    seen: dict[str, list[tuple[OddColumn, float]]] = {name: [] for name in columns}
    for name, moments in columns.items():
        every, of_column = np.array([*moments.values()]), (counts or {}).get(name, {})
        few = min((of_column.get(each, math.inf) for each in moments), default=math.inf)
        for i, site in enumerate(moments if len(moments) > 1 else ()):
            odd, among = _seen(name, site, moments[site], np.delete(every, i, axis=0), few)
            if odd is not None and not odd.fits:
                honest.setdefault(site, {})[name] = odd.apart
            if odd is not None and odd.apart >= ODD.margin * among:
                seen[name].append((odd, among))
    for name, those in seen.items():
        found: list[tuple[bool, float, OddColumn]] = []
        for odd, among in those:
            rest = [u for other, u in honest.get(odd.site, {}).items() if other != name]
            usual = max(among, float(np.quantile(rest or [0.0], ODD.rest)))
            if odd.fits:
                is_odd = odd.apart >= ODD.margin * usual
            else:
                n = min((counts or {}).get(name, {}).values(), default=0)
                is_known = n >= ODD.enough and len(rest) > 1
                is_far = odd.apart >= ODD.impossible * max(1.0, usual)
                is_odd = is_known and is_far and not YEARS.intersection(words_of(name))
            found += [(bool(odd.fits), odd.apart / usual, odd)] if is_odd else []
        if found:
            yield max(found, key=lambda each: each[:2])[2]


def _seen(
    name: str,
    site: str,
    here: tuple[float, float],
    others: Floats,
    few: float,
) -> tuple[OddColumn | None, float]:
    """Return a column at a site, and how unlike others are by chance and are each other.

    There is no column if it is constant.
    """
    there = float(np.median(others[:, 0])), float(np.median(others[:, 1]))
    least = ODD.rounding * max(here[1], there[1], abs(here[0] - there[0]))
    if min(here[1], others[:, 1].min()) <= least:
        return None, math.inf
    wide = ODD.tails[len(others) > 1]
    width = min(wide, max(d / abs(m) if m else 0.0 for m, d in (here, there)))
    among = unlikeness(others.min(axis=0).tolist(), others.max(axis=0).tolist())
    among = max(among, (1.0 + width) * (ODD.honest + 1.0 / math.sqrt(few)))
    apart = unlikeness(here, there)
    fits = fitting_units(name, here, there, wide) if apart >= ODD.margin * among else []
    return OddColumn(name, site, here, there, tuple(fits), apart), among


def unlikeness(here: tuple[float, float], there: tuple[float, float]) -> float:
    """Return how far two means and deviations are apart.

    It is the distance of the means, in the wider deviation, and the logarithm of the ratio of the
    deviations, as one length.

    Examples
    --------
    >>> round(unlikeness((138.0, 20.0), (141.0, 19.0)), 2)
    0.16
    >>> round(unlikeness((18.6, 2.6), (141.0, 19.0)), 2)
    6.74
    """
    (mean, deviation), (usual, spread) = here, there
    return math.hypot((mean - usual) / max(deviation, spread), math.log(deviation / spread))


def fitting_units(
    name: str,
    here: tuple[float, float],
    there: tuple[float, float],
    wide: float = 1.0,
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
    is_said, before = bool(measured(name)), unlikeness(here, there)
    is_wide = any(deviation > wide * abs(mean) for mean, deviation in (here, there))
    odds: list[tuple[float, Conversion]] = []
    for unit in units_of(name):
        for each in dict.fromkeys((unit, unit.inverse)) if unit.is_more or not is_wide else ():
            off = unlikeness(each.inverse.of(here), there)
            if off <= min(ODD.alike * min(each.extent / 2, 1.5), before / ODD.margin):
                odds.append((off - (ODD.likelier if bool(unit.kind) == is_said else 0.0), each))
    odds.sort(key=lambda both: both[0])
    return [each for off, each in odds if off <= odds[0][0] + ODD.near][:3]


def units_of(name: str) -> list[Conversion]:
    """Return the conversions that are possible for a column, given its name."""
    words, kinds = words_of(name), measured(name)
    unit = next((NAMED[word] for word in words[::-1] if word in NAMED), None)
    known = (each for each in (*UNITS, *SPECIAL_UNITS) if not each.kind or each.kind in kinds)
    kept = [*{each.between: each for each in (known if kinds else UNITS)}.values()]
    if unit is None:
        return kept
    return [each for each in kept if not each.kind or unit in re.findall(r"[\w/]+", each.between)]


def measured(name: str) -> set[str]:
    """Return the quantities that the name of a column may say."""
    words = words_of(name)
    return {kind for kind, those in MEASURED.items() if those.intersection(words)}
