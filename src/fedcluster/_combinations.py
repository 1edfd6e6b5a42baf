"""Checks that the options of a job go together, with each other and with the sites.

A job is checked before a site is asked anything. The lines and reasons stand in
`fedcluster._refusals`; here stands when each of them applies, in the order in which they are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Number
from typing import Any

import numpy as np

from fedcluster._choices import ALGORITHMS, FUZZY_ALGORITHMS, FUZZY_RULES
from fedcluster._refusals import refused
from fedcluster._specifications import FitSpec, distinct_limits
from fedcluster.algorithms import FKM, KFed, Lloyd, SiteSummaries
from fedcluster.core import Algorithm, SiteInfo, Step

Conditions = Mapping[str, Callable[[Any], object]]
"""When a combination is refused, by its key in the table; a text is the option that is meant."""

NAMED = ("auto", "sums")
"""Names of starts that are found from sums alone, or may be."""


def _chooses(fit: FitSpec) -> bool:
    return not isinstance(fit.n_clusters, Integral)


def _other_algorithm(fit: FitSpec) -> bool:
    return fit.algorithm not in ("auto", "lloyd")


def _other_name(fit: FitSpec) -> bool:
    """Return whether a name leads to another algorithm than exact k-means; of one's own, none."""
    return isinstance(fit.algorithm, str) and "." not in fit.algorithm and _other_algorithm(fit)


def _fuzzy(fit: FitSpec) -> bool:
    return fit.m is not None


def _mixture(fit: FitSpec) -> bool:
    return fit.model == "mixture"


def _cosine(fit: FitSpec) -> bool:
    return fit.metric == "cosine"


def _ignores(fit: FitSpec) -> bool:
    return fit.prepare is not None and fit.prepare.missing == "ignore"


def _searches(fit: FitSpec) -> bool:
    return fit.quality != "good"


def _samples(fit: FitSpec) -> bool:
    return fit.participation < 1


def _replicates(fit: FitSpec) -> bool:
    return bool(fit.stability)


def _centres_given(fit: FitSpec) -> str:
    """Return by which option the start is given as centres; "" if it is not."""
    means = "means_init" if fit.start is not None else ""
    return "init" if isinstance(fit.init, np.ndarray) else means


def _told_apart(fit: FitSpec) -> bool:
    """Return whether the start is asked for in another way than by sums."""
    return not isinstance(fit.init, np.ndarray) and fit.init not in NAMED


def _started(fit: FitSpec) -> bool:
    """Return whether the start is found in another way than where nothing is said of it."""
    return (
        bool(_centres_given(fit))
        or fit.sums_only
        or not isinstance(fit.init, str)
        or fit.init != "auto"
    )


def _first_set(*names: str) -> Callable[[FitSpec], str]:
    """Return a condition: the first of these options that has another value than its default."""

    def first(fit: FitSpec) -> str:
        defaults = {each.name: each.default for each in fields(fit)}
        some = (name for name in names if name in defaults)
        return next((n for n in some if not _is(getattr(fit, n), defaults[n])), "")

    return first


def _is(value: Any, default: Any) -> bool:
    """Return whether an option has its default value; arrays are none."""
    return value is default or (isinstance(value, str | Number | np.generic) and value == default)


def _with_fuzzy_name(fit: FitSpec) -> bool:
    return not _fuzzy(fit) and _is_name(fit) and fit.algorithm not in ALGORITHMS


def _with_hard_name(fit: FitSpec) -> bool:
    return _fuzzy(fit) and _is_name(fit) and fit.algorithm not in FUZZY_ALGORITHMS


def _is_name(fit: FitSpec) -> bool:
    return isinstance(fit.algorithm, str) and "." not in fit.algorithm


def _unused_rule(fit: Any) -> bool:
    """Return whether a rule is given, and nothing is to be chosen."""
    rule = getattr(fit, "rule", None)
    if rule is None or _chooses(fit):
        return False
    return (rule.name, rule.pick) != ("likelihood", "best") or rule.bounds is not None


