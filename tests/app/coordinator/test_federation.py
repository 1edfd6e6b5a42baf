"""A federation's folder, its site files, jobs and logs: all of it but the network."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
import threading
import time
import weakref
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_ssh_private_key,
)
from grids import KNOWN, over_grid, process_grid
from strangers import NOBODY
from typed import invoke

from fedcluster.errors import InputError
from fedcluster.jobs import Evaluate, Fit, SelectK, fit_of
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.texts import Table
from fedcluster_app.coordinator import runs
from fedcluster_app.coordinator.folder import Federation, create
from fedcluster_app.coordinator.run_job import run_job
from fedcluster_app.coordinator.service_client import Coordinator
from fedcluster_app.report.messages import shown
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_auditor
from fedcluster_app.site.worker import keep_results
from fedcluster_app.transports.flower import _launcher as launcher
from fedcluster_app.transports.flower._launcher import SECRET, FleetOnly
from fedcluster_app.transports.flower.node import take_part
from fedcluster_app.trust import owned_files
from fedcluster_app.trust.audit_log import read_log
from fedcluster_app.trust.owned_files import (
    ManagedProcess,
    check_private,
    private_files,
    shorten_log,
    wait_for_port,
)
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder

pytestmark = pytest.mark.usefixtures("short_searches")

SITES = ["north", "south"]
RNG = np.random.default_rng(0)
ROWS = {name: RNG.normal(size=(40, 2)) + 5 * RNG.integers(0, 3, (40, 1)) for name in SITES}


def with_limits(folder: Path, smallest: int = 2) -> None:
    """Let a site answer exactly, as one that trusts the coordinator with its rows."""
    toml = (folder / "site.toml").read_text()
    assert 'protection = "groups"' in toml
    limits = f"\n[limits]\nmin_rows = 2\nmin_cluster_size = {smallest}\n"
    exact = toml.replace('protection = "groups"', 'protection = "limits"')
    (folder / "site.toml").write_text(exact + limits)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A federation whose sites have rows, and answer exactly."""
    create(tmp_path / "trial", SITES, "cluster.example.org:8443")
    for name in SITES:
        with_limits(tmp_path / "trial" / "sites" / name)
    for name, X in ROWS.items():
        names, X = ("x,y", X) if name == "north" else ("y,x", X[:, ::-1])
        lines = [names, *(",".join(map(repr, row)) for row in X.tolist()), ""]
        (tmp_path / "trial" / "sites" / name / "rows.csv").write_text("\n".join(lines))
        SiteFile.load(tmp_path / "trial" / "sites" / name / "site.toml").confirm()
    return tmp_path / "trial"


def certificates(path: Path) -> tuple[x509.Certificate, list[str]]:
    """The first certificate of a file, and the names that it is for."""
    found = x509.load_pem_x509_certificates(path.read_bytes())[0]
    if found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
        return found, []
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return found, names.get_values_for_type(x509.DNSName)


def test_certificates_say_what_they_are_for(folder: Path) -> None:
    """The authority's key, which renews the other, is for the coordinator only."""
    at = folder / "certificates"
    (authority, of_authority), (own, names) = (
        certificates(at / name) for name in ("ca.crt", "server.crt")
    )
    own.verify_directly_issued_by(authority)
    assert (of_authority, names) == ([], ["localhost", "cluster.example.org"])
    assert (folder / "sites/north/state/ca.crt").read_bytes() == (at / "ca.crt").read_bytes()
    public, holders = authority.public_key().public_numbers(), []  # type: ignore[union-attr]
    for path in folder.rglob("*"):
        if path.is_file() and b"PRIVATE KEY" in (content := path.read_bytes()):
            of_site = b"OPENSSH" in content
            load: Any = load_ssh_private_key if of_site else load_pem_private_key
            key = load(content, None).public_key()
            holders += [path] if getattr(key, "public_numbers", str)() == public else []
    assert holders == [at / "ca.key"]


