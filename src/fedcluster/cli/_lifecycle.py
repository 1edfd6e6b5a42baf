"""Commands that change a federation: its sites, their keys, and the coordinator's certificate."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcluster.cli._operators import Folder, app, federation_at
from fedcluster.cli._options import argument, option
from fedcluster.cli._screen import needs, say

if TYPE_CHECKING:
    from fedcluster.coordinator.folder import Federation

SHORTLY = 10.0
"""Seconds that a coordinator which runs has to take notice of a change."""

PublicKey = Annotated[
    Path | None,
    option(
        "FILE",
        "Public key that the site made with fedcluster site new-key; then no private key travels.",
    ),
]
AuthorityKey = Annotated[
    Path | None, option("FILE", "Where the key of the authority is kept; by default in the folder.")
]
Site = Annotated[str, argument("SITE", "Name of the site.")]


@app.command("add-site", epilog="Example: fedcluster federation add-site trial east")
def add_site(
    folder: Folder,
    names: Annotated[list[str], argument("SITE...", "Names of the sites.")],
    public_key: PublicKey = None,
) -> None:
    """Add sites, also while the coordinator and other sites run.

    Writes sites/SITE, to be handed to the site, over FLARE with its startup kit. Runs that begin
    later ask it, too.
    """
    before = federation_at(folder)
    from fedcluster.coordinator.lifecycle import add_sites

    if before.has_flare:
        needs("nvflare", "flare")
        from fedcluster.transports.flare.kit import add_kits, lead_by_authority

        lead_by_authority(before)
    federation = add_sites(folder, names, public_key)
    if federation.has_flare:
        add_kits(federation, names)
    for name in names:
        secret = "its key is the one that it made" if public_key else "the key in it is secret"
        secret = "" if federation.insecure else f"; {secret}"
        say(f"Wrote {federation.file('sites', name)}: hand it to {name}{secret}.")
    _await_notice(federation)


@app.command("remove-site", epilog="Example: fedcluster federation remove-site trial east")
def remove_site(folder: Folder, site: Site) -> None:
    """Take a site out, also while it is connected.

    A run that asks it goes on with it; then it is disconnected. Runs that begin later do not ask
    it. Records and results of earlier runs stay. To cut a site off at once, use revoke.
    """
    federation_at(folder)
    from fedcluster.coordinator import lifecycle

    federation = lifecycle.remove_site(folder, site)
    say(f"Removed {site}; the federation has {len(federation.sites)} sites.")
    _await_notice(federation)


@app.command("rotate-key", epilog="Example: fedcluster federation rotate-key trial east")
def rotate_key(folder: Folder, site: Site, public_key: PublicKey = None) -> None:
    """Give a site a new key. The old one counts until the site has connected with the new one.

    A site whose key was revoked is let in again by the new one.
    """
    federation = federation_at(folder)
    from fedcluster.coordinator import lifecycle
    from fedcluster.coordinator.certificates import digest_of

    path = lifecycle.rotate_key(folder, site, public_key)
    if public_key is not None:
        say(f"Accepted the key with the digest {digest_of(public_key)}; {site} takes it by itself.")
    else:
        say(f"Wrote {path}: hand it to {site} by a way that nobody else can read, and delete it.")
        say("The site puts it in the place of its own file of that name; one that runs notices.")
    _await_notice(federation)


@app.command(epilog="Example: fedcluster federation revoke trial east")
def revoke(folder: Folder, site: Site) -> None:
    """Take back the key of a site at once, for example because it was lost or stolen.

    The site is disconnected, and a run that goes on refuses its answers. It stays a member: runs
    need it, or a quorum without it, until rotate-key lets it in or remove-site takes it out.
    """
    federation = federation_at(folder)
    from fedcluster.coordinator import lifecycle

    lifecycle.revoke(folder, site)
    say(f"The key of {site} does not count any more.")
    _await_notice(federation)


@app.command("renew-certificates", epilog="Example: fedcluster federation renew-certificates trial")
def renew_certificates(
    folder: Folder,
    *,
    days: Annotated[
        int | None, option("N", "Days that it is valid.", min=1, max=7300, show_default="1825")
    ] = None,
    authority_key: AuthorityKey = None,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Also make a new key of the coordinator.")
    ] = False,
    new_authority: Annotated[
        bool,
        typer.Option(
            "--new-authority",
            help="Make a new authority, which all sites learn of before it signs.",
        ),
    ] = False,
    switch: Annotated[
        bool, typer.Option("--switch", help="Let the new authority sign, as all sites know it.")
    ] = False,
    drop_old: Annotated[
        bool,
        typer.Option(
            "--drop-old",
            help="With --switch: trust the old authority no more; also make a new key.",
        ),
    ] = False,
) -> None:
    """Write another certificate for the coordinator. Sites need nothing new.

    A coordinator that runs uses it within seconds. Only with --new-authority do the sites get a new
    file, ca.crt: hand it to them, and when all have it, use --switch. Over FLARE, all kits get
    other certificates, and no option but --new-authority has a meaning.
    """
    federation = federation_at(folder)
    from fedcluster.coordinator import renewal
    from fedcluster.coordinator.certificates import DAYS
    from fedcluster.errors import InputError

    plain = not (days or authority_key or new_key or switch or drop_old)
    if plain and federation.has_flare:
        return _renew_kits(federation, new_authority=new_authority)
    if new_authority + switch + new_key > 1:
        raise InputError("--new-authority, --switch and --new-key are steps of their own: give one")
    if drop_old and not switch:
        raise InputError("--drop-old belongs to --switch: first make a new authority")
    if new_authority:
        renewal.new_authority(folder, authority_key=authority_key)
        say(f"Hand {folder / 'certificates' / 'ca.crt'} to all sites; each puts it in the place of")
        say("its own. Then: fedcluster federation renew-certificates with --switch.")
        return
    days = days or DAYS
    if switch:
        end = renewal.switch_authority(
            folder, days=days, authority_key=authority_key, drop_old=drop_old
        )
        if drop_old:
            say(f"Hand {folder / 'certificates' / 'ca.crt'} to all sites. Grant permits anew, as")
            say("they name the coordinator by its authority.")
    else:
        end = renewal.renew(folder, days=days, authority_key=authority_key, new_key=new_key)
    say(f"The certificate is valid until {end:%Y-%m-%d}.")


def _renew_kits(federation: Federation, *, new_authority: bool) -> None:
    needs("nvflare", "flare")
    from fedcluster.coordinator.renewal import FLARE, certificate_end
    from fedcluster.transports.flare.kit import renew_kits

    renew_kits(federation, new_authority=new_authority)
    kit = federation.file("sites", "SITE", "flare")
    say(f"Hand {kit} to each site: it puts the folder startup in the place of its own and starts")
    say(f"again. Start the server again: fedcluster flare start {federation.file('flare/server')}")
    end = certificate_end(federation.file(FLARE[0]))
    old = "do not count any more" if new_authority else "count until they end"
    say(f"The certificates are valid until {end:%Y-%m-%d}; those before {old}.")


@app.command(epilog="Example: fedcluster federation csr trial")
def csr(folder: Folder) -> None:
    """Write a request for a certificate by an authority of your organisation, or a public one."""
    federation_at(folder)
    from fedcluster.coordinator.renewal import signing_request

    say(f"Wrote {signing_request(folder)}: have it signed, then use federation certificate.")


@app.command(epilog="Example: fedcluster federation certificate trial server.crt --ca ca.crt")
def certificate(
    folder: Folder,
    file: Annotated[Path, argument("FILE", "Certificate in PEM, then those between.")],
    ca: Annotated[
        Path | None,
        option(
            "FILE",
            "Certificate of the authority, for the sites; without it, sites trust the "
            "authorities that their machines trust.",
        ),
    ] = None,
) -> None:
    """Use a certificate that an authority of your organisation, or a public one, has signed."""
    federation_at(folder)
    from fedcluster.coordinator.renewal import install

    end = install(folder, file, ca)
    say(f"The certificate is valid until {end:%Y-%m-%d}.")
    what = f"hand {folder / 'certificates' / 'ca.crt'} to all sites"
    say(f"If it is a new authority: {what}." if ca else 'Sites write certificate = "system".')


def _await_notice(federation: Federation) -> None:
    """Wait until a running coordinator has noticed a change, and print that it has."""
    from fedcluster.coordinator.lifecycle import is_noticed, is_running

    end = time.monotonic() + SHORTLY
    while is_running(federation) and time.monotonic() < end:
        if is_noticed(federation):
            say("The coordinator, which runs, has taken notice.")
            return
        time.sleep(0.1)
    say("It counts as soon as the coordinator starts, or looks at its folder again.")
