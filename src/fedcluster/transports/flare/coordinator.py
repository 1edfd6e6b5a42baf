"""The coordinator's own programs: they hand runs to FLARE's server, as one who may lead."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from socket import create_connection
from tempfile import TemporaryDirectory
from typing import Any

from nvflare.fuel.flare_api.api_spec import JobNotFound, NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fedcluster.coordinator.folder import Federation
from fedcluster.coordinator.renewal import check_valid
from fedcluster.errors import InputError, SiteError
from fedcluster.io.records import load_record
from fedcluster.transports.flare.locks import write_flare_job

PATIENCE = 20.0
"""Seconds that FLARE's server may take to let us in."""

JOB_ID = "flare-job"
"""File in the folder of a run that names the last job of FLARE that carried it out."""


@contextmanager
def session(federation: Federation) -> Iterator[Session]:
    """Yield a session of who hands in runs.

    Raises
    ------
    InputError
        If there is no such kit, its certificate has ended, or the server does not let us in.
    """
    kit = federation.file("flare", "lead")
    try:
        about = json.loads((kit / "startup" / "fed_admin.json").read_text("utf-8"))["admin"]
        name, place = str(about["username"]), (str(about["host"]), int(about["port"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{kit} is no kit of one who may hand in runs; fedcluster flare kit makes it"
        ) from error
    check_valid(federation)
    logging.getLogger("nvflare").setLevel(logging.CRITICAL)  # we say it in our own words
    try:
        create_connection(place, PATIENCE).close()  # FLARE itself tries for long where nobody is
        with redirect_stdout(StringIO()):  # it prints that it connects
            opened = new_secure_session(name, str(kit), timeout=PATIENCE)
    except Exception as error:
        raise InputError(
            f"FLARE's server at {federation.address} does not answer ({type(error).__name__}); "
            f"start it with fedcluster flare start {federation.file('flare', 'server')}"
        ) from error
    try:
        yield opened
    finally:
        opened.close()


@dataclass(frozen=True, slots=True)
class FlareCarrier:
    """Carrier of the runs of a federation by FLARE's server.

    Parameters
    ----------
    federation : Federation
        The federation.
    """

    federation: Federation

    def ready(self) -> Mapping[str, Any]:
        """Return what ``job.json`` must say for FLARE.

        Raises
        ------
        InputError
            If the server does not answer.
        """
        with session(self.federation):
            return {"transport": "flare"}

    def hand_over(self, folder: Path) -> None:
        """Hand FLARE the run whose job is in a folder.

        Raises
        ------
        InputError
            If the server does not answer, or does not take it.
        """
        content = load_record(folder / "job.json", dict[str, Any])
        with session(self.federation) as opened, TemporaryDirectory() as name:
            sites, quorum = content["sites"], content["quorum"]
            job = write_flare_job(Path(name) / "job", [folder.name], sites, quorum)
            try:
                known = opened.submit_job(str(job))
            except Exception as error:
                why = " ".join(str(error).split())[:300]
                raise InputError(f"FLARE did not take the run: {why}") from error
        (folder / JOB_ID).write_text(str(known), encoding="utf-8")

    def stop(self, folder: Path) -> None:
        """Let FLARE abort a run, if there is anybody to abort it."""
        with suppress(Exception), session(self.federation) as opened:
            opened.abort_job((folder / JOB_ID).read_text("utf-8"))

    def end(self, folder: Path) -> str | None:
        """Return why FLARE has ended a run, None while it goes on.

        Raises
        ------
        SiteError
            If FLARE's server does not answer.
        """
        try:
            with session(self.federation) as opened:
                about = opened.get_job_meta((folder / JOB_ID).read_text("utf-8"))
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
