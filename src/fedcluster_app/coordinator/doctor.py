"""Examination of a coordinator before it starts, and when something does not work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster.texts import command_line, counted, some_of
from fedcluster_app.coordinator.certificates import accepted_keys
from fedcluster_app.coordinator.folder import Federation
from fedcluster_app.coordinator.lifecycle import (
    FLARE_AUTHORITY,
    certificate_end,
    expiry_notice,
    own_certificates,
)
from fedcluster_app.coordinator.operators import operators, operators_log
from fedcluster_app.coordinator.runs import State, runs
from fedcluster_app.coordinator.service_client import Coordinator
from fedcluster_app.trust.audit_log import verify
from fedcluster_app.trust.findings import (
    DOUBTFUL,
    GOOD,
    PACKAGES,
    WRONG,
    Finding,
    disk,
    looked_at,
    modes,
    reached,
    versions,
)
from fedcluster_app.trust.identity import Address
from fedcluster_app.trust.owned_files import is_running


def examined(folder: Path, transports: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield the findings about a coordinator, in the order in which it needs what is examined.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    transports : sequence of str
        Packages of transports, whose versions are told if they are installed.
    """
    yield versions([*PACKAGES, *transports])
    try:
        federation = Federation.load(folder)
    except InputError as error:
        yield Finding("folder", WRONG, str(error))
        return
    n = counted(len(federation.sites), "site")
    yield Finding("folder", GOOD, f"{n}, at {federation.address}")
    parts = {"certificate": _certificate, "keys": _keys, "operators": _operators, "log": _log}
    for what, examine in {**parts, "runs": _runs}.items():
        yield looked_at(what, partial(examine, federation))
    yield _program(federation)
    if (coordinator := Coordinator.at(federation.folder)).answers():
        yield looked_at("sites", partial(_sites, coordinator))
    yield modes(federation.folder)
    yield disk(federation.folder)


def _certificate(federation: Federation) -> tuple[str, str]:
    if federation.insecure:
        return DOUBTFUL, "none: nothing is encrypted"
    end = min(map(certificate_end, own_certificates(federation)))
    if notice := expiry_notice(federation):
        return WRONG if end < datetime.now(UTC) else DOUBTFUL, notice
    return GOOD, f"valid until {end:%Y-%m-%d}"


def _keys(federation: Federation) -> tuple[str, str]:
    """Return whether each site has a key by which it is let in."""
    if federation.insecure or federation.has_flare:
        return GOOD, "sites have kits of FLARE" if federation.has_flare else "sites need none"
    keys = accepted_keys(federation.folder, federation.sites)
    if without := [site for site, own in keys.items() if not own]:
        return DOUBTFUL, f"{', '.join(without)}: not let in before rotate-key, or remove-site"
    return GOOD, "each site has one"


def _operators(federation: Federation) -> tuple[str, str]:
    n = len(operators(federation.folder))
    return (GOOD, counted(n, "operator")) if n else (DOUBTFUL, "none: nobody can start runs")


def _log(federation: Federation) -> tuple[str, str]:
    log = operators_log(federation.folder)
    if not log.path.exists():
        return GOOD, "not begun"
    end, _ = verify(log.path)
    return GOOD, f"{end.line:,} lines are in order; the last has the hash {end.hash[:16]}"


def _program(federation: Federation) -> Finding:
    """Return whether the coordinator runs, and sites could reach it from this machine."""
    start = command_line("federation", "start", federation.folder)
    if is_running(federation.folder):
        flare = federation.file(FLARE_AUTHORITY)  # who vouches for FLARE's server
        authority = flare if federation.has_flare else federation.authority
        return reached(Address.read(federation.local_address), authority, federation.host)
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
