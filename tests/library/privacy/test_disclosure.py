"""The rules of a site on what leaves it hold for each answer, in every engine, and are stated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from secure_sites import federation
from test_noise import task as noisy_task
from test_replies import Postman

from fedcluster.algorithms import Lloyd, SiteSummaries, VarianceTree
from fedcluster.core import Answers, Data, Filter, Floats, Grouped, Limit, State, Summary, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.batched import BatchedAnswers, Stacked
from fedcluster.engines.client import Client
from fedcluster.errors import InputError, PolicyError, SiteError
from fedcluster.metrics import Inertia
from fedcluster.preprocessing import NumericColumn, Preprocessor
from fedcluster.preprocessing.site_effects import SiteEffects
from fedcluster.privacy import Groups, MinClusterSize, MinRows
from fedcluster.privacy.budget import Budget
from fedcluster.privacy.disclosure import Disclosure, PersonCounter, PersonCounts, behind_groups
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
BUDGET = Disclosure(budget=Budget(2.0, 1e-6))
HEADER = {"run": "r", "exchange": 0}

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


def table(data: Data, rules: Disclosure, task: Task, at_once: int | None = None) -> Answers:
    """Of an engine that has the rows of all sites in one table, and may ask few at a time."""
    every = data.take(np.tile(np.arange(len(data)), 10))
    engine = LocalEngine.from_table(every, np.repeat(NAMES, len(data)), rules)
    assert isinstance(engine.clients, Stacked)
    engine.clients.sites_at_once = at_once or engine.clients.sites_at_once
    return engine.ask([task])[0]


def blocks(data: Data, rules: Disclosure, task: Task) -> Answers:
    return table(data, rules, task, 2)


def wire(data: Data, rules: Disclosure, task: Task) -> Answers:
    sites = federation(dict.fromkeys(NAMES, data), filters=rules, secure=False)
    return RemoteEngine(sites, NAMES).ask([task])[0]


def secure(data: Data, rules: Disclosure, task: Task) -> Answers:
    return SecureEngine(federation(dict.fromkeys(NAMES, data), filters=rules), NAMES).ask([task])[0]


ASKING: Sequence[Callable[[Data, Disclosure, Task], Answers]]
ASKING = (wire, secure, alone, local, table, blocks)
engines = pytest.mark.parametrize("ask", ASKING)


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


@pytest.mark.parametrize("ask", ASKING[:4])
def test_limits_hold_for_groups(ask) -> None:
    """Those above the size of a group; counted are the rows behind the groups of a line."""
    groups, least = Groups(p=5), 20
    rules = Disclosure.of([MinRows(2), MinClusterSize(least)], groups)
    free = ask(Data(ROWS), Disclosure.of((), groups), ASKED).total().weights / 10
    bound = ask(Data(ROWS), rules, ASKED).total().weights / 10
    assert ((free >= 5) & (free < least)).any()
    np.testing.assert_array_equal(bound, np.where(free >= least, free, 0))


def test_sites_that_are_asked_at_once_have_the_bits_of_each_by_itself() -> None:
    data, rules = Data(ROWS), Disclosure.of(LIMITS)
    for task in (ASKED, Task(VarianceTree(9), State()), Task(Inertia(), State.at(CENTERS))):
        expected = alone(data, rules, task).total()
        for ask in (local, table, blocks):
            answers = ask(data, rules, task)
            assert isinstance(answers, BatchedAnswers)
            assert answers.total().sums.tobytes() == expected.sums.tobytes()
            assert answers.total().weights.tobytes() == expected.weights.tobytes()
    answers = table(data, rules, Task(SiteSummaries(8, rows_per_mean=1), State()))
    assert isinstance(answers, BatchedAnswers)
    left = answers.by_site["s0"].weights
    assert (left[left > 0] >= LEAST).all()


@pytest.mark.parametrize("rule", [OddRowsOnly(), Stricter(3)], ids=repr)
def test_a_rule_of_ones_own_holds_in_each_engine_and_beside_groups(rule: Filter) -> None:
    """No engine that knows limits alone takes it for one; groups of rows do not keep it."""
    data, rules = Data(ROWS), Disclosure.of([rule])
    expected = rule(Client("all", data, ()).answer(ASKED), len(data)).weights
    assert 0 < np.count_nonzero(expected) < 4
    for ask in ASKING:
        assert ask(data, rules, ASKED).total().weights.tolist() == (10 * expected).tolist(), ask
    grouped = Disclosure.of([rule], Groups(p=5))
    assert grouped.in_force == (rule,)
    assert grouped.stated == (Groups(p=5).limit, Limit.from_filter(rule))


@engines
def test_under_a_privacy_budget_nothing_exact_leaves(ask) -> None:
    """Whoever asks: the policy of a site is not the only one that knows."""
    with pytest.raises((InputError, SiteError), match="every answer needs noise"):
        ask(Data(ROWS), BUDGET, ASKED)


def test_under_a_privacy_budget_no_text_and_no_label_leaves() -> None:
    data = Data(ROWS, y=np.array(["ill", "well"])[np.arange(len(ROWS)) % 2])
    free, bound = (Client("s", data, rules) for rules in ((), BUDGET))
    assert free.classes() == ("ill", "well")
    assert bound.classes() == ()
    assert [len(client.describe(["x0"])[0].levels) for client in (free, bound)] == [3, 0]


def test_noise_takes_the_place_of_limits() -> None:
    """What limits hold back is an exact count."""
    rows = Data(np.column_stack([ROWS / 10, ROWS - 10]))
    limited = Client("s", rows, Disclosure((MinRows(1000),), rows_per_person=1))
    assert limited.answer(noisy_task(5.0)).weights.all()


@pytest.mark.parametrize(
    ("rules", "task", "reason"),
    [
        (Disclosure(groups=Groups(p=5)), noisy_task(5.0), ": groups of rows and noise do not go"),
        (BUDGET, ASKED, ": Lloyd: under a privacy budget, every"),
    ],
)
def test_a_policy_refuses_by_the_rules_that_the_client_holds(rules, task, reason) -> None:
    with pytest.raises(PolicyError, match=reason):
        Policy(disclosure=rules).check(HEADER, [task], ("x0", "x1"), 2)
    with pytest.raises(InputError):
        Client("s", Data(np.zeros((50, 2))), rules, rules.groups).answer(task)


def test_offsets_of_a_site_are_of_as_many_rows_as_its_limits_ask_for() -> None:
    """An offset between centres of the coordinator's counts rows, also a single one."""

    def check(rules: Disclosure, least: int) -> None:
        effects = SiteEffects(((0.0,), (1e6,)), ((1.0,),), (1.0,), least)
        how = Preprocessor((NumericColumn("x0"),), effects=effects)
        Policy(disclosure=rules).check(HEADER, [replace(ASKED, preprocessor=how)], ("x0",), 1)

    check(Disclosure((MinRows(2),)), 0)
    check(Disclosure(LIMITS, Groups(p=5)), 0)
    check(Disclosure(LIMITS), LEAST)
    why = "adjusting by site does not go with a limit that its model"
    with pytest.raises(PolicyError, match=why):
        check(Disclosure(LIMITS), LEAST - 1)


