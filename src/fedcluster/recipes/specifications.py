"""Specifications of jobs: each parameter's name, default, help and range, declared once.

Estimators read their parameters into these by name, and both command lines derive their options
from the fields. Nothing slow is imported here, so that the command line shows its help at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from numbers import Integral, Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from fedcluster.errors import InputError
from fedcluster.options.choices import (
    ALGORITHMS,
    AVERAGINGS,
    COVARIANCES,
    FUZZY_ALGORITHMS,
    FUZZY_RULES,
    INITS,
    METRICS,
    MODELS,
    PICKS,
    RULES,
)
from fedcluster.options.refusals import refused

if TYPE_CHECKING:
    from fedcluster.core import Algorithm, Floats, Limit, SiteInfo, State
    from fedcluster.preprocessing import PreprocessingSpec

SUMS_ONLY = "Find the start from sums alone; no site describes its rows by means."
METRIC = "Distance of rows. cosine: cluster directions, of rows divided by their lengths."
SEED = "Seed of all random choices."
MOST_CLUSTERS = 12
"""The largest number of clusters that "auto" tries at first."""


def parameter(default: Any, help: str, *flags: str, **shown: Any) -> Any:
    """Declare a field of a specification that is an option on the command line.

    Parameters
    ----------
    default : object
        Its default value.
    help : str
        Its help text on the command line.
    *flags : str
        The spelling of the option, if not like the field.
    **shown : object
        ``choices``, the names that it accepts; ``least``, its smallest value; others are those of
        `typer.Option`.
    """
    return field(default=default, metadata={"help": help, "flags": flags, **shown})


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Rule by which k is chosen.

    Parameters
    ----------
    name : str, default="likelihood"
        One of `RULES`: the likelihood of mixtures, the vote of the `JUDGES`, or a single index.
    pick : {"best", "elbow"}, default="best"
        For a single index: choose its best value, or the point where its curve bends most.
    bounds : pair of ndarray of shape (d,), optional
        Public bounds of the columns, for the references of the gap statistic; by default a box
        of the rows' mean and variance.
    """

    name: str = "likelihood"
    pick: Literal["best", "elbow"] = "best"
    bounds: tuple[Floats, Floats] | None = None

    def check(self, d: int) -> None:
        """Raise an error if the bounds do not have d columns.

        Raises
        ------
        InputError
            With both numbers.

        Examples
        --------
        >>> import numpy as np
        >>> Rule("gap", bounds=(np.zeros(3), np.ones(3))).check(2)
        Traceback (most recent call last):
            ...
        fedcluster.errors.InputError: the bounds are 3 pairs, but there are 2 columns to
        cluster by; give one pair for all, or one for each column
        """
        for side in self.bounds or ():
            if side.size not in (1, d):
                raise InputError(
                    f"the bounds are {side.size} pairs, but there are {d} columns to cluster by; "
                    "give one pair for all, or one for each column"
                )


Spelled = Callable[[str, Any], str]
"""Function that returns how a user writes a parameter with a value; "" if nobody wrote it."""


def absent(value: Any) -> Any:
    """Declare a field that a kind of fit does not have: nobody can give it another value."""
    return field(default=value, init=False, repr=False)


