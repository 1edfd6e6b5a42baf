"""Rows with assigned clusters, for algorithms that do not use the nearest centre.

An evaluation needs the label of each row. If an algorithm assigns rows by its own rule, the sites
label their rows with it as a part of preparing them, so that no metric needs to know how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fedcluster.core import Data, Describe, RowTransform, Task
from fedcluster.core.ranges import Box
from fedcluster.engines import wire
from fedcluster.model.assignment import NO_CLUSTER, Assignment
from fedcluster.preprocessing import Preprocessor
from fedcluster.privacy.budget import PolicyError


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
    told : Preprocessor, optional
        The form in which assigned rows are passed on, if not that of the assignment; it drops no
        rows.
    """

    preprocessor: Preprocessor | None
    assigned: Task
    told: Preprocessor | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AssignedRows) and self.plain() == other.plain()

    __hash__ = None  # type: ignore[assignment]

    @property
    def missing(self) -> str:
        """The treatment of missing values."""
        how = self.preprocessor
        if self.told is not None:
            return self.told.missing
        return "drop" if how is None or how.missing == "ignore" else how.missing

    @property
    def box(self) -> bool:
        """False, as the rows are not bounded."""
        return False

    def completing(self) -> Self:
        """The transform itself, as it leaves no missing values that it ignores."""
        return self

    @property
    def n_columns_out(self) -> int:
        """The number of columns of the prepared rows."""
        d: int = self.assigned.state.centers.shape[1]
        how = self.told or self.preprocessor
        return d if how is None else how.n_columns_out

    @property
    def n_columns_assigned(self) -> int:
        """The number of columns of the rows in the form in which they are assigned."""
        d: int = self.assigned.state.centers.shape[1]
        return d if self.preprocessor is None else self.preprocessor.n_columns_out

    def enclosing(self, ranges: Mapping[str, tuple[float, float]]) -> Box:
        """Return the smallest and the largest values of prepared rows, from ranges of columns."""
        how = self.told or self.preprocessor
        return Box.unbounded(self.n_columns_out) if how is None else how.enclosing(ranges)

    def apply(self, data: Data) -> Data:
        """Return the prepared rows with their clusters, or without them if no row is left."""
        how = self.preprocessor
        if how is None:
            rows = data.take(np.logical_not(np.isnan(data.X).any(axis=1)))
        else:
            ignoring = how.missing == "ignore"
            data = data.take(how.complete(data)) if ignoring or self.told else data
            rows = how.apply(data)
        if not len(rows):
            return rows
        labels = Assignment(self.assigned.state, self.assigned.step).labels(rows.X)
        if how is not None and self.told is not None:
            rows = self.told.apply(data)
        elif how is not None and ignoring:
            rows = how.completing().apply(data)
        return replace(rows, assigned=labels).take(labels != NO_CLUSTER)

    def check(self, columns: Sequence[str]) -> None:
        """Raise ValueError, naming the rule, if no site with these columns may be asked so."""
        for how in (self.preprocessor, self.told):
            if how is not None:
                how.check(columns)
        if self.told is not None and (self.preprocessor is None or self.told.missing != "keep"):
            raise ValueError("rows with clusters are told as prepared rows that keep gaps")

    def disclosed_only(self, describe: Describe) -> Self:
        """Return the transform restricted to what a site discloses about its columns.

        Raises
        ------
        PolicyError
            If a text column is treated as numeric.
        """
        if self.preprocessor is not None:
            told = None if self.told is None else self.told.disclosed_only(describe)
            return replace(self, preprocessor=self.preprocessor.disclosed_only(describe), told=told)
        if any(column.kind not in ("number", "empty") for column in describe(())):
            raise PolicyError("preparation: a column of numbers must hold numbers")
        return self

    def plain(self) -> dict[str, Any]:
        """Return the transform as JSON-compatible values."""
        headers, arrays = wire.write_tasks([self.assigned])
        told = {"task": headers[0], "arrays": {name: a.tolist() for name, a in arrays.items()}}
        before = {} if self.preprocessor is None else self.preprocessor.plain()
        shown = {} if self.told is None else {"told": self.told.plain()}
        return {**before, "assigned": told, **shown}


def row_transform(content: Mapping[str, Any], steps: wire.Steps = wire.STEPS) -> RowTransform:
    """Return the transform from its plain form, with one of the steps that a site knows.

    Raises
    ------
    ValueError, LookupError, TypeError
        If the content has another form.
    """
    if "assigned" not in content:
        return Preprocessor.from_plain(content)
    told = content["assigned"]
    arrays = {name: np.array(each, dtype=np.float64) for name, each in told["arrays"].items()}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise ValueError("arrays must have finite numbers")
    [task] = wire.read_tasks([told["task"]], arrays, steps)
    before = Preprocessor.from_plain(content) if "columns" in content else None
    shown = Preprocessor.from_plain(content["told"]) if "told" in content else None
    transform = AssignedRows(before, task, shown)
    Assignment(task.state, task.step)  # refuses a state that no row could be assigned to
    return transform
