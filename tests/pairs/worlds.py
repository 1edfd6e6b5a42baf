"""From a combination to rows, site files, clients, engines and a job.

Values lie on dyadic grids, so that sums of them are exact: where rows are taken as they are, no bit
depends on their order.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

import dask
import numpy as np
import pandas as pd
from dask import dataframe
from scipy import sparse
from secure_sites import STEPS, Wire, identities

from fedcluster.core import Answers, Engine, SiteInfo, State, Task
from fedcluster.engines import DaskEngine, LocalEngine
from fedcluster.engines.client import Client
from fedcluster.frames.cells import affine
from fedcluster.frames.inputs import read_table
from fedcluster.frames.reader import ColumnRoles
from fedcluster.jobs import Compare, Fit, JobReport, execute, fit_of, model_of, procedure_of
from fedcluster.model import Model
from fedcluster.model.assigned_rows import row_transform
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.privacy import Groups, MinClusterSize
from fedcluster.privacy.disclosure import Disclosure
from fedcluster.texts import in_toml
from fedcluster_app.secure.cohort import Terms
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.secure.site import SecureSite
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import site_budget
from fedcluster_app.wire.policy import Policy
from fedcluster_app.wire.recorder import RecordedEngine
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder
from pairs.factors import JOBS, MEANS, SITE, Combination, defaults, factors_of

NUMBERS = ("x", "y", "z")
GRID = np.array([64.0, 4.0, 4096.0])
"""Values of the columns x, y and z are multiples of one over these."""
OUTCOMES = ("ill", "stage", "days", "cost")
KEY = b"one key for all engines"
TOWNS = np.array(["Ahlen", "Bonn", "Celle"])


class AskedError(Exception):
    """A site would be asked now."""


class KilledError(Exception):
    """The coordinator ends here."""


# Rows


def frames(c: Combination, seed: int = 0) -> dict[str, pd.DataFrame]:
    """The rows of each site with all the columns that a combination speaks of."""
    names = ("sites", "text", "missing", "dates held")
    made = _frames(tuple((name, c[name]) for name in names), seed)
    if c["engine"] == "dask":  # which names partitions
        return {f"part-{i:05}": frame for i, frame in enumerate(made.values())}
    return made


@cache
def _frames(held: tuple[tuple[str, str], ...], seed: int) -> dict[str, pd.DataFrame]:
    values = chosen("fit", dict(held), dict(held))
    n_sites, n = values["sites"]
    rng = np.random.default_rng([seed, n_sites])
    made = {}
    for i in range(n_sites):
        kind = rng.permutation(np.arange(n) % 3)
        near = np.rint(64 * rng.normal(size=(n, 3))) / GRID
        frame = pd.DataFrame(MEANS[kind] + near, columns=list(NUMBERS))
        if values["missing"]:
            frame.loc[rng.choice(n, n // 8, replace=False), "z"] = np.nan
        if values["text"]:
            frame["town"] = TOWNS[np.where(rng.random(n) < 0.2, rng.integers(0, 3, n), kind)]
            frame["ward"] = 1 + np.where(rng.random(n) < 0.2, rng.integers(0, 3, n), kind)
        if values["dates held"]:
            days = 365 * (kind + 1) + rng.integers(0, 300, n)
            frame["seen"] = pd.Timestamp("1960-01-01") + pd.to_timedelta(days, unit="D")
        frame["weight"] = rng.integers(1, 4, n).astype(float)
        frame["person"] = ""
        frame.loc[np.argsort(kind, kind="stable"), "person"] = [f"p{i}-{j // 2}" for j in range(n)]
        frame["label"] = np.array(list("abc"))[kind]
        frame["id"] = [f"r{i}-{j}" for j in range(n)]
        after = np.random.default_rng([seed, n_sites, i])
        ill = (kind == 1) ^ (after.random(n) < 0.3)
        frame["ill"], frame["stage"] = ill.astype(float), np.where(kind == 2, "late", "early")
        frame["days"], frame["cost"] = after.integers(1, 40, n) / 1, after.integers(0, 99, n) / 8
        made[f"site{i}"] = frame
    return made


def chosen(job: str, c: Combination, names: Collection[str]) -> dict[str, Any]:
    factors = factors_of(job)
    return {name: factors[name][c[name]] for name in names if name in c}


# Files


@dataclass(frozen=True, eq=False)
class World:
    """Sites of a combination, with all their rows, and with their files."""

    job_name: str
    c: Combination
    frames: Mapping[str, pd.DataFrame]
    grouped: dict[str, Client] = field(default_factory=dict)

    @cached_property
    def folder(self) -> Path:
        """Where the files are, made when the first is written; it goes with the world."""
        folder = Path(mkdtemp(prefix="pairs-"))
        finalize(self, rmtree, folder, ignore_errors=True)
        return folder

    @cached_property
    def site(self) -> dict[str, Any]:
        given = chosen(self.job_name, self.c, [f"site.{name}" for name in SITE])
        given["site.columns"] = given["site.columns"] and given["site.columns"] + self.outcomes
        return {name.removeprefix("site."): value for name, value in given.items()}

    @cached_property
    def words(self) -> dict[str, Any]:
        """The parameters of the job, which may be of different kinds."""
        given = chosen(self.job_name, self.c, JOBS[self.job_name][1])
        if given.get("max_iter") == USUAL and _goes_on(given):
            given["max_iter"] = ENOUGH
        if "prepare" in given:
            given["prepare"] = with_columns(given["prepare"], self)
        if self.job_name == "fit":
            given["previous"] = given["previous"] and model(given["previous"])
            return given | {name: for_width(given[name], self) for name in STARTS}
        return given | {key: model(given[key]) for key in ("model", "beside") if given.get(key)}

    @property
    def outcomes(self) -> tuple[str, ...]:
        return getattr(job_of(self), "columns", ()) if self.job_name == "compare" else ()

    @property
    def parts(self) -> dict[str, str]:
        keys = ("weight_column", "group_column", "label_column", "id_column")
        return {key: self.site[key] for key in keys if self.site[key] is not None}

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """What a user sees of each site: the values, and the columns with a part."""
        return {
            name: frame[[column for column in map(str, frame) if self._is_disclosed(column)]]
            for name, frame in self.frames.items()
        }

    def _is_disclosed(self, column: str) -> bool:
        hidden = {"weight", "person", "label", "id", *OUTCOMES} - {*self.parts.values()}
        return column not in hidden - {*self.outcomes}

    @property
    def values(self) -> list[str]:
        """The columns to cluster by, in the order in which they are told."""
        if self.site["columns"] is not None:
            return list(self.site["columns"])
        first = next(iter(self.tables.values()))
        return [column for column in map(str, first) if column not in self.parts.values()]

    def written(self, name: str) -> pd.DataFrame:
        """Rows as they stand in the file of a site, in its own units and its own words."""
        frame = self.tables[name].copy()
        for column, text in self.site["factors"].items():
            factor, added = affine(str(text))
            frame[column] = (frame[column] - added) / factor
        for column, codes in self.site["codes"].items():
            if column in frame:
                known = {meant: code for code, meant in codes.items()}
                frame[column] = frame[column].map({**{t: t for t in TOWNS}, **known})
        for said in self.site["missing_values"]:
            frame["z"] = frame["z"].fillna(float(str(said).removeprefix("z:")))
        return frame.rename(columns=self.own)

    @property
    def own(self) -> dict[str, str]:
        return {name: own for own, name in self.site["rename"].items()}

    def source(self, name: str) -> dict[str, Any]:
        """Write the rows of a site; returns where they are, and how they are read."""
        frame, folder, kind = self.written(name), self.folder / name, self.c["source"]
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "csv":
            frame.to_csv(folder / "rows.csv", index=False, date_format="%Y-%m-%d")
            return {"path": "rows.csv"}
        if kind == "npz":
            sparse.save_npz(folder / "rows.npz", sparse.csr_matrix(frame.to_numpy(dtype=float)))
            return {"path": "rows.npz", "names": list(frame)}
        if kind in ("parquet", "store"):
            if "seen" in frame:
                frame = frame.assign(seen=frame["seen"].dt.date)
            frame.to_parquet(folder / "rows.parquet", index=False)
            for i in range(2):  # a store is a folder of two files, by its address
                (folder / "rows" / str(i)).mkdir(parents=True, exist_ok=True)
                part = frame[i * len(frame) // 2 : (i + 1) * len(frame) // 2]
                part.to_parquet(folder / "rows" / str(i) / "rows.parquet", index=False)
            is_file = kind == "parquet"
            return {"path": "rows.parquet"} if is_file else {"url": (folder / "rows").as_uri()}
        if "seen" in frame:
            frame = frame.assign(seen=frame["seen"].dt.strftime("%Y-%m-%d"))
        with closing(sqlite3.connect(folder / "rows.db")) as connection:
            frame.to_sql("rows", connection, index=False, if_exists="replace")
        if kind == "database":
            return {"url": f"sqlite:///{folder}/rows.db", "table": "rows"}
        whole = next(name for name in map(str, frame) if not frame[name].isna().any())
        return {"path": "rows.db", "table": "rows", "where": f"{whole}!=-1e9"}  # all rows pass

    def _write(self, name: str) -> Path:
        site = self.site | {
            "columns": [self.own.get(each, each) for each in self.site["columns"] or ()],
            "factors": {self.own.get(name, name): x for name, x in self.site["factors"].items()},
            "missing_values": [
                each.replace("z:", f"{self.own.get('z', 'z')}:") if isinstance(each, str) else each
                for each in self.site["missing_values"]
            ],
        }
        content = {"name": name, **site, "source": self.source(name)}
        said = [f"{k} = {in_toml(v)}" for k, v in content.items() if v not in (None, (), [], {})]
        path = self.folder / name / "site.toml"
        path.write_text("\n".join([*said, ""]))
        return path

    @cached_property
    def site_files(self) -> list[SiteFile]:
        """With the present rows of a database or a store, as a site's worker has them."""
        return [SiteFile.load(self._write(name)).kept() for name in self.frames]

    # Clients

    def client(
        self, site: SiteFile, columns: Sequence[str] | None, *, raw: bool, network: bool = True
    ) -> Client:
        """As the worker of a site makes its client, the command line, or an engine on Dask."""
        if self.c["engine"] == "dask":
            roles, rows, where = self.roles(columns, raw=raw), self.tables[site.name], site.name
            return Client(where, lambda: read_table(rows, roles, f"site {where!r}"), self.rules)
        grouped = "groups" if network else "limits"
        if site.privacy is None and (site.protection or grouped) == "groups":
            if site.name not in self.grouped:
                self.grouped[site.name] = site.grouped_client()
                self.grouped[site.name].key = KEY
            own = tuple(columns or site.opened(raw=True).columns)
            return self.grouped[site.name].with_columns(own, raw=raw)
        client = site.client(columns, raw=raw)
        client.key = KEY
        return client

    @property
    def client_is_grouped(self) -> bool:
        return "epsilon" not in self.site["privacy"] and self.site["protection"] != "limits"

    def roles(self, columns: Sequence[str] | None, *, raw: bool) -> ColumnRoles:
        weight, group, label = (self.site[f"{each}_column"] for each in PARTS)
        return ColumnRoles(tuple(columns or self.values), weight, group, label, raw=raw)

    @property
    def rules(self) -> Disclosure:
        """What each site keeps to."""
        site = self.site_files[0]
        return Disclosure.of(site.disclosure, site.groups if site.is_grouped else None)


