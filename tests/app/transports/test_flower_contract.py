"""What `fedcluster_app.transports.flower` relies on in Flower, thing by thing.

A new release of Flower is allowed in pyproject.toml once all of this holds for it; what does not is
mended in that package, and nowhere else.
"""

import ast
import inspect
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import _Call, call
from urllib.request import proxy_bypass
from zipfile import ZipFile

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
from fedcluster_app.coordinator.folder import create
from fedcluster_app.coordinator.service import started
from fedcluster_app.transports.flower import _launcher as launcher
from fedcluster_app.transports.flower import _programs as programs
from fedcluster_app.transports.flower import coordinator, node
from fedcluster_app.transports.flower._app import RunGrid
from fedcluster_app.transports.flower._programs import Access, environment
from fedcluster_app.trust import owned_files

PACKAGE = Path(launcher.__file__).parent


# What is used of Flower, by the module or class that has it, and how it is called; of what is only
# named, other rows hold how.
FLEET = "ActivateNode DeactivateNode RegisterNode UnregisterNode SendNodeHeartbeat PullMessages "
FLEET += "PullObject ConfirmMessageReceived PushMessages PushObject"
SERVER = call(server_address="", insecure=False, root_certificates=None, interceptors=[])
RETRYING = call(**SERVER.kwargs, retry_invoker=1)
RUNTIME = "supercore.runtime.RuntimeHttpClient"
OF_SITES = "supernode.fleet_http_client.FleetHttpClient"
CONTROL, PULLED = "supercore.control.ControlHttpClient", "supercore.inflatable"
PULLS_BY, UTILS = f"{PULLED}.inflatable_protobuf_utils", f"{PULLED}.inflatable_utils"
GUARDS = "supercore.interceptors"
GIVING_UP = call(iter, Exception, 1, None, should_giveup=None, wait_function=None)
NAMED = """
common.constant.HEARTBEAT_DEFAULT_INTERVAL common.constant.SubStatus proto.control_pb2
proto.fleet_pb2 proto.heartbeat_pb2.SendNodeHeartbeatRequest proto.message_pb2.ObjectTree
proto.node_pb2.Node proto.runtime_pb2.AcquireTaskRequest proto.runtime_pb2.PullTaskInputRequest
proto.runtime_pb2.SendTaskHeartbeatRequest serverapp.Grid supercore.constant.TaskType
supercore.control.ControlHttpClient supercore.error.ApiErrorCode supercore.error.FlowerError
supercore.protobuf.client.ProtobufCall supercore.protobuf.client.ProtobufRequestContext
supercore.runtime.RuntimeHttpClient supercore.task_identity.TaskIdentity
superlink.cli.flower_superlink superlink.extensions supernode.fleet_http_client.FleetHttpClient
supercore.inflatable.inflatable_utils
"""
IMPORTS: list[tuple[str, str, _Call]] = [
    ("app", "ConfigRecord", call({"key": b""})),
    ("app", "Message", call(None, 1, "query", ttl=1.0, group_id="1")),
    ("app", "RecordDict", call({})),
    ("app.message", "remove_content_from_message", call(None)),
    ("cli.build", "build_fab_from_files", call({"pyproject.toml": b""})),
    ("common.serde", "fab_to_proto message_to_proto run_from_proto", call(None)),
    ("common.serde", "user_config_to_proto", call({})),
    ("supercore.fab", "Fab", call("hash", b"", {})),
    ("supercore.heartbeat", "HeartbeatSender", call(bool)),
    (f"{PULLED}.inflatable_object", "get_all_nested_objects get_object_tree", call(None)),
    (PULLS_BY, "make_confirm_message_received_fn_protobuf", call(None, None, 1)),
    (PULLS_BY, "make_pull_object_fn_protobuf", call(None, None, 1)),
    (PULLS_BY, "make_push_object_fn_protobuf", call(None, None, 1, "")),
    (UTILS, "pull_and_inflate_object_from_tree", call(None, None, None, return_type=None)),
    (UTILS, "push_objects", call({}, None, object_ids_to_push=set())),
    (GUARDS, "RuntimeTokenHttpInterceptor", call("token")),
    (GUARDS, "RuntimeVersionHttpInterceptor", call(component_name="name")),
    (GUARDS, "SuperExecAuthHttpInterceptor", call(master_secret=b"", protected_methods=set())),
    ("supercore.primitives.asymmetric", "bytes_to_public_key", call(b"")),
    ("supercore.primitives.asymmetric", "public_key_to_bytes", call(None)),
    ("supercore.retry", "RetryInvoker", GIVING_UP),
    ("supercore.retry", "exponential", call(max_delay=20)),
    ("superlink.grid", "HttpGrid", call(token="token")),
    ("supernode.node_auth_http_interceptor", "NodeAuthHttpInterceptor", call(None, None)),
    ("supernode.runtime.run_clientapp", "push_task_output", call(None, None, "", "")),
]
METHODS: list[tuple[str, str, _Call]] = [
    ("app.Message", "has_error", call(None)),
    ("serverapp.Grid", "get_node_ids", call(None)),
    ("serverapp.Grid", "pull_messages push_messages", call(None, [])),
    (CONTROL, "ListNodes ListRuns RegisterNode StartRun StopRun UnregisterNode", call(None, None)),
    (CONTROL, "close", call(None)),
    (CONTROL, "from_server_address", RETRYING),
    ("supercore.heartbeat.HeartbeatSender", "start stop", call(None)),
    (RUNTIME, "AcquireTask PullTaskInput SendTaskHeartbeat", call(None, None)),
    (RUNTIME, "close", call(None)),
    (RUNTIME, "from_server_address", RETRYING),
    ("superlink.grid.HttpGrid", "set_run", call(None, None)),
    (OF_SITES, FLEET, call(None, None)),
    (OF_SITES, "from_server_address", SERVER),
]
CALLS, METHOD_CALLS = (
    {f"flwr.{home}.{name}": given for home, names, given in rows for name in names.split()}
    for rows in (IMPORTS, METHODS)
)
NAMES = {f"flwr.{path}" for path in NAMED.split()}


