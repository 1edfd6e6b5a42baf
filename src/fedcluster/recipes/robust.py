"""Clustering despite lying sites, and the influence of each site on a clustering.

The influence of each site comes from the answers of the last round, without another one.

c_j    the centres, c_ij those of the same server step without site i, s_j the spread of a cluster
shift  |c_j - c_ij| / s_j
J_i    inertia of the other sites' rows about c_ij; about c_j it is larger by the sum of
n_j |c_j - c_ij|^2 over the others' rows, with the clusters as they are

A site's description, against clusters of the others' descriptions:

r_i    mean of min(|m - c|^2, a) over its means m, over that of the others' means; a is nine times
       the mean of the others, so that no outlier decides
r_ij   the same with column j of the site times a factor, about 0 in the column's own units

Clustering that up to F lying sites cannot steer, at the server, from each site's answers.

D. Yin, Y. Chen, K. Ramchandran & P. Bartlett, Byzantine-robust distributed learning, ICML 2018,
take the median or a trimmed mean of what sites send, by coordinate. Here for each cluster, of which
a site has n_i rows with the mean m_i:

    weight:     w_i = min(n_i, most), so that no F sites weigh more than all others together
    reference:  r = weighted median of the m_i by coordinate, with weights min(n_i, their median)
    apart:      u_i = |m_i - r|^2 / (s^2 / n_i + b^2), s^2 the median variance within the sites,
                b^2 the median of |m_i - r|^2 - s^2 / n_i
    left out:   of the sites with u_i > 9 the F farthest; in their place stands the mean of the rest

Deviations: a site is left out of a cluster only if it is far apart; so little changes without
liars, and what a liar within the bound moves is small. It keeps its weight, as the mean of the
rest, so that the inertia of runs stays comparable. A cluster of fewer than 2 F + 1 sites keeps its
sums. The start is found among means that more than F sites describe.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import scipy

from fedcluster.algorithms.merging import means, total
from fedcluster.core import Answers, Floats, Labels, Result, SiteInfo, State, Summary, Task
from fedcluster.core.task import stream
from fedcluster.core.threads import on_threads
from fedcluster.errors import InputError
from fedcluster.kernels import nearest
from fedcluster.kernels.iteration import kmeans_runs, lloyd
from fedcluster.options.choices import is_step
from fedcluster.preprocessing import NumericColumn, Preprocessor
from fedcluster.recipes.specifications import Fit

Exchange = list[tuple[Task, Answers]]
Kept = deque[Exchange]


SITES = range(3, 51)
"""Numbers of sites for which influence is reported: of two, neither stands out; of many, none
does."""


FACTORS = (-1.0, *(1.2 ** (sign * i) for i in range(1, 10) for sign in (-1, 1)))
"""Factors tried on a column to see whether its rows would fit: another sign, or another unit."""


@dataclass(frozen=True, slots=True)
class Influence:
    """Influence of one site on the centres.

    Parameters
    ----------
    site : str
        The site.
    largest_shift, mean_shift : float
        Distance of the centres from those without it, the largest one and the mean over the rows
        of the other sites; in units of the clusters' spread (the root mean squared distance).
    inertia_change : float or None
        Relative increase of the other sites' inertia compared with centres found without the site;
        None if the answers do not show it.
    alone : int
        Number of clusters in which only this site has rows.
    share : float
        Its share of the weight of all rows, as it reported.
    own : float
        Share of its rows in clusters of which the other sites have less than a hundredth.
    misfit : float or None
        Mean squared distance of its rows to clusters of the other sites' rows, relative to that of
        the others' own rows, if descriptions of the rows show it.
    column : str or None
        The odd column: with its sign changed, or in another unit, the rows would fit.
    factor : float or None
        The factor that would correct the column; -1 for another sign.
    shifted : str or None
        The column in which the centre of the largest shift moves most, if columns keep their names.
    """

    site: str
    largest_shift: float
    mean_shift: float
    inertia_change: float | None
    alone: int
    share: float
    own: float = 0.0
    misfit: float | None = None
    column: str | None = None
    factor: float | None = None
    shifted: str | None = None
    striking_share = 0.05  # a site stands out if it adds this share to the others' inertia
    striking_shift = 0.5  # and moves a centre by this part of its cluster's spread
    striking_times = 3.0  # and adds this many times as much as any other site
    unlike_from = 1.6  # misfit of odd rows
    alike_upto = 1.35  # largest misfit with the column corrected
    mended_by = 1.5  # factor by which the correction must reduce it
    clearly_by = 1.3  # factor by which this must exceed that at any other site
    own_share = 0.5  # share of its rows in clusters of its own from which on a site is odd
    few_others = 0.01  # largest number of others' rows in such a cluster, as a share of the site's
    apart_from = 9.0  # squared distance, in variances, beyond which a site is left out of a cluster
    certain_from = 100.0
    """The same for naming a site that was left out of a column, as many columns are tested."""
    vouched_share = 0.5
    """Share of a site's description that others must confirm, or it is left out of the start."""
    least_misfit = 1e-12  # least misfit: rows that lie at the centres have none

    @property
    def is_odd(self) -> bool:
        """Whether a column differs from that of others, or most rows are in clusters of its own."""
        strange = self.misfit is not None and self.misfit > self.unlike_from
        return self.column is not None or (strange and self.own > self.own_share)


