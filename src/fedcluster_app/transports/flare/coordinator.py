"""Coordinator over FLARE: startup kits, FLARE's server, and a session that submits runs to it.

Kits are created by FLARE's provisioning, moved to the folders of their sites, and locked.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path
from socket import create_connection
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, TypeVar

from nvflare.fuel.flare_api.api_spec import InvalidJobDefinition, JobNotFound
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session
from nvflare.fuel.hci.client import api as console

from fedcluster.errors import InputError, SiteError
from fedcluster.texts import command_line
from fedcluster_app.coordinator import certificates as pki
from fedcluster_app.coordinator import lifecycle
from fedcluster_app.coordinator.folder import CANCEL, Federation, changing, readme, site_pages
from fedcluster_app.coordinator.run_job import lack
from fedcluster_app.records import load_record, record_or
from fedcluster_app.transports.flare import locks
from fedcluster_app.transports.flare._server import blamed
from fedcluster_app.trust import owned_files
from fedcluster_app.trust.permits import public_text

SERVER = "coordinator"
"""FLARE's name of the coordinator."""

LOCAL = "localhost"
"""The same for local use only: FLARE listens at the address of its name."""

LEAD = "lead@example.org"
"""FLARE's name of the person who submits runs."""

ORGANISATION = "fedcluster"
PROVISION = ("-m", "nvflare.cli", "provision", "--force")
STATE = "state"
MADE = Path("kits", "fedcluster")
"""Folder in which FLARE creates kits, with its state beside them."""

AUTHORITY = ("root_cert", "root_pri_key")
"""Parts of FLARE's state that are its authority; the rest are certificates and keys that it
created."""

PARTS = "nvflare.lighter.impl"


def project(federation: Federation) -> dict[str, Any]:
    """Return the project file from which FLARE provisions the kits of a federation."""
    people = [{"name": LEAD, "type": "admin", "org": ORGANISATION, "role": "lead"}]
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
        {"path": f"{PARTS}.cert.CertBuilder", "args": {"root_valid_days": pki.AUTHORITY_DAYS}},
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


@owned_files.private_files()
def make_kits(federation: Federation) -> None:
    """Write the kits of the coordinator, of each site and of the person who submits runs.

    They are written to ``flare/server`` and ``flare/lead`` in the federation's folder and to
    ``flare`` in each site's folder. The key of FLARE's authority stays in ``flare/state``. The
    README in each folder then explains how to start FLARE's programs.

    Raises
    ------
    InputError
        If there are kits already, or FLARE fails to create them.
    """
    _check_new(federation)
    renew_kits(federation.folder, new_authority=True, first=True)
    locks.harden(federation.file("flare", "server"))
    pages = {"README.md": readme(federation)}
    for site in federation.sites:
        pages[f"sites/{site}/README.md"] = site_pages(federation, site)["README.md"]
    owned_files.commit(federation.folder, pages)


def add_kits(federation: Federation, names: Sequence[str]) -> None:
    """Create the kits of added sites; those of the others are unchanged.

    Raises
    ------
    InputError
        If a site has a kit already, FLARE's authority is missing, or FLARE fails to create them.
    """
    _check_none(federation, names)
    renew_kits(federation.folder, names, first=True)


