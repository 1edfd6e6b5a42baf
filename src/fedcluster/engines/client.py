"""Client of one site: the only code that sees rows and answers tasks.

It also draws bootstrap samples, as weights that count how often each row is drawn. The counts are
independent Poisson numbers with mean 1. For many rows, this approximates drawing n of n rows with
replacement, and no site needs to know how many rows the others have. J. A. Hanley & B. MacGibbon,
Creating non-parametric bootstrap samples using Poisson frequencies, Computer Methods and Programs
in Biomedicine 83, 2006.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import fsum, inf, isfinite
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from fedcluster import privacy
from fedcluster.core import (
    Column,
    Data,
    Floats,
    Introduction,
    RowStream,
    RowTransform,
    SiteInfo,
    Step,
    Summary,
    Task,
    first_alike,
    first_of_each,
)
from fedcluster.core.task import stream
from fedcluster.core.threads import blas_on_one_thread, thread_count
from fedcluster.frames.columns import SourceSummary, chosen_columns, classes, described_groups
from fedcluster.frames.rows import in_order, n_columns_of
from fedcluster.metrics.moments import row_weights
from fedcluster.options.refusals import refused
from fedcluster.privacy import Groups
from fedcluster.privacy.disclosure import (
    USUAL,
    Disclosure,
    PersonCounter,
    PersonCounts,
    SiteRules,
    behind_groups,
)


def resampled(data: Data, seed: int, site: str, key: bytes = b"") -> Data:
    """Return the rows that are drawn, with weights multiplied by the number of draws.

    The draw depends on the seed, the site and the key, not on the order of the rows. All rows of a
    person are drawn together; a row that is the mean of a group gets as many draws as the group has
    rows.

    Parameters
    ----------
    data : Data
        The rows of a site.
    seed : int
        The seed of the draw.
    site : str
        The name of the site.
    key : bytes
        A secret of the site. Without it, anyone who knows the seed knows which rows were drawn, by
        their position in lexicographic order; sums over many known draws reveal the rows.

    Examples
    --------
    >>> drawn = resampled(Data(np.arange(5.0)[:, None]), 1, "north")
    >>> drawn.X.ravel(), drawn.sample_weight
    (array([0., 1.]), array([1., 1.]))
    """
    kept: dict[Any, Any] = data.cache.setdefault("resampled", {})
    if "order" not in kept:
        numbered = replace(data, assigned=np.arange(len(data), dtype=np.int32))
        kept["order"] = numbered.canonical().assigned
    if (seed, site, key) not in kept:
        rng = np.random.default_rng([seed, *site.encode(), *key])
        kept[seed, site, key] = _times(data, kept["order"], rng)
    times = kept[seed, site, key]
    weight = np.ones(len(data)) if data.sample_weight is None else data.sample_weight
    if data.grouped is not None:
        times = times / data.grouped.counts
    return replace(data, sample_weight=weight * times).take(times > 0)


def _times(data: Data, order: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.uint16]:
    """Return how often each row is drawn, drawing in the given order."""
    times = np.zeros(len(data), dtype=np.uint16)
    if data.grouped is not None:
        times[order] = rng.poisson(data.grouped.counts[order])
    elif data.groups is None:
        times[order] = rng.poisson(1.0, len(data))
    else:
        _, first, person = np.unique(data.groups[order], return_index=True, return_inverse=True)
        times[order] = rng.poisson(1.0, len(first))[np.argsort(np.argsort(first))[person]]
    return times


__all__ = ["Client"]

ONE_THREAD = 1 << 13
"""Number of values up to which BLAS never starts a thread; a dot product does from 10,000."""
NO_ROW = "there is no row of positive weight"
ALL_DROPPED = "no row is left after those with a missing value are dropped"


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Record in a site's log of one message that left it: never values, only sizes.

    Parameters
    ----------
    round : int
        Number of rounds before the task.
    step : str
        The step with its hyper-parameters.
    lines, numbers : int
        Number of lines and of values that left.
    lone_rows : int
        Number of lines over a single row, which any reader of the message knows. If rows are
        grouped, lines that may belong to a single person.
    held_back : int
        Number of rows in lines that the site's filters held back.
    noise : float, optional
        The noise multiplier of an answer with noise, of which all lines leave.
    """

    round: int
    step: str
    lines: int
    numbers: int
    lone_rows: int
    held_back: int
    noise: float | None = None


