"""Federated k-means with a k-means at the server (FKM).

S. Garst & M. Reinders, Federated K-means clustering, ICPR 2024; arXiv 2310.01195, algorithm 1.

    round 0   site i:   C_i = k-means++ seeds of X_i,  S_ij = number of rows nearest to C_ij
    round r   server:   C = weighted k-means of all C_ij with weights S_ij
              site i:   drop the centres of C that none of its rows is nearest to,
                        C_i = one Lloyd iteration from the rest, S_ij = rows nearest to C_ij
    always    a site sends (C_ij, S_ij) only if S_ij >= p  (its filter MinClusterSize(p), p = 2)

The answer to round r = 0, 1, ... makes the server's aggregate r + 1, which is the one that the
paper scores as round r + 1; there is no test of convergence, ``tol`` adds one.

Where the papers and the authors' programs differ, each way is one field:

- ``init_iterations``: the arXiv text and the programs of 2023 send the seeds themselves, which
  are rows of the site; the programs of 2024 send them after Lloyd iterations.
- ``server_seeding`` and ``server_n_init``: the runs of 2023 drew seeds at the server without
  regard to the weights and kept the best of ten restarts; those of 2024 drew by weight, once.
- ``empty_clusters``: the ablation "retain" let empty clusters jump to the farthest row.

`FKM.paper`, `FKM.program_2023` and `FKM.program_2024` set them all.

Deviation: fewer than k centres received in the first round is an error, in a later round the
centres stay as they were (the programs fail there, the paper is silent).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.random import Generator

from fedcluster.algorithms.merging import as_sums, pool, site_tolerance, tolerance, too_few
from fedcluster.core import Data, FitParameters, Floats, State, Summary, ranges
from fedcluster.kernels import kmeans, kmeans_plusplus
from fedcluster.kernels.iteration import LloydFit, lloyd
from fedcluster.metrics import Inertia


@dataclass(frozen=True, slots=True)
class FKM:
    """FKM (Garst & Reinders), with all its switches.

    Parameters
    ----------
    n_clusters : int
        K, at the server; a site with fewer rows sends fewer centres.
    local_iterations : int, default=1
        I, Lloyd iterations at a site in a round.
    client_init : {"k-means++", "random"} or callable, default="k-means++"
        How a site draws its seeds; a callable ``client_init(X, k, random_state=seed)`` returns
        them, (k, d).
    client_n_init : int, default=1
        Number of draws at a site, of which the best is kept; the programs of 2024 used 10 with
        "random".
    init_iterations : int, default=1
        Lloyd iterations on a site's seeds before they are sent. With 0 (the paper), rows themselves
        are sent, each as the centre of at least p rows.
    empty_clusters : {"drop", "relocate", "keep"}, default="drop"
        What a site does with centres that none of its rows is nearest to: drop them (the paper),
        move them to the farthest rows during the iteration (the ablation "retain"), or keep them in
        place.
    weighted : bool, default=True
        Whether the server weights a centre by its number of rows.
    server_seeding : {"weighted", "unweighted"}, default="weighted"
        Whether the server's k-means++ draws centres by weight.
    server_n_init : int, default=10
        Restarts of the server's k-means.
    tol : float, default=0
        Stop when the squared Frobenius norm of the centres' move is at most ``tol`` times the mean
        variance of a column of the received centres. The paper has no such test: with 0, all rounds
        are run.

    Notes
    -----
    A site sends at most k (d + 1) numbers a round. The p-rule is the site's filter.

    Examples
    --------
    >>> rows = Data(np.array([[0.0], [0.0], [8.0], [8.0]]))
    >>> fkm, rng = FKM(n_clusters=2), np.random.default_rng(0)
    >>> answer = fkm.client_step(State(), rows, rng)
    >>> np.sort(answer.sums / answer.weights[:, None], axis=0)
    array([[0.],
           [8.]])
    """

    allowed = ranges.Allowed(
        {
            "n_clusters": ranges.CLUSTERS,
            "client_init": ranges.OneOf(("k-means++", "random")),
            "client_n_init": ranges.Whole(1, 10),
            # at least one iteration: the seeds themselves are rows
            "init_iterations": ranges.Whole(1, 20),
            "weighted": ranges.EITHER,
            "server_seeding": ranges.OneOf(("weighted", "unweighted")),
            "server_n_init": ranges.Whole(1, 1_000_000),
            "tol": ranges.TOLERANCE,
        },
        ranges.ANY_CENTERS,
    )
    client_additive = server_additive = needs_centers = False
    min_cluster_size = 2
    objective = Inertia
    """The p of the paper, which a site applies unless it sets its own limit."""

    n_clusters: int
    local_iterations: int = 1
    client_init: Literal["k-means++", "random"] | Callable[..., Any] = "k-means++"
    client_n_init: int = 1
    init_iterations: int = 1
    empty_clusters: Literal["drop", "relocate", "keep"] = "drop"
    weighted: bool = True
    server_seeding: Literal["weighted", "unweighted"] = "weighted"
    server_n_init: int = 10
    tol: float = 0.0

    @classmethod
    def from_fit(cls, fit: FitParameters) -> Self:
        """Return the algorithm with the parameters of a fit."""
        return cls(
            fit.n_clusters,
            client_init=site_seeding(fit.init),
            server_n_init=fit.n_init or 10,
            tol=fit.tol,
        )

    @classmethod
    def paper(cls, n_clusters: int) -> Self:
        """Return algorithm 1 of the texts (arXiv 2310.01195, ICPR 2024).

        Sites send their seeds, which are rows. The server runs weighted k-means; the texts leave
        its start open, and here it is the best of ten runs from seeds drawn by weight. So it
        differs from `program_2023` in ``server_seeding``, and finds better clusters.

        Parameters
        ----------
        n_clusters : int
            K.

        Examples
        --------
        >>> fkm = FKM.paper(16)
        >>> fkm.init_iterations, fkm.server_seeding, fkm.server_n_init
        (0, 'weighted', 10)
        """
        return cls(n_clusters, init_iterations=0, server_seeding="weighted", server_n_init=10)

    @classmethod
    def program_2023(cls, n_clusters: int) -> Self:
        """Return the program of 2023, which made all figures of the ICPR paper but 4 and 7.

        As in the texts; the server's k-means is scikit-learn's of the time: the best of ten runs,
        with seeds drawn without regard to weights (archive/fed_kmeans_V2.py of swiergarst/fedKMeans
        at b1f39cf; the version, 1.0.2 or before, is inferred from the numbers).

        Parameters
        ----------
        n_clusters : int
            K.

        Examples
        --------
        >>> fkm = FKM.program_2023(16)
        >>> fkm.init_iterations, fkm.server_seeding, fkm.server_n_init
        (0, 'unweighted', 10)
        """
        return cls(n_clusters, init_iterations=0, server_seeding="unweighted", server_n_init=10)

    @classmethod
    def program_2024(cls, n_clusters: int) -> Self:
        """Return the program of 2024, which made figures 4 and 7 of the ICPR paper.

        Unlike the texts, sites send their seeds after a Lloyd iteration, and the server's k-means,
        scikit-learn's of 2024, runs once, from seeds drawn by weight (fed_kmeans.py of
        swiergarst/fedKMeans at b1f39cf).

        Parameters
        ----------
        n_clusters : int
            K.

        Examples
        --------
        >>> fkm = FKM.program_2024(16)
        >>> fkm.init_iterations, fkm.server_seeding, fkm.server_n_init
        (1, 'weighted', 1)
        """
        return cls(n_clusters, init_iterations=1, server_seeding="weighted", server_n_init=1)

    @property
    def is_published(self) -> bool:
        """True if a site drops empty centres and takes one iteration, as published."""
        return self.local_iterations == 1 and self.empty_clusters == "drop"

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: any number of local centres."""
        return None, n_columns

    def line_bounds(self, state: State, box: ranges.Box) -> ranges.LineBounds:
        """Return the bounds of an answer: means of rows; an empty centre stays."""
        box = box.around(state.centers)
        return ranges.LineBounds(box.low, box.high)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Run the client's part of algorithm 1: local centres with their numbers of rows."""
        if len(state.centers):
            fit = _iterate(data, state.centers, self.local_iterations, empty=self.empty_clusters)
        else:
            fit = self._init(data, rng)
        return as_sums(fit.centers, fit.weights, fit.counts)

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Run the server's part of algorithm 1: weighted k-means of the centres received."""
        centers, sizes = pool(answers)
        if len(centers) < self.n_clusters:
            if not len(state.centers):
                raise too_few("FKM", self.n_clusters, len(centers))
            return State(state.centers, state.weights, round=state.round + 1)
        fit = kmeans(
            centers,
            self.n_clusters,
            sizes if self.weighted else None,
            rng=rng,
            n_init=self.server_n_init,
            seeding=self.server_seeding,
        )
        rows = np.bincount(fit.labels, sizes, self.n_clusters).astype(np.float64)
        settled = self._settled(state.centers, fit.centers, tolerance(centers, self.tol))
        return State(fit.centers, rows, round=state.round + 1, converged=settled)

    def _settled(self, before: Floats, after: Floats, tolerated: float) -> bool:
        """Return whether the centres, in any order, moved by no more than the tolerance."""
        if not self.tol or before.shape != after.shape:
            return False
        before, after = (c[np.lexsort(c.T)] for c in (before, after))
        return float(((after - before) ** 2).sum()) <= tolerated

    def _init(self, data: Data, rng: Generator) -> LloydFit:
        """Return the best, by inertia, of ``client_n_init`` draws of min(n, k) seeds."""
        data = data.canonical()
        k = min(len(data), self.n_clusters)
        fits = [self._seeded(data, k, rng) for _ in range(self.client_n_init)]
        return min(fits, key=lambda fit: fit.inertia)

    def _seeded(self, data: Data, k: int, rng: Generator) -> LloydFit:
        """Draw seeds, and run Lloyd iterations on them if requested."""
        if callable(self.client_init):
            seeds = self.client_init(data.X, k, random_state=int(rng.integers(2**31)))
        elif self.client_init == "k-means++":
            seeds = data.X[kmeans_plusplus(data.X, k, data.sample_weight, rng=rng)]
        else:
            seeds = data.X[rng.choice(len(data), size=k, replace=False)]
        return _iterate(data, np.asarray(seeds), self.init_iterations, empty="relocate")


def _iterate(
    data: Data, centers: Floats, iterations: int, *, empty: Literal["drop", "relocate", "keep"]
) -> LloydFit:
    """Run Lloyd iterations; count rows at the updated centres, as scikit-learn does."""
    return lloyd(
        data.X,
        centers.astype(np.float64),
        data.sample_weight,
        max_iter=iterations,
        tol=site_tolerance(data, 1e-4),
        empty=empty,
    )


def site_seeding(init: Any) -> Any:
    """Return the seeding at the sites that ``init`` names; k-means++ if it names none."""
    return init if callable(init) or (isinstance(init, str) and init == "random") else "k-means++"
