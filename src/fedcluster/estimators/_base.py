"""Base of the estimators: reads tables by site, runs the fit and keeps its results."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import count, pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state

from fedcluster import preprocessing
from fedcluster.core import Algorithm, Data, Engine, Labels, Rows, RowStream, check_step
from fedcluster.engines import LocalEngine
from fedcluster.engines.batched import Batch, Stacked
from fedcluster.engines.client import ONE_THREAD, Client
from fedcluster.errors import InputError, listed
from fedcluster.estimators._fitted import Fitted
from fedcluster.frames.cells import checked_how
from fedcluster.frames.columns import (
    SourceSummary,
    code_questions,
    columns_of,
    common_columns,
    common_levels,
    common_names,
    is_blank,
    is_numbered,
    own_names,
)
from fedcluster.frames.inputs import (
    FLOATS,
    SiteTable,
    by_site,
    column_names,
    file_reader,
    in_names,
    is_by_site,
    named_tables,
    read_table,
)
from fedcluster.frames.reader import ColumnRoles, check_no_total, each_site
from fedcluster.frames.rows import batches, chunks_of
from fedcluster.jobs import Fit, JobReport, execute, fit_of, procedure_of, tried
from fedcluster.jobs.doubts import (
    far_line,
    few_clusters_line,
    groups_line,
    limit_line,
    one_site_lines,
)
from fedcluster.model.file import Model
from fedcluster.options.choices import (
    INITS,
    PARTS,
    PROTECTIONS,
    RULES,
    SCALES,
    Init,
    Protection,
    RuleName,
    Scale,
)
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import FitReport, PreprocessingSpec
from fedcluster.preprocessing.spec import MOST_CATEGORIES
from fedcluster.preprocessing.transform import preparation
from fedcluster.privacy import Groups
from fedcluster.privacy.disclosure import Disclosure
from fedcluster.recipes.specifications import WORDS, Rule, in_python
from fedcluster.rounds import CommunicationRound
from fedcluster.texts import for_python, some_of


def roles_for(prepare: PreprocessingSpec | None) -> ColumnRoles:
    """Return the roles of all columns of rows to fit; rows to be prepared may have text."""
    if prepare is None:
        return ColumnRoles()
    dates = prepare.dates
    coded, numeric = tuple(prepare.named), frozenset(dates)
    return ColumnRoles(raw=True, coded=coded, dates=dates, numeric=numeric, named=prepare.said)


def read_sites(parts: Sequence[SiteTable], roles: ColumnRoles) -> dict[str, Data]:
    """Return the sites' rows, with columns in the order of the first site.

    Rows that are to be prepared keep their own columns, text and missing values.
    """
    raw = roles.raw
    if raw:
        parts = _in_common_names(parts, roles.said)
    names = None if raw else column_names(parts[0].table)
    plain = not raw and all(is_plain(part.table) for part in parts)
    data: dict[str, Data] = {}

    def rows_of(part: SiteTable, roles: ColumnRoles) -> Data:
        if plain:
            return Data(part.table)
        return read_table(part.table, _roles_of(part, names, roles), part.owner)

    for part, rows in zip(parts, each_site(parts, roles, rows_of), strict=True):
        check_no_total(part.owner, rows)
        data[part.name] = _with_weights(rows, part)
    if raw:
        data = common_levels(data, MOST_CATEGORIES, roles.coded)
        for line in code_questions(data).values():
            warnings.warn(for_python(line), UserWarning, stacklevel=4)
        _check_dates(data, roles.dates)
    if not (raw and next(iter(data.values())).columns):
        _check_widths(data)
    return data


def _check_widths(data: Mapping[str, Data]) -> None:
    """Raise an error for sites whose rows differ in their number of columns."""
    widths = {name: rows.X.shape[1] for name, rows in data.items()}
    if len(set(widths.values())) > 1:
        raise ValueError(f"every site must have the same number of columns, not {widths}")


def _in_common_names(parts: Sequence[SiteTable], names: Sequence[str]) -> list[SiteTable]:
    """Return tables with common spellings of column names, where the match is certain."""
    named = {part.owner: column_names(part.table) or () for part in parts}
    every = common_names(named, names, "{}")
    return [replace(part, table=in_names(part.table, every[part.owner])) for part in parts]


def _roles_of(part: SiteTable, names: list[str] | None, roles: ColumnRoles) -> ColumnRoles:
    """Return the roles of a site's columns: those of the first site, if all must have them."""
    have = column_names(part.table)
    if names is None or have is None:
        return roles
    if len(have) > len(names):
        known = {*names, *own_names(have, names).values()}
        more = ", ".join(repr(name) for name in have if name not in known)
        raise ValueError(
            f"{part.where}columns: it alone has {more}; every site must have the same columns"
        )
    return replace(roles, values=tuple(names))