@dataclass(frozen=True, eq=False)
class Fit:
    """Job that finds clusters; each kind has the parameters that mean something for it.

    `fit_of` makes it from a user's parameters. The sites' limits are not among them, as each site
    sets its own.

    Parameters
    ----------
    n_clusters : int, "auto" or sequence of int
        k, or the numbers to choose from.
    sums_only : bool
        Whether the start is found from sums alone.
    seed : int
        Determines every random choice.
    means : State, optional
        Weighted means of the rows to start from, if the server has some already.
    also : ndarray of shape (k, d), optional
        Centres, of prepared rows, that are one more start of a search.
    init_columns : tuple of str
        The names of the columns of ``init``, if it is in their units and not of prepared rows.
    grouped : bool
        Whether sites use their rows in groups, the means of which may be sent one by one.
    site_rows : tuple of float
        The number of rows of each site, as far as reported.
    smallest : int
        The smallest group of rows, as sites use them, that all sites' limits permit.
    """

    kind: ClassVar[str] = "fit"
    title: ClassVar[str]
    """What such a fit is called."""
    asked: ClassVar[tuple[str, Any]] = ("", None)
    """The parameter by which a user asks for this kind, and its value, if only one means it."""
    names: ClassVar[Collection[str]] = ("auto", "lloyd")
    """The algorithms that it has by name."""
    takes: ClassVar[frozenset[str]] = frozenset({"own", "pca", "choice"})
    """What it takes beside its fields: an algorithm of one's own, rows with gaps, principal
    components, a choice of the number of clusters."""
    wish: ClassVar[str | None] = None
    """The option that requires an algorithm other than Lloyd's, if any."""

    n_clusters: Any = parameter(
        MISSING,
        "Number of clusters. auto: choose from 1 to 12 or more. 2-20: choose from 2 to 20.",
        "-k",
        "--clusters",
        metavar="K",
        show_default=False,
        least=1,
    )
    algorithm: str | Algorithm = absent("auto")
    init: str | Floats | Any = absent("auto")
    n_init: int | None = absent(None)
    m: float | None = absent(None)
    sums_only: bool = absent(False)
    max_iter: int = absent(300)
    tol: float = absent(1e-4)
    metric: str = absent("euclidean")
    model: str = absent("k-means")
    covariance_type: Any = absent("full")
    reg_covar: float = absent(1e-6)
    noise: bool | float = absent(False)
    seed: int = parameter(0, SEED, metavar="N")
    start: State | None = absent(None)
    means: State | None = None
    also: Floats | None = None
    init_columns: tuple[str, ...] = ()
    grouped: bool = False
    participation: float = absent(1.0)
    prepare: PreprocessingSpec | None = absent(None)
    site_rows: tuple[float, ...] = ()
    smallest: int = 1
    trim: float = absent(0.0)
    robust: int = absent(0)
    profile: bool = absent(False)
    previous: str | Any = absent(None)
    stability: bool | int = absent(False)
    rule: Any = absent(None)
    epsilon: float | None = absent(None)

    @classmethod
    def called(cls, spelled: Spelled) -> str:
        """Return the title, with what a user writes to ask for this kind."""
        name, value = cls.asked
        how = spelled(name, value or ("ignore" if name == "gaps" else 0)) if name else ""
        return f"{cls.title} ({how})" if how else cls.title

    def at(self, sites: Iterable[SiteInfo]) -> Self:
        """Return the specification for these sites: ``init="auto"`` is "sums" if rows stream.

        Then some site does not hold all its rows at once. Over a network, a site that has not
        answered counts as one whose rows do not stream.
        """
        sites = tuple(sites)
        known_limits = distinct_limits(sites)
        changes: dict[str, Any] = {
            "grouped": any(limit.name == "Groups" for limits in known_limits for limit in limits),
            "site_rows": rows_of(sites),
            "smallest": max(map(_smallest_seen, known_limits), default=1),
        }
        if isinstance(self.init, str) and self.init == "auto" and any(s.streams for s in sites):
            changes["init"] = "sums"
        if any(site.secure for site in sites):
            changes["sums_only"] = True
        return replace(self, **changes)

    def cells(self, **changes: Any) -> Fit:
        """Return the fit of k-means that a mixture starts from, or of others, the fit itself."""
        if not isinstance(self, MixtureFit | MergedFit):
            own: dict[str, Any] = {"model": "k-means"} if isinstance(self, KMeansFit) else {}
            return replace(self, **own | changes)
        kind = IncompleteFit if _has_gaps(self.prepare) else KMeansFit
        known = {each.name for each in fields(kind) if each.init} - {"model"}
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name in known}
        return kind(**own | changes)


