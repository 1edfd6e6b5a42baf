"""The rules of a site on what leaves it hold for each answer, in every engine, and are stated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from secure_sites import federation
from test_noise import task as noisy_task
from test_replies import Postman

from fedcluster.algorithms import Lloyd, SiteSummaries, VarianceTree
from fedcluster.core import Answers, Data, Filter, Floats, Limit, State, Summary, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.batched import BatchedAnswers, Stacked
from fedcluster.engines.client import Client
from fedcluster.errors import InputError, PolicyError, SiteError
from fedcluster.metrics import Inertia
from fedcluster.preprocessing import NumericColumn, Preprocessor
from fedcluster.preprocessing.site_effects import SiteEffects
from fedcluster.privacy import Groups, MinClusterSize, MinRows
from fedcluster.privacy.budget import Budget
from fedcluster.privacy.disclosure import Disclosure
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.wire.policy import Policy
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder

LEAST = 12
COUNTS = np.array([1, LEAST - 1, LEAST, 41])
CENTERS = np.array([[0.0], [10.0], [20.0], [30.0]])
ROWS = np.repeat(CENTERS, COUNTS, axis=0)
NAMES = [f"s{i}" for i in range(10)]
"""Sites with the same rows each, so many that a batched engine asks them at once."""
ASKED = Task(Lloyd(), State.at(CENTERS))
LIMITS = (MinRows(2), MinClusterSize(LEAST))

ONE_PERSON = np.repeat(np.arange(4), COUNTS)
"""Persons of whom each has a cluster of its own."""
PAIRS = np.arange(len(ROWS)) // 2

KINDS: Mapping[str, tuple[Data, Floats]] = {
    "rows": (Data(ROWS), np.array([0.0, 0, LEAST, 41])),
    "rows that weigh a hundred": (
        Data(ROWS, np.full(len(ROWS), 100.0)),
        np.array([0, 0, 1200, 4100]),
    ),
    "rows that weigh little": (Data(ROWS, np.full(len(ROWS), 0.125)), np.array([0, 0, 1.5, 5.125])),
    "rows in pairs of one person": (Data(ROWS, groups=PAIRS), np.array([0.0, 0, 0, 41])),
    "rows of four persons": (Data(ROWS, groups=ONE_PERSON), np.zeros(4)),
}
"""Rows of a site, and the weights behind the lines that may leave, counted by hand."""


@dataclass(frozen=True)
class OddRowsOnly:
    """A rule of an owner's own, which no engine knows."""

    def __call__(self, summary: Summary, n_rows: int) -> Summary:
        return summary.keep(summary.rows % 2 == 1)


@dataclass(frozen=True, slots=True)
class Stricter(MinClusterSize):
    """A rule made from a limit, which holds back more than the limit would."""

    def __call__(self, summary: Summary, n_rows: int) -> Summary:
        return summary.keep(summary.rows >= 10 * self.p)


def alone(data: Data, rules: Disclosure, task: Task) -> Answers:
    return Answers({name: Client(name, data, rules).answer(task) for name in NAMES})


def local(data: Data, rules: Disclosure, task: Task) -> Answers:
    return LocalEngine(Client(name, data, rules) for name in NAMES).ask([task])[0]


def wire(data: Data, rules: Disclosure, task: Task) -> Answers:
    parts = dict.fromkeys(NAMES, data)
    sites = federation(parts, filters=rules, secure=False)
    return RemoteEngine(sites, NAMES).ask([task])[0]


def secure(data: Data, rules: Disclosure, task: Task) -> Answers:
    parts = dict.fromkeys(NAMES, data)
    return SecureEngine(federation(parts, filters=rules), NAMES).ask([task])[0]


ENGINES: Mapping[str, Callable[[Data, Disclosure, Task], Answers]] = {
    "alone": alone,
    "local": local,
    "wire": wire,
    "secure": secure,
}
engines = pytest.mark.parametrize("ask", ENGINES.values(), ids=ENGINES)


@engines
@pytest.mark.parametrize(("data", "expected"), KINDS.values(), ids=KINDS)
def test_limits_hold_whatever_rows_weigh_and_whose_they_are(ask, data, expected) -> None:
    if ask is secure and not expected.any():  # sites that tell of no row are no cohort
        with pytest.raises(SiteError, match="over 0 sites that have rows to tell of"):
            ask(data, Disclosure.of(LIMITS), ASKED)
        return
    total = ask(data, Disclosure.of(LIMITS), ASKED).total()
    assert total.weights.tolist() == (10 * expected).tolist()
    assert (total.sums[expected == 0] == 0).all()


@engines
def test_limits_hold_for_groups(ask) -> None:
    """Those above the size of a group; counted are the rows behind the groups of a line."""
    groups, least = Groups(p=5), 20
    rules = Disclosure.of([MinRows(2), MinClusterSize(least)], groups)
    free = ask(Data(ROWS), Disclosure.of((), groups), ASKED).total().weights / 10
    bound = ask(Data(ROWS), rules, ASKED).total().weights / 10
    assert ((free >= 5) & (free < least)).any()
    np.testing.assert_array_equal(bound, np.where(free >= least, free, 0))


