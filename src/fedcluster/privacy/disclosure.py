"""Disclosure: the rules of a site on what leaves it.

One object holds all rules. Each answer passes through `Disclosure.apply` before it leaves, in every
engine; names of texts and labels through `Disclosure.passes`; and `Disclosure.stated` is what the
site reports of its limits. No task can lift a rule.

If rows are grouped, limits count the rows in the groups: the number in the same number of the
smallest groups. Groups of p rows already satisfy limits up to p, which are then left out.

If persons have several rows, limits count persons. A line has the number of its rows, but not their
owners. Counts of distinct persons do not add up over chunks or sites' parts, but there is a bound:
r rows belong to at least as many persons as it takes those with the most rows to have r.

If the site has a privacy budget, Gaussian noise is added to its answers.

C. Dwork, K. Kenthapadi, F. McSherry, I. Mironov, M. Naor, Our data, ourselves: privacy via
distributed noise generation, EUROCRYPT 2006 (the Gaussian mechanism); C. Canonne, G. Kamath, T.
Steinke, The discrete Gaussian for differential privacy, NeurIPS 2020 (on whole numbers: the noise
has no rounded digits that could reveal the exact value).

An answer is the vector (sums / s, weights / w), where s and w are such that one record changes the
vector by at most 1 / noise: its noise has the standard deviation 1. OpenDP draws the noise from the
randomness of the operating system, without a seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import (
    Data,
    Filter,
    Floats,
    Grouped,
    Limit,
    Sensitive,
    Sensitivity,
    Summary,
    Task,
)
from fedcluster.errors import InputError
from fedcluster.options.refusals import refused
from fedcluster.privacy.limits import Groups, MinClusterSize, MinRows

LARGEST_WHOLE = 1 << 62
"""Largest whole number on that grid, so that OpenDP's sums of two stay within 64 bits."""


def check_noise(task: Task, *, least_noise: float = 1e-3, most_noise: float = 1e9) -> None:
    """Check that the answer to a task can have noise, without reading any row.

    ``least_noise``: smallest. ``most_noise``: largest noise multiplier that is drawn.

    Raises
    ------
    InputError
        If not; the message says what is missing.
    """
    step, how, name = task.step, task.preprocessor, type(task.step).__name__
    if task.noise is None or not least_noise <= task.noise <= most_noise:
        raise InputError(f"noise must be {least_noise:g} to {most_noise:g}, not {task.noise}")
    if not isinstance(step, Sensitive) or not (step.client_additive and step.server_additive):
        raise InputError(f"{name} cannot be asked with noise: its answers have no sensitivity")
    if how is None or not how.box:
        raise InputError(f"{name} with noise needs rows in public bounds: give bounds")
    if task.resampled is not None:
        raise InputError(f"{name} with noise cannot be asked of rows that are drawn anew")
    try:
        lines, _ = step.answer_shape(task.state, how.n_columns_out)
    except Exception as error:  # the state lacks something that the step needs
        raise InputError(f"{name} cannot be asked about this state") from error
    if lines is None:
        raise InputError(f"{name} cannot be asked with noise: its lines depend on the rows")


