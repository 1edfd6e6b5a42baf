"""The study file: the sites of a study, their columns, and what is to be done with them.

[sites]
north = "north.csv"
west = { path = "west.csv", decimal = ",", factors = { sbp = "1.8x+32" } }

[codes.sex]
female = "F"

[fit]
n_clusters = 3

A key has the same name as in a site file, or as the parameter of the job. ``--set KEY=VALUE`` says
any of them on the command line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, make_dataclass
from functools import cache
from os.path import relpath
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from msgspec import Meta

from fedcluster.errors import InputError
from fedcluster.frames.columns import put
from fedcluster.frames.rows import error_prefix
from fedcluster.options.choices import INITS
from fedcluster.recipes.specifications import Fit, RunOptions, SelectK, declared
from fedcluster.texts import dotted, in_toml
from fedcluster_app.cli._options import KINDS, Scaling
from fedcluster_app.records import (
    NAMES,
    Codes,
    Factor,
    FileKeys,
    MissingValues,
    Names,
    Table,
    Text,
    load_record,
    record,
)
from fedcluster_app.tables.remote import SCHEMES, shown

Choice = Annotated[Names, Meta(description='a list of names, as in ["auto", "ward"]')]
Bounds = Annotated[
    dict[str, tuple[float, float]], Meta(description="two numbers for each column: age = [0, 120]")
]
Pairs = Annotated[
    list[tuple[float, float]], Meta(description="pairs of numbers, as in [[0, 120], [10, 60]]")
]
K = Annotated[int | str | list[int], Meta(description='a number, "auto" or "2-20"')]

OWN_KINDS: Mapping[str, Any] = {
    "n_clusters": K,
    "init": str,
    "categories": Choice,
    "log": Names,
    "weights": dict[str, float],
    "prepare.bounds": Bounds,
    "select_k.bounds": Pairs,
}
"""Types of keys that differ from those of the parameters of jobs."""


FIT_FILES = {"previous", "init"}
"""Keys of fits that may be files."""
LISTS = {"columns", "exclude", "missing_values", "plugins", "log", "categories", "metrics"}
"""Keys of which ``--set`` may say more several times."""
ONE = ("categories", "metrics")
"""Keys of tables whose list may be one name."""


@dataclass(frozen=True, kw_only=True)
class StudySite(FileKeys):
    """A site of a study: its file or address, how it is read, and what is recoded there."""

    path: Text | None = None
    query: Text | None = None
    version: Text | None = None
    password_file: Text | None = None
    rename: dict[str, Text] = field(default_factory=dict)
    factors: dict[str, Factor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Study:
    """The content of a study file; what is no table is as in a site file."""

    sites: Table = field(default_factory=dict)
    source: Table = field(default_factory=dict)
    columns: Names | None = None
    exclude: Annotated[tuple[str, ...], Meta(description=NAMES)] | None = None
    lenient: bool = False
    site_column: Text | None = None
    weight_column: Text | None = None
    group_column: Text | None = None
    label_column: Text | None = None
    id_column: Text | None = None
    codes: dict[str, Codes] = field(default_factory=dict)
    rename: dict[str, Text] = field(default_factory=dict)
    missing_values: MissingValues = field(default_factory=list)
    dates: dict[str, Text] = field(default_factory=dict)
    protection: Literal["groups", "limits"] | None = None
    plugins: Names | None = None
    engine: Text | None = None
    out: Text | None = None
    append: bool = False
    report: bool = True
    limits: Table = field(default_factory=dict)
    prepare: Table = field(default_factory=dict)
    fit: Table = field(default_factory=dict)
    select_k: Table = field(default_factory=dict)
    evaluate: Table = field(default_factory=dict)
    run: Table = field(default_factory=dict)


def kind_of(declared: Field[Any], section: str) -> Any:
    """Return the type of a key, from the declaration of a parameter."""
    own = OWN_KINDS.get(f"{section}.{declared.name}", OWN_KINDS.get(declared.name))
    if own is not None:
        return own
    if "choices" in declared.metadata:
        return Literal[tuple(declared.metadata["choices"])]
    named = [KINDS[name] for name in str(declared.type).split(" | ") if name in KINDS]
    return Union[tuple(str if kind is Path else kind for kind in named)]  # noqa: UP007


@cache
def sections() -> dict[str, type[Any]]:
    """Return the record of each table of the file that has keys of its own."""
    kinds = {"fit": (Fit,), "select_k": (SelectK,), "prepare": (Scaling,)}
    every = {
        name: [(each.name, kind_of(each, name)) for kind in those for each in declared(kind)]
        for name, those in {**kinds, "run": (RunOptions,)}.items()
    }
    every["fit"].append(("fuzzy", bool))
    every["select_k"].append(("bounds", Pairs))
    every["evaluate"] = [("metrics", Names)]
    every["limits"] = [("min_cluster_size", int)]
    made = {
        name: make_dataclass(name, [(key, kind | None, None) for key, kind in keys])
        for name, keys in every.items()
    }
    return {**made, "source": FileKeys}


Path_ = tuple[str, ...]
"""The parts of a dotted key."""


def study_in(files: Sequence[str]) -> tuple[Table, list[str]]:
    """Return the content of the study file among files, which comes first, and the other files.

    Raises
    ------
    InputError
        If a key of it is unknown, or its value wrong.
    """
    if not files or not files[0].lower().endswith(".toml"):
        return {}, list(files)
    path = Path(files[0])
    content = load_record(path, dict[str, Any])
    source = content.get("source")
    if "name" in content or (isinstance(source, dict) and source.keys() & {"path", "url"}):
        return {}, list(files)  # site files are data files, not a study
    with error_prefix(str(path)):
        content = checked(content)
        sites = content.get("sites", {})
        if not (sites or files[1:]):
            raise InputError('write the files of the sites there: [sites] and north = "north.csv"')
    for table in sites.values():
        for key in ("path", "password_file"):
            if key in table and "://" not in table[key]:
                table[key] = _within(path.parent, table[key])
    fit = content.get("fit", {})
    for key in FIT_FILES & fit.keys():
        if fit[key] not in INITS:
            fit[key] = _within(path.parent, fit[key])
    if others := list(files[1:]):
        from fedcluster_app.cli._reading import name_and_path

        there = {name_and_path(file)[0] for file in others}
        content["sites"] = {site: table for site, table in sites.items() if site in there}
    return content, others


def _within(folder: Path, path: str) -> str:
    """Return a path that starts at a folder, with a / at the end if it has one."""
    end = "/" if path.endswith("/") else ""
    return str(folder / Path(path).expanduser()) + end


def settings_in(settings: Sequence[str]) -> Table:
    """Return what ``--set KEY=VALUE`` says, several times.

    Raises
    ------
    InputError
        If one is no key and value, a key is unknown, or two values of a key differ.

    Examples
    --------
    >>> settings_in(["fit.tol=.01", "codes.sex.female=F", "dates=age"])
    {'fit': {'tol': 0.01}, 'codes': {'sex': {'female': 'F'}}, 'dates': {'': 'age'}}
    """
    said: dict[Path_, Any] = {}
    for each in settings:
        with error_prefix(f"--set {each}"):
            parts, value = _setting(each)
            content: Any = value
            for part in reversed(parts):
                content = {part: content}
            for key, leaf in leaves(checked(content)):
                if key[-1] in LISTS:
                    said[key] = list(dict.fromkeys([*said.get(key, ()), *leaf]))
                else:
                    put(said, key, leaf, "--set", dotted(*key))
    return nested(said)


PART = r"""[\w-]+|"(?:[^"\\]|\\.)*"|'[^']*'"""
SETTING = re.compile(rf"\s*((?:{PART})(?:\.(?:{PART}))*)\s*=(.*)", re.DOTALL)


