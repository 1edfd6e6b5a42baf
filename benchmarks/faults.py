"""Faults of real federations: every run must end with the right result for who took part.

    python benchmarks/faults.py [RUNS]

Four sites on this machine, over TLS, with keys. RUNS (20) times each: a site is killed in the
middle, and three are enough; the same, and it comes back; the coordinator is killed and resumed.
A run is right if its centres are, to the last bit, those of the same clustering in one process
with the same sites missing in the same rounds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from federations import RunningFederation, federation, read_json

from fedcluster.client import Client
from fedcluster.core import Data
from fedcluster.engines import LocalEngine, wire
from fedcluster.federation.jobs import Fit
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.rounds import drive

RNG = np.random.default_rng(0)
ROWS = {
    name: RNG.normal(size=(n, 2)) * 2 + RNG.integers(0, 4, (n, 1)) * [3.0, 5.0]
    for name, n in {"north": 60, "south": 80, "west": 70, "east": 50}.items()
}
ROUNDS = 4
DEADLINE = 20
STEPS = ["--algorithm", "lloyd", "--init", "summaries", "--tol", 0, "--max-iter", ROUNDS]

Fault = Callable[[RunningFederation, str, int, Path], str]


def begin(running: RunningFederation, seed: int, out: Path):
    terms = ["--quorum", 3, "--deadline", DEADLINE]
    return running.run("fit", "-k", 4, "--seed", seed, *STEPS, *terms, "--out", out)


def site_killed(running: RunningFederation, site: str, seed: int, out: Path) -> str:
    run = begin(running, seed, out)
    running.wait_for_exchange(1 + seed % 3)
    running.sites[site].kill()
    status = run.wait(300)
    running.join(site)
    return verdict(running, seed, out, status, run.said())


def site_comes_back(running: RunningFederation, site: str, seed: int, out: Path) -> str:
    run = begin(running, seed, out)
    running.wait_for_exchange(1 + seed % 3)
    running.sites[site].kill()
    running.join(site)
    return verdict(running, seed, out, run.wait(300), run.said())


def coordinator_killed(running: RunningFederation, site: str, seed: int, out: Path) -> str:
    run = begin(running, seed, out)
    running.wait_for_exchange(1 + seed % 3)
    running.coordinator.kill()
    if run.wait(300) != 2:
        return f"no error: {run.said()}"
    name = run.said().split()[-1]
    running.start()
    again = running.command("federation", "run", running.folder, "resume", name)
    return verdict(running, seed, out, again.wait(300), again.said())


def verdict(running: RunningFederation, seed: int, out: Path, status: int, said: str) -> str:
    """Nothing if the result is right, else what is wrong."""
    if status:
        return said
    missing = [wire.unpack(path.read_bytes())[0]["missing"] for path in running.exchanges()]
    limits = [MinRows(2), MinClusterSize(2)]
    here = LocalEngine(
        (Client(name, Data(X), limits) for name, X in ROWS.items()),
        silent=lambda site, r: site in missing[r],
    )
    job = Fit(4, algorithm="lloyd", init="summaries", tol=0, max_iter=ROUNDS, seed=seed)
    expected = drive(job.plan(), here, seed=seed).value.state.centers
    found = np.array(read_json(out / "model.json")["centers"])
    return "" if found.tobytes() == expected.tobytes() else "other centres"


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    faults: dict[str, Fault] = {
        "a site is killed": site_killed,
        "a site is killed and comes back": site_comes_back,
        "the coordinator is killed and resumed": coordinator_killed,
    }
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, federation(Path(folder), ROWS) as running:
        for name, fault in faults.items():
            seconds = []
            for i in range(runs):
                began = time.monotonic()
                site = sorted(ROWS)[i % len(ROWS)]
                complaint = fault(running, site, i, Path(folder) / f"{name}-{i}")
                seconds.append(time.monotonic() - began)
                wrong += bool(complaint)
                if complaint:
                    print(f"{name}, run {i}, {site}: {complaint}", flush=True)
            print(f"{name}: {runs} runs, at most {max(seconds):.0f} s each", flush=True)
        running.end()
        print(f"left over: {len(running.left_over())} processes")
    print(f"wrong: {wrong} of {runs * len(faults)}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
