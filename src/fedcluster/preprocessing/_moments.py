"""The plans that find means and variances of columns, exact in two rounds."""

from __future__ import annotations

import numpy as np

from fedcluster.core import Floats, State, Summary, Task
from fedcluster.errors import HeldBackError
from fedcluster.metrics._moments import Squares
from fedcluster.rounds import Plan


def mean_of(total: Summary) -> Floats:
    """The means (d,) from the total of `Means`.

    Raises
    ------
    HeldBackError
        If the sites' limits held back all of a column.
    """
    if not (total.weights > 0).all():
        raise HeldBackError(
            "the sites' limits held back every value of a column, which cannot be prepared then; "
            "lower the limits or leave the column out"
        )
    return total.sums[:, 0] / total.weights


def variances(mean: Floats) -> Plan[tuple[Floats, Floats]]:
    """Plan the second round: the mean to the last bit and the variance of each column, (d,).

    The weight of all rows is the divisor, as in scikit-learn's `StandardScaler`.
    """
    [answers] = yield [Task(Squares(), State.at(mean[None, :]))]
    total = answers.total()
    weights = np.where(total.weights > 0, total.weights, 1.0)
    apart = total.sums[:, 0] / weights
    return mean + apart, np.maximum(total.sums[:, 1] / weights - apart**2, 0.0)
