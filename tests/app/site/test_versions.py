"""Rows that change: each run is answered from the rows that it began with, or not at all."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import labelled
from peer import ByHand
from test_site_worker import START, question
from test_worker import FEDERATION, started
from typer.testing import CliRunner

from fedcluster.algorithms import Lloyd
from fedcluster.core import Task
from fedcluster.engines.wire import unpack
from fedcluster.errors import InputError
from fedcluster.frames import WarehouseSource
from fedcluster.jobs import execute, fit_of
from fedcluster_app.cli import app
from fedcluster_app.coordinator.certificates import site_key
from fedcluster_app.coordinator.folder import write_new
from fedcluster_app.report.job_files import write_job
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.worker import Versions, _Call, _Holder
from fedcluster_app.tables import _sql
from fedcluster_app.transports.flower import node
from fedcluster_app.transports.reloading import ReloadingSite, reload
from fedcluster_app.trust.audit_log import read_log
from fedcluster_app.trust.site_state import STATE_FILE, SiteState
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import RequestQueue

TASK = Task(Lloyd(), START)
CHANGED = "the rows have changed since the run began: start it anew"
EVENT = "the rows have changed"


class Database:
    """A SQLite database of 40 rows, and a site file that asks it; the queries are counted."""

    def __init__(self, folder: Path, version: str | None) -> None:
        self.file = folder / "clinic.sqlite"
        self.change("CREATE TABLE stays (x REAL, y REAL, entered INTEGER)")
        rows = np.random.default_rng(0).normal(size=(40, 2)).round(6).tolist()
        self.change(*(f"INSERT INTO stays VALUES ({x}, {y}, 1)" for x, y in rows))
        told = "" if version is None else f'version = "{version}"\n'
        self.site_file = folder / "site.toml"
        self.site_file.write_text(
            'name = "north"\nprotection = "limits"\n[source]\nurl = "sqlite:///clinic.sqlite"\n'
            f'query = "SELECT x, y FROM stays"\n{told}[limits]\nmin_cluster_size = 5'
            + FEDERATION.replace("site.toml", "key")
        )
        write_new(folder / "key", site_key()[0])
        self.site = SiteFile.load(self.site_file)

    def change(self, *statements: str) -> None:
        with sqlite3.connect(self.file) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()


BY_ENTRY = "SELECT max(entered), count(*) FROM stays"


@pytest.fixture(params=[None, BY_ENTRY], ids=["by rows", "by query"])
def database(tmp_path: Path, request: pytest.FixtureRequest) -> Database:
    return Database(tmp_path, request.param)


def weight(turns: RequestQueue, **about: Any) -> float:
    """Ask one question; return the weight of all rows, or fail with the refusal."""
    header, arrays = unpack(turns.reply(question(TASK, **about)))
    if "refused" in header or "failed" in header:
        raise InputError(str(header.get("refused") or header.get("failed")))
    return float(arrays["0.weights"].sum())


def events(folder: Path) -> list[str]:
    return [line["event"] for line in read_log(folder / "audit.jsonl") if "event" in line][1:]


def test_the_next_run_sees_new_rows_of_a_database_and_the_log_says_so(database):
    said: list[str] = []
    with started(database.site, said) as turns:
        assert weight(turns, run="a") == 40
        database.change("INSERT INTO stays VALUES (0, 0, 2)")
        assert weight(turns, run="a", exchange=1) == 40
        assert weight(turns, run="b") == 41
        assert weight(turns, run="c") == 41
        with pytest.raises(InputError, match=CHANGED):
            weight(turns, run="a", exchange=2)
        assert weight(turns, run="b", exchange=1) == 41
    folder = database.file.parent
    assert events(folder) == [EVENT]
    assert said.count("site north: its rows have changed, and are read anew") == 1
    assert b"stays" not in (folder / STATE_FILE).read_bytes()


def test_all_columns_of_a_run_are_of_one_reading(database):
    """A database that changes amid a run is not asked again for other columns, without a query."""
    with started(database.site) as turns:
        weight(turns, run="a")
        database.change("INSERT INTO stays VALUES (0, 0, 2)")
        raw = {"columns": ["y", "x"], "run": "a", "exchange": 1}
        if database.site.source.version is None:
            assert weight(turns, **raw) == 40
        else:
            with pytest.raises(InputError, match=CHANGED):
                weight(turns, **raw)


def test_a_restart_amid_a_run_goes_on_with_the_same_rows_only(database):
    with started(database.site) as turns:
        assert weight(turns, run="a", about={"job": "study"}) == 40
    with started(database.site) as turns:
        assert weight(turns, run="b", about={"job": "study"}) == 40
        database.change("UPDATE stays SET entered = 2, x = x + 1 WHERE rowid = 7")
    with started(database.site) as turns:
        with pytest.raises(InputError, match=CHANGED):
            weight(turns, run="c", about={"job": "study"})
        assert weight(turns, run="d", about={"job": "another study"}) == 40


@pytest.mark.parametrize("changed", [False, True])
def test_rows_of_a_database_are_labelled_by_a_model_of_the_same_rows_only(database, changed):
    """They are read anew for it, so others are never labelled, whatever the run still holds."""
    folder = database.file.parent
    with started(database.site) as turns:
        engine = RemoteEngine(ByHand(turns.reply), ["north"])
        engine.name_job("study")
        engine.choose(["x", "y"])
        report = execute(fit_of(2), engine, columns=["x", "y"])
        if changed:
            database.change("DELETE FROM stays WHERE rowid < 9", "UPDATE stays SET entered = 3")
        write_job(folder, report)
        engine.give(json.loads((folder / "model.json").read_text()))
    assert ("have changed" if changed else "labels are in") in labelled(folder)
    labels = folder / "results" / "labels.csv"
    assert labels.exists() is not changed
    if not changed:
        assert len(labels.read_text().splitlines()) == 41


def test_a_database_is_asked_once_for_each_version(database, monkeypatch):
    asked: list[str] = []

    class Counted(_sql.Query):
        def __init__(self, source: WarehouseSource) -> None:
            asked.append(str(source.query))
            super().__init__(source)

    monkeypatch.setattr(_sql, "Query", Counted)

    holder = _Holder(database.site)
    version = database.site.fingerprint() or holder(_Call("", (), False, "read anew", {}))()
    asked.clear()
    for columns in (("x",), ("y",), ("x", "y"), ("y", "x"), ("x",)):
        told = holder(_Call(version, columns, False, "introduce", {}))()
        assert told.n_columns is None or told.n_columns == len(columns)
    rows = [query for query in asked if query != BY_ENTRY]
    assert len(rows) == (0 if database.site.source.version is None else 1)


def test_a_source_that_cannot_be_read_is_told_and_the_site_goes_on(database):
    away = database.file.with_suffix(".away")
    with started(database.site) as turns:
        database.file.rename(away)
        header, _ = unpack(turns.reply(question(TASK, run="a")))
        assert header["failed"] == "InputError"
        away.rename(database.file)
        assert weight(turns, run="a", exchange=1) == 40


def test_a_job_may_be_called_anything(tmp_path):
    database = Database(tmp_path, BY_ENTRY)
    with started(database.site) as turns:
        jobs: list[Any] = [7, None, [], "", {"a": 1}, "x" * 3_000]
        for number, job in enumerate(jobs):
            assert weight(turns, run="a", exchange=number, about={"job": job}) == 40
    with SiteState(tmp_path / STATE_FILE).transaction() as file:
        kept = file.execute("SELECT name, content FROM rows").fetchall()
    assert kept
    assert sum(len(text) for row in kept for text in row) < 2000


def test_the_last_runs_are_known(tmp_path):
    state = SiteState(tmp_path / STATE_FILE)
    state.create()
    versions = Versions(state, str)
    for run in range(Versions.runs_kept + 5):
        versions.begin(str(run), "same")
    again = Versions(SiteState(state.path), str)
    known = [run for run in range(Versions.runs_kept + 5) if again.of(str(run)) is not None]
    assert known == list(range(5, Versions.runs_kept + 5))


class Connected:
    """The site as it is connected, with what it said."""

    def __init__(self, path: Path) -> None:
        self.said: list[str] = []
        SiteFile.load(path).confirm()
        self.site = ReloadingSite(path, self.said.append)

    def ask(self, run: str) -> dict[str, Any]:
        header, arrays = unpack(self.site.reply(question(TASK, run=run)))
        return {**header, "weight": arrays["0.weights"].sum() if arrays else 0}


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Connected]:
    database = Database(tmp_path, "SELECT 1")
    connected = Connected(database.site_file)
    yield connected
    connected.site.end("the test is over")


def test_reload_brings_in_a_new_site_file_and_rows_before_the_next_run(connected, tmp_path):
    path = tmp_path / "site.toml"
    assert connected.ask("a")["weight"] == 40
    with sqlite3.connect(tmp_path / "clinic.sqlite") as connection:
        connection.execute("INSERT INTO stays VALUES (0, 0, 2)")
    connection.close()
    assert connected.ask("b")["weight"] == 40  # the query for the version does not show it
    path.write_text(path.read_text().replace("min_cluster_size = 5", "min_cluster_size = 7"))
    ran = CliRunner().invoke(app, ["site", "reload", str(path)])
    assert "before the next run" in ran.output
    assert connected.ask("b")["weight"] == 40
    after = connected.ask("c")
    assert after["weight"] == 41
    assert {"name": "MinClusterSize", "p": 7} in after["limits"]
    assert connected.said.count("site north: its file and its rows are read anew") == 1
    assert events(tmp_path) == ["the site was reloaded"]


@pytest.fixture
def unseen(tmp_path: Path) -> Path:
    """A site file of which nobody has seen the columns."""
    write_rows(tmp_path, "name,age,bmi")
    path = tmp_path / "site.toml"
    path.write_text('name = "north"\n[source]\npath = "rows.csv"' + FEDERATION)
    return path


def write_rows(folder: Path, header: str, row: str = "Adam{},4{},2{}.5") -> None:
    lines = [row.replace("{}", str(i % 7)) for i in range(60)]
    (folder / "rows.csv").write_text("\n".join([header, *lines]))


def told(site: SiteFile) -> list[str]:
    """The names of columns that a site tells first."""
    return [column.name for column in site.grouped_client().introduce(columns=True).columns]


def test_no_name_of_a_column_leaves_that_nobody_at_the_site_has_seen(unseen, tmp_path):
    unconfirmed = r"nobody at this site has confirmed .* run fedcluster check"
    with pytest.raises(InputError, match=unconfirmed):
        ReloadingSite(unseen, print)
    ran = CliRunner().invoke(app, ["check", str(unseen)])
    assert "the names of these columns may leave, and no others: name, age, bmi." in ran.output
    ReloadingSite(unseen, print).end("the test is over")
    site = SiteFile.load(unseen).for_network()
    assert told(site) == ["name", "age", "bmi"]
    write_rows(tmp_path, "name,age,bmi,Eve Smith", "Adam{},4{},2{}.5,1")
    assert told(site) == ["name", "age", "bmi"]
    with pytest.raises(InputError, match="has no column 'Eve Smith' to cluster by"):
        site.rows(["Eve Smith"], raw=True)
    write_rows(tmp_path, "Adam,Rome,Eve", "Smith,Berlin,Meier")  # which could be a header
    with pytest.raises(InputError, match="has no columns 'name', 'age' and 'bmi'"):
        told(site)
    unseen.write_text('columns = ["Rome"]\n' + unseen.read_text())
    assert SiteFile.load(unseen).for_network().told_names() == ("Rome",)


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("n", 1)])
def test_who_starts_a_site_is_asked_which_names_may_leave(unseen, monkeypatch, answer, status):
    """At a terminal, once."""
    monkeypatch.setattr(node, "take_part", lambda *_: None)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _stream: True)
    ran = CliRunner().invoke(app, ["site", "start", str(unseen)], input=f"{answer}\n")
    assert "of site north: name, age, bmi." in ran.output
    assert (ran.exit_code, SiteFile.load(unseen).columns_file.exists()) == (status, not status)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('name = "north"', 'name = "south"', "name has changed: end fedcluster site start"),
        ("127.0.0.1:1", "127.0.0.1:2", "coordinator has changed"),
        ("min_cluster_size = 5", "min_cluster_size = 2", "must be at least 5 over a network"),
        ('name = "north"', "name = ", "is not TOML"),
    ],
)
def test_a_bad_site_file_leaves_the_site_as_it_is(connected, tmp_path, old, new, why):
    path = tmp_path / "site.toml"
    connected.ask("a")
    reload(path)
    path.write_text(path.read_text().replace(old, new))
    before = (tmp_path / "reload").read_text()
    status = CliRunner().invoke(app, ["site", "reload", str(path)]).exit_code
    is_refused = "coordinator" not in why  # what it is connected to, is known to the site only
    assert (status, (tmp_path / "reload").read_text() == before) == (2 * is_refused, is_refused)
    after = connected.ask("b")
    assert (after["site"], after["weight"]) == ("north", 40)
    assert any(f"goes on as before: {path}" in line and why in line for line in connected.said)
    assert events(tmp_path) == []