def renew_kits(
    folder: Path,
    sites: Collection[str] | None = None,
    *,
    new_authority: bool = False,
    first: bool = False,
) -> None:
    """Create certificates and keys for kits; earlier ones count until the new ones are used.

    They replace those in ``startup`` of each kit, all or none; the rest of a kit stays. One that
    is not here is written whole.

    Parameters
    ----------
    folder : Path
        The folder of a federation that has kits.
    sites : collection of str, optional
        The sites to create them for; by default all but those whose keys were revoked, and the
        coordinator.
    new_authority : bool, default=False
        Whether to create a new authority, which invalidates all old certificates at once.
    first : bool, default=False
        Whether the sites have no kits yet.

    Raises
    ------
    InputError
        If FLARE's authority is missing, there is no such site, or FLARE fails to create them.
    """
    with changing(folder) as federation, TemporaryDirectory(prefix=".flare-", dir=folder) as name:
        work = Path(name)
        for site in sites or ():
            lifecycle.check_member(federation, site)
        if not new_authority:
            check_authority(federation)
            _keep_authority(federation.file("flare", STATE), work / MADE / STATE, sites)
        kits = _provisioned(work, federation)
        files, places = _files_of(kits.parent / STATE, f"flare/{STATE}"), dict[str, str]()
        if sites is None:
            known = pki.accepted_keys(folder, federation.sites).items()
            sites = [site for site, own in known if own]
            places |= {server_name(federation): "flare/server", LEAD: "flare/lead"}
        for site in sites:
            locks.harden(kits / site)
            places[site] = f"sites/{site}/flare"
        for name, place in places.items():
            part = "startup" if federation.file(place).is_dir() else "."
            files |= _files_of(kits / name / part, f"{place}/{part}")
        keys = {site: _key_of(kits / site) for site in sites}
        if first:
            files |= {pki.current(site): key for site, key in keys.items()}
            owned_files.commit(folder, files)
            return
        placed, gone = lifecycle.place_keys(federation, keys, at_once=new_authority)
        owned_files.commit(folder, files | placed, gone)
        for site in sites:
            lifecycle.note_keys(federation, "key rotated", site)


def _key_of(kit: Path) -> bytes:
    """Return the public key of a site's kit, as in ``keys``."""
    [own, *_] = lifecycle.certificates(kit / "startup" / "client.crt")
    return public_text(own.public_key()).encode()  # type: ignore[arg-type]


def _keep_authority(state: Path, into: Path, renewed: Collection[str] | None) -> None:
    """Copy FLARE's state without what its authority has signed for these parts, or for any."""
    known = json.loads((state / "cert.json").read_text("utf-8"))
    into.mkdir(parents=True)
    kept = {
        name: known[name]
        for name in known
        if name in AUTHORITY or (renewed is not None and name not in renewed)
    }
    (into / "cert.json").write_text(json.dumps(kept), encoding="utf-8")


def _files_of(folder: Path, place: str) -> dict[str, bytes]:
    """Return the contents of a folder's files by their new relative paths."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(Path(place, path.relative_to(folder))): path.read_bytes() for path in files}


def check_authority(federation: Federation) -> None:
    """Raise an error if the key of FLARE's authority is missing, without which there are no kits.

    Raises
    ------
    InputError
        With where it should be.
    """
    home = federation.file("flare", STATE)
    if not (home / "cert.json").is_file():
        raise InputError(f"the key of FLARE's authority is not in {home}: put it there")


def _check_new(federation: Federation) -> None:
    """Raise an error if there are kits already, or FLARE cannot carry the runs."""
    home = federation.file("flare")
    if home.exists():
        raise InputError(f"{home} exists: the kits exist already; remove it to make new ones")
    _check_none(federation, federation.sites)


def _check_none(federation: Federation, names: Sequence[str]) -> None:
    """Raise an error for sites that have a kit, or a name of FLARE's own."""
    if taken := {"server", SERVER, LOCAL}.intersection(names):
        raise InputError(f"FLARE itself has the name {taken.pop()!r}: choose another for the site")
    for kit in (federation.file("sites", name, "flare") for name in names):
        if kit.exists():
            raise InputError(f"{kit} exists: the kits exist already; remove it to make new ones")


def _provisioned(work: Path, federation: Federation) -> Path:
    """Let FLARE create all kits; return the folder that has them, beside its state."""
    file = work / "project.yml"  # JSON is valid YAML
    file.write_text(json.dumps(project(federation)), encoding="utf-8")
    _provision(work, file)
    [kits] = (work / MADE).glob("prod_*")
    return kits


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


SITES_LOOK = 1.0
"""Seconds between two checks for sites that are not connected."""

JOB_ID = "flare-job"
"""File in the folder of a run with the FLARE job that carried it out last."""

PROGRAM = """
import runpy, sys
from fedcluster_app.transports.flare._server import listen_behind_door
from fedcluster_app.trust.owned_files import end_with
end_with(int(sys.argv.pop(1)))
listen_behind_door()
runpy.run_module("nvflare.private.fed.app.server.server_train", run_name="__main__", alter_sys=True)
"""
"""A program that runs FLARE's server and ends with the process of its first argument."""