ADDRESSES = ("database", "store")
"""Sources that a command is told by their address, with the rest of what says where they are."""


# Engines


class Counted:
    """An engine that keeps what another one is asked; at a number of times it fails."""

    def __init__(
        self, engine: Engine, most: int | None = None, error: type[Exception] = KilledError
    ) -> None:
        self.engine, self.most, self.error = engine, most, error
        self.asked: list[tuple[Sequence[Task], list[Answers]]] = []

    def introduce(self, **asked: Any) -> tuple[SiteInfo, ...]:
        return self.engine.introduce(**asked)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        if len(self.asked) == self.most:
            raise self.error
        names = None if sites is None else list(sites)
        self.asked.append((tasks, []))
        answers = self.engine.ask(tasks, names)
        self.asked[-1] = tasks, answers
        return answers


class OneByOne:
    """The engine of the definition: every client is asked for itself, in the order of names."""

    def __init__(self, clients: Iterable[Client]) -> None:
        self.clients = {client.name: client for client in sorted(clients, key=lambda c: c.name)}

    def introduce(self, **asked: Any) -> tuple[SiteInfo, ...]:
        return tuple(client.introduce(**asked) for client in self.clients.values())

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        asked = set(self.clients if sites is None else sites)
        told = {name: self.clients[name].answers(tasks) for name in self.clients if name in asked}
        missing = tuple(name for name in self.clients if name not in asked)
        return [
            Answers({name: each[t] for name, each in told.items()}, missing)
            for t in range(len(tasks))
        ]


