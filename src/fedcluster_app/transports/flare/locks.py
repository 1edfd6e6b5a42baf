"""Locks of a FLARE startup kit, without which rows may leave a site: written and checked.

As provisioned, a kit streams a site's error log to the server, lets administrators read a site's
files, and lets project leads supply their own code.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from fedcluster.core.files import write_json
from fedcluster.errors import InputError
from fedcluster.texts import command_line
from fedcluster_app.records import load_record
from fedcluster_app.tables.outputs import atomic_folder
from fedcluster_app.trust.owned_files import is_foreign, private_files

TOPIC = "fedcluster"
"""Topic of questions on FLARE's auxiliary channel."""

EXECUTOR = "fedcluster_app.transports.flare._site.SiteExecutor"
"""The only class that a job may name at a site."""

CONTROLLER = "fedcluster_app.transports.flare._server.RunController"
"""The only class that a job may name at the server."""

ADMISSION = "fedcluster_app.transports.flare._server.Admission"
"""The component of FLARE's server that refuses kits whose keys do not count."""

USED = "used.json"
"""File in the server's kit with the digests of the keys with which sites have connected."""

CLASSES = {"site": EXECUTOR, "server": CONTROLLER}
STARTUP = {"site": "fed_client.json", "server": "fed_server.json", "admin": "fed_admin.json"}
"""The file in ``startup/`` that shows the kind of kit."""

PLACES = {"site": "../site.toml", "server": "../.."}
"""The site file of a site's kit, and the federation's folder of the server's."""

MOST_SILENT = 60
"""Seconds after which a silent client counts as gone; FLARE's default is 600."""

NEVER = ("byoc", "shell_commands")
"""Rights that nobody has: to supply code, and to read files by shell commands."""

RIGHTS = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate")
ROLES: dict[str, dict[str, str]] = {
    role: dict(zip(RIGHTS, rights.split(), strict=True))
    for role, rights in {
        "project_admin": "none none any any any any",
        "org_admin": "none none o:submitter none any o:site",
        "lead": "any none n:submitter n:submitter any none",
        "member": "none none none none any none",
    }.items()
}
"""Rights by role, besides `NEVER` and Flower's apps, which nobody may deploy either."""

NONE = dict.fromkeys((*NEVER, "server-predeployed-flwr"), "none")

INTERNAL = {"host": "localhost", "connection_security": "mtls"}
COMMUNICATION: dict[str, Any] = {
    "allow_adhoc_conns": False,
    "backbone_conn_gen": 2,
    "internal": {"scheme": "tcp", "resources": INTERNAL},
}
"""Content of ``local/comm_config.json``: local programs authenticate each other.

As provisioned, anyone who can reach the port of a program on its own machine may act as the server.
"""


def kind_of(kit: Path) -> str:
    """Return the kind of a kit: "site", "server" or "admin".

    Raises
    ------
    InputError
        If it is not a kit.
    """
    for kind, name in STARTUP.items():
        if (kit / "startup" / name).is_file():
            return kind
    raise InputError(f"{kit} is no startup kit of FLARE: it has no startup/fed_client.json")


@private_files()
def harden(kit: Path) -> None:
    """Write the locks into the kit of a site or of the server, and make it private to this user.

    Raises
    ------
    InputError
        If it is a different kind of kit, or its files cannot be read.
    """
    kind, local = kind_of(kit), kit / "local"
    if kind == "admin":
        raise InputError(f"{kit} is the kit of a person: lock those of the sites and the server")
    resources = _read(local / "resources.json", local / "resources.json.default")
    for name, locked in SETTINGS.items():
        write_json(local / name, locked(resources, kit, kind))
    for path in [kit, *kit.rglob("*")]:  # remove all rights of other users of the machine
        path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o700)


def _read(*paths: Path) -> dict[str, Any]:
    """Return the content of the first existing file."""
    there = [path for path in paths if path.exists()] or paths
    return load_record(there[0], dict[str, Any])


