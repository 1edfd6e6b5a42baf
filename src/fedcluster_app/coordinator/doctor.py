"""Examination of a coordinator before it starts, and when something does not work."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster.texts import command_line, counted, some_of
from fedcluster_app.coordinator import lifecycle
from fedcluster_app.coordinator.certificates import accepted_keys
from fedcluster_app.coordinator.door import Door, raise_descriptors
from fedcluster_app.coordinator.folder import FIRST_ROWS, Federation, first_rows
from fedcluster_app.coordinator.operators import TOKEN, operator_of, operators, operators_log
from fedcluster_app.coordinator.runs import State, runs
from fedcluster_app.coordinator.service import listening
from fedcluster_app.coordinator.service_client import Coordinator
from fedcluster_app.trust import findings
from fedcluster_app.trust.audit_log import verify
from fedcluster_app.trust.findings import DOUBTFUL, GOOD, WRONG, Finding
from fedcluster_app.trust.identity import Address
from fedcluster_app.trust.owned_files import check_writable, has_run, is_running


def examined(
    folder: Path,
    transports: Sequence[str] = (),
    check_transport: Callable[[Federation], object] = bool,
) -> Iterator[Finding]:
    """Yield the findings about a coordinator, in the order in which it needs what is examined.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    transports : sequence of str
        Packages of transports, whose versions are told if they are installed.
    check_transport : callable taking a Federation
        Raises an error if the transport would refuse to start.
    """
    yield findings.versions([*findings.PACKAGES, *transports])
    try:
        federation = Federation.load(folder)
    except InputError as error:
        yield Finding("folder", WRONG, str(error))
        return
    parts = {"folder": _folder, "certificate": _certificate, "keys": _keys}
    parts |= {"operators": _operators, "log": _log, "rows": _rows, "runs": _runs}
    parts |= {"service": _service, "transport": partial(_transport, check_transport)}
    for what, examine in parts.items():
        yield findings.looked_at(what, partial(examine, federation))
    yield _program(federation)
    yield findings.looked_at("descriptors", _descriptors)
    if (coordinator := Coordinator.at(federation.folder)).answers():
        yield findings.looked_at("sites", partial(_sites, coordinator))
    yield findings.modes(federation.folder)
    yield findings.disk(federation.folder)
    yield _growth(federation)


def _folder(federation: Federation) -> tuple[str, str]:
    check_writable(federation.folder)
    return GOOD, f"{counted(len(federation.sites), 'site')}, at {federation.address}"


def _certificate(federation: Federation) -> tuple[str, str]:
    lifecycle.check_valid(federation)
    if notice := lifecycle.expiry_notice(federation):
        return DOUBTFUL, notice
    end = min(map(lifecycle.certificate_end, lifecycle.own_certificates(federation)))
    return GOOD, f"valid until {end:%Y-%m-%d}"


def _keys(federation: Federation) -> tuple[str, str]:
    """Return whether each site has a key by which it is let in."""
    keys = accepted_keys(federation.folder, federation.sites)
    if federation.has_flare:
        return GOOD, "sites have kits of FLARE"
    if without := [site for site, own in keys.items() if not own]:
        return DOUBTFUL, f"{', '.join(without)}: not let in before rotate-key, or remove-site"
    return GOOD, "each site has one"


def _operators(federation: Federation) -> tuple[str, str]:
    if not (n := len(operators(federation.folder))):
        return DOUBTFUL, "none: nobody can start runs"
    path = federation.file(TOKEN)
    own = path.read_text("utf-8", errors="replace").strip() if path.exists() else ""
    if path.exists() and operator_of(federation.folder, own) is None:
        how = command_line("federation", "operator", federation.folder, "NAME")
        return DOUBTFUL, f"{path} is no operator's token: put back a copy, or {how} makes another"
    return GOOD, counted(n, "operator")


def _log(federation: Federation) -> tuple[str, str]:
    log = operators_log(federation.folder)
    if not (log.path.exists() or log.path.with_suffix(".head").exists()):
        lost = has_run(federation.folder)
        return (DOUBTFUL, f"{log.path} is gone: put back a copy") if lost else (GOOD, "not begun")
    end, _ = verify(log.path)
    return GOOD, f"{end.line:,} lines are in order; the last has the hash {end.hash[:16]}"


def _rows(federation: Federation) -> tuple[str, str]:
    """Return which sites have told of no row when they were asked first."""
    told = first_rows(federation.file(FIRST_ROWS))
    if without := [site for site in federation.sites if told.get(site) == 0]:
        return DOUBTFUL, f"{some_of(without)} told of no row: see fedcluster site doctor there"
    return GOOD, f"told by {counted(len(told), 'site')}" if told else "not told yet"


def _transport(check: Callable[[Federation], object], federation: Federation) -> tuple[str, str]:
    """Return whether the transport's files are in order and its port is free, or both in use."""
    if not is_running(federation.folder):
        check(federation)
    return GOOD, f"{'FLARE' if federation.has_flare else 'Flower'}'s files and port are in order"