@pytest.mark.parametrize("persons", [None, np.array([*range(40), 7, 7, 7, 8, 8])])
def test_fewer_rows_or_persons_than_the_limit_do_not_move_an_offset(persons) -> None:
    usual, few = np.random.default_rng(0).normal(3.0, 1.0, (40, 1)), 6 if persons is None else 3
    rows = np.concatenate([usual, np.full((5, 1), 1e6)])
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
    for rules in (Disclosure(LIMITS), Disclosure(), None):
        policy = Policy(disclosure=rules)
        for noise in (1e-3, 5.0):
            with pytest.raises(PolicyError, match="the site has no privacy budget"):
                policy.check(HEADER, [noisy_task(noise)], ("x0", "x1"), 2)
        responder = Responder(Client("s", rows, ()), policy=policy)
        [site] = RemoteEngine(Postman({"s": responder}), ["s"]).introduce()
        assert site.refuses == "noise-unbudgeted"


def test_what_a_site_states_are_the_rules_that_hold() -> None:
    rules = Disclosure((MinRows(2), MinClusterSize(5), MinClusterSize(LEAST)), Groups(p=5))
    budget = replace(BUDGET, colluders=1)
    stated, [limit] = (
        [str(limit) for limit in Client("s", Data(ROWS), each, each.groups).site.limits]
        for each in (rules, budget)
    )
    assert stated == ["Groups(p=5, min_rows=20)", f"MinClusterSize(p={LEAST})"]
    assert limit == "PrivacyBudget(epsilon=2.0, delta=1e-06, group_size=1, colluders=1)"