def _resources(now: Mapping[str, Any], kit: Path, kind: str) -> dict[str, Any]:
    """Return the resources of a kit with locks: no logs sent or received, and one class."""
    components = [each for each in now.get("components", []) if not _streams_logs(each)]
    locked = {
        **now,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CLASSES[kind]],
        "allow_log_streaming": False,
        "components": components,
    }
    if kind == "server":
        return _of_server(locked, kit.resolve() / "storage")
    # Seconds that a site waits for the answer of a server that may have ended; by default 30.
    return {**locked, "client": {**now.get("client", {}), "maint_msg_timeout": 10.0}}


def _streams_logs(component: Mapping[str, Any]) -> bool:
    named = component.get("path") or component.get("name") or component.get("class_path")
    return ".logging." in str(named)


def _of_server(locked: dict[str, Any], store: Path) -> dict[str, Any]:
    """Return a server's resources: storage of its own, one run at a time, keys that are checked."""
    locked = json.loads(json.dumps(locked))
    servers = [{**each, "heart_beat_timeout": MOST_SILENT} for each in locked.get("servers", [{}])]
    components = [each for each in locked["components"] if each.get("path") != ADMISSION]
    for each in components:
        arguments = each.setdefault("args", {})
        if each.get("id") == "job_scheduler":
            arguments |= {"max_jobs": 1, "min_schedule_interval": 1.0}
        if each.get("id") == "job_manager":
            _keep_apart(arguments, "uri_root", store / "jobs")
    with suppress(LookupError, TypeError):
        stored = locked["snapshot_persistor"]["args"]["storage"]["args"]
        _keep_apart(stored, "root_dir", store / "snapshots")
    components.append({"id": "admission", "path": ADMISSION, "args": {}})
    return {**locked, "servers": servers, "components": components}


def _keep_apart(arguments: dict[str, Any], name: str, own: Path) -> None:
    """Store in a place of the kit where another would be in a folder that all users share.

    A whole kit below a temporary folder is a trial, whose own modes keep others out.
    """
    place = Path(arguments.get(name, "/tmp"))
    shared = (Path(tempfile.gettempdir()), Path("/tmp"))
    if any(place.is_relative_to(each / "nvflare") or place == each for each in shared):
        arguments[name] = str(own)


def _authorization(now: Mapping[str, Any], _kit: Path, _kind: str) -> dict[str, Any]:
    """Return the rights by role; a role of their own has none of those that matter."""
    others = {role: {"submit_job": "none"} for role in dict(now.get("permissions", {}))}
    rights = {role: {**own, **NONE} for role, own in (others | ROLES).items()}
    return {"format_version": "1.0", "permissions": rights}


SETTINGS: dict[str, Callable[[Mapping[str, Any], Path, str], dict[str, Any]]] = {
    "resources.json": _resources,
    "authorization.json": _authorization,
    "comm_config.json": lambda *_: COMMUNICATION,
}
"""Files in ``local``, each with the function that returns it with locks."""


def lacking(kit: Path) -> list[str]:
    """Return the locks that a site's or server's kit lacks, each with the file to correct.

    Raises
    ------
    InputError
        If it is not such a kit.
    """
    kind = kind_of(kit)
    if kind == "admin":
        raise InputError(f"{kit} is the kit of a person, which has no locks")
    missing: list[str] = []
    for check in CHECKS:
        try:
            missing.extend(check(kit, kind))
        except InputError as error:  # the file cannot be read
            missing.append(str(error))
    return missing


def check_locks(kit: Path) -> None:
    """Raise an error for a kit that lacks a lock.

    Raises
    ------
    InputError
        With the first lock that is missing.
    """
    if missing := lacking(kit):
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        how = command_line("flare", "check", kit, "--harden")
        raise InputError(f"{kit} lacks a lock: {missing[0]}{more}; {how}")


def _lacking_settings(name: str, kit: Path, kind: str) -> Iterator[str]:
    """Yield what a file has that is not as `harden` would write it."""
    now = _read(kit / "local" / name)
    yield from _unlike(now, SETTINGS[name](now, kit, kind), f"local/{name}: ")


