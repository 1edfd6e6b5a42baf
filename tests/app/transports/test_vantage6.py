"""vantage6 on its mock network: the clusters of a fit, few exchanges, and nothing but sums.

The versions of its packages are pinned so narrowly that they do not install beside the others of
fedcluster: without them the tests play the network themselves. In an environment of their own,

    pip install "fedcluster[vantage6]" pytest && pytest tests/app/transports/test_vantage6.py

runs them on its own, with tools 5.0 on Python 3.13 and 4.15 before.
"""

import base64
import json
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedcluster import Client, LocalEngine, PreprocessingSpec
from fedcluster.engines.wire import pack, unpack
from fedcluster.errors import InputError
from fedcluster.jobs import SelectK, execute, fit_of
from fedcluster.privacy import Grouping, Groups
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.means import group_once
from fedcluster_app.tables.means_file import means_of

pd = pytest.importorskip("pandas")
algorithm = import_module("fedcluster_app.transports.vantage6.algorithm")
functions = import_module("fedcluster_app.transports.vantage6._functions")

STORE = Path(__file__).parents[3] / "packaging" / "vantage6"
MODULE = "fedcluster_app.transports.vantage6.algorithm"
pytestmark = pytest.mark.filterwarnings("ignore:no picture of the curves")  # nodes draw nothing
PLANTED = 7654.32109875, "Ottokar von Planted"
"""Values of one row, which no result may hold."""


def frames(seed: int = 0, n: int = 400) -> list[Any]:
    """Three organisations with five clusters, texts, and one planted row each."""
    made = []
    for i in range(3):
        rng = np.random.default_rng([seed, i])
        place = rng.integers(0, 5, n)
        X = rng.normal(size=(n, 3)) + 7 * np.array([place, -place, place % 2]).T
        frame = pd.DataFrame(X, columns=["age", "bmi", "sbp"])
        frame["sex"] = rng.choice(["F", "M"], n)
        frame.loc[0, ["sbp", "sex"]] = PLANTED
        made.append(frame)
    return made


def means_frame(frame: Any) -> Any:
    """The means of a frame's groups, as `fedcluster site groups` writes them."""
    with TemporaryDirectory() as name:
        frame.to_parquet(Path(name, "rows.parquet"))
        toml = Path(name, "site.toml")
        names = json.dumps([*frame.columns])
        toml.write_text(f'name = "north"\ncolumns = {names}\n[source]\npath = "rows.parquet"\n')
        group_once(SiteFile.load(toml))
        return functions.table_means({"uri": str(toml.with_suffix(".means.parquet"))}).to_pandas()


class Nodes:
    """Organisations with means, as a client of tools 4.15 shows them, where there are no tools."""

    def __init__(self, means: list[Any]) -> None:
        self.means, self.results = means, list[Any]()
        self.task = self.result = self.organization = self
        self.numbers = count()

    def list(self) -> list[dict[str, int]]:
        return [{"id": i + 1} for i in range(len(self.means))]

    def create(self, organizations: Any, input_: dict[str, Any], name: str = "") -> dict[str, int]:
        function, arguments = getattr(algorithm, input_["method"]), input_["kwargs"]
        task = next(self.numbers)
        for i in organizations:
            one = SimpleNamespace(organization_id=i)
            how = (self,) if input_["method"] != "answer" else (self.means[i - 1], one)
            self.results.append({"task": task, "result": json.dumps(function(*how, **arguments))})
        return {"id": task}

    def wait_for_results(self, task_id: int) -> Any:
        return [json.loads(each["result"]) for each in self.results if each["task"] == task_id]

    from_task = wait_for_results


class Network:
    """Mock network of either version; keeps what every task gives back."""

    def __init__(self, rows: list[Any]) -> None:
        self.results: list[Any] = []
        self.means = list(map(means_frame, rows))
        self.client: Any = Nodes(self.means)
        if functions.SESSIONS:
            from vantage6.algorithm.mock.network import MockNetwork

            datasets = [{"rows": {"database": means}} for means in self.means]
            self._network = MockNetwork(MODULE, datasets)
            self.client = self._network.user_client
        elif find_spec("vantage6"):
            from vantage6.algorithm.tools.mock_client import MockAlgorithmClient

            self.client = MockAlgorithmClient(
                [[{"database": frame}] for frame in self.means], MODULE, organization_ids=[1, 2, 3]
            )

    def __call__(self, method: str, **arguments: Any) -> Any:
        if functions.SESSIONS:
            databases = [{"type": "dataframe", "dataframe_id": 1}]
            task = self.client.task.create(
                organizations=[1], method=method, arguments=arguments, databases=databases
            )
            kept = [json.loads(each["result"]) for each in self._network.hq.results]
        else:
            given = {"method": method, "kwargs": arguments}
            task = self.client.task.create(input_=given, organizations=[1])
            kept = [json.loads(each["result"]) for each in self.client.results]
        [result] = self.client.result.from_task(task["id"])
        self.results = kept
        return result


def local(means: list[Any]) -> LocalEngine:
    groups = Grouping(Groups())
    sites = [(f"organization {i + 1}", means_of(each)[0]) for i, each in enumerate(means)]
    clients = [Client(name, data, (), groups).with_columns(CLUSTERED) for name, data in sites]
    return LocalEngine(clients)


