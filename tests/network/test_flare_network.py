"""A real federation over NVIDIA FLARE on this machine: provisioned, mutual TLS, four processes."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from federations import LINUX, PATIENCE, lloyd_of, open_to_others, rows_of
from flares import RunningFlare, flare
from nvflare.fuel.flare_api.flare_api import new_secure_session
from strangers import listening

from fedcluster_app.coordinator.runs import runs
from fedcluster_app.coordinator.service_client import Coordinator
from fedcluster_app.transports.flare import coordinator as kits
from fedcluster_app.transports.flare.coordinator import open_session
from fedcluster_app.transports.flare.locks import write_flare_job
from fedcluster_app.trust.audit_log import read_log
from fedcluster_app.trust.owned_files import ORPHAN

pytestmark = LINUX

ROWS = rows_of(north=60, south=80, west=70)
WAIT = ["--set", f"run.deadline={PATIENCE}"]
CHIEF = "chief@example.org"
"""One who administers the project: as provisioned, such a one may do everything."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFlare]:
    folder = tmp_path_factory.mktemp("flare")
    with pytest.MonkeyPatch.context() as patch:
        _with_chief(patch, folder / "chief")
        with flare(folder, ROWS) as running:
            yield running


def _with_chief(patch: pytest.MonkeyPatch, kit: Path) -> None:
    """Provision an administrator of the project, too."""
    project, provision = kits.project, kits._provision  # noqa: SLF001

    def project_with_chief(federation):
        content = project(federation)
        chief = {"name": CHIEF, "type": "admin", "org": "fedcluster", "role": "project_admin"}
        content["participants"].append(chief)
        return content

    def provision_and_keep(work, file):
        provision(work, file)
        [made] = (work / "kits" / "fedcluster").glob("prod_*")
        shutil.copytree(made / CHIEF, kit)

    patch.setattr(kits, "project", project_with_chief)
    patch.setattr(kits, "_provision", provision_and_keep)


def models(here: Path, there: Path) -> list[dict]:
    """The models of two folders, but for how their parameters were given."""
    both = [json.loads((folder / "model.json").read_text("utf-8")) for folder in (here, there)]
    for model in both:
        model.pop("algorithm")
    return both


@pytest.mark.thorough
@pytest.mark.network
def test_the_same_bits_as_in_one_process_over_flare(running: RunningFlare, tmp_path: Path) -> None:
    """Rows are prepared, as they are by default."""
    run = running.run("fit", "-k", 3, *WAIT, "--out", tmp_path / "there")
    tomls = [running.site(name) / "site.toml" for name in ROWS]
    local = running.command("fit", *tomls, "-k", 3, "--out", tmp_path / "here", name="here")
    run.done()
    local.done()
    here, there = models(tmp_path / "here", tmp_path / "there")
    assert here == there
    labels = "each labels its own rows by it from now on, "
    assert f"The model is at north, south, west; {labels}" in run.said()


@pytest.mark.long
def test_runs_at_once_queue_and_go_on_without_their_command(running: RunningFlare, tmp_path: Path):
    """One of an operator elsewhere, and one whose command is killed, which costs no attempt."""
    running.command("federation", "operator", running.folder, "ada", "--out", tmp_path / "a").done()
    job = ["fit", "-k", 3, *lloyd_of(40), *WAIT, "--out"]
    killed = running.run(*job, tmp_path / "killed")
    running.wait_for_exchange(1)
    name = running.communication_rounds()[0].parents[1].name
    other = running.command("federation", "run", tmp_path / "a", *job, tmp_path / "other")
    running.wait_for_exchange(2)
    killed.kill()
    other.done()
    running.command("federation", "run", running.folder, "resume", name).done()
    [one, two] = models(tmp_path / "killed", tmp_path / "other")
    assert one == two
    known = [(run.state, run.operator, run.attempts) for run in runs(running.federation)[-2:]]
    assert known == [("done", "owner", 1), ("done", "ada", 1)]


@pytest.mark.thorough
@pytest.mark.network
def test_what_watches_a_coordinator_sees_flare_s_too(running: RunningFlare) -> None:
    coordinator = Coordinator.at(running.folder)
    assert coordinator.answers()
    assert 'fedcluster_site_connected{site="north"} 1.0' in coordinator.ask("GET", "/metrics").text
    said = running.command("federation", "doctor", running.folder).done()
    assert "is reached; its certificate is valid for" in said
    again = running.command("site", "start", running.site("north") / "site.toml")
    assert again.wait() == 2
    assert "another program of this site runs on" in again.said()
    events = [line["event"] for line in read_log(running.folder / "audit.jsonl")]
    assert (events.count("started"), events.count("ended")) == (1, 0)
    assert events.count("connected") >= len(ROWS)
    told = (running.folder / "logs" / "coordinator.jsonl").read_text()
    assert "run is queued" in told


