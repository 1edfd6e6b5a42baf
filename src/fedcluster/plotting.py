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
from textwrap import fill
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.errors import InputError
from fedcluster.metrics.clusters import LOG_LIKELIHOOD, round_name
from fedcluster.metrics.indices import CHOOSING
from fedcluster.model import Model
from fedcluster.model.run import Run
from fedcluster.model.stability import Stability
from fedcluster.selection import Selection
from fedcluster.texts import COLOURS, DEEPEST, INK, called

try:
    from matplotlib import pyplot
except ImportError as error:
    raise ImportError('plots need matplotlib: pip install "fedcluster[plot]"') from error

__all__ = [
    "CenterProfilesDisplay",
    "ClustersBySiteDisplay",
    "ConvergenceDisplay",
    "KSelectionDisplay",
    "SilhouetteDisplay",
    "StabilityDisplay",
]


def fitted(estimator: Any, name: str) -> Any:
    """Return a fitted attribute of an estimator."""
    try:
        return getattr(estimator, name)
    except AttributeError as error:
        raise InputError(
            f"the estimator has no {name}: it is not fitted, or was read from a file, or was "
            "fitted to rows that are elsewhere"
        ) from error


def axes_of(ax: Any) -> tuple[Any, Any]:
    """Return a figure and its axes, new ones by default."""
    if ax is not None:
        return ax.figure, ax
    return pyplot.subplots(layout="constrained")


def labelled(j: int, names: Sequence[str]) -> str:
    """Return the label of a cluster in short lines, in which no sign is taken for mathematics."""
    return fill(called(j, names), 24).replace("$", r"\$")


class ClustersBySiteDisplay:
    """Bars of the sites: the share of each cluster among a site's rows.

    Parameters
    ----------
    sites : sequence of str
        The names of the sites.
    counts : ndarray of shape (sites, k)
        The number of rows of each cluster at each site.
    names : sequence of str, optional
        The names of the clusters.

    Attributes
    ----------
    ax_ : Axes
        The axes.
    bars_ : list of BarContainer
        The bars of each cluster.
    figure_ : Figure
        Their figure.
    """

    def __init__(
        self, sites: Sequence[str], counts: NDArray[Any], names: Sequence[str] = ()
    ) -> None:
        self.sites, self.counts, self.names = list(sites), np.asarray(counts), names

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Plot the clusters at each site of a fit; rows without a cluster do not count.

        Parameters
        ----------
        estimator : FederatedKMeans or another estimator
            An estimator fitted to rows of this process.
        ax : Axes, optional
            The axes to draw on, by default in a new figure.
        **kwargs : object
            Options for the bars, passed to matplotlib's ``barh``.
        """
        labels = fitted(estimator, "site_labels_")
        k = estimator.n_clusters_
        counts = [np.bincount(each[each >= 0], minlength=k) for each in labels.values()]
        names = fitted(estimator, "cluster_names_")
        return cls(list(labels), np.array(counts), names).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw, on these axes or in a new figure."""
        self.figure_, self.ax_ = axes_of(ax)
        share = self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        left = np.zeros(len(self.sites))
        self.bars_ = []
        for j, widths in enumerate(share.T):
            style = {"color": COLOURS[j % len(COLOURS)], "label": labelled(j, self.names), **kwargs}
            self.bars_.append(self.ax_.barh(self.sites, widths, left=left, **style))
            left += widths
        self.ax_.set(xlim=(0, 1), xlabel="share of the site's rows")
        self.ax_.invert_yaxis()
        self.ax_.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        return self


