"""A site that rereads its file and rows while it is connected, when its owner requests it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock

from fedcluster.core.files import atomic_write
from fedcluster.errors import InputError
from fedcluster_app.coordinator.certificates import NEXT_KEY
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, check_kept, site_log, site_responder
from fedcluster_app.site.process import MEGABYTE
from fedcluster_app.transports.flare.locks import check_locks, place_of
from fedcluster_app.trust.identity import IDENTITY, PEERS, check_key
from fedcluster_app.trust.owned_files import check_private, check_writable
from fedcluster_app.trust.site_state import STATE_FILE, state_folder
from fedcluster_app.wire.responder import Request

MARK = "reload"
"""The file, in the site's folder of its state, whose change requests that."""

RELOADED = "the site was reloaded"
"""Event of the log: the site file has changed, or the rows were read again."""

FIXED = ("coordinator", "certificate", "key")
"""Settings of a connection, which only a restart can change."""


class ReloadingSite:
    """Responder of a site that follows the latest version of its file.

    `reload` requests that the file and the rows are read again before the next run. If the new file
    is invalid, the old one stays. A question of an earlier run that is being answered then is
    refused.

    Parameters
    ----------
    path : Path
        The site file.
    say : callable taking a str
        Called with one line for each event.

    Raises
    ------
    InputError
        As in `site_responder`, for the present file.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path, self._say, self._look = path, say, Lock()
        self._mark, self._run = _mark(path), ""
        self.site = SiteFile.load(path).for_network()
        self.membership = Membership.from_site_file(self.site)
        self._turns = site_responder(self.site, self.membership, say)

    def reply(self, content: bytes) -> bytes:
        """Return the reply to a request; the first one of a run may read a changed site file."""
        with self._look:
            request = Request.read(content, self.site.cost.message_mb * MEGABYTE)
            run = self._run if request.refused else str(request.header.get("run"))
            if run != self._run and (mark := _mark(self._path)) != self._mark:
                self._mark = mark
                self._read_anew()
            self._run = run
            turns = self._turns
        return turns.respond(request)

    def end(self, why: str) -> None:
        """End the work on a question, and the process that holds the rows."""
        self._turns.end(why)

    def _read_anew(self) -> None:
        try:
            site, membership = reloaded(self._path, self.site, self.membership)
            turns = site_responder(site, membership, self._say)
        except InputError as error:
            self._say(f"site {self.site.name}: not reloaded, goes on as before: {error}")
            return
        self._turns.end(RELOADED)
        self.site, self.membership, self._turns = site, membership, turns
        digest = sha256(self._path.read_bytes()).hexdigest()
        site_log(site, membership).append(lambda _head: {"event": RELOADED, "site_file": digest})
        self._say(f"site {site.name}: its file and its rows are read anew")


def check_start(path: Path) -> SiteFile:
    """Return a site file; raise an error if the site's program would refuse to start.

    Raises
    ------
    InputError
        With advice.
    """
    if (kit := path.absolute().parent / "flare").is_dir():
        check_locks(kit)
        if (place := place_of(kit, "site")) != path.absolute():
            raise InputError(f"{path}: with a kit of FLARE, the site file is {place}")
    site = SiteFile.load(path).for_network()
    membership = Membership.from_site_file(site)
    check_files(path, membership)
    check_kept(site, membership)
    return site


def check_files(path: Path, membership: Membership) -> None:
    """Raise an error for files of a site that others may change, or read if they are secret.

    Raises
    ------
    InputError
        With advice.
    """
    folder = path.absolute().parent
    check_writable(folder)
    state, named = state_folder(folder), filter(None, (membership.certificate, PEERS))
    own = (state / name for name in ("", "coordinator.pub", "flower", STATE_FILE))
    keys = (state / name for name in (NEXT_KEY, "permit.key", IDENTITY))
    key = folder / (membership.key or "key")
    check_private([folder, path, *map(folder.joinpath, named), *own], secret=[key, *keys])
    check_key(key)


def reloaded(path: Path, before: SiteFile, membership: Membership) -> tuple[SiteFile, Membership]:
    """Return the present site file.

    Raises
    ------
    InputError
        If it is invalid, or names another site or coordinator than the present connection.
    """
    check_private([path.absolute().parent, path])
    site = SiteFile.load(path).for_network()
    now = Membership.from_site_file(site)
    other = [key for key in FIXED if getattr(now, key) != getattr(membership, key)]
    if site.name != before.name or other:
        what = other[0] if site.name == before.name else "name"
        raise InputError(
            f"{path}: {what} has changed: end fedcluster site start, and start it again"
        )
    return site, now


def reload(path: Path) -> SiteFile:
    """Ask the program of a site to read its file and rows again; return the checked file.

    Raises
    ------
    InputError
        As `check_start`; then nothing is requested.
    """
    site = check_start(path)
    with atomic_write(site.state_folder / MARK) as temporary:
        temporary.write_text(f"{time.time_ns()}\n", encoding="ascii")
    return site


def _mark(path: Path) -> str:
    with suppress(OSError):
        return (state_folder(path.absolute().parent) / MARK).read_text("ascii", errors="replace")
    return ""
