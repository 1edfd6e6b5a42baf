"""Plan of fitting a mixture: many different starts, a race, crossings, the winner to its end.

The best clusters of k-means are rarely the best start of a mixture: the log likelihood of a row is
then up to 0.07 less than from the best of scikit-learn's ten starts. What helps are different
starts: runs of k-means from drawn seeds, broken off early, some of them sooner than others. They
share their rounds, after some of these the likeliest go on, and are crossed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log

import numpy as np

from fedcluster._random import stream
from fedcluster._refusals import refused
from fedcluster._specifications import FitSpec
from fedcluster.algorithms import GaussianMixture, Lloyd
from fedcluster.core import Floats, Iteration, Result, RowTransform, State, Task
from fedcluster.kernels import kmeans_plusplus
from fedcluster.preprocessing import Category, Preprocessor
from fedcluster.recipes._clustering import (
    algorithm_of,
    canonical,
    description,
    description_step,
    drawn_starts,
)
from fedcluster.recipes._components import search
from fedcluster.recipes._search import race
from fedcluster.rounds import Plan, gather

N_STARTS, N_DRAWN = 8, 48
"""Starts that are the best of those of k-means, and others that are drawn."""
REFINED, BRIEFLY = 6, 2
"""Rounds of k-means, and of half of the drawn starts: what is wanted are different starts."""
KEEP = {6: 40, 10: 28, 15: 20, 25: 10}
"""Runs that go on after so many rounds, where they are not crossed."""


def mixture(spec: FitSpec, preprocessor: RowTransform | None = None) -> Plan[Result]:
    """Plan a mixture of normal distributions.

    Components come in canonical order, unless the start was given.

    Parameters
    ----------
    spec : FitSpec
        What to fit: ``covariance_type``, ``reg_covar``, ``noise`` and where to start.
    preprocessor : Preprocessor, optional
        How rows are prepared: which columns are levels of texts.
    """
    step = algorithm_of(spec)
    assert isinstance(step, GaussianMixture)  # or it was refused
    starts, history, means = yield from _starts(spec)
    texts = texts_of(preprocessor, starts[0].centers.shape[1])
    step = replace(step, levels=bool(texts.any()))
    if spec.noise:
        step = replace(step, log_noise=(yield from _log_noise(step, spec, starts[0], texts)))
    about = {"texts": texts} if step.levels else {}
    begun = [step.start(each.centers, each.weights, **about, **each.memory) for each in starts]
    result = yield from _best(step, begun, means, spec)
    given = spec.start is not None or isinstance(spec.init, np.ndarray)
    state = result.state if given else canonical(result.state, step)
    return replace(result, state=state, history=history + result.history, algorithm=step)


def _best(
    step: GaussianMixture, begun: Sequence[State], means: State, spec: FitSpec
) -> Plan[Result]:
    """Plan the best mixture from the starts.

    A search for likely ones would find those whose unlikely rows a limit holds back.
    """
    if len(begun) > 1 < spec.n_clusters and not spec.n_init and spec.smallest == 1:
        return (yield from search(step, begun, means, seed=spec.seed, max_rounds=spec.max_iter))
    runs = yield from race(step, begun, seed=spec.seed, max_rounds=spec.max_iter, keep=KEEP)
    return runs[0]  # the best, also where all settled before one was chosen


def texts_of(preprocessor: RowTransform | None, d: int) -> Floats:
    """Return for each prepared column the number of the text that it is a level of; 0 of numbers.

    Raises
    ------
    InputError
        If levels of a text are weighed: a share of rows has no scale.

    Examples
    --------
    >>> from fedcluster.preprocessing import NumericColumn
    >>> texts_of(Preprocessor((NumericColumn("age"), Category("sex", ("F", "M")))), 3)
    array([0., 1., 1.])
    """
    if not isinstance(preprocessor, Preprocessor) or preprocessor.principal is not None:
        return np.zeros(d)
    texts: list[float] = []
    for column in preprocessor.columns:
        is_text = isinstance(column, Category)
        if isinstance(column, Category) and column.scale != 1.0:
            raise refused("mixture-weight", column=column.name)
        texts += [max(texts, default=0.0) + 1.0 if is_text else 0.0] * len(column.names)
    return np.array(texts)


def _starts(spec: FitSpec) -> Plan[tuple[list[State], tuple[Iteration, ...], State]]:
    """Plan the starts: the best of those of k-means, and drawn ones, after some rounds of it.

    Returns them with the rounds that they took, and the means that describe all rows, if any.
    """
    if spec.start is not None or isinstance(spec.init, np.ndarray):
        return [spec.start or State.at(spec.init)], (), State()
    clusters = replace(spec, model="k-means", algorithm="auto", n_init=None, tol=1e-4)
    history: tuple[Iteration, ...] = ()
    seeds, means = list[State](), State()
    if (step := description_step(clusters)) is not None:
        described = yield from description(step, spec.n_clusters, spec.seed)
        clusters = replace(clusters, means=described.state)
        history, means, seeds = described.history, described.state, _seeds(described.state, spec)
    found, asked = yield from drawn_starts(clusters)
    half = len(seeds) // 2
    long = [*found[: spec.n_init or N_STARTS], *seeds[:half]]
    lengths = ((long, REFINED), (seeds[half:], BRIEFLY))
    refined = yield from gather(
        [race(Lloyd(), part, seed=spec.seed, max_rounds=length) for part, length in lengths]
    )
    starts = [State(run.state.centers, run.state.weights) for runs in refined for run in runs]
    return starts, history + asked + refined[0][0].history, means


def _seeds(means: State, spec: FitSpec) -> list[State]:
    """Return starts that are means as k-means++ draws them."""
    rng = stream(spec.seed, 2_000_000)
    k, n = spec.n_clusters, 0 if spec.n_init else N_DRAWN
    if len(means.centers) < k:
        return []
    points, weights = means.centers, means.weights
    drawn = (kmeans_plusplus(points, k, weights, rng=rng, n_local_trials=1) for _ in range(n))
    return [State.at(points[places]) for places in drawn]


def _log_noise(step: GaussianMixture, spec: FitSpec, start: State, texts: Floats) -> Plan[float]:
    """Plan the log density of noise: 1 / V, V given or that of a box with the rows' covariance.

    A box of sides a has the variances a^2 / 12: V^2 = 12^p |S|.
    """
    if not isinstance(spec.noise, bool):
        return -log(spec.noise)
    one = replace(step, covariance_type="full")
    weights = np.maximum(start.weights, 0.0)
    center = np.average(start.centers, axis=0, weights=weights if weights.any() else None)
    about = {"texts": texts} if step.levels else {}
    state = one.start(center[None], **about)
    [answers] = yield [Task(one, state, spec.seed)]
    after = one.server_step(state, answers.summaries, np.random.default_rng(0))
    factors = np.diagonal(after.memory["precisions_cholesky"][0])[texts == 0]
    return float(np.log(factors).sum() - len(factors) / 2 * log(12.0))
