"""Ways of a user on this machine: an estimator that is given tables, and the command line."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
from scipy import sparse
from typer.testing import CliRunner

from fedcluster import FederatedFuzzyCMeans, FederatedGaussianMixture, FederatedKMeans
from fedcluster.algorithms import Lloyd
from fedcluster.model import Model
from fedcluster.options.refusals import RefusedCombination
from fedcluster.privacy import Groups
from fedcluster.recipes.specifications import WORDS, Fit, SelectK
from fedcluster.texts import dotted, in_toml
from fedcluster_app.cli import app
from fedcluster_app.cli._options import OPTIONS, key_of, named
from pairs.factors import COMMANDS, FILES, JOBS, PLUGIN, TABLES, defaults, factors_of, with_needs
from pairs.worlds import ADDRESSES, World

FUZZY = 2.0
"""The fuzzifier that ``--fuzzy`` stands for."""


@dataclass
class Found:
    """What a user has in the end; of a command also its folder, and what it said."""

    model: Model
    labels: Mapping[str, Any]
    said: str = ""
    content: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    estimator: Any = None


class CommandError(Exception):
    """A command that ended with a complaint."""


def invoke(*arguments: object) -> tuple[int, str]:
    """A command's exit status and what it prints, on a screen that breaks no line."""
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "10000"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def done(*arguments: object) -> str:
    status, said = invoke(*arguments)
    if status:
        raise CommandError(said)
    return said


def is_line_of(row: RefusedCombination, message: str) -> bool:
    """Whether a message is the line of a refusal, with some values in its places."""
    lines = (re.escape(each) for each in (row.line, row.command) if each)
    return any(re.fullmatch(re.sub(r"\\\{.*?\\\}", ".+", each), message) for each in lines)


# What a way has no words for


def speechless(world: World) -> bool:
    """Whether the way of a combination has no words for it."""
    way, site, c = world.c["way"], world.site, world.c
    if way == "none":
        return True
    if way == "site files":
        return bool(world.job_name != "fit" and site["privacy"]) or _is_unsaid(world)
    if site["privacy"] or c["site.limits"] == "5":
        return True
    if way in FILES:
        parts = {"weight_column", "group_column"} & world.parts.keys()
        lacks = bool(parts) or way == "one file" or site["protection"] == "groups"
        lacks &= world.job_name == "compare"
        return lacks or _is_unsaid(world) or c["site.groups"] != "default"
    starts = {"init": "array", "start": "means", "means": "given"}.items() & c.items()
    if site["dates"] and (c["prepare"] == "none" or (c["prepare"] == "auto" and starts)):
        return True
    by_name = c["prepare"] in ("median", "ignore", "pca") or c["bounds"] == "mapping"
    if way in ("array", "sparse") and by_name:
        return True
    dense = c["algorithm"] == "ffcm" or estimator_of(world) is not FederatedKMeans
    if way == "sparse" and (dense or c["missing"] == "True"):
        return True
    judged = c["model"] == "auto" and c["rule"] == "none" and c["n_clusters"] not in ("1", "3")
    return judged or _is_unsaid(world)  # an estimator does not say what was judged of any shape


COMMAND_LACKS = {
    "fit": {("init", "array"), ("noise", "900.0"), ("stability", "2"), ("bounds", "pair")},
    "select-k": {("prepare", each) for each in ("median", "ignore", "pca")},
    "evaluate": {("classes", "('a', 'b', 'c')")},
    "profile": set[tuple[str, str]](),
    "compare": set[tuple[str, str]](),
}
"""Values for which the command line has no words, where it has the option."""


