"""Relays: the bits of asking all sites, and what a relay does not pass on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grids import KNOWN
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from test_laws import STEPS, asked
from test_replies import Postman

from fedcluster import Client, Data, LocalEngine, MinClusterSize, MinRows, State, Summary, Task
from fedcluster.algorithms import FKM, KFed, Lloyd, SiteSummaries
from fedcluster.core import Algorithm, Answers, Column, Engine, Limit, SiteInfo
from fedcluster.engines import CrowdEngine, Relay, wire
from fedcluster.engines.remote import RemoteEngine
from fedcluster.engines.reply_validation import NOTHING_STATED, check_answer
from fedcluster.engines.responder import Responder
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import Fit, execute
from fedcluster.metrics import Inertia
from fedcluster.privacy.budget import PolicyError
from fedcluster.rounds import iterate, run_plan

RNG = np.random.default_rng(3)
SPOTS = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 1.0], [0.0, 9.0, 2.0], [9.0, 9.0, 3.0]])
NAMES = [f"s{i:02}" for i in range(64)]


def rows(n: int) -> Data:
    """Rows of columns whose values have very different exponents."""
    X = SPOTS[RNG.integers(0, 4, n)] + RNG.normal(size=(n, 3))
    return Data(X * [1.0, 1e-9, 1e7], RNG.choice([0.1, 1.0, 3.7], n), y=RNG.integers(0, 3, n))


ROWS = {name: rows(int(RNG.integers(5, 40))) for name in NAMES}
START = State.at(SPOTS * [1.0, 1e-9, 1e7] + 0.1)


def clients(names: Sequence[str] = NAMES, limits: Sequence[Any] = (MinRows(2),)) -> list[Client]:
    return [Client(name, ROWS[name], limits) for name in names]


def relays(names: Sequence[str] = NAMES, size: int = 8, **how: Any) -> list[Relay]:
    return [
        Relay(f"r{i:03}", LocalEngine(clients(names[i : i + size], **how)))
        for i in range(0, len(names), size)
    ]


def same(one: Summary, other: Summary) -> None:
    assert one.planes.tobytes() == other.planes.tobytes()


ADDITIVE = [step for step in STEPS if step.server_additive]


@pytest.mark.parametrize("step", ADDITIVE, ids=repr)
def test_eight_relays_of_eight_sites_have_the_bits_of_64_sites(step: Any) -> None:
    task = Task(step, asked(step, START.centers), seed=4)
    [flat], [tree] = (LocalEngine(each).ask([task]) for each in (clients(), relays()))
    same(flat.total(), tree.total())
    if hasattr(step, "server_step"):
        after = (
            step.server_step(task.state, each.summaries, np.random.default_rng(0))
            for each in (flat, tree)
        )
        one, other = after
        assert one.centers.tobytes() == other.centers.tobytes()
        assert one.weights.tobytes() == other.weights.tobytes()


def test_a_whole_fit_over_relays_has_the_bits_of_the_flat_one() -> None:
    job = Fit(n_clusters=4, sums_only=True, init="sums", max_iter=30)
    flat, tree = (execute(job, LocalEngine(each)) for each in (clients(), relays()))
    assert flat.outcome.value.state.centers.tobytes() == tree.outcome.value.state.centers.tobytes()
    assert flat.outcome.value.state.inertia == tree.outcome.value.state.inertia


def test_relays_of_relays_have_the_same_bits() -> None:
    low = [LocalEngine(clients(NAMES[i : i + 4])) for i in range(0, 64, 4)]
    middle = [Relay(f"m{i:02}", engine) for i, engine in enumerate(low)]
    top = [Relay(f"t{i}", LocalEngine(middle[i : i + 4])) for i in range(0, 16, 4)]
    runs = [
        run_plan(iterate(Lloyd(), START, max_rounds=6), LocalEngine(each)).value
        for each in (clients(), top)
    ]
    assert runs[0].state.centers.tobytes() == runs[1].state.centers.tobytes()
    assert [done.inertia for done in runs[0].history] == [done.inertia for done in runs[1].history]


def posted(sites: Sequence[Relay | Client]) -> RemoteEngine:
    """Sites asked over the wire, whose replies are checked."""
    ends = {site.name: Responder(site, columns=("x", "y", "z"), **KNOWN) for site in sites}
    return RemoteEngine(Postman(ends), ends)


@pytest.mark.parametrize("step", [Lloyd(), Inertia()], ids=repr)
def test_totals_travel_and_are_believed(step: Any) -> None:
    engine, task = posted(relays()), Task(step, START)
    engine.introduce(columns=True)
    [answers] = engine.ask([task])
    [flat] = LocalEngine(clients()).ask([task])
    same(answers.total(), flat.total())
    assert engine.refusals == []
    assert all(site.streams for site in engine.introduce())


def test_a_fit_over_the_wire_has_the_same_bits() -> None:
    job = Fit(n_clusters=4, sums_only=True, init="sums", max_iter=10)
    flat, tree = (execute(job, engine) for engine in (LocalEngine(clients()), posted(relays())))
    assert flat.outcome.value.state.centers.tobytes() == tree.outcome.value.state.centers.tobytes()


# What a relay refuses.


@pytest.mark.parametrize("step", [SiteSummaries(8), KFed(2), FKM(2)], ids=repr)
def test_a_relay_answers_no_step_that_does_not_add(step: Algorithm) -> None:
    with pytest.raises(InputError, match="needs each site's own answer, and a relay sends totals"):
        LocalEngine(relays()).ask([Task(step, State())])
    with pytest.raises(InputError, match="needs each site's own answer"):
        posted(relays()[:1]).ask([Task(step, State())])


def test_a_relay_answers_nothing_with_noise() -> None:
    with pytest.raises(SiteError, match="Lloyd with noise: a relay's sites would each add noise"):
        LocalEngine(relays()).ask([Task(Lloyd(), START, noise=2.0)])


@pytest.mark.parametrize("n", [1, 2])
def test_a_relay_with_too_few_sites_tells_nothing(n: int) -> None:
    relay = Relay("few", LocalEngine(clients(NAMES[:n])))
    why = "too few sites answered relay 'few', which speaks for 3 or more"
    for tell in (relay.introduce, lambda: relay.answer(Task(Lloyd(), START))):
        with pytest.raises(PolicyError, match=why):
            tell()
    with pytest.raises(ValueError, match="a relay speaks for at least 3 sites, not 2"):
        Relay("few", LocalEngine(clients()), fewest=2)


class Gone:
    """An engine of whose sites one stops to answer."""

    def __init__(self, engine: LocalEngine, left: Sequence[str]) -> None:
        self.engine, self.left = engine, left

    def introduce(self, **asked: Any) -> tuple[SiteInfo, ...]:
        return self.engine.introduce(**asked)

    def ask(self, tasks: Sequence[Task], sites: Any = None) -> list[Answers]:
        return self.engine.ask(tasks, self.left)


@pytest.mark.parametrize(("n", "fewest", "told"), [(3, 3, False), (4, 3, True), (4, 4, False)])
def test_a_site_that_is_gone_leaves_the_sum_of_the_others_or_none(
    n: int, fewest: int, told: bool
) -> None:
    """With all behind every answer, no two answers differ by one site."""
    engine: Engine = Gone(LocalEngine(clients(NAMES[:n])), NAMES[1:n])
    relay = Relay("r", engine, fewest)
    if told:
        [others] = LocalEngine(clients(NAMES[1:n])).ask([Task(Lloyd(), START)])
        same(relay.answer(Task(Lloyd(), START)), others.total())
    else:
        with pytest.raises(PolicyError, match="too few sites answered"):
            relay.answer(Task(Lloyd(), START))


def test_a_line_of_few_sites_is_held_back_where_the_relay_says_so() -> None:
    own = {name: Data(np.full((4, 1), float(i // 3))) for i, name in enumerate("abcd")}
    sites = [Client(name, data) for name, data in own.items()]
    task = Task(Lloyd(), State.at([[0.0], [1.0]]))
    assert_array_equal(Relay("r", LocalEngine(sites)).answer(task).weights, [12, 4])
    kept = Relay("r", LocalEngine(sites), lines=True)
    assert_array_equal(kept.answer(task).weights, [12, 0])
    assert not kept.answer(task).sums[1].any()
    [record, _] = kept.audit_log
    assert (record.lines, record.numbers, record.held_back) == (1, 3, 4)


def test_a_relay_has_limits_of_its_own() -> None:
    relay = Relay("r", LocalEngine(clients(NAMES[:3])), filters=[MinClusterSize(10**6)])
    assert relay.answer(Task(Lloyd(), START)).n_values == 0
    everything = Relay("r", LocalEngine(clients(NAMES[:3])), filters=[MinRows(10**6)])
    assert everything.answer(Task(Inertia(), START)).n_values == 0


def test_the_rows_of_all_its_sites_count_for_a_limit_of_a_relay() -> None:
    """It lets the total out from exactly as many rows on as they have together."""
    n = sum(len(ROWS[name]) for name in NAMES[:3])
    for least, lines in ((n, 1), (n + 1, 0)):
        relay = Relay("r", LocalEngine(clients(NAMES[:3])), filters=[MinRows(least)])
        assert np.count_nonzero(relay.answer(Task(Inertia(), START)).weights) == lines


# What it tells of its sites.


def test_limits_are_the_strictest_of_all() -> None:
    sites = [
        Client("a", ROWS["s00"], [MinRows(2), MinClusterSize(3)]),
        Client("b", ROWS["s01"], [MinRows(5)]),
        Client("c", ROWS["s02"], [MinClusterSize(2)]),
    ]
    told = Relay("r", LocalEngine(sites), filters=[MinClusterSize(4)]).site
    limits = ["MinRows(n=5)", "MinClusterSize(p=4)", "Relay(fewest=3, lines=False)"]
    assert list(map(str, told.limits)) == limits
    assert told.n_rows == sum(len(ROWS[name]) for name in ("s00", "s01", "s02"))
    assert (told.n_columns, told.streams) == (3, True)


def described(each: Mapping[str, tuple[Column, ...]], labels: Any = None) -> Relay:
    class Telling:
        def introduce(self, **asked: Any) -> tuple[SiteInfo, ...]:
            return tuple(
                SiteInfo(name, columns=columns, labels=(labels or {}).get(name), n_columns=1)
                for name, columns in each.items()
            )

        def ask(self, tasks: Sequence[Task], sites: Any = None) -> list[Answers]:
            raise NotImplementedError

    return Relay("r", Telling())


def test_columns_and_labels_of_all_sites_are_united() -> None:
    sex = [Column("sex", "text", levels) for levels in (("M",), ("F", "M"), ("X",))]
    each = {name: (column,) for name, column in zip("abc", sex, strict=True)}
    relay = described(each, {"a": ("ill",), "b": ("well", "ill"), "c": ()})
    told = relay.introduce(columns=True, labels=True)
    assert told.columns == (Column("sex", "text", ("F", "M", "X")),)
    assert told.labels == ("ill", "well")
    assert relay.introduce(columns=True).labels is None
    empty = described({**each, "c": (Column("sex", "empty"),)}).introduce(columns=True)
    assert empty.columns == (Column("sex", "empty"),)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (Column("age"), "columns of other names or in another order"),
        (Column("sex", "number"), "column 'sex' is text at some sites behind a relay, and numbers"),
    ],
)
def test_columns_that_do_not_agree_are_refused(column: Column, why: str) -> None:
    text = (Column("sex", "text", ("F",)),)
    relay = described({"a": text, "b": text, "c": (column,)})
    with pytest.raises(PolicyError, match=why):
        relay.introduce(columns=True)
    labels = {"a": ("x",), "b": None, "c": None}
    with pytest.raises(PolicyError, match="no labels at b and c behind a relay"):
        described(dict.fromkeys("abc", text), labels).introduce(labels=True)


def test_sites_with_other_numbers_of_columns_are_refused() -> None:
    sites = [Client(name, Data(np.eye(3)[:, : 2 + (name == "c")])) for name in "abc"]
    with pytest.raises(PolicyError, match="the sites of relay 'r' have different columns"):
        Relay("r", LocalEngine(sites)).introduce()


# What a relay that lies cannot do.

SITE = SiteInfo("r", n_rows=1000.0, weight=1000.0, n_columns=3)
HONEST = Summary.total(
    [client.answer(Task(Lloyd(), START)) for client in clients(NAMES[:3])],
)


@pytest.mark.parametrize(
    "lie",
    [
        lambda rest: rest * 4,
        lambda rest: np.ones_like(rest),
        lambda rest: np.full_like(rest, np.nan),
        lambda rest: np.full_like(rest, np.inf),
        lambda rest: np.concatenate([rest, rest]),
        lambda rest: np.concatenate([rest, np.zeros((1, *rest.shape[1:]))]),
        lambda rest: np.zeros((60, *rest.shape[1:])),
    ],
)
def test_what_rounding_took_can_be_no_more_than_rounding_takes(
    lie: Callable[[np.ndarray], np.ndarray],
) -> None:
    assert HONEST.rest is not None
    check_answer(Task(Lloyd(), START), HONEST, SITE, NOTHING_STATED, None)
    with pytest.raises(wire.WireError, match="what rounding took of its sums is not what rounding"):
        lying = replace(HONEST, rest=lie(HONEST.rest))
        check_answer(Task(Lloyd(), START), lying, SITE, NOTHING_STATED, None)


def test_a_line_of_weight_0_says_nothing_in_what_rounding_took() -> None:
    assert HONEST.rest is not None
    empty = HONEST.keep(np.array([False, True, True, True]))
    lying = replace(empty, rest=HONEST.rest)
    with pytest.raises(wire.WireError, match="what rounding took"):
        check_answer(Task(Lloyd(), START), lying, SITE, NOTHING_STATED, None)


def test_answers_with_parts_of_no_answer_are_refused() -> None:
    arrays = wire.write_summaries([HONEST])
    [again] = wire.read_summaries(arrays)
    same(again, HONEST)
    with pytest.raises(wire.WireError, match=r"'1\.rest' belongs to none"):
        wire.read_summaries({**arrays, "1.rest": HONEST.planes})
    with pytest.raises(wire.WireError, match="what rounding took of sums has shape"):
        wire.read_summaries({**arrays, "0.rest": HONEST.sums})


@given(st.integers(0, 2**32 - 1))
def test_rows_in_any_relay_give_the_same_total(seed: int) -> None:
    names = np.random.default_rng(seed).permutation(NAMES[:12]).tolist()
    task = Task(Lloyd(), START)
    [flat], [tree] = (
        LocalEngine(each).ask([task]) for each in (clients(NAMES[:12]), relays(names, 4))
    )
    same(flat.total(), tree.total())


def test_a_relay_over_a_crowd_of_one_name_is_refused() -> None:
    """A crowd counts as one site: nobody can tell how many answered."""
    crowd = CrowdEngine([(np.eye(4), np.arange(5))], [])
    with pytest.raises(PolicyError, match="too few sites answered"):
        Relay("r", crowd).answer(Task(Lloyd(), State.at(np.eye(4)[:2])))


def test_a_relay_says_what_it_is() -> None:
    assert repr(Relay("r", LocalEngine(clients()))) == "Relay('r', fewest=3, lines=False)"
    assert Limit("Relay", (("fewest", 3), ("lines", False))) in relays()[0].site.limits


def test_the_page_on_relays_runs() -> None:
    page = (Path(__file__).parents[1] / "docs" / "relays.md").read_text("utf-8")
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(block, "relays.md", "exec"), {})