def test_each_site_has_a_key_of_its_own(folder: Path) -> None:
    for part in ("keys/{}.pub", "sites/{}/state/key"):
        one, other = ((folder / part.format(name)).read_bytes() for name in SITES)
        assert one != other


def test_a_site_s_folder_is_ready_to_use(folder: Path, tmp_path: Path) -> None:
    """It shows what an administrator needs; the program keeps the rest in one folder."""
    home = folder / "sites/north"
    site = SiteFile.load(home / "site.toml")
    membership = Membership.from_site_file(site)
    assert (site.name, membership.coordinator) == ("north", "cluster.example.org:8443")
    readme = (home / "README.md").read_text()
    assert "fedcluster site start site.toml" in readme
    assert "{" not in readme + (folder / "README.md").read_text()
    carried_out(folder, tmp_path, fit_of(2))
    shown, kept = ({path.name for path in each.iterdir()} for each in (home, home / "state"))
    assert shown == {"site.toml", "README.md", "logs", "results", "state", "rows.csv"}
    assert kept == {"files.md", "key", "ca.crt", "coordinator.pub", "site.columns"}


def refused(line: str, reason: str, *arguments: object) -> None:
    """A command ends with one line."""
    status, said = invoke(line, *arguments)
    assert (status, reason in said) == (2, True), said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("sites", "reason"),
    [
        ("a,a", "names 'a' twice"),
        ("a,A", "differ in capital letters only"),
        ("a,../b", "site name '../b': use letters"),
        ("a,", "site name '': use letters"),
    ],
)
def test_what_makes_no_federation_is_refused(sites, reason, tmp_path):
    refused("federation new --sites", reason, sites, tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_a_folder_that_holds_something_is_not_touched(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    refused("federation new --sites a", "exists and is not an empty folder", folder)
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('key = "state/key"', 'key = "other"'), "other does not exist; it is in the folder that"),
        (('key = "state/key"', ""), "[federation], 'key' is missing"),
        (("coordinator =", "server ="), "[federation], unknown key 'server'"),
        (('results = "results"', "results = 3"), "[federation], results must be a text, not 3"),
        (("results =", 'steps = ["os.system"]\nresults ='), "'os.system' is not a step"),
        (("rows.csv", "none.csv"), "none.csv does not exist"),
    ],
)
def test_a_wrong_site_file_is_refused_in_one_line(change, reason, folder):
    toml = folder / "sites/north/site.toml"
    least = toml.read_text().replace("min_cluster_size = 2", "min_cluster_size = 5")
    toml.write_text(least.replace(*change))
    refused("site start", reason, toml)


def test_a_run_without_a_coordinator_is_refused(folder: Path, tmp_path: Path) -> None:
    fit = ("fit", "-k", 2, "--out", tmp_path / "out")
    line = "is not started: run fedcluster federation start"
    refused("federation run", line, folder, *fit)
    refused("federation run", "there is no run 'some'", folder, "resume", "some")
    refused("federation run", "federation.toml does not exist", tmp_path, *fit)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("-k 0", "-k must be at least 1, not 0"),
        ("-k 2 --set run.deadline=0", "run.deadline must be above 0 seconds"),
        ("-k 2 --quorum 3", "--quorum must be from 1 to 2, not 3"),
    ],
)
def test_terms_that_mean_nothing_are_refused(option, reason, folder, tmp_path):
    fit = ("fit", *option.split(), "--out", tmp_path / "out")
    refused("federation run", reason, folder, *fit)
    assert not (folder / "runs").exists()


def engine(folder: Path) -> RemoteEngine:
    """The sites of a folder, on a grid in this process."""
    given = []
    for name in SITES:
        site = SiteFile.load(folder / "sites" / name / "site.toml")
        columns = site.opened(raw=True).columns
        auditor = site_auditor(site, Membership.from_site_file(site), columns, str)
        keep = partial(_keep, site, folder / "sites" / name / "results")
        how: dict[str, Any] = {"choose": site.client, "auditor": auditor, "keep": keep, **KNOWN}
        given.append(Responder(site.client(), columns=columns, **how))
    # nobody is asked twice, however slow the machine is
    return over_grid(*process_grid(given), deadline=3600.0)


