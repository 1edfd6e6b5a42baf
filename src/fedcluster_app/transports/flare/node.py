"""A site over FLARE, from its own point of view: the start of FLARE's client, and the answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster_app.coordinator.lifecycle import certificates, check_counts, notice_of
from fedcluster_app.site.file import SiteFile
from fedcluster_app.transports.flare.locks import place_of
from fedcluster_app.transports.reloading import ReloadingSite, check_start
from fedcluster_app.trust.owned_files import environment, private_files, running


def flare_responder(kit: Path, identity: str, say: Callable[[str], None]) -> ReloadingSite:
    """Return a responder for the site of a kit.

    Parameters
    ----------
    kit : Path
        The kit.
    identity : str
        FLARE's name of the site, from its certificate.
    say : callable taking a str
        Called with one line for each event.

    Raises
    ------
    InputError
        If the kit lacks a lock, the site file is invalid or belongs to another site, others may
        read its keys, or the rows cannot be read.
    """
    path = place_of(kit, "site")
    _check_name(check_start(path), identity)
    return ReloadingSite(path, say)


def _check_name(site: SiteFile, identity: str) -> None:
    if site.name != identity:
        raise InputError(
            f"{site.path} is of site {site.name!r}, and FLARE knows this one as {identity!r}"
        )


@private_files()
def take_part(
    path: Path,
    say: Callable[[str], None],
    prepare: Callable[[Callable[[str], None]], None],
) -> None:
    """Replace this process by FLARE's program of a site, whose kit is ``flare`` in its folder.

    It counts as the program of the site until it ends.

    Parameters
    ----------
    path : Path
        The site file.
    say : callable taking a str
        Called with one line for each event.
    prepare : callable
        Called with ``say`` after all checks.

    Raises
    ------
    InputError
        If the site file is invalid, the rows cannot be read, a lock is missing, or the kit belongs
        to another site or has expired.
    """
    site, folder = check_start(path), path.absolute().parent
    kit = folder / "flare"
    own = kit / "startup" / "client.crt"
    how = "fedcluster federation certificate, at the coordinator, makes another"
    check_counts(own, how)
    named = {each.rfc4514_attribute_name: each.value for each in certificates(own)[0].subject}
    _check_name(site, str(named["CN"]))
    if notice := notice_of(own, how):
        say(notice)
    with running(folder, "program of this site") as mark:
        prepare(say)
        say(f"site {site.name}: FLARE connects to {site.federation['coordinator']}")
        os.set_inheritable(mark.fileno(), True)
        script = kit / "startup" / "sub_start.sh"
        os.chdir(kit)
        os.execve("/bin/bash", ["bash", str(script), "--once"], environment("NVFL"))
