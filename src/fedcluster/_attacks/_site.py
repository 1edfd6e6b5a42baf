"""Site that is attacked: its rows, its protection, and versions of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster._assigned_rows import row_transform
from fedcluster._attacks._claims import Truth
from fedcluster._attacks._coordinator import Coordinator, Public
from fedcluster.client import Client
from fedcluster.core import Column, Data, Filter, Floats
from fedcluster.engines._responder import Responder, SecureSums
from fedcluster.engines._wire import steps_by_name
from fedcluster.io._columns import chosen_columns, columns_of
from fedcluster.preprocessing._moments import Covariance, Missing
from fedcluster.preprocessing._quantiles import Histogram
from fedcluster.privacy import Grouping, Groups, MinClusterSize, MinRows
from fedcluster.privacy._ledger import PolicyLimits
from fedcluster.privacy._partition import Partition, person_ids, row_ids, told_apart
from fedcluster.privacy._policy import Policy

PREPARATION = (Histogram, Covariance, Missing)
STEPS = steps_by_name(f"{step.__module__}.{step.__name__}" for step in PREPARATION)
DECIMALS = 6
LIMITS = (MinRows(20), MinClusterSize(5))


class Anything(Policy):
    """Policy of a site that may be asked anything, to show what its protection alone does."""

    def check(self, *_asked: object, **_more: object) -> None:
        """Let every question pass."""


@dataclass(frozen=True, slots=True, eq=False)
class Protection:
    """Protection of a site: groups, or limits alone.

    Parameters
    ----------
    name : str
        What a table calls it.
    groups : Groups, optional
        How rows are grouped.
    filters : tuple of Filter
        The limits; where rows are grouped, on sums over groups.
    policy : PolicyLimits, optional
        What the site may be asked; by default anything, as far as it is understood.
    label : str, optional
        The name of the column of labels, which groups may have rules about.
    """

    name: str
    groups: Groups | None = None
    filters: tuple[Filter, ...] = ()
    policy: PolicyLimits | None = None
    label: str | None = None

    @property
    def smallest(self) -> int:
        """Rows behind a group, or behind a sum that leaves."""
        if self.groups is not None:
            return self.groups.p
        return max((f.p for f in self.filters if isinstance(f, MinClusterSize)), default=1)


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """Site that is attacked.

    Parameters
    ----------
    rows : Data
        Its rows, not prepared.
    others : Data
        Rows of the same kind that it never had.
    protection : Protection
        How it protects its rows.
    folder : Path
        Where it keeps its groups.
    """

    rows: Data
    others: Data
    protection: Protection
    folder: Path

    @property
    def file(self) -> Path:
        """File of the site's groups."""
        return self.folder / f"{self.protection.name.replace(' ', '-')}.groups"

    @property
    def grouping(self) -> Grouping | None:
        """Protection of the client, if rows are grouped."""
        groups, label = self.protection.groups, self.protection.label
        roles = {} if label is None else {"label_column": label}
        return None if groups is None else Grouping(groups, self.file, roles)

    def coordinator(
        self, public: Public, name: str = "north", secure: SecureSums | None = None
    ) -> Coordinator:
        """Return a coordinator of the site; its rows are grouped now."""
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
            policy=Anything() if self.protection.policy is None else Policy(self.protection.policy),
            secure=secure,
        )
        return Coordinator(responder, public)

    def version(self, rows: Data) -> Subject:
        """Return the same site with other rows."""
        return replace(self, rows=rows)

    def units(self) -> NDArray[np.int64]:
        """Return the sum that each row is in, (n,): its group's number, its own, or -1."""
        if self.protection.groups is None:
            return np.arange(len(self.rows))
        names = [column.name for column in columns_of(self.rows)]
        kept = Partition.load(self.file, self.protection.groups.p, names)
        if self.rows.groups is None:
            ids = told_apart(row_ids(self.rows, kept.key))
        else:
            persons, place = np.unique(self.rows.groups, return_inverse=True)
            ids = person_ids(persons, kept.key)[place]
        member = dict(zip(kept.units.tolist(), kept.members.tolist(), strict=True))
        return np.array([member.get(unit, -1) for unit in ids.tolist()])

    def truth(self, public: Public) -> Truth:
        """Return what claims are held against."""
        step = np.append(public.step, 1.0)
        rows, others = (values_of(data, public) for data in (self.rows, self.others))
        return Truth(rows, others, step, max(self.protection.smallest, 3))


def values_of(data: Data, public: Public) -> Floats:
    """Return numbers and the label's place of rows, (n, d + 1); NaN where one is missing."""
    names = [column.name for column in columns_of(data)]
    numbers = data.X[:, [names.index(name) for name in public.numbers]].astype(np.float64)
    label = np.full(len(data), np.nan)
    if data.y is not None:
        place = {name: i for i, name in enumerate(public.classes)}
        label = np.array([place[name] for name in data.y.astype(str)], dtype=np.float64)
    return np.column_stack([numbers, label])


def public_of(rows: Data) -> Public:
    """Return what is public of rows: columns, ranges, steps, and lists of texts and labels."""
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
    """Return by how much values differ at least: a power of ten, or a share of their deviation.

    Examples
    --------
    >>> _step(np.array([1.0, 4.0])), _step(np.array([0.25, 0.5]))
    (1.0, 0.01)
    """
    for digits in range(DECIMALS):
        if np.allclose(values, values.round(digits), rtol=0, atol=1e-9):
            return float(10.0**-digits)
    return float(1e-4 * values.std() or 1.0)


def split(data: Data, rng: np.random.Generator) -> tuple[Data, Data]:
    """Return the rows that the site is played with, and a fifth that it never has."""
    unit: NDArray[Any] = np.arange(len(data)) if data.groups is None else data.groups
    names = np.unique(unit)
    away = np.isin(unit, rng.choice(names, len(names) // 5, replace=False))
    return data.take(~away), data.take(away)