def _unlike(now: Any, locked: Any, where: str) -> Iterator[str]:
    if isinstance(locked, list) and isinstance(now, list) and {*map(type, locked)} == {dict}:
        now, locked = (
            {str(each.get("id", i)): each for i, each in enumerate(of)} for of in (now, locked)
        )
        for name in sorted(now.keys() - locked.keys()):
            yield f"{where.rstrip('.')}.{name} must go"
    if isinstance(locked, dict):
        known = now if isinstance(now, dict) else {}
        for key, value in locked.items():
            yield from _unlike(known.get(key), value, f"{where}{key}.")
    elif now != locked and not (now == "none" and ": permissions." in where):
        yield f"{where.rstrip('.')} must be {json.dumps(locked)}"


def _lacking_scheme(kit: Path, kind: str) -> Iterator[str]:
    startup = f"startup/{STARTUP[kind]}"
    served = _read(kit / startup).get("servers", [{}]) if kind == "server" else ()
    if any(each.get("service", {}).get("scheme") != "http" for each in served):
        yield f"{startup}: the scheme must be http, or no key of a kit is checked"


def _lacking_place(kit: Path, kind: str) -> Iterator[str]:
    place_of(kit, kind)
    if (kit / "local" / "custom").exists():
        yield "local/custom: FLARE would load code from there: remove it"


def place_of(kit: Path, kind: str) -> Path:
    """Return the site file beside a site's kit, or the federation's folder around the server's.

    Raises
    ------
    InputError
        If the kit is elsewhere.
    """
    place = Path(os.path.normpath(kit.absolute() / PLACES[kind]))
    if not (place if kind == "site" else place / "federation.toml").is_file():
        home = "flare, beside site.toml" if kind == "site" else "flare/server of a federation"
        raise InputError(f"{kit} must be the folder {home}: move it there")
    return place


def _lacking_privacy(kit: Path, _kind: str) -> Iterator[str]:
    """Yield what other users of the machine may do: change the kit, or read its keys."""
    inner = [kit, *(path for name in ("startup", "local") for path in (kit / name).rglob("*"))]
    for path in [*inner, kit / "startup", kit / "local"]:
        if not path.exists():
            continue
        about = path.stat()
        if is_foreign(about):
            yield f"{path} belongs to another user"
        elif about.st_mode & 0o077:
            yield f"other users may read or change {path}: chmod go-rwx"


CHECKS: Sequence[Callable[[Path, str], Iterator[str]]] = (
    *(partial(_lacking_settings, name) for name in SETTINGS),
    _lacking_scheme,
    _lacking_place,
    _lacking_privacy,
)
"""Functions that yield the locks that a kit lacks."""


def write_flare_job(
    folder: Path, run: str, sites: Sequence[str], quorum: int | None = None
) -> Path:
    """Write a job that carries out a run, whose own job is in the federation's folder.

    Parameters
    ----------
    folder : Path
        The folder to write.
    run : str
        The name of the run.
    sites : sequence of str
        The sites that the job starts at.
    quorum : int, optional
        The smallest number of sites that must be connected; by default all.
    """
    meta: dict[str, Any] = {
        "name": f"fedcluster-{run}",
        "resource_spec": {},
        "min_clients": quorum or len(sites),
        "deploy_map": {"app": ["server", *sites]},
    }
    server = {
        "format_version": 2,
        "workflows": [{"id": "run", "path": CONTROLLER, "args": {"run": run}}],
        "components": [],
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["none"], "executor": {"path": EXECUTOR}}],
        "components": [],
    }
    with atomic_folder(folder) as partial:
        (partial / "app" / "config").mkdir(parents=True)
        write_json(partial / "meta.json", meta)
        write_json(partial / "app" / "config" / "config_fed_server.json", server)
        write_json(partial / "app" / "config" / "config_fed_client.json", client)
    return folder
