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
from sklearn.utils.validation import check_is_fitted, validate_data

from fedcluster._assignment import Assignment
from fedcluster._cluster_names import checked_names
from fedcluster._pages._notebook import clusters_table
from fedcluster._pages._run import Run
from fedcluster._profiles import Profiles
from fedcluster._report._tables import plain
from fedcluster.core import (
    Assigns,
    Data,
    Floats,
    Iteration,
    Labels,
    Result,
    Rows,
)
from fedcluster.errors import InputError
from fedcluster.estimators._inputs import (
    FLOATS,
    check_width,
    dates_of,
    is_plain,
    names_site,
    no_times,
    path_reader,
    prepared_rows,
)
from fedcluster.estimators._profile_frame import pandas, profile_frame
from fedcluster.estimators._saved import check_savable, kind_of, parameters_of
from fedcluster.io._frames import finite, in_order, numeric
from fedcluster.io._given import GivenTable, by_site
from fedcluster.model import Model
from fedcluster.preprocessing import Category
from fedcluster.preprocessing._transform import on_whole_rows
from fedcluster.recipes._private_fit import PrivacySpent
from fedcluster.selection import Selection


def _has_memberships(estimator: Any) -> bool:
    return hasattr(estimator, "m") or isinstance(estimator.algorithm, Assigns)


def _as_dict(done: Iteration) -> dict[str, Any]:
    """Return the record of a round as `dataclasses.asdict`, without its time for many sites."""
    named = {each.name: getattr(done, each.name) for each in fields(done)}
    return {**named, "values_sent": dict(done.values_sent)}


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
        of the columns in all by those (Dixon 1979).
        """
        from sklearn.metrics.pairwise import (  # 7 MB that a fit does not need
            euclidean_distances,
            nan_euclidean_distances,
        )

        rows = self._rows(X)
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
        self._keep_clusters(Result(model.state, (), "", model.assigned_by))
        for name in ("selection_", "history_", "stop_reason_"):  # not in the file
            delattr(self, name)
        self.n_iter_, self.sites_ = model.rounds, model.sites
        self.steps_ = list(model.algorithm.get("steps", ()))
        self.preprocessor_, self.n_features_in_ = model.preprocessor, len(model.columns)
        self._cluster_names = model.names
        self.privacy_ = PrivacySpent(**model.privacy) if model.privacy else None
        if list(model.columns) != [f"x{j}" for j in range(len(model.columns))]:
            self.feature_names_in_ = np.array(model.columns, dtype=object)
        return self

    def _keep_clusters(self, value: Result | Selection) -> Result:
        self.selection_ = value if isinstance(value, Selection) else None
        result = value.results[value.n_clusters] if isinstance(value, Selection) else value
        self.state_, self.algorithm_ = result.state, result.algorithm
        self.n_clusters_ = len(result.state.centers) or len(result.state.weights)
        self.cluster_centers_ = result.state.centers
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
        state = replace(self.state_, centers=self.cluster_centers_)
        return Assignment(state, self.algorithm_, getattr(self, "m", None))

    @property
    def _has_gaps(self) -> bool:
        """Whether prepared rows keep missing values."""
        return self.preprocessor_ is not None and self.preprocessor_.missing == "ignore"

    @property
    def _n_features_out(self) -> int:
        return int(self.n_clusters_)

    def _prepared(self, data: Data) -> Rows:
        """Return a site's own rows as they are clustered, NaN where a row is dropped."""
        if self.preprocessor_ is None:
            return data.X
        return prepared_rows(data, self.preprocessor_, self.n_features_in_, "")

    def _rows(self, X: Any) -> Rows:
        """Return rows to predict, (n, d), checked as scikit-learn does; site after site."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        known = [] if self.preprocessor_ is None else self.preprocessor_.columns
        coded = [column.name for column in known if isinstance(column, Category)]
        columns = None if names is None else list(names)
        dates = None if self.preprocessor_ is None else dates_of(self.preprocessor_)
        read_path = path_reader(
            raw=self.preprocessor_ is not None, columns=columns, coded=coded, dates=dates
        )
        parts = by_site(X, read_path=read_path)
        if self.preprocessor_ is not None:
            checked = [
                prepared_rows(part.table, self.preprocessor_, self.n_features_in_, part.where)
                for part in parts
            ]
        else:
            checked = [self._in_order(part) for part in parts]
        rows: Rows = np.concatenate(checked) if len(checked) > 1 else checked[0]
        return rows

    def _in_order(self, part: GivenTable) -> Rows:
        """Return a site's rows with their columns as in the fit; a lone table must have them so."""
        no_times(part.table, part.where)
        names = getattr(self, "feature_names_in_", None)
        table = part.table
        if names is not None and (part.where or isinstance(table, Data)):
            table = in_order(table, list(names), part.where)
        if isinstance(table, Data):
            check_width(table, self.n_features_in_, part.where)
            return table.X
        if names is None and is_plain(table) and table.shape[1] == self.n_features_in_:
            return np.asarray(table)
        numeric(table, part.where)
        with names_site(part.where):
            rows: Rows = validate_data(
                self, table, reset=False, dtype=FLOATS, ensure_all_finite=False
            )
        finite(table, rows, part.where)
        return rows
