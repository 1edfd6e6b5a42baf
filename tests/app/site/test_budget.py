"""A site's privacy budget: nothing without noise, every answer charged before it leaves."""

import json
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_noise import BOX, STATE, SumsByCentre, task
from test_worker import FEDERATION, started
from typer.testing import CliRunner

from fedcluster.algorithms import Lloyd
from fedcluster.algorithms.private import BallScatter, BoxMoments, GridCells, RelativeLloyd
from fedcluster.core import Data, State, Summary, Task
from fedcluster.engines.client import Client
from fedcluster.engines.reply_validation import implausible
from fedcluster.engines.wire import pack, unpack, write_tasks
from fedcluster.errors import InputError, PolicyError
from fedcluster.metrics.moments import SiteSize
from fedcluster.preprocessing import Category, Preprocessor
from fedcluster.privacy.budget import Budget, noise_of, rho_of
from fedcluster.privacy.disclosure import Disclosure, scales
from fedcluster_app.cli import app
from fedcluster_app.report.messages import limits_in_words
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.logs import budget_content, budget_parts
from fedcluster_app.trust.audit_log import AuditLog, Head, parts_of, read_log
from fedcluster_app.trust.site_state import STATE_FILE, SiteState
from fedcluster_app.wire.policy import BudgetLedger, Policy
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder

BUDGET = Budget(2.0, 1e-6)
ROWS = np.random.default_rng(0).uniform([0, -10], [4, 10], (60, 2))
SITE = 'name = "north"\n[source]\npath = "rows.csv"\n[privacy]\nepsilon = 2.0\ndelta = 1e-6\n'


LOGARITHM = replace(BOX, columns=tuple(replace(column, log=True) for column in BOX.numeric))
"""It fails if one value is negative, which would be told without noise."""
NO_FILL = replace(BOX, columns=tuple(replace(column, fill=None) for column in BOX.columns))
"""It fails if one value is missing."""
LEVELS = replace(BOX, columns=(Category("x0", ("a",)),))
"""It depends on which texts enough rows share."""


def ledger(folder: Path, budget: Budget = BUDGET) -> BudgetLedger:
    (state := SiteState(folder / STATE_FILE)).create()
    return BudgetLedger(state, budget)


def responder(
    folder: Path, client: Any = None, budget: Budget = BUDGET, steps: Any = None
) -> Responder:
    client = client or Client("north", Data(ROWS))
    return Responder(
        client,
        columns=("x0", "x1"),
        choose=lambda columns, raw=False: client,
        steps=steps or {each.__name__: each for each in (SumsByCentre, Lloyd, SiteSize, GridCells)},
        preprocessors=Preprocessor.from_plain,
        policy=Policy(budget=ledger(folder, budget)),
    )


def question(*tasks: Task, run: str = "r", exchange: int = 0, **more: Any) -> bytes:
    headers, arrays = write_tasks(tasks)
    head = {"protocol": 1, "run": run, "exchange": exchange, "tasks": headers, "raw": True}
    return pack(head | {"columns": ["x0", "x1"]} | more, arrays)


def refusal(reply: bytes) -> str:
    return str(unpack(reply)[0]["refused"])


def is_answered(reply: bytes) -> bool:
    return bool(unpack(reply)[1])


NEEDS_NUMBERS = "must be numbers without logarithm, and filled in"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Task(SiteSize(), STATE), "SiteSize: under a privacy budget, every answer needs noise"),
        (task(5.0, step=GridCells()), "GridCells cannot be asked about this state"),
        (task(5.0, preprocessor=LOGARITHM), NEEDS_NUMBERS),
        (task(5.0, preprocessor=NO_FILL), NEEDS_NUMBERS),
        (task(5.0, preprocessor=LEVELS), NEEDS_NUMBERS),
        (task(None), "SumsByCentre: under a privacy budget, every answer needs noise"),
    ],
)
def test_a_site_with_a_budget_answers_nothing_exactly(tmp_path, asked, reason):
    assert reason in refusal(responder(tmp_path).reply(question(asked)))
    assert not ledger(tmp_path).charges


def test_kinds_texts_and_labels_stay(tmp_path):
    kinds: list[dict[str, Any]] = [{"described": []}, {"described": ["x0"]}, {"labels": True}]
    for more in kinds:
        reply = responder(tmp_path).reply(question(task(5.0), **more))
        assert "no kinds, texts or labels are told" in refusal(reply)
    assert not ledger(tmp_path).charges