def remember(kept: Kept, tasks: Sequence[Task], answers: Sequence[Answers]) -> None:
    """Keep those answers of a round that lead to states, up to a number of rounds."""
    pairs = zip(tasks, answers, strict=True)
    if made := [pair for pair in pairs if hasattr(pair[0].step, "server_step")]:
        kept.append(made)


def influences(
    result: Result, listener: Listener, seed: int, columns: Sequence[str] = ()
) -> tuple[Influence, ...]:
    """Return the influence of each site; empty if it cannot be computed.

    Sites with an odd column or most rows in clusters of their own come first, then those that add
    the most to the others' inertia relative to their share of the rows: a large honest site moves
    centres more than a small lying one.

    Parameters
    ----------
    result : Result
        The clustering.
    listener : Listener
        The listener, with the rounds that it kept.
    seed : int
        The seed of the run.
    columns : sequence of str
        The columns of rows that are not prepared.
    """
    for exchange in reversed(listener.kept):
        for task, answers in exchange:
            if task.step == result.algorithm and len(answers.by_site) in SITES:
                state = _made(task, answers.summaries, seed)
                if state is not None and _is_same(state, result.state):
                    by_site = dict(answers.by_site)  # a lazy mapping: compute each answer once
                    spread, others = _spread(task, by_site, state), _others(task, by_site)
                    names = _names_of(task.preprocessor, columns, state.centers.shape[1])
                    known = task, by_site, others, state, spread, seed, names
                    each = on_threads(partial(_of, *known), [*by_site])
                    each = _with_misfits(each, result, listener, columns)
                    return tuple(sorted(each, key=_rank, reverse=True))
    return ()


def striking(found: Sequence[Influence]) -> Influence | None:
    """Return the site that stands out, if there is one."""
    if not found or found[0].inertia_change is None:
        return None
    first, *others = [each.inertia_change or 0.0 for each in found]
    much = first > Influence.striking_share and found[0].largest_shift > Influence.striking_shift
    return found[0] if much and first > Influence.striking_times * max(others) else None


def _rank(each: Influence) -> tuple[bool, bool, float, float]:
    change = each.inertia_change
    much = each.largest_shift if change is None else change
    mended = each.column is not None
    # Smallest share of the rows by which influence is divided.
    return mended, each.is_odd, much / max(each.share, 1e-6), each.largest_shift


def _made(task: Task, answers: Sequence[Summary], seed: int) -> State | None:
    """Return the state that follows from answers; None if there are too few."""
    step: Any = task.step
    try:
        state: State = step.server_step(task.state, answers, stream(seed, task.state.round))
    except ValueError:
        return None
    return state


def _is_same(state: State, found: State) -> bool:
    """Return whether two states have the same clusters, in any order."""
    if state.centers.shape != found.centers.shape:
        return False
    # adding 0.0 turns -0.0 into 0.0
    one, other = (sorted(map(bytes, s.centers + 0.0)) for s in (state, found))
    return one == other


