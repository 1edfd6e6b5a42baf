"""Engine on a Dask cluster: the partitions of one owner's collection are the sites.

Rows stay on the workers, or are read there anew in every round; only answers, added in a tree, come
to this process. Groups are made on the worker that opens a partition. If a worker is lost, Dask
opens its partitions on another one. Each partition is identified by a digest of its rows and of the
means of its groups: a partition that differs when it is opened again is not asked, so that rows are
never grouped in two ways.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from hashlib import sha256
from itertools import islice
from math import inf
from operator import attrgetter, methodcaller
from typing import Any, Unpack
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Answers, Data, Introduction, SiteInfo, Summary, Task
from fedcluster.core.ranges import allowed_of
from fedcluster.engines.batched import AnswersOfEach, BatchedAnswers, Joined, at_site
from fedcluster.engines.client import Client
from fedcluster.engines.warming import ensure_warmed
from fedcluster.errors import HeldBackError, InputError, SiteError
from fedcluster.frames.columns import columns_of, has_columns
from fedcluster.frames.inputs import read_table
from fedcluster.frames.reader import ColumnRoles
from fedcluster.options.refusals import refused
from fedcluster.privacy import Groups
from fedcluster.privacy.disclosure import Disclosure, SiteRules

try:
    from dask import array, delayed
    from distributed import WorkerPlugin, get_client
except ImportError as error:
    raise ImportError('DaskEngine needs Dask: pip install "fedcluster[dask]"') from error

LOGGER = logging.getLogger(__name__)

Joint = list[Joined | dict[str, Summary]]
"""Answers of some partitions to each task, either added up or by partition."""


class DaskEngine:
    """Engine whose sites are the partitions of a Dask collection.

    All partitions belong to one owner: nothing protects one from another unless ``protection`` or
    ``filters`` is given. The bits of a result depend on the partitions only, not on the workers, on
    lost workers, or on ``fan_in``.

    Parameters
    ----------
    collection : dask.dataframe.DataFrame or dask.array.Array of shape (n, d)
        The rows. A partition must fit into the memory of a worker several times.
    columns : sequence of str or ColumnRoles, optional
        The columns of a data frame to cluster by; by default all that have no other role. Roles
        also say how they are read, as those of a model do.
    weight_column, group_column, label_column : str, optional
        The columns with the rows' weights, persons and reference labels.
    filters : sequence of Filter, or Disclosure, default=()
        The limits of each partition, or all its rules.
    protection : Groups, optional
        If given, steps see only the means of groups. The groups of a partition are made once, when
        it is opened, and kept; other partitions of the same rows give other groups.
    client : distributed.Client, optional
        The cluster; by default the current one.
    fan_in : int, default=16
        The number of answers that a worker adds at once.
    keep : bool, default=True
        Whether workers keep the rows in memory; if not, each round reads them anew, and a worker
        holds as many partitions at once as it has threads. The means of groups are always kept.

    Raises
    ------
    InputError
        If a partition is not a table, if there are no rows, or if a person has rows in several
        partitions.

    Examples
    --------
    >>> import dask.array
    >>> from distributed import Client
    >>> from fedcluster import FederatedKMeans
    >>> rows = np.repeat([[0.0, 0.0], [9.0, 0.0]], 50, axis=0)
    >>> with Client(processes=False, dashboard_address=":0") as cluster:
    ...     engine = DaskEngine(dask.array.from_array(rows, chunks=(30, 2)))
    ...     model = FederatedKMeans(2, random_state=0).fit(engine=engine)
    ...     labels = engine.label(model)  # lazy, a part for each partition
    ...     model.cluster_centers_, labels.numblocks, np.bincount(labels.compute())
    (array([[0., 0.],
           [9., 0.]]), (4,), array([50, 50]))
    """

    def __init__(
        self,
        collection: Any,
        *,
        columns: Sequence[str] | ColumnRoles | None = None,
        weight_column: str | None = None,
        group_column: str | None = None,
        label_column: str | None = None,
        filters: SiteRules = (),
        protection: Groups | None = None,
        client: Any = None,
        fan_in: int = 16,
        keep: bool = True,
    ) -> None:
        if fan_in < 2:
            raise InputError(f"fan_in must be at least 2, not {fan_in}")
        roles = ColumnRoles.from_columns(columns)
        roles = replace(roles, weight=weight_column, group=group_column, label=label_column)
        roles = roles if isinstance(columns, ColumnRoles) else replace(roles, raw=True)
        self._rows = _checked(collection, roles)
        self._how = Opening(roles, Disclosure.of(filters, protection))
        self._dask, self._fan_in = _cluster(client), fan_in
        self._dask.register_plugin(_WarmUp())
        parts = self.parts(self._rows)
        width, opening = max(5, len(str(len(parts) - 1))), delayed(self._how, traverse=False)
        named = {f"part-{i:0{width}}": part for i, part in enumerate(parts)}
        opened = [opening(name, part) for name, part in named.items()]
        if keep or self._how.rules.groups is not None:
            opened = self._dask.compute(opened)
        self._opened = dict(zip(named, opened, strict=True))
        self._described: dict[tuple[Any, ...], tuple[SiteInfo, ...]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the partitions, including those without rows."""
        return tuple(self._opened)

    @cached_property
    def _sites(self) -> dict[str, tuple[SiteInfo, str]]:
        """The metadata and the digest of each partition with rows."""
        facts = self._gathered({name: delayed(_facts)(part) for name, part in self._opened.items()})
        sites = {name: (site, digest) for name, (site, digest) in facts.items() if site is not None}
        if not sites:
            some = any(digest for _, digest in facts.values())
            raise InputError(
                "no partition has a row of positive weight; check the column of weights"
                if some
                else "no partition has a row; check what the partitions were read from"
            )
        if (column := self._how.roles.group) is not None:
            persons = [delayed(attrgetter("persons"))(part) for part in self._opened.values()]
            if self._gathered({column: delayed(_have_common)(persons)})[column]:
                raise refused("dask-persons", column=column)
        return sites

    def introduce(self, **asked: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the metadata of the partitions that have rows; see `Engine`."""
        key = bool(asked.get("columns")), tuple(asked.get("texts", ())), bool(asked.get("labels"))
        if key not in self._described:
            described = {name: site for name, (site, _) in self._sites.items()}
            if key[0] or key[2]:
                wish = {"columns": key[0], "texts": key[1], "labels": key[2]}
                described = self._gathered(self._each(described, partial(_introduced, wish)))
            self._described[key] = tuple(
                replace(site, is_partition=True) for site in described.values()
            )
        return self._described[key]

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Answer all tasks at each of the named partitions, and add the answers if possible."""
        prepared = (task.preprocessor for task in tasks)
        if any(how is not None and how.offset_rows < inf for how in prepared):
            raise refused("adjust-site", what="a Dask collection, whose partitions are no sites")
        named = set(self._sites if sites is None else sites)
        asked = [name for name in self._sites if name in named]
        missing = tuple(name for name in self._sites if name not in named)
        if not asked:
            return [Answers({}, missing) for _ in tasks]
        given = self._dask.compute([*self._each(asked, partial(_answered, tuple(tasks))).values()])
        level, add = given, delayed(_together, pure=False)
        while len(level) > 1:
            parts = (level[i : i + self._fan_in] for i in range(0, len(level), self._fan_in))
            level = self._dask.compute([*map(add, parts)])
        [joint] = self._results(level)
        every, places = cache(partial(self._results, given)), np.arange(len(asked))
        place = {name: i for i, name in enumerate(asked)}

        def of_each(t: int, task: Task) -> AnswersOfEach:
            return AnswersOfEach(asked, task, {}, lambda name: every()[place[name]][t].summary)

        return [
            Answers(each, missing)
            if isinstance(each, dict)
            else BatchedAnswers(of_each(t, task), missing, parts=[(places, each)])
            for t, (task, each) in enumerate(zip(tasks, joint, strict=True))
        ]

    def label(self, model: Any, *, memberships: bool = False) -> Any:
        """Return the cluster of each row as a lazy collection with the same partitions.

        Parameters
        ----------
        model : Model or estimator
            The clusters.
        memberships : bool, default=False
            Whether to return the memberships in all clusters instead.

        Returns
        -------
        dask.dataframe.Series or dask.array.Array of shape (n,)
            The labels, -1 for a row of no cluster; for a data frame, a series named "cluster" with
            its index. With ``memberships``, a data frame or an array of shape (n, k).

        Raises
        ------
        ValueError
            If memberships are requested but the clusters have none.
        """
        given = _Labelling(model, memberships)
        rows = self._rows
        given.find  # noqa: B018 - raises if the model has no memberships
        if not isinstance(rows, array.Array):
            return rows.map_partitions(given, meta=given.meta)
        shape = {"chunks": (rows.chunks[0], (given.k,))} if memberships else {"drop_axis": 1}
        return rows.map_blocks(given, dtype=given.empty.dtype, **shape)

    def of_each(self, do: Callable[[Data | None], Any], roles: ColumnRoles) -> Iterator[Any]:
        """Yield the result of a function for each partition, in order, a few computed at a time.

        Parameters
        ----------
        do : callable
            Receives the rows of a partition on a worker, None if there are none.
        roles : ColumnRoles
            How the rows are read; their columns must be among those of the engine.

        Raises
        ------
        InputError
            If a partition cannot be read in this way.
        SiteError
            If a partition fails otherwise.
        """
        doing = delayed(partial(_on_rows, do, roles), pure=False, traverse=False)
        parts = zip(self.names, self.parts(self._rows), strict=True)
        begun = (self._dask.compute(doing(name, part)) for name, part in parts)
        # Number of partitions that each worker may work on before their results are used.
        coming = deque(islice(begun, 1 + 2 * len(self._dask.scheduler_info()["workers"])))
        while coming:
            [result] = self._results([coming.popleft()])
            coming.extend(islice(begun, 1))
            yield result

    @staticmethod
    def parts(collection: Any) -> list[Any]:
        """Return the partitions of a collection, lazily and unchanged.

        Dask's optimisation of a data frame could join small partitions, differently for each use.
        """
        if isinstance(collection, array.Array):
            return list(collection.to_delayed().ravel())
        return list(collection.simplify().to_delayed(optimize_graph=False))

    def _each(self, names: Iterable[str], do: Callable[[Opened], Any]) -> dict[str, Any]:
        """Return lazy work on each of the named partitions, which must be unchanged."""
        doing, done = delayed(do, pure=False, traverse=False), delayed(_done, pure=False)
        return {name: done(name, self._opened[name], self._sites[name][1], doing) for name in names}

    def _gathered(self, work: Mapping[str, Any]) -> dict[str, Any]:
        """Compute named lazy work and return the results by name."""
        futures = self._dask.compute([*work.values()])
        return dict(zip(work, self._results(futures), strict=True))

    def _results(self, futures: Sequence[Any]) -> Any:
        """Return results; of a foreign error, only the kind is kept, as its text may hold data."""
        try:
            return self._dask.gather(futures)
        except (HeldBackError, InputError, SiteError):
            raise
        except Exception as error:
            raise SiteError(
                f"a partition cannot be read or asked: {type(error).__name__}; the logs of the "
                "workers say more"
            ) from None


@dataclass(frozen=True, slots=True)
class Opened:
    """A partition after it was opened; it has no client if no row has a weight."""

    name: str
    client: Client | None
    digest: str
    unprepared: str = ""
    persons: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __sizeof__(self) -> int:
        """Return the bytes of the rows, by which Dask decides what to move or to spill."""
        rows = None if self.client is None else self.client.rows
        return int(rows.X.nbytes) if isinstance(rows, Data) else 0


@dataclass(frozen=True, slots=True)
class Opening:
    """How a partition is opened: the roles of its columns, and the site's rules."""

    roles: ColumnRoles
    rules: Disclosure

    def __call__(self, name: str, part: Any) -> Opened:
        if (data := _read(name, part, self.roles)) is None:
            return Opened(name, None, "")
        digest = _Checksum() if self.rules.groups is None else sha256()
        _add(digest, data)
        if not len(data.weighed()):
            return Opened(name, None, digest.hexdigest())
        client = Client(name, data, self.rules)
        if self.rules.groups is not None:
            client.source = client.data  # allow the rows to be freed
            _add(digest, client.data)
        persons = np.unique([] if data.groups is None else data.groups).astype(np.int64)
        return Opened(name, client, digest.hexdigest(), _unprepared(client.data), persons)


def _read(name: str, part: Any, roles: ColumnRoles) -> Data | None:
    """Return the rows of a partition; None if there are none."""
    try:
        return read_table(part, roles, f"partition {name!r}") if len(part) else None
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from None


def _on_rows(do: Callable[[Data | None], Any], roles: ColumnRoles, name: str, part: Any) -> Any:
    """Apply a function to the rows of a partition."""
    return do(_read(name, part, roles))


class _Checksum:
    """Checksum that takes half the time of a hash, for rows that nobody protects."""

    def __init__(self) -> None:
        self._sum = 0

    def update(self, content: Any) -> None:
        self._sum = crc32(content, self._sum)

    def hexdigest(self) -> str:
        return f"{self._sum:08x}"


def _add(digest: Any, data: Data) -> None:
    """Add everything that answers depend on to a digest."""
    grouped = None if data.grouped is None else data.grouped.counts
    for values in (data.X, data.sample_weight, data.groups, data.y, grouped):
        if values is not None:
            plain = values if values.dtype.kind in "biuf" else np.array(values, dtype=str)
            digest.update(f"{plain.dtype} {plain.shape}".encode())
            digest.update(np.ascontiguousarray(plain))
    digest.update(repr(data.columns).encode())


def _unprepared(data: Data) -> str:
    """Return what is wrong with rows that are used without preparation; "" if nothing is."""
    # the sum is NaN if any value is: cheaper than isnan of all values
    gaps = bool(np.isnan(data.X.sum()))
    for j, column in enumerate(columns_of(data)):
        if column.kind != "number" or (gaps and np.isnan(data.X[:, j]).any()):
            what = "has missing values" if column.kind == "number" else "is no number"
            return f"column {column.name!r} {what}; leave it out, or prepare the rows"
    return ""


def _facts(part: Opened) -> tuple[SiteInfo | None, str]:
    return None if part.client is None else part.client.site, part.digest


def _have_common(numbers: Sequence[NDArray[np.int64]]) -> bool:
    """Return whether arrays, each of distinct numbers, have a number in common."""
    every = np.concatenate(numbers)
    return len(np.unique(every)) < len(every)


def _answered(tasks: tuple[Task, ...], part: Opened) -> Joint:
    """Carry out the tasks of a round at a partition."""
    if part.unprepared and any(
        task.preprocessor is None and not allowed_of(task.step).gaps for task in tasks
    ):
        raise InputError(part.unprepared)
    answers = at_site(part.client, tasks, methodcaller("answers", tasks))
    return [
        Joined.alone(answer)
        if task.step.server_additive and task.noise is None
        else {part.name: answer}
        for task, answer in zip(tasks, answers, strict=True)
    ]


def _introduced(asked: Mapping[str, Any], part: Opened) -> SiteInfo:
    """Return the requested metadata of a partition."""
    tell = methodcaller("introduce", **asked)
    info: SiteInfo = at_site(part.client, "describing its columns, ", tell)
    return info


def _done(name: str, part: Opened, digest: str, do: Callable[[Opened], Any]) -> Any:
    """Apply a function to a partition, after checking that it is unchanged."""
    if part.digest != digest:
        raise InputError(
            f"partition {name!r} has changed since it was first read; let it give the same rows in "
            "the same order each time, such as from files that nobody writes to, and start again"
        )
    return do(part)


def _together(parts: Sequence[Joint]) -> Joint:
    """Combine the answers of several partitions to each task."""
    return [
        Joined(
            Summary.total([each.summary for each in alike]),
            np.concatenate([each.sent for each in alike], axis=1),
            any(each.may_be_too_large for each in alike),
        )
        if isinstance(alike[0], Joined)
        else {name: answer for each in alike for name, answer in each.items()}
        for alike in zip(*parts, strict=True)
    ]


@dataclass(frozen=True)
class _Labelling:
    """Function that labels the rows of a partition."""

    model: Any
    memberships: bool

    @cached_property
    def k(self) -> int:
        """The number of clusters."""
        return len(getattr(self.model, "weights", ())) or int(self.model.n_clusters_)

    @cached_property
    def find(self) -> Callable[[Any], NDArray[Any]]:
        """The function that labels rows."""
        fuzzy = getattr(self.model, "fuzzy", False)
        of_model = self.model.memberships if fuzzy else None
        way = getattr(self.model, "predict_proba", of_model)
        find: Callable[[Any], NDArray[Any]] | None = way if self.memberships else self.model.predict
        if find is None:
            raise InputError("these clusters have labels and no memberships")
        return find

    @property
    def empty(self) -> NDArray[Any]:
        """The result for a partition without rows."""
        return np.zeros((0, self.k)) if self.memberships else np.zeros(0, np.int32)

    @property
    def meta(self) -> Any:
        """The columns and their types, in the form that Dask requires."""
        names = {f"membership_{j}": "float64" for j in range(self.k)}
        return names if self.memberships else ("cluster", "int32")

    def __call__(self, part: Any) -> Any:
        found = self.find(part) if len(part) else self.empty
        if isinstance(part, np.ndarray):
            return found
        if self.memberships:
            return part[[]].assign(**dict(zip(self.meta, found.T, strict=True)))
        return part[[]].assign(cluster=found)["cluster"]


class _WarmUp(WorkerPlugin):
    """Dask plugin that compiles the kernels before a worker is asked."""

    name, idempotent = "fedcluster", True

    async def setup(self, worker: Any) -> None:
        """Compile missing kernels, and let kernels use as many threads as the worker has."""
        if worker.nanny is not None:  # a nanny means that the process belongs to the worker alone
            os.environ.setdefault("FEDCLUSTER_NUM_THREADS", str(worker.state.nthreads))
        await asyncio.to_thread(ensure_warmed, LOGGER.info)


def _cluster(client: Any) -> Any:
    """Return the Dask client to use."""
    try:
        client = get_client() if client is None else client
    except ValueError:
        raise InputError(
            "there is no Dask cluster; start one: client = distributed.Client()"
        ) from None
    if client.asynchronous:
        raise InputError("the Dask client is asynchronous; give one that waits")
    return client


def _checked(collection: Any, roles: ColumnRoles) -> Any:
    """Return a collection of the rows after checking that it has all required columns."""
    if isinstance(collection, array.Array) and collection.ndim == 2:
        return collection.rechunk({1: -1})
    if hasattr(collection, "to_delayed") and getattr(collection, "ndim", 0) == 2:
        needed = list(dict.fromkeys([*(roles.values or collection.columns), *roles.others]))
        has_columns("the collection", tuple(collection.columns), needed)
        return collection[needed]
    raise InputError(
        f"DaskEngine takes a Dask data frame or array of rows, not {type(collection).__name__}"
    )
