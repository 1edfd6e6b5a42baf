"""Changes to an existing federation: its sites, their keys, and the coordinator's certificate.

Each changes the folder completely or not at all. A running coordinator notices changes by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedcluster.core.files import atomic_write
from fedcluster.errors import InputError, listed
from fedcluster.texts import command_line
from fedcluster_app.coordinator import certificates as pki
from fedcluster_app.coordinator.folder import (
    FIRST_ROWS,
    Federation,
    changing,
    check_sites,
    described,
    first_rows,
    readme,
    site_pages,
    write_new,
)
from fedcluster_app.coordinator.operators import noted, operators, operators_log
from fedcluster_app.trust import owned_files
from fedcluster_app.trust.permits import public_text

WARNING = timedelta(days=60)
"""Time before expiry from which on a certificate is reported."""

CERTIFICATE, KEY = "certificates/server.crt", "certificates/server.key"
AUTHORITY, AUTHORITY_KEY = "certificates/ca.crt", "certificates/ca.key"
FLARE = ("flare/server/startup/server.crt", "flare/lead/startup/client.crt")
FLARE_AUTHORITY = "flare/server/startup/rootCA.pem"
"""Files of the folder of a federation."""

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
        grown = replace(federation, sites=tuple(sorted({*federation.sites, *names})))
        files: dict[str, bytes] = {}
        for name in names:
            files |= _of_site(grown, name, public_key)
        owned_files.commit(federation.folder, {**files, TOML: described(grown)})
        for name in names:
            note_keys(federation, "site added", name)
    return grown


def note_keys(federation: Federation, event: str, name: str) -> None:
    """Log a change of a site, with the digests of its keys that are valid from now on."""
    keys = [pki.key_digest(key) for key in pki.accepted_keys(federation.folder, [name])[name]]
    noted(federation.folder, event, member=name, keys=keys)


def _of_site(federation: Federation, name: str, public_key: Path | None) -> dict[str, bytes]:
    """Return the files of a new site: those of its folder, and its public key."""
    home, pages = pki.state_at(name), site_pages(federation, name)
    named = {f"sites/{name}/{file}": text for file, text in pages.items()}
    files = {page: text for page, text in named.items() if not federation.file(page).exists()}
    for own, theirs in {"permit.pub": "coordinator.pub", "ca.crt": "ca.crt"}.items():
        if (path := federation.file("certificates", own)).exists():
            files[f"{home}/{theirs}"] = path.read_bytes()
    public, private = _new_key(federation, name, public_key)
    return files | private | {pki.current(name): public}


def _new_key(
    federation: Federation, name: str, public_key: Path | None
) -> tuple[bytes, dict[str, bytes]]:
    """Return a site's new public key, and the file of its private part if it was created."""
    if public_key is None:
        private, public = pki.site_key()
        return public, {f"{pki.state_at(name)}/key": private}
    key = pki.read_public_key(public_key)
    _check_new(federation, key, public_key)
    return public_text(key).encode(), {}


def place_keys(
    federation: Federation, keys: Mapping[str, bytes], *, at_once: bool = False
) -> tuple[dict[str, bytes], list[str]]:
    """Return the files by which new keys of sites count, and those to remove.

    The keys in use count until the new ones are used, or ``at_once`` no longer.
    """
    files, replaced, gone = dict[str, bytes](), dict[str, str](), list[str]()
    for site, own in pki.accepted_keys(federation.folder, keys).items():
        files[pki.current(site) if at_once or not own else pki.upcoming(site)] = keys[site]
        replaced |= {pki.key_digest(key): site for key in (own if at_once else own[1:])}
        gone += [pki.upcoming(site)] if at_once else []
    former = pki.with_former(federation.folder, replaced, pki.REPLACED) if replaced else {}
    return files | former, gone


def _check_new(federation: Federation, key: pki.PublicKey, path: Path) -> None:
    """Raise an error for a key that is valid already, or was so before."""
    digest = pki.key_digest(key)
    for site, keys in pki.accepted_keys(federation.folder, federation.sites).items():
        if digest in map(pki.key_digest, keys):
            raise InputError(f"{path} is the key of site {site} already")
    if former := pki.former_keys(federation.folder).get(digest):
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
        check_member(federation, name)
        others = tuple(site for site in federation.sites if site != name)
        if not others:
            raise InputError(f"{name} is the only site of {federation.folder}, and stays")
        rows = {site: most for site, most in federation.rows.items() if site != name}
        smaller = replace(federation, sites=others, rows=rows)
        _take_back(federation, name, pki.REMOVED, {TOML: described(smaller)})
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
        check_member(federation, name)
        public, files = _new_key(federation, name, public_key)
        owned_files.commit(federation.folder, files | place_keys(federation, {name: public})[0])
        note_keys(federation, "key rotated", name)
    return None if public_key else federation.file(pki.state_at(name), "key")