def _check_dates(data: Mapping[str, Data], dates: Mapping[str, str]) -> None:
    """Raise an error for converting dates in a column that no site has, or that has no dates."""
    for name in dates:
        held = [c for rows in data.values() for c in columns_of(rows) if c.name == name]
        if not held:
            raise ValueError(f"dates= names {name!r}, and no site has such a column")


def _with_weights(rows: Data, part: SiteTable) -> Data:
    """Return a site's rows with the given weights and persons."""
    weight = read_weights(part.sample_weight, rows.X, part.where)
    groups = read_groups(part.groups, rows.X, part.where)
    if weight is None and groups is None and rows is not part.table:
        return rows
    return replace(
        rows,
        sample_weight=rows.sample_weight if weight is None else weight,
        groups=rows.groups if groups is None else groups,
    )


def is_plain(table: Any) -> bool:
    """Return whether a table consists of finite numbers that need no further check."""
    if type(table) is not np.ndarray or table.dtype not in FLOATS or table.ndim != 2:
        return False
    return table.size > 0 and bool(np.isfinite(table).all())


def _in_single(table: Any) -> Any:
    """Return an array of half precision in single precision, of which all sums are the same."""
    is_half = type(table) is np.ndarray and table.dtype == np.float16
    return table.astype(np.float32) if is_half else table


def _stacked(X: Any, sites: Any) -> Stacked | None:
    """Return sites of plain numbers, in one array or in many small ones, as one table."""
    if not isinstance(sites, str | None):
        return Stacked.of(Data(X), sites, ()) if is_plain(X) else None
    if sites is not None or not is_by_site(X) or len(X) < Batch.fewest:
        return None
    tables = dict(named_tables(X))
    if len(tables) < len(X) or {type(table) for table in tables.values()} != {np.ndarray}:
        return None
    first, *rest = ((each.dtype, each.shape[1:]) for each in tables.values())
    sizes = [each.size for each in tables.values()]
    if any(each != first for each in rest) or not 0 < min(sizes) <= max(sizes) <= ONE_THREAD:
        return None
    names, ends = sorted(tables), np.cumsum([len(table) for table in tables.values()])
    places = dict(zip(tables, np.split(np.arange(ends[-1]), ends[:-1]), strict=True))
    rows = np.concatenate([tables[name] for name in names])
    bounds = np.concatenate([[0], np.cumsum([len(tables[name]) for name in names])])
    order = np.concatenate([places[name] for name in names])
    return Stacked(names, Data(rows), bounds, (), order) if is_plain(rows) else None


