"""What both estimators share: reading tables by site, running a plan, keeping its results."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fedcluster._choices import INITS, QUALITIES, RULES
from fedcluster.client import Client
from fedcluster.core import (
    Algorithm,
    Data,
    Labels,
    Result,
    Rows,
    RowStream,
    check_step,
)
from fedcluster.engines import LocalEngine
from fedcluster.estimators._inputs import (
    FLOATS,
    most_clusters,
    no_times,
    one_of,
    path_reader,
    prepared_rows,
    read_sites,
    wanted,
    whole,
)
from fedcluster.io._frames import GivenTable, ReadPath, by_site, in_order
from fedcluster.jobs import Fit, JobReport, execute, limits_of
from fedcluster.kernels import nearest
from fedcluster.preprocessing import Category, FitReport, Preprocessor, on_whole_rows
from fedcluster.report import few_clusters_line
from fedcluster.selection import Rule, Selection

JOB = frozenset(each.name for each in fields(Fit))
"""The parameters of an estimator that are those of a job."""


class Federated(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Fit centres to the rows of several sites; what is fitted is the subclass's ``_algorithm``.

    A subclass has the parameters that `_job` reads.
    """

    n_clusters: Any
    algorithm: Any
    init: Any
    n_init: Any
    max_iter: int
    tol: float
    random_state: Any
    min_cluster_size: Any
    participation: float
    quality: str
    sums_only: bool
    prepare: Any
    rule: Any

    preprocessor_: Preprocessor | None
    fit_report_: FitReport | None
    labels_: Labels
    site_labels_: dict[str, Labels]

    _names: Collection[str]

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that sparse rows are taken, and made dense."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sites: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Self:
        """Cluster the rows of all sites.

        Parameters
        ----------
        X : dict or list of tables, or one of them
            One table (n_i, d) for each site; or one table whose rows ``sites`` assigns. A table
            is an array, a data frame, a sparse matrix or AnnData, which become dense, `Data`, or
            the path of a file.
        y : ignored
        sites : array-like of shape (n,), optional
            For one table: the site of each row.
        sample_weight : like X, or array-like of shape (n,), optional
            Weight of each row.
        groups : like X, or array-like of shape (n,), optional
            Whose row each is, where one person has many: limits then count persons. The same name
            at two sites is two persons, since no site knows another's.

        Returns
        -------
        Self
            The fitted estimator itself.
        """
        parts = by_site(X, sites, sample_weight, groups, self._path_reader())
        data = self._read(parts)
        job = self._job(sum(map(len, data.values())))
        limits = limits_of(job, self._smallest(), alone=len(parts) == 1 and not parts[0].where)
        self._fit(LocalEngine(Client(name, rows, limits) for name, rows in data.items()), data, job)
        labels = np.empty_like(self.labels_)
        for part in parts:
            labels[part.place] = self.site_labels_[part.name]
        self.labels_ = labels
        return self

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
        rows = {name: client.rows for name, client in engine.clients.items()}
        first = next(iter(_chunks(next(iter(rows.values())))))
        self.n_features_in_ = first.X.shape[1]
        if columns is not None:
            self.feature_names_in_ = np.array(columns, dtype=object)
        self._fit(engine, rows, self._job(sum(map(len, rows.values()))))
        return self

    def _fit(self, engine: LocalEngine, rows: Mapping[str, Data | RowStream], job: Fit) -> None:
        """Carry the fit out, label the rows, and keep the results."""
        columns = getattr(self, "feature_names_in_", range(self.n_features_in_))
        report = execute(job, engine, columns=[str(name) for name in columns])
        self.preprocessor_, self.fit_report_ = report.preprocessor, None
        if report.preprocessor is not None:
            self.fit_report_ = report.fit_report
            if hasattr(self, "feature_names_in_"):
                self.feature_names_in_ = np.array(report.columns, dtype=object)
                self.n_features_in_ = len(report.columns)
        self._keep_clusters(report.outcome.value)
        self._keep_labels(rows)
        self._keep_account(report, engine)

    def predict(self, X: Any) -> Labels:
        """The nearest centre of each row, (n,); of a dict or list, site after site.

        A row that the preparation drops has the label -1.
        """
        return self._labels(self._rows(X))

    def transform(self, X: Any) -> NDArray[Any]:
        """Euclidean distances of each row to each centre, (n, k)."""
        from sklearn.metrics.pairwise import euclidean_distances  # 7 MB that a fit does not need

        return on_whole_rows(
            lambda rows: np.asarray(euclidean_distances(rows, self.cluster_centers_)),
            self._rows(X),
            np.nan,
        )

    def _labels(self, rows: Rows) -> Labels:
        return on_whole_rows(lambda whole: nearest(whole, self.cluster_centers_)[0], rows, -1)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _job(self, n_rows: int) -> Fit:
        """Return the parameters, checked against the number of rows."""
        most_clusters(self.n_clusters, n_rows)
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
            "algorithm": self._algorithm(),
            "init": self._init(),
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
        if isinstance(self.algorithm, str):
            return one_of("algorithm", self.algorithm, self._names, "an algorithm object")
        if isinstance(self.algorithm, type):
            name = self.algorithm.__name__
            raise ValueError(f"algorithm is the class {name}; give an object of it, as in {name}()")
        check_step(self.algorithm, Algorithm)
        own = getattr(self.algorithm, "n_clusters", self.n_clusters)
        if own != self.n_clusters:
            raise ValueError(f"n_clusters={self.n_clusters}, but algorithm is {self.algorithm!r}")
        return self.algorithm

    def _init(self) -> Any:
        """Return where to start, checked as far as it can be without the rows."""
        if callable(self.init):
            return self.init
        if isinstance(self.init, str):
            return one_of("init", self.init, INITS, "an array or a callable")
        if not isinstance(self.n_clusters, Integral):
            raise ValueError(
                f"init is an array, which is a start for one number of clusters, but n_clusters="
                f"{self.n_clusters!r}; give init by name"
            )
        return check_array(self.init, dtype=np.float64)

    def _smallest(self) -> int | None:
        """Return the smallest cluster that a site sends; None where the algorithm decides."""
        if self.min_cluster_size == "auto":
            return None
        whole("min_cluster_size", self.min_cluster_size)
        return int(self.min_cluster_size)

    def _keep_clusters(self, found: Result | Selection) -> None:
        self.selection_ = found if isinstance(found, Selection) else None
        result = found.results[found.n_clusters] if isinstance(found, Selection) else found
        self.n_clusters_ = len(result.state.centers)
        self.cluster_centers_ = result.state.centers
        self.cluster_weights_ = result.state.weights
        self.inertia_ = result.state.inertia
        self.history_ = [asdict(done) for done in result.history]
        self.stop_reason_ = result.reason

    def _keep_labels(self, rows: Mapping[str, Data | RowStream]) -> None:
        """Each site labels its own rows, one site after the other and chunk by chunk."""
        self.labels_ = np.empty(sum(map(len, rows.values())), dtype=np.int32)
        self.site_labels_, start = {}, 0
        for name, given in rows.items():
            first = start
            for chunk in _chunks(given):
                labels = self._labels(self._prepared(chunk))
                self.labels_[start : start + len(chunk)] = labels
                start += len(chunk)
            self.site_labels_[name] = self.labels_[first:start]
        for line in few_clusters_line([self.labels_], self.n_clusters_):
            warnings.warn(line, ConvergenceWarning, stacklevel=4)

    def _keep_account(self, report: JobReport, engine: LocalEngine) -> None:
        """Keep what it took, and what the sites' logs say of it."""
        self.n_iter_ = len(report.outcome.communication_rounds)
        self.values_sent_ = report.outcome.values_sent()
        self.communication_rounds_ = report.outcome.account()
        self.sites_, self.steps_ = report.sites, list(report.outcome.steps)
        clients = engine.clients.items()
        self.rows_held_back_ = {name: client.most_rows_held_back for name, client in clients}
        self.lone_rows_ = {name: client.most_lone_rows for name, client in clients}

    def _read(self, parts: Sequence[GivenTable]) -> dict[str, Data]:
        """The sites' rows; keeps the number and the names of their columns."""
        raw = wanted(self.prepare) is not None
        data, table = read_sites(parts, raw=raw), parts[0].table
        first = next(iter(data.values()))
        if not raw and not isinstance(table, Data):
            validate_data(self, table, skip_check_array=True)
            return data
        if first.columns:
            self.feature_names_in_ = np.array([c.name for c in first.columns], dtype=object)
        else:
            self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = first.X.shape[1]
        return data

    def _path_reader(self) -> ReadPath:
        """What reads a file in a table's place, as ``prepare`` needs it."""
        wish = wanted(self.prepare)
        return path_reader(raw=wish is not None, coded=() if wish is None else tuple(wish.named))

    def _prepared(self, data: Data) -> Rows:
        """A site's own rows as they are clustered, NaN where a row is dropped."""
        if self.preprocessor_ is None:
            return data.X
        return prepared_rows(data, self.preprocessor_, self.n_features_in_, "")

    def _rows(self, X: Any) -> Rows:
        """Rows to predict, (n, d), checked as scikit-learn does; site after site."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        known = [] if self.preprocessor_ is None else self.preprocessor_.columns
        coded = [column.name for column in known if isinstance(column, Category)]
        columns = None if names is None else list(names)
        read_path = path_reader(raw=self.preprocessor_ is not None, columns=columns, coded=coded)
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
        """A site's rows with their columns as in the fit; a lone table must have them so."""
        no_times(part.table, part.where)
        names = getattr(self, "feature_names_in_", None)
        table = part.table
        if names is not None and (part.where or isinstance(table, Data)):
            table = in_order(table, list(names), part.where)
        if isinstance(table, Data):
            if table.X.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"{part.where}X has {table.X.shape[1]} features, but {self.n_features_in_} "
                    "were fitted"
                )
            return table.X
        rows: Rows = validate_data(self, table, reset=False, dtype=FLOATS)
        return rows


def _chunks(rows: Data | RowStream) -> Iterable[Data]:
    return [rows] if isinstance(rows, Data) else rows.chunks()
