"""Predictions and descriptions of a fitted estimator, and its model file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fedcluster import algorithms, privacy
from fedcluster import model as models
from fedcluster.core import Assigns, Floats, Iteration, Labels, Result
from fedcluster.core.files import plain
from fedcluster.errors import InputError, NotInstalledError
from fedcluster.frames.columns import is_numbered
from fedcluster.jobs import choice_of, clustering_of
from fedcluster.lazy import of_application
from fedcluster.model.assignment import RowForm
from fedcluster.model.file import Model, checked_names
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.transform import on_whole_rows
from fedcluster.privacy import Groups
from fedcluster.recipes.specifications import Rule
from fedcluster.texts import for_python

if TYPE_CHECKING:
    from fedcluster.model.profiles import Profiles
    from fedcluster.selection import Selection


def _has_memberships(self: Any) -> bool:
    return self._soft or isinstance(self.algorithm, Assigns)


def _as_dict(done: Iteration) -> dict[str, Any]:
    """Return the record of a round like `dataclasses.asdict`, but faster for many sites."""
    named = {each.name: getattr(done, each.name) for each in fields(done)}
    return {**named, "values_sent": dict(done.values_sent.items())}


class Fitted(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Fitted clusters, which label rows, and are shown as data frames and written to files."""

    _names: ClassVar[Collection[str]]
    """The algorithms that the estimator knows by name."""
    _soft: ClassVar[bool] = False
    """Whether rows have memberships, whatever the algorithm."""

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn whether sparse rows are accepted, and converted to dense ones."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not _has_memberships(self)
        return tags

    def predict(self, X: Any) -> Labels:
        """Return the cluster of each row, (n,), concatenated over the sites of a dict or list.

        It is that of the nearest centre, unless ``algorithm`` has its own rule (`Assigns`). A row
        that the preparation drops has the label -1.

        Parameters
        ----------
        X : table, or dict or list of tables
            Arrays, sparse matrices, data frames of pandas and polars, Arrow tables, a dict of
            columns, AnnData, `Data` or paths of files. Named columns are found by name, in any
            order, and others are ignored; those of an array must be in the order of the fit.

        Raises
        ------
        ValueError, TypeError
            If a column is missing, is duplicated or holds something other than in the fit; one line
            names the column, and the first wrong row and value.
        """
        return self._model.predict(X)

    @available_if(_has_memberships)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the memberships of rows in clusters, (n, k), which sum to at most 1 in each row.

        This is for fuzzy clusters, for mixtures, whose memberships are the probabilities of the
        components, and for an ``algorithm`` that assigns memberships; a row's label is the cluster
        of the largest. A row that the preparation drops has NaN.
        """
        memberships = self._model.memberships(X)
        if memberships is None:
            name = type(self.algorithm_).__name__
            raise ValueError(f"{name} assigns labels, not memberships: use predict")
        return memberships

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the Euclidean distance of each row to each centre, (n, k).

        For a row with missing values that are ignored, it is the distance over the present values
        times the square root of the ratio of all columns to the present ones (Dixon 1979). Rows are
        prepared first. After a fit with ``epsilon``, distances are in the units of the columns, for
        rows clipped to the bounds; `predict` then uses columns scaled by the bounds.
        """
        # imported here: it takes 7 MB that a fit does not need
        from sklearn.metrics.pairwise import nan_euclidean_distances

        model = self._model
        rows, centers = model.measurable(X)
        if model.has_gaps:
            return np.asarray(nan_euclidean_distances(rows, centers))
        # From differences: an expanded square rounds the distance of a row beside its centre.
        return on_whole_rows(
            lambda whole: np.stack([np.linalg.norm(whole - c, axis=1) for c in centers], axis=1),
            np.ascontiguousarray(rows),
            np.nan,
        )

    def annotate(self, cells: Any, key: str = "cluster") -> Any:
        """Write the cluster of each row of AnnData into its table ``obs``.

        Parameters
        ----------
        cells : AnnData
            The rows, with the columns of the fit.
        key : str
            The column of ``obs``, which becomes categorical, with NaN for rows without a cluster.

        Returns
        -------
        AnnData
            The same object.
        """
        labels = self.predict(cells).tolist()
        cells.obs[key] = [None if label < 0 else str(label) for label in labels]
        cells.obs[key] = cells.obs[key].astype("category")
        return cells

    @property
    def centers_frame_(self) -> Any:
        """The centres as a pandas data frame, (k, columns), in the units of the rows.

        The preparation is inverted; for a text column, it has the share of each level.
        """
        check_is_fitted(self)
        pd = pandas()
        index = pd.RangeIndex(self.n_clusters_, name="cluster")
        return pd.DataFrame(self._model.centers_in_units, index=index)

    @property
    def profile_(self) -> Any:
        """The clusters as a pandas data frame: ``size``, ``share``, and `centers_frame_`.

        The size is the weight of the cluster's rows, and the share its part of all. A centre of
        exact k-means is the mean of its rows. After a fit with ``profile``, there is a line for
        each cluster and one for all, with the content of `profiles_` for each column.
        """
        profiles: Profiles | None = getattr(self, "profiles_", None)
        if profiles is not None:
            return profile_frame(profiles.named(self.cluster_names_))
        frame = self.centers_frame_
        size = self.cluster_weights_
        frame.insert(0, "share", size / size.sum(), allow_duplicates=True)
        frame.insert(0, "size", size, allow_duplicates=True)
        return frame

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """Return what a notebook shows: scikit-learn's diagram, and the clusters.

        Parameters
        ----------
        **kwargs : object
            Options from the notebook.
        """
        shown = dict(super()._repr_mimebundle_(**kwargs))
        if "text/html" in shown:
            shown["text/html"] += self._clusters_html()
        return shown

    def _repr_html_inner(self) -> str:
        return f"{super()._repr_html_inner()}{self._clusters_html()}"

    def _clusters_html(self) -> str:
        if not hasattr(self, "state_"):
            return ""
        parts = {"profiles": getattr(self, "profiles_", None)}
        parts["stability"] = getattr(self, "stability_", None)
        history = {name: plain(each.plain()) for name, each in parts.items() if each is not None}
        run = models.Run(model=self._model.plain(), history=history)
        with suppress(NotInstalledError):  # no cards without the application
            return str(of_application("report.page", "cards")(run))
        return ""

    @property
    def cluster_names_(self) -> tuple[str, ...]:
        """The names of the clusters, which describe their differences.

        They are derived from the profiles of a fit with ``profile``, otherwise from the centres.
        Others can be set, and `save` keeps them.
        """
        check_is_fitted(self)
        return tuple(models.Run(model=self._model.plain()).names)

    @cluster_names_.setter
    def cluster_names_(self, names: Iterable[str]) -> None:
        self._cluster_names = checked_names(tuple(names), self.n_clusters_)

    def save(self, path: str | Path) -> None:
        """Write a fitted estimator as a model file: everything that `predict` needs, as JSON.

        It has the format of the commands' ``model.json``, so that these can read it; it contains no
        rows, labels or rounds.

        Parameters
        ----------
        path : str or Path
            The file, whose name ends in ``.json``.

        Raises
        ------
        InputError
            If a parameter cannot be stored in a file, such as a function.
        """
        check_is_fitted(self)
        check_savable(self.get_params(deep=False))
        self._model.save(path)

    @classmethod
    def load(cls, path: str | Path, algorithms: Iterable[str | type] = ()) -> Self:
        """Return a fitted estimator from a model file, written by `save` or by a command.

        It has the same parameters, and predicts exactly like the saved one. Other results of the
        fit, such as ``labels_`` and ``history_``, are not in the file.

        Parameters
        ----------
        path : str or Path
            The file, or the folder of a fit.
        algorithms : iterable of str or type
            The user's own algorithms that may assign rows, as in `Model.load`.

        Raises
        ------
        InputError
            If it is not a model file, or belongs to another kind of estimator.

        Examples
        --------
        >>> import tempfile
        >>> from fedcluster import FederatedKMeans
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name, "model.json")
        >>> rows = [[1.0], [2.0], [9.0]]
        >>> FederatedKMeans(2, random_state=0).fit(rows).save(path)
        >>> FederatedKMeans.load(path).predict(rows)
        array([0, 0, 1], dtype=int32)
        >>> folder.cleanup()
        """
        model = Model.load(path, algorithms)
        kind = kind_of(model)
        if kind not in (base.__name__ for base in cls.__mro__):
            raise InputError(f"{path} is the model of {kind}: read it by {kind}.load")
        names = cls._get_param_names()
        self = cls(**parameters_of(model, names, cls._names, Path(path)))
        self._keep_preparation(model.preprocessor, private=bool(model.privacy))
        self._keep_clusters(Result(model.state, (), "", model.assigned_by))
        # a model file does not contain these
        for name in ("selection_", "history_", "stop_reason_"):
            delattr(self, name)
        self.n_iter_, self.sites_ = model.rounds, model.sites
        self.steps_ = list(model.algorithm.get("steps", ()))
        self.n_features_in_ = len(model.columns)
        self._cluster_names = model.names
        self.privacy_ = privacy.PrivacySpent(**model.privacy) if model.privacy else None
        self.objective_ = str(model.algorithm.get("objective", "inertia"))
        if not is_numbered(model.columns):
            self.feature_names_in_ = np.array(model.columns, dtype=object)
        return self

    def _keep_preparation(self, preprocessor: Preprocessor | None, *, private: bool) -> None:
        """Store the preprocessing of rows, except the part that only serves a privacy budget."""
        self.preprocessor_ = None if private else preprocessor
        self._box_ = preprocessor if private else None

    def _keep_clusters(self, value: Result | Selection) -> Result:
        self.selection_: Selection | None = choice_of(value)
        if self.selection_ is not None:
            lines = tuple(map(for_python, self.selection_.warnings))
            self.selection_ = replace(self.selection_, warnings=lines)
        result = clustering_of(value)
        self.state_, self.algorithm_ = result.state, result.algorithm
        self.n_clusters_ = len(result.state.centers) or len(result.state.weights)
        centers, box = result.state.centers, self._box_
        self.cluster_centers_ = centers if box is None else box.invert(centers)
        self.cluster_weights_ = result.state.weights
        self.inertia_ = result.state.inertia
        self.history_ = [_as_dict(done) for done in result.history]
        self.stop_reason_ = result.reason
        return result

    @property
    def _model(self) -> Model:
        """The clusters as a model, which assigns rows to them."""
        check_is_fitted(self)
        return Model.from_estimator(self)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_clusters_)

    @property
    def row_form_(self) -> RowForm:
        """The columns that new rows must have, and their preparation."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{j}" for j in range(self.n_features_in_)]
        how = self.preprocessor_ if self._box_ is None else self._box_
        return RowForm(tuple(map(str, names)), how, type(self).__name__)


# Profiles as data frames


def pandas() -> Any:
    """Return the pandas library.

    Raises
    ------
    NotInstalledError
        If it is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise NotInstalledError('this needs pip install "fedcluster[pandas]"') from error
    return pandas


