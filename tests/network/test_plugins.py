"""A package of a third party: a format, an algorithm, a metric, a preparation and a transport.

Each is used from the command line and, where it makes sense, over the wire; nothing private is
imported. Plugins are known to a whole process, so each use is one of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import RunningFederation, federation, labelled, read_json
from forked import run_command

pytestmark = pytest.mark.thorough

PARTY = '''
import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fedcluster.core import State, Summary, Task
from fedcluster.extend import CENTERS, Allowed, Means, Real, means, total
from fedcluster_app.extend import ArrowTable, Format
from fedcluster.metrics import Inertia


def open_lines(path):
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return ArrowTable(path, pa.Table.from_pylist(rows))


FORMATS = {".jsonl": Format("JSON lines", open_lines)}


def squared(state, data):
    return ((data.X[:, None] - state.centers) ** 2).sum(axis=2)


def weights(data):
    return np.ones(len(data)) if data.sample_weight is None else data.sample_weight


@dataclass(frozen=True)
class Damped:
    client_additive = server_additive = needs_centers = True
    min_cluster_size = 1
    objective = Inertia
    allowed = Allowed({"rate": Real(0, 1)}, CENTERS)
    rate: float = 0.5

    def answer_shape(self, state, n_columns):
        return len(state.centers), n_columns

    def client_step(self, state, data, rng):
        near = squared(state, data).argmin(axis=1)
        belongs = (near[:, None] == np.arange(len(state.centers))).astype(float)
        weighed = belongs * weights(data)[:, None]
        return Summary(weighed.T @ data.X, weighed.sum(axis=0), belongs.sum(axis=0))

    def server_step(self, state, answers, rng):
        sent = total(answers)
        move = self.rate * (means(sent.sums, sent.weights, state.centers) - state.centers)
        done = bool((abs(move) < 1e-6).all())
        return State(state.centers + move, sent.weights, round=state.round + 1, converged=done)


@dataclass(frozen=True)
class Far:
    client_additive = server_additive = True
    maximise = False
    allowed = Allowed({"r": Real(0, 1e9)}, CENTERS)
    r: float = 0.5

    def answer_shape(self, state, n_columns):
        return 1, 1

    def client_step(self, state, data, rng):
        told = (squared(state, data).min(axis=1) > self.r**2) @ weights(data), weights(data).sum()
        return Summary(np.array([told[:1]]), np.array(told[1:]), np.array([float(len(data))]))

    def score(self, state, total):
        return float(total.sums[0, 0] / total.weights[0])


@dataclass(frozen=True)
class Cubes:
    """The third root of each value, less its mean at all sites, which a fit asks for."""

    middle: tuple = ()

    def names(self, names):
        return [f"root of {name}" for name in names]

    def apply(self, X):
        return np.cbrt(X) - np.array(self.middle or np.zeros(X.shape[1]))

    def invert(self, X):
        return (X + np.array(self.middle or 0.0)) ** 3

    def fit(self, names):
        [answers] = yield [Task(Means(), State())]
        told = answers.total()
        middle = told.sums[:, 0] / told.weights
        return Cubes(tuple(np.cbrt(middle).tolist()))

    def check(self, width):
        if self.middle and len(self.middle) != width:
            raise ValueError(f"middle must have {width} numbers")
'''

TRANSPORT = """
import sys

import numpy as np
import party
from fedcluster import Client, Data, FederatedKMeans
from fedcluster.core import Column
from fedcluster_app.extend import RemoteEngine, load_plugins, responder
from fedcluster.preprocessing import PreprocessingSpec

rows = {"north": np.arange(20.0)[:, None] % 7, "south": np.arange(30.0)[:, None] % 11 + 20}


