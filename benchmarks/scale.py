"""What a round costs with three, a thousand and a million sites.

    python benchmarks/scale.py round [--sites 1e6]       a million sites in one process
    python benchmarks/scale.py coordinator 1000          replies of so many sites, read and added
    python benchmarks/scale.py groups FOLDER 1e8         a table larger than memory, grouped once
    python benchmarks/scale.py memory FOLDER 1e7 1e6     a fit of a table in row groups of a size

Sites hold 20 rows of 8 columns, rows have 8 clusters that overlap. Each run is a process of its
own, whose peak memory is told.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster import Client, Data, FederatedKMeans, LocalEngine, State, Task
from fedcluster.algorithms import Lloyd
from fedcluster_app.tables import open_rows
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder

ROWS, COLUMNS, CLUSTERS = 20, 8, 8


def peak() -> float:
    """Return the largest memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def population(n_sites: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return the rows of many sites in float32, one site after another, and where clusters are."""
    rng = np.random.default_rng(7)
    spots = rng.normal(size=(CLUSTERS, COLUMNS))
    share = rng.dirichlet(np.full(CLUSTERS, 3.0))
    rows = np.empty((n_sites * ROWS, COLUMNS), np.float32)
    for start in range(0, len(rows), 1 << 20):
        some = rows[start : start + (1 << 20)]
        labels = rng.choice(CLUSTERS, size=len(some), p=share)
        some[:] = rng.standard_normal(some.shape, dtype=np.float32)
        some += spots.astype(np.float32)[labels]
    return rows, spots


def measure_round(n_sites: int) -> None:
    rows, spots = population(n_sites)
    before = peak()
    engine = LocalEngine.from_table(Data(rows), np.repeat(np.arange(n_sites), ROWS))
    seconds = []
    for _ in range(4):
        begin = time.perf_counter()
        engine.ask([Task(Lloyd(), State.at(spots))])
        seconds.append(time.perf_counter() - begin)
    print(
        f"{n_sites:,} sites: a round {np.median(seconds[1:]):.2f} s (first {seconds[0]:.2f} s), "
        f"peak {peak():.0f} MB, {before:.0f} MB before the sites were made"
    )


def sites_of(n_sites: int) -> tuple[list[Client], State]:
    """Return clients, and centres to ask them about."""
    rows, spots = population(n_sites)
    parts = rows.astype(np.float64).reshape(n_sites, ROWS, COLUMNS)
    names = [f"s{i:06}" for i in range(n_sites)]
    sites = [Client(name, Data(rows)) for name, rows in zip(names, parts, strict=True)]
    return sites, State.at(spots)


class Posted:
    """Transport without a network: questions and replies are bytes, and are counted."""

    def __init__(self, ends: Mapping[str, Responder]) -> None:
        self.ends = ends
        self.asked = self.came = 0
        self.seconds = 0.0

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        begin = time.perf_counter()
        came = {name: self.ends[name].reply(message) for name, message in messages.items()}
        self.seconds = time.perf_counter() - begin
        self.asked, self.came = (sum(map(len, each.values())) for each in (messages, came))
        return came, {}


def posted(sites: list[Any]) -> tuple[RemoteEngine, Posted]:
    """Return an engine whose replies are checked, and what carries them."""
    transport = Posted({site.name: Responder(site) for site in sites})
    engine = RemoteEngine(transport, transport.ends)
    engine.introduce()
    return engine, transport


def measure_coordinator(n_sites: int) -> None:
    sites, start = sites_of(n_sites)
    engine, transport = posted(sites)
    before, seconds, added = peak(), [], []
    for number in range(5):
        begin = time.perf_counter()
        [answers] = engine.ask([Task(Lloyd(), replace(start, round=number))])
        seconds.append(time.perf_counter() - begin - transport.seconds)
        begin = time.perf_counter()
        answers.total()
        added.append(time.perf_counter() - begin)
    print(
        f"{n_sites:,} sites: {transport.asked / n_sites:.0f} bytes to each, "
        f"{transport.came / n_sites:.0f} from each; the coordinator takes "
        f"{1e3 * np.median(seconds):.1f} ms a round and {1e3 * np.median(added):.2f} ms to add, "
        f"{peak() - before:.0f} MB more; a site {1e3 * transport.seconds / n_sites:.2f} ms"
    )


def write_rows(path: Path, n: int, block: int = 625_000, group: int = 625_000) -> None:
    """Write a table of n rows of ten columns, drawn in blocks, in row groups of a size."""
    import pyarrow as pa
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return
    rng, names = np.random.default_rng(0), [f"x{j}" for j in range(10)]
    spots = 4 * rng.normal(size=(CLUSTERS, 10))
    with parquet.ParquetWriter(path, pa.schema([(name, pa.float64()) for name in names])) as file:
        for _ in range(max(1, n // block)):
            X = spots[rng.integers(0, CLUSTERS, block)] + rng.normal(size=(block, 10))
            file.write_table(pa.table(dict(zip(names, X.T, strict=True))), group)


def fitted(client: Client) -> None:
    FederatedKMeans(CLUSTERS, random_state=0).fit(engine=LocalEngine([client]))


def measure_memory(folder: Path, n: int, group: int) -> None:
    """Tell what a default fit of a table takes beyond one of 20,000 rows in the same process."""
    few, many = folder / "few.parquet", folder / f"{n}-{group}.parquet"
    for path, *sizes in ((few, 20_000, 20_000), (many, n, max(group, 625_000), group)):
        writer = multiprocessing.get_context("spawn").Process(
            target=write_rows, args=(path, *sizes)
        )
        writer.start()  # in a process of its own, which may take much memory
        writer.join()
    fitted(Client("north", open_rows(few)))
    before, begin = peak(), time.process_time()
    fitted(Client("north", open_rows(many)))
    seconds = time.process_time() - begin
    print(
        f"{n:,} rows in row groups of {group:,}: {peak() - before:.0f} MB beyond the {before:.0f} "
        f"MB of the program, {seconds:.0f} s of processor time"
    )


def measure_groups(folder: Path, n: int) -> None:
    """Group a table of n rows in blocks, and tell what it takes."""
    from fedcluster_app.site.file import SiteFile
    from fedcluster_app.site.means import group_once

    write_rows(folder / "rows.parquet", n)
    site = folder / "site.toml"
    site.write_text('name = "north"\nprotection = "groups"\n\n[source]\npath = "rows.parquet"\n')
    begin = time.process_time()
    SiteFile.load(site).confirm()
    n_groups, _, n_rows = group_once(SiteFile.load(site))
    seconds, size = time.process_time() - begin, SiteFile.load(site).means_file.stat().st_size
    print(
        f"{n_groups} groups of {n_rows} rows: {seconds / 60:.1f} minutes of processor time, peak "
        f"{peak():.0f} MB, {size / n_rows:.1f} bytes of means for each row"
    )
    client = SiteFile.load(site).grouped_client()
    begin = time.process_time()
    fitted(client)
    print(f"a fit: {time.process_time() - begin:.0f} s of processor time, peak {peak():.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["round", "coordinator", "groups", "memory"])
    parser.add_argument(
        "given",
        nargs="*",
        help="a number of sites, or a folder, rows and size of row groups",
    )
    parser.add_argument("--sites", type=float, default=1e6)
    asked = parser.parse_args()
    if asked.what == "round":
        measure_round(int(asked.sites))
    elif asked.what in ("groups", "memory"):
        sizes = [int(float(each)) for each in asked.given[1:]]
        {"groups": measure_groups, "memory": measure_memory}[asked.what](
            Path(asked.given[0]), *sizes
        )
    else:
        measure_coordinator(int(asked.given[0]))


if __name__ == "__main__":
    main()
