"""The model file: plain JSON that anyone can read, checked on reading.

It can be read with or without this package.

It holds nothing but what the server learnt: no rows, no labels, no counts of a single site.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster import __version__, kernels, metrics, preprocessing
from fedcluster.core import Algorithm, Assigns, Data, Floats, Labels, Limit, Rows, SiteInfo, State
from fedcluster.core.files import write_json
from fedcluster.core.ranges import allowed_of
from fedcluster.errors import InputError, PolicyError, UnlikeRowsWarning, check_keys, reason
from fedcluster.frames.columns import columns_of
from fedcluster.lazy import LazyModule
from fedcluster.model.assignment import Assignment, RowForm
from fedcluster.options.choices import OWN_STEPS, STEPS, imported, written
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing.transform import by_columns, on_whole_rows
from fedcluster.texts import for_python

if TYPE_CHECKING:
    from fedcluster.model import simulation
else:
    simulation = LazyModule("fedcluster.model.simulation")

FORMAT = "fedcluster-model"
FORMAT_VERSION = 4
"""Version of models with clusters that are gone; 3 if the algorithm assigns rows itself. Others are
version 2, if rows are prepared, or 1, which older programs can read."""


def read(path: Path) -> dict[str, Any]:
    """Return the content of a model file of a known version; for a folder, of its model.json."""
    if path.is_dir():
        path /= "model.json"
    try:
        content = json.loads(path.read_text("utf-8"), parse_constant=_no_constant)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; fedcluster fit writes a model.json") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or with NaN
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


def digest_of(content: Mapping[str, Any]) -> str:
    """Return a hash that tells the clusters of a model file from others, whatever their names."""
    identity = {key: content.get(key) for key in ("columns", "centers", "weights", "memory")}
    return sha256(json.dumps(identity).encode()).hexdigest()


def write_names(path: Path, names: Mapping[int, str]) -> tuple[str, ...]:
    """Write names of clusters, by number, into a model file; return the names of all.

    A cluster without one keeps its number as its name.

    Raises
    ------
    InputError
        If the file is missing or not a model, a cluster does not exist, or a name is not valid.
    """
    content = read(path)
    k = len(content["weights"]) if isinstance(content.get("weights"), list) else 0
    if strange := [j for j in names if j >= k]:
        raise InputError(f"{path} has the clusters 0 to {k - 1}, and no cluster {strange[0]}")
    every = checked_names([names.get(j, str(j)) for j in range(k)], k)
    write_json(path / "model.json" if path.is_dir() else path, {**content, "names": list(every)})
    return every


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}")


TYPES: Mapping[str, tuple[type, ...]] = {
    "a text": (str,),
    "true or false": (bool,),
    "a table": (dict,),
    "a whole number": (int,),
    "a whole number of at least 0": (int,),
    "a number": (int, float),
}
"""The types of values, by the words of messages."""

COUNT, NUMBER, TABLE = "a whole number of at least 0", "a number", "a table"
SITE = {"name": "a text", "limits": [TABLE]}
ASSIGNED_BY = {"name": "a text", "parameters": TABLE}
PRIVACY = {"epsilon": NUMBER, "delta": NUMBER, "group_size": COUNT, "rho": NUMBER}
PRIVACY |= {"answers": COUNT, "budget": NUMBER}

CONTENT: Mapping[str, Any] = {
    "format": "a text",
    "format_version": "a whole number",
    "fedcluster_version": "a text",
    "columns": ["a text"],
    "centers": [[NUMBER]],
    "weights": [NUMBER],
    "inertia": NUMBER,
    "rounds": COUNT,
    "seed": COUNT,
    "dtype": "a text",
    "last_round": COUNT,
    "converged": "true or false",
    "algorithm": TABLE,
    "sites": [SITE],
    "names": ["a text"],
    "privacy": PRIVACY,
    "memory": TABLE,
    "assigned_by": ASSIGNED_BY,
    "preprocessing": TABLE,
    "centers_in_units": TABLE,
}
"""What a model file holds, by key; `_check_shapes` compares the shapes."""

DEFAULTS: dict[str, Any] = {"names": [], "privacy": None, "memory": {}, "assigned_by": None}
DEFAULTS |= {"preprocessing": None, "centers_in_units": {}}
"""Values of keys that a file may lack."""

MAY_BE_NULL = {"inertia", "seed", "privacy", "assigned_by", "preprocessing"}


def _check(where: str, value: Any, kind: Any) -> None:
    """Raise an error for a value that is not of its kind: words of `TYPES`, [kind], or a table."""
    if isinstance(kind, Mapping):
        _check(where, value, TABLE)
        check_keys(value, kind)
        for key, inner in kind.items():
            if key not in value:
                raise InputError(f"{where and f'{where}: '}{key!r} is missing")
            if not (value[key] is None and not where and key in MAY_BE_NULL):
                _check(f"{where and f'{where}.'}{key}", value[key], inner)
    elif isinstance(kind, list):
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        [inner] = kind
        for i, each in enumerate(value):
            if not isinstance(inner, str) or _fault(each, inner):
                _check(f"{where}[{i}]", each, inner)
    elif fault := _fault(value, kind):
        raise _wrong(where, fault, value)


def _fault(value: Any, kind: str) -> str:
    """Return what a value must be, by the words of `TYPES`; "" if it is that."""
    if type(value) not in TYPES[kind] or (kind == COUNT and value < 0):
        return kind
    is_huge = kind == NUMBER and not abs(value) <= sys.float_info.max
    return "a finite number" if is_huge else ""


def _wrong(where: str, what: str, value: Any) -> InputError:
    whole = repr(value)
    shown = whole if len(whole) <= 60 else f"{whole[:60]}..."
    return InputError(f"{where or 'its content'} must be {what}, not {shown}")


def checked(
    content: Mapping[str, Any], path: Path, algorithms: Iterable[str | type]
) -> dict[str, Any]:
    """Return the fields of a model, after checking their types and shapes.

    Raises
    ------
    InputError
        If a key is missing or unknown, or its value has the wrong type or shape.
    """
    try:
        held = SimpleNamespace(**_whole(content))
        preprocessor = _preprocessor(held.preprocessing)
        d = len(held.columns if preprocessor is None else preprocessor.names_out)
        _check_shapes(held, d)
        memory = {name: _array(name, each) for name, each in held.memory.items()}
        if "gone" in memory and memory["gone"].shape != (len(held.centers),):
            raise ValueError("memory.gone must be a number for each cluster")
        sites = tuple(
            SiteInfo(site["name"], tuple(map(Limit.from_plain, site["limits"])))
            for site in held.sites
        )
    except PolicyError as error:  # the preparation is unknown to this version
        raise InputError(f"{path}: {error.args[0]}") from error
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}; fit again") from error
    algorithm, k = _algorithm(held.assigned_by, path, algorithms), len(held.weights)
    if algorithm is not None:
        try:
            allowed_of(algorithm).check_kept(algorithm, memory, {"k": k, "d": d})
        except ValueError as error:
            raise InputError(f"{path} is damaged: {error}; fit again") from error
    try:
        names = checked_names(held.names, k) if held.names else ()
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}; name the clusters anew") from error
    return {
        **{name: getattr(held, name) for name in AS_HELD},
        "centers": np.array(held.centers, dtype=np.float64),
        "weights": np.array(held.weights, dtype=np.float64),
        "columns": tuple(held.columns),
        "inertia": math.nan if held.inertia is None else held.inertia,
        "sites": sites,
        "memory": memory,
        "privacy": held.privacy or {},
        "preprocessor": preprocessor,
        "assigned_by": algorithm,
        "names": names,
    }


AS_HELD = (
    "algorithm",
    "rounds",
    "seed",
    "dtype",
    "fedcluster_version",
    "last_round",
    "converged",
)
"""Keys of a file that are fields of a model without conversion."""


def _whole(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a file with all its keys, after checking the types of their values."""
    whole = {**DEFAULTS, **content}
    _check("", whole, CONTENT)
    if not whole["columns"]:
        raise _wrong("columns", "a list of at least 1", [])
    if whole["dtype"] not in {"float32", "float64"}:
        raise _wrong("dtype", "one of float32, float64", whole["dtype"])
    for unit, centers in whole["centers_in_units"].items():
        _check(f"centers_in_units.{unit}", centers, [NUMBER])
    return whole