def in_blocks(rows: Any, sites: Any, rules: Disclosure) -> LocalEngine:
    """An engine that asks two sites at a time."""
    engine = LocalEngine.from_table(Data(rows), sites, rules)
    assert isinstance(engine.clients, Stacked)
    engine.clients.sites_at_once = 2
    return engine


def test_limits_hold_where_sites_are_asked_at_once() -> None:
    """The batched engines count rows as each client does."""
    data, rules = Data(ROWS), Disclosure.of(LIMITS)
    sites = np.repeat(NAMES, len(ROWS))
    table = LocalEngine.from_table(Data(np.tile(ROWS, (10, 1))), sites, rules)
    blocks = in_blocks(np.tile(ROWS, (10, 1)), sites, rules)
    for task in (ASKED, Task(VarianceTree(9), State()), Task(Inertia(), State.at(CENTERS))):
        expected = alone(data, rules, task)
        for engine in (LocalEngine(Client(name, data, rules) for name in NAMES), table, blocks):
            [answers] = engine.ask([task])
            assert isinstance(answers, BatchedAnswers)
            assert answers.total().sums.tobytes() == expected.total().sums.tobytes()
            assert answers.total().weights.tobytes() == expected.total().weights.tobytes()
    task = Task(SiteSummaries(8, rows_per_mean=1), State())
    [answers] = table.ask([task])
    assert isinstance(answers, BatchedAnswers)
    left = answers.by_site["s0"].weights
    assert (left[left > 0] >= LEAST).all()


@pytest.mark.parametrize("rule", [OddRowsOnly(), Stricter(3)], ids=repr)
def test_a_rule_of_ones_own_holds_in_each_engine_and_beside_groups(rule: Filter) -> None:
    """No engine that knows limits alone takes it for one; groups of rows do not keep it."""
    data, rules = Data(ROWS), Disclosure.of([rule])
    expected = rule(Client("all", data, ()).answer(ASKED), len(data)).weights
    assert 0 < np.count_nonzero(expected) < 4
    sites = np.repeat(NAMES, len(ROWS))
    table = LocalEngine.from_table(Data(np.tile(ROWS, (10, 1))), sites, rules)
    blocks = in_blocks(np.tile(ROWS, (10, 1)), sites, rules)
    totals = [engine.ask([ASKED])[0].total() for engine in (table, blocks)]
    totals += [ask(data, rules, ASKED).total() for ask in ENGINES.values()]
    assert all(total.weights.tolist() == (10 * expected).tolist() for total in totals)
    grouped = Disclosure.of([rule], Groups(p=5))
    assert grouped.in_force == (rule,)
    assert grouped.stated == (Groups(p=5).limit, Limit.from_filter(rule))


@engines
def test_under_a_privacy_budget_nothing_exact_leaves(ask) -> None:
    """Whoever asks: the policy of a site is not the only one that knows."""
    rules = Disclosure(budget=Budget(2.0, 1e-6))
    with pytest.raises((InputError, SiteError), match="every answer needs noise"):
        ask(Data(ROWS), rules, ASKED)


def test_a_budget_holds_where_sites_are_asked_at_once() -> None:
    rules = Disclosure(budget=Budget(2.0, 1e-6))
    sites, rows = np.repeat(NAMES, len(ROWS)), np.tile(ROWS, (10, 1))
    table = LocalEngine.from_table(Data(rows), sites, rules)
    for engine in (table, in_blocks(rows, sites, rules)):
        with pytest.raises(InputError, match="every answer needs noise"):
            engine.ask([ASKED])


def test_under_a_privacy_budget_no_text_and_no_label_leaves() -> None:
    labels = np.array(["ill", "well"])[np.arange(len(ROWS)) % 2]
    data = Data(ROWS, y=labels)
    free, bound = (Client("s", data, rules) for rules in ((), Disclosure(budget=Budget(2.0, 1e-6))))
    assert free.classes() == ("ill", "well")
    assert bound.classes() == ()
    assert [len(client.describe(["x0"])[0].levels) for client in (free, bound)] == [3, 0]


def test_noise_takes_the_place_of_limits_but_not_of_groups() -> None:
    """What limits hold back is an exact count; a row can change the groups of many others."""
    rows = np.column_stack([ROWS / 10, ROWS - 10])
    limited = Client("s", Data(rows), Disclosure((MinRows(1000),), rows_per_person=1))
    assert limited.answer(noisy_task(5.0)).weights.all()
    grouped = Client("s", Data(rows), (), Groups(p=5))
    with pytest.raises(InputError, match="groups of rows and noise do not go together"):
        grouped.answer(noisy_task(5.0))


