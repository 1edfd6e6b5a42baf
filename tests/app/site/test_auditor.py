"""What stands in a site's log of each question, and that nothing leaves which is not in it."""

import json
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcluster.algorithms import FKM, GaussianMixture, Lloyd
from fedcluster.core import Data, State, Task
from fedcluster.engines import wire
from fedcluster.engines.client import Client
from fedcluster.engines.wire import WireError
from fedcluster.errors import InputError
from fedcluster.metrics import Inertia
from fedcluster.texts import Table
from fedcluster_app.site.logs import answer_line, answers_of, run_parts, run_records
from fedcluster_app.site.membership import QuestionFolder, SiteAuditor
from fedcluster_app.trust.audit_log import AuditLog, read_log, verify
from fedcluster_app.trust.permits import SitePermits
from fedcluster_app.wire.responder import AuditEntry, Request

ROWS = np.random.default_rng(0).normal(size=(40, 2))
STATED = {"limits": [{"name": "MinRows", "n": 20}], "streams": False}
CENTERS = np.array([[0.0, 0.5], [1.0, 1.5]])


def made(folder: Path, room: int = 1 << 20, largest: int = 1 << 20, **more: Any) -> SiteAuditor:
    log = AuditLog(folder / "audit.jsonl", "north", largest)
    return SiteAuditor(log, QuestionFolder(folder / "questions", room), "host:8443", **more)


@pytest.fixture
def auditor(tmp_path: Path) -> SiteAuditor:
    return made(tmp_path)


def runs_of(auditor: SiteAuditor) -> list[dict[str, Any]]:
    return run_records(answers_of(read_log(auditor.log.path)))


def exchange(tasks: list[Task], run: str = "r1", number: int = 0, **more: object) -> AuditEntry:
    headers, arrays = wire.write_tasks(tasks)
    header = {"protocol": 1, "run": run, "exchange": number, "columns": ["x", "y"], **more}
    question = wire.pack({**header, "tasks": headers}, arrays)
    answers = Client("north", Data(ROWS)).answers(tasks)
    reply = wire.pack({"site": "north"}, wire.write_summaries(answers))
    return AuditEntry(Request(question, header), reply, tasks, answers, STATED)


TASKS = [Task(Lloyd(), State.at(CENTERS), seed=7), Task(Inertia(), State.at(CENTERS))]
LEAST = Client("north", Data(ROWS)).answers(TASKS)[0].weights.min()
TIME = r"20.* \d\d:\d\d"


def test_a_line_says_all_of_the_question_and_only_sizes_of_the_answer(auditor, tmp_path):
    asked = exchange(TASKS)
    auditor.record(asked)
    *_, line = read_log(auditor.log.path)
    assert line["asked_by"] == "host:8443"
    assert (line["run"], line["round"], line["columns"]) == ("r1", 1, ["x", "y"])
    assert line["question"] == sha256(asked.request.content).hexdigest()
    assert line["reply"] == sha256(asked.reply).hexdigest()
    assert line["bytes"] == len(asked.reply)
    lloyd, inertia = line["tasks"]
    weights = asked.answers[0].weights
    assert lloyd.items() >= {"task": "Lloyd(tol=0.0001)", "seed": 7, "shape": [2, 3]}.items()
    assert (lloyd["smallest_weight"], lloyd["numbers"]) == (weights.min(), 8)
    by_hand = sha256(np.array([0.0, 0.5, 1.0, 1.5], "<f8").tobytes()).hexdigest()
    assert lloyd["state"]["centers"] == [2, 2, by_hand]
    assert lloyd["preparation"] is None
    assert inertia["task"] == "Inertia()"
    text = json.dumps(line)
    for values in (asked.answers[0].sums, asked.answers[1].sums, ROWS):
        for value in values.ravel():
            assert repr(float(value)) not in text


def test_a_coordinator_s_log_that_goes_back_is_noticed(tmp_path):
    """A new chain, or an older copy; not by a resumed run, nor at a new file of the site's log."""
    said: list[str] = []
    auditor = made(tmp_path, largest=1 << 12, say=said.append)
    ends = {"a": "7:aa", "b": "9:bb", "c": "9:bb", "d": "12:dd"}
    for job, end in [*ends.items(), ("b", "9:bb"), ("e", "12:ee"), ("f", "3:ff"), ("g", "4:gg")]:
        auditor.record(exchange(TASKS, about={"job": job, "log": end}))
    warnings = [text for text in said if "warning" in text]
    assert warnings == [
        f"site north: warning: the coordinator's log ended with line {before}, and now with {now}: "
        "it was begun anew or an older copy was put back; ask why"
        for before, now in [("12:dd", "12:ee"), ("12:ee", "3:ff")]
    ]
    lines = [line for line in read_log(auditor.log.path) if "question" in line]
    assert [line.get("coordinator") for line in lines[3:6]] == ["12:dd", None, "12:ee"]
    assert ["warning" in line for line in lines] == [False] * 5 + [True, True, False]
    assert verify(auditor.log.path)[0].coordinator == "4:gg"
    assert (tmp_path / "audit-0001.jsonl").exists()