def _check_shapes(held: SimpleNamespace, d: int) -> None:
    """Check the shapes of centres and weights; without centres, the algorithm must assign rows."""
    k = len(held.centers)
    if any(len(center) != d for center in held.centers) or not (k or held.assigned_by):
        raise ValueError(f"centers must be centres with {d} numbers each")
    if len(held.weights) != (k or max(1, len(held.weights))):
        raise ValueError(f"weights must be a list of {k or 'some'} numbers")


def _preprocessor(content: Mapping[str, Any] | None) -> Preprocessor | None:
    """Return the preparation of rows from the content of a file."""
    try:
        return None if content is None else Preprocessor.from_plain(content)
    except PolicyError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"'preprocessing' is not valid ({error})") from error


def _array(name: str, value: Any) -> Floats:
    """Return nested lists of numbers as an array."""
    try:
        array = np.array(value)
        if array.dtype.kind in "if" and np.isfinite(array).all():
            return array.astype(np.float64)
    except (OverflowError, ValueError):
        pass
    raise ValueError(f"memory.{name} must be an array of numbers")


def named(algorithm: Any) -> dict[str, Any]:
    """Return the name of an algorithm, dotted if not of the package, and its parameters."""
    kind = type(algorithm)
    own = not kind.__module__.startswith("fedcluster.")
    name = _dotted(kind) if own else kind.__name__
    parameters = {each.name: getattr(algorithm, each.name) for each in fields(algorithm)}
    return {"name": name, "parameters": parameters}