def read_weights(sample_weight: Any, rows: Rows, where: str) -> NDArray[np.float64] | None:
    """Return the weights of a site's rows after checking that they are finite and not negative."""
    if sample_weight is None:
        return None
    try:
        weights = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}sample_weight must hold numbers: {error}") from error
    if weights.shape != rows.shape[:1]:
        raise ValueError(
            f"{where}sample_weight has shape {weights.shape}, but there are {len(rows)} rows"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError(f"{where}sample_weight must be finite and at least 0")
    if not weights.any():
        raise ValueError(f"{where}sample_weight is zero for every row")
    return weights


def read_groups(groups: Any, rows: Rows, where: str) -> NDArray[np.int64] | None:
    """Return the person of each of a site's rows as numbers, (n,), equal for equal names.

    Examples
    --------
    >>> read_groups(["ann", "bob", "ann "], np.zeros((3, 2)), "")
    array([0, 1, 0])
    """
    if groups is None:
        return None
    names = np.asarray(groups)
    if names.shape != rows.shape[:1]:
        raise ValueError(f"{where}groups has shape {names.shape}, but there are {len(rows)} rows")
    if names.dtype.kind not in "iub":
        nobody = [is_blank(name) for name in names.tolist()]
        if any(nobody):
            raise ValueError(f"{where}row {nobody.index(True)}: groups names no person")
        names = np.char.strip(names.astype(str))
    numbers: NDArray[np.int64] = np.unique(names, return_inverse=True)[1].astype(np.int64)
    return numbers


def disclosed_columns(engine: Engine) -> tuple[str, ...]:
    """Return the names of the columns, which all sites must have in the same order."""
    disclosed = {
        site.name: tuple(column.name for column in site.columns)
        for site in engine.introduce(columns=True)
        if site.answered
    }
    columns = common_columns(disclosed)
    for site, names in disclosed.items():
        if names != columns:
            raise InputError(
                f"site {site!r} has its columns in another order than site "
                f"{next(iter(disclosed))!r}; let all sites read them in one order"
            )
    return columns


# Rows that are prepared


def wanted(prepare: Any) -> PreprocessingSpec | None:
    """Return the preprocessing that ``prepare=`` requests: None, a scale by name, or all of it."""
    if prepare is None:
        return None
    if isinstance(prepare, PreprocessingSpec):
        return replace(prepare, dates={c: checked_how(how) for c, how in prepare.dates.items()})
    if isinstance(prepare, str) and prepare in SCALES:
        return PreprocessingSpec(prepare)
    if isinstance(prepare, str) and prepare == "auto":
        return PreprocessingSpec(missing="mean")
    if all(hasattr(prepare, part) for part in PARTS):
        return PreprocessingSpec("none", then=preparation(prepare))
    known = ", ".join(map(repr, ("auto", *SCALES)))
    own = "a PreprocessingSpec or a preparation of your own"
    why = f"prepare must be None, one of {known}, {own}, not {prepare!r}"
    raise ValueError(why)


def _as_read(
    prepare: PreprocessingSpec | None, roles: ColumnRoles | None
) -> PreprocessingSpec | None:
    """Return the preprocessing with what comes first in dates, as later rows are read alike."""
    if prepare is None or roles is None:
        return prepare
    return replace(prepare, dates=roles.in_known_orders().dates)


def screened_rows(data: dict[str, Data], prepare: Any) -> tuple[dict[str, Data], FitReport]:
    """Return the rows without columns that are not measurements, and notes on all columns.

    Only ``prepare="auto"`` leaves columns out; otherwise there are warnings.
    """
    spec = wanted(prepare)
    if spec is None or not all(rows.columns for rows in data.values()):
        return data, FitReport()
    chosen = spec.columns is not None
    summaries = {site: SourceSummary.from_data(rows) for site, rows in data.items()}
    found = preprocessing.screened(summaries, spec.named, spec.dates)
    left_out = {} if chosen else found.left_out
    kept = {site: _without(rows, left_out) for site, rows in data.items()}
    filled = spec.missing in ("mean", "median")
    doubts = (
        *preprocessing.unlike_sites(kept, spec.named, spec.bounds),
        *preprocessing.no_features(kept, chosen=chosen, filled=filled),
    )
    if prepare == "auto":
        return kept, replace(found, warnings=doubts)
    used = [f"clustered by {name!r}, too: {why}" for name, why in left_out.items()]
    return data, replace(found, left_out={}, warnings=(*doubts, *used))


def _warn_of_empty(
    parts: Iterable[SiteTable], data: Mapping[str, Data], prepare: PreprocessingSpec | None
) -> None:
    """Warn of rows without any value, which keep their place and are filled in."""
    if prepare is None or prepare.missing in ("drop", "ignore"):
        return
    for part in parts:
        empty = data[part.name].empty
        if n_empty := int(empty.sum()):
            have = "1 row has" if n_empty == 1 else f"{n_empty:,} rows have"
            warnings.warn(
                f"{part.owner}: {have} no value in any column, as row {int(np.argmax(empty))}; "
                "all of "
                "their values would be filled in: leave such rows out",
                stacklevel=5,
            )


def _without(data: Data, names: Collection[str]) -> Data:
    """Return rows without some columns."""
    kept = [j for j, column in enumerate(data.columns) if column.name not in names]
    if len(kept) == len(data.columns):
        return data
    columns = tuple(data.columns[j] for j in kept)
    return replace(data, X=np.ascontiguousarray(data.X[:, kept]), columns=columns)


# Parameters


def check_clusters(n_clusters: Any, n_rows: float) -> None:
    """Check a number of clusters, or a range of them, against the number of rows."""
    if isinstance(n_clusters, str):
        one_of("n_clusters", n_clusters, ("auto",), "a whole number or a range of them")
    elif isinstance(n_clusters, Iterable):
        for k in n_clusters:
            whole("each number of clusters to try", k)
    else:
        whole("n_clusters", n_clusters)
    ks = tried(n_clusters, n_rows)
    if ks == () and not isinstance(n_clusters, str):
        raise ValueError(f"n_clusters={n_clusters!r} holds no number to try")
    most = int(n_clusters) if ks is None else max(ks, default=1)
    if n_rows < most:
        raise ValueError(
            f"all sites together have n_samples={n_rows} rows: too few for "
            f"n_clusters={n_clusters}; ask for at most {n_rows} clusters"
        )


def whole(name: str, value: Any) -> None:
    """Raise an error for a value that is not a whole number of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")


def one_of(name: str, value: Any, names: Collection[str], or_else: str = "") -> Any:
    """Return a value that is one of the names, or raise an error that lists them."""
    if value not in names:
        known = ", ".join(map(repr, names)) + (f" or {or_else}" if or_else else "")
        raise ValueError(f"{name} must be one of {known}, not {value!r}")
    return value


def checked_algorithm(algorithm: Any, n_clusters: Any, names: Collection[str]) -> Any:
    """Return an algorithm, which is one of the names or a complete object."""
    if isinstance(algorithm, str):
        return one_of("algorithm", algorithm, names, "an algorithm object")
    if isinstance(algorithm, type):
        name = algorithm.__name__
        raise ValueError(f"algorithm is the class {name}; give an object of it, as in {name}()")
    check_step(algorithm, Algorithm)
    if getattr(algorithm, "n_clusters", n_clusters) != n_clusters:
        raise refused("algorithm-other", option="n_clusters", value=n_clusters, algorithm=algorithm)
    return algorithm


def checked_init(init: Any, n_clusters: Any) -> Any:
    """Return the start, checked as far as possible without the rows."""
    if callable(init):
        return init
    if isinstance(init, str):
        return one_of("init", init, INITS, "an array or a callable")
    if not isinstance(n_clusters, Integral):
        raise refused("choice-start", option="init", n_clusters=n_clusters)
    return check_array(init, dtype=np.float64, input_name="init")


@dataclass(eq=False, repr=False)
class Federated(Fitted):
    """Estimator that fits centres to the rows of several sites; subclasses check the algorithm."""

    _: KW_ONLY
    algorithm: Any = "auto"
    init: Init | ArrayLike | Callable[..., Any] = "auto"
    n_init: int | Literal["auto"] = "auto"
    max_iter: int = 300
    tol: float = 1e-4
    random_state: int | RandomState | None = None
    min_cluster_size: int | Literal["auto"] = "auto"
    participation: float = 1.0
    sums_only: bool = False
    prepare: Scale | Literal["auto"] | PreprocessingSpec | None = None
    rule: RuleName | Rule = "likelihood"
    protection: Protection | Groups | None = None
    verbose: int = 0
    profile: bool = False
    stability: bool | int = False
    previous: Any = None

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
            dense, `Data`, or the path of a file. Estimators with `predict_proba` take no sparse
            matrix, as scikit-learn's take none.
        y : ignored
        sites : array-like of shape (n,) or str, optional
            For one table: the site of each row, or the name of the column with the sites, in a data
            frame (which then is not clustered by) or in AnnData's ``obs``.
        sample_weight : like X, or array-like of shape (n,), optional
            Weight of each row.
        groups : like X, or array-like of shape (n,), optional
            The person of each row, if persons have several; limits then count persons. The same
            name at two sites means two persons, as no site knows those of another.
        engine : Engine, optional
            The sites themselves, in place of all of these; see `fit_engine`.

        Returns
        -------
        Self
            The fitted estimator itself.
        """
        if engine is not None:
            if any(each is not None for each in (X, sites, sample_weight, groups)):
                raise refused("engine-rows")
            return self.fit_engine(engine)
        engine, job, places, found = self._in_process(X, sites, sample_weight, groups)
        columns = getattr(self, "feature_names_in_", None)
        report = execute(job, engine, **self._terms(columns))
        report = report.with_decisions(found.left_out, found.notes, found.warnings)
        self._keep(job, report, columns)
        self._label(engine)
        back = np.empty_like(places)
        back[places] = np.arange(len(places))
        self.labels_: Labels = self.labels_[back]
        return self

    def fit_clients(self, clients: Iterable[Client], columns: Sequence[str] | None = None) -> Self:
        """Cluster the rows of sites given as clients, each with its own limits.

        If rows come in chunks, the start is found from sums alone unless ``init`` is given, because
        no site holds all its rows at once. ``min_cluster_size`` and ``protection`` are the sites'
        own decisions, and are refused here.

        Parameters
        ----------
        clients : iterable of Client
            The sites.
        columns : sequence of str, optional
            The names of the columns.

        Returns
        -------
        Self
            The fitted estimator itself; ``labels_`` are concatenated over the sites, sorted by
            name.

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
        """Cluster the rows of the sites of any engine, which may be outside this process.

        As the rows are elsewhere, there are no ``labels_``, ``site_labels_``, ``rows_held_back_``
        and ``lone_rows_``; each site can label its own rows with a `Model`.

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
            If sites differ in their columns or in the order of these.

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
        if is_numbered(self.feature_names_in_):
            del self.feature_names_in_  # arrays have no column names
        return self

    def _check_sites_own(self) -> None:
        """Raise an error for limits if sites are given as clients."""
        for option, default in (("min_cluster_size", "auto"), ("protection", None)):
            if getattr(self, option) != default:
                raise refused("clients-limits", option=option)

    def _terms(self, columns: Sequence[str] | None) -> dict[str, Any]:
        """Return the terms of a job; ``columns`` are None if rows have no column names."""
        names = [f"x{j}" for j in range(self.n_features_in_)] if columns is None else columns
        return {"columns": names, "watch": _printed_rounds() if self.verbose else None}

    def _keep(self, job: Fit, report: JobReport, columns: Sequence[str] | None) -> None:
        """Keep the results of a job, in place of those of an earlier fit."""
        for name in ("labels_", "site_labels_", "rows_held_back_", "lone_rows_"):
            self.__dict__.pop(name, None)
        if columns is not None or (self.prepare is not None and not is_numbered(report.columns)):
            self.feature_names_in_ = np.array(report.columns, dtype=object)
            self.n_features_in_ = len(report.columns)
        self._keep_preparation(report.preprocessor, private=report.privacy is not None)
        found = report.fit_report.reworded(for_python)
        self.fit_report_ = None if report.preprocessor is None else found
        self.n_iter_ = len(report.outcome.communication_rounds)
        self.values_sent_ = report.outcome.values_sent()
        self.communication_rounds_ = report.outcome.account()
        self.sites_, self.steps_ = report.sites, list(report.outcome.steps)
        result = self._keep_clusters(report.outcome.value)
        self.profiles_, self.succession_ = report.profiles, report.since
        self._cluster_names = report.names
        self.stability_, self.privacy_ = report.stability, report.privacy
        self.influence_, self.objective_ = report.influence, report.objective
        self.inertia_error_ = report.inertia_error
        if self.verbose:
            print(f"{self.stop_reason_}; {self.n_iter_} rounds with the sites")  # noqa: T201
        for line in limit_line(job, result):
            warnings.warn(line, ConvergenceWarning, stacklevel=3)
        k, lines = len(result.state.weights), list(found.doubts)
        if tried(self._k) is not None:  # with a stated k, the warnings were given before the fit
            lines += groups_line(report.sites, k)
        for line in (*lines, *far_line(report.sites, result)):
            warnings.warn(line, UserWarning, stacklevel=3)

    @property
    def _k(self) -> Any:
        """The number of clusters, or the numbers to choose from."""
        k = getattr(self, self._counted)
        return self._previous.n_clusters if k is None and self.previous is not None else k

    @property
    def _previous(self) -> Any:
        """The earlier fit as a model."""
        if isinstance(self.previous, Fitted):
            return Model.from_estimator(self.previous)
        is_file = isinstance(self.previous, str | Path)
        return Model.load(self.previous) if is_file else self.previous

    def _job(self, n_rows: float, roles: ColumnRoles | None = None) -> Fit:
        """Return the parameters, checked against the number of rows, with the order of dates."""
        for name in ("tol", "participation", "trim", "reg_covar", "m", "delta"):
            if not isinstance(value := getattr(self, name, 0.0), Real):
                raise ValueError(f"{name} must be a number, not {value!r}")
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
        seed = self.random_state
        checked = {
            "n_clusters": int(self._k) if isinstance(self._k, Integral) else self._k,
            "algorithm": self._algorithm(),
            "init": checked_init(self.init, self._k),
            "init_columns": tuple(map(str, getattr(self.init, "columns", ()))),
            "previous": self._previous,
            "seed": seed if isinstance(seed, Integral) else check_random_state(seed),
            "n_init": None if self.n_init == "auto" else self.n_init,
            "prepare": _as_read(wanted(self.prepare), roles),
            "rule": self.rule
            if isinstance(self.rule, Rule)
            else Rule(one_of("rule", self.rule, RULES)),
        }
        parameters = {
            name: value for name, value in self.get_params(deep=False).items() if name in WORDS
        }
        return fit_of(spelled=self._spelled, **{**parameters, **checked, **self._of_kind()})

    def _of_kind(self) -> dict[str, Any]:
        """Return the parameters of a job that the kind of estimator determines."""
        return {"model": "k-means"}

    def _spelled(self, name: str, value: Any) -> str:
        """Return a parameter as a user writes it; "" if the kind of estimator means it."""
        return in_python(name, value).replace("n_clusters", self._counted)

    def _algorithm(self) -> Any:
        """Return the algorithm after checking it: a name or an object."""
        return checked_algorithm(self.algorithm, self._k, self._names)

    def _protection(self) -> Groups | None:
        """Return the grouping of rows, None if they are not grouped."""
        if self.protection is None or isinstance(self.protection, Groups):
            return self.protection
        one_of("protection", self.protection, PROTECTIONS)
        scale = "none" if wanted(self.prepare) is None else "standard"
        return Groups(scale=scale) if self.protection == "groups" else None

    def _smallest(self) -> int | None:
        """Return the smallest cluster that a site sends; None if the algorithm decides."""
        if self.min_cluster_size == "auto":
            return None
        whole("min_cluster_size", self.min_cluster_size)
        return int(self.min_cluster_size)

    def _in_process(
        self, X: Any, sites: Any, sample_weight: Any, groups: Any
    ) -> tuple[LocalEngine, Fit, NDArray[np.intp], FitReport]:
        """Return an engine for the sites, the job, each row's place in X, and what was decided."""
        self._check_dense(X)
        roles, protection = roles_for(wanted(self.prepare)), self._protection()
        found = FitReport()
        as_is = protection is None and not roles.raw and sample_weight is None and groups is None
        if as_is and (table := _stacked(X, sites)) is not None:
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = table.data.X.shape[1]
            job = self._job(len(table.data))
            table.disclosure = Disclosure.of(procedure_of(job).limits(self._smallest()))
            engine, places = LocalEngine(table), table.order
        else:
            parts = by_site(X, sites, sample_weight, groups, file_reader(roles))
            read = self._read(parts, roles)
            _warn_of_empty(parts, read, wanted(self.prepare))
            data, found = screened_rows(read, self.prepare)
            job = self._job(sum(map(len, data.values())), roles)
            alone = len(parts) == 1 and not parts[0].where
            limits = procedure_of(job).limits(self._smallest(), alone=alone)
            engine = LocalEngine(Client(name, data[name], limits, protection) for name in data)
            every, place = np.arange(sum(map(len, data.values()))), {p.name: p.place for p in parts}
            places = np.concatenate([every[place[name]] for name in engine.clients])
        if (most := procedure_of(job).rows_per_person) is not None:
            for client in engine.clients.values():
                client.disclosure = replace(client.disclosure, rows_per_person=most)
        return engine, job, places, found

    def _check_dense(self, X: Any) -> None:
        """Raise an error for sparse rows if scikit-learn is told that they are not accepted."""
        tables = dict(named_tables(X)).values() if is_by_site(X) else [X]
        if not self.__sklearn_tags__().input_tags.sparse and any(
            map(scipy.sparse.issparse, tables)
        ):
            name = type(self).__name__
            raise InputError(f"{name} takes no sparse rows; make them dense, as X.toarray() does")

    def _label(self, engine: LocalEngine) -> None:
        """Label the rows of all sites, few sites at a time, and keep facts from the sites' logs."""
        clients = engine.clients
        sources: list[Data | RowStream]
        if isinstance(clients, Stacked) and not self._model.adjusts:
            sources, ends, most = [clients.data], clients.bounds[1:], clients.most
        else:
            sources = [client.source for client in clients.values()]
            ends, most = np.cumsum(list(map(len, sources))), partial(_each, clients)
        form, assignment = self.row_form_, self._model.assignment
        chunks = (form.aligned(chunk) for source in sources for chunk in chunks_of(source))
        # Number of values of small sites that are labelled at once; copying large ones costs more.
        joined = batches(chunks, (1 << 18) // self.n_features_in_)
        # rows that were clustered as they are, so that what sites keep about them serves here
        caches = {id(source.X): source.cache for source in sources if isinstance(source, Data)}
        self.labels_ = np.concatenate(
            [assignment.labels(rows, caches.get(id(rows))) for rows in joined]
        )
        parts = (self.labels_[start:stop] for start, stop in pairwise([0, *ends.tolist()]))
        self.site_labels_: dict[str, Labels] = dict(zip(clients, parts, strict=True))
        self.rows_held_back_ = most("most_rows_held_back")
        self.lone_rows_ = most("most_lone_rows")
        for line in few_clusters_line([self.labels_], self._model.n_clusters):
            warnings.warn(line, ConvergenceWarning, stacklevel=3)
        if absent := [name for name in clients if not self.values_sent_.get(name)]:
            said = f"{some_of(absent)} took no part: its limits held back all rows"
            warnings.warn(said, UserWarning, stacklevel=3)
        if self.prepare is not None:
            for line in one_site_lines(self.site_labels_, self.n_clusters_):
                warnings.warn(line, UserWarning, stacklevel=3)

    def _read(self, parts: Sequence[SiteTable], roles: ColumnRoles) -> dict[str, Data]:
        """Return the sites' rows; keep the number and the names of their columns."""
        if not roles.raw and getattr(self, "metric", "euclidean") == "euclidean":
            parts = [replace(part, table=_in_single(part.table)) for part in parts]
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
    """Return a function that prints a line for each finished round, as scikit-learn does."""
    numbers = count(1)

    def show(done: CommunicationRound) -> None:
        tasks = Counter(done.steps)
        steps = ", ".join(f"{n} {step}" if n > 1 else step for step, n in tasks.items())
        sites = f"{len(done.answered)} sites" if len(done.answered) != 1 else "1 site"
        lacking = f", not {listed(list(done.missing))}" if done.missing else ""
        sent = sum(done.values_sent.values())
        line = f"{steps}; {sites} answered{lacking}, {sent:,} numbers"
        print(f"round {next(numbers)}: {line}")  # noqa: T201

    return show
