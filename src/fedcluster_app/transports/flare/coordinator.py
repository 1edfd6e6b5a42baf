"""Coordinator over FLARE: startup kits, and a session that submits runs to FLARE's server.

Kits are created by FLARE's provisioning, moved to the folders of their sites, and locked.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from socket import create_connection
from tempfile import TemporaryDirectory
from typing import Any

from nvflare.fuel.flare_api.api_spec import JobNotFound, NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fedcluster.errors import InputError, SiteError
from fedcluster.texts import command_line
from fedcluster_app.coordinator.certificates import AUTHORITY_DAYS
from fedcluster_app.coordinator.folder import CANCEL, Federation, changing, readme, site_pages
from fedcluster_app.coordinator.lifecycle import check_counts, check_valid, notice_of
from fedcluster_app.records import load_record
from fedcluster_app.transports.flare.locks import (
    check_locks,
    harden,
    kind_of,
    make_private,
    write_flare_job,
)
from fedcluster_app.trust.owned_files import commit, private_files

SERVER = "coordinator"
"""FLARE's name of the coordinator."""

LOCAL = "localhost"
"""The same for local use only: FLARE listens at the address of its name."""

LEAD = "lead@example.org"
"""FLARE's default name of the person who submits runs."""

ORGANISATION = "fedcluster"
PROVISION = ("-m", "nvflare.cli", "provision", "--force")
PROJECT, STATE = "project.yml", "state"
MADE = Path("kits", "fedcluster")
"""Folder in which FLARE creates kits, with its state beside them."""

AUTHORITY = ("root_cert", "root_pri_key")
"""Parts of FLARE's state that are its authority; the rest are certificates and keys that it
created."""

PARTS = "nvflare.lighter.impl"