def _dotted(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _algorithm(
    content: Mapping[str, Any] | None, path: Path, algorithms: Iterable[str | type]
) -> Any:
    """Return the algorithm that a model file names: one of the package, or an allowed one.

    Raises
    ------
    InputError
        If it is neither, or cannot be created.
    """
    if content is None:
        return None
    name = content["name"]
    try:
        own = [*algorithms, *OWN_STEPS.values()]
        own = [written(each)[0] if isinstance(each, str) else each for each in own]
        by_name = {each if isinstance(each, str) else _dotted(each): each for each in own}
        kind = (STEPS | by_name)[name]
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


__all__ = ["Model"]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Clusters and how they were found, as in ``model.json``.

    The fields are the keys of the file, with ``format`` and ``format_version`` before them.

    Parameters
    ----------
    centers : ndarray of shape (k, d)
        Cluster centres, in the units of the prepared rows; `centers_in_units` has them in those of
        the columns. Cluster j is line j, from 0.
    weights : ndarray of shape (k,)
        The weight of the rows of each cluster, over all sites, as the server learnt it.
    columns : tuple of str
        The names of the columns; without a preparation, in the order of the centres' coordinates.
    algorithm : mapping
        Its name, its parameters, and in ``steps`` the steps that the sites were asked, each with
        all its parameters.
    sites : tuple of SiteInfo
        The sites that were asked, with their limits.
    rounds : int
        Number of rounds with the sites.
    inertia : float
        Value of the algorithm's objective as the sites reported it, for k-means the sum of squared
        distances to the centres in squared units of the rows; nan, in the file null, if they did
        not. The name of the objective is ``algorithm["objective"]``.
    seed : int or None
        The seed of every random choice.
    dtype : str
        The type of the rows, "float32" or "float64".
    fedcluster_version : str
        The version that made the model.
    preprocessor : Preprocessor or None
        The preparation of rows before they are assigned. The file then also has the centres in the
        units of the columns, in ``centers_in_units``, for people to read.
    last_round : int
        The number of the last round of the run that won.
    converged : bool
        Whether that run had converged.
    memory : mapping of str to ndarray
        Other parameters of the clusters, such as covariances.
    assigned_by : Algorithm or None
        The algorithm, if it assigns rows by its own rule (`Assigns`); otherwise the nearest centre
        decides.
    names : tuple of str
        The names of the clusters, if they have any.
    privacy : mapping
        The privacy cost of the fit; empty without a privacy budget.
    reader : str
        Name, for messages, of what requires the columns; it is not in the file.
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
    fedcluster_version: str = __version__
    preprocessor: Preprocessor | None = None
    last_round: int = 0
    converged: bool = False
    memory: Mapping[str, Floats] = field(default_factory=dict)
    assigned_by: Algorithm | None = None
    names: tuple[str, ...] = ()
    privacy: Mapping[str, Any] = field(default_factory=dict)
    reader: str = "Model"

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, columns: Sequence[str] | None = None, dtype: str = "float64"
    ) -> Self:
        """Return the model of a fitted estimator.

        Parameters
        ----------
        estimator : FederatedKMeans
            A fitted estimator.
        columns : sequence of str, optional
            The names of the columns; by default the estimator's, else x0, x1, ...
        dtype : str
            The type of the rows.
        """
        form: RowForm = estimator.row_form_
        state = estimator.state_
        if estimator.privacy_ is None:
            state = replace(state, centers=estimator.cluster_centers_)
        parameters = {"algorithm": "auto", **estimator.get_params()}
        seed = parameters.pop("random_state", None)
        parameters.pop("verbose", None)
        parameters.pop("previous", None)
        return cls(
            **state_fields(state, estimator.algorithm_),
            columns=form.columns if columns is None else tuple(map(str, columns)),
            algorithm=plain_parameters(
                parameters.pop("algorithm"),
                {**parameters, "objective": estimator.objective_},
                estimator.steps_,
            ),
            sites=tuple(estimator.sites_),
            rounds=int(estimator.n_iter_),
            seed=seed if isinstance(seed, int) else None,
            dtype=dtype,
            preprocessor=form.preprocessor,
            names=tuple(getattr(estimator, "_cluster_names", ())),
            privacy={} if estimator.privacy_ is None else estimator.privacy_.plain(),
            reader=form.reader,
        )

    def predict(self, X: Any) -> Labels:
        """Return the cluster of each row of ``X (n, d)``, (n,).

        It is that of the nearest centre, unless the algorithm has its own rule. Rows are prepared
        as in the fit; the label is -1 if that drops a row.

        Parameters
        ----------
        X : table, or dict or list of tables
            The rows, as in `FederatedKMeans.predict`. Named columns are found by name, in any
            order, and others are ignored; those of an array must be in the order of ``columns``.

        Raises
        ------
        ValueError, TypeError
            If a column is missing, is duplicated or holds something other than in the fit; one line
            names the column, and the first wrong row and value.

        Examples
        --------
        >>> model = Model(np.array([[0.0], [10.0]]), np.array([5.0, 3.0]), ("age",))
        >>> model.predict([[1.0], [9.0]])
        array([0, 1], dtype=int32)
        >>> model.predict({"name": ["Ann", "Bob"], "age": ["2", "9"]})
        array([0, 1], dtype=int32)
        """
        form = self.row_form
        read = form.read(X)
        # `Data` was checked by its owner
        for line in () if isinstance(X, Data) else self._unlike(read):
            warnings.warn(line, UnlikeRowsWarning, stacklevel=3)
        rows = [form.of_part(data, part) for part, data in read]
        return self.assignment.labels(np.concatenate(rows) if len(rows) > 1 else rows[0])

    def check(self, X: Any, *, options: bool = False) -> tuple[str, ...]:
        """Return in which columns new rows are unlike those of the fit, a line each.

        It says how many values are, and what explains it: another unit, sign or logarithm, columns
        that are exchanged, or a value for a missing one. `predict` warns of the same. Rows of other
        shares of the clusters are no reason. A model knows the centres and the spread of columns
        alone, so that few rows, or small differences, are not seen.

        Parameters
        ----------
        X : table, or dict or list of tables
            The rows, as in `predict`.
        options : bool, default=False
            Whether to say what to do by options of the command line, which name sites.

        Examples
        --------
        >>> model = Model(
        ...     np.array([[95.0], [180.0]]), np.array([60.0, 40.0]), ("glucose",), inertia=6400.0,
        ...     algorithm={"objective": "inertia"},
        ... )
        >>> rows = [[90.0], [104.0], [97.0], [88.0], [171.0], [183.0], [190.0], [178.0]]
        >>> model.check(rows)
        ()
        >>> print(*model.check(np.array(rows) / 18.0182))
        column 'glucose' has mean 7.64 and deviation 2.41, 129 and 42.4 in like rows of the fit, \
as of mmol/l and mg/dl of glucose: if it is another unit, multiply it by 18.0182
        """
        return tuple(self._unlike(self.row_form.read(X), options=options))

    def beside_others(self, chunks: Iterable[Data], site: str) -> tuple[str, ...]:
        """Return in which columns a site is unlike the other sites of the fit, a line each.

        The model holds sums over all sites, so that one that took part tells those of the others by
        its own rows, and compares these with the others' as `check` does: nothing more leaves a
        site. It does so after a fit to standardised columns, without offsets, principal components
        or a privacy budget, whose centres are means.

        Parameters
        ----------
        chunks : iterable of Data
            All rows of the site in the fit, before preparation.
        site : str
            Its name, for options of the command line.

        Examples
        --------
        >>> from fedcluster import FederatedKMeans
        >>> from fedcluster.core import Column
        >>> names, rng = (Column("age"), Column("glucose")), np.random.default_rng(0)
        >>> north, south = (rng.normal([[40, 95], [70, 180]] * 50, [5, 9]) for _ in range(2))
        >>> sites = {
        ...     "north": Data(north, columns=names),
        ...     "south": Data(south / [1, 18.0182], columns=names),  # in mmol/l
        ... }
        >>> with warnings.catch_warnings(action="ignore"):
        ...     fit = FederatedKMeans(4, prepare="standard", random_state=0).fit(sites)
        >>> print(*Model.from_estimator(fit).beside_others([sites["south"]], "south"))
        column 'glucose' has mean 7.61 and deviation 2.46 at south, 138 and 43.4 in like rows
        elsewhere, as of mmol/l and mg/dl of glucose: if it is another unit, say --set
        sites.south.factors.glucose=18.0182
        """
        if self.privacy or self.preprocessor is None or self.adjusts:
            return ()
        own = preprocessing.OwnSums.of(self, chunks)
        known = preprocessing.known_columns(self, own) if own.rows else None
        return () if known is None else tuple(known.unlike(np.concatenate(own.rows), site))

    def at_site(self, X: Any) -> Self:
        """Return the model of one site, which holds the offset that is found from all its rows.

        It labels any number of new rows there, also a single one. As its file tells the offset, it
        is for the site alone.

        Parameters
        ----------
        X : table
            The rows of the site, as in `predict`.
        """
        [(_, data)] = self.row_form.read(X)
        return replace(self, preprocessor=self.by_name.at_site(data)) if self.adjusts else self

    def simulate(
        self, n_rows: int | None = None, seed: int = 0
    ) -> tuple[dict[str, dict[str, Any]], dict[str, Labels]]:
        """Draw rows from the model, in tables shaped like those of its sites.

        So a study's code can be written before any data are seen. Nothing but the model is used:
        what it does not hold, such as missing values or the rows of a site, the tables do not show.

        Parameters
        ----------
        n_rows : int, optional
            The number of rows of each site; by default the mean of the fit, at most 100,000.
        seed : int, default=0
            The seed of all draws.

        Returns
        -------
        tables : dict
            The columns of each site, by name, in the units of the files.
        labels : dict
            The cluster that each row was drawn from, by site.

        Examples
        --------
        >>> model = Model(np.array([[0.0], [10.0]]), np.array([5.0, 3.0]), ("age",))
        >>> tables, labels = model.simulate(4)
        >>> tables["rows"]["age"].shape, labels["rows"].shape
        ((4,), (4,))
        """
        return simulation.simulated(self, n_rows, seed)

    def _unlike(
        self, read: Iterable[tuple[Any, Data]], *, options: bool = False, most: int = 20_000
    ) -> Iterator[str]:
        """Yield what `check` returns; of a site, at most ``most`` evenly spaced rows are read."""
        known = preprocessing.known_columns(self)
        if known is None:
            return
        for part, data in read:
            place = {column.name: j for j, column in enumerate(columns_of(data))}
            some = data.X[:: max(1, -(-len(data) // most))]
            at = [place.get(name, j) for j, name in enumerate(known.names)]  # arrays have no names
            X = some[:, at].astype(np.float64)
            if self.adjusts:  # an offset moves no codes
                is_code, rows = [name in known.levels for name in known.names], data.X[:, at]
                X = np.where(is_code, rows, self._without_offset(data, known.names))
                X = X[~np.isnan(X).all(axis=1)]
            for line in known.unlike(X, part.name if options else None):
                yield line if options else f"{part.where or ''}{for_python(line)}"

    def _without_offset(self, data: Data, names: Sequence[str]) -> Floats:
        """Return rows of a site in the units of the named columns, without its offset."""
        assert self.preprocessor is not None
        rows = self.preprocessor.invert(self.preprocessor.aligned(data).astype(np.float64))
        return rows[:, [self.preprocessor.names.index(name) for name in names]]

    @property
    def state(self) -> State:
        """The final state of the clustering."""
        return State(
            self.centers,
            self.weights,
            round=self.last_round,
            inertia=self.inertia,
            converged=self.converged,
            memory=self.memory,
        )

    @property
    def assignment(self) -> Assignment:
        """The assignment of prepared rows to the clusters."""
        m = self.algorithm.get("m")
        return Assignment(self.state, self.assigned_by, None if m is None else float(m))

    @property
    def by_name(self) -> Preprocessor:
        """The preparation of rows that finds columns by name; without one, of those as they are.

        It then drops rows with a missing value, which have no cluster.
        """
        return by_columns(self.preprocessor, self.columns)

    @property
    def there(self) -> NDArray[np.bool_]:
        """Which clusters are there, (k,); others were those of an earlier fit, and are gone."""
        return np.equal(self.memory.get("gone", np.zeros(len(self.weights))), 0.0)

    @property
    def n_clusters(self) -> int:
        """The number of clusters that are not gone."""
        return int(self.there.sum())

    @property
    def row_form(self) -> RowForm:
        """The columns that rows must have, and their preparation."""
        return RowForm(self.columns, self.preprocessor, self.reader)

    @property
    def adjusts(self) -> bool:
        """Whether each site subtracts its own offset, found from all its rows."""
        return self.preprocessor is not None and self.preprocessor.effects is not None

    def prepared(self, X: Any) -> Rows:
        """Return rows in the form for clustering, one for each given row, NaN for a dropped row."""
        return self.row_form.prepared(X)

    def measurable(self, X: Any) -> tuple[Rows, Floats]:
        """Return rows, (n, p), and centres, (k, p), between which distances are reported.

        They are in the form for clustering; after a fit with a privacy budget, whose bounds scale
        the columns, they are in the units of the columns, with rows clipped to the bounds.
        """
        how, form = self.preprocessor, self.row_form
        if how is None or not how.box:
            return form.prepared(X), self.centers
        rows = replace(form, preprocessor=replace(how, box=False)).prepared(X)
        return how.invert(rows.astype(np.float64)), how.invert(self.centers)

    def squared_errors(self, X: Any) -> Floats:
        """Return the squared distance of each row to its nearest centre, (n,); 0 for a dropped row.

        The distance is over the present values of a prepared row.
        """
        rows = self.prepared(X)
        centers = self.state.standing.centers
        if self.has_gaps:
            return metrics.nearest_present(rows, centers)[1]
        return on_whole_rows(lambda whole: kernels.nearest(whole, centers)[1], rows, 0.0)

    @property
    def has_gaps(self) -> bool:
        """Whether prepared rows keep missing values."""
        return self.preprocessor is not None and self.preprocessor.missing == "ignore"

    @property
    def fuzzy(self) -> bool:
        """Whether rows belong to clusters by degrees."""
        d = len(self.columns if self.preprocessor is None else self.preprocessor.names_out)
        return self.assignment.soft(d)

    def memberships(self, X: Any) -> Floats | None:
        """Return the memberships of the rows, (n, k); None for a hard clustering."""
        return self.assignment.memberships(self.prepared(X)) if self.fuzzy else None

    def save(self, path: str | Path) -> None:
        """Write the model as JSON, completely or not at all."""
        write_json(Path(path), self.plain())

    def plain(self) -> dict[str, Any]:
        """Return the content of the file as JSON-compatible values."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "format_version": self._format_version,
            "fedcluster_version": self.fedcluster_version,
            "columns": list(self.columns),
            "centers": self.centers.tolist(),
            "weights": self.weights.tolist(),
            "inertia": None if math.isnan(self.inertia) else self.inertia,
            "rounds": self.rounds,
            "seed": self.seed,
            "dtype": self.dtype,
            "last_round": self.last_round,
            "converged": self.converged,
            "algorithm": dict(self.algorithm),
            "sites": [
                {"name": site.name, "limits": [limit.plain() for limit in site.limits]}
                for site in self.sites
            ],
        }
        if self.names:
            content["names"] = list(self.names)
        if self.privacy:
            content["privacy"] = dict(self.privacy)
        if self.memory:
            content["memory"] = {name: array.tolist() for name, array in self.memory.items()}
        if self.assigned_by is not None:
            content["assigned_by"] = named(self.assigned_by)
        if self.preprocessor is not None:
            content["preprocessing"] = self.preprocessor.plain()
            content["centers_in_units"] = self.centers_in_units
        return content

    @property
    def _format_version(self) -> int:
        """Return the first format version whose readers label rows correctly by this model."""
        if "gone" in self.memory:
            return FORMAT_VERSION
        if self.assigned_by is not None:
            return 3
        return 1 if self.preprocessor is None else 2

    @property
    def centers_in_units(self) -> dict[str, list[float]]:
        """The centres' coordinates by column, (k,) each, in its units; for text, by level."""
        if self.preprocessor is None:
            return dict(zip(self.columns, self.centers.T.tolist(), strict=True))
        values = self.preprocessor.invert(self.centers)
        return dict(zip(self.preprocessor.names, values.T.tolist(), strict=True))

    @classmethod
    def load(cls, path: str | Path, algorithms: Iterable[str | type] = ()) -> Self:
        """Read a model.

        Parameters
        ----------
        path : str or Path
            The file, or the folder of a fit.
        algorithms : iterable of str or type
            The user's own algorithms that may assign rows, or their dotted names, such as
            ``"my_module.Mine"``. Nothing is imported just because a file names it.

        Raises
        ------
        InputError
            If the file is missing, not a model, damaged or of a newer version, or names an
            algorithm that is not allowed.
        """
        return cls(**checked(read(Path(path)), Path(path), algorithms))


def state_fields(state: State, algorithm: Algorithm | None) -> dict[str, Any]:
    """Return the fields of a model that hold a final state and the assignment of rows."""
    return {
        "centers": np.array(state.centers, dtype=np.float64),
        "weights": np.array(state.weights, dtype=np.float64),
        "inertia": float(state.inertia),
        "last_round": int(state.round),
        "converged": bool(state.converged),
        "memory": {name: np.array(each, dtype=np.float64) for name, each in state.memory.items()},
        "assigned_by": algorithm if isinstance(algorithm, Assigns) else None,
    }


def plain_parameters(
    algorithm: Any, parameters: Mapping[str, Any], steps: Iterable[str]
) -> dict[str, Any]:
    """Return an algorithm's name, its parameters and the steps asked, as JSON-compatible values."""
    plain = {name: _plain(value) for name, value in parameters.items()}
    return {"name": _plain(algorithm), **plain, "steps": list(steps)}


def _plain(value: Any) -> Any:
    """Return a parameter as a JSON-compatible value."""
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


def checked_names(names: Sequence[str], k: int, *, longest: int = 200) -> tuple[str, ...]:
    """Return names for k clusters, stripped of blanks.

    ``longest``: largest number of characters of a given name.

    Raises
    ------
    InputError
        If their number is wrong, or a name is empty, too long, not printable or duplicated.
    """
    given = tuple(str(name).strip() for name in names)
    if len(given) != k:
        raise InputError(f"{k} clusters need {k} names, not {len(given)}")
    for name in given:
        if not 0 < len(name) <= longest or not name.isprintable():
            raise InputError(
                f"a cluster's name has 1 to {longest} characters that can be printed, not {name!r}"
            )
    if twice := [name for name, often in Counter(given).items() if often > 1]:
        raise InputError(f"two clusters cannot both be called {twice[0]!r}")
    return given