def test_what_a_site_tells_besides_depends_on_no_row(tmp_path):
    """One row or a thousand, of these values or others: the header of the reply is the same."""
    headers = []
    for rows in (ROWS[:1], ROWS, np.full((1000, 2), 3.0)):
        (folder := tmp_path / str(len(rows))).mkdir()
        site = responder(folder, Client("north", Data(rows)))
        headers.append(unpack(site.reply(question(task(5.0))))[0])
    assert headers[0] == headers[1] == headers[2]


def test_answers_are_charged_until_nothing_is_left(tmp_path):
    """Whichever program answers them, and in whichever run."""
    noise = noise_of(BUDGET.rho / 3)
    for run in "abc":
        assert is_answered(responder(tmp_path).reply(question(task(noise), run=run)))
    refused = refusal(responder(tmp_path).reply(question(task(noise), exchange=3)))
    assert "the privacy budget of epsilon 2 at delta 1e-06 would be exceeded" in refused
    kept = ledger(tmp_path)
    assert kept.spent == pytest.approx(2.0, rel=1e-4)
    assert kept.spent <= 2.0
    assert [(charge.run, charge.answers) for charge in kept.charges] == [(run, 1) for run in "abc"]


def test_all_tasks_of_a_question_are_charged_or_none(tmp_path):
    noise = noise_of(BUDGET.rho / 3)
    site = responder(tmp_path)
    assert "would be exceeded" in refusal(site.reply(question(*[task(noise)] * 4)))
    assert not ledger(tmp_path).charges
    assert is_answered(site.reply(question(*[task(noise)] * 3, exchange=1)))


def test_a_repetition_is_the_same_reply_and_costs_nothing(tmp_path):
    """Else the noise would go away in the mean of many replies."""
    site, asked = responder(tmp_path), question(task(20.0))
    first = site.reply(asked)
    assert {site.reply(asked) for _ in range(5)} == {first}
    assert len(ledger(tmp_path).charges) == 1


def test_a_question_asked_in_other_words_costs_anew_and_the_mean_of_all_stays_noisy(tmp_path):
    """The average attack: as many questions as the budget allows tell no more than one of all."""
    n = 50
    site, asked = responder(tmp_path), task(noise_of(BUDGET.rho / n))
    replies = [unpack(site.reply(question(asked, exchange=i)))[1] for i in range(n + 10)]
    weights = [arrays["0.weights"] for arrays in replies if arrays]
    assert len(weights) == n
    assert ledger(tmp_path).spent <= 2.0
    whole = np.sqrt(2) * noise_of(BUDGET.rho)  # of one answer, half of whose cost is the weights'
    spread = np.std(weights, axis=0) / np.sqrt(n)
    assert (np.abs(spread / whole - 1) < 0.6).all()


def test_an_answer_that_fails_is_paid_for(tmp_path):
    """To charge after the work would give a crash for nothing, and one that depends on rows."""

    class Fails(Client):
        def answers(self, tasks: Any) -> list[Summary]:
            assert len(ledger(tmp_path).charges) == 1  # on the disk before any row is read
            raise RuntimeError("the disk broke")

    site = responder(tmp_path, Fails("north", Data(ROWS)))
    assert unpack(site.reply(question(task(5.0))))[0]["failed"] == "RuntimeError"
    assert len(ledger(tmp_path).charges) == 1


def test_many_programs_at_once_never_spend_more_than_there_is(tmp_path):
    each = BUDGET.rho / 5

    def charge(i: int) -> bool:
        try:
            ledger(tmp_path).charge({"run": f"r{i}", "exchange": 0}, answers=1, rho=each)
        except PolicyError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        admitted = list(pool.map(charge, range(12)))
    assert sum(admitted) == 5
    assert len(ledger(tmp_path).charges) == 5


@pytest.mark.parametrize("rho", [0.0, -1.0, float("nan")])
def test_no_charge_gives_budget_back(tmp_path, rho):
    with pytest.raises((InputError, PolicyError)):
        ledger(tmp_path).charge({"run": "r", "exchange": 0}, answers=1, rho=rho)
    assert not ledger(tmp_path).charges


def test_a_person_counts_with_the_first_rows_alone():
    """A person with a thousand rows changes an answer by no more than the group size allows."""
    rng = np.random.default_rng(1)
    X, groups = rng.uniform([0, -10], [4, 10], (300, 2)), rng.integers(0, 40, 300)
    X[groups == 7] = [4.0, 10.0]
    parts = (Data(X[some], groups=groups[some]) for some in (groups >= 0, groups != 7))
    clients = (Client("north", part, Disclosure(rows_per_person=2)) for part in parts)
    with_it, without = (client.answer(task()) for client in clients)
    assert with_it.weights.sum() - without.weights.sum() == pytest.approx(2, abs=0.1)
    assert with_it.weights.sum() == pytest.approx(2 * len(set(groups)), abs=0.1)