def project(federation: Federation, lead: str) -> dict[str, Any]:
    """Return the project file from which FLARE provisions the kits of a federation."""
    people = [{"name": lead, "type": "admin", "org": ORGANISATION, "role": "lead"}]
    sites = [{"name": name, "type": "client", "org": ORGANISATION} for name in federation.sites]
    server = {
        "name": server_name(federation),
        "type": "server",
        "org": ORGANISATION,
        "default_host": federation.host,
        "fed_learn_port": federation.port,
    }
    builders: list[dict[str, Any]] = [
        {"path": f"{PARTS}.workspace.WorkspaceBuilder"},
        {"path": f"{PARTS}.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
        {"path": f"{PARTS}.cert.CertBuilder", "args": {"root_valid_days": AUTHORITY_DAYS}},
        {"path": f"{PARTS}.signature.SignatureBuilder"},
    ]
    return {
        "api_version": 3,
        "name": "fedcluster",
        "description": f"fedcluster at {federation.address}",
        "participants": [server, *sites, *people],
        "builders": builders,
    }


def server_name(federation: Federation) -> str:
    """Return the name of the server, which determines where FLARE listens."""
    return LOCAL if federation.host in {LOCAL, "127.0.0.1", "::1"} else SERVER


@private_files()
def make_kits(federation: Federation, lead: str = LEAD) -> None:
    """Write the kits of the coordinator, of each site and of the person who submits runs.

    They are written to ``flare/server`` and ``flare/lead`` in the federation's folder and to
    ``flare`` in each site's folder. The key of FLARE's authority stays in ``flare/state``. The
    README in each folder then explains how to start FLARE's programs.

    Raises
    ------
    InputError
        If there are kits already, or FLARE fails to create them.
    """
    home = federation.file("flare")
    _check_new(federation)
    with TemporaryDirectory(prefix=".flare-", dir=federation.folder) as name:
        work, new = Path(name), Path(name, "flare")
        kits = _provisioned(work, federation, lead)
        new.mkdir()
        shutil.move(kits.parent / STATE, new / STATE)
        shutil.move(work / PROJECT, new / PROJECT)
        shutil.move(kits / server_name(federation), new / "server")
        shutil.move(kits / lead, new / "lead")
        _hand_out(kits, federation, federation.sites)
        make_private(new)
        new.rename(home)
    harden(home / "server", "../..")
    federation.file("README.md").write_bytes(readme(federation))
    for site in federation.sites:
        text = site_pages(federation, site)["README.md"]
        federation.file("sites", site, "README.md").write_bytes(text)


@private_files()
def add_kits(federation: Federation, names: Sequence[str]) -> None:
    """Create the kits of added sites; those of the others are unchanged.

    Raises
    ------
    InputError
        If a site has a kit already, FLARE's authority is missing, or FLARE fails to create them.
    """
    home, lead = federation.file("flare"), lead_by_authority(federation)
    _check_none(federation, names)
    with TemporaryDirectory(prefix=".flare-", dir=federation.folder) as name:
        work = Path(name)
        shutil.copytree(home / STATE, work / MADE / STATE)
        kits = _provisioned(work, federation, lead)
        _hand_out(kits, federation, names)
        for file in sorted((kits.parent / STATE).iterdir()):
            file.replace(home / STATE / file.name)
        (work / PROJECT).replace(home / PROJECT)
        make_private(home / STATE)


def renew_kits(federation: Federation, *, new_authority: bool = False) -> None:
    """Create new certificates and keys for all kits.

    They replace those in ``startup`` of each kit, all or none; the rest of a kit stays. A site
    whose kit is no longer here gets a complete one. If the authority stays, certificates in use
    remain valid until they expire.

    Parameters
    ----------
    federation : Federation
        A federation that has kits.
    new_authority : bool, default=False
        Whether to create a new authority, which invalidates all old certificates.

    Raises
    ------
    InputError
        If FLARE's authority is missing, or FLARE fails to create them.
    """
    folder = federation.folder
    with changing(folder) as federation, TemporaryDirectory(prefix=".flare-", dir=folder) as name:
        work = Path(name)
        lead = lead_by_authority(federation)
        if not new_authority:
            _keep_authority(federation.file("flare", STATE), work / MADE / STATE)
        kits = _provisioned(work, federation, lead)
        files = _files_of(kits.parent / STATE, f"flare/{STATE}")
        for part, place in {server_name(federation): "flare/server", lead: "flare/lead"}.items():
            files |= _files_of(kits / part / "startup", f"{place}/startup")
        for site in federation.sites:
            harden(kits / site, "../site.toml")
            place = f"sites/{site}/flare"
            part = "startup" if federation.file(place).is_dir() else "."
            files |= _files_of(kits / site / part, f"{place}/{part}")
        commit(folder, files)


def _keep_authority(state: Path, into: Path) -> None:
    """Copy FLARE's state without anything that its authority has signed."""
    known = json.loads((state / "cert.json").read_text("utf-8"))
    into.mkdir(parents=True)
    kept = {name: known[name] for name in AUTHORITY}
    (into / "cert.json").write_text(json.dumps(kept), encoding="utf-8")


def _files_of(folder: Path, place: str) -> dict[str, bytes]:
    """Return the contents of a folder's files by their new relative paths."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(Path(place, path.relative_to(folder))): path.read_bytes() for path in files}


def lead_by_authority(federation: Federation) -> str:
    """Return the name of the person who submits runs, if further kits can be created.

    Raises
    ------
    InputError
        If the key of FLARE's authority is missing, or the project file cannot be read.
    """
    home = federation.file("flare")
    if not (home / STATE / "cert.json").is_file():
        raise InputError(f"the key of FLARE's authority is not in {home / STATE}: put it there")
    try:
        people = json.loads((home / PROJECT).read_text("utf-8"))["participants"]
        return str(next(each["name"] for each in people if each["type"] == "admin"))
    except (OSError, ValueError, LookupError, TypeError, StopIteration) as error:
        raise InputError(f"{home / PROJECT} cannot be read: {error!r}") from error


def _check_new(federation: Federation) -> None:
    """Raise an error if there are kits already, or FLARE cannot carry the runs."""
    home = federation.file("flare")
    if home.exists():
        raise InputError(f"{home} exists: the kits exist already; remove it to make new ones")
    if federation.insecure:
        raise InputError(f"{federation.folder} is insecure, and FLARE has no such mode")
    _check_none(federation, federation.sites)


def _check_none(federation: Federation, names: Sequence[str]) -> None:
    """Raise an error for sites that have a kit."""
    for kit in (federation.file("sites", name, "flare") for name in names):
        if kit.exists():
            raise InputError(f"{kit} exists: the kits exist already; remove it to make new ones")


def _provisioned(work: Path, federation: Federation, lead: str) -> Path:
    """Let FLARE create all kits; return the folder that has them, beside its state."""
    file = work / PROJECT  # JSON is valid YAML
    file.write_text(json.dumps(project(federation, lead), indent=2), encoding="utf-8")
    _provision(work, file)
    [kits] = (work / MADE).glob("prod_*")
    return kits


def _hand_out(kits: Path, federation: Federation, names: Sequence[str]) -> None:
    """Move the kits of sites into their folders, and lock them."""
    for site in names:
        kit = federation.file("sites", site, "flare")
        shutil.move(kits / site, kit)
        harden(kit, "../site.toml")


def _provision(work: Path, file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", *PROVISION, "-p", str(file), "-w", str(work / MADE.parent)],
        capture_output=True,
        text=True,
        cwd=work,
        env={**os.environ, "HOME": str(work)},  # keeps FLARE from writing to the user's home folder
    )
    if done.returncode or not list((work / MADE).glob("prod_*")):
        output = " ".join((done.stdout + done.stderr).split())[-300:]
        raise InputError(f"FLARE did not make the kits: {output}")


def kit_notice(kit: Path) -> str:
    """Return a line if the certificate of a site's or the server's kit expires soon.

    Raises
    ------
    InputError
        If it has expired, or cannot be read.
    """
    path = kit / "startup" / {"site": "client.crt", "server": "server.crt"}[kind_of(kit)]
    how = "fedcluster federation certificate, at the coordinator, makes another"
    check_counts(path, how)
    return notice_of(path, how)


def start_kit(kit: Path) -> None:
    """Replace this process by FLARE's program of a kit, after checking its locks.

    Raises
    ------
    InputError
        If a lock is missing.
    """
    check_locks(kit)
    script = kit.absolute() / "startup" / "sub_start.sh"
    os.umask(0o077)
    os.chdir(kit)
    os.execve("/bin/bash", ["bash", str(script), "--once"], environment())


def environment() -> dict[str, str]:
    """Return the environment of FLARE's programs, whose ``python3`` is this Python."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("NVFL")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**own, "PATH": path}


SITES_LOOK = 1.0
"""Seconds between two checks for sites that are not connected."""

JOB_ID = "flare-job"
"""File in the folder of a run with the FLARE job that carried it out last."""


@contextmanager
def session(federation: Federation, *, patience: float = 20.0) -> Iterator[Session]:
    """Yield a session of the person who submits runs.

    ``patience``: seconds that FLARE's server may take to admit us.

    Raises
    ------
    InputError
        If there is no such kit, its certificate has expired, or the server does not admit us.
    """
    kit = federation.file("flare", "lead")
    try:
        about = json.loads((kit / "startup" / "fed_admin.json").read_text("utf-8"))["admin"]
        name, place = str(about["username"]), (str(about["host"]), int(about["port"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{kit} is not the kit of a person who may submit runs; fedcluster flare kit makes one"
        ) from error
    check_valid(federation)
    # the error is reported by fedcluster instead
    logging.getLogger("nvflare").setLevel(logging.CRITICAL)
    try:
        create_connection(place, patience).close()  # fail early: FLARE retries for a long time
        with redirect_stdout(StringIO()):  # suppress FLARE's progress messages
            opened = new_secure_session(name, str(kit), timeout=patience)
    except Exception as error:
        raise InputError(
            f"FLARE's server at {federation.address} does not answer ({type(error).__name__}); "
            f"start it with {command_line('flare', 'start', federation.file('flare', 'server'))}"
        ) from error
    try:
        yield opened
    finally:
        opened.close()


def _lack(opened: Session, content: Mapping[str, Any]) -> str:
    """Return which sites of a run are not connected, nothing if enough are."""
    here = {client.name for client in opened.get_system_info().client_info}
    absent = sorted(set(content["sites"]) - here)
    enough = content["quorum"] or len(content["sites"])
    if len(content["sites"]) - len(absent) >= enough:
        return ""
    return f"not connected: {', '.join(absent)}; {enough} sites are needed"


def _await_sites(opened: Session, content: Mapping[str, Any], cancel: Path) -> None:
    """Wait until enough sites of a run are connected, until its deadline or its cancellation."""
    end = time.monotonic() + content["deadline"]
    while (lack := _lack(opened, content)) and time.monotonic() < end and not cancel.exists():
        time.sleep(SITES_LOOK)
    if lack:
        raise SiteError(lack)


@dataclass(frozen=True, slots=True)
class FlareCarrier:
    """Carrier that submits the runs of a federation to FLARE's server.

    Parameters
    ----------
    federation : Federation
        The federation.
    """

    federation: Federation
    scheduled = 30.0
    """Seconds within which FLARE begins a job whose sites are connected, however short the
    deadline."""

    def ready(self) -> Mapping[str, Any]:
        """Return FLARE's part of ``job.json``.

        Raises
        ------
        InputError
            If the server does not answer.
        """
        with session(self.federation):
            return {"transport": "flare"}

    def hand_over(self, folder: Path) -> None:
        """Submit the run whose job is in a folder to FLARE.

        Raises
        ------
        InputError
            If the server does not answer, or does not accept it.
        SiteError
            If too few sites are connected at the deadline; FLARE itself would wait for longer.
        """
        content = load_record(folder / "job.json", dict[str, Any])
        with session(self.federation) as opened, TemporaryDirectory() as name:
            _await_sites(opened, content, folder / CANCEL)
            sites, quorum = content["sites"], content["quorum"]
            job = write_flare_job(Path(name) / "job", [folder.name], sites, quorum)
            try:
                known = opened.submit_job(str(job))
            except Exception as error:
                why = " ".join(str(error).split())[:300]
                raise InputError(f"FLARE did not take the run: {why}") from error
        (folder / JOB_ID).write_text(str(known), encoding="utf-8")

    def stop(self, folder: Path) -> None:
        """Let FLARE abort a run, if it is active."""
        with suppress(Exception), session(self.federation) as opened:
            opened.abort_job((folder / JOB_ID).read_text("utf-8"))

    def end(self, folder: Path) -> str | None:
        """Return why FLARE has ended a run, None if it has not.

        A run that FLARE does not begin, as sites have gone meanwhile, is aborted.

        Raises
        ------
        SiteError
            If FLARE's server does not answer.
        """
        content, job = load_record(folder / "job.json", dict[str, Any]), folder / JOB_ID
        try:
            with session(self.federation) as opened:
                about = opened.get_job_meta(job.read_text("utf-8"))
                waited = time.time() - job.stat().st_mtime
                late = waited > max(self.scheduled, content["deadline"])
                if (
                    late
                    and about.get("status") == "SUBMITTED"
                    and (absent := _lack(opened, content))
                ):
                    opened.abort_job(job.read_text("utf-8"))
                    return absent
        except (InputError, NoConnection) as error:
            raise SiteError(f"the coordinator at {self.federation.address} has gone") from error
        except JobNotFound:
            return "FLARE does not know it any more"
        status = str(about.get("status", ""))
        return f"FLARE says {status}" if status.startswith("FINISHED") else None

    def sites_online(self) -> list[str]:
        """Return the names of the sites that are connected.

        Raises
        ------
        SiteError
            If FLARE's server does not answer.
        """
        try:
            with session(self.federation) as opened:
                return sorted(client.name for client in opened.get_system_info().client_info)
        except (InputError, NoConnection) as error:
            raise SiteError("FLARE's server does not answer") from error
