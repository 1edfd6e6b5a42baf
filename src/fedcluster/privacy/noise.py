"""Gaussian noise on the answers of a site, so that no answer depends much on any one record.

C. Dwork, K. Kenthapadi, F. McSherry, I. Mironov, M. Naor, Our data, ourselves: privacy via
distributed noise generation, EUROCRYPT 2006 (the Gaussian mechanism); C. Canonne, G. Kamath,
T. Steinke, The discrete Gaussian for differential privacy, NeurIPS 2020 (on whole numbers: what is
drawn has no rounded digits that betray what it was added to).

An answer is the vector (sums / s, weights / w), where s and w are such that one record changes the
vector by at most 1 / noise: its noise has the standard deviation 1. The draws are OpenDP's, from
the randomness of the operating system; no seed that anybody knows makes them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fedcluster.core import Floats, Sensitive, Sensitivity, Summary, Task
from fedcluster.errors import InputError

LEAST_NOISE, MOST_NOISE = 1e-3, 1e9
"""Noise multipliers that are drawn."""

FINE = 20
"""Bits of a sensitivity on the grid of whole numbers: noise is drawn far coarser than the grid."""

LARGEST = 1 << 62
"""Largest whole number on that grid; OpenDP's sums of two stay within 64 bits."""


def check_noise(task: Task) -> None:
    """Check that the answer to a task can have noise; no row is read.

    Raises
    ------
    InputError
        With what is lacking.
    """
    step, how, name = task.step, task.preprocessor, type(task.step).__name__
    if task.noise is None or not LEAST_NOISE <= task.noise <= MOST_NOISE:
        raise InputError(f"noise must be {LEAST_NOISE:g} to {MOST_NOISE:g}, not {task.noise}")
    if not isinstance(step, Sensitive) or not (step.client_additive and step.server_additive):
        raise InputError(f"{name} cannot be asked with noise: its answers have no sensitivity")
    if how is None or not how.box:
        raise InputError(f"{name} with noise needs rows in public bounds: give bounds")
    if task.resampled is not None:
        raise InputError(f"{name} with noise cannot be asked of rows that are drawn anew")
    try:
        lines, _ = step.answer_shape(task.state, how.n_columns_out)
    except Exception as error:  # of a state that lacks something
        raise InputError(f"{name} cannot be asked about this state") from error
    if lines is None:
        raise InputError(f"{name} cannot be asked with noise: its lines depend on the rows")


def scales(sensitivity: Sensitivity, noise: float) -> tuple[float, float]:
    """Return the standard deviations of the noise on each of the sums, and on each weight.

    Those of a joint answer, of which ``share`` of the cost 1 / noise^2 goes to the weights.

    Examples
    --------
    >>> scales(Sensitivity(sums=2.0, weights=1.0, share=0.2), noise=3.0)
    (6.708203932499369, 6.708203932499369)
    >>> scales(Sensitivity(sums=0.0, weights=1.0), noise=3.0)
    (0.0, 3.0)
    """
    sums, weights, share = sensitivity.sums, sensitivity.weights, sensitivity.share
    if not (sums >= 0 and weights >= 0 and sums + weights > 0 and 0 < share < 1):
        raise InputError(f"{sensitivity} is no sensitivity of an answer")
    if not sums or not weights:
        return noise * sums, noise * weights
    return noise * sums / math.sqrt(1 - share), noise * weights / math.sqrt(share)


def with_noise(summary: Summary, task: Task, shares: int = 1) -> Summary:
    """Return an answer with the noise that a task asks for.

    Parameters
    ----------
    summary : Summary
        The exact answer.
    task : Task
        What was asked, with a noise multiplier; see `check_noise`.
    shares : int, default=1
        Number of sites whose answers a secure sum adds: each adds noise with 1 / shares of the
        variance, so that the sum has all of it. Of t sites that work together, the others see a
        noise multiplier smaller by sqrt((shares - t) / shares).

    Returns
    -------
    Summary
        All of its lines; weights may be negative.
    """
    if not (isinstance(task.step, Sensitive) and task.noise and task.preprocessor):
        raise InputError(f"{type(task.step).__name__} cannot be asked with noise")
    bounds = task.step.sensitivity(task.state, task.preprocessor.n_columns_out)
    part = 1 / math.sqrt(shares)
    for_sums, for_weights = scales(bounds, task.noise)
    sums = _noisy(summary.sums.ravel(), bounds.sums, for_sums * part)
    weights = _noisy(summary.weights, bounds.weights, for_weights * part)
    return replace(summary, sums=sums.reshape(summary.sums.shape), weights=weights, support=None)


def _noisy(exact: Floats, sensitivity: float, scale: float) -> Floats:
    """Return numbers (n,) on a grid with discrete Gaussian noise of a standard deviation.

    The grid is a power of two, about 2^-20 of the sensitivity. To round n numbers to it may raise
    the sensitivity by sqrt(n) of its steps; the noise is raised by as much.
    """
    if not scale:  # no number depends on a row
        return np.zeros_like(exact)
    step = 2.0 ** (math.floor(math.log2(sensitivity)) - FINE)
    raised = 1 + step * math.sqrt(len(exact)) / sensitivity
    on_grid = np.nan_to_num(np.rint(exact / step), nan=0.0, posinf=LARGEST, neginf=-LARGEST)
    whole = np.clip(on_grid, -LARGEST, LARGEST).astype(np.int64)
    drawn = np.array(_mechanism(scale * raised / step)(whole.tolist()), dtype=np.int64)
    noisy: Floats = drawn.astype(np.float64) * step
    return noisy


def _mechanism(scale: float) -> Any:
    """Return OpenDP's Gaussian mechanism on vectors of whole numbers."""
    try:
        import opendp.prelude as dp  # an extra, which takes seconds to import
    except ImportError as error:
        raise InputError('noise needs more packages: pip install "fedcluster[privacy]"') from error
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