def scales(sensitivity: Sensitivity, noise: float) -> tuple[float, float]:
    """Return the standard deviations of the noise on each sum and on each weight.

    They are those of one joint answer, in which the weights take ``share`` of the cost 1 / noise^2.

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
    """Return an answer with the noise that a task requests.

    Parameters
    ----------
    summary : Summary
        The exact answer.
    task : Task
        The task, with a noise multiplier; see `check_noise`.
    shares : int, default=1
        Number of sites whose answers a secure sum adds: each adds noise with 1 / shares of the
        variance, so that the sum has all of it. Against t colluding sites, the effective noise
        multiplier is smaller by the factor sqrt((shares - t) / shares).

    Returns
    -------
    Summary
        All lines, with noise; weights may be negative.
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
    """Return numbers (n,) on a grid, with discrete Gaussian noise of a standard deviation.

    The grid step is a power of two, about 2^-20 of the sensitivity. Rounding n numbers to it may
    raise the sensitivity by sqrt(n) steps; the noise is raised accordingly.
    """
    if not scale:  # sensitivity 0: no number depends on a row
        return np.zeros_like(exact)
    # Bits of a sensitivity on the grid of whole numbers, so that noise is far coarser than the
    # grid.
    step = 2.0 ** (math.floor(math.log2(sensitivity)) - 20)
    raised = 1 + step * math.sqrt(len(exact)) / sensitivity
    on_grid = np.nan_to_num(
        np.rint(exact / step), nan=0.0, posinf=LARGEST_WHOLE, neginf=-LARGEST_WHOLE
    )
    whole = np.clip(on_grid, -LARGEST_WHOLE, LARGEST_WHOLE).astype(np.int64)
    drawn = np.array(_mechanism(scale * raised / step)(whole.tolist()), dtype=np.int64)
    noisy: Floats = drawn.astype(np.float64) * step
    return noisy


def _mechanism(scale: float) -> Any:
    """Return OpenDP's Gaussian mechanism on vectors of whole numbers."""
    try:
        from opendp import domains, measurements, metrics, mod  # optional extra, and slow to import
    except ImportError as error:
        raise InputError('noise needs more packages: pip install "fedcluster[privacy]"') from error
    mod.enable_features("contrib")
    domain = domains.vector_domain(domains.atom_domain(T="i64"))
    return measurements.make_gaussian(domain, metrics.l2_distance(T=float), scale=scale)


if TYPE_CHECKING:
    from fedcluster.privacy.budget import Budget


class SizeLimits(NamedTuple):
    """Smallest numbers of rows of a site, and in a line, that limits permit."""

    rows: int
    line: int


