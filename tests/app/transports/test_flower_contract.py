"""What `fedcluster_app.transports.flower` relies on in Flower, thing by thing.

A new release of Flower is allowed in pyproject.toml once all of this holds for it; what does not is
mended in that package, and nowhere else.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import _Call, call
from urllib.request import proxy_bypass
from zipfile import ZipFile

import flwr.supernode.fleet_http_client
import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi.routing import iter_route_contexts
from flwr.common import constant
from flwr.supercore.constant import PULL_INITIAL_BACKOFF
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.inflatable import inflatable_utils as inflatable
from flwr.supercore.primitives.asymmetric import bytes_to_public_key
from flwr.supercore.routers.runtime.router import create_runtime_router
from flwr.superlink import extensions
from flwr.superlink import main as superlink_main
from flwr.superlink.routers.control.router import router as control_router
from flwr.superlink.routers.fleet.router import router as fleet_router
from ports import free_port

from fedcluster.errors import InputError
from fedcluster_app.coordinator.certificates import issue
from fedcluster_app.coordinator.folder import Federation, create
from fedcluster_app.coordinator.service import started
from fedcluster_app.transports.flower import _launcher as launcher
from fedcluster_app.transports.flower import _programs as programs
from fedcluster_app.transports.flower import coordinator, node
from fedcluster_app.transports.flower._app import RunGrid
from fedcluster_app.transports.flower._programs import Access, environment
from fedcluster_app.trust import owned_files

PACKAGE = Path(launcher.__file__).parent

# What is imported from Flower, and how it is called; None where the rows below hold it.
CALLS: dict[str, _Call | None] = {
    "flwr.app.ConfigRecord": call({"key": b""}),
    "flwr.app.Message": call(None, 1, "query", ttl=1.0, group_id="1"),
    "flwr.app.RecordDict": call({}),
    "flwr.app.message.remove_content_from_message": call(None),
    "flwr.cli.build.build_fab_from_files": call({"pyproject.toml": b""}),
    "flwr.common.constant.HEARTBEAT_DEFAULT_INTERVAL": None,
    "flwr.common.constant.SubStatus": None,
    "flwr.common.serde.fab_to_proto": call(None),
    "flwr.common.serde.message_to_proto": call(None),
    "flwr.common.serde.run_from_proto": call(None),
    "flwr.common.serde.user_config_to_proto": call({}),
    "flwr.proto.control_pb2": None,
    "flwr.proto.fleet_pb2": None,
    "flwr.proto.heartbeat_pb2.SendNodeHeartbeatRequest": None,
    "flwr.proto.message_pb2.ObjectTree": None,
    "flwr.proto.node_pb2.Node": None,
    "flwr.proto.runtime_pb2.AcquireTaskRequest": None,
    "flwr.proto.runtime_pb2.PullTaskInputRequest": None,
    "flwr.proto.runtime_pb2.SendTaskHeartbeatRequest": None,
    "flwr.serverapp.Grid": None,
    "flwr.supercore.constant.TaskType": None,
    "flwr.supercore.control.ControlHttpClient": None,
    "flwr.supercore.error.ApiErrorCode": None,
    "flwr.supercore.error.FlowerError": None,
    "flwr.supercore.fab.Fab": call("hash", b"", {}),
    "flwr.supercore.heartbeat.HeartbeatSender": call(bool),
    "flwr.supercore.inflatable.inflatable_object.get_all_nested_objects": call(None),
    "flwr.supercore.inflatable.inflatable_object.get_object_tree": call(None),
    "flwr.supercore.inflatable.inflatable_protobuf_utils."
    "make_confirm_message_received_fn_protobuf": call(None, None, 1),
    "flwr.supercore.inflatable.inflatable_protobuf_utils.make_pull_object_fn_protobuf": call(
        None, None, 1
    ),
    "flwr.supercore.inflatable.inflatable_protobuf_utils.make_push_object_fn_protobuf": call(
        None, None, 1, ""
    ),
    "flwr.supercore.inflatable.inflatable_utils": None,
    "flwr.supercore.inflatable.inflatable_utils.pull_and_inflate_object_from_tree": call(
        None, None, None, return_type=None
    ),
    "flwr.supercore.inflatable.inflatable_utils.push_objects": call(
        {}, None, object_ids_to_push=set()
    ),
    "flwr.supercore.interceptors.RuntimeTokenHttpInterceptor": call("token"),
    "flwr.supercore.interceptors.RuntimeVersionHttpInterceptor": call(component_name="name"),
    "flwr.supercore.interceptors.SuperExecAuthHttpInterceptor": call(
        master_secret=b"", protected_methods=set()
    ),
    "flwr.supercore.primitives.asymmetric.bytes_to_public_key": call(b""),
    "flwr.supercore.primitives.asymmetric.public_key_to_bytes": call(None),
    "flwr.supercore.protobuf.client.ProtobufCall": None,
    "flwr.supercore.protobuf.client.ProtobufRequestContext": None,
    "flwr.supercore.retry.RetryInvoker": call(
        iter, Exception, 1, None, should_giveup=None, wait_function=None
    ),
    "flwr.supercore.retry.exponential": call(max_delay=20),
    "flwr.supercore.runtime.RuntimeHttpClient": None,
    "flwr.supercore.task_identity.TaskIdentity": None,
    "flwr.superlink.cli.flower_superlink": None,
    "flwr.superlink.extensions": None,
    "flwr.superlink.grid.HttpGrid": call(token="token"),
    "flwr.supernode.fleet_http_client.FleetHttpClient": None,
    "flwr.supernode.node_auth_http_interceptor.NodeAuthHttpInterceptor": call(None, None),
    "flwr.supernode.runtime.run_clientapp.push_task_output": call(None, None, "", ""),
}

FLEET = ["ActivateNode", "DeactivateNode", "RegisterNode", "UnregisterNode", "SendNodeHeartbeat"]
FLEET += ["PullMessages", "PullObject", "ConfirmMessageReceived", "PushMessages", "PushObject"]

METHODS = {
    "flwr.app.Message.has_error": call(None),
    "flwr.serverapp.Grid.get_node_ids": call(None),
    "flwr.serverapp.Grid.pull_messages": call(None, []),
    "flwr.serverapp.Grid.push_messages": call(None, []),
    "flwr.supercore.control.ControlHttpClient.ListNodes": call(None, None),
    "flwr.supercore.control.ControlHttpClient.ListRuns": call(None, None),
    "flwr.supercore.control.ControlHttpClient.RegisterNode": call(None, None),
    "flwr.supercore.control.ControlHttpClient.StartRun": call(None, None),
    "flwr.supercore.control.ControlHttpClient.StopRun": call(None, None),
    "flwr.supercore.control.ControlHttpClient.UnregisterNode": call(None, None),
    "flwr.supercore.control.ControlHttpClient.close": call(None),
    "flwr.supercore.control.ControlHttpClient.from_server_address": call(
        server_address="", insecure=False, root_certificates=None, interceptors=[], retry_invoker=1
    ),
    "flwr.supercore.heartbeat.HeartbeatSender.start": call(None),
    "flwr.supercore.heartbeat.HeartbeatSender.stop": call(None),
    "flwr.supercore.runtime.RuntimeHttpClient.AcquireTask": call(None, None),
    "flwr.supercore.runtime.RuntimeHttpClient.PullTaskInput": call(None, None),
    "flwr.supercore.runtime.RuntimeHttpClient.SendTaskHeartbeat": call(None, None),
    "flwr.supercore.runtime.RuntimeHttpClient.close": call(None),
    "flwr.supercore.runtime.RuntimeHttpClient.from_server_address": call(
        server_address="", insecure=False, root_certificates=None, interceptors=[], retry_invoker=1
    ),
    "flwr.superlink.grid.HttpGrid.set_run": call(None, None),
    **{
        f"flwr.supernode.fleet_http_client.FleetHttpClient.{name}": call(None, None)
        for name in FLEET
    },
    "flwr.supernode.fleet_http_client.FleetHttpClient.from_server_address": call(
        server_address="", insecure=False, root_certificates=None, interceptors=[]
    ),
}

FIELDS = {
    "flwr.proto.control_pb2.ListNodesRequest": "",
    "flwr.proto.control_pb2.ListNodesResponse": "nodes_info",
    "flwr.proto.control_pb2.ListRunsRequest": "run_id limit",
    "flwr.proto.control_pb2.ListRunsResponse": "run_dict",
    "flwr.proto.control_pb2.RegisterNodeRequest": "public_key name",
    "flwr.proto.control_pb2.RegisterNodeResponse": "node_id",
    "flwr.proto.control_pb2.StartRunRequest": "fab override_config",
    "flwr.proto.control_pb2.StartRunResponse": "run_id",
    "flwr.proto.control_pb2.UnregisterNodeRequest": "node_id",
    "flwr.proto.control_pb2.StopRunRequest": "run_id",
    "flwr.proto.fleet_pb2.ActivateNodeRequest": "public_key heartbeat_interval",
    "flwr.proto.fleet_pb2.ActivateNodeResponse": "node_id",
    "flwr.proto.fleet_pb2.DeactivateNodeRequest": "node_id",
    "flwr.proto.fleet_pb2.PullMessagesRequest": "node",
    "flwr.proto.fleet_pb2.PullMessagesResponse": "messages_list message_object_trees",
    "flwr.proto.fleet_pb2.PushMessagesRequest": (
        "node messages_list message_object_trees clientapp_runtime_list"
    ),
    "flwr.proto.fleet_pb2.PushMessagesResponse": "objects_to_push session_id",
    "flwr.proto.heartbeat_pb2.SendNodeHeartbeatRequest": "node heartbeat_interval",
    "flwr.proto.heartbeat_pb2.SendNodeHeartbeatResponse": "success",
    "flwr.proto.node_pb2.NodeInfo": "node_id public_key status",
    "flwr.proto.run_pb2.RunStatus": "status sub_status details",
    "flwr.proto.runtime_pb2.AcquireTaskRequest": "supported_task_types",
    "flwr.proto.runtime_pb2.AcquireTaskResponse": "task token",
    "flwr.proto.runtime_pb2.PullTaskInputRequest": "",
    "flwr.proto.runtime_pb2.PullTaskInputResponse": "task_id run context",
    "flwr.proto.runtime_pb2.SendTaskHeartbeatRequest": "",
}

VALUES = {
    "flwr.common.constant.ErrorCode.CLIENT_APP_RAISED_EXCEPTION": 2,
    "flwr.common.constant.ErrorCode.NODE_UNAVAILABLE": 5,
    "flwr.common.constant.ErrorCode.CLIENT_APP_CRASHED": 8,
    "flwr.common.constant.Status.FINISHED": "finished",
    "flwr.common.constant.SubStatus.COMPLETED": "completed",
    "flwr.common.constant.SubStatus.FAILED": "failed",
    "flwr.supercore.constant.NodeStatus.ONLINE": "online",
    "flwr.supercore.constant.NodeStatus.UNREGISTERED": "unregistered",
    "flwr.supercore.constant.TaskType.SERVER_APP": "flwr-serverapp",
}


def of_flower(path: str) -> object:
    """What a dotted path names."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError:
        return getattr(of_flower(module), name)


