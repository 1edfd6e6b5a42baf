"""Work in a process of its own: the same results, and an end to what costs too much."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import numpy as np
import pytest
from worker_jobs import make

from fedcluster.engines.wire import pack
from fedcluster.errors import EndedError, InputError
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_responder
from fedcluster_app.site.process import Cost, Worker
from fedcluster_app.wire.responder import CANCELLED, Request, RequestQueue

TESTS = str(Path(__file__).parents[2])
FEDERATION = """
[federation]
coordinator = "127.0.0.1:1"
certificate = "system"
key = "site.toml"
"""


@contextmanager
def started(site: SiteFile, said: list[str] | None = None) -> Iterator[RequestQueue]:
    """A site as its program starts it."""
    say = (lambda line: None) if said is None else said.append
    program = site_responder(site, Membership.from_site_file(site), say)
    try:
        yield program
    finally:
        program.end("the test is over")


def wait_until(holds: Callable[[], bool], otherwise: str = "") -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)


def has_ended(process: int) -> bool:
    return not Path(f"/proc/{process}").exists()


@contextmanager
def working(seconds: int, memory_mb: int) -> Iterator[Worker[Any, Any]]:
    """A worker that is ended with the block."""
    worker: Worker[Any, Any] = Worker(make, Cost(seconds, memory_mb))
    try:
        yield worker
    finally:
        worker.end()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker[Any, Any]]:
    with working(1, 600) as worker:
        worker.patience = 600  # the machine may be busy
        yield worker


def test_one_process_serves_many_calls(worker):
    first = worker("count")
    assert [worker("count"), worker("count")] == [first + 1, first + 2]
    assert worker("pid") != os.getpid()
    array = np.random.default_rng(0).normal(size=(1000, 7))
    assert worker(array).tobytes() == array.tobytes()


def test_a_process_that_nobody_asks_is_ended_and_the_next_call_is_answered(monkeypatch):
    monkeypatch.setattr(Worker, "idle", 0.05)
    with working(60, 600) as worker:
        first = worker("pid")
        wait_until(lambda: has_ended(first))
        assert worker("pid") not in (first, os.getpid())


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("spin", "too expensive for the site's limits: 1 s of processor time"),
        ("fill", "too expensive for the site's limits: 600 MB of memory"),
        ("kill", "the site's process that computes was killed, by a person or by its system"),
        ("exit", "the site's process that computes has ended with status 3"),
    ],
)
def test_what_costs_too_much_is_ended_and_the_next_call_is_answered(worker, what, why):
    began = time.monotonic()
    with pytest.raises(EndedError, match=f"^{why}"):
        worker(what)
    assert worker("count") == 1
    assert time.monotonic() - began < 60


def test_a_call_that_waits_is_ended_by_the_clock(monkeypatch):
    monkeypatch.setattr("fedcluster_app.site.process.Worker.patience", 1)
    with working(1, 600) as worker, pytest.raises(EndedError, match="no answer by the clock"):
        worker("hold")


@pytest.mark.thorough
def test_each_call_has_its_own_time_and_reading_rows_has_no_limit(worker):
    """The limit is of a call, not of the process."""
    process = worker("pid")
    for _ in range(3):
        end = time.process_time() + 0.01
        while time.process_time() < end:
            worker(0)
    assert worker("read long") > 1
    assert worker("pid") == process
    with pytest.raises(EndedError, match="1 s of processor time"):
        worker("spin")


def test_errors_come_as_they_were(worker):
    with pytest.raises(InputError, match="no such column") as caught:
        worker("fail")
    assert "in _fail" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="Odd: 1 and 2"):
        worker("fail oddly")


def test_a_call_is_ended_from_another_thread(worker):
    worker("count")
    threading.Timer(0.3, worker.end, ["a newer question came"]).start()
    with pytest.raises(EndedError, match=r"^a newer question came$"):
        worker("spin")
    assert worker("count") == 1
    worker.end("nobody knows")  # between two calls nothing is lost
    assert worker("count") == 1


PARENT = """
import os, sys, time
lasting, of_a_run, call, tests = sys.argv[1:]
sys.path.insert(0, tests)
from worker_jobs import make
from fedcluster_app.site import process
from fedcluster_app.trust import owned_files
if of_a_run:
    process.LAST = 0.5
    owned_files.end_with(os.getppid())
