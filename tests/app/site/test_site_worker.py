"""A site whose rows are in a process of their own: the same bytes, and no question hangs it."""

import csv
import json
import re
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from federations import labelled
from grids import KNOWN
from peer import ByHand
from test_worker import FEDERATION, started, wait_until
from typer.testing import CliRunner

from fedcluster import FederatedKMeans
from fedcluster.algorithms import FKM, FedAvg, Lloyd
from fedcluster.core import Data, State, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.wire import pack, unpack, write_tasks
from fedcluster.errors import EndedError
from fedcluster.jobs import execute, fit_of
from fedcluster.metrics import Inertia
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.columns import Category, NumericColumn
from fedcluster_app.cli import app
from fedcluster_app.report.job_files import write_job
from fedcluster_app.site import worker
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.process import Worker
from fedcluster_app.site.worker import Labelling, ReceivedModels, keep_results
from fedcluster_app.transports.flower import node
from fedcluster_app.trust.site_state import STATE_FILE, SiteState
from fedcluster_app.wire.policy import Policy
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(400, 2)) + RNG.choice([-4.0, 4.0], (400, 1))
START = State.at(ROWS[:2])


@pytest.fixture
def site(tmp_path: Path) -> SiteFile:
    """A site file with 400 rows of two columns and a text."""
    write_rows(tmp_path / "rows.csv", ROWS)
    path = tmp_path / "site.toml"
    path.write_text(
        'name = "north"\nprotection = "limits"\n[source]\npath = "rows.csv"\n[limits]\n'
        "min_cluster_size = 5\n[cost]\nseconds = 3\nmemory_mb = 900\nmessage_mb = 20" + FEDERATION
    )
    return SiteFile.load(path)


def write_rows(path: Path, rows: np.ndarray) -> None:
    lines = [f"{x!r},{y!r},{'left' if x < 0 else 'right'}" for x, y in rows.tolist()]
    path.write_text("\n".join(["x,y,side", *lines, ""]))


def question(*tasks: Task, run: str = "r", exchange: int = 0, **more: Any) -> bytes:
    headers, arrays = write_tasks(tasks)
    asked = {"columns": ["x", "y"]} | more
    head = {"protocol": 1, "run": run, "exchange": exchange, "tasks": headers, **asked}
    return pack(head, arrays)


def in_this_process(site: SiteFile) -> Responder:
    columns = tuple(site.opened(raw=True).columns)
    return Responder(site.client(columns), columns=columns, choose=site.client, **KNOWN)


def test_a_job_has_the_same_bytes_with_and_without_the_process(site, monkeypatch):
    """Preparation, clustering and a choice of columns: every reply is the same, but its log."""
    monkeypatch.setattr("secrets.token_hex", lambda n: "0" * 2 * n)
    job = fit_of(2, prepare=PreprocessingSpec(scale="standard"), seed=1)
    replies = []
    with started(site) as turns:
        for reply in (in_this_process(site).reply, turns.reply):
            transport = ByHand(reply)
            engine = RemoteEngine(transport, ["north"])
            engine.choose(None, raw=True)
            execute(job, engine)
            replies.append(transport.replies)
    assert len(replies[0]) == 5  # columns, moments, a description, Lloyd and the inertia
    logged = re.compile(rb'"log":"[0-9a-f]{64}"')
    assert replies[0] == [logged.sub(b'"log":""', reply) for reply in replies[1]]


LEVELS = Category("side", tuple(map(str, range(300_000))))
OF_LEVELS = Preprocessor((NumericColumn("x"), LEVELS))
TOO_EXPENSIVE = {
    "restarts": Task(FKM(2, client_n_init=10**9), State()),
    "epochs": Task(FedAvg(epochs=10**7), START),
    "levels": Task(Inertia(), State.at(np.zeros((1, 300_001))), preprocessor=OF_LEVELS),
}


@pytest.mark.thorough
@pytest.mark.parametrize("task", TOO_EXPENSIVE.values(), ids=TOO_EXPENSIVE)
def test_a_question_that_costs_too_much_is_refused_alone(site, task, monkeypatch):
    monkeypatch.setattr(Policy, "check", lambda *_: None)  # which refuses it before it costs
    with started(site) as turns:
        before = turns.reply(question(Task(Lloyd(), START)))
        began = time.monotonic()
        columns = ["x", "side"] if task.preprocessor else ["x", "y"]
        asked = question(task, run="bad", columns=columns, raw="side" in columns)
        header, arrays = unpack(turns.reply(asked))
        assert header["refused"].startswith("too expensive for the site's limits"), header
        assert not arrays
        assert time.monotonic() - began < 60
        assert turns.reply(question(Task(Lloyd(), START), run="r")) == before
        after, _ = unpack(turns.reply(question(Task(Lloyd(), START), run="new")))
        assert "refused" not in after