def _others(task: Task, by_site: Mapping[str, Summary]) -> Callable[[str], Sequence[Summary]]:
    """Return a function that gives the answers without a site's: their sum if the step adds."""
    if not task.step.server_additive:
        return lambda name: [answer for site, answer in by_site.items() if site != name]
    whole = total([*by_site.values()])
    return lambda name: [whole.without(by_site[name])]


def _of(
    task: Task,
    by_site: Mapping[str, Summary],
    without_site: Callable[[str], Sequence[Summary]],
    state: State,
    spread: Floats,
    seed: int,
    names: Sequence[str],
    name: str,
) -> Influence:
    """Return the influence of one site on clusters with a given spread, (k,)."""
    others = without_site(name)
    without = _made(task, others, seed)
    lines = [np.asarray(answer.weights) for answer in others]
    k, d = state.centers.shape
    # otherwise each site has its own lines
    by_cluster = task.step.answer_shape(task.state, d)[0] == k
    held = np.sum(lines, axis=0) > 0 if by_cluster else np.ones(k, bool)
    rows = {site: float(answer.weights.sum()) for site, answer in by_site.items()}
    share, alone = rows[name] / (sum(rows.values()) or 1.0), int(np.sum(~held))
    own = 0.0
    if by_cluster and rows[name] > 0:
        mine = np.asarray(by_site[name].weights)
        own = float(mine[np.sum(lines, axis=0) < Influence.few_others * mine].sum() / rows[name])
    if without is None or without.centers.shape != state.centers.shape:
        return Influence(name, float("inf"), float("inf"), None, alone, share, own)
    place = np.arange(k) if by_cluster else _nearest_places(without.centers, state.centers)
    moved = state.centers - without.centers[place]
    shift = np.sqrt((moved**2).sum(axis=1)) / spread
    weights = np.where(held, np.maximum(without.weights[place], 0.0), 0.0)
    mean = float(shift @ weights / weights.sum()) if weights.sum() else float("inf")
    change = _inertia_change(task, others, state)
    most = np.abs(moved[shift.argmax()]).argmax()
    where = str(names[most]) if len(names) else None
    return Influence(name, float(shift.max()), mean, change, alone, share, own, shifted=where)


def _with_misfits(
    found: Sequence[Influence], result: Result, listener: Listener, columns: Sequence[str]
) -> list[Influence]:
    """Return influences with how far each site is from the others' clusters, and why.

    If most sites are far from the others' clusters, none of them is odd.
    """
    # Number of values of all centres up to which descriptions are compared; more take as long as a
    # fit.
    few = result.state.centers.size <= 2048
    if listener.described is None or not few or not is_step(result.algorithm, "Lloyd", "FFCM"):
        return list(found)
    task, answers = listener.described
    d, means = result.state.centers.shape[1], {}
    for site, answer in answers.by_site.items():
        some = answer.weights > 0
        means[site] = answer.sums[some, :d] / answer.weights[some, None], answer.weights[some]
    every = [each.site for each in found]
    if any(site not in means or not len(means[site][1]) for site in every):
        return list(found)
    beside = {site: _SiteMeans.of(site, means, result.state.centers) for site in every}
    ratios = [each.ratio for each in beside.values()]
    alike = float(np.median(ratios)) < Influence.unlike_from
    scaled = _scaled_columns(task.preprocessor, columns, d)
    return [
        replace(each, misfit=beside[each.site].ratio, **_odd(each.site, beside, scaled))
        if alike
        else each
        for each in found
    ]


def _names_of(how: Any, columns: Sequence[str], d: int) -> Sequence[str]:
    """Return the names of the columns of centres, or nothing if they have none of their own."""
    mixed = isinstance(how, Preprocessor) and how.principal
    names = how.names if isinstance(how, Preprocessor) else columns
    return names if len(names) == d and not mixed else ()


def _scaled_columns(how: Any, names: Sequence[str], d: int) -> list[tuple[int, str, float]]:
    """Return index, name and zero point of the numeric columns that are only shifted and scaled."""
    if how is None:
        return [(j, name, 0.0) for j, name in enumerate(names)] if len(names) == d else []
    if not isinstance(how, Preprocessor) or how.principal or how.unit:
        return []
    places, columns = 0, []
    for column in how.columns:
        if isinstance(column, NumericColumn) and not column.log:
            columns.append((places, column.name, -column.shift / column.scale))
        places += len(column.names)
    return columns if places == d else []