def responder(world: World, site: SiteFile, secure: SecureSite | None = None) -> Responder:
    """A site's end of the wire, as `site_responder` makes it, without its process and its log."""
    columns = tuple(site.opened(raw=True).columns)

    def choose(chosen: Sequence[str], raw: bool = False) -> Client:
        return world.client(site, chosen, raw=raw)

    rules = Disclosure.of(site.disclosure, site.groups if site.is_grouped else None)
    return Responder(
        _Lazy(site.name, lambda: choose(columns)),
        columns=columns,
        choose=choose,
        steps=STEPS,
        preprocessors=lambda plain: row_transform(plain, steps=STEPS),
        policy=Policy(site.policy, budget=site_budget(site), disclosure=rules),
        secure=secure,
    )


class _Lazy:
    """A client that is made when it is first asked."""

    def __init__(self, name: str, make: Callable[[], Client]) -> None:
        self.name, self._make = name, cache(make)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._make(), name)


def one_by_one(world: World, job: Any, *, network: bool = True, kind: Any = OneByOne) -> Any:
    """The sites as a federation has them, or as this machine does."""
    raw = procedure_of(job).preprocessing is not None or _is_private(job)
    how: dict[str, Any] = {"raw": raw, "network": network}
    clients = (world.client(site, columns_asked(world, job), **how) for site in world.site_files)
    return kind(clients)


