"""Folder by which an operator reaches the coordinator from another machine."""

from __future__ import annotations

import json
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster.federation._folder import Federation
from fedcluster.federation._operators import TOKEN
from fedcluster.federation._private import private_files
from fedcluster.io._outputs import atomic_folder

REMOTE = "operator.toml"
"""The file in it that says where the coordinator is."""


def check_remote(federation: Federation, out: Path) -> None:
    """Refuse a folder for another machine where that could not reach the coordinator.

    Raises
    ------
    InputError
        If the folder is there, or the coordinator listens to operators of its own machine only.
    """
    if out.exists():
        raise InputError(f"{out} exists; choose another --out")
    port = federation.service.rpartition(":")[2]
    if federation.insecure or port == "0":
        raise InputError(
            f"operators are listened to at {federation.service} only: in "
            f"{federation.file('federation.toml')}, set service to an address that others reach, "
            'such as service = "0.0.0.0:8444", and start the coordinator anew'
        )


@private_files()
def write_remote(federation: Federation, out: Path, token: str) -> None:
    """Write the folder: where the coordinator is, what vouches for it, and the token."""
    host, _, port = federation.service.rpartition(":")
    reached = federation.host if host in {"0.0.0.0", "[::]"} else host
    files = {
        REMOTE: f'coordinator = {json.dumps(f"{reached}:{port}")}\ncertificate = "ca.crt"\n',
        "ca.crt": federation.file("certificates", "ca.crt").read_text("utf-8"),
        TOKEN: f"{token}\n",
    }
    with atomic_folder(out) as partial:
        for name, text in files.items():
            (partial / name).write_text(text, encoding="utf-8")