def test_the_whole_question_is_kept_once_and_missed_where_it_is_gone_or_changed(auditor, tmp_path):
    for _ in range(3):
        auditor.record(exchange(TASKS))
    [file] = (tmp_path / "questions").iterdir()
    assert file.name == sha256(file.read_bytes()).hexdigest()
    header, arrays = wire.unpack(file.read_bytes())
    [lloyd, _] = wire.read_tasks(header["tasks"], arrays)
    assert (lloyd.step, lloyd.seed) == (Lloyd(), 7)
    assert lloyd.state.centers.tobytes() == CENTERS.tobytes()
    assert auditor.questions.check(auditor.log.path) == 1
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(InputError, match="the question of line 4 of the log was changed"):
        auditor.questions.check(auditor.log.path)
    file.unlink()
    with pytest.raises(InputError, match="the question of line 4 of the log is gone"):
        auditor.questions.check(auditor.log.path)


def test_questions_have_their_room_and_the_log_says_which_ones_went(auditor, tmp_path):
    """The oldest go, some at a time; refused ones drive out no answered one."""
    size = len(exchange(TASKS, "r00").request.content)
    auditor = made(tmp_path, 32 * size)
    for i in range(50):
        auditor.record(exchange(TASKS, f"r{i:02}"))
    for i in range(40):
        auditor.record(AuditEntry(Request(b"%02d" % i * size), b"", refused="no"))
    answered = [path for path in (tmp_path / "questions").iterdir() if path.is_file()]
    assert len(answered) == 32
    assert len([*(tmp_path / "questions/refused").iterdir()]) == 1
    lines = [*read_log(auditor.log.path)]
    dropped = [digest for line in lines for digest in line.get("dropped", ())]
    assert len(dropped) == 18 + 39
    assert {len(line["dropped"]) for line in lines if "dropped" in line} == {3, 1}
    assert auditor.questions.check(auditor.log.path) == 33
    auditor.record(AuditEntry(Request(bytes(4 * size)), b"", refused="too large"))
    *_, last = read_log(auditor.log.path)
    assert (last["kept"], last["question_bytes"]) == (False, 4 * size)
    assert auditor.questions.check(auditor.log.path) == 33


def test_a_question_that_cannot_be_kept_is_not_answered(auditor, tmp_path):
    (tmp_path / "questions").write_text("a file is in the way")
    with pytest.raises(InputError, match=r"exists|directory"):
        auditor.record(exchange(TASKS))
    assert [line.get("event") for line in read_log(auditor.log.path)] == ["begun"]


def test_a_question_for_nothing_but_the_site_itself_is_listed(auditor, tmp_path):
    """It is told what a site states in every reply."""
    auditor.record(exchange([]))
    [answer] = answers_of(read_log(auditor.log.path))
    said = r"round 1  its limits and the names of its columns, \d+ bytes$"
    assert re.search(said, answer_line(answer))
    [run] = run_records([answer])
    assert (run["questions"], run["limits"]) == (1, ["MinRows(n=20)"])


def test_a_permit_that_is_revoked_during_the_work_keeps_the_answer_here(tmp_path):
    """It is held against the question once more before the answer leaves."""

    class Revoked(SitePermits):
        def admit(self, asked, head):
            raise WireError("permit 'hips-1' was revoked by this site")

    nowhere = Path("nowhere")
    auditor = made(tmp_path, permits=Revoked(tmp_path, "north", "", nowhere, nowhere))
    with pytest.raises(WireError, match="was revoked"):
        auditor.record(exchange(TASKS))
    assert [line.get("event") for line in read_log(auditor.log.path)] == ["begun"]
    assert not (tmp_path / "questions").exists()
    auditor.record(AuditEntry(Request(b"?"), b"!", refused="permit 'hips-1' was revoked"))
    assert [*read_log(auditor.log.path)][-1]["refused"].startswith("permit 'hips-1'")


