"""Number of clusters by likelihood: mixtures, their BIC, and merging of components.

Rows are modelled by mixtures of k normal components of several shapes, some with noise. Mixtures
are compared, with p parameters of single components and q shared ones, by

    log L - p / 2 log(n / k) - q / 2 log n,

the Bayesian information criterion (G. Schwarz, Estimating the dimension of a model, Ann. Statist.
6, 1978) except that a component's own parameters are estimated from its own rows, here n / k (M. A.
T. Figueiredo & A. K. Jain, Unsupervised learning of finite mixture models, IEEE Trans. Pattern
Anal. Mach. Intell. 24, 2002, who use the rows of each). The plain criterion would join many equal
clusters in pairs, as long components. Noise has 1 + 2 d parameters, as the ends of its box are
estimated.

One cluster that is not normal takes several components; components that share rows are therefore
merged (after C. Hennig, Methods for merging Gaussian mixture components, Adv. Data Anal. Classif.
4, 2010, sections 4.1 and 4.2). With tau_j the probability of component j for a row and C_jl = sum
tau_j tau_l, the overlap of two groups A and B of components is C_AB / min(N_A, N_B); the two that
overlap most are merged while the overlap is at least `merged`. The overlap shrinks as groups grow,
so that a ring of many components would break: therefore two groups are also merged if a component
of one overlaps one of the other by `linked`, and the density does not fall below `dip` times the
lower peak on the ridge line between them (S. Ray & B. G. Lindsay, The topography of multivariate
normal mixtures, Ann. Statist. 33, 2005); or by `touching`, where it does not fall below `flat`, as
from a cloud to its tail. If all components have the same covariance, there is no noise, and the
rows in them are normal within chance, two overlapping components are two normal populations: then
the least overlap is `merged_normal`, and three or more in a chain are one cluster only if the
density hardly falls between them, below `flat` of the lower peak: pieces of a line. Of two alone
that are large, the least overlap is the same if their covariances are unlike, or if rows are normal
within them and the density falls below `valley` in between.

The verdict is the smallest number of groups of a mixture whose criterion is within `earned` of the
largest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats, State
from fedcluster.mixtures.table import criterion
from fedcluster.texts import counted

IN_WORDS = {
    "spherical": "spherical covariances",
    "diag": "diagonal covariances",
    "tied": "one covariance for all",
    "full": "full covariances",
}


@dataclass(frozen=True, slots=True)
class Merging:
    """From when on components are one cluster, and a verdict is clear."""

    merged: float = 0.05  # overlap from which on components are one cluster
    merged_normal: float = 0.25  # the same, for normal ones with one covariance
    linked: float = 0.025  # overlap of single components from which on groups are one cluster
    dip: float = 0.15  # for linked components, relative density in the valley between them
    touching: float = 0.01
    """As `linked`, if the density hardly falls between them, as from a cloud to its tail."""
    large: float = 0.15
    """Share of the rows from which on a component is a population, not the tail of another."""
    valley: float = 0.6
    """Relative density in a valley that parts two large components within which rows are normal:
    where bends of a curve meet it falls so low, too, but those are three or more, or not normal."""
    doubtful: tuple[float, float] = (0.15, 0.2)
    """Overlap below which, and share of the rows from which on, parts of a cluster of three or more
    components may be clusters."""
    rest: float = 0.1
    """Overlap with the rest of its cluster below which such a part is told: the ends of one curved
    cluster overlap little, but what is between them overlaps both."""
    plenty: float = 15.0
    """Rows per parameter from which on rows that look normal within components are, and small
    components within clusters are no doubt."""
    flat: float = 0.9  # `dip` for components with one covariance
    otherwise: tuple[tuple[float, float], ...] = (
        (0.03, 0.025),
        (0.08, 0.025),
        (0.05, 0.0125),
        (0.05, 0.04),
    )
    """Alternatives to `merged` and `linked` that should not change the verdict."""
    earned: float = 2.0  # nats that any larger number of clusters must gain
    close: float = 5.0  # nats in total within which another verdict is nearly as likely
    close_share: float = 0.005  # the same, per row


MERGING = Merging()


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Fitted mixture, with the statistics of its last round.

    Parameters
    ----------
    covariance_type : {"spherical", "diag", "tied", "full"}
        The shape of its components.
    k : int
        The initial number of components.
    weights : ndarray of shape (c,)
        The weights N_j of the remaining components.
    overlaps : ndarray of shape (c, c)
        C_jl.
    fourth : float
        Mean of tau q^2 over the rows, q being the squared Mahalanobis distance; as if components
        were not shrunk, if rows are normal.
    log_likelihood : float
        The log likelihood of all rows.
    n_parameters : (int, int)
        p, of single components, and q, of all together.
    n_numbers : int
        The number of numeric columns, d.
    noise : float or None
        The share of noise; None without a noise component.
    variances : ndarray of shape (c,) or (c, d), optional
        Of spherical and of diagonal components.
    peaks : ndarray of shape (c,), optional
        Log density of the mixture at the means.
    ridges : ndarray of shape (c, c), optional
        Its minimal log density on the ridge line between two components; minus infinity if they
        share few rows.
    state : State, optional
        The mixture itself.
    flat : int
        Components without any spread of their own in some direction.
    unseen : int
        Components with hardly any complete rows, the overlap of which is not known.
    kurtosis : ndarray of shape (c, p), optional
        That of each component in each numeric column.
    unlike : ndarray of bool of shape (c, c), optional
        Pairs of large components whose covariances differ in more than size, or much in size.
    around : ndarray of bool of shape (c,), optional
        Wide components of few rows, which enclose most others.
    """

    covariance_type: str
    k: int
    weights: Floats
    overlaps: Floats
    fourth: float
    log_likelihood: float
    n_parameters: tuple[int, int]
    n_numbers: int
    noise: float | None = None
    variances: Floats | None = None
    peaks: Floats | None = None
    ridges: Floats | None = None
    state: State | None = None
    flat: int = 0
    unseen: int = 0
    kurtosis: Floats | None = None
    unlike: NDArray[np.bool_] | None = None
    around: NDArray[np.bool_] | None = None
    chance = 0.003  # probability that some column of normal rows has another kurtosis
    normal_errors = 2.5  # standard errors by which the fourth moment of normal rows may deviate
    alike = 1.5
    """Ratio of variances, spherical or of a column, up to which components have one covariance."""
    rows_each = 1.5  # number of rows per parameter below which there are few rows

    def bic(self, n: float) -> float:
        """Return the criterion for n rows.

        Examples
        --------
        >>> one = Mixture("diag", 1, np.ones(1), np.ones((1, 1)), 3.0, -100.0, (2, 0), 1)
        >>> round(one.bic(np.e**3), 9)
        -103.0
        """
        return criterion(self.log_likelihood, n, len(self.weights), self.n_parameters)

    def is_large(self, n: float) -> bool:
        """Return whether n rows are few for the parameters."""
        return sum(self.n_parameters) * self.rows_each > n

    @property
    def is_normal(self) -> bool:
        """Whether all components have the same covariance, and their rows are normal.

        A noise component takes their tails, so that normality cannot be established with noise.
        """
        return self._shares_covariance and self.is_normal_within

    @property
    def is_normal_within(self) -> bool:
        """Whether rows are normal within components, of whatever covariances."""
        d, n = self.n_numbers, float(self.weights.sum())
        if not d or self.noise is not None:
            return False
        z = (self.fourth - d * (d + 2)) / sqrt(8 * d * (d + 2) / max(n, 1.0))
        return abs(z) < self.normal_errors and self._is_normal_by_column

    @property
    def _is_normal_by_column(self) -> bool:
        """Whether the rows have the kurtosis of normal ones within components in each column.

        One uniform column, such as an age or a key, hides in the fourth moment of all of them.
        """
        if self.kurtosis is None:
            return True
        n = float(self.weights.sum())
        z = np.abs(self.weights @ self.kurtosis / n - 3.0) / sqrt(24.0 / n)
        return bool((z < NormalDist().inv_cdf(1 - self.chance / 2 / self.n_numbers)).all())

    def apart(self, at: Merging) -> NDArray[np.bool_]:
        """Return which large components are populations that overlap little, (c, c).

        Their covariances are unlike, or rows are normal within them and rare between them.
        """
        if self.noise is not None:
            return np.zeros((len(self.weights),) * 2, dtype=bool)
        large = self.weights >= at.large * self.weights.sum()
        few = _overlap(self.overlaps, self.weights) < at.merged_normal
        parted = np.zeros_like(few) if self.unlike is None else self.unlike.copy()
        if self.is_normal_within and self.peaks is not None and self.ridges is not None:
            parted |= _depth(self.peaks, self.ridges) < at.valley
        return np.asarray(parted & few & large & large[:, None])

    @property
    def _shares_covariance(self) -> bool:
        if self.variances is not None and len(self.variances):
            return bool(
                (self.variances.max(axis=0) <= self.alike * self.variances.min(axis=0)).all()
            )
        return self.covariance_type == "tied"


