"""Differences between sites that look like another unit or another spelling, from what they tell.

Means, standard deviations and levels of text leave the sites in any case; nothing more is asked.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from fedcluster.core import Answers, Column, Floats
from fedcluster.errors import listed
from fedcluster.io.columns import MOST_CODES, codes_option

Moments = Mapping[str, tuple[float, float]]
"""Mean and standard deviation of a column, by site."""

UNITS: Mapping[float, str] = {
    1.609344: "kilometres and miles",
    2.20462: "kilograms and pounds",
    2.54: "centimetres and inches",
    7.0: "days and weeks",
    7.50062: "kPa and mmHg",
    10.0: "a tenfold unit, as of cm and mm",
    12.0: "months and years",
    18.0182: "mmol/l and mg/dl of glucose",
    24.0: "hours and days",
    30.48: "centimetres and feet",
    38.67: "mmol/l and mg/dl of cholesterol",
    59.48: "mg/dl and µmol/l of uric acid",
    60.0: "minutes and hours",
    88.42: "mg/dl and µmol/l of creatinine",
    88.57: "mmol/l and mg/dl of triglycerides",
    100.0: "a hundredfold unit, as of m and cm, or shares and percent",
    365.25: "days and years",
    1000.0: "a thousandfold unit, as of g and kg",
    1e6: "a millionfold unit",
}
"""Factors between units in use, with what they are between."""
LARGE = 5.0
"""Factor from which on two distributions that differ by it in mean and in deviation are odd."""
TOLERANCES = {"small": (0.06, 0.2), "large": (0.15, 0.5)}
"""Relative error of mean and deviation, for factors below and above `LARGE`."""
SURER, LIKELIER, POWERS = 3.0, 0.05, (10.0, 100.0, 1000.0, 1e6)
"""How much surer a mean is than a deviation, and how much likelier powers of ten are."""
WIDE = 1.0
"""Deviation over mean up to which a ratio of means says something."""
APART = 2.0
"""Deviations, of the wider distribution, that the means lie apart at least."""
ELSEWHERE = 0.75
"""Deviations between the means of a site and of others from which on their rows are not alike."""
ENOUGH = 5
"""Weight of a site's values from which on their deviation says something."""
FAHRENHEIT = (1.8, 32.0)
TAILS, LARGE_OF_TAILS = 3.0, 8.0
"""Deviation over mean up to which, and factor from which on, long tails are judged."""
SURE, TAIL_TOLERANCES = 4.0, (0.15, 0.2)
"""How many standard errors, and differences of other sites, a factor is in logarithms; and its
relative errors, of means and of deviations, besides those of chance."""

SYNONYMS = tuple(
    frozenset(line.split())
    for line in (
        "f female w weiblich frau woman femme feminin féminin femenino femminile donna mujer",
        "m male männlich maennlich mann man homme masculin masculino maschile uomo hombre",
        "y yes j ja o oui s si sí sì sim t true wahr vrai",
        "n no nein nee non não nao false falsch faux",
        "pos positive positiv positif positivo",
        "neg negative negativ négatif negativo",
        "unknown unbekannt inconnu desconocido sconosciuto",
        "single ledig célibataire soltero celibe",
        "married verheiratet marié casado sposato",
        "divorced geschieden divorcé divorciado divorziato",
        "widowed verwitwet veuf viudo vedovo",
        "left links gauche izquierda sinistra",
        "right rechts droite derecha destra",
        "alive lebend lebendig vivant vivo",
        "dead tot verstorben deceased mort muerto morto",
    )
)
"""Words for one thing in some languages, in small letters."""


BySite = Mapping[str, Mapping[str, Column]]
"""Columns by site and name."""


def by_name(described: Mapping[str, Sequence[Column]]) -> BySite:
    """Return the columns of each site by their names."""
    return {site: {column.name: column for column in told} for site, told in described.items()}


def sites_by(
    by_site: BySite, name: str, values: Callable[[Column], Iterable[str]]
) -> dict[str, list[str]]:
    """Return what a column has, such as its kind or its levels, each with the sites that say so."""
    sites: dict[str, list[str]] = {}
    for site, told in by_site.items():
        for value in values(told[name]) if name in told else ():
            sites.setdefault(value, []).append(site)
    return sites