@pytest.mark.parametrize(
    "header",
    [
        {"run": "\x1b[2J" * 1000, "exchange": 10**400},
        {"run": {"a": 1}, "exchange": -1, "columns": "all"},
        {"run": None, "exchange": "3", "columns": 10**3000, "tasks": 3},
        {"columns": [[[[[]]]]], "model": {"a": float("nan")}},
        {"run": "\ud800"},
    ],
)
def test_whatever_stands_in_a_refused_question_it_is_written_down(header, auditor, tmp_path):
    """Its line is short, and shows no sign that a terminal acts on."""
    auditor.record(AuditEntry(Request(b"?", header), b"!", refused="not\x1b understood" * 1000))
    verify(auditor.log.path)
    raw = auditor.log.path.read_bytes().splitlines()[-1]
    assert len(raw) < 20_000
    assert b"\x1b" not in raw
    [answer] = answers_of(read_log(auditor.log.path))
    assert answer_line(answer).isprintable()
    assert [str(part).isprintable() for part in run_parts(run_records([answer]))] == [True, True]


def test_a_run_has_the_name_that_its_coordinator_gave_it(auditor, tmp_path):
    """So the two logs can be joined; a run that is resumed stays one."""
    about = {"job": "20261123-090036-8281", "operator": "ada"}
    for number, run in enumerate(("f1", "f2")):
        auditor.record(exchange(TASKS, run, number, about=about))
    [joined] = runs_of(auditor)
    assert (joined["run"], joined["questions"]) == ("20261123-090036-8281", 2)


def test_small_weights_of_groups_are_shares_of_them(auditor, tmp_path):
    """A component may have 1e-9 of a group: nobody then knows a sum over 1e-9 of a row."""
    mixtures = [GaussianMixture(covariance_type="full", tol=tol) for tol in (0.1, 0.2)]
    memory = {"precisions_cholesky": np.array([np.eye(2)] * 2)}
    centers = State(np.array([[0.0, 0.0], [9.0, 9.0]]), np.ones(2), memory=memory)
    told = {"limits": [{"name": "Groups", "p": 5, "min_rows": 20}], "streams": False}
    tasks = [Task(mixture, centers) for mixture in mixtures]
    auditor.record(replace(exchange(tasks), metadata=told))
    auditor.record(AuditEntry(Request(b"?", {"run": "r1", "model": "m"}), b"!"))
    [run] = runs_of(auditor)
    assert run["group_size"] == 5
    assert min(task["smallest_weight"] for task in run["tasks"]) < 1e-9
    table, _, what, *_ = run_parts([run])
    assert isinstance(table, Table)
    assert [row[:2] for row in table.rows] == [("GaussianMixture(covariance_type='full', …)", "2")]
    assert table.rows[0][3] == f"{sum(task['numbers'] for task in run['tasks']):,}"
    assert "over whole groups of at least 5 rows (or persons" in str(what)
    auditor.record(exchange(TASKS, number=2))
    [both] = runs_of(auditor)
    assert both["group_size"] is None, "some answers were not made of groups"


def test_a_run_in_words(auditor, tmp_path):
    """By hand: two rounds of two tasks, one refused question, one description of the columns."""
    metadata = {"described": [["x", "number", []], ["town", "text", ["A", "B"]]], "labels": ["s"]}
    auditor.record(replace(exchange([], described=[]), metadata=metadata))
    for number in (1, 2):
        auditor.record(exchange(TASKS, number=number))
    auditor.record(AuditEntry(Request(b"?", {"run": "r1"}), b"!", refused="step 'X' is not known"))
    auditor.record(exchange([Task(FKM(2), State.at(CENTERS))], "r2"))
    answers = [*answers_of(read_log(auditor.log.path))]
    first, second = run_records(answers)
    assert (first["run"], second["run"], first["columns"]) == ("r1", "r2", ["x", "y"])
    assert (first["questions"], first["refused"]) == (3, 1)
    steps = ", ".join(task["task"] for task in first["tasks"])
    assert steps == "describe, labels, Lloyd(tol=0.0001), Inertia()"
    assert first["tasks"][2] == {
        **{"task": "Lloyd(tol=0.0001)", "times": 2, "numbers": 16, "texts": 0},
        "smallest_weight": LEAST,
    }
    table, by, what, limits, texts, *_ = run_parts([first])
    assert limits == "Limits in force: MinRows(n=20)."
    assert isinstance(table, Table)
    assert table.rows[2] == ("Lloyd(tol=0.0001)", "2", f"{LEAST:g}", "16")
    assert re.fullmatch(rf"Run r1, without a permit, {TIME} to {TIME}, UTC", table.title)
    assert by == "Questions of host:8443: 3 answered; 1 refused."
    known = f"sums of x, y over rows that weigh {LEAST:g} or more together, and their weights."
    assert what == f"Who has the answers knows {known}"
    assert str(texts).startswith("And up to 2 texts")
    said = [answer_line(answer)[21:] for answer in answers]
    assert [said[i] for i in (0, 1, 6)] == [
        "round 1  the names and kinds of 2 columns, 2 texts, 51 bytes",
        "round 1  1 texts of labels, 5 bytes",
        "refused: step 'X' is not known",
    ]
