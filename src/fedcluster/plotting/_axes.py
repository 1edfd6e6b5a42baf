"""What the displays share: the results of a fitted estimator, and axes to draw on."""

from __future__ import annotations

from typing import Any

from matplotlib import pyplot

from fedcluster.errors import InputError


def fitted(estimator: Any, name: str) -> Any:
    """Return what a fit has left in an estimator."""
    try:
        return getattr(estimator, name)
    except AttributeError as error:
        raise InputError(
            f"the estimator has no {name}: it is not fitted, or was read from a file, or was "
            "fitted to rows that are elsewhere"
        ) from error


def axes_of(ax: Any) -> tuple[Any, Any]:
    """Return a figure and its axes: those that are given, or new ones."""
    if ax is not None:
        return ax.figure, ax
    return pyplot.subplots(layout="constrained")