# Units


def site_moments(center: Floats, answers: Answers, names: Sequence[str]) -> dict[str, Moments]:
    """Return mean and standard deviation of each column by site, from its answer to `Squares`.

    Parameters
    ----------
    center : ndarray of shape (d,)
        What the squares were taken about.
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
            if weight >= ENOUGH:
                apart = sums / weight
                deviation = math.sqrt(max(squares / weight - apart**2, 0.0))
                by_column.setdefault(name, {})[site] = of + apart, deviation
    return dict(by_column)


def unit_warnings(
    columns: Mapping[str, Moments], counts: Mapping[str, Mapping[str, float]] | None = None
) -> Iterator[str]:
    """Yield a warning for each column of a site that seems to have another unit than the others.

    Parameters
    ----------
    columns : mapping of str to mapping of str to (float, float)
        Mean and standard deviation of each column, by site.
    counts : mapping of str to mapping of str to float, optional
        How many values these are of. Without them nothing is said of columns with a long tail.

    Examples
    --------
    >>> pressure = {"north": (138.0, 20.0), "south": (141.0, 19.0), "west": (18.6, 2.6)}
    >>> print(*unit_warnings({"sbp": pressure}))
    column 'sbp' has mean 18.6 and deviation 2.6 at west, 140 and 19.5 elsewhere, as of kPa and
    mmHg: if it is another unit, say --factor west:sbp=7.50062
    """
    found: dict[str, tuple[str, str]] = {}
    for name, moments in columns.items():
        rest = [each for other, each in columns.items() if other != name]
        for site in moments if len(moments) > 1 else ():
            line = _unit_warning(name, site, moments, is_other=_is_other(site, rest))
            if line is not None:
                found[name] = site, line
                break
    found |= {} if counts is None else _tail_warnings(columns, counts, found)
    yield from (found[name][1] for name in columns if name in found)


def _tail_warnings(
    columns: Mapping[str, Moments],
    counts: Mapping[str, Mapping[str, float]],
    found: Mapping[str, tuple[str, str]],
) -> dict[str, tuple[str, str]]:
    """Return the sites and warnings of columns with a long tail, by column, besides those found.

    Sites whose rows are of another kind, as the columns show in which no unit differs, have none.
    """
    tails: dict[str, tuple[str, str]] = {}
    for name in columns.keys() - found.keys():
        for site in columns[name]:
            line = _tail_warning(name, site, columns[name], counts[name])
            if line is not None:
                tails[name] = site, line
    odd = {name: site for name, (site, _) in {**found, **tails}.items()}
    rest = {
        site: [moments for name, moments in columns.items() if odd.get(name) != site]
        for site, _ in tails.values()
    }
    return {name: each for name, each in tails.items() if not _is_other(each[0], rest[each[0]])}


def _is_other(site: str, columns: Sequence[Moments]) -> bool:
    """Return whether a site's rows are of another kind than the others': many columns differ."""
    apart: list[bool] = []
    for moments in columns:
        others = [both for other, both in moments.items() if other != site]
        if site in moments and others:
            mean, deviation = moments[site]
            usual, spread = np.median(np.array(others), axis=0).tolist()
            apart.append(abs(mean - usual) > ELSEWHERE * max(deviation, spread))
    return 3 * sum(apart) > len(apart)


def _unit_warning(name: str, site: str, moments: Moments, *, is_other: bool) -> str | None:
    """Return the warning of a site whose unit seems to be another one, or None.

    Where the site's rows are of another kind, a small factor says nothing.
    """
    mean, deviation = moments[site]
    others = [both for other, both in moments.items() if other != site]
    usual, spread = np.median(np.array(others), axis=0).tolist()
    if min(deviation, spread) <= 0 or not _agree(others):
        return None
    told = _beside(name, site, (mean, deviation), (usual, spread))
    factor = unit_factor((mean, deviation), (usual, spread))
    if factor is not None and is_other and 1 / LARGE < factor < LARGE:
        return None
    if factor is not None:
        between = UNITS[factor if factor >= 1 else next(f for f in UNITS if 1 / f == factor)]
        shown = f"{1 / factor:.6g}"
        return f"{told}{between}: if it is another unit, say --factor {site}:{name}={shown}"
    for here, there, which in (
        ((mean, deviation), (usual, spread), "degrees Fahrenheit"),
        ((usual, spread), (mean, deviation), "degrees Celsius"),
    ):
        if _is_fahrenheit(here, there):
            return f"{told}{which}: if it is another unit, write that column in one unit"
    return None


def _tail_warning(
    name: str, site: str, moments: Moments, counts: Mapping[str, float]
) -> str | None:
    """Return the warning of a site with another unit of a column with a long tail, or None.

    Such distributions overlap in any units. Two other sites at least must agree, and the factor be
    far beyond what chance does to means of so many values and beyond what the others differ by.
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
    least = max(math.log(LARGE_OF_TAILS), SURE * max(error, float(np.ptp(of_means[1:]))))
    do_agree = 2 * np.ptp(of_deviations[1:]) <= abs(ratio)
    if widths.max() > TAILS or abs(ratio) < least or not do_agree:
        return None
    unit = min(UNITS, key=lambda each: abs(abs(ratio) - math.log(each)))
    off = abs(abs(ratio) - math.log(unit)), abs(ratio - ratio_of_deviations)
    of_mean, of_deviation = TAIL_TOLERANCES
    if off[0] > of_mean + error or off[1] > of_deviation + 2 * error:
        return None
    usual, spread = np.median(means[1:]), np.median(deviations[1:])
    shown = f"{1 / unit if ratio > 0 else unit:.6g}"
    told = _beside(name, site, moments[site], (usual, spread))
    mend = f"say --factor {site}:{name}={shown}, or what its own units differ by"
    return f"{told}{UNITS[unit]}: if it is another unit, {mend}"


