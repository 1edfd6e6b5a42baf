"""The unit of weights does not matter: a thousandth of each gives the same centres, to the bit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedcluster.kernels import kmeans, kmeans_plusplus
from fedcluster.kernels.fuzzy import fuzzy_cmeans
from fedcluster.kernels.iteration import lloyd, minibatch_epochs

SMALL = 2.0**-10  # a power of 2, so that nothing is rounded in another way
Rows = np.ndarray


def case(n: int = 60, d: int = 3) -> tuple[Rows, Rows, Rows]:
    """Rows with whole-numbered weights, some of them 0, and four of the rows as centres."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) + 6 * rng.integers(0, 3, (n, 1))
    return X, rng.integers(0, 4, n).astype(float), X[:4].copy()


def one_away(centers: Rows) -> Rows:
    """The last centre where no row is nearest to it."""
    return centers + np.array([[0], [0], [0], [99]])


def by_rng(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **options: function(*args, rng=np.random.default_rng(1), **options)


MOVES: dict[str, Callable[[Rows, Rows, Rows], Rows]] = {
    "lloyd": lambda X, w, C: lloyd(X, C, w).centers,
    "relocated": lambda X, w, C: lloyd(X, one_away(C), w, empty="relocate").centers,
    "dropped": lambda X, w, C: lloyd(X, one_away(C), w, empty="drop").centers,
    "kmeans": lambda X, w, C: by_rng(kmeans)(X, 4, w, n_init=3).centers,
    "unweighted": lambda X, w, C: by_rng(kmeans)(X, 4, w, n_init=3, seeding="unweighted").centers,
    "seeds": lambda X, w, C: by_rng(kmeans_plusplus)(X, 4, w),
    "fuzzy": lambda X, w, C: fuzzy_cmeans(X, C, 2.0, w).centers,
    "minibatch": lambda X, w, C: (
        minibatch_epochs(
            X, C, w, batch_size=7, orders=[np.arange(-(-len(X) // 7))] * 3, rate=0.5
        ).centers
    ),
}


@pytest.mark.parametrize("n", [60, 9000], ids=["small", "large"])
@pytest.mark.parametrize("how", MOVES)
def test_centres_do_not_depend_on_the_unit_of_weights(how: str, n: int) -> None:
    X, weight, centers = case(n)
    assert_array_equal(MOVES[how](X, SMALL * weight, centers), MOVES[how](X, weight, centers))
