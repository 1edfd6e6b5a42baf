"""Log of a site's questions and of what left it: lines of JSON, chained by their hashes.

A line contains the hash of the line before it and ends with its own, the SHA-256 of everything
before it. So a changed, removed, inserted or moved line breaks the chain. A head file beside the
log names the last line, so that truncation is noticed. A full file is renamed to
``audit-0001.jsonl``, and the next one continues the chain. Its first line names the oldest file
that is still there; those before it are removed.

Hashes leave the site: each reply contains the last one. A coordinator knows or guesses nearly all
of a line, so each line also contains random bits. Without them, the hash would confirm guesses,
such as that of the smallest weight in a masked answer.

Anyone who can write these files can also write a new chain from the start. Only a hash kept by
somebody else reveals that; see `verify`.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from fedcluster.core.files import atomic_write, lock, private_file, write_durably
from fedcluster.errors import InputError
from fedcluster.privacy.partition import Partition
from fedcluster_app.records import load_record, record

Line = dict[str, Any]
"""One line of the log, which never contains a value of a row."""

BEGUN, REPAIRED = "begun", "repaired"
"""Events: a file of the log begins; half a line, left by a crash, was set aside."""
LOG, MEGABYTES = "audit.jsonl", 64
"""The log of a site by default, and the size from which on a new file of it is started."""
WRITTEN = "the groups were written"
"""Event of the log: what is in which group has changed."""
TWICE = (
    "put back the newest copy, as without it rows would be grouped a second time, which reveals "
    "single "
    "rows; if there is none, answer with a privacy budget instead of groups"
)

LOST = "files before it were removed"
OTHER = "{} is not the log that was written here: put a copy back"
MARK = b',"hash":"'
"""Separator of the content of a line and its hash."""


@dataclass(frozen=True, slots=True)
class Head:
    """End of a log, and a summary of its lines.

    Parameters
    ----------
    line : int
        The number of the last line, from 1; 0 before the first.
    hash : str
        Its hash.
    log, site : str
        The random name of the log, and the site.
    part : int
        The number of the file, from 1.
    oldest : int
        That of the oldest file that was not removed.
    latest : str
        The latest time in the log, which never goes back even if the clock does.
    permits : mapping of str to mapping
        The state of each permit.
    spent : float
        The privacy cost rho so far, if there is a budget.
    groups : mapping of str to str
        The digest of each file of groups, as it was written last.
    coordinator : str
        The number and hash of the last line of the coordinator's log, as the newest run told it.
    newest : str
        The name of that run.
    """

    line: int = 0
    hash: str = ""
    log: str = ""
    site: str = ""
    part: int = 0
    oldest: int = 1
    latest: str = ""
    permits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    spent: float = 0.0
    groups: Mapping[str, str] = field(default_factory=dict)
    coordinator: str = ""
    newest: str = ""

    def after(self, line: Line, own_hash: str) -> Head:
        """Return the head after a line is written."""
        return Head(
            line["line"],
            own_hash,
            line.get("log", self.log),
            line.get("site", self.site),
            line.get("part", self.part),
            line.get("oldest", self.oldest),
            max(self.latest, line["time"]),
            {**self.permits, **line.get("permits", {})},
            max(self.spent, line.get("spent", 0.0)),
            {**self.groups, **line.get("groups", {})},
            line.get("coordinator", self.coordinator),
            line["run"] if line.get("coordinator") else self.newest,
        )


class AuditLog:
    """The log of one site, which several processes may write.

    Parameters
    ----------
    path : Path
        The file, beside which are the head, the lock and older files.
    site : str
        The name of the site, for the first line.
    largest : int
        Size in bytes from which on the file is renamed and a new one started.
    """

    kept = 15
    """Number of older files that stay: with the default size, a log takes 1 GB at most."""

    # Default size in bytes from which on a file of the log is full.
    def __init__(self, path: Path, site: str, largest: int = 64 << 20) -> None:
        self.path, self._site, self._largest = path, site, largest
        self._head, self._file, self._offset = Head(), 0, 0
        self._seen = Head()  # the end of the log when this program last held it

    @contextmanager
    def locked(self) -> Iterator[Head]:
        """Keep other processes from writing within the block; yield the head.

        Raises
        ------
        InputError
            If the chain is broken, the log was truncated, or it cannot be read or written.
        """
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            with private_file(self.path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT) as held:
                lock(held)
                self._catch_up()
                yield self._head
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error}") from error

    def append(self, entry: Callable[[Head], Line]) -> Head:
        """Write a line, which is on disk when this returns.

        Parameters
        ----------
        entry : callable taking a Head
            Returns the content of the line, given the head before it; its errors are passed on.
        """
        with self.locked() as head:
            if self._offset > self._largest:
                older = f"{self.path.stem}-{head.part:04}{self.path.suffix}"
                self.path.rename(self.path.with_name(older))
                self._begin()
            self._write(entry(self._head))
            return self._head

    def _catch_up(self) -> None:
        """Read what was written since; start the log, or a new file of it, if necessary."""
        content = self._unread()
        whole = content[: content.rfind(b"\n") + 1]
        if whole:
            self._follow(whole)
        if self._offset:
            self._check_same()
        if torn := content[len(whole) :]:
            self._set_aside(torn)
        elif not self._offset:
            self._resume()
        self._seen = self._head

    def _unread(self) -> bytes:
        """Return what was written since, of a file that goes on as it was; or all of a new one."""
        try:
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())
                if about.st_ino != self._file:
                    self._file, self._offset, self._head = about.st_ino, 0, Head()
                if about.st_size < self._offset:
                    raise InputError(f"{self.path} is shorter than it was: lines were cut off")
                tail = MARK + self._head.hash.encode() + b'"}\n' if self._offset else b""
                file.seek(self._offset - len(tail))
                if not (content := file.read()).startswith(tail):
                    raise InputError(OTHER.format(self.path))
                return content[len(tail) :]
        except FileNotFoundError:  # none yet, or renamed or removed since
            self._file, self._offset, self._head = 0, 0, Head()
            return b""

    def _check_same(self) -> None:
        """Raise an error for a log that does not go on with what this program saw or wrote."""
        is_other = self._seen.log and self._head.log != self._seen.log
        if is_other or self._head.line < self._seen.line:
            raise InputError(OTHER.format(self.path))

    def _follow(self, whole: bytes) -> None:
        """Move to the end of lines that another process wrote, or of a log that is opened."""
        self._head = _last(_chain(whole, self._head, self.path), self._head)
        if not self._offset:
            _check_end(self.path, whole, self._head)
            if self._head.site != self._site:
                _complain(self.path, 1, f"the log is of site {self._head.site!r}")
            if not self.path.with_suffix(".head").exists():  # a crash may leave the first line only
                self._keep_head()
        self._offset += len(whole)

    def _set_aside(self, torn: bytes) -> None:
        """Move half a line, left by a crash, out of the log, and log this."""
        aside = self.path.with_suffix(".torn")
        write_durably(aside, torn + b"\n")
        os.truncate(self.path, self._offset)
        if not self._offset:
            self._resume()
        about = {"bytes": len(torn), "sha256": sha256(torn).hexdigest(), "file": aside.name}
        self._write({"event": REPAIRED, **about})

    def _resume(self) -> None:
        """Start a log, or its next file if the previous one was renamed in a crash."""
        self._head = Head()
        if parts := _check_there(self.path):
            content = parts[-1].read_bytes()
            self._head = _last(_chain(content, Head(), parts[-1]), Head())
            _check_end(self.path, content, self._head)
        self._check_same()
        self._begin()

    def _begin(self) -> None:
        """Write the first line of a file, which repeats the summary of earlier ones; remove old."""
        head = self._head
        self._file = self._offset = 0
        entry = {"event": BEGUN, "log": head.log or secrets.token_hex(16), "site": self._site}
        state: Line = {"permits": dict(head.permits)} | (
            {"spent": head.spent} if head.spent else {}
        )
        state |= {"groups": dict(head.groups)} if head.groups else {}
        if head.coordinator:
            state |= {"coordinator": head.coordinator, "run": head.newest}
        part = head.part + 1
        oldest = {"oldest": part - self.kept} if part > self.kept + 1 else {}
        self._write({**entry, "part": part, **oldest, **state})
        for path in parts_of(self.path)[: -self.kept]:
            path.unlink()
        self._file = self.path.stat().st_ino

    def _write(self, entry: Line) -> None:
        head = self._head
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        # Number of random bytes in each line, so that it cannot be guessed.
        salt = secrets.token_hex(16)
        line = {"line": head.line + 1, "previous": head.hash, "time": now, "salt": salt, **entry}
        body = json.dumps(line, separators=(",", ":"))[:-1].encode()
        own_hash = sha256(body).hexdigest()
        raw = body + MARK + own_hash.encode() + b'"}\n'
        write_durably(self.path, raw)
        self._offset += len(raw)
        self._head = self._seen = head.after(line, own_hash)
        self._keep_head()

    def _keep_head(self) -> None:
        with atomic_write(self.path.with_suffix(".head")) as temporary:
            end = {"part": self._head.part, "line": self._head.line, "hash": self._head.hash}
            write_durably(temporary, json.dumps(end).encode())


def parts_of(path: Path) -> list[Path]:
    """Return the older files of a log, in order."""
    return sorted(path.parent.glob(f"{path.stem}-[0-9][0-9][0-9][0-9]{path.suffix}"))


def _check_there(path: Path) -> list[Path]:
    """Return the older files of a log that is not there; raise an error if it was begun."""
    parts, head = parts_of(path), path.with_suffix(".head")
    if not parts and head.exists():
        raise InputError(f"{path} is gone, and {head.name} tells of it: put back a copy")
    return parts


def read_log(path: Path) -> Iterator[Line]:
    """Yield the lines of a log, including its older files; none if there is no log.

    Raises
    ------
    InputError
        At a line that was changed.
    """
    for each in (*parts_of(path), path):
        content = _content(each) if each.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]  # the last line may be incomplete
        yield from (line for line, _ in _chain(whole, Head(), each))


def head_of(path: Path) -> Head:
    """Return the end of a log from its newest file, and change nothing.

    Raises
    ------
    InputError
        If that file was changed.
    """
    head = Head()
    for each in [each for each in (*parts_of(path), path) if each.exists()][-1:]:
        content = _content(each)
        whole = content[: content.rfind(b"\n") + 1]  # the last line may be incomplete
        head = _last(_chain(whole, head, each), head)
    return head


def has_line(path: Path, known: str) -> bool:
    """Return whether a log has the line with a hash, in any of its files."""
    files = [each for each in (path, *reversed(parts_of(path))) if each.exists()]
    return any(MARK + known.encode() + b'"' in _content(each) for each in files)


def has_left(line: Line) -> bool:
    """Return whether a line of the log records an answer."""
    return "question" in line and "refused" not in line


def verify(path: Path, known: str = "") -> tuple[Head, int | None]:
    """Check a log, with all its files, line by line.

    Parameters
    ----------
    path : Path
        The log.
    known : str
        The hash of a line, or its first digits, kept by somebody else.

    Returns
    -------
    head : Head
        The end of the log.
    known_line : int or None
        The line with the known hash, up to which the log is unchanged.

    Raises
    ------
    InputError
        With the file and the line at which the chain breaks, or with what is missing.
    """
    end, known_line, begins = Head(), None, 0
    with ExitStack() as stack:
        with suppress(PermissionError, FileNotFoundError):  # a copy may have no lock
            lock(stack.enter_context(path.with_suffix(".lock").open("rb")), shared=True)
        files = [*parts_of(path), path]
        if not (path.exists() and path.stat().st_size):
            files = _check_there(path) or files
        for each in files:
            content = _content(each)
            whole = content[: content.rfind(b"\n") + 1]
            for _, head in _chain(whole, end, each):
                begins, end = begins or head.part, head
                if known and known_line is None and head.hash.startswith(known):
                    known_line = head.line
        if begins > end.oldest:
            _complain(files[0], 1, f"{LOST}: the log begins with file {end.oldest}")
        _check_end(path, content, end)
        if whole != content:
            what = "is half a line, left by a crash; the program sets it aside when it starts"
            _complain(path, whole.count(b"\n") + 1, what)
    return end, known_line


def _chain(content: bytes, head: Head, path: Path) -> Iterator[tuple[Line, Head]]:
    """Yield the lines of a file and the head after each; the log, or a file of it, begins there."""
    for number, raw in enumerate(content.split(b"\n")[:-1], 1):
        body, _, end = raw.rpartition(MARK)
        own_hash = sha256(body).hexdigest()
        if end != f'{own_hash}"}}'.encode():
            _complain(path, number, "was changed: its hash is not that of its content")
        try:
            line = json.loads(body + b"}")
            begins, after = line.get("event") == BEGUN, head.after(line, own_hash)
        except (ValueError, LookupError, TypeError, AttributeError):
            _complain(path, number, "is not a line of such a log")
        follows = (line["line"], line["previous"]) == (head.line + 1, head.hash)
        if (head.line or not begins or line.get("part") == 1) and not follows:
            lost = LOST if begins else "lines were changed, put in, moved or removed"
            _complain(path, number, f"does not follow from the line before: {lost}")
        head = after
        yield line, head


def _last(chain: Iterator[tuple[Line, Head]], head: Head) -> Head:
    for _, head in chain:  # noqa: B007
        pass
    return head


class _End(Struct):
    """Content of the head file about the last line."""

    line: int
    hash: str


def _check_end(path: Path, content: bytes, head: Head) -> None:
    """Compare the end of a log, in its last file, with the head file."""
    beside = path.with_suffix(".head")
    if not beside.exists():
        if head.line > 1:
            raise InputError(
                f"{beside} is gone: nothing tells whether lines of {path.name} were cut off"
            )
        return
    end = load_record(beside, _End)
    if end.line > head.line:
        raise InputError(
            f"{path}: lines were cut off: it ends with line {head.line} of the log, and "
            f"{beside.name} tells of line {end.line}"
        )
    if f'"{end.hash}"'.encode() not in content:
        raise InputError(
            f"{path}: line {end.line} of the log differs from what {beside.name} tells of"
        )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _complain(path: Path, line: int, what: str) -> NoReturn:
    raise InputError(f"{path}, line {line}: {what}")


class _Log(Struct):
    log: str = LOG
    log_megabytes: int = MEGABYTES


class GroupsLog:
    """The lines of a site's log about its groups.

    Parameters
    ----------
    site : str
        The name of the site.
    folder : Path
        The folder of the site file.
    federation : mapping
        The table of the site file that names the log.
    """

    def __init__(self, site: str, folder: Path, federation: Mapping[str, Any]) -> None:
        keys = {key: federation[key] for key in _Log.__struct_fields__ if key in federation}
        named = record(keys, _Log)
        self.name, self._folder = named.log, folder
        self._path = folder / named.log
        self._log = AuditLog(self._path, site, named.log_megabytes << 20)

    def check(self, file: Path, kept: Partition | None) -> None:
        """Check that a file of groups is the one that was written last, or its successor.

        Parameters
        ----------
        file : Path
            The file.
        kept : Partition or None
            Its content; None if it is missing.

        Raises
        ------
        InputError
            If it is missing though rows were grouped, older than the log, or another site's.
        """
        head = head_of(self._path)
        known = head.groups.get(file.name)
        if kept is None:
            if known or (not head.groups and any(map(_of_groups, read_log(self._path)))):
                raise InputError(
                    f"{file} is missing, and answers have left, as {self.name} shows: {TWICE}"
                )
            return
        if known is None:
            self._check_first(file, kept)
        elif known not in {kept.digest, kept.previous}:
            raise InputError(f"{file} {self._what(file.name, kept.digest)}: {TWICE}")

    def _check_first(self, file: Path, kept: Partition) -> None:
        """Check a file of which the log does not tell, as it has not heard of any yet."""
        if kept.log not in {"", self.name} and (self._folder / kept.log).exists():
            raise InputError(
                f"{file}: its rows were grouped for a site file with the log {kept.log}, and "
                f"{self.name} does not mention them: write the same log and name into both site "
                "files"
            )
        if kept.log and any(map(has_left, read_log(self._path))):
            raise InputError(
                f"{file} is not this site's, or {self.name} is an older copy that does not mention "
                f"it: {TWICE}"
            )

    def _what(self, name: str, digest: str) -> str:
        """Return what a file is that is not the last one."""
        for line in read_log(self._path):
            if line.get("groups", {}).get(name) == digest:
                when = line["time"][:16].replace("T", " ")
                return f"is a copy of {when}, and groups were made since, as {self.name} shows"
        return f"is not the file of which {self.name} tells, but older, or another site's"

    def note(self, file: Path, digest: str) -> None:
        """Write the digest of a file into the log, unless it is the last one there."""
        if head_of(self._path).groups.get(file.name) != digest:
            self._log.append(lambda _head: {"event": WRITTEN, "groups": {file.name: digest}})


def _of_groups(line: Line) -> bool:
    """Return whether a line records an answer that was made of groups."""
    limits = line.get("told", {}).get("limits", ())
    return has_left(line) and any(each["name"] == "Groups" for each in limits)