worker = process.Worker(make, process.Cost(600, 10_000), lasting=bool(lasting))
print(worker("pid"), flush=True)
if call:
    worker(call)
time.sleep(600)
"""


@contextmanager
def begun(*program: str, linger: Path | None = None) -> Iterator[tuple[Popen[bytes], int]]:
    """A program, and the process whose number it prints."""
    env = os.environ | {"LINGER": str(linger)}
    with Popen([sys.executable, "-c", *program], stdin=PIPE, stdout=PIPE, env=env) as begun:
        assert begun.stdout is not None
        try:
            yield begun, int(begun.stdout.readline())
        finally:
            begun.kill()


@pytest.mark.thorough
@pytest.mark.parametrize("call", ["", "spin"])
def test_the_process_ends_with_its_parent_however_that_ends(call):
    with begun(PARENT, "", "", call, TESTS) as (_, child):
        time.sleep(0.3)
        os.kill(child, 0)
    wait_until(lambda: has_ended(child), "an orphan works on")


@pytest.mark.thorough
def test_a_program_ends_with_its_parent_although_a_script_lets_it_ignore_interrupts(tmp_path):
    """It may take leave first, but not for ever."""
    parent = (
        "import os, signal, subprocess, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())])\n"
        "print(child.pid, flush=True); child.wait()"
    )
    told = tmp_path / "told"
    child = (
        "import sys, time, pathlib; from fedcluster_app.trust.owned_files import end_with\n"
        f"end_with(int(sys.argv[1]), 0.5); told = pathlib.Path({str(told)!r})\n"
        "told.write_text('begun')\n"
        "try: time.sleep(60)\nexcept KeyboardInterrupt: told.write_text('asked')\n"
        "time.sleep(60)"
    )
    with begun(parent, child) as (_, pid):
        wait_until(told.exists)
    wait_until(lambda: has_ended(pid), "an orphan works on")
    assert told.read_text() == "asked"


@pytest.mark.thorough
def test_a_lasting_process_ends_its_call_and_then_itself(tmp_path):
    """Also after its parent was killed, for a while; its priority is the lowest."""
    done = tmp_path / "done"
    with begun(PARENT, "lasting", "", "linger", TESTS, linger=done) as (_, child):
        wait_until(done.exists)
    done.write_text("go on")
    wait_until(lambda: has_ended(child), "it does not end")
    assert done.read_text() == "19"


PROGRAM = """
import subprocess, sys, time
run = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]])
sys.stdin.readline()
run.kill()
run.wait()
print("ended", flush=True)
time.sleep(60)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_lasting_process_ends_with_the_program_for_which_its_parent_works(tmp_path, goes_on):
    """The parent is the process of a run, which the program, as FLARE's client, outlives."""
    done = tmp_path / "done"
    run = (PARENT, "lasting", "of a run", "linger", TESTS)
    with begun(PROGRAM, *run, linger=done) as (program, child):
        wait_until(done.exists)
        program.stdin.write(b"\n")  # type: ignore[union-attr]
        program.stdin.flush()  # type: ignore[union-attr]
        assert program.stdout.readline() == b"ended\n"  # type: ignore[union-attr]
        time.sleep(1.0)
        os.kill(child, 0)
        if goes_on:
            done.write_text("go on")
        else:
            program.kill()
            program.wait()
        wait_until(lambda: has_ended(child), "an orphan works on")
    assert done.read_text() == ("19" if goes_on else "")