def _setting(text: str) -> tuple[list[str], Any]:
    """Return the parts of a key, and its value: TOML, or text if it is not."""
    found = SETTING.fullmatch(text)
    if found is None or not found[2].strip():
        raise InputError("it must be KEY=VALUE, as in fit.seed=1")
    parts = [_in_toml(part) if part[0] in "\"'" else part for part in re.findall(PART, found[1])]
    return parts, _in_toml(found[2].strip())


def _in_toml(text: str) -> Any:
    """Return a value that is written in TOML, or as .05, or else the text."""
    number = re.sub(r"^([+-]?)\.(?=\d)", r"\g<1>0.", text)  # .05, which is no TOML
    try:
        content = tomllib.loads(f"value = {number}")
    except tomllib.TOMLDecodeError:
        return text
    return content["value"] if len(content) == 1 else text


def checked(content: Table) -> Table:
    """Return the content of a study file with values of the declared types.

    Raises
    ------
    InputError
        If a key is unknown, or a value of another type.
    """
    content = dict(content)
    if isinstance(dates := content.get("dates"), str):
        content["dates"] = {"": dates}
    found = asdict(record(content, Study))
    given = {key: found[key] for key in content}
    for name, kind in sections().items():
        if name in given:
            given[name] = _table(f"[{name}], ", given[name], kind)
    if "sites" in given:
        named = {
            site: {"path": each} if isinstance(each, str) else each
            for site, each in given["sites"].items()
        }
        given["sites"] = {
            site: _table(f"[sites.{site}], ", each, StudySite) for site, each in named.items()
        }
        if odd := [site for site in named if "=" in site or "/" in site or not site.strip()]:
            raise InputError(f"[sites]: {odd[0]!r} names no site; leave = and / out")
    return given


