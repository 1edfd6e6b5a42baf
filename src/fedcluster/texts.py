"""Texts for people: sentences, tables and HTML; and checks of texts from other machines."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcluster.errors import listed

__all__: list[str] = []  # exports nothing: the module is internal

LONGEST = 4_000
"""Largest number of characters of an accepted text."""
CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1 controls, which include escape sequences and line ends
    # line separators and controls of writing direction
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    "\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]"  # surrogates, interlinear annotations, tags
)


def is_plain(text: str, longest: int = LONGEST) -> bool:
    r"""Return whether a text is not too long and has no control characters.

    Examples
    --------
    >>> [is_plain(text) for text in ("Zürich", "a\tb", "\x1b[2J", "\u202egpj.exe", "a" * 5000)]
    [True, False, False, False, False]
    """
    return len(text) <= longest and CONTROLS.search(text) is None


def printable(text: str) -> str:
    r"""Return a text with control characters replaced by codes, shortened if it is long.

    Examples
    --------
    >>> print(printable("no\x1b[31m such\ncolumn"))
    no\x1b[31m such\ncolumn
    """
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text[:LONGEST])


def replace_unknown_signs() -> None:
    """Let standard output and error replace characters that their encoding lacks by ``?``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def shortened(text: str, most: int) -> str:
    """Return a text, shortened to ``most`` characters with an ellipsis.

    Examples
    --------
    >>> shortened("age", 3), shortened("blood pressure", 6)
    ('age', 'blood…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def first_not_plain(value: Any, longest: int = LONGEST) -> str | None:
    """Return the first text or key in JSON content that is not plain, else None."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if not is_plain(each, longest):
                return each
        elif isinstance(each, Mapping):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple):
            waiting += each
    return None


class Html(str):
    """Text that is HTML already, so that nothing escapes it again."""

    __slots__ = ()


def escaped(value: Any) -> str:
    r"""Return a value as HTML, with control characters replaced by their codes.

    Examples
    --------
    >>> print(escaped("a < b \x1b[2J"), escaped(Html("<br>")))
    a &lt; b \x1b[2J <br>
    """
    return value if isinstance(value, Html) else html.escape(printable(str(value)))


@dataclass(frozen=True, slots=True)
class Table:
    """Table for a screen or a notebook: the first column names its rows.

    Parameters
    ----------
    title : str
        What the table shows.
    header : sequence
        The heads of the columns.
    rows : sequence of sequence
        Texts; in a notebook also HTML. All columns except the first hold numbers.
    total : sequence, optional
        A highlighted last line of a screen.

    Examples
    --------
    >>> Table("ages", ["cluster", "mean"], [[0, "41"]]).plain_html()  # doctest: +ELLIPSIS
    '<table><caption>ages</caption>...<tr><th scope="row">0</th><td>41</td></tr></tbody></table>'
    """

    title: str
    header: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    total: Sequence[Any] = ()

    def plain_html(self) -> str:
        """Return the table for a notebook, without a style or a script."""
        heads = "".join(f'<th scope="col">{escaped(each)}</th>' for each in self.header)
        lines = "".join(
            f'<tr><th scope="row">{escaped(first)}</th>'
            f"{''.join(f'<td>{escaped(each)}</td>' for each in others)}</tr>"
            for first, *others in self.rows
        )
        return (
            f"<table><caption>{escaped(self.title)}</caption><thead><tr>{heads}</tr></thead>"
            f"<tbody>{lines}</tbody></table>"
        )


NOTHING = "–"
"""Placeholder for an unknown number."""


def number(x: float) -> str:
    """Return a number to six significant digits, with commas.

    Examples
    --------
    >>> number(1165165.3), number(78.851441), number(-0.0), number(-2.5e-7), number(3e15)
    ('1,165,165', '78.8514', '0', '-2.5e-07', '3e+15')
    """
    if not math.isfinite(x) or x == 0 or not 1e-4 <= abs(x) < 1e15:
        return f"{x + 0.0:g}"
    digits = max(0, 5 - math.floor(math.log10(abs(x))))
    text = f"{x:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def shown(x: float | None) -> str:
    """Return a number as a table shows it; an en dash if unknown.

    Examples
    --------
    >>> shown(2.5), shown(None), shown(math.nan)
    ('2.5', '–', '–')
    """
    return NOTHING if x is None or math.isnan(x) else number(x)


