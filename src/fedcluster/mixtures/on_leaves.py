"""Mixtures of all sizes and shapes fitted to the leaves of the rows, at the server alone.

Each starts from clusters of leaves. The leaves' expected log densities replace those of rows;
everything else is `GaussianMixture`, whose server step gives the next state.

Plan of describing the rows by leaves, which are halved in three rounds or four.

Leaves merged successively into clusters of any shape, to start mixtures of every size.

C. Fraley, Algorithms for model-based Gaussian hierarchical clustering, SIAM J. Sci. Comput. 20,
1998: of all pairs of clusters, those two are merged that reduce the classification likelihood the
least. With n, Q and h the weight, the scatter and the counts of levels of a cluster, its negative
is

    n / 2 log det ((Q + nu P) / (n + nu))  -  sum of h log p,      p = (h + m / 2) / (n + 1/2),

m being the shares over all rows. Deviation: clusters are shrunk towards P with a weight of nu = d +
2 rows; P is half the pooled covariance of the leaves and half that of all rows times L^(-2/d),
which is that of a leaf if L leaves shared the volume. The other criterion is Ward's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms.gaussian_mixture import ComponentSums, GaussianMixture, Layout
from fedcluster.core import Floats, RowTransform, State, Task, coarse
from fedcluster.errors import NOT_DESCRIBED, HeldBackError
from fedcluster.metrics.gaussians import densities, posteriors
from fedcluster.metrics.leaves import LeafMoments, Leaves, begun
from fedcluster.mixtures.table import Kind, Table, table_plan, with_noise
from fedcluster.rounds import Plan, gather

Criterion = Literal["likelihood", "ward"]
Clusters = dict[int, NDArray[np.intp]]


@dataclass(slots=True, eq=False)
class Parts:
    """Clusters of leaves: weights (n,), means and scatters of numbers, counts of each text.

    Scatters are (n, p, p), or (n, p) if only those of single columns are used.
    """

    weights: Floats
    means: Floats
    scatters: Floats
    counts: Sequence[Floats]

    def joined(self, i: int, others: NDArray[np.intp]) -> Parts:
        """Return the clusters that cluster i would form with each of others."""
        n, m = self.weights[i], self.weights[others]
        apart = self.means[others] - self.means[i]
        factor = n * m / (n + m)
        pull = factor[:, None] * apart
        alone = self.scatters.ndim == 2
        scatters = pull * apart if alone else pull[:, :, None] * apart[:, None, :]
        scatters += self.scatters[i] + self.scatters[others]
        weights = n + m
        return Parts(
            weights,
            self.means[i] + apart * (m / weights)[:, None],
            scatters,
            [each[i] + each[others] for each in self.counts],
        )

    def replace(self, i: int, cluster: Parts) -> None:
        """Replace cluster i by the single cluster in ``cluster``."""
        self.weights[i], self.means[i] = cluster.weights[0], cluster.means[0]
        self.scatters[i] = cluster.scatters[0]
        for mine, given in zip(self.counts, cluster.counts, strict=True):
            mine[i] = given[0]


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """Negative classification likelihood of clusters, or their inertia.

    Parameters
    ----------
    criterion : {"likelihood", "ward"}
        The criterion; Ward's takes clusters with scatters of single columns.
    prior : ndarray of shape (p, p) or (p,)
        P, or its variances, which are also the units of Ward's criterion.
    shares : sequence of ndarray
        The shares of the levels of each text over all rows.
    total : float
        The weight of all rows.
    """

    criterion: Criterion
    prior: Floats
    shares: Sequence[Floats]
    total: float
    at_once = 1 << 15
    """Number of second moments of joined clusters that are held at once, so that a cache holds
    them."""

    @classmethod
    def among(cls, parts: Parts, criterion: Criterion) -> Loss:
        """Return the loss of clusters of the leaves ``parts``."""
        total = max(float(parts.weights.sum()), 1e-300)
        shares = [each.sum(axis=0) / total for each in parts.counts]
        return cls(criterion, _prior(parts), shares, total)

    def of(self, parts: Parts) -> Floats:
        """Return the loss of each cluster, (n,)."""
        loss = self._numbers(parts.weights, parts.scatters)
        for counts, shares in zip(parts.counts, self.shares, strict=True):
            own = (counts + shares / 2) / (counts.sum(axis=1, keepdims=True) + 0.5)
            loss = loss - (counts * np.log(np.maximum(own, 1e-12))).sum(axis=1)
        return loss

    def gained(self, parts: Parts, own: Floats, i: int, others: NDArray[np.intp]) -> Floats:
        """Return what joining cluster i with each of others adds to their losses, ``own`` (n,)."""
        some = max(1, self.at_once // max(parts.scatters[0].size, 1))
        places = range(0, len(others), some)
        joined = [self.of(parts.joined(i, others[at : at + some])) for at in places]
        return coarse(np.concatenate(joined) - own[i] - own[others], self.total)

    def _numbers(self, weights: Floats, scatters: Floats) -> Floats:
        p = scatters.shape[1]
        if not p:
            return np.zeros(len(weights))
        nu = p + 2.0
        if self.criterion == "ward":
            ward: Floats = scatters.sum(axis=1) / (2 * max(float(self.prior.mean()), 1e-300))
            return ward
        if scatters.ndim == 2:
            shrunk = (scatters + nu * self.prior) / (weights + nu)[:, None]
            along: Floats = weights / 2 * np.log(np.maximum(shrunk, 1e-300)).sum(axis=1)
            return along
        shrunk = scatters + nu * self.prior
        shrunk /= (weights + nu)[:, None, None]
        loss: Floats = weights / 2 * _log_det(shrunk)
        return loss


def agglomerated(parts: Parts, criterion: Criterion, most: int) -> Clusters:
    """Return the clusters (L,) of leaves, for each number of clusters from 1 to ``most``.

    Parameters
    ----------
    parts : Parts
        The leaves.
    criterion : {"likelihood", "ward"}
        The criterion by which a pair is chosen.
    most : int
        The largest number of clusters to return.
    """
    scatters = parts.scatters
    if criterion == "ward" and scatters.ndim == 3:
        scatters = np.einsum("lii->li", scatters)
    parts = Parts(
        parts.weights.copy(), parts.means.copy(), scatters.copy(),
        [each.copy() for each in parts.counts],
    )  # fmt: skip
    loss, count = Loss.among(parts, criterion), len(parts.weights)
    own, alive = loss.of(parts), np.ones(count, dtype=bool)
    costs = np.full((count, count), np.inf)
    for i in range(count - 1):
        later = np.arange(i + 1, count)
        costs[i, later] = costs[later, i] = loss.gained(parts, own, i, later)
    labels, found = np.arange(count), Clusters()
    for k in range(count, 0, -1):
        if k <= most:
            found[k] = np.unique(labels, return_inverse=True)[1].ravel()
        if k == 1:
            break
        i, j = sorted(map(int, divmod(int(costs.argmin()), count)))
        parts.replace(i, parts.joined(i, np.array([j])))
        alive[j], labels[labels == j] = False, i
        costs[j] = costs[:, j] = np.inf
        own[i] = loss.of(_one(parts, i))[0]
        others = np.flatnonzero(alive)
        others = others[others != i]
        if len(others):
            costs[i, others] = costs[others, i] = loss.gained(parts, own, i, others)
    return found


def _log_det(matrices: Floats) -> Floats:
    """Return the logs of the determinants of covariances (n, p, p), (n,)."""
    try:
        roots = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:  # numerically singular
        return np.asarray(np.linalg.slogdet(matrices)[1])
    return np.asarray(2.0 * np.log(np.einsum("nii->ni", roots)).sum(axis=1))


def _one(parts: Parts, i: int) -> Parts:
    """Return one of the clusters."""
    only = slice(i, i + 1)
    counts = [each[only] for each in parts.counts]
    return Parts(parts.weights[only], parts.means[only], parts.scatters[only], counts)


def _prior(parts: Parts) -> Floats:
    """Return the prior covariance P of the leaves."""
    count, p = parts.means.shape
    share = parts.weights / parts.weights.sum()
    within = parts.scatters.sum(axis=0) / parts.weights.sum()
    apart = parts.means - share @ parts.means
    between = (apart * share[:, None]).T @ apart
    if within.ndim == 1:
        between = np.diag(between)
    prior: Floats = within / 2 + (within + between) * count ** (-2 / max(p, 1)) / 2
    least = 1e-9 * float(np.abs(within + between).max(initial=0.0)) or 1e-300
    return prior + least * (np.eye(p) if within.ndim == 2 else 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class OnLeaves:
    """Mixture fitted to leaves.

    Attributes
    ----------
    kind : (str, bool)
        The shape of its components, and whether there is noise.
    k : int
        The initial number of components.
    state : State
        The state of `GaussianMixture`.
    bic : float
        The criterion, rounded so that mixtures which are alike are ranked alike.
    """

    kind: Kind
    k: int
    state: State
    bic: float


Posteriors = tuple[Floats, Floats]
"""Probabilities of components for each leaf, (L, k + e), and log densities, (L,)."""


class LeafRows:
    """Leaves in place of rows, to which mixtures are fitted.

    Parameters
    ----------
    leaves : Leaves
        The leaves, in the columns of the mixtures.
    table : Table
        Facts about the rows.
    """

    def __init__(self, leaves: Leaves, table: Table) -> None:
        self.leaves, self.table = leaves, table
        self.numeric, self.other = np.nonzero(table.texts == 0)[0], np.nonzero(table.texts)[0]
        self.origin = table.mean[self.numeric]
        self.x = leaves.means[:, self.numeric] - self.origin
        self.levels = leaves.means[:, self.other]
        diagonal = np.arange(len(self.numeric))
        self.squares = leaves.covariances[:, diagonal, diagonal] + self.x**2

    @cached_property
    def upper(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the upper triangle of a matrix over numeric columns."""
        return np.triu_indices(len(self.numeric))

    @property
    def missing(self) -> Floats:
        """The share of rows with a missing value in each numeric column, (p,)."""
        every = self.leaves.missing
        return np.zeros(len(self.numeric)) if every is None else every[self.numeric]

    @property
    def lacking(self) -> float:
        """The largest possible share of rows with a missing number or text."""
        every, texts = self.leaves.missing, self.table.texts
        if every is None:
            return 0.0
        each = [every[texts == number].max() for number in np.unique(texts[texts > 0])]
        return float(min(1.0, self.missing.sum() + sum(each)))

    @cached_property
    def products(self) -> Floats:
        """Return second moments about the origin, (L, p (p + 1) / 2)."""
        a, b = self.upper
        products: Floats = self.leaves.covariances[:, a, b] + self.x[:, a] * self.x[:, b]
        return products

    def finer(self) -> LeafRows:
        """Return both halves of each leaf, so that a leaf in two components counts for both."""
        return LeafRows(self.leaves.halves(self.table.unit, self.numeric), self.table)

    def parts(self) -> Parts:
        """Return the leaves as clusters to be merged, with numbers in units of their deviations."""
        unit, w = self.table.unit[self.numeric], self.leaves.weights
        scatters = self.leaves.covariances / unit[:, None] / unit * w[:, None, None]
        if len(self.numeric) > Search.wide_full:
            scatters = np.einsum("lii->li", scatters)
        texts = self.table.texts[self.other]
        counts = []
        for number in np.unique(texts):
            shares = self.levels[:, texts == number]
            rest = np.maximum(1.0 - shares.sum(axis=1, keepdims=True), 0.0)
            counts.append(np.hstack([np.clip(shares, 0.0, 1.0), rest]) * w[:, None])
        return Parts(w, self.x / unit, scatters, counts)

    def logs(self, step: GaussianMixture, state: State) -> Floats:
        """Return the expected log density of each leaf in each component, (L, k + e)."""
        model = densities(step, state)
        k, mu = len(model.means), model.means - self.origin
        logs = model.offsets + self.levels @ model.slopes.T
        if model.factors.ndim == 2:
            precisions = model.factors**2
            pull = precisions * mu
            quadratic = self.squares @ precisions.T - 2 * self.x @ pull.T + (pull * mu).sum(axis=1)
        else:
            factors = model.factors
            precisions = factors @ np.swapaxes(factors, 1, 2)
            a, b = self.upper
            twice = precisions[:, a, b] * np.where(a == b, 1.0, 2.0)
            pull = np.einsum("kij,kj->ki", np.broadcast_to(precisions, (k, *factors.shape[1:])), mu)
            quadratic = self.products @ twice.T - 2 * self.x @ pull.T + (pull * mu).sum(axis=1)
        logs[:, :k] -= quadratic / 2
        return logs

    def posteriors(self, step: GaussianMixture, state: State) -> tuple[Floats, Floats]:
        """Return the probability of each component for each leaf, and its log density, (L,)."""
        tau, likelihood = posteriors(self.logs(step, state))
        return tau, np.where(np.isfinite(likelihood), likelihood, 0.0)

    def next(self, step: GaussianMixture, state: State, tau: Floats, likelihood: Floats) -> State:
        """Return the next mixture, from the leaves' memberships tau (L, k + e) in components."""
        k, mu = len(state.centers), state.centers[:, self.numeric] - self.origin
        weighed = self.leaves.weights[:, None] * tau
        n, own = weighed.sum(axis=0), weighed[:, :k]
        raw = own.T @ self.x
        first, levels = np.empty_like(state.centers), weighed.T @ self.levels
        first[:, self.numeric] = raw - n[:k, None] * mu
        first[:, self.other] = levels[:k] - n[:k, None] * state.centers[:, self.other]
        if step.covariance_type in ("diag", "spherical"):
            second = own.T @ self.squares - 2 * raw * mu + n[:k, None] * mu**2
            if step.covariance_type == "spherical":
                second = second.sum(axis=1, keepdims=True)
        else:
            second = self._products(own, raw, mu, tied=step.covariance_type == "tied")
        noise, of_noise = 0.0, np.zeros(state.centers.shape[1])
        if len(n) > k:
            noise, of_noise[self.other] = float(n[k]), levels[k]
        total, pooled = float(self.leaves.weights @ likelihood), float(n[:k].sum())
        sums = ComponentSums(n[:k], first, second, total, pooled, noise, of_noise)
        layout = Layout(step, k, len(self.table.texts), self.numeric)
        return self.table.with_common(step.updated(state, sums, layout))

    def started(self, step: GaussianMixture, k: int, labels: np.ndarray) -> State:
        """Return the mixture in which each component is a cluster of leaves, by labels (L,)."""
        hard = np.zeros((len(labels), k + (step.log_noise is not None)))
        hard[np.arange(len(labels)), labels] = 1.0
        weighed = self.leaves.weights[:, None] * hard[:, :k]
        sums = weighed.T @ self.leaves.means
        state = self.table.start(step, sums / np.maximum(weighed.sum(axis=0), 1e-300)[:, None])
        return self.next(step, state, hard, np.zeros(len(labels)))

    def iterated(
        self, step: GaussianMixture, state: State, most: int, seen: Posteriors | None = None
    ) -> tuple[State, Posteriors | None]:
        """Return a mixture after some iterations, its inertia being minus its log likelihood.

        Also return its posteriors. Those of the given mixture are computed if they are not given.
        """
        state = replace(state, inertia=np.nan)
        for _ in range(most):
            if not state.weights.any():
                return state, None  # no component is large enough
            state = self.next(step, state, *(seen or self.posteriors(step, state)))
            seen = self.posteriors(step, state)
            if state.converged:
                break
        assert seen is not None
        return replace(state, inertia=-float(self.leaves.weights @ seen[1])), seen

    def _products(self, own: Floats, raw: Floats, mu: Floats, *, tied: bool) -> Floats:
        """Return products about the means: (k, p, p), or (p, p) over all components."""
        a, b = self.upper
        n = own.sum(axis=0)
        if tied:
            both = raw.T @ mu
            crossed = (both + both.T - (n[:, None] * mu).T @ mu)[a, b]
            flat = own.sum(axis=1) @ self.products - crossed
        else:
            both = raw[:, a] * mu[:, b] + mu[:, a] * raw[:, b]
            flat = own.T @ self.products - (both - n[:, None] * mu[:, a] * mu[:, b])
        second = np.empty((*flat.shape[:-1], len(self.numeric), len(self.numeric)))
        second[..., a, b] = second[..., b, a] = flat
        return second