class SharedLog:
    """Log of what left many sites whose answers were computed together.

    Parameters
    ----------
    n_sites : int
        The number of sites.

    Attributes
    ----------
    most : ndarray of shape (3, s)
        For each site, the largest number of lines, lone rows and rows held back in one message.
    """

    def __init__(self, n_sites: int) -> None:
        self._messages: list[tuple[int, Step, int, NDArray[np.integer]]] = []
        self.most = np.zeros((3, n_sites), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, task: Task, n_columns: int, sent: NDArray[np.int64]) -> None:
        """Log the answers to one task: lines, lone rows and rows held back of each site, (3, s)."""
        # the smallest integer type that holds the counts
        kept = sent.astype(np.min_scalar_type(sent.max(initial=0)))
        self._messages.append((task.state.round, task.step, n_columns, kept))
        self.most = np.maximum(self.most, sent)

    def records(self, place: int, since: int) -> Iterator[AuditRecord]:
        """Yield the records of one site, starting from a given message."""
        for round, step, n_columns, sent in self._messages[since:]:
            lines, lone_rows, held_back = sent[:, place].tolist()
            yield AuditRecord(round, repr(step), lines, lines * n_columns, lone_rows, held_back)


class Client:
    """Client of one site: its rows, its rules on what leaves, and its answers.

    An answer is a pure function of the task and the rows. What a client keeps between rounds, the
    loaded rows and the log of what left, never changes an answer.

    Rows that do not fit in memory come as a `RowStream`. A step with additive answers is asked
    about one chunk after another; any other step loads all rows, and the client keeps them.

    If rows have owners (``Data.groups``), limits count persons: the smallest possible number in a
    line, which never exceeds the true one.

    Parameters
    ----------
    name : str
        The site's name.
    load : Data, RowStream, or callable returning one of them
        The source of the rows; a callable is called once, when rows are first needed.
    filters : sequence of Filter, or Disclosure, optional
        The limits of the site, applied in this order to every summary, or all its rules. By default
        `MinRows(2)`.
    protection : Groups or Grouping, optional
        Makes groups of the rows. Then steps see only the means of groups, whatever is asked, and
        limits count the rows, or persons, in the groups. Limits that groups satisfy anyway are
        dropped.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster.core import State
    >>> from fedcluster.algorithms import Lloyd
    >>> from fedcluster.privacy import MinClusterSize
    >>> rows = Data(np.array([[0.0], [1.0], [9.0]]))
    >>> client = Client("north", rows, [MinClusterSize(2)])
    >>> client.answer(Task(Lloyd(), State.at(np.array([[0.0], [9.0]])))).weights
    array([2., 0.])
    """

    key: bytes = b""
    """Secret that determines, with the seed, the site's bootstrap samples; it stays at the site."""
    _prepared: tuple[RowTransform, Data] | None = None
    _shared: tuple[SharedLog, int, int] | None = None

    def __init__(
        self,
        name: str,
        load: Callable[[], Data | RowStream] | Data | RowStream,
        filters: SiteRules = USUAL,
        protection: Groups | privacy.Grouping | None = None,
    ) -> None:
        self.name = name
        groups = protection if isinstance(protection, Groups | None) else protection.groups
        self.disclosure = rules = Disclosure.of(filters, groups)
        own = None if rules.groups is None else privacy.Grouping(rules.groups)
        self.protection = own if isinstance(protection, Groups | None) else protection
        self._sent: list[AuditRecord] = []
        self._last_step: tuple[Step, str] | None = None
        self._persons: PersonCounts | None = None
        if not isinstance(load, Data):
            self._load = load
        else:  # a shortcut that saves time with thousands of sites
            self.source = load
            if rules.groups is None:
                self.rows = load

    def __repr__(self) -> str:
        return f"Client({self.name!r}, filters={list(self.disclosure.in_force)})"

    @cached_property
    def source(self) -> Data | RowStream:
        """Rows of the site as they are, or a stream of them, opened once; steps never see them."""
        return self._load if isinstance(self._load, RowStream) else self._load()

    @cached_property
    def rows(self) -> Data | RowStream:
        """Rows that steps see: those of the site, or the means of its groups."""
        if self.protection is None:
            return self.source
        return self.protection.grouped(self.source, self._passes)

    @cached_property
    def data(self) -> Data:
        """Rows that steps see and that have a weight, loaded once."""
        data = (self.rows if isinstance(self.rows, Data) else self.rows.load()).weighed()
        if not len(data) and self.protection is None:
            raise ValueError(NO_ROW)
        if data.groups is not None:
            [data] = self._counted([data])
        return data

    def with_columns(self, columns: Sequence[str], *, raw: bool = False) -> Client:
        """Return the client of the same groups with some of their columns, in the given order.

        Parameters
        ----------
        columns : sequence of str
            The columns.
        raw : bool
            Whether the rows are not prepared yet, so that text and missing values are allowed.

        Raises
        ------
        InputError
            If there is no such column, or a column must be prepared first.
        """
        chosen = copy(self)
        chosen.rows = chosen_columns(self.data, columns, f"site {self.name!r}", raw=raw)
        for kept in ("data", "_prepared", "_shared"):
            chosen.__dict__.pop(kept, None)
        chosen.__dict__["_sent"] = []
        return chosen

    @property
    def streams(self) -> bool:
        """True if the rows come in chunks."""
        return not isinstance(self.rows, Data)

    @cached_property
    def site(self) -> SiteInfo:
        """Metadata that the site reports with every reply; this opens the rows."""
        n_rows, weight = self._size()
        return SiteInfo(
            self.name,
            self.disclosure.stated,
            # streaming depends on the number of rows, which a budget protects
            self.streams and self.disclosure.budget is None,
            n_rows=n_rows,
            weight=weight,
            n_columns=n_columns_of(self.rows),
            refuses=self._unfit_for_noise(self.rows),
        )

    def _size(self) -> tuple[float, float]:
        """Return the number of rows with a weight and the sum of weights, as in `SiteSize`.

        This reads rows in chunks if they have weights.
        """
        rows = self.rows
        if not _has(rows, "weight"):
            n_rows = rows.n_rows if isinstance(rows, Data) else float(len(rows))
            return n_rows, n_rows
        chunks = [rows] if isinstance(rows, Data) else rows.chunks()
        sizes = [(each.n_rows, row_weights(each).sum()) for each in map(Data.weighed, chunks)]
        n_rows, weight = (fsum(each) for each in zip(*sizes, strict=True))
        return n_rows, weight

    def introduce(self, **requested: Unpack[Introduction]) -> SiteInfo:
        """Return the metadata of the site; see `Engine`. This opens the rows.

        The client can carry out every step defined in its process.
        """
        site = self.site
        if requested.get("columns"):
            site = replace(site, columns=self.describe(requested.get("texts", ())))
        if requested.get("sends"):
            site = replace(site, sends=self._sends)
        return replace(site, labels=self.classes()) if requested.get("labels") else site

    @property
    def audit_log(self) -> list[AuditRecord]:
        """Records of all messages that left, oldest first."""
        if self._shared is not None:
            log, place, since = self._shared
            self._sent.extend(log.records(place, since))
            self._shared = log, place, len(log)
        return self._sent

    def share(self, log: SharedLog, place: int, since: int | None = None) -> None:
        """Log what leaves in a shared log of many sites, at the given position, from now on.

        With ``since``, include what has left since an earlier message of that log.
        """
        self._sent, self._shared = (
            self.audit_log,
            (log, place, len(log) if since is None else since),
        )

    @property
    def most_rows_held_back(self) -> int:
        """Largest number of rows (lower bound for groups) that limits held back in one message."""
        rows = self.rows
        n_rows = round(rows.n_rows) if isinstance(rows, Data) else len(rows)
        return min(self._most("held_back"), n_rows)  # one row may contribute to several lines

    @property
    def most_lone_rows(self) -> int:
        """Largest number of lines over a single row in one message."""
        return self._most("lone_rows")

    def _most(self, what: str) -> int:
        """Return the largest value of a count over all messages."""
        most = max((getattr(sent, what) for sent in self._sent), default=0)
        if self._shared is None:
            return most
        log, place, _ = self._shared
        return max(most, int(log.most[{"lone_rows": 1, "held_back": 2}[what], place]))

    def describe(self, texts: Collection[str] = ()) -> tuple[Column, ...]:
        """Return the columns, with only those texts that several rows share and the rules permit.

        Parameters
        ----------
        texts : collection of str
            Columns whose numbers are codes, to be described as text.

        Raises
        ------
        InputError
            If rows are grouped, and one of the texts is a column of numbers.
        """
        if self.protection is not None:
            return described_groups(self._described_groups, texts)
        return SourceSummary.from_chunks(self._chunks(), texts).disclosed(self._passes)

    def classes(self) -> tuple[str, ...] | None:
        """Return the labels that several rows share and the rules permit; None without any.

        Examples
        --------
        >>> rows = Data(np.zeros((4, 1)), y=np.array(["sick", "well", "sick", "rare"]))
        >>> Client("north", rows).classes()
        ('sick',)
        """
        if self.protection is not None:
            labels = None if self.data.grouped is None else self.data.grouped.classes
            return labels if len(self._described_groups) or labels is None else ()
        return classes(self._chunks(), self._passes)

    @cached_property
    def _sends(self) -> bool:
        """Whether the rules let any sum over the rows leave; under a budget, noise always does."""
        if self.disclosure.budget is not None:
            return True
        if self.protection is not None:
            return len(self._described_groups) > 0
        n = sum(map(len, self._chunks()))  # reading the chunks also counts the persons
        return bool(self._passes(np.array([float(n)]), n).any())

    @property
    def _described_groups(self) -> Data:
        """Groups that the site describes: all, or none if the rules permit nothing about them."""
        grouped = self.data.grouped
        n = 0.0 if grouped is None else float(grouped.smallest_first[-1])
        return self.data if self._passes(np.array([n]), int(n)).any() else self.data.take(slice(0))

    def answer(self, task: Task) -> Summary:
        """Return the answer to one task."""
        return self.answers([task])[0]

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Return the answers to all tasks of a round: load, step, disclose."""
        for task in tasks:
            self.disclosure.check(task)
        if self.protection is not None and not len(self.data):
            return [self._no_answer(task) for task in tasks]
        # BLAS would use several threads for data of this size
        is_large = self.streams or self.data.X.size > ONE_THREAD
        with blas_on_one_thread() if is_large else nullcontext():
            streamed = [  # these steps read the rows in chunks
                self.streams and task.step.client_additive and task.resampled is None
                for task in tasks
            ]
            additive = [task for task, each in zip(tasks, streamed, strict=True) if each]
            added = iter(self._chunk_by_chunk(additive) if additive else ())
            replies = []
            for task, each in zip(tasks, streamed, strict=True):
                step = next(added) if each else self._step(task, self.rows_for(task))
                replies.append(self._leaving(task, *step))
            return replies

    def _no_answer(self, task: Task) -> Summary:
        """Return the answer to a task over no rows, which is empty."""
        how = task.preprocessor
        d = self.data.X.shape[1] if how is None else how.n_columns_out
        lines, width = task.step.answer_shape(task.state, d)
        return Summary(np.zeros((lines or 0, width)), np.zeros(lines or 0))

    def rows_for(self, task: Task) -> Data:
        """Return all rows prepared for a task."""
        how, data = task.preprocessor, self.data
        if how is not None:
            if self._prepared is None or self._prepared[0] != how:
                self._prepared = how, how.apply(data)
            data = self._prepared[1]
        if not len(data) and task.noise is None and data.assigned is None:
            raise ValueError(ALL_DROPPED)
        if task.resampled is not None:  # a bootstrap sample may be empty
            return resampled(data, task.resampled, self.name, self.key)
        return data

    def _chunk_by_chunk(self, tasks: Sequence[Task]) -> list[tuple[Summary, int]]:
        """Compute many tasks in one reading, adding up the chunks' answers."""
        totals: dict[int, tuple[Summary, int]] = {}
        for answers in in_order(partial(self._of_chunk, tasks), self._chunks(), thread_count()):
            for i, (summary, n_rows) in answers.items():
                before, n_before = totals.get(i, (None, 0))
                total = summary if before is None else before + summary
                totals[i] = total, n_before + n_rows
        for i, task in enumerate(tasks):
            if i not in totals and task.resampled is None and task.noise is None:
                raise ValueError(NO_ROW)
        return [totals.get(i) or (self._no_answer(task), 0) for i, task in enumerate(tasks)]

    def _of_chunk(self, tasks: Sequence[Task], chunk: Data) -> dict[int, tuple[Summary, int]]:
        """Return a chunk's answers and numbers of rows, by task, for tasks with rows in it.

        A chunk whose rows were all assigned to no cluster is not left out.
        """
        return {
            i: self._step(task, data)
            for i, (task, data) in enumerate(zip(tasks, _prepared(chunk, tasks), strict=True))
            if len(data) or data.assigned is not None
        }

    def _chunks(self) -> Iterable[Data]:
        """Return the rows that have a weight, read anew."""
        if isinstance(self.rows, Data):
            return [self.data]
        chunks = filter(len, map(Data.weighed, self.rows.chunks()))
        return self._counted(chunks) if self._persons is None else chunks

    def _counted(self, chunks: Iterable[Data]) -> Iterator[Data]:
        """Pass chunks on and count persons, so that their number is known after the last chunk."""
        counter = PersonCounter()
        for chunk in chunks:
            if chunk.groups is not None:
                counter.add(chunk.groups)
            yield chunk
        self._persons = counter.persons() or None

    def _step(self, task: Task, data: Data) -> tuple[Summary, int]:
        """Return the answer to a task before disclosure rules, and its number of rows.

        If rows are grouped, the number is the smallest possible. It is 0 if all rows were left out,
        such as rows of no cluster.
        """
        if not len(data):
            return self._no_answer(task), 0
        centers, d = task.state.centers, data.X.shape[1]
        if len(centers) and centers.shape[1] != d:
            raise ValueError(f"the centres have {centers.shape[1]} columns, the rows here {d}")
        rng = stream(task.seed, task.state.round, self.name)
        if task.noise is not None:
            data = self.bounded(data)
        summary = task.step.client_step(task.state, data, rng)
        if data.grouped is None:
            return summary, len(data)
        behind = behind_groups(summary, data, data.grouped)
        return behind, int(data.grouped.smallest_first[-1])

    def bounded(self, data: Data) -> Data:
        """Return at most as many rows per person as the noise allows for; refuse unfit rows."""
        if key := self._unfit_for_noise(data):
            raise refused(key)
        if data.groups is None:
            return data
        assert self.disclosure.rows_per_person is not None  # checked when the site file was read
        return data.take(first_of_each([data.groups], self.disclosure.rows_per_person))

    def _unfit_for_noise(self, rows: Data | RowStream) -> str:
        """Return the key of the refused combination of these rows and noise; "" if none is."""
        if self.protection is not None:
            return ""
        if _has(rows, "weight"):
            return "noise-weights"
        without = self.disclosure.rows_per_person is None or self.streams
        return "noise-persons" if _has(rows, "group") and without else ""

    def _passes(self, counts: Floats, n_rows: int) -> NDArray[np.bool_]:
        """Return which texts or labels, given the number of rows of each, may be disclosed."""
        return self.disclosure.passes(counts, n_rows, self._persons)

    def computed(self, task: Task) -> Summary:
        """Return the answer to a task without noise, computed anew and not logged."""
        full, n_rows = self._step(task, self.rows_for(task))
        return self.disclosure.apply(task, full, n_rows, self._persons).leaving()

    def _leaving(self, task: Task, full: Summary, n_rows: int) -> Summary:
        """Return the part of an answer that leaves, and log it."""
        summary = self.disclosure.apply(task, full, n_rows, self._persons)
        sent = _sent(task, self._written(task.step), full, summary)
        if self.protection is not None:  # with groups, every line is about several rows
            sent = replace(sent, lone_rows=0)
        self.audit_log.append(sent)
        return summary.leaving()

    def _written(self, step: Step) -> str:
        """Return a step and its hyper-parameters as text, cached over the rounds."""
        if self._last_step is None or self._last_step[0] is not step:
            self._last_step = step, repr(step)
        return self._last_step[1]