def _odd(
    site: str, beside: Mapping[str, _SiteMeans], columns: Sequence[tuple[int, str, float]]
) -> dict[str, Any]:
    """Return the column of a site that a factor would correct, and the factor; or nothing."""
    own = beside[site]
    if own.ratio <= Influence.unlike_from or not columns:
        return {}
    tried = [(*own.mended(j, zero), j, name, zero) for j, name, zero in columns]
    ratio, factor, j, name, zero = min(tried)
    others = [
        each.ratio / max(each.mended(j, zero)[0], Influence.least_misfit)
        for key, each in beside.items()
        if key != site
    ]
    gain = own.ratio / max(ratio, Influence.least_misfit)
    if ratio > Influence.alike_upto or gain < max(
        Influence.mended_by, Influence.clearly_by * max(others)
    ):
        return {}
    return {"column": name, "factor": factor}


@dataclass(frozen=True, slots=True, eq=False)
class _SiteMeans:
    """Means of one site compared with clusters of all others.

    Parameters
    ----------
    points : ndarray of shape (q, d)
        The means.
    weights : ndarray of shape (q,)
        Their weights.
    centers : ndarray of shape (k, d)
        The clusters of the others.
    usual, most : float
        The mean squared distance of the others' means, and the cap on that of a mean.
    """

    points: Floats
    weights: Floats
    centers: Floats
    usual: float
    most: float
    far = 9.0  # factor of the usual squared distance at which that of a mean is capped
    refined = 5  # number of passes over the others

    @classmethod
    def of(
        cls, site: str, means: Mapping[str, tuple[Floats, Floats]], centers: Floats
    ) -> _SiteMeans:
        """Return the means of a site together with those of the others.

        Centres that none of the others needs are moved to points far from any centre.
        """
        others = [each for name, each in means.items() if name != site]
        points, weights = (np.concatenate(each) for each in zip(*others, strict=True))
        fit = lloyd(points, centers, weights, max_iter=cls.refined, empty="relocate")
        centers = fit.centers[fit.weights > 0]
        squared = nearest(points, centers)[1]
        most = cls.far * float(weights @ squared / weights.sum())
        usual = float(weights @ np.minimum(squared, most) / weights.sum())
        return cls(*means[site], centers, max(usual, np.finfo(float).tiny), most)

    @property
    def ratio(self) -> float:
        """Return the mean squared distance relative to that of the others."""
        return self._ratio(scipy.spatial.distance.cdist(self.points, self.centers, "sqeuclidean"))

    def mended(self, j: int, zero: float) -> tuple[float, float]:
        """Return the smallest ratio with column j scaled about ``zero``, and the factor."""
        x, c = self.points[:, j, None], self.centers[:, j]
        rest = scipy.spatial.distance.cdist(self.points, self.centers, "sqeuclidean") - (x - c) ** 2
        return min(
            (self._ratio(rest + (zero + factor * (x - zero) - c) ** 2), factor)
            for factor in FACTORS
        )

    def _ratio(self, squared: Floats) -> float:
        near = np.minimum(squared.min(axis=1), self.most)
        return float(self.weights @ near / self.weights.sum() / self.usual)


def _nearest_places(centers: Floats, to: Floats) -> Labels:
    """Return the positions of centres in the order of those that they are nearest to, mutually."""
    places: Labels = scipy.optimize.linear_sum_assignment(
        scipy.spatial.distance.cdist(to, centers)
    )[1]
    return places


def _has_errors(task: Task) -> bool:
    return is_step(task.step, "Lloyd", "SphericalKMeans", "FFCM")