class CenterProfilesDisplay:
    """Heat map of the centres: the distance of each from the mean of all rows, by column.

    Parameters
    ----------
    columns : sequence of str
        The columns, and levels of text as COLUMN = LEVEL.
    apart : ndarray of shape (columns, k)
        The distances, in standard deviations of the rows if the columns were scaled to variance 1,
        otherwise estimated from the centres and the inertia.
    names : sequence of str, optional
        The names of the clusters.

    Attributes
    ----------
    ax_ : Axes
        The axes.
    image_ : AxesImage
        The heat map.
    figure_ : Figure
        Their figure.
    """

    light = 1.3  # distance from which on a cell is so dark that its text is light

    def __init__(self, columns: Sequence[str], apart: Floats, names: Sequence[str] = ()) -> None:
        self.columns, self.apart, self.names = list(columns), apart, names

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, most: int = 20, ax: Any = None, **kwargs: Any
    ) -> Self:
        """Plot the differences between the clusters of a fitted estimator.

        Parameters
        ----------
        estimator : FederatedKMeans or another estimator
            A fitted estimator.
        most : int, default=20
            The number of columns shown, starting with those in which centres are farthest apart.
        ax : Axes, optional
            The axes to draw on, by default in a new figure.
        **kwargs : object
            Options for the heat map, passed to matplotlib's ``imshow``.
        """
        run = Run(model=Model.from_estimator(estimator).plain())
        features = run.features
        features = sorted(features, key=lambda each: -float(np.abs(each.apart).max()))[:most]
        apart = np.array([each.apart for each in features])
        return cls([each.name for each in features], apart, run.names).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw, on these axes or in a new figure."""
        self.figure_, self.ax_ = axes_of(ax)
        style = {"cmap": "PuOr_r", "vmin": -DEEPEST, "vmax": DEEPEST, "aspect": "auto", **kwargs}
        self.image_ = self.ax_.imshow(self.apart, **style)
        n, k = self.apart.shape
        labels = [labelled(j, self.names) for j in range(k)]
        self.ax_.set_xticks(range(k), labels, rotation=30, ha="right", rotation_mode="anchor")
        self.ax_.set_yticks(range(n), self.columns)
        for i in range(n):
            for j in range(k):
                light = "white" if abs(self.apart[i, j]) > self.light else "black"
                style = {"ha": "center", "va": "center", "fontsize": 8, "color": light}
                self.ax_.text(j, i, f"{self.apart[i, j]:+z.1f}", **style)
        self.figure_.colorbar(self.image_, ax=self.ax_, label="standard deviations from the mean")
        return self


class SilhouetteDisplay:
    """Bars of the clusters: mean and deviation of the silhouettes of their rows.

    Parameters
    ----------
    means, spreads : ndarray of shape (k,)
        Mean and standard deviation of the simplified silhouettes of each cluster's rows.
    weights : ndarray of shape (k,)
        The weight of each cluster's rows.
    names : sequence of str, optional
        The names of the clusters.

    Attributes
    ----------
    ax_ : Axes
        The axes.
    bars_ : BarContainer
        The bars.
    figure_ : Figure
        Their figure.
    """

    def __init__(
        self, means: Floats, spreads: Floats, weights: Floats, names: Sequence[str] = ()
    ) -> None:
        self.means, self.spreads, self.weights, self.names = means, spreads, weights, names

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Plot the silhouettes of a fitted estimator by cluster; no rows are needed.

        Parameters
        ----------
        estimator : FederatedKMeans or another estimator
            An estimator fitted with ``profile``.
        ax : Axes, optional
            The axes to draw on, by default in a new figure.
        **kwargs : object
            Options for the bars, passed to matplotlib's ``barh``.
        """
        profiles = fitted(estimator, "profiles_")
        if profiles is None or profiles.silhouettes is None:
            raise InputError(
                "the estimator knows no silhouettes: fit two clusters and more with profile=True, "
                "and with no missing values that stay missing"
            )
        means, spreads = profiles.silhouettes
        names = fitted(estimator, "cluster_names_")
        return cls(means, spreads, profiles.weights, names).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw, on these axes or in a new figure."""
        self.figure_, self.ax_ = axes_of(ax)
        k = len(self.means)
        style = {"color": [COLOURS[j % len(COLOURS)] for j in range(k)], "ecolor": INK, **kwargs}
        self.bars_ = self.ax_.barh(range(k), self.means, xerr=self.spreads, capsize=3, **style)
        overall = float(np.nansum(self.means * self.weights) / max(self.weights.sum(), 1e-300))
        self.ax_.axvline(overall, color=INK, linewidth=0.8, linestyle="--")
        self.ax_.set_yticks(range(k), [labelled(j, self.names) for j in range(k)])
        self.ax_.set_ylim(k - 0.5, -0.5)
        self.ax_.set(xlabel="simplified silhouette: mean ± standard deviation, dashed of all rows")
        return self


class StabilityDisplay:
    """Dots of the replicates: how well each cluster is found again in bootstrap samples.

    Parameters
    ----------
    stability : Stability
        The ``stability_`` of an estimator.
    names : sequence of str, optional
        The names of the clusters.

    Attributes
    ----------
    ax_ : Axes
        The axes.
    figure_ : Figure
        Their figure.
    """

    spread = 0.25
    """Spread of the replicates' dots about the line of their cluster, so that none hides another.
    """

    def __init__(self, stability: Stability, names: Sequence[str] = ()) -> None:
        self.stability, self.names = stability, names

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Plot the stability of the clusters of a fitted estimator.

        Parameters
        ----------
        estimator : FederatedKMeans or FederatedFuzzyCMeans
            An estimator fitted with ``stability``.
        ax : Axes, optional
            The axes to draw on, by default in a new figure.
        **kwargs : object
            Options for the dots, passed to matplotlib's ``plot``.
        """
        stability = fitted(estimator, "stability_")
        if stability is None:
            raise InputError("the estimator knows no stability: fit it with stability=True")
        return cls(stability, fitted(estimator, "cluster_names_")).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw, on these axes or in a new figure."""
        self.figure_, self.ax_ = axes_of(ax)
        self.ax_.axvline(Stability.found_from, color=INK, linewidth=0.8, linestyle=":")
        words = enumerate(self.stability.words)
        names = [f"{labelled(j, self.names)}: {word}" for j, word in words]
        for j, own in enumerate(self.stability.jaccards.T):
            style = {"color": COLOURS[j % len(COLOURS)], "marker": "o", "linestyle": "none"}
            every = {**style, "markersize": 5, "alpha": 0.3, **kwargs}
            self.ax_.plot(own, j + np.linspace(-self.spread, self.spread, len(own)), **every)
            self.ax_.plot([self.stability.means[j]], [j], **{**style, "marker": "D"})
        self.ax_.set_yticks(range(len(names)), names)
        self.ax_.set(xlim=(0, 1.02), xlabel="Jaccard coefficient in each replicate, and their mean")
        self.ax_.set_ylim(len(names) - 0.5, -0.5)
        return self


class ConvergenceDisplay:
    """Inertia and largest shift of a centre, round by round, of the winning run.

    Parameters
    ----------
    rounds : sequence of int
        The numbers of the rounds.
    inertia : ndarray of shape (rounds,)
        The inertia of the centres at the beginning of each round; nan if unknown.
    shift : ndarray of shape (rounds,)
        The largest distance by which a centre moved; nan if unknown.
    measure : str, default="inertia"
        The name of the measure in ``inertia``, such as "fuzzy-objective"; for a mixture, it is the
        negative log-likelihood.

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
        """Plot the convergence of a fitted estimator.

        Parameters
        ----------
        estimator : FederatedKMeans or another estimator
            A fitted estimator that was not read from a file.
        ax : Axes, optional
            The axes to draw on, by default in a new figure.
        **kwargs : object
            Options for the lines, passed to matplotlib's ``plot``.
        """
        history = fitted(estimator, "history_")
        rounds, inertia, shift = (
            [done[name] for done in history] for name in ("round", "inertia", "shift")
        )
        measure = round_name(estimator.objective_)
        measure = f"negative {measure}" if measure == LOG_LIKELIHOOD else measure
        values = [np.array(each, dtype=float) for each in (inertia, shift)]
        return cls(rounds, *values, measure=measure).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw, on these axes or in a new figure."""
        self.figure_, self.ax_ = axes_of(ax)
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
        A choice of k, from `select_k` or the ``selection_`` of an estimator.
    index : str, optional
        The index, by default that of the rule.

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
        """Plot how an estimator with ``n_clusters="auto"`` chose the number of clusters.

        Parameters
        ----------
        estimator : FederatedKMeans or another estimator
            A fitted estimator that chose the number of clusters.
        index : str, optional
            The index, by default that of the rule.
        ax : Axes, optional
            The axes to draw on, by default in a new figure.
        **kwargs : object
            Options for the line, passed to matplotlib's ``plot``.
        """
        selection = fitted(estimator, "selection_")
        if selection is None:
            raise InputError("the estimator was given its number of clusters: it chose none")
        return cls(selection, index=index).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw, on these axes or in a new figure."""
        self.figure_, self.ax_ = axes_of(ax)
        table, says = self.selection.table, self.selection.says[self.index]
        ks = sorted(table)
        values = np.array([table[k].get(self.index, np.nan) for k in ks], dtype=float)
        values[~np.isfinite(values)] = np.nan
        self.ax_.axvline(self.selection.n_clusters, color=COLOURS[1], linewidth=6, alpha=0.25)
        self.ax_.plot(ks, values, **{"marker": "o", "color": COLOURS[0], **kwargs})
        self.ax_.plot([says], values[ks.index(says)], "o", color=COLOURS[1], markersize=9)
        label = CHOOSING[self.index].label.removeprefix("the ")
        self.ax_.set(xlabel="number of clusters k", ylabel=label)
        self.ax_.locator_params(axis="x", integer=True)
        return self