AT_ZERO = State(np.zeros((1, 2)), np.zeros(1), memory={"radius": np.array([0.5])})
CELLS = {"axes": np.eye(2), "low": -np.ones(2), "high": np.ones(2), "bins": np.full(2, 2.0)}
GRID = replace(AT_ZERO, memory={**CELLS, "radius": np.array([1.0])})
PRIVATE = [
    (BoxMoments(), State()),
    (BallScatter(), AT_ZERO),
    (RelativeLloyd(), AT_ZERO),
    (RelativeLloyd(), replace(AT_ZERO, memory={"radius": np.array([2.0])})),
    (GridCells(), GRID),
    (GridCells(means=True), GRID),
]


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize(("step", "state"), PRIVATE)
def test_a_budget_is_for_persons_as_a_record_more_may_swap_which_count(step, state, most):
    """Every table with any records of one person, in any order, before others or after them."""
    corners = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    others, bound = np.array([[1.0, -1.0], [0.0, 0.5], [0.0, -0.5]]), step.sensitivity(state, 2)
    scale = [each if each else np.inf for each in scales(bound, 1.0)]

    def answer(person: tuple[int, ...], *, last: bool) -> np.ndarray:
        """By the length by which noise multiplier 1 hides a change of 1."""
        parts = [corners[list(person)], others]
        whose = [np.full(len(person), 9), np.array([1, 2, 3])]
        rows, groups = (np.concatenate(each[:: -1 if last else 1]) for each in (parts, whose))
        client = Client("north", Data(rows, groups=groups), Disclosure(rows_per_person=most))
        exact, _ = client._step(Task(step, state, noise=1.0), client.data)  # noqa: SLF001
        return np.concatenate([exact.sums.ravel() / scale[0], exact.weights / scale[1]])

    lists = [each for n in range(4) for each in product(range(4), repeat=n)]
    for last in (False, True):
        told = {person: answer(person, last=last) for person in lists}
        apart = [np.linalg.norm(told[person] - told[()]) for person in lists]
        assert most * 0.6 < max(apart) <= most * (1 + 1e-9)
        swaps = [
            np.linalg.norm(told[person] - told[more])
            for person in lists
            for more in lists
            if len(more) == len(person) + 1
            and person in {more[:i] + more[i + 1 :] for i in range(len(more))}
        ]
        assert 1.05 < max(swaps) <= 2 * (1 + 1e-9)


class ByHand:
    """A transport that asks responders in this process."""

    def __init__(self, **sites: Any) -> None:
        self.sites = sites

    def exchange(self, messages: Any, enough: int) -> Any:
        return {name: self.sites[name].reply(m) for name, m in messages.items()}, {}


def test_a_coordinator_asks_for_no_size_and_takes_noisy_weights(tmp_path):
    engine = RemoteEngine(ByHand(north=responder(tmp_path)), ["north"])
    engine.choose_publicly(["x0", "x1"])
    assert [site.n_columns for site in engine.introduce()] == [2]
    asked = task(100.0, state=State.at(np.zeros((40, 2))))
    [answers] = engine.ask([asked])
    assert (answers.total().weights < 0).any()
    [site] = engine.introduce()
    assert (site.n_rows, site.weight, site.columns[0].name) == (None, None, "x0")
    with pytest.raises(InputError, match="every answer needs noise"):
        engine.ask([Task(SiteSize(), STATE)])