def _keep(site: SiteFile, results: Path, model: dict) -> None:
    keep_results(lambda columns, raw: site.opened(columns, raw=raw).chunks(), model, results)


def content(out: Path, job: Fit | SelectK | Evaluate, **how) -> dict:
    parameters = {"parameters": asdict(job), "columns": None, "out": str(out)}
    return {"job": job.kind, **parameters, **how}


def carried_out(folder: Path, here: Path, job: Fit | SelectK | Evaluate, **how) -> dict:
    """What a run of all sites tells, which has its folder and its result here."""
    return run_job(engine(folder), content(here / "out", job, **how), here / "run")


def test_a_job_from_its_plan_to_the_files_of_all(folder: Path, tmp_path: Path) -> None:
    """The sites have their columns in different orders; labels are written where the rows are."""
    assert carried_out(folder, tmp_path, fit_of(3), operator="ada")["model_at"] == SITES
    model = Model.load(tmp_path / "out" / "model.json")
    assert model.columns == ("x", "y")
    assert {site.name for site in model.sites} == set(SITES)
    assert model.algorithm["steps"][0] == "SiteSummaries(n_means=240, min_rows=2, rows_per_mean=4)"
    for name, X in ROWS.items():
        results = folder / "sites" / name / "results"
        assert json.loads((results / "model.json").read_text())["columns"] == ["x", "y"]
        written = np.loadtxt(results / "labels.csv", delimiter=",", skiprows=1)
        assert (written[:, 0] == np.arange(1, 41)).all()
        assert (written[:, 1] == model.predict(X)).all()
        log = list(read_log(folder / "sites" / name / "logs/audit.jsonl"))
        assert {line.get("operator") for line in log if "question" in line} == {"ada"}, log
    assert list((tmp_path / "out").iterdir()) != []
    assert not list((tmp_path / "out").glob("labels*"))


@pytest.mark.parametrize("m", [None, 2.0])
def test_a_site_labels_its_rows_chunk_by_chunk(folder, tmp_path, monkeypatch, m) -> None:
    """No more than two chunks are held, the next one among them."""
    seen, held = [], []

    def chunks(rows):
        for start in range(0, 40, 4):
            chunk = rows.take(slice(start, start + 4))
            seen.append(weakref.ref(chunk.X))
            held.append(sum(each() is not None for each in seen))
            yield chunk
            del chunk

    carried_out(folder, tmp_path, fit_of(2, m=m))
    site = SiteFile.load(folder / "sites/north/site.toml")
    rows = site.opened(["x", "y"]).load()
    opened = SimpleNamespace(chunks=lambda: chunks(rows))
    monkeypatch.setattr(SiteFile, "opened", lambda *how, **more: opened)
    model = json.loads((tmp_path / "out/model.json").read_text())
    keep_results(lambda *how: site.opened(*how).chunks(), model, tmp_path / "anew")
    known = (folder / "sites/north/results/labels.csv").read_text()
    assert (tmp_path / "anew/labels.csv").read_text() == known
    assert max(held) <= 2 < len(held)


def test_more_clusters_than_rows_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"81 clusters are more than the rows .*\(80\)"):
        carried_out(folder, tmp_path, fit_of(81))


@pytest.fixture
def raw(folder: Path) -> Path:
    """Sites with text, other units, columns in another order, one too many, missing values."""
    for i, (name, X) in enumerate(ROWS.items()):
        frame = {"age": 40 + X[:, 0], "income": 1e4 * X[:, 1], "sex": np.array(["F", "M"])}
        frame["sex"] = frame["sex"][RNG.integers(0, 2, len(X))]
        lines = [",".join(map(str, row)) for row in zip(*frame.values(), strict=True)]
        lines[3 + i] = lines[3 + i].replace(lines[3 + i].split(",")[1], "")
        rows = ["age,income,sex", *lines]
        if name == "south":
            turned = [row.split(",")[::-1] for row in rows]
            rows = [",".join([*row, "id" if j == 0 else f"p{j}"]) for j, row in enumerate(turned)]
        (folder / "sites" / name / "rows.csv").write_text("\n".join([*rows, ""]))
    return folder


