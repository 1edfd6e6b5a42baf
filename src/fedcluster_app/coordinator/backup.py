"""A federation in one encrypted file, and back in any folder: age (pyrage) around a tar file.

The program ``age`` opens such a file, too.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pyrage

from fedcluster.core.files import atomic_write
from fedcluster.errors import InputError, reason
from fedcluster_app.coordinator.folder import ADDRESS, Federation, changing
from fedcluster_app.coordinator.operators import noted, operators_log
from fedcluster_app.tables.outputs import atomic_folder
from fedcluster_app.trust.owned_files import private_files

LEFT_OUT = ("flower", "logs", "sites", ADDRESS)
"""What a federation does not need to go on: it is made again, or belongs to the sites."""

OF_FLARE = {"server": ("startup", "local"), "lead": ("startup", "local")}
"""Folders of FLARE's kits that are kept; the others are of its programs."""

STATES = ("outcome.json", "state.json")
"""Files of a run that are read first: what they tell is then in the files that are read later."""


def back_up(folder: Path, file: Path, passphrase: str) -> int:
    """Write a federation into an encrypted file; return the number of its files.

    The coordinator may run meanwhile: a run is kept as it was at some moment, and can be resumed.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    file : Path
        The file, which is replaced whole.
    passphrase : str
        What opens the file.

    Raises
    ------
    InputError
        If the folder cannot be read, or the file cannot be written.
    """
    home = Federation.load(folder).folder
    if file.resolve().is_relative_to(home):
        raise InputError(f"{file} is in {folder}: write the backup elsewhere")
    noted(home, "backed up", file=file.name)
    with changing(home), operators_log(home).locked():
        packed, n = _packed(home)
    try:
        with private_files(), atomic_write(file) as temporary:
            temporary.write_bytes(pyrage.passphrase.encrypt(packed, passphrase))
    except OSError as error:
        raise InputError(f"{file} cannot be written: {reason(error)}") from error
    return n


def _packed(folder: Path) -> tuple[bytes, int]:
    """Return the kept files of a folder as a tar file, and their number."""
    packed, n = io.BytesIO(), 0
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for path in _kept(folder):
            with suppress(FileNotFoundError):  # a running job may remove its files
                content = path.read_bytes()
                member = tarfile.TarInfo(path.relative_to(folder).as_posix())
                member.size, member.mode, n = len(content), 0o600, n + 1
                archive.addfile(member, io.BytesIO(content))
    return packed.getvalue(), n


def _kept(folder: Path) -> Iterator[Path]:
    """Yield the files of a federation that a backup has, in an order in which they agree."""
    for state in STATES:
        yield from sorted(folder.glob(f"runs/*/{state}"))
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") for part in parts) or path.suffix in {".lock", ".partial"}:
            continue
        if parts[0] in LEFT_OUT or (parts[0] == "flare" and not _is_of_kit(parts)):
            continue
        if path.is_file() and not (parts[0] == "runs" and path.name in STATES):
            yield path


def _is_of_kit(parts: tuple[str, ...]) -> bool:
    """Return whether a path in ``flare`` is more than what FLARE's programs write."""
    return len(parts) < 3 or parts[1] not in OF_FLARE or parts[2] in OF_FLARE[parts[1]]


def restore(file: Path, folder: Path, passphrase: str) -> Federation:
    """Write the federation of a backup into a new folder, whole or not at all.

    Parameters
    ----------
    file : Path
        The backup.
    folder : Path
        The folder, which must not exist or be empty.
    passphrase : str
        What opens the file.

    Raises
    ------
    InputError
        If the passphrase is another one, the file is damaged, or the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder; choose another")
    try:
        packed = pyrage.passphrase.decrypt(file.read_bytes(), passphrase)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {reason(error)}") from error
    except pyrage.DecryptError as error:
        raise InputError(
            f"{file} cannot be opened: the passphrase is wrong, or the file is no backup ({error})"
        ) from error
    with private_files(), atomic_folder(folder) as partial:
        _unpack(packed, partial, file)
    noted(folder, "restored", file=file.name)
    return Federation.load(folder)


def _unpack(packed: bytes, into: Path, file: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        for member in archive:
            name, content = PurePosixPath(member.name), archive.extractfile(member)
            if content is None or name.is_absolute() or ".." in name.parts:
                raise InputError(f"{file} holds {member.name!r}, which is no file of a backup")
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