def _beside(name: str, site: str, here: tuple[float, float], there: tuple[float, float]) -> str:
    """Return the beginning of a warning: mean and deviation of a site, and of the others."""
    (mean, deviation), (usual, spread) = here, there
    return (
        f"column {name!r} has mean {mean:.3g} and deviation {deviation:.3g} at {site}, "
        f"{usual:.3g} and {spread:.3g} elsewhere, as of "
    )


def _agree(others: Sequence[tuple[float, float]]) -> bool:
    """Return whether sites have about the same mean and deviation."""
    means, deviations = np.array(others).T
    if not (deviations > 0).all():
        return False
    apart = float(means.max() - means.min())
    return apart <= 1.5 * float(deviations.max()) and deviations.max() <= 3 * deviations.min()


def unit_factor(here: tuple[float, float], there: tuple[float, float]) -> float | None:
    """Return the factor between units by which mean and deviation of two sites differ, or None.

    Examples
    --------
    >>> unit_factor((1380.0, 200.0), (140.0, 19.5))
    10.0
    >>> unit_factor((1.1, 0.2), (140.0, 19.5)), unit_factor((30.0, 12.0), (46.0, 15.0))
    (None, None)
    """
    (mean, deviation), (usual, spread) = here, there
    if mean * usual <= 0 or max(deviation / abs(mean), spread / abs(usual)) > WIDE:
        return None
    if abs(mean - usual) < APART * max(deviation, spread):
        return None
    ratio, ratio_of_spreads = mean / usual, deviation / spread
    best, error = None, math.inf
    for unit in UNITS:
        for factor in (unit, 1 / unit):
            of_mean, of_spread = TOLERANCES["large" if unit >= LARGE else "small"]
            off = abs(math.log(ratio / factor)), abs(math.log(ratio_of_spreads / factor))
            odds = math.hypot(SURER * off[0], off[1]) - (LIKELIER if unit in POWERS else 0.0)
            if off[0] <= of_mean and off[1] <= of_spread and odds < error:
                best, error = factor, odds
    return best


