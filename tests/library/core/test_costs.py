"""What things cost, by counters: a clock tells of the machine, a counter of the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcluster import FederatedKMeans
from fedcluster.core import Answers, Data, Filter, Floats, Limit, Summary, Task
from fedcluster.engines import LocalEngine, batched
from fedcluster.engines.client import Client
from fedcluster.jobs import Evaluate, Profile, execute, fit_of
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.selection import Rule


@dataclass
class Costs:
    """What was counted.

    Parameters
    ----------
    exchanges : list of Counter
        How many tasks of each step each exchange carried.
    at_each : Counter
        Steps that a site computed by itself, over all sites.
    at_once : Counter
        Steps that were computed for all sites at once.
    """

    exchanges: list[Counter[str]] = field(default_factory=list)
    at_each: Counter[str] = field(default_factory=Counter)
    at_once: Counter[str] = field(default_factory=Counter)


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Costs:
    """Counters in the one place where an engine asks, and the two where steps meet rows."""
    counted, ask, answers, computed = Costs(), LocalEngine.ask, Client.answers, Client.computed

    def asking(
        engine: LocalEngine, tasks: Sequence[Task], sites: Iterable[str] | None = None
    ) -> list[Answers]:
        counted.exchanges.append(Counter(type(task.step).__name__ for task in tasks))
        return ask(engine, tasks, sites)

    def answering(client: Client, tasks: Sequence[Task]) -> list[Summary]:
        counted.at_each.update(type(task.step).__name__ for task in tasks)
        return answers(client, tasks)

    def computing(client: Client, task: Task) -> Summary:
        counted.at_each[type(task.step).__name__] += 1
        return computed(client, task)

    def counting(answer: Any) -> Any:
        def at_all(task: Task, table: batched.StackedRows) -> Any:
            counted.at_once[type(task.step).__name__] += 1
            return answer(task, table)

        return at_all

    monkeypatch.setattr(LocalEngine, "ask", asking)
    monkeypatch.setattr(Client, "answers", answering)
    monkeypatch.setattr(Client, "computed", computing)
    monkeypatch.setattr(
        batched, "AT_ONCE", {kind: counting(answer) for kind, answer in batched.AT_ONCE.items()}
    )
    return counted


DOCS = Path(__file__).parents[3] / "docs"


def blobs(n: int, d: int = 3, k: int = 4) -> Floats:
    rng = np.random.default_rng(0)
    means = rng.uniform(-9, 9, size=(k, d))
    return means[np.arange(n) % k] + rng.normal(size=(n, d))


@pytest.mark.parametrize("n_sites", [51, 1000, 10_000])
@pytest.mark.parametrize("rows_each", [2, 20])
def test_no_step_of_a_default_fit_is_computed_site_by_site(n_sites, rows_each, costs):
    X = blobs(n_sites * rows_each)
    FederatedKMeans(4, random_state=0).fit(X, sites=np.arange(len(X)) % n_sites)
    assert not costs.at_each
    assert costs.at_once == sum(costs.exchanges, Counter())


def test_one_large_site_among_small_ones_alone_answers_for_itself(costs: Costs) -> None:
    X, large = blobs(9000), np.zeros(4000, dtype=int)
    sites = np.concatenate([large, 1 + np.arange(len(X) - len(large)) % 1000])
    FederatedKMeans(4, random_state=0).fit(X, sites=sites)
    assert costs.at_each == costs.at_once == sum(costs.exchanges, Counter())


def test_limits_are_made_once_for_all_sites_that_share_them(monkeypatch):
    made, from_filter = Counter[str](), Limit.from_filter

    def counting(rule: Filter) -> Limit:
        made[repr(rule)] += 1
        return from_filter(rule)

    monkeypatch.setattr(Limit, "from_filter", counting)
    X = blobs(2000)
    FederatedKMeans(4, random_state=0, min_cluster_size=3).fit(X, sites=np.arange(2000) % 500)
    assert sum(made.values()) <= 1


def test_no_client_is_made_for_each_of_many_small_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    made, init = Counter[str](), Client.__init__

    def counting(client: Client, name: str, *given: Any) -> None:
        made[name] += 1
        init(client, name, *given)

    monkeypatch.setattr(Client, "__init__", counting)
    X = blobs(2000)
    FederatedKMeans(4, random_state=0).fit(X, sites=np.arange(2000) % 500)
    assert made == {"0": 1}  # what the first tells, all tell
    FederatedKMeans(4, random_state=0).fit(np.array_split(X, 500))
    assert made == {"0": 1, "site-000": 1}


def test_the_influence_of_up_to_fifty_sites_takes_one_answer_and_description_of_each(costs):
    X = blobs(500)
    model = FederatedKMeans(4, random_state=0).fit(X, sites=np.arange(500) % 50)
    assert len(model.influence_) == 50
    assert costs.at_each == {"Lloyd": 50, "SiteSummaries": 50}


# What each job computes site by site where sites are many and small. A step that is no longer asked
# at once is noticed, and so is one that now is.

COLUMNS = ("x0", "x1", "x2")
OF_A_MODEL = {"Scatter", "SimplifiedSilhouette", "Spread", "SquaredSilhouette", "MixtureLikelihood"}
OF_A_MODEL |= {"ColumnSpread"}
OF_PROFILES = {"ClusterColumns", "ClusterCells", "ClusterSilhouettes"}
OF_A_CHOICE = {"Moments", "ColumnShape", "Covariance", "AxisCounts", "GaussianMixture"}
OF_A_CHOICE |= {"LeafMoments", "MixtureOverlap"}

BY_SITE: dict[str, tuple[Any, set[str]]] = {
    "fit": (fit_of(4), set()),
    "fit from sums": (fit_of(4, sums_only=True), set()),
    "fit --profile": (fit_of(4, profile=True), OF_PROFILES),
    "fit, scaled": (fit_of(4, prepare=PreprocessingSpec()), {"Missing", "Squares"}),
    "fit --fuzzy": (fit_of(4, m=2.0), {"FFCM", "FuzzyObjective"}),
    "fit --algorithm fkm": (fit_of(4, algorithm="fkm"), {"FKM"}),
    "fit --model mixture": (fit_of(4, model="mixture", n_init=2), {"GaussianMixture"}),
    "fit --trim": (fit_of(4, trim=0.05), {"TrimmedLloyd"}),
    "fit --participation": (fit_of(4, participation=0.2), {"Lloyd"}),
    "fit --robust": (
        fit_of(4, robust=1),
        {"SiteSummaries", "Lloyd", "Inertia"},
    ),
    "fit --stability": (
        fit_of(4, stability=2),
        {"SiteSummaries", "Lloyd", "Separation", "Agreement"},  # of rows that are drawn anew
    ),
    "fit -k 2,3": (fit_of([2, 3]), OF_A_CHOICE),
    "evaluate": (Evaluate(None), OF_A_MODEL),
    "profile": (Profile(None), OF_PROFILES),
}


def engine_of(X: Floats, n_sites: int) -> LocalEngine:
    return LocalEngine(Client(f"{i:05d}", Data(X[i::n_sites])) for i in range(n_sites))


def model_of(X: Floats, n_sites: int) -> Model:
    fitted = FederatedKMeans(K, random_state=0).fit([X[i::n_sites] for i in range(n_sites)])
    return Model.from_estimator(fitted)


@pytest.mark.parametrize("job", BY_SITE)
@pytest.mark.usefixtures("short_search")
def test_steps_that_are_computed_site_by_site_are_those_of_this_table(job, costs):
    asked, by_site = BY_SITE[job]
    X = blobs(60 * 20)
    if isinstance(asked, Evaluate | Profile):
        asked = replace(asked, model=model_of(X, 1))
    costs.at_each.clear()
    execute(asked, engine_of(X, 60), columns=COLUMNS)
    assert set(costs.at_each) == by_site


# What the pages say, held by counters. The words are looked up in the page: neither can be changed
# without the other. Rows have clusters, or none, where runs take longest.

K, D, N_SITES = 4, 3, 5
KINDS: dict[str, Floats] = {
    "clusters": blobs(6000, D, K),
    "none": np.random.default_rng(1).uniform(size=(6000, D)),
}
Exchanges = list[tuple[Counter[str], dict[str, int], tuple[str, ...]]]


@cache
def asked(kind: str, what: str, **options: Any) -> Exchanges:
    """How many tasks of each step each exchange of a job had, what each site sent, who answered."""
    X = KINDS[kind]
    if "pca" in options:
        options["prepare"] = PreprocessingSpec(pca=options.pop("pca"))
    if what == "fit":
        job: Any = fit_of(**{"n_clusters": K, **options})
    else:
        job = {"evaluate": Evaluate, "describe": Profile}[what](model_of(X, 1), **options)
    report = execute(job, engine_of(X, N_SITES), columns=COLUMNS)
    rounds = report.outcome.communication_rounds
    return [(Counter(r.steps), dict(r.values_sent), r.answered) for r in rounds]


JUDGED = {
    "Moments",
    "ColumnShape",
    "AxisCounts",
    "LeafMoments",
    "GaussianMixture",
    "MixtureOverlap",
}
"""Steps of a choice of k by likelihood."""


def rounds(kind: str, what: str = "fit", **options: Any) -> int:
    return len(asked(kind, what, **options))


def with_step(kind: str, step: str, **options: Any) -> Exchanges:
    """The exchanges of a fit that asked a step."""
    return [each for each in asked(kind, "fit", **options) if step in each[0]]


def most_tasks(kind: str, first: int, last: int, **options: Any) -> int:
    """The most runs in rounds of Lloyd's algorithm, from the first to the last, from 1."""
    every = [each[0]["Lloyd"] for each in with_step(kind, "Lloyd", **options)]
    return max(every[first - 1 : last], default=0)