def _is_unsaid(world: World) -> bool:
    """Whether the way has no parameter, key or option for a value that is not as by default."""
    job, own = world.job_name, JOBS[world.job_name][1]
    if world.c["way"] in TABLES:
        known = {*estimator_of(world)().get_params(), "n_clusters", "seed", "model", "rule"}
    else:
        bounded = job == "fit" and world.c["bounds"] != "none" and world.c["epsilon"] == "None"
        if COMMAND_LACKS[job] & world.c.items() or bounded:
            return True
        kind: Any = JOBS[job][0]
        every = WORDS.values() if job == "fit" else fields(kind)
        known = {each.name for each in every if each.metadata} | {"prepare", "bounds", "pick"}
        known |= {"model", "outcomes", "time"} if job == "compare" else set()
        if job in ("evaluate", "profile"):
            known |= {"model", "profile", "metrics", "algorithms", "labels", "n_references"}
            known |= {"beside"}
    return any(world.c[name] != defaults(job)[name] for name in own if name not in known)


@cache
def unspoken(job: str) -> set[frozenset[tuple[str, str]]]:
    """Pairs of a way and a value that it has no words for."""
    values = [(name, v) for name, each in factors_of(job).items() if name != "way" for v in each]
    ways = [("way", way) for way in factors_of(job)["way"] if way != "none"]
    return {
        frozenset(pair)
        for pair in product(ways, values)
        if speechless(World(job, {**defaults(job), **dict(pair)}, {}))
        and speechless(World(job, with_needs(job, *pair), {}))
    }


# Estimators


def estimator_of(world: World) -> type[Any]:
    if world.words["model"] in ("mixture", "merged"):
        return FederatedGaussianMixture
    return FederatedKMeans if world.words["m"] is None else FederatedFuzzyCMeans


def tables(world: World) -> dict[str, Any]:
    """The rows of all sites, as tables of a kind, without the columns that have a part.

    Those that are prepared by "auto" have a column that is to be left out.
    """
    way, rows = world.c["way"], {name: table[world.values] for name, table in world.tables.items()}
    if world.c["prepare"] == "auto" and way not in ("array", "sparse"):
        for name, frame in rows.items():
            rows[name] = frame.assign(row=[f"{name}-{j}" for j in range(len(frame))])
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


def estimated(world: World) -> Found:
    """Fit an estimator to tables, and to the weights and persons of rows where they are told."""
    words, kind, site = world.words, estimator_of(world), world.site
    given = words | {
        "random_state": words["seed"],
        "n_init": words["n_init"] or "auto",
        "n_components": words["n_clusters"],
        "merge": words["model"] == "merged",
        "rule": words["rule"] or "likelihood",
        "protection": Groups(**site["groups"]) if site["protection"] == "groups" else None,
    }
    given |= {"prepare": "auto"} if world.c["prepare"] == "auto" else {}
    given |= {"min_cluster_size": 1} if has_no_limits(world) else {}
    names = kind().get_params()
    fitted = kind(**{name: given[name] for name in names if name in given})
    parts = {"sample_weight": "weight_column", "groups": "group_column"}
    beside = {
        name: {each: frame[site[key]].to_numpy() for each, frame in world.tables.items()}
        for name, key in parts.items()
        if site[key] is not None
    }
    fitted.fit(tables(world), **beside)
    labels = {name: fitted.site_labels_[name] for name in world.frames}
    return Found(Model.from_estimator(fitted), labels, estimator=fitted)


def has_no_limits(world: World) -> bool:
    """Whether a user says that rows of files or tables have no limits; a budget has none."""
    no_rules = world.site["protection"] != "groups" and world.c.get("epsilon", "None") == "None"
    return no_rules and world.c["site.limits"] == "none"


# Commands


