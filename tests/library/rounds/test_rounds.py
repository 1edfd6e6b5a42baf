"""The loop, plans that share rounds, the engine, and the client's filters."""

import copy
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fedcluster.algorithms import FKM, KFed, Lloyd
from fedcluster.core import Answers, Data, State, Summary, Task
from fedcluster.core.task import stream
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import HeldBackError, SiteError
from fedcluster.preprocessing import Preprocessor
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.rounds import (
    Plan,
    gather,
    iterate,
    run,
    run_plan,
    server_update,
    with_preprocessing,
)

ROWS = {"a": np.array([[0.0], [1.0], [10.0]]), "b": np.array([[2.0], [11.0], [12.0], [13.0]])}
START = State.at(np.array([[0.0], [1.0]]))


class CountingEngine(LocalEngine):
    """Remembers how many tasks each round carried."""

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        self.rounds = [*getattr(self, "rounds", []), len(tasks)]
        return super().ask(tasks, sites)


def engine(**options: object) -> CountingEngine:
    return CountingEngine(Client(name, Data(X), **options) for name, X in ROWS.items())  # type: ignore[arg-type]


def test_lloyd_by_hand(caplog: pytest.LogCaptureFixture) -> None:
    """Rows 0 1 2 | 10 11 12 13 from centres 0 and 1: the means move until they are 1 and 11.5."""
    result = run(Lloyd(tol=0), engine(), START)
    np.testing.assert_allclose(result.state.centers, [[1.0], [11.5]])
    np.testing.assert_allclose(result.state.weights, [3, 4])
    first = result.history[0]
    assert first.inertia == 0 + 0 + 81 + 1 + 100 + 121 + 144
    assert first.shift == pytest.approx(49 / 6 - 1)
    assert (first.answered, first.missing) == (("a", "b"), ())
    assert first.values_sent == {"a": 6, "b": 3}
    assert result.history[-1].shift == 0.0
    assert result.reason == f"converged after {len(result.history)} rounds"
    ended = run(Lloyd(tol=0), engine(), START, max_rounds=2)
    assert len(ended.history) == 2
    assert ended.reason == "stopped at the limit of 2 rounds"
    assert not [each for each in caplog.records if each.levelno > logging.INFO]


def test_a_run_continues_from_a_state() -> None:
    """Chaining needs no abstraction: one-shot k-FED, then exact rounds from its state."""
    shot = run(KFed(2), engine(), seed=1)
    refined = run(Lloyd(tol=0), engine(), shot.state)
    np.testing.assert_allclose(np.sort(refined.state.centers, axis=0), [[1.0], [11.5]])
    assert refined.history[0].round == 2


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "Own.server_step, round 1, returned NoneType, not a State"),
        (State.at([[np.nan]]), "Own.server_step, round 1, returned centres that are not finite"),
    ],
)
def test_an_algorithm_of_one_s_own_is_told_what_it_returned(returned: Any, message: str) -> None:
    class Own(Lloyd):
        def server_step(self, *args: Any) -> Any:
            return returned

    with pytest.raises((TypeError, ValueError), match=message):
        run(Own(), engine(), START)


def test_plans_share_their_rounds() -> None:
    """Five runs of different lengths cost the rounds of the longest, and end as if alone."""
    starts = [State.at(np.array([[c], [c + 1.0]])) for c in (0.0, 3.0, 6.0, 9.0, 12.0)]
    alone = [run(Lloyd(tol=0), engine(), start) for start in starts]
    shared = engine()
    outcome = run_plan(gather([iterate(Lloyd(tol=0), start) for start in starts]), shared)
    for one, other in zip(alone, outcome.value, strict=True):
        assert one.history == other.history
        np.testing.assert_array_equal(one.state.centers, other.state.centers)
    lengths = [len(one.history) for one in alone]
    assert len(set(lengths)) > 1
    assert shared.rounds == [sum(n >= r for n in lengths) for r in range(1, max(lengths) + 1)]
    assert outcome.values_sent() == {
        name: sum(done.values_sent[name] for one in alone for done in one.history) for name in ROWS
    }


def test_plans_without_a_round_are_plans() -> None:
    outcome = run_plan(gather([iterate(Lloyd(), START, max_rounds=0)] * 1), engine())
    assert outcome.communication_rounds == ()
    assert outcome.value[0].state is START


