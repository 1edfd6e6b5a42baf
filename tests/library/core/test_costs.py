"""What things cost, by counters: a clock tells of the machine, a counter of the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from partitions import InChunks

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
    """Steps of each exchange, those that sites computed by themselves, and all sites at once."""

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
    "fit --robust": (fit_of(4, robust=1), {"SiteSummaries", "Lloyd", "Inertia"}),
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
Count = Callable[[str], float]


@cache
def asked(kind: str, what: str = "fit", **options: Any) -> Exchanges:
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


def rounds(what: str = "fit", **options: Any) -> Count:
    return lambda kind: len(asked(kind, what, **options))


def tasks(step: str, **options: Any) -> Count:
    return lambda kind: sum(each[0][step] for each in asked(kind, **options))


def asking(step: str, **options: Any) -> Count:
    return lambda kind: sum(step in each[0] for each in asked(kind, **options))


def racing(first: int, last: int, **options: Any) -> Count:
    """The most runs in rounds of Lloyd's algorithm, from the first to the last, from 1."""

    def most(kind: str) -> float:
        every = [each[0]["Lloyd"] for each in asked(kind, **options) if "Lloyd" in each[0]]
        return max(every[first - 1 : last], default=0)

    return most


def sent(step: str) -> Count:
    """The most numbers that a site sent in an exchange of one step alone, for each task."""
    return lambda kind: max(
        max(values.values()) // steps[step]
        for steps, values, _ in asked(kind)
        if set(steps) == {step}
    )


def reads(kind: str) -> float:
    """How often rows in chunks are read for each exchange of a fit."""
    rows = InChunks(Data(KINDS[kind][:1200]), 400)
    sites = LocalEngine([Client("a", rows), Client("b", Data(KINDS[kind][1200:2400]))])
    report = execute(fit_of(K), sites, columns=COLUMNS)
    assert not rows.loaded
    return rows.read / len(report.outcome.communication_rounds)


def judging(kind: str) -> float:
    """The number of exchanges in which k is chosen by likelihood."""
    judged = {"Moments", "ColumnShape", "AxisCounts", "LeafMoments"}
    judged |= {"GaussianMixture", "MixtureOverlap"}
    return sum(not judged.isdisjoint(each[0]) for each in asked(kind, n_clusters=(2, 3, 6)))


def replicates(kind: str) -> float:
    return [e for e in asked(kind, stability=True) if "Agreement" in e[0]][-1][0]["Agreement"]


def components(kind: str) -> float:
    more = asking("Means", pca=2)(kind) - asking("Means", pca=None)(kind)
    return more + asking("Covariance", pca=2)(kind)


def means(kind: str) -> float:
    return sum(asked(kind)[0][1].values()) / (D + 1)


def more_rounds(kind: str) -> float:
    return rounds(profile=True)(kind) - rounds()(kind)


def longer(kind: str) -> float:
    return rounds(stability=True)(kind) / rounds()(kind)


def in_samples(kind: str) -> list[int]:
    """How many sites each exchange with a sample of the sites was answered by."""
    return [len(e[2]) for e in asked(kind, participation=0.2)]


EXACTLY: dict[str, tuple[str, Count, float]] = {
    "**Description, one round.**": ("how-it-works.md", tasks("SiteSummaries"), 1),
    "All metrics come from sums in two rounds:": ("how-it-works.md", rounds("evaluate"), 2),
    "ICML 2021) takes one round.": ("how-it-works.md", asking("KFed", algorithm="kfed"), 1),
    "| `Lloyd`, `SphericalKMeans`, `RelativeLloyd`, `FFCM` | k (d + 2) numbers a round |": (
        "design.md",
        sent("Lloyd"),
        K * (D + 2),
    ),
    "| `Inertia`, `PresentInertia`, `FuzzyObjective`, `MergedMixture`, `SiteARI` | 2 numbers |": (
        "design.md",
        sent("Inertia"),
        2,
    ),
    "one clustering for each k with `gather`, from one description that is fine enough": (
        "design.md",
        tasks("SiteSummaries", n_clusters=(2, 3, 6), rule=Rule("vote")),
        1,
    ),
    "describe the clusters in original units, in two rounds": ("federation.md", more_rounds, 2),
    "asks another fifth of the sites in": ("federation.md", lambda kind: min(in_samples(kind)), 1),
    "The sites answer with sums and counts, in two rounds.": ("report.md", rounds("describe"), 2),
    "profile while scoring, in the same two rounds": (
        "report.md",
        rounds("evaluate", profile=True),
        2,
    ),
    "Each site draws its rows again, twenty times": ("report.md", replicates, 20),
    "| mean and variance | 1, or 2 far from 0, and one more if values are missing |": (
        "preprocessing.md",
        asking("Squares", pca=None),
        1,
    ),
    "| principal components, up to 2,000 columns | 2 |": ("preprocessing.md", components, 2),
    "**Parquet files** are read ahead in chunks, once for all tasks of a round": (
        "performance.md",
        reads,
        1,
    ),
}
AT_MOST: dict[str, tuple[str, Count, float]] = {
    "The eight best distinct results": ("how-it-works.md", racing(1, 8, n_clusters=15), 8),
    # and two passes in which rows count for the nearest mean
    "takes about $\\log_2 L + 2$ rounds": (
        "how-it-works.md",
        asking("VarianceTree", sums_only=True),
        8 + 2 + 2,
    ),
    "at most 36 rounds": (
        "how-it-works.md",
        lambda kind: sum(n < N_SITES for n in in_samples(kind)),
        36,
    ),
    "All sites together send 160 means for each cluster": ("design.md", means, 160 * K),
    "four continue after the second round": ("design.md", racing(3, 4, n_clusters=15), 4),
    "two after the fourth": ("design.md", racing(5, 8, n_clusters=15), 2),
    "twice as many runs are refined, because the description is coarse": (
        "design.md",
        racing(1, 2, sums_only=True),
        16,
    ),
    "Of 755 fits, none took more than 29 rounds": ("design.md", rounds(), 29),
    "It takes at most half as many rounds again as the fit.": ("report.md", longer, 1.5),
    "**Rounds:** at most ten exchanges about the prepared rows, with k-means beside them": (
        "choosing-k.md",
        judging,
        10,
    ),
    "compares many starts, in 6 to 50 rounds": ("algorithms.md", rounds(model="mixture"), 50),
}
LONG = "compares many starts, in 6 to 50 rounds", "none"
"""A case that takes a quarter of the time of all."""


def claims_of(table: Any) -> Any:
    every = [(words, kind) for words in table for kind in KINDS if (words, kind) != LONG]
    return pytest.mark.parametrize(("words", "kind"), every)


def in_page(page: str, words: str) -> bool:
    return words in " ".join((DOCS / page).read_text("utf-8").split())


@claims_of(EXACTLY)
def test_what_a_page_says_that_something_costs_is_what_is_counted(words, kind):
    page, count, number = EXACTLY[words]
    assert in_page(page, words)
    assert count(kind) == number


@claims_of(AT_MOST)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_a_page_says_that_something_costs_at_most_bounds_what_is_counted(words, kind):
    page, count, most = AT_MOST[words]
    assert in_page(page, words)
    assert count(kind) <= most
