"""Ways of a user on this machine: an estimator that is given tables, and the command line."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from scipy import sparse
from typer.testing import CliRunner

from fedcluster import FederatedFuzzyCMeans, FederatedGaussianMixture, FederatedKMeans
from fedcluster.algorithms import Lloyd
from fedcluster.errors import InputError
from fedcluster.jobs import Fit, fit_of
from fedcluster.model import Model
from fedcluster.privacy import Groups
from fedcluster.recipes.specifications import WORDS
from fedcluster.texts.words import dotted, in_toml
from fedcluster_app.cli import app
from fedcluster_app.cli._options import OPTIONS, key_of, named
from pairs.factors import COMMANDS, FILES, JOBS, PLUGIN, defaults, factors_of, with_needs
from pairs.worlds import ADDRESSES, World, job_of, words_of


@dataclass
class Found:
    """What a user has in the end."""

    model: Model
    labels: Mapping[str, Any]
    said: str = ""
    warnings: Sequence[str] = ()
    content: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    estimator: Any = None


def invoke(*arguments: object) -> tuple[int, str]:
    """A command's exit status and what it prints, on a screen that breaks no line."""
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "10000"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


class CommandError(Exception):
    """A command that ended with a complaint."""


# What a way has no words for


def speechless(world: World, job: Any) -> str:
    """What of a combination its way has no words for; nothing where it has."""
    way = world.c["way"]
    if way == "none":
        return "nobody asks for it on this machine"
    site = next((why for name, why in _SITE_ONLY.items() if _differs(world, name)), "")
    if way == "site files":
        of_owner = world.job_name != "fit" and world.site["privacy"]
        return "rules of an owner" if of_owner else _unsaid(world, _options(world))
    if site or world.c["site.limits"] == "5":
        return site or "the fewest rows that a site answers about"
    if way in FILES:
        return _unsaid(world, _options(world)) or _of_groups(world)
    if world.site["dates"] and getattr(job, "prepare", None) is None:
        return "dates without a preparation"
    starts = {"init": "array", "start": "means", "means": "given"}.items()
    if world.site["dates"] and world.c["prepare"] == "auto" and starts & world.c.items():
        return "a start with the columns that dates become, which a table by default has not"
    nameless = way in ("array", "sparse")
    if nameless and (world.c["missing"] == "True" and way == "sparse"):
        return "a sparse matrix has no missing values"
    by_name = world.c["prepare"] in ("median", "ignore", "pca") or world.c["bounds"] == "mapping"
    if nameless and by_name:
        return "names of columns"
    if getattr(job, "model", "") == "auto":
        return "what was judged, whatever its shape"
    return _unsaid(world, set(estimator_of(job)().get_params()) | _RENAMED)


_SITE_ONLY = {
    "site.privacy": "a privacy budget of a site",
}
_RENAMED = {"n_clusters", "seed", "model", "rule"}


@cache
def unspoken(job_name: str) -> set[frozenset[tuple[str, str]]]:
    """Pairs of a way and a value that it has no words for."""
    usual, factors = defaults(job_name), factors_of(job_name)
    values = [(name, value) for name in factors if name != "way" for value in factors[name]]
    pairs = product([("way", way) for way in factors["way"] if way != "none"], values)
    some = {pair: ({**usual, **dict(pair)}, with_needs(job_name, *pair)) for pair in pairs}
    worlds = {pair: [World(job_name, c, {}) for c in each] for pair, each in some.items()}
    return {frozenset(pair) for pair, each in worlds.items() if all(map(_says_nothing, each))}


def _says_nothing(world: World) -> str:
    """What of a combination its way has no words for, be it refused or not."""
    try:
        job = job_of(world)
    except InputError:
        job = SimpleNamespace(**words_of(world))
    return speechless(world, job)


def _differs(world: World, name: str) -> bool:
    return world.c[name] != next(iter(factors_of(world.job_name)[name]))


def _options(world: World) -> set[str]:
    """The fields of a job that the command line has as options."""
    kind: Any = JOBS[world.job_name][0]
    every = WORDS.values() if kind is fit_of else fields(kind)
    own = {each.name for each in every if each.metadata} | {"prepare"}
    if world.job_name == "select-k":
        return own | {"bounds", "pick"}
    if world.job_name == "fit":
        return own | {"bounds"}
    return own | {"model", "profile", "metrics", "algorithms", "labels", "n_references", "beside"}


