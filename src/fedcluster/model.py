"""The model file: plain JSON that anyone can read, with or without this package.

It holds nothing but what the server learnt: no rows, no labels, no counts of a single site.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedcluster._assignment import Assignment
from fedcluster._model_file import FORMAT, FORMAT_VERSION, checked, named, read
from fedcluster._row_form import RowForm
from fedcluster._version import VERSION
from fedcluster.core import Algorithm, Assigns, Floats, Labels, Rows, SiteInfo, State
from fedcluster.io._outputs import write_json
from fedcluster.preprocessing import Preprocessor

__all__ = ["Model"]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Clusters and the way they were found, as ``model.json`` holds them.

    The fields are the keys of the file, with ``format`` and ``format_version`` before them.

    Parameters
    ----------
    centers : ndarray of shape (k, d)
        Cluster centres, in the units of the prepared rows, of which `centers_in_units` has those of
        the columns; cluster j is line j, from 0.
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
        What is done to rows before their nearest centre is looked for. The file then also has the
        centres in the units of the columns, in ``centers_in_units``, for people to read.
    last_round : int
        The number of the last round of the run that won.
    converged : bool
        Whether that run had converged.
    memory : mapping of str to ndarray
        What the algorithm knows of the clusters besides, such as covariances.
    assigned_by : Algorithm or None
        The algorithm, where it assigns rows itself (`Assigns`); else the nearest centre does.
    names : tuple of str
        What the clusters are called, where they have names.
    privacy : mapping
        What the fit has spent of its privacy budget, empty without one.
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
    fedcluster_version: str = VERSION
    preprocessor: Preprocessor | None = None
    last_round: int = 0
    converged: bool = False
    memory: Mapping[str, Floats] = field(default_factory=dict)
    assigned_by: Algorithm | None = None
    names: tuple[str, ...] = ()
    privacy: Mapping[str, Any] = field(default_factory=dict)

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
        parameters = {"algorithm": "auto", **estimator.get_params()}
        seed = parameters.pop("random_state", None)
        parameters.pop("verbose", None)
        return cls(
            **state_fields(estimator.state_, estimator.algorithm_),
            columns=tuple(map(str, columns)),
            algorithm=plain_parameters(
                parameters.pop("algorithm"),
                {**parameters, "objective": estimator.objective_},
                estimator.steps_,
            ),
            sites=tuple(estimator.sites_),
            rounds=int(estimator.n_iter_),
            seed=seed if isinstance(seed, int) else None,
            dtype=dtype,
            preprocessor=estimator.row_form_.preprocessor,
            names=tuple(estimator.cluster_names_),
            privacy={} if estimator.privacy_ is None else estimator.privacy_.plain(),
        )

    def predict(self, X: Any) -> Labels:
        """Return the cluster of each row of ``X (n, d)``, (n,).

        That of the nearest centre, unless the algorithm assigns rows itself. Rows are prepared
        first, as those of the fit were; -1 where that drops a row.

        Parameters
        ----------
        X : table, or dict or list of tables
            The rows, as `FederatedKMeans.predict` takes them. Columns with names are found by
            these, in any order and beside others; those of an array are taken in the order of
            ``columns``.

        Raises
        ------
        ValueError, TypeError
            In one line, if a column is lacking, comes twice, or holds something else than in the
            fit: it names the column, and the first row and value that is wrong.

        Examples
        --------
        >>> model = Model(np.array([[0.0], [10.0]]), np.array([5.0, 3.0]), ("age",))
        >>> model.predict([[1.0], [9.0]])
        array([0, 1], dtype=int32)
        >>> model.predict({"name": ["Ann", "Bob"], "age": ["2", "9"]})
        array([0, 1], dtype=int32)
        """
        return self.assignment.labels(self.prepared(X))

    @property
    def state(self) -> State:
        """Return the final state of the clustering."""
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
        """Return how prepared rows are assigned to the clusters."""
        m = self.algorithm.get("m")
        return Assignment(self.state, self.assigned_by, None if m is None else float(m))

    @property
    def row_form(self) -> RowForm:
        """Return what rows must hold, and how they are prepared."""
        return RowForm(self.columns, self.preprocessor)

    def prepared(self, X: Any) -> Rows:
        """Return rows as they are clustered, one for each row given; NaN where a row is dropped."""
        return self.row_form.prepared(X)

    @property
    def fuzzy(self) -> bool:
        """Return whether rows belong to clusters by degrees."""
        d = len(self.columns if self.preprocessor is None else self.preprocessor.names_out)
        return self.assignment.soft(d)

    def memberships(self, X: Any) -> Floats | None:
        """Return the memberships of the rows, (n, k); None for a hard clustering."""
        return self.assignment.memberships(self.prepared(X)) if self.fuzzy else None

    def save(self, path: str | Path) -> None:
        """Write the model as JSON, whole or not at all."""
        write_json(Path(path), self.plain())

    def plain(self) -> dict[str, Any]:
        """Return what the file holds, as JSON can hold it."""
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
        """Return the first version whose readers label rows by this model rightly."""
        if self.assigned_by is not None:
            return FORMAT_VERSION
        return 1 if self.preprocessor is None else 2

    @property
    def centers_in_units(self) -> dict[str, list[float]]:
        """Return the centres' coordinates by column, (k,) each, in its units; of text, by level."""
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
            Algorithms of your own that may assign rows, or their dotted names, such as
            ``"my_module.Mine"``. Nothing is imported because a file names it.

        Raises
        ------
        InputError
            With one line, if it is not there, not a model, damaged, of a newer version, or names
            an algorithm that is not allowed.
        """
        return cls(**checked(read(Path(path)), Path(path), algorithms))


def state_fields(state: State, algorithm: Algorithm | None) -> dict[str, Any]:
    """Return the fields of a model that hold a final state, and how rows are assigned to it."""
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