FIELDS = {
    "control_pb2.ListNodesRequest": "",
    "control_pb2.ListNodesResponse": "nodes_info",
    "control_pb2.ListRunsRequest": "run_id limit",
    "control_pb2.ListRunsResponse": "run_dict",
    "control_pb2.RegisterNodeRequest": "public_key name",
    "control_pb2.RegisterNodeResponse": "node_id",
    "control_pb2.StartRunRequest": "fab override_config",
    "control_pb2.StartRunResponse": "run_id",
    "control_pb2.UnregisterNodeRequest": "node_id",
    "control_pb2.StopRunRequest": "run_id",
    "fleet_pb2.ActivateNodeRequest": "public_key heartbeat_interval",
    "fleet_pb2.ActivateNodeResponse": "node_id",
    "fleet_pb2.DeactivateNodeRequest": "node_id",
    "fleet_pb2.PullMessagesRequest": "node",
    "fleet_pb2.PullMessagesResponse": "messages_list message_object_trees",
    "fleet_pb2.PushMessagesRequest": "node messages_list message_object_trees "
    "clientapp_runtime_list",
    "fleet_pb2.PushMessagesResponse": "objects_to_push session_id",
    "heartbeat_pb2.SendNodeHeartbeatRequest": "node heartbeat_interval",
    "heartbeat_pb2.SendNodeHeartbeatResponse": "success",
    "node_pb2.NodeInfo": "node_id public_key status",
    "run_pb2.RunStatus": "status sub_status details",
    "runtime_pb2.AcquireTaskRequest": "supported_task_types",
    "runtime_pb2.AcquireTaskResponse": "task token",
    "runtime_pb2.PullTaskInputResponse": "task_id run context",
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


def of_flower(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError:
        return getattr(of_flower(module), name)


def imported_from_flower() -> set[str]:
    trees = [ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")]
    return {
        f"{node.module}.{alias.name}"
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr"
        for alias in node.names
    }


def test_every_import_from_flower_stands_in_the_contract():
    assert imported_from_flower() == CALLS.keys() | NAMES
    assert all(of_flower(path) for path in NAMES)


@pytest.mark.parametrize("path", [*CALLS, *METHOD_CALLS])
def test_what_is_called_takes_what_it_is_given(path):
    given, thing = (CALLS | METHOD_CALLS)[path], of_flower(path)
    inspect.signature(thing).bind(*given.args, **given.kwargs)


@pytest.mark.parametrize("path", FIELDS)
def test_messages_have_the_fields_that_are_read_and_written(path):
    message = of_flower(f"flwr.proto.{path}")
    assert set(FIELDS[path].split()) <= set(message.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize("path", VALUES)
def test_codes_and_states_mean_what_they_meant(path):
    assert of_flower(path) == VALUES[path]


def test_a_public_key_is_known_by_the_bytes_that_flower_keeps():
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    to_bytes = of_flower("flwr.supercore.primitives.asymmetric.public_key_to_bytes")
    data = to_bytes(key)
    assert bytes_to_public_key(data).public_numbers() == key.public_numbers()


def test_a_site_that_was_killed_is_waited_for_long_enough():
    assert constant.HEARTBEAT_PATIENCE * constant.HEARTBEAT_DEFAULT_INTERVAL < node.FORGOTTEN


def test_flower_understands_the_options_of_its_programs(tmp_path):
    federation = create(tmp_path / "trial", ["a"], "127.0.0.1:8443")
    options = coordinator.superlink_options(federation, tmp_path / "s")
    parser = of_flower("flwr.superlink.cli.flower_superlink._parse_args_run_superlink")
    given = parser().parse_args(options)
    assert (given.host, given.port, given.insecure) == ("127.0.0.1", 8443, False)
    assert given.enable_supernode_auth is True
    assert (given.isolation, given.superexec_auth_secret_file) == ("process", str(tmp_path / "s"))


def test_flower_takes_an_app_without_code():
    build = of_flower("flwr.cli.build.build_fab_from_files")
    fab, _ = build({"pyproject.toml": coordinator.APP.read_bytes()})
    with ZipFile(BytesIO(fab)) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".py")]
    read = of_flower("flwr.superlink.servicer.control.control_handlers.get_fab_config")
    assert read(fab)["tool"]["flwr"]["app"]["config"] == {"job": ""}


def test_a_grid_takes_the_client_that_it_is_given():
    """As Flower's own has it: by a property that returns the one that is there."""
    runtime: Any = object()
    assert RunGrid(runtime)._runtime_client is runtime  # noqa: SLF001


def test_flower_reads_the_environment_that_is_set_for_it_and_no_other(monkeypatch):
    monkeypatch.setenv("FLWR_INTERNAL_GRPC_CONTROL_API", "1")
    names = [name for name in environment(Path("home")) if name.startswith("FLWR_")]
    assert "FLWR_INTERNAL_GRPC_CONTROL_API" not in names
    homes = ("flwr.supercore.telemetry", "flwr.common.constant", "flwr.supercore.constant")
    assert {name for name in names if f'"{name}"' not in source_of(*homes)} == set()


@pytest.mark.parametrize("given", [{}, {"no_proxy": "clinic.example"}, {"NO_PROXY": "a,,b"}])
def test_no_proxy_is_asked_for_this_machine_itself(given, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in {**given, "HTTPS_PROXY": "http://proxy.example:3128"}.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        programs.reach_directly()
    others = [each for value in given.values() for each in value.split(",") if each]
    assert all(proxy_bypass(host) for host in ("127.0.0.1", "localhost", *others))
    assert not proxy_bypass("cluster.example.org")
    assert "127.0.0.1" in environment(Path("home"))["NO_PROXY"]


PULLS: list[Any] = [inflatable.pull_objects, inflatable.pull_and_inflate_object_from_tree]


def test_waits_are_shortened_in_place_for_all_that_have_imported_what_waits(monkeypatch):
    for pulls in PULLS:
        assert "initial_backoff" in pulls.__kwdefaults__
        monkeypatch.setattr(pulls, "__kwdefaults__", dict(pulls.__kwdefaults__))
    assert PULL_INITIAL_BACKOFF == 1  # a default that a test before may have shortened
    launcher.hasten()
    launcher.hasten()  # once more does no harm
    pulls = of_flower("flwr.superlink.grid.http_grid.pull_objects")
    given = inspect.signature(pulls).parameters["initial_backoff"]
    assert given.default == launcher.BACKOFF


def test_questions_are_fetched_often_while_there_are_some_and_seldom_after_a_long_time():
    nobody: Any = None
    resting, slept = node.Node(nobody, 1), list[float]()
    resting._wakes = SimpleNamespace(wait=slept.append, clear=bool)  # type: ignore[assignment]  # noqa: SLF001
    for _ in range(200):
        resting._rest()  # noqa: SLF001
    assert slept[:10] == [node.Node.quick] * 10
    assert slept == sorted(slept)
    assert slept[-1] == node.Node.idle
    resting._without = 0.0  # noqa: SLF001
    resting._rest()  # noqa: SLF001
    assert slept[-1] == node.Node.quick


def source_of(*modules: str) -> str:
    return "".join(inspect.getsource(import_module(module)) for module in modules)


def test_what_servers_print_in_the_end_is_known():
    """Flower's line of the lifespan and those of its web server, as the latter formats them."""
    said = source_of("uvicorn.server", "uvicorn.lifespan.on", "flwr.superlink.main")
    farewells = ["Shutting down", "Waiting for application shutdown.", "FastAPI lifespan: shutdown"]
    farewells += ["Application shutdown complete.", "Finished server process"]
    [formatter] = get_uvicorn_log_config(logging.INFO)["formatters"].values()
    fmt = formatter["()"](formatter["format"])
    for text in farewells:
        assert f'"{text}' in said, text
        record = logging.LogRecord("uvicorn.error", logging.INFO, "", 0, text, (), None)
        line = owned_files.COLOURS.sub("", fmt.format(record))
        assert owned_files.reason_of_end(f"the reason\n{line}") == "the reason"


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
    folder = tmp_path_factory.mktemp("served")
    for name, content in issue(["127.0.0.1"], ()).items():
        (folder / Path(name).name).write_bytes(content)
    return folder


@contextmanager
def served(app, files: Path) -> Iterator[str]:
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


class Lax(launcher.FleetOnly):
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


def check_guard(address: str, files: Path) -> None:
    programs.check_guard(Access(address, files / "ca.crt", SECRET))


@pytest.mark.parametrize(
    ("app", "said"),
    [
        (launcher.FleetOnly(Renamed(200), SECRET), ""),
        (Lax("without the secret"), "{} is not guarded: asked without the secret for"),
        (launcher.FleetOnly(Renamed(200), b"another"), "another coordinator answers at {}"),
        *(
            (Lax(who), f"{{}} is not guarded: asked {who} for")
            for who in ("with another secret", "from another machine")
        ),
        *(  # what answers 403 for a reason of its own is no guard, either
            (Renamed(*answer), f"{{}} is not guarded: .* answers {answer[0]} instead")
            for answer in ((200, b""), (404, b""), (403, b""), (405, b"no"))
        ),
    ],
)
def test_a_guard_that_lets_one_stranger_in_or_does_not_answer_is_none(app, said, files):
    with served(app, files) as address:
        why = said.format(address)
        with pytest.raises(InputError, match=why) if said else nullcontext():
            check_guard(address, files)


def test_a_port_where_nobody_answers_is_refused(files):
    with pytest.raises(InputError, match=r"is not guarded: .* answers .*refused.* instead of 403"):
        check_guard(f"127.0.0.1:{free_port()}", files)


@pytest.mark.thorough
def test_start_ends_with_an_error_where_flower_has_renamed_the_guard_s_place(tmp_path, monkeypatch):
    """The SuperLink itself, started without its guard; it does not stay."""
    federation = create(tmp_path / "trial", ["a"], f"127.0.0.1:{free_port()}")
    source = Path(launcher.__file__).read_text("utf-8")
    other = source.replace("extensions.get_middleware", "extensions.middleware_of_a_later_release")
    assert other != source
    script = tmp_path / "launcher.py"
    script.write_text(other, encoding="utf-8")
    monkeypatch.setattr(launcher, "__file__", str(script))
    secret = federation.file("flower", "secret")
    secret.parent.mkdir(mode=0o700)
    secret.write_text("what a killed program has left")
    unguarded = r"the port at 127\.0.* is not guarded: .* answers 4"
    with pytest.raises(InputError, match=unguarded), started(federation, coordinator):
        pass
    assert not coordinator.is_started(federation)
    assert not federation.file("flower", "nodes.json").exists()
    assert not secret.exists()


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
    guarded = paths(control_router) | paths(create_runtime_router("SuperLink"))
    assert all(path.startswith(launcher.FOR_SITES) for path in paths(fleet_router))
    assert not any(path.startswith(launcher.FOR_SITES) for path in guarded)
    assert set(programs.GUARDED) <= guarded
    asked = source_of("flwr.supernode.fleet_http_client")
    assert {f'path="{path}"' in asked for path in paths(fleet_router)} == {True}


def test_only_a_proxy_on_this_machine_may_say_for_whom_it_asks(monkeypatch):
    for name, value in environment(Path("home")).items():
        monkeypatch.setenv(name, value)
    app: Any = SimpleNamespace()
    config = uvicorn.Config(app)
    here = "127.0.0.1,::1,127.0.0.1"
    assert (config.proxy_headers, config.forwarded_allow_ips) == (True, here)