def site_tomls(folder: Path) -> list[Path]:
    return [folder / "sites" / name / "site.toml" for name in SITES]


@pytest.mark.parametrize("missing", ["mean", "drop"])
@pytest.mark.parametrize("m", [None, 2.0])
def test_rows_are_prepared_as_by_fit_on_one_machine(raw: Path, tmp_path: Path, missing, m) -> None:
    """The model, the labels and what is told of it, from the same site files."""
    out, here = tmp_path / "out", tmp_path / "here"
    job = fit_of(3, prepare=PreprocessingSpec(missing=missing), m=m, max_iter=9)
    done = carried_out(raw, tmp_path, job)
    options = f"fit -k 3 --missing {missing} --set fit.max_iter=9" + (f" --set fit.m={m}" * bool(m))
    status, said = invoke(options, *site_tomls(raw), "--out", here)
    assert status == 0
    model, expected = (json.loads((path / "model.json").read_text()) for path in (out, here))
    for key in ("centers", "weights", "columns", "preprocessing", "centers_in_units", "inertia"):
        assert model[key] == expected[key], key
    assert model["rounds"] == expected["rounds"]
    assert done["prepared"][0] in said
    assert done["preprocessing"]["left_out"] == {"id": "only south has it"}
    for name in SITES:
        labels = (raw / "sites" / name / "results" / "labels.csv").read_text()
        assert labels == (here / "labels" / f"{name}.csv").read_text()
        assert (",-1" in labels) == (missing == "drop")
    titles = [part.title for part in shown(done, 80) if isinstance(part, Table)]
    assert titles == ["Centres, in the units of the columns", "Clusters", "Sites"]


def test_a_resumed_job_prepares_as_it_did(raw: Path, tmp_path: Path) -> None:
    """What the sites told of their columns is recorded, too; its job has been JSON meanwhile."""
    job = fit_of(3, prepare=PreprocessingSpec("robust", missing="mean"))
    given = json.loads(json.dumps(content(tmp_path / "out", job)))
    seen = []
    for _ in range(2):
        told = run_job(engine(raw), given, tmp_path / "run")
        records = (tmp_path / "run/communication_rounds").iterdir()
        seen.append(({**told, "sites": None}, {p: p.stat().st_mtime_ns for p in records}))
    assert seen[0] == seen[1]
    (tmp_path / "run/communication_rounds/sites-columns").write_bytes(b"{}\n")
    with pytest.raises(InputError, match="sites-columns is damaged"):
        run_job(engine(raw), given, tmp_path / "run")


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (None, "sites 'north' and 'south' have not the same columns: income, pay;"),
        (PreprocessingSpec(columns=["age", "income"]), "column 'income' is lacking at south"),
    ],
)
def test_sites_whose_columns_differ_are_named_before_anything_is_fitted(
    prepare, said, raw, tmp_path
):
    for name in SITES:
        path = raw / "sites" / name / "rows.csv"
        rows = "age,income,sex\n1,2,3\n" if prepare is None else path.read_text()
        path.write_text(rows.replace("income", "pay") if name == "south" else rows)
    with pytest.raises(InputError, match=said):
        carried_out(raw, tmp_path, fit_of(2, prepare=prepare))
    assert not (tmp_path / "out").exists()


