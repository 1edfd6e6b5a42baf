"""The folder of a federation: certificates, keys, instructions, and a folder for each site."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcluster.core.files import atomic_write, write_json
from fedcluster.errors import InputError
from fedcluster.texts import command_line
from fedcluster_app.coordinator.certificates import issue
from fedcluster_app.coordinator.operators import OPERATORS, TOKEN, first_files
from fedcluster_app.records import load_record
from fedcluster_app.tables.outputs import atomic_folder
from fedcluster_app.trust.identity import SYSTEM, Address, system_store
from fedcluster_app.trust.owned_files import check_private, finish, locked, private_files
from fedcluster_app.trust.permits import GRANTED, Permit, coordinator_identity, load_key, sign

FIRST_ROWS = "first-rows.json"
"""File in a federation's folder with the number of rows that each site first reported."""


def check_bounds(
    rows: Mapping[str, float], ranges: Mapping[str, tuple[float, float]], sites: Collection[str]
) -> None:
    """Check the largest numbers of rows of sites and the bounds of columns.

    Raises
    ------
    InputError
        If a site does not exist, a number of rows is not valid, or the bounds of a column are not
        two finite numbers in increasing order.
    """
    for site, most in rows.items():
        if site not in sites:
            raise InputError(f"rows of {site!r}: the federation has no such site")
        # The largest number of rows that can be stated.
        if not 0 < most <= 1e12:
            raise InputError(f"rows of {site!r} must be a number above 0, not {most!r}")
    for column, (low, high) in ranges.items():
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InputError(f"the bounds of {column!r} must be numbers, not {[low, high]}")
        if low >= high:
            raise InputError(f"the bounds of {column!r} must go up, not from {low:g} to {high:g}")


def first_rows(path: Path) -> dict[str, float]:
    """Return the number of rows that each site first reported, from a file.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    remedy = "; delete it to ask sites anew"
    return load_record(path, dict[str, float], remedy=remedy) if path.exists() else {}


def keep_first_rows(path: Path, rows: Mapping[str, float]) -> None:
    """Record the numbers of rows of the sites that are not in the file yet."""
    before = first_rows(path)
    if rows.keys() - before.keys():
        write_json(path, {**rows, **before})


CANCEL = "cancel"
"""File in the folder of a run that marks it as cancelled."""
SERVICE = "127.0.0.1:0"
"""Default address at which the coordinator listens to operators: loopback, any free port."""
ADDRESS = "service.json"
"""File with the address at which the coordinator listens to operators while it runs."""
TEMPLATES = Path(__file__).with_name("templates")
INNER = "certificates certificates/* flower keys keys/* permits runs *.toml *.json *.jsonl"
SECRET = ("certificates/*.key", OPERATORS, TOKEN)
"""Paths in a federation's folder that only its owner may read and write."""

SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class Federation:
    """A federation, as described by its folder.

    Parameters
    ----------
    folder : Path
        The folder.
    address : str
        HOST:PORT at which the sites reach the coordinator.
    sites : tuple of str
        The names of the sites.
    rows : mapping of str to float
        The largest number of rows, for each site for which one is stated.
    ranges : mapping of str to (float, float)
        The public bounds of columns, in their own units, if any.
    bind : str, optional
        The IP address at which the coordinator listens; for the default see `Address`.
    service : str
        HOST:PORT at which the coordinator listens to operators; port 0 is any free one.
    """

    folder: Path
    address: str
    sites: tuple[str, ...]
    rows: Mapping[str, float] = field(default_factory=dict, hash=False)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    bind: str | None = None
    service: str = SERVICE

    def __post_init__(self) -> None:
        check_bounds(self.rows, self.ranges, self.sites)

    @classmethod
    def load(cls, folder: Path) -> Federation:
        """Read ``federation.toml`` in a folder.

        Raises
        ------
        InputError
            If it is missing or damaged, or others may write in the folder or read its keys.
        """
        path = folder / "federation.toml"
        globs = INNER.split(), SECRET
        inner, secret = ([p for g in each for p in folder.glob(g)] for each in globs)
        check_private([folder, *inner], secret=secret)
        finish(folder)
        if (folder / "operator.toml").exists() and not path.exists():
            raise InputError(f"{folder} is an operator's: give this command at the coordinator")
        if not path.exists():
            how = command_line("federation", "new", folder)
            raise InputError(f"{path} does not exist; {how} makes it")
        return load_record(path, cls, folder=folder.resolve())

    @property
    def place(self) -> Address:
        """The address, with where the coordinator listens."""
        return Address.read(self.address, self.bind)

    @property
    def host(self) -> str:
        """The host of the address."""
        return self.place.host

    @property
    def port(self) -> int:
        """The port of the address."""
        return self.place.port

    @property
    def authority(self) -> Path:
        """The file of the authority that vouches for the coordinator."""
        own = self.file("certificates", "ca.crt")
        return own if own.exists() else system_store()

    @property
    def has_flare(self) -> bool:
        """Whether FLARE carries the runs, which is so if there are startup kits."""
        return self.file("flare").is_dir()

    def file(self, *parts: str) -> Path:
        """Return the path of a file in the folder."""
        return self.folder.joinpath(*parts)


