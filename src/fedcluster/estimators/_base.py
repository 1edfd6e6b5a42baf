"""Base of both estimators: reads tables by site, carries the fit out and keeps its results."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from fedcluster._assignment import Assignment
from fedcluster._choices import (
    PROTECTIONS,
    QUALITIES,
    RULES,
    Init,
    Protection,
    Quality,
    RuleName,
    Scale,
)
from fedcluster._report._messages import few_clusters_line, groups_line, limit_line
from fedcluster.client import Client
from fedcluster.core import (
    Assigns,
    Column,
    Data,
    Engine,
    Floats,
    Iteration,
    Labels,
    Result,
    Rows,
)
from fedcluster.engines import LocalEngine
from fedcluster.errors import InputError
from fedcluster.estimators._inputs import (
    FLOATS,
    check_clusters,
    check_engine_alone,
    check_width,
    checked_algorithm,
    checked_init,
    columns_told,
    dates_of,
    names_site,
    no_times,
    one_of,
    path_reader,
    prepared_rows,
    read_sites,
    wanted,
    whole,
)
from fedcluster.estimators._progress import rounds_said, say
from fedcluster.estimators._saved import check_savable, kind_of, parameters_of
from fedcluster.io._frames import GivenTable, ReadPath, by_site, finite, in_order, numeric
from fedcluster.io._rows import batches, chunks_of
from fedcluster.jobs import Fit, execute, limits_of
from fedcluster.model import Model
from fedcluster.preprocessing import Category, PreprocessingSpec, Preprocessor
from fedcluster.preprocessing._transform import on_whole_rows
from fedcluster.privacy import Groups
from fedcluster.selection import Rule, Selection


def _has_memberships(estimator: Any) -> bool:
    return hasattr(estimator, "m") or isinstance(estimator.algorithm, Assigns)


def _as_dict(done: Iteration) -> dict[str, Any]:
    """Return the record of a round as `dataclasses.asdict`, without its time for many sites."""
    named = {each.name: getattr(done, each.name) for each in fields(done)}
    return {**named, "values_sent": dict(done.values_sent)}


JOINED = 1 << 14
"""Rows of small sites that are labelled at once."""

JOB = frozenset(each.name for each in fields(Fit))
"""The parameters of an estimator that are those of a job."""


@dataclass(eq=False, repr=False)
class Federated(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Estimator that fits centres to the rows of several sites; a subclass checks its algorithm."""

    _: KW_ONLY
    algorithm: Any = "auto"
    init: Init | ArrayLike | Callable[..., Any] = "auto"
    n_init: int | Literal["auto"] = "auto"
    max_iter: int = 300
    tol: float = 1e-4
    random_state: int | RandomState | None = None
    min_cluster_size: int | Literal["auto"] = "auto"
    participation: float = 1.0
    quality: Quality = "good"
    sums_only: bool = False
    prepare: Scale | PreprocessingSpec | None = None
    rule: RuleName | Rule = "likelihood"
    protection: Protection | Groups | None = None
    verbose: int = 0

    _names: ClassVar[Collection[str]]
    _counted: ClassVar[str] = "n_clusters"

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that sparse rows are taken, and made dense."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self,
        X: Any = None,
        y: Any = None,
        *,
        sites: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        engine: Engine | None = None,
    ) -> Self:
        """Cluster the rows of all sites.

        Parameters
        ----------
        X : dict or list of tables, or one of them
            One table (n_i, d) for each site; or one table whose rows ``sites`` assigns. A table
            is an array, a data frame, a sparse matrix or AnnData, which become dense, `Data`, or
            the path of a file.
        y : ignored
        sites : array-like of shape (n,) or str, optional
            For one table: the site of each row, or the name of the column that holds it, of a data
            frame, which is then not clustered by, or of ``obs`` of AnnData.
        sample_weight : like X, or array-like of shape (n,), optional
            Weight of each row.
        groups : like X, or array-like of shape (n,), optional
            Whose row each is, where one person has many: limits then count persons. The same name
            at two sites is two persons, since no site knows another's.
        engine : Engine, optional
            The sites themselves, in the place of all of these; as `fit_engine`.

        Returns
        -------
        Self
            The fitted estimator itself.
        """
        if engine is not None:
            check_engine_alone(X, sites, sample_weight, groups)
            return self.fit_engine(engine)
        parts = by_site(X, sites, sample_weight, groups, self._path_reader())
        data = self._read(parts)
        job = self._job(sum(map(len, data.values())))
        limits = limits_of(job, self._smallest(), alone=len(parts) == 1 and not parts[0].where)
        engine = LocalEngine(
            Client(name, rows, limits, self._protection()) for name, rows in data.items()
        )
        self._fit(engine, job, getattr(self, "feature_names_in_", None))
        self._label(engine)
        self.labels_: Labels = np.empty_like(self.labels_)
        for part in parts:
            self.labels_[part.place] = self.site_labels_[part.name]
        return self

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

    def fit_clients(self, clients: Iterable[Client], columns: Sequence[str] | None = None) -> Self:
        """Cluster the rows of sites that answer for themselves, each with its own limits.

        Where rows come in chunks, the start is found from sums alone, unless ``init`` says
        otherwise: no site then holds all its rows at once. ``min_cluster_size`` is the sites'.

        Parameters
        ----------
        clients : iterable of Client
            The sites.
        columns : sequence of str, optional
            The names of the columns.

        Returns
        -------
        Self
            The fitted estimator itself; ``labels_`` come site after site, in the order of names.

        Examples
        --------
        >>> from fedcluster import Client, Data, FederatedKMeans
        >>> north = Client("north", Data(np.array([[0.0], [1.0], [2.0]])))
        >>> south = Client("south", Data(np.array([[8.0], [9.0], [10.0]])))
        >>> FederatedKMeans(2, random_state=0).fit_clients([north, south]).cluster_centers_
        array([[1.],
               [9.]])
        """
        engine = LocalEngine(clients)
        rows = [client.source for client in engine.clients.values()]
        self.n_features_in_ = next(iter(chunks_of(rows[0]))).X.shape[1]
        self._fit(engine, self._job(sum(map(len, rows))), columns)
        self._label(engine)
        return self

    def fit_engine(self, engine: Engine, columns: Sequence[str] | None = None) -> Self:
        """Cluster the rows of the sites of any engine, which need not be in this process.

        As there are no rows here, there are no ``labels_``, ``site_labels_``,
        ``rows_held_back_`` and ``lone_rows_``; each site can label its own rows by a `Model`.

        Parameters
        ----------
        engine : Engine
            The sites: a `PooledEngine`, or an engine that asks over a network.
        columns : sequence of str, optional
            The names of the columns; by default the sites are asked for them.

        Returns
        -------
        Self
            The fitted estimator itself.

        Raises
        ------
        InputError
            If two sites have other columns, or the same in another order.

        Examples
        --------
        >>> from fedcluster import Data, FederatedKMeans
        >>> from fedcluster.engines import PooledEngine
        >>> rows = Data(np.array([[0.0], [1.0], [2.0], [8.0], [9.0], [10.0]]))
        >>> engine = PooledEngine(rows, sites=["a", "b", "a", "b", "a", "b"])
        >>> FederatedKMeans(2, random_state=0).fit_engine(engine).cluster_centers_
        array([[1.],
               [9.]])
        """
        sites = engine.introduce()
        if columns is None and wanted(self.prepare) is None:
            columns = columns_told(engine)
        n_rows = sum(math.inf if site.n_rows is None else site.n_rows for site in sites)
        self._fit(engine, self._job(n_rows), columns or ())
        if list(self.feature_names_in_) == [f"x{j}" for j in range(self.n_features_in_)]:
            del self.feature_names_in_  # arrays have no names
        return self

    def _fit(self, engine: Engine, job: Fit, columns: Sequence[str] | None) -> None:
        """Carry a job out and keep its results; ``columns`` are None where rows have no names."""
        for name in ("labels_", "site_labels_", "rows_held_back_", "lone_rows_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        names = [f"x{j}" for j in range(self.n_features_in_)] if columns is None else columns
        watch = rounds_said() if self.verbose else None
        report = execute(job, engine, columns=names, watch=watch)
        if columns is not None:
            self.feature_names_in_ = np.array(report.columns, dtype=object)
            self.n_features_in_ = len(report.columns)
        self.preprocessor_: Preprocessor | None = report.preprocessor
        self.fit_report_ = None if report.preprocessor is None else report.fit_report
        self.n_iter_ = len(report.outcome.communication_rounds)
        self.values_sent_ = report.outcome.values_sent()
        self.communication_rounds_ = report.outcome.account()
        self.sites_, self.steps_ = report.sites, list(report.outcome.steps)
        result = self._keep_clusters(report.outcome.value)
        if self.verbose:
            say(f"{self.stop_reason_}; {self.n_iter_} rounds with the sites")
        for line in limit_line(job, result):
            warnings.warn(line, ConvergenceWarning, stacklevel=3)
        for line in (*report.fit_report.warnings, *groups_line(report.sites, self.n_clusters_)):
            warnings.warn(line, UserWarning, stacklevel=3)

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

    @property
    def centers_frame_(self) -> Any:
        """The centres as a data frame of pandas, (k, columns), in the units of the rows.

        What ``prepare`` did is undone; of a column of text, it has the share of each level.
        """
        check_is_fitted(self)
        try:
            import pandas as pd  # nothing else needs it
        except ImportError as error:
            raise InputError("this needs pip install 'fedcluster[pandas]'") from error
        index = pd.RangeIndex(self.n_clusters_, name="cluster")
        return pd.DataFrame(Model.from_estimator(self).centers_in_units, index=index)

    @property
    def profile_(self) -> Any:
        """The clusters as a data frame of pandas: ``size``, ``share``, and `centers_frame_`.

        The size is the weight of the rows behind the centre, the share that of all of these. A
        centre of exact k-means is the mean of its rows.
        """
        frame = self.centers_frame_
        size = self.cluster_weights_
        frame.insert(0, "share", size / size.sum(), allow_duplicates=True)
        frame.insert(0, "size", size, allow_duplicates=True)
        return frame

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
        if list(model.columns) != [f"x{j}" for j in range(len(model.columns))]:
            self.feature_names_in_ = np.array(model.columns, dtype=object)
        return self

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

    @property
    def _k(self) -> Any:
        """The number of clusters, or the numbers to choose from."""
        return getattr(self, self._counted)

    def _job(self, n_rows: float) -> Fit:
        """Return the parameters, checked against the number of rows."""
        check_clusters(self._k, n_rows)
        whole("max_iter", self.max_iter)
        if self.n_init != "auto":
            whole("n_init", self.n_init)
        if not self.tol >= 0:
            raise ValueError(f"tol must be at least 0, not {self.tol}")
        if not 0 < self.participation <= 1:
            raise ValueError(
                f"participation must be above 0 and at most 1, not {self.participation}"
            )
        one_of("quality", self.quality, QUALITIES)
        seed = self.random_state
        checked = {
            "n_clusters": self._k,
            "algorithm": self._algorithm(),
            "init": checked_init(self.init, self._k),
            "seed": seed if isinstance(seed, Integral) else check_random_state(seed),
            "n_init": None if self.n_init == "auto" else self.n_init,
            "prepare": wanted(self.prepare),
            "rule": self.rule
            if isinstance(self.rule, Rule)
            else Rule(one_of("rule", self.rule, RULES)),
        }
        given = {name: value for name, value in self.get_params(deep=False).items() if name in JOB}
        return Fit(**{**given, **checked})

    def _algorithm(self) -> Any:
        """Return what to fit by: a name or an algorithm object, checked."""
        return checked_algorithm(self.algorithm, self._k, self._names)

    def _protection(self) -> Groups | None:
        """Return how rows are grouped, None where they are not."""
        if self.protection is None or isinstance(self.protection, Groups):
            return self.protection
        one_of("protection", self.protection, PROTECTIONS)
        scale = "none" if wanted(self.prepare) is None else "standard"
        return Groups(scale=scale) if self.protection == "groups" else None

    def _smallest(self) -> int | None:
        """Return the smallest cluster that a site sends; None where the algorithm decides."""
        if self.min_cluster_size == "auto":
            return None
        whole("min_cluster_size", self.min_cluster_size)
        return int(self.min_cluster_size)

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

    def _label(self, engine: LocalEngine) -> None:
        """Label the rows of all sites, few at a time, and keep what the sites' logs say."""
        clients = engine.clients
        sources = [client.source for client in clients.values()]
        chunks = (self._prepared(chunk) for source in sources for chunk in chunks_of(source))
        self.labels_ = np.concatenate([self._labels(rows) for rows in batches(chunks, JOINED)])
        parts = np.split(self.labels_, np.cumsum(list(map(len, sources)))[:-1])
        self.site_labels_: dict[str, Labels] = dict(zip(clients, parts, strict=True))
        self.rows_held_back_ = {name: c.most_rows_held_back for name, c in clients.items()}
        self.lone_rows_ = {name: c.most_lone_rows for name, c in clients.items()}
        for line in few_clusters_line([self.labels_], self.n_clusters_):
            warnings.warn(line, ConvergenceWarning, stacklevel=3)

    def _read(self, parts: Sequence[GivenTable]) -> dict[str, Data]:
        """Return the sites' rows; keep the number and the names of their columns."""
        wish = wanted(self.prepare)
        raw, dates = wish is not None, {} if wish is None else wish.dates
        data, table = read_sites(parts, raw=raw, dates=dates), parts[0].table
        first = next(iter(data.values()))
        if not raw and not isinstance(table, Data):
            with names_site(parts[0].where):
                validate_data(self, table, skip_check_array=True)
            columns = tuple(map(Column, getattr(self, "feature_names_in_", ())))
            return {name: replace(rows, columns=columns) for name, rows in data.items()}
        if first.columns:
            self.feature_names_in_ = np.array([c.name for c in first.columns], dtype=object)
        else:
            self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = first.X.shape[1]
        return data

    def _path_reader(self) -> ReadPath:
        """Return a function that reads a file in a table's place, as ``prepare`` needs it."""
        wish = wanted(self.prepare)
        if wish is None:
            return path_reader(raw=False)
        return path_reader(raw=True, coded=tuple(wish.named), dates=wish.dates)

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
        numeric(table, part.where)
        with names_site(part.where):
            rows: Rows = validate_data(
                self, table, reset=False, dtype=FLOATS, ensure_all_finite=False
            )
        finite(table, rows, part.where)
        return rows