def _unsaid(world: World, known: set[str]) -> str:
    own = JOBS[world.job_name][1]
    unsaid = [name for name in own if name not in known and _differs(world, name)]
    lacks = COMMAND_LACKS.get(world.job_name, {}) if world.c["way"] in COMMANDS else {}
    unsaid += [name for name, says in lacks.items() if world.c.get(name) in says]
    if world.job_name == "select-k" and world.c["prepare"] in ("median", "ignore", "pca"):
        unsaid.append("logarithms, bounds, weights or components of columns")
    return ", ".join(unsaid)


COMMAND_LACKS = {
    "fit": {
        "init": ["array"],
        "noise": ["900.0"],
        "stability": ["2"],
        "bounds": ["pair"],
    },
    "evaluate": {"classes": ["('a', 'b', 'c')"]},
}
"""Values for which the command line has no words, where it has the option."""


def _of_groups(world: World) -> str:
    return "how rows are grouped" if _differs(world, "site.groups") else ""


# Estimators


def estimator_of(job: Any) -> type[Any]:
    if job.model in ("mixture", "merged"):
        return FederatedGaussianMixture
    return FederatedKMeans if job.m is None else FederatedFuzzyCMeans


def tables(world: World) -> dict[str, Any]:
    """The rows of all sites, as tables of a kind, without the columns that have a part.

    Those that are prepared by "auto" have a column that is to be left out.
    """
    way, rows = world.c["way"], {name: table[world.values] for name, table in world.tables.items()}
    if world.c["prepare"] == "auto" and way not in ("array", "sparse"):
        rows = {
            name: frame.assign(row=[f"{name}-{j}" for j in range(len(frame))])
            for name, frame in rows.items()
        }
    return {name: _TABLES[way](rows[name], world.folder / f"{name}.csv") for name in rows}