def files(world: World, *, apart: bool = False) -> list[str]:
    way = world.c["way"]
    if way == "site files":
        return [str(site.path) for site in world.site_files]
    if way == "files" and world.c["source"] in ADDRESSES:
        return [f"{name}={world.source(name)['url']}" for name in world.frames]
    rows = {name: world.written(name) for name in world.frames}
    if way == "one file" and not apart:
        every = pd.concat([frame.assign(site=name) for name, frame in rows.items()])
        return [str(_path(every, world.folder / "all.csv"))]
    for name, frame in rows.items():
        path = _path(frame, world.folder / f"{name}.csv")
        if way == "odd files":
            odd = with_odd_columns(frame, distinct=world.job_name == "select-k")
            table = odd.to_csv(index=False, sep=";", decimal=",", date_format="%Y-%m-%d")
            path.write_bytes(f"Größen;aus;einer;Klinik\n\n{table}".encode("cp1252"))
    return [f"{name}={world.folder / name}.csv" for name in rows]


def with_odd_columns(frame: pd.DataFrame, *, distinct: bool = False) -> pd.DataFrame:
    """Rows with a text that says nothing, and one among numbers.

    These are two levels, or if all are distinct, no measurement.
    """
    torn = ["much", *(f"{i if distinct else 2},5" for i in range(1, len(frame)))]
    return frame.assign(remark="größer", torn=torn)


def of_values(world: World) -> list[str]:
    site, way, keys = world.site, world.c["way"], dict[str, Any]()
    if way == "site files":
        return []
    keys |= {key: site[key] for key in ("missing_values", "codes", "rename") if site[key]}
    for name in world.frames:
        own = {"factors": site["factors"]} if site["factors"] else {}
        if way == "files" and world.c["source"] in ADDRESSES:
            own |= {k: v for k, v in world.source(name).items() if k != "url"}
        keys |= {dotted("sites", name, key): value for key, value in own.items()}
    said = [f"--set={key}={in_toml(value)}" for key, value in keys.items()]
    odd = [f"--set=source.{each}" for each in ("decimal=,", "encoding=cp1252", "skip=2")]
    return said + [*odd, *["--append"] * (world.job_name == "fit")] * (way == "odd files")


def of_rows(world: World) -> list[str]:
    job, way, site = world.job_name, world.c["way"], world.site
    if way == "site files":
        return []
    unsaid = {"id_column": job != "fit", "label_column": job != "evaluate"}
    said = [
        f"--set={key}={name}" if key == "weight_column" else f"--{key.replace('_', '-')}={name}"
        for key, name in world.parts.items()
        if not unsaid.get(key)
    ]
    how = world.words.get("prepare")
    if job in ("evaluate", "profile", "compare"):  # the columns of the model are read
        pass
    elif site["columns"] is not None or {"label_column", "id_column"} & {*world.parts}:
        no_number = {"seen"} - {*site["dates"]}
        no_number |= {"town"} if how is not None and how.categories == "none" else set()
        said.append(f"--columns={','.join(each for each in world.values if each not in no_number)}")
    elif way == "odd files":
        lenient = ["--exclude=remark", "--set=lenient=true"]
        said += ["--exclude=remark,torn"] if how is None else lenient
    said += ["--site-column=site"] * (way == "one file")
    said += ["--set=protection=groups"] * (site["protection"] == "groups")
    said += [f"--set=plugins={in_toml([name])}" for name in site["plugins"]]
    return [*said, *of_values(world)]


def of_job(world: World) -> list[str]:
    said, words = list[str](), world.words
    kind: Any = Fit if world.job_name == "fit" else SelectK
    for each in WORDS.values() if kind is Fit else fields(kind):
        value = words.get(each.name, each.default)
        if not each.metadata or value == each.default:
            continue
        if each.name == "previous":
            value.save(world.folder / "previous.json")
            value = world.folder / "previous.json"
        if (kind, each.name, value) == (Fit, "m", FUZZY):
            said.append("--fuzzy")
        elif each.name not in OPTIONS:
            said.append(f"--set={'.'.join(key_of(kind, each.name))}={in_toml(value)}")
        else:
            said.append(next(iter(each.metadata["flags"]), named(each.name)))
            own = "fedcluster.algorithms.Lloyd" if isinstance(value, Lloyd) else str(value)
            text = f"{value[0]}-{value[-1]}" if isinstance(value, tuple) else own
            said += [] if isinstance(value, bool) else [text]
    how, private = words["prepare"], words.get("epsilon") is not None
    said += [f"--set=prepare.bounds={in_toml(words['bounds'])}"] * (
        private and bool(words["bounds"])
    )
    usual = world.c["prepare"] == "auto" or (private and how is None)
    said += [] if usual else of_preparation(how, world.job_name)
    dates = {} if how is None or world.c["way"] == "site files" else how.dates
    return said + [f"--set={dotted('dates', name)}={value}" for name, value in dates.items()]