# Attacks of those who may submit jobs, and of one who administers the project

EVIL = """
from pathlib import Path
from nvflare.apis.executor import Executor
from nvflare.apis.impl.controller import Controller
Path({mark!r}).write_text("own code was run")
class Evil(Executor):
    def __init__(self):
        super().__init__()
        Path({mark!r}).write_text("own code was run")
    def execute(self, *args):
        return None
"""
REFUSED = r"(?i)authoriz"
LOGS = "nvflare.app_common.logging.job_log_streamer.JobLogStreamer"


def evil(folder: Path, kind: str, mark: Path) -> Path:
    """A job that is more than ours, and leaves a file where it succeeds."""
    write_flare_job(folder, "no-such-run", list(ROWS))
    config = folder / "app" / "config"
    client, server = config / "config_fed_client.json", config / "config_fed_server.json"
    told = {path: json.loads(path.read_text()) for path in (client, server)}
    executor, components = told[client]["executors"][0]["executor"], told[client]["components"]
    touch = {"id": "x", "path": "subprocess.Popen", "args": {"args": ["touch", str(mark)]}}
    if kind == "own code":
        (folder / "app" / "custom").mkdir()
        (folder / "app" / "custom" / "evil.py").write_text(EVIL.format(mark=str(mark)))
        executor["path"] = "evil.Evil"
    elif kind == "unlisted class at the sites":
        components.append(touch)
    elif kind == "unlisted class at the server":
        told[server]["components"].append(touch)
    elif kind == "unlisted class of FLARE's own":
        components.append({"id": "x", "path": LOGS, "args": {}})
    else:
        executor["args"] = {"site_file": "/etc/passwd", "where": str(mark)}
    for path, content in told.items():
        path.write_text(json.dumps(content))
    return folder


FAILED = {"FINISHED:FAILED_TO_RUN", "FINISHED:ABNORMAL", "FINISHED:EXECUTION_EXCEPTION"}
ATTACKS = [
    *("own code", "unlisted class at the sites", "unlisted class at the server"),
    *("unlisted class of FLARE's own", "another site file"),
]


@pytest.mark.long
def test_attacks_by_jobs_fail_and_a_fit_works_after_them(running: RunningFlare, tmp_path: Path):
    for i, kind in enumerate(ATTACKS):
        mark = tmp_path / f"mark-{i}"
        with closing(open_session(running.federation)) as opened:
            job = str(opened.submit_job(str(evil(tmp_path / f"evil-{i}", kind, mark))))
            running.wait_until(partial(has_ended, opened, job))
            assert opened.get_job_meta(job)["status"] in FAILED, kind
        assert not mark.exists(), kind
    running.run("fit", "-k", 3, *WAIT, "--out", tmp_path / "after").done()


def has_ended(opened: Any, job: str) -> bool:
    status = str(opened.get_job_meta(job).get("status"))
    return status.startswith(("FINISHED", "REJECTED", "FAILED"))


@pytest.mark.long
@pytest.mark.parametrize("who", ["lead", CHIEF])
def test_nobody_reads_a_site_s_files_by_a_shell(who: str, running: RunningFlare, tmp_path: Path):
    """Neither who leads nor who administers; and the latter submits no job."""
    kit = running.folder / "flare" / "lead" if who == "lead" else running.folder.parent / "chief"
    name = who if who == CHIEF else kits.LEAD
    opened = new_secure_session(name, str(kit), timeout=60)
    try:
        for command in (opened.cat_target, opened.head_target, opened.tail_target):
            for target in ("north", "server"):
                with pytest.raises(Exception, match=REFUSED) as caught:
                    command(target, None, "local/resources.json")
                assert "class_allow_list" not in str(caught.value)
        with pytest.raises(Exception, match=REFUSED):
            opened.ls_target("north")
        with pytest.raises(Exception, match=REFUSED):
            opened.grep_target("north", None, "a", "local/resources.json")
        if who == CHIEF:
            job = write_flare_job(tmp_path / "job", "no-such-run", list(ROWS))
            with pytest.raises(Exception, match=REFUSED):
                opened.submit_job(str(job))
    finally:
        opened.close()


