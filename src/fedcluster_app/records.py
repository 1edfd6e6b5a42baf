"""Files of settings and of state, in TOML or JSON, read into declared types.

A record is a dataclass, a ``msgspec.Struct`` or a type such as ``dict[str, float]``. Errors found
by msgspec become one line: the key, what it must be, and what it is.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from fedcluster.errors import InputError, check_keys

__all__: list[str] = []  # exports nothing: the module is internal

RecordT = TypeVar("RecordT")

Table = dict[str, Any]
Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
NAMES = 'a list of names, as in ["age", "bmi"]'
Names = Annotated[tuple[str, ...], msgspec.Meta(min_length=1, description=NAMES)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
MissingValues = Annotated[
    list[int | float | str],
    msgspec.Meta(description='a list of numbers and texts, as in [-999, "unknown"]'),
]
Codes = Annotated[
    dict[str, Text],
    msgspec.Meta(
        min_length=1,
        description='a table of what each code means, as in sex = { "1" = "M", "2" = "F" }',
    ),
]
FACTOR = 'a number other than 0, as in sbp = 7.50062, or as in temp = "1.8x+32"'
Factor = Annotated[float | str, msgspec.Meta(description=FACTOR)]


@dataclass(frozen=True, kw_only=True)
class FileKeys:
    """How the rows of a site are read; for files as in `FileSource`."""

    names: Names | None = None
    matrix: Text | None = None
    decimal: Annotated[Literal[".", ","] | None, msgspec.Meta(description='"." or ","')] = None
    encoding: Text | None = None
    sheet: Text | None = None
    table: Text | None = None
    skip: Annotated[int, msgspec.Meta(ge=0)] | None = None
    where: Text | None = None
    order: Text | None = None


KINDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
    "date": "a day, as in 2030-12-31",
}
"""Users' words for the types that msgspec names."""

BOUNDS = {" of length >= ": " of at least ", " of length ": " of ", " >= ": " of at least "}
BOUNDS |= {" <= ": " of at most ", " > ": " above ", " < ": " below "}
BOUNDS |= {r" matching regex '\\S'": " that is not blank"}

NATIVE = (datetime.date, datetime.datetime, datetime.time)
"""Types that TOML has and JSON lacks, so that text does not stand for them."""

EXPECTED = re.compile(r"Expected `(?P<kinds>[^`]+)`(?P<bound>[^,]*)")
FIELD = re.compile(r"Object (?P<what>missing required|contains unknown) field `(?P<name>[^`]+)`")
PLACE = re.compile(r" - at (?:`key` in )?`\$(?P<place>.*)`$")
PART = re.compile(r"\[\.\.\.\]|\[\d+\]|[^.\[\]]+")