@dataclass(frozen=True, eq=False)
class _SearchedFit(Fit):
    """A fit that is the best of several starts.

    Parameters
    ----------
    algorithm : str or Algorithm
        One of ``names``; the dotted name of a user's own algorithm, such as
        ``"my_module.Mine(beta=3)"``; or the object.
    init : {"auto", "summaries", "sums", "k-means++", "random"}, callable or ndarray of shape (k, d)
        The start of an algorithm that needs one.
    n_init : int, optional
        The number of starts that are refined.
    max_iter : int
        The largest number of rounds.
    tol : float
        Tolerance of the test of convergence; of a mixture, of the mean log likelihood of a row.
    prepare : PreprocessingSpec, optional
        The preprocessing of the rows.
    """

    algorithm: str | Algorithm = parameter(
        "auto",
        f"{', '.join({**ALGORITHMS, **FUZZY_ALGORITHMS})}, or MODULE.NAME, your own. "
        "auto: exact, best of many starts. lloyd: exact, from fit.init. fkm: Garst & Reinders. "
        "kfed: one round, Dennis et al. fedavg: Triebe & Rajagopal. With --fuzzy: auto; fcm: "
        "exact, from fit.init; ffcm: Stallmann & Wilbik.",
        metavar="NAME",
    )
    init: str | Floats | Any = parameter("auto", "How to find the start.", choices=INITS)
    n_init: int | None = parameter(
        None, "Number of starts.", metavar="N", show_default="the algorithm's", least=1
    )
    max_iter: int = parameter(300, "Largest number of rounds.", metavar="N", least=1)
    tol: float = parameter(
        1e-4, "Stop when the centres move by less, as in scikit-learn.", metavar="T", least=0
    )
    prepare: PreprocessingSpec | None = None


@dataclass(frozen=True, eq=False)
class _DescribedFit(_SearchedFit):
    """A fit that may be from sums alone, and whose clusters may be described.

    Parameters
    ----------
    profile : bool
        Whether to profile the clusters, in two more rounds.
    previous : str or Model, optional
        The model of an earlier fit, or its file, whose clusters keep their numbers and names.
    """

    sums_only: bool = parameter(False, SUMS_ONLY, "--sums-only")
    profile: bool = parameter(
        False, "Describe what sets the clusters apart; takes two more rounds.", "--profile"
    )
    previous: str | Any = parameter(
        None,
        "Model of an earlier fit: clusters keep its numbers and names, and the report says what "
        "changed. Takes two more rounds; -k is then by default that of the model.",
        "--continue",
        metavar="MODEL",
        show_default=False,
    )


@dataclass(frozen=True, eq=False)
class _ComparedFit(_DescribedFit):
    """A fit whose clusters may be compared with those of replicates.

    Parameters
    ----------
    stability : bool or int
        Whether to compare the clusters with those of replicates on resampled rows; a number is the
        number of replicates. If k is chosen by likelihood, each is chosen anew.
    """

    stability: bool | int = parameter(
        False, "Test whether the clusters are found again in bootstrap samples.", "--stability"
    )


@dataclass(frozen=True, eq=False)
class _SampledFit(_ComparedFit):
    """A fit whose rounds may ask a sample of the sites, and whose k may be chosen by any rule.

    Parameters
    ----------
    participation : float
        The fraction of the sites that is asked in a round.
    rule : Rule, optional
        The rule by which k is chosen, if it is; by default by likelihood.
    """

    participation: float = parameter(
        1.0, "Share of the sites that most rounds ask; the first and last ask all.", metavar="C"
    )
    rule: Any = None


@dataclass(frozen=True, eq=False)
class KMeansFit(_SampledFit):
    """K-means, by any of its algorithms.

    Parameters
    ----------
    model : {"auto", "k-means"}
        "auto": if k is chosen by likelihood, the model that was judged, with clusters of any shape.
    """

    title: ClassVar[str] = "k-means"
    names: ClassVar[Collection[str]] = ALGORITHMS

    model: str = parameter(
        "auto",
        "auto: k-means; where k is chosen, the clusters that were judged, of any shape. mixture: "
        "fit normal distributions by EM; rows get probabilities. merged: clusters of any shape, "
        "each of several components; needs -k auto.",
        choices=MODELS,
    )


