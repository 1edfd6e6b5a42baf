"""Fits of a federation whose port strangers occupy, beside the same fits without them.

    python benchmarks/strangers.py [PAIRS] [--strangers N] [--flare]

Three sites on this machine, over TLS, with keys. PAIRS (10) times, in turn: a fit of four rounds
alone, then one beside N (5,000) connections of strangers from eight addresses, of which a third
says nothing, a third begins a handshake, and a third ends it and sends its request byte by byte;
who is sent away comes again after a second. Printed are the seconds of the whole command and of a
round, and the processor time of the coordinator.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from federations import RunningFederation, federation, lloyd_of
from flares import flare

from fedcluster_app.wire.recorder import PROGRESS

RNG = np.random.default_rng(0)
ROWS = {
    name: RNG.normal(size=(60, 2)) + RNG.integers(0, 4, (60, 1)) * [3.0, 5.0]
    for name in ("north", "south", "west")
}
KINDS = ("idle", "half open", "slow")
REST = 15
"""Seconds before each fit, also one alone: FLARE clears the one before for some."""
HELLO = b"\x16\x03\x01\x02\x00\x01"
"""The beginning of a TLS handshake."""


async def stranger(port: int, i: int, open_now: Counter[str]) -> None:
    """Hold a connection of the i-th stranger, and come again when it is closed."""
    kind, source = KINDS[i % 3], (f"127.0.0.{2 + i % 8}", 0)
    encrypted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if kind == "slow" else None
    if encrypted:  # a stranger trusts any server
        encrypted.check_hostname, encrypted.verify_mode = False, ssl.CERT_NONE
    await asyncio.sleep(5 * i / 5000)
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            how = {"ssl": encrypted, "local_addr": source}
            reader, writer = await asyncio.open_connection("127.0.0.1", port, **how)
            open_now[kind] += 1
            open_now["opened"] += 1
            try:
                if kind == "half open":
                    writer.write(HELLO)
                if kind == "slow":
                    for byte in b"GET / HTTP/1.1\r\nX: " + b"x" * 100:
                        writer.write(bytes([byte]))
                        await asyncio.sleep(1)
                await reader.read()
            finally:
                open_now[kind] -= 1
                writer.transport.abort()
        await asyncio.sleep(1)


async def strangers(port: int, number: int) -> None:
    """Hold so many connections, and print how many there are."""
    open_now: Counter[str] = Counter()
    tasks = [asyncio.create_task(stranger(port, i, open_now)) for i in range(number)]
    while tasks:
        await asyncio.sleep(1)
        print(*(open_now[kind] for kind in (*KINDS, "opened")), flush=True)


@contextmanager
def beside(running: RunningFederation, number: int, log: Path) -> Iterator[None]:
    """Let strangers occupy the port within the block, at the lowest priority."""
    command = ["nice", "-n", "5", sys.executable, "-W", "ignore", __file__]
    with log.open("wb") as file:
        more = ["--at", str(running.federation.port), "--strangers", str(number)]
        process = subprocess.Popen([*command, *more], stdout=file, stderr=subprocess.DEVNULL)
    try:
        running.wait_until(lambda: len(log.read_bytes().splitlines()) > REST)
        yield
    finally:
        process.kill()
        process.wait()


def processor_seconds(running: RunningFederation) -> float:
    """The processor time of a coordinator, with all that it started, also what has ended."""
    files = [Path(f"/proc/{pid}/stat") for pid in running.programs(running.coordinator)]
    stats = [file.read_text() for file in files if file.exists()]
    ticks = sum(sum(map(int, stat.rpartition(")")[2].split()[11:15])) for stat in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def fitted(running: RunningFederation, out: Path, seed: int) -> tuple[float, float, float]:
    """The seconds of a fit, of its rounds, and of the coordinator's processors."""
    used, began = processor_seconds(running), time.monotonic()
    run = running.run("fit", "-k", 4, "--seed", seed, *lloyd_of(4), "--out", out)
    assert run.wait() == 0, run.said()
    took = time.monotonic() - began
    [folder] = running.begun()
    events = map(json.loads, (folder / PROGRESS).read_text().splitlines())
    at = [event["at"] for event in events if {"asked", "answered"} & event.keys()]
    return took, at[-1] - at[0], processor_seconds(running) - used


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pairs", nargs="?", type=int, default=10)
    parser.add_argument("--strangers", type=int, default=5000)
    parser.add_argument("--flare", action="store_const", const=flare, default=federation)
    parser.add_argument("--at", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.at is not None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        asyncio.run(strangers(given.at, given.strangers))
    with tempfile.TemporaryDirectory() as name, given.flare(folder := Path(name), ROWS) as running:
        fitted(running, folder / "first", 0)
        alone, others = [], []
        for i in range(given.pairs):
            time.sleep(REST)
            alone.append(fitted(running, folder / f"alone-{i}", i))
            log = folder / f"strangers-{i}.txt"
            with beside(running, given.strangers, log):
                others.append(fitted(running, folder / f"beside-{i}", i))
            print(i, np.round([alone[-1], others[-1]], 1).tolist(), log.read_text().split("\n")[-2])
            sys.stdout.flush()
        for j, what in enumerate(("the command", "its rounds", "the coordinator's processors")):
            first, second = (np.array(each)[:, j] for each in (alone, others))
            error = (second - first).std(ddof=1) / len(first) ** 0.5
            print(
                f"{what}: {first.mean():.1f} s alone, {second.mean():.1f} s beside strangers ",
                end="",
            )
            print(f"({(second - first).mean() / first.mean():+.0%}, standard error {error:.1f} s)")


if __name__ == "__main__":
    main()
