"""Health of a coordinator, its metrics for Prometheus, and logs in JSON."""

from __future__ import annotations

import errno
import io
import json
import logging
import stat
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from operated import Client, Operated, ScriptedCarrier, operated
from prometheus_client.parser import text_string_to_metric_families

from fedcluster import __version__
from fedcluster_app.coordinator import runs as queues
from fedcluster_app.coordinator.folder import Federation, create
from fedcluster_app.coordinator.lifecycle import remove_site
from fedcluster_app.coordinator.operators import own_token
from fedcluster_app.coordinator.service import Health, days_of_certificate
from fedcluster_app.site import logs
from fedcluster_app.site.logs import logged
from fedcluster_app.wire.recorder import PROGRESS


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return create(tmp_path / "trial", ["north", "south"], "127.0.0.1:8443")


@pytest.fixture
def coordinator(federation: Federation, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(queues.RunQueue, "interval", 0.01)
    monkeypatch.delenv("FEDCLUSTER_TOKEN", raising=False)
    with operated(federation) as coordinator:
        yield coordinator


def wrote(folder: Path, *events: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / PROGRESS).open("a") as file:
        file.write("".join(json.dumps(event) + "\n" for event in events))


def round_of(number: int, at: float, *heard: str, asked: tuple[str, ...] = ("north", "south")):
    """The events of a round of 2 seconds."""
    missing = {name: "gone" for name in asked if name not in heard}
    return [
        {"round": number, "asked": list(asked), "at": at},
        *({"heard": name, "at": at + 1} for name in heard),
        {"round": number, "answered": dict.fromkeys(heard, 3), "missing": missing, "at": at + 2},
    ]


@pytest.fixture
def health(federation: Federation) -> Health:
    return Health(ScriptedCarrier(federation))


def test_who_is_connected_is_asked_first_on_a_machine_that_has_just_started(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uptime in (0.0, 1.0):
        monkeypatch.setattr(time, "monotonic", lambda: uptime)  # noqa: B023
        assert Health(ScriptedCarrier(federation)).sites()["north"]["connected"]


def test_health_is_what_runs_note(federation: Federation, health: Health) -> None:
    folder = federation.file("runs", "r")
    new = {"connected": True, "last_answer": None, "answered": 0, "missed": 0}
    assert health.sites()["north"] == new
    wrote(folder, *round_of(1, 100.0, "north", "south"))
    health.follow(folder)
    health.follow(folder)  # nothing new
    for part in ('{"round": 2, "asked"', ': ["north"], "at": 110}\nno JSON\n[]\n{"heard": 1}\n'):
        with (folder / PROGRESS).open("a") as file:
            file.write(part)
        health.follow(folder)  # half a line at first
    asked, heard, done = round_of(3, 120.0, "north")
    wrote(folder, asked, heard, {**done, "at": 126.0})
    health.follow(folder)
    sites = health.sites()
    assert sites["north"] == {"connected": True, "last_answer": 121.0, "answered": 2, "missed": 0}
    assert sites["south"] == {"connected": False, "last_answer": 101.0, "answered": 1, "missed": 1}
    summary = health.summary()
    assert (summary["seconds_of_last_round"], summary["seconds_of_a_round"]) == (6.0, 4.0)
    assert summary["version"] == __version__


def followed(health: Health, folder: Path, *events: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """The rounds that each site answered and missed, with these events."""
    wrote(folder, *events)
    health.follow(folder)
    return {name: (each["answered"], each["missed"]) for name, each in health.sites().items()}


def test_rounds_that_come_from_records_do_not_count(federation: Federation, health: Health) -> None:
    """A run that is resumed begins its file anew; no site was asked."""
    folder = federation.file("runs", "r")
    followed(health, folder, *round_of(1, 100.0, "north"), *round_of(2, 200.0, "north"))
    (folder / PROGRESS).unlink()
    replayed = [event for event in round_of(1, 300.0, "north") if "heard" not in event]
    assert followed(health, folder, *replayed)["north"][0] == 2
    again = round_of(1, 400.0, "north")
    assert followed(health, federation.file("runs", "s"), *again)["north"][0] == 3


def test_a_round_that_failed_is_missed_by_who_did_not_answer(federation, health) -> None:
    """Also where sites were to tell of themselves; it does not say how long a round takes."""
    folder = federation.file("runs", "r")
    told = {"heard": "north", "at": 100.0}, {"failed": {"south": "gone"}, "at": 101.0}
    assert followed(health, folder, *told) == {"north": (0, 0), "south": (0, 1)}
    asked, heard, _ = round_of(1, 110.0, "north")
    failed = {"round": 1, "failed": {"south": "gone"}, "at": 115.0}
    counts = followed(health, folder, asked, heard, failed)
    assert counts == {"north": (1, 0), "south": (0, 2)}
    assert health.summary()["seconds_of_last_round"] is None
    assert b'fedcluster_site_rounds_missed_total{site="south"} 2.0' in health.metrics()
    counts = followed(health, folder, *round_of(1, 120.0, "north", "south"))
    assert counts == {"north": (2, 0), "south": (1, 2)}


def bearer(coordinator: Operated) -> dict[str, str]:
    return {"Authorization": f"Bearer {own_token(coordinator.federation.folder)}"}


def families(client: Client, **how: Any) -> dict[str, dict[tuple[str, ...], float]]:
    answer = client.get("/metrics", **how)
    assert answer.status_code == 200
    found: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found[sample.name][tuple(sample.labels.values())] = sample.value
    return found


def begun(coordinator: Operated, *events: dict[str, Any], **more: Any) -> str:
    """The name of a run that has begun, of which these events were noted."""
    name = coordinator.by().begin(**more)
    coordinator.carrier.wait_for(name)
    wrote(folder := coordinator.federation.file("runs", name), *events)
    coordinator.health.follow(folder)
    return name


def test_prometheus_is_told(coordinator: Operated) -> None:
    begun(coordinator, *round_of(1, 100.0, "north"))
    coordinator.by().begin()
    found = families(coordinator.client, headers=bearer(coordinator))
    assert found["fedcluster_site_connected"] == {("north",): 1, ("south",): 0}
    assert found["fedcluster_site_last_answer_timestamp_seconds"] == {("north",): 101}
    assert found["fedcluster_site_rounds_answered_total"] == {("north",): 1}
    assert found["fedcluster_site_rounds_missed_total"] == {("south",): 1}
    assert found["fedcluster_round_seconds_count"] == {(): 1}
    assert found["fedcluster_round_seconds_sum"] == {(): 2}
    assert found["fedcluster_queue_length"] == {(): 1}
    assert found["fedcluster_runs"][("running",)] == 1
    assert found["fedcluster_info"] == {(__version__,): 1}
    end = found["fedcluster_certificate_end_timestamp_seconds"][()]
    assert 1820 < (end - time.time()) / 86400 < 1826


def test_a_removed_site_is_in_no_metric_of_now(federation: Federation, health: Health) -> None:
    assert b'site="south"' in health.metrics()
    remove_site(federation.folder, "south")
    assert b'site="south"' not in health.metrics()


def test_metrics_are_for_operators_alone(coordinator: Operated) -> None:
    """Other users of the coordinator's machine are none."""
    for client in (coordinator.client, Client(coordinator.app, "192.0.2.1")):
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"Authorization": "Bearer x"}).status_code == 401
        assert client.get("/metrics", headers=bearer(coordinator)).status_code == 200
        assert client.get("/health").status_code == 200


def test_metrics_hold_nothing_of_a_run(coordinator: Operated) -> None:
    """Neither names of runs, operators and columns, nor numbers that sites told."""
    events = round_of(1, 100.0, "north")
    events[0] |= {"inertia": 123.456, "shift": 7.891}
    events[-1]["answered"] = {"north": 424242}
    name = begun(coordinator, *events, options={"columns": ["secret_column"]})
    text = coordinator.client.get("/metrics", headers=bearer(coordinator)).text
    assert 'fedcluster_site_rounds_answered_total{site="north"} 1.0' in text
    for told in (name, "owner", "secret_column", "123.456", "7.891", "424242"):
        assert told not in text


def test_the_end_of_the_certificate_is_known(federation: Federation) -> None:
    days, certificate = days_of_certificate(federation), federation.file("certificates/server.crt")
    raw = certificate.read_bytes()
    ends = min(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(raw))
    assert days == pytest.approx((ends - datetime.now(UTC)).total_seconds() / 86400, abs=0.1)
    certificate.unlink()
    assert days_of_certificate(federation) is None


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_log_is_a_line_of_json_for_each_event(tmp_path: Path, capsys) -> None:
    path = tmp_path / "logs" / "site.jsonl"
    about = {"run": "r", "round": 3, "password": "x"}
    with logged(path, printed=True, site="north") as logger:
        of_runs = logging.getLogger("fedcluster_app.coordinator.runs")
        of_runs.info("run is %s", "done", extra=about)
        try:
            raise ValueError("why")
        except ValueError:
            logger.exception("failed")
        logger.debug("nothing")
    logger.warning("after the end")
    first, second = lines_of(path)
    assert capsys.readouterr().out == path.read_text()
    assert datetime.fromisoformat(first.pop("time")).utcoffset() == UTC.utcoffset(None)
    told = {"event": "run is done", "run": "r", "round": 3}
    assert first == {"level": "info", "site": "north", **told}
    assert second["level"] == "error"
    assert second["error"].endswith("ValueError: why")


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, _text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_one_line_until_a_line_is_written(tmp_path: Path, capsys) -> None:
    path = tmp_path / "logs" / "site.jsonl"
    with logged(path, printed=False) as logger:
        files = [each for each in logger.handlers if isinstance(each, logging.FileHandler)]
        handler: Any = files[0]
        good = handler.stream
        for _ in range(2):
            handler.stream = Full()
            for event in ("one", "two"):
                logger.info(event)
            handler.stream = good
            logger.info("there is room")
    said = f"{path} cannot be written: No space left on device; make room for it\n"
    assert capsys.readouterr().err == 2 * said
    assert [line["event"] for line in lines_of(path)] == ["there is room"] * 2


def test_logs_are_rotated_and_for_their_owner_only(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(logs, "LARGEST_LOG", 300)
    monkeypatch.setattr(logs, "FILES", 2)
    path = tmp_path / "logs" / "coordinator.jsonl"
    with logged(path, printed=False) as logger:
        for i in range(20):
            logger.info("event %d\nof two lines", i)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == [path.name, f"{path.name}.1", f"{path.name}.2"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert all(json.loads(line) for file in files for line in file.read_text().splitlines())


def test_events_of_runs_are_logged(coordinator: Operated, tmp_path: Path) -> None:
    path = tmp_path / "coordinator.jsonl"
    with logged(path, printed=False):
        name = coordinator.by().begin()
        coordinator.carrier.wait_for(name)
        wrote(coordinator.federation.file("runs", name), *round_of(1, 100.0, "north"))
        coordinator.carrier.finish(name)
        coordinator.by().wait_until(name, "done")
        coordinator.queue.close()
    lines = lines_of(path)
    assert {line["run"] for line in lines} == {name}
    told = [line["event"] for line in lines]
    assert told == ["run is queued", "run begins", "round is done", "run is done"]
    done = lines[2]
    assert (done["round"], done["seconds"], done["missing"]) == (1, 2.0, ["south"])