class Desk:
    """Answers questions as a site would, each in as many seconds as it says; counts what ends."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.began: list[str] = []
        self.stop = threading.Event()
        self.turns = RequestQueue(self.reply, self.end, self.began.append, 10_000)

    def reply(self, request: Request) -> bytes:
        if request.refused:
            return request.refused.encode()
        return b"ended" if self.stop.wait(request.header["seconds"]) else b"done"

    def end(self, why: str) -> None:
        self.ended.append(why)
        self.stop.set()
        time.sleep(0.05)
        self.stop.clear()

    def ask(self, run: str, exchange: int, seconds: float, **more: Any) -> tuple[Any, list[bytes]]:
        message = pack({"run": run, "exchange": exchange, "seconds": seconds, **more}, {})
        came: list[bytes] = []
        thread = threading.Thread(target=lambda: came.append(self.turns.reply(message)))
        thread.start()
        time.sleep(0.1)
        return thread, came


@pytest.fixture
def desk(monkeypatch) -> Desk:
    monkeypatch.setattr("fedcluster_app.wire.responder.RequestQueue.grace", 0.3)
    return Desk()


@pytest.mark.parametrize(
    ("first", "second", "ended"),
    [
        (("a", 0), ("b", 0), True),
        (("a", 0), ("a", 1), True),
        (("a", 1), ("a", 0), False),
        (("a", 0), ("a", 0), False),  # asked again: it waits for the answer
    ],
)
def test_a_newer_question_ends_an_older_one_and_no_other(desk, first, second, ended):
    one, came_first = desk.ask(*first, 2.0)
    two, came_second = desk.ask(*second, 0.0)
    one.join(), two.join()
    assert (came_first, came_second) == ([b"ended" if ended else b"done"], [b"done"])
    assert desk.ended == ["a newer question came"] * ended


@pytest.mark.thorough
def test_a_run_that_began_earlier_does_not_end_a_later_one(desk):
    desk.ask("old", 0, 0.0)[0].join()
    new, came = desk.ask("new", 0, 1.5)
    old, _ = desk.ask("old", 1, 0.0)
    new.join(), old.join()
    assert (came, desk.ended) == ([b"done"], [])


def test_short_questions_of_two_runs_wait_for_each_other(desk):
    asked = [desk.ask(run, i, 0.05) for i in range(5) for run in ("a", "b")]
    for thread, _ in asked:
        thread.join()
    assert [came for _, came in asked] == [[b"done"]] * 10
    assert desk.ended == []


def test_a_cancelled_run_is_ended_at_once_and_for_good(desk):
    running, came = desk.ask("a", 3, 60.0)
    waiting, came_later = desk.ask("a", 3, 0.0)
    cancel, told = desk.ask("a", 4, 0.0, cancel=True)
    for thread in (running, waiting, cancel):
        thread.join(5)
    assert (came, came_later, told) == ([b"ended"], [CANCELLED.encode()], [b"done"])
    other, came = desk.ask("b", 0, 0.0)
    other.join()
    assert came == [b"done"]


def test_a_large_message_is_refused_unread(desk):
    said = desk.turns.reply(b"[" * 20_000)
    assert said == b"the message has 20,000 bytes; at most 10,000 are read"
    assert desk.began == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "question", [b"", b"[" * 5_000 + b"@0", b"7\n@0", b"\xff@0", b'{"run":[]}@0']
)
def test_what_is_no_question_is_refused_at_once_and_ends_no_other(desk, question):
    running, came = desk.ask("a", 3, 1.0)
    assert desk.turns.reply(question) == b"the message has no header that can be read"
    running.join()
    assert (came, desk.ended, desk.began) == ([b"done"], [], ["a"])


def test_a_question_of_a_run_without_a_name_has_its_turn(desk):
    assert desk.turns.reply(pack({"run": [], "seconds": 0.0}, {})) == b"done"
    assert desk.began == ["[]"]