@dataclass(frozen=True, eq=False)
class IncompleteFit(KMeansFit):
    """K-means of rows that lack values, which distances leave out."""

    title: ClassVar[str] = "rows with gaps"
    asked: ClassVar[tuple[str, Any]] = ("gaps", None)
    names: ClassVar[Collection[str]] = Fit.names
    takes: ClassVar[frozenset[str]] = Fit.takes | {"gaps"}
    wish: ClassVar[str | None] = "missing='ignore'"


@dataclass(frozen=True, eq=False)
class SphericalFit(_SampledFit):
    """Clusters of the directions of rows.

    Parameters
    ----------
    metric : {"euclidean", "cosine"}
        The distance between rows; "cosine" clusters their directions.
    """

    title: ClassVar[str] = "clusters of directions"
    asked: ClassVar[tuple[str, Any]] = ("metric", "cosine")
    wish: ClassVar[str | None] = "metric='cosine'"

    metric: str = parameter("euclidean", METRIC, choices=METRICS)


@dataclass(frozen=True, eq=False)
class FuzzyFit(_SampledFit):
    """Fuzzy c-means.

    Parameters
    ----------
    m : float
        The fuzzifier.
    """

    title: ClassVar[str] = "fuzzy clusters"
    asked: ClassVar[tuple[str, Any]] = ("m", None)
    names: ClassVar[Collection[str]] = FUZZY_ALGORITHMS

    m: float | None = parameter(
        None,
        "Fuzzifier, above 1; close to 1, memberships are nearly 0 or 1. Implies --fuzzy.",
        "-m",
        metavar="M",
        show_default="2",
    )


@dataclass(frozen=True, eq=False)
class MixtureFit(_DescribedFit):
    """Components of a mixture of normal distributions.

    Parameters
    ----------
    covariance_type, reg_covar
        As in `GaussianMixture`.
    noise : bool or float
        Whether the mixture has a noise component; a number is the volume that the noise fills.
    start : State, optional
        The start: means, and possibly weights and precisions.
    rule : Rule, optional
        The rule by which k is chosen, if it is.
    """

    title: ClassVar[str] = "a mixture"
    asked: ClassVar[tuple[str, Any]] = ("model", "mixture")
    takes: ClassVar[frozenset[str]] = IncompleteFit.takes
    wish: ClassVar[str | None] = "model='mixture'"

    model: str = absent("mixture")
    covariance_type: Any = parameter(
        "full",
        "Shape of a mixture's components: any, the same for all, along the columns, or round.",
        choices=COVARIANCES,
    )
    reg_covar: float = parameter(
        1e-6, "Share of its variance added to each variance of a mixture.", metavar="V", least=0
    )
    noise: bool | float = parameter(False, "Add a noise component to a mixture.", "--noise")
    start: State | None = None
    rule: Any = None


@dataclass(frozen=True, eq=False)
class MergedFit(_ComparedFit):
    """Clusters of any shape, each a set of components; their number is chosen by likelihood."""

    title: ClassVar[str] = "clusters of several components"
    asked: ClassVar[tuple[str, Any]] = ("model", "merged")
    takes: ClassVar[frozenset[str]] = IncompleteFit.takes
    wish: ClassVar[str | None] = MixtureFit.wish

    model: str = absent("merged")
    covariance_type: Any = "full"
    noise: bool | float = False


@dataclass(frozen=True, eq=False)
class TrimmedFit(_ComparedFit):
    """Trimmed k-means.

    Parameters
    ----------
    trim : float
        The share of the rows that belongs to no cluster, those farthest from all centres.
    """

    title: ClassVar[str] = "trimmed k-means"
    asked: ClassVar[tuple[str, Any]] = ("trim", None)
    takes: ClassVar[frozenset[str]] = frozenset({"pca"})

    trim: float = parameter(
        0.0,
        "Leave out this share of the rows, those farthest from all centres; their label is -1.",
        metavar="SHARE",
        least=0,
    )


