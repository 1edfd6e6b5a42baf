"""The model file: plain JSON that anyone can read, with or without this package.

It holds nothing but what the server learnt: no rows, no labels, no counts of a single site.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike

from fedcluster import kernels
from fedcluster.core import Column, Data, Floats, Labels, Limit, Rows, SiteInfo
from fedcluster.errors import InputError
from fedcluster.io._outputs import write_json
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing._transform import aligned, on_whole_rows

__all__ = ["Model"]

FORMAT = "fedcluster-model"
FORMAT_VERSION = 2
"""Of models with a preparation; those without one are version 1, which older programs read."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Clusters and the way they were found, as ``model.json`` holds them.

    The fields are the keys of the file, with ``format`` and ``format_version`` before them.

    Parameters
    ----------
    centers : ndarray of shape (k, d)
        Cluster centres, in the units of the prepared rows; cluster j is line j, from 0.
    weights : ndarray of shape (k,)
        The weight of the rows behind each centre, over all sites, as the server learnt it.
    columns : tuple of str
        The names of the columns; without a preparation, in the order of the centres' coordinates.
    algorithm : mapping
        Its name, its parameters, and in ``steps`` what the sites were asked, each with all its
        parameters.
    sites : tuple of SiteInfo
        The sites that were asked, with the limits that they put on what leaves them.
    rounds : int
        Rounds with the sites.
    inertia : float
        Sum of squared distances to the centres as the sites reported it, in squared units of
        the rows; nan, in the file null, if they did not.
    seed : int or None
        The seed of every random choice.
    dtype : str
        The type of the rows, "float32" or "float64".
    fedcluster_version : str
        The version that made the model.
    preprocessor : Preprocessor or None
        What is done to rows before their nearest centre is looked for. The file then also has the
        centres in the units of the columns, in ``centers_in_units``, for people to read.
    """

    centers: Floats
    weights: Floats
    columns: tuple[str, ...]
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    sites: tuple[SiteInfo, ...] = ()
    rounds: int = 0
    inertia: float = math.nan
    seed: int | None = None
    dtype: str = "float64"
    fedcluster_version: str = field(default_factory=lambda: version("fedcluster"))
    preprocessor: Preprocessor | None = None

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, columns: Sequence[str] | None = None, dtype: str = "float64"
    ) -> Self:
        """Return the model of a fitted estimator.

        Parameters
        ----------
        estimator : FederatedKMeans
            A fitted one.
        columns : sequence of str, optional
            The names of the columns; by default the estimator's, else x0, x1, ...
        dtype : str
            The type of the rows.
        """
        if columns is None:
            columns = getattr(estimator, "feature_names_in_", None)
        if columns is None:
            columns = [f"x{j}" for j in range(estimator.n_features_in_)]
        parameters = dict(estimator.get_params())
        seed = parameters.pop("random_state", None)
        return cls(
            centers=np.array(estimator.cluster_centers_, dtype=np.float64),
            weights=np.array(estimator.cluster_weights_, dtype=np.float64),
            columns=tuple(map(str, columns)),
            algorithm=plain_parameters(parameters.pop("algorithm"), parameters, estimator.steps_),
            sites=tuple(estimator.sites_),
            rounds=int(estimator.n_iter_),
            inertia=float(estimator.inertia_),
            seed=seed if isinstance(seed, int) else None,
            dtype=dtype,
            preprocessor=estimator.preprocessor_,
        )

    def predict(self, X: ArrayLike | Data) -> Labels:
        """Return the nearest centre of each row of ``X (n, d)``, its columns in the model's order.

        Rows are prepared first, as those of the fit were; -1 where that drops a row. Of `Data`
        that know their columns, these are found by name.

        Examples
        --------
        >>> model = Model(np.array([[0.0], [10.0]]), np.array([5.0, 3.0]), ("age",))
        >>> model.predict([[1.0], [9.0]])
        array([0, 1], dtype=int32)
        """
        return on_whole_rows(
            lambda rows: kernels.nearest(rows, self.centers)[0], self.prepared(X), -1
        )

    def prepared(self, X: ArrayLike | Data) -> Rows:
        """Return rows as they are clustered, one for each row given; NaN where a row is dropped."""
        data = X if isinstance(X, Data) else Data(np.asarray(X))
        rows = data.X
        if not data.columns and (rows.ndim != 2 or rows.shape[1] != len(self.columns)):
            raise ValueError(
                f"rows must have the shape (n, {len(self.columns)}) of the columns "
                f"{', '.join(self.columns)}, not {rows.shape}"
            )
        if self.preprocessor is None:
            return rows
        known = data if data.columns else replace(data, columns=tuple(map(Column, self.columns)))
        return aligned(self.preprocessor, known)

    @property
    def fuzzy(self) -> bool:
        """Return whether rows belong to clusters by degrees."""
        return self.algorithm.get("m") is not None

    def memberships(self, X: ArrayLike | Data) -> Floats | None:
        """Return the memberships of the rows, (n, k); None for a hard clustering."""
        if not self.fuzzy:
            return None
        m = float(self.algorithm["m"])
        return on_whole_rows(
            lambda rows: kernels.memberships(rows, self.centers, m), self.prepared(X), np.nan
        )

    def save(self, path: str | Path) -> None:
        """Write the model as JSON, whole or not at all."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "format_version": 1 if self.preprocessor is None else FORMAT_VERSION,
            "fedcluster_version": self.fedcluster_version,
            "columns": list(self.columns),
            "centers": self.centers.tolist(),
            "weights": self.weights.tolist(),
            "inertia": None if math.isnan(self.inertia) else self.inertia,
            "rounds": self.rounds,
            "seed": self.seed,
            "dtype": self.dtype,
            "algorithm": dict(self.algorithm),
            "sites": [
                {"name": site.name, "limits": [limit.plain() for limit in site.limits]}
                for site in self.sites
            ],
        }
        if self.preprocessor is not None:
            content["preprocessing"] = self.preprocessor.plain()
            content["centers_in_units"] = self.centers_in_units
        write_json(Path(path), content)

    @property
    def centers_in_units(self) -> dict[str, list[float]]:
        """Return the centres' coordinates by column, (k,) each, in its units; of text, by level."""
        if self.preprocessor is None:
            return dict(zip(self.columns, self.centers.T.tolist(), strict=True))
        values = self.preprocessor.invert(self.centers)
        return dict(zip(self.preprocessor.names, values.T.tolist(), strict=True))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model.

        Raises
        ------
        InputError
            With one line, if it is not there, not a model, damaged or of a newer version.
        """
        return cls(**_checked(_read(Path(path)), Path(path)))


def plain_parameters(
    algorithm: Any, parameters: Mapping[str, Any], steps: Iterable[str]
) -> dict[str, Any]:
    """Return the name of an algorithm, its parameters and what was asked, as JSON can hold them."""
    plain = {name: _plain(value) for name, value in parameters.items()}
    return {"name": _plain(algorithm), **plain, "steps": list(steps)}


def _plain(value: Any) -> Any:
    """Return a parameter as JSON can hold it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | range):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        fields = {name: _plain(each) for name, each in asdict(value).items()}
        return {"name": type(value).__name__, **fields}
    return getattr(value, "__qualname__", None) or repr(value)


def _read(path: Path) -> dict[str, Any]:
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


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}")


def _checked(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the fields of a model, each of the right type and shape."""
    _check(content, path, {"format_version": _WHOLE, "columns": _NAMES, "centers": _CENTERS})
    preprocessor = _preprocessor(content, path)
    d = len(content["columns"] if preprocessor is None else preprocessor.names_out)
    k = len(content["centers"])
    line, numbers = _is_list_of(_is_number, d), _is_list_of(_is_number, k)
    shapes = {
        "centers": (_is_list_of(line), f"a list of centres with {d} numbers each"),
        "weights": (numbers, f"a list of {k} numbers"),
    }
    _check(content, path, {**shapes, **_SCALARS})
    inertia = content["inertia"]
    plain = ("algorithm", "rounds", "seed", "dtype", "fedcluster_version")
    return {
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
    }


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
}