def test_the_log_says_what_left(folder: Path, tmp_path: Path) -> None:
    toml = folder / "sites/north/site.toml"
    assert invoke("site log", toml)[1].startswith("0 answers left site north")
    carried_out(folder, tmp_path, fit_of(3))
    status, said = invoke("site log --last 3", toml)
    assert status == 0
    assert re.search(r"Inertia\(\): 1 x 2, smallest weight 40, 16 bytes", said)
    assert re.search(r"\d answers left site north: .*audit.jsonl", said)
    lines = json.loads(invoke("site log --json", toml)[1])["answers"]
    assert set(lines[0]) == {
        *("time", "run", "round", "task", "shape", "smallest_weight", "bytes", "numbers", "seed"),
        *("asked_by", "permit", "columns", "question", "state", "state_round", "preparation"),
        "limits",
    }
    assert lines[1]["task"] == "SiteSummaries(n_means=240, min_rows=2, rows_per_mean=4)"
    assert lines[1]["smallest_weight"] >= 2


def test_a_program_ends_with_its_reason_and_not_with_its_farewell(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "\x1b[91mERROR \x1b[0m:     The disk is full.\nINFO:     Shutting down\n"
        "INFO:     Waiting for application shutdown.\nINFO:     Finished server process [7]\n"
    )
    nothing: Any = None
    program = ManagedProcess("superlink", nothing, log)
    assert program.complaint() == "The disk is full."
    trace = "Traceback (most recent call last):\n  File\n    f()\nValueError: no disk\n"
    log.write_text(f"one\n{trace}\nDuring handling of it:\n\n{trace}")
    assert program.complaint() == "ValueError: no disk"


def test_the_log_of_a_program_that_never_ends_stays_small(tmp_path: Path) -> None:
    """Two files of it, of which the second is overwritten, and the program goes on in the first."""
    program = tmp_path / "program.py"
    program.write_text("while True: print('one line after another ' * 20, flush=True)")
    log, moved = tmp_path / "superlink.log", 0
    command = [sys.executable, str(program)]
    with ManagedProcess.running("Flower's superlink", command, log, os.environ) as superlink:
        while moved < 3:
            before = log.stat().st_size
            shorten_log(log, 1 << 16)
            moved += log.stat().st_size < before
            assert superlink.runs
    assert log.read_bytes()[:8] != b"\0" * 8
    kept = [path.name for path in tmp_path.iterdir() if ".log" in path.name]
    assert sorted(kept) == ["superlink.log", "superlink.log.1"]


def status_of(path: str, host: str, secret: bytes | None) -> int:
    """What the gate before the SuperLink answers; 200 is the app behind it."""
    said: list[int] = []

    async def behind(scope, receive, send):
        said.append(200)

    async def send(message):
        said.append(message.get("status"))

    headers = [] if secret is None else [(SECRET.encode(), secret)]
    scope = {"type": "http", "path": path, "client": (host, 1), "headers": headers}
    nothing: Any = None
    asyncio.run(FleetOnly(behind, b"secret")(scope, nothing, send))
    return said[0]


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/v1/fleet/pull-messages", "10.0.0.7", 200),
        ("/health", "10.0.0.7", 200),
        ("/v1/control/start-run", "10.0.0.7", 403),
        ("/v1/control/register-node", "10.0.0.7", 403),
        ("/v1/runtime/acquire-task", "10.0.0.7", 403),
        ("/docs", "10.0.0.7", 403),
        ("/v1/fleet", "not an address", 403),
        ("/v1/control/start-run", "127.0.0.1", 200),
        ("/v1/runtime/acquire-task", "::1", 200),
    ],
)
def test_from_elsewhere_one_may_ask_what_sites_ask_and_no_more(path, host, status):
    """Who knows the secret, too."""
    assert status_of(path, host, b"secret") == status


