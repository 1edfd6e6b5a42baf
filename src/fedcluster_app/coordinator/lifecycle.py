"""Changes to an existing federation: its sites, and the keys that identify them.

Each changes the folder completely or not at all. A running coordinator notices changes by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from fedcluster.core.files import atomic_write
from fedcluster.errors import InputError, listed
from fedcluster_app.coordinator.certificates import (
    FORMER,
    REMOVED,
    REPLACED,
    REVOKED,
    accepted_keys,
    current,
    former_keys,
    key_digest,
    read_public_key,
    site_key,
    state_at,
    upcoming,
    with_former,
)
from fedcluster_app.coordinator.folder import (
    Federation,
    changing,
    check_sites,
    described,
    site_pages,
)
from fedcluster_app.coordinator.fresh_certificate import file_state
from fedcluster_app.coordinator.operators import noted
from fedcluster_app.trust.owned_files import DECIDED, commit
from fedcluster_app.trust.permits import load_key, public_text

TOML = "federation.toml"

NOTICED = ".noticed"
"""The file with the last state of the folder that the coordinator has noticed."""


def add_sites(folder: Path, names: Sequence[str], public_key: Path | None = None) -> Federation:
    """Add sites to a federation, and write their folders.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    names : sequence of str
        The names of the sites.
    public_key : Path, optional
        The public key that a single site has created itself; by default, a key is created for each.

    Raises
    ------
    InputError
        If a name is invalid or exists already, or the key is invalid or known already.
    """
    with changing(folder) as federation:
        check_sites([*federation.sites, *names], "sites")
        if public_key is not None and len(names) != 1:
            raise InputError("--public-key is the key of one site: name one")
        if public_key is not None and federation.insecure:
            raise InputError(f"{federation.folder} is insecure: its sites have no keys")
        grown = replace(federation, sites=tuple(sorted({*federation.sites, *names})))
        files: dict[str, bytes] = {}
        for name in names:
            files |= _of_site(grown, name, public_key)
        commit(federation.folder, {**files, TOML: described(grown)})
        for name in names:
            _note(federation, "site added", name)
    return grown


def _note(federation: Federation, event: str, name: str) -> None:
    """Log a change of a site, with the digests of its keys that are valid from now on."""
    keys = [key_digest(key) for key in accepted_keys(federation.folder, [name])[name]]
    noted(federation.folder, event, member=name, keys=keys)


def _of_site(federation: Federation, name: str, public_key: Path | None) -> dict[str, bytes]:
    """Return the files of a new site: those of its folder, and its public key."""
    home, pages = state_at(name), site_pages(federation, name)
    named = {f"sites/{name}/{file}": text for file, text in pages.items()}
    files = {page: text for page, text in named.items() if not federation.file(page).exists()}
    if federation.insecure:
        return files
    granter = _granter(federation)
    files |= {f"{home}/coordinator.pub": granter} if granter else {}
    authority = federation.file("certificates", "ca.crt")
    files |= {f"{home}/ca.crt": authority.read_bytes()} if authority.exists() else {}
    return files | _key_files(federation, name, public_key, current(name))


def _granter(federation: Federation) -> bytes | None:
    """Return the public key by which sites check permits, None if it is not here."""
    kept = federation.file("certificates", "permit.pub")
    if kept.exists():
        return kept.read_bytes()
    key = federation.file("certificates", "permit.key")
    return public_text(load_key(key).public_key()).encode() if key.exists() else None


def _key_files(
    federation: Federation, name: str, public_key: Path | None, where: str
) -> dict[str, bytes]:
    """Return the files of a site's new key."""
    if public_key is None:
        private, public = site_key()
        return {_handed(name): private, where: public}
    key = read_public_key(public_key)
    _check_new(federation, key, public_key)
    return {where: public_text(key).encode()}


def _handed(name: str) -> str:
    """Return where a new private key waits to be handed to its site."""
    return f"{state_at(name)}/key"


def _check_new(federation: Federation, key: ec.EllipticCurvePublicKey, path: Path) -> None:
    """Raise an error for a key that is valid already, or was so before."""
    digest = key_digest(key)
    for site, keys in accepted_keys(federation.folder, federation.sites).items():
        if digest in map(key_digest, keys):
            raise InputError(f"{path} is the key of site {site} already")
    if former := former_keys(federation.folder).get(digest):
        raise InputError(
            f"{path}: this key of {former.site} was {former.why} on {former.at}; make another with "
            "fedcluster site key --new"
        )


def remove_site(folder: Path, name: str) -> Federation:
    """Remove a site from a federation, effective for later runs.

    Its files in ``sites`` stay, because in a trial on one machine they belong to the site.

    Raises
    ------
    InputError
        If there is no such site, or it is the only one.
    """
    with changing(folder) as federation:
        _check_member(federation, name)
        others = tuple(site for site in federation.sites if site != name)
        if not others:
            raise InputError(f"{name} is the only site of {federation.folder}, and stays")
        rows = {site: most for site, most in federation.rows.items() if site != name}
        smaller = replace(federation, sites=others, rows=rows)
        gone = _digests(federation, name)
        files = with_former(federation.folder, gone, REMOVED) | {TOML: described(smaller)}
        commit(federation.folder, files, [current(name), upcoming(name)])
        _note(federation, "site removed", name)
    return smaller