def of_files(world: World, job: Any) -> OneByOne:
    """The sites of a command that is given files: a line stands for a row, and perhaps a group."""
    raw, groups = procedure_of(job).preprocessing is not None, None
    if world.site["protection"] == "groups":
        groups = Groups(scale="standard" if raw else "none")
    roles = replace(world.roles(columns_asked(world, job), raw=raw), dates=world.site["dates"])
    rows = {name: read_table(table, roles, name) for name, table in world.tables.items()}
    limits = [MinClusterSize(1)]
    return OneByOne(Client(name, data, limits, groups) for name, data in rows.items())


def _is_private(job: Any) -> bool:
    return isinstance(job, Fit) and job.epsilon is not None


def columns_asked(world: World, job: Any) -> list[str] | None:
    """The columns that a coordinator names, where it does; those of a model."""
    models = [getattr(job, name, None) for name in ("model", "beside")]
    columns = [name for each in models if isinstance(each, Model) for name in each.columns]
    columns += job.columns if isinstance(job, Compare) else ()
    return list(dict.fromkeys(columns)) or None


def wire(world: World, job: Any, *, is_secure: bool = False) -> Any:
    """An engine over the wire, which chooses columns first, as `run_job` does."""
    sites, ends = {site.name: site for site in world.site_files}, dict[str, Responder]()
    keys = identities(list(sites))
    peers = {name: key.public_key() for name, key in keys.items()}
    for name, site in sites.items():
        terms = Terms(colluders=site.colluders)
        secure = SecureSite(name, keys[name], peers, terms) if is_secure else None
        ends[name] = responder(world, site, secure)
    carrier = Wire(ends)
    engine: Any = (SecureEngine if is_secure else RemoteEngine)(carrier, ends)
    engine.wire, columns = carrier, columns_asked(world, job)
    if _is_private(job):
        named = job.bounds if isinstance(job.bounds, Mapping) else world.values
        engine.choose_publicly(tuple(columns or named))
    else:
        engine.choose(columns, raw=procedure_of(job).preprocessing is not None)
    return engine


class Here:
    """What an engine on Dask asks of a cluster, done in this thread."""

    asynchronous = False

    def register_plugin(self, plugin: Any) -> None:
        """Do nothing: kernels are compiled."""

    def compute(self, work: Sequence[Any]) -> list[Any]:
        """Return what was computed as Dask holds it."""
        return [dask.delayed(each, traverse=False, pure=False) for each in self.gather(work)]

    def gather(self, work: Sequence[Any]) -> list[Any]:
        return list(dask.compute(*work, scheduler="synchronous"))


def on_dask(world: World, job: Any) -> DaskEngine:
    columns, raw = columns_asked(world, job), procedure_of(job).preprocessing is not None
    if not raw:  # as sites refuse rows that are no numbers; partitions do so when they are asked
        for site in world.site_files:
            assert len(world.client(site, columns, raw=raw).data)
    parts = [dask.delayed(table) for table in world.tables.values()]
    rows = dataframe.from_delayed(parts, meta=next(iter(world.tables.values())).iloc[:0])
    roles = world.roles(columns, raw=raw)
    return DaskEngine(
        rows,
        columns=roles.values,
        weight_column=roles.weight,
        group_column=roles.group,
        label_column=roles.label,
        filters=world.rules,
        client=Here(),
        fan_in=2,
    )