def test_a_newer_run_ends_the_question_of_an_older_one(site, monkeypatch):
    monkeypatch.setattr("fedcluster_app.wire.responder.RequestQueue.grace", 0.2)
    monkeypatch.setattr(Policy, "check", lambda *_: None)
    with started(site) as turns:
        turns.reply(question(Task(Lloyd(), START)))
        came: list[bytes] = []
        long = question(TOO_EXPENSIVE["restarts"], run="old")
        thread = threading.Thread(target=lambda: came.append(turns.reply(long)))
        thread.start()
        time.sleep(0.3)
        header, _ = unpack(turns.reply(question(Task(Lloyd(), START), run="new")))
        assert "refused" not in header
        thread.join(10)
        assert unpack(came[0])[0]["refused"] == "a newer question came"


@pytest.mark.thorough
def test_a_file_that_is_being_written_costs_no_group_and_a_silent_site_says_so(site):
    """The first rows alone are refused; all of them, again, give the same bits."""
    text = site.path.read_text().replace('protection = "limits"', "")
    text = text.replace("[limits]", "[groups]").replace("min_cluster_size = 5", "min_rows = 20")
    site.path.write_text(text)
    said: list[str] = []
    with started(SiteFile.load(site.path), said) as turns:
        answers = []
        for run, n in (("a", 400), ("b", 100), ("c", 400)):
            write_rows(site.path.parent / "rows.csv", ROWS[:n])
            header, arrays = unpack(turns.reply(question(Task(Lloyd(), START), run=run)), 1 << 20)
            answers.append((header.get("failed"), [each.tobytes() for each in arrays.values()]))
    assert answers[0] == answers[2]
    assert answers[1] == ("LostRowsError", [])
    silent = "no row is in a group, and nothing is told of any: see fedcluster site doctor"
    silent = f"site north: {silent}"
    assert silent not in said
    site.path.write_text(site.path.read_text().replace("min_rows = 20", "min_rows = 500"))
    with started(SiteFile.load(site.path), said) as turns:
        for exchange in range(2):
            turns.reply(question(Task(Lloyd(), START), run="d", exchange=exchange))
    assert said.count(silent) == 1


