"""What a round of a real federation costs, beside an empty round of Flower's own.

    python benchmarks/federation.py [--transport flower|flare]

Three sites on this machine, K = 8. Flower's own: its programs as they are, an app that sends back
an empty message, the same loop for pushing and pulling. Ours: a default fit of prepared rows over
TLS with keys, three times, the whole command included.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from federations import federation, read_json
from flares import flare
from ports import free_port

from fedcluster_app.transports.flower import coordinator
from fedcluster_app.transports.flower._programs import environment, is_healthy
from fedcluster_app.trust.owned_files import end

ROUNDS = 4
EMPTY = """
import json, time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()


@client.query()
def reply(message, context):
    return Message(RecordDict(), reply_to=message)


@server.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < 3:
        time.sleep(0.2)
    seconds = []
    for _ in range({rounds}):
        began = time.time()
        messages = [Message(RecordDict(), node, "query") for node in nodes]
        waiting = set(grid.push_messages(messages))
        while waiting:
            came = grid.pull_messages(list(waiting))
            waiting -= {{message.metadata.reply_to_message_id for message in came}}
            time.sleep(0.2)
        seconds.append(time.time() - began)
    with open({out!r} + ".part", "w") as file:
        json.dump(seconds, file)
    __import__("os").replace({out!r} + ".part", {out!r})
"""


@contextmanager
def of_flower(program: str, options: list[str], home: Path) -> Iterator[None]:
    """Run a program of Flower's as it is, without our guard."""
    command = [str(Path(sys.executable).with_name(f"flower-{program}")), *options]
    with (home / f"{program}.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment(home), start_new_session=True
        )
    try:
        yield
    finally:
        end(process)


def empty_rounds(folder: Path) -> list[float]:
    """Seconds of each empty round of Flower's own."""
    app, out, home = folder / "app", folder / "seconds.json", folder / "flower"
    app.mkdir(parents=True)
    home.mkdir()
    about = coordinator.APP.read_text()
    for part in ("server", "client"):
        about = about.replace("fedcluster:none", f"empty:{part}", 1)
    (app / "pyproject.toml").write_text(about)
    (app / "empty.py").write_text(EMPTY.format(rounds=ROUNDS, out=str(out)))
    address = f"127.0.0.1:{free_port()}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "own"\n[superlink.own]\naddress = "{address}"\ninsecure = true\n'
    )
    with ExitStack() as stack:
        port = address.split(":")[1]
        link = ["--insecure", "--port", port, "--disable-runtime-dependency-installation"]
        stack.enter_context(of_flower("superlink", link, home))
        while not is_healthy(address, None):
            time.sleep(0.2)
        for _ in range(3):
            node = ["--insecure", "--superlink", address, "--port", str(free_port())]
            stack.enter_context(of_flower("supernode", node, home))
        flwr = [sys.executable, "-c", "from flwr.cli.app import app; app()"]
        submit = [*flwr, "run", str(app), "own", "--format", "json"]
        done = subprocess.run(submit, env=environment(home), check=True, capture_output=True)
        assert b'"success": true' in done.stdout, done.stdout  # the status is 0 in any case
        while not out.exists():
            time.sleep(0.2)
    return read_json(out)


def our_fits(folder: Path, transport: str) -> tuple[list[float], list[float]]:
    """Seconds of each round of three default fits, and of each command as a whole."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(8, 2)) * 3
    rows = {s: centers[rng.integers(0, 8, 5000)] + rng.normal(size=(5000, 2)) for s in "abc"}
    rounds, commands = [], []
    with {"flower": federation, "flare": flare}[transport](folder, rows) as running:
        for i in range(3):
            began = time.monotonic()
            run = running.run("fit", "-k", 8, "--out", folder / f"out{i}")
            assert run.wait() == 0, run.said()
            commands.append(time.monotonic() - began)
            records = running.communication_rounds()[0].parent.iterdir()
            rounds += np.diff(sorted(path.stat().st_mtime for path in records)).tolist()
    return rounds, commands


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["flower", "flare"], default="flower")
    transport = parser.parse_args().transport
    with tempfile.TemporaryDirectory() as folder:
        empty = empty_rounds(Path(folder) / "empty") if transport == "flower" else []
        rounds, commands = our_fits(Path(folder), transport)
    print(f"default fits, K = 8, three sites: {len(rounds)} rounds, of which each took")
    print(f"  {np.mean(rounds):.3f} s in the mean, {np.median(rounds):.3f} s in the median")
    print(f"rounds of one fit: {sum(rounds) / len(commands):.1f} s")
    print(f"whole commands: {', '.join(f'{seconds:.1f} s' for seconds in commands)}")
    if empty:
        print(f"Flower's own empty round: {np.mean(empty):.2f} s, mean of {len(empty)}")


if __name__ == "__main__":
    main()