def test_a_stream_is_numpy_s_generator_of_its_key() -> None:
    """Although it is seeded only when something is drawn."""
    ours, numpys = stream(2**40, 3, "ü"), np.random.default_rng([2**40, 3, *"ü".encode()])
    assert ours.random() == numpys.random()
    np.testing.assert_array_equal(ours.permutation(9), numpys.permutation(9))
    assert copy.deepcopy(stream(1, 2)).random() == stream(1, 2).random()
    with pytest.raises(ValueError, match="non-negative"):
        stream(-1, 2).random()


def test_one_site_s_answer_does_not_depend_on_who_else_takes_part() -> None:
    both = engine().ask([Task(FKM(2), State(), 7)])[0].by_site["a"]
    alone = engine().ask([Task(FKM(2), State(), 7)], ["a"])[0]
    np.testing.assert_array_equal(both.sums, alone.by_site["a"].sums)
    assert alone.missing == ("b",)


def test_threads_do_not_touch_a_bit() -> None:
    rng = np.random.default_rng(0)
    rows, start = {f"s{i}": rng.normal(size=(30_000, 2)) for i in range(4)}, rng.normal(size=(5, 2))
    found = set()
    for workers in (1, 2, 3, 8):
        local = LocalEngine([Client(name, Data(X)) for name, X in rows.items()], workers=workers)
        done = run(Lloyd(tol=0), local, State.at(start), max_rounds=5)
        found.add(done.state.centers.tobytes())
    assert len(found) == 1


@dataclass(frozen=True)
class Failing(Lloyd):
    """Fails at the site that has most rows."""

    def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Summary:
        if len(data) > 3:
            raise ZeroDivisionError("a fault in a step")
        return super().client_step(state, data, rng)


def test_a_fault_at_a_site_names_the_site_and_the_round() -> None:
    with pytest.raises(SiteError) as error:
        run(Failing(), engine(), replace(START, round=4))
    assert str(error.value) == "site 'b', round 5, Failing: ZeroDivisionError: a fault in a step"
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_two_sites_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two sites have the same name: 'a'"):
        LocalEngine([Client("a", Data(ROWS["a"])), Client("a", Data(ROWS["b"]))])
    with pytest.raises(ValueError, match="no site was given"):
        LocalEngine([])


def test_centres_of_another_width_than_the_rows_are_refused() -> None:
    message = "site 'a', round 1, Lloyd: ValueError: the centres have 2 columns, the rows here 1"
    with pytest.raises(SiteError, match=message):
        run(Lloyd(), engine(), State.at(np.zeros((3, 2))))


@pytest.mark.parametrize("weight", [None, np.array([1.0, 1.0, 9.0])])
def test_limits_hold_back_lines_and_never_what_a_task_wants(weight: Any) -> None:
    """The filter is the site's: the log says what it held back, and the row does not leave. One
    row of weight 9 is still one row.
    """
    client = Client("a", Data(ROWS["a"], weight), [MinClusterSize(2)])
    answer = client.answer(Task(Lloyd(), State.at(np.array([[0.0], [10.0]]))))
    np.testing.assert_array_equal(answer.weights, [2, 0])
    np.testing.assert_array_equal(answer.sums, [[1, 1], [0, 0]])
    assert answer.support is None
    [sent] = client.audit_log
    assert (sent.lines, sent.numbers, sent.held_back, sent.lone_rows) == (1, 3, 1, 0)


def test_a_site_below_its_smallest_number_of_rows_says_nothing() -> None:
    answer = Client("a", Data(ROWS["a"]), [MinRows(4)]).answer(Task(Lloyd(), START))
    assert not answer.weights.any()
    assert not answer.sums.any()


def test_when_limits_hold_everything_back_the_error_says_which() -> None:
    with pytest.raises(HeldBackError, match=r"MinClusterSize\(p=5\) at a, b"):
        run(Lloyd(), engine(filters=[MinClusterSize(5)]), START)