def sent(exchanges: Exchanges) -> int:
    """The most numbers that a site sent in one of some exchanges, for each task."""
    return max(max(values.values()) // sum(steps.values()) for steps, values, _ in exchanges)


def reads(kind: str) -> float:
    """How often rows in chunks are read for each exchange of a fit."""

    class Chunks:
        n_read = 0

        def __len__(self) -> int:
            return 1200

        def chunks(self) -> Iterator[Data]:
            Chunks.n_read += 1
            return map(Data, np.array_split(KINDS[kind][:1200], 3))

        def load(self) -> Data:
            raise AssertionError("rows in chunks are not all loaded")

    sites = LocalEngine([Client("a", Chunks()), Client("b", Data(KINDS[kind][1200:2400]))])
    report = execute(fit_of(K), sites, columns=COLUMNS)
    return Chunks.n_read / len(report.outcome.communication_rounds)


CLAIMS: dict[str, tuple[str, str, Callable[[str], float], float]] = {
    "describes once": (
        "how-it-works.md",
        "**Description, one round.**",
        lambda kind: sum(each[0]["SiteSummaries"] for each in asked(kind, "fit")),
        1,
    ),
    "means of a description": (
        "design.md",
        "All sites together send 160 means for each cluster",
        lambda kind: sum(asked(kind, "fit")[0][1].values()) / (D + 1),
        160 * K,
    ),
    "the race, at first": (
        "how-it-works.md",
        "The eight best distinct results",
        lambda kind: most_tasks(kind, 1, 8, n_clusters=15),
        8,
    ),
    "the race, then": (
        "design.md",
        "four continue after the second round",
        lambda kind: most_tasks(kind, 3, 4, n_clusters=15),
        4,
    ),
    "the race, at last": (
        "design.md",
        "two after the fourth",
        lambda kind: most_tasks(kind, 5, 8, n_clusters=15),
        2,
    ),
    "from sums, twice as many": (
        "design.md",
        "twice as many runs are refined, because the description is coarse",
        lambda kind: most_tasks(kind, 1, 2, sums_only=True),
        16,
    ),
    "rounds of a fit": (
        "design.md",
        "Of 755 fits, none took more than 29 rounds",
        lambda kind: rounds(kind),
        29,
    ),
    "rounds of a tree of 256 leaves": (
        "how-it-works.md",
        "takes about $\\log_2 L + 2$ rounds",
        lambda kind: len(with_step(kind, "VarianceTree", sums_only=True)),
        np.log2(256) + 2 + 2,  # and two passes in which rows count for the nearest mean
    ),
    "what Lloyd sends": (
        "design.md",
        "| `Lloyd`, `SphericalKMeans`, `RelativeLloyd`, `FFCM` | k (d + 2) numbers a round |",
        lambda kind: sent([e for e in with_step(kind, "Lloyd") if set(e[0]) == {"Lloyd"}]),
        K * (D + 2),
    ),
    "what an inertia sends": (
        "design.md",
        "| `Inertia`, `PresentInertia`, `FuzzyObjective`, `MergedMixture`, `SiteARI` | 2 numbers |",
        lambda kind: sent([e for e in with_step(kind, "Inertia") if set(e[0]) == {"Inertia"}]),
        2,
    ),
    "a profile with a fit": (
        "federation.md",
        "describe the clusters in original units, in two rounds",
        lambda kind: rounds(kind, profile=True) - rounds(kind),
        2,
    ),
    "a profile of a model": (
        "report.md",
        "The sites answer with sums and counts, in two rounds.",
        lambda kind: rounds(kind, "describe"),
        2,
    ),
    "all indices": (
        "how-it-works.md",
        "All metrics come from sums in two rounds:",
        lambda kind: rounds(kind, "evaluate"),
        2,
    ),
    "profiles while scoring": (
        "report.md",
        "profile while scoring, in the same two rounds",
        lambda kind: rounds(kind, "evaluate", profile=True),
        2,
    ),
    "replicates": (
        "report.md",
        "Each site draws its rows again, twenty times",
        lambda kind: with_step(kind, "Agreement", stability=True)[-1][0]["Agreement"],
        20,
    ),
    "rounds with replicates": (
        "report.md",
        "It takes at most half as many rounds again as the fit.",
        lambda kind: rounds(kind, stability=True) / rounds(kind),
        1.5,
    ),
    "rounds of a choice of k": (
        "choosing-k.md",
        "**Rounds:** at most ten exchanges about the prepared rows, with k-means beside them",
        lambda kind: sum(
            not JUDGED.isdisjoint(each[0]) for each in asked(kind, "fit", n_clusters=(2, 3, 6))
        ),
        10,
    ),
    "a choice describes once": (
        "design.md",
        "one clustering for each k with `gather`, from one description that is fine enough",
        lambda kind: sum(
            each[0]["SiteSummaries"]
            for each in asked(kind, "fit", n_clusters=(2, 3, 6), rule=Rule("vote"))
        ),
        1,
    ),
    "scaling": (
        "preprocessing.md",
        "| mean and variance | 1, or 2 far from 0, and one more if values are missing |",
        lambda kind: len(with_step(kind, "Squares", pca=None)),
        1,
    ),
    "principal components": (
        "preprocessing.md",
        "| principal components, up to 2,000 columns | 2 |",
        lambda kind: (
            len(with_step(kind, "Means", pca=2))
            + len(with_step(kind, "Covariance", pca=2))
            - len(with_step(kind, "Means", pca=None))
        ),
        2,
    ),
    "a mixture": (
        "algorithms.md",
        "compares many starts, in 6 to 50 rounds",
        lambda kind: rounds(kind, model="mixture"),
        50,
    ),
    "k-FED": (
        "how-it-works.md",
        "ICML 2021) takes one round.",
        lambda kind: len(with_step(kind, "KFed", algorithm="kfed")),
        1,
    ),
    "rounds that ask a sample": (
        "how-it-works.md",
        "at most 36 rounds",
        lambda kind: sum(len(e[2]) < N_SITES for e in asked(kind, "fit", participation=0.2)),
        36,
    ),
    "who is asked in a sample": (
        "federation.md",
        "asks another fifth of the sites in",
        lambda kind: min(len(e[2]) for e in asked(kind, "fit", participation=0.2)),
        1,
    ),
    "rows in chunks": (
        "performance.md",
        "**Parquet files** are read ahead in chunks, once for all tasks of a round",
        lambda kind: reads(kind),
        1,
    ),
}
EXACTLY = {"describes once", "a choice describes once", "replicates", "scaling"}
EXACTLY |= {"principal components", "k-FED", "a profile with a fit", "a profile of a model"}
EXACTLY |= {"all indices", "profiles while scoring", "who is asked in a sample", "rows in chunks"}
EXACTLY |= {"what Lloyd sends", "what an inertia sends"}
"""Claims that are a number, not a bound."""
LONG = "a mixture", "none"
"""A case that takes a quarter of the time of all."""


CASES = [(claim, kind) for claim in CLAIMS for kind in KINDS if (claim, kind) != LONG]


@pytest.mark.parametrize(("claim", "kind"), CASES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_a_page_says_of_costs_is_what_is_counted(claim: str, kind: str) -> None:
    page, words, count, bound = CLAIMS[claim]
    assert words in " ".join((DOCS / page).read_text("utf-8").split())
    counted = count(kind)
    assert counted <= bound
    assert counted == bound or claim not in EXACTLY