def imported_from_flower() -> set[str]:
    """All that the package imports from Flower, in functions too."""
    trees = [ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")]
    return {
        f"{node.module}.{alias.name}"
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr"
        for alias in node.names
    }


def test_every_import_from_flower_stands_in_the_contract():
    assert imported_from_flower() == CALLS.keys()


@pytest.mark.parametrize("path", [*CALLS, *METHODS])
def test_what_is_called_takes_what_it_is_given(path):
    given = (CALLS | METHODS)[path]
    thing: Any = of_flower(path)
    if given is not None:
        inspect.signature(thing).bind(*given.args, **given.kwargs)


@pytest.mark.parametrize("path", FIELDS)
def test_messages_have_the_fields_that_are_read_and_written(path):
    message: Any = of_flower(path)
    descriptor = message.DESCRIPTOR
    assert set(FIELDS[path].split()) <= set(descriptor.fields_by_name)


@pytest.mark.parametrize("path", VALUES)
def test_codes_and_states_mean_what_they_meant(path):
    assert of_flower(path) == VALUES[path]


def test_a_public_key_is_known_by_the_bytes_that_flower_keeps():
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    to_bytes: Any = of_flower("flwr.supercore.primitives.asymmetric.public_key_to_bytes")
    data = to_bytes(key)
    assert bytes_to_public_key(data).public_numbers() == key.public_numbers()


def test_a_site_that_was_killed_is_waited_for_long_enough():
    assert constant.HEARTBEAT_PATIENCE * constant.HEARTBEAT_DEFAULT_INTERVAL < node.FORGOTTEN


# The programs and their options


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return create(tmp_path / "trial", ["a"], f"127.0.0.1:{free_port()}")


def parser(program: str) -> argparse.ArgumentParser:
    """What reads the options of one of Flower's programs."""
    module = import_module(f"flwr.{program}.cli.flower_{program}")
    return getattr(module, f"_parse_args_run_{program}")()


def test_flower_understands_the_options_of_its_programs(tmp_path):
    federation = create(tmp_path / "trial", ["a"], "127.0.0.1:8443")
    options = coordinator.superlink_options(federation, tmp_path / "s")
    given = parser("superlink").parse_args(options)
    assert (given.host, given.port, given.insecure) == ("127.0.0.1", 8443, False)
    assert given.enable_supernode_auth is True
    assert (given.isolation, given.superexec_auth_secret_file) == ("process", str(tmp_path / "s"))


def test_flower_takes_an_app_without_code():
    """What makes a run is its job; the app is what Flower asks for."""
    build: Any = of_flower("flwr.cli.build.build_fab_from_files")
    fab, _ = build({"pyproject.toml": coordinator.APP.read_bytes()})
    with ZipFile(BytesIO(fab)) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".py")]
    read: Any = of_flower("flwr.superlink.servicer.control.control_handlers.get_fab_config")
    assert read(fab)["tool"]["flwr"]["app"]["config"] == {"job": ""}


