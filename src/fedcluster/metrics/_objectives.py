"""Names of what algorithms make small: the number that `State.inertia` of a final state is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fedcluster.core import Algorithm, Metric
from fedcluster.metrics._clusters import Inertia
from fedcluster.metrics._fuzzy import FuzzyObjective
from fedcluster.metrics._gaussians import LogLikelihood
from fedcluster.metrics._incomplete import PresentInertia

LOG_LIKELIHOOD = "log-likelihood"
REPORTED = "inertia as the algorithm reports it"
"""What a round of an algorithm of one's own tells, whose objective is asked after the last one."""

NAMES: Mapping[type, str] = MappingProxyType(
    {
        Inertia: "inertia",
        PresentInertia: "present-inertia",
        FuzzyObjective: "fuzzy-objective",
        LogLikelihood: LOG_LIKELIHOOD,
    }
)

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "inertia": "the sum of squared distances of the rows to their centres",
        "present-inertia": "the sum of squared distances over the values that are not missing",
        "fuzzy-objective": "the sum of squared distances by membership to the power m",
        LOG_LIKELIHOOD: "the logarithm of the density of the rows",
        "noisy-inertia": "the sum of squared distances, clipped and with the noise of the budget",
        "robust-inertia": "the sum of squared distances, of sites that are farthest off bounded",
    }
)
"""What the objectives of the package are."""


def objective_name(
    algorithm: Algorithm | None, *, robust: bool = False, noisy: bool = False
) -> str:
    """Return the name of an algorithm's objective; of one's own, the metric as it is written.

    Parameters
    ----------
    algorithm : Algorithm or None
        The algorithm; None for one that is not known.
    robust : bool, default=False
        Whether the fit bounds what single sites can change.
    noisy : bool, default=False
        Whether the fit has a privacy budget.

    Examples
    --------
    >>> from fedcluster.algorithms import FFCM, Lloyd
    >>> objective_name(Lloyd()), objective_name(Lloyd(), robust=True), objective_name(FFCM(2.0))
    ('inertia', 'robust-inertia', 'fuzzy-objective')
    """
    name = "inertia" if algorithm is None else metric_name(algorithm.objective())
    changed = "noisy-" if noisy else "robust-" if robust else ""
    return f"{changed}{name}" if name == "inertia" else name


def metric_name(metric: Metric) -> str:
    """Return the name of an objective: a word, or for one's own how it is written."""
    return NAMES.get(type(metric), str(metric))


def shown_value(name: str, value: float) -> float:
    """Return an objective as people read it: the log-likelihood, of which minus is made small."""
    return -value if name == LOG_LIKELIHOOD else value


def round_name(name: str) -> str:
    """Return what each round of a run with an objective of this name tells."""
    return name if name in MEANINGS else REPORTED
