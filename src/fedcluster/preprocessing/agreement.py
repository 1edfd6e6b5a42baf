"""Agreement of the sites on the columns that a preprocessor is fitted to.

All differences between the sites are reported before sums are requested. Each site discloses the
names and kinds of its columns, like its own name and limits. The texts of a column are values of
rows: a site names only those that several of its rows share and that its limits permit.

Differences that look like variant spellings are found in the levels of text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fedcluster.core import Column
from fedcluster.errors import InputError, listed
from fedcluster.frames.columns import codes_option, folded_name
from fedcluster.preprocessing.screening import site_name
from fedcluster.preprocessing.spec import MOST_CATEGORIES, PreprocessingSpec
from fedcluster.texts import setting

HOLDS = {
    "number": "numbers",
    "text": "text",
    "date": "dates",
    "mixed": "numbers and text",
    "empty": "no value",
}
UNUSABLE = {"date", "mixed", "empty"}
"""Kinds of columns that cannot be clustered by."""
DATES = "dates; --set dates=age makes numbers of them, as do month, weekday, since and hour"
NOT_CHOSEN = "not chosen"

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
        return {
            site: {bare(name): name for name in reversed(of_site)} for site, of_site in self.items()
        }


def by_name(described: Mapping[str, Sequence[Column]]) -> BySite:
    """Return the columns of each site by name."""
    return BySite(
        (site, {column.name: column for column in of_site}) for site, of_site in described.items()
    )


def bare(name: str) -> str:
    """Return a name folded by `folded_name`, without a final part in brackets."""
    return folded_name(re.sub(r"\s*[(\[][^()\[\]]*[)\]]\s*$", "", name) or name)


def sites_by(
    by_site: BySite, name: str, values: Callable[[Column], Iterable[str]]
) -> dict[str, list[str]]:
    """Return the values of a property of a column, such as its kind, each with its sites."""
    sites: dict[str, list[str]] = {}
    for site, of_site in by_site.items():
        for value in values(of_site[name]) if name in of_site else ():
            sites.setdefault(value, []).append(site)
    return sites


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns that the sites agree on.

    Parameters
    ----------
    columns : tuple of Column
        The columns that are used, in the order of the first site, with the levels named by any site
        in alphabetical order.
    left_out : mapping of str to str
        The other columns, each with the reason.
    only_at : mapping of (str, str) to str
        Levels (column, level) that only one of several sites named, and that site.
    flooded : mapping of str to str
        Columns that exceed `MOST_CATEGORIES` levels because of a single one of at least three
        sites, and that site.
    warnings : tuple of str
        Warnings of columns that a few sites keep all others from using, and of text columns in
        which sites seem to use two names for one thing.
    """

    columns: tuple[Column, ...]
    left_out: Mapping[str, str]
    only_at: Mapping[tuple[str, str], str]
    flooded: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def agree(described: Mapping[str, Sequence[Column]], chosen: Sequence[str] | None = None) -> Schema:
    """Return the columns that all sites have, or raise an error if they differ.

    Parameters
    ----------
    described : mapping of str to sequence of Column
        The columns of each site.
    chosen : sequence of str, optional
        The columns to use, in this order, which every site must have. By default, all columns that
        are the same at every site; others are left out with a reason.

    Raises
    ------
    InputError
        If chosen columns are missing at a site, mix numbers and text between sites, or hold dates
        or nothing, or if no column is left. One line names every site and column.

    Examples
    --------
    >>> north = [Column("age"), Column("sex", "text", ("F", "M"))]
    >>> south = [Column("sex", "text", ("F",)), Column("age"), Column("note", "text")]
    >>> west = [Column("age"), Column("sex", "text", ("F",))]
    >>> schema = agree({"north": north, "south": south, "west": west})
    >>> [column.name for column in schema.columns], schema.left_out
    (['age', 'sex'], {'note': 'only south has it'})
    >>> schema.only_at
    {('sex', 'M'): 'north'}
    """
    by_site = by_name(described)
    names = list(dict.fromkeys(name for of_site in by_site.values() for name in of_site))
    if chosen is None:
        reasons = {name: _unusable_for(by_site, name) for name in names}
        left_out = {name: reason for name, reason in reasons.items() if reason}
        chosen = [name for name in names if name not in left_out]
        if not chosen:
            why = "; ".join(f"{name!r} ({reason})" for name, reason in left_out.items())
            raise InputError(f"the sites have no column in common: {why}")
    else:
        wanted = set(chosen)
        left_out = {name: NOT_CHOSEN for name in names if name not in wanted}
        _check_alike(by_site, chosen)
    columns: list[Column] = []
    only_at: dict[tuple[str, str], str] = {}
    for name in chosen:
        sites = dict(sorted(sites_by(by_site, name, lambda column: column.levels).items()))
        kind = next(iter(by_site.values()))[name].kind
        columns.append(Column(name, kind, tuple(sites)))
        only_at |= {(name, level): s[0] for level, s in sites.items() if len(s) == 1 < len(by_site)}
    flooded = _flooded(columns, only_at) if len(by_site) > 2 else {}
    texts = [column.name for column in columns if column.kind == "text"]
    of_site = {site: [each[name] for name in texts] for site, each in by_site.items()}
    odd = [_odd_site_warning(by_site, name) for name, why in left_out.items() if why != NOT_CHOSEN]
    warnings = (*filter(None, odd), *level_warnings(of_site))
    return Schema(tuple(columns), left_out, only_at, flooded, warnings)