NONE = Mixture("diag", 0, np.zeros(0), np.zeros((0, 0)), 0.0, 0.0, (0, 0), 0)
"""The empty mixture, which remains if all components are too small."""


def merged(
    mixture: Mixture, least: float, linked: float = MERGING.linked, at: Merging = MERGING
) -> tuple[list[list[int]], float]:
    """Merge components while two groups overlap by ``least`` or are not separated by a valley.

    Returns
    -------
    (list of list of int, float)
        The groups, each with its components in increasing order, and the largest overlap that was
        merged, 0 if none was.

    Examples
    --------
    >>> shared = np.array([[7.0, 3.0, 0.0], [3.0, 6.9, 0.1], [0.0, 0.1, 4.9]])
    >>> three = Mixture("diag", 3, np.array([10.0, 10.0, 5.0]), shared, 3.0, -9.0, (2, 0), 1)
    >>> merged(three, 0.05)
    ([[0, 1], [2]], 0.3)
    """
    sizes, shared, most = mixture.weights.copy(), mixture.overlaps.copy(), 0.0
    groups, single = [[j] for j in range(len(sizes))], _overlap(shared, sizes)
    parted = mixture.peaks is None or mixture.ridges is None
    dip = at.flat if mixture.is_normal else at.dip
    peaks = np.zeros(len(sizes)) if mixture.peaks is None else mixture.peaks.copy()
    ridges = np.full_like(shared, -np.inf) if mixture.ridges is None else mixture.ridges.copy()
    while len(groups) > 1:
        overlap = _overlap(shared, sizes)
        score = overlap / least
        if not parted:
            depth = _depth(peaks, ridges)
            for valley, link in ((dip, linked), (at.flat, at.touching)):
                score = np.maximum(score, np.minimum(depth / valley, single / link))
        np.fill_diagonal(score, -1.0)
        a, b = sorted(map(int, np.unravel_index(score.argmax(), score.shape)))
        if score[a, b] < 1.0:
            break
        most = max(most, float(overlap[a, b]))
        sizes[a], peaks[a] = sizes[a] + sizes[b], max(peaks[a], peaks[b])
        shared[a] += shared[b]
        shared[:, a] += shared[:, b]
        for pairs in (single, ridges):
            pairs[a] = pairs[:, a] = np.maximum(pairs[a], pairs[b])
        groups[a] = sorted(groups[a] + groups.pop(b))
        sizes, peaks = np.delete(sizes, b), np.delete(peaks, b)
        shared, single, ridges = (
            np.delete(np.delete(each, b, axis=0), b, axis=1) for each in (shared, single, ridges)
        )
    return groups, most


