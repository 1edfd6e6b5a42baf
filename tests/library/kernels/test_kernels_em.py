"""The pass of EM: equal to its formulas for any number of columns, and on any number of threads."""

import numpy as np
import pytest

from fedcluster.kernels.em import Densities, Moments, em_pass, log_densities

K = 3
KINDS = ("diag", "tied", "full")


def components(kind: str, p: int) -> Densities:
    rng = np.random.default_rng(p)
    factors = {
        "diag": rng.uniform(0.5, 2.0, (K, p)),
        "tied": np.triu(rng.normal(size=(1, p, p))),
        "full": np.triu(rng.normal(size=(K, p, p))),
    }[kind]
    offsets, places = np.log([0.2, 0.3, 0.5]), np.arange(p)
    return Densities(
        rng.normal(size=(K, p)), factors, offsets, np.zeros((K, 0)), places, places[:0]
    )


def by_definition(X: np.ndarray, weight: np.ndarray, of: Densities) -> Moments:
    """The same sums from the formulas, without blocks."""
    apart = X[:, None] - of.means
    if of.factors.ndim == 2:
        turned = apart * of.factors
    else:
        turned = np.einsum(
            "njp,jpq->njq", apart, np.broadcast_to(of.factors, (K, *of.factors[0].shape))
        )
    logs = of.offsets - (turned**2).sum(axis=2) / 2
    likelihood = np.logaddexp.reduce(logs, axis=1)
    tau = np.exp(logs - likelihood[:, None])
    weighed = tau * weight[:, None]
    if of.factors.ndim == 2:
        second = np.einsum("nj,njp->jp", weighed, apart**2)
    else:
        second = np.triu(np.einsum("nj,njp,njq->jpq", weighed, apart, apart))
        second = second if len(of.factors) > 1 else second.sum(axis=0, keepdims=True)
    tallies = np.array([weighed.sum(0), tau[weight > 0].sum(0), (weighed.T * likelihood).sum(1)])
    return Moments(tallies, np.einsum("nj,njp->jp", weighed, apart), second, np.zeros((K, 0)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 2, 5, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_sums_are_those_of_the_formulas(kind: str, p: int, dtype: type) -> None:
    """With 300 rows: two blocks and a part of one."""
    rng = np.random.default_rng(1)
    X: np.ndarray = rng.normal(size=(300, p)).astype(dtype)
    weight = rng.integers(0, 3, 300).astype(float)
    of = components(kind, p)
    for ours, theirs in zip(em_pass(X, of, weight), by_definition(X, weight, of), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


def test_a_row_far_from_all_components_has_a_likelihood() -> None:
    """Its densities are 0 in floats; their logs are not."""
    of = components("diag", 5)
    X = np.array([[1e3] * 5])
    [log] = np.logaddexp.reduce(log_densities(X, of), axis=1)
    sums = em_pass(X, of)
    assert log < -1e5
    np.testing.assert_allclose(sums.tallies[2].sum(), log, rtol=1e-12)
    np.testing.assert_allclose(sums.tallies[0].sum(), 1.0, rtol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_do_not_depend_on_threads(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, of = np.random.default_rng(2).normal(size=(50_000, 32)), components(kind, 32)
    seen = []
    for n_threads in ("1", "2", "5"):
        monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", n_threads)
        seen.append(b"".join(np.asarray(sums).tobytes() for sums in em_pass(X, of)))
    assert seen[0] == seen[1] == seen[2]