T = TypeVar("T")

# What FLARE prints, tracebacks included, is not for the coordinator's log
console.traceback = SimpleNamespace(print_exc=bool)
console._print_hci_message = bool  # noqa: SLF001


@contextmanager
def serve(federation: Federation) -> Iterator[tuple[FlareCarrier, owned_files.ManagedProcess]]:
    """Run FLARE's server for a federation within the block.

    Raises
    ------
    InputError
        If it does not start.
    """
    command = _command(federation.file("flare", "server"))
    log = federation.file("logs", "flare-server.log")
    env = owned_files.environment("NVFL") | {"MALLOC_ARENA_MAX": "4"}  # as FLARE's script does
    with (
        owned_files.ManagedProcess.running("FLARE's server", command, log, env) as server,
        closing(FlareCarrier(federation)) as carrier,
    ):
        server.wait_for_start(carrier.is_started)
        yield carrier, server


def _listens(federation: Federation) -> str:
    return "127.0.0.1" if server_name(federation) == LOCAL else "0.0.0.0"


def check_state(federation: Federation, orphan: float = 0.0) -> None:
    """Raise an error if FLARE's server would not start, or not do what ``federation.toml`` says.

    A program that was left over may listen at its port for some seconds, ``orphan``.

    Raises
    ------
    InputError
        With advice.
    """
    kit, here = federation.file("flare", "server"), _listens(federation)
    locks.check_locks(kit)
    toml = federation.file("federation.toml")
    if federation.bind not in {None, here}:
        raise InputError(
            f"bind = {federation.bind!r} of {toml}: FLARE listens at {here} only; remove it, and "
            "let a firewall close the port elsewhere"
        )
    startup = federation.file("flare", "lead", "startup", "fed_admin.json")
    about = load_record(startup, dict[str, Any]).get("admin", {})
    if [about.get("host"), about.get("port")] != [federation.host, federation.port]:
        how = command_line("federation", "certificate", federation.folder)
        raise InputError(
            f"the kits of FLARE are for {about.get('host')}:{about.get('port')}, and {toml} says "
            f"{federation.address}: {how} makes others, which each site needs"
        )
    owned_files.wait_for_port(here, federation.port, orphan)


def _command(kit: Path) -> list[str]:
    """Return the command of a kit's ``startup/sub_start.sh``, in a program that ends with ours."""
    settings = "secure_train=true", f"org={ORGANISATION}", "config_folder=config"
    arguments = ["-m", str(kit), "-s", "fed_server.json", "--set", *settings]
    return [sys.executable, "-P", "-u", "-c", PROGRAM, str(os.getpid()), *arguments]


def open_session(federation: Federation, patience: float = 20.0) -> Session:
    """Return a session of the person who submits runs.

    ``patience``: seconds that FLARE's server may take to admit us, and to answer.

    Raises
    ------
    SiteError
        If the server does not admit us.
    """
    # the error is reported by fedcluster instead
    logging.getLogger("nvflare").setLevel(logging.CRITICAL)
    try:
        # fail early: FLARE retries for a long time
        create_connection((federation.host, federation.port), patience).close()
        kit = str(federation.file("flare", "lead"))
        return new_secure_session(LEAD, kit, timeout=patience, command_timeout=patience)
    except Exception as error:
        raise SiteError(
            f"FLARE's server at {federation.address} does not answer ({type(error).__name__})"
        ) from error