def revoke(folder: Path, name: str) -> None:
    """Revoke all keys of a site at once.

    Raises
    ------
    InputError
        If there is no such site.
    """
    with changing(folder) as federation:
        check_member(federation, name)
        _take_back(federation, name, pki.REVOKED)


def promote(folder: Path, names: Iterable[str]) -> None:
    """Replace the old keys of sites by new ones that they have used."""
    with changing(folder) as federation:
        for name in names:
            path = federation.file(pki.upcoming(name))
            keys = pki.accepted_keys(federation.folder, [name])[name]
            if path.exists() and len(keys) == 2:
                old = pki.with_former(
                    federation.folder, {pki.key_digest(keys[0]): name}, pki.REPLACED
                )
                files = {**old, pki.current(name): path.read_bytes()}
                owned_files.commit(federation.folder, files, [pki.upcoming(name)])
                note_keys(federation, "new key used", name)


def _take_back(
    federation: Federation, name: str, why: str, files: Mapping[str, bytes] | None = None
) -> None:
    """Let the keys of a site count no more, and write other files with that."""
    keys = pki.accepted_keys(federation.folder, [name])[name]
    former = pki.with_former(federation.folder, {pki.key_digest(k): name for k in keys}, why)
    gone = [pki.current(name), pki.upcoming(name)]
    owned_files.commit(federation.folder, {**former, **(files or {})}, gone)
    note_keys(federation, "site removed" if why == pki.REMOVED else "key revoked", name)


def check_member(federation: Federation, name: str) -> None:
    """Raise an error if there is no such site.

    Raises
    ------
    InputError
        With the names that there are.
    """
    if name not in federation.sites:
        raise InputError(
            f"{federation.folder} has no site {name!r}; it has {listed(federation.sites)}"
        )


def state_of(folder: Path) -> str:
    """Return a text that changes when the sites or keys in a folder change."""
    paths = [folder / "federation.toml", folder / owned_files.DECIDED, folder / pki.FORMER]
    paths += sorted((folder / "keys").glob("*.pub"))
    return "\n".join(f"{path.name} {state}" for path in paths if (state := pki.file_state(path)))


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
            keys = pki.accepted_keys(self._folder, self._sites)
            former = sorted(pki.former_keys(self._folder).values(), key=lambda key: key.at)
        except InputError as error:
            return dict.fromkeys(self._sites, f"nobody knows whose key was revoked: {error}")
        last = {key.site: key for key in former}
        return {
            site: f"its key was revoked on {key.at}"
            for site, key in last.items()
            if key.why == pki.REVOKED and not keys.get(site, ("another site",))
        }


def renew(
    folder: Path,
    *,
    days: int = pki.DAYS,
    authority_key: Path | None = None,
    new_key: bool = False,
    new_authority: bool = False,
) -> datetime:
    """Write a new certificate of the coordinator; by the same authority, sites need no new file.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    days : int
        Number of days for which it is valid.
    authority_key : Path, optional
        The authority's key, if it is not in the folder; where to write that of a new one.
    new_key : bool, default=False
        Whether to create a new key of the coordinator too.
    new_authority : bool, default=False
        Whether to create a new authority, which all sites need, and a new key: nothing that the
        old authority or key signed counts any more.

    Returns
    -------
    datetime
        The time until which it is valid.

    Raises
    ------
    InputError
        If the key of the authority is missing or does not belong to it, the authority has expired,
        or the file for the key of a new one exists.
    """
    with changing(folder) as federation:
        authority = pki.Authority.make() if new_authority else _authority(federation, authority_key)
        new_key = new_key or new_authority
        key = pki.new_server_key() if new_key else server_key(federation)
        files, gone = {KEY: pki.private_pem(key)} if new_key else {}, []
        if new_authority:
            files |= {AUTHORITY: authority.pem, **_at_sites(federation, authority.pem)}
            if authority_key is None:
                files[AUTHORITY_KEY] = pki.private_pem(authority.key)
            else:
                write_new(authority_key, pki.private_pem(authority.key))
                gone = [AUTHORITY_KEY]
        files["README.md"] = readme(federation)
        files[CERTIFICATE] = authority.sign(federation.place.names, key.public_key(), days)
        owned_files.commit(federation.folder, files, gone)
        changed = {"new_key": new_key, "new_authority": new_authority}
        noted(federation.folder, "certificate renewed", **changed)
    return certificate_end(federation.file(CERTIFICATE))


