"""Answers with noise: how much, on what, of which rows, and what refuses it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import reduce
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from partitions import InChunks
from scipy import stats

from fedcluster.algorithms import Lloyd
from fedcluster.core import Data, Sensitivity, State, Summary, Task
from fedcluster.core.ranges import CENTERS, Allowed, Real
from fedcluster.engines import wire
from fedcluster.engines.batched import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.preprocessing import NumericColumn, Preprocessor
from fedcluster.privacy import Groups, MinClusterSize, MinRows
from fedcluster.privacy.budget import Budget, epsilon_of, noise_of, rho_of
from fedcluster.privacy.disclosure import Disclosure, _mechanism, scales, with_noise

BOX = Preprocessor.in_box(["x0", "x1"], [0.0, -10.0], [4.0, 10.0])
STATE = State.at([[-0.5, 0.0], [0.5, 0.0]])
QUIET = 1e-3
"""The least noise that is drawn: answers are nearly exact."""


@dataclass(frozen=True)
class SumsByCentre:
    """Sums and numbers of the rows nearest to each centre, with a sensitivity."""

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True
    allowed: ClassVar[Allowed] = Allowed({"share": Real(0, 1)}, CENTERS)
    share: float = 0.5

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        return len(state.centers), n_columns

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        return Sensitivity(np.sqrt(n_columns), 1.0, self.share)

    def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Summary:
        nearest = ((data.X[:, None] - state.centers) ** 2).sum(axis=2).argmin(axis=1)
        one = nearest[:, None] == np.arange(len(state.centers))
        return Summary(one.T.astype(float) @ data.X, one.sum(axis=0).astype(float))


def task(noise: float | None = QUIET, **more: Any) -> Task:
    given: dict[str, Any] = {"step": SumsByCentre(), "state": STATE, "preprocessor": BOX}
    return Task(**given | more, noise=noise)


def site(n: int = 50, **how: Any) -> Client:
    rng = np.random.default_rng(n)
    return Client("north", Data(rng.uniform([0, -10], [4, 10], (n, 2))), **how)


# Rows in public bounds


def test_rows_are_scaled_to_the_box_and_never_in_place():
    X = np.array([[0.0, -10.0], [4.0, 10.0], [2.0, 0.0], [np.nan, np.inf], [-9.0, -np.inf]])
    before = X.copy()
    made = BOX.apply(Data(X)).X
    assert made.tolist() == [[-1, -1], [1, 1], [0, 0], [0, 1], [-1, -1]]
    assert X.tobytes() == before.tobytes()
    assert BOX.invert(made[:3].astype(np.float64)).tolist() == X[:3].tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_row_leaves_the_box_and_sums_are_exact_in_any_order(dtype):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_cauchy((5000, 2)), [[1e300, -1e300], [np.nan, np.inf]]])
    columns = NumericColumn("x0", shift=0.3, scale=1e-3), NumericColumn("x1", log=False)
    with np.errstate(over="ignore"):
        made = Preprocessor(columns, missing="keep", box=True).apply(Data(X.astype(dtype))).X
    assert made.dtype == dtype
    assert np.abs(made).max() <= 1
    exact = made.astype(np.float64)
    assert (exact * 2**20 == np.rint(exact * 2**20)).all()
    assert len({exact[rng.permutation(len(exact))].sum(axis=0).tobytes() for _ in range(5)}) == 1


def test_a_box_travels_and_is_kept_with_a_model():
    assert Preprocessor.from_plain(BOX.plain()) == BOX
    assert "box" not in replace(BOX, box=False).plain()
    assert BOX.as_found.box is False
    with pytest.raises(TypeError, match="truth value"):
        Preprocessor.from_plain(BOX.plain() | {"box": 1})
    for low, high in ((1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0)):
        with pytest.raises(InputError, match="column 'age' has the bounds"):
            Preprocessor.in_box(["age"], [low], [high])


# The noise


def test_little_noise_leaves_the_answer_nearly_as_it_is_and_no_two_draws_are_alike() -> None:
    """Though the seed is one."""
    noisy, exact, once, again = site().answers([task(), task(None), task(1.0), task(1.0)])
    assert np.abs(noisy.sums - exact.sums).max() < 0.05
    assert np.abs(noisy.weights - exact.weights).max() < 0.05
    assert (noisy.weights != exact.weights).all()
    assert noisy.support is None
    assert (once.sums != again.sums).all()


def test_noise_has_the_scale_that_was_asked_for():
    """By hand: sigma = noise x sensitivity / sqrt(share), of 8,000 draws."""
    asked = task(2.0, step=SumsByCentre(share=0.2), state=State.at(np.zeros((2000, 2))))
    drawn = with_noise(Summary(np.zeros((2000, 2)), np.zeros(2000)), asked)
    for found, sigma in (
        (drawn.sums.ravel(), 2 * np.sqrt(2) / np.sqrt(0.8)),
        (drawn.weights, 2 / np.sqrt(0.2)),
    ):
        assert stats.kstest(found / sigma, "norm").pvalue > 1e-6
        assert abs(found.std() / sigma - 1) < 6 / np.sqrt(2 * len(found))


def test_shares_of_the_noise_add_up_to_all_of_it():
    """Each of ten sites adds a tenth of the variance; nine of them see the rest as a tenth."""
    asked = task(3.0, state=State.at(np.zeros((500, 2))))
    zero = Summary(np.zeros((500, 2)), np.zeros(500))
    shares = [with_noise(zero, asked, shares=10) for _ in range(10)]
    total = sum((each.weights for each in shares[1:]), shares[0].weights)
    sigma = scales(SumsByCentre().sensitivity(asked.state, 2), 3.0)[1]
    assert abs(total.std() / sigma - 1) < 6 / np.sqrt(2 * 500)
    assert abs(shares[0].weights.std() / (sigma / np.sqrt(10)) - 1) < 6 / np.sqrt(2 * 500)


def test_scales_cost_the_multiplier_and_what_no_record_changes_takes_no_noise():
    assert scales(Sensitivity(0.0, 1.0), 3.0) == (0.0, 3.0)
    assert scales(Sensitivity(2.0, 0.0), 3.0) == (6.0, 0.0)
    for wrong in (Sensitivity(0.0, 0.0), Sensitivity(-1.0, 1.0), Sensitivity(1.0, 1.0, 1.0)):
        with pytest.raises(InputError, match="is no sensitivity"):
            scales(wrong, 1.0)
    for_sums, for_weights = scales(Sensitivity(5.0, 1.0, 0.3), 4.0)
    assert (5 / for_sums) ** 2 + (1 / for_weights) ** 2 == pytest.approx(1 / 16, rel=1e-12)


def test_opendp_agrees_that_the_noise_is_enough():
    """Its own map from sensitivity to rho, on the grid, with all roundings at their worst."""
    noise, sensitivity, n = 1.5, np.sqrt(50), 3000
    step = 2.0 ** (np.floor(np.log2(sensitivity)) - 20)
    raised = 1 + step * np.sqrt(n) / sensitivity
    mechanism = _mechanism(noise * sensitivity * raised / step)
    assert mechanism.map(sensitivity / step + np.sqrt(n)) <= 1 / (2 * noise**2) * (1 + 1e-12)


def test_chunks_get_noise_once():
    rows = site(3000).data.X
    asked = task(2.0, state=State.at(np.linspace(-1, 1, 400)[:, None] * np.ones(2)))
    whole = Client("north", Data(rows)).answer(replace(asked, noise=None))
    parts = Client("north", InChunks(Data(rows), -(-len(rows) // 10)))
    found = (parts.answer(asked).weights - whole.weights).std()
    sigma = scales(SumsByCentre().sensitivity(asked.state, 2), 2.0)[1]
    assert abs(found / sigma - 1) < 6 / np.sqrt(2 * 400)


def test_an_answer_that_is_not_finite_is_no_way_out():
    broken = Summary(np.array([[np.nan, np.inf], [-np.inf, 1e300]]), np.array([np.nan, 5.0]))
    noisy = with_noise(broken, task(1.0))
    assert np.isfinite(noisy.sums).all()
    assert np.isfinite(noisy.weights).all()


# What refuses it


@dataclass(frozen=True)
class Means(SumsByCentre):
    client_additive: ClassVar[bool] = False


WEIGHTED = Client("north", Data(np.ones((9, 2)), np.arange(9.0)))


@pytest.mark.parametrize(
    ("client", "asked", "reason"),
    [
        (site(), task(step=Lloyd()), "Lloyd cannot be asked with noise: its answers have no sens"),
        (site(), task(preprocessor=None), "needs rows in public bounds"),
        (site(), task(preprocessor=replace(BOX, box=False)), "needs rows in public bounds"),
        (site(), task(resampled=1), "rows that are drawn anew"),
        (site(), task(0.0), "noise must be 0.001 to 1e\\+09, not 0.0"),
        (site(), task(-1.0), "noise must be"),
        (site(), task(np.nan), "noise must be"),
        (site(), task(np.inf), "noise must be"),
        (site(), task(step=Means()), "Means cannot be asked with noise"),
        (site(protection=Groups(5)), task(), "groups of rows and noise do not go together"),
        (WEIGHTED, task(), "rows with weights cannot be asked with noise"),
    ],
)
def test_what_cannot_be_asked_with_noise_is_refused_at_the_site(client, asked, reason):
    with pytest.raises(InputError, match=reason):
        client.answer(asked)


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", SimpleNamespace())
    for need in (lambda: site().answer(task(1.0)), lambda: epsilon_of(0.123, 1e-6)):
        with pytest.raises(InputError, match=r'pip install "fedcluster\[privacy\]"'):
            need()


def test_rows_of_persons_in_chunks_are_refused_though_their_number_is_bounded():
    """A person may have that many rows in each chunk."""
    rows, rules = Data(np.ones((9, 2)), groups=np.arange(9) // 3), Disclosure(rows_per_person=2)
    assert Client("n", rows, rules).answer(task()).weights.sum() == pytest.approx(6, abs=0.1)
    chunks = InChunks(rows.take(np.tile(np.arange(9), 2)), 9, ("group",))
    for client in (Client("north", chunks, rules), Client("north", rows)):
        with pytest.raises(InputError, match="rows that say whose they are need a group_size"):
            client.answer(task())


# What leaves besides


def test_limits_decide_nothing_about_an_answer_with_noise():
    """What a limit holds back tells an exact count; so do lines that noise makes negative."""
    client = site(5, filters=(MinRows(100), MinClusterSize(100)))
    assert client.answer(task()).weights.all()
    assert not client.answer(task(None)).weights.any()
    noisy, exact = client.audit_log
    assert (noisy.lone_rows, noisy.held_back, noisy.lines, noisy.noise) == (0, 0, 2, QUIET)
    assert (exact.held_back, exact.noise) == (5, None)
    client = site()
    assert any((client.answer(task(100.0)).weights < 0).any() for _ in range(20))
    assert {each.held_back for each in client.audit_log} == {0}


def test_rows_that_are_all_dropped_answer_like_any_others():
    """That there are none left is an exact count, too."""
    nothing = Data(np.full((3, 2), np.nan))
    columns = tuple(replace(column, fill=None) for column in BOX.columns)
    how = Preprocessor(columns, missing="drop", box=True)
    for rows in (nothing, InChunks(nothing, 3)):
        assert Client("north", rows).answer(task(1.0, preprocessor=how)).weights.all()
    with pytest.raises(ValueError, match="no row is left"):
        Client("north", nothing).answer(task(None, preprocessor=how))


def test_many_small_sites_add_their_own_noise():
    sites = [Client(f"s{i}", Data(np.full((4, 2), 1.0))) for i in range(70)]
    [exact] = LocalEngine(sites).ask([task(None, step=SumsByCentre())])
    [noisy] = LocalEngine(sites).ask([task(1.0)])
    assert len({each.weights.tobytes() for each in noisy.summaries}) == 70
    assert exact.total().weights.sum() == 280


def test_noise_travels():
    headers, arrays = wire.write_tasks([task(0.5, step=Lloyd()), task(None, step=Lloyd())])
    with_it, without = wire.read_tasks(headers, arrays, preprocessors=Preprocessor.from_plain)
    assert (with_it.noise, without.noise) == (0.5, None)
    for wrong in (0.0, -1.0, "1", None, True, 1, float("inf"), float("nan")):
        with pytest.raises(wire.WireError, match="task 0 is not whole"):
            wire.read_tasks([{**headers[0], "noise": wrong}], arrays)


# What it costs


def test_costs_add_up_as_published():
    """The table of exact costs at delta 1e-6 (Dong, Roth and Su; by hand from the normal law)."""
    for epsilon, rho in ((0.1, 0.00038), (0.5, 0.00770), (1, 0.02801), (2, 0.1005), (4, 0.351)):
        assert Budget(epsilon, 1e-6).rho == pytest.approx(rho, rel=0.01)
        assert Budget(epsilon, 1e-6).spent(Budget(epsilon, 1e-6).rho) <= epsilon
    assert rho_of([3.0, 4.0]) == pytest.approx(1 / 18 + 1 / 32)
    assert noise_of(rho_of([2.5])) == pytest.approx(2.5)
    assert rho_of([1.0, None]) == np.inf  # what has no noise costs everything
    assert epsilon_of(np.inf, 1e-6) == np.inf
    assert epsilon_of(0.0, 1e-6) == 0


def test_dp_accounting_agrees_on_the_composition_of_discrete_noise():
    """Twelve answers with the discrete Gaussian, composed by dp-accounting step by step."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    noises = [2.0, 5.0, *[8.0] * 10]
    each = [pld.from_discrete_gaussian_mechanism(32 * noise, sensitivity=32) for noise in noises]
    found = reduce(lambda one, other: one.compose(other), each).get_epsilon_for_delta(1e-6)
    assert epsilon_of(rho_of(noises), 1e-6) == pytest.approx(found, rel=2e-3)