def profile_frame(profiles: Profiles) -> Any:
    """Return a data frame with a line for each cluster and one for all.

    For a numeric column ``age``, it has the mean as ``age``, and ``age spread``, ``age median`` and
    ``age difference``; for a text column ``ward``, shares of levels as ``ward=level``, and ``ward
    association``.
    """
    pd, weights = pandas(), profiles.weights
    k = len(weights)
    sizes: dict[str, Any] = {
        "name": [*profiles.names, "all"],
        "size": np.append(weights, weights.sum()),
        "share": np.append(profiles.shares, profiles.shares.sum()),
        "sites": [*(len(profiles.sites_of(j)) for j in range(k)), len(profiles.sizes)],
    }
    columns = [(name, values) for each in profiles.columns for name, values in _columns(each)]
    frame = pd.DataFrame(sizes, index=pd.Index([*range(k), "all"], name="cluster"))
    described = pd.DataFrame(dict(enumerate(values for _, values in columns)), index=frame.index)
    described.columns = [name for name, _ in columns]
    return pd.concat([frame, described], axis=1)


def _columns(column: Any) -> list[tuple[str, Any]]:
    """Return the columns of the data frame for one column's profile, by name."""
    name = column.name
    if column.kind == "number":
        return [
            (name, column.means),
            (f"{name} spread", column.spreads),
            (f"{name} median", column.medians),
            (f"{name} difference", np.append(column.differences, np.nan)),
        ]
    levels = zip(column.levels, column.shares.T, strict=True)
    return [
        *((f"{name}={level}", share) for level, share in levels),
        (f"{name} association", np.append(column.associations, np.nan)),
    ]