def install(
    folder: Path, certificate: Path, authority: Path | None, key: Path | None = None
) -> datetime:
    """Install a certificate signed by another authority; return until when it is valid.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    certificate : Path
        The certificate, with any intermediate ones.
    authority : Path, optional
        The certificate of the authority, for the sites; without it, sites trust the authorities
        that their machines trust.
    key : Path, optional
        Its private key in PEM, without a passphrase; by default that of the coordinator.

    Raises
    ------
    InputError
        If it is not for this key or the host, is not valid now, or is not signed by the
        authority.
    """
    with changing(folder) as federation:
        chain, key = certificates(certificate), key or federation.file(KEY)
        _check_pair(certificate, chain[0], key)
        _check_host(federation, certificate, chain[0])
        check_counts(certificate, "ask for another")
        if authority is not None:
            _check_vouched(certificate, chain, authority)
        files = {KEY: key.read_bytes(), CERTIFICATE: pki.chain_pem(chain)}
        gone = [AUTHORITY_KEY]
        if authority is None:
            gone.append(AUTHORITY)
        else:
            roots = pki.chain_pem(certificates(authority))
            files |= {AUTHORITY: roots} | _at_sites(federation, roots)
        owned_files.commit(federation.folder, files, gone)
        noted(federation.folder, "certificate installed")
    return chain[0].not_valid_after_utc


def _at_sites(federation: Federation, authority: bytes) -> dict[str, bytes]:
    """Return the files of the authority for sites whose folders are still here."""
    here = [site for site in federation.sites if federation.file("sites", site).is_dir()]
    return {f"{pki.state_at(site)}/ca.crt": authority for site in here}


def _authority(federation: Federation, authority_key: Path | None) -> pki.Authority:
    """Return the authority that vouches for the coordinator."""
    path, certificate = authority_key or federation.file(AUTHORITY_KEY), federation.file(AUTHORITY)
    how = command_line("federation", "certificate", federation.folder)
    if not certificate.exists():
        raise InputError(
            f"{certificate} does not exist: another authority vouches for this coordinator; ask it "
            f"for a certificate, then {how} FILE"
        )
    if not path.exists():
        raise InputError(
            f"{path}, the key of the authority, is not there: name it by --authority-key, or ask "
            f"whoever vouches for the coordinator for a certificate ({how})"
        )
    owned_files.check_private([], secret=[path])
    try:
        authority = pki.Authority.read(path.read_bytes(), certificate.read_bytes())
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} and {certificate} are no authority: {error}") from error
    if (end := authority.certificate.not_valid_after_utc) < datetime.now(UTC) + timedelta(days=1):
        raise InputError(
            f"{certificate} expired on {end:%Y-%m-%d}: add --new-authority, and hand "
            "certificates/ca.crt to all sites"
        )
    return authority


def server_key(federation: Federation) -> ec.EllipticCurvePrivateKey:
    """Return the key of the coordinator.

    Raises
    ------
    InputError
        If the key cannot be read, or is invalid.
    """
    key = _private_key(path := federation.file(KEY))
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path} is no key of an elliptic curve")
    return key


def _private_key(path: Path) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _check_host(
    federation: Federation, path: Path, certificate: x509.Certificate, advice: str = ""
) -> None:
    """Raise an error for a certificate of another host."""
    names = _names_of(certificate)
    if not {federation.host, f"*.{federation.host.partition('.')[2]}"} & {*names}:
        whom = ", ".join(names) or "nobody"
        raise InputError(f"{path} is for {whom}, and sites reach {federation.host}{advice}")


def _check_pair(path: Path, certificate: x509.Certificate, key: Path) -> None:
    if certificate.public_key() != _private_key(key).public_key():
        raise InputError(f"{path} is not for the key in {key}")


def _names_of(certificate: x509.Certificate) -> list[str]:
    try:
        kind = x509.SubjectAlternativeName
        names = certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return []
    numbers = map(str, names.get_values_for_type(x509.IPAddress))
    return [*names.get_values_for_type(x509.DNSName), *numbers]