@dataclass(slots=True)
class FlareCarrier:
    """Carrier that submits the runs of a federation to FLARE's server, over one session.

    Parameters
    ----------
    federation : Federation
        The federation.
    """

    federation: Federation
    _session: Session | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)
    scheduled = 30.0
    """Seconds within which FLARE begins a job whose sites are connected, however short the
    deadline."""
    kept = 10  # number of ended jobs whose logs FLARE keeps

    def is_started(self) -> bool:
        """Return whether FLARE's server answers."""
        with suppress(SiteError):
            self.sites_online()
            return True
        return False

    def close(self) -> None:
        """Close the session, without waiting for the server's answer."""
        with suppress(Exception):
            if self._session is not None:
                self._session.api.close()
        self._session = None

    def _ask(self, question: Callable[[Session], T]) -> T:
        """Return the answer to a question; a session that FLARE has lost is opened again.

        Raises
        ------
        SiteError
            If FLARE's server does not answer.
        """
        with self._turn:
            is_new = self._session is None
            while True:
                self._session = self._session or open_session(self.federation)
                try:
                    return question(self._session)
                except (InvalidJobDefinition, JobNotFound):
                    raise
                except Exception as error:
                    self.close()
                    if is_new:
                        why = f"FLARE's server does not answer ({type(error).__name__})"
                        raise SiteError(why) from error
                    is_new = True

    def admit(
        self, keys: Mapping[str, Sequence[pki.PublicKey]], leaving: Mapping[str, str]
    ) -> Collection[str]:
        """Return the keys that sites have used; its server looks itself who is let in."""
        del keys, leaving
        return record_or(self.federation.file("flare", "server", locks.USED), dict[str, str], {})

    def hand_over(self, folder: Path) -> None:
        """Submit the run whose job is in a folder to FLARE.

        Raises
        ------
        InputError
            If the server does not accept it.
        SiteError
            If the server does not answer, or too few sites are connected at the deadline; FLARE
            itself would wait for longer.
        """
        content = load_record(folder / "job.json", dict[str, Any])
        self._await_sites(content, folder / CANCEL)
        with TemporaryDirectory() as name:
            terms = content["sites"], content["quorum"]
            job = locks.write_flare_job(Path(name) / "job", folder.name, *terms)
            try:
                known = self._ask(lambda opened: opened.submit_job(str(job)))
            except InvalidJobDefinition as error:
                why = " ".join(str(error).split())[:300]
                raise InputError(f"FLARE did not take the run: {why}") from error
        (folder / JOB_ID).write_text(str(known), encoding="utf-8")
        with suppress(SiteError):
            self._forget_jobs()

    def _forget_jobs(self) -> None:
        """Let FLARE's server delete ended jobs, except for the newest."""
        jobs = self._ask(lambda opened: opened.list_jobs())
        jobs = [job for job in jobs if str(job.get("status")).startswith("FINISHED")]
        for job in sorted(jobs, key=lambda job: str(job.get("submit_time")))[: -self.kept]:
            self._ask(methodcaller("delete_job", job["job_id"]))

    def _await_sites(self, content: Mapping[str, Any], cancel: Path) -> None:
        """Wait until enough sites of a run are connected, until its deadline or cancellation."""
        end = time.monotonic() + content["deadline"]
        while absent := lack(content, self.sites_online()):
            if time.monotonic() > end or cancel.exists():
                raise SiteError(absent)
            time.sleep(SITES_LOOK)

    def stop(self, folder: Path) -> None:
        """Let FLARE abort a run, if it is active."""
        with suppress(Exception):
            job = (folder / JOB_ID).read_text("utf-8")
            self._ask(lambda opened: opened.abort_job(job))

    def end(self, folder: Path) -> str | None:
        """Return why FLARE has ended a run, None if it has not.

        A run that FLARE does not begin, as sites have gone meanwhile, is aborted.

        Raises
        ------
        SiteError
            If FLARE's server does not answer.
        """
        content, path = load_record(folder / "job.json", dict[str, Any]), folder / JOB_ID
        job, waited = path.read_text("utf-8"), time.time() - path.stat().st_mtime
        if why := blamed(self.federation.file("flare", "server", "log.txt"), job):
            return why
        try:
            status = str(self._ask(lambda opened: opened.get_job_meta(job)).get("status", ""))
        except JobNotFound:
            return "FLARE does not know it any more"
        late = status == "SUBMITTED" and waited > max(self.scheduled, content["deadline"])
        if late and (absent := lack(content, self.sites_online())):
            self.stop(folder)
            return absent
        return f"FLARE says {status}" if status.startswith("FINISHED") else None

    def sites_online(self) -> list[str]:
        """Return the names of the sites that are connected.

        Raises
        ------
        SiteError
            If FLARE's server does not answer.
        """
        system = self._ask(lambda opened: opened.get_system_info())
        # each look for sites adds to it
        owned_files.shorten_log(self.federation.file("flare", "server", "audit.log"))
        return sorted(client.name for client in system.client_info)
