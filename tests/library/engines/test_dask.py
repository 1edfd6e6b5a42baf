"""The engine on a Dask cluster: the bits of one process, whatever happens to workers."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client as Cluster
from distributed import LocalCluster
from typed import run

from benchmarks.shapes import KINDS as SHAPES
from fedcluster import Client, FederatedKMeans, LocalEngine, Model, PreprocessingSpec, State, Task
from fedcluster.algorithms import Lloyd
from fedcluster.core import Engine
from fedcluster.core.engine import WrappedEngine
from fedcluster.engines import DaskEngine
from fedcluster.engines._dask import Opening
from fedcluster.engines.batched import BatchedAnswers
from fedcluster.errors import InputError, SiteError
from fedcluster.frames.inputs import read_table
from fedcluster.frames.reader import ColumnRoles
from fedcluster.jobs import Evaluate, Fit, Profile, SelectK, execute, fit_of, model_of
from fedcluster.preprocessing.moments import Missing
from fedcluster.privacy import Groups
from fedcluster.privacy.disclosure import Disclosure
from fedcluster_app.report.job_files import content_of

pytestmark = pytest.mark.usefixtures("short_searches")

NUMBERS = ("a", "b", "c")
SPOTS = np.array([[0.0, 0, 0], [6, 0, 1], [0, 6, 2]])
PREPARED = PreprocessingSpec("standard", missing="mean")
Roles = Mapping[str, Any]


def people(n: int = 420, seed: int = 0) -> pd.DataFrame:
    """Rows in three clusters, with text, gaps, weights, persons (two rows each) and labels."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, 3, n)
    frame = pd.DataFrame(SPOTS[cluster] + rng.normal(size=(n, 3)), columns=list(NUMBERS))
    frame["town"] = np.array(["x", "y", "z"])[(cluster + rng.integers(0, 2, n)) % 3]
    frame["d"] = np.where(rng.random(n) < 0.1, np.nan, frame["a"] + rng.normal(size=n))
    frame["weight"] = rng.integers(1, 4, n).astype(float)
    frame["person"] = np.arange(n) // 2
    frame["label"] = np.array(["p", "q", "r"])[cluster]
    return frame


@pytest.fixture(scope="module")
def threads() -> Iterator[Cluster]:
    with Cluster(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0") as on:
        yield on


@pytest.fixture(scope="module")
def processes() -> Iterator[Cluster]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as workers,
        Cluster(workers) as cluster,
    ):
        yield cluster


def on_dask(frame: pd.DataFrame, n: int = 7) -> Any:
    return dd.from_pandas(frame, npartitions=n, sort=False)


def in_process(rows: Any, protection: Groups | None = None, **roles: Any) -> LocalEngine:
    names = ("columns", "weight_column", "group_column", "label_column")
    columns, weight, group, label = map(roles.get, names)
    how = ColumnRoles(columns, weight, group, label, raw=True)
    parts = enumerate(dask.compute(*rows.to_delayed()))
    return LocalEngine(
        Client(f"part-{i:05}", read_table(part, how), (), protection)
        for i, part in parts
        if len(part)
    )


def outcome(job: Any, engine: Engine) -> tuple[Any, ...]:
    """All that comes of a job: its content, its rounds, and the bits of its state."""
    report = execute(job, engine)
    state = report.clustering.state if isinstance(job, Fit) else State()
    arrays = [state.centers, state.weights, *(state.memory[name] for name in sorted(state.memory))]
    bits = [(each.shape, each.tobytes()) for each in arrays]
    return repr(content_of(report)), report.outcome.account(), state.inertia, bits


@dataclass(frozen=True)
class Kind:
    job: Callable[[], Any]
    columns: Sequence[str] = NUMBERS
    protection: Groups | None = None
    weight_column: str | None = None
    group_column: str | None = None
    label_column: str | None = None

    def engines(self, frame: pd.DataFrame, **how: Any) -> tuple[LocalEngine, DaskEngine]:
        own = {name: each for name, each in vars(self).items() if name != "job"}
        return in_process(on_dask(frame), **own), DaskEngine(on_dask(frame), **own, **how)