class Letters:
    \"\"\"A transport: bytes to a site, bytes back.\"\"\"

    def __init__(self):
        self.sites = {
            name: responder(client, columns=["size"], choose=lambda names, raw, c=client: c)
            for name, X in rows.items()
            for client in [Client(name, Data(X, columns=(Column("size"),)), filters=())]
        }

    def exchange(self, messages, enough):
        return {name: self.sites[name].reply(message) for name, message in messages.items()}, {}


def fit(**options):
    model = FederatedKMeans(3, random_state=0, **options)
    return model.fit(engine=RemoteEngine(Letters(), rows))


if "unloaded" in sys.argv:
    for options in ({"algorithm": party.Damped()}, {"prepare": party.Cubes()}):
        try:
            fit(**options)
        except Exception as error:
            print(error)
        else:
            raise SystemExit("a site knows what nobody has loaded there")
else:
    load_plugins(["party"])
    model = fit(algorithm=party.Damped(), prepare=party.Cubes())
    local = FederatedKMeans(3, random_state=0, algorithm=party.Damped(), prepare=party.Cubes())
    local.fit({name: {"size": X[:, 0]} for name, X in rows.items()})
    assert np.allclose(model.cluster_centers_, local.cluster_centers_)
    print(model.preprocessor_.names_out)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("north", "south"):
        X = rng.normal(size=(40, 2)) + 9 * rng.integers(0, 2, (40, 1))
        rows = [{"age": a, "size": b} for a, b in X.tolist()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "party.py").write_text(PARTY)
    return tmp_path


def run(folder: Path, *arguments: str, fails: bool = False, path: str = "") -> str:
    ran = run_command(*arguments, folder=folder, path=path)
    assert ran.returncode == 2 * fails, ran.stderr
    return ran.stderr if fails else ran.stdout


FILES = ("north.jsonl", "south.jsonl")
PLUGIN = ("--set", "plugins=['party']")
LOADED = ("--plugin", "party")
OWN = ("--algorithm", "party.Damped", "--set", "prepare.then=party.Cubes")
FAR = ("--set", "evaluate.metrics=party.Far")


def test_all_commands_take_what_a_plugin_of_the_current_folder_has(folder: Path) -> None:
    run(folder, "fit", *FILES, *PLUGIN, *OWN, "-k", "2", "--out", "out")
    model = json.loads((folder / "out" / "model.json").read_text())
    assert model["preprocessing"]["principal"]["own"] == "Cubes"
    assert any(step.startswith("Damped(") for step in model["algorithm"]["steps"])
    assert list(model["centers_in_units"]) == ["age", "size"]
    scores = json.loads(run(folder, "evaluate", "out", *FILES, *PLUGIN, *FAR, "--json"))
    assert "Far(r=0.5)" in scores["scores"]
    run(folder, "predict", "out", *FILES, *PLUGIN, "--out", "labels")
    assert len((folder / "labels" / "north.csv").read_text().splitlines()) == 41
    chosen = json.loads(run(folder, "select-k", *FILES, *PLUGIN, "--k-max", "3", "--json"))
    assert chosen["n_clusters"] == 2
    assert "north" in run(folder, "check", *FILES, *PLUGIN)


def test_a_model_is_not_damaged_where_its_plugin_is_not_loaded(folder: Path) -> None:
    own = ("--algorithm", "party.Damped(rate=0.25)", "--set", "prepare.then=party.Cubes")
    run(folder, "fit", *FILES, *PLUGIN, *own, "-k", "2", "--out", "out")
    (folder / "rows.csv").write_text("age,size\n1,2\n3,4\n")
    for command in (("predict", "out", "rows.csv"), ("evaluate", "out", "rows.csv")):
        line = run(folder, *command, "--out", "new", fails=True)
        assert "preparation 'Cubes' is of no plugin that is loaded here: name its" in line
        assert "damaged" not in line
        assert "policy" not in line


def test_without_its_plugin_nothing_is_known(folder: Path) -> None:
    assert "of an unknown kind" in run(folder, "fit", *FILES, "-k", "2", fails=True)
    line = run(folder, "fit", *FILES, "--set", "plugins=['absent']", "-k", "2", fails=True)
    assert "plugin 'absent' cannot be imported: ModuleNotFoundError" in line