@dataclass(frozen=True, eq=False)
class RobustFit(_SearchedFit):
    """K-means that is right although some sites lie.

    Parameters
    ----------
    robust : int
        The largest number F of sites that may lie: sums are combined so that no F sites can steer
        the clusters.
    """

    title: ClassVar[str] = "a robust fit"
    asked: ClassVar[tuple[str, Any]] = ("robust", None)
    takes: ClassVar[frozenset[str]] = frozenset()

    robust: int = parameter(
        0, "Be right with up to F sites that lie; needs 2 F + 1 sites.", metavar="F", least=0
    )


@dataclass(frozen=True, eq=False)
class PrivateFit(Fit):
    """K-means under a privacy budget: every answer has noise.

    Parameters
    ----------
    epsilon, delta, group_size
        The budget.
    bounds : mapping of str to (float, float), or (low, high)
        Public bounds of all columns, known independently of the rows.
    n_rows : float, optional
        The stated number of rows of all sites, if the sites do not report it.
    """

    title: ClassVar[str] = "a privacy budget"
    asked: ClassVar[tuple[str, Any]] = ("epsilon", None)
    names: ClassVar[Collection[str]] = ("auto",)
    takes: ClassVar[frozenset[str]] = frozenset()

    sums_only: bool = False
    epsilon: float | None = parameter(
        None,
        "Privacy budget: all answers get noise, and cost one row at most this epsilon in all. "
        "Needs prepare.bounds of every column.",
        metavar="E",
        show_default="no noise",
    )
    delta: float = parameter(1e-6, "Probability with which epsilon may be exceeded.", metavar="D")
    group_size: int = parameter(
        1, "With epsilon: the most rows that one person has.", metavar="N", least=1
    )
    bounds: Any = None
    n_rows: float | None = None


def rows_of(sites: Iterable[SiteInfo]) -> tuple[float, ...]:
    """Return the number of rows of each site as reported; under secure sums, the total."""
    sites = tuple(sites)
    together = next((site.total_rows for site in sites if site.total_rows is not None), None)
    if together is not None:
        return (together,)
    return tuple(site.n_rows for site in sites if site.n_rows is not None)


def distinct_limits(sites: Iterable[SiteInfo]) -> list[tuple[Limit, ...]]:
    """Return the distinct limits that sites report."""
    return list({id(site.limits): site.limits for site in sites}.values())


def smallest_of(sites: Iterable[SiteInfo]) -> int:
    """Return the smallest group of rows that all sites' limits permit."""
    return max((_largest(limits, "MinClusterSize") for limits in distinct_limits(sites)), default=1)


def together_of(sites: Iterable[SiteInfo]) -> int:
    """Return the largest number of rows that a site uses as one: in groups of p, below 2 p."""
    return max((2 * _largest(each, "Groups") - 1 for each in distinct_limits(sites)), default=1)


def _largest(limits: Sequence[Limit], name: str) -> int:
    """Return the largest p of the limits with a given name, 1 if there is none."""
    every = (dict(limit.parameters) for limit in limits if limit.name == name)
    return max((int(parameters.get("p", 1)) for parameters in every), default=1)