def _table(place: str, content: Any, kind: type[Any]) -> Table:
    """Return the given keys of a table with values of the declared types."""
    if not isinstance(content, Mapping):
        raise InputError(f"{place}it must be a table of keys, not {content!r}")
    one = {key: [content[key]] for key in ONE if isinstance(content.get(key), str)}
    try:
        found = asdict(record({**content, **one}, kind))
    except InputError as error:
        raise InputError(f"{place}{error}") from error
    return {key: found[key] for key in content}


def leaves(content: Any, at: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Yield each key of a nested table with its value."""
    if not isinstance(content, dict):
        yield at, content
        return
    for key, value in content.items():
        yield from leaves(value, (*at, key))


def nested(values: Mapping[Path_, Any]) -> Table:
    """Return a nested table of values by their keys."""
    content: Table = {}
    for key, value in values.items():
        *tables, last = key
        table = content
        for part in tables:
            table = table.setdefault(part, {})
        table[last] = value
    return content


def arguments_of(sites: Mapping[str, Table], *, named: bool) -> list[str]:
    """Return the files of sites as a command takes them, with their names unless Dask reads."""
    paths = {site: table["path"] for site, table in sites.items() if "path" in table}
    is_file = {site: path.lower().endswith(".toml") for site, path in paths.items()}
    return [
        path if is_file[site] or not named else f"{site}={path}" for site, path in paths.items()
    ]


def as_written(
    said: Mapping[str, Any], files: Sequence[str], dates: Mapping[str, str], out: Path
) -> str:
    """Return the study file of what a fit did, from which it can be repeated.

    Parameters
    ----------
    said : mapping
        What the study file and the command line said.
    files : sequence of str
        The files of the sites.
    dates : mapping of str to str
        How dates became numbers, with the day up to which ages count.
    out : Path
        The folder of the study file, from which its paths start.
    """
    from fedcluster_app.cli._reading import name_and_path

    content = {name: value for name, value in said.items() if name != "out"}
    if dates:
        content["dates"] = dict(dates)
    if files_of := FIT_FILES & (fit := dict(said.get("fit", {}))).keys():
        own = {key: _from(out, str(fit[key])) for key in files_of if fit[key] not in INITS}
        content["fit"] = {**fit, **own}
    sites: dict[str, Any] = {}
    for file in files:
        site, path = name_and_path(file)
        if file.lower().endswith(".toml"):
            site = str(load_record(Path(file), dict[str, Any])["name"])
        own = {**said.get("sites", {}).get(site, {}), "path": path}
        sites[site] = {
            key: _from(out, str(value)) if key in ("path", "password_file") else value
            for key, value in own.items()
        }
    others = {site: own for site, own in said.get("sites", {}).items() if "path" not in own}
    content["sites"] = {
        site: own["path"] if len(own) == 1 and "path" in own else own
        for site, own in (others | sites).items()
    }
    plain = [f"{key} = {in_toml(v)}" for key, v in content.items() if not isinstance(v, dict)]
    tables = [
        "\n".join([f"[{key}]", *(f"{dotted(each)} = {in_toml(v)}" for each, v in table.items())])
        for key, table in content.items()
        if isinstance(table, dict) and table
    ]
    return "\n\n".join([REPEATED, *(["\n".join(plain)] if plain else []), *tables]) + "\n"


REPEATED = """# What this fit was told: fedcluster fit study.toml does it again.
# What may be secret in an address, before @ or after ?, is left out."""


def _from(folder: Path, path: str) -> str:
    """Return a path relative to a folder, and an address without what may be secret."""
    if "://" in path:
        is_web = path.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))
        return shown(path) if is_web else path
    end = "/" if path.endswith("/") else ""
    try:
        return relpath(Path(path).expanduser(), folder).replace("\\", "/") + end
    except ValueError:  # a path on another drive has no relative form
        return str(Path(path).absolute()) + end