@pytest.mark.parametrize(
    ("rules", "task", "reason"),
    [
        (Disclosure(groups=Groups(p=5)), noisy_task(5.0), ": groups of rows and noise do not go"),
        (Disclosure(budget=Budget(2.0, 1e-6)), ASKED, ": Lloyd: under a privacy budget, every"),
    ],
)
def test_a_policy_refuses_by_the_rules_that_the_client_holds(rules, task, reason) -> None:
    with pytest.raises(PolicyError, match=reason):
        Policy(disclosure=rules).check({"run": "r", "exchange": 0}, [task], ("x0", "x1"), 2)
    with pytest.raises(InputError):
        Client("s", Data(np.zeros((50, 2))), rules, rules.groups).answer(task)


def test_offsets_of_a_site_are_of_as_many_rows_as_its_limits_ask_for() -> None:
    """An offset between centres of the coordinator's counts rows, also a single one."""

    def asked(least: int) -> Task:
        effects = SiteEffects(((0.0,), (1e6,)), ((1.0,),), (1.0,), least)
        return replace(ASKED, preprocessor=Preprocessor((NumericColumn("x0"),), effects=effects))

    for rules, least in (
        (Disclosure((MinRows(2),)), 0),
        (Disclosure(LIMITS, Groups(p=5)), 0),
        (Disclosure(LIMITS), LEAST),
    ):
        Policy(disclosure=rules).check({"run": "r", "exchange": 0}, [asked(least)], ("x0",), 1)
    with pytest.raises(
        PolicyError, match="adjusting by site does not go with a limit that its model"
    ):
        Policy(disclosure=Disclosure(LIMITS)).check(
            {"run": "r", "exchange": 0}, [asked(LEAST - 1)], ("x0",), 1
        )


@pytest.mark.parametrize("persons", [None, np.array([*range(40), 7, 7, 7, 8, 8])])
def test_fewer_rows_or_persons_than_the_limit_do_not_move_an_offset(persons) -> None:
    rows = np.concatenate(
        [np.random.default_rng(0).normal(3.0, 1.0, (40, 1)), np.full((5, 1), 1e6)]
    )
    few = 3 if persons is not None else 6
    for least, is_moved in ((0, True), (few, False)):
        effects = SiteEffects(((0.0,), (1e6,)), ((1.0,),), (9.0,), least)
        gains = replace(effects, gains=((1.2,), (0.1,), (0.0,)))
        (one, whole), (other, part), *scaled = (
            each.adjustment(rows[:n], np.ones(n), 0.0, None if persons is None else persons[:n])
            for each in (effects, gains)
            for n in (45, 44)
        )
        assert one == other == 1
        assert abs(whole[0] - part[0]) > 1e-3 or not is_moved
        assert whole[0] == part[0] or is_moved
        assert scaled[0] == scaled[1] or is_moved


def test_no_coordinator_lifts_limits_by_next_to_no_noise() -> None:
    """It chooses the noise, and nothing counts it where there is no budget."""
    rows = Data(np.column_stack([ROWS / 10, ROWS - 10]))
    header = {"run": "r", "exchange": 0}
    for rules in (Disclosure(LIMITS), Disclosure(), None):
        policy = Policy(disclosure=rules)
        for noise in (1e-3, 5.0):
            with pytest.raises(PolicyError, match="the site has no privacy budget"):
                policy.check(header, [noisy_task(noise)], ("x0", "x1"), 2)
        engine = RemoteEngine(
            Postman({"s": Responder(Client("s", rows, ()), policy=policy)}), ["s"]
        )
        [site] = engine.introduce()
        assert site.refuses == "noise-unbudgeted"


def test_what_a_site_states_are_the_rules_that_hold() -> None:
    rules = Disclosure((MinRows(2), MinClusterSize(5), MinClusterSize(LEAST)), Groups(p=5))
    stated = ["Groups(p=5, min_rows=20)", f"MinClusterSize(p={LEAST})"]
    client = Client("s", Data(ROWS), rules, rules.groups)
    assert [str(limit) for limit in client.site.limits] == stated
    budget = replace(Disclosure(budget=Budget(2.0, 1e-6)), colluders=1)
    [limit] = Client("s", Data(ROWS), budget).site.limits
    assert str(limit) == "PrivacyBudget(epsilon=2.0, delta=1e-06, group_size=1, colluders=1)"


def test_sites_with_the_same_rules_share_one_object() -> None:
    assert Disclosure.of([MinRows(2)]) is Disclosure.of((MinRows(2),))
    assert Disclosure.of([MinRows(2)]) is not Disclosure.of([MinRows(3)])


@pytest.mark.parametrize(("p", "least"), [(1, 0), (2, 2), (5, 5)])
def test_one_row_behind_a_number_is_no_limit(p: int, least: int) -> None:
    """So that offsets of a site without limits are not refused for a limit of one."""
    assert Disclosure.of((MinRows(1), MinClusterSize(p))).least == least