def _smallest_seen(limits: Sequence[Limit]) -> int:
    """Return the smallest number of rows, or groups of rows, that limits permit.

    Examples
    --------
    >>> from fedcluster.core import Limit
    >>> limits = Limit("Groups", (("p", 5),)), Limit("MinClusterSize", (("p", 12),))
    >>> _smallest_seen(limits), _smallest_seen(limits[1:])
    (3, 12)
    """
    return -(-_largest(limits, "MinClusterSize") // _largest(limits, "Groups"))


KINDS: tuple[type[Fit], ...] = (
    *(PrivateFit, RobustFit, TrimmedFit, MergedFit, MixtureFit, FuzzyFit, SphericalFit),
    *(IncompleteFit, KMeansFit),
)
"""The kinds of fits; what is asked for decides for the first of them."""

_KNOWN = {each.name: each for kind in KINDS for each in fields(kind) if each.init}
WORDS: Mapping[str, Field[Any]] = {
    each.name: _KNOWN[each.name] for each in (*fields(Fit), *_KNOWN.values())
}
"""All parameters of fits, by name."""

_CHANGES = frozenset({"algorithm", "init", "n_init", "max_iter", "tol", "participation"})
"""Parameters with which k-means is asked for, and not the model that was judged."""


def declared(kind: type[Any]) -> list[Field[Any]]:
    """Return the fields of a specification that users may set; of `Fit`, those of all kinds."""
    every = WORDS.values() if kind is Fit else fields(kind)
    return [each for each in every if each.metadata]


def in_python(name: str, value: Any) -> str:
    """Return a parameter as it is written in Python.

    Examples
    --------
    >>> in_python("trim", 0.1), in_python("model", "mixture"), in_python("choice", "auto")
    ('trim', "model='mixture'", 'a choice of n_clusters')
    """
    if name == "choice":
        return "a choice of n_clusters"
    name = "missing" if name == "gaps" else name
    return f"{name}={value!r}" if isinstance(value, str) else name


def fit_of(n_clusters: Any, *, spelled: Spelled = in_python, **words: Any) -> Fit:
    """Return the fit for a user's parameters, of the kind that they imply.

    Parameters
    ----------
    n_clusters : int, "auto" or sequence of int
        k, or the numbers to choose from.
    spelled : callable
        How the user writes a word, for the message.
    **words : object
        Parameters of any kind; those that have their default values ask for nothing.

    Raises
    ------
    RefusedError
        If two words are of different kinds.

    Examples
    --------
    >>> type(fit_of(3, trim=0.1, m=None)).__name__, fit_of("auto").model, fit_of(3).model
    ('TrimmedFit', 'auto', 'k-means')
    >>> fit_of(3, trim=0.1, robust=1)
    Traceback (most recent call last):
    fedcluster.options.refusals.RefusedError: trim is for trimmed k-means, not for a robust fit \
(robust): leave one of the two out
    """
    if unknown := words.keys() - WORDS.keys():
        raise TypeError(f"a fit has no parameter {min(unknown)!r}")
    given = {name: v for name, v in words.items() if _asks(name, v, WORDS[name].default)}
    given |= {} if isinstance(n_clusters, Integral) else {"choice": n_clusters}
    if _has_gaps(prepare := words.get("prepare")):
        given["gaps"] = "ignore"
    if prepare is not None and prepare.pca is not None:
        given["pca"] = prepare.pca
    kind = next(each for each in KINDS if _is_asked(each, given))

    for name, value in given.items():
        if not _has(kind, name, value):
            have = [each for each in reversed(KINDS) if _has(each, name, value)]
            owners = [k.title if k.asked[0] == name else k.called(spelled) for k in have]
            raise refused(
                "kind-parameter",
                option=spelled(name, value),
                owner=" and ".join(owners) if len(owners) < 3 else "other fits",
                kind=kind.called(spelled),
                out="one of the two" if kind.called(spelled) != kind.title else "it",
            )
    chooses = "choice" in given
    if not chooses and (name := "rule" if "rule" in given else "model" * (kind is MergedFit)):
        raise refused(
            "kind-parameter",
            option=spelled(name, given[name]),
            owner=spelled("choice", n_clusters),
            kind=f"{n_clusters} clusters",
            out="it",
        )
    own = {each.name for each in fields(kind) if each.init}
    made = {name: value for name, value in words.items() if name in own - {"model"}}
    if issubclass(kind, KMeansFit):
        by_index = "rule" in given and given["rule"].name != "likelihood"
        judged = chooses and not (by_index or given.keys() & _CHANGES)
        made["model"] = words.get("model", "auto") if judged else "k-means"
    return kind(n_clusters, **made)


def _has_gaps(prepare: PreprocessingSpec | None) -> bool:
    """Return whether rows may lack values, which distances leave out."""
    return prepare is not None and prepare.missing == "ignore"


def _asks(name: str, value: Any, default: Any) -> bool:
    """Return whether a word asks for something; an array always does."""
    if name == "model":
        return value in ("mixture", "merged")
    if name == "rule" and value is not None:
        return (value.name, value.pick, value.bounds) != ("likelihood", "best", None)
    same = isinstance(value, str | Number) or getattr(value, "shape", None) == ()
    return not (value is default or (same and value == default))


def _is_asked(kind: type[Fit], given: Mapping[str, Any]) -> bool:
    """Return whether words ask for a kind."""
    name, value = kind.asked
    return not name or (name in given and value in (None, given[name]))


def _has(kind: type[Fit], name: str, value: Any) -> bool:
    """Return whether a kind of fit has a word."""
    if name in ("choice", "gaps", "pca"):
        return name in kind.takes
    if name == "algorithm" and (not isinstance(value, str) or "." in value):
        return "own" in kind.takes
    if name == "algorithm":
        return value in kind.names
    if name == "rule" and value.name in FUZZY_RULES:
        return kind is FuzzyFit
    if name == "model":
        return kind.asked == (name, value)
    return any(each.name == name and each.init for each in fields(kind))


@dataclass(frozen=True, slots=True, eq=False)
class SelectK:
    """Job that chooses the number of clusters; the parameters of `fedcluster.select_k`.

    Parameters
    ----------
    k_min : int
        The smallest number of clusters to try.
    k_max : int, optional
        The largest number to try; by default 12, or the number of rows if smaller; by likelihood,
        up to 50 if there are ten rows per cluster.
    rule, averaging, m, pick
        The rule for choosing the number.
    bounds : pair of sequences of float, optional
        Public bounds of the columns, if rows are not prepared.
    sums_only : bool
        Whether the start is found from sums alone.
    metric, seed, participation, prepare
        As in `Fit`.
    """

    kind: ClassVar[str] = "select-k"

    k_min: int = parameter(1, "Smallest number of clusters.", "--k-min", metavar="K", least=1)
    k_max: int | None = parameter(
        None,
        "Largest number of clusters.",
        "--k-max",
        metavar="K",
        show_default="12, or up to 50 by likelihood",
        least=1,
    )
    rule: str = parameter(
        "likelihood",
        "How to choose. likelihood: of mixtures. vote: named most often by mixture-bic, "
        "gap, calinski-harabasz and squared-silhouette. fuzzy-db: the framework of Stallmann & "
        "Wilbik. Or a single index.",
        choices=RULES,
    )
    averaging: str = parameter(
        "avg_2",
        "With rule fuzzy-db: average centres by k-means (avg_2) or by position (avg_1).",
        choices=AVERAGINGS,
    )
    m: float | None = parameter(
        None, "Cluster by fuzzy c-means with this fuzzifier.", "-m", metavar="M"
    )
    sums_only: bool = parameter(False, SUMS_ONLY, "--sums-only")
    metric: str = parameter("euclidean", METRIC, choices=METRICS)
    seed: int = parameter(0, SEED, metavar="N")
    pick: str = parameter(
        "best", "elbow: where the curve of the index bends most, not its best value.", choices=PICKS
    )
    bounds: tuple[Sequence[float], Sequence[float]] | None = None
    participation: float = 1.0
    prepare: PreprocessingSpec | None = None

    @property
    def k_last(self) -> int:
        """The largest number of clusters that is tried, if there are enough rows."""
        return self.k_max or max(self.k_min, MOST_CLUSTERS)


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate:
    """Job that scores the clusters of a model by every index that applies.

    Parameters
    ----------
    model : str or Model
        The model, or its file.
    labels : bool
        Whether clusters are compared with the reference labels that every site must then have.
    classes : sequence of str, optional
        All these labels, if known without asking the sites.
    metrics : sequence of Metric or str
        Additional metrics of the user's own, or their names, as ``"my_module.Mine(beta=3)"``.
    algorithms : sequence of str or type
        The user's own algorithms that may assign rows, as in `Model.load`.
    participation, seed
        As in `Fit`.
    n_references : int
        Number of draws of each kind of rows without clusters for comparison; see `docs/metrics.md`.
    profile : bool
        Whether to profile the clusters in the same two rounds.
    beside : str or Model, optional
        Another model, or its file: also counts the rows in each pair of clusters, in the same
        rounds.
    """

    kind: ClassVar[str] = "evaluate"

    model: Any
    labels: bool = False
    classes: Sequence[str] | None = None
    metrics: Sequence[Any] = ()
    algorithms: Sequence[Any] = ()
    participation: float = 1.0
    seed: int = 0
    n_references: int = 20
    profile: bool = False
    beside: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Job that profiles the clusters of a model: their columns, and how they differ.

    Parameters
    ----------
    model : str or Model
        The model, or its file.
    algorithms : sequence of str or type
        The user's own algorithms that may assign rows, as in `Model.load`.
    participation, seed
        As in `Fit`; all sites are asked, and nothing is drawn.
    """

    kind: ClassVar[str] = "profile"

    model: Any
    algorithms: Sequence[Any] = ()
    participation: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Compare:
    """Job that compares the clusters of a model by outcomes that were not clustered by.

    Parameters
    ----------
    model : str or Model
        The model, or its file.
    outcomes : sequence of str
        The columns: texts, numbers, or numbers that are 0 or 1.
    time : str, optional
        The column with the time at which outcomes of 0 and 1 happened, or until which they had not.
    levels : mapping of str to sequence of str or None, optional
        The levels of outcomes that are texts and None for numbers, if known without asking.
    algorithms, participation, seed
        As in `Profile`.
    """

    kind: ClassVar[str] = "compare"

    model: Any
    outcomes: Sequence[str]
    time: str | None = None
    levels: Mapping[str, Sequence[str] | None] | None = None
    algorithms: Sequence[Any] = ()
    participation: float = 1.0
    seed: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The outcomes and their time."""
        return tuple(dict.fromkeys([*self.outcomes, *([self.time] if self.time else [])]))


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The terms on which the sites of a federation are asked.

    Parameters
    ----------
    out : Path
        The folder that receives the files.
    quorum : int, optional
        The smallest number of sites that must answer a round; by default all.
    deadline : float
        Seconds after which a round continues without sites that have not answered.
    permit : str, optional
        The permit under which the sites are asked.
    columns : sequence of str, optional
        The columns to cluster by; by default those of the permit, or all columns, which must then
        be the same everywhere.
    secure : bool
        Whether the sites disclose only sums over all sites, under masks.
    """

    out: Path = parameter(
        MISSING, "Folder to write.", "--out", "-o", metavar="DIR", show_default=False
    )
    quorum: int | None = parameter(
        None,
        "Number of sites that must answer a round; it continues without the others.",
        metavar="N",
        show_default="all",
    )
    deadline: float = parameter(
        120.0,
        "Seconds to wait for a site in a round. Flower takes up to 65 seconds to notice that a "
        "site has died.",
        metavar="S",
    )
    permit: str | None = parameter(
        None,
        "Permit under which to ask; without --columns, the run uses its columns.",
        metavar="ID",
        show_default=False,
    )
    secure: bool = parameter(
        False,
        "Learn sums of all sites only: what each sends is masked, and the masks cancel. Needs "
        "secure = true at the sites; with --quorum, sites may drop out if they all say "
        "allow_dropouts = true, and each round takes two.",
        "--secure",
    )
    columns: Sequence[str] | None = None