@private_files()
def create(
    folder: Path,
    sites: Sequence[str],
    address: str,
    *,
    bind: str | None = None,
    authority_key: Path | None = None,
) -> Federation:
    """Write the folder of a new federation, completely or not at all.

    Parameters
    ----------
    folder : Path
        The folder, which must not exist or be empty.
    sites : sequence of str
        The names of the sites.
    address : str
        HOST:PORT at which the sites will reach the coordinator.
    bind : str, optional
        As in `Federation`.
    authority_key : Path, optional
        Where to write the key of the authority, for example on a medium that is locked away; by
        default ``certificates/ca.key``.

    Raises
    ------
    InputError
        If a name, the address or a bound is invalid, or the folder or file is not empty.
    """
    check_sites(sites)
    names = tuple(sorted(sites))
    place = Address.read(address, bind)
    federation = Federation(folder.absolute(), str(place), names, bind=bind)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder; choose another")
    files = _pages(federation) | issue(place.names, federation.sites) | first_files()
    if authority_key is not None:
        write_new(authority_key, files.pop("certificates/ca.key"))
    with atomic_folder(folder) as partial:
        for name, content in files.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return federation


@contextmanager
def changing(folder: Path) -> Iterator[Federation]:
    """Yield a federation that nobody else can change within the block."""
    with private_files(), locked(Federation.load(folder).folder):
        yield Federation.load(folder)


@private_files()
def grant(federation: Federation, **terms: Any) -> Path:
    """Write and sign a permit in the folder of a federation; return its file.

    Parameters
    ----------
    federation : Federation
        The federation.
    **terms : object
        The fields of `Permit` except the coordinator; by default, ``sites`` are all sites.

    Raises
    ------
    InputError
        If a term is invalid, the federation lacks such a site or has no certificates, or there is
        another permit with this id.
    """
    sites = terms.pop("sites", None) or federation.sites
    if unknown := sorted(set(sites) - set(federation.sites)):
        raise InputError(f"{federation.folder} has no site {unknown[0]!r}")
    own = federation.file("certificates", "ca.crt")
    who = coordinator_identity(own if own.exists() else None, federation.host)
    permit = Permit(coordinator=who, sites=tuple(sites), **terms)
    permit.check(f"permit {permit.id!r}")
    path = federation.file("permits", f"{permit.id}.toml")
    if path.exists():
        raise InputError(f"{path} exists; give the permit another id")
    path.parent.mkdir(exist_ok=True)
    key = load_key(federation.file("certificates", "permit.key"))
    sign(path.with_suffix(".sig"), permit, GRANTED, key)
    with atomic_write(path) as temporary:
        temporary.write_text(permit.text(), encoding="utf-8")
    return path


def check_sites(sites: Sequence[str], where: str = "--sites") -> None:
    """Raise an error for invalid or duplicate names of sites.

    Raises
    ------
    InputError
        With the first such name.
    """
    for name in sites:
        if not SITE_NAME.fullmatch(name):
            raise InputError(
                f"site name {name!r}: use letters, digits, - and _, at most 40 of them, and "
                "begin with a letter or digit"
            )
    if twice := next((name for name in sites if sites.count(name) > 1), None):
        raise InputError(f"{where} names {twice!r} twice")
    if len({name.casefold() for name in sites}) < len(sites):
        raise InputError(f"two names of {where} differ in capital letters only; rename one")


def write_new(path: Path, content: bytes) -> None:
    """Write a secret into a new file, private to this user.

    Raises
    ------
    InputError
        If the file exists or cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except FileExistsError as error:
        raise InputError(f"{path} exists; choose another file") from error
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def _pages(federation: Federation) -> dict[str, bytes]:
    """Return the texts for a federation, from ``templates/``, by file name."""
    pages = {"federation.toml": described(federation), "README.md": readme(federation)}
    for site in federation.sites:
        for name, text in site_pages(federation, site).items():
            pages[f"sites/{site}/{name}"] = text
    return pages


def readme(federation: Federation) -> bytes:
    """Return the instructions in the folder of a federation for its coordinator."""
    address, folder = federation.address, federation.folder.name
    text = _template("README.md").format(
        n=len(federation.sites),
        address=address,
        handed=", ".join(f"`sites/{name}`" for name in federation.sites),
        folder=folder,
        security=_template(f"{_kind(federation)}/security.md").format(address=address).rstrip(),
    )
    return text.encode()


def _kind(federation: Federation) -> str:
    """Return the folder of the templates for this federation's kind of authentication."""
    return "flare" if federation.has_flare else "secure"


def site_pages(federation: Federation, site: str) -> dict[str, bytes]:
    """Return the texts for a site's folder, by file name."""
    by_flare = federation.has_flare
    values = {
        "site": site,
        "address": federation.address,
        "quoted_site": json.dumps(site),
        "quoted_address": json.dumps(federation.address),
        "credentials": _credentials(federation),
        "extra": "flare" if by_flare else "flower",
        "keep": _template(f"{_kind(federation)}/keep.md"),
    }
    templates = {"site.toml": "site.toml", "README.md": "site.md", "state/files.md": "state.md"}
    return {name: _template(file).format(**values).encode() for name, file in templates.items()}


def _credentials(federation: Federation) -> str:
    """Return the lines of a site file that authenticate both ends."""
    text = _template("secure/credentials.toml")
    is_new = not federation.file("certificates", "server.crt").exists()
    if is_new or federation.file("certificates", "ca.crt").exists():
        return text
    return text.replace('"state/ca.crt"', json.dumps(SYSTEM))


def described(federation: Federation) -> bytes:
    """Return the content of ``federation.toml``."""
    tables: dict[str, Mapping[str, Any]] = {"rows": federation.rows, "ranges": federation.ranges}
    names = ("address", "bind", "sites", "service")
    plain = {name: getattr(federation, name) for name in names}
    lines = [f"{name} = {json.dumps(value)}" for name, value in plain.items() if value is not None]
    for title, table in tables.items():
        if table:
            quoted = (json.dumps(name, ensure_ascii=False) for name in table)
            values = map(json.dumps, table.values())
            lines += ["", f"[{title}]", *map(" = ".join, zip(quoted, values, strict=True))]
    return "\n".join([*lines, ""]).encode()


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")