def rotate_key(folder: Path, name: str, public_key: Path | None = None) -> Path | None:
    """Give a site a new key; the old one is valid until the site has used the new one.

    A site whose key was revoked is admitted with the new one.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    name : str
        The site.
    public_key : Path, optional
        The public key that the site has created itself; by default, a key is created.

    Returns
    -------
    Path or None
        The file of the new private key, to be handed over; None if the site has it.

    Raises
    ------
    InputError
        If there is no such site, or the key is invalid or known already.
    """
    with changing(folder) as federation:
        _check_member(federation, name)
        _check_keys(federation)
        has_key = bool(accepted_keys(federation.folder, [name])[name])
        where = upcoming(name) if has_key else current(name)
        files = _key_files(federation, name, public_key, where)
        unused = accepted_keys(federation.folder, [name])[name][1:]
        unused_digests = {key_digest(key): name for key in unused}
        if unused_digests:
            files |= with_former(federation.folder, unused_digests, REPLACED)
        commit(federation.folder, files)
        _note(federation, "key rotated", name)
    return None if public_key else federation.file(_handed(name))


def revoke(folder: Path, name: str) -> None:
    """Revoke all keys of a site at once.

    Raises
    ------
    InputError
        If there is no such site.
    """
    with changing(folder) as federation:
        _check_member(federation, name)
        _check_keys(federation)
        files = with_former(federation.folder, _digests(federation, name), REVOKED)
        commit(federation.folder, files, [current(name), upcoming(name)])
        _note(federation, "key revoked", name)


def _check_keys(federation: Federation) -> None:
    """Raise an error for a federation that does not identify its sites by keys."""
    if federation.insecure:
        raise InputError(f"{federation.folder} is insecure: its sites have no keys")
    if federation.has_flare:
        raise InputError(
            f"FLARE knows the sites of {federation.folder} by their startup kits, not by these "
            "keys: remove the site, or make all kits anew"
        )


def promote(folder: Path, names: Iterable[str]) -> None:
    """Replace the old keys of sites by new ones that they have used."""
    with changing(folder) as federation:
        for name in names:
            path = federation.file(upcoming(name))
            keys = accepted_keys(federation.folder, [name])[name]
            if path.exists() and len(keys) == 2:
                old = with_former(federation.folder, {key_digest(keys[0]): name}, REPLACED)
                files = {**old, current(name): path.read_bytes()}
                commit(federation.folder, files, [upcoming(name)])
                _note(federation, "new key used", name)


def _digests(federation: Federation, name: str) -> dict[str, str]:
    keys = accepted_keys(federation.folder, [name])[name]
    return {key_digest(key): name for key in keys}


def _check_member(federation: Federation, name: str) -> None:
    if name not in federation.sites:
        raise InputError(
            f"{federation.folder} has no site {name!r}; it has {listed(federation.sites)}"
        )


def state_of(folder: Path) -> str:
    """Return a text that changes when the sites or keys in a folder change."""
    paths = [folder / "federation.toml", folder / DECIDED, folder / FORMER]
    paths += sorted((folder / "keys").glob("*.pub"))
    return "\n".join(f"{path.name} {state}" for path in paths if (state := file_state(path)))


def take_notice(folder: Path, state: str) -> None:
    """Record the state of the folder that the coordinator has noticed."""
    with atomic_write(folder / NOTICED) as temporary:
        temporary.write_text(state, encoding="utf-8")


def is_noticed(federation: Federation) -> bool:
    """Return whether the coordinator has noticed the present state of the folder."""
    with suppress(OSError):
        return federation.file(NOTICED).read_text("utf-8") == state_of(federation.folder)
    return False


class RevokedSites:
    """Sites without a key since theirs was revoked, and when it was.

    If the folder no longer has this information, all sites count as revoked.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    sites : iterable of str
        The sites to look up.
    """

    def __init__(self, folder: Path, sites: Iterable[str]) -> None:
        self._folder, self._sites = folder, tuple(sites)
        self._seen, self._reasons = "", dict[str, str]()

    def __call__(self) -> Mapping[str, str]:
        """Return the revoked sites, with the reasons."""
        if (seen := state_of(self._folder)) != self._seen:
            self._seen, self._reasons = seen, self._read()
        return self._reasons

    def _read(self) -> dict[str, str]:
        try:
            keys = accepted_keys(self._folder, self._sites)
            former = sorted(former_keys(self._folder).values(), key=lambda key: key.at)
        except InputError as error:
            return dict.fromkeys(self._sites, f"nobody knows whose key was revoked: {error}")
        last = {key.site: key for key in former}
        return {
            site: f"its key was revoked on {key.at}"
            for site, key in last.items()
            if key.why == REVOKED and not keys.get(site, ("another site",))
        }
