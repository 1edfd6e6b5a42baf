"""The attacked site, the coordinator that asks it, and the score of an attack's claims.

The score is the number of claims that are rows of the site.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Rows, RowTransform, State, Step, Summary, Task
from fedcluster.core.files import has_locks
from fedcluster.engines.client import Client
from fedcluster.engines.wire import read_summaries, steps_by_name, unpack
from fedcluster.errors import InputError
from fedcluster.frames.columns import chosen_columns, columns_of
from fedcluster.model.assigned_rows import row_transform
from fedcluster.preprocessing.columns import NumericColumn
from fedcluster.preprocessing.transform import Preprocessor
from fedcluster.privacy import Grouping, Groups, MinClusterSize, MinRows
from fedcluster.privacy.disclosure import Disclosure, SiteRules
from fedcluster.privacy.partition import Partition, person_ids, row_ids
from fedcluster.privacy.persons import unique_ids
from fedcluster_app.trust.audit_log import GroupsLog
from fedcluster_app.wire.policy import Policy, PolicyLimits
from fedcluster_app.wire.remote import Question
from fedcluster_app.wire.responder import Responder, SecureSums

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Score:
    """Count of the rows that an attack read.

    Parameters
    ----------
    read : int
        Number of rows that a claim matches exactly, in all columns that it names, beyond chance: by
        chance, claims match the site's rows as often as rows of the same kind that it never had.
    near : int
        The same for claims that are right when rounded to the steps of the columns.
    alike : int
        Number of exactly read rows whose values are shared by as many rows as a group has, which
        are not counted above.
    """

    read: int = 0
    near: int = 0
    alike: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class TrueRows:
    """Rows with which claims are compared.

    Parameters
    ----------
    rows : ndarray of shape (n, d + 1)
        Numbers, and the index of the label, of the site's rows; NaN for missing values.
    others : ndarray of shape (m, d + 1)
        The same for rows of the same kind that the site never had.
    step : ndarray of shape (d + 1,)
        The smallest difference of two values.
    shared : int
        Number of rows with the same values from which on these do not identify a person.
    """

    rows: Floats
    others: Floats
    step: Floats
    shared: int
    exact = 1e-3  # difference, in steps of a column, up to which a claim is exact
    near = 0.5  # difference up to which a claim is right when rounded
    deviations = 3.0  # standard deviations allowed for chance, as many attacks are tried
    most = 100_000  # largest number of claims of one attack that are evaluated
    moves = 20

    def score(self, claims: Floats) -> Score:
        """Return the score of claims (m, d + 1), in which NaN makes no claim."""
        read, alike = self._hit(claims, self.exact)
        near, _ = self._hit(claims, self.near)
        return Score(min(read, near), near, alike)

    def _hit(self, claims: Floats, tolerance: float) -> tuple[int, int]:
        """Return the number of rows hit beyond chance, and of those that others share."""
        claims = claims[: self.most]
        says = np.isfinite(claims)
        hit, alike = np.zeros((2, len(self.rows)), bool)
        by_chance = 0.0
        for pattern in np.unique(says[says.any(axis=1)], axis=0):
            unit = self.step[pattern]
            named = claims[(says == pattern).all(axis=1)][:, pattern] / unit
            rows, others = self.rows[:, pattern] / unit, self.others[:, pattern] / unit
            here, is_shared = _near(rows, named, tolerance), _shared(rows, rows, self.shared)
            hit |= here & ~is_shared
            alike |= here & is_shared
            elsewhere = _near(others, named, tolerance) & ~_shared(others, rows, self.shared)
            missed = (_near(rows, moved, tolerance) & ~is_shared for moved in _moved(named, rows))
            by_chance += max(
                elsewhere.sum() * len(rows) / max(len(others), 1),
                sum(int(each.sum()) for each in missed) / self.moves,
            )
        most = ceil(by_chance + self.deviations * by_chance**0.5)
        return max(0, int(hit.sum()) - most), int(alike.sum())


def _moved(claims: Floats, rows: Floats) -> Iterator[Floats]:
    """Yield claims moved by a few steps in the widest column, which hit rows by chance alike.

    They move by at most a sixteenth of the column's range, so that the density of rows is similar.
    """
    rng, moved = np.random.default_rng(0), claims.copy()
    widest = int(np.argmax([len(np.unique(column)) for column in rows.T]))
    values = rows[np.isfinite(rows[:, widest]), widest]
    farthest = np.clip(np.ptp(values) / 16 if len(values) else 0.0, 3, TrueRows.moves)
    for _ in range(TrueRows.moves):
        by = rng.integers(1, int(farthest) + 1, len(claims)) * rng.choice([-1, 1], len(claims))
        moved[:, widest] = claims[:, widest] + by
        yield moved


def _shared(rows: Floats, among: Floats, times: int) -> NDArray[np.bool_]:
    """Return whether at least ``times`` rows share the values of a row, (n,)."""
    every = np.nan_to_num(np.concatenate([among, rows]), nan=np.inf).round(3)
    _, place = np.unique(every, axis=0, return_inverse=True)
    counts = np.bincount(place[: len(among)], minlength=place.max(initial=-1) + 1)
    shared: NDArray[np.bool_] = counts[place[len(among) :]] >= times
    return shared


def _near(rows: Floats, claims: Floats, tolerance: float) -> NDArray[np.bool_]:
    """Return which rows are named by a claim, (n,); each claim names at most one row.

    Examples
    --------
    >>> _near(np.array([[1.0], [2.0], [np.nan]]), np.array([[2.1], [7.0]]), 0.5)
    array([False,  True, False])
    """
    there = np.flatnonzero(np.isfinite(rows).all(axis=1))
    hit = np.zeros(len(rows), bool)
    if len(there) and len(claims):
        tree = scipy.spatial.cKDTree(rows[there])
        _, place = tree.query(claims, p=np.inf, distance_upper_bound=tolerance * (1 + 1e-9))
        hit[there[place[place < len(there)]]] = True
    return hit


@dataclass(frozen=True, slots=True, eq=False)
class Public:
    """Public knowledge about a site that needs no question, as from a data dictionary.

    Parameters
    ----------
    columns : tuple of Column
        The columns, without texts.
    numbers : tuple of str
        The d numeric columns.
    low, high, step : ndarray of shape (d,)
        Their ranges, and the smallest difference of two values.
    texts : mapping of str to tuple of str
        For each text column, all possible texts.
    classes : tuple of str
        All possible labels.
    n_rows : int
        The approximate number of rows of the site.
    """

    columns: tuple[Column, ...]
    numbers: tuple[str, ...]
    low: Floats
    high: Floats
    step: Floats
    texts: Mapping[str, tuple[str, ...]]
    classes: tuple[str, ...]
    n_rows: int

    @property
    def middle(self) -> Floats:
        """The middles of the ranges, (d,)."""
        return (self.low + self.high) / 2

    @property
    def width(self) -> Floats:
        """The widths of the ranges, (d,)."""
        return self.high - self.low

    @property
    def widest(self) -> list[int]:
        """The two numeric columns with the most steps, which distinguish rows best."""
        steps = self.width / self.step
        return [int(j) for j in np.argsort(-steps, kind="stable")[:2]]

    def column(self, j: int, **how: Any) -> NumericColumn:
        """Return the preparation of a numeric column, with missing values set to its middle."""
        return NumericColumn(self.numbers[j], **{"fill": float(self.middle[j]), **how})

    def plain(self) -> Preprocessor:
        """Return the preparation that leaves all numbers unchanged."""
        return Preprocessor(tuple(self.column(j) for j in range(len(self.numbers))))

    def claims(self, n: int) -> Floats:
        """Return n claims, (n, d + 1), still without content: numbers, and the label's index."""
        return np.full((n, len(self.numbers) + 1), np.nan)

    def place(self, j: int) -> int:
        """Return the index of numeric column j among all columns."""
        return [column.name for column in self.columns].index(self.numbers[j])

    def changed(self, data: Data, rows: NDArray[np.int64], j: int, by: float | Rows) -> Data:
        """Return rows some of which have another value in numeric column j."""
        X = data.X.copy()
        X[rows, self.place(j)] += by
        return replace(data, X=X)

    def records(self, rows: Floats) -> Floats:
        """Return claims of the numbers (n, d) of rows."""
        return np.column_stack([rows, np.full(len(rows), np.nan)])


