"""Ways of a user on this machine: an estimator that is given tables, and the command line."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from scipy import sparse
from typer.testing import CliRunner

from fedcluster import FederatedFuzzyCMeans, FederatedGaussianMixture, FederatedKMeans
from fedcluster.cli import app
from fedcluster.model import Model
from fedcluster.privacy import Groups
from pairs.factors import COMMANDS, FILES, JOBS, PLUGIN, factors_of
from pairs.worlds import World


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
    site = next((why for name, why in _SITE_ONLY.items() if _differs(world, name)), "")
    if way == "site files":
        return _unsaid(world, _options(world))
    if site:
        return site
    if way in FILES:
        return _unsaid(world, _options(world)) or _of_groups(world)
    if world.site["dates"] and getattr(job, "prepare", None) is None:
        return "dates without a preparation"
    nameless = way in ("array", "sparse")
    if nameless and (world.c["missing"] == "True" and way == "sparse"):
        return "a sparse matrix has no missing values"
    by_name = world.c["prepare"] in ("median", "ignore", "pca") or world.c["bounds"] == "mapping"
    if nameless and by_name:
        return "names of columns"
    if getattr(getattr(job, "resolved", job), "model", "") == "auto":
        return "what was judged, whatever its shape"
    return _unsaid(world, set(estimator_of(job)().get_params()) | _RENAMED)


_SITE_ONLY = {
    "site.limits": "limits of a site",
    "site.privacy": "a privacy budget of a site",
    "site.colluders": "sites that share noise",
}
_RENAMED = {"n_clusters", "seed", "model", "rule"}


def _differs(world: World, name: str) -> bool:
    return world.c[name] != next(iter(factors_of(world.job_name)[name]))


def _options(world: World) -> set[str]:
    """The fields of a job that the command line has as options."""
    kind, _ = JOBS[world.job_name]
    own = {each.name for each in fields(kind) if each.metadata} | {"prepare"}
    if world.job_name == "select-k":
        return own | {"bounds", "pick"}
    return own | ({"bounds"} if world.job_name == "fit" else {"model", "profile", "metrics"})


def _unsaid(world: World, known: set[str]) -> str:
    own = JOBS[world.job_name][1]
    unsaid = [name for name in own if name not in known and _differs(world, name)]
    lacks = COMMAND_LACKS if world.c["way"] in COMMANDS else {}
    unsaid += [name for name, says in lacks.items() if world.c.get(name) in says]
    if world.job_name == "select-k" and world.c["prepare"] in ("median", "ignore", "pca"):
        unsaid.append("logarithms, bounds, weights or components of columns")
    return ", ".join(unsaid)


COMMAND_LACKS = {
    "init": ["array"],
    "noise": ["900.0"],
    "stability": ["2"],
    "algorithm": ["own"],
    "bounds": ["pair"],
    "classes": ["('a', 'b', 'c')"],
}
"""Values for which the command line has no words, where it has the option."""


def _of_groups(world: World) -> str:
    return "how rows are grouped" if _differs(world, "site.groups") else ""


# Estimators


def estimator_of(job: Any) -> type[Any]:
    if job.model == "mixture":
        return FederatedGaussianMixture
    return FederatedKMeans if job.m is None else FederatedFuzzyCMeans


def tables(world: World) -> dict[str, Any]:
    """The rows of all sites, as tables of a kind, without the columns that have a part."""
    way = world.c["way"]
    return {
        name: _TABLES[way](world.tables[name][world.values], world.folder / f"{name}.csv")
        for name in world.frames
    }


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
        "rule": "likelihood" if job.rule is None else job.rule,
        "protection": protection(world),
    }
    given = {**known, **renamed}
    names = kind().get_params()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = kind(**{name: given[name] for name in names if name in given})
        fitted.fit(tables(world), **beside(world))
    said = [str(each.message) for each in caught]
    labels = {name: fitted.site_labels_[name] for name in world.frames}
    return Found(Model.from_estimator(fitted), labels, warnings=said, estimator=fitted)


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
    frames = {name: world.written(name) for name in world.frames}
    if world.c["way"] == "one file" and not apart:
        every = pd.concat([frame.assign(site=name) for name, frame in frames.items()])
        return [str(_path(every, world.folder / "all.csv"))]
    write = _odd if world.c["way"] == "odd files" else _path
    return [f"{name}={write(each, world.folder / f'{name}.csv')}" for name, each in frames.items()]


def _odd(frame: pd.DataFrame, path: Path) -> Path:
    """A file with lines above, decimal commas, in another encoding, and with odd columns."""
    torn = ["much", *["2,5"] * (len(frame) - 1)]
    frame = frame.assign(remark="größer", torn=torn)
    table = frame.to_csv(index=False, sep=";", decimal=",", date_format="%Y-%m-%d")
    path.write_bytes(f"Größen;aus;einer;Klinik\n\n{table}".encode("cp1252"))
    return path


def of_values(world: World) -> list[str]:
    """The options that say what the values of files mean."""
    if world.c["way"] == "site files":
        return []
    site = world.site
    said = [f"--missing-values={value}" for value in site["missing_values"]]
    codes = [
        f"{name}:{x}={meant}" for name, each in site["codes"].items() for x, meant in each.items()
    ]
    factors = [f"{n}:{column}={x}" for column, x in site["factors"].items() for n in world.frames]
    renamed = [f"{own}={name}" for own, name in site["rename"].items()]
    for option, each in (("codes", codes), ("factor", factors), ("rename", renamed)):
        said += [f"--{option}={','.join(each)}"] if each else []
    odd = ["--decimal=,", "--encoding=cp1252", "--skip-rows=2"]
    odd += ["--append"] * (world.job_name == "fit")
    return said + odd * (world.c["way"] == "odd files")


def of_rows(world: World, job: Any) -> list[str]:
    """The options that say what the columns of files are."""
    if world.c["way"] == "site files":
        return []
    labelled, of_model = world.job_name == "evaluate", world.job_name in ("evaluate", "profile")
    unsaid = {"id_column": world.job_name != "fit", "label_column": not labelled}
    said = [
        f"--{key.replace('_', '-')}={name}"
        for key, name in world.parts.items()
        if not unsaid.get(key)
    ]
    if of_model:  # its columns are read
        pass
    elif world.site["columns"] is not None or {"label_column", "id_column"} & {*world.parts}:
        said.append(f"--columns={','.join(world.values)}")
    elif world.c["way"] == "odd files":
        read = getattr(job, "prepare", None) is not None
        said += ["--exclude=remark", "--lenient"] if read else ["--exclude=remark,torn"]
    if world.c["way"] == "one file":
        said.append("--site-column=site")
    if world.site["protection"] == "groups":
        said.append("--protection=groups")
    return [*said, *of_values(world)]


def of_job(world: World, job: Any) -> list[str]:
    """The options of a job."""
    said: list[str] = []
    for each in fields(job):
        value = getattr(job, each.name)
        if not each.metadata or value == each.default:
            continue
        option = (*each.metadata["flags"], f"--{each.name.replace('_', '-')}")[0]
        if isinstance(value, bool):
            said.append(option)
        else:
            text = f"{value[0]}-{value[-1]}" if isinstance(value, tuple) else value
            said += [option, str(text)]
    if getattr(job, "epsilon", None) is not None:
        return [*said, "--bounds", _pairs(job.bounds)] if job.bounds else said
    return [*said, *of_preparation(job.prepare)]


def of_preparation(how: Any) -> list[str]:
    if how is None:
        return ["--scale", "none"]
    said = ["--scale", how.scale, "--missing", how.missing]
    said += [] if how.categories == "auto" else ["--categories", str(how.categories)]
    said += ["--log", ",".join(how.log)] if how.log else []
    said += ["--bounds", _pairs(how.bounds)] if how.bounds else []
    weights = ",".join(f"{name}={value}" for name, value in how.weights.items())
    said += ["--weight", weights] if weights else []
    said += ["--pca", str(how.pca)] if how.pca else []
    said += ["--prepare", f"{PLUGIN}.{type(how.then).__name__}"] if how.then else []
    dates = ",".join(f"{name}={value}" for name, value in how.dates.items())
    return said + (["--dates", dates] if dates else [])


def _pairs(bounds: Mapping[str, tuple[float, float]]) -> str:
    return ",".join(f"{name}={low}:{high}" for name, (low, high) in bounds.items())


def command(world: World, job: Any) -> Found:
    """Run `fedcluster fit`."""
    out = world.folder / "out"
    status, said = invoke(
        "fit", *files(world), *of_rows(world, job), *of_job(world, job), "-o", out
    )
    if status:
        raise CommandError(said)
    content = json.loads((out / "history.json").read_text())
    labels = {name: labels_of(out / "labels" / f"{name}.csv") for name in world.frames}
    return Found(Model.load(out), labels, said, content=content, folder=out)


def commanded(world: World, job: Any) -> dict[str, Any]:
    """What `fedcluster select-k`, `evaluate` or `profile` says with ``--json``."""
    options = of_rows(world, job)
    if world.job_name == "select-k":
        options += of_job(world, job) + ["--elbow"] * (job.pick == "elbow")
        if job.bounds is not None:
            pairs = zip(*job.bounds, strict=True)
            options.append(f"--bounds={','.join(f'{low}:{high}' for low, high in pairs)}")
        given: list[object] = []
    else:
        job.model.save(world.folder / "model.json")
        given = [world.folder / "model.json"]
        options += [f"--algorithm={each}" for each in job.algorithms]
    if world.job_name == "evaluate":
        options += [f"--metric={each}" for each in job.metrics] + ["--profile"] * job.profile
    options += ["--min-cluster-size=1"] * (world.c["way"] in FILES)
    status, said = invoke(world.job_name, *given, *files(world), *options, "--json")
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
