"""The coordinator's certificate, by its own, a new, or another authority."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedcluster.errors import InputError
from fedcluster_app.coordinator.certificates import (
    DAYS,
    Authority,
    chain_pem,
    private_pem,
    state_at,
)
from fedcluster_app.coordinator.folder import (
    Federation,
    changing,
    readme,
    write_new,
)
from fedcluster_app.coordinator.operators import noted
from fedcluster_app.trust.owned_files import check_private, commit

WARNING = timedelta(days=60)
"""Time before expiry from which on a certificate is reported."""

CERTIFICATE, KEY = "certificates/server.crt", "certificates/server.key"
AUTHORITY, AUTHORITY_KEY = "certificates/ca.crt", "certificates/ca.key"
FLARE = ("flare/server/startup/server.crt", "flare/lead/startup/client.crt")
FLARE_AUTHORITY = "flare/server/startup/rootCA.pem"
"""Files of the folder of a federation."""


def renew(
    folder: Path,
    *,
    days: int = DAYS,
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
    with _changing(folder) as federation:
        authority = Authority.make() if new_authority else _authority(federation, authority_key)
        if new_key := new_key or new_authority:
            key = ec.generate_private_key(ec.SECP384R1())
        else:
            key = server_key(federation)
        files, gone = {KEY: private_pem(key)} if new_key else {}, []
        if new_authority:
            files |= {AUTHORITY: authority.pem, **_at_sites(federation, authority.pem)}
            if authority_key is None:
                files[AUTHORITY_KEY] = private_pem(authority.key)
            else:
                write_new(authority_key, private_pem(authority.key))
                gone = [AUTHORITY_KEY]
        files["README.md"] = readme(federation)
        files[CERTIFICATE] = authority.sign(federation.place.names, key.public_key(), days)
        commit(federation.folder, files, gone)
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
    with _changing(folder) as federation:
        chain, key = certificates(certificate), key or federation.file(KEY)
        _check_own(federation, certificate, chain[0], key)
        if authority is not None:
            _check_vouched(certificate, chain, authority)
        files = {KEY: key.read_bytes(), CERTIFICATE: chain_pem(chain)}
        gone = [AUTHORITY_KEY]
        if authority is None:
            gone.append(AUTHORITY)
        else:
            roots = chain_pem(certificates(authority))
            files |= {AUTHORITY: roots} | _at_sites(federation, roots)
        commit(federation.folder, files, gone)
        noted(federation.folder, "certificate installed")
    return chain[0].not_valid_after_utc


@contextmanager
def _changing(folder: Path) -> Iterator[Federation]:
    """Yield a federation with certificates that nobody else can change within the block."""
    with changing(folder) as federation:
        if federation.insecure:
            raise InputError(f"{federation.folder} is insecure: it has no certificates")
        if federation.has_flare:
            raise InputError(
                f"FLARE makes and signs the certificates of {federation.folder}: fedcluster "
                "federation certificate, alone or with --new-authority, has it make others"
            )
        yield federation


def _at_sites(federation: Federation, authority: bytes) -> dict[str, bytes]:
    """Return the files of the authority for sites whose folders are still here."""
    here = [site for site in federation.sites if federation.file("sites", site).is_dir()]
    return {f"{state_at(site)}/ca.crt": authority for site in here}


def _own_authority(federation: Federation) -> Path:
    path = federation.file(AUTHORITY)
    if not path.exists():
        raise InputError(
            f"{path} does not exist: another authority vouches for this coordinator; ask it for a "
            f"certificate, then fedcluster federation certificate {federation.folder} FILE"
        )
    return path


def _authority(federation: Federation, authority_key: Path | None) -> Authority:
    """Return the authority that vouches for the coordinator."""
    certificate = _own_authority(federation)
    path = authority_key or federation.file(AUTHORITY_KEY)
    if not path.exists():
        raise InputError(
            f"{path}, the key of the authority, is not there: name it by --authority-key, or ask "
            "whoever vouches for the coordinator for a certificate (fedcluster federation "
            f"certificate {federation.folder})"
        )
    authority = _read_authority(path, certificate)
    if authority.certificate.not_valid_after_utc < datetime.now(UTC) + timedelta(days=1):
        raise InputError(
            f"{certificate} expired on {authority.certificate.not_valid_after_utc:%Y-%m-%d}: add "
            "--new-authority, and hand certificates/ca.crt to all sites"
        )
    return authority


def _read_authority(key: Path, certificate: Path) -> Authority:
    check_private([], secret=[key])
    try:
        return Authority.read(key.read_bytes(), certificate.read_bytes())
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise InputError(f"{key} and {certificate} are no authority: {error}") from error


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


def _check_own(
    federation: Federation, path: Path, certificate: x509.Certificate, key: Path
) -> None:
    """Raise an error for a certificate of another key or host, or one that is not valid now."""
    if certificate.public_key() != _private_key(key).public_key():
        raise InputError(f"{path} is not for the key in {key}")
    names = _names_of(certificate)
    if not {federation.host, f"*.{federation.host.partition('.')[2]}"} & {*names}:
        whom = ", ".join(names) or "nobody"
        raise InputError(f"{path} is for {whom}, and sites reach {federation.host}")
    now = datetime.now(UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise InputError(
            f"{path} is valid from {certificate.not_valid_before_utc:%Y-%m-%d} to "
            f"{certificate.not_valid_after_utc:%Y-%m-%d} only"
        )


def _names_of(certificate: x509.Certificate) -> list[str]:
    try:
        kind = x509.SubjectAlternativeName
        names = certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return []
    numbers = map(str, names.get_values_for_type(x509.IPAddress))
    return [*names.get_values_for_type(x509.DNSName), *numbers]


def _check_vouched(path: Path, chain: list[x509.Certificate], authority: Path) -> None:
    """Raise an error for a certificate that does not lead to an authority in a file."""
    for signed in chain:
        for root in certificates(authority):
            try:
                signed.verify_directly_issued_by(root)
            except (ValueError, TypeError, InvalidSignature):
                continue
            return
    raise InputError(f"{authority} does not vouch for {path}: name the authority that signed it")


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
    if federation.insecure:
        return []
    return [federation.file(name) for name in (FLARE if federation.has_flare else (CERTIFICATE,))]


def expiry_notice(federation: Federation) -> str:
    """Return a line about a certificate that expires soon; empty if none does.

    Raises
    ------
    InputError
        If the certificate cannot be read.
    """
    if federation.insecure:
        return ""
    how = f"fedcluster federation certificate {federation.folder}"
    notices = [notice_of(path, how) for path in own_certificates(federation)]
    authority = federation.file(FLARE_AUTHORITY if federation.has_flare else AUTHORITY)
    if authority.exists():
        last = max(each.not_valid_after_utc for each in certificates(authority))
        handed = "each site its kit" if federation.has_flare else "certificates/ca.crt to all sites"
        more = f"{how} --new-authority, and hand {handed}"
        notices.append(notice_of(authority, more, last))
    return next(filter(None, notices), "")


def check_valid(federation: Federation) -> None:
    """Raise an error if the coordinator's certificate is not valid now.

    Raises
    ------
    InputError
        With its date and advice.
    """
    for path in own_certificates(federation):
        check_counts(path, f"fedcluster federation certificate {federation.folder}")


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