def test_a_grid_takes_the_client_that_it_is_given():
    """As Flower's own has it: by a property that returns the one that is there."""
    runtime: Any = object()
    assert RunGrid(runtime)._runtime_client is runtime  # noqa: SLF001


def test_flower_reads_the_environment_that_is_set_for_it_and_no_other(monkeypatch):
    monkeypatch.setenv("FLWR_INTERNAL_GRPC_CONTROL_API", "1")
    names = [name for name in environment(Path("home")) if name.startswith("FLWR_")]
    assert "FLWR_INTERNAL_GRPC_CONTROL_API" not in names
    sources = ["supercore.telemetry", "common.constant", "supercore.constant"]
    text = "".join(inspect.getsource(import_module(f"flwr.{name}")) for name in sources)
    assert {name for name in names if f'"{name}"' not in text} == set()


@pytest.mark.parametrize("given", [{}, {"no_proxy": "clinic.example"}, {"NO_PROXY": "a,,b"}])
def test_no_proxy_is_asked_for_this_machine_itself(given, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    for _ in range(2):
        programs.reach_directly()
    assert all(proxy_bypass(host) for host in ("127.0.0.1", "localhost"))
    assert not proxy_bypass("cluster.example.org")
    for value in given.values():
        assert all(map(proxy_bypass, filter(None, value.split(","))))
    assert "127.0.0.1" in environment(Path("home"))["NO_PROXY"]


# Its waits, which are shortened


PULLS: list[Any] = [inflatable.pull_objects, inflatable.pull_and_inflate_object_from_tree]


@pytest.fixture
def waits(monkeypatch) -> Iterator[None]:
    """What is replaced is put back."""
    kept = [dict(each.__kwdefaults__) for each in PULLS]
    yield
    for each, defaults in zip(PULLS, kept, strict=True):
        each.__kwdefaults__ = defaults


def test_flower_waits_where_its_waits_are_shortened():
    for pulls in PULLS:
        assert "initial_backoff" in pulls.__kwdefaults__
    assert PULL_INITIAL_BACKOFF == 1  # a default that a test before may have shortened


def test_waits_are_shortened_in_place_for_all_that_have_imported_what_waits(waits):
    launcher.hasten()
    launcher.hasten()  # once more does no harm
    pulls: Any = of_flower("flwr.superlink.grid.http_grid.pull_objects")
    given = inspect.signature(pulls).parameters["initial_backoff"]
    assert given.default == launcher.BACKOFF


class Resting(node.Node):
    """A node that notes for how long it rests."""

    def __init__(self) -> None:
        nobody: Any = None
        super().__init__(nobody, 1)
        self.slept: list[float] = []
        noting: Any = SimpleNamespace(wait=self.slept.append, clear=bool)
        self._wakes = noting

    def rests(self, times: int) -> list[float]:
        self._without = 0.0
        for _ in range(times):
            self._rest()
        return self.slept[-times:]


def test_questions_are_fetched_often_while_there_are_some_and_seldom_after_a_long_time():
    resting = Resting()
    slept = resting.rests(200)
    assert slept[:10] == [node.Node.quick] * 10
    assert slept == sorted(slept)
    assert slept[-1] == node.Node.idle
    assert resting.rests(1) == [node.Node.quick]


# What the programs print


def source_of(*modules: str) -> str:
    return "".join(inspect.getsource(import_module(module)) for module in modules)


def test_what_servers_print_in_the_end_is_known():
    """Flower's line of the lifespan and those of its web server, as the latter formats them."""
    said = source_of("uvicorn.server", "uvicorn.lifespan.on", "flwr.superlink.main")
    farewells = ["Shutting down", "Waiting for application shutdown.", "FastAPI lifespan: shutdown"]
    farewells += ["Application shutdown complete.", "Finished server process"]
    [(_, formatter)] = get_uvicorn_log_config(logging.INFO)["formatters"].items()
    fmt = formatter["()"](formatter["format"])
    for text in farewells:
        assert f'"{text}' in said, text
        record = logging.LogRecord("uvicorn.error", logging.INFO, "", 0, text, (), None)
        line = owned_files.COLOURS.sub("", fmt.format(record))
        assert owned_files.reason_of_end(f"the reason\n{line}") == "the reason"


# The guard


class Renamed:
    """An app without a guard, as where a release has renamed what the launcher replaces."""

    def __init__(self, status: int, body: bytes = b"") -> None:
        self.status, self.body = status, body

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": self.status, "headers": []})
            await send({"type": "http.response.body", "body": self.body})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificate of a server, its key, and who vouches for it."""
    folder = tmp_path_factory.mktemp("served")
    for name, content in issue(["127.0.0.1"], ()).items():
        (folder / Path(name).name).write_bytes(content)
    return folder


@contextmanager
def served(app, files: Path) -> Iterator[str]:
    """The address of an app on this machine."""
    encrypted: Any = {"ssl_certfile": files / "server.crt", "ssl_keyfile": files / "server.key"}
    config = uvicorn.Config(app, port=0, lifespan="off", log_level="critical", **encrypted)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


SECRET = b"the secret of this start"


def check_guard(address: str, files: Path) -> None:
    programs.check_guard(Access(address, files / "ca.crt", SECRET))


def test_a_guarded_port_passes(files):
    with served(launcher.FleetOnly(Renamed(200), SECRET), files) as address:
        check_guard(address, files)


class Lax(launcher.FleetOnly):
    """A guard that overlooks one thing."""

    def __init__(self, overlooks: str) -> None:
        super().__init__(Renamed(200), SECRET)
        self.overlooks = overlooks

    async def __call__(self, scope, receive, send):
        given = dict(scope["headers"]).get(launcher.SECRET.encode())
        here = scope["client"][0] == "127.0.0.1"
        strangers = {
            "without the secret": given is None,
            "with another secret": given not in {None, SECRET},
            "from another machine": not here,
        }
        if strangers[self.overlooks]:
            await Renamed(200)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


@pytest.mark.parametrize(
    ("app", "said"),
    [
        (launcher.FleetOnly(Renamed(200), b"another"), "another coordinator answers at {}"),
        *(
            (Lax(who), f"{{}} is not guarded: asked {who} for")
            for who in ("without the secret", "with another secret", "from another machine")
        ),
        *(  # what answers 403 for a reason of its own is no guard, either
            (Renamed(*answer), f"{{}} is not guarded: .* answers {answer[0]} instead")
            for answer in ((200, b""), (404, b""), (403, b""), (405, b"no"))
        ),
    ],
)
def test_a_guard_that_lets_one_stranger_in_or_does_not_answer_is_none(app, said, files):
    with served(app, files) as address, pytest.raises(InputError, match=said.format(address)):
        check_guard(address, files)


def test_a_port_where_nobody_answers_is_refused(files):
    with pytest.raises(InputError, match=r"is not guarded: .* answers .*refused.* instead of 403"):
        check_guard(f"127.0.0.1:{free_port()}", files)


def test_start_ends_with_an_error_where_flower_has_renamed_the_guard_s_place(
    federation, tmp_path, monkeypatch
):
    """The SuperLink itself, started without its guard; it does not stay."""
    source = Path(launcher.__file__).read_text("utf-8")
    other = source.replace("extensions.get_middleware", "extensions.middleware_of_a_later_release")
    assert other != source
    script = tmp_path / "launcher.py"
    script.write_text(other, encoding="utf-8")
    monkeypatch.setattr(launcher, "__file__", str(script))
    federation.file("flower").mkdir(mode=0o700)
    federation.file("flower", "secret").write_text("what a killed program has left")
    with (
        pytest.raises(InputError, match=r"the port at 127\.0.* is not guarded: .* answers 4"),
        started(federation, coordinator),
    ):
        pass
    assert not coordinator.is_started(federation)
    assert not federation.file("flower", "nodes.json").exists()
    assert not federation.file("flower", "secret").exists()


def test_the_superlink_takes_its_outermost_middleware_from_the_launcher(monkeypatch, tmp_path):
    monkeypatch.setattr(extensions, "get_middleware", extensions.get_middleware)
    monkeypatch.setattr("flwr.superlink.cli.flower_superlink", lambda: None)
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    options = ["launcher", str(os.getppid()), "superlink", launcher.SECRET_FILE, str(secret)]
    options += ["--database", str(tmp_path / "state.db")]
    monkeypatch.setattr(sys, "argv", options)
    monkeypatch.setattr(uvicorn.config, "create_ssl_context", uvicorn.config.create_ssl_context)
    launcher.main()
    outermost: Any = superlink_main._get_middleware()[0]  # noqa: SLF001
    assert outermost.cls is launcher.FleetOnly
    kwargs = outermost.kwargs
    assert (kwargs["secret"], kwargs["statuses"]) == (SECRET, tmp_path / "standing.json")
    assert uvicorn.config.create_ssl_context.__module__ == launcher.__name__


def test_the_server_s_context_is_made_by_what_the_launcher_replaces(monkeypatch):
    made = []
    monkeypatch.setattr(uvicorn.config, "create_ssl_context", lambda **how: made.append(how))
    uvicorn.Config(lambda: None, ssl_certfile="a", ssl_keyfile="b").load()
    [how] = made
    assert (how["certfile"], how["keyfile"]) == ("a", "b")


def test_the_superlink_is_not_started_without_a_secret(monkeypatch):
    monkeypatch.setattr("flwr.superlink.cli.flower_superlink", lambda: pytest.fail("started"))
    monkeypatch.setattr(sys, "argv", ["launcher", str(os.getppid()), "superlink"])
    with pytest.raises(ValueError, match=launcher.SECRET_FILE):
        launcher.main()


def paths(router) -> set[str]:
    routes: list[Any] = [context.route for context in iter_route_contexts(router.routes)]
    return {route.path for route in routes}


def test_the_guard_tells_flower_s_interfaces_apart_by_their_paths():
    assert all(path.startswith(launcher.FOR_SITES) for path in paths(fleet_router))
    for router in (control_router, create_runtime_router("SuperLink")):
        assert not any(path.startswith(launcher.FOR_SITES) for path in paths(router))
    guarded = paths(control_router) | paths(create_runtime_router("SuperLink"))
    assert set(programs.GUARDED) <= guarded
    asked = inspect.getsource(flwr.supernode.fleet_http_client)
    assert {f'path="{path}"' in asked for path in paths(fleet_router)} == {True}


def test_only_a_proxy_on_this_machine_may_say_for_whom_it_asks(monkeypatch):
    for name, value in environment(Path("home")).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", environment(Path("home"))["FORWARDED_ALLOW_IPS"])
    app: Any = SimpleNamespace()
    config = uvicorn.Config(app)
    here = "127.0.0.1,::1,127.0.0.1"
    assert (config.proxy_headers, config.forwarded_allow_ips) == (True, here)