@pytest.fixture
def asked(monkeypatch) -> list[Any]:
    kept: list[Any] = []
    real = functions.answered

    def answered(*names: Any, **arguments: Any) -> Any:
        result = real(*names, **arguments)
        facts, sums = unpack(base64.b64decode(result["reply"]))
        kept.append([facts, {name: each.tolist() for name, each in sums.items()}])
        return result

    monkeypatch.setattr(functions, "answered", answered)
    return kept


CLUSTERED = ("age", "bmi", "sbp")


@pytest.mark.parametrize("seed", [0, 1])
def test_a_fit_has_the_bits_of_a_fit_in_one_process(seed) -> None:
    network = Network(frames(seed))
    plain = {"options": {"prepare": None}} if seed else {}
    result = network("fit", n_clusters=5, columns=list(CLUSTERED), seed=seed, **plain)
    job = fit_of(5, seed=seed, prepare=None if seed else PreprocessingSpec())
    known = execute(job, local(network.means), columns=CLUSTERED).outcome.value
    np.testing.assert_array_equal(result["files"]["model.json"]["centers"], known.state.centers)
    assert result["exchanges"] <= (6 if seed else 4)  # the second has more rounds of Lloyd


def test_all_jobs_are_carried_out_in_few_exchanges() -> None:
    network = Network(frames())
    chosen = network("select_k", columns=list(CLUSTERED), k_max=8)
    assert chosen["exchanges"] <= 10
    known = execute(SelectK(k_max=8, prepare=PreprocessingSpec()), local(network.means))
    assert chosen["outcome"]["n_clusters"] == known.outcome.value.n_clusters
    model = network("fit", n_clusters=5, columns=list(CLUSTERED))["files"]["model.json"]
    for job in ("evaluate", "profile"):
        done = network(job, model=model)
        assert done["exchanges"] <= 3
        assert done["files"]
    compared = network("evaluate", model=model, beside=model)
    rows = np.array(compared["files"]["scores.json"]["beside"]["rows"])
    assert compared["exchanges"] <= 3
    assert rows.sum() == sum(means_of(each)[0].n_rows for each in network.means)
    np.testing.assert_array_equal(rows, np.diag(rows.diagonal()))


def numbers_in(content: Any) -> list[float]:
    if isinstance(content, dict | list):
        inner = content.values() if isinstance(content, dict) else content
        return [x for each in inner for x in numbers_in(each)]
    return [float(content)] if isinstance(content, int | float) else []


@pytest.mark.thorough
def test_results_hold_sums_over_groups_and_no_value_of_a_row(asked) -> None:
    rows = frames(3)
    network = Network(rows)
    options = {"options": {"profile": True, "prepare": {"missing": "mean"}}}
    model = network("fit", n_clusters=5, **options)["files"]["model.json"]
    network("select_k", columns=list(CLUSTERED), k_max=6)
    network("evaluate", model=model)
    network("profile", model=model)
    assert PLANTED[1] not in json.dumps([asked, network.results])
    told = np.array(numbers_in([asked, network.results]))
    assert len(asked) > 50
    values = np.concatenate([frame[list(CLUSTERED)].to_numpy().ravel() for frame in rows])
    assert not np.isin(values, told).any()
    for means in network.means:
        held = means_of(means)[0]
        assert held.grouped is not None
        assert held.grouped.behind is not None
        assert held.grouped.behind.min() >= 5
        assert not np.isin(values, held.X).any()


def test_rows_that_are_not_grouped_are_neither_read_nor_answered_from(tmp_path) -> None:
    """Groups made in each session, of rows that change or are filtered, would tell single ones."""
    for n in (400, 401):
        frames(n=n)[0].to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(InputError, match="the database holds rows") as error:
            functions.table_means({"uri": str(tmp_path / "rows.parquet")})
        assert "\n" not in str(error.value)
    assert not hasattr(functions, "group_rows")
    with pytest.raises(InputError, match="no means of groups"):
        functions.answered("organization 1", frames()[0], "")


def test_vantage6_can_call_what_it_is_told_of_and_nothing_else() -> None:
    stored = json.loads((STORE / "algorithm_store.json").read_text("utf-8"))["functions"]
    declared = {each["name"] for each in stored}
    assert declared == {"answer", "fit", "select_k", "evaluate", "profile", "read_table"}
    there = {name for name, each in vars(algorithm).items() if callable(each)}
    assert there == (declared if functions.SESSIONS else declared - {"read_table"})
    for each in stored:
        arguments = [argument["name"] for argument in each["arguments"]]
        assert len(set(arguments)) == len(arguments)


def test_results_of_one_that_speaks_for_another_are_none() -> None:
    def result(site: str) -> dict[str, str]:
        return {"reply": functions.written(pack({"site": site}, {}))}

    def came(*results: Any) -> list[str]:
        at = {name: i for i, name in enumerate(names, 1)}
        transport = functions.Vantage6Transport(lambda *_: lambda: results, at)
        return sorted(transport.exchange(dict.fromkeys(names, b"question"), 2)[0])

    names = ["organization 1", "organization 2"]
    first = result(names[0])
    assert came(first, result(names[1])) == names
    assert came(first, first) == []
    others = None, {"reply": 3}, {"reply": "YQ=="}, {"reply": "?"}, result("organization 3")
    assert came(first, *others) == names[:1]