def short_number(x: float | None) -> str:
    """Return a number to four significant digits, without decimals if it is large.

    Examples
    --------
    >>> short_number(36.6123), short_number(123456.7), short_number(-0.0), short_number(None)
    ('36.61', '123,457', '0', '–')
    """
    if x is None or not math.isfinite(x):
        return NOTHING
    return f"{x + 0.0:.4g}" if abs(x) < 1e4 else f"{x:,.0f}"


def percent(share: float) -> str:
    """Return a share in percent, an en dash if unknown.

    Examples
    --------
    >>> percent(0.3406), percent(0.004), percent(1.0), percent(math.nan)
    ('34 %', '0.4 %', '100 %', '–')
    """
    if not math.isfinite(share):
        return NOTHING
    return f"{share:.0%}".replace("%", " %") if share >= 0.1 else f"{100 * share:.2g} %"


def counted(n: int, what: str) -> str:
    """Return a number and its noun, in the plural if needed.

    Examples
    --------
    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def some_of(names: Sequence[str], most: int = 5) -> str:
    """Return the first names in a sentence's form, and how many more there are.

    Examples
    --------
    >>> some_of(["a", "b"]), some_of(["a", "b", "c"], most=1)
    ('a and b', 'a and 2 more')
    """
    more = [f"{len(names) - most} more"] if len(names) > most else []
    shown = [*names[:most], *more]
    return listed(shown)


def called(j: int, names: Sequence[str]) -> str:
    """Return the label of a cluster in charts: its number, and its name if it has one."""
    return f"{j} {shortened(names[j], 80)}" if names else f"cluster {j}"


def command_line(*words: object) -> str:
    """Return a command of this program as it is typed, with quotes where a shell needs them.

    Examples
    --------
    >>> command_line("site", "start", "my site")
    "fedcluster site start 'my site'"
    """
    return shlex.join(["fedcluster", *map(str, words)])


def dotted(*parts: str) -> str:
    """Return a key of a TOML file with its tables.

    Examples
    --------
    >>> dotted("codes", "blood type", "A+")
    'codes."blood type"."A+"'
    """
    return ".".join(
        part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else in_toml(part) for part in parts
    )


def in_toml(value: Any) -> str:
    r"""Return a value as TOML writes it, a table in one line.

    Examples
    --------
    >>> print(in_toml({"a b": [1, 2.5, True], "c": "\u007f"}))
    {"a b" = [1, 2.5, true], c = "\u007f"}
    """
    if isinstance(value, Mapping):
        pairs = (f"{dotted(key)} = {in_toml(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(in_toml, value))}]"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def setting(*parts: str, to: Any) -> str:
    r"""Return the option that sets a key of the study file, to be copied; simple texts stay plain.

    Examples
    --------
    >>> setting("codes", "sex", "female", to="F"), setting("missing_values", to=[-999])
    ('--set codes.sex.female=F', "--set 'missing_values=[-999]'")
    >>> setting("codes", "sex", to={"1": "F"})
    '--set \'codes.sex={1 = "F"}\''
    """
    value = f"{to:.12g}" if isinstance(to, float) else in_toml(to)
    if isinstance(to, str) and re.fullmatch(r"\w[\w.:+-]*", to):
        try:
            tomllib.loads(f"value = {to}")
        except tomllib.TOMLDecodeError:
            value = to
    return f"--set {shlex.quote(f'{dotted(*parts)}={value}')}"


OPTION = re.compile(
    r"(?P<say>\b(say|evaluate) )?--(?P<name>set|exclude|categories|columns|missing|label-column)\b"
    r"( (?P<value>(?!takes|to )('[^']*'|\"[^\"]*\"|[^\s'\",.;:]|[,.:](?=\S))+))?"
)
"""An option of the command line that a message proposes, as a shell reads it."""


def for_python(message: str) -> str:
    """Return a message with what users of Python do in place of options of the command line.

    Examples
    --------
    >>> for to in (setting("missing_values", to=[-999, "age:99"]), "--exclude 'a b,c'",
    ...            setting("sites", "west", "factors", "age", to="1.8x+32"),
    ...            setting("prepare", "bounds", "age", to=[0, 120]), "--categories auto,ward."):
    ...     print(for_python(f"if so, say {to}"))
    if so, make -999 and 99 of 'age' missing
    if so, leave 'a b' and 'c' out
    if so, take 1.8x+32 of it
    if so, say PreprocessingSpec(bounds={'age': (0, 120)})
    if so, say PreprocessingSpec(categories=['auto', 'ward']).
    """
    return _in_place(message, _for_python)


def for_site(message: str) -> str:
    """Return a message with what stands in the file of a site in place of options that set keys.

    Examples
    --------
    >>> print(for_site("if so, say --set sites.west.factors.age=1.8x+32"))
    if so, write age = "1.8x+32" under [factors] in its file
    >>> print(for_site("if so, say --set 'missing_values=[-999]'"))
    if so, write missing_values = [-999] at the top of its file
    """
    return _in_place(message, _for_site)


def _in_place(message: str, of: Callable[[re.Match[str]], str]) -> str:
    """Return a message with other words for each option, joined where one follows the other."""
    said, end = "", 0
    for found in OPTION.finditer(message):
        between = message[end : found.start()]
        said += (" and " if end and between == " " else between) + of(found)
        end = found.end()
    return said + message[end:]


def _first_key(found: re.Match[str]) -> tuple[str, Any]:
    """Return the first part of the key that an option sets, without its site, and what it holds.

    Simple texts are written without quotes.
    """
    whole, _, text = "".join(shlex.split(found["value"])).partition("=")
    try:
        table = tomllib.loads(f"{whole} = {text}")
    except tomllib.TOMLDecodeError:
        table = tomllib.loads(f"{whole} = {json.dumps(text)}")
    if "sites" in table:
        [table] = table["sites"].values()
    [(key, value)] = table.items()
    return key, value


def _for_site(found: re.Match[str]) -> str:
    """Return what the file of a site says in place of an option."""
    if found["name"] != "set":
        return found[0]
    key, value = _first_key(found)
    if not isinstance(value, Mapping):
        return f"write {key} = {in_toml(value)} at the top of its file"
    [(name, to)] = value.items()
    return f"write {dotted(name)} = {in_toml(to)} under [{key}] in its file"


def _for_python(found: re.Match[str]) -> str:
    """Return what users of Python do in place of an option."""
    name, said = found["name"], found["say"] or ""
    if name == "set":
        return _set_for_python(said, *_first_key(found))
    value = "".join(shlex.split(found["value"] or ""))
    names = [each for each in next(csv.reader([value]), []) if each]
    if name == "exclude":
        return f"leave {listed([*map(repr, names)])} out"
    if name == "label-column":
        return "adjusted_rand_score"
    given = repr(value if name == "missing" else names) if value else "..."
    return f"{said}PreprocessingSpec({name}={given})"


def _set_for_python(said: str, key: str, value: Any) -> str:
    """Return what users of Python do in place of a key of a study file."""
    if key == "prepare":
        [(key, value)] = value.items()
    if key == "fit":
        return f"{said}{', '.join(f'{k}={v!r}' for k, v in value.items())}"
    if not isinstance(value, Mapping) and key == "dates":
        return f"{said}PreprocessingSpec(dates={{NAME: {value!r}}})"
    if key == "missing_values":
        each = [str(v).rpartition(":") for v in value]
        return f"make {listed([v + (f' of {of!r}' if of else '') for of, _, v in each])} missing"
    if key == "weight_column":
        return f"give {value!r} as sample_weight"
    if key not in ("codes", "factors", "rename"):
        made = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        return f"{said}PreprocessingSpec({key}={made})"
    [(name, to)] = value.items()
    if key == "factors":
        return f"take {to} of it" if isinstance(to, str) else f"multiply it by {to:g}"
    if key == "rename":
        return f"rename {name!r} to {to!r}"
    return f"replace {listed([f'{a!r} by {b!r}' for a, b in to.items()])} in {name!r}"


COLOURS = ("#3b6fb6", "#e0853a", "#4a9d6f", "#b4528c", "#8a7cc8", "#c9a227", "#5aa9b8", "#8c6d52")
INK = "#1d2733"
DEEPEST = 2.0
"""Distance in spreads at which the colour of a cell is full, in `shade`."""
