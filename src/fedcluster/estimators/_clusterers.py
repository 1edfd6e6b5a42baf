"""Estimators that users fit: federated k-means, fuzzy c-means, and the choice of k."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fedcluster import kernels
from fedcluster.core import Algorithm, Floats
from fedcluster.errors import InputError
from fedcluster.estimators._base import Federated, one_of
from fedcluster.options.choices import (
    ALGORITHMS,
    AVERAGINGS,
    FUZZY_ALGORITHMS,
    METRICS,
    PICKS,
    RULES,
    AlgorithmName,
    Averaging,
    FuzzyAlgorithmName,
    Metric,
    Pick,
    RuleName,
)
from fedcluster.options.refusals import refused
from fedcluster.recipes.specifications import Rule

if TYPE_CHECKING:
    from sklearn.cluster import KMeans

    from fedcluster.selection import Selection


@dataclass(eq=False, repr=False)
class FederatedKMeans(ClusterMixin, Federated):
    """K-means over the rows of several sites, as if they were in one place.

    Each site answers with sums over its rows; the sites of one ``fit`` are simulated in this
    process. For one table without ``sites``, this is ordinary k-means.

    Parameters
    ----------
    n_clusters : int, "auto" or iterable of int, default=8
        k. "auto" takes the likeliest number from 1 to 50; a range or a list gives the numbers to
        choose from. A warning in ``selection_`` says if k-means does not show the shapes of the
        likeliest clusters, for which `FederatedGaussianMixture` with ``merge`` is suitable.
        ``rule`` selects other criteria.
    algorithm : {"auto", "lloyd", "fkm", "kfed", "fedavg"} or Algorithm, default="auto"
        "auto" starts from one round of site summaries and refines the best of many starts by
        exact Lloyd in the same rounds; "lloyd" is exact federated Lloyd from ``init``; the others
        are the algorithms of Garst & Reinders, of Dennis, Li & Smith and of Triebe & Rajagopal.
        An algorithm object brings its own parameters.
    init : name, array (k, d) or callable, default="auto"
        The start of an algorithm that needs one: weighted k-means of means that the sites send once
        ("summaries", and "auto"), of the leaves of a tree grown from sums alone ("sums"), or of
        seeds that each site draws from its rows ("k-means++" and "random"); a callable ``init(X,
        n_clusters, random_state)`` draws the seeds at each site, as in scikit-learn. An array is
        the start itself, in the form of prepared rows, and determines the order of the clusters; a
        data frame, like ``centers_frame_``, is one in the units of its columns.
    n_init : int or "auto", default="auto"
        Number of starts that are refined in the same rounds. "auto" is 1 unless the algorithm is
        "auto" too: then it is 8 to 48, more if there are few rows, and 32 if the sites draw the
        starts. For "fkm", the number of restarts of the server's k-means, 10 by default.
    max_iter : int, default=300
        The largest number of rounds.
    tol : float, default=1e-4
        Converged when the squared Frobenius norm of the centres' move is at most ``tol`` times
        the mean variance of a column.
    random_state : int, RandomState or None, default=None
        Determines every random choice, at the sites and at the server.
    min_cluster_size : int or "auto", default="auto"
        A site holds back every cluster with fewer of its rows, or fewer persons if ``groups`` names
        them. "auto" is the algorithm's default: 2 for FKM as in the paper; 1 (nothing is held back)
        for the others, whose result then is exactly the pooled one. A site with a single row never
        takes part, unless this is explicitly 1.
    participation : float, default=1
        The fraction of the sites that is asked in a round, a new sample each time. If it is below
        1, all sites are asked at the beginning, for the preparation, the start and their first
        sums, and at the end, until convergence and for the score. In between, exact algorithms
        reuse the last sums of sites that are not asked. "fkm", "kfed" and "fedavg" ask a sample in
        each of their rounds, as their papers do.
    sums_only : bool, default=False
        Whether only sums may be seen: starts at ``init="sums"``, so that a secure sum can stand
        between the sites and the server.
    prepare : None, "auto", "standard", "minmax", "robust" or PreprocessingSpec, default=None
        The preprocessing of the rows of all sites, fitted from sums: see `PreprocessingSpec`. Rows
        may then have text and missing values; ``cluster_centers_`` are those of prepared rows, and
        ``predict`` prepares new rows in the same way. "auto" is the default of the command line:
        numbers are standardised, missing values filled in with means, and columns that are not
        measurements, such as keys, left out with a warning.
    rule : str or Rule, default="likelihood"
        The rule by which k is chosen if ``n_clusters`` leaves a choice, as in `select_k`; otherwise
        it is refused.
    metric : {"euclidean", "cosine"}, default="euclidean"
        The distance between rows. "cosine" is spherical k-means (Dhillon & Modha 2001): after
        ``prepare``, each row is divided by its length, and so are centres; a row of zeros has the
        label -1, and ``inertia_`` is twice the sum of 1 - cos. For "auto" and "lloyd"; an algorithm
        object receives rows of length 1.
    protection : None, "groups" or Groups, default=None
        With "groups", steps only see the means of groups of at least 5 rows, as in a federation
        over a network, which shows what this protection costs; labels are those of the rows.
        ``min_cluster_size`` then counts the rows in the groups. See `fedcluster.privacy.Groups`.
    verbose : int, default=0
        Whether to print a line for each round: the steps, the sites that answered, and the number
        of values that they sent.
    profile : bool, default=False
        Whether to profile the clusters, in two more rounds: see ``profiles_``.
    stability : bool or int, default=False
        Whether to compare the clusters with those of replicates on resampled rows (a bootstrap):
        see ``stability_``. A number is that of replicates; True means 20.
    previous : Model, fitted estimator or path of a model file, optional
        The fit of an earlier year. Its clusters keep their number, which is their label and line,
        and their name, and its centres are one more start; see ``succession_``. If ``n_clusters``
        is None, it is that of this fit.
    robust : int, default=0
        F, the largest number of sites that may lie, of at least 2 F + 1: see
        ``docs/attacks.md#sites-that-lie``.
    trim : float, default=0
        The share of the rows that belongs to no cluster, at most 0.5: those farthest from all
        centres, as in trimmed k-means. Their label is -1, as is that of new rows at such distances;
        ``inertia_`` and ``cluster_weights_`` are those of the others. For "auto" and "lloyd",
        and one number of clusters.
    epsilon : float, optional
        A privacy budget: every answer of a site has noise, so that all answers together satisfy
        differential privacy with this epsilon. Centres, weights and inertia have noise; ``labels_``
        do not, and must stay with the rows. Needs ``bounds``.
    delta : float, default=1e-6
        The probability with which epsilon may be exceeded; far below 1 / number of rows.
    bounds : (low, high) or mapping of str to (float, float), optional
        With ``epsilon``: public bounds of the columns, known independently of the rows; numbers, or
        one for each column. Values outside are clipped to them, and rows are clustered as if the
        bounds of every column were -1 and 1. ``cluster_centers_`` and `transform` have the units of
        the rows; ``inertia_``, ``score`` and ``state_`` are those of the scaled rows.
    group_size : int, default=1
        With ``epsilon``: the largest number of rows of one person; with ``groups``, further rows of
        a person are ignored.

    Attributes
    ----------
    n_clusters_ : int
        k, as given or chosen.
    selection_ : Selection or None
        If k was chosen: the reason, the likelihood or the indices of each k, and the clustering.
    cluster_centers_ : ndarray of shape (k, d)
        The centres in canonical order, by decreasing weight, unless ``init`` is an array; in the
        units of the rows or, with ``prepare``, of the prepared rows.
    centers_frame_ : DataFrame of pandas
        The centres in the units of the rows, a line for each cluster; for text, shares of levels.
    profile_ : DataFrame of pandas
        Size and share of each cluster, and its centre in the units of the rows; with ``profile``
        means, spreads, medians, shares of levels and differences instead of the centre.
    profiles_ : Profiles or None
        With ``profile``: the columns of each cluster's rows, compared with all rows.
    stability_ : Stability or None
        With ``stability``: how well each cluster is found again, the gap to its neighbour, and the
        meaning of both.
    succession_ : Succession or None
        With ``previous``: which clusters moved, grew or shrank, are new or gone, with the
        probability that it is chance. The line of one that is gone keeps its last centre, with
        weight 0, and no row has its label.
    privacy_ : PrivacySpent or None
        With ``epsilon``: the cost, as epsilon and as rho.
    influence_ : tuple of Influence
        The influence of each site on the centres, largest first; for 3 to 50 sites.
    cluster_names_ : tuple of str
        The names of the clusters, from their differences. Names can be set, and `save` keeps them.
    cluster_weights_ : ndarray of shape (k,)
        The weight of each cluster's rows, as the server learnt it in the last round of training.
    state_ : State
        The complete final state, in the units of clustering: centres, weights, and in ``memory``
        other parameters of the algorithm.
    algorithm_ : Algorithm
        The algorithm, with all its parameters.
    labels_ : ndarray of shape (n,)
        Label of each row, in the order of ``X`` (for a dict or list: site after site); -1 where
        ``prepare`` drops the row, or ``trim`` leaves it out. Missing after `fit_engine`, as the
        rows are elsewhere; the same holds for ``site_labels_``, ``rows_held_back_`` and
        ``lone_rows_``.
    preprocessor_ : Preprocessor or None
        The preprocessor fitted for ``prepare`` and ``metric``;
        ``preprocessor_.invert(cluster_centers_)`` is in the units of the rows. None if rows are not
        prepared, as with ``epsilon``.
    row_form_ : RowForm
        The columns that new rows must have, and their preparation in `predict`.
    fit_report_ : Findings or None
        Findings of the fit: missing values by site and column, left-out columns, rare levels.
    site_labels_ : dict of str to ndarray
        The labels by site.
    inertia_ : float
        Value of the algorithm's objective, as the sites report it, for prepared rows: for k-means,
        the sum of squared distances to the centres. With ``epsilon``, for rows scaled by the
        bounds. With groups, that of the groups' means and of the scatter within groups that the
        sites tell.
    inertia_error_ : float
        Share by which ``inertia_`` may miss the inertia of the rows with these centres: 0 without
        groups; with them, a rule of thumb from the number of groups of a site, measured for normal,
        uniform and overlapping rows. Rows with heavy tails or ties, and columns that are mostly 0,
        may miss it by far more. NaN if it is not known, as
        where sites with fewer than ten groups, which tell no scatter within them, hold more than a
        hundredth of the rows.
    objective_ : str
        The name of this objective: "inertia", another word such as "robust-inertia", or a user's
        own metric as text.
    n_iter_ : int
        Number of rounds with the sites.
    history_ : list of dict
        One entry for each round of the winning run: inertia, shift, answering sites, values sent.
    sites_ : tuple of SiteInfo
        The sites sorted by name, with their limits.
    steps_ : list of str
        The steps that the sites were asked, each once, with all its parameters.
    values_sent_ : dict of str to int
        Total number of values sent by each site, over every start, every k and the preparation.
    communication_rounds_ : list of dict
        One entry for each round with the sites: the number of tasks of each step, the missing
        sites, and the values sent. These add up to ``values_sent_``.
    rows_held_back_ : dict of str to int
        The largest number of rows that each site's limits held back in one message.
    lone_rows_ : dict of str to int
        The largest number of lines over a single row in one message.
    stop_reason_ : str
        Why the fit stopped; with limits, the share of the rows that they hid from the last round.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (d,)
        The names of the columns, if the tables are data frames with names of type str.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster import FederatedKMeans
    >>> north = np.array([[1.0, 2.0], [1.0, 4.0], [1.0, 0.0]])
    >>> south = np.array([[10.0, 2.0], [10.0, 4.0], [10.0, 0.0]])
    >>> model = FederatedKMeans(n_clusters=2, random_state=0).fit({"north": north, "south": south})
    >>> model.cluster_centers_
    array([[ 1.,  2.],
           [10.,  2.]])
    >>> model.predict([[0.0, 0.0], [12.0, 3.0]])
    array([0, 1], dtype=int32)
    """

    n_clusters: int | Literal["auto"] | Iterable[int] = 8
    _: KW_ONLY
    algorithm: AlgorithmName | Algorithm = "auto"
    metric: Metric = "euclidean"
    trim: float = 0.0
    epsilon: float | None = None
    delta: float = 1e-6
    bounds: Any = None
    group_size: int = 1
    robust: int = 0

    _names = ALGORITHMS

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> float:
        """Return the negative sum of squared distances of the rows to their nearest centres.

        After a fit with ``epsilon``, distances are those of ``inertia_``, for rows scaled by the
        bounds.
        """
        squared = self._model.squared_errors(X)
        weight = 1.0 if sample_weight is None else np.asarray(sample_weight)
        return -float((squared * weight).sum())

    def _algorithm(self) -> Any:
        one_of("metric", self.metric, METRICS)
        return super()._algorithm()

    def to_sklearn(self) -> KMeans:
        """Return a fitted scikit-learn `KMeans` with the same centres.

        It is for tools that only support `KMeans`, and expects prepared rows, as returned by
        ``preprocessor_.apply``.

        Raises
        ------
        InputError
            If the algorithm has its own rule for assigning rows, or the fit has a privacy budget,
            whose bounds scale rows, as `KMeans` supports neither.
        """
        # imported here: it takes 10 MB that most fits do not need
        from sklearn.cluster import KMeans

        check_is_fitted(self)
        if self._model.assigned_by is not None:
            raise InputError(
                f"a KMeans assigns rows to the nearest centre, {type(self.algorithm_).__name__} "
                "does not: use predict, or Model.from_estimator"
            )
        if self._box_ is not None:
            raise InputError(
                "a KMeans takes distances of rows as they are, and those of a fit with a privacy "
                "budget are scaled by the bounds: use predict, or Model.from_estimator"
            )
        centers = self.cluster_centers_
        twin = KMeans(len(centers), init=centers, n_init=1, max_iter=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            twin.fit(centers)
        twin.cluster_centers_ = centers.copy()
        twin.labels_, twin.inertia_, twin.n_iter_ = self.labels_, self.inertia_, self.n_iter_
        if hasattr(self, "feature_names_in_") and self.preprocessor_ is None:
            twin.feature_names_in_ = self.feature_names_in_
        return twin


@dataclass(eq=False, repr=False)
class FederatedFuzzyCMeans(ClusterMixin, Federated):
    """Fuzzy c-means over the rows of several sites, as if they were in one place.

    Parameters
    ----------
    n_clusters : int, "auto" or iterable of int, default=8
        k, or the numbers to choose from, as in `FederatedKMeans`.
    m : float, default=2
        The fuzzifier, above 1; near 1, memberships are nearly hard.
    algorithm : {"auto", "fcm", "ffcm"} or Algorithm, default="auto"
        "auto" starts from one round of site summaries and refines the best of many starts by
        exact steps of fuzzy c-means in the same rounds; "fcm" is exact federated fuzzy c-means
        from ``init``; "ffcm" is the algorithm of Stallmann & Wilbik with k-means averaging (see
        `FFCM` for all its switches).
    init, n_init, max_iter, random_state, min_cluster_size, participation, sums_only
        As in `FederatedKMeans`, and so are ``prepare``, ``rule``, ``protection``, ``verbose``,
        ``profile``, ``stability`` and ``previous``; a limit on the size of a cluster applies to
        sums of memberships.
    tol : float, default=1e-4
        Converged when the Euclidean norm of the centres' move is at most ``tol`` times the root
        of the mean variance of a column.

    Attributes
    ----------
    cluster_centers_, labels_, site_labels_, n_iter_, history_, ...
        As in `FederatedKMeans`; a label is the cluster of the largest membership.
    inertia_ : float
        J_m, the sum of u^m |x - c|^2, as the sites report it.

    References
    ----------
    J. C. Bezdek, Pattern Recognition with Fuzzy Objective Function Algorithms, 1981.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster import FederatedFuzzyCMeans
    >>> north, south = np.array([[0.0], [1.0], [2.0]]), np.array([[8.0], [9.0], [10.0]])
    >>> model = FederatedFuzzyCMeans(n_clusters=2, random_state=0).fit([north, south])
    >>> np.sort(model.cluster_centers_, axis=0).round(1)
    array([[1.],
           [9.]])
    >>> model.predict_proba([[5.0]]).round(1)
    array([[0.5, 0.5]])
    """

    n_clusters: int | Literal["auto"] | Iterable[int] = 8
    _: KW_ONLY
    algorithm: FuzzyAlgorithmName | Algorithm = "auto"
    m: float = 2.0

    _names = FUZZY_ALGORITHMS
    _soft = True

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> float:
        """Return the negative J_m of the rows."""
        rows = self._model.prepared(X)
        whole = np.logical_not(np.isnan(rows).any(axis=1))
        weight = None if sample_weight is None else np.asarray(sample_weight)[whole]
        sums = kernels.fuzzy_pass(rows[whole], self.cluster_centers_, self.m, weight)
        return -float(sums.errors.sum())

    def _algorithm(self) -> Any:
        if not self.m > 1:
            raise ValueError(f"the fuzzifier m must be above 1, not {self.m}")
        own = getattr(self.algorithm, "m", self.m)
        if own != self.m:
            raise refused("algorithm-other", option="m", value=self.m, algorithm=self.algorithm)
        return super()._algorithm()

    def _spelled(self, name: str, value: Any) -> str:
        return "" if name == "m" else super()._spelled(name, value)


def select_k(
    X: Any,
    k_range: Literal["auto"] | Iterable[int] = "auto",
    *,
    rule: RuleName = "likelihood",
    pick: Pick = "best",
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
    m: float | None = None,
    averaging: Averaging = "avg_2",
    sites: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    **parameters: Any,
) -> Selection:
    """Choose the number of clusters of the rows of several sites.

    By likelihood, mixtures of the rows are compared in ten rounds, and the rows are clustered with
    the chosen number. By an index, clusterings for every k share their rounds, at most half as many
    more as the largest k alone takes, and are scored by all indices in two more rounds.

    Parameters
    ----------
    X : dict or list of arrays or data frames, or one of them
        One table (n_i, d) for each site; or one table whose rows ``sites`` assigns.
    k_range : "auto" or iterable of int, default="auto"
        The numbers of clusters to try; "auto" is 1 to 12, at most the number of rows; by
        likelihood, up to 50 if there are ten rows per cluster.
    rule : str, default="likelihood"
        The criterion. "likelihood": that of mixtures of normal components, see the page "Choosing
        k". "vote": the plurality of four judges, "mixture-bic", "gap", "calinski-harabasz" and
        "squared-silhouette"; in a tie the first of them. Or a single index: one of these, "bic"
        (X-means), "simplified-silhouette", "davies-bouldin", "xie-beni", "inertia" (its elbow), or
        "fuzzy-db", which is the framework of Stallmann & Wilbik: federated fuzzy c-means for each
        k, the least fuzzy Davies-Bouldin index.
    pick : {"best", "elbow"}, default="best"
        For a single index: choose its best value, or the point where its curve bends most.
    bounds : pair of floats or of arrays of shape (d,), optional
        Public lower and upper bounds of the columns, for the references of the gap statistic. By
        default, the references' box has the mean and the variance of each column; the rows' own
        minimum and maximum are never requested, because each is the value of one row.
    m : float, optional
        The fuzzifier: cluster by fuzzy c-means. The rules "xie-beni" and "fuzzy-db" imply m = 2.
    averaging : {"avg_2", "avg_1"}, default="avg_2"
        For "fuzzy-db": the averaging at the server, by k-means or by position.
    sites, sample_weight, groups
        As in `FederatedKMeans.fit`.
    **parameters
        Parameters of `FederatedKMeans`, or with ``m`` of `FederatedFuzzyCMeans`: ``random_state``,
        ``algorithm``, ``min_cluster_size``, ...

    Returns
    -------
    Selection
        ``n_clusters``, the ``reason`` in words, ``warnings`` if it is in doubt, the ``table`` of
        likelihoods, or of all indices, by k, and in ``results`` the clustering for the chosen k, or
        for each.

    References
    ----------
    M. Stallmann & A. Wilbik, On a framework for federated cluster analysis, Applied Sciences 12,
    2022.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> north = np.concatenate([rng.normal(0, 1, (50, 2)), rng.normal(9, 1, (50, 2))])
    >>> south = np.concatenate([rng.normal(9, 1, (50, 2)), rng.normal(-9, 1, (50, 2))])
    >>> choice = select_k({"north": north, "south": south}, range(1, 7), random_state=0)
    >>> choice.n_clusters
    3
    >>> choice.reason
    'A mixture of 3 normal distributions (spherical covariances) describes the rows best, each a \
cluster: 3 clusters.'
    >>> choice.results[3].state.centers.round().tolist()
    [[9.0, 9.0], [-9.0, -9.0], [-0.0, 0.0]]
    """
    if isinstance(k_range, int):
        raise ValueError(
            f"k_range must be 'auto' or several numbers, such as range(1, 9), not {k_range}"
        )
    one_of("rule", rule, RULES)
    one_of("pick", pick, PICKS)
    one_of("averaging", averaging, AVERAGINGS)
    if averaging != "avg_2" and rule != "fuzzy-db":
        raise refused("choice-averaging")
    from fedcluster.selection.sweep import clustered_by

    parameters = clustered_by(rule, m, averaging) | parameters
    parameters["rule"] = Rule(rule, pick, _bounds(bounds))
    if parameters["m"] is None:
        del parameters["m"]
    kind: type[Federated] = FederatedFuzzyCMeans if "m" in parameters else FederatedKMeans
    estimator = kind(k_range, **parameters)
    estimator.fit(X, sites=sites, sample_weight=sample_weight, groups=groups)
    return cast("Selection", estimator.selection_)


def _bounds(bounds: Any) -> tuple[Floats, Floats] | None:
    """Return public bounds as two arrays, (d,) or () each."""
    if bounds is None:
        return None
    try:
        lower, upper = (np.asarray(each, dtype=np.float64) for each in bounds)
        fits = lower.ndim <= 1 and bool((lower <= upper).all())
    except (TypeError, ValueError):
        fits = False
    if not fits or not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ValueError(
            f"bounds must be two finite numbers or two arrays of one for each column, the lower "
            f"first, not {bounds!r}"
        )
    return lower, upper