def fitted_model() -> Model:
    frame = people()[list(NUMBERS)]
    return model_of(execute(fit_of(3), in_process(on_dask(frame)), columns=NUMBERS))


MIXED = (*NUMBERS, "d", "town")
QUICK = {
    "k-means": Kind(lambda: fit_of(3)),
    "fuzzy": Kind(lambda: fit_of(3, algorithm="ffcm", m=2.0)),
    "prepared, with gaps and text": Kind(lambda: fit_of(3, prepare=PREPARED), MIXED),
    "groups of persons": Kind(
        lambda: fit_of(3, prepare=PREPARED), MIXED, Groups(4), group_column="person"
    ),
    "weights and a sample": Kind(lambda: fit_of(3, participation=0.5), weight_column="weight"),
    "scores": Kind(lambda: Evaluate(fitted_model(), labels=True), label_column="label"),
}
KINDS = {
    "sums only": Kind(lambda: fit_of(3, sums_only=True)),
    "mixture": Kind(lambda: fit_of(3, model="mixture")),
    "choice of k": Kind(lambda: fit_of("auto", prepare=PREPARED), MIXED),
    "indices of every k": Kind(lambda: SelectK(2, 4)),
    "profiles": Kind(lambda: fit_of(3, prepare=PREPARED, profile=True), MIXED),
    "profiles of a model": Kind(lambda: Profile(fitted_model())),
    "stability": Kind(lambda: fit_of(3, stability=True)),
    "stability of a choice": Kind(lambda: fit_of((2, 3), stability=2)),
    "trimmed": Kind(lambda: fit_of(3, trim=0.05)),
    "robust": Kind(lambda: fit_of(3, robust=1)),
    "k-FED": Kind(lambda: fit_of(3, algorithm="kfed")),
    "cosine": Kind(lambda: fit_of(3, metric="cosine")),
}


@pytest.mark.parametrize("name", QUICK)
def test_it_gives_the_bits_of_one_process(threads: Cluster, name: str) -> None:
    local, engine = QUICK[name].engines(people(), fan_in=3)
    job = QUICK[name].job()
    assert outcome(job, engine) == outcome(job, local)


LATE = [pytest.param(kind, marks=pytest.mark.long) for kind in ("two rings", "unequal widths")]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["moons", *LATE])
def test_clusters_of_any_shape_have_the_bits_of_one_process(threads: Cluster, kind: str) -> None:
    X, y = SHAPES[kind](np.random.default_rng(4))
    rows = on_dask(pd.DataFrame(X, columns=["a", "b"]), 3)
    job = fit_of("auto", seed=1)
    found = outcome(job, DaskEngine(rows, columns=["a", "b"]))
    assert found == outcome(job, in_process(rows, columns=["a", "b"]))
    shape, _ = found[3][1]  # of the weights
    assert shape == np.unique(y).shape


@pytest.mark.long
@pytest.mark.parametrize("name", [*QUICK, *KINDS])
@pytest.mark.parametrize("keep", [True, False])
def test_processes_give_the_bits_of_one_process(
    processes: Cluster, name: str, *, keep: bool
) -> None:
    kind = {**QUICK, **KINDS}[name]
    for seed in (1, 2):
        local, engine = kind.engines(people(seed=seed), client=processes, keep=keep)
        job = kind.job()
        assert outcome(job, engine) == outcome(job, local)