def test_an_algorithm_of_the_current_folder_needs_no_plugin(folder: Path) -> None:
    (folder / "a.csv").write_text("x\n1\n2\n9\n8\n")
    (folder / "b.csv").write_text("x\n1\n3\n9\n7\n")
    run(folder, "fit", "a.csv", "b.csv", "--algorithm", "party.Damped", "-k", "2", "--out", "out")


def test_a_site_file_and_an_entry_point_name_plugins(folder: Path) -> None:
    """The module is installed; a module beside the site file is not imported."""
    toml, installed = folder / "site.toml", folder / "installed"
    for name in ("party", "json-lines"):
        about = f'name = "north"\nplugins = ["{name}"]\n'
        toml.write_text(f'{about}[source]\npath = "north.jsonl"\n')
        line = run(folder, "check", "site.toml", fails=True)
        assert f"plugin '{name}' cannot be imported" in line
    info = installed / "party-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: party\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[fedcluster]\njson-lines = party\n")
    (folder / "party.py").rename(installed / "party.py")
    assert "age" in run(folder, "check", "site.toml", path=str(installed))
    named = ("--set", "plugins=['json-lines']")
    run(folder, "check", *FILES, *named, path=str(installed))


@pytest.mark.network
@pytest.mark.long
def test_a_plugin_works_over_a_federation(folder: Path, tmp_path: Path) -> None:
    """Rows of a format of its own are clustered, scored and labelled by its other parts.

    One site names it in its file, all other programs on the command line.
    """

    def prepare(running: RunningFederation) -> None:
        paths = filter(None, [str(folder), running.env.get("PYTHONPATH")])
        running.env["PYTHONPATH"] = os.pathsep.join(paths)
        running.options = {"start": LOADED, "south": LOADED}
        for name in ("north", "south"):
            toml = running.site(name) / "site.toml"
            text = toml.read_text().replace('"rows.csv"', '"rows.jsonl"')
            named = 'plugins = ["party"]\n' if name == "north" else ""
            named += 'columns = ["age", "size"]\n'
            toml.write_text(named + text.replace('label_column = "side"', ""))
            (folder / f"{name}.jsonl").rename(running.site(name) / "rows.jsonl")

    plugin, out = (*PLUGIN, "--json"), tmp_path / "out"
    no_rows = {name: np.zeros((0, 2)) for name in ("north", "south")}
    with federation(tmp_path / "network", no_rows, prepare=prepare) as running:
        running.run("fit", "-k", 2, *OWN, *plugin, "--out", out).done()
        model = read_json(out / "model.json")
        assert model["preprocessing"]["principal"]["own"] == "Cubes"
        assert any(step.startswith("Damped(") for step in model["algorithm"]["steps"])
        running.run("evaluate", out, *FAR, *plugin, "--out", tmp_path / "s").done()
        assert "Far(r=0.5)" in read_json(tmp_path / "s" / "scores.json")["scores"]
        for name in no_rows:
            assert "model and labels are in" in labelled(running.site(name))


def _python(folder: Path, *arguments: str) -> str:
    (folder / "over_a_wire.py").write_text(TRANSPORT)
    how: dict[str, Any] = {"cwd": folder, "capture_output": True, "text": True}
    ran = subprocess.run([sys.executable, "over_a_wire.py", *arguments], check=False, **how)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_transport_carries_steps_and_preparations_of_a_plugin(folder: Path) -> None:
    assert "root of size" in _python(folder)


def test_a_site_refuses_what_its_owner_has_not_loaded(folder: Path) -> None:
    said = _python(folder, "unloaded")
    assert "step 'Damped' is not among the steps that this site knows" in said
    assert "preparation 'Cubes' is of no plugin that is loaded here" in said
