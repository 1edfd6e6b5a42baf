"""Columns: their names and content, and what a site discloses about them.

Text is stored as the codes 0, 1, ... of its levels, with NaN for missing values. Each part of a
site's rows may have codes of its own; the names of levels are the same everywhere.
"""

from __future__ import annotations

import csv
import io
import math
import re
import shlex
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import permutations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Rows
from fedcluster.errors import InputError, ReadingNote, listed
from fedcluster.texts import setting

KINDS = ("number", "text", "date", "mixed", "empty")
"""Possible kinds of a column."""

HELD = {"date": "dates", "mixed": "numbers and texts"}
"""Words for the kinds of columns that are neither numbers nor text."""

MOST_LEVELS = 1000
"""Largest number of levels per column that a site names, the most frequent ones."""

MOST_CODES = 12
"""Largest number of distinct numbers in a column that may be codes for texts."""


MISSING = {"", "na", "n/a", "nan", "-nan", "null", "none", "<na>", "#n/a", "#n/a n/a", "#na"} | {
    "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan", "-", "?",
}  # fmt: skip
"""Texts that mark a missing value, in lower case."""

AS_IN_MODEL = "drop the row, as the model knows this column otherwise"
"""Advice for a column of new rows whose kind differs from that in the model's fit."""

Passes = Callable[[Floats, int], NDArray[np.bool_]]
"""``passes(counts, n)`` returns which levels, each of counts of the n rows, may leave."""


def is_blank(value: Any) -> bool:
    """Return whether a cell is empty: None, NaN, blank, or a library's own missing value."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return bool(value != value) or (isinstance(value, str) and not value.strip())


def is_missing(value: Any) -> bool:
    """Return whether a value of any source is missing: empty, or a text for it.

    Examples
    --------
    >>> [is_missing(value) for value in (None, float("nan"), " N/A ", "none", 0, "no")]
    [True, True, True, True, False, False]
    """
    return is_blank(value) or (isinstance(value, str) and value.strip().lower() in MISSING)


def merged_kind(kinds: Iterable[str]) -> str:
    """Return the kind of a column from the kinds of its parts."""
    held = set(kinds) - {"empty"}
    return "mixed" if len(held) > 1 else next(iter(held), "empty")


# Names


def is_numbered(columns: Iterable[str]) -> bool:
    """Return whether columns have the names of those of an array: x0, x1, ..."""
    return all(name == f"x{j}" for j, name in enumerate(columns))


def column_list(text: str | Sequence[str] | None, option: str = "--columns") -> list[str] | None:
    """Split ``a,b,c`` into names; a name with a comma must be in double quotes.

    Names that are a list already stay.

    Examples
    --------
    >>> column_list('age, "height, cm"')
    ['age', 'height, cm']
    """
    if text is None:
        return None
    given = next(csv.reader([text], skipinitialspace=True), []) if isinstance(text, str) else text
    names = [name.strip() for name in given]
    if not names or "" in names:
        raise InputError(f"{option} {text!r} has an empty name; write {option} a,b,c")
    if (twice := first_twice(names)) is not None:
        raise InputError(f"{option} names {twice!r} twice")
    return names


def put(found: dict[Any, Any], key: Any, value: Any, option: str, of: str) -> None:
    """Add to a dictionary what an option says.

    Parameters
    ----------
    found : dict
        What it said before.
    key, value : object
        What it says.
    option, of : str
        The option, and the part of it that the key stands for, for messages.

    Raises
    ------
    InputError
        If it said another value of the same key before.
    """
    said = found.setdefault(key, value)
    if said is not value and said != value:
        raise InputError(f"{option} gives two different values for {of}; give one of them")


def first_twice(names: Iterable[str]) -> str | None:
    """Return the first name that occurs more than once."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


def choose(columns: Sequence[str]) -> str:
    """Return the advice to choose columns, with an option to copy."""
    if not columns:
        return "there is no other column"
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(columns)
    return f"choose columns with --columns {shlex.quote(line.getvalue())}"


