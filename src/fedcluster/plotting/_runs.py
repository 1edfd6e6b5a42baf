"""Displays of how a fit came about: its convergence, and the choice of the number of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from fedcluster._report._pictures import COLOURS
from fedcluster.core import Floats
from fedcluster.errors import InputError
from fedcluster.metrics.indices import CHOOSING
from fedcluster.metrics.objectives import LOG_LIKELIHOOD, round_name
from fedcluster.plotting._axes import axes_of, fitted
from fedcluster.selection import Selection


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
        What ``inertia`` is, such as "fuzzy-objective"; of a mixture, the negative log-likelihood.

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
        name = CHOOSING[self.index].label.removeprefix("the ")
        self.ax_.set(xlabel="number of clusters k", ylabel=name)
        self.ax_.locator_params(axis="x", integer=True)
        return self