def _is_fahrenheit(here: tuple[float, float], there: tuple[float, float]) -> bool:
    """Return whether a distribution is the other one in degrees Fahrenheit."""
    scale, shift = FAHRENHEIT
    (mean, deviation), (usual, spread) = here, there
    apart = abs(mean - (scale * usual + shift))
    return (
        apart <= 0.5 * deviation
        and 0.6 <= deviation / (scale * spread) <= 1.6
        and (abs(mean - usual) >= 5 * max(deviation, spread))
    )


# Spellings


def level_warnings(described: Mapping[str, Sequence[Column]]) -> Iterator[str]:
    """Yield a warning for each column of text whose sites seem to call one thing by two names.

    Parameters
    ----------
    described : mapping of str to sequence of Column
        What each site tells of its columns.

    Examples
    --------
    >>> north = [Column("ward", "text", ("Cardio", "Neuro"))]
    >>> south = [Column("ward", "text", ("cardio", "neuro"))]
    >>> print(*level_warnings({"north": north, "south": south}))
    column 'ward': 'Cardio' at north and 'cardio' at south, 'Neuro' at north and 'neuro' at south
    seem to be one each; say --codes ward:cardio=Cardio,ward:neuro=Neuro
    """
    by_site = by_name(described)
    for name in dict.fromkeys(name for told in by_site.values() for name in told):
        sites = sites_by(by_site, name, lambda column: column.levels)
        pairs = list(_spellings(sites))
        if pairs:
            shown = [
                f"{a!r} at {listed(sites[a])} and {b!r} at {listed(sites[b])}" for a, b in pairs[:3]
            ]
            each = "one" if len(pairs) == 1 else "one each"
            yield (
                f"column {name!r}: {', '.join(shown)}{' and so on' if len(pairs) > 3 else ''} "
                f"seem to be {each}; say {codes_option(name, [(b, a) for a, b in pairs])}"
            )
        elif line := _foreign(name, by_site):
            yield line


def _spellings(sites: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield pairs of levels that seem to be one: that of more sites, and another one."""
    alike: dict[object, list[str]] = {}
    for level in sites:
        alike.setdefault(_meaning(level), []).append(level)
    for levels in alike.values():
        first, *others = sorted(levels, key=lambda level: (-len(sites[level]), level))
        for other in others:
            yield first, other


def _meaning(level: str) -> object:
    """Return what a level has in common with other spellings of it."""
    folded = loosely_folded(level)
    return next((words for words in SYNONYMS if folded in words), folded)


def loosely_folded(level: str) -> str:
    """Return a level without differences of case, accents' encoding, blanks and punctuation.

    Examples
    --------
    >>> loosely_folded(" Cardio-Thoracic "), loosely_folded("cardio thoracic")
    ('cardio thoracic', 'cardio thoracic')
    """
    text = unicodedata.normalize("NFKC", level).casefold()
    parted = " ".join(re.sub(r"[\s_\-./]+", " ", text).split())
    return parted or text


def _foreign(name: str, by_site: BySite) -> str | None:
    """Return the warning of a site that has none of the levels that others share, or None."""
    levels = {
        site: set(told[name].levels)
        for site, told in by_site.items()
        if name in told and len(told[name].levels) > 1
    }
    for site, own in levels.items():
        others: list[set[str]] = [each for other, each in levels.items() if other != site]
        every = {level for each in others for level in each}
        if not others or own & every:
            continue
        if len(others) == 1 or set.intersection(*others):
            mine, theirs = sorted(own), sorted(every)
            pairs = list(zip(mine, theirs, strict=False))
            is_whole = len(mine) == len(theirs) <= MOST_CODES
            option = codes_option(name, pairs if is_whole else pairs[:1])
            say = f"say which is which, as in {option}" if is_whole else f"say {option} and so on"
            return (
                f"column {name!r}: {site} has {_first(mine)}, and none of {_first(theirs)}, which "
                f"the others have; if they mean the same, {say}"
            )
    return None


def _first(levels: Sequence[str]) -> str:
    shown = [repr(level) for level in levels[:3]]
    return listed(shown if len(levels) < 4 else [*shown, f"{len(levels) - 3} more"])
