"""Rows with assigned clusters, for algorithms that do not use the nearest centre.

An evaluation needs the label of each row. If an algorithm assigns rows by its own rule, the sites
label their rows with it as a part of preparing them, so that no metric needs to know how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Self

import numpy as np

from fedcluster.core import Data, Describe, Labels, RowTransform, Task
from fedcluster.core.ranges import Box
from fedcluster.engines import wire
from fedcluster.errors import PolicyError
from fedcluster.model.assignment import NO_CLUSTER, Assignment
from fedcluster.preprocessing import Preprocessor


@dataclass(frozen=True, slots=True, eq=False)
class AssignedRows:
    """Transform that prepares rows and assigns them to clusters, dropping those of none.

    Missing values that the preprocessor ignores are filled in for the assignment.

    Parameters
    ----------
    preprocessor : Preprocessor or None
        The preparation of the rows; without it, rows must be numeric, and those with a missing
        value are dropped.
    assigned : Task
        The algorithm that assigns rows, and the state with its clusters; the nearest centre decides
        if it has no ``assign``. A site checks them against its policy like any question.
    reported : Preprocessor, optional
        The form in which assigned rows are passed on, if not that of the assignment; it drops no
        rows.
    """

    preprocessor: Preprocessor | None
    assigned: Task
    reported: Preprocessor | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AssignedRows) and self.plain() == other.plain()

    __hash__ = None  # type: ignore[assignment]

    @property
    def missing(self) -> str:
        """The treatment of missing values."""
        how = self.preprocessor
        if self.reported is not None:
            return self.reported.missing
        return "drop" if how is None or how.missing == "ignore" else how.missing

    @property
    def box(self) -> bool:
        """False, as the rows are not bounded."""
        return False

    @property
    def offset_rows(self) -> float:
        """The fewest rows of a subtype that decide the offset of a site; inf if there is none."""
        return inf if self.preprocessor is None else self.preprocessor.offset_rows

    def completing(self) -> Self:
        """The transform itself, as it leaves no missing values that it ignores."""
        return self

    @property
    def n_columns_out(self) -> int:
        """The number of columns of the prepared rows."""
        d: int = self.assigned.state.centers.shape[1]
        how = self.reported or self.preprocessor
        return d if how is None else how.n_columns_out

    @property
    def assignments(self) -> tuple[tuple[Task, int]]:
        """The assignment, and the number of columns of the rows in the form for it."""
        d, how = self.assigned.state.centers.shape[1], self.preprocessor
        return ((self.assigned, d if how is None else how.n_columns_out),)

    @property
    def n_clusters(self) -> int:
        """The number k of clusters."""
        return Assignment(self.assigned.state, self.assigned.step).n_clusters

    def enclosing(self, ranges: Mapping[str, tuple[float, float]]) -> Box:
        """Return the smallest and the largest values of prepared rows, from ranges of columns."""
        how = self.reported or self.preprocessor
        return Box.unbounded(self.n_columns_out) if how is None else how.enclosing(ranges)

    def apply(self, data: Data) -> Data:
        """Return the prepared rows with their clusters, or without them if no row is left."""
        how = self.preprocessor
        if how is None:
            rows = data.take(np.logical_not(np.isnan(data.X).any(axis=1)))
        else:
            ignoring = how.missing == "ignore"
            data = data.take(how.complete(data)) if ignoring or self.reported else data
            rows = how.apply(data)
        if not len(rows):
            return rows
        labels = Assignment(self.assigned.state, self.assigned.step).labels(rows.X)
        if how is not None and self.reported is not None:
            rows = self.reported.apply(data)
        elif how is not None and ignoring:
            rows = how.completing().apply(data)
        return replace(rows, assigned=labels).take(labels != NO_CLUSTER)

    def labels(self, data: Data) -> Labels:
        """Return the cluster of each row, as `Model.predict` does; k for a row of no cluster."""
        rows = data.X if self.preprocessor is None else self.preprocessor.aligned(data)
        labels = Assignment(self.assigned.state, self.assigned.step).labels(rows)
        return np.where(labels == NO_CLUSTER, self.n_clusters, labels).astype(np.int32)

    def check(self, columns: Sequence[str]) -> None:
        """Raise ValueError, naming the rule, if no site with these columns may be asked so."""
        for how in (self.preprocessor, self.reported):
            if how is not None:
                how.check(columns)
        if self.reported is not None and (
            self.preprocessor is None or self.reported.missing != "keep"
        ):
            raise ValueError("rows with clusters are told as prepared rows that keep gaps")

    def disclosed_only(self, describe: Describe) -> Self:
        """Return the transform restricted to what a site discloses about its columns.

        Raises
        ------
        PolicyError
            If a text column is treated as numeric.
        """
        if self.preprocessor is not None:
            reported = None if self.reported is None else self.reported.disclosed_only(describe)
            return replace(
                self, preprocessor=self.preprocessor.disclosed_only(describe), reported=reported
            )
        if any(column.kind not in ("number", "empty") for column in describe(())):
            raise PolicyError("preparation: a column of numbers must hold numbers")
        return self

    def plain(self) -> dict[str, Any]:
        """Return the transform as JSON-compatible values."""
        headers, arrays = wire.write_tasks([self.assigned])
        assigned = {"task": headers[0], "arrays": {name: a.tolist() for name, a in arrays.items()}}
        before = {} if self.preprocessor is None else self.preprocessor.plain()
        shown = {} if self.reported is None else {"told": self.reported.plain()}
        return {**before, "assigned": assigned, **shown}


@dataclass(frozen=True, slots=True, eq=False)
class CrossedRows:
    """Transform that assigns rows to the clusters of two models.

    A prepared row has one column, its cluster in the other model, and is assigned to that in the
    first. A row of no cluster of a model, such as one that its preparation drops, gets the number
    after the last cluster.

    Parameters
    ----------
    one, other : AssignedRows
        The preparations and assignments of both models.

    Examples
    --------
    >>> from fedcluster import State
    >>> from fedcluster.algorithms import Lloyd
    >>> rows = Data(np.array([[0.0], [4.0], [9.0], [np.nan]]))
    >>> two, three = (
    ...     AssignedRows(None, Task(Lloyd(), State.at(centers)))
    ...     for centers in ([[0.0], [8.0]], [[0.0], [5.0], [9.0]])
    ... )
    >>> crossed = CrossedRows(two, three).apply(rows)
    >>> crossed.assigned, crossed.X.ravel()
    (array([0, 0, 1, 2], dtype=int32), array([0., 1., 2., 3.]))
    """

    one: AssignedRows
    other: AssignedRows

    missing = "drop"
    box = False
    n_columns_out = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CrossedRows) and self.plain() == other.plain()

    __hash__ = None  # type: ignore[assignment]

    @property
    def assignments(self) -> tuple[tuple[Task, int], ...]:
        """Both assignments."""
        return self.one.assignments + self.other.assignments

    @property
    def offset_rows(self) -> float:
        """The fewest rows of a subtype that decide the offset of a site; inf if there is none."""
        return min(self.one.offset_rows, self.other.offset_rows)

    def completing(self) -> Self:
        """Return the transform itself, as a cluster is never missing."""
        return self

    def apply(self, data: Data) -> Data:
        """Return the clusters of all rows."""
        grouped = data.grouped and replace(data.grouped, shares={}, scatter={})
        other = self.other.labels(data)[:, None].astype(np.float64)
        own = self.one.labels(data)
        return Data(other, data.sample_weight, groups=data.groups, grouped=grouped, assigned=own)

    def check(self, columns: Sequence[str]) -> None:
        """Raise ValueError, naming the rule, if no site with these columns may be asked so."""
        self.one.check(columns)
        self.other.check(columns)

    def disclosed_only(self, describe: Describe) -> Self:
        """Return the transform restricted to what a site discloses; see `AssignedRows`."""
        one, other = (each.disclosed_only(describe) for each in (self.one, self.other))
        return replace(self, one=one, other=other)

    def plain(self) -> dict[str, Any]:
        """Return the transform as JSON-compatible values."""
        return {"crossed": [self.one.plain(), self.other.plain()]}


def row_transform(content: Mapping[str, Any], steps: wire.Steps = wire.STEPS) -> RowTransform:
    """Return the transform from its plain form, with steps that a site knows.

    Raises
    ------
    ValueError, LookupError, TypeError
        If the content has another form.
    """
    if "crossed" in content:
        one, other = (_assigned_rows(each, steps) for each in content["crossed"])
        return CrossedRows(one, other)
    if "assigned" not in content:
        return Preprocessor.from_plain(content)
    return _assigned_rows(content, steps)


def _assigned_rows(content: Mapping[str, Any], steps: wire.Steps) -> AssignedRows:
    assigned = content["assigned"]
    arrays = {name: np.array(each, dtype=np.float64) for name, each in assigned["arrays"].items()}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise ValueError("arrays must have finite numbers")
    [task] = wire.read_tasks([assigned["task"]], arrays, steps)
    before = Preprocessor.from_plain(content) if "columns" in content else None
    shown = Preprocessor.from_plain(content["told"]) if "told" in content else None
    transform = AssignedRows(before, task, shown)
    Assignment(task.state, task.step)  # raises if no row could be assigned to the state
    return transform
