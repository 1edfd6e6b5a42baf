"""Fit of a model with an offset for each site, to the sites' descriptions of their rows.

The server does all of it, with the weighted means that sites describe their rows by: EM, in which a
mean counts as its rows, and centres and offsets are found at once (`moved`):

    n_sj = Σ w r,  T_sj = Σ w r x,  p_s = n_s / |n_s|,  x̄_s the mean of the site
    L = diag(Σ_s n_sj) - Σ_s n_s p_s',   R = Σ_s (T_s - n_s x̄_s')
    C = pinv(L) R,   b_s = x̄_s - p_s C,   shifted so that Σ |n_s| b_s = 0

Plain squares with free offsets are the wrong objective: they slide a one-sided site between two
centres. The likelihood with shares of each site does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster.core import Floats, Summary
from fedcluster.errors import listed
from fedcluster.kernels import kmeans
from fedcluster.preprocessing.site_effects import (
    Registration,
    SiteEffects,
    among,
    common_axes,
    gains_beside,
    gains_of,
    logs_of,
    own_deviations,
    registered,
    starts_of,
    whitening,
)
from fedcluster.texts import counted


@dataclass(frozen=True, slots=True)
class Effort:
    """How long the best model is searched for."""

    starts: int = 4
    """Runs of k-means of the rows as they are, and of rows centred by site."""
    templates: int = 4
    """Sites of which the own clusters are tried as those of all."""
    kept: int = 3
    """Starts that go on after each site has looked for its offset once."""
    gains: int = 2
    """Times that gains are told anew by the model, and the model by rows without them: in six draws
    their error, .08 by the sites' own clusters, was .06 after two, and no less after six."""
    registrations: int = 3
    """Further times that sites look for their offsets."""
    steps: int = 100
    """Steps of EM of the kept starts."""
    tol: float = 1e-6
    """Gain in log likelihood for each row below which EM ends."""
    chance: float = 0.05
    """Probability of what offsets gain by chance from which on they are not subtracted: of 60 draws
    without any, 8 had some with it, and none was then worse by .003 of the adjusted Rand index."""
    most: int = SiteEffects.most
    """Largest number of subtypes."""
    means: int = 64
    """Means by which a site describes its rows; with 64, 44 of 45 draws had clusters as good as
    without offsets (adjusted Rand index within .02)."""
    named: float = 0.5
    """Offset, in standard deviations within a subtype, from which on a column is named."""


SITE_EFFORT = Effort()