def _pairs_apart(groups: Sequence[list[int]], is_apart: NDArray[np.bool_]) -> list[list[int]]:
    """Return groups in which a pair of components that overlap too little is split."""
    two = [group for group in groups if len(group) == 2 and is_apart[group[0], group[1]]]
    return sorted([group for group in groups if group not in two] + [[j] for g in two for j in g])


def _without_astray(groups: list[list[int]], mixture: Mixture) -> list[list[int]]:
    """Return groups in which those mostly around others join the one that they overlap most."""
    sizes = mixture.weights
    around = np.zeros(len(sizes), bool) if mixture.around is None else mixture.around
    for group in [each for each in groups if 2 * sizes[each] @ around[each] > sizes[each].sum()]:
        groups = [each for each in groups if each is not group]
        near = max(groups, key=lambda each: float(mixture.overlaps[np.ix_(group, each)].sum()))
        groups = sorted([sorted(each + group) if each is near else each for each in groups])
    return groups


def _depth(peaks: Floats, ridges: Floats) -> Floats:
    """Return the least density on the ridge lines, relative to the lower peak of two, (c, c)."""
    depth: Floats = np.exp(np.minimum(ridges - np.minimum(peaks[:, None], peaks), 0.0))
    return depth


def _overlap(shared: Floats, sizes: Floats) -> Floats:
    """Return the shared rows of two groups, relative to the rows of the smaller one, (c, c)."""
    overlap: Floats = shared / np.maximum(np.minimum(sizes[:, None], sizes), 1e-300)
    return overlap