@pytest.mark.long
def test_other_programs_of_a_machine_cannot_speak_for_flare(running: RunningFlare) -> None:
    """FLARE's programs listen for those of their jobs; strangers have no certificate."""
    named = [*running.sites.values(), running.coordinator]
    found = listening(pid for command in named for pid in running.programs(command))
    ports = {int(where.rpartition(":")[2]) for kind, where in found if kind.startswith("tcp")}
    asked = Coordinator.at(running.folder).address  # where operators show a token instead
    ports.remove(int(asked.rpartition(":")[2]))
    assert len(ports) >= len(named)
    for port in ports:
        assert is_let_in(port, running.kit("north") / "startup")
        assert not is_let_in(port, None), f"port {port} talks to strangers"


def is_let_in(port: int, startup: Path | None) -> bool:
    """Whether a program with the certificate of a kit, or with none, may speak at a port."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # which asks for it before anything is said
    if startup is not None:
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        try:
            context.wrap_socket(plain).close()
        except (ssl.SSLError, ConnectionError):
            return False
    return True


@pytest.mark.long
def test_nothing_of_a_site_s_log_is_at_the_server(running: RunningFlare) -> None:
    """Text that only a site's own program writes, after all that went wrong above."""
    told = [*running.server_kit.rglob("*"), *(running.folder / "logs").iterdir()]
    kept = [path for path in told if path.is_file()]
    assert len(kept) > 10
    for path in kept:
        assert b"answered" not in path.read_bytes() or path.suffix == ".pyc", path


@pytest.mark.long
@pytest.mark.parametrize(
    "command", ["rotate-key {} west --revoke", "certificate {} --new-authority"]
)
def test_a_stolen_kit_is_kept_out(command, running, tmp_path):
    """By revoking it, while the others go on; and by another authority, after which all begin."""
    stolen = tmp_path / "stolen" / "flare"
    shutil.copytree(running.site("west"), stolen.parent)
    running.command("federation", *command.format(running.folder).split()).done()
    if "revoke" in command:
        running.wait_until(lambda: running.connected() == {"north", "south"})
        running.kill(running.sites["west"])
    else:
        for program in (*running.sites.values(), running.coordinator):
            running.kill(program)
        running.start()
        running.join("north", "south")
    thief = running.command("site", "start", stolen.parent / "site.toml", name="thief")
    running.run(
        "fit", "-k", 3, "--quorum", 2, "--set", "run.deadline=60", "--out", tmp_path / "two"
    ).done()
    assert all(missing == ["west"] for missing in running.missing())
    assert "Successfully registered" not in thief.said()
    if "revoke" in command:
        running.command("federation", "rotate-key", running.folder, "west").done()
    running.join("west")  # beside the thief, who tries on
    running.run("fit", "-k", 3, *WAIT, "--out", tmp_path / "three").done()
    assert all(missing == [] for missing in running.missing())
    running.kill(thief)


@pytest.mark.long
def test_what_a_site_had_started_ends_with_its_killed_program(running, tmp_path):
    """FLARE's own process of a run would try to connect for ever, and fill its log."""
    steps = lloyd_of(200)
    run = running.run("fit", "-k", 3, *steps, "--quorum", 2, "--out", tmp_path / "out")
    running.wait_for_exchange(2)
    started = running.programs(running.sites["north"])
    assert len(started) > 1
    running.sites["north"].kill()
    killed = time.monotonic()
    running.wait_until(lambda: not set(started) & set(running.pids()))
    assert time.monotonic() - killed < ORPHAN
    run.done()
    running.join("north")


@pytest.mark.long
def test_what_is_written_while_it_runs_is_for_its_owner_only(running: RunningFlare) -> None:
    """By both ends and FLARE's programs, whatever the umask; the test's own files aside."""
    walked = [path for path in running.folder.rglob("*") if not path.is_symlink()]
    assert len(walked) > 100
    open_ones = open_to_others(running.folder)
    assert {path.name for path in open_ones} <= {"rows.csv", "site.toml"}, open_ones
    for path in walked:
        with suppress(FileNotFoundError):  # deleted by a running program
            mode = path.lstat().st_mode
            assert path.is_dir() or path.suffix == ".sh" or not mode & 0o111, path