def _spread(task: Task, by_site: Mapping[str, Summary], state: State) -> Floats:
    """Return the spread of each cluster, (k,): the median over the sites.

    If answers do not show it, half the distance to the nearest other centre.
    """
    if _has_errors(task):
        each = []
        for answer in by_site.values():
            some = answer.weights > 0
            safe = np.where(some, answer.weights, 1.0)
            apart = answer.sums[:, :-1] / safe[:, None] - task.state.centers
            squares = answer.sums[:, -1] / safe - (apart**2).sum(axis=1)
            each.append(np.where(some, np.maximum(squares, 0.0), np.nan))
        whole = float(np.nanmedian(each))
        columns = np.transpose(each)
        middle = [np.nanmedian(c) if np.isfinite(c).any() else whole for c in columns]
        spread = np.sqrt(np.where(np.array(middle) > 0, middle, whole))
    else:
        apart = scipy.spatial.distance.cdist(state.centers, state.centers)
        np.fill_diagonal(apart, np.inf)
        spread = apart.min(axis=1) / 2 if len(apart) > 1 else np.ones(1)
    positive = spread[np.isfinite(spread) & (spread > 0)]
    return np.where(spread > 0, spread, positive.min() if len(positive) else 1.0)


def _inertia_change(task: Task, others: Sequence[Summary], state: State) -> float | None:
    """Return the relative increase of the others' inertia about centres over that about means."""
    if not _has_errors(task):
        return None
    answer, asked = total(others), task.state.centers
    sums, errors, weights = answer.sums[:, :-1], answer.sums[:, -1], answer.weights
    own = means(sums, weights, otherwise=state.centers)
    least = float((errors - weights * ((own - asked) ** 2).sum(axis=1)).sum())
    more = float((weights * ((own - state.centers) ** 2).sum(axis=1)).sum())
    return more / least if least > 0 else float("inf") if more > 0 else 0.0


def plain(found: Sequence[Influence]) -> list[dict[str, Any]]:
    """Return influences as JSON-compatible values, with None for numbers that are not finite."""
    return [{name: _finite(value) for name, value in asdict(each).items()} for each in found]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


@dataclass(frozen=True, slots=True, eq=False)
class Trimmed:
    """Account of what was left out in the last round of k-means.

    Parameters
    ----------
    lines : int
        The number of clusters, of all runs in the round.
    left_out : Counter
        The number of clusters from which each site's sums were left out.
    few : int
        The number of clusters in which too few sites had rows.
    before : mapping of str to str
        Sites that were left out of the preparation or the start, with the place.
    """

    lines: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    few: int = 0
    before: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        left_out = [name for name, n in self.left_out.most_common() if 2 * n > self.lines]
        said = f"left out of most clusters: {', '.join(left_out)}" if left_out else ""
        few = f"{self.few} of {self.lines} clusters at too few sites to compare" if self.few else ""
        before = [
            f"left out of {what}: {', '.join(each)}"
            for what in dict.fromkeys(self.before.values())
            if (each := [s for s, w in self.before.items() if w == what and s not in left_out])
        ]
        return "; ".join(filter(None, [said, *before, few]))


@dataclass(frozen=True, slots=True, eq=False)
class Robust:
    """Rule for combining answers of sites that may lie.

    Parameters
    ----------
    faults : int
        F, the largest number of sites that lie.
    n_clusters : int
        k, the number of clusters by which descriptions are compared.
    rows : mapping of str to float
        The number, or weight, of rows that each site reported.
    seed : int
        Determines the searches among descriptions.
    """

    faults: int
    n_clusters: int
    rows: Mapping[str, float]
    seed: int

    def combine(self, task: Task, answers: Answers) -> tuple[Answers, Trimmed | None]:
        """Return combined answers that no liar can steer far, and what was left out.

        Raises
        ------
        InputError
            If the step's answers cannot be compared.
        """
        combine = next((f for name, f in COMBINED.items() if is_step(task.step, name)), None)
        if combine is None:
            raise InputError(
                f"robust does not know how to compare sites by {type(task.step).__name__}: fit "
                'with algorithm "auto" or "lloyd", at sites that hold their rows at once'
            )
        names = list(answers.by_site)
        capped = [_times(answers.by_site[name], self._share(name)) for name in names]
        if len(capped) <= 2 * self.faults:
            return answers, None
        combined, account = combine(self, task, names, capped)
        by_site = dict(zip(names, combined, strict=True))
        return Answers(by_site, answers.missing, answers.enough), account

    def _share(self, name: str) -> float:
        """Return the share of a site's weight that counts: no more than others can vouch for."""
        rows = sorted(self.rows.values(), reverse=True)
        if name not in self.rows or len(rows) <= self.faults or not self.rows[name] > 0:
            return 1.0
        return min(1.0, rows[self.faults] / self.rows[name])


