"""Checks that the options of a job are compatible with each other and with the sites.

A job is checked before any site is asked. The table of `fedcluster.options.refusals` lists the
combinations of conditions that are refused. This module defines the conditions, and the checks that
need more than the options.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from math import floor, log10
from numbers import Integral
from typing import Any

import numpy as np

from fedcluster import privacy
from fedcluster.algorithms import FKM, SiteSummaries
from fedcluster.core import Algorithm, SiteInfo, Step
from fedcluster.options.choices import is_step
from fedcluster.options.refusals import refused, table
from fedcluster.privacy.limits import must_round
from fedcluster.recipes.specifications import Fit, distinct_limits

Sites = Sequence[SiteInfo]
Condition = Callable[[Any, Sites], object]
"""Function that returns whether a condition holds for options and sites. If it returns a text,
this is the option concerned; if it returns a mapping, this fills further values into the
message."""


def _chooses(fit: Fit, _sites: Sites) -> bool:
    return not isinstance(fit.n_clusters, Integral)


def _is_private(job: Any, _sites: Sites) -> bool:
    return getattr(job, "epsilon", None) is not None


def _init_is(*names: str) -> Condition:
    """Return a condition: the start is requested by one of these names."""
    return lambda fit, _: isinstance(fit.init, str) and fit.init in names


def _centers_given(fit: Fit, _sites: Sites) -> str:
    """Return the option by which the start is given as centres; "" if it is not."""
    means = "means_init" if fit.start is not None else ""
    return "init" if isinstance(fit.init, np.ndarray) else means


def _of_rule(holds: Callable[[Any], object]) -> Condition:
    """Return a condition on the rule of a fit, if it has one."""

    def condition(fit: Any, _sites: Sites) -> object:
        rule = getattr(fit, "rule", None)
        return rule is not None and holds(rule)

    return condition


def _few_sites(fit: Fit, sites: Sites) -> Mapping[str, int]:
    """Return the numbers of sites needed and present, if too few for the possible liars."""
    least = 2 * fit.robust + 1
    values = {"robust": fit.robust, "least": least, "n_sites": len(sites)}
    return values if 0 < len(sites) < least else {}


def _overspent(job: Any, sites: Sites) -> Mapping[str, Any]:
    """Return the site whose own budget would end before the job, and what is left, if one would.

    A job that is broken off so has spent what nobody gains anything from.
    """
    left = [(site.left, site.name) for site in sites if site.left >= 0]
    if not left or not _is_private(job, sites):
        return {}
    (least, name), budget = min(left), privacy.Budget(job.epsilon, job.delta, job.group_size)
    if budget.rho <= least * (1 + budget.tolerance):
        return {}
    most = budget.spent(least)
    place = 10.0 ** (floor(log10(most)) - 2) if most else 1.0
    return {"site": name, "left": f"{floor(most / place) * place:.3g}"}


def _more_than_sums(job: Any, sites: Sites) -> Mapping[str, str]:
    """Return what needs more of the sites than sums over all, if no more is told."""
    secure, fit = any(site.secure for site in sites), isinstance(job, Fit)
    init = job.init if fit and (secure or job.sums_only) else "auto"
    needs = {
        "participation": secure and job.participation < 1,
        f"robust={getattr(job, 'robust', 0)}": secure and fit and job.robust > 0,
        f"init={init!r}": not isinstance(init, np.ndarray) and init not in ("auto", "sums"),
    }
    return next(({"what": what} for what, needed in needs.items() if needed), {})


def _unadjusted(job: Any, sites: Sites) -> Mapping[str, str]:
    """Return what of a fit or its sites does not go with offsets of sites, if it asks for any."""
    prepare = getattr(job, "prepare", None)
    if prepare is None or prepare.adjust == "none":
        return {}
    robust, own = getattr(job, "robust", 0), "sums_only" if job.sums_only else ""
    what = f"robust={robust}" if robust else own or without_offsets(sites)
    return {"what": what} if what else {}


def without_offsets(sites: Sites) -> str:
    """Return what keeps sites from finding offsets; "" if nothing does."""
    streamed = next((site.name for site in sites if site.streams), None)
    needs = {
        f"the rows of {streamed!r}, which come in chunks": streamed is not None,
        "a Dask collection, whose partitions are no sites": any(s.is_partition for s in sites),
        "secure sums": any(site.secure for site in sites),
        "the rounded numbers that a site requires": must_round(sites),
    }
    return next((what for what, needed in needs.items() if needed), "")


def _untested(job: Any, sites: Sites) -> Mapping[str, str]:
    """Return what of a comparison by outcomes or its sites does not allow tests, if it is one."""
    if not hasattr(job, "outcomes"):
        return {}
    needs = {
        'preset = "strict" of a site': must_round(sites),
        f"time={job.time!r} of rows in groups": job.time and _tell("Groups")(job, sites),
    }
    return next(({"what": what} for what, needed in needs.items() if needed), {})


def _tell(name: str) -> Condition:
    """Return a condition: a site has a limit of this name."""
    return lambda _, sites: any(
        limit.name == name for limits in distinct_limits(sites) for limit in limits
    )


def _tell_why(key: str) -> Condition:
    """Return a condition: a site refuses noise for this reason."""
    return lambda _, sites: any(site.refuses == key for site in sites)


OF_SITES: Mapping[str, Condition] = {
    "epsilon": _is_private,
    "exact": lambda job, _: not _is_private(job, _),
    "untested": _untested,
    "budget": _tell("PrivacyBudget"),
    "groups": _tell("Groups"),
    "weights": _tell_why("noise-weights"),
    "persons": _tell_why("noise-persons"),
    "unbudgeted": _tell_why("noise-unbudgeted"),
    "overspent": _overspent,
    "more": _more_than_sums,
}
"""Conditions on the sites and on jobs of all kinds."""

CONDITIONS: Mapping[str, Condition] = {
    **OF_SITES,
    "few_sites": _few_sites,
    "chunks": lambda _, sites: next(({"site": s.name} for s in sites if s.streams), {}),
    "choice": _chooses,
    "prepare": lambda fit, _: fit.prepare is not None,
    "start": _centers_given,
    "n_starts": lambda fit, _: (fit.n_init or 1) > 1,
    "no_bounds": lambda fit, _: fit.bounds is None,
    "elbow": _of_rule(lambda rule: rule.pick == "elbow"),
    "no_curve": _of_rule(lambda rule: rule.name in ("likelihood", "vote")),
    "reference_bounds": _of_rule(lambda rule: rule.bounds is not None),
    "stability": lambda fit, _: fit.stability,
    "unadjusted": _unadjusted,
}
"""All conditions, by their names in the table (``when``)."""


def check(
    job: Any, sites: Iterable[SiteInfo] = (), conditions: Collection[str] = CONDITIONS.keys()
) -> None:
    """Raise an error for options of a job that are incompatible with each other or the sites.

    Parameters
    ----------
    job : Fit, or a job of a model
        The options; for a choice of k, those of its clusterings.
    sites : iterable of SiteInfo
        The metadata of the sites, if known.
    conditions : collection of str
        The conditions to check; for a job with a model, `OF_SITES`.

    Raises
    ------
    RefusedError
        With the message of the first combination in the table that applies.
    """
    sites, known = tuple(sites), frozenset(conditions)
    for row in table().values():
        if not row.when or not known.issuperset(row.when):
            continue
        values: dict[str, Any] = {}
        for name in row.when:
            if not (found := CONDITIONS[name](job, sites)):
                break
            values |= found if isinstance(found, Mapping) else {}
            values |= {"option": found} if isinstance(found, str) else {}
        else:
            given = {each.name: getattr(job, each.name) for each in fields(job)}
            raise refused(row.key, **given | values)


def check_steps(
    fit: Fit, algorithm: Algorithm, start: Step | None, sites: Iterable[SiteInfo]
) -> None:
    """Raise an error for options that are incompatible with the steps that will be asked.

    Parameters
    ----------
    fit : Fit
        The options.
    algorithm : Algorithm
        The clustering algorithm.
    start : Step or None
        The step that finds a start; None if there is none.
    sites : iterable of SiteInfo
        The metadata of the sites.

    Raises
    ------
    RefusedError
        With the message of the combination.
    """
    step, sites = type(algorithm).__name__, tuple(sites)
    if not algorithm.needs_centers:
        _check_own_start(fit, algorithm, step)
    if fit.algorithm in ("kfed", "fedavg") and fit.tol != Fit.tol:
        raise refused("algorithm-option", step=step, option="tol")
    if fit.sums_only and not algorithm.server_additive:
        raise refused("sums-more", what=step)
    check_totals([algorithm, *([] if start is None else [start])], sites)
    if fit.robust and sites and start is not None and not isinstance(start, SiteSummaries):
        raise refused("robust-start", robust=fit.robust, step=type(start).__name__)


def check_weights(fit: Any, texts: Iterable[str]) -> None:
    """Raise an error for weights of text columns if a mixture is fitted to the rows.

    Parameters
    ----------
    fit : Fit
        The options.
    texts : iterable of str
        The columns that are categories.

    Raises
    ------
    RefusedError
        With the first of these columns that has a weight.
    """
    if fit.prepare is not None and fit.prepare.pca is None and fit.model == "mixture":
        for column in sorted(texts):
            if fit.prepare.weights.get(column, 1.0) != 1.0:
                raise refused("mixture-weight", column=column)


def check_totals(steps: Iterable[Step], sites: Iterable[SiteInfo]) -> None:
    """Raise an error for steps that need each site's own answer if sites send totals only.

    Raises
    ------
    RefusedError
        With the message of the combination.
    """
    own = [type(step).__name__ for step in steps if not step.server_additive]
    if own and any(site.secure for site in sites):
        raise refused("sums-more", what=own[0])


def _check_own_start(fit: Fit, algorithm: Algorithm, step: str) -> None:
    """Raise an error for options of a start if the algorithm takes none; FKM seeds by name."""
    seeds = isinstance(algorithm, FKM)
    named = not isinstance(fit.init, np.ndarray) or is_step(algorithm, "KFed")
    seeding = ("auto", "k-means++", "random") if seeds else ("auto",)
    if named and not (seeds and callable(fit.init)) and not _init_is(*seeding)(fit, ()):
        raise refused("algorithm-option", step=step, option="init")
    if fit.n_init is not None and not seeds:
        raise refused("algorithm-option", step=step, option="n_init")
