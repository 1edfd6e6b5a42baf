"""What it takes to add an algorithm, an index or a fact of sites: what is below, and no more.

Each program adds what CONTRIBUTING says, in a process of its own, before anything is loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ALGORITHM = """
import sys
from pathlib import Path

FILE = '''
from dataclasses import dataclass, replace

from fedcluster.algorithms import Lloyd


@dataclass(frozen=True)
class Still(Lloyd):
    @classmethod
    def from_fit(cls, fit):
        return cls(fit.tol)

    def server_step(self, state, answers, rng):
        return replace(Lloyd.server_step(self, state, answers, rng), converged=True)
'''
import fedcluster.algorithms
import fedcluster.options.choices as choices

Path("added").mkdir(exist_ok=True)
fedcluster.algorithms.__path__.append("added")
Path("added/_still.py").write_text(FILE)  # file 1: the algorithm; it stops after one round
choices.ALGORITHMS["still"] = "_still:Still.from_fit"  # file 2: its rows
choices.STEPS["Still"] = "fedcluster.algorithms._still.Still"

from fedcluster import FederatedKMeans
from fedcluster_app.cli import app
from fedcluster.engines.wire import read_steps

assert read_steps([{"step": "Still"}])[0].__name__ == "Still", "sites know it"
rows = [[0.0], [1.0], [8.0], [9.0]]
model = FederatedKMeans(2, algorithm="still", random_state=0)
assert model.fit({"a": rows, "b": rows}).n_clusters_ == 2
try:
    app(["fit", "--help"])
except SystemExit:
    print("END OF HELP")
app(sys.argv[1:])
"""

EDITING = """
import sys
from importlib.machinery import PathFinder, SourceFileLoader


class Loader(SourceFileLoader):
    def get_code(self, name):
        after, line = ADDED[name]
        source = self.get_data(self.path).decode()
        assert source.count(after) == 1 or not after
        edited = source.replace(after, after + chr(10) + line) if after else source + line
        return compile(edited, self.path, "exec")


class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = super().find_spec(name, path, target)
        if name in ADDED:
            spec.loader = Loader(name, spec.origin)
        return spec


sys.meta_path.insert(0, Finder)
"""

INDEX = f"""
ADDED = {{  # by file: after what a line is added, and the line
    "fedcluster.metrics.clusters": ("", "def tightness(state, total): return -len(state.centers)"),
    "fedcluster.metrics.indices": (
        "METRICS: Mapping[str, Index] = {{",
        "'tightness': Index(SCATTER, clusters.tightness, False, Choosing('tightness')),",
    ),
    "fedcluster.options.choices": ('    "inertia",', '    "tightness",'),
}}
{EDITING}
from fedcluster_app.cli import app

app(sys.argv[1:])
"""

FACT = f"""
ADDED = {{
    "fedcluster.core.task": (
        "    n_columns: int | None = field(default=None, compare=False)",
        "    schema_version: int = 0",
    ),
    "fedcluster.engines.client": (
        "            n_columns=n_columns_of(self.rows),",
        "            schema_version=len(self.name) + 2,",
    ),
}}
{EDITING}
import tempfile
from pathlib import Path

import numpy as np

from fedcluster import Client, Data, LocalEngine
from fedcluster_app.wire.recorder import RecordedEngine
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder
from fedcluster_app.trust.audit_log import AuditLog, read_log
from fedcluster_app.site.membership import QuestionFolder, SiteAuditor

rows = Data(np.eye(3))
folder = tempfile.TemporaryDirectory()
log = AuditLog(Path(folder.name, "audit.jsonl"), "both")
auditor = SiteAuditor(log, QuestionFolder(Path(folder.name, "questions"), 1 << 20), "us")
there = {{name: Responder(Client(name, rows), auditor=auditor) for name in ("a", "bc")}}


class Wire:
    def exchange(self, messages, enough):
        return {{name: there[name].reply(message) for name, message in messages.items()}}, {{}}


def told(engine):
    return [(site.schema_version, site.n_columns) for site in engine.introduce()]


local = LocalEngine([Client("a", rows), Client("bc", rows)])
asked = RecordedEngine(RemoteEngine(Wire(), there), Path("record"))
assert told(local) == told(asked) == [(3, 3), (4, 3)]
assert told(RecordedEngine(None, Path("record"))) == told(local), "from the checkpoint"
told_of = [line["told"]["schema_version"] for line in read_log(log.path) if "told" in line]
assert told_of == [3, 4], "the log says so"
assert told(LocalEngine.from_table(rows, ["a", "bc", "bc"])) == told(local)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("north", "south"):
        X = rng.normal(size=(40, 2)) + 9 * rng.integers(0, 2, (40, 1))
        lines = [",".join(map(repr, row)) for row in X.tolist()]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y", *lines]))
    return tmp_path


def run(program: str, folder: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_an_algorithm_with_a_name_takes_two_files(folder: Path) -> None:
    files = ("north.csv", "south.csv")
    said = run(ALGORITHM, folder, "fit", *files, "-k", "2", "--algorithm", "still", "--out", "out")
    assert "still" in said.partition("END OF HELP")[0]
    model = json.loads((folder / "out" / "model.json").read_text())
    assert model["algorithm"]["name"] == "still"
    assert any(step.startswith("Still(") for step in model["algorithm"]["steps"])


@pytest.mark.long
def test_an_index_that_chooses_takes_three_files(folder: Path) -> None:
    files = ("north.csv", "south.csv")
    options = ("--set", "select_k.rule=tightness", "--k-max", "4", "--json")
    chosen = json.loads(run(INDEX, folder, "select-k", *files, *options))
    assert (chosen["n_clusters"], chosen["reason"]) == (4, "Tightness says 4.")
    run(INDEX, folder, "fit", *files, "-k", "3", "--out", "out")
    scores = json.loads(run(INDEX, folder, "evaluate", "out", *files, "--json"))
    assert scores["scores"]["tightness"] == -3.0
    assert scores["better"]["tightness"] == "lower"


def test_a_fact_that_sites_tell_takes_two_files(folder: Path) -> None:
    run(FACT, folder)
