"""Flower's apps."""

import json
import time

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedcluster.algorithms import Lloyd
from fedcluster.core import State, Task
from fedcluster.engines.flower import FlowerEngine

client = ClientApp()
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    job = json.load(open(context.run_config["job"]))
    engine = FlowerEngine(grid, {int(n): s for n, s in job["nodes"].items()})
    times = []
    for r in range(job["rounds"]):
        t = time.time()
        engine.ask([Task(Lloyd(), State.at(np.eye(2)))])
        times.append(time.time() - t)
        json.dump(times, open(job["out"] + ".part", "w"))
    json.dump(times, open(job["out"], "w"))