def _has(rows: Data | RowStream, part: str) -> bool:
    """Return whether rows have weights, or persons; for a stream, as its `beside` says."""
    if isinstance(rows, Data):
        return (rows.sample_weight if part == "weight" else rows.groups) is not None
    return part in getattr(rows, "beside", ())


def _prepared(chunk: Data, tasks: Sequence[Task]) -> list[Data]:
    """Return a chunk as prepared for each task, preparing it once for equal preparations."""
    firsts = first_alike(tasks)
    transforms = {first: tasks[first].preprocessor for first in firsts}
    if any(how is not None and how.offset_rows < inf for how in transforms.values()):
        raise refused("adjust-site", what="rows in chunks")
    made = {first: how.apply(chunk) if how else chunk for first, how in transforms.items()}
    return [made[first] for first in firsts]


def _sent(task: Task, step: str, full: Summary, summary: Summary) -> AuditRecord:
    """Return the log's record of one message."""
    lines, rows = int(np.count_nonzero(summary.weights)), summary.rows
    all_leave = task.noise is not None or summary is full
    hidden = 0.0 if all_leave else float(full.rows @ (rows <= 0))
    return AuditRecord(
        round=task.state.round,
        step=step,
        lines=lines,
        numbers=lines * (summary.sums.shape[1] + 1),
        lone_rows=0 if task.noise else int(np.count_nonzero(summary.weights[rows == 1])),
        held_back=round(hidden if isfinite(hidden) else float(np.nan_to_num(hidden))),
        noise=task.noise,
    )