def bringing(model: dict[str, Any], exchange: int = 1) -> bytes:
    return pack({"protocol": 1, "run": "r", "exchange": exchange, "model": model}, {})


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What processes that have the rows are asked to do, from now on; labels are never begun."""
    done: list[str] = []
    call = Worker.__call__

    def counted(worker: Any, asked: Any) -> Any:
        done.append(asked.method)
        return call(worker, asked)

    monkeypatch.setattr(Worker, "__call__", counted)
    monkeypatch.setattr(Labelling, "go_on", lambda _labelling: done.append("go on"))
    return done


def test_a_model_is_acknowledged_before_a_row_is_looked_at(site, work):
    """One by which no row can be labelled costs as much, and is acknowledged in as many bytes.

    What is counted is work. The next question needs no more of it either.
    """
    fine = {"columns": ["x", "y"], "centers": [[0.0, 0.0], [1.0, 1.0]]}
    models = [fine, fine | {"preprocessing": {}}, {}]
    replies, said = [], list[str]()
    with started(site, said) as turns:
        turns.reply(question(Task(Lloyd(), START)))
        for number, model in enumerate(models, 1):
            before = len(work)
            replies.append(turns.reply(bringing(model, 2 * number)))
            assert work[before:] == ["go on"]
            turns.reply(question(Task(Lloyd(), START), exchange=2 * number + 1))
            assert work[before + 1 :] == ["introduce", "answers"]
    assert "site north: a model came" in said
    assert len({len(reply) for reply in replies}) == 1
    assert not any(b"failed" in reply or b"refused" in reply for reply in replies)
    assert not (site.path.parent / "results").exists()


def test_a_site_answers_while_labels_are_being_written(site):
    """Whoever writes them holds the lock; the site needs it for no answer."""
    models = received(site.path.parent)
    with started(site) as turns, models.next():
        turns.reply(question(Task(Lloyd(), START)))
        for exchange in (1, 3):
            assert "failed" not in unpack(turns.reply(bringing(model_of(site), exchange)))[0]
            header, _ = unpack(turns.reply(question(Task(Lloyd(), START), exchange=exchange + 1)))
            assert "limits" in header
        assert models.are_waiting
    assert "model and labels are in" in labelled(site.path.parent)


def model_of(site: SiteFile) -> dict[str, Any]:
    """A model as a coordinator sends it, of the columns x and y."""
    client = site.client(["x", "y"])
    report = execute(fit_of(2), LocalEngine([client]), columns=["x", "y"])
    write_job(site.path.parent, report)
    content: dict[str, Any] = json.loads((site.path.parent / "model.json").read_text())
    return content


def test_a_site_is_told_where_its_columns_are_unlike_the_others(site):
    """Its own rows and the model tell it; what is proposed goes into its file, and mends it."""
    others = np.random.default_rng(8).permutation(ROWS) * np.array([1.0, 1000.0])
    parts = {"north": ROWS, "south": others[::2], "west": others[1::2]}
    frames = {name: pd.DataFrame(rows, columns=["x", "y"]) for name, rows in parts.items()}
    with warnings.catch_warnings(action="ignore"):
        fit = FederatedKMeans(2, prepare="standard", random_state=0).fit(frames)
    model = Model.from_estimator(fit).plain()
    folder = site.path.parent
    with started(site) as turns:
        turns.reply(question(Task(Lloyd(), START)))
        assert "failed" not in unpack(turns.reply(bringing(model)))[0]
        assert "model and labels are in" in labelled(folder)
        wait_until(lambda: "Look at" in labelled(folder))  # the labels come first
    [line] = (folder / "results" / "doubts.txt").read_text().splitlines()
    assert line.startswith("column 'y' has mean ")
    assert labelled(folder).endswith(f"results. Look at {line}")
    mend = re.search(r"write (.*) under \[factors\] in its file$", line)
    assert mend is not None
    site.path.write_text(site.path.read_text() + f"[factors]\n{mend[1]}\n")
    mended = SiteFile.load(site.path).opened(raw=True).chunks()
    own = np.concatenate([chunk.X[:, :2] for chunk in mended])
    np.testing.assert_allclose(own.std(axis=0), others.std(axis=0))


def test_a_process_that_cannot_begin_to_label_is_not_started_for_ever(site, monkeypatch):
    """As with too little memory for it; what is to be labelled is not forgotten."""
    began = []

    def ended(_worker: object, _models: object) -> str:
        began.append(1)
        raise EndedError("too expensive for the site's limits: 1 MB of memory")

    models, said = received(site.path.parent), list[str]()
    models.receive(model_of(site), site.fingerprint())
    labelling = Labelling(site, models, said.append)
    monkeypatch.setattr(Worker, "__call__", ended)
    labelling.go_on()
    wait_until(lambda: len(said) == 2)
    time.sleep(0.2)
    assert len(began) == len(said) == 2
    assert models.are_waiting


def test_labels_are_written_later_where_the_state_of_a_site_is_damaged(site):
    """It is said, and the thread that writes them goes on."""
    models, said = received(site.path.parent), list[str]()
    labelling = Labelling(site, models, said.append)
    assert models.state.path is not None
    for times in (1, 2):
        models.state.path.write_bytes(b"no database, " * times)
        said.clear()
        labelling.go_on()
        wait_until(lambda: bool(said))
    assert "labels are not written: " in said[-1]
    assert "site.db" in said[-1]


@pytest.mark.parametrize("began", [False, True])
def test_what_a_site_was_to_label_is_labelled_at_its_next_start(site, monkeypatch, began):
    """As after a kill between the acknowledgement and the labels, or while they were written."""
    folder = site.path.parent
    model = model_of(site)
    with monkeypatch.context() as patch:
        patch.setattr(Labelling, "go_on", lambda _labelling: None)
        with started(site) as turns:
            turns.reply(question(Task(Lloyd(), START)))
            assert "failed" not in unpack(turns.reply(bringing(model)))[0]
    models = received(folder)
    if began:
        with models.next() as came:
            assert came is not None
    assert models.outcome() == "a model came, and the labels of rows are still to be written"
    said = invoke("site", "log", site.path)
    assert f"\nLabels: {models.outcome()}\n" in said
    monkeypatch.setattr(node, "take_part", lambda *_: None)
    assert invoke("site", "start", site.path).endswith("Ended. The next start labels the rows.\n")
    with started(site):
        assert "model and labels are in" in labelled(folder)
    assert len((folder / "results" / "labels.csv").read_text().splitlines()) == 401
    assert invoke("site", "start", site.path).endswith("Ended.\n")
    assert "Labels: " in invoke("site", "log", site.path)


def received(folder: Path) -> ReceivedModels:
    (state := SiteState(folder / STATE_FILE)).create()
    return ReceivedModels(state, folder / "results")


def invoke(*arguments: object) -> str:
    return CliRunner().invoke(app, [str(argument) for argument in arguments]).output


def test_labels_are_those_of_one_model_wherever_their_writing_ends(site):
    """The old ones with the old model, or none; the model that came is not forgotten."""
    folder, model = site.path.parent, model_of(site)
    models = received(folder)
    models.results.mkdir()
    (models.results / "labels.csv").write_text("of an earlier run")
    models.receive(model, site.fingerprint())

    def killed(_columns: object, _raw: bool) -> Iterator[Any]:
        yield Data(ROWS)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), models.next() as came:
        assert came is not None
        keep_results(killed, came["model"], models.results)
    assert [path.name for path in models.results.iterdir()] == ["labels.csv"]
    assert (models.results / "labels.csv").read_text() == "of an earlier run"
    assert models.are_waiting


def test_only_the_last_of_the_models_is_labelled_and_neither_it_nor_labels_are_given_up(tmp_path):
    models = received(tmp_path)
    for number in range(3):
        models.receive({"number": number}, "rows")
    with models.next() as came:
        assert came is not None
        assert came["model"] == {"number": 2}
    models.receive({"number": 3}, "rows")
    assert models.give_up("it was too expensive") == "no rows were labelled: it was too expensive"
    assert models.are_waiting
    with models.next() as came:
        assert came is not None
        assert came["model"] == {"number": 3}
        models.finish("model and labels are in results")
    assert models.give_up("too expensive") == "model and labels are in results"
    assert models.outcome().endswith("model and labels are in results")


def test_labels_stay_if_columns_cannot_be_compared(site, monkeypatch):
    def fails(*_arguments: object, **_more: object) -> list[str]:
        raise ValueError("no")

    monkeypatch.setattr(worker, "compare_results", fails)
    models = received(site.path.parent)
    models.receive(model_of(site), site.fingerprint())
    said = worker.Labeller(site)(models)()
    assert said.endswith("results. Columns were not compared: ValueError: no")
    assert models.outcome().endswith(said)
    assert len((models.results / "labels.csv").read_text().splitlines()) == 401


def test_a_model_that_cannot_be_kept_or_used_is_told_of(site):
    folder = site.path.parent
    (folder / "results").write_text("a file")
    with started(site) as turns:
        turns.reply(question(Task(Lloyd(), START)))
        assert unpack(turns.reply(bringing({})))[0]["failed"] == "InputError"
        (folder / "results").unlink()
        many = {"columns": ["x", "y"], "centers": [[0.0, 0.0]] * 100}
        header, _ = unpack(turns.reply(bringing(many, 2)))
        assert not {"failed", "refused"} & {*header}
        assert "no rows were labelled: " in labelled(folder)
        assert not (folder / "results" / "labels.csv").exists()


KEYS = [f"pt-{i:04}" for i in range(400, 0, -1)]


@pytest.fixture
def keyed(site: SiteFile) -> SiteFile:
    """The site, whose rows have keys."""
    rows = site.path.parent / "rows.csv"
    lines = rows.read_text().splitlines()
    rows.write_text("\n".join(map(",".join, zip(["patient", *KEYS], lines, strict=True))) + "\n")
    site.path.write_text('id_column = "patient"\n' + site.path.read_text())
    return SiteFile.load(site.path)


@pytest.mark.parametrize("change", [False, True])
def test_keys_stay_at_the_site_beside_the_clusters_of_rows_that_have_not_changed(keyed, change):
    """No byte that leaves has a key or the name of their column."""
    folder = keyed.path.parent
    rows, labels = folder / "rows.csv", folder / "results" / "labels.csv"
    labels.parent.mkdir()
    labels.write_text("of an earlier run")
    with started(keyed) as turns:
        transport = ByHand(turns.reply)
        engine = RemoteEngine(transport, ["north"])
        engine.choose(None, raw=True)
        write_job(folder, execute(fit_of(2, prepare=PreprocessingSpec()), engine))
        if change:
            rows.write_text(rows.read_text().replace("pt-", "no-"))
        model = json.loads((folder / "model.json").read_text())
        assert engine.give(model) == ("north",)
        assert ("no rows were labelled: they have changed" in labelled(folder)) is change
    kept = json.loads((folder / "results" / "model.json").read_text())
    assert kept["columns"] == model["columns"]
    left = [*transport.replies, (folder / "model.json").read_bytes()]
    assert len(left) > 4
    assert not any(b"patient" in each or b"pt-" in each for each in left)
    assert labels.exists() is not change
    if not change:
        header, *written = csv.reader(labels.read_text().splitlines())
        assert header == ["row", "patient", "cluster"]
        assert [key for _, key, _ in written] == KEYS


def test_a_column_of_keys_is_none_that_may_be_asked_for(keyed):
    with started(keyed) as turns:
        header, _ = unpack(turns.reply(question(Task(Lloyd(), START), columns=["x", "patient"])))
    assert header["refused"] == "this site has the columns x, y, side and no others"