def test_answers_are_added_in_a_tree_of_any_width(threads: Cluster) -> None:
    rows, task = on_dask(people()[list(NUMBERS)]), Task(Lloyd(), State.at(SPOTS))
    [alone] = in_process(rows).ask([task])
    for fan_in in (2, 3, 100):
        [added] = DaskEngine(rows, fan_in=fan_in).ask([task])
        assert isinstance(added, BatchedAnswers)
        assert added.total().planes.tobytes() == alone.total().planes.tobytes()
        assert dict(added.values_sent) == dict(alone.values_sent)
        sums = [[e.sums.tobytes() for e in each.by_site.values()] for each in (added, alone)]
        assert sums[0] == sums[1]


def test_partitions_without_rows_or_whose_rows_weigh_nothing_are_no_sites(threads) -> None:
    rows = on_dask(people()[list(NUMBERS)])
    rows = rows[rows["a"] > rows["a"].max().compute() - 4]
    few = rows[rows["a"] < -99]
    assert all(len(part) for part in dask.compute(*rows.to_delayed()))
    for none in (few, on_dask(people().head(0))):
        with pytest.raises(InputError, match="no partition has a row; check what"):
            DaskEngine(none, columns=NUMBERS).introduce()
    some = dd.concat([rows.partitions[:2], few, rows.partitions[2:]], interleave_partitions=False)
    names = [site.name for site in DaskEngine(some).introduce()]
    assert names == [f"part-{i:05}" for i in (0, 1, *range(9, 14))]
    frame = people(70)
    frame.loc[:9, "weight"] = 0.0
    engine = DaskEngine(on_dask(frame), columns=NUMBERS, weight_column="weight")
    assert [site.name for site in engine.introduce()] == [f"part-{i:05}" for i in range(1, 7)]


def test_what_a_partition_tells_is_what_it_is_asked(threads: Cluster) -> None:
    engines = QUICK["prepared, with gaps and text"].engines(people())
    questions: list[dict[str, Any]] = [{"labels": True}]
    questions += [{"columns": True, "texts": each} for each in ((), ("town",), ("a", "town"))]
    for asked in questions:
        wanted, told = (
            [(site.columns, site.labels) for site in each.introduce(**asked)] for each in engines
        )
        assert told == wanted


def test_labels_are_lazy_and_keep_the_index(threads: Cluster) -> None:
    frame = people().set_index("label")
    columns = [*NUMBERS, "d"]
    engine = DaskEngine(on_dask(frame), columns=columns)
    model = FederatedKMeans(3, prepare=PREPARED, random_state=0).fit(engine=engine)
    labels = engine.label(model)
    assert labels.npartitions == 7
    assert labels.dtype == np.int32
    found = labels.compute()
    assert found.name == "cluster"
    assert found.index.tolist() == frame.index.tolist()
    assert np.array_equal(found, model.predict(frame[columns]))
    joined = on_dask(frame).assign(cluster=labels)
    assert joined.groupby("cluster").size().compute().sum() == len(frame)
    with pytest.raises(InputError, match="no memberships"):
        engine.label(model, memberships=True)


def test_memberships_are_lazy(threads: Cluster) -> None:
    frame = people()[list(NUMBERS)]
    for rows in (on_dask(frame), da.from_array(frame.to_numpy(), chunks=(100, 2))):
        engine = DaskEngine(rows)
        model = model_of(execute(fit_of(3, algorithm="ffcm", m=2.0), engine, columns=NUMBERS))
        shares = engine.label(model, memberships=True).compute()
        expected = model.memberships(frame)
        assert expected is not None
        assert np.array_equal(np.asarray(shares), expected)
        assert np.array_equal(engine.label(model).compute(), model.predict(frame))


def test_a_person_in_two_partitions_is_refused(threads: Cluster) -> None:
    frame = people()
    rows = on_dask(frame, 4)  # 105 rows each: person 52 has rows in two
    with pytest.raises(InputError, match="rows in several partitions") as refusal:
        DaskEngine(rows, columns=NUMBERS, group_column="person").introduce()
    assert "shuffle('person')" in str(refusal.value)
    engine = DaskEngine(rows.shuffle("person"), columns=NUMBERS, group_column="person")
    assert sum(site.n_rows or 0 for site in engine.introduce()) == len(frame)


