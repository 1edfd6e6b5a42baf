"""The laws of addition, for every step and algorithm: one row of a table each."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partitions import Case, cases

from fedcluster import algorithms, metrics, preprocessing
from fedcluster.algorithms import (
    FFCM,
    FKM,
    FedAvg,
    GaussianMixture,
    IncompleteKMeans,
    KFed,
    Lloyd,
    MergedMixture,
    RelativeLloyd,
    SiteSummaries,
    SphericalKMeans,
    TrimmedLloyd,
    VarianceTree,
)
from fedcluster.algorithms.gaussian_mixture import merged_state
from fedcluster.algorithms.private import BallScatter, BoxMoments, GridCells
from fedcluster.core import (
    Algorithm,
    Data,
    FitParameters,
    Metric,
    State,
    Step,
    Summary,
    Task,
    check_step,
)
from fedcluster.engines import wire
from fedcluster.extend import Allowed, Array
from fedcluster.metrics import FuzzyObjective, Inertia
from fedcluster.metrics.clusters import Scatter, Spread
from fedcluster.metrics.columns import AxisCounts, ClusterCells, ClusterColumns, ColumnShape
from fedcluster.metrics.external import Agreement, Contingency, Separation, SiteARI
from fedcluster.metrics.gaussians import (
    ColumnSpread,
    LogLikelihood,
    MixtureLikelihood,
    MixtureOverlap,
)
from fedcluster.metrics.leaves import LeafMoments, begun
from fedcluster.metrics.moments import Means, Moments, SiteSize, Squares
from fedcluster.metrics.objectives import FuzzyScatter, PresentInertia
from fedcluster.metrics.silhouettes import (
    ClusterSilhouettes,
    SimplifiedSilhouette,
    SquaredSilhouette,
)
from fedcluster.preprocessing.moments import Covariance, Histogram, Missing
from fedcluster.testing import LAWS, Example, check_laws

DESIGN = Path(__file__).parents[3] / "docs" / "design.md"

ALGORITHMS: list[Algorithm] = [
    Lloyd(),
    SphericalKMeans(),
    IncompleteKMeans(),
    FKM(2),
    KFed(2),
    FedAvg(epochs=2, batch_size=5, client_rate=0.5),
    FFCM(),
    FFCM(m=1.0),
    FFCM(m=1.5, averaging="avg_2", local="converge", support="u"),
    FFCM.program_2021(averaging="avg_2"),
    SiteSummaries(4),
    VarianceTree(4),
    VarianceTree(4, passes=2),
    GaussianMixture(),
    GaussianMixture("tied", log_noise=-9.0, shrinkage=2.0),
    GaussianMixture("diag", levels=True, floors=True),
    GaussianMixture("spherical", min_weight=2.0),
    TrimmedLloyd(0.25),
    RelativeLloyd(),
]
METRICS: list[Step] = [
    Inertia(),
    PresentInertia(),
    FuzzyObjective(1.5),
    Scatter(),
    Spread(),
    SimplifiedSilhouette(),
    SquaredSilhouette(),
    ClusterSilhouettes(),
    FuzzyScatter(1.5),
    ColumnSpread(),
    MixtureLikelihood(),
    LogLikelihood("spherical"),
    LogLikelihood("spherical", merged=True),
    MixtureOverlap("spherical"),
    MergedMixture("spherical"),
    ColumnShape(),
    AxisCounts(),
    LeafMoments(),
    LeafMoments(products=False, gaps=True),
    Moments(),
    Contingency.from_classes(range(3)),
    Contingency.from_classes(range(2), complete=False),
    SiteARI(),
    SiteSize(),
    ClusterColumns(),
    ClusterCells(),
    Agreement(2),
    Agreement(2, True, "spherical"),
    Separation(),
]
PREPARATION: list[Step] = [Missing(), Means(), Squares(), Histogram(), Covariance()]
PRIVATE: list[Step] = [BoxMoments(), BallScatter(), GridCells(), GridCells(means=True)]
STEPS: list[Step] = [*ALGORITHMS, *METRICS, *PREPARATION, *PRIVATE]


def by_name(steps: Sequence[Step]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("step", steps, ids=lambda step: type(step).__name__)


def asked(step: Step, centers: np.ndarray) -> State:
    """A state that the step may be asked about; a tree grows its own."""
    if isinstance(step, Histogram):
        edges = np.sort(np.append(centers[:, 0], [-np.inf, np.inf]))
        return State(memory={"columns": np.zeros(1), "edges": edges[None, :]})
    if isinstance(step, VarianceTree):
        return _in_a_pass(centers) if step.passes else State()
    if isinstance(step, ColumnShape):
        memory = {"shift": centers[0] + 0.5, "scale": np.full(centers.shape[1], 0.5)}
        return State(centers[:1], np.zeros(1), memory=memory)
    if isinstance(step, ClusterColumns | ClusterCells | Separation):
        return _of_clusters(step, centers)
    if isinstance(step, RelativeLloyd | BallScatter | BoxMoments | GridCells):
        return _private(step, centers)
    if isinstance(step, AxisCounts):
        edges = np.array([-np.inf, -3.0, 0.0, 0.25, 4.0, np.inf])
        memory = {"axes": np.eye(centers.shape[1])[:2] + 0.25, "edges": edges}
        return State(centers[:1], np.zeros(1), memory=memory)
    merged = getattr(step, "merged", False)
    if merged or isinstance(step, LogLikelihood | MixtureOverlap | MergedMixture | LeafMoments):
        return _of_mixtures(step, centers)
    if isinstance(
        step, Spread | SquaredSilhouette | MixtureLikelihood
    ):  # what a first round tells of the clusters
        k = len(centers)
        memory = {"means": centers + 0.5, "variances": np.arange(float(k))}
        if isinstance(step, MixtureLikelihood):
            memory = {"means": centers + 0.5, "columns": np.arange(1.0, centers.shape[1] + 1)}
        return State(centers, np.arange(1.0, k + 1), memory=memory)
    return State.at(centers)


def _of_mixtures(step: Step, centers: np.ndarray) -> State:
    """A state of steps about leaves, components, or clusters of components."""
    k, d = centers.shape
    if isinstance(step, LeafMoments):
        return begun(centers, np.arange(1.0, d + 1), np.zeros(d))
    factors, weights = 1.0 / np.arange(1.0, k + 1), np.arange(1.0, k + 1)
    mixture = GaussianMixture("spherical").start(centers, weights, precisions_cholesky=factors)
    if isinstance(step, MergedMixture) or getattr(step, "merged", False):
        groups = [list(range(k))[:2], *([j] for j in range(2, k))]
        return merged_state(MergedMixture("spherical"), mixture, groups)
    return mixture


def _of_clusters(step: Step, centers: np.ndarray) -> State:
    """A state of steps that tell clusters of one another."""
    k, d = centers.shape
    edges = np.stack([centers[:, :1] + width for width in (-np.inf, -3.0, 0.0, 4.0)], axis=2)
    memory: dict[type, dict[str, Any]] = {
        ClusterColumns: {"texts": np.zeros(d)},
        ClusterCells: {"columns": np.zeros(1), "edges": edges, "overall": edges[0]},
        Separation: {"neighbours": (np.arange(k) + 1.0) % k},
    }
    return State(centers, np.zeros(k), memory=memory[type(step)])


def _private(step: Step, centers: np.ndarray) -> State:
    """A state of steps that are made for noise; boundaries lie between whole numbers."""
    if isinstance(step, BoxMoments):
        return State()
    axes = np.eye(centers.shape[1])[:2]
    ends = {"low": np.full(len(axes), -4.0), "high": np.full(len(axes), 4.0)}
    memory: dict[type, dict[str, Any]] = {
        RelativeLloyd: {"radius": np.arange(1.0, len(centers) + 1.0)},
        BallScatter: {"radius": np.array([4.0])},
        GridCells: {"axes": axes, **ends, "bins": np.full(len(axes), 4.0), "radius": np.ones(1)},
    }
    some = centers if isinstance(step, RelativeLloyd) else centers[:1] + 0.25
    return State(some, np.zeros(len(some)), memory=memory[type(step)])


def _in_a_pass(centers: np.ndarray) -> State:
    """The state of a tree that has grown, in its first pass."""
    cuts = dict.fromkeys(("parent", "child", "feature", "threshold"), np.zeros(0))
    leaves = dict.fromkeys(("undone", "column", "value"), np.zeros(len(centers)))
    return State(centers, np.ones(len(centers)), memory={**cuts, **leaves, "pass": np.ones(1)})


def example(case: Case) -> Example:
    return Example(case.pooled, case.site)


def test_every_step_that_a_site_knows_stands_in_the_table() -> None:
    known = {wire.step_of(step) for step in wire.STEPS.values()}
    defined = {
        step
        for package in (algorithms, metrics, preprocessing)
        for each in iter_modules(package.__path__)
        for step in vars(import_module(f"{package.__name__}.{each.name}")).values()
        if hasattr(step, "client_step") and step.__module__.startswith(package.__name__)
    }
    assert {type(step) for step in STEPS} >= known == defined


EXAMPLES = settings().max_examples
"""Of a property of every step, which is tried for each of them."""


@by_name(STEPS)
@settings(max_examples=EXAMPLES // 4)
@given(case=cases())
def test_every_law_holds(step: Step, case: Case) -> None:
    """On whole-numbered rows with ties and twins, at offsets, with weights or without."""
    quick = [law for law in LAWS if law not in (*REPEATED, *REGULAR)]
    check_laws(step, example(case), [asked(step, case.centers)], n_rounds=1, laws=quick)


REPEATED = ("support", "single rows", "answers", "convergence")
"""Laws that ask a step many times."""
REGULAR = ("precision", "memory")
"""Laws of rows near 0 with clusters that move: rows of 32 bits far from 0 are others than those of
64 bits, and rows at one place leave a memory as it was."""


@by_name(STEPS)
@settings(max_examples=EXAMPLES // 6)
@given(case=cases())
def test_laws_that_take_many_answers_hold(step: Step, case: Case) -> None:
    check_laws(step, example(case), [asked(step, case.centers)], n_rounds=1, laws=REPEATED)


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 5))]


@by_name(ALGORITHMS)
@pytest.mark.parametrize("seed", SEEDS)
def test_all_laws_hold_over_several_rounds(step: Algorithm, seed: int) -> None:
    """On rows without ties, which rounding would decide from the second round on."""
    check_laws(step, Example.random(seed), n_rounds=5)


@by_name(ALGORITHMS)
def test_an_algorithm_declares_what_it_needs(step: Algorithm) -> None:
    check_step(step, Algorithm)
    check_step(type(step), Algorithm)
    assert step.needs_centers in (True, False)
    assert step.min_cluster_size >= 1
    check_step(step.objective(), Metric)
    with pytest.raises(TypeError, match=r"^Inertia lacks needs_centers, min_cluster_size, obj"):
        check_step(Inertia(), Algorithm)


def assert_close(a: Summary, b: Summary) -> None:
    scale = 1.0 + np.abs(a.sums).max(initial=0.0)
    np.testing.assert_allclose(a.sums, b.sums, rtol=1e-11, atol=1e-11 * scale)
    np.testing.assert_allclose(a.weights, b.weights, rtol=1e-11)
    np.testing.assert_allclose(a.rows, b.rows, rtol=1e-11)


def test_a_fuzzy_algorithm_makes_the_fuzzy_objective_small_unless_it_is_hard() -> None:
    for m in (1.0001, 1.5, 2.0, 3.0):
        assert FFCM(m).objective() == FuzzyObjective(m)
    assert FFCM(1.0).objective() == Lloyd().objective() == Inertia()


@given(seed=st.integers(0, 2**32 - 1))
def test_any_seed_survives_the_wire(seed: int) -> None:
    headers, arrays = wire.write_tasks([Task(FKM(2), State(), seed)])
    header, received = wire.unpack(wire.pack({"tasks": headers}, arrays))
    [there] = wire.read_tasks(header["tasks"], received)
    assert (there.seed, there.step) == (seed, FKM(2))


CLIENTS: dict[str, Callable[[Summary, Data], Summary]] = {
    "average": lambda s, data: Summary(s.sums / len(data), s.weights, s.support),
    "count": lambda s, data: Summary(s.sums, np.sign(s.weights), s.support),
    "support": lambda s, data: Summary(s.sums, s.weights, np.ones_like(s.weights)),
    "order": lambda s, data: replace(s, sums=s.sums + np.arange(len(data)) @ data.X[:, 0]),
}


@dataclass(frozen=True)
class Broken:
    """Exact Lloyd, but for one thing, from the second round on: the memory says when."""

    how: str = ""
    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True
    needs_centers: ClassVar[bool] = True
    allowed: ClassVar[Allowed] = Allowed(memory={"told": Array(("one",))}, optional=True)

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        return len(state.centers), n_columns + 1 + (self.how == "shape" and state.round > 0)

    def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Summary:
        sums = Lloyd().client_step(state, data, rng)
        if "told" not in state.memory:
            return sums
        if self.how == "mutates":
            data.X[0] += 1e-3
        if self.how == "remembers":
            data.cache["asked"] = data.cache.get("asked", 0) + 1
            return Summary(sums.sums + data.cache["asked"], sums.weights, sums.support)
        return CLIENTS[self.how](sums, data) if self.how in CLIENTS else sums

    def server_step(self, state: State, answers: Sequence[Summary], rng: Any) -> State:
        new = Lloyd().server_step(state, answers, rng)
        memory = {"told": np.ones(1)}
        if self.how == "answers" and state.memory:
            memory["told"][0] += len(answers)
        if self.how == "centers" and state.memory:
            new.centers[0] += len(answers)
        return replace(new, memory=memory)


def test_the_step_that_is_broken_in_no_way_keeps_all_laws() -> None:
    check_laws(Broken())


@pytest.mark.parametrize(
    ("how", "law"),
    [
        ("average", "client_additive"),
        ("count", "client_additive"),
        ("support", "client_additive"),
        ("centers", "server_additive"),
        ("answers", "server_additive"),
        ("shape", "answer_shape"),
        ("order", "order of rows"),
        ("mutates", "purity"),
        ("remembers", "purity"),
    ],
)
def test_a_step_that_is_broken_through_its_memory_is_caught(how: str, law: str) -> None:
    """Not in its first round, when the memory is empty; by any example."""
    of_a_round = [name for name in LAWS if name != "convergence"]  # which looks at all rounds
    check_laws(Broken(how), n_rounds=1, laws=of_a_round)
    for seed in range(3):
        with pytest.raises(AssertionError, match=f'breaks the law "{law}" in round 2'):
            check_laws(Broken(how), Example.random(seed), laws=[law])
    with pytest.raises(AssertionError, match="in round 2"):
        check_laws(Broken(how), laws=of_a_round)


def test_a_field_that_cannot_travel_is_caught() -> None:
    with pytest.raises(AssertionError, match='breaks the law "fields" in round 1'):
        check_laws(Broken(("a", "b")))  # type: ignore[arg-type]


def test_a_step_that_lacks_a_declaration_is_told_so() -> None:
    with pytest.raises(TypeError, match="object lacks client_additive, server_additive, answer"):
        check_laws(object())  # type: ignore[arg-type]


def lines_of_the_table(head: str) -> list[list[str]]:
    """The cells of a table in docs/design.md."""
    text = DESIGN.read_text("utf-8")
    table = text[text.index(head) :].split("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def test_the_exceptions_from_the_laws_in_the_design_are_what_the_steps_declare() -> None:
    known = {type(step).__name__: type(step) for step in STEPS}
    exceptions: dict[str, list[str]] = {}
    for first, *laws in lines_of_the_table("| step | client_additive |"):
        for text in re.findall(r"`([^`]+)`", first):
            exceptions[text] = laws
    for text in [each for each in exceptions if "(" in each]:
        assert declared(eval(text, {}, known)) == exceptions.pop(text), text
    assert declared(FFCM()) == ["yes", "yes"]
    for step in STEPS:
        if not isinstance(step, FFCM):
            assert declared(step) == exceptions.get(type(step).__name__, ["yes", "yes"]), step
    assert exceptions.keys() < known.keys()


def declared(step: Step) -> list[str]:
    """Both laws, as the table has them."""
    return ["no" if not law else "yes" for law in (step.client_additive, step.server_additive)]


def test_the_table_of_what_a_site_sends_names_every_step() -> None:
    lines = lines_of_the_table("| step | a site sends |")
    named = {name for first, _ in lines for name in re.findall(r"`(\w+)[(`]", first)}
    assert lines[-1][0] == "other [metrics](metrics.md)"
    metrics = {type(step).__name__ for step in METRICS}
    assert {type(step).__name__ for step in STEPS} - metrics <= named
    assert named <= {type(step).__name__ for step in STEPS}


NEEDS = {
    Lloyd: (True, 1),
    SphericalKMeans: (True, 1),
    IncompleteKMeans: (True, 1),
    FedAvg: (True, 1),
    FFCM: (True, 1),
    FKM: (False, 2),
    KFed: (False, 1),
    GaussianMixture: (True, 1),
    SiteSummaries: (False, 1),
    VarianceTree: (False, 1),
    TrimmedLloyd: (True, 1),
    RelativeLloyd: (True, 1),
}
"""Whether a start must be given, and the smallest cluster that a site sends by default."""


@by_name(ALGORITHMS)
def test_what_an_algorithm_needs(step: Algorithm) -> None:
    assert (step.needs_centers, step.min_cluster_size) == NEEDS[type(step)]


def test_an_algorithm_is_made_from_the_parameters_of_a_fit() -> None:
    plain, given = FitParameters(3), FitParameters(4, "random", 7, 0.5, 1.5)
    assert (Lloyd.from_fit(plain), Lloyd.from_fit(given)) == (Lloyd(1e-4), Lloyd(0.5))
    assert SphericalKMeans.from_fit(given) == SphericalKMeans(0.5)
    assert IncompleteKMeans.from_fit(given) == IncompleteKMeans(0.5)
    assert (KFed.from_fit(plain), KFed.from_fit(given)) == (KFed(3), KFed(4))
    assert FKM.from_fit(plain) == FKM(3, server_n_init=10, tol=1e-4)
    assert FKM.from_fit(given) == FKM(4, client_init="random", server_n_init=7, tol=0.5)
    assert FKM.from_fit(FitParameters(3, "summaries")).client_init == "k-means++"
    assert FKM.from_fit(FitParameters(3, np.zeros((3, 1)))).client_init == "k-means++"
    assert FKM.from_fit(FitParameters(3, len)).client_init is len
    assert (FFCM.from_fit(plain), FFCM.from_fit(given)) == (FFCM(2.0), FFCM(1.5, tol=0.5))
    program: dict[str, Any] = {"averaging": "avg_2", "local": "converge", "support": "u"}
    assert FFCM.paper_from_fit(given) == FFCM(1.5, tol=0.5, **program)
    assert FedAvg.from_fit(given) == FedAvg(reassign_share=0)
