"""What both estimators share: reading tables by site, running a plan, keeping its results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import asdict
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

from fedcluster._choices import INITS, QUALITIES
from fedcluster.client import Client
from fedcluster.core import (
    ALGORITHM_DECLARES,
    Data,
    Filter,
    Labels,
    Result,
    Rows,
    RowStream,
    check_step,
)
from fedcluster.engines import LocalEngine
from fedcluster.estimators._checking import most_clusters, one_of, tried, whole
from fedcluster.estimators._preparing import prepared_rows, wanted
from fedcluster.estimators._reading import FLOATS, no_times, path_reader, read_sites
from fedcluster.io._frames import GivenTable, ReadPath, by_site, in_order
from fedcluster.kernels import nearest
from fedcluster.preprocessing import Category, FitReport, Fitted, Preprocessor, agree, on_whole_rows
from fedcluster.preprocessing import fit as fit_preprocessor
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.recipes import FitSpec, clustering, min_cluster_size
from fedcluster.rounds import CommunicationRound, Outcome, Plan, run_plan, with_preprocessing
from fedcluster.selection import Rule, Selection, select_k_plan


class Federated(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Fit centres to the rows of several sites; what is fitted is the subclass's ``_algorithm``.

    A subclass has the parameters that `_choice` reads.
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

    preprocessor_: Preprocessor | None
    fit_report_: FitReport | None
    labels_: Labels
    site_labels_: dict[str, Labels]

    _names: Collection[str]
    _watch: Callable[[CommunicationRound], None] | None = None
    _rule: Rule | None = None

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
        limits = self._filters(parts)
        self._fit(LocalEngine(Client(name, rows, limits) for name, rows in data.items()), data)
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
        self._fit(engine, rows)
        return self

    def _fit(self, engine: LocalEngine, rows: Mapping[str, Data | RowStream]) -> None:
        """Prepare, cluster, label, and keep what was found."""
        before = self._fit_preprocessor(engine)
        choice = self._choice(rows).at(engine.introduce())
        outcome = run_plan(
            with_preprocessing(self._plan(choice, rows), self.preprocessor_),
            engine,
            participation=self.participation,
            seed=choice.seed,
            watch=self._watch,
        )
        self._keep_clusters(outcome.value)
        self._keep_labels(rows)
        self._keep_account(Outcome(None, before + outcome.communication_rounds), engine)

    def _fit_preprocessor(self, engine: LocalEngine) -> tuple[CommunicationRound, ...]:
        """Agree on the columns and fit what ``prepare`` asks for; all sites are asked."""
        self.preprocessor_ = self.fit_report_ = None
        wish = wanted(self.prepare)
        if wish is None:
            return ()
        sites = engine.introduce(columns=True, texts=wish.named)
        schema = agree({site.name: site.columns for site in sites}, wish.columns)
        outcome: Outcome[Fitted] = run_plan(
            fit_preprocessor(wish, schema), engine, watch=self._watch
        )
        self.preprocessor_ = outcome.value.preprocessor
        self.fit_report_ = outcome.value.fit_report
        if hasattr(self, "feature_names_in_"):
            names = [column.name for column in self.preprocessor_.columns]
            self.feature_names_in_ = np.array(names, dtype=object)
            self.n_features_in_ = len(names)
        return outcome.communication_rounds

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

    @property
    def _width(self) -> int:
        """The columns of the rows as they are clustered."""
        return len(self.preprocessor_.names_out) if self.preprocessor_ else self.n_features_in_

    def _plan(self, choice: FitSpec, data: Mapping[str, Sized]) -> Plan[Result | Selection]:
        """Plan one clustering, or one for each number of clusters that is tried."""
        ks = tried(self.n_clusters, sum(map(len, data.values())))
        if ks is None:
            return (yield from clustering(choice))
        rule = self._rule or Rule()
        rule.check(self._width)
        return (yield from select_k_plan(ks, choice, rule))

    def _choice(self, data: Mapping[str, Sized]) -> FitSpec:
        """The parameters, checked against the data."""
        n_clusters = most_clusters(self.n_clusters, sum(map(len, data.values())))
        whole("max_iter", self.max_iter)
        if self.n_init != "auto":
            whole("n_init", self.n_init)
        if not self.tol >= 0:
            raise ValueError(f"tol must be at least 0, not {self.tol}")
        if not 0 < self.participation <= 1:
            raise ValueError(
                f"participation must be above 0 and at most 1, not {self.participation}"
            )
        return FitSpec(
            n_clusters=n_clusters,
            algorithm=self._algorithm(),
            init=self._init(),
            n_init=None if self.n_init == "auto" else self.n_init,
            tol=self.tol,
            max_rounds=self.max_iter,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            quality=one_of("quality", self.quality, QUALITIES),
            sums_only=bool(self.sums_only),
            m=getattr(self, "m", None),
        )

    def _algorithm(self) -> Any:
        """What to fit by: a name or an algorithm object, checked."""
        if isinstance(self.algorithm, str):
            return one_of("algorithm", self.algorithm, self._names, "an algorithm object")
        if isinstance(self.algorithm, type):
            name = self.algorithm.__name__
            raise ValueError(f"algorithm is the class {name}; give an object of it, as in {name}()")
        check_step(self.algorithm, ALGORITHM_DECLARES)
        own = getattr(self.algorithm, "n_clusters", self.n_clusters)
        if own != self.n_clusters:
            raise ValueError(f"n_clusters={self.n_clusters}, but algorithm is {self.algorithm!r}")
        return self.algorithm

    def _init(self) -> Any:
        if callable(self.init):
            return self.init
        if isinstance(self.init, str):
            return one_of("init", self.init, INITS, "an array or a callable")
        if not isinstance(self.n_clusters, Integral):
            raise ValueError(
                f"init is an array, which is a start for one number of clusters, but n_clusters="
                f"{self.n_clusters!r}; give init by name"
            )
        init = check_array(self.init, dtype=np.float64)
        if init.shape != (self.n_clusters, self._width):
            raise ValueError(
                f"init has shape {init.shape}, but n_clusters={self.n_clusters} and the rows have "
                f"{self._width} columns"
            )
        return init

    def _filters(self, parts: Sequence[GivenTable]) -> list[Filter]:
        """The limits of each site; the rows of one table without sites have nowhere to leave."""
        if self.min_cluster_size != "auto":
            whole("min_cluster_size", self.min_cluster_size)
            return [MinClusterSize(self.min_cluster_size)]
        p = min_cluster_size(self._algorithm())
        alone = len(parts) == 1 and not parts[0].where
        limits: list[Filter] = [] if alone else [MinRows(2)]
        return [*limits, MinClusterSize(p)] if p > 1 else limits

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
        found = sum(bool((self.labels_ == j).any()) for j in range(self.n_clusters_))
        if found < self.n_clusters_:
            warnings.warn(
                f"only {found} of {self.n_clusters_} clusters have rows: fewer distinct rows, or "
                "fewer centres from the sites, than clusters",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _keep_account(self, outcome: Outcome[Any], engine: LocalEngine) -> None:
        """What it took, and what the sites' logs say of it."""
        self.n_iter_ = len(outcome.communication_rounds)
        self.values_sent_ = outcome.values_sent()
        self.communication_rounds_ = outcome.account()
        self.sites_ = engine.introduce()
        logs = {name: client.audit_log for name, client in engine.clients.items()}
        self.steps_ = list(dict.fromkeys(m.step for log in logs.values() for m in log))
        self.rows_held_back_ = {
            name: min(max((m.held_back for m in log), default=0), len(engine.clients[name].rows))
            for name, log in logs.items()  # a row may stand behind several lines of a message
        }
        self.lone_rows_ = {
            name: max((m.lone_rows for m in log), default=0) for name, log in logs.items()
        }

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