def test_only_the_first_round_must_bring_something() -> None:
    """Later ones may be about groups too small for every site's limit: that is an answer, too."""
    whole, apart = State.at([[6.0]]), State.at([[x] for x in (0.0, 1.0, 2.0, 10.0, 11.0, 12.5)])

    def plan(*states: State) -> Plan[list[float]]:
        brought = []
        for state in states:
            [answers] = yield [Task(Lloyd(), state)]
            brought.append(answers.total().weights.sum())
        return brought

    limited = engine(filters=[MinClusterSize(3)])
    outcome = run_plan(plan(whole, apart, whole, apart), limited)
    assert outcome.value == [7, 0, 7, 0]
    assert [sum(r.values_sent.values()) for r in outcome.communication_rounds] == [6, 0, 6, 0]
    with pytest.raises(HeldBackError, match="no site sent anything"):
        run_plan(plan(apart, whole), limited)


@pytest.mark.parametrize("limit", [MinClusterSize, MinRows])
def test_a_limit_below_one_is_refused(limit: type) -> None:
    with pytest.raises(ValueError, match="must be at least 1, not 0"):
        limit(0)


def test_a_site_without_weights_is_an_error_at_that_site() -> None:
    clients = [Client("a", Data(ROWS["a"], np.zeros(3))), Client("b", Data(ROWS["b"]))]
    with pytest.raises(SiteError, match=r"site 'a', round 1, .* no row of positive weight"):
        run(Lloyd(), LocalEngine(clients), START)


def test_summaries_of_different_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"not \(2, 3\) and \(3,\)"):
        Summary(np.zeros((2, 3)), np.zeros(3))


@pytest.mark.parametrize(
    ("start", "shift"),
    [([[0.0, 0.0], [20.0, 0.0]], 12.0), ([[0.0, 0.0]], pytest.approx(np.hypot(11.5, 8)))],
)
def test_a_shift_is_the_longest_way_of_a_centre(start: Any, shift: Any) -> None:
    """From (0, 0) by (3, 4), and from (20, 0) by (0, 12)."""
    local = LocalEngine([Client("a", Data(np.array([[3.0, 4.0], [20.0, 12.0]])), filters=())])
    [done] = run(Lloyd(tol=0), local, State.at(start), max_rounds=1).history
    assert done.shift == shift


def test_who_watches_sees_every_round_as_it_is_kept() -> None:
    seen: list[Any] = []
    outcome = run_plan(iterate(Lloyd(tol=0), START), engine(), watch=seen.append)
    assert len(seen) > 2
    assert tuple(seen) == outcome.communication_rounds
    twice = run_plan(iterate(Lloyd(tol=0.5), START), engine()).after(outcome)
    assert twice.communication_rounds[: len(seen)] == outcome.communication_rounds
    assert len(twice.communication_rounds) > len(seen)
    assert twice.steps == (repr(Lloyd(tol=0)), repr(Lloyd(tol=0.5)))
    account, sent = twice.account(), {"a": 6, "b": 3}
    assert [each["round"] for each in account] == list(range(1, len(account) + 1))
    assert account[0] == {"round": 1, "tasks": {"Lloyd": 1}, "missing": [], "values_sent": sent}
    assert twice.values_sent() == {
        name: sum(each["values_sent"][name] for each in account) for name in ROWS
    }


def test_a_task_s_own_preprocessor_stays_its_own() -> None:
    """The plan's is for those that have none."""
    plans, own = Preprocessor(()), Preprocessor((), unit=True)

    def plan() -> Plan[None]:
        yield [Task(Lloyd(), START), Task(Lloyd(), START, preprocessor=own)]
        yield [Task(Lloyd(), START)]

    prepared = with_preprocessing(plan(), plans)
    assert [task.preprocessor for task in next(prepared)] == [plans, own]
    assert [task.preprocessor for task in prepared.send([])] == [plans]
    with pytest.raises(StopIteration):
        prepared.send([])


def test_a_silent_first_round_names_who_was_silent() -> None:
    local = LocalEngine(
        (Client(name, Data(X)) for name, X in ROWS.items()), silent=lambda site, done: True
    )
    with pytest.raises(HeldBackError, match=r"^no site answered in the first round: a, b did not$"):
        run(Lloyd(), local, START)


def test_a_round_that_nobody_answers_counts_and_moves_nothing() -> None:
    state, done = server_update(Lloyd(), START, Answers({}, ("a", "b")), 0)
    assert (state.round, done.round, done.shift) == (1, 1, 0.0)
    assert state.centers.tobytes() == START.centers.tobytes()
    assert done.missing == ("a", "b")