def test_a_group_of_records_costs_its_square():
    alone, three = Budget(3.0, 1e-6), Budget(3.0, 1e-6, group_size=3)
    assert three.rho == pytest.approx(alone.rho / 9)
    assert three.spent(three.rho) == pytest.approx(3.0, rel=1e-4)
    assert three.allows(three.rho)
    assert not three.allows(three.rho * 1.001)


@pytest.mark.parametrize(
    "wrong", [(0, 1e-6), (-1, 1e-6), (101, 1e-6), (np.nan, 1e-6), (1, 0), (1, 0.5), (1, np.nan)]
)
def test_a_budget_is_refused_that_promises_nothing(wrong):
    with pytest.raises(InputError, match="must be"):
        Budget(*wrong)


def test_rounding_to_a_grid_is_paid_for_by_more_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding n numbers to steps s may raise a sensitivity D by s sqrt(n), and so is the noise.

    By hand: D = 3 has the step 2^(1 - 20), D = 1 the step 2^-20; of four sums and two weights.
    """
    drawn: list[tuple[int, float]] = []

    def mechanism(scale: float) -> Any:
        def exact(whole: list[int]) -> list[int]:
            drawn.append((len(whole), scale))
            return whole

        return exact

    @dataclass(frozen=True)
    class Threefold(SumsByCentre):
        def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
            return Sensitivity(3.0, 1.0, self.share)

    monkeypatch.setattr("fedcluster.privacy.disclosure._mechanism", mechanism)
    noisy = with_noise(Summary(np.ones((2, 2)), np.ones(2)), task(8.0, step=Threefold()))
    np.testing.assert_array_equal(noisy.sums, np.ones((2, 2)))
    for_sums, for_weights = scales(Sensitivity(3.0, 1.0), 8.0)
    exact = [2.0**19 * for_sums * (1 + 2.0**-19 * 2 / 3), 2.0**20 * for_weights]
    exact[1] *= 1 + 2.0**-20 * np.sqrt(2)
    assert [n for n, _ in drawn] == [4, 2]
    np.testing.assert_allclose([scale for _, scale in drawn], exact, rtol=1e-12)
