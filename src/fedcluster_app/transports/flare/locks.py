"""Locks of a FLARE startup kit, without which rows may leave a site: written and checked.

As provisioned, a kit streams a site's error log to the server, lets administrators read a site's
files, and lets project leads supply their own code.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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

ROLES: dict[str, dict[str, str]] = {
    "project_admin": {
        "submit_job": "none",
        "clone_job": "none",
        "manage_job": "any",
        "download_job": "any",
        "view": "any",
        "operate": "any",
    },
    "org_admin": {
        "submit_job": "none",
        "clone_job": "none",
        "manage_job": "o:submitter",
        "download_job": "none",
        "view": "any",
        "operate": "o:site",
    },
    "lead": {
        "submit_job": "any",
        "clone_job": "none",
        "manage_job": "n:submitter",
        "download_job": "n:submitter",
        "view": "any",
        "operate": "none",
    },
    "member": {"submit_job": "none", "view": "any", "operate": "none"},
}
"""Rights by role, besides `NEVER` and Flower's apps, which nobody may deploy either."""

NONE = dict.fromkeys((*NEVER, "server-predeployed-flwr"), "none")
AUTHORIZATION: dict[str, Any] = {
    "format_version": "1.0",
    "permissions": {role: {**rights, **NONE} for role, rights in ROLES.items()},
}
"""Content of ``local/authorization.json``."""


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
    locked = _locked(resources, kind)
    locked = locked if kind == "site" else _locked_server(locked, kit)
    write_json(local / "resources.json", locked)
    write_json(local / "authorization.json", AUTHORIZATION)
    write_json(local / "comm_config.json", COMMUNICATION)
    make_private(kit)


def make_private(folder: Path) -> None:
    """Remove all rights of other users of the machine in a folder."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o700)


def _read(*paths: Path) -> dict[str, Any]:
    """Return the content of the first existing file."""
    there = [path for path in paths if path.exists()] or paths
    return load_record(there[0], dict[str, Any])


def _locked(resources: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the resources of a kit with locks: no logs sent or received, and one class."""
    dropped = {"site": "site_log_streamer", "server": "log_receiver"}[kind]
    components = [each for each in resources.get("components", []) if each.get("id") != dropped]
    # Seconds that a site waits for the answer of a server that may have ended; by default 30.
    waits = {"client": {**resources.get("client", {}), "maint_msg_timeout": 10.0}}
    return {
        **resources,
        **(waits if kind == "site" else {}),
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CLASSES[kind]],
        "allow_log_streaming": False,
        "components": components,
    }


def _locked_server(locked: Mapping[str, Any], kit: Path) -> dict[str, Any]:
    """Return a server's resources: storage in the kit, one run at a time, keys that are checked."""
    store = kit.resolve() / "storage"
    servers = [{**each, "heart_beat_timeout": MOST_SILENT} for each in locked.get("servers", [{}])]
    arguments: dict[str, dict[str, Any]] = {
        "job_scheduler": {"max_jobs": 1, "min_schedule_interval": 1.0},
        "job_manager": {"uri_root": str(store / "jobs")},
    }
    components = [
        {**each, "args": {**each.get("args", {}), **arguments.get(str(each.get("id")), {})}}
        for each in locked["components"]
    ]
    components = [each for each in components if each.get("path") != ADMISSION]
    components.append({"id": "admission", "path": ADMISSION, "args": {}})
    snapshots = json.loads(json.dumps(locked.get("snapshot_persistor", {})))
    with suppress(LookupError, TypeError):  # the check reports a missing entry
        snapshots["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
    return {
        **locked,
        "servers": servers,
        "components": components,
        "snapshot_persistor": snapshots,
    }


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


def _lacking_resources(kit: Path, kind: str) -> Iterator[str]:
    path = "local/resources.json"
    resources = _read(kit / path)
    if resources.get("class_list_enforcement_mode") != "enforce":
        yield f'{path}: class_list_enforcement_mode must be "enforce"'
    if resources.get("class_allow_list") != [CLASSES[kind]]:
        yield f"{path}: class_allow_list must name {CLASSES[kind]} and nothing else"
    if resources.get("allow_log_streaming") is not False:
        yield f"{path}: allow_log_streaming must be false"
    for each in resources.get("components", []):
        if ".logging." in str(each.get("path") or each.get("name") or each.get("class_path")):
            yield f"{path}: component {each.get('id')!r} sends or receives logs: remove it"
    if kind == "server":
        yield from _lacking_server(kit, resources, path)


def _lacking_server(kit: Path, resources: Mapping[str, Any], path: str) -> Iterator[str]:
    shared = (Path(tempfile.gettempdir()), Path("/tmp"))
    jobs = [
        each.get("args", {}).get("uri_root", "/tmp")
        for each in resources.get("components", [])
        if each.get("id") == "job_manager"
    ]
    stored = resources.get("snapshot_persistor", {}).get("args", {}).get("storage", {})
    for place in [*jobs, stored.get("args", {}).get("root_dir", "/tmp")]:
        place = Path(place)
        # A whole kit below a temporary folder is a trial, whose own modes keep others out.
        if any(place.is_relative_to(each / "nvflare") or place == each for each in shared):
            yield f"{path}: {place} is in a folder that all users share: store in the kit"
    if ADMISSION not in [each.get("path") for each in resources.get("components", [])]:
        yield f"{path}: there must be a component {ADMISSION}"
    startup = f"startup/{STARTUP['server']}"
    served = _read(kit / startup).get("servers", [{}])
    if any(each.get("service", {}).get("scheme") != "http" for each in served):
        yield f"{startup}: the scheme must be http, or no key of a kit is checked"
    silent = [each.get("heart_beat_timeout", 600) for each in resources.get("servers", [])]
    if not silent or max(silent) > MOST_SILENT:
        yield f"{path}: heart_beat_timeout must be at most {MOST_SILENT} s"


def _lacking_rights(kit: Path, _kind: str) -> Iterator[str]:
    path = "local/authorization.json"
    permissions = _read(kit / path).get("permissions")
    if not isinstance(permissions, dict):
        yield f"{path}: there are no permissions"
        return
    for role in sorted({*ROLES, *permissions}):
        entry = permissions.get(role)
        rights = entry if isinstance(entry, dict) else {}
        for right in NEVER if role == "lead" else (*NEVER, "submit_job"):
            if rights.get(right) != "none":
                yield f'{path}: {right} of {role} must be "none"'


def _lacking_communication(kit: Path, _kind: str) -> Iterator[str]:
    path = "local/comm_config.json"
    communication = _read(kit / path)
    if communication.get("internal") != COMMUNICATION["internal"]:
        yield f"{path}: internal must be {json.dumps(COMMUNICATION['internal'])}"
    if communication.get("allow_adhoc_conns") is not False:
        yield f"{path}: allow_adhoc_conns must be false"


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


def environment() -> dict[str, str]:
    """Return the environment of FLARE's programs, whose ``python3`` is this Python."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("NVFL")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**own, "PATH": path}


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


CHECKS = (
    _lacking_resources,
    _lacking_rights,
    _lacking_communication,
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
