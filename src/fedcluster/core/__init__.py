"""The vocabulary: every message of federated clustering is a set of weighted sums.

Values are frozen dataclasses, protocols are structural. These modules import nothing else from the
package. ``__all__`` lists the names for users; the package uses the other names too.
"""

from __future__ import annotations

from fedcluster.core.data import (
    GRID,
    Column,
    Data,
    Floats,
    Grouped,
    Labels,
    Rows,
    RowStream,
    coarse,
    first_of_each,
    lexicographic,
    on_grid,
)
from fedcluster.core.engine import ALL_SITES, Answers, Engine, Iteration, Result, Sent
from fedcluster.core.step import (
    MOST_FOR_A_ROW,
    Algorithm,
    Assigns,
    Describe,
    FitParameters,
    Metric,
    PlannedStep,
    RowTransform,
    Sensitive,
    Sensitivity,
    State,
    Step,
    Summary,
    check_step,
)
from fedcluster.core.task import (
    SCALARS,
    Filter,
    FirstTasks,
    Introduction,
    Limit,
    SiteInfo,
    Task,
    first_alike,
)

__all__ = [
    "Algorithm",
    "Answers",
    "Assigns",
    "Column",
    "Data",
    "Engine",
    "Filter",
    "Iteration",
    "Metric",
    "Result",
    "RowStream",
    "Sensitive",
    "Sensitivity",
    "SiteInfo",
    "State",
    "Step",
    "Summary",
    "Task",
]