def test_text_and_gaps_must_be_prepared(threads: Cluster) -> None:
    for column, what in (("town", "is no number"), ("d", "has missing values")):
        engine = DaskEngine(on_dask(people()), columns=("a", column))
        with pytest.raises(InputError, match=f"column '{column}' {what}; leave it out"):
            execute(fit_of(3), engine, columns=("a", column))


def test_a_step_that_counts_gaps_is_asked_of_rows_as_they_are(threads: Cluster) -> None:
    frame = people()[[*NUMBERS, "d"]]
    [answers] = DaskEngine(on_dask(frame)).ask([Task(Missing(), State())])
    assert answers.total().sums.ravel().tolist() == frame.isna().sum().tolist()


def test_what_is_no_table_is_refused(threads: Cluster) -> None:
    rows = on_dask(people())
    for given in (people(), da.zeros(9), [1.0], rows["a"]):
        with pytest.raises(InputError, match="takes a Dask data frame or array"):
            DaskEngine(given)
    with pytest.raises(InputError, match="fan_in must be at least 2"):
        DaskEngine(rows, fan_in=1)
    with pytest.raises(InputError, match="has no column 'weigth'"):
        DaskEngine(rows, columns=NUMBERS, weight_column="weigth").introduce()


def test_an_error_of_a_partition_names_no_path(threads: Cluster, tmp_path: Path) -> None:
    people()[list(NUMBERS)].to_parquet(tmp_path / "secret.parquet")
    rows = dd.read_parquet(str(tmp_path / "secret.parquet"))
    engine = DaskEngine(rows, keep=False)
    engine.introduce()
    (tmp_path / "secret.parquet").unlink()
    with pytest.raises(SiteError) as failure:
        engine.ask([Task(Lloyd(), State.at(SPOTS))])
    assert "secret" not in str(failure.value)
    assert "FileNotFoundError; the logs of the workers say more" in str(failure.value)
    assert failure.value.__suppress_context__


def test_the_examples_of_the_page_run(threads: Cluster) -> None:
    page = (Path(__file__).parents[3] / "docs" / "transports.md").read_text("utf-8")
    page = page.partition("\n## Use NVIDIA FLARE\n")[0]
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {"__name__": "page"})


# The command line