# Parameters in model files

STARTS = ("init", "weights_init", "means_init", "precisions_init")
"""Parameters that are arrays in an estimator, and lists in a file."""
KINDS: Mapping[str, Callable[..., Any]] = {
    "prepare": PreprocessingSpec,
    "rule": Rule,
    "protection": Groups,
}
"""Types of parameters that are objects in a file."""


def check_savable(parameters: Mapping[str, Any]) -> None:
    """Raise an error for parameters that cannot be stored in a file.

    Raises
    ------
    InputError
        With the first of them, and advice.
    """
    algorithm = parameters.get("algorithm")
    named = algorithm is None or isinstance(algorithm, str)
    own = not named and not hasattr(algorithms, type(algorithm).__name__)
    prepare = parameters.get("prepare")
    mapping = prepare.then if isinstance(prepare, PreprocessingSpec) else prepare
    refused = {
        "init": callable(parameters.get("init")) and "a function",
        "random_state": isinstance(parameters["random_state"], RandomState) and "a RandomState",
        "algorithm": own and not isinstance(algorithm, Assigns) and "an object of your own",
        "prepare": mapping is not None and not isinstance(mapping, str) and "an object of your own",
    }
    for name, what in refused.items():
        if what:
            raise InputError(
                f"{name} is {what}, which no file can hold; save the clusters alone, by "
                "Model.from_estimator(...).save(path)"
            )