@pytest.mark.parametrize("secret", [None, b"", b"Secret", b"secret ", b"\xff"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.0.0.7"])
def test_without_the_secret_nobody_asks_more_than_sites_do(host, secret):
    for path in ("/v1/control/start-run", "/v1/runtime/acquire-task", "/docs", "/", "/v1/fleet"):
        assert status_of(path, host, secret) == 403
    assert status_of("/v1/fleet/activate-node", host, secret) == 200


@pytest.mark.thorough
def test_a_program_that_does_not_start_is_complained_of(tmp_path: Path) -> None:
    command = [sys.executable, "-P", launcher.__file__, str(os.getpid()), "--nonsense"]
    program = ManagedProcess.running("Flower's superlink", command, tmp_path / "log", os.environ)
    said = r"Flower's superlink has ended: .* see .*log"
    with pytest.raises(InputError, match=said), program as one:
        one.process.wait(60)
        one.check()


def test_rounds_without_a_site_are_told_in_a_line_for_each_reason() -> None:
    silent = [{"site": "west", "reason": "silent", "exchange": n} for n in range(1, 8)]
    refused = [{"site": "south", "reason": "refused", "exchange": 2}]
    site = {"name": "west", "weight": None, "values_sent": 0}
    outcome = {"missing": [*silent, *refused], "sites": [site], "out": "out", "files": []}
    lines = [part for part in shown(outcome, 80) if isinstance(part, str)]
    assert lines[:2] == [
        "7 rounds from 1 to 7 without west: silent.",
        "Round 2 without south: refused.",
    ]


SITE = {"connected": True, "last_answer": None, "answered": 0, "missed": 0}
ABOUT = {"seconds_of_a_round": None, "queue": 0, "days_of_certificate": 900}


@pytest.fixture
def show(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """What a command shows of what a coordinator tells."""

    def shown(sites: dict, known: list[dict], *options: object, **about: object) -> str:
        told: dict = {"/sites": {"sites": sites, **ABOUT, **about}, "/runs": {"runs": known}}
        monkeypatch.setattr(Coordinator, "get", lambda _, path: dict(told[path]))
        status, said = invoke("federation show", folder, *options)
        assert status == 0, said
        return said

    return shown


def test_a_run_that_failed_is_shown_on_a_line_of_its_own(folder, show) -> None:
    """No other line is as wide as its reason."""
    assert show({"a": SITE}, []).splitlines()[-1] == "No runs yet."
    reason = "why " * 100
    outcomes: dict[str, dict | None] = {"1": {"done": False, "error": reason}, "2": {"done": True}}
    for name, outcome in (outcomes | {"3": None}).items():
        run = folder / "runs" / name
        run.mkdir(parents=True)
        (run / "job.json").write_text('{"out": "/there"}')
        if outcome:
            (run / "outcome.json").write_text(json.dumps(outcome))
    known = runs.runs(Federation.load(folder))
    ended = [(run.name, run.state, run.error) for run in known]
    assert ended == [("1", "failed", reason), ("2", "done", ""), ("3", "interrupted", "")]
    said = show({"a": SITE}, [asdict(run) for run in known])
    assert "Run 1: why why" in said
    assert re.search(r"^2 +done ", said, re.M)


def test_the_last_runs_and_all_sites_that_are_away_are_listed_first(show) -> None:
    """Of 30 sites and 20 runs, those that a person looks for."""
    sites = {f"s{i:02}": {**SITE, "connected": i not in (7, 28, 29)} for i in range(30)}
    asked = {"operator": "ada", "job": "fit", "began": "", "ended": "", "rounds": 0}
    known = [
        {"name": f"r{i:02}", "state": "failed", "error": f"why {i}", **asked} for i in range(20)
    ]
    said = show(sites, known, "--last", "3")
    names = re.findall(r"^(s\d\d|r\d\d) ", said, re.M)
    connected = [f"s{i:02}" for i in (0, 1, 2, 3, 4, 5, 6, 8, 9)]
    assert names == ["s07", "s28", "s29", *connected, "r19", "r18", "r17"]
    assert "Sites (18 more sites connected: see --json)" in said
    assert "Runs (the last 3 of 20)" in said
    assert re.findall(r"why \d+", said) == ["why 19", "why 18", "why 17"]


def test_show_tells_of_sites_runs_and_a_certificate_that_ends(show) -> None:
    site = {"connected": True, "last_answer": 0.0, "answered": 2, "missed": 1}
    asked = {"operator": "ada", "job": "fit", "began": "1970-01-01T00:00:00", "ended": ""}
    run = {"name": "r", "state": "running", "rounds": 3, "error": "", **asked}
    about = {"seconds_of_a_round": 1.25, "seconds_of_last_round": 1.5, "queue": 2}
    for days, warning in ((61, ""), (59.8, "ends in 60 days"), (-1, "certificate ended")):
        said = show({"north": site}, [run], **about, days_of_certificate=days)
        assert ("warning" in said, warning in said) == (bool(warning), True)
        for line in (
            "1970-01-01 00:00:00",
            "A round takes 1.2 s in the mean; the last took 1.5 s.",
            "2 runs wait.",
            "r    running",
        ):
            assert line in said


def test_a_start_waits_until_a_killed_coordinator_s_program_has_left_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, began = taken.getsockname()[1], time.monotonic()
        threading.Timer(0.6, taken.close).start()
        wait_for_port("127.0.0.1", port)
        assert time.monotonic() - began > 0.5


@pytest.mark.thorough
def test_a_port_that_another_program_keeps_is_named(monkeypatch) -> None:
    monkeypatch.setattr(owned_files, "ORPHAN", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} cannot be listened at: Address already"):
            wait_for_port("127.0.0.1", port)


# On a machine that others use, too


def test_what_is_made_is_accepted(folder: Path) -> None:
    assert Federation.load(folder).sites == ("north", "south")
    folder.chmod(0o755)  # a folder that others may enter is nobody's but the owner's to write
    assert Federation.load(folder).sites == ("north", "south")


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o720, 0o702])
@pytest.mark.parametrize("inner", ["", "certificates", "keys", "keys/north.pub", "federation.toml"])
def test_a_federation_in_which_others_may_write_is_refused(folder, inner, mode) -> None:
    (folder / inner).chmod(mode)
    with pytest.raises(
        InputError, match=rf"^other users .* may write {folder / inner}: chmod go-r"
    ):
        Federation.load(folder)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o660, 0o666])