def codes_option(name: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Return the option that renames texts of a column, to copy.

    Examples
    --------
    >>> print(codes_option("sex", [("1", "F"), ("2", "M")]), codes_option("sex", [("f", "F")]))
    --set 'codes.sex={1 = "F", 2 = "M"}' --set codes.sex.f=F
    """
    meanings = dict(pairs)
    if len(meanings) > 1:
        return setting("codes", name, to=meanings)
    [(text, meant)] = meanings.items()
    return setting("codes", name, text, to=meant)


def other_columns(numeric: Sequence[str]) -> str:
    """Return the advice for Python users on a column that is not numeric."""
    names = ", ".join(map(repr, numeric)) or "no other column"
    return f"prepare= takes text, or give a data frame of columns of numbers: {names}"


def has_columns(owner: str, names: Iterable[str], wanted: Iterable[str], mend: str = "") -> None:
    """Raise an error that names all columns that a table lacks, and ends with how to mend it."""
    there = set(names)
    if lacking := [name for name in wanted if name not in there]:
        which = f"column{'s' if lacking[1:] else ''} {listed(list(map(repr, lacking)))}"
        raise InputError(f"{owner} has no {which}; it has {', '.join(filter(None, names))}{mend}")


def kind_refused(data: Data, j: int, owner: str = "", mend: str = AS_IN_MODEL) -> None:
    """Raise an error for a column that must be numeric and is not.

    Raises
    ------
    InputError
        With the column and, for text, the first such row, from 0, and its value.

    Examples
    --------
    >>> kind_refused(Data(np.array([[0.0]]), columns=(Column("age", "text", ("low",)),)), 0)
    Traceback (most recent call last):
        ...
    fedcluster.errors.InputError: column 'age', row 0: 'low' is not a number; drop the row, as the
    model knows this column otherwise
    """
    column = columns_of(data)[j]
    if column.kind in ("number", "empty"):
        return
    where = f"{owner}, column {column.name!r}" if owner else f"column {column.name!r}"
    if column.kind != "text":
        raise InputError(f"{where}: it holds {HELD[column.kind]} and no numbers; {mend}")
    there = np.flatnonzero(~np.isnan(data.X[:, j]))
    if not len(there):
        return
    text = column.levels[int(data.X[there[0], j])]
    raise InputError(f"{where}, row {there[0]}: {text!r} is not a number; {mend}")


def folded_name(name: str) -> str:
    """Return a name without variations in spelling: case, blanks, _, - and accents.

    Examples
    --------
    >>> folded_name("BODY MASS G"), folded_name("body_mass-g"), folded_name("Größe")
    ('bodymassg', 'bodymassg', 'grosse')
    """
    parted = unicodedata.normalize("NFKD", name)
    plain = "".join(each for each in parted if not unicodedata.combining(each)).casefold()
    return re.sub(r"[\s_-]+", "", plain) or name


def words_of(name: str) -> list[str]:
    """Return the words in the name of a column, in lower case.

    Examples
    --------
    >>> words_of("PatientID"), words_of("zip_code"), words_of("Kunden-Nr.")
    (['patient', 'id'], ['zip', 'code'], ['kunden', 'nr'])
    """
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", parted.lower())


def quoted(name: str) -> str:
    """Return a name as it is written in a list on the command line."""
    return name if re.fullmatch(r"[\w.-]+", name) else f"'\"{name}\"'"


def own_names(names: Iterable[str], wanted: Iterable[str]) -> dict[str, str]:
    """Return a table's own spelling of wanted columns that it lacks in the given spelling.

    If two columns or two wanted names differ only in spelling, they are not matched.

    Examples
    --------
    >>> own_names(["Age", "BODY MASS G", "sex"], ["age", "body_mass_g", "sex"])
    {'age': 'Age', 'body_mass_g': 'BODY MASS G'}
    >>> own_names(["Age", "AGE"], ["age"]), own_names(["Age"], ["age", "AGE"])
    ({}, {})
    """
    there, asked = dict.fromkeys(names), dict.fromkeys(wanted)
    if asked.keys() <= there.keys():
        return {}
    meant = Counter(map(folded_name, asked))
    spelled: dict[str, list[str]] = {}
    for name in filter(None, there):
        spelled.setdefault(folded_name(name), []).append(name)
    own = {name: spelled.get(folded_name(name), []) for name in asked if name not in there}
    return {
        name: each[0]
        for name, each in own.items()
        if len(each) == 1 and meant[folded_name(name)] == 1
    }


def common_names(
    names: Mapping[str, Sequence[str]], said: Iterable[str] = (), owner: str = "site {!r}"
) -> dict[str, dict[str, str]]:
    """Return, by site, its own names of columns that are spelled otherwise elsewhere.

    The common spelling is the first that an option uses, or else that of most sites. Notes say what
    is matched. If a site has two columns that are spellings of one name, a warning says that they
    are not.

    Parameters
    ----------
    names : mapping of str to sequence of str
        The columns by site.
    said : iterable of str
        The names that options use.
    owner : str
        The beginning of a note, in which braces stand for the site.

    Examples
    --------
    >>> columns = {"north": ["age", "BMI"], "south": ["Age", "bmi"], "west": ["age", "bmi"]}
    >>> with warnings.catch_warnings(action="ignore"):
    ...     common_names(columns)
    {'north': {'bmi': 'BMI'}, 'south': {'age': 'Age'}, 'west': {}}
    """
    spelled: dict[str, dict[str, list[str]]] = {}
    for site, each in names.items():
        for name in filter(None, each):
            spelled.setdefault(folded_name(name), {}).setdefault(site, []).append(name)
    chosen: dict[str, list[str]] = {}
    for name in dict.fromkeys(said):
        chosen.setdefault(folded_name(name), []).append(name)
    own: dict[str, dict[str, str]] = {site: {} for site in names}
    for folded, sites in spelled.items():
        every = Counter(name for those in sites.values() for name in those)
        wanted = chosen.get(folded, [])
        if any(len(those) > 1 for those in sites.values()):
            if len({tuple(sorted(those)) for those in sites.values()}) > 1:
                warnings.warn(
                    f"the columns {listed(list(map(repr, every)))} are not joined, as a site has "
                    "two "
                    "of them; rename one at that site",
                    stacklevel=3,
                )
            continue
        common = wanted[0] if wanted else every.most_common(1)[0][0]
        for site, [name] in sites.items():
            if name != common:
                own[site][common] = name
    for site, those in own.items():
        note_names(owner.format(site), those)
    return own


def note_sites(names: Sequence[str]) -> None:
    """Say which names of sites in a column, of the first 1,000, differ only in spelling."""
    known: dict[str, str] = {}
    for name in names[:1000]:
        if (other := known.setdefault(folded_level(name), name)) != name:
            said = f"sites {other!r} and {name!r} may be one; if so, write both in one way"
            warnings.warn(said, ReadingNote, stacklevel=4)


def note_names(owner: str, own: Mapping[str, str]) -> None:
    """Warn which columns of a site are matched to columns spelled otherwise."""
    if own:
        pairs = [f"{name!r} is taken for {common!r}" for common, name in own.items()]
        warnings.warn(f"{owner}: column {', '.join(pairs)}", ReadingNote, stacklevel=3)


def called(data: Data, own: Mapping[str, str]) -> Data:
    """Return rows with the common names of their columns, given the site's own names."""
    common = {name: each for each, name in own.items()}
    if not common.keys() & {column.name for column in data.columns}:
        return data
    columns = (replace(each, name=common.get(each.name, each.name)) for each in data.columns)
    return replace(data, columns=tuple(columns))


def is_index(name: str) -> bool:
    """Return whether a column is the index of a data frame as pandas writes it."""
    return not name or re.fullmatch(r"__index_level_\d+__", name) is not None


def common_columns(names: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the columns in the order of the first site; they must be the same at all sites."""
    first, *others = names
    sets = {site: frozenset(each) for site, each in names.items()}
    common = [name for name in names[first] if all(name in sets[site] for site in others)]
    for site in others:
        for here, there in ((site, first), (first, site)):
            for name in names[there]:
                if name not in names[here]:
                    raise InputError(
                        f"site {here!r} has no column {name!r}, which site {there!r} has; "
                        + (choose(common) if common else "the sites have no column in common")
                    )
    if not common:
        raise InputError(f"site {first!r}: there is no column to cluster by")
    if unnamed := [name for name in common if is_index(name)]:
        what = f"column {unnamed[0]!r} is an index" if unnamed[0] else "a column has no name"
        advice = choose([name for name in common if not is_index(name)])
        raise InputError(f"site {first!r}: {what}; {advice}")
    return tuple(common)


# Codes


def columns_of(data: Data) -> tuple[Column, ...]:
    """Return the columns of rows; by default numeric ones named x0, x1, ...

    Examples
    --------
    >>> [column.name for column in columns_of(Data(np.zeros((3, 2))))]
    ['x0', 'x1']
    """
    return data.columns or _unnamed(data.X.shape[1])


@lru_cache(maxsize=8)
def _unnamed(n: int) -> tuple[Column, ...]:
    return tuple(Column(f"x{j}") for j in range(n))


def codes(data: Data, j: int) -> tuple[tuple[str, ...], Floats]:
    """Return the levels of a column and the code of each row, (n,), NaN for a missing value.

    Numbers can be levels too, written without unnecessary digits.

    Examples
    --------
    >>> codes(Data(np.array([[2.0], [1.0], [2.0]])), 0)
    (('1', '2'), array([1., 0., 1.]))
    """
    column, values = columns_of(data)[j], data.X[:, j].astype(np.float64)
    if column.kind == "text":
        return column.levels, values
    there = ~np.isnan(values)
    numbers, place = np.unique(values[there], return_inverse=True)
    values[there] = place
    return tuple(map(_written, numbers.tolist())), values


def _written(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


class Coding:
    """Common codes for text columns whose parts have codes of their own.

    Examples
    --------
    >>> coding = Coding()
    >>> one = Data(np.array([[0.0], [1.0]]), columns=(Column("sex", "text", ("f", "m")),))
    >>> other = Data(np.array([[0.0]]), columns=(Column("sex", "text", ("m",)),))
    >>> coding.recoded(one).ravel().tolist(), coding.recoded(other).ravel().tolist()
    ([0.0, 1.0], [1.0])
    >>> coding.columns
    (Column(name='sex', kind='text', levels=('f', 'm')),)
    """

    def __init__(self) -> None:
        self._kinds: dict[str, set[str]] = {}
        self._numbers: dict[str, dict[str, int]] = {}

    def recoded(self, data: Data) -> Rows:
        """Return the rows (n, d) of a part in the common codes."""
        X = data.X
        for j, column in enumerate(data.columns):
            empty = bool(np.isnan(data.X[:, j]).all()) and column.kind == "number"
            self._kinds.setdefault(column.name, set()).add("empty" if empty else column.kind)
            if column.levels:
                known = self._numbers.setdefault(column.name, {})
                number = [known.setdefault(level, len(known)) for level in column.levels]
                if number != list(range(len(number))):
                    X = X.copy() if X is data.X else X
                    there = ~np.isnan(X[:, j])
                    X[there, j] = np.array(number)[X[there, j].astype(np.intp)]
        return X

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of all parts together."""
        return tuple(
            Column(name, merged_kind(kinds), tuple(self._numbers.get(name, ())))
            for name, kinds in self._kinds.items()
        )


Meanings = Mapping[str, Mapping[str, str]]
"""By column, the common names of a site's own codes."""


def in_common_codes(data: Data, meanings: Meanings, owner: str) -> Data:
    """Replace a site's own codes by their common names; missing values stay missing.

    Raises
    ------
    InputError
        If a column holds a code without a common name.

    Examples
    --------
    >>> rows = Data(np.array([[2.0], [1.0], [np.nan]]), columns=(Column("sex"),))
    >>> common = in_common_codes(rows, {"sex": {"1": "M", "2": "F"}}, "site 'north'")
    >>> common.columns, common.X.ravel()
    ((Column(name='sex', kind='text', levels=('F', 'M')),), array([ 0.,  1., nan]))
    """
    if not any(column.name in meanings for column in data.columns):
        return data
    X, columns = data.X.copy(), list(data.columns)
    for j, column in enumerate(columns):
        if (meaning := meanings.get(column.name)) is None:
            continue
        own, code = codes(data, j)
        there = ~np.isnan(code)
        used = np.unique(code[there].astype(np.intp))
        if unknown := [own[i] for i in used if own[i] not in meaning]:
            raise InputError(
                f"{owner}, column {column.name!r}: [codes] does not say what {unknown[0]!r} means; "
                f"it knows {', '.join(map(repr, meaning))}"
            )
        X[:, j], levels = renamed(code, [meaning.get(c) for c in own], meaning.values())
        columns[j] = Column(column.name, "text", levels)
    return replace(data, X=X, columns=tuple(columns))


def renamed(
    code: Rows, meant: Sequence[str | None], levels: Iterable[str]
) -> tuple[Floats, tuple[str, ...]]:
    """Return codes (n,) into the new names of levels (None if missing), and these names."""
    levels = tuple(sorted(set(levels)))
    places = {level: i for i, level in enumerate(levels)}
    place = np.array([np.nan if each is None else places[each] for each in (*meant, None)])
    return place[np.where(np.isnan(code), len(meant), code).astype(np.intp)], levels


def folded_level(level: str) -> str:
    """Return a text normalised in case, accents, blanks, and - and _ within words.

    Examples
    --------
    >>> folded_level(" Cardio-Thoracic "), folded_level("cardio  thoracic")
    ('cardio thoracic', 'cardio thoracic')
    >>> folded_level("A-"), folded_level("2-3"), folded_level("Málaga")
    ('a-', '2-3', 'malaga')
    """
    parted = unicodedata.normalize("NFKD", " ".join(level.split()))
    plain = "".join(each for each in parted if not unicodedata.combining(each)).casefold()
    return re.sub(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])", " ", plain) or level


def same_levels(known: Iterable[str], levels: Iterable[str]) -> dict[str, str]:
    """Return the known text of which each unknown one is another spelling.

    If two known or two unknown texts differ only in spelling, they are not matched.

    Examples
    --------
    >>> same_levels(["Female", "Male"], ["female", "MALE", "other", "Male"])
    {'female': 'Female'}
    """
    there, own = dict.fromkeys(known), dict.fromkeys(levels)
    if own.keys() <= there.keys():
        return {}
    spelled: dict[str, list[str]] = {}
    for level in there:
        spelled.setdefault(folded_level(level), []).append(level)
    many = Counter(map(folded_level, own))
    meant = {level: spelled.get(folded_level(level), []) for level in own if level not in there}
    return {
        level: each[0]
        for level, each in meant.items()
        if len(each) == 1 and many[folded_level(level)] == 1
    }


def with_levels(data: Data, meanings: Mapping[int, Mapping[str, str]], owner: str) -> Data:
    """Return rows with some texts of some columns renamed, and warn of each column."""
    changed = {j: meant for j, meant in meanings.items() if meant}
    if not changed:
        return data
    X, columns = data.X.copy(), list(data.columns)
    for j, meant in changed.items():
        called = [meant.get(level, level) for level in columns[j].levels]
        X[:, j], levels = renamed(X[:, j], called, called)
        columns[j] = Column(columns[j].name, "text", levels)
        pairs = ", ".join(f"{own!r} is taken for {known!r}" for own, known in meant.items())
        warnings.warn(f"{owner}, column {columns[j].name!r}: {pairs}", ReadingNote, stacklevel=3)
    return replace(data, X=X, columns=tuple(columns))


def common_levels(
    sites: Mapping[str, Data], most: int, named: Collection[str] = (), *, spellings: int = 4
) -> dict[str, Data]:
    """Return rows with texts in the spelling of most sites, where the match is certain.

    A site that has two spellings of a text keeps both. A note names each site whose texts change.

    Parameters
    ----------
    sites : mapping of str to Data
        The rows of each site.
    most : int
        Columns with more distinct texts than this are not changed unless they are named.
    named : collection of str
        Columns that are categories.
    spellings : int
        Largest mean number of spellings per text up to which a site's spellings are compared.

    Examples
    --------
    >>> rows = {site: Data(np.zeros((1, 1)), columns=(Column("sex", "text", ("F",)),))
    ...         for site in ("north", "south")}
    >>> common_levels(rows, 20) == rows
    True
    """
    taken: dict[str, dict[int, dict[str, str]]] = {site: {} for site in sites}
    texts: dict[str, dict[str, int]] = {}
    for site, each in sites.items():
        for j, column in enumerate(each.columns):
            if column.kind == "text":
                texts.setdefault(column.name, {})[site] = j
    for name, places in texts.items():
        levels = {site: sites[site].columns[j].levels for site, j in places.items()}
        if name not in named and max(map(len, levels.values())) > spellings * most:
            continue
        every = Counter(level for each in levels.values() for level in each)
        spelled: dict[str, list[str]] = {}
        for level, _ in every.most_common():
            spelled.setdefault(folded_level(level), []).append(level)
        if len(spelled) > most and name not in named:
            continue
        many = [Counter(map(folded_level, each)) for each in levels.values()]
        twice = {folded for each in many for folded, n in each.items() if n > 1}
        known = {folded: those[0] for folded, those in spelled.items() if folded not in twice}
        for site, j in places.items():
            meant = {level: known.get(folded_level(level), level) for level in levels[site]}
            taken[site][j] = {level: other for level, other in meant.items() if level != other}
    return {site: with_levels(each, taken[site], f"site {site!r}") for site, each in sites.items()}


def code_questions(sites: Mapping[str, Data]) -> dict[str, str]:
    """Return, by column, the question whether numbers at some sites encode texts at others."""
    asked: dict[str, str] = {}
    texts: dict[str, dict[str, list[str]]] = {}
    numbers: dict[str, dict[str, list[str]]] = {}
    for site, data in sites.items():
        for j, column in enumerate(data.columns):
            if column.kind == "text" and len(column.levels) <= MOST_CODES:
                texts.setdefault(column.name, {})[site] = list(column.levels)
            elif column.kind == "number":
                # Number of rows that are inspected first, before all rows.
                head = np.unique(data.X[:1000, j])
                if len(head) <= MOST_CODES + 1 and (own := list(codes(data, j)[0])):
                    numbers.setdefault(column.name, {})[site] = own
    for name in filter(numbers.__contains__, texts):
        meant = sorted({level for own in texts[name].values() for level in own})
        coded = sorted({level for own in numbers[name].values() for level in own}, key=float)
        if 1 < len(coded) == len(meant) <= MOST_CODES:
            pairs = _paired(sites, name, coded, meant)
            how = f"codes.{name} of a study file" if pairs is None else codes_option(name, pairs)
            asked[name] = (
                f"column {name!r} holds {listed(meant)} at {listed(list(texts[name]))}, "
                f"{listed(coded)} at {listed(list(numbers[name]))}; if they mean the same, say "
                f"{'which is which by ' if pairs is None else ''}{how}"
            )
    return asked


NO = {"n", "no", "nein", "non", "não", "false", "falsch", "faux", "falso", "neg", "negative"}
"""Texts that 0 stands for, beside one that 1 stands for."""


def _paired(
    sites: Mapping[str, Data], name: str, coded: Sequence[str], meant: Sequence[str]
) -> list[tuple[str, str]] | None:
    """Return which number stands for which text, by rows' other columns; None if that is unsure.

    Only 0 and 1 have a usual meaning; the order of texts says nothing.
    """
    if list(coded) == ["0", "1"]:
        none = [text for text in meant if text.casefold() in NO]
        other = [text for text in meant if text not in none]
        if len(none) == len(other) == 1:
            return [("0", none[0]), ("1", other[0])]
    places = {site: {c.name: j for j, c in enumerate(columns_of(d))} for site, d in sites.items()}
    kinds = {site: {c.name: c.kind for c in columns_of(d)} for site, d in sites.items()}
    shared = [
        other
        for other in next(iter(places.values()))
        if other != name and all(own.get(other) == "number" for own in kinds.values())
    ]
    if len(coded) > 6 or not shared:
        return None
    rows: dict[str, list[Floats]] = {}
    for site, data in sites.items():
        if name not in places[site]:
            continue
        levels, code = codes(data, places[site][name])
        beside = data.X[:, [places[site][other] for other in shared]].astype(np.float64)
        for i, level in enumerate(levels):
            rows.setdefault(level, []).append(beside[code == i])
    held = {level: np.concatenate(parts) for level, parts in rows.items()}
    of_codes, of_texts = ([_described(held[level]) for level in those] for those in (coded, meant))
    costs = np.array([[_unlike(one, other) for other in of_texts] for one in of_codes])
    places_of = np.arange(len(coded))
    ways = sorted((costs[places_of, way].sum(), way) for way in permutations(places_of.tolist()))
    (best, first), (second, _) = ways[:2]
    # likely by chance, and e^10 times as likely as any other way (twice the logarithm)
    if best > 5.0 * len(coded) * len(shared) or not second - best > 20.0:
        return None
    return [(coded[i], meant[j]) for i, j in enumerate(first)]


def _described(rows: Floats) -> tuple[Floats, Floats]:
    """Return the means of columns, and the squares of their standard errors, inf for few values."""
    there = np.logical_not(np.isnan(rows))
    n = there.sum(axis=0)
    mean = np.nan_to_num(rows).sum(axis=0) / np.maximum(n, 1)
    squares = (np.where(there, rows - mean, 0.0) ** 2).sum(axis=0)
    error = np.where(n >= 5, squares / np.maximum(n - 1, 1) / np.maximum(n, 1), np.inf)
    return mean, error


def _unlike(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> float:
    """Return the squared differences of means, over those of their errors."""
    error = one[1] + other[1]
    apart = (one[0] - other[0]) ** 2
    return float(np.divide(apart, error, out=np.zeros_like(apart), where=error > 0).sum())


# What a site discloses


def _named(levels: Counter[str], n_rows: int, passes: Passes, *, least: int = 2) -> tuple[str, ...]:
    """Return the levels that may leave, in alphabetical order.

    ``least``: number of a site's rows that must have a level before the site names it.
    """
    shared = {level: n for level, n in levels.items() if n >= least}
    frequent = sorted(shared, key=lambda level: (-shared[level], level))[:MOST_LEVELS]
    counts = np.array([shared[level] for level in frequent], dtype=np.float64)
    kept = passes(counts, n_rows) if frequent else np.zeros(0, dtype=bool)
    return tuple(sorted(level for level, keep in zip(frequent, kept, strict=True) if keep))


def described_groups(data: Data, texts: Collection[str]) -> tuple[Column, ...]:
    """Return what a site discloses about the columns of its groups.

    Raises
    ------
    InputError
        If a numeric column is to be treated as text: the counts of each number in a group would
        disclose the values of its rows.
    """
    columns = []
    for j, column in enumerate(columns_of(data)):
        if column.name in texts and column.kind == "number":
            raise InputError(
                f"column {column.name!r} has numbers, which groups do not tell one by one; where "
                "they are names, write what they mean under [codes] of the site file"
            )
        if not len(data):  # a site with too few rows discloses no text
            columns.append(Column(column.name, column.kind))
            continue
        is_empty = bool(np.isnan(data.X[:, j]).all())
        is_described = column.kind in ("number", "text")
        columns.append(Column(column.name, "empty") if is_empty and is_described else column)
    return tuple(columns)


def chosen_columns(data: Data, names: Sequence[str], owner: str, *, raw: bool) -> Data:
    """Return groups with some of their columns, in this order.

    Parameters
    ----------
    data : Data
        The means of groups, with all columns.
    names : sequence of str
        The columns.
    owner : str
        The owner of the rows, for error messages.
    raw : bool
        Whether the rows are not prepared yet, so that text and missing values are allowed.

    Raises
    ------
    InputError
        If there is no such column, or a column must be prepared first.
    """
    data = called(data, own_names((column.name for column in columns_of(data)), names))
    columns = columns_of(data)
    place = {column.name: j for j, column in enumerate(columns)}
    has_columns(owner, list(place), names)
    chosen = [place[name] for name in names]
    X = np.ascontiguousarray(data.X[:, chosen])
    for name, j in zip(names, chosen, strict=True):
        if not raw and (columns[j].kind != "number" or np.isnan(data.X[:, j]).any()):
            what = "is no number" if columns[j].kind != "number" else "has missing values"
            raise InputError(f"{owner}: column {name!r} {what}; leave it out, or prepare the rows")
    grouped = data.grouped
    if grouped is not None:
        shares = {i: grouped.shares[j] for i, j in enumerate(chosen) if j in grouped.shares}
        grouped = replace(grouped, shares=shares)
    return replace(data, X=X, columns=tuple(columns[j] for j in chosen), grouped=grouped)


def classes(chunks: Iterable[Data], passes: Passes) -> tuple[str, ...] | None:
    """Return the reference labels that a site discloses: those shared by at least two rows.

    Parameters
    ----------
    chunks : iterable of Data
        Its rows.
    passes : callable
        As in `SourceSummary.disclosed`.

    Returns
    -------
    tuple of str, or None
        The labels in alphabetical order; None for rows without labels.

    Raises
    ------
    InputError
        If only some of the rows have a label.

    Examples
    --------
    >>> rows = Data(np.zeros((5, 1)), y=np.array(["b", "a", "b", "c", "a"]))
    >>> classes([rows], lambda counts, n_rows: counts > 1)
    ('a', 'b')
    """
    labels = label_counts(chunks)
    return None if labels is None else _named(labels, labels.total(), passes)


def label_counts(chunks: Iterable[Data]) -> Counter[str] | None:
    """Return the number of rows with each reference label; None without labels."""
    labels: Counter[str] = Counter()
    for chunk in chunks:
        if chunk.y is None:
            return None
        names, counts = np.unique(chunk.y.astype(str), return_counts=True)
        labels.update(dict(zip(names.tolist(), counts.tolist(), strict=True)))
    if "" in labels:
        raise InputError("the label of a row is missing; fill it in or drop the row")
    return labels


# Samples: what some thousand rows show of what columns mean, at the site that has them


@dataclass(frozen=True, slots=True, eq=False)
class NumberSample:
    """Sample of a column of numbers at one site.

    Parameters
    ----------
    values : ndarray of shape (u,)
        The distinct values of the sample, in increasing order.
    counts : ndarray of shape (u,)
        The number of the sample's rows with each value.
    is_counter : bool
        Whether values increase by one from row to row.
    is_padded : bool
        Whether numbers are written with leading zeros, as in "01015".
    whole : bool
        Whether all values are whole numbers.
    n_rows : int
        The total number of rows of the column.

    Examples
    --------
    >>> sample = NumberSample.from_values(np.array([3.0, 1.0, 1.0, np.nan]))
    >>> sample.values, sample.counts, sample.n
    (array([1., 3.]), array([2, 1]), 3)
    """

    values: Floats
    counts: NDArray[np.intp]
    is_counter: bool = False
    is_padded: bool = False
    whole: bool = False
    n_rows: int = 0

    @classmethod
    def from_values(
        cls,
        rows: NDArray[np.floating],
        sample: NDArray[np.floating] | None = None,
        extremes: tuple[float, float] | None = None,
        *,
        is_padded: bool = False,
    ) -> NumberSample:
        """Return the sample of a column (n,), whose rows may be a sample already.

        Then ``extremes``, the smallest and the largest value of all rows, belong to it as well.
        """
        if sample is None:
            sample = rows
        there = sample[~np.isnan(sample)].astype(np.float64)
        if len(there) and len(sample) < len(rows):
            ends = extremes or (np.fmin.reduce(rows), np.fmax.reduce(rows))
            there = np.append(there, [x for x in ends if not there.min() <= x <= there.max()])
        values, counts = np.unique(there, return_counts=True)
        head = rows[: len(sample)]
        is_counter = len(head) > 2 and bool((np.diff(head) == 1).all())
        whole = bool((values == np.floor(values)).all())
        return cls(values, counts, is_counter, is_padded, whole, len(rows))

    @classmethod
    def joined(cls, samples: Iterable[NumberSample]) -> NumberSample:
        """Return the values of several samples together."""
        each = [*samples]
        values, place = np.unique(np.concatenate([s.values for s in each]), return_inverse=True)
        counts = np.zeros(len(values), dtype=np.intp)
        np.add.at(counts, place, np.concatenate([s.counts for s in each]))
        whole, n_rows = all(s.whole for s in each), sum(s.n_rows for s in each)
        return cls(values, counts, whole=whole, n_rows=n_rows)

    def less(self, part: NumberSample) -> NumberSample:
        """Return the values without those of one of the samples that were joined."""
        counts = self.counts.copy()
        counts[np.searchsorted(self.values, part.values)] -= part.counts
        values, counts = self.values[counts > 0], counts[counts > 0]
        whole = bool((values == np.floor(values)).all())
        return replace(self, values=values, counts=counts, whole=whole)

    @property
    def moments(self) -> tuple[float, float]:
        """The mean and the standard deviation, 0 without values."""
        shares = self.counts / max(self.n, 1)
        mean = float(shares @ self.values)
        return mean, math.sqrt(float(shares @ (self.values - mean) ** 2))

    @property
    def low(self) -> float:
        """The smallest value."""
        return float(self.values[0]) if len(self.values) else math.nan

    @property
    def high(self) -> float:
        """The largest value."""
        return float(self.values[-1]) if len(self.values) else math.nan

    @property
    def n(self) -> int:
        """The number of values in the sample."""
        return int(self.counts.sum())

    @property
    def is_distinct(self) -> bool:
        """Whether all values of the sample differ."""
        return len(self.values) == self.n

    def quantile(self, share: float) -> float:
        """Return the value below which a share of the sample lies."""
        place = np.searchsorted(np.cumsum(self.counts), share * self.n)
        return float(self.values[min(int(place), len(self.values) - 1)])

    def without(self, *values: float) -> NumberSample:
        """Return the sample without the rows that have given values."""
        kept = ~np.isin(self.values, values)
        return replace(self, values=self.values[kept], counts=self.counts[kept])


@dataclass(slots=True, eq=False)
class ColumnSummary:
    """Summary of a column of one source.

    Parameters
    ----------
    name : str
        Its name.
    kinds : set of str
        The kinds of its parts, from `KINDS`; "decimal commas" or "decimal points" for numbers with
        the wrong decimal sign for the source.
    missing : int
        The number of rows without a value.
    levels : Counter of str
        The number of rows with each text.
    sample : NumberSample, optional
        For a numeric column with values, if the rows are in memory.
    """

    name: str
    kinds: set[str] = field(default_factory=set)
    missing: int = 0
    levels: Counter[str] = field(default_factory=Counter)
    sample: NumberSample | None = None

    @property
    def kind(self) -> str:
        """Return the kind of all parts together."""
        otherwise = {kind for kind in self.kinds if kind.startswith("decimal ")}
        return merged_kind(self.kinds - {"number"} if otherwise else self.kinds)


@dataclass(slots=True, eq=False)
class SourceSummary:
    """Summary of the columns of a source, which stays at the site.

    Parameters
    ----------
    n_rows : int
        The number of rows.
    columns : dict of str to ColumnSummary
        The summaries of its columns, in the order of the source.
    persons : Persons, optional
        The persons that the rows belong to, if a column holds these.

    Examples
    --------
    >>> rows = Data(np.array([[0.0, 5.0], [0.0, np.nan], [1.0, 7.0]]),
    ...             columns=(Column("sex", "text", ("F", "M")), Column("bmi")))
    >>> summary = SourceSummary.from_chunks([rows])
    >>> [(column.name, column.kind, column.missing) for column in summary.columns.values()]
    [('sex', 'text', 0), ('bmi', 'number', 1)]
    >>> summary.disclosed(lambda counts, n_rows: counts > 1)
    (Column(name='sex', kind='text', levels=('F',)), Column(name='bmi', kind='number', levels=()))
    """

    n_rows: int = 0
    columns: dict[str, ColumnSummary] = field(default_factory=dict)
    persons: Any = None
    most_rows = 20_000  # largest number of rows in a sample, evenly spread over all rows
    block_values = 8192  # number of values that are compared at a time

    @classmethod
    def from_chunks(cls, chunks: Iterable[Data], texts: Collection[str] = ()) -> Self:
        """Return the summary of rows; ``texts`` names columns whose numbers are codes."""
        summary = cls()
        for chunk in chunks:
            summary.n_rows += len(chunk)
            parts = (
                chunk.X[i : i + cls.block_values] for i in range(0, len(chunk), cls.block_values)
            )
            gaps = sum((np.isnan(part).sum(axis=0) for part in parts), np.zeros(chunk.X.shape[1]))
            for j, column in enumerate(columns_of(chunk)):
                kind, missing = column.kind, int(gaps[j])
                if kind not in ("date", "mixed") and missing == len(chunk):
                    kind = "empty"
                elif column.name in texts and kind == "number":
                    kind = "text"
                own = summary.add(column.name, kind, missing)
                if kind == "text":
                    names, place = codes(chunk, j)
                    counts = np.bincount(place[~np.isnan(place)].astype(np.intp))
                    own.levels.update({names[i]: int(counts[i]) for i in np.flatnonzero(counts)})
        return summary

    @classmethod
    def from_data(cls, data: Data, padded: Collection[str] = ()) -> Self:
        """Return the summary of rows, with samples of numbers.

        ``padded`` names the columns with leading zeros.
        """
        summary = cls.from_chunks([data])
        step = max(1, -(-len(data) // cls.most_rows))
        sample = data.X if step == 1 else np.asfortranarray(data.X[::step])
        ends = np.array(extremes(data.X))
        for j, column in enumerate(summary.columns.values()):
            if column.kind == "number":
                low_high, is_padded = (ends[0, j], ends[1, j]), column.name in padded
                column.sample = NumberSample.from_values(
                    data.X[:, j], sample[:, j], low_high, is_padded=is_padded
                )
        return summary

    def add(self, name: str, kind: str, missing: int) -> ColumnSummary:
        """Count a part of a column, and return the column's summary."""
        column = self.columns.setdefault(name, ColumnSummary(name))
        column.kinds.add(kind)
        column.missing += missing
        return column

    def disclosed(self, passes: Passes) -> tuple[Column, ...]:
        """Return what a site discloses about its columns.

        Levels are in alphabetical order; only those that at least two rows have and that pass are
        disclosed.
        """
        return tuple(
            Column(name, kind, _named(each.levels, self.n_rows, passes) if kind == "text" else ())
            for name, each in self.columns.items()
            for kind in [each.kind]
        )


def extremes(X: Rows) -> tuple[Rows, Rows]:
    """Return the smallest and the largest value of each column, (d,), NaN for an empty one."""
    n, d = X.shape
    many = max(1, min(n, SourceSummary.block_values // max(d, 1)))
    whole = n // many * many if X.flags.c_contiguous else 0
    low, high = np.full((2, many * d), np.nan, X.dtype)
    for lines in X[:whole].reshape(-1, many * d):
        np.fmin(low, lines, out=low)
        np.fmax(high, lines, out=high)
    return _extreme(np.fmin, low.reshape(many, d), X[whole:]), _extreme(
        np.fmax, high.reshape(many, d), X[whole:]
    )


def _extreme(of: np.ufunc, found: Rows, rest: Rows) -> Rows:
    ends: Rows = of(of.reduce(found, axis=0), of.reduce(rest, axis=0, initial=np.nan))
    return ends
