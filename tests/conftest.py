"""What all tests share."""

import gc
import logging
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from databases import Server, programs, running
from hypothesis import HealthCheck, settings
from searches import shorten
from typer import testing as commands
from typer.main import get_command

# Nothing depends on how fast a machine is. `make test` tries few examples
# of each property, `make long` many.
for name, examples in {"quick": 20, "thorough": 150}.items():
    settings.register_profile(
        name,
        max_examples=examples,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


CASES = 2
"""Number of cases of a test that `make test` tries; `make test-all` tries all."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile, of which there is little, nor later in what is there then.

    Later look rarely, which takes a twentieth off the time of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000)
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run have a part of all tests."""
    parts = {"first": "two cases of each test that is not marked thorough", "rest": "all others"}
    said = "; ".join(f"{name}: {what}" for name, what in parts.items())
    parser.addoption("--part", choices=[*parts], help=said)


@pytest.hookimpl(trylast=True)  # after -m, of what is left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of one part."""
    if (part := config.getoption("--part")) is None:
        return
    seen = Counter[str]()
    kept, left = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        name = item.nodeid.partition("[")[0]
        seen[name] += 1
        is_first = seen[name] <= CASES and item.get_closest_marker("thorough") is None
        (kept if is_first == (part == "first") else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for no examples in the docstrings of tests, which takes seconds."""
    found = yield
    return [each for each in found if type(each) is pytest.Module]


HERE = Path(__file__).parent
# Tests use helpers of others, wherever these stand.
sys.path += sorted({str(path.parent) for path in HERE.rglob("test_*.py")})

collect_ignore = ["forked_modules.py"]  # which a server imports: it would compute at once

if find_spec("flwr") is None:  # as in `make oldest`: Flower allows only new versions of others
    NEEDS_FLOWER = re.compile(
        r"^(from|import) (flwr|fedcluster\.(federation|secure|transports)|grids|secure_sites"
        r"|(test_)?federation\w*|flares|nvflare)\b",
        re.M,
    )
    collect_ignore += [
        str(path) for path in HERE.rglob("*.py") if NEEDS_FLOWER.search(path.read_text("utf-8"))
    ]

if find_spec("fcntl") is None:  # Windows, where no site and no coordinator runs
    needs = "a site or a coordinator needs Linux or macOS"
    outputs = import_module(
        "fedcluster_app.tables.outputs"
    )  # before what takes the function from it
    vars(outputs)["check_system"] = lambda: pytest.skip(needs)

os.environ.pop("COLUMNS", None)  # of those who run tests in parallel: it would break lines

REFERENCE = HERE.parents[1] / "shared" / "reference"


@pytest.fixture(autouse=True)
def _kernels_are_compiled_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they are compiled depends on which tests ran before, on this machine."""
    if runtime := sys.modules.get("fedcluster.kernels.runtime"):
        monkeypatch.setattr(runtime.announcer, "has_spoken", True)
        monkeypatch.setattr(runtime.compiled_loops, "left", 0)


@pytest.fixture(autouse=True)
def _no_job_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command shows of its progress every ten seconds depends on the machine."""
    if "fedcluster_app.cli._screen" in sys.modules:
        monkeypatch.setattr("fedcluster_app.cli._screen.EVERY", float("inf"))


@pytest.fixture(autouse=True, scope="session")
def _commands_are_built_once() -> Iterator[None]:
    """Typer's runner builds all commands anew for each call, which takes as long as a small fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "_get_command", cache(get_command))
        yield


@pytest.fixture(autouse=True, scope="module")
def _processes_of_sites_are_forked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each would take a second to start."""
    process = sys.modules.get("fedcluster_app.site.process")
    if process is None or find_spec("fcntl") is None or request.module.__name__ == "test_worker":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        way = SimpleNamespace(**vars(subprocess) | {"Popen": import_module("forked").Forked})
        patch.setattr(process, "subprocess", way)
        yield


@pytest.fixture(autouse=True, scope="module")
def _logs_keep_their_levels() -> Iterator[None]:
    """A logger that a test leaves muted hides from others what they look for."""
    yield
    loggers = logging.root.manager.loggerDict.items()
    muted = [
        name
        for name, logger in loggers
        if name.startswith("fedcluster") and isinstance(logger, logging.Logger)
        if logger.level or logger.disabled or not logger.propagate
    ]
    assert not muted


@pytest.fixture(autouse=True, scope="module")
def _pictures_keep_their_style() -> Iterator[None]:
    """What tests leave in the style of pictures changes pictures of others, as chance has it."""
    if (matplotlib := sys.modules.get("matplotlib")) is None:
        yield
        return
    before = dict(matplotlib.rcParams)
    yield
    after = dict(matplotlib.rcParams).items()
    changed = {name for name, value in after if value != before[name] and "backend" not in name}
    assert not changed, f"the style of pictures was left changed: {sorted(changed)}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder is the current one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def short_searches() -> Iterator[None]:
    """All searches have few runs in `make test`: for modules that are not about what they find."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("HYPOTHESIS_PROFILE") != "thorough":
            shorten(patch.setattr)
        yield


@pytest.fixture
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, for one test."""
    if os.environ.get("HYPOTHESIS_PROFILE") != "thorough":
        shorten(monkeypatch.setattr)


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of published results and small public data sets, which lies beside the clone."""
    if not REFERENCE.is_dir():
        pytest.skip("the reference data, ../shared/reference, is not here")
    return REFERENCE


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server of the tests' own."""
    pytest.importorskip("psycopg")
    if os.name != "posix" or programs() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with running() as server:
        yield server