def _flat(fit: Any) -> bool:
    """Return whether the bend of a curve is asked for where there is none."""
    rule = getattr(fit, "rule", None)
    return rule is not None and rule.pick == "elbow" and rule.name in ("likelihood", "vote")


def _judges_fuzzy(fit: Any) -> str:
    """Return the rule, if it judges fuzzy clusters and the clusters are hard."""
    rule = getattr(fit, "rule", None)
    if rule is None or not _chooses(fit) or _fuzzy(fit):
        return ""
    return str(rule.name) if rule.name in FUZZY_RULES else ""


def _bounded_and_prepared(fit: Any) -> bool:
    rule = getattr(fit, "rule", None)
    return rule is not None and rule.bounds is not None and fit.prepare is not None


OF_TRIM: Conditions = {
    "choice-trim": _chooses,
    "trim-algorithm": _other_algorithm,
    "trim-fuzzy": _fuzzy,
    "trim-quality": _searches,
    "trim-participation": _samples,
    "trim-mixture": _mixture,
    "trim-cosine": _cosine,
    "trim-missing": _ignores,
}
OF_ROBUST: Conditions = {
    "robust-algorithm": _other_algorithm,
    "robust-fuzzy": _fuzzy,
    "robust-mixture": _mixture,
    "robust-cosine": _cosine,
    "robust-missing": _ignores,
    "robust-pca": lambda fit: fit.prepare is not None and fit.prepare.pca is not None,
    "robust-trim": lambda fit: fit.trim > 0,
    "robust-quality": _searches,
    "robust-sums": lambda fit: fit.sums_only or (isinstance(fit.init, str) and fit.init == "sums"),
    "robust-participation": _samples,
    "robust-profile": lambda fit: fit.profile,
    "robust-stability": _replicates,
    "choice-robust": _chooses,
}
OF_EPSILON: Conditions = {
    "choice-epsilon": _chooses,
    "epsilon-algorithm": lambda fit: fit.algorithm != "auto",
    "epsilon-init": lambda fit: not isinstance(fit.init, str) or fit.init != "auto",
    "epsilon-starts": lambda fit: fit.n_init is not None,
    "epsilon-fuzzy": _fuzzy,
    "epsilon-mixture": _mixture,
    "epsilon-quality": _searches,
    "epsilon-metric": _cosine,
    "epsilon-prepare": lambda fit: fit.prepare is not None,
    "epsilon-participation": _samples,
    "epsilon-trim": lambda fit: fit.trim > 0,
    "epsilon-robust": lambda fit: fit.robust > 0,
    "epsilon-profile": lambda fit: fit.profile,
    "epsilon-stability": _replicates,
    "epsilon-rounds": _first_set("tol", "max_iter"),
    "epsilon-bounds": lambda fit: fit.bounds is None,
}
OF_MIXTURE: Conditions = {
    "mixture-algorithm": _other_name,
    "mixture-fuzzy": _fuzzy,
    "mixture-cosine": _cosine,
    "mixture-missing": _ignores,
    "mixture-participation": _samples,
    "mixture-quality": _searches,
    "stability-mixture": _replicates,
}
OF_COSINE: Conditions = {
    "cosine-missing": _ignores,
    "cosine-algorithm": _other_name,
    "cosine-fuzzy": _fuzzy,
}
OF_IGNORED: Conditions = {"missing-algorithm": _other_name, "missing-fuzzy": _fuzzy}