def of_preparation(how: Any, job: str) -> list[str]:
    if how is None:
        return ["--scale", "none"]
    said = ["--scale", how.scale, "--missing", how.missing]
    levels = how.categories if isinstance(how.categories, str) else ",".join(how.categories)
    said += [] if levels == "auto" else ["--categories", levels]
    more = {key: getattr(how, key) for key in ("log", "bounds", "weights", "pca")}
    adjusts = how.adjust if how.adjust != "none" else ""
    if job == "fit":
        said += ["--adjust", adjusts] if adjusts else []
    else:
        more["adjust"] = adjusts
    more["then"] = f"{PLUGIN}.{type(how.then).__name__}" if how.then else None
    return said + [f"--set=prepare.{key}={in_toml(value)}" for key, value in more.items() if value]


def options(world: World) -> list[str]:
    job, words, said = world.job_name, world.words, of_rows(world)
    if job in ("fit", "select-k"):
        said += of_job(world)
    elif job == "compare":
        said += [f"--outcome={each}" for each in words["outcomes"]]
        said += [f"--time={words['time']}"] * (words["time"] is not None)
    else:
        said += [f"--set=fit.algorithm={each}" for each in words["algorithms"]]
    if job == "select-k" and words["bounds"] is not None:
        said.append(f"--set=select_k.bounds={in_toml([*zip(*words['bounds'], strict=True)])}")
    if job == "evaluate":
        said += [f"--set=evaluate.metrics={each}" for each in words["metrics"]]
        said += ["--profile"] * words["profile"]
        if words["beside"] is not None:
            words["beside"].save(world.folder / "beside.json")
            said.append(f"--beside={world.folder / 'beside.json'}")
    free = world.c["way"] in FILES and (job != "fit" or has_no_limits(world))
    return said + ["--min-cluster-size=1"] * free


def commanded(world: World) -> dict[str, Any]:
    """What `fedcluster select-k`, `evaluate` or `profile` says with ``--json``."""
    given: list[object] = []
    if world.job_name != "select-k":
        given = [world.folder / "model.json"]
        world.words["model"].save(*given)
    said = done(world.job_name, *given, *files(world), *options(world), "--json")
    content: dict[str, Any]
    content, _ = json.JSONDecoder().raw_decode(said, said.index("{"))
    return content


def labels_in(folder: Path, world: World) -> dict[str, Any]:
    """The clusters in files of labels; -1 where a row has none."""
    read = {name: pd.read_csv(folder / f"{name}.csv") for name in world.frames}
    return {name: table["cluster"].to_numpy() for name, table in read.items()}


def fitted(world: World) -> Found:
    if world.c["way"] not in COMMANDS:
        return estimated(world)
    out = world.folder / "out"
    said = done("fit", *files(world), *options(world), "-o", out)
    content = json.loads((out / "history.json").read_text())
    return Found(Model.load(out), labels_in(out / "labels", world), said, content, out)


def predicted(world: World, found: Found) -> dict[str, Any]:
    out, said = world.folder / "predicted", of_values(world)
    if world.c["way"] in FILES and "id_column" in world.parts:
        said.append(f"--id-column={world.parts['id_column']}")
    done("predict", found.folder, *files(world, apart=True), *said, "-o", out)
    return labels_in(out, world)