def _check_vouched(
    path: Path,
    chain: list[x509.Certificate],
    authority: Path,
    advice: str = "name the authority that signed it",
) -> None:
    """Raise an error for a certificate that does not lead to an authority in a file."""
    for signed in chain:
        for root in certificates(authority):
            try:
                signed.verify_directly_issued_by(root)
            except (ValueError, TypeError, InvalidSignature):
                continue
            return
    raise InputError(f"{authority} does not vouch for {path}: {advice}")


def certificate_end(path: Path) -> datetime:
    """Return when the first certificate in a file expires.

    Raises
    ------
    InputError
        If the file cannot be read, or holds no certificate.
    """
    return certificates(path)[0].not_valid_after_utc


def own_certificates(federation: Federation) -> list[Path]:
    """Return the certificates that identify the coordinator's own programs."""
    flare = FLARE if federation.has_flare else ()
    return [federation.file(name) for name in (*flare, CERTIFICATE)]


def expiry_notice(federation: Federation) -> str:
    """Return a line about a certificate that expires soon; empty if none does.

    Raises
    ------
    InputError
        If the certificate cannot be read.
    """
    how = command_line("federation", "certificate", federation.folder)
    notices = [notice_of(path, how) for path in own_certificates(federation)]
    for authority in map(federation.file, (FLARE_AUTHORITY, AUTHORITY)):
        if authority.exists():
            last = max(each.not_valid_after_utc for each in certificates(authority))
            more = f"{how} --new-authority, and hand certificates/ca.crt, or kits, to all sites"
            notices.append(notice_of(authority, more, last))
    return next(filter(None, notices), "")


@owned_files.private_files()
def check_start(federation: Federation) -> None:
    """Raise an error if a start would refuse what is in the folder, over any transport.

    Raises
    ------
    InputError
        With advice.
    """
    owned_files.check_writable(federation.folder)
    check_valid(federation)
    pki.accepted_keys(federation.folder, federation.sites)
    operators(federation.folder)
    first_rows(federation.file(FIRST_ROWS))
    with operators_log(federation.folder).locked():
        pass


def check_valid(federation: Federation) -> None:
    """Raise an error if the coordinator's certificate is not valid now, or is not its own.

    Raises
    ------
    InputError
        With its date and advice.
    """
    how = command_line("federation", "certificate", federation.folder)
    path, key = federation.file(CERTIFICATE), federation.file(KEY)
    try:
        chain = certificates(path)
        _check_pair(path, chain[0], key)
    except InputError as error:
        raise InputError(f"{error}: {how} --new-key makes both anew") from error
    for own in own_certificates(federation):
        check_counts(own, how)
    _check_host(federation, path, chain[0], f": {how} makes another")
    authority = federation.file(AUTHORITY)
    if authority.exists():
        _check_vouched(path, chain, authority, f"put back a copy, or {how} --new-authority")
    elif chain[0].issuer == pki.common_name(pki.AUTHORITY):
        raise InputError(f"{authority} is gone, and vouches for {path}: put back a copy")


def check_counts(path: Path, how: str) -> None:
    """Raise an error if a file's first certificate is not valid now; ``how`` renews it.

    Raises
    ------
    InputError
        With its date and advice.
    """
    certificate, now = certificates(path)[0], datetime.now(UTC)
    if certificate.not_valid_after_utc < now:
        raise InputError(notice_of(path, how))
    if certificate.not_valid_before_utc > now:
        raise InputError(
            f"{path} is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on, and "
            f"it is {now:%Y-%m-%d %H:%M} UTC by this machine's clock: set the clock"
        )


def notice_of(path: Path, how: str, end: datetime | None = None) -> str:
    """Return a line if a certificate expires soon or has expired; ``how`` renews it.

    Without ``end``, the first certificate in the file is checked.
    """
    end = end or certificate_end(path)
    left = end - datetime.now(UTC)
    if left > WARNING:
        return ""
    if left < timedelta(0):
        return f"{path} expired on {end:%Y-%m-%d}: {how}"
    return f"{path} expires on {end:%Y-%m-%d}, in {left.days} days: {how}"


def certificates(path: Path) -> list[x509.Certificate]:
    """Return the certificates in a file.

    Raises
    ------
    InputError
        If the file cannot be read, or holds no certificate.
    """
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} holds no certificate in PEM") from error