OF_FIT: Conditions = {
    "choice-start": lambda fit: _chooses(fit) and _centres_given(fit),
    "choice-quality": lambda fit: _chooses(fit) and fit.quality == "better",
    "choice-rule": _unused_rule,
    "choice-elbow": _flat,
    "choice-fuzzy": _judges_fuzzy,
    "choice-bounds": _bounded_and_prepared,
    "algorithm-fuzzy": _with_hard_name,
    "algorithm-hard": _with_fuzzy_name,
    "algorithm-tol": lambda fit: fit.algorithm in ("kfed", "fedavg") and _first_set("tol")(fit),
    "start-starts": lambda fit: _centres_given(fit) and (fit.n_init or 1) > 1,
    "sums-init": lambda fit: fit.sums_only and _told_apart(fit),
    "quality-start": lambda fit: fit.quality == "better" and _started(fit),
    "quality-participation": lambda fit: fit.quality == "best" and _samples(fit),
}
OF_EXACT: Conditions = {"epsilon-alone": _first_set("delta", "group_size", "bounds")}
OF_CLUSTERS: Conditions = {
    "mixture-alone": _first_set("covariance_type", "reg_covar", "noise", "start")
}

UNFIT_FOR_NOISE = ("noise-weights", "noise-persons")
"""Why rows cannot be asked with noise, as sites tell it."""

OF_CHUNKS: Conditions = {
    "stability-chunks": _replicates,
    "quality-start": lambda fit: fit.quality == "better",
}
OF_SECURE: Conditions = {
    "robust-secure": lambda fit: fit.robust > 0,
    "secure-participation": _samples,
    "secure-init": _told_apart,
    "quality-start": lambda fit: fit.quality == "better",
}


def check(fit: FitSpec, sites: Iterable[SiteInfo] = ()) -> None:
    """Refuse options of a fit that do not go together, or not with the sites.

    Parameters
    ----------
    fit : FitSpec
        The options; of a choice of k, those of its clusterings.
    sites : iterable of SiteInfo
        What the sites tell of themselves, where they are known.

    Raises
    ------
    RefusedError
        With the line of the first combination of the table that applies.
    """
    private = getattr(fit, "epsilon", None) is not None
    asked = (
        (private, OF_EPSILON),
        (not private, OF_EXACT),
        (fit.trim, OF_TRIM),
        (fit.robust, OF_ROBUST),
        (_mixture(fit), OF_MIXTURE),
        (not _mixture(fit), OF_CLUSTERS),
        (_cosine(fit), OF_COSINE),
        (_ignores(fit), OF_IGNORED),
        (True, OF_FIT),
    )
    for is_asked, conditions in asked:
        if is_asked:
            _refuse(conditions, fit)
    _check_sites(fit, tuple(sites))


def check_algorithm(fit: FitSpec) -> None:
    """Refuse options of which no algorithm does all.

    Raises
    ------
    RefusedError
        With the line of the combination.
    """
    by_name = {key: OF_FIT[key] for key in ("algorithm-fuzzy", "algorithm-hard")}
    for is_asked, conditions in (
        (fit.trim, OF_TRIM),
        (_mixture(fit), OF_MIXTURE),
        (_cosine(fit), OF_COSINE),
        (_ignores(fit), OF_IGNORED),
        (True, by_name),
    ):
        if is_asked:
            _refuse(conditions, fit)


def check_steps(
    fit: FitSpec, algorithm: Algorithm, start: Step | None, sites: Iterable[SiteInfo]
) -> None:
    """Refuse options that do not go with what the sites will be asked.

    Parameters
    ----------
    fit : FitSpec
        The options.
    algorithm : Algorithm
        What clusters the rows.
    start : Step or None
        What the sites are asked for a start by; None where none is asked for.
    sites : iterable of SiteInfo
        What the sites tell of themselves.

    Raises
    ------
    RefusedError
        With the line of the combination.
    """
    step, sites = type(algorithm).__name__, tuple(sites)
    if not algorithm.needs_centers:
        _check_own_start(fit, algorithm, step)
    if fit.quality == "best" and not isinstance(algorithm, Lloyd):
        raise refused("quality-best", step=step)
    if fit.sums_only and not algorithm.server_additive:
        raise refused("sums-algorithm", step=step)
    check_totals([algorithm, *([] if start is None else [start])], sites)
    if fit.robust and sites and start is not None and not isinstance(start, SiteSummaries):
        raise refused("robust-start", robust=fit.robust, step=type(start).__name__)