def parameters_of(
    model: Model, names: Collection[str], known: Collection[str], path: Path
) -> dict[str, Any]:
    """Return the parameters of an estimator from a model file.

    Parameters
    ----------
    model : Model
        The content of the file.
    names : collection of str
        The parameters of the estimator.
    known : collection of str
        The algorithms that it knows by name.
    path : Path
        The file.

    Raises
    ------
    InputError
        If a parameter cannot be created.
    """
    k = model.algorithm.get("n_clusters")
    stored = {"n_components": k, "random_state": model.seed, **model.algorithm}
    stored["algorithm"] = _algorithm(stored.pop("name", "auto"), model, known)
    parameters = {}
    for name, value in stored.items():
        if name in names:
            try:
                parameters[name] = _made(name, value)
            except (TypeError, ValueError) as error:
                raise InputError(f"{path} is damaged: {name!r}: {error}; fit again") from error
    return parameters


def _algorithm(plain: Any, model: Model, known: Collection[str]) -> Any:
    """Return the algorithm of a model file for an estimator, or what assigns its rows."""
    if isinstance(plain, Mapping) and hasattr(algorithms, str(plain.get("name"))):
        parameters = {name: value for name, value in plain.items() if name != "name"}
        return getattr(algorithms, plain["name"])(**parameters)
    return plain if plain in known else model.assigned_by or "auto"


def _made(name: str, value: Any) -> Any:
    """Return a parameter from its form in a file."""
    if name in STARTS and isinstance(value, list):
        return np.array(value, dtype=np.float64)
    if name in KINDS and isinstance(value, Mapping):
        kept = {key: each for key, each in value.items() if key != "name" or name == "rule"}
        if name == "rule" and kept.get("bounds") is not None:
            kept["bounds"] = tuple(map(np.array, kept["bounds"]))
        return KINDS[name](**{key: _with_tuples(each) for key, each in kept.items()})
    return value


def _with_tuples(value: Any) -> Any:
    """Return a value with tuples in place of the lists from a file."""
    if isinstance(value, Mapping):
        return {key: _with_tuples(each) for key, each in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def kind_of(model: Model) -> str:
    """Return the name of the estimator that corresponds to a model."""
    if isinstance(model.assigned_by, algorithms.GaussianMixture):
        return "FederatedGaussianMixture"
    return "FederatedKMeans" if model.algorithm.get("m") is None else "FederatedFuzzyCMeans"
