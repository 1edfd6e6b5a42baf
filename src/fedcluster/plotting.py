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

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster._pages._charts import DEEPEST
from fedcluster._pages._run import Run
from fedcluster._report._pictures import COLOURS
from fedcluster.core import Floats
from fedcluster.errors import InputError
from fedcluster.metrics._indices import CHOOSING
from fedcluster.model import Model
from fedcluster.selection import Selection

try:
    from matplotlib import pyplot
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install 'fedcluster[plot]'") from error

__all__ = [
    "CenterProfilesDisplay",
    "ClustersBySiteDisplay",
    "ConvergenceDisplay",
    "KSelectionDisplay",
]


LIGHT = 1.3
"""Distance from which on a cell is so dark that its text is light."""


class ConvergenceDisplay:
    """Inertia and largest shift of a centre, round by round, of the run that won.

    Parameters
    ----------
    rounds : sequence of int
        The numbers of the rounds.
    inertia : ndarray of shape (rounds,)
        The inertia of the centres that a round began with; nan where it is not known.
    shift : ndarray of shape (rounds,)
        The largest distance by which a centre moved; nan where it is not known.
    measure : str, default="inertia"
        What ``inertia`` is: of a mixture, the negative log-likelihood.

    Attributes
    ----------
    ax_ : Axes
        The axes of the inertia.
    shift_ax_ : Axes
        The logarithmic axes of the shift, on the right.
    figure_ : Figure
        Their figure.
    """

    def __init__(
        self, rounds: Sequence[int], inertia: Floats, shift: Floats, *, measure: str = "inertia"
    ) -> None:
        self.rounds, self.inertia, self.shift = list(rounds), inertia, shift
        self.measure = measure

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Plot how a fitted estimator converged.

        Parameters
        ----------
        estimator : FederatedKMeans or another estimator
            A fitted one, not read from a file.
        ax : Axes, optional
            Where to draw, by default a new figure.
        **kwargs : object
            For the lines, as matplotlib's ``plot`` takes them.
        """
        history = _of(estimator, "history_")
        rounds, inertia, shift = (
            [done[name] for done in history] for name in ("round", "inertia", "shift")
        )
        mixture = hasattr(estimator, "covariance_type")
        measure = "negative log-likelihood" if mixture else "inertia"
        values = [np.array(each, dtype=float) for each in (inertia, shift)]
        return cls(rounds, *values, measure=measure).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw, on these axes or in a new figure."""
        self.figure_, self.ax_ = _axes(ax)
        style = {"marker": "o", "markersize": 3} | kwargs
        self.ax_.plot(self.rounds, self.inertia, **{"color": COLOURS[0], **style})
        self.ax_.set(xlabel="round", ylabel=self.measure)
        self.ax_.locator_params(axis="x", integer=True)
        self.shift_ax_ = self.ax_.twinx()
        moved = np.where(self.shift > 0, self.shift, np.nan)
        self.shift_ax_.plot(self.rounds, moved, **{**style, "color": COLOURS[1], "linestyle": "--"})
        self.shift_ax_.set(ylabel="largest shift of a centre (dashed)")
        if np.isfinite(moved).any():
            self.shift_ax_.set_yscale("log")
        return self