MAKERS: Mapping[str, Callable[[World, Any], Any]] = {
    "local": partial(one_by_one, kind=LocalEngine),
    "wire": wire,
    "resumed": partial(one_by_one, kind=LocalEngine),
    "resumed wire": wire,
    "secure": partial(wire, is_secure=True),
    "dask": on_dask,
}


# Jobs


def job_of(world: World) -> Any:
    return JOBS[world.job_name][0](**world.words)


PARTS = ("weight", "group", "label")
STARTS = ("init", "start", "means")
USUAL, ENOUGH = 300, 20
"""Rounds that a fit may take, and those after which there is nothing new in one that goes on."""


def _goes_on(given: Mapping[str, Any]) -> bool:
    """Whether a fit takes all rounds that it may, or nearly so: no tolerance ends it."""
    slow = given["m"] is not None or given["model"] == "mixture" or given["algorithm"] == "fkm"
    slow |= bool(given["robust"] or given["trim"])
    return given["algorithm"] == "fedavg" or (given["tol"] == 0 and slow)


def with_columns(prepare: PreprocessingSpec | None, world: World) -> PreprocessingSpec | None:
    """A preparation that says what becomes of dates and wards, where rows have them."""
    if prepare is None or world.site["columns"] is not None:
        return prepare
    dates = world.site["dates"]
    if prepare.bounds and world.c["text"] == "True":
        prepare = replace(prepare, bounds={**prepare.bounds, "ward": (0.0, 4.0)})
    return replace(prepare, dates=dates) if dates else prepare


def for_width(start: Any, world: World) -> Any:
    """A start with as many centres and columns as there are clusters and prepared columns."""
    if isinstance(start, State):
        centers = for_width(start.centers, world)
        return replace(start, centers=centers, weights=start.weights[: len(centers)])
    if not isinstance(start, np.ndarray):
        return start
    k, more = 1 if world.c["n_clusters"] == "1" else len(start), 0
    if world.site["columns"] is None and world.c["prepare"] != "none":
        texts = world.c["text"] == "True" and world.c["prepare"] not in ("median", "drop")
        more = len(TOWNS) * texts + bool(world.site["dates"])
    d = 2 if world.c["prepare"] == "pca" else len(NUMBERS) + more
    return np.pad(start, ((0, 0), (0, more)))[:k, :d]


@cache
def model(name: str) -> Model:
    """A model that a fit with other rows has found, for jobs about models."""
    world = World("fit", defaults("fit"), frames(defaults("fit"), seed=9))
    jobs = {
        "plain": fit_of(3),
        "prepared": fit_of(3, prepare=PreprocessingSpec(missing="mean")),
        "fuzzy": fit_of(3, m=2.0),
        "mixture": fit_of(3, model="mixture"),
        "trimmed": fit_of(3, trim=0.1),
        "ignoring": fit_of(3, prepare=PreprocessingSpec(missing="ignore")),
        "cosine": fit_of(3, metric="cosine", prepare=PreprocessingSpec(missing="mean")),
        "adjusted": fit_of(3, prepare=PreprocessingSpec(missing="mean", adjust="site")),
    }
    job = jobs[name]
    return model_of(execute(job, one_by_one(world, job), columns=world.values))


def run(world: World, job: Any, engine: Engine) -> JobReport:
    """Carry a job out as commands do."""
    raw = procedure_of(job).preprocessing is not None
    columns = () if raw else tuple(columns_asked(world, job) or world.values)
    if _is_private(job) and isinstance(job.bounds, Mapping):
        columns = tuple(job.bounds)
    return execute(job, engine, columns=columns)


def resumed(world: World, job: Any, make: Callable[[World, Any], Any], at: int) -> JobReport:
    """A run that is killed before the exchange of a number, and goes on."""
    folder = Path(mkdtemp(dir=world.folder))
    try:
        run(world, job, RecordedEngine(Counted(make(world, job), at), folder))
    except KilledError:
        pass
    else:
        raise AssertionError(f"the run has no exchange {at}")
    return run(world, job, RecordedEngine(make(world, job), folder))
