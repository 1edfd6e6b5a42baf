"""Content of a model file, checked: keys, types and shapes, and who may assign rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedcluster._choices import ASSIGNING, assigning, imported
from fedcluster._cluster_names import checked_names
from fedcluster._ranges import allowed_of
from fedcluster.core import Assigns, Floats, Limit, SiteInfo
from fedcluster.errors import InputError
from fedcluster.io._outputs import write_json
from fedcluster.preprocessing import Preprocessor

FORMAT = "fedcluster-model"
FORMAT_VERSION = 3
"""Of models whose algorithm assigns rows itself. Others are version 2, of rows that are prepared,
or 1, which older programs read."""


PRIVACY = {"epsilon", "delta", "group_size", "rho", "answers", "budget"}
"""What a model tells of a privacy budget."""


def read(path: Path) -> dict[str, Any]:
    """Return the content of a model file of a known version; of a folder, its model.json."""
    if path.is_dir():
        path /= "model.json"
    try:
        content = json.loads(path.read_text("utf-8"), parse_constant=_no_constant)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; fedcluster fit writes a model.json") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor JSON, or NaN in it
        raise InputError(
            f"{path} is damaged or no model: {error}; give the model.json of a fit, or fit again"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is not a model of fedcluster; give the model.json of a fit")
    made_by = content.get("format_version")
    if isinstance(made_by, int) and made_by > FORMAT_VERSION:
        raise InputError(
            f"{path} was made by a newer fedcluster ({content.get('fedcluster_version')}, format "
            f"{made_by}, this one reads {FORMAT_VERSION}); upgrade fedcluster"
        )
    return content


def write_names(path: Path, names: Mapping[int, str]) -> tuple[str, ...]:
    """Write names of clusters, by their numbers, into a model file; returns those of all.

    Raises
    ------
    InputError
        If it is not there or no model, has no such cluster, or a name cannot be one.
    """
    content = read(path)
    k = len(content["weights"]) if isinstance(content.get("weights"), list) else 0
    if strange := [j for j in names if j >= k]:
        raise InputError(f"{path} has the clusters 0 to {k - 1}, and no cluster {strange[0]}")
    kept = content.get("names") or [str(j) for j in range(k)]
    every = checked_names([names.get(j, kept[j]) for j in range(k)], k)
    write_json(path / "model.json" if path.is_dir() else path, {**content, "names": list(every)})
    return every


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}")


def checked(
    content: Mapping[str, Any], path: Path, algorithms: Iterable[str | type]
) -> dict[str, Any]:
    """Return the fields of a model, each of the right type and shape."""
    content = {"memory": {}, "assigned_by": None, "names": [], "privacy": {}, **content}
    first = _values(content, path, _FIRST)
    d = len(
        first["columns"] if first["preprocessing"] is None else first["preprocessing"].names_out
    )
    values = _values(content, path, {**_shapes(content, d), **_FIELDS})
    algorithm = _algorithm(values["assigned_by"], path, algorithms)
    k = len(values["weights"])
    if algorithm is not None:
        try:
            allowed_of(algorithm).check_kept(algorithm, values["memory"], {"k": k, "d": d})
        except ValueError as error:
            raise InputError(f"{path} is damaged: {error}; fit again") from error
    try:
        names = checked_names(values["names"], k) if values["names"] else ()
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}; name the clusters anew") from error
    return {
        **values,
        "columns": first["columns"],
        "preprocessor": first["preprocessing"],
        "assigned_by": algorithm,
        "names": names,
    }


Reader = Callable[[Any], Any]
"""Returns the value of a field from that of a file, or raises an error of `UNREADABLE`."""
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)


def _values(
    content: Mapping[str, Any], path: Path, readers: Mapping[str, tuple[Reader, str]]
) -> dict[str, Any]:
    """Return the values of these keys, each as its reader returns it.

    Raises
    ------
    InputError
        If a key is lacking, or its value is not what the reader expects.
    """
    values = {}
    for key, (reader, what) in readers.items():
        if key not in content and key != "preprocessing":
            raise InputError(f"{path} is damaged: {key!r} is missing; fit again")
        try:
            values[key] = reader(content.get(key))
        except UNREADABLE as error:
            fault = f"{what} ({error})" if key == "preprocessing" else what
            raise InputError(f"{path} is damaged: {key!r} is not {fault}; fit again") from error
    return values


def _shapes(content: Mapping[str, Any], d: int) -> dict[str, tuple[Reader, str]]:
    """Return the readers of centres and weights; without centres, the algorithm assigns."""
    k = len(content["centers"])
    assigns = not k and content["assigned_by"] is not None
    centers = _list_of(_list_of(_number, d), 0 if assigns else None)
    weights = _list_of(_number, None if assigns else k)
    return {
        "centers": (
            lambda value: _floats(centers(value)),
            f"a list of centres with {d} numbers each",
        ),
        "weights": (lambda value: _floats(weights(value)), f"a list of {k} numbers"),
    }


def _floats(values: Any) -> Floats:
    return np.array(values, dtype=np.float64)


def _array(value: Any) -> Floats:
    """Return nested lists of numbers as an array."""
    array = np.array(value)
    if array.dtype.kind not in "if" or not np.isfinite(array).all():
        raise ValueError("not an array of numbers")
    return array.astype(np.float64)


def named(algorithm: Any) -> dict[str, Any]:
    """Return the name of an algorithm, dotted if it is none of the package, and its parameters."""
    kind = type(algorithm)
    own = not kind.__module__.startswith("fedcluster.")
    name = _dotted(kind) if own else kind.__name__
    given = {each.name: getattr(algorithm, each.name) for each in fields(algorithm)}
    return {"name": name, "parameters": given}


def _dotted(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _algorithm(
    content: Mapping[str, Any] | None, path: Path, algorithms: Iterable[str | type]
) -> Any:
    """Return the algorithm that a model file names: one of the package, or one that is allowed.

    Raises
    ------
    InputError
        If it is neither, or cannot be made.
    """
    if content is None:
        return None
    name = content["name"]
    try:
        by_name = {each if isinstance(each, str) else _dotted(each): each for each in algorithms}
        kind = assigning(name) if name in ASSIGNING else by_name[name]
        algorithm = (imported(kind) if isinstance(kind, str) else kind)(**content["parameters"])
    except KeyError as error:
        raise InputError(
            f"{path}: rows are assigned by {name}, which is no algorithm of fedcluster; allow it "
            f'by --algorithm {name}, in Python by Model.load(path, ["{name}"]), if you trust it'
        ) from error
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise InputError(f"{path}: algorithm {name!r} cannot be made: {error}") from error
    if not isinstance(algorithm, Assigns):
        raise InputError(f"{path}: algorithm {name!r} has no assign(state, X); fit again")
    return algorithm


def _if(fits: Callable[[Any], object]) -> Reader:
    """Return a reader that returns a value as it is, if it fits."""

    def reader(value: Any) -> Any:
        if not fits(value):
            raise ValueError(value)
        return value

    return reader


def _list_of(reader: Reader, n: int | None = None) -> Reader:
    """Return a reader of a list, of n parts or of at least one, as a tuple of what is in it."""
    some = _if(lambda v: isinstance(v, list) and (len(v) == n if n is not None else bool(v)))
    return lambda value: tuple(map(reader, some(value)))


_number = _if(lambda v: isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v))
_count = _if(lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0)
_text = _if(lambda v: isinstance(v, str))
_list = _if(lambda v: isinstance(v, list))
_object = _if(lambda v: isinstance(v, dict))


def _site(value: Any) -> SiteInfo:
    return SiteInfo(_text(value["name"]), tuple(map(Limit.from_plain, _list(value["limits"]))))


def _privacy(value: Any) -> Any:
    if set(_object(value)) not in (set(), PRIVACY):
        raise ValueError(value)
    return {name: _number(each) for name, each in value.items()}


def _named(value: Any) -> Any:
    if value is not None:
        _text(value["name"]), _object(value["parameters"])
    return value


_FIRST: Mapping[str, tuple[Reader, str]] = {
    "format_version": (_count, "a whole number"),
    "columns": (_list_of(_text), "a list of names"),
    "centers": (_list, "a list of centres"),
    "preprocessing": (lambda v: None if v is None else Preprocessor.from_plain(v), "one"),
}
"""What the shapes of the others follow from."""
_FIELDS: Mapping[str, tuple[Reader, str]] = {
    "inertia": (lambda v: math.nan if v is None else float(_number(v)), "a number"),
    "algorithm": (_object, "an object"),
    "sites": (lambda v: tuple(map(_site, _list(v))), "a list of names with limits"),
    "rounds": (_count, "a whole number"),
    "seed": (lambda v: v if v is None else _count(v), "a whole number"),
    "dtype": (_if(lambda v: v in ("float32", "float64")), "float32 or float64"),
    "fedcluster_version": (_text, "a text"),
    "last_round": (_count, "a whole number"),
    "converged": (_if(lambda v: isinstance(v, bool)), "true or false"),
    "names": (lambda v: tuple(map(_text, _list(v))), "a list of names"),
    "privacy": (_privacy, "an object of numbers"),
    "memory": (
        lambda v: {name: _array(each) for name, each in _object(v).items()},
        "an object of arrays of numbers",
    ),
    "assigned_by": (_named, "a name with parameters"),
}
