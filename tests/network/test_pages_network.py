"""The commands of the pages, typed as they stand there: from nothing to the first result."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from federations import LINUX, MARK, Command, read_json
from ports import free_port, wait_until

pytestmark = [pytest.mark.long, LINUX]
DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "cluster.example.org:8443"


def typed(page: str, heading: str) -> list[str]:
    """The commands of ours below a heading, each in one line."""
    _, _, below = (DOCS / page).read_text("utf-8").partition(f"\n{heading}\n")
    lines = (line.strip().partition("  #")[0] for line in below.partition("\n##")[0].splitlines())
    return [line for line in lines if line.startswith("fedcluster ")]


SHEETS = {
    "flower": (
        [typed("federation.md", "## Run a first fit")[0]],
        ["fedcluster check site.toml", "fedcluster site start site.toml"],
        "connected; Ctrl-C",
    ),
    "flare": (
        typed("transports.md", "### From nothing to a fit")[:1],
        typed("transports.md", "### From nothing to a fit")[2:],
        "Successfully registered client",
    ),
}
"""What is typed at the coordinator before its start, at each site, and what its program says."""


@pytest.fixture
def type_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Command]]:
    """What types a command in a folder; with ``done``, also waits for its good end."""
    commands, address = list[Command](), f"127.0.0.1:{free_port()}"

    def typing(folder: Path, line: str, *, done: bool = True) -> Command:
        monkeypatch.chdir(folder)
        words = shlex.split(line.replace(ADDRESS, address))[1:]
        env = os.environ | {MARK: "pages", "OMP_NUM_THREADS": "1"}
        commands.append(Command(words, tmp_path / f"said-{len(commands)}", env))
        assert not done or commands[-1].wait() == 0, f"{line}: {commands[-1].said()}"
        return commands[-1]

    yield typing
    for command in reversed(commands):
        command.end()


@pytest.mark.parametrize("transport", SHEETS)
def test_the_pages_lead_from_nothing_to_the_first_result(transport, tmp_path, type_in):
    [make], [check, begin], joined = SHEETS[transport]
    _, start, show, run = typed("federation.md", "## Run a first fit")
    type_in(tmp_path, make)
    type_in(tmp_path, start, done=False).wait_for("can connect")
    sites = sorted((tmp_path / "trial" / "sites").iterdir())
    for i, site in enumerate(sites):
        rows = "".join(f"{x + 20 * (x % 4)},{x % 7 + i}\n" for x in range(60))
        (site / "rows.csv").write_text("age,bmi\n" + rows)
        type_in(site, check)
    for program in [type_in(site, begin, done=False) for site in sites]:
        program.wait_for(joined)
    wait_until(lambda: "not connected" not in type_in(tmp_path, show).said())
    type_in(tmp_path, run)
    assert len(read_json(tmp_path / "result" / "model.json")["centers"]) == 4
    type_in(tmp_path, "fedcluster federation doctor trial")
    for site in sites:
        wait_until((site / "results" / "labels.csv").exists)
        for line in typed("site.md", "## Take part")[1:]:
            type_in(site, line)