@dataclass(frozen=True)
class Disclosure:
    """Rules of a site on what leaves it, applied to each answer and reported as its limits.

    Parameters
    ----------
    filters : tuple of Filter
        The limits of the owner, applied in this order to every exact answer.
    groups : Groups, optional
        If given, steps see only the means of groups, and limits count the rows in the groups.
    budget : Budget, optional
        The privacy budget. With one, only answers with noise leave.
    colluders : int, optional
        The number of sites that may collude with the coordinator, if sites share the noise.
    rows_per_person : int, optional
        The largest number of rows of a person, the first ones, that answers with noise use.

    Examples
    --------
    >>> rules = Disclosure.of([MinRows(2), MinClusterSize(9)], Groups(p=5))
    >>> [str(limit) for limit in rules.stated]
    ['Groups(p=5, min_rows=20)', 'MinClusterSize(p=9)']
    >>> rules.passes(np.array([8.0, 9.0]), n_rows=40)
    array([False,  True])
    """

    filters: tuple[Filter, ...] = ()
    groups: Groups | None = None
    budget: Budget | None = None
    colluders: int | None = None
    rows_per_person: int | None = None

    @classmethod
    def of(cls, rules: SiteRules, groups: Groups | None = None) -> Disclosure:
        """Return the rules with these limits and groups, one object for sites with equal rules."""
        if isinstance(rules, Disclosure):
            return rules if groups is None else replace(rules, groups=groups)
        filters = tuple(rules)
        try:
            return _shared(filters, groups)
        except TypeError:  # a user's own step may not be hashable
            return cls(filters, groups)

    @cached_property
    def in_force(self) -> tuple[Filter, ...]:
        """Filters that hold back more than the groups do, whatever is asked."""
        p = 0 if self.groups is None else self.groups.p
        return tuple(rule for rule in self.filters if _least(rule) > p)

    @cached_property
    def stated(self) -> tuple[Limit, ...]:
        """Limits that the site reports; they depend on no row."""
        stated = [Limit.from_filter(rule) for rule in self.in_force]
        if self.groups is not None:
            stated.insert(0, self.groups.limit)
        if self.budget is not None:
            more = {} if self.colluders is None else {"colluders": self.colluders}
            stated.append(Limit("PrivacyBudget", tuple((asdict(self.budget) | more).items())))
        return tuple(stated)

    @cached_property
    def sizes(self) -> SizeLimits | None:
        """Limits as numbers of rows; None if there are other rules."""
        is_more = self.groups is not None or self.budget is not None
        if is_more or not {type(rule) for rule in self.filters} <= {MinRows, MinClusterSize}:
            return None
        rows = max((rule.n for rule in self.filters if isinstance(rule, MinRows)), default=0)
        line = max((rule.p for rule in self.filters if isinstance(rule, MinClusterSize)), default=0)
        return SizeLimits(rows, line)

    @cached_property
    def least(self) -> float:
        """Number of rows behind each number that leaves; 0 if only groups, or nothing, hide rows.

        With groups, all is a function of sums over groups.
        """
        if self.groups is not None:
            return 0.0
        least = max((_least(each) for each in self.filters if type(each) is not MinRows), default=0)
        return least if least > 1 else 0.0  # one row behind a number hides none

    def check(self, task: Task) -> None:
        """Check that the answer to a task may leave at all, without reading any row.

        Raises
        ------
        InputError
            If there is a privacy budget but the answer would be exact, or cannot have noise.
        """
        if task.noise is not None:
            check_noise(task)
            if self.groups is not None:
                raise refused("noise-groups")
        elif self.budget is not None:
            raise refused("budget-exact")

    def apply(
        self, task: Task, answer: Summary, n_rows: int, persons: PersonCounts | None = None
    ) -> Summary:
        """Return the part of the exact answer to a task that leaves.

        With noise, limits are not applied, because they decide by exact counts and would disclose
        these.

        Parameters
        ----------
        task : Task
            A task that has passed `check`.
        answer : Summary
            The answer, with the number of rows in each line; see `behind_groups`.
        n_rows : int
            The number of rows that it is about.
        persons : PersonCounts, optional
            The persons of the rows, if persons are counted.
        """
        self.check(task)
        if task.noise is not None:
            return with_noise(answer, task, task.shares)
        return self._filtered(answer, n_rows, persons)

    def passes(
        self, counts: Floats, n_rows: int, persons: PersonCounts | None = None
    ) -> NDArray[np.bool_]:
        """Return which texts or labels, given the number of rows of each, may be disclosed."""
        if self.budget is not None:
            return np.zeros(len(counts), dtype=bool)
        lines = Summary(np.zeros((len(counts), 0)), counts)
        passes: NDArray[np.bool_] = self._filtered(lines, n_rows, persons).weights > 0
        return passes

    def _filtered(self, answer: Summary, n_rows: int, persons: PersonCounts | None) -> Summary:
        """Return the part that the limits permit; they count persons if these are known."""
        if persons is not None:
            answer = replace(answer, support=persons.min_groups(answer.rows))
            n_rows = int(persons.min_groups(np.array([float(n_rows)]))[0])
        for hold_back in self.in_force:
            answer = hold_back(answer, n_rows)
        return answer


SiteRules = Sequence[Filter] | Disclosure
"""The limits of a site, or all its rules."""

USUAL: SiteRules = (MinRows(2),)
"""Limits of a site that sets none."""


@lru_cache(maxsize=64)
def _shared(filters: tuple[Filter, ...], groups: Groups | None) -> Disclosure:
    return Disclosure(filters, groups)


def _least(rule: Filter) -> float:
    """Return the number of rows that a limit requires; infinite for other filters."""
    if type(rule) is MinRows:  # exactly this class: a subclass may hold back more
        return rule.n
    return rule.p if type(rule) is MinClusterSize else np.inf


