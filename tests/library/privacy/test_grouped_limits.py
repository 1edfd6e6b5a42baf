"""Limits of a site whose rows are grouped: they hold, and they are told."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from test_protection import P, patients, questions
from typed import run

from fedcluster import FederatedKMeans
from fedcluster.algorithms import FFCM, Lloyd, SiteSummaries
from fedcluster.core import Column, Data, Filter, Grouped, Limit, State, Summary, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.engines.wire import PROTOCOL, pack, read_summaries, unpack, write_tasks
from fedcluster.errors import FewGroupsWarning
from fedcluster.jobs import execute, fit_of
from fedcluster.metrics.external import Contingency
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.columns import Category
from fedcluster.preprocessing.moments import histogram_task
from fedcluster.privacy import Grouping, Groups, MinClusterSize, MinRows
from fedcluster.privacy.disclosure import behind_groups
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_responder

pytestmark = pytest.mark.usefixtures("short_searches")

LEAST = 30
CENTERS = np.array([[20.0, 20.0], [55.0, 30.0], [90.0, 40.0]])
TOLD = Groups(P).limit


def client(data: Data, *filters: Filter) -> Client:
    return Client("north", data, filters, Groups(P))


def numbers(n: int = 320, seed: int = 0) -> Data:
    return Data(patients(n, seed, 0.0).X[:, :2])


@pytest.mark.parametrize("seed", range(2))
def test_no_line_that_leaves_stands_for_fewer_rows_than_the_limit(seed) -> None:
    """Whatever is asked; counted from the weights, of rows that weigh 1 and lack no value."""
    data = patients(320, missing=0.0)
    bound, free = client(data, MinRows(60), MinClusterSize(LEAST)), client(data)
    cells = [np.arange(-0.5, 4.0)]
    coded = Preprocessor((Category("town", ("Ahlen", "Bonn", "Celle", "Zell"), coded=True),))
    asked = [replace(histogram_task([0.0], cells), preprocessor=coded)]
    held_back = lines = 0
    for task in [*questions(np.random.default_rng(seed)), *asked]:
        weights = bound.answer(task).weights
        before = free.answer(task).weights
        lines += int(np.count_nonzero(weights))
        held_back += int(np.count_nonzero(before) - np.count_nonzero(weights))
        if not isinstance(task.step, FFCM):  # whose weights are powers of memberships
            assert (weights[weights != 0] >= LEAST - 1e-9).all(), task.step
    assert lines > 500
    assert held_back > 300
    assert bound.most_rows_held_back > 0


def test_rounding_is_no_other_text() -> None:
    """A share that rounding leaves of 1 would be a line of hardly any row, which counts as one."""
    counts = np.random.default_rng(0).integers(0, 9, (500, 6)) + np.eye(6, dtype=int)[0]
    counts[0] = [100, 200, 300, 399, 0, 1]
    shares = counts / counts.sum(axis=1, keepdims=True)
    levels = tuple("abcdef")
    grouped = Grouped(counts.sum(axis=1).astype(float), {0: csr_array(shares)})
    columns = (Column("t", "text", levels),)
    data = Data(np.zeros((500, 1)), columns=columns, grouped=grouped)
    assert (shares.sum(axis=1) < 1).any()
    assert (Category("t", levels).shares(data, 0)[:, -1] == 0).all()
    others = Category("t", levels[:-1]).shares(data, 0)[:, -1]
    np.testing.assert_allclose(others, shares[:, -1], atol=1e-15)
    assert others[0] > 0
    assert ((others > 0) == (counts[:, -1] > 0)).all()


def test_what_a_site_tells_is_what_holds() -> None:
    filters: tuple[Filter, ...] = (MinRows(2), MinClusterSize(P), MinRows(6), MinClusterSize(LEAST))
    site = client(numbers(), *filters)
    assert site.disclosure.in_force == filters[2:]  # groups keep the others, whatever is asked
    assert site.site.limits == (TOLD, *map(Limit.from_filter, filters[2:]))
    assert client(numbers()).site.limits == (TOLD,)
    assert Client("n", numbers(), [MinClusterSize(20)], Groups(20)).disclosure.in_force == ()


def test_few_rows_in_groups_send_nothing_and_tell_no_text() -> None:
    data = patients(100, missing=0.0)
    silent, heard = (client(data, MinRows(n)) for n in (101, 100))
    task = Task(Lloyd(), State.at(np.zeros((1, 3))))
    assert heard.answer(task).weights.tolist() == [100.0]
    assert not silent.answer(task).weights.any()
    assert silent.most_rows_held_back == 100
    assert [column.levels for column in silent.describe()] == [(), (), ()]
    assert silent.classes() == ()
    assert heard.classes() == ("ill", "well")


def test_rows_that_have_become_few_send_nothing(tmp_path) -> None:
    grouping, data = Grouping(Groups(P, min_rows=50), tmp_path / "north.groups"), numbers(80)
    before, after, again = (
        Client("north", data.take(slice(n)), protection=grouping) for n in (80, 49, 50)
    )
    assert len(before.data) > 10
    assert len(after.data) == 0
    assert after.site.n_rows == 0
    assert 0 < len(again.data) < len(before.data)


def test_persons_are_counted_not_their_rows() -> None:
    X = numbers(600).X
    data = Data(X[np.argsort(X[:, 0])], groups=np.repeat(np.arange(120), 5))

    def told(*filters: Filter) -> np.ndarray:
        return client(data, *filters).answer(Task(Lloyd(), State.at(CENTERS))).weights

    assert (told() >= 100).all()  # rows of each cluster, of a fifth as many persons
    assert told(MinClusterSize(15)).all()
    assert not told(MinClusterSize(100)).any()
    assert told(MinRows(120)).any()
    assert not told(MinRows(121)).any()


def test_a_value_that_is_missing_does_not_count() -> None:
    """Of each group in which p of seven have one, p stand behind the sum of a column."""
    X = np.repeat(np.arange(10.0), 7)[:, None] * [[1.0, 1.0]]
    X[np.arange(70) % 7 >= P, 1] = np.nan
    seen: Any = client(Data(X), MinClusterSize(10 * P)).data
    told = np.isfinite(seen.X[:, 1])
    assert (seen.grouped.behind[told] <= seen.grouped.counts[told]).all()
    assert seen.grouped.behind[told].sum() <= np.isfinite(X[:, 1]).sum()


@pytest.mark.parametrize("persons", [False, True])
def test_texts_and_labels_of_fewer_than_the_limit_do_not_exist(persons) -> None:
    data, towns = patients(300, missing=0.0), np.repeat([0, 1, 2], [200, 60, 40])
    data.X[:, 2] = towns
    labels, whose = np.array(["well", "ill", "rare"])[towns], np.arange(300) // 2
    given = replace(data, y=labels, groups=whose if persons else None)
    site = client(given, MinClusterSize(50))
    assert site.describe()[2].levels == (("Ahlen",) if persons else ("Ahlen", "Bonn"))
    assert site.classes() == (("well",) if persons else ("ill", "well"))
    assert client(patients(300)).describe()[2].levels == ("Ahlen", "Bonn", "Celle", "Zell")


@pytest.mark.parametrize("whose", ["rows", "persons", "weights"])
def test_labels_in_a_cluster_count_by_their_share(whose) -> None:
    """Where a share is not one of rows, or persons, only one of each group is sure to be there."""
    rng = np.random.default_rng(3)
    X, y = numbers(400).X, rng.choice(["ill", "well"], 400, p=[0.2, 0.8])
    weight = rng.uniform(1.0, 9.0, 400) if whose == "weights" else None
    groups = np.arange(400) // 4 if whose == "persons" else None
    data = Data(X, weight, y, groups=groups)
    task = Task(Contingency.from_classes(["ill", "well"]), State.at(CENTERS[1:2]))
    ill = int((y == "ill").sum()) if groups is None else len(np.unique(groups[y == "ill"]))
    assert not client(data, MinClusterSize(ill + 1)).answer(task).weights[0]
    least = 55 if whose == "rows" else 6
    assert client(data, MinClusterSize(least)).answer(task).weights.all()


@pytest.mark.parametrize(("even", "rows"), [(True, [45, 5]), (False, [10, 10])])
def test_a_text_counts_as_many_rows_as_surely_have_it(even: bool, rows: list[int]) -> None:
    """By hand: in ten groups of five, nine tenths of the weight may be that of a single row."""
    counts = np.full(10, 5.0)
    grouped = Grouped(counts, shares={0: csr_array([[0.9, 0.1]] * 10)}, even=even)
    data = Data(np.zeros((10, 1)), 8 * counts, grouped=grouped)
    task = histogram_task([0.0], [np.array([-0.5, 0.5, 1.5])])
    answer = task.step.client_step(task.state, data, np.random.default_rng(0))
    np.testing.assert_allclose(answer.weights, [360, 40])
    support = behind_groups(answer, data, grouped).support
    assert support is not None
    np.testing.assert_allclose(support, rows)


def test_a_step_without_a_support_is_counted_by_its_weights() -> None:
    class Bare:
        """A step of a site's own, which tells weights alone."""

        client_additive = server_additive = True

        def answer_shape(self, state, n_columns):
            return 1, 1

        def client_step(self, state, data, rng):
            first = data.sample_weight[: int(state.memory["groups"][0])].sum()
            return Summary(np.ones((1, 1)), np.array([first]))

    rows = numbers()
    few, many = (Task(Bare(), State(memory={"groups": np.array([n])})) for n in (2.0, 60.0))
    site = client(rows, MinClusterSize(LEAST))
    assert not site.answer(few).weights.any()
    assert site.answer(many).weights.any()