def check_weights(fit: Any, texts: Iterable[str]) -> None:
    """Refuse weights of columns of text, where a mixture is fitted to the rows.

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
    if fit.prepare is not None and fit.prepare.pca is None and _mixture(fit):
        for column in sorted(texts):
            if fit.prepare.weights.get(column, 1.0) != 1.0:
                raise refused("mixture-weight", column=column)


def check_totals(steps: Iterable[Step], sites: Iterable[SiteInfo]) -> None:
    """Refuse steps that need each site's own answer, where sites tell totals.

    Raises
    ------
    RefusedError
        With the line of the combination.
    """
    sites = tuple(sites)
    if own := [type(step).__name__ for step in steps if not step.server_additive]:
        if any(site.secure for site in sites):
            raise refused("secure-steps", step=own[0])
        if _telling(sites, "Relay"):
            raise refused("relay-steps", step=own[0])


def check_sites(job: Any, sites: Iterable[SiteInfo]) -> None:
    """Refuse a job of any kind that the sites would refuse, by what they tell.

    Raises
    ------
    RefusedError
        With the line of the combination.
    """
    sites = tuple(sites)
    if getattr(job, "epsilon", None) is None:
        if _telling(sites, "PrivacyBudget"):
            raise refused("budget-exact")
    elif unfit := [site.refuses for site in sites if site.refuses in UNFIT_FOR_NOISE]:
        raise refused(unfit[0])
    elif _telling(sites, "Groups"):
        raise refused("noise-groups")
    elif _telling(sites, "Relay"):
        raise refused("noise-relay")
    if any(site.secure for site in sites) and job.participation < 1:
        raise refused("secure-participation")


def _telling(sites: Iterable[SiteInfo], name: str) -> bool:
    """Return whether a site tells of a limit of this name."""
    return any(limit.name == name for limits in distinct_limits(sites) for limit in limits)


def _check_own_start(fit: FitSpec, algorithm: Algorithm, step: str) -> None:
    """Refuse options of a start, of an algorithm that takes none; FKM seeds its sites by name."""
    seeds = isinstance(algorithm, FKM)
    named = not isinstance(fit.init, np.ndarray) or isinstance(algorithm, KFed)
    seeding = ("auto", "k-means++", "random") if seeds else ("auto",)
    if named and not (seeds and callable(fit.init)) and not _is_one_of(fit.init, seeding):
        raise refused("algorithm-start", step=step, option="init")
    if fit.n_init is not None and not seeds:
        raise refused("algorithm-start", step=step, option="n_init")
    if fit.quality != "good":
        raise refused("algorithm-quality", step=step)


def _is_one_of(init: Any, names: Sequence[str]) -> bool:
    return isinstance(init, str) and init in names


def _check_sites(fit: FitSpec, sites: tuple[SiteInfo, ...]) -> None:
    """Refuse options that do not go with the sites."""
    if any(site.secure for site in sites):
        _refuse(OF_SECURE, fit)
    if chunked := [site.name for site in sites if site.streams]:
        _refuse(OF_CHUNKS, fit, site=chunked[0])
    least = 2 * fit.robust + 1
    if fit.robust and sites and len(sites) < least:
        raise refused("robust-sites", robust=fit.robust, least=least, n_sites=len(sites))


def _refuse(conditions: Conditions, fit: FitSpec, **values: Any) -> None:
    """Refuse the first combination whose condition holds."""
    for key, holds in conditions.items():
        if found := holds(fit):
            given = {each.name: getattr(fit, each.name) for each in fields(fit)}
            option = {"option": found} if isinstance(found, str) else {}
            raise refused(key, **given | option | values)