def _path(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_csv(path, index=False, date_format="%Y-%m-%d")
    return path


_TABLES: Mapping[str, Any] = {
    "pandas": lambda frame, _: frame,
    "array": lambda frame, _: frame.to_numpy(dtype=float),
    "polars": lambda frame, _: pl.DataFrame({name: frame[name].tolist() for name in frame}),
    "arrow": lambda frame, _: pa.table({name: frame[name].tolist() for name in frame}),
    "sparse": lambda frame, _: sparse.csr_matrix(frame.to_numpy(dtype=float)),
    "paths": _path,
}


def estimator(world: World, job: Any) -> Found:
    """Fit an estimator to tables."""
    kind = estimator_of(job)
    known = {each.name: getattr(job, each.name) for each in fields(job)}
    renamed = {
        "random_state": job.seed,
        "n_init": "auto" if job.n_init is None else job.n_init,
        "n_components": job.n_clusters,
        "merge": job.model == "merged",
        "rule": "likelihood" if job.rule is None else job.rule,
        "protection": protection(world),
    }
    if world.c["prepare"] == "auto":
        renamed["prepare"] = "auto"
    if without_limits(world):
        renamed["min_cluster_size"] = 1
    given = {**known, **renamed}
    names = kind().get_params()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = kind(**{name: given[name] for name in names if name in given})
        fitted.fit(tables(world), **beside(world))
    said = [str(each.message) for each in caught]
    labels = {name: fitted.site_labels_[name] for name in world.frames}
    return Found(Model.from_estimator(fitted), labels, warnings=said, estimator=fitted)


def without_limits(world: World) -> bool:
    """Whether a user says that rows of files or tables have no limits; a budget has none."""
    no_rules = world.site["protection"] != "groups" and world.c.get("epsilon", "None") == "None"
    return no_rules and world.c["site.limits"] == "none"


def protection(world: World) -> Groups | None:
    groups = Groups(**world.site["groups"]) if world.site["protection"] == "groups" else None
    return groups


def beside(world: World) -> dict[str, Any]:
    """The weights and persons of all rows, where they are told."""
    parts = {"sample_weight": "weight_column", "groups": "group_column"}
    return {
        name: {site: frame[world.site[key]].to_numpy() for site, frame in world.tables.items()}
        for name, key in parts.items()
        if world.site[key] is not None
    }


# Commands


def files(world: World, *, apart: bool = False) -> list[str]:
    """The arguments that say where the rows are."""
    if world.c["way"] == "site files":
        return [str(site.path) for site in world.site_files]
    if world.c["way"] == "files" and world.c["source"] in ADDRESSES:
        return [f"{name}={world.address(name)[0]}" for name in world.frames]
    frames = {name: world.written(name) for name in world.frames}
    if world.c["way"] == "one file" and not apart:
        every = pd.concat([frame.assign(site=name) for name, frame in frames.items()])
        return [str(_path(every, world.folder / "all.csv"))]
    odd = partial(_odd, distinct=world.job_name == "select-k")
    write = odd if world.c["way"] == "odd files" else _path
    return [f"{name}={write(each, world.folder / f'{name}.csv')}" for name, each in frames.items()]


def _odd(frame: pd.DataFrame, path: Path, *, distinct: bool = False) -> Path:
    """A file with lines above, decimal commas, in another encoding, and with odd columns."""
    frame = with_odd_columns(frame, distinct=distinct)
    table = frame.to_csv(index=False, sep=";", decimal=",", date_format="%Y-%m-%d")
    path.write_bytes(f"Größen;aus;einer;Klinik\n\n{table}".encode("cp1252"))
    return path


def with_odd_columns(frame: pd.DataFrame, *, distinct: bool = False) -> pd.DataFrame:
    """Rows with a text that says nothing, and one among numbers.

    These are two levels, or if all are distinct, no measurement.
    """
    torn = ["much", *(f"{i if distinct else 2},5" for i in range(1, len(frame)))]
    return frame.assign(remark="größer", torn=torn)


def of_values(world: World) -> list[str]:
    """The options that say what the values of files mean."""
    if world.c["way"] == "site files":
        return []
    site = world.site
    said = [
        f"--set={key}={in_toml(site[key])}"
        for key in ("missing_values", "codes", "rename")
        if site[key]
    ]
    if site["factors"]:
        each = in_toml(site["factors"])
        said += [f"--set={dotted('sites', name, 'factors')}={each}" for name in world.frames]
    if world.c["way"] == "files" and world.c["source"] in ADDRESSES:
        keys = [(name, *each) for name in world.frames for each in world.address(name)[1].items()]
        said += [f"--set={dotted('sites', n, key)}={in_toml(value)}" for n, key, value in keys]
    odd = ["source.decimal=,", "source.encoding=cp1252", "source.skip=2"]
    odd = [f"--set={each}" for each in odd] + ["--append"] * (world.job_name == "fit")
    return said + odd * (world.c["way"] == "odd files")


def of_rows(world: World, job: Any) -> list[str]:
    """The options that say what the columns of files are."""
    if world.c["way"] == "site files":
        return []
    labelled, of_model = world.job_name == "evaluate", world.job_name in ("evaluate", "profile")
    unsaid = {"id_column": world.job_name != "fit", "label_column": not labelled}
    said = [
        f"--set={key}={name}" if key == "weight_column" else f"--{key.replace('_', '-')}={name}"
        for key, name in world.parts.items()
        if not unsaid.get(key)
    ]
    if of_model:  # its columns are read
        pass
    elif world.site["columns"] is not None or {"label_column", "id_column"} & {*world.parts}:
        said.append(f"--columns={','.join(chosen_of(world, job))}")
    elif world.c["way"] == "odd files":
        read = getattr(job, "prepare", None) is not None
        said += ["--exclude=remark", "--lenient"] if read else ["--exclude=remark,torn"]
    if world.c["way"] == "one file":
        said.append("--site-column=site")
    if world.site["protection"] == "groups":
        said.append("--set=protection=groups")
    said += [f"--set=plugins={in_toml([name])}" for name in world.site["plugins"]]
    return [*said, *of_values(world)]


def chosen_of(world: World, job: Any) -> list[str]:
    """The columns that may be chosen: neither dates nor texts of which no numbers are made."""
    how = getattr(job, "prepare", None)
    no_number = {"seen"} - {*world.site["dates"]}
    no_number |= {"town"} if how is not None and how.categories == "none" else set()
    return [name for name in world.values if name not in no_number]


def of_job(world: World, job: Any) -> list[str]:
    """The options of a job."""
    said: list[str] = []
    for each in WORDS.values() if isinstance(job, Fit) else fields(job):
        value = getattr(job, each.name, each.default)
        if not each.metadata or value == each.default:
            continue
        option = next(iter(each.metadata["flags"]), named(each.name))
        if each.name not in OPTIONS:
            is_usual = world.job_name == "fit" and each.name == "m" and value == FUZZY
            key = ".".join(key_of(type(job), each.name))
            said.append("--fuzzy" if is_usual else f"--set={key}={in_toml(value)}")
        elif isinstance(value, bool):
            said.append(option)
        else:
            text = f"{value[0]}-{value[-1]}" if isinstance(value, tuple) else value
            if isinstance(value, Lloyd):
                text = "fedcluster.algorithms.Lloyd"
            said += [option, str(text)]
    if getattr(job, "epsilon", None) is not None:
        return [*said, f"--set=prepare.bounds={in_toml(job.bounds)}"] if job.bounds else said
    how = job.prepare
    dates = {} if how is None or world.c["way"] == "site files" else how.dates
    said += [] if world.c["prepare"] == "auto" else of_preparation(how)
    return said + [f"--set={dotted('dates', name)}={value}" for name, value in dates.items()]


FUZZY = 2.0
"""The fuzzifier that stands for fuzzy clusters, where none is given."""


def of_preparation(how: Any) -> list[str]:
    if how is None:
        return ["--scale", "none"]
    said = ["--scale", how.scale, "--missing", how.missing]
    named = how.categories if isinstance(how.categories, str) else ",".join(how.categories)
    said += [] if named == "auto" else ["--categories", named]
    then = f"{PLUGIN}.{type(how.then).__name__}" if how.then else None
    more = {"log": how.log, "bounds": how.bounds, "weights": how.weights, "pca": how.pca}
    more |= {"then": then}
    return said + [f"--set=prepare.{key}={in_toml(value)}" for key, value in more.items() if value]


def command(world: World, job: Any) -> Found:
    """Run `fedcluster fit`."""
    out = world.folder / "out"
    status, said = invoke("fit", *files(world), *options(world, job), "-o", out)
    if status:
        raise CommandError(said)
    content = json.loads((out / "history.json").read_text())
    labels = {name: labels_of(out / "labels" / f"{name}.csv") for name in world.frames}
    return Found(Model.load(out), labels, said, content=content, folder=out)


def options(world: World, job: Any) -> list[str]:
    """All options of a command."""
    said = of_rows(world, job)
    if world.job_name == "fit":
        limited = world.c["way"] in FILES and without_limits(world)
        return said + of_job(world, job) + ["--min-cluster-size=1"] * limited
    if world.job_name == "select-k":
        said += of_job(world, job)
        if job.bounds is not None:
            pairs = [*zip(*job.bounds, strict=True)]
            said.append(f"--set=select_k.bounds={in_toml(pairs)}")
    else:
        said += [f"--set=fit.algorithm={each}" for each in job.algorithms]
    if world.job_name == "evaluate":
        said += [f"--metric={each}" for each in job.metrics] + ["--profile"] * job.profile
        if job.beside is not None:
            job.beside.save(world.folder / "beside.json")
            said.append(f"--beside={world.folder / 'beside.json'}")
    return said + ["--min-cluster-size=1"] * (world.c["way"] in FILES)


def commanded(world: World, job: Any) -> dict[str, Any]:
    """What `fedcluster select-k`, `evaluate` or `profile` says with ``--json``."""
    given: list[object] = []
    if world.job_name != "select-k":
        given = [world.folder / "model.json"]
        job.model.save(*given)
    status, said = invoke(world.job_name, *given, *files(world), *options(world, job), "--json")
    if status:
        raise CommandError(said)
    content: dict[str, Any]
    content, _ = json.JSONDecoder().raw_decode(said, said.index("{"))
    return content


def labels_of(path: Path) -> np.ndarray:
    """The clusters in a file of labels; -1 where a row has none."""
    clusters = pd.read_csv(path)["cluster"].to_numpy()
    return np.asarray(clusters)


def fitted(world: World, job: Any) -> Found:
    return (command if world.c["way"] in COMMANDS else estimator)(world, job)


def predicted(world: World, found: Found) -> dict[str, Any]:
    """The labels of `fedcluster predict`."""
    out = world.folder / "predicted"
    options = of_values(world)
    if world.c["way"] in FILES and "id_column" in world.parts:
        options.append(f"--id-column={world.parts['id_column']}")
    rows = files(world, apart=True)
    status, said = invoke("predict", found.folder, *rows, *options, "-o", out)
    if status:
        raise CommandError(said)
    return {name: labels_of(out / f"{name}.csv") for name in world.frames}


def warned(said: str) -> list[str]:
    """The doubts that a command tells on its screen."""
    return [line.partition(": ")[2] for line in said.splitlines() if line.startswith("warning: ")]
