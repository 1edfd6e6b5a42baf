"""Faults of real federations: every run must end with the right result for who took part.

    python benchmarks/faults.py [RUNS] [--transport flower|flare] [--first SEED] [--kills]

Four sites on this machine, over TLS, with keys. RUNS (20) times each: a site is killed in the
middle, and three are enough; the same, and it comes back; a site's programs are stopped for 90 s;
the coordinator is killed and resumed.
A run is right if its centres are, to the last bit, those of the same clustering in one process
with the same sites missing in the same rounds. Every other run prepares its rows. The runs have
the seeds SEED (0), SEED + 1, ...: so that some may be added later.

With --kills: in each run, any program is killed at any moment, and started again in
any way, by its command alone. All sites are needed. A run that says that it was broken off is
resumed. Nothing may be left after ten seconds that no command has started.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from federations import Command, RunningFederation, federation, in_one_process, lloyd_of, read_json
from flares import flare
from kills import FLARE, FLOWER, Kill, Programs, resumed

from fedcluster.jobs import fit_of
from fedcluster.preprocessing import PreprocessingSpec

RNG = np.random.default_rng(0)
ROWS = {
    name: RNG.normal(size=(n, 2)) * 2 + RNG.integers(0, 4, (n, 1)) * [3.0, 5.0]
    for name, n in {"north": 60, "south": 80, "west": 70, "east": 50}.items()
}
ROUNDS = 4
SCALES = ["standard", "none"]
DEADLINE = 60
STOPPED = 90.0
"""Seconds that a site is stopped."""
STEPS = lloyd_of(ROUNDS)

Fault = Callable[[RunningFederation, str, int, Path], str]


def begin(running: RunningFederation, seed: int, out: Path, quorum: int = 3) -> Command:
    terms = ["--quorum", quorum, "--set", f"run.deadline={DEADLINE}", "--scale", SCALES[seed % 2]]
    return running.run("fit", "-k", 4, "--seed", seed, *STEPS, *terms, "--out", out)


def site_killed(running: RunningFederation, site: str, seed: int, out: Path) -> str:
    run = begin(running, seed, out)
    running.wait_for_exchange(1 + seed % 3)
    running.kill(running.sites[site])
    status = run.wait()
    running.join(site)
    return verdict(running, seed, out, status, run.said())


def site_comes_back(running: RunningFederation, site: str, seed: int, out: Path) -> str:
    run = begin(running, seed, out)
    running.wait_for_exchange(1 + seed % 3)
    running.kill(running.sites[site])
    running.join(site)
    return verdict(running, seed, out, run.wait(), run.said())


def site_stopped(running: RunningFederation, site: str, seed: int, out: Path) -> str:
    """All programs of a site, as a machine that sleeps; the run ends without it, or waits."""
    run = begin(running, seed, out)
    running.wait_for_exchange(1 + seed % 3)
    pids = running.programs(running.sites[site])
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        status = run.wait()
        took = time.monotonic() - began
        time.sleep(max(0.0, STOPPED - took))
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    running.wait_until(lambda: running.connected() == set(ROWS))  # or the next run lacks it, too
    return verdict(running, seed, out, status, run.said())


def coordinator_killed(running: RunningFederation, site: str, seed: int, out: Path) -> str:
    run = begin(running, seed, out)
    running.wait_for_exchange(1 + seed % 3)
    running.kill(running.coordinator)
    if run.wait() != 2:
        return f"no error: {run.said()}"
    name = run.said().split()[-1]
    running.start()
    again = running.command("federation", "run", running.folder, "resume", name)
    return verdict(running, seed, out, again.wait(), again.said())


def killed(programs: Programs, running: RunningFederation, _site: str, seed: int, out: Path) -> str:
    kill = Kill(seed, sorted(ROWS), ROUNDS, programs)
    begin(running, seed, out, len(ROWS))
    wrong = kill.carry_out(running) or resumed(running, out) or verdict(running, seed, out)
    return f"{kill}: {wrong}" if wrong else ""


def tried(fault: Fault, running: RunningFederation, site: str, seed: int, out: Path) -> str:
    """What is wrong after a fault; what the benchmark itself could not wait for is wrong, too."""
    try:
        return fault(running, site, seed, out)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"


def here(seed: int, missing: Sequence[Sequence[str]] = ()) -> np.ndarray:
    """The centres of the same clustering in this process, with these sites missing by exchange."""
    prepare = [PreprocessingSpec(missing="mean"), None][seed % 2]
    job = fit_of(
        4,
        algorithm="lloyd",
        init="summaries",
        tol=0,
        max_iter=ROUNDS,
        seed=seed,
        prepare=prepare,
    )

    def silent(site: str, r: int) -> bool:
        return bool(missing) and site in missing[r]

    return in_one_process(job, ROWS, silent)[1].state.centers


def verdict(
    running: RunningFederation, seed: int, out: Path, status: int = 0, said: str = ""
) -> str:
    """Nothing if the result is right, else what is wrong."""
    if status:
        return said
    expected = here(seed, running.missing())
    found = np.array(read_json(out / "model.json")["centers"])
    return "" if found.tobytes() == expected.tobytes() else "other centres"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="?", type=int, default=20)
    parser.add_argument("--transport", choices=["flower", "flare"], default="flower")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the first run")
    parser.add_argument("--kills", action="store_true", help="of any program")
    given = parser.parse_args()
    runs, started = given.runs, {"flower": federation, "flare": flare}[given.transport]
    faults: dict[str, Fault] = {
        "a site is killed": site_killed,
        "a site is killed and comes back": site_comes_back,
        "a site is stopped for 90 s": site_stopped,
        "the coordinator is killed and resumed": coordinator_killed,
    }
    if given.kills:
        programs = {"flower": FLOWER, "flare": FLARE}[given.transport]
        faults = {"any program is killed": partial(killed, programs)}
    here(0), here(1)  # compiles what the sites will need: that shall not count against a deadline
    sys.exit(bool(all_tried(faults, given.first, runs, started)))


def all_tried(
    faults: Mapping[str, Fault], first: int, runs: int, started: Callable[..., Any]
) -> int:
    """Try each fault as often as there are runs, and print what is wrong; return how many are."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, started(Path(folder), ROWS) as running:
        for name, fault in faults.items():
            seconds = []
            for i in range(first, first + runs):
                began = time.monotonic()
                site = sorted(ROWS)[i % len(ROWS)]
                complaint = tried(fault, running, site, i, Path(folder) / f"{name}-{i}")
                seconds.append(time.monotonic() - began)
                wrong += bool(complaint)
                if complaint:
                    print(f"{name}, run {i}, {site}: {complaint}", flush=True)
            print(f"{name}: {runs} runs, {np.median(seconds):.0f} s, at most {max(seconds):.0f} s")
            sys.stdout.flush()
        running.end()
        print(f"left over: {len(running.left_over())} processes")
    print(f"wrong: {wrong} of {runs * len(faults)}")
    return wrong


if __name__ == "__main__":
    main()