def test_answers_that_are_all_negative_are_no_reason_to_doubt():
    said = {"a": Summary(np.ones((1, 1)), -np.ones(1)), "b": Summary(np.ones((1, 1)), np.ones(1))}
    assert implausible({name: [each] for name, each in said.items()}) == {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [f"{x!r},{y!r}" for x, y in ROWS.tolist()]
    (tmp_path / "rows.csv").write_text("\n".join(["x0,x1", *lines, ""]))
    (tmp_path / "site.toml").write_text(SITE)
    return tmp_path


@pytest.mark.parametrize("in_memory", [10, 1 << 20])
def test_a_site_file_has_a_budget(folder, in_memory):
    """Whether rows come in chunks is not told: it depends on how many there are."""
    path = folder / "site.toml"
    path.write_text(f"values_in_memory = {in_memory}\n" + SITE)
    site = SiteFile.load(path)
    client = site.client()
    assert site.privacy == Budget(2.0, 1e-6)
    assert client.disclosure.in_force == ()
    assert client.disclosure.rows_per_person == 1
    [told] = limits_in_words(client.site.limits)
    assert told == "noise on every answer, within epsilon 2.0 at delta 1e-06 over all runs"
    assert client.streams == (in_memory == 10)
    assert not client.site.streams


def test_a_site_s_budget_is_shown(folder):
    shown = check(folder)
    assert "Every answer has noise, and nothing else of the rows leaves." in shown
    assert "Spent: epsilon 0 of 2 at delta 1e-06" in shown
    assert "A sum over" not in shown
    assert not (folder / STATE_FILE).exists()
    kept = ledger(folder)
    assert "No question was answered under this budget." in check(folder)
    for run, rho in (("a", 0.01), ("a", 0.02), ("b", 0.03)):
        kept.charge({"run": run, "exchange": 0}, answers=2, rho=rho)
    told = json.loads(check(folder, "--json"))["privacy"]
    assert told == json.loads(json.dumps(budget_content(kept)))
    assert [(run["run"], run["answers"]) for run in told["runs"]] == [("a", 4), ("b", 2)]
    assert told["spent"]["rho"] == pytest.approx(0.06)
    whose = "for each record (each person, where a column says whose the records are)."
    shown = check(folder)
    assert f"of 2 at delta 1e-06, {whose}" in shown
    assert "Not counted" not in shown
    one: dict[str, Any] = {"tasks": [1]}
    earlier = [one, one | {"spent": 0.1}, {"described": ["x"]}, one]
    *_, last = budget_parts(budget_content(kept, earlier))
    assert last == "Not counted: 2 answers that left before the site had a budget."


def check(folder: Path, *more: str) -> str:
    return CliRunner().invoke(app, ["check", str(folder / "site.toml"), *more]).output


def begun(folder: Path) -> Any:
    """The site as its program starts it."""
    path = folder / "site.toml"
    path.write_text(SITE + FEDERATION)
    return started(SiteFile.load(path))


MOMENTS = task(20.0, step=BoxMoments(), state=State())


def changed(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with sqlite3.connect(path) as file:
            file.execute(statement)

    return change


def becomes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


LAST = "DELETE FROM spent WHERE id = (SELECT max(id) FROM spent)"
FORGOTTEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "an older copy": (changed(LAST), r"says that rho .* put back a copy"),
    "removed": (Path.unlink, r"says that rho .* put back a copy"),
    "emptied": (changed("DELETE FROM spent"), r"says that rho .* put back a copy"),
    "cut to nothing": (becomes(b""), r"cannot be used: it is empty.* put back a copy"),
    "no database": (becomes(b"no database" * 99), r"cannot be used: .* not a .* put back a copy"),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("forget", "reason"), FORGOTTEN.values(), ids=FORGOTTEN)
def test_a_site_whose_ledger_falls_behind_its_log_answers_nothing(folder, forget, reason):
    """What the log knows of was spent: neither while it runs nor when it starts."""
    with begun(folder) as program:
        for exchange in range(2):
            assert is_answered(program.reply(question(MOMENTS, exchange=exchange)))
        forget(folder / STATE_FILE)
        header, arrays = unpack(program.reply(question(MOMENTS, exchange=2)))
        assert (header["failed"], arrays) == ("InputError", {})
    with pytest.raises(InputError, match=rf"site\.db {reason}"), begun(folder):
        pass


def line_of(spent: float, head: Head) -> dict[str, Any]:
    return {"question": "q" * 200, "spent": spent}


def test_a_full_file_of_the_log_passes_on_what_is_spent(folder):
    log = AuditLog(folder / "audit.jsonl", "north", largest=500)
    for i in range(5):
        log.append(partial(line_of, i / 10))
    assert len(parts_of(log.path)) > 1
    with AuditLog(log.path, "north").locked() as head:
        assert head.spent == 0.4
    SiteState(folder / STATE_FILE).create()
    with pytest.raises(InputError, match=r"rho 0 is spent .* it was 0\.4"), begun(folder):
        pass


def test_a_program_of_a_site_refuses_what_has_no_noise_and_its_log_says_what_is_spent(folder):
    """Of each question, a repetition included, whether it was answered or not."""
    with begun(folder) as program:
        asked = question(MOMENTS)
        for message in (asked, asked):
            assert is_answered(program.reply(message))
        for exchange, exact in enumerate((task(None, step=Lloyd()), Task(SiteSize(), STATE)), 1):
            reply = program.reply(question(exact, exchange=exchange))
            assert "every answer needs noise" in refusal(reply)
            assert not is_answered(reply)
    spent = [line["spent"] for line in read_log(folder / "audit.jsonl") if "question" in line]
    assert spent == [rho_of([20.0])] * 4