def robust_rule(spec: object, sites: Iterable[SiteInfo], seed: int) -> Robust | None:
    """Return the rule that the specification of a fit requests, None if it requests none."""
    if not isinstance(spec, Fit) or not spec.robust:
        return None
    rows = {site.name: max(site.n_rows or 0.0, site.weight or 0.0) for site in sites}
    return Robust(spec.robust, int(spec.n_clusters), rows, seed)


def with_account(result: Any, listener: Listener) -> Any:
    """Return a result whose reason says what a rule left out, if anything."""
    if (rule := listener.rule) is None:
        return result
    trimmed = listener.trimmed
    said = f"; robust against {rule.faults} lying site{'s' * (rule.faults > 1)}"
    what = f": {trimmed}" if str(trimmed) else ""
    return replace(result, reason=f"{result.reason}{said}{what}")


@dataclass(slots=True, eq=False)
class Listener:
    """Listener to the rounds of a job: combines answers by a rule, if given, and keeps them.

    Parameters
    ----------
    rule : Robust, optional
        The rule for combining answers.
    kept : deque of exchanges
        The answers of the last rounds, as they were combined.
    trimmed : Trimmed
        What was left out in the last round.
    described : (Task, Answers), optional
        The last description of the rows, as the sites sent it.
    """

    rule: Robust | None = None
    # Number of rounds that are remembered: the winner of a race may have ended before others.
    kept: Kept = field(default_factory=lambda: deque(maxlen=8))
    trimmed: Trimmed = field(default_factory=Trimmed)
    described: tuple[Task, Answers] | None = None

    def __call__(self, tasks: Sequence[Task], answers: list[Answers]) -> list[Answers]:
        """Return the answers of a round that a plan receives."""
        for task, answer in zip(tasks, answers, strict=True):
            if is_step(task.step, "SiteSummaries", "VarianceTree"):
                self.described = task, answer
        if self.rule is not None:
            pairs = [self.rule.combine(t, a) for t, a in zip(tasks, answers, strict=True)]
            answers = [combined for combined, _ in pairs]
            added = _added([each for _, each in pairs if each is not None])
            if added is not None:
                before = {**self.trimmed.before, **added.before}
                self.trimmed = replace(added if added.lines else self.trimmed, before=before)
        remember(self.kept, tasks, answers)
        return answers

    @property
    def spare(self) -> int:
        """Number of sites with too large sums that a plan can do without."""
        return 0 if self.rule is None else self.rule.faults


def _added(accounts: Sequence[Trimmed]) -> Trimmed | None:
    """Return the account of all runs of a round, None if there is none."""
    if not accounts:
        return None
    left_out = sum((each.left_out for each in accounts), Counter[str]())
    lines, few = (sum(getattr(each, name) for each in accounts) for name in ("lines", "few"))
    before = {site: what for each in accounts for site, what in each.before.items()}
    return Trimmed(lines, left_out, few, before)


def _times(answer: Summary, share: float) -> Summary:
    return answer if share == 1 else Summary(answer.sums * share, answer.weights * share)


Combined = tuple[list[Summary], Trimmed | None]


def _clusters(rule: Robust, task: Task, names: Sequence[str], given: Sequence[Summary]) -> Combined:
    """Combine sums and errors of rows by cluster."""
    sums, weights = (np.array([getattr(a, n) for a in given]) for n in ("sums", "weights"))
    k, few, left_out = weights.shape[1], 0, Counter[str]()
    sums, weights = sums.copy(), weights.copy()
    for j in range(k):
        held = np.flatnonzero(weights[:, j] > 0)
        if len(held) < 2 * rule.faults + 1:
            few += 1
            continue
        values = sums[held, j] / weights[held, j, None]
        asked = task.state.centers[j]
        within = values[:, -1] - ((values[:, :-1] - asked) ** 2).sum(axis=1)
        spread = float(np.median(np.maximum(within, 0.0)))
        out = apart(values[:, :-1], weights[held, j], spread, rule.faults)
        w = majority(np.where(out, 0.0, weights[held, j]), rule.faults)
        values[:, -1] = between(values[:, -1], rule.faults)
        values[out] = w @ values / w.sum()
        weights[held, j] = np.where(out, majority(weights[held, j], rule.faults), w)
        sums[held, j] = values * weights[held, j, None]
        left_out.update(names[i] for i in held[out])
    return list(map(Summary, sums, weights)), Trimmed(k, left_out, few)


