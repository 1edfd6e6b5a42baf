"""A site's privacy budget: nothing without noise, every answer charged before it leaves."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from test_noise import BOX, STATE, SumsByCentre, task
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
from fedcluster.privacy import Groups
from fedcluster.privacy.budget import Budget, noise_of, rho_of
from fedcluster.privacy.disclosure import Disclosure, scales
from fedcluster_app.cli import app
from fedcluster_app.report.messages import limits_in_words
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.logs import budget_content, budget_parts
from fedcluster_app.site.membership import Membership, site_responder
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
    return Responder(
        client or Client("north", Data(ROWS)),
        columns=("x0", "x1"),
        choose=lambda columns, raw=False: client or Client("north", Data(ROWS)),
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


# What is refused


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Task(SiteSize(), STATE), "SiteSize: under a privacy budget, every answer needs noise"),
        (task(None), "SumsByCentre: under a privacy budget, every answer needs noise"),
        (task(None, step=Lloyd()), "Lloyd: under a privacy budget, every answer needs noise"),
        (task(5.0, step=Lloyd()), "Lloyd cannot be asked with noise"),
        (task(5.0, preprocessor=None), "needs rows in public bounds"),
        (task(5.0, preprocessor=replace(BOX, box=False)), "needs rows in public bounds"),
        (task(5.0, resampled=3), "drawn anew"),
        (task(1e-4), "noise must be"),
        (task(5.0, step=GridCells()), "GridCells cannot be asked about this state"),
        (task(5.0, preprocessor=LOGARITHM), "must be numbers without logarithm, and filled in"),
        (task(5.0, preprocessor=NO_FILL), "must be numbers without logarithm, and filled in"),
        (task(5.0, preprocessor=LEVELS), "must be numbers without logarithm, and filled in"),
    ],
)
def test_a_site_with_a_budget_answers_nothing_exactly(tmp_path, asked, reason):
    reply = responder(tmp_path).reply(question(asked))
    assert reason in refusal(reply)
    assert not ledger(tmp_path).charges


@pytest.mark.parametrize("more", [{"described": []}, {"described": ["x0"]}, {"labels": True}])
def test_kinds_texts_and_labels_stay(tmp_path, more):
    reply = responder(tmp_path).reply(question(task(5.0), **more))
    assert "no kinds, texts or labels are told" in refusal(reply)
    assert not ledger(tmp_path).charges


def test_what_a_site_tells_besides_depends_on_no_row(tmp_path):
    """One row or a thousand, of these values or others: the header of the reply is the same."""
    headers = []
    for rows in (ROWS[:1], ROWS, np.full((1000, 2), 3.0)):
        (tmp_path / str(len(rows))).mkdir()
        site = responder(tmp_path / str(len(rows)), Client("north", Data(rows)), BUDGET)
        headers.append(unpack(site.reply(question(task(5.0))))[0])
    assert headers[0] == headers[1] == headers[2]


def test_groups_are_told_not_to_go_together_with_noise():
    header = {"run": "r", "exchange": 0}
    with pytest.raises(PolicyError, match="groups of rows and noise do not go together"):
        Policy(disclosure=Disclosure(groups=Groups())).check(header, [task(5.0)], ("x0", "x1"), 2)


# What is charged


def test_answers_are_charged_until_nothing_is_left(tmp_path):
    noise = noise_of(BUDGET.rho / 3)
    site, kept = responder(tmp_path), ledger(tmp_path)
    for exchange in range(3):
        assert unpack(site.reply(question(task(noise), exchange=exchange)))[1]
    reply = site.reply(question(task(noise), exchange=3))
    assert "the privacy budget of epsilon 2 at delta 1e-06 would be exceeded" in refusal(reply)
    assert kept.spent == pytest.approx(2.0, rel=1e-4)
    assert kept.spent <= 2.0
    assert [charge.answers for charge in kept.charges] == [1, 1, 1]


def test_another_run_and_another_program_spend_the_same_budget(tmp_path):
    noise = noise_of(BUDGET.rho / 2)
    for run in ("a", "b"):
        assert unpack(responder(tmp_path).reply(question(task(noise), run=run)))[1]
    assert "would be exceeded" in refusal(responder(tmp_path).reply(question(task(noise), run="c")))
    assert {charge.run for charge in ledger(tmp_path).charges} == {"a", "b"}


def test_all_tasks_of_a_question_are_charged_or_none(tmp_path):
    noise = noise_of(BUDGET.rho / 3)
    site = responder(tmp_path)
    assert "would be exceeded" in refusal(site.reply(question(*[task(noise)] * 4)))
    assert not ledger(tmp_path).charges
    assert unpack(site.reply(question(*[task(noise)] * 3, exchange=1)))[1]


def test_a_repetition_is_the_same_reply_and_costs_nothing(tmp_path):
    """Else the noise would go away in the mean of many replies."""
    site, asked = responder(tmp_path), question(task(20.0))
    first = site.reply(asked)
    assert {site.reply(asked) for _ in range(5)} == {first}
    assert len(ledger(tmp_path).charges) == 1


def test_a_question_asked_in_other_words_costs_anew_and_the_mean_of_all_stays_noisy(tmp_path):
    """The average attack: as many questions as the budget allows tell no more than one of all."""
    n = 50
    site = responder(tmp_path)
    weights = []
    for exchange in range(n + 10):
        header, arrays = unpack(
            site.reply(question(task(noise_of(BUDGET.rho / n)), exchange=exchange))
        )
        if "refused" in header:
            break
        weights.append(arrays["0.weights"])
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


def test_a_program_that_is_killed_has_paid(tmp_path):
    """Killed right after the charge, as by a power cut: it is there when the file is opened."""
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from fedcluster.privacy.budget import Budget\n"
        "from fedcluster_app.trust.site_state import SiteState\n"
        "from fedcluster_app.wire.policy import BudgetLedger\n"
        "(state := SiteState(Path(sys.argv[1]))).create()\n"
        "ledger = BudgetLedger(state, Budget(2.0, 1e-6))\n"
        "ledger.charge({'run': 'r', 'exchange': 0}, answers=1, rho=0.05)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / STATE_FILE
    ended = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert BudgetLedger(SiteState(path), BUDGET).charges[0].rho == 0.05


def test_a_transaction_that_is_broken_off_leaves_nothing(tmp_path):
    kept = ledger(tmp_path)
    kept.charge({"run": "r", "exchange": 0}, answers=1, rho=0.01)
    other = sqlite3.connect(tmp_path / STATE_FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM spent")
    other.close()  # without COMMIT
    assert len(kept.charges) == 1


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


def test_a_ledger_that_cannot_be_used_admits_nothing(tmp_path):
    (tmp_path / STATE_FILE).write_bytes(b"no database" * 100)
    reply = responder(tmp_path).reply(question(task(5.0)))
    assert unpack(reply)[0]["failed"] == "InputError"
    assert not unpack(reply)[1]


@pytest.mark.parametrize("rho", [0.0, -1.0, float("nan")])
def test_no_charge_gives_budget_back(tmp_path, rho):
    with pytest.raises((InputError, PolicyError)):
        ledger(tmp_path).charge({"run": "r", "exchange": 0}, answers=1, rho=rho)
    assert not ledger(tmp_path).charges


def test_a_group_of_records_costs_a_site_its_square(tmp_path):
    budget = replace(BUDGET, group_size=3)
    noise = noise_of(BUDGET.rho / 9)
    site = responder(tmp_path, budget=budget)
    assert unpack(site.reply(question(task(noise))))[1]
    assert "would be exceeded" in refusal(site.reply(question(task(noise), exchange=1)))
    assert ledger(tmp_path, budget).spent == pytest.approx(2.0, rel=1e-3)


def test_a_person_counts_with_the_first_rows_alone():
    """A person with a thousand rows changes an answer by no more than the group size allows."""
    rng = np.random.default_rng(1)
    X, groups = rng.uniform([0, -10], [4, 10], (300, 2)), rng.integers(0, 40, 300)
    X[groups == 7] = [4.0, 10.0]
    noisy = Client("north", Data(X, groups=groups))
    with pytest.raises(InputError, match="rows that say whose they are need a group_size"):
        noisy.answer(task())
    noisy.disclosure = Disclosure(rows_per_person=2)
    others = Client("north", Data(X[groups != 7], groups=groups[groups != 7]))
    others.disclosure = Disclosure(rows_per_person=2)
    with_it, without = noisy.answer(task()), others.answer(task())
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


# The coordinator's end


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


# The site file and its program


def written(folder: Path) -> Path:
    lines = [f"{x!r},{y!r}" for x, y in ROWS.tolist()]
    (folder / "rows.csv").write_text("\n".join(["x0,x1", *lines, ""]))
    (folder / "site.toml").write_text(SITE)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path)


def test_a_site_file_has_a_budget(folder):
    site = SiteFile.load(folder / "site.toml")
    assert site.privacy == Budget(2.0, 1e-6)
    assert site.client().disclosure.in_force == ()
    assert site.client().disclosure.rows_per_person == 1
    assert limits_in_words(site.client().site.limits) == [
        "noise on every answer, within epsilon 2.0 at delta 1e-06 over all runs"
    ]


def test_whether_rows_come_in_chunks_is_not_told(folder):
    """It depends on how many there are."""
    path = folder / "site.toml"
    path.write_text("values_in_memory = 10\n" + SITE)
    client = SiteFile.load(path).client()
    assert client.streams
    assert not client.site.streams


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("epsilon = 2.0", "", "write epsilon there, a number"),
        ("epsilon = 2.0", "epsilon = -1", "epsilon must be above 0"),
        ("epsilon = 2.0", 'epsilon = "2"', "epsilon must be a number, as in epsilon = 4.0"),
        ("epsilon = 2.0", "epsilon = true", "epsilon must be a number, as in"),
        ("delta = 1e-6", "delta = 0.5", "delta must be from"),
        ("delta = 1e-6", "delta = 1e-6\ngroup_size = 0", "group_size must be a whole number"),
        ("delta = 1e-6", "delta = 1e-6\nepsilom = 1", "unknown key 'epsilom'"),
        ("[source]", 'protection = "groups"\n[source]', "noise takes the place of groups"),
        ("[privacy]", "[limits]\nmin_rows = 9\n[privacy]", "leave out protection and .limits"),
        ("[source]", 'weight_column = "x1"\n[source]', "rows with weights cannot have noise"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(folder, before, after, reason):
    path = folder / "site.toml"
    path.write_text(SITE.replace(before, after))
    with pytest.raises(InputError, match=reason):
        SiteFile.load(path)


def test_a_site_s_budget_is_shown(folder):
    kept = ledger(folder)
    shown = CliRunner().invoke(app, ["check", str(folder / "site.toml")]).output
    assert "No question was answered under this budget." in shown
    for run, rho in (("a", 0.01), ("a", 0.02), ("b", 0.03)):
        kept.charge({"run": run, "exchange": 0}, answers=2, rho=rho)
    given = CliRunner().invoke(app, ["check", str(folder / "site.toml"), "--json"])
    told = json.loads(given.output)["privacy"]
    assert told == json.loads(json.dumps(budget_content(kept)))
    assert [(run["run"], run["answers"]) for run in told["runs"]] == [("a", 4), ("b", 2)]
    assert told["spent"]["rho"] == pytest.approx(0.06)
    shown = CliRunner().invoke(app, ["check", str(folder / "site.toml")]).output
    whose = "for each record (each person, where a column says whose the records are)."
    assert f"of 2 at delta 1e-06, {whose}" in shown
    assert "Not counted" not in shown
    earlier: list[dict[str, object]] = [
        {"tasks": [1]},
        {"tasks": [1], "spent": 0.1},
        {"described": ["x"]},
        {"tasks": [2]},
    ]
    assert list(budget_parts(budget_content(kept, earlier)))[-1] == (
        "Not counted: 2 answers that left before the site had a budget."
    )


def test_a_check_says_that_every_answer_has_noise(folder):
    shown = CliRunner().invoke(app, ["check", str(folder / "site.toml")]).output
    assert "Every answer has noise, and nothing else of the rows leaves." in shown
    assert "Spent: epsilon 0 of 2 at delta 1e-06" in shown
    assert "A sum over" not in shown
    assert not (folder / STATE_FILE).exists()


def started(folder: Path) -> Any:
    path = folder / "site.toml"
    path.write_text(
        SITE + '[federation]\ncoordinator = "127.0.0.1:1"\n'
        'certificate = "system"\nkey = "site.toml"\n'
    )
    site = SiteFile.load(path)
    return site_responder(site, Membership.from_site_file(site), lambda line: None)


def test_a_program_of_a_site_refuses_what_has_no_noise(folder):
    turns = started(folder)
    try:
        for asked in (Task(Lloyd(), STATE), Task(SiteSize(), STATE)):
            header, arrays = unpack(turns.reply(question(asked)))
            assert "every answer needs noise" in header["refused"]
            assert not arrays
    finally:
        turns.end("the test is over")


MOMENTS = task(20.0, step=BoxMoments(), state=State())


def emptied(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("DELETE FROM spent")


def older(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("DELETE FROM spent WHERE id = (SELECT max(id) FROM spent)")


FORGOTTEN: dict[str, Any] = {
    "removed": Path.unlink,
    "emptied": emptied,
    "cut to nothing": lambda path: path.write_bytes(b""),
    "an older copy": older,
}


BEHIND = r"site.db says that rho .* put back a copy"
LOST = {
    "removed": BEHIND,
    "emptied": BEHIND,
    "cut to nothing": r"site.db cannot be used: it is empty.* put back a copy",
    "an older copy": BEHIND,
}


def spending(folder: Path) -> Any:
    """A site that has answered two questions."""
    turns = started(folder)
    for exchange in range(2):
        header, arrays = unpack(turns.reply(question(MOMENTS, exchange=exchange)))
        assert arrays, header
    return turns


@pytest.mark.parametrize("happens", FORGOTTEN)
def test_a_ledger_that_falls_behind_the_log_admits_nothing(folder, happens):
    """What the log knows of was spent."""
    turns = spending(folder)
    FORGOTTEN[happens](folder / STATE_FILE)
    try:
        header, arrays = unpack(turns.reply(question(MOMENTS, exchange=2)))
        assert (header["failed"], arrays) == ("InputError", {})
    finally:
        turns.end("the test is over")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site that has answered two questions and ended."""
    folder = written(tmp_path_factory.mktemp("ended"))
    spending(folder).end("the test restarts it")
    return folder


@pytest.mark.parametrize("happens", FORGOTTEN)
def test_a_site_whose_ledger_falls_behind_its_log_does_not_start(tmp_path, ended, happens):
    folder = copytree(ended, tmp_path / "site")
    FORGOTTEN[happens](folder / STATE_FILE)
    with pytest.raises(InputError, match=LOST[happens]):
        started(folder)


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
    with pytest.raises(InputError, match=r"rho 0 is spent .* it was 0\.4"):
        started(folder)


def test_the_log_of_a_site_says_what_is_spent(folder):
    """Of each question, a repetition included, whether it was answered or not."""
    turns = started(folder)
    try:
        asked = question(MOMENTS)
        for message in (asked, asked, question(Task(Lloyd(), STATE), exchange=1)):
            turns.reply(message)
    finally:
        turns.end("the test is over")
    spent = [line["spent"] for line in read_log(folder / "audit.jsonl") if "question" in line]
    assert spent == [rho_of([20.0])] * 3