@dataclass(frozen=True, slots=True, eq=False)
class PersonCounts:
    """Persons of one site, sorted by their number of rows.

    Parameters
    ----------
    most : ndarray of shape (p + 1,), float64
        The largest number of rows that 0, 1, ..., p persons have together.

    Examples
    --------
    >>> counter = PersonCounter()
    >>> counter.add(np.array([7, 7, 7, 7, 8]))
    >>> counter.add(np.array([9, 9]))
    >>> persons = counter.persons()
    >>> len(persons)
    3
    >>> persons.min_groups(np.array([0.0, 4.0, 5.0, 7.0]))
    array([0., 1., 2., 3.])
    """

    most: Floats
    rounding = 1e-6  # tolerance for sums of memberships just above a whole number

    def __len__(self) -> int:
        return len(self.most) - 1

    def min_groups(self, rows: Floats) -> Floats:
        """Return the fewest persons who can have these numbers of rows, (k,), at most the rows.

        The numbers of rows may be sums of memberships, which need not be whole.
        """
        fewest = np.interp(rows, self.most, np.arange(len(self.most)))
        return np.minimum(np.ceil(fewest - self.rounding), rows)

    def rows_of(self, persons: int) -> float:
        """Return the fewest rows of this number of persons; infinite if there are fewer persons."""
        return float(self.most[persons - 1]) + 1 if persons <= len(self) else np.inf


class PersonCounter:
    """Counter of the rows of each person, over several parts."""

    many = 32  # number of parts whose counts are kept separately before they are merged

    def __init__(self) -> None:
        self._counted = [(np.zeros(0, np.int64), np.zeros(0))]

    def add(self, groups: NDArray[np.int64]) -> None:
        """Count the rows of a part, given the person of each row (n,)."""
        names, times = np.unique(groups, return_counts=True)
        self._counted.append((names, times.astype(np.float64)))
        if len(self._counted) > self.many:
            self._counted = [self._together()]

    def persons(self) -> PersonCounts:
        """Return the persons of all parts."""
        _, rows = self._together()
        return PersonCounts(np.concatenate([[0.0], np.cumsum(np.sort(rows)[::-1])]))

    def _together(self) -> tuple[NDArray[np.int64], Floats]:
        """Return the distinct persons, with their numbers of rows."""
        names, times = (np.concatenate(each) for each in zip(*self._counted, strict=True))
        once, place = np.unique(names, return_inverse=True)
        return once, np.bincount(place, times, len(once)).astype(np.float64)


def behind_groups(summary: Summary, data: Data, grouped: Grouped) -> Summary:
    """Return an answer about groups with the smallest possible number of rows in each line.

    Parameters
    ----------
    summary : Summary
        The answer, whose support is the number of groups in each line; a group may count by a
        share. Without a support, the smallest number of groups that can have the weight is used.
        For groups of persons, persons are counted.
    data : Data
        The groups that the question was about.
    grouped : Grouped
        The rows, or persons, in these groups.

    Examples
    --------
    >>> groups = Grouped(np.array([5.0, 9.0, 6.0]))
    >>> data = Data(np.zeros((3, 1)), groups.counts, grouped=groups)
    >>> lines = Summary(np.zeros((3, 0)), np.array([9.0, 11.0, 20.0]), np.array([1.0, 2.0, 3.0]))
    >>> behind_groups(lines, data, groups).support
    array([ 5., 11., 20.])
    """
    numbers = np.arange(len(data) + 1)
    n_groups = summary.support
    if n_groups is None:
        weights = np.zeros(len(data)) if data.sample_weight is None else data.sample_weight
        heaviest = np.append(0.0, np.cumsum(np.sort(weights)[::-1]))
        n_groups = np.interp(summary.weights, heaviest, numbers)
    if "smallest first" not in data.cache:
        data.cache["smallest first"] = grouped.smallest_first
    whole = np.rint(n_groups)
    n_groups = np.where(np.abs(n_groups - whole) < PersonCounts.rounding, whole, n_groups)
    return replace(summary, support=np.interp(n_groups, numbers, data.cache["smallest first"]))