@pytest.mark.parametrize("key", ["certificates/server.key", "certificates/permit.key"])
def test_a_key_that_others_may_read_is_refused(folder, key, mode) -> None:
    (folder / key).chmod(mode)
    with pytest.raises(InputError, match=f"^other users of this machine may read {folder / key}"):
        Federation.load(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("inner", ["", "certificates", "certificates/server.key"])
def test_what_belongs_to_another_is_refused(folder, inner) -> None:
    os.chown(folder / inner, NOBODY, -1)
    with pytest.raises(InputError, match=f"{folder / inner} belongs to another user"):
        Federation.load(folder)


@pytest.mark.parametrize(
    ("inner", "mode", "what"),
    [
        ("", 0o775, "write"),
        ("site.toml", 0o646, "write"),
        ("state/ca.crt", 0o664, "write"),
        ("state/coordinator.pub", 0o662, "write"),
        ("state/key", 0o640, "read"),
    ],
)
def test_a_site_that_others_may_change_does_not_start(folder, inner, mode, what) -> None:
    site = folder / "sites/north"
    (site / inner).chmod(mode)
    heard: list[str] = []
    with pytest.raises(InputError, match=f"other users of this machine may {what} {site / inner}"):
        take_part(site / "site.toml", heard.append)
    assert heard == []


def test_a_link_is_judged_by_what_it_leads_to(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("")
    target.chmod(0o666)
    link.symlink_to(target)
    with pytest.raises(InputError, match=f"may write {link}"):
        check_private([link])
    check_private([tmp_path / "nothing"], secret=[tmp_path / "nothing"])


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o002, 0o077])
def test_the_umask_comes_back(umask, tmp_path) -> None:
    before = os.umask(umask)
    try:
        with private_files():
            (tmp_path / "file").write_text("")
            (tmp_path / "folder").mkdir()
        (tmp_path / "later").write_text("")
    finally:
        assert os.umask(before) == umask
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "later").stat().st_mode & 0o777 == 0o666 & ~umask
