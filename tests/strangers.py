"""Another user of this machine, and what he finds: for tests that run as root, on Linux."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

NOBODY = 65534

SCRIPT = """
import encodings.idna, http.client, json, os, pathlib, socket, ssl, sys
given = json.load(sys.stdin)
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})

def status(port, method, path, body):
    '''Of a request as Flower's own programs send it; without encryption, if it must be.'''
    plain = ssl._create_unverified_context()
    headers = given["headers"] | {{"content-type": "application/protobuf"}}
    ways = [(http.client.HTTPSConnection, {{"context": plain}}), (http.client.HTTPConnection, {{}})]
    for kind, how in ways:
        connection = kind("127.0.0.1", port, timeout=60, **how)
        try:
            connection.request(method, path, bytes.fromhex(body), headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            said = type(error).__name__
        finally:
            connection.close()
    return said

def can(read, path):
    try:
        return read(path) is not None
    except OSError:
        return False

def content(path):
    with open(path, "rb") as file:
        return file.read()

print(json.dumps({{
    "uid": os.getuid(),
    "asked": [status(*one) for one in given["asked"]],
    "readable": [path for path in given["paths"] if can(content, path) or can(os.listdir, path)],
    "writable": [path for path in given["paths"] if os.access(path, os.W_OK)],
    "cmdlines": [content(f"/proc/{{pid}}/cmdline").decode() for pid in given["pids"]],
    "inside": [path for pid in given["pids"]
               for path in (f"/proc/{{pid}}/environ", f"/proc/{{pid}}/mem")
               if can(content, path)]
    + [pid for pid in given["pids"] if can(os.listdir, f"/proc/{{pid}}/fd")],
}}))
"""


def stranger(
    asked: Iterable[tuple[int, str, str, bytes]] = (),
    paths: Iterable[Path] = (),
    pids: Iterable[int] = (),
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    """What another user gets to see: statuses of requests, files, and what processes show."""
    given = {
        "asked": [(port, method, path, body.hex()) for port, method, path, body in asked],
        "paths": list(map(str, paths)),
        "pids": list(pids),
        "headers": headers or {},
    }
    done = subprocess.run(
        [sys.executable, "-I", "-c", SCRIPT.format(nobody=NOBODY)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["uid"] == NOBODY
    return found


def listening(pids: Iterable[int]) -> set[tuple[str, str]]:
    """The sockets at which processes listen: of which kind, and where."""
    own = {link for pid in pids for link in _links(Path(f"/proc/{pid}/fd"))}
    return {(kind, where) for kind, where, inode in _listening() if f"socket:[{inode}]" in own}


def _links(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        try:
            yield str(path.readlink())
        except OSError:
            continue


def _listening() -> Iterator[tuple[str, str, str]]:
    """Kind, place and inode of each socket of this machine that takes messages from strangers."""
    for kind, state in {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}.items():
        for line in _table(kind):
            host, _, port = line[1].partition(":")
            here = host in {"0100007F", "00000000000000000000000001000000"}
            if line[3] == state:
                yield kind, f"{'here' if here else 'everywhere'}:{int(port, 16)}", line[9]
    for line in _table("unix"):
        if int(line[3], 16) & 0x10000:  # it listens
            yield "unix", line[7] if len(line) > 7 else "", line[6]


def _table(kind: str) -> Iterator[list[str]]:
    lines = Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
    return (line.split() for line in lines)