def test_a_fit_asks_for_means_of_enough_groups() -> None:
    centers = np.array([[0.0, 0.0], [0.0, 40.0], [40.0, 0.0]])
    X = np.concatenate(
        [np.random.default_rng(i).normal(c, 1, (200, 2)) for i, c in enumerate(centers)]
    )
    sites = [Client(f"s{i}", Data(X[i::2]), [MinClusterSize(40)], Groups(P)) for i in range(2)]
    engine = LocalEngine(sites)
    assert fit_of(3).at(engine.introduce()).smallest == 8
    found = execute(fit_of(3, seed=0), engine).outcome.value.state
    order = np.lexsort(np.round(found.centers).T[::-1])
    assert np.allclose(found.centers[order], centers, atol=0.5)
    assert found.weights.tolist() == [200.0, 200.0, 200.0]
    few = sites[0].answer(Task(SiteSummaries(200), State()))
    assert not few.weights.any()  # means of few groups are held back


# A site over a network, and the commands


SITE = """
name = "north"
label_column = "kind"
[source]
path = "rows.csv"
[limits]
min_rows = 200
min_cluster_size = 100
[federation]
coordinator = "127.0.0.1:1"
certificate = "system"
key = "site.toml"
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    X, kind = numbers(400, 5).X, np.where(np.arange(400) < 60, "rare", "usual")
    lines = [f"{a!r},{b!r},{k}" for (a, b), k in zip(X.tolist(), kind.tolist(), strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["age,bmi,kind", *lines, ""]))
    (tmp_path / "site.toml").write_text(SITE)
    return tmp_path / "site.toml"


def test_the_bytes_that_leave_hold_no_line_of_fewer_rows(site) -> None:
    file = SiteFile.load(site)
    program = site_responder(file, Membership.from_site_file(file), lambda _line: None)
    centers = np.random.default_rng(0).uniform([18, 15], [95, 45], (12, 2))
    states = [State.at(centers[:k]) for k in range(1, 13)]
    tasks = [*(Task(Lloyd(), state) for state in states), Task(SiteSummaries(200), State())]
    heads, arrays = write_tasks(tasks)
    header = {"protocol": PROTOCOL, "run": "r", "exchange": 0, "tasks": heads, "labels": True}
    reply, found = unpack(program.reply(pack(header, arrays)), 1 << 30)
    program.end("")
    weights = np.concatenate([answer.weights for answer in read_summaries(found)])
    assert weights.max() == 400
    assert weights[weights > 0].min() >= 100
    assert np.count_nonzero(weights) < len(weights) / 2
    assert [limit["name"] for limit in reply["limits"]] == ["Groups", "MinRows", "MinClusterSize"]
    assert [limit.get("p") for limit in reply["limits"]] == [5, None, 100]
    assert reply["labels"] == ["usual"]


def test_check_says_from_how_many_groups_on_a_sum_leaves(site) -> None:
    def told() -> Any:
        return json.loads(run("check", site, "--json").stdout)["limits"]

    limits, grouped = told(), SiteFile.load(site).grouped_client().data.grouped
    n_groups = limits["sent_from_groups"]
    assert limits["sent_from_rows"] >= 100
    assert grouped is not None
    assert grouped.smallest_first[n_groups - 1] < 100 <= grouped.smallest_first[n_groups]
    assert limits["takes_part"] is True
    assert re.search(f"groups from which on a sum leaves +{n_groups} ", run("check", site).stdout)
    site.write_text(SITE.replace("200", "401"))
    assert told()["takes_part"] is False
    assert "Nothing leaves: this site has too few" in run("check", site).stdout
    site.write_text(SITE.replace("= 100", "= 500"))
    assert "No sum leaves: none is surely over enough." in run("check", site).stdout


@pytest.mark.parametrize("prepare", [None, "standard"])
def test_groups_of_a_command_are_those_of_python(prepare: Any, tmp_path: Path) -> None:
    """Rows alike by the distances that clusters have: with no preparation, those of the values."""
    rng, out = np.random.default_rng(3), tmp_path / "out"
    frame = pd.DataFrame({"age": rng.normal(50, 20, 300), "share": rng.uniform(0, 1, 300)})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    options = ["-k", 3, "--seed", 0, "--scale", prepare or "none", "--set", "protection=groups"]
    ran = run("fit", tmp_path / "rows.csv", *options, "--min-cluster-size", 6, "--out", out)
    assert ran.exit_code == 0, ran.stderr
    told = json.loads((out / "model.json").read_text())
    how: dict[str, Any] = {"protection": "groups", "min_cluster_size": 6}
    model = FederatedKMeans(3, random_state=0, prepare=prepare, **how)
    with pytest.warns(UserWarning, match="rows are seen in groups"):
        model.fit({"rows": frame})
    np.testing.assert_array_equal(told["centers"], model.state_.centers)
    limits = [{"name": "Groups", "p": 5, "min_rows": 20}, {"name": "MinClusterSize", "p": 6}]
    assert told["sites"][0]["limits"] == limits


def test_few_groups_at_most_sites_are_said_before_the_fit() -> None:
    """200 groups for each cluster, but one at a site; the remedy is a word of the warning."""
    rng = np.random.default_rng(5)
    rows = 8.0 * rng.integers(0, 3, (3000, 2)) + rng.normal(size=(3000, 2))
    rounds: list[Any] = []

    def asked(n_sites: int, k: Any) -> None:
        parts = [Data(rows[i::n_sites]) for i in range(n_sites)]
        engine = LocalEngine(Client(f"s{i}", part, (), Groups(5)) for i, part in enumerate(parts))
        execute(fit_of(k), engine, columns=("a", "b"), watch=rounds.append)

    with warnings.catch_warnings():
        warnings.simplefilter("error", FewGroupsWarning)
        with pytest.raises(FewGroupsWarning, match=r"100 groups .* 100 of 100 sites.*merge sites"):
            asked(100, 6)
        with pytest.raises(FewGroupsWarning, match=r"25 groups .*: expect about 1.2 % .*fewer"):
            asked(1, 24)
        assert not rounds
        asked(3, 6)
    assert rounds
    model = FederatedKMeans(6, random_state=0, protection="groups")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(rows[:600], sites=np.arange(600) % 20)
    assert sum("groups of 5 rows" in str(each.message) for each in told) == 1


@pytest.mark.filterwarnings("ignore:rows are seen in groups")
@pytest.mark.parametrize(("n_sites", "each"), [(5, 300), (20, 80), (40, 50)])
@pytest.mark.parametrize("kind", ["normal", "overlapping", "uniform"])
def test_the_inertia_of_groups_is_that_of_the_rows_within_its_error(kind, n_sites, each):
    """Or is said not to be known, where it may be half of it."""
    rng, n = np.random.default_rng(5), n_sites * each
    middles = np.array([[0, 0], [8, 0], [0, 8], [8, 8], [16, 4], [-8, 4.0]])
    X = middles[rng.integers(6, size=n)] / (2 if kind == "overlapping" else 1)
    X += rng.normal(size=(n, 2))
    X = rng.random((n, 2)) if kind == "uniform" else X
    site = np.arange(n) % n_sites
    model = FederatedKMeans(6, random_state=0, protection="groups").fit(X, sites=site)
    rows = ((X[:, None] - model.cluster_centers_) ** 2).sum(axis=2).min(axis=1).sum()
    missed = abs(rows / model.inertia_ - 1)
    if each == 50:
        assert np.isnan(model.inertia_error_)
        assert missed > 0.2
    else:
        assert missed <= model.inertia_error_ == pytest.approx(8 * 5 / each)
    assert FederatedKMeans(6, random_state=0).fit(X[:200], sites=site[:200]).inertia_error_ == 0


def test_what_hides_the_scatter_makes_the_inertia_of_rows_unknown() -> None:
    rows = np.exp(np.random.default_rng(0).normal(size=(600, 2)))
    X, sites = pd.DataFrame(rows, columns=["a", "b"]), np.arange(600) % 2
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"prepare": PreprocessingSpec()}, True),
        ({"prepare": PreprocessingSpec(log=("a",))}, False),
        ({"prepare": PreprocessingSpec(unit=True)}, False),
        ({"trim": 0.1}, False),
    ]
    for how, is_known in cases:
        model = FederatedKMeans(2, random_state=0, protection="groups", **how)
        assert np.isnan(model.fit(X, sites=sites).inertia_error_) != is_known


def test_the_command_says_few_groups_once_and_first(tmp_path: Path) -> None:
    rng, files = np.random.default_rng(0), [tmp_path / f"s{i}.csv" for i in range(3)]
    for file in files:
        pd.DataFrame(rng.normal(size=(60, 2)), columns=["x", "y"]).to_csv(file, index=False)
    ran = run("fit", *files, "-k", 4, "--set", "protection=groups", "--out", tmp_path / "out")
    assert ran.exit_code == 0, ran.stderr
    assert ran.stderr.count("at 3 of 3 sites: expect up to about") == 1
    assert ran.stderr.startswith("warning: rows are seen in groups, and a cluster has 9 groups")
    assert "(of groups; of rows not known)" in ran.stdout
    content = json.loads((tmp_path / "out" / "history.json").read_text())
    few = ["at 3 of 3 sites: expect up to about" in line for line in content["warnings"]]
    assert sum(few) == 1
    assert content["inertia_error"] is None


@pytest.mark.parametrize(("away", "warns"), [(40.0, True), (0.0, False)])
def test_a_fit_warns_of_few_groups_that_are_far_from_all_others(away: float, warns: bool) -> None:
    """Six rows far away are two groups; a fit of exact rows can tell them apart."""
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(606, 3)) + np.repeat([[0.0], [away]], [600, 6], axis=0)
    groups, parts = Groups(3, 20), [rows[i::2] for i in range(2)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        FederatedKMeans(4, random_state=0, protection=groups).fit(parts)
    lines = [str(each.message) for each in told if "far from all others" in str(each.message)]
    assert bool(lines) == warns
    for line in lines:
        assert line.startswith("rows are seen in groups of 3, and cluster 3 of a few")


def test_shares_of_texts_go_with_their_columns_in_any_order() -> None:
    whole: Any = client(patients())
    for names in (["town", "age"], ["bmi", "town"], ["age"], ["age", "bmi", "town"]):
        shares = whole.with_columns(names, raw=True).data.grouped.shares
        assert [names[j] for j in shares] == [name for name in names if name == "town"]
        for share in shares.values():
            assert (share != whole.data.grouped.shares[2]).nnz == 0


def test_labels_of_groups_are_compared_with_the_clusters_that_they_were_assigned() -> None:
    """By hand: two groups, the first with labels of both kinds, in each other's nearest cluster."""
    X, n, labels = np.array([[0.0], [9.0]]), np.full(2, 5.0), np.array([[3.0, 2.0], [0.0, 5.0]])
    grouped = Grouped(n, classes=("ill", "well"), labels=labels)
    data = Data(X, n, grouped=grouped, assigned=np.array([1, 0], dtype=np.int32))
    step, rng = Contingency.from_classes(["ill", "well"]), np.random.default_rng(0)
    answer = step.client_step(State.at(X), data, rng)
    assert answer.weights.reshape(2, 2).tolist() == [[0, 5], [3, 2]]


def test_labels_of_groups_stay_where_limits_let_nothing_of_all_of_them_out(tmp_path: Path) -> None:
    """Of 43 rows 40 are in groups, as three came later: limits count those 40."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(43, 2)), np.array(["sick", "well"] * 22)[:43]
    grouping = Grouping(Groups(5), tmp_path / "groups")
    assert Client("north", Data(X[:40], y=y[:40]), (), grouping).data.grouped is not None
    for least, told in ((40, ("sick", "well")), (41, ()), (42, ())):
        assert Client("north", Data(X, y=y), [MinRows(least)], grouping).classes() == told
    assert Client("north", Data(X), [MinRows(42)], Groups(5)).classes() is None
