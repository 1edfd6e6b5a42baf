"""Federated fuzzy c-means (FFCM), and exact federated fuzzy c-means as one case of it.

M. Stallmann & A. Wilbik, Towards federated clustering: a federated fuzzy c-means algorithm
(FFCM), FL-AAAI 2022.

    site l:   U from c (eq. 5), centres c^(l) from U^m (eq. 6), support W^(l)
    server:   avg_1:  c_k = sum_l W_k^(l) c_k^(l) / sum_l W_k^(l)
              avg_2:  c = k-means of all the sites' centres
    until     the centres move by at most eps

With one local step, support sum u^m and avg_1, the server's mean is sum u^m x / sum u^m over all
rows: **central fuzzy c-means, exactly**. These are the defaults. The paper's avg_1 loses quality
only because its program does otherwise:

- ``local``: the text takes one step, the program runs each site to convergence.
- ``support``: the text sums u^m, the program u.

`FFCM.paper` is the text; `FFCM.program_2021` the program that made the paper's tables, the history
of stallmo/federated_clustering before 17 December 2021 (2c4838f). In it the server's k-means starts
anew in every round, always from the same seed, and each centre of the round before is replaced by
the nearest new one (``reseed``); since then it continues from the previous centres.

A centre's weight in the state is its support: with avg_2 that of all sites' centres that the
server's k-means assigned to it. Too few centres for avg_2 are an error in the first round and
change nothing later; the paper is silent.

Eq. 5 is printed with exponent 2 / (m - 1) on squared norms; here it is 1 / (m - 1), as in the
program and as in Bezdek.

The exact sums are those of J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini &
P. Ducange, A federated fuzzy c-means clustering algorithm (WILF 2021). FFCM says that avg_1 is
similar to H. H. Kumar, K. VR & M. K. Nair, Federated k-means clustering (2020), which it is with
m = 1, and to W. Pedrycz, Federated FCM: clustering under privacy requirements (IEEE Trans. Fuzzy
Systems 30, 2021); and owes averaging by k-means to D. K. Dennis, T. Li & V. Smith (k-FED, 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal, Self

import numpy as np
from numpy.random import Generator

from fedcluster.algorithms.merging import mean_variance, means, pool, tolerance, too_few, total
from fedcluster.core import Data, FitParameters, Floats, Metric, State, Summary, ranges
from fedcluster.kernels import fuzzy_pass, hard_pass, kmeans, nearest
from fedcluster.kernels.fuzzy import FuzzyPass, fuzzy_cmeans
from fedcluster.kernels.iteration import lloyd
from fedcluster.metrics import FuzzyObjective, Inertia

Averaging = Literal["avg_1", "avg_2"]


@dataclass(frozen=True, slots=True)
class FFCM:
    """FFCM (Stallmann & Wilbik); with its defaults, exact federated fuzzy c-means.

    Parameters
    ----------
    m : float, default=2
        The fuzzifier, at least 1; 1 is hard k-means.
    averaging : {"avg_1", "avg_2"}, default="avg_1"
        Weighted mean of the sites' centres with the same index, or k-means of all of them.
    local : {"step", "converge"}, default="step"
        One step at a site, or up to 1000 until the Frobenius norm of the change of its memberships
        falls below ``local_tol`` (for m = 1, as in `Lloyd`).
    support : {"u^m", "u"}, default="u^m"
        The quantity that is summed over a site's rows to weight its centres.
    weighted : bool, default=False
        Whether the k-means of avg_2 weights centres by their support; the paper's does not.
    tol : float, default=1e-4
        eps: converged when the Euclidean norm of all centres' move is at most ``tol``, in units
        of the rows, times the root of the mean variance of a column if ``relative``.
    relative : bool, default=True
        Whether ``tol`` is relative to the scale of the rows, as estimated from the sites' sums; the
        paper's is not.
    local_tol : float, default=1e-4
        See ``local``.
    reseed : bool, default=False
        Whether the k-means of avg_2 starts anew in each round, from one seed whatever the run's,
        and replaces each centre by the nearest new one; so a new centre may replace two and another
        none. By default it starts anew in the first round only.

    Notes
    -----
    A site sends k (d + 2) numbers a round: sums, J_m and support for each cluster.

    Examples
    --------
    >>> rows = Data(np.array([[0.0], [1.0], [4.0]]))
    >>> state, rng = State.at(np.array([[0.0], [4.0]])), np.random.default_rng(0)
    >>> answer = FFCM().client_step(state, rows, rng)
    >>> answer.weights  # sums of u^2
    array([1.81, 1.01])
    >>> FFCM().server_step(state, [answer], rng).centers.round(4)
    array([[0.4475],
           [3.9703]])
    """

    allowed = ranges.Allowed(
        {
            "m": ranges.FUZZIFIER,
            "averaging": ranges.OneOf(("avg_1", "avg_2")),
            "local": ranges.OneOf(("step", "converge")),
            "support": ranges.OneOf(("u^m", "u")),
            "weighted": ranges.EITHER,
            "tol": ranges.TOLERANCE,
            "relative": ranges.EITHER,
            "local_tol": ranges.TOLERANCE,
            "reseed": ranges.EITHER,
        },
        ranges.CENTERS,
    )
    needs_centers = True
    min_cluster_size = 1

    m: float = 2.0
    averaging: Averaging = "avg_1"
    local: Literal["step", "converge"] = "step"
    support: Literal["u^m", "u"] = "u^m"
    weighted: bool = False
    tol: float = 1e-4
    relative: bool = True
    local_tol: float = 1e-4
    reseed: bool = False

    def __post_init__(self) -> None:
        if not self.m >= 1:
            raise ValueError(f"the fuzzifier m must be at least 1 (hard), not {self.m}")

    @property
    def client_additive(self) -> bool:
        """True if answers add up over rows: one local step, with u^m in sums and support."""
        return self.local == "step" and (self.support == "u^m" or self.m == 1)

    @property
    def server_additive(self) -> bool:
        """True if the server needs only totals."""
        return self.averaging == "avg_1"

    @property
    def converges(self) -> bool:
        """True if the algorithm always ends; averaging by k-means may cycle."""
        return self.averaging == "avg_1"

    @classmethod
    def from_fit(cls, fit: FitParameters) -> Self:
        """Return exact federated fuzzy c-means."""
        return cls(2.0 if fit.m is None else fit.m, tol=fit.tol)

    @classmethod
    def paper_from_fit(cls, fit: FitParameters) -> Self:
        """Return the algorithm of the paper, with k-means averaging, as its program runs it."""
        exact = cls.from_fit(fit)
        return replace(exact, averaging="avg_2", local="converge", support="u")

    @classmethod
    def paper(cls, m: float = 2.0, averaging: Averaging = "avg_1") -> Self:
        """Return the algorithm of the paper's text: one step, sums of u^m, an absolute eps.

        Examples
        --------
        >>> FFCM.paper() == FFCM(relative=False)
        True
        """
        return cls(m, averaging, relative=False)

    @classmethod
    def program_2021(cls, m: float = 2.0, averaging: Averaging = "avg_1") -> Self:
        """Return the algorithm of the paper's tables, as the authors' program was in 2021.

        Examples
        --------
        >>> avg_2 = FFCM.program_2021(averaging="avg_2")
        >>> avg_2.local, avg_2.support, avg_2.relative, avg_2.reseed
        ('converge', 'u', False, True)
        """
        text = cls.paper(m, averaging)
        return replace(text, local="converge", support="u", reseed=averaging == "avg_2")

    def objective(self) -> Metric:
        """Return the metric that the algorithm minimises."""
        return FuzzyObjective(self.m) if self.m > 1 else Inertia()

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: sums and J_m for each centre."""
        return len(state.centers), n_columns + 1

    def line_bounds(self, state: State, box: ranges.Box) -> ranges.LineBounds:
        """Return the bounds of an answer: of weighted means and squared distances."""
        return box.around(state.centers).sums_and_errors(state.centers)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Apply eq. 5 and 6 at one site: return support times local centres, J_m and support."""
        centers = state.centers if self.local == "step" else self._converged(state, data)
        local = self._pass(data, centers)
        support = local.weights if self.support == "u^m" else local.supports
        sums = local.sums
        if not self.client_additive:
            if self.local == "step":
                centers = means(local.sums, local.weights, otherwise=centers)
            sums = centers * support[:, None]
        return Summary(np.column_stack([sums, local.errors]), support, local.rows)

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Average the sites' centres by position (avg_1) or cluster them (avg_2)."""
        answer = total(answers)
        errors, weights = answer.sums[:, -1], answer.weights
        if self.averaging == "avg_1":
            centers = means(answer.sums[:, :-1], weights, otherwise=state.centers)
        else:
            centers, weights = self._cluster(state, answers, rng)
        inertia = float(errors.sum()) if self.local == "step" else float("nan")
        settled = bool(weights.any()) and self._settled(state, centers, weights, errors)
        return State(centers, weights, round=state.round + 1, inertia=inertia, converged=settled)

    def _pass(self, data: Data, centers: Floats) -> FuzzyPass:
        """Return sums over the rows; with m = 1, each row belongs to its nearest centre only."""
        if self.m > 1:
            return fuzzy_pass(data.X, centers, self.m, data.sample_weight)
        local = hard_pass(data.X, centers, data.sample_weight)
        rows = local.counts.astype(np.float64)
        return FuzzyPass(local.sums, local.weights, local.weights, rows, local.errors)

    def _converged(self, state: State, data: Data) -> Floats:
        """Return the site's own centres, iterated from the server's, (k, d)."""
        X, w, most = data.X, data.sample_weight, 1000
        if self.m > 1:
            fit = fuzzy_cmeans(X, state.centers, self.m, w, max_iter=most, tol=self.local_tol)
            return fit.centers
        tol = tolerance(X, self.local_tol)
        return lloyd(X, state.centers, w, max_iter=most, tol=tol).centers

    def _cluster(
        self, state: State, answers: Sequence[Summary], rng: Generator
    ) -> tuple[Floats, Floats]:
        """Apply avg_2: k-means of all centres, started anew or from the previous centres."""
        received, support = pool(answers)
        received, k = received[:, :-1], len(state.centers)
        weights = support if self.weighted else None
        if len(received) < k and state.round:
            return state.centers, np.zeros(k)
        if len(received) < k:
            raise too_few("avg_2", k, len(received))
        if self.reseed or state.round == 0:
            # The seed of the server's k-means in the authors' program, the same in
            # every round.
            draws = np.random.default_rng(43) if self.reseed else rng
            fit = kmeans(received, k, weights, rng=draws, max_iter=500)
        else:
            tol = tolerance(received, 1e-4)
            fit = lloyd(received, state.centers, weights, max_iter=500, tol=tol, empty="relocate")
        behind = np.bincount(fit.labels, support, k).astype(np.float64)
        if not self.reseed or state.round == 0:
            return fit.centers, behind
        order = nearest(state.centers, fit.centers)[0]
        return fit.centers[order], behind[order] / np.bincount(order, minlength=k)[order]

    def _settled(self, state: State, centers: Floats, weights: Floats, errors: Floats) -> bool:
        """Return whether the centres moved by at most eps.

        The scale of the rows is the root of (J_m + sum of squares between the centres) / (n d). At
        a fixed point of the exact steps it is the standard deviation with rows weighted by sum u^m;
        otherwise, with the sites' own J_m, an estimate of it.
        """
        moved = float(np.linalg.norm(centers - state.centers))
        if not self.relative:
            return moved <= self.tol
        scale = sqrt(mean_variance(centers, errors, weights, asked=centers))
        return moved <= self.tol * scale
