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
    _check(content, path, {"format_version": _WHOLE, "columns": _NAMES, "centers": _CENTERS})
    preprocessor = _preprocessor(content, path)
    d = len(content["columns"] if preprocessor is None else preprocessor.names_out)
    _check(content, path, {**_shapes(content, d), **_SCALARS})
    inertia = content["inertia"]
    plain = ("algorithm", "rounds", "seed", "dtype", "fedcluster_version", "last_round")
    found = {
        **{key: content[key] for key in plain},
        "centers": np.array(content["centers"], dtype=np.float64),
        "weights": np.array(content["weights"], dtype=np.float64),
        "columns": tuple(content["columns"]),
        "sites": tuple(
            SiteInfo(site["name"], tuple(map(Limit.from_plain, site["limits"])))
            for site in content["sites"]
        ),
        "inertia": math.nan if inertia is None else float(inertia),
        "preprocessor": preprocessor,
        "converged": content["converged"],
        "privacy": content["privacy"],
        "memory": {name: _array(each) for name, each in content["memory"].items()},
        "assigned_by": _algorithm(content["assigned_by"], path, algorithms),
    }
    _check_assigned(found, path, d)
    k = len(found["weights"])
    try:
        found["names"] = checked_names(content["names"], k) if content["names"] else ()
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}; name the clusters anew") from error
    return found


def _shapes(content: Mapping[str, Any], d: int) -> dict[str, _Expected]:
    """Return what is expected of centres and weights; without centres, the algorithm assigns."""
    line, k = _is_list_of(_is_number, d), len(content["centers"])
    centers, weights = _is_list_of(line), _is_list_of(_is_number, k)
    if not k and content["assigned_by"] is not None:
        centers, weights = _is_list_of(line, 0), _is_list_of(_is_number)
    return {
        "centers": (centers, f"a list of centres with {d} numbers each"),
        "weights": (weights, f"a list of {k} numbers"),
    }


def _array(value: Any) -> Floats:
    """Return nested lists of numbers as an array.

    Raises
    ------
    ValueError
        If they are something else.
    """
    given = np.array(value)
    if given.dtype.kind not in "if" or not np.isfinite(given).all():
        raise ValueError("not an array of numbers")
    return given.astype(np.float64)


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


def _check_assigned(found: Mapping[str, Any], path: Path, d: int) -> None:
    """Refuse parameters and memory outside of what the algorithm that assigns rows declares."""
    algorithm = found["assigned_by"]
    if algorithm is not None:
        k = len(found["weights"])
        try:
            allowed_of(algorithm).check_kept(algorithm, found["memory"], {"k": k, "d": d})
        except ValueError as error:
            raise InputError(f"{path} is damaged: {error}; fit again") from error


def _check(content: Mapping[str, Any], path: Path, expected: Mapping[str, _Expected]) -> None:
    """Refuse content that lacks a key, or whose value is not what is expected of it."""
    for key, (fits, what) in expected.items():
        if key not in content or not fits(content[key]):
            fault = "is missing" if key not in content else f"is not {what}"
            raise InputError(f"{path} is damaged: {key!r} {fault}; fit again")


def _preprocessor(content: Mapping[str, Any], path: Path) -> Preprocessor | None:
    """Return the preprocessor in a model file, if there is one."""
    if content.get("preprocessing") is None:
        return None
    try:
        return Preprocessor.from_plain(content["preprocessing"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged: 'preprocessing' is not one ({error}); fit again"
        ) from error


def _is_list_of(fits: Callable[[Any], bool], n: int | None = None) -> Callable[[Any], bool]:
    """Return a check that a value is a list, of n parts or of at least one, that all fit."""
    return lambda value: (
        isinstance(value, list)
        and (len(value) == n if n is not None else bool(value))
        and all(map(fits, value))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


def _is_memory(value: Any) -> bool:
    try:
        return isinstance(value, dict) and all(_array(each) is not None for each in value.values())
    except (ValueError, TypeError):
        return False


def _is_privacy(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) not in (set(), PRIVACY):
        return False
    return all(map(_is_number, value.values()))


def _is_named(value: Any) -> bool:
    scalars = isinstance(value, dict) and isinstance(value.get("parameters"), dict)
    return scalars and _is_name(value.get("name"))


def _is_sites(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(site, dict)
        and _is_name(site.get("name"))
        and isinstance(site.get("limits"), list)
        and all(map(_is_limit, site["limits"]))
        for site in value
    )


def _is_limit(value: Any) -> bool:
    try:
        Limit.from_plain(value)
    except ValueError:
        return False
    return True


_Expected = tuple[Callable[[Any], bool], str]
_WHOLE: _Expected = (_is_count, "a whole number")
_NAMES: _Expected = (_is_list_of(_is_name), "a list of names")
_CENTERS: _Expected = (lambda value: isinstance(value, list), "a list of centres")
_SCALARS: Mapping[str, _Expected] = {
    "inertia": (lambda x: x is None or _is_number(x), "a number"),
    "algorithm": (lambda value: isinstance(value, dict), "an object"),
    "sites": (_is_sites, "a list of names with limits"),
    "rounds": _WHOLE,
    "seed": (lambda seed: seed is None or _is_count(seed), "a whole number"),
    "dtype": (lambda name: name in ("float32", "float64"), "float32 or float64"),
    "fedcluster_version": (_is_name, "a text"),
    "last_round": _WHOLE,
    "converged": (lambda value: isinstance(value, bool), "true or false"),
    "names": (lambda value: value == [] or _is_list_of(_is_name)(value), "a list of names"),
    "privacy": (_is_privacy, "an object of numbers"),
    "memory": (_is_memory, "an object of arrays of numbers"),
    "assigned_by": (lambda value: value is None or _is_named(value), "a name with parameters"),
}