def _columns(rule: Robust, _task: Task, names: Sequence[str], given: Sequence[Summary]) -> Combined:
    """Combine the sums of each column, each number by itself; squares about the combined mean."""
    sums, weights = (np.array([getattr(a, n) for a in given]) for n in ("sums", "weights"))
    new, left_out = sums.copy(), dict[str, str]()
    for j, q in np.ndindex(sums.shape[1:]):
        held = np.flatnonzero(weights[:, j] > 0)
        if len(held) > 2 * rule.faults:
            w = weights[held, j]
            value, mean = sums[held, j, q] / w, 0.0
            if q:  # the combination of the first number is the same for every site
                mean = float(new[held[0], j, 0] / w[0])
                value = value - mean * (2 * sums[held, j, 0] / w - mean)
            out = apart(value[:, None], w, 0.0, rule.faults)
            kept = majority(np.where(out, 0.0, w), rule.faults)
            new[held, j, q] = (kept @ value / kept.sum() + mean**2) * w
            named = apart(value[:, None], w, 0.0, rule.faults, Influence.certain_from)
            left_out |= {names[i]: "the preparation of a column" for i in held[named]}
    combined = [Summary(s, w) for s, w in zip(new, weights, strict=True)]
    return combined, Trimmed(before=left_out)


def _one_line(
    rule: Robust, _task: Task, _names: Sequence[str], given: Sequence[Summary]
) -> Combined:
    """Combine one number of each site, such as its inertia."""
    weights = np.array([float(a.weights[0]) for a in given])
    some = weights > 0
    value = np.array([float(a.sums[0, 0]) for a in given]) / np.where(some, weights, 1.0)
    value[some] = between(value[some], rule.faults)
    lines = zip(value, weights, strict=True)
    return [Summary(np.array([[v * w]]), np.array([w])) for v, w in lines], None


def _as_they_are(
    _rule: Robust, _task: Task, _names: Sequence[str], given: Sequence[Summary]
) -> Combined:
    """Return counts unchanged, as they weigh no more than a site may."""
    return list(given), None


def _descriptions(
    rule: Robust, _task: Task, names: Sequence[str], given: Sequence[Summary]
) -> Combined:
    """Weight means of rows so that no F sites have most of a cluster among them.

    The means are clustered, and in each cluster the F sites with the most weight get no more weight
    than all others; this is repeated until no weight changes.
    """
    given_weights = np.concatenate([a.weights for a in given])
    site = np.repeat(np.arange(len(given)), [len(a.weights) for a in given])
    some = given_weights > 0
    points = np.concatenate([a.sums for a in given])[some] / given_weights[some, None]
    site, full = site[some], given_weights[some]
    supported, weights, rng = full, full, stream(rule.seed, 0, "robust")
    # searches among descriptions, each without those that too few sites confirm
    for _ in range(6):
        there = weights > 0
        if not there.any():
            break
        k = min(rule.n_clusters, int(there.sum()))
        fits = kmeans_runs(points[there], k, weights[there], rng=rng, n_runs=12)
        best = min(fits, key=lambda fit: fit.inertia)
        labels = ((points[:, None] - best.centers[None]) ** 2).sum(axis=2).argmin(axis=1)
        again = _supported(labels, np.where(supported > 0, full, 0.0), site, k, rule.faults)
        supported = np.minimum(supported, again)
        new = _vouched(supported, full, site, rule.faults)
        if np.allclose(new, weights, rtol=1e-3):
            break
        weights = new
    share = np.zeros(len(given_weights))
    share[some] = weights / full if weights.any() else 1.0
    parts = np.split(share, np.cumsum([len(a.weights) for a in given])[:-1])
    out = {
        name: "the start"
        for name, a, part in zip(names, given, parts, strict=True)
        if a.weights.any() and not part.any()
    }
    return [
        Summary(a.sums * part[:, None], a.weights * part)
        for a, part in zip(given, parts, strict=True)
    ], Trimmed(before=out)


