"""What secure sums cost: time and bytes of a round beside those of plain sums, as ratios.

    python benchmarks/secure.py

Ten sites in one process; the time is that of the processor, of all sites and the coordinator.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np

from fedcluster.algorithms import Lloyd
from fedcluster.core import Data, State, Task
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.wire.remote import RemoteEngine

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from secure_sites import Wire, federation

SITES, CLUSTERS, COLUMNS, ROWS, ROUNDS, WARM = 10, 16, 64, (20_000, 200_000), 15, 3
KINDS: dict[str, int | None] = {"plain": None, "all answer": None, "8 of 10 are left": 8}


def main() -> None:
    """Print a line for each number of rows and kind of sum."""
    rng = np.random.default_rng(1)
    for n in ROWS:
        centers = 4 * rng.normal(size=(CLUSTERS, COLUMNS))
        rows = centers[rng.integers(CLUSTERS, size=n)] + rng.normal(size=(n, COLUMNS))
        each = np.array_split(rows, SITES)
        parts = {f"site-{i}": Data(part) for i, part in enumerate(each)}
        engines = {kind: engine(kind, quorum, parts) for kind, quorum in KINDS.items()}
        times: dict[str, list[float]] = {kind: [] for kind in KINDS}
        sizes: dict[str, tuple[int, int]] = {}
        for _ in range(ROUNDS):
            state = State.at(centers + 0.1 * rng.normal(size=centers.shape))
            for kind, (wire, asked) in engines.items():
                wire.log.clear()
                began = time.process_time()
                asked.ask([Task(Lloyd(), state)])
                times[kind].append(time.process_time() - began)
                replies = sum(len(reply) for *_, reply in wire.log)
                sizes[kind] = sum(len(message) for _, message, _ in wire.log) + replies, replies
        plain = np.array(times["plain"][WARM:])
        for kind, spent in times.items():
            ratio = statistics.median(np.array(spent[WARM:]) / plain)
            every, replies = (a / b for a, b in zip(sizes[kind], sizes["plain"], strict=True))
            print(f"{n:>8,} {kind:18} time {ratio:.2f}, bytes {every:.2f}, replies {replies:.2f}")


def engine(kind: str, quorum: int | None, parts: dict[str, Data]) -> tuple[Wire, RemoteEngine]:
    """Return sites of one kind, and who asks them."""
    wire = federation(parts, secure=kind != "plain", dropouts=quorum is not None)
    made = (RemoteEngine if kind == "plain" else SecureEngine)(wire, parts, quorum=quorum)
    made.introduce()
    return wire, made


if __name__ == "__main__":
    main()