@dataclass(frozen=True, slots=True, eq=False)
class Likeliest:
    """Verdict on the number of clusters by likelihood of mixtures.

    Parameters
    ----------
    n_clusters : int
        The number of clusters.
    mixture : Mixture
        The likeliest mixture.
    by_k : mapping of int to float
        The largest criterion of a mixture with that number of clusters.
    overlap : float
        The largest overlap that was merged.
    warnings : tuple of str
        Doubts about the verdict.
    groups : tuple of tuple of int
        The components of each of the mixture's clusters.
    """

    n_clusters: int
    mixture: Mixture
    by_k: dict[int, float]
    overlap: float
    warnings: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def reason(self) -> str:
        """Return the reason as a sentence.

        Examples
        --------
        >>> one = Mixture("diag", 1, np.ones(1), np.ones((1, 1)), 3.0, -100.0, (2, 0), 1)
        >>> likeliest([one], 20.0, [1, 2]).reason
        'One normal distribution describes the rows best: 1 cluster.'
        """
        c, v = len(self.mixture.weights), self.n_clusters
        if not c:
            return "The rows are too few for any mixture. The smallest k."
        what, several = "normal distribution", "normal distributions"
        if not self.mixture.n_numbers:
            what, several = "class of texts", "classes of texts"
        what = f"One {what}" if c == 1 else f"A mixture of {c} {several}"
        details = []
        if c > 1 and self.mixture.n_numbers:
            details.append(IN_WORDS[self.mixture.covariance_type])
        if self.mixture.noise is not None:
            details.append(f"{100 * self.mixture.noise:.2g} % noise")
        suffix = f" ({', '.join(details)})" if details else ""
        merged = f", and those that share up to {100 * self.overlap:.0f} % of their rows are one"
        shared = merged if self.overlap else ", each a cluster" if 1 < c == v else ""
        astray, around = "", self.mixture.around
        if around is not None and (rows := float(self.mixture.weights[around].sum())):
            astray = f", and about {rows:,.0f} rows far around others count for the nearest"
        return f"{what}{suffix} describes the rows best{shared}{astray}: {counted(v, 'cluster')}."


def likeliest(
    mixtures: Sequence[Mixture],
    n: float,
    ks: Collection[int],
    seen: str = "rows",
    at: Merging = MERGING,
) -> Likeliest:
    """Return the verdict among ``ks`` on mixtures of n rows, or of what is ``seen`` instead."""
    if not mixtures:
        return Likeliest(min(ks), NONE, {}, 0.0, ())
    merges = [clusters_of(each, at=at) for each in mixtures]
    counts = [len(groups) for groups, _ in merges]
    known = [i for i, v in enumerate(counts) if v in ks] or range(len(mixtures))
    by_k: dict[int, float] = {}
    for i in known:
        by_k[counts[i]] = max(by_k.get(counts[i], -np.inf), mixtures[i].bic(n))
    fewest = min(v for v, bic in by_k.items() if bic >= max(by_k.values()) - at.earned)
    best = max((i for i in known if counts[i] == fewest), key=lambda i: mixtures[i].bic(n))
    groups, overlap = merges[best]
    v = len(groups) if len(groups) in ks else min(ks, key=lambda k: abs(k - len(groups)))
    doubts = _doubts(mixtures[best], v, n, by_k, ks, seen, at)
    return Likeliest(v, mixtures[best], by_k, overlap, doubts, tuple(map(tuple, groups)))