def _supported(labels: Any, weights: Floats, site: Any, k: int, faults: int) -> Floats:
    """Return weights (q,) of means by which no F sites outweigh the next ones in a cluster."""
    held = np.zeros((k, int(site.max()) + 1))
    np.add.at(held, (labels, site), weights)
    next_ = np.sort(held, axis=1)[:, -faults - 1, None]
    allowed = np.minimum(held, next_)
    share = np.divide(allowed, held, out=np.zeros_like(held), where=held > 0)
    supported: Floats = weights * share[labels, site]
    return supported


def _vouched(weights: Floats, given_weights: Floats, site: Any, faults: int) -> Floats:
    """Return weights (q,) without the F sites that lost the most, if that is most of theirs.

    The clusters of the remaining sites are confirmed by others.
    """
    left, all_ = (np.bincount(site, each) for each in (weights, given_weights))
    share = np.divide(left, all_, out=np.ones_like(left), where=all_ > 0)
    worst = np.argsort(share, kind="stable")[:faults]
    out = worst[share[worst] < Influence.vouched_share]
    return np.where(np.isin(site, out), 0.0, weights)


def majority(weights: Floats, faults: int) -> Floats:
    """Return weights in which the F largest do not exceed all others together.

    Examples
    --------
    >>> majority(np.array([5.0, 900.0, 3.0]), 1)
    array([5., 8., 3.])
    """
    order = np.sort(weights)[::-1]
    rest = order[faults:].sum()
    capped: Floats = np.minimum(weights, max(rest / faults, order[faults] if rest else 0.0))
    return capped


def between(values: Floats, faults: int) -> Floats:
    """Return values with the F smallest and F largest replaced by the next ones.

    Examples
    --------
    >>> between(np.array([2.0, 900.0, 3.0, -7.0]), 1)
    array([2., 3., 3., 2.])
    """
    if len(values) <= 2 * faults:
        return values
    order = np.sort(values)
    moved: Floats = np.clip(values, order[faults], order[-faults - 1])
    return moved


def median(values: Floats, weights: Floats) -> Floats:
    """Return the weighted median of each column (h, d), the mean of the two at a tie.

    Examples
    --------
    >>> median(np.array([[1.0], [2.0], [50.0]]), np.array([1.0, 1.0, 1.0]))
    array([2.])
    """
    order = np.argsort(values, axis=0)
    sorted_ = np.take_along_axis(values, order, axis=0)
    share = np.cumsum(weights[order], axis=0) / weights.sum()
    low, high = ((share >= half).argmax(axis=0) for half in (0.5 - 1e-12, 0.5 + 1e-12))
    columns = np.arange(values.shape[1])
    middle: Floats = (sorted_[low, columns] + sorted_[high, columns]) / 2
    return middle


def apart(
    values: Floats,
    weights: Floats,
    spread: float,
    faults: int,
    beyond: float = Influence.apart_from,
) -> Any:
    """Return which sites are too far from the others, (h,) booleans; at most F of them.

    Parameters
    ----------
    values : ndarray of shape (h, d)
        The value per row at each site.
    weights : ndarray of shape (h,)
        The weight of each site.
    spread : float
        Variance of rows within a site, summed over columns; 0 if unknown.
    faults : int
        F.
    beyond : float, default=9
        Squared distance, in variances, from which on a site is too far.
    """
    reference = median(values, np.minimum(weights, np.median(weights)))
    squared = ((values - reference) ** 2).sum(axis=1)
    by_chance = spread / weights
    between = max(0.0, float(np.median(squared - by_chance)))
    ratio = squared / np.maximum(by_chance + between, np.finfo(float).tiny)
    out = np.zeros(len(values), dtype=bool)
    farthest = np.argsort(-ratio, kind="stable")[:faults]
    out[farthest] = ratio[farthest] > beyond
    return out


COMBINED: Mapping[str, Callable[..., Combined]] = {
    "Lloyd": _clusters,
    "Inertia": _one_line,
    "Means": _columns,
    "Squares": _columns,
    "Missing": _as_they_are,
    "Histogram": _as_they_are,
    "SiteSummaries": _descriptions,
}
"""The steps whose answers can be compared, and the functions that combine them."""