@dataclass(slots=True, eq=False)
class Coordinator:
    """A coordinator that attacks one site.

    Parameters
    ----------
    responder : Responder
        The site's end.
    public : Public
        The public knowledge.
    asked, refused : int
        Number of tasks so far, and of those that the site did not answer.
    """

    responder: Responder
    public: Public
    asked: int = 0
    refused: int = 0
    _exchanges: int = field(default=0, repr=False)
    _runs: int = field(default=0, repr=False)
    tasks = 4000  # number of tasks in a message; if refused, an eighth of it is tried, and so on
    patience = 3  # number of single tasks refused before the rest of a list counts as refused

    def ask(self, tasks: Sequence[Task]) -> list[Summary | None]:
        """Return the answers to tasks, with None for those that the site refuses or fails."""
        self.asked += len(tasks)
        answers: list[Summary | None] = []
        size, alone = self.tasks, 0
        while len(answers) < len(tasks) and alone < self.patience:
            part = tasks[len(answers) : len(answers) + size]
            came = self._exchange(part)
            if came is not None:
                answers += came
            elif len(part) > 1:
                size = max(1, len(part) // 8)
            else:
                answers, alone = [*answers, None], alone + 1
        answers += [None] * (len(tasks) - len(answers))
        self.refused += answers.count(None)
        return answers

    def ask_one(
        self, step: Step, state: State | None = None, how: RowTransform | None = None
    ) -> Summary | None:
        """Return the answer to one task."""
        return self.ask([Task(step, State() if state is None else state, preprocessor=how)])[0]

    def _exchange(self, tasks: Sequence[Task]) -> list[Summary] | None:
        """Return the answers to one message, asked in a new run if refused; else None."""
        answers = self._sent(tasks)
        if answers is None:
            self._runs += 1
            self._sent(())  # a site accepts only columns that it described in this run
            answers = self._sent(tasks)
        return answers

    def _sent(self, tasks: Sequence[Task]) -> list[Summary] | None:
        header: dict[str, Any] = {"run": f"audit {self._runs}", "exchange": self._exchanges}
        header |= {"columns": [column.name for column in self.public.columns], "raw": True}
        header |= {} if tasks else {"described": [], "labels": True}
        self._exchanges += 1
        reply, arrays = unpack(self.responder.reply(Question(header, tasks).message))
        return None if {"refused", "failed"} & reply.keys() else read_summaries(arrays)

    def facts(self) -> set[tuple[str, str]]:
        """Return the kinds, texts and labels that the site tells."""
        header: dict[str, Any] = {"run": f"audit {self._runs}", "exchange": self._exchanges}
        header |= {"described": [], "labels": True, "raw": True}
        self._exchanges += 1
        reply, _ = unpack(self.responder.reply(Question(header, ()).message))
        columns = reply.get("described", ())
        return {
            *(("label", name) for name in reply.get("labels") or ()),
            *((name, kind) for name, kind, _ in columns),
            *((name, level) for name, _, levels in columns for level in levels),
        }


STEPS = steps_by_name()
DECIMALS = 10
LIMITS = (MinRows(20), MinClusterSize(5))


class AllowAll(Policy):
    """Policy of a site that allows every question, to show what its protection alone achieves."""

    def check(self, *_asked: object, **_more: object) -> None:
        """Let every question pass."""


@dataclass(frozen=True, slots=True, eq=False)
class Protection:
    """Protection of a site: groups, or only limits.

    Parameters
    ----------
    name : str
        Its name in tables.
    groups : Groups, optional
        The grouping of rows.
    filters : tuple of Filter, or Disclosure
        The limits; if rows are grouped, on sums over groups.
    policy : PolicyLimits, optional
        What the site may be asked; by default, anything that is understood.
    label : str, optional
        The name of the column of labels, to which rules for groups may apply.
    """

    name: str
    groups: Groups | None = None
    filters: SiteRules = ()
    policy: PolicyLimits | None = None
    label: str | None = None

    @property
    def smallest(self) -> int:
        """The smallest number of rows in a group, or in a sum that leaves."""
        if self.groups is not None:
            return self.groups.p
        limits = Disclosure.of(self.filters).filters
        return max((f.p for f in limits if isinstance(f, MinClusterSize)), default=1)


@dataclass(frozen=True, slots=True, eq=False)
class AttackedSite:
    """The attacked site.

    Parameters
    ----------
    rows : Data
        Its unprepared rows.
    others : Data
        Rows of the same kind that it never had.
    protection : Protection
        The protection of its rows.
    folder : Path
        The folder of its groups.
    """

    rows: Data
    others: Data
    protection: Protection
    folder: Path

    @property
    def file(self) -> Path:
        """The file of the site's groups."""
        return self.folder / f"{self.protection.name.replace(' ', '-')}.groups"

    @property
    def grouping(self) -> Grouping | None:
        """The protection of the client, if rows are grouped."""
        groups, label = self.protection.groups, self.protection.label
        roles = {} if label is None else {"label_column": label}
        log = GroupsLog("north", self.folder, {}) if has_locks() else None
        return None if groups is None else Grouping(groups, self.file, roles, log)

    def coordinator(
        self, public: Public, name: str = "north", secure: SecureSums | None = None
    ) -> Coordinator:
        """Return a coordinator of the site, whose rows are grouped now."""
        client = Client(name, self.rows, self.protection.filters, self.grouping)
        _ = client.data
        columns = tuple(column.name for column in columns_of(self.rows))

        def choose(names: Sequence[str], *, raw: bool = False) -> Client:
            if self.grouping is not None:
                return client.with_columns(names, raw=raw)
            rows = chosen_columns(self.rows, names, f"site {name!r}", raw=raw)
            return Client(name, rows, self.protection.filters)

        responder = Responder(
            client,
            columns=columns,
            choose=choose,
            steps=STEPS,
            preprocessors=partial(row_transform, steps=STEPS),
            policy=AllowAll()
            if self.protection.policy is None
            else Policy(self.protection.policy, disclosure=client.disclosure),
            secure=secure,
        )
        return Coordinator(responder, public)

    def units(self) -> NDArray[np.int64]:
        """Return the sum that each row is in, (n,): its group's number, its own, or -1."""
        if self.protection.groups is None:
            return np.arange(len(self.rows))
        kept = Partition.read(self.file)
        if self.rows.groups is None:
            ids = unique_ids(row_ids(self.rows, kept.key))
        else:
            persons, place = np.unique(self.rows.groups, return_inverse=True)
            ids = person_ids(persons, kept.key)[place]
        member = dict(zip(kept.units.tolist(), kept.members.tolist(), strict=True))
        return np.array([member.get(unit, -1) for unit in ids.tolist()])

    def truth(self, public: Public) -> TrueRows:
        """Return the rows with which claims are compared."""
        step = np.append(public.step, 1.0)
        rows, others = (values_of(data, public) for data in (self.rows, self.others))
        return TrueRows(rows, others, step, max(self.protection.smallest, 3))


def owners(rows: Data) -> Ids:
    """Return the index of the person of each row, (n,), or of the row if there are none."""
    if rows.groups is None:
        return np.arange(len(rows))
    whose: Ids = np.unique(rows.groups, return_inverse=True)[1]
    return whose


def values_of(data: Data, public: Public) -> Floats:
    """Return numbers and the label's index of rows, (n, d + 1), with NaN for missing values."""
    names = [column.name for column in columns_of(data)]
    numbers = data.X[:, [names.index(name) for name in public.numbers]].astype(np.float64)
    label = np.full(len(data), np.nan)
    if data.y is not None:
        place = {name: i for i, name in enumerate(public.classes)}
        label = np.array([place[name] for name in data.y.astype(str)], dtype=np.float64)
    return np.column_stack([numbers, label])


def public_of(rows: Data) -> Public:
    """Return the public knowledge of rows: columns, ranges, steps, lists of texts and labels."""
    columns = columns_of(rows)
    number = [j for j, column in enumerate(columns) if column.kind == "number"]
    values = rows.X[:, number].astype(np.float64)
    step = np.array([_step(each[np.isfinite(each)]) for each in values.T])
    low, high = np.nanmin(values, axis=0) - 3 * step, np.nanmax(values, axis=0) + 3 * step
    return Public(
        tuple(Column(column.name, column.kind) for column in columns),
        tuple(columns[j].name for j in number),
        low,
        high,
        step,
        {column.name: column.levels for column in columns if column.levels},
        () if rows.y is None else tuple(np.unique(rows.y.astype(str)).tolist()),
        len(rows),
    )


def _step(values: Floats) -> float:
    """Return the smallest difference of values: a power of ten, or a share of their deviation.

    Examples
    --------
    >>> _step(np.array([1.0, 4.0])), _step(np.array([0.25, 0.5]))
    (1.0, 0.01)
    >>> _step(np.array([4e-9, 7e-9])), _step(np.array([4e9, 7e9]))
    (1e-09, 1000000000.0)
    """
    largest = float(np.abs(values).max(initial=0.0))
    first = -int(np.floor(np.log10(largest))) if largest else 0
    for digits in range(first, first + DECIMALS):
        steps = values * 10.0**digits
        if np.allclose(steps, np.rint(steps), rtol=0, atol=1e-6):
            return float(10.0**-digits)
    return float(1e-4 * values.std() or 1.0)


def split(data: Data, rng: np.random.Generator) -> tuple[Data, Data]:
    """Return the rows for the site, and a fifth that it never has."""
    unit: NDArray[Any] = np.arange(len(data)) if data.groups is None else data.groups
    names = np.unique(unit)
    away = np.isin(unit, rng.choice(names, len(names) // 5, replace=False))
    return data.take(~away), data.take(away)


@dataclass(eq=False)
class AttackRun:
    """One attack on one site.

    Parameters
    ----------
    subject : AttackedSite
        The site. An attack only uses what its description assumes a coordinator to know, such as
        the members of each sum, or all rows except one.
    public : Public
        The public knowledge.
    whose : ndarray of shape (n,), optional
        The person of each row (or the row itself), as numbered in all versions.
    versions : list of AttackRun
        The site in later versions of its rows.
    """

    subject: AttackedSite
    public: Public
    whose: Ids = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    versions: list[AttackRun] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if not len(self.whose):
            self.whose = owners(self.subject.rows)

    def begin(self, rows: Data, whose: Ids | None = None) -> None:
        """Let the site have other rows from the start."""
        self.subject = replace(self.subject, rows=rows)
        self.whose = owners(rows) if whose is None else whose

    @cached_property
    def coordinator(self) -> Coordinator:
        """The coordinator of the site."""
        return self.subject.coordinator(self.public)

    def tried(
        self, rows: Data, whose: Ids | None = None, protection: Protection | None = None
    ) -> AttackRun | None:
        """Return the site with other rows and its groups kept, opened now; None if it refuses."""
        _ = self.units  # computed now, as later versions change the site's file
        after = replace(self.subject, rows=rows, protection=protection or self.subject.protection)
        opened = AttackRun(after, self.public, owners(rows) if whose is None else whose)
        try:
            _ = opened.units
        except InputError:
            self.coordinator.refused += 1
            self.coordinator.asked += 1
            return None
        self.versions.append(opened)
        return opened

    @property
    def refused(self) -> int:
        """The number of tasks that the site refused, in all versions."""
        return sum(play.coordinator.refused for play in (self, *self.versions))

    @property
    def asked(self) -> int:
        """The number of tasks, in all versions."""
        return sum(play.coordinator.asked for play in (self, *self.versions))

    # What a coordinator may know besides, in some attacks

    @cached_property
    def numbers(self) -> Floats:
        """The numbers of the rows, (n, d), filled in as the public preparation does."""
        values = values_of(self.subject.rows, self.public)[:, :-1]
        return np.where(np.isnan(values), self.public.middle, values)

    @cached_property
    def units(self) -> NDArray[np.int64]:
        """The sum that each row is in, (n,)."""
        _ = self.coordinator
        return self.subject.units()

    @property
    def groups(self) -> list[NDArray[np.int64]]:
        """The rows in each sum."""
        return [np.flatnonzero(self.units == g) for g in np.unique(self.units[self.units >= 0])]

    def lines(self, centers: Floats) -> NDArray[np.bool_]:
        """Return which rows are in each line of an answer about centres, (k, n)."""
        numbers = self.numbers.copy()
        for unit in np.unique(self.units) if self.subject.protection.groups else ():
            rows = self.units == unit
            numbers[rows] = numbers[rows].mean(axis=0)
        apart = ((numbers[:, None] - centers[None]) ** 2).sum(axis=2)
        is_line: NDArray[np.bool_] = apart.argmin(axis=1) == np.arange(len(centers))[:, None]
        return is_line & (self.units >= 0)


TOWNS = ("Ahlen", "Bonn", "Celle", "Zell")


def simulated(n: int = 400, seed: int = 0, *, missing: float = 0.02) -> Data:
    """Return rows of simulated patients: whole numbers, decimals, a flag, texts and a diagnosis.

    Only one of them lives in Zell, and only one has the flag.

    Examples
    --------
    >>> [column.name for column in simulated(40).columns]
    ['age', 'weight', 'pressure', 'flag', 'town']
    """
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, n)
    age = rng.normal(np.array([30, 45, 60, 75])[kind], 8).round().clip(18, 99)
    weight = rng.normal(np.array([60, 80, 70, 90])[kind], 9).round(1)
    pressure = rng.normal(np.array([115, 130, 145, 160])[kind], 11).round()
    flag, town = np.zeros(n), rng.integers(0, 3, n).astype(np.float64)
    flag[rng.integers(n)], town[rng.integers(n)] = 1.0, 3.0
    X = np.column_stack([age, weight, pressure, flag, town])
    X[:, :3][rng.random((n, 3)) < missing] = np.nan
    numbers = tuple(Column(name) for name in ("age", "weight", "pressure", "flag"))
    y = rng.choice(["ill", "well"], n, p=[0.3, 0.7])
    return Data(X, None, y, (*numbers, Column("town", "text", TOWNS)))
