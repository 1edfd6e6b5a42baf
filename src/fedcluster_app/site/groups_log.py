"""What the log of a site tells of its groups: the digest of each file of groups, as written last.

A file of before would let rows be grouped a second time. So a file is used only if it is the one
that was written last, or its successor: a kill may come between a file and its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from fedcluster.errors import InputError
from fedcluster.privacy.partition import Partition
from fedcluster_app.records import record
from fedcluster_app.trust.audit_log import AuditLog, Line, has_left, head_of, read_log

LOG, MEGABYTES = "audit.jsonl", 64
"""The log of a site by default, and the size from which on a new file of it is started."""
WRITTEN = "the groups were written"
"""Event of the log: what is in which group has changed."""
TWICE = (
    "put back the newest copy, as without it rows would be grouped a second time, which tells of "
    "single ones; if there is none, answer with a privacy budget instead of groups"
)


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
                f"{self.name} does not tell of them: write the same log and name into both"
            )
        if kept.log and any(map(has_left, read_log(self._path))):
            raise InputError(
                f"{file} is not this site's, or {self.name} is an older copy, which does not tell "
                f"of it: {TWICE}"
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
