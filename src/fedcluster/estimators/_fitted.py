"""What a fitted estimator tells of new rows and of itself, and how it is saved and read again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fedcluster._assignment import Assignment
from fedcluster._cluster_names import checked_names
from fedcluster._pages._notebook import clusters_table
from fedcluster._pages._run import Run
from fedcluster._profiles import Profiles
from fedcluster._report._tables import plain
from fedcluster._row_form import RowForm
from fedcluster.core import Assigns, Floats, Iteration, Labels, Result, Rows
from fedcluster.errors import InputError
from fedcluster.estimators._profile_frame import pandas, profile_frame
from fedcluster.estimators._saved import check_savable, kind_of, parameters_of
from fedcluster.model import Model
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing._transform import on_whole_rows
from fedcluster.recipes.private import PrivacySpent
from fedcluster.selection import Selection


def _has_memberships(estimator: Any) -> bool:
    return hasattr(estimator, "m") or isinstance(estimator.algorithm, Assigns)


def _as_dict(done: Iteration) -> dict[str, Any]:
    """Return the record of a round as `dataclasses.asdict`, without its time for many sites."""
    named = {each.name: getattr(done, each.name) for each in fields(done)}
    return {**named, "values_sent": dict(done.values_sent.items())}


class Fitted(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Fitted clusters: they label rows, and are told as data frames and files."""

    _names: ClassVar[Collection[str]]
    """The algorithms that the estimator has by name."""

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that sparse rows are taken, and made dense."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def predict(self, X: Any) -> Labels:
        """Return the cluster of each row, (n,); of a dict or list, site after site.

        It is that of the nearest centre, unless ``algorithm`` assigns rows itself (`Assigns`). A
        row that the preparation drops has the label -1.

        Parameters
        ----------
        X : table, or dict or list of tables
            Arrays, sparse matrices, data frames of pandas and polars, Arrow tables, a dict of
            columns, AnnData, `Data` or paths of files. Columns with names are found by these, in
            any order and beside others; those of an array are taken in the order of the fit.

        Raises
        ------
        ValueError, TypeError
            In one line, if a column is lacking, comes twice, or holds something else than in the
            fit: it names the column, and the first row and value that is wrong.
        """
        return self._labels(self._rows(X))

    @available_if(_has_memberships)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the memberships of rows in clusters, (n, k); each row sums to 1 at most.

        For fuzzy clusters, and with an ``algorithm`` that assigns memberships itself; a row's
        label is the cluster of the largest. NaN of a row that the preparation drops.
        """
        rows = self._rows(X)
        memberships = self._assignment.memberships(rows)
        if memberships is None:
            name = type(self.algorithm_).__name__
            raise ValueError(f"{name} assigns labels, not memberships: use predict")
        return memberships

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the Euclidean distance of each row to each centre, (n, k).

        Of a row with missing values that are ignored: that over the values it has, times the root
        of the columns in all by those (Dixon 1979). Rows are prepared first. After a fit with
        ``epsilon`` distances are in the units of the columns, of rows within the bounds; `predict`
        then goes by distances in which the bounds of every column are equally far apart.
        """
        from sklearn.metrics.pairwise import (  # 7 MB that a fit does not need
            euclidean_distances,
            nan_euclidean_distances,
        )

        rows = self._rows(X) if self._box_ is None else self._within_bounds(X, self._box_)
        if self._has_gaps:
            return np.asarray(nan_euclidean_distances(rows, self.cluster_centers_))
        return on_whole_rows(
            lambda rows: np.asarray(euclidean_distances(rows, self.cluster_centers_)),
            rows,
            np.nan,
        )

    def annotate(self, cells: Any, key: str = "cluster") -> Any:
        """Write the cluster of each row of AnnData into its table ``obs``.

        Parameters
        ----------
        cells : AnnData
            The rows, with the columns of the fit.
        key : str
            The column of ``obs``, which becomes categorical; a row without a cluster has NaN there.

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
        """The centres as a data frame of pandas, (k, columns), in the units of the rows.

        What ``prepare`` did is undone; of a column of text, it has the share of each level.
        """
        check_is_fitted(self)
        pd = pandas()
        index = pd.RangeIndex(self.n_clusters_, name="cluster")
        return pd.DataFrame(Model.from_estimator(self).centers_in_units, index=index)

    @property
    def profile_(self) -> Any:
        """The clusters as a data frame of pandas: ``size``, ``share``, and `centers_frame_`.

        The size is the weight of the rows behind the centre, the share that of all of these. A
        centre of exact k-means is the mean of its rows. After a fit with ``profile``, a line for
        each cluster and one for all, with what `profiles_` tells of each column.
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
        """Return what a notebook shows: scikit-learn's picture, and the clusters that were found.

        Parameters
        ----------
        **kwargs : object
            What the notebook says of it.
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
        told = {"profiles": getattr(self, "profiles_", None)}
        told["stability"] = getattr(self, "stability_", None)
        history = {name: plain(each.plain()) for name, each in told.items() if each is not None}
        return clusters_table(Run(model=Model.from_estimator(self).plain(), history=history))

    @property
    def cluster_names_(self) -> tuple[str, ...]:
        """What the clusters are called; () where they have no names.

        A fit with ``profile`` proposes names. Others can be set, and `save` keeps them.
        """
        check_is_fitted(self)
        names: tuple[str, ...] = self.__dict__.get("_cluster_names", ())
        return names

    @cluster_names_.setter
    def cluster_names_(self, names: Iterable[str]) -> None:
        self._cluster_names = checked_names(tuple(names), self.n_clusters_)

    def save(self, path: str | Path) -> None:
        """Write a fitted estimator as a model file: all that `predict` needs, as JSON.

        It is the ``model.json`` of the commands, which read it, too; it holds no rows, labels or
        rounds.

        Parameters
        ----------
        path : str or Path
            The file, whose name ends in ``.json``.

        Raises
        ------
        InputError
            If a parameter is one that no file can hold, such as a function.
        """
        check_is_fitted(self)
        check_savable(self.get_params(deep=False))
        Model.from_estimator(self).save(path)

    @classmethod
    def load(cls, path: str | Path, algorithms: Iterable[str | type] = ()) -> Self:
        """Return a fitted estimator from a model file, of `save` or of a command.

        It has its parameters, and predicts as the one that was saved, to the bit. What is known
        of the fit besides, such as ``labels_`` and ``history_``, is not in the file.

        Parameters
        ----------
        path : str or Path
            The file, or the folder of a fit.
        algorithms : iterable of str or type
            Algorithms of your own that may assign rows, as of `Model.load`.

        Raises
        ------
        InputError
            If it is no such file, or that of another estimator.

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
        for name in ("selection_", "history_", "stop_reason_"):  # not in the file
            delattr(self, name)
        self.n_iter_, self.sites_ = model.rounds, model.sites
        self.steps_ = list(model.algorithm.get("steps", ()))
        self.n_features_in_ = len(model.columns)
        self._cluster_names = model.names
        self.privacy_ = PrivacySpent(**model.privacy) if model.privacy else None
        self.objective_ = str(model.algorithm.get("objective", "inertia"))
        if list(model.columns) != [f"x{j}" for j in range(len(model.columns))]:
            self.feature_names_in_ = np.array(model.columns, dtype=object)
        return self

    def _keep_preparation(self, preprocessor: Preprocessor | None, *, private: bool) -> None:
        """Keep what is done to rows; users do not see what a privacy budget alone does."""
        self.preprocessor_ = None if private else preprocessor
        self._box_ = preprocessor if private else None

    def _keep_clusters(self, value: Result | Selection) -> Result:
        self.selection_ = value if isinstance(value, Selection) else None
        result = value.results[value.n_clusters] if isinstance(value, Selection) else value
        self.state_, self.algorithm_ = result.state, result.algorithm
        self.n_clusters_ = len(result.state.centers) or len(result.state.weights)
        centers, box = result.state.centers, self._box_
        self.cluster_centers_ = centers if box is None else box.invert(centers)
        self.cluster_weights_ = result.state.weights
        self.inertia_ = result.state.inertia
        self.history_ = [_as_dict(done) for done in result.history]
        self.stop_reason_ = result.reason
        return result

    def _keep_profiles(self, profiles: Profiles | None) -> None:
        self.profiles_ = profiles
        self._cluster_names = () if profiles is None else profiles.names

    def _labels(self, rows: Rows) -> Labels:
        return self._assignment.labels(rows)

    @property
    def _assignment(self) -> Assignment:
        """How prepared rows are assigned to the clusters."""
        state = self.state_
        if self._box_ is None:
            state = replace(state, centers=self.cluster_centers_)
        return Assignment(state, self.algorithm_, getattr(self, "m", None))

    @property
    def _has_gaps(self) -> bool:
        """Whether prepared rows keep missing values."""
        return self.preprocessor_ is not None and self.preprocessor_.missing == "ignore"

    @property
    def _n_features_out(self) -> int:
        return int(self.n_clusters_)

    @property
    def row_form_(self) -> RowForm:
        """What new rows must hold, and how they are prepared."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{j}" for j in range(self.n_features_in_)]
        preprocessor = self.preprocessor_ if self._box_ is None else self._box_
        return RowForm(tuple(map(str, names)), preprocessor, type(self).__name__)

    def _rows(self, X: Any) -> Rows:
        """Return rows to predict as they are clustered, (n, p); site after site."""
        return self.row_form_.prepared(X)

    def _within_bounds(self, X: Any, box: Preprocessor) -> Rows:
        """Return rows (n, d) in the units of the columns, moved within the bounds of a budget."""
        form = replace(self.row_form_, preprocessor=replace(box, box=False))
        return box.invert(form.prepared(X).astype(np.float64))
