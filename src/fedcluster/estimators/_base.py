"""Base of the estimators: reads tables by site, carries the fit out and keeps its results."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import partial
from itertools import count, pairwise
from numbers import Integral
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from fedcluster.core import Data, Engine, Labels, RowStream
from fedcluster.engines import LocalEngine
from fedcluster.engines.batched import Stacked
from fedcluster.engines.client import Client
from fedcluster.errors import listed
from fedcluster.estimators._fitted import Fitted
from fedcluster.estimators._inputs import (
    check_clusters,
    checked_algorithm,
    checked_init,
    disclosed_columns,
    is_plain,
    one_of,
    read_sites,
    roles_for,
    wanted,
    whole,
)
from fedcluster.io.inputs import SiteTable, by_site
from fedcluster.io.reader import ColumnRoles
from fedcluster.io.rows import batches, chunks_of
from fedcluster.io.sources import read_file
from fedcluster.jobs import Fit, JobReport, execute, limits_of, procedure_of
from fedcluster.options.choices import (
    PROTECTIONS,
    QUALITIES,
    RULES,
    Init,
    Protection,
    Quality,
    RuleName,
    Scale,
)
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.privacy import Groups
from fedcluster.report.messages import few_clusters_line, groups_line, limit_line
from fedcluster.rounds import CommunicationRound
from fedcluster.selection import Rule

JOINED = 1 << 18
"""Values of small sites that are labelled at once; to copy those of large ones costs more."""

JOB = frozenset(each.name for each in fields(Fit))
"""The parameters of an estimator that are those of a job."""


@dataclass(eq=False, repr=False)
class Federated(Fitted):
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
    profile: bool = False
    stability: bool | int = False

    _counted: ClassVar[str] = "n_clusters"

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
            is an array, a data frame, an Arrow table, a sparse matrix or AnnData, which become
            dense, `Data`, or the path of a file.
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
            if any(each is not None for each in (X, sites, sample_weight, groups)):
                raise refused("engine-rows")
            return self.fit_engine(engine)
        engine, job, places = self._in_process(X, sites, sample_weight, groups)
        columns = getattr(self, "feature_names_in_", None)
        self._keep(job, execute(job, engine, **self._terms(columns)), columns)
        self._label(engine)
        back = np.empty_like(places)
        back[places] = np.arange(len(places))
        self.labels_: Labels = self.labels_[back]
        return self

    def fit_clients(self, clients: Iterable[Client], columns: Sequence[str] | None = None) -> Self:
        """Cluster the rows of sites that answer for themselves, each with its own limits.

        Where rows come in chunks, the start is found from sums alone, unless ``init`` says
        otherwise: no site then holds all its rows at once. ``min_cluster_size`` and
        ``protection`` are the sites' own, and are refused here.

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
        self._check_sites_own()
        engine = LocalEngine(clients)
        rows = [client.source for client in engine.clients.values()]
        self.n_features_in_ = next(iter(chunks_of(rows[0]))).X.shape[1]
        job = self._job(sum(map(len, rows)))
        self._keep(job, execute(job, engine, **self._terms(columns)), columns)
        self._label(engine)
        return self

    def fit_engine(self, engine: Engine, columns: Sequence[str] | None = None) -> Self:
        """Cluster the rows of the sites of any engine, which need not be in this process.

        As there are no rows here, there are no ``labels_``, ``site_labels_``,
        ``rows_held_back_`` and ``lone_rows_``; each site can label its own rows by a `Model`.

        Parameters
        ----------
        engine : Engine
            The sites: a `LocalEngine`, or an engine that asks over a network.
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
        >>> from fedcluster import Data, FederatedKMeans, LocalEngine
        >>> rows = Data(np.array([[0.0], [1.0], [2.0], [8.0], [9.0], [10.0]]))
        >>> engine = LocalEngine.from_table(rows, sites=["a", "b", "a", "b", "a", "b"])
        >>> FederatedKMeans(2, random_state=0).fit_engine(engine).cluster_centers_
        array([[1.],
               [9.]])
        """
        self._check_sites_own()
        sites = engine.introduce()
        if columns is None and wanted(self.prepare) is None:
            columns = disclosed_columns(engine)
        n_rows = sum(math.inf if site.n_rows is None else site.n_rows for site in sites)
        job, columns = self._job(n_rows), columns or ()
        self._keep(job, execute(job, engine, **self._terms(columns)), columns)
        if list(self.feature_names_in_) == [f"x{j}" for j in range(self.n_features_in_)]:
            del self.feature_names_in_  # arrays have no names
        return self

    def _check_sites_own(self) -> None:
        """Refuse limits for sites that answer for themselves."""
        for option, default in (("min_cluster_size", "auto"), ("protection", None)):
            if getattr(self, option) != default:
                raise refused("clients-limits", option=option)

    def _terms(self, columns: Sequence[str] | None) -> dict[str, Any]:
        """Return how a job is carried out; ``columns`` are None where rows have no names."""
        names = [f"x{j}" for j in range(self.n_features_in_)] if columns is None else columns
        return {"columns": names, "watch": _printed_rounds() if self.verbose else None}

    def _keep(self, job: Fit, report: JobReport, columns: Sequence[str] | None) -> None:
        """Keep the results of a job, in place of those of an earlier fit."""
        for name in ("labels_", "site_labels_", "rows_held_back_", "lone_rows_"):
            self.__dict__.pop(name, None)
        if columns is not None:
            self.feature_names_in_ = np.array(report.columns, dtype=object)
            self.n_features_in_ = len(report.columns)
        self._keep_preparation(report.preprocessor, private=report.privacy is not None)
        self.fit_report_ = None if report.preprocessor is None else report.fit_report
        self.n_iter_ = len(report.outcome.communication_rounds)
        self.values_sent_ = report.outcome.values_sent()
        self.communication_rounds_ = report.outcome.account()
        self.sites_, self.steps_ = report.sites, list(report.outcome.steps)
        result = self._keep_clusters(report.outcome.value)
        self.profiles_ = report.profiles
        self._cluster_names = () if report.profiles is None else report.profiles.names
        self.stability_, self.privacy_ = report.stability, report.privacy
        self.influence_, self.objective_ = report.influence, report.objective
        if self.verbose:
            print(f"{self.stop_reason_}; {self.n_iter_} rounds with the sites")  # noqa: T201
        for line in limit_line(job, result):
            warnings.warn(line, ConvergenceWarning, stacklevel=3)
        for line in (*report.fit_report.warnings, *groups_line(report.sites, self.n_clusters_)):
            warnings.warn(line, UserWarning, stacklevel=3)

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

    def _in_process(
        self, X: Any, sites: Any, sample_weight: Any, groups: Any
    ) -> tuple[LocalEngine, Fit, NDArray[np.intp]]:
        """Return an engine of the sites that were given, the job, and where each row lies in X."""
        roles, protection = roles_for(wanted(self.prepare)), self._protection()
        as_is = protection is None and not roles.raw and sample_weight is None and groups is None
        if as_is and not isinstance(sites, str | None) and is_plain(X):
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = X.shape[1]
            job = self._job(len(X))
            table = Stacked.of(Data(X), sites, limits_of(job, self._smallest()))
            engine, places = LocalEngine(table), table.order
        else:
            parts = by_site(X, sites, sample_weight, groups, partial(read_file, roles))
            data = self._read(parts, roles)
            job = self._job(sum(map(len, data.values())))
            alone = len(parts) == 1 and not parts[0].where
            limits = limits_of(job, self._smallest(), alone=alone)
            engine = LocalEngine(Client(name, data[name], limits, protection) for name in data)
            every, place = np.arange(sum(map(len, data.values()))), {p.name: p.place for p in parts}
            places = np.concatenate([every[place[name]] for name in engine.clients])
        if (most := procedure_of(job).rows_per_person) is not None:
            for client in engine.clients.values():
                client.disclosure = replace(client.disclosure, rows_per_person=most)
        return engine, job, places

    def _label(self, engine: LocalEngine) -> None:
        """Label the rows of all sites, few at a time, and keep what the sites' logs say."""
        clients = engine.clients
        sources: list[Data | RowStream]
        if isinstance(clients, Stacked):
            sources, ends, most = [clients.data], clients.bounds[1:], clients.most
        else:
            sources = [client.source for client in clients.values()]
            ends, most = np.cumsum(list(map(len, sources))), partial(_each, clients)
        form, assignment = self.row_form_, self._model.assignment
        chunks = (form.aligned(chunk) for source in sources for chunk in chunks_of(source))
        joined = batches(chunks, JOINED // self.n_features_in_)
        self.labels_ = np.concatenate(list(map(assignment.labels, joined)))
        parts = (self.labels_[start:stop] for start, stop in pairwise([0, *ends.tolist()]))
        self.site_labels_: dict[str, Labels] = dict(zip(clients, parts, strict=True))
        self.rows_held_back_ = most("most_rows_held_back")
        self.lone_rows_ = most("most_lone_rows")
        for line in few_clusters_line([self.labels_], self.n_clusters_):
            warnings.warn(line, ConvergenceWarning, stacklevel=3)

    def _read(self, parts: Sequence[SiteTable], roles: ColumnRoles) -> dict[str, Data]:
        """Return the sites' rows; keep the number and the names of their columns."""
        data = read_sites(parts, roles)
        first = next(iter(data.values()))
        if first.columns and not roles.raw:
            data = {name: replace(rows, columns=first.columns) for name, rows in data.items()}
        if first.columns:
            self.feature_names_in_ = np.array([c.name for c in first.columns], dtype=object)
        else:
            self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = first.X.shape[1]
        return data


def _each(clients: Mapping[str, Client], what: str) -> dict[str, Any]:
    """Return an attribute of each client, by name."""
    return {name: getattr(client, what) for name, client in clients.items()}


def _printed_rounds() -> Callable[[CommunicationRound], None]:
    """Return what prints a line for each round with the sites as it ends, as scikit-learn does."""
    numbers = count(1)

    def show(done: CommunicationRound) -> None:
        tasks = Counter(done.steps)
        asked = ", ".join(f"{n} {step}" if n > 1 else step for step, n in tasks.items())
        sites = f"{len(done.answered)} sites" if len(done.answered) != 1 else "1 site"
        lacking = f", not {listed(list(done.missing))}" if done.missing else ""
        sent = sum(done.values_sent.values())
        line = f"{asked}; {sites} answered{lacking}, {sent:,} numbers"
        print(f"round {next(numbers)}: {line}")  # noqa: T201

    return show