class KSelectionDisplay:
    """An index over the number of clusters, with its choice and the verdict.

    Parameters
    ----------
    selection : Selection
        A choice of k, from `select_k` or ``selection_`` of an estimator.
    index : str, optional
        Which index, by default that of the rule.

    Attributes
    ----------
    ax_ : Axes
        The axes.
    figure_ : Figure
        Their figure.
    """

    def __init__(self, selection: Selection, *, index: str | None = None) -> None:
        own = selection.rule.split(",")[0]
        self.selection = selection
        self.index = (own if own in selection.says else "inertia") if index is None else index
        if self.index not in selection.says:
            known = ", ".join(selection.says)
            raise InputError(f"index must be one of {known}, not {self.index!r}")

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, index: str | None = None, ax: Any = None, **kwargs: Any
    ) -> Self:
        """Plot how an estimator with ``n_clusters="auto"`` chose.

        Parameters
        ----------
        estimator : FederatedKMeans or another estimator
            A fitted one that chose the number of clusters.
        index : str, optional
            Which index, by default that of the rule.
        ax : Axes, optional
            Where to draw, by default a new figure.
        **kwargs : object
            For the line, as matplotlib's ``plot`` takes them.
        """
        selection = _of(estimator, "selection_")
        if selection is None:
            raise InputError("the estimator was given its number of clusters: it chose none")
        return cls(selection, index=index).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw, on these axes or in a new figure."""
        self.figure_, self.ax_ = _axes(ax)
        table, says = self.selection.table, self.selection.says[self.index]
        ks = sorted(table)
        values = np.array([table[k].get(self.index, np.nan) for k in ks], dtype=float)
        values[~np.isfinite(values)] = np.nan
        self.ax_.axvline(self.selection.n_clusters, color=COLOURS[1], linewidth=6, alpha=0.25)
        self.ax_.plot(ks, values, **{"marker": "o", "color": COLOURS[0], **kwargs})
        self.ax_.plot([says], values[ks.index(says)], "o", color=COLOURS[1], markersize=9)
        name = CHOOSING[self.index].label.removeprefix("the ")
        self.ax_.set(xlabel="number of clusters k", ylabel=name)
        self.ax_.locator_params(axis="x", integer=True)
        return self


class ClustersBySiteDisplay:
    """Bars of the sites: the share of each cluster among a site's rows.

    Parameters
    ----------
    sites : sequence of str
        The names of the sites.
    counts : ndarray of shape (sites, k)
        The rows of each cluster at each site.

    Attributes
    ----------
    ax_ : Axes
        The axes.
    bars_ : list of BarContainer
        The bars of each cluster.
    figure_ : Figure
        Their figure.
    """

    def __init__(self, sites: Sequence[str], counts: NDArray[Any]) -> None:
        self.sites, self.counts = list(sites), np.asarray(counts)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Plot which clusters each site of a fit has; rows without a cluster do not count.

        Parameters
        ----------
        estimator : FederatedKMeans or another estimator
            One fitted to rows of this process.
        ax : Axes, optional
            Where to draw, by default a new figure.
        **kwargs : object
            For the bars, as matplotlib's ``barh`` takes them.
        """
        labels = _of(estimator, "site_labels_")
        k = estimator.n_clusters_
        counts = [np.bincount(each[each >= 0], minlength=k) for each in labels.values()]
        return cls(list(labels), np.array(counts)).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw, on these axes or in a new figure."""
        self.figure_, self.ax_ = _axes(ax)
        share = self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        left = np.zeros(len(self.sites))
        self.bars_ = []
        for j, widths in enumerate(share.T):
            style = {"color": COLOURS[j % len(COLOURS)], "label": f"cluster {j}", **kwargs}
            self.bars_.append(self.ax_.barh(self.sites, widths, left=left, **style))
            left += widths
        self.ax_.set(xlim=(0, 1), xlabel="share of the site's rows")
        self.ax_.invert_yaxis()
        self.ax_.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        return self


class CenterProfilesDisplay:
    """Heat map of the centres: how far each lies from the mean of all rows, in each column.

    Parameters
    ----------
    columns : sequence of str
        The columns, and levels of text as COLUMN = LEVEL.
    apart : ndarray of shape (columns, k)
        The distances, in standard deviations of the rows where the columns were scaled to
        variance 1, else of the centres.

    Attributes
    ----------
    ax_ : Axes
        The axes.
    image_ : AxesImage
        The heat map.
    figure_ : Figure
        Their figure.
    """

    def __init__(self, columns: Sequence[str], apart: Floats) -> None:
        self.columns, self.apart = list(columns), apart

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, most: int = 20, ax: Any = None, **kwargs: Any
    ) -> Self:
        """Plot what sets the clusters of a fitted estimator apart.

        Parameters
        ----------
        estimator : FederatedKMeans or another estimator
            A fitted one.
        most : int, default=20
            How many columns are shown, those first in which centres lie farthest apart.
        ax : Axes, optional
            Where to draw, by default a new figure.
        **kwargs : object
            For the heat map, as matplotlib's ``imshow`` takes them.
        """
        features = Run(model=Model.from_estimator(estimator).plain()).features
        features = sorted(features, key=lambda each: -float(np.abs(each.apart).max()))[:most]
        apart = np.array([each.apart for each in features])
        return cls([each.name for each in features], apart).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw, on these axes or in a new figure."""
        self.figure_, self.ax_ = _axes(ax)
        style = {"cmap": "PuOr_r", "vmin": -DEEPEST, "vmax": DEEPEST, "aspect": "auto", **kwargs}
        self.image_ = self.ax_.imshow(self.apart, **style)
        n, k = self.apart.shape
        self.ax_.set_xticks(range(k), [f"cluster {j}" for j in range(k)])
        self.ax_.set_yticks(range(n), self.columns)
        for i in range(n):
            for j in range(k):
                light = "white" if abs(self.apart[i, j]) > LIGHT else "black"
                self.ax_.text(
                    j,
                    i,
                    f"{self.apart[i, j]:+.1f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=light,
                )
        self.figure_.colorbar(self.image_, ax=self.ax_, label="standard deviations from the mean")
        return self


def _of(estimator: Any, name: str) -> Any:
    """Return what a fit has left in an estimator."""
    try:
        return getattr(estimator, name)
    except AttributeError as error:
        raise InputError(
            f"the estimator has no {name}: it is not fitted, or was read from a file, or was "
            "fitted to rows that are elsewhere"
        ) from error


def _axes(ax: Any) -> tuple[Any, Any]:
    """Return a figure and its axes: those that are given, or new ones."""
    if ax is not None:
        return ax.figure, ax
    return pyplot.subplots(layout="constrained")