def _service(federation: Federation) -> tuple[str, str]:
    """Return whether operators can be listened to."""
    if not is_running(federation.folder):
        listening(federation).close()
    return GOOD, f"operators are listened to at {federation.service}"


def _descriptors() -> tuple[str, str]:
    """Return whether as many connections are allowed here as a coordinator accepts."""
    allowed, most = raise_descriptors(), Door.most + Door.kept
    said = f"{allowed:,} files and connections are allowed here"
    advice = f"{said}, of {most:,}: raise LimitNOFILE of its unit, or ulimit -Hn"
    return (GOOD, said) if allowed >= most else (DOUBTFUL, advice)


def _growth(federation: Federation) -> Finding:
    """Return how large the folder is, of which records of runs can be removed."""
    sizes = Counter[str]()
    for path in federation.folder.rglob("*"):
        with suppress(OSError):  # it has just been removed
            sizes[path.relative_to(federation.folder).parts[0]] += path.lstat().st_size
    said = ", ".join(f"{n / 1e6:,.1f} MB in {name}" for name, n in sizes.most_common(3))
    if sizes.total() < shutil.disk_usage(federation.folder).free:
        return Finding("growth", GOOD, said)
    how = command_line("federation", "prune", federation.folder)
    return Finding("growth", DOUBTFUL, f"{said}, more than is free: {how} removes records of runs")


def _program(federation: Federation) -> Finding:
    """Return whether the coordinator runs, and sites could reach it from this machine."""
    start = command_line("federation", "start", federation.folder)
    if is_running(federation.folder):
        flare = federation.file(lifecycle.FLARE_AUTHORITY)  # who vouches for FLARE's server
        authority = flare if federation.has_flare else federation.authority
        return findings.reached(Address.read(federation.place.local), authority, federation.host)
    return Finding("coordinator", DOUBTFUL, f"is not seen to run here: {start}")


def _sites(coordinator: Coordinator) -> tuple[str, str]:
    """Return which sites are not connected."""
    sites = coordinator.get("/sites")["sites"]
    away = [name for name, site in sites.items() if not site["connected"]]
    return (DOUBTFUL, f"not connected: {some_of(away)}") if away else (GOOD, "all are connected")


def _runs(federation: Federation) -> tuple[str, str]:
    """Return how many runs wait, and which were broken off."""
    known = runs(federation)
    broken = [run.name for run in known if run.state == State.INTERRUPTED]
    if broken:
        how = command_line("federation", "run", federation.folder, "resume", broken[-1])
        return DOUBTFUL, f"{len(broken)} interrupted: {how}"
    waiting = sum(run.state == State.QUEUED for run in known)
    return GOOD, f"{len(known)}, of which {waiting} wait"
