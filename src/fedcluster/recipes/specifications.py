"""Specifications of jobs: each parameter's name, default, help and range, declared once.

Estimators read their parameters into these by name, and both command lines derive their options
from the fields. Nothing slow is imported here, so that the command line shows its help at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fedcluster.options.choices import (
    ALGORITHMS,
    AVERAGINGS,
    COVARIANCES,
    FUZZY_ALGORITHMS,
    INITS,
    METRICS,
    MODELS,
    PICKS,
    RULES,
)

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
class FitSpec:
    """Specification of one clustering.

    Parameters
    ----------
    n_clusters : int
        k.
    algorithm : str or Algorithm
        One of `fedcluster.options.choices.ALGORITHMS`, or with ``m`` of ``FUZZY_ALGORITHMS``; the
        dotted name of a user's own algorithm, such as ``"my_module.Mine(beta=3)"``; or the object.
    init : {"auto", "summaries", "sums", "k-means++", "random"}, callable or ndarray of shape (k, d)
        The start of an algorithm that needs one.
    n_init : int, optional
        The number of starts that are refined.
    tol : float
        Tolerance of the test of convergence.
    max_iter : int
        The largest number of rounds.
    seed : int
        Determines every random choice.
    metric : {"euclidean", "cosine"}
        The distance between rows; "cosine" clusters their directions.
    model : {"auto", "k-means", "mixture", "merged"}
        Whether clusters are cells about centres, or components of a mixture of normal
        distributions; then ``tol`` is of the mean log likelihood of a row. "auto" is k-means,
        unless k is chosen by likelihood and no option requires more than plain k-means: then it is
        the model that was judged, with clusters of any shape. The clusters of "merged", for which k
        must be chosen, are sets of components.
    covariance_type, reg_covar
        Parameters of a mixture, as in `GaussianMixture`.
    noise : bool or float
        Whether a mixture has a noise component; a number is the volume that the noise fills.
    start : State, optional
        The start of a mixture: means, and possibly weights and precisions.
    sums_only : bool
        Whether the start is found from sums alone.
    m : float, optional
        The fuzzifier, for fuzzy c-means.
    means : State, optional
        Weighted means of the rows to start from, if the server has some already.
    grouped : bool
        Whether sites use their rows in groups, the means of which may be sent one by one.
    participation : float
        The fraction of the sites that is asked in a round.
    prepare : PreprocessingSpec, optional
        The preprocessing of the rows.
    site_rows : tuple of float
        The number of rows of each site, as far as reported.
    smallest : int
        The smallest group of rows, as sites use them, that all sites' limits permit.
    trim : float
        The share of the rows that belongs to no cluster, those farthest from all centres.
    robust : int
        The largest number F of sites that may lie: sums are combined so that no F sites can steer
        the clusters.
    profile : bool
        Whether to profile the clusters, in two more rounds.
    stability : bool or int
        Whether to compare the clusters with those of replicates on resampled rows; a number is the
        number of replicates. If k is chosen by likelihood, each is chosen anew.
    """

    n_clusters: Any = parameter(
        MISSING,
        "Number of clusters. auto: choose from 1 to 12 or more. 2-20: choose from 2 to 20.",
        "-k",
        "--clusters",
        metavar="K",
        show_default=False,
        least=1,
    )
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
    m: float | None = parameter(
        None,
        "Fuzzifier, above 1; close to 1, memberships are nearly 0 or 1. Implies --fuzzy.",
        "-m",
        metavar="M",
        show_default="2",
    )
    sums_only: bool = parameter(False, SUMS_ONLY, "--sums-only")
    max_iter: int = parameter(300, "Largest number of rounds.", metavar="N", least=1)
    tol: float = parameter(
        1e-4, "Stop when the centres move by less, as in scikit-learn.", metavar="T", least=0
    )
    metric: str = parameter("euclidean", METRIC, choices=METRICS)
    model: str = parameter(
        "auto",
        "auto: k-means; where k is chosen, the clusters that were judged, of any shape. mixture: "
        "fit normal distributions by EM; rows get probabilities. merged: clusters of any shape, "
        "each of several components; needs -k auto.",
        choices=MODELS,
    )
    covariance_type: Any = parameter(
        "full",
        "Shape of a mixture's components: any, the same for all, along the columns, or round.",
        choices=COVARIANCES,
    )
    reg_covar: float = parameter(
        1e-6, "Share of its variance added to each variance of a mixture.", metavar="V", least=0
    )
    noise: bool | float = parameter(False, "Add a noise component to a mixture.", "--noise")
    seed: int = parameter(0, SEED, metavar="N")
    start: State | None = None
    means: State | None = None
    grouped: bool = False
    participation: float = parameter(
        1.0, "Share of the sites that most rounds ask; the first and last ask all.", metavar="C"
    )
    prepare: PreprocessingSpec | None = None
    site_rows: tuple[float, ...] = ()
    smallest: int = 1
    trim: float = parameter(
        0.0,
        "Leave out this share of the rows, those farthest from all centres; their label is -1.",
        metavar="SHARE",
        least=0,
    )
    robust: int = parameter(
        0, "Be right with up to F sites that lie; needs 2 F + 1 sites.", metavar="F", least=0
    )
    profile: bool = parameter(
        False, "Describe what sets the clusters apart; takes two more rounds.", "--profile"
    )
    stability: bool | int = parameter(
        False, "Test whether the clusters are found again in bootstrap samples.", "--stability"
    )

    @property
    def resolved(self) -> Self:
        """The specification with "auto" replaced by the model, unless that depends on the rows.

        Examples
        --------
        >>> Fit("auto").resolved.model, Fit("auto", trim=0.1).resolved.model, Fit(3).resolved.model
        ('auto', 'k-means', 'k-means')
        """
        plain = [*("algorithm", "init", "n_init", "m", "metric", "max_iter", "tol")]
        plain += ["participation", "trim", "robust", "epsilon"]
        defaults = {each.name: each.default for each in fields(self)}
        given = ((getattr(self, name, None), defaults.get(name)) for name in plain)
        own = any(not (isinstance(value, type(by)) and value == by) for value, by in given)
        rule = getattr(self, "rule", None)
        by_index = rule is not None and rule.name != "likelihood"
        one = isinstance(self.n_clusters, Integral)
        if self.model != "auto" or not (one or own or by_index):
            return self
        return replace(self, model="k-means")

    @property
    def wish(self) -> str | None:
        """The option that requires an algorithm other than Lloyd's, if any."""
        ignores = self.prepare is not None and self.prepare.missing == "ignore"
        wishes = {
            "model='mixture'": self.model in ("mixture", "merged"),
            "metric='cosine'": self.metric == "cosine",
            "missing='ignore'": ignores
            and self.metric != "cosine"
            and self.model in ("auto", "k-means"),
        }
        return " and ".join(name for name, wished in wishes.items() if wished) or None

    def at(self, sites: Iterable[SiteInfo]) -> Any:
        """Return the specification for these sites: ``init="auto"`` is "sums" if rows stream.

        Then some site does not hold all its rows at once. Over a network, a site that has not
        answered counts as one whose rows do not stream.
        """
        sites = tuple(sites)
        auto = isinstance(self.init, str) and self.init == "auto"
        streams = any(site.streams for site in sites)
        told = distinct_limits(sites)
        grouped = any(limit.name == "Groups" for limits in told for limit in limits)
        return replace(
            self,
            init="sums" if auto and streams else self.init,
            grouped=grouped,
            site_rows=rows_of(sites),
            sums_only=self.sums_only or any(site.secure for site in sites),
            smallest=max(map(_smallest_seen, told), default=1),
        )


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


@dataclass(frozen=True, slots=True, eq=False)
class Fit(FitSpec):
    """Job that finds clusters: the parameters of `FederatedKMeans`, or with ``m`` of the fuzzy one.

    The sites' limits are not among them, as each site sets its own.

    Parameters
    ----------
    n_clusters : int, "auto" or sequence of int
        k, or the numbers to choose from.
    rule : Rule, optional
        The rule by which k is chosen, if it is; by default by likelihood.
    epsilon, delta, group_size
        The privacy budget, if any; every answer then has noise.
    bounds : mapping of str to (float, float), or (low, high), optional
        Public bounds of all columns, known independently of the rows; required with a budget.
    n_rows : float, optional
        The stated number of rows of all sites, if the sites do not report it.
    """

    kind: ClassVar[str] = "fit"

    rule: Any = None
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
        "With --rule fuzzy-db: average centres by k-means (avg_2) or by position (avg_1).",
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