class Search:
    """Search for likely mixtures among leaves."""

    first = 30  # every number of components up to this is tried
    most = 50  # largest number of components that is tried
    patience = 6  # numbers of components that are tried beyond the best one before the search stops
    brief = 5  # iterations for every mixture
    long = 20  # further iterations for likely mixtures
    most_promising = 24
    """Mixtures that are continued, apart from the neighbours of the likeliest of each kind."""
    # Smallest number of rows and of leaves per component; of so few leaves, each may be one: where
    # limits hold back most leaves, there may be no more than there are clusters.
    rows_each = 6
    leaves_each = 1.25
    few_leaves = 8
    wide_full = 30  # number of columns up to which separate covariances are tried beside others
    rows_of_noise = 5
    """Rows per column from which on they are tried with noise, beside others: of fewer, the rows of
    a full covariance are those that make it smallest (Rousseeuw & Van Driessen 1999)."""

    def __init__(self, rows: LeafRows, kinds: Sequence[Kind]) -> None:
        self.parts, self.rows, self.table = rows.parts(), rows.finer(), rows.table
        wide = self.table.n_numbers > self.wide_full
        few = self.table.n_seen < self.rows_of_noise * self.table.n_numbers
        fewer = [kind for kind in kinds if kind[0] != "full" or not (wide or (few and kind[1]))]
        self.kinds = fewer or list(kinds)  # if no shape is left, try those that were asked for

    def likely(self) -> list[OnLeaves]:
        """Return the continued mixtures of each kind, likeliest first."""
        count = len(self.parts.weights)
        leaves = max(count / self.leaves_each, min(count, self.few_leaves))
        most = int(min(self.most, max(1, self.table.n_seen // self.rows_each), leaves))
        starts = [agglomerated(self.parts, each, most) for each in ("likelihood", "ward")]
        found: list[OnLeaves] = []
        best, at = -np.inf, 1
        # groups of rows gain less from each further component
        first = self.first if self.table.rows_each == 1 else self.most
        for k in range(1, most + 1):
            alike = {start[k].tobytes(): np.tile(start[k], 2) for start in starts}
            each = [self._best(kind, k, list(alike.values())) for kind in self.kinds]
            found += each
            if max(mixture.bic for mixture in each) > best:
                best, at = max(mixture.bic for mixture in each), k
            if k >= max(first, at + self.patience):
                break
        chosen = [self._iterated(each, self.long)[0] for each in _promising(found)]
        chosen = [each for each in chosen if np.isfinite(each.bic)]
        chosen.sort(key=lambda each: (-each.bic, each.k, each.kind))
        distinct = {(each.kind, len(each.state.centers)): each for each in reversed(chosen)}
        return [each for each in chosen if distinct[each.kind, len(each.state.centers)] is each]

    def _best(self, kind: Kind, k: int, starts: Sequence[np.ndarray]) -> OnLeaves:
        """Return a mixture from the likelier of several starts, after a few iterations."""
        step = self.table.step(kind)
        begun = (self.rows.started(step, k, labels) for labels in starts)
        each = [self._iterated(OnLeaves(kind, k, state, -np.inf), 1) for state in begun]
        likelier, seen = max(each, key=lambda pair: pair[0].bic)
        return self._iterated(likelier, self.brief - 1, seen)[0]

    def _iterated(
        self, mixture: OnLeaves, most: int, seen: Posteriors | None = None
    ) -> tuple[OnLeaves, Posteriors | None]:
        """Return a mixture after some iterations, with its likelihood, and its posteriors.

        There are no posteriors of one that has lost components.
        """
        step = self.table.step(mixture.kind)
        state, seen = self.rows.iterated(step, mixture.state, most, seen)
        if not state.weights.any():
            return replace(mixture, state=state, bic=-np.inf), None
        kept = pruned(step, state)
        bic = coarse(np.array(self.table.bic(mixture.kind, kept, -state.inertia)), self.table.n)
        return replace(mixture, state=kept, bic=float(bic)), seen if kept is state else None


def _promising(found: Sequence[OnLeaves]) -> list[OnLeaves]:
    """Return the likeliest mixtures, and the likeliest of each kind with its two neighbours."""
    ranked = sorted(found, key=lambda each: -each.bic)
    kept = ranked[: Search.most_promising]
    for kind in dict.fromkeys(each.kind for each in found):
        mine = [each for each in found if each.kind == kind]
        at = max(mine, key=lambda each: each.bic).k
        kept += [each for each in mine if abs(each.k - at) <= 1 or each.k == 1]
    return list({id(each): each for each in kept}.values())


def pruned(step: GaussianMixture, state: State) -> State:
    """Return a mixture without the components that were dropped."""
    alive = state.weights > 0
    if alive.all() or not alive.any():
        return state
    declared = step.allowed.memory
    memory = {
        name: array[alive] if declared[name].shape[:1] == ("k",) else array
        for name, array in state.memory.items()
    }
    return replace(state, centers=state.centers[alive], weights=state.weights[alive], memory=memory)


@dataclass(frozen=True, slots=True)
class Growth:
    """How leaves grow, round after round."""

    goals: tuple[int, ...] = (8, 64, 256)
    """Number of leaves in successive rounds, without limits of the sites."""
    limited: tuple[int, ...] = (8, 24, 64, 192)  # the same with limits in force
    least: float = 5.0  # smallest number of rows in a leaf
    kept: float = 0.9
    """Smallest share of the weight of larger leaves that smaller ones must have in their place:
    limits of the sites hold back those of few rows at a site."""
    most_numbers: int = 100_000
    """Number of values in a round above which leaves have squares only, no products of columns."""


GROWN = Growth()


def leaves_plan(
    preprocessor: RowTransform | None,
    seed: int = 0,
    noise: bool | float = False,
    smallest: int = 1,
    growth: Growth = GROWN,
) -> Plan[tuple[Table, LeafRows]]:
    """Plan five rounds that describe the rows and their leaves; six if sites have limits.

    A ``noise`` is its volume, and ``smallest`` the fewest rows that limits of all sites let pass.
    """
    table = yield from table_plan(preprocessor, seed)
    goals = growth.goals if smallest == 1 else growth.limited
    described = grown(table, growth.least, seed, goals, growth=growth)
    both: list[Any] = yield from gather([with_noise(table, seed), described])
    noisy, leaves = both
    if not isinstance(noise, bool):
        noisy = replace(noisy, log_noise=-log(noise))
    return noisy, LeafRows(leaves, noisy)


def grown(
    table: Table,
    least: float,
    seed: int = 0,
    goals: Sequence[int] = GROWN.goals,
    growth: Growth = GROWN,
) -> Plan[Leaves]:
    """Plan the rounds in which leaves are halved, starting from all rows together.

    They end when limits of the sites hold back much of what smaller leaves would tell. That depends
    on sums alone, as not every engine knows the number of sites.

    Parameters
    ----------
    table : Table
        Facts about the rows.
    least : float
        The smallest weight of a leaf.
    seed : int
        As in `iterate`.
    goals : sequence of int
        The number of leaves in each round.
    """
    numeric = np.flatnonzero(table.texts == 0)
    least, products = min(least, table.n), sends_products(table, least, growth)
    most = max(1, int(table.n // least))
    step = LeafMoments(products, table.has_gaps)
    leaves = Leaves(np.array([table.n]), table.mean[None], table.covariance[None])
    for goal in goals:
        points = leaves.halved(min(goal, most), table.unit, numeric, least)
        if len(points) == len(leaves.weights):
            break
        state = begun(points, table.unit, table.texts)
        [answers] = yield [Task(step, state, seed, table.preprocessor)]
        total = answers.total()
        known = leaves.weights.sum() if len(leaves.weights) > 1 else 0.0
        if total.weights.sum() < growth.kept * known:
            break
        if not total.weights.any():
            raise HeldBackError(NOT_DESCRIBED)
        leaves = Leaves.from_total(step, state, total, table.covariance, least)
    return leaves


def sends_products(table: Table, least: float, growth: Growth = GROWN) -> bool:
    """Return whether leaves have products of columns, or squares only as they are too many."""
    most, p = table.n // min(least, table.n), table.n_numbers
    return (
        min(most, growth.goals[-1]) * (len(table.texts) + 1 + p * (p + 1) // 2)
        <= growth.most_numbers
    )
