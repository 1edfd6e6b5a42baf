"""Differences between sites that look like variant spellings, from their levels of text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from fedcluster.core import Column
from fedcluster.errors import listed
from fedcluster.frames.columns import MOST_CODES, codes_option, folded_name
from fedcluster.preprocessing.features import site_name

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
"""Words for the same thing in several languages, in lower case."""


class BySite(dict[str, dict[str, Column]]):
    """Columns by site and name."""

    @cached_property
    def spelled(self) -> dict[str, dict[str, str]]:
        """The first name of each site for each spelling, folded by `bare`."""
        return {site: {bare(name): name for name in reversed(told)} for site, told in self.items()}


def by_name(described: Mapping[str, Sequence[Column]]) -> BySite:
    """Return the columns of each site by name."""
    return BySite(
        (site, {column.name: column for column in told}) for site, told in described.items()
    )


def bare(name: str) -> str:
    """Return a name folded by `folded_name`, without a final part in brackets."""
    return folded_name(re.sub(r"\s*[(\[][^()\[\]]*[)\]]\s*$", "", name) or name)


def sites_by(
    by_site: BySite, name: str, values: Callable[[Column], Iterable[str]]
) -> dict[str, list[str]]:
    """Return the values of a property of a column, such as its kind, each with its sites."""
    sites: dict[str, list[str]] = {}
    for site, told in by_site.items():
        for value in values(told[name]) if name in told else ():
            sites.setdefault(value, []).append(site)
    return sites


# Spellings


def level_warnings(described: Mapping[str, Sequence[Column]]) -> Iterator[str]:
    """Yield a warning for each text column whose sites seem to use two names for one thing.

    Parameters
    ----------
    described : mapping of str to sequence of Column
        The columns of each site.

    Examples
    --------
    >>> north = [Column("ward", "text", ("Cardio", "Neuro"))]
    >>> south = [Column("ward", "text", ("cardio", "neuro"))]
    >>> print(*level_warnings({"north": north, "south": south}))
    column 'ward': 'Cardio' at north and 'cardio' at south, 'Neuro' at north and 'neuro' at south
    seem to be one each; say
    --set 'codes.ward={cardio = "Cardio", neuro = "Neuro"}'
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
        elif (line := _of_site(name, by_site) or _foreign(name, by_site)) is not None:
            yield line


def _of_site(name: str, by_site: BySite) -> str | None:
    """Return a warning if a column has one level at each site, but not the same; else None."""
    levels = {site: told[name].levels for site, told in by_site.items() if name in told}
    if len(set(levels.values())) < 2 or any(len(own) != 1 for own in levels.values()):
        return None
    return site_name(
        name,
        {site: repr(level) for site, [level] in levels.items()},
        "has one frequent text in the rows",
    )


def _spellings(sites: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield pairs of levels that seem to be the same: the more common one, and another."""
    alike: dict[object, list[str]] = {}
    for level in sites:
        alike.setdefault(_meaning(level), []).append(level)
    for levels in alike.values():
        first, *others = sorted(levels, key=lambda level: (-len(sites[level]), level))
        for other in others:
            yield first, other


def _meaning(level: str) -> object:
    """Return the part of a level that is common to its spellings."""
    folded = loosely_folded(level)
    return next((words for words in SYNONYMS if folded in words), folded)


def loosely_folded(level: str) -> str:
    """Return a level without differences in case, encoding of accents, blanks and punctuation.

    Examples
    --------
    >>> loosely_folded(" Cardio-Thoracic "), loosely_folded("cardio thoracic")
    ('cardio thoracic', 'cardio thoracic')
    """
    text = unicodedata.normalize("NFKC", level).casefold()
    parted = " ".join(re.sub(r"[\s_\-./]+", " ", text).split())
    return parted or text


def _foreign(name: str, by_site: BySite, *, most_foreign: int = 5) -> str | None:
    """Return a warning if a site has none of the levels that others share; else None.

    It must have few, and about as many: another spelling has as many words for as many things.

    `most_foreign`: largest number of a site's texts that may all be other spellings of texts
    elsewhere.
    """
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
        mine, theirs = sorted(own), sorted(every)
        is_short = max(len(mine), len(theirs)) <= most_foreign and abs(len(mine) - len(theirs)) < 2
        if is_short and (len(others) == 1 or set.intersection(*others)):
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
