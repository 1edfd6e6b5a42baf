"""Plots of a fitted estimator, by the conventions of scikit-learn's displays (extra ``plot``).

Each display has a class method ``from_estimator``, a method ``plot`` that draws again on other
axes, and the attributes ``ax_`` and ``figure_``.

Examples
--------
>>> from fedcluster import FederatedKMeans
>>> from fedcluster.plotting import ClustersBySiteDisplay
>>> rows = {"north": [[1.0], [2.0], [9.0]], "south": [[1.0], [8.0], [9.0]]}
>>> display = ClustersBySiteDisplay.from_estimator(FederatedKMeans(2, random_state=0).fit(rows))
>>> display.sites, display.counts.tolist()
(['north', 'south'], [[2, 1], [1, 2]])
"""

try:
    import matplotlib.pyplot  # noqa: F401 - says what is to be installed
except ImportError as error:
    raise ImportError('plots need matplotlib: pip install "fedcluster[plot]"') from error

from fedcluster.plotting._displays import (
    CenterProfilesDisplay,
    ClustersBySiteDisplay,
    ConvergenceDisplay,
    KSelectionDisplay,
    SilhouetteDisplay,
    StabilityDisplay,
)

__all__ = [
    "CenterProfilesDisplay",
    "ClustersBySiteDisplay",
    "ConvergenceDisplay",
    "KSelectionDisplay",
    "SilhouetteDisplay",
    "StabilityDisplay",
]