def _flooded(columns: Sequence[Column], only_at: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Return the columns that would have few levels without one site, and that site."""
    own: dict[str, Counter[str]] = {}
    for (name, _), site in only_at.items():
        own.setdefault(name, Counter())[site] += 1
    flooded = {}
    for column in columns:
        many = len(column.levels)
        its_own = own.get(column.name, {}).items()
        sites = [site for site, n in its_own if 0 < many - n <= MOST_CATEGORIES < many]
        if len(sites) == 1:
            flooded[column.name] = sites[0]
    return flooded


def _check_alike(by_site: BySite, names: Sequence[str]) -> None:
    """Raise an error for columns that a site lacks, or that differ between sites."""
    differences = [_differences(by_site, name) for name in names]
    complaints = [line for lines in differences for line in lines]
    agreed = [name for name, lines in zip(names, differences, strict=True) if not lines]
    if complaints:
        mend = f"mend that or choose among {', '.join(agreed)}"
        advice = mend if agreed else "mend that: no column is the same everywhere"
        raise InputError(f"{'; '.join(complaints)}; {advice}")


def _unusable_for(by_site: BySite, name: str) -> str | None:
    """Return why a column cannot be used at all sites, or None."""
    having = [site for site, of_site in by_site.items() if name in of_site]
    alike = _alike(by_site, name)
    if len(having) <= len(by_site) / 2:
        return f"only {listed(having)} {'has' if len(having) == 1 else 'have'} it{alike}"
    if len(having) < len(by_site):
        return f"lacking at {listed([site for site in by_site if site not in having])}{alike}"
    kinds = _sites_by_kind(by_site, name)
    if set(kinds) == {"date"}:
        return DATES
    if len(kinds) > 1 or set(kinds) & UNUSABLE:
        everywhere = len(kinds) == 1
        return ", ".join(
            HOLDS[kind] if everywhere else f"{HOLDS[kind]} at {listed(sites)}"
            for kind, sites in kinds.items()
        )
    return None


def odd_sites(
    described: Mapping[str, Sequence[Column]], prepare: PreprocessingSpec
) -> tuple[dict[str, list[str]], str]:
    """Return the sites that hold another kind in a column than most, if a fit would use it.

    Otherwise a single site that calls a column text, by mistake or to change the clusters, would
    cause it to be left out everywhere. A site that lacks a column, or has no value in it, does not
    count as odd.

    Parameters
    ----------
    described : mapping of str to sequence of Column
        The columns of each site.
    prepare : PreprocessingSpec
        The requested preprocessing.

    Returns
    -------
    odd : dict of str to list of str
        The odd sites, each with the columns.
    said : str
        What all sites hold in these columns, with advice.

    Raises
    ------
    InputError
        If no kind has a majority of sites.

    Examples
    --------
    >>> number, text = Column("age"), Column("age", "text", ("old",))
    >>> sites = {"north": [number], "south": [number], "west": [text, Column("bmi")]}
    >>> odd, said = odd_sites(sites, PreprocessingSpec())
    >>> odd
    {'west': ['age']}
    >>> print(said)
    column 'age' holds numbers at north and south, text at west: correct it at west, or name columns
    without 'age'
    >>> odd_sites({"north": [number], "west": [text]}, PreprocessingSpec())
    Traceback (most recent call last):
    fedcluster.errors.InputError: column 'age' holds numbers at north, text at west, and no kind is
    that of most sites: correct it, or name columns without 'age'
    """
    by_site = by_name(described)
    apart, undecided = _apart(by_site, prepare)
    if undecided and prepare.columns is None:
        raise InputError(
            f"{_held(by_site, undecided)}, and no kind is that of most sites: correct it, or name "
            f"columns without {listed([*map(repr, undecided)])}"
        )
    if not apart:
        return {}, ""
    sites = dict.fromkeys(site for each in apart.values() for site in each)
    odd = {site: [name for name, each in apart.items() if site in each] for site in sites}
    mend = (
        f"correct it at {listed(list(odd))}, or name columns without {listed([*map(repr, apart)])}"
    )
    return odd, f"{_held(by_site, apart)}: {mend}"


def columns_apart(
    described: Mapping[str, Sequence[Column]], prepare: PreprocessingSpec
) -> dict[str, str]:
    """Return the columns that a fit would use if all sites held the same kind, and their kinds.

    In a column that is named as a category, numbers are texts as well.

    Parameters
    ----------
    described, prepare : mapping, PreprocessingSpec
        As in `odd_sites`.

    Examples
    --------
    >>> number, text = Column("age"), Column("age", "text", ("old",))
    >>> columns_apart({"north": [number], "west": [text]}, PreprocessingSpec())
    {'age': "column 'age' holds numbers at north, text at west: correct it"}
    """
    by_site, named = by_name(described), set(prepare.named)
    apart, undecided = _apart(by_site, prepare)
    names = {"number", "text", "empty"}
    apart = {
        name: sites
        for name, sites in apart.items()
        if name not in named or _sites_by_kind(by_site, name).keys() - names
    }
    said = {name: _held(by_site, [name]) for name in apart}
    where = {n: "" if n in undecided else f" at {listed(sites)}" for n, sites in apart.items()}
    return {name: f"{held}: correct it{where[name]}" for name, held in said.items()}


def _apart(by_site: BySite, prepare: PreprocessingSpec) -> tuple[dict[str, list[str]], list[str]]:
    """Return the sites that differ from the majority, by column, and columns without a majority."""
    names = dict.fromkeys(name for of_site in by_site.values() for name in of_site)
    apart: dict[str, list[str]] = {}
    undecided: list[str] = []
    named = set(prepare.named)
    for name in names if prepare.columns is None else prepare.columns:
        kinds = _sites_by_kind(by_site, name)
        kinds.pop("empty", None)
        most = max(kinds, key=lambda kind: len(kinds[kind]), default="empty")
        others = [site for kind, sites in kinds.items() if kind != most for site in sites]
        agreed = len(kinds.get(most, ())) > len(others)
        if not others or (agreed and not _is_used(by_site, name, most, prepare, named)):
            continue
        apart[name] = others
        undecided += [] if agreed else [name]
    return apart, undecided


def _held(by_site: BySite, names: Iterable[str]) -> str:
    """Return what the sites hold in some columns, in words."""
    return "; ".join(phrase for name in names for phrase in _kinds(by_site, name))


def _is_used(
    by_site: BySite, name: str, kind: str, prepare: PreprocessingSpec, named: Collection[str]
) -> bool:
    """Return whether a fit would use a column if all sites held this kind."""
    if kind != "text" or name in named:
        return kind not in UNUSABLE
    levels = {
        level for of_site in by_site.values() if name in of_site for level in of_site[name].levels
    }
    return "auto" in prepare.categories and 0 < len(levels) <= MOST_CATEGORIES


def _odd_site_warning(by_site: BySite, name: str) -> str | None:
    """Return a warning if a few sites keep the others from using a column that most could use.

    Examples
    --------
    >>> told = {site: [Column("age")] for site in ("north", "south")}
    >>> print(_odd_site_warning(by_name({**told, "west": [Column("age", "mixed")]}), "age"))
    column 'age' holds numbers at north and south, numbers and text at west: it is left out at all
    sites because of west alone; correct it there
    """
    kinds = _sites_by_kind(by_site, name)
    most = max(kinds, key=lambda kind: len(kinds[kind]))
    others = [site for site in by_site if site not in kinds[most]]
    if most in UNUSABLE or not others or 2 * len(others) >= len(by_site):
        return None
    differences = "; ".join(_differences(by_site, name))
    alone = " alone" if len(others) == 1 else ""
    return (
        f"{differences}: it is left out at all sites because of {listed(others)}{alone}; correct "
        "it there"
    )


def _sites_by_kind(by_site: BySite, name: str) -> dict[str, list[str]]:
    """Return the sites by the kind of a column that they report."""
    return sites_by(by_site, name, lambda column: [column.kind])


def _differences(by_site: BySite, name: str) -> list[str]:
    """Return the differences between the sites in a column, one phrase each."""
    lacking = [site for site, of_site in by_site.items() if name not in of_site]
    if not lacking:
        return _kinds(by_site, name)
    line = f"column {name!r} is lacking at {listed(lacking)}{_alike(by_site, name)}"
    return [line, *_kinds(by_site, name)]


def _kinds(by_site: BySite, name: str) -> list[str]:
    """Return a phrase on what the sites hold in a column, unless all hold the same usable kind."""
    by_kind = _sites_by_kind(by_site, name)
    if len(by_kind) < 2 and not by_kind.keys() & UNUSABLE:
        return []
    holds = [f"{HOLDS[kind]} at {listed(sites)}" for kind, sites in by_kind.items()]
    return [f"column {name!r} holds {', '.join(holds)}"]


def _alike(by_site: BySite, name: str) -> str:
    """Return, for sites without a column, their columns with other spellings of its name."""
    said, lacking = [], [site for site, of_site in by_site.items() if name not in of_site]
    is_usual = 2 * len(lacking) < len(by_site)
    for site in lacking:
        if (other := by_site.spelled[site].get(bare(name))) is not None:
            option = setting("sites", site, "rename", other, to=name)
            mend = f" ({option} if it is the same)" if is_usual else ""
            said.append(f"{site} has {other!r}{mend}")
    return f", but {listed(said)}" if said else ""


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
    for name in dict.fromkeys(name for of_site in by_site.values() for name in of_site):
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
    levels = {site: of_site[name].levels for site, of_site in by_site.items() if name in of_site}
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
        site: set(of_site[name].levels)
        for site, of_site in by_site.items()
        if name in of_site and len(of_site[name].levels) > 1
    }
    for site, own in levels.items():
        others: list[set[str]] = [each for other, each in levels.items() if other != site]
        every = {level for each in others for level in each}
        if not others or own & every:
            continue
        mine, theirs = sorted(own), sorted(every)
        is_short = max(len(mine), len(theirs)) <= most_foreign and abs(len(mine) - len(theirs)) < 2
        if is_short and (len(others) == 1 or set.intersection(*others)):
            # the order of the texts does not say which is which
            say = f"say which is which by codes.{name} of a study file"
            return (
                f"column {name!r}: {site} has {_first(mine)}, and none of {_first(theirs)}, which "
                f"the others have; if they mean the same, {say}"
            )
    return None


def _first(levels: Sequence[str]) -> str:
    shown = [repr(level) for level in levels[:3]]
    return listed(shown if len(levels) < 4 else [*shown, f"{len(levels) - 3} more"])