@dataclass(frozen=True, eq=False)
class Points:
    """Weighted means of the rows of sites in order: site i has those from ``cuts[i]`` on.

    ``inside`` is the scatter of rows about their means, (S, d).
    """

    X: Floats
    weights: Floats
    cuts: NDArray[np.intp]
    inside: Floats

    @classmethod
    def of(cls, described: Sequence[Summary], squares: Sequence[Summary]) -> Points:
        """Return the points of sites' descriptions, and of their sums of squares."""
        lines = [(each.sums[kept], each.weights[kept]) for each in described
                 if (kept := each.weights > 0).any()]  # fmt: skip
        sums, weights = (np.concatenate(each) for each in zip(*lines, strict=True))
        cuts = np.cumsum([0, *(len(w) for _, w in lines)])
        made = cls(sums / weights[:, None], weights, cuts, np.zeros((0, sums.shape[1])))
        total = np.array([each.sums[:, 1] for each in squares])
        told = np.array([each.weights for each in squares]) / made.sizes[:, None]
        told = total - made.by_site(weights[:, None] * made.X**2) * told
        return replace(made, inside=np.maximum(told, 0.0))

    @property
    def within(self) -> Floats:
        """The scatter of the rows of all sites about their means, (d,)."""
        within: Floats = self.inside.sum(axis=0)
        return within

    def own_gains(self) -> tuple[Floats, Floats]:
        """Return gains (S, d) told by sites' own clusters; typical deviations, variances (2, d)."""
        sites = zip(self.of_sites(), self.inside, strict=True)
        own = np.array([own_deviations(X, w, inside)[0] for (X, w), inside in sites])
        # the logarithm of a deviation of n rows has the variance 1 / 2n
        return self._gains(logs_of(own), 0.5 / self.sizes[:, None], own > 0)

    def divided(self, by: Floats) -> Points:
        """Return points divided by a number for each column, at each site or at all."""
        X = self.X / np.broadcast_to(by, self.means.shape)[self.sites]
        return replace(self, X=X, inside=self.inside / by**2)

    def gains_beside(
        self, model: SiteModel, before: Floats, told: NDArray[np.bool_]
    ) -> tuple[Floats, Floats]:
        """Return the same gains told by a model of points divided by others."""
        r, _ = expected(self.divided(before), model)
        noise, cuts = np.diag(model.noise), self.cuts[1:-1]
        each = zip(self.of_sites(), np.split(r, cuts), self.inside, strict=True)
        found = [gains_beside(X, own, within, model.centers, noise) for (X, _), own, within in each]
        logs, errors = (np.array(one) for one in zip(*found, strict=True))
        return self._gains(logs, errors, told)

    def _gains(
        self, logs: Floats, errors: Floats, told: NDArray[np.bool_]
    ) -> tuple[Floats, Floats]:
        """Return gains (S, d), given their logarithms; their middle and variance (2, d)."""
        weight = self.sizes[:, None] * told
        weight = weight / np.maximum(weight.sum(axis=0), 1.0)
        middle = (weight * logs).sum(axis=0)
        apart = (logs - middle) * told
        variance = np.maximum((weight * (apart**2 - errors)).sum(axis=0), 0.0)
        typical = np.exp(middle) * (weight > 0).any(axis=0)
        return gains_of(apart, variance, errors), np.stack([typical, variance])

    @cached_property
    def sites(self) -> NDArray[np.intp]:
        """The place of each point's site."""
        return np.repeat(np.arange(len(self.cuts) - 1), np.diff(self.cuts))

    @cached_property
    def sizes(self) -> Floats:
        """The number of rows of each site, (S,)."""
        return self.by_site(self.weights)

    @cached_property
    def means(self) -> Floats:
        """The mean of each site, (S, d)."""
        return self.by_site(self.weights[:, None] * self.X) / self.sizes[:, None]

    def by_site(self, of_points: Floats) -> Floats:
        """Return sums over the points of each site."""
        return np.add.reduceat(of_points, self.cuts[:-1])

    def of_sites(self) -> Iterator[tuple[Floats, Floats]]:
        """Yield the points and weights of each site."""
        for low, high in zip(self.cuts[:-1], self.cuts[1:], strict=True):
            yield self.X[low:high], self.weights[low:high]

    def in_deviations(self) -> tuple[Points, Floats]:
        """Return points in deviations within sites, and these, (d,).

        Offsets may be many times wider than what lies within sites, which tells the subtypes.
        """
        apart = self.weights @ (self.X - self.means[self.sites]) ** 2 + self.within
        deviations = np.sqrt(apart / self.weights.sum())
        deviations = np.where(deviations > 0, deviations, 1.0)
        return self.divided(deviations), deviations

    def noise_at_sites(self, k: int, rng: Generator) -> Floats:
        """Return the variance of columns inside clusters at each site alone, (d,)."""
        inside, freedom = self.within.copy(), self.weights.sum()
        for X, w in self.of_sites():
            n = min(k, max(1, int(w.sum() // 10)), len(np.unique(X, axis=0)))
            fit = kmeans(X, n, w, rng=rng, n_init=2)
            inside += w @ (X - fit.centers[fit.labels]) ** 2
            freedom -= n
        variance: Floats = np.maximum(inside, 1e-9) / max(freedom, 1.0)
        return variance


@dataclass(frozen=True, slots=True, eq=False)
class SiteModel:
    """Centres (k, d), offsets (S, d) and shares (S, k) of sites, and noise (d, d).

    ``counts`` (S, k) are the rows of each subtype at each site.
    """

    centers: Floats
    offsets: Floats
    shares: Floats
    noise: Floats
    log_likelihood: float = -np.inf
    counts: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def bic(self, n: float) -> float:
        """Return the Bayesian information criterion for n rows; smaller is better."""
        (k, d), sites = self.centers.shape, len(self.offsets)
        free = k * d + (sites - 1) * d * self.offsets.any() + sites * (k - 1) + d * (d + 1) / 2
        return float(-2 * self.log_likelihood + free * np.log(n))

    @property
    def spread(self) -> Floats:
        """Variance of offsets between sites, by moments (d,)."""
        n = self.counts.sum(1)
        between = n @ self.offsets**2 - (len(n) - 1) * np.diag(self.noise)
        spread: Floats = np.maximum(between / max(n.sum() - (n**2).sum() / n.sum(), 1.0), 0.0)
        return spread

    def effects(
        self,
        told: NDArray[np.bool_],
        shift: Floats,
        unit: Floats,
        deviations: Floats,
        least: int,
        gains: Floats,
    ) -> SiteEffects:
        """Return what all sites need of a model of those columns (x - shift) / unit that are told.

        It is of these in deviations; ``gains`` are told by columns (x - shift) / unit.
        """
        noise, shift, unit = np.diag(unit**2), shift[told], unit[told]
        scale = unit * deviations
        noise[told] = among(told, self.noise * np.outer(scale, scale))
        made = {
            "centers": among(told, self.centers * scale + shift),
            "noise": noise,
            "spread": among(told, [self.spread * scale**2])[0],
            "least": least,
            "gains": among(told, [gains[0] * unit, gains[1], shift]) if gains.size else (),
        }
        return SiteEffects.from_plain(made)

    def in_words(self, points: Points, names: Sequence[str], seed: int, gains: Floats) -> list[str]:
        """Return whether offsets are needed, and of which columns; and how much gains differ."""
        pairs = zip(gains[1], names, strict=False)
        apart = [f"{np.exp(v**0.5):.2f} in {name}" for v, name in pairs]
        factors = [f"Gains of sites differ by factors of {listed(apart)}."] if apart else []
        n = points.weights.sum()
        gain = best_model(points, seed, offsets=False).bic(n) - self.bic(n)
        sizes = np.sqrt(self.spread / np.diag(self.noise))
        order = np.argsort(-sizes, kind="stable").tolist()
        most = [j for j in order if sizes[j] >= SITE_EFFORT.named][:5]
        large = ", ".join(f"{names[j]} ({sizes[j]:.1f})" for j in most)
        subtypes = f"{len(self.centers)} subtypes" if len(self.centers) > 1 else "one subtype"
        found = (
            ". Sites differ by more than their rows, by the likelihood: in "
            f"{large} standard deviations within a subtype."
        )
        found = found if gain > 0 and most else "; by the likelihood, they are not needed."
        sites = counted(len(self.offsets), "site")
        were = "were" if self.offsets.any() else "are within chance and were not"
        said = f"Offsets of {sites} {were} subtracted, with {subtypes}{found}"
        return [said, *factors]

    def doubts(self, names: Sequence[str], fewest: float = 5, share: float = 0.03) -> list[str]:
        """Return a warning of sites outside the largest group that share two subtypes or more.

        What is at a site counts from so many rows, and such a share of its rows, on. Where offsets
        are small beside the distances of centres, they are told from subtypes all the same; a
        subtype that only such a site has may lie in any direction.
        """
        n = self.counts
        here = (n >= fewest) & (n >= share * n.sum(1)[:, None])
        linked = here.astype(int) @ here.T.astype(int) >= 2
        _, group = scipy.sparse.csgraph.connected_components(linked, directed=False)
        largest = np.bincount(group, n.sum(1)).argmax()
        apart = [name for name, each in zip(names, group, strict=True) if each != largest]
        unit = np.diag(self.noise)
        distances = scipy.spatial.distance.pdist(self.centers / np.sqrt(unit), "sqeuclidean")
        is_clear = distances.min(initial=np.inf) >= SiteEffects.clear * (self.spread / unit).mean()
        if not apart or is_clear:
            return []
        return [
            f"{listed(apart)} and the other sites share fewer than two subtypes, so their offsets "
            "cannot be told from their subtypes: rows of these sites may be in wrong clusters"
        ]


def best_model(
    points: Points, seed: int, effort: Effort = SITE_EFFORT, *, offsets: bool = True
) -> SiteModel:
    """Return the model whose number of subtypes has the smallest BIC.

    The search ends when two numbers more were worse.
    """
    n, less = points.weights.sum(), replace(effort, registrations=2, steps=30)
    models, at = list[SiteModel](), 0
    while len(models) - at <= 2 and len(models) < min(effort.most, len(points.X)):
        fit = fitted_model if offsets else model_without_offsets
        models.append(fit(points, len(models) + 1, seed, less if offsets else effort))
        at = int(np.argmin([model.bic(n) for model in models]))
    whole = fitted_model(points, at + 1, seed, effort) if offsets else models[at]
    return max(models[at], whole, key=lambda model: model.log_likelihood)


def modelled(
    points: Points, seed: int, have_gains: bool, effort: Effort = SITE_EFFORT
) -> tuple[Points, Floats, SiteModel, Floats, Floats]:
    """Return points in deviations, these, their model, typical and variance of gains, and gains."""
    gains, of_gains = points.own_gains() if have_gains else (np.ones(1), np.zeros((2, 0)))
    points, deviations = (whole := points).divided(gains).in_deviations()
    model, whole = best_model(points, seed, effort), whole.divided(deviations)
    for _ in range(effort.gains if have_gains else 0):
        gains, (_, of_gains[1]) = whole.gains_beside(model, gains, of_gains[0] > 0)
        points = whole.divided(gains)
        model = em(points, model, effort)
    none = em(points, replace(model, offsets=np.zeros_like(model.offsets)), effort, fixed=True)
    # twice what offsets gain in log likelihood has this chi-squared distribution if there are none
    least = scipy.special.chdtri((len(model.offsets) - 1) * points.X.shape[1], effort.chance)
    model = model if 2 * (model.log_likelihood - none.log_likelihood) > least else none
    return points, deviations, model, of_gains, np.broadcast_to(gains, points.means.shape)


def model_without_offsets(points: Points, k: int, seed: int, effort: Effort) -> SiteModel:
    """Return a model with k subtypes and no offsets."""
    rng = np.random.default_rng([seed, k])
    centers = kmeans(points.X, k, points.weights, rng=rng, n_init=effort.starts).centers
    start = start_of(centers, np.zeros_like(points.means), points.noise_at_sites(k, rng))
    return em(points, start, effort, fixed=True)


def fitted_model(points: Points, k: int, seed: int, effort: Effort = SITE_EFFORT) -> SiteModel:
    """Return the most likely model with k subtypes of several starts."""
    rng = np.random.default_rng([seed, k])
    noise = points.noise_at_sites(k, rng)
    begun = []
    for centers, offsets in _starts(points, k, noise, effort, rng):
        start = _registered(points, start_of(centers, offsets, noise))
        begun.append(em(points, start, replace(effort, steps=10), full=False))
    begun.sort(key=lambda model: -model.log_likelihood)
    found = []
    for model in begun[: effort.kept]:
        for _ in range(effort.registrations if k > 1 else 0):
            model = _registered(points, model, model.spread)
            model = em(points, model, replace(effort, steps=15))
        found.append(em(points, model, effort))
    return max(found, key=lambda model: model.log_likelihood)


def start_of(centers: Floats, offsets: Floats, noise: Floats) -> SiteModel:
    """Return a model with equal shares, and with noise (d,) along the columns."""
    shares = np.full((len(offsets), len(centers)), 1 / len(centers))
    return SiteModel(centers, offsets, shares, np.diag(noise))


def _starts(
    points: Points, k: int, noise: Floats, effort: Effort, rng: Generator
) -> Iterator[tuple[Floats, Floats]]:
    """Yield centres and offsets: of all rows, of rows centred by site, of the rows of a site."""
    none, means = np.zeros_like(points.means), points.means
    offsets = means - points.sizes @ means / points.sizes.sum()
    for _ in range(effort.starts if k > 1 else 1):
        yield kmeans(points.X, k, points.weights, rng=rng, n_init=1).centers, none
        centred = points.X - offsets[points.sites]
        yield kmeans(centred, k, points.weights, rng=rng, n_init=1).centers, offsets
    templates = sorted(_templates(points, k, rng), key=lambda each: -each[0])
    for _, centers in templates[: effort.templates]:
        yield _grown(points, centers, k, noise, rng), none


def _templates(points: Points, k: int, rng: Generator) -> Iterator[tuple[float, Floats]]:
    """Yield clusters of each site alone, with what they gain in log likelihood."""
    d, n_all = points.X.shape[1], points.weights.sum()
    for X, w in points.of_sites():
        n = w.sum()
        whole = w @ ((X - w @ X / n) ** 2).sum(1)
        inside = points.within.sum() * n / n_all
        for q in range(2, k + 1):
            if n < 8 * q or len(X) < 2 * q:
                break
            fit = kmeans(X, q, w, rng=rng, n_init=2)
            shares = np.maximum(np.bincount(fit.labels, w, q) / n, 1e-12)
            gain = n * d / 2 * np.log((whole + inside + 1e-12) / (fit.inertia + inside + 1e-12))
            gain += n * shares @ np.log(shares) - (q - 1) * (d + 1) / 2 * np.log(n)
            yield gain / (1.0 if q == k else 1.5), fit.centers


def _grown(points: Points, centers: Floats, k: int, noise: Floats, rng: Generator) -> Floats:
    """Return k centres: those of a site, and among the rows that these explain worst."""
    while len(centers) < k:
        start = start_of(centers, np.zeros_like(points.means), 1.5 * noise)
        rest = points.X - _registered(points, start).offsets[points.sites]
        far = ((rest[:, None] - centers) ** 2).sum(2).min(1)
        is_far = far >= np.quantile(far, 0.9)
        X, w = rest[is_far], points.weights[is_far]
        fit = kmeans(X, min(5, len(X)), w, rng=rng, n_init=1)
        nearer = w * (far[is_far] - ((X - fit.centers[fit.labels]) ** 2).sum(1))
        gains = np.bincount(fit.labels, nearer, len(fit.centers))
        centers = np.vstack([centers, fit.centers[int(gains.argmax())]])
    return centers


def found_offsets(points: Points, model: SiteModel) -> Floats:
    """Return the offsets (S, d) that sites find from the model, were their means their rows."""
    return _registered(points, model, model.spread).offsets


def _registered(points: Points, model: SiteModel, spread: Floats | float = 1e9) -> SiteModel:
    """Return the model in which each site has looked for its offset."""
    white, spread = common_axes(model.noise, np.broadcast_to(spread, len(model.noise)))
    centers, current = model.centers @ white, model.offsets @ white
    found = [
        registered(X @ white, w, centers, np.vstack([at, starts_of(mean, centers)]), spread)
        for (X, w), at, mean in zip(points.of_sites(), current, points.means @ white, strict=True)
    ]
    offsets, shares = map(np.array, zip(*found, strict=True))
    return replace(model, offsets=offsets @ np.linalg.inv(white), shares=shares)


def em(
    points: Points, model: SiteModel, effort: Effort, *, full: bool = True, fixed: bool = False
) -> SiteModel:
    """Return the model after EM; with ``fixed``, there are no offsets.

    Noise is a full covariance, or along the columns only.
    """
    k, w = len(model.centers), points.weights
    prior = Registration().prior_rows
    last = -np.inf
    for step in range(effort.steps + 1):
        r, found = expected(points, model)
        counts = points.by_site(r)
        model = replace(model, log_likelihood=found, counts=counts)
        goal = found + prior / k * np.log(model.shares).sum()
        if step == effort.steps or goal - last < effort.tol * w.sum():
            break
        last = goal
        centers, offsets = moved(points, r, counts, model, fixed)
        shares = (counts + prior / k) / (points.sizes[:, None] + prior)
        noise = _noise(points, r, centers, offsets, full)
        model = SiteModel(centers, offsets, shares, noise)
    return model


def expected(points: Points, model: SiteModel) -> tuple[Floats, float]:
    """Return the weight of each point in each subtype, and the log likelihood of all."""
    d, w, sites = points.X.shape[1], points.weights, points.sites
    white = whitening(model.noise)
    E, C = (points.X - model.offsets[sites]) @ white, model.centers @ white
    logs = E @ C.T - (C**2).sum(1) / 2 - (E**2).sum(1)[:, None] / 2
    logs = w[:, None] * (logs + np.log(model.shares)[sites])
    top = logs.max(1)
    likely = np.exp(logs - top[:, None])
    total = likely.sum(1)
    each = np.log(np.diag(white)).sum() - d / 2 * np.log(2 * np.pi)
    inside = points.within @ (white**2).sum(1) / 2
    found = float((np.log(total) + top).sum() + w.sum() * each - inside)
    return w[:, None] * likely / total[:, None], found


def moved(
    points: Points, r: Floats, counts: Floats, model: SiteModel, fixed: bool
) -> tuple[Floats, Floats]:
    """Return the centres and offsets of highest likelihood for given memberships."""
    total, used = counts.sum(0), counts.sum(0) > 1e-8
    sums, means = r.T @ points.X, np.zeros_like(model.offsets) if fixed else points.means
    shares = np.zeros_like(counts) if fixed else counts / points.sizes[:, None]
    L = np.diag(total) - counts.T @ shares
    values, along = np.linalg.eigh(L)
    # what the sites do not tell of the centres, as where each has one subtype, stays as it is
    is_told = values > 1e-9 * total.max()
    told = along[:, is_told]
    centers = told @ ((told.T @ (sums - counts.T @ means)) / values[is_told, None])
    centers += model.centers - told @ (told.T @ model.centers)
    centers += (sums.sum(0) - total @ centers) / total.sum()
    centers = np.where(used[:, None], centers, model.centers)
    return centers, means - shares @ centers


def _noise(points: Points, r: Floats, centers: Floats, offsets: Floats, full: bool) -> Floats:
    """Return the covariance within subtypes; within means, it is correlated as between them."""
    n, d = points.weights.sum(), points.X.shape[1]
    E = points.X - offsets[points.sites]
    between = np.zeros((d, d))
    for j, center in enumerate(centers):
        between += ((E - center) * r[:, [j]]).T @ (E - center)
    if not full:
        return np.diag((np.diag(between) + points.within) / n + 1e-9)
    ratio = np.sqrt(points.within / (np.diag(between) + 1e-12))
    noise: Floats = between * (1.0 + np.outer(ratio, ratio)) / n
    # a thousandth more along the columns keeps it a covariance where rows are few
    noise += np.diag(1e-3 * np.diag(noise) + 1e-12)
    return noise
