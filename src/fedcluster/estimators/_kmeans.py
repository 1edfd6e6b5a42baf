"""FederatedKMeans: clustering over sites under scikit-learn's contract."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fedcluster._choices import ALGORITHMS
from fedcluster.estimators._base import Federated
from fedcluster.kernels import nearest
from fedcluster.preprocessing import on_whole_rows

if TYPE_CHECKING:
    from sklearn.cluster import KMeans


class FederatedKMeans(Federated):
    """K-means over the rows of several sites, as if they lay in one place.

    Each site answers with sums over its rows; the sites of one ``fit`` are simulated in this
    process. On one table without ``sites`` it is an ordinary k-means.

    Parameters
    ----------
    n_clusters : int, "auto" or iterable of int, default=8
        k. "auto" tries 1 to 12 in the same rounds and takes the one that most of four indices
        vote for; a range or a list tries its numbers. ``rule`` names other ways.
    algorithm : {"auto", "lloyd", "fkm", "kfed", "fedavg"} or Algorithm, default="auto"
        "auto" starts from one round of site summaries and refines the best of many starts by
        exact Lloyd in the same rounds; "lloyd" is exact federated Lloyd from ``init``; the others
        are the algorithms of Garst & Reinders, of Dennis, Li & Smith and of Triebe & Rajagopal.
        An algorithm object brings its own parameters.
    init : name, array (k, d) or callable, default="auto"
        Where an algorithm starts that needs a start. "summaries" (which "auto" is): weighted
        k-means of means that the sites send once; "sums": of the leaves of a tree that is grown
        from sums alone; "k-means++" and "random": of seeds that each site draws from its rows; a
        callable ``init(X, n_clusters, random_state)`` draws the seeds at each site, as
        scikit-learn's does. An array is the start itself, and its order that of the clusters.
    n_init : int or "auto", default="auto"
        Starts that are refined in the same rounds; "auto" is 32 for "auto" and 1 otherwise. For
        "fkm" restarts of the server's k-means, 10 by default.
    max_iter : int, default=300
        The largest number of rounds.
    tol : float, default=1e-4
        Converged when the squared Frobenius norm of the centres' move is at most ``tol`` times
        the mean variance of a column.
    random_state : int, RandomState or None, default=None
        Makes every random choice, at the sites and at the server.
    min_cluster_size : int or "auto", default="auto"
        A site holds back every cluster of fewer rows of its own, or of fewer persons where
        ``groups`` names them. "auto" is the algorithm's: 2 for FKM as in the paper; 1, nothing
        held back, for the others, whose result is then exactly the pooled one. A site with a
        single row never takes part, unless this is 1 on purpose.
    participation : float, default=1
        The fraction of the sites that is asked in a round, a new sample each time.
    quality : {"good", "better", "best"}, default="good"
        "better" lets FKM's centres join the starts; "best" goes on from the winner with breathing
        (Fritzke 2020), for many more rounds. For "auto" and "lloyd".
    sums_only : bool, default=False
        Whether only sums may be seen: starts at ``init="sums"``, so that a secure sum could stand
        between the sites and the server.
    prepare : None, "standard", "minmax", "robust" or PreprocessingSpec, default=None
        What is done to the rows of all sites first, from sums: see `PreprocessingSpec`. Rows may
        then have text and missing values; ``cluster_centers_`` are those of prepared rows, and
        ``predict`` prepares new rows alike.
    rule : str or Rule, default="vote"
        How k is chosen where ``n_clusters`` leaves a choice, as in `select_k`.

    Attributes
    ----------
    n_clusters_ : int
        k, as given or chosen.
    selection_ : Selection or None
        Where k was chosen: why, what each index says, and the clustering with each k.
    cluster_centers_ : ndarray of shape (k, d)
        In canonical order, by falling weight, unless ``init`` is an array.
    cluster_weights_ : ndarray of shape (k,)
        The weight behind each centre, as the server learnt it in the last round of training.
    labels_ : ndarray of shape (n,)
        Label of each row, in the order of ``X`` (for a dict or list: site after site); -1 where
        ``prepare`` drops the row.
    preprocessor_ : Preprocessor or None
        What was fitted; ``preprocessor_.invert(cluster_centers_)`` has the units of the rows.
    fit_report_ : Findings or None
        What was met: missing values by site and column, columns that were left out, rare levels.
    site_labels_ : dict of str to ndarray
        The same by site.
    inertia_ : float
        Sum of squared distances to the centres, as the sites report it.
    n_iter_ : int
        Rounds with the sites.
    history_ : list of dict
        One entry for each round of the winning run: inertia, shift, who answered, what was sent.
    sites_ : tuple of SiteInfo
        The sites in the order of their names, with their limits.
    steps_ : list of str
        What the sites were asked, each once, with all its parameters.
    values_sent_ : dict of str to int
        How many numbers each site sent in all: every start, every k tried, the preparation.
    communication_rounds_ : list of dict
        One entry for each round with the sites, of all that they were asked: how many tasks of
        each step, who is missing, what was sent. It adds up to ``values_sent_``.
    rows_held_back_ : dict of str to int
        The most rows that a site's limits held back in one message.
    lone_rows_ : dict of str to int
        The most lines of one message that stood for a single row each.
    stop_reason_ : str
        Why the fit stopped.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (d,)
        Where the tables are data frames with names of type str.

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

    _names = ALGORITHMS

    def __init__(
        self,
        n_clusters: Any = 8,
        *,
        algorithm: Any = "auto",
        init: Any = "auto",
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: Any = None,
        min_cluster_size: Any = "auto",
        participation: float = 1.0,
        quality: str = "good",
        sums_only: bool = False,
        prepare: Any = None,
        rule: Any = "vote",
    ) -> None:
        self.n_clusters = n_clusters
        self.algorithm = algorithm
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.min_cluster_size = min_cluster_size
        self.participation = participation
        self.quality = quality
        self.sums_only = sums_only
        self.prepare = prepare
        self.rule = rule

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> float:
        """Minus the sum of the squared distances of the rows to their nearest centres."""
        squared = on_whole_rows(
            lambda rows: nearest(rows, self.cluster_centers_)[1], self._rows(X), 0.0
        )
        weight = 1.0 if sample_weight is None else np.asarray(sample_weight)
        return -float((squared * weight).sum())

    def to_sklearn(self) -> KMeans:
        """A fitted scikit-learn `KMeans` with the same centres, for tools that know only that.

        It clusters rows that are prepared already, as ``preprocessor_.apply`` prepares them.
        """
        from sklearn.cluster import KMeans  # 10 MB that nothing else needs

        check_is_fitted(self)
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