def told(*arguments: object, code: int = 0) -> Any:
    """What a command prints for programs, or its error in one line."""
    ran = run("", *arguments, "--json")
    assert ran.exit_code == code, ran.output
    return json.loads(ran.stdout) if code == 0 else " ".join(ran.output.split())


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five partitions, the last without a row, in "rows", a prepared fit, and a fuzzy one."""
    out = tmp_path_factory.mktemp("given")
    rows = people().assign(home=np.arange(420) % 84, day=pd.Timestamp("1960-03-04"))
    rows["day"] += pd.to_timedelta(np.arange(420) * 40, "D")
    rows.loc[::5, "weight"] = 0.0
    (out / "rows").mkdir()
    for i in range(5):
        (rows.iloc[i::4] if i < 4 else rows.head(0)).to_parquet(out / f"rows/part-{i:05}.parquet")
    files = sorted(out.glob("rows/*"))[:4]
    chosen = ("--columns", "a,b,c,d,town,day", "--set", "dates.day=since")
    told("fit", *files, "-k", 3, *chosen, "--out", out / "fit")
    bare = ("--columns", "a,b,c", "--scale", "none", "--fuzzy")
    told("fit", *files, "-k", 3, *bare, "--out", out / "bare")
    return out


@pytest.fixture
def on_cluster(threads: Cluster, tmp_path: Path) -> tuple[str, ...]:
    """The options of a command whose rows are on the cluster."""
    return "--set", f"engine=dask={threads.scheduler.address}", "--out", str(tmp_path / "out")


def test_a_command_fits_parquet_files_on_a_cluster(on_cluster, given, tmp_path):
    how = ["-k", 3, "--missing", "mean", "--fuzzy", "--set", "weight_column=weight"]
    how += ["--exclude", "label,person,home,day"]
    told("fit", f"{given}/rows/part-*.parquet", *how, *on_cluster)
    told("fit", *sorted(given.glob("rows/*"))[:4], *how, "--out", tmp_path / "here")
    there, here = (json.loads((tmp_path / o / "model.json").read_text()) for o in ("out", "here"))
    for name in ("centers", "weights", "inertia", "preprocessing", "columns"):
        assert there.get(name) == here.get(name), name
    for i in range(4):
        labels = (tmp_path / out / f"labels/part-{i:05}.csv" for out in ("out", "here"))
        assert len({each.read_bytes() for each in labels}) == 1
    history = json.loads((tmp_path / "out/history.json").read_text())
    written = (tmp_path / "out").rglob("*.*")
    assert {*history["files"]} == {str(each.relative_to(tmp_path / "out")) for each in written}


ASKED: dict[str, str] = {
    "predict": "predict {}/fit",
    "predict-bare": "predict {}/bare",
    "evaluate": "evaluate {}/fit --set weight_column=weight --label-column label",
    "evaluate-persons": "evaluate {}/fit --group-column home --profile",
    "evaluate-beside": "evaluate {}/bare --beside {}/fit",
    "evaluate-groups": "evaluate {}/fit --set protection=groups",
    "profile": "profile {}/fit --set weight_column=weight",
    "select-k": "select-k --k-max 4 --exclude label,person,home,day,weight --seed 3",
}
LIMITS = {"select-k": ("--min-cluster-size", 1)}
"""What files are told so that they hold back no more than partitions."""


@pytest.mark.parametrize("name", ASKED)
def test_every_command_that_reads_rows_takes_a_cluster(on_cluster, given, tmp_path, name):
    words = ASKED[name].replace("{}", str(given)).split()
    files, limits = sorted(given.glob("rows/*"))[:4], LIMITS.get(name, ())
    here = told(*words, *limits, *files, "--out", tmp_path / "here")
    there = told(*words, *on_cluster, f"{given}/rows/*.parquet")
    for key in here.keys() - {"sites", "ignored", "out", "files"}:
        assert here[key] == there[key], key
    for site, part in zip(here["sites"], there["sites"][:4], strict=True):
        for key in ("name", "rows", "clusters", "values_sent"):
            assert site.get(key) == part.get(key), key
    assert here.get("ignored", {}).items() <= there.get("ignored", {}).items()
    for file in (tmp_path / "here").glob("*.csv"):
        assert file.read_bytes() == (tmp_path / "out" / file.name).read_bytes()
    if words[0] == "predict":
        assert len(there["sites"]) == len(here["sites"]) + 1
        empty = (tmp_path / "out/part-00004.csv").read_text("utf-8")
        assert (there["sites"][4]["rows"], len(empty.splitlines())) == (0, 1)


def test_an_empty_partition_is_no_site_whose_limits_hold_rows_back(on_cluster, given):
    shown = run("profile", given / "fit", f"{given}/rows/*.parquet", *on_cluster).output
    said = "Site part-00004 took no part: it has no rows of positive weight."
    assert said in " ".join(shown.split())


def test_a_choice_on_a_cluster_tells_its_doubts(on_cluster, tmp_path) -> None:
    rows = np.repeat(np.random.default_rng(0).normal(size=(12, 2)), 5, axis=0)  # they repeat
    for i in range(2):
        pd.DataFrame(rows[i::2], columns=["a", "b"]).to_parquet(tmp_path / f"{i}.parquet")
    said = told("fit", f"{tmp_path}/*.parquet", "-k", "auto", *on_cluster)
    assert said["selection"]["warnings"]
    assert {*said["selection"]["warnings"]} <= {*said["warnings"]}


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    frames = {f"none-{i}": people().head(0) for i in range(2)}
    unlike = (people(), people().assign(more=1.0), people().iloc[:, 1:])
    frames |= {f"unlike-{i}": frame for i, frame in enumerate(unlike)}
    late = people().assign(day="1960-03-04")
    late.loc[7, "day"] = "soon"
    for name, frame in {**frames, "late": late}.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
    return tmp_path


NO_FILES = {
    "empty/": "there is no Parquet file in {}/empty/; check the path",
    "unlike-*.parquet": "{}/unlike-1.parquet has a column 'more', and {}/unlike-0.parquet has none",
    "unlike-2.parquet {}/unlike-0.parquet": "{}/unlike-0.parquet has a column 'a', and "
    "{}/unlike-2.parquet has none",
    "absent-*.parquet": "no file matches {}/absent-*.parquet",
    "unlike-0.parquet {}/absent-*.parquet": "no file matches {}/absent-*.parquet",
    "unlike-0.parquet {}/absent.parquet": "{}/absent.parquet does not exist; check the path",
    "none-*.parquet": "no rows in {}/none-*.parquet; check the path",
    "rows.csv": "engine dask reads Parquet files",
    "broken.parquet": "cannot be read as one Parquet table (Arrow",
}


@pytest.mark.parametrize(
    "command", ["fit -k 2", "predict {}", "select-k", "evaluate {}", "profile {}"]
)
def test_no_file_no_row_and_what_is_no_table_are_said_as_they_are(on_cluster, given, odd, command):
    words = command.replace("{}", str(given / "fit")).split()
    for files, line in NO_FILES.items():
        paths = f"{odd}/{files}".replace("{}", str(odd)).split()
        assert line.replace("{}", str(odd)) in told(*words, *paths, *on_cluster, code=2), files
    assert not (odd / "out").exists()


@pytest.mark.parametrize("command", ["predict", "evaluate", "profile"])
def test_a_partition_is_read_as_the_model_reads_files(on_cluster, given, odd, command):
    ask = (command, given / "fit", odd / "late.parquet", *on_cluster)
    line = told(*ask, code=2)
    assert "partition 'part-00000', column 'day', row 7: 'soon' is no date" in line
    weighed = ("--set", "weight_column=a") if command != "predict" else ("--append",)
    line = told(*ask, *weighed, code=2)
    assert ("leave --append out" if command == "predict" else "is a column of the mod") in line
    assert not (odd / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--set engine=spark", "engine must be dask or dask=ADDRESS, not 'spark'"),
        ("--set engine=dask --append", "leave --append out"),
        ("--set engine=dask --set report=false", "leave report=false out"),
        ("--set engine=dask --min-cluster-size 3", "leave --min-cluster-size out"),
        ("--set engine=dask=tcp://127.0.0.1:9", "no Dask scheduler answers at tcp://127.0.0.1:9"),
    ],
)
def test_what_a_cluster_is_not_asked_is_refused(given, tmp_path, arguments, line):
    with dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}):
        ran = run(f"fit -k 3 {arguments}", f"{given}/rows/*.parquet", "--out", tmp_path / "out")
    assert ran.exit_code == 2
    assert line in ran.output
    assert not (tmp_path / "out").exists()


# Partitions that change, and lost workers


def turning(i: int, folder: str, seed: int = 0) -> pd.DataFrame:
    """Rows of a partition, read from nowhere; counts the readings, and changes when it is told."""
    log = Path(folder)
    (log / f"{i}-{len(list(log.iterdir()))}-{os.getpid()}").touch()
    frame = people(seed=seed)[list(NUMBERS)].iloc[i::8]
    if (log.parent / "changed").exists() and i == 5:
        frame = frame.iloc[::-1]  # the same rows in another order
    return frame


def counted(folder: Path, seed: int = 0) -> Any:
    folder.mkdir()
    return dd.from_map(turning, range(8), folder=str(folder), seed=seed)


@pytest.mark.parametrize("protection", [None, Groups(4)])
def test_a_partition_that_changes_is_refused(threads, tmp_path, protection):
    engine = DaskEngine(counted(tmp_path / "read"), keep=False, protection=protection)
    task = Task(Lloyd(), State.at(SPOTS))
    engine.ask([task])
    (tmp_path / "changed").touch()
    if protection is None:
        with pytest.raises(InputError, match="partition 'part-00005' has changed since"):
            engine.ask([task])
    else:  # its groups are kept: they are not made again
        n_read = len([*(tmp_path / "read").iterdir()])
        engine.ask([task])
        assert len([*(tmp_path / "read").iterdir()]) == n_read


class Killing(WrappedEngine):
    """Engine of which a worker is killed amid a round."""

    def __init__(self, engine: Engine, cluster: Cluster, number: int, which: int, after: float):
        super().__init__(engine)
        self.cluster, self.number, self.which, self.after = cluster, number, which, after

    def ask(self, tasks: Sequence[Task], sites: Any = None) -> Any:
        if self.number == 0:
            pids = self.cluster.run(os.getpid)
            pid = pids[sorted(pids)[self.which]]
            Timer(self.after, os.kill, (pid, signal.SIGKILL)).start()
        self.number -= 1
        return self._engine.ask(tasks, sites)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_killed_worker_costs_no_bit(processes: Cluster, tmp_path: Path, seed: int) -> None:
    rng, protection = np.random.default_rng(seed), Groups(4) if seed % 2 else None
    processes.cluster.scale(2)  # a busy machine may give one up that was killed
    processes.wait_for_workers(2)
    rows, job = counted(tmp_path / "read", seed), fit_of(3, seed=seed)
    alone = outcome(job, in_process(rows, protection))
    for each in (tmp_path / "read").iterdir():
        each.unlink()
    engine = DaskEngine(rows, client=processes, protection=protection, fan_in=3)
    engine.introduce()
    held = [len(keys) for keys in processes.has_what().values()]
    at, which = int(rng.integers(len(alone[1]))), int(rng.integers(2))
    killing = Killing(engine, processes, at, which, rng.uniform(0, 0.05))
    assert outcome(job, killing) == alone
    assert 8 <= len([*(tmp_path / "read").iterdir()]) <= 8 + max(held)


@pytest.mark.long
def test_groups_are_not_made_of_other_rows_after_a_loss(processes: Cluster, tmp_path: Path) -> None:
    processes.wait_for_workers(2)
    engine = DaskEngine(counted(tmp_path / "read"), client=processes, protection=Groups(4))
    task = Task(Lloyd(), State.at(SPOTS))
    engine.ask([task])
    (tmp_path / "changed").touch()
    for pid in processes.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(InputError, match="partition 'part-00005' has changed since"):
        engine.ask([task])


def test_a_protected_partition_keeps_no_row() -> None:
    frame, roles = people()[list(NUMBERS)], ColumnRoles(raw=True)
    kept, bare = (
        pickle.dumps(Opening(roles, Disclosure.of((), groups))("part", frame))
        for groups in (Groups(4), None)
    )
    assert not any(value.tobytes() in kept for value in frame.to_numpy().ravel())
    assert frame.to_numpy()[0, 0].tobytes() in bare


def test_the_digest_of_a_partition_knows_its_groups() -> None:
    """A partition that is opened again and makes other groups of its rows is not the same."""
    rows, roles = people(60)[list(NUMBERS)], ColumnRoles(NUMBERS, raw=True)
    every = [Opening(roles, Disclosure.of((), groups)) for groups in (None, Groups(5), Groups(6))]
    digests = [how("part-0", rows).digest for how in every]
    assert len({*digests}) == 3
    assert [how("part-0", rows).digest for how in every] == digests