@pytest.mark.parametrize(("p", "least"), [(1, 0), (2, 2), (5, 5)])
def test_one_row_behind_a_number_is_no_limit(p: int, least: int) -> None:
    """So that offsets of a site without limits are not refused for a limit of one."""
    assert Disclosure.of((MinRows(1), MinClusterSize(p))).least == least
    assert Disclosure.of([MinRows(p)]) is Disclosure.of((MinRows(p),))  # sites share one object
    assert Disclosure.of([MinRows(p)]) is not Disclosure.of([MinRows(3)])


# By hand


def lines(*rows: float) -> Summary:
    n = len(rows)
    return Summary(np.ones((n, 2)), np.full(n, 0.5), np.array(rows))


def test_a_line_needs_as_many_rows_as_the_limit_says_and_a_site_for_any_line() -> None:
    for p, kept in ((1, [0.5, 0.5, 0.5]), (2, [0, 0.5, 0.5]), (3, [0, 0, 0.5])):
        assert_array_equal(MinClusterSize(p)(lines(1, 2, 3), 6).weights, kept)
    assert_array_equal(MinClusterSize()(lines(1, 2), 3).weights, [0, 0.5])
    for n_rows, of_all in ((1, 0.0), (2, 0.5), (3, 0.5)):
        found = MinRows()(lines(0, 1, 2), n_rows)
        assert_array_equal(found.weights, [of_all] * 3)
        assert_array_equal(found.sums, np.full((3, 2), of_all * 2))
    assert_array_equal(MinRows(1)(lines(1), 1).weights, [0.5])
    assert not MinRows(4)(lines(3), 3).weights.any()
    for limit in (MinClusterSize, MinRows):
        assert limit() == limit(2)
        for wrong in (0, -1):
            with pytest.raises(ValueError, match=f"at least 1, not {wrong}"):
                limit(wrong)


def counted(*groups: list[int]) -> PersonCounts:
    counter = PersonCounter()
    for each in groups:
        counter.add(np.array(each, dtype=np.int64))
    return counter.persons()


def test_persons_come_by_their_rows_whatever_chunk_they_were_in() -> None:
    """Seven has three rows, five two, nine one: the first k persons have 3, 5 and 6."""
    for groups in ([[7, 5, 7], [9, 7, 5]], [[7, 5, 7, 9, 7, 5]], [[7], [5], [7], [9], [7], [5]]):
        persons = counted(*groups)
        assert_array_equal(persons.most, [0, 3, 5, 6])
        assert len(persons) == 3
    many = counted(*[[i % 5, 0] for i in range(3 * PersonCounter.many)])
    assert_array_equal(np.diff(many.most)[:1], [3 * PersonCounter.many + 20])
    assert many.most[-1] == 6 * PersonCounter.many
    assert len(counted()) == 0
    assert_array_equal(counted().most, [0])


def test_rows_are_of_some_persons_at_least_and_so_many_persons_have_some_rows() -> None:
    """Four rows are at least two persons', and 5.5 three; no more than there are rows."""
    persons = PersonCounts(np.array([0.0, 3, 5, 6]))
    rows = np.array([0.0, 1, 3, 4, 5, 5.5, 6, 0.5])
    assert_array_equal(persons.min_groups(rows), [0, 1, 1, 2, 2, 3, 3, 0.5])
    hardly = np.array([3 + 2 * 0.9e-6, 3 + 2 * 1.5e-6])  # rounding is not a person
    assert_array_equal(persons.min_groups(hardly), [1, 2])
    assert [persons.rows_of(k) for k in (1, 2, 3, 4)] == [1, 4, 6, np.inf]


def test_the_rows_behind_a_share_of_a_group_are_that_share_of_them() -> None:
    """Of groups of 5, 6 and 9 rows: half of the second, and all of them but for rounding."""
    grouped = Grouped(np.array([5.0, 9.0, 6.0]))
    data = Data(np.zeros((3, 1)), grouped.counts, grouped=grouped)
    line = Summary(np.zeros((2, 0)), np.ones(2), np.array([1.5, 3.0 - 1e-9]))
    behind = behind_groups(line, data, grouped)
    assert_array_equal(behind.support, [5.0 + 6.0 / 2, 20.0])
    assert_array_equal(MinClusterSize(20)(behind, 20).weights, [0.0, 1.0])