def load_record(path: Path, kind: type[RecordT], *, remedy: str = "", **more: Any) -> RecordT:
    """Read a file as a record.

    Parameters
    ----------
    path : Path
        The file, in TOML if its name ends so, otherwise in JSON.
    kind : type
        The type of the record.
    remedy : str
        Advice on a damaged file, as the end of the message.
    **more : object
        Fields that are not in the file.

    Raises
    ------
    InputError
        If the file cannot be read or a key, which it names, is wrong. A wrong JSON file counts as
        damaged, because programs write JSON, while people write TOML.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; check the path") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    is_toml = path.suffix == ".toml"
    try:
        content = tomllib.loads(raw.decode()) if is_toml else msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        what = "is not TOML" if is_toml else "is damaged"
        raise InputError(f"{path} {what}: {error}{remedy}") from error
    try:
        if more and isinstance(content, dict):
            content |= more
        return record(content, kind, native=NATIVE if is_toml else ())
    except InputError as error:
        raise InputError(f"{path}{'' if is_toml else ' is damaged'}: {error}{remedy}") from error


def record_or(path: Path, kind: type[RecordT], default: RecordT) -> RecordT:
    """Read a file as a record; return ``default`` if it is missing or damaged."""
    try:
        return load_record(path, kind)
    except InputError:
        return default


def record(content: Any, kind: type[RecordT], *, native: Sequence[type] = ()) -> RecordT:
    """Convert the content of a file to a record; values may already be of ``native`` types.

    If a type is annotated with a description, messages use it to say what a value must be.

    Raises
    ------
    InputError
        If the content does not have the declared type; the message names the key.

    Examples
    --------
    >>> record({"north": 5000}, dict[str, float])
    {'north': 5000.0}
    >>> record({"north": "many"}, dict[str, float])
    Traceback (most recent call last):
        ...
    fedcluster.errors.InputError: north must be a number, not 'many'
    """
    if is_dataclass(kind) and isinstance(content, Mapping):
        check_keys(content, [field.name for field in fields(kind)])
    try:
        return msgspec.convert(content, kind, builtin_types=native)
    except msgspec.ValidationError as error:
        refuse(error, content, kind)


def refuse(
    error: msgspec.ValidationError, content: Any, kind: Any, *, longest: int = 60
) -> NoReturn:
    """Translate an error of msgspec about the content of a file.

    ``longest``: largest number of characters of a wrong value that a message shows.

    Raises
    ------
    InputError
        Always.
    """
    place = PLACE.search(text := str(error))
    keys, value, kind = _resolved(PART.findall(place["place"]) if place else [], content, kind)
    text, where = PLACE.sub("", text), "".join(keys).removeprefix(".")
    if field := FIELD.match(text):
        fields_of = get_type_hints(_plain(kind), include_extras=True)
        if field["what"] == "contains unknown":
            check_keys([field["name"]], fields_of)
        described = _description(fields_of[field["name"]])
        missing = f"{field['name']!r} is missing{described and f', {described}'}"
        raise InputError(f"{where}: {missing}" if where else missing) from error
    what = _description(kind) or _expected(text, _plain(kind))
    if not what:
        raise InputError(f"{where}: {text}" if where else text) from error
    whole = str(value) if isinstance(value, NATIVE) else repr(value)
    shown = whole if len(whole) <= longest else f"{whole[:longest]}..."
    raise InputError(f"{where or 'its content'} must be {what}, not {shown}") from error


def _expected(text: str, kind: Any) -> str:
    """Return msgspec's description of what a value must be; empty if it gives none."""
    if expected := EXPECTED.match(text):
        kinds = [KINDS.get(each, each) for each in expected["kinds"].split(" | ")]
        bound = expected["bound"]
        for sign, words in BOUNDS.items():
            bound = bound.replace(sign, words)
        return " or ".join(each for each in kinds if each != "null") + bound.removesuffix(".0")
    if kind is datetime.date:
        return KINDS["date"]
    return f"one of {', '.join(map(str, get_args(kind)))}" if get_origin(kind) is Literal else ""


def _resolved(parts: Iterable[str], value: Any, kind: Any) -> tuple[list[str], Any, Any]:
    """Return the keys that lead to a position, the value there and its declared type.

    msgspec does not name the key within a mapping, so the first key with a wrong value is used.
    """
    keys: list[str] = []
    for part in parts:
        kind = _plain(kind)
        if part == "[...]":
            kind = get_args(kind)[-1]
            name = next(key for key in value if not _fits(value[key], kind))
        elif part.startswith("["):
            inner, name = get_args(kind), part
            index = int(part[1:-1])
            kind = inner[0] if len(inner) == 1 or inner[-1] is ... else inner[index]
            value = value[index]
            keys.append(name)
            continue
        else:
            kind, name = get_type_hints(kind, include_extras=True)[part], part
        value = value.get(name)
        keys.append(f".{name}")
    return keys, value, kind


def _description(kind: Any) -> str:
    """Return an annotation's description of a type's values; empty if there is none."""
    own = [
        each.description
        for each in getattr(kind, "__metadata__", ())
        if isinstance(each, msgspec.Meta)
    ]
    inner = get_args(kind) if get_origin(kind) in (Annotated, Union, UnionType) else ()
    return next(filter(None, [*own, *map(_description, inner)]), "")


def _plain(kind: Any) -> Any:
    """Return a type without annotations and without None."""
    if get_origin(kind) is Annotated:
        return _plain(get_args(kind)[0])
    others = [each for each in get_args(kind) if each is not type(None)]
    return _plain(others[0]) if len(others) < len(get_args(kind)) else kind


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True