def clusters_of(
    mixture: Mixture,
    least: float = MERGING.merged,
    linked: float = MERGING.linked,
    at: Merging = MERGING,
) -> tuple[list[list[int]], float]:
    """Return the groups of a mixture's components, and the largest overlap within one."""
    single = _overlap(mixture.overlaps, mixture.weights)
    groups, most = merged(mixture, least, linked, at=at)
    is_apart = mixture.apart(at)
    if mixture.is_normal:
        groups, most = merged(mixture, at.merged_normal, at=at)
        is_apart = single < at.merged_normal
    kept = _pairs_apart(groups, is_apart)
    if kept != groups:
        within = (float(single[a, b]) for group in kept for a, b in combinations(group, 2))
        most = max(within, default=0.0)
    return _without_astray(kept, mixture), most


def _parts(mixture: Mixture, at: Merging, *, many: bool) -> list[str]:
    """Return a sentence if parts of a cluster overlap little, two components or several large.

    Of ``many`` rows, two must be large.
    """
    sizes, found = mixture.weights, [(1.0, 0.0, "")]
    for group in clusters_of(mixture, at=at)[0]:
        two = len(group) == 2
        least, share = (at.merged_normal, at.large if many else 0.0) if two else at.doubtful
        shared = mixture.overlaps[np.ix_(group, group)]
        own = replace(
            mixture, weights=sizes[group], overlaps=shared, peaks=None, ridges=None, kurtosis=None
        )
        parts = [np.array(each) for each in merged(own, least)[0]]
        large = [each for each in parts if own.weights[each].sum() >= share * sizes.sum()]
        for part in large if len(large) > 1 else []:
            rest = np.setdiff1d(np.arange(len(group)), part)
            smaller = min(own.weights[part].sum(), own.weights[rest].sum())
            what = "its two components share" if two else "two parts of it share"
            overlap = float(shared[np.ix_(part, rest)].sum() / smaller)
            if two or overlap < at.rest:
                found.append((overlap, float(sizes[group].sum() / sizes.sum()), what))
    overlap, whole, what = min(found)
    if not what:
        return []
    return [
        f"one cluster, of about {100 * whole:.0f} % of the rows by likelihood, may be two that "
        f"overlap: {what} {100 * overlap:.0f} % of their rows"
    ]


def _doubts(
    mixture: Mixture,
    v: int,
    n: float,
    by_k: dict[int, float],
    ks: Collection[int],
    seen: str,
    at: Merging,
) -> tuple[str, ...]:
    """Return doubts about a verdict, one sentence each."""
    sentences = []
    nearly = max(by_k.values()) - max(at.close, at.close_share * n)
    if others := sorted(k for k, bic in by_k.items() if k != v and bic >= nearly):
        listed = " or ".join(map(str, others))
        sentences.append(
            f"{listed} is nearly as likely a number of clusters as {v}; look at the clusters"
        )
    many = n >= at.plenty * (count := sum(mixture.n_parameters))
    is_sure = many and not mixture.is_normal and mixture.is_normal_within & mixture.apart(at).any()
    apart = len(_without_astray(merged(mixture, at.merged, at=at)[0], mixture))
    if apart != v and not is_sure:
        what = "one covariance" if mixture.is_normal else "covariances of their own"
        sentences.append(
            f"some clusters overlap and are taken for two normal populations with {what}; as one "
            f"each, there are {apart}"
        )
    counts = {len(clusters_of(mixture, *each, at=at)[0]) for each in at.otherwise}
    if (other := sorted(counts - {v})) and not mixture.is_normal:
        listed = " or ".join(map(str, other))
        sentences.append(
            "some components overlap by nearly as much as makes them one cluster, or hardly more; "
            f"{listed} is as good a number of clusters"
        )
    sentences += _parts(mixture, at, many=many)
    if mixture.is_large(n):
        sentences.append(
            f"{n:,.0f} {seen} are few for the {count:,} parameters of the likeliest mixture"
        )
    if mixture.flat:
        sentences.append(
            f"{mixture.flat} of {len(mixture.weights)} components without a spread of their own in "
            "a direction: rows that repeat, or a value that many rows share, look like clusters"
        )
    if mixture.unseen:
        sentences.append(
            f"{mixture.unseen} of {len(mixture.weights)} components with hardly any rows that have "
            "as many values as others: clusters and gaps may be confused"
        )
    if v == max(ks) > 1:
        sentences.append(f"k = {v} is the largest that was tried; try larger ones")
    return tuple(sentences)
